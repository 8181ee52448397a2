"""What the class of a Scrapy spider declares, before any object of it exists, and what is wrong with it.

How it fails: what cannot be read from the class (a property) is read from the object when the spider runs. What is
wrong with a class is a sentence about this class; Scrapy passes over most of it in silence.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

import scrapy

_HOST = re.compile(r"[^/:\s]+")


def declared(cls: type[scrapy.Spider], name: str, default: Any = None) -> Any:
    """The value of an attribute that the class sets itself; the default if only its objects have one."""
    value = getattr(cls, name, default)
    return default if inspect.isdatadescriptor(value) or inspect.isroutine(value) else value


def valid_domains(given: Any) -> list[str]:
    """The entries of `allowed_domains` that can be the name of a host; the others match none, as in Scrapy."""
    return [one for one in _domains(given) if isinstance(one, str) and _HOST.fullmatch(one)]


def class_faults(cls: type[scrapy.Spider]) -> tuple[str, ...]:
    """What is wrong with the class alone."""
    named = declared(cls, "allowed_domains")
    good = valid_domains(named)
    faults = [
        f"allowed_domains: {one!r:.80} matches no host. Write 'shop.example', without scheme, port or path."
        for one in _domains(named)
        if one is not None and one not in good
    ]
    own = vars(cls).get("custom_settings")
    if own is not None and not isinstance(own, dict):
        faults.append(f"custom_settings is a {type(own).__name__}. Write a dict.")
    return tuple(faults)


def _domains(given: Any) -> list[Any]:
    if not given:
        return []
    return [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)

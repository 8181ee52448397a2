"""The names by which callbacks travel with queued requests, and the callbacks behind those names.

A method of the spider travels by its name. A method of another spider of the project, or a function in one of its
modules, travels as `module:Class.method`; the other spider is made anew in the process that parses the page, with
`from_crawler` and no arguments.
How it fails: what has no name that another process could find (a lambda, a function within a function, a method of an
object that is no spider) is refused with its line. A name from the queue reaches only functions of modules that are
loaded and belong to the package of the spider.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import isfunction
from typing import Any

import scrapy

from ...errors import ParseFailed

FOREIGN = "callbacks"  # the key in the data of a request: callback and errback, if they are not the spider's own


def own_name(method: Callable[..., Any], spider: scrapy.Spider) -> str | None:
    """The name of a method of the spider; None for anything else."""
    name = getattr(method, "__name__", "")
    own = getattr(spider, name, None) if name else None
    same = getattr(own, "__func__", None) is getattr(method, "__func__", method)
    return name if same and getattr(own, "__self__", 0) is spider else None


def foreign_name(method: Callable[..., Any], spider: scrapy.Spider) -> str | None:
    """`module:Class.method` or `module:function`; None if another process could not find it."""
    owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
    if isinstance(owner, scrapy.Spider):
        told = f"{type(owner).__module__}:{type(owner).__qualname__}.{name}"
    elif owner is None and isfunction(method):
        told = f"{method.__module__}:{method.__qualname__}"
    else:
        return None
    return told if _found(told, spider) is not None else None


class ForeignCallbacks:
    """Finds the callbacks behind such names. One object of each other spider serves all pages of the process."""

    def __init__(self, crawler: Any) -> None:
        self._crawler = crawler
        self._spiders: dict[type[scrapy.Spider], scrapy.Spider] = {}

    def get(self, told: str) -> Callable[..., Any]:
        """Raises ParseFailed."""
        found = _found(told, self._crawler.spider)
        if found is None:
            raise ParseFailed(f"The callback {told:.200} of a queued request is no longer in the project.")
        cls, method = found
        if cls is None:
            function: Callable[..., Any] = method
            return function
        if cls not in self._spiders:
            self._spiders[cls] = cls.from_crawler(self._crawler)
        bound: Callable[..., Any] = getattr(self._spiders[cls], method.__name__)
        return bound


def _found(told: str, spider: scrapy.Spider) -> tuple[type[scrapy.Spider] | None, Any] | None:
    module, _, path = told.partition(":")
    if module.partition(".")[0] != type(spider).__module__.partition(".")[0]:
        return None
    name, dot, method = path.partition(".")
    found = getattr(sys.modules.get(module), name, None)
    if not dot:
        return (None, found) if isfunction(found) and found.__module__ == module else None
    if not (isinstance(found, type) and issubclass(found, scrapy.Spider)):
        return None
    function = getattr(found, method, None)
    return (found, function) if isfunction(function) and not method.startswith("__") else None

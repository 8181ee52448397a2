"""Secrets in requests. They travel by name: the worker that sends the request looks up their text just before.

A spider gets a `SecretText`, which shows a mark in place of the secret and can be put into any other text. The mark
holds a number that only this process knows, so that no site can forge one. The queue holds a `SecretRef` in place of
the mark. Neither of them holds the secret.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import quote_plus

import msgspec

from ..errors import Misconfigured

Reveal: TypeAlias = Callable[[str], str]  # returns the secret of that name. Raises Misconfigured

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_NUMBER = secrets.token_hex(8)
_MARK = re.compile(rf"<secret ({_NAME.pattern}) {_NUMBER}>")

_IN_SETTINGS = re.compile(rf"\$\{{({_NAME.pattern})\}}")

ENVIRONMENT = "GOSSAMER_SECRET_"
AS_IS, IN_FORM, IN_JSON = "", "form", "json"


class SecretText(str):
    """The secret of that name, to be put into headers, logins, cookies, forms and JSON. It prints as a mark."""

    __slots__ = ("_name", "_reveal")
    _name: str
    _reveal: Reveal

    def __new__(cls, name: str, reveal: Reveal) -> SecretText:
        _check_name(name)
        made = super().__new__(cls, f"<secret {name} {_NUMBER}>")
        made._name, made._reveal = name, reveal
        return made

    def reveal(self) -> str:
        """The secret itself, for uses other than requests, such as a signature."""
        return self._reveal(self._name)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise Misconfigured(f"{name!a:.100} cannot be the name of a secret; write it like CLUB_PASSWORD.")


class SecretRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """The place of a secret in a text; `written` says how it is encoded there."""

    secret: str
    written: str = AS_IS

    def reveal(self, reveal: Reveal) -> str:
        """Raises Misconfigured."""
        _check_name(self.secret)  # it comes out of the queue, and secrets may be files
        text = reveal(self.secret)
        if self.written == IN_FORM:
            return quote_plus(text)
        if self.written == IN_JSON:
            return msgspec.json.encode(text).decode()[1:-1]
        return text


Text: TypeAlias = str | tuple[str | SecretRef, ...]


def parted(text: str, written: str = AS_IS) -> tuple[str | SecretRef, ...]:
    """Split the text, with a reference in place of each secret."""
    parts: list[str | SecretRef] = []
    for number, part in enumerate(_MARK.split(text)):
        if number % 2:
            parts.append(SecretRef(part, written))
        elif part:
            parts.append(part)
    return tuple(parts)


def stored(text: str) -> Text:
    """The text in the form that may be stored."""
    return parted(text) if has_secret(text) else str(text)


def stored_setting(text: str) -> Text:
    """A text of the settings, in which ${NAME} is a secret, in the form that may be stored."""
    pieces = _IN_SETTINGS.split(text)
    if len(pieces) == 1:
        return text
    return tuple(SecretRef(one) if number % 2 else one for number, one in enumerate(pieces) if number % 2 or one)


def secrets_marked(text: str) -> str:
    """A text of a recipe, in which ${NAME} is a secret, as a spider would write it."""
    return _IN_SETTINGS.sub(lambda found: str(SecretText(found[1], secret_of_environment)), text)


def secret_of_environment(name: str) -> str:
    """Raises Misconfigured."""
    found = os.environ.get(f"{ENVIRONMENT}{name}")
    if found is None:
        raise Misconfigured(
            f"There is no secret {name} here. Set {ENVIRONMENT}{name} in the environment of every worker, or put a "
            f"file {name} into the folder that the setting `secrets` names."
        )
    return found


def revealed(text: Text, reveal: Reveal) -> str:
    """The text as sent. Raises Misconfigured."""
    if isinstance(text, str):
        return text
    return "".join(part if isinstance(part, str) else part.reveal(reveal) for part in text)


def has_secret(text: str) -> bool:
    return _MARK.search(text) is not None


def is_secret(text: Text) -> bool:
    """Does a stored text refer to a secret?"""
    return not isinstance(text, str)

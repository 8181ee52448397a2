"""The cleaning step: spaces, line breaks and characters of every text in an item. It drops nothing and changes no
structure.

Every text is stripped and normalised to NFC; lone surrogates and NUL become U+FFFD; odd spaces (no-break, thin, tabs)
become plain ones. In a text of one line, runs of spaces become one; in a text of several lines, the lines and their
indentation stay, trailing spaces are removed, and several empty lines in a row become one.
"""

from __future__ import annotations

import re
import unicodedata
from enum import Enum
from typing import Any, TypeVar

import msgspec

from ..model.item import AnyItem, safe_text

_ItemT = TypeVar("_ItemT", bound=AnyItem)
# Searching for single characters is far cheaper than a regular expression over a long text.
_LINE_ENDS = ("\r\n", "\r", "\u2028", "\u2029")
_ODD_ASCII = "\x0b\x0c\x1c\x1d\x1e\x1f"
_ODD = "\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_SPACES = re.compile(r" {2,}")
_EMPTY_LINES = re.compile(r"\n{3,}")


def clean_text(text: str) -> str:
    """The cleaned text; the same object if it was clean."""
    # Of all that is replaced below, only a plain space is printable.
    if text.isprintable() and "  " not in text and text[:1] != " " and text[-1:] != " ":
        return text if text.isascii() or unicodedata.is_normalized("NFC", text) else unicodedata.normalize("NFC", text)
    text = safe_text(text).strip()
    odd = _ODD_ASCII
    if not text.isascii():
        odd += _ODD
        if not unicodedata.is_normalized("NFC", text):
            text = unicodedata.normalize("NFC", text)
    for end in _LINE_ENDS:
        if end in text:
            text = text.replace(end, "\n")
    for space in odd:
        if space in text:
            text = text.replace(space, " ")
    if "\n" not in text:
        text = text.replace("\t", " ")
        return _SPACES.sub(" ", text) if "  " in text else text
    if " \n" in text or "\t\n" in text:
        text = "\n".join([line.rstrip(" \t") for line in text.split("\n")])
    return _EMPTY_LINES.sub("\n\n", text) if "\n\n\n" in text else text


def clean(item: _ItemT) -> _ItemT:
    """The item with every text in it cleaned; the same object if all were clean."""
    cleaned: _ItemT = _clean_value(item)
    return cleaned


def _clean_value(value: Any) -> Any:
    """Clean any value that an item may hold. A changed container is a copy; the spider's own stays as it is."""
    if isinstance(value, str):
        # What other HTML parsers give is a text of a class of their own.
        return value if isinstance(value, Enum) else clean_text(str.__str__(value))
    if isinstance(value, msgspec.Struct):
        return _clean_struct(value)
    if isinstance(value, dict):
        cleaned = {_clean_value(key): _clean_value(entry) for key, entry in value.items()}
        return cleaned if cleaned != value else value
    if isinstance(value, list):
        entries = [_clean_value(entry) for entry in value]
        return entries if entries != value else value
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(_clean_value(entry) for entry in value)
    if isinstance(value, set | frozenset):
        return type(value)(_clean_value(entry) for entry in value)
    return value


def _clean_struct(item: msgspec.Struct) -> msgspec.Struct:
    values = msgspec.structs.astuple(item)
    texts = [value for value in values if type(value) is str]
    are_clean = _are_clean(texts)
    if are_clean and len(texts) == len(values):
        return item
    changes: dict[str, Any] = {}
    for name, value in zip(item.__struct_fields__, values, strict=True):
        if type(value) is not str:
            cleaned = _clean_value(value)
        elif not are_clean:
            cleaned = clean_text(value)
        else:
            continue
        if cleaned is not value:
            changes[name] = cleaned
    return msgspec.structs.replace(item, **changes) if changes else item


def _are_clean(texts: list[str]) -> bool:
    """Checks all of them together, which is faster than one by one. Texts with a bar beside a space get a closer look
    too."""
    joined = f"|{'|'.join(texts)}|"
    return (
        joined.isprintable()
        and "  " not in joined
        and "| " not in joined
        and " |" not in joined
        and (joined.isascii() or unicodedata.is_normalized("NFC", joined))
    )

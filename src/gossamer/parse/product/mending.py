"""JSON as people write it into pages: comments, trailing commas, raw line breaks, several objects in a row.

How it fails: what cannot be mended is left out. Every text is bounded in size and read in one pass.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

_LONGEST = 400_000  # characters of a broken block that is worth mending
_MOST_OBJECTS = 50
_WRAPPING = re.compile(
    r"^\s*(?:<!--|//\s*<!\[CDATA\[|/\*\s*<!\[CDATA\[\s*\*/|<!\[CDATA\[)|(?:-->|(?://|/\*)?\s*\]\]>(?:\s*\*/)?)\s*$"
)
_SLIPS = re.compile(
    r'("(?:[^"\\]|\\.)*")'  # a string is kept as it is
    r"|//[^\n]*"  # comments go
    r"|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/"
    r"|,(?=\s{0,50}[}\]])",  # and so do commas before a closing bracket
    re.DOTALL,
)
_BARE = re.compile(
    r'("(?:[^"\\]|\\.)*")'
    r"|'((?:[^'\\]|\\.)*)'"  # single quotes become double ones
    r"|([{,]\s{0,50})([A-Za-z_$][\w$]{0,60})(?=\s{0,10}:)",  # names without quotes get them
    re.DOTALL,
)
_LOOSE = json.JSONDecoder(strict=False)


def read_json(text: str) -> list[Any]:
    """Every JSON value in the text, mended where it is broken; [] where nothing can be read."""
    try:
        return [msgspec.json.decode(text)]
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    if len(text) > _LONGEST or text.count("/*") > 200:
        return []
    text = _WRAPPING.sub("", _WRAPPING.sub("", text))
    return _in_a_row(_SLIPS.sub(lambda match: match[1] or "", text))


def read_literal(text: str) -> list[Any]:
    """Like `read_json`, for objects written in JavaScript: single quotes and names without quotes are read too."""
    if len(text) > _LONGEST or text.count("/*") > 200:
        return []
    text = _SLIPS.sub(lambda match: match[1] or "", _BARE.sub(_quoted, text))
    return _in_a_row(text)


def _quoted(match: re.Match[str]) -> str:
    if match[1] is not None:
        return match[1]
    if match[2] is not None:
        return json.dumps(match[2].replace("\\'", "'"), ensure_ascii=False)
    return f'{match[3]}"{match[4]}"'


def _in_a_row(text: str) -> list[Any]:
    found: list[Any] = []
    at = 0
    while len(found) < _MOST_OBJECTS:
        starts = [start for start in (text.find("{", at), text.find("[", at)) if start >= 0]
        if not starts:
            break
        try:
            value, at = _LOOSE.raw_decode(text, min(starts))
        except (ValueError, RecursionError):
            break
        found.append(value)
    return found

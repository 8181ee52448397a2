"""Reads JSON as found in pages: `read_json` for JSON, `read_literal` for object literals of JavaScript.

Invalid JSON is repaired if its meaning is clear: comments of JavaScript and HTML, CDATA marks, trailing commas, line
ends inside strings, invalid escapes, quotes written as &quot;, and text before, between or after the values.

How it fails: text that cannot be repaired is left out; nothing raises. Every step reads the text once.
"""

from __future__ import annotations

import html
import json
import re
from typing import Any

_LONGEST_MENDED = 1_000_000  # characters; longer text must be valid JSON
_MOST_VALUES = 1_000  # values in one text

_TOKEN = re.compile(
    r"""(?P<text>"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z))
      | (?P<mark>(?://[ \t]*)?(?:<!\[CDATA\[|\]\]>))
      | (?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z)|<!--.*?(?:-->|\Z))
      | (?P<sign>[\[\]{},:])
      | (?P<rest>[^"/<\]\[{},:]+|.)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_OPENING = re.compile(r"[\[{]")
_KNOWN_ESCAPES = frozenset('"\\/bfnrt')
_BARE = re.compile(
    r'("(?:[^"\\]|\\.)*")'
    r"|'((?:[^'\\]|\\.)*)'"  # single quotes become double ones
    r"|([{,]\s{0,50})([A-Za-z_$][\w$]{0,60})(?=\s{0,10}:)",  # names without quotes get them
    re.DOTALL,
)


def read_json(text: str, longest_mended: int = _LONGEST_MENDED) -> list[Any]:
    """Every value in the text: usually one, sometimes several in a row. Any: any JSON."""
    try:
        return [json.loads(text, strict=False, parse_constant=_no_number)]
    except (ValueError, RecursionError):
        return _mended(text) if len(text) <= longest_mended else []


def read_literal(text: str) -> list[Any]:
    """Like `read_json`, for JavaScript objects with single quotes and unquoted names."""
    return _mended(_BARE.sub(_quoted, text)) if len(text) <= _LONGEST_MENDED else []


def _quoted(match: re.Match[str]) -> str:
    if match[1] is not None:
        return match[1]
    if match[2] is not None:
        return json.dumps(match[2].replace("\\'", "'"), ensure_ascii=False)
    return f'{match[3]}"{match[4]}"'


def _no_number(name: str) -> None:
    """NaN and Infinity become None: they are not JSON and not usable numbers."""


def _mended(text: str) -> list[Any]:
    if '"' not in text and ("&quot;" in text or "&#" in text):
        text = html.unescape(text)
    values = _values(_clean(text))
    if not values and "<!--" in text:
        # "<!-- note --> {...}" and "<!-- {...} -->" look alike; without comments nothing is left of the second.
        values = _values(_clean(text.replace("<!--", " ").replace("-->", " ")))
    return values


def _clean(text: str) -> str:
    """The text without comments, CDATA marks, trailing commas and invalid escapes."""
    parts: list[str] = []
    comma = False
    for match in _TOKEN.finditer(text):
        kind, word = match.lastgroup, match[0]
        if kind in ("comment", "mark"):
            continue
        if word == ",":
            comma = True
            continue
        if kind == "rest" and word.isspace():
            parts.append(" ")
            continue
        if comma and word not in ("]", "}"):
            parts.append(",")
        comma = False
        parts.append(_ESCAPE.sub(_known_escape, word) if kind == "text" and "\\" in word else word)
    return "".join(parts)


def _known_escape(match: re.Match[str]) -> str:
    code = match[1]
    if code in _KNOWN_ESCAPES or (code[0] == "u" and len(code) == 5):
        return match[0]
    if code[0] == "x" and len(code) == 3:
        return f"\\u00{code[1:]}"
    if code == "'":
        return "'"
    return code if code.isspace() else f"\\\\{code}"


def _values(text: str) -> list[Any]:
    """The objects and lists in the text; anything between and after them is skipped."""
    decoder = json.JSONDecoder(strict=False, parse_constant=_no_number)
    values: list[Any] = []
    at = _next_start(text, 0)
    while at >= 0 and len(values) < _MOST_VALUES:
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break  # searching for a value inside a broken one would take quadratic time
        values.append(value)
        at = _next_start(text, at)
    return values


def _next_start(text: str, at: int) -> int:
    found = _OPENING.search(text, at)
    return found.start() if found else -1

"""JSON-LD: the <script> blocks of a page, read as JSON; broken ones are mended where their meaning is plain.

Mended are: comments of JavaScript and HTML, CDATA marks, commas that nothing follows, line ends inside strings,
escapes that JSON does not know, quotes written as &quot;, and what stands before or after the value. A block that
still makes no sense, or that is nested beyond reason, is left out; nothing raises. Every step reads the block once.
"""

from __future__ import annotations

import html
import json
import re
from typing import Any

from turbohtml import Document, Element

DEEPEST = 50  # levels of nesting that are kept; no honest page has more, and a hostile one could exhaust the stack
_MENDABLE = 1_000_000  # characters; longer blocks are read only if they are sound
_MOST_VALUES = 1_000  # in one block, one after the other

_TOKEN = re.compile(
    r"""(?P<text>"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z))
      | (?P<mark>(?://[ \t]*)?(?:<!\[CDATA\[|\]\]>))
      | (?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z)|<!--.*?(?:-->|\Z))
      | (?P<sign>[\[\]{},:])
      | (?P<rest>[^"/<\]\[{},:]+|.)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_KNOWN_ESCAPES = frozenset('"\\/bfnrt')
_HTML_MARKS = re.compile(r"<!--|-->")


def json_ld_scripts(document: Document) -> list[Element]:
    """The <script> elements that say they hold JSON-LD."""
    return [
        script
        for script in document.select("script[type]")
        if (script.attr("type") or "").partition(";")[0].strip().lower() == "application/ld+json"
    ]


def json_ld_blocks(document: Document) -> list[Any]:
    """Every JSON value that the blocks hold, in order; empty ones and scalars are left out. Any: it is any JSON."""
    return [value for script in json_ld_scripts(document) for value in read_block(script.text)]


def json_ld_items(document: Document) -> list[Any]:
    """As `json_ld_blocks`, with the lists at the top opened. Any: it is any JSON."""
    items: list[Any] = []
    for block in json_ld_blocks(document):
        items += [item for item in block if item] if isinstance(block, list) else [block]
    return items


def read_block(text: str) -> list[Any]:
    """The values of one block: one as a rule, more where somebody wrote several. Any: it is any JSON."""
    try:
        values = [json.loads(text, strict=False, parse_constant=_no_number)]
    except (ValueError, RecursionError):
        values = _mended(text) if len(text) <= _MENDABLE else []
    return [value for value in values if isinstance(value, dict | list) and value and not too_deep(value)]


def too_deep(block: object) -> bool:
    level: list[object] = [block]
    for _ in range(DEEPEST):
        inner: list[object] = []
        for value in level:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
        if not inner:
            return False
        level = inner
    return True


def _no_number(name: str) -> None:
    """NaN and Infinity are no JSON, and no number that anyone could use."""


def _mended(text: str) -> list[Any]:
    if '"' not in text and ("&quot;" in text or "&#" in text):
        text = html.unescape(text)
    # "<!-- note --> {...}" and "<!-- {...} -->" look alike; the second has nothing left without its comments.
    return _values(_clean(text)) or _values(_clean(_HTML_MARKS.sub(" ", text)))


def _clean(text: str) -> str:
    """The text without comments, marks and idle commas, its strings with escapes that JSON knows."""
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
    """The objects and lists that stand one after the other; what is between and after them is left out."""
    decoder = json.JSONDecoder(strict=False, parse_constant=_no_number)
    values: list[Any] = []
    at = _next_start(text, 0)
    while at >= 0 and len(values) < _MOST_VALUES:
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break  # to look for a value inside a broken one would read the rest again and again
        values.append(value)
        at = _next_start(text, at)
    return values


def _next_start(text: str, at: int) -> int:
    found = re.compile(r"[\[{]").search(text, at)
    return found.start() if found else -1

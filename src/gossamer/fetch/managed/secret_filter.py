"""Removes secrets from everything that is shown or stored, in any spelling. Pure.

A vendor may repeat our key in its messages and pages. It is found in any case of letters, percent-encoded, with JSON
and HTML escapes, and in base64, alone or after other text. If a text was cut off in the middle of it, the remaining
part is found too, from four characters on.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from functools import lru_cache

HIDDEN = "***"

_SHORT = 8  # characters; a shorter secret may be an ordinary word of the page, and its base64 a coincidence
_PART = 4  # characters of a secret at the end of a text that are recognised
_NAMES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot"}
_BASE64_UNIT = {
    "+": r"(?:[+-]|%2[bB]|\\{1,8}u002[bB])",
    "/": r"(?:\\{0,8}/|_|%2[fF]|\\{1,8}u002[fF])",
}
_BASE64_CHAR = r"[A-Za-z0-9+/_-]"
# What may follow the last whole character: half an escape, and then the end of our own sentence.
_END = re.compile(
    r"(?:%[0-9a-f]{0,3}|\\{1,8}(?:u[0-9a-f]{0,3}|x[0-9a-f]?)?|&#?x?[0-9a-f]{0,6})?(?P<rest>[\s.,\u2026)\]}'\">]{0,6})\Z",
    re.IGNORECASE,
)


class Hiding:
    """One secret of printable ASCII. Reused, since its patterns are long."""

    def __init__(self, secret: str) -> None:
        units = [[f"(?i:{_unit(char)})" for char in secret]]
        forms = ["".join(units[0])]
        self._traces = _traces(secret) if len(secret) >= _SHORT else []
        self._exact: list[bytes] = []
        if len(secret) >= _SHORT:
            for core, before, after in _in_base64(secret):
                units.append([_BASE64_UNIT.get(char, char) for char in core])
                forms.append(before + "".join(units[-1]) + after)
                self._exact.append(_longest_run(core).encode())
        self._pattern = re.compile("|".join(forms))
        self._units = [[re.compile(unit) for unit in form] for form in units]

    def holds(self, text: str) -> bool:
        """Does the text contain the whole secret?"""
        return self._pattern.search(text) is not None

    def hide(self, text: str) -> str:
        return self._without_tail(self._pattern.sub(HIDDEN, text))

    def hide_in_body(self, body: bytes, *, cut: bool) -> bytes:
        """As `hide`, for a page: fast for most pages, which do not contain the secret."""
        if not self._traces:
            return body
        lowered = body.lower()
        places = [place for trace in self._traces for place in _places(trace, lowered)]
        places += [place for trace in self._exact for place in _places(trace, body)]
        parts: list[bytes] = []
        done = 0
        for first, last in _merged(sorted(places), self._reach()):
            parts += (body[done:first], self._pattern.sub(HIDDEN, body[first:last].decode("latin-1")).encode("latin-1"))
            done = last
        if parts:
            body = b"".join((*parts, body[done:]))
        if cut:
            split = max(0, len(body) - self._reach())
            body = body[:split] + self._without_tail(body[split:].decode("latin-1")).encode("latin-1")
        return body

    def _reach(self) -> int:
        return 12 * max(len(form) for form in self._units)

    def _without_tail(self, text: str) -> str:
        for start in range(max(0, len(text) - self._reach()), len(text) - _PART + 1):
            for form in self._units:
                place = start
                for known, unit in enumerate(form):
                    end = _END.match(text, place) if known >= _PART else None
                    if end is not None:
                        return text[:start] + HIDDEN + end["rest"]
                    found = unit.match(text, place)
                    if found is None:
                        break
                    place = found.end()
        return text


def _places(trace: bytes, body: bytes) -> Iterator[int]:
    place = body.find(trace)
    while place >= 0:
        yield place
        place = body.find(trace, place + 1)


def _merged(places: list[int], reach: int) -> Iterator[tuple[int, int]]:
    """The ranges within `reach` of a place, in order and merged where they overlap."""
    first = last = -1
    for place in places:
        if last >= max(0, place - reach):
            last = place + reach
            continue
        if last >= 0:
            yield first, last
        first, last = max(0, place - reach), place + reach
    if last >= 0:
        yield first, last


@lru_cache(maxsize=64)
def hiding_of(secret: str) -> Hiding:
    return Hiding(secret)


def _unit(char: str) -> str:
    """All spellings of one character. Repetitions are bounded, so that no text makes the search slow."""
    code = ord(char)
    spellings = [
        rf"%(?:25){{0,4}}{code:02x}",
        rf"\\{{1,8}}(?:u00|x){code:02x}",
        rf"&#0{{0,6}}{code};",
        rf"&#x0{{0,6}}{code:x};",
        rf"\\{{0,8}}{re.escape(char)}",
    ]
    if char in _NAMES:
        spellings.insert(0, f"&{_NAMES[char]};")
    return "|".join(spellings)


def _in_base64(secret: str) -> list[tuple[str, str, str]]:
    """Per offset of 0, 1 or 2 bytes: the base64 characters that encode the secret alone, and patterns for those it
    shares with its neighbours."""
    found = []
    for shift in range(3):
        text = b64encode(b"\0" * shift + secret.encode()).decode()
        bits = 8 * (shift + len(secret))
        core = text[-(-8 * shift // 6) : bits // 6]
        after = f"{_BASE64_CHAR}?(?:=|%3[dD]){{0,2}}" if bits % 6 else ""
        found.append((core, f"{_BASE64_CHAR}?" if shift else "", after))
    return found


def _traces(secret: str) -> list[bytes]:
    """Substrings of any lower-cased page that contains the secret: letters and digits are either all escaped or
    none."""
    codes = [ord(char) for char in _longest_run(secret)] or [ord(secret[0])]
    shapes = ("{0:c}", "%{0:02x}", "\\u00{0:02x}", "\\x{0:02x}", "&#{0};", "&#x{0:x};")
    return ["".join(shape.format(code) for code in codes).lower().encode() for shape in shapes]


def _longest_run(text: str) -> str:
    return max(re.findall(r"[A-Za-z0-9]+", text), key=len, default="")

"""URLs with braces: `https://shop.example/p/{1..1000}`, `https://{de,fr}.shop.example/`. Pure.

    {1..1000}       numbers, also downwards: {10..1}
    {1..1000..5}    every fifth of them
    {001..100}      leading zeros are kept
    {red,blue}      words; one of them may be empty

Several in one URL multiply; the last one varies fastest. The number of URLs is computed, not counted: a pattern takes
no memory, however many it stands for.

How it fails: Misconfigured for invalid braces. A brace that belongs to the URL is written %7B or %7D.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

import msgspec

from ...errors import Misconfigured

MOST_AXES = 10  # braces in one URL
LONGEST = 8_192  # characters

_RANGE = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})(?:\.\.([0-9]{1,18}))?")


class PatternWords(msgspec.Struct, frozen=True):
    """One of these words. Plain text between braces is a single word."""

    words: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.words)

    def at(self, number: int) -> str:
        return self.words[number]


class Numbers(msgspec.Struct, frozen=True):
    """`count` numbers from `first` in steps of `step`, with leading zeros up to `width`."""

    first: int
    step: int
    count: int
    width: int = 0

    def at(self, number: int) -> str:
        return f"{self.first + number * self.step:0{self.width}d}"


class Pattern(msgspec.Struct, frozen=True):
    """A URL that stands for many. Made by `parse_pattern`."""

    text: str
    axes: tuple[PatternWords | Numbers, ...]

    @property
    def count(self) -> int:
        return prod(axis.count for axis in self.axes)

    def at(self, number: int) -> str:
        """The URL of that number, from 0 on."""
        parts: list[str] = []
        for axis in reversed(self.axes):
            number, place = divmod(number, axis.count)
            parts.append(axis.at(place))
        return "".join(reversed(parts))

    def __iter__(self) -> Iterator[str]:
        return (self.at(number) for number in range(self.count))


def parse_pattern(text: str) -> Pattern:
    """Read a URL, with or without braces. Raises Misconfigured."""
    if len(text) > LONGEST:
        raise Misconfigured(f"{text[:60]!r}... is longer than {LONGEST:,} characters. No URL is.")
    axes: list[PatternWords | Numbers] = []
    braces = 0
    rest = text
    while rest:
        plain, brace, rest = rest.partition("{")
        if "}" in plain:
            raise Misconfigured(f"{text!r} has a }} without a {{ before it. Write %7D if it belongs to the URL.")
        if plain:
            axes.append(PatternWords((plain,)))
        if not brace:
            break
        inner, end, rest = rest.partition("}")
        if not end:
            raise Misconfigured(f"{text!r} has a {{ that is never closed. Write %7B if it belongs to the URL.")
        braces += 1
        axes.append(_axis(inner, text))
    if braces > MOST_AXES:
        raise Misconfigured(f"{text!r} has more than {MOST_AXES} pairs of braces. Split it into several URLs.")
    return Pattern(text, tuple(axes))


def _axis(inner: str, text: str) -> PatternWords | Numbers:
    if "{" in inner:
        raise Misconfigured(f"{text!r} has nested braces. Write them out as several URLs.")
    if "," in inner:
        words = tuple(inner.split(","))
        for word in words:
            if _RANGE.fullmatch(word):
                raise Misconfigured(f"{text!r} has the range {word} among words. Give each kind its own URL.")
        return PatternWords(words)
    found = _RANGE.fullmatch(inner)
    if found is None:
        raise Misconfigured(
            f"{text!r}: {{{inner}}} is neither a range nor a list. Write {{1..100}}, {{1..100..5}} or {{a,b,c}}; "
            "braces that belong to the URL are written %7B and %7D."
        )
    first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
    if step == 0:
        raise Misconfigured(f"{text!r}: {{{inner}}} has steps of 0 and would never end. Steps are 1 or more.")
    keeps_zeros = any(len(digits) > 1 and digits[0] == "0" for digits in (found[1].lstrip("-"), found[2].lstrip("-")))
    width = max(len(found[1]), len(found[2])) if keeps_zeros else 0
    return Numbers(first, step if last >= first else -step, abs(last - first) // step + 1, width)

"""Faults of a recipe: the line, and one sentence that says what is allowed there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import msgspec

from ..errors import Misconfigured

Path = tuple[str | int, ...]  # the path of a value: ("pages", "listing", "follow", 0, "css")
_MOST_SHOWN = 40  # names listed in a message
ENDLESS_NUMBER = "A number has more than 18 digits. Write it as a text, in quotes."


class RecipeFault(msgspec.Struct, frozen=True):
    """One fault. `line` counts from 1; None if the fault has no line."""

    line: int | None
    message: str


class BadRecipe(Misconfigured):
    """An invalid recipe, with all its `faults`; the message is the first one with its line."""

    def __init__(self, file: str, faults: Sequence[RecipeFault]) -> None:
        self.file = file
        self.faults = tuple(faults)
        rest = len(self.faults) - 1
        more = (
            f" (There {'is' if rest == 1 else 'are'} {rest} more; `gossamer check {file}` lists them.)" if rest else ""
        )
        super().__init__(f"{self.lines()[0]}{more}")

    @classmethod
    def single(cls, file: str, line: int | None, message: str) -> BadRecipe:
        """An error with a single fault, which stopped the reading."""
        return cls(file, [RecipeFault(line, message)])

    def lines(self) -> list[str]:
        """Every fault with its line, in order of appearance."""
        return [f"{located(self.file, fault.line)}: {fault.message}" for fault in self.faults]


def located(file: str, line: int | None) -> str:
    return f"{file}, line {line}" if line is not None else file


def spell(path: Path) -> str:
    """`pages.listing.follow[0].css`"""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def suggestion(word: str, allowed: Iterable[str]) -> str:
    """` Did you mean "money"? Allowed: ...`: the end of a message about an unknown word."""
    names = list(allowed)
    near = difflib.get_close_matches(word, names, n=1)
    hint = f' Did you mean "{near[0]}"?' if near else ""
    listed = ", ".join(names[:_MOST_SHOWN])
    return f"{hint} Allowed: {listed}." if listed else hint

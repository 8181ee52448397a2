"""Transforms: the steps between raw values and their type, a small closed list. Each takes texts and gives texts.

A step changes every text, selects some, or makes more or fewer of them (`split`, `join`). How it fails: a text to which
a step cannot be applied is dropped, with the reason; the others continue. The functions that read steps from a recipe
come last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ..extract.numbers import first_number
from .model import Transform
from .table import RecipeTable, suggestion

MOST = 10_000  # maximum texts of a split
DECIMAL_SIGNS = (".", ",")

Refused: TypeAlias = list[tuple[str, str]]  # texts to which a step could not be applied, each with the reason

_REPLACE, _CUT, _NUMBER, _SPLIT = "replace", "cut", "number", "split"


class _Refusal(Exception):
    """The step cannot be applied; the text says why."""


def _replaced(text: str, step: Transform) -> str:
    assert step.pattern is not None
    return step.pattern.sub(step.text, text)


def _number(text: str, step: Transform) -> list[str]:
    try:
        number = first_number(text, step.text or ".")
    except ValueError as error:
        raise _Refusal(f"and {error}") from error
    return [number] if number is not None else []


def _split(text: str, step: Transform) -> list[str]:
    parts = text.split(step.text, MOST)
    if len(parts) > MOST:
        raise _Refusal(f"which splits into more than {MOST:,} parts")
    return [part for part in map(str.strip, parts) if part]


_OF_EACH: dict[str, Callable[[str, Transform], str]] = {
    "strip": lambda text, step: text.strip(step.text or None),
    "squash": lambda text, step: " ".join(text.split()),
    "lower": lambda text, step: text.lower(),
    "upper": lambda text, step: text.upper(),
    "prefix": lambda text, step: step.text + text,
    "suffix": lambda text, step: text + step.text,
    _REPLACE: _replaced,
    _CUT: lambda text, step: text[: step.number],
}
_OF_ALL: dict[str, Callable[[list[str], Transform], list[str]]] = {
    "first": lambda texts, step: texts[:1],
    "last": lambda texts, step: texts[-1:],
    "unique": lambda texts, step: list(dict.fromkeys(texts)),
    "join": lambda texts, step: [step.text.join(texts)] if texts else [],
}
_FALLIBLE: dict[str, Callable[[str, Transform], list[str]]] = {_NUMBER: _number, _SPLIT: _split}
_WITHOUT_ARGUMENT = ("strip", "squash", "lower", "upper", "first", "last", "unique", _NUMBER)
_WITH_ARGUMENT = ("strip", "join", "prefix", "suffix", _REPLACE, _CUT, _NUMBER, _SPLIT)
NAMES = tuple(sorted({*_WITHOUT_ARGUMENT, *_WITH_ARGUMENT}))
AMONG_ALL = tuple(_OF_ALL)  # the others apply to each text separately
NEED_ALL = ("last", "join")  # with these even a single value depends on all texts found
_EXAMPLES = {
    "strip": '{ strip = "€ " }',
    "split": '{ split = "," }',
    "join": '{ join = ", " }',
    "prefix": '{ prefix = "https://" }',
    "suffix": '{ suffix = " kg" }',
    "number": '"number" or { number = "," }',
    "replace": '{ replace = "[^0-9]+", with = "" }',
    "cut": "{ cut = 200 }",
}


def apply_transforms(texts: Sequence[str], steps: Sequence[Transform]) -> tuple[list[str], Refused]:
    """The texts after all steps, perhaps fewer, more or none; and those to which a step could not be applied."""
    changed = list(texts)
    refused: Refused = []
    for step in steps:
        if step.name in _FALLIBLE:
            changed = _each(changed, step, refused)
        elif step.name in _OF_ALL:
            changed = _OF_ALL[step.name](changed, step)
        else:
            changed = [_OF_EACH[step.name](text, step) for text in changed]
    return changed, refused


def _each(texts: list[str], step: Transform, refused: Refused) -> list[str]:
    made: list[str] = []
    for text in texts:
        try:
            parts = _FALLIBLE[step.name](text, step)
            if len(made) + len(parts) > MOST:
                raise _Refusal(f"with which there are more than {MOST:,} parts")
            made += parts
        except _Refusal as error:
            refused.append((text, str(error)))
    return made


def read_transforms(table: RecipeTable) -> tuple[Transform, ...]:
    """The steps of a field, in order; faults are added to the table."""
    value = table.values.get("transforms")
    if value is None:
        return ()
    entries = value if isinstance(value, list) else [value]
    steps = [_read_transform(table, entry, index) for index, entry in enumerate(entries)]
    return tuple(step for step in steps if step is not None)


def _read_transform(table: RecipeTable, entry: Any, index: int) -> Transform | None:
    where: tuple[str | int, ...] = (
        ("transforms", index) if isinstance(table.values["transforms"], list) else ("transforms",)
    )
    name = entry if isinstance(entry, str) else next(iter(entry), "") if isinstance(entry, dict) else ""
    if name not in NAMES:
        shown = f'"{name[:60]}"' if name else f"{entry!r:.60}"
        table.fault(f"{table.spelled(*where)} = {shown} is not a transform.{suggestion(name, NAMES)}", *where)
        return None
    if isinstance(entry, str):
        if name in _WITHOUT_ARGUMENT:
            return Transform(name=name)
        table.fault(f"{table.spelled(*where)}: write it with its argument, like {_EXAMPLES[name]}.", *where)
        return None
    if name not in _WITH_ARGUMENT:
        table.fault(f'{table.spelled(*where)} takes no argument; write it like "{name}".', *where)
        return None
    argument = entry[name]
    extra = [key for key in entry if key != name and (name, key) != (_REPLACE, "with")]
    if extra or not _is_good(name, argument) or (name == _REPLACE and not isinstance(entry.get("with", ""), str)):
        table.fault(f"{table.spelled(*where)} should be written like {_EXAMPLES[name]}.", *where)
        return None
    if name == _CUT:
        return Transform(name=name, number=argument)
    if name != _REPLACE:
        return Transform(name=name, text=argument)
    try:
        pattern = re.compile(argument)
        pattern.sub(entry.get("with", ""), "")  # detects a reference to a missing group
    except (re.error, IndexError, RecursionError, OverflowError) as error:
        table.fault(f"{table.spelled(*where)}: the regular expression or its `with` cannot be used ({error}).", *where)
        return None
    return Transform(name=name, pattern=pattern, text=entry.get("with", ""))


def _is_good(name: str, argument: Any) -> bool:
    if name == _CUT:
        return isinstance(argument, int) and not isinstance(argument, bool) and argument >= 1
    if name == _NUMBER:
        return argument in DECIMAL_SIGNS
    return isinstance(argument, str) and (argument != "" or name != _SPLIT)

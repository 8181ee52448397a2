"""The steps between what was found and its type: a small closed list. Each takes texts and gives texts.

A step either changes every text, or chooses among them, or makes more or fewer of them (`split`, `join`). How it fails:
a text on which a step cannot be done is left out, with the reason; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from .model import Transform
from .numbers import first_number

MOST = 10_000  # texts that a split may give

Refused: TypeAlias = list[tuple[str, str]]  # texts that a step could not be done on, each with the reason

_Step = Callable[[list[str], Transform], list[str]]


def _strip(texts: list[str], step: Transform) -> list[str]:
    return [text.strip(step.text or None) for text in texts]


def _squash(texts: list[str], step: Transform) -> list[str]:
    return [" ".join(text.split()) for text in texts]


def _lower(texts: list[str], step: Transform) -> list[str]:
    return [text.lower() for text in texts]


def _upper(texts: list[str], step: Transform) -> list[str]:
    return [text.upper() for text in texts]


def _first(texts: list[str], step: Transform) -> list[str]:
    return texts[:1]


def _last(texts: list[str], step: Transform) -> list[str]:
    return texts[-1:]


def _unique(texts: list[str], step: Transform) -> list[str]:
    return list(dict.fromkeys(texts))


def _join(texts: list[str], step: Transform) -> list[str]:
    return [step.text.join(texts)] if texts else []


def _replace(texts: list[str], step: Transform) -> list[str]:
    assert step.pattern is not None
    return [step.pattern.sub(step.text, text) for text in texts]


def _prefix(texts: list[str], step: Transform) -> list[str]:
    return [step.text + text for text in texts]


def _suffix(texts: list[str], step: Transform) -> list[str]:
    return [text + step.text for text in texts]


def _cut(texts: list[str], step: Transform) -> list[str]:
    return [text[: step.number] for text in texts]


class _Refusal(Exception):
    """The step cannot be done; the text says why."""


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


PLAIN: dict[str, _Step] = {
    "strip": _strip,
    "squash": _squash,
    "lower": _lower,
    "upper": _upper,
    "first": _first,
    "last": _last,
    "unique": _unique,
}
WITH_TEXT: dict[str, _Step] = {"strip": _strip, "join": _join, "prefix": _prefix, "suffix": _suffix}
REPLACE, CUT, NUMBER, SPLIT = "replace", "cut", "number", "split"
FALLIBLE: dict[str, Callable[[str, Transform], list[str]]] = {NUMBER: _number, SPLIT: _split}
PLAIN_NAMES = (*PLAIN, NUMBER)
ARGUMENT_NAMES = (*WITH_TEXT, REPLACE, CUT, NUMBER, SPLIT)
NAMES = tuple(sorted({*PLAIN_NAMES, *ARGUMENT_NAMES}))
AMONG_ALL = ("first", "last", "unique", "join")  # the others do the same with each text
NEED_ALL = ("last", "join")  # with these even a single value depends on all that is found

_ALL: dict[str, _Step] = {**PLAIN, **WITH_TEXT, REPLACE: _replace, CUT: _cut}


def transformed(texts: Sequence[str], steps: Sequence[Transform]) -> tuple[list[str], Refused]:
    """The texts after all steps, perhaps fewer, more or none; and those that a step could not be done on."""
    changed = list(texts)
    refused: Refused = []
    for step in steps:
        if step.name in FALLIBLE:
            changed = _each(changed, step, refused)
        else:
            changed = _ALL[step.name](changed, step)
    return changed, refused


def _each(texts: list[str], step: Transform, refused: Refused) -> list[str]:
    made: list[str] = []
    for text in texts:
        try:
            parts = FALLIBLE[step.name](text, step)
            if len(made) + len(parts) > MOST:
                raise _Refusal(f"with which there are more than {MOST:,} parts")
            made += parts
        except _Refusal as error:
            refused.append((text, str(error)))
    return made

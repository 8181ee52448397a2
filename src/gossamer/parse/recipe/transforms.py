"""The steps between what was found and its type: a small closed list. Each takes texts and gives texts.

A step either changes every text, or chooses among them, or makes more or fewer of them (`split`, `join`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .model import Transform
from .numbers import first_number

MOST = 10_000  # texts that a split may give

_Step = Callable[[list[str], Transform], list[str]]


def _strip(texts: list[str], step: Transform) -> list[str]:
    return [text.strip(step.text or None) for text in texts]


def _squash(texts: list[str], step: Transform) -> list[str]:
    return [" ".join(text.split()) for text in texts]


def _lower(texts: list[str], step: Transform) -> list[str]:
    return [text.lower() for text in texts]


def _upper(texts: list[str], step: Transform) -> list[str]:
    return [text.upper() for text in texts]


def _number(texts: list[str], step: Transform) -> list[str]:
    found = [first_number(text, step.text or ".") for text in texts]
    return [number for number in found if number is not None]


def _first(texts: list[str], step: Transform) -> list[str]:
    return texts[:1]


def _last(texts: list[str], step: Transform) -> list[str]:
    return texts[-1:]


def _unique(texts: list[str], step: Transform) -> list[str]:
    return list(dict.fromkeys(texts))


def _split(texts: list[str], step: Transform) -> list[str]:
    parts = [part.strip() for text in texts for part in text.split(step.text, MOST)]
    return [part for part in parts if part][:MOST]


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


PLAIN: dict[str, _Step] = {
    "strip": _strip,
    "squash": _squash,
    "lower": _lower,
    "upper": _upper,
    "number": _number,
    "first": _first,
    "last": _last,
    "unique": _unique,
}
WITH_TEXT: dict[str, _Step] = {
    "strip": _strip,
    "split": _split,
    "join": _join,
    "prefix": _prefix,
    "suffix": _suffix,
    "number": _number,
}
REPLACE, CUT = "replace", "cut"
NAMES = tuple(sorted({*PLAIN, *WITH_TEXT, REPLACE, CUT}))

_ALL: dict[str, _Step] = {**PLAIN, **WITH_TEXT, REPLACE: _replace, CUT: _cut}


def transformed(texts: Sequence[str], steps: Sequence[Transform]) -> list[str]:
    """The texts after all steps. May be fewer, more or none."""
    changed = list(texts)
    for step in steps:
        changed = _ALL[step.name](changed, step)
    return changed

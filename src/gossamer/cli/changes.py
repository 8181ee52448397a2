"""What changed between two states of a record, field by field, for people and for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from rich.text import Text

from ..store.contract import Difference
from ..text import visible
from .app import out

LONGEST = 60  # characters of a value that are shown
SIGNS = {"added": ("+", "green"), "changed": ("~", "yellow"), "gone": ("-", "red")}


class Change(msgspec.Struct, frozen=True):
    """One field. None stands for a field that is not there."""

    field: str
    before: Any
    after: Any


def changes(before: str | None, after: str | None) -> list[Change]:
    """The fields in which two states of a record's data differ; both are JSON."""
    old, new = _fields(before), _fields(after)
    return [
        Change(name, old.get(name), new.get(name))
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]


def _fields(data: str | None) -> dict[str, Any]:
    if not data:
        return {}
    try:
        found = json.loads(data)
    except ValueError:
        return {"data": data}
    return dict(_walk(found, "")) if isinstance(found, dict) else {"data": found}


def _walk(value: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, entry in value.items():
        where = f"{path}.{name}" if path else name
        if isinstance(entry, dict) and entry:
            yield from _walk(entry, where)
        else:
            yield where, entry


def shown(value: Any) -> str:
    """A value on one line."""
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return visible(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")


def in_words(one: Change) -> str:
    """`price.amount: 12.00 → 11.50`"""
    return f"{visible(one.field)}: {shown(one.before)} → {shown(one.after)}"


def as_json(difference: Difference) -> dict[str, Any]:
    fields = [msgspec.structs.asdict(one) for one in changes(difference.before, difference.after)]
    told: dict[str, Any] = msgspec.structs.asdict(difference)
    if difference.kind == "changed":
        told["fields"] = fields
    for name in ("before", "after"):
        told[name] = json.loads(told[name]) if told[name] else None
    return told


class Lines:
    """Prints differences as they come, at most `limit` of them, and counts all."""

    def __init__(self, limit: int, *, json_lines: bool = False) -> None:
        self._limit = limit
        self._json = json_lines
        self.counts: Counter[str] = Counter()

    def show(self, difference: Difference) -> None:
        self.counts[difference.kind] += 1
        if self._json:
            out.print(json.dumps(as_json(difference), ensure_ascii=False), markup=False)
        elif self.counts.total() <= self._limit:
            self._tell(difference)

    def _tell(self, difference: Difference) -> None:
        sign, style = SIGNS[difference.kind]
        out.print(Text.assemble((f"{sign} ", style), (visible(difference.type), "bold"), f" {visible(difference.key)}"))
        if difference.kind == "changed":
            for one in changes(difference.before, difference.after):
                out.print(Text(f"    {in_words(one)}", style="dim"))

    def summary(self) -> str:
        """`3 added, 1 changed, 0 gone`"""
        return ", ".join(f"{self.counts[kind]:,} {kind}" for kind in SIGNS)

    @property
    def left_out(self) -> str:
        """What is to be said about those that were not shown."""
        more = self.counts.total() - self._limit
        return f"And {more:,} more; --limit shows them." if more > 0 else ""

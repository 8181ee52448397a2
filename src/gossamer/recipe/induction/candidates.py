"""Rules that hold the known value on some page, pooled over the pages, and tried on all of them by the code that runs
recipes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from ...errors import GossamerError
from ..fields import Note, take_one
from ..labels import label_words
from ..model import Field, FieldType
from ..rules import read_field
from ..table import RecipeFault, RecipeTable, RecipeTree
from .goal import NUMBERS, Goal, Sample
from .locators import Located
from .readings import Reading, Wanted
from .spots import Spot, has_cents, is_struck, root_of, spots_of

SourceTable: TypeAlias = dict[str, Any]  # a source as a recipe writes it

_WORD = re.compile(r"[^\W\d_]{3,}")
_ENTRY = re.compile(r"\[[1-9]\d*\]")  # of a list in JSON, beyond the first
_MOST_POOLED = 4_000  # candidates of a field between two prunings
_MOST_SPOTS = 40  # of a field on one page
_MOST_TRIED = 64  # candidates of a field
_MOST_POSITIONS = 12  # of them, those that count elements
_READING_COST = {
    "after": 0.05,
    "before": 0.05,
    "nth": 0.06,
    "scale": 0.1,
    "decimal": 0.0,
    "currency": 0.0,
    "format": 0.0,
    "regex": 0.1,
}


class Candidate(msgspec.Struct, frozen=True):
    """A rule with one source, and the likelihood that it outlives the next change."""

    table: SourceTable
    weight: float
    pages: int

    @property
    def by_position(self) -> bool:
        return ":nth-of-type" in self.table.get("css", "") or _ENTRY.search(self.table.get("json", "")) is not None


class Pool:
    """The candidates of every goal, counted over pages."""

    def __init__(self, goals: Sequence[Goal], *, fresh: bool = False) -> None:
        self.goals = list(goals)
        self._unstruck = [one.type is FieldType.MONEY and not one.former and not fresh for one in goals]
        self._found: list[dict[str, tuple[int, float]]] = [{} for _ in goals]
        self.held = [0] * len(self.goals)  # samples on which the value stands somewhere

    def add(self, sample: Sample) -> None:
        """Take the candidates of a sample whose values are known."""
        root = root_of(sample)
        wanted = Wanted(self.goals, sample.values or {})
        located = Located(root) if root is not None else None
        language = _language(sample)
        seen: list[dict[str, float]] = [{} for _ in self.goals]
        spots = [0] * len(self.goals)
        for spot in spots_of(sample):
            struck = None
            for at, reading in set(wanted.readings(spot, language)):
                if self._unstruck[at]:
                    struck = is_struck(spot) if struck is None else struck
                    if struck:
                        continue  # what a thing cost before is often the stored price when a sale begins
                spots[at] += 1
                if spots[at] <= _MOST_SPOTS:
                    for table, weight in tables_of(spot, reading, located, self.goals[at]):
                        key = json.dumps(table, sort_keys=True, ensure_ascii=False)
                        seen[at][key] = max(seen[at].get(key, 0.0), weight)
        for at, found in enumerate(seen):
            pooled = self._found[at]
            for key, weight in found.items():
                count, best = pooled.get(key, (0, 0.0))
                pooled[key] = (count + 1, max(best, weight))
            self.held[at] += bool(found)
            if len(pooled) > _MOST_POOLED:
                self._found[at] = dict(
                    sorted(pooled.items(), key=lambda one: one[1], reverse=True)[: _MOST_POOLED // 2]
                )

    def best(self, at: int, *, plain_css: bool = False) -> list[Candidate]:
        """The candidates of a goal that are worth trying, the most promising first."""
        pooled = self._found[at]
        if plain_css:
            pooled = {key: one for key, one in pooled.items() if set(json.loads(key)) == {"css"}}
        most = max((count for count, _ in pooled.values()), default=0)
        ranked = sorted(pooled.items(), key=lambda one: (-(one[1][0] / most + 0.5 * one[1][1]), len(one[0]), one[0]))
        chosen: list[Candidate] = []
        positions = 0
        for key, (count, weight) in ranked:
            if count < 0.15 * most:
                continue
            candidate = Candidate(json.loads(key), weight, count)
            positions += candidate.by_position
            if not candidate.by_position or positions <= _MOST_POSITIONS:
                chosen.append(candidate)
            if len(chosen) >= _MOST_TRIED:
                break
        return chosen


def _language(sample: Sample) -> str:
    tree = sample.part.view.page.tree
    html = tree.select_one("html") if tree is not None else None
    return (html.attr("lang") or "") if html is not None else ""


def tables_of(spot: Spot, reading: Reading, located: Located | None, goal: Goal) -> list[tuple[SourceTable, float]]:
    """The sources that lead to the spot, each with its weight."""
    extra = dict(reading)
    cost = sum(_READING_COST.get(name, 0.0) for name in extra) + _noise(spot, goal)
    if spot.element is None:
        base = dict(spot.base)
        weight = spot.weight * (1.0 if "structured" in base else 0.4 if _ENTRY.search(base.get("json", "")) else 0.85)
        return [({**dict(spot.base), **extra}, weight - cost)]
    if located is None:
        return []
    found: list[tuple[SourceTable, float]] = []
    if spot.before and spot.take in ("::text", "label"):
        found.append(({"label": label_words(spot.before), **extra}, 0.88 - cost))
        if spot.take == "label":
            return found
    if spot.take.startswith("::attr(") and not spot.base and (xpath := located.beside(spot.element, spot.take[7:-1])):
        found.append(({"xpath": xpath, **extra}, 0.66 - cost))
    if not spot.take and not spot.base and spot.cents is None and (xpath := located.above(spot.element)):
        found.append(({"xpath": xpath, **extra}, 0.7 - cost))
    for css, weight, label in located.of(spot.element):
        if label:
            if spot.take or spot.base or spot.cents is not None:
                continue
            if ("after" in extra or "before" in extra) and label in spot.text:
                # the label itself is what stands in front: what is behind the colon is found without cutting
                rest = {name: one for name, one in extra.items() if name not in ("after", "before")}
                found.append((_labelled(css, label, rest), weight))
                continue
            found.append((_labelled(css, label, extra), weight - cost))
            continue
        if "-of-type" in css and goal.many:
            continue
        table: SourceTable = {"css": css + spot.take, **dict(spot.base), **extra}
        if spot.cents is not None:
            found += [
                ({**table, "cents": cents}, weight - 0.05 - cost)
                for cents, _, words in sorted(located.of(spot.cents), key=lambda one: -one[1])[:6]
                if not words and (" " in cents) == (" " in css)
            ][:2]
            continue
        found.append((table, weight * spot.weight - cost))
    return found


def _noise(spot: Spot, goal: Goal) -> float:
    """A number in a long text is a coincidence more often than one that stands alone."""
    if goal.type not in NUMBERS and goal.type is not FieldType.MONEY:
        return 0.0
    size = len(spot.text)
    if goal.type is FieldType.MONEY and spot.cents is None and spot.element is not None and has_cents(spot.element):
        return 0.5  # the digits behind the decimal point stand in the next element
    if size <= 40 and len(_WORD.findall(spot.text)) >= 2:
        return 0.2  # a name with a number in it
    return 0.0 if size <= 24 else 0.1 if size <= 40 else 0.3 if size <= 100 else 0.45


def _labelled(css: str, label: str, extra: dict[str, Any]) -> SourceTable:
    return {**({"css": css} if css else {}), "label": label, **extra}


@lru_cache(maxsize=4096)
def _compiled(text: str) -> Field | None:
    values = json.loads(text)
    faults: list[RecipeFault] = []
    tree = RecipeTree(file="induction", text="", values=values, lines={})
    field = read_field(RecipeTable(tree, faults, (), values), "value")
    return None if faults else field


def compiled(goal: Goal, tables: Sequence[SourceTable]) -> Field | None:
    """A field with these sources, as a recipe would have it; None if one cannot be written in a recipe."""
    options: dict[str, Any] = {"type": goal.options.type.value}
    if goal.options.of is not None:
        options["of"] = goal.options.of.value
    if goal.type is FieldType.MONEY and goal.options.currency:
        options["currency"] = goal.options.currency
    if goal.options.zone:
        options["zone"] = goal.options.zone
    return _compiled(json.dumps({"value": {**options, "sources": list(tables)}}, sort_keys=True))


def value_on(field: Field, sample: Sample) -> Any:
    """What the field is on the sample; None if it has no value there, or none that can be read."""
    notes: list[Note] = []
    try:
        value = take_one(field, sample.part, notes, field.name)
    except GossamerError:
        return None
    return None if value == [] else value

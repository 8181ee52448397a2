"""How stable the rules of a recipe are: which other places of its pages say what a rule reads there.

What it does: takes what each rule reads on a few pages as the known value, and counts the sources that read the same on
all of them. A rule with data, a label and a name beside it is likely to be learned again when the page changes; one
with positions alone is not. How it fails: a field of which nothing is read has no witnesses.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...errors import ParseFailed
from ...parse.page import Page
from ..model import PageKind, SourceKind
from ..sources import PagePart, PageView, parts_of
from ..spider import RecipeSpider, likely_kind
from .candidates import Candidate, Pool, compiled, value_on
from .goal import Goal, Sample, agrees, goals_of

MOST_SAMPLES = 3  # pages of a kind, or blocks of a list


class RuleStability(msgspec.Struct, frozen=True, kw_only=True):
    """`witnesses` are the kinds of places that say the same as the rule: data, label, name, position; `locators` are
    the sources that lead there. `read` of the `looked` pages gave a value."""

    kind: str
    field: str
    rule: str
    read: int
    looked: int
    locators: int
    witnesses: list[str]


def stability_of(spider: RecipeSpider, pages: Sequence[Page]) -> list[RuleStability]:
    """For every field of every kind of page that one of these pages is."""
    by_kind: dict[str, list[Page]] = {}
    for page in pages:
        by_kind.setdefault(likely_kind(spider, page), []).append(page)
    found = []
    for name, some in by_kind.items():
        kind = spider.recipe.kinds[name]
        if kind.item and kind.within is None:
            found += _of_kind(kind, some)
    return found


def _of_kind(kind: PageKind, pages: Sequence[Page]) -> list[RuleStability]:
    parts = _parts(kind, pages)[:MOST_SAMPLES]
    fields = {field.name: field for field in kind.fields}
    goals = goals_of(kind.fields, kind.key)
    samples = [
        Sample(part=part, values={goal.name: value_on(fields[goal.name], Sample(part=part)) for goal in goals})
        for part in parts
    ]
    pool = Pool(goals, fresh=True)
    for sample in samples:
        pool.add(sample)
    told = []
    for at, goal in enumerate(goals):
        same = [one for one in pool.best(at) if _says_the_same(goal, one, samples)]
        told.append(
            RuleStability(
                kind=kind.name,
                field=goal.name,
                rule=fields[goal.name].rule(),
                read=sum((sample.values or {}).get(goal.name) is not None for sample in samples),
                looked=len(samples),
                locators=len(same),
                witnesses=sorted({_witness(one) for one in same}),
            )
        )
    return told


def _parts(kind: PageKind, pages: Sequence[Page]) -> list[PagePart]:
    if kind.each is None:
        return [PagePart(PageView(page)) for page in pages]
    if kind.each.kind not in (SourceKind.CSS, SourceKind.XPATH):
        return []
    try:
        return [part for page in pages for part in parts_of(kind.each, PagePart(PageView(page)), all_count=False)]
    except ParseFailed:
        return []


def _says_the_same(goal: Goal, one: Candidate, samples: Sequence[Sample]) -> bool:
    field = compiled(goal, [one.table])
    if field is None:
        return False
    values = [((sample.values or {}).get(goal.name), sample) for sample in samples]
    return all(value is None or agrees(value_on(field, sample), value, goal) for value, sample in values)


def _witness(one: Candidate) -> str:
    if "structured" in one.table or "json" in one.table:
        return "data"
    if "label" in one.table:
        return "label"
    return "position" if one.by_position else "name"

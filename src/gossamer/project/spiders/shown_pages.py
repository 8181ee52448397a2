"""The pages of a recipe as the archive has them now, each beside the record that says what stood there: what `heal`
compares (heal.py).

A page of a list is its blocks, each beside its own record. Where the rule for blocks finds none any more, they are
looked for by the records (recipe/induction/repeats.py). Nothing is requested and nothing is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...errors import ParseFailed
from ...model.page import Snapshot
from ...model.record import PageFacts, StoredRecord
from ...parse.css import compile_css
from ...parse.page import Page
from ...recipe.induction.goal import Goal, Sample, goals_of, known_value
from ...recipe.induction.matching import RecordIndex
from ...recipe.induction.repeats import Blocks, find_blocks
from ...recipe.model import PageKind, RecipeSource, SourceKind
from ...recipe.sources import PagePart, PageView, parts_of
from ...recipe.spider import RecipeSpider, check_page, taken_items
from ...store.contract import RecordQuery, VisitQuery
from ..open import Project

MOST_PAGES = 300  # the newest copies that are read
MOST_LISTS = 40  # of them, pages of lists
MOST_BLOCKS = 60  # of one page
MOST_VISITS = 200_000  # facts of pages that are looked through
MOST_RECORDS = 50_000


class Shown(msgspec.Struct, frozen=True):
    """A page, or a block of one. `values` are those of its record; of the `lost` fields the rules find nothing."""

    part: PagePart
    fetched_at: float
    failed: bool
    values: dict[str, Any] | None
    lost: frozenset[str]

    @property
    def page(self) -> Page:
        return self.part.view.page


class ShownKind(msgspec.Struct, frozen=True):
    """What is shown of one kind of page. `blocks`: the rule for the blocks of a list finds none, and this one does."""

    parts: list[Shown]
    pages: int
    blocks: Blocks | None = None
    bare: tuple[Shown, ...] = ()  # pages of a list on which no block was found


class KnownRecords:
    """The records of a kind, by address and by key."""

    def __init__(self, kind: PageKind, stored: list[StoredRecord]) -> None:
        self.stored = stored
        self.goals = goals_of(kind.fields, kind.key)
        self._by_url = {} if kind.each is not None else {one.url: one.data for one in reversed(stored)}
        keyed = kind.key != ("url",) or kind.each is not None
        self._by_key = {one.key: one.data for one in stored} if keyed else {}
        self.index = RecordIndex({key: values_of(self.goals, data) for key, data in self._by_key.items()}, self.goals)

    def at(self, page: Page) -> dict[str, Any] | None:
        return self._by_url.get(page.url) or self._by_url.get(page.requested_url)

    def on(self, part: PagePart) -> dict[str, Any] | None:
        key = self.index.match(Sample(part=part)) if len(self.index) else None
        return self._by_key[key] if key is not None else None


async def known_records(project: Project, spider: str, kind: PageKind) -> KnownRecords:
    stored: list[StoredRecord] = []
    async for record in project.records.records(RecordQuery(spider=spider, type=kind.item, newest=True)):
        stored.append(record)
        if len(stored) >= MOST_RECORDS:
            break
    return KnownRecords(kind, stored)


async def newest_visits(project: Project, spider: str, *, only_good: bool = False) -> list[PageFacts]:
    """The facts of the newest archived copies, the latest first; `only_good`: of those that could be parsed."""
    found: list[PageFacts] = []
    query = VisitQuery(spider=spider, failures=("",)) if only_good else VisitQuery(spider=spider)
    async for facts in project.records.archived(query):
        if facts.archive_ref:
            found.append(facts)
        if len(found) >= MOST_VISITS:
            break
    return sorted(found, key=lambda one: one.fetched_at, reverse=True)[:MOST_PAGES]


def is_healable(kind: PageKind) -> bool:
    """Does it give items from the whole page, or from blocks of HTML?"""
    in_html = kind.each is None or kind.each.kind in (SourceKind.CSS, SourceKind.XPATH)
    return bool(kind.item) and in_html and kind.within is None


def shown_kind(
    spider: RecipeSpider, kind: PageKind, copies: Sequence[tuple[PageFacts, Snapshot]], known: KnownRecords
) -> ShownKind:
    if kind.each is None:
        return ShownKind([_whole(spider, kind, copy, visit, known) for visit, copy in copies], len(copies))
    parts: list[Shown] = []
    bare: list[tuple[PageFacts, PageView]] = []
    for visit, copy in copies[:MOST_LISTS]:
        view = PageView(Page(copy, spider=spider))
        found = _blocks(spider, kind, view, visit, known)
        if any(one.values is not None for one in found) or not len(known.index):
            parts += found
        else:
            bare.append((visit, view))
    blocks = find_blocks([view for _, view in bare], known.index)
    if blocks is not None:
        lost = frozenset(field.name for field in kind.fields)
        source = RecipeSource(kind=SourceKind.CSS, css=compile_css(blocks.css))
        for visit, view in bare:
            for part in parts_of(source, PagePart(view), all_count=False)[:MOST_BLOCKS]:
                parts.append(Shown(part, visit.fetched_at, bool(visit.failure), known.on(part), lost))
    left = tuple(Shown(PagePart(view), one.fetched_at, bool(one.failure), None, frozenset()) for one, view in bare)
    return ShownKind(parts, len(copies[:MOST_LISTS]), blocks, left)


def _whole(spider: RecipeSpider, kind: PageKind, copy: Snapshot, visit: PageFacts, known: KnownRecords) -> Shown:
    page = Page(copy, spider=spider)
    check = check_page(spider, kind.name, page)
    lost = frozenset(note.field for note in check.notes if note.value in (None, []))
    part = PagePart(PageView(page))
    data = known.at(page)
    if data is None and any(note.missing for note in check.notes):
        data = known.on(part)
    return Shown(part, visit.fetched_at, bool(visit.failure), data, lost)


def _blocks(spider: RecipeSpider, kind: PageKind, view: PageView, visit: PageFacts, known: KnownRecords) -> list[Shown]:
    assert kind.each is not None
    try:
        parts = parts_of(kind.each, PagePart(view), all_count=False)
        taken = taken_items(spider, kind, view)
    except ParseFailed:
        return []
    found = []
    for at, (part, one) in enumerate(zip(parts[:MOST_BLOCKS], taken, strict=False)):
        mark = f"[{at}]."
        lost = frozenset(
            note.field.removeprefix(mark) for note in one.notes if note.value in (None, []) and mark in note.field
        )
        found.append(Shown(part, visit.fetched_at, bool(visit.failure), known.on(part), lost))
    return found


def values_of(goals: Sequence[Goal], data: Mapping[str, Any]) -> dict[str, Any]:
    return {goal.name: known_value(data.get(goal.name), goal.options) for goal in goals}

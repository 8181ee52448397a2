"""What a scrape or a reparse does to a record, decided without a store: whatever happened, nothing undoes it later."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.model.record import PageResult
from gossamer.store.record_rules import NO_PAGE, REPARSED, Held, RecordVerdict, is_stale, receive, version_seen

from ..conformance.stores import NOW, book, page_of, tried

LATER = NOW + 1_000_000.0


class World:
    """One record, some pages that may give it, and a store of one row."""

    def __init__(self) -> None:
        self.held: Held | None = None
        self.copies: dict[int, list[float]] = {}  # times of the archived visits of each page

    def save(self, result: PageResult, page: int) -> RecordVerdict | None:
        if result.attempt.outcome != REPARSED and result.page is not None:
            self.copies.setdefault(page, []).append(result.page.fetched_at)
        stale = is_stale(result, max(self.copies.get(page, ()), default=None))
        if not result.records:
            return None
        verdict, self.held = receive(self.held, result.records[0], page, now=LATER, min_age=0.0, stale=stale)
        return verdict

    def retire(self, at: float, *, keeps_page: bool) -> None:
        if self.held is not None and not self.held.gone:
            self.held.gone, self.held.last_changed = True, at
            self.held.version += 1
            self.held.page = self.held.page if keeps_page else NO_PAGE


def visit(page: int, value: int | None, at: float) -> PageResult:
    url = f"https://shop.example/{page}"
    records = () if value is None else (book(value=value, at=at),)
    return PageResult(attempt=tried(url, at=at), page=page_of(url, at=at, archive_ref="x"), records=records)


def reparse(page: int, value: int | None, visited: float, at: float) -> PageResult:
    one = visit(page, value, visited)
    records = tuple(msgspec.structs.replace(record, reparsed_at=at) for record in one.records)
    attempt = msgspec.structs.replace(one.attempt, at=at, outcome=REPARSED)
    return msgspec.structs.replace(one, attempt=attempt, records=records)


steps = st.lists(
    st.tuples(st.sampled_from(["visit", "reparse", "lost", "unreached"]), st.integers(1, 2), st.integers(0, 3)),
    min_size=1,
    max_size=10,
)


@settings(max_examples=300, deadline=None)
@given(steps=steps, seed=st.integers(0, 1000))
def test_saving_anything_again_changes_nothing_whatever_came_in_between(
    steps: list[tuple[str, int, int]], seed: int
) -> None:
    world, saved = World(), []
    for second, (kind, page, value) in enumerate(steps):
        at = NOW + second
        if kind == "visit":
            saved.append((visit(page, value, at), page))
        elif kind == "reparse" and world.copies.get(page):
            saved.append((reparse(page, value, max(world.copies[page]), at), page))
        elif kind in ("lost", "unreached"):
            world.retire(at, keeps_page=kind == "unreached")
            continue
        else:
            continue
        world.save(*saved[-1])
    before = msgspec.structs.asdict(world.held) if world.held is not None else None

    random.Random(seed).shuffle(saved)
    verdicts = [world.save(*one) for one in saved]

    assert RecordVerdict.CHANGED not in verdicts
    after = msgspec.structs.asdict(world.held) if world.held is not None else None
    if before is not None and after is not None:
        del before["page"], after["page"]  # two pages may give the same at the same time
    assert after == before


def test_what_a_job_saw_is_known_only_when_it_is_kept() -> None:
    _, held = receive(None, book(value=2, at=NOW + 5), 1, now=LATER, min_age=0.0)
    assert version_seen(held, book(value=2).content_hash) == 1
    verdict, _ = receive(held, book(value=1, at=NOW), 1, now=LATER, min_age=0.0)
    assert verdict is RecordVerdict.LATE
    assert version_seen(held, book(value=1).content_hash) == 0
    held.gone = True
    assert version_seen(held, book(value=2).content_hash) == 0


@pytest.mark.parametrize(("newest", "stale"), [(None, False), (NOW - 1, False), (NOW, False), (NOW + 1, True)])
@pytest.mark.parametrize("has_page", [True, False])
def test_a_reparse_is_stale_when_its_spider_has_visited_the_page_since(
    newest: float | None, stale: bool, has_page: bool
) -> None:
    url = "https://shop.example/b1"
    parsed = PageResult(
        attempt=tried(url, at=NOW + 500, outcome=REPARSED),
        page=page_of(url, at=NOW) if has_page else None,
        records=(book("b1", at=NOW),),
    )
    assert is_stale(parsed, newest) is stale
    assert not is_stale(msgspec.structs.replace(parsed, attempt=tried(url, at=NOW)), newest)  # a visit of the site


def test_a_reparse_without_page_and_records_is_not_stale() -> None:
    assert not is_stale(PageResult(attempt=tried(outcome=REPARSED)), NOW + 1)

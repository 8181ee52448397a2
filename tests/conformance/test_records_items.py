"""What every record store promises about the account of items, and about spiders that see the same records."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from uuid import uuid4

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gossamer.model.item_account import STATES, Conflict, ItemCounts
from gossamer.model.record import PageResult, Record
from gossamer.store.contract import RecordQuery, Records

from .stores import HOUR, NOW, OpenRecords, all_of, book, reparse, tried, visit
from .stores import backend as backend
from .stores import clock as clock
from .stores import open_records as open_records
from .stores import record_store as record_store

ONE, TWO, THREE = (f"https://shop.example/page/{n}" for n in (1, 2, 3))


def page(
    url: str, *records: Record, at: float = NOW, job: str = "books-1", outcome: str = "done", **known: int
) -> PageResult:
    """A visit that yielded these records, beside what is known of others."""
    items = ItemCounts(yielded=len(records) + sum(known.get(state, 0) for state in STATES), **known)
    return msgspec.structs.replace(visit(url, *records, at=at, job=job, outcome=outcome), items=items)


async def account(store: Records, job: str = "books-1") -> dict[str, int]:
    """The states of a job's items; they add up, whatever happens."""
    counts = await store.items(job)
    assert counts.yielded == sum(counts.states().values())
    return counts.states()


async def test_a_job_without_items_has_an_empty_account(record_store: Records) -> None:
    await record_store.save([page(ONE)])
    assert await record_store.items("books-1") == ItemCounts()
    assert await record_store.items("nobody") == ItemCounts()


async def test_items_are_new_then_unchanged_then_changed(record_store: Records) -> None:
    await record_store.save([page(ONE, book("a"), book("b"))])
    await record_store.save([page(ONE, book("a"), book("b", title="Persuasion"), at=NOW + HOUR, job="books-2")])
    assert await account(record_store) == {"new": 2}
    assert await account(record_store, "books-2") == {"changed": 1, "unchanged": 1}


@pytest.mark.parametrize("job", ["books-1", "books-2"])
async def test_two_pages_of_a_run_with_one_item_are_equal(record_store: Records, job: str) -> None:
    await record_store.save([page(ONE, book("a"))])
    if job == "books-2":
        await record_store.save([page(ONE, book("a"), at=NOW + 1, job=job)])
    await record_store.save([page(TWO, book("a"), at=NOW + 2, job=job), page(THREE, book("a"), at=NOW + 3, job=job)])
    assert await account(record_store, job) == {"new" if job == "books-1" else "unchanged": 1, "equal": 2}


async def test_two_pages_of_a_run_that_differ_are_in_conflict(record_store: Records) -> None:
    await record_store.save([page(ONE, book("a", title="Emma")), page(TWO, book("a", title="Sanditon"), at=NOW + 1)])
    await record_store.save([page(THREE, book("a", title="Emma"), at=NOW + 2)])
    assert await account(record_store) == {"new": 1, "equal": 1, "conflict": 1}
    counts = await record_store.items("books-1")
    assert counts.example == Conflict(type="Book", key="a", url="https://shop.example/a")
    assert [one.data for one in await all_of(record_store)] == [{"title": "Emma"}]  # the newest visit wins


async def test_pages_that_are_stored_again_in_any_order_are_counted_once(record_store: Records) -> None:
    """A worker was killed between storing and settling: all of it comes again, with other times."""
    first = [page(ONE, book("a"), book("b")), page(TWO, book("a", title="Sanditon"), book("b"), at=NOW + 1)]
    await record_store.save(first)
    known = await account(record_store)
    again = [
        page(ONE, book("a"), book("b"), at=NOW + 3),
        page(TWO, book("a", title="Sanditon"), book("b"), at=NOW + 2),
    ]
    await record_store.save(again[::-1])
    await record_store.save(again)
    await record_store.save(first)
    assert await account(record_store) == known == {"new": 2, "equal": 1, "conflict": 1}


async def test_the_account_of_a_page_is_that_of_its_last_settlement(record_store: Records) -> None:
    """A dead letter that is replayed: what was lost becomes what it is now."""
    await record_store.save([page(ONE, outcome="dead", lost=3), page(TWO, book("b"))])
    await record_store.save([page(ONE, book("a"), at=NOW + 1, dropped=1)])
    assert await account(record_store) == {"new": 2, "dropped": 1}
    await record_store.save([page(ONE, at=NOW + 2)])
    assert await account(record_store) == {"new": 1}


async def test_an_attempt_that_settles_nothing_leaves_the_account_alone(record_store: Records) -> None:
    await record_store.save([page(ONE, book("a"))])
    again = msgspec.structs.replace(visit(ONE, at=NOW + 1, outcome="unchanged"), items=None)
    await record_store.save([again, PageResult(attempt=tried(ONE, at=NOW + 2, outcome="retry"))])
    assert await account(record_store) == {"new": 1}


async def test_another_job_between_makes_no_conflict(record_store: Records) -> None:
    await record_store.save([page(ONE, book("a"))])
    await record_store.save([page(TWO, book("a", title="Sanditon"), at=NOW + 1, job="other-1")])
    await record_store.save([page(THREE, book("a"), at=NOW + 2)])
    assert await account(record_store) == {"new": 1, "equal": 1}
    assert await account(record_store, "other-1") == {"changed": 1}


async def test_items_are_held_back_by_a_young_version_or_a_newer_scrape(open_records: OpenRecords) -> None:
    async with open_records(timedelta(hours=1)) as store:
        await store.save([page(ONE, book("a"), book("b"))])
        early = page(ONE, book("a", title="Sanditon"), book("b"), at=NOW + 60, job="books-2")
        await store.save([early])
        late = page(TWO, book("a", title="Persuasion"), at=NOW - 60, job="books-3")
        await store.save([late])
        assert await account(store, "books-2") == {"unchanged": 1, "held": 1}
        assert (await store.items("books-2")).reasons == {"store.min_rewrite_age": 1}
        assert await account(store, "books-3") == {"held": 1}
        assert (await store.items("books-3")).reasons == {"a newer scrape": 1}


async def test_a_reparse_has_an_account_of_its_own(record_store: Records) -> None:
    await record_store.save([page(ONE, book("a"))])
    again = reparse(ONE, book("a", title="Sanditon"), book("b"), visit=NOW, at=NOW + HOUR)
    again = msgspec.structs.replace(again, items=ItemCounts(yielded=2))
    await record_store.save([again])
    await record_store.save([again])
    assert await account(record_store) == {"new": 1}
    assert await account(record_store, "reparse-1") == {"new": 1, "changed": 1}


async def test_writers_that_meet_agree_on_one_new_item(open_records: OpenRecords) -> None:
    """Two processes store the same key at the same moment: one item is new, each other one equal or in conflict."""
    async with open_records() as one, open_records() as other:
        pages = [f"https://shop.example/page/{n}" for n in range(24)]
        jobs = [
            store.save([page(url, book("a", title=str(n % 2)), at=NOW + n)])
            for n, url in enumerate(pages)
            for store in [one if n % 3 else other]
        ]
        await asyncio.gather(*jobs)
        counts = await one.items("books-1")
        assert await account(one) == {"new": 1, "equal": 11, "conflict": 12}
        assert counts.yielded == 24


async def test_reasons_and_examples_of_pages_are_added_up(record_store: Records) -> None:
    def dropping(url: str, **reasons: int) -> PageResult:
        items = ItemCounts(yielded=sum(reasons.values()), dropped=sum(reasons.values()), reasons=reasons)
        return msgspec.structs.replace(visit(url, at=NOW), items=items)

    await record_store.save([dropping(ONE, no_stock=2), dropping(TWO, no_stock=1, old=1)])
    assert (await record_store.items("books-1")).reasons == {"no_stock": 3, "old": 1}


async def test_recent_pages_are_told_in_the_order_of_time(record_store: Records) -> None:
    await record_store.save([page(TWO, book("b"), at=NOW + 2, fine=1), page(ONE, book("a"), at=NOW + 1, flawed=1)])
    await record_store.save([page(THREE, at=NOW + 3)])
    assert await record_store.recent_items("books-1", "", 10) == [(0, 1), (1, 0)]
    assert await record_store.recent_items("books-1", "", 1) == [(1, 0)]
    assert await record_store.recent_items("nobody", "", 10) == []
    assert await record_store.recent_items("books-1", "another version", 10) == []


def by(spider: str, record: Record) -> Record:
    return msgspec.structs.replace(record, spider=spider)


async def test_a_record_is_found_under_every_spider_that_saw_it(record_store: Records) -> None:
    await record_store.save([page(ONE, by("plain", book("a")), by("plain", book("b")))])
    second = page(TWO, by("js", book("a")), by("js", book("b", title="Sanditon")), at=NOW + 1, job="js-1")
    await record_store.save([second])
    for spider, keys in (("plain", ["a", "b"]), ("js", ["a", "b"]), ("other", [])):
        query = RecordQuery(spider=spider)
        assert [one.key for one in await all_of(record_store, query)] == keys
        assert await record_store.count(query) == len(keys)
        assert len(await all_of(record_store, RecordQuery(spider=spider, job="js-1"))) == len(keys)
        assert len(await all_of(record_store, RecordQuery(spider=spider, key="b"))) == len(keys[1:])
    counts = await record_store.items("js-1")
    assert (counts.shared, counts.shared_with) == (2, "plain")
    assert (await record_store.items("books-1")).shared == 0


PAGES = st.lists(  # of each page, which keys it gives, with which content
    st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), max_size=3), min_size=1, max_size=5
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pages=PAGES, data=st.data())
async def test_items_add_up_however_often_and_in_whatever_order_pages_are_stored_again(
    record_store: Records, pages: list[dict[str, str]], data: st.DataObject
) -> None:
    job = f"job-{uuid4()}"
    site = uuid4().hex

    def stored(place: int, at: float) -> PageResult:
        records = [
            msgspec.structs.replace(book(key, title=title), site=site) for key, title in sorted(pages[place].items())
        ]
        return page(f"https://shop.example/{site}/{place}", *records, at=NOW + at, job=job)

    for place in range(len(pages)):
        await record_store.save([stored(place, place)])
    once = await account(record_store, job)
    firsts: dict[str, str] = {}
    expected = Counter[str]()
    for one in pages:
        for key, title in one.items():
            new = key not in firsts
            same = firsts.setdefault(key, title) == title
            expected["new" if new else "equal" if same else "conflict"] += 1
    assert once == dict(expected)

    order = data.draw(st.lists(st.sampled_from(range(len(pages))), max_size=8))
    for turn, place in enumerate(order):
        await record_store.save([stored(place, 100 + turn if data.draw(st.booleans()) else place)])
    assert await account(record_store, job) == once

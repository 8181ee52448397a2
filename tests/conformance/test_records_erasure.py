"""Erasing records and pages, in each record store."""

from __future__ import annotations

import asyncio

import msgspec

from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.clock import VirtualClock
from gossamer.model.item_account import ItemCounts
from gossamer.store.contract import AttemptQuery, RecordQuery
from gossamer.store.erasure import ERASED, FOR_GOOD, page_mark, record_mark

from .stores import (
    HOUR,
    NOW,
    all_of,
    backend,
    book,
    clock,
    fingerprint_of,
    open_records,
    record_store,
    result,
    tried,
    visit,
)

__all__ = ["backend", "clock", "open_records", "record_store"]

LATER = NOW + 2 * HOUR
JANE, JOHN = ("Book", "shop.example", "jane"), ("Book", "shop.example", "john")
PAGE = "https://shop.example/jane"


async def erase(store, *records, pages=(), until=LATER):
    """All three steps, as a project takes them."""
    await store.mark_erased([record_mark(one) for one in records], until)
    found = await store.holdings(records, pages)
    await store.mark_erased([page_mark(fingerprint) for fingerprint, _ in (*found.own, *found.shared)], until)
    found = await store.holdings(records, pages)
    return found, await store.erase(records, found, until)


async def test_nothing_of_an_erased_record_is_left(record_store):
    store = record_store
    await store.save([visit(PAGE, book("jane", title="Jane Doe"), at=NOW)])
    await store.save([visit(PAGE, book("jane", title="Jane Roe"), at=NOW + HOUR)])
    await store.save([visit("https://shop.example/john", book("john", title="John"), at=NOW)])

    found, erased = await erase(store, JANE)

    assert erased == 1
    assert {one.data for one in found.versions} == {'{"title":"Jane Doe"}', '{"title":"Jane Roe"}'}
    assert found.own == ((fingerprint_of(PAGE), PAGE),)
    assert set(found.refs) == {f"copy of {NOW}", f"copy of {NOW + HOUR}"}
    assert [one.key for one in await all_of(store)] == ["john"]
    assert await store.history(*JANE) == []
    assert await store.attempts(fingerprint_of(PAGE)) == []
    assert await store.visits(fingerprint_of(PAGE)) == []
    assert await store.facts([fingerprint_of(PAGE)]) == {}
    log = await store.attempt_log(AttemptQuery(), limit=10)
    assert [one.url for one in log.attempts] == ["https://shop.example/john"]
    rows = [row async for batch in store.stream.dump() for row in batch]
    assert "jane" not in str(rows).lower()


async def test_a_page_that_gave_other_records_keeps_its_address_and_loses_its_copies(record_store):
    store, url = record_store, "https://shop.example/list"
    both = [msgspec.structs.replace(book(key, title=key), url=url) for key in ("jane", "john")]
    await store.save([visit(url, *both, at=NOW)])

    found, _ = await erase(store, JANE)

    assert found.own == ()
    assert found.shared == ((fingerprint_of(url), url),)
    assert [one.key for one in await all_of(store)] == ["john"]
    (page,) = (await store.facts([fingerprint_of(url)])).values()
    assert page.archive_ref == ""
    assert page.parser == ""
    assert await store.visits(fingerprint_of(url)) == []
    assert [one.url for one in await store.attempts(fingerprint_of(url))] == [url]


async def test_a_result_that_was_on_its_way_brings_nothing_back(record_store):
    store = record_store
    late = visit(PAGE, book("jane", title="Jane Doe"), at=NOW)
    await store.save([late])
    await erase(store, JANE)

    assert await store.save([late, visit("https://shop.example/new", book("new"), at=NOW)]) == [ERASED, 1]

    assert [one.key for one in await all_of(store)] == ["new"]
    assert await store.attempts(fingerprint_of(PAGE)) == []


async def test_of_a_late_result_only_what_was_erased_is_left_out(record_store):
    store, url = record_store, "https://shop.example/list"
    both = [msgspec.structs.replace(book(key, title=key), url=url) for key in ("jane", "john")]
    late = msgspec.structs.replace(visit(url, *both, at=NOW), items=ItemCounts(yielded=2, fine=2))
    await store.save([visit(PAGE, book("jane", title="Jane Doe"), at=NOW)])
    await erase(store, JANE)

    assert await store.save([late]) == [ERASED]

    assert [one.key for one in await all_of(store)] == ["john"]
    assert await store.visits(fingerprint_of(url)) == []
    counts = await store.items("books-1")
    assert counts.yielded == sum(counts.states().values()) == 2
    assert counts.reasons == {"erased": 1}


async def test_what_is_scraped_later_is_stored_again_unless_it_was_erased_for_good(record_store):
    store = record_store
    await store.save([visit(PAGE, book("jane"), at=NOW), visit("https://shop.example/john", book("john"), at=NOW)])
    await erase(store, JANE)
    await erase(store, JOHN, until=FOR_GOOD)

    new = [visit(f"https://shop.example/{key}", book(key), at=LATER + HOUR) for key in ("jane", "john")]
    assert await store.save(new) == [1, ERASED]

    assert [one.key for one in await all_of(store)] == ["jane"]


async def test_erasing_again_leaves_what_was_scraped_since(record_store):
    store = record_store
    await store.save([visit(PAGE, book("jane"), at=NOW)])
    found, _ = await erase(store, JANE)
    await store.save([visit(PAGE, book("jane", title="Jane Poe"), at=LATER + HOUR)])

    assert await store.erase([JANE], found, LATER) == 0

    assert [one.data for one in await all_of(store)] == [{"title": "Jane Poe"}]
    assert len(await store.visits(fingerprint_of(PAGE))) == 1


async def test_a_cursor_from_before_misses_no_change(record_store):
    store = record_store
    await store.save([result(book("john"))])
    await store.save([visit(PAGE, book("jane"), at=NOW)])  # the newest change
    cursor = await store.cursor()
    await erase(store, JANE)

    await store.save([result(book("new"))])

    assert [one.key for one in await all_of(store, RecordQuery(after=cursor))] == ["new"]


async def test_saves_that_run_beside_it_store_nothing_of_it(open_records):
    async with open_records() as one, open_records() as other:
        results = [visit(PAGE, book("jane", title=f"Jane {n}"), at=NOW + n) for n in range(40)]
        await one.save(results[:1])

        async def save() -> None:
            for late in results:
                await other.save(
                    [late, result(book(f"b{late.attempt.at}"), attempt=tried(f"https://s/{late.attempt.at}"))]
                )

        await asyncio.gather(save(), erase(one, JANE))
        assert "jane" not in [record.key for record in await all_of(one)]
        assert await one.history(*JANE) == []
        assert len(await all_of(one)) == 40


async def test_a_record_without_a_page_is_erased_too_and_an_unknown_one_is_no_error(record_store):
    await record_store.save([result(book("jane"))])

    assert (await erase(record_store, JANE, ("Book", "elsewhere", "x")))[1] == 1
    assert await record_store.compact() is not None
    assert await all_of(record_store) == []


async def test_what_was_erased_for_good_stays_so_where_the_records_are_moved(record_store, open_records, tmp_path):
    await record_store.save([visit(PAGE, book("jane"), at=NOW)])
    await erase(record_store, JANE, until=FOR_GOOD)

    async with open_sqlite_records(tmp_path / "moved.db", VirtualClock(NOW)) as moved:
        async for batch in record_store.stream.dump():
            await moved.stream.load(batch)
        assert await moved.stream.counts() == await record_store.stream.counts()
        assert await moved.save([visit(PAGE, book("jane"), at=LATER)]) == [ERASED]

"""What every record store promises about quality, the shapes of items, and writers that meet."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from gossamer.clock import VirtualClock
from gossamer.model.record import ItemSchema, PageResult, StoredRecord, Tally
from gossamer.store.contract import RecordQuery, Records, Version

from .stores import NOW, OpenRecords, all_of, book, result, tried, visit
from .stores import backend as backend
from .stores import clock as clock
from .stores import open_records as open_records
from .stores import record_store as record_store

LISTING = "https://shop.example/list"
SHAPE = ItemSchema(id="5f3c", type="Book", definition='{"fields":{"title":{"type":"text"}}}')


def tally(field: str = "*", *, day: str = "2027-01-15", rule: str = "", spider: str = "books", **counts: int) -> Tally:
    return Tally(spider=spider, day=day, type="Book", field=field, rule=rule, **counts)


async def test_what_was_counted_is_added_up(record_store: Records) -> None:
    await record_store.save(
        [
            result(attempt=tried(at=NOW), quality=(tally(checked=2, filled=2), tally("title", checked=2, faulty=1))),
            result(attempt=tried(at=NOW + 1), quality=(tally(checked=3, filled=1),)),
        ]
    )
    await record_store.save(
        [result(attempt=tried(at=NOW + 2), quality=(tally("title", checked=1, filled=1), tally(checked=1)))]
    )
    assert await record_store.scores() == [
        tally(checked=6, filled=3, faulty=0),
        tally("title", checked=3, filled=1, faulty=1),
    ]


async def test_a_result_that_is_saved_twice_is_counted_once(record_store: Records) -> None:
    one = result(book(), quality=(tally(checked=1, filled=1),))
    other = result(attempt=tried(at=NOW + 1, worker="host/2/2"), quality=(tally(checked=1, faulty=1),))
    await record_store.save([one, one])
    await record_store.save([one, other])
    await record_store.save([other])
    assert await record_store.scores() == [tally(checked=2, filled=1, faulty=1)]


async def test_scores_are_told_by_day_spider_type_field_and_rule(record_store: Records) -> None:
    film = msgspec.structs.replace(tally(checked=1), type="Film")
    counted = (
        tally("title", rule="missing", faulty=1),
        tally("price", checked=1),
        film,
        tally(day="2027-01-14", checked=1),
        tally(spider="a", checked=1),
        tally("Éa", checked=1),
        tally("title", checked=1),
    )
    await record_store.save([result(attempt=tried(), quality=counted)])
    everything = [counted[3], counted[4], *(counted[n] for n in (1, 6, 0, 5)), film]
    assert await record_store.scores() == everything
    assert await record_store.scores(spider="books") == [one for one in everything if one.spider == "books"]
    assert await record_store.scores(since="2027-01-15") == everything[1:]
    assert await record_store.scores(spider="a", since="2027-01-16") == []


async def test_writers_that_count_at_the_same_time_lose_nothing(open_records: OpenRecords) -> None:
    fields = [f"field{n}" for n in range(12)]

    async def write(store: Records, worker: str, order: list[str]) -> None:
        for n in range(15):
            counted = tuple(tally(field, checked=1, filled=n % 2) for field in order)
            url = f"https://shop.example/{worker}/{n}"
            await store.save([result(attempt=tried(url, worker=worker), quality=counted)])

    async with open_records() as one, open_records() as two:
        await asyncio.gather(
            write(one, "a", fields),
            write(one, "b", fields[::-1]),
            write(two, "c", fields[::-1]),
            write(two, "d", fields),
        )
        assert await one.scores() == [tally(field, checked=60, filled=28) for field in sorted(fields)]


async def test_every_shape_is_kept_with_the_time_it_came(record_store: Records, clock: VirtualClock) -> None:
    first, later = clock.now(), clock.now() + 60
    film = msgspec.structs.replace(SHAPE, type="Film")
    newer = ItemSchema(id="0a", type="Book", definition="{}")
    await record_store.save([result(book(), schemas=(SHAPE,)), result(book("b2"), schemas=(SHAPE, film))])
    clock.advance(60)
    await record_store.save([result(book("b3"), schemas=(SHAPE, newer))])
    assert await record_store.schemas() == [(SHAPE, first), (film, first), (newer, later)]
    assert await record_store.schemas("Book") == [(SHAPE, first), (newer, later)]
    assert await record_store.schemas("Song") == []


async def test_a_shape_is_known_after_reopening(open_records: OpenRecords, clock: VirtualClock) -> None:
    first = clock.now()
    for _ in range(2):
        async with open_records() as store:
            await store.save([result(book(), schemas=(SHAPE,))])
            assert await store.schemas() == [(SHAPE, first)]
        clock.advance(60)


async def test_a_record_and_its_versions_name_their_shapes(record_store: Records) -> None:
    for second, shape in enumerate(["one", "two", "three"]):
        one = msgspec.structs.replace(book(price=min(second, 1), at=NOW + second), schema=shape)
        await record_store.save([result(one)])
    [record] = await all_of(record_store)
    assert (record.version, record.schema) == (2, "two")  # the third was the same content
    assert [version.schema for version in await record_store.history("Book", "shop.example", "b1")] == ["one", "two"]


@pytest.mark.parametrize("text", ["a\0b", "half \ud800"])
async def test_odd_characters_are_counted_and_kept(record_store: Records, text: str) -> None:
    mended = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    counted = Tally(spider=text, day="2027-01-15", type=text, field=text, rule=text, checked=1)
    shape = ItemSchema(id=text, type=text, definition=text)
    one = msgspec.structs.replace(book(), schema=text)
    await record_store.save([result(one, quality=(counted,), schemas=(shape,))])
    [score] = await record_store.scores(spider=text)
    assert (score.spider, score.type, score.field, score.rule) == (mended,) * 4
    [(found, _)] = await record_store.schemas(text)
    assert (found.id, found.type, found.definition) == (mended,) * 3
    [record] = await all_of(record_store)
    assert record.schema == mended


async def test_two_workers_that_store_the_same_records_in_opposite_order_agree(open_records: OpenRecords) -> None:
    """The same visits, whichever comes first: what anybody can see in the end is the same, and says the newest."""
    keys = [f"k{n:03}" for n in range(200)]
    older = [visit(f"{LISTING}/{key}", book(key, price=1), at=NOW + n) for n, key in enumerate(keys)]
    newer = [visit(f"{LISTING}/{key}", book(key, price=2), at=NOW + 900 - n) for n, key in enumerate(keys)]
    mine, theirs = [*older, *newer], [*reversed(older), *reversed(newer)]

    async def write(store: Records, results: list[PageResult]) -> None:
        for start in range(0, len(results), 20):
            await store.save(results[start : start + 20])

    async with open_records() as one, open_records() as two:
        await asyncio.gather(write(one, mine), write(two, theirs))
        records = {record.key: record for record in await all_of(one)}
        assert sorted(records) == keys
        for n, key in enumerate(keys):
            assert records[key] == StoredRecord(
                type="Book", site="shop.example", key=key, url=f"https://shop.example/{key}", job="books-1",
                spider="books", data={"price": 2}, first_seen=NOW + n, last_changed=NOW + 900 - n,
                last_checked=NOW + 900 - n, version=2,
            )  # fmt: skip
            assert await two.history("Book", "shop.example", key) == [
                Version(at=NOW + n, job="books-1", version=1, data='{"price":1}'),
                Version(at=NOW + 900 - n, job="books-1", version=2, data='{"price":2}'),
            ]
        assert await two.count(RecordQuery(job="books-1")) == len(keys)

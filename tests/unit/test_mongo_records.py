"""What is particular to records in MongoDB: tickets, sums, and what a document can hold."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.backends.mongo import figures, quality
from gossamer.backends.mongo.errors import Unstorable
from gossamer.backends.mongo.layout import identity_of, time_bytes, visit_name
from gossamer.backends.mongo.records import MongoRecords, open_mongo_records
from gossamer.backends.mongo.revisions import TICKET_LASTS
from gossamer.backends.mongo.stored_text import queryable
from gossamer.backends.open import open_records
from gossamer.clock import VirtualClock
from gossamer.errors import BackendUnavailable, BadState
from gossamer.model.record import PageResult, Tally
from gossamer.model.stream import MoveMark, MoveStatus
from gossamer.settings import Settings
from gossamer.store.contract import RecordQuery

from ..conformance.stores import NOW, all_of, book, result, tried
from ..services.mongo import prefix_of
from ..services.mongo_server import MongoServer

CLOCK = VirtualClock(NOW + 10_000)
LISTING = "https://shop.example/list"


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return prefix_of(tmp_path)


@pytest.fixture
async def store(lone_mongo: MongoServer, prefix: str) -> AsyncIterator[MongoRecords]:
    async with open_mongo_records(lone_mongo.address(), CLOCK, prefix=prefix) as opened:
        yield opened


def tally(**counts: int) -> Tally:
    return Tally(spider="books", day="2027-01-15", type="Book", field="*", **counts)


# -- marks and tickets ---------------------------------------------------------------------------------------------


def marks_document(server: MongoServer, store: MongoRecords) -> dict[str, Any]:
    documents = server.documents(f"{store.database.address.prefix}.store")
    return next(one for one in documents if one["_id"] == "marks")


async def test_marks_wait_for_a_writer_until_its_ticket_expires(lone_mongo: MongoServer, store: MongoRecords) -> None:
    mark = await store.cursor()
    lone_mongo.fail("insert", ".records", done=True)
    with pytest.raises(BackendUnavailable):
        await store.save([result(book("half"))])
    await store.save([result(book("other"))])

    assert await store.cursor() == mark == await store.cursor()

    [ticket] = marks_document(lone_mongo, store)["open"].values()
    ticket["at"] -= TICKET_LASTS + timedelta(seconds=1)
    now = await store.cursor()
    told = [record.key for record in await all_of(store, RecordQuery(after=mark, upto=now))]
    assert told == ["half", "other"]
    assert marks_document(lone_mongo, store)["open"] == {}


async def test_a_writer_whose_ticket_has_expired_meanwhile_is_told_all_the_same(
    lone_mongo: MongoServer, store: MongoRecords
) -> None:
    await store.save([result(book("late"))])
    ticket = await store.revisions.open(0)
    marks_document(lone_mongo, store)["open"].clear()
    mark = await store.cursor()
    name = identity_of("Book", "shop.example", "late")
    [record] = lone_mongo.documents(f"{store.database.address.prefix}.records")
    record["revision"] = ticket.revision  # as it writes only now

    await store.revisions.close(ticket, [name])

    assert [one.key for one in await all_of(store, RecordQuery(after=mark))] == ["late"]
    assert marks_document(lone_mongo, store)["open"] == {}


async def test_opening_the_store_takes_expired_tickets_away(
    lone_mongo: MongoServer, store: MongoRecords, prefix: str
) -> None:
    for _ in range(3):
        await store.revisions.open(0)
    tickets = list(marks_document(lone_mongo, store)["open"].values())
    for ticket in tickets[:2]:
        ticket["at"] -= TICKET_LASTS + timedelta(seconds=1)
    async with open_mongo_records(lone_mongo.address(), CLOCK, prefix=prefix):
        assert list(marks_document(lone_mongo, store)["open"].values()) == tickets[2:]


# -- what was counted ----------------------------------------------------------------------------------------------


def counting(second: int) -> PageResult:
    return result(attempt=tried(at=NOW + second), quality=(tally(checked=1, filled=second % 2),))


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums are made often."""
    monkeypatch.setattr(quality, "FOLD_EVERY", 5)
    monkeypatch.setattr(quality, "FOLDED", 3)


@pytest.mark.usefixtures("often")
async def test_what_was_counted_is_summed_up_and_counted_once(lone_mongo: MongoServer, store: MongoRecords) -> None:
    for second in range(20):
        await store.save([counting(second)])
        assert await store.scores() == [tally(checked=second + 1, filled=(second + 1) // 2)]
    uncounted = [one for one in lone_mongo.documents(f"{store.database.address.prefix}.attempts") if "sheet" in one]
    assert len(uncounted) == 20 - 4 * 3
    await store.save([counting(second) for second in range(20)])
    assert await store.scores() == [tally(checked=20, filled=10)]


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("collection", [".quality", ".attempts"])
async def test_sums_that_break_off_count_nothing_twice(
    lone_mongo: MongoServer, store: MongoRecords, collection: str, done: bool
) -> None:
    await store.save([counting(second) for second in range(4)])
    for second in (4, 9):
        lone_mongo.fail("update", collection, done=done)
        batch = [counting(one) for one in range(second, second + 5)]
        with pytest.raises(BackendUnavailable):
            await store.save(batch)
        assert (await store.scores())[0].checked == second + 5
        await store.save(batch)
        assert (await store.scores())[0].checked == second + 5
    assert lone_mongo.faults_left == 0


async def test_pruning_keeps_what_was_counted(lone_mongo: MongoServer, store: MongoRecords) -> None:
    await store.save([counting(second) for second in range(10)])
    assert await store.prune(timedelta(0)) == 10
    assert lone_mongo.documents(f"{store.database.address.prefix}.attempts") == []
    assert await store.scores() == [tally(checked=10, filled=5)]


# -- what MongoDB can hold -----------------------------------------------------------------------------------------


async def test_a_record_of_more_than_a_document_holds_is_refused_alone(
    lone_mongo: MongoServer, store: MongoRecords
) -> None:
    data = json.dumps({"text": "x" * 17_000_000})
    large = result(msgspec.structs.replace(book("large"), data=data, content_hash=b"large"))
    with pytest.raises(Unstorable, match=r"The Record of https://shop.example/large has 17,\d+,\d+ bytes"):
        await store.save([result(book("small")), large])
    assert lone_mongo.documents(f"{store.database.address.prefix}.pages") == []
    assert await store.save([result(book("small"))]) == [1]


async def test_a_long_record_is_kept_without_its_copy_for_queries(lone_mongo: MongoServer, store: MongoRecords) -> None:
    numbers = list(range(900_000))  # as a document with a name for every entry it would be too large
    data = json.dumps({"n": numbers})
    await store.save([result(msgspec.structs.replace(book("long"), data=data, content_hash=b"long"))])
    [document] = lone_mongo.documents(f"{store.database.address.prefix}.records")
    assert (document["data"], document["source"]) == (None, data)


@pytest.mark.parametrize(
    ("source", "document"),
    [
        ('{"title":"Émile","price":{"amount":12.5}}', {"title": "Émile", "price": {"amount": 12.5}}),
        ('{"a.b":1,"$set":{"$x":[{"y.z":2}]}}', {"a．b": 1, "＄set": {"＄x": [{"y．z": 2}]}}),
        ('{"a$":1,"":2}', {"a$": 1, "": 2}),
        ('{"\\u0000":"a\\u0000b"}', {"\ufffd": "a\0b"}),
        ('{"half":"\\ud800"}', {"half": "\ufffd"}),
        ('{"n":9223372036854775807,"m":9223372036854775808}', {"n": 2**63 - 1, "m": float(2**63)}),
        ('{"n":1e400}', {"n": float("inf")}),
        ('{"yes":true,"no":null}', {"yes": True, "no": None}),
        ('{"deep":' + "[" * 70 + "]" * 70 + "}", None),
        ("no JSON", None),
    ],
)
async def test_a_record_has_a_copy_for_queries(
    lone_mongo: MongoServer, store: MongoRecords, source: str, document: Any
) -> None:
    assert queryable(source) == document
    await store.save([result(msgspec.structs.replace(book(), data=source))])
    [found] = lone_mongo.documents(f"{store.database.address.prefix}.records")
    assert (found["data"], found["source"]) == (document, source)


def test_names_are_in_the_order_of_times() -> None:
    times = [-1e300, -2.0, -1.0, 0.0, 1e-300, 1.0, 1.8e9, 1.8e9 + 1e-6, 1e300]
    assert sorted(times, key=time_bytes) == times
    assert sorted(times, key=lambda at: visit_name(7, at)) == times[::-1]
    assert time_bytes(-0.0) == time_bytes(0.0)


# -- from settings -------------------------------------------------------------------------------------------------


async def test_an_address_in_the_settings_opens_it(lone_mongo: MongoServer, tmp_path: Path) -> None:
    settings = Settings(root=tmp_path, project="Books", records=lone_mongo.address())
    async with open_records(settings, CLOCK) as store:
        assert await store.save([result(book())]) == [1]
        await store.stream.set_mark(MoveMark(status=MoveStatus.ARRIVING, place="elsewhere", at=NOW))
    assert len(lone_mongo.documents("gossamer_books.records")) == 1
    with pytest.raises(BadState, match="a move from elsewhere into it was not finished"):
        async with open_records(settings, CLOCK):
            pass


# -- figures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writes", range(4))  # folded, closed, in its row, removed
async def test_a_late_attempt_counts_in_its_minute_wherever_its_roll_up_broke_off(
    lone_mongo: MongoServer, prefix: str, writes: int
) -> None:
    clock = VirtualClock(NOW)
    async with open_mongo_records(lone_mongo.address(), clock, prefix=prefix) as store:
        await store.save([result(attempt=tried("https://shop.example/1", at=NOW))])
        # Given a minute that a writer has rolled up in part.
        clock.advance(600)
        lone_mongo.fail("update", ".figures", skip=writes)
        with pytest.raises(BackendUnavailable):
            await store.save([result(attempt=tried("https://shop.example/2", at=clock.now()))])
        assert not lone_mongo.faults_left

        # When an attempt of that minute comes late, and the minutes are rolled up again.
        clock.advance(600)
        await store.save([result(attempt=tried("https://shop.example/3", at=NOW))])
        clock.advance(600)
        await store.save([result(attempt=tried("https://shop.example/4", at=clock.now()))])

        found = {one.start: one.figures.outcomes()["done"] for one in await store.figures(0, clock.now() + 1)}
        assert found[NOW // 60 * 60] == 2
        assert sum(found.values()) == 4 == (await store.total_figures()).outcomes()["done"]


async def test_what_comes_late_for_hundreds_of_minutes_does_not_gather_in_one_document(
    lone_mongo: MongoServer, prefix: str
) -> None:
    """As when a spool of many hours is emptied: a document has a largest size."""
    clock = VirtualClock(NOW)
    async with open_mongo_records(lone_mongo.address(), clock, prefix=prefix) as store:
        most = 0
        for batch in range(10):
            late = [NOW - 60 * (64 * batch + n) for n in range(64)]
            await store.save([result(attempt=tried(f"https://shop.example/{at}", at=at)) for at in late])
            documents = lone_mongo.documents(f"{store.database.address.prefix}.figures")
            most = max(most, *(len(one["minutes"]) for one in documents if one["_id"] == "now"))
        found = await store.figures(0, clock.now() + 1)
        assert sum(one.figures.outcomes()["done"] for one in found) == 640
        assert most <= figures.MOST_OPEN + 4 * 64

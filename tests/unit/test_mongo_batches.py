"""Records in MongoDB without transactions: batches that are cut short anywhere, and writers that meet."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from gossamer.backends.mongo.records import MongoRecords, open_mongo_records
from gossamer.errors import BackendUnavailable
from gossamer.model.record import ItemSchema, PageResult, Tally
from gossamer.store.contract import RecordQuery, Records, Retirement, VisitQuery

from ..conformance.stores import NOW, all_of, book, result, tried, visit
from ..services.mongo_server import MongoServer
from .test_mongo_records import CLOCK, LISTING
from .test_mongo_records import prefix as prefix
from .test_mongo_records import store as store

# -- batches that are cut short ------------------------------------------------------------------------------------

COUNTED = Tally(spider="books", day="2027-01-15", type="Book", field="*", checked=3, filled=2)
SHAPE = ItemSchema(id="5f", type="Book", definition="{}")
EARLIER = [
    visit(LISTING, book("changes", v=1), book("same"), book("lost"), book("back"), at=NOW),
    visit(f"{LISTING}/2", book("other"), at=NOW),
]
BATCH = [
    msgspec.structs.replace(
        visit(LISTING, book("changes", v=2), book("same"), book("new"), at=NOW + 20, job="books-2"),
        quality=(COUNTED,),
        schemas=(SHAPE,),
    ),
    visit(LISTING, book("changes", v=3), book("same"), book("new"), at=NOW + 30, job="books-2"),
    result(attempt=tried(f"{LISTING}/2", at=NOW + 30, job="books-2", outcome="unchanged", status=304)),
]


async def everything(store: Records) -> dict[str, Any]:
    """All that anybody can see of the store."""
    records = await all_of(store)
    pages = {facts.url: facts.fingerprint async for facts in store.archived(VisitQuery())}
    return {
        "records": records,
        "history": {one.key: await store.history(one.type, one.site, one.key) for one in records},
        "facts": await store.facts(list(pages.values())),
        "attempts": [await store.attempts(page) for page in pages.values()],
        "visits": [await store.visits(page) for page in pages.values()],
        "jobs": {job: [r.key for r in await all_of(store, RecordQuery(job=job))] for job in ("books-1", "books-2")},
        "differences": sorted([one async for one in store.differences("books-1", "books-2")], key=lambda one: one.key),
        "scores": await store.scores(),
        "schemas": await store.schemas(),
    }


async def after(server: MongoServer, prefix: str, *, cut: int | None, done: bool = False) -> tuple[dict[str, Any], int]:
    """What is there when the batch is stored, in a second go if the first was cut at a write; and how many writes."""
    async with open_mongo_records(server.address(), CLOCK, prefix=prefix) as store:
        await store.save(EARLIER)
        await store.retire(Retirement(job="books-1b", spider="books", at=NOW + 10, earlier=["books-1"]))
        server.asked.clear()
        if cut is None:
            await store.save(BATCH)
        else:
            server.fail_write(cut, done=done)
            with pytest.raises(BackendUnavailable):
                await store.save(BATCH)
            assert server.faults_left == 0
        writes = sum(name in ("insert", "update", "findAndModify") for name, _ in server.asked)
    async with open_mongo_records(server.address(), CLOCK, prefix=prefix) as store:
        if cut is not None:  # another one takes over
            await store.save(BATCH)
        await store.retire(Retirement(job="books-2", spider="books", at=NOW + 40))
        return await everything(store), writes


@pytest.mark.long
async def test_a_batch_that_is_cut_short_anywhere_and_stored_again_leaves_what_it_leaves(
    lone_mongo: MongoServer,
) -> None:
    whole, writes = await after(lone_mongo, "whole", cut=None)
    assert [(one.key, one.version, one.gone_since) for one in whole["records"]] == [
        ("changes", 4, None), ("same", 3, None), ("lost", 2, NOW + 10), ("back", 2, NOW + 10), ("other", 3, None),
        ("new", 1, None),
    ]  # fmt: skip
    assert whole["scores"] == [COUNTED]
    assert writes > 15
    for cut in range(writes):
        for done in (False, True):
            assert (await after(lone_mongo, f"cut_{cut}_{done}".lower(), cut=cut, done=done))[0] == whole, (cut, done)


async def test_a_page_is_not_known_before_everything_is_there_that_it_gave(
    lone_mongo: MongoServer, store: MongoRecords
) -> None:
    """Else it would be asked for only if it has changed, and what it gave would never be stored."""
    page = EARLIER[0].attempt.fingerprint
    cut = 0
    lone_mongo.fail_write(cut, done=True)
    while await breaks_off(store, EARLIER) and await store.facts([page]) == {}:
        cut += 1
        lone_mongo.fail_write(cut, done=True)
    assert [name for name, _ in lone_mongo.asked if name in ("insert", "update", "findAndModify")][-1] == "update"
    assert lone_mongo.asked[-2][1].endswith(".pages")  # then the facts were asked for
    assert await store.count(RecordQuery(job="books-1")) == 5
    assert len(await store.attempts(page)) == len(await store.visits(page)) == 1


async def breaks_off(store: Records, batch: list[PageResult]) -> bool:
    try:
        await store.save(batch)
    except BackendUnavailable:
        return True
    return False


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("cut", range(4))  # history, ticket, records, ticket
async def test_what_is_gone_is_gone_once_wherever_it_breaks_off(
    lone_mongo: MongoServer, store: MongoRecords, cut: int, done: bool
) -> None:
    await store.save([visit(LISTING, book("a"), book("b"), at=NOW), visit(LISTING, book("b"), at=NOW + 1, job="j-2")])
    lone_mongo.fail_write(cut, done=done)
    with pytest.raises(BackendUnavailable):
        await store.retire(Retirement(job="j-2", spider="books", at=NOW + 5))
    assert lone_mongo.faults_left == 0
    await store.retire(Retirement(job="j-2", spider="books", at=NOW + 5))
    history = await store.history("Book", "shop.example", "a")
    assert [(version.version, version.gone) for version in history] == [(1, False), (2, True)]
    assert [record.key for record in await all_of(store, RecordQuery(gone=True))] == ["a"]


async def test_a_record_is_not_gone_because_its_sighting_was_lost(lone_mongo: MongoServer, store: MongoRecords) -> None:
    await store.save([visit(LISTING, book("a"), at=NOW)])
    lone_mongo.fail("update", ".sightings")
    with pytest.raises(BackendUnavailable):
        await store.save([visit(LISTING, book("a"), at=NOW + 1, job="books-2")])
    assert await store.retire(Retirement(job="books-2", spider="books", at=NOW + 5, earlier=["books-1"])) == 0


async def test_a_copy_of_the_present_version_is_not_told(lone_mongo: MongoServer, store: MongoRecords) -> None:
    await store.save([result(book("a", v=1))])
    lone_mongo.fail("update", ".records")
    with pytest.raises(BackendUnavailable):
        await store.save([result(book("a", v=2, at=NOW + 1))])
    assert len(lone_mongo.documents(f"{store.database.address.prefix}.superseded")) == 1
    assert [version.version for version in await store.history("Book", "shop.example", "a")] == [1]


# -- writers that meet ---------------------------------------------------------------------------------------------

ADDRESS = ("Book", "shop.example", "a")
SEEN_AGAIN = result(attempt=tried(LISTING, at=NOW + 7, job="j-2", outcome="unchanged", status=304))


async def story(store: Records) -> Any:
    return await all_of(store), await store.history(*ADDRESS)


BY_VISITS = [
    (visit(LISTING, book("a", v=5), at=NOW + 5, job="j-1"), visit(LISTING, book("a", v=9), at=NOW + 9, job="j-2")),
    (visit(LISTING, book("a", v=9), at=NOW + 9, job="j-1"), visit(LISTING, book("a", v=5), at=NOW + 5, job="j-2")),
    (visit(LISTING, book("a", v=1), at=NOW + 5, job="j-1"), visit(LISTING, book("a", v=3), at=NOW + 3, job="j-2")),
    (visit(LISTING, book("a", v=1), at=NOW + 3, job="j-1"), visit(LISTING, book("a", v=5), at=NOW + 5, job="j-2")),
    (visit(LISTING, book("a", v=1), at=NOW + 3, job="j-1"), visit(LISTING, book("a", v=1), at=NOW + 5, job="j-2")),
    (visit(LISTING, book("a", v=5), at=NOW + 5, job="j-1"), visit(LISTING, book("a", v=1), at=NOW + 7, job="j-2")),
]
BY_ANSWERS = [
    (visit(LISTING, book("a", v=5), at=NOW + 5, job="j-1"), SEEN_AGAIN),
    (SEEN_AGAIN, visit(LISTING, book("a", v=5), at=NOW + 5, job="j-1")),
    (SEEN_AGAIN, visit(LISTING, book("a", v=9), at=NOW + 9, job="j-1")),
]


async def meet(server: MongoServer, known: list[PageResult], slow: PageResult, fast: PageResult, command: str) -> None:
    """One is held up between looking and writing, another one writes meanwhile: as if it had come after that one."""
    async with open_mongo_records(server.address(), CLOCK, prefix="one_by_one") as store:
        for results in (known, [fast], [slow]):
            await store.save(results)
        expected = await story(store)
    async with (
        open_mongo_records(server.address(), CLOCK, prefix="at_once") as one,
        open_mongo_records(server.address(), CLOCK, prefix="at_once") as two,
    ):
        await one.save(known)
        gate = server.gate(command, "at_once.records")
        saving = asyncio.create_task(one.save([slow]))
        await gate.reached()
        await two.save([fast])
        gate.open()
        await saving
        assert await story(one) == expected
        assert [await two.count(RecordQuery(job=job)) for job in ("j-1", "j-2")] == [1, 1]


@pytest.mark.parametrize(("slow", "fast"), BY_VISITS)
async def test_who_adds_late_decides_by_what_is_there_then(
    lone_mongo: MongoServer, slow: PageResult, fast: PageResult
) -> None:
    await meet(lone_mongo, [], slow, fast, "insert")


@pytest.mark.parametrize(("slow", "fast"), BY_VISITS + BY_ANSWERS)
async def test_who_changes_late_decides_by_what_is_there_then(
    lone_mongo: MongoServer, slow: PageResult, fast: PageResult
) -> None:
    await meet(lone_mongo, [visit(LISTING, book("a", v=1), at=NOW)], slow, fast, "update")


async def test_what_is_seen_while_it_is_called_gone_is_not_gone(lone_mongo: MongoServer, store: MongoRecords) -> None:
    await store.save([visit(LISTING, book("a"), at=NOW), visit(LISTING, at=NOW + 1, job="j-2")])
    gate = lone_mongo.gate("update", ".records")
    retiring = asyncio.create_task(store.retire(Retirement(job="j-2", spider="books", at=NOW + 5)))
    await gate.reached()
    await store.save([visit(LISTING, book("a"), at=NOW + 3, job="j-3")])
    gate.open()
    assert await retiring == 0
    assert [(version.version, version.gone) for version in await store.history(*ADDRESS)] == [(1, False)]

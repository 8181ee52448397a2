"""What every record store promises about following changes: marks, differences of jobs, single records, raw copies."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from gossamer.backends.records import history
from gossamer.errors import Misconfigured
from gossamer.model.record import PageResult, StoredRecord
from gossamer.model.run_records import RunRecords
from gossamer.store.contract import Difference, RecordQuery, Records, Retirement, VisitQuery

from .stores import (
    EVERYTHING,
    NOW,
    OpenRecords,
    all_of,
    book,
    fingerprint_of,
    page_of,
    reparse,
    result,
    tried,
    visit,
)
from .stores import backend as backend
from .stores import clock as clock
from .stores import open_records as open_records
from .stores import record_store as record_store

LISTING = "https://shop.example/list"


async def keys_of(store: Records, query: RecordQuery) -> list[str]:
    keys = [record.key for record in await all_of(store, query)]
    assert await store.count(query) == len(keys)
    return keys


# -- marks ---------------------------------------------------------------------------------------------------------


async def test_between_two_marks_lies_what_changed_and_nothing_else(record_store: Records) -> None:
    empty = await record_store.cursor()
    await record_store.save([visit(LISTING, *(book(key, price=1) for key in "abcde"), at=NOW)])
    first = await record_store.cursor()
    assert await keys_of(record_store, RecordQuery(after=empty, upto=first)) == ["a", "b", "c", "d", "e"]
    assert await keys_of(record_store, RecordQuery(upto=first)) == ["a", "b", "c", "d", "e"]
    assert await keys_of(record_store, RecordQuery(after=first)) == []

    await record_store.save(
        [visit(LISTING, book("a", price=1), book("d", price=2), book("b", price=2), book("f"), at=NOW + 1, job="b-2")]
    )
    second = await record_store.cursor()
    await record_store.retire(Retirement(job="b-2", spider="books", at=NOW + 2))
    await record_store.save([visit(LISTING, book("f", price=3), at=NOW + 3, job="b-3")])
    third = await record_store.cursor()

    # f has changed once more since: it is told with the last change, and only there.
    assert await keys_of(record_store, RecordQuery(after=first, upto=second)) == ["b", "d"]
    assert await keys_of(record_store, RecordQuery(after=second, upto=third)) == ["c", "e", "f"]
    assert await keys_of(record_store, RecordQuery(after=first, upto=third)) == ["b", "c", "d", "e", "f"]
    assert await keys_of(record_store, RecordQuery(upto=first)) == ["a"]
    assert await keys_of(record_store, RecordQuery(after=third)) == []


async def test_what_is_only_checked_is_no_change(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("a"), at=NOW)])
    mark = await record_store.cursor()
    await record_store.save([visit(LISTING, book("a"), at=NOW + 1)])
    await record_store.save([result(attempt=tried(LISTING, at=NOW + 2, outcome="unchanged", status=304))])
    await record_store.save([reparse(LISTING, book("a"), visit=NOW + 1, at=NOW + 3)])
    assert await keys_of(record_store, RecordQuery(after=mark)) == []


async def test_what_comes_back_is_a_change(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("a"), at=NOW), visit(LISTING + "2", book("b"), at=NOW)])
    await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 1, earlier=["books-1"]))
    mark = await record_store.cursor()
    await record_store.save(
        [
            visit(LISTING, book("a"), at=NOW + 2),
            result(attempt=tried(LISTING + "2", at=NOW + 2, outcome="unchanged", status=304)),
        ]
    )
    assert await keys_of(record_store, RecordQuery(after=mark, gone=False)) == ["a", "b"]


async def test_marks_go_together_with_other_conditions(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("a"), book("b"), at=NOW)])
    mark = await record_store.cursor()
    film = msgspec.structs.replace(book("a"), type="Film")
    await record_store.save([visit(LISTING, book("a", price=2), film, book("c"), at=NOW + 1, job="books-2")])
    await record_store.save([visit(LISTING, book("d"), at=NOW + 2, job="books-3")])
    now = await record_store.cursor()
    for query, keys in (
        (RecordQuery(after=mark, type="Film"), ["a"]),
        (RecordQuery(after=mark, upto=now, job="books-2", type="Book"), ["a", "c"]),
        (RecordQuery(after=mark, key="a"), ["a", "a"]),
        (RecordQuery(after=mark, since=NOW + 2), ["d"]),
        (RecordQuery(upto=mark), ["b"]),
        (RecordQuery(upto=mark, job="books-1"), ["b"]),
        (RecordQuery(after=mark, gone=True), []),
    ):
        assert await keys_of(record_store, query) == keys, query


async def test_a_mark_is_good_after_reopening(open_records: OpenRecords) -> None:
    async with open_records() as store:
        await store.save([visit(LISTING, book("a"), at=NOW)])
        mark = await store.cursor()
    async with open_records() as store:
        assert await keys_of(store, RecordQuery(after=mark)) == []
        await store.save([visit(LISTING, book("b"), at=NOW + 1)])
        assert await keys_of(store, RecordQuery(after=mark)) == ["b"]


async def test_a_mark_of_another_store_is_refused(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("a"), at=NOW)])
    mark = await record_store.cursor()
    kind = mark.partition(":")[0]
    for text in (
        "",
        "57",
        "elsewhere:1",
        kind,
        f"{kind}:0000:1",
        f"{mark}x",
        f"{mark}000",
        f"{mark} ",
        f"{kind}:{mark}",
    ):
        for query in (RecordQuery(after=text), RecordQuery(upto=text)):
            with pytest.raises(Misconfigured, match="cursor belongs to another record store"):
                await all_of(record_store, query)
            with pytest.raises(Misconfigured, match="without a cursor"):
                await record_store.count(query)


async def test_followers_of_several_writers_are_told_every_change_once(open_records: OpenRecords) -> None:
    """Two writers at work; a third one follows, from mark to mark."""
    told: list[StoredRecord] = []
    done = asyncio.Event()

    async def write(store: Records, name: str) -> None:
        for n in range(15):
            await store.save([visit(f"{LISTING}/{name}/{n}", book(f"{name}{n}"), at=NOW + n)])

    async def follow(store: Records) -> None:
        mark = await store.cursor()
        while True:
            ended = done.is_set()
            now = await store.cursor()
            told.extend(await all_of(store, RecordQuery(after=mark, upto=now)))
            mark = now
            if ended:
                return

    async with open_records() as one, open_records() as two, open_records() as three:
        follower = asyncio.create_task(follow(three))
        await asyncio.gather(write(one, "x"), write(two, "y"))
        done.set()
        await follower
        assert sorted(record.key for record in told) == sorted(record.key for record in await all_of(three))
        assert len(told) == 30


async def test_many_changes_come_in_order(record_store: Records) -> None:
    mark = await record_store.cursor()
    keys = [f"{n}" for n in range(700)]
    await record_store.save([result(book(key)) for key in keys])
    await record_store.save([result(book(key, price=9, at=NOW + 1)) for key in reversed(keys[::2])])
    assert await keys_of(record_store, RecordQuery(after=mark)) == keys


# -- single records ------------------------------------------------------------------------------------------------


async def test_a_key_is_found_in_every_type_and_site(record_store: Records) -> None:
    one = book("same")
    others = [msgspec.structs.replace(one, type="Film"), msgspec.structs.replace(one, site="other.example")]
    await record_store.save([result(book("a"), one, book("z"), *others)])
    assert await record_store.count(RecordQuery(key="same")) == 3
    [film] = await all_of(record_store, RecordQuery(key="same", type="Film"))
    assert film.type == "Film"
    assert await keys_of(record_store, RecordQuery(key="same", site="other.example", job="books-1")) == ["same"]
    for nothing in (RecordQuery(key="none"), RecordQuery(key="same", job="books-9"), RecordQuery(key="")):
        assert await keys_of(record_store, nothing) == []


async def test_a_key_of_any_length_and_letter_is_found(record_store: Records) -> None:
    keys = ["x" * 30_000, "a\0b", "half \ud800", "é"]
    await record_store.save([result(book(key)) for key in keys])
    for key in keys:
        assert await record_store.count(RecordQuery(key=key)) == 1


async def test_the_present_data_of_some_records(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("a", price=1), book("b", price=1), book("half \ud800"), at=NOW)])
    await record_store.save([visit(LISTING, book("a", price=2), at=NOW + 1, job="books-2")])
    await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 2))
    known = [("Book", "shop.example", key) for key in ("a", "b", "half \ud800")]
    assert await record_store.latest([*known, ("Book", "shop.example", "none")]) == {
        known[0]: '{"price":2}',
        known[1]: '{"price":1}',  # gone, and still what it was last
        known[2]: '{"title":"Emma"}',
    }
    assert await record_store.latest([]) == {}


async def test_the_present_data_of_many_records(record_store: Records) -> None:
    await record_store.save([result(book(f"{n}", n=n)) for n in range(600)])
    known = await record_store.latest([("Book", "shop.example", f"{n}") for n in range(0, 700, 2)])
    assert known == {("Book", "shop.example", f"{n}"): f'{{"n":{n}}}' for n in range(0, 600, 2)}


# -- differences ---------------------------------------------------------------------------------------------------


async def differences(store: Records, before: str, after: str) -> dict[str, tuple[str, str | None, str | None]]:
    found = [one async for one in store.differences(before, after)]
    assert len({one.key for one in found}) == len(found)
    return {one.key: (one.kind, one.before, one.after) for one in found}


async def test_two_jobs_are_compared_by_what_each_saw(record_store: Records) -> None:
    first = [book(key, price=1) for key in ("same", "changed", "left", "back")]
    await record_store.save([visit(LISTING, *first, at=NOW)])
    between = [book("same", price=1), book("changed", price=2), book("back", price=2)]
    await record_store.save([visit(LISTING, *between, at=NOW + 1, job="books-2")])
    last = [book("same", price=1), book("changed", price=3), book("back", price=1), book("new", price=1)]
    await record_store.save([visit(LISTING, *last, at=NOW + 2, job="books-3")])
    one, two, three = '{"price":1}', '{"price":2}', '{"price":3}'

    assert await differences(record_store, "books-1", "books-3") == {
        "changed": ("changed", one, three),
        "left": ("unseen", one, None),
        "new": ("added", None, one),
    }
    assert await differences(record_store, "books-2", "books-1") == {
        "changed": ("changed", two, one),
        "left": ("added", None, one),
        "back": ("changed", two, one),
    }
    assert await differences(record_store, "books-2", "books-2") == {}
    assert await differences(record_store, "books-8", "books-9") == {}


async def test_a_difference_names_the_record_whole(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("a", price=1), at=NOW)])
    assert [one async for one in record_store.differences("books-0", "books-1")] == [
        Difference(
            kind="added", type="Book", site="shop.example", key="a", url="https://shop.example/a", after='{"price":1}'
        )
    ]


async def test_the_last_version_that_a_job_saw_counts(record_store: Records) -> None:
    for second in range(3):
        await record_store.save([visit(LISTING, book("a", price=second), at=NOW + second)])
    await record_store.save([visit(LISTING, book("a", price=9), at=NOW + 5, job="books-2")])
    expected = {"a": ("changed", '{"price":2}', '{"price":9}')}
    assert await differences(record_store, "books-1", "books-2") == expected
    await record_store.save([visit(LISTING, book("a", price=0), at=NOW)])  # once more, and too late
    assert await differences(record_store, "books-1", "books-2") == expected


async def test_the_version_that_a_job_saw_last_is_known(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("a", price=1), at=NOW)])
    await record_store.save([visit(LISTING, book("a", price=1), at=NOW + 1, job="books-2")])
    await record_store.save([visit(LISTING, book("a", price=3), at=NOW + 2, job="books-3")])
    identity = ("Book", "shop.example", "a")
    seen = [await record_store.seen_version(f"books-{number}", *identity) for number in range(5)]
    assert seen == [0, 1, 1, 2, 0]
    assert await record_store.seen_version("books-1", "Book", "shop.example", "b") == 0


async def test_what_was_seen_and_not_kept_is_no_claim(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("a", price=2), at=NOW + 5, job="books-2")])
    await record_store.save([visit(LISTING, book("a", price=1), at=NOW)])
    assert await differences(record_store, "books-1", "books-2") == {}
    stream = record_store.differences("books-0", "books-1", (NOW - 1, NOW + 1))
    assert [(one.key, one.kind, one.before, one.after) async for one in stream] == [("a", "added", None, None)]


async def test_a_job_that_found_a_page_unchanged_saw_what_it_gave(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("a", price=1), at=NOW)])
    await record_store.save([result(attempt=tried(LISTING, at=NOW + 1, job="books-2", outcome="unchanged"))])
    await record_store.save([visit(LISTING, book("a", price=3), at=NOW + 2, job="books-3")])
    assert await differences(record_store, "books-1", "books-2") == {}
    assert await differences(record_store, "books-2", "books-3") == {"a": ("changed", '{"price":1}', '{"price":3}')}


async def test_a_reparse_is_compared_like_a_crawl(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("a", price=1), book("b"), at=NOW)])
    await record_store.save([reparse(LISTING, book("a", price=2), book("c"), visit=NOW, at=NOW + 9)])
    found = await differences(record_store, "books-1", "reparse-1")
    assert {key: one[0] for key, one in found.items()} == {"a": "changed", "b": "unseen", "c": "added"}
    await record_store.retire(Retirement(job="reparse-1", spider="books", at=NOW + 9))
    found = await differences(record_store, "books-1", "reparse-1")
    assert {key: one[0] for key, one in found.items()} == {"a": "changed", "b": "gone", "c": "added"}


async def test_what_failed_is_not_seen_and_what_was_marked_is_gone_and_may_come_back(record_store: Records) -> None:
    pages = {key: f"{LISTING}/{key}" for key in ("stays", "fails", "leaves", "returns")}

    async def run(number: int, **prices: int) -> RunRecords:
        """Each page that has a price gives its record; the others answer with an error."""
        job, at = f"books-{number}", NOW + 10 * number
        for key, url in pages.items():
            if key in prices:
                await record_store.save([visit(url, book(key, price=prices[key]), at=at, job=job)])
            else:
                status = 500 if key == "fails" else 404
                failed = tried(url, at=at, job=job, outcome="dead", status=status, reason=f"http-{status}")
                await record_store.save([result(attempt=failed)])
        earlier = [f"books-{n}" for n in range(number)]
        retirement = Retirement(job=job, spider="books", at=at + 1, of=earlier)
        await record_store.retire(retirement)
        found = await record_store.run_records(job)
        return msgspec.structs.replace(found, unseen=await record_store.unseen(retirement))

    async def between(one: int, other: int) -> dict[str, tuple[str, str]]:
        ends = (NOW + 10 * one + 2, NOW + 10 * other + 2)
        stream = record_store.differences(f"books-{one}", f"books-{other}", ends)
        return {found.key: (found.kind, found.reason) async for found in stream}

    # given a run that saw all, and one in which a page fails and two are away
    assert await run(0, stays=1, fails=1, leaves=1, returns=1) == RunRecords(new=4, unseen=0)
    assert await run(1, stays=2) == RunRecords(changed=1, gone=2, unseen=1)
    assert await between(0, 1) == {
        "stays": ("changed", ""), "fails": ("unseen", "http-500"), "leaves": ("gone", ""), "returns": ("gone", ""),
    }  # fmt: skip

    # when one comes back and the failed page answers again, with what it had before
    assert await run(2, stays=2, fails=1, returns=7) == RunRecords(unchanged=2, back=1, unseen=0)
    assert await between(1, 2) == {"fails": ("again", ""), "returns": ("back", "")}
    assert await between(0, 2) == {"stays": ("changed", ""), "leaves": ("gone", ""), "returns": ("changed", "")}

    # then a page that was away in one run is gone in the next, though neither saw it
    assert await run(3, stays=2, returns=7) == RunRecords(unchanged=2, unseen=1)
    pages["fails"] = f"{LISTING}/moved"
    await record_store.retire(Retirement(job="books-4", spider="books", at=NOW + 41, earlier=["books-2"]))
    assert await between(3, 4) == {"fails": ("gone", ""), "stays": ("gone", ""), "returns": ("gone", "")}
    # and what an earlier run did stays what it was
    assert await between(0, 1) == {
        "stays": ("changed", ""), "fails": ("unseen", "http-500"), "leaves": ("gone", ""), "returns": ("gone", ""),
    }  # fmt: skip
    assert await record_store.run_records("books-1") == RunRecords(changed=1, gone=2)
    assert await record_store.run_records("books-4") == RunRecords(gone=3)


async def test_what_a_job_marks_as_gone_and_finds_itself_is_what_it_was_before(record_store: Records) -> None:
    # given a job that found two pages away
    pages = {key: f"{LISTING}/{key}" for key in ("same", "other")}
    await record_store.save([visit(url, book(key, price=1), at=NOW) for key, url in pages.items()])
    for url in pages.values():
        away = tried(url, at=NOW + 1, job="books-2", outcome="dead", status=404, reason="http-404")
        await record_store.save([result(attempt=away)])
    await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 2, of=["books-1"]))
    assert await record_store.run_records("books-2") == RunRecords(gone=2)

    # when it tries them again and finds one as it was, and one that has changed
    await record_store.save([visit(pages["same"], book("same", price=1), at=NOW + 3, job="books-2")])
    await record_store.save([visit(pages["other"], book("other", price=2), at=NOW + 3, job="books-2")])

    # then it says what the comparison with the run before says
    assert await record_store.run_records("books-2") == RunRecords(unchanged=1, changed=1)
    assert await differences(record_store, "books-1", "books-2") == {"other": ("changed", '{"price":1}', '{"price":2}')}
    assert await record_store.run_records("books-1") == RunRecords(new=2)


async def test_what_a_job_did_not_see_is_counted_in_portions(
    record_store: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given records of two spiders, of which a job sees some
    keys = [f"{n}" for n in range(11)]
    await record_store.save([visit(LISTING, *(book(key) for key in keys), at=NOW)])
    other = [msgspec.structs.replace(book(f"film-{n}"), spider="films") for n in range(3)]
    await record_store.save([visit(f"{LISTING}/films", *other, at=NOW)])
    await record_store.save([visit(LISTING, book("late"), at=NOW + 1, job="books-2")])
    await record_store.save([visit(LISTING, *(book(key) for key in keys[::3]), at=NOW + 2, job="books-3")])

    # when a statement may look at few of them
    monkeypatch.setattr(history, "RETIRED", 4)
    asked: list[tuple[Any, ...]] = []
    rows = type(record_store.sql).rows  # type: ignore[attr-defined]

    async def noted(sql: Any, text: str, *values: Any) -> Any:
        asked.append(values)
        return await rows(sql, text, *values)

    monkeypatch.setattr(type(record_store.sql), "rows", noted)  # type: ignore[attr-defined]

    async def unseen(*of: str) -> int:
        return await record_store.unseen(Retirement(job="books-3", spider="books", at=NOW + 3, of=of))

    # then each is counted once, and those that no earlier job saw are not
    assert [await unseen("books-1"), await unseen("books-2"), await unseen("books-2", "books-1")] == [7, 1, 8]
    assert await record_store.unseen(Retirement(job="books-3", spider="books", at=NOW + 3)) == 8
    ranges = [values[-2:] for values in asked if values]
    assert len(ranges) >= 4 * 4
    assert all(last - first < 4 for first, last in ranges)


async def test_a_page_that_is_unchanged_brings_back_what_was_gone(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("a"), at=NOW)])
    await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 1, earlier=["books-1"]))
    same = tried(LISTING, at=NOW + 2, job="books-3", outcome="unchanged", status=304)
    await record_store.save([result(attempt=same)])
    assert await record_store.run_records("books-3") == RunRecords(back=1)


async def test_long_jobs_are_compared_in_order(record_store: Records) -> None:
    keys = [f"{n}" for n in range(2600)]
    await record_store.save([visit(LISTING, *(book(key, v=1) for key in keys), at=NOW)])
    later = [book(key, v=1 if n % 7 else 2) for n, key in enumerate(keys) if n % 5]
    await record_store.save([visit(LISTING, *later, book("new"), at=NOW + 1, job="books-2")])
    found = [(one.key, one.kind) async for one in record_store.differences("books-1", "books-2")]
    expected = [(key, "changed" if n % 5 else "unseen") for n, key in enumerate(keys) if n % 5 == 0 or n % 7 == 0]
    assert found == [*expected, ("new", "added")]


# -- raw copies ----------------------------------------------------------------------------------------------------


async def archived(store: Records, query: VisitQuery) -> list[tuple[str, float]]:
    """In which order pages come is the store's own affair."""
    return sorted([(facts.url.rpartition("/")[2], facts.fetched_at - NOW) async for facts in store.archived(query)])


async def test_of_each_page_the_newest_copy_that_fits(record_store: Records) -> None:
    def seen(name: str, second: int, failure: str = "", **changes: str) -> PageResult:
        one = visit(f"https://shop.example/{name}", at=NOW + second, failure=failure)
        assert one.page is not None
        return msgspec.structs.replace(one, page=msgspec.structs.replace(one.page, **changes))

    await record_store.save([seen("a", 0), seen("a", 1), seen("b", 0), seen("c", 1, "quality")])
    await record_store.save([seen("a", 2, "parse", job="books-2"), seen("b", 3, "http-404", job="books-2")])
    await record_store.save([seen("e", 5, job="films-1", spider="films"), seen("d", 4, archive_ref="")])
    for query, found in (
        (VisitQuery(), [("a", 2), ("b", 0), ("c", 1), ("e", 5)]),
        (VisitQuery(spider="books"), [("a", 2), ("b", 0), ("c", 1)]),
        (VisitQuery(job="books-1"), [("a", 1), ("b", 0), ("c", 1)]),
        (VisitQuery(since=NOW + 1), [("a", 2), ("c", 1), ("e", 5)]),
        (VisitQuery(since=NOW + 2, spider="books"), [("a", 2)]),
        (VisitQuery(failures=("",)), [("a", 1), ("b", 0), ("e", 5)]),
        (VisitQuery(failures=("parse", "quality")), [("a", 2), ("c", 1)]),
        (VisitQuery(failures=("http-404",)), [("b", 3)]),
        (VisitQuery(failures=()), []),
        (VisitQuery(spider="none"), []),
    ):
        assert await archived(record_store, query) == found, query


async def test_of_a_page_that_two_spiders_visit_each_has_its_newest_copy(record_store: Records) -> None:
    def by(spider: str, name: str, second: int, failure: str = "") -> PageResult:
        job = {"books": "nightly-1", "films": "weekly-1"}[spider]  # of schedules
        one = visit(f"https://shop.example/{name}", at=NOW + second, job=job, failure=failure)
        assert one.page is not None
        return msgspec.structs.replace(one, page=msgspec.structs.replace(one.page, spider=spider))

    await record_store.save([by("books", "a", 0), by("films", "a", 1), by("books", "a", 2), by("films", "b", 3)])
    await record_store.save([by("books", "odd", 0)])  # so that a portion may end between the two copies of a page
    await record_store.save([by("books", "a", 4, "parse"), by("books", "b", 5), by("books", "b", 6)])
    # More pages than are read at a time, each with two copies that count.
    many = [by(spider, f"m{n}", second) for n in range(200) for second, spider in enumerate(("books", "films"), 7)]
    await record_store.save(many)

    found = [
        (facts.url.rpartition("/")[2], facts.fetched_at - NOW) async for facts in record_store.archived(VisitQuery())
    ]
    assert sorted(found) == sorted(
        [("a", 1), ("a", 4), ("b", 3), ("b", 6), ("odd", 0)]
        + [(f"m{n}", second) for n in range(200) for second in (7, 8)]
    )
    assert await archived(record_store, VisitQuery(failures=("",), since=NOW + 1)) == sorted(
        [("a", 1), ("a", 2), ("b", 3), ("b", 6), *((f"m{n}", second) for n in range(200) for second in (7, 8))]
    )
    assert (await archived(record_store, VisitQuery(spider="films")))[:2] == [("a", 1), ("b", 3)]


async def test_an_archived_visit_is_told_whole(record_store: Records) -> None:
    page = page_of(archive_ref="ref", body_hash=b"\1" * 16, spider="books", failure="parse", status=201)
    await record_store.save([result(page=page, attempt=tried())])
    assert [facts async for facts in record_store.archived(VisitQuery())] == [page]
    assert await record_store.visits(page.fingerprint) == [page]


async def test_archived_visits_stream_while_others_write(record_store: Records) -> None:
    urls = [f"https://shop.example/{n:03}" for n in range(600)]
    await record_store.save([visit(url, at=NOW) for url in urls])
    seen = []
    async for facts in record_store.archived(VisitQuery()):
        seen.append(facts.url)
        if len(seen) == 100:
            await record_store.save([visit(url, at=NOW + 1) for url in urls[::50]])
    assert sorted(seen) == urls
    key = fingerprint_of(urls[0])
    assert [one.fetched_at for one in await record_store.visits(key)] == [NOW, NOW + 1]
    assert await record_store.count(EVERYTHING) == 0

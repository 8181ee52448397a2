"""What every record store promises (store/contract.py)."""

from __future__ import annotations

import asyncio
import json
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.clock import VirtualClock
from gossamer.model.record import PageResult, StoredRecord
from gossamer.store.contract import RecordQuery, Records, VisitQuery
from tests.corpora import corpus
from tests.unit.test_export_round_trip import NAUGHTY

from .stores import (
    EVERYTHING,
    HOUR,
    NOW,
    RECORD_STORES,
    OpenRecords,
    all_of,
    book,
    fingerprint_of,
    page_of,
    reparse,
    result,
    tried,
)
from .stores import backend as backend
from .stores import clock as clock
from .stores import open_records as open_records
from .stores import record_store as record_store


async def test_a_new_record_is_read_back_as_it_was_saved(record_store: Records) -> None:
    saved = book("b1", title="Émile", price=12.5, tags=["a", {"b": None}])
    counts = await record_store.save([result(saved)])
    assert counts == [1]
    [read] = await all_of(record_store)
    assert read == StoredRecord(
        type="Book", site="shop.example", key="b1", url=saved.url, job="books-1", spider="books",
        data={"title": "Émile", "price": 12.5, "tags": ["a", {"b": None}]},
        first_seen=NOW, last_changed=NOW, last_checked=NOW, version=1,
    )  # fmt: skip


async def test_an_unchanged_record_is_only_marked_as_checked(record_store: Records) -> None:
    await record_store.save([result(book(price=1))])
    counts = await record_store.save([result(book(price=1, at=NOW + HOUR, job="books-2"))])
    assert counts == [0]
    [read] = await all_of(record_store)
    assert (read.version, read.job, read.first_seen, read.last_changed) == (1, "books-1", NOW, NOW)
    assert read.last_checked == NOW + HOUR
    assert len(await record_store.history("Book", "shop.example", "b1")) == 1


async def test_a_changed_record_keeps_its_history(record_store: Records) -> None:
    for hour, price in enumerate([10, 10, 12, 10]):
        await record_store.save([result(book(price=price, at=NOW + hour * HOUR, job=f"books-{hour}"))])
    [read] = await all_of(record_store)
    assert (read.version, read.data, read.job) == (3, {"price": 10}, "books-3")
    assert (read.first_seen, read.last_changed, read.last_checked) == (NOW, NOW + 3 * HOUR, NOW + 3 * HOUR)
    history = await record_store.history("Book", "shop.example", "b1")
    assert [(v.version, v.at, v.job, json.loads(v.data)["price"]) for v in history] == [
        (1, NOW, "books-0", 10),
        (2, NOW + 2 * HOUR, "books-2", 12),
        (3, NOW + 3 * HOUR, "books-3", 10),
    ]


async def test_every_version_inside_one_batch_enters_the_history(record_store: Records) -> None:
    counts = await record_store.save([result(book(price=n, at=NOW + n)) for n in (1, 2, 2, 3)])
    assert counts == [1, 1, 0, 1]
    history = await record_store.history("Book", "shop.example", "b1")
    assert [(v.version, v.at, json.loads(v.data)["price"]) for v in history] == [
        (1, NOW + 1, 1),
        (2, NOW + 2, 2),
        (3, NOW + 3, 3),
    ]


async def test_an_older_scrape_never_replaces_a_newer_one(record_store: Records) -> None:
    await record_store.save([result(book(price=2, at=NOW))])
    counts = await record_store.save([result(book(price=1, at=NOW - HOUR))])
    assert counts == [0]
    [read] = await all_of(record_store)
    assert (read.data, read.version, read.last_changed, read.last_checked) == ({"price": 2}, 1, NOW, NOW)
    assert read.first_seen == NOW - HOUR


async def test_a_scrape_older_than_the_last_check_does_not_count_either(record_store: Records) -> None:
    await record_store.save([result(book(price=1, at=NOW)), result(book(price=1, at=NOW + 2 * HOUR))])
    counts = await record_store.save([result(book(price=9, at=NOW + HOUR))])
    assert counts == [0]
    assert [record.data for record in await all_of(record_store)] == [{"price": 1}]


async def test_a_worker_with_a_clock_ahead_does_not_freeze_a_record(record_store: Records, clock: VirtualClock) -> None:
    await record_store.save([result(book(price=1, at=clock.now() + 9000 * HOUR))])
    clock.advance(HOUR)
    counts = await record_store.save([result(book(price=2, at=clock.now()))])
    assert counts == [1]
    assert [record.data for record in await all_of(record_store)] == [{"price": 2}]


async def test_a_young_version_is_protected_for_the_minimum_age(open_records: OpenRecords) -> None:
    async with open_records(min_rewrite_age=timedelta(hours=2)) as store:
        await store.save([result(book(price=1))])
        too_soon = await store.save([result(book(price=2, at=NOW + HOUR))])
        in_time = await store.save([result(book(price=3, at=NOW + 2 * HOUR))])
        assert (too_soon, in_time) == ([0], [1])
        history = await store.history("Book", "shop.example", "b1")
        assert [json.loads(version.data)["price"] for version in history] == [1, 3]


async def test_a_letter_that_is_parsed_again_is_held_back_as_its_visit_would_have_been(
    open_records: OpenRecords,
) -> None:
    url = "https://shop.example/b1"
    async with open_records(min_rewrite_age=timedelta(hours=2)) as store:
        await store.save([result(book(price=1))])
        # given visits that no parser understood, and a parser that does since then
        soon = reparse(url, book(price=2), visit=NOW + HOUR, at=NOW + 5 * HOUR)
        in_time = reparse(url, book(price=3), visit=NOW + 2 * HOUR, at=NOW + 5 * HOUR)
        # and what it makes of a visit whose record is there is a correction, whenever it comes
        corrected = reparse(url, book(price=4), visit=NOW + 2 * HOUR, at=NOW + 6 * HOUR)
        assert [await store.save([one]) for one in (soon, in_time, corrected)] == [[0], [1], [1]]
        history = await store.history("Book", "shop.example", "b1")
        assert [json.loads(version.data)["price"] for version in history] == [1, 3, 4]


def version(price: int, at: float, *, key: str = "b1", url: str = "https://shop.example/b1") -> PageResult:
    """A visit of a page that gives one record."""
    page = page_of(url, at=at, etag=f'"{price}"', body_hash=bytes([price]), parser="p1")
    return result(book(key, price=price, at=at), page=page, attempt=tried(url, at=at))


async def parser_of(store: Records, url: str = "https://shop.example/b1") -> str:
    return (await store.facts([fingerprint_of(url)]))[fingerprint_of(url)].parser


async def test_a_page_whose_record_was_held_back_is_requested_in_full_the_next_time(open_records: OpenRecords) -> None:
    async with open_records(min_rewrite_age=timedelta(hours=2)) as store:
        await store.save([version(1, NOW)])
        assert await parser_of(store) == "p1"
        for _ in range(2):  # the same batch again changes nothing
            await store.save([version(2, NOW + HOUR)])
            assert await parser_of(store) == ""
        await store.save([version(2, NOW + 2 * HOUR)])
        assert await parser_of(store) == "p1"
        assert [record.data for record in await all_of(store)] == [{"price": 2}]


async def test_only_the_pages_whose_records_were_held_back_are_requested_in_full(open_records: OpenRecords) -> None:
    other = "https://shop.example/b2"
    async with open_records(min_rewrite_age=timedelta(hours=2)) as store:
        await store.save([version(1, NOW), version(1, NOW, key="b2", url=other)])
        await store.save([version(2, NOW + HOUR), version(1, NOW + HOUR, key="b2", url=other)])
        assert (await parser_of(store), await parser_of(store, other)) == ("", "p1")


async def test_a_page_whose_record_lost_against_a_newer_one_of_another_page_is_requested_in_full(
    record_store: Records,
) -> None:
    other = "https://shop.example/list"
    await record_store.save([version(2, NOW + HOUR)])
    await record_store.save([version(1, NOW, url=other)])
    assert (await parser_of(record_store), await parser_of(record_store, other)) == ("p1", "")


async def test_a_copy_that_was_parsed_again_in_vain_is_requested_in_full(record_store: Records) -> None:
    url = "https://shop.example/b1"
    seen = version(1, NOW)
    page = msgspec.structs.replace(seen.page, archive_ref="r1")
    await record_store.save([msgspec.structs.replace(seen, page=page)])
    # another page gives the record anew, so that what the archived copy says is out of date
    await record_store.save([version(5, NOW + 2 * HOUR, url="https://shop.example/list")])
    old = msgspec.structs.replace(book(price=3), reparsed_at=NOW + HOUR)
    again = tried(url, at=NOW + 3 * HOUR, job="reparse-1", outcome="reparsed")
    await record_store.save([result(old, page=msgspec.structs.replace(page, parser="p2"), attempt=again)])
    assert await parser_of(record_store) == ""
    assert [record.data for record in await all_of(record_store)] == [{"price": 5}]


async def test_a_worker_with_a_clock_ahead_does_not_freeze_the_facts_of_a_page(
    record_store: Records, clock: VirtualClock
) -> None:
    await record_store.save([version(1, clock.now() + 9000 * HOUR)])
    clock.advance(HOUR)
    await record_store.save([version(2, clock.now())])
    [facts] = (await record_store.facts([fingerprint_of("https://shop.example/b1")])).values()
    assert (facts.etag, [record.data for record in await all_of(record_store)]) == ('"2"', [{"price": 2}])


async def test_a_page_that_gives_one_key_twice_means_the_last(record_store: Records) -> None:
    for hour in range(3):
        visit = result(book(price=1, at=NOW + hour * HOUR), book(price=2, at=NOW + hour * HOUR))
        assert await record_store.save([visit]) == [1 if hour == 0 else 0]
    [read] = await all_of(record_store)
    assert (read.data, read.version) == ({"price": 2}, 1)


async def test_identity_is_type_site_and_key(record_store: Records) -> None:
    first = book("same")
    others = [msgspec.structs.replace(first, type="Film"), msgspec.structs.replace(first, site="other.example")]
    assert await record_store.save([result(first, *others)]) == [3]
    assert await record_store.count(EVERYTHING) == 3


async def test_each_result_gets_its_own_count(record_store: Records) -> None:
    await record_store.save([result(book("known"))])
    batch = [
        result(book("known", at=NOW + 1), book("a", at=NOW + 1)),
        result(attempt=tried(at=NOW + 1)),
        result(book("known", price=9, at=NOW + 2), book("b"), book("c")),
    ]
    assert await record_store.save(batch) == [1, 0, 3]


async def test_saving_nothing_is_fine(record_store: Records) -> None:
    assert await record_store.save([]) == []


async def test_attempts_are_listed_oldest_first_and_whole(record_store: Records) -> None:
    later = tried(at=NOW + 5, attempt=1, outcome="done", proxy="gate:1", cost=2.5)
    earlier = tried(at=NOW, outcome="retry", status=None, reason="timeout", error="no answer in 30 s")
    elsewhere = tried("https://shop.example/other")
    await record_store.save([result(attempt=attempt) for attempt in (later, earlier, elsewhere)])
    assert await record_store.attempts(fingerprint_of("https://shop.example/b1")) == [earlier, later]
    assert await record_store.attempts(b"\0" * 16) == []


async def test_attempts_and_visits_of_one_job_are_those_that_it_made(record_store: Records) -> None:
    pages = [
        page_of(at=NOW + number, archive_ref=f"of {job}", job=job) for number, job in enumerate(("one-1", "two-2"))
    ]
    for page in pages:
        await record_store.save([result(page=page, attempt=tried(at=page.fetched_at, job=page.job))])
    name = pages[0].fingerprint

    for page in pages:
        assert [one.job for one in await record_store.attempts(name, page.job)] == [page.job]
        assert [one.archive_ref for one in await record_store.visits(name, page.job)] == [page.archive_ref]
    assert await record_store.attempts(name, "three-3") == await record_store.visits(name, "three-3") == []


async def test_two_workers_that_try_at_the_same_instant_are_two_attempts(record_store: Records) -> None:
    await record_store.save([result(attempt=tried(worker=worker)) for worker in ("one", "two", "one")])
    attempts = await record_store.attempts(fingerprint_of("https://shop.example/b1"))
    assert sorted(attempt.worker for attempt in attempts) == ["one", "two"]


async def test_page_facts_are_the_newest_and_come_back_whole(record_store: Records) -> None:
    full = page_of(
        at=NOW + 2, etag='"x"', last_modified="Sat, 01 Jan 2028 00:00:00 GMT", archive_ref="ref", body_hash=b"\1" * 16,
        parser="books:1", links=b'[{"url":"https://shop.example/"}]',
    )  # fmt: skip
    older = page_of(at=NOW + 1, etag='"old"')
    for page in (older, full, older):
        await record_store.save([result(page=page, attempt=tried(at=page.fetched_at))])
    unknown = b"\0" * 16
    assert await record_store.facts([full.fingerprint, unknown]) == {full.fingerprint: full}
    assert await record_store.facts([]) == {}


async def test_newest_facts_win_inside_a_batch_too(record_store: Records) -> None:
    pages = [page_of(at=NOW + at, etag=f'"{at}"') for at in (1, 3, 2)]
    await record_store.save([result(page=page, attempt=tried(at=page.fetched_at)) for page in pages])
    facts = await record_store.facts([pages[0].fingerprint])
    assert facts[pages[0].fingerprint].etag == '"3"'


async def test_a_url_that_was_only_tried_has_no_facts(record_store: Records) -> None:
    await record_store.save([result(attempt=tried(outcome="retry"))])
    page = page_of(at=NOW + 1)
    assert await record_store.facts([page.fingerprint]) == {}
    await record_store.save([result(page=page, attempt=tried(at=NOW + 1))])
    assert await record_store.facts([page.fingerprint]) == {page.fingerprint: page}


async def test_facts_may_belong_to_another_url_than_the_attempt(record_store: Records) -> None:
    page = page_of("https://shop.example/elsewhere")
    await record_store.save([result(page=page, attempt=tried())])
    assert await record_store.facts([page.fingerprint, tried().fingerprint]) == {page.fingerprint: page}


async def test_every_archived_visit_is_listed_once(record_store: Records) -> None:
    first = page_of(at=NOW, archive_ref="one", body_hash=b"1")
    failed = page_of(at=NOW + 1, archive_ref="", status=500)
    not_modified = page_of(at=NOW + 2, archive_ref="one", status=304)
    second = page_of(at=NOW + 3, archive_ref="two", body_hash=b"2", etag='"2"')
    for page in (second, first, failed, not_modified, first):
        await record_store.save([result(page=page, attempt=tried(at=page.fetched_at))])
    visits = await record_store.visits(first.fingerprint)
    assert [(v.fetched_at, v.archive_ref, v.status, v.body_hash, v.url, v.job) for v in visits] == [
        (NOW, "one", 200, b"1", first.url, "books-1"),
        (NOW + 3, "two", 200, b"2", first.url, "books-1"),
    ]


async def test_a_job_finds_every_record_it_saw(record_store: Records) -> None:
    await record_store.save([result(book(key, at=NOW)) for key in ("same", "changed", "gone")])
    second = [book("same", at=NOW + 1, job="books-2"), book("changed", price=9, at=NOW + 1, job="books-2")]
    await record_store.save([result(*second)])
    await record_store.save([result(book("changed", price=7, at=NOW, job="books-0"))])  # late, but it was seen
    found = {job: [r.key for r in await all_of(record_store, RecordQuery(job=job))] for job in ("books-1", "books-2")}
    assert found == {"books-1": ["same", "changed", "gone"], "books-2": ["same", "changed"]}
    assert await record_store.count(RecordQuery(job="books-1")) == 3
    assert [r.key for r in await all_of(record_store, RecordQuery(job="books-0"))] == ["changed"]
    assert await record_store.count(RecordQuery(job="unheard-of")) == 0


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        (RecordQuery(spider="films"), ["c"]),
        (RecordQuery(type="Film"), ["c"]),
        (RecordQuery(site="other.example"), ["b"]),
        (RecordQuery(since=NOW + 1), ["b", "c"]),
        (RecordQuery(until=NOW + 1), ["a"]),
        (RecordQuery(since=NOW + 1, until=NOW + 2), ["b"]),
        (RecordQuery(type="Book", site="shop.example"), ["a"]),
        (RecordQuery(job="books-1", type="Film"), ["c"]),
        (RecordQuery(type="Nothing"), []),
    ],
)
async def test_a_query_restricts_what_is_read(record_store: Records, query: RecordQuery, keys: list[str]) -> None:
    await record_store.save(
        [
            result(book("a", at=NOW)),
            result(msgspec.structs.replace(book("b", at=NOW + 1), site="other.example")),
            result(msgspec.structs.replace(book("c", at=NOW + 2), type="Film", spider="films")),
        ]
    )
    assert [record.key for record in await all_of(record_store, query)] == keys
    assert await record_store.count(query) == len(keys)


@pytest.mark.parametrize("newest", [False, True])
async def test_records_are_read_page_by_page_in_either_order(record_store: Records, newest: bool) -> None:
    keys = [f"b{n:03}" for n in range(300)]
    jobs = {"all": keys, "odd": keys[1::2]}
    for job, seen in jobs.items():
        await record_store.save([result(book(key, job=job)) for key in seen])
    for query, wanted in (
        (RecordQuery(newest=newest), keys),
        (RecordQuery(newest=newest, job="odd"), jobs["odd"]),
        (RecordQuery(newest=newest, key="b007"), ["b007"]),
    ):
        read: list[str] = []
        beyond: int | None = None
        while page := await some(record_store, msgspec.structs.replace(query, beyond=beyond), 70):
            read += [one.key for one in page]
            beyond = page[-1].number
        assert read == (wanted[::-1] if newest else wanted)
        assert await record_store.count(msgspec.structs.replace(query, beyond=beyond)) == len(wanted)


async def some(store: Records, query: RecordQuery, count: int) -> list[StoredRecord]:
    found = []
    async for record in store.records(query):
        found.append(record)
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("query", [EVERYTHING, RecordQuery(job="books-1"), RecordQuery(type="Book")])
async def test_streaming_goes_on_while_others_write(record_store: Records, query: RecordQuery) -> None:
    total = 700
    await record_store.save([result(book(f"{n}", n=n)) for n in range(total)])
    seen = []
    async for record in record_store.records(query):
        seen.append(int(record.key))
        if len(seen) % 200 == 0:  # another worker rewrites what was read and what is still to come
            await record_store.save([result(book(f"{n}", n=-n, at=NOW + len(seen))) for n in range(0, total, 7)])
    assert seen == list(range(total))


async def test_what_was_saved_is_there_after_reopening(open_records: OpenRecords) -> None:
    async with open_records() as store:
        await store.save([result(book(price=1), page=page_of(archive_ref="one"))])
    async with open_records() as store:
        assert await store.save([result(book("b2")), result(book(price=2, at=NOW + 1))]) == [1, 1]
        assert [record.key for record in await all_of(store)] == ["b1", "b2"]
        assert len(await store.visits(fingerprint_of("https://shop.example/b1"))) == 1
        assert len(await store.history("Book", "shop.example", "b1")) == 2


async def test_two_processes_write_side_by_side(open_records: OpenRecords) -> None:
    async with open_records() as one, open_records() as two:
        saves = [
            store.save([result(book(f"{n}", n=n, at=NOW + turn), attempt=tried(worker=f"w{turn}", at=NOW + n))])
            for n in range(20)
            for turn, store in enumerate((one, two))
        ]
        counts = await asyncio.gather(*saves)
        assert sum(count for [count] in counts) == 20
        assert await one.count(EVERYTHING) == await two.count(EVERYTHING) == 20


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "\ud800", "x\udc80y", "\ud83d\ude00", "\ufffe", "é" * 5000])
async def test_odd_characters_in_every_field_are_stored(record_store: Records, text: str) -> None:
    mended = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    odd = msgspec.structs.replace(
        book(), type=text, site=text, key=text, url=text, job=text, spider=text, data=json.dumps({"title": text})
    )
    attempt = tried(url=text, job=text, site=text, worker=text, outcome=text, reason=text, error=text, proxy=text)
    page = page_of(url=text, job=text, etag=text, last_modified=text, archive_ref=text, parser=text)
    innocent = book("innocent")
    saves = [record_store.save([r]) for r in (result(odd, attempt=attempt, page=page), result(innocent))]
    assert await asyncio.gather(*saves) == [[1], [1]]
    by_spider = {record.spider: record for record in await all_of(record_store)}
    read = by_spider[mended]
    assert (read.type, read.site, read.key, read.url, read.job) == (mended,) * 5
    assert read.data == {"title": mended}
    assert by_spider["books"].key == "innocent"
    assert (await record_store.attempts(attempt.fingerprint))[0].error == mended
    assert (await record_store.facts([page.fingerprint]))[page.fingerprint].etag == mended
    assert len(await record_store.history(text, text, text)) == 1
    assert await record_store.count(RecordQuery(job=text)) == 1


@pytest.mark.parametrize("of_the_corpus", [False, True])
async def test_naughty_strings_come_back_unchanged(record_store: Records, of_the_corpus: bool) -> None:
    strings = [text for text in NAUGHTY if len(text) < 1_000]  # a key is short
    if of_the_corpus:
        strings = list(dict.fromkeys(json.loads(corpus("blns", "blns.json").read_text(encoding="utf-8"))))
        assert len(strings) > 400
    counts = await record_store.save([result(book(text, text=text, **{text: text})) for text in strings])
    assert counts == [1] * len(strings)
    assert [(r.key, r.data) for r in await all_of(record_store)] == [(t, {"text": t, t: t}) for t in strings]


# Properties: three keys, few instants and few values, so that every kind of collision turns up.
Sight = tuple[str, int, int, str]
sights = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.integers(0, 2), st.sampled_from(["j-1", "j-2"])),
    min_size=1,
    max_size=12,
)


def visit(sight: Sight) -> PageResult:
    key, instant, value, job = sight
    at, url = NOW + instant, f"https://shop.example/{key}"
    page = page_of(url, at=at, body_hash=bytes([value]), archive_ref=f"r{value}")
    return result(book(key, value=value, at=at, job=job), page=page, attempt=tried(url, at=at, job=job))


async def end_state(store: Records, *, with_story: bool) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for record in await all_of(store):
        state[record.key] = (record.data, record.first_seen, record.last_checked)
        page = fingerprint_of(record.url)
        facts = (await store.facts([page]))[page]
        state[f"page {record.key}"] = (facts.fetched_at, facts.body_hash)
        state[f"attempts {record.key}"] = sorted(msgspec.json.encode(a) for a in await store.attempts(page))
        if with_story:
            state[f"story {record.key}"] = (record, await store.history("Book", "shop.example", record.key))
            state[f"visits {record.key}"] = await store.visits(page)
    for job in ("j-1", "j-2"):
        state[job] = sorted([r.key for r in await all_of(store, RecordQuery(job=job))])
    return state


async def saved_in(backend: str, batches: list[list[Sight]], *, with_story: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        async with RECORD_STORES[backend](Path(folder), VirtualClock(NOW + HOUR), None) as store:
            for batch in batches:
                await store.save([visit(sight) for sight in batch])
            return await end_state(store, with_story=with_story)


A_FEW_OR_MANY = pytest.mark.parametrize("examples", [6, pytest.param(50, marks=pytest.mark.long)])


@A_FEW_OR_MANY
def test_the_order_of_arrival_does_not_matter(backend: str, examples: int) -> None:
    @settings(max_examples=examples)
    @given(seen=sights, cut=st.integers(0, 12))
    def holds(seen: list[Sight], cut: int) -> None:
        forward = asyncio.run(saved_in(backend, [seen[:cut], seen[cut:]], with_story=False))
        backward = asyncio.run(saved_in(backend, [[sight] for sight in reversed(seen)], with_story=False))
        assert forward == backward

    holds()


@A_FEW_OR_MANY
def test_saving_again_changes_nothing(backend: str, examples: int) -> None:
    @settings(max_examples=examples)
    @given(seen=sights, cut=st.integers(0, 12))
    def holds(seen: list[Sight], cut: int) -> None:
        once = asyncio.run(saved_in(backend, [seen], with_story=True))
        again = asyncio.run(saved_in(backend, [seen, seen[cut:], seen], with_story=True))
        assert once == again

    holds()


async def test_an_unchanged_page_confirms_the_records_it_gave(record_store: Records) -> None:
    given = [book("b1", price=1), book("b2", price=2)]
    await record_store.save([result(*given), result(book("other", url="https://shop.example/other"))])
    again = msgspec.structs.replace(
        result(*given).attempt, at=NOW + HOUR, job="books-2", outcome="unchanged", status=304
    )
    counts = await record_store.save([PageResult(attempt=again)])

    assert counts == [0]
    seen = await all_of(record_store, RecordQuery(job="books-2"))
    assert [(record.key, record.last_checked, record.last_changed) for record in seen] == [
        ("b1", NOW + HOUR, NOW),
        ("b2", NOW + HOUR, NOW),
    ]
    assert len(await all_of(record_store, RecordQuery(job="books-1"))) == 3


@pytest.mark.parametrize(
    "text",
    [
        '{"b": 1,  "a":2, "aa": 3}',
        '{"a":1,"a":2}',
        '{"price":12.50,"big":1e3}',
        '{"n":' + "9" * 400 + "}",
        '{"n":1e400,"m":-1e-400}',
        '{"n":1e200000}',
        '{"nul":"a\\u0000b"}',
        '{"half":"\\ud800","pair":"\\ud83d\\ude00"}',
        '{"\\u0000":"key"}',
        '{"n":NaN}',
        '{"reserved":"\ufdd0 \ufdd00 \ufdd01"}',
        '{"deep":' + "[" * 900 + "]" * 900 + "}",
        '{"long":"' + "é" * 200_000 + '"}',
    ],
    ids=lambda text: text[:20],
)
async def test_the_text_of_a_record_comes_back_to_the_letter(record_store: Records, text: str) -> None:
    odd = msgspec.structs.replace(book("odd"), data=text, content_hash=b"odd")
    later = msgspec.structs.replace(book("odd", at=NOW + 1), data=text + " ", content_hash=b"newer")
    assert await record_store.save([result(odd), result(book("even"))]) == [1, 1]
    assert await record_store.save([result(later), result(odd)]) == [1, 0]
    history = await record_store.history("Book", "shop.example", "odd")
    assert [version.data for version in history] == [text, text + " "]
    assert [record.key for record in await all_of(record_store)] == ["odd", "even"]


async def test_a_key_may_be_as_long_as_it_likes(record_store: Records) -> None:
    keys = ["".join(f"{n * n:x}-" for n in range(start, start + 3000)) for start in (0, 1)]
    assert await record_store.save([result(book(key)) for key in keys]) == [1, 1]
    assert await record_store.save([result(book(key)) for key in keys]) == [0, 0]
    assert [record.key for record in await all_of(record_store)] == keys


@pytest.mark.parametrize("same_pages", [True, False], ids=["from the same pages", "from pages of their own"])
async def test_writers_that_meet_in_opposite_order_lose_nothing(open_records: OpenRecords, same_pages: bool) -> None:
    """Both rewrite the same records again and again, one forwards and one backwards: whoever is newer wins."""
    keys, rounds = [f"k{n:02}" for n in range(30)], 8

    def page_url(key: str, turn: int) -> str:
        return f"https://shop.example/{key}" if same_pages else f"https://shop.example/{turn}/{key}"

    def sight(key: str, instant: int) -> PageResult:
        at, turn = NOW + instant, instant % 2
        url = page_url(key, turn)
        page = page_of(url, at=at, archive_ref=f"r{instant}")
        return result(book(key, value=instant, at=at, job=f"j-{turn}"), page=page, attempt=tried(url, at=at))

    async def write(store: Records, turn: int) -> None:
        order = keys if turn == 0 else keys[::-1]
        for number in range(rounds):
            await store.save([sight(key, 2 * number + turn) for key in order])

    async with open_records() as one, open_records() as two:
        await asyncio.gather(write(one, 0), write(two, 1))
        await one.save([sight(key, 0) for key in keys])  # far too late
        records = await all_of(two)
        assert sorted(record.key for record in records) == keys
        for record in records:
            assert (record.data, record.first_seen, record.last_checked) == ({"value": 15}, NOW, NOW + 15)
            history = await one.history("Book", "shop.example", record.key)
            assert [version.version for version in history] == list(range(1, record.version + 1))
            times = [version.at for version in history]
            assert times == sorted(set(times))
            assert [json.loads(version.data)["value"] for version in history] == [int(at - NOW) for at in times]
            pages = {fingerprint_of(page_url(record.key, turn)) for turn in (0, 1)}
            assert sum([len(await one.attempts(page)) for page in pages]) == 2 * rounds
            assert sum([len(await one.visits(page)) for page in pages]) == 2 * rounds
        assert await one.count(RecordQuery(job="j-0")) == await two.count(RecordQuery(job="j-1")) == len(keys)


async def test_pruning_forgets_old_attempts_and_replaced_visits_only(
    record_store: Records, clock: VirtualClock
) -> None:
    now = clock.now()
    ages = {"old": 48 * HOUR, "middle": 25 * HOUR, "fresh": HOUR}
    for name, age in ages.items():
        at = now - age
        page = page_of(at=at, archive_ref=name)
        await record_store.save([result(book(price=age, at=at), page=page, attempt=tried(at=at))])
    lonely = page_of("https://shop.example/lonely", at=now - 48 * HOUR, archive_ref="lonely")
    await record_store.save([result(page=lonely, attempt=tried(lonely.url, at=lonely.fetched_at))])

    gone = await record_store.prune(timedelta(days=1))

    fingerprint = fingerprint_of("https://shop.example/b1")
    assert gone == 5  # three attempts and two visits; the lonely page has no newer copy
    assert [attempt.at for attempt in await record_store.attempts(fingerprint)] == [now - HOUR]
    assert [visit.archive_ref for visit in await record_store.visits(fingerprint)] == ["fresh"]
    assert await record_store.attempts(lonely.fingerprint) == []
    assert [visit.archive_ref for visit in await record_store.visits(lonely.fingerprint)] == ["lonely"]
    assert len(await record_store.facts([fingerprint, lonely.fingerprint])) == 2
    assert len(await record_store.history("Book", "shop.example", "b1")) == 3
    assert [record.first_seen for record in await all_of(record_store)] == [now - 48 * HOUR]
    assert await record_store.prune(timedelta(days=1)) == 0


async def test_a_copy_that_later_visits_found_unchanged_is_not_pruned(
    record_store: Records, clock: VirtualClock
) -> None:
    now = clock.now()
    first = page_of(at=now - 48 * HOUR, archive_ref="copy")
    same = page_of(at=now - HOUR, archive_ref="copy", status=304)
    for page in (first, same):
        await record_store.save([result(page=page, attempt=tried(at=page.fetched_at))])

    assert await record_store.prune(timedelta(days=1)) == 1
    assert [visit.archive_ref for visit in await record_store.visits(first.fingerprint)] == ["copy"]


async def test_copies_beyond_the_newest_of_a_page_are_spare_but_for_those_that_are_needed(
    record_store: Records, clock: VirtualClock
) -> None:
    now = clock.now()
    visits = [  # (hours ago, copy, spider, failure, job)
        (50, "good by old", "old", "", "old-1"), (49, "bad by old", "old", "selector", "old-2"),
        (40, "a", "books", "", "books-1"), (30, "b", "books", "", "books-2"), (29, "c", "books", "", "books-2"),
        (20, "good", "books", "", "books-3"), (10, "d", "books", "selector", "books-4"),
        (5, "e", "books", "selector", "books-5"), (3, "f", "books", "selector", "books-6"),
    ]  # fmt: skip
    for ago, ref, spider, failure, job in visits:
        page = page_of(at=now - ago * HOUR, archive_ref=ref, spider=spider, failure=failure, job=job)
        await record_store.save([result(page=page, attempt=tried(at=page.fetched_at, job=job))])
    same = page_of(at=now - 2 * HOUR, archive_ref="f", status=304, spider="books", failure="selector", job="books-7")
    await record_store.save([result(page=same, attempt=tried(at=same.fetched_at, job="books-7"))])
    lonely = page_of("https://shop.example/lonely", at=now - 48 * HOUR, archive_ref="lonely")
    await record_store.save([result(page=lonely, attempt=tried(lonely.url, at=lonely.fetched_at))])

    async def spare(keep: int, before: float = now) -> dict[str, bool]:
        return {one.ref: one.is_last_of_job async for some in record_store.spare_copies(keep, before) for one in some}

    assert await spare(1) == {"a": True, "b": False, "c": True, "d": True, "e": True}
    assert await spare(2, now - 20 * HOUR) == {"a": True, "b": False, "c": True}
    assert await spare(9) == {}
    found = [one async for some in record_store.spare_copies(2, now) for one in some if one.ref != "d"]
    assert {one.fingerprint for one in found} == {same.fingerprint}
    await record_store.forget_copies(found)
    left = [visit.archive_ref for visit in await record_store.visits(same.fingerprint)]
    assert left == ["good by old", "bad by old", "good", "d", "e", "f"]
    assert await spare(2) == {"d": True}
    assert (await record_store.facts([same.fingerprint]))[same.fingerprint].archive_ref == "f"


async def test_what_was_tried_and_visited_keeps_its_address_and_copy_when_the_page_gets_another(
    record_store: Records,
) -> None:
    plain, spelt = "https://shop.example/b1", "https://shop.example/b1?"
    page, saved = fingerprint_of(plain), []
    for n, url in enumerate((plain, spelt, plain, plain)):
        copy = page_of(url, at=NOW + n, fingerprint=page, archive_ref=f"copy {n}", body_hash=bytes([n]) * 16)
        saved.append(result(page=copy, attempt=tried(url, at=NOW + n, fingerprint=page, worker=f"host/{n}/1")))
        await record_store.save(saved[-1:])
    await record_store.save(saved)  # once more, as after a crash

    assert await record_store.attempts(page) == [one.attempt for one in saved]
    visits = await record_store.visits(page)
    assert [(one.url, one.archive_ref, one.body_hash) for one in visits] == [
        (one.page.url, one.page.archive_ref, one.page.body_hash) for one in saved if one.page is not None
    ]
    assert [one.archive_ref async for one in record_store.archived(VisitQuery())] == ["copy 3"]


async def test_a_visit_by_a_clock_that_is_ahead_is_one_visit_however_often_it_is_stored(
    record_store: Records, clock: VirtualClock
) -> None:
    visit = version(10, clock.now() + 10 * 365 * 86_400.0)
    assert visit.page is not None
    visit = msgspec.structs.replace(visit, page=msgspec.structs.replace(visit.page, archive_ref="2027-01-31/a.zst#0+9"))

    await record_store.save([visit])
    clock.advance(60)
    await record_store.save([visit])

    assert len(await record_store.visits(visit.attempt.fingerprint)) == 1

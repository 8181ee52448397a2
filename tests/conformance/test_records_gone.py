"""What every record store promises about records that are gone, and about those that come back."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from gossamer.model.record import PageResult, StoredRecord
from gossamer.store.contract import RecordQuery, Records, Retirement

from .stores import HOUR, NOW, all_of, book, reparse, result, tried, visit
from .stores import backend as backend
from .stores import clock as clock
from .stores import open_records as open_records
from .stores import record_store as record_store

LISTING, OTHER = "https://shop.example/list", "https://shop.example/more"
IDENTITY = ("Book", "shop.example", "b1")


async def gone_keys(store: Records) -> list[str]:
    return [record.key for record in await all_of(store, RecordQuery(gone=True))]


async def the_record(store: Records, key: str = "b1") -> StoredRecord:
    [record] = await all_of(store, RecordQuery(key=key))
    return record


async def test_a_record_that_its_page_does_not_give_any_more_is_gone(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1", price=1), book("b2"), at=NOW)])
    await record_store.save([visit(LISTING, book("b2"), at=NOW + 1, job="books-2")])

    assert await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 5)) == 1

    record = await the_record(record_store)
    assert (record.gone_since, record.last_changed, record.last_checked) == (NOW + 5, NOW + 5, NOW)
    assert (record.job, record.version, record.data) == ("books-2", 2, {"price": 1})
    history = await record_store.history(*IDENTITY)
    assert [(v.version, v.at, v.job, v.data, v.gone) for v in history] == [
        (1, NOW, "books-1", '{"price":1}', False),
        (2, NOW + 5, "books-2", '{"price":1}', True),
    ]
    assert [r.key for r in await all_of(record_store, RecordQuery(gone=False))] == ["b2"]
    assert await record_store.count(RecordQuery(gone=True)) == 1
    assert await record_store.count(RecordQuery(gone=False, spider="books")) == 1


async def test_calling_it_again_changes_nothing_more(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1"), at=NOW), visit(LISTING, at=NOW + 1, job="books-2")])
    assert await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 5)) == 1
    before = await the_record(record_store)
    assert await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 9)) == 0
    assert await the_record(record_store) == before


async def test_a_job_that_did_not_look_cannot_tell(record_store: Records) -> None:
    looked: dict[str, dict[str, Any]] = {
        "done": {"outcome": "done"},
        "reparsed": {"outcome": "reparsed"},
        "no page": {"outcome": "dead", "status": 404},
        "no page for ever": {"outcome": "dead", "status": 410},
        "no answer": {"outcome": "dead", "status": 500},
        "not yet": {"outcome": "retry", "status": 200},
        "unchanged": {"outcome": "unchanged", "status": 304},
        "not parsed": {"outcome": "unparsed", "status": 200},
        "by another job": {"outcome": "done", "job": "books-3"},
        "not at all": {"outcome": "done", "url": OTHER},
    }
    for key, changes in looked.items():
        attempt = {"url": f"https://shop.example/{key}", "at": NOW + 1, "job": "books-2", **changes}
        await record_store.save([visit(f"https://shop.example/{key}", book(key), at=NOW)])
        await record_store.save([result(attempt=tried(**attempt))])

    assert await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 5)) == 4
    assert await gone_keys(record_store) == ["done", "reparsed", "no page", "no page for ever"]


async def test_only_records_of_that_spider_are_gone(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1"), at=NOW), visit(LISTING, at=NOW + 1, job="films-2")])
    assert await record_store.retire(Retirement(job="films-2", spider="films", at=NOW + 5)) == 0
    assert await gone_keys(record_store) == []


async def test_a_record_that_another_job_has_seen_since_is_not_gone(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1"), at=NOW), visit(LISTING, at=NOW + 1, job="books-2")])
    await record_store.save([visit(LISTING, book("b1"), at=NOW + 2, job="books-3")])
    assert await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 5)) == 0


async def test_a_full_crawl_looked_everywhere(record_store: Records) -> None:
    await record_store.save([visit(f"https://shop.example/{n}", book(f"b{n}"), at=NOW) for n in range(4)])
    await record_store.save([visit("https://shop.example/0", book("b0"), at=NOW + 1, job="books-2")])
    await record_store.save([visit("https://shop.example/9", book("b9"), at=NOW + 1, job="elsewhere-1")])

    assert await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 5)) == 0
    assert (
        await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 6, earlier=["books-0", "books-1"]))
        == 3
    )
    assert await gone_keys(record_store) == ["b1", "b2", "b3"]
    assert (
        await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 7, earlier=["books-0", "books-1"]))
        == 0
    )


async def test_a_full_crawl_says_nothing_of_pages_it_could_not_read_or_that_others_checked_since(
    record_store: Records,
) -> None:
    await record_store.save([visit(f"https://shop.example/{n}", book(f"b{n}"), at=NOW) for n in range(3)])
    await record_store.save([visit("https://shop.example/1", book("b1"), at=NOW + 3, job="books-3")])
    refused = tried("https://shop.example/2", at=NOW + 4, job="books-2", outcome="dropped", status=None)
    await record_store.save([PageResult(attempt=refused)])

    assert (
        await record_store.retire(
            Retirement(job="books-2", spider="books", at=NOW + 6, earlier=["books-1"], began=NOW + 2)
        )
        == 1
    )
    assert await gone_keys(record_store) == ["b0"]


async def test_a_full_crawl_misses_the_records_of_a_page_that_leads_elsewhere_now(record_store: Records) -> None:
    """A shop sends visitors of a ware that it has no more to the shelf."""
    old, shelf = "https://shop.example/1", "https://shop.example/shelf"
    await record_store.save([visit(old, book("b1"), at=NOW)])
    refused = tried(old, at=NOW + 1, job="books-2", outcome="retry", status=503)
    moved = tried(old, at=NOW + 2, job="books-2", outcome="redirected", status=301)
    await record_store.save([PageResult(attempt=refused), PageResult(attempt=moved)])
    await record_store.save([visit(shelf, at=NOW + 3, job="books-2")])

    assert await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 5)) == 0
    assert await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 5, earlier=["books-1"])) == 1
    assert await gone_keys(record_store) == ["b1"]

    await record_store.save([result(attempt=tried(old, at=NOW + 9, job="books-3", outcome="unchanged", status=304))])
    assert await gone_keys(record_store) == []


async def test_a_job_stands_only_for_records_that_one_of_its_own_runs_saw(record_store: Records) -> None:
    """The same spider with another argument gives other records, sometimes from the same page."""
    await record_store.save([visit(LISTING, book("b1"), at=NOW, job="shoes-1")])
    await record_store.save([visit(LISTING, book("b2"), at=NOW + 1, job="hats-1")])
    await record_store.save([visit("https://shop.example/3", book("b3"), at=NOW + 1, job="hats-1")])
    await record_store.save([visit(LISTING, book("b4"), at=NOW + 2, job="hats-2")])

    earlier = ["hats-1"]
    hats = Retirement(job="hats-2", spider="books", at=NOW + 5, of=earlier, earlier=earlier)
    assert await record_store.retire(hats) == 2

    assert await gone_keys(record_store) == ["b2", "b3"]
    assert await record_store.retire(Retirement(job="hats-2", spider="books", at=NOW + 6, of=[])) == 0


async def test_a_record_that_is_seen_again_is_back(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1", price=1), book("b2", price=1), at=NOW)])
    await record_store.save([visit(LISTING, at=NOW + 1, job="books-2")])
    await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 5))

    seen = visit(LISTING, book("b1", price=1), book("b2", price=2), at=NOW + 9, job="books-3")
    assert await record_store.save([seen]) == [2]

    for key, price in (("b1", 1), ("b2", 2)):  # as it was, or changed
        record = await the_record(record_store, key)
        assert (record.gone_since, record.version, record.job, record.data) == (None, 3, "books-3", {"price": price})
        assert (record.first_seen, record.last_changed, record.last_checked) == (NOW, NOW + 9, NOW + 9)
        history = await record_store.history("Book", "shop.example", key)
        assert [(v.version, v.gone) for v in history] == [(1, False), (2, True), (3, False)]


async def test_a_visit_that_was_stored_before_it_was_gone_brings_nothing_back(record_store: Records) -> None:
    first = visit(LISTING, book("b1", price=1), at=NOW)
    await record_store.save([first, visit(LISTING, at=NOW + 1, job="books-2")])
    await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 5))
    before, story = await the_record(record_store), await record_store.history(*IDENTITY)

    assert await record_store.save([first]) == [0]
    assert await record_store.save([visit(LISTING, book("b1", price=7), at=NOW - 1)]) == [0]

    after = await the_record(record_store)
    assert (after.gone_since, after.version, after.data) == (before.gone_since, before.version, before.data)
    assert await record_store.history(*IDENTITY) == story


async def test_a_late_sight_by_the_job_itself_brings_it_back(record_store: Records) -> None:
    """Its result waited elsewhere while the job was ended: what it saw is newer than what was known before."""
    await record_store.save([visit(LISTING, book("b1"), at=NOW), visit(LISTING, at=NOW + 1, job="books-2")])
    await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 5))
    await record_store.save([visit(OTHER, book("b1"), at=NOW + 2, job="books-2")])
    record = await the_record(record_store)
    assert (record.gone_since, record.version, record.last_checked) == (None, 3, NOW + 2)
    times = [version.at for version in await record_store.history(*IDENTITY)]
    assert times == sorted(times)


async def test_an_unchanged_page_brings_back_what_it_gave(record_store: Records) -> None:
    """It was gone because a full crawl did not reach its page."""
    await record_store.save([visit(LISTING, book("b1", price=1), book("b2"), at=NOW)])
    await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 5, earlier=["books-1"]))
    assert await gone_keys(record_store) == ["b1", "b2"]

    again = result(attempt=tried(LISTING, at=NOW + 9, job="books-3", outcome="unchanged", status=304))
    for _ in range(2):
        await record_store.save([again])
        record = await the_record(record_store)
        assert (record.gone_since, record.version, record.job, record.data) == (None, 3, "books-3", {"price": 1})
        assert (record.last_changed, record.last_checked) == (NOW + 9, NOW + 9)
    assert await gone_keys(record_store) == []
    assert await record_store.count(RecordQuery(job="books-3")) == 2
    assert [v.gone for v in await record_store.history(*IDENTITY)] == [False, True, False]


async def test_an_unchanged_page_does_not_bring_back_what_it_had_lost(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1"), book("b2"), at=NOW)])
    await record_store.save([visit(LISTING, book("b2"), at=NOW + 1, job="books-2")])
    await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 5))
    await record_store.save(
        [result(attempt=tried(LISTING, at=NOW + 9, job="books-3", outcome="unchanged", status=304))]
    )
    assert await gone_keys(record_store) == ["b1"]
    assert [r.key for r in await all_of(record_store, RecordQuery(job="books-3"))] == ["b2"]


async def test_an_unchanged_page_speaks_only_for_what_it_gave_when_it_was_read_last(record_store: Records) -> None:
    """b1 was gone, and b2 was still there, when the page was read without the two of them."""
    await record_store.save([visit(LISTING, book("b1"), at=NOW)])
    await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 2, earlier=["books-1"]))
    await record_store.save([visit(LISTING, book("b2"), book("b3"), at=NOW + 3, job="books-3")])
    await record_store.save([visit(LISTING, book("b3"), at=NOW + 5, job="books-4")])

    answer = result(attempt=tried(LISTING, at=NOW + 9, job="books-5", outcome="unchanged", status=304))
    for _ in range(2):
        await record_store.save([answer])
        assert await gone_keys(record_store) == ["b1"]
        assert [r.key for r in await all_of(record_store, RecordQuery(job="books-5"))] == ["b3"]
        checked = {r.key: r.last_checked for r in await all_of(record_store, RecordQuery())}
        assert checked == {"b1": NOW, "b2": NOW + 3, "b3": NOW + 9}

    await record_store.retire(Retirement(job="books-5", spider="books", at=NOW + 10))
    assert await gone_keys(record_store) == ["b1", "b2"]


async def test_an_old_unchanged_answer_brings_nothing_back(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1"), at=NOW)])
    answer = result(attempt=tried(LISTING, at=NOW + 1, job="books-2", outcome="unchanged", status=304))
    await record_store.save([answer])
    await record_store.retire(Retirement(job="books-3", spider="books", at=NOW + 5, earlier=["books-1"]))
    await record_store.save([answer])
    assert await gone_keys(record_store) == ["b1"]


async def test_many_records_are_gone_in_one_call(record_store: Records) -> None:
    keys = [f"k{n:04}" for n in range(1200)]
    await record_store.save([visit(LISTING, *map(book, keys), at=NOW)])
    await record_store.save([visit(LISTING, *map(book, keys[::3]), at=NOW + 1, job="books-2")])
    assert await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + HOUR)) == 800
    assert await gone_keys(record_store) == [key for n, key in enumerate(keys) if n % 3]


# -- reparse -------------------------------------------------------------------------------------------------------


async def test_a_reparse_replaces_what_was_made_of_the_visit(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1", price=1), at=NOW)])

    again = reparse(LISTING, book("b1", price=2), book("b2"), visit=NOW, at=NOW + HOUR)
    assert await record_store.save([again]) == [2]
    assert await record_store.save([again]) == [0]

    record, new = await the_record(record_store), await the_record(record_store, "b2")
    assert (record.data, record.version, record.job) == ({"price": 2}, 2, "reparse-1")
    assert (record.first_seen, record.last_changed, record.last_checked) == (NOW, NOW + HOUR, NOW)
    assert (new.version, new.first_seen, new.last_changed, new.last_checked) == (1, NOW, NOW + HOUR, NOW)
    assert [(v.at, v.job) for v in await record_store.history(*IDENTITY)] == [
        (NOW, "books-1"),
        (NOW + HOUR, "reparse-1"),
    ]


async def test_a_reparse_that_finds_the_same_changes_nothing(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1", price=1), at=NOW)])
    before = await the_record(record_store)
    assert await record_store.save([reparse(LISTING, book("b1", price=1), visit=NOW, at=NOW + HOUR)]) == [0]
    assert await the_record(record_store) == before
    assert await record_store.count(RecordQuery(job="reparse-1")) == 1


async def test_a_reparse_wins_though_the_page_was_found_unchanged_since(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1", price=1), at=NOW)])
    await record_store.save([result(attempt=tried(LISTING, at=NOW + 9, outcome="unchanged", status=304))])
    assert await record_store.save([reparse(LISTING, book("b1", price=2), visit=NOW, at=NOW + HOUR)]) == [1]
    record = await the_record(record_store)
    assert (record.data, record.last_changed, record.last_checked) == ({"price": 2}, NOW + HOUR, NOW + 9)


async def test_a_reparse_loses_against_a_newer_visit(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1", price=1), book("b2", price=1), at=NOW)])
    await record_store.save([visit(LISTING, book("b1", price=2), book("b3"), at=NOW + 5, job="books-2")])
    await record_store.save([visit(OTHER, book("b2", price=2), at=NOW + 6, job="books-2")])

    old = reparse(LISTING, book("b1", price=7), book("b2", price=7), visit=NOW, at=NOW + HOUR)
    assert await record_store.save([old]) == [0]

    assert (await the_record(record_store)).data == {"price": 2}
    assert (await the_record(record_store, "b2")).data == {"price": 2}
    # What the newer copy gave is not missing because the older one did not give it.
    assert await record_store.retire(Retirement(job="reparse-1", spider="books", at=NOW + 2 * HOUR)) == 0


async def test_what_another_spider_visited_since_does_not_stand_against_a_reparse(record_store: Records) -> None:
    film = replace(book("f1"), type="Film", spider="films")
    newer = visit(LISTING, film, at=NOW + 5, job="films-1")
    assert newer.page is not None
    newer = replace(newer, page=replace(newer.page, spider="films"))
    await record_store.save([visit(LISTING, book("b1", price=1), book("b2"), at=NOW), newer])

    assert await record_store.save([reparse(LISTING, book("b1", price=7), visit=NOW, at=NOW + HOUR)]) == [1]

    assert await record_store.retire(Retirement(job="reparse-1", spider="books", at=NOW + 2 * HOUR)) == 1
    assert await gone_keys(record_store) == ["b2"]


async def test_a_reparse_loses_against_a_newer_visit_of_another_page(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1", price=1), at=NOW)])
    await record_store.save([visit(OTHER, book("b1", price=2), at=NOW + 5)])
    assert await record_store.save([reparse(LISTING, book("b1", price=7), visit=NOW, at=NOW + HOUR)]) == [0]
    assert await record_store.save([reparse(OTHER, book("b1", price=3), visit=NOW + 5, at=NOW + HOUR)]) == [1]
    assert (await the_record(record_store)).data == {"price": 3}


async def test_an_old_copy_does_not_bring_back_what_a_newer_one_had_lost(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1"), at=NOW), visit(LISTING, at=NOW + 5, job="books-2")])
    await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 6))
    assert await record_store.save([reparse(LISTING, book("b1"), visit=NOW, at=NOW + HOUR)]) == [0]
    assert await gone_keys(record_store) == ["b1"]


async def test_a_visit_after_the_reparsed_one_wins_whenever_it_arrives(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1", price=1), at=NOW)])
    await record_store.save([reparse(LISTING, book("b1", price=2), visit=NOW, at=NOW + HOUR)])
    assert await record_store.save([visit(LISTING, book("b1", price=3), at=NOW + 5, job="books-2")]) == [1]
    record = await the_record(record_store)
    assert (record.data, record.last_checked) == ({"price": 3}, NOW + 5)
    times = [version.at for version in await record_store.history(*IDENTITY)]
    assert times == sorted(times)


async def test_the_visit_itself_saved_again_does_not_undo_its_reparse(record_store: Records) -> None:
    """Whichever of the contents has the greater hash."""
    for n in range(4):
        url, key = f"https://shop.example/{n}", f"b{n}"
        first = visit(url, book(key, price=n), at=NOW)
        older = reparse(url, book(key, price=n + 20), visit=NOW, at=NOW + HOUR)
        mended = reparse(url, book(key, price=n + 10), visit=NOW, at=NOW + 2 * HOUR, job="reparse-2")
        for one in (first, older, mended):
            assert await record_store.save([one]) == [1]
        for repeated in (first, older):
            assert await record_store.save([repeated]) == [0]
            record = await the_record(record_store, key)
            assert (record.data, record.version) == ({"price": n + 10}, 3)


async def test_what_a_reparse_does_not_find_is_gone_and_a_better_one_brings_it_back(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1"), book("b2"), at=NOW)])
    bad = reparse(LISTING, book("b2"), visit=NOW, at=NOW + HOUR)
    await record_store.save([bad])
    assert await record_store.retire(Retirement(job="reparse-1", spider="books", at=NOW + HOUR)) == 1
    assert await gone_keys(record_store) == ["b1"]

    good = reparse(LISTING, book("b1"), book("b2"), visit=NOW, at=NOW + 2 * HOUR, job="reparse-2")
    assert await record_store.save([good]) == [1]
    assert await gone_keys(record_store) == []
    assert await record_store.retire(Retirement(job="reparse-2", spider="books", at=NOW + 2 * HOUR)) == 0


async def test_a_reparse_of_the_last_good_copy_does_not_bring_back_what_is_gone_since(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1"), at=NOW)])
    await record_store.save([result(attempt=tried(LISTING, at=NOW + 5, job="books-2", outcome="dead", status=404))])
    assert await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 6)) == 1
    assert await record_store.save([reparse(LISTING, book("b1", price=9), visit=NOW, at=NOW + HOUR)]) == [0]
    assert await gone_keys(record_store) == ["b1"]


async def test_a_reparse_of_a_newer_visit_brings_back_what_its_parser_had_overlooked(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1", price=1), at=NOW), visit(LISTING, at=NOW + 5, job="books-2")])
    await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 6))
    assert await record_store.save([reparse(LISTING, book("b1", price=2), visit=NOW + 5, at=NOW + HOUR)]) == [1]
    record = await the_record(record_store)
    assert (record.gone_since, record.data, record.last_checked) == (None, {"price": 2}, NOW + 5)


async def test_a_reparse_says_what_came_of_the_visit_now(record_store: Records) -> None:
    failed = visit(LISTING, at=NOW, outcome="dead", failure="parse")
    await record_store.save([failed])
    mended = reparse(LISTING, book("b1"), visit=NOW, at=NOW + HOUR, parser="books:2", links=b"[]", etag='"1"')
    await record_store.save([mended])
    await record_store.save([failed])  # once more, and too late

    key = mended.attempt.fingerprint
    assert [(v.failure, v.spider, v.archive_ref) for v in await record_store.visits(key)] == [
        ("", "books", f"copy of {NOW}")
    ]
    facts = (await record_store.facts([key]))[key]
    assert (facts.failure, facts.parser, facts.links, facts.fetched_at) == ("", "books:2", b"[]", NOW)


async def test_a_visit_that_cannot_be_parsed_any_more_says_so_and_its_records_stay(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1"), at=NOW)])
    failed = reparse(LISTING, visit=NOW, at=NOW + HOUR, failure="parse")
    await record_store.save([replace(failed, attempt=replace(failed.attempt, outcome="unparsed"))])
    assert await record_store.retire(Retirement(job="reparse-1", spider="books", at=NOW + HOUR)) == 0
    key = failed.attempt.fingerprint
    assert [one.failure for one in await record_store.visits(key)] == ["parse"]
    assert (await record_store.facts([key]))[key].failure == "parse"


async def test_the_facts_of_a_page_that_was_unchanged_since_name_the_new_parser(record_store: Records) -> None:
    first = visit(LISTING, book("b1"), at=NOW)
    await record_store.save([first])
    assert first.page is not None
    same = result(page=replace(first.page, fetched_at=NOW + 9), attempt=tried(LISTING, at=NOW + 9, outcome="unchanged"))
    await record_store.save([same])
    await record_store.save([reparse(LISTING, book("b1"), visit=NOW, at=NOW + HOUR, parser="books:2", links=b"[1]")])
    key = first.attempt.fingerprint
    facts = (await record_store.facts([key]))[key]
    assert (facts.parser, facts.links, facts.fetched_at) == ("books:2", b"[1]", NOW + 9)


async def test_records_that_are_named_are_gone_whatever_was_seen(record_store: Records) -> None:
    await record_store.save([visit(LISTING, book("b1"), book("b2"), at=NOW)])
    taken = Retirement(job="taken-back", spider="books", at=NOW + 5, records=[IDENTITY, ("Book", "shop.example", "no")])
    assert await record_store.retire(taken) == 1
    assert await gone_keys(record_store) == ["b1"]
    assert await record_store.retire(taken) == 0  # nothing more
    assert (await the_record(record_store)).version == 2
    await record_store.save([visit(LISTING, book("b1"), at=NOW + 9, job="books-3")])
    assert await gone_keys(record_store) == []

"""What every record store promises about the log of attempts: filtered, the newest first, page by page."""

from __future__ import annotations

import pytest

from gossamer.errors import Misconfigured
from gossamer.model.record import Attempt, PageResult
from gossamer.store.contract import AttemptQuery, Records, SiteCounts

from .stores import NOW, backend, book, clock, fingerprint_of, open_records, page_of, record_store, result, tried

__all__ = ["backend", "clock", "open_records", "record_store"]


def attempt(n: int, at: float | None = None, **fields: object) -> Attempt:
    url = f"https://shop.example/{n}"
    usual = {"job": "books-1", "site": "shop.example", "worker": "w", "attempt": 1, "outcome": "done"}
    when = NOW + n if at is None else at
    return Attempt(at=when, url=url, fingerprint=fingerprint_of(url), **{**usual, **fields})


async def put(store: Records, *attempts: Attempt) -> None:
    await store.save([PageResult(attempt=one) for one in attempts])


async def every(store: Records, query: AttemptQuery, limit: int) -> list[list[Attempt]]:
    pages, cursor = [], None
    while True:
        page = await store.attempt_log(query, limit=limit, before=cursor)
        pages.append(list(page.attempts))
        if page.next is None:
            return pages
        cursor = page.next


async def test_attempts_come_back_whole_and_the_newest_first(record_store: Records) -> None:
    one = attempt(
        1, worker="host/7/1", attempt=3, outcome="retry", route="residential", proxy="gate.example:80", status=503,
        bytes=1234, latency=1.5, cost=0.25, reason="http-503", error="busy \ud800 \0 now",
    )  # fmt: skip
    two = attempt(2)
    await put(record_store, one, two)

    page = await record_store.attempt_log(AttemptQuery(), limit=10)
    assert (page.attempts[0], page.next) == (two, None)
    assert page.attempts[1:] == tuple(await record_store.attempts(one.fingerprint))


async def test_attempts_and_visits_keep_the_address_and_the_copy_that_they_had(record_store: Records) -> None:
    # given a page that is found at another address of its own with every visit, and another page
    spellings = [f"https://shop.example/b1?from={name}" for name in ("a", "b", "c", "c")]
    name = fingerprint_of("https://shop.example/b1")
    other = result(page=page_of("https://shop.example/b2"), attempt=tried("https://shop.example/b2"))
    await record_store.save([other])
    for number, url in enumerate(spellings):
        at = NOW + number
        facts = page_of(url, at=at, fingerprint=name, archive_ref=f"ref-{number}", body_hash=bytes([number]) * 16)
        await record_store.save([result(page=facts, attempt=tried(url, at=at, fingerprint=name))])

    # then each attempt and each visit tells its own
    assert [one.url for one in await record_store.attempts(name)] == spellings
    visits = await record_store.visits(name)
    assert [(one.url, one.archive_ref) for one in visits] == [(url, f"ref-{n}") for n, url in enumerate(spellings)]
    assert [one.url for one in await record_store.attempts(other.attempt.fingerprint)] == [other.attempt.url]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
async def test_pages_hold_every_attempt_once_also_those_of_the_same_instant(record_store: Records, limit: int) -> None:
    alike = [attempt(n, at=NOW) for n in range(4)]
    await put(record_store, attempt(90, at=NOW - 1), *alike, attempt(91, at=NOW + 1), attempt(92, at=NOW + 2))

    pages = await every(record_store, AttemptQuery(), limit)

    shown = [one for page in pages for one in page]
    assert [one.at for one in shown] == [NOW + 2, NOW + 1, NOW, NOW, NOW, NOW, NOW - 1]
    assert {one.url for one in shown} == {one.url for one in [*alike, attempt(90), attempt(91), attempt(92)]}
    assert all(len(page) == limit for page in pages[:-1])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"job": "news-1"}, {3}),
        ({"site": "news.example"}, {3, 4}),
        ({"route": "browser"}, {4}),
        ({"outcome": "retry"}, {2, 4}),
        ({"reason": "timeout"}, {2}),
        ({"outcome": "retry", "site": "news.example"}, {4}),
        ({"since": NOW + 3}, {3, 4}),
        ({"until": NOW + 2}, {1, 2}),
        ({"since": NOW + 2, "until": NOW + 3}, {2, 3}),
        ({"job": "nobody"}, set()),
    ],
)
async def test_filters_are_kept_on_every_page(record_store: Records, query: dict, expected: set[int]) -> None:
    await put(
        record_store,
        attempt(1),
        attempt(2, outcome="retry", reason="timeout"),
        attempt(3, job="news-1", site="news.example"),
        attempt(4, site="news.example", outcome="retry", reason="blocked-captcha", route="browser"),
    )

    for limit in (1, 10):
        pages = await every(record_store, AttemptQuery(**query), limit)
        assert {int(one.at - NOW) for page in pages for one in page} == expected


async def test_attempts_that_are_logged_meanwhile_move_none_of_the_others(record_store: Records) -> None:
    await put(record_store, *(attempt(n) for n in range(6)))
    first = await record_store.attempt_log(AttemptQuery(), limit=3)
    await put(record_store, *(attempt(n) for n in range(10, 20)))

    second = await record_store.attempt_log(AttemptQuery(), limit=3, before=first.next)

    assert [one.at - NOW for one in (*first.attempts, *second.attempts)] == [5, 4, 3, 2, 1, 0]
    assert second.next is None


@pytest.mark.parametrize("cursor", ["", "moon", "1.5", "nan~0", "inf~0", "1~-1", "1~x", "1~99999999999"])
async def test_what_is_no_cursor_is_refused(record_store: Records, cursor: str) -> None:
    with pytest.raises(Misconfigured, match="not a cursor"):
        await record_store.attempt_log(AttemptQuery(), limit=3, before=cursor)


async def test_what_a_job_did_is_counted_by_site(record_store: Records) -> None:
    news = {"site": "news.example", "cost": 0.5, "bytes": 3_000_000_000}
    await put(
        record_store,
        attempt(1, bytes=10),
        attempt(2, outcome="retry", reason="timeout"),
        attempt(3, outcome="dead", reason="http-500"),
        attempt(4, **news),
        attempt(5, outcome="unchanged", **news),
        attempt(6, job="news-1", **news),
        attempt(7, at=NOW + 500),
        attempt(8, outcome="dead", reason="http-404"),
        attempt(9, outcome="dead", reason="http-410"),
        attempt(10, outcome="reparsed"),
    )
    await record_store.save([result(book("7", at=NOW + 7))])

    shop, news_site = await record_store.site_counts("books-1", NOW, NOW + 100, 10)

    assert shop == SiteCounts(
        site="shop.example", pages=2, dead=3, missing=2, mended=1, good=2, bad=4, records=1, bytes=40_010
    )
    assert news_site == SiteCounts(site="news.example", pages=2, good=2, bytes=6_000_000_000, credits=1.0)
    assert await record_store.site_counts("books-1", NOW, NOW + 100, 1) == [shop]
    assert await record_store.site_counts("nobody", NOW, NOW + 100, 10) == []

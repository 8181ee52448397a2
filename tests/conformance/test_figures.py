"""What every record store promises about figures: each attempt counts once, and what was counted is kept."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from gossamer.clock import VirtualClock
from gossamer.model.figures import BOUNDS, OTHER, Figures, sum_figures
from gossamer.model.record import PageResult
from gossamer.store.contract import FigurePart, Records

from .stores import HOUR, OpenRecords, book, result, tried
from .stores import backend as backend
from .stores import clock as clock
from .stores import open_records as open_records
from .stores import record_store as record_store

MINUTE = 60.0
DAY = 24 * HOUR


def page(number: int, at: float, **changes: object) -> PageResult:
    """A page that gave one item."""
    url = f"https://shop.example/{number}"
    return result(book(f"b{number}", at=at), attempt=tried(url, at=at, **changes))


async def history(store: Records, clock: VirtualClock, back: float = 40 * DAY) -> Figures:
    """All of it, less what a total does not have."""
    found = sum_figures([one.figures for one in await store.figures(clock.now() - back, clock.now() + HOUR)])
    return msgspec.structs.replace(found, jobs={})


async def test_every_outcome_is_counted_by_route_and_domain(record_store: Records, clock: VirtualClock) -> None:
    now = clock.now()
    await record_store.save(
        [
            page(1, now, latency=0.2, bytes=1000),
            page(2, now, latency=0.3, bytes=500),
            result(attempt=tried("https://shop.example/3", at=now, outcome="retry", reason="timeout", latency=200.0)),
            result(attempt=tried("https://shop.example/4", at=now, outcome="dropped", reason="robots", latency=0.0)),
            result(attempt=tried("https://b.example/", at=now, site="b.example", outcome="dead", reason="http-404",
                                 route="browser", cost=2.5, bytes=10, latency=1.0)),
            result(attempt=tried("https://b.example/a", at=now, site="b.example", outcome="released", reason="login",
                                 bytes=0, latency=0.01)),
        ]
    )  # fmt: skip

    total = await record_store.total_figures()
    assert total.pages == {
        "done": {"direct": 2},
        "retry": {"direct": 1},
        "dropped": {"direct": 1},
        "dead": {"browser": 1},
        "released": {"direct": 1},
    }
    assert total.errors == {"timeout": 1, "http-404": 1}
    assert total.credits == {"browser": 2.5}
    assert total.items == 2
    shop, other = total.domains["shop.example"], total.domains["b.example"]
    assert (shop.pages, shop.errors, shop.fetches) == ({"done": 2, "retry": 1, "dropped": 1}, 1, 3)
    assert (other.pages, other.errors, other.bytes) == ({"dead": 1, "released": 1}, 1, 10)
    direct = total.latency["direct"]
    assert direct.seconds == pytest.approx(200.51)
    assert {bound: count for bound, count in zip((*BOUNDS, None), direct.counts, strict=True) if count} == {
        0.05: 1, 0.25: 1, 0.5: 1, None: 1,
    }  # fmt: skip
    assert await history(record_store, clock) == total


async def test_figures_of_one_job_or_domain_are_read_apart(record_store: Records, clock: VirtualClock) -> None:
    now = clock.now()
    odd = 'odd "job" \u2028 <é> \\'
    await record_store.save([page(1, now, job="lamps-1", latency=0.5), page(2, now, job=odd)])
    await record_store.save([page(3, now, job="lamps-1", outcome="retry", reason="timeout", bytes=7)])
    clock.advance(5 * MINUTE)
    await record_store.save([page(4, clock.now(), job="lamps-1"), page(5, clock.now(), site="b.example")])

    async def part(**wanted: object) -> Figures:
        rows = await record_store.figures(now - HOUR, clock.now() + 1, FigurePart(**wanted))  # type: ignore[arg-type]
        return sum_figures([row.figures for row in rows])

    by_job = await part(job="lamps-1")
    assert (by_job.jobs["lamps-1"].pages, by_job.jobs["lamps-1"].errors) == ({"done": 2, "retry": 1}, 1)
    assert (list(by_job.jobs), by_job.domains, by_job.pages) == (["lamps-1"], {}, {})
    assert (await part(job=odd)).jobs[odd].pages == {"done": 1}
    assert (await part(job="lamps")).jobs == {}
    by_domain = await part(domain="b.example")
    assert (by_domain.domains["b.example"].pages, by_domain.jobs, by_domain.pages) == ({"done": 1}, {}, {})
    undivided = await part(domains=False)
    assert (undivided.domains, undivided.jobs, undivided.items) == ({}, {}, 5)
    assert undivided.pages == (await record_store.total_figures()).pages
    assert (await record_store.total_figures()).jobs == {}


async def test_an_attempt_that_is_saved_again_is_counted_once(open_records: OpenRecords, clock: VirtualClock) -> None:
    first, second = page(1, clock.now()), page(2, clock.now())
    async with open_records() as store:
        await store.save([first, first])
        await store.save([first, second])
    async with open_records() as store:
        await store.save([first])
        await store.save([first, second, page(3, clock.now())])

        assert (await store.total_figures()).outcomes() == {"done": 3}
        assert await history(store, clock) == await store.total_figures()


async def test_a_minute_belongs_to_the_span_in_which_it_begins(record_store: Records, clock: VirtualClock) -> None:
    start = clock.now() // MINUTE * MINUTE
    clock.advance(start + 3 * MINUTE - clock.now())
    await record_store.save([page(number, start + number * MINUTE) for number in range(3)])

    async def minutes(since: float, until: float) -> list[float]:
        return [(one.start - start) / MINUTE for one in await record_store.figures(since, until)]

    assert await minutes(start, start + 2 * MINUTE) == [0, 1]
    assert await minutes(start + 0.5, start + 2 * MINUTE + 0.5) == [1, 2]
    assert await minutes(start + 0.5, start + MINUTE) == []


async def test_results_that_come_late_count_in_their_own_minute(record_store: Records, clock: VirtualClock) -> None:
    began = clock.now() // MINUTE * MINUTE
    await record_store.save([page(1, began + 1), page(2, began - 5 * MINUTE)])
    clock.advance(10 * MINUTE)
    await record_store.save([page(3, began + 2), page(4, clock.now())])
    await record_store.save([page(5, began + 3)])

    found = {one.start: one.figures.outcomes()["done"] for one in await record_store.figures(0, clock.now() + 1)}
    assert found == {began - 5 * MINUTE: 1, began: 3, began + 10 * MINUTE: 1}
    between = await record_store.figures(began, began + MINUTE)
    assert [(one.start, one.span) for one in between] == [(began, 60)]


async def test_a_time_that_has_not_come_counts_as_now(record_store: Records, clock: VirtualClock) -> None:
    await record_store.save([page(1, clock.now() + 30 * DAY)])

    [only] = await record_store.figures(0, clock.now() + 60 * DAY)
    assert only.start == clock.now() // MINUTE * MINUTE


async def test_the_total_never_falls_and_history_becomes_coarser(record_store: Records, clock: VirtualClock) -> None:
    pages, seen = 0, Figures()
    for hours in (0.01, 0.02, 0.5, 3, 20, 26, 27, 60, 29 * 24, 29.5 * 24, 31 * 24, 70 * 24):
        clock.advance(hours * HOUR)
        for late in (0, 2 * MINUTE, 5 * HOUR):
            pages += 1
            await record_store.save([page(pages, clock.now() - late)])
            total = await record_store.total_figures()
            assert total.outcomes() == {"done": pages}
            assert total.items == pages
            assert total.domains["shop.example"].seconds >= seen.domains.get("shop.example", total.domains["shop.example"]).seconds - 1e-9  # noqa: E501  # fmt: skip
            seen = total

    clock.advance(HOUR)
    await record_store.save([page(pages + 1, clock.now())])
    rows = await record_store.figures(0, clock.now() + 1)
    assert sum(one.figures.items for one in rows if one.start >= clock.now() - 2 * HOUR) == 3
    assert all(one.span == 60 or one.start % 600 == 0 for one in rows)
    assert all(one.span == 600 for one in rows if one.start < clock.now() - DAY)
    assert min(one.start for one in rows) > clock.now() - 31 * DAY


async def test_minutes_become_ten_minutes_after_a_day(record_store: Records, clock: VirtualClock) -> None:
    began = clock.now() // 600 * 600
    clock.advance(began + 600 - clock.now())
    for number in range(20):
        await record_store.save([page(number, clock.now())])
        clock.advance(MINUTE)
    clock.advance(2 * HOUR)
    await record_store.save([page(100, clock.now())])
    before = await record_store.figures(began, began + HOUR)
    assert {(one.span, one.figures.items) for one in before} == {(60, 1)}
    assert len(before) == 20

    clock.advance(DAY)
    for number in range(200, 203):  # rolling up goes on with every minute that begins
        await record_store.save([page(number, clock.now())])
        clock.advance(MINUTE)

    after = await record_store.figures(began, began + HOUR)
    assert [(one.start, one.span, one.figures.items) for one in after] == [
        (began + 600, 600, 10),
        (began + 1200, 600, 10),
    ]
    assert (await record_store.total_figures()).outcomes() == {"done": 24}


async def test_writers_that_count_at_the_same_time_lose_nothing(open_records: OpenRecords, clock: VirtualClock) -> None:
    async def write(store: Records, worker: str) -> None:
        for n in range(12):
            url = f"https://{worker}.example/{n}"
            attempt = tried(url, at=clock.now(), worker=worker, site=f"{worker}.example")
            await store.save([result(attempt=attempt)])
            if n % 4 == 3:
                clock.advance(MINUTE)

    async with open_records() as one, open_records() as two:
        await asyncio.gather(write(one, "a"), write(one, "b"), write(two, "c"), write(two, "d"))
        clock.advance(HOUR)
        await two.save([result(attempt=tried("https://e.example/", at=clock.now(), site="e.example"))])

        total = await one.total_figures()
        assert total.outcomes() == {"done": 49}
        assert {name: figures.pages for name, figures in total.domains.items()} == {
            **{f"{worker}.example": {"done": 12} for worker in "abcd"},
            "e.example": {"done": 1},
        }
        assert await history(one, clock) == await history(two, clock)
        assert (await history(one, clock)).outcomes() == {"done": 49}


async def test_many_domains_are_bounded_and_no_counter_falls(open_records: OpenRecords, clock: VirtualClock) -> None:
    known: dict[str, int] = {}
    async with open_records() as store:
        for turn in range(8):
            sites = [f"s{number}.example" for number in range(turn * 40, turn * 40 + 60)]
            batch = [
                result(attempt=tried(f"https://{site}/{turn}-{n}", at=clock.now() + n / 1000, site=site))
                for place, site in enumerate(sites)
                for n in range(1 + place % 3)
            ]
            await store.save(batch)
            total = await store.total_figures()
            counts = {name: sum(one.pages.values()) for name, one in total.domains.items()}
            assert len(counts) <= 51
            assert sum(counts.values()) == sum(total.outcomes().values())
            assert counts.get(OTHER, 0) >= known.get(OTHER, 0)
            assert all(counts[name] >= count for name, count in known.items() if name in counts)
            known = counts
            clock.advance(5 * MINUTE)
        for one in await store.figures(0, clock.now()):
            assert len(one.figures.domains) <= 201


async def test_a_busy_domain_gets_a_counter_of_its_own(record_store: Records, clock: VirtualClock) -> None:
    small = [result(attempt=tried(f"https://s{n}.example/", at=clock.now(), site=f"s{n}.example")) for n in range(60)]
    await record_store.save(small)
    clock.advance(10 * MINUTE)
    busy = [page(n, clock.now() + n / 1000) for n in range(30)]
    await record_store.save(busy)

    total = await record_store.total_figures()
    assert total.domains["shop.example"].pages == {"done": 30}
    assert sum(sum(one.pages.values()) for one in total.domains.values()) == 90


async def test_texts_that_are_no_texts_are_counted(record_store: Records, clock: VirtualClock) -> None:
    odd = tried("https://shop.example/odd", at=clock.now(), outcome="retry", reason="half \ud800 and \0")
    await record_store.save([result(attempt=odd)])

    assert sum((await record_store.total_figures()).errors.values()) == 1


async def test_a_store_that_is_emptied_counts_anew(record_store: Records, clock: VirtualClock) -> None:
    await record_store.save([page(1, clock.now())])
    clock.advance(HOUR)
    await record_store.save([page(2, clock.now())])
    await record_store.stream.clear()

    assert await record_store.total_figures() == Figures()
    await record_store.save([page(3, clock.now())])
    assert (await record_store.total_figures()).outcomes() == {"done": 1}
    assert msgspec.json.decode(msgspec.json.encode(await record_store.total_figures()))["items"] == 1

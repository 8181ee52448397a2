"""The pacer: requests of one process leave no closer than their site allows."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from gossamer.clock import VirtualClock
from gossamer.crawl.pacer import MAX_MARGIN, Pacer, TooEarly, with_margin
from gossamer.model.task import Lease, Pace, Task

SITE = "a.test"


def lease(pace: Pace | None, number: int = 1) -> Lease:
    task = Task(
        id=number, job="j", url="https://a.test/", fingerprint=b"", site=SITE, kind="parse", priority=0, depth=0,
        attempt=0, max_attempts=1, created_at=0.0,
    )  # fmt: skip
    return Lease(task=task, token=1, delivery=1, expires_at=0.0, pace=pace)


@pytest.fixture
def clock():
    return VirtualClock()


async def starts_at(pacer: Pacer, clock: VirtualClock, asked: timedelta | None = None) -> float:
    """When a request that is asked for now may start, moving the clock as far as needed."""
    began = clock.now()
    starting = asyncio.ensure_future(pacer.start(SITE, asked))
    for _ in range(600):
        await asyncio.sleep(0)
        if starting.done():
            await starting
            return clock.now() - began
        clock.advance(0.01)
    raise AssertionError("it never started")


async def test_the_first_request_of_a_lease_leaves_at_once_and_an_unplanned_second_waits(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(2.0, 1, 2.0)))
    assert await starts_at(pacer, clock) == 0
    assert await starts_at(pacer, clock) == pytest.approx(2.0, abs=0.02)


async def test_a_burst_may_be_spent_at_once(clock):
    pacer = Pacer(clock)
    for number in range(3):
        pacer.enter(lease(Pace(1.0, 3, 1.0 + number), number))
    assert [await starts_at(pacer, clock) for _ in range(3)] == pytest.approx([0, 0, 0], abs=0.02)
    assert await starts_at(pacer, clock) == pytest.approx(1.0, abs=0.02)


async def test_a_long_wait_is_not_spent_in_a_slot(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(60.0, 1, 60.0)))
    await pacer.start(SITE)
    with pytest.raises(TooEarly) as early:
        await pacer.start(SITE)
    assert early.value.wait == timedelta(seconds=60) + MAX_MARGIN


async def test_a_crawl_delay_learned_on_the_way_counts_from_the_request_before(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(None))
    await pacer.start(SITE)  # robots.txt
    clock.advance(1)
    assert await starts_at(pacer, clock, timedelta(seconds=3)) == pytest.approx(2.0, abs=0.02)


async def test_a_request_that_left_late_pushes_the_next_one_back(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(2.0, 1, 2.0)))
    left = await pacer.start(SITE)
    clock.advance(1.5)  # the connection took its time
    left()
    assert pacer.ahead(SITE) == timedelta(seconds=2) + MAX_MARGIN
    assert await starts_at(pacer, clock) == pytest.approx(2.0, abs=0.02)


async def test_a_resting_site_is_left_alone_by_every_lease_in_hand(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(None))
    pacer.rest(SITE, timedelta(seconds=4))
    assert await starts_at(pacer, clock) == pytest.approx(4.0, abs=0.02)


async def test_a_site_is_forgotten_with_its_last_lease(clock):
    pacer = Pacer(clock)
    one, two = lease(Pace(1.0, 1, 1.0), 1), lease(Pace(1.0, 1, 2.0), 2)
    pacer.enter(one)
    pacer.enter(two)
    await pacer.start(SITE)
    pacer.leave(one)
    assert pacer.ahead(SITE) > timedelta(0)
    pacer.leave(two)
    assert pacer.ahead(SITE) == timedelta(0)


def test_a_little_more_than_the_interval_is_kept_because_what_leaves_on_time_may_arrive_closer():
    assert [with_margin(interval) for interval in (0.0, 0.1, 60.0)] == pytest.approx([0.0, 0.102, 60.005])

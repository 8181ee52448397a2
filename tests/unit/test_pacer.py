"""The pacer: requests of one process leave no closer than their site allows."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

from gossamer.clock import VirtualClock
from gossamer.crawl.pacer import MAX_MARGIN, AddressPace, Pacer, TooEarly, with_margin
from gossamer.errors import LeaseLost
from gossamer.model.task import Lease, Pace, Task
from tests.patience import PATIENCE

SITE = "a.test"


def lease(pace: Pace | None, number: int = 1, site: str = SITE) -> Lease:
    task = Task(
        id=number, job="j", url="https://a.test/", fingerprint=b"", site=site, kind="parse", priority=0, depth=0,
        attempt=0, max_attempts=1, created_at=0.0,
    )  # fmt: skip
    return Lease(task=task, token=1, delivery=1, expires_at=0.0, pace=pace)


@pytest.fixture
def clock():
    return VirtualClock()


async def starts_at(pacer: Pacer, clock: VirtualClock, asked: timedelta | None = None) -> float:
    """When a request that gets its gate now leaves, moving the clock as far as needed."""
    began = clock.now()
    gate = pacer.gate(SITE, asked)
    entering = asyncio.ensure_future(gate.enter())
    await moved_until(clock, entering)
    gate.left()
    return clock.now() - began


async def moved_until(clock: VirtualClock, waiting: asyncio.Future[None]) -> None:
    for _ in range(600):
        await settled()
        if waiting.done():
            await waiting
            return
        clock.advance(0.01)
    raise AssertionError("it never started")


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Going:
    """Requests that were given their gates at the same time, each as a task that enters and then does as it is told."""

    def __init__(self, pacer: Pacer, clock: VirtualClock) -> None:
        self.left: list[float] = []
        self._pacer, self._clock = pacer, clock
        self.tasks: list[asyncio.Task[None]] = []

    def begin(self, *, connects: float = 0.0, leaves_after: float = 0.0, fails: bool = False) -> asyncio.Task[None]:
        gate = self._pacer.gate(SITE)

        async def go() -> None:
            try:
                await self._clock.sleep(connects)
                await gate.enter()
                await self._clock.sleep(leaves_after)
                if not fails:
                    self.left.append(self._clock.now())
                    gate.left()
            finally:
                gate.close()

        self.tasks.append(asyncio.create_task(go()))
        return self.tasks[-1]

    async def until_done(self, step: float = 0.01) -> list[float]:
        """The gaps between those that left."""
        for _ in range(5000):
            await settled()
            if all(task.done() for task in self.tasks):
                break
            self._clock.advance(step)
        await asyncio.gather(*self.tasks)
        return [later - earlier for earlier, later in pairwise(sorted(self.left))]


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


async def test_a_burst_does_not_wait_for_one_that_takes_its_time_to_leave(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(1.0, 3, 1.0)))
    first, second = pacer.gate(SITE), pacer.gate(SITE)
    await first.enter()
    await asyncio.wait_for(second.enter(), PATIENCE)
    clock.advance(0.5)
    first.left()
    assert pacer.ahead(SITE).total_seconds() == pytest.approx(2.0, abs=0.05)  # two intervals, of which one began late


async def test_a_long_wait_is_not_spent_in_a_slot(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(60.0, 1, 60.0)))
    await starts_at(pacer, clock)
    with pytest.raises(TooEarly) as early:
        pacer.gate(SITE)
    assert early.value.wait == timedelta(seconds=60) + MAX_MARGIN


async def test_those_that_have_a_gate_and_have_not_left_yet_count_for_the_wait(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(2.0, 1, 2.0)))
    gates = [pacer.gate(SITE) for _ in range(3)]
    with pytest.raises(TooEarly):
        pacer.gate(SITE)
    gates[0].close()  # it could not connect, and takes no place
    assert pacer.gate(SITE)


async def test_a_crawl_delay_learned_on_the_way_counts_from_the_request_before(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(None))
    await starts_at(pacer, clock)  # robots.txt
    clock.advance(1)
    assert await starts_at(pacer, clock, timedelta(seconds=3)) == pytest.approx(2.0, abs=0.02)


async def test_a_crawl_delay_is_not_shortened_by_a_lease_that_does_not_know_of_it(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(0.5, 4, 0.5), 1))
    await starts_at(pacer, clock, timedelta(seconds=3))
    pacer.enter(lease(Pace(0.5, 4, 1.0), 2))
    assert await starts_at(pacer, clock) == pytest.approx(3.0, abs=0.02)


async def test_a_limit_that_was_lifted_by_hand_ends_while_leases_are_held(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(interval=3.0)))
    await starts_at(pacer, clock)
    pacer.enter(lease(Pace(interval=1.0), 2))
    assert await starts_at(pacer, clock) == pytest.approx(1.0, abs=0.02)  # after the last one, not after its pace
    pacer.enter(lease(None, 3))
    assert [await starts_at(pacer, clock) for _ in range(2)] == [0.0, 0.0]


async def test_another_job_without_that_limit_does_not_end_the_own_rate_of_a_job(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(interval=3.0, gap=2.0)))
    await starts_at(pacer, clock)
    pacer.enter(lease(Pace(interval=1.0), 2))
    assert await starts_at(pacer, clock) >= 3.0
    pacer.enter(lease(Pace(interval=3.0, gap=3.0), 3))
    pacer.enter(lease(None, 4))
    assert await starts_at(pacer, clock) >= 3.0


@pytest.mark.parametrize(("used", "at_once"), [(1, 4), (3, 2), (4, 1)])
async def test_what_other_workers_have_used_of_the_bucket_is_not_used_again(clock, used, at_once):
    # given a site that allows four requests at once, of which this lease is the `used`th
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(0.5, 4, used * 0.5)))

    # then the rest of them may leave at once, and the next one waits
    assert [await starts_at(pacer, clock) for _ in range(at_once)] == pytest.approx([0.0] * at_once, abs=0.02)
    assert await starts_at(pacer, clock) == pytest.approx(0.5, abs=0.06)


async def test_a_request_that_left_late_pushes_the_next_one_back(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(2.0, 1, 2.0)))
    gate = pacer.gate(SITE)
    await gate.enter()
    clock.advance(1.5)  # the connection took its time
    gate.left()
    assert pacer.ahead(SITE) == timedelta(seconds=2) + MAX_MARGIN
    assert await starts_at(pacer, clock) == pytest.approx(2.0, abs=0.02)


async def test_a_request_that_is_told_late_counts_from_when_it_left(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(2.0, 1, 2.0)))
    gate = pacer.gate(SITE)
    await gate.enter()
    clock.advance(1.5)
    gate.left(ago=1.2)
    assert await starts_at(pacer, clock) == pytest.approx(0.8, abs=0.02)
    # but never from before it had its turn
    gate = pacer.gate(SITE)
    entering = asyncio.ensure_future(gate.enter())
    await moved_until(clock, entering)
    gate.left(ago=9.0)
    assert await starts_at(pacer, clock) == pytest.approx(2.0, abs=0.02)


async def test_a_late_connection_and_one_that_stands_do_not_meet(clock):
    # given a request whose connection takes a second, and others on connections that stand
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(0.5, 1, 0.5)))
    going = Going(pacer, clock)
    going.begin(connects=1.01)
    for _ in range(4):
        going.begin()
    # then each keeps its distance, and nobody waited for the slow one
    assert min(await going.until_done()) >= 0.5
    assert going.left[-1] - going.left[0] <= 4 * 0.55


async def test_the_next_one_waits_until_the_one_before_has_left(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(0.5, 1, 0.5)))
    going = Going(pacer, clock)
    for late in (0.9, 0.0, 0.3, 0.0):
        going.begin(leaves_after=late)
    assert min(await going.until_done()) >= 0.5


async def test_a_request_that_fails_at_the_gate_lets_the_next_one_through_but_counts(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(0.5, 1, 0.5)))
    going = Going(pacer, clock)
    began = clock.now()
    going.begin(leaves_after=0.2, fails=True)  # it may have been written
    going.begin()
    await going.until_done()
    assert going.left == [pytest.approx(began + 0.7, abs=0.05)]


async def test_a_stalled_loop_does_not_let_several_leave_together(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(0.5, 1, 0.5)))
    going = Going(pacer, clock)
    for _ in range(5):
        going.begin()
    await settled()
    clock.advance(1.7)  # the process got no core
    assert min(await going.until_done()) >= 0.5


async def test_a_request_that_is_cancelled_in_line_leaves_no_gap_and_no_lock(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(0.5, 1, 0.5)))
    going = Going(pacer, clock)
    for _ in range(3):
        going.begin()
    await settled()
    for task in (going.tasks[1], going.tasks[2]):
        task.cancel()
    await asyncio.gather(*going.tasks, return_exceptions=True)
    assert await starts_at(pacer, clock) == pytest.approx(0.5, abs=0.02)


async def test_the_lease_is_checked_after_the_last_sleep(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(0.5, 1, 0.5)))
    await starts_at(pacer, clock)

    def check() -> None:
        raise LeaseLost("gone meanwhile")

    gate = pacer.gate(SITE, None, check)
    entering = asyncio.ensure_future(gate.enter())
    with pytest.raises(LeaseLost):
        await moved_until(clock, entering)
    gate.close()
    assert clock.sleepers == 0
    # and the next one of the site finds its place free
    assert await starts_at(pacer, clock) == 0


async def test_a_connection_that_is_gone_costs_no_place(clock):
    for pace in (Pace(0.5, 1, 0.5), Pace(0.5, 4, 0.5)):
        pacer = Pacer(clock)
        pacer.enter(lease(pace))
        gate = pacer.gate(SITE)
        await gate.enter()
        gate.withdraw()
        await asyncio.wait_for(gate.enter(), PATIENCE)
        gate.left()
        assert pacer.ahead(SITE).total_seconds() == pytest.approx(0.5, abs=0.02)


async def test_a_resting_site_is_left_alone_by_every_lease_in_progress(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(None))
    pacer.rest(SITE, timedelta(seconds=4))
    assert await starts_at(pacer, clock) == pytest.approx(4.0, abs=0.02)


async def test_a_rest_that_begins_while_requests_wait_holds_for_them(clock):
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(0.5, 1, 0.5)))
    going = Going(pacer, clock)
    going.begin()
    going.begin()
    await settled()
    pacer.rest(SITE, timedelta(seconds=3))
    (gap,) = await going.until_done()
    assert gap >= 3.0


async def test_the_pace_is_kept_when_the_last_lease_is_settled_and_the_next_is_on_its_way(clock):
    # given a request that the frontier does not know of, after the one that the lease was for
    pacer = Pacer(clock)
    one, two = lease(Pace(0.5, 1, 0.5), 1), lease(Pace(0.5, 1, 0.5), 2)
    pacer.enter(one)
    await starts_at(pacer, clock)  # robots.txt
    await starts_at(pacer, clock)  # the page
    # when the lease is settled, and a grant comes that was made before that was known
    pacer.leave(one)
    assert pacer.ahead(SITE) > timedelta(0)
    clock.advance(0.06)
    pacer.enter(two)
    # then the next page keeps its distance
    assert await starts_at(pacer, clock) == pytest.approx(0.45, abs=0.02)


async def test_a_site_is_forgotten_when_its_pace_lies_in_the_past(clock):
    pacer = Pacer(clock)
    one = lease(Pace(1.0, 1, 1.0), 1)
    pacer.enter(one)
    await starts_at(pacer, clock)
    pacer.leave(one)
    assert pacer.ahead(SITE) > timedelta(0)
    clock.advance(2)
    pacer.enter(one)
    pacer.leave(one)
    assert pacer._sites == {}


async def test_sites_that_nobody_visits_again_do_not_fill_the_memory(clock):
    pacer = Pacer(clock)
    for number in range(10_000):
        one = lease(Pace(0.5, 1, 0.5), number, site=f"s{number}.test")
        pacer.enter(one)
        gate = pacer.gate(one.task.site)
        await gate.enter()
        gate.left()
        pacer.leave(one)
        clock.advance(0.01)
    assert len(pacer._sites) <= 1100


def test_a_little_more_than_the_interval_is_kept_because_what_leaves_on_time_may_arrive_closer():
    assert [with_margin(interval) for interval in (0.0, 0.1, 60.0)] == pytest.approx([0.0, 0.1005, 60.005])


async def test_a_lease_keeps_its_own_turn_when_a_lost_one_is_still_in_hand(clock):
    # given a process that was stopped with a page in hand, while another worker had the site
    pacer = Pacer(clock)
    pacer.enter(lease(Pace(0.1, 1, 0.1), 1))
    assert await starts_at(pacer, clock) == 0
    clock.advance(12)

    # when it is granted another page, as always a little early: the other worker's request left 80 ms ago
    turn = pacer.enter(lease(Pace(0.1, 1, 0.12), 2))

    # then the request waits for the rest of the interval
    entering = asyncio.ensure_future(pacer.gate(SITE, not_before=turn).enter())
    clock.advance(0.019)
    await settled()
    assert not entering.done()
    clock.advance(0.002)
    await asyncio.wait_for(entering, PATIENCE)


async def test_a_lease_keeps_its_own_turn_after_a_rest_of_the_site(clock):
    # given a process that remembers the site because of its rest, during which another worker was let in
    pacer = Pacer(clock)
    one = lease(Pace(0.1, 1, 0.1), 1)
    pacer.enter(one)
    assert await starts_at(pacer, clock) == 0
    pacer.rest(SITE, timedelta(seconds=2))
    pacer.leave(one)
    clock.advance(1.99)

    turn = pacer.enter(lease(Pace(0.1, 1, 0.12), 2))

    began, entering = clock.now(), asyncio.ensure_future(pacer.gate(SITE, not_before=turn).enter())
    await moved_until(clock, entering)
    assert clock.now() - began >= 0.019


class EveryTurn:
    """A book in which the next turn at an address is always now. Counts the turns that were taken."""

    def __init__(self) -> None:
        self.taken = 0

    async def take_turn(self, address: str, interval: timedelta, longest: timedelta) -> timedelta:
        self.taken += 1
        return timedelta(seconds=1) if self.taken == 1 else timedelta(0)


class LateClock(VirtualClock):
    """Whoever sleeps wakes up late, once."""

    late = 0.0

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds + self.late)
        self.late = 0.0


@pytest.mark.parametrize(("late", "turns"), [(0.0, 1), (0.9, 1), (1.1, 2)])
async def test_a_turn_at_an_address_lapses_when_half_its_interval_is_over(late: float, turns: int) -> None:
    book, clock = EveryTurn(), LateClock()
    clock.late = late
    await AddressPace(book, clock, timedelta(seconds=2)).turn("192.0.2.1", 60.0)
    assert book.taken == turns

"""A lease in hand: settlements sit out a backend that is away, for as long as the lease can be good."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from gossamer.clock import VirtualClock
from gossamer.crawl.held_lease import HeldLease
from gossamer.crawl.pacer import Pacer, SiteGate
from gossamer.errors import BackendUnavailable, LeaseLost
from gossamer.model.task import Lease, Pace, Task
from tests.patience import until

TASK = Task(
    id=1, job="j", url="http://a.test/1", fingerprint=b"0" * 16, site="a.test", kind="parse", priority=0, depth=0,
    attempt=0, max_attempts=4, created_at=0.0,
)  # fmt: skip


def held(clock: VirtualClock, duration: timedelta = timedelta(seconds=60)) -> HeldLease:
    lease = Lease(task=TASK, token=1, delivery=1, expires_at=duration.total_seconds())
    return HeldLease(lease, clock, duration, clock.monotonic())


def paced(clock: VirtualClock, pacer: Pacer, pace: Pace) -> HeldLease:
    lease = Lease(task=TASK, token=1, delivery=1, expires_at=60.0, pace=pace)
    one = HeldLease(lease, clock, timedelta(seconds=60), clock.monotonic())
    one.turn = pacer.enter(lease)
    return one


def requested(pacer: Pacer, one: HeldLease) -> SiteGate:
    gate = pacer.gate(TASK.site, None, one.check, not_before=one.turn)
    one.watch(gate)
    return gate


async def test_a_turn_ends_an_interval_after_the_request_of_a_page_that_is_still_out() -> None:
    clock = VirtualClock()
    pacer = Pacer(clock)
    one = paced(clock, pacer, Pace(2.0, 1, 2.0))
    clock.advance(10)
    assert not one.end_turn(clock.monotonic())  # nothing was sent yet

    gate = requested(pacer, one)
    clock.advance(10)
    assert not one.end_turn(clock.monotonic())  # it makes its connection
    await gate.enter()
    clock.advance(10)
    assert not one.end_turn(clock.monotonic())  # it is about to be written, or was
    gate.left()
    clock.advance(1.9)
    assert not one.end_turn(clock.monotonic())
    clock.advance(0.2)
    assert one.end_turn(clock.monotonic())
    assert one.turn_is_over


async def test_a_turn_does_not_end_while_another_request_of_the_page_is_about_to_leave() -> None:
    clock = VirtualClock()
    pacer = Pacer(clock)
    one = paced(clock, pacer, Pace(2.0, 1, 2.0))
    first = requested(pacer, one)
    await first.enter()
    first.left()
    first.close()
    again = requested(pacer, one)
    clock.advance(10)
    assert not one.end_turn(clock.monotonic())

    again.close()  # it was given up
    assert one.end_turn(clock.monotonic())


async def test_another_turn_is_over_when_its_own_request_has_left() -> None:
    clock = VirtualClock()
    pacer = Pacer(clock)
    one = paced(clock, pacer, Pace(2.0, 1, 2.0))
    first = requested(pacer, one)
    await first.enter()
    first.left()
    clock.advance(3)
    assert one.end_turn(clock.monotonic())

    one.begin_turn(2, Pace(2.0, 1, 2.0), pacer.next_turn(TASK.site, Pace(2.0, 1, 2.0)))
    clock.advance(9)
    assert not one.end_turn(clock.monotonic())
    second = requested(pacer, one)
    await second.enter()
    second.left()
    clock.advance(3)
    assert one.end_turn(clock.monotonic())


@pytest.mark.parametrize("pace", [Pace(2.0, 3, 2.0), Pace(2.0, 1, 2.0, 1.5)], ids=["burst", "own rate"])
async def test_the_turn_of_a_burst_or_of_a_jobs_own_rate_lasts_as_long_as_the_lease(pace: Pace) -> None:
    clock = VirtualClock()
    pacer = Pacer(clock)
    one = paced(clock, pacer, pace)
    gate = requested(pacer, one)
    await gate.enter()
    gate.left()
    clock.advance(30)

    assert not one.end_turn(clock.monotonic())


class Away:
    """A backend that does not answer the first `times`."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.calls = 0

    async def settle(self) -> str:
        self.calls += 1
        if self.calls <= self.times:
            raise BackendUnavailable("The state is away.")
        return "settled"


async def while_time_passes(clock: VirtualClock, settling: asyncio.Task[str]) -> str:
    await until(settling.done, between=lambda: clock.advance(0.5), every=0)
    return settling.result()


async def test_a_settlement_is_made_again_when_the_backend_is_back() -> None:
    clock, away = VirtualClock(), Away(times=5)
    settling = asyncio.create_task(held(clock).settle(away.settle))
    assert await while_time_passes(clock, settling) == "settled"
    assert away.calls == 6


async def test_a_settlement_is_given_up_when_the_lease_cannot_be_good_any_more() -> None:
    clock, away = VirtualClock(), Away(times=1_000)
    began = clock.monotonic()
    settling = asyncio.create_task(held(clock).settle(away.settle))
    with pytest.raises(BackendUnavailable):
        await while_time_passes(clock, settling)
    assert 55 <= clock.monotonic() - began <= 62


async def test_no_request_may_be_made_after_the_lease_has_run_out() -> None:
    clock = VirtualClock()
    lease = held(clock)
    lease.check()
    clock.advance(50)
    lease.prolong(clock.monotonic())
    clock.advance(50)
    lease.check()
    clock.advance(11)
    with pytest.raises(LeaseLost, match="another worker will fetch it"):
        lease.check()


@pytest.mark.parametrize(("duration", "last_moment"), [(60, 1.0), (3, 0.5)])
async def test_no_request_may_be_made_in_the_last_moment_of_a_lease(duration: int, last_moment: float) -> None:
    # It would leave after the end of the lease if the process had to wait for a core just then.
    clock = VirtualClock()
    lease = held(clock, timedelta(seconds=duration))
    clock.advance(duration - last_moment - 0.01)
    lease.check()
    clock.advance(0.02)
    with pytest.raises(LeaseLost):
        lease.check()


async def test_the_first_failure_of_a_settlement_is_told_at_once() -> None:
    clock, away, told = VirtualClock(), Away(times=3), []
    lease = Lease(task=TASK, token=1, delivery=1, expires_at=60.0)
    one = HeldLease(lease, clock, timedelta(seconds=60), clock.monotonic(), told.append)
    settling = asyncio.create_task(one.settle(away.settle))
    await asyncio.sleep(0)
    assert [str(error) for error in told] == ["The state is away."]
    assert not settling.done()
    assert await while_time_passes(clock, settling) == "settled"
    assert len(told) == 1


async def test_a_turn_does_not_end_while_other_pages_may_wait_for_what_this_one_looks_up() -> None:
    clock = VirtualClock()
    pacer = Pacer(clock)
    one = paced(clock, pacer, Pace(2.0, 1, 2.0))
    async with one.keeping_turn(TASK.site):
        first = requested(pacer, one)
        await first.enter()
        first.left()
        clock.advance(10)
        assert not one.end_turn(clock.monotonic())
    assert one.end_turn(clock.monotonic())

    # when its turn was over before, then it takes another one before others have to wait for it
    taken = []

    async def take_turn() -> None:
        taken.append(one.turn_number)
        one.begin_turn(2, Pace(2.0, 1, 2.0), clock.monotonic())

    one.take_turn = take_turn
    async with one.keeping_turn("elsewhere.test"):
        assert taken == []
    async with one.keeping_turn(TASK.site):
        assert taken == [1]
        assert not one.turn_is_over

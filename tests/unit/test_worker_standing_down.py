"""A worker that has nothing to do, or whose place is wanted: when it lets go of its job."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial

from gossamer.crawl.windows import JobWindows
from gossamer.errors import BackendUnavailable
from gossamer.model.windows import parse_windows
from gossamer.project.wiring import is_over
from tests.conformance.frontiers import candidate
from tests.patience import PATIENCE
from tests.unit.test_worker import PAGE, Bench, Road
from tests.unit.test_worker import bench as bench

NIGHT = parse_windows("22:00-23:00 UTC")  # the clock of the tests stands at 08:00


def closed(bench: Bench) -> JobWindows:
    return JobWindows(NIGHT, lambda site: (), bench.lab.clock)


async def test_a_job_that_is_cancelled_while_its_window_is_closed_is_let_go(bench: Bench) -> None:
    # given a worker that waits for the window, and not even the end of the seeds is known
    await bench.lab.frontier.add(bench.job, [candidate(PAGE)])
    worker = bench.worker(Road(), windows=closed(bench), is_over=partial(is_over, bench.lab.jobs, bench.job))
    running = asyncio.create_task(worker.run())
    await bench.until(lambda: worker.idle > timedelta(0), step=0.1)
    assert not running.done()
    # when somebody ends the job
    assert await bench.lab.control.cancel_job(bench.job)
    # then the worker is through with it, and has asked for no page
    await bench.until(running.done, step=0.1)
    assert running.result() is True
    assert bench.line.asked == []


async def test_a_job_with_nothing_left_does_not_wait_for_its_window(bench: Bench) -> None:
    await bench.lab.jobs.seal_seeds(bench.job)
    worker = bench.worker(Road(), windows=closed(bench), is_over=partial(is_over, bench.lab.jobs, bench.job))
    async with asyncio.timeout(PATIENCE):
        assert await worker.run() is True


async def test_a_state_that_is_away_while_the_window_is_closed_is_waited_for(bench: Bench) -> None:
    answers: list[bool | Exception] = [BackendUnavailable("The queue is away."), False, True]

    async def look() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    running = asyncio.create_task(bench.worker(Road(), windows=closed(bench), is_over=look).run())
    await bench.until(running.done, step=0.1)
    assert running.result() is True
    assert answers == []


async def test_a_worker_that_stands_down_finishes_what_is_in_hand_in_its_own_time(bench: Bench) -> None:
    # given a page in progress, and another one in the queue
    await bench.lab.frontier.add(bench.job, [candidate(PAGE), candidate("https://a.example/2")])
    road = Road()
    worker = bench.worker(road, concurrency=1, drain_within=timedelta(0))
    running = asyncio.create_task(worker.run())
    await bench.until(lambda: road.inside == 1)
    # when its place is wanted
    worker.stand_down()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not running.done()
    # then the page is not given back, and the other one is not begun
    road.go.set()
    assert await running is False
    assert bench.line.released == 0
    assert set(road.sent) == {PAGE}


async def test_a_worker_that_stands_down_is_drained_in_time_when_the_process_ends(bench: Bench) -> None:
    await bench.lab.frontier.add(bench.job, [candidate(PAGE)])
    road = Road()
    worker = bench.worker(road, concurrency=1, drain_within=timedelta(0))
    running = asyncio.create_task(worker.run())
    await bench.until(lambda: road.inside == 1)
    worker.stand_down()
    worker.drain()
    assert await running is False
    assert bench.line.released == 1

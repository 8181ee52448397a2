"""A worker on a real queue and a clock of the test's: what it takes, what it gives back, and what it loses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gossamer import Spider
from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.crawl.context import JobContext
from gossamer.crawl.outages import LONGEST_OUTAGE
from gossamer.crawl.pacer import Pacer
from gossamer.crawl.quarantine import FEW
from gossamer.crawl.sessions import Sessions
from gossamer.crawl.unleased_turn import UnleasedTurns
from gossamer.crawl.windows import JobWindows
from gossamer.crawl.worker import Worker
from gossamer.errors import BackendUnavailable, GossamerError, Misconfigured
from gossamer.fetch.contract import Response
from gossamer.fetch.fetcher import Disallowed, Outcome, PageRequest, Redirected
from gossamer.fetch.open_route import OpenRoute, Transports
from gossamer.fetch.robots import BeforeSend
from gossamer.frontier.admission import Admission, LinkScope
from gossamer.frontier.contract import DeadFilter, LeaseBatch
from gossamer.frontier.politeness import SiteTerms
from gossamer.frontier.retry import RetryTerms
from gossamer.model.events import Event, LeaseLapsed, Trouble
from gossamer.model.page import Headers
from gossamer.model.record import PageResult
from gossamer.model.route import FetchOptions, Render
from gossamer.model.task import Lease, Request
from gossamer.model.url import UrlRules
from gossamer.pipeline.quality_guard import QualityGuard
from gossamer.pipeline.steps import Pipeline
from gossamer.routing.budget import BudgetKeeper, Budgets
from gossamer.routing.ladder import RouteTerms, routes_of
from gossamer.routing.proxies.pools import Pools
from gossamer.routing.router import Router
from gossamer.settings import ProxyPool
from gossamer.store.sink import Sink
from gossamer.units import Secret
from tests import patience
from tests.conformance.frontiers import LEASE, Lab, candidate, sqlite_lab

PAGE = "https://a.example/1"
OTHER = "https://b.example/"
ONE_IN_TWO_SECONDS = SiteTerms(interval=timedelta(seconds=2), burst=1, concurrency=None)


class Line:
    """The real queue, behind a line on which single verbs can fail."""

    def __init__(self, lab: Lab) -> None:
        self._frontier = lab.frontier
        self.faults: dict[str, Exception] = {}
        self.asked: list[int] = []  # how many leases, at each call
        self.renewals = 0
        self.may_renew = asyncio.Event()  # while it is not set, renewals are on their way
        self.may_renew.set()
        self.released = 0

    def _pass(self, verb: str) -> None:
        if verb in self.faults:
            raise self.faults[verb]

    async def lease(self, job: str, worker: str, n: int, lanes: frozenset[str] | None = None) -> LeaseBatch:
        self.asked.append(n)
        self._pass("lease")
        return await self._frontier.lease(job, worker, n, lanes)

    async def renew(self, leases: list[Lease]) -> list[Lease]:
        self.renewals += 1
        self._pass("renew")
        await self.may_renew.wait()
        return await self._frontier.renew(leases)

    async def release(self, lease: Lease, *terms: Any, **more: Any) -> None:
        self.released += 1
        await self._frontier.release(lease, *terms, **more)

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._frontier, verb)


class Road:
    """In the fetcher's place: passes the gate as often as it is told to, and waits for the test in between."""

    def __init__(self, requests: int = 1) -> None:
        self._requests = requests
        self.sent: list[str] = []
        self.inside = 0
        self.go = asyncio.Event()
        self.fault: Exception | None = None
        self.moved: dict[str, str] = {}

    async def fetch(self, request: PageRequest, gate: BeforeSend, route: OpenRoute, **watching: Any) -> Outcome:
        self.inside += 1
        try:
            for _ in range(self._requests):
                await self._send(request, gate)
            await self.go.wait()
            await self._send(request, gate)
            if self.fault is not None:
                raise self.fault
            if request.url in self.moved:
                answer = Response(url=request.url, status=301, headers=Headers(()), body=b"", seconds=0.1, wire_bytes=9)
                return Redirected(to=self.moved[request.url], status=301, response=answer, fetched_at=0.0)
            return Disallowed(url=request.url, rule="Disallow: /")
        finally:
            self.inside -= 1

    async def _send(self, request: PageRequest, before_send: BeforeSend) -> None:
        gate = await before_send(None)
        assert gate is not None
        try:
            await gate.enter()
            self.sent.append(request.url)
            gate.left()
        finally:
            gate.close()


class Ears:
    def __init__(self) -> None:
        self.heard: list[Event] = []

    def emit(self, event: Event) -> None:
        self.heard.append(event)

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.heard if isinstance(event, kind)]


class Bench:
    """A job, and the parts of a worker for it."""

    def __init__(self, lab: Lab, job: str, sink: Sink, records: Any) -> None:
        self.lab, self.job, self.sink, self.records = lab, job, sink, records
        self.line, self.ears = Line(lab), Ears()

    def worker(
        self,
        road: Road,
        *,
        concurrency: int = 4,
        drain_within: timedelta = timedelta(seconds=20),
        lanes: frozenset[str] | None = None,
        windows: JobWindows | None = None,
        is_over: Callable[[], Awaitable[bool]] | None = None,
    ) -> Worker:
        line: Any = self.line
        fetcher: Any = road
        pacer = Pacer(self.lab.clock)
        context = JobContext(
            job=self.job,
            worker="me",
            spider=Spider(),
            parser_version="1",
            fetcher=fetcher,
            router=self._router(),
            sessions=Sessions(self.lab.sessions, self.lab.clock, spider="spider"),
            pacer=pacer,
            unleased_turns=UnleasedTurns(
                pacer, self.lab.seeds, line, self.lab.clock, worker="me", terms_for=lambda site: SiteTerms()
            ),
            pipeline=Pipeline(()),
            guard=QualityGuard("spider", None, 50),
            admission=Admission(LinkScope(), UrlRules()),
            sink=self.sink,
            records=self.records,
            durable=self._nothing_to_sync,
            begun_at=0.0,
            frontier=line,
            retry_terms_for=lambda _: RetryTerms(),
            clock=self.lab.clock,
            events=self.ears,
            windows=windows,
        )
        return Worker(
            context, line, self.records, concurrency=concurrency, lease_duration=LEASE, drain_within=drain_within,
            lanes=lanes, is_over=is_over,
        )  # fmt: skip

    async def _nothing_to_sync(self) -> None:
        """Its state need not survive a power cut."""

    def _router(self) -> Router:
        """One way, and nobody uses it: the road of the test is in the fetcher's place."""
        nothing: Any = None
        homes = {"homes": ProxyPool(urls=(Secret("http://127.0.0.1:9"),))}
        transports = Transports({name: lambda: nullcontext(nothing) for name in ("http", "browser")})
        return Router(
            terms_for=lambda site: RouteTerms(),
            routes=routes_of({}, {}, ()),
            transports=transports,
            proxies=Pools(homes, self.lab.proxies, self.lab.clock, project="", root=Path()),
            book=self.lab.routes,
            budget=BudgetKeeper(self.lab.budgets, self.job, lambda site: Budgets(), self.lab.clock, max_body=1000),
            clock=self.lab.clock,
        )

    async def until(self, reached: Callable[[], bool], *, step: float = 0.0) -> None:
        """Let things happen, moving the clock by `step` at each look."""
        await patience.until(reached, between=lambda: self.lab.clock.advance(step), every=0.001)


class Refusing:
    """A store that refuses us, whatever the result."""

    async def save(self, results: list[PageResult]) -> list[int]:
        raise Misconfigured("The store refused the password.")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with (
        sqlite_lab(tmp_path) as lab,
        open_sqlite_records(tmp_path / "records.db", lab.clock) as records,
        Sink(records, None) as sink,
    ):
        yield Bench(lab, (await lab.job()).id, sink, records)


async def others_must_wait(bench: Bench) -> float:
    batch = await bench.lab.frontier.lease(bench.job, "other", 1)
    assert batch.leases == ()
    assert batch.wait is not None
    return batch.wait.total_seconds()


async def test_a_page_that_is_given_back_leaves_the_sites_pace_behind(bench: Bench) -> None:
    # given a journey that made two requests of a site that allows one in two seconds
    bench.lab.terms["a.example"] = ONE_IN_TWO_SECONDS
    await bench.lab.frontier.add(bench.job, [candidate(PAGE)])
    road = Road(requests=2)
    worker = bench.worker(road, drain_within=timedelta(0))
    running = asyncio.create_task(worker.run())
    await bench.until(lambda: len(road.sent) == 2, step=0.05)
    # when the worker stops in the middle of it
    worker.drain()
    assert await running is False
    # then the next one waits from the second request on
    assert await others_must_wait(bench) > 1.5


async def test_a_page_that_is_buried_for_a_defect_leaves_the_sites_pace_behind(bench: Bench) -> None:
    bench.lab.terms["a.example"] = ONE_IN_TWO_SECONDS
    await bench.lab.frontier.add(bench.job, [candidate(PAGE), candidate("https://a.example/2")])
    road = Road()
    road.fault = RuntimeError("a defect")
    road.go.set()
    worker = bench.worker(road, concurrency=1)
    running = asyncio.create_task(worker.run())
    await bench.until(lambda: len(road.sent) == 2, step=0.05)
    worker.drain()
    assert await running is False
    [letter] = await bench.lab.queue.dead(DeadFilter(job=bench.job))
    assert letter.reason == "internal-error"
    assert await others_must_wait(bench) > 1.5


async def test_a_journey_whose_lease_was_lost_is_stopped_and_gives_nothing_back(bench: Bench) -> None:
    # given a journey that waits for an answer
    await bench.lab.frontier.add(bench.job, [candidate(PAGE)])
    road = Road()
    worker = bench.worker(road, concurrency=1)
    running = asyncio.create_task(worker.run())
    await bench.until(lambda: len(road.sent) == 1)
    worker.drain()
    # when its lease has run out, and the renewing worker hears of it
    bench.lab.clock.advance(LEASE.total_seconds() + 1)
    # then it ends there, although the answer never comes
    assert await running is False
    assert road.sent == [PAGE]
    assert [event.url for event in bench.ears.of(LeaseLapsed)] == [PAGE]
    assert bench.line.released == 0
    [again] = (await bench.lab.frontier.lease(bench.job, "other", 1)).leases
    assert again.delivery == 2


async def test_the_place_of_a_journey_whose_lease_was_lost_is_free_for_the_next_page(bench: Bench) -> None:
    # given a worker with one place, whose journey waits for an answer that never comes
    await bench.lab.frontier.add(bench.job, [candidate(PAGE)])
    road = Road()
    worker = bench.worker(road, concurrency=1)
    running = asyncio.create_task(worker.run())
    await bench.until(lambda: road.inside == 1 and len(road.sent) == 1 and bool(bench.lab.clock.sleepers))
    # when its lease has run out and another worker has the page before this one hears of it
    bench.line.may_renew.clear()
    bench.lab.clock.advance(LEASE.total_seconds() + 1)
    [_] = (await bench.lab.frontier.lease(bench.job, "other", 1)).leases
    await bench.lab.frontier.add(bench.job, [candidate(OTHER)])
    bench.line.may_renew.set()
    # then the fetch is given up at once, and the next page has its place; nobody has told the worker to stop
    await bench.until(lambda: OTHER in road.sent, step=0.01)
    assert road.sent == [PAGE, OTHER]
    assert road.inside == 1
    assert [event.url for event in bench.ears.of(LeaseLapsed)] == [PAGE]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_worker_that_was_stopped_past_its_lease_does_not_send_the_next_request(bench: Bench) -> None:
    # given a journey on the way, in a process that cannot hear from the queue
    await bench.lab.frontier.add(bench.job, [candidate(PAGE)])
    road = Road()
    worker = bench.worker(road, concurrency=1)
    bench.line.faults["renew"] = BackendUnavailable("The line is cut.")
    running = asyncio.create_task(worker.run())
    await bench.until(lambda: len(road.sent) == 1)
    worker.drain()
    # when the process wakes after the lease's time and goes on
    bench.lab.clock.advance(LEASE.total_seconds() + 1)
    road.go.set()
    # then the second request is not made
    assert await running is False
    assert road.sent == [PAGE]
    assert [event.url for event in bench.ears.of(LeaseLapsed)] == [PAGE]


async def test_a_renewed_lease_is_good_beyond_its_first_time(bench: Bench) -> None:
    await bench.lab.frontier.add(bench.job, [candidate(PAGE)])
    await bench.lab.jobs.seal_seeds(bench.job)
    road = Road()
    running = asyncio.create_task(bench.worker(road).run())
    await bench.until(lambda: len(road.sent) == 1)
    for times in range(1, 8):
        bench.lab.clock.advance(LEASE.total_seconds() / 3)
        await bench.until(lambda times=times: bench.line.renewals == times and bool(bench.lab.clock.sleepers))
    road.go.set()
    assert await running is True
    assert road.sent == [PAGE, PAGE]
    assert bench.ears.of(LeaseLapsed) == []


@pytest.mark.parametrize("fault", [Misconfigured("no permission to renew"), RuntimeError("a defect")])
async def test_renewing_goes_on_whatever_went_wrong(bench: Bench, fault: Exception) -> None:
    await bench.lab.frontier.add(bench.job, [candidate(PAGE)])
    await bench.lab.jobs.seal_seeds(bench.job)
    road = Road()
    bench.line.faults["renew"] = fault
    running = asyncio.create_task(bench.worker(road).run())
    await bench.until(lambda: len(road.sent) == 1)
    bench.lab.clock.advance(LEASE.total_seconds() / 3)
    await bench.until(lambda: bool(bench.ears.of(Trouble)) and bool(bench.lab.clock.sleepers))
    assert str(fault) in bench.ears.of(Trouble)[0].message
    # when it is mended in time, the page is finished
    del bench.line.faults["renew"]
    bench.lab.clock.advance(LEASE.total_seconds() / 3)
    await bench.until(lambda: bench.line.renewals == 2 and bool(bench.lab.clock.sleepers))
    bench.lab.clock.advance(LEASE.total_seconds() / 2)
    road.go.set()
    assert await running is True
    assert bench.ears.of(LeaseLapsed) == []


async def test_suspects_that_are_too_many_go_back_at_once_for_other_workers(bench: Bench) -> None:
    # given the pages of a worker that died
    pages = FEW + 3
    await bench.lab.frontier.add(bench.job, [candidate(f"https://s{n}.example/") for n in range(pages)])
    assert len((await bench.lab.frontier.lease(bench.job, "dead", pages)).leases) == pages
    bench.lab.clock.advance(LEASE.total_seconds() + 1)
    # when another one tries a few of them
    road = Road()
    worker = bench.worker(road, concurrency=pages)
    running = asyncio.create_task(worker.run())
    await bench.until(lambda: road.inside == FEW)
    # then a third one gets the others without a wait, and they count as delivered twice
    others = await bench.lab.frontier.lease(bench.job, "other", pages)
    assert [lease.delivery for lease in others.leases] == [2] * (pages - FEW)
    road.go.set()
    worker.drain()
    await running


async def test_no_more_pages_are_leased_than_there_are_slots(bench: Bench) -> None:
    await bench.lab.frontier.add(bench.job, [candidate(f"https://s{n}.example/") for n in range(20)])
    road = Road()
    worker = bench.worker(road, concurrency=4, drain_within=timedelta(0))
    running = asyncio.create_task(worker.run())
    await bench.until(lambda: road.inside >= 4)
    for _ in range(50):
        await asyncio.sleep(0)
    assert bench.line.asked == [4]
    assert (road.inside, worker.in_flight) == (4, 4)
    worker.drain()
    await running
    # What was in progress is back: nobody holds it.
    assert len((await bench.lab.frontier.lease(bench.job, "other", 50)).leases) == 20


async def test_one_failure_is_forgiven_when_the_next_call_goes_well(bench: Bench) -> None:
    # given a worker that finds nothing to do, and whose first question failed
    await bench.lab.frontier.add(bench.job, [candidate(PAGE)])
    bench.line.faults["lease"] = BackendUnavailable("A blip.")
    worker = bench.worker(Road())
    running = asyncio.create_task(worker.run())
    await bench.until(lambda: len(bench.line.asked) == 1)
    [held] = (await bench.lab.frontier.lease(bench.job, "other", 1)).leases
    del bench.line.faults["lease"]
    await bench.until(lambda: len(bench.line.asked) == 2, step=0.25)
    await bench.until(lambda: len(bench.line.asked) == 3)
    # when much more time passes than a backend may be away
    for _ in range(3):
        await bench.lab.frontier.renew([held])
        bench.lab.clock.advance(LEASE.total_seconds() - 1)
    assert len(bench.ears.of(Trouble)) == 1
    before = len(bench.line.asked)
    await bench.until(lambda: running.done() or len(bench.line.asked) > before + 1)
    # then it is still at work
    worker.drain()
    assert await running is False


@pytest.mark.parametrize("recovers", [False, True])
async def test_a_backend_that_only_fails_ends_the_worker_after_a_minute(bench: Bench, recovers: bool) -> None:
    bench.line.faults["lease"] = BackendUnavailable("The queue is away.")
    await bench.lab.jobs.seal_seeds(bench.job)
    began = bench.lab.clock.now()
    running = asyncio.create_task(bench.worker(Road()).run())
    if recovers:
        await bench.until(lambda: bench.lab.clock.now() - began > LONGEST_OUTAGE.total_seconds() / 2, step=0.5)
        bench.line.faults.clear()
    await bench.until(running.done, step=0.5)
    if recovers:
        assert running.result() is True
    else:
        with pytest.raises(BackendUnavailable, match="The queue is away"):
            running.result()
        assert bench.lab.clock.now() - began > LONGEST_OUTAGE.total_seconds()


async def test_a_store_that_refuses_us_kills_no_page(bench: Bench) -> None:
    # given a store that does not take anything from us, and no spool
    await bench.lab.frontier.add(bench.job, [candidate(f"https://s{n}.example/") for n in range(6)])
    store: Any = Refusing()
    async with Sink(store, None) as bench.sink:
        road = Road()
        road.go.set()
        running = asyncio.create_task(bench.worker(road).run())
        # when it stays so
        await bench.until(running.done, step=0.5)
    # then the worker ends and says why, and every page is still to be done
    with pytest.raises(GossamerError, match="refused the password"):
        running.result()
    assert await bench.lab.queue.dead(DeadFilter(job=bench.job)) == []
    assert (await bench.lab.jobs.counts(bench.job)).open == 6


async def test_a_worker_with_lanes_takes_their_tasks_and_leaves_the_others(bench: Bench) -> None:
    await bench.lab.frontier.add(bench.job, [candidate(PAGE), candidate("https://a.example/shown", fetcher="browser")])
    await bench.lab.jobs.seal_seeds(bench.job)
    road = Road()
    road.go.set()
    worker = bench.worker(road, lanes=frozenset({"browser"}))
    running = asyncio.create_task(worker.run())
    await bench.until(lambda: len(road.sent) == 2 and worker.in_flight == 0, step=0.05)
    asked = len(bench.line.asked)
    await bench.until(lambda: len(bench.line.asked) > asked + 2)  # the job is not over: it goes on asking
    worker.drain()
    assert await running is False
    assert set(road.sent) == {"https://a.example/shown"}
    assert (await bench.lab.jobs.counts(bench.job)).queued == 1


async def test_a_redirect_keeps_what_was_wished_for_the_way(bench: Bench) -> None:
    options = Request(url=PAGE, session="mine", render=Render(wait_for="h1", screenshot=True))
    one = candidate(
        PAGE, fetcher="browser", proxy_pool="homes", country="de", how=options.how(), data='{"n":1}', max_attempts=7
    )
    await bench.lab.frontier.add(bench.job, [one])
    road = Road()
    road.moved[PAGE] = "https://b.example/there"
    road.go.set()
    worker = bench.worker(road, concurrency=1)
    running = asyncio.create_task(worker.run())
    await bench.until(lambda: len(road.sent) == 2)
    worker.drain()
    assert await running is False
    [there] = (await bench.lab.frontier.lease(bench.job, "other", 1, frozenset({"browser"}))).leases
    task = there.task
    assert (task.url, task.proxy_pool, task.country, task.max_attempts) == ("https://b.example/there", "homes", "de", 7)
    assert task.options() == FetchOptions(session="mine", render=Render(wait_for="h1", screenshot=True))
    assert task.user_data() == {"n": 1}

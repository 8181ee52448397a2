"""More jobs than one process can work on at once: they take turns, those that wait hold nobody up, and what is wrong
with one is said once."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from gossamer.clock import Backoff, SystemClock
from gossamer.crawl import second_opinion
from gossamer.crawl.second_opinion import SecondOpinion
from gossamer.crawl.seeding import admission_of
from gossamer.model.events import Event, JobBegun, JobEnded, JobLeft, JobWaits, Released, Trouble
from gossamer.model.job import RAW_PAGES, Job, JobState, JobTerms
from gossamer.model.task import Candidate, Request
from gossamer.parse.site import RawPageSpider
from gossamer.parse.spider import Spider
from gossamer.project.jobs.slots import PoolTerms
from gossamer.project.jobs.worker_pool import WorkerPool
from gossamer.project.open import Project, open_project
from gossamer.project.transports import Shared, SharedTransports
from gossamer.schedule.sources import PagesSource, WantedPage
from gossamer.settings import load
from gossamer.store.sink import Sink
from gossamer.terms import job_terms, link_scope, site_terms
from tests.journey.test_scheduled_jobs import SPIDER, source
from tests.patience import MOMENT, PATIENCE, until
from tests.services.valkey import ValkeyServer, running_valkey

GRUMPY = """
from pathlib import Path
from gossamer import Spider

class Grumpy(Spider):
    def start(self):
        with Path({tries!r}).open("a") as file:
            file.write("x")
        raise RuntimeError("not today")
"""


# What takes a second or more in life.
QUICK = PoolTerms(
    look=timedelta(milliseconds=30),
    silent=timedelta(milliseconds=60),
    unfit_again=timedelta(milliseconds=60),
    idle=timedelta(milliseconds=100),
    turn=timedelta(milliseconds=100),
)
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with running_valkey() as server:
        yield server


@pytest.fixture(params=["sqlite", "valkey"])
def state(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "sqlite":
        return {}
    return {"state": request.getfixturevalue("valkey").address(), "project": f"turns-{uuid4().hex[:8]}"}


class Site:
    """Answers every request after `pause`; while it is `held`, not at all. Counts who is inside."""

    def __init__(self) -> None:
        self.url = ""
        self.connections = 0
        self.pause = 0.0
        self.inside = 0
        self.held = False
        self.open = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.inside += 1
                await (self.open.wait() if self.held else asyncio.sleep(self.pause))
                self.inside -= 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 9\r\n\r\n<p>Hi</p>")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    server = await asyncio.start_server(site.answer, "127.0.0.1", 0)
    site.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    yield site
    site.open.set()
    server.close()


class Ears:
    def __init__(self) -> None:
        self.heard: list[Event] = []
        self.most_at_once = 0  # jobs that were begun and not ended

    def emit(self, event: Event) -> None:
        self.heard.append(event)
        self.most_at_once = max(self.most_at_once, len(self.jobs(JobBegun)) - len(self.jobs(JobEnded)))

    def jobs(self, kind: type[Event]) -> list[str]:
        return [event.job for event in self.heard if isinstance(event, kind)]


class Shift:
    """A worker pool at work, and what it says."""

    def __init__(self, system: Project, terms: PoolTerms, *, until_idle: bool = False) -> None:
        self.system = system
        self.ears = Ears()
        self.pool = WorkerPool(system, self.ears, until_idle=until_idle, terms=terms)

    async def job(self, name: str, **terms: Any) -> Job:
        usual = job_terms(self.system.settings, Spider())
        scheduled = {"schedule": name, "spider": "things", **terms} if terms else {}
        job, _ = await self.system.state.jobs.open_job(name, msgspec.structs.replace(usual, **scheduled), fresh=True)
        return job

    async def standing(self, job: Job) -> JobState:
        found = await self.system.state.jobs.job(job.id)
        assert found is not None
        return found.state

    @asynccontextmanager
    async def on(self) -> AsyncIterator[None]:
        running = asyncio.create_task(self.pool.run())
        try:
            yield
        finally:
            self.pool.drain()
            await running


@asynccontextmanager
async def shift(
    folder: Path, *, until_idle: bool = False, terms: PoolTerms = QUICK, **flags: Any
) -> AsyncIterator[Shift]:
    (folder / "spiders").mkdir(exist_ok=True)
    (folder / "spiders" / "things.py").write_text(SPIDER, encoding="utf-8")
    usual = {
        "politeness.rate": "unlimited", "politeness.concurrency": "none", "politeness.robots": False,
        "fetch.allow_private": True, "crawl.drain": "0s",
    }  # fmt: skip
    settings = load(start=folder, environ={}, flags={**usual, **flags})
    async with open_project(settings) as system:
        yield Shift(system, terms, until_idle=until_idle)


def closed_now() -> str:
    """A window that is not open for hours."""
    hour = datetime.now(UTC) + timedelta(hours=11)
    return f"{hour:%H}:00-{hour:%H}:30 UTC"


async def test_jobs_that_are_due_together_are_worked_off_a_few_at_a_time(
    tmp_path: Path, site: Site, state: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = msgspec.structs.replace(QUICK, turn=HOUR, idle=HOUR)
    async with shift(tmp_path, terms=terms, until_idle=True, **{"crawl.concurrency": 1, **state}) as crew:
        jobs = [await crew.job(f"due-{n}", source=source(urls=[f"{site.url}{n}"])) for n in range(8)]
        async with asyncio.timeout(PATIENCE):
            await crew.pool.run()
        assert {await crew.standing(job) for job in jobs} == {JobState.FINISHED}
    assert len(crew.ears.jobs(JobEnded)) == 8
    assert crew.ears.most_at_once <= QUICK.jobs_for_a_page


async def test_a_job_is_begun_before_the_next_look_and_on_the_connections_of_the_last_one(
    tmp_path: Path, site: Site, state: dict[str, str]
) -> None:
    # given a pool that has looked for jobs, and looks again in an hour
    terms = msgspec.structs.replace(QUICK, look=HOUR, glance=timedelta(milliseconds=5))
    async with shift(tmp_path, terms=terms, **state) as crew, crew.on():
        first = await crew.job("first", source=source(urls=[f"{site.url}1"]))
        await until(lambda: crew.ears.jobs(JobEnded) == [first.id])
        # when another one is begun, then it is served all the same, and the site sees no other connection
        second = await crew.job("second", source=source(urls=[f"{site.url}2"]))
        await until(lambda: crew.ears.jobs(JobEnded) == [first.id, second.id])
    assert site.connections == 1


async def test_a_job_whose_settings_allow_other_hosts_has_connections_of_its_own(tmp_path: Path, site: Site) -> None:
    async with shift(tmp_path) as crew:
        settings = crew.system.settings
        wider = msgspec.structs.replace(
            settings, fetch=msgspec.structs.replace(settings.fetch, allow_hosts=("inside.example",))
        )
        async with SharedTransports(crew.system.clock, linger=timedelta(milliseconds=1)) as shared:
            async with (
                shared.for_settings(settings) as one,
                shared.for_settings(settings) as same,
                shared.for_settings(wider) as other,
            ):
                assert one is same
                assert one is not other
                before = one

            # and when nobody has used them for a while, they are closed
            async def are_others() -> bool:
                async with shared.for_settings(settings) as later:
                    return later is not before

            await until(are_others)


async def test_connections_that_are_being_closed_are_closed_before_their_process_ends(tmp_path: Path) -> None:
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def opening() -> AsyncIterator[None]:
        yield
        begun.set()
        await may_end.wait()
        ended.set()

    async with Shared[None](SystemClock(), linger=timedelta(0)) as shared:
        async with shared.of((), opening):
            pass
        await begun.wait()
        asyncio.get_running_loop().call_soon(may_end.set)
    assert ended.is_set()


async def single_page(crew: Shift, url: str) -> Job:
    page = WantedPage(request=Request(url=url))
    terms = JobTerms(spider=RAW_PAGES, source=msgspec.json.encode(PagesSource(pages=(page,))).decode(), depth=0)
    job, _ = await crew.system.state.jobs.open_job(f"scrape-{uuid4().hex[:8]}", terms, fresh=False)
    return job


async def test_a_single_page_is_opened_by_one_of_the_workers_that_see_it(
    tmp_path: Path, site: Site, state: dict[str, str]
) -> None:
    # given two workers, and a page that takes a moment
    site.pause = 0.1
    terms = msgspec.structs.replace(QUICK, idle=HOUR)
    async with shift(tmp_path, terms=terms, **state) as crew:
        elsewhere, ears = msgspec.structs.replace(crew.system, worker=f"{crew.system.worker}-2"), Ears()
        other = WorkerPool(elsewhere, ears, terms=terms)
        working = asyncio.create_task(other.run())
        async with crew.on():
            # when pages are asked for one by one, then each is opened once
            for number in range(5):
                job = await single_page(crew, f"{site.url}{number}")
                await until(lambda: job.id in crew.ears.jobs(JobEnded) + ears.jobs(JobEnded))  # noqa: B023
        other.drain()
        await working
    assert len(crew.ears.jobs(JobBegun)) + len(ears.jobs(JobBegun)) == 5


async def test_a_single_page_whose_worker_died_is_opened_by_the_next_one(
    tmp_path: Path, site: Site, state: dict[str, str]
) -> None:
    async with shift(tmp_path, **{"lease.duration": "1s", **state}) as crew:
        # given a job whose one page a worker had when it died, and a job whose source it was about to read
        fetching, reading = await single_page(crew, f"{site.url}a"), await single_page(crew, f"{site.url}b")
        candidate = Candidate(url=f"{site.url}a", fingerprint=b"a" * 16, site="127.0.0.1")
        await crew.system.state.frontier.add(fetching.id, [candidate])
        await crew.system.state.jobs.seal_seeds(fetching.id)
        assert (await crew.system.state.frontier.lease(fetching.id, "gone/1/1", 1)).leases
        assert await crew.system.state.seeds.claim(reading.id, "gone/1/1", timedelta(seconds=1))
        # then the next worker does both
        async with crew.on():
            await until(lambda: {*crew.ears.jobs(JobEnded)} == {fetching.id, reading.id})


async def test_jobs_whose_sites_are_paced_do_not_wait_for_each_other(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = msgspec.structs.replace(QUICK, turn=HOUR, idle=HOUR, silent=timedelta(milliseconds=200))
    async with shift(tmp_path, terms=terms, **{"crawl.concurrency": 1, "politeness.rate": "10/s"}) as crew, crew.on():
        # given one page at a time, and jobs for different sites, each of which has something to do ten times a second
        for n in range(3):
            address = site.url.replace("127.0.0.1", f"site{n}.localhost")
            await crew.job(f"paced-{n}", source=source(urls=[f"{address}{{1..5000}}"]))
        # then they are worked on side by side
        await until(lambda: len(crew.ears.jobs(JobBegun)) == 3)
        assert crew.ears.jobs(JobEnded) == []


async def test_a_long_job_takes_turns_with_a_short_one(
    tmp_path: Path, site: Site, state: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given one place, and a job in it that has work for long
    site.pause = 0.02
    terms = msgspec.structs.replace(QUICK, jobs_for_a_page=1)
    async with shift(tmp_path, terms=terms, **{"crawl.concurrency": 1, **state}) as crew, crew.on():
        long = await crew.job("long", source=source(urls=[f"{site.url}{{1..5000}}"]))
        await until(lambda: crew.ears.jobs(JobBegun) == [long.id])
        # when another one comes, then it is done while the first one goes on, and goes on after it
        short = await crew.job("short", source=source(urls=[f"{site.url}short"]))
        await until(lambda: crew.ears.jobs(JobEnded) == [short.id])
        before = (await crew.system.state.jobs.counts(long.id)).done

        async def goes_on() -> bool:
            return (await crew.system.state.jobs.counts(long.id)).done > before

        await until(goes_on)
        assert crew.ears.jobs(JobBegun) == [long.id, short.id]  # a new turn is no news


async def test_a_job_that_ends_while_slots_are_taken_back_stops_nothing(tmp_path: Path, site: Site) -> None:
    terms = msgspec.structs.replace(QUICK, jobs_for_a_page=1, turn=HOUR)
    async with shift(tmp_path, terms=terms, **{"crawl.concurrency": 2, "retry.base": "60s"}) as crew:
        # given two jobs that would make way, and both have to; while the pool asks about one, the other is cancelled
        idle = [await crew.job(f"http://{name}.away.localhost:8/") for name in ("one", "two")]

        class Jobs:
            armed = False

            def __getattr__(self, name: str) -> Any:
                return getattr(jobs, name)

            async def is_sealed(self, job: str) -> bool:
                if self.armed and not crew.ears.jobs(JobLeft):
                    (other,) = {one.id for one in idle} - {job}
                    await crew.system.state.control.cancel_job(other)
                    await until(lambda: crew.ears.jobs(JobLeft) == [other])
                    await asyncio.sleep(MOMENT)
                return await jobs.is_sealed(job)

        jobs, asked = crew.system.state.jobs, Jobs()
        state = msgspec.structs.replace(crew.system.state, jobs=asked)
        crew.pool = WorkerPool(msgspec.structs.replace(crew.system, state=state), crew.ears, terms=terms)
        async with crew.on():
            await until(lambda: len(crew.ears.jobs(JobBegun)) == 2)
            asked.armed = True
            waiting = [await crew.job(name, source=source(urls=[f"{site.url}{name}"])) for name in ("one", "two")]
            # then the pool goes on with the others
            await until(lambda: {job.id for job in waiting} <= set(crew.ears.jobs(JobEnded)))


async def test_a_job_that_waits_for_a_retry_makes_way(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = msgspec.structs.replace(QUICK, jobs_for_a_page=1, turn=HOUR)
    async with shift(tmp_path, terms=terms, **{"crawl.concurrency": 1, "retry.base": "60s"}) as crew, crew.on():
        # given one place, and a job in it whose only page is to be tried again in a while
        failing = await crew.job("failing", source=source(urls=["http://away.localhost:8/"]))
        await until(lambda: crew.ears.jobs(JobBegun) == [failing.id])
        # when another one comes, then it is served
        good = await crew.job("good", source=source(urls=[site.url]))
        await until(lambda: crew.ears.jobs(JobEnded) == [good.id])
        assert await crew.standing(failing) is JobState.RUNNING


async def test_jobs_whose_window_is_closed_take_no_share_of_the_concurrency(tmp_path: Path, site: Site) -> None:
    site.held = True
    async with shift(tmp_path, **{"crawl.concurrency": 4}) as crew, crew.on():
        for n in range(3):
            await crew.job(f"closed-{n}", windows=closed_now(), source=source(urls=[site.url]))
        await crew.job("open", source=source(urls=[f"{site.url}{{1..20}}"]))
        await until(lambda: len(crew.ears.jobs(JobBegun)) == 4)
        await until(lambda: site.inside == 4)


async def test_a_job_that_is_cancelled_while_its_window_is_closed_is_let_go(
    tmp_path: Path, state: dict[str, str]
) -> None:
    async with shift(tmp_path, **state) as crew, crew.on():
        job = await crew.job("night", windows=closed_now(), source=source(urls=["http://away.localhost:8/"]))
        await until(lambda: crew.ears.jobs(JobBegun) == [job.id])
        assert await crew.system.state.control.cancel_job(job.id)
        await until(lambda: crew.ears.jobs(JobLeft) == [job.id])


@pytest.mark.parametrize("obstacle", ["window", "pause"])
async def test_what_cannot_be_worked_on_now_is_told_and_left_for_later(tmp_path: Path, obstacle: str) -> None:
    # given a worker that ends when nothing is left to do, and a job that waits for its hour or for a person
    async with shift(tmp_path, until_idle=True) as crew:
        windows = closed_now() if obstacle == "window" else ""
        job = await crew.job("later", windows=windows, source=source(urls=["http://away.localhost:8/"]))
        if obstacle == "pause":
            await crew.system.state.control.pause_job(job.id, True)
        async with asyncio.timeout(PATIENCE):
            await crew.pool.run()
        # then it ends and has said why, and the job is as it was
        [trouble] = [event for event in crew.ears.heard if isinstance(event, Trouble)]
        assert ("its window opens at" if obstacle == "window" else "it is paused") in trouble.message
        assert await crew.standing(job) is JobState.RUNNING


async def test_a_worker_to_which_the_others_leave_no_page_says_so_and_calls_it_no_trouble(
    tmp_path: Path, site: Site, state: dict[str, str]
) -> None:
    # given a site that takes one request at a time, and a worker that has it
    site.held = True
    one_at_a_time = {**state, "politeness.concurrency": 1}
    short = msgspec.structs.replace(QUICK, no_page=timedelta(milliseconds=50))
    async with shift(tmp_path, **one_at_a_time) as busy, busy.on():
        job = await busy.job("shop", source=source(urls=[f"{site.url}{{1..3}}"]))
        await until(lambda: site.inside == 1)
        # when another one comes to help
        async with shift(tmp_path, until_idle=True, terms=short, **one_at_a_time) as idle:
            running = asyncio.create_task(idle.pool.run())
            await until(lambda: idle.ears.jobs(JobWaits) == [job.id])
            site.held = False
            site.open.set()
            async with asyncio.timeout(PATIENCE):
                await running
    # then it says why it has nothing to do
    [told] = [event for event in idle.ears.heard if isinstance(event, JobWaits)]
    assert told.message.startswith(f"Other workers have the pages of {job.id}")
    assert idle.ears.jobs(Trouble) == []


async def test_a_pause_ends_a_worker_that_has_nothing_else_to_do(tmp_path: Path, site: Site) -> None:
    site.pause = 0.02
    async with shift(tmp_path, until_idle=True) as crew:
        job = await crew.job("long", source=source(urls=[f"{site.url}{{1..5000}}"]))
        running = asyncio.create_task(crew.pool.run())
        await until(lambda: site.inside > 0)
        await crew.system.state.control.pause_job(job.id, True)
        async with asyncio.timeout(PATIENCE):
            await running
        assert await crew.standing(job) is JobState.RUNNING


async def test_what_is_wrong_with_a_job_is_said_once_and_others_go_on(tmp_path: Path, site: Site) -> None:
    async with shift(tmp_path, **{"crawl.concurrency": 1}) as crew:
        tries = tmp_path / "tries"
        (tmp_path / "spiders" / "grumpy.py").write_text(GRUMPY.format(tries=str(tries)), encoding="utf-8")
        async with crew.on():
            # given a spider that cannot start, and was tried again and again
            grumpy = await crew.job("grumpy")
            await until(lambda: tries.exists() and len(tries.read_text()) >= 3)
            good = await crew.job("good", source=source(urls=[site.url]))
            await until(lambda: crew.ears.jobs(JobEnded) == [good.id])
    [trouble] = [event for event in crew.ears.heard if isinstance(event, Trouble)]
    assert trouble.message == f"Job {grumpy.id} is left to others: start() of grumpy failed: RuntimeError: not today"
    assert crew.ears.jobs(JobBegun) == [grumpy.id, good.id]


async def test_a_job_that_waits_with_its_source_for_a_window_makes_way(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = msgspec.structs.replace(QUICK, idle=timedelta(seconds=0.2))
    async with shift(tmp_path, terms=terms, **{"crawl.concurrency": 1}) as crew:
        # given more jobs than places, whose sitemaps may be fetched at night only
        nights = [
            await crew.job(f"night-{n}", source=source(sitemap=f"{site.url}map.xml"), windows=closed_now())
            for n in range(QUICK.jobs_for_a_page + 1)
        ]
        async with crew.on():
            await until(lambda: len(crew.ears.jobs(JobBegun)) >= 1)
            # when one comes that can work now, it does
            day = await crew.job("day", source=source(urls=[site.url]))
            await until(lambda: day.id in crew.ears.jobs(JobEnded))
        assert {await crew.standing(job) for job in nights} == {JobState.RUNNING}


async def batch(crew: Shift, urls: Sequence[str], *, note: str = "") -> Job:
    """A job as the API opens it, with its pages in the queue. Its terms hold the note with each of them."""
    pages = tuple(WantedPage(request=Request(url=url, data={"note": note})) for url in urls)
    source = msgspec.json.encode(PagesSource(pages=pages)).decode()
    terms = JobTerms(spider=RAW_PAGES, source=source, depth=0, owner="key")
    admission = admission_of(crew.system.rules, RawPageSpider(), link_scope(crew.system.settings, None, 0), named=True)
    seeds = admission.judge([Request(url=url) for url in urls]).candidates
    job, _ = await crew.system.state.jobs.open_job(f"batch-{uuid4().hex[:8]}", terms, fresh=False, seeds=seeds)
    return job


BATCHES = msgspec.structs.replace(QUICK, turn=HOUR, idle=HOUR)
HERE = {"fetch.allow_hosts": ["127.0.0.1"]}


async def test_batches_that_begin_together_ask_for_no_more_pages_than_their_share(tmp_path: Path, site: Site) -> None:
    async with shift(tmp_path, terms=BATCHES, **{"crawl.concurrency": 4, **HERE}) as crew:
        asked: dict[str, int] = {}  # pages, by the first call of a job

        class Leases:
            def __init__(self, frontier: Any) -> None:
                self.frontier = frontier

            def __getattr__(self, name: str) -> Any:
                return getattr(self.frontier, name)

            async def lease(self, job: str, worker: str, wanted: int, *more: Any) -> Any:
                asked.setdefault(job, wanted)
                return await self.frontier.lease(job, worker, wanted, *more)

        @contextmanager
        def frontier_for(terms_for: Any) -> Iterator[Any]:
            with crew.system.state.frontier_for(terms_for) as frontier:
                yield Leases(frontier)

        state = msgspec.structs.replace(crew.system.state, frontier_for=frontier_for)
        crew.pool = WorkerPool(msgspec.structs.replace(crew.system, state=state), crew.ears, terms=BATCHES)
        jobs = [await batch(crew, [f"{site.url}{n}-{page}" for page in range(20)]) for n in range(4)]
        async with crew.on():
            await until(lambda: {*crew.ears.jobs(JobEnded)} == {job.id for job in jobs})
    assert len(asked) == 4
    assert sum(asked.values()) <= 4 + 2 + 2 + 1  # as the first, the second, the third and the fourth job


async def test_a_batch_that_cannot_begin_ends_with_its_worker(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a worker that has no room for results
    waits = asyncio.Event()

    def full(_: object) -> bool:
        waits.set()
        return True

    monkeypatch.setattr(Sink, "full", property(full))
    async with shift(tmp_path, terms=BATCHES, **HERE) as crew:
        job = await batch(crew, [site.url])
        async with asyncio.timeout(PATIENCE), crew.on():
            await asyncio.wait_for(waits.wait(), PATIENCE)
        # then it ends when it is drained, and the job is not begun
        assert await crew.standing(job) is JobState.RUNNING
    assert crew.ears.jobs(JobBegun) == []


async def test_names_that_do_not_exist_in_one_batch_do_not_stop_another(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look(self: SecondOpinion) -> None:
        self._peers, self._peers_settle = 1, True  # another machine is alive

    monkeypatch.setattr(SecondOpinion, "_look", look)
    monkeypatch.setattr(second_opinion, "RESTS", Backoff(first=HOUR, longest=HOUR))
    async with shift(tmp_path, terms=BATCHES, **HERE) as crew, crew.on():
        await batch(crew, [f"http://no{n}.invalid/" for n in range(4)])
        await until(lambda: len(crew.ears.jobs(Released)) >= 4)
        good = await batch(crew, [site.url])
        await until(lambda: crew.ears.jobs(JobEnded) == [good.id])


async def test_the_pages_of_large_batches_are_not_kept_in_memory(tmp_path: Path, state: dict[str, str]) -> None:
    size = 2_000_000  # characters
    async with shift(tmp_path, **state) as crew:
        system = crew.system
        jobs = [await batch(crew, ["http://a.test/"], note="x" * size) for _ in range(3)]
        with system.state.frontier_for(system.live.follow(site_terms)) as frontier:
            tracemalloc.start()
            try:
                assert len(await system.state.jobs.running_jobs()) == 3
                for job in jobs:
                    assert (await frontier.lease(job.id, "w", 1)).leases
                gc.collect()
                kept, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    assert kept < size


class Server:
    """Answers with what `respond` gives for a path: a target to move to, or None for a page. Notes the paths."""

    def __init__(self, respond: Callable[[str], Awaitable[str | None]]) -> None:
        self.paths: list[str] = []
        self._respond = respond

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ")[1].decode()
                self.paths.append(path)
                to = await self._respond(path)
                if to is not None:
                    writer.write(f"HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode())
                else:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 9\r\n\r\n<p>Hi</p>")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        finally:
            server.close()


async def test_a_page_of_a_batch_that_moved_does_not_wait_for_a_slow_one(tmp_path: Path) -> None:
    come = asyncio.Event()

    async def respond(path: str) -> str | None:
        if path == "/slow":
            await come.wait()
        elif path == "/target":
            come.set()
        return "/target" if path == "/moved" else None

    server = Server(respond)
    async with server.open() as url, shift(tmp_path, terms=BATCHES, **HERE) as crew, crew.on():
        job = await batch(crew, [f"{url}slow", f"{url}moved"])
        await until(lambda: crew.ears.jobs(JobEnded) == [job.id])
    assert {*server.paths} == {"/slow", "/moved", "/target"}


async def test_a_slow_robots_txt_that_moved_keeps_pages_of_its_site_from_waiting_for_each_other(tmp_path: Path) -> None:
    several_turns = 0.5

    async def respond(path: str) -> str | None:
        if path == "/robots.txt":
            await asyncio.sleep(several_turns)
            return "/elsewhere.txt"
        return None

    server = Server(respond)
    paced = {"crawl.concurrency": 8, "politeness.rate": "10/s", "politeness.robots": True, "politeness.concurrency": 4}
    async with server.open() as url, shift(tmp_path, terms=BATCHES, **paced) as crew, crew.on():
        jobs = [await crew.job(f"job-{n}", source=source(urls=[f"{url}{n}"])) for n in range(2)]
        await until(lambda: {*crew.ears.jobs(JobEnded)} == {job.id for job in jobs})
    # then none of them was given back because its turn did not come
    assert crew.ears.jobs(Released) == []
    assert server.paths[:2] == ["/robots.txt", "/elsewhere.txt"]

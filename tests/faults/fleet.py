"""A project on the fleet's backends, workers in processes of their own, and the verdict of the target server's log."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from gossamer.frontier.contract import DeadFilter, DeadLetter
from gossamer.model.item_account import NO_ITEMS, ItemCounts
from gossamer.model.job import JobCounts
from gossamer.model.record import StoredRecord
from gossamer.project.open import Project, open_project
from gossamer.settings import load
from gossamer.store.contract import RecordQuery
from tests import patience
from tests.faults import crashing
from tests.faults.crawlers import PATIENT, SPIDER
from tests.patience import PATIENCE
from tests.services.postgres import PostgresServer, running_postgres
from tests.services.seaweed import ACCESS_KEY, SECRET_KEY, Seaweed
from tests.services.valkey import DURABLE, ValkeyServer, running_valkey
from tests.sites.running import ROOT, Park

POLL = 0.02


@dataclass
class Outcome:
    """What the project's own books say at the end."""

    counts: JobCounts
    records: list[StoredRecord]
    letters: list[DeadLetter] = field(default_factory=list)
    items: ItemCounts = NO_ITEMS


class WorkerProcess:
    """A process that crawls, and the file with what it said."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code; None while it lives."""
        return self._process.poll()

    def signal(self, sign: signal.Signals) -> None:
        self._process.send_signal(sign)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def wait(self, within: float = PATIENCE) -> int | None:
        try:
            return self._process.wait(max(0.1, within))
        except subprocess.TimeoutExpired:
            return None

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


class NoSeeds:
    """In place of a park, where the spider names its own site."""

    certificate = None

    def seeds(self) -> list[str]:
        return []


class FleetProject:
    """A folder with a gossamer.toml that names the fleet's addresses, and the park's spider."""

    def __init__(
        self,
        folder: Path,
        site: Park,
        *,
        state: str,
        records: str,
        archive: str = "folder:///pages",
        concurrency: int = 8,
        settings: str = "",
        politeness: str = 'rate = "unlimited"\nconcurrency = 4',
        spider: str = SPIDER,
        environment: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        self.folder = folder
        self.site = site
        self.project = name or f"park-{uuid4().hex[:12]}"
        self._concurrency = concurrency
        self._started = 0
        (folder / "spiders").mkdir(parents=True, exist_ok=True)
        (folder / "spiders" / "park.py").write_text(spider)
        (folder / "gossamer.toml").write_text(
            f'project = "{self.project}"\nstate = "{state}"\nrecords = "{records}"\narchive = "{archive}"\n'
            f"[politeness]\n{politeness}\n[fetch]\nallow_private = true\n{PATIENT}{settings}\n"
        )
        self._environment = {
            **os.environ,
            "PARK_SEEDS": json.dumps(site.seeds()),
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "PYTHONPATH": str(ROOT),
            **(environment or {}),
        }
        if site.certificate is not None:
            self._environment["SSL_CERT_FILE"] = str(site.certificate)

    @property
    def environment(self) -> Mapping[str, str]:
        """Of every process that is started from now on."""
        return self._environment

    def set(self, **environment: str) -> None:
        self._environment.update(environment)

    def crew(self, size: int, *faults: str) -> list[WorkerProcess]:
        """The crawl that begins the job, and workers that join it; each with a fault of its own as far as they go."""
        built_in = [*faults, *[""] * size][:size]
        first = self.start(built_in[0], command=("crawl", "park"))
        poll_until(lambda: bool(self.site.hits(robots=True)), [first])
        return [first, *(self.start(fault) for fault in built_in[1:])]

    def start(
        self, fault: str = "", *, command: Sequence[str] = ("worker", "--until-idle"), **environment: str
    ) -> WorkerProcess:
        """One more worker, perhaps with a fault built in. It ends when no job is left."""
        self._started += 1
        log = self.folder / f"worker-{self._started}.txt"
        process = subprocess.Popen(
            [
                sys.executable, "-m", crashing.__name__, *command, "--quiet",
                "--concurrency", str(self._concurrency),
            ],
            cwd=self.folder,
            env={**self._environment, **environment, "FAULT": fault},
            stdin=subprocess.DEVNULL,
            stdout=log.open("wb"),
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        return WorkerProcess(process, log)

    def outcome(self) -> Outcome:
        return asyncio.run(self._look())

    async def _look(self) -> Outcome:
        os.environ.update(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY)
        async with open_project(load(start=self.folder, environ={}), to_look=True) as system:
            return await _read(system)


async def _read(system: Project) -> Outcome:
    jobs = await system.state.jobs.jobs()
    assert len(jobs) == 1, jobs
    return Outcome(
        counts=await system.state.jobs.counts(jobs[0].id),
        records=[record async for record in system.records.records(RecordQuery())],
        letters=await system.state.queue.dead(DeadFilter()),
        items=await system.records.items(jobs[0].id),
    )


@contextmanager
def workers(*processes: WorkerProcess) -> Iterator[list[WorkerProcess]]:
    """Ends what is still running when the block ends."""
    crew = list(processes)
    try:
        yield crew
    finally:
        for worker in crew:
            worker.kill()


def wait_for_all(crew: list[WorkerProcess], within: float = PATIENCE, *, expected: int = 0) -> None:
    """Until every worker has ended, with the expected exit code. Fails with their own words."""
    deadline = time.monotonic() + within
    for worker in crew:
        code = worker.wait(deadline - time.monotonic())
        assert code == expected, f"exit code {code}: {worker.said()}"


def poll_until(reached: Callable[[], object], crew: Sequence[WorkerProcess] = ()) -> None:
    """Look until it is so. Fails at once when a worker of `crew` gave up, with its own words."""

    def look_after_crew() -> None:
        for worker in crew:
            assert worker.code is None or worker.code <= 0, worker.said()

    patience.poll_until(
        reached, between=look_after_crew, every=POLL, said=lambda: "\n".join(one.said()[-2000:] for one in crew)
    )


def assert_whole(project: FleetProject, *, extra: int) -> Outcome:
    """The common verdict: nothing lost, nothing twice, all accounted for, at most `extra` pages fetched again."""
    site = project.site
    hits = Counter((hit.host, hit.path) for hit in site.hits())
    wanted = {(host, path) for host in site.hosts for path in site.grounds.paths(host)}
    assert set(hits) == wanted
    repeated = sum(hits.values()) - len(wanted)
    assert repeated <= extra, f"{repeated} pages were fetched again, at most {extra} were in flight"
    outcome = project.outcome()
    truth = site.truth()
    keys = [record.key for record in outcome.records]
    assert len(keys) == len(set(keys))
    assert set(keys) == truth.keys()
    for record in outcome.records:
        assert (record.data["title"], record.url) == (truth[record.key]["title"], truth[record.key]["url"])
    counts = outcome.counts
    # Every page yields one item, and it is counted once, however often it was stored.
    assert outcome.items.states() == {"new": len(truth)}
    assert outcome.items.yielded == len(truth)
    assert outcome.letters == []
    assert (counts.done, counts.open, counts.dead) == (len(wanted), 0, 0)
    assert counts.discovered == counts.open + counts.settled + counts.dropped + counts.duplicates
    return outcome


@dataclass(frozen=True)
class Services:
    valkey: ValkeyServer
    postgres: PostgresServer
    s3: Seaweed

    def project(self, folder: Path, site: Park, **options: object) -> FleetProject:
        named = {"state": self.valkey.address(), "records": self.postgres.address(), **options}
        return FleetProject(folder, site, **named)  # type: ignore[arg-type]


@contextmanager
def own_services(s3: Seaweed) -> Iterator[Services]:
    """A Valkey and a PostgreSQL that a test may kill."""
    with ExitStack() as stack:
        valkey = stack.enter_context(running_valkey(*DURABLE))
        postgres = stack.enter_context(running_postgres())
        yield Services(valkey, postgres, s3)

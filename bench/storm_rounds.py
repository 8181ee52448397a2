"""The rounds of `make storm`: a fleet, a job, and what goes wrong while it runs. storm.py judges what came of it.

Every round is a new job of the same project on the same site, which has a new edition each time: each record must get
one new version, and none may be missed. A round ends when all its workers have ended, or at LIMIT after its last fault.
What a round broke it mends itself; leaving `fleet` ends every process.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

from tests.faults.commands import children_of
from tests.faults.fleet import FleetProject, WorkerProcess
from tests.services.cable import Cable, cable_to
from tests.services.postgres import PostgresServer
from tests.services.seaweed import ACCESS_KEY, SECRET_KEY, running_seaweed
from tests.services.valkey import ValkeyServer, running_valkey
from tests.sites.running import Park, park

WORKERS = 4
HOSTS = 25
CONCURRENCY = 8  # pages at once in each worker
PER_SITE = 4  # pages at once of each site
INTERVAL = 0.1  # seconds between two requests to a site
DELAYED = {"site3.localhost": 1.0, "site4.localhost": 1.0}  # their crawl-delay, seconds
DELAYED_PAGES = 12
UNLIMITED = ("site1.localhost", "site2.localhost", "site4.localhost")
APART = "site24.localhost"  # the host that goes away
LEASE = 10.0  # seconds
LIMIT = 120.0  # seconds from the last fault to the end of all workers

SETTINGS = f"""
[lease]
duration = "{LEASE:.0f}s"
max_deliveries = 100
""" + "".join(f'[domains."{host}"]\nrate = "unlimited"\n' for host in UNLIMITED)


@dataclass
class Fault:
    """Something that went wrong, and when (monotonic)."""

    what: str
    began: float
    ended: float


@dataclass
class Fleet:
    """The backends, and the one project that all rounds work on."""

    folder: Path
    valkey: ValkeyServer
    postgres: PostgresServer
    s3_cable: Cable
    archive: str
    pages: int
    name: str = field(default_factory=lambda: f"storm-{uuid4().hex[:8]}")
    ports: tuple[int, int] = (0, 0)
    edition: int = 0

    @contextmanager
    def site(self) -> Iterator[Park]:
        """The next edition of the site, at the same addresses."""
        share = max(2, (self.pages - len(DELAYED) * DELAYED_PAGES) // (HOSTS - len(DELAYED)))
        plan = {
            "hosts": HOSTS, "pages": share, "pages_of": dict.fromkeys(DELAYED, DELAYED_PAGES), "body_bytes": 1500,
            "links": 5, "latency_ms": 10, "latency_ms_of": {UNLIMITED[0]: 150}, "apart": [APART],
            "robots": "User-agent: *\nDisallow:", "crawl_delay_of": DELAYED, "edition": self.edition,
        }  # fmt: skip
        with park(port=self.ports[0], port_apart=self.ports[1], **plan) as site:
            self.ports = (site.port, site.port_apart)
            with suppress(PermissionError):
                os.setpriority(os.PRIO_PROCESS, site.pid, -10)
            yield site
        self.edition += 1


@contextmanager
def fleet(pages: int) -> Iterator[Fleet]:
    with ExitStack() as stack:
        valkey = stack.enter_context(running_valkey("--appendonly", "yes", "--appendfsync", "everysec"))
        s3 = stack.enter_context(running_seaweed())
        cable = stack.enter_context(cable_to(int(s3.endpoint.rpartition(":")[2])))
        postgres = PostgresServer()
        stack.callback(postgres.close)
        postgres.start()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="storm-")))
        os.environ.update(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY)
        archive = s3.address("storm").replace(s3.endpoint, f"http://127.0.0.1:{cable.port}")
        yield Fleet(folder, valkey, postgres, cable, archive, pages)


class Round:
    """One job under way. `complaints` are the things that should not have been, other than what the stores tell."""

    def __init__(self, fleet: Fleet, site: Park, chance: random.Random, settings: str = "") -> None:
        self.fleet = fleet
        self.site = site
        self.chance = chance
        self.pages = sum(site.grounds.page_count(host) for host in site.hosts)
        self.project = FleetProject(
            fleet.folder,
            site,
            name=fleet.name,
            state=fleet.valkey.address(),
            records=fleet.postgres.address(),
            archive=fleet.archive,
            concurrency=CONCURRENCY,
            politeness=f'rate = "{1 / INTERVAL:g}/s"\nconcurrency = {PER_SITE}',
            settings=f"{SETTINGS}{settings}",
        )
        self.crew: list[WorkerProcess] = []
        self.faults: list[Fault] = []
        self.complaints: list[str] = []
        self.spools = [fleet.folder / "gossamer-data" / "spool"]
        self.began = time.monotonic()
        self._finished = False

    # -- the job ---------------------------------------------------------------------------------------------------

    def begin(self, size: int = WORKERS, *faults: str) -> None:
        """The crawl that begins the job, and workers that join it."""
        built_in = [*faults, *[""] * size][:size]
        self.crew = [self.project.start(built_in[0], command=("crawl", "park"))]
        self.asked(1)
        self.crew += [self.project.start(fault) for fault in built_in[1:]]

    def reached(self, share: float) -> None:
        """Wait until the site was asked for that share of its pages."""
        self.asked(round(share * self.pages))

    def asked(self, goal: int) -> None:
        """Wait until the site got so many requests, or nobody is left who could make them, or for LIMIT."""
        deadline = time.monotonic() + LIMIT
        while self.site.count() < goal and any(worker.code is None for worker in self.crew):
            if time.monotonic() > deadline:
                self.complaints.append(f"{LIMIT:.0f} s for the way to {goal} requests were not enough")
                return
            time.sleep(0.05)

    def finish(self) -> None:
        """Wait until every worker has ended well. Done once: a round may have to wait before it mends something."""
        if self._finished:
            return
        self._finished = True
        deadline = time.monotonic() + LIMIT
        for worker in self.crew:
            code = worker.wait(deadline - time.monotonic())
            if code is None:
                self.complaints.append(f"a worker had not ended {LIMIT:.0f} s after the last fault")
            elif code:
                self.complaints.append(f"a worker ended with {code}: {worker.said().strip()[-200:]}")

    def close(self) -> None:
        for worker in self.crew:
            for pid in children_of(worker.pid) if worker.code is None else ():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            worker.kill()

    # -- faults ----------------------------------------------------------------------------------------------------

    @contextmanager
    def fault(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.faults.append(Fault(what, began, time.monotonic()))

    def anybody(self) -> int:
        """The place of a worker that is alive; any place when none is."""
        alive = [place for place, worker in enumerate(self.crew) if worker.code is None]
        return self.chance.choice(alive or range(len(self.crew)))

    def kill_worker(self) -> None:
        place = self.anybody()
        with self.fault("worker killed"):
            self.crew[place].kill()
        self.crew[place] = self.project.start()

    def stop_workers(self, number: int, seconds: float) -> None:
        places = self.chance.sample(range(len(self.crew)), number)
        with self.fault("worker stopped"):
            for place in places:
                self.crew[place].signal(signal.SIGSTOP)
            time.sleep(seconds)
            for place in places:
                self.crew[place].signal(signal.SIGCONT)

    def kill_valkey(self, away: float, policy: str = "everysec") -> None:
        self.fleet.valkey.say("CONFIG", "SET", "appendfsync", policy)
        with self.fault("Valkey killed"):
            self.fleet.valkey.kill()
            time.sleep(away)
            self.fleet.valkey.start()

    def cut_power_of_valkey(self) -> None:
        with self.fault("Valkey lost its last second"):
            self.fleet.valkey.lose_power(1.0)
            self.fleet.valkey.start()

    def take_postgres(self, away: float, *, killed: bool) -> None:
        with self.fault(f"PostgreSQL {'killed' if killed else 'stopped'}"):
            self.fleet.postgres.kill() if killed else self.fleet.postgres.stop()
            time.sleep(away)
            self.fleet.postgres.start()

    def take_s3(self, back: Callable[[], None]) -> None:
        with self.fault("S3 away"):
            self.fleet.s3_cable.cut()
            back()
            self.fleet.s3_cable.mend()

    def take_host(self, away: float) -> None:
        with self.fault(f"{APART} away"):
            self.site.go_away()
            time.sleep(away)
            self.site.come_back()


# -- the rounds ----------------------------------------------------------------------------------------------------


def calm(run: Round) -> None:
    run.begin()


def workers_killed(run: Round) -> None:
    run.begin()
    for share in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        run.reached(share)
        run.kill_worker()


def supervisors_killed(run: Round) -> None:
    run.begin(1)
    command = ("worker", "--until-idle", "--processes", str(WORKERS - 1))
    run.crew.append(run.project.start(command=command))
    for share in (0.2, 0.4, 0.6, 0.8):
        run.reached(share)
        children = sorted(children_of(run.crew[1].pid))
        with run.fault("supervisor killed"):
            if share in (0.4, 0.8) and children:  # between, one of its children
                os.kill(run.chance.choice(children), signal.SIGKILL)
            else:
                run.crew[1].kill()
        if run.crew[1].code is not None:
            run.crew[1] = run.project.start(command=command)


def workers_stopped(run: Round) -> None:
    run.begin()
    for share in (0.2, 0.6):
        run.reached(share)
        run.stop_workers(2, LEASE + 3)


def valkey_killed(run: Round, policy: str) -> None:
    run.begin()
    for share in (0.2, 0.5, 0.8):
        run.reached(share)
        run.kill_valkey(1.0, policy)


def valkey_lost_its_last_second(run: Round) -> None:
    run.begin()
    for share in (0.2, 0.5, 0.8):
        run.reached(share)
        run.cut_power_of_valkey()


def postgres_stopped(run: Round) -> None:
    run.begin()
    run.reached(0.3)
    run.take_postgres(8.0, killed=False)
    run.reached(0.9)
    run.take_postgres(8.0, killed=False)


def postgres_killed(run: Round) -> None:
    run.begin()
    for share in (0.2, 0.6):
        run.reached(share)
        run.take_postgres(3.0, killed=True)


def s3_away(run: Round) -> None:
    """Until all pages were asked for, and a little longer: the job's end is near by then."""
    run.begin()
    run.reached(0.3)

    def back() -> None:
        run.asked(run.pages)
        time.sleep(4)

    run.take_s3(back)


def disk_full(run: Round) -> None:
    """The disk of all spools has 200 KB, and the records cannot be stored."""
    place = run.fleet.folder / "small-disk"
    place.mkdir(exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k,mode=0700", "tmpfs", str(place)], capture_output=True
    )
    if made.returncode:
        raise Skipped("only root can make a small disk")
    run.spools.append(place)
    try:
        run.project.set(GOSSAMER_STORE__SPOOL=str(place))
        run.begin()
        run.reached(0.3)
        run.take_postgres(10.0, killed=False)
        run.finish()
    finally:
        run.close()
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def leader_killed(run: Round) -> None:
    """A schedule begins the job; every scheduler is killed in turn before that moment, around it, and afterwards."""
    schedulers: list[subprocess.Popen[bytes]] = []

    def begin() -> None:
        with (run.fleet.folder / "schedulers.txt").open("ab") as log:
            schedulers.append(
                subprocess.Popen(
                    [sys.executable, "-m", "gossamer", "scheduler", "--quiet"],
                    cwd=run.fleet.folder, env=run.project.environment, stdin=subprocess.DEVNULL, stdout=log,
                    stderr=log,
                )
            )  # fmt: skip

    def kill(place: int) -> None:
        with run.fault("scheduler killed"):
            schedulers[place].kill()
            schedulers[place].wait()
        del schedulers[place]
        begin()

    try:
        for _ in range(3):
            begin()
        for _ in range(6):  # twelve seconds, in the middle of which the job is due
            time.sleep(2)
            kill(0)
        run.crew = [run.project.start(command=("worker",)) for _ in range(WORKERS)]
        run.asked(1)
        for share in (0.3, 0.5, 0.7):
            run.reached(share)
            kill(0)
        run.asked(run.pages)
        time.sleep(5)
        for worker in run.crew:
            worker.signal(signal.SIGTERM)
        run.finish()
    finally:
        for scheduler in schedulers:
            scheduler.kill()
            scheduler.wait()


def cut_off_from_valkey(run: Round) -> None:
    with cable_to(run.fleet.valkey.port) as cable:
        run.begin(WORKERS - 1)
        run.crew.append(run.project.start(GOSSAMER_STATE=f"redis://127.0.0.1:{cable.port}/0"))
        run.reached(0.3)
        with run.fault("worker cut off from Valkey"):
            cable.freeze()
            time.sleep(LEASE + 5)
            cable.mend()
        run.finish()


def cut_off_from_postgres(run: Round) -> None:
    """One machine, with a spool of its own, cannot store anything until all others are done."""
    spool = run.fleet.folder / "spool-of-another-machine"
    run.spools.append(spool)
    with cable_to(run.fleet.postgres.port) as cable:
        records = run.fleet.postgres.address().replace(f":{run.fleet.postgres.port}/", f":{cable.port}/")
        run.begin(WORKERS - 1)
        other = run.project.start(GOSSAMER_RECORDS=records, GOSSAMER_STORE__SPOOL=str(spool))
        run.crew.append(other)
        run.reached(0.3)
        with run.fault("worker cut off from PostgreSQL"):
            cable.cut()
            run.asked(run.pages)
            time.sleep(8)
            cable.mend()
        run.finish()


def clocks_off(run: Round) -> None:
    run.begin(WORKERS, "clock:3600", "clock:-3600", "clock:7")


def host_away(run: Round) -> None:
    run.begin()
    run.reached(0.2)
    run.take_host(40.0)


def all_at_random(run: Round) -> None:
    run.begin()
    ends = time.monotonic() + 45
    while time.monotonic() < ends and run.site.count() < 0.9 * run.pages:
        time.sleep(run.chance.uniform(0.5, 2))
        run.chance.choice(
            [
                run.kill_worker,
                run.kill_worker,
                lambda: run.stop_workers(1, LEASE + 2),
                lambda: run.kill_valkey(1.0),
                run.cut_power_of_valkey,
                lambda: run.take_postgres(2.0, killed=True),
                lambda: run.take_s3(lambda: time.sleep(3)),
                lambda: run.take_host(5.0),
            ]
        )()


class Skipped(Exception):
    """The round cannot be played here, and why."""


def due_soon() -> str:
    at = (datetime.now(UTC) + timedelta(seconds=7)).isoformat(timespec="seconds")
    return f'[schedules.park]\nspider = "park"\nat = "{at}"\n'


ROUNDS: dict[str, Callable[[Round], None]] = {
    "calm": calm,
    "workers killed": workers_killed,
    "supervisors killed": supervisors_killed,
    "workers stopped": workers_stopped,
    "Valkey killed, everysec": partial(valkey_killed, policy="everysec"),
    "Valkey killed, always": partial(valkey_killed, policy="always"),
    "Valkey's last second lost": valkey_lost_its_last_second,
    "PostgreSQL stopped": postgres_stopped,
    "PostgreSQL killed": postgres_killed,
    "S3 away": s3_away,
    "spool's disk full": disk_full,
    "schedulers killed": leader_killed,
    "cut off from Valkey": cut_off_from_valkey,
    "cut off from PostgreSQL": cut_off_from_postgres,
    "clocks off": clocks_off,
    "a host away": host_away,
    "all at random": all_at_random,
}

"""What `make storm` runs: a fleet with its backends, a site, and jobs with workers that somebody kills.

The site and the state are reached over TLS; the S3 server and the PostgreSQL server of the tests have none. Every round
is a new job of the same project on the same site, which has a new edition each time: each record must get one new
version, and none may be missed. A round ends when its workers have ended, or when nothing happens for LIMIT. Leaving
`fleet` ends every process.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from tests.faults.commands import children_of
from tests.faults.fleet import FleetProject, WorkerProcess
from tests.services.cable import Cable, cable_to
from tests.services.postgres import PostgresServer, running_postgres
from tests.services.proxies import Vouched, vouched_for
from tests.services.seaweed import ACCESS_KEY, SECRET_KEY, running_seaweed
from tests.services.sqlite import SqliteFile
from tests.services.valkey import DURABLE, ValkeyServer, running_valkey
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
LIMIT = 120.0  # seconds without a request, and from the last request to the end of all workers

WITH_LETTERS = 3  # exit code of a crawl that ended with dead letters
ORDERS = 12  # of each host, in rounds with POSTs

SPIDER = """
import json, os
from gossamer import Item, Page, Request, Spider

class Plant(Item, key="sku"):
    sku: str
    title: str
    price: str

class Park(Spider):
    def start(self):
        for url in json.loads(os.environ["PARK_SEEDS"]):
            yield Request(url=url)
        for url in json.loads(os.environ["PARK_ORDERS"]):
            yield Request(url=url, method="POST")

    def parse(self, page: Page):
        yield Plant(
            url=page.url,
            sku=page.css(".sku::text").get(),
            title=page.css("h1::text").get(),
            price=page.css(".price::text").get(),
        )
        yield from page.follow_all("a")
"""
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
    papers: Vouched  # of the cable to the state
    state_cable: Cable
    s3_cable: Cable
    archive: str
    pages: int
    name: str = field(default_factory=lambda: f"storm-{uuid4().hex[:8]}")
    ports: tuple[int, int] = (0, 0)
    edition: int = 0

    def state(self, cable: Cable) -> str:
        return f"rediss://127.0.0.1:{cable.port}/0"

    @contextmanager
    def site(self, orders: int) -> Iterator[Park]:
        """The next edition of the site, at the same addresses."""
        share = max(2, (self.pages - len(DELAYED) * DELAYED_PAGES) // (HOSTS - len(DELAYED)))
        plan = {
            "hosts": HOSTS, "pages": share, "pages_of": dict.fromkeys(DELAYED, DELAYED_PAGES), "body_bytes": 1500,
            "links": 5, "latency_ms": 10, "latency_ms_of": {UNLIMITED[0]: 150}, "apart": [APART],
            "robots": "User-agent: *\nDisallow:", "crawl_delay_of": DELAYED, "edition": self.edition,
            "tls": True, "orders": orders,
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
        valkey = stack.enter_context(running_valkey(*DURABLE))
        s3 = stack.enter_context(running_seaweed())
        cable = stack.enter_context(cable_to(int(s3.endpoint.rpartition(":")[2])))
        postgres = stack.enter_context(running_postgres())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="storm-")))
        papers = vouched_for(folder)
        state_cable = stack.enter_context(cable_to(valkey.port, papers.server))
        os.environ.update(
            AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY, SSL_CERT_FILE=str(papers.file)
        )
        archive = s3.address("storm").replace(s3.endpoint, f"http://127.0.0.1:{cable.port}")
        yield Fleet(folder, valkey, postgres, papers, state_cable, cable, archive, pages)


class Round:
    """One job under way. `complaints` are the things that should not have been, other than what the stores tell.

    `alone`: not on the fleet's backends, but on SQLite and files, in a project of its own.
    """

    def __init__(
        self, fleet: Fleet, site: Park, chance: random.Random, settings: str = "", *, alone: bool = False
    ) -> None:
        self.fleet = fleet
        self.site = site
        self.chance = chance
        self.pages = sum(site.grounds.page_count(host) for host in site.hosts) + len(site.orders())
        self.folder = fleet.folder / f"alone-{site.grounds.edition}" if alone else fleet.folder
        self.versions = 1 if alone else site.grounds.edition + 1  # of each record, at the end
        addresses = {"state": "sqlite:///gossamer-data/state.db", "records": "sqlite:///gossamer-data/records.db"}
        if not alone:
            addresses = {
                "state": fleet.state(fleet.state_cable), "records": fleet.postgres.address(), "archive": fleet.archive,
            }  # fmt: skip
        self.project = FleetProject(
            self.folder,
            site,
            name=fleet.name,
            **addresses,
            concurrency=CONCURRENCY,
            politeness=f'rate = "{1 / INTERVAL:g}/s"\nconcurrency = {PER_SITE}',
            settings=f"{SETTINGS}{settings}",
            spider=SPIDER,
            environment={"PARK_ORDERS": json.dumps(site.orders())},
        )
        assert site.certificate is not None
        believed = fleet.folder / "believed.pem"
        believed.write_bytes(site.certificate.read_bytes() + fleet.papers.file.read_bytes())
        self.project.set(SSL_CERT_FILE=str(believed))
        self.crew: list[WorkerProcess] = []
        self.faults: list[Fault] = []
        self.built_in = 0  # faults that workers have from their start
        self.complaints: list[str] = []
        self.spools = [self.folder / "gossamer-data" / "spool"]
        self.began = time.monotonic()
        self._finished = False

    # -- the job ---------------------------------------------------------------------------------------------------

    def begin(self, size: int = WORKERS, *faults: str) -> None:
        """The crawl that begins the job, and workers that join it."""
        self.built_in += len(faults)
        built_in = [*faults, *[""] * size][:size]
        self.crew = [self.project.start(built_in[0], command=("crawl", "park"))]
        self.asked(1)
        self.crew += [self.project.start(fault) for fault in built_in[1:]]

    def reached(self, share: float) -> None:
        """Wait until the site was asked for that share of its pages."""
        self.asked(round(share * self.pages))

    def asked_for_all(self) -> None:
        """Wait until the site was asked for every page, however often for some."""
        since = time.monotonic()
        while len({(hit.host, hit.path) for hit in self.site.hits()}) < self.pages:
            if time.monotonic() > since + 2 * LIMIT:
                self.complaints.append("not every page was asked for")
                return
            time.sleep(1)

    def asked(self, goal: int) -> None:
        """Wait until the site got so many requests, or nobody is left who could make them, or none came for LIMIT."""
        count, since = -1, time.monotonic()
        while (now := self.site.count()) < goal and any(worker.code is None for worker in self.crew):
            if now > count:
                count, since = now, time.monotonic()
            elif time.monotonic() > since + LIMIT:
                self.complaints.append(f"no request for {LIMIT:.0f} s, after {now} of {goal}")
                return
            time.sleep(0.05)

    def finish(self) -> None:
        """Wait until every worker has ended well. Done once: a round may have to wait before it mends something."""
        if self._finished:
            return
        self._finished = True
        self.asked(self.pages)
        deadline = time.monotonic() + LIMIT
        for worker in self.crew:
            code = worker.wait(deadline - time.monotonic())
            if code is None:
                self.complaints.append(f"a worker had not ended {LIMIT:.0f} s after the last page was asked for")
            elif code and not (code == WITH_LETTERS and self.site.orders()):
                self.complaints.append(f"a worker ended with {code}: {worker.said().strip()[-200:]}")

    def close(self) -> None:
        self.end_workers()

    def end_workers(self) -> None:
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

    def cut_power(self) -> None:
        """Everywhere at once: all workers end, and the state comes back without its last second."""
        state = SqliteFile(self.folder / "gossamer-data" / "state.db") if self.folder != self.fleet.folder else None
        with self.fault("power cut"):
            if state is not None:
                state.remember()
                time.sleep(1.0)
            else:
                self.fleet.valkey.lose_power(1.0)
            self.end_workers()
            if state is not None:
                state.put_back()
            else:
                self.fleet.valkey.start()
        # Workers wait for a store that the next fault takes away; a command of a person says so and ends.
        first = self.project.start(command=("crawl", "park")) if state is not None else self.project.start()
        self.crew = [first, *(self.project.start() for _ in self.crew[1:])]

    def refuse_writes(self, store: str, seconds: float) -> None:
        """A failover: a store is read-only for a while, a child of a supervisor dies meanwhile, and a worker joins."""
        postgres, valkey = self.fleet.postgres, self.fleet.valkey
        with self.fault(f"{store} read-only"):
            if store == "PostgreSQL":
                others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                postgres.sql("ALTER DATABASE postgres SET default_transaction_read_only = on", others)
            else:
                valkey.say("REPLICAOF", "127.0.0.1", "1")
            self.kill_child()
            self.crew.append(self.project.start())
            time.sleep(seconds)
            if store == "PostgreSQL":
                mend = "ALTER DATABASE postgres RESET default_transaction_read_only"
                postgres.sql("SET default_transaction_read_only = off", mend, others)
            else:
                valkey.say("REPLICAOF", "NO", "ONE")

    def kill_child(self) -> None:
        """One of those that the supervisors of the crew have; its siblings must go on."""
        families = [sorted(children_of(worker.pid)) for worker in self.crew if worker.code is None]
        children = max(families, key=len, default=[])
        if children:
            with self.fault("child killed"):
                os.kill(self.chance.choice(children), signal.SIGKILL)

    def fill_valkey(self, seconds: float) -> None:
        """No more memory for a while, and a worker dies meanwhile."""
        valkey = self.fleet.valkey
        used = re.search(r"used_memory:(\d+)", valkey.say("INFO", "memory"))
        assert used is not None
        with self.fault("Valkey out of memory"):
            valkey.say("CONFIG", "SET", "maxmemory", used[1])
            self.kill_worker()
            time.sleep(seconds)
            valkey.say("CONFIG", "SET", "maxmemory", "0")

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

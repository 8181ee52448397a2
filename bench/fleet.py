"""`python -m bench.fleet`: what do the fleet's backends cost, and what does a second worker bring?

The site of bench.run, crawled by one process on SQLite and files; by one and by two processes on Valkey, PostgreSQL
and S3 (SeaweedFS), all started here on free ports; and by Scrapy with scrapy-redis on the same Valkey. Site and
services run on the last core, the first worker on the first one; a second worker has to share the last core with them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from tests.services.postgres import PostgresServer, running_postgres
from tests.services.seaweed import ACCESS_KEY, SECRET_KEY, Seaweed, running_seaweed
from tests.services.valkey import DURABLE, ValkeyServer, running_valkey

from . import site
from .crawlers import GOSSAMER_TOML, PEER_PYTHON, Command, Gossamer, gossamer, install_peers, peer_version
from .measure import Reaper, judge
from .server import ROOT, Server, on_first_core, on_last_core, started
from .table import table

PATIENCE_SECONDS = 300.0
PROMISED_SHARE = 0.80


@dataclass(frozen=True)
class Services:
    """The fleet's backends, running."""

    valkey: ValkeyServer
    postgres: PostgresServer
    s3: Seaweed

    def pids(self) -> tuple[int, ...]:
        return self.valkey.pid, self.postgres.pid, self.s3.process.pid

    def addresses(self) -> str:
        """The head of a gossamer.toml for a project that nobody else has."""
        project = f"bench-{uuid4().hex[:12]}"
        return (
            f'project = "{project}"\nstate = "{self.valkey.address()}"\nrecords = "{self.postgres.address()}"\n'
            f'archive = "{self.s3.address(project)}"\n'
        )


@dataclass(frozen=True)
class Cost:
    name: str
    pages: int
    wall: float
    cpu: float  # of the workers alone
    faults: tuple[str, ...]


@contextmanager
def services() -> Iterator[Services]:
    with ExitStack() as stack:
        valkey = stack.enter_context(running_valkey(*DURABLE))
        s3 = stack.enter_context(running_seaweed())
        postgres = stack.enter_context(running_postgres())
        yield Services(valkey, postgres, s3)


def run(name: str, commands: list[Command], server: Server, records: Gossamer | None, pages: int, seed: int) -> Cost:
    """Start all commands at once, wait for all; compare the server's log and the records with the truth."""
    server.ask("/__reset")
    began = time.perf_counter()
    processes = []
    for number, command in enumerate(commands):
        with (command.folder / f"stderr-{number}.txt").open("wb") as stderr:
            processes.append(
                subprocess.Popen(
                    command.arguments,
                    cwd=command.folder,
                    env=command.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    preexec_fn=on_last_core if number else on_first_core,
                )
            )
    enders = [Reaper(process.pid) for process in processes]
    cpu = 0.0
    faults: list[str] = []
    for number, process in enumerate(processes):
        end = enders[number]
        if not end.reaped.wait(PATIENCE_SECONDS):
            process.kill()
            end.reaped.wait()
        process.returncode = end.status
        cpu += end.usage.ru_utime + end.usage.ru_stime
        if end.status:
            said = (commands[number].folder / f"stderr-{number}.txt").read_text(errors="replace").strip()[-300:]
            faults.append(f"exit {end.status}: {said}")
    wall = max(end.at for end in enders) - began
    hits = server.ask("/__hits")
    if records is not None and not faults:
        verdict = judge(hits, list(records.records(commands[0].folder)), site.truth(pages, seed))
        faults += verdict.faults
    return Cost(name, pages, wall, cpu, tuple(faults))


def crawl(folder: Path, toml: str, start: str, in_flight: int = 32) -> Command:
    (folder / "gossamer.toml").write_text(toml, encoding="utf-8")
    return gossamer(
        folder,
        "crawl", f"{ROOT / 'bench' / 'gossamer_peer.py'}:Shop", "--rate", "unlimited",
        "--concurrency", str(in_flight), "--quiet",
        variables={"BENCH_START": start, "GOSSAMER_POLITENESS__CONCURRENCY": str(max(64, in_flight))},
    )  # fmt: skip


def rounds(server: Server, fleet: Services, pages: int, seed: int, peers: bool) -> Iterator[Cost]:
    start = f"http://127.0.0.1:{server.port}/"
    for name, toml, workers in (
        ("embedded, 1 worker", GOSSAMER_TOML, 1),
        ("fleet, 1 worker", fleet.addresses() + GOSSAMER_TOML, 1),
        ("fleet, 2 workers", fleet.addresses() + GOSSAMER_TOML, 2),
    ):
        with tempfile.TemporaryDirectory(prefix="bench-fleet-") as folder:
            command = crawl(Path(folder), toml, start)
            yield run(name, [command] * workers, server, Gossamer(), pages, seed)
    if peers and peer_version("scrapy-redis"):
        with tempfile.TemporaryDirectory(prefix="bench-fleet-") as folder:
            script = ROOT / "bench" / "peers" / "scrapy_redis_peer.py"
            address = fleet.valkey.address()
            command = Command([str(PEER_PYTHON), str(script), start, folder, address], Path(folder))
            yield run("scrapy-redis, 1 worker", [command], server, None, pages, seed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--pages", type=int, default=1500, help="pages of the site (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="the best of so many is shown (default %(default)s)")
    parser.add_argument("--seed", type=int, default=20, help=argparse.SUPPRESS)
    parser.add_argument("--no-peers", action="store_true", help="leave out scrapy-redis")
    chosen = parser.parse_args()
    if not chosen.no_peers:
        install_peers()
    on_last_core()
    os.environ.update(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY)
    best: dict[str, Cost] = {}
    with (
        started("bench.site", "--pages", str(chosen.pages), "--seed", str(chosen.seed)) as server,
        services() as fleet,
    ):
        for _ in range(chosen.rounds):
            for cost in rounds(server, fleet, chosen.pages, chosen.seed, not chosen.no_peers):
                known = best.get(cost.name)
                if known is None or cost.cpu < known.cpu:
                    best[cost.name] = cost
    embedded = best["embedded, 1 worker"]
    rows = [
        (
            cost.name, f"{cost.wall:.2f}", f"{cost.pages / cost.wall:.0f}", f"{cost.cpu:.2f}",
            f"{cost.pages / cost.cpu:.0f}", f"{embedded.cpu / cost.cpu:.2f}", f"{embedded.wall / cost.wall:.2f}",
            "; ".join(cost.faults)[:200] or "yes",
        )
        for cost in best.values()
    ]  # fmt: skip
    print(table(("workers", "wall s", "pages/s", "CPU s", "pages/CPU-s", "x embedded, CPU", "wall", "verified"), rows))
    share = embedded.cpu / best["fleet, 1 worker"].cpu
    kept = share >= PROMISED_SHARE and not any(cost.faults for cost in best.values())
    print(
        f"One worker on the fleet keeps {share:.0%} of the embedded speed per CPU-second. Promised: "
        f"{PROMISED_SHARE:.0%}. {'Kept.' if kept else 'NOT KEPT.'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

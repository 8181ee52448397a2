"""`python -m bench.upgrade --before PYTHON`: two versions of Gossamer on one project, while a crawl runs.

PYTHON is the interpreter of an environment with the version before (`git worktree add`, and a `.venv` there). On
SQLite, and on Valkey with PostgreSQL: scheduler and workers of the version before begin a crawl, those of this version
join them half-way, a second crawl is begun while both are there, then the old ones are stopped.

Promised: a process of the version before that is started later works, or is refused with a message; every page is asked
for once but for those that were in progress when a worker was stopped, every record is stored once, the states of all
URLs add up, no site is asked sooner than its rate allows, every job is in the list of jobs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

from tests.faults.commands import Command, CommandProject, until
from tests.services.postgres import running_postgres
from tests.services.valkey import DURABLE, running_valkey
from tests.sites.running import Park, park

from gossamer.model.job import COUNTERS, Job, JobCounts
from gossamer.project.open import open_project
from gossamer.settings import load

HOSTS, PAGES = 9, 50
RATE = 4.0  # requests a second of each site
TOLERANCE = 0.005  # seconds
FIRST, SECOND = slice(0, 6), slice(6, HOSTS)  # sites of the first crawl and of the second
REFUSED = ("newer Gossamer", "gossamer migrate")


@contextmanager
def project_on(on: str, site: Park) -> Iterator[CommandProject]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="upgrade-")))
        addresses = ""
        if on == "fleet":
            valkey = stack.enter_context(running_valkey(*DURABLE))
            postgres = stack.enter_context(running_postgres())
            name = f"upgrade-{uuid4().hex[:12]}"
            addresses = f'project = "{name}"\nstate = "{valkey.address()}"\nrecords = "{postgres.address()}"\n'
        project = CommandProject(folder / "p", [], f'{addresses}[politeness]\nrate = "{RATE:g}/s"\nburst = 1\n')
        stack.callback(project.close)
        for number, part in enumerate((FIRST, SECOND), 1):
            (project.folder / f"seeds{number}.txt").write_text("\n".join(site.seeds()[part]))
        yield project


def trial(on: str, before: str) -> list[str]:
    """What was not kept."""
    with park(pages=PAGES, hosts=HOSTS, links=6) as site, project_on(on, site) as project:
        began = time.monotonic()

        def tell(words: str) -> None:
            print(f"{time.monotonic() - began:6.1f} s  {len(site.hits()):4} pages  {words}", flush=True)

        old = project.run("up", "--no-server", "--workers", "2", python=before)
        _done(project, before, "schedule", "add", "first", *_run_of("seeds1.txt"))
        until(lambda: len(site.hits()) >= 60, old)
        tell("the version before is at work; this one joins it")
        new = project.run("up", "--no-server", "--workers", "2")
        until(lambda: "workers" in new.said() and len(site.hits()) >= 90, old, new)
        tell(f"this version said: {_last_line(new)}")

        late = project.run("worker", python=before)
        until(lambda: late.process.poll() is not None or "serves all jobs" in late.said(), old, new)
        refused = late.process.poll() is not None
        tell(f"one of the version before, started now, {'is refused' if refused else 'works'}: {_last_line(late)}")
        project.done("schedule", "add", "second", *_run_of("seeds2.txt"))
        until(lambda: len([hit for hit in site.hits() if hit.host in site.hosts[SECOND]]) >= 10, old, new)
        tell("a second crawl was begun while both are there")

        for command in (old, late):
            if command.process.poll() is None:
                command.signal(signal.SIGTERM)
        codes = [old.ended(), late.ended()]
        tell(f"the old ones have ended, exit codes {codes}: {_last_line(old)}")
        until(lambda: _is_over(project), new)
        tell("both crawls are over")
        broken = _judged(project, site)
        if refused and not any(words in late.said() for words in REFUSED):
            broken.append(f"refused without a message: {late.said()[-500:]}")
        elif not refused and any(codes):
            broken.append(f"the old processes ended with {codes}")
        for name, command in (("before", old), ("this", new)):
            if "Traceback" in command.said():
                broken.append(f"a traceback in the version {name}: {command.said()[-1500:]}")
        new.signal(signal.SIGTERM)
        new.ended()
    return broken


def _run_of(seeds: str) -> tuple[str, ...]:
    return ("--spider", "park", "--file", seeds, "--every", "30d")


def _done(project: CommandProject, python: str, *words: str) -> None:
    command = project.run(*words, python=python)
    assert command.ended() == 0, command.said()


def _last_line(command: Command) -> str:
    return next((line for line in reversed(command.said().splitlines()) if line.strip()), "(nothing)")


def _is_over(project: CommandProject) -> bool:
    time.sleep(0.5)  # each look is a process
    jobs = project.json("job", "list")
    return len(jobs) >= 2 and all(job["state"] != "running" for job in jobs)


def _judged(project: CommandProject, site: Park) -> list[str]:
    broken = []
    hits = Counter((hit.host, hit.path) for hit in site.hits())
    wanted = {(host, path) for host in site.hosts for path in site.grounds.paths(host)}
    repeated = sum(hits.values()) - len(hits)
    print(f"{len(hits)} of {len(wanted)} pages, {repeated} asked for again")
    if set(hits) != wanted:
        broken.append(f"{len(wanted - set(hits))} pages were never asked for, {len(set(hits) - wanted)} are unknown")
    early = 0
    for host in site.hosts:
        times = sorted(hit.at for hit in site.hits(host=host))
        early += sum(later - earlier < 1 / RATE - TOLERANCE for earlier, later in pairwise(times))
    if early:
        broken.append(f"{early} requests came too early")
    records = [json.loads(line) for line in project.done("export").splitlines() if line.startswith("{")]
    keys, truth = [record["sku"] for record in records], site.truth()
    if len(keys) != len(set(keys)) or set(keys) != truth.keys():
        broken.append(f"{len(keys)} records, {len(set(keys))} keys, {len(truth)} expected")
    if any(record["title"] != truth[record["sku"]]["title"] for record in records if record["sku"] in truth):
        broken.append("records are not what the site says")
    jobs = project.json("job", "list")
    listed = [job.id for job in asyncio.run(_first_page(project))]
    if sorted(listed) != sorted(job["id"] for job in jobs) or len(listed) != 2:
        broken.append(f"jobs {[job['id'] for job in jobs]}, in pages {listed}")
    for job in jobs:
        counted = project.json("status", job["id"])["counts"]
        counts = JobCounts(**{name: counted[name] for name in COUNTERS})
        print(f"{job['id']}: {job['state']}, {counts.done} done of {counts.discovered - counts.duplicates}")
        settled = counts.open + counts.settled + counts.dropped
        if counts.discovered != settled + counts.duplicates or counts.open or counts.dead:
            broken.append(f"the states of {job['id']} do not add up: {counts}")
    return broken


async def _first_page(project: CommandProject) -> list[Job]:
    """The jobs as the HTTP API lists them."""
    async with open_project(load(start=project.folder, environ={}), to_look=True) as opened:
        return await opened.state.history.page(10)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--before", required=True, metavar="PYTHON", help="the interpreter with the version before")
    parser.add_argument("--on", choices=("laptop", "fleet", "both"), default="both")
    given = parser.parse_args()
    kept = True
    for on in ("laptop", "fleet") if given.on == "both" else (given.on,):
        print(f"\n{on}")
        broken = trial(on, given.before)
        print("Not kept: " + "; ".join(broken) if broken else "All kept.")
        kept = kept and not broken
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

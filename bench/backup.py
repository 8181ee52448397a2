"""`python -m bench.backup`: a project of 100,000 records and a running job, backed up and restored elsewhere.

The crawl runs on while the backup is made. Then the project is lost, restored elsewhere, and its crawl goes on.

Promised: every record, every sample of its history and every raw page is as it was (pages are parsed again from the
restored archive); the crawl goes on to its end, and asks for no page again that was done before the backup.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from tests.faults.commands import CommandProject, until
from tests.services.postgres import running_postgres
from tests.services.valkey import DURABLE, running_valkey
from tests.sites.running import Park, park

from .table import table

OF_A_PAGE = 25  # records
GOING_ON = 400  # pages of the crawl that runs
SAMPLES = 10

STOCK = f"""
from gossamer import Item, Page, Spider

class Lot(Item, key="sku"):
    sku: str
    title: str
    place: int

class Stock(Spider):
    start_urls = ["SEED"]

    def parse(self, page: Page):
        sku, title = page.css(".sku::text").get(), page.css("h1::text").get()
        for place in range({OF_A_PAGE}):
            yield Lot(url=page.url, sku=f"{{sku}}-{{place}}", title=title, place=place)
        yield from page.follow_all("a")
"""
SETTINGS = """{addresses}
[politeness]
rate = "unlimited"
[domains."site1.localhost"]
rate = "10/s"
"""


class Cost(NamedTuple):
    what: str
    seconds: float
    cpu: float
    rss: float  # MB

    def row(self) -> list[str]:
        return [self.what, f"{self.seconds:.1f}", f"{self.cpu:.1f}", f"{self.rss:.0f}"]


def measured(project: CommandProject, *words: str) -> Cost:
    """Run a command to its end, which must be a good one."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "gossamer", *words],
            cwd=project.folder,
            env=project.environ,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        assert process.returncode == 0, said.read().decode()[-2000:]
    return Cost(words[0], time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def trial(on: str, records: int) -> list[str]:
    """What was not kept."""
    pages = records // OF_A_PAGE
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="backup-")))
        plan = {"site1.localhost": GOING_ON}
        site = stack.enter_context(park(pages=pages, hosts=2, pages_of=plan))
        servers = _servers(stack) if on == "fleet" else ""
        here, there = (_project(stack, folder / name, site, servers) for name in ("here", "there"))
        here.done("crawl", "stock", "--quiet")
        crawl = here.run("crawl", "park", "--quiet")
        until(lambda: len(site.hits(host=1)) >= 60, crawl)
        costs = [measured(here, "backup", "../backup")]
        size = (folder / "backup").stat().st_size
        seen = len(site.hits(host=1))
        until(lambda: len(site.hits(host=1)) > seen, crawl)  # it runs on
        crawl.signal(signal.SIGKILL)
        crawl.ended()
        mine = _read(here)
        costs.append(measured(there, "restore", "../backup"))
        print(f"\n{on}: {len(mine.lots):,} records of {pages:,} pages, a crawl of {GOING_ON} pages under way")
        print(f"{size / 1e6:.1f} MB; load {os.getloadavg()[0]:.1f}")
        print(table(["what", "s", "CPU s", "RSS MB"], [cost.row() for cost in costs]))

        broken = [] if len(mine.lots) == pages * OF_A_PAGE else [f"{len(mine.lots):,} records were made"]
        theirs = _read(there)
        if theirs != mine:
            differ = len(mine.lots.items() - theirs.lots.items())
            broken.append(f"{len(theirs.lots):,} records after it, {differ} differ, or their histories do")
        again = there.done("reparse", "--spider", "stock", "--dry-run", "--limit", "0")
        print("again from the restored archive: " + ", ".join(" ".join(one.split()) for one in again.splitlines()[:2]))
        if f" {pages:,} parsed" not in again or " of which 0 would be new or changed" not in again:
            broken.append(f"raw pages parsed again: {again[-300:]}")
        done, asked = _done_pages(there), Counter(hit.path for hit in site.hits(host=1))
        going = there.run("crawl", "park", "--quiet")
        code = going.ended(300)
        after = Counter(hit.path for hit in site.hits(host=1)) - asked
        print(f"the crawl: {done} pages done in the backup, {after.total()} asked for after it, exit code {code}")
        if code != 0 or after.total() != GOING_ON - done:
            broken.append(f"{after.total()} pages were asked for after the restore, {GOING_ON - done} were left")
        plants = [line for line in there.done("export", "--spider", "park").splitlines() if line.startswith("{")]
        if len({json.loads(line)["sku"] for line in plants}) != GOING_ON or len(plants) != GOING_ON:
            broken.append(f"{len(plants)} records of the crawl that went on")
    return broken


def _servers(stack: ExitStack) -> str:
    valkey = stack.enter_context(running_valkey(*DURABLE))
    postgres = stack.enter_context(running_postgres())
    return f'project = "NAME"\nstate = "{valkey.address()}"\nrecords = "{postgres.address()}?schema=NAME"\n'


def _project(stack: ExitStack, folder: Path, site: Park, servers: str) -> CommandProject:
    addresses = servers.replace("NAME", f"b{uuid4().hex[:12]}")
    project = CommandProject(folder, [site.url(1)], SETTINGS.format(addresses=addresses))
    (folder / "spiders" / "stock.py").write_text(STOCK.replace("SEED", site.url(0)))
    stack.callback(project.close)
    return project


class Found(NamedTuple):
    lots: dict[str, bytes]  # hash of each record, with all that is known of it
    histories: list[object]


def _read(project: CommandProject) -> Found:
    lines = [line for line in project.done("export", "--spider", "stock").splitlines() if line.startswith("{")]
    lots = {json.loads(line)["sku"]: hashlib.blake2b(line.encode(), digest_size=16).digest() for line in lines}
    samples = sorted(lots)[:: max(1, len(lots) // SAMPLES)]
    return Found(lots, [project.json("history", sku) for sku in samples])


def _done_pages(project: CommandProject) -> int:
    (job,) = [job for job in project.json("status") if job["name"] == "park"]
    return int(job["counts"]["done"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--on", choices=("laptop", "fleet", "both"), default="both")
    parser.add_argument("--records", type=int, default=100_000)
    given = parser.parse_args()
    kept = True
    for on in ("laptop", "fleet") if given.on == "both" else (given.on,):
        broken = trial(on, given.records)
        print("Not kept: " + "; ".join(broken) if broken else "All kept.")
        kept = kept and not broken
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench.browser`: many pages through a pool of browsers. How many a minute, and does memory stay flat?

A site on loopback serves pages that a script makes. The browsers are recycled as the settings say by default; memory
is what all processes of the pool hold for themselves, looked at after every page, beside the sum of their RSS.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.sites.hostile import hostile_site
from tests.sites.rendered import dress

from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.browser.chromium import family_memory, is_there
from gossamer.fetch.browser.transport import BrowserTransport
from gossamer.fetch.browser.watchdog import descendants
from gossamer.fetch.contract import TransportRequest
from gossamer.settings.tables import Browser

from .table import table

PAGES = 500
HOST = "site.localhost"
EXPECTED = b'<p class="name">Grace</p>'
ALLOWED_GROWTH = 1.2  # the last hundred pages may hold so many times the memory of the first
EDGE = 100  # pages at the beginning and at the end that are compared
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Sample:
    """The pool after a page."""

    own_mb: float  # what the processes hold for themselves
    rss_mb: float  # with what they share, counted as often as it is shared
    contexts: int
    browsers: int
    worker_mb: float


def look(transport: BrowserTransport) -> Sample:
    cells = transport.pool.cells
    own = sum(family_memory(descendants(cell.watchdog))[0] for cell in cells)
    rss = sum(_rss(pid) for cell in cells for pid in descendants(cell.watchdog))
    return Sample(
        own_mb=own / 2**20,
        rss_mb=rss / 2**20,
        contexts=sum(cell.in_progress for cell in cells),
        browsers=len(cells),
        worker_mb=_rss(os.getpid()) / 2**20,
    )


def _rss(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE_SIZE
    except (OSError, IndexError):
        return 0


async def measure(pages: int, settings: Browser) -> tuple[list[Sample], float, int, float]:
    """The samples, the seconds from the first page to the last, the browsers used, and what one holds when empty."""
    samples: list[Sample] = []
    used: set[int] = set()
    async with (
        hostile_site() as site,
        BrowserTransport(AddressGuard(allow_hosts=frozenset({HOST})), settings) as transport,
    ):
        dress(site, "http://canary.invalid/")
        exchange = TransportRequest(url=site.url("/rendered", HOST))
        await transport.fetch(exchange)  # starts the first browser, which is not what is measured
        empty = look(transport).own_mb
        left = iter(range(pages))
        began = time.perf_counter()

        async def one_after_another() -> None:
            for _ in left:
                response = await transport.fetch(exchange)
                if EXPECTED not in response.body:
                    raise SystemExit("A page came back without what its script makes.")
                samples.append(look(transport))
                used.update(cell.watchdog for cell in transport.pool.cells)

        async with asyncio.TaskGroup() as group:
            for _ in range(settings.browsers * settings.contexts):
                group.create_task(one_after_another())
        seconds = time.perf_counter() - began
    return samples, seconds, len(used), empty


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.browser", description=__doc__)
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--browsers", type=int, default=Browser().browsers)
    parser.add_argument("--contexts", type=int, default=Browser().contexts)
    chosen = parser.parse_args(arguments)
    missing = is_there()
    if missing is not None:
        print(missing)
        return 1
    settings = Browser(browsers=chosen.browsers, contexts=chosen.contexts)
    samples, seconds, used, empty = asyncio.run(measure(chosen.pages, settings))
    edge = min(EDGE, len(samples) // 2)
    first, last = samples[:edge], samples[-edge:]
    rows = [
        (
            name,
            *(f"{statistics.median(getattr(sample, field) for sample in part):.0f}" for part in (first, last)),
            f"{max(getattr(sample, field) for sample in samples):.0f}",
        )
        for name, field in (
            ("browsers, own memory MB", "own_mb"),
            ("browsers, sum of RSS MB", "rss_mb"),
            ("worker, RSS MB", "worker_mb"),
        )
    ]
    print(
        f"{len(samples)} pages in {seconds:.0f} s: {len(samples) / seconds * 60:.0f} pages per minute over "
        f"{chosen.browsers} x {chosen.contexts} contexts, {used} browsers used"
    )
    print(table(("median of", f"first {edge}", f"last {edge}", "most"), rows))
    busy = [(sample.own_mb - empty) / sample.contexts for sample in samples if sample.contexts and sample.browsers == 1]
    if busy:
        print(f"An empty browser holds {empty:.0f} MB; each page in progress adds {statistics.median(busy):.0f} MB.")
    growth = statistics.median(s.own_mb for s in last) / statistics.median(s.own_mb for s in first)
    kept = growth <= ALLOWED_GROWTH
    verdict = "Kept." if kept else "NOT KEPT."
    print(f"Memory of the last {edge} to the first: {growth:.2f}. Allowed: {ALLOWED_GROWTH}. {verdict}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

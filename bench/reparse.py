"""`python -m bench.reparse`: archived pages parsed again, beside the crawl that fetched them.

A shop of 5,000 pages is crawled on all cores, at the pace that sites are asked with by default (reckoned, not waited
for) and as fast as the machine can. Then the archive is parsed again, on the same cores. The site's log must not grow
by a single request, and the records must be those of a fresh crawl.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gossamer.settings import Settings

from .crawlers import GOSSAMER_TOML, Gossamer, gossamer
from .server import ROOT, Server, started
from .table import table

PAGES = 5000
PROMISED = 10.0  # times the speed of a crawl at the default pace


def timed(folder: Path, server: Server, *arguments: str) -> float:
    """Wall seconds of a gossamer command."""
    command = gossamer(folder, *arguments, variables={"BENCH_START": f"http://127.0.0.1:{server.port}/"})
    began = time.monotonic()
    done = subprocess.run(command.arguments, cwd=folder, env=command.environment(), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"gossamer {' '.join(arguments)} failed: {done.stderr[-500:]}")
    return time.monotonic() - began


def project(folder: Path) -> None:
    (folder / "gossamer.toml").write_text(GOSSAMER_TOML, encoding="utf-8")
    (folder / "spiders").mkdir()
    spider = (ROOT / "bench" / "gossamer_peer.py").read_text(encoding="utf-8")
    (folder / "spiders" / "shop.py").write_text(spider, encoding="utf-8")


def crawl(folder: Path, server: Server) -> float:
    return timed(folder, server, "crawl", "shop", "--rate", "unlimited", "--concurrency", "32", "--quiet")


def records(folder: Path) -> list[Any]:
    found = []
    for record in Gossamer().records(folder):
        del record["_meta"]
        found.append(record)
    return sorted(found, key=lambda record: str(record["url"]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.reparse", description=__doc__)
    parser.add_argument("--pages", type=int, default=PAGES)
    chosen = parser.parse_args()
    with (
        started("bench.site", "--pages", str(chosen.pages), "--seed", "1") as server,
        tempfile.TemporaryDirectory(prefix="bench-reparse-") as one,
        tempfile.TemporaryDirectory(prefix="bench-fresh-") as other,
    ):
        first, fresh = Path(one), Path(other)
        project(first)
        project(fresh)
        crawled = crawl(first, server)
        hits = server.ask("/__served")
        reparsed = timed(first, server, "reparse")
        asked = server.ask("/__served") - hits
        crawl(fresh, server)
        equal = records(first) == records(fresh)
    polite = chosen.pages * Settings().politeness.rate.interval.total_seconds()
    rows = [
        (what, f"{seconds:,.1f}", f"{chosen.pages / seconds:,.0f}", f"{seconds / reparsed:,.1f}")
        for what, seconds in (
            ("crawl at the default pace (reckoned)", polite),
            ("crawl as fast as the machine can", crawled),
            ("parsed again", reparsed),
        )
    ]
    print(table(("", "seconds", "pages/s", "times as long"), rows))
    print(f"Requests while parsing again: {asked}. Records {'equal' if equal else 'NOT EQUAL'} to a fresh crawl's.")
    kept = equal and not asked and polite / reparsed >= PROMISED
    print(f"Promised: {PROMISED:.0f} times the speed of a polite crawl, no request. {'Kept.' if kept else 'NOT KEPT.'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

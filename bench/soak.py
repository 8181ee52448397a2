"""`make soak` (`python -m bench.soak`): one worker on one long crawl. Do memory, open files and threads stay flat?

A park of 20 hosts with far more pages than the time allows; the worker is stopped when the time is over. The first
quarter warms up (caches fill to their bounds); a straight line through the rest must not rise.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.faults.crawlers import SPIDER
from tests.services.seaweed import ACCESS_KEY, SECRET_KEY
from tests.sites.running import Park, park

from .crawlers import gossamer
from .fleet import services
from .table import table

HOSTS = 20
PAGES = 100_000  # per host
SAMPLE_SECONDS = 1.0
ALLOWED_MB_PER_HOUR = 30.0
ALLOWED_FILES = 8  # more at the end than after warming up
TOML = (
    '[politeness]\nrate = "unlimited"\nconcurrency = 4\n[fetch]\nallow_private = true\n[store]\nkeep_pages = {keep}\n'
)


@dataclass(frozen=True)
class Sample:
    at: float
    rss_mb: float
    files: int
    threads: int


def look(pid: int, began: float) -> Sample:
    status = dict(
        line.split(":", 1)
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
        if ":" in line
    )
    return Sample(
        at=time.monotonic() - began,
        rss_mb=int(status["VmRSS"].split()[0]) / 1024,
        files=len(os.listdir(f"/proc/{pid}/fd")),
        threads=int(status["Threads"]),
    )


def slope(pairs: Sequence[tuple[float, float]]) -> float:
    """Of the straight line through the points, by least squares."""
    mean_x = sum(x for x, _ in pairs) / len(pairs)
    mean_y = sum(y for _, y in pairs) / len(pairs)
    below = sum((x - mean_x) ** 2 for x, _ in pairs)
    return sum((x - mean_x) * (y - mean_y) for x, y in pairs) / below if below else 0.0


def soak(site: Park, folder: Path, toml: str, minutes: float) -> list[Sample]:
    """Crawl for so long, sampling; then stop it. Fails when it ends by itself."""
    (folder / "spiders").mkdir()
    (folder / "spiders" / "park.py").write_text(SPIDER, encoding="utf-8")
    (folder / "gossamer.toml").write_text(toml, encoding="utf-8")
    command = gossamer(
        folder, "crawl", "park", "--quiet", "--concurrency", "32", variables={"PARK_SEEDS": json.dumps(site.seeds())}
    )
    process = subprocess.Popen(command.arguments, cwd=folder, env=command.environment(), stdin=subprocess.DEVNULL)
    began = time.monotonic()
    samples: list[Sample] = []
    try:
        while time.monotonic() - began < minutes * 60:
            time.sleep(SAMPLE_SECONDS)
            if process.poll() is not None:
                raise SystemExit(f"The crawl ended after {time.monotonic() - began:.0f} s with {process.returncode}.")
            samples.append(look(process.pid, began))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    return samples


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0, help="how long (default %(default)s)")
    parser.add_argument("--on", choices=("embedded", "fleet"), default="fleet", help="backends (default %(default)s)")
    parser.add_argument("--keep-pages", action="store_true", help="archive raw pages too: takes gigabytes of disk")
    chosen = parser.parse_args()
    toml = TOML.format(keep=str(chosen.keep_pages).lower())
    with ExitStack() as stack:
        site = stack.enter_context(park(hosts=HOSTS, pages=PAGES, body_bytes=3000, links=10))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-soak-")))
        if chosen.on == "fleet":
            os.environ.update(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY)
            toml = stack.enter_context(services()).addresses() + toml
        samples = soak(site, folder, toml, chosen.minutes)
        pages = len(site.hits())
    late = samples[len(samples) // 4 :]
    per_hour = slope([(sample.at, sample.rss_mb) for sample in late]) * 3600
    more_files = late[-1].files - late[0].files
    rows = []
    for name, field in (("memory MB", "rss_mb"), ("open files", "files"), ("threads", "threads")):
        values = [getattr(sample, field) for sample in late]
        rows.append((name, *(f"{value:.0f}" for value in (values[0], max(values), values[-1]))))
    print(f"{pages:,} pages in {samples[-1].at:.0f} s on {chosen.on} backends")
    print(table(("", "after warming up", "most", "at the end"), rows))
    kept = per_hour <= ALLOWED_MB_PER_HOUR and more_files <= ALLOWED_FILES
    print(
        f"Memory: {per_hour:+.1f} MB per hour. Allowed: {ALLOWED_MB_PER_HOUR:+.0f}. {'Kept.' if kept else 'NOT KEPT.'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

"""A day under `gossamer up --autoscale`, in a minute: an empty night, one huge slow site, many polite ones."""

from __future__ import annotations

import itertools
import re
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.commands import Command, CommandProject, until
from tests.sites.running import Park, park

pytestmark = pytest.mark.long

DOMAINS, PAGES, HUGE = 40, 12, 60
RATE = 2.0  # pages a second of each site
# Two pages at once in each worker, of which each takes 0.4 s: one cannot do it all.
SETTINGS = f"""
[politeness]
rate = "{RATE:g}/s"
[scaling]
look = "500ms"
calm = "5s"
"""


class Watched:
    """How many workers there were, four times a second."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._ended = threading.Event()
        self.numbers: list[tuple[float, int]] = []
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def now(self) -> int:
        """Its children but for the scheduler."""
        words = [Path(f"/proc/{pid}/cmdline") for pid in self._command.children()]
        return sum(b"worker" in file.read_bytes() for file in words if file.exists())

    def _watch(self) -> None:
        while not self._ended.wait(0.25):
            self.numbers.append((time.monotonic(), self.now()))

    def most_since(self, moment: float) -> int:
        return max((number for at, number in self.numbers if at >= moment), default=0)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


def seeds_of(site: Park, first: int, last: int) -> list[str]:
    return [site.url(number) for number in range(first, last)]


def test_a_day_of_few_and_many_sites(tmp_path):
    plan = {"site0.localhost": HUGE}
    with park(pages=PAGES, hosts=DOMAINS + 1, pages_of=plan, latency_ms=400, links=6) as site:
        project = CommandProject(tmp_path, [], SETTINGS)
        huge, wide = seeds_of(site, 0, 1), seeds_of(site, 1, DOMAINS + 1)
        try:
            _a_day(project, site, huge, wide)
        finally:
            project.close()


def _a_day(project: CommandProject, site: Park, huge: list[str], wide: list[str]) -> None:
    for name, seeds in (("huge", huge), ("wide", wide)):
        (project.folder / f"{name}.txt").write_text("\n".join(seeds))
    up = project.run("up", "--no-server", "--autoscale", "0..4", "--concurrency", "2")
    watched = Watched(up)
    try:
        # at night there is nobody
        until(lambda: "A scheduler and 0 to 4 workers" in up.said(), up)
        until(lambda: len(watched.numbers) > 20, up)
        assert watched.most_since(0.0) == 0

        # one huge slow site needs one
        project.done("schedule", "add", "huge", "--spider", "park", "--file", "huge.txt", "--every", "30d")
        morning = time.monotonic()
        until(lambda: len(site.hits(host=0)) >= 10, up)
        assert watched.most_since(morning) == 1

        # many polite sites need more
        project.done("schedule", "add", "wide", "--spider", "park", "--file", "wide.txt", "--every", "30d")
        noon = time.monotonic()
        until(lambda: watched.most_since(noon) > 1, up)

        # and when all is done, all go home, one after the other
        until(lambda: site.count() >= DOMAINS * PAGES + HUGE, up)
        until(lambda: watched.now() == 0 and "0 workers instead of" in up.said(), up)
    finally:
        watched.end()
    up.signal(signal.SIGTERM)
    assert up.ended() == 0, up.said()

    # nothing was lost or asked for twice by those who came and went
    hits = Counter((hit.host, hit.path) for hit in site.hits())
    assert set(hits.values()) == {1}
    assert len(hits) == DOMAINS * PAGES + HUGE
    assert project.records().keys() == site.truth().keys()
    project.assert_sound()
    # and no site was visited faster than it allows
    for host in site.hosts:
        times = sorted(hit.at for hit in site.hits(host=host))
        assert min(b - a for a, b in itertools.pairwise(times)) > 0.9 / RATE, host
    # the number rose to its peak and fell again, once
    numbers = [int(found) for found in re.findall(r"^(\d+) workers? instead of", up.said(), re.M)]
    steps = [after > before for before, after in itertools.pairwise([0, *numbers])]
    turns = sum(one != other for one, other in itertools.pairwise(steps))
    assert turns == 1, numbers
    print(numbers, _cost(watched.numbers))


def _cost(numbers: list[tuple[float, int]]) -> str:
    """Worker-seconds, beside a fleet that is always as large as this one at its largest."""
    spent = sum(number * (after - at) for (at, number), (after, _) in itertools.pairwise(numbers))
    fixed = max(number for _, number in numbers) * (numbers[-1][0] - numbers[0][0])
    return f"{spent:.0f} of {fixed:.0f} worker-seconds"

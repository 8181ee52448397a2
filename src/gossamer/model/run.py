"""Runs as the boards show them: one line for each of the last runs of a spider, and of those that visited a site."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

RUNS_SHOWN = 20  # of a spider or a site; older ones are forgotten by the boards, not by the project
SPIDER_RUNS, SITE_RUNS = "spider-runs", "site-runs"  # kinds on the shelf
ROWS_KEPT = 10_000  # spiders, and sites, whose runs are kept: those that ran last
MOST_SITES = 2_000  # of one run: those with the most requests


class RunLine(msgspec.Struct, frozen=True, array_like=True):
    """One ended run. On the line of a site the counts are of that site alone, and `outcome` says how the site did."""

    job: str
    spider: str
    owner: str  # the key that began it, "" for none
    started: float
    finished: float
    outcome: str
    pages: int  # that came, changed or not
    dead: int  # that were given up
    good: int  # requests that brought their page
    bad: int
    records: int
    bytes: int
    credits: float
    settled_at: float  # when its outcome was settled after its dead letters were replayed; 0: never
    settled: int = 0  # pages that it was through with, however they ended; 0: not noted
    changes: str = ""  # what it did to records: `2 new, 1 gone`
    later: str = ""  # which dead letters were settled after the end: model/outcome.py, later_in_words


class RunLines(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a spider or a site: its last runs, the oldest first."""

    name: str
    runs: tuple[RunLine, ...] = ()

    def joined(self, new: Iterable[RunLine]) -> RunLines:
        """With these runs too, which replace what was known of them."""
        known = {one.job: one for one in self.runs} | {one.job: one for one in new}
        ordered = sorted(known.values(), key=lambda one: (one.started, one.job))
        return RunLines(name=self.name, runs=tuple(ordered[-RUNS_SHOWN:]))

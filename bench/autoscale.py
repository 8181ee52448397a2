"""`python -m bench.autoscale`: a day under `gossamer up --autoscale 0..4`, in some three minutes.

An empty night, one huge slow site, a burst of 200 polite sites beside it, what is left of the slow one, a night again.

Promised: nobody runs at night, the huge site is left to one worker, the burst gets more; the number rises once and
falls once; no page is lost or asked for twice by workers that come and go, no site is asked sooner than it allows.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from itertools import groupby
from pathlib import Path

from tests.faults.autoscale import Day, Moment, Plan, a_day

from .table import table


def broken_promises(day: Day) -> list[str]:
    broken = []
    for phase, fits in (
        ("night", day.most("night") == 0),
        ("one huge slow site", day.most("one huge slow site") == 1),
        ("many polite sites", day.most("many polite sites") > 1),
        ("night again", day.moments[-1].workers == 0),
    ):
        if not fits:
            broken.append(f"{day.most(phase)} workers in the phase {phase!r}")
    if day.turns != 1:
        broken.append(f"the number of workers turned {day.turns} times: {day.changes}")
    for words, count in (
        ("pages were lost", day.lost),
        ("pages were asked for again", day.repeated),
        ("requests came too early", day.early),
        ("records are missing or too many", day.records_differ),
    ):
        if count:
            broken.append(f"{count} {words}")
    return broken


def _row(moment: Moment) -> list[str]:
    wanted = moment.wanted
    assert wanted is not None
    http = wanted.lanes["http"]
    figures = [f"{http.ready:,}", f"{http.runnable_per_second:.1f}", f"{http.pages_per_second_per_worker:.1f}"]
    return [f"{moment.at:.0f}", moment.phase, *figures, str(wanted.workers_wanted), str(moment.workers)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--domains", type=int, default=200)
    parser.add_argument("--pages", type=int, default=5, help="of each of them")
    parser.add_argument("--huge", type=int, default=240, help="pages of the slow site")
    parser.add_argument("--most", type=int, default=4, help="workers")
    given = parser.parse_args()
    plan = Plan(domains=given.domains, pages=given.pages, huge=given.huge, most=given.most)
    with tempfile.TemporaryDirectory(prefix="autoscale-") as folder:
        day = a_day(Path(folder), plan, figures=True)
    rows = [_row(moment) for moment in day.moments if moment.wanted is not None]
    print(table(["s", "phase", "ready", "can be fetched/s", "per worker/s", "wanted", "workers"], rows))
    seen = [str(number) for number, _ in groupby(moment.workers for moment in day.moments)]
    print(f"workers: {', '.join(seen)}; told: {', '.join(map(str, day.changes))}")
    peak, share = max(moment.workers for moment in day.moments), day.spent / day.fixed
    print(f"{day.spent:.0f} worker-seconds, where {peak} all the time take {day.fixed:.0f}: {share:.0%}")
    print(f"{plan.domains * plan.pages + plan.huge:,} pages; load {os.getloadavg()[0]:.1f}")
    broken = broken_promises(day)
    print("Not kept: " + "; ".join(broken) if broken else "All kept.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

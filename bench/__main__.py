"""`make bench`: every benchmark in turn, with its table and verdict. Ends with 1 when a promise is not kept."""

from __future__ import annotations

import subprocess
import sys

from .server import ROOT

ALL = (
    ("bench.run", "--rounds", "2"),
    ("bench.processes",),
    ("bench.frontier",),
    ("bench.frontier", "--on", "valkey"),
    ("bench.fairness",),
    ("bench.fleet",),
    ("bench.routes",),
    ("bench.browser",),
    ("bench.reparse",),
    ("bench.recrawl",),
    ("bench.schedulers",),
    ("bench.pace",),
    ("bench.api",),
    ("bench.autoscale",),
    ("bench.backup",),
)


def main() -> int:
    broken = []
    for module, *options in ALL:
        title = " ".join((module, *options))
        print(f"\n== {title}", flush=True)
        if subprocess.run([sys.executable, "-m", module, *options], cwd=ROOT).returncode:
            broken.append(title)
    print(f"\nNot kept: {', '.join(broken)}" if broken else "\nAll promises kept.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

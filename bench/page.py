"""docs/benchmarks.md: what the benchmarks printed, when, where, and what their figures do not say.

    python -m bench.page                  run all of them and write the page
    python -m bench.page run heal         run these, and keep the sections of the others

Lives here: the texts around the tables. The tables are what the commands print; nobody types a figure.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .server import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
CORES = len(os.sched_getaffinity(0))

INTRO = """\
# Benchmarks

What Gossamer costs, next to others where others do the same work. Compare ratios, not seconds: all rows of a table were
measured in the same run, on the same machine, one after the other. [bench/README.md](../bench/README.md) says how each
benchmark works and why it is fair.

This page is written by `python -m bench.page`. It runs the commands below and keeps what they print.
"""


@dataclass(frozen=True)
class Part:
    """A section of the page: the question, the command's options, and what the figures do not say."""

    title: str
    question: str
    limits: str
    options: tuple[str, ...] = ()


PARTS = {
    "run": Part(
        "A durable crawl",
        "What does a page cost when every link is followed, the queue is on disk, and records are stored?",
        "Loopback answers at once, so this is what a crawler itself costs, not how fast a real site is crawled. Scrapy"
        " has the most plugins. Crawlee's browser crawlers are not in this table. The loop by hand is no crawler: it"
        " has no queue on disk, no archive and no retries.",
        ("--pages", "3000", "--rounds", "2"),
    ),
    "processes": Part(
        "Several processes",
        "What does a second process bring on one SQLite project?",
        "The site needs a core as well. On more cores, the single writer of SQLite bends first: then use the fleet's"
        " stores.",
    ),
    "fleet": Part(
        "The fleet's stores",
        "What do Valkey, PostgreSQL and S3 cost a page, next to SQLite and files, and next to scrapy-redis?",
        "All servers share two cores with the workers, so the wall times are not those of a fleet.",
    ),
    "recrawl": Part(
        "Visiting again",
        "How current are the copies when a fifth of the pages can be fetched in a day?",
        "A simulation of pages that change at known rates. Real sites are less regular.",
    ),
    "routes": Part(
        "Routes and proxies",
        "What do the router and the proxy layer cost a page that needs neither?",
        "Hosted services do more against bot walls than any route that you run yourself.",
    ),
    "outputs": Part(
        "Outputs",
        "Do four targets equal the records when workers, outputs and a target are killed, and what does a page pay?",
        "MongoDB is a stand-in that speaks its protocol. A worker that was killed stores its run from the first page"
        " on. CPU per page includes the start of the command; with other work beside it a few per cent are noise.",
    ),
    "heal": Part(
        "Healing",
        "How much of a redesigned site do rules read that were learned from stored values?",
        "The sites are made up. Scrapling needs no records for its adaptive selectors.",
        ("--seeds", "m", "n", "o", "p", "--known", "5", "20", "48"),
    ),
    "pace": Part(
        "Pace",
        "Do two requests ever reach a site closer together than its rate allows?",
        "`--gaps 5000` takes 20 minutes and was not used here.",
        ("--gaps", "500"),
    ),
}


def machine() -> str:
    processors = re.findall(r"^model name\s*: (.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    memory = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30)
    python = f"Python {platform.python_version()} ({platform.python_compiler()})"
    return f"{CORES} cores ({processors[0] if processors else platform.machine()}), {memory} GB, {python}"


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def measured(name: str, part: Part) -> str:
    """Run the benchmark and return its section."""
    words = ["python", "-m", f"bench.{name}", *part.options]
    load, commit = os.getloadavg()[0], _git("rev-parse", "--short=10", "HEAD")
    run = subprocess.run([sys.executable, *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    print(run.stdout, run.stderr, sep="\n", flush=True)
    lines = "\n".join(line.rstrip() for line in run.stdout.strip().splitlines())
    command = f"<!-- not run: takes minutes -->\n```sh\n{' '.join(words)}\n```"
    date = time.strftime("%d %B %Y").lstrip("0")
    where = f"Measured on {date} with {commit}, on {machine()}. The load before was {load:.1f}."
    if run.returncode:
        where += f" The command ended with status {run.returncode}: a promise was not kept in this run."
    shown = (f"## {part.title}", part.question, command, f"```text\n{lines}\n```", where, part.limits)
    return "\n\n".join(shown) + "\n"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def sections(page: str) -> Iterator[tuple[str, str]]:
    for section in re.split(r"^(?=## )", page, flags=re.MULTILINE)[1:]:
        yield section.partition("\n")[0].removeprefix("## "), section.rstrip() + "\n"


def main(names: Sequence[str]) -> int:
    if unknown := set(names) - set(PARTS):
        print(f"There is no {', '.join(sorted(unknown))} on the page. It has {', '.join(PARTS)}.", file=sys.stderr)
        return 2
    kept = dict(sections(PAGE.read_text(encoding="utf-8"))) if PAGE.exists() else {}
    for name in names or PARTS:
        kept[PARTS[name].title] = measured(name, PARTS[name])
        shown = [kept[part.title] for part in PARTS.values() if part.title in kept]
        PAGE.write_text("\n".join([INTRO, *shown]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

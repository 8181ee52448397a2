"""A Scrapy project under Scrapy and under Gossamer: the items, the requests and the stats of each spider, side by side.

    python -m bench.scrapy_beside FOLDER [--answers FILE] [--spiders a,b] [--limit 20] [--at-once 2] [--markdown]

FOLDER holds scrapy.cfg; without one, the spiders of bench/scrapy_forty are run. It is copied: nothing in it changes.
Every site is a server on loopback (scrapy_answers.py), and nothing leaves the machine; the requests are those of its
log. Each spider has a process and a copy of the folder of its own, under Scrapy and under `gossamer crawl`.
Exit code 1 if a spider gave other items, or made other requests.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from . import scrapy_answers
from .server import ROOT

FORTY = Path(__file__).with_name("scrapy_forty")
SECONDS = 120  # for one spider on one side
TOML = """
[transports.answers]
use = "scrapy_sides:Transport"

[routes.answers]
transport = "answers"

[router]
ladder = ["answers"]

[fetch]
allow_private = true
conditional = false

[politeness]
rate = "unlimited"
robots = false

[crawl]
site_concurrency = 8
"""
# Stats of Scrapy's own parts.
USUAL = (
    "downloader/", "scheduler/", "log_count/", "response_", "request_", "item_", "memusage/", "offsite/", "dupefilter/",
    "retry/", "httperror/", "spider_exceptions/", "robotstxt/", "elapsed_", "start_time", "finish_", "httpcompression/",
    "file_", "scraper/", "feedexport/", "items_per_minute", "responses_per_minute", "urllength/", "cookies/", "addon/",
    "redirect/", "depth/", "httpauth/",
)  # fmt: skip


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """What one side made of a spider."""

    items: Counter[str]
    requests: Counter[str]
    stats: dict[str, Any]
    error: str = ""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    theirs: Side
    ours: Side

    @property
    def same_items(self) -> bool:
        return set(self.theirs.items) == set(self.ours.items) and not self.theirs.error and not self.ours.error

    @property
    def same_requests(self) -> bool:
        return self.theirs.requests == self.ours.requests

    @property
    def same_stats(self) -> bool:
        """Are the stats that the project's own code counts the same?"""
        return _own(self.theirs.stats) == _own(self.ours.stats)

    @property
    def words(self) -> str:
        """What differs."""
        told = [one for one in (self.theirs.error and f"Scrapy: {self.theirs.error}", self.ours.error) if one]
        if not self.same_items:
            told.append(f"items {_difference(self.theirs.items, self.ours.items)}")
        if not self.same_requests:
            told.append(f"requests {_difference(self.theirs.requests, self.ours.requests)}")
        if not self.same_stats:
            told.append(f"stats {_difference(Counter(_own(self.theirs.stats)), Counter(_own(self.ours.stats)))}")
        return "; ".join(told)


def _own(stats: dict[str, Any]) -> dict[str, int]:
    return {name: one for name, one in stats.items() if isinstance(one, int) and not name.startswith(USUAL)}


def _difference(theirs: Counter[str], ours: Counter[str]) -> str:
    missing, more = theirs - ours, ours - theirs
    shown = [f"missing {len(missing)}: {next(iter(missing))[:120]}"] if missing else []
    shown += [f"more {len(more)}: {next(iter(more))[:120]}"] if more else []
    return ", ".join(shown)


def compare(project: Path, answers: str | None, names: list[str], limit: int | None, at_once: int) -> list[Pair]:
    with TemporaryDirectory(prefix="scrapy-beside-") as folder, ThreadPoolExecutor(at_once) as pool:
        home = Path(folder)
        found = names or listed(prepared(project, home / "list"))
        return list(pool.map(lambda name: pair(project, answers, name, limit, home), found))


def pair(project: Path, answers: str | None, name: str, limit: int | None, home: Path) -> Pair:
    with scrapy_answers.serving(scrapy_answers.answers_of(answers)) as server:
        environ = {**os.environ, scrapy_answers.ADDRESS: str(server.server_port)}
        theirs = under_scrapy(prepared(project, home / "theirs" / name), name, server, environ, limit)
        ours = under_gossamer(prepared(project, home / "ours" / name), name, server, environ, limit)
    made = Pair(name=name, theirs=theirs, ours=ours)
    print(f"{name}: {made.words or 'the same'}", file=sys.stderr, flush=True)
    return made


def prepared(project: Path, folder: Path) -> Path:
    """A copy of the project, with what replaces the network beside it."""
    left_out = shutil.ignore_patterns("__pycache__", ".git", ".venv", "gossamer-data", "gossamer.toml", ".scrapy")
    shutil.copytree(project, folder, ignore=left_out)
    for file in ("scrapy_answers.py", "scrapy_sides.py"):
        shutil.copy(Path(__file__).with_name(file), folder / file)
    (folder / "gossamer.toml").write_text(TOML)
    return folder


def listed(folder: Path) -> list[str]:
    said = run([sys.executable, "-m", "gossamer", "spiders", "--json"], folder, dict(os.environ))
    if not said.stdout:
        sys.exit(said.stderr)
    return [one["name"] for one in json.loads(said.stdout)["spiders"]]


def under_scrapy(
    folder: Path, name: str, server: scrapy_answers.Server, environ: dict[str, str], limit: int | None
) -> Side:
    server.asked.clear()
    more = {"CLOSESPIDER_PAGECOUNT": str(limit)} if limit else {}
    command = [sys.executable, "-m", "scrapy_sides", str(folder), json.dumps(more), name]
    said = run(command, folder, environ)
    file = folder / f"{name}.json"
    if not file.exists():
        return Side(items=Counter(), requests=Counter(server.asked), stats={}, error=last_line(said.stderr))
    told = json.loads(file.read_text())
    items = Counter(map(canonical, told["items"]))
    error = "" if told["stats"] else last_line(said.stderr)  # it failed before it began
    return Side(items=items, requests=Counter(server.asked), stats=told["stats"], error=error)


def under_gossamer(
    folder: Path, name: str, server: scrapy_answers.Server, environ: dict[str, str], limit: int | None
) -> Side:
    server.asked.clear()
    more = ["--limit", str(limit)] if limit else []
    command = [sys.executable, "-m", "gossamer", "crawl", name, "-o", "items.jsonl", *more]
    said = run(command, folder, environ)
    file = folder / "items.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    items = Counter(canonical(json.loads(line)) for line in lines)
    shown = run([sys.executable, "-m", "gossamer", "job", "show", name, "--json"], folder, environ)
    try:
        stats = json.loads(shown.stdout).get("stats", {})
    except ValueError:
        stats = {}
    failed = said.returncode not in (0, 3, 6) and not items  # 3 and 6: with dead letters, as Scrapy's own log has them
    error = last_line(said.stderr) if failed else ""
    return Side(items=items, requests=Counter(server.asked), stats=stats, error=error)


def run(command: list[str], folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"it went on for {SECONDS} seconds, and was stopped")


def last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2][:300] or "nothing was said"


def canonical(item: dict[str, Any]) -> str:
    """An item as text, without what an export adds to it and paths of the run's own folder."""
    own = {name: value for name, value in item.items() if not name.startswith("_")}
    return json.dumps(own, sort_keys=True, default=str)


def table(pairs: list[Pair]) -> str:
    lines = [
        "| spider | items: Scrapy, Gossamer | requests | stats of its own | what differs |",
        "|---|---|---|---|---|",
    ]
    for one in pairs:
        requests = f"{one.theirs.requests.total()}, {one.ours.requests.total()}"
        stats = "the same" if one.same_stats else "differ"
        count = f"{len(one.theirs.items)}, {len(one.ours.items)}"
        lines.append(f"| `{one.name}` | {count} | {requests} | {stats} | {one.words.replace('|', '/') or '-'} |")
    return "\n".join(lines)


def verdict(pairs: list[Pair]) -> str:
    items, requests = sum(one.same_items for one in pairs), sum(one.same_requests for one in pairs)
    stats = sum(one.same_stats for one in pairs)
    return (
        f"Of {len(pairs)} spiders {items} gave the same items, {requests} made the same requests, {stats} counted the "
        "same in their own stats."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="A Scrapy project under Scrapy and under Gossamer.")
    parser.add_argument("project", nargs="?", type=Path, default=FORTY)
    parser.add_argument("--answers", help="a .py file with answer(), or a JSON Lines file of recorded answers")
    parser.add_argument("--spiders", default="", help="names, with commas")
    parser.add_argument("--limit", type=int, help="pages of each spider")
    parser.add_argument("--at-once", type=int, default=1, help="spiders at the same time")
    parser.add_argument("--markdown", action="store_true", help="the table for docs/scrapy.md")
    given = parser.parse_args()
    own = str(FORTY / "answers.py") if given.project == FORTY and given.answers is None else given.answers
    names = [name for name in given.spiders.split(",") if name]
    pairs = compare(given.project.resolve(), own, names, given.limit, given.at_once)
    differ = [one for one in pairs if one.words]
    print(table(pairs if given.markdown else differ) if given.markdown or differ else "")
    print(verdict(pairs))
    return 0 if all(one.same_items and one.same_requests for one in pairs) else 1


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())

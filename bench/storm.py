"""`make storm` (`python -m bench.storm`): a fleet of four workers, and all that can die under it, round by round.

Valkey, PostgreSQL and S3, a site of 25 hosts; each round is a job on a new edition of the site while workers,
supervisors, schedulers, services, disks, clocks and hosts fail (storm_rounds.py). The witnesses are the site's log with
the kernel's times, the records with their versions, the spools on disk. A fetch of a page that was fetched before needs
a fault that explains it: one that was going on, or began soon after, when the page was fetched the first time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import cycle, islice, pairwise
from pathlib import Path
from urllib.parse import urlsplit

from tests.sites.grounds import record_of
from tests.sites.running import Hit

from gossamer.errors import Uncertain
from gossamer.frontier.contract import DeadFilter, DeadLetter
from gossamer.model.job import JobState
from gossamer.model.record import StoredRecord
from gossamer.project.open import Project, open_project
from gossamer.settings import load
from gossamer.store.contract import RecordQuery

from .storm_fleet import DELAYED, INTERVAL, ORDERS, PER_SITE, UNLIMITED, Fault, Fleet, Round, fleet
from .storm_rounds import ROUNDS, Skipped, due_soon
from .table import table

TOLERANCE = 0.005  # seconds
IN_PROGRESS = 5.0  # seconds for which a page may have been fetched and not yet settled
SHOWN = 5  # details of each kind
RANDOM = "all at random"
ROUNDS_OF_A_FLEET = 12
ORDER = "-order-"  # in the key of a record that a POST brought


@dataclass
class Verdict:
    """One line of the table. Every count must be zero."""

    name: str
    pages: int = 0
    faults: int = 0
    seconds: float = 0.0
    recovery: float = 0.0  # from the end of a fault to the next request, at worst
    counts: dict[str, int] = field(default_factory=dict)
    details: list[str] = field(default_factory=list)
    skipped: str = ""
    rounds: int = 1

    @property
    def is_good(self) -> bool:
        return not any(self.counts.values()) and not self.details


COUNTED = (
    "lost", "doubled", "sent twice", "gone", "unexplained", "short gaps", "too many", "in spools", "dead", "other",
)  # fmt: skip


def play(name: str, on: Fleet, chance: random.Random) -> Verdict:
    """Play one round, and judge it."""
    with on.site(ORDERS if "POSTs" in name else 0) as site:
        run = Round(on, site, chance, due_soon() if name == "schedulers killed" else "", alone=name.endswith("SQLite"))
        try:
            ROUNDS[name](run)
            run.finish()
        except Skipped as reason:
            return Verdict(name, skipped=str(reason))
        finally:
            run.close()
            spooled = sum(spooled_in(file) for folder in run.spools for file in folder.glob("*.spool"))
        return asyncio.run(judge(name, run, spooled))


def spooled_in(file: Path) -> int:
    """How many results lie in a spool file that no process holds."""
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True)) as database:
        return int(database.execute("SELECT count(*) FROM results").fetchone()[0])


async def judge(name: str, run: Round, spooled: int) -> Verdict:
    site = run.site
    verdict = Verdict(name, pages=run.pages, faults=len(run.faults) + run.built_in)
    verdict.seconds = time.monotonic() - run.began
    hits = sorted(site.hits(robots=True), key=lambda hit: hit.at)
    async with open_project(load(start=run.folder, environ={}), to_look=True) as project:
        counts, stored = await compare_records(project, run, verdict)
        job = max(await project.state.jobs.jobs(), key=lambda job: job.created_at)
        if job.state is not JobState.FINISHED or job.ending != "done":
            run.complaints.append(f"{job.id} is {job.state.value} {job.ending}".strip())
        letters = [letter async for letter in project.state.queue.letters(DeadFilter(job=job.id))]
    letters, twice, unknown = compare_orders(run, hits, letters, stored)
    counts["lost"] += len(unknown)
    verdict.details += [f"sent twice: {url}" for url in twice[:SHOWN]] + [f"lost: {url}" for url in unknown[:SHOWN]]
    verdict.details += [f"dead letter: {letter.url} {letter.reason}" for letter in letters[:SHOWN]]
    unexplained = repeats_without_reason(hits, run.faults)
    short = short_gaps(hits)
    crowded = [hit for hit in hits if hit.in_progress > PER_SITE]
    verdict.details += unexplained[:SHOWN] + short[:SHOWN] + run.complaints
    verdict.details += [f"{hit.host}{hit.path}: {hit.in_progress} requests under way" for hit in crowded[:SHOWN]]
    verdict.counts = {
        **counts, "sent twice": len(twice), "unexplained": len(unexplained), "short gaps": len(short),
        "too many": len(crowded), "in spools": spooled, "dead": len(letters), "other": len(run.complaints),
    }  # fmt: skip
    verdict.recovery = recovery(hits, run.faults)
    return verdict


Stored = Mapping[str, Sequence[StoredRecord]]  # by key


async def compare_records(project: Project, run: Round, verdict: Verdict) -> tuple[dict[str, int], Stored]:
    """Every record of this edition is there, once, with one version for each edition so far."""
    truth = run.site.truth()
    stored: dict[str, list[StoredRecord]] = defaultdict(list)
    async for record in project.records.records(RecordQuery()):
        if run.site.orders() or ORDER not in record.key:  # of an earlier round
            stored[record.key].append(record)
    lost = [key for key, true in truth.items() if all(one.data["title"] != true["title"] for one in stored[key])]
    doubled = [key for key, records in stored.items() if len(records) > 1]
    gone = [key for key, records in stored.items() if any(one.gone_since is not None for one in records)]
    for key, (record, *_) in ((key, records) for key, records in stored.items() if records):
        if record.version == run.versions:
            continue
        versions = await project.records.history(record.type, record.site, record.key)
        if any(version.gone for version in versions if version.job == record.job) and key not in gone:
            gone.append(key)
        titles = Counter((version.data, version.gone) for version in versions)
        doubled += [key] * sum(times - 1 for (_, was_gone), times in titles.items() if not was_gone)
    for what, keys in (("lost", lost), ("doubled", doubled), ("gone", gone)):
        verdict.details += [f"{what}: {key}" for key in keys[:SHOWN]]
    return {"lost": len(lost), "doubled": len(doubled), "gone": len(gone)}, stored


def compare_orders(
    run: Round, hits: list[Hit], letters: list[DeadLetter], stored: Stored
) -> tuple[list[DeadLetter], list[str], list[str]]:
    """Every order was sent once, and has either a record or an `uncertain` letter, which a fault must explain.

    Return the letters that are not explained, the orders that were sent twice, and those of which nothing is known.
    """
    sent: dict[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        if hit.method == "POST":
            sent[run.site.url(hit.host, hit.path)].append(hit)
    twice = [url for url, seen in sent.items() if len(seen) > 1]
    answered, unknown = set(), []
    in_doubt = {letter.url for letter in letters if letter.reason == Uncertain.reason}
    for url in run.site.orders():
        parts = urlsplit(url)
        true = record_of(parts.hostname or "", parts.path, run.site.grounds.edition)
        if any(one.data["title"] == true["title"] for one in stored.get(true["sku"], ())):
            answered.add(url)
        elif url not in in_doubt:
            unknown.append(url)
    explained = {
        url
        for url in in_doubt - answered
        if all(is_explained(hit, run.faults) for hit in sent[url])  # or it was noted, and never left
    }
    return [letter for letter in letters if letter.url not in explained], twice, unknown


def is_explained(hit: Hit, faults: list[Fault]) -> bool:
    """Did a fault fall into the time in which this request was settled?"""
    return any(fault.began - IN_PROGRESS <= hit.at <= fault.ended + IN_PROGRESS for fault in faults)


def repeats_without_reason(hits: list[Hit], faults: list[Fault]) -> list[str]:
    """Fetches of a page that had been fetched, though no fault fell into the time in which that was settled."""
    last: dict[tuple[str, str], Hit] = {}
    strange = []
    for hit in hits:
        if hit.path == "/robots.txt":
            continue
        before = last.get((hit.host, hit.path))
        if before is not None and not is_explained(before, faults):
            strange.append(f"{hit.host}{hit.path} was fetched again after {hit.at - before.at:.1f} s")
        last[hit.host, hit.path] = hit
    return strange


def interval_of(host: str) -> float | None:
    delay = DELAYED.get(host)
    return delay if delay is not None else None if host in UNLIMITED else INTERVAL


def short_gaps(hits: list[Hit]) -> list[str]:
    by_host: dict[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        by_host[hit.host].append(hit)
    short = []
    for host, seen in by_host.items():
        interval = interval_of(host)
        for before, after in pairwise(seen):
            gap = after.at - before.at
            if interval is not None and gap < interval - TOLERANCE:
                short.append(f"{host} {gap * 1000:.1f} of {interval * 1000:.0f} ms: {before.path}, then {after.path}")
    return short


def recovery(hits: list[Hit], faults: list[Fault]) -> float:
    waits = []
    for fault in faults:
        after = next((hit.at for hit in hits if hit.at >= fault.ended), None)
        if after is not None:
            waits.append(after - fault.ended)
    return max(waits, default=0.0)


# -- many faults, in slices ------------------------------------------------------------------------------------------


def note(verdict: Verdict, file: Path, seed: int) -> None:
    """Append the round to a file of rounds, one JSON object to a line."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    line = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"), "commit": commit.stdout.strip(), "seed": seed,
        "round": verdict.name, "pages": verdict.pages, "faults": verdict.faults, "seconds": round(verdict.seconds),
        "recovery": round(verdict.recovery, 1), **verdict.counts, "details": verdict.details,
    }  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lines:
        lines.write(json.dumps(line) + "\n")


def noted(file: Path) -> list[Verdict]:
    """The rounds of the file, those of one name added up."""
    sums: dict[str, Verdict] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        one = json.loads(line)
        total = sums.setdefault(one["round"], Verdict(one["round"], rounds=0, counts=dict.fromkeys(COUNTED, 0)))
        total.rounds += 1
        total.pages += one["pages"]
        total.faults += one["faults"]
        total.seconds += one["seconds"]
        total.recovery = max(total.recovery, one["recovery"])
        total.details += one["details"]
        for what in COUNTED:
            total.counts[what] += one[what]
    return list(sums.values())


def faults_of(verdicts: Sequence[Verdict]) -> int:
    return sum(one.faults for one in verdicts)


def names_in_turn(names: Sequence[str], played: int) -> Iterator[str]:
    """All rounds in turn, each with one at random after it, from where the last slice ended."""
    rounds = [name for each in names if each not in ("calm", RANDOM) for name in (each, RANDOM)] or list(names)
    return islice(cycle(rounds), played % len(rounds), None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.storm", description=__doc__)
    parser.add_argument("--pages", type=int, default=4000, help="of the site (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=len(ROUNDS), help="only the first so many (default: all)")
    parser.add_argument("--only", nargs="*", default=[], help="rounds whose name has one of these words in it")
    parser.add_argument("--random", type=int, default=1, help="rounds in which all happens at random")
    parser.add_argument("--seed", type=int, default=1, help="of what happens by chance (default %(default)s)")
    parser.add_argument("--faults", type=int, help="play until the rounds in --noted have so many faults")
    parser.add_argument("--minutes", type=float, default=60.0, help="with --faults: begin no round after (default 60)")
    parser.add_argument(
        "--noted", type=Path, default=Path("build/storm.jsonl"), help="with --faults: where rounds are added up"
    )
    chosen = parser.parse_args()
    names = [name for name in ROUNDS if not chosen.only or any(word in name for word in chosen.only)][: chosen.rounds]
    if chosen.faults is None:
        names += [name for name in names if name == RANDOM] * (chosen.random - 1)
        verdicts = play_once(names if "calm" in names else ["calm", *names], chosen.pages, chosen.seed)
    else:
        play_on(names, chosen)
        verdicts = noted(chosen.noted)
    head = ("round", "rounds", "pages", "faults", *COUNTED, "recovery s", "took s")
    rows = [
        (one.name, str(one.rounds), f"{one.pages:,}", str(one.faults),
         *(str(one.counts.get(what, "-")) for what in COUNTED), f"{one.recovery:.1f}", f"{one.seconds:.0f}")
        for one in verdicts
    ]  # fmt: skip
    print(table(head, rows))
    broken = [one.name for one in verdicts if not one.is_good]
    total = f"{faults_of(verdicts)} faults."
    print(f"{total} NOT KEPT: {', '.join(broken)}." if broken else f"{total} Kept: nothing but zeros.")
    return 1 if broken or faults_of(verdicts) < (chosen.faults or 0) else 0


def play_once(names: Sequence[str], pages: int, seed: int) -> list[Verdict]:
    chance, verdicts = random.Random(seed), []
    with fleet(pages) as on:
        for name in names:
            verdicts.append(play(name, on, chance))
            show(verdicts[-1])
    return verdicts


def play_on(names: Sequence[str], chosen: argparse.Namespace) -> None:
    """Play rounds until there are enough faults in the file, or the time is over. Each has its own seed."""
    ends = time.monotonic() + chosen.minutes * 60
    done = noted(chosen.noted)
    played = sum(one.rounds for one in done)
    with ExitStack() as stack:
        on: Fleet | None = None
        for number, name in enumerate(names_in_turn(names, played), start=played):
            if faults_of(noted(chosen.noted)) >= chosen.faults or time.monotonic() >= ends:
                return
            if on is None or number % ROUNDS_OF_A_FLEET == 0:  # from time to time a new one, whose records are few
                stack.close()
                on = stack.enter_context(fleet(chosen.pages))
            seed = chosen.seed + number
            verdict = play(name, on, random.Random(seed))
            show(verdict)
            if not verdict.skipped:
                note(verdict, chosen.noted, seed)


def show(verdict: Verdict) -> None:
    said = verdict.skipped or ("good" if verdict.is_good else "NOT GOOD")
    print(f"{verdict.name}: {said} ({verdict.faults} faults, {verdict.seconds:.0f} s)", flush=True)
    for detail in verdict.details:
        print(f"    {detail}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

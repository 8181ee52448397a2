"""`python -m bench.schedulers`: three schedulers and four workers, killed -9 at random. Is anything lost or doubled?

Seven schedules (intervals of seconds, a cron, a single moment; all policies and sources) on Valkey or SQLite. Every
second or so one of the seven processes is killed and replaced, the leader oftener than chance; now and then a leader
is stopped for longer than its term, so that a stale one wakes up. After two minutes the schedules are paused, all jobs
end, and four witnesses are compared: the book of schedules and jobs, the log of attempts, what the processes logged,
and what the site saw. scheduler_storm.py has the processes, witnesses.py what they leave behind; here is the judgement.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gossamer.model.job import Job, JobState

from .scheduler_storm import CONCURRENCY, PER_SITE, Life, Plan, Storm, storm, ticks_of
from .table import table
from .witnesses import TOLD, Span, Witnesses, gather, moment, reigns

TAKE_OVER = 10.0  # seconds, promised
STARTING = 5.0  # seconds until a new process is ready
SLACK = 0.5  # seconds that a leader may need for a look
NOTED = 0.1  # seconds until the site has noted a request, when the machine is busy
CLOCKS = 0.005  # seconds that two readings of the same clock may seem to be apart
SHOWN = 20  # faults


@dataclass(frozen=True)
class Row:
    """What became of one schedule."""

    plan: Plan
    ticks: int
    fired: int
    skipped: int
    folded: int
    replaced: int
    pages: int
    unchanged: int
    repeats: int


# -- judging -----------------------------------------------------------------------------------------------------------


def judge(blown: Storm, known: Witnesses) -> list[Row]:
    """One row for each schedule; what is not as promised is added to `known.faults`."""
    told = told_of(blown, known)
    killed = {
        verb: [life for life in blown.lives if life.killed and life.verb == verb] for verb in ("scheduler", "worker")
    }
    judge_terms(blown, known)
    judge_ends(blown, known, len(killed["worker"]))
    rows = []
    for plan in blown.plans:
        ticks, folded = judge_ticks(blown, known, plan, told, len(killed["scheduler"]))
        for job in known.jobs[plan.name]:
            judge_job(blown, known, plan, job)
        for earlier, later in pairwise(known.jobs[plan.name]):
            apart = earlier.finished_at is not None and earlier.finished_at <= later.created_at + CLOCKS
            known.expect(apart, f"{earlier.id} and {later.id} ran at the same time")
        judge_hits(known, plan)
        repeats = judge_repeats(known, plan, [life.ended or 0.0 for life in killed["worker"]])
        counts = [known.counts[job.id] for job in known.jobs[plan.name]]
        progress = known.schedules_now[plan.name]
        rows.append(
            Row(
                plan=plan, ticks=ticks, fired=progress.runs, skipped=progress.skipped, folded=folded,
                replaced=sum(job.ending == "replaced" for job in known.jobs[plan.name]),
                pages=sum(count.done + count.unchanged for count in counts),
                unchanged=sum(count.unchanged for count in counts), repeats=repeats,
            )
        )  # fmt: skip
    most = sum(row.repeats for row in rows if row.plan.overlap != "replace")
    known.expect(
        most <= len(killed["worker"]) * 2 * CONCURRENCY, f"{most} repeats are more than workers had in progress"
    )
    return rows


def told_of(blown: Storm, known: Witnesses) -> dict[str, dict[str, set[float]]]:
    """By kind of event and schedule: the ticks that were told. None may be told twice, by whomever."""
    told: dict[str, dict[str, set[float]]] = {kind: defaultdict(set) for kind in TOLD}
    for life in blown.lives:
        for event in life.command.logged(*TOLD):
            name, due, before = event["schedule"], event["due"], told[event["event"]]
            known.expect(due not in before[name], f"{event['event']} was told twice for {name} at {due}")
            before[name].add(due)
    return told


def judge_terms(blown: Storm, known: Witnesses) -> None:
    """Every term has one leader, and a leader whose term was over decides nothing until it leads again."""
    leaders: dict[int, set[int]] = defaultdict(set)  # by term: processes that said so
    for life in blown.lives:
        leads = False
        for event in life.command.logged("Leading", *TOLD):
            if event["event"] == "Leading":
                leads = bool(event["leads"])
                leaders[event["term"]].add(life.command.pid)
            else:
                known.expect(leads, f"{life.command.pid} decided about {event['schedule']} though it did not lead")
        for _, awake in life.frozen:
            known.expect(not is_stale(blown, life, awake), f"{life.command.pid} woke up and fired as if it still led")
    for term, pids in leaders.items():
        known.expect(len(pids) == 1, f"term {term} had {len(pids)} leaders")
    for begin, end in known.gaps:
        # Somebody must have been there all the time; one that is killed, frozen or only starting cannot take over.
        ready = any(was_there(life, begin - STARTING, min(end, begin + TAKE_OVER)) for life in blown.lives)
        long = end - begin > TAKE_OVER and ready
        known.expect(not long, f"for {end - begin:.1f} s nobody led; promised: {TAKE_OVER:.0f} s")


def was_there(life: Life, begin: float, end: float) -> bool:
    """Was it a scheduler, alive and awake, from `begin` to `end`?"""
    alive = life.verb == "scheduler" and life.began <= begin and (life.ended is None or life.ended >= end)
    return alive and not any(asleep < end and begin < awake for asleep, awake in life.frozen)


def is_stale(blown: Storm, frozen: Life, awake: float) -> bool:
    """Did it, after it woke up, decide about a tick in a term that was over because another one led meanwhile?"""
    events = frozen.command.logged("Leading", *TOLD)
    own = max((event["term"] for event in events if event.get("leads") and moment(event["at"]) <= awake), default=0)
    others = [
        event["term"]
        for life in blown.lives
        if life is not frozen
        for event in life.command.logged("Leading")
        if event["leads"] and moment(event["at"]) <= awake
    ]
    if max(others, default=0) < own:
        return False  # nobody led meanwhile: it may go on
    after = [event for event in events if moment(event["at"]) > awake]
    return bool(after) and after[0]["event"] != "Leading"


def judge_ticks(
    blown: Storm, known: Witnesses, plan: Plan, told: dict[str, dict[str, set[float]]], killed: int
) -> tuple[int, int]:
    """Every tick became a job, or was skipped, or was folded into a later one while nobody led.

    How many there were, and how many were folded.
    """
    name, progress, jobs = plan.name, known.schedules_now[plan.name], known.jobs[plan.name]
    ticks, coming = ticks_of(progress)
    dues = [job.due for job in jobs if job.due is not None]
    fired, skipped = set(dues), told["ScheduleSkipped"][name]
    known.expect(len(dues) == len(fired) == len(jobs), f"{name}: a tick has two jobs, or a job has no tick")
    known.expect(
        progress.runs == len(jobs), f"{name}: {progress.runs} ticks are said to have fired, of {len(jobs)} jobs"
    )
    known.expect(fired | skipped <= set(ticks), f"{name}: fired when it was not due: {fired | skipped - set(ticks)}")
    known.expect(not fired & skipped, f"{name}: fired and skipped: {fired & skipped}")
    known.expect(told["ScheduleFired"][name] <= fired, f"{name}: told of runs that are not in the book")
    # Whoever was killed may have had no time to tell of the step it had just taken; the book knows of it.
    untold = progress.skipped - len(skipped)
    known.expect(0 <= untold <= killed, f"{name}: {progress.skipped} ticks were skipped, {len(skipped)} were told")
    silent = len(fired - told["ScheduleFired"][name])
    known.expect(silent <= killed, f"{name}: {silent} runs began and nobody told of them")
    known.expect(progress.waiting_due is None and not progress.failures, f"{name}: {progress.trouble or 'a run waits'}")
    known.expect(coming is None or coming > blown.calmed_at, f"{name}: nobody decided about {coming}")
    folded = len(ticks) - progress.runs - progress.skipped
    known.expect(folded >= 0, f"{name}: {-folded} more runs and skips than ticks")
    following = dict(pairwise([*ticks, *([] if coming is None else [coming])]))
    undecided = [tick for tick in ticks if tick not in fired | skipped]
    alone = [tick for tick in undecided if not is_excused(tick, following.get(tick), known.gaps)]
    late = max(0, len(alone) - untold)
    known.expect(late == 0, f"{name}: {late} ticks were forgotten, among {alone[:5]}")
    return len(ticks), folded


def is_excused(tick: float, following: float | None, gaps: Sequence[Span]) -> bool:
    """Was nobody there to decide about it before the next one was due? The latest tick of an absence is not excused."""
    joined: list[Span] = []
    for begin, end in gaps:
        if joined and begin - joined[-1][1] < SLACK:  # who led for so short a time may not have got to a look
            begin = joined.pop()[0]
        joined.append((begin, end))
    return following is not None and any(begin - SLACK <= tick and following <= end + SLACK for begin, end in joined)


def judge_ends(blown: Storm, known: Witnesses, killed: int) -> None:
    """A job is ended by one worker, which tells of it unless it dies first. Replaced ones are ended by the leader."""
    ended = Counter(event["job"] for life in blown.lives for event in life.command.logged("JobEnded"))
    known.expect(set(ended.values()) <= {1}, f"ended more than once: {[job for job, n in ended.items() if n > 1]}")
    done = {job.id for jobs in known.jobs.values() for job in jobs if job.ending == "done"}
    known.expect(set(ended) <= done, f"told to have ended, but the book knows better: {set(ended) - done}")
    known.expect(len(done - set(ended)) <= killed, f"{len(done - set(ended))} jobs ended and nobody told of it")


def judge_job(blown: Storm, known: Witnesses, plan: Plan, job: Job) -> None:
    """It has one end, its counters add up, and the site and the log of attempts agree with them."""
    count, urls = known.counts[job.id], plan.urls(blown.site)
    allowed = ("done", "replaced") if plan.overlap == "replace" else ("done",)
    known.expect(job.state is JobState.FINISHED and job.ending in allowed, f"{job.id}: {job.state}, {job.ending}")
    known.expect(not count.open and not count.dead, f"{job.id}: open or dead pages: {count}")
    settled = count.done + count.unchanged
    known.expect(count.discovered == settled + count.dropped + count.duplicates, f"{job.id} does not add up: {count}")
    tried = known.attempted[job.id]
    if job.ending == "replaced":
        known.expect(settled + count.dropped <= plan.pages, f"{job.id}: more pages than its source lists: {count}")
        known.expect(settled <= len(tried), f"{job.id}: {settled} pages are done, {len(tried)} were stored")
        return
    known.expect(settled == plan.pages and not count.dropped, f"{job.id}: {plan.pages} pages are listed: {count}")
    known.expect(
        set(tried) == set(urls), f"{job.id}: stored other pages than the source lists: {set(tried) ^ set(urls)}"
    )
    span = job.created_at - CLOCKS, (job.finished_at or 0.0) + CLOCKS
    missed = [url for url in urls if not any(span[0] <= hit <= span[1] for hit in known.hits[plan.name][url])]
    known.expect(not missed, f"{job.id} is done, and the site was not asked for {missed}")


def judge_hits(known: Witnesses, plan: Plan) -> None:
    """Nobody asks for a page when no job is there for which it could be."""
    spans = [(job.created_at - CLOCKS, (job.finished_at or 0.0) + CLOCKS) for job in known.jobs[plan.name]]
    stray = [
        hit
        for hits in known.hits[plan.name].values()
        for hit in hits
        if not any(begin <= hit <= end for begin, end in spans)
    ]
    known.expect(not stray, f"{plan.name}: {len(stray)} pages were fetched when no job was there")


def judge_repeats(known: Witnesses, plan: Plan, deaths: Sequence[float]) -> int:
    """How often the site was asked again by the same job. Between the two, a worker must have died."""
    repeats, strays = 0, []
    for job in known.jobs[plan.name]:
        for url, hits in known.hits[plan.name].items():
            own = [hit for hit in hits if job.created_at <= hit <= (job.finished_at or 0.0)]
            repeats += max(0, len(own) - 1)
            for first, second in pairwise(own):
                # The site may note a request a little after the death of the one who sent it.
                if not any(first - NOTED <= death <= second for death in deaths):
                    strays.append(f"{url} of {job.id} at {first:.3f} and {second:.3f}")
    replaced = sum(job.ending == "replaced" for job in known.jobs[plan.name])
    # Pages that are under way when their job is replaced may be asked for when the next one has begun already.
    known.expect(len(strays) <= replaced * PER_SITE, f"fetched again, and no worker had died: {'; '.join(strays[:3])}")
    return repeats


# -- telling -----------------------------------------------------------------------------------------------------------


def report(blown: Storm, known: Witnesses, rows: list[Row]) -> str:
    head = ("schedule", "when", "overlap", "source", "ticks", "fired", "skipped", "folded", "replaced", "pages",
            "unchanged", "repeats")  # fmt: skip
    cells = [
        (row.plan.name, row.plan.trigger.partition(" = ")[2].strip('"').partition("T")[0], row.plan.overlap,
         row.plan.source, *(str(getattr(row, name)) for name in head[4:]))
        for row in rows
    ]  # fmt: skip
    sums: list[Any] = [sum(getattr(row, name) for row in rows) for name in head[4:]]
    cells.append(("all", "", "", "", *map(str, sums)))
    lengths = [end - begin for begin, end in known.gaps] or [0.0]
    schedulers = [life for life in blown.lives if life.verb == "scheduler"]
    leaders = sum(life.killed and any(end == life.ended for _, end in reigns(life)) for life in schedulers)
    workers = sum(life.killed and life.verb == "worker" for life in blown.lives)
    frozen = sum(len(life.frozen) for life in schedulers)
    hits = sum(len(times) for urls in known.hits.values() for times in urls.values())
    return (
        f"{table(head, cells)}\n"
        f"Killed: {sum(life.killed for life in schedulers)} schedulers, {leaders} of them leaders, and {workers} "
        f"workers; stopped for longer than their term: {frozen} leaders.\n"
        f"Another one led after {statistics.median(lengths):.1f} s (median), {max(lengths):.1f} s at most; "
        f"{len(lengths)} times. Jobs: {sum(map(len, known.jobs.values()))}. "
        f"Pages that the site was asked for: {hits:,}."
    )


def leave(number: int, _: object) -> None:
    """Stop all on the way out. A further signal would leave some of it behind."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.schedulers", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="so long they are killed (default %(default)s)")
    parser.add_argument("--seed", type=int, default=6, help="of chance (default %(default)s)")
    parser.add_argument("--state", choices=("valkey", "sqlite"), default="valkey", help="(default %(default)s)")
    chosen = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)
    with storm(chosen.state, random.Random(chosen.seed)) as blowing:
        blowing.start_all()
        blowing.blow(chosen.seconds)
        blowing.rest()
        known = asyncio.run(gather(blowing))
        rows = judge(blowing, known)
        print(f"{chosen.seconds:.0f} s on {chosen.state}, seed {chosen.seed}")
        print(report(blowing, known, rows))
    for fault in known.faults[:SHOWN]:
        print(f"- {fault}")
    if len(known.faults) > SHOWN:
        print(f"- and {len(known.faults) - SHOWN} more")
    print("Every tick once, every job ended once, all counters add up. " + ("NOT KEPT." if known.faults else "Kept."))
    return 1 if known.faults else 0


if __name__ == "__main__":
    sys.exit(main())

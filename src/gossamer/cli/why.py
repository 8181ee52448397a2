"""`gossamer why URL`: the whole story of one URL: who found it, what was tried, why it waits, what became of it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from ..clock import iso_time
from ..crawl.page_facts import rhythm_of
from ..crawl.windows import WINDOW
from ..errors import FetchFailed, RouteFailed
from ..frontier.contract import UrlStory
from ..model.job import Job, JobState
from ..model.record import Attempt, PageFacts, StoredRecord
from ..model.task import LANE_ONLY, DropReason, UrlState
from ..model.url import site_of
from ..project.jobs import opening
from ..project.open import Project
from ..schedule.change_rate import Rhythm, prior_of, rate, sums_of
from ..schedule.windows import is_open, parse_windows
from ..settings.effective import url_rules
from ..store.contract import RecordQuery
from ..text import distance, many, moment, size, span, visible
from .app import app, err, open_crawled, out, run_async, settings_with
from .jobs import crawl_command
from .layout import Column, heading, jsonable, print_facts, print_json, print_message, print_table
from .typed import typed_url

RECORDS_SHOWN = 20
JOBS_SHOWN = 10

STYLES = {
    UrlState.DONE: "green",
    UrlState.UNCHANGED: "green",
    UrlState.DEAD: "bold red",
    UrlState.DROPPED: "yellow",
}

DROPPED = {
    DropReason.DUPLICATE: "another URL of the same page is in the queue",
    DropReason.ROBOTS: "robots.txt forbids it",
    DropReason.SCOPE: "outside the scope of the crawl: its site is none of the allowed domains",
    DropReason.DEPTH: "deeper than the crawl goes (crawl.depth)",
    DropReason.TRAP: "it looks like a trap: too long, a path that repeats itself, or too many URLs of its pattern",
    DropReason.FULL: "the queue was full (crawl.max_queued)",
    DropReason.FRESH: "it was fetched less than the schedule's min_age ago",
    DropReason.UNMODIFIED: "its sitemap or feed says that it has not changed since it was fetched (only_changed)",
    DropReason.INVALID: "not a URL that can be crawled",
    "replaced": "its job was replaced by a fresh one before its turn came",
    "cancelled": "its job was cancelled before its turn came",
}


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a URL."""

    typed: str
    canonical: str
    fingerprint: bytes
    stories: tuple[UrlStory, ...]
    jobs: dict[str, Job]
    attempts: tuple[Attempt, ...]
    visits: tuple[PageFacts, ...]
    records: tuple[StoredRecord, ...]
    now: float
    facts: PageFacts | None = None
    windows: str = ""  # of its site

    @property
    def unknown(self) -> bool:
        return not self.stories and not self.attempts


@app.command("why")
def why_verb(
    url: Annotated[str, typer.Argument(help="The URL, as you would type it into a browser.")],
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Tell the whole story of a URL. Exit code 1 when no job knows it."""
    settings = settings_with()
    href = typed_url(url)
    rules = url_rules(settings)
    canonical = rules.canonical(href)

    async def find() -> Findings:
        async with open_crawled(settings) as project:
            return await find_out(project, href, canonical, rules.fingerprint(href))

    found = run_async(find())
    if as_json:
        print_json(_as_json(found))
    elif not found.unknown:
        _tell(found)
    if found.unknown:
        compared = f" (compared as {visible(canonical)})" if canonical != url else ""
        err.print(
            Text.assemble(
                ("gossamer: ", "bold red"),
                f"No job knows {visible(url)}{compared}. It was never a seed, and no spider has asked for it.",
            )
        )
        raise typer.Exit(1)


async def find_out(project: Project, href: str, canonical: str, fingerprint: bytes) -> Findings:
    """Ask everyone who may know something."""
    stories = await project.state.queue.story(site_of(canonical), fingerprint)
    attempts = await project.records.attempts(fingerprint)
    visits = await project.records.visits(fingerprint)
    jobs = {job.id: job for job in await project.state.jobs.jobs()}
    addresses = dict.fromkeys([href.partition("#")[0], canonical, *(story.url for story in stories)])
    records: list[StoredRecord] = []
    for address in addresses:
        async for record in project.records.records(RecordQuery(url=address)):
            records.append(record)
            if len(records) > RECORDS_SHOWN:
                break
    return Findings(
        typed=href,
        canonical=canonical,
        fingerprint=fingerprint,
        stories=tuple(stories),
        jobs=jobs,
        attempts=tuple(attempts),
        visits=tuple(visits),
        records=tuple(records),
        now=project.clock.now(),
        facts=(await project.records.facts([fingerprint])).get(fingerprint),
        windows=project.settings.domain(site_of(canonical)).windows or "",
    )


def in_words(story: UrlStory, job: Job | None, now: float, windows: str = "") -> str:
    """Where the URL stands in one job, and why, in one sentence. `windows` are those of its site."""
    match story.state:
        case UrlState.QUEUED:
            return f"queued: {_queued(story, job, now, windows)}"
        case UrlState.WAITING:
            return f"waiting: {_waiting(story, now, windows)}"
        case UrlState.LEASED:
            return f"leased: {_leased(story, now)}"
        case UrlState.DONE:
            return f"done: {story.reason}" if story.reason else "done: fetched, parsed and stored"
        case UrlState.UNCHANGED:
            return "unchanged: the server said that the copy we have is still good"
        case UrlState.DROPPED:
            return f"dropped: {DROPPED.get(story.reason, story.reason)}"
        case UrlState.DEAD:
            return f"dead: {story.reason}, after {tries(story.attempts, story.deliveries)}"


def tries(attempts: int, deliveries: int) -> str:
    """A page that kills its workers never has an answered try; it is handed out only so often."""
    return many(attempts, "try", "tries") if attempts else many(deliveries, "delivery", "deliveries")


def _queued(story: UrlStory, job: Job | None, now: float, windows: str) -> str:
    if job is not None and job.state is not JobState.RUNNING:
        if job.ending == "limit" and job.limit is not None:
            return f"the job ended at its limit of {job.limit:,} pages before its turn came"
        return f"the job ended ({job.ending or job.state.value}) before its turn came"
    if job is not None and job.paused:
        return f"its job is paused (gossamer job resume {job.id})"
    own = job.windows if job is not None else ""
    for text, words in ((own, "its job waits for its window"), (windows, f"it waits for the window of {story.site}")):
        if text and not is_open(parse_windows(text), now):
            return f"{words}, {opening(text, now)}"
    ahead = story.ahead_of_it or 0
    order = f"it is the next of {story.site}"
    if ahead:
        order = f"{many(ahead, 'task')} of {story.site} {'goes' if ahead == 1 else 'go'} first"
    if story.site_next_at is not None and story.site_next_at > now:
        return f"{order}; the site's rate allows the next request {distance(story.site_next_at, now)}"
    if story.site_taken_by is not None:
        return f"{order}; {story.site_taken_by} has the site, and jobs take turns there"
    serving = f" and serves {story.lane.removeprefix(LANE_ONLY)}" if story.lane else ""
    return f"{order}; the site may be asked at any time, so it waits for a worker that is free{serving}"


def _waiting(story: UrlStory, now: float, windows: str) -> str:
    if story.reason == WINDOW:
        if not windows or is_open(parse_windows(windows), now):
            again = f" at {moment(story.ready_at, now)}" if story.ready_at is not None else ""
            return f"waits for its window, which is open by the settings here: it is looked at again{again}"
        return f"waits for its window, {opening(windows, now)}"
    if story.reason in _fetch_reasons() or story.reason.startswith("blocked-"):
        cause = f"try {story.attempts} of {story.max_attempts} failed with {story.reason}"
        goal = "next try"
    else:
        cause = f"given back without using up a try ({story.reason})" if story.reason else "given back"
        goal = "back in the queue"
    if story.ready_at is None:
        return cause
    when = moment(story.ready_at, now) if story.ready_at > now else "now, as soon as a worker is free"
    return f"{cause}, {goal} {'at ' if story.ready_at > now else ''}{when}"


def _leased(story: UrlStory, now: float) -> str:
    worker = story.worker or "a worker"
    if story.lease_until is None:
        return f"{worker} has it"
    if story.lease_until <= now:
        return f"{worker} had it until {moment(story.lease_until, now)}; whoever asks for work next takes it back"
    return f"{worker} has it until {moment(story.lease_until, now)}, and longer while it works"


def _fetch_reasons() -> frozenset[str]:
    """The reasons of failures that use up a try; whatever else makes a task wait does not."""
    kinds: list[type[FetchFailed]] = [FetchFailed]
    for kind in kinds:
        kinds += [each for each in kind.__subclasses__() if each is not RouteFailed]
    return frozenset(kind.reason for kind in kinds)


def _tell(found: Findings) -> None:
    heading(found.stories[0].url if found.stories else found.typed)
    if found.canonical != found.typed:
        print_facts([("compared as", found.canonical)])
    rhythm = rhythm_of(found.facts)
    if rhythm is not None:
        print_facts([("changes", told_of(rhythm))])
    newest = sorted(found.stories, key=lambda story: story.created_at, reverse=True)
    for story in newest[:JOBS_SHOWN]:
        _tell_story(story, found)
    if len(newest) > JOBS_SHOWN:
        out.print()
        older = many(len(newest) - JOBS_SHOWN, "older job knows it, too", "older jobs know it, too")
        out.print(Text(f"... and {older}; --json tells of all.", style="dim"))
    if not found.stories:
        out.print("  No job knows it any more; what follows is from the log of attempts.")
    if found.attempts:
        out.print()
        heading("Attempts")
        print_attempts(found.attempts, told={story.message.partition("\n")[0] for story in found.stories})
    if found.visits:
        out.print()
        heading("Archived copies", "gossamer shell REF opens one")
        print_table(
            (Column("FETCHED"), Column("STATUS", right=True), Column("JOB"), Column("REF", "cyan")),
            [(moment(visit.fetched_at), visit.status, visit.job, visit.archive_ref) for visit in found.visits],
            indent=2,
        )
    if found.records:
        out.print()
        more = len(found.records) > RECORDS_SHOWN
        heading("Records", f"the first {RECORDS_SHOWN}" if more else "")
        print_table(
            (Column("TYPE", "bold"), Column("KEY"), Column("VERSION", right=True), Column("CHANGED"),
             Column("CHECKED")),
            [
                (record.type, record.key, record.version, moment(record.last_changed), moment(record.last_checked))
                for record in found.records[:RECORDS_SHOWN]
            ],
            indent=2,
        )  # fmt: skip


def told_of(rhythm: Rhythm) -> str:
    """How often a page changes, as far as the schedules that fetch it have learned."""
    counted = f"{many(rhythm.checks, 'check')}, {many(rhythm.changes, 'change')}"
    if not rhythm.checks:
        return "fetched once by a schedule: how often it changes is not known yet"
    return (
        f"about every {span(1 / rate(rhythm, prior_of(sums_of(()))))} ({counted}); schedules with a budget go by that"
    )


def _tell_story(story: UrlStory, found: Findings) -> None:
    now, job = found.now, found.jobs.get(story.job)
    out.print()
    heading(f"Job {story.job}")
    origin = f"on {story.found_on}" if story.found_on else "as a seed of the crawl"
    print_facts(
        [
            (
                "standing",
                Text(visible(in_words(story, job, now, found.windows)), style=STYLES.get(story.state, "cyan")),
            ),
            ("since", moment(story.changed_at, now)),
            ("found", f"{moment(story.created_at)}, {origin}, depth {story.depth}, priority {story.priority}"),
            ("parsed by", story.kind),
            ("message", story.message.partition("\n")[0]),
        ]
    )
    print_message(story.message)
    for at, what in story.incidents:
        print_facts([(moment(at), what)], indent=4)
    if story.state is UrlState.DEAD:
        out.print(Text(f"  gossamer dead replay {story.url}", style="cyan"))
    elif story.state.open and job is not None and job.ending == "limit" and not job.schedule:
        out.print(Text(f"  {crawl_command(job.name)} --limit N", style="cyan"))


def print_attempts(attempts: Sequence[Attempt], *, told: Set[str] = frozenset()) -> None:
    """The audit log of a URL. Errors that were `told` before are named by their reason only."""
    print_table(
        (Column("TIME"), Column("JOB", spare=True), Column("TRY", right=True), Column("STATUS", right=True),
         Column("LATENCY", right=True), Column("BYTES", right=True), Column("ROUTE", fold=True),
         Column("COST", spare=True, right=True), Column("OUTCOME"),
         Column("ERROR", "red", fold=True)),
        [
            (moment(one.at), one.job, one.attempt, one.status or "", f"{one.latency * 1000:.0f} ms", size(one.bytes),
             f"{one.route} ({one.proxy})" if one.proxy else one.route, f"{one.cost:g}", one.outcome, _fault(one, told))
            for one in attempts
        ],
        indent=2,
    )  # fmt: skip


def _fault(attempt: Attempt, told: Set[str]) -> str:
    if not attempt.error or (attempt.reason and attempt.error in told):
        return attempt.reason
    error = attempt.error.removeprefix(attempt.url).strip()  # the page is the subject of the whole table
    return f"{attempt.reason}: {error}" if attempt.reason else error


def _as_json(found: Findings) -> dict[str, Any]:
    times = ("at", "created_at", "changed_at", "ready_at", "lease_until", "site_next_at", "fetched_at", "first_seen",
             "last_changed", "last_checked")  # fmt: skip
    stories = []
    for story in found.stories:
        fields = jsonable(story, times)
        fields["incidents"] = [{"at": iso_time(at), "what": what} for at, what in story.incidents]
        stories.append({**fields, "in_words": in_words(story, found.jobs.get(story.job), found.now, found.windows)})
    visits = [jsonable(visit, times) for visit in found.visits]
    return {
        "url": found.typed,
        "canonical": found.canonical,
        "fingerprint": found.fingerprint.hex(),
        "known": not found.unknown,
        "jobs": stories,
        "attempts": [jsonable(attempt, times) for attempt in found.attempts],
        "visits": [{name: visit[name] for name in ("fetched_at", "status", "job", "archive_ref")} for visit in visits],
        "records": [jsonable(record, times) for record in found.records[:RECORDS_SHOWN]],
    }

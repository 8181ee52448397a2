"""`gossamer dead`: pages that were given up. List them, look at one, put them back into the queue, forget them."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from ..errors import InvalidUrl, Misconfigured
from ..frontier.contract import DeadFilter, DeadLetter
from ..model.record import Attempt, PageFacts
from ..model.task import UrlState
from ..model.url import site_of
from ..project.jobs import find_job
from ..project.open import Project, is_crawled
from ..project.reparse.dead_letters import revive
from ..project.reparse.run import FAILED
from ..text import distance, many, moment, visible
from .app import app, err, open_crawled, out, run_async, settings_with
from .layout import (
    Column,
    advise,
    heading,
    jsonable,
    number,
    print_facts,
    print_json,
    print_message,
    print_table,
    write_bytes,
)
from .replayed import Replayed, tell_replayed
from .typed import typed_url
from .why import print_attempts, tries

LETTERS_SHOWN = 50

dead_app = typer.Typer(help="Pages that were given up: why, and what to do with them.", no_args_is_help=True)
app.add_typer(dead_app, name="dead")

TargetArgument = Annotated[
    str | None, typer.Argument(metavar="[URL_OR_ID]", help="Only this one: its URL, or its id from the list.")
]
JobOption = Annotated[str | None, typer.Option("--job", help="Of this job: its id, or the name of a spider.")]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="With this reason: parse, timeout, http-404, http.")]
DomainOption = Annotated[str | None, typer.Option("--domain", help="Of this site: shop.example.")]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]


class Autopsy(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter with what the store knows of its page."""

    letter: DeadLetter
    attempts: tuple[Attempt, ...]
    raw: PageFacts | None


@dead_app.command("list")
def list_verb(
    job: JobOption = None,
    reason: ReasonOption = None,
    domain: DomainOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Show so many, the latest first.")] = LETTERS_SHOWN,
    as_json: JsonOption = False,
) -> None:
    """List dead letters, and how many there are for each reason."""
    settings = settings_with()

    async def find() -> tuple[dict[str, int], list[DeadLetter], float]:
        if not is_crawled(settings):
            return {}, [], 0.0
        async with open_crawled(settings) as project:
            which = await _filter(project, None, job, reason, domain)
            return (
                await project.state.queue.dead_reasons(which),
                await project.state.queue.dead(which, limit),
                project.clock.now(),
            )

    reasons, letters, now = run_async(find())
    total = sum(reasons.values())
    if as_json:
        shown = [jsonable(letter, times=("died_at",)) for letter in letters]
        print_json({"total": total, "by_reason": reasons, "letters": shown})
        return
    if not letters:
        out.print("No dead letters" + (" match." if job or reason or domain else "."))
        return
    when = (lambda at: distance(at, now)) if out.is_terminal else moment
    print_table(
        (Column("ID", "cyan", right=True), Column("DIED"), Column("JOB", spare=True), Column("REASON", "red"),
         Column("TRIES", right=True), Column("URL")),
        [
            (letter.id, when(letter.died_at), letter.job, letter.reason, letter.attempts, letter.url)
            for letter in letters
        ],
    )  # fmt: skip
    out.print()
    if total > len(letters):
        out.print(f"The latest {len(letters):,} of {total:,}; --limit shows more.")
    print_table((Column("REASON", "red"), Column("LETTERS", right=True)), [*reasons.items(), ("all", number(total))])
    advise(
        (f"gossamer dead show {letters[0].id}", "one in full, with its error and its raw page"),
        (f"gossamer dead replay --reason {shlex.quote(letters[0].reason)}", "try them again"),
    )


@dead_app.command("show")
def show_verb(
    target: Annotated[str, typer.Argument(metavar="URL_OR_ID", help="A URL, or an id from `gossamer dead list`.")],
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the raw page to standard output, as it was received.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show one dead letter: the reason, the error, every attempt and where its raw page is."""
    settings = settings_with()

    async def find() -> tuple[list[Autopsy], bytes | None, float]:
        async with open_crawled(settings) as project:
            found = [await _examine(project, letter) for letter in await _letters(project, target)]
            body = None
            if raw:
                if found[0].raw is None:
                    raise Misconfigured(
                        f"There is no raw page of {found[0].letter.url}: no answer came, or store.keep_pages is off."
                    )
                body = (await project.archive.get(found[0].raw.archive_ref)).body
            return found, body, project.clock.now()

    found, body, now = run_async(find())
    if body is not None:
        write_bytes(body)
    elif as_json:
        print_json([_as_json(one) for one in found])
    else:
        for one in found:
            _show(one, now)


@dead_app.command("replay")
def replay_verb(
    target: TargetArgument = None,
    reason: ReasonOption = None,
    domain: DomainOption = None,
    job: JobOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    spider: Annotated[
        str | None, typer.Option("--spider", help="The file of the spider, where it is not in the project's folder.")
    ] = None,
    crawled_as: Annotated[
        str | None, typer.Option("--as", help="With --spider: its pages were crawled under this name.")
    ] = None,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Fetch also those again whose raw page only has to be parsed again.")
    ] = False,
) -> None:
    """Try dead letters again. Pages that could not be parsed are parsed from the archive, the others are queued."""
    _demand_choice("replay", target, reason, domain, job, everything)
    settings = settings_with()

    async def replay() -> Replayed:
        async with open_crawled(settings) as project:
            which = await _filter(project, target, job, reason, domain)
            found = await project.state.queue.dead_reasons(which)
            here = [] if fetch else [reason for reason in found if reason in FAILED]
            revivals = [
                await revive(project, msgspec.structs.replace(which, reason=one), spider=spider, crawled_as=crawled_as)
                for one in here
            ]
            queued: dict[str, int] = {}
            for one in found:
                if one not in here:
                    alike = msgspec.structs.replace(which, reason=one)
                    for name, share in (await _per_job(project, alike)).items():
                        queued[name] = queued.get(name, 0) + share
                    await project.state.queue.replay(alike)
            names = [one.name for one in await project.state.jobs.jobs() if one.id in queued]
            return Replayed(revivals, queued, names)

    replayed = run_async(replay())
    if not replayed.revivals and not replayed.queued:
        _nothing_matches()
    tell_replayed(replayed)
    if not replayed.did_something:
        raise typer.Exit(1)


@dead_app.command("purge")
def purge_verb(
    target: TargetArgument = None,
    reason: ReasonOption = None,
    domain: DomainOption = None,
    job: JobOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Forget dead letters for good. Their raw pages and attempts stay in the store."""
    _demand_choice("purge", target, reason, domain, job, everything)
    settings = settings_with()

    async def count() -> int:
        async with open_crawled(settings) as project:
            return sum(
                (await project.state.queue.dead_reasons(await _filter(project, target, job, reason, domain))).values()
            )

    async def purge() -> int:
        async with open_crawled(settings) as project:
            return await project.state.queue.purge(await _filter(project, target, job, reason, domain))

    meant = run_async(count())
    if not meant:
        _nothing_matches()
    if not yes and sys.stdin.isatty() and not typer.confirm(f"Forget {many(meant, 'dead letter')} for good?", err=True):
        err.print("Nothing was changed.")
        raise typer.Exit(1)
    out.print(f"{many(run_async(purge()), 'dead letter')} forgotten.")


def _demand_choice(
    verb: str, target: str | None, reason: str | None, domain: str | None, job: str | None, everything: bool
) -> None:
    """All of them must be meant, not merely not restricted."""
    if everything and (target or reason or domain or job):
        raise Misconfigured(
            "--all means every dead letter: leave out the URL and the other filters, or leave out --all."
        )
    if not (target or reason or domain or job or everything):
        raise Misconfigured(
            f"Say which: gossamer dead {verb} URL, --reason R, --domain D or --job J; --all for every one."
        )


def _nothing_matches() -> None:
    err.print("No dead letter matches. `gossamer dead list` shows what there is.")
    raise typer.Exit(1)


async def _filter(
    project: Project, target: str | None, job: str | None, reason: str | None, domain: str | None
) -> DeadFilter:
    """What the user typed, in the words of the queue."""
    letter = (await _letters(project, target))[0] if target is not None else None
    by_id = target is not None and _is_id(target)
    site = None
    if domain is not None:
        site = site_of(typed_url(domain if "://" in domain else f"http://{domain}/"))
    return DeadFilter(
        id=letter.id if letter is not None and by_id else None,
        url=letter.url if letter is not None else None,
        job=(await find_job(project, job)).id if job is not None else letter.job if letter and by_id else None,
        reason=reason,
        site=site,
    )


def _is_id(target: str) -> bool:
    return target.isascii() and target.isdigit()


async def _letters(project: Project, target: str) -> list[DeadLetter]:
    """The dead letters that an id or a URL names, newest job first. Raises Misconfigured."""
    if _is_id(target):
        found = await project.state.queue.dead(DeadFilter(id=int(target[:18])), 1)
        if not found:
            raise Misconfigured(f"There is no dead letter {target}. `gossamer dead list` shows their ids.")
        return found
    try:
        href = typed_url(target)
    except InvalidUrl as error:
        raise Misconfigured(f"{error} Give a URL, or an id from `gossamer dead list`.") from error
    stories = await project.state.queue.story(site_of(href), project.rules.fingerprint(href))
    letters: list[DeadLetter] = []
    for story in stories:
        if story.state is UrlState.DEAD:
            letters += await project.state.queue.dead(DeadFilter(job=story.job, url=story.url), 1)
    if not letters:
        known = f" It is {stories[0].state.value} in {stories[0].job}." if stories else ""
        raise Misconfigured(f"{visible(href)} is not among the dead letters.{known} See: gossamer why URL")
    return letters


async def _per_job(project: Project, which: DeadFilter) -> dict[str, int]:
    """How many of the letters belong to each job."""
    found: dict[str, int] = {}
    for job in await project.state.jobs.jobs():
        if which.job in (None, job.id):
            reasons = await project.state.queue.dead_reasons(msgspec.structs.replace(which, job=job.id))
            if reasons:
                found[job.id] = sum(reasons.values())
    return found


async def _examine(project: Project, letter: DeadLetter) -> Autopsy:
    fingerprint = project.rules.fingerprint(letter.url)
    attempts = [one for one in await project.records.attempts(fingerprint) if one.job == letter.job]
    visits = [visit for visit in await project.records.visits(fingerprint) if visit.archive_ref]
    ours = [visit for visit in visits if visit.job == letter.job]
    return Autopsy(letter=letter, attempts=tuple(attempts), raw=ours[-1] if ours else None)


def _show(one: Autopsy, now: float) -> None:
    letter = one.letter
    message = letter.message.partition("\n")[0]
    heading(letter.url, f"dead letter {letter.id}")
    print_facts(
        [
            ("reason", Text(letter.reason, style="red")),
            ("message", message),
            ("died", f"{moment(letter.died_at, now)}, after {tries(letter.attempts, letter.deliveries)}"),
            ("job", letter.job),
            ("found on", letter.found_on or "a seed of the crawl"),
            ("parsed by", letter.kind),
            ("raw page", one.raw.archive_ref if one.raw is not None else "none was received"),
        ]
    )
    print_message(letter.message)
    if one.attempts:
        out.print()
        heading("Attempts")
        print_attempts(one.attempts, told={message})
    tips = [(f"gossamer dead replay {shlex.quote(letter.url)}", "try it again")]
    if one.raw is not None:
        tips.insert(0, (f"gossamer dead show {letter.id} --raw", "the page as it was received"))
        tips.insert(1, (f"gossamer shell {shlex.quote(one.raw.archive_ref)}", "try selectors on it"))
    advise(*tips)


def _as_json(one: Autopsy) -> dict[str, Any]:
    return {
        **jsonable(one.letter, times=("died_at",)),
        "attempts_log": [jsonable(attempt, times=("at",)) for attempt in one.attempts],
        "archive_ref": one.raw.archive_ref if one.raw is not None else None,
    }

"""`gossamer dead`: pages that were given up. List them, show one, put them back into the queue, or delete them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from ..errors import Misconfigured
from ..model.failure_groups import short_message
from ..project.dead_letters.dead_letters import (
    DeadLetterChoice,
    DeadLetterDetail,
    DeadLetterPage,
    DeadLetterView,
    Replayed,
    count_letters,
    list_letters,
    purge_letters,
    raw_page,
    replay_letters,
    show_letters,
)
from ..project.dead_letters.story_text import tries
from ..project.sites.routes import BY_BROWSER, probe_of
from ..units import distance, many, moment, visible
from .app import app, ask, ask_at, err, open_crawled, out, run_async, settings_with
from .layout import (
    Column,
    advise,
    heading,
    number,
    print_facts,
    print_failures,
    print_groups,
    print_json,
    print_message,
    print_table,
    section,
    warn,
    write_bytes,
)
from .options import JsonOption, YesOption
from .why import print_attempts

LETTERS_SHOWN = 50
JOBS_SHOWN = 3

dead_app = typer.Typer(help="Pages that were given up: list, show, replay, purge.", no_args_is_help=True)
app.add_typer(dead_app, name="dead")

TargetArgument = Annotated[
    str | None, typer.Argument(metavar="[URL_OR_ID]", help="Only this dead letter: its URL, or its id from the list.")
]
JobOption = Annotated[str | None, typer.Option("--job", help="Only from this job: its id, or the name of a spider.")]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", help="Only with this reason: parse, timeout, http-404, http.")
]
MessageOption = Annotated[str | None, typer.Option("--message", help="Only with this text in their message.")]
GroupOption = Annotated[
    str | None, typer.Option("--group", help="Only of this group of failures: its key in `gossamer dead list`.")
]
DomainOption = Annotated[str | None, typer.Option("--domain", help="Of this site: shop.example.")]


@dead_app.command("list")
def list_verb(
    job: JobOption = None,
    reason: ReasonOption = None,
    domain: DomainOption = None,
    message: MessageOption = None,
    group: GroupOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many, latest first.")] = LETTERS_SHOWN,
    as_json: JsonOption = False,
) -> None:
    """List dead letters with their messages, and what they have in common."""
    choice = DeadLetterChoice(job=job, reason=reason, domain=domain, message=message, group=group)

    page, now = ask_at(
        lambda project: list_letters(project, choice, limit=limit),
        empty=lambda settings: DeadLetterPage(total=0, by_reason={}, dead_letters=[]),
    )
    if as_json:
        print_json(page)
    elif page.dead_letters:
        _print_page(page, now)
    else:
        out.print("No dead letters" + (" match." if job or reason or domain or message or group else "."))


def _jobs(ids: Sequence[str]) -> str:
    """The newest jobs that gave up the page, and the number of others."""
    more = f" and {len(ids) - JOBS_SHOWN} more" if len(ids) > JOBS_SHOWN else ""
    return ", ".join(ids[:JOBS_SHOWN]) + more


def _print_page(page: DeadLetterPage, now: float) -> None:
    letters = page.dead_letters
    print_table(
        (Column("ID", "cyan", right=True), Column("DIED"), Column("JOB", spare=True), Column("REASON", "red"),
         Column("TRIES", right=True, spare=2), Column("URL"), Column("MESSAGE", fold=True)),
        [
            (letter.id, distance(letter.died_at, now) if out.is_terminal else moment(letter.died_at),
             _jobs(letter.jobs), letter.reason, letter.attempts, letter.url,
             short_message(letter.message, letter.url))
            for letter in letters
        ],
    )  # fmt: skip
    out.print()
    listed = sum(len(letter.jobs) for letter in letters)
    if page.total > listed:
        out.print(f"The latest {listed:,} of {page.total:,}; --limit shows more.")
    print_groups(page.failures)
    out.print()
    print_table(
        (Column("REASON", "red"), Column("PAGES", right=True)),
        [*page.by_reason.items(), ("all", number(page.total))],
    )
    advise(
        (f"gossamer dead show {letters[0].id}", "one in full, with its error and its raw page"),
        _try_again(letters[0], f"gossamer dead replay --reason {shlex.quote(letters[0].reason)}", "try them again"),
    )


def _try_again(letter: DeadLetterView, replay: str, words: str) -> tuple[str, str]:
    """What to do about a letter: a replay, unless it would be refused again."""
    probe = probe_of(settings_with(), letter.url, letter.reason)
    return (probe, BY_BROWSER) if probe is not None else (replay, words)


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

    async def find() -> tuple[list[DeadLetterDetail], bytes | None, float]:
        async with open_crawled(settings) as project:
            found = await show_letters(project, target)
            return found, await raw_page(project, found[0]) if raw else None, project.clock.now()

    found, body, now = run_async(find())
    if body is not None:
        write_bytes(body)
    elif as_json:
        print_json(found)
    else:
        for letter in found:
            _print_letter(letter, now)


def _print_letter(letter: DeadLetterDetail, now: float) -> None:
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
            ("raw page", letter.archive_ref or "none was received"),
        ]
    )
    print_message(letter.message)
    if letter.attempts_log:
        section("Attempts")
        print_attempts(letter.attempts_log, told={message})
    tips = [_try_again(letter, f"gossamer dead replay {shlex.quote(letter.url)}", "try it again")]
    if letter.archive_ref is not None:
        tips.insert(0, (f"gossamer dead show {letter.id} --raw", "the page as it was received"))
        tips.insert(1, (f"gossamer shell {shlex.quote(letter.archive_ref)}", "try selectors on it"))
    advise(*tips)


@dead_app.command("replay")
def replay_verb(
    target: TargetArgument = None,
    reason: ReasonOption = None,
    domain: DomainOption = None,
    job: JobOption = None,
    message: MessageOption = None,
    group: GroupOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    spider: Annotated[
        str | None, typer.Option("--spider", help="The spider's file, if it is not in the project's folder.")
    ] = None,
    crawled_as: Annotated[
        str | None, typer.Option("--as", help="With --spider: the name under which its pages were crawled.")
    ] = None,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Fetch all of them, even those that could be parsed from the archive.")
    ] = False,
) -> None:
    """Try dead letters again. Pages that could not be parsed are parsed from the archive; the others are queued."""
    choice = _chosen("replay", target, reason, domain, job, message, group, everything)
    replayed = ask(lambda project: replay_letters(project, choice, fetch=fetch, spider=spider, crawled_as=crawled_as))
    if not replayed.matched:
        _nothing_matches()
    _print_replayed(replayed)
    if not replayed.did_something:
        raise typer.Exit(1)


def _print_replayed(done: Replayed) -> None:
    """Print the results, and the command that continues."""
    if done.parsed:
        _print_parsed(done)
    if done.queued:
        shares = [f"{name} ({n:,})" if len(done.queued) > 1 else name for name, n in done.queued.items()]
        count = sum(done.queued.values())
        out.print(f"{many(count, 'URL is', 'URLs are')} back in the queue of {visible(', '.join(shares))}.")
    if done.opened:
        again = f"{visible(', '.join(done.opened))} {'runs' if len(done.opened) == 1 else 'run'} again."
        out.print(f"{again} {'To continue:' if done.command is not None else 'Workers pick it up.'}")
    if done.command is not None:
        out.print(Text(f"  {visible(done.command)}", style="cyan"))


def _print_parsed(done: Replayed) -> None:
    """Print the results of the pages that were parsed again."""
    if done.resolved:
        links = f", {many(done.links, 'link')} queued" if done.links else ""
        out.print(
            f"{many(done.resolved, 'page')} parsed again from the archive, without a request: "
            f"{many(done.records, 'record')}, {done.changed:,} new or changed{links}."
        )
    if done.requeued:
        out.print(f"{many(done.requeued, 'page')} without a raw copy: back in the queue, to be fetched.")
    if done.taken:
        out.print(f"{many(done.taken, 'page')} parsed again, but another process had already settled the dead letter.")
    if done.failed:
        out.print(Text(f"{many(done.failed, 'page')} failed again:", style="red"))
        print_failures([(page.url, page.message) for page in done.failures])
    if done.lost:
        copies = many(done.lost, "raw page is", "raw pages are")
        warn(f"{copies} no longer in the archive. Use --fetch to fetch from the site.")
    for why, count in done.left_out.items():
        warn(f"{many(count, 'dead letter')} left out: {visible(why)}")
    for name in done.unread:
        err.print(
            Text(
                f"start() of {visible(name)} yields too many seeds to read them all: "
                f"links to sites of its later seeds are not followed.",
                style="yellow",
            )
        )
    if not (done.resolved or done.requeued or done.taken or done.failed or done.lost or done.left_out):
        out.print("Nothing to do: another process has already handled these dead letters.")


@dead_app.command("purge")
def purge_verb(
    target: TargetArgument = None,
    reason: ReasonOption = None,
    domain: DomainOption = None,
    job: JobOption = None,
    message: MessageOption = None,
    group: GroupOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    yes: YesOption = False,
) -> None:
    """Delete dead letters for good. Their raw pages and attempts stay in the store."""
    choice = _chosen("purge", target, reason, domain, job, message, group, everything)
    meant = ask(lambda project: count_letters(project, choice))
    if not meant:
        _nothing_matches()
    if not yes and sys.stdin.isatty() and not typer.confirm(f"Delete {many(meant, 'dead letter')} for good?", err=True):
        err.print("Nothing was changed.")
        raise typer.Exit(1)
    out.print(f"{many(ask(lambda project: purge_letters(project, choice)), 'dead letter')} purged.")


def _chosen(
    verb: str,
    target: str | None,
    reason: str | None,
    domain: str | None,
    job: str | None,
    message: str | None,
    group: str | None,
    everything: bool,
) -> DeadLetterChoice:
    """The dead letters that the flags select. Raises Misconfigured without a filter: every letter needs --all."""
    chosen = DeadLetterChoice(
        target=target or None,
        reason=reason or None,
        domain=domain or None,
        job=job or None,
        message=message or None,
        group=group or None,
    )
    if everything and chosen != DeadLetterChoice():
        raise Misconfigured(
            "--all means every dead letter: leave out the URL and the other filters, or leave out --all."
        )
    if not everything and chosen == DeadLetterChoice():
        raise Misconfigured(
            f"Name the dead letters: gossamer dead {verb} URL, --reason R, --domain D, --job J, --group KEY or "
            "--message TEXT; or --all."
        )
    return chosen


def _nothing_matches() -> None:
    err.print("No dead letter matches. See `gossamer dead list`.")
    raise typer.Exit(1)

"""`gossamer why URL`: the whole story of one URL: how it was found, every attempt, why it waits, and the result."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Annotated

import typer
from rich.text import Text

from ..model.secret_text import secrets_marked
from ..model.task import UrlState
from ..model.url import typed_url
from ..project.dead_letters.attempts import AttemptFilter, list_attempts
from ..project.dead_letters.story import RECORDS_SHOWN, AttemptView, JobStory, Story, story_of
from ..units import many, moment, size, visible
from .app import app, ask, ask_at, err, out
from .layout import Column, heading, print_facts, print_json, print_message, print_table, section, warn
from .options import JsonOption
from .request_flags import request_of

JOBS_SHOWN = 10

STYLES = {
    UrlState.DONE: "green",
    UrlState.UNCHANGED: "green",
    UrlState.DEAD: "bold red",
    UrlState.DROPPED: "yellow",
}


@app.command("why")
def why_verb(
    url: Annotated[str, typer.Argument(help="The URL, as you would type it into a browser.")],
    method: Annotated[str | None, typer.Option("-X", "--request", help="The method of the request.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("-H", "--header", help="With this header (urls.identity_headers)."),
    ] = None,
    data: Annotated[str | None, typer.Option("-d", "--data", help="The body of the request, as it was sent.")] = None,
    json_data: Annotated[str | None, typer.Option("--json-data", help="The body of the request, as JSON.")] = None,
    form: Annotated[list[str] | None, typer.Option("--form", help="A form field of the request, name=value.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell the whole story of a URL, or of one request for it. Exit code 1 when no job knows it."""
    request = request_of(typed_url(url), method, header, data, json_data, form, read=secrets_marked)

    story, now = ask_at(lambda project: story_of(project, url, request))
    if as_json:
        print_json(story)
    elif story.known:
        _print_story(story, now)
    if story.trouble and not as_json:
        warn(f"Attempts and records cannot be shown. {visible(story.trouble)}")
    if not story.known:
        compared = f" (compared as {visible(story.canonical)})" if story.canonical != url else ""
        err.print(
            Text.assemble(
                ("gossamer: ", "bold red"),
                f"No job knows {_asked(story)}{visible(url)}{compared}. It was never a seed, and no spider has asked"
                f" for it{'' if story.request is not None else ' with GET; a POST is found by its body (-d, --form)'}.",
            )
        )
        raise typer.Exit(1)


def _asked(story: Story) -> str:
    return f"{story.request.method} " if story.request is not None else ""


def _sent(story: Story) -> str:
    """The headers and body size of a request, without their values."""
    if story.request is None:
        return ""
    body = f"{size(story.request.body)} of body" if story.request.body else "no body"
    return f"{story.request.method} with {body}" + "".join(f", {name}" for name in story.request.headers)


@app.command("attempts")
def attempts_verb(
    job: Annotated[str | None, typer.Option("--job", help="A job's id, or its name.")] = None,
    domain: Annotated[str | None, typer.Option("--domain", help="Only pages of this site.")] = None,
    route: Annotated[str | None, typer.Option("--route", help="Only by this route.")] = None,
    outcome: Annotated[str | None, typer.Option("--outcome", help="done, retry, blocked, dead ...")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="timeout, http-503 ...")] = None,
    since: Annotated[str | None, typer.Option("--since", help="2h ago, or a time in ISO 8601.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="2h ago, or a time in ISO 8601.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many.")] = 50,
    after: Annotated[str | None, typer.Option("--after", help="The `next` of the previous page, from --json.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List every attempt for every page, newest first, with its route and outcome."""
    wanted = AttemptFilter(
        job=job, domain=domain, route=route, outcome=outcome, reason=reason, since=since, until=until
    )

    found = ask(lambda project: list_attempts(project, wanted, limit=limit, after=after))
    if as_json:
        print_json(found)
    elif found.attempts:
        print_attempts(found.attempts, urls=True)
    else:
        out.print("No attempt matches.")


def _print_story(story: Story, now: float) -> None:
    known = story.jobs[0].url if story.jobs else ""  # none: it was erased
    heading(f"{_asked(story)}{known or story.url}")
    print_facts([("asked with", _sent(story))])
    print_facts([("compared as", story.canonical if story.canonical != story.url else ""), ("changes", story.changes)])
    newest = sorted(story.jobs, key=lambda one: one.created_at, reverse=True)
    for one in newest[:JOBS_SHOWN]:
        _print_job(one, now)
    if len(newest) > JOBS_SHOWN:
        out.print()
        older = many(len(newest) - JOBS_SHOWN, "older job knows it as well", "older jobs know it as well")
        out.print(Text(f"... and {older}; --json lists all.", style="dim"))
    if not story.jobs:
        out.print("  No job knows it any more; the following is from the log of attempts.")
    if story.attempts:
        section("Attempts")
        print_attempts(story.attempts, told={one.message.partition("\n")[0] for one in story.jobs})
    if story.visits:
        section("Archived copies", "gossamer shell REF opens one")
        print_table(
            (Column("FETCHED"), Column("STATUS", right=True, spare=2), Column("JOB", spare=1), Column("REF", "cyan")),
            [(moment(visit.fetched_at), visit.status, visit.job, visit.archive_ref) for visit in story.visits],
            indent=2,
        )
    if story.records:
        section("Records", f"the first {RECORDS_SHOWN}" if story.more_records else "")
        print_table(
            (Column("TYPE", "bold"), Column("KEY"), Column("VERSION", right=True), Column("CHANGED"),
             Column("CHECKED"), Column("GONE", "red")),
            [
                (
                    record.type, record.key, record.version, moment(record.last_changed), moment(record.last_checked),
                    f"since {moment(record.gone_since)}, by {record.job}" if record.gone_since is not None else "",
                )
                for record in story.records
            ],
            indent=2,
        )  # fmt: skip


def _print_job(one: JobStory, now: float) -> None:
    section(f"Job {one.job}")
    origin = f"on {one.found_on}" if one.found_on else "as a seed of the crawl"
    print_facts(
        [
            ("state", Text(visible(one.in_words), style=STYLES.get(one.state, "cyan"))),
            ("since", moment(one.changed_at, now)),
            ("found", f"{moment(one.created_at)}, {origin}, depth {one.depth}, priority {one.priority}"),
            ("parsed by", one.kind),
            ("session", one.session or ""),
            ("message", one.message.partition("\n")[0]),
        ]
    )
    print_message(one.message)
    for incident in one.incidents:
        print_facts([(moment(incident.at), incident.what)], indent=4)
    if one.next_step is not None:
        out.print(Text(f"  {visible(one.next_step)}", style="cyan"))


def print_attempts(attempts: Sequence[AttemptView], *, told: Set[str] = frozenset(), urls: bool = False) -> None:
    """Print the attempts for a URL, or with `urls` for many. Errors in `told` are named by their reason alone."""
    which = Column("URL", fold=True) if urls else Column("JOB", spare=2)
    print_table(
        (Column("TIME"), which, Column("TRY", right=True), Column("STATUS", right=True),
         Column("LATENCY", right=True), Column("BYTES", right=True), Column("ROUTE", fold=True),
         Column("COST", spare=2, right=True), Column("OUTCOME"),
         Column("ERROR", "red", fold=True)),
        [
            (moment(one.at), one.url if urls else one.job, one.attempt, one.status or "",
             f"{one.latency * 1000:.0f} ms", size(one.bytes),
             f"{one.route} ({one.proxy})" if one.proxy else one.route, f"{one.cost:g}", one.outcome, _fault(one, told))
            for one in attempts
        ],
        indent=2,
    )  # fmt: skip


def _fault(attempt: AttemptView, told: Set[str]) -> str:
    if not attempt.error or (attempt.reason and attempt.error in told):
        return attempt.reason
    error = attempt.error.removeprefix(attempt.url).strip()  # the whole table is about one page
    return f"{attempt.reason}: {error}" if attempt.reason else error

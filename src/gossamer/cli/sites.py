"""`gossamer site`: the queue by site and why it waits; slow down, rest or resume a site."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from ..project.access.keys import OWNER
from ..project.overrides import OverrideView
from ..project.sites.sites import (
    CAUSES,
    SORTS,
    QueuePage,
    queue_by_site,
    rest_site,
    resume_site,
    site_view,
    slow_site,
)
from ..units import distance, many, span, visible
from .app import app, ask, ask_at, err, out
from .layout import Column, answer_program, heading, number, print_facts, print_json, print_table
from .options import JsonOption


class ShowsSite(TyperGroup):
    """`gossamer site DOMAIN` is `gossamer site show DOMAIN`. What could be a mistyped verb is none."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: the class depends on the version of typer
        if args and not args[0].startswith("-") and any(mark in args[0] for mark in ".:/"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


site_app = typer.Typer(help="The queue by site, and why it waits; slow down, rest or resume a site.", cls=ShowsSite)
app.add_typer(site_app, name="site")

DomainArgument = Annotated[str, typer.Argument(metavar="DOMAIN", help="A domain, or any URL of the site.")]


@site_app.callback(invoke_without_command=True)
def site_verb(context: typer.Context) -> None:
    """The queue by site, and why it waits; slow down, rest or resume a site."""
    if context.invoked_subcommand is None:
        list_verb()


@site_app.command("list")
def list_verb(
    search: Annotated[str, typer.Argument(help="Only sites with this in their name.")] = "",
    job: Annotated[str | None, typer.Option("--job", help="Only pages of this job.")] = None,
    cause: Annotated[
        str | None, typer.Option("--cause", help=f"Only sites that wait for this cause: {', '.join(CAUSES)}.")
    ] = None,
    sort: Annotated[str, typer.Option("--sort", help=f"By one of {', '.join(SORTS)}.")] = "open",
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many sites.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List the sites with open pages of running jobs, and why these wait."""
    page, now = ask_at(
        lambda project: queue_by_site(project, job=job, cause=cause, search=search, sort=sort, limit=limit),
        empty=lambda settings: QueuePage(
            sites=[], total=0, open=0, queued=0, waiting=0, leased=0, by_cause={}, next=None
        ),
    )
    answer_program(page, as_json)
    if not page.sites:
        out.print("No site has open pages of a running job.")
        return
    print_table(
        (Column("SITE", "bold"), Column("QUEUED", right=True), Column("WAITING", right=True),
         Column("IN PROGRESS", right=True), Column("NEXT"), Column("WHY", fold=True)),
        [
            (one.site, number(one.queued), number(one.waiting), number(one.leased),
             distance(one.next_at, now) if one.next_at else "" if one.is_held else "now", one.why)
            for one in page.sites
        ],
    )  # fmt: skip
    shown = f"{len(page.sites)} of " if page.next is not None else ""
    err.print(Text(f"{shown}{many(page.total, 'site')}, {many(page.open, 'open page')}.", style="dim"))


@site_app.command("show")
def show_verb(domain: DomainArgument, as_json: JsonOption = False) -> None:
    """Show everything about a site: its pace, queue, robots.txt, learned routes, and what was set by hand."""
    view, now = ask_at(lambda project: site_view(project, domain))
    answer_program(view, as_json)
    heading(visible(view.site))
    away = f"since {distance(view.away_since, now)}, {view.away_reason}" if view.away_since else ""
    print_facts(
        [
            ("pace", f"a request every {span(view.spacing)}" if view.spacing is not None else "no limit"),
            ("rate", view.rate_in_words),
            ("crawl-delay", span(view.crawl_delay) if view.crawl_delay is not None else ""),
            ("learned pace", view.learned_in_words or ""),
            ("last refused", distance(view.refused_at, now) if view.refused_at else ""),
            ("by hand", "\n".join(f"{one.key}: {one.in_words}" for one in view.overrides)),
            ("rests", view.rests or ""),
            ("concurrency", str(view.concurrency) if view.concurrency is not None else "no limit"),
            ("in flight", number(view.in_flight)),
            ("windows", view.windows or ""),
            ("rests until", view.rests_until or ""),
            ("away", away),
            ("last answer", distance(view.answered_at, now) if view.answered_at else "none yet"),
            ("robots.txt", "obeyed" if view.obeys_robots else "not obeyed"),
            ("dead letters", ", ".join(f"{reason}: {count:,}" for reason, count in view.dead_reasons.items())),
            ("learned routes", ", ".join(f"{one.pattern or 'all'}: {one.route}" for one in view.routes)),
        ]
    )
    if view.jobs:
        out.print()
        print_table(
            (Column("JOB", "bold"), Column("QUEUED", right=True), Column("WAITING", right=True),
             Column("IN PROGRESS", right=True), Column("WHY", fold=True)),
            [(one.job, number(one.queued), number(one.waiting), number(one.leased), one.why) for one in view.jobs],
            indent=2,
        )  # fmt: skip


@site_app.command("slow")
def slow_verb(
    domain: DomainArgument,
    rate: Annotated[str, typer.Argument(help="At this rate: 6/m, 0.5/s.")],
    as_json: JsonOption = False,
) -> None:
    """Slow a site down on all workers, whatever the settings say, until `gossamer site resume`."""
    _tell(ask(lambda project: slow_site(project, OWNER, domain, rate)), as_json)


@site_app.command("rest")
def rest_verb(
    domain: DomainArgument,
    duration: Annotated[str, typer.Argument(help="For how long: 30m, 2h, 1d.")] = "1h",
    as_json: JsonOption = False,
) -> None:
    """Rest a site: no worker sends it a request for that time. Pages in flight are finished."""
    _tell(ask(lambda project: rest_site(project, OWNER, domain, duration)), as_json)


@site_app.command("resume")
def resume_verb(domain: DomainArgument) -> None:
    """Take back what was set by hand for a site's pace, and forget the learned one. Exit code 1: there was neither."""
    if not ask(lambda project: resume_site(project, OWNER, domain)):
        err.print(Text(f"Nothing was set by hand for {visible(domain)}, and no pace was learned."))
        raise typer.Exit(1)
    out.print(Text(f"{visible(domain)} follows the settings again."))


def _tell(one: OverrideView, as_json: bool) -> None:
    if as_json:
        print_json(one)
    else:
        out.print(Text(f"{visible(one.key)}: {visible(one.in_words)}."))

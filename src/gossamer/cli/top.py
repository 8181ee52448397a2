"""`gossamer top`: current activity of the project, live on a terminal, once in a pipe."""

from __future__ import annotations

import asyncio
import io
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..errors import Misconfigured, Transient
from ..project.jobs.jobs import JobView
from ..project.jobs.top import MINUTES, RecentPace, TopView, top_view
from ..project.open import Project, is_crawled, nothing_crawled
from ..units import distance, many, seconds_of, size, span, visible
from .app import Printer, app, open_crawled, out, run_async, settings_with
from .layout import Column, print_json, print_table

BLOCKS = "▁▂▃▄▅▆▇█"
BAR = 20  # characters
LABEL = 9
ERRORS_SHOWN = 3
SPEED_SECONDS = 10  # over which a live view measures the speed
FINE, POOR = 0.95, 0.8  # success rates


@app.command("top")
def top_verb(
    every: Annotated[float, typer.Option("--every", min=0.5, max=3600, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit, as in a pipe.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Look once; for programs.")] = False,
) -> None:
    """Show the current speed, success rate, latency, errors, jobs, sites and workers of the project. Ctrl-C ends it."""
    settings = settings_with()

    async def look() -> None:
        async with open_crawled(settings) as project:
            name = settings.project or settings.root.name
            if as_json:
                print_json(await top_view(project))
            elif once or not out.is_terminal:
                print_top(await top_view(project), name, out, lines=None)
            else:
                await _watch(project, name, every)

    if not is_crawled(settings):
        raise Misconfigured(nothing_crawled(settings))
    with suppress(KeyboardInterrupt):  # the normal way to end it
        run_async(look())


async def _watch(project: Project, name: str, every: float) -> None:
    looks: deque[tuple[float, int]] = deque(maxlen=max(2, round(SPEED_SECONDS / every)))
    with Live(console=out, screen=True, auto_refresh=False) as live:
        shown: TopView | None = None
        while True:
            trouble = ""
            try:
                shown = _with_speed(await top_view(project), looks)
            except Transient as error:  # shown until the store is back
                trouble = str(error)
            live.update(_picture(shown, name, trouble), refresh=True)
            await asyncio.sleep(every)


def _with_speed(view: TopView, looks: deque[tuple[float, int]]) -> TopView:
    """The view with the speed of the last seconds, which reacts faster than that of a minute."""
    if view.pace is None:
        return view
    looks.append((seconds_of(view.at), view.pace.counted))
    (since, before), (now, counted) = looks[0], looks[-1]
    if now <= since:
        return view
    pace = msgspec.structs.replace(view.pace, pages_per_second=(counted - before) / (now - since))
    return msgspec.structs.replace(view, pace=pace)


def _picture(view: TopView | None, name: str, trouble: str) -> Text:
    """The output of `print_top` as one text for the terminal."""
    page = Printer(
        file=io.StringIO(), force_terminal=True, width=out.width, soft_wrap=True,
        color_system=out.color_system,
    )  # fmt: skip
    if view is not None:
        print_top(view, name, page, lines=out.height - 1 - bool(trouble))
    if trouble:
        page.print(Text(visible(trouble), style="red"))
    assert isinstance(page.file, io.StringIO)
    return Text.from_ansi(page.file.getvalue(), no_wrap=True, overflow="crop")


def print_top(view: TopView, name: str, console: Console, *, lines: int | None) -> None:
    """Print the view; on a terminal with `lines` lines, leave out what does not fit."""
    title, time = f"{visible(name)}", f"{view.at[11:19]} UTC"
    gap = " " * max(2, console.width - len(title) - len(time) - 1) if console.is_terminal else "  "
    console.print(Text.assemble((title, "bold"), gap, (time, "dim")))
    facts = _facts(view)
    for label, text in facts:
        line = Text.assemble((label.rjust(LABEL), "dim"), "  ", text)
        if console.is_terminal:
            line.truncate(console.width, overflow="ellipsis")
        console.print(line)
    room = (lines - 1 - len(facts)) if lines is not None else 1000
    for printed in (_print_jobs, _print_sites, _print_workers):
        if room < 4:
            return
        room -= printed(view, console, room)


def _facts(view: TopView) -> list[tuple[str, Text]]:
    facts = _pace(view.pace) if view.pace is not None else []
    queue = view.queue
    parts = (f"{queue.queued:,} queued", f"{queue.waiting:,} waiting", f"{queue.leased:,} in progress")
    facts.append(("queue", Text.assemble((f"{queue.open:,}", "bold"), f" open: {', '.join(parts)}", _dead(view))))
    states = ", ".join(f"{count} {state}" for state, count in view.workers_by_state.items())
    missing = "missing" in view.workers_by_state
    facts.append(("workers", Text(states or "none: gossamer worker starts one", "yellow" if missing else "")))
    if view.alerts:
        worst = view.alerts[0]
        more = f" and {len(view.alerts) - 1} more: gossamer alerts" if len(view.alerts) > 1 else ""
        style = "red" if worst.severity == "critical" else "yellow"
        facts.append(("alerts", Text.assemble((visible(worst.message), style), (more, "dim"))))
    if view.waiting_results:
        facts.append(("waiting", Text(f"{many(view.waiting_results, 'result')} on disks of workers", "yellow")))
    if view.trouble:
        facts.append(("trouble", Text(visible(view.trouble), "red")))
    return facts


def _pace(pace: RecentPace) -> list[tuple[str, Text]]:
    line = _line(pace.by_minute)
    items = f"  {pace.items_per_second:.1f} items/s  {size(int(pace.bytes_per_second))}/s"
    rate = pace.success_rate
    style = "dim" if rate is None else "green" if rate >= FINE else "yellow" if rate >= POOR else "red"
    errors = list(pace.errors.items())
    told = "  ".join(f"{visible(reason)} {count:,}" for reason, count in errors[:ERRORS_SHOWN])
    more = f"  and {many(len(errors) - ERRORS_SHOWN, 'other reason')}" if len(errors) > ERRORS_SHOWN else ""
    answers = "  ".join(
        f"{name} {_seconds(value)}" for name, value in (("p50", pace.p50), ("p95", pace.p95), ("p99", pace.p99))
    )
    return [
        ("pages/s", Text.assemble((f"{pace.pages_per_second:<7.1f}", "bold"), (line, "cyan"), (items, "dim"))),
        ("success", Text.assemble((f"{rate:.1%}" if rate is not None else "no page yet", style))),
        ("answers", Text(answers if pace.p50 is not None else "none in the last minutes", "" if pace.p50 else "dim")),
        (
            "errors",
            Text.assemble(f"{sum(pace.errors.values()):,}", (f" in {MINUTES} min  ", "dim"), told, (more, "dim")),
        ),
    ]


def _dead(view: TopView) -> tuple[str, str]:
    return (f"; {many(view.dead_letters, 'dead letter')}" if view.dead_letters else "", "yellow")


def _line(values: Sequence[float]) -> str:
    most = max(values, default=0.0)
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int(one / most * len(BLOCKS)))] if one else BLOCKS[0] for one in values)


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _print_jobs(view: TopView, console: Console, room: int) -> int:
    if not view.jobs:
        console.print()
        console.print(Text("No job is running.", style="dim"))
        return 2
    shown = view.jobs[: max(1, min(len(view.jobs), room // 3))]
    console.print()
    bar = (Column("", "cyan"),) if console.is_terminal else ()
    print_table(
        (Column("JOB", "bold"), *bar, Column("DONE", right=True), Column("OPEN", right=True),
         Column("DEAD", right=True), Column("PAGES/S", right=True), Column("TIME LEFT", right=True),
         Column("NOW", fold=True, spare=1)),
        [
            (job.id, *((_bar(job),) if bar else ()), _share(job), f"{job.open:,}", f"{job.dead:,}",
             f"{job.pages_per_second:.1f}", _time_to_go(job), job.phase)
            for job in shown
        ],
        console=console,
    )  # fmt: skip
    return 2 + len(shown)


def _settled(job: JobView) -> float:
    return (job.total - job.open) / job.total if job.total else 0.0


def _share(job: JobView) -> str:
    return f"{_settled(job):.0%}" if job.found_last_minute is None else ""


def _time_to_go(job: JobView) -> str:
    if job.found_last_minute is not None:
        return f"discovering, +{job.found_last_minute:,}/min"
    return span(job.eta_seconds) if job.eta_seconds is not None else ""


def _bar(job: JobView) -> str:
    filled = round(_settled(job) * BAR)
    return "━" * filled + "╌" * (BAR - filled)


def _print_sites(view: TopView, console: Console, room: int) -> int:
    shown = view.queue.sites[: max(1, room // 2 - 2)]
    if not shown:
        return 0
    domains = view.pace.domains if view.pace is not None else {}
    console.print()
    rows = []
    for one in shown:
        point = domains.get(one.site)
        rate = point.success_rate if point is not None else None
        rows.append(
            (one.site, f"{one.queued:,}", f"{one.waiting:,}", f"{one.leased:,}",
             f"{rate:.0%}" if rate is not None else "", one.why)
        )  # fmt: skip
    print_table(
        (Column("SITE", "bold"), Column("QUEUED", right=True), Column("WAITING", right=True),
         Column("IN PROGRESS", right=True), Column("SUCCESS", right=True), Column("WHY IT WAITS", fold=True)),
        rows,
        console=console,
    )  # fmt: skip
    return 2 + len(shown)


def _print_workers(view: TopView, console: Console, room: int) -> int:
    shown, now = view.workers[: room - 2], seconds_of(view.at)
    if not shown:
        return 0
    console.print()
    print_table(
        (Column("WORKER", "bold"), Column("STATE"), Column("IN FLIGHT", right=True), Column("DONE", right=True),
         Column("CPU", right=True), Column("MEMORY", right=True), Column("LAST SEEN", spare=1),
         Column("JOB", fold=True, spare=2)),
        [
            (f"{one.host}/{one.pid}", "missing" if one.missing else one.state, f"{one.in_flight:,}", f"{one.done:,}",
             f"{one.cpu:.0%}", size(one.memory), distance(one.seen_at, now), one.job)
            for one in shown
        ],
        console=console,
    )  # fmt: skip
    return 2 + len(shown)

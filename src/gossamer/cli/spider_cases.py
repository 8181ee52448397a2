"""Trying spiders on pages of yesterday: `gossamer save` and `gossamer test` (saved pages and what should come of them),
and what `gossamer crawl --replay` shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ..model.events import EventHub
from ..monitor.counts import EventCounts
from ..settings import Settings
from ..units import many, visible
from .app import allow_local, app, err, fail, out, run_async, settings_with
from .progress import Warnings

if TYPE_CHECKING:
    from ..project.spider_cases import CaseResult
    from ..project.spiders import CrawlTarget

STYLES = {"-": "red", "+": "green", "@": "cyan"}


@app.command("save")
def save_verb(
    url: Annotated[str, typer.Argument(help="The address of the page.")],
    spider: Annotated[str | None, typer.Option("--spider", help="Read by this spider or recipe.")] = None,
    callback: Annotated[
        str | None, typer.Option("--callback", "--kind", help="By this callback; else parse, or the likely kind.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="What the callback finds in page.data, as JSON.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="The name of the case.")] = None,
    from_archive: Annotated[
        bool, typer.Option("--from-archive", help="The newest raw copy, as its callback got it; nothing is fetched.")
    ] = False,
    no_robots: Annotated[bool, typer.Option("--no-robots", help="Do not ask robots.txt.")] = False,
    route: Annotated[str | None, typer.Option(help="By this route: browser, or one from gossamer.toml.")] = None,
) -> None:
    """Save a page as a case for `gossamer test`, with what the spider makes of it now."""
    from ..project.spider_cases import save_case

    settings = allow_local(settings_with(), [url], {})
    saved = run_async(
        save_case(
            settings,
            url,
            spider=spider,
            callback=callback,
            data=data,
            name=name,
            from_archive=from_archive,
            robots=not no_robots,
            route=route,
        )
    )
    came = f"{many(saved.items, 'item')}, {many(saved.links, 'link')}"
    err.print(Text(f"{visible(saved.folder)}: {visible(saved.failure) if saved.failure else came}"))
    if saved.failure:
        err.print("[yellow]Nothing came of the page.[/] That is what the case expects until you run --update.")
    elif not saved.items and not saved.links:
        err.print("[yellow]Nothing came of the page.[/] For another callback? --callback NAME, or --from-archive.")


@app.command("test")
def run_test_cases(
    cases: Annotated[list[str] | None, typer.Argument(help="Only these cases, by name.")] = None,
    update: Annotated[
        bool, typer.Option("--update", help="What comes is right: write it as what is expected.")
    ] = False,
) -> None:
    """Run the cases in tests/: saved pages, and the items and links that should come of them."""
    from ..project.spider_cases import run_cases

    results = run_async(run_cases(settings_with(), cases or (), update=update))
    for result in results:
        _show(result)
    failed = sum(1 for one in results if one.state == "failed")
    renewed = sum(1 for one in results if one.state in ("updated", "new"))
    words = f", {renewed:,} updated" if renewed else ""
    out.print(Text(f"{many(len(results), 'case')}, {failed:,} failed{words}", style="red" if failed else "green"))
    if failed:
        raise typer.Exit(1)


def _show(result: CaseResult) -> None:
    style = {"ok": "green", "failed": "bold red"}.get(result.state, "yellow")
    out.print(Text.assemble((f"{result.state:8}", style), visible(result.name)))
    for line in result.diff:
        out.print(Text(f"    {visible(line)}", style=STYLES.get(line[:1], "dim")), soft_wrap=True)


def run_replay(
    wanted: CrawlTarget, settings: Settings, *, output: Sequence[str] | None = None, quiet: bool = False
) -> None:
    """Crawl from the archive, and tell what came of it. Exit code 1 when no page could be had."""
    from ..clock import SystemClock
    from ..project.export import outputs_of, try_outputs
    from ..project.replay import replay

    outputs = outputs_of(output, wanted.spider)
    try_outputs(outputs, wanted.spider)
    tally = EventCounts(SystemClock())
    listeners = EventHub(tally) if quiet else EventHub(tally, Warnings(err))
    done = run_async(replay(wanted.spider, settings, name=wanted.name, events=listeners, output=outputs))
    counts = done.crawl.counts
    if not quiet:
        for failure in done.failures:
            err.print(Text(f"  {failure.reason}  {visible(failure.message)}", style="yellow"))
        if counts.dead > len(done.failures):
            err.print(f"  and {counts.dead - len(done.failures):,} more")
        records = many(done.crawl.records or 0, "record")
        err.print(
            f"Replayed {many(counts.done, 'page')}: {records}, {many(counts.dead, 'failure')}, "
            f"{done.missing:,} of them not in the archive. Nothing was sent, and nothing stored.",
            markup=False,
        )
        if outputs:
            err.print(f"The records are in {visible(', '.join(outputs))}.", markup=False)
    if done.crawl.failure or not counts.done:
        fail(f"Not one page could be used. {done.crawl.failure}")

"""Testing spiders on saved pages: `gossamer save` and `gossamer test` (pages with their expected results), and the
output of `gossamer crawl --replay`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ..errors import Misconfigured
from ..model.events import EventHub
from ..monitor.counts import EventCounts
from ..settings import Settings
from ..units import many, visible
from .app import allow_local, app, err, fail, out, run_async, settings_with, styled
from .layout import warn
from .progress import Warnings

if TYPE_CHECKING:
    from ..project.spiders.cases import CaseResult
    from ..project.spiders.spiders import CrawlTarget

STYLES = {"-": "red", "+": "green", "@": "cyan"}


@app.command("save")
def save_verb(
    url: Annotated[str, typer.Argument(help="The address of the page.")],
    spider: Annotated[str | None, typer.Option("--spider", help="The spider or recipe that parses it.")] = None,
    callback: Annotated[
        str | None, typer.Option("--callback", "--kind", help="Its callback (default: parse, or the likely kind).")
    ] = None,
    data: Annotated[str | None, typer.Option(help="The value of page.data for the callback, as JSON.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="The name of the case.")] = None,
    from_archive: Annotated[
        bool, typer.Option("--from-archive", help="Use the newest archived copy; fetch nothing.")
    ] = False,
    no_robots: Annotated[bool, typer.Option("--no-robots", help="Ignore robots.txt.")] = False,
    route: Annotated[str | None, typer.Option(help="Use this route: browser, or one from gossamer.toml.")] = None,
) -> None:
    """Save a page as a case for `gossamer test`, with the spider's current results."""
    from ..project.spiders.cases import save_case

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
        words = "[yellow]The page yielded nothing.[/] The case expects that until you run `gossamer test --update`."
        err.print(styled(words))
    elif not saved.items and not saved.links:
        words = (
            "[yellow]The page yielded nothing.[/] Is it for another callback? Try --callback NAME, or --from-archive."
        )
        err.print(styled(words))


@app.command("test")
def run_test_cases(
    cases: Annotated[list[str] | None, typer.Argument(help="Only these cases, by name.")] = None,
    update: Annotated[bool, typer.Option("--update", help="Accept the current results as the expected ones.")] = False,
    contracts: Annotated[
        bool, typer.Option("--contracts", help="Check Scrapy's contracts in docstrings; CASES are spiders.")
    ] = False,
    no_robots: Annotated[bool, typer.Option("--no-robots", help="With --contracts: ignore robots.txt.")] = False,
) -> None:
    """Run the cases in tests/: saved pages with the expected items and links."""
    from ..project.spiders.cases import run_cases, run_contracts

    settings = settings_with()
    if contracts:
        results = run_async(run_contracts(settings, cases or (), robots=not no_robots))
    else:
        results = run_async(run_cases(settings, cases or (), update=update))
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
    """Crawl from the archive and print the results. Exit code 1 when no page could be used."""
    from ..clock import SystemClock
    from ..project.jobs.replay import replay
    from ..project.outputs.run import is_address
    from ..project.records.export import outputs_of, try_outputs

    outputs = outputs_of(output, wanted.spider)
    if any(map(is_address, outputs)):
        raise Misconfigured("A replay stores nothing that an output could follow. With --replay, -o takes a file.")
    try_outputs(outputs, wanted.spider, settings)
    tally = EventCounts(SystemClock())
    listeners = EventHub(tally) if quiet else EventHub(tally, Warnings(err))
    done = run_async(replay(wanted.spider, settings, name=wanted.name, events=listeners, output=outputs))
    counts = done.crawl.counts
    if not quiet:
        for failure in done.failures:
            warn(f"  {failure.reason}  {visible(failure.message)}")
        if counts.dead > len(done.failures):
            err.print(f"  and {counts.dead - len(done.failures):,} more")
        records = many(done.crawl.records or 0, "record")
        err.print(
            f"Replayed {many(counts.done, 'page')}: {records}, {many(counts.dead, 'failure')}, "
            f"{done.missing:,} of them not in the archive. Nothing was sent or stored.",
            markup=False,
        )
        if outputs:
            err.print(f"The records are in {visible(', '.join(outputs))}.", markup=False)
    if done.crawl.failure or not counts.done:
        fail(f"No page could be used. {done.crawl.failure}")

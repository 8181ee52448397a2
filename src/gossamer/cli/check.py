"""`gossamer check`: does a spider or a recipe load, and what does it find on a page? Nothing is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..project.spiders.check import CheckedSpider, LinksGiven, SpiderCheck
from ..project.spiders.recipes import (
    RecipeCheck,
    RecipeFaults,
    RecipeView,
    check_on,
    demand_kind_of,
    load_for_check,
    loaded_view,
)
from ..units import many, size, visible
from .app import app, err, out, run_async, settings_with
from .layout import advise, heading, print_json, warn
from .options import JsonOption
from .recipes import show_recipe, show_recipe_check, show_records, tell_rest


@app.command("check")
def check_verb(
    spider: Annotated[str, typer.Argument(help="A spider or recipe: its name, or a file (spider.py:Class).")],
    url: Annotated[
        str | None, typer.Argument(help="A page: a URL, a file, or the reference of an archived page.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", "--callback", help="The kind of page or callback to use (default: the likely one)."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="The value of page.data for the callback, as JSON.")] = None,
    no_robots: Annotated[bool, typer.Option("--no-robots", help="Ignore robots.txt.")] = False,
    route: Annotated[str | None, typer.Option(help="Use this route: browser, or one from gossamer.toml.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Try a spider or recipe on a page: items, links, faults. Exit code 1 when it fails."""
    settings = settings_with()
    found = load_for_check(settings, spider, Path.cwd())
    if isinstance(found, RecipeFaults):
        if as_json:
            print_json(found)
        else:
            for line in found.lines():
                err.print(Text(visible(line)))
        raise typer.Exit(1)
    if url is None:
        view = loaded_view(found)
        if as_json:
            print_json(view)
        elif isinstance(view, RecipeView):
            show_recipe(view)
        else:
            _show_spider(view, spider)
        return
    demand_kind_of(found, kind)
    from .fetch import open_page  # imports the fetching code, which a check without a page does not need

    robots = found.robots is not False and not no_robots
    page = open_page(url, None, robots=robots, route=route or found.fetcher, spider=found)
    seen = run_async(check_on(settings, found, page, kind, data))
    if as_json:
        print_json(seen)
    elif isinstance(seen, RecipeCheck):
        show_recipe_check(seen)
        _tell_other_kinds(kind, seen.kind, seen.kinds, "kind")
    else:
        _show(seen)
        _tell_other_kinds(kind, seen.callback, seen.callbacks, "callback")
    if seen.refusal is not None:
        raise typer.Exit(1)


def _tell_other_kinds(wanted: str | None, taken: str, all_kinds: list[str], option: str) -> None:
    if wanted is None and len(all_kinds) > 1:
        others = ", ".join(name for name in all_kinds if name != taken)
        err.print(Text(f"Read as {taken}; --{option} chooses another: {others}.", "dim"))


def _show_spider(view: CheckedSpider, ref: str) -> None:
    out.print(Text.assemble((visible(view.spider), "bold"), " loads. To try it on a page, name one."))
    out.print(Text(f"  starts at  {visible(', '.join(view.start) or 'what start() gives')}"))
    out.print(Text(f"  callbacks  {', '.join(view.callbacks)}"))
    _warn(view.warnings)
    advise((f"gossamer check {ref} {view.start[0] if view.start else 'URL'}", "try a callback on that page"))


def _show(seen: SpiderCheck) -> None:
    heading(f"{seen.spider}, {seen.callback}", f"{seen.status}  {seen.url}  {size(seen.bytes)}")
    for links in seen.links:
        _show_links(links)
    show_records(seen)
    _warn(seen.warnings)
    if seen.refusal is not None:
        for line in seen.detail.splitlines():
            out.print(Text(f"  {visible(line)}", "dim"))
        out.print(Text.assemble(("This page would be a parse failure: ", "bold red"), visible(seen.refusal)))
    elif not seen.links and not seen.records and not seen.dropped:
        out.print(Text(f"{seen.callback} yielded no item and no link. Do its selectors match this page?", "yellow"))


def _show_links(links: LinksGiven) -> None:
    heading(f"{many(links.count, 'link')} to {links.to}")
    for url in links.first:
        out.print(Text(f"  {visible(url)}"))
    tell_rest(links.count - len(links.first), "more")
    if links.elsewhere:
        out.print(Text(f"  {links.elsewhere:,} lead to other sites and are left out (allowed_domains)", "yellow"))
    for url in links.invalid:
        out.print(Text(f" not an address: {visible(url)}", "red"))


def _warn(warnings: list[str]) -> None:
    for warning in warnings:
        warn(f"Warning: {visible(warning)}")

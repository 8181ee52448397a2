"""`gossamer check`: is a recipe right, and what does each of its rules find on a page? Nothing is stored. Here is also
what `gossamer new --recipe` does: a first draft."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from .. import Page
from ..project.recipes import (
    FieldNote,
    RecipeCheck,
    RecipeFaults,
    RecipeView,
    check_recipe,
    demand_kind,
    draft,
    load_recipe,
    recipe_view,
)
from ..units import many, size, visible
from .app import app, err, out, run_async, settings_with
from .layout import Column, advise, heading, print_json, print_table

SHOWN_NOTES = 60  # lines about fields; a page of many items has thousands
SHOWN_RECORDS = 5
SHOWN_TEXT = 60  # characters of a value; fewer on a narrow terminal
LEAST_TEXT = 12
ROOM_OF_THE_REST = 56  # of the terminal's columns, for the field, the fault and the rule


@app.command("check")
def check_verb(
    recipe: Annotated[str, typer.Argument(help="A recipe: a file, or its name in the spiders folder.")],
    url: Annotated[
        str | None, typer.Argument(help="A page: a URL, a file, or the reference of an archived page.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Read it as this kind of page; else the likely one.")] = None,
    no_robots: Annotated[bool, typer.Option("--no-robots", help="Do not ask robots.txt.")] = False,
    route: Annotated[str | None, typer.Option(help="By this route: browser, or one from gossamer.toml.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Check a recipe; with a page, show what each rule finds. Exit code 1 when a required field is missing."""
    settings = settings_with()
    spider = load_recipe(settings, recipe, Path.cwd())
    if isinstance(spider, RecipeFaults):
        if as_json:
            print_json(spider)
        else:
            for line in spider.lines():
                err.print(Text(visible(line)))
        raise typer.Exit(1)
    if url is None:
        _show_recipe(recipe_view(spider), as_json)
        return
    demand_kind(spider, kind)
    from .fetch import open_page  # loads what fetches: a recipe alone is checked without it

    page = open_page(url, None, robots=spider.robots is not False and not no_robots, route=route or spider.fetcher)
    seen = run_async(check_recipe(settings, spider, page, kind))
    if as_json:
        print_json(seen)
    else:
        _show(seen)
        if kind is None and len(seen.kinds) > 1:
            others = ", ".join(name for name in seen.kinds if name != seen.kind)
            err.print(Text(f"Read as {seen.kind}; --kind reads it as another: {others}.", "dim"))
    if seen.refusal is not None:
        raise typer.Exit(1)


def _show_recipe(recipe: RecipeView, as_json: bool) -> None:
    if as_json:
        print_json(recipe)
        return
    out.print(Text.assemble((visible(recipe.recipe), "bold"), " is a good recipe. It was not tried on a page."))
    print_table(
        (Column("KIND", "bold"), Column("RECORDS"), Column("FIELDS", fold=True), Column("LEADS TO", fold=True)),
        [
            (
                name,
                kind.item,
                ", ".join(f"{field}{'?' if field in kind.optional else ''}" for field in kind.fields),
                ", ".join(kind.leads_to),
            )
            for name, kind in recipe.kinds.items()
        ],
    )
    advise((f"gossamer check {recipe.recipe} {recipe.start[0]}", "what the rules find there"))


def _show(seen: RecipeCheck) -> None:
    heading(f"pages.{seen.kind}", f"{seen.status}  {seen.url}  {size(seen.bytes)}")
    if seen.fields:
        print_table(
            (
                Column("FIELD", "bold"),
                Column("FOUND", spare=0 if any(note.fault for note in seen.fields) else 1),  # a fault is one of that
                Column("VALUE"),
                Column("FAULT"),
                Column("RULE", "dim", fold=True),
            ),
            [
                (note.field, _cut(note.found or ""), _value(note), _fault(note), note.rule)
                for note in seen.fields[:SHOWN_NOTES]
            ],
            indent=2,
        )
        _tell_rest(len(seen.fields) - SHOWN_NOTES, "more values")
    for links in seen.links:
        heading(f"{many(links.count, 'link')} to {links.to}", links.rule)
        for url in links.first:
            out.print(Text(f"  {visible(url)}"))
        if links.fault:
            out.print(Text(f"  {visible(links.fault)}", "red"))
        _tell_rest(links.count - len(links.first), "more")
    _show_records(seen)
    if seen.refusal is not None:
        out.print(Text.assemble(("This page would be a parse failure: ", "bold red"), visible(seen.refusal)))


def _show_records(seen: RecipeCheck) -> None:
    if not seen.records:
        return
    heading(many(len(seen.records), "record"), "as they would be stored")
    for record in seen.records[:SHOWN_RECORDS]:
        out.print(Text(f"  {visible(record.type)} {visible(record.key)}", "cyan"))
        out.print(Text(f"    {visible(msgspec.json.encode(record.data).decode())}"))
    _tell_rest(len(seen.records) - SHOWN_RECORDS, "more")
    for drop in seen.dropped[:SHOWN_RECORDS]:
        out.print(Text(f"  left out by {drop.step}: {visible(drop.reason)}", "yellow"))
    for fault in seen.quality[:SHOWN_NOTES]:
        out.print(Text(f"  quality: {visible(fault.message or fault.rule)}", "yellow"))


def _tell_rest(count: int, what: str) -> None:
    if count > 0:
        out.print(Text(f"  ... {count:,} {what}", "dim"))


def _cut(text: str) -> str:
    room = max(LEAST_TEXT, min(SHOWN_TEXT, (out.width - ROOM_OF_THE_REST) // 2)) if out.is_terminal else SHOWN_TEXT
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _value(note: FieldNote) -> str:
    if note.value is None:
        return ""
    if isinstance(note.value, list):
        return _cut(", ".join(str(value) for value in note.value))
    return _cut(str(note.value))


def _fault(note: FieldNote) -> str:
    fault = note.fault or ("" if note.found is not None or not note.missing else "found nothing")
    return f"{fault} (required)" if note.missing else fault


def new_recipe(url: str, name: str | None) -> None:
    """Draft a recipe from the page at `url`, and say what to do next."""
    from ..project.fetch import fetch_one
    from .fetch import settings_for

    settings = settings_for(url)

    async def fetch(url: str) -> Page:
        return Page((await fetch_one(url, settings, robots=settings.politeness.robots)).snapshot)

    def tell(words: str) -> None:
        err.print(Text(visible(words), "yellow" if words.startswith(" ") else "dim"))

    done = run_async(draft(settings, url, name, folder=Path.cwd(), fetch=fetch, tell=tell))
    out.print(Text.assemble("Wrote ", (visible(str(done.file)), "bold"), f": {done.summary}. Next:"))
    for command in (
        f"gossamer check {done.ref} {visible(url)}",
        f"gossamer crawl {done.ref} --limit 50 -o {done.name}.jsonl",
    ):
        out.print(Text(f"  {command}", style="cyan"))

"""`gossamer check`: is a recipe right, and what does each of its rules find on a page? Nothing is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from ..errors import FetchRefused, Misconfigured, ParseFailed
from ..model.record import Record
from ..parse.discovery import is_file_ref, load_spider
from ..parse.page import Page
from ..parse.recipe.check import FoundLinks, PageCheck, check_page, likely_kind
from ..parse.recipe.faults import BadRecipe, suggestion
from ..parse.recipe.fields import Note
from ..parse.recipe.spider import RecipeSpider
from ..pipeline.steps import Piped
from ..project.pipelines import pipeline_of
from ..text import many, size, visible
from .app import app, err, out, run_async, settings_with
from .layout import Column, advise, heading, print_json, print_table
from .prompt import open_page

SHOWN_LINKS = 3
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
    spider = _load(recipe, as_json)
    if url is None:
        _tell_recipe(spider, as_json)
        return
    if kind is not None and kind not in spider.recipe.kinds:
        raise Misconfigured(f"{spider.recipe.file} has no page kind {kind!r}.{suggestion(kind, spider.recipe.kinds)}")
    fetched = open_page(url, None, robots=spider.robots is not False and not no_robots, route=route or spider.fetcher)
    if fetched.status >= 400 and fetched.status not in spider.handle_statuses:
        raise FetchRefused(f"{fetched.url} answered {fetched.status}; there is nothing to read.", status=fetched.status)
    page = Page(fetched.snapshot, spider=spider)
    seen = check_page(spider, kind or likely_kind(spider, page), page)
    piped, refusal = _piped(spider, seen, page)
    if as_json:
        print_json(_as_json(spider, seen, page, piped, refusal))
    else:
        _show(seen, page, piped, refusal)
        if kind is None and len(spider.recipe.kinds) > 1:
            others = ", ".join(name for name in spider.recipe.kinds if name != seen.kind)
            err.print(Text(f"Read as {seen.kind}; --kind reads it as another: {others}.", "dim"))
    if refusal:
        raise typer.Exit(1)


def _load(ref: str, as_json: bool) -> RecipeSpider:
    settings = settings_with()
    root = Path.cwd() if is_file_ref(ref) else settings.root
    try:
        spider = load_spider(ref, root, settings.spiders)()
    except BadRecipe as error:
        if as_json:
            faults = [{"line": fault.line, "message": fault.message} for fault in error.faults]
            print_json({"recipe": error.file, "valid": False, "faults": faults})
        else:
            for line in error.lines():
                err.print(Text(visible(line)))
        raise typer.Exit(1) from None
    if not isinstance(spider, RecipeSpider):
        raise Misconfigured(f"{ref} is a spider in Python; only recipes can be checked. Try `gossamer shell URL`.")
    return spider


def _tell_recipe(spider: RecipeSpider, as_json: bool) -> None:
    recipe = spider.recipe
    if as_json:
        kinds = {
            kind.name: {"item": kind.item or None, "fields": [field.name for field in kind.fields]}
            for kind in recipe.kinds.values()
        }
        print_json({"recipe": recipe.file, "valid": True, "name": recipe.name, "kinds": kinds})
        return
    out.print(Text.assemble((visible(recipe.file), "bold"), " is a good recipe. It was not tried on a page."))
    print_table(
        (Column("KIND", "bold"), Column("RECORDS"), Column("FIELDS", fold=True), Column("LEADS TO", fold=True)),
        [
            (
                kind.name,
                kind.item,
                ", ".join(f"{field.name}{'' if field.required else '?'}" for field in kind.fields),
                ", ".join(dict.fromkeys([rule.to for rule in kind.follow] + ([kind.name] if _turns(kind) else []))),
            )
            for kind in recipe.kinds.values()
        ],
    )
    advise((f"gossamer check {recipe.file} {recipe.start[0]}", "what the rules find there"))


def _turns(kind: Any) -> bool:  # Any: a PageKind
    return kind.next is not None or kind.numbering is not None


def _piped(spider: RecipeSpider, seen: PageCheck, page: Page) -> tuple[Piped, str]:
    """What would be stored, and why nothing would be."""
    if seen.fault or seen.missing:
        names = ", ".join(dict.fromkeys(note.field for note in seen.missing[:SHOWN_LINKS]))
        more = f" and {len(seen.missing) - SHOWN_LINKS} more" if len(seen.missing) > SHOWN_LINKS else ""
        return Piped([], []), seen.fault or f"required and not found: {names}{more}"
    pipeline = pipeline_of(settings_with(), spider)
    try:
        return run_async(pipeline.run(seen.items, page, spider=spider.name, job="", now=page.fetched_at)), next(
            (links.fault for links in seen.links if links.fault), ""
        )
    except ParseFailed as error:
        return Piped([], []), str(error)


def _show(seen: PageCheck, page: Page, piped: Piped, refusal: str) -> None:
    heading(f"pages.{seen.kind}", f"{page.status}  {page.url}  {size(len(page.body))}")
    if seen.notes:
        print_table(
            (
                Column("FIELD", "bold"),
                Column("FOUND", spare=0 if any(note.fault for note in seen.notes) else 1),  # a fault is one of that
                Column("VALUE"),
                Column("FAULT"),
                Column("RULE", "dim", fold=True),
            ),
            [
                (note.field, _cut(note.found or ""), _value(note), _fault(note), note.rule)
                for note in seen.notes[:SHOWN_NOTES]
            ],
            indent=2,
        )
        _tell_rest(len(seen.notes) - SHOWN_NOTES, "more values")
    for links in seen.links:
        heading(f"{many(len(links.urls), 'link')} to {links.to}", links.rule)
        for url in links.urls[:SHOWN_LINKS]:
            out.print(Text(f"  {visible(url)}"))
        if links.fault:
            out.print(Text(f"  {visible(links.fault)}", "red"))
        _tell_rest(len(links.urls) - SHOWN_LINKS, "more")
    _show_records(piped)
    if refusal:
        out.print(Text.assemble(("This page would be a parse failure: ", "bold red"), visible(refusal)))


def _show_records(piped: Piped) -> None:
    if not piped.records:
        return
    heading(many(len(piped.records), "record"), "as they would be stored")
    for record in piped.records[:SHOWN_RECORDS]:
        out.print(Text(f"  {visible(record.type)} {visible(record.key)}", "cyan"))
        out.print(Text(f"    {visible(record.data)}"))
    _tell_rest(len(piped.records) - SHOWN_RECORDS, "more")
    for drop in piped.dropped[:SHOWN_RECORDS]:
        out.print(Text(f"  left out by {drop.step}: {visible(drop.reason)}", "yellow"))
    for fault in piped.inspection.faults[:SHOWN_NOTES]:
        out.print(Text(f"  quality: {visible(fault.message or fault.rule)}", "yellow"))


def _tell_rest(count: int, what: str) -> None:
    if count > 0:
        out.print(Text(f"  ... {count:,} {what}", "dim"))


def _cut(text: str) -> str:
    room = max(LEAST_TEXT, min(SHOWN_TEXT, (out.width - ROOM_OF_THE_REST) // 2)) if out.is_terminal else SHOWN_TEXT
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _value(note: Note) -> str:
    if note.value is None:
        return ""
    if isinstance(note.value, list):
        return _cut(", ".join(str(value) for value in note.value))
    return _cut(str(note.value))


def _fault(note: Note) -> str:
    fault = note.fault or ("" if note.found is not None or not note.missing else "found nothing")
    return f"{fault} (required)" if note.missing else fault


def _as_json(spider: RecipeSpider, seen: PageCheck, page: Page, piped: Piped, refusal: str) -> dict[str, Any]:
    return {
        "recipe": spider.recipe.file,
        "valid": True,
        "url": page.url,
        "status": page.status,
        "kind": seen.kind,
        "fields": [_note_json(note) for note in seen.notes],
        "links": [_links_json(links) for links in seen.links],
        "records": [_record_json(record) for record in piped.records],
        "quality": [msgspec.structs.asdict(fault) for fault in piped.inspection.faults],
        "refusal": refusal or None,
    }


def _note_json(note: Note) -> dict[str, Any]:
    fields = msgspec.structs.asdict(note)
    return {**fields, "value": msgspec.to_builtins(note.value)}


def _links_json(links: FoundLinks) -> dict[str, Any]:
    return {"rule": links.rule, "to": links.to, "count": len(links.urls), "first": list(links.urls[:SHOWN_LINKS])} | (
        {"fault": links.fault} if links.fault else {}
    )


def _record_json(record: Record) -> dict[str, Any]:
    return {"type": record.type, "key": record.key, "data": msgspec.json.decode(record.data)}

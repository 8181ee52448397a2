"""The output of `gossamer check` for a recipe and for what its rules find on a page. Also `gossamer new --recipe`,
which drafts a recipe."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
from rich.text import Text

from .. import Page
from ..project.spiders.check import SpiderCheck
from ..project.spiders.recipes import FieldNote, RecipeCheck, RecipeView, draft
from ..units import many, size, visible
from .app import err, out, run_async
from .layout import Column, advise, heading, print_table

SHOWN_NOTES = 60  # lines about fields; a page with many items has thousands
SHOWN_RECORDS = 5
SHOWN_TEXT = 60  # characters of a value; fewer on a narrow terminal
LEAST_TEXT = 12
ROOM_OF_THE_REST = 56  # terminal columns for the field, the fault and the rule


def show_recipe(recipe: RecipeView) -> None:
    out.print(Text.assemble((visible(recipe.recipe), "bold"), " is a valid recipe. To try it on a page, name one."))
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
    advise((f"gossamer check {recipe.recipe} {recipe.start[0]}", "try its rules on that page"))


def show_recipe_check(seen: RecipeCheck) -> None:
    heading(f"pages.{seen.kind}", f"{seen.status}  {seen.url}  {size(seen.bytes)}")
    if seen.fields:
        print_table(
            (
                Column("FIELD", "bold"),
                Column("FOUND", spare=0 if any(note.fault for note in seen.fields) else 1),  # a fault counts as one
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
        tell_rest(len(seen.fields) - SHOWN_NOTES, "more values")
    for links in seen.links:
        heading(f"{many(links.count, 'link')} to {links.to}", links.rule)
        for url in links.first:
            out.print(Text(f"  {visible(url)}"))
        if links.fault:
            out.print(Text(f"  {visible(links.fault)}", "red"))
        tell_rest(links.count - len(links.first), "more")
    show_records(seen)
    if seen.refusal is not None:
        out.print(Text.assemble(("This page would be a parse failure: ", "bold red"), visible(seen.refusal)))


def show_records(seen: RecipeCheck | SpiderCheck) -> None:
    if not seen.records and not seen.dropped:
        return
    heading(many(len(seen.records), "record"), "as they would be stored")
    for record in seen.records[:SHOWN_RECORDS]:
        out.print(Text(f"  {visible(record.type)} {visible(record.key)}", "cyan"))
        out.print(Text(f"    {visible(msgspec.json.encode(record.data).decode())}"))
    tell_rest(len(seen.records) - SHOWN_RECORDS, "more")
    for drop in seen.dropped[:SHOWN_RECORDS]:
        out.print(Text(f"  left out by {drop.step}: {visible(drop.reason)}", "yellow"))
    for fault in seen.quality[:SHOWN_NOTES]:
        out.print(Text(f"  quality: {visible(fault.message or fault.rule)}", "yellow"))


def tell_rest(count: int, what: str) -> None:
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
    from ..project.pages.fetch import fetch_one
    from .fetch import settings_for

    settings = settings_for(url)

    async def fetch(url: str) -> Page:
        return Page((await fetch_one(url, settings, robots=settings.politeness.robots)).snapshot)

    def tell(words: str) -> None:
        err.print(Text(visible(words), "yellow" if words.startswith(" ") else "dim"))

    done = run_async(draft(settings, url, name, folder=Path.cwd(), fetch=fetch, tell=tell))
    out.print(Text.assemble("Wrote ", (visible(str(done.file)), "bold"), f": {done.summary}. Next:"))
    for command in (
        f"gossamer check {_word(done.ref)} {_word(url)}",
        f"gossamer crawl {_word(done.ref)} --limit 50 -o {done.name}.jsonl",
    ):
        out.print(Text(f"  {command}", style="cyan"))


def new_by_example(words: list[list[str]], name: str | None, *, python: bool) -> None:
    """Learn a recipe or a spider from pages and the values wanted from them, and say how sure each rule is."""
    from ..model.url import typed_url
    from ..project.pages.fetch import fetch_one
    from ..project.spiders.examples import read_examples, recipe_by_example
    from .fetch import settings_for

    examples = read_examples([[typed_url(url), *pairs] for url, *pairs in words])
    settings = settings_for(examples[0].url)

    async def fetch(url: str) -> Page:
        return Page((await fetch_one(url, settings, robots=settings.politeness.robots)).snapshot)

    def tell(words: str) -> None:
        err.print(Text(visible(words), "yellow" if words.startswith(" ") else "dim"))

    done = run_async(
        recipe_by_example(settings, examples, name, folder=Path.cwd(), fetch=fetch, tell=tell, python=python)
    )
    out.print(
        Text.assemble(
            "Wrote ", (visible(str(done.drafted.file)), "bold"), f". On {many(len(done.tried), 'other page')}:"
        )
    )
    for field in done.fields:
        found = ", ".join(visible(one) if one is not None else "nothing" for one in field.values[:3])
        out.print(Text.assemble("  ", (field.field, "bold" if field.sure else "bold yellow"), f"  {_cut(found)}"))
        if not field.sure:
            out.print(Text(f"    unsure: {visible(field.reason)}", "yellow"))
    if done.unsure:
        fields = " ".join(f"{one}=..." for one in done.unsure)
        out.print(Text(f"Give a second page to be sure: add --example URL {fields}, and another name.", "yellow"))
    callback = " --callback item" if python and done.drafted.summary != "item" else ""
    for command in (
        f"gossamer check {_word(done.drafted.ref)} {_word(examples[0].url)}{callback}",
        f"gossamer crawl {_word(done.drafted.ref)} --limit 50 -o {done.drafted.name}.jsonl",
    ):
        out.print(Text(f"  {command}", style="cyan"))


def _word(text: str) -> str:
    """A text as one word of a command that is pasted into a shell."""
    return shlex.quote(visible(text))

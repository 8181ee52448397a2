"""`gossamer heal`: what a recipe has lost since its site changed, and rules that find it again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from ..clock import SystemClock, iso_time
from ..errors import Misconfigured
from ..model.healing import HealedField
from ..project.access.keys import OWNER
from ..project.spiders.apply import Undone, apply, undo
from ..project.spiders.heal import FieldHealing, Healing, chosen_fields, find_healing
from ..project.spiders.healed_values import healed_values
from ..project.spiders.python_heal import PythonHealing, find_python_healing
from ..project.spiders.recipes import RecipeFaults, RecipeSpider, Spider, load_for_check, recipe_spider
from ..project.spiders.rules import held_rules, restore_file, rules_of, write_rules
from ..settings import Settings
from ..units import many, visible, visible_lines
from .app import app, open_crawled, out, run_async, settings_with
from .layout import advise, answer_program, heading, print_drift, print_json, write_bytes
from .options import JsonOption

VALUES_SHOWN = 50
_STYLES = {"heal": "green", "propose": "yellow", "refuse": "red"}


@app.command("heal")
def heal_verb(
    spider: Annotated[str, typer.Argument(help="A recipe: its name in the project, or its file.")],
    use: Annotated[
        bool, typer.Option("--apply", help="Take the healed rules into use, and parse the changed pages again.")
    ] = False,
    write: Annotated[bool, typer.Option("--write", help="Write the healed rules into the recipe's file.")] = False,
    fields: Annotated[
        list[str] | None,
        typer.Option("--field", help="With --apply or --write: also this field, whose rule is only proposed."),
    ] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Take the version before into use, and take back the values of this one.")
    ] = False,
    keep_values: Annotated[bool, typer.Option("--keep-values", help="With --undo: the values stay.")] = False,
    values: Annotated[bool, typer.Option("--values", help="List the values that healed rules gave.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Learn the rules of a recipe again from its records, after its site has changed. No request is made."""
    if use + write + undo + values > 1:
        raise Misconfigured("--apply, --write, --undo and --values exclude each other.")
    settings = settings_with()
    loaded = load_for_check(settings, spider, Path.cwd())
    if isinstance(loaded, RecipeFaults):
        raise Misconfigured(loaded.lines()[0])
    if not isinstance(loaded, RecipeSpider) and not (use or write or undo or values):
        _propose(settings, loaded, as_json=as_json)
        return
    recipe = recipe_spider(loaded)
    if undo:
        _undo(settings, recipe, keep_values=keep_values, as_json=as_json)
    elif values:
        _list_values(settings, recipe, as_json=as_json)
    else:
        _heal(settings, recipe, spider, fields or (), use=use, write=write, as_json=as_json)


def _propose(settings: Settings, spider: Spider, *, as_json: bool) -> None:
    """Show the diff for a spider in Python."""

    async def find() -> PythonHealing:
        async with open_crawled(settings) as project:
            return await find_python_healing(project, spider)

    healing = run_async(find())
    answer_program(healing, as_json)
    out.print(Text(visible(healing.words())))
    for one in healing.fields:
        out.print(Text.assemble("  ", (one.decision.value, _STYLES[one.decision]), " ", (one.field, "bold"),
                                f", line {one.line}: {visible(one.reason)}"))  # fmt: skip
    if healing.diff:
        out.print(Text(visible_lines(healing.diff), "cyan"))


def _heal(
    settings: Settings,
    recipe: RecipeSpider,
    name: str,
    fields: Sequence[str],
    *,
    use: bool,
    write: bool,
    as_json: bool,
) -> None:
    async def find() -> tuple[Healing, list[HealedField]]:
        async with open_crawled(settings) as project:
            held = (await rules_of(project, recipe.name)).in_use(recipe.recipe.text)
            return await find_healing(project, recipe), list(held.fields) if held is not None else []

    healing, held = run_async(find())
    chosen = chosen_fields(healing, fields)
    if use:
        if not as_json:
            _show(healing)
        applied = run_async(apply(settings, recipe, healing, chosen, by=OWNER.name))
        if as_json:
            print_json(applied)
            return
        out.print(Text(f"\n{visible(applied.words())}", "bold"))
        for failure in applied.failures:
            out.print(Text(f"  {visible(failure)}"))
        advise(
            (f"gossamer heal {name} --values", "list what the healed rules gave"),
            (f"gossamer heal {name} --undo", "the rules before, and their values"),
        )
        return
    if as_json:
        print_json(healing)
    else:
        _show(healing)
    if write:
        replaced = {one.place for one in chosen}
        wanted = [*chosen, *(one for one in held if one.place not in replaced)]
        path = write_rules(settings, recipe, wanted, iso_time(SystemClock().now())[:10])
        if not as_json:
            out.print(Text(f"\nWrote {visible(path.name)}; as it was, it is {visible(path.name)}.before.", "bold"))
            advise(
                ("gossamer dead replay --reason parse", "parse the archived dead letters with the new rules"),
                (f"gossamer heal {name} --undo", "put the old rules back"),
            )
    elif healing.kinds and not as_json:
        advise(
            (f"gossamer heal {name} --apply", "take the healed rules into use, and parse the changed pages again"),
            (f"gossamer heal {name} --write", "write them into the file"),
        )


def _undo(settings: Settings, recipe: RecipeSpider, *, keep_values: bool, as_json: bool) -> None:
    async def step() -> Undone | None:
        async with open_crawled(settings) as project:
            found = await held_rules(project, recipe)
            return await undo(project, recipe, keep_values=keep_values) if found else None

    undone = run_async(step())
    if undone is None:
        path = restore_file(settings, recipe)
        out.print(Text(f"{visible(path.name)} is as it was before."))
    elif as_json:
        print_json(undone)
    else:
        out.print(Text(visible(undone.words())))


def _list_values(settings: Settings, recipe: RecipeSpider, *, as_json: bool) -> None:
    async def read() -> int:
        count = 0
        async with open_crawled(settings) as project:
            async for one in healed_values(project, recipe.name):
                count += 1
                if as_json:
                    write_bytes(msgspec.json.encode(one, enc_hook=str) + b"\n")
                elif count <= VALUES_SHOWN:
                    was = "" if one.former == one.value else f", before: {visible(str(one.former))[:60]}"
                    out.print(
                        Text(
                            f"{visible(one.key)}  {one.field} = {visible(str(one.value))[:60]} (rules {one.rules}{was})"
                        )
                    )
        return count

    count = run_async(read())
    if not as_json:
        more = f"; the first {VALUES_SHOWN} are shown, all with --json" if count > VALUES_SHOWN else ""
        out.print(Text(f"{many(count, 'value')} by healed rules{more}.", "dim"))


def _show(healing: Healing) -> None:
    out.print(Text(visible(healing.words())))
    if healing.rules:
        out.print(Text(f"Version {healing.rules} of its healed rules is in use.", "dim"))
    elif healing.ended:
        out.print(Text(f"The healed rules have ended: {visible(healing.file)} has changed since.", "dim"))
    for left in healing.left_out:
        out.print(Text(f"Not looked at: {visible(left)}.", "dim"))
    for kind in healing.kinds:
        heading(f"pages.{kind.kind}", f"{many(kind.pages, 'page')} changed, {kind.known} with a record")
        for field in kind.fields:
            _show_field(field)
        if kind.unhurt:
            out.print(Text(f"  as before: {', '.join(kind.unhurt)}", "dim"))
    print_drift(healing.drift)


def _show_field(field: FieldHealing) -> None:
    out.print(Text.assemble("  ", (field.decision.value, _STYLES[field.decision]), " ", (field.field, "bold"),
                            f": {visible(field.reason)}"))  # fmt: skip
    out.print(Text(f"    was  {visible(field.old_rule)}", "dim"))
    for line in field.new_rule.splitlines():
        out.print(Text(f"    {visible(line)}", "cyan"))
    for one in field.examples:
        mark = "=" if one.agrees else "≠"
        found = visible(one.found) if one.found is not None else "nothing"
        out.print(Text(f"      {visible(one.stored)[:60]} {mark} {found[:60]}"))

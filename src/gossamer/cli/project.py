"""Verbs about the project itself: `new`, `spiders`, `settings`, `version`. Its health is checked in doctor.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperCommand

from .. import __version__
from ..errors import Misconfigured
from ..model.url import typed_url
from ..project.settings_view import setting_lines, settings_view
from ..project.spiders.spiders import spiders_of
from ..settings import FILE_NAME, Settings, load
from ..units import visible
from .app import app, out, settings_with
from .layout import Column, advise, answer_program, print_json, print_table
from .options import JsonOption

SEPARATOR = "\x1f"  # between the words of an example


@app.command("version")
def version_verb() -> None:
    """Print the version."""
    typer.echo(f"gossamer {__version__}")


class _NewCommand(TyperCommand):
    """NAME=VALUE words belong to the `--example` before them, so they are put into its value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: its class depends on the version of typer
        return super().parse_args(ctx, joined_examples(args))


def joined_examples(args: list[str]) -> list[str]:
    """`--example URL a=b c=d` as one option with one value."""
    made: list[str] = []
    inside = False
    for word in args:
        if made and made[-1] == "--example":
            made.append(word)
            inside = True
        elif inside and "=" in word and not word.startswith("-"):
            made[-1] += SEPARATOR + word
        else:
            inside = False
            made.append(word)
    return made


@app.command("new", cls=_NewCommand)
def new_verb(
    name: Annotated[
        str | None, typer.Argument(help="The project, its folder and its first spider: books. Or the recipe's name.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Where the spider starts.")] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Draft a recipe from the page at this URL, for the current project.")
    ] = None,
    example: Annotated[
        list[str] | None,
        typer.Option(
            "--example",
            metavar="URL NAME=VALUE...",
            help="A page, and what stands there: --example URL title='Desk lamp' price=49.90. Writes a recipe.",
        ),
    ] = None,
    python: Annotated[
        bool, typer.Option("--python", help="With --example: write a spider in Python instead of a recipe.")
    ] = False,
    deploy: Annotated[
        bool,
        typer.Option(
            "--deploy", help="Also write a Compose file and systemd units; without NAME, for the current project."
        ),
    ] = False,
) -> None:
    """Create a project with settings and a working spider, or draft a recipe from a page or from examples."""
    if example:
        if url is not None or deploy or recipe is not None:
            raise Misconfigured("--example already names the page; leave out --url, --recipe and --deploy.")
        from .recipes import new_by_example

        new_by_example([one.split(SEPARATOR) for one in example], name, python=python)
        return
    if python:
        raise Misconfigured("--python goes with --example. Without it, gossamer new NAME --url URL writes a spider.")
    if recipe is not None:
        if url is not None or deploy:
            raise Misconfigured("--recipe already names the page; leave out --url and --deploy.")
        from .recipes import new_recipe

        new_recipe(typed_url(recipe), name)
        return
    if name is None and deploy:
        _add_deploy_files(settings_with())
        return
    if name is None:
        raise Misconfigured("Give the project a name: gossamer new books. To draft a recipe, use --recipe URL.")
    from ..project.spiders.scaffold import new_project

    names = new_project(Path.cwd(), name, typed_url(url) if url is not None else None)
    out.print(
        Text.assemble("Made ", (f"{names.folder}/", "bold"), f" with a spider in spiders/{names.module}.py. Next:")
    )
    for command in (
        f"cd {names.folder}",
        f"gossamer crawl {names.spider} --limit 50 -o {names.module}.jsonl",
        "gossamer status",
    ):
        out.print(Text(f"  {command}", style="cyan"))
    if deploy:
        _add_deploy_files(load(start=Path.cwd() / names.folder), names.spider)


def _add_deploy_files(settings: Settings, spider: str | None = None) -> None:
    from ..project.deploy_files import add_deploy_files

    known = spiders_of(settings).spiders
    made = add_deploy_files(settings, spider or (known[0].name if known else "SPIDER"))
    out.print(
        Text.assemble(
            "Made ", (visible(str(made[0].parent)), "bold"), ": containers or systemd units; see its README.md."
        )
    )


@app.command("spiders")
def spiders_verb(
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 if a file or a class is faulty.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the project's spiders and recipes, and what is wrong with files and classes."""
    settings = settings_with()
    found = spiders_of(settings)
    if as_json:
        print_json(found)
    elif not found.spiders and not found.broken:
        folder = settings.root / settings.spiders
        words = f"There are no spiders in {visible(str(folder))}. `gossamer new NAME` creates a project with one."
        out.print(words, markup=False)
    else:
        if found.spiders:
            print_table(
                (Column("NAME", "bold"), Column("FILE"), Column("SUMMARY", fold=True)),
                [(one.name, _near(one.file, settings), one.summary) for one in found.spiders],
            )
            advise((f"gossamer crawl {found.spiders[0].name} -o items.jsonl", "crawl, and write the records"))
        for one in found.spiders:
            for fault in one.faults:
                out.print(Text.assemble(("faulty  ", "bold yellow"), visible(f"{one.name}: {fault}")))
        for file in found.broken:
            out.print(Text.assemble(("broken  ", "bold red"), visible(file.words)))
    if strict and (found.broken or any(one.faults for one in found.spiders)):
        raise typer.Exit(1)


def _near(file: str, settings: Settings) -> str:
    path = Path(file)
    return str(path.relative_to(settings.root)) if path.is_relative_to(settings.root) else file


@app.command("settings")
def settings_verb(
    key: Annotated[str | None, typer.Argument(help="One setting (fetch.max_body), or a group (fetch).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print every setting, its value and where that value comes from."""
    settings = settings_with()
    lines = setting_lines(settings, key)
    answer_program(settings_view(lines), as_json)
    if key is not None and len(lines) == 1 and lines[0].key == key and not out.is_terminal:
        typer.echo(lines[0].text)  # for $(gossamer settings crawl.depth)
        return
    print_table(
        (Column("SETTING", "bold"), Column("VALUE", fold=True), Column("FROM", "dim")),
        [(line.key, line.text, _near_origin(line.origin)) for line in lines],
    )
    if out.is_terminal and key is None:
        out.print(
            Text(
                f'\nSet them in {FILE_NAME} ([fetch] max_body = "5MB"), or as GOSSAMER_FETCH__MAX_BODY=5MB.'
                if settings.origins
                else f"\nAll defaults. Set them in a file {FILE_NAME}, or as GOSSAMER_FETCH__MAX_BODY=5MB.",
                "dim",
            )
        )


def _near_origin(origin: str) -> str:
    path = Path(origin)
    return path.name if path.is_absolute() and path.parent == Path.cwd() else origin

"""Verbs about the project itself: `new`, `spiders`, `settings`, `version`. Its health is checked in doctor.py."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from .. import __version__
from ..backends.addresses import redacted
from ..errors import Misconfigured, UnknownSetting
from ..model.url import typed_url
from ..parse.discovery import list_spiders
from ..schedule.sources import discreet
from ..schedule.sources.kinds import HIDDEN
from ..settings import FILE_NAME, NAMED_TABLES, Settings, known_keys
from ..text import many, setting_text, visible
from ..units import Rate, Size
from .app import app, out, settings_with
from .layout import Column, advise, print_json, print_table
from .scaffold import check_name, files_of

DEFAULT = "default"


class SettingLine(msgspec.Struct, frozen=True):
    """One setting with its value and where that came from."""

    key: str
    value: Any  # each setting has its own type
    origin: str


@app.command("version")
def version_verb() -> None:
    """Print the version."""
    typer.echo(f"gossamer {__version__}")


@app.command("new")
def new_verb(
    name: Annotated[
        str | None, typer.Argument(help="The project, its folder and its first spider: books. Or the recipe's name.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Where the spider starts.")] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Draft a recipe from the page at this URL, for the project that you are in.")
    ] = None,
) -> None:
    """Make a folder with settings and a first spider that runs; or draft a recipe from a page."""
    if recipe is not None:
        if url is not None:
            raise Misconfigured("--recipe names the page already; leave --url out.")
        from .drafts import new_recipe

        new_recipe(typed_url(recipe), name)
        return
    if name is None:
        raise Misconfigured("Give the project a name: gossamer new books. A recipe is drafted with --recipe URL.")
    names = check_name(name)
    start = typed_url(url) if url is not None else None
    folder = Path.cwd() / names.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Misconfigured(f"{folder} exists already and nothing in it was changed. Choose another name.")
    try:
        for path, text in files_of(names, start).items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as stream:
                stream.write(text)
    except OSError as error:
        raise Misconfigured(
            f"The project cannot be made in {folder} ({error.strerror}). Go to a folder that you may write to."
        ) from error
    out.print(
        Text.assemble("Made ", (f"{names.folder}/", "bold"), f" with a spider in spiders/{names.module}.py. Next:")
    )
    for command in (
        f"cd {names.folder}",
        f"gossamer crawl {names.spider} --limit 50 -o {names.module}.jsonl",
        "gossamer status",
    ):
        out.print(Text(f"  {command}", style="cyan"))


@app.command("spiders")
def spiders_verb(as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """List the project's spiders and recipes, and the files that do not load. Exit code 1 when there are such."""
    settings = settings_with()
    found = list_spiders(settings.root, settings.spiders)
    if as_json:
        print_json(
            {
                "spiders": [
                    {"name": spec.name, "file": str(spec.path), "class": spec.spider.__name__, "summary": spec.summary}
                    for spec in found.spiders
                ],
                "broken": [{"file": str(file.path), "line": file.line, "error": file.message} for file in found.broken],
            }
        )
    elif not found.spiders and not found.broken:
        folder = settings.root / settings.spiders
        words = f"There are no spiders in {visible(str(folder))}. `gossamer new NAME` makes a project with one."
        out.print(words, markup=False)
    else:
        _show_spiders(settings, found.spiders)
        for file in found.broken:
            out.print(Text.assemble(("broken  ", "bold red"), visible(str(file))))
    if found.broken:
        raise typer.Exit(1)


def _show_spiders(settings: Settings, spiders: tuple[Any, ...]) -> None:
    if not spiders:
        return
    print_table(
        (Column("NAME", "bold"), Column("FILE"), Column("SUMMARY", fold=True)),
        [(spec.name, _near(spec.path, settings.root), spec.summary) for spec in spiders],
    )
    advise((f"gossamer crawl {spiders[0].name} -o items.jsonl", "crawl, and write the records"))


def _near(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


@app.command("settings")
def settings_verb(
    key: Annotated[str | None, typer.Argument(help="One setting (fetch.max_body), or a group of them (fetch).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Print every setting: its value, and where that came from."""
    settings = settings_with()
    lines = lines_of(settings)
    if key is not None:
        lines = _chosen(lines, key)
    if as_json:
        print_json({line.key: {"value": _jsonable(line.value), "from": line.origin} for line in lines})
        return
    if key is not None and len(lines) == 1 and lines[0].key == key and not out.is_terminal:
        typer.echo(setting_text(lines[0].value))  # for $(gossamer settings crawl.depth)
        return
    print_table(
        (Column("SETTING", "bold"), Column("VALUE", fold=True), Column("FROM", "dim")),
        [(line.key, setting_text(line.value), _near_origin(line.origin)) for line in lines],
    )
    if out.is_terminal and key is None:
        out.print(
            f'\n[dim]Set them in {FILE_NAME} (\\[fetch] max_body = "5MB"), or as GOSSAMER_FETCH__MAX_BODY=5MB.[/]'
            if settings.origins
            else f"\n[dim]All defaults. Set them in a file {FILE_NAME}, or as GOSSAMER_FETCH__MAX_BODY=5MB.[/]"
        )


def lines_of(settings: Settings) -> list[SettingLine]:
    """Every setting, and every override for a domain; passwords in addresses are blanked."""
    lines = []
    for key in known_keys():
        if key.partition(".")[0] in NAMED_TABLES:
            continue
        value: Any = settings  # walks down the dotted key
        for name in key.split("."):
            value = getattr(value, name)
        lines.append(SettingLine(key, _safe(value), settings.origins.get(key, DEFAULT)))
    for family, (_, table) in NAMED_TABLES.items():
        for own, terms in getattr(settings, family).items():
            for name in table.__struct_fields__:
                key = f"{family}.{own}.{name}"
                if key in settings.origins:
                    lines.append(SettingLine(key, _of_table(family, name, getattr(terms, name)), settings.origins[key]))
    return lines


def _safe(value: Any) -> Any:  # Any: each setting has its own kind of value
    return redacted(value) if isinstance(value, str) and "://" in value else value


def _of_table(family: str, name: str, value: Any) -> Any:  # Any: a setting of whatever kind
    """As `_safe`; of a schedule's command the first word, of its addresses no password."""
    if family != "schedules" or value is None:
        return _safe(value)
    if name == "command":
        words = value if isinstance(value, tuple) else (HIDDEN,)
        return (words[0], *(HIDDEN for _ in words[1:]))
    if isinstance(value, tuple):
        return tuple(discreet(one) for one in value)
    return discreet(value) if isinstance(value, str) else value


def _chosen(lines: list[SettingLine], key: str) -> list[SettingLine]:
    found = [line for line in lines if line.key == key or line.key.startswith(f"{key}.")]
    if found:
        return found
    names = [line.key for line in lines]
    leaves = [name for name in names if name.rpartition(".")[2] == key]
    near = leaves or difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}?" if near else f"`gossamer settings` lists all {many(len(names), 'setting')}."
    raise UnknownSetting(f"There is no setting {visible(key)!r}. {hint}")


def _near_origin(origin: str) -> str:
    path = Path(origin)
    return path.name if path.is_absolute() and path.parent == Path.cwd() else origin


def _jsonable(value: Any) -> Any:
    if isinstance(value, Rate | Size) or not isinstance(value, bool | int | float | str | tuple | list | None):
        return setting_text(value)
    return value

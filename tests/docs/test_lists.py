"""Lists in the documentation are complete and true: settings, flags, tables, states, names. Compared both ways."""

from __future__ import annotations

import inspect
import sqlite3
from datetime import timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import pytest
import typer

import gossamer
from gossamer import Page, Spider
from gossamer.backends.sqlite.connection import numbered_scripts, statements_of
from gossamer.cli.app import app
from gossamer.cli.verbs import HOMES, load_verb
from gossamer.model.task import DropReason, UrlState
from gossamer.model.url import UrlRules, parse_url
from gossamer.project.settings_view import setting_lines
from gossamer.settings import DEFAULT_TRACKING, NAMED_TABLES, Settings, keys_of, known_keys
from gossamer.units import Rate, Secret, Size, setting_text

from .manual import ROOT, quoted, read, rows_under, sections_of

DOCS = ROOT / "docs"


# -- settings -----------------------------------------------------------------------------------------------


def settings_rows() -> dict[str, list[str]]:
    return {
        quoted(row[0])[0]: row for row in rows_under(read(DOCS / "settings.md"), "key", "type", "default", "meaning")
    }


def spelled(hint: Any) -> str:
    """A type as the page spells it."""
    if get_origin(hint) in (Union, UnionType):
        inner = " or ".join(spelled(arm) for arm in get_args(hint) if arm is not NoneType)
        return f"{inner}, or none" if " " in inner else f"{inner} or none"
    if get_origin(hint) is tuple:
        return f"list of {spelled(get_args(hint)[0])}s"
    if get_origin(hint) is dict:
        return f"table of {spelled(get_args(hint)[1])}s"
    return {
        str: "text", int: "number", float: "number", bool: "yes or no", timedelta: "duration", Rate: "rate",
        Size: "size", Secret: "secret",
    }[hint]  # fmt: skip


def test_every_setting_is_documented_and_every_documented_setting_exists():
    assert sorted(settings_rows()) == sorted(known_keys())


def test_defaults_of_settings_are_as_documented():
    defaults = {line.key: setting_text(line.value) or "empty" for line in setting_lines(Settings())}
    for family, (word, table) in NAMED_TABLES.items():
        empty = table()
        for name, key in keys_of(table):
            defaults[f"{family}.<{word}>.{key}"] = setting_text(getattr(empty, name)) or "empty"

    assert {key: row[2].strip("`") for key, row in settings_rows().items()} == defaults


def test_types_of_settings_are_as_documented():
    assert {key: row[1] for key, row in settings_rows().items()} == {
        key: spelled(hint) for key, hint in known_keys().items()
    }


def test_every_setting_has_a_meaning():
    assert [key for key, row in settings_rows().items() if len(row[3]) < 10] == []


# -- command line -------------------------------------------------------------------------------------------


# Any: typer brings its own click in some versions, so there is no one class to name.


@cache
def verbs() -> dict[str, Any]:
    """Every verb by its full name, as the command itself knows them."""
    for verb in HOMES:
        load_verb(verb)
    found: dict[str, Any] = {}

    def walk(command: Any, name: str) -> None:
        if hasattr(command, "commands"):
            for word, inner in command.commands.items():
                walk(inner, f"{name} {word}")
        else:
            found[name] = command

    walk(typer.main.get_command(app), "gossamer")
    return found


@cache
def documented_verbs() -> dict[str, tuple[str, str]]:
    """The verb -> its heading and the text below."""
    sections = {title: text for title, text in sections_of(DOCS / "cli.md").items() if title.startswith("gossamer ")}
    return {
        " ".join(word for word in title.split() if not word.strip("[]").isupper()): (title, text)
        for title, text in sections.items()
    }


def flags_of(text: str) -> dict[str, str]:
    """Every spelling of every flag in the tables of a text, with its meaning."""
    return {flag: row[1] for row in rows_under(text, "flag", "meaning") for flag in quoted(row[0])}


def options_of(command: Any) -> list[Any]:
    return [option for option in command.params if option.param_type_name == "option" and option.name != "help"]


def test_every_verb_is_documented_and_every_documented_verb_exists():
    assert sorted(documented_verbs()) == sorted(verbs())


@pytest.mark.parametrize("verb", sorted(documented_verbs()))
def test_flags_of_a_verb_are_as_documented(verb):
    told = flags_of(documented_verbs()[verb][1])

    assert sorted(told) == sorted(flag for option in options_of(verbs()[verb]) for flag in option.opts)


@pytest.mark.parametrize("verb", sorted(documented_verbs()))
def test_arguments_of_a_verb_are_as_documented(verb):
    title = documented_verbs()[verb][0]
    arguments = []
    for argument in verbs()[verb].params:
        if argument.param_type_name == "argument":
            name = (argument.metavar or argument.name or "").strip("[]").upper()
            arguments.append(name if argument.required else f"[{name}]")

    assert title.removeprefix(verb).split() == arguments


@pytest.mark.parametrize("verb", sorted(documented_verbs()))
def test_defaults_of_flags_are_as_documented(verb):
    told = flags_of(documented_verbs()[verb][1])

    for option in options_of(verbs()[verb]):
        if option.default is not None and not option.is_flag:
            assert f"(default {option.default})" in told[option.opts[0]], option.opts[0]
        else:
            assert "(default" not in told[option.opts[0]], option.opts[0]


def test_options_of_the_command_itself_are_documented():
    own = flags_of(sections_of(DOCS / "cli.md")["Command line"])
    root = typer.main.get_command(app)

    assert sorted(own) == sorted(flag for option in options_of(root) for flag in option.opts)


# -- data ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("database", ["records", "state"])
def test_tables_and_views_are_as_documented(database):
    connection = sqlite3.connect(":memory:")
    for _, script in numbered_scripts(database):
        for statement in statements_of(script):
            connection.execute(statement)
    there = connection.execute("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
    connection.close()

    rows = rows_under(sections_of(DOCS / "data.md")[f"{database}.db"], "name", "kind", "one row for each")
    assert sorted((quoted(row[0])[0], row[1]) for row in rows) == sorted(there)


# -- concepts -----------------------------------------------------------------------------------------------


def test_canonical_forms_are_as_documented():
    rows = rows_under(read(DOCS / "concepts.md"), "rule", "example", "becomes")
    rules = UrlRules(tracking=DEFAULT_TRACKING)

    assert len(rows) >= 10
    for _, example, becomes in rows:
        assert rules.canonical(parse_url(quoted(example)[0])) == quoted(becomes)[0]


def test_the_states_of_a_url_are_as_documented():
    rows = rows_under(read(DOCS / "concepts.md"), "state", "meaning")

    assert [quoted(row[0])[0] for row in rows] == [state.value for state in UrlState]


def test_the_reasons_for_dropping_a_url_are_documented():
    rows = rows_under(read(DOCS / "concepts.md"), "dropped because of", "meaning")
    told = {quoted(row[0])[0] for row in rows}
    # Duplicates are only counted: that never becomes the reason of a URL's state.
    reasons = {reason.value for reason in DropReason} - {DropReason.DUPLICATE}

    assert reasons <= told
    assert told - reasons == {"replaced", "erased", "purged: ..."}


# -- spiders ------------------------------------------------------------------------------------------------


def test_every_public_name_is_documented():
    rows = rows_under(read(DOCS / "spiders.md"), "name", "what it is")

    assert sorted(quoted(row[0])[0] for row in rows) == sorted(gossamer.__all__)


def test_attributes_of_a_spider_are_as_documented():
    rows = rows_under(read(DOCS / "spiders.md"), "attribute", "default", "meaning")

    there = [name for name in inspect.get_annotations(Spider) if not name.startswith("_")]
    assert sorted(quoted(row[0])[0] for row in rows) == sorted(there)


def test_everything_a_page_can_do_is_documented():
    section = sections_of(DOCS / "spiders.md")["The page"]
    told = {
        name.removeprefix("page.").partition("(")[0] for row in rows_under(section, "", "") for name in quoted(row[0])
    }

    there = {name for name in dir(Page) if not name.startswith("_")}
    assert told == there - {"spider"}  # the spider is there for its methods to be found, not for users

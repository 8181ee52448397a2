"""Which file holds which verb, which verbs are made of operations, and the list of `gossamer --help`. Only the file of
the verb in use is imported, and only that verb is built, so that the command starts quickly."""

from __future__ import annotations

import sys
from copy import copy
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from typer import Typer
from typer.core import TyperCommand, TyperGroup

# Verbs that are made of operations alone (project/operation.py): the module below project/ that has them, and the help
# of their group; "" for a verb that is one command.
NOUNS = {
    "board": ("boards.boards", "Boards: spiders and sites, one row each, with their last runs."),
    "find": ("search", ""),
    "note": ("jobs.notes", "Notes on jobs, sites, incidents and charts: add, list, remove."),
    "incident": ("alerts.incidents", "Incidents: list, show with all that is known, close."),
    "override": ("overrides", "Settings that are set by hand while workers run: set, list, remove."),
}
HOMES = {
    **dict.fromkeys(NOUNS, "operations"),
    "crawl": "crawl",
    "demo": "demo",
    "worker": "worker",
    "workers": "workers",
    "scaling": "workers",
    "up": "worker",
    "spool": "spool",
    "scheduler": "worker",
    "serve": "serve",
    "mcp": "mcp",
    "keys": "serve",
    "audit": "serve",
    "callbacks": "callbacks",
    "alerts": "alerts",
    "schedule": "schedule_add",  # and with it schedule.py
    "job": "job_runs",  # and with it jobs.py
    "status": "jobs",
    "top": "top",
    "why": "why",
    "attempts": "why",
    "site": "sites",
    "dead": "dead",
    "sessions": "sessions",
    "routes": "routes",
    "proxies": "routes",
    "export": "export",
    "sql": "sql",
    "output": "outputs",
    "forget": "forget",
    "history": "records",
    "diff": "records",
    "schemas": "records",
    "quality": "records",
    "reparse": "reparse",
    "heal": "heal",
    "warc": "export",
    "prune": "doctor",
    "disk": "disk",
    "migrate": "doctor",
    "move": "move",
    "backup": "backup",
    "restore": "backup",
    "new": "project",
    "spiders": "project",
    "settings": "project",
    "doctor": "doctor",
    "version": "project",
    "check": "check",
    "save": "spider_cases",
    "test": "spider_cases",
    "fetch": "fetch",
    "shell": "fetch",
}


# The list of `gossamer --help`: at most ten words per verb, in the order in which a newcomer needs them.
GROUPS = {
    "Crawl": {
        "demo": "Crawl the built-in shop; needs no internet.",
        "crawl": "Crawl a spider, a recipe or a URL.",
        "up": "Run scheduler, workers and server here, until Ctrl-C.",
        "schedule": "Schedules: add, list, pause, run now.",
        "worker": "Work on every running job of the project.",
        "scheduler": "Start the runs of schedules when they are due.",
    },
    "Look": {
        "status": "Where every job stands.",
        "board": "Spiders and sites, one row each, with their last runs.",
        "find": "Anything of the project by name, address or key.",
        "top": "Current activity of the project, live.",
        "why": "The whole story of one URL.",
        "alerts": "Alerts: list, show, silence, test.",
        "attempts": "Every attempt: its route and its outcome.",
        "site": "The queue by site; slow down or rest a site.",
        "dead": "Pages that were given up: list, show, replay.",
        "quality": "The share of faultless items, per spider and day.",
        "job": "The jobs of the project: list, pause, cancel.",
        "workers": "The processes that work on the project, on all machines.",
        "scaling": "What can be fetched now, and the workers it takes.",
        "routes": "The routes learned for each site; budgets.",
        "proxies": "The proxies of proxy pools, and whether they work.",
        "sessions": "Named visitors, their cookies and logins.",
        "note": "Notes on jobs, sites, incidents and charts.",
        "incident": "What is wrong, and what to do: list, show, close.",
        "override": "Settings set by hand while workers run.",
    },
    "Data": {
        "export": "Write the records to a file: JSON Lines, CSV, Parquet.",
        "sql": "Query the records: every item type is a table.",
        "output": "Outputs, which follow the records: list, pause, rewind.",
        "history": "Every version of a record.",
        "forget": "Erase records everywhere: history, raw pages, outputs.",
        "diff": "What changed between two runs.",
        "schemas": "The schemas of items over time.",
        "reparse": "Parse archived pages again, without a request.",
        "warc": "Raw pages as WARC files.",
    },
    "Operate": {
        "doctor": "Check this machine and this project.",
        "serve": "Serve the HTTP API.",
        "mcp": "Let an agent use the project (MCP).",
        "keys": "The keys of the HTTP API: add, list, revoke.",
        "audit": "Who changed what over HTTP.",
        "callbacks": "Callbacks of jobs: list, show, replay.",
        "spool": "Results that wait on disks: list, drain, forget.",
        "prune": "Delete old attempts, raw pages and jobs.",
        "disk": "What each store takes, and when its disk is full.",
        "backup": "Write the whole project into one file.",
        "restore": "Load a backup into an empty project.",
        "move": "Move the project to other stores, laptop to fleet.",
        "migrate": "Bring the record store's tables up to date.",
    },
    "Develop": {
        "new": "Create a project with a spider, or draft a recipe.",
        "check": "Try a spider or a recipe on a page.",
        "heal": "Learn a recipe's rules again after its site changed.",
        "save": "Save a page with a spider's results as a test.",
        "test": "Run the saved pages: are the results still the same?",
        "shell": "Try selectors on a page at a Python prompt.",
        "fetch": "Fetch one page and print it.",
        "spiders": "List the project's spiders and recipes.",
        "settings": "Every setting, its value and its origin.",
        "version": "Print the version.",
    },
}


class ReaderLeft(Exception):
    """The reader of our output closed the pipe: `gossamer status | head`."""


class VerbList(TyperGroup):
    """The verbs in the order of GROUPS. Verbs whose file is not imported are only listed."""

    def __init__(self, **options: Any) -> None:  # Any: they differ from one version of typer to the next
        super().__init__(**options)
        loaded = dict(self.commands)
        self.commands.clear()
        for group, verbs in GROUPS.items():
            for verb, words in verbs.items():
                command: Any = loaded.get(verb) or TyperCommand(verb)
                command.rich_help_panel, command.short_help = group, words
                self.commands[verb] = command

    def invoke(self, ctx: Any) -> Any:  # Any: its class depends on the version of typer
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # typer would exit with code 1
            raise ReaderLeft from None


def load_help() -> None:
    """Import what typer prints help with, but not the parts of rich that it uses for Markdown and tracebacks alone: our
    help has neither, and with pygments and markdown-it they cost more than all the rest of `--help`."""
    unused = [name for name in ("rich.markdown", "rich.traceback") if name not in sys.modules]
    for name in unused:
        stand_in = ModuleType(name)
        stand_in.__getattr__ = lambda wanted: type(wanted, (), {})  # type: ignore[method-assign]
        sys.modules[name] = stand_in
    try:
        import_module("typer.rich_utils")
    finally:
        for name in unused:
            del sys.modules[name]


def register(arguments: list[str]) -> None:
    """Import the file of the verb on the command line, if there is one."""
    named = next((word for word in arguments if not word.startswith("-")), None)
    if named in HOMES:
        load_verb(named)


@cache
def load_verb(verb: str) -> None:
    """Import the file that holds the verb, or make the verb of its operations."""
    home = import_module(f".{HOMES[verb]}", __package__)
    if verb in NOUNS:
        module, help = NOUNS[verb]
        home.add_operations(verb, help, import_module(f"..project.{module}", __package__).OPERATIONS)


def only(app: Typer, words: list[str]) -> Typer:
    """The app with just the verb that the first word names; the whole app if there is no such verb."""
    commands = [command for command in app.registered_commands if command.name in words[:1]]
    groups = [copy(group) for group in app.registered_groups if group.name in words[:1]]
    if not commands and not groups:
        return app
    for group in groups:
        if group.typer_instance is not None:
            group.typer_instance = only(group.typer_instance, words[1:])
    less = copy(app)
    less.registered_commands, less.registered_groups = commands, groups
    return less

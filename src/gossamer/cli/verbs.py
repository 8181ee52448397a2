"""Which file holds which verb, and the list that `gossamer --help` shows. Only the file of the verb in use is imported,
and only that verb is built: starting quickly is a feature."""

from __future__ import annotations

from copy import copy
from importlib import import_module
from typing import Any

from typer import Typer
from typer.core import TyperCommand, TyperGroup

HOMES = {
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
    "job": "jobs",
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
    "history": "records",
    "diff": "records",
    "schemas": "records",
    "quality": "records",
    "reparse": "reparse",
    "warc": "export",
    "prune": "doctor",
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


# The list of `gossamer --help`: at most ten words for each verb, in the order in which a person meets them.
GROUPS = {
    "Crawl": {
        "demo": "Crawl the built-in shop; needs no internet.",
        "crawl": "Crawl a spider, a recipe or a URL.",
        "up": "Run scheduler, workers and server here, until Ctrl-C.",
        "schedule": "What is scraped, and when.",
        "worker": "Work on every running job of the project.",
        "scheduler": "Begin the runs of schedules when they are due.",
    },
    "Look": {
        "status": "Where every job stands.",
        "top": "What the project does just now, live.",
        "why": "The whole story of one URL.",
        "alerts": "What is amiss: list, explain, silence, test.",
        "attempts": "What was tried, by which route, with what outcome.",
        "site": "The queue by site; slow one down, let it rest.",
        "dead": "Pages that were given up: why, and try again.",
        "quality": "The share of faultless items, per spider and day.",
        "job": "The runs of the project: list, pause, cancel.",
        "workers": "The processes that work on the project, on all machines.",
        "scaling": "What can be fetched now; how many workers that takes.",
        "routes": "The ways to each site that were learned; budgets.",
        "proxies": "The exits of proxy pools, and whether they work.",
        "sessions": "Visitors with a name, their cookies and logins.",
    },
    "Data": {
        "export": "Write the records to a file: JSON Lines, CSV, Parquet.",
        "history": "Every version of a record.",
        "diff": "What changed between two runs.",
        "schemas": "The shapes that items had over time.",
        "reparse": "Parse archived pages again, without a request.",
        "warc": "Raw pages as WARC files.",
    },
    "Operate": {
        "doctor": "Check this machine and this project.",
        "serve": "Open the project to programs over HTTP.",
        "mcp": "Let an agent use the project (MCP).",
        "keys": "The keys of the HTTP API: make, list, revoke.",
        "audit": "Who changed what over HTTP.",
        "callbacks": "Callbacks of jobs: list, show, send again.",
        "spool": "Results that wait on disks: list, store, give up.",
        "prune": "Forget attempts, raw pages and jobs of some age.",
        "backup": "Write the whole project into one file.",
        "restore": "Load a backup into a project that is empty.",
        "move": "Move the project to other addresses, laptop to fleet.",
        "migrate": "Bring the record store's tables up to date.",
    },
    "Develop": {
        "new": "Make a project with a spider, or draft a recipe.",
        "check": "Try a spider or a recipe on a page.",
        "save": "Keep a page and what a spider makes of it.",
        "test": "Does the spider still make that of its pages?",
        "shell": "Try selectors on a page at a Python prompt.",
        "fetch": "Fetch one page and print it.",
        "spiders": "List the project's spiders and recipes.",
        "settings": "Every setting, its value and where that came from.",
        "version": "Print the version.",
    },
}


class ReaderLeft(Exception):
    """Nobody reads our output any more: `gossamer status | head`."""


class VerbList(TyperGroup):
    """The verbs in the order of GROUPS. Those whose home is not imported are there for the list alone."""

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
        except BrokenPipeError:  # typer would end with exit code 1
            raise ReaderLeft from None


def register(arguments: list[str]) -> None:
    """Import the home of the verb that the command line names, if it names one."""
    named = next((word for word in arguments if not word.startswith("-")), None)
    if named in HOMES:
        import_module(f".{HOMES[named]}", __package__)


def only(app: Typer, words: list[str]) -> Typer:
    """The app with the verb that the first word names and no other; the app itself when there is no such verb."""
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

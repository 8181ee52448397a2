"""`gossamer sessions`: named visitors, their cookies and logins."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..project.sites.sessions import SessionView, clear_sessions, list_sessions, session_detail
from ..units import distance, many, visible
from .app import allow_local, app, ask, ask_at, err, fail, out, run_async, settings_with
from .layout import Column, answer_program, heading, number, print_json, print_table
from .options import JsonOption, YesOption
from .progress import Warnings

sessions_app = typer.Typer(help="Named visitors, their cookies and logins: list, show, log in, clear.")
app.add_typer(sessions_app, name="sessions")

WANTED = "SPIDER/SESSION from `gossamer sessions list`; a spider alone means all its sessions."


@sessions_app.callback(invoke_without_command=True)
def sessions_verb(context: typer.Context) -> None:
    """Named visitors, their cookies and logins: list, show, log in, clear."""
    if context.invoked_subcommand is None:
        list_verb()


@sessions_app.command("list")
def list_verb(
    spider: Annotated[str | None, typer.Argument(help="Only the sessions of this spider.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the sessions: logged in or not, the number of logins, and failing logins."""
    sessions, now = ask_at(lambda project: list_sessions(project, spider), empty=lambda settings: [])
    answer_program(sessions, as_json)
    if not sessions:
        out.print('There is no session. A spider with `session = "member"` has one.', markup=False)
        return
    print_table(
        (Column("SESSION", "bold"), Column("STATE"), Column("LOGINS", right=True), Column("COOKIES", right=True),
         Column("USED"), Column("TROUBLE", "red", fold=True, spare=1)),
        [
            (one.name, _state(one), number(one.logins), number(one.cookies),
             distance(one.used_at, now) if out.is_terminal else one.used_at, one.error)
            for one in sessions
        ],
    )  # fmt: skip


def _state(one: SessionView) -> str:
    if one.logging_in is not None:
        return "logging in"
    if one.failures:
        return f"{many(one.failures, 'login')} failed"
    return "logged in" if one.logged_in else "logged out" if one.logins else "no login"


@sessions_app.command("show")
def show_verb(
    wanted: Annotated[str, typer.Argument(metavar="SESSION", help=WANTED)], as_json: JsonOption = False
) -> None:
    """Show one session: its login, the names of its cookies and headers. Values are never shown."""
    found = ask(lambda project: session_detail(project, wanted))
    answer_program(found, as_json)
    heading(f"{visible(found.name)}: {_state(found)}")
    facts = [
        ("logged in at", found.logged_in_at), ("logins", number(found.logins)), ("used at", found.used_at),
        ("generation", number(found.generation)), ("trouble", found.error), ("next login after", found.retry_at),
        ("headers", ", ".join(found.headers)), ("for", ", ".join(found.header_sites)),
    ]  # fmt: skip
    print_table((Column(""), Column("", fold=True)), [(name, str(value)) for name, value in facts if value], indent=2)
    if found.cookie_list:
        out.print()
        print_table(
            (Column("COOKIE", "bold"), Column("DOMAIN"), Column("PATH"), Column("EXPIRES"), Column("FLAGS", fold=True)),
            [
                (one.name or "(no name)", one.domain, one.path, one.expires or "with the session", ", ".join(one.flags))
                for one in found.cookie_list
            ],
            indent=2,
        )


@sessions_app.command("clear")
def clear_verb(
    wanted: Annotated[str | None, typer.Argument(metavar="[SESSION]", help=WANTED)] = None,
    every: Annotated[bool, typer.Option("--all", help="Every session of the project.")] = False,
    yes: YesOption = False,
) -> None:
    """Forget sessions with all their cookies. The next page of each starts as a new visitor, and logs in."""
    if (wanted is None) != every:
        fail("Name a session or a spider, or use --all.", 2)
    question = f"Forget {'every session' if wanted is None else visible(wanted)} with all cookies?"
    if not yes and sys.stdin.isatty() and not typer.confirm(question, err=True):
        err.print("Nothing was changed.")
        raise typer.Exit(1)

    gone = ask(lambda project: clear_sessions(project, wanted))
    out.print(visible(f"{many(len(gone), 'session')} cleared."), markup=False)


@sessions_app.command("login")
def login_verb(
    spider: Annotated[str, typer.Argument(help="A spider with login(self, session).")],
    session: Annotated[str | None, typer.Option("--session", help="One of its sessions (default: all).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Log in the sessions of a spider now, even if they are logged in. Exit code 1 when a login fails."""
    from ..project.sites.session_login import log_in  # imports the fetching code
    from ..project.spiders.spiders import crawl_target

    settings = settings_with()
    target = crawl_target(settings, spider, Path.cwd())
    read = allow_local(settings, target.urls, {})
    made = run_async(log_in(read, target.spider, session, Warnings(err)))
    if as_json:
        print_json(made)
    for one in made:
        words = f"{one.name} is logged in." if one.logged_in else f"{one.name} cannot log in: {one.error}"
        if not as_json:
            (out if one.logged_in else err).print(Text(visible(words)))
    if not all(one.logged_in for one in made):
        raise typer.Exit(1)

"""`gossamer callbacks`: list, show and resend callbacks, and show their secrets."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from ..errors import Misconfigured
from ..project.access.callbacks import (
    MESSAGES,
    CallbackState,
    CallbackView,
    SecretView,
    list_callbacks,
    replay_callback,
    rotate_secret,
    secret_view,
    show_callback,
)
from ..project.access.keys import LOCAL, list_keys
from ..project.alerts.channels import OWNER as ALERTS_OWNER
from ..project.open import Project
from .app import app, ask, err, open_crawled, out, run_async, settings_with
from .layout import Column, answer_program, number, print_json, print_table
from .options import JsonOption

callbacks_app = typer.Typer(help="Callbacks of jobs: list, show, replay.", no_args_is_help=True)
app.add_typer(callbacks_app, name="callbacks")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="As `gossamer callbacks list` shows it.")]


@callbacks_app.command("list")
def list_verb(
    state: Annotated[CallbackState | None, typer.Option(help="Only callbacks in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 100,
    as_json: JsonOption = False,
) -> None:
    """List callbacks: open ones first, then the newest."""
    found = ask(lambda project: list_callbacks(project, state=state, limit=limit), empty=lambda settings: [])
    answer_program(found, as_json)
    if not found:
        out.print("No callbacks. A job started over HTTP with a callback_url has one.")
        return
    print_table(
        (Column("ID", "bold"), Column("STATE"), Column("JOB"), Column("URL", fold=True), Column("TRIES", right=True),
         Column("NEXT"), Column("LAST ANSWER", fold=True)),
        [(one.id, one.state.value, one.job, one.url, number(one.tries), one.next_at, _answer(one)) for one in found],
    )  # fmt: skip


def _answer(one: CallbackView) -> str | None:
    return one.message or (str(one.status) if one.status is not None else None)


@callbacks_app.command("show")
def show_verb(id: IdArgument) -> None:
    """Show a callback and its payload, as JSON."""
    print_json(ask(lambda project: show_callback(project, id)))


@callbacks_app.command("replay")
def replay_verb(id: IdArgument, as_json: JsonOption = False) -> None:
    """Resend a callback, with the same id. A running server delivers it."""
    found = ask(lambda project: replay_callback(project, id))
    answer_program(found, as_json)
    by = "the next tick of Celery" if found.url.startswith(MESSAGES) else "a running `gossamer serve` or `gossamer up`"
    out.print(Text(f"{found.id} will be sent to {found.url} by {by}."))


@callbacks_app.command("secret")
def secret_verb(
    key: Annotated[str | None, typer.Option(help="Name or id of the key (default: the one-time token).")] = None,
    alerts: Annotated[bool, typer.Option("--alerts", help="The secret of alert webhooks instead of a key's.")] = False,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Make a new secret; the old one stays valid for a day.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the secret that signs the callbacks of a key. Receivers verify signatures with it."""
    settings = settings_with()

    async def find() -> SecretView:
        async with open_crawled(settings) as project:
            owner = ALERTS_OWNER if alerts else await _owner(project, key)
            return await (rotate_secret(project, owner) if rotate else secret_view(project, owner))

    found = run_async(find())
    answer_program(found, as_json)
    out.print(found.secret, markup=False)
    if found.before is not None:
        err.print(Text(f"The previous secret stays valid until {found.before_until}.", style="dim"))


async def _owner(project: Project, key: str | None) -> str:
    """The id of the key. Raises Misconfigured."""
    if key is None:
        return LOCAL
    for one in await list_keys(project):
        if key in (one.id, one.name) and one.state == "active":
            return one.id
    raise Misconfigured(f"There is no active key {key!r}. `gossamer keys list` lists them.")

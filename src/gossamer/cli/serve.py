"""The HTTP API from the command line: `gossamer serve` runs the server, `gossamer keys` manages its keys, `gossamer
audit` lists who changed what."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.text import Text

from ..errors import Misconfigured
from ..project.access.keys import NewKey, add_key, audit_lines, list_keys, revoke_key
from ..project.open import open_project
from ..units import many, parse_duration, parse_rate, visible
from .app import app, ask, err, out, run_async, settings_with
from .layout import Column, answer_program, print_table
from .options import JsonLogsOption, JsonOption, QuietOption
from .worker import Voice

if TYPE_CHECKING:
    from ..server.run import Listening

keys_app = typer.Typer(help="The keys of the HTTP API: add, list, revoke.", no_args_is_help=True)
app.add_typer(keys_app, name="keys")


class ServerVoice(Voice):
    role = "server"


@app.command("serve")
def serve_verb(
    host: Annotated[
        str | None, typer.Option(help="The address to listen on; any other than 127.0.0.1 requires a key.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The port; 0 picks a free one.")] = None,
    quiet: QuietOption = False,
    json_logs: JsonLogsOption = False,
) -> None:
    """Serve the HTTP API until Ctrl-C. Workers do the fetching: see `gossamer up`."""
    from ..project.workers import service
    from ..server.run import serve

    pulse = service.inherited_pulse()
    supervised = pulse is not None
    settings = settings_with(**{"server.host": host, "server.port": port})
    voice = ServerVoice(quiet=quiet, json_logs=json_logs, supervised=supervised)

    def welcome(at: Listening) -> None:
        voice.welcome(f"Listening on {at.address} for", "Ctrl-C ends it", at.project)
        if supervised and not quiet:
            err.print(Text(f"The server listens on {at.address}"))
        if at.token is not None and json_logs:
            told = {"level": "info", "event": "OneTimeToken", "address": at.address, "token": at.token}
            print(msgspec.json.encode(told).decode(), file=sys.stderr, flush=True)
        elif at.token is not None:
            err.print(Text.assemble("There is no key yet. Until this server ends, use: ", (at.token, "bold")))
        if not json_logs and not quiet:
            entry = f"{at.address}/ui/sign-in#{at.token}" if at.token is not None else f"{at.address}/"
            err.print(Text(f"The dashboard: {entry}"))

    with voice:
        run_async(serve(settings, welcome=welcome, tell=voice.tell, pulse=pulse))


# -- keys ----------------------------------------------------------------------------------------------------------


@keys_app.command("add")
def add_verb(
    name: Annotated[str, typer.Argument(help="The key's name: who or what will use it.")],
    scopes: Annotated[str, typer.Option(help="What it may do: scrape, jobs, records, metrics, admin.")] = (
        "scrape,jobs,records"
    ),
    role: Annotated[
        str | None, typer.Option(help="Instead of scopes: viewer (sees all, changes nothing), operator, admin.")
    ] = None,
    expires: Annotated[str | None, typer.Option(metavar="TIME", help="How long it is valid: 90d, 12h.")] = None,
    rate: Annotated[str | None, typer.Option(help="Requests: 5/s, 30/m (default: server.rate).")] = None,
    open_jobs: Annotated[
        int | None, typer.Option(min=1, help="Open jobs at a time (default: server.open_jobs).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a key. It is shown once and stored nowhere."""
    settings = settings_with()
    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]

    per_second = _per_second(rate)

    async def make() -> NewKey:
        async with open_project(settings, to_look=True) as project:
            return await add_key(
                project, name, wanted, expires=_span(expires), rate=per_second, open_jobs=open_jobs, role=role or ""
            )

    key = run_async(make())
    answer_program(key, as_json)
    out.print(key.key, markup=False)
    err.print(
        Text(
            f"Key {key.id} for {visible(key.name)}: {key.role or ', '.join(key.scopes)}. It is not shown again.",
            style="dim",
        )
    )


def _span(text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise Misconfigured(f"--expires: {error}.") from error


def _per_second(text: str | None) -> float | None:
    """`30/m` is 0.5, and so is `0.5`."""
    if text is None:
        return None
    try:
        interval = parse_rate(text if "/" in text else f"{text}/s").interval
    except ValueError as error:
        raise Misconfigured(f"--rate: {error}.") from error
    assert interval is not None
    return 1 / interval.total_seconds()


@keys_app.command("list")
def list_verb(as_json: JsonOption = False) -> None:
    """List the keys, without their secrets."""
    found = ask(list_keys, empty=lambda settings: [])
    answer_program(found, as_json)
    if not found:
        out.print("No keys. Create one with `gossamer keys add NAME`.")
        return
    print_table(
        (Column("ID", "bold"), Column("NAME"), Column("OPENS"), Column("STATE"), Column("CREATED", spare=True),
         Column("EXPIRES"), Column("LAST USED")),
        [
            (
                key.id, key.name, key.role or ", ".join(key.scopes), key.state, key.created_at, key.expires_at,
                key.used_at,
            )
            for key in found
        ],
    )  # fmt: skip


@keys_app.command("revoke")
def revoke_verb(
    key: Annotated[str, typer.Argument(help="Its id, or its name.")],
    as_json: JsonOption = False,
) -> None:
    """Revoke a key, effective at once."""
    done = ask(lambda project: revoke_key(project, key))
    answer_program(done, as_json)
    out.print(f"Key {done.id} ({visible(done.name)}) is revoked.", markup=False)


# -- audit ---------------------------------------------------------------------------------------------------------


@app.command("audit")
def audit_verb(
    key: Annotated[str | None, typer.Option(help="Only changes by this key: its id.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many lines, newest first.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List who changed what over HTTP, newest first."""
    found = ask(lambda project: audit_lines(project, key=key, limit=limit), empty=lambda settings: [])
    answer_program(found, as_json)
    if not found:
        out.print("Nothing was changed over HTTP.")
        return
    print_table(
        (Column("AT"), Column("KEY"), Column("NAME"), Column("ACTION", fold=True), Column("TARGET", fold=True),
         Column("STATUS", right=True), Column("FROM", spare=True)),
        [(line.at, line.key, line.name, line.action, line.target, line.status, line.address) for line in found],
    )  # fmt: skip
    if len(found) == limit:
        err.print(Text(f"The newest {many(limit, 'line')}; --limit shows more.", style="dim"))

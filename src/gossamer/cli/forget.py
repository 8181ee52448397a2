"""`gossamer forget`: erases records everywhere, on request of the person that they are about."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from msgspec.structs import replace
from rich.text import Text

from ..errors import NotThere
from ..project.access.keys import OWNER, note_write
from ..project.open import Project
from ..project.records.erasure import carry_out
from ..project.records.forget import (
    ForgetAsk,
    ForgetId,
    ForgetView,
    NoForgetFilter,
    in_words,
    list_orders,
    place_order,
    show_order,
)
from ..units import many, visible
from .app import app, ask, err, out
from .layout import Column, print_json, print_table
from .options import JsonOption

COLUMNS = ("id", "state", "records", "pages", "copies", "at", "by")


@app.command("forget")
def forget_verb(
    record: Annotated[str | None, typer.Option("--record", metavar="KEY", help="The record with this key.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="The records of this page, and the page itself.")] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="CONDITION", help="Records that fit: 'email == \"jane@x.org\"'.")
    ] = None,
    type: Annotated[str | None, typer.Option("--type", help="Only records of this type.")] = None,
    site: Annotated[str | None, typer.Option("--site", help="Only records of this site.")] = None,
    ever: Annotated[
        bool, typer.Option("--ever", help="With --where: also records that fitted in an earlier version.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count them, and change nothing.")] = False,
    for_good: Annotated[
        bool, typer.Option("--for-good", help="Later crawls do not store these records and pages again.")
    ] = False,
    no_scan: Annotated[
        bool, typer.Option("--no-scan", help="Do not read the whole archive for copies that no record names.")
    ] = False,
    rewrite: Annotated[
        bool, typer.Option("--rewrite", help="Write the tables of PostgreSQL anew; others wait meanwhile.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Erase records everywhere: their history, raw pages, attempts, the queue, callbacks and every output. Without
    options, list the orders so far, and go on with those that were interrupted."""
    if not (record or url or where):
        _list(as_json)
        return
    wanted = ForgetAsk(
        record=record, url=url, where=where, type=type, site=site, ever=ever, for_good=for_good, scan=not no_scan,
        rewrite=rewrite,
    )  # fmt: skip
    meant = ask(lambda project: place_order(project, OWNER, replace(wanted, dry_run=True)))
    if dry_run:
        _print(meant, as_json)
        return
    if not meant.records and not meant.pages:
        raise NotThere("No record matches.")
    if not yes and sys.stdin.isatty():
        _print_meant(meant)
        if not typer.confirm("Erase all of it, everywhere?", err=True):
            err.print("Nothing was changed.")
            raise typer.Exit(1)
    _print(ask(lambda project: _erase(project, wanted)), as_json)


async def _erase(project: Project, wanted: ForgetAsk) -> ForgetView:
    placed = await place_order(project, OWNER, wanted)
    await note_write(project, OWNER, "gossamer forget", target=placed.id, status=200)
    await carry_out(project, _tell)
    return await show_order(project, OWNER, ForgetId(id=placed.id))


async def _go_on(project: Project) -> list[ForgetView]:
    await carry_out(project, _tell)
    return await list_orders(project, OWNER, NoForgetFilter())


def _tell(words: str) -> None:
    if sys.stderr.isatty():
        err.print(Text(words, style="dim"))


def _list(as_json: bool) -> None:
    orders = ask(_go_on, empty=lambda settings: [])
    if as_json:
        print_json(orders)
    elif not orders:
        out.print("Nothing was erased so far. `gossamer forget --record KEY`, `--url URL` or `--where ...` erases.")
    else:
        rows = [[getattr(order, name) for name in COLUMNS] for order in orders]
        print_table([Column(name.upper(), fold=name == "by") for name in COLUMNS], rows)


def _print_meant(meant: ForgetView) -> None:
    err.print(f"{many(meant.records, 'record')}{': ' if meant.examples else ''}{visible('; '.join(meant.examples))}")


def _print(view: ForgetView, as_json: bool) -> None:
    if as_json:
        print_json(view)
    elif view.state == "counted":
        _print_meant(view)
    elif view.state == "open":
        out.print(f"{view.id}: another process erases it. `gossamer forget` shows how far it is.")
    else:
        out.print(Text(in_words(view)))

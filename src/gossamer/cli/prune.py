"""`gossamer prune`: forget old attempts and old raw pages. Records and their history are never deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from ..errors import Misconfigured
from ..measures import parse_duration
from .app import app, out, run_async, settings_with
from .layout import many, size, visible
from .look import open_crawled


@app.command("prune")
def prune_verb(
    attempts: Annotated[
        str | None, typer.Option(help="Forget attempts and replaced visits older than this: 90d, 12h.")
    ] = None,
    pages: Annotated[str | None, typer.Option(help="Delete archived raw pages older than this: 30d.")] = None,
) -> None:
    """Make room: forget attempts and raw pages of some age. Records and their history stay."""
    settings = settings_with()
    attempts_age, pages_age = _age("--attempts", attempts), _age("--pages", pages)
    if attempts_age is None and pages_age is None:
        raise Misconfigured("Say what may go: gossamer prune --attempts 90d --pages 30d")

    async def prune() -> None:
        async with open_crawled(settings) as system:
            if attempts_age is not None:
                count = await system.records.prune(attempts_age)
                what = many(count, "attempt or visit", "attempts and visits")
                out.print(f"attempts  {what} older than {attempts} deleted", markup=False)
            if pages_age is not None:
                freed = await system.archive.prune(pages_age)
                out.print(f"pages     {size(freed)} of raw pages older than {pages} deleted", markup=False)

    run_async(prune())


def _age(option: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return parse_duration(text)
    except (ValueError, OverflowError):
        raise Misconfigured(f"{option} {visible(text)!r} is no age. Write it like 90d, 12h or 1h30m.") from None

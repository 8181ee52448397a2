"""`gossamer disk`: what each store takes, how fast it grows, and when its disk is full."""

from __future__ import annotations

from rich.text import Text

from ..clock import SystemClock
from ..project.upkeep.disk import DiskView, disks
from ..units import distance, size
from .app import app, ask, out
from .layout import Column, answer_program, print_table
from .options import JsonOption


@app.command("disk")
def disk_verb(as_json: JsonOption = False) -> None:
    """Show what each store takes, how fast it grows, and when its disk is full."""
    found: list[DiskView] = ask(disks, empty=lambda settings: [])
    answer_program(found, as_json)
    if not found:
        out.print("Nothing is stored yet.")
        return
    now = SystemClock().now()
    print_table(
        (Column("STORE", "bold"), Column("SIZE", right=True), Column("A DAY", right=True), Column("FREE", right=True),
         Column("FULL"), Column("PLACE", fold=True)),
        [
            (one.store, size(one.bytes) if one.bytes is not None else "", _growth(one),
             size(one.free) if one.free is not None else "", distance(one.full_at, now) if one.full_at else "",
             one.place)
            for one in found
        ],
    )  # fmt: skip
    if found[0].measured_at is None:
        out.print(Text("Growth is known when a scheduler has measured twice (retention.every).", "dim"))


def _growth(one: DiskView) -> str:
    if one.per_day is None:
        return ""
    return f"{'-' if one.per_day < 0 else '+'}{size(abs(round(one.per_day)))}"

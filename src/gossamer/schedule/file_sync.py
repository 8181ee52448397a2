"""How the book of schedules follows gossamer.toml. Pure: what is in both comes in, what is to be written comes out.

A table that is new or changed is entered. One that is missing is withdrawn: it rests, and what it had come to is kept
for a week. While a fleet is upgraded, schedulers with the old and the new file may lead by turns, and a schedule that
only one of them knows must not lose its history with every turn. When it is back, it goes on as after a time without a
scheduler. What was added at run time stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta

import msgspec

from ..model.schedule import Schedule, Standing

FROM_FILE = "file"
WITHDRAWN_FOR = timedelta(days=7)  # then it is forgotten


class Entry(msgspec.Struct, frozen=True):
    """What is to be written in place of `before` (None: a new one). None: it is to be forgotten."""

    before: Standing | None
    after: Standing | None


def entries_of(
    wanted: Mapping[str, Schedule], known: Mapping[str, Standing], unreadable: Collection[str], now: float
) -> list[Entry]:
    """All that is to be written for the book to follow the file. A name that cannot be read is left alone."""
    entries = []
    for name, schedule in wanted.items():
        there = known.get(name)
        if there is None:
            if name not in unreadable:
                entries.append(Entry(None, Standing(schedule=schedule, origin=FROM_FILE, created_at=now)))
        elif there.origin == FROM_FILE and (there.schedule != schedule or there.withdrawn_at is not None):
            entries.append(Entry(there, there.rewritten(schedule, FROM_FILE, now)))
    for name, there in known.items():
        if there.origin != FROM_FILE or name in wanted:
            continue
        if there.withdrawn_at is None:
            entries.append(Entry(there, msgspec.structs.replace(there, withdrawn_at=now)))
        elif now - there.withdrawn_at >= WITHDRAWN_FOR.total_seconds():
            entries.append(Entry(there, None))
    return entries


def unused(wanted: Mapping[str, Schedule], known: Mapping[str, Standing]) -> list[str]:
    """Names of tables that are not used, because schedules of that name were added at run time."""
    return [name for name in wanted if name in known and known[name].origin != FROM_FILE]

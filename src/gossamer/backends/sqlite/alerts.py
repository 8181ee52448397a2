"""Alerts in the state file. Fulfils `AlertBook` and `AlertDesk`: a step is one transaction, under the leader's term."""

from __future__ import annotations

import sqlite3

import msgspec

from ...clock import Clock
from ...model.alert import CHANGES_KEPT, NOTICES_KEPT, AlertChange, AlertMemory, Notice, Silence, Standing
from ...model.schedule import Term
from ...schedule.contract import AlertStep
from .connection import Database
from .schedules import demand_lead

STANDINGS = "SELECT standing FROM alerts ORDER BY alert, subject"
NOTICES = "SELECT notice FROM alert_notices "
SILENCES = "SELECT silence FROM silences "
_OPEN = NOTICES + "WHERE ended_at IS NULL ORDER BY made_at, id LIMIT ?"
_ENDED = NOTICES + "WHERE ended_at IS NOT NULL ORDER BY ended_at DESC, id DESC LIMIT ?"
_TOO_OLD = (
    "DELETE FROM alert_notices WHERE ended_at <= "
    "(SELECT ended_at FROM alert_notices WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT 1 OFFSET ?)"
)


class SqliteAlerts:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def standings(self) -> list[Standing]:
        rows = await self._database.read(lambda c: c.execute(STANDINGS).fetchall())
        return [read_standing(text) for (text,) in rows]

    async def history(self, limit: int, alert: str | None = None) -> list[AlertChange]:
        sql = "SELECT change FROM alert_changes WHERE ?1 IS NULL OR alert = ?1 ORDER BY number DESC LIMIT ?2"
        rows = await self._database.read(lambda c: c.execute(sql, (alert, limit)).fetchall())
        return [msgspec.json.decode(text, type=AlertChange) for (text,) in rows]

    async def notices(self, limit: int) -> list[Notice]:
        def read(connection: sqlite3.Connection) -> list[tuple[str]]:
            return (connection.execute(_OPEN, (limit,)).fetchall() + connection.execute(_ENDED, (limit,)).fetchall())[
                :limit
            ]

        return [read_notice(text) for (text,) in await self._database.read(read)]

    async def silences(self) -> list[Silence]:
        sql, now = SILENCES + "WHERE until > ? ORDER BY until, id", self._clock.now()
        rows = await self._database.read(lambda c: c.execute(sql, (now,)).fetchall())
        return [read_silence(text) for (text,) in rows]

    async def silence(self, silence: Silence) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM silences WHERE until <= ?", (self._clock.now(),))
            write_silence(connection, silence)

        await self._database.write(write)

    async def unsilence(self, id: str) -> bool:
        sql = "DELETE FROM silences WHERE id = ?"
        return bool(await self._database.write(lambda c: c.execute(sql, (id,)).rowcount))

    # -- the leader's side -------------------------------------------------------------------------------------

    async def memory(self) -> AlertMemory:
        row = await self._database.read(lambda c: c.execute("SELECT memory FROM alert_memory").fetchone())
        return msgspec.json.decode(row[0], type=AlertMemory) if row else AlertMemory()

    async def settle(self, term: Term, step: AlertStep) -> None:
        def write(connection: sqlite3.Connection) -> None:
            demand_lead(connection, term, self._clock.now())
            for standing in step.standings:
                write_standing(connection, standing)
            connection.executemany("DELETE FROM alerts WHERE alert = ? AND subject = ?", step.forgotten)
            for notice in step.notices:
                enter_notice(connection, notice)
            for change in step.changes:
                sql = "INSERT INTO alert_changes (alert, change) VALUES (?, ?)"
                number = connection.execute(sql, (change.alert, _text(change))).lastrowid or 0
                connection.execute("DELETE FROM alert_changes WHERE number <= ?", (number - CHANGES_KEPT,))
            if step.memory is not None:
                connection.execute("INSERT OR REPLACE INTO alert_memory VALUES (1, ?)", (_text(step.memory),))

        await self._database.write(write)

    async def due(self, limit: int) -> list[Notice]:
        rows = await self._database.read(lambda c: c.execute(_OPEN, (limit,)).fetchall())
        return [read_notice(text) for (text,) in rows]

    async def note(self, term: Term, notice: Notice) -> None:
        def write(connection: sqlite3.Connection) -> None:
            demand_lead(connection, term, self._clock.now())
            connection.execute("INSERT OR REPLACE INTO alert_notices VALUES (?, ?, ?, ?)", _notice_row(notice))
            connection.execute(_TOO_OLD, (NOTICES_KEPT,))

        await self._database.write(write)


def read_standing(text: str) -> Standing:
    return msgspec.json.decode(text, type=Standing)


def read_notice(text: str) -> Notice:
    return msgspec.json.decode(text, type=Notice)


def read_silence(text: str) -> Silence:
    return msgspec.json.decode(text, type=Silence)


def write_standing(connection: sqlite3.Connection, standing: Standing) -> None:
    connection.execute("INSERT OR REPLACE INTO alerts VALUES (?, ?, ?)", (*standing.key, _text(standing)))


def enter_notice(connection: sqlite3.Connection, notice: Notice) -> None:
    """Does nothing if its id is known."""
    connection.execute("INSERT OR IGNORE INTO alert_notices VALUES (?, ?, ?, ?)", _notice_row(notice))


def write_silence(connection: sqlite3.Connection, silence: Silence) -> None:
    row = (silence.id, silence.until, _text(silence))
    connection.execute("INSERT OR REPLACE INTO silences VALUES (?, ?, ?)", row)


def _notice_row(notice: Notice) -> tuple[str, float, float | None, str]:
    return notice.id, notice.made_at, notice.ended_at, _text(notice)


def _text(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()

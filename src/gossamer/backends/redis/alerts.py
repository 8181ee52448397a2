"""Alerts on Redis. Fulfils `AlertBook` and `AlertDesk`. lua/settle_alerts.lua writes, under the leader's term."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ...errors import LeaseLost
from ...model.alert import CHANGES_KEPT, NOTICES_KEPT, AlertChange, AlertMemory, Notice, Silence, Standing
from ...model.schedule import Term
from ...schedule.contract import AlertStep
from .connection import Server
from .keys import Keyspace

ALERT_KEYS = ("alerts", "alert-notices", "alert-notices-open", "alert-notices-ended", "alert-changes", "alert-memory")
BATCH = 1000  # lines of the history in memory while searching for those of one alert
SEPARATOR = "\0"  # between an alert and its subject


class RedisAlerts:
    def __init__(self, server: Server, keys: Keyspace) -> None:
        self._server = server
        self._keys = tuple(keys.book(name) for name in ALERT_KEYS)
        self._standings, self._notices, self._open, self._ended, self._changes, self._memory = self._keys
        self._leader, self._silences = keys.book("leader"), keys.book("silences")

    async def standings(self) -> list[Standing]:
        found = await self._server.fields(self._standings)
        return sorted((msgspec.json.decode(text, type=Standing) for text in found.values()), key=lambda one: one.key)

    async def history(self, limit: int, alert: str | None = None) -> list[AlertChange]:
        found: list[AlertChange] = []
        for start in range(0, CHANGES_KEPT, BATCH):
            texts = await self._server.call("LRANGE", self._changes, start, start + BATCH - 1)
            changes = [msgspec.json.decode(text, type=AlertChange) for text in texts]
            found += [change for change in changes if alert in (None, change.alert)]
            if len(found) >= limit or len(texts) < BATCH:
                break
        return found[:limit]

    async def notices(self, limit: int) -> list[Notice]:
        ended = await self._server.call("ZREVRANGE", self._ended, 0, limit - 1)
        return [*await self.due(limit), *await self._some(ended)][:limit]

    async def silences(self) -> list[Silence]:
        now = await self._server.time()
        return [one for one in await self.all_silences() if one.until > now]

    async def all_silences(self) -> list[Silence]:
        """Includes expired ones that are not deleted yet."""
        found = [
            msgspec.json.decode(text, type=Silence) for text in (await self._server.fields(self._silences)).values()
        ]
        return sorted(found, key=lambda one: (one.until, one.id))

    async def silence(self, silence: Silence) -> None:
        now = await self._server.time()
        over = [one.id for one in await self.all_silences() if one.until <= now]
        if over:
            await self._server.call("HDEL", self._silences, *over)
        await self.keep_silence(silence)

    async def keep_silence(self, silence: Silence) -> None:
        await self._server.call("HSET", self._silences, silence.id, msgspec.json.encode(silence))

    async def unsilence(self, id: str) -> bool:
        return bool(await self._server.call("HDEL", self._silences, id))

    # -- the leader's side -------------------------------------------------------------------------------------

    async def memory(self) -> AlertMemory:
        text = await self._server.call("GET", self._memory)
        return msgspec.json.decode(text, type=AlertMemory) if text else AlertMemory()

    async def settle(self, term: Term, step: AlertStep) -> None:
        await self._write(term, step)

    async def due(self, limit: int) -> list[Notice]:
        return await self._some(await self._server.call("ZRANGE", self._open, 0, limit - 1))

    async def note(self, term: Term, notice: Notice) -> None:
        await self._write(term, AlertStep(notices=(notice,)), replace=True)

    async def load(self, standings: Sequence[Standing] = (), notices: Sequence[Notice] = ()) -> None:
        """Enter the dump of another state. No scheduler leads meanwhile."""
        await self._write(None, AlertStep(standings=tuple(standings), notices=tuple(notices)))

    async def every_notice(self) -> list[Notice]:
        """Every message, open or finished, unordered."""
        found = await self._server.fields(self._notices)
        return [msgspec.json.decode(text, type=Notice) for text in found.values()]

    async def _write(self, term: Term | None, step: AlertStep, *, replace: bool = False) -> None:
        """Raises LeaseLost."""
        words: list[str | bytes | int] = []
        for part in (
            _pairs((SEPARATOR.join(one.key), one) for one in step.standings),
            [SEPARATOR.join(key) for key in step.forgotten],
            _notice_words(step.notices),
            [msgspec.json.encode(change) for change in step.changes],
        ):
            words += [len(part), *part]
        done = await self._server.run(
            "settle_alerts",
            (self._leader, *self._keys),
            self._server.now(),
            "" if term is None else term.leader,
            "" if term is None else term.token,
            CHANGES_KEPT,
            NOTICES_KEPT,
            int(replace),
            b"" if step.memory is None else msgspec.json.encode(step.memory),
            *words,
        )
        if not done:
            who = "" if term is None else term.leader
            raise LeaseLost(f"{who} does not lead the schedulers any more; nothing was changed.")

    async def _some(self, ids: Sequence[bytes]) -> list[Notice]:
        if not ids:
            return []
        texts = await self._server.call("HMGET", self._notices, *ids)
        return [msgspec.json.decode(text, type=Notice) for text in texts if text]


def _pairs(named: Iterable[tuple[str, msgspec.Struct]]) -> list[str | bytes]:
    return [word for name, value in named for word in (name, msgspec.json.encode(value))]


def _notice_words(notices: Iterable[Notice]) -> list[str | bytes]:
    """For each: its id, 1 if it is open, the time by which it is sorted, and its JSON."""
    found: list[str | bytes] = []
    for one in notices:
        is_open = one.ended_at is None
        at = one.made_at if one.ended_at is None else one.ended_at
        found += [one.id, str(int(is_open)), repr(at), msgspec.json.encode(one)]
    return found

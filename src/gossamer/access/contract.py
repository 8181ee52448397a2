"""What the HTTP API keeps on the shelf: keys, answers to named requests, the audit log, the outbox of callbacks.

How it fails: `BackendUnavailable` (nothing happened). How it recovers: every verb is atomic, so the caller repeats it;
a claim of a server that died expires.
"""

from __future__ import annotations

from enum import StrEnum
from random import randrange
from secrets import token_hex
from typing import Any

import msgspec

from ..model.shelf import ABSENT, Change, DropRow, Put, Shelf, ShelfKind, Trim

CALLBACKS_KEPT = 10_000  # finished ones; older ones are deleted when another one is finished
RECEIVER = 12  # characters at the beginning of a callback's id: equal for all callbacks to the same host
LINES_KEPT = 100_000  # of the audit log
FORGOTTEN_AT_ONCE = 500
TRIMMED = 100  # one of this many new lines has the older ones deleted


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is stored: the SHA-256 of its secret, never the secret."""

    id: str
    name: str
    digest: str  # in hex
    scopes: tuple[str, ...]
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    used_at: float | None = None
    rate: float | None = None  # requests per second; None: as the settings say
    open_jobs: int | None = None  # jobs of this key that may run at once; None: as the settings say
    role: str = ""  # viewer, operator or admin (project/access/keys.py); "": its scopes alone decide


class KeyBook:
    """The keys of a project."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._keys = ShelfKind(shelf, "key", ApiKey)

    async def add(self, key: ApiKey) -> bool:
        """Store a new key. False, and nothing changes, if its id is taken."""
        return await self._shelf.commit([self._keys.put(key.id, key, expects=ABSENT)])

    async def key(self, id: str) -> ApiKey | None:
        return await self._keys.get(id)

    async def keys(self) -> list[ApiKey]:
        """Every key, including revoked and expired ones, the oldest first."""
        return sorted(await self._keys.all(), key=lambda key: (key.created_at, key.id))

    async def revoke(self, id: str, at: float) -> bool:
        """Disable the key from now on. False if it is unknown, or was revoked before."""

        def revoked(key: ApiKey | None) -> ApiKey | None:
            is_active = key is not None and key.revoked_at is None
            return msgspec.structs.replace(key, revoked_at=at) if key is not None and is_active else None

        return await self._keys.change(id, revoked) is not None

    async def note_use(self, id: str, at: float) -> None:
        """Record when the key was last used, unless another process is changing it right now. Never brings a revoked
        key back."""
        row = await self._shelf.get(self._keys.name, id)
        if row is not None:
            used = msgspec.structs.replace(self._keys.read(row), used_at=at)
            await self._shelf.commit([self._keys.put(id, used, expects=row.stamp)])


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a request that may be repeated. `status` 0: it is not complete yet.

    `digest` tells different requests of the same name apart.
    """

    digest: str
    status: int = 0
    body: bytes = b""


class AnswerBook:
    """Responses by the name (Idempotency-Key) that a client gave to its request. Times are those of the backend's
    clock."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._answers = ShelfKind(shelf, "answer", StoredAnswer)

    async def claim(self, name: str, digest: str, seconds: float) -> StoredAnswer | None:
        """None: the caller has the name for `seconds` and must produce the response. Otherwise what is stored under the
        name."""
        while True:
            until = await self._shelf.time() + seconds
            claim = self._answers.put(name, StoredAnswer(digest=digest), until=until, expects=ABSENT)
            if await self._shelf.commit([claim]):
                return None
            if (known := await self.answer(name)) is not None:  # it may have expired meanwhile
                return known

    async def answer(self, name: str) -> StoredAnswer | None:
        """What is stored under the name, without claiming it."""
        return await self._answers.get(name)

    async def keep(self, name: str, answer: StoredAnswer, seconds: float) -> None:
        """Store the response for `seconds`, in place of the claim."""
        until = await self._shelf.time() + seconds
        await self._shelf.commit([self._answers.put(name, answer, until=until)])

    async def release(self, name: str) -> None:
        """There will be no response: the next request of that name begins anew."""
        await self._shelf.commit([self._answers.drop(name)])


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """One write: who, what, when, from where, and the status of the response."""

    at: float
    key: str  # the id of the key
    name: str  # of the key
    action: str  # POST /api/v1/batch
    target: str = ""  # the job, key or schedule that was created or changed
    status: int = 0
    address: str = ""


class AuditLog:
    """The newest LINES_KEPT writes, and some that are older."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._lines = ShelfKind(shelf, "audit", AuditLine)

    async def note(self, line: AuditLine) -> None:
        changes: list[Change] = [self._lines.put(f"{line.key} {line.at:017.6f} {token_hex(8)}", line, at=line.at)]
        if randrange(TRIMMED) == 0:
            changes.append(Trim(kind=self._lines.name, keep=LINES_KEPT))
        await self._shelf.commit(changes)

    async def lines(self, limit: int, *, key: str | None = None) -> list[AuditLine]:
        """Up to `limit` lines, newest first; with a `key`, only those of that key."""
        return await self._lines.timed(limit=limit, newest=True, prefix="" if key is None else f"{key} ")

    async def forget(self, before: float) -> int:
        """Delete the lines before that time; return how many."""
        count = 0
        while rows := await self._shelf.timed(self._lines.name, until=before, limit=FORGOTTEN_AT_ONCE):
            await self._shelf.commit([DropRow(kind=self._lines.name, key=row.key) for row in rows])
            count += len(rows)
        return count


class CallbackState(StrEnum):
    WAITING = "waiting"  # its job has not ended yet
    DUE = "due"  # is sent as soon as `next_at` has come
    DELIVERED = "delivered"
    FAILED = "failed"  # given up; it can be sent again by hand

    @property
    def open(self) -> bool:
        return self in (CallbackState.WAITING, CallbackState.DUE)


class FirecrawlShape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a client of Firecrawl wants the messages about its job."""

    kind: str  # crawl, batch_scrape
    events: tuple[str, ...]  # started, page, completed, failed
    headers: tuple[tuple[str, str], ...] = ()  # sent along
    metadata: dict[str, Any] = {}  # any JSON, returned to the client


class Callback(msgspec.Struct, frozen=True, kw_only=True):
    """A message to a URL that a client named, and its delivery. Every attempt sends the same `id`."""

    id: str
    owner: str  # the id of the key whose secret signs it; "" for the project itself
    url: str
    made_at: float
    job: str = ""
    body: str = ""  # JSON; "" until the job has ended
    state: CallbackState = CallbackState.WAITING
    next_at: float = 0.0  # when it is sent next
    tries: int = 0
    ended_at: float | None = None
    status: int = 0  # of the last response
    message: str = ""  # why the last attempt failed
    shape: FirecrawlShape | None = None  # None: the format of `GET /api/v1/jobs/ID`


class CallbackSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret that signs callbacks; `until` None: until a newer one is made."""

    text: str
    until: float | None = None


class CallbackBook:
    """The outbox: callbacks to deliver, and the newest CALLBACKS_KEPT finished ones.

    Open ones are listed by the time they are sent next, 0 while their job runs; finished ones, which are another kind,
    by the time they were finished.
    """

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._open = ShelfKind(shelf, "callback", Callback)
        self._ended = ShelfKind(shelf, "callback-ended", Callback)
        self._secrets = ShelfKind(shelf, "callback-secret", tuple[CallbackSecret, ...])

    async def enter(self, callback: Callback) -> bool:
        """Add a callback. False, and nothing changes, if its id exists."""
        put, drop = self._place(callback, expects=ABSENT)
        return await self._shelf.commit([put, drop])

    async def keep(self, callback: Callback) -> None:
        """Replace the callback with the same id."""
        put, drop = self._place(callback)
        trim = () if callback.state.open else (Trim(kind=self._ended.name, keep=CALLBACKS_KEPT),)
        await self._shelf.commit([put, drop, *trim])

    def _place(self, callback: Callback, expects: bytes | None = None) -> tuple[Put, DropRow]:
        is_open, id = callback.state.open, callback.id
        here, there = (self._open, self._ended) if is_open else (self._ended, self._open)
        at = callback.next_at if is_open else callback.ended_at or 0.0
        at = 0.0 if callback.state is CallbackState.WAITING else at
        return here.put(id, callback, at=at, expects=expects), DropRow(kind=there.name, key=id, expects=expects)

    async def callback(self, id: str) -> Callback | None:
        # The first once more: one that is sent again moves back while we look.
        return await self._open.get(id) or await self._ended.get(id) or await self._open.get(id)

    async def waiting(self, limit: int) -> list[Callback]:
        """Callbacks that wait for their jobs, unordered."""
        return await self._open.timed(until=0.0, limit=limit)

    async def due(self, until: float, limit: int, each: int | None = None) -> list[Callback]:
        """Callbacks to send until then, the earliest first; with `each`, at most that many for one receiver, identified
        by the first RECEIVER characters of the id."""
        return await self._open.timed(after=0.0, until=until, limit=limit, each=each, group=RECEIVER)

    async def ended(self, limit: int) -> list[Callback]:
        """Finished callbacks, newest first."""
        return await self._ended.timed(limit=limit, newest=True)

    async def pending(self) -> int:
        """How many are open."""
        return await self._shelf.count(self._open.name)

    async def secrets(self, owner: str) -> tuple[CallbackSecret, ...]:
        """The secrets of an owner, newest first; empty before the first was stored."""
        return await self._secrets.get(owner) or ()

    async def enter_secrets(self, owner: str, secrets: tuple[CallbackSecret, ...]) -> bool:
        """Store the first secrets of an owner. False, and nothing changes, if it has some already."""
        return await self._shelf.commit([self._secrets.put(owner, secrets, expects=ABSENT)])

    async def keep_secrets(self, owner: str, secrets: tuple[CallbackSecret, ...]) -> None:
        await self._shelf.commit([self._secrets.put(owner, secrets)])

"""The part of the state that the HTTP API needs: `KeyBook`, `AnswerBook`, `AuditLog` and `CallbackBook`.

How it fails: `BackendUnavailable` (nothing happened). How it recovers: every verb is atomic, so the caller repeats it;
a claim of a server that died expires.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Protocol

import msgspec

CALLBACKS_KEPT = 10_000  # finished ones; older ones are deleted when another one is finished
RECEIVER = 12  # characters at the beginning of a callback's id: equal for all callbacks to the same host
LINES_KEPT = 100_000  # of the audit log; older ones are deleted when a line is added


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


class KeyBook(Protocol):
    """The keys of a project."""

    async def add(self, key: ApiKey) -> bool:
        """Store a new key. False, and nothing changes, if its id is taken."""
        ...

    async def key(self, id: str) -> ApiKey | None: ...

    async def keys(self) -> list[ApiKey]:
        """Every key, including revoked and expired ones, the oldest first."""
        ...

    async def revoke(self, id: str, at: float) -> bool:
        """Disable the key from now on. False if it is unknown, or was revoked before."""
        ...

    async def note_use(self, id: str, at: float) -> None:
        """Record when the key was last used. Never brings a revoked key back."""
        ...


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a request that may be repeated. `status` 0: it is not complete yet.

    `digest` tells different requests of the same name apart.
    """

    digest: str
    status: int = 0
    body: bytes = b""


class AnswerBook(Protocol):
    """Responses by the name (Idempotency-Key) that a client gave to its request. Times are those of the backend's
    clock."""

    async def claim(self, name: str, digest: str, seconds: float) -> StoredAnswer | None:
        """None: the caller has the name for `seconds` and must produce the response. Otherwise what is stored under the
        name."""
        ...

    async def answer(self, name: str) -> StoredAnswer | None:
        """What is stored under the name, without claiming it."""
        ...

    async def keep(self, name: str, answer: StoredAnswer, seconds: float) -> None:
        """Store the response for `seconds`, in place of the claim."""
        ...

    async def release(self, name: str) -> None:
        """There will be no response: the next request of that name begins anew."""
        ...


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """One write: who, what, when, from where, and the status of the response."""

    at: float
    key: str  # the id of the key
    name: str  # of the key
    action: str  # POST /api/v1/batch
    target: str = ""  # the job, key or schedule that was created or changed
    status: int = 0
    address: str = ""


class AuditLog(Protocol):
    """The newest LINES_KEPT writes."""

    async def note(self, line: AuditLine) -> None: ...

    async def lines(self, limit: int, *, key: str | None = None) -> list[AuditLine]:
        """Up to `limit` lines, newest first; with a `key`, only those of that key."""
        ...


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


class CallbackBook(Protocol):
    """The outbox: callbacks to deliver, and the newest CALLBACKS_KEPT finished ones."""

    async def enter(self, callback: Callback) -> bool:
        """Add a callback. False, and nothing changes, if its id exists."""
        ...

    async def keep(self, callback: Callback) -> None:
        """Replace the callback with the same id."""
        ...

    async def callback(self, id: str) -> Callback | None: ...

    async def waiting(self, limit: int) -> list[Callback]:
        """Callbacks that wait for their jobs, unordered."""
        ...

    async def due(self, until: float, limit: int, each: int | None = None) -> list[Callback]:
        """Callbacks to send until then, the earliest first; with `each`, at most that many for one receiver, identified
        by the first RECEIVER characters of the id."""
        ...

    async def ended(self, limit: int) -> list[Callback]:
        """Finished callbacks, newest first."""
        ...

    async def pending(self) -> int:
        """How many are open."""
        ...

    async def secrets(self, owner: str) -> tuple[CallbackSecret, ...]:
        """The secrets of an owner, newest first; empty before the first was stored."""
        ...

    async def enter_secrets(self, owner: str, secrets: tuple[CallbackSecret, ...]) -> bool:
        """Store the first secrets of an owner. False, and nothing changes, if it has some already."""
        ...

    async def keep_secrets(self, owner: str, secrets: tuple[CallbackSecret, ...]) -> None: ...

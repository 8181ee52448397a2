"""The part of the state that the HTTP API needs: `KeyBook`, `AnswerBook`, `AuditLog` and `CallbackBook`.

How it fails: `BackendUnavailable` (nothing happened). How it recovers: every verb is atomic, so the caller repeats it;
an answer that was claimed by a server that died is free again after its time.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Protocol

import msgspec

CALLBACKS_KEPT = 10_000  # that are over; older ones are deleted when one more is over
RECEIVER = 12  # characters at the beginning of a callback's id: equal for all that go to the same host
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
        """Enter a new key. False, and nothing changes, when its id is taken."""
        ...

    async def key(self, id: str) -> ApiKey | None: ...

    async def keys(self) -> list[ApiKey]:
        """Every key, also revoked and expired ones, the oldest first."""
        ...

    async def revoke(self, id: str, at: float) -> bool:
        """From now on the key opens nothing. False when it is unknown, or was revoked before."""
        ...

    async def note_use(self, id: str, at: float) -> None:
        """Remember when the key was used last. Never brings a revoked key back."""
        ...


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request that may be repeated. `status` 0: it is not complete yet.

    `digest` tells requests of the same name apart.
    """

    digest: str
    status: int = 0
    body: bytes = b""


class AnswerBook(Protocol):
    """Answers by the name that a client gave to its request. Times are those of the backend's clock."""

    async def claim(self, name: str, digest: str, seconds: float) -> StoredAnswer | None:
        """None: the caller has the name for `seconds` and works out the answer. Else what is known under the name."""
        ...

    async def answer(self, name: str) -> StoredAnswer | None:
        """What is known under the name, without a claim on it."""
        ...

    async def keep(self, name: str, answer: StoredAnswer, seconds: float) -> None:
        """Store the answer for `seconds`, in place of the claim."""
        ...

    async def release(self, name: str) -> None:
        """There will be no answer: the next request of that name begins anew."""
        ...


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """One write: who, what, when, from where, and the status of the answer."""

    at: float
    key: str  # the id of the key
    name: str  # of the key
    action: str  # POST /api/v1/batch
    target: str = ""  # the job, key or schedule that was made or changed
    status: int = 0
    address: str = ""


class AuditLog(Protocol):
    """The newest LINES_KEPT writes."""

    async def note(self, line: AuditLine) -> None: ...

    async def lines(self, limit: int, *, key: str | None = None) -> list[AuditLine]:
        """Up to `limit` lines, the newest first; with a `key`, those of that key alone."""
        ...


class CallbackState(StrEnum):
    WAITING = "waiting"  # its job has not ended yet
    DUE = "due"  # is sent as soon as its time has come
    DELIVERED = "delivered"
    FAILED = "failed"  # given up; it can be sent again by hand

    @property
    def open(self) -> bool:
        return self in (CallbackState.WAITING, CallbackState.DUE)


class FirecrawlShape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client of Firecrawl wants of the messages about its job."""

    kind: str  # crawl, batch_scrape
    events: tuple[str, ...]  # started, page, completed, failed
    headers: tuple[tuple[str, str], ...] = ()  # that are sent along
    metadata: dict[str, Any] = {}  # any JSON, given back


class Callback(msgspec.Struct, frozen=True, kw_only=True):
    """A message to an address that somebody named, and what came of it. The same `id` is sent with every try."""

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
    status: int = 0  # of the last answer
    message: str = ""  # why the last try failed
    shape: FirecrawlShape | None = None  # None: as `GET /api/v1/jobs/ID` answers


class CallbackSecret(msgspec.Struct, frozen=True, kw_only=True):
    """What callbacks are signed with; `until` None: for as long as no newer one is made."""

    text: str
    until: float | None = None


class CallbackBook(Protocol):
    """The outbox: what is to be delivered, and the newest CALLBACKS_KEPT that are over."""

    async def enter(self, callback: Callback) -> bool:
        """False, and nothing changes, when there is one of that id."""
        ...

    async def keep(self, callback: Callback) -> None:
        """Put it in the place of the one with the same id."""
        ...

    async def callback(self, id: str) -> Callback | None: ...

    async def waiting(self, limit: int) -> list[Callback]:
        """Those that wait for their jobs, in no order."""
        ...

    async def due(self, until: float, limit: int, each: int | None = None) -> list[Callback]:
        """Those that are to be sent until then, the earliest first; with `each` at most that many for one receiver,
        known by the first RECEIVER characters of the id."""
        ...

    async def ended(self, limit: int) -> list[Callback]:
        """Those that are over, the newest first."""
        ...

    async def pending(self) -> int:
        """How many are open."""
        ...

    async def secrets(self, owner: str) -> tuple[CallbackSecret, ...]:
        """The secrets of an owner, the newest first; none before the first was entered."""
        ...

    async def enter_secrets(self, owner: str, secrets: tuple[CallbackSecret, ...]) -> bool:
        """False, and nothing changes, when the owner has some already."""
        ...

    async def keep_secrets(self, owner: str, secrets: tuple[CallbackSecret, ...]) -> None: ...

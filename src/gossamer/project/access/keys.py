"""The keys of the HTTP API: created, listed, revoked, checked; and what the holder of a key may see and change.

A key is shown once, when it is created: the state stores only the SHA-256 of its secret. How it fails: Misconfigured
for an unknown scope or key, BackendUnavailable.
"""

from __future__ import annotations

import difflib
import re
import secrets
from collections.abc import Iterable
from datetime import timedelta
from hashlib import sha256
from hmac import compare_digest

import msgspec

from ...access.contract import ApiKey, AuditLine
from ...errors import Misconfigured, NotThere
from ...model.job import Job
from ..open import Project
from ..view_fields import view_of

USE_NOTED_EVERY = 60.0  # seconds; a write for each request would cost more than the request
LONGEST_NAME = 100
MOST_OPEN = 100_000  # jobs of the owner of the project, to whom the limit of a key does not apply
LOCAL = "local"  # owner of everything done with the one-time token of a server without keys
SCOPES = SCRAPE, JOBS, RECORDS, METRICS, ADMIN = "scrape", "jobs", "records", "metrics", "admin"
# A role is on top of the scopes, all of which it has. A viewer sees everything and changes nothing; an operator changes
# everything but who has keys and what is erased.
ROLES = VIEWER, OPERATOR, ADMINISTRATOR = "viewer", "operator", "admin"
_KEY = re.compile(r"gos_([0-9a-z]{1,16})_([0-9A-Za-z-]{16,64})", re.ASCII)


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """A key without its secret. Times are ISO 8601 in UTC."""

    id: str
    name: str
    scopes: tuple[str, ...]
    role: str  # viewer, operator, admin; "": its scopes alone decide
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    used_at: str | None  # to the minute
    rate: float | None  # requests per second; None: server.rate
    open_jobs: int | None  # None: server.open_jobs
    state: str  # active, expired or revoked


class NewKey(KeyView, frozen=True, kw_only=True):
    """A new key. Its text is shown only this once."""

    key: str


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a key, or of the one-time token."""

    id: str
    name: str
    scopes: frozenset[str]
    rate: float | None = None
    open_jobs: int | None = None
    role: str = ""

    def refusal(self, *, for_admins: bool = False) -> str:
        """Why the holder may not change something, as a sentence; "" if scopes alone decide. `for_admins`: keys, what
        is erased, and new files of the project."""
        if self.role == VIEWER:
            return "Your key is that of a viewer: it sees everything and changes nothing. Ask for an operator's key."
        if self.role == OPERATOR and for_admins:
            return (
                "Your key is that of an operator: keys, erasure and new recipes are for admins. Ask for an admin's key."
            )
        return ""

    @property
    def is_admin(self) -> bool:
        return ADMIN in self.scopes

    def may(self, scope: str) -> bool:
        return scope in self.scopes or self.is_admin

    def sees(self, job: Job) -> bool:
        """Its own jobs, and those that no key started: from schedules and the command line."""
        return self.sees_those_of(job.owner)

    def sees_those_of(self, owner: str) -> bool:
        """Whether the caller sees the jobs of that key; "" stands for jobs of no key."""
        return self.is_admin or owner in ("", self.id)

    def may_change(self, job: Job) -> bool:
        return self.role != VIEWER and (self.is_admin or job.owner == self.id)


OWNER = Caller(id=LOCAL, name=LOCAL, scopes=frozenset(SCOPES), open_jobs=MOST_OPEN)


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """The one-time token of a server on this machine, valid while the project has no keys."""

    caller: Caller
    digest: str  # SHA-256 of its secret, in hex


class Sight:
    """Which jobs the caller sees; each is looked up once, preferably many in one step."""

    def __init__(self, project: Project, caller: Caller) -> None:
        self._project = project
        self._caller = caller
        self._known: dict[str, bool] = {}

    async def of(self, job: str) -> bool:
        """A job that was deleted from the queue, or was never in it (a reparse), is visible only to the admin."""
        await self.look_at([job])
        return self._caller.is_admin or self._known[job]

    async def look_at(self, jobs: Iterable[str]) -> None:
        """Look these up in one step."""
        new = list(dict.fromkeys(job for job in jobs if job not in self._known))
        if new and not self._caller.is_admin:
            owners = await self._project.state.history.owners(new)
            self._known |= {job: job in owners and self._caller.sees_those_of(owners[job]) for job in new}


class AuditView(msgspec.Struct, frozen=True, kw_only=True):
    """One write over HTTP: who, what, when, from where, and the status of the answer."""

    at: str
    key: str
    name: str
    action: str
    target: str
    status: int
    address: str


# -- the text of a key -----------------------------------------------------------------------------------------------
# `gos_<id>_<secret>`. The secret has 256 random bits, so its plain SHA-256 cannot be reversed: no slow hash is needed.


def new_id() -> str:
    return secrets.token_hex(5)


def new_secret() -> str:
    """32 random bytes in letters, digits and dashes: a double click selects the whole key."""
    return secrets.token_urlsafe(32).replace("_", "-")


def key_text(id: str, secret: str) -> str:
    return f"gos_{id}_{secret}"


def digest_of(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def parts_of(text: str) -> tuple[str, str] | None:
    """Id and secret of a key; None if the text is not a key."""
    found = _KEY.fullmatch(text)
    return (found[1], found[2]) if found else None


def opens(key: ApiKey, secret: str, now: float) -> bool:
    """Is this the key's secret, and is the key still valid? Takes the same time for a wrong secret as for a right
    one."""
    is_right = compare_digest(key.digest, digest_of(secret))
    return is_right and key.revoked_at is None and (key.expires_at is None or now < key.expires_at)


# -- creating and revoking -----------------------------------------------------------------------------------------


async def add_key(
    project: Project,
    name: str,
    scopes: list[str],
    *,
    expires: timedelta | None = None,
    rate: float | None = None,
    open_jobs: int | None = None,
    role: str = "",
) -> NewKey:
    """Create a key; one with a role has every scope. Raises Misconfigured for an unknown scope or role, a name in use
    by an active key, or no name."""
    if role and role not in ROLES:
        raise Misconfigured(f"There is no role {role!r}; there is {', '.join(ROLES)}.")
    scopes = list(SCOPES) if role else scopes
    _check(name, scopes, rate, open_jobs)
    now = project.clock.now()
    if any(key.name == name and _state(key, now) == "active" for key in await project.state.keys.keys()):
        raise Misconfigured(f"There is a key named {name!r} already. Revoke it first, or choose another name.")
    secret = new_secret()
    while True:
        key = ApiKey(
            id=new_id(),
            name=name,
            digest=digest_of(secret),
            scopes=tuple(scope for scope in SCOPES if scope in scopes),
            created_at=now,
            expires_at=None if expires is None else now + expires.total_seconds(),
            rate=rate,
            open_jobs=open_jobs,
            role=role,
        )
        if await project.state.keys.add(key):
            return NewKey(**msgspec.structs.asdict(_view(key, now)), key=key_text(key.id, secret))


def _check(name: str, scopes: list[str], rate: float | None, open_jobs: int | None) -> None:
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise Misconfigured(f"A key needs a name of 1 to {LONGEST_NAME} printable characters, to tell it from others.")
    for scope in scopes:
        if scope not in SCOPES:
            near = difflib.get_close_matches(scope, SCOPES, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise Misconfigured(f"There is no scope {scope!r}; there is {', '.join(SCOPES)}.{hint}")
    if not scopes:
        raise Misconfigured(f"Say what the key may do: one or more of {', '.join(SCOPES)}.")
    if rate is not None and not 0 < rate <= 10_000:
        raise Misconfigured("The rate of a key is a number of requests per second above 0.")
    if open_jobs is not None and open_jobs < 1:
        raise Misconfigured("A key must be allowed at least 1 open job.")


async def list_keys(project: Project) -> list[KeyView]:
    """Every key, oldest first."""
    now = project.clock.now()
    return [_view(key, now) for key in await project.state.keys.keys()]


async def revoke_key(project: Project, wanted: str) -> KeyView:
    """Revoke the key with that id, otherwise the active one with that name. Raises NotThere."""
    now = project.clock.now()
    keys = await project.state.keys.keys()
    found = [key for key in keys if key.id == wanted]
    found = found or [key for key in keys if key.name == wanted and key.revoked_at is None]
    if not found:
        raise NotThere(f"There is no key {wanted!r}. `gossamer keys list` shows all of them.")
    await project.state.keys.revoke(found[0].id, now)
    return _view(await project.state.keys.key(found[0].id) or found[0], now)


async def has_keys(project: Project) -> bool:
    """Whether the project has an active key."""
    now = project.clock.now()
    return any(_state(key, now) == "active" for key in await project.state.keys.keys())


def _view(key: ApiKey, now: float) -> KeyView:
    return view_of(KeyView, key, "created_at", "expires_at", "revoked_at", "used_at", state=_state(key, now))


def _state(key: ApiKey, now: float) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "active" if key.expires_at is None or now < key.expires_at else "expired"


# -- checking ------------------------------------------------------------------------------------------------------


def one_time_token() -> tuple[str, Token]:
    """A token for a server on this machine that has no keys: its text, and the part that the server keeps."""
    secret = new_secret()
    holder = Caller(id=LOCAL, name=LOCAL, scopes=frozenset(SCOPES))
    return key_text(LOCAL, secret), Token(caller=holder, digest=digest_of(secret))


async def caller_of(project: Project, text: str) -> Caller | None:
    """The holder of a key; None if the key is not valid. Notes, about once a minute, that the key was used."""
    parts = parts_of(text)
    key = await project.state.keys.key(parts[0]) if parts is not None else None
    if parts is None or key is None or not opens(key, parts[1], project.clock.now()):
        return None
    return await holder_of(project, key)


async def holder_of(project: Project, key: ApiKey) -> Caller:
    """The holder of a valid key. Notes, about once a minute, that it was used."""
    now = project.clock.now()
    if key.used_at is None or now - key.used_at >= USE_NOTED_EVERY:
        await project.state.keys.note_use(key.id, now)
    return Caller(
        id=key.id, name=key.name, scopes=frozenset(key.scopes), rate=key.rate, open_jobs=key.open_jobs, role=key.role
    )


def is_active(key: ApiKey, now: float) -> bool:
    """Whether it is neither revoked nor expired."""
    return _state(key, now) == "active"


async def is_still_open_to(project: Project, caller: Caller) -> bool:
    """Whether the caller's key is still valid. For long answers, during which it may be revoked."""
    if caller.id == LOCAL:
        return True
    key = await project.state.keys.key(caller.id)
    return key is not None and _state(key, project.clock.now()) == "active"


def secret_digest(text: str) -> str | None:
    """The SHA-256 of the secret in a token for this machine; None for any other text."""
    parts = parts_of(text)
    return digest_of(parts[1]) if parts is not None and parts[0] == LOCAL else None


# -- the audit log -------------------------------------------------------------------------------------------------


async def note_write(
    project: Project, caller: Caller, action: str, *, target: str = "", status: int = 0, address: str = ""
) -> None:
    """Add a line to the audit log."""
    line = AuditLine(
        at=project.clock.now(),
        key=caller.id,
        name=caller.name,
        action=action,
        target=target,
        status=status,
        address=address,
    )
    await project.state.audit.note(line)


async def audit_lines(project: Project, *, key: str | None = None, limit: int = 100) -> list[AuditView]:
    """The newest lines of the audit log; with the id of a key, only those of that key."""
    return [view_of(AuditView, line, "at") for line in await project.state.audit.lines(limit, key=key)]

"""A URL before its fetch: a Request (wanted), a Candidate (judged), a Task (queued), a Lease (held by a worker)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from .item import safe_text
from .route import How, Render

DEFAULT_KIND = "parse"
MAX_PRIORITY = 10**15  # a number that every queue holds exactly
MAX_ATTEMPTS = 1_000_000
RETRY_STATUSES = (408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524)  # worth another try, by default
LANE_ONLY = "@"  # before a route's name in `fetcher`: the router moved the task to that lane, no spider asked for it


class UrlState(StrEnum):
    """Every discovered URL of a job is in exactly one of these."""

    QUEUED = "queued"
    WAITING = "waiting"  # a retry or a release that is not due yet
    LEASED = "leased"
    DONE = "done"
    UNCHANGED = "unchanged"
    DROPPED = "dropped"  # with a DropReason
    DEAD = "dead"

    @property
    def open(self) -> bool:
        """True while there is still work to do for the URL."""
        return self in _OPEN


_OPEN = frozenset({UrlState.QUEUED, UrlState.WAITING, UrlState.LEASED})


class DropReason(StrEnum):
    """Why a URL will not be fetched, or not be fetched again."""

    DUPLICATE = "duplicate"
    ROBOTS = "robots"
    SCOPE = "scope"
    DEPTH = "depth"
    TRAP = "trap"
    FULL = "full"
    FRESH = "fresh"
    UNMODIFIED = "unmodified"
    INVALID = "invalid"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A URL that a spider or a seed list wants fetched. `kind` names the callback that will parse the page.

    `data` is JSON-able and travels with the task. `force` skips deduplication.
    """

    url: str
    kind: str = DEFAULT_KIND
    priority: int | None = None  # None: the priority of the page it was found on
    data: dict[str, Any] = {}  # user data, any JSON
    force: bool = False
    fetcher: str | None = None
    proxy_pool: str | None = None
    country: str | None = None
    session: str | None = None  # requests that name the same one leave as the same visitor
    render: Render | None = None  # what a browser should do; needs fetcher="browser" or a route that renders
    max_attempts: int | None = None
    lastmod: float | None = None  # when the page changed last, as a sitemap or a feed says

    def how(self) -> str:
        """Session, browser instructions and `lastmod` as JSON, or "" without any."""
        if self.render is None and self.session is None and self.lastmod is None:
            return ""
        return msgspec.json.encode(How(render=self.render, session=self.session, lastmod=self.lastmod)).decode()


def fault_of(request: Request) -> str:
    """What is wrong with a request, in words that follow its address; empty for a good request.

    A struct does not check the types of its fields, and no queue takes a priority that is a text.
    """
    try:
        msgspec.convert(msgspec.structs.asdict(request), Request)
        msgspec.json.encode(request.data)
    except msgspec.ValidationError as error:
        what, _, where = str(error).replace("`", "").replace(" | null", "").partition(" - at ")
        return f"is wrong in {where.rpartition('.')[2] or 'a field'} ({what[:1].lower()}{what[1:]})"
    except (TypeError, ValueError, RecursionError) as error:
        return f"has data that must be JSON and is not ({error})"
    if request.priority is not None and abs(request.priority) > MAX_PRIORITY:
        return f"has a priority beyond {MAX_PRIORITY:,}"
    if request.max_attempts is not None and not 1 <= request.max_attempts <= MAX_ATTEMPTS:
        return f"has max_attempts that are not between 1 and {MAX_ATTEMPTS:,}"
    for name in ("kind", "fetcher", "proxy_pool", "country", "session"):
        text = getattr(request, name)
        if text is not None and safe_text(text) != text:
            return f"has a {name} with characters that cannot be stored"
    return ""


def _how(text: str) -> How:
    return msgspec.json.decode(text, type=How) if text else _NO_WISHES


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request that admission has judged. `dropped` is None when it may enter the queue.

    `fingerprint` is 16 bytes of the canonical URL; `shape` is its path with numbers blanked, for trap budgets.
    """

    url: str
    fingerprint: bytes
    site: str
    shape: str = ""
    kind: str = DEFAULT_KIND
    priority: int = 0
    depth: int = 0
    data: str = ""  # JSON object, or "" for none
    dropped: DropReason | None = None
    force: bool = False
    redirects: tuple[str, ...] = ()  # the URLs that led here by redirection
    fetcher: str | None = None
    proxy_pool: str | None = None
    country: str | None = None
    how: str = ""  # JSON of `How`, or "" without any instruction
    max_attempts: int | None = None

    def wishes(self) -> How:
        return _how(self.how)


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A URL in the queue, self-contained: any worker that serves its `fetcher` can work on it without asking anyone.

    `fetcher` names a route that must be taken, or a kind of transport; None leaves it to the router. It is also the
    lane in which the task waits: workers lease from the lanes that they serve.
    """

    id: int
    job: str
    url: str
    fingerprint: bytes
    site: str
    kind: str
    priority: int
    depth: int
    attempt: int  # earlier attempts that count
    max_attempts: int
    created_at: float
    data: str = ""
    redirects: tuple[str, ...] = ()
    fetcher: str | None = None
    proxy_pool: str | None = None
    country: str | None = None
    how: str = ""

    def wishes(self) -> How:
        return _how(self.how)

    def user_data(self) -> dict[str, Any]:
        """The spider's own data, decoded."""
        return msgspec.json.decode(self.data, type=dict[str, Any]) if self.data else {}


_NO_WISHES = How()


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The right to work on a task until `expires_at` (the backend's clock). `token` fences it.

    `delivery` counts how often the task was handed out; `pace` is the spacing that the site demands
    between two requests, None when there is no limit.
    """

    task: Task
    token: int
    delivery: int
    expires_at: float
    pace: Pace | None = None
    away: Away | None = None


class Away(msgspec.Struct, frozen=True, gc=False):
    """The site could not be reached since then, for that reason: the task finds out whether it can now. If it is
    `given_up`, tasks of `host` ("": of none) are not tried any more."""

    host: str
    reason: str
    since: float
    given_up: bool


class Pace(msgspec.Struct, frozen=True, gc=False):
    """A token bucket: one request every `interval` seconds, up to `burst` at once after a rest.

    `ahead` says how many seconds of the bucket were already used when the lease was granted, this grant included; the
    worker's own pacer never starts earlier than that allows.
    """

    interval: float
    burst: int = 1
    ahead: float = 0.0

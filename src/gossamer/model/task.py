"""A URL before its fetch: a Request (wanted), a Candidate (judged), a Task (queued), a Lease (held by a worker)."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypedDict

import msgspec

from . import payload
from .download import Download
from .item import safe_text
from .route import FetchOptions, Render

DEFAULT_KIND = "parse"
FILE_KIND = "file"  # of requests without a callback
MAX_PRIORITY = 10**15  # every queue can hold it exactly
REPLAYED_PRIORITY = 10**9  # of a dead letter replayed in a job with a limit: before its other pages
MAX_ATTEMPTS = 1_000_000
RETRY_STATUSES = (408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524)  # retried by default
LANE_ONLY = "@"  # prefix of a route in `fetcher`: the router moved the task to that lane, no spider asked for it
SITE_AWAY = "site away"  # the reason of a task that waits until its site can be reached
NO_ROOM = "no room"  # the reason of a link that waits until the queue has room
NO_ROOM_DUE = 4e15  # minus its priority: when such a link is due. Later than any time, and exact in every backend
NO_ROOM_FROM = 2e15  # a task that is due later than this waits for room


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
    """Why a URL is not fetched, or not fetched again."""

    DUPLICATE = "duplicate"
    ROBOTS = "robots"
    SCOPE = "scope"
    DEPTH = "depth"
    TRAP = "trap"
    PATTERN_LIMIT = "pattern-limit"
    SITE_LIMIT = "site-limit"
    FRESH = "fresh"
    UNMODIFIED = "unmodified"
    INVALID = "invalid"


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A URL that a spider or a seed list wants fetched. `kind` names the callback that will parse the page.

    `data` must be JSON and travels with the task. `force` skips deduplication. At most one of `form`, `json` and `body`
    is sent; `files` go with `form`. Headers, cookies, auth, form and json may contain the spider's secrets.
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
    render: Render | None = None  # instructions for a browser; needs fetcher="browser" or a route that renders
    max_attempts: int | None = None
    lastmod: float | None = None  # when the page last changed, according to a sitemap or feed
    method: str = "GET"
    params: Any = None  # a dict or pairs, added to the query
    headers: dict[str, str] | None = None
    form: Any = None  # a dict or pairs, sent as a form
    json: Any = None  # any JSON
    body: Any = None  # bytes or text
    files: dict[str, Any] | None = None  # by field: bytes, (file name, bytes), (file name, bytes, content type)
    cookies: dict[str, str] | None = None  # for this request only
    auth: tuple[str, str] | None = None  # user and password, for basic or digest
    timeout: float | None = None  # seconds for the whole request
    errback: Any = None  # the spider's method, or its name, that is called after the final failure
    retry_unsafe: bool | None = None  # may a POST be repeated when it is unknown whether it arrived?
    file: Download | None = None  # a file is wanted: it goes to the archive, without a callback
    handle_statuses: tuple[int, ...] = ()  # errors (404) and redirects (302) whose pages go to the callback
    unlinked: bool = False  # links to the same URL are another request: for frameworks whose start pages are so
    offsite: bool = False  # may lead outside of the sites of the crawl
    stored: FetchOptions | None = (
        None  # of a request that was queued before: replaces everything that `FetchOptions` has
    )

    @property
    def is_plain(self) -> bool:
        """Is it a GET of its URL that sends nothing else?"""
        return (
            self.stored is None
            and self.method == "GET"
            and self.params is None
            and self.headers is None
            and self.form is None
            and self.json is None
            and self.body is None
            and self.files is None
            and self.cookies is None
            and self.auth is None
            and self.timeout is None
            and self.errback is None
            and self.retry_unsafe is None
            and self.file is None
            and not self.handle_statuses
            and not self.unlinked
        )

    @property
    def is_file(self) -> bool:
        """Is a file wanted, and not a page?"""
        return self.file is not None or (self.stored is not None and self.stored.file is not None)

    def options(self) -> FetchOptions:
        """What travels with the task. Raises BadPayload."""
        if self.stored is not None:
            return self.stored
        if self.is_plain:
            return FetchOptions(render=self.render, session=self.session, lastmod=self.lastmod)
        headers = payload.headers_of(self.headers or {})
        made = payload.body_of(form=self.form, json=self.json, body=self.body, files=self.files)
        if made is not None and made[0] and all(name.lower() != "content-type" for name, _ in headers):
            headers = (*headers, ("Content-Type", made[0]))
        method = payload.method_of(self.method)
        return FetchOptions(
            render=self.render,
            session=self.session,
            lastmod=self.lastmod,
            method=method,
            headers=headers,
            cookies=payload.cookies_of(self.cookies or {}),
            auth=payload.auth_of(self.auth) if self.auth is not None else None,
            body=made[1] if made is not None else None,
            timeout=self.timeout,
            errback=getattr(self.errback, "__name__", self.errback),
            retry_unsafe=self.retry_unsafe,
            forced=self.force and method not in payload.SAFE_METHODS,
            file=self.file,
            statuses=tuple(self.handle_statuses),
            unlinked=self.unlinked,
        )

    def address(self) -> str:
        """The URL with the parameters. Raises BadPayload."""
        return self.url if self.params is None else payload.with_params(self.url, self.params)

    def how(self) -> str:
        """What travels with the task, as JSON; "" for a plain GET without instructions. Raises BadPayload."""
        if self.is_plain:
            return self.way()
        text = msgspec.json.encode(self.options()).decode()
        return text if text != "{}" else ""

    def way(self) -> str:
        """Like `how`, for a plain request."""
        if self.render is None and self.session is None and self.lastmod is None:
            return ""
        return msgspec.json.encode(
            FetchOptions(render=self.render, session=self.session, lastmod=self.lastmod)
        ).decode()

    def storable(self) -> Request:
        """The same request in a form that JSON can hold: secrets by name. Raises BadPayload."""
        if self.is_plain:
            return self
        return Request(
            url=self.address(),
            kind=self.kind,
            priority=self.priority,
            data=self.data,
            force=self.force,
            fetcher=self.fetcher,
            proxy_pool=self.proxy_pool,
            country=self.country,
            max_attempts=self.max_attempts,
            offsite=self.offsite,
            stored=self.options(),
        )


class Sending(TypedDict, total=False):
    """The fields of a Request that say what is sent, and how."""

    method: str
    params: Any
    headers: dict[str, str]
    form: Any
    json: Any
    body: bytes | str
    files: dict[str, Any]
    cookies: dict[str, str]
    auth: tuple[str, str]
    timeout: float
    errback: str | Callable[..., Any]
    retry_unsafe: bool
    handle_statuses: tuple[int, ...]


class RequestOptions(Sending, total=False):
    """The fields of a Request that `page.follow` takes; None has no effect."""

    priority: int | None
    data: dict[str, Any] | None
    force: bool
    fetcher: str | None
    proxy_pool: str | None
    country: str | None
    session: str | None
    max_attempts: int | None


def fault_of(request: Request) -> str:
    """What is wrong with a request, in words that follow its URL in a message; empty for a good request.

    A struct does not check the types of its fields, and no queue accepts a priority that is a text.
    """
    try:
        msgspec.convert(msgspec.structs.asdict(request), Request)
        if not request.is_plain:
            _check_payload(request)
        msgspec.json.encode(request.data)
    except payload.BadPayload as error:
        return str(error)
    except msgspec.ValidationError as error:
        what, _, where = str(error).replace("`", "").replace(" | null", "").partition(" - at ")
        return (
            f"is wrong in {where.replace('[...]', '').rpartition('.')[2] or 'a field'} ({what[:1].lower()}{what[1:]})"
        )
    except (TypeError, ValueError, RecursionError) as error:
        return f"has data that is not JSON ({error})"
    if request.priority is not None and abs(request.priority) > MAX_PRIORITY:
        return f"has a priority beyond {MAX_PRIORITY:,}"
    if request.max_attempts is not None and not 1 <= request.max_attempts <= MAX_ATTEMPTS:
        return f"has max_attempts not between 1 and {MAX_ATTEMPTS:,}"
    for name in ("kind", "fetcher", "proxy_pool", "country", "session"):
        text = getattr(request, name)
        if text is not None and safe_text(text) != text:
            return f"has a {name} with characters that cannot be stored"
    if request.session is not None and (len(request.session) > 100 or not request.session.isprintable()):
        return "has a session whose name is longer than 100 characters or has unprintable ones"
    return ""


def _check_payload(request: Request) -> None:
    """Raises BadPayload."""
    request.address()
    options = request.options()
    if options.body is not None and options.method in payload.BODILESS:
        raise payload.BadPayload(f'has a body and the method {options.method}; write method="POST"')
    if options.timeout is not None and not 0 < options.timeout <= payload.LONGEST_TIMEOUT:
        raise payload.BadPayload(f"has a timeout that is not between 0 and {payload.LONGEST_TIMEOUT:g} seconds")
    if options.errback is not None and not (isinstance(options.errback, str) and options.errback.isidentifier()):
        raise payload.BadPayload("has an errback that is not a method of the spider")
    length = len(msgspec.json.encode((options.headers, options.cookies)))
    if length > payload.MAX_HEADERS:
        raise payload.BadPayload(f"has headers and cookies of {length:,} bytes; {payload.MAX_HEADERS:,} are allowed")


def options_of(text: str) -> FetchOptions:
    """Decode what travels with a task."""
    return msgspec.json.decode(text, type=FetchOptions) if text else _NO_OPTIONS


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request that admission has judged. `dropped` is None if it may enter the queue. `fingerprint` is 16 bytes of
    the canonical URL; `shape` is its path with numbers blanked, for trap budgets."""

    url: str
    fingerprint: bytes
    site: str
    shape: str = ""
    kind: str = DEFAULT_KIND
    priority: int = 0
    depth: int = 0
    data: str = ""  # a JSON object, or "" for none
    dropped: DropReason | None = None
    force: bool = False
    redirects: tuple[str, ...] = ()  # the URLs that redirected here
    fetcher: str | None = None
    proxy_pool: str | None = None
    country: str | None = None
    how: str = ""  # JSON of `FetchOptions`, or "" without instructions
    max_attempts: int | None = None
    named: bool = False  # a person named this URL, or a page in the queue redirects to it: no limit of URLs drops it

    def options(self) -> FetchOptions:
        return options_of(self.how)


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A URL in the queue, self-contained: any worker that serves its `fetcher` can work on it.

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

    def options(self) -> FetchOptions:
        return options_of(self.how)

    def user_data(self) -> dict[str, Any]:
        """The spider's own data, decoded."""
        return msgspec.json.decode(self.data, type=dict[str, Any]) if self.data else {}


_NO_OPTIONS = FetchOptions()


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The right to work on a task until `expires_at` (the backend's clock). `token` fences it.

    `delivery` counts how often the task was handed out; `pace` is the site's spacing between two requests, None without
    a limit. `sent`: a request that must not be repeated blindly may have left under an earlier lease.
    """

    task: Task
    token: int
    delivery: int
    expires_at: float
    pace: Pace | None = None
    away: Away | None = None
    sent: bool = False


class Away(msgspec.Struct, frozen=True, gc=False):
    """The site has been unreachable since then, for that reason, and this task probes whether it is back. If it is
    `given_up`, tasks of `host` ("": of none) are not tried any more."""

    host: str
    reason: str
    since: float
    given_up: bool


class Pace(msgspec.Struct, frozen=True, gc=False):
    """A token bucket: one request every `interval` seconds, up to `burst` at once after a rest.

    `ahead` is how many seconds of the bucket were already used when the lease was granted, this grant included; the
    worker's pacer never starts earlier than that allows. `gap` is by how much the interval is longer than that of the
    site, if the job has a slower rate of its own.
    """

    interval: float
    burst: int = 1
    ahead: float = 0.0
    gap: float = 0.0

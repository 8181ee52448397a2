"""Ways to fetch a page, as values: the route, the proxy it leaves through, and instructions for a browser."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from .download import Download
from .payload import SAFE_METHODS, Body, Pairs
from .secret_text import Text, is_secret

ACTIONS = ("click", "fill", "type", "select", "press", "scroll", "collect", "wait")
UNTIL = {"click": "gone", "scroll": "end"}
MOST_UNTIL = 100  # repetitions with `until`, unless `times` is set
MOMENTS = ("load", "domcontentloaded", "networkidle")
LONGEST = 300.0  # seconds that a page may wait

HTTP, PROFILE, BROWSER, MANAGED = TRANSPORTS = ("http", "profile", "browser", "managed")


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One rung of a ladder. `price` is in credits for each request, `price_per_gb` for each GB received."""

    name: str
    transport: str = HTTP
    pool: str | None = None
    profile: str | None = None
    vendor: str | None = None
    price: float = 1.0
    price_per_gb: float = 0.0

    @property
    def renders(self) -> bool:
        """Does it run the scripts of a page?"""
        return self.transport in (BROWSER, MANAGED)

    def cost(self, received: int) -> float:
        """The cost of one request, in credits, if its response has that many bytes."""
        return self.price + self.price_per_gb * received / 1e9


DIRECT = Route(name="direct")


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """A proxy, and the identity to use there. Proxies with the same `identity` may share connections and cookies.

    `name` is for people: the address without credentials, and for a gateway the session behind it.
    """

    pool: str
    name: str
    scheme: str  # http, https or socks5
    host: str
    port: int
    username: str = ""
    password: str = ""
    allow_private: bool = False  # may the proxy itself be in a private network?

    @property
    def identity(self) -> str:
        """Never shown: contains the user name and the password."""
        return f"{self.scheme}://{self.username}:{self.password}@{self.host}:{self.port}"

    @property
    def address(self) -> str:
        """Without credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def __repr__(self) -> str:
        return f"Proxy({self.address!r}, auth={'***' if self.username or self.password else None})"


class ProxyOutcome(StrEnum):
    """The result of one use of a proxy."""

    OK = "ok"
    BANNED = "banned"  # the site blocked this proxy: it served the same page to another, or asked for fewer requests
    REFUSED = "refused"  # the site refused a page; whether the proxy or the page is to blame is not known yet
    FAILED = "failed"  # the proxy itself refused, hung up or was unreachable


class Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing to do on a page before it is read: click, fill, type, select, press, scroll, collect or wait.

    `selector` names the element; `text` is the text to fill in or type, the option to select, the key to press, or a
    part of the URL of the request to wait for; `times` repeats; `seconds` is how long `wait` waits (at most, if it
    waits for a `selector` or a request). With `until` a click is repeated until its element is "gone", and a scroll
    until the "end", when nothing new came for `seconds`; `times` is the limit then. `collect` clicks every element that
    matches `selector`, at most `times`, stays on the page, and appends the URLs that the clicks would have led to, as
    links.
    """

    do: str
    selector: str = ""
    text: str = ""
    times: int = 1
    seconds: float = 0.0
    until: str = ""

    def __post_init__(self) -> None:
        if self.do not in ACTIONS:
            raise ValueError(f"There is no action {self.do!r}; known: {', '.join(ACTIONS)}.")
        if self.do in ("click", "fill", "type", "select", "collect") and not self.selector:
            raise ValueError(f"The action {self.do} needs a selector that names its element.")
        if self.do in ("type", "select", "press") and not self.text:
            raise ValueError(f"The action {self.do} needs a text.")
        if self.until and self.until != UNTIL.get(self.do):
            known = " and ".join(f"{do} until {end}" for do, end in UNTIL.items())
            raise ValueError(f"There is no {self.do} until {self.until!r}, only {known}.")
        if not 1 <= self.times <= 1000 or not 0 <= self.seconds <= LONGEST:
            raise ValueError(f"An action is repeated 1 to 1000 times and waits {LONGEST:g} seconds at most.")

    @property
    def most(self) -> int:
        """How many times it is done at most."""
        return MOST_UNTIL if (self.until or self.do == "collect") and self.times == 1 else self.times


class Render(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a browser should render a page. By default it waits until the network is quiet."""

    wait_for: str = ""  # a CSS selector that must be present
    wait_until: str = ""  # load, domcontentloaded, networkidle
    wait: float = 0.0  # additional seconds
    actions: tuple[Action, ...] = ()
    screenshot: bool = False
    block: tuple[str, ...] | None = None  # resource types that are not loaded; None: as the settings say

    def __post_init__(self) -> None:
        if self.wait_until and self.wait_until not in MOMENTS:
            raise ValueError(f"wait_until = {self.wait_until!r} must be one of {', '.join(MOMENTS)}.")
        if not 0 <= self.wait <= LONGEST:
            raise ValueError(f"A page may be asked to wait {LONGEST:g} seconds at most, not {self.wait:g}.")


class FetchOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that travels with a task besides its URL, fetcher, pool and country: the spider's instructions for the
    fetch, what is sent, and what the source of the URL says about the page.

    A plain GET has none of it. Texts may refer to secrets (secret_text.py).
    """

    render: Render | None = None
    session: str | None = None  # tasks that name the same one share an identity
    file: Download | None = None  # a file is requested, not a page
    lastmod: float | None = None  # when the page changed, according to its sitemap or feed
    method: str = "GET"
    headers: Pairs = ()
    cookies: Pairs = ()  # for this request only
    auth: tuple[Text, Text] | None = None  # user, password
    body: Body | None = None
    timeout: float | None = None  # seconds for the whole request
    errback: str | None = None  # the spider's method that is called after the final failure
    apart: str = ""  # distinguishes requests that are otherwise alike: whose they are
    retry_unsafe: bool | None = None  # may it be repeated when it is unknown whether it arrived? None: as settings say
    forced: bool = False  # an unsafe request that was queued with `force`: it may repeat an earlier one of its job
    statuses: tuple[int, ...] = ()  # errors and redirects to pass to the callback
    unlinked: bool = False  # links to the same URL are another request

    @property
    def names_secrets(self) -> bool:
        """Does any of its texts refer to a secret?"""
        texts = [value for _, value in (*self.headers, *self.cookies)] + list(self.auth or ())
        parts = self.body.parts if self.body is not None else ()
        return any(is_secret(text) for text in texts) or not all(isinstance(part, bytes) for part in parts)

    @property
    def is_safe(self) -> bool:
        """May it be sent twice without harm?"""
        return self.method in SAFE_METHODS

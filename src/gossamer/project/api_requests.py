"""What programs can ask for over HTTP: a page, a batch of pages, a crawl; and why they do not get it. The jobs are
begun in api_jobs.py."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ..errors import Permanent, Transient
from ..model.page_content import PageContent
from ..model.route import Action
from .extraction import Rules

MOST_ACTIONS = 50  # in a browser, on one page

Format = Literal[
    "html", "clean_html", "text", "markdown", "links", "images", "metadata", "opengraph", "product", "article", "json",
    "screenshot", "records",
]  # fmt: skip
Method = Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
Pairs = Annotated[dict[str, str], Meta(max_length=100)]
Name = Annotated[str, Meta(min_length=1, max_length=100)]
Address = Annotated[str, Meta(min_length=1, max_length=2083)]


class BadRequest(Permanent):
    """What the client asks for cannot be had. The message says what to change."""

    reason = "bad-request"


class TooMuchAtOnce(Transient):
    """The key has as many jobs open as it may."""

    reason = "open-jobs"


class NoWorker(Transient):
    """Nobody would fetch the page that somebody waits for."""

    reason = "no-worker"


class PageAction(Action, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """click, fill, type, select, press, scroll, collect or wait, as spiders have them."""


class RequestedPage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A page, and what is wanted of it."""

    url: Address
    id: Annotated[str, Meta(max_length=200)] = ""  # the client's own name for it
    formats: Annotated[tuple[Format, ...], Meta(max_length=9)] = ("html",)
    extract: Rules | None = None  # fields as in recipes
    content: PageContent | None = None  # which part of the page clean_html and markdown have
    schema: dict[str, Any] | None = None  # JSON Schema of the format json
    method: Method = "GET"
    headers: Pairs | None = None
    cookies: Pairs | None = None
    body: str | None = None  # at most one of body, json and form
    json: Any = None  # any JSON
    form: dict[str, Any] | None = None  # texts, numbers, and lists of them
    use_js_render: bool = False  # show it in a browser
    use_residential: bool = False  # leave through a residential proxy pool
    route: Name | None = None  # a route of the settings, or a kind of transport
    country: Annotated[str, Meta(pattern="^[A-Za-z]{2}$", max_length=2)] | None = None
    wait_for: Annotated[str, Meta(min_length=1, max_length=500)] | None = None  # CSS; the page is shown in a browser
    wait: Annotated[float, Meta(ge=0, le=60)] = 0.0  # seconds, in a browser
    actions: Annotated[tuple[PageAction, ...], Meta(max_length=MOST_ACTIONS)] = ()  # in a browser, in this order

    @property
    def carries(self) -> bool:
        """Is it more than a GET of its address?"""
        bodies = (self.body, self.json, self.form)
        sent = self.headers or self.cookies or self.actions
        return self.method != "GET" or bool(sent) or any(one is not None for one in bodies)

    @property
    def renders(self) -> bool:
        """Is a browser needed?"""
        asked = self.use_js_render or self.wait_for is not None or self.wait > 0 or bool(self.actions)
        return asked or "screenshot" in self.formats


class ScrapeRequest(RequestedPage, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One page, and how long the client waits for it."""

    spider: Name | None = None  # of the catalogue
    recipe: Name | None = None
    callback_url: Address | None = None  # is told when the job has ended
    max_age: Annotated[float, Meta(ge=0, le=366 * 86400)] = 0.0  # seconds: an archived copy may be that old
    timeout: Annotated[float, Meta(ge=0, le=600)] = 60.0  # seconds


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """1 to 100 pages: addresses, for which `formats` and `extract` hold, or requests that say it for themselves."""

    urls: list[Address] = []
    requests: list[RequestedPage] = []
    formats: Annotated[tuple[Format, ...], Meta(max_length=9)] = ("html",)
    extract: Rules | None = None
    spider: Name | None = None
    recipe: Name | None = None
    callback_url: Address | None = None


class CrawlRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A spider or recipe of the catalogue, or the address of a site."""

    spider: Name | None = None
    recipe: Name | None = None
    url: Address | None = None
    arguments: dict[str, Any] | None = None  # of the spider
    limit: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None  # pages
    depth: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None  # steps from the first pages
    rate: Annotated[str, Meta(min_length=1, max_length=50)] | None = None  # of each site, if slower
    callback_url: Address | None = None

"""What clients can request over HTTP: a page, a batch of pages, a crawl; and the errors they may get. api_jobs.py
starts the jobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ...errors import Permanent, Transient
from ...model.page_content import PageContent
from ...model.route import Action
from ...model.task import MAX_PRIORITY
from ..pages.extraction import Rules

MOST_ACTIONS = 50  # in a browser, on one page

Format = Literal[
    "html", "clean_html", "text", "markdown", "links", "images", "metadata", "opengraph", "product", "article", "json",
    "screenshot", "records", "changes",
]  # fmt: skip
Method = Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
Pairs = Annotated[dict[str, str], Meta(max_length=100)]
Name = Annotated[str, Meta(min_length=1, max_length=100)]
Address = Annotated[str, Meta(min_length=1, max_length=2083)]


class BadRequest(Permanent):
    """The request cannot be served. The message says what to change."""

    reason = "bad-request"


class TooMuchAtOnce(Transient):
    """The key has its maximum of open jobs."""

    reason = "open-jobs"


class NoWorker(Transient):
    """No worker is alive to fetch the page that the client waits for."""

    reason = "no-worker"


class PageAction(Action, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """click, fill, type, select, press, scroll, collect or wait, as in spiders."""


class PageOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the client wants from a page, and how it is asked for."""

    formats: Annotated[tuple[Format, ...], Meta(max_length=14)] = ("html",)
    extract: Rules | None = None  # fields as in recipes
    content: PageContent | None = None  # the part of the page for clean_html and markdown
    schema: dict[str, Any] | None = None  # JSON Schema of the format json
    method: Method = "GET"
    headers: Pairs | None = None
    cookies: Pairs | None = None
    body: str | None = None  # at most one of body, json and form
    json: Any = None  # any JSON
    form: dict[str, Any] | None = None  # texts, numbers, and lists of them
    use_js_render: bool = False  # render it in a browser
    use_residential: bool = False  # leave through a residential proxy pool
    route: Name | None = None  # the name of a route, or a kind of transport
    country: Annotated[str, Meta(pattern="^[A-Za-z]{2}$", max_length=2)] | None = None
    wait_for: Annotated[str, Meta(min_length=1, max_length=500)] | None = None  # CSS, in a browser
    wait: Annotated[float, Meta(ge=0, le=60)] = 0.0  # seconds, in a browser
    actions: Annotated[tuple[PageAction, ...], Meta(max_length=MOST_ACTIONS)] = ()  # in a browser, in this order

    @property
    def carries(self) -> bool:
        """Whether it is more than a GET of its URL."""
        bodies = (self.body, self.json, self.form)
        sent = self.headers or self.cookies or self.actions
        return self.method != "GET" or bool(sent) or any(one is not None for one in bodies)

    @property
    def renders(self) -> bool:
        """Whether it needs a browser."""
        asked = self.use_js_render or self.wait_for is not None or self.wait > 0 or bool(self.actions)
        return asked or "screenshot" in self.formats


class RequestedPage(PageOptions, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A page."""

    url: Address
    id: Annotated[str, Meta(max_length=200)] = ""  # the client's own name for it


class ScrapeRequest(RequestedPage, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One page, and how long the client waits for it."""

    spider: Name | None = None  # of the catalogue
    recipe: Name | None = None
    callback_url: Address | None = None  # called when the job has ended
    max_age: Annotated[float, Meta(ge=0, le=366 * 86400)] = 0.0  # seconds: an archived copy may be this old
    timeout: Annotated[float, Meta(ge=0, le=600)] = 60.0  # seconds


class BatchRequest(PageOptions, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """1 to 100 pages: URLs that share their options, or requests with their own."""

    urls: list[Address] = []
    requests: list[RequestedPage] = []
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
    depth: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None  # links from the first pages
    rate: Annotated[str, Meta(min_length=1, max_length=50)] | None = None  # of each site, if slower
    site_concurrency: Annotated[int, Meta(ge=1, le=10_000)] | None = None  # requests at once at one site, if fewer
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | None = None  # among jobs, if lower
    callback_url: Address | None = None

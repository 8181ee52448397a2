"""The demo shop as a web server on loopback. It is friendly, and as odd as the real web:

| what | where |
|---|---|
| two hosts on one server, told apart by Host | shop.localhost, and outlet.localhost with `Crawl-delay: 1` |
| robots.txt closes /admin/ and /cart; the shop's names its sitemap | every page links there anyway |
| links that give 404 | "No longer made", on the last page of every category |
| 500 on the first one or two attempts, then fine | the wares in `HEALS_AFTER` |
| 503 with `Retry-After: 1` on the first attempt | `RESTS` |
| a response after 1.5 seconds | `SLOW` |
| a redirect | /old-catalogue to /catalogue |
| one ware under three URLs | the press links on the home page |
| a product page without its product | `BROKEN` |
| ETag and Last-Modified on every page, 304 when nothing changed | everywhere |
| a login, JSON, a feed, pictures, a page that a script makes | corners.py |

Failures are remembered per shop, so a newly opened shop breaks everything again.
"""

from __future__ import annotations

import errno
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import blake2b
from importlib.resources import files

from aiohttp import web
from aiohttp.typedefs import Handler

from ..clock import Clock, SystemClock
from ..errors import Misconfigured
from . import pages
from .catalogue import CATEGORIES, MANY_NAMED, OPENING_DAY, Catalogue, Ware, category_of, newest
from .corners import Corners

SHOP_HOST = "shop.localhost"
OUTLET_HOST = "outlet.localhost"
USUAL_PORT = 8460  # the same on every run, so that a stopped crawl finds its pages again

HEALS_AFTER = {
    "LIT-009": 1, "LIT-033": 2, "CER-017": 1, "TEX-026": 1, "STA-008": 2, "STA-041": 1, "KIT-035": 1, "GAR-012": 2,
}  # fmt: skip
RESTS = "KIT-022"
SLOW = "CER-031"
SLOW_SECONDS = 1.5
BROKEN = "GAR-044"

SHOP_ROBOTS = """\
User-agent: *
Disallow: /admin/
Disallow: /cart

Sitemap: {url}sitemap.xml
"""
OUTLET_ROBOTS = """\
User-agent: *
Crawl-delay: 1
Disallow: /admin/
"""


class Shop:
    """The site behind one port: what it sells, how it responds. Made by `open_shop`, which serves it."""

    def __init__(self, port: int, *, revision: int = 1, redesigned: bool = False, clock: Clock | None = None) -> None:
        self.port = port
        self._product_page = pages.redesigned_product if redesigned else pages.product
        self.catalogue = Catalogue(revision)
        self._clock = clock or SystemClock()
        self._failures: Counter[str] = Counter()  # path -> failures so far; only for the wares named above
        self._style = files(__package__).joinpath("shop.css").read_text("utf-8")

    @property
    def url(self) -> str:
        return f"http://{SHOP_HOST}:{self.port}/"

    @property
    def outlet_url(self) -> str:
        return f"http://{OUTLET_HOST}:{self.port}/"

    def same_page_links(self) -> tuple[str, str, str]:
        """One page, written in three ways: plain, reordered and tracked, with a fragment."""
        ware = next(ware for ware in self.catalogue.wares if ware.sku == MANY_NAMED)
        turned = "&".join(reversed(ware.options.split("&")))
        return ware.href, f"{ware.path}?utm_source=newsletter&{turned}", f"{ware.href}#reviews"

    def application(self) -> web.Application:
        outlet = web.Application()
        outlet.add_routes(
            [
                web.get("/", self._outlet_front),
                web.get("/product/{slug}", self._outlet_product),
                web.get("/robots.txt", self._outlet_robots),
                web.get("/shop.css", self._stylesheet),
            ]
        )
        shop = web.Application(middlewares=[_plain_errors])
        shop.add_domain(f"{OUTLET_HOST}:{self.port}", outlet)
        shop.add_routes(
            [
                web.get("/", self._front),
                web.get("/catalogue", self._whole_catalogue),
                web.get("/category/{slug}", self._category),
                web.get("/product/{slug}", self._product),
                web.get("/old-catalogue", self._old_catalogue),
                web.post("/api/search", self._search),
                web.get("/cart", self._closed_door),
                web.get("/admin/{rest:.*}", self._closed_door),
                web.get("/robots.txt", self._robots),
                web.get("/sitemap.xml", self._sitemap),
                web.get("/shop.css", self._stylesheet),
                *Corners(self.catalogue, self.url).routes(),
            ]
        )
        return shop

    async def _front(self, request: web.Request) -> web.Response:
        html = pages.front(self.catalogue, outlet_url=self.outlet_url, seen_in=self.same_page_links())
        return _conditional(request, html, newest(self.catalogue.wares))

    async def _whole_catalogue(self, request: web.Request) -> web.Response:
        wares = self.catalogue.wares
        number = _page_number(request, len(wares))
        html = pages.listing("The whole catalogue", "From lamps to watering cans.", "/catalogue", wares, number)
        return _conditional(request, html, newest(wares))

    async def _category(self, request: web.Request) -> web.Response:
        category = category_of(request.match_info["slug"])
        if category is None:
            raise web.HTTPNotFound
        wares = self.catalogue.of(category)
        number = _page_number(request, len(wares))
        gone = []
        if number * pages.PER_PAGE >= len(wares):
            noun = category.nouns[0]
            slug = f"{noun.lower().replace(' ', '-')}-{category.code.lower()}-000"
            gone = [(f"The First {noun}", f"/product/the-first-{slug}")]
        html = pages.listing(category.name, category.blurb, f"/category/{category.slug}", wares, number, gone)
        return _conditional(request, html, newest(wares))

    async def _product(self, request: web.Request) -> web.Response:
        ware = self.catalogue.find(request.match_info["slug"])
        if ware is None or ware in self.catalogue.outlet:
            raise web.HTTPNotFound
        category = category_of(ware.category)
        assert category is not None
        await self._misbehave(ware)
        if ware.sku == BROKEN:
            return _conditional(request, pages.broken_product(category), OPENING_DAY)
        beside = self.catalogue.beside(ware)
        return _conditional(request, self._product_page(ware, category, beside), newest((ware, *beside)))

    async def _search(self, request: web.Request) -> web.Response:
        """A category, as the shop's own scripts request it: {"category": "garden", "page": 1}."""
        try:
            asked = await request.json()
            category, number = category_of(str(asked["category"])), int(asked.get("page", 1))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise web.HTTPBadRequest from None
        wares = self.catalogue.of(category) if category is not None else ()
        last = max(1, -(-len(wares) // pages.PER_PAGE))
        if category is None or not 1 <= number <= last:
            raise web.HTTPNotFound
        shown = wares[(number - 1) * pages.PER_PAGE : number * pages.PER_PAGE]
        return web.json_response({"wares": [{"sku": one.sku, "path": one.href} for one in shown], "pages": last})

    async def _misbehave(self, ware: Ware) -> None:
        if ware.sku == SLOW:
            await self._clock.sleep(SLOW_SECONDS)
        elif ware.sku == RESTS and not self._failures[ware.path]:
            self._failures[ware.path] += 1
            raise web.HTTPServiceUnavailable(headers={"Retry-After": "1"})
        elif self._failures[ware.path] < HEALS_AFTER.get(ware.sku, 0):
            self._failures[ware.path] += 1
            raise web.HTTPInternalServerError

    async def _old_catalogue(self, request: web.Request) -> web.Response:
        raise web.HTTPMovedPermanently("/catalogue")

    async def _closed_door(self, request: web.Request) -> web.Response:
        text = "robots.txt asks crawlers to stay out of here, and yet you came."
        return _html(pages.notice("Please knock", text))

    async def _robots(self, request: web.Request) -> web.Response:
        return web.Response(text=SHOP_ROBOTS.format(url=self.url))

    async def _sitemap(self, request: web.Request) -> web.Response:
        day = newest(self.catalogue.wares).date().isoformat()
        entries = [(self.url, day)]
        entries += [(f"{self.url}category/{category.slug}", day) for category in CATEGORIES]
        entries += [
            (f"{self.url.rstrip('/')}{ware.href}", ware.updated.date().isoformat()) for ware in self.catalogue.wares
        ]
        return web.Response(text=pages.sitemap(entries), content_type="application/xml")

    async def _stylesheet(self, request: web.Request) -> web.Response:
        return web.Response(text=self._style, content_type="text/css")

    async def _outlet_front(self, request: web.Request) -> web.Response:
        html = pages.outlet_front(self.catalogue.outlet, shop_url=self.url)
        return _conditional(request, html, newest(self.catalogue.outlet))

    async def _outlet_product(self, request: web.Request) -> web.Response:
        ware = self.catalogue.find(request.match_info["slug"])
        if ware is None or ware not in self.catalogue.outlet:
            raise web.HTTPNotFound
        return _conditional(request, pages.outlet_product(ware), ware.updated)

    async def _outlet_robots(self, request: web.Request) -> web.Response:
        return web.Response(text=OUTLET_ROBOTS)


@asynccontextmanager
async def open_shop(
    *, port: int | None = 0, revision: int = 1, redesigned: bool = False, clock: Clock | None = None
) -> AsyncIterator[Shop]:
    """Serve the shop on 127.0.0.1 until the block ends. Port 0 takes any free one, and None the usual one, or
    a free one where that is taken; `shop.url` says which. With `redesigned`, its product pages have another layout,
    without JSON-LD.

    Raises Misconfigured if the port cannot be opened, or the revision does not exist.
    """
    if revision < 1:
        raise Misconfigured(f"Revision {revision} of the demo shop does not exist; the first one is 1.")
    with _listen(port) as listener:
        shop = Shop(listener.getsockname()[1], revision=revision, redesigned=redesigned, clock=clock)
        # A crawler that is gone must not keep the shop open: the slow page is cut off after a moment.
        runner = web.AppRunner(shop.application(), access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        try:
            await web.SockSite(runner, listener, backlog=1024).start()
            yield shop
        finally:
            await runner.cleanup()


def _listen(port: int | None) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", USUAL_PORT if port is None else port), backlog=1024)
    except (OSError, OverflowError) as error:
        taken = getattr(error, "errno", None) == errno.EADDRINUSE
        if taken and port is None:
            return _listen(0)
        why = "is already in use" if taken else f"cannot be opened ({error})"
        raise Misconfigured(f"Port {port} {why}. Choose another with --port, or any free one with --port 0.") from error


def _page_number(request: web.Request, count: int) -> int:
    """The requested page, from 1. Raises 404 for a page that is not in this list."""
    text = request.query.get("page", "1")
    last = max(1, -(-count // pages.PER_PAGE))
    if not text.isascii() or not text.isdigit() or len(text) > 6 or not 1 <= int(text) <= last:
        raise web.HTTPNotFound
    return int(text)


def _html(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, content_type="text/html", status=status)


def _conditional(request: web.Request, html: str, modified: datetime) -> web.Response:
    """The page, or 304 if the caller's copy is still current. An entity tag takes precedence over a date (RFC 9110,
    13.2.2)."""
    etag = blake2b(html.encode(), digest_size=12).hexdigest()
    tags = request.if_none_match
    if tags is not None:
        fresh = any(tag.value in (etag, "*") for tag in tags)
    else:
        since = request.if_modified_since
        fresh = since is not None and modified.astimezone(UTC) <= since
    response = web.Response(status=304) if fresh else _html(html)
    response.etag = etag
    response.last_modified = modified
    response.headers["Cache-Control"] = "no-cache"
    return response


@web.middleware
async def _plain_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors look like the rest of the shop."""
    try:
        return await handler(request)
    except web.HTTPError as error:
        words = {404: "There is nothing under this address.", 500: "We dropped something. Please try again."}
        response = _html(pages.notice(error.reason, words.get(error.status, "Back in a second.")), error.status)
        if "Retry-After" in error.headers:
            response.headers["Retry-After"] = error.headers["Retry-After"]
        return response

"""Corners of the demo shop that its own pages do not link, for spiders that need more than links (examples/).

| what | where |
|---|---|
| prices for members, behind a login (ada, `orb & loom`) | /members, /members/login |
| the wares as JSON, page by page | /api/wares |
| a journal with an RSS feed | /journal.xml, /journal/... |
| pictures to download | /lookbook, /pictures/SKU.png |
| a page that a script makes from the JSON | /window |
"""

from __future__ import annotations

import secrets
import struct
import zlib
from datetime import timedelta
from email.utils import format_datetime
from html import escape
from xml.sax.saxutils import escape as xml_escape

from aiohttp import web

from . import pages
from .catalogue import CATEGORIES, CURRENCY, OPENING_DAY, OPENINGS, VOICES, Catalogue, Ware

USER, PASSWORD = "ada", "orb & loom"
WARES_PER_PAGE = 25
LOOKBOOK = 12  # pictures
PICTURE = 32  # pixels
LOGIN = (
    '<form class="login" method="post" action="/members/login"><label>Name <input name="user"></label>'
    '<label>Password <input type="password" name="password"></label><button>Sign in</button></form>'
)
WINDOW = """<ul class="shelf" id="shelf"></ul><script>
(async () => {
  for (let next = "/api/wares"; next;) {
    const page = await (await fetch(next)).json();
    for (const ware of page.wares) {
      const card = document.createElement("li");
      card.className = "ware";
      card.innerHTML = "<b></b> <span class='sku'></span> <span class='price'></span>";
      card.querySelector("b").textContent = ware.name;
      card.querySelector(".sku").textContent = ware.sku;
      card.querySelector(".price").textContent = ware.price ? ware.price + " EUR" : "on request";
      document.getElementById("shelf").append(card);
    }
    next = page.next;
  }
  document.body.dataset.state = "complete";
})();
</script>"""


class Corners:
    """Their handlers. Members stay members as long as the shop is open."""

    def __init__(self, catalogue: Catalogue, url: str) -> None:
        self._catalogue = catalogue
        self._url = url
        self._members: set[str] = set()
        self._stories = [
            (f"from-the-{category.slug}-bench", f"From the {category.name.lower()} bench", category, number)
            for number, category in enumerate(CATEGORIES)
        ]

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/members", self._members_prices),
            web.get("/members/login", self._form),
            web.post("/members/login", self._log_in),
            web.get("/api/wares", self._wares),
            web.get("/journal.xml", self._feed),
            web.get("/journal/{slug}", self._story),
            web.get("/lookbook", self._lookbook),
            web.get("/pictures/{sku}.png", self._picture),
            web.get("/window", self._window),
        ]

    async def _members_prices(self, request: web.Request) -> web.Response:
        if request.cookies.get("member") not in self._members:
            raise web.HTTPSeeOther("/members/login")
        rows = "".join(
            f'<tr><td class="sku">{ware.sku}</td><td class="name">{escape(ware.name)}</td>'
            f'<td class="price">{ware.price * 9 / 10:.2f} {CURRENCY}</td></tr>'
            for ware in self._catalogue.wares
            if ware.price is not None
        )
        return _html(pages.notice("Prices for members", "A tenth less.", f'<table class="members">{rows}</table>'))

    async def _form(self, request: web.Request) -> web.Response:
        return _html(pages.notice("Members", "Please sign in.", LOGIN))

    async def _log_in(self, request: web.Request) -> web.Response:
        form = await request.post()
        if (form.get("user"), form.get("password")) != (USER, PASSWORD):
            return _html(pages.notice("Members", "That is not right.", LOGIN))
        member = secrets.token_hex(8)
        self._members.add(member)
        inside = web.HTTPSeeOther("/members")
        inside.set_cookie("member", member, httponly=True)
        raise inside

    async def _wares(self, request: web.Request) -> web.Response:
        text, wares = request.query.get("page", "1"), self._catalogue.wares
        last = -(-len(wares) // WARES_PER_PAGE)
        if not text.isascii() or not text.isdigit() or len(text) > 6 or not 1 <= int(text) <= last:
            raise web.HTTPNotFound
        number = int(text)
        shown = wares[(number - 1) * WARES_PER_PAGE : number * WARES_PER_PAGE]
        following = f"/api/wares?page={number + 1}" if number < last else None
        return web.json_response({"wares": [_as_json(ware) for ware in shown], "next": following})

    async def _feed(self, request: web.Request) -> web.Response:
        items = "".join(
            f"<item><title>{xml_escape(title)}</title><link>{self._url}journal/{slug}</link>"
            f"<pubDate>{format_datetime(OPENING_DAY + timedelta(days=number))}</pubDate></item>"
            for slug, title, _, number in self._stories
        )
        feed = f"<title>The journal</title><link>{self._url}</link><description>From our benches</description>{items}"
        text = f'<?xml version="1.0" encoding="UTF-8"?><rss version="2.0"><channel>{feed}</channel></rss>'
        return web.Response(text=text, content_type="application/rss+xml")

    async def _story(self, request: web.Request) -> web.Response:
        for slug, title, category, number in self._stories:
            if slug == request.match_info["slug"]:
                day = (OPENING_DAY + timedelta(days=number)).date().isoformat()
                lines = (*OPENINGS, *VOICES)
                text = "".join(f"<p>{escape(category.blurb)} {escape(one)} {escape(lines[0])}</p>" for one in lines)
                head = (
                    f'<h1>{title}</h1><p>by <span class="author">Ines</span>, <time datetime="{day}">{day}</time></p>'
                )
                return _html(pages.page(title, f"<article>{head}{text}</article>"))
        raise web.HTTPNotFound

    async def _lookbook(self, request: web.Request) -> web.Response:
        shown = "".join(
            f'<figure><img src="/pictures/{ware.sku}.png" alt="{escape(ware.name)}">'
            f"<figcaption>{escape(ware.name)}</figcaption></figure>"
            for ware in self._catalogue.wares[:LOOKBOOK]
        )
        return _html(pages.page("Lookbook", shown))

    async def _picture(self, request: web.Request) -> web.Response:
        for ware in self._catalogue.wares:
            if ware.sku == request.match_info["sku"]:
                return web.Response(body=_png(ware), content_type="image/png")
        raise web.HTTPNotFound

    async def _window(self, request: web.Request) -> web.Response:
        return _html(pages.page("Shop window", WINDOW))


def _as_json(ware: Ware) -> dict[str, object]:
    price = str(ware.price) if ware.price is not None else None
    return {
        "sku": ware.sku, "name": ware.name, "brand": ware.brand, "price": price, "currency": CURRENCY,
        "in_stock": ware.availability == "InStock", "path": ware.href,
    }  # fmt: skip


def _png(ware: Ware) -> bytes:
    """A square in the colour of the ware."""
    colour = bytes.fromhex(pages.COLOURS[ware.colour][0].removeprefix("#"))
    rows = (b"\0" + colour * PICTURE) * PICTURE
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", PICTURE, PICTURE, 8, 2, 0, 0, 0)),
        (b"tEXt", b"Title\0" + ware.sku.encode()),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


def _html(text: str) -> web.Response:
    return web.Response(text=text, content_type="text/html")

"""A generated closed shop: pages of 30 to 45 KB with exactly 60 in-site links each, the same for the same seed.

Lives here: what is on the pages, the truth that crawlers must bring home, and the server's log of who fetched what.
`python -m bench.site` serves it; `/__hits` tells the fetches per path, `/__served` their sum, `/__reset` forgets. With
`--hosts 200` the pages lie on that many hosts (`h0.localhost`, ...) in turn, over TLS, and every link names its host.
"""

from __future__ import annotations

import argparse
import gzip
import html
import json
import random
import re
import ssl
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from email.utils import formatdate
from functools import cache

from .server import HTML, NOT_FOUND, json_response, response, serve

PAGES = 1500
LINKS = 60
SEED = 20
SMALLEST, LARGEST = 31_000, 45_000

_NAV, _CRUMBS, _FOOT = 14, 2, 8
_CARDS = LINKS - _NAV - _CRUMBS - _FOOT

ROBOTS = b"User-agent: *\nDisallow: /checkout/\nDisallow: /account/\nAllow: /\n"

_MAKERS = ("Brandt & Söhne", "Ferrum", "Nordlys", "Ölmühle", "Piñata", "Kestrel & Co", "Tessera", "Yarrow")
_ADJECTIVES = ("oiled", "folding", "quiet", "heavy", "woven", "enamelled", "brushed", "small", "tall", "matte")
_NOUNS = ("lamp", "kettle", "bench", "ladder", "satchel", "clock", "drill", "tray", "press", "lantern", "stove")
_WORDS = (
    "the", "a", "of", "and", "with", "for", "from", "under", "over", "light", "water", "steel", "oak",
    "linen", "glass", "handle", "edge", "surface", "weight", "spring", "lid", "joint", "grain", "colour",
    "morning", "kitchen", "workshop", "garden", "winter", "travel", "repair", "cleaning", "comfort",
    "balance", "hand", "turn", "hold", "keeps", "makes", "lasts", "folds", "opens", "closes", "carries",
    "warms", "cools", "dries", "quickly", "easily", "evenly", "quietly", "often", "rarely", "twice",
)  # fmt: skip


@dataclass(frozen=True)
class Product:
    """What a crawler must find on one page."""

    path: str
    title: str
    price: str
    description: str
    sku: str


@cache
def products(pages: int = PAGES, seed: int = SEED) -> tuple[Product, ...]:
    """The truth: one product per page, in page order; the first is the front page."""
    if pages < 4 * LINKS:
        raise SystemExit(f"The site needs at least {4 * LINKS} pages to hold {LINKS} different links on each.")
    return tuple(_product(n, random.Random(f"{seed}/product/{n}")) for n in range(pages))


def _product(n: int, rng: random.Random) -> Product:
    maker, adjective, noun = rng.choice(_MAKERS), rng.choice(_ADJECTIVES), rng.choice(_NOUNS)
    return Product(
        path=f"/product/{adjective}-{noun}-{n:05d}" if n else "/",
        title=f"{maker} {adjective} {noun} No. {n}",
        price=f"€{rng.randint(3, 900)}.{rng.randint(0, 99):02d}",
        description=f"{_sentence(rng, 28)} <{adjective}> & {noun}.",
        sku=f"GB-{n:05d}-{rng.randint(100, 999)}",
    )


def truth(pages: int = PAGES, seed: int = SEED) -> dict[str, dict[str, str]]:
    """The expected records by path: title, price, description, sku."""
    facts = (asdict(product) for product in products(pages, seed))
    return {fact.pop("path"): fact for fact in facts}


def _sentence(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(_WORDS, k=words)).capitalize()


def links_of(n: int, pages: int, rng: random.Random) -> list[int]:
    """The 60 different pages that page `n` leads to. Every page can be reached: 2n+1 and 2n+2 span a tree."""
    fixed = [*range(_NAV), *range(_NAV, _NAV + _FOOT)]
    chosen = dict.fromkeys(fixed)
    for target in ((2 * n + 1) % pages, (2 * n + 2) % pages, (n + 1) % pages):
        chosen[target] = None
    while len(chosen) < LINKS:
        chosen[rng.randrange(pages)] = None
    return list(chosen)


def render(n: int, pages: int = PAGES, seed: int = SEED) -> bytes:
    """The HTML of page `n`."""
    shop = products(pages, seed)
    rng = random.Random(f"{seed}/page/{n}")
    targets = [shop[target] for target in links_of(n, pages, rng)]
    nav, foot = targets[:_NAV], targets[_NAV : _NAV + _FOOT]
    crumbs, cards = targets[_NAV + _FOOT : -_CARDS], targets[-_CARDS:]
    product, size = shop[n], rng.randint(SMALLEST, LARGEST)
    top = _top(product, nav, crumbs, rng)
    bottom = _bottom(cards, foot, rng)
    reviews: list[str] = []
    room = size - len(top.encode()) - len(bottom.encode())
    while room > 600:
        review = _review(rng, words=min(90, max(12, (room - 400) // 7)))
        reviews.append(review)
        room -= len(review)
    return (top + "".join(reviews) + bottom).encode()


def _top(product: Product, nav: Sequence[Product], crumbs: Sequence[Product], rng: random.Random) -> str:
    title, description = html.escape(product.title), html.escape(product.description)
    facts = {
        "@context": "https://schema.org", "@type": "Product", "name": product.title, "sku": product.sku,
        "description": product.description,
        "offers": {"@type": "Offer", "price": product.price[1:], "priceCurrency": "EUR", "availability": "InStock"},
    }  # fmt: skip
    ld = json.dumps(facts).replace("<", "\\u003c")
    styles = "".join(f".c{i}{{margin:{i}px;padding:{i % 7}px;color:#{i * 4099 % 0xFFFFFF:06x}}}" for i in range(40))
    menu = "".join(
        f'<li class="nav-item"><a class="nav-link" href="{p.path}">{html.escape(p.title[:24])}</a></li>' for p in nav
    )
    trail = "".join(f'<li><a href="{p.path}">{html.escape(p.title[:20])}</a></li>' for p in crumbs)
    rows = "".join(
        f'<tr><th scope="row">{_sentence(rng, 2)}</th><td>{rng.randint(1, 999)} <abbr title="unit">mm</abbr></td></tr>'
        for _ in range(24)
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title} | Bench Shop</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="description" content="{description}">
<link rel="stylesheet" href="/assets/shop.css"><style>{styles}</style>
<script type="application/ld+json">{ld}</script>
<script>window.shop = {{"page": "{product.sku}", "flags": [1, 2, 3], "tpl": "<b>not markup</b>"}};</script></head>
<body class="page product"><header class="head"><div class="logo" role="img" aria-label="shop"></div>
<form action="/search" method="get"><input name="q" type="search"><button type="submit">Search</button></form>
<nav class="main-nav"><ul class="nav">{menu}</ul></nav></header>
<ol class="breadcrumb">{trail}</ol><main id="main"><article class="product" data-sku="{product.sku}">
<h1 class="product-title">{title}</h1><p class="price"><span class="amount">{product.price}</span>
<small class="tax">incl. VAT</small></p><div class="gallery"><img src="/i/{product.sku}-1.jpg" alt="{title}">
<img src="/i/{product.sku}-2.jpg" alt=""><img src="/i/{product.sku}-3.jpg" alt=""></div>
<p id="description">{description}</p><p>Item no. <span class="sku">{product.sku}</span></p>
<table class="spec"><tbody>{rows}</tbody></table></article><section class="reviews"><h2>Reviews</h2>
"""


def _review(rng: random.Random, *, words: int) -> str:
    stars = rng.randint(1, 5)
    return (
        f'<div class="review"><div class="review-head">'
        f'<span class="stars" data-stars="{stars}">{"★" * stars}</span>'
        f'<strong>{_sentence(rng, 4)}</strong><time datetime="2026-0{rng.randint(1, 9)}-1{rng.randint(0, 9)}">'
        f'some time ago</time></div><p>{_sentence(rng, words)}.</p><ul class="tags"><li>{rng.choice(_WORDS)}</li>'
        f"<li>{rng.choice(_WORDS)}</li></ul><p><em>{_sentence(rng, 6)}</em> &mdash; helpful?</p></div>\n"
    )


def _bottom(cards: Sequence[Product], foot: Sequence[Product], rng: random.Random) -> str:
    related = "".join(
        f'<div class="card c{i}"><a class="card-link" href="{p.path}">'
        f'<img src="/i/{p.sku}-s.jpg" alt="" loading="lazy">'
        f'<span class="card-title">{html.escape(p.title)}</span></a><div class="card-body">'
        f'<span class="card-price">{p.price}</span>'
        f'<span class="badge">{rng.choice(_ADJECTIVES)}</span></div></div>\n'
        for i, p in enumerate(cards)
    )
    ends = "".join(f'<li><a href="{p.path}">{html.escape(p.title[:18])}</a></li>' for p in foot)
    return (
        f'</section><section class="related"><h2>Related</h2>{related}</section></main><footer><ul>{ends}</ul>'
        f"<p>&copy; Bench Shop</p></footer></body></html>\n"
    )


@dataclass(frozen=True)
class Hosts:
    """Names that share the pages of the site, and the port at which all of them answer over TLS."""

    count: int
    port: int

    def origin(self, n: int) -> str:
        """Where page `n` lies."""
        return f"https://h{n % self.count}.localhost:{self.port}"

    def starts(self, pages: int, seed: int) -> list[str]:
        """A page of each host; the front page is the first."""
        return [f"{self.origin(n)}{product.path}" for n, product in enumerate(products(pages, seed)[: self.count])]

    def named(self, page: bytes) -> bytes:
        """The page with the host in every link."""
        return _HREF.sub(lambda href: b'href="%s%s"' % (self.origin(int(href[2] or 0)).encode(), href[1]), page)


_HREF = re.compile(rb'href="(/(?:product/[^"]*-([0-9]+))?)"')


class Resource:
    """One page as a common web server sends it: with validators, packed for those who take gzip, 304 for a copy that
    is still good."""

    __slots__ = ("_etag", "_packed", "_plain", "_unchanged")

    def __init__(self, body: bytes, number: int, content_type: str) -> None:
        self._etag = f'W/"{68_000_000 + number:x}-{len(body):x}"'
        changed = formatdate(1_780_000_000 + 977 * number, usegmt=True)
        validators = f"Last-Modified: {changed}\r\nETag: {self._etag}\r\n"
        common = f"{validators}Vary: Accept-Encoding\r\nCache-Control: max-age=300\r\nX-Frame-Options: SAMEORIGIN\r\n"
        self._plain = response(body, content_type=content_type, headers=common)
        packed = gzip.compress(body, compresslevel=1, mtime=0)
        self._packed = response(packed, content_type=content_type, headers=f"{common}Content-Encoding: gzip\r\n")
        self._unchanged = response(b"", status="304 Not Modified", content_type=content_type, headers=common)

    def answer(self, head: bytes) -> bytes:
        if self._etag.encode() in head:
            return self._unchanged
        at = head.lower().find(b"\r\naccept-encoding:")
        return self._packed if at >= 0 and b"gzip" in head[at : at + 120] else self._plain


class HitLog:
    """Answers with pages and counts, per path, how often each was sent."""

    def __init__(self, pages: int, seed: int, hosts: Hosts | None) -> None:
        named = hosts.named if hosts is not None else bytes
        bodies = {p.path: named(render(n, pages, seed)) for n, p in enumerate(products(pages, seed))}
        self._pages = {path: Resource(body, n, HTML) for n, (path, body) in enumerate(bodies.items())}
        self._pages["/robots.txt"] = Resource(ROBOTS, 0, "text/plain")
        self._hits: dict[str, int] = {}
        self._served = 0

    def answer(self, path: str, head: bytes) -> tuple[bytes, float]:
        if path.startswith("/__"):
            return json_response(self._report(path)), 0.0
        self._hits[path] = self._hits.get(path, 0) + 1
        self._served += 1
        found = self._pages.get(path)
        return found.answer(head) if found is not None else NOT_FOUND, 0.0

    def _report(self, path: str) -> object:
        if path == "/__hits":
            return self._hits
        if path == "/__reset":
            self._hits, self._served = {}, 0
        return self._served


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--hosts", type=int, default=0, help="names that share the pages; 0: one address, without TLS")
    parser.add_argument("--tls-port", type=int, default=0)
    parser.add_argument("--certificate", help="a file with the certificate of all hosts and its key")
    chosen = parser.parse_args()
    hosts = Hosts(chosen.hosts, chosen.tls_port) if chosen.hosts else None
    tls = None
    if hosts is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chosen.certificate)
        tls = (hosts.port, context)
    serve(HitLog(chosen.pages, chosen.seed, hosts).answer, tls)


if __name__ == "__main__":
    main()

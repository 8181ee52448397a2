"""The shop's pages as HTML: pure functions from wares to text. `shop.py` decides what is served when, and how badly.

Product pages say everything twice, as real shops do: once in visible markup, once as JSON-LD.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from html import escape
from xml.sax.saxutils import escape as xml_escape

from .catalogue import CATEGORIES, CURRENCY, Catalogue, Category, StockState, Ware

PER_PAGE = 20
SHELF_WORDS = {
    StockState.IN_STOCK: "In stock",
    StockState.OUT_OF_STOCK: "Sold out",
    StockState.PRE_ORDER: "Pre-order",
}


COLOURS = {  # of a ware and of its background
    "Moss": ("#6b7f4a", "#e9eddd"),
    "Ochre": ("#c98f36", "#f6ead2"),
    "Chalk": ("#f4f0e6", "#dfe3e0"),
    "Indigo": ("#3f4f8c", "#e0e4f1"),
    "Rust": ("#b4552f", "#f5e0d6"),
    "Sage": ("#9db39a", "#eaf0e8"),
    "Plum": ("#7a4063", "#f0e1ea"),
    "Slate": ("#66727c", "#e4e8eb"),
    "Saffron": ("#e2a72e", "#fbf0d3"),
    "Fern": ("#3f7d58", "#deeee4"),
}


def front(catalogue: Catalogue, *, outlet_url: str, seen_in: Sequence[str]) -> str:
    """The home page. `seen_in` are links to the same ware, each written differently."""
    tiles = "".join(
        f'<a class="tile" href="/category/{category.slug}">{_picture(catalogue.of(category)[n * 3])}'
        f"<b>{category.name}</b><span>{category.blurb}</span></a>"
        for n, category in enumerate(CATEGORIES)
    )
    papers = ("The Sunday Letter", "Home & Hearth", "The Weaver’s Almanac")
    press = " · ".join(
        f'<a href="{escape(href)}">{escape(paper)}</a>' for paper, href in zip(papers, seen_in, strict=True)
    )
    return page(
        "Things for a quiet house",
        f"""<section class="hero"><h1>Things for a quiet house</h1>
<p>{len(catalogue.wares)} well-made objects, spun together by a very small shop.</p>
<a class="button" href="/catalogue">See the whole catalogue</a></section>
<section class="tiles">{tiles}</section>
<section class="note"><p class="press">Our large bath towel, as seen in {press}.</p>
<p>Single pieces and small flaws are at the <a class="outlet" href="{outlet_url}">outlet</a>.</p></section>""",
    )


def listing(
    title: str, blurb: str, path: str, wares: Sequence[Ware], number: int, gone: Sequence[tuple[str, str]] = ()
) -> str:
    """One page of a paginated list, `number` from 1. `gone` are (name, link) of wares that are no longer sold."""
    last = max(1, -(-len(wares) // PER_PAGE))
    shown = wares[(number - 1) * PER_PAGE : number * PER_PAGE]
    discontinued = ""
    if gone:
        rows = "".join(f'<li><a href="{href}">{escape(name)}</a></li>' for name, href in gone)
        discontinued = f'<section class="gone"><h2>No longer made</h2><ul>{rows}</ul></section>'
    return page(
        f"{title}, page {number}" if number > 1 else title,
        f"""<header class="head"><h1>{escape(title)}</h1><p>{escape(blurb)}</p>
<p class="count">{len(wares)} things, page {number} of {last}</p></header>
<ol class="shelf">{"".join(_card(ware) for ware in shown)}</ol>{_pager(path, number, last)}{discontinued}""",
    )


def product(ware: Ware, category: Category, beside: Iterable[Ware]) -> str:
    brand = escape(ware.brand)
    if ware.rating is None:
        rating = '<p class="rating none">No reviews yet</p>'
    else:
        rating = (
            f'<p class="rating">{_stars(float(ware.rating))}<span><span class="score">{ware.rating}</span> of 5, '
            f'<span class="reviews">{ware.reviews}</span> reviews</span></p>'
        )
    voices = "".join(
        f"<blockquote>{_stars(voice.stars)}<p>{escape(voice.text)}</p><cite>{escape(voice.author)}</cite></blockquote>"
        for voice in ware.voices
    )
    cards = "".join(_card(other) for other in beside)
    more = f'<section class="more"><h2>Goes well with</h2><ol class="shelf">{cards}</ol></section>' if cards else ""
    return page(
        ware.name,
        f"""<nav class="crumbs"><a href="/">Home</a> › <a href="/category/{category.slug}">{category.name}</a></nav>
<article class="product">{_picture(ware)}
<div class="facts"><p class="brand">{brand}</p><h1 class="title">{escape(ware.name)}</h1>{rating}
<p class="cost">{_cost(ware)}</p>
<p class="stock {ware.availability.value}">{SHELF_WORDS[ware.availability]}</p>
<p class="text">{escape(ware.text)}</p>
<table class="details"><tr><th>Article</th><td class="sku">{ware.sku}</td></tr>
<tr><th>Colour</th><td>{ware.colour}</td></tr><tr><th>Made by</th><td>{brand}</td></tr></table>
<a class="button" rel="nofollow" href="/cart?add={ware.sku}">Add to cart</a></div></article>
<section class="voices" id="reviews">{voices}</section>{more}""",
        head=f'<script type="application/ld+json">{_json_ld(ware)}</script>',
    )


def redesigned_product(ware: Ware, category: Category, beside: Iterable[Ware]) -> str:
    """The same product after a redesign: other names, other markup, other notations, nothing for machines."""
    amount = f"{ware.price:,.2f} EUR" if ware.price is not None else "Ask us"
    before = f"<del>{ware.old_price:,.2f} EUR</del> " if ware.old_price else ""
    score = f"<li>Score: {ware.rating} out of 5 from {ware.reviews} people</li>" if ware.rating is not None else ""
    cards = "".join(_card(other) for other in beside)
    return page(
        ware.name,
        f"""<main class="pdp">{_picture(ware)}<h2 class="pdp-head">{escape(ware.name)}</h2>
<div class="pdp-buy">{before}<strong>{amount}</strong><em>{SHELF_WORDS[ware.availability]}</em></div>
<ul class="pdp-facts"><li>Maker: {escape(ware.brand)}</li><li>Item no.: {ware.sku}</li>{score}
<li>Colour: {ware.colour}</li></ul><div class="pdp-story">{escape(ware.text)}</div>
<ol class="shelf">{cards}</ol></main>""",
    )


def broken_product(category: Category) -> str:
    """A product page that lost its product: no name, no price, no article number, no JSON-LD, and still a 200."""
    return page(
        "…",
        f"""<nav class="crumbs"><a href="/">Home</a> › <a href="/category/{category.slug}">{category.name}</a></nav>
<article class="product"><div class="skeleton"></div><div class="facts"><p class="skeleton line"></p>
<p class="skeleton line short"></p><p class="skeleton line"></p></div></article>""",
    )


def outlet_front(wares: Sequence[Ware], *, shop_url: str) -> str:
    return page(
        "Outlet",
        f"""<header class="head"><h1>The outlet</h1>
<p>Single pieces. Please take your time: one page a second is plenty.</p></header>
<ol class="shelf">{"".join(_card(ware) for ware in wares)}</ol>
<section class="note"><p>Everything else is in the <a href="{shop_url}">shop</a>.</p></section>""",
        outlet=True,
    )


def outlet_product(ware: Ware) -> str:
    return page(
        ware.name,
        f"""<nav class="crumbs"><a href="/">Outlet</a></nav><article class="product">{_picture(ware)}
<div class="facts"><p class="brand">{escape(ware.brand)}</p><h1 class="title">{escape(ware.name)}</h1>
<p class="cost">{_cost(ware)}</p><p class="stock {ware.availability.value}">{SHELF_WORDS[ware.availability]}</p>
<p class="text">{escape(ware.text)}</p>
<table class="details"><tr><th>Article</th><td class="sku">{ware.sku}</td></tr></table></div></article>""",
        head=f'<script type="application/ld+json">{_json_ld(ware)}</script>',
        outlet=True,
    )


def notice(title: str, text: str, more: str = "") -> str:
    """A page with only a message: the cart, the staff door, an error. `more` is markup below it."""
    return page(title, f'<section class="hero"><h1>{escape(title)}</h1><p>{escape(text)}</p>{more}</section>')


def sitemap(entries: Iterable[tuple[str, str]]) -> str:
    """`entries` are (absolute URL, day of the last change)."""
    rows = "".join(f"<url><loc>{xml_escape(loc)}</loc><lastmod>{day}</lastmod></url>\n" for loc, day in entries)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{rows}</urlset>\n'
    )


def _money(amount: Decimal) -> str:
    return f"€{amount:,.2f}"


def _cost(ware: Ware) -> str:
    if ware.price is None:
        return '<span class="on-request">Price on request</span>'
    before = f' <s class="was">{_money(ware.old_price)}</s>' if ware.old_price else ""
    return f'<span class="price">{_money(ware.price)}</span>{before}'


def _picture(ware: Ware) -> str:
    """A square in the colours of the ware with its initial; the style sheet sets its size."""
    body, ground = COLOURS[ware.colour]
    return (
        f'<svg class="picture" viewBox="0 0 200 200" role="img" aria-label="{ware.noun}">'
        f'<rect width="200" height="200" fill="{ground}"/><circle cx="100" cy="100" r="62" fill="{body}"/>'
        f'<text x="100" y="124" font-size="68" text-anchor="middle" fill="{ground}">{ware.noun[0]}</text></svg>'
    )


def _stars(rating: float) -> str:
    """Five stars, as many of them filled as the rating says."""
    filled = round(rating)
    return f'<span class="stars" aria-hidden="true">{"★" * filled}<i>{"★" * (5 - filled)}</i></span>'


def _card(ware: Ware) -> str:
    sold_out = "" if ware.availability is StockState.IN_STOCK else " off"
    return (
        f'<li class="card{sold_out}"><a href="{escape(ware.href)}">{_picture(ware)}<h3>{escape(ware.name)}</h3></a>'
        f'<p class="cost">{_cost(ware)}</p></li>'
    )


def _pager(path: str, number: int, last: int) -> str:
    def link(n: int) -> str:
        return path if n == 1 else f"{path}?page={n}"

    back = f'<a rel="prev" class="prev" href="{link(number - 1)}">← Previous</a>' if number > 1 else "<span></span>"
    onward = f'<a rel="next" class="next" href="{link(number + 1)}">Next →</a>' if number < last else "<span></span>"
    return f'<nav class="pager">{back}<span>{number} / {last}</span>{onward}</nav>'


def _json_ld(ware: Ware) -> str:
    offer: dict[str, object] = {
        "@type": "Offer",
        "priceCurrency": CURRENCY,
        "availability": f"https://schema.org/{ware.availability}",
    }
    if ware.price is not None:
        offer["price"] = str(ware.price)
    data: dict[str, object] = {
        "@context": "https://schema.org",
        "@type": "Product",
        "name": ware.name,
        "sku": ware.sku,
        "description": ware.text,
        "brand": {"@type": "Brand", "name": ware.brand},
        "offers": offer,
    }
    if ware.rating is not None:
        data["aggregateRating"] = {
            "@type": "AggregateRating",
            "ratingValue": str(ware.rating),
            "bestRating": "5",
            "reviewCount": ware.reviews,
        }
    # "</" would end the script element early.
    return json.dumps(data, ensure_ascii=False).replace("</", "<\\/")


def page(title: str, body: str, *, head: str = "", outlet: bool = False) -> str:
    """A whole page of the shop around this body."""
    name = "Orb & Loom Outlet" if outlet else "Orb & Loom"
    menu = "".join(f'<a href="/category/{category.slug}">{category.name}</a>' for category in CATEGORIES)
    top = "" if outlet else f'<nav class="menu">{menu}<a class="cart" rel="nofollow" href="/cart">Cart</a></nav>'
    foot = (
        ""
        if outlet
        else '<nav><a href="/catalogue">Catalogue</a><a href="/old-catalogue">Last year’s catalogue</a>'
        '<a href="/admin/" rel="nofollow">Staff</a></nav>'
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)} · {escape(name)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="stylesheet" href="/shop.css">
<link rel="icon" href="data:,">{head}</head>
<body><header class="top"><a class="logo" href="/">{_LOGO}{escape(name)}</a>{top}</header>
<main>{body}</main>
<footer class="foot"><p>{escape(name)} is a demo that comes with Gossamer. Nothing is for sale.</p>{foot}</footer>
</body></html>
"""


_LOGO = (
    '<svg viewBox="0 0 24 24" aria-hidden="true"><g fill="none" stroke="currentColor" stroke-width="1.2">'
    '<path d="M12 1v22M2.5 6.5l19 11M21.5 6.5l-19 11"/><path d="M12 8l3.5 2v4L12 16l-3.5-2v-4z"/>'
    '<path d="M12 4l7 4v8l-7 4-7-4V8z"/></g></svg>'
)

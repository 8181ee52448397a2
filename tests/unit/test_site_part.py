"""Which addresses belong to a part of a site, and what of a page is content."""

from __future__ import annotations

import pytest

from gossamer.errors import Misconfigured, ParseFailed
from gossamer.extract.article.content import content_html, content_markdown, pictures_of
from gossamer.extract.schema_values import values_by_schema
from gossamer.model.page import Headers, Snapshot
from gossamer.model.page_content import PageContent
from gossamer.model.site_part import LARGEST_PART, BadPattern, SitePart
from gossamer.model.task import Request
from gossamer.parse import site
from gossamer.parse.page import Page
from gossamer.parse.site import SitePartSpider, WebPage

DOCS = "https://shop.example/docs/"


def page_of(body: str, url: str = DOCS) -> Page:
    headers = Headers((("content-type", "text/html; charset=utf-8"),))
    return Page(
        Snapshot(
            url=url, requested_url=url, status=200, headers=headers, body=body.encode(), fetched_at=1_800_000_000.0
        )
    )


@pytest.mark.parametrize(
    ("terms", "url", "wanted"),
    [
        ({}, f"{DOCS}a", True),
        ({}, "https://www.shop.example/docs/a", True),
        ({}, "https://shop.example/", False),
        ({"whole_host": True}, "https://shop.example/", True),
        ({}, "https://blog.shop.example/docs/a", False),
        ({"subdomains": True}, "https://blog.shop.example/x", True),
        ({}, "https://other.example/docs/a", False),
        ({"other_sites": True}, "https://other.example/x", True),
        ({"include": ("a$",)}, f"{DOCS}a", True),
        ({"include": ("a$",)}, f"{DOCS}b", False),
        ({"include": ("a$",)}, f"{DOCS}b?x=a", False),  # the path alone
        ({"include": ("a$",), "match_address": True}, f"{DOCS}b?x=a", True),
        ({"include": ("docs",), "exclude": ("a$",)}, f"{DOCS}a", False),
    ],
)
def test_an_address_belongs_to_a_part_or_not(terms: dict, url: str, wanted: bool) -> None:
    assert (SitePart(url=DOCS, **terms).page(url) == url) is wanted


def test_addresses_that_differ_in_their_query_can_be_one() -> None:
    assert SitePart(url=DOCS, drop_query=True).page(f"{DOCS}a?page=2#top") == f"{DOCS}a"


@pytest.mark.parametrize(
    "pattern", ["(", "x" * 1000, "[z-a]", "/größe", "\ud800", "(?=a)", r"(a)\1", r"a{1001}", "a++"]
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        SitePart(url=DOCS, include=(pattern,)).check()


def test_patterns_that_are_too_large_together_are_refused_where_the_crawl_begins_and_where_it_is_read() -> None:
    part = SitePart(url=DOCS, exclude=tuple(f"{n}(?:[ab]?){{200}}$" for n in range(20)))
    with pytest.raises(BadPattern, match="too large together"):
        part.check()
    with pytest.raises(Misconfigured, match="too large together"):  # a row of the queue
        SitePartSpider(part, Request(url=DOCS))
    SitePart(url=DOCS, include=tuple(f"^/docs/[a-z]+/{n}/.*[.]html$" for n in range(50))).check()
    assert LARGEST_PART >= 50 * 100


def test_many_patterns_that_take_a_little_end_the_page_and_not_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "MATCHING", -1.0)
    quick = SitePartSpider(SitePart(url=DOCS, include=("a",)), Request(url=DOCS))
    with pytest.raises(ParseFailed, match="one page"):
        list(quick.parse(page_of("<a href='/docs/a'>x</a>")))


def test_an_address_of_any_length_is_left_out_and_not_matched() -> None:
    assert SitePart(url=DOCS, exclude=("zzz",)).page(f"{DOCS}{'a' * 3000}") is None


def test_the_spider_keeps_to_its_part_and_asks_as_it_was_told() -> None:
    links = "".join(f"<a href='{href}'>x</a>" for href in ("/docs/a", "/docs/a", "/shop", "https://other.example/"))
    asked = Request(url=DOCS, fetcher="browser", country="de")
    found = list(SitePartSpider(SitePart(url=DOCS), asked).parse(page_of(links)))
    unwanted = list(SitePartSpider(SitePart(url=DOCS, include=("a$",)), asked, follows=False).parse(page_of(links)))

    assert [type(one) for one in found] == [WebPage, Request]
    assert found[1] == Request(url=f"{DOCS}a", fetcher="browser", country="de")
    assert unwanted == []


BODY = """<body><nav><a href="/menu">Menu</a></nav><main><h1>Lamps</h1><p class="lead">Light.</p><img src="/a.png">
<img src="data:image/png;base64,AAAA"><div id="ad">Buy!</div></main><script>x()</script><footer>Imprint</footer>"""


def test_a_part_of_a_page_is_chosen_by_its_elements() -> None:
    page = page_of(BODY)

    assert "Menu" not in content_html(page)
    assert "Imprint" not in content_html(page)
    whole = content_html(page, PageContent(only_main=False, exclude=("#ad",)))
    assert "Menu" in whole
    assert 'src="https://shop.example/a.png"' in whole
    assert not [part for part in ("Buy!", "x()", "data:") if part in whole]
    assert content_markdown(page, PageContent(include=("h1", "p.lead"))) == "# Lamps\n\nLight."
    assert pictures_of(page) == ["https://shop.example/a.png"]
    assert page.css("nav")  # the page itself is as it was


@pytest.mark.parametrize("selector", ["p:has(a)", "p, a", "", "a::before", "*" * 300, "a\n{", "p:nth-child(2)"])
def test_selectors_that_could_cost_much_are_refused(selector: str) -> None:
    assert PageContent(include=(selector,)).fault()


@pytest.mark.parametrize(
    "selector", ["nav", ".menu", "#top", "div.a.b", "[role=main]", "main > p", "ul li a", '[href^="x"]']
)
def test_plain_selectors_are_taken(selector: str) -> None:
    assert PageContent(include=(selector,)).fault() == ""


def test_a_schema_is_filled_by_what_the_page_states_and_nothing_else() -> None:
    page = page_of("""<html lang=en><title>Brass lamp</title><script type="application/ld+json">
    {"@type": "Product", "name": "Brass lamp", "sku": "L-1", "brand": {"name": "Lumo"}, "aggregateRating":
     {"ratingValue": "4.5", "reviewCount": 12}, "offers": {"price": "19.90", "priceCurrency": "EUR",
     "availability": "https://schema.org/InStock"}}</script><h1>Brass lamp</h1></html>""")
    text, number = {"type": "string"}, {"type": "number"}
    schema = {
        "properties": {
            "title": text,
            "price": number,
            "currency": {"anyOf": [text, {"type": "null"}]},
            "brand": text,
            "review_count": {"type": "integer"},
            "colour": text,
            "offer": {"type": "object", "properties": {"price": text, "nothing": text}},
            "tags": {"type": "array", "items": text},
        }
    }
    assert values_by_schema(page, schema) == {
        "title": "Brass lamp", "price": 19.9, "currency": "EUR", "brand": "Lumo", "review_count": 12, "colour": None,
        "offer": {"price": "19.90", "nothing": None}, "tags": None,
    }  # fmt: skip
    hostile = [{}, {"properties": 5}, {"properties": {"a": 5}}, {"properties": {"a": {"type": ["null"], "anyOf": []}}}]
    for one in hostile:
        values_by_schema(page, one)

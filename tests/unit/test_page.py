"""What a spider sees of a page: selectors, links, requests to follow, data of every sort."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import InvalidUrl, ParseFailed
from gossamer.extract.links import LinkBase
from gossamer.extract.media import Media
from gossamer.model.page import Headers, Snapshot
from gossamer.model.url import parse_url
from gossamer.parse.page import Page
from tests.patience import PATIENCE

HTML = "text/html; charset=utf-8"


def page_of(
    body: str | bytes,
    *,
    content_type: str = HTML,
    url: str = "https://shop.example/dir/page?q=1",
    data: str = "",
    spider: object | None = None,
) -> Page:
    return Page(
        Snapshot(
            url=url,
            requested_url="https://shop.example/asked",
            status=200,
            headers=Headers([("Content-Type", content_type)]),
            body=body.encode() if isinstance(body, str) else body,
            fetched_at=1_800_000_000.0,
            kind="listing",
            job="books-1",
            data=data,
        ),
        depth=2,
        spider=spider,
    )


class Shop:
    def detail(self, page: Page) -> None: ...


def test_page_tells_where_it_came_from() -> None:
    page = page_of("<title> A \n shop </title>", data='{"a":[1]}')
    assert (page.url, page.requested_url) == ("https://shop.example/dir/page?q=1", "https://shop.example/asked")
    assert (page.status, page.depth, page.job, page.kind, page.cut) == (200, 2, "books-1", "listing", False)
    assert page.headers.get("content-type") == HTML
    assert page.title == "A shop"
    assert page.data == {"a": [1]}


def test_one_tree_serves_every_question() -> None:
    page = page_of("<p>a</p><a href=x>y</a>")
    page.css("p")
    tree = page.tree
    page.links()
    page.xpath("//a")
    page.structured()
    assert page.tree is tree


def test_links_are_absolute_web_addresses_each_once_in_order() -> None:
    page = page_of(
        """<a href="b.html">1</a><a href="/c#part">2</a><a href=" ../d ">3</a><map><area href="//other.example/e"></map>
        <a href="/c">again</a><a href="#top">top</a><a href="mailto:a@b.example">m</a><a href="javascript:x()">j</a>
        <a href="data:text/plain,x">d</a><a href="http://[bad/">bad</a><a>none</a><a href="">empty</a>
        <a href="HTTP://SHOP.example:80/é?ü">f</a><a href="ftp://f.example/">ftp</a><link href="/style.css">"""
    )
    assert page.links() == [
        "https://shop.example/dir/b.html",
        "https://shop.example/c",
        "https://shop.example/d",
        "https://other.example/e",
        "http://shop.example/%C3%A9?%C3%BC",
    ]


def test_nofollow_links_can_be_left_out() -> None:
    page = page_of('<a href="/a">a</a><a rel="ugc NoFollow" href="/b">b</a><a rel="next" href="/c">c</a>')
    assert len(page.links()) == 3
    assert page.links(nofollow=False) == ["https://shop.example/a", "https://shop.example/c"]


@pytest.mark.parametrize(
    ("base", "link"),
    [
        ("/other/", "https://shop.example/other/x"),
        ("https://cdn.example/y/", "https://cdn.example/y/x"),
        ("javascript:1", "https://shop.example/dir/x"),
        ("http://[/", "https://shop.example/dir/x"),
    ],
)
def test_base_href_is_honoured_when_it_is_a_web_address(base: str, link: str) -> None:
    page = page_of(f'<base href="{base}"><a href="x">x</a>')
    assert page.links() == [link]
    assert page.urljoin("x") == link


def test_queries_are_written_in_the_encoding_of_the_page() -> None:
    body = '<a href="/поиск?q=чай#ч">x</a>'.encode("windows-1251")
    page = page_of(body, content_type="text/html; charset=windows-1251")
    assert page.links() == ["https://shop.example/%D0%BF%D0%BE%D0%B8%D1%81%D0%BA?q=%F7%E0%E9"]


@given(
    st.lists(
        st.text(alphabet="abc/.?#:@%2e\\é '\"<>|^`{}[]\t\n&=;-_~!$()*+,\ud800", max_size=15)
        | st.sampled_from(["http:", "https://h.example", "///x", "//", "../../..", "http:x", "?", "?a=1#b", "xn--a/"]),
        max_size=5,
    )
)
def test_links_agree_with_the_url_rules_of_the_house(hrefs: list[str]) -> None:
    page = page_of("<p>")
    expected: dict[str, None] = {}
    for href in hrefs:
        try:
            if href and not href.startswith("#"):
                expected[parse_url(href, page.url).partition("#")[0]] = None
        except InvalidUrl:
            continue
    assert page.link_base.web_links(hrefs) == list(expected)


def joined(base: str, link: str) -> str | None:
    try:
        return parse_url(link, base)
    except InvalidUrl:
        return None


@given(
    st.lists(
        st.sampled_from(("/a/b", "/a/c?x=/d/", "/a/", "/a/b#/z", "/a/b/..", "/a\\b", "/a%2Fb", "", "/a//", "/a/b/c"))
    ),
    st.lists(st.text(alphabet="ab/.?#:@%2e\\ é[]\t~-_;", max_size=6), max_size=6),
)
def test_what_is_known_about_a_link_of_one_page_holds_for_the_others_of_its_folder(
    paths: list[str], links: list[str]
) -> None:
    """Addresses are remembered by folder: pages that have the same links, one after another."""
    for base in (f"https://shop.example{path}" for path in paths):
        expected = [joined(base, link) for link in links]
        for _ in range(2):
            assert LinkBase(base).all_absolute(links) == [one for one in expected if one is not None]
        web = [
            one.partition("#")[0]
            for one, link in zip(expected, links, strict=True)
            if one and link[:1] not in ("", "#")
        ]
        assert LinkBase(base).web_links(links) == list(dict.fromkeys(web))


def test_urljoin_refuses_what_cannot_be_crawled() -> None:
    with pytest.raises(InvalidUrl, match="mailto"):
        page_of("").urljoin("mailto:a@b.example")


def test_follow_takes_addresses_elements_and_attributes() -> None:
    shop = Shop()
    page = page_of('<a href="/1">x</a><link rel="next" href="/2">', spider=shop)
    assert page.follow("/0#f").url == "https://shop.example/0#f"
    assert page.follow(page.css("a")[0]).url == "https://shop.example/1"
    assert page.follow(page.css("link")[0]).url == "https://shop.example/2"
    assert page.follow(page.css("a::attr(href)")[0]).url == "https://shop.example/1"


def test_follow_passes_everything_on() -> None:
    shop = Shop()
    request = page_of("", spider=shop).follow("x", shop.detail, priority=8, data={"a": 1}, force=True, max_attempts=2)
    assert (request.kind, request.priority, request.data) == ("detail", 8, {"a": 1})
    assert (request.force, request.max_attempts) == (True, 2)


def test_follow_without_callback_parses_like_this_page() -> None:
    assert page_of("").follow("x").kind == "listing"
    assert page_of("").follow("x", "by_name").kind == "by_name"


def test_callbacks_that_have_no_lasting_name_are_refused() -> None:
    shop = Shop()
    page = page_of("", spider=shop)

    def loose(page: Page) -> None: ...

    callbacks: list[Any] = [lambda page: None, loose, Shop().detail, Shop.detail, "x".upper]
    for callback in callbacks:
        with pytest.raises(ParseFailed, match="method of the spider"):
            page.follow("x", callback)


def test_follow_refuses_what_is_no_single_link() -> None:
    page = page_of('<a href="/1">x</a><p>')
    wrong: Any = page.css("a")
    with pytest.raises(ParseFailed, match="follow_all"):
        page.follow(wrong)
    with pytest.raises(ParseFailed, match="no href"):
        page.follow(page.css("p")[0])
    wrong = None
    with pytest.raises(ParseFailed, match="NoneType"):
        page.follow(wrong)


def test_follow_all_skips_links_that_lead_nowhere() -> None:
    page = page_of(
        '<a href="/1">x</a><a>none</a><a href="mailto:x@y.example">m</a><a href="http://[/">b</a><a href="2">'
    )
    assert [request.url for request in page.follow_all("a", "detail", priority=3)] == [
        "https://shop.example/1",
        "https://shop.example/dir/2",
    ]
    assert {(request.kind, request.priority) for request in page.follow_all("a", "detail", priority=3)} == {
        ("detail", 3)
    }
    assert [request.url for request in page.follow_all(page.css("a::attr(href)"))] == [
        "https://shop.example/1",
        "https://shop.example/dir/2",
    ]
    assert [request.url for request in page.follow_all(["a", "b"])] == [
        "https://shop.example/dir/a",
        "https://shop.example/dir/b",
    ]


def test_json_is_decoded_whatever_its_charset() -> None:
    assert page_of('{"a": "é"}', content_type="application/json").json() == {"a": "é"}
    latin = '{"a": "é"}'.encode("latin-1")
    assert page_of(latin, content_type="application/json; charset=latin1").json() == {"a": "é"}
    assert page_of(b'\xef\xbb\xbf{"a": 1}', content_type="application/json").json() == {"a": 1}
    with pytest.raises(ParseFailed, match="is not JSON"):
        page_of("<html>").json()


@pytest.mark.parametrize(
    ("body", "content_type", "media"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00", "image/png", Media.BINARY),
        (b"\x00\x01<a href=x>", "text/html", Media.BINARY),
        (b'{"a": 1}', "application/json", Media.JSON),
        (b'{"a": 1}', "", Media.JSON),
        (b"plain < text", "text/plain", Media.TEXT),
        (b"%!PS", "application/postscript", Media.BINARY),
        (b"body {}", "text/css", Media.TEXT),
    ],
)
def test_other_content_has_no_elements_and_breaks_nothing(body: bytes, content_type: str, media: Media) -> None:
    page = page_of(body, content_type=content_type)
    assert page.media is media
    assert page.css("*") == []
    assert page.xpath("//a") == []
    assert page.links() == []
    assert page.title is None
    assert page.attrib == {}
    assert page.main_text() == page.markdown() == ""
    assert page.structured()["json_ld"] == []
    assert isinstance(page.text, str)
    assert page.follow("x").url == "https://shop.example/dir/x"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("<p>x", HTML),
        ("<p>x", ""),
        ("<!DOCTYPE html><p>x", "text/plain"),
        ('<?xml version="1.0"?><html><p>x</p></html>', "application/xhtml+xml"),
        ("<p>x".encode("utf-16"), "text/html"),
    ],
)
def test_html_is_known_by_label_or_look(body: str | bytes, content_type: str) -> None:
    assert page_of(body, content_type=content_type).css("p::text").get() == "x"


def test_empty_page_is_a_page() -> None:
    page = page_of(b"")
    assert (page.text, page.title, page.links(), page.css("p").getall()) == ("", None, [], [])


def test_xml_keeps_its_own_elements() -> None:
    feed = '<?xml version="1.0" encoding="iso-8859-1"?><urlset xmlns="x"><url><loc>http://é/</loc></url></urlset>'
    page = page_of(feed.encode("latin-1"), content_type="application/xml")
    assert page.media is Media.XML
    assert page.css("url > loc::text").getall() == ["http://é/"]
    assert page.xpath("//loc/text()").get() == "http://é/"


def test_broken_xml_is_read_as_browsers_read_html() -> None:
    page = page_of("<a><b>x</a>", content_type="text/xml")
    assert page.css("b::text").get() == "x"


def test_structured_data_is_plain_json() -> None:
    page = page_of(
        """<meta name="Description" content="d"><meta property="og:image" content="/i.png">
        <script type="application/ld+json">{"@type": "Product", "name": "N"}</script>
        <script type="application/ld+json">{broken</script>
        <div itemscope itemtype="http://schema.org/Offer"><a itemprop="url" href="/o">o</a>
        <div itemprop="seller" itemscope><b itemprop="name">S</b></div></div>"""
    )
    data = page.structured()
    assert data["json_ld"] == [{"@type": "Product", "name": "N"}]
    assert data["opengraph"] == {"og:image": "https://shop.example/i.png"}
    assert data["meta"] == {"description": "d"}
    assert data["microdata"] == [
        {
            "type": "http://schema.org/Offer",
            "properties": {
                "url": ["https://shop.example/o"],
                "seller": [{"type": None, "properties": {"name": ["S"]}}],
            },
        }
    ]
    json.dumps(data)


def test_structured_data_nested_beyond_reason_is_left_out() -> None:
    block = "[" * 400 + "1" + "]" * 400
    items = "<div itemscope itemprop=p>" * 300
    page = page_of(f'<script type="application/ld+json">{block}</script><div itemscope>{items}')
    data = page.structured()
    assert data["json_ld"] == []
    json.dumps(data)


def test_main_content_leaves_menus_out() -> None:
    words = "Loose-leaf tea steeps best just off the boil, and it wants time to do so. " * 8
    page = page_of(f"<nav><a href=/>Home</a></nav><article><h1>Tea</h1><p>{words}</p></article><aside>Ads</aside>")
    assert "steeps best" in page.main_text()
    assert "Ads" not in page.main_text()
    assert page.markdown().startswith("# Tea")


HOSTILE = """
import sys
from gossamer.model.page import Headers, Snapshot
from gossamer.parse.page import Page
from gossamer.parse.site import SiteSpider

body = eval(sys.argv[1])
page = Page(Snapshot(url="http://h.example/", requested_url="http://h.example/", status=200,
    headers=Headers([("Content-Type", sys.argv[2])]), body=body, fetched_at=0.0))
page.css("div a::text").getall(); page.css("div ::text").get(); page.xpath("//a/@href").getall()
page.links(); page.structured(); page.markdown(); page.main_text(); page.title; len(page.text)
page.selector.text; len(page.selector.get()); page.css("b").text
list(SiteSpider(["http://h.example/"]).parse(page))
del page
print("alive")
"""


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("b'<div>' * 1_000_000 + b'<a href=/x>y'", "text/html"),
        pytest.param("b'<b><p>' * 20_000", "text/html", marks=pytest.mark.long),
        pytest.param("b'<table><tr><td>' * 20_000", "text/html", marks=pytest.mark.long),
        pytest.param("b'<div itemscope itemprop=a>' * 20_000", "text/html", marks=pytest.mark.long),
        pytest.param("b'<a>' * 300_000 + b'</a>' * 300_000", "application/xml", marks=pytest.mark.long),
        ("bytes(range(256)) * 4000", "text/html; charset=utf-16"),
    ],
)
def test_hostile_pages_neither_crash_nor_hang(body: str, content_type: str) -> None:
    # in a process of its own: a stack that overflows takes the process with it
    ended = subprocess.run(
        [sys.executable, "-c", HOSTILE, body, content_type],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.stdout == "alive\n", ended.stderr[-2000:]


def test_links_in_markdown_are_absolute_and_the_page_keeps_its_own():
    page = page_of("<main><h1>A</h1><p>Some text with <a href='/cart?add=1'>a link</a> in it.</p></main>")

    assert "(https://shop.example/cart?add=1)" in page.markdown()
    assert page.css("a::attr(href)").get() == "/cart?add=1"

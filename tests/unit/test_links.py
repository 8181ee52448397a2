"""Where a page leads to: the links that a browser or a search engine would follow, and every other address of it."""

from __future__ import annotations

import time

import pytest

from gossamer.model.page import Headers, Snapshot
from gossamer.model.task import Request
from gossamer.parse.page import Page
from gossamer.parse.site import SiteSpider
from gossamer.parse.wide_links import addresses_of_set, refresh_target

HERE = "https://a.example/dir/page"
X = "https://a.example/x"


def page_of(markup: str, *headers: tuple[str, str]) -> Page:
    given = Headers([("Content-Type", "text/html; charset=utf-8"), *headers])
    return Page(Snapshot(url=HERE, requested_url=HERE, status=200, headers=given, body=markup.encode(), fetched_at=0.0))


@pytest.mark.parametrize(
    ("markup", "headers"),
    [
        ("<a href=/x>x</a>", []),
        ("<map><area href=/x></map>", []),
        ('<meta http-equiv=refresh content="0; url=/x">', []),
        ("<meta http-equiv=Refresh content=\"5;URL='/x'\">", []),
        ('<meta http-equiv=refresh content="3, /x">', []),
        ("", [("Refresh", "0; url=/x")]),
        ("<frameset><frame src=/x></frameset>", []),
        ("<iframe src=/x></iframe>", []),
        ("", [("Link", '</x>; rel="next"')]),
        ("", [("Link", "</style.css>; rel=preload; as=style, </x>; rel=canonical")]),
        ("", [("Link", '<https://a.example/x>; title="a, b"; rel="alternate"; hreflang="de"')]),
        ("<link rel=next href=/x>", []),
        ("<link rel='alternate' hreflang=de href=/x>", []),
        ("<link rel=CANONICAL href=/x>", []),
        ("<form action=/x><button>Go on</button></form>", []),
        ("<form method=GET action=/x><input type=submit value=Go></form>", []),
        ("""<div onclick="location.href = '/x'">x</div>""", []),
        ("""<button onclick='if (ready) window.location="/x"; return false'>x</button>""", []),
        ("""<li onclick="window.location.assign('/x')">x</li>""", []),
        ("""<p onclick="document.location.replace( '/x' )">x</p>""", []),
        ("""<span onclick="window.open('/x', '_blank')">x</span>""", []),
        ("<svg><a xlink:href=/x><text>x</text></a></svg>", []),
    ],
)
def test_what_a_browser_or_a_search_engine_would_follow(markup: str, headers: list[tuple[str, str]]) -> None:
    page = page_of(markup, *headers)

    assert page.document_links() == [X]
    assert page.links(wide=True)[:1] == [X] or X in page.links(wide=True)


@pytest.mark.parametrize(
    ("markup", "headers"),
    [
        ("<link rel=stylesheet href=/x>", []),
        ("<link rel='alternate stylesheet' href=/x>", []),
        ("<link rel=alternate type=application/rss+xml href=/x>", []),
        ("<img src=/x>", []),
        ("<img srcset='/x 2x'>", []),
        ("<script src=/x></script>", []),
        ("<div data-href=/x></div>", []),
        ("<video poster=/x></video>", []),
        ("<object data=/x></object>", []),
        ("<embed src=/x>", []),
        ("<blockquote cite=/x>So</blockquote>", []),
        ("<body background=/x>", []),
        ("<button formaction=/x>Go</button>", []),
        ("<svg><image href=/x /></svg>", []),
        ("<a ping='/x'>x</a>", []),
        ("", [("Content-Location", "/x")]),
    ],
)
def test_what_a_page_loads_or_mentions_is_there_where_it_is_asked_for(
    markup: str, headers: list[tuple[str, str]]
) -> None:
    page = page_of(markup, *headers)

    assert page.document_links() == []
    assert page.links() == []
    assert page.links(wide=True) == [X]


@pytest.mark.parametrize(
    "markup",
    [
        "<form method=post action=/x><button>Buy</button></form>",
        "<form action=/x><input name=q></form>",
        "<form action=/x><select name=s></select></form>",
        "<form><button>Here again</button></form>",
        "<meta http-equiv=refresh content=30>",
        "<meta http-equiv=content-type content='0; url=/x'>",
        "<link rel=preconnect href=/x>",
        "<a href='mailto:a@b.example'>write</a>",
        "<a href='#x'>below</a>",
        "<iframe src='about:blank'></iframe>",
        "<!-- <a href=/x>x</a> -->",
        """<div onclick="if (location.href == '/x') stop()">x</div>""",
        """<div onclick="show('/x')">x</div>""",
        """<div onclick="location = base + '/x'">x</div>""",
        "<svg><a><text>x</text></a></svg>",
    ],
)
def test_what_nobody_would_follow(markup: str) -> None:
    assert page_of(markup).document_links() == []


def test_hidden_fields_of_a_form_are_its_query() -> None:
    page = page_of("<form action='/x?old=1'><input type=hidden name=p value='2 3'><input type=submit></form>")

    assert page.document_links() == [f"{X}?p=2+3"]


def test_links_marked_nofollow_can_be_left_out() -> None:
    page = page_of("<a rel=nofollow href=/x>x</a><a href=/y>y</a>")

    assert page.links(wide=True, nofollow=False) == ["https://a.example/y"]


def test_plain_links_are_what_they_were() -> None:
    page = page_of("<a href=/x>x</a><iframe src=/y></iframe>", ("Link", "</z>; rel=next"))

    assert page.links() == [X]


def test_a_crawl_of_a_site_follows_them_and_stays_on_the_site() -> None:
    page = page_of(
        "<meta http-equiv=refresh content='0; url=/x'><iframe src=https://b.example/ad></iframe><img src=/p.jpg>",
        ("Link", "<?page=2>; rel=next"),
    )

    found = [one.url for one in SiteSpider([HERE]).parse(page) if isinstance(one, Request)]

    assert found == ["https://a.example/dir/page?page=2", X]


@pytest.mark.parametrize(
    ("srcset", "addresses"),
    [
        ("/a.jpg", ["/a.jpg"]),
        ("/a.jpg 1x, /b.jpg 2x", ["/a.jpg", "/b.jpg"]),
        ("/a,w_100.jpg 100w, /a,w_200.jpg 200w", ["/a,w_100.jpg", "/a,w_200.jpg"]),
        ("", []),
        (" , ", []),
    ],
)
def test_the_addresses_of_a_srcset(srcset: str, addresses: list[str]) -> None:
    assert list(addresses_of_set(srcset)) == addresses


def test_hostile_headers_and_pages_cost_little() -> None:
    began = time.thread_time()
    list(refresh_target(" " * 1_000_000))
    page = page_of("<form action=/x>" + "<input name=a type=hidden>" * 50_000, ("Link", "<" * 100_000 + '"' * 100_000))

    page.document_links()
    page.links(wide=True)

    assert time.thread_time() - began < 30  # of this thread alone: other programs do not count

"""Where a page leads to: the links that a browser or a search engine would follow, and every other address of it."""

from __future__ import annotations

import time

import pytest

from gossamer.model.page import Headers, Snapshot
from gossamer.model.site_part import SitePart
from gossamer.model.task import Request
from gossamer.parse.callbacks import MAX_YIELDS, run_callback
from gossamer.parse.links import addresses_of_set, refresh_target
from gossamer.parse.page import Page
from gossamer.parse.site import SitePartSpider, SiteSpider
from gossamer.parse.spider import Spider

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
        ("<form action=/x><input type=hidden name=off disabled><button formaction=/x>Go</button></form>", []),
        ("<form action=/y><button formaction=/x>Go</button></form>", []),
        ("<iframe srcdoc='<a href=/x>x</a>'></iframe>", []),
        ("<object data=/x type=text/html></object>", []),
        ("<embed src=/x type=text/html>", []),
        ("""<a href="javascript:window.location='/x'">x</a>""", []),
        ("<button onclick='location.href = `/x`'>x</button>", []),
        ("""<body onload="location.replace('/x')">""", []),
        ("<select onchange='location = this.value'><option value=/x>x</select>", []),
        (
            "<select onchange='location.href=this.options[this.selectedIndex].value'><option value=/x>x</select>",
            [],
        ),
        ("<select onchange='location.assign(this.value)'><option value=/x>x</select>", []),
        ("<select onchange='if (this.value) window.open(this.value)'><option value=/x>x</select>", []),
        ("""<a href=" JavaScript:location.href='/x'">x</a>""", []),
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
        ("<p style='background: url(\"/x\")'>So</p>", []),
        ("<style>@font-face { src: url(/x) }</style>", []),
        ("<style>@import '/x';</style>", []),
        ("<form method=post action=/x><button>Buy</button></form>", []),
        ("<img data-original=/x>", []),
        ("<html manifest=/x>", []),
        ("<button formaction=/x>Go</button>", []),
        ("<svg><image href=/x /></svg>", []),
        ("<a ping='/x'>x</a>", []),
        ("<iframe srcdoc='<img src=/x>'></iframe>", []),
        ("<object><param name=URL value=/x></object>", []),
        ("<object><param name=wmode value=y><embed src=/x></object>", []),
        ("<isindex action=/x>", []),
        ("", [("Content-Location", "/x")]),
        ("", [("Link", "</x>; rel=preload; as=style")]),
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
        "<form action=/x><button formmethod=post>Buy</button></form>",
        "<form id=f action=/x></form><input form=f name=q>",
        "<form action=/x><button name=do value=a>A</button><button name=do value=b>B</button></form>",
        "<select onchange='show(this.value)'><option value=/x>x</select>",
        "<select onchange=\"location = '/list?by=' + this.value\"><option value=/x>x</select>",
        "<iframe srcdoc='<iframe srcdoc=&quot;<a href=/x>x</a>&quot;></iframe>'></iframe>",
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
        """<button onclick="if (confirm('Delete it?')) location.href = '/x'">x</button>""",
        "<svg><a><text>x</text></a></svg>",
    ],
)
def test_what_nobody_would_follow(markup: str) -> None:
    assert page_of(markup).document_links() == []


def test_hidden_fields_of_a_form_are_its_query() -> None:
    page = page_of("<form action='/x?old=1'><input type=hidden name=p value='2 3'><input type=submit></form>")

    assert page.document_links() == [f"{X}?p=2+3"]


@pytest.mark.parametrize(
    ("form", "url"),
    [
        ("<form action=/x><input type=submit name=go value=Go></form>", f"{X}?go=Go"),
        ("<form action=/x><input type=hidden name=a value=1><button name=b value=2>Go</button></form>", f"{X}?a=1&b=2"),
        ("<form action=/x><input type=image name=i src=/i.png></form>", X),
        ("<form><input type=hidden name=page value=2><button>Next</button></form>", f"{HERE}?page=2"),
    ],
)
def test_the_one_button_of_a_form_is_pressed(form: str, url: str) -> None:
    assert page_of(form).document_links() == [url]


def test_a_parameter_of_the_link_header_that_speaks_of_rel_is_none() -> None:
    assert page_of("", ("Link", '</x>; title="a; rel=next"')).document_links() == []
    assert page_of("", ("Link", "</x>; rel=next; rel=stylesheet")).document_links() == [X]


def test_links_marked_nofollow_can_be_left_out() -> None:
    page = page_of("<a rel=nofollow href=/x>x</a><a href=/y>y</a>")

    assert page.links(wide=True, nofollow=False) == ["https://a.example/y"]


def test_what_an_element_keeps_in_a_shadow_root_stands_where_a_reader_sees_it() -> None:
    page = page_of(
        "<x-page><template shadowrootmode=open><header><slot name=top>none</slot></header><main><slot></slot></main>"
        "<x-menu><template shadowrootmode=closed><a href=/x>All</a></template></x-menu></template>"
        "<h1 slot=top>Title</h1><p>Text <a href=/y>y</a></p></x-page>"
    )

    assert page.document_links() == ["https://a.example/y", X]
    assert page.css("header > h1::text").get() == "Title"
    assert page.css("main > p::text").get() == "Text "
    assert "none" not in page.css("x-page").get()


@pytest.mark.parametrize("link", ["///b.example/x", "////b.example/x", "https://xn--a.example/x", "//xn--a.example/x"])
def test_links_that_few_parsers_read_lead_where_a_browser_goes(link: str) -> None:
    target = "https://xn--a.example/x" if "xn--" in link else "https://b.example/x"
    page = page_of(f"<a href='{link}'>x</a><a href='{link}#part'>x</a><a href=/x>x</a>")

    assert page.links() == [target, X]
    assert page.urljoin(link) == target
    assert [request.url for request in page.follow_all("a")] == [target, f"{target}#part", X]


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
    "spider",
    [SiteSpider([HERE]), SitePartSpider(SitePart(url=HERE, whole_host=True), Request(url=HERE))],
    ids=["site", "part"],
)
async def test_a_page_of_more_links_than_one_page_may_give_is_followed_as_far(spider: Spider) -> None:
    page = page_of("".join(f"<a href=/dir/page/{number}>x</a>" for number in range(MAX_YIELDS + 10)))

    parsed = await run_callback(spider, "parse", page)

    assert len(parsed.requests) == MAX_YIELDS - 1
    assert len(parsed.items) == 1


@pytest.mark.parametrize(
    ("srcset", "addresses"),
    [
        ("/a.jpg", ["/a.jpg"]),
        ("/a.jpg 1x, /b.jpg 2x", ["/a.jpg", "/b.jpg"]),
        ("/a,w_100.jpg 100w, /a,w_200.jpg 200w", ["/a,w_100.jpg", "/a,w_200.jpg"]),
        ("a.jpg 1x,b.jpg 2x", ["a.jpg", "b.jpg"]),
        ("a.jpg, b.jpg 2x", ["a.jpg", "b.jpg"]),
        ("a.jpg 1x (x, y), b.jpg 2x", ["a.jpg", "b.jpg"]),
        ("data:image/png;base64,AA 1x, /b.jpg 2x,", ["data:image/png;base64,AA", "/b.jpg"]),
        ("/a,b,c 1x", ["/a,b,c"]),
        ("", []),
        (" , ", []),
    ],
)
def test_the_addresses_of_a_srcset(srcset: str, addresses: list[str]) -> None:
    assert list(addresses_of_set(srcset)) == addresses


def test_hostile_headers_and_pages_cost_little() -> None:
    began = time.thread_time()
    list(refresh_target(" " * 1_000_000))
    page_of("<style>" + "url(" * 100_000 + "</style>").links(wide=True)
    for srcset in ("," * 100_000, "a," * 50_000, "a (" * 30_000, "(" * 100_000):
        list(addresses_of_set(srcset))
    page = page_of("<form action=/x>" + "<input name=a type=hidden>" * 50_000, ("Link", "<" * 100_000 + '"' * 100_000))

    page.document_links()
    page.links(wide=True)
    forms = "".join(f"<form id=f{number} action=/x><button>Go</button></form>" for number in range(20_000))
    page_of(forms + "<p>x" * 100_000).document_links()
    page_of("<b>" + "<template shadowrootmode=open>x</template>" * 50_000).document_links()
    page_of("<div><template shadowrootmode=open><slot></slot>" * 10_000).document_links()

    assert time.thread_time() - began < 30  # of this thread alone: other programs do not count

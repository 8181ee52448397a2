"""Sitemaps are read while they arrive, whatever is wrong with them, in memory that does not grow."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import ParseFailed
from gossamer.extract.sitemaps import ChildSitemap, SitemapEntry, SitemapReader, sitemap_of
from gossamer.model.page import Headers, Snapshot
from gossamer.parse.page import Page
from tests.corpora import corpus

URL = "https://www.example.com/maps/sitemap.xml"
NOW = datetime(2024, 6, 1, tzinfo=UTC)
Entry = SitemapEntry | ChildSitemap


def read(body: bytes | str, *, size: int = 1 << 30, **limits: int) -> tuple[list[Entry], SitemapReader]:
    body = body.encode() if isinstance(body, str) else body
    reader = SitemapReader(URL, now=NOW, **limits)
    entries: list[Entry] = []
    for at in range(0, len(body), size):
        entries += reader.feed(body[at : at + size])
    entries += reader.close()
    return entries, reader


def locs(body: bytes | str, **limits: int) -> list[str]:
    return [entry.loc for entry in read(body, **limits)[0]]


def urlset(inner: str) -> str:
    return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{inner}</urlset>'


def numbered(count: int) -> bytes:
    return urlset("".join(f"<url><loc>/{n}</loc></url>\n" for n in range(count))).encode()


def test_entry_has_all_that_the_sitemap_says() -> None:
    entries, reader = read(
        urlset(
            """<url><loc> https://www.example.com/a?x=1&amp;y=2 </loc><lastmod>2024-05-06T07:08:09+02:00</lastmod>
            <changefreq>Daily</changefreq><priority>0.8</priority>
            <image:image><image:loc>/no.png</image:loc></image:image>
            <xhtml:link rel="alternate" hreflang="de" href="/de/a"/></url>"""
        )
    )
    assert entries == [
        SitemapEntry(
            loc="https://www.example.com/a?x=1&y=2",
            lastmod=datetime(2024, 5, 6, 7, 8, 9, tzinfo=timezone(timedelta(hours=2))),
            lastmod_text="2024-05-06T07:08:09+02:00",
            changefreq="daily",
            priority=0.8,
            alternates=(("de", "https://www.example.com/de/a"),),
        )
    ]
    assert (reader.kind, reader.skipped, reader.trouble) == ("urlset", 0, None)


def test_index_lists_further_sitemaps() -> None:
    entries, reader = read(
        """<sitemapindex><sitemap><loc>one.xml.gz</loc><lastmod><![CDATA[2004-10-01]]></lastmod></sitemap>
        <sitemap><loc>http://www.example.com/two<![CDATA[?a=1&b=2]]></loc></sitemap>
        <sitemap>https://www.example.com/three.xml</sitemap></sitemapindex>"""
    )
    assert entries == [
        ChildSitemap(
            loc="https://www.example.com/maps/one.xml.gz",
            lastmod=datetime(2004, 10, 1, tzinfo=UTC),
            lastmod_text="2004-10-01",
        ),
        ChildSitemap(loc="http://www.example.com/two?a=1&b=2"),
        ChildSitemap(loc="https://www.example.com/three.xml"),
    ]
    assert reader.kind == "index"


@pytest.mark.parametrize("text", ["2024-06-30", "2999-01-01T00:00:00Z", "yesterday", "0000-00-00"])
def test_date_of_the_future_or_of_nowhere_is_none_and_its_text_is_kept(text: str) -> None:
    for filling in ("", "<x/>"):  # the short way of reading, and the long one
        (entry,) = read(urlset(f"<url><loc>/a</loc><lastmod>{text}</lastmod>{filling}</url>"))[0]
        assert (entry.lastmod, entry.lastmod_text) == (None, text)


@pytest.mark.parametrize(
    ("inner", "wanted"),
    [
        ("<url><loc>/a</loc></url><url><loc>/b</loc></url>", ["/a", "/b"]),
        ("<url><loc>/a?b&c=1&copy=2&amp;d</loc></url>", ["/a?b&c=1&copy=2&d"]),
        ("<url><loc><![CDATA[ /a&b ]]></loc></url>", ["/a&b"]),
        ("<url><loc><url><![CDATA[/a]]></url></loc><lastmod>2020</lastmod></url>", ["/a"]),
        ("<url><loc>/a</loc><url><loc>/b</loc></url></url>", ["/a", "/b"]),
        ("<url><!-- <loc>/no</loc> --></url><url><loc>/a</loc></url><!-- --></url>", ["/a"]),
        ("<URL><LOC>/a</LOC></URL>", ["/a"]),
        ("<url>\n<loc>\n/a\n</loc>\n</url>", ["/a"]),
        ("<url><news:loc>/no</news:loc><loc>/a</loc></url>", ["/a"]),
        ("<url><loc>/a</loc><loc>/second</loc></url>", ["/a"]),
        ("<url><loc/></url><url><loc></loc></url><url/>", []),
        ("", []),
    ],
)
def test_sloppy_xml_is_understood(inner: str, wanted: list[str]) -> None:
    for size in (1 << 30, 1, 5):
        assert locs(urlset(inner), size=size) == [f"https://www.example.com{path}" for path in wanted]


@pytest.mark.parametrize(
    "body",
    [
        "<url><loc>/a</loc></url>",
        '<sm:urlset xmlns:sm="http://wrong.example/"><sm:url><sm:loc>/a</sm:loc></sm:url></sm:urlset>',
        "\ufeff \n<?xml version='1.0' encoding='UTF-8'?><?xml-style x?><urlset><url><loc>/a</loc></url></urlset>",
        '<!DOCTYPE urlset SYSTEM "http://evil.example/x.dtd"><urlset><url><loc>/a</loc></url></urlset>',
        "https://www.example.com/a",
        "\ufeffhttps://www.example.com/a\r\n\r\n# a note\r\n",
        "<rss><channel><link>/no</link><item><link>/a</link></item></channel></rss>",
        "<rss><channel><item><guid isPermaLink='false'>https://www.example.com/a</guid></item></channel></rss>",
        "<rdf:RDF><channel><link>/no</link></channel><item rdf:about='x'><link>/a</link></item></rdf:RDF>",
        "<feed><link href='/no'/><entry><link rel='edit' href='/no'/><link href='/a'/></entry></feed>",
    ],
)
def test_every_kind_of_sitemap_is_known_by_its_look(body: str) -> None:
    for encoding in ("utf-8", "utf-16"):
        assert locs(body.encode(encoding)) == ["https://www.example.com/a"]


def test_dates_of_feeds_are_dates_of_entries() -> None:
    rss = "<rss><channel><item><link>/a</link><pubDate>Thu, 05 Jan 17 13:34:52 GMT</pubDate></item></channel></rss>"
    atom = "<feed><entry><link href='/a'/><published>2016-01-01</published><updated>2017-01-05</updated></entry></feed>"
    assert read(rss)[0][0].lastmod == datetime(2017, 1, 5, 13, 34, 52, tzinfo=UTC)
    assert read(atom)[0][0].lastmod == datetime(2017, 1, 5, tzinfo=UTC)


@pytest.mark.parametrize("size", [1 << 30, 10_000])
@pytest.mark.parametrize("inner", ["<loc>https://x.example/{}</loc>", "<loc>/a&amp;{}</loc>", "https://x.example/{}"])
def test_address_that_is_much_too_long_is_counted_and_never_cut(inner: str, size: int) -> None:
    entries, reader = read(urlset(f"<url>{inner.format('a' * 100_000)}</url><url><loc>/1</loc></url>"), size=size)
    assert [entry.loc for entry in entries] == ["https://www.example.com/1"]
    assert reader.skipped == 1


def test_address_after_long_texts_is_read_whole() -> None:
    inner = f"<url><n:title>{'t' * 19_990}</n:title><loc>https://x.example/a&amp;b</loc></url>"
    assert locs(urlset(inner), size=1_000) == ["https://x.example/a&b"]


def test_addresses_that_are_none_are_counted() -> None:
    body = urlset(f"<url><loc>mailto:x</loc></url><url><loc>/{'x' * 100}</loc></url><url><loc>/a</loc></url>")
    entries, reader = read(body, max_url=90)
    assert [entry.loc for entry in entries] == ["https://www.example.com/a"]
    assert reader.skipped == 2


# --- packed, cut, damaged, huge --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1 << 30, 1_000, 1])
def test_gzip_is_recognised_also_in_several_parts_and_with_filling(size: int) -> None:
    body = numbered(300)
    packed = gzip.compress(body[:2_000]) + gzip.compress(body[2_000:]) + bytes(500)
    entries, reader = read(packed, size=size)
    assert len(entries) == 300
    assert reader.trouble is None


def test_gzip_in_parts_without_end_is_read_so_far_and_says_so() -> None:
    # given ever more empty parts before an address
    body = gzip.compress(urlset("<url><loc>/1</loc></url>").encode()) + gzip.compress(b"") * 10_001
    # when it is read, in large pieces and in small ones
    for size in (1 << 30, 30_000):
        entries, reader = read(body + gzip.compress(urlset("<url><loc>/2</loc></url>").encode()), size=size)
        # then no more than a bounded number of parts is undone
        assert [entry.loc for entry in entries] == ["https://www.example.com/1"]
        assert "packed in more than 10,000 parts" in (reader.trouble or "")


def test_gzip_that_ends_too_early_keeps_what_was_read_and_says_so() -> None:
    entries, reader = read(gzip.compress(numbered(5_000))[:-2_000])
    assert 100 < len(entries) < 5_000
    assert reader.trouble == f"{URL} is not complete: its gzip stream ends too early; what came before was read."


def test_gzip_that_is_damaged_keeps_what_was_read_or_is_refused() -> None:
    packed = bytearray(gzip.compress(numbered(20_000)))
    packed[-4_000:-3_000] = bytes(1_000)
    entries, reader = read(bytes(packed), size=1_000)
    assert len(entries) > 100
    assert reader.trouble is not None
    with pytest.raises(ParseFailed, match="packed with gzip and damaged"):
        read(b"\x1f\x8b\x08\x00" + bytes(6) + b"\xff" * 100)


@pytest.mark.parametrize(
    ("body", "count", "root"),
    [
        ("<urlset><url><loc>/a</loc></url><url><loc>/b</loc>", 2, "urlset"),
        ("<urlset><url><loc>/a</loc></url><url><loc>/b</lo", 2, "urlset"),
        ("<urlset><url><loc>/a</loc></url><url><loc>/b-that-goes-o", 1, "urlset"),
        ("<sitemapindex><sitemap><loc>/a</loc><las", 1, "sitemapindex"),
        ("<urlset><url><loc>/a</loc></url><!-- never closed", 1, "urlset"),
    ],
)
def test_file_that_ends_in_the_middle_keeps_whole_addresses_and_says_so(body: str, count: int, root: str) -> None:
    entries, reader = read(body)
    assert len(entries) == count
    assert reader.trouble == f"{URL} is not complete: it ends before </{root}>; what came before was read."


def test_file_longer_than_allowed_is_read_so_far_and_says_so() -> None:
    for body in (numbered(1_000), gzip.compress(numbered(1_000))):
        entries, reader = read(body, max_bytes=3_000)
        assert 50 < len(entries) < 150
        assert reader.trouble == f"{URL} is not complete: it is longer than 3,000 bytes; the rest was left out."
        assert reader.done


def test_memory_does_not_grow_with_the_sitemap() -> None:
    def peak(parts: int) -> int:
        reader, count = SitemapReader(URL, max_bytes=1 << 40), 0
        part = b"<url><loc>/some/page.html</loc><lastmod>2020-01-01</lastmod></url>\n" * 500
        tracemalloc.start()
        for chunk in [b"<urlset>", *([part] * parts), b"</urlset>"]:
            count += sum(1 for _ in reader.feed(chunk))
        count += sum(1 for _ in reader.close())
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert count == 500 * parts
        return most

    few = peak(2)
    assert peak(20) < few + 200_000


def test_bomb_is_unpacked_no_further_than_allowed() -> None:
    bomb = gzip.compress(b"<urlset>" + b" " * 20_000_000)
    reader = SitemapReader(URL, max_bytes=1_000_000)
    tracemalloc.start()
    assert list(reader.feed(bomb)) == []
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reader.done
    assert most < 2_000_000


# --- what is refused -------------------------------------------------------------------------------------------------

LAUGHS = '<!DOCTYPE u [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><urlset><url><loc>/&b;</loc></url></urlset>'


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "lists no address"),
        ("this is a bogus sitemap", "lists no address"),
        ("no address\n" * 200, "begins with 'no address'"),
        ("<!DOCTYPE html><html><body>Not found", "first element is <html>"),
        (LAUGHS, "declares entities"),
        ('<!DOCTYPE u [<!ENTITY a SYSTEM "file:///etc/passwd">]><urlset><url><loc>/&a;', "declares entities"),
        ('<!DOCTYPE u [<!ENTITY % a SYSTEM "http://evil.example/">%a;]><urlset>', "declares entities"),
    ],
)
def test_what_is_no_sitemap_is_refused_with_a_sentence(body: str, reason: str) -> None:
    for size in (1 << 30, 3):
        with pytest.raises(ParseFailed, match=reason) as refusal:
            read(body, size=size)
        assert str(refusal.value).startswith(URL)


# --- together --------------------------------------------------------------------------------------------------------


def test_page_as_a_sitemap() -> None:
    def page(body: str, *, cut: bool = False) -> Page:
        headers = Headers([("Content-Type", "application/xml")])
        at = NOW.timestamp()
        return Page(
            Snapshot(
                url=URL, requested_url=URL, status=200, headers=headers, body=body.encode(), fetched_at=at, cut=cut
            )
        )

    whole = sitemap_of(page(urlset("<url><loc>/a</loc><lastmod>2024-06-03</lastmod></url>")))
    assert whole.urls == (SitemapEntry(loc="https://www.example.com/a", lastmod_text="2024-06-03"),)
    assert (whole.kind, whole.children, whole.skipped, whole.trouble) == ("urlset", (), 0, None)
    index = sitemap_of(page("<sitemapindex><sitemap><loc>/b</loc></sitemap></sitemapindex>"))
    assert (index.urls, index.children) == ((), (ChildSitemap(loc="https://www.example.com/b"),))
    assert sitemap_of(page(urlset(""), cut=True)).trouble == (
        f"{URL} was longer than the crawl allows; what came before was read."
    )


PARTS = ["<url>", "</url>", "<loc>", "</loc>", "/a", "/b&amp;c", " ", "\n", "<lastmod>", "2020-01-01", "</lastmod>"]
PLAIN = "<url><loc>/p</loc></url>"


@given(
    st.lists(st.sampled_from([*PARTS, PLAIN, "<x/>", "<!-- -->", "<![CDATA[/d]]>"]), max_size=30), st.integers(1, 40)
)
def test_short_way_and_long_way_read_the_same(parts: list[str], size: int) -> None:
    body = urlset("".join(parts))
    # An attribute on every <url> makes the short way impossible, and means nothing.
    long_way = body.replace("<url>", '<url a="">')
    assert read(body, size=size)[0] == read(long_way)[0]


# What is in each file, told by the tests of crawler-commons where they speak of it, and by reading it.
COUNTS = {
    "rss/feed.rss": ("rss", 4),
    "rss/xmlRss_pubDate.xml": ("rss", 7),
    "sitemaps/atom.xml": ("atom", 1),
    "sitemaps/do-not-visit.txt": ("text", 1),
    "sitemaps/sitemap-with-bom.txt": ("text", 2),
    "sitemaps/sitemap.badns.xml": ("urlset", 2),
    "sitemaps/sitemap.index.xml": ("index", 15),
    "sitemaps/sitemap.ns.xml": ("urlset", 2),
    "sitemaps/sitemap.txt": ("text", 2),
    "sitemaps/sitemap.txt.gz": ("text", 5),
    "sitemaps/xmlSitemap.gz": ("urlset", 5),
    "sitemaps/extension/hebdenbridgetimes-articles-sitemap.xml": ("urlset", 74),
    "sitemaps/extension/pagemaps-sitemap.xml": ("urlset", 2),
    "sitemaps/extension/shinpaideshou-news-sitemap.xml": ("urlset", 3),
    "sitemaps/extension/sitemap-images.xml": ("urlset", 1),
    "sitemaps/extension/sitemap-links.xml": ("urlset", 3),
    "sitemaps/extension/sitemap-mobile.xml": ("urlset", 3),
    "sitemaps/extension/sitemap-news.xml": ("urlset", 2),
    "sitemaps/extension/sitemap-videos-tvshow.xml": ("urlset", 1),
    "sitemaps/extension/sitemap-videos.xml": ("urlset", 3),
}


def _files() -> Iterator[Path]:
    for folder in ("rss", "sitemaps"):
        yield from (file for file in corpus("crawler-commons", folder).rglob("*") if file.is_file())


def test_sitemaps_of_the_crawler_commons_set() -> None:
    for size in (1 << 30, 1):
        found = {}
        for file in _files():
            entries, reader = read(file.read_bytes(), size=size)
            found[file.relative_to(corpus("crawler-commons")).as_posix()] = (reader.kind, len(entries))
            assert (reader.skipped, reader.trouble) == (0, None), file
        assert found == COUNTS

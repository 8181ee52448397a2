"""Feeds of every kind become one form, broken ones as far as their meaning is plain."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossamer.errors import ParseFailed
from gossamer.extract.feeds import Enclosure, FeedEntry, parse_feed
from gossamer.extract.xml import TEXT, XmlEvent, XmlStream
from gossamer.model.page import Headers, Snapshot
from gossamer.parse.page import Page
from tests.corpora import corpus

URL = "https://news.example/feeds/all.xml"


def item(inner: str, *, head: str = "") -> FeedEntry:
    (entry,) = parse_feed(f"<rss version='2.0'><channel>{head}<item>{inner}</item></channel></rss>", URL).entries
    return entry


def test_rss_2() -> None:
    feed = parse_feed(
        """<?xml version="1.0"?>
        <rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:atom="http://www.w3.org/2005/Atom"
             xmlns:content="http://purl.org/rss/1.0/modules/content/"><channel>
        <image><title>Logo</title><link>/logo</link></image>
        <atom:link rel="self" href="/self"/>
        <title>News &amp; more</title><link>/</link><description>All</description><language>de</language>
        <lastBuildDate>Mon, 06 Sep 2010 00:01:00 +0000</lastBuildDate>
        <item><title>One</title><link>/1?a=1&amp;b=2</link><guid isPermaLink="false">id-1</guid>
          <description>&lt;p&gt;Short&lt;/p&gt;</description>
          <content:encoded><![CDATA[<p>Long & good</p>]]></content:encoded>
          <dc:creator>Jane</dc:creator><pubDate>Sun, 06 Sep 2009 16:20:00 +0200</pubDate>
          <category>A</category><category><![CDATA[B & C]]></category><category>A</category>
          <enclosure url="/a.mp3" length="12" type="audio/mpeg"/></item>
        <item><title>Two</title><guid>https://news.example/2</guid></item>
        </channel></rss>""",
        URL,
    )
    assert (feed.kind, feed.title, feed.link, feed.description) == (
        "rss",
        "News & more",
        "https://news.example/",
        "All",
    )
    assert (feed.language, feed.updated) == ("de", datetime(2010, 9, 6, 0, 1, tzinfo=UTC))
    assert feed.trouble is None
    assert feed.entries == (
        FeedEntry(
            id="id-1",
            url="https://news.example/1?a=1&b=2",
            title="One",
            summary="<p>Short</p>",
            content="<p>Long & good</p>",
            author="Jane",
            published=datetime(2009, 9, 6, 16, 20, tzinfo=timezone(timedelta(hours=2))),
            categories=("A", "B & C"),
            enclosures=(Enclosure(url="https://news.example/a.mp3", type="audio/mpeg", length=12),),
        ),
        FeedEntry(id="https://news.example/2", url="https://news.example/2", title="Two"),
    )


def test_atom_with_a_prefix_bases_and_markup() -> None:
    feed = parse_feed(
        """<a:feed xmlns:a="http://www.w3.org/2005/Atom" xml:base="https://b.example/dir/" xml:lang="fr">
        <a:title type="html">&lt;b&gt;T&lt;/b&gt; &amp;amp; more</a:title>
        <a:link rel="self" href="self"/><a:link href="home"/>
        <a:entry xml:base="sub/"><a:source><a:title>another feed</a:title><a:id>no</a:id></a:source>
          <a:title>1 &lt; 2</a:title><a:id>urn:x</a:id>
          <a:link type="application/pdf" href="p.pdf"/><a:link type="text/html" href="p.html"/>
          <a:link rel="enclosure" href="e.ogg" type="audio/ogg"/>
          <a:author><a:email>n@b.example</a:email><a:name>N. N.</a:name></a:author><a:category term="t" label="L"/>
          <a:content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><p>hi &amp; <b>bye</b></p></div></a:content>
          <a:published>2020-01-01</a:published><a:updated>2020-01-02T03:04:05Z</a:updated></a:entry></a:feed>""",
        URL,
    )
    assert (feed.kind, feed.title, feed.link, feed.language) == ("atom", "T & more", "https://b.example/dir/home", "fr")
    assert feed.entries == (
        FeedEntry(
            id="urn:x",
            url="https://b.example/dir/sub/p.html",
            title="1 < 2",
            content="<p>hi &amp; <b>bye</b></p>",
            author="N. N.",
            published=datetime(2020, 1, 1, tzinfo=UTC),
            updated=datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC),
            categories=("L",),
            enclosures=(Enclosure(url="https://b.example/dir/sub/e.ogg", type="audio/ogg"),),
        ),
    )


def test_rss_1_is_rdf() -> None:
    feed = parse_feed(
        """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/">
        <channel rdf:about="x"><title>T</title><link>http://s.example/</link>
        <items><rdf:Seq><rdf:li resource="http://s.example/1"/></rdf:Seq></items></channel>
        <item rdf:about="http://s.example/1"><title>I</title><dc:date>2020-01-02T03:04:05+09:00</dc:date></item></rdf:RDF>"""
    )
    assert (feed.kind, feed.title, feed.link) == ("rdf", "T", "http://s.example/")
    (entry,) = feed.entries
    assert (entry.id, entry.url) == ("http://s.example/1", "http://s.example/1")
    assert entry.published == datetime(2020, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=9)))


def test_json_feed() -> None:
    feed = parse_feed(
        """{"version": "https://jsonfeed.org/version/1.1", "title": "J", "home_page_url": "/", "items": [
        {"id": 5, "url": "/1", "title": " a  b ", "content_html": "<p>", "authors": [{"name": "A"}, {"name": "B"}, 3],
         "tags": ["x", 1, null], "attachments": [{"url": "/f", "mime_type": "a/b", "size_in_bytes": 7}, "no"],
         "date_published": "2020-01-01T00:00:00Z"}, "no entry"]}""",
        URL,
    )
    assert (feed.kind, feed.title, feed.link) == ("json", "J", "https://news.example/")
    assert feed.entries == (
        FeedEntry(
            id="5",
            url="https://news.example/1",
            title="a b",
            content="<p>",
            author="A, B",
            published=datetime(2020, 1, 1, tzinfo=UTC),
            categories=("x", "1"),
            enclosures=(Enclosure(url="https://news.example/f", type="a/b", length=7),),
        ),
    )


def test_page_brings_its_address_and_its_label() -> None:
    body = "<rss><channel><title>Grün</title><link>/</link></channel></rss>".encode("iso-8859-2")
    snapshot = Snapshot(
        url=URL,
        requested_url=URL,
        status=200,
        headers=Headers([("Content-Type", "application/rss+xml; charset=ISO-8859-2")]),
        body=body,
        fetched_at=0.0,
    )
    feed = parse_feed(Page(snapshot))
    assert (feed.title, feed.link) == ("Grün", "https://news.example/")


# --- the real world --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["utf-8", "iso-8859-1", "windows-1251", "no-such-label", "unicode_escape"])
def test_wrong_label_does_not_spoil_utf_8(label: str) -> None:
    text = f'<?xml version="1.0" encoding="{label}"?><rss><channel><title>Café №1</title></channel></rss>'
    assert parse_feed(text.encode()).title == "Café №1"


@pytest.mark.parametrize(
    ("label", "encoding"),
    [
        ("utf-8", "cp1252"),
        ("iso-8859-1", "cp1252"),
        ("windows-1251", "cp1251"),
        ("utf-16", "utf-16"),
        ("x", "utf-16-le"),
    ],
)
def test_other_encodings_are_read_as_they_are(label: str, encoding: str) -> None:
    title = "Привет" if encoding == "cp1251" else "“Café”"
    text = f'<?xml version="1.0" encoding="{label}"?><rss><channel><title>{title}</title></channel></rss>'
    assert parse_feed(text.encode(encoding)).title == title


@pytest.mark.parametrize(
    ("inner", "title"),
    [
        ("<title>Caf&eacute; &nbsp;&hellip; &amp; R&D; &bogus; &#8217; &#xD800;</title>", "Café … & R&D; &bogus; ’ �"),
        ("<title>Tom &amp;amp; &lt;b&gt;Jerry&lt;/b&gt;</title>", "Tom & Jerry"),
        ("<title>Tom &amp; <b>Jerry</b></title>", "Tom & Jerry"),
        ("<title><![CDATA[<i>Two</i>  words]]></title>", "Two words"),
        ("<title>a < b and 1<2</title>", "a < b and 1<2"),
        ("<title>never closed<link>/x</link>", "never closed"),
        ("<TITLE>loud</TITLE>", "loud"),
        ("<media:title>no</media:title><title>yes</title>", "yes"),
        ("<title/><title>second</title>", "second"),
        ("<title>Word <![if !x]>wrote<![endif]> this</title>", "Word wrote this"),
        ("", ""),
    ],
)
def test_title_is_plain_text(inner: str, title: str) -> None:
    assert item(inner).title == title


def test_html_that_was_not_escaped_is_kept_as_it_stands() -> None:
    entry = item('<description>One <p class="a>b">two & <br>three</p> <![CDATA[4 < 5]]></description><link>/x</link>')
    assert entry.summary == 'One <p class="a>b">two & <br>three</p> 4 &lt; 5'
    assert entry.url == "https://news.example/x"


def test_bare_ampersands_in_a_link_are_part_of_it() -> None:
    assert item("<link>/x?a=1&copy=2&b=3</link>").url == "https://news.example/x?a=1&copy=2&b=3"


def test_author_of_rss_is_a_name() -> None:
    assert item("<author>jane@example.com (Jane Doe)</author>").author == "Jane Doe"
    assert item("<author>Jane Doe</author>").author == "Jane Doe"


def test_entries_that_never_close_are_entries() -> None:
    feed = parse_feed("<rss><channel><title>T</title><item><title>1</title><item><title>2</title></channel></rss>")
    assert [entry.title for entry in feed.entries] == ["1", "2"]


def test_feed_that_ends_in_the_middle_keeps_what_was_read_and_says_so() -> None:
    feed = parse_feed("<rss><channel><item><title>1</title></item><item><title>2</ti")
    assert [entry.title for entry in feed.entries] == ["1", "2"]
    assert feed.trouble == "The feed ends too early, or is too large; what came before was read."


def test_feed_without_end_is_cut_and_says_so() -> None:
    feed = parse_feed("<rss><channel>" + "<item><title>x</title></item>" * 10_010 + "</channel></rss>")
    assert len(feed.entries) == 10_000
    assert feed.trouble == "The feed has more than 10,000 entries; 10 were left out."


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<!DOCTYPE html><html><body>", "first element is <html>"),
        ("", "no elements"),
        ("plain text", "begins with 'plain text'"),
        ('{"a": 1}', "JSON without `items`"),
        ('{"items": [', "not a JSON Feed"),
        ('{"items": {"a": 1}}', "not a JSON Feed"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><rss/>', "declares entities"),
        ('<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><rss><channel><title>&a;', "declares entities"),
        ('<rss><!ENTITY % a SYSTEM "http://evil.example/">', "declares entities"),
    ],
)
def test_what_is_no_feed_is_refused_with_a_sentence(text: str, reason: str) -> None:
    with pytest.raises(ParseFailed, match=reason) as refusal:
        parse_feed(text, URL)
    assert str(refusal.value).startswith(f"{URL} is not a feed that can be read. ")


def test_document_type_that_is_only_named_is_passed_over() -> None:
    doctype = '<!DOCTYPE rss PUBLIC "-//Netscape//DTD RSS 0.91//EN" "http://my.netscape.com/publish/rss-0.91.dtd">'
    assert parse_feed(f"{doctype}<rss><channel><title>T</title></channel></rss>").title == "T"


@pytest.mark.parametrize(
    "inner", ["<a>", "<", "<a", "&", '<a b="', "<!--", "<![CDATA[", "</item>", "<div><p>", "<item>"]
)
def test_hostile_repetition_is_read_to_its_end(inner: str) -> None:
    feed = parse_feed("<rss><channel><item><title>x</title><description>" + inner * 20_000)
    assert feed.entries[0].title == "x"
    assert feed.trouble is not None


def test_feeds_of_the_crawler_commons_set() -> None:
    rss = parse_feed(corpus("crawler-commons", "rss/feed.rss").read_bytes())
    assert [entry.url for entry in rss.entries] == [
        "https://www.example.com/blog/post/1",
        "https://www.example.com/guid.html",
        "https://www.example.com/foo?q=a&l=en",
        "https://www.example.com/foo?q=a&l=fr",
    ]
    dated = parse_feed(corpus("crawler-commons", "rss/xmlRss_pubDate.xml").read_bytes())
    start = datetime(2017, 1, 5, 12, 34, 50, tzinfo=UTC)
    assert [entry.published for entry in dated.entries[:4]] == [start + timedelta(seconds=n) for n in (1, 2, 3, 4)]
    assert [entry.published for entry in dated.entries[5:]] == [None, None]
    atom = parse_feed(corpus("crawler-commons", "sitemaps/atom.xml").read_bytes())
    assert atom.entries[0].content == "<p>This is the entry content.</p>"


# --- the stream below ------------------------------------------------------------------------------------------------


def _events(*pieces: str) -> list[XmlEvent | str]:
    """What the stream gives, texts that touch made one, and what is left at the end."""
    stream = XmlStream()
    merged: list[XmlEvent | str] = []
    try:
        for event in [*(event for piece in pieces for event in stream.feed(piece)), *stream.feed("", final=True)]:
            if event.kind != TEXT:
                merged.append(event)
            elif merged and isinstance(merged[-1], str):
                merged[-1] += event.value
            else:
                merged.append(event.value)
    except ParseFailed:
        return ["refused"]
    return [*merged, stream.close()]


@given(st.text(alphabet="<>/!-[]CDAT?ab\"'= &;#x1", max_size=120), st.integers(1, 7))
@example('<a b=">">c</a><a b=">c</a>', 3)
@example("a&amp;b<![CDATA[ ]]&lt; ]]>&lt<a b='>' c=\">\"/>", 1)
def test_cutting_the_text_in_pieces_changes_nothing(text: str, size: int) -> None:
    assert _events(*(text[at : at + size] for at in range(0, len(text), size))) == _events(text)

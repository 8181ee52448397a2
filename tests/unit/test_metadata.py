"""What a page says about itself, from all the places where pages say it."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape

import pytest

from gossamer.extract.metadata import Metadata, metadata_of

from .test_article import page_of


def facts(head: str, body: str = "", lang: str = "") -> Metadata:
    return metadata_of(page_of(f"<html {lang}><head>{head}</head><body>{body}</body></html>"))


def ld(text: str) -> str:
    return f'<script type="application/ld+json">{text}</script>'


def test_a_page_that_says_nothing_has_empty_facts() -> None:
    assert metadata_of(page_of("<p>x")) == Metadata()
    assert metadata_of(page_of("{}", content_type="application/json")) == Metadata()


def test_a_page_is_read_for_its_facts_once() -> None:
    page = page_of("<title>Tea</title><p>x")
    assert page.metadata() is page.metadata()


def test_the_head_of_a_page_is_read() -> None:
    found = facts(
        """<title> The  harbour | News </title><meta property="og:title" content="The harbour">
        <meta name=Description content="Of boats."><meta property="og:site_name" content=News>
        <link rel="Canonical" href="/harbour#top"><link rel="shortcut icon" href=/f.ico>
        <meta name=keywords content="boats, fish,, boats"><meta name=robots content="NOINDEX, follow">
        <link rel=next href="?page=2"><link rel=prev href="?page=0">
        <meta property="og:image" content="//cdn.example/a.jpg">
        """,
        lang="lang=en-GB",
    )

    assert (found.page_title, found.title, found.headline) == ("The harbour | News", "The harbour", "The harbour")
    assert (found.description, found.site_name, found.language) == ("Of boats.", "News", "en-GB")
    assert found.canonical == "https://news.example/harbour#top"
    assert (found.favicon, found.image) == ("https://news.example/f.ico", "https://cdn.example/a.jpg")
    assert (found.keywords, found.robots) == (("boats", "fish"), ("noindex", "follow"))
    assert found.next == "https://news.example/2024/harbour?page=2"
    assert found.prev == "https://news.example/2024/harbour?page=0"


def test_feeds_and_languages_are_absolute_addresses() -> None:
    found = facts(
        """<base href="https://other.example/"><link rel=alternate type="application/rss+xml" href="/rss">
        <link rel=alternate type="application/atom+xml; charset=utf-8" href="atom.xml">
        <link rel=alternate hreflang=de href="/de/"><link rel=alternate hreflang=x-default href="/">
        <link rel=alternate type="application/rss+xml" href="javascript:x"><link rel=alternate media=print href="/p">"""
    )

    assert found.feeds == ("https://other.example/rss", "https://other.example/atom.xml")
    assert found.alternates == {"de": "https://other.example/de/", "x-default": "https://other.example/"}


@pytest.mark.parametrize(
    ("head", "body", "authors"),
    [
        (ld('{"@type": "Article", "author": "Ann Author"}'), "", ("Ann Author",)),
        (ld('{"@type": ["Thing", "BlogPosting"], "author": {"name": ["Ann", "Bo"]}}'), "", ("Ann", "Bo")),
        (
            ld('{"@graph": [{"@type": "Article", "author": {"@id": "#a"}}, {"@id": "#a", "name": "Ann Author"}]}'),
            "",
            ("Ann Author",),
        ),
        ('<meta name=author content="By Ann Author">', "", ("Ann Author",)),
        ('<meta property="article:author" content="https://social.example/ann">', "", ()),
        ("", "<p class=byline>by <a>Ann Author</a><br>Monday</p>", ("Ann Author",)),
        ("", "<div itemprop=author itemscope><span itemprop=name>Ann Author</span>, editor</div>", ("Ann Author",)),
        (
            ld('{"@type": "Article", "author": "Ann Author"}'),
            "<p class=author>Somebody Else</p>",
            ("Ann Author",),
        ),
        (ld('{"@type": "Article", "author": 7}') + '<meta name=author content="Ann Author">', "", ("Ann Author",)),
        (ld('{"@type": "Article", "author": "Ann Author", "headline": "Of\nboats",}'), "", ("Ann Author",)),
    ],
)
def test_authors_are_found_where_pages_name_them(head: str, body: str, authors: tuple[str, ...]) -> None:
    assert facts(head, body).authors == authors


@pytest.mark.parametrize(
    ("head", "body", "authors"),
    [
        ('<meta property=og:site_name content="The News">', "<p>By Ann Lee</p>", ("Ann Lee",)),
        (ld('{"@type": "Organization", "name": "the news"}'), "<p>By Ann Lee</p>", ("Ann Lee",)),
        ('<meta property=og:site_name content="The News">', "<p>Of boats</p>", ("The News",)),
        ("", "<p>By Ann Lee</p>", ("The News",)),
    ],
)
def test_a_person_whom_readers_see_is_believed_before_the_site_that_names_itself(
    head: str, body: str, authors: tuple[str, ...]
) -> None:
    stated = '<meta name=author content="The News">'

    assert facts(f"{head}{stated}", f"<h1>The harbour at noon</h1>{body}").authors == authors


@pytest.mark.parametrize("name", ["published", "published-date", "publish_date", "dc.date.issued", "Published_Time"])
@pytest.mark.parametrize("day", ["2024-05-06", "May 6, 2024", "6 May 2024"])
def test_the_day_of_publication_is_read_however_its_tag_and_the_day_are_written(name: str, day: str) -> None:
    assert facts(f'<meta name="{name}" content="{day}">').published == datetime(2024, 5, 6)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (ld('{"@type": "NewsArticle", "datePublished": "2024-05-06T07:08:09Z"}'), ""),
        ('<meta property="article:published_time" content="2024-05-06T09:08:09+02:00">', ""),
        ("", '<time itemprop=datePublished datetime="2024-05-06 07:08:09 UTC">today</time>'),
        ("", '<time datetime="2024-05-06T07:08:09Z">today</time>'),
        (ld('{"@type": "Article", "datePublished": "soon"}') + "<meta name=date content=1714979289>", ""),
    ],
)
def test_the_time_of_publication_is_found_where_pages_give_it(head: str, body: str) -> None:
    assert facts(head, body).published == datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)


def test_of_several_times_in_a_page_none_is_taken_for_its_own() -> None:
    assert facts("", "<time datetime=2024-05-06>a</time><time datetime=2024-05-07>b</time>").published is None


def test_the_article_is_believed_before_the_page_around_it() -> None:
    found = facts(
        ld(
            '[{"@type": "WebPage", "datePublished": "2020-01-01", "description": "The page"},'
            ' {"@type": "Article", "datePublished": "2024-05-06", "headline": "The harbour"}]'
        )
    )

    assert (found.published, found.headline) == (datetime(2024, 5, 6), "The harbour")
    assert found.description == "The page"


def test_entities_in_json_ld_are_undone_once() -> None:
    found = facts(
        ld(
            '{"@type": "Article", "headline": "Tom &amp; Jerry&#39;s &amp;amp; more",'
            ' "author": {"name": "Zo&euml; B."}, "image": "/i?a=1&amp;b=2", "publisher": {"name": "Food &amp; Co"}}'
        )
    )

    assert (found.headline, found.authors) == ("Tom & Jerry's &amp; more", ("Zoë B.",))
    assert (found.image, found.site_name) == ("https://news.example/i?a=1&b=2", "Food & Co")


def test_entities_that_markup_has_undone_are_left_alone() -> None:
    assert facts('<meta name=description content="a &amp;amp; b">').description == "a &amp; b"


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<title>Red Lamp - Buy now | Shop</title><h1>Shop</h1><h1>Red Lamp</h1>", "Red Lamp"),
        ("<title>Red Lamp: buy it at the Shop</title><h1>Red Lamp</h1><h2>Details</h2>", "Red Lamp"),
        ("<title>Shop</title><meta property=og:title content='Red Lamp'><h1>News</h1><h1>Offers</h1>", "Red Lamp"),
        ("<title>Welcome</title><h1>Red Lamp</h1>", "Red Lamp"),
        ("<title>Red Lamp | Shop</title><h1>News</h1><h1>Offers</h1>", "Red Lamp | Shop"),
        ("<title>Red Lamp</title>", "Red Lamp"),
        ("<h1> </h1>", None),
    ],
)
def test_the_title_is_the_best_one(html: str, title: str | None) -> None:
    assert facts(html).title == title


@pytest.mark.parametrize(
    ("stated", "authors"),
    [
        ("ann@news.example", ()),
        ("mailto:ann@news.example", ()),
        ("Ann Lee <ann@news.example>", ("Ann Lee",)),
        ("ann@news.example (Ann Lee)", ("Ann Lee",)),
        ("by Ann Lee, ann@news.example", ("Ann Lee",)),
    ],
)
def test_an_email_address_is_no_name(stated: str, authors: tuple[str, ...]) -> None:
    assert facts(f"<meta name=author content='{escape(stated)}'>").authors == authors

"""Who wrote a page and when, where only its readers are told."""

from __future__ import annotations

from datetime import datetime

import pytest

from gossamer.parse.dates import shown_date

from .test_article import FIRST, SECOND, page_of

TEXT = f"<p>{FIRST} {SECOND}</p>" * 3


@pytest.mark.parametrize(
    ("lines", "authors"),
    [
        ("<p>By Ann Lee</p>", ("Ann Lee",)),
        ("<p>Written by Ann Lee and Bo van Dyk | 3 May 2024</p>", ("Ann Lee", "Bo van Dyk")),
        ("<div>Written By:</div><div>Ann Lee</div>", ("Ann Lee",)),
        ("<div class=post__author-name>Ann Lee</div>", ("Ann Lee",)),
        ("<div class=author-details><span>Ann Lee</span> <span>July 3, 2025</span></div>", ("Ann Lee",)),
        ("<p><a href=/authors/ann-lee>Ann Lee</a></p>", ("Ann Lee",)),
        ("<p><a class=username href=/u/7>seven_of_9</a></p>", ("seven_of_9",)),
        ("<p>By the harbour, at noon</p>", ()),
        ("<p>Ann Lee</p>", ()),
        ("<p>By 2030</p>", ()),
        ("<p class=author-bio>More Posts</p>", ()),
        ("<p><a href=/about>About Us</a></p>", ()),
    ],
)
def test_the_author_in_the_lines_around_the_title(lines: str, authors: tuple[str, ...]) -> None:
    assert page_of(f"<article><h1>The harbour</h1>{lines}{TEXT}</article>").metadata().authors == authors


@pytest.mark.parametrize(
    ("lines", "published", "modified"),
    [
        ("<p>May 3, 2024</p>", datetime(2024, 5, 3), None),
        ("<p>Posted on 3rd May 2024 in Boats</p>", datetime(2024, 5, 3), None),
        ("<p>2024-05-03 · 4 min read</p>", datetime(2024, 5, 3), None),
        ("<p>Updated May 4, 2024</p>", None, datetime(2024, 5, 4)),
        ("<div>Last updated:</div><div>May 4, 2024</div>", None, datetime(2024, 5, 4)),
        ("<p>May 3, 2024</p><p>Updated: May 4, 2024</p>", datetime(2024, 5, 3), datetime(2024, 5, 4)),
        ("<p>3/5/2024</p>", None, None),
        ("<p>May 2024</p>", None, None),
        ("<p>Chapter 3 May 20245</p>", None, None),
        ("<p>May 3, 2024</p><p>May 4, 2024</p><p>May 5, 2024</p>", None, None),
    ],
)
def test_the_date_in_the_lines_around_the_title(
    lines: str, published: datetime | None, modified: datetime | None
) -> None:
    facts = page_of(f"<article><h1>The harbour</h1>{lines}{TEXT}</article>").metadata()

    assert (facts.published, facts.modified) == (published, modified)


def test_what_the_metadata_says_counts_more() -> None:
    head = '<meta name=author content="Cy Doe"><meta property="article:published_time" content="2020-01-02">'

    facts = page_of(f"{head}<h1>The harbour</h1><p>By Ann Lee, May 3, 2024</p>{TEXT}").metadata()

    assert facts.authors == ("Cy Doe",)
    assert facts.published == datetime(2020, 1, 2)


def test_dates_far_from_the_title_and_in_the_text_are_not_read() -> None:
    facts = page_of(f"<h1>The harbour</h1>{TEXT}<p>On May 3, 2024, it was sold.</p><p>By Ann Lee</p>").metadata()

    assert facts.published is None
    assert facts.authors == ()


@pytest.mark.parametrize("text", ["", "99 May 2024", "May 32, 2024", "3 Mayhem 2024x", "12 people 2024"])
def test_what_is_no_date(text: str) -> None:
    assert shown_date(text) is None

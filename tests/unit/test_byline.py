"""Who wrote a page and when, where only its readers are told."""

from __future__ import annotations

from datetime import datetime

import pytest

from gossamer.extract.dates import shown_date

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
        ("<p><a href=/user/seven>seven_of_9</a> asked</p>", ("seven_of_9",)),
        ("<h3 class=PostUser-name>seven_of_9</h3>", ("seven_of_9",)),
        ("<p>May 3, 2024 · Ann Lee</p>", ("Ann Lee",)),
        ("<p>by Ann Lee - 2024-05-03<br>Updated: 2024-05-04</p>", ("Ann Lee",)),
        ("<p>by Ann Lee ● December 23, 2025 ● 6 min read</p>", ("Ann Lee",)),
        ("<p>Posted by seven_of_9 on Friday May 3, 2024</p>", ("seven_of_9",)),
        ("<p>by seven_of_9 » May 3, 2024</p>", ("seven_of_9",)),
        ("<p>By Ann Lee May 3, 2024</p>", ("Ann Lee",)),
        ("<p>By Ann Lee on May 3, 2024</p>", ("Ann Lee",)),
        ("<p>Posted on May 3, 2024 by Ann Lee</p>", ("Ann Lee",)),
        ("<p>By Ann Lee for the Harbour News</p>", ("Ann Lee",)),
        ("<p>Von Anna Müller und Jörg Weiß</p>", ("Anna Müller", "Jörg Weiß")),
        ("<p>Autorin: Anna Müller</p>", ("Anna Müller",)),
        ("<p>Text: Anna Müller</p>", ("Anna Müller",)),
        ("<p>Publié par Émilie Zola le 3 mai 2024</p>", ("Émilie Zola",)),
        ("<p>Escrito por María José Pérez</p>", ("María José Pérez",)),
        ("<p>di Mario Rossi</p>", ("Mario Rossi",)),
        ("<p>Scritto da Mario Rossi</p>", ("Mario Rossi",)),
        ("<p>Door Jan de Vries, 3 mei 2024</p>", ("Jan de Vries",)),
        ("<p>Av Anna Svensson</p>", ("Anna Svensson",)),
        ("<p>Autor: Jan Kowalski</p>", ("Jan Kowalski",)),
        ("<p>Автор:</p><p>Иван Петров</p>", ("Иван Петров",)),
        ("<p>Иван Петров, 3 мая 2024 г.</p>", ("Иван Петров",)),
        ("<p>作者：王小明</p>", ("王小明",)),
        ("<p>文／王小明　2024年5月3日</p>", ("王小明",)),
        ("<p>Text von Anna Müller, Fotos von Bernd Maier</p>", ("Anna Müller",)),
        ("<p>Publié le 03/05/2024 à 10:00 par Jean Dupont</p>", ("Jean Dupont",)),
        ("<div class=byline>By <a href=/a>Ann Lee</a>, <a href=/b>Bo Dyk</a></div>", ("Ann Lee", "Bo Dyk")),
        ("<p><span>Ann Lee</span> · <time datetime=2024-05-03>3 May</time></p>", ("Ann Lee",)),
        ("<p>By Ann Lee, Senior Reporter</p>", ("Ann Lee",)),
        ("<p>Ann Lee, Staff Writer</p>", ("Ann Lee",)),
        ("<p>Words: Ann Lee</p>", ("Ann Lee",)),
        ("<p>Mar. 3, 2024 · 5 min read · Ann Lee</p>", ("Ann Lee",)),
        ("<address>Ann Lee</address>", ("Ann Lee",)),
        ("<p><a href=/author/ann-lee><span>Ann Lee</span></a></p>", ("Ann Lee",)),
        ("<p><b><a href=/user-12.html><i>seven_of_9</i></a></b></p>", ("seven_of_9",)),
        ("<p>Thread starter: seven_of_9</p>", ("seven_of_9",)),
        ("<p>Started by seven_of_9, May 3, 2024</p>", ("seven_of_9",)),
        ("<p>Asked by seven_of_9 on May 3, 2024</p>", ("seven_of_9",)),
        ("<p>May 3, 2024 · Boats · Ann Lee</p>", ()),
        ("<p>By Ann Lee</p><p>By Bo Dyk</p><p>By Cy Doe</p>", ()),
        ("<p>By Staff Writer</p>", ()),
        ("<p>Ann Lee, Founder of Boats</p>", ()),
        ("<p>Von der Redaktion</p>", ()),
        ("<p>Photos by Ann Lee</p>", ()),
        ("<p>Medically reviewed by Ann Lee</p>", ()),
        ("<p>By Price Range</p>", ()),
        ("<p>Posted by the staff on May 3, 2024</p>", ()),
        ("<p>Posted by seven_of_9</p>", ()),
        ("<p>Posted by on May 3, 2024</p>", ()),
        ("<p><a href=/user/login>Login</a></p>", ()),
        ("<p><a href=/team/new-england>New England</a></p>", ()),
        ("<p>May 3, 2024 in Boats</p>", ()),
        ("<p>May 3, 2024 Ann Lee</p><p>May 4, 2024 Bo Dyk</p><p>May 5, 2024 Cy Doe</p>", ()),
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
        (
            "<p>by Ann <time datetime=2024-05-03>3 hours ago</time></p><p><time datetime=2024-05-03>x</time></p>",
            datetime(2024, 5, 3),
            None,
        ),
        ("<p>by Ann Lee - 2024-05-03<br>Updated: 2024-05-04</p>", datetime(2024, 5, 3), datetime(2024, 5, 4)),
        ("<p>Mis à jour le 4 mai 2024</p>", None, datetime(2024, 5, 4)),
        ("<p>Zuletzt geändert am 4. Mai 2024</p>", None, datetime(2024, 5, 4)),
        ("<p>Pubblicato il 3 maggio 2024, aggiornato</p>", None, datetime(2024, 5, 3)),
        ("<p>3 мая 2024</p><p>Обновлено 4 мая 2024</p>", datetime(2024, 5, 3), datetime(2024, 5, 4)),
        ("<p>Published: May 3, 2024, Updated: May 4, 2024</p>", datetime(2024, 5, 3), datetime(2024, 5, 4)),
        ("<p>Updated May 4, 2024 | Published May 3, 2024</p>", datetime(2024, 5, 3), datetime(2024, 5, 4)),
        ("<p>投稿日：2024年5月3日 更新日：2024年5月4日</p>", datetime(2024, 5, 3), datetime(2024, 5, 4)),
        (
            "<p>2024-05-03, 09:14 PM (This post was last modified: 2024-05-04, 03:27 AM by seven_of_9. Edited 1 time "
            "in total.)</p>",
            datetime(2024, 5, 3),
            None,
        ),
        ("<p>3 May 2024 – 5 May 2024</p>", None, None),
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


def test_without_a_heading_the_line_that_is_the_title_of_the_page_is_its_title() -> None:
    head = "<head><title>The harbour at noon | News</title></head>"
    facts = page_of(f"{head}<p>Menu</p><p>The harbour at noon</p><p>By Ann Lee</p><p>May 3, 2024</p>{TEXT}").metadata()

    assert (facts.authors, facts.published) == (("Ann Lee",), datetime(2024, 5, 3))


def test_the_name_of_the_site_is_not_its_title_though_it_is_the_heading() -> None:
    head = "<head><title>The harbour at noon</title></head>"
    menu = "".join(f"<p>Department {n}</p>" for n in range(20))
    body = f"<h1>News</h1>{menu}<p>The harbour at noon</p><p>By Ann Lee</p><p>May 3, 2024</p>{TEXT}"

    facts = page_of(head + body).metadata()

    assert (facts.authors, facts.published) == (("Ann Lee",), datetime(2024, 5, 3))


@pytest.mark.parametrize(
    "body",
    [
        "<div class=reviews><div><span class=author>Bo Dyk</span><p>Fine.</p></div></div>",
        "<div itemprop=review><meta itemprop=author content='Bo Dyk'></div>",
        "<ul class=comments><li><b itemprop=author>Bo Dyk</b> So it is.</li></ul>",
        "<aside><span class=author>Bo Dyk</span></aside>",
        "<ul><li><h3><a href=/1>One</a></h3><span class=author>Bo Dyk</span></li><li><h3><a href=/2>Two</a></h3>"
        "<span class=author>Cy Doe</span></li></ul>",
    ],
)
def test_who_wrote_a_part_of_a_page_did_not_write_the_page(body: str) -> None:
    assert page_of(f"<h1>The harbour</h1>{TEXT}{body}").metadata().authors == ()


def test_a_name_that_is_stated_and_not_shown_is_read() -> None:
    body = "<div itemprop=author><meta itemprop=name content=seven_of_9><a href=/u/7>7</a> 193 points</div>"

    assert page_of(f"<h1>The harbour</h1>{TEXT}{body}").metadata().authors == ("seven_of_9",)


@pytest.mark.parametrize(
    "footer",
    [
        "<p>This page was last modified on <time datetime=2024-05-03>May 3</time>.</p>",
        "<p class=lastUpdated><time datetime=2024-05-03>May 3</time></p>",
    ],
)
def test_the_time_of_a_change_is_not_that_of_the_publication(footer: str) -> None:
    assert page_of(f"<h1>The harbour</h1>{TEXT}{footer}").metadata().published is None


@pytest.mark.parametrize(
    "text",
    [
        "3 May 2024", "3rd of May 2024", "3-May-2024", "Fri May 3 2024", "2024-05-03T10:00:00Z", "2024/05/03",
        "3.5.2024", "03.05.2024, 14:30 Uhr", "3. Mai 2024", "le 3 mai 2024 à 10h30", "el 3 de mayo de 2024",
        "3 maggio 2024", "3 de maio de 2024", "3 mei 2024", "3 maja 2024", "3. května 2024", "3 maj 2024",
        "3. toukokuuta 2024", "3 Mayıs 2024", "2024. május 3.", "3 мая 2024 г.", "3 травня 2024",
        "3 Μαΐου 2024", "2024年5月3日", "2024년 5월 3일", "2024. 5. 3.", "3 مايو 2024",
    ],
)  # fmt: skip
def test_a_day_in_many_languages(text: str) -> None:
    assert shown_date(text) == datetime(2024, 5, 3)


@pytest.mark.parametrize(
    ("language", "day"),
    [
        ("fr", datetime(2024, 5, 3)),
        ("en-GB", datetime(2024, 5, 3)),
        ("en-US", datetime(2024, 3, 5)),
        ("en", None),
        ("", None),
    ],
)
def test_the_language_of_the_page_tells_days_from_months(language: str, day: datetime | None) -> None:
    html = f"<html lang='{language}'><body><article><h1>The harbour</h1><p>03/05/2024</p>{TEXT}</article></body></html>"

    assert page_of(html).metadata().published == day


@pytest.mark.parametrize("text", ["25/12/2024", "12/25/2024", "25.12.2024", "1er janvier 2024", "15 août 2024"])
def test_a_day_above_twelve_is_no_month(text: str) -> None:
    assert shown_date(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "", "99 May 2024", "May 32, 2024", "3 Mayhem 2024x", "12 people 2024", "12 decades 2024", "5 juniors 2024",
        "3/5/2024", "version 2024.1.3", "1.2.3.2024", "3. listopada 2024", "25/25/2024",
    ],
)  # fmt: skip
def test_what_is_no_date(text: str) -> None:
    assert shown_date(text) is None

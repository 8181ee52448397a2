"""The main content of pages that are no articles, and what a page is for."""

from __future__ import annotations

import pytest
from quality.content import SET, TYPES, Result, cases, in_published_mix, mean, measure, word_f1
from quality.corpora import kept_aside
from quality.fit import Example, answers_of, learn

from gossamer.extract.article.article import survey_of
from gossamer.extract.article.content import text_of
from gossamer.extract.article.likelihood import MOST_LINES, strike_unlikely
from gossamer.extract.article.outline import MOST_NODES
from gossamer.model.page import Headers, Snapshot
from gossamer.parse.page import Page
from tests.corpora import corpus

MENU = "<nav><ul>" + "".join(f"<li><a href=/{n}>Department {n}</a>" for n in range(12)) + "</ul></nav>"
FOOTER = (
    "<footer><a href=/terms>Terms of use</a> <a href=/privacy>Privacy policy</a> © 2026 All rights reserved</footer>"
)
POSTS = [
    "Has anybody tried to run the pump on a timer? Mine stops after an hour, and I cannot find out why it does so.",
    "Look at the fuse first. In mine the contact was loose, which looked exactly like what you describe there.",
    "That was it, thank you both. I have soldered the contact, and since then the pump has been running for two days.",
]


def fetched(body: str | bytes, url: str) -> Page:
    headers = Headers([("Content-Type", "text/html; charset=utf-8" if isinstance(body, str) else "image/png")])
    data = body.encode() if isinstance(body, str) else body
    return Page(Snapshot(url=url, requested_url=url, status=200, headers=headers, body=data, fetched_at=0.0))


def page_of(body: str, url: str) -> Page:
    return fetched(f"<html><head><title>A page</title></head><body>{MENU}{body}{FOOTER}</body></html>", url)


def json_ld(kind: str) -> str:
    return f'<script type="application/ld+json">{{"@type": "{kind}"}}</script>'


QUESTION = f"<p>{POSTS[0]} {POSTS[0]}</p>" * 3


def forum() -> Page:
    """A thread whose first post is long, each post deep in frames of its own."""
    posts = "".join(
        f"<article class=post><div class=post-author><a href=/u/{n}>user{n}</a></div>{'<div>' * 6}"
        f"<div class=post-message>{f'<p>{text}</p>' * (4 if n == 0 else 1)}</div>{'</div>' * 6}</article>"
        for n, text in enumerate(POSTS)
    )
    return page_of(
        f"<main><h1>Pump stops</h1><div class=thread>{posts}</div></main>", "https://x.example/threads/pump.7/"
    )


def test_every_post_of_a_thread_is_content_and_the_menu_is_not() -> None:
    text = forum().main_text()

    assert all(post in text for post in POSTS)
    assert "Department" not in text
    assert "All rights reserved" not in text


def test_replies_that_are_called_comments_are_content_where_the_page_is_a_thread() -> None:
    replies = "".join(f'<div class="comment"><p>{text}</p></div>' for text in POSTS[1:] * 3)
    page = page_of(
        f"<main><h1>Pump</h1><div class=question>{QUESTION}</div><div class=comments>{replies}</div></main>",
        "https://x.example/questions/7/pump",
    )

    assert all(post in page.main_text() for post in POSTS)


def test_sections_in_many_containers_are_all_content() -> None:
    frames, ends = "<div>" * 5, "</div>" * 5
    sections = "".join(
        f"<section class=s{n}>{frames}<h2>Part {n}</h2>{f'<p>{text}</p>' * (3 if n == 0 else 1)}{ends}</section>"
        for n, text in enumerate(POSTS)
    )
    page = page_of(f"<main><h1>Pump repair</h1>{sections}</main>", "https://x.example/services/pump-repair")

    assert all(post in page.main_text() for post in POSTS)


def test_a_page_that_is_made_by_scripts_is_read_from_its_noscript() -> None:
    posts = "".join(f"<div class=post><p>{text}</p></div>" for text in POSTS)
    noscript = f"<noscript><div class=topic-body>{posts}</div></noscript>"
    page = fetched(f"<html><body><div id=app></div>{noscript}</body></html>", "https://forum.example/t/pump/7")

    assert all(post in page.main_text() for post in POSTS)
    assert POSTS[0] in page.markdown()


def test_a_page_that_only_asks_for_scripts_has_no_content() -> None:
    notice = "<noscript><p>You need to enable JavaScript to run this app, please.</p></noscript><div id=root></div>"

    assert fetched(f"<html><body>{notice}</body></html>", "https://x.example/").main_text() == ""


def test_a_text_that_only_json_ld_has_is_read_from_there() -> None:
    body = f'<script type="application/ld+json">{{"@type": "Article", "articleBody": "{POSTS[0]}"}}</script>'

    assert fetched(f"<html><body>{body}<p>Loading</p></body></html>", "https://x.example/").main_text() == POSTS[0]


ASKED = "These cookies are set by a range of services that we have added to the site, and they may follow you."


@pytest.mark.parametrize(
    ("frame", "is_read"),
    [
        ("<div class=cookie-banner><p>{}</p></div>", False),
        ("<section id=onetrust-consent-sdk><div><p>{}</p></div></section>", False),
        ("<div class='layer consentDialog'>{}</div>", False),
        ("<h2 id=cookie-consent>{}</h2>", True),
        ("<p class=cookies>{}</p>", True),
        ("<div class=cookie-banner><p>{0}</p><p>So {0}</p><p>Or {0}</p></div>", False),
        (f"<div class=cookie-banner>{'<p>{0}</p>' * 60}</div>", True),
    ],
    ids=[
        "named so",
        "by a known maker",
        "in one name",
        "a heading",
        "a recipe",
        "most of the page",
        "nearly all of it",
    ],
)
def test_a_dialog_about_consent_is_not_read_and_a_text_about_it_is(frame: str, is_read: bool) -> None:
    page = fetched(f"<html><body><main>{frame.format(ASKED)}<p>{POSTS[0]} {POSTS[1]}</p></main></body></html>", "x:/")

    survey = survey_of(page)

    assert survey is not None
    assert any(ASKED in line.text(b"\0" * 99) for line in survey.lines) is is_read


def test_a_noscript_beside_the_text_is_not_content() -> None:
    posts = "".join(f"<p>{text}</p>" for text in POSTS)
    page = page_of(
        f"<noscript>Please enable JavaScript, then come back.</noscript><article>{posts}</article>",
        "https://x.example/blog/pumps",
    )

    assert "JavaScript" not in page.main_text()
    assert "JavaScript" not in page.markdown()


def test_a_quoted_post_is_read_once_and_so_is_a_name_that_stands_twice_in_its_card() -> None:
    quoting = "".join(
        f"<article class=post><div class=post-message><blockquote><p>{POSTS[0]}</p></blockquote><p>{text}</p></div>"
        "</article>"
        for text in POSTS[1:]
    )
    thread = page_of(
        "<main><h1>Pump stops</h1><div class=thread><article class=post><div class=post-message>"
        f"<p>{POSTS[0]}</p></div></article>{quoting}</div></main>",
        "https://x.example/threads/pump.7/",
    )
    cards = "".join(
        f"<li class=card><div class=name><p>Copper kettle {n}</p></div><h3><a href=/p/{n}>Copper kettle {n}</a></h3>"
        "<p class=price>€ 19.99</p></li>"
        for n in range(12)
    )
    shelf = survey_of(page_of(f"<main><ul>{cards}</ul></main>", "https://x.example/collections/k"))
    assert shelf is not None
    strike_unlikely(shelf, [1.0] * len(shelf.lines))
    shown = text_of(shelf.outline, 0)

    assert [thread.main_text().count(post) for post in POSTS] == [1, 1, 1]
    assert shown.count("Copper kettle 7") == 1
    assert shown.count("19.99") == 12  # the price of each, though they cost the same


def test_a_cell_is_read_as_often_as_it_stands_in_a_table() -> None:
    said = "yes, and it has been so since the very first edition of all"
    rows = "".join(f"<tr><td>Model {n}</td><td>{said}</td><td>yes</td></tr>" for n in range(6))
    survey = survey_of(page_of(f"<main><table>{rows}</table></main>", "https://x.example/docs/models"))
    assert survey is not None

    strike_unlikely(survey, [1.0] * len(survey.lines))

    assert text_of(survey.outline, 0).count(f"{said} | yes") == 6


def test_text_and_markdown_have_the_same_paragraphs() -> None:
    page = forum()

    assert [post for post in POSTS if post in page.markdown()] == POSTS
    assert "Department" not in page.markdown()
    assert page.markdown().count("Pump stops") == 1


LONG = "".join(f"<p>{text} {text}</p>" for text in POSTS * 4)
ARTICLE = f"{json_ld('NewsArticle')}<article><h1>Pumps</h1>{LONG}</article>"
PRODUCT = (
    f"{json_ld('Product')}{json_ld('Offer')}<main><h1>Pump</h1><p class=price>$49.00</p><button>Add to cart</button>"
    f"<div class=product-description><p>{POSTS[0]}</p></div></main>"
)
CARDS = "".join(
    f"<div class=product-card><a href=/products/{n}>Pump {n}</a><span class=price>${n}.99</span></div>"
    for n in range(1, 31)
)
COLLECTION = f"<main><h1>Pumps</h1><div class=product-grid>{CARDS}</div></main>"


@pytest.mark.parametrize(
    ("body", "url", "kind"),
    [
        (ARTICLE, "https://x.example/news/2026/01/why-pumps-stop-in-winter", "article"),
        (PRODUCT, "https://x.example/products/pump", "product"),
        (COLLECTION, "https://x.example/collections/pumps", "collection"),
    ],
    ids=["article", "product", "collection"],
)
def test_what_a_page_is_for(body: str, url: str, kind: str) -> None:
    found = page_of(body, url).kind_of_page()

    assert found.name == kind
    assert 0.4 <= found.confidence <= 1.0
    assert sum(found.all.values()) == pytest.approx(1.0, abs=0.01)


def test_a_thread_is_a_forum_and_nothing_is_nothing() -> None:
    assert forum().kind_of_page().name == "forum"
    assert fetched(b"\x89PNG\r\n\x1a\n", "https://x.example/a.png").kind_of_page().confidence == 0.0


@pytest.mark.parametrize(
    "body",
    [
        "<div>" * 50_000 + POSTS[0],
        f"<p>{POSTS[0]}</p>" * (MOST_LINES + 1),
        "<div class=post>" * 3000 + POSTS[0],
        "<i></i>" * MOST_NODES,
    ],
    ids=["deep", "many", "named", "empty"],
)
def test_hostile_pages_are_read_as_far_as_they_go(body: str) -> None:
    page = page_of(body, "https://x.example/")

    assert page.main_text() in ("", POSTS[0]) or POSTS[0] in page.main_text()
    assert page.kind_of_page().name


# -- how it is measured ------------------------------------------------------------------------------------------------


def test_main_content_of_real_pages_is_found() -> None:
    corpus(SET)
    known = [case for case in cases() if kept_aside(case.name)][::3]

    result = measure(known, Page.main_text)

    assert len(known) >= 40
    assert mean(result, known) >= 0.82


def test_words_are_compared_as_multisets() -> None:
    assert word_f1("a b", "B a") == 1.0
    assert word_f1("", "") == 1.0
    assert word_f1("a", "") == 0.0
    assert word_f1("a a", "a") == pytest.approx(2 / 3)
    assert mean(Result({}, 0.0), []) == 0.0


def test_types_count_in_the_shares_that_published_figures_have() -> None:
    assert in_published_mix([1.0] * len(TYPES)) == pytest.approx(1)
    assert in_published_mix([1.0, *[0.0] * (len(TYPES) - 1)]) == pytest.approx(793 / 1497)


def test_paragraphs_that_stand_in_the_true_text_are_content() -> None:
    words = [text.lower().split() for text in ("Home", "The pump has stopped again", "Price", "Buy it now or never")]

    assert answers_of("Price\nthe pump has stopped again", words) == [0, 1, 1, 0]


def test_copies_are_content_as_often_as_the_true_text_has_them() -> None:
    name, text, other = ["a", "kettle", "of", "copper"], ["it", "boils", "a", "lot", "of", "water"], ["buy"]
    once, twice = "a kettle of copper\nit boils a lot of water", "a kettle of copper\na kettle of copper"

    assert answers_of(once, [name, *[other] * 8, name, text]) == [0, *[0] * 8, 1, 1]
    assert answers_of(twice, [name, other, name]) == [1, 0, 1]


def test_weights_are_learned() -> None:
    examples = [Example([0, 1], 1, 1.0), Example([1], 0, 1.0)] * 50

    ((first, second, bias),) = learn(examples, 2, 1, 20, 0.0)

    assert second + bias < 0 < first + second + bias


def test_texts_of_elements_side_by_side_are_words_of_their_own_and_parts_of_a_word_are_not() -> None:
    lines = [
        f"<p><b>Lamps{n}</b><span>Kind to a room</span> and <b>D</b>rop <i>caps</i>, <b>un</b>broken words.</p>"
        for n in range(6)
    ]
    page = page_of(f"<main><h1>Shelves</h1>{''.join(lines)}</main>", "https://x.example/services/shelves")

    assert "Lamps3 Kind to a room and Drop caps, unbroken words." in page.main_text()


LONG = "The lamp stands well, gives a warm light, and its switch is where a hand looks for it in the dark."


def article_page(body: str) -> Page:
    head = "<meta property='og:type' content=article><meta property='article:published_time' content='2026-05-03'>"
    return fetched(
        f"<html><head><title>A lamp | News</title>{head}</head><body>{MENU}<main><h1>A lamp</h1>{body}</main>{FOOTER}",
        "https://x.example/2026/05/how-we-built-a-lamp-in-a-day",
    )


def test_an_article_in_many_unlike_sections_is_read_to_its_end() -> None:
    first = "".join(f"<p>{n} {LONG} {LONG} {LONG}</p>" for n in range(6))
    others = "".join(
        f"<div class=r{n}><h3>Lamp {n}</h3><div class=y{n}><p>Pick {n}: {LONG}</p><p>It is {n}. {LONG}</p></div></div>"
        for n in range(2, 22)
    )

    text = article_page(f"<div class=pick-body>{first}</div>{others}").main_text()

    assert "Pick 2:" in text
    assert "It is 21." in text


def test_parts_of_a_text_that_are_named_alike_are_all_read_whatever_their_name() -> None:
    boxes = "".join(f"<div class=text-widget__root>{f'<p>{n} {LONG} {LONG}</p>' * n}</div>" for n in (1, 5, 2))

    text = article_page(f"<article>{boxes}</article>").main_text()

    assert text.startswith("1 The lamp")
    assert "2 The lamp" in text


def test_a_list_with_the_longest_lines_is_not_all_of_a_page() -> None:
    things = "".join(f"<li>{n}00 g of flour</li>" for n in range(1, 7))
    steps = "".join(f"<li>Step {n}: {LONG}</li>" for n in range(6))

    text = article_page(
        f"<section><h2>Ingredients</h2><ul>{things}</ul></section><section><h2>Method</h2><ol>{steps}</ol></section>"
    ).main_text()

    assert "300 g of flour" in text
    assert "Step 5" in text


def test_comments_below_an_article_are_not_its_text_however_long_they_are() -> None:
    said = "".join(f"<div class=comment><p>I say {n}: {LONG} {LONG}</p></div>" for n in range(30))

    text = article_page(
        f"<article><p>One. {LONG}</p><p>Two. {LONG} {LONG}</p><p>Three. {LONG} {LONG}</p></article>"
        f"<section class=comments><h2>Comments</h2>{said}</section>"
    ).main_text()

    assert "Three." in text
    assert "I say" not in text

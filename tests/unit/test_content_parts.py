"""Cards, questions, comments and reviews are taken or left out as a whole, wherever the page puts them."""

from __future__ import annotations

import time

import pytest

from gossamer.extract.article.content import content_markdown
from gossamer.model.page_content import ContentParts, PageContent
from gossamer.project.pages.formats import WantedFormats, formatted

from .productpages import json_ld, kettle, offer, page_of

PROSE = (
    "The lamp was drawn in 1932 by an engineer of springs, who wanted an arm that stays wherever a hand leaves it. It"
    " has been made in the same town ever since, with the same four springs, and few tools have changed as little."
)
MORE = (
    "Its shade throws the light on the table and nowhere else, which is why draughtsmen liked it, and after them"
    " readers, watchmakers and surgeons. The heavy foot keeps it standing, even on a board that slopes."
)
COMMENT = "I have had mine for thirty years, and the springs are as good as new, whatever my cat has done to them."
ANSWER = "Unplug it, let it cool, and turn the old bulb to the left until it comes out of its holder."
REVIEW = "We bought it for the office, and it does what it should do, although the cable might well be longer."

COMMENTS = f"""<section id=comments><h2>2 comments</h2>
  <div class=comment><b>Ann</b><p>{COMMENT}</p></div><div class=comment><b>Bo</b><p>Mine too!</p></div>
  <form><p>Leave your comment here</p><textarea></textarea></form></section>"""
FAQ = f"""<div class=accordion><h2>Frequently asked questions</h2>
  <div class=fold><h3>How do I change the bulb?</h3><div hidden><p>{ANSWER}</p></div></div>
  <div class=fold><h3>Is there a smaller one?</h3><div hidden><p>Yes, with three springs and a clamp.</p></div></div>
</div>"""
REVIEWS = f"""<div class=product-reviews><h2>Reviews</h2>
  <article><b>Very good</b><p>{REVIEW}</p></article><article><b>Good</b><p>It came soon.</p></article></div>"""


def cards(*names: str) -> str:
    return "<div class=grid>{}</div>".format(
        "".join(f"<div class=card><a href=/{n}><img src=/{n}.jpg><h3>{n}</h3></a><p>€ 49.90</p></div>" for n in names)
    )


ARTICLE = f"<article><h1>Four springs</h1>{f'<p>{PROSE}</p><p>{MORE}</p>' * 2}</article>"
PRODUCT = f"<h1>Desk lamp</h1><p>49,90 €</p><button>Add to cart</button><h2>Description</h2><p>{PROSE}</p>"
HEAD = json_ld(kettle(name="Desk lamp", sku="1", offers=offer("49.90"), description=PROSE))


def page(body: str, head: str = ""):  # type: ignore[no-untyped-def]
    menu = "<nav><ul><li><a href=/a>Home</a><li><a href=/b>Lamps</a></ul></nav>"
    return page_of(f"<title>Four springs</title>{head}<body>{menu}<main>{body}</main><footer>© Lamps</footer></body>")


OTHERS = cards("Floor lamp", "Wall lamp", "Ceiling lamp")
SHOP = f"{PRODUCT}{FAQ}{REVIEWS}<section><h2>You may also like</h2>{OTHERS}</section>"


@pytest.mark.parametrize(
    ("body", "head", "part", "texts"),
    [
        (ARTICLE + COMMENTS, "", "comments", (COMMENT, "Mine too!")),
        (ARTICLE + FAQ, "", "faq", ("How do I change the bulb?", ANSWER, "three springs and a clamp")),
        (ARTICLE + OTHERS, "", "cards", ("Floor lamp", "Ceiling lamp")),
        (SHOP, HEAD, "faq", ("How do I change the bulb?", ANSWER)),
        (SHOP, HEAD, "reviews", (REVIEW, "It came soon.")),
        (SHOP, HEAD, "cards", ("Floor lamp", "Wall lamp", "Ceiling lamp")),
    ],
)
def test_a_part_is_taken_or_left_out_as_a_whole(body: str, head: str, part: str, texts: tuple[str, ...]) -> None:
    there, gone = page(body, head).main_text(**{part: True}), page(body, head).main_text(**{part: False})

    assert [text for text in texts if text not in there] == []
    assert [text for text in texts if text in gone] == []
    assert PROSE in there
    assert PROSE in gone
    assert "Home" not in there
    assert "©" not in there


@pytest.mark.parametrize("part", ["faq", "reviews", "cards"])
def test_the_other_parts_stay_as_they_were(part: str) -> None:
    def others(text: str) -> set[str]:
        return {each for each in (ANSWER, REVIEW, "Wall lamp") if each in text}

    own = {"faq": ANSWER, "reviews": REVIEW, "cards": "Wall lamp"}[part]
    before = others(page(SHOP, HEAD).main_text())

    assert others(page(SHOP, HEAD).main_text(**{part: True})) == before | {own}
    assert others(page(SHOP, HEAD).main_text(**{part: False})) == before - {own}


def test_markdown_has_the_same_parts() -> None:
    there = page(ARTICLE + COMMENTS).markdown(comments=True)

    assert there.startswith("# Four springs")
    assert COMMENT in there
    assert PROSE in there
    assert "Home" not in there
    assert "Leave your comment here" not in there
    assert COMMENT not in page(ARTICLE + COMMENTS).markdown(comments=False)
    assert content_markdown(page(ARTICLE + COMMENTS), PageContent(comments=True)) == there


def test_a_list_without_its_cards_is_not_the_whole_page_again() -> None:
    body = f"<h1>Lamps</h1>{cards(*(f'Lamp {n}' for n in range(12)))}"

    assert "Lamp 7" in page(body).main_text(cards=True)
    for text in (page(body).main_text(cards=False), page(body).markdown(cards=False)):
        assert "Lamp 7" not in text
    assert formatted(page(body), WantedFormats(formats=("text",), content=PageContent(cards=False)))["text"] != (
        page(body).selector.text
    )


def test_replies_of_a_thread_go_and_its_first_post_stays() -> None:
    posts = "".join(
        f"<div class=post><b>user{n}</b><p>{PROSE if not n else f'{COMMENT} ({n})'}</p></div>" for n in range(6)
    )
    thread = page_of(
        f"<title>Springs</title><body><h1>Springs</h1><div class=thread>{posts}</div></body>",
        "https://forum.example/forum/threads/springs.12/",
    )
    assert thread.kind_of_page().name == "forum"

    text = thread.main_text(comments=False)

    assert PROSE in text
    assert COMMENT not in text


@pytest.mark.parametrize(
    "body",
    [
        f"<div class=review-page><h1>The lamp</h1><div class=review-body><p>{PROSE}</p><p>{MORE}</p></div></div>",
        f"<article class='post comments-open'><h1>Four springs</h1>{f'<p>{PROSE}</p><p>{MORE}</p>' * 2}</article>",
        f"<h1>Four springs</h1>{''.join(f'<h2>Why {n} springs?</h2><p>{PROSE}</p><p>{MORE}</p>' for n in range(4))}",
        f"<h1>Four springs</h1><p>{PROSE}</p><p>{MORE}</p><ul>"
        + "".join(f"<li><a href=/{n}>Book {n} about lamps and springs</a></li>" for n in range(5))
        + f"</ul><p>{PROSE}</p>",
    ],
    ids=["a review", "named after comments", "headings that ask", "a list of links"],
)
def test_the_text_itself_is_none_of_them(body: str) -> None:
    plain = page(body)

    assert PROSE in plain.main_text()
    assert page(body).main_text(cards=False, faq=False, comments=False, reviews=False) == plain.main_text()


def test_nothing_chosen_changes_nothing() -> None:
    assert page(SHOP, HEAD).main_text(cards=None) == page(SHOP, HEAD).main_text()
    assert page(ARTICLE).main_text(comments=True) == page(ARTICLE).main_text()


def test_parts_beside_selectors_are_refused() -> None:
    assert "main content" in PageContent(cards=True, include=("p",)).fault()
    assert "main content" in PageContent(faq=False, only_main=False).fault()
    assert PageContent(cards=False, reviews=True).fault() == ""
    assert not ContentParts().chooses


@pytest.mark.parametrize(
    "body",
    [
        "<div class=comments>" * 20_000 + f"<p>{PROSE}</p>",
        "<div class=card><a href=/x><img src=x>lamp</a>" * 20_000,
        "<h2>Reviews</h2>" * 20_000,
        "<section><h2>FAQ</h2><p>Why?</p>" * 10_000,
        "<dl>" + "<dt>Why is that so?</dt><dd>Because.</dd>" * 10_000 + "</dl>",
        "".join(f"<div class=review{n}><div class=review>{COMMENT}</div></div>" for n in range(5_000)),
    ],
    ids=["nested comments", "nested cards", "headings", "nested sections", "questions", "reviews"],
)
def test_hostile_pages_take_no_long_time(body: str) -> None:
    hostile = page_of(f"<body>{body}")
    hostile.main_text()
    began = time.thread_time()
    hostile.main_text()
    plain = time.thread_time() - began

    began = time.thread_time()
    hostile.main_text(cards=True, faq=False, comments=True, reviews=False)

    assert time.thread_time() - began < 3 * plain + 1.0

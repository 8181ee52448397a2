"""What is not what a page is about is no content: on the page of a product reviews, other products, delivery, the form
to buy; on any other page dialogs, footers, announcements, signatures."""

from __future__ import annotations

import pytest

from .productpages import json_ld, kettle, offer, page_of

TEXT = (
    "The blue kettle boils a litre of water in three minutes, keeps it warm for an hour and switches itself off. Its"
    " handle stays cool, its lid closes tightly, and the filter in the spout can be taken out and washed."
)
HEAD = json_ld(kettle(sku="48213", brand="Acme", offers=offer("49.90"), description=TEXT))
PRODUCT = f"<h1>Blue Kettle</h1><p class=price>49,90 €</p><button>Add to cart</button><h2>Description</h2><p>{TEXT}</p>"
SPECS = "<h2>Specifications</h2><table><tr><th>Volume</th><td>1.2 litres of water</td></tr></table>"
ASIDE = "I bought it for my mother, who has used it every single day since, and she is quite happy with how it looks."


def text_of(body: str) -> str:
    page = page_of(f"<title>Blue Kettle | Shop</title>{HEAD}<body>{body}</body>")
    assert page.kind_of_page().name == "product"
    return page.main_text()


@pytest.mark.parametrize(
    "heading",
    [
        "Reviews",
        "12 customer reviews",
        "What our customers say",
        "You may also like",
        "Bewertungen",
        "Vous aimerez aussi",
    ],
)
def test_the_section_below_such_a_heading_is_left_out_up_to_the_next_one(heading: str) -> None:
    text = text_of(f"<main>{PRODUCT}<h2>{heading}</h2><h3>Lovely</h3><p>{ASIDE}</p>{SPECS}</main>")

    assert TEXT in text
    assert ASIDE not in text
    assert "1.2 litres of water" in text


@pytest.mark.parametrize(
    "name",
    ["related-products", "shipping-info", "product-form", "recently-viewed", "x reviews", "guarantees", "seller"],
)
def test_an_element_with_such_a_name_is_left_out(name: str) -> None:
    text = text_of(f"<main>{PRODUCT}<div class='{name}'><p>{ASIDE}</p></div>{SPECS}</main>")

    assert TEXT in text
    assert ASIDE not in text


@pytest.mark.parametrize(
    "part", ["<h2>Questions and answers</h2>", "<h2>The materials in review</h2>", "<h2>How it works</h2>"]
)
def test_other_sections_stay(part: str) -> None:
    assert ASIDE in text_of(f"<main>{PRODUCT}{part}<p>{ASIDE}</p>{SPECS}</main>")


def test_what_holds_most_of_the_content_is_no_aside() -> None:
    assert TEXT in text_of(f"<div class='product has-variants'>{PRODUCT}{SPECS}</div>")


POSTS = [
    f"I took the pump apart for the {n}th time, cleaned the seal, put it back, and it still leaks at the {part}."
    for n, part in enumerate(("valve", "hose", "lid", "base", "joint"), 4)
]


def thread(around: str, inside: str = "") -> str:
    posts = "".join(
        f"<div class='post message'><a class=username href=/u/{n}>user{n}</a><p>{text}</p>{inside}</div>"
        for n, text in enumerate(POSTS)
    )
    head = json_ld({"@type": "DiscussionForumPosting"})
    page = page_of(
        f"<title>Leaky pump | Forum</title>{head}<body><main><h1>Leaky pump</h1>{posts}{around}</main></body>",
        url="https://forum.example/forum/t/leaky-pump/7",
    )
    assert page.kind_of_page().name == "forum"
    assert page.kind_of_page().all["article"] < 0.2  # else it may be read as one
    return page.main_text()


@pytest.mark.parametrize(
    "names",
    [
        "class=signup-modal",
        "class=PopUp",
        "role=dialog",
        "id=site-footer",
        "class=announcement-bar",
        "class=similar-topics",
    ],
)
def test_a_part_beside_what_the_page_is_about_is_left_out(names: str) -> None:
    text = thread(f"<div {names}><p>{ASIDE}</p></div>")

    assert all(post in text for post in POSTS)
    assert ASIDE not in text


@pytest.mark.parametrize("name", ["signature", "onebox allowlistedgeneric", "bbCodeBlock--unfurl"])
def test_what_forums_put_into_posts_is_left_out(name: str) -> None:
    text = thread("", f"<div class='{name}'><p>{ASIDE}</p></div>")

    assert all(post in text for post in POSTS)
    assert ASIDE not in text


def test_the_details_of_a_product_may_be_in_a_dialog() -> None:
    assert ASIDE in text_of(f"<main>{PRODUCT}<div class=details-modal role=dialog><p>{ASIDE}</p></div>{SPECS}</main>")


def test_a_page_that_is_one_dialog_is_read() -> None:
    posts = "".join(f"<p>{text}</p>" for text in POSTS)
    page = page_of(f"<body><div class=modal role=dialog><h1>Leaky pump</h1>{posts}</div></body>")

    assert all(post in page.main_text() for post in POSTS)

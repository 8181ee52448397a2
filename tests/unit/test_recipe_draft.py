"""Drafting: which links of a page are its list, selectors that will fit tomorrow, and a draft that works at once."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from turbohtml import Element

from gossamer import Money
from gossamer.parse.page import Page
from gossamer.recipe.blocks import best_blocks
from gossamer.recipe.draft import detail_links, draft_recipe
from gossamer.recipe.spider import check_page
from gossamer.recipe.stable_selectors import best_group, next_selector, page_parameter, selector_for, stable_classes
from tests.unit.recipes import page_of, recipe

MENU = "<nav class='menu'>" + "".join(f"<a href='/c/{n}'>Shelf {n}</a>" for n in range(12)) + "</nav>"


LAMP = (
    "<main><h1>Oak desk lamp</h1><p class=price>$39.50</p><p>SKU: <b class=sku>LMP-1</b></p><p class=stock>In stock</p>"
    "<div class=description><p>It was made by hand in a small workshop.</p></div><button>Add to cart</button></main>"
)


def cards(count: int, *, extra: str = "") -> str:
    return "".join(
        f"<li class='card css-1x{n}'><h3><a href='/item/{n}'>A fine thing, number {n}</a></h3><b>€{n},50</b>"
        f"<a href='/cart?add={n}'>Buy</a>{extra}</li>"
        for n in range(count)
    )


def listing(count: int = 9, end: str = "") -> Page:
    return page_of(
        f"<body>{MENU}<ol class='shelf'>{cards(count)}</ol>{end}<footer><a href='/imprint'>Imprint</a></footer>"
    )


def test_the_list_of_a_page_is_found_beside_menus_and_buttons():
    group = best_group(listing())

    assert group is not None
    assert group.urls == tuple(f"https://shop.example/item/{n}" for n in range(9))
    assert group.selector == "h3 a"
    assert [link.attrib["href"] for link in listing().css(group.selector)] == [f"/item/{n}" for n in range(9)]


@pytest.mark.parametrize(
    "body", ["", MENU, "<p>text</p>", "<a href='/a'>a</a><a href='/b'>b</a>", "<a href='https://x.test/'>" * 9]
)
def test_a_page_without_a_list_has_none(body):
    assert best_group(page_of(body)) is None


@pytest.mark.parametrize(
    ("end", "selector"),
    [
        ("<a rel='next' href='?page=2'>x</a>", 'a[rel~="next"]'),
        ("<li class='next'><a href='?page=2'>x</a></li>", "li.next a"),
        ("<a href='?page=2'>Nächste Seite</a>", 'a:contains("Nächste")'),
        ("<a rel='next' href='https://other.test/'>x</a>", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_link_to_the_next_page_is_found(end, selector):
    assert next_selector(listing(end=end)) == selector


def test_the_parameter_that_counts_pages_is_found():
    page = listing(end="<a href='?page=2'>2</a><a href='?page=3'>3</a><a href='?page=9'>9</a>")

    assert page_parameter(page) == "page"


def test_a_selector_is_made_of_what_people_named():
    page = page_of("<div class='css-8x1 facts'><b class='price sc-aB9 active'>5</b></div><i class='price'>6</i>")
    element = page.css("b")[0].root
    assert isinstance(element, Element)

    assert stable_classes(element) == ["price"]
    assert selector_for(page, element) == "b"
    twice = page_of("<div class='facts'><b class='price'>5</b></div><div class='more'><b class='price'>6</b></div>")
    assert isinstance(twice.css("b")[0].root, Element)
    assert selector_for(twice, twice.css("b")[0].root) == ".facts .price"


PRODUCT = """<html><body><article class="product"><h1>Opal Lamp</h1><span class="price">€25.95</span>
<p class="sku">LIT-033</p></article><script type="application/ld+json">{"@context": "https://schema.org",
"@type": "Product", "name": "Opal Lamp", "sku": "LIT-033", "brand": {"name": "Orb"},
"offers": {"price": "25.95", "priceCurrency": "EUR", "availability": "https://schema.org/InStock"}}</script></body></html>"""


def lamps(count: int, page: str = PRODUCT) -> list[Page]:
    """Pages of different lamps."""
    return [
        page_of(
            page.replace("Opal Lamp", f"{name} Lamp").replace("033", f"0{n}7").replace("25.95", f"{n}5.95"),
            url=f"https://shop.example/item/{n}",
        )
        for n, name in enumerate(("Opal", "Fern", "Rush", "Brass", "Sedge", "Bark")[:count], 1)
    ]


def test_a_draft_leads_from_the_list_to_the_thing_and_every_rule_of_it_finds_something():
    # Given a list, and products behind its links
    start = listing(end="<a class='next' href='?page=2'>next</a>")
    assert detail_links(start) == [f"https://shop.example/item/{n}" for n in (0, 1, 3, 4, 6, 8)]
    things = lamps(5)

    # When they are drafted from
    draft = draft_recipe(start, things, "shop.toml")

    # Then the draft is a recipe
    assert draft.summary == "listing -> product"
    spider = recipe(draft.text)
    assert (spider.recipe.start_kind, spider.recipe.kinds["product"].key) == ("listing", ("sku",))
    # whose rules all find something
    listed = check_page(spider, "listing", start)
    assert [len(links.urls) for links in listed.links] == [9, 1]
    for n, thing in enumerate(things, 1):
        seen = check_page(spider, "product", thing)
        assert {note.field for note in seen.notes if note.value is None} == set()
        (item,) = seen.items
        assert (item.sku, item.title.endswith(" Lamp"), str(item.price)) == (f"LIT-0{n}7", True, f"{n}5.95 EUR")


FLAT = (
    "<title>{0} · Homes</title><nav><a href='/'>Home</a><a href='/all'>All</a><a href='/about'>About</a></nav>"
    "<h2>{0}</h2><dl><dt>Rent</dt><dd>{1} €</dd><dt>Rooms</dt><dd>{2}</dd><dt>Free from</dt><dd>{3}.03.2027</dd>"
    "<dt>Balcony</dt><dd>{4}</dd></dl><p class=js-x8f2>{5}</p><ul>{6}</ul><footer>Homes 1998</footer>"
)


def flats() -> list[Page]:
    found = []
    for n, name in enumerate(("Bright flat", "Quiet loft", "Sunny attic", "Old studio", "New house"), 1):
        text = f"Number {n} lies near the harbour, and has {'a garden' if n % 2 else 'two doors'}."
        more = "".join(f"<li><a href='/flat/{n + k}'>Flat {n * k + 9}</a> <b>{n * k}00 €</b></li>" for k in (1, 2, 3))
        html = FLAT.format(name, f"1.{n}50,50", n % 3 + 1, 12 + n, "Yes" if n % 2 else "No", text, more)
        found.append(page_of(html, url=f"https://shop.example/flat/{n}"))
    return found


def test_what_differs_between_pages_of_one_kind_are_its_fields():
    draft = draft_recipe(listing(), flats(), "flats.toml")

    assert draft.summary == "listing -> item"
    spider = recipe(draft.text)
    (item,) = check_page(spider, "item", flats()[3]).items
    assert {name: getattr(item, name) for name in item.__struct_fields__ if name not in ("url", "text")} == {
        "title": "Old studio",
        "rent": Money(Decimal("1450.50"), "EUR"),
        "rooms": 2,
        "free_from": date(2027, 3, 16),
        "balcony": False,
    }
    assert item.text.startswith("Number 4 lies near the harbour")


def test_cards_of_other_things_menus_and_footers_are_no_fields():
    fields = recipe(draft_recipe(listing(), flats(), "x").text).recipe.kinds["item"].fields

    assert {field.name for field in fields} == {"title", "rent", "rooms", "free_from", "balcony", "text"}


def test_pages_that_have_nothing_in_common_are_drafted_as_any_page():
    pages = [page_of(f"<title>{n}</title><p>{'<b>x</b>' * n}", url=f"https://shop.example/{n}") for n in range(5)]

    assert "item" not in draft_recipe(listing(), pages, "x").summary


def test_drafting_from_large_pages_is_bounded():
    rows = "".join(f"<div class=r{n}><b>{{0}} {n}</b><i>{n}.{{0}}</i></div>" for n in range(2_000))
    pages = [page_of(rows.replace("{0}", str(k)), url=f"https://shop.example/{k}") for k in range(6)]

    fields = recipe(draft_recipe(listing(), pages, "x").text).recipe.kinds["item"].fields
    assert len(fields) <= 24


def test_an_article_behind_the_list_is_left_to_the_ready_parser():
    story = " ".join(f"Sentence number {n} tells a little more about the harbour." for n in range(40))
    head = "<meta property='og:type' content='article'><title>Harbour</title>"
    article = page_of(f"{head}<article><h1>Harbour</h1><p>{story}</p></article>")

    draft = draft_recipe(listing(), [article], "news.toml")

    assert draft.summary == "listing -> article"
    (item,) = check_page(recipe(draft.text), "article", article).items
    assert item.text.startswith("Sentence number 0")


def test_a_page_that_is_a_product_itself_is_drafted_without_a_list():
    page = page_of(PRODUCT.replace("</body>", f"<ul>{cards(9)}</ul></body>"))

    assert detail_links(page) == []
    assert draft_recipe(page, [], "x").summary == "product"


def test_where_nothing_behind_a_list_of_mere_links_can_be_had_the_draft_is_general():
    links = " ".join(f"<a class=entry href='/item/{n}'>A fine thing, number {n}</a>" for n in range(9))
    draft = draft_recipe(page_of(f"<p>{links}"), [], "x")

    assert recipe(draft.text).recipe.kinds["page"].item == "Page"
    assert "Every rule found something" not in draft.text
    assert "The rules of [pages.page] were not tried" in draft.text


def test_a_page_of_which_nothing_can_be_made_gets_title_and_text():
    page = page_of("<title>Hello</title><h1>World</h1><p>words</p>")

    seen = check_page(recipe(draft_recipe(page, [], "x.toml").text), "page", page)

    assert {note.field: note.value for note in seen.notes} == {
        "title": "Hello",
        "headline": "World",
        "text": "# World\n\nwords",
    }


def quotes() -> Page:
    """A page of ten quotes, made as such pages are: text, author, a link that says the same everywhere, tags."""
    blocks = "".join(
        f"<div class='quote'><span class='text'>“Thought number {n} about the world.”</span><span>by <small"
        f" class='author'>Author {n % 4}</small> <a href='/author/{n % 4}'>(about)</a></span><div class='tags'>Tags:"
        f" <a class='tag' href='/tag/t{n}/'>t{n}</a> <a class='tag' href='/tag/x/'>x</a></div></div>"
        for n in range(10)
    )
    cloud = "".join(
        f"<span class='tag-item'><a class='tag' href='/tag/{name}/'>{name}</a></span>" for name in "abcdefghij"
    )
    more = "<nav><ul class='pager'><li class='next'><a href='/page/2/'>Next</a></li></ul></nav>"
    return page_of(
        f"<h1>Quotes</h1><div class='row'><div>{blocks}{more}</div><div class='tags-box'>{cloud}</div></div>"
    )


def test_the_blocks_that_repeat_on_a_page_and_their_fields_are_found():
    behind = page_of("<title>Author 0</title><h1>Author 0</h1><p>Born then.</p>")

    draft = draft_recipe(quotes(), [behind], "quotes.toml")

    seen = check_page(recipe(draft.text), "listing", quotes())
    assert draft.summary == "listing"
    assert len(seen.items) == 10
    assert (seen.items[3].text, seen.items[3].author, seen.items[3].tags) == (
        "“Thought number 3 about the world.”", "Author 3", ["t3", "x"],
    )  # fmt: skip
    assert [len(links.urls) for links in seen.links] == [1]


def test_cards_in_frames_of_their_own_are_blocks_with_link_picture_and_price():
    pods = "".join(
        f"<li class='col-6'><article class='pod'><a href='/b/{n}'><img src='/m/{n}.jpg'></a><h3><a href='/b/{n}'>Book"
        f" number {n}</a></h3><p class='price_color'>£{n + 10}.77</p><p class='stock'>In stock</p></article></li>"
        for n in range(20)
    )

    blocks = best_blocks(page_of(f"{MENU}<ol>{pods}</ol>"))

    assert blocks is not None
    assert (blocks.selector, blocks.count, blocks.key) == ("article.pod", 20, "link")
    assert {field.name: field.rule for field in blocks.fields} == {
        "image": '{ css = "img::attr(src)", type = "url" }',
        "link": '{ css = "a::attr(href)", type = "url" }',
        "title": '{ css = "h3" }',
        "price_color": '{ css = ".price_color", type = "money" }',
    }


def test_rows_of_a_table_are_blocks_and_its_heads_name_the_fields():
    rows = "".join(f"<tr><td>{n}</td><td><b>Team {n}</b></td><td>{n % 4}</td></tr>" for n in range(12))
    page = page_of(f"<h1>League</h1><table><tr><th>Rank<th>The team</th><th>Points</th></tr>{rows}</table>")

    seen = check_page(recipe(draft_recipe(page, [], "league.toml").text), "listing", page)

    assert [(one.rank, one.the_team, one.points) for one in seen.items[:2]] == [
        ("0", "Team 0", "0"),
        ("1", "Team 1", "1"),
    ]
    assert len(seen.items) == 12


def test_entries_of_a_list_without_classes_are_blocks():
    jobs = "".join(f"<li><h2>Job {n}</h2><p>Company {n}</p><span>City {n % 7}</span></li>" for n in range(9))
    page = page_of(f"{MENU}<div class=jobs><ul>{jobs}</ul></div><ul><li>one</li><li>two</li></ul>")

    blocks = best_blocks(page)

    assert blocks is not None
    assert (blocks.selector, blocks.count, blocks.key) == (".jobs li", 9, "title")
    assert [field.name for field in blocks.fields] == ["title", "text", "span"]


LONG = "words that go on for a while"


@pytest.mark.parametrize(
    ("block", "selector", "names"),
    [
        (
            "<div class='css-{n}ab'><blockquote class='q_{n}x'>Thought {n} of "
            + LONG
            + "</blockquote><cite>Author {n}</cite></div>",
            "main > div > div",
            ["text", "author"],
        ),
        (
            "<x-card><a href=/p/{n}>Lamp model {n} of " + LONG + "</a><span class=price>${n}0.00</span></x-card>",
            "x-card",
            ["link", "price", "title"],
        ),
        (
            "<a class=tile href=/p/{n}><strong>Vase {n} of " + LONG + "</strong><em>£{n}5.99</em></a>",
            "a.tile",
            ["link", "strong", "price"],
        ),
    ],
)
def test_blocks_without_names_that_a_person_gave(block, selector, names):
    page = page_of(f"<main><h1>List</h1><div>{''.join(block.format(n=n) for n in range(1, 11))}</div></main>")

    blocks = best_blocks(page)

    assert blocks is not None
    assert (blocks.selector, blocks.count) == (selector, 10)
    assert [field.name for field in blocks.fields] == names


def test_the_blocks_in_groups_are_the_blocks():
    groups = "".join(
        f"<section class=group><h2>Group {g}</h2>"
        + "".join(f"<div class=entry><h3>Entry {g}-{n}</h3><p>Details of {g}-{n} follow</p></div>" for n in range(4))
        + "</section>"
        for g in range(3)
    )

    blocks = best_blocks(page_of(groups))

    assert blocks is not None
    assert (blocks.selector, blocks.count, blocks.key) == ("div.entry", 12, "title")


def test_what_is_no_block_among_blocks_is_left_out():
    items = "".join(
        f"<div class=item><h3><a href=/x{n}>Item {n}</a></h3><p>{LONG} {n}</p></div>"
        + ("<div class=item><b>Advertisement: buy now</b></div>" if n % 3 == 0 else "")
        for n in range(10)
    )

    blocks = best_blocks(page_of(f"<div class=list>{items}</div>"))

    assert blocks is not None
    assert (blocks.selector, blocks.count, blocks.key) == ("div.item:has(h3)", 10, "link")


def test_heads_of_columns_with_marks_are_names():
    rows = "".join(f"<tr><td>Hafen {n}</td><td>{n}00</td></tr>" for n in range(5))

    blocks = best_blocks(page_of(f"<table><tr><th>Hafen<th>Größe (m²)</tr>{rows}</table>"))

    assert blocks is not None
    assert [field.name for field in blocks.fields] == ["hafen", "grosse_m"]


def test_tags_are_a_field_though_they_repeat():
    blocks = "".join(
        f"<div class=quote><q class=text>Thought number {n}</q><i class=tag>t{n % 2}</i><i class=tag>x</i></div>"
        for n in range(10)
    )
    found = best_blocks(page_of(blocks))

    assert found is not None
    assert {field.name: field.rule for field in found.fields}["tags"] == '{ css = ".tag", type = "list" }'


def test_where_no_page_behind_the_list_can_be_had_its_blocks_are_the_items():
    draft = draft_recipe(listing(), [], "shop.toml")

    assert draft.summary == "listing"
    assert "No page that the list links to could be fetched" in draft.text
    assert len(check_page(recipe(draft.text), "listing", listing()).items) == 9


def test_a_product_with_a_number_of_its_own_is_one_beside_priced_links_to_others():
    others = cards(5).replace("€", "$")

    assert draft_recipe(page_of(f"{LAMP}<ul>{others}</ul>"), [], "x").summary == "product"
    numbered = others.replace("</li>", " SKU: LMP-1</li>")
    assert draft_recipe(page_of(f"<h1>Lamps</h1><ul>{numbered}</ul>"), [], "x").summary == "listing"


def test_a_table_of_prices_is_a_list_and_no_product():
    rows = "".join(f"<tr><td>{n}<td>Article {n}<td>${n}9.50<td>In stock" for n in range(12))
    page = page_of(f"<h1>Stock list</h1><table><tr><th>No.<th>Name<th>Price<th>Availability</tr>{rows}</table>")
    draft = draft_recipe(page, [], "stock.toml")

    assert draft.summary == "listing"
    assert len(check_page(recipe(draft.text), "listing", page).items) == 12


@pytest.mark.parametrize(
    ("end", "selector"),
    [
        ("<a class='btn load-more' href='?page=2'>Load more</a>", "a.load-more"),
        ("<a href='?after=9'>Show older entries</a>", 'a:contains("Show older entries")'),
        ("<div class=nav-previous><a href='/list/page/2/'>Older posts</a></div>", 'a:contains("Older posts")'),
        ("<a href='/blog/2'>More about us</a>", None),
        ("<a href='/list'>More</a>", None),
    ],
)  # fmt: skip
def test_a_link_to_more_of_the_same_list_is_the_next_page(end, selector):
    page = page_of(f"<ol class='shelf'>{cards(9)}</ol>{end}", url="https://shop.example/list")

    assert next_selector(page) == selector


def test_the_links_of_a_list_that_lead_to_no_page_are_texts():
    people = "".join(
        f"<div class=person><h3>Person {n}</h3><a class=email href='mailto:p{n}@shop.example'>p{n}@shop.example</a>"
        f"<a class=tel href='tel:+49{n}'>+49 {n}</a></div>"
        for n in range(5)
    )
    seen = check_page(recipe(draft_recipe(page_of(people), [], "x").text), "listing", page_of(people))

    assert not seen.missing
    assert {note.field: note.value for note in seen.notes[-3:]} == {
        "[4].title": "Person 4", "[4].email": "p4@shop.example", "[4].tel": "+49 4",
    }  # fmt: skip


def test_where_a_product_is_behind_the_list_its_blocks_stand_in_a_comment():
    draft = draft_recipe(listing(), [page_of(PRODUCT)], "shop.toml")

    assert draft.summary == "listing -> product"
    assert '#   each = "li.card"' in draft.text
    assert "Entry" not in str(recipe(draft.text).recipe.kinds)


@pytest.mark.parametrize("body", ["", MENU, "<p>text</p>" * 9, "<div class=same>The same text everywhere</div>" * 9])
def test_a_page_on_which_nothing_repeats_that_can_be_told_apart_has_no_blocks(body):
    assert best_blocks(page_of(body)) is None


def test_a_page_of_ten_thousand_links_is_drafted_within_bounds():
    draft = draft_recipe(page_of(f"<body>{'<div>' * 400}{cards(10_000)}"), [], "x.toml")

    assert recipe(draft.text).recipe.start_kind == "listing"


def test_a_draft_of_an_empty_page_says_that_nothing_was_recognised():
    draft = draft_recipe(page_of(""), [], "x.toml")

    assert "Nothing was recognised" in draft.text
    assert "Every rule found something" not in draft.text
    assert draft.summary == "page (nothing was recognised)"
    assert recipe(draft.text).recipe.start_kind == "page"


@pytest.mark.parametrize(
    "shown", ["<p class='sku'>MUG-0012/45</p>", "<p>SKU: 123 456 78</p>", "<p>SKU: LMP-0042 X</p>"]
)
def test_a_number_that_the_parser_may_have_cut_is_no_key(shown):
    text = draft_recipe(page_of(f"<h1>Blue mug</h1><p class='price'>€12.50</p>{shown}"), [], "mugs").text

    assert 'auto = "product"' in text
    assert 'key = "sku"' not in text  # it would be the key of many products


def test_a_product_that_states_its_number_is_known_by_it():
    assert 'key = "sku"' in draft_recipe(page_of(PRODUCT), [], "mugs").text

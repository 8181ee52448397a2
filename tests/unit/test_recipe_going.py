"""Where a recipe goes from a page: links to follow, the next page, pages counted in their address."""

from __future__ import annotations

import pytest

from gossamer.errors import ParseFailed
from tests.unit.recipes import page_of, parsed, recipe

LIST = """<html><body><h1>Lamps</h1><ul>
<li><a href="/product/1">one</a></li><li><a href="/product/2#top">two</a></li><li><a href="/product/1">again</a></li>
<li><a href="/cart?add=1">buy</a></li><li><a href="mailto:a@b">mail</a></li><li><a>none</a></li></ul>
<a class="next" href="?page=2">next</a><p class="pager">Page 1 of 4, 61 things</p></body></html>"""
HEAD = 'start = "https://shop.example/"\n'
THING = '[pages.thing]\nfields.title = "h1"\n'
HERE = "https://shop.example/lamps?sort=price"


def wishes(rules: str, body: str = LIST, url: str = HERE) -> list[tuple[str, str]]:
    """What the start kind of such a recipe asks for: kind and address without the host."""
    spider = recipe(f"{HEAD}{rules}\n{THING}")
    found = parsed(spider, page_of(body, url=url)).requests
    return [(request.kind, request.url.removeprefix("https://shop.example")) for request in found]


def test_links_are_followed_once_each_to_their_kind():
    rules = '[pages.list]\nfollow = [{ css = "li a", to = "thing" }]'

    assert wishes(rules) == [("thing", "/product/1"), ("thing", "/product/2"), ("thing", "/cart?add=1")]


@pytest.mark.parametrize(
    "rules",
    [
        '[scope]\nexclude = ["/cart"]\n[pages.list]\nfollow = { css = "li a", to = "thing" }',
        '[scope]\ninclude = ["/product/*"]\n[pages.list]\nfollow = { css = "li a", to = "thing" }',
        '[pages.list]\nfollow = { css = "li a", to = "thing", exclude = "*add=1$" }',
        '[pages.list]\nfollow = { xpath = "//li/a/@href", to = "thing", include = "/product" }',
        "[pages.list]\nfollow = { regex = 'href=\"(/product/[0-9])', to = \"thing\" }",
    ],
)  # fmt: skip
def test_paths_keep_links_in_and_out(rules):
    assert wishes(rules) == [("thing", "/product/1"), ("thing", "/product/2")]


def test_what_is_carried_along_reaches_the_next_page():
    spider = recipe(
        f"""{HEAD}
        [pages.list]
        follow = [{{ css = "li a", to = "thing", priority = 5, data = {{ shelf = "h1" }}, route = "browser" }}]
        [pages.thing]
        fields.shelf = {{ data = "shelf" }}
        """
    )

    request = parsed(spider, page_of(LIST)).requests[0]
    (item,) = parsed(spider, page_of("<h1>x</h1>", data=request.data), "thing").items

    assert (request.priority, request.fetcher, request.data) == (5, "browser", {"shelf": "Lamps"})
    assert item.shelf == "Lamps"


@pytest.mark.parametrize("rule", ['"a.next"', '{ css = "a.next" }', "{ xpath = \"//a[@class='next']\" }"])
def test_the_next_page_is_of_the_same_kind(rule):
    assert wishes(f"[pages.list]\nnext = {rule}") == [("list", "/lamps?page=2")]


@pytest.mark.parametrize(
    ("rule", "numbers"),
    [
        ('{ parameter = "page", pages = "detect" }', [2, 3, 4]),
        ('{ parameter = "page" }', [2, 3, 4]),
        ('{ parameter = "page", pages = { css = ".pager", regex = "of ([0-9]+)" } }', [2, 3, 4]),
        ('{ parameter = "page", total = { css = ".pager", regex = "([0-9]+) things" }, per_page = 20 }', [2, 3, 4]),
        ('{ parameter = "page", first = 0, pages = { css = ".pager", regex = "of ([0-9]+)" } }', [1, 2, 3]),
        ('{ parameter = "page", first = 0, step = 20, pages = { constant = 3 } }', [20, 40]),
        ('{ parameter = "page", pages = ".gone" }', []),
    ],
)  # fmt: skip
def test_page_one_leads_to_all_pages_that_it_counts(rule, numbers):
    assert wishes(f"[pages.list]\nnext = {rule}") == [("list", f"/lamps?sort=price&page={n}") for n in numbers]


def test_a_later_page_leads_on_only_where_the_count_was_detected():
    pager = "".join(f'<a href="?sort=price&page={n}">{n}</a>' for n in (4, 5, 6, 7, 8))
    later = f"{HERE}&page=6"

    assert wishes('[pages.list]\nnext = { parameter = "page", pages = { constant = 9 } }', pager, later) == []
    assert wishes('[pages.list]\nnext = { parameter = "page" }', pager, later) == [
        ("list", "/lamps?sort=price&page=7"),
        ("list", "/lamps?sort=price&page=8"),
    ]


@pytest.mark.parametrize(
    ("rule", "body", "told"),
    [
        ('{ parameter = "page", pages = "b" }', "<b>1,000,000,000 pages</b>", "says that it has 1,000,000,000 pages"),
        ('{ parameter = "page" }', '<p class="pager">1 / 999999999</p>', "says that it has 999,999,999 pages"),
        ('{ parameter = "page" }', '<a href="?page=900000000">last</a>', "says that it has 900,000,000 pages"),
        ('{ parameter = "page", pages = "b", max = 2 }', "<b>3</b>", "more than 2 are not believed"),
        ('{ parameter = "page", pages = "b" }', "<b>many</b>", "found 'many', in which there is no int"),
        ('{ parameter = "page", pages = "b" }', "<b>-5</b>", "page count of https://shop.example/lamps"),
    ],
)  # fmt: skip
def test_a_senseless_page_count_is_one_clear_failure(rule, body, told):
    with pytest.raises(ParseFailed, match=told):
        wishes(f"[pages.list]\nnext = {rule}", body)

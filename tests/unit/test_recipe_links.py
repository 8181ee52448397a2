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


def options(rules: str, body: str = LIST, url: str = HERE) -> list[tuple[str, str]]:
    """What the start kind of such a recipe asks for: kind and address without the host."""
    spider = recipe(f"{HEAD}{rules}\n{THING}")
    found = parsed(spider, page_of(body, url=url)).requests
    return [(request.kind, request.url.removeprefix("https://shop.example")) for request in found]


def test_links_are_followed_once_each_to_their_kind():
    rules = '[pages.list]\nfollow = [{ css = "li a", to = "thing" }]'

    assert options(rules) == [("thing", "/product/1"), ("thing", "/product/2"), ("thing", "/cart?add=1")]


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
    assert options(rules) == [("thing", "/product/1"), ("thing", "/product/2")]


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


@pytest.mark.parametrize(
    "pattern", ["/*-*-*.html$", "*-*-*-*-*-*-*-*x", "/-*-*-*-*.html"]
)  # fmt: skip
def test_a_path_pattern_costs_little_on_an_endless_address(pattern):
    body = f"<a href='/{'-' * 200_000}'>x</a><a href='/-a-b-c.html'>y</a>"
    rules = f'[pages.list]\nfollow = {{ css = "a", to = "thing", exclude = "{pattern}" }}'

    kept = [url for _, url in options(rules, body)]

    assert [len(url) for url in kept if "html" not in url] == [200_001]


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("/a", ["/a", "/ab", "/a/b?c"], ["/", "/b/a"]),
        ("/a$", ["/a"], ["/ab", "/a/"]),
        ("*.pdf$", ["/x.pdf", "/x.pdf.pdf"], ["/x.pdf?a", "/pdf"]),
        ("/*-*.html", ["/a-b.html", "/-.html?x"], ["/a.html", "/a.html-b"]),
        ("/a*a$", ["/aa", "/aba"], ["/a", "/ab"]),
        ("/*", ["/", "/x"], []),
        ("*a*b*$", ["/ab", "/xaxbx"], ["/ba"]),
    ],
)  # fmt: skip
def test_path_patterns_mean_what_they_mean_in_robots_txt(pattern, matching, other):
    links = "".join(f"<a href='{path}'>x</a>" for path in [*matching, *other])

    assert options(f'[pages.list]\nfollow = {{ css = "a", to = "thing", include = "{pattern}" }}', links) == [
        ("thing", path) for path in matching
    ]


@pytest.mark.parametrize("rule", ['"a.next"', '{ parameter = "page" }'])
def test_the_next_page_gets_what_this_one_was_given(rule):
    spider = recipe(f"{HEAD}[pages.list]\nnext = {rule}\n{THING}")

    requests = parsed(spider, page_of(LIST, url=HERE, data={"shelf": "Lamps"})).requests

    assert {request.data["shelf"] for request in requests} == {"Lamps"}


def test_a_next_page_of_another_kind_gets_nothing():
    spider = recipe(f"""{HEAD}[pages.list]\nnext = {{ css = "a.next", to = "thing" }}\n{THING}""")

    (request,) = parsed(spider, page_of(LIST, url=HERE, data={"shelf": "Lamps"})).requests

    assert (request.kind, request.data) == ("thing", {})


def test_more_links_than_are_taken_fail_the_page():
    with pytest.raises(ParseFailed, match=r"css a finds more than 10,000 values"):
        options('[pages.list]\nfollow = { css = "a", to = "thing" }', "<a href='/a'>x</a>" * 10_001)


@pytest.mark.parametrize(
    ("query", "after"),
    [
        ("q=caf%E9&flag&x=1;2", "q=caf%E9&flag&x=1;2&page={n}"),
        ("page=1&q=a+b%20c&empty=", "page={n}&q=a+b%20c&empty="),
        ("q=a&p%61ge=1&r=b", "q=a&p%61ge={n}&r=b"),
        ("", "page={n}"),
    ],
)  # fmt: skip
def test_the_number_is_changed_and_the_rest_of_the_address_is_not(query, after):
    url = f"https://shop.example/lamps{'?' if query else ''}{query}"

    found = options('[pages.list]\nnext = { parameter = "page", pages = { constant = 3 } }', LIST, url)

    assert found == [("list", f"/lamps?{after.format(n=n)}") for n in (2, 3)]


@pytest.mark.parametrize(
    ("body", "last"),
    [
        ('<p class="page-date">1/15/2024</p>', 1),
        ('<p class="pagination">1/15/2024</p>', 1),
        ('<p class="homepage-teaser">1 de 500 casas</p>', 1),
        ('<p class="pager">1 de 500 casas</p>', 1),
        ('<p class="pager">1.1/15.2</p>', 1),
        ('<p class="pager">1 / 15</p>', 15),
        ('<p class="pager">Seite 1 von 15 Weiter</p>', 15),
        ('<p class="wp-pagenavi">1 of 15 pages</p>', 15),
        ('<p id="listPager">Page 1 of 15, 300 things</p>', 15),
        ('<nav aria-label="Pagination">Página 1 de 15</nav>', 15),
        ('<div class="page_numbers">(1/15)</div>', 15),
    ],
)  # fmt: skip
def test_only_a_pager_that_counts_pages_is_believed(body, last):
    assert len(options('[pages.list]\nnext = { parameter = "page" }', body)) == last - 1


@pytest.mark.parametrize("rule", ['"a.next"', '{ css = "a.next" }', "{ xpath = \"//a[@class='next']\" }"])
def test_the_next_page_is_of_the_same_kind(rule):
    assert options(f"[pages.list]\nnext = {rule}") == [("list", "/lamps?page=2")]


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
    assert options(f"[pages.list]\nnext = {rule}") == [("list", f"/lamps?sort=price&page={n}") for n in numbers]


def test_a_later_page_leads_on_only_where_the_count_was_detected():
    pager = "".join(f'<a href="?sort=price&page={n}">{n}</a>' for n in (4, 5, 6, 7, 8))
    later = f"{HERE}&page=6"

    assert options('[pages.list]\nnext = { parameter = "page", pages = { constant = 9 } }', pager, later) == []
    assert options('[pages.list]\nnext = { parameter = "page" }', pager, later) == [
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
        options(f"[pages.list]\nnext = {rule}", body)


def test_pages_without_end_are_not_believed_on_later_pages_either():
    rules = '[pages.list]\nnext = { parameter = "page", max = 50 }'

    assert options(rules, '<a href="?page=50">on</a>', f"{HERE}&page=49") == [("list", "/lamps?sort=price&page=50")]
    with pytest.raises(ParseFailed, match="says that it has 51 pages, and more than 50 are not believed"):
        options(rules, '<a href="?page=51">on</a>', f"{HERE}&page=50")

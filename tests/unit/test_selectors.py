"""CSS and XPath in the dialect of Scrapy. What is expected here was compared with parsel."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import ParseFailed
from gossamer.parse.selectors import Selector, SelectorList

PAGE = """<html><head><title>Shop</title></head><body>
<div id="all" class="box wide">
  <h1>Big <b>sale</b> today</h1>
  <ul><li class="a"><a href="/1" title="one">First</a></li><li><a href="/2">Second</a></li><li>no link</li></ul>
  <p class="price">£5 &amp; more</p><p class="price">£7</p>
  <div class="box">in<div>ner</div>most</div><!-- note -->
</div></body></html>"""


@pytest.fixture
def page() -> Selector:
    return Selector.of(PAGE)


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("title::text", ["Shop"]),
        ("h1::text", ["Big ", " today"]),
        ("h1 ::text", ["Big ", "sale", " today"]),
        ("h1 *::text", ["Big ", "sale", " today"]),
        ("a::attr(href)", ["/1", "/2"]),
        ("a::ATTR( 'href' )", ["/1", "/2"]),
        ("li > ::text", ["First", "Second"]),
        ("li.a a::attr(title), p::text", ["one", "£5 & more", "£7"]),
        ("a::text, h1 b::text, a::attr(title)", ["sale", "one", "First", "Second"]),
        ("li:nth-child(2) a::text", ["Second"]),
        ("a:contains('eco')::text", ["Second"]),
        ("div.box div.box::text", ["in", "most"]),
        ("#all > div, h1 > b", ["<b>sale</b>", '<div class="box">in<div>ner</div>most</div>']),
        ("p:not(:first-of-type)::text", ["£7"]),
        ("li:has(> a) a::attr(href)", ["/1", "/2"]),
        ("nothing::text", []),
        ("A", ['<a href="/1" title="one">First</a>', '<a href="/2">Second</a>']),
    ],
)
def test_css_finds(page: Selector, selector: str, found: list[str]) -> None:
    assert page.css(selector).getall() == found


def test_text_of_nested_matches_comes_in_document_order(page: Selector) -> None:
    texts = [text for text in page.css("div.box::text, div.box div::text").getall() if text.strip()]
    assert texts == ["in", "ner", "most"]
    assert [text for text in page.css("div::text").getall() if text.strip()] == ["in", "ner", "most"]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("//a/@href", ["/1", "/2"]),
        ("//h1/text()", ["Big ", " today"]),
        ("count(//a)", ["2.0"]),
        ("boolean(//a)", ["1"]),
        ("boolean(//video)", ["0"]),
        ("string(//h1)", ["Big sale today"]),
        ("//comment()", ["<!-- note -->"]),
        ("body/div/@id", ["all"]),
        ("//div[has-class('box', 'wide')]/@id", ["all"]),
        (r"//a[re:test(@href, '\d$')]/text()", ["First", "Second"]),
        ("//a[2]", []),
    ],
)
def test_xpath_finds(page: Selector, expression: str, found: list[str]) -> None:
    assert page.xpath(expression).getall() == found


def test_xpath_takes_variables(page: Selector) -> None:
    assert page.xpath("//a[@href=$href]/text()", href="/2").get() == "Second"


def test_selecting_from_an_element_sees_it_and_its_inside_only(page: Selector) -> None:
    item = page.css("li")[0]
    assert item.css("a::text").getall() == ["First"]
    assert item.css("li").getall() == [item.get()]
    assert item.css("::attr(class)").getall() == ["a"]
    assert item.css("ul a").getall() == []
    assert item.css("li > a::attr(href)").getall() == ["/1"]
    assert item.css(":scope > a::attr(href)").getall() == ["/1"]
    assert item.css("::text").getall() == ["First"]
    assert item.xpath("./a/@href").getall() == ["/1"]
    assert len(item.xpath("//a")) == 2


def test_lists_are_asked_like_single_ones(page: Selector) -> None:
    items = page.css("li")
    assert items.css("a::attr(href)").getall() == ["/1", "/2"]
    assert items.xpath("a/@href").getall() == ["/1", "/2"]
    assert items.attrib == {"class": "a"}
    assert isinstance(items[1:], SelectorList)
    assert items[1:].css("a::text").get() == "Second"
    assert items[-1].text == "no link"
    assert page.css("a").re(r"href=\"(/\d)\"") == ["/1", "/2"]


def test_finding_nothing_gives_defaults(page: Selector) -> None:
    nothing = page.css("video")
    assert not nothing
    assert nothing.get() is None
    assert nothing.get(default="none") == "none"
    assert nothing.getall() == []
    assert nothing.attrib == {}
    assert nothing.text == ""
    assert nothing.re_first("x") is None
    assert nothing.re_first("x", default="y") == "y"


def test_selecting_from_text_finds_nothing(page: Selector) -> None:
    text = page.css("a::text")[0]
    assert text.css("a") == []
    assert text.xpath("..") == []
    assert text.attrib == {}
    assert text.get() == "First"


def test_regular_expressions_take_groups_and_decode_entities(page: Selector) -> None:
    price = page.css("p.price")
    assert price.re(r"£(\d)") == ["5", "7"]
    assert price.re_first(r"(?P<extract>\d) (?P<other>&)") == "5"
    assert price.re(r"<p") == ["<p", "<p"]
    assert Selector.of("<p title='&eacute; &lt;'>").css("p").re("title=.*?>") == ['title="é &lt;">']


def test_text_is_normalised_and_without_scripts() -> None:
    page = Selector.of("<div> a\n <b>b</b><script>var x</script>\u00a0c <style>p{}</style></div>")
    assert page.css("div").text == "a b c"


def test_get_of_an_element_is_its_outer_html(page: Selector) -> None:
    assert page.css("b").get() == "<b>sale</b>"
    assert page.get().startswith("<html>")


@pytest.mark.parametrize("selector", ["a[", "a::foo", "a::text b", "", "a,,b", "a::attr()", "a:nothing", "> a", "::"])
def test_unreadable_css_is_named(page: Selector, selector: str) -> None:
    with pytest.raises(ParseFailed) as caught:
        page.css(selector)
    assert repr(selector) in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("expression", ["//a[", "foo(.)", "//a[$unbound]", "", "//x:a"])
def test_unreadable_xpath_is_named(page: Selector, expression: str) -> None:
    with pytest.raises(ParseFailed) as caught:
        page.xpath(expression)
    assert repr(expression) in str(caught.value)


def test_selector_that_is_no_text_is_refused(page: Selector) -> None:
    wrong: Any = 3
    with pytest.raises(ParseFailed, match="int"):
        page.css(wrong)
    with pytest.raises(ParseFailed, match="int"):
        page.xpath(wrong)


@given(st.text(alphabet="abp*>+~.#:,[]()'\"= \\1nottext", max_size=12))
def test_any_css_answers_or_is_refused_as_ours(selector: str) -> None:
    page = Selector.of(PAGE)
    try:
        found = page.css(selector)
    except ParseFailed:
        return
    assert all(isinstance(text, str) for text in found.getall())


@given(st.sampled_from(["div", "p", "*", "li a", "div > p", "ul li + li", "b", "div div", ".box", "a, b, p"]))
def test_elements_of_the_page_are_the_same_asked_from_its_root(selector: str) -> None:
    page = Selector.of(PAGE)
    root = page.xpath(".")[0]
    assert page.css(selector).getall() == root.css(selector).getall()
    assert page.css(f"{selector}").xpath("name()").getall() == root.css(selector).xpath("name()").getall()


def test_get_takes_the_first_in_document_order_without_looking_for_the_others() -> None:
    page = Selector.of("<p><b>inner</b>own</p><p>last</p><a>no href</a><a href=/x>x</a>")
    assert page.css("p, b ::text").get() == page.css("p, b ::text")[0].get()
    assert page.css("p::text, b::text").get() == "inner"  # <p> begins earlier, its own text does not
    assert page.css("a::attr(href)").get() == "/x"  # the first <a> has none
    assert page.css("p ::text").get() == "inner"
    assert page.css("i::text").get("none") == "none"


def test_a_list_can_be_changed_like_any_other() -> None:
    found = Selector.of("<p>a</p><p>b</p>").css("p::text")
    found += Selector.of("<p>c</p>").css("p::text")
    assert found.getall() == ["a", "b", "c"]
    found.reverse()
    assert (found.get(), len(found), found[:1].getall()) == ("c", 3, ["c"])
    assert copy(found).getall() == ["c", "b", "a"]

"""Many values for one field: what can be read is kept, the rest is told, and nothing is cut off silently."""

from __future__ import annotations

import pytest

from gossamer.errors import ParseFailed
from gossamer.parse.page import Page
from gossamer.recipe.spider import unread
from tests.unit.recipes import fields, page_of, parsed, values

LISTS = """{"n": [1, 2, null, "three", 3], "u": ["/a", "javascript:void(0)", "", "/b"], "w": ["2 kg", "1.299,5 kg"],
"x": ["a", "b"], "deep": [[1], {"a": 2}, 4]}"""


@pytest.mark.parametrize(
    ("rule", "value", "faults"),
    [
        ('json = "$.n[*]", of = "int"', [1, 2, 3], ["value[2]: json $.n[*] found 'three', in which there is no int"]),
        ('json = "$.n", of = "int"', [1, 2, 3], ["value[2]: json $.n found 'three', in which there is no int"]),
        ('json = "$.n"', ["1", "2", "three", "3"], None),
        ('json = "$.u", of = "url"', ["https://shop.example/a", "https://shop.example/b"],
         ["value[1]: json $.u found 'javascript:void(0)', which is not a web address"]),
        ('json = "$.deep", of = "int"', [4],
         ["value[0]: json $.deep found '[1]', which is a list, not an int",
          "value[1]: json $.deep found '{\"a\": 2}', which is an object, not an int"]),
        ('json = "$.w", transforms = ["number"]', ["2"],
         ["value[1]: json $.w found '1.299,5 kg', and '1.299,5 kg' is not a number with decimal = \".\"; "
          'try decimal = ","']),
        ('json = "$.x", of = "int"', [],
         ["value: json $.x found 'a (+1)', in which there is no int"]),
    ],
)  # fmt: skip
def test_a_list_keeps_what_can_be_read_and_tells_every_entry_that_cannot(rule, value, faults):
    spider = fields(f'value = {{ {rule}, type = "list" }}')
    page = Page(page_of(LISTS, label="application/json").snapshot, spider=spider)

    (item,) = list(spider.thing(page))

    assert item.value == value
    assert unread(item, page) == faults


def test_a_list_of_thousands_of_unreadable_entries_tells_a_few_and_counts_the_rest():
    spider = fields('value = { json = "$", type = "list", of = "int" }')
    body = "[1" + ', "x"' * 5000 + "]"
    page = Page(page_of(body, label="application/json").snapshot, spider=spider)

    (item,) = list(spider.thing(page))
    told = unread(item, page)

    assert told is not None
    assert (item.value, len(told)) == ([1], 21)
    assert told[-1].endswith("4,980 more entries cannot be read")


@pytest.mark.parametrize("transform", ['"number"', '{ split = " " }, "number"'])
def test_a_number_step_that_would_have_to_guess_leaves_an_optional_field_empty(transform):
    spider = fields(f'value = {{ css = "b", transforms = [{transform}] }}')
    page = Page(page_of("<b>1.299,5 pieces</b>").snapshot, spider=spider)

    (item,) = list(spider.thing(page))

    assert item.value is None
    assert "try decimal" in str(unread(item, page))


MANY = "[" + ",".join(map(str, range(10_001))) + "]"


@pytest.mark.parametrize(
    ("rule", "head"),
    [
        ('{ json = "$", type = "int" }', 'each = { json = "$[*]" }\nkey = "value"'),
        ('{ json = "$[*]", type = "list" }', ""),
        ('{ json = "$", type = "list" }', ""),
        ('{ json = "$[*]", transforms = ["last"] }', ""),
        ('{ regex = "[0-9]+", type = "list" }', ""),
    ],
)  # fmt: skip
def test_more_values_than_are_taken_fail_the_page_and_are_never_cut_off(rule, head):
    spider = fields(f"value = {rule}", head)

    with pytest.raises(ParseFailed, match=r"finds more than 10,000 values on https://shop\.example/"):
        parsed(spider, page_of(MANY, label="application/json"))


def test_a_text_that_splits_into_too_many_is_unreadable():
    spider = fields('value = { json = "$", type = "list", transforms = [{ split = "," }] }')
    page = Page(page_of(f'"{"a," * 10_001}"', label="application/json").snapshot, spider=spider)

    (item,) = list(spider.thing(page))

    assert (item.value, "more than 10,000 parts" in str(unread(item, page))) == ([], True)


@pytest.mark.parametrize(
    ("rule", "head"),
    [
        ('{ json = "$[*]", type = "int" }', ""),
        ('{ json = "$[*]", type = "int", transforms = ["strip"] }', ""),
        ('{ json = "$", type = "int" }', 'within = { json = "$[*]" }'),
    ],
)  # fmt: skip
def test_a_single_value_may_be_the_first_of_very_many(rule, head):
    spider = fields(f"value = {rule}", head)

    assert values(spider, page_of(MANY, label="application/json")) == {"value": 0}

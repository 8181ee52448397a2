"""Failures that differ in values only are one group; whatever a site or a spider says, the cost is bounded."""

from __future__ import annotations

import random
import string
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.model.failure_groups import (
    LONGEST_MESSAGE,
    MOST_GROUPS,
    fold,
    group_failures,
    place_of,
    short_message,
    without_middle,
)


class Letter(NamedTuple):
    id: int
    url: str
    reason: str
    message: str
    job: str = "books-1"


def letters(*messages: str, reason: str = "parse") -> list[Letter]:
    return [Letter(n, f"http://shop.test/p/{n}", reason, message) for n, message in enumerate(messages)]


WRONG = "Product: 1 field is not as declared: stock should be int but is {!r:.60} (expected int, got str)"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (WRONG.format("16"), WRONG.format("a (strange; 'value' 17")),
        (WRONG.format("16"), WRONG.format("x" * 200)),
        ("ValueError: invalid literal for int(): 'a b'", "ValueError: invalid literal for int(): ''"),
        ("no price in 12.50 EUR at position 3", "no price in 1,299 EUR at position 17"),
        ("<Node object at 0x7f12ab> is gone", "<Node object at 0x7fffee00> is gone"),
        ("order 3f2b8c9d-aaaa-4bbb-8ccc-1234567890ab is lost", "order 00000000-0000-4000-8000-000000000000 is lost"),
        ("cannot read https://a.test/x?y=1: gone", "cannot read https://b.test/: gone"),
        ("expected one of 'a', 'b', 'c'", "expected one of 'x', 'y'"),
        ("Lamp: 1 field is not as declared: sizes[3].width is missing (int)",
         "Lamp: 1 field is not as declared: sizes[12].width is missing (int)"),
    ],
)  # fmt: skip
def test_messages_that_differ_in_values_are_one_group(one, other):
    assert fold(one) == fold(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("KeyError: 'price'", "KeyError: 'title'"),
        ("AttributeError: 'NoneType' has no attribute 'text'", "AttributeError: 'str' has no attribute 'text'"),
        ("Lamp: 1 field is not as declared: a is missing (str)", "Lamp: 1 field is not as declared: b is missing"),
        ("S.parse failed: ValueError: no (shop.py, line 12)", "S.parse failed: ValueError: no (shop.py, line 13)"),
        ("it answered 404.", "it answered 500."),
    ],
)  # fmt: skip
def test_messages_that_say_different_things_are_not(one, other):
    assert fold(one) != fold(other)


def test_groups_have_count_field_place_example_and_command():
    failed = [
        *letters(*[WRONG.format(str(n)) for n in range(200)]),
        Letter(
            200,
            "http://shop.test/x",
            "parse",
            "Shop.item failed on http://shop.test/x: KeyError: 'price' (shop.py, line 12)\n\nTraceback ...",
        ),
    ]
    found = group_failures(failed)

    assert (found.total, found.looked_at, found.others) == (201, 201, 0)
    first, second = found.groups
    assert (first.count, first.field, first.file, first.reason) == (200, "stock", None, "parse")
    assert "stock should be int but is '0'" in first.in_words
    assert (first.url, first.command) == ("http://shop.test/p/0", "gossamer dead show 0")
    assert (second.count, second.file, second.line) == (1, "shop.py", 12)
    assert second.message == "Shop.item failed: KeyError: 'price' (shop.py, line 12)"


def test_a_traceback_names_the_place_where_the_message_does_not():
    text = (
        'A step failed: ValueError: x\n\nTraceback\n  File "/srv/a/s.py", line 7, in go\n  File "C:\\b\\c.py", line 9'
    )
    assert place_of(text) == ("c.py", 9)
    found = group_failures(letters(text))
    assert found.groups[0].in_words == "A step failed: ValueError: x (c.py, line 9)"


def test_only_the_largest_groups_are_shown_and_the_others_counted():
    words = [
        word for count, word in ((5, "one"), (4, "two"), (3, "three"), (2, "four"), (1, "five")) for _ in range(count)
    ]
    random.Random(1).shuffle(words)
    found = group_failures(letters(*words), total=52_311)
    assert [(group.pattern, group.count) for group in found.groups] == [("one", 5), ("two", 4), ("three", 3)]
    assert found.others == 3
    assert found.of_all == "of the latest 15 of 52,311"
    assert group_failures([]).groups == []


def test_the_largest_group_is_a_clause_that_a_sentence_can_end_with():
    assert group_failures(letters("answered 500.")).largest_in_words == "1 of 1 dead letter says: answered 500"
    assert group_failures(letters("answered 500.", "answered 500.", "no")).largest_in_words == (
        "2 of 3 dead letters say: answered 500"
    )


def test_the_clause_quotes_nothing_of_a_page():
    wrong = "Person: 1 field is not as declared: name should be str but is {'first': 'Jane'} (expected str, got object)"
    assert group_failures(letters(wrong)).largest_in_words == (
        "1 of 1 dead letter says: Person: 1 field is not as declared: name should be str but is … (expected str, got"
        " object)"
    )
    raised = "ValueError: invalid literal for int(): 'Jane' (people.py, line 3)"
    assert group_failures(letters(raised)).largest_in_words == (
        "1 of 1 dead letter says: ValueError: invalid literal for int(): … (people.py, line 3)"
    )
    assert "KeyError: 'price'" in group_failures(letters("KeyError: 'price' (shop.py, line 12)")).largest_in_words


def test_the_end_of_a_message_is_never_cut():
    for text in ("x" * 5000 + " ENDS HERE", "word " * 900 + "(shop.py, line 12)"):
        said = short_message(text)
        assert len(said) <= LONGEST_MESSAGE
        assert said.endswith(text[-60:])
    assert without_middle("abcdefghij", 10) == "abcdefghij"


@given(st.text(max_size=2000), st.text(max_size=100))
def test_any_message_is_folded_to_a_line_of_bounded_length_and_twice_is_once(message, url):
    folded = fold(message, url)
    assert "\n" not in folded
    assert len(folded) <= 2 * LONGEST_MESSAGE
    assert fold(folded) == fold(fold(folded))
    place_of(message)


@pytest.mark.parametrize(
    "hostile",
    [
        "'" * 100_000, "a'" * 50_000, "0x" * 50_000, "1" * 100_000, "a-" * 50_000, "http://" * 20_000, "(" * 100_000,
        " but is " * 20_000, "…, " * 40_000, "0123456789abcdef" * 10_000, "\n" * 100_000, 'File "' * 20_000,
        "[" * 50_000, ": a" * 40_000,
    ],
)  # fmt: skip
def test_hostile_messages_cost_no_more_than_others(hostile):
    """No wall clock: the patterns look at a bounded part of a message, so what they are given is counted."""
    assert len(short_message(hostile)) <= LONGEST_MESSAGE
    found = group_failures(letters(*[hostile] * 50))
    assert found.groups[0].count == 50


def test_messages_that_never_repeat_are_bounded():
    alphabet = string.ascii_letters
    words = ["".join(random.Random(n).choices(alphabet, k=12)) for n in range(MOST_GROUPS + 500)]
    found = group_failures(letters(*words))
    assert found.looked_at == MOST_GROUPS + 500
    assert sum(group.count for group in found.groups) + found.others == found.looked_at


def test_dead_links_are_not_what_failed_while_something_else_did() -> None:
    dead = [*letters(*["answered 404."] * 6, reason="http-404"), *letters("no title")]

    assert group_failures(dead).largest_in_words == "1 of 7 dead letters says: no title"
    assert group_failures(dead[:6]).largest_in_words == "6 of 6 dead letters say: answered 404"

"""Which pages a run with a budget takes: by their changes, and by what their site says of them."""

from __future__ import annotations

from gossamer.schedule.change_rate import Rhythm, seen
from gossamer.schedule.recrawl import SAMPLE, PageChoice, RecrawlBounds

DAY = 86_400.0
NAMES = [bytes([n]) * 16 for n in range(9)]
NOW = 100 * DAY
BOUNDS = RecrawlBounds(60.0, 50 * DAY)


def checked(changes: list[bool], every: float = DAY) -> Rhythm:
    """A page that was checked at this interval, the last time a day ago."""
    start = NOW - DAY - every * len(changes)
    rhythm = seen(None, start, changed=False)
    for turn, changed in enumerate(changes, 1):
        rhythm = seen(rhythm, start + turn * every, changed=changed)
    return rhythm


def test_the_page_that_changes_more_is_taken() -> None:
    choice = PageChoice()
    for name, changes in zip(NAMES, ([False] * 10, [False, True] * 5, [False] * 10), strict=False):
        choice.note(name, checked(changes), NOW - DAY)
    assert choice.choose(NOW, BOUNDS, 1) == {NAMES[1]}


def test_a_page_without_a_copy_goes_before_all() -> None:
    choice = PageChoice()
    choice.note(NAMES[0], checked([True] * 10), NOW - DAY)
    choice.note(NAMES[1], None, None, lastmod=NOW - 1)
    assert choice.choose(NOW, BOUNDS, 1) == {NAMES[1]}


def test_an_announced_change_is_believed_until_it_was_none_too_often() -> None:
    quiet = checked([False] * 10)
    choice = PageChoice()
    choice.note(NAMES[0], checked([False, True] * 5), NOW - DAY)
    choice.note(NAMES[1], quiet, NOW - DAY, lastmod=NOW - 60)
    assert choice.choose(NOW, BOUNDS, 1) == {NAMES[1]}

    liar = seen(quiet, quiet.last + 1, changed=False, announced=quiet.last + 0.5)
    liar = seen(liar, liar.last + 1, changed=False, announced=liar.last + 0.5)
    choice = PageChoice()
    choice.note(NAMES[0], checked([False, True] * 5), NOW - DAY)
    choice.note(NAMES[1], liar, NOW - DAY, lastmod=NOW - 60)
    assert choice.choose(NOW, BOUNDS, 1) == {NAMES[0]}


def test_a_page_that_is_said_to_be_unchanged_is_left_alone_only_where_that_is_believed() -> None:
    for believed in (True, False):
        choice = PageChoice(only_changed=believed)
        choice.note(NAMES[0], checked([True] * 5), NOW - DAY, lastmod=NOW - 20 * DAY)
        assert choice.choose(NOW, BOUNDS, 1) == (set() if believed else {NAMES[0]})
        # After the longest interval it is looked at all the same.
        assert choice.choose(NOW + 60 * DAY, BOUNDS, 1) == {NAMES[0]}


def test_a_date_without_a_time_may_be_any_moment_of_its_day() -> None:
    choice = PageChoice(only_changed=True)
    choice.note(NAMES[0], checked([False]), NOW - DAY + 3600, lastmod=NOW - DAY)  # fetched on the day that it changed
    choice.note(NAMES[1], checked([False]), NOW - DAY + 3600, lastmod=NOW - DAY + 60)
    assert choice.choose(NOW, BOUNDS, 2) == {NAMES[0]}


def test_a_page_that_is_listed_twice_takes_one_place() -> None:
    choice = PageChoice()
    for place in (0, 0, 0, 1, 1, 2):
        choice.note(NAMES[place], None, None)
    assert choice.choose(NOW, BOUNDS, 3) == set(NAMES[:3])
    assert choice.choose(NOW, BOUNDS, 9) == set(NAMES[:3])


def test_what_is_usual_is_found_by_a_sample_of_many_pages() -> None:
    choice = PageChoice()
    for place in range(2 * SAMPLE):
        choice.note(place.to_bytes(16), checked([True]), NOW - DAY)
    choice.note(NAMES[1], None, NOW - DAY)  # nothing is known of it, so it does as the others do
    assert len(choice) == 2 * SAMPLE + 1
    assert len(choice.choose(NOW, BOUNDS, 100)) == 100


def test_no_budget_takes_nothing() -> None:
    choice = PageChoice()
    assert choice.choose(NOW, BOUNDS, 10) == set()
    choice.note(NAMES[0], None, None)
    assert choice.choose(NOW, BOUNDS, 0) == set()

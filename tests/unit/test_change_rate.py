"""How often a page changes is learned from checks that see one change where there were many."""

from __future__ import annotations

import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.project.dead_letters.story_text import change_words
from gossamer.schedule.change_rate import (
    FASTEST,
    SLOWEST,
    USUAL,
    ChangeSums,
    Prior,
    Rhythm,
    prior_of,
    rate,
    seen,
    sums_of,
)

DAY = 86_400.0
USUALLY = Prior(1 / (10 * DAY))


def watched(true_rate: float, stretches: list[float], chance: random.Random) -> Rhythm:
    """What is remembered of a page that changes at random, checked after each of the stretches."""
    now = 0.0
    rhythm = seen(None, now, changed=False)
    for stretch in stretches:
        now += stretch
        rhythm = seen(rhythm, now, changed=chance.expovariate(true_rate) < stretch)
    return rhythm


def history(*changed: bool, every: float = DAY) -> Rhythm:
    rhythm = seen(None, 0.0, changed=False)
    for number, one in enumerate(changed, 1):
        rhythm = seen(rhythm, number * every, changed=one)
    return rhythm


@pytest.mark.parametrize(("changes_per_check", "tolerance"), [(0.05, 0.4), (0.3, 0.2), (1.0, 0.15), (2.0, 0.15)])
def test_the_estimate_nears_the_truth_with_the_checks(changes_per_check, tolerance):
    chance = random.Random(1)
    true_rate = changes_per_check / DAY
    far_off = Prior(true_rate * 20)

    def off_by(checks: int) -> float:
        rates = [rate(watched(true_rate, [DAY] * checks, chance), far_off) for _ in range(300)]
        return median(abs(found / true_rate - 1) for found in rates)

    few, some, many = off_by(3), off_by(20), off_by(150)
    assert few > some > many
    assert many < tolerance


@pytest.mark.parametrize("changes_per_check", [0.05, 0.3, 1.0, 2.0, 3.0])
def test_the_estimate_leans_to_no_side_where_plain_division_does(changes_per_check):
    chance = random.Random(2)
    true_rate = changes_per_check / DAY
    rhythms = [watched(true_rate, [DAY] * 150, chance) for _ in range(300)]
    assert median(rate(rhythm, USUALLY) for rhythm in rhythms) == pytest.approx(true_rate, rel=0.1)
    plain = median(rhythm.changes / (rhythm.last - rhythm.first) for rhythm in rhythms)
    assert (plain < 0.7 * true_rate) == (changes_per_check >= 1)


def test_checks_may_come_at_any_time():
    chance = random.Random(3)
    true_rate = 0.5 / DAY
    found = []
    for _ in range(300):
        stretches = [chance.uniform(0.3, 3.0) * DAY for _ in range(150)]
        found.append(rate(watched(true_rate, stretches, chance), USUALLY))
    assert median(found) == pytest.approx(true_rate, rel=0.1)


def test_more_changes_in_as_many_checks_mean_a_greater_rate():
    rates = [rate(history(*(number < changes for number in range(12))), USUALLY) for changes in range(13)]
    assert rates == sorted(set(rates))


def test_a_page_that_never_changed_is_trusted_more_with_every_check_but_never_quite():
    rates = [rate(history(*[False] * checks), USUALLY) for checks in range(0, 60, 3)]
    assert rates == sorted(set(rates), reverse=True)
    assert USUALLY.middle == rates[0] > rates[-1] > SLOWEST


def test_a_page_that_always_changed_is_quicker_than_its_checks_but_not_endlessly():
    rates = [rate(history(*[True] * checks), USUALLY) for checks in range(0, 60, 3)]
    assert rates == sorted(set(rates))
    assert 1 / DAY < rates[-1] < 20 / DAY


def test_one_check_is_no_proof():
    unchanged, changed = (rate(history(one, every=10 * DAY), USUALLY) for one in (False, True))
    assert USUALLY.middle / 5 < unchanged < USUALLY.middle < changed < USUALLY.middle * 5


def test_a_page_with_new_habits_is_learned_again():
    calm = history(*[False] * 200)
    lively = calm
    for day in range(201, 401):
        lively = seen(lively, day * DAY, changed=day % 2 == 0)
    assert rate(calm, USUALLY) < 0.02 / DAY
    assert rate(lively, USUALLY) == pytest.approx(0.69 / DAY, rel=0.2)  # half of all days without: log 2 a day
    assert (lively.checks, lively.changes, lively.changed) == (400, 100, 400 * DAY)


@given(
    st.lists(st.tuples(st.floats(-1e9, 1e9), st.booleans(), st.none() | st.floats(-1e12, 1e12)), max_size=30),
    st.floats(0, 1e6),
)
def test_whatever_was_seen_there_is_a_rate(steps, middle):
    now, rhythm = 1e9, None
    for step, changed, announced in steps:
        now += step
        rhythm = seen(rhythm, now, changed=changed, announced=announced)
    assert SLOWEST <= rate(rhythm, Prior(middle)) <= FASTEST


@pytest.mark.parametrize("at", [5 * DAY, 4 * DAY, -1.0, float("inf"), float("nan")])
def test_a_clock_that_jumps_teaches_nothing(at):
    before = history(True, False, True, False, True)
    assert seen(before, at, changed=True) == before


# -- announced changes ---------------------------------------------------------------------------------------------


def test_fetches_that_wait_for_an_announced_change_do_not_make_the_page_look_quicker():
    chance = random.Random(5)
    true_rate = 1 / (5 * DAY)
    told = untold = seen(None, 0.0, changed=False)
    for _ in range(200):
        change = told.last + chance.expovariate(true_rate)
        told = seen(told, change + 60, changed=True, announced=change)
        untold = seen(untold, change + 60, changed=True)
    assert rate(told, USUALLY) == pytest.approx(true_rate, rel=0.25)
    assert rate(untold, USUALLY) > 3 * true_rate


def test_a_site_that_always_says_just_now_is_not_followed_into_the_endless():
    rhythm = seen(None, 0.0, changed=False)
    for day in range(1, 200):
        rhythm = seen(rhythm, day * DAY, changed=True, announced=day * DAY + 5)
    assert rate(rhythm, USUALLY) == pytest.approx(1 / DAY, rel=0.1)


def test_a_page_that_cries_wolf_is_not_believed_until_it_was_right_as_often():
    rhythm = seen(None, 0.0, changed=False)
    assert rhythm.believes
    for day, right in enumerate([False, False, True, False, True], 1):
        rhythm = seen(rhythm, day * DAY, changed=right, announced=day * DAY - 60)
        assert rhythm.believes == (day != 2 and day != 4)
    assert (rhythm.alarms, rhythm.false_alarms) == (2, 3)


# -- what is usual ---------------------------------------------------------------------------------------------------


def test_with_no_pages_a_page_does_what_is_usual_anywhere():
    assert prior_of(ChangeSums()).middle == pytest.approx(USUAL)
    assert rate(None, prior_of(ChangeSums())) == pytest.approx(USUAL)


def test_a_new_page_starts_in_the_middle_of_its_schedule():
    chance = random.Random(6)
    rates = [chance.lognormvariate(0.0, 2.0) / (3 * 3600) for _ in range(2000)]
    start = rate(seen(None, 0.0, changed=False), prior_of(sums_of(rates)))
    assert start == pytest.approx(median(rates), rel=0.15)


def test_a_handful_of_pages_does_not_decide_what_is_usual():
    assert USUAL < prior_of(sums_of([100 * USUAL])).middle < 3 * USUAL


def test_sums_of_parts_are_the_sums_of_the_whole():
    rates = [USUAL * number for number in range(1, 40)]
    parts, whole = sums_of(rates[:10]) + sums_of(rates[10:]), sums_of(rates)
    assert parts.pages == whole.pages == 39
    assert prior_of(parts).middle == pytest.approx(prior_of(whole).middle)


def test_a_rhythm_is_claimed_only_after_several_changes():
    assert change_words(history()) == "fetched once by a schedule: how often it changes is not known yet"
    assert change_words(history(False, True)) == "2 checks, 1 change: too few changes to say how often"
    assert change_words(history(True, True, True)).startswith("about every ")

"""What to do now: a tick fires once and never early, and no clock silences a schedule for long."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.model.schedule import Overlap
from gossamer.schedule.decisions import on_overlap
from gossamer.schedule.triggers import (
    FORGIVEN,
    MOST_COUNTED,
    Cron,
    Decision,
    Every,
    Fire,
    Once,
    Over,
    Trigger,
    Wait,
    decide,
    is_past,
    next_due,
)

DAY = 86400
MADE = datetime(2026, 1, 1, 10, 7, tzinfo=UTC).timestamp()


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_a_tick_fires_when_it_is_due_and_not_before() -> None:
    hourly = Cron("0 * * * *")
    assert decide(hourly, first=MADE, last_due=None, now=at("2026-01-01T10:59:59")) == Wait(at("2026-01-01T11:00"))
    assert decide(hourly, first=MADE, last_due=None, now=at("2026-01-01T11:00")) == Fire(at("2026-01-01T11:00"))


def test_ticks_that_were_missed_run_once() -> None:
    # given a schedule of every minute that nobody looked at for five years
    decision = decide(Cron("* * * * *"), first=MADE, last_due=MADE, now=at("2031-01-01T00:00:30"))
    # then the latest of two million fires, and the others are counted as far as that costs nothing
    assert decision == Fire(at("2031-01-01T00:00"), missed=MOST_COUNTED)


@pytest.mark.parametrize(
    ("trigger", "until", "missed"),
    [
        (Cron("* * * * *"), "2026-01-01T10:08:30", 0),
        (Cron("* * * * *"), "2026-01-01T10:11:00", 3),
        (Every(20.0), "2026-01-01T10:07:39", 0),
        (Every(20.0), "2026-01-01T10:08:10", 2),
    ],
)
def test_ticks_that_did_not_run_are_counted(trigger, until, missed) -> None:
    decision = decide(trigger, first=MADE, last_due=MADE, now=at(until))
    assert isinstance(decision, Fire)
    assert decision.missed == missed


def test_a_single_moment_that_was_missed_runs_late_and_then_it_is_over() -> None:
    once = Once(MADE + 60)
    assert decide(once, first=MADE, last_due=None, now=MADE + 9999) == Fire(MADE + 60)
    assert decide(once, first=MADE, last_due=MADE + 60, now=MADE + 9999) == Over()
    assert decide(once, first=MADE, last_due=MADE + 60, now=MADE) == Over()


def test_a_clock_that_was_a_year_ahead_silences_nobody() -> None:
    # given a schedule that last fired under a clock that was a year ahead
    hourly, now = Cron("0 * * * *"), at("2026-06-01T10:30")
    decision = decide(hourly, first=MADE, last_due=at("2027-06-01T10:00"), now=now)
    # then it goes on from now, and repeats nothing
    assert decision == Wait(at("2026-06-01T11:00"), since=now)
    assert decide(hourly, first=MADE, last_due=at("2027-06-01T10:00"), since=now, now=at("2026-06-01T11:00")) == Fire(
        at("2026-06-01T11:00")
    )


def test_the_tick_that_comes_within_the_same_millisecond_is_not_lost() -> None:
    hourly, now = Cron("0 * * * *"), at("2026-06-01T11:00") - 0.0004
    decision = decide(hourly, first=MADE, last_due=at("2027-06-01T10:00"), now=now)
    assert isinstance(decision, Wait)
    assert decision.since is not None
    assert decision.since < decision.until == at("2026-06-01T11:00")


@pytest.mark.parametrize("trigger", [Cron("0 * * * *"), Every(3600.0), Once(at("2026-06-01T11:00"))])
def test_a_schedule_that_was_made_under_a_clock_ahead_is_not_silent_either(trigger: Trigger) -> None:
    made, now = at("2027-06-01T10:00"), at("2026-06-01T10:30")
    decision = decide(trigger, first=made, last_due=None, now=now)
    assert decision == Wait(at("2026-06-01T11:00"), since=now)
    later = decide(trigger, first=made, last_due=None, since=now, now=at("2026-06-01T11:00:05"))
    assert isinstance(later, Fire)
    assert later.due == at("2026-06-01T11:00")


def test_a_daily_tick_is_not_repeated_when_the_clock_goes_back_over_it() -> None:
    nightly = Cron("0 3 * * *")
    decision = decide(nightly, first=MADE, last_due=at("2026-06-02T03:00"), now=at("2026-06-01T23:00"))
    assert decision == Wait(at("2026-06-03T03:00"))


def test_a_clock_that_goes_back_is_waited_out_when_no_tick_beyond_an_hour_is_lost() -> None:
    decision = decide(Cron("0 * * * *"), first=MADE, last_due=at("2026-06-01T12:00"), now=at("2026-06-01T10:50"))
    assert decision == Wait(at("2026-06-01T13:00"))


def test_a_clock_that_is_a_day_behind_for_a_moment_repeats_nothing() -> None:
    # given a night's tick that has fired, and a clock that shows the day before
    nightly, fired, now = Cron("30 3 * * *"), at("2026-06-02T03:30"), at("2026-06-01T02:00")
    behind = decide(nightly, first=MADE, last_due=fired, now=now)
    assert behind == Wait(at("2026-06-01T03:30"), since=now)
    # when it is right again
    right = decide(nightly, first=MADE, last_due=fired, since=now, now=at("2026-06-02T10:00"))
    assert right == Wait(at("2026-06-03T03:30"))


def test_what_fires_while_the_clock_is_behind_makes_nobody_forget_what_fired_before() -> None:
    nightly, fired, yesterday = Cron("30 3 * * *"), at("2026-06-02T03:30"), at("2026-06-01T03:30")

    def decided(now: str) -> Decision:
        return decide(nightly, first=MADE, last_due=yesterday, newest=fired, now=at(now))

    assert decided("2026-06-02T02:00") == Wait(fired)
    assert decided("2026-06-02T10:00") == Wait(at("2026-06-03T03:30"))


@pytest.mark.parametrize("trigger", [Cron("0 * * * *"), Every(3600.0)])
def test_only_ticks_after_since_count(trigger: Trigger) -> None:
    first, since = at("2026-06-01T00:00"), at("2026-06-01T10:30")
    assert decide(trigger, first=first, last_due=at("2026-06-01T03:00"), since=since, now=since) == Wait(
        at("2026-06-01T11:00")
    )
    fired = decide(trigger, first=first, last_due=at("2026-06-01T03:00"), since=since, now=at("2026-06-01T13:10"))
    assert isinstance(fired, Fire)
    assert fired.due == at("2026-06-01T13:00")


def test_a_single_moment_that_was_written_late_runs_and_one_that_was_missed_on_purpose_does_not() -> None:
    once, now = Once(MADE - 600), MADE + 5
    assert decide(once, first=MADE, last_due=None, now=now) == Fire(MADE - 600)
    # also when it took the place of a trigger that had fired already, after that moment
    assert decide(once, first=MADE, last_due=MADE - 60, since=MADE, now=now) == Fire(MADE - 600)
    # but not after a pause that ended later, nor twice
    assert decide(once, first=MADE, last_due=None, since=MADE + 1, now=now) == Over()
    assert decide(once, first=MADE, last_due=MADE - 600, since=MADE, now=now) == Over()
    assert is_past(once, last_due=None, now=now)
    assert not is_past(once, last_due=MADE - 600, now=now)
    assert not is_past(Once(MADE + 60), last_due=None, now=now)


TRIGGERS = (
    st.builds(Every, st.integers(1, 3 * DAY).map(float) | st.floats(1.0, 100.0))
    | st.builds(
        Cron,
        st.sampled_from(
            ("* * * * *", "*/7 * * * *", "0 * * * *", "*/20 2 * * *", "30 2 * * *", "0 0 * * 0", "5 4 29 2 *")
        ),
        st.sampled_from(("UTC", "Europe/Berlin", "Australia/Lord_Howe")),
    )
    | st.builds(Once, st.integers(0, 3 * DAY).map(lambda later: MADE + later))
)


@settings(max_examples=100, deadline=None)
@given(TRIGGERS, st.lists(st.floats(-FORGIVEN, 2 * FORGIVEN) | st.floats(0, 3 * DAY), min_size=1, max_size=30))
def test_under_a_clock_that_jumps_each_tick_fires_at_most_once_and_the_newest_always(
    trigger: Trigger, jumps: list[float]
) -> None:
    now, latest, last_due = MADE, MADE, None
    for jump in jumps:
        now = max(now + jump, latest - FORGIVEN)  # back by an hour at most, forward by days
        latest = max(latest, now)
        decision = decide(trigger, first=MADE, last_due=last_due, now=now)
        if isinstance(decision, Fire):
            # never early, never twice, and it is a tick
            assert decision.due <= now
            assert last_due is None or decision.due > last_due
            assert next_due(trigger, decision.due - 0.5, first=MADE) == decision.due
            last_due = decision.due
        elif isinstance(decision, Wait):
            assert decision.until > now
            assert decision.since is None
        # and nothing that is due is left
        left = next_due(trigger, 0.0 if last_due is None else last_due, first=MADE)
        assert left is None or left > now


@settings(max_examples=100, deadline=None)
@given(
    TRIGGERS.filter(lambda trigger: not isinstance(trigger, Once)),
    st.lists(st.floats(-900 * DAY, 900 * DAY), max_size=8),
)
def test_whatever_the_clock_did_the_schedule_goes_on_soon(trigger: Trigger, jumps: list[float]) -> None:
    # given a clock that went to and fro by years
    memory, now = Memory(), MADE
    for jump in jumps:
        now = max(now + jump, 1.0)
        memory, _ = memory.look(trigger, now)
    # when it is right again
    decision = memory.decide(trigger, now)
    # then the schedule fires now, or within an hour and two of its ticks
    if isinstance(decision, Wait):
        soon = next_due(trigger, now + FORGIVEN, first=now)
        assert soon is not None
        after = next_due(trigger, soon, first=now)
        assert after is not None
        assert now < decision.until <= after
        memory, _ = memory.look(trigger, now)
        assert isinstance(memory.decide(trigger, decision.until), Fire)
    else:
        assert isinstance(decision, Fire)


@settings(max_examples=200, deadline=None)
@given(
    TRIGGERS,
    st.lists(st.tuples(st.floats(1.0, 2 * DAY), st.sampled_from((0.0, 0.0, -0.5, -24.0, -30.0, -720.0)))),
)
def test_no_tick_fires_twice_under_a_clock_that_is_right_however_often_it_was_behind(
    trigger: Trigger, looks: list[tuple[float, float]]
) -> None:
    memory, right = Memory(), MADE
    fired: list[float] = []
    for step, hours in looks:
        right += step
        for _ in range(2):  # a first look may only note that the clock was wrong
            memory, due = memory.look(trigger, right + hours * 3600)
            if due is not None and not hours:
                fired.append(due)
    assert fired == sorted(set(fired))


class Memory(msgspec.Struct, frozen=True):
    """What a schedule remembers of its ticks."""

    last_due: float | None = None
    since: float | None = None
    newest: float | None = None

    def decide(self, trigger: Trigger, now: float) -> Decision:
        return decide(trigger, first=MADE, last_due=self.last_due, since=self.since, newest=self.newest, now=now)

    def look(self, trigger: Trigger, now: float) -> tuple[Memory, float | None]:
        """What is remembered afterwards, and the tick that fired."""
        match self.decide(trigger, now):
            case Fire(due):
                newest = max(self.newest or 0.0, self.last_due or 0.0)
                return Memory(due, None, newest if newest > due else None), due
            case Wait(_, float() as since):
                return msgspec.structs.replace(self, since=since), None
        return self, None


# Runs that overlap


def test_a_tick_with_nothing_in_its_way_starts() -> None:
    assert [on_overlap(policy, False) for policy in Overlap] == [None, None, None]


def test_a_tick_during_a_run_is_skipped_queued_or_takes_its_place() -> None:
    assert on_overlap(Overlap.SKIP, True) is Overlap.SKIP
    assert on_overlap(Overlap.QUEUE, True) is Overlap.QUEUE
    assert on_overlap(Overlap.REPLACE, True) is Overlap.REPLACE


def test_at_most_one_run_waits() -> None:
    assert on_overlap(Overlap.QUEUE, True, waiting=True) is Overlap.SKIP
    assert on_overlap(Overlap.QUEUE, False, waiting=True) is Overlap.SKIP

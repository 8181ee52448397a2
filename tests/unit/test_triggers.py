"""When schedules are due: written by people, met to the second, whatever the clocks do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import Misconfigured
from gossamer.schedule.triggers import Cron, Every, Once, Trigger, describe, next_due, parse_trigger

from .wallclocks import WallClock, changes

HOUR = 3600
MADE = datetime(2026, 1, 1, 10, 7, tzinfo=UTC).timestamp()


def at(text: str) -> float:
    written = datetime.fromisoformat(text)
    return (written if written.tzinfo else written.replace(tzinfo=UTC)).timestamp()


def dues(trigger: Trigger, after: float, count: int) -> list[str]:
    """The next due moments, in UTC."""
    found: list[str] = []
    for _ in range(count):
        due = next_due(trigger, after, first=0.0)
        if due is None:
            break
        found.append(datetime.fromtimestamp(due, UTC).strftime("%Y-%m-%d %H:%M"))
        after = due
    return found


# How they are written


@pytest.mark.parametrize(
    ("text", "trigger", "said"),
    [
        ("every 15m", Every(900.0), "every 15 min"),
        ("Every  1h30m", Every(5400.0), "every 1 h 30 min"),
        ("every 1d", Every(86400.0), "every 1 d"),
        ("every 1.5s", Every(1.5), "every 1.5 s"),
        ("0 3 * * *", Cron("0 3 * * *", "Europe/Berlin"), "at 03:00 every day, Europe/Berlin (cron 0 3 * * *)"),
        ("cron 0 3 * *  *", Cron("0 3 * * *", "Europe/Berlin"), "at 03:00 every day, Europe/Berlin (cron 0 3 * * *)"),
        ("@daily", Cron("0 0 * * *", "Europe/Berlin"), "at 00:00 every day, Europe/Berlin (cron 0 0 * * *)"),
        (
            "at 2027-01-31T12:00+02:00",
            Once(at("2027-01-31T12:00+02:00"), "Europe/Berlin"),
            "once, at 2027-01-31 11:00 Europe/Berlin",
        ),
        (
            "once 2027-01-31 12:00:30",
            Once(at("2027-01-31T12:00:30+01:00"), "Europe/Berlin"),
            "once, at 2027-01-31 12:00:30 Europe/Berlin",
        ),
    ],
)
def test_triggers_are_read_as_people_write_them(text: str, trigger: Trigger, said: str) -> None:
    read = parse_trigger(text, "Europe/Berlin")
    assert read == trigger
    assert describe(read) == said
    assert msgspec.json.decode(msgspec.json.encode(read), type=Trigger) == trigger


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Write `every 15m`"),
        ("often", "Write `every 15m`"),
        ("15m", "Write `every 15m`."),
        ("2027-01-31", "Write `at 2027-01-31`."),
        ("every", "is not an interval"),
        ("every 0s", "the shortest interval is 1s"),
        ("every 999ms", "the shortest interval is 1s"),
        ("every 99999999999999d", "the longest interval is 3660d"),
        ("at noon", "is not a moment"),
        ("at 0001-01-01", "names the year 1"),
        ("@reboot", "there are @hourly, @daily"),
        ("61 * * * *", "minutes are 0 to 59"),
        ("0 24 * * *", "hours are 0 to 23"),
        ("0 0 32 1 *", "days are 1 to 31"),
        ("0 0 * 13 *", "months are 1 to 12"),
        ("0 0 * * 8", "days of the week are 0 to 7"),
        ("0 0 30 2 *", "is never due: no month that it names has such a day"),
        ("0 0 31 4,6,9,11 *", "is never due"),
        ("0 0 */31 2 MON#5", "is never due: no day fits all of its fields"),
        ("0 0 * *", "has 4 fields; cron needs five"),
        ("0 0 0 * * *", "has 6 fields; cron needs five"),
        ("0" * 5000 + " * * * *", "too long"),
    ],
)
def test_what_is_no_trigger_is_refused_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        parse_trigger(text)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("zone", "meant"),
    [("Europe/Berln", "Europe/Berlin"), ("berlin", "Europe/Berlin"), ("America/New York", "America/New_York")],
)
def test_an_unknown_zone_is_refused_with_the_one_that_was_meant(zone: str, meant: str) -> None:
    with pytest.raises(Misconfigured, match=f"Did you mean {meant}"):
        parse_trigger("@daily", zone)


@pytest.mark.parametrize("zone", ["", "Europe", "../../etc/passwd", "localtime", "MESZ", "x" * 9999])
def test_what_is_like_no_zone_is_refused_too(zone: str) -> None:
    with pytest.raises(Misconfigured, match="Write it like Europe/Berlin"):
        parse_trigger("@daily", zone)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="0123456789*/-,#LW @evrymonatFIUS:TZ²", max_size=25))
def test_any_text_is_a_trigger_or_misconfigured(text: str) -> None:
    try:
        trigger = parse_trigger(text)
    except Misconfigured:
        return
    assert describe(trigger)
    assert isinstance(trigger, Once) or next_due(trigger, MADE, first=0.0)


# When they are due


def test_an_interval_is_due_when_it_is_made_and_does_not_drift() -> None:
    quarter = Every(900.0)
    assert next_due(quarter, 0.0, first=MADE) == MADE
    assert next_due(quarter, MADE, first=MADE) == MADE + 900
    assert next_due(quarter, MADE + 10 * 900 + 3.7, first=MADE) == MADE + 11 * 900


@settings(max_examples=100, deadline=None)
@given(st.floats(1.0, 1e6), st.floats(1e9, 2e9), st.floats(0, 1e8), st.sampled_from((1e-3, 1.0, 1e3)))
def test_intervals_are_neither_early_nor_skipped(seconds: float, first: float, later: float, unit: float) -> None:
    trigger = Every(max(1.0, seconds * unit))
    one = next_due(trigger, first + later, first=first)
    assert one is not None
    two = next_due(trigger, one, first=first)
    assert two is not None
    assert first + later < one <= first + later + trigger.seconds + 0.001
    assert two - one == pytest.approx(trigger.seconds, abs=0.002)


def test_a_single_moment_is_due_once() -> None:
    once = Once(MADE + 60)
    assert next_due(once, MADE, first=MADE) == MADE + 60
    assert next_due(once, MADE + 60, first=MADE) is None


def test_nothing_is_due_before_the_schedule_was_made() -> None:
    assert next_due(Cron("0 * * * *"), 0.0, first=at("2026-01-01T10:00")) == at("2026-01-01T10:00")
    assert next_due(Cron("0 * * * *"), 0.0, first=at("2026-01-01T10:00:01")) == at("2026-01-01T11:00")


def test_a_single_moment_may_be_a_day_older_than_its_schedule() -> None:
    assert next_due(Once(MADE - 86399), 0.0, first=MADE) == MADE - 86399
    assert next_due(Once(MADE - 86401), 0.0, first=MADE) is None


def test_leap_days_are_found_also_across_a_century_that_has_none() -> None:
    assert dues(Cron("30 12 29 2 *"), at("2095-01-01"), 3) == [
        "2096-02-29 12:30",
        "2104-02-29 12:30",
        "2108-02-29 12:30",
    ]
    # a leap day that is a Sunday: a star makes both fields count
    assert dues(Cron("0 0 29 2 */7"), at("2026-01-01"), 4)[2:] == ["2088-02-29 00:00", "2128-02-29 00:00"]


def test_two_named_days_count_each_for_itself() -> None:
    assert dues(Cron("0 0 13 * FRI"), at("2026-01-01"), 3) == [
        "2026-01-02 00:00",
        "2026-01-09 00:00",
        "2026-01-13 00:00",
    ]


def test_ticks_inside_a_gap_run_together_right_after_it() -> None:
    # given Berlin, where 02:00 to 03:00 was left out on 29 March 2026, at 01:00 UTC
    assert dues(Cron("*/20 2 * * *", "Europe/Berlin"), at("2026-03-28T12:00"), 2) == [
        "2026-03-29 01:00",
        "2026-03-30 00:00",
    ]


def test_a_tick_inside_a_fold_runs_once() -> None:
    # given Berlin, where 02:00 to 03:00 was shown twice on 25 October 2026, the second time from 01:00 UTC on
    nightly = Cron("30 2 * * *", "Europe/Berlin")
    assert dues(nightly, at("2026-10-24T12:00"), 2) == ["2026-10-25 00:30", "2026-10-26 01:30"]
    assert dues(nightly, at("2026-10-25T01:10"), 1) == ["2026-10-26 01:30"]


def test_an_hourly_tick_goes_by_real_time_through_gap_and_fold() -> None:
    # given Lord Howe Island, whose clock jumps by half an hour: over 02:00 to 02:30, and back from 02:00 to 01:30
    hourly = Cron("45 0-23 * * *", "Australia/Lord_Howe")
    assert dues(hourly, at("2026-10-03T14:50"), 3) == ["2026-10-03 15:15", "2026-10-03 15:45", "2026-10-03 16:45"]
    assert dues(hourly, at("2026-04-04T14:00"), 3) == ["2026-04-04 14:45", "2026-04-04 15:15", "2026-04-04 16:15"]


def test_what_is_shown_a_second_time_is_not_skipped_by_an_hourly_tick() -> None:
    # given Berlin at 02:50, ten minutes before its clock goes back to 02:00
    often = Cron("0,30 * * * *", "Europe/Berlin")
    assert dues(often, at("2026-10-25T00:50"), 3) == ["2026-10-25 01:00", "2026-10-25 01:30", "2026-10-25 02:00"]


def test_the_end_of_time_is_reached_quietly() -> None:
    assert next_due(Cron("* * * * *"), 1e15, first=0.0) is None
    assert next_due(Every(60.0), 1e300, first=0.0) is None


class Field(msgspec.Struct, frozen=True):
    text: str
    values: frozenset[int]


@st.composite
def fields(draw: st.DrawFn, low: int, high: int, likely: tuple[int, ...]) -> Field:
    """One field of a cron expression, and what it means."""
    kind = draw(st.sampled_from(("star", "step", "list", "range")))
    if kind == "star":
        return Field("*", frozenset(range(low, high + 1)))
    if kind == "step":
        step = draw(st.integers(1, high))
        return Field(f"*/{step}", frozenset(range(low, high + 1, step)))
    if kind == "list":
        named = draw(st.sets(st.sampled_from(likely) | st.integers(low, high), min_size=1, max_size=4))
        return Field(",".join(map(str, sorted(named))), frozenset(named))
    begin, end = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
    return Field(f"{begin}-{end}", frozenset(range(begin, end + 1)))


class Expression(msgspec.Struct, frozen=True):
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def text(self) -> str:
        return " ".join(part.text for part in (self.minute, self.hour, self.day, self.month, self.weekday))

    def names(self, wall: datetime) -> bool:
        day, weekday = wall.day in self.day.values, wall.isoweekday() % 7 in self.weekday.values
        either = not self.day.text.startswith("*") and not self.weekday.text.startswith("*")
        return (
            wall.minute in self.minute.values
            and wall.hour in self.hour.values
            and wall.month in self.month.values
            and (day or weekday if either else day and weekday)
        )

    def due_minutes(self, clock: WallClock) -> list[int]:
        if len(self.hour.values) == 24:
            return [minute for minute, shown in zip(clock.minutes, clock.shown, strict=True) if self.names(shown)]
        return [
            minute
            for index, (minute, shown) in enumerate(zip(clock.minutes, clock.shown, strict=True))
            if (self.names(shown) and shown.fold == 0) or any(map(self.names, clock.left_out_before(index)))
        ]


@st.composite
def expressions(draw: st.DrawFn, around: datetime) -> Expression:
    """Cron expressions that have something to say about the days around a moment."""
    days = tuple((around + timedelta(days=n)).day for n in (-1, 0, 1))
    return Expression(
        minute=draw(fields(0, 59, (0, 15, 30, 45, 59))),
        hour=draw(fields(0, 23, (0, 1, 2, 3, 23))),
        day=draw(st.just(Field("*", frozenset(range(1, 32)))) | fields(1, 31, days)),
        month=draw(st.just(Field("*", frozenset(range(1, 13)))) | fields(1, 12, (around.month,))),
        weekday=draw(st.just(Field("*", frozenset(range(7)))) | fields(0, 6, (0, 6))),
    )


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_every_tick_that_a_cron_names_is_met_when_clocks_change(data: st.DataObject) -> None:
    # given what a clock shows, minute by minute, around a change
    zone, change = data.draw(changes())
    begin, end = change - 10 * HOUR, change + 15 * HOUR
    expression = data.draw(expressions(datetime.fromtimestamp(change, ZoneInfo(zone))))
    expected = expression.due_minutes(WallClock(zone, begin, end))
    trigger = Cron(expression.text, zone)

    # then one tick after the other is the same
    found: list[float] = []
    due = next_due(trigger, begin - 1, first=0.0)
    while due is not None and due < end and len(found) <= len(expected):
        found.append(due)
        due = next_due(trigger, due, first=0.0)
    assert found == expected

    # and so it is from any moment between
    for after in data.draw(st.lists(st.floats(change - 3 * HOUR, change + 3 * HOUR), max_size=8)):
        due = next_due(trigger, after, first=0.0)
        coming = next((minute for minute in expected if minute > after), None)
        assert due == coming if coming is not None else due is None or due >= end

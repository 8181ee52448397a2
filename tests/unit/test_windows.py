"""Hours in which a site may be crawled: read from text, right through gaps and folds, never stuck."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import Misconfigured
from gossamer.model.windows import Window, closes_at, is_open, opens_at, parse_windows

from .wallclocks import DAY, MINUTE, WallClock, changes

HOUR = 3600
ALL_WEEK = (0, 1, 2, 3, 4, 5, 6)


def at(text: str, zone: str = "Europe/Berlin") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("text", "windows", "said"),
    [
        (
            "22:00-06:00 Europe/Berlin",
            [Window(ALL_WEEK, 1320, 360, "Europe/Berlin")],
            "22:00-06:00 Europe/Berlin",
        ),
        (
            "Mon-Fri 20:00-6:00 America/New_York",
            [Window((0, 1, 2, 3, 4), 1200, 360, "America/New_York")],
            "Mon-Fri 20:00-06:00 America/New_York",
        ),
        ("sat, sunday", [Window((5, 6), 0, 1440, "UTC")], "Sat,Sun 00:00-24:00 UTC"),
        ("wed,Thursday,fri", [Window((2, 3, 4), 0, 1440, "UTC")], "Wed-Fri 00:00-24:00 UTC"),
        ("Fri-Mon 01:00 - 02:00", [Window((0, 4, 5, 6), 60, 120, "UTC")], "Mon,Fri,Sat,Sun 01:00-02:00 UTC"),
        (
            "Mon 20:00-06:00; Sat Europe/Berlin;",
            [Window((0,), 1200, 360, "Europe/Berlin"), Window((5,), 0, 1440, "Europe/Berlin")],
            "Mon 20:00-06:00 Europe/Berlin; Sat 00:00-24:00 Europe/Berlin",
        ),
        (
            "Mon Asia/Tokyo; Tue Europe/Berlin",
            [Window((0,), 0, 1440, "Asia/Tokyo"), Window((1,), 0, 1440, "Europe/Berlin")],
            "Mon 00:00-24:00 Asia/Tokyo; Tue 00:00-24:00 Europe/Berlin",
        ),
    ],
)
def test_windows_are_read_as_people_write_them(text: str, windows: list[Window], said: str) -> None:
    read = parse_windows(text)
    assert read == tuple(windows)
    assert "; ".join(map(str, read)) == said
    assert parse_windows(said) == read
    assert msgspec.json.decode(msgspec.json.encode(read), type=tuple[Window, ...]) == read


def test_the_zone_of_the_schedule_holds_when_the_text_names_none() -> None:
    assert parse_windows("22:00-06:00", "Asia/Tokyo")[0].zone == "Asia/Tokyo"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no window"),
        (" ; ", "names no window"),
        ("10:00-10:00", "has no length. Write 00:00-24:00 for a whole day"),
        ("00:00-00:00", "has no length"),
        ("24:00-01:00", "a day goes from 00:00 to 24:00"),
        ("22:60-23:00", "a day goes from 00:00 to 24:00"),
        ("08:00", "Write it like 22:00-06:00"),
        ("Mon-Wed-Fri 01:00-02:00", "'Mon-Wed-Fri' is not a day"),
        ("Mond 01:00-02:00", "'Mond' is not a day"),
        ("Europe/Berlin", "is not a window"),
        ("Sat Sun", "separate days by a comma without a blank, like Sat,Sun."),
        ("Mon Wednesday 01:00-02:00", "separate days by a comma"),
        ("01:00-02:00 03:00-04:00 UTC", "is not a window"),
        ("01:00-02:00 Europe/Berln", "Did you mean Europe/Berlin?"),
        ("Mon UTC; Tue Asia/Tokyo; Wed", "each window needs its own"),
        ("Mon;" * 51, "50 at most"),
        ("Mon" + "," * 9999, "50 at most"),
    ],
)
def test_what_is_no_window_is_refused_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        parse_windows(text)
    assert words in str(refused.value)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="0123456789:-,; MonFriSatUTC/²", max_size=25))
def test_any_text_is_windows_or_misconfigured(text: str) -> None:
    try:
        windows = parse_windows(text)
    except Misconfigured:
        return
    assert opens_at(windows, at("2026-03-28T12:00")) is not None


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins() -> None:
    nights = parse_windows("Fri 22:00-06:00 Europe/Berlin")  # 5 June 2026 is a Friday
    assert is_open(nights, at("2026-06-06T05:59"))
    assert not is_open(nights, at("2026-06-05T05:59"))
    assert not is_open(nights, at("2026-06-06T06:00"))
    assert opens_at(nights, at("2026-06-06T06:00")) == at("2026-06-12T22:00")
    assert closes_at(nights, at("2026-06-05T23:00")) == at("2026-06-06T06:00")


def test_windows_that_touch_or_overlap_are_one() -> None:
    weekend = parse_windows("Mon-Fri 20:00-06:00; Sat,Sun Europe/Berlin")
    friday_evening, monday_morning = at("2026-06-05T20:00"), at("2026-06-08T00:00")
    assert opens_at(weekend, friday_evening - HOUR) == friday_evening
    assert closes_at(weekend, friday_evening) == monday_morning


def test_the_earliest_of_several_zones_opens() -> None:
    windows = parse_windows("Sun 12:00-13:00 Pacific/Auckland; Sat 23:00-24:00 Pacific/Honolulu")
    noon = at("2026-06-07T12:00", "Pacific/Auckland")
    assert opens_at(windows, at("2026-06-05T00:00")) == noon
    assert opens_at(windows, noon + HOUR) == at("2026-06-06T23:00", "Pacific/Honolulu")


def test_no_window_and_all_windows_are_always_open() -> None:
    for windows in ((), parse_windows("00:00-24:00 Europe/Berlin"), parse_windows("Mon-Fri; Sat; Sun")):
        now = at("2026-03-29T12:00")
        assert is_open(windows, now)
        assert opens_at(windows, now) == now
        assert closes_at(windows, now) is None


def test_a_closed_window_closes_now_and_opens_later() -> None:
    nights = parse_windows("22:00-06:00 Europe/Berlin")
    noon = at("2026-06-05T12:00")
    assert closes_at(nights, noon) == noon
    assert opens_at(nights, noon) == at("2026-06-05T22:00")


def test_a_night_is_an_hour_shorter_or_longer_when_clocks_change() -> None:
    nights = parse_windows("22:00-06:00 Europe/Berlin")
    spring, autumn = at("2026-03-28T22:00"), at("2026-10-24T22:00")
    assert closes_at(nights, spring) == spring + 7 * HOUR
    assert closes_at(nights, autumn) == autumn + 9 * HOUR


def test_a_window_inside_a_gap_is_left_out_and_opens_the_next_time() -> None:
    sundays = parse_windows("Sun 02:10-02:50 Europe/Berlin")
    assert opens_at(sundays, at("2026-03-28T12:00")) == at("2026-04-05T02:10")


@st.composite
def windows_near(draw: st.DrawFn, zone: str, moment: int) -> Window:
    """A window that begins or ends near the hour at which a clock jumps."""
    shown = datetime.fromtimestamp(moment, ZoneInfo(zone))
    near = st.integers(-150, 150).map(lambda off: (shown.hour * 60 + shown.minute + off) % (24 * 60))
    minutes = near | st.integers(0, 1439)
    start = draw(minutes)
    end = draw((minutes | st.just(1440)).filter(lambda minute: minute != start))
    days = draw(
        st.just(ALL_WEEK) | st.sets(st.sampled_from(ALL_WEEK), min_size=1).map(lambda days: tuple(sorted(days)))
    )
    return Window(days, start, end, zone)


def open_minutes(window: Window, clock: WallClock) -> set[int]:
    """The slow truth: from the minute that shows the start to the minute that shows the end."""
    found: set[int] = set()
    first = clock.shown[0].replace(tzinfo=None, hour=0, minute=0) - timedelta(days=1)
    for step in range(len(clock.minutes) * MINUTE // DAY + 3):
        day = first + timedelta(days=step)
        if day.weekday() in window.days:
            start = day + timedelta(minutes=window.start)
            end = day + timedelta(minutes=window.end, days=window.end < window.start)
            found.update(range(clock.first_at_or_past(start), clock.first_at_or_past(end), MINUTE))
    return found


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_windows_open_and_close_as_the_clock_on_the_wall_says(data: st.DataObject) -> None:
    # given what a clock shows, minute by minute, around a change
    zone, change = data.draw(changes())
    clock = WallClock(zone, change - 30 * HOUR, change + 30 * HOUR)
    windows = data.draw(st.lists(windows_near(zone, change), min_size=1, max_size=3))
    open_at = set().union(*(open_minutes(window, clock) for window in windows))

    # then at any moment near it, the answers are those of the clock
    for away in data.draw(st.lists(st.integers(-240, 240), min_size=1, max_size=12)):
        now = change + away * MINUTE
        assert is_open(windows, now) == (now in open_at)
        opening = next((m for m in range(now, clock.minutes.stop, MINUTE) if m in open_at), None)
        closing = next((m for m in range(now, clock.minutes.stop, MINUTE) if m not in open_at), None)
        opens, closes = opens_at(windows, now), closes_at(windows, now)
        assert opens is not None  # never stuck closed
        assert opens == opening if opening is not None else opens >= clock.minutes.stop
        assert closes == closing if closing is not None else closes is None or closes >= clock.minutes.stop

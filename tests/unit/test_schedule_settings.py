"""[schedules.NAME] in gossamer.toml: what becomes of a good table, and what is said about a bad one."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from gossamer.errors import Misconfigured, UnknownSetting
from gossamer.model.schedule import Overlap, Schedule
from gossamer.model.windows import parse_windows
from gossamer.schedule.definition import schedule_of, schedules_of
from gossamer.schedule.sources import SOURCE_KEYS, CommandSource, FileSource, UrlSource, UrlsSource
from gossamer.schedule.triggers import Cron, Every, Once, parse_trigger
from gossamer.settings import ScheduleTable, load


def read(folder, text):
    (folder / "gossamer.toml").write_text(text)
    return schedules_of(load(start=folder, environ={}).schedules)


def table(**keys):
    return ScheduleTable(**{"spider": "books", "every": "6h", **keys})


def source_of(schedule: Schedule) -> UrlSource:
    return msgspec.json.decode(schedule.source, type=UrlSource)


def test_a_table_with_all_that_can_be_said_becomes_a_schedule(tmp_path):
    found = read(
        tmp_path,
        """
        [schedules."prices of Berlin"]
        spider = "shop"
        cron = "0 3 * * *"
        zone = "Europe/Berlin"
        sitemap = "https://shop.example/sitemap.xml"
        max_urls = 5000
        only_changed = true
        kind = "product"
        priority = -3
        min_age = "90m"
        windows = "22:00-06:00"
        overlap = "replace"
        limit = 100
        budget = 2000
        min_interval = "1h"
        max_interval = "7d"
        """,
    )

    assert found == {
        "prices of Berlin": Schedule(
            name="prices of Berlin",
            spider="shop",
            trigger="0 3 * * *",
            zone="Europe/Berlin",
            source='{"type":"sitemap","url":"https://shop.example/sitemap.xml","only_changed":true,"max_urls":5000}',
            kind="product",
            priority=-3,
            min_age=timedelta(minutes=90),
            windows="22:00-06:00 Europe/Berlin",
            overlap=Overlap.REPLACE,
            limit=100,
            budget=2000,
            min_interval=timedelta(hours=1),
            max_interval=timedelta(days=7),
        )
    }


def test_a_short_table_is_the_spiders_own_start_with_nothing_special(tmp_path):
    found = read(tmp_path, '[schedules.a]\nspider = "https://shop.example"\nevery = "6h"')

    assert found["a"] == Schedule(name="a", spider="https://shop.example/", trigger="every 6h")


@pytest.mark.parametrize(
    ("line", "trigger"),
    [
        ('every = "1h30m"', Every(5400)),
        ('cron = "*/5  * * * *"', Cron("*/5 * * * *", "Europe/Berlin")),
        ('cron = "@daily"', Cron("0 0 * * *", "Europe/Berlin")),
        ('at = "2027-01-31T12:00"', Once(1801393200.0, "Europe/Berlin")),
        ("at = 2027-01-31T12:00:00", Once(1801393200.0, "Europe/Berlin")),  # TOML's own
        ("at = 2027-01-31T12:00:00+01:00", Once(1801393200.0, "Europe/Berlin")),
        ("at = 2027-01-31", Once(1801350000.0, "Europe/Berlin")),
    ],
)
def test_every_way_to_say_when_is_understood(tmp_path, line, trigger):
    found = read(tmp_path, f'[schedules.a]\nspider = "books"\nzone = "Europe/Berlin"\n{line}')["a"]

    assert parse_trigger(found.trigger, found.zone) == trigger


@pytest.mark.parametrize(
    ("keys", "source"),
    [
        ({"urls": ("https://a.test/{1..9}",)}, UrlsSource(urls=("https://a.test/{1..9}",))),
        ({"urls": "https://a.test/"}, UrlsSource(urls=("https://a.test/",))),
        ({"file": "urls.csv", "column": "link"}, FileSource(path="urls.csv", form="csv", column="link")),
        (
            {"command": ("./list", "-v"), "timeout": timedelta(seconds=9)},
            CommandSource(argv=("./list", "-v"), timeout=timedelta(seconds=9)),
        ),
        ({"command": "list | sort", "shell": True}, CommandSource(argv=("/bin/sh", "-c", "list | sort"))),
    ],
)
def test_sources_are_kept_as_the_workers_read_them(keys, source):
    assert source_of(schedule_of("a", table(**keys))) == source


def test_the_spiders_own_start_is_no_source():
    assert schedule_of("a", table(start=True)).source == ""


def test_every_key_of_a_source_can_be_written_in_a_schedule():
    assert set(ScheduleTable.__struct_fields__) >= SOURCE_KEYS


@pytest.mark.parametrize(
    "windows",
    ["22:00-06:00", "Mon-Fri 20:00-06:00; Sat,Sun", "Sat,Sun;", "22:00-06:00 Asia/Tokyo", "Sun UTC; Mon Asia/Tokyo"],
)
def test_windows_mean_the_same_without_the_zone_of_their_schedule(windows):
    found = schedule_of("a", table(zone="Europe/Berlin", windows=windows)).windows

    assert parse_windows(found) == parse_windows(windows, "Europe/Berlin")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"every": None}, "does not say when"),
        ({"cron": "0 3 * * *"}, "every and cron"),
        ({"every": "soon"}, "every: .*not an interval"),
        ({"every": "10ms"}, "every: .*too often"),
        ({"every": None, "cron": "0 25 * * *"}, "cron: .*hours are 0 to 23"),
        ({"every": None, "cron": "0 0 30 2 *"}, "cron: .*never due"),
        ({"every": None, "at": "tomorrow"}, "at: .*not a moment"),
        ({"zone": "Europe/Berln"}, "zone: .*Did you mean Europe/Berlin"),
        ({"windows": "22:00-22:00"}, "windows: .*no length"),
        ({"windows": "22:00-06:00 Nowhere"}, "windows: .*not a time zone"),
        ({"overlap": "replac"}, "overlap: .*Did you mean replace"),
        ({"urls": ("https://a.test/{1..1000000000}",)}, "1,000,000,000"),
        ({"urls": ("https://a.test/",), "feed": "https://a.test/rss"}, "urls and feed"),
        ({"column": "url"}, "means nothing alone"),
        ({"command": "ls"}, "shell = true"),
        ({"spider": " "}, "spider: name a spider"),
        ({"spider": "ftp://a.test/"}, "spider: "),
        ({"kind": "no method"}, "kind: "),
        ({"kind": "product"}, "kind: goes with a source"),
        ({"kind": "product", "start": True}, "kind: goes with a source"),
        ({"priority": 10**16}, "priority: "),
        ({"limit": 0}, "limit: must be 1 or more"),
        ({"budget": 0}, "budget: must be 1 or more"),
        ({"min_age": timedelta(0)}, "min_age: must be more than 0"),
        ({"max_interval": timedelta(days=1)}, "max_interval: goes with a budget"),
        (
            {"budget": 9, "min_interval": timedelta(days=2), "max_interval": timedelta(days=1)},
            "min_interval: is longer than",
        ),
    ],
)
def test_what_is_wrong_is_said_with_the_schedule_and_the_key(keys, words):
    with pytest.raises(Misconfigured, match=f"^Schedule 'a': .*{words}"):
        schedule_of("a", table(**keys))


@pytest.mark.parametrize("name", ["", " a", "a\n", "x" * 101, "https://a.test/", "#a-1"])
def test_a_name_that_nobody_could_type_is_refused(name):
    with pytest.raises(Misconfigured, match=r"not a schedule name|is an address|begins with #"):
        schedule_of(name, table())


def test_an_unknown_key_is_an_error_with_a_suggestion(tmp_path):
    with pytest.raises(UnknownSetting, match=r"schedules\.<schedule>\.every"):
        read(tmp_path, '[schedules.a]\nevry = "6h"')


def test_a_second_schedule_of_one_name_is_an_error(tmp_path):
    with pytest.raises(Misconfigured, match="cannot be read"):
        read(tmp_path, '[schedules.a]\nspider = "x"\nevery = "1h"\n[schedules.a]\nspider = "y"')

"""`gossamer schedule`, as a user sees it. No scheduler runs here: a schedule is kept, shown and begun without one."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

import msgspec
import pytest

from gossamer.model.job import JobTerms
from tests.unit.commandline import on_a_terminal
from tests.unit.commandline import project as project

SPIDER = """
from gossamer import Page, Spider

class Books(Spider):
    start_urls = ["https://shop.example/"]

    def parse(self, page: Page):
        return []

    def book(self, page: Page):
        return []
"""
NIGHT = """
[schedules.night]
spider = "books"
cron = "0 3 * * *"
zone = "Europe/Berlin"
"""


@pytest.fixture
def shop(project):
    """A project with one spider."""
    project.write("spiders/books.py", SPIDER)
    return project


def add(project, name: str, *words: str):
    said = project.run("schedule", "add", name, "--spider", "books", *words)
    assert said.code == 0, said
    return said


def names(project) -> list[str]:
    return [one["name"] for one in project.run("schedule", "list", "--json").json]


def show(project, name: str):
    return project.run("schedule", "show", name, "--json").json


def moments(texts: list[str]) -> list[datetime]:
    return [datetime.fromisoformat(text) for text in texts]


# -- looking -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["list"], ["next"]])
def test_looking_at_no_schedules_makes_no_files(project, words):
    said = project.run("schedule", *words)

    assert said.code == 0
    assert "No schedules" in said.out
    assert words == ["next"] or "a table [schedules.NAME] in gossamer.toml" in said.out
    assert project.run("schedule", *words, "--json").json == []
    assert not (project.folder / "gossamer-data").exists()


@pytest.mark.parametrize("verb", ["show", "pause", "resume", "run", "remove"])
def test_a_name_that_is_not_there_makes_no_files_either(project, verb):
    said = project.run("schedule", verb, "nobody")

    assert (said.code, said.out) == (1, "")
    assert "There is no schedule 'nobody'" in said.err
    assert not (project.folder / "gossamer-data").exists()


def test_a_misspelled_name_gets_a_suggestion(shop):
    add(shop, "prices", "--every", "6h")

    said = shop.run("schedule", "show", "price")

    assert said.err == "gossamer: There is no schedule 'price'. Did you mean prices?\n"


def test_a_schedule_that_was_added_is_listed_with_what_was_said(shop):
    said = add(
        shop, "prices", "--cron", "30 4 * * 1", "--zone", "Europe/Berlin", "--url", "https://shop.example/p/{1..20}",
        "--url", "https://shop.example/new", "--kind", "book", "--priority", "3", "--min-age", "2h", "--overlap",
        "queue", "--limit", "9", "--budget", "500", "--min-interval", "1h", "--max-interval", "7d", "--window",
        "22:00-06:00", "--window", "Sat,Sun", "--min-records", "40", "--min-pages", "5", "--max-dead-share", "0.1",
        "--max-change", "0.5",
    )  # fmt: skip

    assert "at 04:30 on Monday, Europe/Berlin" in said.out
    found = show(shop, "prices")
    assert found["source"]["urls"] == ["https://shop.example/p/{1..20}", "https://shop.example/new"]
    assert (found["kind"], found["priority"], found["overlap"], found["limit"]) == ("book", 3, "queue", 9)
    assert (found["budget"], found["min_age"], found["min_interval"], found["max_interval"]) == (500, "2h", "1h", "7d")
    assert found["windows"] == "22:00-06:00; Sat,Sun Europe/Berlin"
    assert found["expected"] == {"min_records": 40, "min_pages": 5, "max_dead_share": 0.1, "max_change": 0.5}
    assert "min_records 40, min_pages 5, max_dead_share 0.1" in shop.run("schedule", "show", "prices").out
    assert (found["origin"], found["state"], found["runs"], found["last_runs"]) == ("added", "new", 0, [])
    head, row = shop.run("schedule", "list").lines
    assert head.split()[:3] == ["NAME", "SPIDER", "WHEN"]
    assert "21 URLs, the first https://shop.example/p/{1..20}" in row


SOURCES = {
    "file": (["--file", "urls.csv", "--column", "link"], {"type": "file", "path": "urls.csv", "column": "link"}),
    "command": (["--command", "python list.py 'a b'"], {"type": "command", "argv": ["python", "***", "***"]}),
    "form": (["--command", "python x", "--format", "csv", "--column", "link"], {"form": "csv", "column": "link"}),
    "shell": (["--command", "a | b", "--shell", "--max-output", "1MB"], {"argv": ["/bin/sh", "***", "***"],
                                                                        "max_output": 1048576}),
    "timeout": (["--command", "python x", "--timeout", "90s"], {"timeout": "PT90S"}),
    "sitemap": (["--sitemap", "https://shop.example/sitemap.xml"], {"type": "sitemap"}),
    "feed": (["--feed", "https://shop.example/rss", "--max-urls", "50"], {"type": "feed", "max_urls": 50}),
}  # fmt: skip


@pytest.mark.parametrize("kind", SOURCES)
def test_addresses_may_come_from_elsewhere(shop, kind):
    words, expected = SOURCES[kind]
    add(shop, "prices", "--every", "1d", *words)

    source = show(shop, "prices")["source"]

    assert {key: source[key] for key in expected} == expected


def test_the_next_ticks_are_shown_on_the_clock_of_the_schedule(shop):
    add(shop, "night", "--cron", "0 3 * * *", "--zone", "Europe/Berlin")

    said = shop.run("schedule", "show", "night").out
    ticks = moments(show(shop, "night")["next_ticks"])

    lines = said[said.index("Next ticks") :].splitlines()[2:]
    assert len(lines) == len(ticks) == 5
    assert all(" 03:00:00 CE" in line for line in lines)  # CET or CEST, whatever the season
    assert all(timedelta(hours=23) <= later - earlier <= timedelta(hours=25) for earlier, later in pairwise(ticks))


def test_the_coming_ticks_of_all_schedules_are_in_order(shop):
    add(shop, "often", "--every", "1h")
    add(shop, "seldom", "--every", "150m")
    add(shop, "resting", "--every", "1m")
    shop.run("schedule", "pause", "resting")

    ticks = shop.run("schedule", "next", "-n", "6", "--json").json
    said = shop.run("schedule", "next", "--count", "6")

    assert sorted(ticks, key=lambda tick: tick["at"]) == ticks
    assert [tick["schedule"] for tick in ticks] == ["often", "seldom", "often", "often", "seldom", "often"]
    assert len(said.lines) == 7
    assert said.err == "Left out because paused: resting.\n"
    assert {tick["schedule"] for tick in shop.run("schedule", "next", "seldom", "--json").json} == {"seldom"}


# -- what cannot be -----------------------------------------------------------------------------------------------

WRONG = {
    "impossible cron": (["--cron", "0 3 31 2 *"], "never due"),
    "no cron at all": (["--cron", "at night"], "cron needs five"),
    "no such zone": (["--cron", "0 3 * * *", "--zone", "Europe/Berln"], "Did you mean Europe/Berlin?"),
    "window without length": (["--every", "1h", "--window", "22:00-22:00"], "has no length"),
    "no window": (["--every", "1h", "--window", "at night"], "--window: "),
    "a billion": (["--every", "1h", "--url", "https://shop.example/{1..1000000000}"], "1,000,000,000 URLs"),
    "no address": (["--every", "1h", "--url", "shop.example"], "shop.example"),
    "two sources": (["--every", "1h", "--url", "https://a.example/", "--file", "x"], "Choose one of"),
    "past": (["--at", "2020-01-31T12:00"], "2020-01-31 12:00:00 UTC is past by"),
    "no trigger": ([], "does not say when it is due"),
    "two triggers": (["--every", "1h", "--cron", "0 3 * * *"], "it has --every and --cron"),
    "no interval": (["--every", "soon"], "is not an interval"),
    "no duration": (["--every", "1h", "--min-age", "old"], "--min-age: 'old' is not a duration"),
    "quotes that stay open": (["--every", "1h", "--command", "python 'list.py"], "cannot be split into words"),
    "no such callback": (["--every", "1h", "--url", "https://a.example/", "--kind", "bok"], "Did you mean book?"),
    "callback without addresses": (["--every", "1h", "--kind", "book"], "goes with a source"),
    "window that says nothing": (["--every", "1h", "--window", ""], "--window '' names no window"),
    "days without a comma": (["--every", "1h", "--window", "Sat Sun"], "like Sat,Sun."),
    "endless age": (["--every", "1h", "--min-age", "99999999999999d"], "--min-age: '99999999999999d' is too long"),
    "address without a site": (["--every", "1h", "--url", "/p/{1..5}"], "https://shop.example/p/{1..5}"),
    "column of lines": (["--every", "1h", "--file", "a.txt", "--column", "link"], "--format csv"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_is_refused_in_one_line_and_nothing_is_added(shop, wrong):
    words, expected = WRONG[wrong]

    said = shop.run("schedule", "add", "prices", "--spider", "books", *words)

    assert (said.code, said.out) == (1, "")
    assert expected in said.err
    assert said.err.count("\n") == 1
    assert names(shop) == []


def test_an_unknown_spider_is_refused_unless_it_may_be_elsewhere(shop):
    refused = shop.run("schedule", "add", "prices", "--spider", "boks", "--every", "1h")
    forced = shop.run("schedule", "add", "prices", "--spider", "boks", "--every", "1h", "--force")

    assert refused.code == 1
    assert "Did you mean 'books'?" in refused.err
    assert "--force" in refused.err
    assert forced.code == 0
    assert names(shop) == ["prices"]


def test_a_spider_that_cannot_be_made_is_refused_with_what_it_said(project):
    project.write("spiders/books.py", SPIDER + "    def __init__(self):\n        raise ValueError('no key')\n")

    said = project.run("schedule", "add", "prices", "--spider", "books", "--every", "1h")

    assert said.code == 1
    assert "Spider books cannot be created: ValueError: no key" in said.err


def test_two_of_one_name_are_refused_and_one_may_replace_the_other(shop):
    add(shop, "prices", "--every", "6h")
    shop.run("schedule", "pause", "prices")

    refused = shop.run("schedule", "add", "prices", "--spider", "books", "--every", "1h")
    before = show(shop, "prices")
    replaced = add(shop, "prices", "--every", "1h", "--replace")
    after = show(shop, "prices")

    assert refused.code == 1
    assert "There is a schedule 'prices' already" in refused.err
    assert (before["trigger"], after["trigger"]) == ("every 6h", "every 1h")
    assert after["paused"] is True
    assert "it is paused, and runs when it is resumed: gossamer schedule resume prices." in replaced.out


def test_private_addresses_that_workers_will_refuse_are_told(shop):
    said = add(shop, "here", "--every", "1h", "--url", "http://127.0.0.1:8460/p/{1..3}")

    assert "127.0.0.1 is a private address" in said.err
    assert "fetch.allow_hosts" in said.err


async def lead(system):
    assert await system.state.ticks.lead("here/1/0", timedelta(minutes=5)) is not None


def test_whether_a_scheduler_runs_is_told(shop):
    alone = add(shop, "prices", "--every", "6h")
    listed = shop.run("schedule", "list")
    workers = shop.run("workers")
    shop.fill(lead)
    led = add(shop, "others", "--every", "6h")

    assert "next run as soon as a scheduler runs." in alone.out
    assert listed.err == workers.err == "No scheduler is running: start `gossamer up`, or wait until it has started.\n"
    assert "next run at once." in led.out
    assert shop.run("schedule", "list").err == ""
    assert shop.run("workers").err == "A scheduler leads on here, process 1.\n"
    late = on_a_terminal(shop.folder, "schedule", "list", columns=120)
    assert late.count(" due ") == 2


def test_a_run_that_goes_on_keeps_its_terms_when_its_schedule_is_replaced_and_that_is_said(shop):
    add(shop, "prices", "--every", "6h", "--limit", "5")
    shop.fill(begin_prices)

    said = add(shop, "prices", "--every", "1h", "--limit", "9", "--replace")

    assert "prices-1 continues under its old terms." in said.out


async def begin_prices(system):
    await system.state.jobs.open_job("prices", JobTerms(schedule="prices", due=1.0), fresh=False)


def test_how_the_last_run_ended_is_listed_and_why(shop):
    add(shop, "prices", "--every", "6h")

    async def run_and_fail(system):
        await lead(system)
        (before,) = await system.state.schedules.schedules()
        term = await system.state.ticks.lead("here/1/0", timedelta(minutes=5))
        after = msgspec.structs.replace(before, last_due=before.created_at, runs=1)
        done = await system.state.ticks.settle(term, before, after, ("prices", JobTerms(schedule="prices", due=1.0)))
        await system.state.jobs.close_job(done.job.id, "source failed: no such file")

    shop.fill(run_and_fail)

    said = shop.run("schedule", "list")
    assert " failed" in said.lines[1]
    assert said.err == "prices: prices-1 ended: source failed: no such file\n"
    (listed,) = shop.run("schedule", "list", "--json").json
    assert (listed["last_phase"], listed["last_ending"]) == ("source failed", "source failed: no such file")
    shown = shop.run("schedule", "show", "prices")
    assert (listed["last_outcome"], listed["last_reasons"][0]["code"]) == ("failed", "source-failed")
    assert "prices-1: failed: no such file" in shown.out
    assert "no such file" in shown.err


# -- those of gossamer.toml ---------------------------------------------------------------------------------------


def test_schedules_of_the_file_are_listed_and_can_rest_but_not_be_changed_here(shop):
    file = shop.write("gossamer.toml", NIGHT)

    assert show(shop, "night")["origin"] == "file"
    for words in (["remove", "night"], ["add", "night", "--spider", "books", "--every", "1h", "--replace"]):
        said = shop.run("schedule", *words)
        assert said.code == 1
        assert f"is written in {file}, as [schedules.night]" in said.err
    assert shop.run("schedule", "pause", "night").code == 0
    assert show(shop, "night")["state"] == "paused"
    assert show(shop, "night")["origin"] == "file"


def test_a_schedule_of_the_file_that_no_scheduler_has_read_is_not_due(shop):
    add(shop, "prices", "--every", "6h")  # so that there is a state
    shop.write("gossamer.toml", NIGHT + '[schedules.often]\nspider = "books"\nevery = "1h"\n')

    listed = {one["name"]: (one["state"], one["next"] is None) for one in shop.run("schedule", "list", "--json").json}
    said = shop.run("schedule", "list").err

    assert listed == {"night": ("unread", False), "often": ("unread", True), "prices": ("new", False)}
    assert "often: new in gossamer.toml; it is read when a scheduler starts." in said


def test_a_table_of_the_file_that_is_ignored_is_told(shop):
    add(shop, "night", "--every", "6h")
    shop.write("gossamer.toml", NIGHT)

    assert show(shop, "night")["file_ignored"] is True
    for words in (["list"], ["show", "night"]):
        assert "the table [schedules.night] of gossamer.toml is ignored" in shop.run("schedule", *words).err


def test_doctor_finds_schedules_that_cannot_run(shop):
    shop.write("gossamer.toml", NIGHT + '[schedules.lost]\nspider = "boks"\nevery = "1h"\nfile = "urls.csv"\n')
    add(shop, "prices", "--every", "1h", "--url", "https://shop.example/", "--kind", "book")
    shop.write("spiders/books.py", SPIDER.replace("def book(", "def tome("))

    said = shop.run("doctor", "--json")

    found = [(one["level"], one["detail"]) for one in said.json if one["what"] == "schedules"]
    assert said.code == 1
    assert [level for level, _ in found] == ["warn", "warn", "fail"]
    assert found[0][1].startswith("lost: ")
    assert "urls.csv" in found[1][1]
    assert "prices: Spider books has no callback 'book'" in found[2][1]


def test_the_file_says_what_a_schedule_of_the_file_is(shop):
    # given a schedule of the file that is known to the book
    shop.write("gossamer.toml", NIGHT)
    shop.run("schedule", "pause", "night")
    # when the file is changed, and no scheduler has read it yet
    shop.write("gossamer.toml", NIGHT.replace("0 3", "0 4"))

    found = show(shop, "night")
    assert (found["trigger"], found["paused"]) == ("0 4 * * *", True)


# -- changing ------------------------------------------------------------------------------------------------------


def test_a_paused_schedule_has_no_next_run_until_it_is_resumed(shop):
    add(shop, "prices", "--every", "6h")

    assert shop.run("schedule", "pause", "prices").code == 0
    paused = show(shop, "prices")
    assert (paused["state"], paused["next"], paused["next_ticks"]) == ("paused", None, [])
    assert shop.run("schedule", "next", "prices").out == "Nothing is due while prices is paused.\n"
    assert "paused already" in shop.run("schedule", "pause", "prices").out
    assert "is resumed" in shop.run("schedule", "resume", "prices").out
    assert show(shop, "prices")["next"] is not None
    assert "is not paused" in shop.run("schedule", "resume", "prices").out


def test_a_run_begins_now_with_what_the_schedule_says(shop):
    add(shop, "prices", "--every", "6h", "--url", "https://shop.example/p/{1..3}", "--kind", "book", "--limit", "7",
        "--budget", "240")  # fmt: skip

    said = shop.run("schedule", "run", "prices")

    assert said.code == 0
    assert "prices-1 has started" in said.out
    terms = []

    async def look(system):
        terms.append(await system.state.jobs.terms("prices-1"))

    shop.fill(look)
    (found,) = terms
    assert (found.schedule, found.spider, found.kind, found.limit) == ("prices", "books", "book", 7)
    assert "p/{1..3}" in found.source
    assert found.budget == 60  # six hours of 240 a day
    (run,) = show(shop, "prices")["last_runs"]
    assert (run["id"], run["schedule"], run["state"], run["total"]) == ("prices-1", "prices", "running", 0)
    assert "prices-1" in shop.run("schedule", "show", "prices").out


def test_a_second_run_is_refused_while_one_goes_on_unless_it_replaces_it(shop):
    add(shop, "prices", "--every", "6h")
    shop.run("schedule", "run", "prices")

    refused = shop.run("schedule", "run", "prices")
    replaced = shop.run("schedule", "run", "prices", "--replace")

    assert refused.code == 1
    assert "prices-1 is still running" in refused.err
    assert replaced.code == 0
    assert [(run["id"], run["ending"]) for run in show(shop, "prices")["last_runs"]] == [
        ("prices-2", None),
        ("prices-1", "replaced"),
    ]


def test_the_job_of_a_schedule_that_is_removed_goes_on_and_that_is_said(shop):
    add(shop, "prices", "--every", "6h")
    shop.run("schedule", "run", "prices")

    said = shop.run("schedule", "remove", "prices")

    assert said.code == 0
    assert "Its job prices-1 continues" in said.out
    assert names(shop) == []
    (job,) = shop.run("job", "list", "--json").json
    assert (job["id"], job["state"]) == ("prices-1", "running")


# -- the processes that act on them --------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["up", "scheduler"])
def test_a_schedule_of_the_file_that_is_none_ends_the_command_before_anything_is_started(shop, verb):
    shop.write("gossamer.toml", NIGHT.replace("0 3 * * *", "0 3 31 2 *"))

    said = shop.run(verb)

    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("gossamer: Schedule 'night': cron: '0 3 31 2 *' is never due")

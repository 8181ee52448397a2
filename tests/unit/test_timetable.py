"""When schedules are due and where they stand, in words; and what a scheduler says. No project is opened."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest

from gossamer.cli.schedule_add import in_flags
from gossamer.cli.worker import SchedulerVoice, Voice
from gossamer.model import events
from gossamer.model.schedule import Schedule, ScheduleProgress
from gossamer.project.schedules.timetable import coming, natural, next_run, state_of, ticks_of
from gossamer.schedule.bad_schedule import BadSchedule
from gossamer.schedule.definition import schedule_of
from gossamer.settings import ScheduleTable
from gossamer.units import span

NOW = 1_800_000_000.0
HOUR = 3600.0


def standing(trigger: str, **fields) -> ScheduleProgress:
    schedule = Schedule(name="one", spider="books", trigger=trigger)
    return ScheduleProgress(schedule=schedule, origin="added", created_at=fields.pop("created_at", NOW), **fields)


def test_a_new_interval_is_due_at_once_and_then_every_time():
    assert [tick.at for tick in coming([standing("every 1h")], NOW, 3)] == [NOW, NOW + HOUR, NOW + 2 * HOUR]


def test_ticks_that_were_missed_are_one_and_the_others_are_to_come():
    late = standing("every 1h", last_due=NOW)

    ticks = coming([late], NOW + 5.5 * HOUR, 3)

    assert [tick.at for tick in ticks] == [NOW + 5 * HOUR, NOW + 6 * HOUR, NOW + 7 * HOUR]


def test_a_schedule_that_is_resumed_goes_on_with_the_next_tick_and_counts_the_one_that_waited():
    paused = standing("every 1h", last_due=NOW, skipped=4, waiting_due=NOW + HOUR).rested(True, NOW + HOUR)
    assert (paused.paused, paused.skipped, paused.waiting_due) == (True, 4, NOW + HOUR)

    resumed = paused.rested(False, NOW + 9.5 * HOUR)

    assert (resumed.paused, resumed.waiting_due) == (False, None)
    assert (resumed.skipped, resumed.skip_reason) == (5, "paused")
    assert [tick.at for tick in coming([resumed], NOW + 9.5 * HOUR, 1)] == [NOW + 10 * HOUR]
    idle = standing("every 1h", last_due=NOW, skipped=4, paused=True).rested(False, NOW + 9.5 * HOUR)
    assert (idle.skipped, idle.skip_reason) == (4, "")


def test_a_moment_that_was_used_has_no_further_tick_and_the_schedule_is_over():
    once = standing("at 2027-01-15T09:00", last_due=datetime.fromisoformat("2027-01-15T09:00Z").timestamp())

    assert list(ticks_of(once, NOW + 9000)) == []
    assert state_of(once, NOW + 9000) == "over"


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "new"),
        ({"last_due": NOW}, "active"),
        ({"last_due": NOW, "trouble": "no spider"}, "trouble"),
        ({"last_due": NOW, "waiting_due": NOW}, "waiting"),
        ({"last_due": NOW, "trouble": "no spider", "paused": True}, "paused"),
    ],
)
def test_the_state_of_a_schedule_is_one_word(fields, state):
    assert state_of(msgspec.structs.replace(standing("every 1h"), **fields), NOW + 1) == state


def test_the_next_run_with_a_small_budget_is_the_first_tick_that_gets_a_fetch():
    # given a fetch for every 4.8 hours since midnight, which was eight hours ago
    hourly = standing("every 1h")
    thin = msgspec.structs.replace(hourly, schedule=msgspec.structs.replace(hourly.schedule, budget=5))

    assert next_run(hourly, NOW, None) == (NOW, 0)
    assert next_run(thin, NOW, None) == (NOW + 2 * HOUR, 2)
    # and when a run was for that moment, the next one is for the 15th hour
    later = msgspec.structs.replace(thin, last_due=NOW + 2 * HOUR, runs=1)
    assert next_run(later, NOW + 2 * HOUR, NOW + 2 * HOUR) == (NOW + 7 * HOUR, 4)


def test_names_are_sorted_as_people_count():
    assert sorted(["c11", "c2", "b", "c1", "10"], key=natural) == ["10", "b", "c1", "c2", "c11"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (3.04, "3.0 s"), (9.96, "10 s"), (119.4, "119 s"), (119.6, "2 min"), (3569, "59 min"), (3599, "1 h"),
        (7141, "1 h 59 min"), (10_800, "3 h"), (172_799, "2 days"),
    ],
)  # fmt: skip
def test_durations_are_spelled_for_people(seconds, words):
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("written", "toml", "flags"),
    [
        (
            {"every": "1h", "cron": "0 3 * * *"},
            'it has every and cron. Write one of every = "6h", cron = "0 3 * * *", at = "2027-01-31T12:00".',
            "it has --every and --cron. Write one of --every 6h, --cron '0 3 * * *', --at 2027-01-31T12:00.",
        ),
        (
            {"every": "1h", "min_interval": timedelta(hours=1)},
            "min_interval: goes with a budget only. Add budget = 1000 (fetches a day), or leave it out.",
            "--min-interval: goes with a budget only. Add --budget 1000 (fetches a day), or leave it out.",
        ),
        (
            {"every": "1h", "urls": ("https://a.example/",), "file": "urls.txt"},
            "it has urls and file. Choose one of urls, file, command, sitemap, feed, start.",
            "it has --url and --file. Choose one of --url, --file, --command, --sitemap, --feed, none of these.",
        ),
        (
            {"every": "1h", "file": "urls.txt", "timeout": timedelta(hours=1)},
            "timeout does not go with file, only with command.",
            "--timeout does not go with --file, only with --command.",
        ),
        (
            {"every": "1h", "command": ()},
            'command is a list of words: command = ["python", "list_urls.py"].',
            '--command is a list of words: --command "python list_urls.py".',
        ),
    ],
)
def test_what_is_wrong_with_a_schedule_is_told_with_keys_or_with_flags(written, toml, flags):
    with pytest.raises(BadSchedule) as refused:
        schedule_of("min_age is file", ScheduleTable(spider="books", **written))

    assert str(refused.value) == f"Schedule 'min_age is file': {toml}"
    assert refused.value.in_words(in_flags) == f"Schedule 'min_age is file': {flags}"


def test_a_worker_tells_what_becomes_of_its_jobs(capsys):
    voice = Voice(quiet=False, json_logs=False, supervised=False)
    listeners = voice.listeners()

    listeners.emit(events.JobBegun(at=NOW, job="prices-1", name="prices"))
    for paused in (True, False):
        listeners.emit(events.JobPaused(at=NOW, job="prices-1", paused=paused))
    for job in ("prices-1", "prices-1", "prices-2"):
        listeners.emit(events.Trouble(at=NOW, job=job, stage="source", message="There is no file."))
    listeners.emit(events.JobEnded(at=NOW, job="prices-1", ending="source failed: There is no file."))
    listeners.emit(events.JobLeft(at=NOW, job="prices-2", ending="cancelled"))
    with voice:
        pass

    assert capsys.readouterr().err.splitlines() == [
        "working on prices-1",
        "prices-1 is paused",
        "prices-1 is resumed",
        "Trouble: prices-1: There is no file.",
        "Trouble: prices-2: There is no file.",
        "prices-1 ended: source failed: There is no file.",
        "prices-2 ended: cancelled",
        "Ended.",
    ]


def test_a_scheduler_tells_what_begins_and_what_repeats_itself_once(capsys):
    voice = SchedulerVoice(quiet=False, json_logs=False, supervised=False)

    def skip(due: float, reason: str) -> None:
        voice.emit(events.ScheduleSkipped(at=due, schedule="prices", due=due, reason=reason))

    voice.emit(events.ScheduleFired(at=NOW, job="prices-1", schedule="prices", due=NOW))
    for second in range(5):
        skip(NOW + second, "running")
    voice.emit(events.ScheduleFired(at=NOW + 60, job="prices-2", schedule="prices", due=NOW))
    skip(NOW + 61, "running")
    voice.emit(
        events.ScheduleFailed(at=NOW, schedule="other", due=NOW, attempt=2, delay=10.0, message="There is no spider.")
    )

    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["prices"] * 4 + ["other"]
    assert lines[0] == "prices: prices-1 started"
    assert lines[1].endswith("is skipped because the run before is still going")
    assert lines[2].startswith("prices: prices-2 started, for 2027-01-15")  # it is late, so its moment is told
    assert lines[4] == "other: a run could not start. There is no spider. Next try in 10 s."

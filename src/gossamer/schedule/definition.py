"""Schedules as users define them: a table in gossamer.toml, or the flags of `gossamer schedule add`. Pure.

`schedule_of` reads a table. `changes_of` compares all tables with the stored schedules: a new or changed table is
stored; a schedule whose table is missing is withdrawn: it rests, and its progress is kept for a week. While a fleet is
upgraded, schedulers with the old and the new file may lead in turn, and a schedule that only one of them knows must not
lose its history each time. When its table is back, it goes on as after a time without a scheduler. Schedules added at
run time stay as they are.

How it fails: Misconfigured, which names the schedule and the key, and says what to write instead. Nothing is fetched or
loaded here: whether the spider exists is found out when a run begins.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import NoReturn

import msgspec

from ..errors import InvalidUrl, Misconfigured
from ..model.item import safe_text
from ..model.outcome import Expectations
from ..model.schedule import Overlap, Schedule, ScheduleProgress
from ..model.task import MAX_PRIORITY
from ..model.url import parse_url
from ..model.windows import parse_windows
from ..parse.arguments import written_arguments
from ..settings import ScheduleTable
from .bad_schedule import BadSchedule, Key, key_list
from .sources import SOURCE_KEYS, StartSource, discreet, parse_source
from .triggers import parse_trigger

LONGEST_NAME = 100  # characters
FROM_FILE = "file"
WITHDRAWN_FOR = timedelta(days=7)  # after this a schedule that gossamer.toml no longer names is deleted

_TRIGGERS = {"every": "every ", "cron": "cron ", "at": "at "}
_WHEN = (Key("every", "6h"), ", ", Key("cron", "0 3 * * *"), ", ", Key("at", "2027-01-31T12:00"))


def schedules_of(tables: Mapping[str, ScheduleTable]) -> dict[str, Schedule]:
    """All schedules of gossamer.toml, by name. Raises Misconfigured for the first invalid one."""
    return {name: schedule_of(name, table) for name, table in tables.items()}


def schedule_of(name: str, table: ScheduleTable) -> Schedule:
    """The schedule that a table describes. Raises Misconfigured."""
    where = f"Schedule {name!r}"
    _check_name(name)
    shortest, longest = _intervals(table, where)
    return Schedule(
        name=name,
        spider=_spider(table.spider, where),
        trigger=_trigger(table, where),
        zone=table.zone,
        source=_source(table, where),
        kind=_kind(table, where),
        priority=_priority(table.priority, where),
        min_age=_more_than_nothing("min_age", table.min_age, where),
        windows=_windows(table, where),
        overlap=_overlap(table.overlap, where),
        limit=_one_or_more("limit", table.limit, where),
        budget=_one_or_more("budget", table.budget, where),
        min_interval=shortest,
        max_interval=longest,
        expected=_expected(table, where),
        arguments=_arguments(table.arguments, where),
        rate=str(table.rate) if table.rate is not None else "",
        site_concurrency=_one_or_more("site_concurrency", table.site_concurrency, where),
    )


class BookChange(msgspec.Struct, frozen=True):
    """Write `after` in place of `before` (None: a new one). `after` None: delete it."""

    before: ScheduleProgress | None
    after: ScheduleProgress | None


def changes_of(
    wanted: Mapping[str, Schedule], known: Mapping[str, ScheduleProgress], unreadable: Collection[str], now: float
) -> list[BookChange]:
    """The changes that make the stored schedules follow the file. Unreadable ones are left alone."""
    changes = []
    for name, schedule in wanted.items():
        there = known.get(name)
        if there is None:
            if name not in unreadable:
                changes.append(BookChange(None, ScheduleProgress(schedule=schedule, origin=FROM_FILE, created_at=now)))
        elif there.origin == FROM_FILE and (there.schedule != schedule or there.withdrawn_at is not None):
            changes.append(BookChange(there, there.rewritten(schedule, FROM_FILE, now)))
    for name, there in known.items():
        if there.origin != FROM_FILE or name in wanted:
            continue
        if there.withdrawn_at is None:
            changes.append(BookChange(there, msgspec.structs.replace(there, withdrawn_at=now)))
        elif now - there.withdrawn_at >= WITHDRAWN_FOR.total_seconds():
            changes.append(BookChange(there, None))
    return changes


def unused(wanted: Mapping[str, Schedule], known: Mapping[str, ScheduleProgress]) -> list[str]:
    """Names of tables that are not used, because schedules of that name were added at run time."""
    return [name for name in wanted if name in known and known[name].origin != FROM_FILE]


def _check_name(name: str) -> None:
    if not name or name != name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        raise Misconfigured(
            f"{name[:LONGEST_NAME]!r} is not a schedule name. Write 1 to {LONGEST_NAME} letters, digits and signs, "
            "without leading or trailing blanks."
        )
    if name.startswith("#"):
        raise Misconfigured(f"{name!r} begins with #, which is reserved. Begin it with a letter.")
    if "://" in name:  # jobs have the name of their schedule, and a job whose name is a URL crawls it
        raise Misconfigured(f"{name!r} is an address. Give the schedule a name, and write the address as its spider.")


def _spider(text: str, where: str) -> str:
    spider = text.strip()
    if not spider or safe_text(spider) != spider:
        _refuse(where, "spider", "name a spider, a recipe, or the address of a site.")
    if "://" not in spider:
        return spider
    if discreet(spider) != spider:
        _refuse(where, "spider", "the address holds a user name or password, and would be shown. Leave it out.")
    try:
        return parse_url(spider)
    except InvalidUrl as error:
        raise _bad(where, "spider", str(error)) from error


def _arguments(words: tuple[str, ...], where: str) -> tuple[str, ...]:
    try:
        written_arguments(words)
    except Misconfigured as error:
        raise _bad(where, "arguments", str(error)) from error
    return tuple(words)


def _trigger(table: ScheduleTable, where: str) -> str:
    given = {key: text for key in _TRIGGERS if (text := getattr(table, key)) is not None}
    if len(given) != 1:
        said = ["it has ", *key_list(given, " and ")] if given else ["it does not say when it is due"]
        raise BadSchedule(where, "", *said, ". Write one of ", *_WHEN, ".")
    ((key, text),) = given.items()
    written = " ".join(text.split())
    spelled = written if key == "cron" and written.startswith("@") else _TRIGGERS[key] + written
    try:
        parse_trigger(spelled, table.zone)
    except Misconfigured as error:
        raise _bad(where, _culprit(key, table.zone), str(error)) from error
    return spelled.removeprefix(_TRIGGERS["cron"])


def _culprit(key: str, zone: str) -> str:
    """`zone` if that is the part that cannot be read; else the key itself."""
    try:
        parse_trigger("every 1h", zone)
    except Misconfigured:
        return "zone"
    return key


def _source(table: ScheduleTable, where: str) -> str:
    written = {key: value for key in SOURCE_KEYS if (value := getattr(table, key)) is not None}
    source = parse_source(written, where)
    return "" if isinstance(source, StartSource) else msgspec.json.encode(source).decode()


def _windows(table: ScheduleTable, where: str) -> str:
    """The windows with their zone, so that the text can be read on its own."""
    text = table.windows.strip()
    if not text:
        return ""
    try:
        if parse_windows(text, table.zone) != parse_windows(text):
            text = f"{text.rstrip('; ')} {table.zone}"
        parse_windows(text)
    except Misconfigured as error:
        raise _bad(where, "windows", str(error)) from error
    return text


def _overlap(text: str, where: str) -> Overlap:
    words = [policy.value for policy in Overlap]
    if text in words:
        return Overlap(text)
    near = difflib.get_close_matches(text.lower(), words, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return _refuse(where, "overlap", f"{text!r} is not known; write one of {', '.join(words)}.{hint}")


def _kind(table: ScheduleTable, where: str) -> str:
    text = table.kind
    if text and not text.isidentifier():
        _refuse(where, "kind", f"{text!r} is not a callback. Name a method of the spider, or leave it out.")
    if text and not _source(table, where):
        _refuse(where, "kind", "goes with a source: the spider's own start names its callbacks itself. Leave it out.")
    return text


def _priority(value: int, where: str) -> int:
    if abs(value) > MAX_PRIORITY:
        _refuse(where, "priority", f"must be between -{MAX_PRIORITY:,} and {MAX_PRIORITY:,}.")
    return value


def _intervals(table: ScheduleTable, where: str) -> tuple[timedelta | None, timedelta | None]:
    found = {key: _more_than_nothing(key, getattr(table, key), where) for key in ("min_interval", "max_interval")}
    shortest, longest = found.values()
    for key, value in found.items():
        if value is not None and table.budget is None:
            example = Key("budget", 1000)
            raise _bad(where, key, "goes with a budget only. Add ", example, " (fetches a day), or leave it out.")
    if shortest is not None and longest is not None and shortest > longest:
        raise _bad(where, "min_interval", "is longer than ", Key("max_interval"), "; swap them.")
    return shortest, longest


def _expected(table: ScheduleTable, where: str) -> Expectations:
    expected = Expectations(**{name: getattr(table, name) for name in Expectations.__struct_fields__})
    if fault := expected.fault():
        raise BadSchedule(where, fault.partition(" ")[0], f"{fault}.")
    return expected


def _one_or_more(key: str, value: int | None, where: str) -> int | None:
    if value is not None and value < 1:
        _refuse(where, key, "must be 1 or more; leave it out for no limit.")
    return value


def _more_than_nothing(key: str, value: timedelta | None, where: str) -> timedelta | None:
    if value is not None and value <= timedelta(0):
        _refuse(where, key, "must be more than 0, or left out.")
    return value


def _refuse(where: str, key: str, words: str) -> NoReturn:
    raise _bad(where, key, words)


def _bad(where: str, key: str, *parts: str | Key) -> BadSchedule:
    return BadSchedule(where, key, Key(key), ": ", *parts)

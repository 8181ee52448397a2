"""Views of the data: records in a table, one record over time, quality of the items; and exports."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from markupsafe import Markup
from msgspec import Meta
from starlette.responses import Response

from ...project.access.keys import ADMIN, JOBS, RECORDS
from ...project.jobs.api_views import LAST_NUMBER, record_lines, seen_history, seen_quality
from ...project.jobs.api_views import record_table as csv_table
from ...project.records.forget import ForgetAsk, place_order
from ...project.records.records import QualityScore, RecordFilter
from ...project.records.table import (
    MOST_SORTED,
    record_kinds,
    record_table,
    searched,
    some_faulty,
    sorted_table,
    story_of_record,
)
from ...project.row_page import RowFilters, row_page
from ...units import many, parse_duration, visible
from ..record_routes import LINES, TABLE, as_lines, streamed
from .charts import Series, spark
from .view import Context, Done, FileAnswer, FormAction, Question, View, Visit, check_seen, missing

AT_ONCE = 50
FIELD = "field."  # prefix of an item's own column in `sort`
LONGEST_DIFF = 4_000  # characters of a text that are diffed
MOST_WORDS = 60  # words between the first and the last difference: a longer hostile text would take minutes to diff
VERSIONS_SHOWN = 200
FAULTY_SHOWN, FAULTY_SECONDS = 20, 0.2
COLOURS = ("a", "b", "c", "d", "warn", "ok")

Text = Annotated[str, Meta(max_length=2083)]


class RecordFilters(msgspec.Struct, frozen=True, kw_only=True):
    q: Text | None = None  # a key, or the address of a page
    type: Text | None = None
    spider: Text | None = None
    site: Text | None = None
    job: Text | None = None
    gone_by: Text | None = None  # a job that marked them as gone
    changed: Literal["1h", "1d", "7d", "30d"] | None = None
    gone: bool = False
    sort: Text = "-stored"  # `stored` or `field.NAME`; a leading minus sorts in descending order
    after: Annotated[int, Meta(ge=0, le=LAST_NUMBER)] = 0


class ExportFilters(RecordFilters, frozen=True, kw_only=True):
    format: Literal["jsonl", "csv"] = "jsonl"


class RecordWanted(msgspec.Struct, frozen=True, kw_only=True):
    key: Text = ""
    type: Text | None = None
    site: Text | None = None


class QualityFilters(RowFilters, frozen=True, kw_only=True):
    spider: Text | None = None
    days: Literal[7, 30, 90] = 30


async def list_region(visit: Visit) -> Context:
    chosen = visit.of(RecordFilters)
    wanted = await _filter(visit, chosen)
    down, field = "-" * chosen.sort.startswith("-"), chosen.sort.removeprefix("-")
    if field.startswith(FIELD):
        table = await sorted_table(
            visit.project,
            visit.caller,
            wanted,
            search=chosen.q,
            column=down + field.removeprefix(FIELD),
            limit=AT_ONCE,
            after=min(chosen.after, MOST_SORTED),
        )
    else:
        table = await record_table(
            visit.project,
            visit.caller,
            wanted,
            search=chosen.q,
            newest=chosen.sort != "stored",
            limit=AT_ONCE,
            after=chosen.after,
        )
    return {
        "table": table,
        "numbers": {name for name in table.columns if all(is_number(row.data.get(name)) for row in table.rows)},
        "cell": cell,
        "kinds": await record_kinds(visit.project, visit.caller),
        "filtered": wanted != RecordFilter() or chosen.q,
        "filters": {name: value for name, value in visit.filters.items() if name not in ("after", "sort")},
    }


async def _filter(visit: Visit, chosen: RecordFilters) -> RecordFilter:
    await check_seen(visit, chosen.job)
    await check_seen(visit, chosen.gone_by)
    since = visit.project.clock.now() - parse_duration(chosen.changed).total_seconds() if chosen.changed else None
    return RecordFilter(
        job=chosen.job, spider=chosen.spider, type=chosen.type, site=chosen.site, since=since, gone=chosen.gone,
        gone_by=chosen.gone_by,
    )  # fmt: skip


async def export(visit: Visit) -> Response:
    """The filtered records as a file."""
    chosen = visit.of(ExportFilters)
    query = await searched(visit.project, await _filter(visit, chosen), chosen.q)
    stamp = datetime.fromtimestamp(visit.project.clock.now(), UTC).strftime("%Y%m%d-%H%M")
    headers = {"content-disposition": f'attachment; filename="records-{stamp}.{chosen.format}"'}
    if chosen.format == "csv":
        most = visit.project.settings.server.max_stream.bytes
        return await streamed(visit.project, csv_table(visit.project, visit.caller, query, most=most), TABLE, headers)
    return await streamed(visit.project, as_lines(record_lines(visit.project, visit.caller, query)), LINES, headers)


async def one(visit: Visit) -> Context:
    wanted = visit.of(RecordWanted)
    found = await seen_history(visit.project, visit.caller, wanted.key, type=wanted.type, site=wanted.site, limit=1)
    if not found:
        raise missing("record of that key")
    story = story_of_record(found[0])
    charts = [(line.field, line.times, [Series(line.field, line.values, "a")]) for line in story.numbers]
    return {
        "story": story,
        "shown": story.steps[:VERSIONS_SHOWN],
        "charts": charts,
        "data": written(found[0].versions[-1].data),
        "compared": compared,
    }


async def scores(visit: Visit) -> Context:
    chosen = visit.of(QualityFilters)
    found = await seen_quality(visit.project, visit.caller, chosen.spider, days=chosen.days)
    days = sorted({score.day for score in found})
    whole: dict[tuple[str, str], dict[str, QualityScore]] = {}
    for score in found:
        if score.is_whole and not score.is_of_pages:
            whole.setdefault((score.spider, score.type), {})[score.day] = score
    series = [
        Series(f"{spider}: {type}", [by_day[day].faultless_share if day in by_day else None for day in days], colour)
        for ((spider, type), by_day), colour in zip(sorted(whole.items()), COLOURS * 20, strict=False)
    ]
    fields: dict[tuple[str, str, str], dict[str, QualityScore]] = {}
    for score in found:
        if not score.is_of_pages:
            fields.setdefault((score.spider, score.type, score.field), {})[score.day] = score
    latest = [by_day[max(by_day)] for by_day in fields.values()]
    page = row_page(latest, chosen, text="{0.spider} {0.type} {0.field} {0.rules}".format, columns=SCORE_COLUMNS)
    return {
        "times": [datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() for day in days],
        "series": series[: len(COLOURS)],
        "page": page,
        "sparks": [_spark(fields[one.spider, one.type, one.field], days) for one in page.rows],
        "kinds": await record_kinds(visit.project, visit.caller),
    }


SCORE_COLUMNS: dict[str, Callable[[QualityScore], object]] = {
    "field": lambda one: one.field,
    "checked": lambda one: one.checked,
    "filled": lambda one: None if one.is_whole else one.filled_share,
    "faultless": lambda one: one.faultless_share,
}


def _spark(by_day: dict[str, QualityScore], days: list[str]) -> Markup:
    """A sparkline of the share of faultless values of a field by day; empty if there is only one day."""
    shares = [by_day[day].faultless_share if day in by_day else None for day in days]
    label = ", ".join(f"{day}: {value:.0%}" for day, value in zip(days, shares, strict=True) if value is not None)
    return spark(label, shares, "bad" if min(one for one in shares if one is not None) < 1 else "ok", low=0, high=1)


async def faulty(visit: Visit) -> Context:
    chosen = visit.of(QualityFilters)
    found, all_of_them = await some_faulty(
        visit.project, visit.caller, chosen.spider, days=chosen.days, limit=FAULTY_SHOWN, seconds=FAULTY_SECONDS
    )
    return {"faulty": found, "all_of_them": all_of_them}


# -- values of items ---------------------------------------------------------------------------------------------------


def written(value: Any) -> str:
    """Any value of an item as readable JSON."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def is_number(value: Any) -> bool:
    """Is the value right-aligned: a number, an amount of money, or None?"""
    if isinstance(value, dict):
        return {"amount", "currency"} <= value.keys()
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def cell(value: Any) -> str:
    """A value in a cell of the table: short, on one line."""
    if value is None:
        return ""
    if isinstance(value, dict) and {"amount", "currency"} <= value.keys():
        text = f"{value['amount']}\u00a0{value['currency']}"
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 120 else f"{text[:117]}…"


def compared(before: Any, after: Any) -> Markup:
    """Two values with their differences marked; texts word by word."""
    old, new = (cell(one) if not isinstance(one, str) else one for one in (before, after))
    if not (isinstance(before, str) and isinstance(after, str)) or max(len(old), len(new)) > LONGEST_DIFF:
        parts = [(old[:LONGEST_DIFF], "del"), (new[:LONGEST_DIFF], "ins")]
    else:
        parts = _words(old.split(" "), new.split(" "))
    frames = {"": Markup("{}"), "del": Markup("<del>{}</del>"), "ins": Markup("<ins>{}</ins>")}
    return Markup(" ").join(frames[tag].format(visible(text)) for text, tag in parts if text)


def _words(old: list[str], new: list[str]) -> list[tuple[str, str]]:
    """A diff of words between the common start and end; a long part is replaced as a whole."""
    first = _alike(old, new)
    last = _alike(old[first:][::-1], new[first:][::-1])
    before, after = old[first : len(old) - last], new[first : len(new) - last]
    parts = [(" ".join(old[:first]), "")]
    if max(len(before), len(after)) > MOST_WORDS:
        parts += [(" ".join(before), "del"), (" ".join(after), "ins")]
    else:
        for tag, i, j, k, m in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            same = tag == "equal"
            parts += [(" ".join(before[i:j]), "" if same else "del"), ("" if same else " ".join(after[k:m]), "ins")]
    return [*parts, (" ".join(old[len(old) - last :]), "")]


def _alike(old: list[str], new: list[str]) -> int:
    """The number of words that both begin with."""
    return next(
        (n for n, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), min(len(old), len(new))
    )


async def ask_to_erase(visit: Visit) -> Question:
    wanted = visit.of(RecordWanted)
    counted = await place_order(visit.project, visit.caller, _order_of(wanted, dry_run=True))
    words = (
        f"Erase {many(counted.records, 'record')} everywhere: history, raw pages, the queue and every output? This"
        f" cannot be undone."
    )
    return Question(words=words, button="Erase it", back="/ui/records")


async def erase(visit: Visit) -> Done:
    order = await place_order(visit.project, visit.caller, _order_of(visit.of(RecordWanted)))
    words = f"{order.id}: it is being erased. Outputs, below, shows when that is done."
    return Done(words=words, to="/ui/outputs", target=order.id)


def _order_of(wanted: RecordWanted, *, dry_run: bool = False) -> ForgetAsk:
    return ForgetAsk(record=wanted.key, type=wanted.type or None, site=wanted.site or None, dry_run=dry_run)


VIEWS = (
    View("/ui/records", "Records", "records.html", {"listed": list_region}, RECORDS, query=RecordFilters, or_scope=JOBS,
         group="Data", live=False),
    View("/ui/record", "Record", "record.html", {"one": one}, RECORDS, query=RecordWanted, live=False),
    View("/ui/quality", "Quality", "quality.html", {"scores": scores, "faulty": faulty}, RECORDS,
         query=QualityFilters, group="Data", live=False),
)  # fmt: skip
ACTIONS = (
    FormAction(
        path="/ui/record/erase", handler=erase, form=RecordWanted, scope=ADMIN, for_admins=True, ask=ask_to_erase
    ),
)
DOWNLOADS = (FileAnswer(path="/ui/records/export", handler=export, query=ExportFilters, scope=RECORDS, or_scope=JOBS),)

"""Collected data: `gossamer history` (the versions of a record), `gossamer diff` (how the records of two jobs differ),
`gossamer quality` (how good the data is) and `gossamer schemas` (the schemas of items over time)."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from ..model.run_records import DifferenceKind
from ..project.jobs.compare import run_before
from ..project.records.records import (
    DIFFERENCE_MEANINGS,
    FaultyRecord,
    FieldChange,
    ItemShape,
    RecordDifference,
    RecordVersion,
    RecordVersions,
    changes,
    difference_words,
    differences,
    faulty_records,
    history,
    is_reparse,
    naming_fields,
    quality,
    schemas,
)
from ..project.spiders.drift import spider_drift
from ..settings import Settings
from ..units import many, moment, visible
from .app import app, ask, err, open_crawled, out, run_async, settings_with
from .layout import Column, advise, answer_program, heading, print_drift, print_json, print_table
from .options import JsonOption

RECORDS_SHOWN = 10
DIFFERENCES_SHOWN = 200
LONGEST = 60  # characters shown of a value
SIGNS: dict[DifferenceKind, tuple[str, str]] = {
    "added": ("+", "green"), "changed": ("~", "yellow"), "back": ("<", "green"), "gone": ("-", "red"),
    "again": ("=", "dim"), "unseen": ("?", "yellow"),
}  # fmt: skip
DAYS = 14
RULES_SHOWN = 3
MOST_FAULTY = 10_000  # records listed


# -- versions ----------------------------------------------------------------------------------------------------


@app.command("history")
def history_verb(
    key: Annotated[str, typer.Argument(help="The record's key, or the address of its page.")],
    type: Annotated[str | None, typer.Option("--type", help="Only items of this type: Book.")] = None,
    site: Annotated[str | None, typer.Option(help="Of this site: shop.example.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show every version of a record: when it changed, in which job, and what."""
    most = None if as_json else RECORDS_SHOWN + 1
    found = ask(lambda project: history(project, key, type=type, site=site, limit=most))
    if as_json:
        print_json(found)
    else:
        for record in found[:RECORDS_SHOWN]:
            _show_versions(record)
        if len(found) > RECORDS_SHOWN:
            out.print(f"The first {RECORDS_SHOWN} records; narrow them with --type and --site, or see all with --json.")
    if not found:
        err.print(
            Text.assemble(
                ("gossamer: ", "bold red"),
                f"No record has the key {visible(key)!r}, and no record is from a page with that address. "
                f"`gossamer export` shows the keys as _meta.key.",
            )
        )
        raise typer.Exit(1)


def _show_versions(record: RecordVersions) -> None:
    heading(f"{record.type} {record.key}", f"{record.site}, first seen {moment(record.first_seen)}")
    rows: list[tuple[object, ...]] = []
    before: RecordVersion | None = None
    for version in record.versions:
        first, *rest = _story(version, before)
        rows.append((version.version, moment(version.at), version.job, first))
        rows += [("", "", "", line) for line in rest]
        before = version
    print_table(
        (Column("VERSION", right=True), Column("FROM"), Column("JOB"), Column("WHAT", fold=True)), rows, indent=2
    )
    out.print(Text(f"  last checked {moment(record.last_checked)}", style="dim"))
    out.print()


def _story(version: RecordVersion, before: RecordVersion | None) -> list[str]:
    """A description of this version, in lines."""
    if version.gone:
        if is_reparse(version.job):
            return ["gone: no longer found when its page was parsed again"]
        return ["gone: the crawl no longer found it"]
    if before is None:
        return [", ".join(f"{one.field} = {_shown(one.after)}" for one in changes(None, version.data)) or "first seen"]
    lines = [_in_words(one) for one in changes(before.data, version.data)]
    if before.gone:
        lines.insert(0, "back again")
    if version.healed:
        told = ", ".join(f"{name} (version {number})" for name, number in version.healed.items())
        lines.append(f"by healed rules: {told}")
    elif version.job.startswith("taken-back-"):
        lines.append("values of healed rules, taken back")
    elif before.schema and version.schema != before.schema:
        lines.append("the item's declared fields have changed (gossamer schemas)")
    return lines or ["the same data, parsed again"]


# -- differences -------------------------------------------------------------------------------------------------


@app.command("diff")
def diff_verb(
    before: Annotated[
        str,
        typer.Argument(metavar="JOB1", help="The earlier job: books-1. Alone: this run and the one before it."),
    ],
    after: Annotated[
        str | None, typer.Argument(metavar="[JOB2]", help="The later job: books-2, or the id of a reparse.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Show at most this many; all are counted.")] = DIFFERENCES_SHOWN,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Show what became of the records between two runs: added, changed, back, gone, or not seen."""
    settings = settings_with()
    lines = DifferenceLines(limit, as_json=as_json)

    async def compare() -> None:
        async with open_crawled(settings) as project:
            first, last = (before, after) if after is not None else await run_before(project, before)
            if after is None and not as_json:
                heading(f"{last}, compared with {first}")
            async for difference in differences(project, first, last):
                lines.show(difference)

    run_async(compare())
    if as_json:
        return
    if lines.left_out:
        out.print(lines.left_out)
    out.print(lines.summary())
    for kind, words in DIFFERENCE_MEANINGS.items():
        if lines.counts[kind]:
            out.print(Text(f"{SIGNS[kind][0]} {words}", style="dim"))
    advise(("gossamer history KEY", "every version of one record"))


class DifferenceLines:
    """Prints differences as they arrive, at most `limit` of them, and counts all."""

    def __init__(self, limit: int, *, as_json: bool = False) -> None:
        self._limit = limit
        self._as_json = as_json
        self.counts: Counter[DifferenceKind] = Counter()

    def show(self, difference: RecordDifference) -> None:
        self.counts[difference.kind] += 1
        if self._as_json:
            out.print(json.dumps(msgspec.to_builtins(difference), ensure_ascii=False), markup=False, soft_wrap=True)
        elif self.counts.total() <= self._limit:
            sign, style = SIGNS[difference.kind]
            name = (visible(difference.type), "bold")
            fields = _first_fields(difference)
            told = (f"  {fields}" if fields else "", "dim")
            out.print(Text.assemble((f"{sign} ", style), name, f" {visible(difference.key)}", told))
            for one in difference.fields or ():
                out.print(Text(f"    {_in_words(one)}", style="dim"))

    def summary(self) -> str:
        """`3 added, 1 changed, 0 gone`"""
        return difference_words(self.counts)

    @property
    def left_out(self) -> str:
        """A sentence about the differences that were not shown, if there are any."""
        more = self.counts.total() - self._limit
        return f"And {more:,} more; --limit shows them." if more > 0 else ""


def _first_fields(difference: RecordDifference) -> str:
    """Some fields of a record that is not told field by field, and why its page failed."""
    fields = [f"{visible(one.field)}: {_shown(one.after)}" for one in naming_fields(difference)]
    why = [f"its page failed: {visible(difference.reason)}"] if difference.reason else []
    return "; ".join([*why, *([", ".join(fields)] if fields else [])])


def _in_words(one: FieldChange) -> str:
    """`price.amount: 12.00 → 11.50`"""
    return f"{visible(one.field)}: {_shown(one.before)} → {_shown(one.after)}"


def _shown(value: Any) -> str:  # Any: any value of an item
    """A value on one line."""
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return visible(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")


# -- quality and shapes ------------------------------------------------------------------------------------------


@app.command("quality")
def quality_verb(
    spider: Annotated[str | None, typer.Argument(help="Only this spider, field by field.")] = None,
    days: Annotated[int, typer.Option(min=1, max=36_500, help="The last days to show, including today (UTC).")] = DAYS,
    faulty: Annotated[
        bool, typer.Option("--faulty", help="List the stored records that break rules, page by page.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the share of faultless items per spider and day; with a spider's name, per field."""
    settings = settings_with()
    if faulty:
        _list_faulty(settings, spider, days, as_json)
        return

    scores = ask(lambda project: quality(project, spider, days=days))
    answer_program(scores, as_json)
    if not scores:
        whose = f" for {visible(spider)}" if spider else ""
        err.print(f"Nothing was checked{whose} in the last {days} days.")
        raise typer.Exit(1)
    shown = [one for one in scores if one.is_whole or (spider is not None and not one.is_of_pages)]
    shown += [one for one in scores if spider is not None and one.is_of_pages and not one.is_whole]
    print_table(
        (Column("DAY"), Column("SPIDER", spare=spider is not None), Column("ITEM", "bold"),
         Column("FIELD", spare=spider is None), Column("CHECKED", right=True), Column("FILLED", right=True),
         Column("FAULTY", right=True), Column("SCORE", "cyan", right=True), Column("RULES BROKEN", "red", fold=True)),
        [
            (one.day, one.spider, "(pages)" if one.is_of_pages else one.type, "(all)" if one.is_whole else one.field,
             one.checked, _share(one.filled_share), one.faulty, _share(one.faultless_share),
             ", ".join(f"{rule} {count}" for rule, count in [*one.rules.items()][:RULES_SHOWN]))
            for one in shown
        ],
    )  # fmt: skip
    if spider is not None:
        print_drift(ask(lambda project: spider_drift(project, spider)))
    if spider is None:
        advise((f"gossamer quality {scores[-1].spider}", "field by field"))
    else:
        advise(
            ("gossamer quality --faulty", "records that were stored with faults"),
            ("gossamer dead list --reason quality", "pages that were held back"),
            ("gossamer dead replay --reason quality", "parse them again, once the spider is fixed"),
        )


def _list_faulty(settings: Settings, spider: str | None, days: int, as_json: bool) -> None:
    async def find() -> list[FaultyRecord]:
        found: list[FaultyRecord] = []
        async with open_crawled(settings) as project:
            async for record in faulty_records(project, spider, days=days):
                found.append(record)
                if len(found) == MOST_FAULTY:
                    break
        return found

    found = run_async(find())
    answer_program(found, as_json)
    if not found:
        out.print(f"No stored record of the last {days} days breaks a rule.")
        return
    print_table(
        (Column("SPIDER", spare=True), Column("ITEM", "bold"), Column("JOB"), Column("FAULT", "red"), Column("URL")),
        [(one.spider, one.type, one.job, "; ".join(one.faults), one.url) for one in found],
    )
    more = " or more" if len(found) == MOST_FAULTY else ""
    out.print(f"{many(len(found), 'record')}{more}.")
    name = shlex.quote(found[0].spider)
    advise((f"gossamer reparse --spider {name} --dry-run", "parse from the archive, once the spider is fixed"),
           (f"gossamer reparse --spider {name}", "take them back"))  # fmt: skip


def _share(value: float) -> str:
    return f"{value:.1%}" if 0 < value < 1 else f"{value:.0%}"


@app.command("schemas")
def schemas_verb(
    type: Annotated[str | None, typer.Argument(help="Only items of this type: Book.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the schemas of items over time: their fields and types."""
    found = ask(lambda project: schemas(project, type))
    answer_program(found, as_json)
    if not found:
        out.print("No typed items were stored." if type is None else f"No item of type {visible(type)} was stored.")
        return
    print_table(
        (Column("TYPE", "bold"), Column("SCHEMA", "cyan"), Column("FIRST STORED"), Column("FIELDS", fold=True)),
        [(one.type, one.id, moment(one.first_stored), _fields(one)) for one in found],
    )
    out.print()
    out.print(f"{many(len(found), 'shape')}. Records keep the schema they were made with.")


def _fields(shape: ItemShape) -> str:
    return ", ".join(f"{name}: {_type(field)}" for name, field in shape.fields.items())


def _type(field: dict[str, Any]) -> str:
    inner = f" of {_type(field['of'])}" if "of" in field else ""
    return f"{field['type']}{inner}{'?' if field.get('optional') else ''}"

"""`gossamer history`: the versions of a record. `gossamer diff`: what one job saw differently from another.
`gossamer schemas`: the shapes that items had."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.text import Text

from ..clock import iso_time
from ..errors import Misconfigured
from ..model.record import ItemSchema, StoredRecord
from ..project.jobs import find_job
from ..project.open import Project
from ..project.reparse.run import is_run
from ..store.contract import RecordQuery, Version
from ..text import many, moment, visible
from .app import app, err, out, run_async, settings_with
from .changes import Lines, changes, in_words, shown
from .layout import Column, advise, heading, print_json, print_table
from .look import open_crawled

RECORDS_SHOWN = 10
DIFFERENCES_SHOWN = 200

JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]


@app.command("history")
def history_verb(
    key: Annotated[str, typer.Argument(help="The record's key, or the address of the page it is from.")],
    type: Annotated[str | None, typer.Option("--type", help="Of this type of item: Book.")] = None,
    site: Annotated[str | None, typer.Option(help="Of this site: shop.example.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show every version of a record: when it changed, in which job, and what."""
    settings = settings_with()

    async def find() -> list[tuple[StoredRecord, list[Version]]]:
        async with open_crawled(settings) as project:
            found = await _records(project, key, type, site, most=None if as_json else RECORDS_SHOWN + 1)
            return [(one, await project.records.history(one.type, one.site, one.key)) for one in found]

    found = run_async(find())
    if as_json:
        print_json([_as_json(record, versions) for record, versions in found])
    else:
        for record, versions in found[:RECORDS_SHOWN]:
            _tell(record, versions)
        if len(found) > RECORDS_SHOWN:
            out.print(f"The first {RECORDS_SHOWN} records; --type and --site choose, --json tells all.")
    if not found:
        err.print(
            Text.assemble(
                ("gossamer: ", "bold red"),
                f"No record has the key {visible(key)!r}, and none is from a page of that address. "
                f"`gossamer export` shows the keys, as _meta.key.",
            )
        )
        raise typer.Exit(1)


async def _records(
    project: Project, key: str, type: str | None, site: str | None, *, most: int | None
) -> list[StoredRecord]:
    for query in (
        RecordQuery(key=key, type=type, site=site),
        RecordQuery(url=key, type=type, site=site),
    ):
        found = []
        async for record in project.records.records(query):
            found.append(record)
            if len(found) == most:
                break
        if found:
            return found
    return []


def _tell(record: StoredRecord, versions: list[Version]) -> None:
    heading(f"{record.type} {record.key}", f"{record.site}, first seen {moment(record.first_seen)}")
    rows: list[tuple[object, ...]] = []
    before: Version | None = None
    for version in versions:
        first, *rest = _story(version, before)
        rows.append((version.version, moment(version.at), version.job, first))
        rows += [("", "", "", line) for line in rest]
        before = version
    print_table(
        (Column("VERSION", right=True), Column("FROM"), Column("JOB"), Column("WHAT", fold=True)), rows, indent=2
    )
    out.print(Text(f"  last checked {moment(record.last_checked)}", style="dim"))
    out.print()


def _story(version: Version, before: Version | None) -> list[str]:
    """What this version is, in lines."""
    if version.gone:
        if is_run(version.job):
            return ["gone: parsed again, its page did not give it any more"]
        return ["gone: the crawl did not find it any more"]
    lines = [in_words(one) for one in changes(before.data if before is not None else None, version.data)]
    if before is None:
        return [", ".join(f"{one.field} = {shown(one.after)}" for one in changes(None, version.data)) or "first seen"]
    if before.gone:
        lines.insert(0, "back again")
    if before.schema and version.schema != before.schema:
        lines.append("the item's declared fields have changed (gossamer schemas)")
    return lines or ["the same data, parsed anew"]


def _as_json(record: StoredRecord, versions: list[Version]) -> dict[str, Any]:
    return {
        "type": record.type,
        "site": record.site,
        "key": record.key,
        "url": record.url,
        "first_seen": iso_time(record.first_seen),
        "last_checked": iso_time(record.last_checked),
        "gone_since": iso_time(record.gone_since) if record.gone_since is not None else None,
        "versions": [
            {
                "version": one.version,
                "at": iso_time(one.at),
                "job": one.job,
                "gone": one.gone,
                "schema": one.schema or None,
                "data": json.loads(one.data),
            }
            for one in versions
        ],
    }


@app.command("diff")
def diff_verb(
    before: Annotated[str, typer.Argument(metavar="JOB1", help="The earlier job: books-1.")],
    after: Annotated[str, typer.Argument(metavar="JOB2", help="The later job: books-2, or the id of a reparse.")],
    limit: Annotated[int, typer.Option(min=0, help="Show so many; all are counted.")] = DIFFERENCES_SHOWN,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Show which records a job added, changed, or did not see any more, compared with another."""
    settings = settings_with()
    lines = Lines(limit, json_lines=as_json)

    async def compare() -> None:
        async with open_crawled(settings) as project:
            one, other = await _job(project, before), await _job(project, after)
            if one == other:
                raise Misconfigured(f"{one} compared with itself is always the same. Name two jobs.")
            async for difference in project.records.differences(one, other):
                lines.show(difference)

    run_async(compare())
    if as_json:
        return
    if lines.left_out:
        out.print(lines.left_out)
    out.print(lines.summary())
    if lines.counts["gone"]:
        out.print(
            "[dim]Gone: the second job did not see it, for whatever reason; gossamer export --gone tells more.[/]"
        )
    advise(("gossamer history KEY", "every version of one record"))


async def _job(project: Project, wanted: str) -> str:
    """Its id; that of a reparse is known to the record store only."""
    if await project.records.count(RecordQuery(job=wanted)):
        return wanted
    return (await find_job(project, wanted)).id


@app.command("schemas")
def schemas_verb(
    type: Annotated[str | None, typer.Argument(help="Only this type of item: Book.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the shapes that items had over time: which fields, of which types."""
    settings = settings_with()

    async def find() -> list[tuple[ItemSchema, float]]:
        async with open_crawled(settings) as project:
            return await project.records.schemas(type)

    found = run_async(find())
    if as_json:
        print_json(
            [
                {"id": one.id, "type": one.type, "first_stored": iso_time(at), **json.loads(one.definition)}
                for one, at in found
            ]
        )
        return
    if not found:
        out.print("No typed items were stored." if type is None else f"No item of type {visible(type)} was stored.")
        return
    print_table(
        (Column("TYPE", "bold"), Column("SCHEMA", "cyan"), Column("FIRST STORED"), Column("FIELDS", fold=True)),
        [(one.type, one.id, moment(at), _fields(one)) for one, at in found],
    )
    out.print()
    out.print(f"{many(len(found), 'shape')}. Records keep the shape they were made with.")


def _fields(schema: ItemSchema) -> str:
    fields: dict[str, dict[str, Any]] = json.loads(schema.definition)["fields"]
    return ", ".join(f"{name}: {_type(shape)}" for name, shape in fields.items())


def _type(shape: dict[str, Any]) -> str:
    inner = f" of {_type(shape['of'])}" if "of" in shape else ""
    return f"{shape['type']}{inner}{'?' if shape.get('optional') else ''}"

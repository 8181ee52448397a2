"""Values that healed rules gave: listed, and taken back.

What it does: the schema of a record's version marks the fields that healed rules gave, with the version of these rules.
Taking back stores a new version in which these fields have the values of the last version without them; a record that
only healed rules have ever given, with a key or a required field of theirs, is gone. Nothing is deleted: history keeps
all versions. How it fails: BackendUnavailable; some records are done then. How it recovers: repeat the call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from ...clock import iso_time
from ...model.item import content_hash, schema_of
from ...model.record import Attempt, ItemSchema, PageResult, Record, RecordIdentity, StoredRecord
from ...recipe.spider import RecipeSpider
from ...store.contract import RecordQuery, Retirement
from ...store.record_rules import REPARSED
from ..open import Project
from ..records.records import Marks, healed_marks
from .rules import from_file

AT_ONCE = 200  # records stored in one commit


class HealedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A stored value that healed rules gave, and the value before them."""

    type: str
    site: str
    key: str
    url: str
    field: str
    value: Any
    former: Any  # None: there was none
    rules: int  # the version of the rules
    job: str
    at: str


class TakenBack(msgspec.Struct, frozen=True, kw_only=True):
    """`records` have their former values again; `gone` had none."""

    records: int = 0
    values: int = 0
    gone: int = 0


class HealedRecord(msgspec.Struct, frozen=True):
    """A record with values of healed rules."""

    record: StoredRecord
    fields: dict[str, int]  # healed ones, with the version of their rules
    former: dict[str, Any] | None  # the last version without them


async def healed_values(
    project: Project, spider: str, *, field: str | None = None, rules: int | None = None
) -> AsyncIterator[HealedValue]:
    """The current values that healed rules gave; of one field, or of one version of the rules."""
    async for one in healed_records(project, spider):
        for name, version in one.fields.items():
            if field in (None, name) and rules in (None, version):
                record = one.record
                yield HealedValue(
                    type=record.type,
                    site=record.site,
                    key=record.key,
                    url=record.url,
                    field=name,
                    value=record.data.get(name),
                    former=one.former.get(name) if one.former is not None else None,
                    rules=version,
                    job=record.job,
                    at=iso_time(record.last_changed),
                )


async def take_back(project: Project, spider: RecipeSpider, version: int) -> TakenBack:
    """Take back the values that this version of the healed rules, or a later one, gave. Raises BackendUnavailable."""
    plain = from_file(spider)
    kinds = {kind.item: kind for kind in plain.recipe.kinds.values() if kind.item}
    schemas = {kind.item: schema_of(_blank(plain, kind.name)) for kind in kinds.values()}
    results: list[PageResult] = []
    gone: list[RecordIdentity] = []
    told = TakenBack()
    now, job = project.clock.now(), f"taken-back-{spider.name}-{version}"
    async for one in healed_records(project, spider.name, since=version):
        record, kind = one.record, kinds.get(one.record.type)
        wanted = {name for name, number in one.fields.items() if number >= version}
        needed = {*kind.key, *(field.name for field in kind.fields if field.required)} if kind is not None else set()
        if one.former is None and wanted & needed:
            gone.append((record.type, record.site, record.key))
            continue
        data = {**record.data, **{name: (one.former or {}).get(name) for name in wanted}}
        results.append(_result(project, record, data, schemas.get(record.type), job=job, now=now))
        told = msgspec.structs.replace(told, records=told.records + 1, values=told.values + len(wanted))
        if len(results) >= AT_ONCE:
            await project.records.save(results)
            results = []
    await project.records.save(results)
    for at in range(0, len(gone), AT_ONCE):
        some = gone[at : at + AT_ONCE]
        await project.records.retire(Retirement(job=job, spider=spider.name, at=now, records=some))
    return msgspec.structs.replace(told, gone=len(gone))


def _blank(spider: RecipeSpider, kind: str) -> Any:  # Any: an item of that kind
    fields = spider.recipe.kinds[kind].fields
    return spider._shapes[kind].make({field.name: None for field in fields})


async def healed_records(project: Project, spider: str, since: int = 0) -> AsyncIterator[HealedRecord]:
    """The records of a spider whose current version has values of healed rules, from that version on."""
    marks = await healed_marks(project.records)
    if not marks:
        return
    async for record in project.records.records(RecordQuery(spider=spider, gone=False)):
        if record.spider == spider and (one := await healed_record(project, record, marks, since)) is not None:
            yield one


async def healed_record(project: Project, record: StoredRecord, marks: Marks, since: int) -> HealedRecord | None:
    """None if no value of it is of these rules, from that version on."""
    marked = marks.get((record.type, record.schema), {})
    if not any(version >= since for version in marked.values()):
        return None
    return HealedRecord(record, marked, await _former(project, record, marked, marks, since))


async def _former(
    project: Project,
    record: StoredRecord,
    marked: Mapping[str, int],
    marks: Marks,
    since: int,
) -> dict[str, Any] | None:
    """The last version whose values of these fields are of earlier rules."""
    for past in reversed(await project.records.history(record.type, record.site, record.key)):
        if past.gone:
            continue
        held = marks.get((record.type, past.schema), {})
        if not any(held.get(name, 0) >= max(since, 1) for name in marked):
            return msgspec.json.decode(past.data, type=dict[str, Any])
    return None


def _result(
    project: Project, record: StoredRecord, data: dict[str, Any], schema: ItemSchema | None, *, job: str, now: float
) -> PageResult:
    text = msgspec.json.encode(data).decode()
    content = text if schema is not None else msgspec.json.encode(data, order="deterministic").decode()
    fingerprint = project.rules.fingerprint(record.url)
    restored = Record(
        type=record.type,
        site=record.site,
        key=record.key,
        url=record.url,
        job=job,
        spider=record.spider,
        data=text,
        content_hash=content_hash(content),
        scraped_at=record.last_checked,
        schema=schema.id if schema is not None else "",
        reparsed_at=now,
    )
    attempt = Attempt(
        at=now,
        job=job,
        url=record.url,
        fingerprint=fingerprint,
        site=record.site,
        worker=project.worker,
        attempt=0,
        outcome=REPARSED,
        route="archive",
        reason="taken back",
    )
    return PageResult(attempt=attempt, records=(restored,), schemas=(schema,) if schema is not None else ())

"""A page over time: its archived copies, what changed between two of them in the text and in the records that it gave,
the picture that a browser took, and what a selector finds on each.

How it fails: BadRequest for an address or a copy that is not there; BackendUnavailable. Copies are bytes of strangers:
a child process reads them.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Sequence
from typing import Any

import msgspec

from ...clock import iso_time
from ...errors import Permanent
from ...model.record import PageFacts
from ...store.contract import RecordQuery, Version
from ...store.page_format import read_visit
from ..access.keys import RECORDS, Caller
from ..jobs.api_jobs import public_url
from ..jobs.api_requests import BadRequest, ScrapeRequest
from ..open import Project
from ..records.records import FieldChange, changes, decoded
from .playground import Kind, TriedSelector, copy_id, try_selector
from .results import PageReader

MOST_COPIES = 200  # listed, the newest
MOST_LINES, MOST_TEXT = 1_500, 200_000  # of a copy, that are compared
LONGEST_LINE = 500  # characters
TRIED_COPIES = 8  # on which a selector is tried at once
MOST_RECORDS = 20  # of a page, whose fields are compared
CONTEXT = 2  # lines around a change


class PageCopy(msgspec.Struct, frozen=True, kw_only=True):
    """An archived copy. `hash` is that of its body, `same`: it is that of the copy before. `failure` is why it gave no
    records, "" if it did."""

    id: str
    fetched_at: str
    status: int
    hash: str
    job: str
    spider: str
    failure: str
    same: bool


class CopyList(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    copies: list[PageCopy]  # the newest first
    more: int  # older ones that are not listed


class CopyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record of the page: its `data` as it was known when a copy was fetched, None if it was not or was gone, and the
    `fields` that differ from the time of the other copy."""

    type: str
    site: str
    key: str
    data: Any
    fields: list[FieldChange]


class CopyChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What the chosen copy says, and how it differs from another. `lines` are those of a unified diff: the first
    character is +, -, @ or a space. `records` None: the caller may not see them."""

    copy: PageCopy
    against: PageCopy | None
    text: str
    lines: list[str]
    cut: bool  # only the beginnings were compared
    has_picture: bool
    records: list[CopyRecord] | None
    trouble: str


async def page_copies(
    project: Project, pages: PageReader, caller: Caller, url: str, *, limit: int = MOST_COPIES, skip: int = 0
) -> CopyList:
    href = public_url(project.settings, url)
    listed = _listed(await pages.copies(caller, href))[::-1][skip:]
    return CopyList(url=href, copies=listed[:limit], more=max(0, len(listed) - limit))


def _listed(copies: Sequence[PageFacts]) -> list[PageCopy]:
    return [
        PageCopy(
            id=copy_id(one),
            fetched_at=iso_time(one.fetched_at),
            status=one.status,
            hash=one.body_hash.hex(),
            job=one.job,
            spider=one.spider,
            failure=one.failure,
            same=place > 0 and one.body_hash == copies[place - 1].body_hash,
        )
        for place, one in enumerate(copies)
    ]


async def copy_changes(
    project: Project, pages: PageReader, caller: Caller, url: str, copy: str = "", against: str = ""
) -> CopyChanges | None:
    """The newest copy, or the chosen one, beside the last that differs, or another. None if there is none at all.
    Raises BadRequest for a copy that is not there."""
    href = public_url(project.settings, url)
    copies = await pages.copies(caller, href)
    if not copies:
        return None
    places = {copy_id(one): place for place, one in enumerate(copies)}
    if (copy and copy not in places) or (against and against not in places):
        raise BadRequest("That copy of the page is not there: it was pruned, or belongs to another key.")
    place = places[copy] if copy else len(copies) - 1
    other = places[against] if against else _last_different(copies, place)
    chosen, listed, trouble = copies[place], _listed(copies), ""
    text = before = ""
    has_picture = False
    try:
        text, has_picture = await _text(project, pages, caller, chosen)
        if other is not None:
            before, _ = await _text(project, pages, caller, copies[other])
    except Permanent as error:
        trouble = str(error)
    old, new = before.splitlines(), text.splitlines()
    differing = other is not None and not trouble
    compared = [[line[:LONGEST_LINE] for line in some[:MOST_LINES]] for some in (old, new)]
    lines = await asyncio.to_thread(_diff, *compared) if differing else []
    records = None
    if caller.may(RECORDS):
        records = await _records(project, chosen, copies[other] if other is not None else chosen)
    return CopyChanges(
        copy=listed[place],
        against=listed[other] if other is not None else None,
        text=text,
        lines=lines,
        cut=differing and max(len(old), len(new)) > MOST_LINES,
        has_picture=has_picture,
        records=records,
        trouble=trouble,
    )


def _last_different(copies: Sequence[PageFacts], place: int) -> int | None:
    """The newest copy before that place whose body is another; the one before it if none is."""
    body = copies[place].body_hash
    return next((at for at in reversed(range(place)) if copies[at].body_hash != body), place - 1 if place else None)


def _diff(before: list[str], after: list[str]) -> list[str]:
    return list(difflib.unified_diff(before, after, lineterm="", n=CONTEXT))[2:]


async def _text(project: Project, pages: PageReader, caller: Caller, copy: PageFacts) -> tuple[str, bool]:
    """The text of a copy, and whether a browser took a picture. Raises Permanent."""
    picture = bool((await read_visit(project.archive, copy)).screenshot)
    outcome = await pages.of_copy(caller, copy, ScrapeRequest(url=copy.url, formats=("text",)))
    if outcome is None:
        raise Permanent("This copy was pruned from the archive.")
    return str((outcome.data or {}).get("text") or "")[:MOST_TEXT], picture


async def _records(project: Project, copy: PageFacts, other: PageFacts) -> list[CopyRecord]:
    """The records of the page that were known at the time of one of two copies; fields change from the earlier one."""
    found: list[CopyRecord] = []
    looked = 0
    async for record in project.records.records(RecordQuery(url=copy.url)):
        history = await project.records.history(record.type, record.site, record.key)
        data, beside = (_as_of(history, one.fetched_at) for one in (copy, other))
        pair = (data, beside) if copy.fetched_at < other.fetched_at else (beside, data)
        if pair != (None, None):
            fields = changes(*pair)
            found.append(CopyRecord(type=record.type, site=record.site, key=record.key, data=data, fields=fields))
        looked += 1
        if looked == MOST_RECORDS:
            break
    return found


def _as_of(history: Sequence[Version], at: float) -> Any:
    """The data of a record at that time; None if it was not known, or gone."""
    known = [one for one in history if one.at <= at]
    return decoded(known[-1].data) if known and not known[-1].gone else None


async def picture_of(project: Project, pages: PageReader, caller: Caller, url: str, copy: str) -> bytes:
    """The picture that a browser took, as PNG; b"" if there is none."""
    chosen = [one for one in await pages.copies(caller, public_url(project.settings, url)) if copy_id(one) == copy]
    return (await read_visit(project.archive, chosen[-1])).screenshot if chosen else b""


async def try_on_copies(
    project: Project, pages: PageReader, caller: Caller, copies: CopyList, kind: Kind, selector: str
) -> list[tuple[PageCopy, TriedSelector]]:
    """What a selector finds on the newest copies that differ, the newest first."""
    found: list[tuple[PageCopy, TriedSelector]] = []
    for one in [copy for copy in copies.copies if not copy.same][:TRIED_COPIES]:
        tried = await try_selector(project, pages, caller, copies.url, kind, selector, one.id)
        if tried is not None:
            found.append((one, tried))
    return found

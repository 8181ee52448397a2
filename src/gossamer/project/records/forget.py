"""Orders to erase records everywhere: placed by a person, carried out by erasure.py.

An order can be repeated, and goes on after a crash: the commands, the endpoints and the dashboard place the same order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from secrets import token_hex
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ...errors import Misconfigured, NotThere
from ...model.erasure import ENDED_ORDER, OPEN_ORDER, ORDER_PART, ForgetOrder, ForgetPart
from ...model.record import RecordIdentity, StoredRecord
from ...model.row_filter import Test, row_filter
from ...model.shelf import Change, ShelfKind
from ...model.url import parse_url, site_of
from ...store.contract import RecordQuery
from ...store.erasure import FOR_GOOD
from ...store.outputs.plan import fields_of
from ...units import many
from ..access.keys import ADMIN, Caller
from ..open import Project
from ..operation import Operation
from ..view_fields import view_of

PART = 50  # records
MOST = 1_000_000  # records of an order
AT_ONCE = 500  # parts that are kept in one commit
SHOWN = 5  # examples of a dry run
PARTS_FOR = 24 * 3600.0  # parts of an order that was never placed, because the process died, expire
ELSEWHERE = (
    "Not touched: files of exports and of `-o`, WARC files, backups, logs, and copies of the stores that others keep"
    " (replicas, snapshots, versions of a bucket)."
)
Text = Annotated[str, Meta(max_length=4000)]


class ForgetAsk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which records, by at least one of `record`, `url` and `where`; all that are given must fit."""

    record: Annotated[Text | None, Meta(description="The key of a record.")] = None
    url: Annotated[Text | None, Meta(description="The page that gave it; the page itself is erased too.")] = None
    where: Annotated[Text | None, Meta(description='A condition on fields: email == "jane@example.org".')] = None
    type: Annotated[Text | None, Meta(description="Only records of this type.")] = None
    site: Annotated[Text | None, Meta(description="Only records of this site.")] = None
    ever: Annotated[bool, Meta(description="Also records that fitted `where` in an earlier version.")] = False
    dry_run: Annotated[bool, Meta(description="Only count them.")] = False
    for_good: Annotated[bool, Meta(description="Later crawls do not store these records and pages again.")] = False
    scan: Annotated[bool, Meta(description="Read the whole archive for copies that no record names.")] = True
    rewrite: Annotated[bool, Meta(description="Write the tables of PostgreSQL anew; others wait meanwhile.")] = False


class ForgetId(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(max_length=60)]


class NoForgetFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every order."""


class ForgetView(msgspec.Struct, frozen=True, kw_only=True):
    """An order: `open` until it is carried out, then `erased`; `counted` for a dry run. It does not repeat what was
    erased; `examples` are those of a dry run. `left` says where something may be left."""

    id: str
    state: str
    records: int
    pages: int = 0
    copies: int = 0
    files: int = 0
    at: str = ""
    by: str = ""
    ended_at: str | None = None
    for_good: bool = False
    left: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


async def find_records(project: Project, ask: ForgetAsk) -> AsyncIterator[StoredRecord]:
    """The records that an order is about, those that are gone included. Raises Misconfigured."""
    if not (ask.record or ask.url or ask.where):
        raise Misconfigured("Say what to erase: --record KEY, --url URL, or --where 'email == \"jane@example.org\"'.")
    test, rules = row_filter(ask.where) if ask.where else None, project.rules
    page = parse_url(ask.url) if ask.url else None
    mark = rules.fingerprint(page) if page is not None else b""
    site = site_of(page) if page is not None and ask.site is None else ask.site
    async for record in project.records.records(RecordQuery(key=ask.record, type=ask.type, site=site)):
        if mark and rules.fingerprint(record.url) != mark:  # a page may be spelled in many ways
            continue
        if test is None or test(fields_of(record)) or (ask.ever and await _fitted(project, record, test)):
            yield record


async def _fitted(project: Project, record: StoredRecord, test: Test) -> bool:
    """Whether an earlier version of the record passes."""
    if record.version == 1:
        return False
    past = await project.records.history(record.type, record.site, record.key)
    return any(test(fields_of(msgspec.structs.replace(record, data=msgspec.json.decode(one.data)))) for one in past)


async def place_order(project: Project, caller: Caller, ask: ForgetAsk) -> ForgetView:
    """Place an order, to be carried out by `carry_out`, or count what it would be about. Raises Misconfigured."""
    shelf, now = project.state.shelf, project.clock.now()
    parts = ShelfKind(shelf, ORDER_PART, ForgetPart)
    id, count, number = f"forget-{token_hex(5)}", 0, 0
    some: list[RecordIdentity] = []
    pages: tuple[tuple[bytes, str], ...] = ()
    if ask.url and not (ask.record or ask.where):
        address = parse_url(ask.url)
        pages = ((project.rules.fingerprint(address), address),)
    examples: list[str] = []
    expires = await shelf.time() + PARTS_FOR

    async def keep(given: Sequence[RecordIdentity]) -> None:
        nonlocal number
        part = ForgetPart(records=tuple(given), pages=pages if number == 0 else ())
        if not ask.dry_run:
            await shelf.commit([parts.put(f"{id}/{number:06}", part, until=expires)])
        number += 1

    seen: set[RecordIdentity] = set()
    async for record in find_records(project, ask):
        identity = (record.type, record.site, record.key)
        if identity in seen:
            continue
        seen.add(identity)
        count += 1
        if count > MOST:
            raise Misconfigured(f"An order may be about {MOST:,} records. Narrow it down, and give several.")
        if len(examples) < SHOWN:
            examples.append(f"{record.type} {record.key} of {record.site}")
        some.append(identity)
        if len(some) == PART:
            await keep(some)
            some.clear()
    if some or (pages and not number):
        await keep(some)
    if ask.dry_run:
        return ForgetView(id="", state="counted", records=count, pages=len(pages), examples=tuple(examples))
    if not number:
        raise NotThere("No record matches. `gossamer forget --dry-run` counts without erasing.")
    order = ForgetOrder(
        id=id, at=now, by=caller.name, key=caller.id, until=FOR_GOOD if ask.for_good else now, parts=number,
        scan=ask.scan, rewrite=ask.rewrite,
    )  # fmt: skip
    # From now on they stay until the order has ended. The last ones in one commit with the order: a crash in between
    # would leave parts that nobody knows and nothing removes.
    kept: list[Change] = []
    for place in (f"{id}/{n:06}" for n in range(number)):
        kept.append(parts.put(place, await parts.get(place) or ForgetPart()))
    while len(kept) >= AT_ONCE:
        await shelf.commit(kept[:AT_ONCE])
        del kept[:AT_ONCE]
    await shelf.commit([*kept, ShelfKind(shelf, OPEN_ORDER, ForgetOrder).put(id, order, at=now)])
    await project.state.durable()
    return order_view(msgspec.structs.replace(order, records=count))


def order_view(order: ForgetOrder) -> ForgetView:
    return view_of(
        ForgetView,
        order,
        "at",
        "ended_at",
        state="open" if order.ended_at is None else "erased",
        for_good=order.until >= FOR_GOOD,
        left=(*order.left, ELSEWHERE) if order.ended_at is not None else (),
    )


async def list_orders(project: Project, caller: Caller, ask: NoForgetFilter) -> list[ForgetView]:
    """The newest first."""
    shelf = project.state.shelf
    known = [
        *await ShelfKind(shelf, OPEN_ORDER, ForgetOrder).all(),
        *await ShelfKind(shelf, ENDED_ORDER, ForgetOrder).all(),
    ]
    return [order_view(order) for order in sorted(known, key=lambda one: one.at, reverse=True)]


async def show_order(project: Project, caller: Caller, ask: ForgetId) -> ForgetView:
    """Raises NotThere."""
    for kind in (OPEN_ORDER, ENDED_ORDER):
        if (order := await ShelfKind(project.state.shelf, kind, ForgetOrder).get(ask.id)) is not None:
            return order_view(order)
    raise NotThere(f"There is no order {ask.id[:60]}. `gossamer forget` lists them.")


def in_words(view: ForgetView) -> str:
    """What was erased, and where something may be left."""
    parts = [
        many(view.records, "record"),
        many(view.pages, "page"),
        many(view.copies, "raw copy", "raw copies"),
        *([many(view.files, "file")] if view.files else []),
    ]
    return "\n".join([f"{view.id}: {', '.join(parts)} erased.", *(f"  {words}" for words in view.left)])


OPERATIONS: tuple[Operation[Any, Any], ...] = (  # Any: their types differ
    Operation(
        verb="forget order", summary="Erase records everywhere: history, raw pages, queue, outputs",
        method="POST", path="/api/v1/forget", scope=ADMIN, for_admins=True, ask=ForgetAsk,
        gives=ForgetView, run=place_order,
        example={"where": 'email == "jane@example.org"', "dry_run": True},
    ),
    Operation(
        verb="forget list", summary="Orders to erase records, newest first", method="GET", path="/api/v1/forget",
        scope=ADMIN, ask=NoForgetFilter, gives=list[ForgetView], run=list_orders,
    ),
    Operation(
        verb="forget show", summary="How far an order to erase records has come", method="GET",
        path="/api/v1/forget/{id}", scope=ADMIN, ask=ForgetId, gives=ForgetView, run=show_order,
    ),
)  # fmt: skip

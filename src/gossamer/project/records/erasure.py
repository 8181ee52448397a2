"""Carries out an order to erase records: from the record store with their history, from the archive, the queue, the
small state, and every output.

What it does: the order lies in parts of some records each. First all of a part is marked as erased, so that nothing
that is on its way brings it back; then what there is of it is looked up and kept in the part; then it is erased.
Outputs get an order of their own, which they carry out behind what they are writing. Last, the whole archive is read
for copies that no record names, what the runs and boards count is corrected, and the files of the stores are written
anew.
How it fails: BackendUnavailable, and the order stays open. How it recovers: every step may be repeated; any process
that runs outputs, schedules or the server goes on with an open order, one at a time.
"""

from __future__ import annotations

import asyncio
import logging
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import msgspec

from ...errors import GossamerError, LeaseLost, Transient
from ...frontier.state_rows import SHELF, SHELF_LEFT
from ...model.erasure import ENDED_ORDER, OPEN_ORDER, ORDER_PART, ForgetOrder, ForgetPart, Holdings
from ...model.file import is_file
from ...model.output import DEAD_ROW, ERASURE, ErasedRecord, Erasure
from ...model.run_log import RUN_LOG, LogChunk
from ...model.shelf import Change, ShelfKind, Trim
from ...model.url import site_of
from ...store.contract import RecordQuery
from ...store.erasure import page_mark, record_mark
from ...store.outputs.book import OutputBook
from ...store.page_format import every_page
from ...units import many, visible
from ..jobs.outcome import recount_records
from ..open import Project
from ..outputs.run import running_outputs

log = logging.getLogger("gossamer.forget")
LEASE = "@@forget"  # no site and no job has such a name
LEASE_FOR = timedelta(seconds=30)
RENEWED_EVERY = timedelta(seconds=5)
LOOK = timedelta(seconds=5)  # for orders that nobody carries out
OUTPUTS_WITHIN = timedelta(seconds=30)  # to erase, before the order ends without them
ENDED_KEPT = 1000
ERASED_TEXT = "(erased)"
_DROPPED = ("answer", "callback", "callback-ended", DEAD_ROW)  # rows that are of no use without what they hold
_PASSED = (OPEN_ORDER, ENDED_ORDER, ORDER_PART, ERASURE, "key", "callback-secret", "spool")
_ADDRESS = re.compile(r"https?://[^\s\"'<>\\]+")
_ENDS = ".,;:!?)]}"

Tell = Callable[[str], None]


class Eraser:
    """Carries out one order, under the lease that its caller holds."""

    def __init__(self, project: Project, order: ForgetOrder, tell: Tell) -> None:
        self._project = project
        self._order = order
        self._tell = tell
        shelf = project.state.shelf
        self._orders = ShelfKind(shelf, OPEN_ORDER, ForgetOrder)
        self._parts = ShelfKind(shelf, ORDER_PART, ForgetPart)

    async def run(self) -> ForgetOrder:
        order, project = self._order, self._project
        for number in range(order.done, order.parts):
            await self._carry_out(number)
        parts = [await self._part(number) for number in range(order.parts)]
        urls = frozenset(url for part in parts for url in part.urls)
        await self._erase_files(frozenset(url for part in parts for url in part.files))
        if order.scan:
            await self._scan(urls)
        await recount_records(project, {job for part in parts for job in part.jobs} | set(self._order.jobs))
        left = [*await self._scrub_state(urls), *await self._unfinished(urls)]
        await self._note(left=(), jobs=())
        self._tell("Writing the files of the stores anew ...")
        left += [await project.records.compact(rewrite=order.rewrite), await project.state.erasure.compact()]
        left += await self._wait_for_outputs()
        return await self._end(tuple(words for words in left if words))

    # -- one part ------------------------------------------------------------------------------------------------

    async def _carry_out(self, number: int) -> None:
        project, order, part = self._project, self._order, await self._part(number)
        if part.found is None:
            part = msgspec.structs.replace(part, found=await self._mark(part))
            await self._keep(number, part)
        found = part.found or Holdings()
        if not part.erased:
            names = sorted(one.name for one in await self._book.progress.all())  # others have written nothing
            records = await project.records.erase(part.records, found, order.until)
            own = (*found.own, *part.pages)
            await project.state.erasure.erase_urls(sorted({(site_of(url), mark) for mark, url in own if url}))
            copies = await project.archive.erase(found.refs)
            changes: list[Change] = []
            if names and found.versions:
                erasure = Erasure(
                    id=f"{order.id}/{number:06}", at=order.at, waiting=tuple(names),
                    records=tuple(
                        ErasedRecord(type=one.type, site=one.site, key=one.key, url=one.url, data=_fields(one.data))
                        for one in found.versions
                    ),
                )  # fmt: skip
                changes.append(self._book.erasures.put(erasure.id, erasure))
            urls = sorted({url for _, url in own if url})
            part = msgspec.structs.replace(
                part, found=Holdings(), erased=True, urls=tuple(urls), files=_files(found), jobs=found.jobs
            )
            self._order = msgspec.structs.replace(
                order, records=order.records + records, pages=order.pages + len(found.own) + len(found.shared),
                copies=order.copies + copies, done=number + 1,
            )  # fmt: skip
            changes += [self._parts.put(_key(order.id, number), part), self._orders.put(order.id, self._order)]
            await project.state.shelf.commit(changes)
            self._tell(f"{many(self._order.records, 'record')} erased ...")

    async def _mark(self, part: ForgetPart) -> Holdings:
        """Keep the records of a part, and the pages that gave them or lead to them, from being stored again."""
        store, order = self._project.records, self._order
        await store.mark_erased([record_mark(one) for one in part.records], order.until)
        named = [mark for mark, _ in part.pages]
        first = await store.holdings(part.records, named)
        linking = await self._linking((*first.own, *part.pages))
        found = await store.holdings(part.records, named, linking)
        own = {*named, *(mark for mark, _ in found.own)}
        await store.mark_erased([page_mark(mark) for mark in own], order.until)
        await store.mark_erased([page_mark(mark) for mark, _ in found.shared], min(order.until, order.at))
        return await store.holdings(part.records, named, linking)  # with what came between the two

    async def _linking(self, pages: Sequence[tuple[bytes, str]]) -> list[bytes]:
        """The pages on which these were found: they hold the address, and often the name."""
        found: set[str] = set()
        for mark, url in pages:
            for story in await self._project.state.queue.story(site_of(url), mark) if url else ():
                if story.found_on:
                    found.add(story.found_on)
        return [self._project.rules.fingerprint(url) for url in sorted(found)]

    # -- after all parts -----------------------------------------------------------------------------------------

    async def _erase_files(self, wanted: Collection[str]) -> None:
        """Erase the files that only erased records named, with their own records."""
        if not wanted:
            return
        project, left = self._project, set(wanted)
        digests: dict[str, set[str]] = {}
        own: list[tuple[str, str, str]] = []
        kept: set[str] = set()
        async for record in project.records.records(RecordQuery()):
            if is_file(record.data):
                if record.data["url"] in wanted:
                    own.append((record.type, record.site, record.key))
                    digests.setdefault(str(record.data.get("sha256", "")), set()).add(record.data["url"])
                else:
                    kept.add(str(record.data.get("sha256", "")))
            else:
                left -= set(_files_in(record.data))
        gone = [digest for digest, urls in digests.items() if digest and urls <= left and digest not in kept]
        own = [one for one in own if one[2] in left]
        await project.records.mark_erased([record_mark(one) for one in own], self._order.until)
        found = await project.records.holdings(own, [])
        await self._note(jobs=tuple(sorted({*self._order.jobs, *found.jobs})))
        await project.records.erase(own, found, self._order.until)
        files = sum([await project.archive.erase_file(digest) for digest in gone])
        await self._note(files=self._order.files + files)

    async def _scan(self, urls: Collection[str]) -> None:
        """Erase copies that no record names: of a page that was archived when its worker died."""
        pages = 0
        rules = self._project.rules
        marks = {rules.fingerprint(url) for url in urls}
        try:
            async for segment in every_page(self._project.archive):
                wanted = [
                    ref
                    for ref, page in segment
                    if page.fetched_at <= self._order.until
                    and (
                        page.requested_url in urls or page.url in urls or rules.fingerprint(page.requested_url) in marks
                    )
                ]
                if wanted:
                    copies = await self._project.archive.erase(wanted)
                    await self._note(copies=self._order.copies + copies)
                pages += len(segment)
                self._tell(f"{many(pages, 'raw page')} looked through ...")
        except FileNotFoundError:  # nothing was ever archived
            return

    async def _scrub_state(self, urls: Collection[str]) -> list[str]:
        """Take erased addresses out of the small state: callbacks, answers, alerts, incidents, the audit log."""
        if not urls:
            return []
        shelf, rows = self._project.state.shelf, 0
        for kind in (*SHELF, *SHELF_LEFT):
            if kind in _PASSED:
                continue
            async for row in shelf.rows(kind):
                value = msgspec.json.decode(row.value)
                value, hit = _scrubbed(_without_quotes(value, urls) if kind == RUN_LOG else value, urls)
                if not hit and kind == "answer":
                    hit = _names(b64decode(value.get("body") or ""), urls)
                if not hit:
                    continue
                rows += 1
                generic: ShelfKind[Any] = ShelfKind(shelf, kind, dict)
                change = generic.put(row.key, value, at=row.at, until=row.until, expects=row.stamp)
                await shelf.commit([generic.drop(row.key) if kind in _DROPPED else change])
        await self._note(texts=self._order.texts + rows)
        return await self._named_elsewhere(urls)

    async def _named_elsewhere(self, urls: Collection[str]) -> list[str]:
        """Jobs and schedules that begin at an erased address: ended jobs of keys go, others are for a person."""
        project, told = self._project, []
        named = [job for job in await project.state.jobs.jobs() if _names(msgspec.json.encode(job), urls)]
        named += [
            job
            for job in await project.state.jobs.jobs()
            if job not in named and _names(msgspec.json.encode(await project.state.jobs.terms(job.id)), urls)
        ]
        await project.state.history.forget_jobs([job.id for job in named])
        for job in named:
            if await project.state.jobs.job(job.id) is not None:
                told.append(f"The job {job.id} was begun with an erased address.")
        for schedule in await project.state.schedules.schedules():
            if _names(msgspec.json.encode(schedule), urls):
                told.append(f"The schedule {schedule.schedule.name} names an erased address: it will be fetched again.")
        return told

    async def _unfinished(self, urls: Collection[str]) -> list[str]:
        """What waits elsewhere."""
        notes = [note for note in await self._project.state.spools.notes() if sum(note.results.values())]
        return [
            f"{many(sum(note.results.values()), 'result')} wait on {note.host} in {note.folder}: what was erased is"
            f" left out when they are stored."
            for note in notes
        ]

    async def _wait_for_outputs(self) -> list[str]:
        """Run the outputs until they have erased; say which have not."""
        project = self._project
        until = project.clock.monotonic() + OUTPUTS_WITHIN.total_seconds()
        waiting = await self._waiting()
        tables = {name: table for name, table in project.settings.outputs.items() if name in waiting}
        async with running_outputs(project, tables) as outputs:
            while waiting & tables.keys() and project.clock.monotonic() < until:
                for follower in outputs.followers.values():
                    follower.hurry()
                await project.clock.sleep(0.1)
                waiting = await self._waiting()
                standing = {one.name for one in await self._book.progress.all() if one.paused or one.misconfigured}
                if waiting <= standing:
                    break
        return [
            f"The output {name} has not erased them yet: it does when it is written the next time."
            if name in project.settings.outputs
            else f"The output {name} was begun by -o, or is no longer in gossamer.toml: run that crawl again, or erase "
            f"there yourself and say `gossamer output remove {name}`. Until then the state keeps what finds its rows."
            for name in sorted(waiting)
        ]

    async def _waiting(self) -> set[str]:
        mine = [one for one in await self._book.erasures.all() if one.id.startswith(f"{self._order.id}/")]
        return {name for one in mine for name in one.waiting}

    async def _end(self, left: tuple[str, ...]) -> ForgetOrder:
        order = msgspec.structs.replace(self._order, ended_at=self._project.clock.now(), left=left)
        shelf, ended = self._project.state.shelf, ShelfKind(self._project.state.shelf, ENDED_ORDER, ForgetOrder)
        changes: list[Change] = [self._parts.drop(_key(order.id, number)) for number in range(order.parts)]
        changes += [self._orders.drop(order.id), ended.put(order.id, order, at=order.at)]
        await shelf.commit([*changes, Trim(kind=ENDED_ORDER, keep=ENDED_KEPT)])
        return order

    # -- its rows ------------------------------------------------------------------------------------------------

    @property
    def _book(self) -> OutputBook:
        return OutputBook(self._project.state.shelf)

    async def _part(self, number: int) -> ForgetPart:
        return await self._parts.get(_key(self._order.id, number)) or ForgetPart()

    async def _keep(self, number: int, part: ForgetPart) -> None:
        await self._project.state.shelf.commit([self._parts.put(_key(self._order.id, number), part)])

    async def _note(self, **fields: Any) -> None:
        self._order = msgspec.structs.replace(self._order, **fields)
        await self._project.state.shelf.commit([self._orders.put(self._order.id, self._order)])


def _key(order: str, part: int) -> str:
    return f"{order}/{part:06}"


def _fields(data: str) -> dict[str, object]:
    with suppress(msgspec.DecodeError):
        value = msgspec.json.decode(data)
        return value if isinstance(value, dict) else {}
    return {}


def _files(found: Holdings) -> tuple[str, ...]:
    return tuple(sorted({url for one in found.versions for url in _files_in(_fields(one.data))}))


def _files_in(value: Any) -> list[str]:
    if is_file(value):
        return [value["url"]]
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return [url for one in inner for url in _files_in(one)]
    return []


def _scrubbed(value: Any, urls: Collection[str]) -> tuple[Any, bool]:
    """The value of a row without these addresses, and whether it had one."""
    if isinstance(value, str):
        text = _ADDRESS.sub(lambda found: _without(found[0], urls), value)
        return text, text != value
    if isinstance(value, list):
        parts = [_scrubbed(one, urls) for one in value]
        return [one for one, _ in parts], any(hit for _, hit in parts)
    if isinstance(value, dict):
        pairs = {_scrubbed(name, urls): _scrubbed(one, urls) for name, one in value.items()}
        return {name: one for (name, _), (one, _) in pairs.items()}, any(a or b for (_, a), (_, b) in pairs.items())
    return value, False


def _without_quotes(value: Any, urls: Collection[str]) -> Any:
    """A part of a run's log in which lines about these pages have lost their words: they may quote the page."""
    chunk = msgspec.convert(value, LogChunk)
    lines = (
        msgspec.structs.replace(line, message=ERASED_TEXT, detail="") if _without(line.url, urls) != line.url else line
        for line in chunk.lines
    )
    return msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(chunk, lines=tuple(lines))))


def _without(address: str, urls: Collection[str]) -> str:
    bare = address.rstrip(_ENDS)
    if address in urls or bare in urls:
        return ERASED_TEXT
    return address


def _names(text: bytes, urls: Collection[str]) -> bool:
    return any(_without(one, urls) == ERASED_TEXT for one in _ADDRESS.findall(text.decode("utf-8", "replace")))


# -- who carries orders out ------------------------------------------------------------------------------------------


async def carry_out(project: Project, tell: Tell = lambda words: None) -> list[ForgetOrder]:
    """Carry out the open orders, unless another process does; return those that have ended. Raises Transient."""
    ended = list[ForgetOrder]()
    orders = ShelfKind(project.state.shelf, OPEN_ORDER, ForgetOrder)

    async def work() -> None:
        for order in sorted(await orders.all(), key=lambda one: one.at):
            ended.append(await Eraser(project, order, tell).run())

    if await orders.all():
        await change_archive(project, work)
    return ended


async def change_archive(project: Project, work: Callable[[], Awaitable[None]]) -> bool:
    """Do work that overwrites pages of the archive, unless another process does such work: two that rewrite one object
    would undo each other. False if it was not done. Raises Transient."""
    seeds = project.state.seeds
    if not await seeds.claim(LEASE, project.worker, LEASE_FOR):
        return False
    working = asyncio.ensure_future(work())
    try:
        while not working.done():
            await asyncio.wait({working}, timeout=RENEWED_EVERY.total_seconds())
            if not working.done() and not await seeds.claim(LEASE, project.worker, LEASE_FOR):
                raise LeaseLost("Another process goes on with what is to be erased.")
        working.result()
        return True
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        with suppress(GossamerError):
            await seeds.release(LEASE, project.worker)


@asynccontextmanager
async def erasing(project: Project) -> AsyncIterator[None]:
    """During the block, orders that a process has left half done are carried out."""
    task = asyncio.create_task(_erase_now_and_then(project), name="erase")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _erase_now_and_then(project: Project) -> None:
    while True:
        await project.clock.sleep(LOOK.total_seconds())
        try:
            for order in await carry_out(project):
                log.info("%s: %s erased.", order.id, many(order.records, "record"))
        except (Transient, LeaseLost) as error:
            log.warning("What is to be erased waits: %s", visible(str(error)))
        except Exception:  # of one order: it is tried again, and the process goes on with its work
            log.exception("What is to be erased waits.")

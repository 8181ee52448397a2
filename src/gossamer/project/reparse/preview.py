"""A dry run: what a run over the archive would change, decided by the rules of the record store without storing
anything. It is not a job: child processes of this process parse the pages.

All results are kept in a private temporary file until the last page is parsed: only then is it known which of several
pages determines a record. Then the store is read once, from start to end. The store does not tell which page last
yielded a record: the record's address stands for it here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from ...model.record import Record, RecordIdentity, StoredRecord
from ...model.url import origin_of
from ...store.contract import Difference, RecordQuery
from ...store.record_rules import NO_PAGE, REPARSED, REWRITES, Held, RecordVerdict, last_of_each, receive
from ..open import Project
from .archive_job import ReparseChoice, bare_jobs, chosen
from .messages import ParseOrder, ReparsedPage
from .parser_pool import ParserPool, cores
from .report import Report, Tell
from .results import learned_of, patience_of
from .spider_refs import SITE, Finder

AT_ONCE = 500  # records queried at a time
_RECORDS_PAGE = 1  # the number of the page that last yielded a record

_TABLES = """
CREATE TABLE made (identity BLOB, page BLOB, type TEXT, site TEXT, key TEXT, content BLOB, stale INTEGER,
    PRIMARY KEY (identity, page)) WITHOUT ROWID;
CREATE TABLE parsed (run TEXT, page BLOB, PRIMARY KEY (run, page)) WITHOUT ROWID;
"""
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)

TellChange = Callable[[Difference], None]


async def preview_changes(
    project: Project, choice: ReparseChoice, would_change: TellChange, *, processes: int | None = None, tell: Tell
) -> Report:
    """Parse the selected pages again, store nothing, and report every change that a run would make.

    Raises SpiderNotFound, Misconfigured, BackendUnavailable.
    """
    now = project.clock.now()
    report = Report()
    pool = ParserPool(
        now, size=processes or cores(), patience=patience_of(project), learned=await learned_of(project), stores=False
    )
    preview = Preview(project, may_be_stale=choice.job is not None or choice.failed)
    runs: set[tuple[str, str]] = set()  # the name under which pages were crawled, and a spider that parsed them
    try:
        async for outcomes in pool.parse(_pages(project, choice, report, runs)):
            for outcome in outcomes:
                report.add(outcome)
                if outcome.facts is not None:
                    runs.add((outcome.wanted.run, outcome.facts.spider))
            await preview.take(outcomes)
            tell(report)
        report.changed, report.gone = await preview.tell(sorted(runs), now, would_change)
    finally:
        preview.close()
    return report


async def _pages(
    project: Project, choice: ReparseChoice, report: Report, runs: set[tuple[str, str]]
) -> AsyncIterator[ParseOrder]:
    """The selected pages, each with the spider that can parse it. The pages of one spider are one run: that it parsed a
    page says nothing about the records of another spider."""
    finder = Finder(project.settings, choice.spider, choice.crawled_as)
    jobs = {job.id: job for job in await project.state.jobs.jobs()}
    async for facts, ref in chosen(project, choice, finder, bare_jobs(list(jobs.values()))):
        if ref is None:
            report.leave_out(facts.spider, 1, finder.why(facts.spider))
            continue
        runs.add((facts.spider, facts.spider))
        yield ParseOrder(
            run=facts.spider,
            ref=facts.archive_ref,
            fingerprint=facts.fingerprint,
            body_hash=facts.body_hash,
            url=facts.url,
            job=facts.job,
            spider=ref,
            arguments=jobs[facts.job].arguments if facts.job in jobs else "",
            start=origin_of(facts.url) if ref == SITE else "",
            failure=facts.failure,
        )


class MadeItem(msgspec.Struct, frozen=True):
    """A record that a page yields now."""

    page: bytes  # a hash of its address
    record: Record
    stale: bool


class Preview:
    """Collects outcomes; then `tell` reports what would change. Must be closed."""

    def __init__(self, project: Project, *, may_be_stale: bool) -> None:
        self._project = project
        self._may_be_stale = may_be_stale  # whether older copies may be among the pages
        self._file = sqlite3.connect("", isolation_level=None)  # an unnamed file on disk
        self._file.executescript(_TABLES)

    def close(self) -> None:
        self._file.close()

    async def take(self, outcomes: Sequence[ReparsedPage]) -> None:
        for outcome in outcomes:
            if outcome.failure:
                continue
            page, stale = _short(outcome.page_url), await self._is_stale(outcome)
            if not stale:
                self._file.execute("INSERT OR IGNORE INTO parsed VALUES (?, ?)", (outcome.wanted.run, page))
            self._file.executemany(
                "INSERT OR REPLACE INTO made VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (_short(*identity_of(one)), page, *identity_of(one), _encoder.encode(one), stale)
                    for one in last_of_each(outcome.records)
                ],
            )

    async def tell(self, runs: Iterable[tuple[str, str]], now: float, tell: TellChange) -> tuple[int, int]:
        """Report every change; `runs` are pairs of a run's id and a spider. Returns how many are new or changed, and
        how many would be gone."""
        changed = gone = 0
        for run, spider in runs:
            async for record in self._project.records.records(RecordQuery(spider=spider)):
                if record.spider != spider:  # it is left to the spider that wrote it last
                    continue
                made = self._take_out(identity_of(record))
                if made:
                    changed += await self._compare(record, made, now, tell)
                elif record.gone_since is None and self._was_parsed(run, record.url):
                    gone += 1
                    tell(_difference("gone", record, record.url, _text(record), None))
        async for held, made in self._left():
            changed += await self._compare(held, made, now, tell)
        return changed, gone

    async def _compare(self, before: StoredRecord | None, made: list[MadeItem], now: float, tell: TellChange) -> bool:
        page = _RECORDS_PAGE
        if before is not None and before.gone_since is not None and await self._was_missed(before):
            page = NO_PAGE
        winner = decide(before, made, page, now)
        if winner is not None:
            kind, old = ("changed", _text(before)) if before is not None else ("added", None)
            tell(_difference(kind, winner, winner.url, old, winner.data))
        return winner is not None

    async def _is_stale(self, outcome: ReparsedPage) -> bool:
        """As in `record_rules.is_stale`."""
        facts = outcome.facts
        if not self._may_be_stale or facts is None:
            return False
        visits = await self._project.records.visits(facts.fingerprint)
        return any(
            one.fetched_at > facts.fetched_at and not one.failure and one.spider in (facts.spider, "") for one in visits
        )

    async def _was_missed(self, record: StoredRecord) -> bool:
        """Whether it is gone because its page was visited without it, and not because the page was gone."""
        attempts = await self._project.records.attempts(self._project.rules.fingerprint(record.url))
        return any(
            one.job == record.job and one.outcome in ("done", REPARSED) and one.at >= record.last_checked
            for one in attempts
        )

    def _was_parsed(self, run: str, url: str) -> bool:
        found = self._file.execute("SELECT 1 FROM parsed WHERE run = ? AND page = ?", (run, _short(url))).fetchone()
        return found is not None

    def _take_out(self, identity: RecordIdentity) -> list[MadeItem]:
        name = (_short(*identity),)
        rows = self._file.execute("SELECT page, content, stale FROM made WHERE identity = ?", name).fetchall()
        if rows:
            self._file.execute("DELETE FROM made WHERE identity = ?", name)
        return [MadeItem(page, _decoder.decode(content), bool(stale)) for page, content, stale in rows]

    async def _left(self) -> AsyncIterator[tuple[StoredRecord | None, list[MadeItem]]]:
        """The results outside any spider's stored records: new ones, and those filed under another spider."""
        some = f"SELECT DISTINCT type, site, key FROM made LIMIT {AT_ONCE}"  # noqa: S608 - our own words
        while part := self._file.execute(some).fetchall():  # processed ones are deleted and do not come again
            held = await self._project.records.latest(part)
            for type_, site, key in part:
                found = []
                if (type_, site, key) in held:
                    query = RecordQuery(type=type_, site=site, key=key)
                    found = [record async for record in self._project.records.records(query)]
                yield found[0] if found else None, self._take_out((type_, site, key))


def decide(before: StoredRecord | None, made: Sequence[MadeItem], page: int, now: float) -> Record | None:
    """The record that would be stored in the end; None if nothing would change. `page` is that of the held record."""
    held: Held | None = None
    if before is not None:
        same = [one.record.content_hash for one in made if _is_same(before, one.record)]
        held = Held(
            0, same[0] if same else b"", before.first_seen, before.last_changed, before.last_checked, before.version,
            page, before.gone_since is not None,
        )  # fmt: skip
    numbers = {_short(before.url): _RECORDS_PAGE} if before is not None else {}
    winner = None
    for one in sorted(made, key=lambda one: one.record.scraped_at):
        number = numbers.setdefault(one.page, len(numbers) + _RECORDS_PAGE + 1)
        verdict, held = receive(held, one.record, number, now=now, min_age=0.0, stale=one.stale)
        if verdict is RecordVerdict.NEW or verdict in REWRITES:
            winner = one.record
    return winner


def identity_of(record: Record | StoredRecord) -> RecordIdentity:
    return record.type, record.site, record.key


def _is_same(before: StoredRecord, record: Record) -> bool:
    return bool(before.data == msgspec.json.decode(record.data))


def _text(record: StoredRecord) -> str:
    return msgspec.json.encode(record.data).decode()


def _difference(kind: Any, of: Record | StoredRecord, url: str, before: str | None, after: str | None) -> Difference:
    type_, site, key = identity_of(of)
    return Difference(kind=kind, type=type_, site=site, key=key, url=url, before=before, after=after)


def _short(*parts: str) -> bytes:
    return blake2b("\x00".join(parts).encode("utf-8", "surrogatepass"), digest_size=12).digest()

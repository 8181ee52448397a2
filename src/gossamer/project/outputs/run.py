"""Runs the outputs of a project: beside a crawl, beside a worker, or in a process of their own.

Any number of processes may run them; each output is written by the one that holds its lease. A crawl that ends waits a
bounded time until its records have been written, and says what lags.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from hashlib import blake2b
from secrets import token_hex
from urllib.parse import parse_qsl

import msgspec

from ...backends.addresses import is_local, local_path
from ...errors import Misconfigured, Transient
from ...model.output import OutputProgress
from ...model.secret_text import revealed, stored_setting
from ...model.url import parse_url
from ...settings import Settings
from ...settings.output_tables import SQL, OutputTable, table_faults
from ...store.contract import RecordQuery
from ...store.outputs.book import OutputBook
from ...store.outputs.contract import Output
from ...store.outputs.follow import Follower
from ...store.outputs.plan import Plan
from ...terms import secrets_of as secrets_by_name
from ...units import Secret, discreet, many
from ..access.keys import OWNER
from ..open import Project

WEB = ("https", "http")
FILES = ("s3", "folder")
END_WITHIN = timedelta(seconds=20)  # a crawl that ends waits this long for its outputs
LOOK = timedelta(milliseconds=100)
TYPED = "o-"  # how the names of outputs begin that come from `-o URL`
_ADDRESS = re.compile(r"[a-z][a-z0-9+]*://", re.IGNORECASE)


def is_address(output: str) -> bool:
    """Whether `-o` names an output that follows the records, rather than a file: also `s3://` with a slash at its
    end."""
    if not _ADDRESS.match(output):
        return False
    return not output.lower().startswith("s3://") or output.partition("?")[0].endswith("/")


def typed_outputs(addresses: Sequence[str], spider: str) -> dict[str, OutputTable]:
    """The outputs of `-o URL`, for the records of one spider. The same address of the same spider is the same output
    the next time. Raises Misconfigured."""
    found: dict[str, OutputTable] = {}
    for address in addresses:
        table = OutputTable(url=Secret(address), spiders=(spider,))
        for field, fault in table_faults(table):
            raise Misconfigured(f"-o: {field} {fault}")
        place = _AUTHORITY.sub("://", address).partition("?")
        mark = blake2b(f"{place[0]}\n{place[2]}\n{spider}".encode(), digest_size=4).hexdigest()
        found[f"{TYPED}{mark}"] = table
    return found


def is_typed(settings: Settings, name: str) -> bool:
    """Whether `-o URL` began that output: the crawl that runs it says what it lacks, and nobody runs it later."""
    return name.startswith(TYPED) and name not in settings.outputs


_AUTHORITY = re.compile(r"://[^/@]*@")


def scheme_of(table: OutputTable) -> str:
    return table.url.reveal().partition("://")[0].lower()


async def open_output(project: Project, name: str, table: OutputTable, plan: Plan, id: str) -> Output:
    """The target of an output, open. Raises Misconfigured, Transient."""
    settings = project.settings
    if table.use:
        from .own import own_output  # which imports what spiders need

        return own_output(settings, name, table)
    if scheme_of(table) in WEB:
        from ..access.callbacks import secrets_of  # these two import what fetches
        from .webhook import WebhookOutput

        async def secrets() -> list[str]:
            return [secret.text for secret in await secrets_of(project, OWNER.id)]

        return WebhookOutput(name, _address_of(settings, table), table, settings, secrets, project.clock)
    return _target(settings, table, plan, id)


def try_address(settings: Settings, table: OutputTable) -> None:
    """Whether there can be such a target. Nothing is dialled: one that is away holds up no crawl. Raises Misconfigured,
    MissingExtra."""
    if scheme_of(table) in WEB:
        parse_url(_address_of(settings, table))
    else:
        _target(settings, table, Plan(table), "check")


def _address_of(settings: Settings, table: OutputTable) -> str:
    return revealed(stored_setting(table.url.reveal()), secrets_by_name(settings))


def _target(settings: Settings, table: OutputTable, plan: Plan, id: str) -> Output:
    own = tuple(local_path(settings, role) for role in ("state", "records") if is_local(settings, role))
    from ...backends.outputs.open import open_target  # here: most projects have no output

    return open_target(_address_of(settings, table), plan, id=id, root=settings.root, own=own)


def follower_of(project: Project, name: str, table: OutputTable) -> Follower:
    plan = Plan(table)
    scheme = scheme_of(table)

    async def open() -> Output:
        progress = await OutputBook(project.state.shelf).progress.get(name)
        return await open_output(project, name, table, plan, progress.id if progress is not None else token_hex(8))

    return Follower(
        name,
        plan,
        open,
        source=project.records,
        shelf=project.state.shelf,
        leases=project.state.seeds,
        clock=project.clock,
        worker=project.worker,
        keeps_history=bool(table.history),
        linger=table.every if scheme in FILES else timedelta(0),
        rewinds=bool(table.use) or scheme in SQL or scheme.startswith("mongodb"),
    )


async def behind(
    project: Project, table: OutputTable | None, progress: OutputProgress | None, upto: str | None = None
) -> int:
    """How many records have changed since the last round of an output; 0 only if everything is written. Records that
    it does not want count as well where it has several types."""
    types = table.types if table is not None else ()
    after = progress.after if progress is not None else None
    query = RecordQuery(type=types[0] if len(types) == 1 else None, after=after, upto=upto)
    try:
        return await project.records.count(query)
    except Misconfigured:  # its cursor is of another store: it begins anew
        return await project.records.count(msgspec.structs.replace(query, after=None))


def target_of(table: OutputTable | None) -> str:
    """The address of an output without its secrets and options, but with its table; or its class."""
    if table is None:
        return "(-o of a crawl)"
    address, _, query = table.url.reveal().partition("?")
    named = dict(parse_qsl(query)).get("table")
    return table.use or discreet(address) + (f"?table={named}" if named else "")


async def changes_written(project: Project, tables: Mapping[str, OutputTable]) -> dict[str, int]:
    """How many changes each output has written, in all."""
    book = OutputBook(project.state.shelf)
    kept = {name: await book.progress.get(name) for name in tables}
    return {name: progress.written if progress is not None else 0 for name, progress in kept.items()}


async def lag_of(project: Project, table: OutputTable | None, progress: OutputProgress | None) -> int:
    """How many records have changed and are not written yet."""
    return max(0, await behind(project, table, progress) - (progress.passed if progress is not None else 0))


class OutputReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an output by the end of a crawl: how many changes were written meanwhile, by whichever process,
    and how many are left, with the reason if it stands still. `lag` is None if the store did not answer."""

    name: str
    target: str
    written: int
    lag: int | None = 0
    why: str = ""

    @property
    def account(self) -> str:
        """What was written, and what is left."""
        left = f", {self.lag:,} to write" if self.lag else ""
        return f"{self.name}: {many(self.written, 'change')} written{left}"

    @property
    def in_words(self) -> str:
        """What it lacks."""
        lack = f"lacks {many(self.lag, 'change')}" if self.lag is not None else "may lack changes"
        return f"The output {self.name} {lack}. {self.why}".strip()


class Outputs:
    """The outputs that run in this process."""

    def __init__(self, project: Project, tables: Mapping[str, OutputTable]) -> None:
        self._project = project
        self._tables = tables
        self.followers = {name: follower_of(project, name, table) for name, table in tables.items()}
        self._book = OutputBook(project.state.shelf)

    async def finish(
        self, within: timedelta = END_WITHIN, *, before: Mapping[str, int] | None = None
    ) -> list[OutputReport]:
        """Wait until everything that is stored now has been written, but no longer than that; return what became of
        each. `before`: how many changes had been written when the crawl began."""
        project, left = self._project, dict(self._tables)
        if not left:
            return []
        try:
            goal = await project.records.cursor()
        except Transient as error:
            return [
                OutputReport(name=name, target=target_of(table), written=0, lag=None, why=str(error))
                for name, table in left.items()
            ]
        for follower in self.followers.values():
            follower.hurry()
        until = project.clock.monotonic() + within.total_seconds()
        found: dict[str, OutputReport] = {}
        while left:
            for name, table in list(left.items()):
                progress = await self._book.progress.get(name) or OutputProgress(name=name, id="")
                known = self.followers[name].under_these_settings(progress)
                lag = await behind(project, table, known, goal)
                why = known.error if lag else ""
                if lag and known.paused and not why:
                    why = f"It is paused: `gossamer output resume {name}` goes on."
                written = known.written - (before or {}).get(name, 0)
                told = max(1, lag - known.passed) if lag else 0  # of this round, some are written
                found[name] = OutputReport(name=name, target=target_of(table), written=written, lag=told, why=why)
                if not lag or known.paused or known.misconfigured:
                    del left[name]
            if not left or project.clock.monotonic() >= until:
                break
            await project.clock.sleep(LOOK.total_seconds())
        return [*found.values()]


@asynccontextmanager
async def running_outputs(project: Project, tables: Mapping[str, OutputTable]) -> AsyncIterator[Outputs]:
    """During the block, these outputs follow the records."""
    outputs = Outputs(project, tables)
    tasks = [asyncio.create_task(follower.run(), name=f"output {name}") for name, follower in outputs.followers.items()]
    try:
        yield outputs
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

"""Outputs as people and programs see and steer them: list, show, check, pause, resume, rewind, remove. The commands,
the endpoints and the client's calls are made of OPERATIONS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ...clock import iso_time
from ...errors import BackendUnavailable, Misconfigured, NotThere, Transient
from ...model.output import OutputProgress
from ...model.situation import OutputReading
from ...settings import Settings
from ...settings.output_tables import OutputTable
from ...store.outputs.book import OutputBook, rewound
from ...store.outputs.follow import LEASE_FOR, lease_of
from ...store.outputs.plan import Plan
from ...units import many, visible
from ..access.keys import ADMIN, JOBS, OWNER, Caller
from ..open import Project
from ..operation import Operation
from .run import is_typed, lag_of, open_output, target_of

DEAD_SHOWN = 20
UP_TO_DATE = "up-to-date"


class NoFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every output."""


class OutputName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(max_length=60, description="As `gossamer output list` shows it.")]


class OutputView(msgspec.Struct, frozen=True, kw_only=True):
    """An output: `up-to-date` (nothing is left to write), `behind`, `waiting` (its target is away), `paused`, or
    `stopped` (a person must change something). Times are ISO 8601 in UTC."""

    name: str
    state: str
    lag: int  # records that have changed and are not written yet
    dead: int  # rows that the target refused
    written: int  # changes, in all
    written_at: str | None
    target: str
    error: str
    altered: tuple[str, ...]  # columns of a table of ours that got another type, the newest last

    @property
    def in_words(self) -> str:
        """Where it stands, and why it stands still."""
        left = f"{many(self.lag, 'record')} to write" if self.lag else "nothing to write"
        words = {
            UP_TO_DATE: "everything is written",
            "behind": left,
            "waiting": f"{left}; it waits",
            "paused": f"paused, {left}",
            "stopped": f"stopped, {left}",
        }[self.state]
        return f"{self.name}: {words}. {self.error}".strip()


class DeadRowView(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    site: str
    key: str
    url: str
    reason: str
    at: str


class OutputDetail(OutputView, frozen=True, kw_only=True):
    dead_rows: list[DeadRowView]  # the newest
    types: tuple[str, ...]
    columns: dict[str, str]
    where: str
    only: str
    gone: str
    history: str


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """An output that is known no more; `unerased`: records that were to be erased at its target, and were not."""

    name: str
    unerased: int

    @property
    def in_words(self) -> str:
        words = f"{self.name} is removed. Its target stays as it is"
        if not self.unerased:
            return f"{words}."
        rows = many(self.unerased, "row that was", "rows that were")
        return f"{words}, with {rows} to be erased: erase there yourself."


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    found: str  # in words


async def _view(project: Project, name: str, table: OutputTable | None, progress: OutputProgress | None) -> OutputView:
    book = OutputBook(project.state.shelf)
    lag = await lag_of(project, table, progress)
    error = progress.error if progress is not None else ""
    state = UP_TO_DATE if not lag else "behind"
    if progress is not None and progress.paused:
        state = "paused"
    elif progress is not None and progress.misconfigured:
        state = "stopped"
    elif error:
        state = "waiting"
    if state in ("behind", "waiting") and await project.state.seeds.holder(lease_of(name)) is None:
        error = f"{_idle(name, table)} {error}".strip()
    return OutputView(
        name=name,
        state=state,
        lag=lag,
        dead=len(await book.dead_rows(name)),
        written=progress.written if progress is not None else 0,
        written_at=iso_time(progress.written_at) if progress is not None and progress.written_at is not None else None,
        target=target_of(table),
        error=error,
        altered=progress.altered if progress is not None else (),
    )


def _idle(name: str, table: OutputTable | None) -> str:
    what = (
        f"`gossamer output run {name}` does, and so do crawl, worker and up"
        if table is not None
        else "the same crawl does"
    )
    return f"No process writes it now: {what}."


async def _find(project: Project, name: str) -> tuple[OutputTable | None, OutputProgress | None]:
    """Raises NotThere."""
    table, progress = project.settings.outputs.get(name), await OutputBook(project.state.shelf).progress.get(name)
    if table is None and progress is None:
        raise NotThere(f"There is no output {name[:60]!r}. `gossamer output list` lists them.")
    return table, progress


async def list_outputs(project: Project, caller: Caller, query: NoFilter) -> list[OutputView]:
    """Those of the settings, and those that `-o URL` began."""
    tables = project.settings.outputs
    kept = {one.name: one for one in await OutputBook(project.state.shelf).progress.all()}
    return [await _view(project, name, tables.get(name), kept.get(name)) for name in sorted({*tables, *kept})]


async def unfinished_outputs(project: Project) -> list[OutputView]:
    """Those that lag, are paused or have stopped, but for those that `-o URL` began. None while the record
    store is away: nobody can tell then."""
    try:
        found = await list_outputs(project, OWNER, NoFilter()) if not project.absent else []
    except BackendUnavailable:  # the caller reports the store that is away
        return []
    return [one for one in found if one.state != UP_TO_DATE and not is_typed(project.settings, one.name)]


async def output_readings(project: Project, now: float) -> tuple[OutputReading, ...]:
    """What the alert on outputs reads. Raises Transient."""
    book, found = OutputBook(project.state.shelf), list[OutputReading]()
    for view in await list_outputs(project, OWNER, NoFilter()):
        if is_typed(project.settings, view.name):
            continue
        progress = await book.progress.get(view.name)
        times = [progress.written_at, progress.all_written_at, progress.began_at] if progress is not None else []
        latest = max((at for at in times if at is not None), default=now)
        found.append(
            OutputReading(
                output=view.name, lag=view.lag, idle=max(0.0, now - latest), dead=view.dead,
                stopped=view.state == "stopped", paused=view.state == "paused", why=view.error,
            )
        )  # fmt: skip
    return tuple(found)


async def show_output(project: Project, caller: Caller, asked: OutputName) -> OutputDetail:
    table, progress = await _find(project, asked.name)
    view = await _view(project, asked.name, table, progress)
    dead = await OutputBook(project.state.shelf).dead_rows(asked.name, DEAD_SHOWN)
    known = table or OutputTable()
    return OutputDetail(
        **msgspec.structs.asdict(view),
        dead_rows=[
            DeadRowView(type=row.type, site=row.site, key=row.key, url=row.url, reason=row.reason, at=iso_time(row.at))
            for row in dead
        ],
        types=known.types,
        columns=known.columns,
        where=known.where,
        only=known.only,
        gone=known.gone,
        history=known.history,
    )


async def pause_output(project: Project, caller: Caller, asked: OutputName) -> OutputView:
    return await _order(project, asked.name, lambda known: msgspec.structs.replace(known, paused=True))


async def resume_output(project: Project, caller: Caller, asked: OutputName) -> OutputView:
    """Also one that stopped because something was wrong."""

    def going(known: OutputProgress) -> OutputProgress:
        return msgspec.structs.replace(known, paused=False, misconfigured=False, error="", error_at=None)

    return await _order(project, asked.name, going)


async def rewind_output(project: Project, caller: Caller, asked: OutputName) -> OutputView:
    """Write every record again, from the first on."""
    return await _order(project, asked.name, rewound)


async def remove_output(project: Project, caller: Caller, asked: OutputName) -> Removed:
    """Forget one that `-o URL` began, or that is no longer in the settings, once no process writes it."""
    table, _ = await _find(project, asked.name)
    if table is not None:
        raise Misconfigured(f"Take [outputs.{asked.name}] out of gossamer.toml first: it would begin again.")
    if await project.state.seeds.holder(lease_of(asked.name)) is not None:  # it would write everything again
        raise Misconfigured(
            f"A process still writes {asked.name}. End it, or restart it with the settings as they are now; then "
            f"remove the output. One that was killed counts for {LEASE_FOR.total_seconds():.0f} s more."
        )
    return Removed(name=asked.name, unerased=await OutputBook(project.state.shelf).remove(asked.name))


async def _order(project: Project, name: str, change: Callable[[OutputProgress], OutputProgress]) -> OutputView:
    table, _ = await _find(project, name)
    progress = await OutputBook(project.state.shelf).order(name, change)
    return await _view(project, name, table, progress)


async def check_output(project: Project, caller: Caller, asked: OutputName) -> Checked:
    """Whether the target can be written. Raises Misconfigured, Transient."""
    table, progress = await _find(project, asked.name)
    if table is None:
        raise Misconfigured(f"{asked.name} was begun by -o: its address is not kept. Run that command again.")
    id = progress.id if progress is not None else "check"
    try:
        output = await open_output(project, asked.name, table, Plan(table), id)
        try:
            return Checked(name=asked.name, found=await output.check())
        finally:
            await output.close()
    except BackendUnavailable as error:  # the target is away, and no store of the project: a program is told which
        raise Transient(str(error)) from error


def _words(view: OutputView) -> str:
    return view.in_words


def _shown(view: OutputDetail) -> str:
    lines = [view.in_words, f"  target   {view.target}", f"  written  {many(view.written, 'change')}"]
    for name in ("where", "only", "gone", "history"):
        if value := getattr(view, name):
            lines.append(f"  {name:<8} {visible(value)}")
    if view.types:
        lines.append(f"  types    {', '.join(view.types)}")
    lines += [f"  {column} = {source}" for column, source in view.columns.items()]
    lines += [visible(f"  altered  {one}") for one in view.altered]
    if view.dead_rows:
        lines.append(f"{many(view.dead, 'row')} that the target refused:")
        lines += [visible(f"  {row.type} {row.site} {row.key}: {row.reason}") for row in view.dead_rows]
    return "\n".join(lines)


def _has_outputs(settings: Settings) -> bool:
    """One that is named in gossamer.toml can be checked, or paused, before the first crawl."""
    return bool(settings.outputs)


OPERATIONS: tuple[Operation[Any, Any], ...] = (  # Any: their types differ
    Operation(
        verb="output list", summary="List outputs: how far each has come", method="GET", path="/api/v1/outputs",
        scope=JOBS, ask=NoFilter, gives=list[OutputView], run=list_outputs, begins=_has_outputs,
        columns=("name", "state", "lag", "dead", "written", "written_at", "target", "error"),
        nothing="No outputs. [outputs.NAME] in gossamer.toml makes one: docs/outputs.md.",
    ),
    Operation(
        verb="output show", summary="Show an output, and the rows that its target refused", arguments=("name",),
        method="GET", path="/api/v1/outputs/{name}", scope=JOBS, ask=OutputName, gives=OutputDetail, run=show_output,
        begins=_has_outputs, words=_shown,
    ),
    Operation(
        verb="output check", summary="Check whether the target of an output can be written", arguments=("name",),
        method="POST", path="/api/v1/outputs/{name}/check", scope=ADMIN, ask=OutputName, gives=Checked,
        run=check_output, begins=_has_outputs, words=lambda checked: checked.found,
    ),
    Operation(
        verb="output pause", summary="Write nothing until it is resumed", arguments=("name",),
        method="POST", path="/api/v1/outputs/{name}/pause", scope=ADMIN, ask=OutputName, gives=OutputView,
        run=pause_output, begins=_has_outputs, words=_words,
    ),
    Operation(
        verb="output resume", summary="Go on with an output that was paused, or has stopped", arguments=("name",),
        method="POST", path="/api/v1/outputs/{name}/resume", scope=ADMIN, ask=OutputName, gives=OutputView,
        run=resume_output, begins=_has_outputs, words=_words,
    ),
    Operation(
        verb="output rewind", summary="Write every record again", arguments=("name",),
        method="POST", path="/api/v1/outputs/{name}/rewind", scope=ADMIN, ask=OutputName, gives=OutputView,
        run=rewind_output, begins=_has_outputs, words=_words,
    ),
    Operation(
        verb="output remove", summary="Forget an output that is no longer in gossamer.toml, or that -o began",
        arguments=("name",), method="POST", path="/api/v1/outputs/{name}/remove", scope=ADMIN, ask=OutputName,
        gives=Removed, run=remove_output, begins=_has_outputs, words=lambda removed: removed.in_words,
    ),
)  # fmt: skip

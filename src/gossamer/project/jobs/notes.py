"""Notes of people on jobs, sites, incidents and charts: "new proxies", "the shop's redesign".

A note is a row of the shelf, so every backend keeps it, and backups carry it. The commands, the endpoints and the
client's calls are made of OPERATIONS.
"""

from __future__ import annotations

from secrets import token_hex
from typing import Annotated

import msgspec
from msgspec import Meta

from ...clock import iso_time
from ...errors import Misconfigured, NotThere
from ...model.note import NOTE, Note
from ...model.shelf import ShelfKind, Trim
from ...units import past_moment, seconds_of
from ..access.keys import JOBS, Caller, Sight
from ..open import Project
from ..operation import Operation

KEPT = 10_000  # notes; the oldest are deleted when another is added
Subject = Annotated[str, Meta(max_length=300)]


class NewNote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1, max_length=1000, description="What happened.")]
    job: Annotated[Subject | None, Meta(description="On this job.")] = None
    site: Annotated[Subject | None, Meta(description="On this site.")] = None
    incident: Annotated[Subject | None, Meta(description="On this incident.")] = None
    at: Annotated[Subject | None, Meta(description="When: 2h ago, or an ISO time. Default: now.")] = None


class NoteQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    job: Annotated[Subject | None, Meta(description="Only notes on this job.")] = None
    site: Annotated[Subject | None, Meta(description="Only notes on this site.")] = None
    incident: Annotated[Subject | None, Meta(description="Only notes on this incident.")] = None
    limit: Annotated[int, Meta(ge=1, le=1000, description="At most this many.")] = 100


class NoteId(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[str, Meta(max_length=100, description="As `gossamer note list` shows it.")]


def _notes(project: Project) -> ShelfKind[Note]:
    return ShelfKind(project.state.shelf, NOTE, Note)


async def add_note(project: Project, caller: Caller, new: NewNote) -> Note:
    """Raises NotThere for a job that the caller does not see, Misconfigured for a time that cannot be read."""
    known = await project.state.jobs.job(new.job) if new.job is not None else None
    if new.job is not None and (known is None or not caller.sees(known)):
        raise NotThere(f"There is no job {new.job}. `gossamer job list` lists them.")
    now = project.clock.now()
    try:
        at = now if new.at is None else past_moment(new.at.removesuffix(" ago"), now)
    except ValueError:
        raise Misconfigured(f"{new.at!r} is not a time. Write 2h, or a date: 2027-01-31T12:00Z.") from None
    if new.incident is not None and await project.state.alerts.incident(new.incident) is None:
        raise NotThere(f"There is no incident {new.incident}. `gossamer incident list` lists them.")
    on = {"job": new.job or "", "site": new.site or "", "incident": new.incident or ""}
    note = Note(id=token_hex(4), text=new.text, at=iso_time(at), by=caller.name, key=caller.id, **on)
    kind = _notes(project)
    await project.state.shelf.commit([kind.put(note.id, note, at=at), Trim(kind=NOTE, keep=KEPT)])
    return note


async def list_notes(project: Project, caller: Caller, query: NoteQuery) -> list[Note]:
    """The newest first."""
    sight = Sight(project, caller)
    found: list[Note] = []
    for note in await _notes(project).timed(limit=KEPT, newest=True):
        if query.job not in (None, note.job) or query.site not in (None, note.site):
            continue
        if query.incident not in (None, note.incident):
            continue
        if not note.job or await sight.of(note.job):
            found.append(note)
            if len(found) == query.limit:
                break
    return found


async def remove_note(project: Project, caller: Caller, asked: NoteId) -> Note:
    """A note can be removed by the key that wrote it, and by admins. Raises NotThere."""
    kind = _notes(project)
    note = await kind.get(asked.id)
    if note is None or not (caller.is_admin or note.key == caller.id):
        raise NotThere(f"There is no note {asked.id}. `gossamer note list` lists them.")
    await project.state.shelf.commit([kind.drop(note.id)])
    return note


async def marks(
    project: Project, caller: Caller, since: float, until: float, *, job: str | None = None
) -> list[tuple[float, str]]:
    """The notes of that time as marks on a chart: when, and what to say. With `job`, none on other jobs."""
    notes = await list_notes(project, caller, NoteQuery(limit=1000))
    timed = [(seconds_of(note.at), note) for note in notes if job is None or note.job in ("", job)]
    told = [(at, ": ".join(filter(None, (note.job or note.site or note.incident, note.text)))) for at, note in timed]
    return [(at, words) for at, words in told if since <= at <= until]


OPERATIONS: tuple[Operation[NewNote, Note] | Operation[NoteQuery, list[Note]] | Operation[NoteId, Note], ...] = (
    Operation(
        verb="note add", summary="Write a note on a job, a site or all charts", arguments=("text",),
        method="POST", path="/api/v1/notes", scope=JOBS, ask=NewNote, gives=Note, run=add_note,
        words=lambda note: f"{note.id}: noted for {note.at}.",
        example={"text": "new proxies", "site": "shop.example"},
    ),
    Operation(
        verb="note list", summary="List notes, newest first", columns=("id", "at", "job", "site", "by", "text"),
        method="GET", path="/api/v1/notes", scope=JOBS, ask=NoteQuery, gives=list[Note], run=list_notes,
        nothing="No notes. `gossamer note add \"new proxies\"` writes one.",
    ),
    Operation(
        verb="note remove", summary="Remove a note", arguments=("id",),
        method="DELETE", path="/api/v1/notes/{id}", scope=JOBS, ask=NoteId, gives=Note, run=remove_note,
        words=lambda note: f"{note.id} is removed.",
    ),
)  # fmt: skip

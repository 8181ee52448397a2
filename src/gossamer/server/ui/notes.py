"""The view of notes: written, listed, removed. Charts show them as marks."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ...project.access.keys import JOBS
from ...project.jobs.notes import NewNote, NoteId, NoteQuery, add_note, list_notes, remove_note
from .view import Context, Done, FormAction, View, Visit

Text = Annotated[str, Meta(max_length=1000)]


class NoteForm(msgspec.Struct, frozen=True, kw_only=True):
    text: Text
    job: Text = ""
    site: Text = ""
    at: Text = ""


class NotesFilters(msgspec.Struct, frozen=True, kw_only=True):
    job: Text = ""
    site: Text = ""


async def notes(visit: Visit) -> Context:
    chosen = visit.of(NotesFilters)
    query = NoteQuery(job=chosen.job or None, site=chosen.site or None, limit=1000)
    return {"notes": await list_notes(visit.project, visit.caller, query), "filtered": bool(chosen.job or chosen.site)}


async def add(visit: Visit) -> Done:
    form = visit.of(NoteForm)
    given = {name: value for name, value in msgspec.structs.asdict(form).items() if value}
    note = await add_note(visit.project, visit.caller, msgspec.convert(given, NewNote))
    return Done(words="The note is written.", to="/ui/notes", target=note.id)


async def remove(visit: Visit) -> Done:
    note = await remove_note(visit.project, visit.caller, visit.of(NoteId))
    return Done(words="The note is removed.", to="/ui/notes", target=note.id)


VIEWS = (
    View("/ui/notes", "Notes", "notes.html", {"notes": notes}, JOBS, query=NotesFilters, group="Work"),
)  # fmt: skip
ACTIONS = (
    FormAction(path="/ui/notes/add", handler=add, form=NoteForm, scope=JOBS),
    FormAction(path="/ui/notes/remove", handler=remove, form=NoteId, scope=JOBS),
)

"""Notes of people: the same over HTTP, on the command line, in the client, on charts and in a backup."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from gossamer.frontier.contract import JobTerms
from gossamer.project.access.keys import JOBS, OWNER, Caller
from gossamer.project.jobs.notes import KEPT, NewNote, NoteQuery, add_note, list_notes, marks
from gossamer.project.open import Project
from gossamer.server.ui import charts
from tests.unit.commandline import ProjectFolder
from tests.unit.commandline import project as project

from .serving import Served, serving, settings_of


async def asked(door: Served, **fields: object) -> httpx.Response:
    return await door.post("/api/v1/notes", fields)


@pytest.fixture
async def door(tmp_path: Path):
    async with serving(settings_of(tmp_path)) as served:
        yield served


async def test_a_note_is_written_listed_and_removed(door: Served) -> None:
    made = await asked(door, text="new proxies", site="shop.example", at="2h")
    other = await asked(door, text="<b>&</b>")

    assert (made.status_code, other.status_code) == (201, 201)
    assert [one["text"] for one in (await door.get("/api/v1/notes")).json()] == ["<b>&</b>", "new proxies"]
    assert (await door.get("/api/v1/notes", site="shop.example")).json() == [made.json()]
    gone = await door.call("DELETE", f"/api/v1/notes/{made.json()['id']}")
    assert gone.json() == made.json()
    assert (await door.call("DELETE", f"/api/v1/notes/{made.json()['id']}")).status_code == 404


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 422),
        ({"text": ""}, 422),
        ({"text": "x" * 1001}, 422),
        ({"text": "x", "at": "never"}, 422),
        ({"text": "x", "secret": 1}, 422),
        ({"text": "x", "job": "nope-1"}, 404),
    ],
)
async def test_what_is_no_note_is_refused_with_a_sentence(door: Served, fields: dict[str, object], status: int) -> None:
    refused = await asked(door, **fields)

    assert refused.status_code == status
    assert refused.json()["error"]["message"]
    assert (await door.get("/api/v1/notes")).json() == []


async def test_a_key_neither_sees_nor_removes_what_is_not_its_own(door: Served) -> None:
    project = door.project
    ada, bob = (Caller(id=name, name=name, scopes=frozenset((JOBS,))) for name in ("ada", "bob"))
    note = await add_note(project, ada, NewNote(text="mine"))
    job, _ = await project.state.jobs.open_job("theirs", JobTerms(owner="bob"), fresh=False)
    await add_note(project, bob, NewNote(text="on my job", job=job.id))

    assert [one.text for one in await list_notes(project, ada, NoteQuery())] == ["mine"]
    assert [one.text for one in await list_notes(project, OWNER, NoteQuery())] == ["on my job", "mine"]
    assert (await door.call("DELETE", f"/api/v1/notes/{note.id}")).status_code == 200  # by an admin


async def test_the_client_calls_every_endpoint_by_its_name(door: Served) -> None:
    async with door.client() as client:
        made = await client.call("post_notes", text="by the client")
        assert await client.call("get_notes", limit=5) == [made]
        assert await client.call("delete_notes_id", id=made["id"]) == made
        with pytest.raises(ValueError, match="Did you mean get_notes"):
            await client.call("get_note")


async def test_charts_show_notes_at_their_time(door: Served) -> None:
    now = door.project.clock.now()
    await add_note(door.project, OWNER, NewNote(text="a <redesign>", at="30m"))
    await add_note(door.project, OWNER, NewNote(text="long ago", at="2d"))

    found = await marks(door.project, OWNER, now - 3600, now)

    assert [words for _, words in found] == ["a <redesign>"]
    drawn = charts.lines("Pages", [now - 3600, now], [charts.Series("pages", [1.0, 2.0], "ok")], notes=found)
    assert "a &lt;redesign&gt;</title></circle>" in drawn


async def test_the_oldest_notes_make_room(door: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert KEPT > 3
    monkeypatch.setattr("gossamer.project.jobs.notes.KEPT", 3)
    for number in range(5):
        await add_note(door.project, OWNER, NewNote(text=str(number), at=f"{10 - number}m"))

    assert [one.text for one in await list_notes(door.project, OWNER, NoteQuery())] == ["4", "3", "2"]


async def _nothing(project: Project) -> None:
    """What a crawl would do."""


def test_the_command_line_has_the_same_notes_and_a_backup_brings_them(project: ProjectFolder) -> None:
    assert "No notes." in project.run("note", "list").out
    project.fill(_nothing)  # now the project has a state

    made = project.run("note", "add", "new proxies", "--site", "shop.example", "--json").json
    refused = project.run("note", "add", "x", "--at", "never")

    assert refused.code == 1
    assert "is not a time" in refused.err
    assert project.run("note", "list", "--json").json == [made]
    assert "new proxies" in project.run("note", "list").out
    assert project.run("backup", "all.backup").code == 0
    assert project.run("note", "remove", made["id"]).code == 0
    assert project.run("note", "remove", made["id"]).code == 1

    project.write("gossamer.toml", 'state = "sqlite:///two/state.db"\nrecords = "sqlite:///two/records.db"\n')
    assert project.run("restore", "all.backup").code == 0
    assert project.run("note", "list", "--json").json == [made]

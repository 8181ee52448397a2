"""`gossamer spool`, and what other commands tell while results wait or the record store is away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from gossamer.errors import BackendUnavailable
from gossamer.frontier.contract import WorkerCard
from gossamer.project.open import Project
from gossamer.project.wiring import sink_of
from gossamer.store.contract import SpoolNote
from tests.unit.commandline import ProjectFolder
from tests.unit.commandline import project as project
from tests.unit.crawled import SHOP, crawl_half
from tests.unit.spooling import visit

AWAY = "postgresql://127.0.0.1:1/nobody"  # nobody listens there


@pytest.fixture
def crawled(project: ProjectFolder) -> ProjectFolder:
    project.fill(crawl_half)
    return project


async def note_elsewhere(system: Project) -> None:
    """Two results of the job wait on a machine whose worker is gone."""
    await system.state.spools.note(
        SpoolNote(
            name="there-7-x", host="there", folder="/data/spool", worker="there/7/1", results={"books-1": 2},
            bytes=4_096, noted_at=system.clock.now(),
        )
    )  # fmt: skip


async def leave_results(system: Project) -> None:
    """Three results are spooled on this machine, by a process that ends before the store is back."""

    async def away(*_: object) -> list[int]:
        raise BackendUnavailable("The store is away.")

    sink = sink_of(system)
    sink._records.save = away  # type: ignore[method-assign]
    async with sink:
        await asyncio.gather(*(sink.keep(visit(n)) for n in range(3)))


def test_without_a_project_nothing_waits_and_no_file_is_made(project: ProjectFolder) -> None:
    assert project.run("spool").out == "No results wait.\n"
    assert project.run("spool", "drain").code == 0
    assert not (project.folder / "gossamer-data").exists()


def test_what_waits_anywhere_is_listed_and_told_by_other_commands(crawled: ProjectFolder) -> None:
    crawled.fill(note_elsewhere)
    head, row = crawled.run("spool").lines
    assert head.split() == ["HOST", "RESULTS", "SIZE", "STATE", "JOBS", "SEEN", "FOLDER", "NAME"]
    assert row.split()[:2] == ["there", "2"]
    assert "orphaned" in row
    listed = crawled.run("spool", "list", "--json").json
    assert [(one["host"], one["jobs"], one["alive"]) for one in listed["waiting"]] == [("there", {"books-1": 2}, False)]

    assert "2 results of books-1 wait" in crawled.run("status").err
    assert "2 results on the disks of workers" in crawled.run("status", "books-1").out
    assert crawled.run("status", "books-1", "--json").json["storing"] == 2
    assert crawled.run("job", "show", "books-1", "--json").json["storing"] == 2
    assert "2 results wait on there" in crawled.run("workers").err
    findings = crawled.run("doctor", "--json").json
    [found] = [one for one in findings if one["what"] == "spool"]
    assert found["level"] == "warn"
    assert "gossamer spool forget there-7-x" in found["advice"]


def test_a_worker_is_listed_with_what_waits_on_its_disk(crawled: ProjectFolder) -> None:
    async def beat(system: Project) -> None:
        now = system.clock.now()
        card = WorkerCard(name="there/7/1", host="there", pid=7, version="1", started_at=now, seen_at=now)
        await system.state.workers.beat(msgspec.structs.replace(card, state="spool full"))

    crawled.fill(note_elsewhere)
    crawled.fill(beat)
    [worker] = crawled.run("workers", "--json").json
    assert (worker["waiting"], worker["state"]) == (2, "spool full")
    assert "A spool is full" in crawled.run("workers").err
    refused = crawled.run("spool", "forget", "there", "--yes")
    assert refused.code == 1
    assert "is alive" in refused.err


def test_results_of_a_lost_machine_are_given_up(crawled: ProjectFolder) -> None:
    crawled.fill(note_elsewhere)
    assert crawled.run("spool", "forget", "nowhere", "--yes").code == 1
    said = crawled.run("spool", "forget", "there", "--yes")
    assert (said.code, said.out.split(".")[0]) == (0, "2 results of books-1 given up")
    assert "given up" in crawled.run("spool").out
    assert crawled.run("job", "show", "books-1", "--json").json["storing"] == 0


def test_what_waits_on_this_machine_is_stored(crawled: ProjectFolder) -> None:
    crawled.fill(leave_results)
    [waiting] = crawled.run("spool", "list", "--json").json["waiting"]
    [files] = crawled.run("spool", "list", "--json").json["files"]
    assert (waiting["results"], files["name"], files["noted"]) == (3, waiting["name"], True)

    said = crawled.run("spool", "drain")

    assert said.code == 0, said.err
    assert said.out == "3 results stored. Nothing waits on this machine.\n"
    assert crawled.run("spool").out == "No results wait.\n"
    assert list((crawled.folder / "gossamer-data" / "spool").glob("*.spool*")) == []
    stored = [msgspec.json.decode(line)["_meta"]["key"] for line in crawled.run("export", "--type", "Book").lines]
    assert sorted(stored) == ["0", "1", "2"]


LOOKS = (("workers",), ("job", "list"), ("job", "show", "books"), ("schedule", "list"), ("spool",), ("dead", "list"))


@pytest.mark.parametrize("words", LOOKS)
def test_what_the_state_knows_is_told_without_the_record_store(crawled: ProjectFolder, words: tuple[str, ...]) -> None:
    before = crawled.run(*words)
    _move_records_away(crawled.folder)
    said = crawled.run(*words)
    assert (said.code, said.lines[0].split()) == (0, before.lines[0].split()), said.err


def test_status_and_why_tell_the_rest_without_the_record_store(crawled: ProjectFolder) -> None:
    _move_records_away(crawled.folder)
    status = crawled.run("status")
    assert status.code == 0
    assert "books-1" in status.out
    assert "127.0.0.1:1" in status.err
    assert crawled.run("status", "--json").json[0]["records"] is None
    assert "not known" in crawled.run("status", "books-1").out
    why = crawled.run("why", f"{SHOP}/gone")
    assert why.code == 0
    assert "dead: http-404" in why.out
    assert "Attempts and records cannot be shown" in why.err
    # what needs the records fails with one line
    export = crawled.run("export")
    assert export.code == 1
    assert "127.0.0.1:1" in export.err


def _move_records_away(folder: Path) -> None:
    file = folder / "gossamer.toml"
    file.write_text(f'project = "books"\nrecords = "{AWAY}"\n' + file.read_text())


def test_a_state_is_not_moved_while_results_wait_and_a_backup_says_that_they_do(crawled: ProjectFolder) -> None:
    async def end(system: Project) -> None:
        await note_elsewhere(system)
        await system.state.control.cancel_job("books-1")

    crawled.fill(end)
    refused = crawled.run("move", "--to-state", "sqlite:///new/state.db")
    assert refused.code == 1
    assert "2 results wait on the disks of workers (there)" in refused.err
    said = crawled.run("backup", "books.backup")
    assert said.code == 0, said.err
    assert "wait on the disks of workers" in said.err
    assert crawled.run("spool", "forget", "there", "--yes").code == 0
    assert crawled.run("move", "--to-state", "sqlite:///new/state.db").code == 0

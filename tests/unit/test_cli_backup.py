"""`gossamer backup` and `gossamer restore` as a person meets them: what comes back, what they print and refuse."""

from __future__ import annotations

import asyncio
import json
import re
import stat
from collections.abc import AsyncGenerator
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from gossamer.backends.sqlite.records import SqliteRecordStream
from gossamer.backends.sqlite.state_stream import SqliteStateStream
from gossamer.backends.worker_names import worker_name
from gossamer.errors import BackendUnavailable, Misconfigured
from gossamer.frontier.contract import DeadFilter, JobTerms
from gossamer.frontier.state_rows import DumpedSpending, StateRow
from gossamer.model.page import Headers, Snapshot
from gossamer.model.schedule import Schedule
from gossamer.model.stream import MoveMark
from gossamer.model.task import UrlState
from gossamer.project.open import Project
from gossamer.project.upkeep.move import backup_file
from gossamer.project.upkeep.move.backup_file import MAGIC, BackupHeader, BackupWriter, new_backup
from gossamer.store.contract import RecordQuery
from gossamer.store.record_rows import RecordRow

from ..conformance.stores import NOW, book, page_of, result
from ..services.valkey import running_valkey
from .commandline import TOML, ProjectFolder, candidate
from .commandline import project as project

ELSEWHERE = (
    'state = "sqlite:///new/state.db"\nrecords = "sqlite:///new/records.db"\narchive = "folder:///new/archive"\n'
)
DEAD_WORKER = re.sub(r"/\d+-", "/1-", worker_name())  # of this machine, born at a time at which no process was


async def crawl_a_little(system: Project) -> None:
    """Pages that are done, wait, are dead, and in the hands of a worker that is gone; a record with a past."""
    jobs, frontier = system.state.jobs, system.state.frontier
    job, _ = await jobs.open_job("books", JobTerms(), fresh=False)
    await frontier.add(job.id, [candidate(f"https://shop.example/{n}") for n in range(6)])
    done, later, dead, _in_progress = (await frontier.lease(job.id, DEAD_WORKER, 4)).leases
    url = done.task.url
    emma = Snapshot(url=url, requested_url=url, status=200, headers=Headers(), body=b"<h1>Emma", fetched_at=NOW)
    (reference,) = await system.archive.put([emma])
    await system.records.save([result(book("0", price=1), page=page_of(url, archive_ref=reference))])
    await system.records.save([result(book("0", price=2, at=NOW + 10, job="books-2")), result(book("1", title="☂\0"))])
    await frontier.complete(done, UrlState.DONE)
    await frontier.retry(later, timedelta(hours=1), "timeout")
    await frontier.bury(dead, "client-error-404", "no")
    await system.state.schedules.put(Schedule(name="nightly", spider="books", trigger="every 1h"), origin="cli")


async def everything(system: Project) -> Any:
    """All that a user could look at."""
    state, records, job = system.state, system.records, "books-1"
    counts = await state.jobs.counts(job)
    letters = [letter async for letter in state.queue.letters(DeadFilter())]
    urls = sorted([(url, str(one), reason) async for url, one, reason in state.queue.urls(job)])
    histories = [await records.history("Book", "shop.example", key) for key in ("0", "1")]
    stored = [record async for record in records.records(RecordQuery())]
    pages = [system.rules.fingerprint(f"https://shop.example/{n}") for n in range(6)]
    facts = [(await records.facts([page]), await records.attempts(page), await records.visits(page)) for page in pages]
    raw = [await system.archive.get(visit.archive_ref) for _, _, visits in facts for visit in visits]
    settled = msgspec.structs.replace(counts, queued=counts.queued + counts.leased, leased=0)
    found = [
        await state.jobs.jobs(),
        await state.schedules.schedules(),
        settled,
        letters,
        histories,
        stored,
        facts,
        raw,
    ]
    assert all(found)
    return found, [(url, "queued" if one == "leased" else one, reason) for url, one, reason in urls]


def look(project: ProjectFolder) -> Any:
    seen: list[Any] = []

    async def keep(system: Project) -> None:
        seen.append(await everything(system))

    project.fill(keep)
    return seen[0]


def backed_up(project: ProjectFolder) -> Path:
    project.fill(crawl_a_little)
    said = project.run("backup", "books.backup")
    assert said.code == 0, said.err
    return project.folder / "books.backup"


def test_what_was_backed_up_is_restored_as_it_was(project: ProjectFolder) -> None:
    project.fill(crawl_a_little)
    before = look(project)

    said = project.run("backup", "books.backup")

    assert said.code == 0, said.err
    rows = {" ".join(line.split()) for line in said.lines}
    assert {"books-1 done 1", "books-1 queued 3", "books-1 dead 1", "schedules 1", "earlier versions 1"} <= rows
    assert "books.backup is complete" in said.out
    assert look(project) == before  # and the project goes on
    assert project.run("status").err == ""

    project.write("gossamer.toml", ELSEWHERE + TOML)
    back = project.run("restore", "books.backup")

    assert back.code == 0, back.err
    assert "books-1 done 1 1 same" in {" ".join(line.split()) for line in back.lines}
    assert "is restored: every count is the same" in back.out
    assert look(project) == before
    assert project.run("status").err == ""


def test_every_row_of_a_store_has_a_place_in_a_backup() -> None:
    assert {*backup_file._ROWS["state"].values()} == {*get_args(StateRow)}
    assert {*backup_file._ROWS["records"].values()} == {*get_args(RecordRow)}


def test_what_was_set_by_hand_is_in_the_backup(project: ProjectFolder) -> None:
    project.fill(crawl_a_little)
    project.run("site", "slow", "shop.example", "6/m")
    assert project.run("backup", "all.backup").code == 0
    project.write("gossamer.toml", ELSEWHERE + TOML)

    assert project.run("restore", "all.backup").code == 0

    assert "domains.shop.example.rate: 6/m" in project.run("site", "show", "shop.example").out


def test_a_backup_is_for_its_owner_alone_and_leaves_no_other_file(project: ProjectFolder) -> None:
    file = backed_up(project)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {path.name for path in project.folder.iterdir()} == {"books.backup", "gossamer-data", "gossamer.toml"}


def test_raw_pages_can_be_left_out(project: ProjectFolder) -> None:
    project.fill(crawl_a_little)
    assert project.run("backup", "small.backup", "--no-archive").code == 0
    project.write("gossamer.toml", ELSEWHERE + TOML)
    said = project.run("restore", "small.backup")
    assert said.code == 0, said.err
    assert "files" not in said.out
    assert not (project.folder / "new" / "archive").exists()


def test_nothing_is_backed_up_when_nothing_was_crawled(project: ProjectFolder) -> None:
    said = project.run("backup", "books.backup")
    assert (said.code, said.out) == (1, "")
    assert "nothing has been crawled yet" in said.err
    assert {path.name for path in project.folder.iterdir()} == {"gossamer.toml"}


def test_a_file_that_is_there_is_left_alone(project: ProjectFolder) -> None:
    file = backed_up(project)
    before = file.read_bytes()
    said = project.run("backup", "books.backup")
    assert said.code == 1
    assert "already. Name another one" in said.err
    assert file.read_bytes() == before


def test_a_project_at_work_is_backed_up_as_it_is_and_what_is_in_hand_is_queued(project: ProjectFolder) -> None:
    async def hold(system: Project) -> None:
        job, _ = await system.state.jobs.open_job("books", JobTerms(), fresh=False)
        await system.state.frontier.add(job.id, [candidate("https://shop.example/1"), candidate("https://b.example/")])
        await system.state.frontier.lease(job.id, worker_name(), 1)

    project.fill(hold)
    said = project.run("backup", "books.backup")
    assert said.code == 0
    assert "Workers were at work: the backup is the project as it was at" in said.err
    assert [file.name for file in project.folder.glob(".backup-*")] == []

    project.write("gossamer.toml", ELSEWHERE + TOML)
    assert project.run("restore", "books.backup").code == 0
    (job,) = json.loads(project.run("job", "list", "--json").out)
    assert (job["open"], job["state"]) == (2, "running")


def test_what_ends_between_the_copies_of_state_and_records_is_not_lost(project: ProjectFolder, monkeypatch) -> None:
    leases: list[Any] = []

    async def hold(system: Project) -> None:
        job, _ = await system.state.jobs.open_job("books", JobTerms(), fresh=False)
        await system.state.frontier.add(job.id, [candidate("https://shop.example/0")])
        leases.extend((await system.state.frontier.lease(job.id, worker_name(), 1)).leases)

    async def end(system: Project) -> None:
        await system.records.save([result(book("0"), page=page_of("https://shop.example/0"))])
        await system.state.frontier.complete(leases.pop(), UrlState.DONE)

    dump = SqliteStateStream.dump

    async def dump_and_end(self: SqliteStateStream) -> AsyncGenerator[Any]:
        async for batch in dump(self):
            yield batch
        await asyncio.to_thread(project.fill, end)

    project.fill(hold)
    monkeypatch.setattr(SqliteStateStream, "dump", dump_and_end)
    assert project.run("backup", "books.backup").code == 0
    monkeypatch.undo()
    monkeypatch.chdir(project.folder)
    assert leases == []

    project.write("gossamer.toml", ELSEWHERE + TOML)
    assert project.run("restore", "books.backup").code == 0
    (job,) = json.loads(project.run("job", "list", "--json").out)
    records = project.run("export", "-o", "-", "--format", "jsonl").out.splitlines()
    assert (job["done"], job["open"], len(records)) == (0, 1, 1)  # fetched again, and never done without its record


def test_a_project_at_work_on_servers_is_backed_up_and_what_is_in_hand_is_queued(project: ProjectFolder) -> None:
    with running_valkey() as valkey:
        project.write("gossamer.toml", f'project = "at-work"\nstate = "{valkey.address()}"\n{TOML}')

        async def hold(system: Project) -> None:
            job, _ = await system.state.jobs.open_job("books", JobTerms(), fresh=False)
            await system.state.frontier.add(job.id, [candidate("https://shop.example/1")])
            await system.state.frontier.lease(job.id, worker_name(), 1)

        project.fill(hold)
        said = project.run("backup", "books.backup")
        assert said.code == 0, said.err
        assert "Workers were at work" in said.err
        assert "Stop these workers before the restored project is started" in " ".join(said.err.split())

    project.write("gossamer.toml", ELSEWHERE + TOML)
    assert project.run("restore", "books.backup").code == 0
    (job,) = json.loads(project.run("job", "list", "--json").out)
    assert (job["open"], job["state"]) == (1, "running")


@pytest.mark.parametrize("kept", [0, 10, 100, -1])
def test_a_torn_file_is_refused_before_anything_is_touched(project: ProjectFolder, kept: int) -> None:
    file = backed_up(project)
    whole = file.read_bytes()
    file.write_bytes(whole[:kept])
    project.write("gossamer.toml", ELSEWHERE + TOML)

    said = project.run("restore", "books.backup")

    assert (said.code, said.out) == (1, "")
    assert "is not a" in said.err
    assert not (project.folder / "new").exists()


@pytest.mark.parametrize("damage", ["a bit", "a frame", "a tail"])
def test_a_damaged_file_is_refused_before_anything_is_touched(project: ProjectFolder, damage: str) -> None:
    file = backed_up(project)
    whole = bytearray(file.read_bytes())
    if damage == "a bit":
        whole[len(whole) // 2] ^= 1
    elif damage == "a frame":  # the second one is lost: what is left is well-formed
        first = len(MAGIC) + 4 + int.from_bytes(whole[len(MAGIC) : len(MAGIC) + 4], "big")
        del whole[first : first + 4 + int.from_bytes(whole[first : first + 4], "big")]
    else:
        whole += b"more"
    file.write_bytes(whole)
    project.write("gossamer.toml", ELSEWHERE + TOML)

    said = project.run("restore", "books.backup")

    assert said.code == 1
    assert "is not a whole backup" in said.err
    assert not (project.folder / "new").exists()


def test_rows_are_spread_over_frames_and_a_row_that_none_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_file, "FULL_FRAME", 100)
    rows = [DumpedSpending(name=f"day/{n}", spent=n) for n in range(20)]
    with BytesIO() as file:
        BackupWriter(file).frame("spending", rows)
        content, place, found = file.getvalue(), len(MAGIC), []
        while place < len(content):
            size = int.from_bytes(content[place : place + 4], "big")
            found.append(backup_file._decoded(content[place + 4 : place + 4 + size])[1])
            place += 4 + size
    assert len(found) > 4
    assert [row for batch in found for row in batch] == rows
    monkeypatch.setattr(backup_file, "MAX_FRAME", 100)
    with pytest.raises(Misconfigured, match="A spending of the project has"):
        BackupWriter(BytesIO()).frame("spending", [DumpedSpending(name="x" * 200, spent=1)])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"PK\x03\x04", "is not a backup"),
        (None, "There is no file"),
        ("newer", "was made by a newer Gossamer"),
        ("other", "Restore it with the one that made it"),
    ],
)
def test_what_is_no_backup_is_told_from_one(project: ProjectFolder, content: bytes | str | None, expected: str) -> None:
    if isinstance(content, str):
        form, prints = (99, 1) if content == "newer" else (1, 99)
        header = BackupHeader(format=form, version="9.9", project="", fingerprints=prints, made_at=NOW, counts={})
        with new_backup(project.folder / "x.backup", header):
            pass
    elif content is not None:
        (project.folder / "x.backup").write_bytes(content)
    said = project.run("restore", "x.backup")
    assert (said.code, said.out) == (1, "")
    assert expected in said.err
    assert len(said.err.splitlines()) == 1


def test_a_project_that_is_there_is_not_overwritten(project: ProjectFolder) -> None:
    backed_up(project)
    before = look(project)
    said = project.run("restore", "books.backup")
    assert said.code == 1
    assert "There is a project at " in said.err
    assert "Nothing was changed" in said.err
    assert look(project) == before


def test_a_restore_that_broke_off_leaves_stores_that_refuse_and_can_be_run_again(
    project: ProjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    backed_up(project)
    before = look(project)
    project.write("gossamer.toml", ELSEWHERE + TOML)
    load = SqliteRecordStream.load
    monkeypatch.setattr(SqliteRecordStream, "load", lambda self, batch: load(self, batch[:1]))

    broken = project.run("restore", "books.backup")

    assert broken.code == 1
    assert "DIFFERS" in broken.out
    refused = project.run("status")
    assert refused.code == 1
    assert "Run `gossamer restore` again" in refused.err
    monkeypatch.undo()
    monkeypatch.chdir(project.folder)
    again = project.run("restore", "books.backup")
    assert again.code == 0, again.err
    assert look(project) == before


def test_a_restore_that_broke_off_between_two_marks_can_be_run_again(
    project: ProjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    backed_up(project)
    before = look(project)
    project.write("gossamer.toml", ELSEWHERE + TOML)
    set_mark = SqliteRecordStream.set_mark

    async def lost(self: SqliteRecordStream, mark: MoveMark | None) -> None:
        if mark is None:
            raise BackendUnavailable("The record store is away.")
        await set_mark(self, mark)

    monkeypatch.setattr(SqliteRecordStream, "set_mark", lost)
    assert project.run("restore", "books.backup").code == 1
    monkeypatch.setattr(SqliteRecordStream, "set_mark", set_mark)

    again = project.run("restore", "books.backup")

    assert again.code == 0, again.err
    assert look(project) == before


def test_a_backup_of_an_old_copy_says_so(project: ProjectFolder) -> None:
    project.fill(crawl_a_little)
    assert project.run("move", "--to-state", "sqlite:///new/state.db").code == 0
    said = project.run("backup", "books.backup")
    assert said.code == 0
    assert "is an old copy" in said.err


def test_a_backup_says_that_results_wait_in_the_spool(project: ProjectFolder) -> None:
    project.fill(crawl_a_little)
    waiting = project.folder / "gossamer-data" / "spool" / "host-1-x.spool"
    waiting.parent.mkdir(parents=True, exist_ok=True)
    waiting.write_bytes(b"")
    said = project.run("backup", "books.backup")
    assert said.code == 0
    assert "they are not in this backup" in said.err

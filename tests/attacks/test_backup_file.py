"""Who hands over a backup file: `gossamer restore` of a file that a stranger made.

Tried:

- rows of wrong types, of unknown kinds, none at all, bytes that are no MessagePack, nesting without end; stores that
  there are not; a checksum that is right
- frames that claim more than the file has, or a terabyte; a frame of few bytes with millions of rows
- numbers that no store can hold, and times that no calendar has
- names of archive files that lead out of the archive
- programs, API keys and callbacks among the rows
- a symbolic link in the place of the file that `gossamer backup` writes

Not prevented: a file can hold more rows than the disk has room for, and whatever records, sessions and queued URLs its
author likes. Restore what you made, or look at it before a worker does.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from msgspec.json import encode

from gossamer.access.contract import ApiKey, Callback, CallbackState
from gossamer.frontier.contract import JobTerms
from gossamer.frontier.state_rows import DumpedRow, DumpedSpending
from gossamer.model.schedule import Schedule
from gossamer.project.open import Project
from gossamer.project.upkeep.move.backup_file import FULL_FRAME, MAGIC, BackupHeader, _decoded, new_backup
from gossamer.project.upkeep.move.copy import FilePiece, SegmentFile
from gossamer.schedule.sources.kinds import CommandSource
from tests.conformance.stores import NOW
from tests.unit.commandline import TOML, ProjectFolder
from tests.unit.commandline import project as project
from tests.unit.test_cli_backup import ELSEWHERE, backed_up, crawl_a_little


def forged(project: ProjectFolder, kind: str, body: bytes, counts: dict[str, dict[str, int]]) -> Path:
    """A file with one frame besides header and trailer, and a checksum that is right."""
    header = BackupHeader(format=1, version="9.9", project="", fingerprints=1, made_at=NOW, counts=counts)
    path = project.folder / "forged.backup"
    with new_backup(path, header) as writer:
        frame = msgspec.msgpack.encode((kind, body))
        writer._put(len(frame).to_bytes(4, "big") + frame)
    return path


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("spending", zstandard.compress(msgspec.msgpack.encode([{"name": 1, "spent": "much"}]))),
        ("spending", zstandard.compress(b"\xc1")),
        ("spending", zstandard.compress(msgspec.msgpack.encode([]))),
        ("spending", b"not compressed"),
        ("spending", b"\x28\xb5\x2f\xfd\xc0\x00" + (2**40).to_bytes(8, "little") + b"\x01\x00\x00"),  # 1 TiB, it says
        ("header", zstandard.compress(msgspec.msgpack.encode([]))),
        ("unknown", zstandard.compress(msgspec.msgpack.encode([]))),
    ],
)
def test_a_forged_file_is_refused_before_anything_is_touched(project: ProjectFolder, kind: str, body: bytes) -> None:
    forged(project, kind, body, {"state": {"budgets": 1}})
    project.write("gossamer.toml", ELSEWHERE + TOML)

    said = project.run("restore", "forged.backup")

    assert (said.code, said.out) == (1, "")
    assert "is not a whole backup" in said.err
    assert not (project.folder / "new").exists()


def test_a_backup_of_other_stores_than_there_are_is_refused(project: ProjectFolder) -> None:
    forged(project, "spending", zstandard.compress(msgspec.msgpack.encode([])), {"wishes": {}})
    assert "is not a whole backup" in project.run("restore", "forged.backup").err


def test_a_frame_that_claims_to_be_longer_than_the_file_is_not_read(project: ProjectFolder) -> None:
    file = backed_up(project)
    file.write_bytes(MAGIC + (2**30).to_bytes(4, "big") + b"x")
    assert "is not a whole backup" in project.run("restore", "books.backup").err


def test_a_restore_names_the_programs_that_the_file_brings(project: ProjectFolder) -> None:
    source = msgspec.json.encode(CommandSource(argv=("curl", "--user", "me:secret"))).decode()

    async def plan(system: Project) -> None:
        await system.state.schedules.put(
            Schedule(name="lists", spider="books", trigger="every 1h", source=source), origin="added"
        )
        await system.state.jobs.open_job("running", JobTerms(source=source), fresh=False)
        ended, _ = await system.state.jobs.open_job("ended", JobTerms(source=source), fresh=False)
        await system.state.control.cancel_job(ended.id)

    project.fill(crawl_a_little)
    project.fill(plan)
    assert project.run("backup", "books.backup").err == ""
    project.write("gossamer.toml", ELSEWHERE + TOML)

    said = project.run("restore", "books.backup")

    assert said.code == 0, said.err
    (line,) = said.err.splitlines()
    assert "schedule lists (curl)" in line
    assert "job running-2 (curl)" in line
    assert "ended" not in line
    assert "secret" not in said.err


def packed(*rows: Any) -> bytes:
    return zstandard.compress(msgspec.msgpack.encode(rows))


def test_millions_of_rows_in_few_bytes_are_not_decoded() -> None:
    row = msgspec.msgpack.encode({"name": "", "spent": 0})
    number = FULL_FRAME // len(row) + 1
    body = zstandard.compress(b"\xdd" + number.to_bytes(4, "big") + row * number)
    assert len(body) < 10_000
    with pytest.raises(ValueError, match="too many rows"):
        _decoded(msgspec.msgpack.encode(("spending", body)))


def test_nesting_without_end_is_damage(project: ProjectFolder) -> None:
    forged(project, "spending", zstandard.compress(b"\x91" * 100_000), {"state": {}})
    assert "is not a whole backup" in project.run("restore", "forged.backup").err


UNFIT = {
    "a number of twenty digits": ("spending", {"name": "day", "spent": 2**64 - 1}),
    "a job with such a number": (
        "job",
        {
            "number": 2**63, "id": "a-1", "name": "a", "state": "running", "sealed": False, "ending": "",
            "created_at": 0.0, "finished_at": None, "terms": {}, "discovered": 0, "duplicates": 0, "retries": 0,
            "redirected": 0,
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "row"), UNFIT.values(), ids=UNFIT)
def test_a_row_that_no_store_can_hold_is_an_error_and_the_store_stays_closed(
    project: ProjectFolder, kind: str, row: dict[str, Any]
) -> None:
    forged(project, kind, packed(row), {"state": {}})

    said = project.run("restore", "forged.backup")

    assert said.code == 1
    assert "holds a row that cannot be stored" in said.err
    assert "Traceback" not in said.err
    assert project.run("status").code == 1


@pytest.mark.parametrize("made_at", [1e300, -1e300, math.inf, math.nan])
def test_a_time_that_no_calendar_has_is_shown_all_the_same(project: ProjectFolder, made_at: float) -> None:
    header = BackupHeader(
        format=1, version="9.9", project="", fingerprints=1, made_at=made_at, counts={"state": {"budgets": 1}}
    )
    with new_backup(project.folder / "forged.backup", header) as writer:
        writer.frame("spending", [DumpedSpending(name="day", spent=1)])

    said = project.run("restore", "forged.backup")

    assert (said.code, said.err) == (0, ""), said


@pytest.mark.parametrize(
    "name",
    [
        "../evil.zst", "/evil.zst", "2027-01-15/../../evil.zst", "2027-01-15/..zst", "2027-01-15\\evil.zst",
        "2027-01-15/a\0.zst", "2027-01-15/a.zst\n", "files/ab/evil.zst", "2027-01-15/sub/evil.zst", "",
    ],
)  # fmt: skip
def test_no_file_is_written_outside_of_the_archive(project: ProjectFolder, name: str) -> None:
    forged(project, "segment", packed(SegmentFile(name, b"x")), {"archive": {"files": 1, "bytes": 1}})
    before = {path for path in project.folder.parent.rglob("*") if path.suffix == ".zst"}

    said = project.run("restore", "forged.backup")

    assert said.code == 1
    assert "is not the name of an archive file" in said.err
    assert {path for path in project.folder.parent.rglob("*") if path.suffix == ".zst"} == before


@pytest.mark.parametrize("name", ["../../../evil", "/evil", "ab" * 32, ""])
def test_a_file_with_another_name_than_its_hash_is_not_written(project: ProjectFolder, name: str) -> None:
    forged(project, "file", packed(FilePiece(name, b"x", last=True)), {"archive": {"downloads": 1}})
    before = set(project.folder.parent.rglob("*"))

    said = project.run("restore", "forged.backup")

    assert said.code == 1
    assert "is not what its name says" in said.err
    assert {path for path in project.folder.parent.rglob("*") if path.is_file()} <= before


@pytest.mark.parametrize(
    ("kind", "value"), [("mischief", b"{}"), ("audit", b"{}"), ("key", b'{"id": 1}'), ("key", b"no JSON")]
)
def test_a_row_of_the_shelf_that_nobody_can_read_is_refused_before_anything_is_written(
    project: ProjectFolder, kind: str, value: bytes
) -> None:
    header = BackupHeader(format=1, version="9.9", project="", fingerprints=1, made_at=NOW, counts={})
    row = {"kind": kind, "key": "x", "value": value}
    with new_backup(project.folder / "forged.backup", header) as writer:
        writer.frame("shelf", [row])

    refused = project.run("restore", "forged.backup")

    assert refused.code == 1
    assert "Nothing was changed" in refused.err
    assert "Traceback" not in refused.err
    assert not (project.folder / ".gossamer" / "state.db").exists()


def test_a_restore_names_the_keys_and_callbacks_that_the_file_brings(project: ProjectFolder) -> None:
    key = ApiKey(id="k1", name="helpdesk", digest="0" * 64, scopes=("admin",), created_at=NOW)
    old = ApiKey(id="k2", name="old", digest="1" * 64, scopes=("read",), created_at=NOW, revoked_at=NOW)
    call = Callback(id="c1", owner="k1", url="https://me:secret@thief.example/x", made_at=NOW, job="books-1")
    sent = Callback(id="c2", owner="k1", url="https://past.example/", made_at=NOW, state=CallbackState.DELIVERED)
    counts = {"state": {"keys": 2, "callbacks": 2}}
    header = BackupHeader(format=1, version="9.9", project="", fingerprints=1, made_at=NOW, counts=counts)
    with new_backup(project.folder / "forged.backup", header) as writer:
        kinds = {"key": (key, old), "callback": (call,), "callback-ended": (sent,)}
        shelf = [DumpedRow(kind=kind, key=one.id, value=encode(one)) for kind, ones in kinds.items() for one in ones]
        writer.frame("shelf", shelf)

    said = project.run("restore", "forged.backup")

    assert said.code == 0, said
    keys, callbacks = said.err.splitlines()
    assert "helpdesk (admin)" in keys
    assert "old" not in keys
    assert "thief.example (books-1)" in callbacks
    assert "past.example" not in callbacks
    assert "secret" not in said.err


def test_a_link_in_the_place_of_the_new_file_is_not_followed(project: ProjectFolder) -> None:
    project.fill(crawl_a_little)
    precious = project.write("precious.txt", "all I have")
    (project.folder / "books.backup.part").symlink_to(precious)

    assert project.run("backup", "books.backup").code == 0

    assert precious.read_text() == "all I have"


def test_a_backup_that_is_a_link_is_left_alone(project: ProjectFolder) -> None:
    project.fill(crawl_a_little)
    precious = project.write("precious.txt", "all I have")
    (project.folder / "books.backup").symlink_to(precious)
    assert project.run("backup", "books.backup").code == 1
    assert precious.read_text() == "all I have"

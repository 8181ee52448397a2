"""State files that are not ours, folders that cannot be written to: one line, and nothing of the user's is touched."""

from __future__ import annotations

import sqlite3

import pytest

from tests.journey.commands import QUICK, as_anybody, gossamer
from tests.sites.hostile import hostile_site


@pytest.fixture
async def site():
    async with hostile_site() as site:
        yield site


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "gossamer.toml").write_text(QUICK)
    (tmp_path / "gossamer-data").mkdir()
    return tmp_path


@pytest.mark.parametrize("role", ["state", "records"])
async def test_a_file_that_is_not_sqlite_is_named_and_left_as_it_is(folder, site, role):
    file = folder / "gossamer-data" / f"{role}.db"
    file.write_bytes(b"Dear diary, " * 1000)

    line = (await gossamer(folder, "crawl", site.url("/plain"))).one_line()

    assert f"{role}.db is damaged or not a SQLite file" in line
    assert f"Move it away, or set {role} to another path." in line
    assert file.read_bytes() == b"Dear diary, " * 1000
    assert site.log == []


async def test_a_sqlite_file_of_another_program_is_named_and_left_as_it_is(folder, site):
    file = folder / "gossamer-data" / "state.db"
    with sqlite3.connect(file) as diary:
        diary.execute("CREATE TABLE diary (day TEXT)")
    diary.close()

    assert "not a Gossamer state file" in (await gossamer(folder, "crawl", site.url("/plain"))).one_line()
    with sqlite3.connect(file) as diary:
        assert diary.execute("SELECT name FROM sqlite_master").fetchall() == [("diary",)]
    diary.close()


async def test_a_file_of_a_build_before_the_first_release_is_refused_in_a_sentence_and_by_doctor(folder, site):
    assert (await gossamer(folder, "crawl", site.url("/plain"), "--quiet")).code == 0
    with sqlite3.connect(folder / "gossamer-data" / "records.db") as records:
        records.execute("ALTER TABLE seen_by ADD COLUMN colour TEXT")
    records.close()

    line = (await gossamer(folder, "crawl", site.url("/plain"))).one_line()
    told = (await gossamer(folder, "doctor")).out

    assert "before 0.1.0, whose files are not read. Export what you need with that version" in line
    assert "before 0.1.0, whose files are not read. Export what you need with that version" in told


async def test_a_state_file_of_a_newer_version_asks_for_an_upgrade_and_is_left_as_it_is(folder, site):
    assert (await gossamer(folder, "crawl", site.url("/plain"), "--quiet")).code == 0
    with sqlite3.connect(folder / "gossamer-data" / "state.db") as state:
        state.execute("PRAGMA user_version = 99")
    state.close()
    asked = len(site.log)

    line = (await gossamer(folder, "crawl", site.url("/plain"))).one_line()

    assert "was written by a newer Gossamer (schema 99" in line
    assert "Upgrade Gossamer" in line
    assert len(site.log) == asked


@pytest.mark.parametrize("name", ["state.db", "records.db", "archive"])
async def test_something_else_in_the_place_of_our_files_is_named(folder, site, name):
    place = folder / "gossamer-data" / name
    place.write_text("") if name == "archive" else place.mkdir()
    assert name in (await gossamer(folder, "crawl", site.url("/plain"))).one_line()


async def test_a_folder_that_cannot_be_written_to_is_named(folder, site):
    (folder / "gossamer-data").rmdir()
    folder.chmod(0o555)
    line = (await gossamer(folder, "crawl", site.url("/plain"), before=as_anybody)).one_line()
    assert "gossamer-data cannot be created (Permission denied)" in line
    assert "to a place you may write to" in line


async def test_files_that_may_only_be_read_are_named(folder, site):
    assert (await gossamer(folder, "crawl", site.url("/plain"), "--quiet")).code == 0
    for name in ("state.db", "records.db"):
        (folder / "gossamer-data" / name).chmod(0o444)
    (folder / "gossamer-data").chmod(0o555)

    line = (await gossamer(folder, "crawl", site.url("/plain"), before=as_anybody)).one_line()

    assert ".db cannot be opened for writing" in line
    assert "Check its permissions" in line


async def test_an_output_that_cannot_be_written_is_known_before_the_crawl(folder, site):
    closed = folder / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    said = await gossamer(folder, "crawl", site.url("/plain"), "-o", "closed/items.csv", before=as_anybody)
    assert "closed/items.csv cannot be written (Permission denied). Choose another place." in said.one_line()
    assert site.log == []


async def test_a_project_file_that_cannot_be_read_is_named(folder, site):
    (folder / "gossamer.toml").chmod(0o000)
    line = (await gossamer(folder, "crawl", site.url("/plain"), before=as_anybody)).one_line()
    assert "gossamer.toml cannot be read" in line


async def test_a_spider_file_that_cannot_be_read_is_named(folder, site):
    (folder / "books.py").write_text("x = 1")
    (folder / "books.py").chmod(0o000)
    assert "PermissionError" in (await gossamer(folder, "crawl", "books.py", before=as_anybody)).one_line()

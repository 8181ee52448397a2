"""`gossamer move` as a person meets it: what it prints, what it refuses, what it writes. From file to file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gossamer.backends.folder.archive import FolderArchive
from gossamer.backends.sqlite.records import SqliteRecordStream
from gossamer.backends.sqlite.state_stream import SqliteStateStream
from gossamer.backends.worker_names import worker_name
from gossamer.cli.move import masked_address, with_keys
from gossamer.errors import Misconfigured
from gossamer.frontier.contract import JobTerms, WorkerCard
from gossamer.frontier.state_rows import DumpedUrl
from gossamer.model.page import Headers, Snapshot
from gossamer.model.task import UrlState
from gossamer.project.open import Project
from gossamer.store.record_rows import DumpedPage, DumpedRecord

from ..conformance.stores import NOW, book, page_of, result
from ..services.postgres import PASSWORD, PostgresServer, schema_of
from .commandline import TOML, ProjectFolder, candidate, on_a_terminal
from .commandline import project as project

THERE = ("--to-state", "sqlite:///new/state.db", "--to-records", "sqlite:///new/records.db")
PAGES = ("--to-archive", "folder:///new/archive")
BACK = (
    "--to-state", "sqlite:///gossamer-data/state.db", "--to-records", "sqlite:///gossamer-data/records.db",
    "--to-archive", "folder:///gossamer-data/archive",
)  # fmt: skip


async def crawl_a_little(system: Project) -> None:
    job, _ = await system.state.jobs.open_job("books", JobTerms(), fresh=False)
    await system.state.frontier.add(job.id, [candidate(f"https://shop.example/{n}") for n in range(4)])
    first, second = (await system.state.frontier.lease(job.id, "elsewhere/1/1", 2)).leases
    url = first.task.url
    emma = Snapshot(url=url, requested_url=url, status=200, headers=Headers(), body=b"<h1>Emma", fetched_at=NOW)
    (reference,) = await system.archive.put([emma])
    visit = result(book("0"), page=page_of(url, archive_ref=reference))
    await system.records.save([visit, result(book("1"))])
    await system.state.frontier.complete(first, UrlState.DONE)
    await system.state.frontier.retry(second, timedelta(hours=1), "timeout")


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_move_prints_both_sides_and_the_lines_to_write(project: ProjectFolder) -> None:
    project.fill(crawl_a_little)
    said = project.run("move", *THERE, *PAGES)

    assert said.code == 0, said.err
    rows = {" ".join(line.split()) for line in said.lines}
    assert {"books-1 done 1 1 same", "books-1 queued 2 2 same", "books-1 waiting 1 1 same"} <= rows
    assert {"records 2 2 same", "attempts 2 2 same", "archived visits 1 1 same", "files 1 1 same"} <= rows
    assert 'state = "sqlite:///new/state.db"' in said.lines
    assert 'archive = "folder:///new/archive"' in said.lines
    assert "The move is complete" in said.out
    assert (project.folder / "gossamer.toml").read_text() == TOML

    # Written into the file, they give the same project.
    before = project.run("status", "--json").json
    project.write("gossamer.toml", with_keys(TOML, {"state": THERE[1], "records": THERE[3], "archive": PAGES[1]}))
    after = project.run("status", "--json")
    assert after.json == before
    assert after.err == ""


def test_a_rehearsal_counts_and_makes_nothing(project: ProjectFolder) -> None:
    project.fill(crawl_a_little)
    before = files_below(project.folder)

    said = project.run("move", *THERE, *PAGES, "--dry-run")

    assert said.code == 0, said.err
    assert {"books-1 queued 2 0 -", "records 2 0 -"} <= {" ".join(line.split()) for line in said.lines}
    assert "Nothing was moved" in said.out
    assert files_below(project.folder) == before
    assert project.run("status").err == ""


def test_write_changes_the_addresses_and_keeps_all_else(project: ProjectFolder) -> None:
    project.fill(crawl_a_little)
    text = '# ours\nstate = "sqlite:///gossamer-data/state.db"  # old\n' + TOML
    project.write("gossamer.toml", text)

    said = project.run("move", *THERE, "--project", "books", "--write")

    assert said.code == 0, said.err
    assert "What is at gossamer-data/state.db and gossamer-data/records.db was not changed" in said.out
    assert "Not moved, and still in use: gossamer-data/archive." in said.out
    assert (project.folder / "gossamer.toml.bak").read_text() == text
    written = (project.folder / "gossamer.toml").read_text()
    assert tomllib.loads(written) == {
        "state": THERE[1], "records": THERE[3], "project": "books", **tomllib.loads(TOML),
    }  # fmt: skip
    assert written.startswith("# ours\n")
    assert project.run("status", "--json").json[0]["counts"]["queued"] == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "Name the targets"),
        (("--to-records", "cG9zdGdyZXM6c2VjcmV0"), "records is not an address. Write"),
        (("--to-state", "mysql://host/x"), "state = 'mysql://host/x' is not an address that a backend supports"),
        (("--to-records", "redis://host/0"), "records = 'redis://host/0' is not an address that a backend supports"),
        (("--to-state", "sqlite:///gossamer-data/state.db"), "already. Name another address"),
        (("--to-state", "redis://:hunter2@127.0.0.1:1/0", "--project", "x"), "cannot be reached"),
        (("--to-state", "redis://127.0.0.1:1/0"), "or --project books of `gossamer move`"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(project: ProjectFolder, words: tuple[str, ...], expected: str) -> None:
    project.fill(crawl_a_little)
    said = project.run("move", *words)
    assert (said.code, said.out) == (1, "")
    assert len(said.err.splitlines()) == 1
    assert expected in said.err
    assert "hunter2" not in said.err


def test_on_a_terminal_progress_is_shown_while_it_lasts(project: ProjectFolder) -> None:
    project.fill(crawl_a_little)
    seen = on_a_terminal(project.folder, "move", *THERE, *PAGES, columns=100)
    for told in ("4/4", "4/4", "The move is complete"):  # four URLs; two pages and two records
        assert told in seen
        seen = seen[seen.index(told) + len(told) :]


def test_nothing_to_move_makes_nothing(project: ProjectFolder) -> None:
    said = project.run("move", *THERE)
    assert said.code == 1
    assert "nothing has been crawled yet" in said.err
    assert files_below(project.folder) == {"gossamer.toml"}


def test_a_project_at_work_is_not_moved(project: ProjectFolder) -> None:
    async def hold(system: Project) -> None:
        job, _ = await system.state.jobs.open_job("books", JobTerms(), fresh=False)
        await system.state.frontier.add(job.id, [candidate("https://shop.example/1")])
        await system.state.frontier.lease(job.id, worker_name(), 1)

    project.fill(hold)
    said = project.run("move", *THERE)
    assert said.code == 1
    assert f"1 of the project's workers are at work ({worker_name()})" in said.err
    assert not (project.folder / "new").exists()


def test_a_worker_that_just_gave_a_sign_of_life_is_at_work(project: ProjectFolder) -> None:
    async def beat(system: Project) -> None:
        await crawl_a_little(system)
        for name, age in (("far/1/1", 5), ("faded/1/1", 500)):
            now = system.clock.now()
            card = WorkerCard(name=name, host="far", pid=1, version="1", started_at=now - 900, seen_at=now - age)
            await system.state.workers.beat(card)

    project.fill(beat)
    said = project.run("move", *THERE)
    assert said.code == 1
    assert "1 of the project's workers are at work (far/1/1)" in said.err


def test_a_target_that_holds_a_project_is_left_alone(project: ProjectFolder) -> None:
    project.fill(crawl_a_little)
    assert project.run("move", *THERE).code == 0

    said = project.run("move", *THERE)

    assert said.code == 1
    assert "There is a project at " in said.err
    assert "already (jobs: 1). Nothing was changed." in said.err
    assert "`gossamer move --project NAME`" in said.err
    assert "Nothing was changed" in said.err


def test_the_old_copy_warns_and_takes_the_project_back(project: ProjectFolder) -> None:
    project.fill(crawl_a_little)
    text = (project.folder / "gossamer.toml").read_text()
    assert project.run("move", *THERE, *PAGES, "--write").code == 0
    moved = (project.folder / "gossamer.toml").read_text()

    # whoever looks at the old place is told
    project.write("gossamer.toml", text)
    said = project.run("status")
    assert said.code == 0
    assert said.err.count("is an old copy: it was moved to") == 2
    assert "new/state.db" in said.err

    # the way back is open, and afterwards the other side is the old copy
    project.write("gossamer.toml", moved)
    project.fill(more_work)
    back = project.run("move", *BACK, "--write")
    assert back.code == 0, back.err
    assert project.run("status").err == ""
    assert project.run("status", "--json").json[0]["counts"]["queued"] == 3
    project.write("gossamer.toml", moved)
    assert "is an old copy" in project.run("status").err


async def more_work(system: Project) -> None:
    await system.state.frontier.add("books-1", [candidate("https://shop.example/more")])


def test_an_old_copy_that_was_worked_on_is_not_overwritten(project: ProjectFolder) -> None:
    project.fill(crawl_a_little)
    assert project.run("move", *THERE, *PAGES).code == 0
    project.fill(more_work)
    project.write("gossamer.toml", with_keys(TOML, {"state": THERE[1], "records": THERE[3], "archive": PAGES[1]}))

    said = project.run("move", *BACK)

    assert said.code == 1
    assert "has been worked on since" in said.err


@pytest.mark.parametrize(("stream", "role"), [(SqliteStateStream, "state"), (SqliteRecordStream, "records")])
def test_what_did_not_arrive_is_named_and_the_target_refuses_work(
    project: ProjectFolder, monkeypatch: pytest.MonkeyPatch, stream: type, role: str
) -> None:
    # given a disk that swallows the last thing of every batch
    project.fill(crawl_a_little)
    load = stream.load
    monkeypatch.setattr(stream, "load", lambda self, batch: load(self, batch[: max(1, len(batch) - 1)]))

    said = project.run("move", *THERE)

    assert said.code == 1
    assert "DIFFERS" in said.out
    assert "The two sides are not the same" in said.err
    assert f"  {role}: " in said.err
    assert "here" in said.err
    # then the source can be used, and the target cannot
    assert project.run("status").err == ""
    project.write("gossamer.toml", with_keys(TOML, {"state": THERE[1], "records": THERE[3]}))
    refused = project.run("status")
    assert refused.code == 1
    assert "is not complete" in refused.err
    # and the same command again, on a better day, repairs it
    monkeypatch.undo()
    monkeypatch.chdir(project.folder)
    project.write("gossamer.toml", TOML)
    assert project.run("move", *THERE, "--write").code == 0
    assert project.run("status", "--json").json[0]["counts"]["queued"] == 2


def spoil_depth(items: Sequence[Any]) -> list[Any]:
    return [replace(item, depth=item.depth + 1) if isinstance(item, DumpedUrl) else item for item in items]


def spoil_data(items: Sequence[Any]) -> list[Any]:
    return [replace(item, data='{"title":"Emmq"}') if isinstance(item, DumpedRecord) else item for item in items]


def spoil_attempts(items: Sequence[Any]) -> list[Any]:
    spoilt = [tuple(replace(one, status=500) for one in getattr(item, "attempts", ())) for item in items]
    return [
        replace(item, attempts=attempts) if isinstance(item, DumpedPage) else item
        for item, attempts in zip(items, spoilt, strict=True)
    ]


@pytest.mark.parametrize(
    ("stream", "spoil", "expected"),
    [
        (SqliteStateStream, spoil_depth, "is not the same there (depth)"),
        (SqliteRecordStream, spoil_data, "the history of Book '0' is not the same there"),
        (SqliteRecordStream, spoil_attempts, "what is known of https://shop.example/0 is not the same there"),
    ],
)
def test_contents_that_changed_on_the_way_are_found_though_all_counts_are_the_same(
    project: ProjectFolder, monkeypatch: pytest.MonkeyPatch, stream: type, spoil: Callable[[Any], Any], expected: str
) -> None:
    project.fill(crawl_a_little)
    load = stream.load
    monkeypatch.setattr(stream, "load", lambda self, batch: load(self, spoil(batch)))

    said = project.run("move", *THERE)

    assert said.code == 1
    assert "DIFFERS" not in said.out
    assert expected in said.err


def test_a_raw_page_that_changed_on_the_way_is_found(project: ProjectFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    project.fill(crawl_a_little)
    write = FolderArchive.write_segment

    def spoil(archive: FolderArchive, name: str, content: bytes) -> Any:
        return write(archive, name, content[:-1] + bytes([content[-1] ^ 1]))

    monkeypatch.setattr(FolderArchive, "write_segment", spoil)

    said = project.run("move", *THERE, *PAGES)

    assert said.code == 1
    assert "archive: the file " in said.err
    assert "archive: the page " in said.err


def test_another_file_of_the_same_name_is_not_overwritten(project: ProjectFolder) -> None:
    project.fill(crawl_a_little)
    (segment,) = (project.folder / "gossamer-data" / "archive").rglob("*.zst")
    name = segment.relative_to(project.folder / "gossamer-data")
    theirs = project.write(f"new/{name}", "another project's pages")

    said = project.run("move", *PAGES)

    assert said.code == 1
    assert f"has another file {name.relative_to('archive')}" in said.err
    assert theirs.read_text() == "another project's pages"


def test_a_password_is_never_printed(project: ProjectFolder, postgres: PostgresServer, tmp_path: Path) -> None:
    project.fill(crawl_a_little)
    address = f"{postgres.address(password=PASSWORD)}?schema={schema_of(tmp_path)}"

    said = project.run("move", "--to-records", address)

    assert said.code == 0, said.err
    assert PASSWORD not in said.out + said.err
    host = f"127.0.0.1:{postgres.port}"
    assert f'records = "postgresql://postgres:***@{host}/postgres?schema={schema_of(tmp_path)}"' in said.lines


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://:pa55@host/0", "redis://:***@host/0"),
        ("postgresql://me:pa55@host/db?sslmode=require", "postgresql://me:***@host/db?sslmode=require"),
        ("postgresql://me@host/db?password=pa55&schema=x", "postgresql://me@host/db?password=***&schema=x"),
        ("postgresql://me:pa/55@host/db", "postgresql://***"),
        ("s3://bucket/x?endpoint=http://127.0.0.1:9000", "s3://bucket/x?endpoint=http://127.0.0.1:9000"),
        ("redis://[::1", "***"),
    ],
)
def test_addresses_are_shown_without_secrets(address: str, expected: str) -> None:
    assert masked_address(address) == expected


def test_keys_are_set_where_toml_wants_them() -> None:
    assert with_keys("", {"state": "a"}) == 'state = "a"\n'
    assert with_keys('state="x"\n[crawl]\ndepth = 1\n', {"state": "a"}) == 'state = "a"\n[crawl]\ndepth = 1\n'
    assert with_keys("[crawl]\nstate = 1\n", {"state": "a"}) == 'state = "a"\n\n[crawl]\nstate = 1\n'


@pytest.mark.parametrize("text", ['spiders = """\nstate = 1\n"""\n', 'state = """\nx"""\n', "state = [\n1]\n"])
def test_a_file_that_would_change_in_other_places_is_left_alone(text: str) -> None:
    with pytest.raises(Misconfigured, match="write the new addresses into it yourself"):
        with_keys(text, {"state": "a"})

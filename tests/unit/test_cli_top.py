"""`gossamer top`, as a user sees it."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess

import pytest

from gossamer.errors import BackendUnavailable
from gossamer.project.records import figures
from tests.patience import PATIENCE
from tests.unit.commandline import COMMAND
from tests.unit.commandline import project as project
from tests.unit.crawled import crawl_half


@pytest.fixture
def crawled(project):
    project.fill(crawl_half)
    return project


def test_top_where_nothing_was_crawled_says_how_to_begin(project):
    said = project.run("top", "--once")

    assert said.code == 1
    assert "gossamer crawl" in said.err
    assert not (project.folder / "gossamer-data").exists()


def test_top_in_a_pipe_is_plain_and_whole(crawled):
    said = crawled.run("top")

    assert said.code == 0
    assert "\x1b" not in said.out
    lines = {line.split()[0]: line for line in said.lines if line}
    assert "6 open: 3 queued, 2 waiting, 1 in progress; 2 dead letters" in lines["queue"]
    assert lines["books-1"].split()[2] == "6"  # open
    assert "slow.example" in lines
    assert "shop.example" in lines
    assert "0.0%" not in lines["success"]


def test_top_for_programs_has_the_same_numbers(crawled):
    told = crawled.run("top", "--json").json

    assert (told["queue"]["open"], told["dead_letters"], told["running_jobs"]) == (6, 2, 1)
    assert len(told["pace"]["by_minute"]) == 30
    assert told["pace"]["pages"] == told["pace"]["counted"] > 0


def test_top_without_the_record_store_says_so_and_shows_the_rest(crawled, monkeypatch):
    async def gone(*_: object, **__: object) -> None:
        raise BackendUnavailable("PostgreSQL at db:5432 does not answer.")

    monkeypatch.setattr("gossamer.project.jobs.top.history", gone)
    said = crawled.run("top", "--once")

    assert figures.history is not gone
    assert "db:5432 does not answer" in said.out
    assert "books-1" in said.out


def test_top_on_a_terminal_is_live_until_ctrl_c(crawled):
    leader, follower = pty.openpty()
    environ = {**os.environ, "COLUMNS": "100", "LINES": "30", "TERM": "xterm-256color"}
    with subprocess.Popen(
        [COMMAND, "top", "--every", "0.5"], cwd=crawled.folder, stdin=follower, stdout=follower, stderr=follower,
        env=environ, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(follower)
        written = b""
        while written.count(b"pages/s") < 3:
            assert select.select([leader], [], [], PATIENCE)[0], written
            written += os.read(leader, 65536)
        process.send_signal(signal.SIGINT)
        code = process.wait(PATIENCE)
        os.close(leader)

    assert code == 0
    assert b"Traceback" not in written
    assert b"books-1" in written

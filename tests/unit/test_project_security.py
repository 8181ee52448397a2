"""The posture of a project, as `gossamer doctor --security` tells it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gossamer.project.access import security
from gossamer.project.access.security import posture
from gossamer.project.upkeep.doctor import Level

from .commandline import ProjectFolder, project

__all__ = ["project"]


def found(folder: Path) -> dict[str, tuple[str, str]]:
    return {one.what: (one.level.value, one.detail) for one in posture(folder)}


async def nothing(_: object) -> None:
    """The stores are made when they are opened."""


def test_a_new_project_has_nothing_that_others_can_read(project: ProjectFolder):
    project.fill(nothing)
    told = found(project.folder)
    assert told["project"][0] == told["data"][0] == told["addresses"][0] == told["programs"][0] == "ok"
    assert told["data"][1] == "no other user can read it"


def test_what_others_can_read_is_told(project: ProjectFolder, monkeypatch):
    project.fill(nothing)
    data = project.folder / "gossamer-data"
    data.chmod(0o755)
    # The folders around it are pytest's own, and nobody else can enter them.
    closed = security._closed
    monkeypatch.setattr(security, "_closed", lambda folder: folder.is_relative_to(data) and closed(folder))
    (data / "records.db").chmod(0o644)
    (project.folder / "gossamer.toml").write_text('[fleet]\nkey = "0123456789abcdef"\n')
    told = found(project.folder)
    assert told["data"] == ("warn", f"other users can read {data / 'records.db'}")
    assert told["secrets"][0] == "warn"
    assert "fleet.key" in told["secrets"][1]
    data.chmod(0o700)
    assert found(project.folder)["data"][0] == "ok"


@pytest.mark.parametrize(
    ("toml", "what", "level", "words"),
    [
        ("[fetch]\nallow_private = true", "addresses", "warn", "into your own network"),
        ('[fetch]\nallow_hosts = ["a.example"]\ndeny = ["203.0.113.0/24"]', "addresses", "ok", "never 203.0.113.0/24"),
        ('state = "redis://q.example/0"\nproject = "x"', "state", "warn", "not encrypted"),
        (
            'state = "rediss://q.example/0"\nproject = "x"\n[fleet]\nkey = "0123456789abcdef"',
            "state",
            "ok",
            "encrypted",
        ),
        ('state = "redis://q.example/0"\n[fleet]\nallow_commands = true', "programs", "fail", "on every worker"),
        ('records = "postgresql://db.example/x"', "records", "warn", "not encrypted"),
        ('records = "postgresql://db.example/x?sslmode=verify-full"', "records", "ok", "encrypted"),
        ('archive = "s3://pages?endpoint=http://minio.example"', "archive", "warn", "not encrypted"),
        ('[schedules.a]\nspider = "x"\nevery = "1d"\ncommand = ["list"]', "programs", "ok", "list (a)"),
        ("[crawl]\ndepht = 1", "project", "fail", "crawl.depth"),
    ],
)
def test_the_settings_are_judged(project: ProjectFolder, toml: str, what: str, level: str, words: str):
    project.write("gossamer.toml", toml)
    told = found(project.folder)
    assert (told[what][0], words in told[what][1]) == (level, True), told


def test_a_browser_without_its_sandbox_is_told(project: ProjectFolder, monkeypatch):
    monkeypatch.setattr(security, "is_there", lambda executable: None)
    for user, level in ((0, "warn"), (1000, "ok")):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        monkeypatch.setenv("GOSSAMER_TRUST", str(project.folder))
        told = found(project.folder)
        assert (told["browser"][0], told["user"][0]) == (level, level)
        assert told["project"][0] == "warn"


def test_the_command_prints_it_and_fails_where_others_could_run_programs(project: ProjectFolder):
    said = project.run("doctor", "--security", "--json")
    assert said.code == 0
    assert {one["what"] for one in said.json} >= {"user", "project", "data", "addresses", "browser", "programs"}
    (project.folder / "gossamer.toml").chmod(0o666)
    said = project.run("doctor", "--security")
    assert said.code == 1
    assert "GOSSAMER_TRUST" in said.out
    assert Level.FAIL.value in said.out

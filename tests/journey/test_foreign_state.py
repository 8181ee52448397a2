"""Somebody can write to the server that holds the state. The workers run no program and read no file for that; what the
owner of the project vouches for still runs."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import redis

from gossamer.errors import Misconfigured
from gossamer.model.events import Event, EventHub, Trouble
from gossamer.model.job import JobState, JobTerms
from gossamer.project.jobs.slots import PoolTerms
from gossamer.project.jobs.worker_pool import WorkerPool
from gossamer.project.open import Project, open_project
from gossamer.project.schedules.changes import ADDED, add_schedule, new_schedule, run_schedule
from gossamer.schedule.sources import parse_source
from gossamer.settings import ScheduleTable, Settings, load
from tests.docs.manual import ROOT
from tests.services.valkey import PASSWORD, ValkeyServer

SPIDER = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
from gossamer import Spider

class Things(Spider):
    def parse(self, page):
        return []
"""
KEY = "0123456789abcdef0123456789abcdef"


class Ears:
    def __init__(self) -> None:
        self.troubles: list[str] = []

    def emit(self, event: Event) -> None:
        if isinstance(event, Trouble):
            self.troubles.append(event.message)


def settings_in(folder: Path, server: ValkeyServer, toml: str = "", **flags: Any) -> Settings:
    (folder / "spiders").mkdir()
    (folder / "spiders" / "things.py").write_text(SPIDER, encoding="utf-8")
    (folder / "gossamer.toml").write_text(toml, encoding="utf-8")
    shared = {"state": server.address(), "project": uuid4().hex, "politeness.rate": "unlimited"}
    return load(start=folder, environ={}, flags={**shared, **flags})


def touching(folder: Path) -> list[str]:
    return ["touch", str(folder / "command-ran")]


async def plant(project: Project, **terms: Any) -> str:
    """Write a job into the state, as everybody can who reaches the server."""
    written = JobTerms(**{"schedule": "nightly", "spider": "things", **terms})
    job, _ = await project.state.jobs.open_job("nightly", written, fresh=True)
    return job.id


async def serve(project: Project) -> list[str]:
    ears = Ears()
    pauses = PoolTerms(source_pauses=(timedelta(0),))
    await WorkerPool(project, EventHub(ears), until_idle=True, terms=pauses).run()
    return ears.troubles


def source(**table: Any) -> str:
    return msgspec.json.encode(parse_source(table)).decode()


async def test_a_command_that_only_the_state_names_is_not_run(tmp_path: Path, valkey: ValkeyServer) -> None:
    async with open_project(settings_in(tmp_path, valkey)) as project:
        job = await plant(project, source=source(command=touching(tmp_path)))
        troubles = await serve(project)
        assert not (tmp_path / "command-ran").exists()
        assert any("fleet.allow_commands" in words for words in troubles)
        standing = await project.state.jobs.job(job)
        assert standing is not None
        assert standing.state is JobState.RUNNING  # for a worker that may run it


@pytest.mark.parametrize("ref", ["{away}/things.py", "{away}/things.py:Things", "../{name}/things.py"])
async def test_a_spider_outside_of_the_project_is_not_run(
    tmp_path: Path, tmp_path_factory, valkey: ValkeyServer, ref: str
) -> None:
    away = tmp_path_factory.mktemp("away")
    (away / "things.py").write_text(SPIDER, encoding="utf-8")
    folder = tmp_path_factory.mktemp("project")
    async with open_project(settings_in(folder, valkey)) as project:
        await plant(project, spider=ref.format(away=away, name=away.name))
        troubles = await serve(project)
        assert not (away / "ran").exists()
        assert any("only the state names" in words for words in troubles)


async def test_a_file_outside_of_the_project_is_not_read(
    tmp_path: Path, tmp_path_factory, valkey: ValkeyServer
) -> None:
    secrets = tmp_path_factory.mktemp("away") / "passwords"
    secrets.write_text("root:hunter2\n")
    async with open_project(settings_in(tmp_path, valkey)) as project:
        await plant(project, source=source(file=str(secrets)))
        troubles = await serve(project)
        assert any("only the state names" in words for words in troubles)
        assert not any("hunter2" in words for words in troubles)


@pytest.mark.parametrize("vouched", ["file", "allowed"])
async def test_a_command_of_our_own_settings_is_run(tmp_path: Path, valkey: ValkeyServer, vouched: str) -> None:
    toml = f'[schedules.other]\nspider = "things"\nevery = "1d"\ncommand = {touching(tmp_path)}\n'
    settings = (
        settings_in(tmp_path, valkey, toml)
        if vouched == "file"
        else settings_in(tmp_path, valkey, **{"fleet.allow_commands": True})
    )
    async with open_project(settings) as project:
        await plant(project, source=source(command=touching(tmp_path)))
        await serve(project)
        assert (tmp_path / "command-ran").exists()


async def test_with_a_key_what_bears_its_seal_is_run_and_nothing_else(tmp_path: Path, valkey: ValkeyServer) -> None:
    settings = settings_in(tmp_path, valkey, **{"fleet.key": KEY})
    table = ScheduleTable(spider="things", every="1d", command=tuple(touching(tmp_path)))
    async with open_project(settings) as project:
        planted = await plant(project, source=source(command=touching(tmp_path)))
        troubles = await serve(project)
        assert not (tmp_path / "command-ran").exists()
        assert any("seal" in words for words in troubles)
        await project.state.jobs.close_job(planted, "cancelled")

        await add_schedule(project, new_schedule(settings, "mine", table))
        run = await run_schedule(project, "mine")
        honest = await project.state.jobs.terms(run.job)
        await serve(project)
        assert (tmp_path / "command-ran").exists()

        # Sealed terms of one job are worth nothing for another one, and neither is a part of them.
        (tmp_path / "command-ran").unlink()
        changed = msgspec.structs.replace(honest, source=source(command=[*touching(tmp_path), "more"]))
        for number, (name, terms) in enumerate([("another", honest), ("mine", changed)]):
            await project.state.jobs.open_job(name, terms, fresh=True)
            await serve(project)
            assert not (tmp_path / "command-ran").exists(), number


async def test_with_a_key_a_schedule_that_was_planted_begins_no_run(tmp_path: Path, valkey: ValkeyServer) -> None:
    settings = settings_in(tmp_path, valkey, **{"fleet.key": KEY})
    table = ScheduleTable(spider="things", every="1d", command=tuple(touching(tmp_path)))
    async with open_project(settings) as project:
        honest = new_schedule(settings, "mine", table).schedule
        await project.state.schedules.put(msgspec.structs.replace(honest, priority=7), origin=ADDED)
        with pytest.raises(Misconfigured, match="seal"):
            await run_schedule(project, "mine")
        assert await project.state.jobs.running_jobs() == []


async def test_the_access_list_of_the_manual_is_enough_for_a_job_and_keeps_to_the_project(
    tmp_path: Path, valkey: ValkeyServer
) -> None:
    rules = re.search(r"ACL SETUSER books (.*)", (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8"))
    assert rules is not None
    settings = settings_in(tmp_path, valkey)
    words = rules[1].replace("a-long-password", PASSWORD).replace("books", settings.project).split()
    root = redis.Redis(port=valkey.port)
    root.execute_command("ACL", "SETUSER", settings.project, *words)
    root.set("of-another-project", "x")
    state = f"redis://{settings.project}:{PASSWORD}@127.0.0.1:{valkey.port}/0"
    async with open_project(msgspec.structs.replace(settings, state=state)) as project:
        job = await plant(project, source=source(urls=["http://127.0.0.1/{1..3}"]))
        await serve(project)
        assert (await project.state.jobs.counts(job)).dead == 3
    stranger = redis.Redis(port=valkey.port, username=settings.project, password=PASSWORD)
    for command in (["GET", "of-another-project"], ["FLUSHALL"], ["CONFIG", "SET", "dir", "/tmp"], ["ACL", "LIST"]):
        with pytest.raises(redis.exceptions.NoPermissionError):
            stranger.execute_command(*command)

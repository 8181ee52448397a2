"""A newer version opens the project while processes of this one are at work: they leave, and nothing is lost."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from gossamer.backends.redis.state import FORMAT
from tests.faults.commands import CommandProject, until
from tests.services.ports import free_port
from tests.services.valkey import ValkeyServer
from tests.sites.running import park

pytestmark = pytest.mark.long

PAGES = 240


class Numbered:
    """A project whose state says by which version it was written."""

    def __init__(self, folder: Path, valkey: ValkeyServer | None) -> None:
        self._file, self._valkey, self._name = folder / "gossamer-data" / "state.db", valkey, f"p-{uuid4().hex[:8]}"

    @property
    def settings(self) -> str:
        return "" if self._valkey is None else f'project = "{self._name}"\nstate = "{self._valkey.address()}"\n'

    def read(self) -> int:
        if self._valkey is not None:
            return FORMAT
        with closing(sqlite3.connect(self._file)) as state:
            found: int = state.execute("PRAGMA user_version").fetchone()[0]
        return found

    def write(self, number: int) -> None:
        if self._valkey is not None:
            self._valkey.say("HSET", f"gossamer:{{{self._name}}}:book", "format", str(number))
            return
        with closing(sqlite3.connect(self._file)) as state:
            state.execute(f"PRAGMA user_version = {number}")
            state.commit()


@pytest.mark.parametrize("backend", ["sqlite", "valkey"])
def test_everything_that_runs_leaves_a_project_that_a_newer_version_has_opened(backend, tmp_path, request):
    numbered = Numbered(tmp_path, request.getfixturevalue("valkey") if backend == "valkey" else None)
    own = f'{numbered.settings}[server]\nport = {free_port()}\n[politeness]\nrate = "15/s"\n'
    with park(pages=PAGES, hosts=1) as site:
        project = CommandProject(tmp_path, site.seeds(), own)
        try:
            # given scheduler, server and workers at work
            up = project.run("up", "--workers", "2")
            project.done("schedule", "add", "park", "--spider", "park", "--every", "30d")
            until(lambda: len(site.hits()) >= 5, up)

            # when a newer version opens the state
            mine = numbered.read()
            numbered.write(mine + 1)

            # then all of them end by themselves, and say why
            assert up.ended() == 1, up.said()
            words = f"was written by a newer Gossamer ({'schema' if backend == 'sqlite' else 'format'} {mine + 1}"
            assert words in up.said()
            assert "Traceback" not in up.said()
            # whoever is started now is refused
            late = project.run("worker")
            assert late.ended() == 1
            assert words in late.said()
            assert len(site.hits()) < PAGES

            # and the newer version finds all as it should be
            numbered.write(mine)
            project.done("worker", "--until-idle", "--quiet")
            (job,) = project.json("status")
            assert (job["state"], job["counts"]["done"], job["counts"]["leased"]) == ("finished", PAGES, 0)
            assert set(Counter(hit.path for hit in site.hits()).values()) == {1}
            assert project.records().keys() == site.truth().keys()
        finally:
            project.close()

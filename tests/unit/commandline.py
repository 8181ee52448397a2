"""The real command in a real project folder: `run` goes through the command's own entry point, in this process."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer import settings as settings_module
from gossamer.cli.app import run
from gossamer.model.task import Candidate
from gossamer.model.url import fingerprint, shape_of, site_of
from gossamer.project.open import Project, open_project
from tests.patience import PATIENCE

COMMAND = str(Path(sys.executable).with_name("gossamer"))
TOML = """
[politeness]
rate = "unlimited"
concurrency = "none"

[domains."slow.example"]
rate = "1/m"
"""


class Said(msgspec.Struct, frozen=True):
    """What a user sees: exit code, standard output, standard error."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class ProjectFolder:
    """A project folder that is the working directory."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[bytes]) -> None:
        self.folder = folder
        self._patch = monkeypatch
        self._capsys = capsys
        self._patch.chdir(folder)
        for name in [name for name in os.environ if name.startswith("GOSSAMER_")]:
            self._patch.delenv(name)

    def write(self, path: str, text: str) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def run(self, *words: str, stdin: str = "") -> Said:
        self._patch.setattr(sys, "argv", ["gossamer", *words])
        self._patch.setattr(sys, "stdin", io.StringIO(stdin))
        self._capsys.readouterr()
        try:
            run()
            code: int | str | None = 0
        except SystemExit as end:
            code = end.code
        seen = self._capsys.readouterr()
        return Said(int(code or 0), seen.out, seen.err.decode())

    def fill(self, work: Callable[[Project], Awaitable[None]]) -> None:
        """Let `work` use the open system, as a crawl would."""

        async def within() -> None:
            async with open_project(settings_module.load(start=self.folder)) as system:
                await work(system)

        asyncio.run(within())


def candidate(url: str, **fields: Any) -> Candidate:
    return Candidate(url=url, fingerprint=fingerprint(url), site=site_of(url), shape=shape_of(url), **fields)


@pytest.fixture
def project(tmp_path, monkeypatch, capsysbinary) -> ProjectFolder:
    made = ProjectFolder(tmp_path, monkeypatch, capsysbinary)
    made.write("gossamer.toml", TOML)
    return made


def on_a_terminal(folder: Path, *words: str, columns: int, typed: str = "", code: int | None = 0) -> str:
    """What the installed command writes when it runs on a terminal, where a user has `typed` that."""
    leader, follower = pty.openpty()
    environ = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color", "XDG_STATE_HOME": str(folder)}
    with subprocess.Popen(
        [COMMAND, *words], cwd=folder, stdin=follower, stdout=follower, stderr=follower, env=environ
    ) as process:
        os.close(follower)
        os.write(leader, typed.encode())
        written = b""
        while select.select([leader], [], [], PATIENCE)[0]:
            try:
                written += os.read(leader, 65536)
            except OSError:  # Linux says EIO when the last writer is gone
                break
        else:
            process.kill()
            pytest.fail(f"The command waits for something: {written.decode()}")
        os.close(leader)
        ended = process.wait()
        assert code is None or ended == code, written.decode()
    return written.decode()

"""Worker processes as users run them: any verb of the real command, its words in a file, its children by their ids."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.faults.crawlers import Project
from tests.patience import PATIENCE, poll_until


class Command:
    """A command under way. What it says goes to a file, so that it can be read at any time."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        return self._log.read_text()

    def logged(self, *kinds: str) -> list[dict[str, Any]]:
        """The events of these kinds that it wrote with --json-logs. The last line of one that was killed may be cut."""
        lines = self.said().splitlines(keepends=True)
        likely = [line for line in lines if line.endswith("\n") and any(kind in line for kind in kinds)]
        return [_with_moment(event) for event in map(json.loads, likely) if event["event"] in kinds]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, within: float = PATIENCE) -> int:
        """Wait for its end; the exit code."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"It did not end within {within} s. It said: {self.said()[-2000:]}") from None

    def children(self) -> set[int]:
        return children_of(self.pid)


def _with_moment(event: dict[str, Any]) -> dict[str, Any]:
    """The moment of a tick as a number."""
    due = event.get("due")
    return event if due is None else {**event, "due": round(datetime.fromisoformat(due).timestamp(), 3)}


class CommandProject(Project):
    """A project in which any command can be run. None of them outlives `close`."""

    def __init__(self, folder: Path, seeds: list[str], settings: str = "") -> None:
        super().__init__(folder, seeds, settings)
        self._commands: list[Command] = []

    def run(self, *words: str, python: str = sys.executable) -> Command:
        return self.run_under([], *words, python=python)

    def run_under(
        self, program: list[str], *words: str, module: str = "gossamer", python: str = sys.executable
    ) -> Command:
        """The command, or another module of Python, started by another program, or by another Python."""
        log = self.folder / f"log-{len(self._commands)}"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*program, python, "-m", module, *words],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        command = Command(process, log)
        self._commands.append(command)
        return command

    def done(self, *words: str) -> str:
        """Run a command to its end, which must be a good one; what it said."""
        command = self.run(*words)
        assert command.ended() == 0, command.said()
        return command.said()

    def json(self, *words: str) -> Any:
        return json.loads(self.done(*words, "--json"))

    def sow(self, site: Any, *flags: str, pages: int = 5) -> None:
        """Begin the park's job with a `crawl`, and stop it after a few pages."""
        before = len(site.hits())
        # slowly: it has not done all before it is stopped, however long that takes. By a setting of this process: a
        # rate on the command line would stay with the job.
        slowly = ["env", "GOSSAMER_POLITENESS__RATE=5/s"]
        crawl = self.run_under(slowly, "crawl", "park", "--quiet", *flags)
        until(lambda: len(site.hits()) >= before + pages or crawl.process.poll() is not None, crawl)
        crawl.signal(signal.SIGTERM)
        assert crawl.ended() == 130, crawl.said()

    @property
    def environ(self) -> dict[str, str]:
        return self._environment

    def close(self) -> None:
        for command in self._commands:
            for pid in {*command.children(), command.pid} if command.process.poll() is None else ():
                os.kill(pid, signal.SIGKILL)
            command.process.wait()


def children_of(pid: int) -> set[int]:
    try:
        return {int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    except FileNotFoundError:
        return set()


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def until(reached: Callable[[], object], *commands: Command) -> None:
    """Look until it is so. Fails with the words of the commands."""
    poll_until(reached, every=0.02, said=lambda: "\n".join(command.said()[-2000:] for command in commands))

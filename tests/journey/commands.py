"""The real command in a process of its own, and what a person sees of it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from gossamer.process.signals import send
from tests.patience import PATIENCE

# A crawl without pauses, as in crawling.py.
QUICK = """
[politeness]
rate = "unlimited"
concurrency = 64
[fetch]
connect_timeout = "60s"
read_timeout = "60s"
total_timeout = "100s"
max_body = "1MB"
[retry]
max_attempts = 2
base = "20ms"
cap = "100ms"
rate_limited_cap = "100ms"
"""


class Said(msgspec.Struct, frozen=True):
    """Exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    def one_line(self, code: int = 1) -> str:
        """The message of a command that failed: one line, the last, and nothing on standard output."""
        assert self.code == code, self
        assert self.out == "", self
        *before, last = self.err.splitlines()
        assert last.startswith("gossamer: "), self
        assert not [line for line in before if line.startswith("gossamer: ")], self
        return last.removeprefix("gossamer: ")


async def started(
    folder: Path,
    *words: str,
    environ: dict[str, str] | None = None,
    before: Callable[[], None] | None = None,
    stdin: int = asyncio.subprocess.DEVNULL,
) -> asyncio.subprocess.Process:
    """Start `gossamer words` in `folder`; `before` runs in the new process."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GOSSAMER_")}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gossamer", *words),
        cwd=folder,
        env={**inherited, "COLUMNS": "100", **(environ or {})},
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=before,
    )


async def ended(process: asyncio.subprocess.Process, typed: bytes | None = None) -> Said:
    """Wait for the end; `typed` goes to its standard input. No command ever shows a traceback."""
    try:
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate(typed)
    except TimeoutError:
        send(process, signal.SIGKILL)
        out, err = await process.communicate()
        raise AssertionError(f"The command did not end. It said: {err.decode()[-2000:]}") from None
    assert process.returncode is not None
    said = Said(process.returncode, out.decode(), err.decode())
    assert "Traceback" not in said.out + said.err, said
    return said


async def gossamer(
    folder: Path, *words: str, environ: dict[str, str] | None = None, before: Callable[[], None] | None = None
) -> Said:
    return await ended(await started(folder, *words, environ=environ, before=before))


async def all_of(commands: list[tuple[Path, tuple[str, ...]]]) -> list[Said]:
    """Run the commands, a few at a time: most of a short one is the start of Python."""
    few = asyncio.Semaphore(4)

    async def one(folder: Path, words: tuple[str, ...]) -> Said:
        async with few:
            return await gossamer(folder, *words)

    return await asyncio.gather(*(one(folder, words) for folder, words in commands))


def as_anybody() -> None:
    """For `before`: permissions hold for this process, even where the tests run as root."""
    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "prctl")

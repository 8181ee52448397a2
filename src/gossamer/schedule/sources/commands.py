"""The output of a program, as a source. It is run to its end before the first line of it is looked at: a slow consumer
does not hold it up, and one that fails gives nothing.

How it fails: SourceFailed when it cannot be started, ends with another exit code than 0, takes too long or prints too
much; its last words are quoted. How it recovers: what is left of it is killed, with all that it started.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ...errors import SourceFailed
from .tables import Command

LAST_WORDS = 4_096  # bytes of stderr that are kept
QUOTED = 300  # characters of them that are quoted
_PIECE = 65_536
_GOODBYE = 5.0  # seconds for a killed program to be gone


class _TooMuch(Exception):
    pass


async def run_command(command: Command, root: Path, to: BinaryIO) -> None:
    """Run it in the folder `root`, and write what it prints into `to`. Raises SourceFailed."""
    name = shown(command)
    try:
        process = await asyncio.create_subprocess_exec(
            *command.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=root,
            start_new_session=True,  # so that it can be ended with all that it started
        )
    except OSError as error:
        raise SourceFailed(
            f"Command {name} cannot be started in {root}: {error.strerror}. Check its name and place, or give the "
            "whole path."
        ) from error
    assert process.stdout is not None
    assert process.stderr is not None
    words = bytearray()
    listening = asyncio.create_task(_keep_end(process.stderr, words), name=f"stderr of {process.pid}")
    is_over = False
    try:
        async with asyncio.timeout(command.timeout.total_seconds()):
            await _keep(process.stdout, to, command.max_output)
            await listening
            code = await process.wait()
        is_over = True
    except TimeoutError as error:
        raise SourceFailed(
            f"Command {name} was not finished within {command.timeout.total_seconds():g} s and was ended. Make it "
            f"faster, or raise timeout.{_quoted(words)}"
        ) from error
    except _TooMuch as error:
        raise SourceFailed(
            f"Command {name} printed more than {command.max_output:,} bytes and was ended. Let it print less, or "
            "raise max_output."
        ) from error
    finally:
        if not is_over:
            await _end(process, listening)
    if code != 0:
        how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        raise SourceFailed(f"Command {name} {how}, so its output is not used.{_quoted(words)}")


def shown(command: Command) -> str:
    """The command as one would type it, shortened."""
    text = shlex.join(command.argv)
    return text if len(text) <= 100 else f"{text[:97]}..."


async def _keep(stream: asyncio.StreamReader, to: BinaryIO, most: int) -> None:
    size = 0
    while piece := await stream.read(_PIECE):
        size += len(piece)
        if size > most:
            raise _TooMuch
        to.write(piece)


async def _keep_end(stream: asyncio.StreamReader, words: bytearray) -> None:
    while piece := await stream.read(_PIECE):
        words += piece
        del words[:-LAST_WORDS]


async def _end(process: asyncio.subprocess.Process, listening: asyncio.Task[None]) -> None:
    listening.cancel()
    # While any of its group is there the number is not given to others, unless the program itself is gone and somebody
    # of that number is there all the same.
    if process.returncode is None or not _is_there(process.pid):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _GOODBYE)
    # Its pipes, which somebody may hold who left the group. There is no public way to close them.
    process._transport.close()  # type: ignore[attr-defined]


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _quoted(words: bytearray) -> str:
    """The end of what it said, on one line and without what would garble a terminal."""
    text = " ".join(words.decode("utf-8", "replace").split())
    text = "".join(sign if sign.isprintable() else "?" for sign in text)
    return f" It said: {text[-QUOTED:]}" if text else " It said nothing."

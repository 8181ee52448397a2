"""The output of a program, as a source. The program runs to its end before its output is read: a slow consumer does not
hold it up, and a failed program yields nothing. Output of processes that it started and left behind is not waited for.
It sees the environment of the worker without GOSSAMER_*: those hold the addresses and passwords of the fleet.

How it fails: SourceFailed if it cannot be started, exits with a code other than 0, takes too long or prints too much;
the end of its stderr is quoted. How it recovers: a program that takes too long or prints too much is killed, with all
that it started; only a process that moved to its own session (a daemon) escapes. A program that ends by itself may
leave others running.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import SourceFailed
from .kinds import CommandSource, program

LAST_WORDS = 4_096  # bytes of stderr that are kept
QUOTED = 300  # characters of them that are quoted
OURS = "GOSSAMER_"  # prefix of the variables that are not passed on
_PIECE = 65_536
_PIPEFUL = 16  # reads: more than a pipe holds
_GOODBYE = 5.0  # seconds for a killed program to end
_AFTERWARDS = 0.5  # seconds for other processes to finish what the program has begun to print


class _TooMuch(Exception):
    pass


async def run_command(command: CommandSource, root: Path, to: BinaryIO) -> None:
    """Run it in the folder `root`, and write its output into `to`. Raises SourceFailed."""
    name = program(command.argv)
    words = bytearray()
    with ExitStack() as stack:
        printed = stack.enter_context(_PipeReader(_writer(to, command.max_output)))
        said = stack.enter_context(_PipeReader(_keeper(words)))
        try:
            process = await asyncio.create_subprocess_exec(
                *command.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=printed.mouth,
                stderr=said.mouth,
                cwd=root,
                env={key: value for key, value in os.environ.items() if not key.startswith(OURS)},
                start_new_session=True,  # so that it can be killed with all that it started
            )
        except OSError as error:
            raise SourceFailed(
                f"Command {name} cannot be started in {root}: {error.strerror}. Check its name, or give the full path."
            ) from error
        printed.close_writer()
        said.close_writer()
        is_over = False
        try:
            async with asyncio.timeout(command.timeout.total_seconds()):
                code = await _ended(process, printed)
            await printed.rest(_AFTERWARDS)
            await said.rest(0)
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
                await _end(process)
    if code != 0:
        how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        raise SourceFailed(f"Command {name} {how}, so its output is not used.{_quoted(words)}")


class _PipeReader:
    """A pipe that a program writes to. `take` gets the pieces as they come, until it raises.

    We make the pipes ourselves, because asyncio waits until every process that holds them has closed them: a daemon
    never does.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()  # all writers closed the pipe, or `take` raised
        self._ear, self.mouth = os.pipe()
        os.set_blocking(self._ear, False)

    def __enter__(self) -> _PipeReader:
        self._loop.add_reader(self._ear, self._listen)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._ear)
        os.close(self._ear)
        self.close_writer()
        if self.over.done() and not self.over.cancelled():
            self.over.exception()  # the caller that waited has seen it
        self.over.cancel()

    def close_writer(self) -> None:
        """Close our copy of the writing end: the program has its own."""
        if self.mouth >= 0:
            os.close(self.mouth)
            self.mouth = -1

    async def rest(self, seconds: float) -> None:
        """Wait up to `seconds` for the end; then take what is there. Raises what `take` raises."""
        await asyncio.wait({self.over}, timeout=seconds)
        for _ in range(_PIPEFUL):
            if self.over.done() or not self._listen():
                break
        if self.over.done():
            self.over.result()

    def _listen(self) -> bool:
        """Take a piece. False if there is none."""
        try:
            piece = os.read(self._ear, _PIECE)
            if piece:
                self._take(piece)
                return True
            self.over.set_result(None)
        except BlockingIOError:
            return False
        except (_TooMuch, OSError) as error:
            self.over.set_exception(error)
        self._loop.remove_reader(self._ear)
        return False


def _writer(to: BinaryIO, most: int) -> Callable[[bytes], None]:
    size = 0

    def write(piece: bytes) -> None:
        nonlocal size
        size += len(piece)
        if size > most:
            raise _TooMuch
        to.write(piece)

    return write


def _keeper(words: bytearray) -> Callable[[bytes], None]:
    def keep(piece: bytes) -> None:
        words.extend(piece)
        del words[:-LAST_WORDS]

    return keep


async def _ended(process: asyncio.subprocess.Process, printed: _PipeReader) -> int:
    """Its exit code. Raises errors of its output that come first."""
    ending = asyncio.ensure_future(process.wait())
    try:
        both: set[asyncio.Future[Any]] = {ending, printed.over}  # Any: one has a number, the other nothing
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if printed.over.done():
            printed.over.result()
        return await ending
    finally:
        ending.cancel()


async def _end(process: asyncio.subprocess.Process) -> None:
    # While a process of its group exists, the system does not reuse the number, unless the program itself is gone and a
    # new process has it.
    if process.returncode is None or not _is_there(process.pid):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _GOODBYE)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _quoted(words: bytearray) -> str:
    """The end of its stderr, on one line and without control characters."""
    text = " ".join(words.decode("utf-8", "replace").split())
    text = "".join(sign if sign.isprintable() else "?" for sign in text)
    return f" It said: {text[-QUOTED:]}" if text else " It said nothing."

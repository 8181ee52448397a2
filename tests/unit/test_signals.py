"""Signals to processes that may end at any moment."""

from __future__ import annotations

import asyncio
import signal

from gossamer.process.signals import send
from tests.patience import until


async def test_a_signal_to_a_process_that_ends_just_now_leaves_its_exit_code_alone() -> None:
    for _ in range(40):
        process = await asyncio.create_subprocess_exec("/bin/sh", "-c", "exit 3")
        await until(
            lambda process=process: process.returncode is not None,
            between=lambda process=process: send(process, signal.SIGCONT),
            every=0,
        )
        assert process.returncode == 3


async def test_a_signal_reaches_its_process_and_later_nobody() -> None:
    process = await asyncio.create_subprocess_exec("/bin/sleep", "60")
    send(process, signal.SIGTERM)
    assert await process.wait() == -signal.SIGTERM
    send(process, signal.SIGTERM)  # the number may be somebody else's by now

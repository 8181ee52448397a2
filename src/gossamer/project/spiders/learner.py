"""A learner: a child process that learns the rules of one recipe, and takes them into use if it is told to.

What it does: starts the child (layout_child.py) and waits for it. Of all schedulers and servers of the project one
learns the rules of a spider at a time. How it fails: a sentence, of the child or about it; it is killed after LONGEST.
How it recovers: whoever asked asks again; the turn of a process that died ends by itself.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import timedelta

import msgspec

from ...model.shelf import ABSENT, DropRow, Put
from ...process.signals import send
from ..open import Project

LONGEST = timedelta(minutes=10)
TURN, MARGIN = "learner", 60.0  # the kind of its row on the shelf; seconds beyond LONGEST
NEVER, SURE, CHOSEN = "never", "sure", "chosen"  # what is taken into use


class LearnOrder(msgspec.Struct, frozen=True, kw_only=True):
    """`apply` CHOSEN takes sure rules and those of `fields`, which were only proposed; SURE what mode "auto" may."""

    spider: str
    job: str = ""  # that met the new layout
    letters: int = 0
    apply: str = NEVER
    fields: tuple[str, ...] = ()
    by: str = ""


async def run_learner(project: Project, order: LearnOrder) -> str:
    """Let a child do it; what it complained of, or "". Raises BackendUnavailable."""
    until = await project.state.shelf.time() + LONGEST.total_seconds() + MARGIN
    turn = Put(kind=TURN, key=order.spider, value=b"{}", until=until, expects=ABSENT)
    if not await project.state.shelf.commit([turn]):
        return f"The rules of {order.spider} are being learned at this moment. Look again in a minute."
    try:
        return await _child(project, order)
    finally:
        await project.state.shelf.commit([DropRow(kind=TURN, key=order.spider)])


async def _child(project: Project, order: LearnOrder) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # the working folder may hold modules of strangers
        "-m",
        "gossamer.project.spiders.layout_child",
        msgspec.json.encode(order).decode(),
        cwd=project.settings.root,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LONGEST.total_seconds()):
            _, said = await process.communicate()
    except TimeoutError:
        return f"It took more than {LONGEST.total_seconds() / 60:g} minutes."
    finally:
        if process.returncode is None:
            send(process, signal.SIGKILL)
            await asyncio.shield(process.wait())
    if process.returncode == 0:
        return ""
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return (lines[-1] if lines else f"The process ended with exit code {process.returncode}.")[:500]

"""How a test waits: for what must happen, for what must not, and for nothing else.

A test that passes ends with the event, never with the clock: a number here only says when to call it hung. It is large,
because the machine may be many times slower than the one that the test was written on, and smaller than the time limit
of a test (pyproject.toml), so that whoever waits in vain says for what.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from gossamer.fetch.contract import Limits

T = TypeVar("T")

PATIENCE = 200.0  # seconds

# Seconds in which that would have happened which must not. Where it is too short, the test sees less; it never fails.
MOMENT = 0.05

# Of a fetch that is expected to succeed. One that is expected to be given up has limits of its own.
LIMITS = Limits(connect=timedelta(seconds=60), read=timedelta(seconds=60), total=timedelta(seconds=100))


async def until(
    look: Callable[[], T | Awaitable[T]],
    what: str = "",
    *,
    between: Callable[[], Any] | None = None,
    every: float = 0.01,
) -> T:
    """Look until what is seen is true, and return it. `between` is called, or awaited, after each look in vain.

    Fails after PATIENCE with `what`, or with the source of `look`.

        await until(lambda: site.seen("/page"))
        await until(task.done, between=lambda: clock.advance(1), every=0)
    """
    deadline = time.monotonic() + PATIENCE
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                seen = look()
                if found := (await seen if inspect.isawaitable(seen) else seen):
                    return found
                done = between() if between is not None else None
                if inspect.isawaitable(done):
                    await done
                await asyncio.sleep(every)
    except TimeoutError:
        if time.monotonic() < deadline:
            raise  # one of theirs
        raise AssertionError(_in_vain(look, what)) from None


def poll_until(
    look: Callable[[], T],
    what: str = "",
    *,
    between: Callable[[], Any] | None = None,
    every: float = 0.01,
    said: Callable[[], object] = str,
) -> T:
    """As `until`, for tests without a loop. `said` gives the words of those who were waited for."""
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline, f"{_in_vain(look, what)}\n{said()}"
        if between is not None:
            between()
        time.sleep(every)
    return found


def unchanged(count: Callable[[], object]) -> Callable[[], bool]:
    """What is true at the first look that sees the same as the look before it."""
    last: object = object()

    def look() -> bool:
        nonlocal last
        before, last = last, count()
        return before == last

    return look


def _in_vain(look: Callable[[], object], what: str) -> str:
    return f"Not within {PATIENCE:g} s: {what or _source(look)}"


def _source(look: Callable[[], object]) -> str:
    try:
        return inspect.getsource(look).strip()
    except (OSError, TypeError):  # of a builtin, or of a method of one
        return repr(look)

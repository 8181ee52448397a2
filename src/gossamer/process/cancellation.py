"""Whether a CancelledError is meant for us. Code of users may raise one as well, and must not stop anybody by it."""

from __future__ import annotations

import asyncio


def is_cancellation(error: BaseException) -> bool:
    """True when the running task is being cancelled; False when it merely awaited something that was."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0

"""Work in threads, which cannot be stopped, for a caller that can."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from gossamer.backends.outputs.sql import to_its_end


async def test_work_that_fails_when_its_caller_was_cancelled_prints_nothing() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    begun, ends = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await ends.wait()
        raise OSError("no room")

    caller = asyncio.ensure_future(to_its_end(work()))
    await begun.wait()
    caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()

    ends.set()
    await asyncio.wait({caller})
    assert caller.cancelled()
    del caller
    gc.collect()

    assert told == []

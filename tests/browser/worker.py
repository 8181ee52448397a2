"""A worker in a process of its own, to be killed: it opens a page that never becomes ready, and says so.

    python -m tests.browser.worker URL [drain]

With `drain` it ends as a worker does at SIGTERM; without, as one that knows nothing of signals. It runs on the loop
that workers run on.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import uvloop

from gossamer.fetch.browser.transport import BrowserTransport
from gossamer.fetch.contract import TransportRequest
from gossamer.model.route import Render
from gossamer.settings.tables import Browser

from .showing import GUARD, LIMITS


async def main(url: str, drain: bool) -> None:
    stop = asyncio.Event()
    if drain:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with BrowserTransport(GUARD, Browser(browsers=2, contexts=1)) as transport:
        render = Render(wait_for="#never")
        pages = [
            asyncio.create_task(transport.fetch(TransportRequest(url=url, render=render, limits=LIMITS)))
            for _ in range(2)
        ]
        await stop.wait()
        for page in pages:
            page.cancel()
        await asyncio.gather(*pages, return_exceptions=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], "drain" in sys.argv[2:]))

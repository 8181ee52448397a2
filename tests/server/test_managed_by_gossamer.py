"""One Gossamer is the managed API of another: pages come through the HTTP API of the first, at once or later."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gossamer import Request, Spider
from gossamer.server.run import HttpServer, _config, listen
from tests.docs.manual import ROOT, blocks_of
from tests.journey.crawling import crawled, settings_for
from tests.services.ports import free_port
from tests.sites.running import park

from .serving import serving, settings_of
from .test_callbacks import delivering


def vendor_of_the_manual() -> dict[str, Any]:
    """The table that docs/api.md tells people to write."""
    (block,) = [block for block in blocks_of(ROOT / "docs" / "api.md") if "[managed." in block.code]
    (table,) = tomllib.loads(block.code)["managed"].values()
    return table


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    """The application behind a real socket."""
    with listen("127.0.0.1", 0) as socket:
        server = HttpServer(_config(app))
        serving = asyncio.create_task(server.serve(sockets=[socket]))
        yield f"http://127.0.0.1:{socket.getsockname()[1]}/api/v1"
        server.should_exit = True
        await serving


@pytest.mark.parametrize("mode", ["sync", "async", "batch", "batch with callback"])
async def test_pages_come_through_the_door_of_another(tmp_path: Path, mode: str) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with park(pages=8) as site:

        class Far(Spider):
            def start(self):
                yield from (Request(url=site.url(path=f"/page/{n}")) for n in range(1, 6))
                yield Request(url=site.url(path="/nothing"))

            def parse(self, page):
                yield {"url": page.url, "title": page.css("h1::text").get()}

        async with (
            serving(settings_of(first, fetch__allow_hosts=["site0.localhost", "vendor.localhost"])) as door,
            listening(door.app) as address,
            delivering(door),
        ):
            mode, _, callback = mode.partition(" with ")
            vendor = vendor_of_the_manual() | {"url": address, "key": door.key, "mode": mode, "allow_private": True}
            if callback:  # and no poll comes before it
                port = free_port()
                where = {"callback_listen": f"127.0.0.1:{port}", "callback_url": f"http://vendor.localhost:{port}/"}
                vendor |= where | {"callback_wait": "1h"}
            vendor = {name: value for name, value in vendor.items() if name != "env"}
            settings = settings_for(
                second,
                managed__other={**vendor, "poll": "50ms"},
                routes__other={"transport": "managed", "vendor": "other"},
                router__ladder=["other"],
                politeness__robots=False,
                fetch__allow_hosts=["site0.localhost"],
            )
            left = await crawled(Far(), settings)
            jobs = await door.project.state.jobs.jobs()

        hits = site.hits()

    assert sorted(record.data["title"] for record in left.records) == [f"Page {n} of site0" for n in range(1, 6)]
    assert left.fate(site.url(path="/nothing")) == ("dead", "http-404")
    assert len(jobs) == 6 or (mode == "batch" and len(jobs) < 6)
    assert {hit.path for hit in hits} == {*(f"/page/{n}" for n in range(1, 6)), "/nothing"}

"""POSTs under kill -9, by four workers: each is sent once, or waits as `uncertain`; by the site's log."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from pathlib import Path

import pytest

from tests.journey.commands import QUICK
from tests.patience import PATIENCE
from tests.services.valkey import ValkeyServer
from tests.sites.api import ApiSite, api_site

pytestmark = pytest.mark.long

ORDERS = 120
SCRIPT = """
import json, sys
import gossamer
from gossamer import Page, Request, Spider

class Orders(Spider):
    concurrency = 4

    def start(self):
        for number in range(int(sys.argv[2])):
            yield Request(url=sys.argv[1], method="POST", json={"order": number})

    def parse(self, page: Page):
        yield {"order": json.loads(page.json()["body"])["order"]}

report = gossamer.run(Orders, quiet=True, settings={"fetch.allow_hosts": ["127.0.0.1"]})
print(json.dumps({"done": report.counts.done, "dead": report.counts.dead, "open": report.counts.open}))
"""


async def start(folder: Path, url: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SCRIPT,
        url,
        str(ORDERS),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


def sent(site: ApiSite) -> list[int]:
    return [json.loads(asked.body)["order"] for asked in site.log if asked.method == "POST"]


@pytest.mark.parametrize("state", ["sqlite", "valkey"])
async def test_no_post_is_sent_twice_by_workers_that_are_killed_at_random(tmp_path, state, valkey: ValkeyServer):
    chance = random.Random(11)
    head = "" if state == "sqlite" else f'project = "orders"\nstate = "{valkey.address(database=4)}"'
    (tmp_path / "gossamer.toml").write_text(f'{head}\n{QUICK}\n[lease]\nduration = "2s"\nmax_deliveries = 50\n')
    async with api_site() as site:
        site.pause = 0.3  # a worker that is killed has requests out
        url = site.url("/echo")
        workers = [await start(tmp_path, url) for _ in range(4)]
        for wanted in (10, 25, 40):
            async with asyncio.timeout(PATIENCE):
                while len(site.log) < wanted:
                    await asyncio.sleep(0.005)
            # Most of them, so that those are among them that have requests out; the rest goes on.
            victims = [workers.pop(chance.randrange(len(workers))) for _ in range(3)]
            for victim in victims:
                os.killpg(victim.pid, signal.SIGKILL)
                await victim.wait()
            workers += [await start(tmp_path, url) for _ in victims]
        reports = []
        for worker in workers:
            out, _ = await asyncio.wait_for(worker.communicate(), PATIENCE)
            reports.append(json.loads(out))

    orders = sent(site)
    assert len(orders) == len(set(orders))
    report = reports[-1]
    assert report["open"] == 0
    assert report["done"] + report["dead"] == ORDERS
    assert report["dead"] > 0  # requests were out when their workers died
    assert report["done"] <= len(orders)

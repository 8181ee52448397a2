"""POSTs under kill -9 and under power cuts, by four workers: each is sent once, or waits as `uncertain`; by the site's
log."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.journey.commands import QUICK
from tests.patience import PATIENCE, until
from tests.services.postgres import PostgresServer, schema_of
from tests.services.sqlite import SqliteFile
from tests.services.valkey import ValkeyServer, running_valkey
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
            await until(lambda wanted=wanted: len(site.log) >= wanted)
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


class SqliteState(SqliteFile):
    """A state in a file, which a power cut puts back."""

    head = ""


class ValkeyState:
    """A state on a server, which a power cut puts back. The records are in PostgreSQL."""

    def __init__(self, folder: Path, valkey: ValkeyServer, postgres: PostgresServer) -> None:
        self._valkey = valkey
        records = f"{postgres.address()}?schema={schema_of(folder)}"
        self.head = f'project = "orders"\nstate = "{valkey.address()}"\nrecords = "{records}"'

    def remember(self) -> None:
        assert "OK" in self._valkey.say("SAVE")

    def put_back(self) -> None:
        self._valkey.kill()
        self._valkey.start()


@pytest.mark.parametrize("backend", ["sqlite", "valkey"])
async def test_no_post_is_sent_twice_when_the_state_loses_its_last_writes(tmp_path, backend, postgres: PostgresServer):
    with running_valkey() if backend == "valkey" else nullcontext() as valkey:
        state = (
            SqliteState(tmp_path / "gossamer-data" / "state.db")
            if valkey is None
            else ValkeyState(tmp_path, valkey, postgres)
        )
        (tmp_path / "gossamer.toml").write_text(
            f'{state.head}\n{QUICK}\n[lease]\nduration = "2s"\nmax_deliveries = 50\n'
        )
        async with api_site() as site:
            site.pause = 0.05
            url = site.url("/echo")
            workers = [await start(tmp_path, url) for _ in range(4)]
            for goal in (15, 45, 75):
                await requests_at(site, goal)
                state.remember()
                await requests_at(site, goal + 15)  # these are forgotten: some answered and stored, some under way
                for worker in workers:  # the power is off everywhere
                    os.killpg(worker.pid, signal.SIGKILL)
                    await worker.wait()
                state.put_back()
                workers = [await start(tmp_path, url) for _ in range(4)]
            reports = [json.loads((await asyncio.wait_for(one.communicate(), PATIENCE))[0]) for one in workers]

    orders = sent(site)
    assert len(orders) == len(set(orders))
    report = reports[-1]
    assert report["open"] == 0
    assert report["done"] + report["dead"] == ORDERS
    # Orders that were answered and stored are done; only those that were under way at a cut are in doubt.
    assert report["dead"] <= 3 * 4 * 4
    assert set(range(ORDERS)) == set(orders)


async def requests_at(site: ApiSite, goal: int) -> None:
    await until(lambda: len(sent(site)) >= goal)

"""A fleet that is backed up while its workers crawl and post: another stack goes on from the backup. By the site's log
and the records nothing is lost and nothing doubled, and no request that must not be repeated is sent twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from gossamer.project.upkeep.move.backup_file import open_backup
from tests.journey.commands import QUICK
from tests.patience import PATIENCE, until
from tests.services.postgres import PostgresServer, schema_of
from tests.services.valkey import running_valkey
from tests.sites.api import ApiSite, Asked, api_site

pytestmark = pytest.mark.long

PAGES = 150
SCRIPT = """
import json, sys
import gossamer
from gossamer import Page, Spider

class Shop(Spider):
    concurrency = 4
    start_urls = [sys.argv[1] + "?page=0"]

    def parse(self, page: Page):
        number = int(page.url.rpartition("=")[2])
        yield {"page": number}
        yield page.follow(sys.argv[1], self.ordered, method="POST", json={"order": number})
        for other in (2 * number + 1, 2 * number + 2):
            if other < int(sys.argv[2]):
                yield page.follow(sys.argv[1] + f"?page={other}")

    def ordered(self, page: Page):
        yield {"order": json.loads(page.json()["body"])["order"]}

report = gossamer.run(Shop, quiet=True, settings={"fetch.allow_hosts": ["127.0.0.1"]})
print(json.dumps({"done": report.counts.done, "dead": report.counts.dead, "open": report.counts.open}))
"""


class TimedLog(list[Asked]):
    """The log of a site with the time of each request."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def append(self, asked: Asked) -> None:
        super().append(asked)
        self.times.append(time.time())

    def orders(self, *, since: float = 0.0) -> list[int]:
        return [
            json.loads(asked.body)["order"]
            for asked, at in zip(self, self.times, strict=True)
            if asked.method == "POST" and at >= since
        ]

    def pages(self) -> list[str]:
        return [asked.path for asked in self if asked.method == "GET" and asked.path != "/robots.txt"]


async def run(folder: Path, *words: str) -> str:
    """Run a command to its end, which must be a good one."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gossamer", *words, cwd=folder, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0, out.decode()
    return out.decode()


async def start(folder: Path, url: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT, url, str(PAGES), cwd=folder, stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip


async def requests_at(site: ApiSite, goal: int) -> None:
    await until(lambda: len(site.log) >= goal, every=0.005)


def new_stack(folder: Path, stack: ExitStack, kind: str, postgres: PostgresServer) -> None:
    folder.mkdir()
    head = ""
    if kind == "fleet":
        valkey = stack.enter_context(running_valkey())
        records = f"{postgres.address()}?schema={schema_of(folder)}"
        head = f'project = "shop"\nstate = "{valkey.address()}"\nrecords = "{records}"'
    (folder / "gossamer.toml").write_text(f'{head}\n{QUICK}\n[lease]\nduration = "4s"\nmax_deliveries = 50\n')


@pytest.mark.parametrize("kind", ["sqlite", "fleet"])
async def test_a_fleet_at_work_is_backed_up_and_another_stack_goes_on(
    tmp_path: Path, kind: str, postgres: PostgresServer
) -> None:
    with ExitStack() as stack:
        here, there = tmp_path / "here", tmp_path / "there"
        for folder in (here, there):
            new_stack(folder, stack, kind, postgres)
        async with api_site() as site:
            log = site.log = TimedLog()
            site.pause = 0.1
            url = site.url("/echo")

            # given three workers that crawl and post, and a backup while they do
            workers = [await start(here, url) for _ in range(3)]
            await requests_at(site, 60)
            site.pause = 1.0  # so that they have not done all before it is complete, however long that takes
            said = await run(here, "backup", "../shop.backup")
            site.pause = 0.1
            assert "Workers were at work" in said
            after = len(log)
            await requests_at(site, after + 10)  # they have not waited for it
            for worker in workers:
                os.killpg(worker.pid, signal.SIGKILL)
                await worker.wait()
            gone_on = len(log)
            assert gone_on < 2 * PAGES  # there was something left to do

            # when it is restored into another stack, which goes on to the end
            reader = await open_backup(tmp_path / "shop.backup")
            reader.close()
            made_at, counts = reader.header.made_at, reader.header.counts
            assert counts["records"]["notes of sent requests"] > 0
            said = await run(there, "restore", "../shop.backup")
            assert "DIFFERS" not in said
            last = await start(there, url)
            out, _ = await asyncio.wait_for(last.communicate(), PATIENCE)
            report = json.loads(out)

        # then every page was read, and every order was sent
        assert report["open"] == 0
        assert report["done"] + report["dead"] == 2 * PAGES
        said = await run(there, "export", "-o", "-", "--format", "jsonl")
        lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        assert sorted(line["page"] for line in lines if "page" in line) == list(range(PAGES))
        assert set(log.orders()) == set(range(PAGES))
        # no record is there twice, and an order without one is an uncertain letter
        orders = Counter(line["order"] for line in lines if "order" in line)
        assert set(orders.values()) == {1}
        assert len(orders) == PAGES - report["dead"]
        # no order was sent twice, but for those that were sent by the first stack after its backup
        twice = {order for order, times in Counter(log.orders()).items() if times > 1}
        assert twice <= set(log.orders(since=made_at))
        # what was done at the time of the backup was not fetched again
        fetched = Counter(log.pages())
        assert sum(fetched.values()) - PAGES <= gone_on - 40
        # and each item is counted once
        (job,) = json.loads(await run(there, "job", "list", "--json"))
        items = json.loads(await run(there, "job", "show", job["id"], "--json"))["items"]
        assert items["yielded"] == items["new"] == len(lines)

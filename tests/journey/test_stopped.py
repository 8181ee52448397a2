"""Ctrl-C in the middle: what is in progress is finished, the exit code says so, and the same command goes on."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sqlite3
from contextlib import suppress

import pytest

from gossamer import Request, Spider
from gossamer.crawl.seeding import SEEDS_AT_ONCE
from gossamer.process.signals import send
from gossamer.project.jobs.crawl import crawl
from gossamer.settings import load
from tests.journey.commands import QUICK, ended, gossamer, started
from tests.patience import until
from tests.sites.hostile import Call, hostile_site, whole

PAGES = 30


class Turnstile:
    """Lets the first requests through and holds the others until it is opened."""

    def __init__(self, free: int) -> None:
        self._left = free
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, call: Call) -> None:
        self._left -= 1
        if self._left < 0:
            self.reached.set()
            await self.opened.wait()
        await whole(call, f"<title>{call.seen.path}</title>".encode())


@pytest.fixture
async def site():
    async with hostile_site() as site:
        links = "".join(f'<a href="/page/{n}">x</a>' for n in range(PAGES))
        site.show("/start", f"<title>Start</title>{links}")
        yield site


@pytest.mark.long
async def test_a_crawl_that_is_stopped_says_that_another_worker_goes_on_with_it(tmp_path, site):
    (tmp_path / "gossamer.toml").write_text(QUICK.replace("[fetch]", "[fetch]\nallow_private = true"))
    for n in range(PAGES):
        site.show(f"/page/{n}", "<title>Page</title>")
    worker = await started(tmp_path, "worker")
    process = await started(tmp_path, "crawl", site.url("/start"), "--rate", "20/m")  # far from done when it is stopped

    async def both_serve() -> bool:
        return len(await serving(tmp_path)) >= 2

    await until(both_serve, every=0.1)

    send(process, signal.SIGINT)
    said = await ended(process)
    send(worker, signal.SIGTERM)
    await ended(worker)

    assert said.code == 130
    assert "Stopped here. Other workers go on with it: gossamer job pause" in said.err


async def serving(folder) -> list[object]:
    """The workers that say that they work on a job."""
    found = json.loads((await gossamer(folder, "workers", "list", "--json")).out)
    return [card for card in (found if isinstance(found, list) else found["workers"]) if card["job"]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_stopped_crawl_finishes_what_is_in_hand_and_goes_on_later(tmp_path, site, number):
    (tmp_path / "gossamer.toml").write_text(QUICK.replace("concurrency = 64", "concurrency = 4"))
    turnstile = Turnstile(free=5)
    for n in range(PAGES):
        site.shown[f"/page/{n}"] = turnstile

    # given a crawl in the middle of things
    process = await started(tmp_path, "crawl", site.url("/start"))
    await turnstile.reached.wait()
    # when it is asked to stop, and what is in progress is answered after that
    send(process, number)
    turnstile.opened.set()
    said = await ended(process)

    # then it says that it stopped, and how to go on
    assert said.code == 130
    assert "Stopped. Nothing is lost: run the same command again to resume." in said.err
    assert f"gossamer crawl {site.url('/start')}" in said.err
    asked = {seen.path for seen in site.log}
    assert len(asked) < PAGES
    # and the same command fetches the rest, each page once
    said = await gossamer(tmp_path, "crawl", site.url("/start"), "-o", "items.jsonl")
    assert said.code == 0
    assert len((tmp_path / "items.jsonl").read_text().splitlines()) == PAGES + 1
    pages = [seen.path for seen in site.log if seen.path.startswith("/page/")]
    assert sorted(pages) == sorted(f"/page/{n}" for n in range(PAGES))


async def test_the_summary_of_a_resumed_crawl_adds_up(tmp_path, site):
    (tmp_path / "gossamer.toml").write_text(QUICK.replace("concurrency = 64", "concurrency = 4"))
    turnstile = Turnstile(free=5)
    for n in range(2, PAGES):
        site.shown[f"/page/{n}"] = turnstile  # pages 0 and 1 are not found

    process = await started(tmp_path, "crawl", site.url("/start"))
    await turnstile.reached.wait()
    send(process, signal.SIGINT)
    turnstile.opened.set()
    before = await ended(process)
    after = await gossamer(tmp_path, "crawl", site.url("/start"))

    def figure(pattern: str, text: str) -> int:
        found = re.search(pattern, text)
        assert found is not None, text
        return int(found[1])

    done = figure(r"pages +(\d+) done", after.err)
    assert done == PAGES - 1  # the start, and all but two
    assert figure(r"pages +(\d+) done", before.err) + figure(r"(\d+) by this command", after.err) == done
    assert re.search(r"dead letters +2 +2 http-404", after.err), after.err


async def test_a_second_ctrl_c_ends_it_at_once_and_nothing_is_lost(tmp_path, site):
    # What is in progress would be given longer than the test has.
    toml = QUICK.replace('total_timeout = "100s"', 'total_timeout = "1h"').replace("60s", "1h")
    (tmp_path / "gossamer.toml").write_text(f'{toml}[crawl]\ndrain = "1h"\n')
    turnstile = Turnstile(free=5)
    for n in range(PAGES):
        site.shown[f"/page/{n}"] = turnstile
    process = await started(tmp_path, "crawl", site.url("/start"))
    await turnstile.reached.wait()

    waiting = asyncio.create_task(ended(process))
    # two signals in an instant would count as one
    await until(waiting.done, between=lambda: send(process, signal.SIGINT), every=0.2)
    said = await waiting

    assert said.code == 130
    turnstile.opened.set()
    assert (await gossamer(tmp_path, "crawl", site.url("/start"), "-o", "items.jsonl")).code == 0
    assert len((tmp_path / "items.jsonl").read_text().splitlines()) == PAGES + 1


async def test_a_crawl_that_is_cancelled_while_seeds_enter_gives_back_what_is_in_progress(tmp_path, site):
    class Endless(Spider):
        async def start(self):
            yield Request(url=site.url("/page/0"))
            for _ in range(SEEDS_AT_ONCE):
                yield Request(url=site.url("/page/0"))
            await asyncio.Event().wait()

    turnstile = site.shown["/page/0"] = Turnstile(free=0)
    flags = {"fetch.allow_private": True, "politeness.robots": False}
    crawling = asyncio.create_task(crawl(Endless(), load(start=tmp_path, environ={}, flags=flags)))
    await turnstile.reached.wait()
    crawling.cancel()
    with suppress(asyncio.CancelledError):
        await crawling

    assert "worker" not in {task.get_name() for task in asyncio.all_tasks()}
    with sqlite3.connect(tmp_path / "gossamer-data" / "state.db") as state:
        assert state.execute("SELECT count(*) FROM url_list WHERE state = 'leased'").fetchall() == [(0,)]
    turnstile.opened.set()

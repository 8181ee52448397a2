"""Sitemaps are fetched as politely as pages: robots.txt, pace, retries, validators, and no private address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gossamer.backends.open import open_state
from gossamer.clock import ServerClock, SystemClock, VirtualClock
from gossamer.crawl.seed_context import SeedContext
from gossamer.project.wiring import open_source_files
from gossamer.schedule.sources import FeedSource, SitemapSource, SourceEntry, Validators
from gossamer.schedule.sources.reader import entries
from gossamer.settings import Settings
from gossamer.settings.tables import Domain, Fetch, Managed, PolitenessTable, ProxyPool, Retry, RouteTable
from gossamer.terms import site_terms
from gossamer.units import Rate, Secret
from tests.patience import until
from tests.services.proxies import http_proxy
from tests.sites.hostile import Call, hostile_site
from tests.sites.sitemaps import index, urlset

from .sourced import SETTINGS, Scene, a_scene, paths


async def test_what_robots_txt_forbids_is_not_fetched() -> None:
    async with a_scene() as scene:
        scene.site.answer_robots(200, "User-agent: *\nDisallow: /private\nSitemap: /private/s.xml\n")
        scene.site.show("/private/s.xml", urlset(["/1"]))
        scene.site.show("/i.xml", "", "Location: /private/s.xml", status=301)
        for path in ("/private/s.xml", "/i.xml", "/robots.txt"):
            words = await scene.failure(path)
            assert "robots.txt forbids" in words
            assert "'Disallow: /private'" in words
        assert "/private/s.xml" not in scene.asked
    allowed = msgspec.structs.replace(SETTINGS, domains={"127.0.0.1": Domain(robots=False)})
    async with a_scene(allowed) as scene:
        scene.site.answer_robots(200, "User-agent: *\nDisallow: /\n")
        scene.site.show("/s.xml", urlset(["/1"]))
        assert paths(await scene.urls("/s.xml")) == ["/1"]


@pytest.mark.parametrize("target", ["http://127.0.0.2/s.xml", "http://169.254.169.254/latest", "http://[::1]/s.xml"])
async def test_private_addresses_are_refused_also_after_a_redirect(target: str) -> None:
    async with a_scene() as scene:
        scene.site.show("/s.xml", "", f"Location: {target}", status=302)
        scene.site.show("/i.xml", index([target]))
        assert "is on another site" in await scene.failure("/i.xml")
        for source in ("/s.xml", SitemapSource(url=target), FeedSource(url=target)):
            assert "a private or reserved address" in await scene.failure(source)


async def test_slow_server_is_left_after_a_while() -> None:
    async def never(call: Call) -> None:
        await asyncio.Event().wait()

    hasty = msgspec.structs.replace(
        SETTINGS, fetch=Fetch(allow_hosts=("127.0.0.1",), read_timeout=timedelta(milliseconds=200))
    )
    async with a_scene(hasty) as scene:
        scene.site.shown["/s.xml"] = never
        assert "silence for 0.2 s (fetch.read_timeout)" in await scene.failure("/s.xml")


async def test_what_may_pass_is_tried_again() -> None:
    tries = 0

    async def better_and_better(call: Call) -> None:
        nonlocal tries
        tries += 1
        body = urlset(["/1"])
        status = "503 Busy" if tries < 3 else "200 OK"
        await call.send(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    patient = msgspec.structs.replace(SETTINGS, retry=Retry(max_attempts=3, base=timedelta(milliseconds=1)))
    async with a_scene(patient) as scene:
        scene.site.shown["/s.xml"] = better_and_better
        assert paths(await scene.urls("/s.xml")) == ["/1"]
    assert tries == 3


PACED = msgspec.structs.replace(SETTINGS, politeness=PolitenessTable(rate=Rate(timedelta(seconds=1))))


async def test_requests_keep_the_pace_of_the_site() -> None:
    clock = VirtualClock()
    async with hostile_site() as site, open_source_files(PACED, clock=clock) as files:
        site.answer_robots(200, "User-agent: *\nCrawl-delay: 20\n")
        site.show("/i.xml", index(["/s.xml"]))
        site.show("/s.xml", urlset(["/1"]))
        context = files.context(report=print)
        reading = asyncio.create_task(_all(entries(SitemapSource(url=site.url("/i.xml")), context)))
        # given robots.txt, which is asked for at once and wants 20 s between two requests
        for path, before in (("/i.xml", 1), ("/s.xml", 2)):
            await until(lambda: clock.sleepers)
            # when less than that has passed, nothing is sent
            clock.advance(19.9)
            await asyncio.sleep(0)
            assert (clock.sleepers, len(site.log)) == (1, before)
            # then it is, and no sooner
            clock.advance(0.2)
            await until(lambda path=path: site.seen(path))
        assert len(await reading) == 1


async def test_requests_are_announced_and_share_the_pace_with_workers_on_the_same_site() -> None:
    clock, announced = VirtualClock(), list[float]()  # when the site may be visited again by others

    async def announce(site: str, rest: timedelta, request: str) -> float:
        assert site == "127.0.0.1"
        if announced:  # one at a time has the site to itself
            await clock.sleep(announced[-1] - clock.now())
        announced.append(clock.now() + rest.total_seconds())
        return clock.monotonic()

    async with hostile_site() as site, open_source_files(PACED, clock=clock, announce=announce) as files:
        site.answer_robots(404, "")
        site.show("/s.xml", urlset(["/1"]))
        context = files.context(report=print)
        began = clock.now()
        reading = asyncio.create_task(_all(entries(SitemapSource(url=site.url("/s.xml")), context)))
        sent = []
        for before in (0, 1):
            await until(lambda: clock.sleepers)
            assert len(site.log) == before  # a worker may have been there just now
            await until(
                lambda before=before: len(site.log) > before,
                # a request that is on its way arrives before time goes on
                between=lambda: clock.advance(0.1 if clock.sleepers else 0),
                every=0.001,
            )
            sent.append(clock.now())
        assert len(await reading) == 1
    # Theirs, ours, theirs, ours: a second between each two.
    assert sent[0] - began >= 1.0
    assert sent[1] - sent[0] >= 1.9
    assert [round(until - at, 1) >= 0.9 for until, at in zip(announced, sent, strict=True)] == [True, True]


async def test_a_request_whose_connection_took_too_long_is_announced_again() -> None:
    clock, announced = VirtualClock(), list[float]()

    async def announce(site: str, rest: timedelta, request: str) -> float:
        announced.append(clock.now() + rest.total_seconds())
        return clock.monotonic()

    async with open_source_files(PACED, clock=clock, announce=announce) as files:
        for handshake, times in ((0.1, 1), (0.9, 2)):
            announced.clear()
            gate = await passed(clock, files._before_send("a.test")(None))
            clock.advance(handshake)
            await passed(clock, gate.enter())
            # others come back a whole turn after it has left, or later
            assert announced[-1] - clock.now() >= 1.0
            assert len(announced) == times
            gate.left()
            gate.close()


async def passed(clock: VirtualClock, waiting: Coroutine[Any, Any, Any], steps: int = 1000) -> Any:
    task = asyncio.ensure_future(waiting)
    for _ in range(steps):
        await asyncio.sleep(0)
        if task.done():
            return await task
        clock.advance(0.01)
    task.cancel()
    raise AssertionError("it never came to its turn")


class SlowState:
    """Of the state that workers share what a source needs to have a site to itself. Each call takes `seconds`."""

    def __init__(self, clock: VirtualClock, seconds: float) -> None:
        self.seeds = self.frontier = self
        self.clock = clock
        self.seconds = seconds
        self.holder, self.held_until = "", 0.0
        self.free_until, self.rest_until = 0.0, 0.0  # of the site; before the one others may have come

    async def claim(self, site: str, name: str, duration: timedelta) -> bool:
        await self.clock.sleep(self.seconds / 2)
        granted = self.holder == name or self.clock.now() >= self.held_until
        if granted:
            self.holder, self.held_until = name, self.clock.now() + duration.total_seconds()
        await self.clock.sleep(self.seconds / 2)
        return granted

    async def clear(self, site: str, rest: timedelta) -> int:
        await self.clock.sleep(self.seconds / 2)
        if self.clock.now() >= self.rest_until:
            self.free_until = self.clock.now()
        self.rest_until = max(self.rest_until, self.clock.now() + rest.total_seconds())
        await self.clock.sleep(self.seconds / 2)
        return 0


@pytest.mark.parametrize("handshake", [0.0, 0.9])
@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.4, 3.0])
async def test_a_request_comes_to_its_turn_however_slow_the_state_is(handshake: float, seconds: float) -> None:
    clock = VirtualClock()
    state = SlowState(clock, seconds)
    context: Any = SimpleNamespace(worker="w", clock=clock, state=state)
    async with open_source_files(PACED, clock=clock, announce=partial(SeedContext.take_turn, context, "j-1")) as files:
        for _ in range(3):  # robots.txt, an index, a sitemap
            gate = await passed(clock, files._before_send("a.test")(None), steps=10_000)
            clock.advance(handshake)
            await passed(clock, gate.enter(), steps=10_000)
            # others came a whole turn before it the last time, and come a whole one after it; the claim holds as long
            assert clock.now() - state.free_until >= 1.0
            assert min(state.rest_until, state.held_until) - clock.now() >= 1.0
            gate.left()
            gate.close()


async def test_nothing_is_fetched_while_the_window_of_the_site_is_closed() -> None:
    closed = [timedelta(milliseconds=5)] * 3
    hits: list[int] = []
    async with hostile_site() as site:

        def closed_for(host: str) -> timedelta:
            hits.append(len(site.log))
            return closed.pop() if closed else timedelta(0)

        async with open_source_files(SETTINGS, closed_for=closed_for) as files:
            site.show("/s.xml", urlset(["/1"]))
            assert len(await _all(entries(SitemapSource(url=site.url("/s.xml")), files.context(report=print)))) == 1
    assert hits[:4] == [0, 0, 0, 0]


async def _all(found: AsyncIterator[SourceEntry]) -> list[SourceEntry]:
    return [entry async for entry in found]


async def test_file_that_has_not_changed_gives_nothing_and_an_index_is_always_read() -> None:
    async def conditional(call: Call) -> None:
        if call.seen.headers.get("if-none-match") == '"one"':
            await call.send(b"HTTP/1.1 304 Not Modified\r\n\r\n")
            return
        body = urlset(["/1"]) if call.seen.path == "/s.xml" else index(["/s.xml", "/new.xml"])
        await call.send(f'HTTP/1.1 200 OK\r\nETag: "one"\r\nContent-Length: {len(body)}\r\n\r\n'.encode() + body)

    async with a_scene() as scene:
        scene.site.shown["/i.xml"] = scene.site.shown["/s.xml"] = conditional
        scene.site.show("/new.xml", urlset([]))
        # given a first reading, which remembers the file of pages and not the index
        assert paths(await scene.urls("/i.xml")) == ["/1"]
        known = scene.seen
        assert known == {scene.site.url("/s.xml"): Validators(etag='"one"')}
        # when it is read again with what was remembered
        scene.site.show("/new.xml", urlset(["/2"]))
        again = await scene.entries("/i.xml", known=known)
        # then only what is new is given, and the unchanged file is still known
        assert paths([entry.url for entry in again]) == ["/2"]
        assert scene.seen == known
        # and without it all of it comes
        assert paths(await scene.urls("/i.xml")) == ["/1", "/2"]


async def test_file_that_came_in_part_is_not_remembered() -> None:
    async with a_scene() as scene:
        scene.site.show("/s.xml", urlset(["/1"])[:-4], 'ETag: "one"')
        assert paths(await scene.urls("/s.xml")) == ["/1"]
        assert scene.seen == {}


def veiled(tmp_path: Path, **pools: ProxyPool) -> Settings:
    return msgspec.structs.replace(
        SETTINGS,
        root=tmp_path,
        proxies=pools,
        routes={"veiled": RouteTable(transport="http", pool="home")},
        domains={"127.0.0.1": Domain(route="veiled")},
    )


async def test_site_that_must_not_see_this_machine_is_reached_through_its_pool(tmp_path: Path) -> None:
    with http_proxy() as proxy:
        settings = veiled(tmp_path, home=ProxyPool(urls=(Secret(proxy.url),), allow_private=True))
        async with (
            hostile_site() as site,
            open_state(settings, ServerClock(SystemClock()), terms_for=site_terms(settings, None)) as state,
            open_source_files(settings, proxies=state.proxies) as files,
        ):
            scene = Scene(site, files)
            site.show("/s.xml", urlset(["/1"]))
            assert paths(await scene.urls("/s.xml")) == ["/1"]
            assert len(proxy.passages) == len(site.log) == 2  # robots.txt, too
            proxy.refuse()
            assert "proxy" in await scene.failure("/s.xml")
            assert len(site.log) == 2


async def test_site_that_must_not_see_this_machine_is_not_asked_without_its_pool(tmp_path: Path) -> None:
    async with a_scene(veiled(tmp_path, home=ProxyPool())) as scene:
        assert "proxy pool home, which is not available here" in await scene.failure("/s.xml")
        assert scene.site.log == []


async def test_managed_api_is_not_paid_for_sitemaps() -> None:
    settings = msgspec.structs.replace(
        SETTINGS,
        managed={"api": Managed(preset="scraperapi", url="http://127.0.0.1:9", key=Secret("k"), allow_private=True)},
        routes={"bought": RouteTable(transport="managed", vendor="api")},
        domains={"127.0.0.1": Domain(route="bought")},
    )
    async with a_scene(settings) as scene:
        assert "come through the managed API of route bought" in await scene.failure("/s.xml")
        assert scene.site.log == []

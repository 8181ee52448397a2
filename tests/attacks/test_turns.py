"""A key holder asks for pages that take long to read. Everything that computes an answer takes turns per key: another
key waits for one turn, not for all of them. The order is counted, not the time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from aiohttp import web

from gossamer.model.site_part import SitePart
from gossamer.project.access.key_turns import KeyBusy, KeyTurns, ServerBusy
from gossamer.project.pages import page_children
from gossamer.project.pages.page_child import PageOrder
from gossamer.project.pages.page_children import PageChild, PageChildren
from tests.patience import PATIENCE, until
from tests.server.serving import Served, serving, settings_of

HERE = {"fetch__allow_hosts": ["heavy.localhost", "tiny.localhost"], "politeness__rate": "1000/s"}
HEAVY = "<title>Heavy</title><main>" + "<p>Many words and <a href='/heavy/on'>a link</a>.</p>" * 2000
ODD = '<title>Odd</title><script type="application/ld+json">{"@type": "Thing", "n": 1%s, "s": "\\ud800"}</script>'
TINY = "<title>Tiny</title><h1>Tiny</h1>"


@asynccontextmanager
async def sites() -> AsyncIterator[int]:
    """The port of a site with heavy pages and one with tiny ones."""

    async def answer(request: web.Request) -> web.Response:
        if request.path in ("/robots.txt", "/sitemap.xml"):
            raise web.HTTPNotFound
        text = HEAVY if "heavy" in request.path else ODD % ("0" * 30) if request.path == "/odd" else TINY
        return web.Response(text=text, content_type="text/html")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


class Held:
    """Keeps children busy with heavy pages until `let_go`, and counts what they were asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *works: str) -> None:
        self.let_go = asyncio.Event()
        self.heavy = 0
        usual = PageChild.send

        async def send(child: PageChild, order: bytes, seconds: float) -> bytes | None:
            asked = msgspec.msgpack.decode(order, type=PageOrder)
            if "/heavy" in asked.url and type(asked.work).__name__ in works:
                self.heavy += 1
                await self.let_go.wait()
            return await usual(child, order, seconds)

        monkeypatch.setattr(PageChild, "send", send)

    async def at_work(self, children: int) -> None:
        await until(lambda: self.heavy >= children)


# -- the line itself -------------------------------------------------------------------------------------------------


async def run_turns(turns: KeyTurns, key: str, order: list[str]) -> None:
    async with turns.turn(key):
        order.append(key)
        await asyncio.sleep(0)


@pytest.mark.parametrize(("places", "each"), [(1, 1), (2, 1), (3, 2)])
async def test_a_key_waits_for_one_turn_of_each_other_key_however_long_their_lines_are(places: int, each: int) -> None:
    turns, order = KeyTurns(places, each), list[str]()
    greedy = [asyncio.create_task(run_turns(turns, f"greedy{n % 3}", order)) for n in range(90)]
    await asyncio.sleep(0)
    modest = [asyncio.create_task(run_turns(turns, "modest", order)) for _ in range(3)]
    before = len(order)
    await asyncio.gather(*greedy, *modest)

    at = [place for place, key in enumerate(order) if key == "modest"]
    between = [later - earlier - 1 for earlier, later in zip([before - 1, *at], at, strict=False)]
    assert max(between) <= 3 + places  # one of each of the three others, and those under way
    assert len(order) == 93


async def test_a_key_never_has_more_places_than_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, now, most = KeyTurns(3, 2), 0, 0

    async def work() -> None:
        nonlocal now, most
        async with turns.turn("greedy"):
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1

    await asyncio.gather(*(work() for _ in range(20)))
    assert most == 2


async def test_who_goes_away_leaves_the_line_and_gives_the_place_back() -> None:
    turns, order = KeyTurns(1, 1), list[str]()
    in_place = asyncio.Event()

    async def stay() -> None:
        async with turns.turn("a"):
            in_place.set()
            await asyncio.Event().wait()

    holder = asyncio.create_task(stay())
    await in_place.wait()
    waiting = [asyncio.create_task(run_turns(turns, key, order)) for key in "bcd"]
    await asyncio.sleep(0)
    waiting[0].cancel()
    holder.cancel()
    waiting[1].cancel()  # perhaps just when its turn comes
    await asyncio.gather(holder, *waiting, return_exceptions=True)
    await run_turns(turns, "e", order)
    assert order == ["d", "e"]


async def test_the_line_has_an_end() -> None:
    turns, order = KeyTurns(1, 1, waiting_each=2, waiting=3), list[str]()
    async with turns.turn("a"):
        waiting = [asyncio.create_task(run_turns(turns, key, order)) for key in ("a", "a", "b")]
        await asyncio.sleep(0)
        with pytest.raises(KeyBusy, match="Ask again"):
            await run_turns(turns, "a", order)
        with pytest.raises(ServerBusy, match="Ask again"):
            await run_turns(turns, "c", order)
    await asyncio.gather(*waiting)
    assert sorted(order) == ["a", "a", "b"]


# -- through the doors -----------------------------------------------------------------------------------------------


async def asked_at_every_door(door: Served, key: str, url: str) -> list[httpx.Response]:
    """What a key can ask about a page, at each door that computes an answer."""
    scrape = {"url": url, "formats": ["markdown", "article", "product", "links"], "extract": {"title": "h1"}}
    first = await door.post("/api/v1/scrape", scrape, key)
    cached = await door.post("/api/v1/scrape", {**scrape, "max_age": 3600}, key)
    schema = {"type": "json", "schema": {"type": "object", "properties": {"title": {"type": "string"}}}}
    firecrawl = await door.post("/v2/scrape", {"url": url, "formats": ["html", "markdown", schema]}, key)
    mapped = await door.post("/v2/map", {"url": url}, key)
    job = (await door.post("/api/v1/batch", {"urls": [url], "formats": ["text"]}, key)).json()["job_id"]
    await door.client(key).wait(job, every=0.02)
    return [first, cached, firecrawl, mapped, await door.get(f"/api/v1/jobs/{job}", key)]


async def begun(door: Served, key: str, port: int, count: int = 6) -> list[asyncio.Task[httpx.Response]]:
    heavy = [
        {"url": f"http://heavy.localhost:{port}/heavy/{n}", "formats": ["markdown", "links", "records"], "timeout": 60}
        for n in range(count)
    ]
    return [asyncio.create_task(door.post("/api/v1/scrape", body, key)) for body in heavy]


@pytest.mark.parametrize("work", ["DescribePage", "FormatPage"])  # in the worker, and in the server
async def test_heavy_pages_of_one_key_keep_no_other_key_from_its_tiny_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    held = Held(monkeypatch, work)
    async with sites() as port, serving(settings_of(tmp_path, **HERE)) as door, asyncio.timeout(PATIENCE):
        greedy, modest = await door.new_key("greedy", "scrape"), await door.new_key("modest", "scrape", "jobs")
        heavy = await begun(door, greedy, port)
        await held.at_work(1 if work == "DescribePage" else page_children.EACH)
        tiny = await asked_at_every_door(door, modest, f"http://tiny.localhost:{port}/tiny")
        answered = [task for task in heavy if task.done()]
        held.let_go.set()
        heavy_answers = await asyncio.gather(*heavy)

    assert answered == []  # not one heavy page was read before all the answers of the other key
    assert [answer.status_code for answer in tiny] == [200] * 5, [answer.text for answer in tiny]
    assert tiny[0].json()["data"]["extract"] == {"title": "Tiny"}
    assert all(answer.json()["success"] for answer in heavy_answers)
    assert held.heavy == 6  # the greedy key got everything in the end, once


async def test_a_key_with_too_many_pages_in_line_is_told_so_and_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_children, "WAITING_EACH", 1)
    held = Held(monkeypatch, "FormatPage")
    async with sites() as port, serving(settings_of(tmp_path, **HERE)) as door, asyncio.timeout(PATIENCE):
        greedy, modest = await door.new_key("greedy", "scrape"), await door.new_key("modest", "scrape")
        heavy = await begun(door, greedy, port)
        too_many = len(heavy) - page_children.EACH - 1
        await until(lambda: sum(task.done() for task in heavy) == too_many)  # the others are held
        tiny = await door.post("/v2/scrape", {"url": f"http://tiny.localhost:{port}/tiny"}, modest)
        held.let_go.set()
        answers = await asyncio.gather(*heavy)

    refused = [answer for answer in answers if answer.status_code == 429]
    assert tiny.status_code == 200
    assert len(refused) == too_many
    assert {answer.json()["error"]["code"] for answer in refused} == {"at_once"}
    assert all(answer.headers["retry-after"] for answer in refused)


@pytest.mark.parametrize("work", ["DescribePage", "FormatPage"])  # in the worker, and in the server
async def test_a_page_that_takes_too_long_fails_alone_and_its_child_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    monkeypatch.setattr(PageChild, "ask", _hurried(PageChild.ask, work))
    async with sites() as port, serving(settings_of(tmp_path, **HERE)) as door, asyncio.timeout(PATIENCE):
        body = {"url": f"http://heavy.localhost:{port}/heavy/1", "formats": ["article", "records"]}
        late = (await door.post("/api/v1/scrape", body)).json()
        tiny = {"url": f"http://tiny.localhost:{port}/tiny", "formats": ["markdown"]}
        fine = [(await door.post("/api/v1/scrape", {**tiny, "id": str(n)})).json() for n in range(4)]

    assert late["success"] is False
    assert "takes longer to read" in late["error"]["message"]
    assert [one["data"]["markdown"] for one in fine] == ["# Tiny"] * 4


def _hurried(ask: Any, kind: str) -> Any:
    async def hurried(child: PageChild, work: Any, page: Any, seconds: float) -> Any:
        is_late = type(work).__name__ == kind and "/heavy" in page.url
        return await ask(child, work, page, 0.001 if is_late else seconds)

    return hurried


async def test_what_messagepack_cannot_hold_comes_through_as_it_is(tmp_path: Path) -> None:
    async with sites() as port, serving(settings_of(tmp_path, **HERE)) as door, asyncio.timeout(PATIENCE):
        body = {"url": f"http://tiny.localhost:{port}/odd", "formats": ["json", "html"]}
        schema = {"type": "object", "properties": {"n": {}, "s": {"type": "string"}}}
        answer = await door.post("/api/v1/scrape", {**body, "schema": schema})

    assert answer.status_code == 200
    assert "1" + "0" * 30 in answer.text


async def test_children_end_with_who_opened_them() -> None:
    async with PageChildren(1, 1) as children, children.turn("a") as child:
        answer = await child.ask(page_children.DescribePage(), None, 10.0)
        process = child._process
    assert answer is not None
    assert process is not None
    assert process.returncode is not None


# -- patterns --------------------------------------------------------------------------------------------------------

SITEMAP = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{}</urlset>'
JUDGING = 0.005  # seconds that a slow pattern takes for one address


class SlowPatterns:
    """Notes which addresses this process compares with patterns, and takes its time for each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: list[float] = []
        usual = SitePart.has

        def has(part: SitePart, href: str) -> bool:
            if part.include or part.exclude:
                self.at.append(time.monotonic())
                time.sleep(JUDGING)
            return usual(part, href)

        monkeypatch.setattr(SitePart, "has", has)


@asynccontextmanager
async def linked_site(listed: int) -> AsyncIterator[str]:
    """A small page with links, and a sitemap that lists some more."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/sitemap.xml":
            places = "".join(f"<url><loc>http://{request.host}/listed/{n}</loc></url>" for n in range(listed))
            return web.Response(text=SITEMAP.format(places), content_type="application/xml")
        if request.path == "/robots.txt":
            raise web.HTTPNotFound
        text = TINY + "".join(f"<a href='/{name}'>x</a>" for name in ("good/1", "good/2", "bad/1", "good/1"))
        return web.Response(text=text, content_type="text/html")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://heavy.localhost:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def test_links_meet_the_patterns_of_a_key_in_a_child_however_small_the_page_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the worker's event loop, patterns that take 80 ms for an address stopped the pages of all other keys."""
    slow = SlowPatterns(monkeypatch)
    async with linked_site(0) as url, serving(settings_of(tmp_path, **HERE)) as door, asyncio.timeout(PATIENCE):
        body = {"url": url, "includePaths": ["^/good/"], "sitemap": "skip", "crawlEntireDomain": True}
        job = (await door.post("/v2/crawl", body)).json()["id"]
        await door.client().wait(job, every=0.02)
        found = (await door.get(f"/v2/crawl/{job}")).json()["data"]
    assert sorted(page["metadata"]["sourceURL"] for page in found) == [f"{url}good/1", f"{url}good/2"]
    assert slow.at == []


async def test_a_sitemap_under_slow_patterns_leaves_the_loop_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowPatterns(monkeypatch)
    async with linked_site(20) as url, serving(settings_of(tmp_path, **HERE)) as door, asyncio.timeout(PATIENCE):
        body = {"url": url, "includePaths": ["^/listed/"], "sitemap": "only"}
        job = (await door.post("/v2/crawl", body)).json()["id"]
        await door.client().wait(job, every=0.02)
    assert len(slow.at) >= 20
    assert slow.at[19] - slow.at[0] >= 19 * JUDGING * 9  # it rests most of the time

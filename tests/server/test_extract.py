"""Values of pages by rules of the client: right ones, wrong ones, and such as would never come to an end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from gossamer.client import ServerError
from gossamer.clock import SystemClock
from gossamer.project.pages import extraction, page_children
from tests.faults.commands import children_of
from tests.patience import PATIENCE, until

from .mirror import HERE
from .serving import Served, serving, settings_of

PAGE = """<title>Lamp</title><h1> A lamp </h1><p class="price">€ 1.234,50</p>
<ul><li><b>Ann</b> <i>5</i></li><li><b>Ben</b> <i>3</i></li></ul>
<script>window.state = {"stock": {"count": 7}};</script><a href="/next">more</a><pre>%s</pre>"""
RULES: dict[str, Any] = {
    "title": "h1",
    "price": {"css": ".price", "type": "money", "currency": "EUR"},
    "link": {"xpath": "//a/@href", "type": "url"},
    "stock": {"json": "$.stock.count", "after": "window.state =", "type": "int"},
    "digits": {"css": ".price", "regex": r"(\d+),", "type": "int"},
    "reviews": {"each": "li", "fields": {"who": "b", "stars": {"css": "i", "type": "int"}}},
    "nothing": {"css": ".nowhere", "default": "-"},
}
NEVER = "a" * 40 + "!"


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with _site() as address:
        yield address


@asynccontextmanager
async def _site() -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/robots.txt":
            raise web.HTTPNotFound
        if request.path == "/data":
            return web.json_response({"items": [{"n": 1}, {"n": 2}]})
        return web.Response(text=PAGE % NEVER, content_type="text/html")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://site0.localhost:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def test_values_come_by_css_xpath_json_and_regex(tmp_path: Path, url: str) -> None:
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        page = await client.scrape(url, formats=[], extract=RULES)
        copy = await client.scrape(url, formats=["metadata"], extract={"title": "h1"}, max_age=60)
        numbers = {"n": {"json": "$.items[*].n", "type": "list", "of": "int"}}
        job = await client.wait((await client.batch([f"{url}data"], extract=numbers)).job_id, every=0.05)

    assert page.error is None
    assert page.data == {
        "extract": {
            "title": "A lamp",
            "price": {"amount": "1234.50", "currency": "EUR"},
            "link": f"{url}next",
            "stock": 7,
            "digits": 234,
            "reviews": [{"who": "Ann", "stars": 5}, {"who": "Ben", "stars": 3}],
            "nothing": "-",
        }
    }
    assert copy.meta.from_cache
    assert copy.data is not None
    assert (copy.data["extract"], copy.data["metadata"]["title"]) == ({"title": "A lamp"}, "A lamp")
    assert job.results is not None
    assert job.results[0].data is not None
    assert job.results[0].data["extract"] == {"n": [1, 2]}


async def test_what_is_required_and_missing_is_told_beside_the_other_formats(tmp_path: Path, url: str) -> None:
    rules = {"isbn": {"css": ".isbn", "required": True}, "title": "h1"}
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        page = await client.scrape(url, formats=["metadata"], extract=rules)

    assert (page.success, page.status_code) == (False, 200)
    assert page.error is not None
    assert page.error.code == "extract"
    assert "isbn: css .isbn found nothing" in page.error.message
    assert page.data is not None
    assert page.data["extract"] is None
    assert page.data["metadata"]["title"] == "A lamp"


WRONG: list[Any] = [
    {}, [], "h1", 1, {"a": 1}, {"a": {}}, {"a": {"css": "h1["}}, {"a": {"css": ""}}, {"a": {"xpath": "//["}},
    {"a": {"xpath": "nofunction()"}}, {"a": {"json": "items"}}, {"a": {"regex": "("}},
    {"a": {"css": "h1", "type": "x"}},
    {"a": {"css": "h1", "command": "ls"}}, {"a": {"css": "h1", "transforms": ["eval"]}}, {"1": "h1"}, {"a b": "h1"},
    {"a": {"css": "h1", "follow": "a"}}, {"pages": {"listing": {"fields": {"a": "h1"}}}}, {"a": {"python": "1"}},
    {"a": {"css": "h1", "xpath": "//h1"}}, {f"f{n}": "h1" for n in range(201)}, {"a": "h1" * 10_000},
    {"a": {"fields": {}}}, {"a": {"css": "h1", "default": {}}}, {"a": None}, {"start": ["https://x.example/"]},
]  # fmt: skip


async def test_rules_that_cannot_be_followed_are_refused_and_nothing_is_begun(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        for rules in WRONG:
            page = {"url": "https://shop.example/", "extract": rules}
            for path, body in (("/api/v1/scrape/async", page), ("/api/v1/batch", {"requests": [page]})):
                answer = await door.post(path, body)
                assert answer.status_code == 422, (rules, answer.text)
                assert "Traceback" not in answer.text
        both = {"requests": [{"url": "https://shop.example/"}], "extract": {"a": "h1"}}
        assert (await door.post("/api/v1/batch", both)).status_code == 422
        assert await door.project.state.jobs.jobs() == []


SLOW = [
    {"a": {"css": "pre", "regex": r"^(a+)+$"}},
    pytest.param({"a": {"regex": r"(?:a|a)*b"}}, marks=pytest.mark.long),
    pytest.param({"a": {"css": "pre", "transforms": [{"replace": r"(a*)*c", "with": ""}]}}, marks=pytest.mark.long),
]


@pytest.mark.parametrize("rules", SLOW)
async def test_rules_without_end_are_stopped_while_others_are_served(
    tmp_path: Path, url: str, rules: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extraction, "LIMIT", 1.0)
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        slow = asyncio.create_task(client.scrape(url, formats=["metadata"], extract=rules))
        others = 0

        async def ask_for_another() -> None:
            nonlocal others
            assert (await door.get("/api/v1/jobs")).status_code == 200
            others += 1

        await until(slow.done, between=ask_for_another, every=0)
        page = await slow
        again = await client.scrape(url, formats=["metadata"], extract=rules)
        fine = await client.scrape(url, formats=[], extract={"title": "h1"})

    assert others > 10  # questions were answered while the rules ran
    assert page.error is not None
    assert (page.error.code, "took longer" in page.error.message) == ("extract", True)
    assert page.data is not None
    assert page.data["metadata"]["title"] == "A lamp"
    assert again.error is not None
    assert "recently" in again.error.message
    assert fine.data == {"extract": {"title": "A lamp"}}


async def test_a_child_that_says_nothing_is_killed_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extraction, "LIMIT", 0.5)
    monkeypatch.setattr(page_children, "GRACE", 0.5)
    deep = "//*[" * 40 + "1" + "]" * 40  # each level takes several times as long, in code that looks at no signal
    async with serving(settings_of(tmp_path), worker=False) as door:
        before = set(children_of(os.getpid()))
        answer = await _asked(door, {"a": {"xpath": deep}})
        fine = await _asked(door, {"a": "h1"})
    left = set(children_of(os.getpid())) - before

    assert answer.status_code == 422
    assert "took longer" in answer.text
    assert fine.status_code == 202
    assert not left


async def test_rules_of_one_key_do_not_hold_up_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back, asked = asyncio.Event(), []

    async def send(child: object, order: bytes, seconds: float) -> bytes:
        asked.append(b"slow" in order)
        if b"slow" in order:
            await given_back.wait()
        return msgspec.msgpack.encode({})

    monkeypatch.setattr(page_children.PageChild, "send", send)
    async with page_children.PageChildren() as opened, asyncio.timeout(PATIENCE):
        children = extraction.Extraction(SystemClock(), opened)
        slow = [asyncio.create_task(children.check({f"slow{n}": "a"}, "greedy")) for n in range(20)]
        await until(lambda: len(asked) >= page_children.EACH, every=0)
        for n in range(3):
            await children.check({f"quick{n}": "a"}, "modest")
        assert asked == [True] * page_children.EACH + [False] * 3
        given_back.set()
        await asyncio.gather(*slow)
    assert len(asked) == 23


async def _asked(door: Served, rules: dict[str, Any]) -> Any:
    return await door.post("/api/v1/scrape/async", {"url": "https://shop.example/", "extract": rules})


async def test_the_client_tells_of_rules_that_are_wrong(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door, door.client() as client:
        with pytest.raises(ServerError, match=r"extract\.price\.type") as error:
            await client.scrape_async("https://shop.example/", extract={"price": {"css": ".price", "type": "mony"}})

    assert 'Did you mean "money"' in str(error.value)

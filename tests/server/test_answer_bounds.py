"""No answer is without end, and one that is not whole says so. A real server: what is broken off must be seen."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from gossamer.project.pages import results as page_results
from gossamer.server import record_routes
from gossamer.server.run import HttpServer, _config
from tests.patience import PATIENCE
from tests.sites.running import Park, park

from .serving import Served, listening, serving, settings_of

HERE = {"fetch__allow_hosts": ["site0.localhost"]}
RECORDS = 12


@pytest.fixture(scope="module")
def site() -> Iterator[Park]:
    with park(pages=RECORDS) as opened:
        yield opened


@pytest.fixture
async def door(tmp_path: Path, site: Park) -> AsyncIterator[Served]:
    """After a crawl of the site, with room for about half of its records in an answer."""
    settings = settings_of(tmp_path, start=site.url(), server__max_stream="2000", **HERE)
    async with serving(settings) as door:
        yield door


async def crawled(door: Served, limit: int = RECORDS) -> str:
    async with door.client() as client:
        job = (await client.crawl(spider="things", limit=limit)).job_id
        ended = await client.wait(job, every=0.05)
        assert ended.done == limit
        assert ended.items is not None
        assert ended.items.yielded == sum(ended.items.states().values()) == limit
    return job


@pytest.mark.parametrize("path", ["/api/v1/records?format=jsonl", "/api/v1/records/changes"])
async def test_lines_beyond_the_bound_end_with_an_error_and_are_broken_off(
    door: Served, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(record_routes, "PIECE", 1)
    await crawled(door)
    got, whole = b"", False
    async with listening(HttpServer(_config(door.app))) as port, httpx.AsyncClient(timeout=PATIENCE) as client:
        address = f"http://127.0.0.1:{port}{path}"
        async with client.stream("GET", address, headers={"x-api-key": door.key}) as answer:
            with suppress(httpx.RemoteProtocolError):
                async for piece in answer.aiter_bytes():
                    got += piece
                whole = True
    assert not whole
    *records, last = [json.loads(line) for line in got.splitlines()]
    assert last["error"]["code"] == "too_large"
    assert 0 < len(records) < RECORDS
    assert all("sku" in record for record in records)


async def test_a_table_beyond_the_bound_is_refused(door: Served) -> None:
    await crawled(door)
    answer = await door.get("/api/v1/records", format="csv")
    assert answer.status_code == 422
    assert "server.max_stream" in answer.json()["error"]["message"]


async def test_differences_beyond_the_bound_are_cut_and_say_so(door: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = {"before": await crawled(door, 1), "after": await crawled(door)}
    whole = await door.get("/api/v1/records/diff", **jobs)
    monkeypatch.setattr(record_routes, "MOST_BYTES", 500)
    some = await door.get("/api/v1/records/diff", **jobs)
    assert (len(whole.json()), whole.headers.get("x-gossamer-cut")) == (RECORDS - 1, None)
    assert 0 < len(some.json()) < RECORDS - 1
    assert some.headers["x-gossamer-cut"] == str(len(some.json()))


async def test_a_page_that_is_too_much_in_its_formats_is_an_error(
    door: Served, site: Park, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_results, "MOST_OF_A_PAGE", 100)
    async with door.client() as client:
        page = await client.scrape(site.url(path="/page/7"), formats=["html", "markdown"])
    assert (page.success, page.data) == (False, None)
    assert page.error is not None
    assert "Request fewer of them" in page.error.message

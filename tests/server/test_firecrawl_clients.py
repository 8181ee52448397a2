"""The official clients of Firecrawl (Python, JavaScript), unmodified, against a server."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from firecrawl import Firecrawl, V1FirecrawlApp
from firecrawl.v2.types import ScrapeOptions
from firecrawl.v2.utils.error_handler import FirecrawlError
from mcp import Client, StdioServerParameters

from gossamer.server.run import HttpServer, _config
from tests.patience import PATIENCE, until
from tests.sites.running import Park, park

from .serving import Served, listening, serving, settings_of

HERE = {"fetch__allow_hosts": ["site0.localhost"]}


@pytest.fixture(scope="module")
def site() -> Iterator[Park]:
    with park(pages=130) as opened:
        yield opened


class Reached(msgspec.Struct, frozen=True):
    door: Served
    address: str

    async def ask(self, function: Callable[..., Any], *values: Any, **options: Any) -> Any:
        """Call a method of the client, which blocks, beside the server."""
        async with asyncio.timeout(PATIENCE):
            return await asyncio.to_thread(function, *values, **options)


@asynccontextmanager
async def reached(folder: Path, **flags: Any) -> AsyncIterator[Reached]:
    async with (
        serving(settings_of(folder, **HERE, **flags)) as door,
        listening(HttpServer(_config(door.app))) as port,
    ):
        yield Reached(door, f"http://127.0.0.1:{port}")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the client's own code for v1
async def test_the_python_client_scrapes_maps_and_is_told_what_is_wrong(tmp_path: Path, site: Park) -> None:
    async with reached(tmp_path) as server:
        client = Firecrawl(api_key=server.door.key, api_url=server.address)
        page = await server.ask(
            client.scrape, site.url(path="/page/7"), formats=["markdown", "html", "rawHtml", "links"]
        )
        again = await server.ask(client.scrape, site.url(path="/page/7"), formats=["links"])
        gone = await server.ask(client.scrape, site.url(path="/nothing"))
        found = await server.ask(client.map, site.url(), limit=50)
        with pytest.raises(FirecrawlError, match="summary"):
            await server.ask(client.scrape, site.url(), formats=["summary"])
        with pytest.raises(FirecrawlError, match="search engine"):
            await server.ask(client.search, "lamps")
        old = V1FirecrawlApp(api_key=server.door.key, api_url=server.address)
        first = await server.ask(old.scrape_url, site.url(path="/page/8"), formats=["markdown"])
        links = await server.ask(old.map_url, site.url(), limit=5)
        crawled = await server.ask(old.crawl_url, site.url(), limit=4, max_depth=1, poll_interval=1)
        batch = await server.ask(old.batch_scrape_urls, [site.url(path="/page/9")], formats=["links"], poll_interval=1)

    assert "Page 7 of site0" in page.markdown
    assert page.html is not None
    assert "<script" not in page.html
    assert "<title>Page 7 of site0</title>" in page.raw_html
    assert site.url(path="/page/15") in page.links
    assert (page.metadata.status_code, page.metadata.source_url) == (200, site.url(path="/page/7"))
    assert (page.metadata.cache_state, again.metadata.cache_state) == ("miss", "hit")
    assert len(site.hits(path="/page/7")) == 1
    assert gone.metadata.status_code == 404
    assert len(found.links) > 5
    assert first.success
    assert "Page 8 of site0" in first.markdown
    assert len(links.links) == 5
    assert (crawled.status, len(crawled.data)) == ("completed", 4)
    assert site.url(path="/page/9") == batch.data[0].metadata["sourceURL"]


@pytest.mark.long
async def test_the_python_client_crawls_more_than_a_page_of_documents(tmp_path: Path, site: Park) -> None:
    async with reached(tmp_path) as server:
        client = Firecrawl(api_key=server.door.key, api_url=server.address)
        options = ScrapeOptions(formats=["markdown"])
        job = await server.ask(client.crawl, site.url(), limit=120, scrape_options=options, poll_interval=1)
        some = await server.ask(
            client.crawl, site.url(), include_paths=["^/page/[1-9]$"], limit=40, poll_interval=1, sitemap="skip"
        )
        empty = await server.ask(client.crawl, site.url(), include_paths=["^/none$"], limit=3, poll_interval=1)
        failing = await server.ask(client.crawl, site.url(path="/nothing"), poll_interval=1)
        errors = await server.ask(client.get_crawl_errors, failing.id)

    assert (job.status, job.next) == ("completed", None)
    urls = [one.metadata.source_url for one in job.data]
    assert len(urls) == len(set(urls)) > 100
    assert all(one.markdown for one in job.data)
    assert {one.metadata.source_url for one in some.data} <= {site.url(path=f"/page/{n}") for n in range(1, 10)}
    assert some.data
    assert (empty.status, empty.data) == ("completed", [])
    assert (failing.status, failing.data) == ("failed", [])
    assert [one.url for one in errors.errors] == [site.url(path="/nothing")]


@pytest.mark.long
async def test_the_python_client_follows_cancels_and_batches(tmp_path: Path) -> None:
    with park(pages=200, latency_ms=300) as slow:
        async with reached(tmp_path) as server:
            client = Firecrawl(api_key=server.door.key, api_url=server.address)
            begun = await server.ask(client.start_crawl, slow.url(), limit=150)

            async def with_data() -> Any:
                found = await server.ask(client.get_crawl_status, begun.id)
                return found if found.data else None

            running = await until(with_data, every=0.1)
            active = await server.ask(client.get_active_crawls)
            cancelled = await server.ask(client.cancel_crawl, begun.id)
            after = await server.ask(client.get_crawl_status, begun.id)
            twice = await server.ask(client.cancel_crawl, begun.id)
            urls = [slow.url(path=f"/page/{n}") for n in range(1, 6)] + ["http://10.0.0.1/", slow.url(path="/nothing")]
            batch = await server.ask(client.start_batch_scrape, urls, formats=["links"])
            told: list[tuple[str, Any]] = []
            watcher = client.watcher(batch.id, kind="batch", poll_interval=PATIENCE)
            for event in ("document", "done", "error"):
                watcher.add_event_listener(event, lambda said, event=event: told.append((event, said)))
            watcher.start()
            await until(lambda: told and told[-1][0] != "document")
            whole = await server.ask(client.get_batch_scrape_status, batch.id)

    assert running.status == "scraping"
    assert [one.id for one in active.crawls] == [begun.id]
    assert (cancelled, after.status, twice) == (True, "cancelled", False)
    assert batch.invalid_urls == ["http://10.0.0.1/"]
    documents = {said["data"]["metadata"]["sourceURL"] for event, said in told if event == "document"}
    assert documents == {*urls} - {"http://10.0.0.1/"}
    assert told[-1][0] == "done"
    assert [one.metadata.status_code for one in whole.data] == [200] * 5 + [404]


@pytest.mark.long
@pytest.mark.skipif(not (shutil.which("node") and shutil.which("npm")), reason="no node and npm on this machine")
async def test_the_javascript_client_runs_unmodified(tmp_path: Path, site: Park) -> None:
    # given the package as its registry has it
    (tmp_path / "client").mkdir()
    script = Path(__file__).with_name("firecrawl_client.mjs")
    shutil.copy(script, tmp_path / "client")
    (tmp_path / "client" / "package.json").write_text('{"private": true}', encoding="utf-8")
    packages = ("@mendable/firecrawl-js@4", "undici@6")  # of which the client takes WebSockets, before Node 22
    await run("npm", "install", "--no-audit", "--no-fund", *packages, folder=tmp_path / "client")
    with park(pages=200, latency_ms=300) as slow:
        async with reached(tmp_path) as server:
            text = await run(
                "node", script.name, server.address, server.door.key, site.url()[:-1], slow.url()[:-1],
                folder=tmp_path / "client",
            )  # fmt: skip
        pages = sorted(slow.url(path=f"/page/{n}") for n in (1, 2, 3))
    said = json.loads(text)

    assert "Page 7 of site0" in said["page"]["markdown"]
    assert (said["page"]["status"], said["map"]) == (200, 20)
    assert said["refused"]["status"] == 400
    assert "summary" in said["refused"]["message"]
    assert said["whole"]["status"] == "completed"
    assert said["whole"]["documents"] > 100
    assert said["empty"] == {"status": "completed", "documents": 0}
    assert said["failing"] == {"status": "failed", "errors": 1}
    assert (said["running"], said["active"], said["cancelled"]) == ("scraping", True, [True, "cancelled"])
    assert said["watched"] == pages


@pytest.mark.long
@pytest.mark.skipif(not (shutil.which("node") and shutil.which("npm")), reason="no node and npm on this machine")
async def test_agents_with_firecrawls_own_tools_scrape_map_and_crawl(tmp_path: Path, site: Park) -> None:
    # given the MCP server of Firecrawl, as its registry has it, told of our address and nothing else
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "package.json").write_text('{"private": true}', encoding="utf-8")
    await run("npm", "install", "--no-audit", "--no-fund", "firecrawl-mcp@3", folder=tmp_path / "tools")
    program = tmp_path / "tools" / "node_modules" / "firecrawl-mcp" / "dist" / "index.js"
    async with reached(tmp_path) as server:
        told = {"FIRECRAWL_API_URL": server.address, "FIRECRAWL_API_KEY": server.door.key}
        command = StdioServerParameters(command="node", args=[str(program)], env={**os.environ, **told})
        async with Client(command, read_timeout_seconds=PATIENCE) as client:

            async def use(tool: str, **arguments: Any) -> Any:
                answer = await client.call_tool(tool, arguments)
                text = answer.content[0].text
                return text if answer.is_error else json.loads(text)

            page = await use("firecrawl_scrape", url=site.url(path="/page/7"), formats=["markdown"])
            links = await use("firecrawl_map", url=site.url(), limit=10)
            job = await use("firecrawl_crawl", url=site.url(), limit=5, maxDiscoveryDepth=1)
            again = await use("firecrawl_check_crawl_status", id=job["id"])
            refused = await use("firecrawl_extract", urls=[site.url()], prompt="everything")

    assert "Page 7 of site0" in page["markdown"]
    assert len(links["links"]) == 10
    assert (again["status"], len(again["data"])) == ("completed", 5)
    assert "not supported here" in refused


async def run(*command: str, folder: Path) -> str:
    """What the command prints."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=dict(os.environ)
    )
    try:
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, err.decode()[-2000:]
    return out.decode()

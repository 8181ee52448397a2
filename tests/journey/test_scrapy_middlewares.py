"""What parts of a Scrapy project may do around requests and in start(): requests in place of others, at other sites and
with other methods; downloads; signals; and counts that end a job."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gossamer.parse.discovery import load_spider
from gossamer.project.open import open_project
from tests.journey.crawling import crawled, settings_for
from tests.patience import PATIENCE

pytestmark = pytest.mark.filterwarnings("ignore::scrapy.exceptions.ScrapyDeprecationWarning")


@asynccontextmanager
async def serving(answer):
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        yield server.port


@pytest.fixture
async def site():
    """One server, two sites by name: `near` and `far`. It says what it was asked for."""
    log = []

    async def answer(request):
        if request.path == "/robots.txt":
            return web.Response(status=404)
        log.append(f"{request.method} {request.host.partition(':')[0]}{request.path}")
        if request.path == "/refresh":
            tag = '<html><head><meta http-equiv="refresh" content="1; url=/new"></head></html>'
            return web.Response(text=tag, content_type="text/html")
        text = f"<h1>{request.method} {request.path} {await request.text()}</h1>"
        return web.Response(text=text, content_type="text/html")

    async with serving(answer) as port:
        near, far = f"http://near.localhost:{port}", f"http://far.localhost:{port}"
        yield SimpleNamespace(near=near, far=far, log=log)


def made(tmp_path, site, text):
    (tmp_path / "made.py").write_text(f"NEAR, FAR = {site.near!r}, {site.far!r}\n{text}")
    return load_spider("made.py", tmp_path, "spiders")()


async def run(tmp_path, site, text):
    return await crawled(made(tmp_path, site, text), settings_for(tmp_path, fetch__allow_private=True))


ELSEWHERE = """
import scrapy

class Api:
    def process_request(self, request, spider):
        if request.meta.get("api") and "/fetched" not in request.url:
            return request.replace(url=f"{FAR}/fetched", method="POST", body="url=" + request.url)
        if request.meta.get("changes") and request.method == "GET":
            request.method = "POST"
            request._set_body(b"changed=1")

    def process_response(self, request, response, spider):
        spider.crawler.stats.inc_value(f"answered/{request.method}")
        return response

class Made(scrapy.Spider):
    name = "made"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Api: 100}, "EXTENSIONS": {}}

    async def start(self):
        yield scrapy.Request(f"{NEAR}/page", meta={"api": True})
        yield scrapy.Request(f"{NEAR}/other", meta={"changes": True})

    def parse(self, response):
        yield {"url": response.url, "title": response.css("h1::text").get()}
"""


async def test_a_middleware_may_ask_another_site_and_change_the_method(site, tmp_path):
    left = await run(tmp_path, site, ELSEWHERE)

    assert sorted(site.log) == ["POST far.localhost/fetched", "POST near.localhost/other"]
    assert left.letters == {}
    assert {(one.data["url"], one.data["title"]) for one in left.records} == {
        (f"{site.far}/fetched", f"POST /fetched url={site.near}/page"),
        (f"{site.near}/other", "POST /other changed=1"),
    }
    # The page is the one that was asked for, whoever answered.
    assert {url for url, *_ in left.fates} == {f"{site.near}/page", f"{site.near}/other"}
    assert left.report.counts.stats["answered/POST"] == 2  # Api saw each answer once


LOOP = """
import scrapy

class Turns:
    def process_request(self, request, spider):
        other = FAR if "near" in request.url else NEAR
        return request.replace(url=f"{other}/again")

class Made(scrapy.Spider):
    name = "made"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Turns: 100}, "RETRY_ENABLED": False}
    start_urls = [f"{NEAR}/page"]

    def parse(self, response):
        yield {"url": response.url}
"""


async def test_middlewares_that_send_a_request_round_and_round_fail_its_page(site, tmp_path):
    left = await run(tmp_path, site, LOOP)

    assert (left.records, site.log) == ([], [])
    assert "Is there a loop?" in left.letters[f"{site.near}/page"].message


START = """
import scrapy

class Made(scrapy.Spider):
    name = "made"

    async def start(self):
        page = await self.crawler.engine.download_async(scrapy.Request(f"{FAR}/list"))
        yield scrapy.Request(f"{NEAR}/one", cb_kwargs={"first": page.css("h1::text").get()})
        yield scrapy.Request(f"{NEAR}/refresh", cb_kwargs={"first": ""})

    def parse(self, response, first):
        yield {"url": response.url, "first": first, "times": response.meta.get("redirect_times", 0)}
"""


async def test_start_may_download_and_a_refresh_tag_is_followed(site, tmp_path):
    left = await run(tmp_path, site, START)

    assert sorted((one.data["url"], one.data["first"].strip(), one.data["times"]) for one in left.records) == [
        (f"{site.near}/new", "", 1),
        (f"{site.near}/one", "GET /list", 0),
    ]
    assert Counter(site.log)["GET far.localhost/list"] == 1


SIGNALS = """
import scrapy
from scrapy import signals
from scrapy.exceptions import IgnoreRequest

class Counts:
    @classmethod
    def from_crawler(cls, crawler):
        made = cls()
        made.stats = crawler.stats
        for name in ("request_scheduled", "request_reached_downloader", "request_left_downloader",
                     "response_downloaded", "item_error"):
            crawler.signals.connect(getattr(made, name), signal=getattr(signals, name))
        return made

    def request_scheduled(self, request, spider):
        self.stats.inc_value("own/scheduled")
        if request.url.endswith("/unwanted"):
            raise IgnoreRequest

    def request_reached_downloader(self, request, spider):
        self.stats.inc_value("own/reached")

    def request_left_downloader(self, request, spider):
        self.stats.inc_value("own/left")

    def response_downloaded(self, response, request, spider):
        self.stats.inc_value("own/downloaded")

    def item_error(self, item, response, spider, failure):
        spider.told.append(failure.type.__name__)

class Breaks:
    def process_item(self, item, spider):
        if item.get("breaks"):
            raise KeyError("x")
        return item

class Made(scrapy.Spider):
    name = "made"
    custom_settings = {"EXTENSIONS": {Counts: 1}, "ITEM_PIPELINES": {Breaks: 1}}
    start_urls = [f"{NEAR}/list"]
    told = []

    def parse(self, response):
        for path in ("one", "two", "unwanted"):
            yield scrapy.Request(f"{NEAR}/{path}", self.ware)

    def ware(self, response):
        yield {"url": response.url}
        if response.url.endswith("/two"):
            yield {"url": "y", "breaks": True}
        else:
            raise RuntimeError("after its item")
"""


async def test_signals_of_requests_are_sent_and_what_their_handlers_count_is_the_jobs(site, tmp_path):
    spider = made(tmp_path, site, SIGNALS)
    left = await crawled(spider, settings_for(tmp_path, fetch__allow_private=True))

    assert sorted(site.log) == [f"GET near.localhost/{path}" for path in ("list", "one", "two")]
    stats = left.report.counts.stats
    assert stats["own/scheduled"] == 3  # of a callback; those of the start are counted in the process
    assert stats["spider_exceptions/count"] == stats["spider_exceptions/RuntimeError"] == 1
    # Of the pages whose callback was called, also where it failed; not of /two, whose item the pipeline could not take.
    assert {stats[f"own/{name}"] for name in ("reached", "left", "downloaded")} == {2}
    assert spider.scrapy_class.told == ["KeyError"]


ENOUGH = """
import scrapy

class Made(scrapy.Spider):
    name = "made"
    start_urls = [f"{NEAR}/{number}" for number in range(200)]
    custom_settings = {"CLOSESPIDER_ITEMCOUNT": 40, "CONCURRENT_REQUESTS": 2, "DOWNLOAD_DELAY": 0.05}

    def parse(self, response):
        yield {"url": response.url}
"""


@pytest.mark.long
async def test_items_of_all_workers_count_for_the_end_of_a_job(site, tmp_path):
    """Two workers see about 20 items each: neither would end the job by its own count."""
    (tmp_path / "spiders").mkdir()
    (tmp_path / "spiders" / "made.py").write_text(f"NEAR, FAR = {site.near!r}, {site.far!r}\n{ENOUGH}")
    (tmp_path / "gossamer.toml").write_text("[fetch]\nallow_private = true\n")
    command = [sys.executable, "-m", "gossamer", "crawl", "spiders/made.py", "--processes", "2", "--quiet"]
    process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stderr=asyncio.subprocess.PIPE)
    _, said = await asyncio.wait_for(process.communicate(), PATIENCE)

    async with open_project(settings_for(tmp_path)) as project:
        (job,) = await project.state.history.newest_jobs("made", 2)
        counts = await project.state.jobs.counts(job.id)
    assert job.stopped == "closespider_itemcount", said.decode()
    assert 40 <= counts.stats["item_scraped_count"] < 80

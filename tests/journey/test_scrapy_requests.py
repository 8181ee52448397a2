"""Scrapy spiders on a real site: what requests may carry, what middlewares see and change, what a failing callback
keeps."""

from __future__ import annotations

import logging
import re
from collections import Counter
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gossamer.parse.discovery import load_spider
from tests.journey.crawling import crawled, settings_for

pytestmark = pytest.mark.filterwarnings("ignore::scrapy.exceptions.ScrapyDeprecationWarning")


@asynccontextmanager
async def serving(app):
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


@pytest.fixture
async def site():
    """Echoes what was asked for; `/self` links to itself, `/moved` redirects."""
    log = []

    async def answer(request):
        log.append(request)
        path = request.path
        if path == "/robots.txt":
            return web.Response(status=404)
        if path == "/moved":
            raise web.HTTPFound("/target")
        if path == "/missing":
            return web.Response(status=404, text="<h1>missing</h1>", content_type="text/html")
        headers = {"Set-Cookie": f"seen={path[1:]}; Path=/"} if path.startswith("/cookie") else {}
        return web.Response(text=f'<h1>{path}</h1><a href="{path}">self</a>', content_type="text/html", headers=headers)

    app = web.Application()
    app.router.add_get("/{tail:.*}", answer)
    async with serving(app) as url:
        yield SimpleNamespace(url=url, log=log)


async def run(tmp_path, site, text, **terms):
    (tmp_path / "made.py").write_text(f"SITE = {site.url!r}\n{text}")
    spider = load_spider("made.py", tmp_path, "spiders")()
    return await crawled(spider, settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"], **terms))


def asked(site, path):
    return [request.headers for request in site.log if request.path == path]


HEADERS = """
import scrapy

class Made(scrapy.Spider):
    name = "made"
    custom_settings = {"COOKIES_ENABLED": False}

    async def start(self):
        yield scrapy.Request(f"{SITE}/a", headers={
            "Host": SITE.partition("//")[2], "Connection": "keep-alive", "Content-Length": "0", "X-Own": "1",
            "Cookie": "a=1; b=2"})
        yield scrapy.Request(f"{SITE}/b", headers={"Host": "elsewhere.example", ":authority": "x", "X-Own": "2"})

    def parse(self, response):
        yield {"url": response.url}
"""


async def test_headers_of_the_connection_are_left_out_and_refuse_no_spider(site, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        left = await run(tmp_path, site, HEADERS)

    assert (len(left.records), left.letters) == (2, {})
    (first,), (second,) = asked(site, "/a"), asked(site, "/b")
    assert (first["X-Own"], first["Cookie"], second["X-Own"]) == ("1", "a=1; b=2", "2")
    assert first["Host"] == second["Host"] == site.url.partition("//")[2]
    told = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert [words.partition(" is left out")[0] for words in told] == [
        "The header Host: elsewhere.example", "The header ':Authority'",
    ]  # fmt: skip


SELF = """
import scrapy
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

class Made(CrawlSpider):
    name = "made"
    start_urls = [f"{SITE}/self"]
    rules = [Rule(LinkExtractor(), callback="parse_item", follow=True)]

    def parse_item(self, response):
        yield {"item": response.url}
"""


async def test_a_start_page_that_links_to_itself_keeps_its_item(site, tmp_path):
    left = await run(tmp_path, site, SELF)

    assert [record.data for record in left.records] == [{"item": f"{site.url}/self"}]
    assert Counter(request.path for request in site.log)["/self"] == 2  # as under Scrapy


MIDDLEWARES = """
import scrapy

class Chooser:
    def process_request(self, request, spider):
        request.meta["seen"] = [getattr(request.callback, "__name__", None), request.meta["depth"]]
        request.meta["live"] = object()
        if request.url.endswith("/missing"):
            request.meta["handle_httpstatus_list"] = [404]
        if request.url.endswith("/moved"):
            request.meta.update(dont_redirect=True, handle_httpstatus_list=[302])
        if request.url.endswith("/cookie-apart"):
            request.meta["dont_merge_cookies"] = True
        if request.url.endswith("/again") and not request.meta.get("again"):
            return request.replace(meta={**request.meta, "again": True}, headers={"X-Again": "1"})

class Made(scrapy.Spider):
    name = "made"
    start_urls = [f"{SITE}/first"]
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Chooser: 1}, "GOSSAMER_SESSION": "one"}

    def parse(self, response):
        yield self.told(response)
        for path in ("missing", "moved", "cookie", "again"):
            yield response.follow(f"/{path}", self.next_page, priority=9)

    def next_page(self, response):
        yield self.told(response)
        if response.url.endswith("/cookie"):
            yield response.follow("/cookie-apart", self.last)

    def last(self, response):
        yield self.told(response)
        if response.url.endswith("/cookie-apart"):
            yield response.follow("/after", self.last)

    def told(self, response):
        return {"path": response.url.rpartition("/")[2], "status": response.status, "seen": response.meta["seen"],
                "timed": response.meta["download_latency"] > 0, "again": response.meta.get("again", False)}
"""


async def test_middlewares_see_the_callback_and_what_they_write_into_meta_counts(site, tmp_path):
    left = await run(tmp_path, site, MIDDLEWARES)

    found = {record.data["path"]: (record.data["status"], *record.data["seen"]) for record in left.records}
    assert found == {
        "first": (200, None, 0), "missing": (404, "next_page", 1), "moved": (302, "next_page", 1),
        "cookie": (200, "next_page", 1), "again": (200, "next_page", 1), "cookie-apart": (200, "last", 2),
        "after": (200, "last", 3),
    }  # fmt: skip
    assert all(record.data["timed"] for record in left.records)
    assert [record.data["path"] for record in left.records if record.data["again"]] == ["again"]
    assert asked(site, "/again")[0]["X-Again"] == "1"
    # The page apart sent no cookie of the session, and what it set is not sent with the next one.
    assert "Cookie" not in asked(site, "/cookie-apart")[0]
    assert asked(site, "/after")[0]["Cookie"] == "seen=cookie"


PROXY = """
import scrapy

class Chooser:
    def process_request(self, request, spider):
        request.meta["proxy"] = PROXY

class Made(scrapy.Spider):
    name = "made"
    start_urls = [f"{SITE}/page"]
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Chooser: 1}, "ROBOTSTXT_OBEY": False, "RETRY_TIMES": 0}

    def parse(self, response):
        yield {"url": response.url, "proxy": response.meta["proxy"]}
"""


async def test_a_proxy_that_a_middleware_chooses_is_used_under_the_address_guard(site, tmp_path):
    through = []

    async def proxy(request):
        through.append(str(request.url))
        return web.Response(text="<h1>through</h1>", content_type="text/html")

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", proxy)
    async with serving(app) as address:
        left = await run(tmp_path, site, f"PROXY = {address!r}\n{PROXY}")
        assert [record.data for record in left.records] == [{"url": f"{site.url}/page", "proxy": address}]
        assert through == [f"{site.url}/page"]
        assert not site.log
        guarded = address.replace("127.0.0.1", "127.0.0.2")
        other = tmp_path / "other"
        other.mkdir()
        refused = await run(other, site, f"PROXY = {guarded!r}\n{PROXY}")
    assert (refused.records, len(through)) == ([], 1)
    (letter,) = refused.letters.values()
    assert "private" in letter.message or "loopback" in letter.message


FAILING = """
import scrapy

class Made(scrapy.Spider):
    name = "made"
    start_urls = [f"{SITE}/page"]

    def parse(self, response):
        yield {"number": 1}
        yield response.follow("/next", self.last)
        yield {"number": 2}
        raise ValueError("half way")
        yield {"number": 3}

    def last(self, response):
        yield {"number": 4}
"""


async def test_what_a_callback_gave_before_it_failed_is_kept_and_its_page_is_a_dead_letter(site, tmp_path):
    left = await run(tmp_path, site, FAILING)

    assert sorted(record.data["number"] for record in left.records) == [1, 2, 4]
    (letter,) = left.letters.values()
    assert "half way" in letter.message
    assert "What it gave before is kept: 2 items and 1 request." in letter.message


FOREIGN = """
import scrapy

def by_function(response):
    return {"by": "a function", "url": response.url}

class Other(scrapy.Spider):
    name = "other"

    def parse_ware(self, response, shelf):
        yield {"by": self.name, "shelf": shelf}

    def lost(self, failure):
        yield {"lost": failure.value.response.status}

class Made(scrapy.Spider):
    name = "made"
    start_urls = [f"{SITE}/page"]

    def parse(self, response):
        other = Other()
        yield response.follow("/ware", other.parse_ware, cb_kwargs={"shelf": 3})
        yield response.follow("/function", by_function)
        yield response.follow("/missing", self.parse, errback=other.lost)
"""


async def test_a_callback_may_belong_to_another_spider_or_be_a_function_of_the_module(site, tmp_path):
    (tmp_path / "made.py").write_text(f"SITE = {site.url!r}\n{FOREIGN}")
    spider = load_spider("made.py:Made", tmp_path, "spiders")()

    left = await crawled(spider, settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"]))

    found = sorted((record.data for record in left.records), key=repr)
    assert found == [{"by": "a function", "url": f"{site.url}/function"}, {"by": "other", "shelf": 3}, {"lost": 404}]


FTP = """
import scrapy

class Made(scrapy.Spider):
    name = "made"
    start_urls = [f"{SITE}/page"]

    def parse(self, response):
        yield {"url": response.url}
        yield scrapy.Request("ftp://files.example/list.txt")
        yield scrapy.Request("mailto:a@shop.example")
"""


async def test_ftp_is_refused_by_a_sentence(site, tmp_path):
    left = await run(tmp_path, site, FTP)

    (letter,) = left.letters.values()
    assert "Gossamer fetches http and https, not ftp" in letter.message
    assert re.search(r"made\.py, line 1\d:", letter.message)

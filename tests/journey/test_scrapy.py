"""A Scrapy project, unchanged: the same items as under Scrapy itself, and what is refused is named."""

from __future__ import annotations

import shutil
import sqlite3
import sys
from collections import Counter

import pytest

from gossamer import Request, Spider
from gossamer.model.events import ItemDropped
from gossamer.parse.discovery import load_spider
from tests.journey.crawling import crawled, settings_for
from tests.journey.scrapying import SPIDERS, ScrapyProject, sorted_items
from tests.sites.shelf import shelf

pytestmark = pytest.mark.filterwarnings("ignore::scrapy.exceptions.ScrapyDeprecationWarning")


@pytest.fixture(scope="module")
def site():
    with shelf() as opened:
        yield opened


@pytest.fixture(scope="module")
def project(site, tmp_path_factory):
    """Loaded once: modules of a Scrapy project are ordinary modules of the process."""
    with pytest.MonkeyPatch.context() as patch:
        made = ScrapyProject(tmp_path_factory.mktemp("scrapy") / "project", site.url)
        for name, value in made.environ.items():
            patch.setenv(name, value)
        yield made


def settings_of(project):
    return settings_for(project.folder, fetch__allow_hosts=["127.0.0.1"])


@pytest.mark.long
async def test_every_shape_of_spider_gives_the_same_items_as_under_scrapy(project, site):
    theirs = project.run_scrapy(*SPIDERS)
    asked_by_scrapy = Counter(site.paths())
    database = project.folder / "wares.db"
    stored_by_scrapy = rows_of(database)
    database.unlink()
    files_of_scrapy = files_in(project.folder / "files")
    shutil.rmtree(project.folder / "files")
    site.log.clear()

    ours = {}
    for name in SPIDERS:
        aftermath = await crawled(project.spider(name), settings_of(project))
        aftermath.assert_adds_up()
        assert [url.removeprefix(site.url) for url in aftermath.letters] == (["/list/21"] if name == "listing" else [])
        ours[name] = sorted_items(record.data for record in aftermath.records)

    assert {name: len(items) for name, items in theirs.items()} == {
        "authors": 7, "chosen": 14, "enough": 16, "files": 11, "listing": 13, "members": 20, "moved": 11, "parts": 12,
        "quotes": 33, "stock": 15, "stored": 23, "waiting": 4, "wares": 24,
    }  # fmt: skip
    for name in SPIDERS:
        assert ours[name] == theirs[name], name
    assert rows_of(database) == stored_by_scrapy
    assert len(files_of_scrapy) == 20
    assert files_in(project.folder / "files") == files_of_scrapy
    # Neither more nor fewer requests: the pages of each spider once, as the site saw them.
    assert {**Counter(site.paths()), "/robots.txt": 0} == {**asked_by_scrapy, "/robots.txt": 0}


def files_in(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows_of(database):
    connection = sqlite3.connect(database)
    rows = connection.execute("SELECT name, price FROM wares ORDER BY name").fetchall()
    connection.close()
    return rows


async def test_a_crawl_opens_and_closes_the_parts_of_the_project_and_a_second_one_changes_nothing(project, site):
    database = project.folder / "wares.db"
    first = await crawled(project.spider("stored"), settings_of(project))
    assert len(rows_of(database)) == 23
    closed = (project.folder / "wares.db.closed").read_text().splitlines()
    assert (len(first.records), closed[-1:]) == (23, ["stored"])
    dropped = [(event.step, event.reason) for event in first.heard.of(ItemDropped)]
    assert dropped == [("DuplicatesPipeline", "no clocks")]
    second = await crawled(project.spider("stored"), settings_of(project))
    assert {record.key: record.version for record in second.records} == {
        record.key: record.version for record in first.records
    }
    assert "twisted.internet.reactor" not in sys.modules


async def test_a_page_that_its_middleware_ignores_or_wants_again_is_not_fetched_in_vain(project, site, tmp_path):
    (tmp_path / "made.py").write_text(MADE)
    spider = load_spider("made.py", tmp_path, "spiders")()
    site.log.clear()

    left = await crawled(spider, settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"]))

    told = {url.removeprefix(site.url): letter.message for url, letter in left.letters.items()}
    assert set(told) == {"/shop/ware/1", "/shop/ware/3", "/shop/ware/4"}
    assert "ignores" in told["/shop/ware/1"]
    assert "The proxy http://proxy.example:1 (pool of a middleware) failed" in told["/shop/ware/3"]
    assert "10 times in a row" in told["/shop/ware/4"]
    assert sorted(record.data["title"] for record in left.records) == ["made", "ware 0"]
    # The one that is wanted again is asked for at once, but not for ever; the others never left.
    assert Counter(site.paths()) == {"/robots.txt": 1, "/shop/ware/0": 1, "/shop/ware/4": 10}


MADE = """
import os
import scrapy
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse

class Choosy:
    def process_request(self, request, spider):
        number = request.url[-1]
        if number == "1":
            raise IgnoreRequest("not this one")
        if number == "2":
            return HtmlResponse(request.url, body=b"<h1>made</h1>", request=request)
        if number == "3":
            request.meta["proxy"] = "http://proxy.example:1"

    def process_response(self, request, response, spider):
        return request.replace(dont_filter=True) if request.url.endswith("4") else response

class Made(scrapy.Spider):
    name = "made"
    start_urls = [f"{os.environ['SHELF_SITE']}/shop/ware/{number}" for number in range(5)]
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Choosy: 1}}

    def parse(self, response):
        yield {"title": response.css("h1::text").get().strip()}
"""


CARRIED = """
import os
import scrapy

class Carried(scrapy.Spider):
    name = "carried"

    async def start(self):
        yield scrapy.Request(f"{os.environ['SHELF_SITE']}/shop/ware/0", cookies={"member": "7", "tongue": "de"})

    def parse(self, response):
        yield response.follow("/shop/ware/1", self.ware, cookies={"tongue": "fr"})

    def ware(self, response):
        yield response.follow("/shop/ware/2", self.last)

    def last(self, response):
        yield {"url": response.url}
"""


async def test_cookies_of_a_request_are_sent_with_those_after_it(site, tmp_path, project):
    (tmp_path / "carried.py").write_text(CARRIED)
    spider = load_spider("carried.py", tmp_path, "spiders")()
    site.log.clear()

    await crawled(spider, settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"]))

    sent = {path[-1]: headers.get("cookie") for _, path, headers in site.log if path != "/robots.txt"}
    assert sent == {"0": "member=7; tongue=de", "1": "member=7; tongue=fr", "2": "member=7; tongue=fr"}


class Handled(Spider):
    """One of our own, which wants a redirect and an error as they are."""

    def __init__(self, site):
        self.site = site

    def start(self):
        yield Request(url=f"{self.site}/shop/old/7", handle_statuses=(301,))
        yield Request(url=f"{self.site}/list/none", handle_statuses=(404, 410))
        yield Request(url=f"{self.site}/shop/old/8")
        yield Request(url=f"{self.site}/list/21")

    def parse(self, page):
        yield {"url": page.url, "status": page.status}


async def test_statuses_that_a_request_handles_go_to_its_callback(site, tmp_path):
    left = await crawled(Handled(site.url), settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"]))

    found = {record.data["url"].removeprefix(site.url): record.data["status"] for record in left.records}
    assert found == {"/shop/old/7": 301, "/list/none": 404, "/shop/ware/8": 200}
    assert [url.removeprefix(site.url) for url in left.letters] == ["/list/21"]

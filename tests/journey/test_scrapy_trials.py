"""A Scrapy project at the prompt (`gossamer shell`, `gossamer test --contracts`); the feeds of its scheduled runs."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from contextlib import asynccontextmanager
from itertools import count

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gossamer.model.events import NullSink
from gossamer.parse.discovery import load_spider
from gossamer.project.jobs.worker_pool import WorkerPool
from gossamer.project.open import open_project
from gossamer.terms import coverage_of, job_terms
from tests.journey.crawling import settings_for
from tests.patience import PATIENCE

pytestmark = pytest.mark.filterwarnings("ignore::scrapy.exceptions.ScrapyDeprecationWarning")
_NUMBERS = count()

SPIDER = '''
import scrapy

class Wares(scrapy.Spider):
    name = "wares"
    start_urls = ["SITE/list"]
    custom_settings = {"FEEDS": {"FOLDER/%(name)s.json": {"format": "json", "fields": ["sku"]}}}

    def parse(self, response):
        """Lists wares.

        @url SITE/list
        @returns items 2 2
        @scrapes sku
        """
        for number in (1, 2):
            yield {"sku": number}

    async def ware(self, response, page):
        """One ware.

        @url SITE/ware
        @cb_kwargs {"page": 3}
        @returns items 2
        @scrapes sku name
        """
        yield {"sku": page}
'''


@asynccontextmanager
async def serving():
    asked = []

    async def answer(request):
        if request.path == "/robots.txt":
            return web.Response(status=404)
        asked.append((request.path, request.headers["User-Agent"], request.headers.get("X-Own", "")))
        return web.Response(text=f"<h1>{request.path}</h1>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/{tail:.*}", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        yield str(server.make_url("")).rstrip("/"), asked


@pytest.fixture
async def project(tmp_path):
    async with serving() as (site, asked):
        name = f"trial_{next(_NUMBERS)}"
        (tmp_path / name).mkdir()
        (tmp_path / "scrapy.cfg").write_text(f"[settings]\ndefault = {name}.settings\n")
        (tmp_path / name / "__init__.py").write_text("")
        settings = (
            f"SPIDER_MODULES = ['{name}.spiders']\nUSER_AGENT = 'Own/1'\nDEFAULT_REQUEST_HEADERS = {{'X-Own': 'all'}}\n"
        )
        (tmp_path / name / "settings.py").write_text(settings + "ROBOTSTXT_OBEY = False\n")
        (tmp_path / name / "spiders.py").write_text(SPIDER.replace("SITE", site).replace("FOLDER", str(tmp_path)))
        (tmp_path / "gossamer.toml").write_text("[fetch]\nallow_private = true\n")
        yield tmp_path, site, asked


async def gossamer(folder, *words, typed=""):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gossamer", *words, cwd=folder,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(typed.encode()), PATIENCE)
    return process.returncode, out.decode(), err.decode()


async def test_a_shell_in_a_project_asks_with_its_settings_and_has_scrapys_names(project):
    folder, site, asked = project
    typed = (
        'response.css("h1::text").get()\nsettings["USER_AGENT"]\n'
        f'fetch(scrapy.Request("{site}/two", headers={{"X-Own": "this"}}))\nresponse.url.endswith("/two")\n'
    )

    code, out, err = await gossamer(folder, "shell", f"{site}/one", typed=typed)

    assert (code, out.splitlines()[:2], out.splitlines()[-1]) == (0, ["'/one'", "'Own/1'"], "True"), err
    assert asked == [("/one", "Own/1", "all"), ("/two", "Own/1", "this")]


async def test_contracts_are_checked_on_pages_that_are_fetched(project):
    folder, _, asked = project

    code, out, err = await gossamer(folder, "test", "--contracts")

    assert code == 1, err
    assert [line.strip() for line in out.splitlines()] == [
        "ok      wares.parse",
        "failed  wares.ware",
        "@returns: Returned 1 items, expected 2..inf",
        "@scrapes: Missing fields: name",
        "2 cases, 1 failed",
    ]
    assert [path for path, *_ in asked] == ["/list", "/ware"]


async def test_the_feeds_of_a_scheduled_run_are_written_by_the_worker_that_ends_it(project):
    folder, _, _ = project
    read = settings_for(folder)
    spider = load_spider("wares", folder, "spiders")()
    terms = {"schedule": "nightly", "spider": "wares", "coverage": coverage_of(spider, "")}
    async with open_project(read) as system:
        usual = job_terms(read, spider)
        await system.state.jobs.open_job("nightly", msgspec.structs.replace(usual, **terms), fresh=True)
        await WorkerPool(system, NullSink(), until_idle=True).run()

    assert json.loads((folder / "wares.json").read_text()) == [{"sku": 1}, {"sku": 2}]


FAILING = """
import scrapy

class Failing(scrapy.Spider):
    name = "failing"
    start_urls = ["SITE/one"]

    def parse(self, response):
        yield {"url": response.url}
        raise RuntimeError("after its item")
"""


async def test_items_of_pages_that_failed_are_in_the_output_also_where_all_pages_failed(project):
    folder, site, _ = project
    (folder / "failing.py").write_text(FAILING.replace("SITE", site))

    code, _, err = await gossamer(folder, "crawl", "failing.py", "-O", "out.jsonl", "--no-meta")

    assert code == 1, err
    assert json.loads((folder / "out.jsonl").read_text()) == {"url": f"{site}/one"}


STARTED = """
import scrapy

class Quotes(scrapy.Spider):
    name = "quotes"
    custom_settings = {"FEEDS": {"quotes.json": {"format": "json", "overwrite": True}}}

    async def start(self):
        urls = [SITES]
        for url in urls:
            yield scrapy.Request(url=url, callback=self.parse)

    def parse(self, response):
        yield {"url": response.url, "author": None}
"""


async def test_an_address_that_stands_in_start_is_named_by_its_author_and_one_that_start_reads_is_not(project):
    folder, site, asked = project
    (folder / "list.txt").write_text(f"{site}/one")
    (folder / "gossamer.toml").unlink()

    (folder / "quotes.py").write_text(STARTED.replace("SITES", f'"{site}/one"'))
    code, _, err = await gossamer(folder, "crawl", "quotes.py")
    assert (code, [path for path, *_ in asked]) == (0, ["/one"]), err
    feed = (folder / "quotes.json").read_text()
    assert json.loads(feed) == [{"url": f"{site}/one", "author": None}]
    assert re.search(r"output +quotes\.json", err), err
    assert feed.index("url") < feed.index("author"), "in the order of the item"

    (folder / "quotes.py").write_text(STARTED.replace("SITES", 'open("list.txt").read()'))
    code, _, err = await gossamer(folder, "crawl", "quotes.py", "--fresh")
    assert (code, len(asked)) == (1, 1), err
    assert "add '127.0.0.1' to fetch.allow_hosts in gossamer.toml" in err
    assert f"There is no gossamer.toml yet: make one in {folder}." in " ".join(err.split())
    assert (folder / "quotes.json").read_text() == feed, "the good feed was replaced"

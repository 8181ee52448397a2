"""Spiders on pages of yesterday: cases (`save`, `test`) and replays."""

from __future__ import annotations

import json

import pytest

from gossamer.errors import Misconfigured
from gossamer.project.jobs.replay import replay
from gossamer.project.spiders.cases import run_cases, save_case
from gossamer.project.spiders.spiders import crawl_target
from tests.journey.commands import gossamer
from tests.journey.crawling import Heard, crawled, look, settings_for
from tests.sites.downloads import Content, download_site
from tests.sites.hostile import hostile_site

SPIDER = """
from gossamer import Item, Page, Request, Spider

class Book(Item, key="url"):
    title: str
    price: str | None = None

class Books(Spider):
    start_urls = ["{start}"]

    def parse(self, page: Page):
        for link in page.css("a"):
            yield page.follow(link, self.book, data={{"from": "list"}})
        yield page.download("/cover.png")

    def book(self, page: Page):
        yield Book(url=page.url, title=page.css("h1::text").get(), price=page.css("{price}::text").get())
"""
RECIPE = """
start = "{start}"
[pages.front.fields]
headline = "h1"
"""


def write_spider(folder, start, price=".price"):
    (folder / "spiders").mkdir(exist_ok=True)
    (folder / "spiders" / "books.py").write_text(SPIDER.format(start=start, price=price))


def shop(site):
    site.shown["/cover.png"] = Content(body=b"\x89PNG\r\n\x1a\n" + b"x" * 100, type="image/png")
    site.show("/1", '<h1>Emma</h1><b class="price">5</b>')
    site.shown["/2"] = Content(status=302, etag="", headers={"Location": "/3"})
    site.show("/3", '<h1>Dune</h1><b class="price">7</b>')
    return site.show("/", '<a href="/1">one</a><a href="/2">two</a>')


async def test_a_case_passes_until_the_spider_finds_something_else(tmp_path):
    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    async with download_site() as site:
        start = shop(site)
        write_spider(tmp_path, start)
        saved = await save_case(read, site.url("/1"), callback="book", name="emma", folder=tmp_path)
        await save_case(read, start, spider="books", name="list", folder=tmp_path)
        before = len(site.log)

        assert (saved.items, saved.links, saved.failure) == (1, 0, "")
        assert [(one.name, one.state) for one in await run_cases(read)] == [("emma", "ok"), ("list", "ok")]
        expected = json.loads((tmp_path / "tests/list/expected.json").read_text())
        assert expected["links"][0] == {"url": site.url("/1"), "callback": "book", "data": {"from": "list"}}

        write_spider(tmp_path, start, price=".cost")
        emma, rest = await run_cases(read)

        assert (emma.state, rest.state) == ("failed", "ok")
        changed = [line.strip() for line in emma.diff if line.startswith(("-", "+"))]
        assert changed == ['-        "price": "5"', '+        "price": null'] or changed == ['-        "price": "5",']
        assert [one.state for one in await run_cases(read, ["emma"], update=True)] == ["updated"]
        assert [one.state for one in await run_cases(read)] == ["ok", "ok"]
        assert len(site.log) == before
        with pytest.raises(Misconfigured, match="Did you mean emma"):
            await run_cases(read, ["ema"])
        with pytest.raises(Misconfigured, match="already"):
            await save_case(read, site.url("/1"), name="emma", folder=tmp_path)


async def test_a_recipe_is_tested_as_a_spider_is_and_the_command_tells_by_its_exit_code(tmp_path):
    (tmp_path / "gossamer.toml").write_text('[fetch]\nallow_hosts = ["127.0.0.1"]\n')
    (tmp_path / "spiders").mkdir()
    async with download_site() as site:
        start = site.show("/", "<h1>Welcome</h1>")
        (tmp_path / "spiders" / "front.toml").write_text(RECIPE.format(start=start))
        assert (await gossamer(tmp_path, "save", start, "--name", "front")).code == 0
    good = await gossamer(tmp_path, "test")
    (tmp_path / "spiders" / "front.toml").write_text(RECIPE.format(start=start).replace('"h1"', '"h2"'))
    bad = await gossamer(tmp_path, "test")

    assert (good.code, bad.code) == (0, 1)
    assert "1 case, 0 failed" in good.out
    assert "failed  front" in bad.out
    assert "Welcome" in bad.out


async def test_a_replay_answers_from_the_archive_and_leaves_the_project_alone(tmp_path):
    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    async with download_site() as site:
        start = shop(site)
        write_spider(tmp_path, start)
        await crawled(crawl_target(read, "books", tmp_path).spider, read)
    # The site is gone by now, and the spider is another one.
    write_spider(tmp_path, start, price="b")
    spider = crawl_target(read, "books", tmp_path).spider
    before = await look(read, lambda project: project.records.cursor())

    done = await replay(spider, read, events=Heard(), output=str(tmp_path / "again.jsonl"))

    lines = [json.loads(line) for line in (tmp_path / "again.jsonl").read_text().splitlines()]
    assert {one["title"]: one["price"] for one in lines if "title" in one} == {"Emma": "5", "Dune": "7"}
    assert [one["name"] for one in lines if one.get("kind") == "file"] == ["cover.png"]
    assert (done.missing, done.crawl.counts.dead) == (0, 0)
    assert await look(read, lambda project: project.records.cursor()) == before

    spider.start_urls = [start, site.url("/new")]
    again = await replay(spider, read, events=Heard())

    assert again.missing == 1
    assert [(one.url, one.reason) for one in again.failures] == [(site.url("/new"), "not-archived")]


PRICED = """
from gossamer import Item, Page, Spider

class Book(Item, key="url"):
    title: str
    currency: str
    shelf: str = ""

class Books(Spider):
    start_urls = ["{start}"]
    currency: str = "EUR"

    def parse(self, page: Page):
        {more}yield Book(url=page.url, title=page.css("h1::text").get(), currency=self.currency)
"""
SHELVES = """
from gossamer import Extension

class Shelves(Extension):
    async def around_fetch(self, request, next):
        return await next(request.with_header("X-Shelf", "top"))

    async def around_parse(self, page, next):
        parsed = await next(page)
        for item in parsed.items:
            item.shelf = "top"
        return parsed
"""


@pytest.mark.long
async def test_what_reads_a_page_without_a_crawl_has_the_jobs_arguments_and_the_extensions(tmp_path):
    (tmp_path / "gossamer.toml").write_text('extensions = ["shelves:Shelves"]\n[fetch]\nallow_hosts = ["127.0.0.1"]\n')
    (tmp_path / "shelves.py").write_text(SHELVES)
    (tmp_path / "spiders").mkdir()
    spider = tmp_path / "spiders" / "books.py"
    async with download_site() as site:
        start = site.show("/", "<h1>Emma</h1>")
        spider.write_text(PRICED.format(start=start, more="raise KeyError('price')\n        "))
        assert (await gossamer(tmp_path, "crawl", "books", "-a", "currency=USD", "--quiet")).code == 1  # no page came
        spider.write_text(PRICED.format(start=start, more=""))
        replayed = await gossamer(tmp_path, "dead", "replay", "--all")
        stored = json.loads((await gossamer(tmp_path, "export")).out)
        spider.write_text(PRICED.format(start=start, more="").replace("title=", "title='The ' + "))
        again = await gossamer(tmp_path, "reparse", "--processes", "1")
        parsed = json.loads((await gossamer(tmp_path, "export")).out)
        spider.write_text(PRICED.format(start=start, more="").replace("currency: str = ", "coin = "))
        renamed = await gossamer(tmp_path, "reparse", "--processes", "1")
        spider.write_text(PRICED.format(start=start, more=""))

        read = settings_for(tmp_path)
        before = len(site.asked("/"))
        await save_case(read, start, name="emma", folder=tmp_path)
        case = json.loads((tmp_path / "tests/emma/expected.json").read_text())["items"]
        checked = await gossamer(tmp_path, "check", "books", start, "--json")

    assert (replayed.code, again.code) == (0, 0), (replayed, again)
    assert (stored["title"], stored["currency"], stored["shelf"]) == ("Emma", "USD", "top")
    assert (parsed["title"], parsed["currency"], parsed["shelf"]) == ("The Emma", "USD", "top")
    assert "has no argument 'currency'" in renamed.out + renamed.err
    assert [one["data"]["shelf"] for one in case] == ["top"]
    assert json.loads(checked.out)["records"][0]["data"]["shelf"] == "top"
    assert {one.headers.get("x-shelf") for one in site.asked("/")[before:]} == {"top"}


async def test_a_case_notices_a_form_that_sends_something_else(tmp_path):
    """Forty-nine requests to one address differ in their bodies alone."""
    code = """
from gossamer import Page, Request, Spider

class Pager(Spider):
    start_urls = ["{start}"]

    def parse(self, page: Page):
        for number in range(1, 50):
            form = {{"page": number + {wrong}, "key": self.secret("KEY")}}
            yield Request(url=page.url, method="POST", form=form, kind="rows")

    def rows(self, page: Page):
        pass
"""
    async with hostile_site() as site:
        start = site.show("/list", "<title>List</title>")
        (tmp_path / "gossamer.toml").write_text("[fetch]\nallow_private = true\n")
        (tmp_path / "spiders").mkdir()
        file = tmp_path / "spiders" / "pager.py"
        file.write_text(code.format(start=start, wrong=0))
        assert (await gossamer(tmp_path, "save", start, "--spider", "pager", "--name", "form")).code == 0
        assert (await gossamer(tmp_path, "test")).code == 0
        shown = await gossamer(tmp_path, "check", "pager", start)
        assert "49 links to rows" in shown.out
        assert "POST" in shown.out
        assert "page=1&key=<secret KEY>" in shown.out

        file.write_text(code.format(start=start, wrong=1))
        said = await gossamer(tmp_path, "test")
        assert said.code == 1, said
        assert "page=1&key=<secret KEY>" in said.out

"""Spiders of Scrapy's as spiders of ours: what is queued, what is refused and in which words, what settings mean."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import msgspec
import pytest
import scrapy
from scrapy.settings import Settings as ScrapySettings
from twisted.internet import error as network

from gossamer import settings as settings_module
from gossamer.compat.scrapy.playwright import queueable, render_of
from gossamer.compat.scrapy.responses import failure_of
from gossamer.compat.scrapy.values import NotQueueable, read, written
from gossamer.errors import BackendUnavailable, Misconfigured, ParseFailed, SpiderNotFound
from gossamer.model.item import item_key, type_name
from gossamer.model.page import Headers, Snapshot
from gossamer.parse.arguments import with_arguments
from gossamer.parse.callbacks import run_callback, run_errback
from gossamer.parse.discovery import list_spiders, load_spider
from gossamer.parse.page import Page
from gossamer.parse.page_context import Failure, asking_by
from gossamer.parse.seeds import seeds
from gossamer.parse.spider import spider_version
from gossamer.terms import job_terms, politeness_of, site_terms

pytestmark = pytest.mark.filterwarnings("ignore::scrapy.exceptions.ScrapyDeprecationWarning")

URL = "http://shop.example/list"

SPIDER = """
import dataclasses
import scrapy
from scrapy.exceptions import CloseSpider
from scrapy.http import FormRequest, JsonRequest
from twisted.internet.defer import Deferred, succeed

class Ware(scrapy.Item):
    sku = scrapy.Field()
    price = scrapy.Field()

class Shop(scrapy.Spider):
    name = "shop"
    allowed_domains = ["shop.example"]
    custom_settings = {"GOSSAMER_ITEM_KEYS": {"Ware": "sku"}}

    def __init__(self, kind="all", **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [f"http://shop.example/{kind}"]

    def parse(self, response):
        yield {"one": response.css("h1::text").get()}
        yield {"two": response.url}
        yield Ware(sku="A1", price=3)
        yield response.follow("next", cb_kwargs={"page": 2}, meta={"at": (1, 2)}, priority=5, dont_filter=True)

    def by_lambda(self, response):
        yield {"before": 1}
        yield scrapy.Request("http://shop.example/1", lambda response: None)

    def by_object(self, response):
        def inner():
            yield scrapy.Request("http://shop.example/1", meta={"row": response.css("h1")})
        yield from inner()

    def by_proxy(self, response):
        yield scrapy.Request("http://shop.example/1", meta={"proxy": "http://proxy.example:8080"})

    def forms(self, response):
        yield FormRequest("http://shop.example/f", formdata={"a": "1"}, callback=self.login, errback=self.lost,
                          meta={"cookiejar": 7, "max_retry_times": 2, "download_timeout": 9, "dont_redirect": True,
                                "handle_httpstatus_list": [404]}, flags=["x"], headers={"X-A": ["1", "2"]},
                          cookies={"c": "d"})

    def login(self, response, page=None):
        request = response.request
        return {"method": request.method, "body": request.body.decode(), "meta": dict(request.meta),
                "flags": request.flags, "again": request.replace(dont_filter=True).url, "status": response.status}

    def lost(self, failure):
        yield {"lost": failure.request.url, "kind": type(failure.value).__name__,
               "status": getattr(getattr(failure.value, "response", None), "status", None)}

    async def fired(self, response):
        return await self.coroutine()

    async def coroutine(self):
        return [{"made": "by a coroutine"}]

    def deferred(self, response):
        return succeed([{"made": "by a Deferred"}])

    def waiting(self, response):
        return Deferred()

    def closes(self, response):
        yield {"kept": 1}
        raise CloseSpider("enough")
        yield {"lost": 1}

    def closes_by_engine(self, response):
        self.crawler.engine.close_spider(self, "by the engine")

    def engine(self, response):
        self.crawler.engine.pause()

    async def downloads(self, response):
        await self.crawler.engine.download_async(scrapy.Request("http://shop.example/1"))

    def counts(self, response):
        self.crawler.stats.inc_value("rows", 3)

    def text(self, response):
        yield "a text"
"""


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "shop.py").write_text(SPIDER)
    return load_spider("shop.py", tmp_path, "spiders")()


def page_of(spider, body="<h1>Lamp</h1>", *, url=URL, status=200, kind="parse", data=None, **headers):
    lines = [("Content-Type", "text/html"), *((name.replace("_", "-"), value) for name, value in headers.items())]
    text = msgspec.json.encode(data).decode() if data else ""
    snapshot = Snapshot(
        url=url,
        requested_url=url,
        status=status,
        headers=Headers(lines),
        body=body.encode(),
        fetched_at=0.0,
        kind=kind,
        data=text,
    )
    return Page(snapshot, depth=2, spider=spider)


async def test_what_a_callback_gives_becomes_items_with_keys_and_requests_with_data(shop):
    parsed = await run_callback(shop, "parse", page_of(shop))

    assert [(type_name(item), item.key or item.place, dict(item)) for item in parsed.items] == [
        ("shop", URL, {"one": "Lamp"}),
        ("shop", URL, {"two": URL}),
        ("Ware", "A1", {"sku": "A1", "price": 3}),
    ]
    (request,) = parsed.requests
    assert (request.url, request.kind, request.priority, request.force) == (
        "http://shop.example/next",
        "parse",
        5,
        True,
    )
    page = page_of(shop, url=request.url, data=request.data)
    again = await run_callback(shop, "login", page)
    assert again.items[0]["meta"] == {"at": [1, 2], "depth": 2, "download_slot": "shop.example"}
    # The same address, asked for with other values: its items are others.
    assert again.items[0].place.startswith(f"{request.url} ")


async def test_a_request_travels_with_everything_that_it_says(shop):
    parsed = await run_callback(shop, "forms", page_of(shop))

    (request,) = parsed.requests
    options = request.options()
    assert (request.kind, options.errback, options.session, request.max_attempts) == ("login", "lost", "jar-7", 3)
    assert (options.method, options.timeout, dict(options.cookies)) == ("POST", 9.0, {"c": "d"})
    assert dict(options.headers)["X-A"] == "1, 2"
    assert options.statuses == (301, 302, 303, 307, 308, 404)
    page = page_of(shop, url=request.url, kind="login", status=404, data=request.data)
    (item,) = (await run_callback(shop, "login", page)).items
    assert (item["method"], item["body"], item["flags"], item["status"]) == ("POST", "a=1", ["x"], 404)
    # A redirect that was not to be followed, and that no list names, reaches no callback.
    moved = page_of(shop, url=request.url, kind="login", status=302, data=request.data)
    assert (await run_callback(shop, "login", moved)).items == []


@pytest.mark.parametrize(
    ("callback", "words"),
    [
        ("by_lambda", r"shop\.py, line 29: the callback of .* is a lambda, not a method of the spider shop"),
        ("by_object", r"shop\.py, line 33: .* cannot be queued: meta\['row'\] is a SelectorList"),
        ("by_proxy", r"shop\.py, line 37: .* names a proxy in meta that is not in a pool"),
        ("waiting", "returned a Deferred that waits for Twisted's reactor"),
        ("engine", r"crawler\.engine\.pause does not exist: .* Yield a request"),
        ("downloads", r"shop\.example/1 was requested outside the processing of a page"),
        ("text", r"it yielded a str \('a text'\)"),
    ],
)
async def test_what_cannot_be_queued_or_done_is_refused_with_its_place(shop, callback, words):
    with pytest.raises(ParseFailed, match=words):
        await run_callback(shop, callback, page_of(shop))


@pytest.mark.parametrize(
    ("callback", "items", "reason"), [("closes", [{"kept": 1}], "enough"), ("closes_by_engine", [], "by the engine")]
)
async def test_a_spider_that_is_closed_ends_its_job_once_and_keeps_what_it_gave(shop, callback, items, reason):
    ended = []

    async def end(why):
        ended.append(why)
        if len(ended) == 1:
            raise BackendUnavailable("The state is away.")

    shop._end_job = end
    for _ in range(3):
        parsed = await run_callback(shop, callback, page_of(shop))
        assert [dict(item) for item in parsed.items] == items
    assert ended == [reason, reason]  # a state that did not answer is asked again, and no more after that


async def test_a_redirect_is_told_in_meta_and_the_times_of_retries_stay(shop):
    data = {"meta": {"retry_times": 2}}
    for number, status in ((1, 301), (2, 302)):
        data = shop._redirected(data, f"http://shop.example/old/{number}", status)
    (item,) = (await run_callback(shop, "login", page_of(shop, data=data))).items
    assert item["meta"] == {
        "retry_times": 2, "depth": 2, "redirect_times": 2, "redirect_reasons": [301, 302],
        "redirect_urls": ["http://shop.example/old/1", "http://shop.example/old/2"], "download_slot": "shop.example",
    }  # fmt: skip


FIRST = """
import scrapy

class First(scrapy.Spider):
    name = "first"

    def __init__(self, last="no", **kwargs):
        super().__init__(**kwargs)
        self.last = last

    async def start(self):
        yield {"first": 1}
        yield {"second": 2}
        yield scrapy.Request("http://shop.example/1")
        if self.last == "yes":
            yield {"last": 3}

    def parse(self, response):
        yield {"url": response.url}
"""


async def test_items_of_start_are_stored_with_the_page_that_comes_next(tmp_path):
    (tmp_path / "first.py").write_text(FIRST)
    spider = load_spider("first.py", tmp_path, "spiders")()
    (request,) = [request async for request in seeds(spider)]
    parsed = await run_callback(spider, "parse", page_of(spider, url=request.url, data=request.data))
    assert [dict(item) for item in parsed.items] == [{"url": request.url}, {"first": 1}, {"second": 2}]
    assert len({item_key(item) for item in parsed.items}) == 3

    with_arguments(spider := load_spider("first.py", tmp_path, "spiders")(), {"last": "yes"})
    with pytest.raises(Misconfigured, match="an item after its last request"):
        [request async for request in seeds(spider)]


FILES = """
import scrapy

class Files(scrapy.Spider):
    name = "files"
    custom_settings = {"ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1}, "FILES_STORE": "FOLDER"}

    def parse(self, response):
        yield {"file_urls": ["http://shop.example/1.pdf"]}
        yield {"file_urls": ["http://shop.example/2.pdf"]}
"""


async def test_an_item_does_not_lose_its_files_where_none_can_be_fetched(tmp_path):
    """As in a reparse: a media pipeline alone would take them for files that are gone."""
    (tmp_path / "files.py").write_text(FILES.replace("FOLDER", str(tmp_path / "store")))
    spider = load_spider("files.py", tmp_path, "spiders")()
    await spider._entered()
    page = page_of(spider)
    refused, item = (await run_callback(spider, "parse", page)).items

    with pytest.raises(ParseFailed, match="a reparse makes no requests"):
        await spider.item_pipelines(refused, page)

    async def ask(request):
        return page_of(spider, "a file", url=request.url)

    with asking_by(ask):
        stored = await spider.item_pipelines(item, page)
    assert [one["url"] for one in stored["files"]] == ["http://shop.example/2.pdf"]
    await spider._left()


async def test_coroutines_deferreds_that_have_fired_and_stats_count(shop):
    for callback, how in (("fired", "by a coroutine"), ("deferred", "by a Deferred")):
        parsed = await run_callback(shop, callback, page_of(shop))
        assert [dict(item) for item in parsed.items] == [{"made": how}]
    assert (await run_callback(shop, "counts", page_of(shop))).stats == {"rows": 3}


async def test_an_errback_is_told_by_the_names_that_it_knows(shop):
    async def heard(reason, status=None, page=None):
        failure = Failure(
            url=URL, reason=reason, message="no", attempts=1, kind="parse", job="j", status=status, page=page
        )
        return [dict(item) for item in (await run_errback(shop, "lost", failure)).items]

    assert await heard("timeout") == [{"lost": URL, "kind": "DownloadTimeoutError", "status": None}]
    assert await heard("robots") == [{"lost": URL, "kind": "IgnoreRequest", "status": None}]
    gone = page_of(shop, status=404)
    assert await heard("http-404", 404, gone) == [{"lost": URL, "kind": "HttpError", "status": 404}]
    assert await heard("parse", 200, page_of(shop)) == []


@pytest.mark.parametrize(
    ("reason", "own", "of_twisted"),
    [
        ("timeout", "DownloadTimeoutError", network.TimeoutError),
        ("dns", "CannotResolveHostError", network.DNSLookupError),
        ("connect", "DownloadConnectionRefusedError", network.ConnectionRefusedError),
        ("network", "DownloadFailedError", network.ConnectionLost),
    ],
)
def test_an_errback_may_look_for_errors_of_scrapy_or_of_twisted(reason, own, of_twisted):
    failure = Failure(url=URL, reason=reason, message="no", attempts=1, kind="parse", job="j")
    told = failure_of(failure, scrapy.Spider("shop"))
    assert told.check(getattr(scrapy.exceptions, own))
    assert told.check(of_twisted)


async def test_arguments_reach_the_constructor_as_texts_and_decide_where_it_starts(shop):
    with_arguments(shop, {"kind": ["old", "lamps"], "limit": 3})

    assert [request.url async for request in seeds(shop)] == ["http://shop.example/lamps"]
    assert shop.arguments == {"kind": "lamps", "limit": "3"}
    assert shop.limit is None
    assert shop.allowed_sites([]) == {"shop.example"}


def test_values_come_back_as_they_were():
    values = {
        "text": "é", "number": 1, "half": 0.5, "none": None, "yes": True, "list": [1, [2]], "tuple": (1, ("a",)),
        "set": {1, 2}, "bytes": b"\x00\xff", "day": date(2026, 1, 2), "then": datetime(2026, 1, 2, tzinfo=UTC),
        "price": Decimal("1.10"), "by number": {1: "a", (1, 2): "b"}, "tagged": {"__type__": "tuple", "value": [1]},
    }  # fmt: skip
    queued = msgspec.json.decode(msgspec.json.encode(written(values, "meta")))
    assert read(queued) == values
    for bad in (object(), float("nan"), lambda: None):
        with pytest.raises(NotQueueable, match=r"meta\['x'\]"):
            written({"x": bad}, "meta")
    with pytest.raises(NotQueueable, match="cannot be found"):
        read({"__type__": "os:system", "value": {"command": "true"}})


def project(folder, settings, spider=SPIDER):
    """A Scrapy project with a package of its own name, since modules are loaded once."""
    name = f"p{abs(hash(str(folder))):x}"
    (folder / name).mkdir()
    (folder / "scrapy.cfg").write_text(f"[settings]\ndefault = {name}.settings\n")
    (folder / name / "__init__.py").write_text("")
    text = settings.replace("NAME", name)
    (folder / name / "settings.py").write_text(f"SPIDER_MODULES = ['{name}.spiders']\n{text}")
    (folder / name / "spiders.py").write_text(spider)
    return name


SETTINGS = """
DOWNLOAD_DELAY = 0.25
CONCURRENT_REQUESTS = 7
CONCURRENT_REQUESTS_PER_DOMAIN = 3
ROBOTSTXT_OBEY = False
RETRY_TIMES = 4
RETRY_HTTP_CODES = [500, 418]
DEPTH_LIMIT = 5
CLOSESPIDER_PAGECOUNT = 99
DOWNLOAD_TIMEOUT = 12
USER_AGENT = "shop bot"
DEFAULT_REQUEST_HEADERS = {"Accept-Language": "de", "X-None": None}
HTTPERROR_ALLOWED_CODES = [404]
FEEDS = {"out/%(name)s-%(time)s.jsonl": {"format": "jsonlines"}, "items.sheet": {"format": "sheet"}}
HTTPCACHE_ENABLED = True
AUTOTHROTTLE_ENABLED = False
ITEM_PIPELINES = {"scrapy.pipelines.images.ImagesPipeline": 1, "NAME.spiders.Threaded": 2, "NAME.spiders.Plain": 3,
    "NAME.spiders.Absent": 4}
"""

PIPELINES = """
from twisted.enterprise import adbapi

class Threaded:
    def open_spider(self, spider):
        self.pool = adbapi.ConnectionPool("sqlite3", "x.db")

class Plain:
    def process_item(self, item, spider):
        return item
"""


def test_settings_become_those_of_the_spider_and_of_the_job_and_the_rest_is_named(tmp_path):
    name = project(tmp_path, SETTINGS, SPIDER + PIPELINES)
    below = tmp_path / "deeper"
    below.mkdir()
    read = settings_module.load(start=below, environ={"GOSSAMER_FETCH__TOTAL_TIMEOUT": "50s"}, flags={})
    assert read.root == tmp_path
    spider = load_spider("shop", read.root, read.spiders)()

    adjusted = spider._adjusted(read)

    assert site_terms(adjusted, politeness_of(adjusted, spider))("shop.example").own_spacing(None) == 0.25
    assert (spider.concurrency, spider.robots, adjusted.crawl.concurrency) == (3, False, 7)
    terms = job_terms(adjusted, spider)
    assert (terms.max_attempts, terms.depth, terms.limit) == (5, 5, 99)
    assert adjusted.retry.statuses == (500, 418)
    assert adjusted.fetch.user_agent == "shop bot"
    assert adjusted.fetch.total_timeout == timedelta(seconds=50)  # the environment goes before Scrapy's setting
    assert spider.headers == {"Accept-Language": "de"}
    assert spider.handle_statuses == (404,)
    told = " ".join(spider._remarks())
    assert re.findall(r"Scrapy setting (\w+)", told) == ["HTTPCACHE_ENABLED", "FEEDS"]
    assert "FEEDS names a format or a place that Scrapy cannot write" in told
    assert "ImagesPipeline" not in told
    assert f"{name}.spiders.Threaded uses Twisted's adbapi" in told
    assert "Plain" not in told
    assert f"{name}.spiders.Absent (ITEM_PIPELINES) cannot be loaded, so that no run can begin (NameError: " in told


def test_where_a_project_says_nothing_our_own_defaults_hold(tmp_path):
    (tmp_path / "shop.py").write_text(SPIDER)
    spider = load_spider("shop.py", tmp_path, "spiders")()
    read = settings_module.load(start=tmp_path, environ={}, flags={})

    assert spider._adjusted(read) == read
    assert (spider.rate, spider.concurrency, spider.robots, spider.max_attempts) == (None, None, None, None)
    assert ScrapySettings().getfloat("DOWNLOAD_DELAY") == 0  # Scrapy's own would be without any pause


def test_a_project_that_does_not_load_says_why_and_hides_nothing(tmp_path):
    name = project(tmp_path, "", "import nowhere\n")
    found = list_spiders(tmp_path, "spiders")
    assert [str(one) for one in found.broken] == [
        f"{tmp_path / name / 'spiders.py'}, line 1: ModuleNotFoundError: No module named 'nowhere'"
    ]
    with pytest.raises(SpiderNotFound, match="nowhere"):
        load_spider("shop", tmp_path, "spiders")
    (tmp_path / "scrapy.cfg").write_text("[other]\n")
    assert "names no settings module" in str(list_spiders(tmp_path, "spiders").broken[0])
    made = load_spider_with(tmp_path, SPIDER.replace('kind="all"', "kind"))
    with pytest.raises(Misconfigured, match=r"cannot be made .* missing 1 required positional argument: 'kind'"):
        made._adjusted(settings_module.load(start=tmp_path, environ={}, flags={}))


def test_a_project_that_others_may_write_is_not_run(tmp_path):
    name = project(tmp_path, "")
    (tmp_path / name / "__init__.py").write_text("raise SystemExit('it ran')")
    (tmp_path / name / "__init__.py").chmod(0o666)
    (broken,) = list_spiders(tmp_path, "spiders").broken
    assert "may be changed by every user" in broken.message
    (tmp_path / "scrapy.cfg").chmod(0o666)
    with pytest.raises(Misconfigured, match="may be changed by every user"):
        settings_module.load(start=tmp_path, environ={}, flags={})


FEED = """
from scrapy.spiders import CSVFeedSpider, XMLFeedSpider

class Rows(CSVFeedSpider):
    name = "rows"

    def parse_row(self, response, row):
        yield {"id": row["id"]}

class Nodes(XMLFeedSpider):
    name = "nodes"
    itertag = "item"

    def parse_node(self, response, node):
        yield {"id": node.xpath("@id").get()}
"""


async def test_feed_spiders_read_their_feeds(tmp_path):
    (tmp_path / "feed.py").write_text(FEED)
    texts = {"rows": "id,name\n1,a\n2,b\n", "nodes": "<?xml version='1.0'?><all><item id='1'/><item id='2'/></all>"}
    for name, text in texts.items():
        spider = load_spider(f"feed.py:{name}", tmp_path, "spiders")()
        kind = "text/csv" if name == "rows" else "text/xml"
        snapshot = msgspec.structs.replace(page_of(spider, text).snapshot, headers=Headers([("Content-Type", kind)]))
        parsed = await run_callback(spider, "parse", Page(snapshot, spider=spider))
        assert [dict(item) for item in parsed.items] == [{"id": "1"}, {"id": "2"}]


def load_spider_with(folder, text):
    (folder / "scrapy.cfg").unlink()
    (folder / "made.py").write_text(text)
    return load_spider("made.py", folder, "spiders")()


def test_the_version_of_a_spider_changes_with_its_source(tmp_path):
    versions = set()
    for text in (SPIDER, SPIDER + "\n# changed\n"):
        folder = tmp_path / str(len(versions))
        folder.mkdir()
        (folder / "shop.py").write_text(text)
        versions.add(spider_version(load_spider("shop.py", folder, "spiders")))
    assert len(versions) == 2


class PageMethod:
    """Like scrapy-playwright's."""

    def __init__(self, method, *args, **kwargs):
        self.method, self.args, self.kwargs = method, args, kwargs


def test_page_methods_of_scrapy_playwright_become_actions_of_our_browser():
    told = []
    methods = [
        PageMethod("wait_for_selector", "div.quote", timeout=5000),
        PageMethod("fill", "#q", "lamp"),
        PageMethod("press", "#q", "Enter"),
        PageMethod("evaluate", "window.scrollBy(0, document.body.scrollHeight)"),
        PageMethod("wait_for_timeout", 1500),
        PageMethod("screenshot", path="x.png", full_page=True),
        PageMethod("wait_for_load_state", "networkidle"),
        PageMethod("pdf"),
    ]
    meta = {"playwright": True, "playwright_page_methods": methods, "playwright_include_page": True, "other": 1}

    render = render_of(meta, told.append)

    assert [(one.do, one.selector, one.text, one.seconds) for one in render.actions] == [
        ("wait", "div.quote", "", 5.0),
        ("fill", "#q", "lamp", 0.0),
        ("press", "#q", "Enter", 0.0),
        ("scroll", "", "", 0.0),
        ("wait", "", "", 1.5),
    ]
    assert (render.screenshot, render.wait_until) == (True, "networkidle")
    assert [re.split(r" is | has ", words)[0] for words in told] == [
        "meta['playwright_include_page']",
        "PageMethod('pdf')",
    ]
    assert render_of({"playwright": True}, told.append) is None
    again = queueable(meta)  # as it travels with a request, and what the next request makes of it
    assert render_of(read(written(again, "meta")), told.append).actions == render.actions

"""A Scrapy spider class as one of ours. Each of its callbacks is wrapped: our page becomes Scrapy's response, and
Scrapy's requests and items become ours.

A Scrapy spider and its crawler are made once per job and process. Pipelines and extensions are opened where results are
stored, in crawls and reparses; `gossamer check` and `test` show what callbacks yield, and run none of them.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import scrapy
from itemadapter import ItemAdapter
from scrapy import signals
from scrapy.exceptions import CloseSpider
from scrapy.extensions.corestats import CoreStats
from scrapy.http import Response
from scrapy.settings import Settings as ScrapySettings

from ...errors import Misconfigured, ParseFailed
from ...model.record import StoredRecord
from ...model.task import DEFAULT_KIND, Request
from ...parse.callbacks import KEPT
from ...parse.page import Page
from ...parse.page_context import Failure, PageContext, Stats, can_count, working_on
from ...parse.spider import Contract, Spider, Start
from ...pipeline.steps import Drop
from ...settings import Settings
from ...terms import routing_of
from ...units import many
from .callbacks import FOREIGN
from .components import ProjectCrawler, built, open_all, users_classes, words_of
from .declarations import class_faults, declared, valid_domains
from .downloader import DownloaderMiddlewares
from .early_end import PAGES, End, JobTally, Look
from .engine import NO_PAGE
from .feeds import feed_fault, has_feeds, write_feeds
from .items import ScrapyItem, item_of
from .requests import COUNTED, RequestTerms, allowed_statuses, mark_of, queued, redirected, refusal, start_items
from .responses import failure_of, response_of
from .scraping import CallbackFailed, ItemPipelines, Places, SpiderMiddlewares, collected
from .settings_table import SESSION, adjusted, attributes_of, remarks_of
from .trials import contracts_of, shell_names

VISITOR = "visitor"  # the session of spiders that log in
UNSENT = "Components of the project listen to signals that are never sent here: %s."
_OF_SCRAPY = ("_callback", "_errback", "_parse_sitemap")  # callbacks that Scrapy's own spider classes name
_SIGNS_OF_VISITORS = frozenset({"FormRequest", "from_response", "cookiejar", "cookies"})
_NOT_HEARD = ("parse", "quality")  # failures of our own, for which Scrapy calls no errback


class Made:
    """The objects of a Scrapy spider for one job."""

    def __init__(
        self, cls: type[scrapy.Spider], settings: ScrapySettings, arguments: dict[str, Any], end: End, look: Look
    ) -> None:
        self.crawler = ProjectCrawler(cls, settings, end, look)
        try:
            self.spider = cls.from_crawler(self.crawler, **arguments)
        except Exception as error:  # of the user's constructor
            raise Misconfigured(f"Spider {cls.name} cannot be made ({type(error).__name__}: {error}).") from error
        self.crawler.spider = self.spider
        self.crawler.load_addons()
        if not hasattr(self.spider, "state"):
            self.spider.state = {}  # type: ignore[attr-defined]  # as Scrapy's extension sets it; of this process alone
        self.crawler.settings.freeze()
        self.middlewares = SpiderMiddlewares(built(self.crawler, "SPIDER_MIDDLEWARES"), self.crawler)
        self.pipelines: ItemPipelines | None = None  # None: they are not open
        self.extensions: list[Any] = []


class ScrapySpider(Spider):
    """Base of the classes that stand for Scrapy spiders."""

    name = "scrapy"
    clean = False  # items are stored as the project's pipelines leave them
    scrapy_class: ClassVar[type[scrapy.Spider]]
    scrapy_settings: ClassVar[ScrapySettings]
    _takes_any_argument = True
    _makes_side_requests = True
    _keeps_own_cookies = True
    _source_text: ClassVar[str] = ""

    def __init__(self) -> None:
        self._made: Made | None = None
        self._terms: RequestTerms | None = None
        self._pools: dict[str, str] = {}  # by address of a proxy
        self._kinds: frozenset[str] = frozenset()  # of transports that the project's routes have
        self._ending = "shutdown"
        self.pipeline = (self.item_pipelines,)

    # -- making it -------------------------------------------------------------------------------------------------

    def _objects(self) -> Made:
        """Raises Misconfigured."""
        if self._made is None:
            made = Made(self.scrapy_class, self.scrapy_settings, dict(self.arguments), self._ended, self._tally)
            spider = made.spider
            made.crawler.engine.queued = lambda request: queued(request, self._request_terms(), inline=True)
            session = _session_of(self.scrapy_class, made.crawler.settings)
            self._terms = RequestTerms(spider, session, self._pools.get, self._kinds)
            # Add-ons and the spider's own code may have changed the settings since the class was read.
            for name, value in attributes_of(self.scrapy_class, made.crawler.settings).items():
                setattr(self, name, value)
            self.handle_statuses = allowed_statuses(spider, made.crawler.settings)
            self.start_urls = _urls(getattr(spider, "start_urls", ()))
            self.allowed_domains = _domains(getattr(spider, "allowed_domains", None), self.start_urls)
            parts = built(made.crawler, "DOWNLOADER_MIDDLEWARES")
            self.extensions = [DownloaderMiddlewares(parts, self._terms, made.crawler)]
            self._made = made
        return self._made

    def _start_functions(self) -> Sequence[Callable[..., Any]]:
        cls = self.scrapy_class
        return [getattr(cls, name) for name in ("start", "start_requests") if hasattr(cls, name)]

    def _redirected(self, data: dict[str, Any], url: str, status: int) -> dict[str, Any]:
        return redirected(data, url, status)

    def _adjusted(self, settings: Settings) -> Settings:
        self._pools = {
            _address(url.reveal()): name for name, pool in settings.proxies.items() for url in pool.urls if url.reveal()
        }
        self._kinds = frozenset(route.transport for route in routing_of(settings).routes.values())
        return adjusted(settings, self._objects().crawler.settings)

    def _contracts(self) -> Iterator[Contract]:
        return contracts_of(self._objects().spider, partial(queued, terms=self._request_terms(), inline=True))

    def _shell_names(self, page: Page) -> dict[str, Any]:
        spider = self._objects().spider
        return shell_names(spider, response_of(page, spider))

    def _shell_request(self, given: object) -> Request | None:
        return queued(given, self._request_terms(), inline=True) if isinstance(given, scrapy.Request) else None

    def _remarks(self) -> list[str]:
        told = remarks_of(self._made.crawler.settings if self._made is not None else self.scrapy_settings)
        told += class_faults(self.scrapy_class)
        if self._made is not None:
            told += [UNSENT % ", ".join(names) for names in [self._made.crawler.unsent()] if names]
            told += filter(None, [feed_fault(self._made.crawler)])
        proxies = [name for name in ("http_proxy", "https_proxy") if os.environ.get(name)]
        if proxies and self.scrapy_settings.getbool("HTTPPROXY_ENABLED"):
            told.append(f"The proxy in {' and '.join(proxies)} is not used. Add it to gossamer.toml: [proxies.NAME].")
        if "twisted.internet.reactor" in sys.modules:
            told.append("Twisted's reactor is loaded but does not run here: code that waits for it never continues.")
        return told

    # -- its life --------------------------------------------------------------------------------------------------

    async def _entered(self) -> None:
        made = self._objects()
        before = set(made.crawler.unsent())
        made.extensions = [CoreStats.from_crawler(made.crawler), *built(made.crawler, "EXTENSIONS")]
        pipelines = ItemPipelines(built(made.crawler, "ITEM_PIPELINES"), made.crawler)
        await made.crawler.tell(signals.engine_started)
        await open_all(pipelines.parts, made.spider, "open_spider")
        made.pipelines = pipelines
        if new := sorted(set(made.crawler.unsent()) - before):
            self.log.warning(UNSENT, ", ".join(new))
        await made.crawler.tell(signals.spider_opened)
        await made.crawler.closing.open()
        await made.crawler.closing.settle()

    async def _ended(self, reason: str) -> None:
        if self._end_job is not None:
            self.log.info("Closing spider (%s)", reason)
            await self._end_job(reason)

    async def _tally(self) -> JobTally | None:
        if self._job_tally is None:
            return None
        age, stats = await self._job_tally()
        return JobTally(age, stats)

    def closed(self, report: Any) -> None:
        self._ending = self._objects().crawler.closing.reason or "finished"

    async def _left(self) -> None:
        made = self._made
        if made is None or made.pipelines is None:
            return
        parts, made.pipelines = made.pipelines.parts, None
        await made.crawler.closing.close()
        await open_all(reversed(parts), made.spider, "close_spider")
        await made.crawler.tell(signals.spider_closed, reason=self._ending)
        await made.crawler.tell(signals.engine_stopped)

    async def _more(self) -> list[Request] | None:
        made = self._objects()
        waits = await made.crawler.idle()
        found = [queued(one, self._request_terms(), "spider_idle") for one in made.crawler.engine.taken()]
        await made.crawler.closing.settle()
        return found if found or waits else None

    async def _write_feeds(self, records: AsyncIterator[StoredRecord]) -> list[str]:
        crawler = self._objects().crawler
        if not has_feeds(crawler) or feed_fault(crawler):
            return []
        count, places = await write_feeds(crawler, records)
        self.log.info("%s written to FEEDS", many(count, "item"))
        return places

    # -- its requests, pages and items -----------------------------------------------------------------------------

    def start(self) -> Start:
        return self._first_requests()

    async def _first_requests(self) -> AsyncIterator[Request]:
        what = f"{self.scrapy_class.__name__}.start"
        entries = self._objects().middlewares.start()
        items: list[Any] = []  # they travel with the next request, and are stored with its page
        while True:
            try:
                entry = await anext(entries)
                if ItemAdapter.is_item(entry):
                    items.append(entry)
                    continue
                if not isinstance(entry, scrapy.Request):
                    raise refusal(f"it yielded {entry!r:.100}; it may yield requests and items", what)
                if not self._objects().crawler.say(signals.request_scheduled, request=entry):
                    continue
                request, items = queued(entry, self._request_terms(), what, seed=True, items=items), []
            except StopAsyncIteration:
                if items:
                    words = "it yielded an item after its last request: yield items first, they are stored with a page"
                    raise Misconfigured(f"Spider {self.name} cannot start: {refusal(words, what)}") from None
                return
            except CloseSpider as error:
                closing = self._objects().crawler.closing
                closing.ask(error.reason)
                await closing.settle()
                return
            except Exception as error:  # of the user's code
                raise Misconfigured(f"Spider {self.name} cannot start: {error}") from error
            yield request

    def _method(self, name: str) -> Callable[..., Any]:
        return partial(self._called, name)

    async def _called(self, name: str, argument: Page | Failure) -> list[ScrapyItem | Request]:
        made = self._objects()
        what = f"{self.scrapy_class.__name__}.{name}"
        places: Places = {}
        response: Response | None = None
        if isinstance(argument, Failure):
            if argument.reason in _NOT_HEARD:
                return []
            entries: list[Any] = []
            if argument.page is not None:
                _count(argument.page)
                came = response_of(argument.page, made.spider)
                await made.crawler.tell(signals.response_received, response=came, request=came.request)
            try:
                heard = failure_of(argument, made.spider)
                far = argument.data.get(FOREIGN) or {}
                method = made.crawler.foreign.get(far["errback"]) if "errback" in far else getattr(made.spider, name)
                given = method(heard)
                await collected(given, what, places, entries)
            except CloseSpider as error:
                made.crawler.closing.ask(error.reason)
        else:
            response = response_of(argument, made.spider)
            if not self._request_terms().may_have(argument.status, response.meta):
                return []  # an unwanted redirect that was not to be followed
            _count(argument)
            await made.crawler.tell(signals.response_received, response=response, request=response.request)
            far = argument.data.get(FOREIGN) or {}
            callback = made.spider._parse if name == DEFAULT_KIND else getattr(made.spider, name)
            if "callback" in far:
                callback = made.crawler.foreign.get(far["callback"])
            made.crawler.closing.count(PAGES)
            try:
                entries = await made.middlewares.scrape(callback, response, what, places)
            except CallbackFailed as failed:
                await made.crawler.closing.settle()  # there may have been too many errors
                cause = failed.__cause__
                assert cause is not None
                before = [*failed.before, *made.crawler.engine.taken(), *start_items(argument.data)]
                with suppress(AttributeError):  # an exception class with slots
                    setattr(cause, KEPT, self._ours(before, argument, response, what, places))
                raise cause from None
        await made.crawler.closing.settle()
        entries += made.crawler.engine.taken()
        entries = [*entries, *start_items(argument.data)]  # after those of the page, whose keys stay what they were
        return self._ours(entries, argument, response, what, places)

    def _ours(
        self, entries: list[Any], source: Page | Failure, response: Response | None, what: str, places: Places
    ) -> list[ScrapyItem | Request]:
        settings, terms = self.scrapy_settings, self._request_terms()
        found: list[ScrapyItem | Request] = []
        mark = mark_of(source.data, source.kind)
        place = f"{source.url} {mark}" if mark else source.url
        for entry in entries:
            if isinstance(entry, scrapy.Request):
                if self._objects().crawler.say(signals.request_scheduled, request=entry):
                    found.append(queued(entry, terms, places.get(id(entry), what)))
            elif ItemAdapter.is_item(entry):
                found.append(item_of(entry, self.name, settings, place, response))
            elif entry is not None:
                raise refusal(
                    f"it yielded a {type(entry).__name__} ({entry!r:.80}); it may yield items and requests", what
                )
        return found

    async def item_pipelines(self, item: ScrapyItem, page: Page) -> ScrapyItem | Drop:
        """The step in which the project's pipelines run, if they are open."""
        made = self._made
        if made is None or made.pipelines is None:
            return item
        engine = made.crawler.engine
        before = engine.missed
        with working_on(PageContext(page.job, page.url, page._stats)):
            passed = await made.pipelines.process(item.item, item.response)
        if engine.missed > before:  # a media pipeline takes it for a missing file: the item would lose it
            raise ParseFailed(NO_PAGE.format(url="a file of an item"))
        await made.crawler.closing.settle()
        return (
            passed
            if isinstance(passed, Drop)
            else item_of(passed, self.name, self.scrapy_settings, item.place, item.response)
        )

    def _request_terms(self) -> RequestTerms:
        self._objects()
        assert self._terms is not None
        return self._terms


def adapted(cls: type[scrapy.Spider], settings: ScrapySettings) -> type[ScrapySpider]:
    """Our class for a Scrapy spider of a project with these settings."""
    own = settings.copy()
    cls.update_settings(own)
    urls = _urls(declared(cls, "start_urls"))
    namespace = {
        "__doc__": cls.__doc__,
        "__module__": __name__,
        "name": cls.name,
        "scrapy_class": cls,
        "scrapy_settings": own,
        "start_urls": urls,
        "handle_statuses": allowed_statuses(cls, own),
        "allowed_domains": _domains(declared(cls, "allowed_domains"), urls),
        "_source_text": _source(cls),
        **attributes_of(cls, own),
    }
    made: Any = type(cls.__name__, (ScrapySpider,), namespace)
    made._callbacks = _callbacks(cls)
    ours: type[ScrapySpider] = made
    return ours


def _count(page: Page) -> None:
    """Add what downloader middlewares have counted to the stats of the page."""
    for key, count in (page.data.get(COUNTED) or {}).items():
        if can_count():
            Stats().add(key, count)


def _callbacks(cls: type[scrapy.Spider]) -> tuple[str, ...]:
    """The methods that may parse pages: those of the user's classes, and the few in Scrapy's own classes."""
    own = {
        name
        for base in users_classes(cls)
        for name, value in vars(base).items()
        if callable(value) and not name.startswith("__") and name not in vars(scrapy.Spider)
    }
    named = {name for name in _OF_SCRAPY if hasattr(cls, name)}
    return (*sorted(name for name in own | {DEFAULT_KIND} if not name.startswith("_")),
            *sorted(named | {name for name in own if name.startswith("_")}))  # fmt: skip


def _source(cls: type) -> str:
    files = {file for base in users_classes(cls) if (file := inspect.getsourcefile(base)) is not None}
    return "\n".join(Path(file).read_text(encoding="utf-8", errors="replace") for file in sorted(files))


def _session_of(cls: type, settings: ScrapySettings) -> str | None:
    """The session of all requests. Scrapy has one cookie jar for all; in a fleet that is a session, which is worth its
    cost only if the spider's code logs in or sends cookies."""
    named = settings.get(SESSION)
    if named is not None:
        return str(named) if isinstance(named, str) else VISITOR if named else None
    if not settings.getbool("COOKIES_ENABLED"):
        return None
    return VISITOR if words_of(cls) & _SIGNS_OF_VISITORS else None


def _urls(given: Any) -> Sequence[str]:
    return (given,) if isinstance(given, str) else tuple(str(url) for url in given or ())


def _domains(given: Any, start: Sequence[str]) -> Sequence[str] | str:
    """Where links may lead: anywhere without `allowed_domains`, as in Scrapy. Start pages are always fetched."""
    if not given:
        return "*"
    hosts = [host for url in start if (host := urlsplit(url).hostname)]
    return valid_domains(given) or list(dict.fromkeys(hosts))


def _address(url: str) -> str:
    return url.strip().rstrip("/")

"""The components of a Scrapy project that are built with a crawler: middlewares, pipelines, extensions; and that
crawler.

It has settings, signals, stats and the spider. It has no real engine; the one here can download for the user's code and
close the spider, and says what to do instead when more is asked of it.
How it fails: NotConfigured leaves a component out, as in Scrapy; any other exception is an error of the project.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from inspect import signature
from types import CodeType
from typing import Any

import scrapy
from pydispatch.dispatcher import getAllReceivers, liveReceivers
from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider, DontCloseSpider, IgnoreRequest, NotConfigured
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import build_from_crawler, load_object
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure as TwistedFailure

from ...errors import Misconfigured, ParseFailed
from ...parse.page_context import LONGEST_NAME, Stats, can_count
from .callbacks import ForeignCallbacks
from .early_end import EarlyEnd, End, Look
from .engine import CrawlerEngine

SENT = ("engine_started", "engine_stopped", "spider_opened", "spider_closed", "spider_error", "spider_idle",
        "item_scraped", "item_dropped", "item_error", "response_received", "request_scheduled",
        "request_reached_downloader", "request_left_downloader", "response_downloaded", "feed_slot_closed",
        "feed_exporter_closed")  # fmt: skip
REPLACED = ("scrapy.downloadermiddlewares.", "scrapy.spidermiddlewares.", "scrapy.extensions.")
PARTS = ("ITEM_PIPELINES", "SPIDER_MIDDLEWARES", "DOWNLOADER_MIDDLEWARES", "EXTENSIONS")
REACTOR_ONLY = (
    "twisted.enterprise.adbapi", "twisted.internet.reactor", "twisted.internet.threads", "twisted.internet.task",
    "twisted.internet.epollreactor", "twisted.internet.asyncioreactor",
)  # fmt: skip
_NOT_USERS = ("scrapy", "builtins")


class PageStats(MemoryStatsCollector):
    """Scrapy's stats of this process. What callbacks count is also added to the stats of the job, once per page."""

    def inc_value(self, key: str, count: int = 1, start: int = 0, spider: object = None) -> None:
        super().inc_value(key, count, start)
        if can_count() and isinstance(count, int) and 0 < len(key) <= LONGEST_NAME:
            Stats().add(key, count)


class ProjectCrawler(Crawler):
    """The crawler that `from_crawler` receives."""

    def __init__(
        self, spidercls: type[scrapy.Spider], settings: Settings, end: End | None = None, look: Look | None = None
    ) -> None:
        super().__init__(spidercls, settings)
        self.stats = PageStats(self)
        self.closing = EarlyEnd(self.settings, end, look)
        self.foreign = ForeignCallbacks(self)
        self.engine: Any = CrawlerEngine(self.closing)  # Any: it is not Scrapy's
        self.engine.received = self.told_of
        self.logformatter = build_from_crawler(load_object(self.settings["LOG_FORMATTER"]), self)
        self.request_fingerprinter = build_from_crawler(load_object(self.settings["REQUEST_FINGERPRINTER_CLASS"]), self)

    def load_addons(self) -> None:
        """Let ADDONS change the settings, once the spider is there, as in Scrapy. Raises Misconfigured."""
        try:
            self.addons.load_settings(self.settings)
        except Exception as error:  # of the add-on
            raise Misconfigured(f"Scrapy setting ADDONS: {type(error).__name__}: {error}") from error

    async def tell(self, signal: object, **named: Any) -> None:
        """Send a signal, and await handlers that are coroutines."""
        for receiver, given in self.signals.send_catch_log(signal, spider=self.spider, **named):
            await settled(given, getattr(receiver, "__qualname__", "a signal handler"))

    async def told_of(self, response: Response) -> None:
        """Tell of a response that the user's code waited for."""
        await self.tell(signals.response_received, response=response, request=response.request)

    def say(self, signal: object, **named: Any) -> bool:
        """Send a signal whose handlers are no coroutines. False if one of them raises IgnoreRequest."""
        given = self.signals.send_catch_log(signal, spider=self.spider, dont_log=IgnoreRequest, **named)
        return not any(isinstance(one, TwistedFailure) and isinstance(one.value, IgnoreRequest) for _, one in given)

    async def idle(self) -> bool:
        """Send `spider_idle`. True if a handler wants to wait for more."""
        waits = False
        for receiver, given in self.signals.send_catch_log(
            signals.spider_idle, spider=self.spider, dont_log=(DontCloseSpider, CloseSpider)
        ):
            if isinstance(given, TwistedFailure):
                waits = waits or isinstance(given.value, DontCloseSpider)
                if isinstance(given.value, CloseSpider):
                    self.closing.ask(given.value.reason)
            else:
                await settled(given, getattr(receiver, "__qualname__", "a signal handler"))
        return waits

    def unsent(self) -> list[str]:
        """Signals that components of the project listen to and that are never sent here."""
        return [
            name
            for name, signal in vars(signals).items()
            if type(signal) is object and name not in SENT and any(liveReceivers(getAllReceivers(self, signal)))
        ]


def component_names(settings: Settings, setting: str) -> list[Any]:
    """The components that the user has listed, in order, without those of Scrapy that Gossamer replaces."""
    listed = build_component_list(settings.getdict(setting))
    return [one for one in listed if not _name(one).startswith(REPLACED)]


def built(crawler: ProjectCrawler, setting: str) -> list[Any]:
    """The components that a setting lists, without those that cannot work here. Raises Misconfigured."""
    made = []
    for one in component_names(crawler.settings, setting):
        try:
            cls = load_object(one)
            if unfit(cls) is None:
                made.append(build_from_crawler(cls, crawler))
        except NotConfigured:
            continue
        except Exception as error:
            raise Misconfigured(
                f"Scrapy setting {setting}: {_name(one)} cannot be made ({type(error).__name__}: {error})."
            ) from error
    return made


def unfit(cls: object) -> str | None:
    """Why a component cannot work here, in words that follow its name."""
    home = sys.modules.get(getattr(cls, "__module__", ""))
    known = vars(home) if home is not None else {}
    for name in sorted(words_of(cls) & known.keys()):
        module = getattr(known.get(name), "__module__", None) or getattr(known.get(name), "__name__", "")
        if str(module).startswith(REACTOR_ONLY):
            return f"uses Twisted's {name}, whose reactor does not run here, and is left out"
    return None


def unfit_parts(settings: Settings) -> dict[str, str]:
    """The components that are left out or end a run at its start, by name, with the reason."""
    found = {}
    for setting in PARTS:
        for one in component_names(settings, setting):
            try:
                why = unfit(load_object(one))
            except Exception as error:  # of the user's module
                why = f"({setting}) cannot be loaded, so that no run can begin ({type(error).__name__}: {error})"
            if why is not None:
                found[_name(one)] = why
    return found


def words_of(cls: object) -> set[str]:
    """The names and texts in the code of a class."""
    found: set[str] = set()
    for base in users_classes(cls):
        for value in vars(base).values():
            code = getattr(getattr(value, "__func__", value), "__code__", None)
            found |= _words_in(code) if code is not None else set()
    return found


def users_classes(cls: object) -> list[type]:
    """Its base classes, without Scrapy's own."""
    return [base for base in getattr(cls, "__mro__", ()) if base.__module__.partition(".")[0] not in _NOT_USERS]


def _words_in(code: CodeType) -> set[str]:
    found = {*code.co_names}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _words_in(constant)
        elif isinstance(constant, str):
            found.add(constant)
        elif isinstance(constant, tuple):
            found |= {one for one in constant if isinstance(one, str)}
    return found


def _name(one: Any) -> str:
    return one if isinstance(one, str) else f"{one.__module__}.{one.__qualname__}"


def call(method: Callable[..., Any], *given: Any, spider: scrapy.Spider, **named: Any) -> Any:
    """Call a method of a component, with the spider if it takes one, as most do."""
    if _takes_spider(getattr(method, "__func__", method)):
        named["spider"] = spider
    return method(*given, **named)


@lru_cache(maxsize=1024)
def _takes_spider(function: Callable[..., Any]) -> bool:
    of_scrapy = function.__module__.startswith("scrapy.")  # Scrapy is removing the argument from its own methods
    return not of_scrapy and "spider" in signature(function).parameters


async def settled(given: Any, what: str) -> Any:
    """The result of a component: of a coroutine its result, of a Deferred that has fired its value. Raises ParseFailed
    for a Deferred that waits for a reactor, which never runs here."""
    if isinstance(given, Awaitable) and not isinstance(given, Deferred):
        return await given
    if not isinstance(given, Deferred):
        return given
    values: list[Any] = []
    failures: list[Any] = []
    given.addCallbacks(values.append, failures.append)
    if failures:
        failures[0].raiseException()
    if not values:
        raise ParseFailed(
            f"{what} returned a Deferred that waits for Twisted's reactor, which does not run here. Make it a "
            f"coroutine, with async def."
        )
    return values[0]


async def open_all(parts: Iterable[Any], spider: scrapy.Spider, verb: str) -> None:
    """Call `open_spider` or `close_spider` of the components that have it."""
    for part in parts:
        method = getattr(part, verb, None)
        if method is not None:
            await settled(call(method, spider=spider), f"{type(part).__name__}.{verb}")

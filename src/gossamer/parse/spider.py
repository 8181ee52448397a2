"""`Spider`: what a user writes; its start, callbacks, overrides and name. callbacks.py calls the callbacks."""

from __future__ import annotations

import difflib
import inspect
import re
import unicodedata
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ..errors import InvalidUrl, Misconfigured, ParseFailed, SourceFailed
from ..model.item import AnyItem, Item
from ..model.secret_text import Reveal, SecretText, secret_of_environment
from ..model.task import DEFAULT_KIND, Request, fault_of
from ..model.url import parse_url, site_of
from .link_rules import Rule
from .page import Page
from .page_context import SpiderLog, Stats
from .session import Session

if TYPE_CHECKING:
    from ..model.record import StoredRecord
    from ..settings import Settings
    from .failure import Failure

Yield: TypeAlias = AnyItem | Request | None
Results: TypeAlias = Iterator[Yield]  # what users write behind `def parse(self, page: Page) ->`
Answer: TypeAlias = (
    Iterable[Yield]
    | AsyncIterable[Yield]
    | Awaitable[Iterable[Yield] | AnyItem | Request | None]
    | AnyItem
    | Request
    | None
)
Start: TypeAlias = Iterable[Request | str] | AsyncIterable[Request | str] | Awaitable[Iterable[Request | str]]
ItemStep: TypeAlias = Callable[..., Any]  # step(item, page) -> item | Drop | None, or a coroutine of that

_MOST_SESSIONS = 250
_SESSION_NAME = re.compile(r"[\w.@-]{1,100}")
_LONGEST_NAME = 60  # characters of a spider's name
_LISTS = {  # attributes that must be lists, and how one is written
    "start_urls": '["https://shop.example/"]',
    "pipeline": "[step]",
    "quality_rules": "[rule]",
    "rules": "[Rule(...)]",
    "handle_statuses": "[404]",
}
_LEAST = {"burst": 1, "concurrency": 1, "max_attempts": 1, "limit": 1, "max_depth": 0}  # the least that they may be
FAILED = "failed"  # the method for failures of requests that name no errback


class Spider:
    """Base of spiders. A subclass gives `start_urls` and `parse`; all else has a default.

    The settings decide where an attribute is None. Callbacks may be generators, plain functions or
    async; they are stored by name, so that a crawl goes on after a restart.
    """

    name: str = ""  # set for every subclass: the class name in lower case, words joined by "-"
    start_urls: Sequence[str] = ()
    allowed_domains: Sequence[str] | str | None = None  # None: the sites of the seeds; "*": every site
    pipeline: Sequence[ItemStep] = ()  # steps of its own, after cleaning and validating
    extensions: Sequence[Any] = ()  # classes derived from Extension, inside those of the settings
    clean: bool = True  # False: texts are stored exactly as they were given
    quality_rules: Sequence[ItemStep] = ()  # rule(item, page) -> None, a text or a Fault
    min_quality: float | None = None  # share of faultless items below which nothing is stored any more

    min_records: int | None = None  # records that a run should see; 0: it need not see any
    min_pages: int | None = None
    max_dead_share: float | None = None  # of its pages that may end as dead letters, 0 to 1
    max_change: float | None = None  # of the number of records against the last run, as 0.5

    rate: str | None = None  # requests per site: "5/s", "unlimited"
    burst: int | None = None
    concurrency: int | None = None  # requests at once per site
    robots: bool | None = None
    max_depth: int | None = None
    max_attempts: int | None = None
    limit: int | None = None  # pages in all
    headers: Mapping[str, str] = {}  # sent with every request of this spider
    retry_unsafe: bool | None = None  # may a POST be sent again when nobody knows whether it arrived?
    fetcher: str | None = None  # a route, or a kind of transport ("browser"), for requests that name none
    proxy_pool: str | None = None
    session: str | None = None  # for requests that name none: they leave as one visitor
    sessions: int | None = None  # a pool of that many visitors; one that is blocked is replaced

    _reveal: Reveal = staticmethod(secret_of_environment)  # what looks secrets up
    sitemaps: bool = False  # pages that the sitemaps of the start addresses list are seeds, too
    rules: Sequence[Rule] = ()  # links to follow besides those that callbacks ask for
    outputs: Sequence[str] = ()  # where its crawls write their records, without -o
    arguments: Mapping[str, Any] = MappingProxyType({})  # that this crawl was given (arguments.py)
    stats = Stats()  # what the spider counts itself: self.stats.add("name", 2)

    _start_requests: Sequence[Request] = ()  # for `start_urls`, where a recipe says more than their addresses
    _callbacks: tuple[str, ...] = (DEFAULT_KIND,)  # read once per class: every page asks
    handle_statuses: Sequence[int] = ()  # error statuses (404, ...) whose pages go to the callbacks all the same
    _renders_anew: bool = False  # a page in a browser is asked for in full: the copy may be one that no browser showed
    _makes_side_requests: bool = False  # its code may make requests while a page is in hand (`page_context.ask_here`)
    _keeps_own_cookies: bool = False  # the cookies of a request stay with its session
    _takes_any_argument: bool = False  # as text, whatever its name
    _end_job: Callable[[str], Awaitable[object]] | None = None  # ends the job early, and says why; of a crawl

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__dict__.get("name"):
            cls.name = default_name(cls.__name__)
        cls._callbacks = _callback_names(cls)
        if fault := _attribute_fault(cls):
            raise Misconfigured(f"Spider {cls.name}: {fault}")
        for rule in cls.rules:
            if rule.callback is not None and rule.callback not in cls._callbacks:
                raise Misconfigured(f"Spider {cls.name}: a rule names the callback {rule.callback!r}, and it has none.")

    def start(self) -> Start:
        """The first requests; by default one per start URL. May be a generator, also an async one."""
        return self._start_requests or [Request(url=url) for url in self.start_urls]

    def parse(self, page: Page) -> Answer:
        """What to do with a page. Yield items (or dicts) and requests."""
        if self.rules:
            return None
        raise ParseFailed(f"{type(self).__name__} has no parse(self, page); write one, or name another callback.")

    def secret(self, name: str) -> SecretText:
        """A secret for headers, logins, cookies, forms and JSON of requests: GOSSAMER_SECRET_<name> of the environment,
        or the file of that name in the folder `secrets`. Its text is looked up when the request is sent."""
        return SecretText(name, self._reveal)

    def use_secrets(self, reveal: Reveal) -> None:
        """Look secrets up there from now on."""
        self._reveal = reveal

    def from_source(self, request: Request) -> Request | None:
        """How to ask for a page that the source of a job lists; None: not at all."""
        return request

    async def login(self, session: Session) -> None:
        """Log a session in. Called before its first page, once for all workers, and again when `logged_out` says so."""

    def logged_out(self, page: Page) -> bool:
        """Is this what the site shows to visitors who are not logged in? By default: a page with status 401, or one
        that asks for a login."""
        return False

    def opened(self) -> Awaitable[None] | None:
        """Called in every process that works on a job of this spider, before its first page."""
        return None

    def closed(self, report: Any) -> Awaitable[None] | None:
        """Called by the process that ended the job, when it has ended. `report` is the job as `gossamer job show` has
        it: its counts, its outcome, what the spider counted."""
        return None

    def failed(self, failure: Failure) -> Answer:
        """What to do when a page was given up and its request names no errback. May yield items and requests."""
        return None

    def _method(self, name: str) -> Callable[..., Any]:
        """The callback or errback of that name."""
        method: Callable[..., Any] = getattr(self, name)
        return method

    def _entered(self) -> Awaitable[None] | None:
        """Called in every process that stores what this spider makes of pages, before its first one."""
        return None

    def _left(self) -> Awaitable[None] | None:
        """Called in such a process after its last page there."""
        return None

    async def _more(self) -> list[Request] | None:
        """Asked when nothing is left of a job: more requests; none yet, ask again soon; None: that was all."""
        return None

    async def _write_feeds(self, records: AsyncIterator[StoredRecord]) -> None:
        """Write outputs of the spider's own kind, of what its job has stored."""

    def _redirected(self, data: dict[str, Any], url: str, status: int) -> dict[str, Any]:
        """The data of the request for the target of a redirect of `url`."""
        return data

    def _adjusted(self, settings: Settings) -> Settings:
        """The settings for a job of this spider, where it says what the project leaves open."""
        return settings

    @classmethod
    def _ignored(cls) -> list[str]:
        """One sentence for everything that the class says in vain."""
        return []

    def _remarks(self) -> list[str]:
        """What the user should know about it before a crawl."""
        return self._ignored()

    @property
    def log(self) -> SpiderLog:
        """A logger: its lines name the spider, the job and the page."""
        return SpiderLog(self.name)

    def allowed_sites(self, seeds: Iterable[str]) -> frozenset[str] | None:
        """The hosts or registrable domains this spider keeps to, given its seeds; None means everywhere."""
        if self.allowed_domains is None:
            return frozenset(site_of(url) for url in seeds)
        domains = [self.allowed_domains] if isinstance(self.allowed_domains, str) else self.allowed_domains
        if "*" in domains:
            return None
        return frozenset(domain.lower().strip(".") for domain in domains)


def _attribute_fault(cls: type[Spider]) -> str:
    """What is wrong with an attribute that the class sets; empty when nothing is. Properties are left alone."""
    names = (*_LISTS, *_LEAST, "rate", "allowed_domains")
    given = {name: value for name in names if not inspect.isdatadescriptor(value := getattr(cls, name))}
    for name, least in _LEAST.items():
        value = given.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            return f"{name} = {value!r:.60} must be a whole number, {least} or more."
    rate = given.get("rate")
    if rate is not None and not isinstance(rate, str):
        return f'rate = {rate!r:.60} must be a text: rate = "{rate}/s"'
    for name, example in _LISTS.items():
        value = given.get(name, ())
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            return f"{name} = {value!r:.60} must be a list: {name} = {example}"
    if not all(isinstance(one, int) for one in given.get("handle_statuses", ())):
        return f"handle_statuses = {given['handle_statuses']!r:.60} must be numbers: handle_statuses = [404]"
    domains = given.get("allowed_domains") or ()
    for domain in (domains,) if isinstance(domains, str) else domains:
        if not isinstance(domain, str) or "/" in domain or re.fullmatch(r"[^:]+:\d+", domain):
            return f"allowed_domains: {domain!r:.60} is no host. Write 'shop.example', without scheme, port and path."
    return ""


def session_names(spider: Spider) -> list[str]:
    """The sessions of requests that name none. Raises Misconfigured."""
    name, count = spider.session, spider.sessions
    if count is None:
        names = [name] if name is not None else []
    elif isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST_SESSIONS:
        raise Misconfigured(f"{spider.name}: sessions = {count!r:.50} must be a number from 1 to {_MOST_SESSIONS}.")
    else:
        names = [f"{name or 'visitor'}-{number}" for number in range(1, count + 1)]
    if not all(isinstance(one, str) and _SESSION_NAME.fullmatch(one) for one in names):
        raise Misconfigured(f"{spider.name}: session = {name!r:.100} must be a name of letters, digits and _.-@")
    return names


def default_name(class_name: str) -> str:
    """`BookShop` gives `book-shop`, `HTTPNews` gives `http-news`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", class_name.strip("_"))
    return words.replace("_", "-").lower()


def composed(name: str) -> str:
    """The name with each letter and its accents as one character: file systems and keyboards differ in that."""
    return unicodedata.normalize("NFC", name)


def is_spider_name(name: str) -> bool:
    """May a recipe's spider have this name? Letters and digits of any script, - and _, beginning with neither of
    these two."""
    return (
        0 < len(name) <= _LONGEST_NAME and name[0].isalnum() and all(_is_letter(char) or char in "-_" for char in name)
    )


def spider_name_of(stem: str) -> str:
    """The name for a recipe's file: `Book_Shop` is book-shop, `größe` is größe; `recipe` where no letter is in it."""
    words = ["".join(run) for kept, run in groupby(composed(stem).lower(), _is_letter) if kept]
    return "-".join(words)[:_LONGEST_NAME].strip("-") or "recipe"


def _is_letter(char: str) -> bool:
    # Many scripts write vowels as marks on a letter, which are no letters themselves.
    return char.isalnum() or unicodedata.category(char).startswith("M")


def listed_seeds(spider: Spider) -> list[str]:
    """The valid addresses of `start_urls`; empty when the spider has a `start` of its own."""
    if type(spider).start is not Spider.start:
        return []
    listed = []
    for url in spider.start_urls:
        try:
            listed.append(parse_url(str(url)))
        except InvalidUrl:  # reported when it is seeded
            continue
    return listed


class SeedDigest:
    """A digest of many seeds, in whatever order they come: the same seeds have the same."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, seed: Request) -> None:
        told = [getattr(seed, name) for name in ("url", "kind", "data", "method", "params", "form", "json", "body")]
        packed = msgspec.json.encode(told, order="deterministic", enc_hook=repr)
        self._sum += int.from_bytes(blake2b(packed, digest_size=12).digest())

    @property
    def text(self) -> str:
        return f"{self._sum % 2**96:024x}"


async def seeds(spider: Spider, digest: SeedDigest | None = None) -> AsyncIterator[Request]:
    """The spider's first requests, one at a time, with absolute addresses; counted in the digest. Raises
    Misconfigured."""
    async for request in _seeds(spider):
        if digest is not None:
            digest.add(request)
        yield request


async def own_seeds(
    spider: Spider, digest: SeedDigest, failure: type[SourceFailed | Misconfigured]
) -> AsyncIterator[Request]:
    """As `seeds`, for a crawl. Whatever the spider's code raises becomes a `failure`."""
    try:
        async for request in seeds(spider, digest):
            yield request
    except (SourceFailed, Misconfigured):
        raise
    except Exception as error:
        raise failure(f"start() of {spider.name} failed: {type(error).__name__}: {error}") from error


async def _seeds(spider: Spider) -> AsyncIterator[Request]:
    start = spider.start()
    if isinstance(start, Awaitable):
        start = await start
    if isinstance(start, AsyncIterable):
        async for entry in start:
            yield _seed(spider, entry)
    elif isinstance(start, Iterable) and not isinstance(start, str):
        for entry in start:
            yield _seed(spider, entry)
    else:
        raise Misconfigured(f"{spider.name}: start() gave {start!r:.100}; it must give requests or addresses.")


def _seed(spider: Spider, entry: object) -> Request:
    request = Request(url=entry) if isinstance(entry, str) else entry
    if not isinstance(request, Request):
        raise Misconfigured(f"{spider.name}: start() gave {entry!r:.100}; it must give requests or addresses.")
    fault = fault_of(request) or errback_fault(spider, request)
    if fault:
        raise Misconfigured(f"{spider.name}: a start request cannot be used: {request.url!a:.200} {fault}.")
    try:
        parse_url(request.url)
    except InvalidUrl as error:
        raise Misconfigured(f"{spider.name}: a start URL cannot be used. {error}") from error
    return request


def declares_items(spider: Spider) -> bool:
    """Does the code of the user's classes name a class of items, or does a recipe describe one?"""
    if getattr(spider, "_shapes", None):
        return True
    codes = [
        (value.__code__, value.__globals__)
        for base in type(spider).__mro__
        if issubclass(base, Spider) and base is not Spider
        for value in vars(base).values()
        if inspect.isfunction(value)
    ]
    for code, names in codes:
        if any(_is_item(names.get(name)) for name in code.co_names):
            return True
        codes += [(const, names) for const in code.co_consts if inspect.iscode(const)]  # functions inside of it
    return False


def _is_item(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Item)


def errback_of(spider: Spider, named: str | None) -> str | None:
    """The method that hears of a failure: the one that the request names, else `failed`, where the spider has one."""
    return named or (FAILED if type(spider).failed is not Spider.failed else None)


def errback_fault(spider: Spider, request: Request) -> str:
    """What is wrong with the errback that a request names, in words that follow its address; "" when it is there."""
    name = getattr(request.errback, "__name__", request.errback)
    names = (*callback_names(spider), FAILED)
    if name is None or name in names:
        return ""
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"has the errback {name!r:.100}, and the spider has no such method (it has {', '.join(names)}{hint})"


def callback_names(spider: Spider) -> tuple[str, ...]:
    """The methods that may parse pages: `parse`, and what the user's classes define."""
    return spider._callbacks


def _callback_names(cls: type[Spider]) -> tuple[str, ...]:
    own = {
        name
        for base in cls.__mro__
        if issubclass(base, Spider) and base is not Spider
        for name, value in vars(base).items()
        if callable(value) and not name.startswith("_") and name not in vars(Spider)
    }
    return tuple(sorted(own | {DEFAULT_KIND}))


def spider_version(cls: type[Spider]) -> str:
    """A short hash of the source of the spider's modules, or of a recipe's text; it changes when they do."""
    digest = blake2b(digest_size=6)
    for base in cls.__mro__:
        if issubclass(base, Spider) and (base is not Spider or cls is Spider):
            digest.update(_source(base))
    return digest.hexdigest()


def _source(cls: type) -> bytes:
    text = vars(cls).get("_source_text")  # a recipe's: its class is written nowhere else
    if isinstance(text, str):
        return text.encode("utf-8", "replace")
    try:
        file = inspect.getsourcefile(cls)
        if file is not None:
            return Path(file).read_bytes()
    except (OSError, TypeError):
        pass
    # A class typed at a prompt has no file: its compiled methods stand for it.
    codes = [value.__code__ for value in vars(cls).values() if hasattr(value, "__code__")]
    return b"".join(code.co_code + repr(code.co_consts).encode("utf-8", "replace") for code in codes)

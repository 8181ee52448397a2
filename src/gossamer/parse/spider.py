"""`Spider`: the base class for users' spiders: start, callbacks, overrides and name. callbacks.py calls the
callbacks."""

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

from ..errors import Misconfigured, ParseFailed
from ..model.item import AnyItem, Item
from ..model.item_account import OnFault
from ..model.secret_text import Reveal, SecretText, secret_of_environment
from ..model.task import DEFAULT_KIND, MAX_PRIORITY, Request
from ..model.url import site_of
from .links import Rule
from .page import Page
from .page_context import Session, SpiderLog, Stats

if TYPE_CHECKING:
    from ..model.record import StoredRecord
    from ..settings import Settings
    from .page_context import Failure

Yield: TypeAlias = AnyItem | Request | None
Results: TypeAlias = Iterator[Yield]  # the return type for `def parse(self, page: Page) ->`
Answer: TypeAlias = (
    Iterable[Yield]
    | AsyncIterable[Yield]
    | Awaitable[Iterable[Yield] | AnyItem | Request | None]
    | AnyItem
    | Request
    | None
)
Start: TypeAlias = Iterable[Request | str] | AsyncIterable[Request | str] | Awaitable[Iterable[Request | str]]
ItemStep: TypeAlias = Callable[..., Any]  # step(item, page) -> item | Drop | None, or a coroutine

_MOST_SESSIONS = 250
_SESSION_NAME = re.compile(r"[\w.@-]{1,100}")
_LONGEST_NAME = 60  # characters of a spider's name
_LISTS = {  # attributes that must be lists, with an example
    "start_urls": '["https://shop.example/"]',
    "pipeline": "[step]",
    "quality_rules": "[rule]",
    "rules": "[Rule(...)]",
    "handle_statuses": "[404]",
}
_LEAST = {
    "burst": 1,
    "site_concurrency": 1,
    "concurrency": 1,
    "priority": -MAX_PRIORITY,
    "max_attempts": 1,
    "limit": 1,
    "max_depth": 0,
}  # their minimum
FAILED = "failed"  # errback of requests without one


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """What the docstring of a callback demands of a page. `check` says what does not hold."""

    name: str
    request: Request
    check: Callable[[Page], Awaitable[list[str]]]


class Spider:
    """Base class of spiders. A subclass defines `start_urls` and `parse`; everything else has a default.

    If an attribute is None, the settings decide. Callbacks may be generators, plain functions or async; they are stored
    by name, so that a crawl can continue after a restart.
    """

    name: str = ""  # set for every subclass: the class name in lower case, words joined by "-"
    start_urls: Sequence[str] = ()
    allowed_domains: Sequence[str] | str | None = None  # None: the sites of the seeds; "*": every site
    pipeline: Sequence[ItemStep] = ()  # the spider's own steps, after cleaning and validation
    extensions: Sequence[Any] = ()  # subclasses of Extension, run inside those of the settings
    clean: bool = True  # False: texts are stored exactly as they were given
    quality_rules: Sequence[ItemStep] = ()  # rule(item, page) -> None, a text or a Fault
    min_quality: float | None = None  # share of faultless items below which storing stops
    on_fault: OnFault | None = None  # what becomes of faulty items, if their class does not say; None: quality.on_fault

    min_records: int | None = None  # records that a run should find; 0: no minimum
    min_pages: int | None = None
    max_dead_share: float | None = None  # share of pages that may become dead letters, 0 to 1
    max_change: float | None = None  # change in the number of records since the last run: 0.5 is 50 %

    rate: str | None = None  # requests per site: "5/s", "unlimited"
    burst: int | None = None
    site_concurrency: int | None = None  # requests of a job at once at one site
    concurrency: int | None = None  # the older name of site_concurrency
    priority: int | None = None  # of its jobs: higher ones go first
    robots: bool | None = None
    max_depth: int | None = None
    max_attempts: int | None = None
    limit: int | None = None  # total pages
    headers: Mapping[str, str] = {}  # sent with every request of this spider
    retry_unsafe: bool | None = None  # may a POST be sent again if it is unknown whether it arrived?
    fetcher: str | None = None  # default route or kind of transport ("browser") of requests
    proxy_pool: str | None = None
    session: str | None = None  # default session of requests: they share one visitor identity
    sessions: int | None = None  # size of a session pool; blocked sessions are replaced

    _reveal: Reveal = staticmethod(secret_of_environment)  # looks up secrets
    sitemaps: bool = False  # pages in the sitemaps of the start URLs are seeds too
    rules: Sequence[Rule] = ()  # links to follow besides the callbacks' requests
    outputs: Sequence[str] = ()  # where crawls write records if -o is not given
    arguments: Mapping[str, Any] = MappingProxyType({})  # of this crawl (arguments.py)
    stats = Stats()  # the spider's own counters: self.stats.add("name", 2)

    _start_requests: Sequence[Request] = ()  # replaces `start_urls` if a recipe configures the requests
    _callbacks: tuple[str, ...] = (DEFAULT_KIND,)  # computed once per class: every page needs it
    handle_statuses: Sequence[int] = ()  # error statuses (404, ...) whose pages go to callbacks
    # How jobs name a spider that cannot be loaded by its name, and the arguments that make it again.
    _stored_as: tuple[str, dict[str, Any]] | None = None
    _has_list: bool = False  # `start` gives a list that a person wrote, as `start_urls` is one
    _gives_records: bool = True
    _renders_anew: bool = False  # no conditional requests with a browser: the stored copy may not be rendered
    _makes_side_requests: bool = False  # its code may make side requests in callbacks (`page_context.ask_here`)
    _keeps_own_cookies: bool = False  # the cookies of a request stay with its session
    _takes_any_argument: bool = False  # with any name, as text
    _end_job: Callable[[str], Awaitable[object]] | None = None  # set by a crawl: ends the job early, with a reason
    # Set by a crawl, too: the age of the job in seconds, and what its settled pages have counted.
    _job_tally: Callable[[], Awaitable[tuple[float, Mapping[str, int]]]] | None = None

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
        """The first requests; by default one per start URL. May be a generator, sync or async."""
        return self._start_requests or [Request(url=url) for url in self.start_urls]

    def parse(self, page: Page) -> Answer:
        """The default callback. Yield items (or dicts) and requests."""
        if self.rules:
            return None
        raise ParseFailed(f"{type(self).__name__} has no parse(self, page); write one, or name another callback.")

    def secret(self, name: str) -> SecretText:
        """A secret for headers, logins, cookies, forms and JSON of requests: GOSSAMER_SECRET_<name> in the environment,
        or the file with that name in the folder `secrets`. It is looked up when the request is sent."""
        return SecretText(name, self._reveal)

    def use_secrets(self, reveal: Reveal) -> None:
        """Look up secrets with this function from now on."""
        self._reveal = reveal

    def from_source(self, request: Request) -> Request | None:
        """The request for a page listed by a source of the job; None to skip it."""
        return request

    async def login(self, session: Session) -> None:
        """Log a session in. Called before its first page, once for all workers, and again when `logged_out` returns
        True."""

    def logged_out(self, page: Page) -> bool:
        """Is this a page for visitors who are not logged in? By default: a page with status 401, or a login page."""
        return False

    def opened(self) -> Awaitable[None] | None:
        """Called in every process that works on a job of this spider, before the first page."""
        return None

    def closed(self, report: Any) -> Awaitable[None] | None:
        """Called after the end of a job, in the process that ended it. `report` is the job as in `gossamer job show`:
        counts, outcome, and the spider's stats."""
        return None

    def failed(self, failure: Failure) -> Answer:
        """The default errback, called when a page is given up. May yield items and requests."""
        return None

    def _method(self, name: str) -> Callable[..., Any]:
        """The callback or errback with that name."""
        method: Callable[..., Any] = getattr(self, name)
        return method

    def _entered(self) -> Awaitable[None] | None:
        """Called in every process that stores results of this spider, before the first page."""
        return None

    def _left(self) -> Awaitable[None] | None:
        """Called in such a process after the last page."""
        return None

    async def _more(self) -> list[Request] | None:
        """Called when a job has no more tasks. Return more requests, an empty list to be called again soon, or None to
        end."""
        return None

    async def _write_feeds(self, records: AsyncIterator[StoredRecord]) -> list[str]:
        """Write the stored records of the job to outputs of the spider's own kind; return where they are."""
        return []

    def _start_functions(self) -> Sequence[Callable[..., Any]]:
        """The functions whose code names the first requests."""
        return (type(self).start,)

    def _redirected(self, data: dict[str, Any], url: str, status: int) -> dict[str, Any]:
        """The data of the request for the target of a redirect of `url`."""
        return data

    def _contracts(self) -> Iterator[Contract]:
        """What the docstrings of its callbacks demand. Raises Misconfigured."""
        return iter(())

    def _shell_names(self, page: Page) -> dict[str, Any]:
        """More names for the prompt of `gossamer shell`."""
        return {}

    def _shell_request(self, given: object) -> Request | None:
        """A request of the spider's own framework as one of ours."""
        return None

    def _adjusted(self, settings: Settings) -> Settings:
        """The settings for a job of this spider, which may fill what the project leaves open."""
        return settings

    def _remarks(self) -> list[str]:
        """Remarks for the user before a crawl."""
        return []

    @property
    def log(self) -> SpiderLog:
        """A logger whose lines name the spider, the job and the page."""
        return SpiderLog(self.name)

    def allowed_sites(self, seeds: Iterable[str]) -> frozenset[str] | None:
        """The hosts or registrable domains this spider is limited to, given its seeds; None means no limit."""
        if self.allowed_domains is None:
            return frozenset(site_of(url) for url in seeds)
        domains = [self.allowed_domains] if isinstance(self.allowed_domains, str) else self.allowed_domains
        if "*" in domains:
            return None
        return frozenset(domain.lower().strip(".") for domain in domains)


def _attribute_fault(cls: type[Spider]) -> str:
    """The fault of an attribute that the class sets, or "". Properties are not checked."""
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
            return f"allowed_domains: {domain!r:.60} is not a host. Write 'shop.example', without scheme, port or path."
    return ""


def session_names(spider: Spider) -> list[str]:
    """The sessions for requests without one. Raises Misconfigured."""
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


def compose_name(name: str) -> str:
    """The name in Unicode form NFC: file systems and keyboards differ in how they compose accents."""
    return unicodedata.normalize("NFC", name)


def is_spider_name(name: str) -> bool:
    """Is this a valid name for a recipe's spider? Letters and digits of any script, - and _, but not at the start."""
    return (
        0 < len(name) <= _LONGEST_NAME and name[0].isalnum() and all(_is_letter(char) or char in "-_" for char in name)
    )


def spider_name_of(stem: str) -> str:
    """The spider's name for a recipe file: `Book_Shop` gives book-shop, `größe` gives größe; `recipe` if it has no
    letter."""
    words = ["".join(run) for kept, run in groupby(compose_name(stem).lower(), _is_letter) if kept]
    return "-".join(words)[:_LONGEST_NAME].strip("-") or "recipe"


def _is_letter(char: str) -> bool:
    # Many scripts write vowels as combining marks, which are not letters.
    return char.isalnum() or unicodedata.category(char).startswith("M")


def declares_items(spider: Spider) -> bool:
    """Does the code of the user's classes refer to an Item class, or does a recipe describe one?"""
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
        codes += [(const, names) for const in code.co_consts if inspect.iscode(const)]  # nested functions
    return False


def _is_item(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Item)


def errback_of(spider: Spider, named: str | None) -> str | None:
    """The name of the errback: the request's own, else `failed` if the spider defines it."""
    return named or (FAILED if type(spider).failed is not Spider.failed else None)


def errback_fault(spider: Spider, request: Request) -> str:
    """The fault of a request's errback, worded to follow the request's address; "" if the method exists."""
    name = getattr(request.errback, "__name__", request.errback)
    names = (*callback_names(spider), FAILED)
    if name is None or name in names:
        return ""
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"has the errback {name!r:.100}, and the spider has no such method (it has {', '.join(names)}{hint})"


def callback_names(spider: Spider) -> tuple[str, ...]:
    """The methods that may parse pages: `parse`, and those that the user's classes define."""
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


_OWN_VERSIONS: dict[type[Spider], str] = {}


def spider_version(cls: type[Spider]) -> str:
    """A short hash of the source of the spider's modules and of those of its pipeline steps, or of a recipe's text; it
    changes when they do. That of our own spiders cannot change while a process runs, and is kept."""
    kept = _OWN_VERSIONS.get(cls)
    if kept is not None:
        return kept
    digest = blake2b(digest_size=6)
    for base in cls.__mro__:
        if issubclass(base, Spider) and (base is not Spider or cls is Spider):
            digest.update(_source(base))
    own = {inspect.getmodule(base) for base in cls.__mro__}
    for step in cls.pipeline:
        inner = getattr(step, "func", step)  # of a partial
        kind = inner if inspect.isfunction(inner) or inspect.isclass(inner) else type(inner)
        if inspect.getmodule(kind) not in own:
            digest.update(_source(kind))
    version = digest.hexdigest()
    if is_own(cls):
        _OWN_VERSIONS[cls] = version
    return version


def is_own(cls: type[Spider]) -> bool:
    """Whether it is one of ours, whose code cannot change while a process runs."""
    return cls.__module__ == "gossamer.parse.site"


def parser_version(spider: Spider, arguments: str) -> str:
    """What decides which items a page gives: the version of the spider, and its arguments (as JSON)."""
    version = spider_version(type(spider))
    return f"{version}-{blake2b(arguments.encode(), digest_size=4).hexdigest()}" if arguments else version


def _source(cls: Any) -> bytes:  # a class, or a function
    text = vars(cls).get("_source_text")  # a recipe has no module of its own
    if isinstance(text, str):
        return text.encode("utf-8", "replace")
    try:
        file = inspect.getsourcefile(cls)
        if file is not None:
            return Path(file).read_bytes()
    except (OSError, TypeError):
        pass
    # A class typed at a prompt has no file: hash its compiled methods.
    codes = [value.__code__ for value in (cls, *vars(cls).values()) if hasattr(value, "__code__")]
    return b"".join(code.co_code + repr(code.co_consts).encode("utf-8", "replace") for code in codes)

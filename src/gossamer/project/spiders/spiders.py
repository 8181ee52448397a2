"""The spiders of a project: which exist, and which one a user means by a name, a file or a URL."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast

import msgspec

from ...errors import InvalidUrl, Misconfigured, SourceFailed
from ...model.job import PAGES, RAW_PAGES, SITE_PART, URL_LIST, Job, read_arguments
from ...model.url import parse_url
from ...parse.arguments import declared_arguments, with_arguments
from ...parse.arguments import written_arguments as written_arguments  # re-exported, for typed text
from ...parse.discovery import is_file_ref, list_spiders, load_spider, made_spider, make_importable, shell_spider
from ...parse.seeds import named_addresses
from ...parse.site import PageSpider, RawPageSpider, SiteSpider, UrlListSpider
from ...parse.spider import Spider
from ...schedule.sources.url_lists import LARGEST_FILE, open_list, read_list
from ...schedule.spider_loader import Spiders
from ...settings import Settings
from ...terms import local_hosts
from ...units import many
from ..jobs.site_crawl import site_crawl_of
from ..reparse.archive_job import ReparseSpider, terms_of

URL_LISTS = (".txt", ".csv", ".jsonl")
IN_MEMORY = 1 << 20  # bytes of a list on standard input; the rest is in a temporary file
_NOT_CRAWLED = ("javascript", "data", "mailto", "file")  # the user means a URL, which is refused


class CrawlTarget(msgspec.Struct, frozen=True):
    """A spider, the name of its job (None: the spider's name), and the URLs that the user typed."""

    spider: Spider
    name: str | None
    urls: list[str]


class SpiderView(msgspec.Struct, frozen=True, kw_only=True):
    """A spider or a recipe that loads."""

    name: str
    file: str
    class_name: str = msgspec.field(name="class")
    summary: str
    arguments: tuple[str, ...] = ()  # that a run may set: name=value, with the spider's defaults
    faults: tuple[str, ...] = ()  # what is wrong with this class alone


class BrokenSpider(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the spiders folder that does not load, and why."""

    file: str
    line: int | None
    error: str

    @property
    def words(self) -> str:
        where = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{where}: {self.error}"


class SpiderList(msgspec.Struct, frozen=True):
    spiders: list[SpiderView]
    broken: list[BrokenSpider]


def spiders_of(settings: Settings) -> SpiderList:
    """The project's spiders and recipes, and the files that do not load."""
    found = list_spiders(settings.root, settings.spiders)
    return SpiderList(
        [
            SpiderView(
                name=one.name,
                file=str(one.path),
                class_name=one.cls.__name__,
                summary=one.summary,
                arguments=_arguments_of(one.cls) if one.adapt is None else (),
                faults=one.faults,
            )
            for one in found.spiders
        ],
        [BrokenSpider(file=str(one.path), line=one.line, error=one.message) for one in found.broken],
    )


def _arguments_of(spider: type[Spider]) -> tuple[str, ...]:
    try:
        names = declared_arguments(spider)
    except Misconfigured:  # its annotations cannot be read: a run reports it
        return ()
    return tuple(f"{name}={'' if (value := getattr(spider, name, None)) is None else value}" for name in names)


def prompt_spider(settings: Settings, name: str | None, folder: Path) -> Spider | None:
    """The spider as which a prompt asks for pages: the named one; in a Scrapy project one with its settings. Raises
    Misconfigured."""
    return crawl_target(settings, name, folder).spider if name else shell_spider(settings.root)


def make_spiders_importable(settings: Settings) -> None:
    """So that at a prompt `from books import Books` finds spiders/books.py, and `import helpers` a file beside
    gossamer.toml."""
    make_importable(settings.root / settings.spiders, settings.root)


def crawl_target(settings: Settings, target: str, folder: Path) -> CrawlTarget:
    """The spider that `target` names. A path is relative to `folder`, a name belongs to the project. Raises
    Misconfigured."""
    if "://" not in target and target.partition(":")[0].lower() not in _NOT_CRAWLED:
        home = folder if is_file_ref(target) else settings.root
        spider = made_spider(load_spider(target, home, settings.spiders))
        return CrawlTarget(spider, None, named_addresses(spider))
    try:
        url = parse_url(target)
    except InvalidUrl as error:
        raise Misconfigured(
            f"{error} A spider's name, a .py file, a recipe or an http(s) URL can be crawled."
        ) from error
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise Misconfigured("The address holds a user name or password, and would be shown and stored. Leave it out.")
    return CrawlTarget(SiteSpider([url]), url, [url])


def crawl_list(settings: Settings, targets: Sequence[str], folder: Path, *, follows: bool) -> CrawlTarget | None:
    """What to crawl for a list of addresses: several URLs (their sites), a file of them, or `-` for standard input.
    With `follows`, links of listed pages are followed. None if the targets are no list. Raises Misconfigured."""
    if len(targets) > 1:
        if any("://" not in target for target in targets):
            raise Misconfigured("Of several targets each must be a URL. Crawl spiders, recipes and lists one by one.")
        urls = [one for target in targets for one in crawl_target(settings, target, folder).urls]
        digest = blake2b(" ".join(urls).encode(), digest_size=4).hexdigest()
        name = f"{urls[0]} and {many(len(urls) - 1, 'more site')} ({digest})"
        return CrawlTarget(UrlListSpider(lambda: urls, follows=True), name, urls)
    (target,) = targets
    if target == "-":
        file: BinaryIO = _spooled(sys.stdin.buffer)
        name = "standard input"
    elif _is_url_list(target, folder):
        file, name = _opened_list(folder / target), target
    else:
        return None
    form = Path(target).suffix.lower().lstrip(".")
    pages = partial(_listed_urls, file, name, form if form in ("csv", "jsonl") else "txt")
    count, seen = 0, blake2b(digest_size=4)
    for url in pages():  # a wrong line is said before the crawl
        count += 1
        seen.update(url.encode())
    if not count:
        raise Misconfigured(f"There is no address in {name}: one URL on each line.")
    title = f"{name} {seen.hexdigest()}" if target == "-" else name
    return CrawlTarget(UrlListSpider(pages, follows=follows), title, [])


def _is_url_list(target: str, folder: Path) -> bool:
    suffix = "".join(Path(target).suffixes[-2:]).lower().removesuffix(".gz")
    return "://" not in target and not is_file_ref(target) and suffix.endswith(URL_LISTS)


def _opened_list(path: Path) -> BinaryIO:
    if not path.exists():
        raise Misconfigured(f"There is no file {path.name} in {path.parent}.")
    try:
        return open_list(path)
    except SourceFailed as error:
        raise Misconfigured(str(error)) from error


def _spooled(stream: BinaryIO) -> BinaryIO:
    """The whole stream in a file, which can be read twice."""
    file: BinaryIO = cast("BinaryIO", SpooledTemporaryFile(max_size=IN_MEMORY))  # noqa: SIM115 - as long as the crawl
    while piece := stream.read(IN_MEMORY):
        file.write(piece)
        if file.tell() > LARGEST_FILE:
            raise Misconfigured(f"Standard input is larger than {LARGEST_FILE >> 30} GiB. Split the list.")
    return file


def _listed_urls(file: BinaryIO, name: str, form: str) -> Iterator[str]:
    """The URLs in a list, from its beginning. Raises Misconfigured for lines without one."""
    file.seek(0)
    try:
        for batch in read_list(file, name, form=form, column="url"):
            if batch.troubles:
                more = f" ... and {many(batch.skipped, 'more line')} like that." if batch.skipped else ""
                raise Misconfigured(f"{' '.join(batch.troubles)}{more} Correct or remove such lines.")
            yield from (entry.url for entry in batch.listed)
    except SourceFailed as error:
        raise Misconfigured(str(error)) from error


def spider_of_job(settings: Settings, job: Job) -> tuple[Spider, Settings]:
    """The job's spider for a worker, and settings that allow its hosts. Raises Misconfigured.

    Requests from the HTTP API reach no private address, except those that fetch.allow_hosts names.
    """
    if job.owner and settings.fetch.allow_private:
        settings = _for_keys(settings)
    if job.parses_again:
        terms_of(settings, job)
        return ReparseSpider(), settings
    if job.spider_name == PAGES:
        return PageSpider(), settings
    if job.spider_name == RAW_PAGES:
        return RawPageSpider(), settings
    if job.spider_name == SITE_PART:
        return site_crawl_of(job).spider(), settings
    if job.spider_name == URL_LIST:
        if not job.start:
            raise Misconfigured("Its list of addresses is still being read by the command that began it.")
        return UrlListSpider(None, follows=bool(read_arguments(job.arguments).get("follows"))), settings
    if "://" in job.spider_name:
        foreign = [] if settings.fetch.allow_private else _new_hosts(settings, [job.spider_name])
        if foreign:
            # `gossamer crawl` may visit a private address that its user typed; no person typed this one.
            raise Misconfigured(
                f"{foreign[0]} is a private address. If workers may visit it, add it to fetch.allow_hosts."
            )
        return SiteSpider([job.spider_name]), settings
    spider = with_arguments(Spiders(settings).find(job.spider_name), read_arguments(job.arguments))
    settings = spider._adjusted(settings)
    if job.owner:
        return spider, settings
    hosts = _new_hosts(settings, named_addresses(spider))
    return spider, _with_fetch(settings, allow_hosts=(*settings.fetch.allow_hosts, *hosts))


def _new_hosts(settings: Settings, urls: list[str]) -> list[str]:
    return [host for host in local_hosts(urls) if host not in settings.fetch.allow_hosts]


_FOR_KEYS: deque[tuple[Settings, Settings]] = deque(maxlen=8)  # by identity: settings cannot be hashed


def _for_keys(settings: Settings) -> Settings:
    """The settings without private addresses: the same for each job, so that all that is derived from them stays
    known."""
    for known, guarded in tuple(_FOR_KEYS):
        if known is settings:
            return guarded
    guarded = _with_fetch(settings, allow_private=False)
    _FOR_KEYS.appendleft((settings, guarded))
    return guarded


def _with_fetch(settings: Settings, **changes: object) -> Settings:
    return msgspec.structs.replace(settings, fetch=msgspec.structs.replace(settings.fetch, **changes))

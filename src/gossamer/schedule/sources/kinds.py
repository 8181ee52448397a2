"""The kinds of source that a schedule may have: values, stored as JSON with the schedule. source_table.py makes them.

A URL may contain a user name and a password, which are sent to its site and never shown: not in lists, not in messages,
not in the ending of a job. The words of a command may contain them anywhere. `without_secrets` and `describe` show a
source, `discreet` any text.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import msgspec

from ...model.page_content import PageContent
from ...model.task import Request
from ...model.url import origin_of, without_user
from ...units import HIDDEN
from ...units import discreet as discreet  # re-exported
from .url_patterns import parse_pattern

MOST_URLS = 10_000_000  # per source, unless it says otherwise
MOST_OUTPUT = 256 * 1024 * 1024  # bytes that a command may print
COMMAND_TIME = timedelta(minutes=10)
SHELL = ("/bin/sh", "-c")  # reads a command for which `shell` is set
COLUMN = "url"
FORMS = ("lines", "csv", "jsonl")

_NAME = re.compile(r"\s*([\w./+-]+)(?=[\s;|]|$)")


class UrlsSource(msgspec.Struct, frozen=True, kw_only=True, tag="urls"):
    """URLs as written, with or without braces (url_patterns.py)."""

    urls: tuple[str, ...]
    max_urls: int = MOST_URLS

    @property
    def count(self) -> int:
        """How many URLs it makes; computed, not made."""
        return sum(parse_pattern(text).count for text in self.urls)


class FileSource(msgspec.Struct, frozen=True, kw_only=True, tag="file"):
    """A file with one URL per line, a CSV file with a column of URLs, or JSON Lines with a field of URLs.

    A relative `path` begins at the project's folder. `form` is one of FORMS.
    """

    path: str
    form: str = "lines"
    column: str = COLUMN
    max_urls: int = MOST_URLS


class CommandSource(msgspec.Struct, frozen=True, kw_only=True, tag="command"):
    """The output of a program. No shell reads the words, unless `argv` begins with one."""

    argv: tuple[str, ...]
    timeout: timedelta = COMMAND_TIME
    max_output: int = MOST_OUTPUT  # bytes
    form: str = "lines"
    column: str = COLUMN
    max_urls: int = MOST_URLS


class SitemapSource(msgspec.Struct, frozen=True, kw_only=True, tag="sitemap"):
    """A sitemap, an index of sitemaps, or a robots.txt that names some.

    `only_changed`: pages whose `lastmod` is older than our copy are left out. Pages without a `lastmod` are not.
    """

    url: str
    only_changed: bool = False
    max_urls: int = MOST_URLS


class FeedSource(msgspec.Struct, frozen=True, kw_only=True, tag="feed"):
    """An RSS, Atom or JSON feed. `only_changed` as for a sitemap, by the date of each entry."""

    url: str
    only_changed: bool = False
    max_urls: int = MOST_URLS


class SiteSource(msgspec.Struct, frozen=True, kw_only=True, tag="site"):
    """A page of a site, and the pages in that site's sitemaps. A site without sitemaps is no problem.

    `page` False: only the sitemaps.
    """

    url: str
    page: bool = True
    sitemaps: bool = True
    max_urls: int = MOST_URLS


class StartSource(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """The spider's own start_urls or start(). The worker that runs the spider reads them; nothing is read here."""


class WantedPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A page requested over HTTP, and what is wanted from it. `id` is the client's own name for it."""

    request: Request
    id: str = ""
    formats: tuple[str, ...] = ()
    extract: dict[str, Any] | None = None  # the fields of a recipe, as JSON
    content: PageContent | None = None  # which part of it
    schema: dict[str, Any] | None = None  # JSON Schema of the format `json`


class PagesSource(msgspec.Struct, frozen=True, kw_only=True, tag="pages"):
    """Pages requested one by one. No source is read for them."""

    pages: tuple[WantedPage, ...]


Listing = UrlsSource | FileSource | CommandSource | SitemapSource | FeedSource | SiteSource  # what `entries` can read
UrlSource = Listing | StartSource | PagesSource


def source_of(text: str) -> UrlSource:
    """Decode the source that a schedule or a job stores as JSON; an empty text is the spider's own start."""
    return msgspec.json.decode(text, type=UrlSource) if text else StartSource()


def only_changed(source: UrlSource) -> bool:
    """Does it trust what the source says of its pages, and leave out those that have not changed?"""
    return isinstance(source, SitemapSource | FeedSource) and source.only_changed


def count_of(source: UrlSource) -> int | None:
    """How many URLs it yields, if that is known without reading it."""
    return source.count if isinstance(source, UrlsSource) else None


def without_secrets(source: UrlSource) -> UrlSource:
    """The source as it may be shown: without passwords in URLs, and only the first word of a command."""
    match source:
        case UrlsSource():
            return msgspec.structs.replace(source, urls=tuple(discreet(url) for url in source.urls))
        case CommandSource():
            return msgspec.structs.replace(source, argv=(program(source.argv), *(HIDDEN for _ in source.argv[1:])))
        case SitemapSource() | FeedSource():
            return msgspec.structs.replace(source, url=discreet(source.url))
    return source


def _count(source: UrlSource) -> str:
    count = count_of(source)
    return f"{count:,} {'URL' if count == 1 else 'URLs'}"


def describe(source: UrlSource) -> str:
    """The source in a few words and without secrets, for lists that people read."""
    if isinstance(source, CommandSource) and source.argv[:-1] == SHELL:
        first = shell_program(source.argv[-1])
        return f"output of a shell command{f' ({first} ...)' if first else ''}"
    match without_secrets(source):
        case UrlsSource(urls=(only,)):
            return f"{only} ({_count(source)})" if "{" in only else only
        case UrlsSource(urls=(first, *_)):
            return f"{_count(source)}, the first {first}"
        case FileSource(path=path):
            return f"file {path}"
        case CommandSource(argv=(name, *_)):
            return f"output of {name}"
        case SitemapSource(url=url):
            return f"sitemap {url}"
        case FeedSource(url=url):
            return f"feed {url}"
        case SiteSource(url=url):
            return f"{url} and the sitemaps of its site"
        case PagesSource(pages=pages):
            return f"{len(pages):,} {'page' if len(pages) == 1 else 'pages'} asked for over HTTP"
        case _:
            return "the spider's own start"


class LoginOf:
    """The user name and password in the URL of a source. They are sent to that origin only; credentials in the URLs
    that a site lists are not used."""

    def __init__(self, url: str) -> None:
        self._origin = origin_of(url)
        self._login = url.partition("://")[2][: len(url) - len(without_user(url))]

    def on(self, url: str) -> str:
        """The listed URL with the credentials of its source, if it has the same origin; else without any."""
        plain = without_user(url)
        if self._login and origin_of(plain) == self._origin:
            return plain.replace("://", f"://{self._login}", 1)
        return plain


def program(argv: tuple[str, ...]) -> str:
    """A command by its first word, on one line: the others may be secret."""
    name = "".join(sign if sign.isprintable() else "?" for sign in argv[0])
    return name if len(name) <= 100 else f"{name[:97]}..."


def shell_program(script: str) -> str:
    """The first word of a shell script; "" if that is more than the name of a program: `KEY=hunter2 list`."""
    found = _NAME.match(script)
    return "" if found is None else program((found[1],))

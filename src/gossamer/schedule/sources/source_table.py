"""Sources as users write them in gossamer.toml. Pure: a table in, a `UrlSource` out.

    urls    = ["https://shop.example/p/{1..1000}", "https://shop.example/new"]    max_urls
    file    = "urls.csv"                                                          format, column, max_urls
    command = ["python", "list_urls.py"]                      timeout, max_output, shell, format, column, max_urls
    sitemap = "https://shop.example/sitemap.xml"    (or its robots.txt)           only_changed, max_urls
    feed    = "https://news.example/rss"                                          only_changed, max_urls
    start   = true    (the spider's own; also when nothing is written)

How it fails: BadSchedule, with what may be written instead. Nothing is fetched, run or expanded here: a range of a
billion is refused by arithmetic.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import PurePath
from typing import Any

from ...errors import InvalidUrl, Misconfigured
from ...model.url import parse_url
from ...units import parse_duration, parse_size
from ..bad_schedule import BadSchedule, Key, key_list
from .gzip_file import SUFFIX
from .kinds import (
    COLUMN,
    COMMAND_TIME,
    FORMS,
    MOST_OUTPUT,
    MOST_URLS,
    SHELL,
    CommandSource,
    FeedSource,
    FileSource,
    SitemapSource,
    StartSource,
    UrlSource,
    UrlsSource,
    discreet,
)
from .url_patterns import parse_pattern

_OPTIONS: dict[str, frozenset[str]] = {
    "urls": frozenset(["max_urls"]),
    "file": frozenset(["format", "column", "max_urls"]),
    "command": frozenset(["timeout", "max_output", "shell", "format", "column", "max_urls"]),
    "sitemap": frozenset(["only_changed", "max_urls"]),
    "feed": frozenset(["only_changed", "max_urls"]),
    "start": frozenset(),
}
KINDS = tuple(_OPTIONS)
SOURCE_KEYS = frozenset(KINDS).union(*_OPTIONS.values())
_FORM_OF_SUFFIX = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_PROGRAM = Key("command", ("python", "list_urls.py"))

Table = Mapping[str, Any]  # Any: users' input is checked key by key


def parse_source(table: Table, where: str = "The source") -> UrlSource:
    """Read the keys of SOURCE_KEYS that a table has. `where` begins every message. Raises BadSchedule."""
    try:
        return _parse(table, where)
    except BadSchedule as error:
        parts = [discreet(part) if isinstance(part, str) else part for part in error.parts]
        raise BadSchedule(discreet(where), error.key, *parts) from error.__cause__


def _parse(table: Table, where: str) -> UrlSource:
    for key in table:
        if key not in SOURCE_KEYS:
            near = difflib.get_close_matches(key, SOURCE_KEYS, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(SOURCE_KEYS))}."
            raise BadSchedule(where, key, f"{key!r} is not known here. {hint}")
    kinds = [kind for kind in KINDS if kind in table]
    if len(kinds) > 1:
        raise BadSchedule(where, "", "it has ", *key_list(kinds, " and "), ". Choose one of ", *key_list(KINDS), ".")
    if not kinds:
        if table:
            alone = [*key_list(sorted(table)), " means nothing alone. Add one of ", *key_list(KINDS), "."]
            raise BadSchedule(where, "", *alone)
        return StartSource()
    (kind,) = kinds
    for option in table:
        if option != kind and option not in _OPTIONS[kind]:
            fitting = key_list(name for name in KINDS if option in _OPTIONS[name])
            raise _bad(where, option, " does not go with ", Key(kind), ", only with ", *fitting, ".")
    return _READERS[kind](table, where)


def _urls(table: Table, where: str) -> UrlsSource:
    value = table["urls"]
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not texts or not all(isinstance(text, str) for text in texts):
        example = Key("urls", ("https://shop.example/p/{1..1000}",))
        raise _bad(where, "urls", " is a list of URLs: ", example, ".")
    texts = [text.strip() for text in texts]
    most = _most(table, where)
    total = 0
    for text in texts:
        try:
            pattern = parse_pattern(text)
            parse_url(pattern.at(0))
        except (Misconfigured, InvalidUrl) as error:
            raise BadSchedule(where, "urls", _whole(text) or str(error)) from error
        total += pattern.count
        if total > most:
            raise _bad(
                where,
                "urls",
                f" with {text} would make {total:,} URLs in all; at most {most:,} are allowed. Narrow the range, "
                "make several schedules of it, or raise ",
                Key("max_urls"),
                ".",
            )
    return UrlsSource(urls=tuple(texts), max_urls=most)


def _file(table: Table, where: str) -> FileSource:
    path = _text(table, "file", where, Key("file", "urls.txt"))
    suffix = PurePath(path.lower().removesuffix(SUFFIX)).suffix
    form, column = _form(table, where, _FORM_OF_SUFFIX.get(suffix, "lines"))
    return FileSource(path=path, form=form, column=column, max_urls=_most(table, where))


def _command(table: Table, where: str) -> CommandSource:
    value = table["command"]
    if _yes_or_no(table, "shell", where):
        example = ("with ", Key("shell", True), ": ", Key("command", "psql -c ... | sort"))
        words = (*SHELL, _text(table, "command", where, *example))
    elif isinstance(value, str):
        no_shell = ". No shell reads it; if you want one, add "
        raise _bad(where, "command", " is a list of words: ", _PROGRAM, no_shell, Key("shell", True), ".")
    elif not isinstance(value, list | tuple) or not value or not all(isinstance(word, str) for word in value):
        raise _bad(where, "command", " is a list of words: ", _PROGRAM, ".")
    else:
        words = tuple(value)
    if not words[0] or any("\0" in word for word in words):
        raise _bad(where, "command", " has a word that cannot be passed to a program.")
    form, column = _form(table, where, "lines")
    return CommandSource(
        argv=words,
        timeout=_timeout(table, where),
        max_output=_output(table, where),
        form=form,
        column=column,
        max_urls=_most(table, where),
    )


def _sitemap(table: Table, where: str) -> SitemapSource:
    return SitemapSource(
        url=_address(table, "sitemap", where, "sitemap.xml"),
        only_changed=_yes_or_no(table, "only_changed", where),
        max_urls=_most(table, where),
    )


def _feed(table: Table, where: str) -> FeedSource:
    return FeedSource(
        url=_address(table, "feed", where, "rss"),
        only_changed=_yes_or_no(table, "only_changed", where),
        max_urls=_most(table, where),
    )


def _start(table: Table, where: str) -> StartSource:
    if table["start"] is not True:
        own = Key("start", True)
        raise BadSchedule(where, "start", own, " means the spider's own start. For another source leave it out.")
    return StartSource()


_READERS: dict[str, Callable[[Table, str], UrlSource]] = {
    "urls": _urls,
    "file": _file,
    "command": _command,
    "sitemap": _sitemap,
    "feed": _feed,
    "start": _start,
}


def _text(table: Table, key: str, where: str, *example: str | Key) -> str:
    value = table[key]
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise _bad(where, key, " is a text: ", *example, ".")
    return value.strip()


def _yes_or_no(table: Table, key: str, where: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise _bad(where, key, " is true or false.")
    return value


def _address(table: Table, key: str, where: str, example: str) -> str:
    text = _text(table, key, where, Key(key, f"https://shop.example/{example}"))
    try:
        return parse_url(text).partition("#")[0]
    except InvalidUrl as error:
        raise _bad(where, key, f": {_whole(text) or error}") from error


def _whole(text: str) -> str:
    """What to write if only the site, or the https:// before it, is missing; "" if something else is wrong."""
    if "//" in text or "\\" in text or len(text.split()) != 1:
        return ""
    site = "shop.example" if text.startswith("/") else ""
    example = f"https://{site}{text}"
    try:
        parse_url(parse_pattern(example).at(0))
    except (Misconfigured, InvalidUrl):
        return ""
    return (
        f"{text[:200]!r} is not a URL: it names no site. Write the whole address, like {example[:200]}"
        if site
        else (f"{text[:200]!r} is not a URL. Did you mean {example[:200]} ?")
    )


def _most(table: Table, where: str) -> int:
    most = table.get("max_urls", MOST_URLS)
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise _bad(where, "max_urls", " is a number, 1 or more.")
    return most


def _form(table: Table, where: str, usual: str) -> tuple[str, str]:
    form = table.get("format", usual)
    if form not in FORMS:
        raise _bad(where, "format", f" is one of {', '.join(FORMS)}.")
    if "column" in table and form == "lines":
        forms = (Key("format", "csv"), " or ", Key("format", "jsonl"))
        raise _bad(where, "column", " is for CSV and JSON Lines. Add ", *forms, ".")
    column = _text(table, "column", where, Key("column", "url")) if "column" in table else COLUMN
    return str(form), column


def _timeout(table: Table, where: str) -> timedelta:
    value = table.get("timeout", COMMAND_TIME)
    try:
        timeout = value if isinstance(value, timedelta) else parse_duration(str(value))
    except ValueError as error:
        raise _bad(where, "timeout", f": {error}") from error
    if timeout <= timedelta(0):
        raise _bad(where, "timeout", " must be more than 0.")
    return timeout


def _output(table: Table, where: str) -> int:
    try:
        size = parse_size(str(table.get("max_output", MOST_OUTPUT))).bytes
    except ValueError as error:
        raise _bad(where, "max_output", f": {error}") from error
    if size < 1:
        raise _bad(where, "max_output", " must be 1 byte or more.")
    return size


def _bad(where: str, key: str, *parts: str | Key) -> BadSchedule:
    return BadSchedule(where, key, Key(key), *parts)

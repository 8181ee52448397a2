"""Sources as users write them in gossamer.toml. Pure: a table in, a `UrlSource` out.

    urls    = ["https://shop.example/p/{1..1000}", "https://shop.example/new"]    max_urls
    file    = "urls.csv"                                                          format, column, max_urls
    command = ["python", "list_urls.py"]                      timeout, max_output, shell, format, column, max_urls
    sitemap = "https://shop.example/sitemap.xml"    (or its robots.txt)           only_changed, max_urls
    feed    = "https://news.example/rss"                                          only_changed, max_urls
    start   = true    (the spider's own; also when nothing is written)

How it fails: Misconfigured, with what may be written instead. Nothing is fetched, run or expanded here: a range of a
billion is refused by arithmetic.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import PurePath
from typing import Any, NoReturn

from ...errors import InvalidUrl, Misconfigured
from ...model.url import parse_url
from ...units import parse_duration, parse_size
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

Table = Mapping[str, Any]  # Any: what people write is looked at key by key


def parse_source(table: Table, where: str = "The source") -> UrlSource:
    """Read the keys of SOURCE_KEYS that a table has. `where` begins every complaint. Raises Misconfigured."""
    try:
        return _parse(table, where)
    except Misconfigured as error:
        raise Misconfigured(discreet(str(error))) from error.__cause__


def _parse(table: Table, where: str) -> UrlSource:
    for key in table:
        if key not in SOURCE_KEYS:
            near = difflib.get_close_matches(key, SOURCE_KEYS, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"There is {', '.join(sorted(SOURCE_KEYS))}."
            _refuse(where, f"{key!r} is not known here. {hint}")
    kinds = [kind for kind in KINDS if kind in table]
    if len(kinds) > 1:
        _refuse(where, f"it has {' and '.join(kinds)}. Choose one of {', '.join(KINDS)}.")
    if not kinds:
        if table:
            _refuse(where, f"{', '.join(sorted(table))} says nothing alone. Add one of {', '.join(KINDS)}.")
        return StartSource()
    (kind,) = kinds
    for option in table:
        if option != kind and option not in _OPTIONS[kind]:
            fitting = ", ".join(name for name in KINDS if option in _OPTIONS[name])
            _refuse(where, f"{option} does not go with {kind}, only with {fitting}.")
    return _READERS[kind](table, where)


def _urls(table: Table, where: str) -> UrlsSource:
    value = table["urls"]
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not texts or not all(isinstance(text, str) for text in texts):
        _refuse(where, 'urls is a list of addresses: urls = ["https://shop.example/p/{1..1000}"].')
    texts = [text.strip() for text in texts]
    most = _most(table, where)
    total = 0
    for text in texts:
        try:
            pattern = parse_pattern(text)
            parse_url(pattern.at(0))
        except (Misconfigured, InvalidUrl) as error:
            raise Misconfigured(f"{where}: {_whole(text) or error}") from error
        total += pattern.count
        if total > most:
            _refuse(
                where,
                f"urls with {text} would make {total:,} addresses in all; at most {most:,} are allowed. Narrow the "
                "range, make several schedules of it, or raise max_urls.",
            )
    return UrlsSource(urls=tuple(texts), max_urls=most)


def _file(table: Table, where: str) -> FileSource:
    path = _text(table, "file", where, 'file = "urls.txt"')
    suffix = PurePath(path.lower().removesuffix(SUFFIX)).suffix
    form, column = _form(table, where, _FORM_OF_SUFFIX.get(suffix, "lines"))
    return FileSource(path=path, form=form, column=column, max_urls=_most(table, where))


def _command(table: Table, where: str) -> CommandSource:
    value = table["command"]
    if _yes_or_no(table, "shell", where):
        words = (*SHELL, _text(table, "command", where, 'with shell = true: command = "psql -c ... | sort"'))
    elif isinstance(value, str):
        _refuse(
            where,
            'command is a list of words: command = ["python", "list_urls.py"]. No shell reads it; if you want one, '
            "add shell = true.",
        )
    elif not isinstance(value, list | tuple) or not value or not all(isinstance(word, str) for word in value):
        _refuse(where, 'command is a list of words: command = ["python", "list_urls.py"].')
    else:
        words = tuple(value)
    if not words[0] or any("\0" in word for word in words):
        _refuse(where, "command has a word that no program can be given.")
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
        _refuse(where, "start = true means the spider's own start. For another source leave it out.")
    return StartSource()


_READERS: dict[str, Callable[[Table, str], UrlSource]] = {
    "urls": _urls,
    "file": _file,
    "command": _command,
    "sitemap": _sitemap,
    "feed": _feed,
    "start": _start,
}


def _text(table: Table, key: str, where: str, example: str) -> str:
    value = table[key]
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        _refuse(where, f"{key} is a text: {example}.")
    return value.strip()


def _yes_or_no(table: Table, key: str, where: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        _refuse(where, f"{key} is true or false.")
    return value


def _address(table: Table, key: str, where: str, example: str) -> str:
    text = _text(table, key, where, f'{key} = "https://shop.example/{example}"')
    try:
        return parse_url(text).partition("#")[0]
    except InvalidUrl as error:
        raise Misconfigured(f"{where}: {key}: {_whole(text) or error}") from error


def _whole(text: str) -> str:
    """What to write when only the site, or the https:// before it, is missing; "" when it is something else."""
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
        _refuse(where, "max_urls is a number, 1 or more.")
    return most


def _form(table: Table, where: str, usual: str) -> tuple[str, str]:
    form = table.get("format", usual)
    if form not in FORMS:
        _refuse(where, f"format is one of {', '.join(FORMS)}.")
    if "column" in table and form == "lines":
        _refuse(where, 'column is for CSV and JSON Lines. Add format = "csv" or format = "jsonl".')
    column = _text(table, "column", where, 'column = "url"') if "column" in table else COLUMN
    return str(form), column


def _timeout(table: Table, where: str) -> timedelta:
    value = table.get("timeout", COMMAND_TIME)
    try:
        timeout = value if isinstance(value, timedelta) else parse_duration(str(value))
    except ValueError as error:
        raise Misconfigured(f"{where}: timeout: {error}") from error
    if timeout <= timedelta(0):
        _refuse(where, "timeout must be more than 0.")
    return timeout


def _output(table: Table, where: str) -> int:
    try:
        size = parse_size(str(table.get("max_output", MOST_OUTPUT))).bytes
    except ValueError as error:
        raise Misconfigured(f"{where}: max_output: {error}") from error
    if size < 1:
        _refuse(where, "max_output must be 1 byte or more.")
    return size


def _refuse(where: str, words: str) -> NoReturn:
    raise Misconfigured(f"{where}: {words}")

"""Tries a Python spider on one page: what its callback yields, and what would be stored. Nothing is stored.

Every value has the shape that `--json` prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from ...errors import FetchRefused, InvalidUrl, Misconfigured, ParseFailed
from ...frontier.admission import LinkScope
from ...model.record import Record
from ...model.secret_text import SecretRef
from ...model.task import DEFAULT_KIND, Request
from ...model.url import host_of, parse_url, site_of
from ...parse.arguments import unread_attributes
from ...parse.callbacks import run_callback
from ...parse.page import Page
from ...parse.seeds import start_addresses
from ...parse.spider import Spider, callback_names
from ...pipeline.quality_rules import Fault
from ...pipeline.steps import Dropped, Piped
from ...recipe.table import suggestion
from ...settings import Settings
from ..extensions import around_parse_of
from ..pipelines import pipeline_of

LINKS_TOLD = 3


class RecordFound(msgspec.Struct, frozen=True):
    """A record as it would be stored."""

    type: str
    key: str
    data: object  # the fields of the item


class LinksGiven(msgspec.Struct, frozen=True, kw_only=True):
    """The links that a callback yielded for one other callback."""

    to: str  # the callback that will parse the pages behind them
    count: int
    first: list[str]
    elsewhere: int  # those that leave the sites of the crawl, and are dropped
    invalid: list[str]  # the first that are not URLs


class CheckedSpider(msgspec.Struct, frozen=True, kw_only=True):
    """A spider that loads."""

    spider: str
    valid: bool = True
    start: list[str]
    callbacks: list[str]
    warnings: list[str]


class SpiderCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a callback yields for a page."""

    spider: str
    valid: bool = True
    url: str
    status: int
    bytes: int  # of the body
    callback: str
    callbacks: list[str]  # of the spider
    links: list[LinksGiven]
    records: list[RecordFound]
    dropped: list[Dropped]  # items that a step of the pipeline dropped
    quality: list[Fault]
    warnings: list[str]
    refusal: str | None  # why the page would be a parse failure
    detail: str  # the traceback of the user's own code


def spider_view(spider: Spider) -> CheckedSpider:
    return CheckedSpider(
        spider=spider.name,
        start=start_addresses(spider),
        callbacks=list(callback_names(spider)),
        warnings=unread_attributes(spider),
    )


def demand_callback(spider: Spider, callback: str | None) -> None:
    """Raises Misconfigured if the spider has no such callback."""
    names = callback_names(spider)
    if callback is not None and callback not in names:
        hint = suggestion(callback, names)
        raise Misconfigured(f"Spider {spider.name} has no callback {callback!r}; it has {', '.join(names)}.{hint}")


async def check_spider(
    settings: Settings, spider: Spider, fetched: Page, callback: str | None = None, data: str | None = None
) -> SpiderCheck:
    """Call a callback with the page: the named one, otherwise the one for which an archived page was fetched, otherwise
    `parse`. `data` is the JSON of `page.data`. Raises FetchRefused for an error response, and Misconfigured."""
    if fetched.status >= 400 and fetched.status not in spider.handle_statuses:
        raise FetchRefused(f"{fetched.url} answered {fetched.status}; there is nothing to read.", status=fetched.status)
    raw = fetched.snapshot
    callback = callback or (raw.kind if raw.job and raw.kind in callback_names(spider) else DEFAULT_KIND)
    raw = msgspec.structs.replace(raw, kind=callback, data=_checked_data(data) if data is not None else raw.data)
    page = Page(raw, spider=spider)
    requests: list[Request] = []
    piped, refusal, detail = Piped([], []), "", ""
    try:
        around, code = around_parse_of(settings, spider), partial(run_callback, spider, callback)
        parsed = await code(page) if around is None else await around(page, code)
        requests = parsed.requests
        piped = await pipeline_of(settings, spider).run(
            parsed.items, page, spider=spider.name, job="", now=page.fetched_at
        )
    except ParseFailed as error:
        refusal, detail = str(error), error.detail
    return SpiderCheck(
        spider=spider.name,
        url=page.url,
        status=page.status,
        bytes=len(page.body),
        callback=callback,
        callbacks=list(callback_names(spider)),
        links=_links_given(requests, spider, page),
        records=[record_found(record) for record in piped.records],
        dropped=piped.dropped,
        quality=list(piped.inspection.faults),
        warnings=unread_attributes(spider),
        refusal=refusal or None,
        detail=detail,
    )


def _checked_data(text: str) -> str:
    try:
        found = msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise Misconfigured(f'--data is not a JSON object like {{"page": 2}} ({error}).') from error
    return msgspec.json.encode(found).decode()


def record_found(record: Record) -> RecordFound:
    return RecordFound(record.type, record.key, msgspec.json.decode(record.data))


def _links_given(requests: Sequence[Request], spider: Spider, page: Page) -> list[LinksGiven]:
    seeds = start_addresses(spider)
    scope = LinkScope(sites=spider.allowed_sites(seeds or [page.url]))
    kinds: dict[str, dict[str, str]] = {}  # URLs by what is shown of each request
    for request in requests:
        sent = sent_with(request)
        words = (sent.get("method"), request.address(), sent.get("body"))
        kinds.setdefault(request.kind, {})[" ".join(filter(None, words))] = request.url
    return [_links_to(kind, shown, scope) for kind, shown in kinds.items()]


def sent_with(request: Request) -> dict[str, Any]:
    """What a request sends besides a GET of its URL, for people and saved cases: the body as text where it is text,
    secrets by their names, no password."""
    if request.is_plain:
        return {}
    how = request.options()
    plain = how.headers if how.body is None else [one for one in how.headers if one[0].lower() != "content-type"]
    sent: dict[str, Any] = {"method": how.method} if how.method != "GET" else {}
    sent |= {"headers": {name: _shown(text) for name, text in plain}} if plain else {}
    sent |= {"cookies": {name: _shown(text) for name, text in how.cookies}} if how.cookies else {}
    sent |= {"user": _shown(how.auth[0])} if how.auth is not None else {}
    sent |= {"body": _shown(how.body.parts)} if how.body is not None else {}
    sent |= {"handle_statuses": list(how.statuses)} if how.statuses else {}
    return sent | ({"errback": how.errback} if how.errback else {})


def _shown(text: str | Sequence[str | bytes | SecretRef]) -> str:
    parts = [part.decode("utf-8", "backslashreplace") if isinstance(part, bytes) else part for part in text]
    return "".join(f"<secret {part.secret}>" if isinstance(part, SecretRef) else part for part in parts)


def _links_to(kind: str, shown: Mapping[str, str], scope: LinkScope) -> LinksGiven:
    elsewhere, invalid = 0, []
    for url in shown.values():
        try:
            href = parse_url(url)
        except InvalidUrl:
            invalid.append(url)
            continue
        elsewhere += scope.verdict(href, site_of(href), host_of(href), 0) is not None
    first = list(shown)[:LINKS_TOLD]
    return LinksGiven(to=kind, count=len(shown), first=first, elsewhere=elsewhere, invalid=invalid[:LINKS_TOLD])

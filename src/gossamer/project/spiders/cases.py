"""Saved pages as test cases for spiders: what a callback makes of a page, now and when it was last approved.

    tests/<case>/page.json        where the page came from, and which callback of which spider parses it
    tests/<case>/body.html        the page as it was received
    tests/<case>/expected.json    the items and links that it yields, or why none

A case needs no network and no store: callback and pipeline run as in a crawl, except for quality rules.
How it fails: Misconfigured for a case that cannot be read, or a spider that does not load.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import mimetypes
import re
import shlex
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from ...clock import iso_time
from ...crawl.parse_page import parse_page
from ...errors import FetchFailed, FetchRefused, Misconfigured, ParseFailed
from ...model.page import Headers, Snapshot
from ...model.task import DEFAULT_KIND, Request, Task
from ...model.url import fingerprint, site_of, typed_url
from ...parse.page import Page
from ...parse.spider import Contract, Spider, callback_names
from ...parse.timelimit import TimeLimit
from ...pipeline.steps import Pipeline
from ...recipe.spider import RecipeSpider, likely_kind
from ...settings import Settings
from ...store.page_format import read_visit
from ..extensions import around_parse_of
from ..open import open_crawled
from ..pages.fetch import fetch_one
from .check import sent_with
from .spiders import crawl_target, spiders_of

FOLDER = "tests"
PAGE, EXPECTED = "page.json", "expected.json"
MOST_DIFF = 200  # lines shown of a difference
_SECRET = frozenset({"set-cookie", "set-cookie2", "www-authenticate", "proxy-authenticate"})
_UNFIT = re.compile(r"[^a-z0-9]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class SavedPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What page.json holds."""

    spider: str
    callback: str
    url: str
    requested_url: str = ""
    status: int = 200
    headers: list[tuple[str, str]] = []
    fetched_at: str = ""
    data: dict[str, Any] = {}  # of the request: any JSON
    depth: int = 0
    body: str = "body.html"


class CaseSaved(msgspec.Struct, frozen=True, kw_only=True):
    """A case that was written. `failure` is why the page yielded nothing, "" if all is well."""

    name: str
    folder: str
    items: int
    links: int
    failure: str = ""


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a case. `diff` are the lines that differ: "-" marks the expected ones, "+" the actual ones."""

    name: str
    state: str  # ok, failed, updated, new
    diff: list[str] = []


async def save_case(
    settings: Settings,
    url: str,
    *,
    spider: str | None = None,
    callback: str | None = None,
    data: str | None = None,
    name: str | None = None,
    from_archive: bool = False,
    robots: bool = True,
    route: str | None = None,
    folder: Path | None = None,
) -> CaseSaved:
    """Save a page and what the spider makes of it now. Raises Misconfigured, FetchFailed, FetchRefused."""
    href = typed_url(url)
    snapshot: Snapshot
    if from_archive:
        snapshot, known_as = await _archived(settings, href)
        spider = spider or known_as
    found = crawl_target(settings, spider or _only_spider(settings), folder or Path.cwd()).spider
    if not from_archive:
        snapshot = (await fetch_one(href, settings, robots=robots, route=route, spider=found)).snapshot
    kind = callback or (snapshot.kind if from_archive else _kind_of(found, snapshot))
    if kind not in callback_names(found):
        raise Misconfigured(f"{found.name} has no callback {kind!r}; it has {', '.join(callback_names(found))}.")
    place = settings.root / FOLDER / _case_name(name, found.name, kind, snapshot.url)
    if place.exists():
        raise Misconfigured(f"There is a case {place.name} already. `gossamer test --update` renews it; or use --name.")
    saved = SavedPage(
        spider=spider or found.name,
        callback=kind,
        url=snapshot.url,
        requested_url=snapshot.requested_url if snapshot.requested_url != snapshot.url else "",
        status=snapshot.status,
        headers=[pair for pair in snapshot.headers if pair[0].lower() not in _SECRET],
        fetched_at=iso_time(snapshot.fetched_at),
        data=_json_object(data if data is not None else snapshot.data),
        depth=snapshot.depth,
        body=f"body{_ending(snapshot)}",
    )
    came = await _outcome(settings, found, saved, snapshot.body)
    try:
        place.mkdir(parents=True)
        (place / saved.body).write_bytes(snapshot.body)
        (place / PAGE).write_text(_pretty(msgspec.to_builtins(saved)))
        (place / EXPECTED).write_text(_pretty(came))
    except OSError as error:
        raise Misconfigured(f"{place} cannot be written ({error.strerror}).") from error
    return CaseSaved(
        name=place.name,
        folder=str(place),
        items=len(came.get("items", ())),
        links=len(came.get("links", ())),
        failure=came.get("failure", ""),
    )


async def run_cases(settings: Settings, names: Sequence[str] = (), *, update: bool = False) -> list[CaseResult]:
    """Run the cases of the project, or the named ones. `update` saves the actual results as the expected ones. Raises
    Misconfigured if there are none."""
    home = settings.root / FOLDER
    places = sorted(path.parent for path in home.glob(f"*/{PAGE}"))
    known = {place.name: place for place in places}
    for name in names:
        if Path(name).name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise Misconfigured(f"There is no case {name!r} in {home}.{hint}")
    if not places:
        raise Misconfigured(f"There are no cases in {home}. `gossamer save URL` makes one of a page.")
    chosen = [known[Path(name).name] for name in names] if names else places
    spiders: dict[str, Spider] = {}
    return [await _run_case(settings, place, spiders, update) for place in chosen]


async def run_contracts(settings: Settings, names: Sequence[str] = (), *, robots: bool = True) -> list[CaseResult]:
    """Check what the docstrings of callbacks demand, of all spiders or the named ones; each page is fetched. Raises
    Misconfigured if there are none."""
    results: list[CaseResult] = []
    asked_at: dict[str, float] = {}  # by site
    for name in names or [one.name for one in spiders_of(settings).spiders]:
        spider = crawl_target(settings, name, settings.root).spider
        own = spider._adjusted(settings)
        for contract in spider._contracts():
            site = site_of(contract.request.url)
            pause = (own.politeness.rate.interval or timedelta(0)).total_seconds()
            await asyncio.sleep(max(0.0, asked_at.get(site, -pause) + pause - time.monotonic()))
            asked_at[site] = time.monotonic()
            results.append(await _run_contract(own, spider, contract, robots and spider.robots is not False))
    if not results:
        raise Misconfigured(
            "No callback has contracts: `@url`, `@returns` and `@scrapes` in its docstring, as Scrapy reads them."
        )
    return results


async def _run_contract(settings: Settings, spider: Spider, contract: Contract, robots: bool) -> CaseResult:
    name = f"{spider.name}.{contract.name}"
    try:
        request = contract.request
        page = await fetch_one(request.url, settings, robots=robots, request=request, spider=spider)
    except (FetchFailed, FetchRefused) as error:
        return CaseResult(name=name, state="failed", diff=[str(error)])
    lines = await contract.check(Page(page.snapshot, spider=spider))
    return CaseResult(name=name, state="failed" if lines else "ok", diff=lines[:MOST_DIFF])


async def _run_case(settings: Settings, place: Path, spiders: dict[str, Spider], update: bool) -> CaseResult:
    try:
        saved = msgspec.json.decode((place / PAGE).read_bytes(), type=SavedPage)
        body = (place / Path(saved.body).name).read_bytes()
    except (OSError, msgspec.MsgspecError) as error:
        return CaseResult(name=place.name, state="failed", diff=[f"The case cannot be read: {error}"])
    try:
        if saved.spider not in spiders:
            spiders[saved.spider] = crawl_target(settings, saved.spider, settings.root).spider
    except Misconfigured as error:
        return CaseResult(name=place.name, state="failed", diff=[str(error)])
    came = _pretty(await _outcome(settings, spiders[saved.spider], saved, body))
    file = place / EXPECTED
    expected = file.read_text() if file.is_file() else ""
    if _same(expected, came):
        return CaseResult(name=place.name, state="ok")
    diff = [
        line
        for line in difflib.unified_diff(expected.splitlines(), came.splitlines(), lineterm="", n=2)
        if not line.startswith(("---", "+++"))
    ]
    if update:
        file.write_text(came)
        return CaseResult(name=place.name, state="updated" if expected else "new", diff=diff[:MOST_DIFF])
    more = [f"... and {len(diff) - MOST_DIFF} more lines"] if len(diff) > MOST_DIFF else []
    return CaseResult(name=place.name, state="failed", diff=[*diff[:MOST_DIFF], *more])


async def _outcome(settings: Settings, spider: Spider, saved: SavedPage, body: bytes) -> dict[str, Any]:
    """What the callback and the pipeline make of a saved page, as JSON."""
    at = datetime.fromisoformat(saved.fetched_at).timestamp() if saved.fetched_at else 0.0
    snapshot = Snapshot(
        url=saved.url,
        requested_url=saved.requested_url or saved.url,
        status=saved.status,
        headers=Headers(saved.headers),
        body=body,
        fetched_at=at,
        kind=saved.callback,
        job="test",
        data=msgspec.json.encode(saved.data).decode() if saved.data else "",
        depth=saved.depth,
    )
    task = Task(
        id=0,
        job="test",
        url=snapshot.requested_url,
        fingerprint=fingerprint(snapshot.requested_url),
        site=site_of(saved.url),
        kind=saved.callback,
        priority=0,
        depth=saved.depth,
        attempt=0,
        max_attempts=1,
        created_at=at,
        data=snapshot.data,
    )
    pipeline = Pipeline(spider.pipeline, cleans=spider.clean)
    around = around_parse_of(settings, spider)
    parsing = await parse_page(snapshot, task, spider, pipeline, TimeLimit(settings.crawl.parse_timeout), around=around)
    if isinstance(parsing, ParseFailed):
        return {"failure": str(parsing)}
    parsed, piped = parsing
    return {
        "items": [{"type": one.type, "key": one.key, "data": json.loads(one.data)} for one in piped.records],
        "links": [_link(request) for request in parsed.requests],
        **({"dropped": [msgspec.to_builtins(one) for one in piped.dropped]} if piped.dropped else {}),
    }


def _link(request: Request) -> dict[str, Any]:
    link: dict[str, Any] = {"url": request.address(), "callback": request.kind, **sent_with(request)}
    link |= {
        name: value for name in ("fetcher", "proxy_pool", "country", "session") if (value := getattr(request, name))
    }
    if request.force:
        link["force"] = True
    if request.priority is not None:
        link["priority"] = request.priority
    if request.data:
        link["data"] = request.data
    return link


async def _archived(settings: Settings, url: str) -> tuple[Snapshot, str]:
    async with open_crawled(settings) as project:
        visits = await project.records.visits(project.rules.fingerprint(url))
        for visit in reversed(visits):
            if visit.archive_ref:
                return await read_visit(project.archive, visit), visit.spider
    raise Misconfigured(f"{url} is not in the archive. `gossamer save {shlex.quote(url)}` fetches it.")


def _only_spider(settings: Settings) -> str:
    found = spiders_of(settings)
    names = [one.name for one in found.spiders]
    if len(names) == 1:
        return names[0]
    broken = f" This file does not load: {found.broken[0].words}." if found.broken else ""
    raise Misconfigured(f"Say which spider reads the page: --spider {' or '.join(names[:5]) or 'FILE'}.{broken}")


def _kind_of(spider: Spider, snapshot: Snapshot) -> str:
    return likely_kind(spider, Page(snapshot, spider=spider)) if isinstance(spider, RecipeSpider) else DEFAULT_KIND


def _case_name(name: str | None, spider: str, kind: str, url: str) -> str:
    if name is not None:
        if not _NAME.fullmatch(name):
            raise Misconfigured(f"{name[:80]!a} cannot be a case's name. Use letters, digits, dots, dashes, _.")
        return name
    path = _UNFIT.sub("-", url.partition("://")[2].partition("/")[2].lower()).strip("-")[-60:].strip("-")
    return "-".join(part for part in (_UNFIT.sub("-", spider.lower()).strip("-"), kind, path or "start") if part)


def _json_object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except msgspec.MsgspecError as error:
        raise Misconfigured(f"--data must be a JSON object ({error}).") from error


def _ending(snapshot: Snapshot) -> str:
    kind = snapshot.headers.get("content-type").partition(";")[0].strip().lower()
    return (
        {"text/html": ".html", "": ".html", "text/xml": ".xml"}.get(kind) or mimetypes.guess_extension(kind) or ".bin"
    )


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _same(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False

"""Calls a spider's callback with a page. A bug in a spider fails the page, never the crawl.

How it fails: always with ParseFailed, whose `detail` holds the traceback of the user's own frames. Only a real Ctrl-C
and the cancellation of the worker pass through, not a CancelledError that the spider raised itself. The caller limits
how long a callback may take (timelimit.py).
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import AsyncIterable, Awaitable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InvalidUrl, ParseFailed
from ..model.item import AnyItem, Item, safe_text
from ..model.task import DEFAULT_KIND, Request, fault_of
from ..model.url import parse_url, user_in, without_user
from ..process.signals import is_cancellation
from ..units import discreet
from .links import PREFER, are_followed, canonical_request, rule_requests
from .page import MadeLinks, Page
from .page_context import Failure, PageContext, working_on
from .spider import FAILED, Spider, callback_names, errback_fault
from .timelimit import TookTooLong

MAX_YIELDS = 100_000
KEPT = "gossamer_kept"  # of an exception: the items and requests that came before it, where a framework keeps them
_OURS = str(Path(__file__).resolve().parents[1])
_MOST_FRAMES = 20
_LONGEST_DETAIL = 20_000


class ParsedPage(msgspec.Struct, frozen=True):
    """The items and requests from a callback, in order, and its stats. `links_only`: the requests consist of nothing
    but URL and callback."""

    items: list[AnyItem]
    requests: list[Request]
    stats: dict[str, int] = {}
    links_only: bool = False


async def run_callback(spider: Spider, kind: str, page: Page, *, max_yields: int = MAX_YIELDS) -> ParsedPage:
    """Call the spider's method `kind` with the page and collect what it yields or returns. Raises ParseFailed."""
    return await _collected(spider, kind, page, max_yields)


async def run_errback(spider: Spider, name: str, failure: Failure) -> ParsedPage:
    """Call the spider's errback with the failure and collect its results like a callback's. Raises ParseFailed."""
    return await _collected(spider, name, failure, MAX_YIELDS)


def has_hook(spider: Spider, name: str) -> bool:
    """Whether the spider does anything in this hook."""
    return getattr(getattr(spider, name), "__func__", None) is not getattr(Spider, name)


async def run_hook(spider: Spider, name: str, job: str, *arguments: object) -> None:
    """Call a hook of the spider, `opened` or `closed`. Raises ParseFailed."""
    try:
        with working_on(PageContext(job)):
            done = getattr(spider, name)(*arguments)
            if isinstance(done, Awaitable):
                await done
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if is_cancellation(error):
            raise
        raise _failure(f"{type(spider).__name__}.{name}", job, error) from error


async def _collected(spider: Spider, kind: str, argument: Page | Failure, max_yields: int) -> ParsedPage:
    names = callback_names(spider)
    if isinstance(argument, Failure):
        names = (*names, FAILED)
    if kind not in names:
        near = difflib.get_close_matches(kind, names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ParseFailed(
            f"Spider {spider.name} has no callback {kind!r} (any more); it has {', '.join(names)}.{hint}"
            f" Bring the method back; a crawl may also start over with --fresh."
        )
    made = argument._made if isinstance(argument, Page) else MadeLinks()
    basket = _Basket(f"{type(spider).__name__}.{kind}", max_yields, spider, made, names)
    counted: dict[str, int] = {}
    if isinstance(argument, Page):
        argument._stats = counted  # steps of the pipeline may count, too
    try:
        with working_on(PageContext(argument.job, argument.url, counted)):
            if spider.rules and isinstance(argument, Page):
                await _by_rules(spider, kind, argument, basket)
            else:
                await _collect(spider._method(kind)(argument), basket)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit in a spider must not end the worker
        if is_cancellation(error):
            raise
        lost = len(basket.items) + basket.lost
        if isinstance(error, _Unusable) or (isinstance(error, ParseFailed) and error.detail):
            error.items = lost
            raise  # already has its detail
        failure = _failure(basket.callback, argument.url, error)
        failure.items = lost
        if (kept := getattr(error, KEPT, None)) is not None:
            basket.add_all(kept)
            failure.kept = ParsedPage(basket.items, _without_logins(basket.requests), counted)
        raise failure from error
    finally:
        made.clear()  # the garbage collector does not track requests: one that refers to its page would leak it
    page = argument if isinstance(argument, Page) else argument.page
    if page is not None and page._files:  # referenced by fields of items
        basket.add_all(page._files)
    return ParsedPage(basket.items, _without_logins(basket.requests), counted, basket.links_only)


async def _by_rules(spider: Spider, kind: str, page: Page, basket: _Basket) -> None:
    """Parse a page of a spider with rules: callback and links, or only the canonical URL if a rule prefers that."""
    canonical = canonical_request(spider.rules, kind, page)
    if canonical is not None:
        policy, request = canonical
        basket.add(request)
        if policy == PREFER:
            return
    await _collect(getattr(spider, kind)(page), basket)
    if are_followed(spider.rules, kind):
        wanted = list(rule_requests(spider.rules, page))
        basket.add_all(wanted)
        if kind == DEFAULT_KIND:
            # A page that links to itself is fetched once: the rule's callback gets it now, or never.
            own = {page.url.partition("#")[0], page.requested_url.partition("#")[0]}
            for other in dict.fromkeys(one.kind for one in wanted if one.kind != kind and one.url in own):
                await _collect(spider._method(other)(page), basket)


async def _collect(given: Any, basket: _Basket) -> None:
    """Put the results of a callback into the basket."""
    if isinstance(given, Awaitable):
        given = await given
    if given is None or isinstance(given, Item | dict | Request):
        basket.add(given)
    elif isinstance(given, AsyncIterable):
        async for entry in given:
            basket.add(entry)
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes):
        basket.add_all(given)
    else:
        basket.add(given)


def checked_results(parsed: ParsedPage, source: str) -> ParsedPage:
    """The results, if all of them are usable. Raises ParseFailed."""
    basket = _Basket(source, MAX_YIELDS)
    basket.add_all(parsed.items)
    basket.add_all(parsed.requests)
    return ParsedPage(basket.items, _without_logins(basket.requests))


def _without_logins(requests: list[Request]) -> list[Request]:
    """The requests without user names and passwords in their URLs, which may be links of the page: these are not sent,
    and everything that becomes of a request is stored and shown."""
    if "@" not in " ".join([one.url for one in requests]):  # one search for all
        return requests
    return [msgspec.structs.replace(one, url=_without_login(one.url)) if "@" in one.url else one for one in requests]


def _without_login(url: str) -> str:
    try:
        href = parse_url(url)
    except InvalidUrl:
        return discreet(url)
    return without_user(href) if user_in(href) is not None else url


class _Unusable(ParseFailed):
    """The callback returned something unusable."""


class _Basket:
    """Sorts the results of a callback, and refuses anything that is neither item nor request."""

    def __init__(
        self,
        callback: str,
        room: int,
        spider: Spider | None = None,
        made: MadeLinks | None = None,
        kinds: Iterable[str] = (),
    ) -> None:
        self.callback = callback
        self._spider = spider
        self._kinds = frozenset(kinds)  # the existing callbacks
        self._made = made or MadeLinks()
        self.items: list[AnyItem] = []
        self.requests: list[Request] = []
        self.lost = 0  # items that a generator yielded before it raised
        self.links_only = True
        self._room = room
        self._nothings = 0

    def add_all(self, entries: Iterable[Any]) -> None:
        """Add each entry. The links of one `follow_all`, often dozens, are checked as a whole if they come in one
        run."""
        given: list[Any] = []
        try:
            given.extend(islice(entries, self._room + 1))
        except BaseException:  # what came before is in the list, and lost
            self.lost += sum(isinstance(entry, Item | dict) for entry in given)
            raise
        whole: dict[int, list[Request]] = {}  # by start index
        for links in self._made.take_runs():
            at = _place_of(links, given)
            if at is None or links[0].kind not in self._kinds or [link for link in links if link.data]:
                self._made.add(links)
            else:
                whole[at] = links
        added = 0
        for at, links in sorted(whole.items()):
            self._add_each(given[added:at])
            self.requests += links
            added = at + len(links)
        self._add_each(given[added:])
        self._check_room()

    def _add_each(self, entries: Iterable[Any]) -> None:
        """Requests that equal the previous one but for the URL skip the checks."""
        requests, astuple = self.requests, msgspec.structs.astuple
        like: tuple[Any, ...] | None = None  # the fields of the previous request, without its URL
        for entry in entries:
            if type(entry) is not Request:
                self.add(entry)
                continue
            fields = astuple(entry)[1:]
            if fields == like and type(entry.url) is str:
                requests.append(entry)
            else:
                self.add(entry)
                like = fields if entry.is_plain else None  # in a body, equal values may differ: 1 and True

    def add(self, entry: Any) -> None:
        if isinstance(entry, Request):
            link = entry in self._made and not entry.data
            if not link or entry.kind not in self._kinds:  # requests that `follow` made from links are valid
                fault = fault_of(entry)
                if not fault and self._spider is not None and entry.errback is not None:
                    fault = errback_fault(self._spider, entry)
                if fault:
                    raise _Unusable(safe_text(f"{self.callback}: the request for {entry.url!a:.200} {fault}."))
            self.links_only = self.links_only and link
            self.requests.append(entry)
        elif isinstance(entry, Item | dict):
            self.items.append(entry)
        elif entry is None:
            self._nothings += 1
        else:
            self._refuse(entry)
        self._check_room()

    def _check_room(self) -> None:
        if len(self.items) + len(self.requests) + self._nothings > self._room:
            raise _Unusable(
                f"{self.callback} gave more than {self._room:,} items and requests for one page. Is it in an endless"
                f" loop? If not, spread them over several pages."
            )

    def _refuse(self, entry: object) -> None:
        shown = safe_text(f"{type(entry).__name__} ({entry!r:.80})")
        hint = ""
        if isinstance(entry, str):
            hint = " To follow an address, yield page.follow(address)."
        elif isinstance(entry, Iterable):
            hint = " Did you mean `yield from`?"
        elif hasattr(entry, "to_dict"):
            hint = " Yield its .to_dict()."
        raise _Unusable(f"{self.callback} gave a {shown}. It may give items, dicts, requests and None.{hint}")


def _place_of(links: list[Request], given: list[Any]) -> int | None:
    """The index where a run of links begins in `given`; None unless the whole run is there."""
    at = next((at for at, entry in enumerate(given) if entry is links[0]), None)
    return at if at is not None and given[at : at + len(links)] == links else None


def _failure(callback: str, url: str, error: BaseException) -> ParseFailed:
    told = "".join(traceback.format_exception_only(error)).strip()
    last_line = told.rpartition("\n")[2]
    message = str(error) if isinstance(error, ParseFailed | TookTooLong) else last_line[:500]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    own = [frame for frame in frames if frame.filename == frames[0].filename]  # without those of libraries
    where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return ParseFailed(
        safe_text(f"{callback} failed on {url}: {message}{where}"), detail=safe_text(_user_frames(frames, told))
    )


def _user_frames(frames: list[traceback.FrameSummary], told: str) -> str:
    """The traceback without our own frames; if it is long, its middle is left out."""
    lines = traceback.format_list(frames[:_MOST_FRAMES])
    if len(frames) > 2 * _MOST_FRAMES:
        lines.append(f"  ... {len(frames) - 2 * _MOST_FRAMES} frames left out ...\n")
    lines += traceback.format_list(frames[_MOST_FRAMES:][-_MOST_FRAMES:])
    return ("Traceback (most recent call last):\n" + "".join(lines) + told)[:_LONGEST_DETAIL]

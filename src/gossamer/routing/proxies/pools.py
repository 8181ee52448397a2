"""All pools of a project in one process: proxies are taken here, and their results reported here.

A report changes what this process knows at once, and reaches the book within half a second, a ban or a failure without
delay. Reports of other workers are read every second, so that all avoid a proxy that was banned seconds ago.

How it fails: Misconfigured for a pool that does not exist or whose source cannot be read, AllProxiesRest if no proxy is
awake, BackendUnavailable if the book must be read and does not answer. How it recovers: reports wait while the book
does not answer. A file of proxies is read again when it changes; while it is invalid the old proxies are used, and the
problem is reported once.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Self
from urllib.parse import quote

from ...clock import Clock
from ...errors import AllProxiesRest, GossamerError, Misconfigured, Transient
from ...model import events
from ...model.route import Proxy, ProxyOutcome
from ...settings import ProxyPool
from .contract import ProxyBook, ProxyReport
from .health import MAX_WORDS
from .outbox import Outbox
from .pool import SKIPPED, GatewayPool, ListedPool, ProxyRequest, open_pool
from .rotation import AllRest, SiteRest

REFUSALS = (ProxyOutcome.BANNED, ProxyOutcome.REFUSED)
TELL_EVERY = timedelta(milliseconds=500)
HEAR_EVERY = timedelta(seconds=1)
HEAR_ALL_EVERY = timedelta(seconds=10)  # so that a reset is noticed
LOOK_AT_FILES_EVERY = timedelta(seconds=3)
OVERLAP = 2.0  # seconds: clocks of processes that share a file differ a little
SHORTEST_WAIT, LONGEST_WAIT = (
    timedelta(milliseconds=500),
    timedelta(minutes=5),
)  # new proxies may be added before the first wakes
FLUSH_WITHIN = timedelta(seconds=3)  # at the end; after that, unsent reports are lost
MAX_PAGES = 10_000  # whose proxies are remembered here; the oldest are forgotten first


class Pools:
    """Use it inside `async with`."""

    def __init__(
        self,
        pools: Mapping[str, ProxyPool],
        book: ProxyBook,
        clock: Clock,
        *,
        project: str,
        root: Path,
        environ: Mapping[str, str] | None = None,
        troubles: events.EventSink | None = None,
        skips: Callable[[str], Collection[str]] | None = None,
    ) -> None:
        """`skips` names the proxies of a pool that are not used now; None: as its settings say."""
        self._settings = pools
        self._skips = skips or (lambda pool: pools[pool].skip if pool in pools else ())
        self._book = book
        self._clock = clock
        self._project = project
        self._root = root
        self._environ = os.environ if environ is None else environ
        self._troubles = troubles or events.NullSink()
        self._told: dict[str, str] = {}  # the last problem of each pool
        self._open: dict[str, ListedPool | GatewayPool] = {}
        self._opening = asyncio.Lock()
        self._heard: dict[str, tuple[float, float]] = {}  # pool -> newest change of a proxy and of a session
        self._outbox = Outbox()
        self._tried: OrderedDict[bytes, frozenset[str]] = OrderedDict()
        self._talking = asyncio.Lock()
        self._urgent = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        loops = (self._hurry, self._tell_regularly, self._hear_regularly, self._look_regularly)
        self._tasks = [asyncio.create_task(loop(), name=f"pools{loop.__name__}") for loop in loops]
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(Transient, TimeoutError):  # only figures, not worth a longer wait
            async with asyncio.timeout(FLUSH_WITHIN.total_seconds()):
                await self.flush()

    async def prepare(self, names: Iterable[str]) -> None:
        """Open these pools before the first page needs them. Raises Misconfigured, BackendUnavailable."""
        for name in names:
            await self._pool(name)

    async def take(
        self,
        pool: str,
        *,
        site: str,
        fingerprint: bytes,
        attempt: int = 0,
        country: str | None = None,
        session: str | None = None,
        avoid: Collection[str] = (),
        untried: bool = False,
    ) -> Proxy:
        """A proxy for an attempt at a page. Raises AllProxiesRest, Misconfigured, BackendUnavailable.

        `attempt` is how many attempts were used up before. From the second on the book is asked which proxies the page
        has tried in vain, here or elsewhere; another is taken if there is one. `session` is a key chosen by the spider:
        all pages that name it leave as the same visitor, also when they are retried. `avoid` holds names of proxies
        that the caller does not want; one of them, or one that was tried in vain, is taken if no other is awake, unless
        it must be `untried`.
        """
        opened = self._open.get(pool) or await self._pool(pool)
        tried = self._tried.get(fingerprint, frozenset())
        if attempt:
            tried |= frozenset(await self._book.used(fingerprint))
        wanted = ProxyRequest(site=site, country=country, session=session, tried=tried, avoid=frozenset(avoid))
        now = self._clock.now()
        opened.skip(self._skips(pool), now)
        found = opened.take(wanted, now)
        if isinstance(found, AllRest) and found.until >= SKIPPED:
            words = f"Every proxy of pool {pool} is left out by its setting skip. See `gossamer override list`."
            raise AllProxiesRest(words, wait=LONGEST_WAIT)
        if isinstance(found, AllRest):
            wait = timedelta(seconds=max(0.0, found.until - now))
            proxies = "The gateway" if isinstance(opened, GatewayPool) else f"All {opened.size} proxies"
            why = f": {site} refused them" if found.refused else ""
            rests = AllProxiesRest(
                f"{proxies} of pool {pool} must rest for {wait.total_seconds():.0f} s more{why}. "
                "See `gossamer proxies`.",
                wait=min(max(wait, SHORTEST_WAIT), LONGEST_WAIT),
            )
            rests.refused = found.refused
            raise rests
        if found.again and untried:
            raise AllProxiesRest(f"This page has tried every proxy of pool {pool} that is awake.", wait=SHORTEST_WAIT)
        if found.again and opened.size > 1:
            words = "If this comes often, the pool wants more proxies: see `gossamer proxies`."
            self._say(pool, f"A page has tried every proxy of pool {pool} that is awake; one is used again. {words}")
        return found.proxy

    def report(
        self,
        proxy: Proxy,
        outcome: ProxyOutcome,
        *,
        site: str = "",
        times: int = 1,
        seconds: float = 0.0,
        received: int = 0,
        credits: float = 0.0,
        words: str = "",
        fingerprint: bytes | None = None,
    ) -> None:
        """Report the result of a proxy that was taken here, at that site. Returns at once. `words` say what went wrong.
        `times` is 0 for a ban whose use was reported as a refusal before.

        With the `fingerprint` of the page, its next attempt takes another proxy if this one was in vain.
        """
        opened = self._open[proxy.pool]
        name = opened.health_name(proxy)
        # A broken proxy is broken for all sites; a success matters at a site that has refused the proxy.
        known = opened.marks.at(site).get(name)
        apart = known is not None if outcome is ProxyOutcome.OK else outcome in REFUSALS
        if outcome is ProxyOutcome.REFUSED and fingerprint is not None and not (known is not None and known.strikes):
            # The same page once more is no further evidence against a proxy that never had to rest here.
            apart = proxy.name not in self._tried.get(fingerprint, ())
        report = ProxyReport(
            proxy=name,
            outcome=outcome,
            site=site if apart else "",
            times=times,
            seconds=seconds,
            bytes=received,
            credits=credits,
            words="" if outcome is ProxyOutcome.OK else without_secrets(words, proxy),
        )
        opened.count(report, self._clock.now())
        self._outbox.report(proxy.pool, report)
        if outcome is ProxyOutcome.OK:
            return
        if fingerprint is not None:
            self._note_use(fingerprint, proxy.name)
        if outcome is ProxyOutcome.BANNED and isinstance(opened, GatewayPool):
            banned = opened.banned_session(proxy)
            if banned is not None:
                self._outbox.renew(proxy.pool, *banned)
        self._urgent.set()

    async def rest_at(self, pool: str, site: str) -> SiteRest | None:
        """Until when no proxy of the pool may visit the site, which refused them; None if one may, or if none is awake
        for other sites either."""
        opened, now = self._open.get(pool) or await self._pool(pool), self._clock.now()
        return opened.rest_at(site, now)

    def has_others(self, proxy: Proxy, site: str, avoid: Collection[str]) -> bool:
        """Is another proxy of the pool awake and welcome at the site?"""
        return self._open[proxy.pool].has_others(site, {*avoid, proxy.name}, self._clock.now())

    def is_the_pages_fault(self, proxy: Proxy, site: str, fingerprint: bytes) -> bool:
        """The proxy refused the page. True if proxies that did so before serve other pages of the site: then the page
        is forbidden to everybody."""
        tried = self._tried.get(fingerprint, frozenset()) | {proxy.name}
        return self._open[proxy.pool].is_the_pages_fault(site, tried)

    async def flush(self) -> None:
        """Send all waiting reports to the book now. Raises BackendUnavailable; unsent ones keep waiting."""
        async with self._talking:
            for pool, session, generation in await self._outbox.send(self._book, lambda pool: self._open[pool].terms):
                opened = self._open[pool]
                assert isinstance(opened, GatewayPool)  # others have no sessions
                opened.renewed(session, generation)

    # -- opening -------------------------------------------------------------------------------------------------

    async def _pool(self, name: str) -> ListedPool | GatewayPool:
        async with self._opening:
            if name in self._open:
                return self._open[name]
            terms = self._settings.get(name)
            if terms is None:
                known = f"There are: {', '.join(sorted(self._settings))}." if self._settings else "There are none yet."
                raise Misconfigured(f"There is no proxy pool {name!r}. {known} Write a table [proxies.{name}].")
            opened = await asyncio.to_thread(
                open_pool, name, terms, self._root, self._environ, self._clock.now(), self._project
            )
            async with self._talking:
                await self._hear(name, opened, whole=True)
            self._open[name] = opened
            return opened

    # -- background tasks ------------------------------------------------------------------------------------------

    async def _hurry(self) -> None:
        """Send bans and failures at once."""
        while True:
            await self._urgent.wait()
            self._urgent.clear()
            await self._unharmed(self.flush)

    async def _tell_regularly(self) -> None:
        while True:
            await self._clock.sleep(TELL_EVERY.total_seconds())
            if self._outbox:
                await self._unharmed(self.flush)

    async def _hear_regularly(self) -> None:
        heard_all_at = self._clock.monotonic()
        while True:
            await self._clock.sleep(HEAR_EVERY.total_seconds())
            whole = self._clock.monotonic() - heard_all_at >= HEAR_ALL_EVERY.total_seconds()
            if whole:
                heard_all_at = self._clock.monotonic()
            await self._unharmed(partial(self._hear_all, whole=whole))

    async def _look_regularly(self) -> None:
        while True:
            await self._clock.sleep(LOOK_AT_FILES_EVERY.total_seconds())
            for name, opened in list(self._open.items()):
                await self._unharmed(partial(self._look, name, opened))

    async def _hear_all(self, *, whole: bool) -> None:
        for name, opened in list(self._open.items()):
            async with self._talking:
                await self._hear(name, opened, whole=whole)

    async def _hear(self, name: str, opened: ListedPool | GatewayPool, *, whole: bool) -> None:
        proxies, sessions = (0.0, 0.0) if whole else self._heard.get(name, (0.0, 0.0))
        rows = await self._book.health(name, max(0.0, proxies - OVERLAP))
        at_sites = await self._book.at_sites(name, max(0.0, proxies - OVERLAP))  # a report changes both
        now = self._clock.now()
        opened.learn(rows, now, whole=whole)
        opened.marks.learn(at_sites, whole=whole)
        # Reports waiting here are not in the answer: none is sent while health is read.
        heard = None if whole else {row.name for row in rows}
        for report in self._outbox.waiting(name, heard):
            opened.count(report, now)
        if isinstance(opened, GatewayPool):
            renewals = await self._book.renewals(name, max(0.0, sessions - OVERLAP))
            opened.learn_renewals(renewals)
            sessions = max((row.changed_at for row in renewals), default=sessions)
        self._heard[name] = (max((row.changed_at for row in rows), default=proxies), sessions)

    async def _look(self, name: str, opened: ListedPool | GatewayPool) -> None:
        try:
            if await asyncio.to_thread(opened.has_changed):
                opened.reread(self._clock.now())
                self._told.pop(name, None)
        except Misconfigured as error:
            self._say(name, f"{error} Until that is fixed, the proxies that were read before are used.")

    async def _unharmed(self, work: Callable[[], Awaitable[None]]) -> None:
        """Errors in background tasks must not affect pages."""
        try:
            await work()
        except Transient:
            pass  # the worker itself reports that the state does not answer; reports are sent later
        except Exception as error:
            self._say("", str(error) if isinstance(error, GossamerError) else f"{type(error).__name__}: {error}")

    def _say(self, pool: str, words: str) -> None:
        """Report a message once, until there is a different one."""
        if self._told.get(pool) != words:
            self._told[pool] = words
            self._troubles.emit(events.Trouble(at=self._clock.now(), stage="proxies", message=words))

    def _note_use(self, fingerprint: bytes, name: str) -> None:
        self._tried[fingerprint] = self._tried.get(fingerprint, frozenset()) | {name}
        self._tried.move_to_end(fingerprint)
        while len(self._tried) > MAX_PAGES:
            self._tried.popitem(last=False)
        self._outbox.use(fingerprint, name)


def without_secrets(words: str, proxy: Proxy) -> str:
    """The text, short, on one line, and without the proxy's credentials in any form that a driver may use."""
    text = " ".join(words.split())
    pair = f"{proxy.username}:{proxy.password}"
    secrets = (b64encode(pair.encode("utf-8", "replace")).decode(), pair, proxy.password, proxy.username)
    for secret in secrets:
        for spelling in (secret, quote(secret, safe="")):
            if len(spelling) >= 3:
                text = text.replace(spelling, "***")
    return text.encode("utf-8", "replace").decode()[:MAX_WORDS]

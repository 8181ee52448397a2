"""The sessions of a job, as the journeys of one process use them.

What it does: caches each session that its pages name, reads it again at most once a second, and writes back what a page
changed, cookie by cookie. Makes sure that a session is logged in before its pages are fetched: one worker of the fleet
logs in (login.py), the pages of all others wait.
How it fails: SessionWaits (the page goes back to the queue and uses up no attempt), LoginFailed (the page is given up),
BackendUnavailable. How it recovers: everything is in the state. Cookies that could not be written are written with the
next page.

A page is fetched under a generation and a login of its session. A response to an older one changes nothing: the cookie
of a visitor that was logged out must not replace the one that the login set.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

import msgspec

from ..clock import Clock
from ..errors import BackendUnavailable, GossamerError, LoginFailed
from ..fetch.cookies import CookieChanges, CookieJar
from ..fetch.sessions import (
    MOST_BYTES,
    MOST_COOKIES,
    SessionBook,
    begin_login,
    end_login,
    fail_login,
    headers_for,
    let_in,
    log_out,
    may_begin,
    merge,
    note_block,
    release_login,
    renew_login,
    touch,
)
from ..model.session import KeptSession, LoginLock
from .pacer import MAX_HOLD, TooEarly

FRESH = 1.0  # seconds for which a cached copy is used before the state is read again
LOOK = timedelta(milliseconds=250)  # between two looks at a login that another worker is making
AGAIN = timedelta(seconds=1)  # the shortest time that a page waits in the queue for a login
IN_MEMORY = 1000  # sessions
LOGINS_FOR_A_PAGE = 5  # a page that is logged out after this many logins is given up
TOUCH_AFTER = 3600.0  # seconds after which the state is told that a session is still in use
LOGIN = "\n"  # suffix of a session's name for its login, which has its own cookie jar until it is over


class SessionWaits(TooEarly):
    """The session is being logged in, or its login failed a moment ago."""

    reason = "login"


class SessionTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How sessions log in: how many logins in a row may fail before pages are given up, the first pause, how long a
    login may take, and when the lock of a dead worker expires."""

    tries: int = 3
    pause: timedelta = timedelta(seconds=5)
    timeout: timedelta = timedelta(minutes=2)
    lock: timedelta = timedelta(seconds=60)


class SessionVisit(msgspec.Struct, frozen=True):
    """The state of a session under which a page is fetched."""

    session: str
    generation: int
    logins: int


class LoginResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a login. `error` says why it failed; empty if it succeeded."""

    changes: CookieChanges = {}
    headers: dict[str, str] = {}
    sites: tuple[str, ...] = ()
    error: str = ""


RunLogin = Callable[[str, KeptSession], Awaitable[LoginResult]]
Told = Callable[[str, KeptSession, str], None]  # name, new state, why its login failed


class _SessionEntry:
    """A session cached in this process."""

    __slots__ = ("exchange", "jar", "kept", "read_at", "turn")

    def __init__(self, kept: KeptSession, jar: CookieJar) -> None:
        self.kept = kept
        self.jar = jar
        self.read_at = float("-inf")
        self.exchange = asyncio.Lock()  # around calls to the state: one page reads or writes for all that wait
        self.turn = asyncio.Lock()  # for pages that need the session to be logged in


class Sessions:
    """One per job and process. `told` is called for every login made here. Fulfils `routing.router.SessionJars`."""

    def __init__(
        self,
        book: SessionBook,
        clock: Clock,
        *,
        spider: str,
        worker: str = "",
        terms: SessionTerms | None = None,
        is_gone: Callable[[str], bool] = lambda worker: False,
        told: Told = lambda session, kept, error: None,
        may_log_in: bool = True,
    ) -> None:
        self._book = book
        self._clock = clock
        self._spider = spider
        self._worker = worker
        self.terms = terms or SessionTerms()
        self._is_gone = is_gone
        self._told = told
        self.may_log_in = may_log_in  # False while pages come from the archive
        self._entries: OrderedDict[str, _SessionEntry] = OrderedDict()
        self._login_jars: dict[str, CookieJar] = {}

    # -- what routes ask ------------------------------------------------------------------------------------------

    def jar(self, session: str) -> CookieJar:
        """The cookies of the session: the same for every route."""
        if session in self._login_jars:
            return self._login_jars[session]
        return self._entry(session).jar

    def visitor(self, session: str) -> str:
        """The name under which its proxy is chosen; each generation has a new one."""
        session = session.removesuffix(LOGIN)
        generation = self._entry(session).kept.generation
        return session if generation == 1 else f"{session}~{generation}"

    # -- before and after a page ----------------------------------------------------------------------------------

    async def enter(self, session: str, login: RunLogin | None) -> SessionVisit:
        """Prepare the session for a request; with `login`, make sure it is logged in. Raises SessionWaits,
        LoginFailed."""
        entry = self._entry(session)
        await self._refresh(entry)
        if login is not None and not entry.kept.logged_in:
            await self._wait_for_login(session, entry, login)
        if self._clock.now() - entry.kept.used_at > TOUCH_AFTER:
            self._adopt(entry, await self._book.change(entry.kept.name, touch))
        return SessionVisit(session, entry.kept.generation, entry.kept.logins)

    def headers(self, session: str, url: str) -> dict[str, str]:
        return headers_for(self._entry(session).kept, url)

    async def keep_cookies(self, session: str) -> None:
        """Write changed cookies to the state. While the state does not answer, keep them for the next page."""
        entry = self._entry(session)
        if not entry.jar.has_changes:
            return
        async with entry.exchange:
            jar, kept = entry.jar, entry.kept
            changes = jar.take_changes()
            try:
                new = await self._book.change(kept.name, merge(changes, generation=kept.generation, logins=kept.logins))
            except BackendUnavailable:
                jar.give_back(changes)
                raise
            self._adopt(entry, new)

    async def was_let_in(self, visit: SessionVisit, page: str) -> None:
        """The response was the page itself. Writes to the state only if that is news."""
        entry = self._entry(visit.session)
        kept = entry.kept
        news = kept.failures or kept.blocks or page in kept.turned_away or (visit.logins and not kept.proven)
        if news:
            self._adopt(entry, await self._book.change(kept.name, let_in(visit.logins, page)))

    async def was_turned_away(self, visit: SessionVisit, page: str) -> str:
        """The page was logged out. Returns why it is given up; empty if another login is worthwhile."""
        entry = self._entry(visit.session)
        pause = self.terms.pause.total_seconds()
        change, failed = log_out(visit.logins, page, pause), False

        def noted(session: KeptSession, now: float) -> KeptSession:
            nonlocal failed
            new = change(session, now)
            failed = new.failures > session.failures
            return new

        kept = await self._book.change(entry.kept.name, noted)
        self._adopt(entry, kept)
        times = kept.turned_away.get(page, 0)
        if times >= LOGINS_FOR_A_PAGE:
            return f"The page is logged out again after {times} logins of session {visit.session}."
        if failed:
            self._told(visit.session, kept, kept.error)
        # The page that saw the last login fail is given up at once: coming back to ask may take longer than the pause.
        return self._cannot_log_in(visit.session, kept) if failed and self._is_given_up(kept) else ""

    async def was_blocked(self, visit: SessionVisit, *, for_sure: bool) -> None:
        """A page of a pooled session was blocked."""
        entry = self._entry(visit.session)
        self._adopt(entry, await self._book.change(entry.kept.name, note_block(visit.generation, for_sure=for_sure)))

    # -- logins -------------------------------------------------------------------------------------------------

    async def _wait_for_login(self, session: str, entry: _SessionEntry, login: RunLogin) -> None:
        """One page of this process at a time checks whether the session is logged in, or logs it in."""
        try:
            async with asyncio.timeout(MAX_HOLD.total_seconds()):
                await entry.turn.acquire()
        except TimeoutError:
            raise SessionWaits(AGAIN) from None
        try:
            deadline = self._clock.monotonic() + MAX_HOLD.total_seconds()
            while not entry.kept.logged_in:
                entry.read_at = float("-inf")
                await self._refresh(entry)
                if entry.kept.logged_in:
                    return
                kept, now = entry.kept, self._clock.now()
                if self._is_given_up(kept) and now < kept.retry_at:
                    raise LoginFailed(self._cannot_log_in(session, kept))
                if may_begin(kept, now, self._is_gone):
                    made = await self.log_in(session, login)
                    if made is not None and self._is_given_up(made):
                        raise LoginFailed(self._cannot_log_in(session, made))
                    continue
                wait = max(kept.retry_at - now, LOOK.total_seconds())
                if self._clock.monotonic() + wait > deadline:
                    raise SessionWaits(max(timedelta(seconds=kept.retry_at - now), AGAIN))
                await self._clock.sleep(wait)
        finally:
            entry.turn.release()

    def _is_given_up(self, kept: KeptSession) -> bool:
        return not kept.logged_in and kept.failures >= self.terms.tries

    def _cannot_log_in(self, session: str, kept: KeptSession) -> str:
        return (
            f"Session {session} cannot log in: {kept.error} It was tried {kept.failures} times in a row. "
            f"Fix login(), then run `gossamer sessions login {self._spider}` and replay the page."
        )

    async def log_in(self, session: str, login: RunLogin) -> KeptSession | None:
        """Log the session in and return its new state; None if another worker is already doing so."""
        entry = self._entry(session)
        holder = uuid.uuid4().hex
        seconds = self.terms.lock.total_seconds()
        taken = await self._book.change(entry.kept.name, begin_login(self._worker, holder, seconds, self._is_gone))
        self._adopt(entry, taken)
        lock = taken.lock
        if lock is None or lock.holder != holder:
            return None
        jar = self._login_jars[session + LOGIN] = self._new_jar(taken)
        try:
            result = await self._under_lock(taken, lock, login(session, taken))
        except BaseException:
            # The lease on the page is lost, or the worker stops. If this call fails, the lock expires by itself.
            with suppress(GossamerError):
                await asyncio.shield(self._book.change(taken.name, release_login(lock.token)))
            raise
        finally:
            self._login_jars.pop(session + LOGIN, None)
        pause = self.terms.pause.total_seconds()
        if result.error:
            change = fail_login(lock.token, result.error, pause)
        else:
            change = end_login(lock.token, jar.take_changes(), result.headers, result.sites)
        kept = await self._book.change(taken.name, change)
        self._adopt(entry, kept)
        self._told(session, kept, result.error)
        return kept

    async def _under_lock(self, taken: KeptSession, lock: LoginLock, work: Awaitable[LoginResult]) -> LoginResult:
        """Run the login and renew its lock meanwhile. If the lock is lost, stop: another worker makes the login."""
        running = asyncio.ensure_future(work)
        renewing = asyncio.create_task(self._renew(taken.name, lock))
        try:
            await asyncio.wait((running, renewing), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                return await running
            renewing.result()  # the state did not answer for as long as the lock lasts
            return LoginResult(error="The login took so long that another worker has taken it over.")
        finally:
            for task in (running, renewing):
                task.cancel()
            await asyncio.gather(running, renewing, return_exceptions=True)

    async def _renew(self, name: str, lock: LoginLock) -> None:
        """Renew the lock; return when it is lost."""
        seconds = self.terms.lock.total_seconds()
        good_until = self._clock.monotonic() + seconds
        while True:
            await self._clock.sleep(seconds / 3)
            asked_at = self._clock.monotonic()
            try:
                kept = await self._book.change(name, renew_login(lock.token, seconds))
            except BackendUnavailable:
                if self._clock.monotonic() > good_until:
                    raise
                continue
            if kept.lock is None or kept.lock.token != lock.token:
                return
            good_until = asked_at + seconds

    # -- copies -------------------------------------------------------------------------------------------------

    def _entry(self, session: str) -> _SessionEntry:
        entry = self._entries.get(session)
        if entry is None:
            kept = KeptSession(name=f"{self._spider}/{session}")
            entry = self._entries[session] = _SessionEntry(kept, self._new_jar(kept))
            while len(self._entries) > IN_MEMORY:
                self._entries.popitem(last=False)
        self._entries.move_to_end(session)
        return entry

    def _new_jar(self, kept: KeptSession) -> CookieJar:
        jar = CookieJar(
            self._clock, max_per_site=MOST_COOKIES, max_total=MOST_COOKIES, max_bytes=MOST_BYTES, notes_changes=True
        )
        jar.replace(kept.cookies)
        return jar

    async def _refresh(self, entry: _SessionEntry) -> None:
        if self._clock.monotonic() - entry.read_at < FRESH:
            return
        async with entry.exchange:
            now = self._clock.monotonic()
            if now - entry.read_at >= FRESH:
                kept = await self._book.session(entry.kept.name)
                entry.read_at = now
                self._adopt(entry, kept or KeptSession(name=entry.kept.name), whole=True)

    def _adopt(self, entry: _SessionEntry, kept: KeptSession, *, whole: bool = False) -> None:
        """Replace the cached copy by `kept`, unless the cached one is newer. `whole`: accept an older revision, of a
        session that was cleared and began anew."""
        known = entry.kept
        if kept.revision == known.revision or (kept.revision < known.revision and not whole):
            return
        if (kept.generation, kept.logins) != (known.generation, known.logins) or kept.revision < known.revision:
            entry.jar = self._new_jar(kept)  # pages in flight keep the old jar, and their changes to it are lost
        else:
            entry.jar.replace(kept.cookies)
        entry.kept = kept

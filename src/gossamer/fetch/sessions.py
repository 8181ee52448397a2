"""Sessions on the shelf, and the changes that a session can undergo.

A `Change` is a pure function of the current session and the time of the backend's clock. It returns the new session;
the same object means no change.

How it fails: `BackendUnavailable`; whether the change was made is unknown. How it recovers: every change can be
repeated. If a worker dies while it logs a session in, its lock expires; changes under an older lock have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ..errors import BackendUnavailable
from ..model.session import SESSION, Cookie, KeptSession, LoginLock
from ..model.shelf import ABSENT, Shelf, ShelfKind, Trim
from ..model.url import site_of
from .cookies import CookieChanges

MOST_SESSIONS = 10_000  # beyond that the least recently used are forgotten
TRIES = 200  # of a change that others get ahead of; each time at least one of them succeeded
MOST_COOKIES = 500  # per session
MOST_BYTES = 256 * 1024  # of its cookies
MOST_HEADERS = 8 * 1024  # characters
MOST_TURNED_AWAY = 300  # pages
LONGEST_ERROR = 500
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 3600.0  # seconds after a failed login; doubles
BLOCKS_BEARABLE = 3  # in a row; then a session of a pool is retired

Change = Callable[[KeptSession, float], KeptSession]

_with = msgspec.structs.replace


class SessionBook:
    """The sessions of a project, shared by all workers."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._sessions = ShelfKind(shelf, SESSION, KeptSession)

    async def session(self, name: str) -> KeptSession | None:
        return await self._sessions.get(name)

    async def sessions(self) -> list[KeptSession]:
        """Every session, sorted by name."""
        return await self._sessions.all()

    async def change(self, name: str, change: Change) -> KeptSession:
        """Apply the change in one atomic step, and return the session as it is now. A new name creates a session;
        beyond MOST_SESSIONS the least recently used one is forgotten. `change` may be called several times."""
        for _ in range(TRIES):
            row, now = await self._shelf.get(SESSION, name), await self._shelf.time()
            before = self._sessions.read(row) if row is not None else KeptSession(name=name)
            new = change(before, now)
            if new is before:
                return before
            new = _with(new, revision=before.revision + 1, used_at=now, created_at=before.created_at or now)
            put = self._sessions.put(name, new, at=now, expects=row.stamp if row is not None else ABSENT)
            trim = (Trim(kind=SESSION, keep=MOST_SESSIONS),) if row is None else ()
            if await self._shelf.commit([put, *trim]):
                return new
        raise BackendUnavailable(f"The session {name} cannot be changed: other workers keep changing it.")

    async def forget(self, names: Sequence[str]) -> int:
        """Delete these sessions; return how many existed."""
        known = [name for name in names if await self._shelf.get(SESSION, name) is not None]
        await self._shelf.commit([self._sessions.drop(name) for name in known])
        return len(known)

    async def forget_unused(self, since: float) -> int:
        """Delete the sessions not used since that time; return their number."""
        unused = await self._sessions.timed(until=since, limit=MOST_SESSIONS)
        return await self.forget([one.name for one in unused if one.used_at < since])


def header_place(url: str) -> str:
    """Where the headers of a login at `url` may be sent: to its site, and over https only if `url` is https."""
    return f"https://{site_of(url)}" if url.startswith("https:") else site_of(url)


def headers_for(session: KeptSession, url: str) -> dict[str, str]:
    """The session's headers for a request to `url`."""
    return session.headers if {site_of(url), header_place(url)} & set(session.header_sites) else {}


def touch(session: KeptSession, now: float) -> KeptSession:
    """Mark the session as used now."""
    return _with(session, used_at=now)


def merge(changes: CookieChanges, *, generation: int = 1, logins: int = 0) -> Change:
    """Merge the cookies one by one: changes that others made meanwhile are kept. Changes from an older generation or
    login are dropped."""

    def change(session: KeptSession, now: float) -> KeptSession:
        if not changes or (session.generation, session.logins) != (generation, logins):
            return session
        return _with(session, cookies=_merged(session.cookies, changes, now))

    return change


def _merged(cookies: Sequence[Cookie], changes: CookieChanges, now: float) -> tuple[Cookie, ...]:
    held = {cookie.key: cookie for cookie in cookies if cookie.expires is None or cookie.expires > now}
    for key, cookie in changes.items():
        if cookie is None:
            held.pop(key, None)
        else:
            held[key] = cookie
    kept = list(held.values())
    size = sum(cookie.size for cookie in kept)
    while kept and (len(kept) > MOST_COOKIES or size > MOST_BYTES):
        size -= kept.pop(0).size  # the oldest
    return tuple(kept)


# -- logins ----------------------------------------------------------------------------------------------------------


def may_begin(session: KeptSession, now: float, is_gone: Callable[[str], bool]) -> bool:
    """Is a login due, and no other worker making it?"""
    if session.logged_in or now < session.retry_at:
        return False
    return session.lock is None or session.lock.until <= now or is_gone(session.lock.worker)


def begin_login(worker: str, holder: str, seconds: float, is_gone: Callable[[str], bool]) -> Change:
    """Take the lock, if it is free. `holder` distinguishes this login from others of the same worker."""

    def change(session: KeptSession, now: float) -> KeptSession:
        if not may_begin(session, now, is_gone):
            return session
        lock = LoginLock(worker=worker, token=session.tokens + 1, until=now + seconds, holder=holder)
        return _with(session, lock=lock, tokens=lock.token)

    return change


def renew_login(token: int, seconds: float) -> Change:
    """Extend the lock, if it is still ours."""

    def change(session: KeptSession, now: float) -> KeptSession:
        lock = session.lock
        if lock is None or lock.token != token:
            return session
        return _with(session, lock=_with(lock, until=now + seconds))

    return change


def end_login(token: int, changes: CookieChanges, headers: dict[str, str], sites: Sequence[str]) -> Change:
    """The login succeeded. Its cookies and headers count from now on, unless the lock was lost meanwhile."""

    def change(session: KeptSession, now: float) -> KeptSession:
        if session.lock is None or session.lock.token != token:
            return session
        return _with(
            session,
            cookies=_merged(session.cookies, changes, now),
            headers=headers,
            header_sites=tuple(sites) if headers else (),
            logged_in=True,
            logged_in_at=now,
            logins=session.logins + 1,
            proven=False,
            lock=None,
            retry_at=0.0,
        )

    return change


def fail_login(token: int, error: str, first_pause: float = FIRST_PAUSE) -> Change:
    """The login failed; the next one waits, longer with each failure in a row."""

    def change(session: KeptSession, now: float) -> KeptSession:
        if session.lock is None or session.lock.token != token:
            return session
        return _failed(_with(session, lock=None), error, now, first_pause)

    return change


def release_login(token: int) -> Change:
    """The login was interrupted through no fault of its own: any worker may make it now."""

    def change(session: KeptSession, now: float) -> KeptSession:
        ours = session.lock is not None and session.lock.token == token
        return _with(session, lock=None) if ours else session

    return change


def _failed(session: KeptSession, error: str, now: float, first_pause: float) -> KeptSession:
    pause = min(first_pause * 2.0 ** min(session.failures, 20), LONGEST_PAUSE)
    return _with(
        session,
        failures=session.failures + 1,
        error=error[:LONGEST_ERROR],
        retry_at=now + pause,
    )


def log_out(seen: int, page: str, first_pause: float = FIRST_PAUSE) -> Change:
    """A page fetched under login number `seen` was logged out. If no page was ever let in under that login, it counts
    as failed."""

    def change(session: KeptSession, now: float) -> KeptSession:
        if session.logins != seen:
            return session  # a newer login exists
        away = {one: count for one, count in session.turned_away.items() if one != page}
        away[page] = session.turned_away.get(page, 0) + 1
        while len(away) > MOST_TURNED_AWAY:
            del away[next(iter(away))]
        told = _with(session, turned_away=away)
        if not session.logged_in:
            return told
        told = _with(told, logged_in=False)
        if session.proven or not seen:
            return told
        return _failed(told, "Pages are still logged out after login().", now, first_pause)

    return change


def let_in(seen: int, page: str) -> Change:
    """A page fetched under login number `seen` was not logged out."""

    def change(session: KeptSession, now: float) -> KeptSession:
        new = session
        if page in session.turned_away:
            new = _with(new, turned_away={one: count for one, count in session.turned_away.items() if one != page})
        if session.logins == seen and not (session.proven and not session.failures and not session.blocks):
            new = _with(new, proven=True, failures=0, error="", blocks=0)
        return new

    return change


def forget_login(session: KeptSession, now: float) -> KeptSession:
    """Forget the login and all failures: the next page logs in again."""
    return _with(session, logged_in=False, lock=None, failures=0, error="", retry_at=0.0, turned_away={})


# -- blocks ----------------------------------------------------------------------------------------------------------


def note_block(generation: int, *, for_sure: bool) -> Change:
    """A page of a pool's session was blocked. After a few in a row, or at once if `for_sure`, the session is retired: a
    new visitor begins under its name."""

    def change(session: KeptSession, now: float) -> KeptSession:
        if session.generation != generation:
            return session
        if not for_sure and session.blocks + 1 < BLOCKS_BEARABLE:
            return _with(session, blocks=session.blocks + 1)
        fresh = KeptSession(name=session.name, generation=generation + 1, tokens=session.tokens, logins=session.logins)
        return _with(fresh, created_at=now)

    return change

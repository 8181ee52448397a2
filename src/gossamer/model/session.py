"""A session: a named visitor, its cookies and headers, and the state of its login. Values are never printed."""

from __future__ import annotations

import msgspec

SESSION = "session"  # its kind on the shelf
CookieKey = tuple[str, str, str]  # domain, path, name


class Cookie(msgspec.Struct, frozen=True):
    """`expires` None means until its session ends. `domain` without `host_only` covers its subdomains."""

    name: str
    value: str
    domain: str
    path: str
    host_only: bool
    secure: bool
    expires: float | None
    http_only: bool = False
    same_site: str = ""  # Strict, Lax, None, or nothing

    @property
    def key(self) -> CookieKey:
        return (self.domain, self.path, self.name)

    @property
    def size(self) -> int:
        """Its approximate size in bytes."""
        return len(self.name) + len(self.value) + len(self.domain) + len(self.path) + 50

    def covers(self, host: str) -> bool:
        return self.domain == host or (not self.host_only and host.endswith(f".{self.domain}"))

    def __repr__(self) -> str:
        return f"Cookie({self.name!r}, domain={self.domain!r}, path={self.path!r}, value=***)"


class LoginLock(msgspec.Struct, frozen=True):
    """The right to log a session in until a time on the backend's clock. `token` fences it."""

    worker: str
    token: int
    until: float
    holder: str = ""  # identifies one login of that worker


class KeptSession(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session as the state keeps it. `name` is that of its spider, a slash, and the name that requests use.

    A session that was blocked is retired: its `generation` grows, and it begins anew. `logins` counts successful ones,
    so that a page that is logged out knows under which login it was fetched. A login is `proven` by the first page that
    was let in after it.
    """

    name: str
    generation: int = 1
    revision: int = 0  # grows with every change
    cookies: tuple[Cookie, ...] = ()
    headers: dict[str, str] = {}  # for the sites of `header_sites` only
    header_sites: tuple[str, ...] = ()  # with https:// in front: for a site that was contacted over TLS
    logged_in: bool = False
    logins: int = 0
    logged_in_at: float = 0.0
    proven: bool = False
    lock: LoginLock | None = None
    tokens: int = 0  # tokens given to locks so far
    failures: int = 0  # logins in a row that failed, or whose page was logged out
    error: str = ""  # of the last of them
    retry_at: float = 0.0  # no login before this time
    turned_away: dict[str, int] = {}  # page -> logins under which it was logged out; in hex, the newest last
    blocks: int = 0  # pages in a row that were blocked
    created_at: float = 0.0
    used_at: float = 0.0

    def __repr__(self) -> str:
        return f"KeptSession({self.name!r}, generation={self.generation}, cookies={len(self.cookies)})"


def without_lock(session: KeptSession) -> KeptSession:
    """The session as it is copied: without a lock, since the worker that held it is gone."""
    return msgspec.structs.replace(session, lock=None) if session.lock is not None else session

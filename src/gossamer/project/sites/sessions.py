"""The sessions of a project: listed with their login state, and cleared. session_login.py logs them in.

Values of cookies and headers are secrets and never shown. Every value has the shape that `--json` prints; times are ISO
8601. How it fails: Misconfigured for a session that does not exist, BackendUnavailable.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from ...clock import iso_time
from ...errors import GossamerError, Misconfigured
from ...model.session import Cookie, KeptSession
from ...settings import Settings
from ...units import many
from ..open import Project, is_crawled, open_project
from ..view_fields import view_of

SHOWN_AS = "***"


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """A session in a list. `failures` counts the failed logins in a row; `error` is that of the last one."""

    name: str  # spider/session
    logged_in: bool
    logins: int
    logged_in_at: str | None
    logging_in: str | None  # the worker that is logging it in
    cookies: int
    generation: int  # grows when a blocked session is replaced
    failures: int
    error: str
    retry_at: str | None
    used_at: str


class CookieView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str = SHOWN_AS
    domain: str
    path: str
    expires: str | None  # None: with the session
    flags: list[str]


class SessionDetail(SessionView, frozen=True, kw_only=True):
    cookie_list: list[CookieView]
    headers: dict[str, str]
    header_sites: list[str]


async def list_sessions(project: Project, wanted: str | None = None) -> list[SessionView]:
    """All sessions, those of a spider, or one; sorted by name."""
    return [session_view(one, project.clock.now()) for one in await _found(project, wanted)]


async def failing_sessions(project: Project) -> list[SessionView]:
    """Sessions whose last login failed, or led to no page."""
    return [one for one in await list_sessions(project) if one.failures]


async def login_troubles(settings: Settings) -> list[tuple[str, str]]:
    """Faults of logins, each with the next step. Faults of the backends are reported elsewhere."""
    failing: list[SessionView] = []
    if is_crawled(settings):
        with suppress(GossamerError):
            async with open_project(settings, to_look=True) as project:
                failing = await failing_sessions(project)
    return [
        (
            f"{one.name} cannot log in ({many(one.failures, 'failure')} in a row): {one.error}",
            f"Fix login(), then: gossamer sessions login {one.name.partition('/')[0]}",
        )
        for one in failing
    ]


async def session_detail(project: Project, wanted: str) -> SessionDetail:
    """Everything about a session but its secrets. Raises Misconfigured."""
    found = await _found(project, wanted)
    if len(found) != 1:
        names = ", ".join(one.name for one in (found or await project.state.sessions.sessions())[:10])
        what = f"means several sessions: {names}." if found else f"is not a session; there is {names or 'none'}."
        raise Misconfigured(f"{wanted} {what} Name one of them.")
    (kept,) = found
    return SessionDetail(
        **msgspec.structs.asdict(session_view(kept, project.clock.now())),
        cookie_list=[_cookie(one) for one in sorted(kept.cookies, key=lambda one: one.key)],
        headers=dict.fromkeys(sorted(kept.headers), SHOWN_AS),
        header_sites=list(kept.header_sites),
    )


async def clear_sessions(project: Project, wanted: str | None) -> list[str]:
    """Delete sessions with all their cookies; None: all of them. Workers start anew with their next page."""
    names = [one.name for one in await _found(project, wanted)]
    if wanted is not None and not names:
        raise Misconfigured(f"{wanted} is neither a session nor a spider with sessions. See `gossamer sessions list`.")
    await project.state.sessions.forget(names)
    return names


async def _found(project: Project, wanted: str | None) -> list[KeptSession]:
    found = await project.state.sessions.sessions()
    if wanted is None:
        return found
    exact = [one for one in found if one.name == wanted]
    return exact or [one for one in found if wanted in one.name.split("/", 1)]


def session_view(kept: KeptSession, now: float) -> SessionView:
    lock = kept.lock if kept.lock is not None and kept.lock.until > now else None
    return view_of(
        SessionView,
        kept,
        "used_at",
        logged_in_at=iso_time(kept.logged_in_at) if kept.logged_in_at else None,
        logging_in=lock.worker if lock is not None else None,
        cookies=len(kept.cookies),
        retry_at=iso_time(kept.retry_at) if kept.retry_at > now else None,
    )


def _cookie(cookie: Cookie) -> CookieView:
    flags = {
        "Secure": cookie.secure, "HttpOnly": cookie.http_only, "host only": cookie.host_only,
        f"SameSite={cookie.same_site}": bool(cookie.same_site),
    }  # fmt: skip
    return CookieView(
        name=cookie.name,
        domain=cookie.domain,
        path=cookie.path,
        expires=iso_time(cookie.expires) if cookie.expires is not None else None,
        flags=[flag for flag, is_set in flags.items() if is_set],
    )

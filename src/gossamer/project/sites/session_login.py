"""Logs sessions in by hand: runs a spider's `login()` once, without a crawl. Loads fetch code."""

from __future__ import annotations

from datetime import timedelta

from ...crawl.login import login_of, logs_in
from ...errors import Misconfigured
from ...fetch.contract import Gate
from ...fetch.sessions import forget_login
from ...frontier.admission import LinkScope
from ...model.events import EventSink
from ...parse.spider import Spider, session_names
from ...settings import Settings
from ..open import open_project
from ..wiring import open_context, sink_of
from .sessions import SessionView, session_view


async def log_in(
    settings: Settings, spider: Spider, session: str | None = None, events: EventSink | None = None
) -> list[SessionView]:
    """Log in the sessions of a spider, or one of them, now, whatever their state. Raises Misconfigured."""
    if not logs_in(spider):
        raise Misconfigured(f"Spider {spider.name} has no login(self, session); write one, or just crawl.")
    names = [session] if session is not None else session_names(spider)
    if not names:
        raise Misconfigured(f"Spider {spider.name} declares no session. Name one: --session NAME.")
    made: list[SessionView] = []
    async with (
        open_project(settings, spider=spider) as project,
        sink_of(project, events) as sink,
        open_context(project, spider, "", LinkScope(), sink, events) as context,
    ):

        async def gate_for(site: str, asked: timedelta | None) -> Gate:
            return await context.unleased_turns.gate(site, lambda: None)

        login = login_of(context, gate_for=gate_for, emit=lambda kind, /, **facts: None)
        assert login is not None
        for name in names:
            await project.state.sessions.change(f"{spider.name}/{name}", forget_login)
            await context.sessions.enter(name, None)
            kept = await context.sessions.log_in(name, login)
            if kept is None:
                raise Misconfigured(f"Another worker is logging {name} in at the moment. Try again soon.")
            made.append(session_view(kept, project.clock.now()))
    return made

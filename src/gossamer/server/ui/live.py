"""Live pages: the regions of a view, rendered at most once a second for all its viewers, and sent when they changed.

What it does: tabs with the same view, filters and permissions share one rendering. A tab sends the versions that it
shows, so the server keeps no state about it: it may reconnect, also to another replica, and gets what is new. All
renderings together take at most a small share of a core: with many views open, each is refreshed less often.
How it fails: the browser reopens a broken stream. A region whose store is unavailable says so in its place. A tab whose
page no longer exists is informed once.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from functools import partial
from hashlib import blake2b

import msgspec

from ...clock import Clock
from ..answers import ApiError

LOOK = 1.0  # seconds between two renderings of a view, at least
RAREST = 30.0  # seconds between two renderings of a view, at most
SHARE = 0.03  # share of one core for all renderings together
SILENCE = 15.0  # seconds without a change after which a keep-alive is sent
LONGEST_STREAM = 600.0  # seconds; then the browser reconnects
# Browsers open six connections to a server over HTTP/1.1. Beyond this many streams of one user, a tab gets what is new
# and is disconnected; it reconnects by itself.
STREAMS_EACH = 3
ASK_AGAIN = 3000  # milliseconds

Regions = dict[str, str]  # their HTML by name
Render = Callable[[Collection[str]], Awaitable[Regions]]  # of the named regions
NONE_SLOW: Mapping[str, float] = {}


def version_of(html: str) -> str:
    return blake2b(html.encode(), digest_size=6).hexdigest()


class _Rendering:
    """The newest rendering of one view, and its number of viewers."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.regions: Regions = {}
        self.rendered: dict[str, float] = {}  # when each region was
        self.at: float | None = None
        self.cost = 0.0  # by the monotonic clock of this process
        self.watchers = 0


class Hub:
    """Streams of all live pages of this server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shown: dict[str, _Rendering] = {}
        self._streams: Counter[str] = Counter()  # by user
        self._closing = asyncio.Event()

    def close(self) -> None:
        """The server stops: disconnect all tabs."""
        self._closing.set()

    async def stream(
        self,
        key: str,
        render: Render,
        names: Collection[str],
        *,
        person: str,
        seen: dict[str, str],
        holds: Callable[[], Awaitable[bool]],
        slow: Mapping[str, float] = NONE_SLOW,
    ) -> AsyncIterator[bytes]:
        """Events with those of the regions `names` that differ from `seen`. `key` identifies the rendering; `holds`
        checks that the user may still see it; `slow` regions are rendered that many seconds apart."""
        self._forget_unwatched()
        shown = self._shown.setdefault(key, _Rendering())
        shown.watchers += 1
        brief = self._streams[person] >= STREAMS_EACH
        self._streams[person] += 1
        try:
            async for event in self._events(
                shown, partial(self._refresh, shown, render, names, slow), seen, brief, holds
            ):
                yield event
        finally:
            shown.watchers -= 1
            self._streams[person] -= 1
            if not self._streams[person]:
                del self._streams[person]

    def note(self, key: str, regions: Regions) -> None:
        """A page was rendered just now: tabs on the same view get nothing older."""
        if (shown := self._shown.get(key)) is not None:
            shown.regions, shown.at = regions, self._clock.monotonic()
            shown.rendered = dict.fromkeys(regions, shown.at)

    def _forget_unwatched(self) -> None:
        """Drop old renderings. One outlives its last tab for a while: a tab that reconnects then costs nothing."""
        oldest = self._clock.monotonic() - RAREST
        self._shown = {
            key: one for key, one in self._shown.items() if one.watchers or (one.at is not None and one.at > oldest)
        }

    async def _events(
        self,
        shown: _Rendering,
        refresh: Callable[[], Awaitable[None]],
        seen: dict[str, str],
        brief: bool,
        holds: Callable[[], Awaitable[bool]],
    ) -> AsyncIterator[bytes]:
        began = told_at = self._clock.monotonic()
        seen = dict(seen)
        yield b"retry: %d\n\n" % (ASK_AGAIN if brief else 1000)
        while self._clock.monotonic() - began < LONGEST_STREAM and await holds():
            try:
                await refresh()
            except ApiError:
                yield b"event: gone\ndata: \n\n"
                return
            fresh = {name: html for name, html in shown.regions.items() if seen.get(name) != version_of(html)}
            if fresh:
                seen |= {name: version_of(html) for name, html in fresh.items()}
                told_at = self._clock.monotonic()
                yield event_of(fresh, seen)
            elif self._clock.monotonic() - told_at >= SILENCE:
                told_at = self._clock.monotonic()
                yield b": still there\n\n"
            if brief or self._closing.is_set():
                return
            try:
                await asyncio.wait_for(self._closing.wait(), self._pause())
                return
            except TimeoutError:
                pass

    def _pause(self) -> float:
        """The pause between two renderings: the more they cost together, the longer."""
        return min(RAREST, max(LOOK, sum(one.cost for one in self._shown.values()) / SHARE))

    async def _refresh(
        self, shown: _Rendering, render: Render, names: Collection[str], slow: Mapping[str, float]
    ) -> None:
        async with shown.lock:
            now = self._clock.monotonic()
            if shown.at is not None and now - shown.at < self._pause() * 0.9:
                return
            due = [name for name in names if now - shown.rendered.get(name, -math.inf) >= slow.get(name, 0.0)]
            wall, used = time.monotonic(), time.process_time()
            shown.regions = shown.regions | await render(due)
            shown.rendered |= dict.fromkeys(due, now)
            # CPU time includes other tasks, elapsed time includes waiting: the smaller is the better estimate.
            shown.cost = min(time.monotonic() - wall, time.process_time() - used)
            shown.at = self._clock.monotonic()


def event_of(regions: Regions, seen: dict[str, str]) -> bytes:
    """One event. Its id lists the versions that the tab now shows; the browser sends it when it reconnects."""
    versions = ",".join(f"{name}:{version}" for name, version in sorted(seen.items()))
    return b"id: %b\nevent: regions\ndata: %b\n\n" % (versions.encode(), msgspec.json.encode(regions))


def seen_of(text: str) -> dict[str, str]:
    """The versions that a tab says it shows."""
    pairs = (pair.partition(":") for pair in text[:2000].split(",") if ":" in pair)
    return {name: version for name, _, version in pairs}

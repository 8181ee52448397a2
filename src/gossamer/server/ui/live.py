"""Live pages: the regions of a view, rendered at most once a second for all who look at it, sent where they changed.

What it does: tabs of the same view, filters and sight share one rendering. A tab names the versions that it shows, so
nothing is remembered about it: it may connect again, also to another replica, and gets what is new. All renderings
together take at most a small share of a core: with many views open, each is refreshed less often.
How it fails: a stream that breaks is opened again by the browser. A region whose store is away says so by itself. A
page that is not there any more is told once.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import blake2b

import msgspec

from ...clock import Clock
from ..answers import ApiError

LOOK = 1.0  # seconds between two renderings of a view, at least
RAREST = 30.0  # seconds between two renderings of a view, at most
SHARE = 0.03  # of one core, for all renderings together
SILENCE = 15.0  # seconds without a change after which a sign of life is sent
LONGEST_STREAM = 600.0  # seconds; then the browser connects again
# Browsers open six connections to a server over HTTP/1.1. Beyond these streams of one person, a tab gets what is new
# and is let go; it asks again by itself.
STREAMS_EACH = 3
ASK_AGAIN = 3000  # milliseconds

Regions = dict[str, str]  # their HTML by name
Render = Callable[[], Awaitable[Regions]]


def version_of(html: str) -> str:
    return blake2b(html.encode(), digest_size=6).hexdigest()


class _Rendering:
    """The newest rendering of one view, and how many look at it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.regions: Regions = {}
        self.at: float | None = None
        self.cost = 0.0  # seconds of this process
        self.watchers = 0


class Hub:
    """Streams of all live pages of this server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shown: dict[str, _Rendering] = {}
        self._streams: Counter[str] = Counter()  # by person
        self._closing = asyncio.Event()

    def close(self) -> None:
        """The server ends: let all tabs go."""
        self._closing.set()

    async def stream(
        self, key: str, render: Render, *, person: str, seen: dict[str, str], holds: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[bytes]:
        """Events with the regions that differ from `seen`. `key` names what is rendered; `holds` says whether the
        person may still see it."""
        self._forget_unwatched()
        shown = self._shown.setdefault(key, _Rendering())
        shown.watchers += 1
        brief = self._streams[person] >= STREAMS_EACH
        self._streams[person] += 1
        try:
            async for event in self._events(shown, render, seen, brief, holds):
                yield event
        finally:
            shown.watchers -= 1
            self._streams[person] -= 1
            if not self._streams[person]:
                del self._streams[person]

    def note(self, key: str, regions: Regions) -> None:
        """A page was made just now: tabs that look at the same are not shown anything older."""
        if (shown := self._shown.get(key)) is not None:
            shown.regions, shown.at = regions, self._clock.monotonic()

    def _forget_unwatched(self) -> None:
        """A rendering outlives its last tab for a while: one that was let go asks again, and costs nothing then."""
        oldest = self._clock.monotonic() - RAREST
        self._shown = {
            key: one for key, one in self._shown.items() if one.watchers or (one.at is not None and one.at > oldest)
        }

    async def _events(
        self, shown: _Rendering, render: Render, seen: dict[str, str], brief: bool, holds: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[bytes]:
        began = told_at = self._clock.monotonic()
        seen = dict(seen)
        yield b"retry: %d\n\n" % (ASK_AGAIN if brief else 1000)
        while self._clock.monotonic() - began < LONGEST_STREAM and await holds():
            try:
                await self._refresh(shown, render)
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
        """Between two renderings: longer, the more all of them cost."""
        return min(RAREST, max(LOOK, sum(one.cost for one in self._shown.values()) / SHARE))

    async def _refresh(self, shown: _Rendering, render: Render) -> None:
        async with shown.lock:
            now = self._clock.monotonic()
            if shown.at is not None and now - shown.at < self._pause() * 0.9:
                return
            wall, used = time.monotonic(), time.process_time()
            shown.regions = await render()
            # Both count too much, the one what others did meanwhile, the other waiting: the smaller is nearer.
            shown.cost = min(time.monotonic() - wall, time.process_time() - used)
            shown.at = self._clock.monotonic()


def event_of(regions: Regions, seen: dict[str, str]) -> bytes:
    """One event. Its id names all versions that the tab shows now: the browser says it when it connects again."""
    versions = ",".join(f"{name}:{version}" for name, version in sorted(seen.items()))
    return b"id: %b\nevent: regions\ndata: %b\n\n" % (versions.encode(), msgspec.json.encode(regions))


def seen_of(text: str) -> dict[str, str]:
    """The versions that a tab names."""
    pairs = (pair.partition(":") for pair in text[:2000].split(",") if ":" in pair)
    return {name: version for name, _, version in pairs}

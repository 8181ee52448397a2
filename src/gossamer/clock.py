"""Time as a dependency: code asks a clock, tests move it. Also `Backoff`, growing pauses, and `iso_time`, the format of
times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec

from .units import within_calendar

_JULIAN_EPOCH = 210_866_760_000_000.0  # milliseconds from the first Julian day to 1970: what SQLite counts from


def iso_time(seconds: float) -> str:
    """ISO 8601 in UTC: 2027-01-31T12:00:00.123Z. A time outside the calendar becomes its first or last day.

    Rounded as the views of SQLite do it, so that a time is the same text in an export and in SQL.
    """
    milliseconds = int(within_calendar(seconds) * 1000.0 + _JULIAN_EPOCH + 0.5) - int(_JULIAN_EPOCH)
    shown = datetime.fromtimestamp(milliseconds // 1000, UTC).replace(microsecond=milliseconds % 1000 * 1000)
    return shown.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_NOT_YET_VALID, _EXPIRED = 9, 10  # codes of OpenSSL


def certificate_out_of_time(error: BaseException | None) -> str:
    """The words for a server's certificate that was refused because of the time, which may be this machine's fault; ""
    for every other error. The reason may be a cause of `error`."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        code = getattr(error, "verify_code", 0)
        if code in (_NOT_YET_VALID, _EXPIRED):
            fault = "is not valid yet" if code == _NOT_YET_VALID else "has expired"
            return (
                f"its certificate {fault} by this machine's clock, which says {iso_time(time.time())}. "
                "Set the clock, or renew the certificate."
            )
        error = error.__cause__ or error.__context__
    return ""


class Clock(Protocol):
    """Two readings: `now` is wall time that other processes share, `monotonic` measures durations."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock's time."""
        ...


class SystemClock:
    """The machine's own clock."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class ServerClock:
    """This machine's clock until `agree` is called; from then on another clock's time, advanced by the monotonic clock.

    So a worker whose own wall clock is wrong, or is set while it runs, still agrees with the others.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset: float | None = None
        self.monotonic = clock.monotonic  # read a dozen times per page

    def agree(self, reading: float) -> None:
        """Set the time to `reading`."""
        self._offset = reading - self._clock.monotonic()

    def correct(self, reading: float, asked_at: float) -> None:
        """The agreed clock showed `reading` at some time between `asked_at` on the monotonic clock and now.

        It may have been set since, or this machine may have slept. Without an agreed clock this does nothing.
        """
        if self._offset is not None:
            self._offset = reading - (asked_at + self._clock.monotonic()) / 2

    @property
    def ahead(self) -> float:
        """Seconds by which this machine's wall clock is ahead of the agreed one; 0.0 without an agreed clock."""
        return self._clock.now() - self.now() if self._offset is not None else 0.0

    def now(self) -> float:
        return self._clock.now() if self._offset is None else self._clock.monotonic() + self._offset

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


def machine_ahead(clock: Clock) -> float:
    """Seconds by which this machine's wall clock is ahead of the agreed one, negative if it is behind."""
    return clock.ahead if isinstance(clock, ServerClock) else 0.0


class VirtualClock:
    """A clock that stands still until a test moves it with `advance`."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._now = start
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            return
        waiter = asyncio.get_running_loop().create_future()
        sleeper = (self._now + seconds, waiter)
        self._sleepers.append(sleeper)
        try:
            await waiter
        finally:
            if sleeper in self._sleepers:  # it was cancelled
                self._sleepers.remove(sleeper)

    @property
    def sleepers(self) -> int:
        """How many tasks are sleeping on this clock."""
        return len(self._sleepers)

    @property
    def next_due(self) -> float:
        """When the first of them wakes. There must be one."""
        return min(at for at, _ in self._sleepers)

    def advance(self, seconds: float) -> None:
        """Move time forward and wake every sleeper whose time has come."""
        self._now += seconds
        due = [waiter for at, waiter in self._sleepers if at <= self._now]
        self._sleepers = [(at, waiter) for at, waiter in self._sleepers if at > self._now]
        for waiter in due:
            if not waiter.done():
                waiter.set_result(None)


class Backoff(msgspec.Struct, frozen=True):
    """Pauses between retries: `first`, then twice the previous pause, never above `longest`."""

    first: timedelta
    longest: timedelta

    def pause(self, failures: int, *, jitter: float = 1.0) -> timedelta:
        """The pause after that many failures in a row, 1 or more.

        `jitter` in [0, 1) is a random number that shortens the pause by up to half, so that callers that failed
        together do not retry together.
        """
        whole = min(self.first * (1 << min(failures - 1, 30)), self.longest)
        return whole * (0.5 + jitter / 2)

    def pauses(self) -> Iterator[timedelta]:
        """The pauses after the first failure, the second and so on, endlessly."""
        failures = 0
        while True:
            failures += 1
            yield self.pause(failures)

"""Structured logs: one JSON object a line, for every event, plus a summary every few seconds."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from ..clock import Clock
from ..model import events
from .tally import Tally

SUMMARY_EVERY = 10.0  # seconds
MOMENTS = ("at", "due")  # fields that are points in time; the other numbers are counts, sizes and seconds

_LEVELS = {
    "ScheduleFailed": "error",
    "Buried": "error",
    "Trouble": "error",
    "Retried": "warning",
    "LeaseLapsed": "warning",
    "Spooled": "warning",
    "Blocked": "warning",
    "BudgetReached": "error",
}


class JsonLog:
    """Writes events as they come. Per page: seconds in each stage, items. Per interval: pages and items per second."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._tally = Tally(clock)
        self._summed_up = clock.monotonic()
        self._items_then = 0
        self._closed = False  # nobody reads the log any more

    def emit(self, event: events.Event) -> None:
        self._tally.emit(event)
        kind = type(event).__name__
        facts = {name: value for name, value in msgspec.structs.asdict(event).items() if value != ""}
        facts |= {name: iso(facts[name]) for name in MOMENTS if name in facts}
        self._write({"level": _LEVELS.get(kind, "info"), "event": kind, **facts})
        if self._clock.monotonic() - self._summed_up >= SUMMARY_EVERY:
            self.summary()

    def summary(self) -> None:
        """Write the state of things: what this process did so far, and how fast."""
        tally, now = self._tally, self._clock.monotonic()
        span = max(now - self._summed_up, 1e-9)
        self._write(
            {
                "level": "info",
                "event": "Summary",
                "at": iso(self._clock.now()),
                "pages": tally.pages,
                "pages_per_second": round(tally.rate(), 2),
                "items": tally.items,
                "items_per_second": round((tally.items - self._items_then) / span, 2),
                "bytes": tally.bytes,
                "tokens": round(tally.tokens, 3),
                "blocked": tally.blocked,
                "retries": tally.retries,
                "dead": sum(tally.reasons.values()),
                "stage_seconds": {stage: round(seconds, 3) for stage, seconds in tally.seconds.items()},
            }
        )
        self._summed_up, self._items_then = now, tally.items

    def _write(self, line: dict[str, object]) -> None:
        if self._closed:
            return
        try:
            text = msgspec.json.encode(line).decode()
        except UnicodeEncodeError:  # half a character, from a spider or a page; as an escape it can be written
            text = json.dumps(line)
        try:
            self._stream.write(text + "\n")
            self._stream.flush()
        except BrokenPipeError:  # whoever read it has left; a crawl does not fail for that
            self._closed = True


def iso(at: float) -> str:
    """A moment as people and log systems read it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

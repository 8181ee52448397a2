"""Structured logs: one JSON object per line, for every event and every line that a spider logs, plus a summary every
few seconds."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from ..clock import Clock
from ..model import events
from ..units import visible_json
from .counts import EventCounts

SUMMARY_EVERY = 10.0  # seconds
MOMENTS = ("at", "due")  # fields that are points in time; other numbers are counts, sizes and seconds

SPIDERS = "gossamer.spider"  # the parent logger of all spiders: parse/page_context.py
LONGEST_LINE = 10_000  # characters of one line of a spider

_LEVELS = {
    "ScheduleFailed": "error",
    "Buried": "error",
    "SiteAway": "warning",
    "Trouble": "error",
    "Retried": "warning",
    "LeaseLapsed": "warning",
    "Spooled": "warning",
    "Blocked": "warning",
    "BudgetReached": "error",
    "LoginFailed": "error",
    "AlertChanged": "warning",
}


class JsonLog:
    """An EventSink that writes every event as it comes, and periodically a summary with pages and items per second."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._counts = EventCounts(clock)
        self._summed_up = clock.monotonic()
        self._items_then = 0
        self._closed = False  # the reader of the log is gone

    def emit(self, event: events.Event) -> None:
        self._counts.emit(event)
        kind = type(event).__name__
        facts = {name: value for name, value in msgspec.structs.asdict(event).items() if value != ""}
        facts |= {name: iso(facts[name]) for name in MOMENTS if name in facts}
        self._write({"level": _LEVELS.get(kind, "info"), "event": kind, **facts})
        if self._clock.monotonic() - self._summed_up >= SUMMARY_EVERY:
            self.summary()

    @contextmanager
    def hearing_spiders(self) -> Iterator[None]:
        """Inside the block, lines that spiders log (`self.log`) are included, from level info on."""
        logger, handler = logging.getLogger(SPIDERS), _SpiderLines(self)
        before = logger.level
        logger.addHandler(handler)
        if before == logging.NOTSET:
            logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)

    def line_of_spider(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # its arguments do not fit its format; that must not end the callback
            message = f"{record.msg} {record.args!r}"
        if record.exc_info:
            message = f"{message}\n{logging.Formatter().formatException(record.exc_info)}"
        facts = {
            "spider": getattr(record, "spider", record.name.removeprefix(f"{SPIDERS}.")),
            "job": getattr(record, "job", ""),
            "url": getattr(record, "page", ""),
            "message": message[:LONGEST_LINE],
        }
        told = {name: str(value) for name, value in facts.items() if value}
        self._write({"level": record.levelname.lower(), "event": "Logged", "at": iso(record.created), **told})

    def summary(self) -> None:
        """Write what this process has done so far, and how fast."""
        counts, now = self._counts, self._clock.monotonic()
        span = max(now - self._summed_up, 1e-9)
        self._write(
            {
                "level": "info",
                "event": "Summary",
                "at": iso(self._clock.now()),
                "pages": counts.pages,
                "pages_per_second": round(counts.rate(), 2),
                "items": counts.items,
                "items_per_second": round((counts.items - self._items_then) / span, 2),
                "bytes": counts.bytes,
                "tokens": round(counts.tokens, 3),
                "blocked": counts.blocked,
                "retries": counts.retries,
                "dead": sum(counts.reasons.values()),
                "stage_seconds": {stage: round(seconds, 3) for stage, seconds in counts.seconds.items()},
                "stage_items": dict(counts.stage_items),
                "stage_items_per_second": {
                    stage: round(count / counts.seconds[stage], 2)
                    for stage, count in counts.stage_items.items()
                    if counts.seconds[stage]
                },
            }
        )
        self._summed_up, self._items_then = now, counts.items

    def _write(self, line: dict[str, object]) -> None:
        if self._closed:
            return
        try:
            text = msgspec.json.encode(line).decode()
        except UnicodeEncodeError:  # a lone surrogate, from a spider or a page; as an escape it can be written
            text = json.dumps(line)
        try:
            self._stream.write(visible_json(text) + "\n")
            self._stream.flush()
        except BrokenPipeError:  # the reader is gone; that does not fail a crawl
            self._closed = True


class _SpiderLines(logging.Handler):
    def __init__(self, log: JsonLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.line_of_spider(record)


def iso(at: float) -> str:
    """A moment in ISO 8601, UTC, with milliseconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

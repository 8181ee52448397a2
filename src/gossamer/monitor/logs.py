"""Structured logs: one JSON object per line, for every event and every line that is logged, plus a summary every few
seconds. A page that goes well is one line: what its stages said is in the line that settles it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from ..clock import Clock
from ..model import events
from ..model.run_log import LEVELS
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


_STAGES = {events.Fetched: "fetch", events.Parsed: "parse", events.Stored: "store"}
_SETTLES = (events.Completed, events.Retried, events.Buried, events.Released)
MOST_PAGES = 10_000  # in progress, whose stages are remembered; of the oldest beyond that the line says less


class JsonLog:
    """An EventSink that writes every event as it comes, and periodically a summary with pages and items per second.

    Lines below the level that `level` returns are left out; it may change meanwhile. At `debug`, each stage of a page
    is a line, too.
    """

    def __init__(self, stream: TextIO, clock: Clock, level: Callable[[], str] = lambda: "info") -> None:
        self._stream = stream
        self._clock = clock
        self.level = level
        self._spiders: SpiderLines | None = None  # while they are heard
        self._counts = EventCounts(clock)
        self._summed_up = clock.monotonic()
        self._items_then = 0
        self._pages: dict[
            tuple[str, str], dict[str, object]
        ] = {}  # what the stages of a page said, until it is settled
        self._closed = False  # the reader of the log is gone

    def emit(self, event: events.Event) -> None:
        self._counts.emit(event)
        level = self.level()
        if self._spiders is not None:
            self._spiders.hear_from(level)
        stage = _STAGES.get(type(event))
        if stage is not None:
            self._remember(event, stage)
        if stage is None or level == "debug":
            facts = {name: value for name, value in msgspec.structs.asdict(event).items() if value != ""}
            facts |= {name: iso(facts[name]) for name in MOMENTS if name in facts}
            if isinstance(event, _SETTLES):
                facts = self._pages.pop((event.job, event.url), {}) | facts
            self._write({"level": "debug" if stage else level_of(event), "event": type(event).__name__, **facts})
        if self._clock.monotonic() - self._summed_up >= SUMMARY_EVERY:
            self.summary()

    def _remember(self, event: events.Event, stage: str) -> None:
        shared = events.Event.__struct_fields__
        said = {name: getattr(event, name) for name in event.__struct_fields__ if name not in shared}
        said[f"{stage}_seconds"] = said.pop("seconds")
        self._pages.setdefault((event.job, event.url), {}).update(said)
        if len(self._pages) > MOST_PAGES:
            del self._pages[next(iter(self._pages))]

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """Inside the block, lines that spiders log (`self.log`) are included, and what anything else logs or warns of,
        so that nothing is written that is not JSON."""
        root, others = logging.getLogger(), _OtherLines(self._line_of_other)
        root.addHandler(others)
        logging.captureWarnings(True)
        try:
            with hearing_spiders(self.line_of_spider, replaces=True) as self._spiders:
                yield
        finally:
            self._spiders = None
            logging.captureWarnings(False)
            root.removeHandler(others)

    def _line_of_other(self, record: logging.LogRecord) -> None:
        said = words_of_spider(record)
        facts = {"logger": record.name, "message": said["message"], "job": said["job"]}
        told = {name: value for name, value in facts.items() if value}
        self._write({"level": record.levelname.lower(), "event": "Logged", "at": iso(record.created), **told})

    def line_of_spider(self, record: logging.LogRecord) -> None:
        told = {name: value for name, value in words_of_spider(record).items() if value}
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
                "credits": round(counts.credits, 3),
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
        if self._closed or line["level"] in LEVELS[: LEVELS.index(self.level())]:
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


@contextmanager
def hearing_spiders(hear: Callable[[logging.LogRecord], None], *, replaces: bool = False) -> Iterator[SpiderLines]:
    """Inside the block, `hear` is given every line that spiders log (`self.log`), from level info on, or from another
    (`SpiderLines.hear_from`). Unless it `replaces` what else is done with them, that goes on as if nobody heard: at the
    levels that the program has set."""
    logger = logging.getLogger(SPIDERS)
    handler = SpiderLines(hear, replaces=replaces, before=logger.level, shows=logger.getEffectiveLevel())
    logger.addHandler(handler)
    _open(logger)
    logger.propagate = replaces and logger.propagate
    try:
        yield handler
    finally:
        was_first = next(one for one in logger.handlers if isinstance(one, SpiderLines)) is handler
        logger.removeHandler(handler)
        others = [one for one in logger.handlers if isinstance(one, SpiderLines)]
        if not others:
            logger.setLevel(handler.before)
        elif was_first:  # the next one outlives it, and takes its place
            others[0].before, others[0].shows = handler.before, handler.shows
        _open(logger)
        logger.propagate = all(one.replaces for one in others)


def _open(logger: logging.Logger) -> None:
    """Let through what its handlers hear: from info on unless the program has set a level, and debug in any case."""
    handlers = [one for one in logger.handlers if isinstance(one, SpiderLines)]
    if handlers:
        least, before = min(one.level for one in handlers), handlers[0].before
        logger.setLevel(least if before == logging.NOTSET or least < logging.INFO else before)


def words_of_spider(record: logging.LogRecord) -> dict[str, str]:
    """What a line of a spider says, and of which spider, job and page; "" for what it does not say."""
    try:
        message = record.getMessage()
    except Exception:  # its arguments do not fit its format; that must not end the callback
        message = f"{record.msg} {record.args!r}"
    if record.exc_info:
        message = f"{message}\n{logging.Formatter().formatException(record.exc_info)}"
    return {
        "spider": str(getattr(record, "spider", record.name.removeprefix(f"{SPIDERS}."))),
        "job": str(getattr(record, "job", "")),
        "url": str(getattr(record, "page", "")),
        "message": message[:LONGEST_LINE],
    }


class _OtherLines(logging.Handler):
    """Lines of everything but spiders."""

    def __init__(self, hear: Callable[[logging.LogRecord], None]) -> None:
        super().__init__(logging.WARNING)
        self._hear = hear

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith(SPIDERS):
            self._hear(record)


class SpiderLines(logging.Handler):
    """`before` is the level that was set, `shows` the one from which on lines were shown."""

    def __init__(self, hear: Callable[[logging.LogRecord], None], *, replaces: bool, before: int, shows: int) -> None:
        super().__init__(logging.INFO)
        self._hear = hear
        self.replaces = replaces
        self.before = before
        self.shows = shows

    def hear_from(self, level: str) -> None:
        """Debug, or as usual: from info on."""
        least = logging.DEBUG if level == "debug" else logging.INFO
        if least != self.level:
            self.setLevel(least)
            _open(logging.getLogger(SPIDERS))

    def emit(self, record: logging.LogRecord) -> None:
        self._hear(record)
        logger = logging.getLogger(SPIDERS)
        others = [one for one in logger.handlers if isinstance(one, SpiderLines)]
        first = next((one for one in others if not one.replaces), None)
        if first is not self or record.levelno < self.shows or logger.parent is None:
            return  # what replaces the others lets lines go on by itself; of several one passes them on
        if logger.parent.hasHandlers() or not any(one.replaces for one in others):
            logger.parent.callHandlers(record)


def level_of(event: events.Event) -> str:
    return _LEVELS.get(type(event).__name__, "info")


def iso(at: float) -> str:
    """A moment in ISO 8601, UTC, with milliseconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

"""What this process has done so far, counted from events: for the summary of a crawl and for the logs."""

from __future__ import annotations

from collections import Counter

import msgspec

from ..clock import Clock
from ..model import events

ADDED = ("pages", "done", "items", "changed", "bytes", "retries", "blocked", "credits", "faults", "gone")
MOST_REASONS = 50  # counted separately, and sent from one process to another
MOST_SITES = 1_000  # counted separately
LONGEST_TROUBLE = 2_000  # characters
RATE_SPAN = 10.0  # seconds over which the current rate is taken


class EventCounts:
    """An EventSink that counts. `pages` counts journeys that ended, well or not; `done` those that gave a new page."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.began = clock.monotonic()
        self.pages = 0
        self.done = 0
        self.items = 0
        self.changed = 0
        self.bytes = 0
        self.retries = 0
        self.blocked = 0
        self.credits = 0.0
        self.reasons: Counter[str] = Counter()  # why pages were buried
        self.item_drops: Counter[str] = Counter()  # items dropped by pipeline steps, by step and reason
        self.faults = 0
        self.gone = 0
        self.seconds: Counter[str] = Counter()  # per stage, for items per second
        self.stage_items: Counter[str] = Counter()  # pages fetched, items parsed and stored
        self.sites: Counter[str] = Counter()  # pages fetched from each, of the first ones
        self.last_trouble = ""
        self._marks: list[tuple[float, int]] = [(self.began, 0)]

    def emit(self, event: events.Event) -> None:
        match event:
            case events.Completed():
                self.pages += 1
                self.done += event.outcome == "done"
            case events.Fetched():
                self.stage_items["fetch"] += 1
                if event.site in self.sites or len(self.sites) < MOST_SITES:
                    self.sites[event.site] += 1
                self.bytes += event.bytes
                self.credits += event.cost
                self.seconds["fetch"] += event.seconds  # type: ignore[assignment]  # a Counter adds floats as well
            case events.Parsed():
                self.stage_items["parse"] += event.items
                self.seconds["parse"] += event.seconds  # type: ignore[assignment]
            case events.Stored():
                self.stage_items["store"] += event.items
                self.items += event.items
                self.changed += event.changed
                self.seconds["store"] += event.seconds  # type: ignore[assignment]
            case events.Retried():
                self.retries += 1
            case events.Blocked():
                self.blocked += 1
            case events.Buried():
                self.pages += 1
                self.reasons[event.reason] += 1
            case events.ItemDropped():
                told = f"{event.step}: {event.reason}"
                known = told in self.item_drops or len(self.item_drops) < MOST_REASONS
                self.item_drops[told if known else event.step] += 1  # a reason may name each item
            case events.Flawed():
                self.faults += event.faults
            case events.Gone():
                self.gone += event.records
            case events.Trouble():
                self.last_trouble = event.message

    @property
    def latency(self) -> float:
        """Seconds from connecting to the last byte, on average; 0 before the first page."""
        return self.seconds["fetch"] / max(1, self.stage_items["fetch"])

    def to_bytes(self) -> bytes:
        """The counts, for another process to add to its own."""
        numbers = {name: getattr(self, name) for name in ADDED}
        reasons = dict(self.reasons.most_common(MOST_REASONS))
        drops = dict(self.item_drops.most_common(MOST_REASONS))
        trouble = self.last_trouble[:LONGEST_TROUBLE]
        return msgspec.json.encode({**numbers, "reasons": reasons, "item_drops": drops, "last_trouble": trouble})

    def add(self, told: bytes) -> None:
        """Add the counts that another process has `told`."""
        counts = msgspec.json.decode(told)
        for name in ADDED:
            setattr(self, name, getattr(self, name) + counts[name])
        self.reasons.update(counts["reasons"])
        self.item_drops.update(counts["item_drops"])
        self.last_trouble = self.last_trouble or counts["last_trouble"]

    @property
    def elapsed(self) -> float:
        return max(1e-9, self._clock.monotonic() - self.began)

    def rate(self) -> float:
        """Pages per second over the last ten seconds. Must be called regularly: it keeps its own marks."""
        now = self._clock.monotonic()
        self._marks.append((now, self.pages))
        while len(self._marks) > 2 and now - self._marks[1][0] >= RATE_SPAN:
            del self._marks[0]
        since, pages = self._marks[0]
        return (self.pages - pages) / max(now - since, 1e-9)

"""The audit log of one journey: a line for every attempt, with its route, cost and outcome."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..clock import Clock
from ..fetch.contract import Response
from ..model.item_account import ItemCounts
from ..model.page import Snapshot
from ..model.record import Attempt, ItemSchema, PageFacts, PageResult, Record, Tally
from ..model.route import DIRECT, Proxy, Route
from ..model.task import Request, Task
from ..store.record_rules import REPEAT
from ..store.sink import Sink
from ..trace import note, step
from .page_facts import facts_of, facts_of_failure, is_safe, without_validators

LONGEST_ERROR = 2000


class AttemptLog:
    """The log of one task in one worker. `snapshot` is the raw page, once there is one; `quality` holds its quality
    counts, `items` the account of its items, None as long as it was not parsed. Without a `sink` nothing is written.
    `repeat`: an earlier worker of the same job may have finished the page and lost its lease before it could settle.
    `personal`: the response may be meant for this visitor alone."""

    def __init__(
        self,
        task: Task,
        clock: Clock,
        *,
        worker: str = "",
        spider: str = "",
        parser_version: str = "",
        sink: Sink | None = None,
        repeat: bool = False,
        personal: bool = False,
    ) -> None:
        self._task = task
        self._spider = spider
        self._worker = worker
        self._parser_version = parser_version
        self._sink = sink
        self._repeat = repeat
        self._personal = personal
        self._clock = clock
        self.snapshot: Snapshot | None = None
        self.quality: tuple[Tally, ...] = ()
        self.items: ItemCounts | None = None
        self.status: int | None = None
        self._route: Route = DIRECT
        self._proxy: Proxy | None = None
        self._at = 0.0
        self.begin_attempt()

    @property
    def by_proxy(self) -> bool:
        """Did the attempt go through a proxy? Then the site saw another visitor."""
        return self._proxy is not None

    def begin_attempt(self) -> None:
        # The time identifies an attempt of a page, so it must differ even when the clock stands still.
        self._at = max(self._clock.now(), self._at + 1e-6)
        self._began = self._clock.monotonic()
        self.status = None
        self._route, self._proxy, self._cost = DIRECT, None, 0.0
        self._bytes, self._latency = 0, 0.0

    def note_route(self, route: Route, proxy: Proxy | None, cost: float) -> None:
        """Note the route and the cost of the current attempt."""
        self._route, self._proxy, self._cost = route, proxy, cost

    @property
    def route(self) -> str:
        return self._route.name

    def answered(self, response: Response) -> None:
        self.status, self._bytes, self._latency = response.status, response.wire_bytes, response.seconds

    def not_answered(self) -> None:
        """No response came: the latency is the time until now."""
        self._latency = self._clock.monotonic() - self._began

    def facts(self, snapshot: Snapshot, requests: Sequence[Request] = (), *, links_only: bool = False) -> PageFacts:
        """What to remember about the page for its next fetch."""
        return facts_of(
            self._task,
            snapshot,
            spider=self._spider,
            parser_version=self._parser_version,
            requests=requests,
            links_only=links_only,
        )

    def failed(self, known: PageFacts | None, reason: str) -> PageFacts:
        """What to remember about a page whose fetch failed or whose response is unusable; see `facts_of_failure`."""
        came = self.facts(self.snapshot) if self.snapshot is not None else None
        return facts_of_failure(self._task, came, known, reason, self._clock.now())

    async def keep(
        self,
        *,
        outcome: str,
        reason: str = "",
        error: str = "",
        page: PageFacts | None = None,
        records: tuple[Record, ...] = (),
        schemas: tuple[ItemSchema, ...] = (),
        with_raw_page: bool = False,
    ) -> int:
        """Store the results of this attempt; return how many records are new or changed."""
        if self._sink is None:
            return 0
        if self._repeat and outcome in ("done", "unchanged"):
            reason = REPEAT
        task = self._task
        snapshot = self.snapshot if with_raw_page else None
        if snapshot is not None and page is None:
            page = self.failed(None, reason)
        attempt = Attempt(
            at=self._at,
            job=task.job,
            url=task.url,
            fingerprint=task.fingerprint,
            site=task.site,
            worker=self._worker,
            attempt=task.attempt + 1,
            outcome=outcome,
            route=self._route.name,
            proxy=self._proxy.name if self._proxy is not None else None,
            status=self.status,
            bytes=self._bytes,
            latency=self._latency,
            cost=self._cost,
            reason=reason,
            error=error[:LONGEST_ERROR],
        )
        if page is not None and self._personal:
            page = without_validators(page, keeps_links=not is_safe(task))
        items = None
        if self.items is not None and outcome != "retry":
            items = msgspec.structs.replace(self.items, parser=self._parser_version)
        result = PageResult(
            attempt=attempt, page=page, records=records, quality=self.quality, schemas=schemas, items=items
        )
        note(outcome=outcome, route=self._route.name, status=self.status or 0, credits=self._cost)
        with step("store"):
            return await self._sink.keep(result, snapshot)

"""Everything that the journeys of one job in one process share. Put together in assembly.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ..clock import Clock
from ..fetch.fetcher import Fetcher
from ..frontier.admission import Admission, Judged
from ..frontier.contract import Frontier
from ..frontier.retry import RetryTerms
from ..model import events
from ..model.task import Request
from ..parse.spider import Spider
from ..parse.timelimit import TimeLimit
from ..pipeline.guard import Guard
from ..pipeline.steps import Pipeline
from ..routing.router import Router
from ..store.sink import Sink
from .freshness import Freshness
from .neighbours import Neighbours
from .pacer import Pacer
from .windows import Gates

RetryTermsFor = Callable[[str], RetryTerms]


class JobContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a journey needs, shared by all journeys of one job in one process."""

    job: str
    worker: str
    spider: Spider
    parser_version: str
    fetcher: Fetcher
    router: Router
    pacer: Pacer
    pipeline: Pipeline
    guard: Guard
    admission: Admission
    sink: Sink
    frontier: Frontier  # one that sits out short absences
    retry_terms_for: RetryTermsFor
    clock: Clock
    events: events.EventSink
    time_limit: TimeLimit = TimeLimit()  # for the code of one page
    buries_unpaid: bool = False  # a page whose budget is spent is given up; else it waits
    detects_blocks: Callable[[str], bool] = lambda site: True
    freshness: Freshness | None = None  # leaves out pages that were fetched lately
    gates: Gates | None = None  # when pages may be fetched; None: always
    watched: bool = False  # how often its pages change is written down, and when they were tried in vain
    conditional: bool = True  # the server is asked whether a known page has changed
    neighbours: Neighbours | None = None  # sites that other workers have found, where they read the source

    async def judge(self, requests: Sequence[Request], *, depth: int, priority: int, site: str) -> Judged:
        """What a page of `site` leads to, at this depth: what may enter the queue, and what need not be fetched."""
        if requests and self.neighbours is not None:
            await self.neighbours.meet(site)
        judged = self.admission.judge(requests, depth=depth, priority=priority, site=site)
        return judged if self.freshness is None else await self.freshness.mark(judged)

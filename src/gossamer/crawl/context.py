"""Everything that the journeys of one job in one process share. Built in project/wiring.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ..clock import Clock
from ..errors import Transient
from ..fetch.fetcher import Fetcher
from ..frontier.admission import FORCED_IN_VAIN, Admission, Judged, forced_in_vain
from ..frontier.contract import Added, Frontier, JobBook, SeedBook
from ..frontier.retry import RetryTerms
from ..model import events
from ..model.secret_text import secret_of_environment
from ..model.task import Candidate, Request, Task
from ..parse.spider import Spider
from ..parse.timelimit import TimeLimit
from ..pipeline.quality_guard import QualityGuard
from ..pipeline.steps import Pipeline
from ..routing.router import Router
from ..store.contract import Records
from ..store.sink import Sink
from ..trace import Tracer
from .freshness import Freshness
from .pacer import Pacer
from .page_request import PageRequests, archive_long_bodies
from .parse_page import AroundParse, Describe
from .second_opinion import SecondOpinion
from .sessions import Sessions
from .unleased_turn import UnleasedTurns
from .windows import JobWindows

RetryTermsFor = Callable[[str], RetryTerms]


class SourceSites:
    """The sites in a source that another worker reads: links may lead there, and only that worker knows them all.

    Consulted before the links of a page are judged. A known site costs nothing; an unknown one is looked up in the
    state until the whole source has been read. While the state does not answer, `sites` stays as it is, and a link to
    a site that is not in it yet may be dropped.
    """

    def __init__(self, jobs: JobBook, seeds: SeedBook, job: str, sites: set[str]) -> None:
        self._jobs = jobs
        self._seeds = seeds
        self._job = job
        self._sites = sites
        self._complete = False

    async def look_up(self, site: str) -> None:
        """Add `site` if another worker has found it in the source."""
        if self._complete or site in self._sites:
            return
        try:
            sealed = await self._jobs.is_sealed(self._job)
            self._sites.update((await self._seeds.findings(self._job)).sites)
        except Transient:
            return
        self._complete = sealed


# A task that may have a letter, its links, how many more are known, and the reason; None if it has no such letter.
CloseLetter = Callable[[Task, Sequence[Candidate], int, str], Awaitable[Added | None]]


class JobContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a journey needs, shared by all journeys of one job in one process."""

    job: str
    worker: str
    spider: Spider
    parser_version: str
    fetcher: Fetcher
    router: Router
    sessions: Sessions
    pacer: Pacer
    unleased_turns: UnleasedTurns
    pipeline: Pipeline
    guard: QualityGuard
    admission: Admission
    sink: Sink
    records: Records
    durable: Callable[[], Awaitable[None]]  # of the state
    begun_at: float  # when the job was opened
    frontier: Frontier
    retry_terms_for: RetryTermsFor
    clock: Clock
    events: events.EventSink
    time_limit: TimeLimit = TimeLimit()  # for the spider's code on one page
    max_deliveries: int = 5  # of a page that is never settled; at the next delivery it is buried
    readmits: bool = False  # a URL that was done may enter the queue again after a while (crawl.dedup_window)
    buries_unpaid: bool = False  # bury a page whose budget is spent; otherwise it waits
    detects_blocks: Callable[[str], bool] = lambda site: True
    close_letter: CloseLetter | None = None  # settles an `uncertain` letter whose answer is stored
    second_opinion: SecondOpinion | None = None  # passes failures of this machine on to others
    freshness: Freshness | None = None  # drops pages that were fetched recently
    windows: JobWindows | None = None  # when pages may be fetched; None: always
    watched: bool = False  # whether to record how often pages change, and failed fetches
    conditional: bool = True  # send conditional requests for known pages
    around_parse: AroundParse | None = None  # None without extensions
    describe: Describe | None = None  # reads pages in another process, for jobs of keys
    tracer: Tracer | None = None
    files: object | None = None  # FileTerms (file_journey.py), where files can be stored
    requests: PageRequests = PageRequests(lambda site: (), secret_of_environment, None)
    source_sites: SourceSites | None = None  # sites that other workers find in the source they read

    def confirm(self, judged: Judged, added: Added) -> None:
        """Called when the frontier has taken these candidates."""
        self.admission.confirm(judged, added)
        if added.duplicates and forced_in_vain(judged.candidates, added):
            self.events.emit(events.Trouble(at=self.clock.now(), job=self.job, stage="force", message=FORCED_IN_VAIN))

    async def judge(
        self, requests: Sequence[Request], *, depth: int, priority: int, site: str, links_only: bool = False
    ) -> Judged:
        """Judge the requests found on a page of `site`: which may enter the queue, and which need no fetch."""
        if requests and self.source_sites is not None:
            await self.source_sites.look_up(site)
        judged = self.admission.judge(requests, depth=depth, priority=priority, site=site, links_only=links_only)
        candidates = await archive_long_bodies(judged.candidates, self.requests.archive, self.clock)
        if candidates is not judged.candidates:
            judged = msgspec.structs.replace(judged, candidates=tuple(candidates))
        return judged if self.freshness is None else await self.freshness.mark(judged)

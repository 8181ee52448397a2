"""The reference model: what the manual says must come of a story, in plain Python. It reads the site's log and says
what each answer means; it also says which requests must not be there, and which are missing.

It knows nothing of the product's code: docs/concepts.md and docs/quality.md are its source.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .site import FAULTY, FINE, Hit, Site, SitePage
from .story import Crawl, SpiderCode

RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
NOT_FOUND = frozenset({"http-404", "http-410"})
WHOLE_RUN = frozenset({"duplicate", "robots", "scope", "depth", "invalid"})  # a run that left these out got everywhere
Data = tuple[str, int, int]  # title, price and rating
TRAP = re.compile(r"(/.+)\1\1")  # a path that repeats itself three times in a row
LOST: Data = ("Lost", 1, FINE)  # what an errback gives
MENDED = 9  # how code that mends reads a price that is no number
MANY = 20  # records; a run that sees less than half of so many is not believed
GUARD_WINDOW = 20
EXIT_CODES = {"done": 0, "failed": 1, "done with warnings": 3, "empty": 4, "held back": 5, "incomplete": 6}

Version = Data | None  # None: gone


class Wrong(AssertionError):
    """The product did something else than the manual says."""


@dataclass
class ModelRecord:
    """A record: its versions, the page that gave it last, who saw it, and when (in steps)."""

    versions: list[Version]
    page: str
    spider: str
    seen: set[int] = field(default_factory=set)  # numbers of jobs
    checked: int = 0

    @property
    def is_gone(self) -> bool:
        return self.versions[-1] is None


@dataclass(frozen=True)
class Fact:
    """What the last visit of a page left for the next one."""

    validator: str  # what the site said then; "" for nothing
    code: SpiderCode
    spider: str
    is_whole: bool  # everything it said is in the records
    is_certain: bool = True  # the visit before was one like it: the next one must use the validator


@dataclass(frozen=True)
class Task:
    depth: int
    is_named: bool = False


@dataclass
class ModelJob:
    number: int
    name: str  # of the spider, or of the schedule
    spider: str
    code: SpiderCode
    limit: int | None = None
    depth: int | None = None
    began: int = 0
    frontier: dict[str, Task] = field(default_factory=dict)
    states: dict[str, tuple[str, str]] = field(default_factory=dict)
    redirects: set[str] = field(default_factory=set)
    tasks: dict[str, Task] = field(default_factory=dict)
    tries: Counter[str] = field(default_factory=Counter)
    letters: dict[str, SitePage] = field(default_factory=dict)  # raw pages of those that could not be parsed
    items: dict[str, Counter[str]] = field(default_factory=dict)  # by page
    seen: dict[str, Data] = field(default_factory=dict)
    shapes: Counter[str] = field(default_factory=Counter)
    guard: deque[bool] = field(default_factory=lambda: deque(maxlen=GUARD_WINDOW))
    is_over: bool = False
    ending: str = ""
    outcome: str = ""
    doubted: bool = False
    unseen: set[str] = field(default_factory=set)  # records that made it doubted
    seeds: tuple[str, ...] = ()  # of a schedule, until a worker reads them
    optional: set[str] = field(default_factory=set)  # pages that may be fresh
    min_age: bool = False  # leaves out pages that are fresh
    is_vague: bool = False  # it was killed and replaced: who knows how far it came
    was_killed: bool = False
    asked: int = 0  # requests for its pages
    said: dict[str, tuple[str, Data]] = field(
        default_factory=dict
    )  # the page that gave a thing first, and what it said
    lost_store: bool = False  # while the store does not answer, nothing is known of a page: it is asked for in full

    @property
    def dead(self) -> Counter[str]:
        return Counter(reason for state, reason in self.states.values() if state == "dead")

    @property
    def drops(self) -> Counter[str]:
        return Counter(reason.partition(":")[0] for state, reason in self.states.values() if state == "dropped")

    @property
    def came(self) -> int:
        return sum(
            1
            for path, (state, _) in self.states.items()
            if state in ("done", "unchanged") and path not in self.redirects
        )

    @property
    def towards_limit(self) -> int:
        return self.came + sum(self.dead.values())

    def is_guarded(self) -> bool:
        share = sum(self.guard) / len(self.guard) if self.guard else 1.0
        return self.code.min_quality is not None and len(self.guard) >= GUARD_WINDOW and share < self.code.min_quality


class Model:
    """A project. `settings` are those of its file, by their dotted names."""

    def __init__(self, settings: dict[str, object]) -> None:
        self.max_attempts = int(str(settings.get("retry.max_attempts", 4)))
        self.per_pattern = settings.get("crawl.max_urls_per_pattern")
        self.per_site = settings.get("crawl.max_urls_per_site")
        self.is_conditional = settings.get("fetch.conditional", True)
        self.keeps_pages = settings.get("store.keep_pages", True)
        self.budget = settings.get("router.budget_job")
        self.rewrites = "store.min_rewrite_age" not in settings
        self.site = Site(port=1)
        self.codes: dict[str, SpiderCode] = {}
        self.jobs: list[ModelJob] = []
        self.records: dict[str, ModelRecord] = {}
        self.facts: dict[str, Fact] = {}
        self.gave: dict[str, set[str]] = {}  # page -> the keys of what it gave when it was read last
        self.copies: dict[str, tuple[SitePage, str, int]] = {}  # page -> its newest raw copy, whose, and when
        self.held: set[str] = set()  # pages whose newest copy the quality guard holds back
        self.step = 0
        self.opened = 0  # jobs of all kinds: they are numbered in one row

    # -- commands ----------------------------------------------------------------------------------------------------

    def die(self, asked: Crawl) -> None:
        """A crawl began and was killed; another one replaces it."""
        self.step += 1
        self._opened(asked)

    def crawl(
        self, asked: Crawl, hits: Sequence[Hit], *, was_killed: bool = False, is_uncertain: bool = False
    ) -> ModelJob:
        """A crawl to its end, and before it perhaps the same command that `was_killed`: then the answer to a form that
        must not be sent twice may be unknown."""
        self.step += 1
        job = self._opened(asked)
        job.was_killed = was_killed
        job.lost_store = job.lost_store or asked.loses_store
        for path in job.code.start:
            self._discover(job, path, 0, is_named=True)
        if job.code.searches:
            self._discover(job, "POST /search", 0, is_named=True)
        if job.code.sitemaps and job.depth is None:
            for path in self.site.sitemap:
                self._discover(job, path, 0)
        for hit in hits:
            if is_uncertain and hit.method == "POST":
                continue
            self._take(job, hit)
        if is_uncertain and "POST /search" in job.frontier:
            self._settle(job, "POST /search", "dead", "uncertain")
        self._end(job)
        return job

    def _opened(self, asked: Crawl) -> ModelJob:
        code = self.codes[asked.spider]
        running = [job for job in self.jobs if job.name == asked.spider and not job.is_over]
        if running and asked.fresh:
            self._replace(running[-1])
        elif running:
            job = running[-1]
            job.limit, job.depth, job.code = asked.limit, asked.depth, code
            return job
        self.opened += 1
        job = ModelJob(self.opened, asked.spider, asked.spider, code, asked.limit, asked.depth, began=self.step)
        self.jobs.append(job)
        return job

    def _replace(self, job: ModelJob) -> None:
        for path in job.frontier:
            job.states[path] = ("dropped", "replaced")
        job.frontier.clear()
        job.is_vague = True
        job.is_over, job.ending, job.outcome = True, "replaced", "incomplete"

    def run_schedule(self, name: str, paths: Sequence[str]) -> None:
        """A job of a schedule over a list of pages, with a minimum age; a worker does it."""
        self.step += 1
        self.opened += 1
        job = ModelJob(self.opened, name, "shop", self.codes["shop"], began=self.step, min_age=True)
        self.jobs.append(job)
        job.seeds = tuple(paths)

    def work(self, hits: Sequence[Hit]) -> None:
        """A worker that does what there is to do."""
        self.step += 1
        running = [job for job in self.jobs if not job.is_over]
        for job in running:
            seeds, job.seeds = job.seeds, ()
            for path in seeds:
                self._discover(job, path, 0, is_named=True)
        for hit in hits:
            path = _name(hit)
            takers = [job for job in running if path in job.frontier] or running[:1]
            if not takers:
                raise Wrong(f"{path} was asked for, and no job runs.")
            self._take(takers[0], hit)
        for job in running:
            self._end(job)

    def replay(self, reason: str = "", *, fetch: bool = False) -> None:
        """Letters of pages that were not understood are parsed again from the archive, the others are queued."""
        self.step += 1
        for job in reversed(self.jobs):  # the newest letters first
            touched, before = False, set(job.frontier)
            for path, (state, why) in list(job.states.items()):
                if state != "dead" or (reason and why != reason):
                    continue
                touched = True
                page = job.letters.get(path)
                if page is not None and not fetch:
                    job.code = self.codes[job.spider]
                    self._parse(job, path, page, replays=True)
                else:
                    job.code = self.codes[job.spider]
                    job.frontier[path] = job.tasks[path]
                    del job.states[path]
                    job.tries[path] = 0
            if job.frontier.keys() - before and job.ending != "replaced":
                job.is_over = False
            elif touched and job.is_over:
                self._settle_again(job)

    def purge(self) -> None:
        self.step += 1
        for job in self.jobs:
            letters = [path for path, (state, _) in job.states.items() if state == "dead"]
            for path in letters:
                job.states[path] = ("dropped", f"purged: {job.states[path][1]}")
            if letters and job.is_over and job.ending != "replaced":
                self._settle_again(job)

    def reparse(self) -> None:
        """Every page's newest copy is parsed again by the spiders as they are now: a job for each of them."""
        self.step += 1
        self.opened += len({spider for _, spider, _ in self.copies.values()})
        for path, (page, spider, visited) in self.copies.items():
            code = self.codes[spider]
            if _is_unread(page, code) or (page.is_flawed and code.on_fault == "fail"):
                continue
            if path in self.held and page.is_flawed and code.min_quality is not None:
                continue  # as faulty as before
            given: set[str] = set()
            for sku, data in _things(page, code):
                if sku in code.drops or (page.is_flawed and code.on_fault == "drop"):
                    continue
                given.add(sku)
                self._store(None, path, spider, sku, data, visited)
            before = {key for key in self.gave.get(path, ()) if self.records[key].page == path}
            for key in before - given:
                if not self.records[key].is_gone and self.records[key].checked <= visited:
                    self._lose(self.records[key])
            self.gave[path] = given
            if (fact := self.facts.get(path)) is not None:
                self.facts[path] = Fact(fact.validator, code, spider, is_whole=True, is_certain=False)

    # -- a page ------------------------------------------------------------------------------------------------------

    def _discover(self, job: ModelJob, path: str, depth: int, *, is_named: bool = False) -> None:
        known = job.states.get(path)
        if path in job.frontier or (known is not None and (known[1] != "depth" or self._is_too_deep(job, depth))):
            return
        job.tasks[path] = Task(depth, is_named)
        if not is_named and TRAP.search(path):
            job.states[path] = ("dropped", "trap")
        elif self._is_too_deep(job, depth):
            job.states[path] = ("dropped", "depth")
        elif not is_named and (reason := self._beyond_limit(job, path)):
            job.states[path] = ("dropped", reason)
        else:
            job.shapes["all"] += is_named  # a limit of URLs drops no page that a person named, and counts it
            job.states.pop(path, None)
            if self.site.disallow and path.startswith(self.site.disallow):
                job.states[path] = ("dropped", "robots")
                self._tell_failure(job, path)
            elif job.min_age and (fact := self.facts.get(path)) and fact.is_certain and self._is_current(job, fact):
                job.states[path] = ("dropped", "fresh")
            else:
                if job.min_age and fact is not None and self._is_current(job, fact):
                    job.optional.add(path)
                job.frontier[path] = Task(depth, is_named)

    @staticmethod
    def _is_too_deep(job: ModelJob, depth: int) -> bool:
        return job.depth is not None and depth > job.depth

    def _beyond_limit(self, job: ModelJob, path: str) -> str:
        shape = re.sub(r"\d+", "0", path)
        if isinstance(self.per_pattern, int) and job.shapes[shape] >= self.per_pattern:
            return "pattern-limit"
        if isinstance(self.per_site, int) and job.shapes["all"] >= self.per_site:
            return "site-limit"
        job.shapes.update((shape, "all"))
        return ""

    def _take(self, job: ModelJob, hit: Hit) -> None:
        """One answer of the site, and what it means for the job."""
        path = _name(hit)
        if job.was_killed and hit.status == 304 and job.states.get(path, ("",))[0] in ("done", "unchanged"):
            job.states[path] = ("unchanged", "")  # it was stored before the kill, and settled after it
            return
        if path not in job.frontier:
            raise Wrong(f"{path} was asked for in job {job.number}, where it is {job.states.get(path, 'not known')}.")
        page = self.site.page(path.removeprefix("POST "))
        job.asked += 1
        reason = f"http-{hit.status}"
        self._check_conditional(job, path, hit)
        if hit.status == 304:
            self._confirm(job, path)
        elif hit.status == 302:
            self._settle(job, path, "done")
            job.redirects.add(path)
            if path in self.facts:
                self.facts[path] = _doubtful(self.facts[path], is_whole=False)
            self._discover(job, page.to, job.tasks[path].depth, is_named=True)
        elif hit.status == 200 or hit.status in job.code.handles:
            is_shown = hit.status == 200 and (job.code.logs_in or not (self.site.members_only and page.things))
            self._parse(job, path, page if is_shown else SitePage())
        elif hit.proxy and hit.status == 403 and hit.proxy in self.site.refused_proxies:
            pass  # tried through the other proxy: docs/routes.md
        elif hit.status in RETRIED and job.tries[path] + 1 < self.max_attempts:
            job.tries[path] += 1
        else:
            self._settle(job, path, "dead", reason)
            self._tell_failure(job, path)
            if path in self.facts:
                self.facts[path] = _doubtful(self.facts[path])

    def _check_conditional(self, job: ModelJob, path: str, hit: Hit) -> None:
        fact = self.facts.get(path)
        may = fact is not None and self._is_current(job, fact) and bool(fact.validator) and self.is_conditional
        if hit.is_conditional and (not may or job.code.logs_in):
            raise Wrong(f"{path} was asked for conditionally in job {job.number}; what is known of it: {fact}.")
        must = may and fact is not None and fact.is_certain and not job.code.logs_in and not job.lost_store
        if must and not hit.is_conditional:
            raise Wrong(f"{path} was asked for in full in job {job.number}; what is known of it: {fact}.")

    @staticmethod
    def _is_current(job: ModelJob, fact: Fact | None) -> bool:
        """Did the same code read the page, and is everything that it said in the records?"""
        return fact is not None and fact.is_whole and (fact.code, fact.spider) == (job.code, job.spider)

    def _settle(self, job: ModelJob, path: str, state: str, reason: str = "") -> None:
        job.frontier.pop(path, None)
        job.states[path] = (state, reason)

    def _tell_failure(self, job: ModelJob, path: str) -> None:
        """What the spider's errback gives for a page that is given up."""
        if job.code.tells_failures:
            account = job.items.setdefault(path, Counter())
            account[self._store(job, path, job.spider, f"lost {path.removeprefix('POST ')}", LOST, self.step)] += 1

    def _confirm(self, job: ModelJob, path: str) -> None:
        self._settle(job, path, "unchanged")
        for key in sorted(self.gave.get(path, ())):
            record = self.records[key]
            if record.page != path:
                continue
            if record.is_gone:
                record.versions.append(record.versions[-2])
            self._see(job, key, record)
        for link in self.site.page(path).links:
            self._discover(job, link, job.tasks[path].depth + 1)

    def _see(self, job: ModelJob | None, key: str, record: ModelRecord) -> None:
        record.checked = self.step
        if job is not None:
            record.seen.add(job.number)
            last = record.versions[-1]
            assert last is not None
            job.seen[key] = last

    def _parse(self, job: ModelJob, path: str, page: SitePage, *, replays: bool = False) -> None:
        code, account = job.code, Counter[str]()
        is_unread = _is_unread(page, code)
        if not replays and self.keeps_pages:
            self.copies[path] = (page, job.spider, self.step)
        things = _things(page, code)
        wanted = [one for one in things if one[0] not in code.drops]
        account["dropped"] = len(things) - len(wanted)
        flawed = len(wanted) if page.is_flawed else 0
        if is_unread or (flawed and code.on_fault == "fail"):
            lost = len(things) - 1 if is_unread else len(things) - flawed
            account = Counter(lost=lost, faulty=0 if is_unread else flawed)
            self._fail(job, path, page, "parse", account, replays)
            job.guard.append(False)
            return
        job.guard.extend([not flawed] * len(wanted))
        if flawed and code.on_fault == "drop":
            account["faulty"], wanted = flawed, []
        is_held = replays and job.states[path] == ("dead", "quality") and flawed and code.min_quality is not None
        if wanted and (is_held or (not replays and job.is_guarded())):
            account["held"] = len(wanted)
            self._fail(job, path, page, "quality", account, replays)
            return
        for sku, data in wanted:
            account[self._store(job, path, job.spider, sku, data, self.step)] += 1
        self.gave[path] = {sku for sku, _ in wanted}
        self.held.discard(path)
        whole = not (account["dropped"] or account["held"] or account["faulty"])
        said = (self.site.validator and self.site.body(path)) if page == self.site.page(path) else ""
        self.facts[path] = Fact(str(said), code, job.spider, is_whole=whole, is_certain=not replays)
        job.items[path] = account
        job.letters.pop(path, None)
        self._settle(job, path, "done")
        for link in page.links:
            self._discover(job, link, job.tasks[path].depth + 1)

    def _fail(
        self, job: ModelJob, path: str, page: SitePage, reason: str, account: Counter[str], replays: bool
    ) -> None:
        job.items[path] = account
        if reason == "quality":
            self.held.add(path)
        if self.keeps_pages:
            job.letters[path] = page
        self._settle(job, path, "dead", reason)
        if reason == "parse" and not replays:
            self._tell_failure(job, path)
        if path in self.facts and not replays:
            self.facts[path] = _doubtful(self.facts[path], is_whole=False)

    def _store(self, job: ModelJob | None, path: str, spider: str, key: str, data: Data, at: int) -> str:
        """Store an item, and return what became of it."""
        state = self._keep(job, path, spider, key, data, at)
        first, said = (path, data) if job is None else job.said.setdefault(key, (path, data))
        return state if first == path else "equal" if said == data else "conflict"

    def _keep(self, job: ModelJob | None, path: str, spider: str, key: str, data: Data, at: int) -> str:
        record = self.records.get(key)
        if record is None:
            record = self.records[key] = ModelRecord([data], path, spider)
            self._see(job, key, record)
            return "new"
        if at < record.checked:
            return "held"  # a newer visit was stored first
        same, is_back = record.versions[-1] == data, record.is_gone
        if not same and not self.rewrites and not is_back:
            self._see(job, key, record)
            return "held"
        if not same:
            record.versions.append(data)
            record.spider = spider  # the one that last saw a change
        record.page = path
        self._see(job, key, record)
        return "unchanged" if same else "back" if is_back else "changed"

    # -- the end of a job --------------------------------------------------------------------------------------------

    def _end(self, job: ModelJob) -> None:
        is_full = job.limit is not None and job.towards_limit >= job.limit
        if job.limit is not None and job.towards_limit > job.limit:
            raise Wrong(f"Job {job.number} had {job.towards_limit} pages, where its limit is {job.limit}.")
        if isinstance(self.budget, int) and not is_full and job.asked >= self.budget - 1:  # robots.txt costs as well
            for path in list(job.frontier):
                self._settle(job, path, "dead", "budget")
                self._tell_failure(job, path)
        for path in job.optional & job.frontier.keys():
            self._settle(job, path, "dropped", "fresh")
        if job.frontier and not is_full:
            raise Wrong(f"Job {job.number} ended without {sorted(job.frontier)}.")
        job.ending = "limit" if job.frontier else "done"
        earlier = [
            one
            for one in self.jobs
            if one.number < job.number and one.name == job.name and one.code.start == job.code.start
        ]
        if job.ending == "done" and earlier and job.came + len(job.redirects):
            self._retire(job, earlier)
        job.is_over = True
        job.outcome = self._outcome(job)
        for one in self.jobs:
            if one.number >= job.number or one.name != job.name:
                continue
            closed = [
                path
                for path, (state, _) in one.states.items()
                if state == "dead" and job.states.get(path, ("",))[0] in ("done", "unchanged")
            ]
            for path in closed:
                one.states[path] = ("done", "")
            if closed and one.is_over and one.ending != "replaced":
                self._settle_again(one)

    def _retire(self, job: ModelJob, earlier: Sequence[ModelJob]) -> None:
        last = next((one for one in reversed(earlier) if _is_good(one)), earlier[-1])
        tried_all = set(job.drops) <= WHOLE_RUN and earlier[-1].depth == job.depth
        numbers = {one.number for one in earlier}
        if tried_all and len(last.seen) >= MANY and len(job.seen) < len(last.seen) / 2:
            job.doubted = True
            job.unseen = {
                key
                for key, record in self.records.items()
                if record.seen & numbers and record.spider == job.spider and not record.is_gone and key not in job.seen
            }
            return
        everywhere = tried_all and set(job.dead) <= NOT_FOUND
        for key, record in self.records.items():
            if record.is_gone or key in job.seen or not record.seen & numbers or record.spider != job.spider:
                continue
            state, reason = job.states.get(record.page, ("", ""))
            visited = state in ("done", "unchanged") and record.page not in job.redirects
            if (everywhere and record.checked < job.began) or visited or reason in NOT_FOUND:
                self._lose(record)

    def _lose(self, record: ModelRecord) -> None:
        record.versions.append(None)
        record.checked = self.step

    def _settle_again(self, job: ModelJob) -> None:
        """Letters of an ended job were settled: it is no worse for that, and not doubted if it has now seen all."""
        job.doubted = job.doubted and not job.unseen <= job.seen.keys()
        outcome = self._outcome(job)
        if outcome != "empty":
            job.outcome = outcome

    def _outcome(self, job: ModelJob) -> str:
        dead, drops = job.dead, job.drops
        counts = [*dead.elements()]
        if job.ending == "done" and not job.came and (counts or drops["purged"]):
            return "failed"
        if dead["quality"]:
            return "held back"
        if drops["pattern-limit"] or drops["site-limit"] or dead["budget"]:
            return "incomplete"
        if not job.seen and (job.came or counts):
            return "empty"
        conflicts = sum(account["conflict"] for account in job.items.values())
        if set(dead) - NOT_FOUND or drops["trap"] or conflicts or job.doubted:
            return "done with warnings"
        return "done"


def _is_good(job: ModelJob) -> bool:
    return job.ending == "done" and job.outcome in ("done", "done with warnings")


def _name(hit: Hit) -> str:
    return f"POST {hit.path}" if hit.method == "POST" else hit.path


def _doubtful(fact: Fact, *, is_whole: bool = True) -> Fact:
    return Fact(fact.validator, fact.code, fact.spider, is_whole=fact.is_whole and is_whole, is_certain=False)


def _is_unread(page: SitePage, code: SpiderCode) -> bool:
    return page.is_broken and bool(page.things) and not code.mends


def _things(page: SitePage, code: SpiderCode) -> list[tuple[str, Data]]:
    rating = FAULTY if page.is_flawed else FINE
    prices = dict(page.things)
    if page.is_broken and prices:
        prices[[*prices][-1]] = MENDED
    return [(sku, (code.title(sku), price, rating)) for sku, price in prices.items()]


def settled_once(hits: Sequence[Hit]) -> list[Hit]:
    """The hits of a crawl that died and of the one that went on with it: of every page the last answer, and the one
    before it if that was tried again, or has not changed since."""
    kept: list[Hit] = []
    for number, hit in enumerate(hits):
        later = [one for one in hits[number + 1 :] if _name(one) == _name(hit)]
        repeated = len(later) == 1 and (hit.status in RETRIED or later[0].status == 304)
        if not later or repeated:
            kept.append(hit)
    return kept


def pages_only(hits: Iterable[Hit]) -> list[Hit]:
    """Without what a crawl asks for beside its pages."""
    return [hit for hit in hits if hit.path not in ("/robots.txt", "/sitemap.xml", "/login", "/welcome")]

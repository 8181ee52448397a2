"""The table of features. Each is a small function that changes the draft of a story; the model reads the story, so that
two features together need no words of their own.

A draft has three runs of one spider. Between the first and the second a price changes, a page vanishes and another
appears; before the third the vanished page is back, and whatever was wrong is mended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from .site import Site, SitePage
from .story import Crawl, Purge, PutSite, PutSpider, Reparse, Replay, RunSchedule, SpiderCode, Step, Story, Work

PORT, PROXIES = 18642, (18643, 18644)  # in scripts
PRODUCTS, VARIANTS = 8, 3  # more items than the quality guard looks at
ASIDE = "/aside"  # where the spider `aside` begins
SCHEDULED = tuple(f"/p/{n}" for n in range(1, PRODUCTS + 1))
FIRST, SECOND, THIRD = RUNS = range(3)
QUICK: dict[str, Any] = {
    "fetch.allow_hosts": ["127.0.0.1"],
    "politeness.rate": "unlimited",
    "politeness.concurrency": 16,
    "fetch.connect_timeout": "60s",
    "fetch.read_timeout": "60s",
    "fetch.total_timeout": "100s",
    "retry.max_attempts": 2,
    "retry.base": "20ms",
    "retry.cap": "100ms",
    "retry.rate_limited_cap": "100ms",
    "quality.window": 20,
}


class Draft:
    """A story that features may change: a site, a spider and a crawl for each run, and what follows each run."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.settings = dict(QUICK)
        self.codes = [SpiderCode() for _ in RUNS]
        self.crawls = [Crawl() for _ in RUNS]
        self.before: list[list[Step]] = [[] for _ in RUNS]
        self.after: list[list[Step]] = [[] for _ in RUNS]
        self.is_resumed_by: list[Step | None] = [None for _ in RUNS]  # what follows a kill; None: the same command
        self.is_fleet = False
        self.sites = [Site(port=PORT, pages=_catalogue(), edition=run) for run in RUNS]
        changed, self.vanished = random.sample(range(1, PRODUCTS + 1), 2)
        for run in (SECOND, THIRD):
            self.change_price(run, changed, 11)
            self.add(run, "/list/2", f"/p/{PRODUCTS + 1}")
        pages = self.sites[SECOND].pages
        del pages[f"/p/{self.vanished}"]
        self.unlink(SECOND, f"/p/{self.vanished}")

    # -- the site ----------------------------------------------------------------------------------------------------

    def product(self) -> str:
        """The path of a product that is there in every run."""
        there = [n for n in range(1, PRODUCTS + 1) if n != self.vanished]
        return f"/p/{self.random.choice(there)}"

    def alter(self, runs: Iterable[int], path: str, **changes: Any) -> None:
        for run in runs:
            pages = self.sites[run].pages
            if path in pages:
                pages[path] = msgspec.structs.replace(pages[path], **changes)

    def change_price(self, run: int, number: int, price: int) -> None:
        self.alter([run], f"/p/{number}", things=_things(number, price))

    def add(self, run: int, on: str, path: str, page: SitePage | None = None) -> None:
        """Another page, and a link to it."""
        pages = self.sites[run].pages
        pages[path] = page or SitePage(things=_things(path.rpartition("/")[2], 10))
        pages[on] = msgspec.structs.replace(pages[on], links=(*pages[on].links, path))

    def unlink(self, run: int, path: str) -> None:
        pages = self.sites[run].pages
        for where, page in pages.items():
            pages[where] = msgspec.structs.replace(page, links=tuple(link for link in page.links if link != path))

    def site(self, runs: Iterable[int] = RUNS, **changes: Any) -> None:
        for run in runs:
            self.sites[run] = msgspec.structs.replace(self.sites[run], **changes)

    # -- the spider and its runs -------------------------------------------------------------------------------------

    def code(self, runs: Iterable[int] = RUNS, **changes: Any) -> None:
        for run in runs:
            self.codes[run] = msgspec.structs.replace(self.codes[run], **changes)

    def crawl(self, run: int, **changes: Any) -> None:
        self.crawls[run] = msgspec.structs.replace(self.crawls[run], **changes)

    def one_at_a_time(self) -> None:
        """The order of the site's log is the order in which pages were settled."""
        self.settings["crawl.concurrency"] = 1

    def story(self, features: tuple[str, ...]) -> Story:
        steps: list[Step] = []
        site: Site | None = None
        code: SpiderCode | None = None
        for run in RUNS:
            if site is None or msgspec.structs.replace(self.sites[run], edition=site.edition) != site:
                site = self.sites[run]
                steps.append(PutSite(site))
            if self.codes[run] != code:
                code = self.codes[run]
                steps.append(PutSpider("shop", code))
            steps += self.before[run]
            if self.crawls[run].dies_at is not None:
                steps.append(self.crawls[run])
                self.crawls[run] = msgspec.structs.replace(
                    self.crawls[run], dies_at=None, beside="", is_watched=False, loses_store=False
                )
            steps += [self.is_resumed_by[run] or self.crawls[run], *self.after[run]]
        return Story(features=features, settings=self.settings, steps=tuple(steps), is_fleet=self.is_fleet)


def _things(product: object, price: int) -> dict[str, int]:
    return {f"{product}{letter}": price for letter in "abcdef"[:VARIANTS]}


def _catalogue() -> dict[str, SitePage]:
    half = PRODUCTS // 2
    lists = {
        "/list/1": SitePage(links=tuple(f"/p/{n}" for n in range(1, half + 1))),
        "/list/2": SitePage(links=tuple(f"/p/{n}" for n in range(half + 1, PRODUCTS + 1))),
    }
    products = {f"/p/{n}": SitePage(things=_things(n, 10)) for n in range(1, PRODUCTS + 1)}
    return {"/": SitePage(links=tuple(lists)), **lists, **products}


# -- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Feature:
    """`change` makes it part of a draft; `not_with` names features whose sum has no meaning."""

    name: str
    change: Callable[[Draft], None]
    not_with: frozenset[str] = frozenset()
    is_costly: bool = False  # servers, waits: once in a while


FEATURES: dict[str, Feature] = {}


def feature(*not_with: str, is_costly: bool = False) -> Callable[[Callable[[Draft], None]], Callable[[Draft], None]]:
    """Add the function to the table, under its name."""

    def enter(change: Callable[[Draft], None]) -> Callable[[Draft], None]:
        name = change.__name__.replace("_", "-")
        FEATURES[name] = Feature(name, change, frozenset(not_with), is_costly)
        return change

    return enter


# What a site does


@feature("dates")
def etags(draft: Draft) -> None:
    draft.site(validator="etag")


@feature("etags")
def dates(draft: Draft) -> None:
    draft.site(validator="date")


@feature()
def redirect(draft: Draft) -> None:
    """An old address leads to a product."""
    to = draft.product()
    for run in RUNS:
        draft.add(run, "/list/1", "/old", SitePage(to=to))


@feature()
def moved(draft: Draft) -> None:
    """A product that was read leads to another one now."""
    page, to = draft.product(), draft.product()
    if page != to:
        draft.alter([SECOND], page, to=to)


@feature()
def robots(draft: Draft) -> None:
    for run in RUNS:
        draft.add(run, "/", "/private/1")
    draft.site(disallow="/private/")


@feature()
def refusals(draft: Draft) -> None:
    """Pages answer 503 first."""
    draft.alter([draft.random.choice(RUNS)], draft.product(), refusals=1)
    draft.alter([SECOND], "/list/2", refusals=1)


@feature()
def down(draft: Draft) -> None:
    """A page cannot be read in one run."""
    page = draft.random.choice([draft.product(), draft.product(), "/list/2", "/"])
    draft.alter([draft.random.choice((FIRST, SECOND))], page, status=500)


@feature()
def dead_links(draft: Draft) -> None:
    for run in RUNS:
        draft.add(run, "/list/1", "/nowhere/1", SitePage(status=404))


@feature()
def vanished_but_linked(draft: Draft) -> None:
    """A product is gone, and still listed."""
    draft.alter([SECOND], draft.product(), status=410)


@feature()
def forbidden(draft: Draft) -> None:
    draft.alter([draft.random.choice((FIRST, SECOND))], draft.product(), status=403)


@feature()
def broken(draft: Draft) -> None:
    """A page that the spider does not understand."""
    draft.alter([draft.random.choice((FIRST, SECOND))], draft.product(), is_broken=True)


@feature()
def flawed(draft: Draft) -> None:
    draft.alter([draft.random.choice((FIRST, SECOND))], draft.product(), is_flawed=True)


@feature()
def trap(draft: Draft) -> None:
    for run in (SECOND, THIRD) if draft.random.random() < 0.5 else RUNS:
        draft.add(run, "/list/1", "/x/y/x/y/x/y/1")


@feature(
    "reparse", "mended-code", "replay", "replay-mended"
)  # which of two pages of one run is the newer one is not in the model
def twins(draft: Draft) -> None:
    """Two pages give the same things."""
    draft.one_at_a_time()
    number = int(draft.product().rpartition("/")[2])
    other = draft.random.random() < 0.5
    for run in RUNS:
        price = next(iter(draft.sites[run].pages[f"/p/{number}"].things.values()))
        draft.add(run, "/list/1", "/twin/1", SitePage(things=_things(number, 12 if other else price)))


# What a spider says


@feature()
def new_code(draft: Draft) -> None:
    draft.code([SECOND, THIRD], edition=2)


@feature()
def drops(draft: Draft) -> None:
    """A step of the pipeline drops things, in all runs or in one."""
    runs = draft.random.choice((RUNS, (FIRST,), (SECOND,)))
    number = draft.product().rpartition("/")[2]
    draft.code(runs, drops=(f"{number}a", f"{number}b"))


@feature("faults-fail")
def faults_drop(draft: Draft) -> None:
    draft.code(on_fault="drop")
    flawed(draft)


@feature("faults-drop")
def faults_fail(draft: Draft) -> None:
    draft.code(on_fault="fail")
    flawed(draft)


@feature("processes")
def guard(draft: Draft) -> None:
    """Most products have an impossible rating in a run."""
    draft.one_at_a_time()
    draft.code(min_quality=0.8)
    run = draft.random.choice((FIRST, SECOND))
    for path in [path for path in draft.sites[run].pages if path.startswith("/p/")]:
        if draft.random.random() < 0.8:
            draft.alter([run], path, is_flawed=True)


@feature()
def sitemap(draft: Draft) -> None:
    for run in RUNS:
        pages = draft.sites[run].pages
        pages["/hidden/1"] = SitePage(things=_things("h", 5))
        draft.site([run], sitemap=("/hidden/1", "/p/1"))
    draft.code(sitemaps=True)


@feature()
def many_seeds(draft: Draft) -> None:
    draft.code(start=("/", "/p/1", "/p/2", "/list/2"))


@feature("redirect", "moved")  # a session follows redirects at once: docs/sessions.md
def login(draft: Draft) -> None:
    draft.site(members_only=True)
    draft.code(logs_in=True)


@feature()
def form(draft: Draft) -> None:
    """A request that must not be repeated."""
    for run in RUNS:
        draft.sites[run].pages["/search"] = SitePage(things=_things("s", 7 + run))
    draft.code(searches=True)


@feature()
def handled_errors(draft: Draft) -> None:
    draft.code(handles=(410,))
    draft.alter([SECOND], draft.product(), status=410)


# What a command says


@feature("limit-of-urls", "processes")
def limit(draft: Draft) -> None:
    draft.one_at_a_time()
    draft.crawl(draft.random.choice((FIRST, SECOND)), limit=draft.random.randint(4, 9))


@feature()
def depth(draft: Draft) -> None:
    runs = draft.random.choice((RUNS, (FIRST,), (SECOND,)))
    for run in runs:
        draft.crawl(run, depth=1 if draft.random.random() < 0.3 else 2)


@feature("limit", "processes")
def limit_of_urls(draft: Draft) -> None:
    draft.one_at_a_time()
    name = draft.random.choice(("crawl.max_urls_per_pattern", "crawl.max_urls_per_site"))
    draft.settings[name] = draft.random.randint(5, 8)


@feature()
def small_queue(draft: Draft) -> None:
    draft.settings["crawl.max_queued"] = draft.random.randint(1, 3)


@feature("guard", "limit", "limit-of-urls", is_costly=True)
def processes(draft: Draft) -> None:
    draft.crawl(draft.random.choice(RUNS), processes=2)


@feature()
def kill(draft: Draft) -> None:
    draft.crawl(draft.random.choice(RUNS), dies_at=draft.random.randint(1, 9))


@feature()
def outputs(draft: Draft) -> None:
    for run in RUNS:
        draft.crawl(run, outputs=("out.jsonl", "out.csv", "out.jsonl.gz"))


@feature()
def rewrite_age(draft: Draft) -> None:
    draft.settings["store.min_rewrite_age"] = "1h"


@feature()
def replay(draft: Draft) -> None:
    """Dead letters are tried again before the third run."""
    draft.after[draft.random.choice((FIRST, SECOND))] += [Replay(), Work()]


@feature()
def replay_mended(draft: Draft) -> None:
    """The site is mended first."""
    run = draft.random.choice((FIRST, SECOND))
    draft.after[run] += [PutSite(draft.sites[THIRD]), Replay(fetch=draft.random.random() < 0.5), Work()]


@feature()
def purge(draft: Draft) -> None:
    draft.after[draft.random.choice((FIRST, SECOND))] += [Purge()]


@feature()
def reparse(draft: Draft) -> None:
    draft.after[draft.random.choice(RUNS)] += [Reparse()]


@feature("kill")
def kill_then_work(draft: Draft) -> None:
    """A worker goes on with a crawl that was killed."""
    run = draft.random.choice(RUNS)
    draft.crawl(run, dies_at=draft.random.randint(1, 9))
    draft.is_resumed_by[run] = Work()


@feature("kill", "kill-then-work", "form", "etags", "dates")  # what the killed one has left is not in the model
def kill_then_fresh(draft: Draft) -> None:
    """A crawl that was killed is begun anew."""
    run = draft.random.choice(RUNS)
    draft.crawl(run, dies_at=draft.random.randint(1, 9))
    draft.is_resumed_by[run] = msgspec.structs.replace(draft.crawls[run], dies_at=None, fresh=True)


@feature()
def min_age(draft: Draft) -> None:
    """A schedule visits all products, and leaves out those that are fresh."""
    draft.settings["schedules.often"] = {
        "spider": "shop",
        "every": "1d",
        "min_age": "1h",
        "urls": [f"http://127.0.0.1:{PORT}{path}" for path in SCHEDULED],
    }
    draft.after[draft.random.choice(RUNS)] += [RunSchedule("often", SCHEDULED), Work()]


@feature()
def no_archive(draft: Draft) -> None:
    draft.settings["store.keep_pages"] = False


@feature()
def in_full(draft: Draft) -> None:
    draft.settings["fetch.conditional"] = False


@feature()
def errback(draft: Draft) -> None:
    draft.code(tells_failures=True)


@feature("new-code")
def mended_code(draft: Draft) -> None:
    """The spider learns to read what it could not, and the letters are parsed again."""
    run = draft.random.choice((FIRST, SECOND))
    draft.alter([run], draft.product(), is_broken=True)
    draft.code(range(run + 1, 3), mends=True)
    draft.after[run] += [PutSpider("shop", draft.codes[run + 1]), Replay(), Work()]


@feature("proxies", "kill", "kill-then-work", "kill-then-fresh", "login", "limit")
def credits(draft: Draft) -> None:
    """The budget of a job does not pay for all of its pages."""
    draft.one_at_a_time()
    draft.settings |= {"router.budget_job": draft.random.randint(5, 12), "router.when_spent": "bury"}


@feature()
def second_spider(draft: Draft) -> None:
    """Another spider gives items of the same type from half of the site."""
    code = SpiderCode(start=("/list/2",), edition=draft.random.choice((1, 3)))
    run = draft.random.choice(RUNS)
    draft.after[run] += [PutSpider("other", code), Crawl(spider="other")]


@feature()
def two_jobs(draft: Draft) -> None:
    """Another spider crawls another part of the site at the same time."""
    for run in RUNS:
        pages = draft.sites[run].pages
        pages[ASIDE] = SitePage(links=(f"{ASIDE}/1", f"{ASIDE}/2"))
        pages |= {f"{ASIDE}/{n}": SitePage(things=_things(f"aside{n}", 8 + run)) for n in (1, 2)}
    run = draft.random.choice(RUNS)
    draft.before[run].append(PutSpider("aside", SpiderCode(start=(ASIDE,))))
    draft.crawl(run, beside="aside")


@feature()
def looks(draft: Draft) -> None:
    """People look at the project, and back it up, while a crawl is under way."""
    draft.crawl(draft.random.choice(RUNS), is_watched=True)


@feature("fleet")
def store_away(draft: Draft) -> None:
    """The record store does not answer for a while: results wait on the disk."""
    draft.crawl(draft.random.choice(RUNS), loses_store=True)


@feature("sitemap")  # at 50 a second a sitemap may come too close to a page (docs/limits.md)
def rate(draft: Draft) -> None:
    draft.crawl(draft.random.choice(RUNS), rate=50)


@feature()
def slow_site(draft: Draft) -> None:
    """A crawl-delay in robots.txt."""
    draft.site(crawl_delay=0.05)


@feature("forbidden")  # a 403 is tried through the other proxy as well
def proxies(draft: Draft) -> None:
    """Two proxies, of which the site refuses one in some runs. It rests then, so that it is always the same one."""
    draft.site(proxies=PROXIES)
    for run in RUNS:
        if draft.random.random() < 0.6:
            draft.site([run], refused_proxies=PROXIES[:1])
    urls = [f"http://127.0.0.1:{port}" for port in PROXIES]
    draft.settings |= {"proxies.dc.urls": urls, "proxies.dc.allow_private": True, "routes.out.pool": "dc"}
    draft.settings["router.ladder"] = ["out"]


@feature(is_costly=True)
def fleet(draft: Draft) -> None:
    draft.is_fleet = True


def draft_story(names: Iterable[str], seed: int) -> Story:
    """A story with these features, in the order of the table. What a feature chooses depends on the seed, and not on
    the others: a story that fails is made shorter by leaving features out."""
    chosen = [name for name in FEATURES if name in set(names)]
    draft = Draft(Random(seed))
    for name in chosen:
        draft.random = Random(f"{seed} {name}")
        FEATURES[name].change(draft)
    return draft.story(tuple(chosen))


def are_compatible(one: str, other: str) -> bool:
    return other not in FEATURES[one].not_with and one not in FEATURES[other].not_with

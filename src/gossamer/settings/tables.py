"""Every setting there is: its name, its type, its default. How they are read is in reading.py."""

from __future__ import annotations

from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from ..model.task import RETRY_STATUSES
from ..units import Rate, Size
from .browser import Browser
from .managed import Managed
from .proxies import ProxyPool
from .routes import RouterTable, RouteTable
from .schedules import ScheduleTable

DEFAULT_TRACKING = (
    "utm_*", "gclid", "gclsrc", "dclid", "gbraid", "wbraid", "fbclid", "msclkid", "yclid", "twclid", "ttclid",
    "igshid", "mc_cid", "mc_eid", "_ga", "_gl", "_hsenc", "_hsmi", "mkt_tok", "oly_anon_id", "oly_enc_id",
    "vero_id", "wickedid", "phpsessid", "jsessionid", "sessionid",
)  # fmt: skip


class Crawl(msgspec.Struct, frozen=True, kw_only=True):
    concurrency: int = 32
    depth: int | None = None
    limit: int | None = None
    max_queued: int | None = 5_000_000
    max_urls_per_site: int | None = None
    max_urls_per_pattern: int | None = 200_000
    max_url_length: int = 2083
    max_path_segments: int = 30
    dedup_window: timedelta | None = None
    dedup: str = "exact"
    dedup_expected: int = 10_000_000
    dedup_error: float = 0.001
    dedup_check: bool = False
    drain: timedelta = timedelta(seconds=10)
    parse_timeout: timedelta = timedelta(seconds=30)


class Politeness(msgspec.Struct, frozen=True, kw_only=True):
    rate: Rate = Rate(timedelta(milliseconds=500))
    burst: int = 1
    concurrency: int | None = 4
    robots: bool = True
    max_crawl_delay: timedelta = timedelta(minutes=5)


class Fetch(msgspec.Struct, frozen=True, kw_only=True):
    user_agent: str = "Gossamer/0.1"
    connect_timeout: timedelta = timedelta(seconds=10)
    read_timeout: timedelta = timedelta(seconds=30)
    total_timeout: timedelta = timedelta(seconds=120)
    max_body: Size = Size(10 * 1024 * 1024)
    max_header: Size = Size(64 * 1024)
    max_redirects: int = 10
    allow_private: bool = False
    allow_hosts: tuple[str, ...] = ()
    conditional: bool = True
    detect_blocks: bool = True


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    max_attempts: int = 4
    base: timedelta = timedelta(seconds=1)
    cap: timedelta = timedelta(seconds=60)
    rate_limited_cap: timedelta = timedelta(seconds=300)
    statuses: tuple[int, ...] = RETRY_STATUSES


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    duration: timedelta = timedelta(seconds=60)
    max_deliveries: int = 5


class Urls(msgspec.Struct, frozen=True, kw_only=True):
    tracking: tuple[str, ...] = DEFAULT_TRACKING
    trailing_slash: str = "keep"
    sort_query: bool = True


class Store(msgspec.Struct, frozen=True, kw_only=True):
    keep_pages: bool = True
    compression: int = 1
    min_rewrite_age: timedelta | None = None
    mark_gone: bool = True
    keep_runs: int | None = 100
    spool: str = "gossamer-data/spool"
    spool_limit: Size = Size(1024 * 1024 * 1024)


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """Checks of what is stored. A spider's own `min_quality` goes before `minimum`."""

    minimum: float | None = None  # share of faultless items below which nothing is stored any more
    window: int = 50  # of the last so many items
    usual: float | None = 0.95  # a field that is filled this often must not be empty
    price_jump: float | None = 5.0  # times the price before, or a part of it
    price_ceiling: float | None = 10_000_000.0
    rating_max: float = 5.0


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    shards: int | None = None


class Domain(msgspec.Struct, frozen=True, kw_only=True):
    """Overrides for one site: the key is a registrable domain or a glob such as `*.example`. None inherits."""

    rate: Rate | None = None
    burst: int | None = None
    concurrency: int | None = None
    robots: bool | None = None
    max_attempts: int | None = None
    retry_base: timedelta | None = None
    retry_cap: timedelta | None = None
    retry_statuses: tuple[int, ...] | None = None
    route: str | None = None  # "easy", "hard", or the name of a route that is always taken
    ladder: tuple[str, ...] | None = None
    budget: float | None = None  # tokens for each day
    detect_blocks: bool | None = None
    windows: str | None = None  # when its pages may be fetched: "22:00-06:00 Europe/Berlin"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one can set. `root` is the project folder: where gossamer.toml is, else the working directory."""

    project: str = ""
    state: str = "sqlite:///gossamer-data/state.db"
    records: str = "sqlite:///gossamer-data/records.db"
    archive: str = "folder:///gossamer-data/archive"
    spiders: str = "spiders"
    crawl: Crawl = Crawl()
    politeness: Politeness = Politeness()
    fetch: Fetch = Fetch()
    retry: Retry = Retry()
    lease: Lease = Lease()
    urls: Urls = Urls()
    store: Store = Store()
    quality: Quality = Quality()
    fleet: Fleet = Fleet()
    router: RouterTable = RouterTable()
    browser: Browser = Browser()
    routes: dict[str, RouteTable] = {}
    proxies: dict[str, ProxyPool] = {}
    managed: dict[str, Managed] = {}
    domains: dict[str, Domain] = {}
    schedules: dict[str, ScheduleTable] = {}
    root: Path = Path()
    origins: dict[str, str] = {}  # dotted key -> where its value came from

    def domain(self, site: str) -> Domain:
        """The overrides for a site: the exact name, else the longest glob that matches, else none."""
        exact = self.domains.get(site)
        if exact is not None:
            return exact
        globs = [name for name in self.domains if fnmatchcase(site, name)]
        return self.domains[max(globs, key=len)] if globs else Domain()

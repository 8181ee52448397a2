"""Every setting: its table, its name, its type, its default. reader.py reads them."""

from __future__ import annotations

from datetime import timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

import msgspec

from ..model.task import RETRY_STATUSES
from ..units import Rate, Secret, Size
from .alert_tables import AlertTable, ChannelTable
from .output_tables import OutputTable
from .quality_tables import Expect, HealTable, QualityTable
from .server_tables import Log, Model, Monitor, Otel, Search, ServerTable


class Browser(msgspec.Struct, frozen=True, kw_only=True):
    """[browser]: the pool of browsers that a worker keeps for routes that render."""

    executable: str = ""  # empty: Chromium of the system, else Playwright's own
    browsers: int = 1
    contexts: int = 4  # pages at once in each browser
    recycle_pages: int = 200  # a browser is replaced after this many pages
    recycle_memory: Size = Size(1024**3)  # or when its processes use this much; at half as much again it is killed
    page_memory: Size = Size(768 * 1024**2)  # a page that uses more is closed
    page_timeout: timedelta = timedelta(seconds=45)
    settle: timedelta = timedelta(milliseconds=500)  # how long the network must be quiet
    block: tuple[str, ...] = ("image", "media", "font")  # resource types that are not loaded


class Managed(msgspec.Struct, frozen=True, kw_only=True):
    """[managed.NAME]: a vendor's scraping API, described so that a new one needs no code. An empty field takes the
    value of the preset; fetch/managed/vendor.py checks the whole.

    `..._at` names a part of a response: `data.html` is a path in its JSON, `header:x-cost` one of its headers;
    `http:status`, `http:body` and `http:headers` are those of the response itself.
    """

    preset: str = ""  # the vendor's preset: "scraperapi" or "finedata"; empty: everything is set below
    url: str = ""  # where its API is
    key: Secret = Secret("")
    env: str = ""  # name of a variable with the key
    secret: str = ""  # a file like those in /run/secrets that holds the key
    allow_private: bool = False  # may the API and our callback address be in a private network?

    # What is requested
    mode: str = "sync"  # or "async": a job that is polled; "batch": many URLs in one job
    render: bool = False  # always let the vendor run the page's scripts
    residential: bool = False  # always leave through a home connection
    country: str = ""  # the country to leave from, if the spider names none
    timeout: timedelta = timedelta(seconds=90)  # for one call of the API
    deadline: timedelta = timedelta(minutes=10)  # for a job or a batch, from submission to the page
    poll: timedelta = timedelta(seconds=2)  # between two polls of a job; grows to `max_poll`
    max_poll: timedelta = timedelta(seconds=30)
    batch_window: timedelta = timedelta(milliseconds=500)  # how long a batch waits for more URLs
    batch_size: int = 100
    callback_url: str = ""  # where the vendor reaches us: https://me.example/hook
    callback_listen: str = ""  # where we listen for that: 0.0.0.0:8099
    callback_wait: timedelta = timedelta(minutes=1)  # without a callback for this long, the batch is polled
    max_answer: Size = Size(64 * 1024 * 1024)  # of a batch; longer ones are refused

    # The form of a request
    key_at: str = ""  # "query:api_key" or "header:x-api-key"
    key_prefix: str = ""  # before the key: "Bearer "
    method: str = ""  # GET or POST
    send: str = ""  # parameters go into the "query" or into a "json" body
    path: str = ""
    url_param: str = ""
    render_param: str = ""  # a name, which is sent with true, or name=value
    wait_for_param: str = ""  # the name for a CSS selector to wait for
    residential_param: str = ""
    country_param: str = ""
    extra: tuple[Secret, ...] = ()  # name=value, sent with every page; secret, because a second token may be among them

    # Where things are in the response
    body_at: str = ""
    body_encoding: str = ""  # "text" or "base64"
    status_at: str = ""  # of the page
    final_url_at: str = ""
    headers_at: str = ""  # of the page
    cost_at: str = ""  # credits
    error_at: str = ""  # words
    vendor_statuses: tuple[int, ...] = ()  # of the response: the API itself failed; empty: those of the preset
    failed_statuses: tuple[int, ...] = ()  # of the response: the API could not get this page

    # Jobs: mode = "async", and the states also for batches
    submit_path: str = ""
    job_path: str = ""  # /jobs/{id}
    job_id_at: str = ""
    state_at: str = ""
    done_states: tuple[str, ...] = ()
    failed_states: tuple[str, ...] = ()
    result_at: str = ""  # within a job, the part that looks like the response of mode = "sync"

    # Batches: mode = "batch"
    batch_path: str = ""
    batch_param: str = ""  # the name of the list of pages
    batch_tag: str = ""  # the name under which each page carries our id
    callback_param: str = ""
    batch_job_path: str = ""  # /batch/{id}; empty: no polling, callbacks alone
    batch_id_at: str = ""
    results_at: str = ""  # the list of results, in a callback and when polled
    tag_at: str = ""  # our id, within a result


class ProxyPool(msgspec.Struct, frozen=True, kw_only=True):
    """[proxies.NAME]: a pool of proxies, listed one by one or behind a gateway.

    Proxies come from any of `urls`, `file`, `env` and `secret`, or `gateway`. Secrets never print. A gateway's user and
    password may also come from `env` or `secret`, as `user:password`.
    """

    kind: str = "datacenter"  # or "residential", which is rotated less often
    urls: tuple[Secret, ...] = ()  # http://user:password@host:port, https://..., socks5://...
    file: str = ""  # one address in each line, from the project's folder
    env: str = ""  # name of a variable with addresses, separated by commas, blanks or line breaks
    secret: str = ""  # a file like those in /run/secrets, in the format of `file`
    gateway: str = ""  # http://gate.example:8000: one address, the user name selects the proxy
    username: str = ""  # its template: "{user}-session-{session}[-country-{country}]"; [...] only with a country
    user: Secret = Secret("")
    password: Secret = Secret("")
    session: str = "task"  # a session of the gateway is for one "task", one "site" or one "key"
    country: str = ""  # for pages that name none
    stay: timedelta | None = None  # how long a site keeps its proxy; none: 10 minutes if residential, else not at all
    cooldown: timedelta = timedelta(minutes=1)  # of a proxy after its first ban; doubles with each further one
    max_cooldown: timedelta = timedelta(hours=1)
    allow_private: bool = False  # may its proxies be in a private network?
    skip: tuple[str, ...] = ()  # proxies that are not used, by name as in `gossamer proxies`


class RouteTable(msgspec.Struct, frozen=True, kw_only=True):
    """[routes.NAME]: one way to fetch a page. `direct` and `browser` exist without being listed."""

    transport: str = "http"  # or "profile", "browser", "managed"
    pool: str = ""  # the name of a [proxies] table; empty: no proxy
    profile: str = ""  # of TLS and headers, for transport = "profile"
    vendor: str = ""  # the name of a [managed] table
    price: float = 1.0  # credits for each request
    price_per_gb: float = 0.0  # credits for each GB received


class TransportTable(msgspec.Struct, frozen=True, kw_only=True):
    """[transports.NAME]: your own transport, for [routes] that name it."""

    use: str = ""  # module:Class
    options: tuple[str, ...] = ()  # name=value, passed to the class


class RouterTable(msgspec.Struct, frozen=True, kw_only=True):
    """[router]: the ladder of routes, what is learned about them, and what may be spent."""

    ladder: tuple[str, ...] = ()  # routes from cheap to dear; empty: direct and all [routes], by price
    max_proxies: int = 5  # proxies of a pool that may refuse a page before it climbs or fails
    learn: bool = True
    recheck: timedelta = timedelta(minutes=30)  # before a cheaper route is tried again; doubles when that fails
    max_recheck: timedelta = timedelta(days=1)
    budget_job: float | None = None  # credits
    budget_day: float | None = None
    budget_domain: float | None = None  # for each domain and day
    when_spent: str = "wait"  # or "bury"


class ScheduleTable(msgspec.Struct, frozen=True, kw_only=True):
    """[schedules.NAME]: what is scraped repeatedly, or once; schedule/definition.py checks the whole. None means: not
    set. Exactly one of `every`, `cron` and `at` is needed."""

    spider: str = ""  # the name of a spider or a recipe, or a URL: a whole site

    # When
    every: str | None = None  # "6h"
    cron: str | None = None  # "0 3 * * *"
    at: str | None = None  # "2027-01-31T12:00"; TOML dates work too
    zone: str = "UTC"  # for cron, and for moments and windows without a zone
    windows: str = ""  # when its pages may be fetched: "22:00-06:00 Europe/Berlin"
    overlap: str = "skip"  # or "queue", "replace": when the previous run is still going

    # What: the keys of schedule/sources; without any: the spider's own start
    urls: tuple[str, ...] | str | None = None
    file: str | None = None
    command: tuple[str, ...] | str | None = None
    sitemap: str | None = None
    feed: str | None = None
    start: bool | None = None
    format: str | None = None
    column: str | None = None
    shell: bool | None = None
    timeout: timedelta | None = None
    max_output: Size | None = None
    only_changed: bool | None = None
    max_urls: int | None = None

    # How
    kind: str = ""  # the callback for URLs of the source; empty: parse
    priority: int = 0  # of its runs among the jobs
    rate: Rate | None = None  # of its runs at a site, where that is slower than the usual rate
    site_concurrency: int | None = None  # requests of a run at once at one site, where that is fewer than usual
    min_age: timedelta | None = None  # a page fetched less than this ago is left out
    limit: int | None = None  # pages of each run
    budget: int | None = None  # fetches per day, spent where pages change most
    min_interval: timedelta | None = None  # between two fetches of one page, with a budget
    max_interval: timedelta | None = None
    arguments: tuple[str, ...] = ()  # of the spider: "category=lamps"

    # What a run must reach; see Expect
    min_records: int | None = None
    min_pages: int | None = None
    max_dead_share: float | None = None
    max_change: float | None = None


DEFAULT_TRACKING = (
    "utm_*", "gclid", "gclsrc", "dclid", "gbraid", "wbraid", "fbclid", "msclkid", "yclid", "twclid", "ttclid",
    "igshid", "mc_cid", "mc_eid", "_ga", "_gl", "_hsenc", "_hsmi", "mkt_tok", "oly_anon_id", "oly_enc_id",
    "vero_id", "wickedid", "phpsessid", "jsessionid", "sessionid",
)  # fmt: skip


class Crawl(msgspec.Struct, frozen=True, kw_only=True):
    concurrency: int = 32
    depth: int | None = None
    limit: int | None = None
    rate: Rate | None = None  # of one job at one site; politeness.rate is for all jobs together
    site_concurrency: int | None = None  # requests of one job at once at one site; politeness.concurrency is for all
    priority: int = 0  # jobs with a higher one go first
    sitemaps: bool = True  # for crawls without a spider, and spiders that ask: pages in their sites' sitemaps are seeds
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


class PolitenessTable(msgspec.Struct, frozen=True, kw_only=True):
    rate: Rate = Rate(timedelta(milliseconds=500))
    burst: int = 1
    concurrency: int | None = 4
    per_address: Rate = Rate(None)  # for all sites at one network address together
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
    deny: tuple[str, ...] = ()  # networks
    conditional: bool = True
    detect_blocks: bool = True
    headers: dict[str, str] = {}  # for every page; ${NAME} is a secret


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    max_attempts: int = 4
    base: timedelta = timedelta(seconds=1)
    cap: timedelta = timedelta(seconds=60)
    rate_limited_cap: timedelta = timedelta(seconds=300)
    site_away: timedelta = timedelta(minutes=10)
    statuses: tuple[int, ...] = RETRY_STATUSES
    unsafe: bool = False  # repeat a POST when it is unknown whether it arrived


class LeaseTable(msgspec.Struct, frozen=True, kw_only=True):
    duration: timedelta = timedelta(seconds=60)
    max_deliveries: int = 5


class SessionsTable(msgspec.Struct, frozen=True, kw_only=True):
    keep: timedelta = timedelta(days=30)  # a session not used for this long is forgotten
    login_timeout: timedelta = timedelta(minutes=2)
    login_tries: int = 3  # failures in a row after which pages are given up
    login_pause: timedelta = timedelta(seconds=5)  # after a failed login; doubles


class Urls(msgspec.Struct, frozen=True, kw_only=True):
    tracking: tuple[str, ...] = DEFAULT_TRACKING
    trailing_slash: str = "keep"
    sort_query: bool = True
    identity_headers: tuple[str, ...] = ()  # headers that make two requests for one URL different


class Store(msgspec.Struct, frozen=True, kw_only=True):
    keep_pages: bool = True
    archive_limit: Size | None = None  # bytes of raw pages and files; beyond it nothing is fetched
    compression: int = 1
    min_rewrite_age: timedelta | None = None
    mark_gone: bool = True
    keep_runs: int | None = 100
    spool: str = "gossamer-data/spool"
    spool_limit: Size = Size(1024 * 1024 * 1024)


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """[retention]: what the leading scheduler deletes: by age, and raw copies by their number. None: nothing."""

    attempts: timedelta | None = None  # attempts, and visits replaced by a later one
    pages: timedelta | None = None  # raw pages in the archive
    copies: int | None = None  # raw copies of each page that are kept, the newest
    jobs: timedelta | None = None  # ended jobs without dead letters
    dead: timedelta | None = None  # ended jobs with dead letters
    audit: timedelta | None = None  # lines of the audit log
    every: timedelta = timedelta(hours=6)  # how often
    shrink: timedelta | None = timedelta(days=7)  # how often SQLite files are written anew after that, at most


class FilesTable(msgspec.Struct, frozen=True, kw_only=True):
    """[files]: files that spiders request with page.file and page.download."""

    max_size: Size = Size(1024 * 1024 * 1024)  # of one file; a larger one is refused
    timeout: timedelta = timedelta(hours=1)  # for one request of a file; what came by then is kept
    parts: str = "gossamer-data/parts"  # where files are stored while they arrive, on this machine


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    shards: int | None = None
    key: Secret = Secret("")  # jobs and schedules must carry its seal
    allow_commands: bool = False  # may the state alone name commands that workers run?
    alive: str = ""  # a file that workers, schedulers and servers touch while they live, for probes


class ScalingTable(msgspec.Struct, frozen=True, kw_only=True):
    """[scaling]: how `gossamer up --autoscale` changes the number of workers."""

    look: timedelta = timedelta(seconds=5)  # between two checks of what can be fetched
    calm: timedelta = timedelta(minutes=2)  # how long fewer workers must have been enough


class CeleryTable(msgspec.Struct, frozen=True, kw_only=True):
    """[celery]: the app that `gossamer doctor` checks, and what the ready-made one needs."""

    app: str = ""  # package.module:app
    broker: Secret = Secret("")  # of gossamer.compat.celery
    slices: dict[str, int] = {}  # of gossamer.compat.celery, by lane


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
    skip: tuple[str, ...] = ()  # routes of the ladder that are not taken
    rest: bool = False  # no request is sent to it
    budget: float | None = None  # credits per day
    detect_blocks: bool | None = None
    windows: str | None = None  # when its pages may be fetched: "22:00-06:00 Europe/Berlin"
    headers: dict[str, str] | None = None  # in addition to [fetch.headers], which they override


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. `root` is the project folder: where gossamer.toml is, else the working directory."""

    project: str = ""
    state: str = "sqlite:///gossamer-data/state.db"
    records: str = "sqlite:///gossamer-data/records.db"
    archive: str = "folder:///gossamer-data/archive"
    spiders: str = "spiders"
    spider_files: tuple[str, ...] = ()  # files elsewhere that jobs and schedules of a shared state may name
    secrets: str = ""  # a folder with one file per secret, like /run/secrets
    crawl: Crawl = Crawl()
    politeness: PolitenessTable = PolitenessTable()
    fetch: Fetch = Fetch()
    retry: Retry = Retry()
    lease: LeaseTable = LeaseTable()
    sessions: SessionsTable = SessionsTable()
    urls: Urls = Urls()
    store: Store = Store()
    files: FilesTable = FilesTable()
    quality: QualityTable = QualityTable()
    expect: Expect = Expect()
    heal: HealTable = HealTable()
    retention: Retention = Retention()
    fleet: Fleet = Fleet()
    log: Log = Log()
    scaling: ScalingTable = ScalingTable()
    celery: CeleryTable = CeleryTable()
    server: ServerTable = ServerTable()
    search: Search = Search()
    model: Model = Model()
    monitor: Monitor = Monitor()
    otel: Otel = Otel()
    router: RouterTable = RouterTable()
    browser: Browser = Browser()
    extensions: tuple[str, ...] = ()  # module:Class or the name of an entry point; the first is the outermost
    routes: dict[str, RouteTable] = {}
    transports: dict[str, TransportTable] = {}
    proxies: dict[str, ProxyPool] = {}
    managed: dict[str, Managed] = {}
    domains: dict[str, Domain] = {}
    schedules: dict[str, ScheduleTable] = {}
    alerts: dict[str, AlertTable] = {}
    channels: dict[str, ChannelTable] = {}
    outputs: dict[str, OutputTable] = {}
    root: Path = Path()
    origins: dict[str, str] = {}  # dotted key -> where its value came from

    @property
    def shares_state(self) -> bool:
        """Is the state on a server, where others may write too? A file is our own: trust.py checks that."""
        return not self.state.startswith("sqlite:")

    def domain(self, site: str) -> Domain:
        """The overrides for a site: by exact name, else by the longest matching glob, else none."""
        exact = self.domains.get(site)
        if exact is not None:
            return exact
        globs = [name for name in _globs(tuple(self.domains)) if fnmatchcase(site, name)]
        return self.domains[max(globs, key=len)] if globs else Domain()


@lru_cache(maxsize=8)
def _globs(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that are globs: few among thousands of domains, and only they need matching."""
    return tuple(name for name in names if any(sign in name for sign in "*?["))

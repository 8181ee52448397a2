"""The effective settings for a site, a spider and a job: scope, pace, retries, limits, routes, budgets, quality, the
terms of a job. Pure derivation, nothing is opened; mistakes in the settings of routes are found here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from functools import lru_cache
from hashlib import blake2b
from math import isfinite
from typing import TYPE_CHECKING

import msgspec

from .errors import Misconfigured
from .fetch.contract import Limits
from .frontier.admission import LinkScope
from .frontier.contract import JobTerms
from .frontier.politeness import SiteTerms
from .frontier.retry import RetryTerms
from .model.item_account import ON_FAULT, ON_FAULT_WORDS, OnFault
from .model.job import PRIORITY, Job, JobPoliteness
from .model.outcome import Expectations
from .model.payload import BadPayload, Pairs, headers_of
from .model.route import TRANSPORTS, Route
from .model.secret_text import Reveal, secret_of_environment, stored_setting
from .model.url import UrlRules, authority_of, bad_port_of, host_of
from .routing.budget import Budgets
from .routing.ladder import RouteTerms, chosen_by_hand, ladder_of, routes_of
from .settings import BY_HAND, COMMAND_LINE, Settings
from .units import Rate, parse_rate

if TYPE_CHECKING:  # it loads all that reads pages
    from .parse.spider import Spider

WHEN_SPENT = ("wait", "bury")
_PACE = ("rate", "burst", "concurrency")
SITES_REMEMBERED = 20_000  # the effective settings of this many sites are cached


def url_rules(settings: Settings) -> UrlRules:
    urls = settings.urls
    return UrlRules(
        tracking=urls.tracking,
        trailing_slash=urls.trailing_slash,
        sort_query=urls.sort_query,
        identity_headers=urls.identity_headers,
    )


def limits_of(settings: Settings) -> Limits:
    fetch = settings.fetch
    return Limits(
        connect=fetch.connect_timeout,
        read=fetch.read_timeout,
        total=fetch.total_timeout,
        max_body=fetch.max_body.bytes,
        max_header=fetch.max_header.bytes,
    )


def scope_of(settings: Settings, job: Job, spider: Spider, sites: set[str]) -> LinkScope:
    """The scope, the same for every worker of the job. `sites` are those of the seeds; the set may grow while seeds are
    read."""
    return link_scope(settings, sites if spider.allowed_domains is None else spider.allowed_sites(()), job.depth)


def link_scope(settings: Settings, sites: Set[str] | None, depth: int | None) -> LinkScope:
    """The URLs on these sites (None: on any) up to that depth."""
    crawl = settings.crawl
    return LinkScope(
        sites=sites,
        max_depth=depth,
        max_url_length=crawl.max_url_length,
        max_path_segments=crawl.max_path_segments,
    )


def is_flagged(settings: Settings, key: str) -> bool:
    """Was it given on the command line? That takes precedence over everything else."""
    return settings.origins.get(key) == COMMAND_LINE


def _spider_or_setting(settings: Settings, key: str, of_spider: int | None, of_settings: int | None) -> int | None:
    return of_settings if of_spider is None or is_flagged(settings, key) else of_spider


def job_terms(settings: Settings, spider: Spider) -> JobTerms:
    crawl = settings.crawl
    return JobTerms(
        max_attempts=spider.max_attempts or settings.retry.max_attempts,
        max_deliveries=settings.lease.max_deliveries,
        max_queued=crawl.max_queued,
        max_urls_per_site=crawl.max_urls_per_site,
        max_urls_per_pattern=crawl.max_urls_per_pattern,
        dedup_window=crawl.dedup_window,
        dedup=crawl.dedup,
        dedup_expected=crawl.dedup_expected,
        dedup_error=crawl.dedup_error,
        dedup_check=crawl.dedup_check,
        limit=_spider_or_setting(settings, "crawl.limit", spider.limit, crawl.limit),
        depth=_spider_or_setting(settings, "crawl.depth", spider.max_depth, crawl.depth),
        expected=expectations(settings, spider),
        coverage=coverage_of(spider),
        priority=_spider_or_setting(settings, "crawl.priority", spider.priority, crawl.priority) or 0,
        politeness=politeness_of(settings, spider),
    )


def politeness_of(settings: Settings, spider: Spider) -> JobPoliteness:
    """How a job of the spider visits sites: by the command line, else the spider, else `crawl.rate` and
    `crawl.site_concurrency`. Raises Misconfigured.

    With `--rate unlimited`, and no concurrency per site named anywhere, as many requests go to one site as go to all:
    otherwise a limit that nobody mentioned would bind.
    """
    crawl, politeness, given = settings.crawl, settings.politeness, []
    rate, concurrency = crawl.rate, crawl.site_concurrency
    if is_flagged(settings, "politeness.rate") and not is_flagged(settings, "crawl.rate"):
        rate = politeness.rate  # a program passed it as a setting: it holds for the whole job, too
    if is_flagged(settings, "crawl.rate") or is_flagged(settings, "politeness.rate"):
        given.append("rate")
    if is_flagged(settings, "politeness.concurrency") and not is_flagged(settings, "crawl.site_concurrency"):
        concurrency = politeness.concurrency
    if is_flagged(settings, "crawl.site_concurrency") or is_flagged(settings, "politeness.concurrency"):
        given.append("concurrency")
    if is_flagged(settings, "crawl.priority"):
        given.append(PRIORITY)
    if "concurrency" not in given:
        concurrency = spider.site_concurrency or spider.concurrency or concurrency
    if "rate" in given and rate == Rate(None) and concurrency is None:
        concurrency = None if "politeness.concurrency" in settings.origins else crawl.concurrency
    usual = str(rate) if rate is not None else None
    return JobPoliteness(
        rate=_spider_rate(spider) if spider.rate is not None and "rate" not in given else usual,
        burst=spider.burst or None,
        concurrency=concurrency,
        given=tuple(given),
    )


def expectations(settings: Settings, spider: Spider) -> Expectations:
    """What a run of the spider must reach: by the command line, else the spider, else the settings. Raises
    Misconfigured."""
    names = Expectations.__struct_fields__
    flags = {name: getattr(settings.expect, name) for name in names if is_flagged(settings, f"expect.{name}")}
    own = Expectations(**{name: getattr(spider, name) for name in names})
    usual = Expectations(**{name: getattr(settings.expect, name) for name in names})
    if fault := own.fault():
        raise Misconfigured(f"Spider {spider.name}: {fault}.")
    return Expectations(**flags).or_else(own).or_else(usual)


def coverage_of(spider: Spider, source: str = "") -> str:
    """The records that a run of the spider stands for, as a digest of spider, arguments and source. The spider's own
    seeds are known once they were read (`Job.start`)."""
    arguments = getattr(spider, "arguments", None) or {}
    packed = msgspec.json.encode([spider.name, dict(arguments), source], order="deterministic")
    return blake2b(packed, digest_size=12).hexdigest()


def site_terms(settings: Settings, job: JobPoliteness | None = None) -> Callable[[str], SiteTerms]:
    """Terms for a site, for all jobs together: its own table in the settings, else the settings. With a job, its own
    terms on top."""
    politeness, own = settings.politeness, job or JobPoliteness()

    @lru_cache(maxsize=SITES_REMEMBERED)
    def terms(site: str) -> SiteTerms:
        domain = settings.domain(site)
        named = tuple(field for field in _PACE if getattr(domain, field) is not None)
        return SiteTerms(
            interval=politeness.rate.interval if domain.rate is None else domain.rate.interval,
            burst=domain.burst or politeness.burst,
            concurrency=domain.concurrency or politeness.concurrency,
            named=named,
            by_hand=tuple(one for one in named if _origin(settings, site, one).startswith(BY_HAND)),
            rests=domain.rest,
        ).under(own)

    return terms


def _origin(settings: Settings, site: str, field: str) -> str:
    return settings.origins.get(f"domains.{site}.{field}", "")


def _spider_rate(spider: Spider) -> str:
    try:
        parse_rate(spider.rate or "")
    except ValueError as error:
        raise Misconfigured(f"Spider {spider.name}: rate = {error}") from error
    return spider.rate or ""


def tightened(settings: Settings, usual: JobPoliteness, rate: str | None, concurrency: int | None) -> JobPoliteness:
    """The terms of a job that a client asks for: its wishes count as far as they are stricter than the usual ones.
    Raises ValueError."""
    politeness, given = settings.politeness, []
    asked = parse_rate(rate).interval if rate is not None else None
    own = politeness.rate.interval if usual.rate is None else parse_rate(usual.rate).interval
    if asked is not None and (own is None or asked > own):
        usual = msgspec.structs.replace(usual, rate=rate)
        # Between a fast spider and the settings, it counts like the spider's own rate.
        given += ["rate"] if politeness.rate.interval is None or asked > politeness.rate.interval else []
    at_once = usual.concurrency or politeness.concurrency
    if concurrency is not None and (at_once is None or concurrency < at_once):
        usual = msgspec.structs.replace(usual, concurrency=concurrency)
        given += ["concurrency"]
    return msgspec.structs.replace(usual, given=tuple(given), tightens=bool(given)) if given else usual


def robots_rule(settings: Settings, spider: Spider) -> Callable[[str], bool]:
    """Is robots.txt obeyed on a site? Its own table decides, else the spider, else the settings."""
    usual = settings.politeness.robots if spider.robots is None else spider.robots

    @lru_cache(maxsize=SITES_REMEMBERED)
    def obeys(site: str) -> bool:
        own = settings.domain(site).robots
        return usual if own is None else own

    return obeys


def retry_terms(settings: Settings) -> Callable[[str], RetryTerms]:
    """Retry rules for a site: its own table, else the settings."""
    retry = settings.retry

    @lru_cache(maxsize=SITES_REMEMBERED)
    def terms(site: str) -> RetryTerms:
        domain = settings.domain(site)
        return RetryTerms(
            base=domain.retry_base or retry.base,
            cap=domain.retry_cap or retry.cap,
            rate_limited_cap=retry.rate_limited_cap,
            site_away=retry.site_away,
            unsafe=retry.unsafe,
            statuses=frozenset(domain.retry_statuses if domain.retry_statuses is not None else retry.statuses),
            max_attempts=domain.max_attempts,
        )

    return terms


def header_defaults(settings: Settings, spider: Spider | None) -> Callable[[str], Pairs]:
    """The headers of every request to a site: from the settings, its own table and the spider; later ones win. Raises
    Misconfigured."""
    own = _headers(spider.headers, f"Spider {spider.name}: headers", headers_of) if spider is not None else ()

    def headers(site: str) -> Pairs:
        of_site = settings.domain(site).headers or {}
        found = _headers(settings.fetch.headers, "Setting fetch.headers", _of_settings)
        found += _headers(of_site, f"Domain {site}: headers", _of_settings)
        return tuple({name.lower(): (name, value) for name, value in found + own}.values())

    for domain in ("", *settings.domains):
        headers(domain)  # report a wrong one now
    return lru_cache(maxsize=SITES_REMEMBERED)(headers)


def _headers(headers: Mapping[str, str], where: str, stored: Callable[[Mapping[str, str]], Pairs]) -> Pairs:
    try:
        return stored(headers)
    except BadPayload as error:
        raise Misconfigured(f"{where}: it {error}.") from error


def _of_settings(headers: Mapping[str, str]) -> Pairs:
    return tuple((name, stored_setting(value)) for name, value in headers_of(headers) if isinstance(value, str))


def secrets_of(settings: Settings) -> Reveal:
    """Looks up secrets: in the environment, else in the folder that the setting `secrets` names."""
    folder = settings.root / settings.secrets if settings.secrets else None

    def reveal(name: str) -> str:
        try:
            return secret_of_environment(name)
        except Misconfigured:
            if folder is None:
                raise
            file = folder / name
            if not file.is_file():
                raise
        try:
            return file.read_text(encoding="utf-8").strip("\r\n")
        except (OSError, UnicodeError) as error:
            raise Misconfigured(f"The secret {name} cannot be read from {file} ({type(error).__name__}).") from None

    return reveal


class Routing(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of routes."""

    routes: Mapping[str, Route]
    ladder: tuple[Route, ...]
    terms_for: Callable[[str], RouteTerms]
    budgets_for: Callable[[str], Budgets]
    detects_blocks: Callable[[str], bool]


_ROUTINGS: deque[tuple[Settings, Routing]] = deque(maxlen=8)  # by identity: settings cannot be hashed


def routing_of(settings: Settings) -> Routing:
    """The routing, derived once for each Settings, however many jobs ask. Raises Misconfigured for a route, a ladder
    entry or a budget that cannot work."""
    for known, routing in tuple(_ROUTINGS):
        if known is settings:
            return routing
    routing = _derive_routing(settings)
    _ROUTINGS.appendleft((settings, routing))
    return routing


def _derive_routing(settings: Settings) -> Routing:
    router, pools = settings.router, settings.proxies
    if router.when_spent not in WHEN_SPENT:
        raise Misconfigured(f"Setting router.when_spent: {router.when_spent!r} must be one of {', '.join(WHEN_SPENT)}.")
    if router.max_proxies < 1:
        raise Misconfigured("Setting router.max_proxies: at least 1.")
    routes = routes_of(settings.routes, pools, tuple(settings.managed), tuple(settings.transports))
    written = tuple(settings.routes)
    ladder = ladder_of(router.ladder, routes, written, "Setting router.ladder")

    def terms(site: str) -> RouteTerms:
        domain = settings.domain(site)
        rungs = ladder
        if domain.ladder is not None:
            rungs = ladder_of(domain.ladder, routes, written, f"Domain {site}: ladder")
        if domain.route is not None:
            try:
                rungs = chosen_by_hand(domain.route, rungs, routes, pools)
            except Misconfigured as error:
                raise Misconfigured(f"Domain {site}: {error}") from error
        if domain.skip:
            if unknown := next((name for name in domain.skip if name not in routes), None):
                raise Misconfigured(f"Domain {site}: skip: there is no route {unknown!r}. Known: {', '.join(routes)}.")
            rungs = tuple(route for route in rungs if route.name not in domain.skip)
            if not rungs:
                raise Misconfigured(f"Domain {site}: skip leaves no route. To send it no request, set rest.")
        return RouteTerms(
            ladder=rungs,
            learns=router.learn,
            max_proxies=router.max_proxies,
            recheck=router.recheck.total_seconds(),
            max_recheck=router.max_recheck.total_seconds(),
        )

    def budgets(site: str) -> Budgets:
        own = settings.domain(site).budget
        return Budgets(
            job=router.budget_job, day=router.budget_day, domain=router.budget_domain if own is None else own
        )

    def detects(site: str) -> bool:
        own = settings.domain(site).detect_blocks
        return settings.fetch.detect_blocks if own is None else own

    for domain in settings.domains:
        terms(domain)  # report a wrong name now, not when the first page of that domain comes
    _check_budgets(settings, ladder)
    return Routing(
        routes=routes,
        ladder=ladder,
        terms_for=lru_cache(maxsize=SITES_REMEMBERED)(terms),
        budgets_for=lru_cache(maxsize=SITES_REMEMBERED)(budgets),
        detects_blocks=lru_cache(maxsize=SITES_REMEMBERED)(detects),
    )


def _check_budgets(settings: Settings, ladder: tuple[Route, ...]) -> None:
    """A budget that does not pay for one page would make everything wait for ever. Raises Misconfigured."""
    named = {f"router.{name}": getattr(settings.router, name) for name in ("budget_job", "budget_day", "budget_domain")}
    named |= {f"domains.{site}.budget": domain.budget for site, domain in settings.domains.items()}
    max_body = settings.fetch.max_body.bytes
    for name, budget in named.items():
        if budget is None:
            continue
        if not isfinite(budget) or budget <= 0:
            raise Misconfigured(f"Setting {name}: a budget is a number of credits above 0; none means no limit.")
        for route in ladder:
            if route.cost(max_body) > budget:
                raise Misconfigured(
                    f"Setting {name}: {budget:g} credits do not pay for one page by route {route.name}, which may cost "
                    f"{route.cost(max_body):g} (price_per_gb counts for fetch.max_body). Raise it, or drop the route."
                )


def served(wanted: str, routing: Routing) -> frozenset[str]:
    """`browser,api` from the command line as a set of routes and kinds of transport. Raises Misconfigured."""
    names = frozenset(name.strip() for name in wanted.split(",") if name.strip())
    known = {*TRANSPORTS, *routing.routes}
    for name in sorted(names - known):
        raise Misconfigured(f"There is no route {name!r} to serve. Known: {', '.join(sorted(known))}.")
    if not names:
        raise Misconfigured("Say which routes: --routes browser, or a list with commas.")
    return names


def minimum_quality(settings: Settings, spider: Spider) -> float | None:
    """The quality that a spider demands. Raises Misconfigured."""
    minimum = settings.quality.minimum if spider.min_quality is None else spider.min_quality
    if minimum is not None and not 0 < minimum <= 1:
        raise Misconfigured(f"Spider {spider.name}: min_quality = {minimum!r} must be a share from 0 to 1, like 0.8.")
    return minimum


def on_fault_of_spider(settings: Settings, spider: Spider) -> OnFault:
    """What becomes of the faulty items of a spider whose class does not say. Raises Misconfigured."""
    own = spider.on_fault is not None
    chosen = spider.on_fault if own else settings.quality.on_fault
    for policy in ON_FAULT:
        if chosen == policy:
            return policy
    where = f"Spider {spider.name}: on_fault" if own else "Setting quality.on_fault:"
    raise Misconfigured(f"{where} {chosen!r:.40} must be {ON_FAULT_WORDS}.")


def local_hosts(urls: Sequence[str]) -> list[str]:
    """Hosts among `urls` that are this machine or in a private network: naming one allows it. Also `host:port` for a
    port that browsers refuse, and for an entry that is `host:port` itself."""
    from ipaddress import ip_address

    found: list[str] = []
    for url in urls:
        href = url if "://" in url else f"http://{url}"
        host, place = host_of(href), authority_of(href)
        try:
            private = not ip_address(host).is_global
        except ValueError:
            private = host == "localhost" or host.endswith(".localhost")
        found += [host if href == url else place] if private else []
        found += [place] if bad_port_of(href) is not None else []
    return list(dict.fromkeys(found))

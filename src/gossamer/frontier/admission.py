"""Which links may enter the queue: scope, depth, traps; and a cache of links that were offered before. No I/O.

Most links of a page point at pages that the crawl knows. Judging a URL costs microseconds, so URLs that the frontier
has confirmed to know are remembered (bounded) and counted as duplicates here, without asking it again.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import msgspec

from ..errors import InvalidUrl
from ..model.item import safe_text
from ..model.payload import BadPayload, auth_of
from ..model.route import FetchOptions
from ..model.task import Candidate, DropReason, Request, options_of
from ..model.url import (
    MAX_HOST,
    UrlRules,
    authority_of,
    fingerprint,
    looks_endless,
    parse_url,
    shape_of,
    site_of_authority,
    user_in,
    without_user,
)
from ..units import discreet
from .contract import Added

_NOT_FOR_FILES = (DropReason.SCOPE, DropReason.DEPTH)
MEMORY = 50_000  # URLs remembered per process; the oldest are forgotten and judged again


class LinkScope(msgspec.Struct, frozen=True, kw_only=True):
    """Which URLs belong to the crawl: `sites` are registrable domains or hosts; None means all."""

    sites: Set[str] | None = None
    max_depth: int | None = None
    max_url_length: int = 2083
    max_path_segments: int = 30

    def verdict(self, href: str, site: str, host: str, depth: int) -> DropReason | None:
        """Why the URL may not enter, or None."""
        if self.sites is not None and site not in self.sites and not self._covers(host):
            return DropReason.SCOPE
        if len(href) > self.max_url_length or looks_endless(href, max_segments=self.max_path_segments):
            return DropReason.TRAP
        if self.max_depth is not None and depth > self.max_depth:
            return DropReason.DEPTH
        return None

    def _covers(self, host: str) -> bool:
        return any(host == name or host.endswith(f".{name}") for name in self.sites or ())


class Judged(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`candidates` are for the frontier; `duplicates` counts requests that it already knows."""

    candidates: tuple[Candidate, ...] = ()
    offered: tuple[str, ...] = ()  # the URL of each candidate as written; "" if it is no plain GET
    duplicates: int = 0


FORCED_IN_VAIN = (
    "A request with force=True asks for a page that is still queued or being fetched: it is fetched once for both. "
    "Yield the request from that page's own callback, or give it a different URL or body."
)


def forced_in_vain(candidates: Sequence[Candidate], added: Added) -> bool:
    """Were requests with force certainly left out because their page is still open?"""
    left_out = len(candidates) - added.queued - added.dropped
    return left_out > sum(1 for one in candidates if not one.force or one.dropped is not None)


class Admission:
    """Judges the links of one job in one process."""

    def __init__(
        self,
        scope: LinkScope,
        rules: UrlRules,
        *,
        remember_known: bool = True,
        fetcher: str | None = None,
        proxy_pool: str | None = None,
        sessions: Sequence[str] = (),
        keep_user: bool = False,
        named: bool = False,
    ) -> None:
        self._scope = scope
        self._named = named  # a person named these URLs: none is a trap, and no limit of URLs drops them
        self._keep_user = keep_user  # credentials in URLs that the crawl's owner wrote
        self._fetcher, self._proxy_pool = fetcher, proxy_pool  # defaults for requests that name none
        # Also a default: with several sessions, the fingerprint of a page decides which one it gets.
        self._sessions = [(name, msgspec.json.encode(FetchOptions(session=name)).decode()) for name in sessions]
        self._rules = rules
        self._remember_known = remember_known  # off with a dedup window: a URL known today may enter again tomorrow
        self._known: dict[str, None] = {}

    def judge(
        self,
        requests: Sequence[Request],
        *,
        depth: int = 0,
        priority: int = 0,
        site: str = "",
        links_only: bool = False,
    ) -> Judged:
        """Judge requests found at `depth`; `priority` applies to requests that name none. `links_only`: all are plain
        GETs, and none is forced.

        A link that is not a URL is dropped as INVALID, and is counted for the `site` it was found on.
        """
        candidates: list[Candidate] = []
        offered: list[str] = []
        seen: set[bytes] = set()
        known = self._known
        unknown = [request for request in requests if request.url not in known] if links_only else requests
        duplicates = len(requests) - len(unknown)
        for request in unknown:
            plain = links_only or request.is_plain
            if plain and not links_only and not request.force and request.url in known:
                duplicates += 1
                continue
            try:
                candidate = self._candidate(request, plain, depth, priority)
            except InvalidUrl:
                candidate = _invalid(request, site, depth)
            if candidate.fingerprint in seen and not request.force:
                duplicates += 1
                continue
            seen.add(candidate.fingerprint)
            candidates.append(candidate)
            offered.append(request.url if plain else "")
        return Judged(candidates=tuple(candidates), offered=tuple(offered), duplicates=duplicates)

    def _candidate(self, request: Request, plain: bool, depth: int, priority: int) -> Candidate:
        href = parse_url(request.url if plain else request.address()).partition("#")[0]
        user = None
        if "@" in href:
            # A URL is shown and stored; its credentials travel as those of the request. Links must not carry any.
            user = user_in(href) if self._keep_user else None
            href = without_user(href)
        authority = authority_of(href)
        site = site_of_authority(authority)
        if len(site) > MAX_HOST:
            raise InvalidUrl(f"{href[:100]}... has a host name of more than {MAX_HOST} characters.")
        fingerprint = self._rules.fingerprint(href, None if plain else request.options())
        how = request.way() if plain else request.how()
        if user is not None:
            how = _with_login(how, user)
        return Candidate(
            url=href,
            fingerprint=fingerprint,
            site=site,
            shape=shape_of(href),
            kind=request.kind,
            priority=priority if request.priority is None else request.priority,
            depth=depth,
            data=msgspec.json.encode(request.data).decode() if request.data else "",
            dropped=self._verdict(request, href, site, authority.partition(":")[0], depth),
            force=request.force,
            fetcher=request.fetcher or self._fetcher,
            how=self._in_session(how, fingerprint) if self._sessions else how,
            proxy_pool=request.proxy_pool or self._proxy_pool,
            country=request.country,
            max_attempts=request.max_attempts,
            named=self._named,
        )

    def _in_session(self, how: str, fingerprint: bytes) -> str:
        name, alone = self._sessions[fingerprint[-1] % len(self._sessions)]
        if not how:
            return alone
        options = msgspec.json.decode(how, type=FetchOptions)
        if options.session is not None:
            return how
        return msgspec.json.encode(msgspec.structs.replace(options, session=name)).decode()

    def covers(self, url: str) -> bool:
        """Does the URL belong to the crawl's sites?"""
        authority = authority_of(url)
        host = authority.partition(":")[0]
        return self._scope.verdict(url, site_of_authority(authority), host, 0) is not DropReason.SCOPE

    def fingerprint(self, url: str) -> bytes:
        """The fingerprint of a plain GET of this URL."""
        return self._rules.fingerprint(url)

    def _verdict(self, request: Request, href: str, site: str, host: str, depth: int) -> DropReason | None:
        verdict = self._scope.verdict(href, site, host, depth)
        if (self._named and verdict is DropReason.TRAP) or (request.offsite and verdict is DropReason.SCOPE):
            return None
        # A file belongs to the page that asks for it, wherever it is: images often have a host of their own.
        return None if request.is_file and verdict in _NOT_FOR_FILES else verdict

    def confirm(self, judged: Judged, added: Added) -> None:
        """The frontier certainly has these candidates: from now on they are duplicates."""
        if not self._remember_known or added.dropped > sum(1 for one in judged.candidates if one.dropped):
            return  # the frontier itself dropped some: a limit of URLs may be raised
        known = self._known
        for url, candidate in zip(judged.offered, judged.candidates, strict=True):
            if not url or len(url) > self._scope.max_url_length:
                continue  # a hostile page may have links of a megabyte, which are not worth the memory
            if candidate.dropped is not DropReason.DEPTH:  # a shorter path may still be found
                known[url] = None
        while len(known) > MEMORY:
            del known[next(iter(known))]

    def forget(self) -> None:
        """The frontier may have lost candidates that it has confirmed."""
        self._known.clear()


def _with_login(how: str, user: tuple[str, str]) -> str:
    """What travels with a task, with the credentials of its URL, unless the request has its own. Raises InvalidUrl."""
    options = options_of(how)
    if options.auth is not None:
        return how
    try:
        return msgspec.json.encode(msgspec.structs.replace(options, auth=auth_of(user))).decode()
    except BadPayload as error:
        raise InvalidUrl(f"The login in a URL cannot be sent: it {error}.") from error


def _invalid(request: Request, site: str, depth: int) -> Candidate:
    """The candidate for a link that is not a URL, so that it is counted and shown."""
    text = safe_text(discreet(request.url[:500]))
    return Candidate(
        url=text, fingerprint=fingerprint(text), site=site, kind=request.kind, depth=depth, dropped=DropReason.INVALID
    )

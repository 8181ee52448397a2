"""From a task to the request that is made for it, and from a redirect to the request for its target.

Headers come from the settings, the site's table, the spider and the request; later ones take precedence. Secrets are
looked up here, just before the request is made. A long body is read from the archive.
How it fails: FetchRefused for a secret or a body that is no longer there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import msgspec

from ..clock import Clock
from ..errors import FetchRefused, Misconfigured, Permanent
from ..fetch.fetcher import PRIVATE, PageRequest
from ..model.page import Headers, Snapshot
from ..model.payload import MAX_QUEUED_BODY, Body, Pairs, Part
from ..model.record import PageFacts
from ..model.route import FetchOptions
from ..model.secret_text import Reveal, is_secret, revealed
from ..model.task import LANE_ONLY, Candidate, Request, Task
from ..model.url import origin_of
from ..parse.spider import Spider
from ..store.contract import Archive

HeadersFor = Callable[[str], Pairs]


class PageRequests:
    """Makes the requests of one job. `headers_for(site)` returns the default headers for a site."""

    def __init__(self, headers_for: HeadersFor, reveal: Reveal, archive: Archive | None) -> None:
        self._headers_for = headers_for
        self._reveal = reveal
        self.archive = archive

    async def made_for(self, task: Task, how: FetchOptions | None, known: PageFacts | None) -> PageRequest:
        """The request for a task. `how` is None for a plain GET; `known` is our copy of the page, if it may be used for
        a conditional request. Raises FetchRefused."""
        headers = self._headers_for(task.site)
        etag, last_modified = (known.etag, known.last_modified) if known is not None else ("", "")
        if how is None and not headers:
            return PageRequest(
                url=task.url, etag=etag, last_modified=last_modified, redirects=task.redirects, data=task.data,
                kind=task.kind, depth=task.depth,
            )  # fmt: skip
        how = how if how is not None else _PLAIN
        headers = merged(headers, how.headers)
        is_get = how.method == "GET"
        try:
            body = await self._body(how.body) if how.body is not None else None
            return PageRequest(
                url=task.url,
                etag=etag if is_get else "",
                last_modified=last_modified if is_get else "",
                redirects=task.redirects,
                data=task.data,
                kind=task.kind,
                depth=task.depth,
                kept=how.statuses,
                headers=self._revealed(headers),
                private=frozenset(name.lower() for name, value in headers if is_secret(value)) | PRIVATE,
                method=how.method,
                body=body.content(self._reveal) if body is not None else None,
                private_body=body is not None and any(not isinstance(part, bytes) for part in body.parts),
                cookies=self._revealed(how.cookies),
                auth=(revealed(how.auth[0], self._reveal), revealed(how.auth[1], self._reveal)) if how.auth else None,
                timeout=timedelta(seconds=how.timeout) if how.timeout is not None else None,
            )
        except Misconfigured as error:
            raise FetchRefused(str(error)) from error

    def _revealed(self, pairs: Pairs) -> tuple[tuple[str, str], ...]:
        found = tuple((name, revealed(value, self._reveal)) for name, value in pairs)
        for name, value in found:
            if "\r" in value or "\n" in value or "\0" in value:
                raise Misconfigured(f"The secret in {name} has more than one line; no header can carry it.")
        return found

    async def _body(self, body: Body) -> Body:
        if not body.archived:
            return body
        try:
            if self.archive is None:
                raise Permanent("there is no archive (store.keep_pages is off)")
            kept = await self.archive.get(body.ref)
            return Body(parts=msgspec.json.decode(kept.body, type=tuple[Part, ...]), size=body.size)
        except (Permanent, msgspec.DecodeError) as error:
            raise FetchRefused(f"The body of this request cannot be read from the archive: {error}") from error


async def archive_long_bodies(
    candidates: Sequence[Candidate], archive: Archive | None, clock: Clock
) -> Sequence[Candidate]:
    """Move bodies that are too long for the queue into the archive, and return the candidates. Without an archive the
    bodies stay in the queue. Raises BackendUnavailable."""
    if archive is None or all(len(one.how) <= MAX_QUEUED_BODY for one in candidates):
        return candidates
    return [await _put_aside(one, archive, clock.now()) for one in candidates]


async def _put_aside(candidate: Candidate, archive: Archive, now: float) -> Candidate:
    how = candidate.options()
    if len(candidate.how) <= MAX_QUEUED_BODY or how.body is None or how.body.archived:
        return candidate
    page = Snapshot(
        url=candidate.url,
        requested_url=candidate.url,
        status=0,
        headers=Headers(),
        body=msgspec.json.encode(how.body.parts),
        fetched_at=now,
    )
    (ref,) = await archive.put([page])
    body = Body(archived=how.body.digest, ref=ref, size=how.body.size)
    stored = msgspec.json.encode(msgspec.structs.replace(how, body=body)).decode()
    return msgspec.structs.replace(candidate, how=stored)


_PLAIN = FetchOptions()


def merged(*sources: Pairs) -> Pairs:
    """Merge headers of several sources; for names that are equal regardless of case, the last one wins."""
    found = {name.lower(): (name, value) for pairs in sources for name, value in pairs}
    return tuple(found.values())


def is_personal(how: FetchOptions, spider: Spider) -> bool:
    """May the response be meant for this visitor alone? Sessions of a pool that does not log in are all alike."""
    if how.session is not None and not (spider.sessions and type(spider).login is Spider.login):
        return True
    names = (name.lower() for name, value in how.headers if name.lower() in PRIVATE or is_secret(value))
    return how.auth is not None or bool(how.cookies) or any(names)


def redirected(task: Task, how: FetchOptions, to: str, method: str, status: int, spider: Spider) -> Request:
    """The request for `to`, the target of a redirect. It keeps what the spider asked for, but another origin does not
    receive what was meant for the first one alone. Raises FetchRefused."""
    onward = how_after(how, task.url, to, method)
    body = onward.body
    leaves = body is not None and origin_of(to) != origin_of(task.url)
    if leaves and body is not None and (body.archived or any(not isinstance(part, bytes) for part in body.parts)):
        raise FetchRefused(
            f"{task.url} redirects to {to}, at another origin, which must not receive the secrets in the body."
        )
    return Request(
        url=to,
        kind=task.kind,
        data=spider._redirected(task.user_data(), task.url, status),
        fetcher=None if (task.fetcher or "").startswith(LANE_ONLY) else task.fetcher,
        proxy_pool=task.proxy_pool,
        country=task.country,
        max_attempts=task.max_attempts,
        stored=onward,
    )


def how_after(how: FetchOptions, url: str, to: str, method: str) -> FetchOptions:
    """What to send to `to`, to which `url` redirects, with this `method`."""
    body = how.body if method == how.method else None
    headers = how.headers if body is not None or how.body is None else _without_content(how.headers)
    stays = origin_of(to) == origin_of(url)
    if not stays:
        headers = tuple(one for one in headers if one[0].lower() not in PRIVATE and not is_secret(one[1]))
    return msgspec.structs.replace(
        how,
        method=method,
        headers=headers,
        cookies=how.cookies if stays else (),
        auth=how.auth if stays else None,
        body=body,
    )


def _without_content(headers: Pairs) -> Pairs:
    return tuple(one for one in headers if not one[0].lower().startswith("content-"))

"""A page as it came, the facts kept for its next fetch, and what a fetch shows about how often the page changes.

A page has changed when its records have or, if it yields none, its body. Records that different code extracted cannot
be compared. Only jobs that a schedule began watch their pages; other jobs leave the known rhythm as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b

import msgspec
import zstandard

from ..errors import ParseFailed
from ..fetch.fetcher import Answered
from ..model.page import Snapshot
from ..model.record import NO_BODY, PageFacts, Record
from ..model.task import Request, Task
from ..schedule.change_rate import Rhythm, announced_since, seen
from ..store.page_format import hash_of_body

_decode = msgspec.json.Decoder(Rhythm).decode
_PACKED = b"\x28\xb5\x2f\xfd"  # magic number of zstd; rows of earlier versions hold plain JSON
_MOST_LINKS = 256 * 1024 * 1024  # bytes, per page
_compress = zstandard.ZstdCompressor(level=1, write_checksum=False).compress
_SHORT = re.compile("([<> ])([^<> ]*)")  # an address relative to the page's folder, relative to its site, or absolute


def snapshot_of(task: Task, outcome: Answered) -> Snapshot:
    """The page as it came for this task."""
    response = outcome.response
    return Snapshot(
        url=response.url,
        requested_url=task.url,
        status=response.status,
        headers=response.headers,
        body=response.body,
        fetched_at=outcome.fetched_at,
        cut=response.cut,
        kind=task.kind,
        job=task.job,
        data=response.verdict.data_json or task.data,
        screenshot=response.screenshot,
        depth=task.depth,
        packed=response.packed,
    )


def facts_of(
    task: Task,
    snapshot: Snapshot,
    *,
    spider: str,
    parser_version: str,
    requests: Sequence[Request] = (),
    links_only: bool = False,
) -> PageFacts:
    """The facts of a page that came. `links_only`: its requests consist of a URL and a callback only."""
    # The answer to a request that must not be sent twice may have to be settled again, without asking for it again.
    again = not is_safe(task)
    etag, last_modified = snapshot.headers.get("etag"), snapshot.headers.get("last-modified")
    return PageFacts(
        fingerprint=task.fingerprint,
        url=task.url,
        job=task.job,
        fetched_at=snapshot.fetched_at,
        status=snapshot.status,
        etag=etag,
        last_modified=last_modified,
        body_hash=hash_of_body(snapshot.body),
        parser=parser_version,
        links=stored_links(requests, links_only) if (etag or last_modified or again) and requests else b"",
        spider=spider,
    )


def is_safe(task: Task) -> bool:
    """May its request be sent twice without harm?"""
    return not task.how or task.options().is_safe


def without_validators(facts: PageFacts, *, keeps_links: bool = False) -> PageFacts:
    """The facts of a copy that is meant for one visitor: without validators, so that the page is requested in full."""
    return msgspec.structs.replace(facts, etag="", last_modified="", links=facts.links if keeps_links else b"")


def stored_links(requests: Sequence[Request], links_only: bool) -> bytes:
    """Encode requests for storage, as compressed JSON. The links of a page are alike and shrink to a seventh; plain
    links are stored as runs of URLs with the same callback."""
    if links_only:
        if len({request.kind for request in requests}) == 1:  # most pages
            return _compress(msgspec.json.encode([(requests[0].kind, [request.url for request in requests])]))
        kind: str | None = None
        urls: list[str] = []
        runs: list[tuple[str, list[str]]] = []
        for request in requests:
            if request.kind != kind:
                kind, urls = request.kind, []
                runs.append((kind, urls))
            urls.append(request.url)
        return _compress(msgspec.json.encode(runs))
    return _compress(msgspec.json.encode([request.storable() for request in requests]))


def _whole(text: str) -> list[str]:
    """URLs in the format of the previous version: one text that begins with the folder of the page; then for each URL
    `<` and the part after the folder, `>` and the part after the host, or a blank and the whole URL."""
    first = _SHORT.search(text)
    folder = text[: first.start()] if first is not None else text
    site = folder[: folder.find("/", folder.find("//") + 2) + 1]
    starts = {"<": folder, ">": site, " ": ""}
    return [starts[mark] + rest for mark, rest in _SHORT.findall(text, len(folder))]


def links_of(facts: PageFacts | None) -> list[Request]:
    """The requests that the page yielded when it was last parsed. Raises ParseFailed if they cannot be read."""
    if facts is None or not facts.links:
        return []
    try:
        return _read_links(facts)
    except (ValueError, RecursionError, zstandard.ZstdError, msgspec.MsgspecError) as error:
        raise ParseFailed(
            f"The stored links of {facts.url} cannot be read ({error}): its row is damaged. The page is requested in "
            f"full the next time."
        ) from error


def _read_links(facts: PageFacts) -> list[Request]:
    text = facts.links
    if text.startswith(_PACKED):
        # The frame's header states the size; check it before that much memory is allocated.
        if (size := zstandard.get_frame_parameters(text).content_size) > _MOST_LINKS:
            raise ValueError(f"The links of {facts.url} claim to unpack to {size} bytes.")
        text = zstandard.ZstdDecompressor().decompress(text, max_output_size=_MOST_LINKS)
    found: list[Request] = []
    for entry in msgspec.json.decode(text, type=list[Request | tuple[str, str | list[str]]]):
        if isinstance(entry, Request):
            found.append(entry)
        else:
            kind, urls = entry
            found += [Request(url=url, kind=kind) for url in (_whole(urls) if isinstance(urls, str) else urls)]
    return found


def facts_of_failure(task: Task, came: PageFacts | None, known: PageFacts | None, reason: str, now: float) -> PageFacts:
    """The facts of a page whose fetch failed or whose response is unusable. The next fetch requests it in full, so that
    it is parsed again; its rhythm so far is kept. `came` are the facts of the response; without one, the copy of an
    earlier fetch stays."""
    if came is not None:
        return msgspec.structs.replace(
            came,
            parser="",
            failure=reason,
            content=known.content if known is not None else b"",
            rhythm=known.rhythm if known is not None else "",
        )
    facts = known or PageFacts(fingerprint=task.fingerprint, url=task.url, job="", fetched_at=0.0, status=NO_BODY)
    return msgspec.structs.replace(facts, job=task.job, fetched_at=now, status=NO_BODY, failure=reason)


def rhythm_of(facts: PageFacts | None) -> Rhythm | None:
    """The change rhythm of the page; None if it was never watched."""
    if facts is None or not facts.rhythm:
        return None
    try:
        return _decode(facts.rhythm)
    except msgspec.DecodeError:  # written by another version: learn it anew
        return None


def content_of(records: Sequence[Record], body_hash: bytes) -> bytes:
    """A hash that changes when the output of the page changes."""
    if not records:
        return body_hash
    digest = blake2b(digest_size=16)
    for one in sorted((record.type, record.key, record.content_hash) for record in records):
        digest.update(repr(one).encode("utf-8", "backslashreplace"))
    return digest.digest()


def observed(
    facts: PageFacts, known: PageFacts | None, content: bytes, *, watched: bool, lastmod: float | None = None
) -> PageFacts:
    """The facts of a fetch, with the rhythm updated by it. `known` are the facts before it; `lastmod` is when the page
    last changed according to its sitemap."""
    if not watched:
        rhythm = known.rhythm if known is not None else ""
        return msgspec.structs.replace(facts, content=content, rhythm=rhythm)
    before = rhythm_of(known)
    same_code = known is not None and known.parser == facts.parser
    if known is None or before is None:
        after = seen(before, facts.fetched_at, changed=False)
    elif same_code or known.body_hash == facts.body_hash:
        changed = same_code and bool(known.content) and known.content != content
        announced = announced_since(before.last, lastmod)
        after = seen(before, facts.fetched_at, changed=changed, announced=announced)
    else:  # other code extracts other records from the same page: this teaches nothing
        after = msgspec.structs.replace(before, last=max(before.last, facts.fetched_at))
    return msgspec.structs.replace(facts, content=content, rhythm=msgspec.json.encode(after).decode())


def was_done(task: Task, known: PageFacts | None) -> bool:
    """Was the page finished in this job after it was queued? Then the state has lost its settlement."""
    return known is not None and known.job == task.job and known.fetched_at > task.created_at and not known.failure

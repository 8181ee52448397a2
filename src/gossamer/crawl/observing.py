"""What a visit teaches about how often its page changes: for schedules that fetch most where most changes.

A page has changed when its records have, or, where it gives none, its body. Records of different code cannot be
compared. Pages of jobs that no schedule began are
not watched; what is known of them stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from ..model.record import PageFacts, Record
from ..schedule.change_rate import Rhythm, announced_since, seen

_decode = msgspec.json.Decoder(Rhythm).decode


def rhythm_of(facts: PageFacts | None) -> Rhythm | None:
    """What is remembered of a page's changes; None when nobody watched it."""
    if facts is None or not facts.rhythm:
        return None
    try:
        return _decode(facts.rhythm)
    except msgspec.DecodeError:  # of another version: it is learned anew
        return None


def content_of(records: Sequence[Record], body_hash: bytes) -> bytes:
    """A hash that changes with what the page gives."""
    if not records:
        return body_hash
    digest = blake2b(digest_size=16)
    for one in sorted((record.type, record.key, record.content_hash) for record in records):
        digest.update(repr(one).encode("utf-8", "backslashreplace"))
    return digest.digest()


def observed(
    facts: PageFacts, known: PageFacts | None, content: bytes, *, watched: bool, lastmod: float | None = None
) -> PageFacts:
    """The facts of a visit with what it has taught. `known` is what was remembered before, `lastmod` when the page
    changed last as its sitemap says."""
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
    else:  # other code gives other records of the same page: nothing is learned from that
        after = msgspec.structs.replace(before, last=max(before.last, facts.fetched_at))
    return msgspec.structs.replace(facts, content=content, rhythm=msgspec.json.encode(after).decode())

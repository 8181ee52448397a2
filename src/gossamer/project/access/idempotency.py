"""Requests that may be repeated: the same name and content get the same answer for a day.

What it does: of several requests with one name only one is processed; its answer is stored, compressed, and returned to
the others.
How it fails: `RepeatedDifferently`, `StillWorking`, BackendUnavailable. How it recovers: a claim whose server died
expires after CLAIMED; then the request is processed anew.
"""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256

import msgspec
import zstandard

from ...access.contract import StoredAnswer
from ..open import Project
from .keys import Caller

KEPT = timedelta(hours=24)
CLAIMED = timedelta(minutes=5)  # no shorter than a request may wait for its page
MOST_STORED = 1024 * 1024  # bytes of a compressed answer


class RepeatedDifferently(Exception):
    """The name was used for another request."""


class StillWorking(Exception):
    """The first request of that name has not been answered yet."""


class RepeatableAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A stored answer. `body` is None if it was too large to be stored, or secret."""

    status: int
    body: bytes | None


def _name(caller: Caller, name: str) -> str:
    return f"{caller.id}:{sha256(name.encode()).hexdigest()}"


async def begin(project: Project, caller: Caller, name: str, content: bytes) -> RepeatableAnswer | None:
    """None: produce the answer, then call `finish` or `forget`. Raises RepeatedDifferently and StillWorking."""
    digest = sha256(content).hexdigest()
    claimed = CLAIMED + project.settings.server.max_wait
    known = await project.state.answers.claim(_name(caller, name), digest, claimed.total_seconds())
    if known is None:
        return None
    if known.digest != digest:
        raise RepeatedDifferently
    if not known.status:
        raise StillWorking
    body = zstandard.ZstdDecompressor().decompress(known.body) if known.body else None
    return RepeatableAnswer(status=known.status, body=body)


async def finish(project: Project, caller: Caller, name: str, content: bytes, status: int, body: bytes | None) -> None:
    """Store the answer; if it is too large or secret (None), only the fact that it was given."""
    packed = zstandard.ZstdCompressor().compress(body) if body is not None else b""
    answer = StoredAnswer(
        digest=sha256(content).hexdigest(), status=status, body=packed if len(packed) <= MOST_STORED else b""
    )
    await project.state.answers.keep(_name(caller, name), answer, KEPT.total_seconds())


async def forget(project: Project, caller: Caller, name: str) -> None:
    """Release the claim: there was no answer worth keeping."""
    await project.state.answers.release(_name(caller, name))

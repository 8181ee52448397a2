"""Reads a document (PDF, Word, Excel ...) as HTML in a child process: a hostile one ends the child, not the worker.

One child per document: starting it takes a tenth of a second, and nothing of one document is left for the next. How it
fails: a document that is broken, takes too long or too much memory raises ParseFailed with the reason.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from math import ceil

from ..errors import ParseFailed
from ..extract.documents import DocumentKind, document_kind, is_readable
from ..extract.documents.contract import UNREADABLE
from ..model.page import Snapshot

SECONDS = 30.0  # for one document where no other limit is given
MOST_HTML = 100_000_000  # bytes of an answer
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "HOME")
# Each may take a gigabyte: no more at once than there are cores, whoever in this process asks.
_SLOTS = threading.BoundedSemaphore(max(len(os.sched_getaffinity(0)), 2))


async def read_ahead(snapshot: Snapshot, seconds: float) -> str | ParseFailed | None:
    """The HTML of a page that is a document, read while the event loop goes on; the failure if it cannot be read;
    None for other pages, and where the library for its kind is not installed."""
    kind = document_kind(snapshot.headers.get("content-type"), snapshot.body, snapshot.url)
    if kind is None or not is_readable(kind):
        return None
    try:
        return await asyncio.to_thread(read_document, kind, snapshot.body, snapshot.url, seconds)
    except ParseFailed as failure:
        return failure.with_traceback(None)


def read_document(kind: DocumentKind, body: bytes, url: str, seconds: float = SECONDS) -> str:
    """The document as HTML. Raises ParseFailed."""
    import subprocess  # slow to import, and not needed for pages

    with _SLOTS:
        # -P: the working folder may hold modules of strangers.
        command = [sys.executable, "-P", "-m", "gossamer.extract.documents.child", kind.value, str(ceil(seconds))]
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        with subprocess.Popen(  # noqa: S603 our own command
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        ) as child:
            try:
                answer, _ = child.communicate(body, timeout=seconds)
            except subprocess.TimeoutExpired:
                raise _failure(
                    kind, url, f"Reading it takes longer than {seconds:g} s (crawl.parse_timeout)."
                ) from None
            finally:
                child.kill()
    if child.returncode == UNREADABLE:
        raise _failure(kind, url, answer.decode("utf-8", "replace")[:500])
    if child.returncode != 0 or len(answer) > MOST_HTML:
        raise _failure(kind, url, "The process that read it died: it is broken, or takes too much memory or time.")
    return answer.decode("utf-8", "replace")


def _failure(kind: DocumentKind, url: str, why: str) -> ParseFailed:
    return ParseFailed(f"{url} is a {kind.value} document that cannot be read. {why}")

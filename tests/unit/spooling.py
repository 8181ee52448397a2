"""What the tests of the spool share: results to spool, and a disk that ends."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import PageResult
from gossamer.store.spool_files import Waiting

from ..conformance.stores import NOW, book, page_of, result, tried


def visit(n: int) -> PageResult:
    url = f"https://shop.example/{n}"
    return result(book(f"{n}", n=n), page=page_of(url), attempt=tried(url, at=NOW + n))


def snap(n: int, body: bytes | None = None) -> Snapshot:
    url = f"https://shop.example/{n}"
    return Snapshot(
        url=url, requested_url=url, status=200, headers=Headers([("etag", f'"{n}"')]),
        body=f"page {n}".encode() if body is None else body, fetched_at=NOW,
    )  # fmt: skip


def waiting(n: int, body: bytes | None = None) -> Waiting:
    return Waiting(result=visit(n), snapshot=snap(n, body))


def number_of(one: Waiting) -> int:
    return int(one.result.attempt.url.rpartition("/")[2])


@contextmanager
def disk_ends_after(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size`, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

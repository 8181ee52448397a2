"""Where the sets with known answers lie, what is said when they are not there, and which third of them is kept aside.

A third of every set is not looked at while rules are written: a score there tells whether a rule is good for any page.
"""

from __future__ import annotations

import gzip
from hashlib import blake2b
from pathlib import Path

from gossamer.model.page import Headers, Snapshot
from gossamer.parse.page import Page

CORPORA = Path(__file__).resolve().parents[2] / "shared/corpora"


def absent(name: str) -> list[str]:
    """The lines that say that a set is missing; none when it is there."""
    folder = CORPORA / name
    return [] if folder.is_dir() else [f"Not measured: the set {name} is not on this machine ({folder})."]


def kept_aside(name: str) -> bool:
    """True for the third of the pages that is not looked at while rules are written."""
    return blake2b(name.encode(), digest_size=4).digest()[0] % 3 == 0


def html_of(set_name: str, name: str) -> bytes:
    return gzip.decompress((CORPORA / set_name / "html" / f"{name}.html.gz").read_bytes())


def page_of(set_name: str, name: str, url: str) -> Page:
    """A page of a set, as if it had been fetched from its address."""
    headers = Headers([("content-type", "text/html")])
    body = html_of(set_name, name)
    return Page(Snapshot(url=url, requested_url=url, status=200, headers=headers, body=body, fetched_at=0.0))

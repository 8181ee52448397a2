"""A response as values: its headers, and the snapshot that is archived and parsed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec


class Headers:
    """Response headers: looked up without regard to case, in their original order and repetition. Immutable."""

    __slots__ = ("_index", "pairs")

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self.pairs: tuple[tuple[str, str], ...] = tuple(pairs)
        self._index = {name.lower(): value for name, value in reversed(self.pairs)}  # the first value of a name wins

    def get(self, name: str, default: str = "") -> str:
        """The first value of `name`, or `default`."""
        return self._index.get(name.lower(), default)

    def has_any(self, names: Iterable[str]) -> bool:
        """Is any of these names (in lower case) present?"""
        return not self._index.keys().isdisjoint(names)

    def getall(self, name: str) -> list[str]:
        wanted = name.lower()
        return [value for key, value in self.pairs if key.lower() == wanted]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._index

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and self.pairs == other.pairs

    def __hash__(self) -> int:
        return hash(self.pairs)

    def __repr__(self) -> str:
        return f"Headers({len(self.pairs)} lines)"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A raw page as it was received: enough to parse it again years later without another fetch.

    `url` is where the body came from, `requested_url` the URL of the task. `body` is decompressed; `cut` is True if it
    was longer than the limit and its end is missing. `screenshot` is a PNG, if a browser was asked for one. `depth` is
    the number of links from a start page; 0 also for snapshots that do not record it. `packed` is the body as gzip, if
    it came so: the archive need not compress it again.
    """

    url: str
    requested_url: str
    status: int
    headers: Headers
    body: bytes
    fetched_at: float
    cut: bool = False
    kind: str = "parse"
    job: str = ""
    data: str = ""
    screenshot: bytes = b""
    depth: int = 0
    packed: bytes = b""

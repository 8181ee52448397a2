"""`SitePart`: which URLs of a site a crawl covers. Pure.

Patterns come from strangers, over the HTTP API and out of the queue. RE2 compiles them within LARGEST_PROGRAM bytes and
matches in time that is linear in the length of the URL, so that no pattern backtracks (docs/adr/0070). The size of all
patterns of a part together, LARGEST_PART, bounds the time for one URL.
How it fails: BadPattern for a pattern that RE2 refuses, or for too many of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from .url import host_of, parse_url, site_of

MOST_PATTERNS = 50
LONGEST_PATTERN = 300  # characters
LARGEST_PROGRAM = 64 * 1024  # bytes of memory for one compiled pattern
LARGEST_PART = 5_000  # instructions of all compiled patterns of a part: at most some 35 ms for one URL
KEPT_PROGRAMS = 256  # compiled patterns in memory: 16 MiB
LONGEST_ADDRESS = 2_083  # characters; longer ones are left out
_SYNTAX = (
    "There is no look-around, no back reference and no repetition above 1000 (the syntax is that of RE2). To leave out "
    "addresses, exclude them."
)


class BadPattern(ValueError):
    """It is not a regular expression, or too long, or too large when compiled."""


class SitePart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Pages below the path of `url` on its host, unless other fields widen it. `include` and `exclude` are regular
    expressions that may match anywhere in the path."""

    url: str
    include: tuple[str, ...] = ()  # if any are given, one must match
    exclude: tuple[str, ...] = ()  # none of them may match
    match_address: bool = False  # match against the whole URL
    whole_host: bool = False  # also pages that are not below the path of `url`
    subdomains: bool = False  # also other hosts of the site
    other_sites: bool = False
    drop_query: bool = False  # URLs that differ only in their query are one page

    def check(self) -> None:
        """Raises BadPattern."""
        patterns = (*self.include, *self.exclude)
        if len(patterns) > MOST_PATTERNS:
            raise BadPattern(f"At most {MOST_PATTERNS} patterns are allowed, not {len(patterns)}.")
        if sum(_compiled(text).programsize for text in patterns) > LARGEST_PART:
            raise BadPattern("The patterns are too large together. Use fewer of them, or fewer repetitions like {100}.")

    def page(self, href: str) -> str | None:
        """The URL as the crawl requests it; None if it is left out."""
        if self.drop_query:
            href = href.partition("#")[0].partition("?")[0]
        return href if self._is_near(href) and self.has(href) else None

    @property
    def has_patterns(self) -> bool:
        return bool(self.include or self.exclude)

    def has(self, href: str) -> bool:
        """Do the patterns accept it?"""
        if not self.has_patterns:
            return True
        text = (parse_url(href) if self.match_address else _path(href)).encode()
        if len(text) > LONGEST_ADDRESS or any(_compiled(pattern).search(text) for pattern in self.exclude):
            return False
        return not self.include or any(_compiled(pattern).search(text) for pattern in self.include)

    def _is_near(self, href: str) -> bool:
        if site_of(href) != site_of(self.url):
            return self.other_sites
        if _plain_host(href) != _plain_host(self.url):
            return self.subdomains
        return self.whole_host or _path(href).startswith(_path(self.url))


def _plain_host(href: str) -> str:
    return host_of(href).removeprefix("www.")


def _path(href: str) -> str:
    rest = parse_url(href).partition("://")[2].partition("#")[0].partition("?")[0]
    return f"/{rest.partition('/')[2]}"


@lru_cache(maxsize=KEPT_PROGRAMS)
def _compiled(pattern: str) -> Any:  # Any: the library has no types
    """Raises BadPattern."""
    if len(pattern) > LONGEST_PATTERN:
        raise BadPattern(f"A pattern may have {LONGEST_PATTERN} characters, not {len(pattern)}.")
    if not pattern.isascii():
        raise BadPattern(f"{pattern[:80]!r} never matches: write %C3%BC for ü, as addresses do.")
    import re2  # few crawls have patterns

    options = re2.Options()
    options.max_mem = LARGEST_PROGRAM
    options.encoding = re2.Options.Encoding.LATIN1  # addresses are ASCII; `.` is one byte
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")[:100]
        raise BadPattern(f"{pattern[:80]!r} cannot be used as a regular expression ({reason}). {_SYNTAX}") from error

"""`SitePart`: which URLs of a site a crawl covers. Pure.

Patterns come from strangers and may backtrack for ever: each match has a time limit.
How it fails: BadPattern for an invalid pattern, PatternTooSlow.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from .url import host_of, parse_url, site_of

MOST_PATTERNS = 50
LONGEST_PATTERN = 300  # characters
PATIENCE = 0.1  # seconds for one pattern and one URL


class BadPattern(ValueError):
    """It is not a regular expression, or too long."""


class PatternTooSlow(Exception):
    """A pattern took longer than PATIENCE for one URL."""


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
        if patterns:
            import regex  # few crawls have patterns, and the import is slow
        for text in patterns:
            if len(text) > LONGEST_PATTERN:
                raise BadPattern(f"A pattern may have {LONGEST_PATTERN} characters, not {len(text)}.")
            try:
                _compiled(text)
            except regex.error as error:
                raise BadPattern(f"{text[:80]!r} is not a regular expression: {error}.") from error

    def page(self, href: str) -> str | None:
        """The URL as the crawl requests it; None if it is left out. Raises PatternTooSlow."""
        if self.drop_query:
            href = href.partition("#")[0].partition("?")[0]
        return href if self._is_near(href) and self.has(href) else None

    def has(self, href: str) -> bool:
        """Do the patterns accept it? Raises PatternTooSlow."""
        text = href if self.match_address else _path(href)
        if any(_matches(pattern, text) for pattern in self.exclude):
            return False
        return not self.include or any(_matches(pattern, text) for pattern in self.include)

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


@lru_cache(maxsize=500)
def _compiled(pattern: str) -> Any:  # Any: the library has no types
    import regex

    return regex.compile(pattern)


def _matches(pattern: str, text: str) -> bool:
    try:
        return _compiled(pattern).search(text, timeout=PATIENCE) is not None
    except TimeoutError as error:
        raise PatternTooSlow(f"The pattern {pattern[:80]!r} takes too long. Make it simpler.") from error

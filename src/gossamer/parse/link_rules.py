r"""Link rules: which links of a page to follow, and with which callback; and the filters of `page.links`.

    rules = [Rule(allow=r"/book/\d+", callback="book", priority=5), Rule(restrict="nav", deny="/login")]

`allow` and `deny` are regular expressions, searched in the absolute address, as in Scrapy. How it fails: creating a
rule with an invalid expression raises Misconfigured. Addresses longer than LONGEST are left out, so that no expression
gets a hostile text of any size; the time limit of a page's code stops one that backtracks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec
from turbohtml import Document, Element

from ..errors import InvalidUrl, Misconfigured
from ..model.task import DEFAULT_KIND, Request
from ..model.url import site_of
from .css import BadSelector, compile_css

LONGEST = 2_000  # characters of an address that is matched against patterns
TAGS, ATTRS = ("a", "area"), ("href",)
IGNORE, FOLLOW, PREFER = CANONICAL = ("ignore", "follow", "prefer")
CANONICAL_OF = "canonical_of"  # key in a request's data: the page that named this address as canonical

Patterns: TypeAlias = str | re.Pattern[str] | Sequence[str | re.Pattern[str]]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Which links to follow: those whose address matches one of `allow` (empty: every address) and none of `deny`,
    inside the elements that the CSS of `restrict` selects. The first rule that matches a link applies to it.

    `callback` names the method that parses these pages; without one, only the rules are applied to them. With `follow`
    False no rules are applied to pages of that callback. `nofollow` False leaves out links marked rel=nofollow, and all
    links of a page that declares nofollow (meta robots, X-Robots-Tag).

    `canonical` is for pages of this rule that name another address of their site as canonical: "ignore" parses the page
    itself, "follow" also requests that address, "prefer" requests it instead.
    """

    allow: Any = ()
    deny: Any = ()
    restrict: str | Sequence[str] = ()
    callback: str | None = None
    follow: bool = True
    priority: int | None = None
    nofollow: bool = True
    tags: Sequence[str] = TAGS
    attrs: Sequence[str] = ATTRS
    canonical: str = IGNORE

    def __post_init__(self) -> None:
        if self.canonical not in CANONICAL:
            raise Misconfigured(f"A rule's canonical is one of {', '.join(CANONICAL)}, not {self.canonical!r:.80}.")
        patterns(self.allow), patterns(self.deny)
        for selector in as_texts(self.restrict):
            try:
                compile_css(selector)
            except BadSelector as error:
                raise Misconfigured(f"A rule's restrict cannot be used. {error}") from error
        if self.callback is not None and not (isinstance(self.callback, str) and self.callback.isidentifier()):
            raise Misconfigured(f"A rule's callback must be the name of a method, not {self.callback!r:.80}.")


def patterns(given: Any) -> list[re.Pattern[str]]:
    """Compile the expressions. Raises Misconfigured for an invalid one."""
    found = []
    for one in [given] if isinstance(given, str | re.Pattern) else given:
        try:
            found.append(re.compile(one))
        except (re.error, TypeError, RecursionError) as error:
            raise Misconfigured(f"{one!r:.100} is not a valid regular expression for links: {error}.") from error
    return found


def as_texts(given: str | Sequence[str]) -> Sequence[str]:
    return (given,) if isinstance(given, str) else given


def fitting(links: Iterable[str], allow: Any, deny: Any) -> Iterator[str]:
    """The addresses that match one of `allow` and none of `deny`."""
    wanted, unwanted = patterns(allow), patterns(deny)
    for link in links:
        if len(link) > LONGEST or any(one.search(link) for one in unwanted):
            continue
        if not wanted or any(one.search(link) for one in wanted):
            yield link


def hrefs_in(
    tree: Document, restrict: str | Sequence[str], tags: Sequence[str], attrs: Sequence[str], *, nofollow: bool
) -> Iterator[str]:
    """The values of these attributes of these elements, inside the elements that `restrict` selects. Raises
    BadSelector."""
    selector = ", ".join(as_texts(tags))
    areas: list[Any] = [tree]
    if restrict:
        areas = [found for one in as_texts(restrict) for found in compile_css(one).of_document(tree)]
    for area in areas:
        if not isinstance(area, Document | Element):
            continue
        own = [area] if isinstance(area, Element) and area.matches(selector) else []
        for element in [*own, *area.select(selector)]:
            if not nofollow and "nofollow" in (element.attr("rel") or "").lower().split():
                continue
            for name in as_texts(attrs):
                if (value := element.attr(name)) is not None:
                    yield value


def rule_requests(rules: Sequence[Rule], page: Any) -> Iterator[Request]:
    """The requests that the rules make from a page."""
    seen: set[str] = set()
    closed = any(not rule.nofollow for rule in rules) and _says_nofollow(page)
    for rule in rules:
        if closed and not rule.nofollow:
            continue
        links = page.links(
            allow=rule.allow,
            deny=rule.deny,
            restrict=rule.restrict,
            tags=rule.tags,
            attrs=rule.attrs,
            nofollow=rule.nofollow,
        )
        for link in links:
            if link not in seen:
                seen.add(link)
                yield Request(url=link, kind=rule.callback or DEFAULT_KIND, priority=rule.priority)


def are_followed(rules: Sequence[Rule], kind: str) -> bool:
    """Are rules applied to pages of this callback? True for `parse`, and for callbacks of rules with `follow`."""
    return kind == DEFAULT_KIND or any(rule.follow and rule.callback == kind for rule in rules)


def canonical_request(rules: Sequence[Rule], kind: str, page: Any) -> tuple[str, Request] | None:
    """The rules' policy for a page that names another address of its site as canonical, and the request for that
    address. None if the page itself is to be parsed. A page that was requested as canonical is always parsed, even if
    it names yet another address."""
    policy = next((one.canonical for one in rules if (one.callback or DEFAULT_KIND) == kind), IGNORE)
    if policy == IGNORE or CANONICAL_OF in page.data:
        return None
    for href in page.css('link[rel~="canonical" i]::attr(href)').getall()[:1]:
        try:
            url = page.urljoin(href).partition("#")[0]
        except InvalidUrl:
            return None
        if url not in (page.url, page.requested_url) and site_of(url) == site_of(page.url):
            return policy, Request(url=url, kind=kind, data={**page.data, CANONICAL_OF: page.url})
    return None


def _says_nofollow(page: Any) -> bool:
    """Does the page declare nofollow for all its links?"""
    said = [*page.css('meta[name="robots" i]::attr(content)').getall(), *page.headers.getall("x-robots-tag")]
    words = {word.strip() for text in said for word in text.lower().split(",")}
    return bool(words & {"nofollow", "none"})

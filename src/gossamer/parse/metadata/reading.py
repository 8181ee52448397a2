"""What a page says about itself, from JSON-LD, <meta>, <link> and the few places that readers see.

The more exact source comes first: JSON-LD for authors and dates, Open Graph for titles and pictures, <link> for
addresses. Addresses are absolute http(s) ones; those that are no addresses are left out.

How it fails: what a page does not say is None or empty; nothing raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from turbohtml import Document

from ...errors import InvalidUrl
from ..dates import page_date
from .claims import HeadTags, Story, tidy

if TYPE_CHECKING:
    from ..page import Page

_FEEDS = frozenset(
    ("application/rss+xml", "application/atom+xml", "application/feed+json", "application/rdf+xml", "text/xml")
)
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*$")
_BY = re.compile(r"(?:written\s+)?(?:by|von|par|por|di|door|автор:?)\s+", re.IGNORECASE)
_AUTHOR_TAGS = ("author", "article:author", "parsely-author", "sailthru.author", "dc.creator", "dcterms.creator", "byl")
_PUBLISHED_TAGS = (
    "article:published_time", "article:published", "datepublished", "parsely-pub-date", "sailthru.date", "pubdate",
    "publishdate", "publish-date", "publication_date", "og:published_time", "dcterms.created", "dc.date.issued",
    "dcterms.issued", "dc.date", "dcterms.date", "date",
)  # fmt: skip
_MODIFIED_TAGS = (
    "article:modified_time", "article:modified", "og:updated_time", "datemodified", "lastmod", "last-modified",
    "dcterms.modified", "dc.date.modified",
)  # fmt: skip
_BYLINES = '[itemprop~="author"], [rel~="author"], .byline, .author'
_MOST = 200  # authors, keywords, feeds, languages


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """What a page says about itself.

    `headline` is the title of the article in it, without the name of the site. `robots` has the directives of its
    <meta> in lower case. `alternates` leads from a language to the address of the page in it. `article_body` is the
    text of the article where JSON-LD has it. Times have a zone where the page gives one.
    """

    title: str | None = None
    headline: str | None = None
    description: str | None = None
    canonical: str | None = None
    language: str | None = None
    authors: tuple[str, ...] = ()
    published: datetime | None = None
    modified: datetime | None = None
    image: str | None = None
    site_name: str | None = None
    keywords: tuple[str, ...] = ()
    robots: tuple[str, ...] = ()
    feeds: tuple[str, ...] = ()
    favicon: str | None = None
    alternates: dict[str, str] = {}
    next: str | None = None
    prev: str | None = None
    article_body: str | None = None

    @property
    def author(self) -> str | None:
        """All authors, as one text."""
        return ", ".join(self.authors) or None


def metadata_of(page: Page) -> Metadata:
    """What the page says about itself; all empty for what is no markup."""
    tree = page.tree
    return _Reading(page, tree).metadata() if tree is not None else Metadata()


class _Reading:
    def __init__(self, page: Page, tree: Document) -> None:
        self._page = page
        self._tree = tree
        self._head = HeadTags(tree)
        self._story = Story(tree)

    def metadata(self) -> Metadata:
        head, story = self._head, self._story
        headlines = story.texts("headline", "alternativeHeadline") if story.is_article else ()
        og_title = head.first("og:title", "twitter:title")
        return Metadata(
            title=tidy(self._page.title) or og_title,
            headline=next(iter(headlines), None) or og_title,
            description=head.first("description", "og:description", "twitter:description", "dc.description")
            or next(story.texts("description"), None),
            canonical=self._first_address(self._hrefs("canonical"), head.all("og:url")),
            language=self._language(),
            authors=self._authors(),
            published=self._date(story.texts("datePublished", "dateCreated"), _PUBLISHED_TAGS, "datePublished")
            or self._shown_date(),
            modified=self._date(story.texts("dateModified"), _MODIFIED_TAGS, "dateModified"),
            image=self._first_address(
                head.all("og:image:secure_url", "og:image", "og:image:url", "twitter:image", "twitter:image:src"),
                story.addresses("image"),
                story.addresses("thumbnailUrl"),
                self._hrefs("image_src"),
            ),
            site_name=head.first("og:site_name", "application-name")
            or next(story.named("publisher"), None)
            or next(story.named("isPartOf"), None),
            keywords=self._keywords(),
            robots=_parts(head.all("robots"), lower=True),
            feeds=self._feeds(),
            favicon=self._first_address(self._hrefs("icon"), self._hrefs("apple-touch-icon")),
            alternates=self._alternates(),
            next=self._first_address(self._hrefs("next"), self._anchors("next")),
            prev=self._first_address(
                self._hrefs("prev"), self._hrefs("previous"), self._anchors("prev"), self._anchors("previous")
            ),
            article_body=story.body,
        )

    def _language(self) -> str | None:
        root = self._tree.root
        given = [root.attr("lang") or root.attr("xml:lang") if root is not None else None]
        given += [self._page.headers.get("content-language"), self._head.first("content-language")]
        given += [*self._story.texts("inLanguage"), self._head.first("og:locale", "dc.language")]
        for value in given:
            if value and _LANGUAGE.match(value.strip()):
                return value.strip().replace("_", "-")
        return None

    def _authors(self) -> tuple[str, ...]:
        for names in (self._story.named("author"), self._head.all(*_AUTHOR_TAGS), self._shown_authors()):
            found = _people(names)
            if found:
                return found
        return ()

    def _shown_authors(self) -> Iterator[str]:
        """The first byline that is short enough to be one."""
        for element in self._tree.select(_BYLINES)[:20]:
            name = element.select_one('[itemprop~="name"]')
            lines = list(islice((name if name is not None else element).stripped_strings, 2))
            text = tidy(lines[-1] if len(lines) == 2 and lines[0].lower().rstrip(":") == "by" else "".join(lines[:1]))
            if text is not None and len(text) <= 60:
                yield text
                return

    def _date(self, claims: Iterable[str], tags: tuple[str, ...], itemprop: str) -> datetime | None:
        for claim in (*claims, *self._head.all(*tags)):
            found = page_date(claim)
            if found is not None:
                return found
        for element in self._tree.select(f'[itemprop~="{itemprop}"]')[:20]:
            found = page_date(element.attr("datetime") or element.attr("content") or element.text[:100])
            if found is not None:
                return found
        return None

    def _shown_date(self) -> datetime | None:
        """The <time> of publication, or the only one that the page has."""
        times = self._tree.select("time[datetime]")[:50]
        marked = [one for one in times if one.attr("pubdate") is not None or one.has_class("published")]
        for element in marked or (times if len(times) == 1 else []):
            found = page_date(element.attr("datetime"))
            if found is not None:
                return found
        return None

    def _keywords(self) -> tuple[str, ...]:
        head = self._head
        return _parts([*head.all("keywords", "news_keywords"), *self._story.texts("keywords")]) or _once(
            head.all("article:tag")
        )

    def _feeds(self) -> tuple[str, ...]:
        found = []
        for facts in self._head.linked("alternate"):
            if facts["type"].partition(";")[0].strip().lower() in _FEEDS and (address := self._absolute(facts["href"])):
                found.append(address)
        return _once(found)

    def _alternates(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for facts in self._head.linked("alternate"):
            if facts["hreflang"] and len(found) < _MOST and (address := self._absolute(facts["href"])):
                found.setdefault(facts["hreflang"].strip(), address)
        return found

    def _hrefs(self, rel: str) -> Iterator[str]:
        return (facts["href"] for facts in self._head.linked(rel))

    def _anchors(self, rel: str) -> Iterator[str]:
        for element in self._tree.select(f'a[rel~="{rel}"][href]')[:1]:
            yield element.attr("href") or ""

    def _first_address(self, *sources: Iterable[str]) -> str | None:
        for source in sources:
            for href in source:
                address = self._absolute(href)
                if address is not None:
                    return address
        return None

    def _absolute(self, href: str) -> str | None:
        if not href.strip():
            return None
        try:
            return self._page.urljoin(href.strip())
        except InvalidUrl:
            return None


def _people(names: Iterable[str]) -> tuple[str, ...]:
    """Names of persons: addresses and what is too long for a name are left out, a "by" before them as well."""
    found = []
    for name in names:
        name = _BY.sub("", name, count=1) if _BY.match(name) else name
        if 1 < len(name) <= 100 and "://" not in name and not name.startswith(("www.", "@", "{")):
            found.append(name)
    return _once(found)


def _parts(texts: Iterable[str], *, lower: bool = False) -> tuple[str, ...]:
    """What stands between the commas."""
    parts = [part.strip() for text in texts for part in text.split(",")]
    return _once(part.lower() if lower else part for part in parts if part)


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))[:_MOST]

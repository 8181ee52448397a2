"""The metadata of a page, from JSON-LD, <meta>, <link> and a few places in its visible text.

The most precise source wins: JSON-LD for authors and dates, Open Graph for titles and images, <link> for addresses.
Addresses are absolute http(s) URLs; invalid ones are left out.

How it fails: a fact that the page does not state, or states in the wrong shape, is None or empty; nothing raises. The
number and the length of tags, JSON-LD nodes and values are limited.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from turbohtml import Document, Element

from ..errors import InvalidUrl
from .dates import CHANGE, page_date, shown_date
from .structured.facts import StatedFacts
from .structured.things import Thing

if TYPE_CHECKING:
    from .byline import Byline
    from .markup import Markup

_FEEDS = frozenset(
    ("application/rss+xml", "application/atom+xml", "application/feed+json", "application/rdf+xml", "text/xml")
)
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*$")
_BY = re.compile(r"(?:written\s+)?(?:by|von|par|por|di|door|автор:?)\s+", re.IGNORECASE)
_MAIL = re.compile(r"(?:mailto:)?[^\s<>()]+@[^\s<>()@]+")
# Names of <meta>, without the dots, hyphens and underscores that sites write into them.
_AUTHOR_TAGS = ("author", "article:author", "parselyauthor", "sailthruauthor", "dccreator", "dctermscreator", "byl")
_PUBLISHED_TAGS = (
    "article:publishedtime", "article:published", "datepublished", "parselypubdate", "sailthrudate", "pubdate",
    "publishdate", "publisheddate", "publishedtime", "publishedat", "published", "publicationdate", "og:publishedtime",
    "dctermscreated", "dcdateissued", "dctermsissued", "dcdate", "dctermsdate", "date",
)  # fmt: skip
_MODIFIED_TAGS = (
    "article:modifiedtime", "article:modified", "og:updatedtime", "datemodified", "modifieddate", "lastmod",
    "lastmodified", "dctermsmodified", "dcdatemodified",
)  # fmt: skip
_SITE_TAGS = ("og:sitename", "applicationname")
_PUNCTUATION = str.maketrans("", "", ".-_")
_BYLINES = '[itemprop~="author"], [rel~="author"], .byline, .author'
_PARTS = re.compile(r"comment|repl(?:y|ies)|review|testimonial|related|sidebar", re.IGNORECASE)  # names of elements
_LEVELS = 12  # ancestors of a byline that are inspected
_MOST_HEADINGS = 20
_MOST = 200  # authors, keywords, feeds or languages
_LONGEST = 10_000  # characters of one value
_ARTICLE_TYPES = frozenset((
    "advertisercontentarticle", "analysisnewsarticle", "article", "askpublicnewsarticle", "backgroundnewsarticle",
    "blogposting", "discussionforumposting", "howto", "liveblogposting", "medicalscholarlyarticle", "newsarticle",
    "opinionnewsarticle", "posting", "recipe", "report", "reportagenewsarticle", "reviewnewsarticle",
    "satiricalarticle", "scholarlyarticle", "socialmediaposting", "techarticle",
))  # fmt: skip
_ORGANISATIONS = frozenset(("corporation", "localbusiness", "newsmediaorganization", "onlinestore", "organization"))
_PAGE_TYPES = frozenset(
    ("webpage", "itempage", "aboutpage", "faqpage", "profilepage", "medicalwebpage", "creativework")
)


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of a page.

    `title` is the best one: the `<h1>` that the stated titles confirm, else the headline, an only `<h1>`, or
    `page_title`, which is the text of <title> as it stands.

    `headline` is the title of the article on the page, without the name of the site. `robots` holds the directives of
    <meta name="robots"> in lower case. `alternates` maps a language to the address of the page in that language.
    `article_body` is the text of the article if JSON-LD contains it. Times have a zone if the page gives one.
    """

    title: str | None = None
    page_title: str | None = None
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
        """All authors in one text, with commas between them."""
        return ", ".join(self.authors) or None


def metadata_of(page: Markup) -> Metadata:
    """The metadata of the page; every field is empty for a body that is not markup."""
    tree = page.tree
    return _MetadataReader(page, tree).metadata() if tree is not None else Metadata()


class _MetadataReader:
    """Picks each field from the sources of one page, the most precise source first."""

    def __init__(self, page: Markup, tree: Document) -> None:
        self._page = page
        self._tree = tree
        self._head = _HeadTags(page.facts)
        self._json_ld = _ArticleFacts(page.facts.json_ld_things)

    def metadata(self) -> Metadata:
        head, json_ld = self._head, self._json_ld
        headlines = json_ld.texts("headline", "alternativeHeadline") if json_ld.is_article else ()
        og_title = head.first("og:title", "twitter:title")
        page_title, headline = one_line(self._page.title) or og_title, next(iter(headlines), None) or og_title
        return Metadata(
            title=self._title(page_title, headline),
            page_title=page_title,
            headline=headline,
            description=head.first("description", "og:description", "twitter:description", "dcdescription")
            or next(json_ld.texts("description"), None),
            canonical=self._first_address(self._hrefs("canonical"), head.all("og:url")),
            language=self._language(),
            authors=self._authors(),
            published=self._date(json_ld.texts("datePublished", "dateCreated"), _PUBLISHED_TAGS, "datePublished")
            or self._shown_date()
            or self._byline.published,
            modified=self._date(json_ld.texts("dateModified"), _MODIFIED_TAGS, "dateModified") or self._byline.modified,
            image=self._first_address(
                head.all("og:image:secureurl", "og:image", "og:image:url", "twitter:image", "twitter:image:src"),
                json_ld.addresses("image"),
                json_ld.addresses("thumbnailUrl"),
                self._hrefs("image_src"),
            ),
            site_name=head.first(*_SITE_TAGS)
            or next(json_ld.names("publisher"), None)
            or next(json_ld.names("isPartOf"), None),
            keywords=self._keywords(),
            robots=_parts(head.all("robots"), lower=True),
            feeds=self._feeds(),
            favicon=self._first_address(self._hrefs("icon"), self._hrefs("apple-touch-icon")),
            alternates=self._alternates(),
            next=self._first_address(self._hrefs("next"), self._anchors("next")),
            prev=self._first_address(
                self._hrefs("prev"), self._hrefs("previous"), self._anchors("prev"), self._anchors("previous")
            ),
            article_body=json_ld.body,
        )

    def _title(self, page_title: str | None, headline: str | None) -> str | None:
        if self._page.document is not None:
            return page_title  # its headings are those of chapters
        stated = [_folded(title) for title in (headline, page_title) if title]
        parts = {_folded(part) for title in (headline, page_title) if title for part in title_parts(title)}
        shown = [text for element in self._tree.select("h1")[:_MOST_HEADINGS] if (text := one_line(element.text))]
        confirmed = [text for text in shown if _folded(text) in parts]
        if confirmed:
            return max(confirmed, key=len)  # the name of the site is also in most titles, and shorter
        only = shown[0] if len(shown) == 1 else None
        if only and (folded := _folded(only)) and any(folded in title for title in stated):
            return only
        return headline or only or page_title

    def _language(self) -> str | None:
        root = self._tree.root
        given = [root.attr("lang") or root.attr("xml:lang") if root is not None else None]
        given += [self._page.headers.get("content-language"), self._head.first("contentlanguage")]
        given += [*self._json_ld.texts("inLanguage"), self._head.first("og:locale", "dclanguage")]
        for value in given:
            if value and _LANGUAGE.match(value.strip()):
                return value.strip().replace("_", "-")
        return None

    def _authors(self) -> tuple[str, ...]:
        """The authors in the page's metadata; if they name only the site itself, the person in the visible byline."""
        stated = _people(self._json_ld.names("author")) or _people(self._head.all(*_AUTHOR_TAGS))
        site = {name.casefold() for name in (*self._head.all(*_SITE_TAGS), *self._json_ld.organisations)}
        if stated and not all(name.casefold() in site for name in stated):
            return stated
        marked, seen = stated or _people(self._shown_authors()), self._byline.authors
        return seen if seen and (stated or set(marked) <= set(seen)) else marked

    @cached_property
    def _byline(self) -> Byline:
        """Author and dates from the lines around the title."""
        from .byline import byline_of  # here: byline needs article/, which imports this module

        stated = [self._page.title or "", *self._head.all("og:title", "twitter:title")]
        parts = [part for title in stated for part in title_parts(title)]
        titles = frozenset(" ".join(part.lower().split()) for part in parts if part)
        return byline_of(self._tree, titles, self._language() or "")

    def _shown_authors(self) -> Iterator[str]:
        """The first element marked as a byline that is short enough for a name and does not belong to a comment or list
        entry."""
        for element in self._tree.select(_BYLINES)[:20]:
            if _is_of_part(element) or _is_of_entry(element):
                continue
            name = element.select_one('[itemprop~="name"]')
            stated = name.attr("content") if name is not None else None
            lines = [stated] if stated else list(islice((name if name is not None else element).stripped_strings, 2))
            text = one_line(
                lines[-1] if len(lines) == 2 and lines[0].lower().rstrip(":") == "by" else "".join(lines[:1])
            )
            if text is not None and len(text) <= 60:
                yield text
                return

    def _date(self, claims: Iterable[str], tags: tuple[str, ...], itemprop: str) -> datetime | None:
        for claim in (*claims, *self._head.all(*tags)):
            found = page_date(claim) or shown_date(claim)
            if found is not None:
                return found
        for element in self._tree.select(f'[itemprop~="{itemprop}"]')[:20]:
            found = page_date(element.attr("datetime") or element.attr("content") or element.text[:100])
            if found is not None:
                return found
        return None

    def _shown_date(self) -> datetime | None:
        """The <time> that is marked as the publication, or the only <time> of the page."""
        times = self._tree.select("time[datetime]")[:50]
        marked = [one for one in times if one.attr("pubdate") is not None or one.has_class("published")]
        for element in marked or (times if len(times) == 1 else []):
            found = page_date(element.attr("datetime"))
            if found is not None and not _tells_change(element):
                return found
        return None

    def _keywords(self) -> tuple[str, ...]:
        head = self._head
        return _parts([*head.all("keywords", "newskeywords"), *self._json_ld.texts("keywords")]) or _once(
            head.all("article:tag")
        )

    def _feeds(self) -> tuple[str, ...]:
        found = []
        for link in self._head.links("alternate"):
            media = (link.attr("type") or "").partition(";")[0].strip().lower()
            if media in _FEEDS and (address := self._absolute(link.attr("href") or "")):
                found.append(address)
        return _once(found)

    def _alternates(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for link in self._head.links("alternate"):
            language = link.attr("hreflang")
            if language and len(found) < _MOST and (address := self._absolute(link.attr("href") or "")):
                found.setdefault(language.strip(), address)
        return found

    def _hrefs(self, rel: str) -> Iterator[str]:
        return (link.attr("href") or "" for link in self._head.links(rel))

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


class _HeadTags:
    """The <meta> and <link> elements of a page, by name and by relation."""

    def __init__(self, facts: StatedFacts) -> None:
        self._links = facts.links
        self._metas: dict[str, list[str]] = {}
        for tag in facts.metas:
            content = one_line(tag.content)
            if content is None:
                continue
            itemprop = tag.element.attr("itemprop") or ""
            if itemprop and _is_of_part(tag.element):
                itemprop = ""
            for name in filter(None, (tag.property, tag.name, itemprop, tag.http_equiv)):
                self._metas.setdefault(name.strip().lower().translate(_PUNCTUATION), []).append(content)

    def first(self, *names: str) -> str | None:
        """The content of the first of these names that the page uses."""
        for name in names:
            if name in self._metas:
                return self._metas[name][0]
        return None

    def all(self, *names: str) -> list[str]:
        return [content for name in names for content in self._metas.get(name, ())]

    def links(self, rel: str) -> Iterator[Element]:
        """The <link> elements with a relation, in order."""
        return (link for rels, link in self._links if rel in rels)


class _ArticleFacts:
    """What JSON-LD says about the page's article, or else about the page; empty without JSON-LD."""

    def __init__(self, things: list[Thing]) -> None:
        things = sorted(things, key=lambda thing: thing.depth)  # what stands outside counts more than what it mentions
        articles = [thing for thing in things if thing.types & _ARTICLE_TYPES][:1]
        self._described = (
            articles + [thing for thing in things if thing.types & _PAGE_TYPES and not thing.types & _ARTICLE_TYPES][:1]
        )
        self.is_article = bool(articles)
        self.organisations = [thing.text("name") for thing in things if thing.types & _ORGANISATIONS]

    def _values(self, *names: str) -> Iterator[object]:
        """The values under these names, those of the article before those of the page."""
        return (value for thing in self._described for value in islice(thing.values(*names), _MOST))

    def texts(self, *names: str) -> Iterator[str]:
        return filter(None, map(one_line, self._values(*names)))

    def names(self, name: str) -> Iterator[str]:
        """The names of persons and organisations: each is a text, or a thing with a name."""
        return self._texts_or(name, "name")

    def addresses(self, name: str) -> Iterator[str]:
        """Addresses: each is a text, or a thing with an address."""
        return self._texts_or(name, "url", "contentUrl")

    def _texts_or(self, name: str, *inner: str) -> Iterator[str]:
        for value in self._values(name):
            for one in value.values(*inner) if isinstance(value, Thing) else (value,):
                if (text := one_line(one)) is not None:
                    yield text

    @property
    def body(self) -> str | None:
        """The full text of the article, where JSON-LD contains it."""
        return next((value for value in self._values("articleBody") if isinstance(value, str) and value.strip()), None)


def title_parts(title: str) -> list[str]:
    """The title, and its parts without the name of the site behind it."""
    return [title, *re.split(r"\s[|–—·»:-]\s", title[:1000])]


def _folded(title: str) -> str:
    return " ".join(re.findall(r"\w+", title[:1000].lower()))


def one_line(value: object) -> str | None:
    """A text on one line; None for an empty text and for any other value."""
    if not isinstance(value, str):
        return None
    return " ".join(value[:_LONGEST].split()) or None


def _is_of_part(element: Element) -> bool:
    """True for an element in a comment, a review or a sidebar."""
    around = element.parent
    for _ in range(_LEVELS):
        if not isinstance(around, Element) or around.tag in ("main", "body"):
            return False
        names = " ".join(str(around.attr(name) or "") for name in ("class", "id", "itemprop"))[:300]
        if around.tag in ("aside", "footer", "nav") or _PARTS.search(names):
            return True
        around = around.parent
    return False


def _is_of_entry(element: Element) -> bool:
    """True for a byline in a list entry: an element with a linked heading and no other byline."""
    around = element.parent if element.attr("itemprop") is None else None
    for _ in range(_LEVELS // 2):
        if not isinstance(around, Element) or len(around.select(_BYLINES)) > 2:
            return False
        if around.select_one("h1") is not None:
            return False
        if around.select_one("h2 a, h3 a, h4 a, a h2, a h3, a h4") is not None:
            return True
        around = around.parent
    return False


def _tells_change(time: Element) -> bool:
    """Does the element, or its line, mention a change?"""
    around, said = time, ""
    for _ in range(3):
        said += " ".join(str(around.attr(name) or "") for name in ("class", "itemprop"))[:300]
        if len(around.text) <= 100:
            said += around.text
        if not isinstance(around.parent, Element):
            break
        around = around.parent
    return CHANGE.search(said) is not None


def _people(names: Iterable[str]) -> tuple[str, ...]:
    """Names of persons without a leading "by" and e-mail addresses. URLs and texts too long for a name are left out."""
    found = []
    for name in names:
        if "@" in name[1:] and len(name) <= _MOST:
            name = _MAIL.sub(" ", name).strip(" <>()[],;:-")
        name = _BY.sub("", name, count=1) if _BY.match(name) else name
        if 1 < len(name) <= 100 and "://" not in name and not name.startswith(("www.", "@", "{")):
            found.append(name)
    return _once(found)


def _parts(texts: Iterable[str], *, lower: bool = False) -> tuple[str, ...]:
    """The texts, split at commas."""
    parts = [part.strip() for text in texts for part in text.split(",")]
    return _once(part.lower() if lower else part for part in parts if part)


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))[:_MOST]

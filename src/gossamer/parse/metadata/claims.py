"""Where facts about a page are written: <meta>, <link>, and the JSON-LD of the article or page.

`HeadTags` and `Story` are the two sources, read once; they give texts in their order of worth and judge nothing.
How it fails: what is missing, empty or of the wrong shape is not there. Numbers and lengths are bounded.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Any

from turbohtml import Document

_MOST_TAGS = 2_000
_MOST_NODES = 20_000  # of JSON-LD
_LONGEST = 10_000  # characters of one value
_STORIES = frozenset((
    "advertisercontentarticle", "analysisnewsarticle", "article", "askpublicnewsarticle", "backgroundnewsarticle",
    "blogposting", "discussionforumposting", "howto", "liveblogposting", "medicalscholarlyarticle", "newsarticle",
    "opinionnewsarticle", "posting", "recipe", "report", "reportagenewsarticle", "reviewnewsarticle",
    "satiricalarticle", "scholarlyarticle", "socialmediaposting", "techarticle",
))  # fmt: skip
_PAGES = frozenset(("webpage", "itempage", "aboutpage", "faqpage", "profilepage", "medicalwebpage", "creativework"))


def tidy(value: object) -> str | None:
    """A text on one line; None for what is none or empty."""
    if not isinstance(value, str):
        return None
    return " ".join(value[:_LONGEST].split()) or None


def told(value: object) -> str | None:
    """A text of JSON-LD on one line. Its authors write entities there, as in markup; they are undone once."""
    return tidy(html.unescape(value[:_LONGEST])) if isinstance(value, str) and "&" in value else tidy(value)


class HeadTags:
    """The <meta> and <link> elements of a page, by name and by relation."""

    def __init__(self, document: Document) -> None:
        self._metas: dict[str, list[str]] = {}
        for element in document.select("meta[content]")[:_MOST_TAGS]:
            content = tidy(element.attr("content"))
            if content is None:
                continue
            for attribute in ("property", "name", "itemprop", "http-equiv"):
                name = element.attr(attribute)
                if name:
                    self._metas.setdefault(name.strip().lower(), []).append(content)
        self.links: list[tuple[frozenset[str], dict[str, str]]] = []
        for element in document.select("link[rel][href]")[:_MOST_TAGS]:
            rel = frozenset((element.attr("rel") or "").lower().split())
            facts = {name: element.attr(name) or "" for name in ("href", "type", "hreflang", "title", "sizes", "media")}
            self.links.append((rel, facts))

    def first(self, *names: str) -> str | None:
        """The content of the first name that the page has."""
        for name in names:
            if name in self._metas:
                return self._metas[name][0]
        return None

    def all(self, *names: str) -> list[str]:
        return [content for name in names for content in self._metas.get(name, ())]

    def linked(self, rel: str) -> Iterator[dict[str, str]]:
        """The links of a relation, in order."""
        return (facts for rels, facts in self.links if rel in rels)


class Story:
    """What JSON-LD says about the article, or else about the page; empty when it says nothing."""

    def __init__(self, document: Document) -> None:
        self._by_id: dict[str, dict[str, Any]] = {}  # Any: it is any JSON
        stories: list[dict[str, Any]] = []
        pages: list[dict[str, Any]] = []
        for node in self._nodes(document):
            kinds = _kinds(node)
            if kinds & _STORIES:
                stories.append(node)
            elif kinds & _PAGES:
                pages.append(node)
            name = node.get("@id")
            if isinstance(name, str) and len(node) > 1:
                self._by_id.setdefault(name, node)
        self.is_article = bool(stories)
        self._nodes_of_worth = stories[:1] + pages[:1]

    @staticmethod
    def _nodes(document: Document) -> Iterator[dict[str, Any]]:
        """The objects of all blocks, outer ones first; no more than _MOST_NODES."""
        level: list[Any] = list(document.json_ld())
        budget = _MOST_NODES
        while level and budget > 0:
            deeper: list[Any] = []
            for value in level[:budget]:
                if isinstance(value, dict):
                    yield value
                    deeper += [inner for inner in value.values() if isinstance(inner, dict | list)]
                elif isinstance(value, list):
                    deeper += value
            budget -= len(level)
            level = deeper

    def texts(self, *names: str) -> Iterator[str]:
        """The texts under these names, of the article before those of the page."""
        for node in self._nodes_of_worth:
            for name in names:
                for value in _listed(node.get(name)):
                    text = told(value)
                    if text is not None:
                        yield text

    def values(self, name: str) -> Iterator[Any]:
        for node in self._nodes_of_worth:
            yield from _listed(node.get(name))

    def named(self, name: str) -> Iterator[str]:
        """The names of persons and organisations: each a text, an object with a name, or a pointer to one."""
        for value in self.values(name):
            value = self._resolved(value)
            text = told(value.get("name")) if isinstance(value, dict) else told(value)
            for inner in _listed(value.get("name")) if isinstance(value, dict) and text is None else ():
                if (one := told(inner)) is not None:
                    yield one
            if text is not None:
                yield text

    def addresses(self, name: str) -> Iterator[str]:
        """Addresses: each a text, or an object with a url."""
        for value in self.values(name):
            value = self._resolved(value)
            address = value.get("url") or value.get("contentUrl") if isinstance(value, dict) else value
            for one in _listed(address):
                if (text := told(one)) is not None:
                    yield text

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, dict) and "name" not in value and "url" not in value:
            name = value.get("@id")
            return self._by_id.get(name, value) if isinstance(name, str) else value
        return value

    @property
    def body(self) -> str | None:
        """The text of the article, if it is there in full."""
        for value in self.values("articleBody"):
            if isinstance(value, str) and value.strip():
                return value
        return None


def _kinds(node: dict[str, Any]) -> frozenset[str]:
    kinds = [kind for kind in _listed(node.get("@type")) if isinstance(kind, str)]
    return frozenset(kind.rpartition("/")[2].lower() for kind in kinds)


def _listed(value: Any) -> list[Any]:
    return value[:200] if isinstance(value, list) else [] if value is None else [value]

"""The facts in a page's JSON-LD about its article, or else about the page itself.

How it fails: values of the wrong shape are left out; nothing raises. The number of nodes and the length of texts are
limited.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Any

from turbohtml import Document

from .structured import json_ld_blocks

_MOST_NODES = 20_000  # JSON-LD objects
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


class JsonLdFacts:
    """The facts in JSON-LD about the article, or else about the page; empty if there is no JSON-LD."""

    def __init__(self, document: Document) -> None:
        self._by_id: dict[str, dict[str, Any]] = {}  # Any: any JSON
        self.organisations: list[str] = []
        articles: list[dict[str, Any]] = []
        pages: list[dict[str, Any]] = []
        for node in self._nodes(document):
            kinds = _kinds(node)
            if kinds & _ARTICLE_TYPES:
                articles.append(node)
            elif kinds & _PAGE_TYPES:
                pages.append(node)
            name = node.get("@id")
            if isinstance(name, str) and len(node) > 1:
                self._by_id.setdefault(name, node)
            if kinds & _ORGANISATIONS and isinstance(called := node.get("name"), str):
                self.organisations.append(called.strip())
        self.is_article = bool(articles)
        self._described = articles[:1] + pages[:1]

    @staticmethod
    def _nodes(document: Document) -> Iterator[dict[str, Any]]:
        """The objects of all blocks, outer ones first; at most _MOST_NODES."""
        level: list[Any] = json_ld_blocks(document)
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
        """The texts under these names, those of the article before those of the page."""
        for node in self._described:
            for name in names:
                for value in _listed(node.get(name)):
                    text = _unescaped(value)
                    if text is not None:
                        yield text

    def values(self, name: str) -> Iterator[Any]:
        for node in self._described:
            yield from _listed(node.get(name))

    def named(self, name: str) -> Iterator[str]:
        """The names of persons and organisations: each is a text, an object with a name, or a reference to one."""
        for value in self.values(name):
            value = self._resolved(value)
            for given in _listed(value.get("name") if isinstance(value, dict) else value):
                if (text := _unescaped(given)) is not None:
                    yield text

    def addresses(self, name: str) -> Iterator[str]:
        """Addresses: each is a text, or an object with a url."""
        for value in self.values(name):
            value = self._resolved(value)
            address = value.get("url") or value.get("contentUrl") if isinstance(value, dict) else value
            for one in _listed(address):
                if (text := _unescaped(one)) is not None:
                    yield text

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, dict) and "name" not in value and "url" not in value:
            name = value.get("@id")
            return self._by_id.get(name, value) if isinstance(name, str) else value
        return value

    @property
    def body(self) -> str | None:
        """The full text of the article, where JSON-LD contains it."""
        for value in self.values("articleBody"):
            if isinstance(value, str) and value.strip():
                return value
        return None


def _kinds(node: dict[str, Any]) -> frozenset[str]:
    kinds = [kind for kind in _listed(node.get("@type")) if isinstance(kind, str)]
    return frozenset(kind.rpartition("/")[2].lower() for kind in kinds)


def _listed(value: Any) -> list[Any]:
    return value[:200] if isinstance(value, list) else [] if value is None else [value]


def one_line(value: object) -> str | None:
    """A text on one line; None for an empty text and for any other value."""
    if not isinstance(value, str):
        return None
    return " ".join(value[:_LONGEST].split()) or None


def _unescaped(value: object) -> str | None:
    """A text of JSON-LD on one line. Sites write HTML entities there; they are decoded once."""
    return one_line(html.unescape(value[:_LONGEST])) if isinstance(value, str) and "&" in value else one_line(value)

"""`KindOfPage`: what a page is for, told from its address, its structured data and the look of its text.

What a page says and shows are traits, numbered as in traits.py (NAMES says what each one means), and every kind has a
weight for each of them, learned from pages of known kind (`python -m quality.fit`). The confidence is the share of
pages with such traits that are of that kind. Costs grow with the size of the page.

How it fails: a page without text has the kind "other" and no confidence.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from turbohtml import Document

from .traits import GROUP_BITS, PRICE, Survey, limits_reached

if TYPE_CHECKING:
    from ..markup import Markup
    from ..structured.facts import StatedFacts

OTHER = "other"

_TYPES = {
    "article": "article newsarticle blogposting report reportagenewsarticle liveblogposting scholarlyarticle",
    "product": "product productgroup individualproduct vehicle book softwareapplication course",
    "offer": "offer aggregateoffer",
    "forum": "discussionforumposting qapage question answer socialmediaposting",
    "list": "itemlist collectionpage searchresultspage offercatalog blog",
    "docs": "techarticle apireference howto",
    "faq": "faqpage",
    "service": "service localbusiness professionalservice organization corporation",
    "rating": "review aggregaterating",
}
_TYPE_OF = {name: group for group, names in _TYPES.items() for name in names.split()}
_PATHS = {
    "blog": "blog blogs news article articles story stories post posts insights learn resources magazine",
    "shop": "product products p item dp pd prod shop store",
    "collection": """
        collection collections category categories c catalog browse department all women men sale brand brands
    """,
    "forum": """
        forum forums thread threads topic topics t questions question community discussion discuss boards
        viewtopic showthread comments talk d
    """,
    "docs": "docs doc documentation wiki manual guide guides reference api tutorial tutorials help man kb learn html",
    "service": "service services solutions about pricing contact testimonials reviews plans membership programs",
}
_PATH_OF: dict[str, list[str]] = {}


class KindOfPage(msgspec.Struct, frozen=True):
    """`name` is article, collection (products), documentation, forum, listing (anything else), product, service or
    other; `confidence` runs from 0 to 1. `all` has the confidence of every kind.
    """

    name: str = OTHER
    confidence: float = 0.0
    all: Mapping[str, float] = {}

    def to_dict(self) -> dict[str, object]:
        """Name and confidence, to be part of an item."""
        return {"kind": self.name, "confidence": self.confidence}


def kind_of(page: Markup, survey: Survey) -> KindOfPage:
    """The kind of a page that has been surveyed."""
    if page.tree is None or not survey.lines:
        return KindOfPage()
    traits = page_traits(page, page.tree, survey)
    sums = {kind: weights.bias + sum(weights.of[NAMES[trait]] for trait in traits) for kind, weights in KINDS.items()}
    most = max(sums.values())
    shares = {kind: exp(total - most) for kind, total in sums.items()}
    whole = sum(shares.values())
    confidences = {kind: round(share / whole, 3) for kind, share in shares.items()}
    name = max(confidences, key=confidences.__getitem__)
    return KindOfPage(name, confidences[name], confidences)


class Weights(msgspec.Struct, frozen=True):
    """`bias` is what counts without any trait; `of` has the weight of every trait by its name."""

    bias: float
    of: dict[str, float]


class _File(msgspec.Struct, frozen=True):
    content: Weights
    kinds: dict[str, Weights]


FILE = Path(__file__).with_name("weights.json")


def _open(weights: Weights) -> Weights:
    return Weights(weights.bias, defaultdict(float, weights.of))


_FILE = msgspec.json.decode(FILE.read_bytes(), type=_File)
CONTENT = _open(_FILE.content)
KINDS = {kind: _open(weights) for kind, weights in _FILE.kinds.items()}
for _group, _words in _PATHS.items():
    for _word in _words.split():
        _PATH_OF.setdefault(_word, []).append(_group)
_OG = ("article", "product", "website")
_GROUPS = ("message", "user", "reply", "review", "card", "offer", "detail", "fold")  # of traits.py
_STEPS: dict[str, tuple[float, ...]] = {
    "hyphens": (1, 3, 5, 8),
    "folders": (1, 2, 3, 4),
    "words": (100, 300, 700, 1500, 3000),
    "page links": (0.15, 0.3, 0.45, 0.6),
    "page prose": (0.2, 0.35, 0.5, 0.65, 0.8),
    "long paragraphs": (1, 4, 10, 20, 40),
    "winner share": (0.1, 0.3, 0.5, 0.7, 0.9),
    "winner paragraphs": (2, 5, 10, 20),
    "prices": (1, 2, 5, 12, 30),
    "headings": (1, 4, 10, 20),
    "articles": (1, 2, 5, 12),
    "code": (1, 3, 10),
    "times": (1, 2, 6, 15),
    **{
        f"share {group}": (0.02, 0.15, 0.4)
        for group in ("message", "user", "reply", "review", "card", "offer", "detail", "fold")
    },
}
_ADDRESS_WORD = re.compile(r"[a-z]+", re.IGNORECASE)
_BUY = re.compile(
    r"add to (?:cart|bag|basket)|buy now|in den warenkorb|ajouter au panier|añadir al carrito", re.IGNORECASE
)
_DATED_PATH = re.compile(r"/(?:19|20)\d\d/\d{1,2}\b|(?:19|20)\d\d-\d\d")
_MOST = 2_000  # elements of one kind that are looked at


def _names() -> tuple[str, ...]:
    names = [f"{name} >= {limit:g}" for name, limits in _STEPS.items() for limit in limits]
    names += [f"type {group}" for group in _TYPES] + [f"path {group}" for group in _PATHS]
    names += [f"og {kind}" for kind in _OG]
    return (*names, "front page", "dated path", "number in path", "published", "buy button", "query", "author")


NAMES = _names()
_AT = {name: number for number, name in enumerate(NAMES)}


def page_traits(page: Markup, tree: Document, survey: Survey) -> list[int]:
    """The traits of a page."""
    names = [*_of_address(page.url), *_of_head(page.facts, tree), *_of_text(tree, survey)]
    return sorted({_AT[name] for name in names})


def _of_address(url: str) -> list[str]:
    rest = url.partition("://")[2]
    path, _, query = rest.partition("/")[2].partition("?")
    host = rest.partition("/")[0]
    folders = [part for part in path.split("/") if part]
    names = limits_reached(_STEPS, "folders", len(folders))
    names += limits_reached(_STEPS, "hyphens", folders[-1].count("-") if folders else 0)
    words = {word.lower() for word in _ADDRESS_WORD.findall(path)} | set(host.lower().split(".")[:-1])
    names += [f"path {group}" for word in words for group in _PATH_OF.get(word, ())]
    if not folders:
        names.append("front page")
    if query:
        names.append("query")
    if _DATED_PATH.search(path):
        names.append("dated path")
    if any(part.isdigit() for part in re.split(r"[/.-]", path)):
        names.append("number in path")
    return names


def _of_head(facts: StatedFacts, tree: Document) -> list[str]:
    names = []
    kinds = {kind for thing in facts.json_ld_things for kind in thing.types}
    for element in tree.select("[itemtype]")[:_MOST]:
        kinds.add((element.attr("itemtype") or "").rpartition("/")[2].lower())
    names += [f"type {_TYPE_OF[kind]}" for kind in kinds if kind in _TYPE_OF]
    for tag in facts.metas:
        name = (tag.property or tag.name).lower()
        if name == "og:type":
            content = tag.content[:100].strip().lower()
            names += [f"og {kind}" for kind in _OG if content.startswith(kind)]
        elif name in ("article:published_time", "datepublished", "pubdate", "date", "parsely-pub-date"):
            names.append("published")
        elif name in ("author", "article:author", "parsely-author"):
            names.append("author")
    return names


def _of_text(tree: Document, survey: Survey) -> list[str]:
    outline, lines, winner = survey.outline, survey.lines, survey.winner
    held = [one for one in lines if winner is not None and outline.within(one.block, winner) and one.letters >= 80]
    nothing = bytes(len(outline.elements))
    shown = [one.text(nothing)[:60] for one in lines if one.letters <= 60]
    numbers = {
        "words": survey.letters / 6,
        "page links": survey.link_share,
        "page prose": survey.prose_share,
        "long paragraphs": sum(1 for one in lines if one.letters >= 120 and one.link_share < 0.3),
        "winner share": survey.winner_share,
        "winner paragraphs": len(held),
        "prices": sum(1 for text in shown if PRICE.search(text)),
        "headings": sum(1 for tag in outline.tags if tag in ("h2", "h3")),
        "articles": outline.tags.count("article"),
        "code": outline.tags.count("pre"),
        "times": outline.tags.count("time"),
    }
    groups = dict.fromkeys(_GROUPS, 0)
    for one in lines:
        below = survey.places.below[one.block]
        for group in groups:
            if below & GROUP_BITS[group]:
                groups[group] += one.letters
    numbers |= {f"share {group}": letters / survey.letters for group, letters in groups.items()}
    names = [name for key, value in numbers.items() for name in limits_reached(_STEPS, key, value)]
    buttons = tree.select("button, a.button, a.btn")[:_MOST]
    if any(_BUY.search(one.text[:100]) for one in buttons):
        names.append("buy button")
    return names

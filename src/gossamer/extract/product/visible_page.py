"""`VisiblePage`: the visible texts of a page in reading order, with the position of the title and the kind of place of
each text.

Scripts, styles and the options of forms are not text. The number of texts is limited, so that a page with millions of
them costs no more than a long one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from turbohtml import Document, Element, Text

from .identity import PageIdentity

_MOST_NODES = 100_000
_MOST_RUNS = 12_000
_LONGEST_RUN = 1000
_DEEPEST = 60  # ancestors of an element that decide its place
_MOST_HOLDERS = 2000  # elements around the title
_LARGEST_TILE = 300  # nodes in a product tile; a larger box holds several products
_SILENT = frozenset(
    "script style noscript template svg title option textarea iframe object canvas math text tspan".split()  # noqa: SIM905
)

# Class names of page parts that are about other products, or about none.
_OTHERS = re.compile(
    r"related|recommend|similar|carousel|slider|swiper|(?<![a-z])also|upsell|up-sell|cross-?sell|recently|sponsor|teaser"
    r"|accessor(?:y|ies)|bundle|mini-?cart|mini-?basket|cart-?summary|suggest|alternativ|best-?sell|viewed|advert|comparison"
    r"|compare-|popular|together|(?<![a-z])recs?(?![a-z])|(?<![a-z])footer|mega-?menu|main-?menu|navigation|wishlist"
    r"|newsletter|cookie|question",
    re.IGNORECASE,
)
_REVIEWS = re.compile(r"(?<!p)review|comment", re.IGNORECASE)
# A whole class name, not a part of one: "md:hidden" and "overflow-hidden" hide nothing.
_HIDDEN = re.compile(
    r"(?<![\w:-])(?:hidden|hide|d-none|aok-hidden|invisible|is-hidden|visually-hidden)(?![\w:-])"
    r"|(?<![a-z])(?:modal|popover|tooltip|popup)(?![a-z])",
    re.IGNORECASE,
)
_NAMING = ("class", "id", "itemprop", "data-testid", "data-qa-qualifier")
_TILE = (
    "a[href] img, a[href] picture, h2 a[href], h3 a[href], h4 a[href], h5 a[href], "
    "a[href] h2, a[href] h3, a[href] h4, a[href] h5"
)
_PICTURE = re.compile(r"\.(?:jpe?g|png|webp|gif|avif)(?:$|\?)", re.IGNORECASE)
_UNSEEN = re.compile(r"display\s{0,3}:\s{0,3}none|visibility\s{0,3}:\s{0,3}hidden", re.IGNORECASE)
_THROUGH = re.compile(r"line-through", re.IGNORECASE)


class Place:
    """The kinds of elements around a text, without those that are also around the title. Bits of an int, for speed."""

    PLAIN = 0
    ELSEWHERE = 1  # a part about other products, or about none: carousels, footers
    HIDDEN = 2
    STRUCK = 4
    LINK = 8  # links to another page
    LIST = 16
    CHOICE = 32  # a button or a label: a variant that can be chosen, and its price
    REVIEWS = 64  # reviews of the product, or their summary
    OTHERS = ELSEWHERE | REVIEWS  # not the shop's own statement about this product


class TextRun(NamedTuple):
    """The text of one text node, on one line, and its element."""

    text: str
    element: Element


class VisiblePage:
    """The visible texts of a page. `starts` are the indices of the runs with the product's title."""

    __slots__ = ("_identity", "_places", "_shared", "_tiles", "runs", "starts", "tree")

    def __init__(self, tree: Document, identity: PageIdentity) -> None:
        self.tree = tree
        self._identity = identity
        self.runs = _runs(tree)
        self.starts = self._find_starts()
        self._shared: set[Element] = set()
        if self.starts:
            holders = islice(self.runs[self.starts[0]].element.ancestors, _MOST_HOLDERS)
            self._shared = {each for each in holders if isinstance(each, Element)}
        self._places: dict[Element, int] = {}
        self._tiles: dict[Element, bool] = {}

    def _find_starts(self) -> list[int]:
        """The runs of the title: in an <h1> that resembles the page's other names, else in another heading, else
        anywhere."""
        identity = self._identity
        others = [name for name in (identity.social, identity.page_title) if name]
        joined = "\n".join(others).casefold()
        ranks = _heading_ranks(self.tree)
        heads: list[tuple[float, int]] = []
        for at, run in enumerate(self.runs):
            text = run.text
            if len(text) < 3 or len(text) > 300:
                continue
            rank = ranks.get(run.element, 0.0)
            if rank == 0 and (len(text) < 8 or text.casefold() not in joined):
                continue
            likeness = identity.likeness_to(text, others) if others else 1.0
            if rank < 1 and likeness < 0.75:
                continue
            heads.append((rank + likeness * min(len(text), 24) / 24, at))
            if len(heads) >= 200:
                break
        if not heads:
            return []
        best = max(score for score, _ in heads)
        return [at for score, at in heads if score >= best - 0.01][:4]

    def near(self, before: int, after: int) -> list[tuple[int, TextRun]]:
        """The runs around each title, with their indices; those at the top of a page without a title."""
        starts = self.starts or [0]
        indices = sorted(
            {at for start in starts for at in range(max(0, start - before), min(len(self.runs), start + after))}
        )
        return [(at, self.runs[at]) for at in indices]

    def distance(self, at: int) -> int | None:
        """The number of runs since the nearest title above; negative above the first title, None without a title."""
        nearest: int | None = None
        for start in self.starts:
            if nearest is None or start <= at:
                nearest = start
        return at - nearest if nearest is not None else None

    def holds_title(self, element: Element) -> bool:
        return element in self._shared

    def of_another(self, element: Element) -> bool:
        """True in the tile of another product: a small box with a picture or a heading that links elsewhere."""
        for box in with_parents(element, 5):
            if box in self._shared:
                return False
            known = self._tiles.get(box)
            if known is None:
                if next(islice(box.descendants, _LARGEST_TILE, None), None) is not None:
                    return False
                known = self._tiles[box] = self._is_tile(box)
            if known:
                return True
        return False

    def _is_tile(self, element: Element) -> bool:
        link = element.select_one(_TILE)
        if link is None:
            return False
        anchor = link.closest("a[href]")
        href = (anchor.attr("href") or "#") if anchor is not None else "#"
        return (
            not href.startswith(("#", "javascript:")) and not self._identity.is_here(href) and not _PICTURE.search(href)
        )

    def place(self, element: Element) -> int:
        """The place of an element, as bits of `Place`. Each element is examined once."""
        chain: list[Element] = []
        node: object = element
        while isinstance(node, Element) and node not in self._places and len(chain) < _DEEPEST:
            chain.append(node)
            node = node.parent
        known = self._places.get(node, Place.PLAIN) if isinstance(node, Element) else Place.PLAIN
        for each in reversed(chain):
            if each not in self._shared:
                known |= _own_place(each, self._identity)
            self._places[each] = known
        return known


def _runs(tree: Document) -> list[TextRun]:
    runs: list[TextRun] = []
    body = tree.select_one("body")
    for node in islice(body.descendants, _MOST_NODES) if body is not None else ():
        if not isinstance(node, Text):
            continue
        text = node.data
        if text.isspace():
            continue
        parent = node.parent
        if not isinstance(parent, Element) or parent.tag in _SILENT:
            continue
        runs.append(TextRun(" ".join(text[:_LONGEST_RUN].split()), parent))
        if len(runs) >= _MOST_RUNS:
            break
    return runs


def with_parents(element: Element, count: int) -> Iterator[Element]:
    """The element and the elements around it, `count` in all."""
    for _ in range(count):
        yield element
        parent = element.parent
        if not isinstance(parent, Element):
            return
        element = parent


def text_of(element: Element, longest: int) -> str:
    """The beginning of an element's text, on one line. The rest of a large element is not read."""
    parts: list[str] = []
    size = 0
    for part in islice(element.strings, 200):
        parts.append(part[:longest])
        size += len(part)
        if size >= longest:
            break
    return " ".join(" ".join(parts).split())[:longest]


def names_of(element: Element) -> str:
    """The names that the page's author gave the element (class, id and the like), as one text."""
    return " ".join(value for value in map(element.attr, _NAMING) if value)[:300]


def _heading_ranks(tree: Document) -> dict[Element, float]:
    """The headings and the elements in them, each with its rank as a title."""
    ranks: dict[Element, float] = {}
    for selector, rank in (("h1", 1.0), ("h2, h3, [itemprop~=name]", 0.4)):
        for heading in tree.select(selector)[:100]:
            ranks.setdefault(heading, rank)
            for count, inner in enumerate(heading.iter_elements()):
                if count >= 10:
                    break
                ranks.setdefault(inner, rank)
    return ranks


def _own_place(element: Element, identity: PageIdentity) -> int:
    place = Place.PLAIN
    tag = element.tag
    if tag in ("del", "s", "strike"):
        place |= Place.STRUCK
    elif tag == "a":
        href = element.attr("href") or "#"
        if not href.startswith(("#", "javascript:")) and not identity.is_here(href):
            place |= Place.LINK
    elif tag in ("footer", "nav"):
        place |= Place.ELSEWHERE
    elif tag == "li":
        place |= Place.LIST
    elif tag in ("button", "label"):
        place |= Place.CHOICE
    style = element.attr("style")
    if style:
        if _UNSEEN.search(style[:500]):
            place |= Place.HIDDEN
        if _THROUGH.search(style[:500]):
            place |= Place.STRUCK
    names = names_of(element)
    if names:
        place |= _named_place(names)
    if element.attr("hidden") is not None:
        place |= Place.HIDDEN
    return place


@lru_cache(maxsize=4096)
def _named_place(names: str) -> int:
    place = Place.ELSEWHERE if _OTHERS.search(names) else Place.PLAIN
    place |= Place.REVIEWS if _REVIEWS.search(names) else Place.PLAIN
    return place | Place.HIDDEN if _HIDDEN.search(names) else place

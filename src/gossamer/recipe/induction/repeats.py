"""The blocks of a list: the selector that finds, for every record of the list, one element with this record alone.

What it does: of every record that stands on a page, the elements around its key are candidates, by their names and by
their place in a named parent. A selector is good if its elements hold one record each; the largest such elements are
the blocks, because they hold the other values too. Pages are limited, and elements on each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
from turbohtml import Document, Element

from ..sources import PagePart, PageView
from .goal import Sample
from .locators import simple_names
from .matching import RecordIndex
from .spots import root_of, spots_of

_MOST_PAGES = 8
_UP = 12  # elements around a key
_MOST_ELEMENTS = 2_000  # that a selector finds on a page
_FEWEST = 3  # records in blocks of their own
_COVERED = 0.7  # of the records on the pages
_STRANGERS = 0.5  # share of blocks that may hold no record that is known
_MANY, _MOST_STRANGERS = 10, 0.7  # the same if so many records are known


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """`agree` of the `known` records that stand on the pages have a block of their own; `found` blocks in all."""

    css: str
    agree: int
    known: int
    found: int

    @property
    def is_sure(self) -> bool:
        strangers = _MOST_STRANGERS if self.agree >= _MANY else _STRANGERS
        enough = self.agree >= _FEWEST and self.agree >= _COVERED * self.known
        return enough and self.known >= (1 - strangers) * self.found


class _Tried(msgspec.Struct):
    agree: int = 0
    found: int = 0
    pages: int = 0
    size: float = 0.0  # of its blocks, in texts of records
    weight: float = 0.0


def find_blocks(views: Sequence[PageView], index: RecordIndex) -> Blocks | None:
    """The best selector for the blocks of these pages; None if no record stands on them."""
    tried: dict[str, _Tried] = defaultdict(_Tried)
    known = 0
    for view in views[:_MOST_PAGES]:
        sample = Sample(part=PagePart(view))
        root = root_of(sample)
        if root is None:
            continue
        places = _places(sample, index)
        known += len(places)
        if len(places) < 2:
            continue
        for css, weight in _selectors(places, root).items():
            _try(tried[css], css, weight, root, places)
    good = [(css, one) for css, one in tried.items() if one.agree >= _FEWEST and one.pages >= 0.5 * _pages(tried)]
    if not good:
        return None
    most = max(one.agree for _, one in good)
    near = [(css, one) for css, one in good if one.agree >= 0.9 * most]
    css, best = max(near, key=lambda pair: (_rank(pair[1]), -len(pair[0]), pair[0]))
    return Blocks(css=css, agree=best.agree, known=known, found=best.found)


def _pages(tried: dict[str, _Tried]) -> int:
    return max((one.pages for one in tried.values()), default=0)


def _rank(one: _Tried) -> tuple[float, float]:
    strangers = 1 - one.agree / max(one.found, one.agree, 1)
    return round(one.size / max(one.agree, 1) - 3 * strangers, 1), one.weight


def _places(sample: Sample, index: RecordIndex) -> dict[str, list[Element]]:
    """By record: the elements whose text names it."""
    found: dict[str, list[Element]] = defaultdict(list)
    for spot in spots_of(sample):
        if spot.element is not None and not spot.element.select("*")[1:] and (key := index.named_in(spot, sample)):
            found[key].append(spot.element)
    return found


def _selectors(places: dict[str, list[Element]], root: Document | Element) -> dict[str, float]:
    found: dict[str, float] = {}
    for elements in list(places.values())[:6]:
        for element in elements[:2]:
            for around in _around(element, root):
                parent = around.parent
                for css, weight in simple_names(around)[:4]:
                    found[css] = max(found.get(css, 0.0), weight)
                    if isinstance(parent, Element) and parent.tag != "html":
                        for outer, of_outer in simple_names(parent)[:2]:
                            both = f"{outer} > {css}"
                            found[both] = max(found.get(both, 0.0), 0.9 * min(weight, of_outer) + 0.05)
    return found


def _around(element: Element, root: Document | Element) -> list[Element]:
    found, here = [], element
    for _ in range(_UP):
        if here.tag in ("html", "body") or here == root:
            break
        found.append(here)
        if not isinstance(here.parent, Element):
            break
        here = here.parent
    return found


def _try(one: _Tried, css: str, weight: float, root: Document | Element, places: dict[str, list[Element]]) -> None:
    elements = root.select(css)[:_MOST_ELEMENTS]
    nodes = set(elements)
    held: dict[Element, dict[str, int]] = defaultdict(dict)
    for key, spots in places.items():
        for spot in spots:
            for around in _around(spot, root):
                if around in nodes:
                    held[around][key] = held[around].get(key, 0) + 1
    alone: dict[str, int] = {}
    for keys in held.values():
        if len(keys) > 1:
            one.agree -= 1  # a block with two records is no block
        else:
            ((key, texts),) = keys.items()
            alone[key] = max(alone.get(key, 0), texts)
    nested = any(around in nodes for node in elements[:20] for around in _around(node, root)[1:])
    one.pages += 1
    one.agree += 0 if nested else len(alone)
    one.found += len(elements)
    one.size += sum(alone.values())
    one.weight = max(one.weight, weight)

"""Finds the repeated blocks of a page: quotes, cards, rows of results, terms with their definitions.

A block is one of at least three elements with the same tag and name, side by side or each in its own wrapper. A name is
a class chosen by a person, or an attribute that names the element's kind (`data-testid`, `role`). Without a name, list
entries, table rows and sibling boxes are blocks too, and so are definition terms and linked headings, each with the
elements after it. The blocks with most of the page's text are its main content; if they are groups of blocks, the inner
blocks are. Strangers among them, such as advertisements, are recognised by missing fields. Fields are in
block_fields.py.

How it fails: None if nothing repeats, or if no field identifies the blocks. The number of inspected elements and blocks
is limited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

import msgspec
from turbohtml import Element

from ..parse.page import Page
from .block_fields import LEADERS, LONGEST, BlockField, fields_of, follower, selectors_in
from .stable_selectors import NAME, in_margin, stable_classes

_MOST_ELEMENTS = 20_000
_MOST_BLOCKS = 40  # that are compared
_FEWEST = 3
_SHORTEST, _SHORTEST_ROW = 15, 6  # characters; a row, or a block of several parts, may be shorter than a link
_BLOCKS = LEADERS | {
    "a", "article", "blockquote", "details", "div", "dl", "figure", "li", "p", "section", "tr",
}  # and custom elements # fmt: skip
_UNNAMED = ("article", "blockquote", "details", "dl", "figure", "li", "tr")  # blocks that need no class
_OF_PARTS = LEADERS | {"tr"}
_SAYING = ("data-testid", "data-test", "data-qa", "data-cy", "role", "itemtype")  # attributes that name a kind of thing
_BEST = 12  # candidates that are inspected closely
_FAR = 9  # steps from a box without a name to an element that has one
_INNER = 0.7  # share of a group's text that its blocks must hold
_MANY = 0.5  # share of like elements that must be blocks, where some are not, and of fields that each block must have
_COMMON = 0.8  # of the blocks
_ALIKE = 0.3  # share of what a block holds that most blocks hold, on average


class Blocks(msgspec.Struct, frozen=True):
    selector: str
    count: int
    fields: tuple[BlockField, ...]

    @property
    def key(self) -> str | None:
        """The field that identifies a block, preferably a link."""
        unique = [field.name for field in self.fields if field.unique and field.name != "image"]
        return "link" if "link" in unique else unique[0] if unique else None

    @property
    def singles(self) -> int:
        """The fields that have one value in each block."""
        return sum('"list"' not in field.rule for field in self.fields)


class _Group(msgspec.Struct, frozen=True):
    """Similar elements, and how much text they hold."""

    selector: str
    elements: tuple[Element, ...]
    letters: float

    @property
    def rank(self) -> tuple[float, bool]:
        return self.letters, "." in self.selector.rpartition(" ")[2]


def best_blocks(page: Page) -> Blocks | None:
    """The blocks that are most likely the page's main content; None if nothing repeats."""
    groups = sorted(_groups(page), key=lambda group: group.rank, reverse=True)[:_BEST]
    for group in groups:
        outer = _blocks(page, group)
        for other in groups:
            # If these are mere groups with fewer fields, their inner blocks count.
            inner = _blocks(page, other) if _is_inside(other, group) else None
            if inner is not None and (outer is None or inner.singles >= outer.singles):
                return inner
        if outer is not None:
            return outer
    return None


def _groups(page: Page) -> Iterator[_Group]:
    tree = page.tree
    if tree is None:
        return
    alike: dict[tuple[Element, str], list[Element]] = {}
    likely = (one for one in tree.select("*") if one.tag in _BLOCKS or "-" in one.tag)
    for element in islice(likely, _MOST_ELEMENTS):
        if isinstance(element.parent, Element):
            for selector in _block_selectors(element):
                alike.setdefault((element.parent, selector), []).append(element)
                if isinstance(element.parent.parent, Element):
                    alike.setdefault((element.parent.parent, selector), []).append(element)
    for (_, selector), elements in alike.items():
        if len(elements) >= _FEWEST and not in_margin(elements[0]):
            sizes = [_size(one) for one in elements[:_MOST_BLOCKS]]
            in_parts = elements[0].tag in _OF_PARTS or sum(isinstance(one, Element) for one in elements[0].children) > 1
            mean = sum(sizes) / len(sizes)
            if max(sizes) <= LONGEST and mean >= (_SHORTEST_ROW if in_parts else _SHORTEST):
                yield _Group(selector, tuple(elements), mean * len(elements))


def _size(block: Element) -> int:
    """The characters of a block, including the next element if it is a heading or a term."""
    behind = follower(block) if block.tag in LEADERS else None
    parts = [block] if behind is None else [block, behind]
    return sum(len(" ".join(one.text[: 2 * LONGEST].split())) for one in parts)


def _is_inside(inner: _Group, outer: _Group) -> bool:
    """True if the outer elements are groups of the inner ones, which are several in each and hold most of the text."""
    if len(inner.elements) < 2 * len(outer.elements) or inner.letters < _INNER * outer.letters:
        return False
    around = set(outer.elements)
    return all(any(one in around for one in islice(each.ancestors, 6)) for each in inner.elements[:_MOST_BLOCKS])


def _blocks(page: Page, group: _Group) -> Blocks | None:
    """The group's matches as blocks: all of them, or those with the fields that most have; None if no field identifies
    them."""
    blocks = _told_apart(page, group.selector)
    if blocks is not None or group.elements[0].tag == "p":  # some paragraphs of a text have links
        return blocks
    elements = group.elements[:_MOST_BLOCKS]
    held = Counter(selector for one in elements for selector in selectors_in(one))
    for selector, count in held.most_common(_BEST):
        if _MANY * len(elements) <= count and count >= _FEWEST:
            blocks = _told_apart(page, f"{group.selector}:has({selector})")
            if blocks is not None:
                return blocks
    return None


def _told_apart(page: Page, selector: str) -> Blocks | None:
    found = [one.root for one in page.css(selector) if isinstance(one.root, Element)]
    if len(found) < _FEWEST or any(in_margin(one) for one in (*found[:_MOST_BLOCKS], *found[-_FEWEST:])):
        return None
    every = set(found)
    if any(around in every for one in found[:_MOST_BLOCKS] for around in islice(one.ancestors, _FAR)):
        return None  # blocks in blocks are parts of them
    blocks = Blocks(selector, len(found), tuple(fields_of(found[:_MOST_BLOCKS])))
    if len(blocks.fields) < 2 or blocks.key is None or not _are_alike(found[:_MOST_BLOCKS]):
        return None
    filled = zip(*(field.filled for field in blocks.fields), strict=True)
    return blocks if all(sum(one) >= _MANY * len(blocks.fields) for one in filled) else None


def _are_alike(blocks: list[Element]) -> bool:
    """False for a mixture, such as a table in which pairs of different rows belong together."""
    held = [set(selectors_in(one)) for one in blocks]
    counts = Counter(selector for each in held for selector in each)
    common = {selector for selector, count in counts.items() if count >= _COMMON * len(blocks)}
    shares = [len(each & common) / len(each) for each in held if each]
    return not shares or sum(shares) >= _ALIKE * len(shares)


def _block_selectors(element: Element) -> list[str]:
    """Selectors of elements like this one: by its name, by its tag and the nearest named ancestor, by its path."""
    tag = element.tag
    if "-" in tag:
        return [tag]
    if not _may_be_block(element):
        return []
    said = [(name, element.attr(name) or "") for name in _SAYING]
    own = [f'{tag}[{name}="{value}"]' for name, value in said if NAME.fullmatch(value.rpartition("/")[2])]
    own += [f"{tag}.{name}" for name in stable_classes(element)[:3]]
    path = _path(element)
    if own and path:
        # If blocks contain blocks of the same name, the path distinguishes the outer ones.
        own.append(f"{path.rpartition(' > ')[0]} > {own[0]}")
    if tag not in _UNNAMED:
        return own or ([path] if tag != "a" and path else [])
    named = "tr:has(td)" if tag == "tr" else tag
    around = element.parent
    while isinstance(around, Element) and around.tag not in ("body", "html"):
        if names := stable_classes(around):
            named = f".{names[0]} {named}"
            break
        around = around.parent
    # The first of a list may have another name.
    return [*own, named] if own or not path or tag == "tr" else [named, path]


def _may_be_block(element: Element) -> bool:
    tag = element.tag
    if tag == "tr":
        return element.select_one("td") is not None
    if tag == "dt":
        return (behind := follower(element)) is not None and behind.tag == "dd"
    if tag in LEADERS:
        linked = element.select_one("a[href]") is not None or (
            isinstance(element.parent, Element) and element.parent.tag == "a"
        )
        return linked and follower(element) is not None
    return tag != "p" or element.select_one("a[href]") is not None


def _path(element: Element) -> str:
    """The path to an element from its nearest named ancestor: "main > div > div"; "" if that is far."""
    steps, around = [element.tag], element.parent
    while isinstance(around, Element) and len(steps) <= _FAR:
        identity = around.attr("id") or ""
        names = [f".{name}" for name in stable_classes(around)[:1]]
        names += [f"#{identity}"] if NAME.fullmatch(identity) else []
        if names or around.tag in ("main", "body"):
            return " > ".join([*(names[:1] or [around.tag]), *reversed(steps)])
        steps.append(around.tag)
        around = around.parent
    return ""

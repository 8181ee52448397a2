"""The blocks that repeat on a page (quotes, cards, rows of results) and what each of them shows.

A block is one of at least three elements with the same tag and the same class, side by side or each in a frame of its
own; without a class that a person gave, entries of a list, rows of a table and boxes in the same box are blocks, too.
The blocks that hold most of the page's text are the ones that the page is there for; where those are groups of blocks,
what is in the groups. Others among them, such as advertisements, are told apart by what they lack. What stands in the
same place of most blocks, and is not the same everywhere, is a field: named after its class, its tag, the head of its
column or what it is (a link, a picture, a price).

How it fails: None where nothing repeats, or where no field tells the blocks apart. The work is bounded by the number of
elements and blocks that are looked at.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from unicodedata import combining, normalize

import msgspec
from turbohtml import Element

from ..page import Page
from .stable_selectors import PRICE, in_margin, stable_classes

_MOST_ELEMENTS = 20_000
_MOST_BLOCKS = 40  # that are compared
_MOST_FIELDS = 8
_FEWEST = 3
_LONGEST = 4_000  # characters of a block; a larger one is a section
_SHORTEST, _SHORTEST_ROW = 15, 6
_IN_MOST = 0.8  # of the blocks
_DIFFERENT = 0.4  # share of values that must be different, else a text is a label
_NAMES = {"h1": "title", "h2": "title", "h3": "title", "h4": "title", "h5": "title", "a": "link", "img": "image",
          "time": "time", "p": "text", "blockquote": "text", "cite": "author"}  # fmt: skip
_PLAIN = {
    "b",
    "strong",
    "em",
    "ins",
    "small",
    "span",
}  # without a class they count where they hold a price, or are alone
_BLOCKS = frozenset(
    ("a", "article", "blockquote", "div", "dl", "li", "section", "tr")
)  # and elements of the site's own
_UNNAMED = ("article", "blockquote", "dl", "li", "tr")  # blocks that need no class
_BEST = 8  # candidates that are looked at closely
_INNER = 0.7  # share of the text of groups that blocks in them must hold
_MANY = 0.5  # share of like elements that must be blocks, where some are not
_WORD = re.compile(r"[a-z]+")
_COLUMN = re.compile(r"td:nth-child\((\d+)\)")


class BlockField(msgspec.Struct, frozen=True):
    """`rule` is the table of the field as TOML; `unique` tells whether its values tell the blocks apart."""

    name: str
    rule: str
    unique: bool


class Blocks(msgspec.Struct, frozen=True):
    selector: str
    count: int
    fields: tuple[BlockField, ...]

    @property
    def key(self) -> str | None:
        """The field that tells the blocks apart, a link before others."""
        unique = [field.name for field in self.fields if field.unique and field.name != "image"]
        return "link" if "link" in unique else unique[0] if unique else None


class _Group(msgspec.Struct, frozen=True):
    """Elements that are alike, and how much text they hold."""

    selector: str
    elements: tuple[Element, ...]
    letters: float

    @property
    def rank(self) -> tuple[float, bool]:
        return self.letters, "." in self.selector.rpartition(" ")[2]


def best_blocks(page: Page) -> Blocks | None:
    """The blocks that the page is most likely there for; None when nothing repeats."""
    groups = sorted(_groups(page), key=lambda group: group.rank, reverse=True)[:_BEST]
    for group in groups:
        inner = [other for other in groups if _is_inside(other, group)]
        for candidate in (*inner, group):
            blocks = _blocks(page, candidate)
            if blocks is not None:
                return blocks
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
            sizes = [len(" ".join(one.text[: 2 * _LONGEST].split())) for one in elements[:_MOST_BLOCKS]]
            fewest = _SHORTEST_ROW if elements[0].tag == "tr" else _SHORTEST
            if max(sizes) <= _LONGEST and sum(sizes) / len(sizes) >= fewest:
                yield _Group(selector, tuple(elements), sum(sizes) / len(sizes) * len(elements))


def _is_inside(inner: _Group, outer: _Group) -> bool:
    """True when the outer elements are groups of the inner ones: they hold several each, and most of the text."""
    if len(inner.elements) < 2 * len(outer.elements) or inner.letters < _INNER * outer.letters:
        return False
    around = set(outer.elements)
    return all(any(one in around for one in islice(each.ancestors, 6)) for each in inner.elements[:_MOST_BLOCKS])


def _blocks(page: Page, group: _Group) -> Blocks | None:
    """The elements as blocks: all of them, or those that have what most of them have; None where no field tells them
    apart."""
    blocks = _told_apart(page, group.selector, group.elements)
    if blocks is not None:
        return blocks
    elements = group.elements[:_MOST_BLOCKS]
    held = Counter(selector for one in elements for selector in dict.fromkeys(_selectors_in(one)))
    for selector, count in held.most_common(_BEST):
        if _MANY * len(elements) <= count < len(elements) and count >= _FEWEST:
            some = tuple(one for one in group.elements if one.select_one(selector) is not None)
            blocks = _told_apart(page, f"{group.selector}:has({selector})", some)
            if blocks is not None:
                return blocks
    return None


def _told_apart(page: Page, selector: str, elements: tuple[Element, ...]) -> Blocks | None:
    everywhere = len(page.css(selector))
    if everywhere > 1.2 * len(elements):
        return None
    blocks = Blocks(selector, everywhere, tuple(_fields(list(elements[:_MOST_BLOCKS]))))
    return blocks if len(blocks.fields) >= 2 and blocks.key is not None else None


def _block_selectors(element: Element) -> list[str]:
    """Selectors of elements like this one: by its class, else by its tag and the nearest name around it."""
    if "-" in element.tag:
        return [element.tag]
    if names := stable_classes(element)[:3]:
        return [f"{element.tag}.{name}" for name in names]
    if element.tag not in _UNNAMED:
        return [path] if element.tag != "a" and (path := _path(element)) else []
    if element.tag == "tr" and element.select_one("td") is None:
        return []
    own = "tr:has(td)" if element.tag == "tr" else element.tag
    around = element.parent
    while isinstance(around, Element) and around.tag not in ("body", "html"):
        if names := stable_classes(around):
            return [f".{names[0]} {own}"]
        around = around.parent
    return [own]


def _path(element: Element) -> str:
    """The way to boxes without a name, from the nearest element that has one: "main > div > div"; "" if that is far."""
    steps, around = [element.tag], element.parent
    while isinstance(around, Element) and len(steps) <= 4:
        names = stable_classes(around)
        if names or around.tag in ("main", "body"):
            return " > ".join([f".{names[0]}" if names else around.tag, *reversed(steps)])
        steps.append(around.tag)
        around = around.parent
    return ""


def _fields(blocks: list[Element]) -> Iterator[BlockField]:
    """The fields of the blocks, in the order in which the first block has them."""
    columns = _heads(blocks[0]) if blocks[0].tag == "tr" else []
    if blocks[0].tag == "a":  # the block itself is the link
        links = {one.attr("href") for one in blocks}
        yield BlockField("link", '{ css = ":scope::attr(href)", type = "url" }', len(links - {None}) == len(blocks))
    selectors = Counter(selector for block in blocks for selector in dict.fromkeys(_selectors_in(block)))
    taken: set[str] = set()
    shown: set[tuple[str, ...]] = set()
    for selector, count in sorted(selectors.items(), key=lambda one: -one[1]):
        if count < _IN_MOST * len(blocks) or len(taken) >= _MOST_FIELDS:
            break
        found = [block.select(selector) for block in blocks]
        tag = next(matches[0].tag for matches in found if matches)
        attribute = {"a": "href", "img": "src"}.get(tag)
        many = sum(len(matches) > 1 for matches in found) >= 0.3 * len(blocks)
        if many and attribute:
            many = selector != tag  # the first link or picture stands for those without a class
            attribute = None if many else attribute
        values = [_value(matches, attribute) for matches in found]
        told = [value for value in values if value]
        distinct = len(set(told))
        # What is many, or a column of a table, is no label: tags and points may repeat.
        fewest = 2 if many or _COLUMN.fullmatch(selector) else max(2, _DIFFERENT * len(told))
        if len(told) < _IN_MOST * len(blocks) or distinct < fewest or tuple(values) in shown:
            continue
        name = _name(selector, tag, told, columns, many=many, linked=attribute is not None)
        if name in taken:
            continue
        taken.add(name)
        shown.add(tuple(values))
        yield BlockField(name, _rule(selector, attribute, told, many=many), distinct == len(blocks) and not many)
    texts = tuple(_value(block.select("a")[:1], None) for block in blocks)
    if "title" not in taken and texts not in shown and all(texts) and len(set(texts)) >= _DIFFERENT * len(texts):
        yield BlockField("title", '{ css = "a" }', len(set(texts)) == len(texts))


def _heads(row: Element) -> list[str]:
    """The words in the head of each column of the table around a row, as a name."""
    table = row.parent
    while isinstance(table, Element) and table.tag != "table":
        table = table.parent
    if not isinstance(table, Element):
        return []
    first = next((one for one in table.select("tr")[:3] if one.select_one("th") is not None), None)
    cells = first.select("th")[:50] if first is not None else []
    return ["_".join(_WORD.findall(_plain(cell.text[:60]))[:3]) for cell in cells]


def _plain(text: str) -> str:
    """Small letters without marks: "Größe" gives "grosse"."""
    return "".join(char for char in normalize("NFKD", text.casefold()) if not combining(char))


def _selectors_in(block: Element) -> Iterator[str]:
    """Selectors of what a block holds: by class where it has one, else by tag, or by the column of a table."""
    inside = block.select("*")[:200]
    times = Counter(element.tag for element in inside)
    for element in inside:
        names = stable_classes(element)
        if names and (element.tag in _NAMES or len(element.children) <= 3):
            yield f".{names[0]}" if element.tag != "a" else f"a.{names[0]}"
        elif element.tag == "td" and element.parent is block:
            yield f"td:nth-child({1 + sum(isinstance(one, Element) for one in element.previous_siblings)})"
        elif element.tag in _NAMES or (
            element.tag in _PLAIN and (times[element.tag] == 1 or PRICE.search(element.text[:40]))
        ):
            yield element.tag


def _value(matches: list[Element], attribute: str | None) -> str:
    if not matches:
        return ""
    if attribute:
        return (matches[0].attr(attribute) or "").strip()
    return (
        " ".join(matches[0].text[:_LONGEST].split()) if len(matches) == 1 else "|".join(m.text[:100] for m in matches)
    )


def _name(selector: str, tag: str, values: list[str], columns: list[str], *, many: bool, linked: bool) -> str:
    if linked:
        return "link" if tag == "a" else "image"
    if column := _COLUMN.fullmatch(selector):
        at = int(column[1])
        return (columns[at - 1] if at <= len(columns) else "") or f"column_{at}"
    words = _WORD.findall(selector.rpartition(".")[2].lower()) if "." in selector else []
    name = "_".join(words[-2:])
    if not name:
        name = "price" if tag in _PLAIN and PRICE.search(values[0]) else _NAMES.get(tag, tag)
    return f"{name}s" if many and not name.endswith("s") else name


def _rule(selector: str, attribute: str | None, values: list[str], *, many: bool) -> str:
    css = f"{selector}::attr({attribute})" if attribute else selector
    if attribute:
        return f'{{ css = "{css}", type = "url" }}'
    if many:
        return f'{{ css = "{css}", type = "list" }}'
    if all(len(value) <= 40 and PRICE.search(value) for value in values):
        return f'{{ css = "{css}", type = "money" }}'
    return f'{{ css = "{css}" }}'

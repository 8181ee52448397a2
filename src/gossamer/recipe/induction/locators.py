"""The selectors and labels that lead to an element, each with how likely it is to outlive the next change of the page:
names that people gave, a name within a named ancestor, the label beside it, a position last."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from turbohtml import Document, Element, Text

from ..labels import LONGEST, SILENT, label_words, split_label
from ..stable_selectors import _MADE_UP, _STATES, NAME

_NAME_ATTRIBUTES = ("itemprop", "name", "property", "slot", "part", "rel", "role", "headers", "aria-label", "title")
_LABEL_ATTRIBUTES = frozenset(("label", "term", "caption", "data-label", "data-title", "data-th"))
_LABEL = re.compile(r"[^\W\d_][^\"\\\\<>{}]{0,39}")  # words that people read: "Art. no."
_SAID = re.compile(r"[A-Za-z][\w:.-]{0,39}")
_IDENT = re.compile(r"[A-Za-z_][\w-]{0,59}")
_HASHED = re.compile(r"^([A-Za-z]+(?:[-_]+[A-Za-z]+)*?(?:__|--|_|-))(?=\w*[\dA-Z])[A-Za-z0-9]{4,10}$")
_DECORATION = frozenset(("span", "div", "p", "b", "i", "em", "strong", "a", "td", "li", "small", "font", "section"))
_NO_LABELS = frozenset(("header", "nav", "footer", "ul", "ol", "table", "form", "h1", "h2", "aside", "dl"))
_UP = 5
_MOST_NAMES = 6
_MOST_SIBLINGS = 120


class Locator(NamedTuple):
    """`css`, or the words of a `label`."""

    css: str
    weight: float
    label: str = ""


class Located:
    """The locators of the elements of one page, each computed once."""

    def __init__(self, root: Document | Element) -> None:
        self._root = root
        self._anywhere = ".//" if isinstance(root, Element) else "//"  # within a block, nothing outside of it
        self._known: dict[str, list[Locator]] = {}
        self._names: dict[str, list[tuple[str, float]]] = {}

    def of(self, element: Element) -> list[Locator]:
        path = element.css_path()
        found = self._known.get(path)
        if found is None:
            best: dict[tuple[str, str], float] = {}
            for locator in self._find(element):
                key = (locator.css, locator.label)
                best[key] = max(best.get(key, 0.0), locator.weight)
            found = self._known[path] = [Locator(css, weight, label) for (css, label), weight in best.items()]
        return found

    def beside(self, element: Element, attribute: str) -> str:
        """An XPath to an attribute of an element without text, such as an icon, by the label beside it; "" if it has
        none."""
        here = element
        for _ in range(4):
            if here.text.strip():
                return ""
            before = here.previous_sibling
            while before is not None and not isinstance(before, Element):
                before = before.previous_sibling
            if isinstance(before, Element):
                words = " ".join(before.text.split())
                said = 1 < len(words) <= LONGEST and '"' not in words and not before.select("*")[3:]
                if not said or not _IDENT.fullmatch(attribute) or before.tag in SILENT:
                    return ""
                inner = f"descendant-or-self::{element.tag}/@{attribute}"
                return f'{self._anywhere}{before.tag}[normalize-space(.)="{words}"]/following-sibling::*[1]/{inner}'
            parent = here.parent
            if not isinstance(parent, Element) or parent == self._root:
                return ""
            here = parent
        return ""

    def above(self, element: Element) -> str:
        """An XPath to an element by the label behind it, if there is none before it; "" if there is none at all."""
        here, text = element, element.text.strip()
        for _ in range(4):
            after = here.next_sibling
            while isinstance(after, Text) and not after.data.strip():
                after = after.next_sibling
            if after is not None:
                break
            parent = here.parent
            if not isinstance(parent, Element) or parent == self._root or parent.text.strip() != text:
                return ""
            here = parent
        else:
            return ""
        words = " ".join(after.text.split()) if isinstance(after, Element) and not after.select("*")[1:] else ""
        said = 1 < len(words) <= LONGEST and '"' not in words and not any(map(str.isdigit, words))
        last = isinstance(after, Element) and after.next_sibling is None
        if not isinstance(after, Element) or not said or not last or labels_of(element, self._root):
            return ""
        inner = "" if here == element else f"/descendant-or-self::{element.tag}[1]"
        return f'{self._anywhere}{after.tag}[normalize-space(.)="{words}"]/preceding-sibling::*[1]{inner}'

    def _find(self, element: Element) -> Iterator[Locator]:
        own = simple_names(element)
        for css, weight in own:
            yield Locator(css, weight)
        classes = [css for css, _ in own if css.startswith(".")]
        if len(classes) > 1:
            yield Locator("".join(classes[:2]), 0.8)
            yield Locator("".join(classes[:3]), 0.78)
        elif len(classes) == 1 and " " not in (element.attr("class") or "").strip():
            yield Locator(f'[class="{(element.attr("class") or "").strip()}"]', 0.62)
        for label in labels_of(element, self._root):
            yield Locator("", 0.88, label)
            for outer in self._outer(element)[:2]:
                yield Locator(outer[0], 0.84, label)
        before = element.previous_sibling
        while before is not None and not isinstance(before, Element):
            before = before.previous_sibling
        if isinstance(before, Element):
            for css, weight in simple_names(before)[:2]:
                if weight >= 0.4:
                    yield Locator(f"{css} + {element.tag}", min(weight, 0.55))
        for css, weight in self._outer(element):
            for mine, of_mine in own[:_MOST_NAMES]:
                yield Locator(f"{css} {mine}", 0.9 * min(max(weight, 0.4), max(of_mine, 0.62)) + 0.05)
        yield from self._positions(element)

    def _outer(self, element: Element) -> list[tuple[str, float]]:
        """The names of the ancestors, nearest first."""
        found = []
        for ancestor in _ancestors(element, self._root, _UP):
            found += [one for one in simple_names(ancestor) if one[1] >= 0.36][:2]
        return found[:8]

    def _positions(self, element: Element) -> Iterator[Locator]:
        first = _step(element)
        if not first:
            return
        steps = [first]
        for ancestor in _ancestors(element, self._root, 12):
            named = [one for one in simple_names(ancestor) if one[1] >= 0.36]
            for css, weight in named[:2]:
                yield Locator(f"{css} > {' > '.join(steps)}", 0.5 * weight)
            step = _step(ancestor)
            if not step or (len(steps) > 4 and named):
                return
            steps.insert(0, step)
        if isinstance(self._root, Element) and len(steps) <= 5:
            yield Locator(f":scope > {' > '.join(steps)}", 0.2)
        elif len(steps) <= 9:
            yield Locator(f"body > {' > '.join(steps)}", 0.15)


def _step(element: Element) -> str:
    """Its place among its siblings; "" behind many of them, where counting is no rule."""
    position = 1
    node = element.previous_sibling
    for _ in range(_MOST_SIBLINGS):
        if node is None:
            return f"{element.tag}:nth-of-type({position})"
        if isinstance(node, Element) and node.tag == element.tag:
            position += 1
        node = node.previous_sibling
    return ""


def _ancestors(element: Element, root: Document | Element, most: int) -> Iterator[Element]:
    parent = element.parent
    for _ in range(most):
        if not isinstance(parent, Element) or parent.tag in ("html", "body") or parent == root:
            return
        yield parent
        parent = parent.parent


def simple_names(element: Element) -> list[tuple[str, float]]:
    """What an element is called, in CSS, the most stable first."""
    attrs = element.attrs
    return _names(element.tag, tuple((name, element.attr(name) or "") for name in attrs) if attrs else ())


@lru_cache(maxsize=20_000)
def _names(tag: str, attrs: tuple[tuple[str, str], ...]) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, value in attrs[:20]:
        if name == "id":
            if _IDENT.fullmatch(value):
                found.append((f"#{value}", 0.9 if NAME.fullmatch(value) and not _MADE_UP.search(value) else 0.2))
        elif name == "class":
            for one in value.split()[:8]:
                found += _class_names(one)
        elif name in _NAME_ATTRIBUTES or name in _LABEL_ATTRIBUTES or name.startswith("data-"):
            said = _LABEL if name in _LABEL_ATTRIBUTES else _SAID
            if said.fullmatch(value) and not any(char.isdigit() for char in value):
                found.append((f'[{name}="{value}"]', 0.95 if name == "itemprop" else 0.9))
            if name.startswith("data-") and _IDENT.fullmatch(name):
                found.append((f"[{name}]", 0.7))
        elif "-" not in name and _IDENT.fullmatch(name) and name not in ("href", "src", "style", "alt", "type"):
            found.append((f"{tag}[{name}]", 0.5))
    weight = 0.85 if tag == "h1" or "-" in tag else 0.62 if tag not in _DECORATION else 0.3
    found.append((tag, weight))
    return sorted(found, key=lambda one: -one[1])[:_MOST_NAMES]


def _class_names(name: str) -> Iterator[tuple[str, float]]:
    if not _IDENT.fullmatch(name):
        return
    if hashed := _HASHED.fullmatch(name):
        # A build tool appended a hash to the name that a person gave.
        if len(hashed[1]) >= 5:
            yield f'[class*="{hashed[1]}"]', 0.75
        yield f".{name}", 0.38
    elif name in _STATES:
        yield f".{name}", 0.3
    elif NAME.fullmatch(name) and not _MADE_UP.search(name):
        yield f".{name}", 0.85
    else:
        yield f".{name}", 0.4


def labels_of(element: Element, root: Document | Element) -> list[str]:
    """The words beside an element that may be its label."""
    found: list[str] = []
    here = element
    text = element.text
    for _ in range(4):
        before = _before(here)
        if before:
            found.append(before)
            break
        parent = here.parent
        if not isinstance(parent, Element) or parent == root or parent.tag in SILENT:
            break
        if parent.text.strip() != text.strip():
            break
        here = parent
    if here.tag == "td" and (head := _column_head(here)):
        found.append(head)
    own = " ".join(text.split())
    if len(own) <= 200:
        head, _, rest = split_label(own)
        if head and rest:
            found.append(head)
    return [one for one in dict.fromkeys(found) if 1 < len(one) <= LONGEST and sum(map(str.isdigit, one)) <= 2]


def _before(element: Element) -> str:
    node = element.previous_sibling
    while node is not None:
        if isinstance(node, Text):
            text = label_words(node.data)
            if text:
                return text if len(text) <= LONGEST else ""
        elif isinstance(node, Element):
            few = len(node.children) <= 3 and node.tag not in _NO_LABELS and node.tag not in SILENT
            return label_words(node.text) if few and len(node.text) <= 2 * LONGEST else ""
        node = node.previous_sibling
    return ""


def _column_head(cell: Element) -> str:
    row = cell.parent
    if not isinstance(row, Element) or len(row.children) > _MOST_SIBLINGS:
        return ""
    position = sum(1 for one in row.children if isinstance(one, Element) and one != cell and _precedes(one, cell))
    table = cell.closest("table")
    head = table.select_one("tr") if table is not None else None
    cells = [one for one in head.children if isinstance(one, Element)] if head is not None else []
    if head == row or position >= len(cells) or any(one.tag != "th" for one in cells):
        return ""
    return label_words(cells[position].text)


def _precedes(one: Element, other: Element) -> bool:
    node = other.previous_sibling
    while node is not None:
        if node == one:
            return True
        node = node.previous_sibling
    return False

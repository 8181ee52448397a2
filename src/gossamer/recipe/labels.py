"""What stands beside a label: `<th>SKU</th><td>LIT-001</td>`, `<dt>`, `<b>SKU:</b> LIT-001`, `SKU: LIT-001`, a cell
below its column's head.

A label is compared without case, white space and a colon at its end. How it fails: a label that is not there has
nothing beside it. The number of elements and the length of labels are limited.
"""

from __future__ import annotations

from collections.abc import Iterator

from turbohtml import Document, Element, Node, Text

from ..parse.selectors import Selector

LONGEST = 60  # characters of a label
_MOST_ELEMENTS = 20_000
_MOST_BESIDE = 50  # values of one label
_MOST_STEPS = 3  # elements around a label that hold nothing else
_COLONS = ":：∶"
_CELLS = ("td", "th")
SILENT = frozenset(("head", "html", "body", "noscript", "option", "script", "style", "template", "title"))


def label_words(text: str) -> str:
    """The words of a label without the colon: "Art. No.: " is "Art. No."."""
    return " ".join(text.split()).rstrip(_COLONS).rstrip()


def label_text(text: str) -> str:
    """The words of a label as they are compared: in any case."""
    return label_words(text).casefold()


class LabelIndex:
    """The labels below an element, and what stands beside each."""

    def __init__(self, root: Document | Element) -> None:
        self._by_label: dict[str, list[Element]] = {}
        for element in root.select("*")[:_MOST_ELEMENTS]:
            if element.tag not in SILENT:
                for words in _labels_of(element):
                    self._by_label.setdefault(words, []).append(element)

    def beside(self, label: str) -> Iterator[Selector]:
        """The elements and texts beside the label, in the order of the page."""
        wanted = label_text(label)
        for element in self._by_label.get(wanted, ())[:_MOST_BESIDE]:
            found = value_beside(element, wanted)
            if found is not None:
                yield Selector(found)


def _labels_of(element: Element) -> Iterator[str]:
    text = element.text
    if len(text) <= 2 * LONGEST and (words := label_text(text)) and len(words) <= LONGEST:
        yield words
    # "SKU: LIT-001" in one text
    for child in element.children:
        if isinstance(child, Text):
            head, colon, rest = split_label(child.data)
            if colon and rest and head:
                yield head.casefold()


def split_label(text: str) -> tuple[str, str, str]:
    """`SKU: LIT-001` in two, with the colon between; without one "", "", ""."""
    at = min((at for colon in _COLONS if (at := text.find(colon)) >= 0), default=-1)
    if not 0 < at <= 2 * LONGEST:
        return "", "", ""
    head = label_words(text[:at])
    return (head, text[at], " ".join(text[at + 1 :].split())) if len(head) <= LONGEST else ("", "", "")


def value_beside(element: Element, label: str) -> Node | str | None:
    """The element or text beside an element that is, or begins with, this label."""
    if label_text(element.text) != label:
        for child in element.children:
            if isinstance(child, Text):
                head, _, rest = split_label(child.data)
                if head.casefold() == label and rest:
                    return rest
        return None
    here = element
    for _ in range(_MOST_STEPS):
        if here.tag in _CELLS and (below := _cell_below(here)) is not None:
            return below
        found = _after(here)
        if found is not None:
            return found
        parent = here.parent
        if not isinstance(parent, Element) or parent.tag in SILENT or label_text(parent.text) != label:
            return None
        here = parent
    return None


def _after(element: Element) -> Node | str | None:
    """The text or the element that follows, whichever comes first and has something in it."""
    node = element.next_sibling
    while node is not None:
        if isinstance(node, Text):
            text = " ".join(node.data.split()).lstrip(_COLONS).lstrip()
            if text:
                return text
        elif isinstance(node, Element):
            return node if node.tag not in SILENT else None
        node = node.next_sibling
    return None


def _cell_below(cell: Element) -> Element | None:
    """The cell in the next row, for the head of a column: a <th> whose neighbours are <th> as well."""
    row = cell.parent
    if cell.tag != "th" or not isinstance(row, Element) or row.tag != "tr":
        return None
    cells = [one for one in row.children if isinstance(one, Element)]
    if len(cells) < 2 or any(one.tag != "th" for one in cells):
        return None
    position = next((at for at, one in enumerate(cells) if one == cell), -1)
    below = _next_row(row)
    others = [one for one in below.children if isinstance(one, Element)] if below is not None else []
    return others[position] if 0 <= position < len(others) and len(others) == len(cells) else None


def _next_row(row: Element) -> Element | None:
    node = row.next_sibling
    while node is not None:
        if isinstance(node, Element) and node.tag == "tr":
            return node
        node = node.next_sibling
    parent = row.parent
    if isinstance(parent, Element) and parent.tag == "thead":
        node = parent.next_sibling
        while node is not None:
            if isinstance(node, Element):
                return node.select_one("tr")
            node = node.next_sibling
    return None

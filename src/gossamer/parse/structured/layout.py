"""The text of an element as a reader sees it: blocks on lines of their own, no scripts, spaces where words would touch.

Hostile pages nest elements so that the same text would be taken a thousand times. All texts of one page are
therefore paid from one `Allowance`; when it is spent, further texts are empty.
"""

from __future__ import annotations

import re

from turbohtml import Element, Node, Text

_LINE = frozenset(
    [
        "article",
        "aside",
        "br",
        "dd",
        "details",
        "div",
        "dt",
        "fieldset",
        "figcaption",
        "footer",
        "form",
        "header",
        "hr",
        "legend",
        "li",
        "main",
        "nav",
        "table",
        "tr",
    ]
)
_PARAGRAPH = frozenset(
    ["blockquote", "dl", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "pre", "title", "ul"]
)
_UNSEEN = frozenset(["script", "style", "link", "meta"])
_SPACES = re.compile(r"\s+")
_CLINGS_TO_WHAT_IS_BEFORE = tuple(',:;.!?")')
_NODE_PRICE = 20


class Allowance:
    """How much of a page may still be looked at: about one for a character, twenty for a node."""

    def __init__(self, total: int = 10_000_000) -> None:
        self.left = total

    def pay(self, price: int) -> bool:
        """True while there is something left. A price that cannot be paid in full spends all."""
        self.left -= price
        return self.left > 0


def visible_text(element: Element, allowance: Allowance) -> str:
    """The laid out text; "" when the allowance is spent."""
    sheet = _Sheet()
    stack: list[Node | str] = [element]  # a string is the name of an element that ends here
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            sheet.edge(node)
        elif isinstance(node, Text):
            if not allowance.pay(_NODE_PRICE + len(node.data)):
                return ""
            sheet.write(node.data)
        elif isinstance(node, Element) and (node is element or node.tag not in _UNSEEN):
            if not allowance.pay(_NODE_PRICE):
                return ""
            sheet.edge(node.tag)
            stack.append(node.tag)
            stack.extend(reversed(node.children))
    return sheet.text()


class _Sheet:
    """Collects pieces of text and the edges of elements between them."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._piece: list[str] = []  # text that no edge has interrupted
        self._before = ""  # the last piece as it stood in the source
        self._lines = 2  # line ends just written; as if a paragraph had ended

    def write(self, text: str) -> None:
        self._piece.append(text)

    def edge(self, tag: str) -> None:
        if self._piece:
            self._flush()
        wanted = 2 if tag in _PARAGRAPH else 1 if tag in _LINE else 0
        if wanted > self._lines:
            self._parts.append("\n" * (wanted - self._lines))
            self._lines = wanted

    def text(self) -> str:
        self._flush()
        return "".join(self._parts).strip()

    def _flush(self) -> None:
        source = "".join(self._piece)
        self._piece = []
        words = _SPACES.sub(" ", source.strip())
        if not words:
            return
        if self._lines == 0 and self._needs_space(words):
            self._parts.append(" ")
        self._parts.append(words)
        self._before = source
        self._lines = 0

    def _needs_space(self, words: str) -> bool:
        if self._before[-1:].isspace():
            return True
        return not words.startswith(_CLINGS_TO_WHAT_IS_BEFORE) and not self._before.endswith("(")

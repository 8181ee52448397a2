"""A page as a flat list: every element with its place in the tree, and every paragraph with its letters and links.

A paragraph is a run of text that no block (and no empty line) interrupts, whatever element it stands in. All later
questions are answered from this list, so that the tree is walked once, without recursion, and never changed.

How it fails: it does not. A page of more than MOST_NODES nodes is read up to there, and of one text no more than
LONGEST_TEXT characters.
"""

from __future__ import annotations

from turbohtml import Element, Node, Text

from .words import LONGEST_NAMES, meaning_of

MOST_NODES = 300_000
LONGEST_TEXT = 1_000_000

GONE = 1  # struck out: neither text nor Markdown has it
SILENT = 2  # struck out of the text; Markdown, which can show pictures, has it

UNREAD = frozenset((
    "area", "audio", "button", "canvas", "datalist", "dialog", "embed", "frameset", "head", "iframe", "input",
    "link", "map", "math", "meta", "meter", "noscript", "object", "option", "progress", "script", "select",
    "source", "style", "svg", "template", "textarea", "title", "track", "video",
))  # fmt: skip
PICTURES = frozenset(("img", "picture", "amp-img", "video", "iframe"))
_INLINE = frozenset((
    "a", "abbr", "acronym", "amp-img", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font",
    "i", "img", "ins", "kbd", "label", "mark", "nobr", "picture", "q", "rb", "rp", "rt", "ruby", "s", "samp",
    "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
))  # fmt: skip
_WIDE = "\u2e80"  # letters from here on (Chinese, Japanese, Korean) say as much as two or three Latin ones
_COMMAS = ",，、،"


class Paragraph:
    """`pieces` are (element, text) in order; `block` is the element it stands in, `linked` the letters of links.

    `exact` is for text in <pre>, in which every space counts.
    """

    __slots__ = ("block", "commas", "exact", "letters", "linked", "pieces")

    def __init__(self, block: int) -> None:
        self.block = block
        self.letters = 0
        self.linked = 0
        self.commas = 0
        self.exact = False
        self.pieces: list[tuple[int, str]] = []

    @property
    def link_share(self) -> float:
        return self.linked / self.letters if self.letters else 0.0

    @property
    def weight(self) -> float:
        """How much prose it is: letters, few if they are links; nothing for a mere phrase."""
        return self.letters * (1 - self.link_share) ** 2 if self.letters >= 25 else 0.0

    def text(self, struck: bytearray) -> str:
        """What it reads as, without the elements that are struck out. Line breaks stay."""
        joined = "".join([piece for element, piece in self.pieces if not struck[element]])
        if self.exact:
            return "\n".join(line.rstrip() for line in joined.split("\n")).strip("\n")
        if "\n" not in joined:
            return " ".join(joined.split())
        return "\n".join(line for part in joined.split("\n") if (line := " ".join(part.split())))


class Outline:
    """Elements are numbers in document order; `parents[i]` is what holds i, `ends[i]` the first number after it.

    `flags[i]` is what the names of i say, `pictured[i]` whether a picture or film stands in it. `cut` is True when the
    page was too large to be read to its end.
    """

    __slots__ = ("cut", "elements", "ends", "flags", "paragraphs", "parents", "pictured", "tags")

    def __init__(self) -> None:
        self.elements: list[Element] = []
        self.tags: list[str] = []
        self.parents: list[int] = []
        self.ends: list[int] = []
        self.flags: list[int] = []
        self.pictured: bytearray = bytearray()
        self.paragraphs: list[Paragraph] = []
        self.cut = False

    def within(self, element: int, other: int) -> bool:
        """Whether `element` is `other` or inside it."""
        return other <= element < self.ends[other]

    def weights(self, struck: bytearray) -> list[float]:
        """The weight of the paragraphs in every element, those that are struck out not counted."""
        weights = [0.0] * len(self.elements)
        for paragraph in self.paragraphs:
            if not struck[paragraph.block]:
                weights[paragraph.block] += paragraph.weight
        parents = self.parents
        for element in range(len(weights) - 1, 0, -1):
            weights[parents[element]] += weights[element]
        return weights

    def strike(self, struck: bytearray, element: int, mark: int = GONE) -> None:
        """Strike out an element and all that is in it."""
        end = self.ends[element]
        struck[element:end] = bytes((mark,)) * (end - element)


def outline_of(root: Element) -> Outline:
    """Walk the tree from `root` down."""
    walk = _Walk()
    walk.visit(root)
    return walk.outline


class _Walk:
    """One pass over the tree. The stack holds nodes to come, and the numbers of elements that end there."""

    def __init__(self) -> None:
        self.outline = Outline()
        self.at = -1  # the innermost open element
        self.blocks = [0]
        self.links = 0  # open <a>
        self.exact = 0  # open <pre>
        self.breaks = 0  # <br> since the last text
        self.paragraph: Paragraph | None = None

    def visit(self, root: Element) -> None:
        stack: list[Node | int] = [root]
        budget = MOST_NODES
        while stack:
            node = stack.pop()
            if isinstance(node, Text):
                self._read(node.data)
            elif isinstance(node, int):
                self._close(node)
            elif isinstance(node, Element):
                if node.tag == "br":
                    self._break()
                elif budget <= 0:
                    self.outline.cut = True
                elif self._open(node):
                    stack.append(self.at)
                    children = node.children
                    budget -= len(children) + 1
                    stack.extend(reversed(children))

    def _open(self, element: Element) -> bool:
        outline, tag = self.outline, element.tag
        if tag in PICTURES and outline.elements:
            self._picture()
        if tag in UNREAD and outline.elements:
            return False
        number = len(outline.elements)
        outline.elements.append(element)
        outline.tags.append(tag)
        outline.parents.append(self.at)
        outline.ends.append(number + 1)
        outline.flags.append(_flags_of(element))
        outline.pictured.append(0)
        self.at = number
        if tag == "a":
            self.links += 1
        elif tag not in _INLINE:
            self.blocks.append(number)
            self.paragraph = None
            self.exact += tag == "pre"
        return True

    def _close(self, number: int) -> None:
        outline = self.outline
        outline.ends[number] = len(outline.elements)
        tag = outline.tags[number]
        if tag == "a":
            self.links -= 1
        elif tag not in _INLINE:
            self.blocks.pop()
            self.paragraph = None
            self.exact -= tag == "pre"
        self.at = outline.parents[number]

    def _picture(self) -> None:
        pictured, parents, at = self.outline.pictured, self.outline.parents, self.at
        while at >= 0 and not pictured[at]:  # those further out were marked with an earlier one
            pictured[at] = 1
            at = parents[at]

    def _break(self) -> None:
        self.breaks += 1
        if self.paragraph is not None:
            self.paragraph.pieces.append((self.at, "\n"))

    def _read(self, text: str) -> None:
        if len(text) > LONGEST_TEXT:
            text = text[:LONGEST_TEXT]
            self.outline.cut = True
        paragraph = self.paragraph
        plain = " ".join(text.split())
        if not plain:
            if paragraph is not None:
                paragraph.pieces.append((self.at, text if self.exact else " "))
            return
        if paragraph is None or self.breaks > 1:
            paragraph = self.paragraph = Paragraph(self.blocks[-1])
            self.outline.paragraphs.append(paragraph)
        self.breaks = 0
        letters = len(plain)
        paragraph.commas += plain.count(",")
        if not plain.isascii():
            letters += sum(1 for letter in plain[:5000] if letter >= _WIDE)
            paragraph.commas += sum(plain.count(comma) for comma in _COMMAS[1:])
        paragraph.letters += letters
        if self.links:
            paragraph.linked += letters
        if self.exact:
            paragraph.exact = True
        else:
            # Space at the ends keeps the words of neighbours apart; space inside is as good as one blank.
            text = f"{' ' if text[0].isspace() else ''}{plain}{' ' if text[-1].isspace() else ''}"
        paragraph.pieces.append((self.at, text))


def _flags_of(element: Element) -> int:
    if not element.attrs:
        return 0
    names = " ".join([value for name in ("class", "id", "role", "itemprop") if (value := element.attr(name))])
    return meaning_of(names[:LONGEST_NAMES]) if names else 0

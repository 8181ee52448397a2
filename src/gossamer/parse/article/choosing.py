"""Which element of a page holds its text.

Every paragraph votes for the elements around it, the nearest most; commas and length make the vote, links weaken it.
What is clearly a margin (menus, share bars, teasers, comments) is struck out first, so that it has no vote. An
element that wins may hold one part of a text only; then the one around it is taken, as long as what comes with it
reads like the rest.

How it fails: `choose` gives None for a page without prose, such as a list of links.
"""

from __future__ import annotations

from collections.abc import Callable

from turbohtml import Element

from .outline import Outline, Paragraph
from .words import BODY, CONTENT, HIDDEN, LABEL, MARGIN, REPLIES

_AROUND = frozenset(("aside", "fieldset", "footer", "form", "header", "menu", "nav"))
_WHOLE = frozenset(("article", "body", "html", "main"))
_LEAVES = frozenset(("blockquote", "dd", "dt", "h1", "h2", "h3", "h4", "h5", "h6", "li", "p", "pre", "td", "th"))
_VOTES = (1.0, 0.5, 0.25, 0.12)  # for the parent, its parent, and so on
_SMALL_SHARE = 0.3  # of a page's prose: what holds more is no margin, whatever it is called
_ENOUGH = 250.0  # weight that must be left for comments to be only comments
_LEVELS = 3  # how far out a text that is in parts is looked for


def choose(outline: Outline, struck: bytearray) -> int | None:
    """The element that holds the text; what is a margin of the page is struck out on the way."""
    if not outline.elements:
        return None
    strike_margins(outline, struck, 0)
    top = _elect(outline, struck)
    if top is None:
        return None
    return _widen(outline, struck, top)


def strike_margins(outline: Outline, struck: bytearray, top: int) -> None:
    """Strike out what is named or made like a margin inside `top`, unless much of the prose is in it."""
    # Comments first: a long discussion would make the text beside it look small.
    _strike(outline, struck, top, _is_discussion)
    _strike(outline, struck, top, _is_margin)


def _strike(outline: Outline, struck: bytearray, top: int, rule: Callable[[Outline, int, float, float], bool]) -> None:
    weights = outline.weights(struck)
    whole, element, end = weights[top], top + 1, outline.ends[top]
    while element < end:
        if not struck[element]:
            if not rule(outline, element, weights[element], whole):
                element += 1
                continue
            outline.strike(struck, element)
        element = outline.ends[element]


def _is_discussion(outline: Outline, element: int, weight: float, whole: float) -> bool:
    flags = outline.flags[element]
    return bool(flags & REPLIES and not flags & BODY and outline.tags[element] not in _WHOLE) and (
        whole - weight >= _ENOUGH
    )


def _is_margin(outline: Outline, element: int, weight: float, whole: float) -> bool:
    tag, flags = outline.tags[element], outline.flags[element]
    if tag not in _WHOLE and (tag in _AROUND or (flags & (MARGIN | LABEL | HIDDEN) and not flags & BODY)):
        return weight <= _SMALL_SHARE * whole
    return _is_hidden(outline.elements[element]) and weight <= 0.5 * whole


def _is_hidden(element: Element) -> bool:
    if not element.attrs:
        return False
    if element.attr("hidden") is not None or element.attr("aria-hidden") == "true":
        return True
    style = element.attr("style")
    return style is not None and "display:none" in style[:500].replace(" ", "").lower()


def _elect(outline: Outline, struck: bytearray) -> int | None:
    parents, tags, flags = outline.parents, outline.tags, outline.flags
    votes: dict[int, float] = {}
    for paragraph in outline.paragraphs:
        at = paragraph.block
        if struck[at] or paragraph.letters < 25:
            continue
        vote = (1 + paragraph.commas + min(paragraph.letters / 100, 3)) * (1 - paragraph.link_share)
        if tags[at] not in _LEAVES:  # text without a <p> of its own
            votes[at] = votes.get(at, 0.0) + vote
        for share in _VOTES:
            at = parents[at]
            if at < 0:
                break
            votes[at] = votes.get(at, 0.0) + vote * share
    best, most = None, 0.0
    for element, count in votes.items():
        if flags[element] & BODY:
            count *= 1.5
        elif flags[element] & CONTENT:
            count *= 1.2
        if flags[element] & (MARGIN | LABEL):
            count *= 0.7
        if tags[element] in ("article", "main"):
            count *= 1.2
        if count > most:
            best, most = element, count
    return best


def _widen(outline: Outline, struck: bytearray, top: int) -> int:
    """The element that holds all parts of the text of which `top` holds one; `top` itself when it holds all.

    Other articles beside the text are struck out: they are teasers.
    """
    at, chosen = outline.parents[top], top
    for _ in range(_LEVELS):
        if at <= 0 or outline.tags[at] in ("body", "html"):
            break
        if _continues(outline, struck, chosen, at):
            chosen = at
        at = outline.parents[at]
    if chosen != top:
        for element in range(chosen + 1, outline.ends[chosen]):
            if outline.tags[element] == "article" and not outline.within(top, element):
                outline.strike(struck, element)
    return chosen


def _continues(outline: Outline, struck: bytearray, inner: int, outer: int) -> bool:
    """Whether `outer` has more of the prose that is in `inner`: paragraphs as long as those, and not too many."""
    own, more = _Prose(), _Prose()
    for paragraph in outline.paragraphs:
        if not struck[paragraph.block] and outline.within(paragraph.block, outer):
            (own if outline.within(paragraph.block, inner) else more).add(paragraph)
    return 0.05 * own.weight < more.weight < 3 * own.weight and more.mean >= 0.85 * own.mean


class _Prose:
    def __init__(self) -> None:
        self.weight = 0.0
        self.count = 0

    def add(self, paragraph: Paragraph) -> None:
        if paragraph.weight:
            self.weight += paragraph.weight
            self.count += 1

    @property
    def mean(self) -> float:
        return self.weight / self.count if self.count else 0.0

"""The main content of a page: which element holds the text, and what inside that element is not part of it.

Every paragraph votes for the elements around it, the nearest most; commas and length make the vote, links weaken it.
Clear margins (menus, share bars, teasers, comments) are struck out first, so that they have no vote. The element that
wins may hold only one part of a text; then the element around it is taken, as long as its other paragraphs read like
those, or stand in an element of the same names. Inside the chosen element the title, captions, "read more" lines and
lists of links at the end are struck out: whole elements where possible, so that text and Markdown agree.

How it fails: `choose` returns None for a page without prose, such as a list of links. A rule that does not fit leaves
the text as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .outline import (
    BODY,
    CONTENT,
    HEADINGS,
    HIDDEN,
    LABEL,
    MARGIN,
    PICTURE,
    REPLIES,
    SILENT,
    Outline,
    Paragraph,
    is_hidden,
)

_AROUND = frozenset(("aside", "fieldset", "footer", "form", "header", "menu", "nav"))
_WHOLE = frozenset(("article", "body", "html", "main"))
_LEAVES = frozenset(("blockquote", "dd", "dt", "h1", "h2", "h3", "h4", "h5", "h6", "li", "p", "pre", "td", "th"))
_VOTES = (1.0, 0.5, 0.25, 0.12)  # for the parent, its parent, and so on
_SMALL_SHARE = 0.3  # of a page's prose; an element that holds more is no margin, whatever its name
_ENOUGH = 250.0  # weight that must be left beside comments, else they are the content
_LEVELS = 3  # parents that are tried for a text that is in parts
_CAPTION_LETTERS = 300  # a frame with a picture and more text than this is no picture with a caption
_FIRM = 80  # letters that make a paragraph surely text
# How lines begin that lead to another page, in the languages of much news; they count where the line holds a link.
_LEADS_AWAY = re.compile(
    r"""\W*(?:
    related\b | read\ (?:more|also|next|full)\b | (?:see|also|more|watch|listen)\b.{0,20}: | see\ (?:more|also)\b
    | also\ (?:on|read|see)\b | don.?t\ miss\b | click\ here\b | more\ (?:on|from|about|stories)\b | subscribe\b
    | sign\ up\b | follow\ us\b | filed\ under\b | posted\ in\b | tags?\s*: | topics?\s*: | share\ (?:this|on|it)\b
    | continue\ reading\b | print\ this\b | sponsored\b | next\s*: | previous\s*:
    | lire\ aussi\b | à\ lire\b | lesen\ sie\b | mehr\ zum\b | leia\ (?:também|mais)\b | lea\ también\b
    | lee\ también\b | leggi\ anche\b | lees\ ook\b | czytaj\b | читайте\b | baca\ juga\b
    | 関連記事 | 관련기사 | 相关阅读
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_LINE_START = 200  # characters of a line in which such words are searched
# Whole lines that belong to the page and not to its text.
_NOTICES = frozenset((
    "ad", "advert", "advertisement", "advertising", "anzeige", "caption", "close", "comments", "continue reading",
    "continue reading the main story", "copy link", "don t miss", "email", "facebook", "follow us", "iklan",
    "like this", "loading", "next", "previous", "print", "publicidad", "publicidade", "publicité", "read more",
    "read next",
    "related", "related articles", "related posts", "related stories", "reklama", "save", "see also", "share",
    "share this", "share this article", "share this story", "sponsored", "story continues below",
    "story continues below advertisement", "subscribe", "tweet", "twitter", "view comments", "whatsapp", "реклама",
    "広告",
))  # fmt: skip
_ADDRESS = re.compile(r"https?://|www\.|\w@\w")
_ENDS = tuple(".!?:;…。！？\"'”’»)]")


def choose(outline: Outline) -> int | None:
    """The element that holds the text. The margins of the page are struck out on the way."""
    if not outline.elements:
        return None
    given = bytes(outline.struck)
    _strike_margins(outline, 0)
    top = _elect(outline)
    if top is None:
        return None
    parts = _parts_like(outline, top)
    if any(outline.struck[part] for part in parts):  # by its name, which is also that of the text
        for part in parts:
            outline.flags[part] &= ~(MARGIN | LABEL)
        outline.struck[:] = given
        _strike_margins(outline, 0)
    return _widen(outline, top, [part for part in parts if not outline.struck[part]])


def _parts_like(outline: Outline, top: int) -> list[int]:
    """Elements beside `top`, or as deep in the element around both, that are named as it is: a page builder puts every
    few paragraphs into one."""
    parents, names = outline.parents, outline.elements[top].attr("class")
    around = parents[parents[top]] if parents[top] > 0 else -1
    if not names or around < 0:
        return []
    return [
        element
        for element in range(around + 1, outline.ends[around])
        if outline.tags[element] == outline.tags[top]
        and element != top
        and (parents[element] == parents[top] or parents[parents[element]] == around)
        and outline.elements[element].attr("class") == names
    ]


def _strike_margins(outline: Outline, top: int) -> None:
    """Strike out the elements inside `top` that are named or made like a margin, unless they hold much of the prose."""
    # Comments first: a long discussion would make the text beside it look small.
    _strike(outline, top, _is_discussion)
    _strike(outline, top, _is_margin)


def _strike(outline: Outline, top: int, rule: Callable[[Outline, int, float, float], bool]) -> None:
    weights = outline.weights()
    whole, element, end = weights[top], top + 1, outline.ends[top]
    while element < end:
        if not outline.struck[element]:
            if not rule(outline, element, weights[element], whole):
                element += 1
                continue
            outline.strike(element)
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
    return is_hidden(outline.elements[element]) and weight <= 0.5 * whole


def _elect(outline: Outline) -> int | None:
    parents, tags, flags = outline.parents, outline.tags, outline.flags
    votes: dict[int, float] = {}
    for paragraph in outline.paragraphs:
        at = paragraph.block
        if outline.struck[at] or paragraph.letters < 25:
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


def _widen(outline: Outline, top: int, parts: list[int]) -> int:
    """The element that holds all parts of the text; `top` itself when it holds them all. `parts` are some of them.

    Other articles beside the text are struck out: they are teasers.
    """
    at, chosen, alike = outline.parents[top], top, frozenset(parts)
    for _ in range(_LEVELS):
        if at <= 0 or outline.tags[at] in ("body", "html"):
            break
        if _continues(outline, chosen, at) or any(outline.within(part, at) for part in parts):
            chosen = at
            parts = [part for part in parts if not outline.within(part, at)]
        at = outline.parents[at]
    if chosen != top:
        for element in range(chosen + 1, outline.ends[chosen]):
            if outline.tags[element] == "article" and element not in alike and not outline.within(top, element):
                outline.strike(element)
    return chosen


def _continues(outline: Outline, inner: int, outer: int) -> bool:
    """True when `outer` has more of the prose that is in `inner`: paragraphs as long as those, and not too many."""
    own, more = _Prose(), _Prose()
    for paragraph in outline.paragraphs:
        if not outline.struck[paragraph.block] and outline.within(paragraph.block, outer):
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


def strike_extras(outline: Outline, top: int, titles: frozenset[str]) -> str | None:
    """Strike out everything inside `top` that is not text. `titles` are the page's titles, folded by `fold_title`.

    Returns the title, if it stood inside `top`; the text goes on without it.
    """
    _strike_margins(outline, top)
    _strike_captions(outline, top)
    title = _strike_title(outline, top, titles)
    lines = [one for one in outline.paragraphs if outline.within(one.block, top) and not outline.struck[one.block]]
    firm = [at for at, line in enumerate(lines) if line.letters >= _FIRM and line.link_share < 0.3]
    first, last = (firm[0], firm[-1]) if firm else (len(lines), len(lines))
    gone, followed = [], False
    for at in range(len(lines) - 1, -1, -1):
        line = lines[at]
        text, tag = line.text(outline.struck), outline.tags[line.block]
        if (
            _leads_away(line, text)
            or (at > first and _shouts(line, text, tag))
            or (at > last and (not followed if tag in HEADINGS else _trails(line, text, tag)))
        ):
            gone.append(line)
        else:
            followed = True
    strike_lines(outline, top, lines, gone)
    return title


def fold_title(title: str) -> str:
    """A title in lower case, its words only: titles are compared in this form."""
    return " ".join(re.findall(r"\w+", title[:1000].lower()))


def _strike_captions(outline: Outline, top: int) -> None:
    letters: list[int] | None = None
    for element in range(top + 1, outline.ends[top]):
        if outline.struck[element]:
            continue
        tag = outline.tags[element]
        framed = outline.pictured[element] and (tag == "figure" or outline.flags[element] & PICTURE)
        if tag == "figcaption":
            outline.strike(element, SILENT)
        elif framed:
            letters = letters or _letters(outline)
            if letters[element] <= _CAPTION_LETTERS:
                outline.strike(element, SILENT)


def _letters(outline: Outline) -> list[int]:
    letters = [0] * len(outline.elements)
    for paragraph in outline.paragraphs:
        letters[paragraph.block] += paragraph.letters
    for element in range(len(letters) - 1, 0, -1):
        letters[outline.parents[element]] += letters[element]
    return letters


def _strike_title(outline: Outline, top: int, titles: frozenset[str]) -> str | None:
    for paragraph in outline.paragraphs:
        block = paragraph.block
        if outline.within(block, top) and not outline.struck[block] and block != top:
            tag = outline.tags[block]
            text = paragraph.text(outline.struck) if tag in HEADINGS else ""
            if text and (tag == "h1" or fold_title(text) in titles):
                outline.strike(block)
                return text
            if paragraph.weight >= 2 * _FIRM:
                break
    return None


def _leads_away(line: Paragraph, text: str) -> bool:
    if line.letters <= 40 and fold_title(text) in _NOTICES:
        return True
    return line.link_share >= 0.3 and _LEADS_AWAY.match(text[:_LINE_START]) is not None


def _shouts(line: Paragraph, text: str, tag: str) -> bool:
    """True for a paragraph that is one link in capitals: it advertises another page."""
    return tag == "p" and line.link_share >= 0.95 and text.isupper() and not _ADDRESS.search(text)


def _trails(line: Paragraph, text: str, tag: str) -> bool:
    """True for links and mere phrases; asked for lines after the last paragraph that is surely text."""
    if tag in ("p", "blockquote", "td", "th"):
        return False
    if line.link_share >= 0.9:
        return not _ADDRESS.search(text)
    return tag != "li" and line.letters < _FIRM and not text.endswith(_ENDS)


def strike_lines(outline: Outline, top: int, lines: list[Paragraph], gone: list[Paragraph]) -> None:
    """Strike out paragraphs: the whole element if it holds nothing else, else only the text."""
    out = {id(line) for line in gone}
    kept = bytearray(len(outline.elements))
    for line in lines:
        at = line.block
        while id(line) not in out and at >= top and not kept[at]:
            kept[at] = 1
            at = outline.parents[at]
    for line in gone:
        if not kept[line.block] and line.block != top:
            outline.strike(line.block)
        else:
            line.gone = True

"""What stands inside a text and is none of it: the title, captions, "read more" lines, lists of links at its end.

Whole elements are struck out where they can be, so that text and Markdown agree. Nothing here fails; a rule that does
not fit leaves the text as it is.
"""

from __future__ import annotations

import re

from .choosing import strike_margins
from .outline import SILENT, Outline, Paragraph
from .words import PICTURE

_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_CAPTION_LETTERS = 300  # a frame with a picture and more text than this is no picture with a caption
_FIRM = 80  # letters of a paragraph that is surely text

# How lines begin that lead away, in the languages that news is often written in; they count where a link follows.
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
_LINE_START = 200  # characters of a line that are looked at for such words

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


def tidy(outline: Outline, struck: bytearray, top: int, titles: frozenset[str]) -> str | None:
    """Strike out what is no text inside `top`. `titles` are the page's titles, folded by `fold`.

    The title of the text, if it stood there; the text goes without it.
    """
    strike_margins(outline, struck, top)
    _strike_captions(outline, struck, top)
    title = _strike_title(outline, struck, top, titles)
    lines = [one for one in outline.paragraphs if outline.within(one.block, top) and not struck[one.block]]
    firm = [at for at, line in enumerate(lines) if line.letters >= _FIRM and line.link_share < 0.3]
    first, last = (firm[0], firm[-1]) if firm else (len(lines), len(lines))
    gone, followed = [], False
    for at in range(len(lines) - 1, -1, -1):
        line = lines[at]
        text, tag = line.text(struck), outline.tags[line.block]
        if (
            _leads_away(line, text)
            or (at > first and _shouts(line, text, tag))
            or (at > last and (not followed if tag in _HEADINGS else _trails(line, text, tag)))
        ):
            gone.append(line)
        else:
            followed = True
    _strike_lines(outline, struck, top, lines, gone)
    return title


def fold(title: str) -> str:
    """A title without what differs between its places: case, space, signs."""
    return " ".join(re.findall(r"\w+", title[:1000].lower()))


def _strike_captions(outline: Outline, struck: bytearray, top: int) -> None:
    letters: list[int] | None = None
    for element in range(top + 1, outline.ends[top]):
        if struck[element]:
            continue
        tag = outline.tags[element]
        framed = outline.pictured[element] and (tag == "figure" or outline.flags[element] & PICTURE)
        if tag == "figcaption":
            outline.strike(struck, element, SILENT)
        elif framed:
            letters = letters or _letters(outline)
            if letters[element] <= _CAPTION_LETTERS:
                outline.strike(struck, element, SILENT)


def _letters(outline: Outline) -> list[int]:
    letters = [0] * len(outline.elements)
    for paragraph in outline.paragraphs:
        letters[paragraph.block] += paragraph.letters
    for element in range(len(letters) - 1, 0, -1):
        letters[outline.parents[element]] += letters[element]
    return letters


def _strike_title(outline: Outline, struck: bytearray, top: int, titles: frozenset[str]) -> str | None:
    for paragraph in outline.paragraphs:
        block = paragraph.block
        if outline.within(block, top) and not struck[block] and block != top:
            tag = outline.tags[block]
            text = paragraph.text(struck) if tag in _HEADINGS else ""
            if text and (tag == "h1" or fold(text) in titles):
                outline.strike(struck, block)
                return text
            if paragraph.weight >= 2 * _FIRM:
                break
    return None


def _leads_away(line: Paragraph, text: str) -> bool:
    if line.letters <= 40 and fold(text) in _NOTICES:
        return True
    return line.link_share >= 0.3 and _LEADS_AWAY.match(text[:_LINE_START]) is not None


def _shouts(line: Paragraph, text: str, tag: str) -> bool:
    """One link in capitals between the paragraphs advertises another page."""
    return tag == "p" and line.link_share >= 0.95 and text.isupper() and not _ADDRESS.search(text)


def _trails(line: Paragraph, text: str, tag: str) -> bool:
    """Links to elsewhere and mere phrases, after the last paragraph that is surely text."""
    if tag in ("p", "blockquote", "td", "th"):
        return False
    if line.link_share >= 0.9:
        return not _ADDRESS.search(text)
    return tag != "li" and line.letters < _FIRM and not text.endswith(_ENDS)


def _strike_lines(outline: Outline, struck: bytearray, top: int, lines: list[Paragraph], gone: list[Paragraph]) -> None:
    """Strike out paragraphs: the whole element where nothing else is in it, else its pieces of text."""
    out = {id(line) for line in gone}
    kept = bytearray(len(outline.elements))
    for line in lines:
        at = line.block
        while id(line) not in out and at >= top and not kept[at]:
            kept[at] = 1
            at = outline.parents[at]
    for line in gone:
        if not kept[line.block] and line.block != top:
            outline.strike(struck, line.block)
        else:
            line.pieces.clear()

"""`Article` and `article_of`: the text of a page without its margins, and the facts that the page states about it.

The page is laid out flat (outline.py) and told by its kind (kind.py). Of an article the element that holds the text is
chosen and everything else in it struck out (main_content.py); of any other page every paragraph that is likely to be
content is kept, without the parts that are not what the page is about (likelihood.py). The rest is written as text and
Markdown (content.py). Facts about the article come from the page's metadata. The text in JSON-LD is
used only where the page shows hardly any, because scripts would make it.

How it fails: a page without prose has no article; nothing raises. Size and depth of hostile pages are bounded.
"""

from __future__ import annotations

import html
import re
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import turbohtml

from ...model.page_content import WHOLE, ContentParts
from ..metadata import Metadata, title_parts
from .content import LONGEST, markdown_of, text_of, whole_markdown
from .kind import KindOfPage, kind_of
from .likelihood import MOST_LINES, holds_the_text, likelihoods, strike_unlikely, without_asides
from .main_content import choose, fold_title, strike_extras
from .outline import Outline, is_huge, outline_of
from .parts import apply_parts
from .traits import Survey

if TYPE_CHECKING:
    from ..markup import Markup

_LEAST = 100  # characters of an article; a shorter text is a notice
_SHORT = 300  # characters of text below which the body in JSON-LD is preferred
_PERHAPS = 0.2  # confidence that a page is an article, from which on it is read as one if that finds its content
_MOST_HEADINGS = 20
_WIDE = r"\u2e80-\ua4cf\uf900-\ufaff"  # Chinese and Japanese: every character counts as a word
_MARKUP = re.compile(r"</?(?:p|br|div|h\d)\b", re.IGNORECASE)
_WORDS = re.compile(rf"(?=\w)[{_WIDE}]|[^\W{_WIDE}]+(?:['’-][^\W{_WIDE}]+)*")


class Article(msgspec.Struct, frozen=True, kw_only=True):
    """`text` has an empty line between paragraphs; `published` and `modified` have a zone where the page gives one.

    `words` counts every Chinese or Japanese character as a word.
    """

    url: str
    title: str | None
    text: str
    markdown: str
    authors: tuple[str, ...] = ()
    published: datetime | None = None
    modified: datetime | None = None
    language: str | None = None
    site_name: str | None = None
    description: str | None = None
    image: str | None = None
    words: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The values, to be yielded as an item: `yield page.article().to_dict()`."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def article_of(page: Markup) -> Article | None:
    """The article of the page; None when the page has none."""
    if page.tree is None:
        return None
    facts = page.metadata()
    content = _MainContent.in_page(page, facts)
    text, markdown = ("", "") if content is None else (content.text(), content.markdown(page))
    if stated := _stated_body(text, facts):
        text, markdown = _from_json_ld(stated)
    if len(text) < _LEAST:
        return None
    return Article(
        url=facts.canonical or page.url,
        title=facts.title,
        text=text,
        markdown=markdown,
        authors=facts.authors,
        published=facts.published,
        modified=facts.modified,
        language=facts.language,
        site_name=facts.site_name,
        description=facts.description,
        image=facts.image,
        words=sum(1 for _ in _WORDS.finditer(text)),
    )


def main_text(page: Markup, *, titled: bool = False, parts: ContentParts = WHOLE) -> str:
    """The text of the page's main content, without menus and margins; "" for a page without prose. With `titled`, the
    title stands before the text of an article too, as in Markdown. `parts` are taken or left out as a whole."""
    content = _MainContent.in_page(page, parts=parts)
    text = content.text() if content is not None else ""
    if len(text) < _SHORT and (stated := _stated_body(text, page.metadata())):
        text = _from_json_ld(stated)[0]
    if titled and text and content is not None and content.heading and not content.titled:
        return f"{content.heading}\n\n{text}"
    return text


def markdown(page: Markup, parts: ContentParts = WHOLE) -> str:
    """The main content as Markdown, its title first; the whole page where no part stands out. Of a page with more than
    MOST_NODES nodes the text alone."""
    tree = page.tree
    if tree is None:
        return ""
    content = _MainContent.in_page(page, parts=parts)
    if content is None or (not content.chosen and len(content.text()) < _LEAST):
        huge = page.document is None and tree.root is not None and is_huge(tree.root, len(page.body))
        return _whole_text(tree) if huge else whole_markdown(tree, page.urljoin(""))
    text = content.markdown(page)
    return f"# {content.heading}\n\n{text}" if content.heading and not content.titled else text


def _whole_text(tree: turbohtml.Document) -> str:
    body = tree.select_one("body")
    return " ".join(body.text.split())[:LONGEST] if body is not None else ""


class _MainContent:
    """The main content of a page: the element `top` without what the outline has struck out; `heading` is the title
    as the page shows it, `titled` tells whether it is part of the text, `chosen` whether parts of it were chosen: then
    it may be short.
    """

    chosen = False

    def __init__(self, outline: Outline, top: int, heading: str | None, titled: bool) -> None:
        self._outline = outline
        self._top = top
        self.heading = heading
        self.titled = titled

    @classmethod
    def in_page(cls, page: Markup, facts: Metadata | None = None, parts: ContentParts = WHOLE) -> _MainContent | None:
        if page.document is not None and page.tree is not None and page.tree.root is not None:
            outline = outline_of(page.tree.root)  # all of a document is its content
            return cls(outline, 0, _heading(outline, _titles(page, facts)), _shows_title(outline))
        survey = survey_of(page)
        if survey is None:
            return None
        kind, given = kind_of(page, survey), bytes(survey.outline.struck)
        content = cls._read(survey, kind, _titles(page, facts))
        if content is not None and parts.chooses:
            shown = len(content.text()) >= _LEAST
            content._top = apply_parts(survey, kind, content._top, given, parts)
            content.chosen = shown or len(content.text()) >= _LEAST
        return content

    @classmethod
    def _read(cls, survey: Survey, kind: KindOfPage, titles: frozenset[str]) -> _MainContent | None:
        outline, winner = survey.outline, survey.winner
        likely = likelihoods(survey) if len(survey.lines) <= MOST_LINES else None
        if winner is not None and (likely is None or kind.all.get("article", 0.0) >= _PERHAPS):
            given = bytes(outline.struck)
            outline.struck[:] = survey.margins
            heading = strike_extras(outline, winner, titles)
            if likely is None or holds_the_text(survey, likely, kind, winner):
                return cls(outline, winner, heading or _heading(outline, titles), False)
            outline.struck[:] = given
            for line in survey.lines:
                line.gone = False
        if likely is None:
            return None
        strike_unlikely(survey, without_asides(survey, likely, kind))
        return cls(outline, 0, _heading(outline, titles), _shows_title(outline))

    def text(self) -> str:
        return text_of(self._outline, self._top)

    def markdown(self, page: Markup) -> str:
        return self.text() if self._outline.cut else markdown_of(self._outline, self._top, page.urljoin(""))


def survey_of(page: Markup) -> Survey | None:
    """The page seen as a whole; None for content that is no markup."""
    root = page.tree.root if page.tree is not None else None
    if root is None:
        return None
    outline = outline_of(root, len(page.body))
    given = bytes(outline.struck)
    winner = choose(outline)
    margins = bytes(outline.struck)
    outline.struck[:] = given
    return Survey(outline, winner, margins)


def kind_of_page(page: Markup) -> KindOfPage:
    """What the page is for."""
    survey = survey_of(page)
    return kind_of(page, survey) if survey is not None else KindOfPage()


def _titles(page: Markup, facts: Metadata | None) -> frozenset[str]:
    """All titles that the page states, folded, each with and without the name of the site behind it."""
    given = [page.title or ""]
    if facts is not None:
        given += [facts.page_title or "", facts.headline or ""]
    else:
        given.append(next((tag.content for tag in page.facts.metas if tag.property == "og:title"), ""))
    parts = [part for title in given for part in title_parts(title)]
    return frozenset(filter(None, map(fold_title, parts)))


def _heading(outline: Outline, titles: frozenset[str]) -> str | None:
    """The <h1> that equals one of the titles, or the only <h1>."""
    nothing = bytearray(len(outline.elements))
    firsts = islice((one for one in outline.paragraphs if outline.tags[one.block] == "h1"), _MOST_HEADINGS)
    headings = [one.text(nothing) for one in firsts]
    for heading in headings:
        if fold_title(heading) in titles:
            return heading
    return headings[0] if len(headings) == 1 else None


def _shows_title(outline: Outline) -> bool:
    """True when an <h1> is among what is left."""
    return any(outline.tags[one.block] == "h1" and one.text(outline.struck) for one in outline.paragraphs)


def _stated_body(shown: str, facts: Metadata) -> str | None:
    """The body of the article in JSON-LD, if the page shows far less: scripts would make the rest."""
    body = facts.article_body
    return body if body is not None and len(shown) < _SHORT and len(body) > 2 * len(shown) else None


def _from_json_ld(body: str) -> tuple[str, str]:
    """Text and Markdown of an article body in JSON-LD, which is HTML, or plain text, perhaps with entities."""
    body = body[:LONGEST]
    if not _MARKUP.search(body[:10_000]) and "&" in body:
        body = html.unescape(body)
    if _MARKUP.search(body[:10_000]):
        part = turbohtml.parse_fragment(body)
        outline = outline_of(part, len(body))
        text = text_of(outline, 0)
        return text, text if outline.cut else part.to_markdown().strip()
    lines = [" ".join(line.split()) for line in body.splitlines()]
    text = "\n\n".join(line for line in lines if line)
    return text, text

"""The article of a page: its text without what is around it, and what the page says about it.

The page is laid out flat (outline.py), the element that holds the text is chosen (choosing.py), what stands in it and
is no text is struck out (tidying.py), the rest is written (writing.py). Facts about the article come from the page's
metadata. Only where a page shows no text, because scripts would make it, is the body taken that its JSON-LD has.

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

from ..metadata import Metadata, metadata_of
from .choosing import choose
from .outline import Outline, outline_of
from .tidying import fold, tidy
from .writing import LONGEST, markdown_of, text_of, whole_markdown

if TYPE_CHECKING:
    from ..page import Page

_LEAST = 100  # characters of an article; less is a notice
_SHORT = 300  # characters below which the body that JSON-LD has is preferred
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


def article_of(page: Page) -> Article | None:
    """The article that the page is about; None when it has none."""
    if page.tree is None:
        return None
    facts = metadata_of(page)
    found = _Found.in_page(page, facts)
    text, markdown = ("", "") if found is None else (found.text(), found.markdown(page))
    if len(text) < _SHORT and facts.article_body is not None and len(facts.article_body) > 2 * len(text):
        text, markdown = _from_json_ld(facts.article_body)
    if len(text) < _LEAST:
        return None
    return Article(
        url=facts.canonical or page.url,
        title=_title(facts, found.heading if found is not None else None),
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


def main_text(page: Page) -> str:
    """The text of the page's main content, without menus and margins; "" when there is none."""
    found = _Found.in_page(page)
    return found.text() if found is not None else ""


def markdown(page: Page) -> str:
    """The main content as Markdown, its title first; the whole page where no part stands out."""
    tree = page.tree
    if tree is None:
        return ""
    found = _Found.in_page(page)
    if found is None or len(found.text()) < _LEAST:
        return whole_markdown(tree, page.urljoin(""))
    text = found.markdown(page)
    return f"# {found.heading}\n\n{text}" if found.heading else text


class _Found:
    """A text in a page: the element `top` without what is `struck`; `heading` is its title as the page shows it."""

    def __init__(self, outline: Outline, struck: bytearray, top: int, heading: str | None) -> None:
        self._outline = outline
        self._struck = struck
        self._top = top
        self.heading = heading

    @classmethod
    def in_page(cls, page: Page, facts: Metadata | None = None) -> _Found | None:
        root = page.tree.root if page.tree is not None else None
        if root is None:
            return None
        outline = outline_of(root)
        struck = bytearray(len(outline.elements))
        top = choose(outline, struck)
        if top is None:
            return None
        titles = _titles(page, facts)
        heading = tidy(outline, struck, top, titles)
        return cls(outline, struck, top, heading or _heading(outline, titles))

    def text(self) -> str:
        return text_of(self._outline, self._struck, self._top)

    def markdown(self, page: Page) -> str:
        return markdown_of(self._outline, self._struck, self._top, page.urljoin(""))


def _title(facts: Metadata, heading: str | None) -> str | None:
    """The title as readers see it, where the page says the same elsewhere; else what the page says elsewhere."""
    said = [title for title in (facts.headline, facts.title) if title]
    if heading and any(fold(heading) in fold(title) for title in said):
        return heading
    return facts.headline or heading or facts.title


def _titles(page: Page, facts: Metadata | None) -> frozenset[str]:
    """All that the page gives as its title, with and without the name of the site behind it."""
    given = [page.title or ""]
    if facts is not None:
        given += [facts.title or "", facts.headline or ""]
    elif page.tree is not None:
        tag = page.tree.select_one('meta[property="og:title"]')
        given.append((tag.attr("content") or "") if tag is not None else "")
    parts = [part for title in given for part in (title, *re.split(r"\s[|–—·»:-]\s", title[:1000]))]
    return frozenset(folded for part in parts if (folded := fold(part)))


def _heading(outline: Outline, titles: frozenset[str]) -> str | None:
    """The <h1> that says what the title says, or the only one."""
    nothing = bytearray(len(outline.elements))
    firsts = islice((one for one in outline.paragraphs if outline.tags[one.block] == "h1"), _MOST_HEADINGS)
    headings = [one.text(nothing) for one in firsts]
    for heading in headings:
        if fold(heading) in titles:
            return heading
    return headings[0] if len(headings) == 1 else None


def _from_json_ld(body: str) -> tuple[str, str]:
    """Text and Markdown of a body that JSON-LD has; some write HTML there, some plain text with entities."""
    body = body[:LONGEST]
    if not _MARKUP.search(body[:10_000]) and "&" in body:
        body = html.unescape(body)
    if _MARKUP.search(body[:10_000]):
        part = turbohtml.parse_fragment(body)
        outline = outline_of(part)
        struck = bytearray(len(outline.elements))
        return text_of(outline, struck, 0), part.to_markdown().strip()
    lines = [" ".join(line.split()) for line in body.splitlines()]
    text = "\n\n".join(line for line in lines if line)
    return text, text

"""`Article` and `article_of`: the text of a page without its margins, and the facts that the page states about it.

The page is laid out flat (outline.py), the element that holds the text is chosen and everything else in it struck out
(main_content.py), the rest is written as text and Markdown (render.py). Facts about the article come from the page's
metadata. The text in JSON-LD is used only where the page shows hardly any, because scripts would make it.

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
from .main_content import choose, folded, strike_extras
from .outline import Outline, outline_of
from .render import LONGEST, markdown_of, text_of, whole_markdown

if TYPE_CHECKING:
    from ..page import Page

_LEAST = 100  # characters of an article; a shorter text is a notice
_SHORT = 300  # characters of text below which the body in JSON-LD is preferred
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
    """The article of the page; None when the page has none."""
    if page.tree is None:
        return None
    facts = metadata_of(page)
    content = _MainContent.in_page(page, facts)
    text, markdown = ("", "") if content is None else (content.text(), content.markdown(page))
    if len(text) < _SHORT and facts.article_body is not None and len(facts.article_body) > 2 * len(text):
        text, markdown = _from_json_ld(facts.article_body)
    if len(text) < _LEAST:
        return None
    return Article(
        url=facts.canonical or page.url,
        title=_title(facts, content.heading if content is not None else None),
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
    """The text of the page's main content, without menus and margins; "" for a page without prose."""
    content = _MainContent.in_page(page)
    return content.text() if content is not None else ""


def markdown(page: Page) -> str:
    """The main content as Markdown, its title first; the whole page where no part stands out."""
    tree = page.tree
    if tree is None:
        return ""
    content = _MainContent.in_page(page)
    if content is None or len(content.text()) < _LEAST:
        return whole_markdown(tree, page.urljoin(""))
    text = content.markdown(page)
    return f"# {content.heading}\n\n{text}" if content.heading else text


class _MainContent:
    """The main content of a page: the element `top` without what the outline has struck out; `heading` is the title
    as the page shows it.
    """

    def __init__(self, outline: Outline, top: int, heading: str | None) -> None:
        self._outline = outline
        self._top = top
        self.heading = heading

    @classmethod
    def in_page(cls, page: Page, facts: Metadata | None = None) -> _MainContent | None:
        root = page.tree.root if page.tree is not None else None
        if root is None:
            return None
        outline = outline_of(root)
        top = choose(outline)
        if top is None:
            return None
        titles = _titles(page, facts)
        heading = strike_extras(outline, top, titles)
        return cls(outline, top, heading or _heading(outline, titles))

    def text(self) -> str:
        return text_of(self._outline, self._top)

    def markdown(self, page: Page) -> str:
        return markdown_of(self._outline, self._top, page.urljoin(""))


def _title(facts: Metadata, heading: str | None) -> str | None:
    """The heading that readers see, if the metadata of the page confirms it; else the title in the metadata."""
    said = [title for title in (facts.headline, facts.title) if title]
    if heading and any(folded(heading) in folded(title) for title in said):
        return heading
    return facts.headline or heading or facts.title


def _titles(page: Page, facts: Metadata | None) -> frozenset[str]:
    """All titles that the page states, folded, each with and without the name of the site behind it."""
    given = [page.title or ""]
    if facts is not None:
        given += [facts.title or "", facts.headline or ""]
    elif page.tree is not None:
        tag = page.tree.select_one('meta[property="og:title"]')
        given.append((tag.attr("content") or "") if tag is not None else "")
    parts = [part for title in given for part in (title, *re.split(r"\s[|–—·»:-]\s", title[:1000]))]
    return frozenset(filter(None, map(folded, parts)))


def _heading(outline: Outline, titles: frozenset[str]) -> str | None:
    """The <h1> that equals one of the titles, or the only <h1>."""
    nothing = bytearray(len(outline.elements))
    firsts = islice((one for one in outline.paragraphs if outline.tags[one.block] == "h1"), _MOST_HEADINGS)
    headings = [one.text(nothing) for one in firsts]
    for heading in headings:
        if folded(heading) in titles:
            return heading
    return headings[0] if len(headings) == 1 else None


def _from_json_ld(body: str) -> tuple[str, str]:
    """Text and Markdown of an article body in JSON-LD, which is HTML, or plain text, perhaps with entities."""
    body = body[:LONGEST]
    if not _MARKUP.search(body[:10_000]) and "&" in body:
        body = html.unescape(body)
    if _MARKUP.search(body[:10_000]):
        part = turbohtml.parse_fragment(body)
        return text_of(outline_of(part), 0), part.to_markdown().strip()
    lines = [" ".join(line.split()) for line in body.splitlines()]
    text = "\n\n".join(line for line in lines if line)
    return text, text

"""`Markup`: a fetched page and what it says. The argument of every extractor, and the base class of `Page`.

The tree is parsed on first use; the facts in it (JSON-LD, microdata, <meta>, <link>) are read once and shared by all
extractors. How it fails: content that is not markup has no tree, and extractors find nothing in it; invalid JSON, feeds
and sitemaps raise ParseFailed with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from turbohtml import Document

from ..errors import ParseFailed
from ..model.page import Headers, Snapshot
from ..model.page_content import ContentParts
from .documents import DocumentKind, DocumentUnreadable, document_html, document_kind, is_readable
from .links import LinkBase, base_of
from .media import Media, decode_as, media_of, parse_html
from .xml import parse_xml

if TYPE_CHECKING:
    from . import article, metadata
    from .article.kind import KindOfPage
    from .feeds import Feed
    from .product import Product
    from .sitemaps import Sitemap
    from .structured.facts import StatedFacts


class Markup:
    """A fetched page: `Markup(snapshot).article()`."""

    __slots__ = ("_base", "_document", "_facts", "_metadata", "_snapshot", "_text", "_tree")

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._tree: Document | bool | None = False  # False: not parsed yet
        self._text: str | None = None
        self._base: LinkBase | None = None
        self._document: DocumentKind | bool | None = False  # False: not asked yet
        self._facts: StatedFacts | None = None
        self._metadata: metadata.Metadata | None = None

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    @property
    def url(self) -> str:
        """Where the body came from, after redirects."""
        return self._snapshot.url

    @property
    def headers(self) -> Headers:
        return self._snapshot.headers

    @property
    def body(self) -> bytes:
        return self._snapshot.body

    @property
    def fetched_at(self) -> float:
        """Seconds since the epoch."""
        return self._snapshot.fetched_at

    @property
    def cut(self) -> bool:
        """True if the body was longer than the limit and was truncated."""
        return self._snapshot.cut

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type")

    @property
    def media(self) -> Media:
        """The kind of the body, by its Content-Type and first bytes."""
        return Media.DOCUMENT if self.document is not None else media_of(self.content_type, self.body)

    @property
    def document(self) -> DocumentKind | None:
        """The kind of document that the page is ("pdf", "docx", "xlsx" ...); None for HTML and everything else."""
        if isinstance(self._document, bool):
            self._document = document_kind(self.content_type, self.body, self.url)
        return self._document

    @property
    def has_content(self) -> bool:
        """Is there a text to read: HTML, or a document that can be read here?"""
        return self.media in (Media.HTML, Media.DOCUMENT) and self.tree is not None

    @property
    def tree(self) -> Document | None:
        """The parsed page; None for content that is neither markup nor a document. Raises ParseFailed for a document
        that cannot be read."""
        if isinstance(self._tree, bool):
            self._tree = self._parse()
        return self._tree

    def _parse(self) -> Document | None:
        media = self.media
        if self.document is not None:
            html = self._document_html(self.document) if is_readable(self.document) else None
            return parse_html(html.encode()) if html is not None else None
        if media not in (Media.HTML, Media.XML):
            return None
        tree = parse_html(self.body, self.content_type)
        if media is Media.XML:
            # The HTML tree gave the encoding; it is also the fallback for XML that is not well-formed.
            return parse_xml(self._decode(tree.encoding)) or tree
        return tree

    def _document_html(self, kind: DocumentKind) -> str:
        try:
            return document_html(kind, self.body)
        except DocumentUnreadable as error:
            raise ParseFailed(f"{self.url} is a {kind.value} document that cannot be read. {error}") from error

    def _demand_reader(self) -> None:
        """Raises ParseFailed for a document whose library is not installed: its text is not empty, it is unread."""
        if self.document is not None and not is_readable(self.document):
            raise ParseFailed(
                f"{self.url} is a {self.document.value} document. To read it: pip install 'gossamer[documents]'"
            )

    def _decode(self, encoding: str | None) -> str:
        if self._text is None:
            self._text = decode_as(self.body, encoding or "UTF-8")
        return self._text

    @property
    def text(self) -> str:
        """The source, decoded as browsers do; of a document its text."""
        if self.document not in (None, DocumentKind.MARKDOWN):
            return self.main_text()
        if self._text is None:
            tree = self.tree or parse_html(self.body, self.content_type)
            if self._text is None:
                self._decode(tree.encoding)
        return self._text or ""

    def json(self) -> Any:
        """The body as JSON. Raises ParseFailed."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
        try:
            return msgspec.json.decode(self.text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            start = self.text[:80]
            raise ParseFailed(f"{self.url} is not JSON ({error}). It begins with {start!r}.") from error

    @property
    def title(self) -> str | None:
        """The text of <title>, or None."""
        tree = self.tree
        element = tree.select_one("title") if tree is not None else None
        return " ".join(element.text.split()) or None if element is not None else None

    def urljoin(self, href: str) -> str:
        """The absolute address of a link on this page. Raises InvalidUrl."""
        return self.link_base.join(href)

    @property
    def link_base(self) -> LinkBase:
        """The base of the page's relative links."""
        if self._base is None:
            self._base = base_of(self.tree, self.url)
        return self._base

    @property
    def facts(self) -> StatedFacts:
        """JSON-LD, microdata, <meta> and <link> of the page, each read once."""
        if self._facts is None:
            from .structured.facts import StatedFacts

            self._facts = StatedFacts(self.tree, self.link_base.href)
        return self._facts

    def structured(self) -> dict[str, Any]:
        """JSON-LD, microdata, Open Graph and <meta> of the page, as plain JSON values."""
        from .structured import structured_data

        return structured_data(self.facts)

    def feed(self) -> Feed:
        """The page as RSS, Atom or JSON Feed. Raises ParseFailed."""
        from .feeds import parse_feed

        return parse_feed(self)

    def sitemap(self) -> Sitemap:
        """The page as a sitemap or an index of sitemaps, gzipped or not. Raises ParseFailed."""
        from .sitemaps import sitemap_of

        return sitemap_of(self)

    def main_text(
        self,
        *,
        titled: bool = False,
        cards: bool | None = None,
        faq: bool | None = None,
        comments: bool | None = None,
        reviews: bool | None = None,
    ) -> str:
        """The text of the page's main content, without menus and sidebars; all text of a document; "" for a page
        without. The title of an article is not part of its text, unless `titled`.

        True takes every such part of the page as a whole, False leaves it out, None decides by the kind of the page:

            page.main_text(reviews=True, cards=False)
        """
        from . import article

        self._demand_reader()
        parts = ContentParts(cards=cards, faq=faq, comments=comments, reviews=reviews)
        return article.main_text(self, titled=titled, parts=parts)

    def markdown(
        self,
        *,
        cards: bool | None = None,
        faq: bool | None = None,
        comments: bool | None = None,
        reviews: bool | None = None,
    ) -> str:
        """The main content as Markdown; the whole page if no part stands out. The parts are chosen as in main_text."""
        from . import article

        self._demand_reader()
        return article.markdown(self, ContentParts(cards=cards, faq=faq, comments=comments, reviews=reviews))

    def product(self) -> Product | None:
        """The product that the page offers, each value with its source and a confidence, or None."""
        from .product import product_of

        return product_of(self)

    def article(self) -> article.Article | None:
        """The article of the page: text, Markdown, authors, dates; None if there is hardly any text."""
        from . import article

        return article.article_of(self)

    def kind_of_page(self) -> KindOfPage:
        """What the page is for, with a confidence: article, product, listing, collection, forum, documentation, ..."""
        from . import article

        return article.kind_of_page(self)

    def metadata(self) -> metadata.Metadata:
        """The page's metadata: title, canonical address, language, dates, feeds, translations."""
        if self._metadata is None:
            from . import metadata

            self._metadata = metadata.metadata_of(self)
        return self._metadata

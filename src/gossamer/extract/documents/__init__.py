"""Documents that are not markup, as HTML: PDF, Word, Excel, PowerPoint, OpenDocument, EPUB and Markdown.

A page that is a document has a tree like any other: selectors, links, tables, Markdown and metadata work on it. Pure:
bytes go in, HTML comes out. The readers are libraries written in several languages, and documents come from
strangers: outside of tests they run in a child process with bounds (`parse/document.py` starts `child.py`). The
libraries are an extra, `gossamer[documents]`.
"""

from __future__ import annotations

from importlib.util import find_spec
from io import BytesIO

from .contract import DocumentKind, DocumentUnreadable, MarkupWriter

__all__ = ["DocumentKind", "DocumentUnreadable", "document_html", "document_kind", "is_readable"]

_OPEN_TYPES = {
    "application/vnd.oasis.opendocument.text": DocumentKind.ODT,
    "application/vnd.oasis.opendocument.spreadsheet": DocumentKind.ODS,
    "application/epub+zip": DocumentKind.EPUB,
}
_PARTS = (
    ("word/document.xml", DocumentKind.DOCX),
    ("xl/workbook.xml", DocumentKind.XLSX),
    ("ppt/presentation.xml", DocumentKind.PPTX),
)
_MARKDOWN_TYPES = frozenset(("text/markdown", "text/x-markdown"))
_MARKDOWN_ENDINGS = (".md", ".markdown")
_HEAD = 1024  # bytes in which a PDF begins
_NEEDS = {DocumentKind.PDF: "pypdfium2", DocumentKind.DOCX: "mammoth", DocumentKind.XLSX: "openpyxl"}


def document_kind(content_type: str, body: bytes, url: str = "") -> DocumentKind | None:
    """The kind of document, by its content rather than its name; None for everything else.

    document_kind("application/octet-stream", b"%PDF-1.7 ...")  # DocumentKind.PDF
    """
    head = body[:_HEAD]
    if b"%PDF-" in head and not head.lstrip().startswith(b"<"):
        return DocumentKind.PDF
    if head.startswith(b"PK\x03\x04"):
        return _packed_kind(body)
    label = content_type.partition(";")[0].strip().lower()
    if label in _MARKDOWN_TYPES or (
        label == "text/plain" and url.partition("?")[0].lower().endswith(_MARKDOWN_ENDINGS)
    ):
        return DocumentKind.MARKDOWN
    return None


def _packed_kind(body: bytes) -> DocumentKind | None:
    from zipfile import BadZipFile, ZipFile  # not needed for the pages of most crawls

    try:
        package = ZipFile(BytesIO(body))
        if "mimetype" in package.NameToInfo and package.getinfo("mimetype").file_size < 200:
            return _OPEN_TYPES.get(package.read("mimetype").decode("ascii", "replace").strip())
    except (BadZipFile, ValueError, OSError, NotImplementedError, RuntimeError, EOFError):
        return None
    return next((kind for part, kind in _PARTS if part in package.NameToInfo), None)


def is_readable(kind: DocumentKind) -> bool:
    """Is the library installed that reads this kind?"""
    return kind not in _NEEDS or find_spec(_NEEDS[kind]) is not None


def document_html(kind: DocumentKind, body: bytes) -> str:
    """The document as HTML. Raises DocumentUnreadable."""
    match kind:
        case DocumentKind.PDF:
            from .pdf import pdf_html

            return pdf_html(body)
        case DocumentKind.MARKDOWN:
            return _markdown_html(body)
        case _:
            from . import office

            readers = {
                DocumentKind.DOCX: office.docx_html,
                DocumentKind.XLSX: office.xlsx_html,
                DocumentKind.PPTX: office.pptx_html,
                DocumentKind.ODT: office.open_document_html,
                DocumentKind.ODS: office.open_document_html,
                DocumentKind.EPUB: office.epub_html,
            }
            return readers[kind](body)


def _markdown_html(body: bytes) -> str:
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    text = body.decode("utf-8-sig", "replace")
    title = next((line.lstrip("# ").strip() for line in text.splitlines()[:50] if line.startswith("# ")), "")
    writer = MarkupWriter(title=title[:300])
    writer.raw(reader.render(text))
    return writer.html()

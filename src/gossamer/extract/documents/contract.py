"""What the readers of documents share: the kinds of documents, their bounds, and the error for one that cannot be
read."""

from __future__ import annotations

from enum import StrEnum

MOST_PAGES = 5_000  # of a document; the others are left out
MOST_TEXT = 20_000_000  # characters of a document
UNREADABLE = 2  # exit code of the child for a document that cannot be read
MOST_UNPACKED = 400 * 1024**2  # bytes of all files in a packed document


class DocumentKind(StrEnum):
    """Documents that are not markup and have text all the same."""

    PDF = "pdf"
    DOCX = "docx"
    XLSX = "xlsx"
    PPTX = "pptx"
    ODT = "odt"
    ODS = "ods"
    EPUB = "epub"
    MARKDOWN = "markdown"


class DocumentUnreadable(Exception):
    """The document cannot be read; the message is a sentence about it."""

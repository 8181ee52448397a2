"""The kind of a body: markup, data, text or bytes. Its Content-Type decides, or its first bytes if that is vague."""

from __future__ import annotations

import re
from enum import StrEnum

_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_TEXT_TYPES = frozenset({"application/javascript", "application/x-javascript", "application/ecmascript"})
_VAGUE_TYPES = frozenset({"", "application/octet-stream", "text/plain", "unknown/unknown", "*/*"})
_BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")
_LOOK = 1024  # bytes inspected
_TAG = re.compile(rb"\s*<[a-zA-Z!?/]")


class Media(StrEnum):
    HTML = "html"
    XML = "xml"
    JSON = "json"
    TEXT = "text"
    BINARY = "binary"


def media_of(content_type: str, body: bytes) -> Media:
    """The kind of the body. A label of HTML, XML or text is ignored if the bytes contain NULs, unless it is HTML and
    they begin with a tag: browsers show a page despite a stray NUL."""
    label = content_type.partition(";")[0].strip().lower()
    head = body[:_LOOK]
    if label in _HTML_TYPES and _TAG.match(head):
        return Media.HTML
    if b"\x00" in head and not head.startswith(_BYTE_ORDER_MARKS) and "utf-16" not in content_type.lower():
        return Media.BINARY
    if label in _HTML_TYPES:
        return Media.HTML
    if label in _VAGUE_TYPES:
        return _by_look(head, label)
    if label.endswith(("/xml", "+xml")):
        return Media.HTML if b"<html" in head.lower() else Media.XML
    if label.endswith(("/json", "+json", "/x-json", "json-seq")):
        return Media.JSON
    if label.startswith("text/") or label in _TEXT_TYPES:
        return Media.TEXT
    return Media.BINARY


def _by_look(head: bytes, label: str) -> Media:
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return Media.HTML
    if start.startswith(b"<?xml"):
        return Media.HTML if b"<html" in start else Media.XML
    if label == "text/plain":
        return Media.TEXT
    if start.startswith((b"{", b"[")):
        return Media.JSON
    if not label or start.startswith(b"<"):
        return Media.HTML  # as browsers do with an unlabelled page
    return Media.BINARY

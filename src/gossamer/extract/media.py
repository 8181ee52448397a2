"""The kind of a body (markup, data, text or bytes) and its characters. The Content-Type decides, or the first bytes if
that is vague."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache, partial

import turbohtml
import turbohtml.detect

_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_TEXT_TYPES = frozenset({"application/javascript", "application/x-javascript", "application/ecmascript"})
_VAGUE_TYPES = frozenset({"", "application/octet-stream", "text/plain", "unknown/unknown", "*/*"})
_BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")
_LOOK = 1024  # bytes inspected
_TAG = re.compile(rb"\s*<[a-zA-Z!?/]")

_CHARSET = re.compile(r""";\s*charset\s*=\s*["']?\s*([^\s;"']+)""", re.IGNORECASE)
# A self-closed <iframe/> in <noscript>. Browsers run scripts and never parse it; parsed as markup, it would swallow the
# rest of the page.
_OPEN_FRAME = re.compile(rb"(<noscript[^>]{0,500}>\s{0,100}<iframe\b[^>]{0,2000})/>(?=\s{0,100}</noscript)")
_MARKS = (b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe")
_UTF_8 = frozenset({"utf-8", "utf8", "UTF-8", "UTF8"})  # as servers write it
# Declarative shadow roots stay templates: in a separate tree no selector would find their content.
_parse = partial(turbohtml.parse, positions=False, allow_declarative_shadow_roots=False)


class Media(StrEnum):
    HTML = "html"
    XML = "xml"
    JSON = "json"
    TEXT = "text"
    DOCUMENT = "document"  # PDF, Word, Excel ...: extract/documents/ reads it as HTML
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


@lru_cache(maxsize=256)
def charset_label(content_type: str) -> str | None:
    """The charset in a Content-Type header, even an unknown one."""
    match = _CHARSET.search(content_type)
    return match[1] if match else None


def parse_html(body: bytes, content_type: str = "") -> turbohtml.Document:
    """The page's tree. Its `encoding` is the one that was used; None is UTF-8."""
    tree = _tree_of(body, content_type)
    # Check the tree: searching the bytes of every page takes longer.
    if tree.find("iframe") is not None and _OPEN_FRAME.search(body):
        tree = _tree_of(_OPEN_FRAME.sub(rb"\1></iframe>", body), content_type)
    if tree.find("template") is not None and b"shadowrootmode" in body:
        _show_shadow_roots(tree)
    return tree


def _show_shadow_roots(tree: turbohtml.Document) -> None:
    """Move the content of each shadow root (<template shadowrootmode>) into its element, with the element's children in
    their slots. Children without a slot stay after it."""
    roots: dict[turbohtml.Node | None, turbohtml.Element] = {}
    for template in tree.select("template[shadowrootmode]"):
        roots.setdefault(template.parent, template)  # only the first one of an element counts
    for host, template in reversed(roots.items()):  # inner ones first
        content = template.children
        if host is None or not content:
            continue
        own: dict[str, list[turbohtml.Node]] = {}
        for child in host.children:
            if child != template:
                name = (child.attr("slot") or "") if isinstance(child, turbohtml.Element) else ""
                own.setdefault(name, []).append(child)
        shown = content[0].children
        template.replace_with(*shown)
        for root in shown:
            if not isinstance(root, turbohtml.Element):
                continue
            for slot in (*([root] if root.tag == "slot" else ()), *root.select("slot")):
                slot.replace_with(*(own.pop(slot.attr("name") or "", None) or slot.children))


def _tree_of(body: bytes, content_type: str) -> turbohtml.Document:
    label = charset_label(content_type)
    if label in _UTF_8 and not body.startswith(_MARKS):
        return _parse(body.decode("utf-8", "replace"))  # the same result, faster
    if label is not None:
        try:
            return _parse(body, encoding=label, detect_encoding=True)
        except (LookupError, UnicodeError):
            pass  # ignore labels that are unknown to browsers or not a text encoding
    return _parse(body, detect_encoding=True)


def decode(body: bytes, content_type: str = "") -> tuple[str, str]:
    """The text, and its encoding's name in the Encoding Standard ("UTF-8", "windows-1252")."""
    name = parse_html(body, content_type).encoding or "UTF-8"
    return decode_as(body, name), name


def decode_as(body: bytes, name: str) -> str:
    """The text of bytes in a known encoding, without the byte-order mark."""
    for mark in _MARKS:
        if body.startswith(mark):
            body = body[len(mark) :]
            break
    if name == "UTF-8":
        return body.decode("utf-8", "replace")
    return body.decode(f"whatwg-{name.lower()}", "replace")

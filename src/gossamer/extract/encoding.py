"""Decodes bytes to text as browsers do.

The first of these decides: a byte-order mark; the charset of Content-Type if it is a label of the Encoding Standard; a
<meta> in the page; the bytes themselves (UTF-8 if they are valid UTF-8, else a statistical guess). Invalid bytes become
U+FFFD; nothing raises. Declarative shadow roots are inlined into the tree, as a reader sees them.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial

import turbohtml
import turbohtml.detect  # registers the "whatwg-..." codecs, which follow the standard exactly

_CHARSET = re.compile(r""";\s*charset\s*=\s*["']?\s*([^\s;"']+)""", re.IGNORECASE)
# A self-closed <iframe/> in <noscript>. Browsers run scripts and never parse it; parsed as markup, it would swallow the
# rest of the page.
_OPEN_FRAME = re.compile(rb"(<noscript[^>]{0,500}>\s{0,100}<iframe\b[^>]{0,2000})/>(?=\s{0,100}</noscript)")
_MARKS = (b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe")
_UTF_8 = frozenset({"utf-8", "utf8", "UTF-8", "UTF8"})  # as servers write it
# Declarative shadow roots stay templates: in a separate tree no selector would find their content.
_parse = partial(turbohtml.parse, positions=False, allow_declarative_shadow_roots=False)


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
    if b"shadowrootmode" in body:
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

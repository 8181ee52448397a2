"""From bytes to characters as browsers do it.

In this order: a byte-order mark; the charset of Content-Type if it is a label of the Encoding Standard; a <meta>
in the page; the look of the bytes themselves (UTF-8 if they are valid UTF-8, else what their statistics suggest).
Bytes that make no sense become U+FFFD; nothing raises. The tree is what a reader sees: shadow roots are opened into it.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial

import turbohtml
import turbohtml.detect  # registers the "whatwg-..." codecs, which follow the standard to the letter

_CHARSET = re.compile(r""";\s*charset\s*=\s*["']?\s*([^\s;"']+)""", re.IGNORECASE)
# A frame in <noscript> that is closed like an XML element. Browsers run scripts and so never read it as markup; read as
# markup, such a frame holds everything up to its end, which is the rest of the page.
_OPEN_FRAME = re.compile(rb"(<noscript[^>]{0,500}>\s{0,100}<iframe\b[^>]{0,2000})/>(?=\s{0,100}</noscript)")
_MARKS = (b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe")
_UTF_8 = frozenset({"utf-8", "utf8", "UTF-8", "UTF8"})  # as servers write it
# Shadow roots that are written out stay templates: apart from the tree no selector would find what is in them.
_parse = partial(turbohtml.parse, positions=False, allow_declarative_shadow_roots=False)


@lru_cache(maxsize=256)
def charset_label(content_type: str) -> str | None:
    """The charset that a Content-Type header names, known or not."""
    match = _CHARSET.search(content_type)
    return match[1] if match else None


def parse_html(body: bytes, content_type: str = "") -> turbohtml.Document:
    """The page's tree. Its `encoding` tells how the bytes were read; None is UTF-8."""
    tree = _tree_of(body, content_type)
    # Told by the tree, because to search the bytes of every page takes longer.
    if tree.find("iframe") is not None and _OPEN_FRAME.search(body):
        tree = _tree_of(_OPEN_FRAME.sub(rb"\1></iframe>", body), content_type)
    if b"shadowrootmode" in body:
        _show_shadow_roots(tree)
    return tree


def _show_shadow_roots(tree: turbohtml.Document) -> None:
    """Put what an element keeps in a shadow root (<template shadowrootmode>) where a reader sees it: in the element,
    with the element's own children in the slots that are theirs. Children that no slot takes stay behind it."""
    roots: dict[turbohtml.Node | None, turbohtml.Element] = {}
    for template in tree.select("template[shadowrootmode]"):
        roots.setdefault(template.parent, template)  # an element has one, the first
    for host, template in reversed(roots.items()):  # the inner ones first
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
        return _parse(body.decode("utf-8", "replace"))  # the same, and sooner
    if label is not None:
        try:
            return _parse(body, encoding=label, detect_encoding=True)
        except (LookupError, UnicodeError):
            pass  # a label that no browser knows is ignored, and so is one that is no text
    return _parse(body, detect_encoding=True)


def decode(body: bytes, content_type: str = "") -> tuple[str, str]:
    """The text and the name of its encoding (as in the Encoding Standard: "UTF-8", "windows-1252")."""
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

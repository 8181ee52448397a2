"""Reads XML as the web serves it: as a stream of tags and texts that tolerates errors (`XmlStream`), and as a tree of
limited depth (`parse_xml`), because the XML parser, unlike the HTML parser, has no such limit.

A strict parser stops at the first bare "&" of a sitemap or the first "&nbsp;" of a feed, and loses the rest.
`XmlStream` reads on: it knows the entities of XML and HTML, treats a stray "&" or "<" as text, and tags need not match.
It builds no tree and buffers at most one tag, so size and depth of the file do not matter.

A file that declares its own entities is refused (ParseFailed), which prevents billion laughs and reading local files
through entities. A plain document type is skipped, never fetched.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from html.entities import html5
from typing import NamedTuple

import turbohtml

from ..errors import ParseFailed

_DEEPEST = 512  # levels, as in browsers' HTML; in deeper trees queries take quadratic time
_ANY_TAG = re.compile(r"<(/?)[^<>!?/][^<>]*?(/?)>")
_LONGEST_TAG = 16_384  # characters; longer ones are text
_LONGEST_ENTITY = 40
_ENTITY = re.compile(r"&(#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,32});")
_ATTRIBUTE = re.compile(r"""([^\s=/"'<>]{1,200})\s{0,100}=\s{0,100}(?:"([^"]*)"|'([^']*)'|([^\s"'<>]{1,4000}))""")
_DECLARED = re.compile(rb"""<\?xml[^>]{0,200}?encoding\s{0,20}=\s{0,20}["']([A-Za-z0-9._:-]{1,40})""")
_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_LOOK = 512  # bytes inspected for the encoding

START, END, TEXT = "start", "end", "text"


class XmlEvent(NamedTuple):
    """A start tag (`name`, and `value` with its attributes), an end tag (`name`), or a text (`value`).

    `source` is the raw text in the file; "" for CDATA, which has no escapes.
    """

    kind: str
    name: str
    value: str
    source: str


class XmlStream:
    """Takes text in chunks and yields events. Both generators must be exhausted."""

    def __init__(self) -> None:
        self._rest = ""
        self._until = ""  # inside a comment, an instruction or CDATA: its end mark
        self._is_cdata = False

    def feed(self, text: str, *, final: bool = False) -> Iterator[XmlEvent]:
        """The events completed by the text; `final`: nothing follows. Raises ParseFailed for a file that declares
        entities."""
        buffer = self._rest + text
        self._rest = ""
        at, size = 0, len(buffer)
        find = buffer.find
        while at < size:
            if self._until:
                end = find(self._until, at)
                stop = end if end >= 0 else max(at, size - len(self._until) + 1)
                if self._is_cdata and stop > at:
                    yield XmlEvent(TEXT, "", buffer[at:stop], "")
                if end < 0:
                    at = stop
                    break
                at = end + len(self._until)
                self._until, self._is_cdata = "", False
                continue
            mark = find("<", at)
            stop = mark if mark >= 0 else size if final else _whole_entities(buffer, at)
            if stop > at:
                source = buffer[at:stop]
                yield XmlEvent(TEXT, "", resolve_entities(source) if "&" in source else source, source)
                at = stop
            if mark < 0:
                break
            after = buffer[mark + 1 : mark + 2]
            if after in ("!", "?"):
                passed = self._open(buffer, mark)
                if passed < 0:
                    break
                at = passed
                continue
            end = _tag_end(buffer, mark, final=final) if after == "/" or after == "_" or after.isalpha() else 0
            if end < 0 or not after:
                break
            if not end:
                at = mark + 1
                while buffer[at : at + 2] == "<<":
                    at += 1
                yield XmlEvent(TEXT, "", buffer[mark:at], buffer[mark:at])
                continue
            at = end + 1
            yield from _tag(buffer[mark:at])
        self._rest = buffer[at:]

    @property
    def idle(self) -> bool:
        """True if no construct is incomplete."""
        return not self._rest and not self._until

    def close(self) -> str:
        """The incomplete rest if the file ends in the middle of a construct; else ""."""
        return self._rest or self._until

    def _open(self, buffer: str, mark: int) -> int:
        """Enter or skip a construct that begins with "<!" or "<?". Returns the next position, or -1 if more text is
        needed."""
        head = buffer[mark : mark + 9]
        if head.startswith("<?"):
            self._until = "?>"
            return mark + 2
        if head.startswith("<!--"):
            self._until = "-->"
            return mark + 4
        if head == "<![CDATA[":
            self._until, self._is_cdata = "]]>", True
            return mark + 9
        if "<!--".startswith(head) or "<![CDATA[".startswith(head):
            return -1
        end = buffer.find(">", mark, mark + _LONGEST_TAG)
        declaration = buffer[mark : end if end >= 0 else mark + _LONGEST_TAG]
        kind = declaration[2:9].upper()
        if (kind == "DOCTYPE" and "[" in declaration) or kind in (
            "ENTITY ",
            "ENTITY\n",
            "ENTITY\t",
            "ELEMENT",
            "ATTLIST",
        ):
            raise ParseFailed(
                "The file declares entities or elements (a DTD). Such files can grow without limit or read"
                " other files, so this one is not read."
            )
        if end >= 0:
            return end + 1
        if len(declaration) == _LONGEST_TAG:
            return mark + _LONGEST_TAG
        return -1


def _whole_entities(buffer: str, at: int) -> int:
    """The last position where the text can be split without splitting an entity."""
    cut = buffer.rfind("&", max(at, len(buffer) - _LONGEST_ENTITY))
    return cut if cut >= 0 and ";" not in buffer[cut:] else len(buffer)


def _tag_end(buffer: str, mark: int, *, final: bool) -> int:
    """The end of the tag; 0 if it is not a tag, -1 if more text is needed."""
    limit = mark + _LONGEST_TAG
    end = buffer.find(">", mark, limit)
    other = buffer.find("<", mark + 1, limit if end < 0 else end)
    if other >= 0:
        return 0
    quote = buffer.find('"', mark, end) if end >= 0 else -1
    while end >= 0 and quote >= 0:
        closing = buffer.find('"', quote + 1, limit)
        if closing < 0:
            if not final and len(buffer) < limit:
                return -1
            break  # an unclosed quote must not swallow the file
        if closing > end:
            end = buffer.find(">", closing, limit)
        quote = buffer.find('"', closing + 1, end) if end >= 0 else -1
    if end >= 0:
        return end
    return 0 if len(buffer) >= limit else -1


def _tag(source: str) -> tuple[XmlEvent, ...]:
    if source[1] == "/":
        return (XmlEvent(END, source[2:-1].strip().lower(), "", source),)
    is_empty = source[-2] == "/"
    inner = source[1:-2] if is_empty else source[1:-1]
    name, _, attributes = inner.partition(" ") if inner.isascii() and inner.isprintable() else _parted(inner)
    name = name.lower()
    start = XmlEvent(START, name, attributes, source)
    return (start, XmlEvent(END, name, "", "")) if is_empty else (start,)


def _parted(inner: str) -> tuple[str, str, str]:
    name, *rest = inner.split(None, 1)
    return name, " ", rest[0] if rest else ""


def attributes_of(event: XmlEvent) -> dict[str, str]:
    """The attributes of a start tag, by lower-case name; the first of equal names counts."""
    found: dict[str, str] = {}
    for name, double, single, bare in _ATTRIBUTE.findall(event.value):
        found.setdefault(name.lower(), resolve_entities(double or single or bare))
    return found


def resolve_entities(text: str) -> str:
    """Resolve the entities of XML and HTML; unknown ones stay unchanged."""
    return _ENTITY.sub(_character, text) if "&" in text else text


def _character(match: re.Match[str]) -> str:
    name = match[1]
    if name[0] != "#":
        return html5.get(f"{name};", match[0])
    code = int(name[2:], 16) if name[1] in "xX" else int(name[1:])
    return chr(code) if 0 < code < 0xD800 or 0xDFFF < code < 0x110000 else "\ufffd"


class TextStream:
    """Decodes bytes in chunks, by the byte-order mark, the XML declaration, or as UTF-8."""

    def __init__(self) -> None:
        self._head = b""
        self._decoder: codecs.IncrementalDecoder | None = None

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """The text of these bytes. Invalid bytes become U+FFFD."""
        if self._decoder is None:
            self._head += data
            if len(self._head) < _LOOK and not final:
                return ""
            data, self._head = self._head, b""
            mark, name = encoding_of(data)
            self._decoder = codecs.getincrementaldecoder(name)("replace")
            data = data[mark:]
        return self._decoder.decode(data, final)


def encoding_of(head: bytes) -> tuple[int, str]:
    """The length of the byte-order mark and the codec's name, from the first bytes of an XML file."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return len(mark), name
    if head[:4] in (b"<\x00?\x00", b"<\x00u\x00", b"<\x00r\x00"):
        return 0, "utf-16-le"
    if head[:4] in (b"\x00<\x00?", b"\x00<\x00u", b"\x00<\x00r"):
        return 0, "utf-16-be"
    declared = _DECLARED.search(head)
    name = declared[1].decode("ascii").lower() if declared else "utf-8"
    if name in _WESTERN:
        return 0, "windows-1252"
    return 0, name if name in _CODECS else "utf-8"


def decode_xml(body: bytes, label: str = "") -> str:
    """The text of a whole file; `label` is the encoding in the HTTP header, if any.

    A label that contradicts the bytes is ignored: valid UTF-8 is recognisable.
    """
    mark, name = encoding_of(body[:_LOOK])
    body = body[mark:]
    if name.startswith("utf-16"):
        return body.decode(name, "replace")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        pass
    if mark:
        return body.decode("utf-8", "replace")
    if name in _UTF8:
        label = label.lower()
        name = label if label in _CODECS and label not in _UTF8 else "windows-1252"
    return body.decode(name, "replace")


def parse_xml(text: str) -> turbohtml.Document | None:
    """The tree of a well-formed document that is not nested too deeply, else None."""
    if text.count("</") > _DEEPEST and _too_deep(text):
        return None
    try:
        return turbohtml.parse_xml(text)
    except turbohtml.HTMLParseError:
        return None


def _too_deep(text: str) -> bool:
    depth = 0
    for closing, empty in _ANY_TAG.findall(text):
        if closing:
            depth -= 1
        elif not empty:
            depth += 1
            if depth > _DEEPEST:
                return True
    return False


# Accepted labels. Python has other "codecs" too, such as unicode_escape, which must not be reachable from a page.
_WESTERN = frozenset(["iso-8859-1", "us-ascii", "ascii", "latin1", "latin-1"])  # read as windows-1252, as in browsers
_UTF8 = frozenset(["utf-8", "utf8"])
_CODECS = frozenset(
    ["utf-8", "utf8", "koi8-r", "koi8-u", "macintosh", "mac-roman"]
    + ["shift_jis", "shift-jis", "sjis", "euc-jp", "iso-2022-jp", "euc-kr", "cp949", "big5", "gb2312", "gbk", "gb18030"]
    + [f"iso-8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16)]
    + [f"windows-{page}" for page in (874, *range(1250, 1259))]
    + [f"cp{page}" for page in range(1250, 1259)]
)

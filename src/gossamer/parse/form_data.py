"""Encodes the entries of a submitted form: as a query, or as a body in one of HTML's three encodings.

Pure. forms.py chooses the entries; this module turns them into bytes in the charset of the form.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TypeAlias
from urllib.parse import quote_from_bytes

import msgspec
import turbohtml

from ..model.payload import Part, quotable, with_boundary
from ..model.secret_text import AS_IS, IN_FORM, parted

URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
PLAIN = "text/plain"

_NEWLINES = re.compile(r"\r\n|\r|\n")
# Encodings that Python knows under another name.
_CODECS = {
    "big5": "big5hkscs", "euc-kr": "cp949", "gbk": "gb18030", "iso-8859-8-i": "iso8859_8", "macintosh": "mac_roman",
    "shift_jis": "cp932", "windows-874": "cp874", "x-mac-cyrillic": "mac_cyrillic",
}  # fmt: skip


class Upload(msgspec.Struct, frozen=True):
    """A file that is sent with a form."""

    name: str
    content: bytes = b""
    type: str = "application/octet-stream"


NO_FILE = Upload("")  # what browsers send for an empty file field
Entry: TypeAlias = tuple[str, str | Upload]


@lru_cache(maxsize=256)
def known_encoding(label: str) -> str | None:
    """The name of the encoding that browsers know by this label, or None."""
    try:
        return turbohtml.parse(b"", encoding=label).encoding
    except (LookupError, UnicodeError, ValueError):
        return None


def form_encoding(accept_charset: str | None, document: str) -> str:
    """The encoding in which a form is sent: the first known one in accept-charset, else the document's. UTF-8 replaces
    encodings that forms cannot use (UTF-16, replacement)."""
    labels = (accept_charset or "").replace(",", " ").split()
    name = next((known for label in labels if (known := known_encoding(label))), document)
    return "UTF-8" if name.upper().startswith("UTF-16") or name == "replacement" else name


def urlencoded(entries: Sequence[Entry], encoding: str) -> list[Part]:
    """The entries as a query: name=value&name=value. For a file, its name is sent."""
    made: list[Part] = []
    for name, value in entries:
        made.append(f"{'&' if made else ''}{_percent(name, encoding)}=".encode())
        made += _parts(_text(value), IN_FORM, lambda text: _percent(text, encoding).encode())
    return made


def plain(entries: Sequence[Entry], encoding: str) -> list[Part]:
    """One line per entry, nothing escaped."""
    text = "".join(f"{name}={_text(value)}\n" for name, value in entries)
    return _parts(text, AS_IS, lambda part: _encoded(_crlf(part), encoding))


def multipart(entries: Sequence[Entry], encoding: str) -> tuple[list[Part], str]:
    """The body and its content type. Equal entries give equal bodies, so that the queue recognises duplicates."""
    sections: list[list[Part]] = []
    for name, value in entries:
        head = f'Content-Disposition: form-data; name="{quotable(_crlf(name))}"'
        content: list[Part]
        if isinstance(value, Upload):
            head += f'; filename="{quotable(value.name)}"\r\nContent-Type: {quotable(value.type)}'
            content = [value.content]
        else:
            content = _parts(value, AS_IS, lambda part: _encoded(_crlf(part), encoding))
        sections.append([_encoded(f"{head}\r\n\r\n", encoding), *content])
    boundary = f"----gossamer{blake2b(msgspec.json.encode(sections), digest_size=12).hexdigest()}"
    return with_boundary(sections, boundary), f"{MULTIPART}; boundary={boundary}"


def _parts(text: str, written: str, encode: Callable[[str], bytes]) -> list[Part]:
    """The encoded text, in which secrets remain references."""
    return [encode(part) if isinstance(part, str) else part for part in parted(text, written)]


def _text(value: str | Upload) -> str:
    return value.name if isinstance(value, Upload) else value


def _crlf(text: str) -> str:
    return _NEWLINES.sub("\r\n", text)


def _percent(text: str, encoding: str) -> str:
    return quote_from_bytes(_encoded(_crlf(text), encoding), safe="*-._ ").replace("~", "%7E").replace(" ", "+")


def _encoded(text: str, encoding: str) -> bytes:
    """Encode; characters outside the encoding become references: &#8364;."""
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # replaces lone surrogates
    name = _CODECS.get(encoding.lower(), encoding)
    try:
        codecs.lookup(name)
    except LookupError:  # Python does not have this encoding
        name = "utf-8"
    return text.encode(name, "xmlcharrefreplace")

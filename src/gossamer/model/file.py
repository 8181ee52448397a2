"""Files that a spider asks for, as values: the facts of one (`File`), its type by its first bytes, and a safe file
name. The URL in an item is joined with the file's own record when records are read (ADR 0025)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from .item import Item, safe_text

HEAD_BYTES = 512  # enough to tell the type
_HASH = re.compile(r"[0-9a-f]{64}")
_LONGEST_NAME = 120  # characters; every file system accepts it with a hash before it


class File(Item, key="url", tag_field="kind", tag="file", omit_defaults=True):
    """A file at a URL. In an item only `url` is set: the rest is filled in when records are read, if the file has been
    fetched. `location` is where the URL redirects to."""

    url: str
    sha256: str = ""
    size: int | None = None
    type: str = ""
    name: str = ""
    page: str = ""
    location: str = ""


def is_file(value: object) -> bool:
    """Is this part of a record's data a File?"""
    return isinstance(value, dict) and value.get("kind") == "file" and isinstance(value.get("url"), str)


def is_hash(text: object) -> bool:
    """Is it a SHA-256 in the form that names files?"""
    return isinstance(text, str) and _HASH.fullmatch(text) is not None


# -- types ---------------------------------------------------------------------------------------------------------

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"), (0, b"\xff\xd8\xff", "image/jpeg"), (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"), (8, b"WEBP", "image/webp"), (4, b"ftypavif", "image/avif"),
    (4, b"ftypheic", "image/heic"), (0, b"II*\x00", "image/tiff"), (0, b"MM\x00*", "image/tiff"),
    (0, b"\x00\x00\x01\x00", "image/x-icon"), (0, b"%PDF-", "application/pdf"), (0, b"%!PS", "application/postscript"),
    (0, b"PK\x03\x04", "application/zip"), (0, b"PK\x05\x06", "application/zip"), (0, b"\x1f\x8b", "application/gzip"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"), (0, b"Rar!\x1a\x07", "application/vnd.rar"),
    (0, b"BZh", "application/x-bzip2"), (0, b"\xfd7zXZ\x00", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (4, b"ftyp", "video/mp4"), (0, b"\x1a\x45\xdf\xa3", "video/webm"), (8, b"AVI ", "video/x-msvideo"),
    (0, b"ID3", "audio/mpeg"), (0, b"OggS", "audio/ogg"), (0, b"fLaC", "audio/flac"), (8, b"WAVE", "audio/wav"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"), (0, b"\x7fELF", "application/x-executable"),
    (0, b"MZ", "application/x-msdownload"),
)  # fmt: skip
# Containers for documents of many types: the Content-Type header says which.
_WRAPPERS = frozenset({
    "application/zip", "application/gzip", "application/x-ole-storage", "video/mp4", "video/webm", "audio/ogg",
})  # fmt: skip
_SAYS_NOTHING = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/x-download"})
_HTML = re.compile(rb"\s*(<!--.{0,200}-->\s*)?<(!doctype\s+html|html|head|body|script)\b", re.IGNORECASE | re.DOTALL)
_ALIASES = {
    "image/jpg": "image/jpeg", "image/vnd.microsoft.icon": "image/x-icon", "application/x-pdf": "application/pdf",
    "application/x-gzip": "application/gzip", "application/x-zip-compressed": "application/zip",
}  # fmt: skip


def declared_type(content_type: str) -> str:
    """The type in a Content-Type header, in lower case; "" for one that says nothing."""
    name = content_type.partition(";")[0].strip().lower()
    name = _ALIASES.get(name, name)
    return "" if name in _SAYS_NOTHING else safe_text(name)[:100]


def sniffed_type(head: bytes) -> str:
    """The type that the first bytes of a file prove; "" if they prove none."""
    for offset, magic, name in _MAGIC:
        if head.startswith(magic, offset):
            return name
    return "text/html" if _HTML.match(head) else ""


def file_type(content_type: str, head: bytes) -> str:
    """The type of a file: its first bytes decide; the header does if they prove nothing, or only the container."""
    declared, proven = declared_type(content_type), sniffed_type(head)
    if not proven or (proven in _WRAPPERS and declared and not declared.startswith("text/html")):
        return declared or "application/octet-stream"
    if proven == "text/html" and declared in ("application/xhtml+xml", "image/svg+xml", "text/xml", "application/xml"):
        return declared
    return proven


def is_welcome(name: str, types: Sequence[str]) -> bool:
    """Does the type match one of the patterns (`image/*`, `application/pdf`)? Without patterns, every type does."""
    return not types or any(
        name == _ALIASES.get(one, one) or (one.endswith("/*") and name.startswith(one[:-1])) for one in types
    )


# -- names ---------------------------------------------------------------------------------------------------------

_STAR = re.compile(r"filename\*\s*=\s*([\w-]*)'[^']*'([^;\s]+)", re.IGNORECASE)
_QUOTED = re.compile(r'filename\s*=\s*(?:"((?:\\.|[^"\\])*)"|([^;\s]+))', re.IGNORECASE)
_UNFIT = re.compile(r"[^\w.()+,=@ -]+")
_DEVICES = frozenset({"con", "prn", "aux", "nul", *(f"{name}{n}" for name in ("com", "lpt") for n in range(1, 10))})


def file_name(url: str, disposition: str = "") -> str:
    """A name for a file: the server's name for it, else the last part of its URL. Never a path, never empty."""
    return safe_file_name(_of_disposition(disposition[:2000]) or unquote(urlsplit(url).path).rstrip("/"))


def _of_disposition(value: str) -> str:
    starred = _STAR.search(value)
    if starred:
        try:
            return unquote(starred[2], encoding=starred[1] or "utf-8", errors="replace")
        except (LookupError, UnicodeError):  # an unknown charset, or one of Python's that never decodes
            return unquote(starred[2], errors="replace")
    plain = _QUOTED.search(value)
    return re.sub(r"\\(.)", r"\1", plain[1]) if plain and plain[1] is not None else plain[2] if plain else ""


# Endings that no system, browser or interpreter runs by itself. HTML, SVG and XML run scripts in a browser, old office
# files run macros; TOML and YAML could be a recipe.
_HARMLESS = frozenset((
    "jpg", "jpeg", "jfif", "png", "gif", "webp", "avif", "bmp", "ico", "tif", "tiff", "heic", "heif", "jxl",
    "jp2", "psd", "mp3", "m4a", "aac", "ogg", "oga", "opus", "wav", "flac", "mid", "midi", "mp4", "m4v", "webm",
    "mkv", "mov", "avi", "mpg", "mpeg", "ogv", "srt", "vtt", "pdf", "epub", "mobi", "djvu", "docx", "xlsx",
    "pptx", "odt", "ods", "odp", "txt", "text", "md", "log", "csv", "tsv", "json", "jsonl", "ndjson", "geojson",
    "bib", "parquet", "arrow", "feather", "avro", "orc", "nc", "h5", "hdf5", "fits", "zip", "gz", "bz2", "xz",
    "zst", "tar", "tgz", "7z", "rar", "woff", "woff2", "ttf", "otf", "stl", "obj", "gltf", "glb", "las", "laz",
    "pcd", "warc", "bin", "dat",
))  # fmt: skip


def harmless_name(name: str) -> str:
    """The file name with `.bin` behind an ending that something may execute: every ending that is not known to be
    harmless."""
    _, dot, ending = name.rpartition(".")
    return name if not dot or ending.lower() in _HARMLESS else f"{name}.bin"


def safe_file_name(text: str) -> str:
    """The text as a file name for any file system: no folder, no leading dot, no control character, not too long."""
    name = _UNFIT.sub("_", safe_text(text).replace("\\", "/").rpartition("/")[2]).strip(" ._")
    stem, dot, ending = name.rpartition(".")
    if dot and len(ending) <= 10:
        name = f"{stem[: _LONGEST_NAME - len(ending) - 1].rstrip(' .')}.{ending}"
    name = name[:_LONGEST_NAME].strip(" .")
    if name.partition(".")[0].lower() in _DEVICES:
        name = f"_{name}"
    return name or "file"

"""What a name asks for: format and compression by its ending, the time and the job by its placeholders."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec
import zstandard

from ...errors import Misconfigured
from .places import ByteStream

FORMATS = ("jsonl", "csv", "parquet")
ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".jl": "jsonl", ".csv": "csv", ".parquet": "parquet"}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
ZSTD_LEVEL = 3

_PLACEHOLDER = re.compile(r"\{([A-Za-z_]*)\}")


class Form(msgspec.Struct, frozen=True):
    """How records are written. `compression` is gzip, zstd or nothing."""

    format: str
    compression: str = ""


def form_of(name: str, format: str | None = None) -> Form:
    """The form of a file of that name, in the format that is named, else by the name's ending. Raises Misconfigured."""
    stem, compression = name.lower(), ""
    for ending, word in COMPRESSIONS.items():
        if stem.endswith(ending):
            stem, compression = stem.removesuffix(ending), word
    if format is not None and format.lower() not in FORMATS:
        raise Misconfigured(f"There is no export format {format!r}. Known: {', '.join(FORMATS)}.")
    found = format.lower() if format is not None else _by_ending(name, stem)
    if found == "parquet" and compression:
        raise Misconfigured(f"Parquet is compressed inside; end {name!r} in .parquet alone.")
    return Form(found, compression)


def _by_ending(name: str, stem: str) -> str:
    if name == "-":
        return "jsonl"
    for ending, format in ENDINGS.items():
        if stem.endswith(ending):
            return format
    raise Misconfigured(
        f"The name {name!r} does not tell the format. End it in {', '.join(ENDINGS)} (and {' or '.join(COMPRESSIONS)} "
        f"behind it, to have it compressed), or name one: {', '.join(FORMATS)}."
    )


def named(target: str, *, now: float, job: str | None = None) -> str:
    """The target with `{time}`, `{date}` (UTC) and `{job}` filled in. Raises Misconfigured for any other word."""
    moment = datetime.fromtimestamp(now, UTC)
    words = {"time": moment.strftime("%Y%m%dT%H%M%SZ"), "date": moment.strftime("%Y-%m-%d"), "job": job}

    def fill(match: re.Match[str]) -> str:
        word = match[1]
        if word not in words:
            raise Misconfigured(
                f"{match[0]} in {target!r} stands for nothing. There are {{time}}, {{date}} and {{job}}."
            )
        value = words[word]
        if value is None:
            raise Misconfigured(f"{target!r} holds {{job}}, but no job is named. Add --job, or leave {{job}} out.")
        return re.sub(r"[^A-Za-z0-9._-]+", "-", value)

    return _PLACEHOLDER.sub(fill, target)


@asynccontextmanager
async def packed(stream: ByteStream, compression: str) -> AsyncIterator[ByteStream]:
    """A stream that compresses into `stream`; its end is written when the block ends without an error."""
    if not compression:
        yield stream
        return
    packer: gzip.GzipFile | zstandard.ZstdCompressionWriter
    if compression == "gzip":
        # No name and no time: equal records make equal files.
        packer = gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0)
    else:
        compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
        packer = compressor.stream_writer(stream, closefd=False)  # type: ignore[arg-type]  # it only writes
    yield packer
    await asyncio.to_thread(packer.close)

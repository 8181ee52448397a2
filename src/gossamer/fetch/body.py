"""Decodes Content-Encoding, piece by piece, never beyond the limit.

Lives here: gzip, deflate (with and without its zlib wrapper), br, zstd, and stacks of them. In http.py: reading.

Odd bodies are kept if possible, with a note:
- longer than the limit: cut. The limit applies to every layer of a stack, so a bomb cannot hide in an inner layer.
- the end is missing or damaged: the decoded part is kept ("truncated gzip", "damaged gzip").
- the label is wrong and the body is plain text: the body as sent ("not gzip"). Browsers show an error here; for a
  crawler the page is more useful. Any other body that does not decode is a BadResponse.
- an unknown encoding: left as it is ("unknown encoding"), as browsers do.
- more than five layers: BadResponse.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

import brotli  # type: ignore[import-untyped]
import msgspec
import zstandard

from ..errors import BadResponse

if TYPE_CHECKING:
    import zlib
else:  # the same API, more than twice as fast, but without types
    from zlib_ng import zlib_ng as zlib

ACCEPT_ENCODING = "gzip, deflate, br, zstd"
MAX_MEMBERS = 10_000  # consecutive gzip members or zstd frames; each costs time, even an empty one
MAX_LAYERS = 5
MAX_SILENCE = 1024 * 1024  # bytes of a streamed body that may arrive before anything is decoded

_STEP = 64 * 1024
_ZSTD_WINDOW = 8 * 1024 * 1024  # as in browsers; a frame may demand gigabytes
# Four bytes of zstd can expand to 128 KiB, and its decoder takes no output limit: 256 bytes yield 8 MiB at most.
_ZSTD_SLICE = 256
_ZSTD_FRAME = frozenset({0x28, *range(0x50, 0x60)})  # first byte of a frame, or of a skippable one
_ALIASES = {"x-gzip": "gzip", "identity": "", "none": ""}
_KNOWN = frozenset({"gzip", "deflate", "br", "zstd"})


class ReceivedBody(msgspec.Struct, frozen=True, kw_only=True):
    data: bytes
    cut: bool = False
    note: str = ""


class _Damaged(Exception):
    """The layer cannot decode any further."""


class _Layer(Protocol):
    name: str
    complete: bool  # the end marker of the stream was seen

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decode more data, in pieces of bounded size. Raises _Damaged."""


class _Inflate:
    """gzip with any number of members, and deflate in both forms."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.complete = False
        self._members = 1
        self._wbits = 31 if name == "gzip" else 0
        self._inner = zlib.decompressobj(31) if name == "gzip" else None
        self._head = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._inner is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, self._head = self._head, b""
            wrapped = data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
            self._wbits = 15 if wrapped else -15
            self._inner = zlib.decompressobj(self._wbits)
        elif self._head:
            data, self._head = self._head + data, b""
        while data:
            if self.complete:
                if self.name == "gzip" and data == b"\x1f":
                    self._head = data
                    return
                if self.name != "gzip" or data[:2] != b"\x1f\x8b":
                    return  # padding after the end is common and harmless
                self._members += 1
                if self._members > MAX_MEMBERS:
                    raise _Damaged
                self._inner = zlib.decompressobj(self._wbits)
                self.complete = False
            data = yield from self._member(data)

    def _member(self, data: bytes) -> Generator[bytes, None, bytes]:
        inner = self._inner
        assert inner is not None
        spare = inner.copy()  # a failing call loses what it had decoded; `_salvage` decodes it again with this copy
        start, given = data, 0
        try:
            while True:
                out = inner.decompress(data, _STEP)
                if out:
                    given += len(out)
                    yield out
                if inner.eof:
                    self.complete = True
                    return inner.unused_data
                data = inner.unconsumed_tail
                if not data and len(out) < _STEP:
                    return b""
        except zlib.error as error:
            yield from _salvage(spare, start, given)
            raise _Damaged from error


def _salvage(inner: zlib._Decompress, data: bytes, skip: int) -> Iterator[bytes]:
    """Decode `data` up to the damage, without the first `skip` bytes, which were already returned."""
    saved = bytearray()
    try:
        for at in range(min(len(data), 4 * _STEP)):
            saved += inner.decompress(data[at : at + 1], _STEP)
            if len(saved) > skip + 4 * _STEP:
                break
    except zlib.error:
        pass
    if len(saved) > skip:
        yield bytes(saved[skip:])


class _Brotli:
    name = "br"

    def __init__(self) -> None:
        self.complete = False
        self._inner = brotli.Decompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            while not self.complete:
                out = self._inner.process(data, output_buffer_limit=_STEP)
                data = b""
                if out:
                    yield out
                self.complete = self._inner.is_finished()
                if len(out) < _STEP:  # else there may be more, whatever can_accept_more_data() says
                    return
        except brotli.error as error:
            raise _Damaged from error


class _Zstd:
    name = "zstd"

    def __init__(self) -> None:
        self.complete = False
        self._members = 1
        self._context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        self._inner = self._context.decompressobj()

    def feed(self, data: bytes) -> Iterator[bytes]:
        at = 0
        try:
            while at < len(data):
                if self.complete:
                    if data[at] not in _ZSTD_FRAME:
                        return
                    self._members += 1
                    if self._members > MAX_MEMBERS:
                        raise _Damaged
                    self._inner = self._context.decompressobj()
                    self.complete = False
                piece = data[at : at + _ZSTD_SLICE]
                out = self._inner.decompress(piece)
                at += len(piece)
                if out:
                    yield out
                if self._inner.eof:
                    self.complete = True
                    at -= len(self._inner.unused_data)
        except zstandard.ZstdError as error:
            raise _Damaged from error


def layers_of(values: Iterable[str]) -> tuple[tuple[str, ...], str]:
    """The encodings that `Content-Encoding` lists, in the order they were applied, and a note on unknown ones.

    Raises BadResponse for more than MAX_LAYERS.
    """
    names: list[str] = []
    note = ""
    for value in values:
        if value.count(",") > 4 * MAX_LAYERS:
            raise _too_many()
        for part in value.split(","):
            name = part.strip().lower()
            name = _ALIASES.get(name, name)
            if name in _KNOWN:
                names.append(name)
            elif name:
                note = f"unknown encoding {name[:20]!a}"
    if len(names) > MAX_LAYERS:
        raise _too_many()
    return tuple(names), note


def _too_many() -> BadResponse:
    return BadResponse(f"The body has more than {MAX_LAYERS} layers of Content-Encoding; no honest server sends that.")


class BodyDecoder:
    """Takes the body as it arrives and decodes it, up to `limit` bytes."""

    def __init__(self, names: tuple[str, ...], limit: int, note: str = "") -> None:
        self._layers: list[_Layer] = [_layer(name) for name in reversed(names)]
        self._sizes = [0] * len(names)
        self._limit = limit
        self._note = note
        # A bytearray each: a list of small pieces takes many times the memory of their content.
        self._out = bytearray()
        self._raw: bytearray | None = bytearray()  # the raw body, until a piece of it was decoded
        self._raw_size = 0
        self._cut = False
        self._lost = ""  # the name of the layer that failed

    def feed(self, data: bytes) -> bool:
        """Decode more data. False when further reading is useless."""
        if self._raw is not None:
            self._raw += data
            self._raw_size += len(data)
        try:
            for piece in self._through(0, data):
                self._out += piece  # one by one: pieces before the damage are kept
        except _Damaged:
            # Damage right at the start: the label may be wrong, and then the whole raw body is needed.
            return self._raw is not None and self._raw_size <= self._limit
        if self._out:
            self._raw = None
        elif self._raw is not None and self._raw_size > self._limit:
            self._cut = True  # it decodes to nothing, however long
        return not self._cut

    def _through(self, depth: int, data: bytes) -> Iterator[bytes]:
        if depth == len(self._layers):
            yield data
            return
        if self._lost:
            raise _Damaged
        layer = self._layers[depth]
        try:
            for piece in layer.feed(data):
                room = self._limit - self._sizes[depth]
                self._sizes[depth] += len(piece)
                if len(piece) > room:
                    self._cut = True
                    if room:
                        yield from self._through(depth + 1, piece[:room])
                    return
                yield from self._through(depth + 1, piece)
                if self._cut:
                    return
        except _Damaged:
            self._lost = self._lost or layer.name
            raise

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Decode more data, for a caller that does not need the whole body and applies its own limit."""
        if self._raw is not None:
            self._raw += data
            self._raw_size += len(data)
        try:
            for piece in self._through(0, data):
                self._raw = None
                yield piece
        except _Damaged:
            return  # `finish` reports it
        self._cut = self._cut or (self._raw is not None and self._raw_size > MAX_SILENCE)

    @property
    def ended(self) -> bool:
        """Is further reading useless?"""
        return self._cut or (bool(self._lost) and (self._raw is None or self._raw_size > MAX_SILENCE))

    def finish(self) -> ReceivedBody:
        """The whole body. Raises BadResponse."""
        notes = [self._note] if self._note else []
        cut = self._cut
        if self._raw and not all(layer.complete for layer in self._layers):
            raw = bytes(self._raw)
            name = self._lost or self._layers[0].name
            if _is_text(raw):
                notes.append(f"not {name}")
                return ReceivedBody(data=raw[: self._limit], cut=len(raw) > self._limit, note=", ".join(notes))
            if self._lost and not self._out:
                raise BadResponse(f"The body is labelled {name} but is not; the server is broken.")
        if not cut and self._raw_size:
            if self._lost:
                notes.append(f"damaged {self._lost}")
                cut = True
            else:
                for layer in self._layers:
                    if not layer.complete:
                        notes.append(f"truncated {layer.name}")
                        cut = True
                        break
        return ReceivedBody(data=bytes(self._out), cut=cut, note=", ".join(notes))


def unpacked(data: bytes, limit: int) -> bytes | None:
    """Decode a complete, undamaged gzip body of one member within the limit; None for any other, which BodyDecoder must
    decode piece by piece."""
    inner = zlib.decompressobj(31)
    try:
        body = inner.decompress(data, limit + 1)
    except zlib.error:
        return None
    return body if inner.eof and not inner.unused_data and 0 < len(body) <= limit else None


def _layer(name: str) -> _Layer:
    if name == "br":
        return _Brotli()
    if name == "zstd":
        return _Zstd()
    return _Inflate(name)


_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def _is_text(data: bytes) -> bool:
    return _CONTROL.search(data[:1024]) is None

"""A result on its way to the store, and how it is written to a spool file. No I/O here.

The bytes are a zstd frame with a checksum: MessagePack of `Waiting`, or JSON for the few results with text that is not
UTF-8 (header bytes become lone surrogates, which MessagePack does not take). Nothing of them is ever executed.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import zstandard

from ..model.page import Headers, Snapshot
from ..model.record import PageResult

LEVEL = 1  # of compression: disk space limits how long the store may be unavailable
MAX_RESULT_BYTES = 1024 * 1024 * 1024  # a frame that claims to decompress to more is not ours


class Waiting(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A result on its way to the store; `snapshot` must go to the archive first."""

    result: PageResult
    snapshot: Snapshot | None = None


def pack(waiting: Waiting) -> bytes:
    if waiting.snapshot is not None and waiting.snapshot.packed:  # the body is there already, and is compressed here
        snapshot = msgspec.structs.replace(waiting.snapshot, packed=b"")
        waiting = Waiting(result=waiting.result, snapshot=snapshot)
    try:
        plain = _encoder.encode(waiting)
    except UnicodeEncodeError:
        plain = json.dumps(msgspec.to_builtins(waiting, enc_hook=_pairs)).encode()
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(plain)


def unpack(frame: bytes) -> Waiting:
    """Raises ValueError (msgspec's errors are) or ZstdError if it is damaged, or not ours."""
    size = zstandard.get_frame_parameters(frame).content_size
    if size > MAX_RESULT_BYTES:
        raise ValueError(f"it claims to unpack to {size} bytes")
    plain = zstandard.ZstdDecompressor().decompress(frame, max_output_size=MAX_RESULT_BYTES)
    if not plain.startswith(b"["):  # which begins a JSON array, and as MessagePack a number
        return _decoder.decode(plain)
    try:
        return msgspec.convert(json.loads(plain), Waiting, dec_hook=_headers)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _pairs(value: Any) -> Any:  # Any: msgspec's hook takes whatever it does not know
    if isinstance(value, Headers):
        return value.pairs
    raise NotImplementedError(f"cannot be spooled: {type(value).__name__}")


def _headers(kind: type, value: Any) -> Any:  # as above
    if kind is Headers:
        return Headers((str(name), str(text)) for name, text in value)
    raise NotImplementedError(f"cannot be read from a spool: {kind.__name__}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_pairs)
_decoder = msgspec.msgpack.Decoder(Waiting, dec_hook=_headers)

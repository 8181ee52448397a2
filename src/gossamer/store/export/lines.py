"""JSON Lines: one object per record, the item's own fields first, then `_meta` with everything else we know of it."""

from __future__ import annotations

from ...model.record import StoredRecord
from .places import ByteStream
from .rows import PIECE, json_of, meta_of


class LinesWriter:
    """Writes each record as it comes."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._piece = bytearray()
        self._held = 0
        self.count = 0

    def take(self, record: StoredRecord) -> None:
        line = dict(record.data)
        line.setdefault("_meta", meta_of(record))
        self._piece += json_of(line)
        self._piece += b"\n"
        self._held += 1
        if len(self._piece) >= PIECE:
            self._write()

    def finish(self) -> None:
        self._write()

    def close(self) -> None:
        """Nothing is held open."""

    def _write(self) -> None:
        if self._piece:
            self._stream.write(bytes(self._piece))
            self.count += self._held
            self._piece.clear()
            self._held = 0

"""A bucket of raw pages as one side of a move. Fulfils `ArchiveCarrier`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ...errors import Permanent
from ...store.carrying import Segment
from .archive import _KEY, ObjectArchive
from .faults import missing, unavailable


class ObjectSegments:
    """The objects of an open archive."""

    def __init__(self, archive: ObjectArchive) -> None:
        self._store = archive._store
        self._place = archive._place

    async def segments(self) -> AsyncIterator[Segment]:
        try:
            async for found in self._store.list():
                for one in found:
                    if _KEY.fullmatch(one["path"]):
                        yield Segment(one["path"], one["size"])
        except Exception as error:
            raise unavailable(error, self._place) from error

    async def read(self, name: str) -> bytes:
        try:
            answer = await self._store.get_async(name)
            return bytes(await answer.bytes_async())
        except Exception as error:
            if missing(error):
                raise Permanent(f"There is no object {name} in {self._place}: it was pruned meanwhile.") from error
            raise unavailable(error, self._place) from error

    async def write(self, name: str, content: bytes) -> None:
        try:
            await self._store.put_async(name, content, use_multipart=False)
        except Exception as error:
            raise unavailable(error, self._place) from error

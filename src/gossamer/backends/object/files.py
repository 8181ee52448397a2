"""Files in an object archive, each under the hash of its content: `<prefix>/files/<ab>/<sha256>`.

A file is uploaded in parts, in constant memory, and is either complete or absent. Two addresses with the same content
share one object. Pruning uses the object's modification time, which is when it was last stored; an object requested
after more than a day is copied onto itself through a second name, which renews its time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ...clock import Clock
from ...errors import Permanent
from ...store.contract import Segment
from ...store.page_format import missing_file, name_of_file
from .bucket import BucketAddress, missing, unavailable

if TYPE_CHECKING:
    from obstore.store import S3Store

PART_BYTES = 8 * 1024 * 1024
PARTS_AT_ONCE = 4
TOUCH_AFTER = timedelta(days=1)
_FILE = re.compile(r"files/[0-9a-f]{2}/([0-9a-f]{64})")


class ObjectFiles:
    """The part of `ObjectArchive` that stores files."""

    def __init__(self, store: S3Store, place: BucketAddress, clock: Clock) -> None:
        self._store = store
        self._place = place
        self._clock = clock

    async def put_file(self, path: Path, sha256: str) -> bool:
        if await self.has_file(sha256):
            return False
        try:
            await self._store.put_async(
                name_of_file(sha256), path, use_multipart=True, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
            )
        except Exception as error:
            raise unavailable(error, self._place) from error
        return True

    async def erase_file(self, sha256: str) -> bool:
        if not await self.has_file(sha256):
            return False
        try:
            await self._store.delete_async(name_of_file(sha256))
        except Exception as error:
            raise unavailable(error, self._place) from error
        return True

    async def has_file(self, sha256: str) -> bool:
        key = name_of_file(sha256)
        try:
            found = await self._store.head_async(key)
            if self._clock.now() - found["last_modified"].timestamp() > TOUCH_AFTER.total_seconds():
                await self._store.copy_async(key, f"{key}.used")
                await self._store.copy_async(f"{key}.used", key)
                await self._store.delete_async(f"{key}.used")
        except Exception as error:
            if missing(error):
                return False
            raise unavailable(error, self._place) from error
        return True

    async def read_file(self, sha256: str) -> AsyncIterator[bytes]:
        key = name_of_file(sha256)
        try:
            answer = await self._store.get_async(key)
            digest = hashlib.sha256()
            async for piece in answer.stream(min_chunk_size=1024 * 1024):
                digest.update(piece)
                yield bytes(piece)
        except Exception as error:
            if missing(error):
                raise missing_file(sha256, self._place) from error
            raise unavailable(error, self._place) from error
        if digest.hexdigest() != sha256:
            raise Permanent(f"The file {sha256} in {self._place} is not what its name says: the archive was changed.")

    async def files(self) -> AsyncIterator[Segment]:
        try:
            async for found in self._store.list("files"):
                for one in found:
                    name = _FILE.fullmatch(one["path"])
                    if name:
                        yield Segment(name[1], one["size"])
        except Exception as error:
            raise unavailable(error, self._place) from error

    async def _prune_files(self, cutoff: float) -> int:
        freed, before = 0, datetime.fromtimestamp(cutoff, UTC)
        async for found in self._store.list("files"):
            old = [one for one in found if _FILE.fullmatch(one["path"]) and one["last_modified"] < before]
            if old:
                await self._store.delete_async([one["path"] for one in old])
                freed += sum(one["size"] for one in old)
        return freed

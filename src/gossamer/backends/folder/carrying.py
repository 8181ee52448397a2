"""A folder of raw pages as one side of a move. Fulfils `ArchiveCarrier`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from ...errors import Permanent
from ...store.carrying import Segment
from .archive import _DAY, _sync_folder, _translate


class FolderSegments:
    """The files of the archive in `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def segments(self) -> AsyncIterator[Segment]:
        for day in await asyncio.to_thread(self._days):
            for segment in await asyncio.to_thread(self._of_day, day):
                yield segment

    async def read(self, name: str) -> bytes:
        try:
            return await asyncio.to_thread((self._root / name).read_bytes)
        except FileNotFoundError:
            raise Permanent(f"There is no file {name} in {self._root}: it was pruned meanwhile.") from None
        except OSError as error:
            raise _translate(error, self._root) from error

    async def write(self, name: str, content: bytes) -> None:
        try:
            await asyncio.to_thread(self._write, self._root / name, content)
        except OSError as error:
            raise _translate(error, self._root) from error

    def _days(self) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self._root) if _DAY.fullmatch(entry.name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _translate(error, self._root) from error

    def _of_day(self, day: str) -> list[Segment]:
        try:
            files = [entry for entry in os.scandir(self._root / day) if entry.name.endswith(".zst")]
            return sorted(Segment(f"{day}/{file.name}", file.stat().st_size) for file in files)
        except OSError as error:
            raise _translate(error, self._root) from error

    def _write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.draft")
        try:
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            with suppress(OSError):  # what is wrong is told by the error that is on its way
                draft.unlink()
            raise
        _sync_folder(path.parent)
        _sync_folder(self._root)

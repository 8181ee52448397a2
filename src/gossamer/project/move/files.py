"""Files on their way from one archive to another, in flat memory."""

from __future__ import annotations

import asyncio
import tempfile
from hashlib import sha256
from pathlib import Path

from ...errors import BadState
from ...store.contract import WholeArchive


async def copy_files(source: WholeArchive, target: WholeArchive) -> None:
    """Copy every file that the target lacks. Raises BadState for one that is damaged, BackendUnavailable."""
    there = {one.name async for one in target.files()}
    async for file in source.files():
        if file.name in there:
            continue
        with tempfile.TemporaryDirectory(prefix="gossamer-move-") as folder:
            path, digest = Path(folder) / file.name, sha256()
            with await asyncio.to_thread(open, path, "wb") as copy:
                async for piece in source.read_file(file.name):
                    digest.update(piece)
                    await asyncio.to_thread(copy.write, piece)
            if digest.hexdigest() != file.name:
                raise BadState(f"The file {file.name} in the archive is damaged. Delete it there, and move again.")
            await target.put_file(path, file.name)

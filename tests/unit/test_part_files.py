"""Files in progress: what is there at the end is what came since the file was last begun, whatever came between."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gossamer.store import part_files
from gossamer.store.part_files import Part, PartFolder, PartHead

VERSION = PartHead(etag='"one"')


async def tell(steps: Sequence[bytes | str], root: Path) -> None:
    """Take the steps with a part, and with the bytes that should be in it."""
    folder, wanted = PartFolder(root), b""
    part = folder.open("job", b"file")
    part.begin(VERSION)
    for step in steps:
        if isinstance(step, bytes):
            await part.write(step)
            wanted += step
        elif step == "flush":
            part.flush()
        elif step == "begin anew":
            part.restart()
            part.begin(VERSION)
            wanted = b""
        else:  # the process ends, and the next attempt goes on
            part.close()
            part = PartFolder(root).open("job", b"file")
            if part.head is None:
                part.begin(VERSION)
        assert part.size == len(wanted)
    finished = part.finish()
    assert (finished.path.read_bytes(), finished.size) == (wanted, len(wanted))
    assert (finished.sha256, finished.head) == (sha256(wanted).hexdigest(), wanted[:512])
    part.close()


@given(st.lists(st.binary(max_size=30) | st.sampled_from(["flush", "begin anew", "next attempt"]), max_size=12))
def test_a_file_is_what_came_since_it_was_last_begun(steps: list[bytes | str]) -> None:
    with tempfile.TemporaryDirectory() as root:
        asyncio.run(tell(steps, Path(root)))


async def test_a_long_file_is_written_as_it_comes(tmp_path: Path) -> None:
    part: Part = PartFolder(tmp_path).open("job", b"file")
    part.begin(VERSION)
    piece = bytes(part_files.BUFFER // 3)
    for number in range(1, 10):
        await part.write(piece)
        [file] = tmp_path.glob("*.part")
        assert number * len(piece) - file.stat().st_size < part_files.BUFFER
    part.close()

"""Files that survive a power cut."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def sync_folder(folder: Path) -> None:
    """Sync the folder itself: a new file survives a power cut only if its name has been written."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, mode: int = 0o700) -> None:
    """Create a folder, and those above it that are missing; their names survive a power cut. Raises OSError."""
    if not folder.is_dir():
        make_folder(folder.parent, 0o777)
        folder.mkdir(mode=mode, exist_ok=True)
        sync_folder(folder.parent)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that appears at `path` once all of it is on the disk. Other users cannot read it. Raises OSError."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.draft")
    try:
        with open(draft, "wb", opener=_private) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):  # the original error says what is wrong
            draft.unlink()
        raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)

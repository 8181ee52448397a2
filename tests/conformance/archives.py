"""The archives that must behave alike. A new backend joins by adding a line here."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from gossamer.backends.folder.archive import FolderArchive
from gossamer.backends.object.archive import open_object_archive
from gossamer.clock import Clock
from gossamer.store.contract import Archive

from ..services.seaweed import Seaweed

ArchiveOpener = Callable[[Clock, str], AbstractAsyncContextManager[Archive]]
"""Opens one place, again and again: by a clock and a writer's name. One call is one process."""


def folder_place(request: pytest.FixtureRequest) -> ArchiveOpener:
    folder: Path = request.getfixturevalue("tmp_path")
    place = folder / uuid.uuid4().hex
    return lambda clock, writer: FolderArchive(place, level=1, writer=writer, clock=clock)


def s3_place(request: pytest.FixtureRequest) -> ArchiveOpener:
    server: Seaweed = request.getfixturevalue("s3")
    address = server.address(f"conformance/{uuid.uuid4().hex}")
    return lambda clock, writer: open_object_archive(address, level=1, writer=writer, clock=clock)


ARCHIVES: dict[str, Callable[[pytest.FixtureRequest], ArchiveOpener]] = {"folder": folder_place, "s3": s3_place}
"""Each call gives a new, empty place."""

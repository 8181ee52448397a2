"""How far an export that goes on from the last one has come: the store's cursor, in a small file of the user's.

The file is replaced in one step, after the export is complete and on disk. A crash in between repeats what was told
last; it loses nothing. It also holds the filters: a cursor that was made with others would skip what they left out.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ...errors import Misconfigured
from .places import FilePlace, Place, trouble_with, write_whole

LONGEST = 64 * 1024  # bytes of such a file


class Progress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an export has told of which store (`records`), with which filters, up to which cursor."""

    cursor: str
    records: str
    filters: dict[str, str] = {}
    told_at: str = ""


class ProgressFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Progress | None:
        """What was kept; None before the first export. Raises Misconfigured."""
        try:
            with self._path.open("rb") as file:
                content = file.read(LONGEST + 1)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise Misconfigured(
                f"The cursor in {str(self._path)!r} cannot be read ({error}). Name another file."
            ) from error
        try:
            return msgspec.json.decode(content, type=Progress)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Misconfigured(
                f"{self._path} holds no cursor of an export. Name another file, or delete it to begin with everything."
            ) from error

    def keep(self, progress: Progress) -> None:
        """Replace the file. Raises Misconfigured, BackendUnavailable."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, msgspec.json.format(msgspec.json.encode(progress), indent=2) + b"\n")
        except OSError as error:
            raise trouble_with(error, self._path) from error

    def check_place(self, place: Place) -> None:
        """What is exported goes elsewhere than the cursor. Raises Misconfigured."""
        if isinstance(place, FilePlace) and place.is_at(self._path):
            raise Misconfigured(
                f"{place} is to hold the export and the cursor. Name another one for the cursor: --since-cursor FILE."
            )

    def check(self, kept: Progress, now: Progress) -> None:
        """An export goes on only where the last one was. Raises Misconfigured."""
        if kept.records != now.records:
            raise Misconfigured(
                f"The cursor in {self._path} is of the records in {kept.records}, not of {now.records}. "
                f"Name another file for these."
            )
        if kept.filters != now.filters:
            said = " ".join(f"--{name} {value}" for name, value in kept.filters.items()) or "no filter"
            raise Misconfigured(
                f"The cursor in {self._path} was made with {said}. Export with the same filters, or name another file."
            )

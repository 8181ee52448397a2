"""The files that spiders asked for: joined with the records that name them, and written into a folder."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...errors import BackendUnavailable, InvalidUrl, Misconfigured, Permanent
from ...model.file import File, harmless_name, is_file, is_hash, safe_file_name
from ...model.item import type_name
from ...model.record import ItemSchema, RecordIdentity, StoredRecord
from ...model.url import UrlRules, parse_url, site_of
from ...store.contract import Archive, RecordQuery, Records

CHUNK = 256  # records joined at once
MOST_HOPS = 10  # redirects of a file to follow
_DEEPEST = 20
FILE_TYPE = type_name(File)


class FileFolder:
    """A folder for exported files, each written once, under a name that is safe on any system. An ending that something
    may execute gets `.bin` behind it, unless `keep_endings`. `written` counts the files of this export; `lost` are
    those that are no longer in the archive."""

    def __init__(self, folder: Path, archive: Archive, *, keep_endings: bool = False) -> None:
        self._folder = folder
        self._keep_endings = keep_endings
        self._archive = archive
        self.written = 0
        self.lost: dict[str, str] = {}  # hash -> why

    async def open(self) -> None:
        """Raises Misconfigured."""
        try:
            await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)
        except OSError as error:
            raise Misconfigured(f"--files {self._folder}: {error.strerror}. Name a folder that can be made.") from error

    async def write(self, sha256: str, name: str, size: int | None) -> str | None:
        """The name of the file in the folder; None if it is no longer in the archive."""
        if not is_hash(sha256):
            return None
        stem, dot, ending = safe_file_name(name).rpartition(".")
        own = f"{stem}-{sha256[:16]}.{ending}" if dot else f"{ending}-{sha256[:16]}"
        own = own if self._keep_endings else harmless_name(own)
        path = self._folder / own
        if await asyncio.to_thread(_is_there, path, size):
            return own
        if sha256 in self.lost:
            return None
        draft = path.with_name(f".{sha256[:16]}-{secrets.token_hex(4)}.part")
        try:
            try:
                with await asyncio.to_thread(open, draft, "xb") as file:
                    async for piece in self._archive.read_file(sha256):
                        await asyncio.to_thread(file.write, piece)
                draft.replace(path)  # a symbolic link in its place is replaced, not followed
            finally:
                draft.unlink(missing_ok=True)
        except Permanent as error:
            self.lost[sha256] = str(error)
            return None
        except OSError as error:
            raise BackendUnavailable(f"{path} cannot be written: {error.strerror}. Free some space.") from error
        self.written += 1
        return own


class JoinedRecords:
    """Records as exports read them: where an item names a file, the known facts about the file are added to its
    address.

    With a folder, the files are written there, and `path` is their name in it.
    """

    def __init__(self, records: Records, rules: UrlRules, folder: FileFolder | None = None) -> None:
        self._records = records
        self._rules = rules
        self._folder = folder

    async def schemas(self, type: str | None = None) -> list[tuple[ItemSchema, float]]:
        return await self._records.schemas(type)

    async def records(self, query: RecordQuery) -> AsyncIterator[StoredRecord]:
        found = self._records.records(query)
        if not await self._records.count(RecordQuery(type=FILE_TYPE)):
            async for record in found:
                yield record
            return
        chunk: list[StoredRecord] = []
        async for record in found:
            chunk.append(record)
            if len(chunk) == CHUNK:
                for joined in await self._joined(chunk):
                    yield joined
                chunk = []
        for joined in await self._joined(chunk):
            yield joined

    async def _joined(self, chunk: Sequence[StoredRecord]) -> Sequence[StoredRecord]:
        places = [place for record in chunk for place in _named_files(record)]
        known = await self._known({place["url"] for place in places})
        for place in places:
            place.update({**known.get(place["url"], {}), **place})
            if self._folder is not None and place.get("sha256"):
                path = await self._folder.write(place["sha256"], place.get("name", ""), place.get("size"))
                if path is not None:
                    place["path"] = path
        return chunk

    async def _known(self, urls: set[str]) -> dict[str, dict[str, Any]]:
        """The known facts about the files at these addresses, and at the addresses they redirect to."""
        known: dict[str, dict[str, Any]] = {}
        waiting = {url: url for url in urls}  # the address in an item -> where to look for it
        for _ in range(MOST_HOPS):
            identities = {url: one for url, at in waiting.items() if (one := self._identity(at)) is not None}
            if not identities:
                break
            latest = await self._records.latest(list(set(identities.values())))
            waiting = {}
            for url, identity in identities.items():
                data = msgspec.json.decode(latest[identity], type=dict[str, Any]) if identity in latest else None
                if data is None:
                    continue
                if data.get("sha256"):
                    known[url] = {name: data[name] for name in ("sha256", "size", "type", "name") if name in data}
                elif data.get("location"):
                    waiting[url] = data["location"]
        return known

    def _identity(self, url: str) -> RecordIdentity | None:
        try:
            href = parse_url(url)
        except InvalidUrl:
            return None
        return FILE_TYPE, site_of(href), self._rules.canonical(href)


def _named_files(record: StoredRecord) -> Iterator[dict[str, Any]]:
    """The files in a record. Facts are trusted only for the record's own file; anything else that an item says about a
    file may come from a page."""
    if record.type == FILE_TYPE:
        yield record.data
        return
    for place in _files_in(record.data):
        for name in set(place) - {"kind", "url"}:
            del place[name]
        yield place


def _files_in(data: Any, level: int = 0) -> Iterator[dict[str, Any]]:  # Any: whatever an item held
    if isinstance(data, dict):
        if is_file(data):
            yield data
        elif level < _DEEPEST:
            for value in data.values():
                yield from _files_in(value, level + 1)
    elif isinstance(data, list) and level < _DEEPEST:
        for value in data:
            yield from _files_in(value, level + 1)


def _is_there(path: Path, size: int | None) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return os.path.isfile(path) and not os.path.islink(path) and (size is None or found.st_size == size)

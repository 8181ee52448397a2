"""An object store as a destination for exports; fulfils `store.export.Place`.

    s3://bucket/folder/items.parquet?endpoint=...&region=...     options and keys as for an archive (bucket.py)

The object is uploaded in parts while it is made, and appears only when the last one has arrived; until then the old one
stays. A part is 16 MiB and an object has at most 10,000 of them, so an export may have 156 GiB.

How it fails: `Misconfigured` (address, bucket, key), `BackendUnavailable`. How it recovers: an incomplete upload is
aborted and leaves nothing in the bucket.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import BackendUnavailable, GossamerError, Misconfigured, MissingExtra
from ...store.export.destination import ByteStream
from .bucket import BucketAddress, connect, demand_keys, parse_address, refused_at_start

if TYPE_CHECKING:
    from obstore.store import S3Store

PART_BYTES = 16 * 1024 * 1024
PARTS_ON_THE_WAY = 2


class ObjectDestination:
    """One object. `address` is s3://bucket/key?options. Raises Misconfigured, MissingExtra."""

    def __init__(self, address: str, *, part_bytes: int = PART_BYTES) -> None:
        self._part_bytes = part_bytes
        try:
            place = parse_address(address, os.environ)
            demand_keys(place, os.environ)
        except Misconfigured as error:
            raise Misconfigured(_of_output(str(error))) from error
        if not place.prefix or address.partition("?")[0].endswith("/"):
            raise Misconfigured(f"-o {place} names no file. Write s3://{place.bucket}/folder/items.jsonl.")
        self._place = place
        folder, _, self._name = place.prefix.rpartition("/")
        self._store = _opened(msgspec.structs.replace(place, prefix=folder))

    def __str__(self) -> str:
        return str(self._place)

    @property
    def name(self) -> str:
        return self._name

    def probe(self) -> None:
        # Start an upload, which needs every permission that the export will need, and abort it before its first part.
        try:
            self._store.put(self._name, _never(), use_multipart=True)
        except _Enough:
            pass
        except Exception as error:
            raise self._trouble(error) from error

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[ByteStream]:
        try:
            from obstore import open_writer

            upload = _Upload(
                open_writer(self._store, self._name, buffer_size=self._part_bytes, max_concurrency=PARTS_ON_THE_WAY),
                self,
            )
        except Exception as error:
            raise self._trouble(error) from error
        try:
            yield upload
        except BaseException as error:
            await asyncio.to_thread(upload.abort, error)
            raise
        await asyncio.to_thread(upload.complete)

    def _trouble(self, error: Exception) -> GossamerError:
        refusal = refused_at_start(error, self._place)
        return type(refusal)(_of_output(str(refusal)))


class _Upload:
    """The object while it is uploaded."""

    def __init__(self, writer: Any, place: ObjectDestination) -> None:  # Any: obstore's class is not there at run time
        self._writer = writer
        self._place = place
        # A write that a cancelled export left in its thread must finish before the upload is aborted.
        self._lock = threading.Lock()
        self._over = False

    def write(self, data: bytes, /) -> None:
        with self._lock:
            if self._over:
                raise BackendUnavailable(f"The export to {self._place} has ended already.")
            try:
                self._writer.write(data)
            except Exception as error:
                raise self._place._trouble(error) from error

    def flush(self) -> None:
        """Does nothing: parts are sent when they are full, the last one at the end."""

    def complete(self) -> None:
        with self._lock:
            self._over = True
            try:
                self._writer.close()
            except Exception as error:
                raise self._place._trouble(error) from error

    def abort(self, why: BaseException) -> None:
        """Abort the upload. An error from the service no longer matters: the export has failed already.

        Waits for parts in flight: one that arrives after the abort would remain as an unfinished upload.
        """
        with self._lock:
            self._over = True
            with suppress(Exception):  # what did not arrive need not be taken back
                self._writer.flush()
            try:
                self._writer.__exit__(type(why), why, why.__traceback__)
            except Exception as error:
                why.add_note(f"The upload could not be aborted: {error}")


class _Enough(Exception):
    """The service has started an upload; that is all the check needs."""


def _never() -> Iterator[bytes]:
    raise _Enough
    yield b""


def _opened(place: BucketAddress) -> S3Store:
    try:
        return connect(place)
    except MissingExtra as error:
        raise MissingExtra("An export to S3 needs one more package: pip install 'gossamer[fleet]'.") from error
    except (Misconfigured, BackendUnavailable) as error:
        raise type(error)(_of_output(str(error))) from error


def _of_output(message: str) -> str:
    """A message about an archive, reworded for an export."""
    for of_archive, of_export in (
        (" Check the endpoint and that its service runs; store.keep_pages = false in gossamer.toml crawls without an "
         "archive.", " Check the endpoint and that its service runs; the records are safe in the store."),
        ("correct archive = in gossamer.toml", "correct the address"),
        ("Correct archive = in gossamer.toml", "Correct the address"),
        ("archive = ", "-o "),
        ("archive: ", "-o: "),
        ("The archive ", ""),
    ):  # fmt: skip
        message = message.replace(of_archive, of_export)
    return message

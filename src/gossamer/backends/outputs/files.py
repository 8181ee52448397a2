"""A folder or a bucket as the target of an output: files of changes, by type of item and day of the change.

    type=Product/day=2027-01-31/000000012-1893456000000.parquet      rows; a batch has one file per type and day
    _batches/000000012-1893456000000.json                            the files of a batch with the types of their
                                                                     columns, written when all are there

A row has the columns of the output, and always `_type`, `_site`, `_key`, `_version`, `_last_changed` and `_deleted`:
of a record, the row with the highest `_version` counts. Files appear whole or not at all, and never change, except when
records are erased. The name has the number of the batch, the fence of the process that wrote it, and a letter
for each time it was halved.
How it fails: Misconfigured, BackendUnavailable, BatchRefused. How it recovers:
a repeated batch replaces the files of the same name, or adds rows that are there already.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import msgspec
import zstandard

from ...errors import BackendUnavailable, BatchRefused, GossamerError, LeaseLost, Misconfigured
from ...model.record import RecordIdentity
from ...store.export.destination import write_whole
from ...store.export.parquet import arrow
from ...store.outputs.contract import BYTES_AT_ONCE, DELETE, ERASE, Batch, Change, Refused
from ...store.outputs.plan import Plan, moment
from .kinds import EXACT, LARGEST, OWN_KINDS, Cell, Kind, cell, declared_kinds, kind_of_value

FORMATS = ("parquet", "jsonl")
ROWS_AT_ONCE = 50_000
MOST_COLUMNS = 2000  # of a Parquet file
FENCE = "_fence.json"
BATCHES = "_batches"
_ENDINGS = {"parquet": ".parquet", "jsonl": ".jsonl.zst"}
ALWAYS: dict[str, Kind] = {
    **{name: OWN_KINDS[name] for name in ("_type", "_site", "_key", "_version", "_last_changed")}, "_deleted": "bool",
}  # fmt: skip


class Files(Protocol):
    """Where files are. Errors are translated."""

    place: str

    async def put(self, name: str, content: bytes) -> None:
        """Whole and durably, or not at all; a file of that name is replaced."""
        ...

    async def get(self, name: str) -> bytes | None: ...

    async def names(self, under: str) -> list[str]: ...

    async def delete(self, name: str) -> None: ...


class FileOutput:
    """Fulfils `Output`."""

    rows_at_once = ROWS_AT_ONCE
    bytes_at_once = BYTES_AT_ONCE
    mirrors = True
    numbered = True

    def __init__(self, files: Files, plan: Plan, format: str) -> None:
        """Raises Misconfigured, MissingExtra."""
        if format not in FORMATS:
            raise Misconfigured(f"format={format[:40]!r} is unknown. There are {' and '.join(FORMATS)}.")
        if format == "parquet":
            arrow()
        self._files = files
        self._plan = plan
        self._format = format

    async def close(self) -> None:
        """Nothing is open between two batches."""

    async def count(self) -> int | None:
        return None

    async def check(self) -> str:
        await self._files.put(f"{BATCHES}/check", b"")
        await self._files.delete(f"{BATCHES}/check")
        return f"{self._files.place} can be written; records are added as {self._format}."

    async def write(self, batch: Batch) -> list[Refused]:
        await self._demand_fence(batch.fence)
        erased = frozenset(one.identity for one in batch.changes if one.kind == ERASE)
        if erased:
            await self._erase(erased)
        kinds = {**declared_kinds(batch.schemas, self._plan.table.columns), **ALWAYS}
        parts: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for change in batch.changes:
            if change.kind != ERASE:
                parts.setdefault((change.identity[0], moment(change.at)[:10]), []).append(_row(change))
        mark, told = f"{batch.number:09}-{batch.fence}{batch.part}", []
        packed: dict[str, bytes] = {}
        for (type, day), rows in sorted(parts.items()):
            name = f"type={quote(type, safe='')}/day={day}/{mark}{_ENDINGS[self._format]}"
            packed[name], columns = await asyncio.to_thread(_packed, self._format, rows, kinds)
            told.append({"file": name, "rows": len(rows), "bytes": len(packed[name]), "columns": columns})
        for name, content in packed.items():
            await self._files.put(name, content)
        if told:
            note = {"batch": batch.number, "format": self._format, "files": told}
            await self._files.put(f"{BATCHES}/{mark}.json", msgspec.json.encode(note))
        return []

    async def _demand_fence(self, fence: int) -> None:
        known = await self._files.get(FENCE)
        highest = int(msgspec.json.decode(known)["fence"]) if known else 0
        if highest > fence:
            raise LeaseLost(f"Another process writes to {self._files.place} now.")
        if highest < fence:
            await self._files.put(FENCE, msgspec.json.encode({"fence": fence}))

    async def _erase(self, erased: frozenset[RecordIdentity]) -> None:
        """Rewrite the files that hold rows of these records."""
        for type in sorted({type for type, _, _ in erased}):
            for name in await self._files.names(f"type={quote(type, safe='')}/"):
                content = await self._files.get(name)
                if content is None:
                    continue
                left = await asyncio.to_thread(_without, name, content, erased)
                if left is None:
                    continue
                if left:
                    await self._files.put(name, left)
                else:
                    await self._files.delete(name)


def _row(change: Change) -> dict[str, Any]:
    type, site, key = change.identity
    own = {
        "_type": type, "_site": site, "_key": key, "_version": change.version, "_last_changed": moment(change.at),
        "_deleted": change.kind == DELETE,
    }  # fmt: skip
    return {**change.row, **own}


def _packed(format: str, rows: Sequence[dict[str, Any]], kinds: Mapping[str, Kind]) -> tuple[bytes, dict[str, Kind]]:
    """A file, and its columns with their kinds. They are as declared, unless a value is something else."""
    names = list(dict.fromkeys([*kinds, *(name for row in rows for name in row)]))
    if len(names) > MOST_COLUMNS and len(rows) > 1:  # the fields have names from pages: fewer rows have fewer of them
        raise BatchRefused(f"A file has at most {MOST_COLUMNS} columns.")
    try:
        columns = {name: _column([row.get(name) for row in rows], kinds.get(name)) for name in names}
        pack = _parquet if format == "parquet" else _lines
        return pack(rows, columns), {name: kind for name, (kind, _) in columns.items()}
    except MemoryError as error:
        raise BatchRefused("There is no memory for such a file.", too_large=True) from error
    except (ArithmeticError, ValueError) as error:
        raise BatchRefused(str(error)) from error


def _column(values: Sequence[Any], declared: Kind | None) -> tuple[Kind, list[Cell]]:
    if declared is not None:
        with suppress(ValueError, ArithmeticError):
            cells = [cell(value, declared) for value in values]
            if declared != "numeric" or all(one is None or abs(Decimal(one)) < LARGEST for one in cells):
                return declared, cells
    cells = [cell(value, _seen_kind(value)) for value in values]
    return _kind_of_cells(cells), cells


def _seen_kind(value: Any) -> Kind:
    kind = kind_of_value(value)
    return "number" if kind == "numeric" else kind  # each file finds a type for its columns


def _lines(rows: Sequence[dict[str, Any]], columns: Mapping[str, tuple[Kind, list[Cell]]]) -> bytes:
    told = [
        {name: _plain(columns[name][1][place], value, columns[name][0]) for name, value in row.items()}
        for place, row in enumerate(rows)
    ]
    text = b"".join(msgspec.json.encode(row) + b"\n" for row in told)
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(text)


def _plain(written: Cell, value: Any, kind: Kind) -> Any:
    """Texts, numbers and times as in a table; what JSON has itself as it is."""
    if kind == "bool" and written is not None:
        return written == "true"
    return value if kind == "json" or isinstance(value, bool | list | dict) else written


def _parquet(rows: Sequence[dict[str, Any]], columns: Mapping[str, tuple[Kind, list[Cell]]]) -> bytes:
    pa = arrow()
    fields = [pa.field(name, _arrow_type(pa, kind)) for name, (kind, _) in columns.items()]
    arrays = [
        pa.array([_arrow_value(one, kind) for one in cells], field.type)
        for field, (kind, cells) in zip(fields, columns.values(), strict=True)
    ]
    out = io.BytesIO()
    pa.parquet.write_table(pa.table(arrays, pa.schema(fields)), out, compression="zstd")
    return out.getvalue()


def _kind_of_cells(values: Sequence[Cell]) -> Kind:
    told = [value for value in values if value is not None]
    if not told or not all(isinstance(value, int | float) for value in told):
        return "text"
    if any(isinstance(value, int) and abs(value) >= 10**300 for value in told):  # beyond floating point
        return "text"
    large = any(isinstance(value, int) and EXACT < abs(value) < 2**63 for value in told)
    return "int" if large and all(isinstance(value, int) and abs(value) < 2**63 for value in told) else "float"


def _arrow_type(pa: Any, kind: Kind) -> Any:
    return {
        "int": pa.int64(), "float": pa.float64(), "numeric": pa.decimal128(38, 9), "bool": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"), "date": pa.date32(),
    }.get(kind, pa.string())  # fmt: skip


def _arrow_value(value: Cell, kind: Kind) -> Any:
    if value is None:
        return None
    match kind:
        case "numeric":
            return round(Decimal(str(value)), 9)
        case "bool":
            return value == "true"
        case "time":
            return datetime.fromisoformat(str(value)).astimezone(UTC)
        case "date":
            return date.fromisoformat(str(value))
        case "int":
            return value
        case "float":
            return float(value)
    return str(value)


def _without(name: str, content: bytes, erased: frozenset[RecordIdentity]) -> bytes | None:
    """The file without these records; None if it has none of them, empty if it has no others."""
    if name.endswith(_ENDINGS["parquet"]):
        pa = arrow()
        table = pa.parquet.read_table(io.BytesIO(content))
        identities = zip(*(table[column].to_pylist() for column in ("_type", "_site", "_key")), strict=True)
        kept = [number for number, identity in enumerate(identities) if identity not in erased]
        if len(kept) == len(table):
            return None
        out = io.BytesIO()
        pa.parquet.write_table(table.take(kept), out, compression="zstd")
        return out.getvalue() if kept else b""
    text = zstandard.ZstdDecompressor().stream_reader(content).read()
    lines = text.splitlines(keepends=True)
    rows = [msgspec.json.decode(line) for line in lines]
    left = [
        line for line, row in zip(lines, rows, strict=True) if (row["_type"], row["_site"], row["_key"]) not in erased
    ]
    if len(left) == len(lines):
        return None
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(b"".join(left)) if left else b""


class FolderFiles:
    """Files in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.place = str(folder)
        self._folder = folder

    async def put(self, name: str, content: bytes) -> None:
        def work() -> None:
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)

        try:
            await asyncio.to_thread(work)
        except OSError as error:
            raise self._translated(error) from error

    async def get(self, name: str) -> bytes | None:
        try:
            return await asyncio.to_thread((self._folder / name).read_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._translated(error) from error

    async def names(self, under: str) -> list[str]:
        def work() -> list[str]:
            found = sorted((self._folder / under).rglob("*"))
            files = [path for path in found if path.is_file() and not path.name.startswith(".")]
            return [str(path.relative_to(self._folder)) for path in files]

        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise self._translated(error) from error

    async def delete(self, name: str) -> None:
        try:
            await asyncio.to_thread((self._folder / name).unlink, missing_ok=True)
        except OSError as error:
            raise self._translated(error) from error

    def _translated(self, error: OSError) -> GossamerError:
        kind = Misconfigured if isinstance(error, PermissionError | NotADirectoryError) else BackendUnavailable
        return kind(f"{self.place} cannot be written ({error.strerror}). Make room, or name another folder.")


class BucketFiles:
    """Objects in a bucket; `address` as for an archive on S3."""

    def __init__(self, address: str) -> None:
        import os

        from ..object.bucket import connect, demand_keys, parse_address

        place = parse_address(address, os.environ)
        demand_keys(place, os.environ)
        self._bucket = place
        self.place = str(place)
        self._store = connect(place)

    async def put(self, name: str, content: bytes) -> None:
        try:
            await self._store.put_async(name, content)
        except Exception as error:
            raise self._translated(error) from error

    async def get(self, name: str) -> bytes | None:
        try:
            found = await self._store.get_async(name)
            return bytes(await found.bytes_async())
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._translated(error) from error

    async def names(self, under: str) -> list[str]:
        found: list[str] = []
        try:
            async for some in self._store.list(prefix=under.rstrip("/")):
                found += [str(one["path"]) for one in some]
        except Exception as error:
            raise self._translated(error) from error
        return sorted(name for name in found if name.startswith(under))

    async def delete(self, name: str) -> None:
        try:
            await self._store.delete_async(name)
        except FileNotFoundError:
            pass
        except Exception as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> GossamerError:
        from ..object.bucket import refused_at_start

        found = refused_at_start(error, self._bucket)
        return type(found)(str(found).replace("archive", "output"))

"""The disks of a project: what each store takes, how fast it grows, and when the disk is full.

What it does: the leading scheduler measures the stores each time it carries out the retention (retention.py);
the view compares the newest sample with one of up to two weeks before. How it fails: BackendUnavailable, OSError of a
folder that cannot be read. Only what lies on this machine has a free share.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...backends.addresses import is_local, local_path, place_of
from ...clock import iso_time
from ...model.disk import DISK, DiskSample
from ...model.shelf import ShelfKind, Trim
from ...units import distance, size
from ..access.keys import METRICS, Caller
from ..open import Project
from ..operation import Operation

SAMPLES_KEPT = 500
LOOKS_BACK = 14 * 86_400.0  # seconds over which growth is measured
LEAST = 3600.0  # seconds between two samples from which a growth can be told
DAY = 86_400.0


class NoDiskFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class DiskView(msgspec.Struct, frozen=True, kw_only=True):
    """One store. Times are ISO 8601 in UTC."""

    store: str  # state, records, archive, spool
    place: str
    bytes: int | None  # None: it is on a server, which knows
    free: int | None  # bytes on its disk; None: not on this machine
    total: int | None
    per_day: float | None  # bytes it grew by; None: not known yet
    full_at: str | None  # when its disk is full, if all stores on it go on as in the last two weeks
    measured_at: str | None


def kind_of(project: Project) -> ShelfKind[DiskSample]:
    return ShelfKind(project.state.shelf, DISK, DiskSample)


async def measure(project: Project) -> DiskSample:
    """Measure every store, and keep the sample. The archive lists every name: not more often than every few hours."""
    settings = project.settings
    found = {role: _bytes_at(local_path(settings, role)) for role in ("state", "records") if is_local(settings, role)}
    found["archive"] = await project.archive.size()
    found["spool"] = _bytes_at(settings.root / settings.store.spool)
    sample, kind = DiskSample(at=project.clock.now(), bytes=found), kind_of(project)
    put = kind.put(f"{sample.at:017.6f}", sample, at=sample.at)
    await project.state.shelf.commit([put, Trim(kind=DISK, keep=SAMPLES_KEPT)])
    return sample


async def show_disk(project: Project, caller: Caller, asked: NoDiskFilter) -> list[DiskView]:
    """Every store, the largest first."""
    return await disks(project)


async def disks(project: Project) -> list[DiskView]:
    now, settings = project.clock.now(), project.settings
    samples = await kind_of(project).timed(after=now - LOOKS_BACK, limit=SAMPLES_KEPT)
    newest = samples[-1] if samples else None
    places = {role: local_path(settings, role) for role in ("state", "records", "archive") if is_local(settings, role)}
    places["spool"] = settings.root / settings.store.spool
    grows = {role: growth(samples, role) for role in ("state", "records", "archive", "spool")}
    views = []
    for role in grows:
        path = places.get(role)
        known = newest.bytes.get(role) if newest is not None else None
        disk = _disk_of(path) if path is not None else None
        together = [grows[one] or 0.0 for one, other in places.items() if path is not None and _same(path, other)]
        ends = None if disk is None else full_at(now, disk.free, sum(together))
        live = _bytes_at(path) if path is not None and role != "archive" else known
        views.append(
            DiskView(
                store=role,
                place=str(path) if path is not None else place_of(settings, role),
                bytes=live,
                free=disk.free if disk is not None else None,
                total=disk.total if disk is not None else None,
                per_day=grows[role],
                full_at=iso_time(ends) if ends is not None else None,
                measured_at=iso_time(newest.at) if newest is not None else None,
            )
        )
    return sorted(views, key=lambda one: -(one.bytes or 0))


def growth(samples: Sequence[DiskSample], role: str) -> float | None:
    """Bytes a day, from the oldest to the newest sample that has the store; None: too little is known."""
    known = [one for one in samples if role in one.bytes]
    if len(known) < 2 or known[-1].at - known[0].at < LEAST:
        return None
    return (known[-1].bytes[role] - known[0].bytes[role]) / (known[-1].at - known[0].at) * DAY


def full_at(now: float, free: int, per_day: float) -> float | None:
    """When nothing is free; None if it does not grow, or not within ten years."""
    days = free / per_day if per_day > 0 else 3651.0
    return now + days * DAY if days <= 3650 else None


def disk_words(one: DiskView, now: float) -> str:
    """For an alert: how little is left, and until when it lasts."""
    free, total = one.free or 0, one.total or 1
    left = f"{size(free)} of {size(total)} are free on the disk of {one.store} ({free / total:.0%})"
    return f"{left}; at this pace it is full {distance(one.full_at, now)}." if one.full_at else f"{left}."


def _disk_of(path: Path) -> shutil._ntuple_diskusage | None:
    there = next((one for one in (path, *path.parents) if one.exists()), None)
    return shutil.disk_usage(there) if there is not None else None


def _same(one: Path, other: Path) -> bool:
    """On the same disk."""
    found = [next((place for place in (path, *path.parents) if place.exists()), Path("/")) for path in (one, other)]
    return os.stat(found[0]).st_dev == os.stat(found[1]).st_dev


def _bytes_at(path: Path) -> int:
    """Of a file with its journal, or of a folder."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*") if file.is_file())


OPERATIONS = (
    Operation(
        verb="disk", summary="What each store takes, how fast it grows, and when its disk is full",
        columns=("store", "bytes", "per_day", "free", "full_at", "place"),
        method="GET", path="/api/v1/disk", scope=METRICS, ask=NoDiskFilter, gives=list[DiskView], run=show_disk,
        nothing="Nothing is stored yet.",
    ),
)  # fmt: skip

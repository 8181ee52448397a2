"""Checks of this machine (Python, packages, SQLite, clock, DNS, open files, disk space) and of the project's files.
health.py runs them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import resource
import shutil
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ...settings import Settings
from ...units import moment, size
from ..upkeep.health_values import DoctorFinding, Level, ok

SQLITE_NEEDED = (3, 37, 0)  # STRICT tables
PYTHON_NEEDED = (3, 11)
DISK_WANTED = 1 << 30
DISK_NEEDED = 50 << 20
SPARE_FILES = 64  # state, records, archive, logs, the interpreter's own
DNS_PATIENCE = timedelta(seconds=3)
DNS_NAME = "example.com"
BORN = datetime(2025, 1, 1, tzinfo=UTC)  # a clock that shows an earlier time is wrong


def python() -> DoctorFinding:
    version = sys.version.split()[0]
    if sys.version_info < PYTHON_NEEDED:
        return DoctorFinding(Level.FAIL, "python", version, "Install Python 3.11 or newer.")
    return ok("python", version)


def packages() -> DoctorFinding:
    try:
        wanted = importlib.metadata.requires("gossamer") or []
    except importlib.metadata.PackageNotFoundError:
        return DoctorFinding(
            Level.WARN, "packages", "gossamer runs from its source and is not installed", "pip install -e ."
        )
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in wanted if ";" not in line]
    missing = []
    for name in names:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return DoctorFinding(
            Level.FAIL,
            "packages",
            f"missing: {', '.join(missing)}",
            "Install Gossamer again: its dependencies come with it.",
        )
    return ok("packages", f"gossamer {importlib.metadata.version('gossamer')} and the {len(names)} it needs")


def sqlite() -> DoctorFinding:
    if sqlite3.sqlite_version_info < SQLITE_NEEDED:
        needed = ".".join(map(str, SQLITE_NEEDED[:2]))
        return DoctorFinding(
            Level.FAIL,
            "sqlite",
            f"{sqlite3.sqlite_version} is too old",
            f"Use a Python that comes with SQLite {needed}.",
        )
    return ok("sqlite", sqlite3.sqlite_version)


def uvloop() -> DoctorFinding:
    if importlib.util.find_spec("uvloop") is None:
        return DoctorFinding(Level.WARN, "uvloop", "not installed: crawls are slower without it", "pip install uvloop")
    return ok("uvloop", importlib.metadata.version("uvloop"))


def clock() -> DoctorFinding:
    now = time.time()
    if now < BORN.timestamp():
        return DoctorFinding(
            Level.FAIL, "clock", f"it shows {moment(now)}", "Set the clock: leases and dates depend on it."
        )
    return ok("clock", moment(now))


def dns() -> DoctorFinding:
    outcome: list[str] = []

    def look_up() -> None:
        try:
            socket.getaddrinfo(DNS_NAME, 443)
            outcome.append("")
        except OSError as error:
            outcome.append(str(error))

    # A daemon thread: a name server that never answers must not delay the end of the command.
    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(DNS_PATIENCE.total_seconds())
    if outcome == [""]:
        return ok("network", f"{DNS_NAME} resolves")
    fault = outcome[0] if outcome else f"no answer within {DNS_PATIENCE.total_seconds():g} s"
    return DoctorFinding(
        Level.WARN, "network", f"{DNS_NAME} does not resolve ({fault})", "Only sites of this machine can be crawled."
    )


def open_files(settings: Settings) -> DoctorFinding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.crawl.concurrency * 2 + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        return DoctorFinding(
            Level.WARN,
            "open files",
            f"at most {soft:,}; crawl.concurrency = {settings.crawl.concurrency:,} may need {needed:,}",
            f"ulimit -n {needed if hard == resource.RLIM_INFINITY else min(needed, hard)}, or lower crawl.concurrency.",
        )
    return ok(
        "open files", f"limit {'none' if soft == resource.RLIM_INFINITY else f'{soft:,}'}, {needed:,} may be needed"
    )


def disk(places: list[Path]) -> Iterator[DoctorFinding]:
    """One finding per folder that a crawl would write to."""
    for folder in dict.fromkeys(place.parent for place in places):
        home = _existing(folder)
        if not os.access(home, os.W_OK):
            yield DoctorFinding(
                Level.FAIL, "data folder", f"{home} cannot be written to", "chmod u+w it, or set other paths."
            )
            continue
        free = shutil.disk_usage(home).free
        made = "" if folder.exists() else " (created by the first crawl)"
        detail = f"{folder}{made}, {size(free)} free"
        if free < DISK_NEEDED:
            yield DoctorFinding(
                Level.FAIL, "data folder", detail, "Free some space, or set state, records and archive elsewhere."
            )
        elif free < DISK_WANTED:
            yield DoctorFinding(Level.WARN, "data folder", detail, "Raw pages take about 10 KB each; free some space.")
        else:
            yield ok("data folder", detail)


def _existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def database(role: str, path: Path) -> DoctorFinding:
    if not path.exists():
        return ok(role, f"{path.name} is created by the first crawl")
    advice = f"Move {path} away, or set {role} to another path."
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=10)
        try:
            faults = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
        finally:
            connection.close()
    except sqlite3.Error as error:
        return DoctorFinding(Level.FAIL, role, f"{path}: {error}", advice)
    if faults != ["ok"]:
        return DoctorFinding(Level.FAIL, role, f"{path} is damaged: {'; '.join(faults)}", advice)
    return ok(role, f"{path.name} is sound, {size(path.stat().st_size)}")


def archive_folder(folder: Path) -> DoctorFinding:
    home = _existing(folder)
    try:
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        return DoctorFinding(
            Level.FAIL, "archive", f"{home} cannot be written to ({error.strerror})", "Check its permissions."
        )
    return ok("archive", f"{folder} can be written to" if folder.exists() else "created by the first crawl")

"""Servers that the tests share: started once per session when a test asks for them, always stopped. And what makes
the suite quick: folders in memory, no file imported in vain, long tests spread over all processes.

An example of Hypothesis may take as long as it likes: how long says something about the machine only.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import socketserver
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from .services.postgres import lone_postgres as lone_postgres
from .services.postgres import postgres as postgres
from .services.seaweed import ACCESS_KEY, SECRET_KEY, Seaweed, running_seaweed
from .services.valkey import ValkeyServer, running_valkey

settings.register_profile("any machine", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# Of the usual five, the sixth connection to a site of a test is tried again after one second, three, and seven.
socketserver.TCPServer.request_queue_size = 128

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is where a shell has begun us in the background, and all that the tests start would be deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

CONTAINERS = Path(__file__).with_name("containers")  # `make test-containers`
MEMORY = Path("/dev/shm")
ROOM = 6 << 30  # bytes; the tests of six processes need less than a fourth of it at any time
_LONG_FILE = re.compile(r"^pytestmark = .*\bpytest\.mark\.long\b", re.MULTILINE)
_HAS_LONG = re.compile(r"\bmark\.long\b|\bBackends\b|\bcluster\b")
_PLAIN = SimpleNamespace(params={})  # of a test without parameters
# What takes longest begins first, so that nobody waits for it at the end; then files with one browser for all tests.
LONGEST = (
    "conformance/test_records", "faults/test_alerts", "server/ui/test_frame", "journey/test_walkthrough",
    "server/test_firecrawl_clients", "journey/test_wheel", "server/test_killed", "conformance/test_site_turns",
    "faults/test_autoscale", "faults/test_killed_crawlers", "conformance/test_frontier_machine",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Temporary folders are in memory where that has room: no test pulls the plug, so none needs a disk."""
    if "TMPDIR" not in os.environ and _is_roomy(MEMORY):
        folder = tempfile.mkdtemp(prefix="gossamer-", dir=MEMORY)
        os.chmod(folder, 0o755)  # PostgreSQL may be another user
        os.environ |= {"TMPDIR": folder, "PYTEST_DEBUG_TEMPROOT": str(MEMORY)}  # pytest clears up its own
        tempfile.tempdir = None  # look again
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def _is_roomy(folder: Path) -> bool:
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    runs_programs = not found.f_flag & getattr(os, "ST_NOEXEC", 0)
    return os.access(folder, os.W_OK) and runs_programs and found.f_bavail * found.f_frsize >= ROOM


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file without a test that was asked for is not even imported. Containers are asked for by name."""
    if collection_path == CONTAINERS:
        return None if any("tests/containers" in word for word in config.args) else True
    wanted = config.option.markexpr
    if wanted not in ("long", "not long") or not collection_path.match("test_*.py"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    has_some = _HAS_LONG.search(text) if wanted == "long" else not _LONG_FILE.search(text)
    return None if has_some else True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()  # what is collected stays for good, and need not be looked at
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


class SpreadTests(LoadFileScheduling):
    """Tests of a file stay together: they share their servers. Not so those in these folders, which have their own."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        super().__init__(config, log)
        long = ("tests/faults/", "tests/journey/", "tests/docs/") if config.option.markexpr == "long" else ()
        self._alone = ("tests/pairs/", *long)

    def _split_scope(self, nodeid: str) -> str:
        scope: str = nodeid if nodeid.startswith(self._alone) else super()._split_scope(nodeid)
        return scope


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    return SpreadTests(config, log) if config.option.dist == "loadfile" else None


@pytest.hookimpl(tryfirst=True)  # before those that were not chosen are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a cluster each suite runs as on one server, and takes longest of all."""
    for item in items:
        if "cluster" in getattr(item, "callspec", _PLAIN).params.values():
            item.add_marker(pytest.mark.long)
    if config.option.markexpr == "not long":
        for path in {item.path for item in items if item.get_closest_marker("long") is not None}:
            if not _HAS_LONG.search(path.read_text(encoding="utf-8")):
                raise pytest.UsageError(f"{path} has long tests, and `make test-long` does not see it: see _HAS_LONG.")
    if config.option.markexpr == "long":
        ranks = [tuple(f"tests/{name}." for name in LONGEST), ("tests/browser/", "tests/server/"), ""]
        items.sort(key=lambda item: next(rank for rank, begins in enumerate(ranks) if item.nodeid.startswith(begins)))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Seaweed]:
    with running_seaweed() as server:
        yield server


@pytest.fixture
def s3(s3_server: Seaweed, monkeypatch: pytest.MonkeyPatch) -> Seaweed:
    """The S3 server, and in the environment the key that may do all there."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    return s3_server


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    with running_valkey("--appendonly", "yes", "--appendfsync", "no") as server:
        yield server

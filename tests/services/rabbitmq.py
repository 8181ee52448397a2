"""A real RabbitMQ on free ports of this machine: Debian's rabbitmq-server, as a plain process in a folder of its own.

Its port mapper (epmd) is one of its own, too, so that nothing of it meets another Erlang of the machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.patience import poll_until
from tests.services.ports import free_port

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the one in the path wants to be root, or rabbitmq


class RabbitServer:
    """`start`, `stop` and `kill` as often as a test likes; durable queues and their messages stay."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._groups: list[subprocess.Popen[bytes]] = []
        self.port = free_port()
        self._names, self._distribution = free_port(), free_port()

    @property
    def address(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def start(self) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"rabbit{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "data"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_PID_FILE": str(self._folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self._folder / "none"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self._folder / "none.config"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 -start_epmd false",
        }
        for command in (["epmd"], [str(PROGRAM)]):
            with (self._folder / "said.txt").open("ab") as said:
                started = subprocess.Popen(
                    command, env=environment, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                    start_new_session=True,
                )  # fmt: skip
            self._groups.append(started)

        def words() -> str:
            return (self._folder / "said.txt").read_text()[-1500:]

        def check() -> None:
            assert all(one.poll() is None for one in self._groups), f"RabbitMQ did not start: {words()}"

        poll_until(self._answers, "RabbitMQ answers", between=check, every=0.1, said=words)

    def _answers(self) -> bool:
        """A node that is up names itself when it is greeted."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=2) as line:
            line.sendall(b"AMQP\x00\x00\x09\x01")
            return b"RabbitMQ" in line.recv(1024)
        return False

    def kill(self) -> None:
        """End it as a crash would."""
        for one in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()
        self._groups.clear()


@contextmanager
def running_rabbit() -> Iterator[RabbitServer]:
    """Skips where RabbitMQ is missing; in CI that is a failure."""
    if not PROGRAM.exists() or shutil.which("epmd") is None:
        message = "rabbitmq-server is not installed: apt-get install rabbitmq-server"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    folder = Path(tempfile.mkdtemp(prefix="gossamer-rabbit-"))
    server = RabbitServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)

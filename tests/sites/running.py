"""Start and stop the park from a test, and read its log. The process ends with the block, or with the test run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.services.proxies import vouched_for

from .grounds import Grounds, record_of

ROOT = Path(__file__).resolve().parents[2]


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One request as the server saw it. `at` is when it reached this machine's kernel, which is when it was sent:
    monotonic and comparable with other processes of this machine. `in_progress` is how many requests of that host
    waited for an answer then, this one included. Status 0: the connection was closed without an answer."""

    at: float
    wall: float
    host: str
    path: str
    status: int
    method: str
    connection: int
    in_progress: int
    peer: int = 0  # the port that it came from
    headers: dict[str, str] = {}

    @property
    def user_agent(self) -> str:
        return self.headers.get("user-agent", "")


def whole_lines(log: Path) -> bytes:
    """What a running server has logged, without a line of which only the first part is in the file yet."""
    logged = log.read_bytes()
    return logged[: logged.rfind(b"\n") + 1]


class Park:
    """A running park. What it knows does not depend on any crawler."""

    def __init__(
        self, grounds: Grounds, port: int, pid: int, log: Path, certificate: Path | None = None, port_apart: int = 0
    ) -> None:
        self.grounds = grounds
        self.port_apart = port_apart  # of the hosts that can go away
        self.certificate = certificate  # with tls: for SSL_CERT_FILE of the crawlers
        self.port = port
        self.pid = pid
        self.log = log

    @property
    def hosts(self) -> list[str]:
        return self.grounds.host_names()

    def url(self, host: int | str = 0, path: str = "/") -> str:
        name = host if isinstance(host, str) else self.hosts[host]
        port = self.port_apart if name in self.grounds.apart else self.port
        return f"{'https' if self.grounds.tls else 'http'}://{name}:{port}{path}"

    def go_away(self) -> None:
        """Nobody listens at the port of the hosts that are apart, and their connections end."""
        os.kill(self.pid, signal.SIGUSR1)

    def come_back(self) -> None:
        os.kill(self.pid, signal.SIGUSR2)

    def seeds(self) -> list[str]:
        """The front gate of every host."""
        return [self.url(host) for host in self.hosts]

    def orders(self) -> list[str]:
        """The addresses that take a POST."""
        return [self.url(host, f"/order/{n}") for host in self.hosts for n in range(self.grounds.orders)]

    def hits(self, *, host: int | str | None = None, path: str | None = None, robots: bool = False) -> list[Hit]:
        """The log so far, oldest first; requests for robots.txt only when asked for."""
        name = self.hosts[host] if isinstance(host, int) else host
        hits = msgspec.json.Decoder(Hit).decode_lines(whole_lines(self.log))
        return [
            hit
            for hit in hits
            if (name is None or hit.host == name)
            and (path is None or hit.path == path)
            and (robots or path == "/robots.txt" or hit.path != "/robots.txt")
        ]

    def count(self) -> int:
        """How many requests are in the log, those for robots.txt too. Quicker than to read them."""
        return self.log.read_bytes().count(b"\n")

    def truth(self) -> dict[str, dict[str, Any]]:
        """Every record that a complete crawl from the seeds finds, by sku, with its `url`."""
        records = {}
        for host in self.hosts:
            for path in self.grounds.paths(host):
                record = record_of(host, path, self.grounds.edition)
                records[record["sku"]] = {**record, "url": self.url(host, path)}
        return records


@contextmanager
def park(*, log: Path | None = None, port: int = 0, port_apart: int = 0, **plan: Any) -> Iterator[Park]:
    """Run a park for the time of the block. `plan` are the fields of Grounds: pages=2000, hosts=3 ..."""
    grounds = Grounds(**plan)
    with tempfile.TemporaryDirectory(prefix="park-") as folder:
        file = log or Path(folder) / "hits.jsonl"
        vouched = vouched_for(Path(folder), *grounds.host_names()) if grounds.tls else None
        papers = ["--certificate", str(vouched.file), "--key", str(vouched.key)] if vouched else []
        process = subprocess.Popen(
            [
                sys.executable, "-m", "tests.sites.park", "--stop-with-stdin",
                "--log", str(file), "--port", str(port), "--port-apart", str(port_apart),
                "--plan", json.dumps(plan), *papers,
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a signal to the crawlers' group must not reach the park
        )  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()  # empty when the park died; it never hangs between start and this line
            if not line:
                raise RuntimeError(f"The park did not start (exit code {process.wait()}); see the messages above.")
            opened = json.loads(line)
            yield Park(grounds, opened["port"], opened["pid"], file, vouched.file if vouched else None, opened["apart"])
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()

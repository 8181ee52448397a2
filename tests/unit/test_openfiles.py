"""A process that may open no more files says so, and what to do about it, whatever failed."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from gossamer.backends.redis.connection import open_server
from gossamer.backends.sqlite import connection
from gossamer.backends.sqlite.state import open_sqlite_state
from gossamer.clock import SystemClock
from gossamer.errors import BackendUnavailable, ConnectFailed, DnsFailed
from gossamer.fetch.addresses import AddressGuard, GuardedResolver
from gossamer.fetch.contract import TransportRequest
from gossamer.model.route import Proxy
from gossamer.process import limits as openfiles
from tests.conformance.frontiers import LEASE, UNLIMITED
from tests.conformance.transports import KINDS


@contextmanager
def no_more_files() -> Iterator[None]:
    """What is open stays open; nothing more can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_state_file_that_cannot_be_opened_for_want_of_files_is_not_called_bad(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    with no_more_files(), pytest.raises(BackendUnavailable, match="ulimit -n"):
        async with open_sqlite_state(
            tmp_path / "state.db", SystemClock(), lease_duration=LEASE, terms_for=lambda site: UNLIMITED
        ):
            pass


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES])
async def test_a_schema_that_cannot_be_read_for_want_of_files_is_told_apart_from_any_other_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def unreadable(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(connection, "numbered_scripts", unreadable)
    wanted = BackendUnavailable if number == errno.EMFILE else PermissionError
    with pytest.raises(wanted, match="ulimit -n" if number == errno.EMFILE else "denied"):
        async with open_sqlite_state(
            tmp_path / "state.db", SystemClock(), lease_duration=LEASE, terms_for=lambda site: UNLIMITED
        ):
            pass


async def test_a_server_that_cannot_be_dialled_for_want_of_files_is_not_called_away() -> None:
    with no_more_files(), pytest.raises(BackendUnavailable, match="ulimit -n"):
        async with open_server("redis://127.0.0.1:9/0"):
            pass


@pytest.mark.parametrize("scheme", ["http", "socks5"])
@pytest.mark.parametrize("kind", list(KINDS))
async def test_a_proxy_that_cannot_be_dialled_for_want_of_files_is_not_to_blame(kind: str, scheme: str) -> None:
    proxy = Proxy(pool="p", name="p", scheme=scheme, host="127.0.0.1", port=9, allow_private=True)
    request = TransportRequest(url="http://93.184.215.14/", proxy=proxy)
    async with KINDS[kind](AddressGuard()) as transport:
        with no_more_files(), pytest.raises(ConnectFailed, match="ulimit -n") as failure:
            await transport.fetch(request)
        assert failure.value.is_not_the_sites_fault
        with no_more_files(), pytest.raises(ConnectFailed, match="ulimit -n"):
            await transport.fetch(TransportRequest(url="http://no-such-name.example/"))


async def test_a_name_that_cannot_be_asked_for_is_not_called_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_answer(*_: object, **__: object) -> NoReturn:  # as glibc does at times
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_answer)
    resolver = GuardedResolver(AddressGuard())
    with no_more_files(), pytest.raises(ConnectFailed, match="ulimit -n"):
        await resolver.resolve("shop.example", 80)
    with pytest.raises(DnsFailed):
        await resolver.resolve("shop.example", 80)
    await resolver.close()


def read_spider() -> None:
    try:
        Path("/dev/null").read_bytes()
    except OSError as error:
        raise RuntimeError("the spider cannot be read") from error


def test_it_is_found_behind_other_errors() -> None:
    with no_more_files():
        assert openfiles.are_used_up()
        with pytest.raises(RuntimeError) as failure:
            read_spider()
    assert openfiles.were_used_up(failure.value)
    assert not openfiles.are_used_up()
    assert not openfiles.were_used_up(FileNotFoundError(2, "no such file"))

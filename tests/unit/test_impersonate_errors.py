"""Every error of wreq in our words, on the direct way and through a proxy."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest
import wreq
from wreq import exceptions

from gossamer.errors import (
    ConnectFailed,
    ConnectionDropped,
    ConnectTimedOut,
    FetchFailed,
    FetchRefused,
    ProxyFailed,
    TimedOut,
    TlsFailed,
)
from gossamer.fetch.impersonate import translated
from gossamer.model.route import Proxy
from tests.conformance.transports import LIMITS

PROXY = Proxy(pool="p", name="n", scheme="http", host="gate.example", port=8080, username="ann", password="s3cret")


class PanicException(BaseException):
    """As pyo3 raises when Rust panics: not an Exception."""


def _every_error() -> Iterator[BaseException]:
    for _, kind in inspect.getmembers(exceptions, inspect.isclass):
        assert issubclass(kind, Exception)
        yield kind("made for the test")
    yield from (RuntimeError("x"), ValueError("x"), TypeError("x"), OSError(5, "x"), PanicException("x"))


@pytest.mark.parametrize("proxy", [None, PROXY], ids=["direct", "proxy"])
@pytest.mark.parametrize("error", list(_every_error()), ids=lambda error: type(error).__name__)
def test_no_error_of_the_driver_comes_through_unmapped(error: BaseException, proxy: Proxy | None) -> None:
    ours = translated(error, "http://h/", LIMITS, proxy)
    assert isinstance(ours, FetchFailed | FetchRefused)
    assert type(ours) is not FetchFailed
    assert "s3cret" not in str(ours)


def test_the_walk_over_the_errors_of_wreq_finds_them() -> None:
    assert set(exceptions.__all__) <= {type(error).__name__ for error in _every_error()}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), asyncio.CancelledError()], ids=repr)
def test_what_is_no_failure_is_not_made_one(error: BaseException) -> None:
    assert translated(error, "http://h/", LIMITS) is None


def test_a_machine_without_a_file_left_says_nothing_of_the_site() -> None:
    said = 'Os { code: 24, kind: Uncategorized, message: "Too many open files" }'
    failure = translated(wreq.exceptions.ConnectionError(said), "http://h/", LIMITS)
    assert isinstance(failure, ConnectFailed)
    assert failure.is_not_the_sites_fault


@pytest.mark.parametrize(
    ("error", "ours", "on_proxy"),
    [
        (wreq.exceptions.TlsError("x"), TlsFailed, TlsFailed),
        (wreq.exceptions.TimeoutError("x"), TimedOut, TimedOut),
        (wreq.exceptions.ConnectionError("source: Some(TimedOut)"), ConnectTimedOut, ProxyFailed),
        (wreq.exceptions.ConnectionError("Some(Error { code: SYSCALL (5) })"), ConnectionDropped, ProxyFailed),
        (wreq.exceptions.ConnectionResetError("x"), ConnectionDropped, ProxyFailed),
        (wreq.exceptions.ProxyConnectionError("x"), ConnectionDropped, ProxyFailed),
        (wreq.exceptions.BodyError("source: TimedOut"), TimedOut, TimedOut),
        (wreq.exceptions.BuilderError("x"), FetchRefused, FetchRefused),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_errors_become_the_word_that_fits(error: Exception, ours: type[Exception], on_proxy: type[Exception]) -> None:
    assert type(translated(error, "http://h/", LIMITS)) is ours
    assert type(translated(error, "http://h/", LIMITS, PROXY)) is on_proxy

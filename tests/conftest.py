"""Servers that the tests share: started once per session when a test asks for them, always stopped.

An example of Hypothesis may take as long as it likes: how long says something about the machine only.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

from .services.mongo import lone_mongo as lone_mongo
from .services.mongo import mongo as mongo
from .services.postgres import lone_postgres as lone_postgres
from .services.postgres import postgres as postgres
from .services.seaweed import ACCESS_KEY, SECRET_KEY, Seaweed, running_seaweed
from .services.valkey import ValkeyServer, running_valkey

settings.register_profile("any machine", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is where a shell has begun us in the background, and all that the tests start would be deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_PLAIN = SimpleNamespace(params={})  # of a test without parameters


@pytest.hookimpl(tryfirst=True)  # before those that were not chosen are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On a cluster each suite runs as on one server, and takes longest of all."""
    for item in items:
        if "cluster" in getattr(item, "callspec", _PLAIN).params.values():
            item.add_marker(pytest.mark.long)


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

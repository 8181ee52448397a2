"""The stand-in for MongoDB that the tests share (mongo_server.py): no server of MongoDB can be had from a wheel."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import closing
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .mongo_server import MongoServer


@functools.cache
def shared_mongo() -> MongoServer:
    """The stand-in of this test session, started by the first who asks. Tests that make it fail take their own."""
    return _started()


def prefix_of(folder: Path) -> str:
    """A prefix for each folder: what a test keeps apart by folders is apart in the shared server, too."""
    return f"test_{blake2b(str(folder).encode(), digest_size=8).hexdigest()}"


def require_mongo() -> None:
    """Skip the test, or fail it in CI, where there is nothing to make the stand-in of."""
    if find_spec("mongomock") is not None and find_spec("pymongo") is not None:
        return
    advice = "What stands in for MongoDB is not here: pip install mongomock pymongo"
    if os.environ.get("CI"):
        pytest.fail(advice)
    pytest.skip(advice)


@pytest.fixture(scope="session")
def mongo() -> Iterator[MongoServer]:
    """The session's stand-in. Use a prefix of your own in it (`prefix_of(tmp_path)`)."""
    require_mongo()
    server = shared_mongo()
    yield server
    server.close()


@pytest.fixture
def lone_mongo() -> Iterator[MongoServer]:
    """A stand-in for one test, which may stop it and make it fail."""
    require_mongo()
    with closing(_started()) as server:
        yield server


def _started() -> MongoServer:
    from .mongo_server import MongoServer  # mongomock and pymongo are extras

    server = MongoServer()
    server.start()
    return server

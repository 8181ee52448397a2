"""Backends that the suites of this folder run against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gossamer.backends.redis import connection
from tests.patience import PATIENCE

from .frontiers import Backends


@pytest.fixture(scope="session", autouse=True)
def patient_connections() -> Iterator[None]:
    """However long a loaded machine takes: a worker would try again, these tests do not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "CONNECT_SECONDS", PATIENCE)
        yield


@pytest.fixture(scope="session")
def backends() -> Iterator[Backends]:
    opened = Backends()
    yield opened
    opened.close()

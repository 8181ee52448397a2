"""Backends that the suites of this folder run against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .frontiers import Backends


@pytest.fixture(scope="session")
def backends() -> Iterator[Backends]:
    opened = Backends()
    yield opened
    opened.close()

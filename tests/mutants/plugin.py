"""The plugin of pytest that notes what each test calls: `-p tests.mutants.plugin`."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator

import pytest

from . import reach


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    reach.start()
    began, failures = time.perf_counter(), item.session.testsfailed
    try:
        return (yield)
    finally:
        sys.settrace(None)
        reach.write(item.nodeid, time.perf_counter() - began, failed=item.session.testsfailed > failures)

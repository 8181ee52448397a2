"""Real Chromium. Without one these tests are skipped on a laptop, and fail where CI is set."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gossamer.fetch.browser.chromium import is_there

from .showing import Show, a_show


@pytest.fixture(scope="session")
def chromium() -> None:
    """For every test that starts a browser: by way of `show`, or named in the module's `pytestmark`."""
    missing = is_there()
    if missing is not None:
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_show(chromium: None) -> AsyncIterator[Show]:
    async with a_show() as show:
        yield show


@pytest_asyncio.fixture(loop_scope="module")
async def show(shared_show: Show) -> Show:
    """A site and a browser that the tests of a module share; what the servers saw is forgotten between them."""
    shared_show.forget()
    return shared_show

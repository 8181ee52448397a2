"""One project, server and browser for the tests of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.browser.conftest import chromium as chromium

from .screen import Screen, a_screen


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_screen(chromium: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Screen]:
    async with a_screen(tmp_path_factory.mktemp("project")) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def screen(shared_screen: Screen) -> AsyncIterator[Screen]:
    yield shared_screen
    await shared_screen.leave()

"""One engine, its images and one running stack for all tests of this folder (`make test-containers`).

KEEP=1 leaves images and layers for the next run; otherwise all is removed at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .engine import Engine, missing
from .stack import Stack, commands_of_readme

FOLDER = Path(os.environ.get("GOSSAMER_CONTAINERS", "/var/tmp/gossamer-containers"))


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    if why := missing():
        pytest.skip(why)
    made = Engine(FOLDER)
    try:
        made.make_base()
        made.make_stores()
        yield made
    finally:
        if os.environ.get("KEEP"):
            made.podman("pod", "rm", "--force", "--all", "--time", "2", bad=True)
            made.podman("rm", "--force", "--all", "--time", "2", bad=True)
            made.podman("volume", "rm", "--all", "--force", bad=True)
        else:
            made.reset()


@pytest.fixture(scope="session")
def stack(engine: Engine) -> Iterator[Stack]:
    """The stack that the commands of deploy/README.md start, as they are written there. The last one, which begins a
    crawl, is left to a test that has a site for it."""
    made = Stack(engine, "gossamer")
    try:
        made.told = [made.run(line) for line in commands_of_readme()[:-1]]
        yield made
    finally:
        made.close()

"""Spiders are loaded beside the event loop. Code that hangs holds up nobody else, and is not begun a second time."""

from __future__ import annotations

import re
import threading
from datetime import timedelta

import pytest

from gossamer.errors import SpiderNotFound
from gossamer.model.events import ScheduleFired
from gossamer.project.workers.service import scheduler_of
from gossamer.schedule.spider_loader import SpiderLoader
from gossamer.settings import load
from tests.patience import PATIENCE, until
from tests.unit.schedulers import HOURLY, SPIDER, WAITING
from tests.unit.schedulers import bench as bench

SOON, LATER = timedelta(milliseconds=50), timedelta(seconds=PATIENCE)
ENOUGH = timedelta(seconds=1)  # for what does not wait, also where cores are rare

HANGING = """
import time
from pathlib import Path
from gossamer import Spider

ROOT = Path({root!r})
with (ROOT / "begun").open("a") as log:
    log.write("x")
deadline = time.monotonic() + 100
while not (ROOT / "go").exists() and time.monotonic() < deadline:
    time.sleep(0.01)

class {name}(Spider):
    def parse(self, page):
        return None
"""


@pytest.fixture
def root(tmp_path):
    """A project with a good spider. What hangs in a test ends with it."""
    (tmp_path / "spiders").mkdir(exist_ok=True)
    (tmp_path / "gossamer.toml").write_text("")
    (tmp_path / "spiders" / "books.py").write_text(SPIDER)
    yield tmp_path
    (tmp_path / "go").touch()


def settings_of(root):
    return load(start=root, environ={})


async def loaded(loader, ref):
    """Ask until there is an answer."""
    return (await until(lambda: loader.load([ref])))[ref]


async def test_each_is_loaded_or_there_is_an_error(root):
    (root / "spiders" / "grumpy.py").write_text(SPIDER.replace("Books", "Grumpy") + "\n    def __init__(self): 1 / 0\n")
    found = await SpiderLoader(settings_of(root)).load(["books", "grumpy", "nobody", "https://a.test/", "books"])

    assert (found["books"].name, found["https://a.test/"].start_urls) == ("books", ("https://a.test/",))
    assert isinstance(found["grumpy"], ZeroDivisionError)
    assert isinstance(found["nobody"], SpiderNotFound)


async def test_a_constructor_that_takes_long_is_asked_for_again_and_holds_up_no_other(root):
    (root / "spiders" / "slow.py").write_text(WAITING.format(name="Slow", root=str(root)))
    loader = SpiderLoader(settings_of(root), patience=ENOUGH, deadline=LATER)

    assert list(await loader.load(["slow", "books"])) == ["books"]
    assert list(await loader.load(["slow", "books"])) == ["books"]
    (root / "go").touch()

    assert (await loaded(loader, "slow")).name == "slow"


async def test_a_file_that_hangs_is_loaded_once_and_the_others_of_its_folder_are_found(root):
    (root / "spiders" / "a.py").write_text(HANGING.format(name="Hanging", root=str(root)))
    loader = SpiderLoader(settings_of(root), patience=ENOUGH, deadline=LATER)

    for _ in range(2):
        assert list(await loader.load(["hanging", "books"])) == ["books"]
    assert (root / "begun").read_text() == "x"
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "spider loader")
    (root / "go").touch()

    assert (await loaded(loader, "hanging")).name == "hanging"
    assert (root / "begun").read_text() == "x"


@pytest.mark.parametrize(("text", "ref"), [(HANGING, "hanging"), (HANGING, "spiders/a.py"), (WAITING, "hanging")])
async def test_what_hangs_for_too_long_is_told_with_its_place(root, text, ref):
    (root / "spiders" / "a.py").write_text(text.format(name="Hanging", root=str(root)))
    loader = SpiderLoader(settings_of(root), patience=SOON, deadline=SOON)

    error = await loaded(loader, ref)

    line = next(number for number, words in enumerate(text.splitlines(), start=1) if "time.sleep" in words)
    assert re.search(r"its code has been running for \d+ s", str(error))
    assert f"line {line} of spiders/a.py" in str(error) or f"line {line - 1} of spiders/a.py" in str(error)


async def test_a_spider_that_hangs_is_the_trouble_of_its_schedule_and_the_others_run(bench, root):
    # The bench and this project are in the same folder.
    (root / "spiders" / "a.py").write_text(HANGING.format(name="Hanging", root=str(root)))
    scheduler = scheduler_of(
        bench.system, bench.ear, name="two", loader=SpiderLoader(bench.system.settings, patience=SOON, deadline=SOON)
    )
    await bench.add(HOURLY, name="stuck", spider="hanging")
    await bench.add(HOURLY)

    await bench.look(scheduler=scheduler)
    while not (await bench.standing("stuck")).trouble:
        await until((root / "begun").exists)
        await bench.look(1.0, scheduler=scheduler)

    assert [event.schedule for event in bench.ear.heard(ScheduleFired)] == ["prices"]
    assert "its code has been running" in (await bench.standing("stuck")).trouble
    # when it does not hang any more, its tick is made up for
    (root / "go").touch()
    while not (await bench.standing("stuck")).runs:
        await bench.look(5.0, scheduler=scheduler)
    assert [event.schedule for event in bench.ear.heard(ScheduleFired)] == ["stuck"]

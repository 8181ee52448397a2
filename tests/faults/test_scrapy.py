"""Spiders of a Scrapy project whose workers are killed: the items are those of one undisturbed run of Scrapy itself."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys

import pytest

from tests.journey.scrapying import ScrapyProject, sorted_items
from tests.patience import PATIENCE, poll_until
from tests.sites.shelf import shelf

pytestmark = pytest.mark.long

# A login, a JSON API with POST, items that travel in meta, a pipeline into a database, files and redirects.
SPIDERS = ("members", "stock", "listing", "stored", "files", "moved")


@pytest.fixture(scope="module")
def site():
    with shelf() as opened:
        yield opened


@pytest.fixture(scope="module")
def project(site, tmp_path_factory):
    return ScrapyProject(tmp_path_factory.mktemp("scrapy") / "project", site.url)


@pytest.fixture(scope="module")
def theirs(project):
    return project.run_scrapy(*SPIDERS)


def start(project, name):
    """`gossamer crawl`, with the process that watches it, as one group."""
    environ = {**os.environ, **project.environ, "GOSSAMER_FETCH__ALLOW_HOSTS": "127.0.0.1"}
    return subprocess.Popen(
        [sys.executable, "-m", "gossamer", "crawl", name, "--quiet", "--rate", "15/s"],
        cwd=project.folder / "shelf",
        env=environ,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def kill(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def wait_for_requests(site, count, *processes):
    """Until the site has seen so many requests, or the crawl is over."""
    poll_until(lambda: len(site.log) >= count or all(one.poll() is not None for one in processes))


@pytest.mark.parametrize("name", SPIDERS)
def test_two_workers_of_which_both_are_killed_give_the_same_items(project, site, theirs, name):
    chance = random.Random(name)
    site.log.clear()
    first, second = start(project, name), start(project, name)
    killed = []
    for process in (first, second):
        wait_for_requests(site, len(site.log) + chance.randint(3, 9), first, second)
        if process.poll() is None:
            kill(process)
            killed.append(process)
    last = start(project, name)
    said, _ = last.communicate(timeout=PATIENCE)

    assert killed, "nobody was alive to be killed"
    assert last.returncode in (0, 3), said.decode()
    assert items_of(project, name) == theirs[name]
    if name == "stored":
        with sqlite3.connect(project.folder / "wares.db") as database:
            assert database.execute("SELECT count(*) FROM wares").fetchone() == (23,)
        database.close()


def items_of(project, name):
    with sqlite3.connect(project.folder / "gossamer-data" / "records.db") as records:
        rows = records.execute("SELECT data FROM records WHERE spider = ?", (name,)).fetchall()
    records.close()
    return sorted_items(json.loads(data) for (data,) in rows)

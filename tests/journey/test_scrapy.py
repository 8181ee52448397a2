"""A Scrapy project, unchanged: the same items as under Scrapy itself, and what is refused is named."""

from __future__ import annotations

import sqlite3
from collections import Counter

import pytest

from tests.journey.crawling import crawled, settings_for
from tests.journey.scrapying import SPIDERS, ScrapyProject, sorted_items
from tests.sites.shelf import shelf

pytestmark = pytest.mark.filterwarnings("ignore::scrapy.exceptions.ScrapyDeprecationWarning")


@pytest.fixture(scope="module")
def site():
    with shelf() as opened:
        yield opened


@pytest.fixture(scope="module")
def project(site, tmp_path_factory):
    """Loaded once: modules of a Scrapy project are ordinary modules of the process."""
    with pytest.MonkeyPatch.context() as patch:
        made = ScrapyProject(tmp_path_factory.mktemp("scrapy") / "project", site.url)
        for name, value in made.environ.items():
            patch.setenv(name, value)
        yield made


def settings_of(project):
    return settings_for(project.folder, fetch__allow_hosts=["127.0.0.1"])


@pytest.mark.long
async def test_every_shape_of_spider_gives_the_same_items_as_under_scrapy(project, site):
    theirs = project.run_scrapy(*SPIDERS)
    asked_by_scrapy = Counter(site.paths())
    database = project.folder / "wares.db"
    stored_by_scrapy = rows_of(database)
    database.unlink()
    site.log.clear()

    ours = {}
    for name in SPIDERS:
        aftermath = await crawled(project.spider(name), settings_of(project))
        aftermath.assert_adds_up()
        assert [url.removeprefix(site.url) for url in aftermath.letters] == (["/list/21"] if name == "listing" else [])
        ours[name] = sorted_items(record.data for record in aftermath.records)

    assert {name: len(items) for name, items in theirs.items()} == {
        "authors": 7, "listing": 13, "members": 20, "parts": 12, "quotes": 33, "stock": 15, "stored": 23, "wares": 24
    }  # fmt: skip
    for name in SPIDERS:
        assert ours[name] == theirs[name], name
    assert rows_of(database) == stored_by_scrapy
    # Neither more nor fewer requests: the pages of each spider once, as the site saw them.
    assert {**Counter(site.paths()), "/robots.txt": 0} == {**asked_by_scrapy, "/robots.txt": 0}


def rows_of(database):
    connection = sqlite3.connect(database)
    rows = connection.execute("SELECT name, price FROM wares ORDER BY name").fetchall()
    connection.close()
    return rows

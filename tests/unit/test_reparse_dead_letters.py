"""`gossamer dead replay` from the archive: letters of several spiders, a start() that misbehaves, pages that fail."""

from __future__ import annotations

import pytest

from gossamer.parse import timelimit
from gossamer.project.reparse import dead_letters as letters
from tests.unit.archived import SHOP, crawled
from tests.unit.commandline import ProjectFolder, Said
from tests.unit.commandline import project as project

SPIDER = """
from gossamer import Item, Page, Request, Spider

class Thing(Item, key="url"):
    depth: int

class Shop(Spider):
    def start(self):
        print("Here I am")
        {start}

    def parse(self, page: Page):
        {parse}
        yield Thing(url=page.url, depth=page.depth)
        yield from page.follow_all("a")
"""
PAGES = {"/1": "<a href=/9>9</a>", "/2": "<p>2"}


@pytest.fixture
def waiting(project: ProjectFolder) -> ProjectFolder:
    """Two dead letters of a spider that is here, one of a spider that is not."""
    project.fill(crawled("shop", PAGES, depth=2, broken=True))
    project.fill(crawled("stray", {"/5": "<p>5"}, broken=True))
    return project


def spider(project: ProjectFolder, *, start: str = f"yield '{SHOP}/'", parse: str = "pass") -> None:
    project.write("spiders/shop.py", SPIDER.format(start=start, parse=parse))


def replay(project: ProjectFolder, *words: str) -> Said:
    return project.run("dead", "replay", *(words or ("--all",)))


def left(project: ProjectFolder) -> list[str]:
    return sorted(one["url"] for one in project.run("dead", "list", "--json").json["dead_letters"])


def test_letters_of_a_spider_that_is_not_here_do_not_stop_the_others(waiting):
    spider(waiting)

    said = replay(waiting)

    assert said.code == 0
    assert "2 pages parsed again from the archive, without a request: 2 records, 2 new or changed, 1 link" in said.out
    assert "Here I am" not in said.out
    assert "1 dead letter left out: no spider 'stray' is here." in said.err
    assert left(waiting) == [f"{SHOP}/5"]
    assert '"depth":2' in waiting.run("export").lines[0]
    assert replay(waiting).code == 1  # of what is left nothing can be done
    renamed = replay(waiting, "--all", "--spider", "spiders/shop.py", "--as", "stray")
    assert "1 page parsed again" in renamed.out
    assert left(waiting) == []


def test_replay_names_the_job_that_has_work_again_and_how_to_go_on(waiting):
    spider(waiting)

    said = replay(waiting)

    # the link of one page is queued, so its job runs again; of the other job nothing could be done
    assert "shop-1 runs again. To continue:\n  gossamer crawl shop\n" in said.out


def test_replay_of_pages_without_links_opens_no_job(waiting):
    spider(waiting)

    said = replay(waiting, f"{SHOP}/2")

    assert "1 page parsed again" in said.out
    assert "again. To continue" not in said.out


def test_a_start_that_fails_leaves_the_letters_as_they_are(waiting):
    spider(waiting, start="open('no-such-file')")

    said = replay(waiting, "--job", "shop")

    assert (said.code, said.out) == (1, "")
    assert "2 dead letters left out: start() of spider 'shop' failed: FileNotFoundError" in said.err
    assert len(left(waiting)) == 3
    assert waiting.run("export").lines == []


@pytest.mark.parametrize("start", [f"while True: yield '{SHOP}/'", "while True: pass"])
def test_a_start_without_an_end_is_read_for_a_while(waiting, monkeypatch, start):
    monkeypatch.setattr(letters, "LONGEST_START", letters.LONGEST_START / 100)
    monkeypatch.setattr(letters, "MOST_SEEDS", 100)
    # The test runner has a use for the process' timer as well: ours looks again whose it is.
    monkeypatch.setattr(timelimit._ALARM, "_checked_at", float("-inf"))
    spider(waiting, start=start)

    said = replay(waiting, "--job", "shop")

    assert "2 pages parsed again" in said.out
    assert "1 link queued" in said.out  # to the site that the page itself is of
    assert "start() of shop yields too many seeds" in said.err


def test_a_page_that_fails_again_tells_its_new_error(waiting):
    spider(waiting, parse="raise ValueError('The second error')")

    said = replay(waiting, "--job", "shop")

    assert said.code == 1
    assert "2 pages failed again" in said.out
    assert "The second error" in waiting.run("why", f"{SHOP}/1").out
    assert "The second error" in waiting.run("dead", "show", f"{SHOP}/1").out
    assert len(left(waiting)) == 3


def test_a_raw_page_that_is_lost_is_told_with_the_way_out(waiting):
    spider(waiting)
    (waiting.folder / "gossamer-data/archive").rename(waiting.folder / "elsewhere")

    said = replay(waiting, "--job", "shop")

    assert (said.code, said.out) == (1, "")
    assert "2 raw pages are no longer in the archive. Use --fetch to fetch from the site." in said.err


def test_parsing_failed_pages_again_says_that_their_letters_stay(waiting):
    spider(waiting)

    said = waiting.run("reparse", "--failed", "--spider", "shop")

    assert "2 pages of these had failed before. Dead letters stay as they are" in said.out
    assert len(left(waiting)) == 3

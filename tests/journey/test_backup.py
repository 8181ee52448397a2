"""A backup of a project whose crawl runs on: restored elsewhere, the crawl goes on, and nothing is missing."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.faults.commands import CommandProject, until
from tests.sites.running import park

pytestmark = pytest.mark.long

PAGES = 160


def test_a_running_crawl_is_backed_up_and_goes_on_elsewhere(tmp_path: Path) -> None:
    with park(pages=PAGES, hosts=1, links=8) as site:
        here = CommandProject(tmp_path / "here", site.seeds(), '[politeness]\nrate = "40/s"')
        there = CommandProject(tmp_path / "there", site.seeds(), '[politeness]\nrate = "40/s"')
        try:
            # given a crawl that is backed up while it goes on
            crawl = here.run("crawl", "park", "--quiet")
            until(lambda: len(site.hits()) >= 30, crawl)
            said = here.done("backup", "../park.backup")
            assert "Workers were at work" in said
            at_backup = len(site.hits())
            until(lambda: len(site.hits()) >= at_backup + 20, crawl)
            assert crawl.process.poll() is None
            crawl.signal(signal.SIGKILL)
            crawl.ended()
            shutil.rmtree(here.folder / "gossamer-data")  # the machine is lost

            # when the backup is restored and the crawl goes on
            there.done("restore", "../park.backup")
            before = there.json("status")[0]["counts"]
            assert before["done"] >= 20
            asked_before = len(site.hits())
            going = there.run("crawl", "park", "--quiet")
            assert going.ended() == 0, going.said()

            # then every record is there once, and what was done before the backup was not asked for again
            lines = there.done("export", "-o", "-", "--format", "jsonl").splitlines()
            found = [json.loads(line)["sku"] for line in lines if line.startswith("{")]
            assert sorted(found) == sorted(site.truth())
            assert len(site.hits()) - asked_before == PAGES - before["done"]
            assert there.json("status")[0]["outcome"] == "done"
            there.assert_sound()
        finally:
            here.close()
            there.close()

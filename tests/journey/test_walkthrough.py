"""docs/walkthrough.md, followed from its first line to its last on a shop of its own. The shop's log and the shop's
prices are the truth; exit codes are compared with the outcome of the job."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.docs.manual import ROOT, Block, blocks_of
from tests.patience import PATIENCE, poll_until
from tests.sites.bazaar import MISSING, NEWS, PASSWORD, PRODUCTS, Bazaar, open_bazaar

PAGE = ROOT / "docs" / "walkthrough.md"
EXAMPLE = "http://bazaar.example/"

WHOLE_CRAWL = 600.0  # seconds: the shop answers 429 at times, and is asked more slowly from then on


class Follower:
    """A reader of the page, in an empty folder."""

    def __init__(self, folder: Path, bazaar: Bazaar) -> None:
        self.folder = folder
        self.bazaar = bazaar
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GOSSAMER_")}
        self._environ = environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}",
            "GOSSAMER_FETCH__ALLOW_HOSTS": "127.0.0.1",
            "GOSSAMER_SECRET_BAZAAR_PASSWORD": PASSWORD,
        }
        self._blocks = {block.title or block.words: block for block in blocks_of(PAGE)}

    def write(self, title: str) -> None:
        file = self.folder / title
        file.parent.mkdir(exist_ok=True)
        file.write_text(self._text(self._blocks[title]), encoding="utf-8")

    def type(self, words: str) -> list[subprocess.CompletedProcess[str]]:
        """Type the lines of the block that is called that, one after the other."""
        return [self.run(line) for line in self._text(self._blocks[words]).splitlines()]

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=WHOLE_CRAWL,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def kill_when(self, words: str, pages: int) -> None:
        """Begin the command of that block, and kill it when the shop has shown so many products."""
        (line,) = self._text(self._blocks[words]).splitlines()
        crawl = subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=self.folder,
            env=self._environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        poll_until(lambda: len(self.bazaar.seen(200, "/p/")) >= pages or crawl.poll() is not None, every=0.005)
        assert crawl.poll() is None
        crawl.send_signal(signal.SIGKILL)
        crawl.wait(PATIENCE)

    def json(self, line: str) -> Any:
        done = self.run(f"gossamer {line} --json")
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    def records(self, type_: str) -> list[dict[str, Any]]:
        done = self.run(f"gossamer export --type {type_}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def prices(self, type_: str = "Product") -> dict[str, Decimal]:
        return {one["sku"]: Decimal(one["price"]["amount"]) for one in self.records(type_)}

    def _text(self, block: Block) -> str:
        return block.code.replace(EXAMPLE, self.bazaar.url)


@pytest.mark.long
@pytest.mark.timeout(1200)  # a whole story: minutes of work where cores are rare
def test_the_hour(tmp_path: Path) -> None:
    with open_bazaar() as bazaar:
        me = Follower(tmp_path, bazaar)
        me.write("gossamer.toml")
        me.write("spiders/bazaar.py")

        (checked,) = me.type("check")
        assert (checked.returncode, "B-007" in checked.stdout) == (0, True), checked
        assert not (tmp_path / "gossamer-data").exists()

        # Killed, and the same command again: every product is there once.
        me.kill_when("crawl", 12)
        (killed,) = me.json("status")
        assert killed["phase"] in ("not responding", "no worker"), killed
        (crawled,) = me.type("crawl")
        assert crawled.returncode == 0, crawled
        (job,) = me.json("status")
        assert job["outcome"] == "done", job
        assert me.prices() == bazaar.sold()
        stock = {one["sku"]: one["stock"] for one in me.records("Stock")}
        assert stock == {f"B-{n:03}": n for n in range(1, PRODUCTS + 1)}
        assert len(me.records("News")) == NEWS
        assert bazaar.seen(200, "/p/") == {f"/p/{n}" for n in range(1, PRODUCTS + 1) if n != MISSING}
        assert len(bazaar.seen(200, "/img/")) == len(bazaar.sold())

        assert me.prices("Offer") == bazaar.offered()
        assert 1 <= len(bazaar.logins) <= 2  # the kill may have come between a login and its note

        # What one looks at.
        status, dead, prices, pictures = me.type("look")
        assert (status.returncode, dead.returncode, prices.returncode, pictures.returncode) == (0, 0, 0, 0)
        assert f"/p/{MISSING}" in dead.stdout
        with (tmp_path / "prices.csv").open(newline="") as stream:
            table = {row["sku"]: Decimal(row["price_amount"]) for row in csv.DictReader(stream)}
        assert table == bazaar.sold()
        assert len(list((tmp_path / "pictures").iterdir())) == len(bazaar.sold())

        # Two nights: each time every third price has changed, and members are logged out.
        for bazaar.revision in (2, 3):
            night = me.type("night")
            assert [one.returncode for one in night] == [0, 0, 0], night
            assert me.prices() == bazaar.sold()
            assert me.prices("Offer") == bazaar.offered()
            versions = [one["_meta"]["version"] for one in me.records("Product")]
            assert versions.count(bazaar.revision) == PRODUCTS // 3
            assert me.json("job show nightly")["outcome"] == "done"
            assert bazaar.logins.count(bazaar.revision) == 1

        # The layout breaks: not a green end, and nothing is lost.
        bazaar.revision, bazaar.broken = 4, True
        before = me.prices()
        (broken,) = me.type("broken")
        assert broken.returncode == 3, broken
        assert me.prices() == before

        # Mended: from the archive, without a request.
        asked = len(bazaar.log)
        mended = me.type("mended")
        assert [one.returncode for one in mended] == [0, 0, 0], mended
        assert len(bazaar.log) == asked
        assert me.prices() == bazaar.sold()

"""Crawlers as users run them: the real command in processes of their own, in a project folder of the test."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from gossamer.model.item_account import STATES
from tests.patience import PATIENCE

SPIDER = """
import json, os
from gossamer import Item, Page, Spider

class Plant(Item, key="sku"):
    sku: str
    title: str
    price: str

class Park(Spider):
    start_urls = json.loads(os.environ["PARK_SEEDS"])

    def parse(self, page: Page):
        yield Plant(
            url=page.url,
            sku=page.css(".sku::text").get(),
            title=page.css("h1::text").get(),
            price=page.css(".price::text").get(),
        )
        yield from page.follow_all("a")
"""

# What is slow here is slow on purpose or for want of a core: nothing is given up for it.
ENDED = (0, 3, 6)  # exit codes of a crawl that is over: done, with dead letters, at its limit
PATIENT = 'read_timeout = "10m"\ntotal_timeout = "10m"\nconnect_timeout = "1m"\n'


class Project:
    """A folder with gossamer.toml and the park's spider."""

    def __init__(self, folder: Path, seeds: list[str], settings: str = "", *, authority: Path | None = None) -> None:
        self.folder = folder
        (folder / "spiders").mkdir(parents=True, exist_ok=True)
        (folder / "spiders" / "park.py").write_text(SPIDER)
        (folder / "gossamer.toml").write_text(f"{settings}\n[fetch]\nallow_private = true\n{PATIENT}")
        self._environment = {**os.environ, "PARK_SEEDS": json.dumps(seeds)}
        if authority is not None:
            self._environment["SSL_CERT_FILE"] = str(authority)

    def start(self, *flags: str, spider: str = "park", **environment: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "gossamer", "crawl", spider, "--quiet", *flags],
            cwd=self.folder,
            env=self._environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def finish(self, *flags: str, within: float = PATIENCE) -> None:
        """Crawl to the end. Fails with the crawler's own words."""
        process = self.start(*flags)
        wait_for(process, within)

    def sql(self, file: str, query: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.folder / "gossamer-data" / file) as connection:
            rows = connection.execute(query).fetchall()
        connection.close()
        return rows

    def records(self) -> dict[str, dict[str, Any]]:
        """Every stored record by key; fails when a key is stored twice."""
        rows = self.sql("records.db", "SELECT key, data FROM records")
        assert len(rows) == len({key for key, _ in rows})
        return {key: json.loads(data) for key, data in rows}

    def assert_sound(self) -> None:
        """Both files are whole, and the states of all URLs add up to what was discovered."""
        for file in ("state.db", "records.db"):
            assert self.sql(file, "PRAGMA integrity_check") == [("ok",)]
        states = Counter(dict(self.sql("state.db", "SELECT state, count(*) FROM url_list GROUP BY state")))
        counted = self.sql(
            "state.db",
            "SELECT sum(discovered), sum(duplicates), sum(queued), sum(waiting), sum(leased), sum(done), "
            "sum(unchanged), sum(dropped), sum(dead) FROM jobs",
        )[0]
        names = ("queued", "waiting", "leased", "done", "unchanged", "dropped", "dead")
        assert dict(zip(names, counted[2:], strict=True)) == {name: states[name] for name in names}
        assert counted[0] == counted[1] + sum(states.values())
        assert self.sql("state.db", "SELECT sum(in_flight) FROM sites") == [(states["leased"],)]
        # A page that was done twice, because its worker died before it could settle it, says so the second time.
        first = "SELECT job, url FROM attempts WHERE outcome = 'done' AND reason = '' GROUP BY 1, 2 HAVING count(*) > 1"
        assert self.sql("records.db", first) == []
        # Items add up as URLs do, and each record was new once.
        item_states = " + ".join(f"sum({state})" for state in STATES)
        yielded, accounted, new = self.sql(
            "records.db", f"SELECT sum(yielded), {item_states}, sum(new) FROM item_counts"
        )[0]
        assert yielded == accounted
        assert self.sql("records.db", "SELECT count(*) FROM records") == [(new,)]


def wait_for(process: subprocess.Popen[bytes], within: float = PATIENCE) -> None:
    try:
        said, _ = process.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
        raise AssertionError(f"The crawl did not end within {within} s. It said: {said.decode()[-2000:]}") from None
    assert process.returncode in ENDED, said.decode()[-4000:]


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9, and no word with anybody."""
    process.send_signal(signal.SIGKILL)
    process.communicate()

"""A team's own Celery app: its tasks crawl, end by the clock, tell about jobs and fetch pages. Witness: the site's log.

The tasks run in this process, as a worker of the pool `solo` runs them; with real brokers: tests/faults/test_celery.py.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from celery import Celery, signals
from celery.exceptions import Retry

from gossamer.compat.celery import attach, stopping
from gossamer.errors import Misconfigured
from gossamer.project.jobs.api_requests import BadRequest
from tests.journey.commands import gossamer
from tests.server.serving import SPIDER
from tests.sites.running import Park, park

PAGES = 12
TOML = """
[fetch]
allow_hosts = ["site0.localhost"]
connect_timeout = "60s"
read_timeout = "60s"
total_timeout = "100s"
[politeness]
rate = "{rate}"
concurrency = 8
"""
NIGHTLY = """
[schedules.nightly]
spider = "things"
every = "24h"
"""


@pytest.fixture
def site() -> Iterator[Park]:
    with park(pages=PAGES) as opened:
        yield opened


class Shop:
    """A project folder with a spider, and an app with the project's tasks beside its own."""

    def __init__(self, folder: Path, site: Park, name: str, rate: str = "unlimited", **terms: Any) -> None:
        self.folder = folder
        (folder / "spiders").mkdir()
        (folder / "spiders/things.py").write_text(SPIDER.format(start=site.url()))
        (folder / "gossamer.toml").write_text(TOML.format(rate=rate))
        self.app = Celery(name, broker="memory://", set_as_current=False)
        self.app.conf.task_default_queue = name  # brokers in memory are one

        @self.app.task(name="report", shared=False)
        def report(job: dict[str, Any]) -> None: ...

        own = {"on_finished": self.app.tasks["report"].s()} if terms.pop("reports", False) else {}
        self.tasks = attach(self.app, folder=folder, **own, **terms)

    def ask(self, task: str, *words: Any, **options: Any) -> Any:
        return getattr(self.tasks, task).apply(args=words, kwargs=options, throw=True).get()

    def messages(self) -> list[dict[str, Any]]:
        """The reports that wait at the broker; they are taken from there."""
        found = []
        with self.app.connection_for_read() as line, line.SimpleQueue(self.app.conf.task_default_queue) as queue:
            while True:
                try:
                    message = queue.get(block=False)
                except Empty:
                    return found
                message.ack()
                ((job,), _, _) = message.payload
                found.append(job)

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in asyncio.run(gossamer(self.folder, "export")).out.splitlines()]


def asked(site: Park) -> Counter[str]:
    return Counter(hit.path for hit in site.hits())


@pytest.mark.long
def test_a_crawl_by_tasks_is_whole_and_its_end_is_told_once(tmp_path: Path, site: Park) -> None:
    shop = Shop(tmp_path, site, "told", reports=True)
    job = shop.ask("enqueue", "things")["job_id"]
    assert shop.ask("tick")["messages"] == 0  # it runs

    done = shop.ask("work", seconds=60)
    assert (done["pages"], done["failed"], done["ended"]) == (PAGES, 0, "idle")
    assert set(asked(site).values()) == {1}
    assert len(shop.records()) == PAGES

    assert [shop.ask("tick")["messages"] for _ in range(2)] == [1, 0]
    (report,) = shop.messages()
    assert (report["id"], report["outcome"], report["records"]) == (job, "done", PAGES)
    assert shop.ask("work", seconds=60)["pages"] == 0  # nothing is left


@pytest.mark.long
def test_a_slice_ends_with_its_time_and_the_next_goes_on_where_it_was(tmp_path: Path, site: Park) -> None:
    shop = Shop(tmp_path, site, "sliced", rate="4/s")
    shop.ask("enqueue", "things", on_finished={"task": "report", "args": [], "kwargs": {}, "options": {}})

    slices = [shop.ask("work", seconds=1)]
    while slices[-1]["ended"] != "idle":
        slices.append(shop.ask("work", seconds=1))

    assert [one["ended"] for one in slices[:-1]] == ["time"] * (len(slices) - 1)
    assert len(slices) > 2
    assert sum(one["pages"] for one in slices) == PAGES
    assert set(asked(site).values()) == {1}
    shop.ask("tick")
    assert len(shop.messages()) == 1


@pytest.mark.long
def test_a_worker_that_shuts_down_ends_its_slice_early(
    tmp_path: Path, site: Park, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "_shared", bytearray(1))  # what a worker's children would see
    shop = Shop(tmp_path, site, "stopped", rate="1/m")
    shop.ask("enqueue", "things")
    signals.worker_shutting_down.send(sender="celery@here", sig="SIGTERM", how="Warm", exitcode=0)

    done = shop.ask("work", seconds=3600)

    assert done["ended"] == "told"
    assert done["pages"] <= 1


@pytest.mark.long
def test_a_page_is_returned_by_its_task_and_one_that_is_late_is_asked_for_again(tmp_path: Path, site: Park) -> None:
    shop = Shop(tmp_path, site, "scraped")
    page = shop.ask("scrape", site.url(path="/page/1"), formats=["html"])
    assert (page["url"], page["status_code"]) == (site.url(path="/page/1"), 200)
    with park(pages=2, latency_ms=3_000) as slow, pytest.raises(Retry, match="did not arrive within 1 s"):
        shop.ask("scrape", slow.url(path="/page/1"), timeout=1)


def test_a_schedule_that_is_due_begins_with_the_tick_and_once(tmp_path: Path, site: Park) -> None:
    shop = Shop(tmp_path, site, "ticked")
    (tmp_path / "gossamer.toml").write_text(TOML.format(rate="unlimited") + NIGHTLY)
    ticks = [shop.ask("tick") for _ in range(2)]
    assert [tick["led"] for tick in ticks] == [True, True]
    (job,) = ticks[0]["begun"] + ticks[1]["begun"]
    assert job.startswith("nightly-")


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"on_finished": {"task": 7}}, "the signature of one task"),
        ({"on_finished": {"task": "report", "subtask_type": "chain"}}, "the signature of one task"),
        ({"on_finished": {"task": "report", "args": ["x" * 100_000]}}, "longer than"),
        ({"limit": "many"}, "limit"),
        ({"spider": "nobody"}, "nobody"),
    ],
)
def test_a_wish_that_cannot_be_met_begins_no_job(tmp_path: Path, site: Park, wish: Any, words: str) -> None:
    shop = Shop(tmp_path, site, "refused")
    with pytest.raises((Misconfigured, BadRequest), match=words):
        shop.ask("enqueue", **{"spider": "things", **wish})
    assert shop.ask("work", seconds=60)["pages"] == 0
    assert site.hits() == []

"""Celery with two Beats, workers that are killed and a broker that crashes: nothing lost, nothing double, rates held.

The witness of loss and pace is the log of the crawled site.
"""

from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.docs.manual import ROOT, blocks_of
from tests.faults.commands import Command, CommandProject, until
from tests.services.rabbitmq import RabbitServer, running_rabbit
from tests.services.valkey import ValkeyServer, running_valkey
from tests.sites.running import park

pytestmark = pytest.mark.long

PAGES, HOSTS = 30, 2
RATE = 5.0  # pages a second of each site
TOLERANCE = 0.005  # seconds
APP = """
import os
from pathlib import Path
from celery import Celery
from gossamer.compat.celery import attach

app = Celery("park", broker=os.environ["BROKER"])
app.conf.broker_connection_retry_on_startup = True
app.conf.task_acks_late = True

@app.task(name="note", acks_late=True)
def note(job):
    with Path("notes.txt").open("a") as file:
        file.write(f"{job['id']} {job['state']} {note.request.id}\\n")

attach(app, slices={"http": 2}, seconds=6, every=1, tick_every=1, on_finished=note.s())
"""
Broker = tuple[str, ValkeyServer | RabbitServer]


@contextmanager
def broker_of(kind: str) -> Iterator[Broker]:
    if kind == "redis":
        with running_valkey("--appendonly", "yes", "--appendfsync", "always") as valkey:
            yield valkey.address(), valkey
    else:
        with running_rabbit() as rabbit:
            yield rabbit.address, rabbit


class CeleryProject(CommandProject):
    """The park's project, crawled by an app of Celery."""

    def __init__(self, folder: Path, seeds: list[str], broker: str) -> None:
        settings = f"""
[schedules.park]
spider = "park"
every = "6h"
[politeness]
rate = "{RATE:g}/s"
"""
        super().__init__(folder, seeds, settings)
        (folder / "park_tasks.py").write_text(APP)
        self.environ["BROKER"] = broker

    def celery(self, *words: str) -> Command:
        return self.run_under([], "-A", "park_tasks", *words, module="celery")

    def worker(self, name: str) -> Command:
        return self.celery(
            "worker", "-Q", "gossamer,gossamer.http,celery", "-c", "2", "-n", f"{name}@%h", "-l", "info",
            "--without-gossip", "--without-mingle",
        )  # fmt: skip

    def notes(self) -> list[str]:
        file = self.folder / "notes.txt"
        return file.read_text().splitlines() if file.exists() else []


def kill(worker: Command) -> None:
    """A worker and its children at once, as when a machine goes away."""
    for pid in (worker.pid, *worker.children()):
        os.kill(pid, signal.SIGKILL)
    worker.process.wait()


@pytest.mark.parametrize("kind", ["redis", "rabbitmq"])
def test_nothing_is_lost_or_double_when_workers_and_the_broker_die(tmp_path, kind):
    with broker_of(kind) as (address, server), park(pages=PAGES, hosts=HOSTS, links=6) as site:
        project = CeleryProject(tmp_path, site.seeds(), address)
        try:
            # given two Beats, two workers, and a schedule that is due
            beats = [project.celery("beat", "-s", f"beat-{number}", "--pidfile=") for number in (1, 2)]
            first, second = project.worker("first"), project.worker("second")
            crew = (first, second, *beats)
            until(lambda: len(site.hits()) >= 10, *crew)

            # when a worker is killed, then the children of another, then the broker
            kill(first)
            third = project.worker("third")
            until(lambda: len(site.hits()) >= 20, third, *crew)
            for child in second.children():
                os.kill(child, signal.SIGKILL)
            until(lambda: len(site.hits()) >= 30, third, *crew)
            server.kill()
            server.start()

            # then the run ends, is told once, and one tick began it
            until(lambda: len(project.notes()) >= 1, second, third, *beats)
            jobs = project.json("status")
            assert [job["name"] for job in jobs] == ["park"]
            third.signal(signal.SIGTERM)
            second.signal(signal.SIGTERM)
            assert (third.ended(), second.ended()) == (0, 0)
            assert [line.split()[:2] for line in project.notes()] == [[jobs[0]["id"], "finished"]]
            (callback,) = project.json("callbacks", "list")
            assert (callback["state"], callback["tries"]) == ("delivered", 1)

            # and all records are there once
            truth = site.truth()
            lines = project.done("export", "-o", "-", "--format", "jsonl").splitlines()
            found = [json.loads(line)["sku"] for line in lines if line.startswith("{")]
            assert sorted(found) == sorted(truth)

            # and the sites saw no two requests closer together than they allow
            moments = defaultdict(list)
            for hit in site.hits(robots=True):
                moments[hit.host].append(hit.at)
            gaps = [after - before for times in moments.values() for before, after in pairwise(sorted(times))]
            assert min(gaps) >= 1 / RATE - TOLERANCE
        finally:
            project.close()


def test_the_example_of_the_manual_runs_as_it_is_written(tmp_path):
    blocks = blocks_of(ROOT / "docs" / "celery.md")
    tasks = next(block.code for block in blocks if block.title == "shop_tasks.py")
    commands = next(one.code for one in blocks if one.language == "sh" and "shop_tasks" in one.code).splitlines()
    calls = next(block.code for block in blocks if block.language == "python" and not block.title)
    with running_valkey() as broker, park(pages=6, hosts=1, links=3) as site:
        project = CommandProject(tmp_path, site.seeds(), "")
        host = urlsplit(site.seeds()[0]).hostname
        settings = (tmp_path / "gossamer.toml").read_text()
        (tmp_path / "gossamer.toml").write_text(settings.replace("[fetch]", f'[fetch]\nallow_hosts = ["{host}"]'))
        (tmp_path / "shop_tasks.py").write_text(tasks.replace("redis://127.0.0.1:6379/1", broker.address()))
        calls = calls.replace('"lamps"', '"park"').replace("https://shop.example/", site.seeds()[0])
        (tmp_path / "calls.py").write_text(f"{calls}\nprint('came', len(page['data']['markdown']))\n")
        try:
            words = [command.partition("#")[0].split()[1:] for command in commands if command]
            crew = [project.run_under([], *each, module="celery") for each in words]
            called = project.run_under([], module="calls")
            assert called.ended() == 0, called.said()
            assert "came " in called.said()
            until(lambda: any("done" in one.said() and "park-" in one.said() for one in crew), *crew)
        finally:
            project.close()


def test_one_line_runs_a_project_with_its_schedules(tmp_path):
    """The ready-made app: Beat and a worker in one command, with no Python of the project's."""
    with broker_of("redis") as (address, _), park(pages=10, hosts=1, links=4) as site:
        project = CeleryProject(tmp_path, site.seeds(), address)
        (tmp_path / "park_tasks.py").unlink()
        project.environ["CELERY_BROKER_URL"] = address
        worker = project.run_under(
            [], "-A", "gossamer.compat.celery", "worker", "-B", "-c", "4", "-l", "info", module="celery"
        )

        def ended():
            jobs = project.json("status")
            return bool(jobs) and jobs[0]["state"] == "finished"

        until(ended, worker)
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0

        assert [job["name"] for job in project.json("status")] == ["park"]
        lines = project.done("export", "-o", "-", "--format", "jsonl").splitlines()
        found = [json.loads(line)["sku"] for line in lines if line.startswith("{")]
        assert sorted(found) == sorted(site.truth())

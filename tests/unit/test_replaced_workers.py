"""Which workers are off the list because another one took their place, and which are dead, frozen or just silent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from gossamer.backends.worker_names import fate_of
from gossamer.crawl.heartbeat import Heartbeat, Vitals, replaced
from gossamer.frontier.contract import Fate, WorkerCard
from gossamer.project.open import open_project
from gossamer.project.workers.workers import list_workers
from tests.journey.crawling import settings_for
from tests.patience import until

NOW = 1_800_000_000.0


def card(name, seen=0.0, started=-900.0, **fields):
    host, pid, _ = name.split("/")
    return WorkerCard(
        name=name, host=host, pid=int(pid), version="1", started_at=NOW + started, seen_at=NOW + seen, **fields
    )


def gone(*names):
    return lambda name: Fate.GONE if name in names else Fate.UNKNOWN


def test_each_later_start_takes_the_place_of_one_that_is_gone():
    cards = [card("a/1/x", -60), card("b/2/x", -50), card("c/3/x", started=-40)]
    assert replaced(cards, NOW, gone()) == {"a/1/x": "c/3/x"}
    assert replaced([*cards, card("c/4/x", started=-30)], NOW, gone()) == {"a/1/x": "c/3/x", "b/2/x": "c/4/x"}


def test_one_that_has_replaced_another_replaces_no_more():
    assert replaced([card("a/1/x", -60), card("c/3/x", started=-40, instead_of="b/2/x")], NOW, gone()) == {}


def test_one_that_died_again_stands_for_the_one_that_it_replaced():
    cards = [card("a/1/x", -90), card("a/2/x", -60, started=-80)]
    assert replaced(cards, NOW, gone()) == {"a/1/x": "a/2/x"}


def test_a_worker_of_other_routes_or_that_ran_before_takes_no_place():
    assert replaced([card("a/1/x", -60), card("b/2/x", started=-40, serves="browser")], NOW, gone()) == {}
    assert replaced([card("a/1/x", -60), card("b/2/x", started=-70)], NOW, gone()) == {}


def test_one_that_is_known_to_be_dead_is_replaced_at_once_and_one_that_was_heard_just_now_is_not():
    cards = [card("a/1/x", -2), card("b/2/x", started=-1)]
    assert replaced(cards, NOW, gone()) == {}
    assert replaced(cards, NOW, gone("a/1/x")) == {"a/1/x": "b/2/x"}


def test_a_frozen_one_stays_on_the_list():
    cards = [card("a/1/x", -60), card("a/2/x", started=-40, frozen="a/1/x")]
    assert replaced(cards, NOW, gone()) == {}


@pytest.fixture
def sleeper():
    """A process that does nothing, and the name that a worker in it would have."""
    code = "from gossamer.backends.worker_names import worker_name; print(worker_name(), flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


async def test_a_process_that_was_stopped_is_frozen_and_one_that_was_killed_is_dead(tmp_path, sleeper):
    process, name = sleeper
    os.kill(process.pid, signal.SIGSTOP)
    async with open_project(settings_for(tmp_path)) as project:
        host, pid, _ = name.split("/")
        now = project.clock.now()
        lost = WorkerCard(name=name, host=host, pid=int(pid), version="1", started_at=now - 90, seen_at=now - 59)
        far = WorkerCard(name="far/1/2-3", host="far", pid=1, version="1", started_at=now - 90, seen_at=now - 60)
        await project.state.workers.beat(lost)
        await project.state.workers.beat(far)
        fates = {one.name: (one.missing, one.fate) for one in await list_workers(project)}
        assert fates == {name: (True, "frozen"), "far/1/2-3": (True, "silent")}

        # another worker of the machine tells everybody that it is frozen, and takes the place of the silent one
        book = project.state.workers
        async with Heartbeat(book, project.clock, name=project.worker, vitals=Vitals, fate_of=fate_of):
            await until(lambda: _names(project, {name, project.worker}), every=0.1)
            process.kill()
            process.wait()
            assert {one.name: one.fate for one in await list_workers(project)} == {name: "dead", project.worker: ""}


async def _names(project, wanted):
    return {one.name for one in await project.state.workers.workers()} == wanted

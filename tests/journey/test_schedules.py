"""`gossamer up` on a schedule of every second: what the site's own log says, and what is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter

import pytest

from tests.faults.commands import Command, CommandProject, is_alive, until
from tests.sites.running import park

PAGES = 3
SPIDER = """
from gossamer import Page, Spider

class Still(Spider):
    def parse(self, page: Page):
        return []
"""
SETTINGS = """
[politeness]
rate = "unlimited"

[schedules.pulse]
spider = "still"
every = "1s"
urls = ["{url}"]
"""


@pytest.fixture
def site():
    with park(pages=PAGES + 1) as site:  # one more is its front gate
        yield site


@pytest.fixture
def project(tmp_path, site):
    made = CommandProject(tmp_path / "p", [], SETTINGS.format(url=site.url(0, f"/page/{{1..{PAGES}}}")))
    (made.folder / "spiders" / "still.py").write_text(SPIDER)
    yield made
    made.close()


def jobs(project: CommandProject, state: str) -> int:
    return int(project.sql("state.db", f"SELECT count(*) FROM jobs WHERE state = '{state}'")[0][0])


def skipped(project: CommandProject) -> int:
    ((progress,),) = project.sql("state.db", "SELECT progress FROM schedules")
    return int(json.loads(progress)["skipped"])


def pids_of(up: Command) -> set[int]:
    return {up.pid, *up.children()}


def test_a_crawl_begins_no_run_of_a_schedule_and_names_the_command_that_does(project, site):
    said = project.run("crawl", site.url(0), "--depth", "1")
    assert said.ended() == 0, said.said()
    assert "Schedules run with `gossamer up`" in said.said()
    assert project.sql("state.db", "SELECT count(*) FROM jobs WHERE name = 'pulse'") == [(0,)]


@pytest.mark.long
def test_every_tick_fetches_every_page_once_until_the_schedule_rests_and_nothing_is_left_behind(project, site):
    # given a scheduler and a worker, and a few ticks
    up = project.run("up")
    until(lambda: "this scheduler leads" in up.said(), up)
    until(lambda: jobs(project, "finished") >= 2, up)
    # when the schedule is let rest
    assert "is paused" in project.done("schedule", "pause", "pulse")
    until(lambda: jobs(project, "running") == 0, up)
    begun, before = jobs(project, "finished"), skipped(project)

    # then its ticks pass and begin nothing, and for each job before the site saw each page once
    until(lambda: skipped(project) >= before + 1, up)
    assert jobs(project, "finished") == begun
    assert jobs(project, "running") == 0
    assert Counter(hit.path for hit in site.hits()) == {f"/page/{n + 1}": begun for n in range(PAGES)}
    said = up.said()
    assert "A scheduler, 1 worker and the HTTP server for" in said
    assert len(re.findall(r"scheduler \d+: pulse: pulse-\d+ started", said)) == begun
    assert len(re.findall(r"worker \d+: pulse-\d+ ended: done", said)) == begun

    # and when the scheduler is killed, that is told and another one is to come
    (scheduler,) = {int(pid) for pid in re.findall(r"scheduler (\d+): this scheduler leads", said)}
    everybody = pids_of(up)
    assert scheduler in everybody
    assert len(everybody) == 4  # `up`, the scheduler, a worker, the HTTP server
    os.kill(scheduler, signal.SIGKILL)
    until(lambda: f"Scheduler {scheduler} was ended by SIGKILL. Another one starts in 1 s." in up.said(), up)

    # and SIGTERM ends all of them
    everybody |= pids_of(up)
    up.signal(signal.SIGTERM)
    assert up.ended() == 0, up.said()
    assert [pid for pid in everybody if is_alive(pid)] == []
    assert "Traceback" not in up.said()

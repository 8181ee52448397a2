"""Budgets are hard, whoever spends and whoever dies. Witness: the target's own log."""

from __future__ import annotations

import random
import signal

import pytest

from tests.faults.commands import CommandProject, until
from tests.sites.running import park

pytestmark = pytest.mark.long

BUDGET = 120
SETTINGS = (
    f'[politeness]\nrate = "unlimited"\nrobots = false\n[crawl]\nconcurrency = 16\n[router]\nbudget_job = {BUDGET}\n'
)


@pytest.fixture
def site():
    with park(hosts=5, pages=60, body_bytes=1000, links=20, latency_ms=20) as site:
        yield site


@pytest.fixture
def project(tmp_path, site):
    project = CommandProject(tmp_path, site.seeds(), SETTINGS)
    yield project
    project.close()


def spent(project) -> int:
    return sum(credits for (credits,) in project.sql("state.db", "SELECT spent FROM budgets")) // 10**9


def is_at_rest(project, crew) -> bool:
    """Everybody has joined, and whatever is left waits."""
    if not all("park-1" in worker.said() for worker in crew):
        return False
    open_ = project.sql("state.db", "SELECT count(*) FROM url_list WHERE state IN ('queued', 'leased')")
    return open_ == [(0,)] and spent(project) == BUDGET


def test_four_workers_together_never_pass_a_budget_and_spend_all_of_it(project, site):
    # given a job whose pages wait when its budget is spent, and four processes that share it
    crew = [project.run("crawl", "park") for _ in range(4)]
    until(lambda: is_at_rest(project, crew), *crew)

    for worker in crew:
        worker.signal(signal.SIGTERM)
    assert {worker.ended() for worker in crew} == {130}

    # then it was told, and exactly as many requests were made as could be paid
    assert len(site.hits(robots=True)) == BUDGET
    assert len(project.records()) == BUDGET
    assert any("budget of this job" in worker.said() for worker in crew)
    assert spent(project) == BUDGET
    assert project.sql("state.db", "SELECT count(*) FROM url_list WHERE state = 'dead'") == [(0,)]
    project.assert_sound()


def test_workers_that_die_with_tokens_taken_waste_them_and_never_more(project, site):
    chance = random.Random(4)
    crew = [project.run("crawl", "park") for _ in range(4)]
    for goal in (20, 50, 80):
        until(lambda goal=goal: len(site.hits()) >= goal, *crew)
        place = chance.randrange(4)
        crew[place].signal(signal.SIGKILL)
        crew[place].ended()
        crew[place] = project.run("crawl", "park")
    until(lambda: is_at_rest(project, crew), *crew)
    for worker in crew:
        worker.signal(signal.SIGTERM)
    assert {worker.ended() for worker in crew} == {130}

    # then a request that was made is paid; one that was paid may not have been made
    assert len(site.hits(robots=True)) <= BUDGET
    assert spent(project) == BUDGET
    project.assert_sound()

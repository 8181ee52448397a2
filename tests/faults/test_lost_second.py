"""A Valkey server that dies and comes back without its last writes: the sites' log shows neither haste nor a crowd."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from itertools import pairwise

import pytest

from gossamer.frontier.contract import JobTerms
from gossamer.project.open import open_project
from gossamer.settings import load
from tests.faults.fleet import FleetProject, poll_until, wait_for_all, workers
from tests.services.valkey import running_valkey
from tests.sites.running import park

pytestmark = pytest.mark.long

INTERVAL = 1.0  # seconds
LATE = 0.02  # seconds, see test_politeness.py
SLOTS = 2  # requests of a site under way
LOST = 25  # requests that the server forgets, about


def crawl_with_power_cuts(folder, site, politeness):
    """Three workers; three times the server comes back as it was some requests earlier."""
    with running_valkey() as valkey:
        project = FleetProject(
            folder,
            site,
            state=valkey.address(),
            records="sqlite:///gossamer-data/records.db",
            settings='[lease]\nduration = "10s"\nmax_deliveries = 30',
            politeness=politeness,
        )
        with workers(*project.crew(3)) as crew:
            for _ in range(3):
                goal = len(site.hits()) + LOST
                poll_until(lambda goal=goal: len(site.hits()) >= goal, crew)
                assert "OK" in valkey.say("SAVE")
                poll_until(lambda goal=goal: len(site.hits()) >= goal + LOST, crew)
                valkey.kill()
                valkey.start()
            wait_for_all(crew)
        return project.outcome()


def assert_whole(site, outcome):
    truth = site.truth()
    assert {record.key for record in outcome.records} == truth.keys()
    assert (outcome.counts.done, outcome.counts.open, outcome.counts.dead) == (len(truth), 0, 0)


def test_no_request_is_early_after_the_state_forgot_the_last_ones(tmp_path):
    with park(hosts=12, pages=20, latency_ms=200, robots="User-agent: *\nDisallow:") as site:
        outcome = crawl_with_power_cuts(tmp_path, site, 'rate = "1/s"\nconcurrency = 4')

        times = defaultdict(list)
        for hit in site.hits(robots=True):
            times[hit.host].append(hit.at)
        gaps = [later - earlier for seen in times.values() for earlier, later in pairwise(sorted(seen))]
        assert min(gaps) >= INTERVAL - LATE
        assert_whole(site, outcome)


def test_no_site_has_more_requests_under_way_than_it_may(tmp_path):
    with park(hosts=6, pages=60, latency_ms=700) as site:
        outcome = crawl_with_power_cuts(tmp_path, site, f'rate = "unlimited"\nconcurrency = {SLOTS}')

        assert max(hit.in_progress for hit in site.hits()) <= SLOTS
        assert_whole(site, outcome)


@pytest.mark.parametrize("schedule", ["", "nightly"])
def test_seeds_that_the_state_forgot_enter_again(tmp_path, schedule):
    # given a server that will come back with a job of which no seed had entered
    async def begin_job():
        async with open_project(load(start=tmp_path, environ={})) as project:
            job, _ = await project.state.jobs.open_job("park", JobTerms(schedule=schedule), fresh=False)
            await project.state.frontier.lease(job.id, project.worker, 1)  # by this a restart is noticed

    with running_valkey() as valkey, park(hosts=2, pages=12, latency_ms=100) as site:
        records = "sqlite:///gossamer-data/records.db"
        lease = '[lease]\nduration = "2s"\n'
        project = FleetProject(tmp_path, site, state=valkey.address(), records=records, settings=lease, concurrency=2)
        asyncio.run(begin_job())
        assert "OK" in valkey.say("SAVE")

        with workers(project.start()) as crew:
            poll_until(lambda: len(site.hits()) > 3, crew)
            valkey.kill()
            valkey.start()
            wait_for_all(crew)

        assert_whole(site, project.outcome())

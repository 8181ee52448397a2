"""One machine of a fleet is at fault: its clock, or its name server. The others do its work, as the site's log says."""

from __future__ import annotations

import asyncio
import glob
import signal
import time
from pathlib import Path

import pytest

from gossamer.clock import SystemClock
from gossamer.frontier.contract import WorkerCard
from gossamer.project.open import open_project
from gossamer.project.upkeep.doctor import Level, examine
from gossamer.settings import load
from tests.faults.fleet import FleetProject, assert_whole, own_services, poll_until, wait_for_all, workers
from tests.sites.running import park

pytestmark = pytest.mark.long

FAKETIME = next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), "")
SITE = {"hosts": 4, "pages": 100, "latency_ms": 20, "body_bytes": 1500, "links": 5}
PAGES = 400


@pytest.fixture
def fleet(s3):
    with own_services(s3) as services:
        yield services


def cards_of(project: FleetProject) -> dict[str, WorkerCard]:
    """By machine."""

    async def look() -> dict[str, WorkerCard]:
        async with open_project(load(start=project.folder, environ={}), to_look=True) as system:
            return {card.host: card for card in await system.state.workers.workers()}

    return asyncio.run(look())


@pytest.mark.skipif(not FAKETIME, reason="libfaketime is not installed (apt-get install faketime)")
def test_a_machine_whose_clock_is_two_months_ahead_buries_nothing(tmp_path, fleet):
    with park(**SITE, tls=True) as site:
        project = fleet.project(tmp_path, site)
        ahead = {"LD_PRELOAD": FAKETIME, "FAKETIME": "+60d", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "MACHINE": "ahead"}
        # given a machine for whose clock every certificate is expired, and which is the first to be there
        wrong = project.start(command=("worker",), **ahead)
        with workers(wrong):
            poll_until(lambda: "ahead" in cards_of(project), [wrong])
            with workers(project.start(command=("crawl", "park"), MACHINE="right")) as crew:
                poll_until(lambda: len(site.hits()) > PAGES / 2, crew)
                card = cards_of(project)["ahead"]
                wait_for_all(crew)
            # then it has said so, and taken nothing
            assert card.state == "clock wrong"
            assert abs(card.clock_ahead - 60 * 86400) < 60
            assert card.done == 0
            wrong.signal(signal.SIGTERM)
            assert wrong.wait() == 0
        assert_whole(project, extra=0)


def test_pages_that_one_machine_cannot_look_up_are_fetched_by_another(tmp_path, fleet):
    with park(**SITE) as site:
        project = fleet.project(tmp_path, site, settings="[retry]\nmax_attempts = 1")
        # given a machine whose name server does not answer, and a healthy one
        with workers(project.start(command=("crawl", "park"), MACHINE="healthy")) as crew:
            poll_until(lambda: len(site.hits()) > 20 and "healthy" in cards_of(project), crew)
            crew.append(project.start("dns:100000", MACHINE="deaf"))
            wait_for_all(crew)
        # then no page was given up, though each has one attempt
        assert_whole(project, extra=0)
        # and the machine at fault took some, and not again and again
        schema = f"gossamer_{project.project.replace('-', '_')}"
        passed = fleet.postgres.sql(f"SELECT count(*) FROM {schema}.attempts WHERE reason = 'dns'")
        assert 0 < int(passed[0]) < PAGES / 2


async def test_doctor_compares_the_clock_with_the_states(valkey, tmp_path: Path, monkeypatch):
    (tmp_path / "gossamer.toml").write_text(f'project = "clocks"\nstate = "{valkey.address()}"\n')
    monkeypatch.chdir(tmp_path)
    for offset, level in ((0, Level.OK), (20, Level.WARN), (-86400, Level.FAIL)):
        monkeypatch.setattr(SystemClock, "now", staticmethod(lambda offset=offset: time.time() + offset))
        [found] = [one async for one in examine(tmp_path) if one.what == "clock"]
        assert found.level is level, found

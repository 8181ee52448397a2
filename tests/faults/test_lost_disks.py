"""What is lost with a disk, or for want of memory, and nothing more. Witnesses: the site's log and the stores."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.model.job import JobState
from gossamer.model.outcome import Outcome
from tests.faults.fleet import FleetProject, own_services, poll_until, wait_for_all, workers
from tests.faults.test_left_results import PAGES, SITE, all_settled, listed_workers, read
from tests.services.valkey import ValkeyServer, running_valkey
from tests.sites.running import Park, park

pytestmark = pytest.mark.long

RECORDS = "sqlite:///gossamer-data/records.db"


def project_on(valkey: ValkeyServer, folder: Path, site: Park, **options: str) -> FleetProject:
    return FleetProject(folder, site, state=valkey.address(), records=RECORDS, **options)


def crawl(project: FleetProject) -> None:
    with workers(project.start(command=("crawl", "park"))) as crew:
        wait_for_all(crew)


def whole(project: FleetProject) -> None:
    """Every record of the site is stored, once, and none is or was gone."""
    books = read(project)
    assert (books.job.ending, books.waiting) == ("done", 0)
    assert (books.records, books.gone, books.false_ends) == (PAGES, 0, 0)


def test_a_state_that_lost_everything_is_filled_again_by_the_next_crawl(tmp_path):
    with park(**SITE, validators=True) as site, running_valkey() as valkey:
        # given a fleet at work, and records of what it has done
        project = project_on(valkey, tmp_path, site)
        with workers(*project.crew(2)) as crew:
            poll_until(lambda: len(site.hits()) > PAGES // 2, crew)

            # when the server comes back with nothing at all
            valkey.kill()
            valkey.start()

            # then nobody works on a job that does not exist any more, and the crawl says so
            assert [worker.wait() for worker in crew] == [1, 0]
            assert "There is no job" in crew[0].said()
        asked = len(site.hits())

        # and the same command begins anew: what is in the records is not sent again in full, nothing is lost or doubled
        crawl(project)
        again = site.hits()[asked:]
        assert len(again) == PAGES
        assert sum(hit.status == 304 for hit in again) > PAGES // 4
        whole(project)


def test_a_state_without_memory_delays_pages_and_leaves_out_none(tmp_path):
    with park(**SITE) as site, running_valkey("--maxmemory-policy", "noeviction") as valkey:
        # given a second crawl under way, which could find records gone
        project = project_on(valkey, tmp_path, site, politeness='rate = "50/s"\nconcurrency = 4')
        crawl(project)
        before = len(site.hits())
        with workers(*project.crew(2)) as crew:
            poll_until(lambda: len(site.hits()) > before + PAGES // 8, crew)

            # when the server has no memory for a while: pages still come, and cannot be settled with their links
            valkey.say("CONFIG", "SET", "maxmemory", "1mb")
            starved = len(site.hits())
            crew.append(project.start())
            poll_until(lambda: len(site.hits()) > starved + 4, crew)
            valkey.say("CONFIG", "SET", "maxmemory", "0")
            wait_for_all(crew)

        # then nothing was left out, and nothing is or was gone
        ended = read(project).job.outcome
        assert (ended.outcome, ended.reasons) == (Outcome.DONE, ())
        assert {(hit.host, hit.path) for hit in site.hits()[before:]} == {(hit.host, hit.path) for hit in site.hits()}
        whole(project)


def test_a_spool_that_is_lost_with_its_disk_holds_its_job_until_it_is_given_up(tmp_path, s3):
    with own_services(s3) as fleet, park(**SITE) as site:
        # given results that wait on a disk, of workers that died
        project = fleet.project(tmp_path, site)
        with workers(*project.crew(2)) as crew:
            poll_until(lambda: len(site.hits()) > PAGES // 4, crew)
            fleet.postgres.kill()
            poll_until(lambda: all_settled(project), crew)
            for worker in crew:
                worker.kill()
        dead = {worker.name for worker in listed_workers(project)}
        assert read(project, records=False).waiting > 0

        # when that disk is lost, then the job does not end, though the store is back and a worker is there
        shutil.rmtree(tmp_path / "gossamer-data" / "spool")
        fleet.postgres.start()
        with workers(project.start(command=("worker",))) as crew:
            poll_until(lambda: any(one.name not in dead for one in listed_workers(project)), crew)
            assert read(project, records=False).job.state is JobState.RUNNING

            # and it ends when somebody gives the results up, with those records missing and none marked as gone
            poll_until(lambda: _command(project, "spool", "forget", socket.gethostname(), "--yes").returncode == 0)
            poll_until(lambda: read(project, records=False).job.state is JobState.FINISHED, crew)
        books = read(project)
        assert books.records < PAGES
        assert books.gone == 0

        # until they are crawled again
        crawl(project)
        whole(project)


def _command(project: FleetProject, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gossamer", *words], cwd=project.folder, env=project.environment, text=True,
        capture_output=True,
    )  # fmt: skip

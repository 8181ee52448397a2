"""Results that could not be stored when their pages were done: none is lost, none is taken for gone, and no job ends
before them. Witnesses: the record store with its history, the queue, and the log of the site."""

from __future__ import annotations

import asyncio
import signal

import msgspec
import pytest

from gossamer.model.job import Job, JobCounts, JobState
from gossamer.project.open import open_project
from gossamer.project.workers.workers import WorkerView, list_workers
from gossamer.settings import load
from gossamer.store.contract import RecordQuery
from tests.faults.fleet import FleetProject, assert_whole, own_services, poll_until, wait_for_all, workers
from tests.services.cable import cable_to
from tests.sites.running import park

pytestmark = pytest.mark.long

IN_FLIGHT = 16  # of one worker at most
PAGES = 400
SITE = {"hosts": 20, "pages": PAGES // 20, "latency_ms": 20, "body_bytes": 1500, "links": 5}
SLOWLY = 'rate = "1/s"\nconcurrency = 4'  # so that two workers share the work for some twenty seconds


@pytest.fixture
def fleet(s3):
    with own_services(s3) as services:
        yield services


class Books(msgspec.Struct):
    """What the project's books say. `false_ends` counts records whose history says that they were gone."""

    job: Job
    counts: JobCounts
    waiting: int  # results on disks, by the notes in the state
    records: int = 0
    gone: int = 0
    false_ends: int = 0


def read(project: FleetProject, *, records: bool = True) -> Books:
    async def look() -> Books:
        async with open_project(load(start=project.folder, environ={}), to_look=True) as system:
            job = (await system.state.jobs.jobs())[0]
            notes = await system.state.spools.notes()
            books = Books(
                job=job,
                counts=await system.state.jobs.counts(job.id),
                waiting=sum(note.results.get(job.id, 0) for note in notes),
            )
            if not records:
                return books
            books.records = await system.records.count(RecordQuery(job=job.id))
            books.gone = await system.records.count(RecordQuery(gone=True))
            async for record in system.records.records(RecordQuery()):
                history = await system.records.history(record.type, record.site, record.key)
                books.false_ends += any(version.gone for version in history)
            return books

    return asyncio.run(look())


def all_settled(project: FleetProject) -> bool:
    counts = read(project, records=False).counts
    return counts.open == 0 and counts.settled >= PAGES


def test_a_machine_that_is_cut_off_from_the_record_store_leaves_nothing_gone(tmp_path, fleet):
    with park(**SITE) as site, cable_to(fleet.postgres.port) as cable:
        # given a crawl that has seen everything
        project = fleet.project(tmp_path, site, concurrency=4, politeness=SLOWLY)
        with workers(project.start(command=("crawl", "park"), GOSSAMER_POLITENESS__RATE="unlimited")) as crew:
            wait_for_all(crew)

        # when one of two machines loses its line to the record store in the middle of the next
        there = {
            "GOSSAMER_RECORDS": f"postgresql://postgres@127.0.0.1:{cable.port}/postgres",
            "GOSSAMER_STORE__SPOOL": str(tmp_path / "there"),
        }
        with workers(project.start(command=("worker",), **there)) as crew:
            poll_until(lambda: len(listed_workers(project)) == 1, crew)
            crew.append(project.start(command=("crawl", "park")))
            poll_until(lambda: sum(one.done >= 1 for one in listed_workers(project)) == 2, crew)
            cable.cut()
            poll_until(lambda: all_settled(project), crew)

            # then the job does not end while results of it wait there, and no record is gone
            books = read(project)
            assert books.waiting > 0, "the machine that was cut off had nothing to store"
            assert books.job.state is JobState.RUNNING
            assert (books.gone, books.false_ends) == (0, 0)

            # and it ends when the line is back, with every record, and none that ever was gone
            cable.mend()
            wait_for_all(crew[1:])
            crew[0].signal(signal.SIGTERM)
            wait_for_all(crew[:1])
        books = read(project)
        assert (books.job.ending, books.waiting) == ("done", 0)
        assert (books.records, books.gone, books.false_ends) == (PAGES, 0, 0)


def listed_workers(project: FleetProject) -> list[WorkerView]:
    async def look() -> list[WorkerView]:
        async with open_project(load(start=project.folder, environ={}), to_look=True) as system:
            return await list_workers(system)

    return asyncio.run(look())


def test_results_that_wait_are_stored_when_the_store_is_back_whatever_runs(tmp_path, fleet):
    with park(**SITE) as site:
        # given a job whose pages were done while the record store was away
        project = fleet.project(tmp_path, site)
        with workers(project.start(command=("worker",))) as crew:
            poll_until(lambda: len(listed_workers(project)) == 1, crew)
            crawl = project.start(command=("crawl", "park"))
            crew.append(crawl)
            poll_until(lambda: len(site.hits()) > 100, crew)
            fleet.postgres.stop()
            poll_until(lambda: all_settled(project), crew)
            assert read(project, records=False).waiting > 0
            crawl.signal(signal.SIGTERM)
            assert crawl.wait() == 130
            assert " stay in " in crawl.said(), crawl.said()  # how many, and where, also with --quiet

            # when it is back, and the worker that is left has no page to fetch, and says that results wait with it
            poll_until(lambda: any(one.waiting and one.state == "storing" for one in listed_workers(project)), crew[:1])
            fleet.postgres.start()
            poll_until(lambda: read(project, records=False).job.state is not JobState.RUNNING, crew[:1])
            crew[0].signal(signal.SIGTERM)
            wait_for_all(crew[:1])

        # then everything is stored, and the job ended after that
        assert_whole(project, extra=2 * IN_FLIGHT)
        assert read(project).waiting == 0
        assert not list((tmp_path / "gossamer-data" / "spool").rglob("*.spool"))


def test_a_crawl_that_is_stopped_while_the_record_store_is_away_says_what_it_leaves(tmp_path, fleet):
    with park(**SITE) as site:
        project = fleet.project(tmp_path, site, politeness=SLOWLY)
        with workers(project.start(command=("crawl", "park"))) as crew:
            poll_until(lambda: len(site.hits()) > 20, crew)
            fleet.postgres.stop()
            poll_until(lambda: read(project, records=False).waiting > 0, crew)
            crew[0].signal(signal.SIGTERM)
            assert crew[0].wait() == 130, crew[0].said()
            assert " stay in " in crew[0].said(), crew[0].said()
        left = read(project, records=False)
        assert left.waiting > 0
        assert left.counts.open > 0

        # the same command goes on, and stores what was left
        fleet.postgres.start()
        with workers(project.start(command=("crawl", "park"), GOSSAMER_POLITENESS__RATE="unlimited")) as crew:
            wait_for_all(crew)
        assert_whole(project, extra=IN_FLIGHT)
        assert read(project).waiting == 0


def test_results_of_workers_that_were_killed_are_stored_by_the_next_start(tmp_path, fleet):
    with park(**SITE) as site:
        project = fleet.project(tmp_path, site)
        with workers(*project.crew(2)) as crew:
            poll_until(lambda: len(site.hits()) > 100, crew)
            fleet.postgres.kill()
            poll_until(lambda: all_settled(project), crew)
            for worker in crew:
                worker.kill()
        books = read(project, records=False)
        assert books.waiting > 0
        assert books.job.state is JobState.RUNNING

        fleet.postgres.start()
        with workers(project.start()) as crew:
            wait_for_all(crew)

        assert_whole(project, extra=2 * IN_FLIGHT)
        books = read(project)
        assert (books.job.ending, books.waiting, books.gone) == ("done", 0, 0)
        assert {one.name for one in (tmp_path / "gossamer-data" / "spool").iterdir()} == {"disk", "stores"}


def test_without_the_archive_pages_that_did_not_change_are_still_recognised(tmp_path, fleet):
    with park(**SITE, validators=True) as site, cable_to(int(fleet.s3.endpoint.rpartition(":")[2])) as cable:
        # given a crawl that has seen half of the site
        address = fleet.s3.address("alone").replace(fleet.s3.endpoint, f"http://127.0.0.1:{cable.port}")
        project = fleet.project(tmp_path, site, archive=address)
        with workers(project.start(command=("crawl", "park", "--limit", str(PAGES // 2)))) as crew:
            wait_for_all(crew)  # the limit that was named is reached
        known = {(hit.host, hit.path) for hit in site.hits()}
        seen = len(site.hits())

        # when the archive goes away in the next one, which is of the whole site
        with workers(project.start(command=("crawl", "park"))) as crew:
            poll_until(lambda: len(site.hits()) > seen, crew)
            cable.cut()
            poll_until(lambda: all_settled(project), crew)
            books = read(project)
            assert books.waiting > 0
            assert books.job.state is JobState.RUNNING
            cable.mend()
            wait_for_all(crew)

        # then the record store was asked what is known: no known page was sent again in full
        again = [hit for hit in site.hits()[seen:] if (hit.host, hit.path) in known]
        assert len(again) == len(known)
        assert {hit.status for hit in again} == {304}
        books = read(project)
        assert (books.job.ending, books.waiting, books.records, books.gone) == ("done", 0, PAGES, 0)

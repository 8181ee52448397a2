"""What dies, hangs or lies on a fleet, and that it costs nothing but repeated work. Witness: the target's own log."""

from __future__ import annotations

import random
import signal
import time
from collections import defaultdict
from itertools import pairwise

import pytest

from tests import patience
from tests.faults.fleet import assert_whole, own_services, poll_until, wait_for_all, workers
from tests.services.cable import cable_to
from tests.sites.running import park

pytestmark = pytest.mark.long

WORKERS = 4
CONCURRENCY = 8
IN_FLIGHT = 2 * CONCURRENCY  # of one worker at most: journeys that wait for long step aside for others
PAGES = 1200
SITE = {"hosts": 20, "pages": PAGES // 20, "latency_ms": 5, "body_bytes": 1500, "links": 5}
INTERVAL = 0.5  # seconds
AWAY = 1.0  # seconds between the death of a server and its next start
LATE = 0.02  # seconds, see test_politeness.py
POINTS = ("mid-fetch", "mid-parse", "mid-store", "before-settle", "after-settle")


@pytest.fixture
def fleet(s3):
    with own_services(s3) as services:
        yield services


def test_workers_that_die_at_every_named_point_and_at_random_lose_nothing(tmp_path, fleet):
    # given four workers, each replaced by another one with a fault of its own when it dies
    chance = random.Random(3)
    faults = [f"{point}:{chance.randrange(5, 60)}" for point in POINTS * 2]
    with park(**SITE) as site:
        project = fleet.project(
            tmp_path, site, archive=fleet.s3.address("killed"), settings="[lease]\nmax_deliveries = 30"
        )
        died = 0
        with workers(*project.crew(WORKERS, *(faults.pop() for _ in range(WORKERS)))) as crew:
            # when all of them have died, and some at moments that nobody chose
            while faults:
                poll_until(lambda: any(worker.code is not None for worker in crew))
                place = next(n for n, worker in enumerate(crew) if worker.code is not None)
                assert crew[place].code == -signal.SIGKILL, crew[place].said()
                died += 1
                crew[place] = project.start(faults.pop())
            for _ in range(4):
                goal = len(site.hits()) + chance.randrange(20, 100)
                poll_until(lambda goal=goal: len(site.hits()) >= goal)
                place = chance.randrange(WORKERS)
                crew[place].kill()
                died += 1
                crew[place] = project.start()
            for place in range(WORKERS):
                # Whoever still has a fault built in dies of it.
                if crew[place].wait() == -signal.SIGKILL:
                    died += 1
                    crew[place] = project.start()
            wait_for_all(crew)

        # then
        assert died >= len(POINTS) * 2
        assert_whole(project, extra=died * IN_FLIGHT)


def test_a_worker_that_slept_past_its_leases_settles_nothing(tmp_path, fleet):
    with park(**SITE) as site:
        project = fleet.project(tmp_path, site, settings='[lease]\nduration = "10s"')
        with workers(*project.crew(WORKERS)) as crew:
            poll_until(lambda: len(site.hits()) > 300, crew)
            sleeper = crew[0]
            sleeper.signal(signal.SIGSTOP)
            wait_for_all(crew[1:])
            before = project.outcome()
            sleeper.signal(signal.SIGCONT)
            wait_for_all([sleeper])

        after = assert_whole(project, extra=IN_FLIGHT)
        assert after.counts == before.counts


def test_a_killed_valkey_comes_back_with_all_that_was_settled(tmp_path, fleet):
    with park(**SITE) as site:
        # A page whose lease was given by an answer that never arrived comes back when the lease is over.
        project = fleet.project(tmp_path, site, settings='[lease]\nduration = "10s"')
        with workers(*project.crew(WORKERS)) as crew:
            for goal in (300, 700):
                poll_until(lambda goal=goal: len(site.hits()) > goal, crew)
                fleet.valkey.kill()
                time.sleep(AWAY)
                fleet.valkey.start()
            wait_for_all(crew)

        assert_whole(project, extra=2 * WORKERS * IN_FLIGHT)


def test_postgres_may_stop_and_die_while_the_crawl_goes_on(tmp_path, fleet):
    with park(**SITE) as site:
        project = fleet.project(tmp_path, site)
        with workers(*project.crew(WORKERS)) as crew:
            poll_until(lambda: len(site.hits()) > 300, crew)
            fleet.postgres.kill()  # in the middle of commits
            fetched = len(site.hits())
            poll_until(lambda: len(site.hits()) > fetched + 300, crew)  # journeys go on, results wait in the spool
            assert list((tmp_path / "gossamer-data" / "spool").rglob("*"))
            fleet.postgres.start()
            wait_for_all(crew)

        assert_whole(project, extra=WORKERS * IN_FLIGHT)


def test_a_spool_that_is_full_makes_fetching_wait(tmp_path, fleet):
    with park(**SITE) as site:
        project = fleet.project(tmp_path, site, settings='[store]\nspool_limit = "100KB"\nkeep_pages = false')
        with workers(*project.crew(2)) as crew:
            poll_until(lambda: len(site.hits()) > 300, crew)
            fleet.postgres.stop()
            # until the spools are full and nobody fetches any more
            patience.poll_until(patience.unchanged(lambda: len(site.hits())), every=2)
            assert len(site.hits()) < PAGES
            fleet.postgres.start()
            wait_for_all(crew)

        # Whoever found the spool full gives its page back and fetches it again later.
        extra = len(site.hits()) - PAGES
        assert_whole(project, extra=extra)
        assert extra <= 2 * 2 * IN_FLIGHT  # those in flight, not one more for each second that the store is away


def test_a_worker_cut_off_from_valkey_holds_nothing_up(tmp_path, fleet):
    with park(**SITE) as site, cable_to(fleet.valkey.port) as cable:
        project = fleet.project(tmp_path, site, settings='[lease]\nduration = "10s"')
        remote = f"redis://127.0.0.1:{cable.port}/0"
        with workers(*project.crew(3), project.start(GOSSAMER_STATE=remote)) as crew:
            poll_until(lambda: len(site.hits()) > 300, crew)
            cable.freeze()
            wait_for_all(crew[:3])
            cable.mend()
            wait_for_all(crew[3:])

        assert_whole(project, extra=IN_FLIGHT)


def test_a_worker_whose_clock_is_off_disturbs_nobody(tmp_path, fleet):
    with park(**SITE) as site:
        project = fleet.project(tmp_path, site)
        with workers(*project.crew(3, "clock:200", "clock:-200")) as crew:
            wait_for_all(crew)

        outcome = assert_whole(project, extra=0)
        assert all(abs(record.last_changed - time.time()) < 100 for record in outcome.records)


def test_an_archive_that_answers_500_is_waited_for(tmp_path, fleet):
    with park(**SITE) as site, cable_to(int(fleet.s3.endpoint.rpartition(":")[2])) as cable:
        address = fleet.s3.address("troubled").replace(fleet.s3.endpoint, f"http://127.0.0.1:{cable.port}")
        project = fleet.project(tmp_path, site, archive=address)
        with workers(*project.crew(WORKERS)) as crew:
            poll_until(lambda: len(site.hits()) > 300, crew)
            cable.answer(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            fetched = len(site.hits())
            poll_until(lambda: len(site.hits()) > fetched + 300, crew)
            assert cable.answered
            cable.mend()
            wait_for_all(crew)

        assert_whole(project, extra=WORKERS * IN_FLIGHT)


def test_sixteen_processes_keep_the_pace_of_two_hundred_sites(tmp_path, fleet):
    # given 200 sites with ten pages each, two requests a second allowed for each, and a restart in the middle
    with park(hosts=200, pages=10, body_bytes=1000, links=4) as site:
        project = fleet.project(tmp_path, site, politeness='rate = "2/s"\nconcurrency = 4')
        with workers(*project.crew(16)) as crew:
            poll_until(lambda: len(site.hits()) > 500, crew)
            for n in range(4):
                crew[n].kill()
                crew[n] = project.start()
            wait_for_all(crew)

        # then no two requests to one site were closer than the rate allows (robots.txt counts too)
        times = defaultdict(list)
        for hit in site.hits(robots=True):
            times[hit.host].append(hit.at)
        gaps = [later - earlier for seen in times.values() for earlier, later in pairwise(sorted(seen))]
        assert min(gaps) > INTERVAL - LATE
        assert_whole(project, extra=4 * IN_FLIGHT)

"""kill -9 at any instant loses nothing and stores nothing twice. The witness is the server's log."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.faults.crawlers import Project, kill, wait_for
from tests.patience import PATIENCE, poll_until
from tests.sites.running import park

pytestmark = pytest.mark.long

KILLS = 15
CONCURRENCY = 16


@pytest.mark.timeout(1200)  # a whole story: minutes of work where cores are rare
def test_fifteen_kills_during_one_crawl_lose_nothing_and_double_nothing(tmp_path):
    # given a site of 2,000 pages, and a crawler that is killed again and again
    chance = random.Random(20)
    with park(pages=2000, body_bytes=3000, links=8, latency_ms=5, robots="User-agent: *\nDisallow:") as site:
        project = Project(
            tmp_path, site.seeds(), '[politeness]\nrate = "unlimited"\nconcurrency = 16\n[lease]\nmax_deliveries = 20'
        )
        in_flight = 0
        for _ in range(KILLS):
            process = project.start("--concurrency", str(CONCURRENCY))
            fetched_before = len(site.hits())
            goal = fetched_before + chance.randrange(1, 60)
            poll_until(lambda goal=goal, process=process: len(site.hits()) >= goal or process.poll() is not None)
            kill(process)
            in_flight += project.sql("state.db", "SELECT count(*) FROM url_list WHERE state = 'leased'")[0][0]

        # when it is left alone at last
        project.finish("--concurrency", str(CONCURRENCY))

        # then every page was fetched, hardly any twice, and the records are the truth
        hits = Counter(hit.path for hit in site.hits())
        paths = set(site.grounds.paths(site.hosts[0]))
        assert set(hits) == paths
        assert sum(hits.values()) - len(paths) <= in_flight
        truth = site.truth()
        assert project.records().keys() == truth.keys()
        for sku, record in project.records().items():
            assert (record["title"], record["url"]) == (truth[sku]["title"], truth[sku]["url"])
        project.assert_sound()
        assert project.sql("state.db", "SELECT state, count(*) FROM url_list GROUP BY state") == [("done", len(paths))]


def test_ctrl_c_drains_and_the_same_command_goes_on(tmp_path):
    with park(pages=80, latency_ms=300) as site:
        project = Project(tmp_path, site.seeds(), '[politeness]\nrate = "unlimited"\nconcurrency = 8')
        process = project.start()
        poll_until(lambda: len(site.hits()) >= 20)
        process.send_signal(2)
        said, _ = process.communicate(timeout=PATIENCE)

        # A drained crawler leaves nothing leased, and says by its exit code that there is more to do.
        assert process.returncode == 130, said.decode()
        assert project.sql("state.db", "SELECT count(*) FROM url_list WHERE state = 'leased'") == [(0,)]
        project.finish()

        hits = Counter(hit.path for hit in site.hits())
        assert set(hits.values()) == {1}
        assert project.records().keys() == site.truth().keys()
        project.assert_sound()


def test_fresh_starts_over_and_an_ended_crawl_starts_a_new_job(tmp_path):
    with park(pages=30, validators=True) as site:
        project = Project(tmp_path, site.seeds(), '[politeness]\nrate = "unlimited"')
        project.finish()
        project.finish()
        # The second job asks politely whether anything changed, and follows the links of unchanged pages all the same.
        statuses = Counter(hit.status for hit in site.hits())
        assert statuses == {200: 30, 304: 30}
        assert project.sql("state.db", "SELECT id, done, unchanged FROM jobs ORDER BY number") == [
            ("park-1", 30, 0),
            ("park-2", 0, 30),
        ]
        seen = project.sql("records.db", "SELECT job, count(*) FROM sightings GROUP BY job ORDER BY job")
        assert seen == [("park-1", 30), ("park-2", 30)]
        project.assert_sound()


def test_two_processes_share_the_work_and_fetch_nothing_twice(tmp_path):
    with park(pages=100, latency_ms=300, body_bytes=3000) as site:
        # given processes of which neither can take all that the site allows
        settings = '[politeness]\nrate = "unlimited"\nconcurrency = 8\n[crawl]\nconcurrency = 6'
        project = Project(tmp_path, site.seeds(), settings)
        first, second = project.start(), project.start()
        wait_for(first)
        wait_for(second)

        hits = Counter(hit.path for hit in site.hits())
        assert set(hits.values()) == {1}
        assert project.records().keys() == site.truth().keys()
        workers = project.sql("records.db", "SELECT worker, count(*) FROM attempts GROUP BY worker")
        assert len(workers) == 2
        assert max(hit.in_progress for hit in site.hits()) <= 8
        project.assert_sound()

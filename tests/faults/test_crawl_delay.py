"""What the server's log says about its crawl-delay: workers that begin together, one that dies in its first page."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.faults.crawlers import Project, kill, wait_for
from tests.patience import poll_until
from tests.sites.running import park

pytestmark = pytest.mark.long

DELAY = 3.0  # seconds
LATE = 0.02  # seconds, see test_politeness.py


def gaps(hits) -> list[float]:
    return [later.at - earlier.at for earlier, later in pairwise(sorted(hits, key=lambda hit: hit.at))]


def test_workers_without_a_rate_share_a_crawl_delay_that_each_of_them_reads_itself(tmp_path):
    # given a site with a crawl-delay and a slow robots.txt, and three processes without a rate
    with park(pages=8, crawl_delay=DELAY, latency_ms=1_500, links=8) as site:
        seeds = [site.url(path="/" if n == 0 else f"/page/{n}") for n in range(8)]
        project = Project(tmp_path, seeds, '[politeness]\nrate = "unlimited"\nconcurrency = 8')

        # when all of them have leases before the first answer
        crawlers = [project.start("--concurrency", "2") for _ in range(3)]
        for crawler in crawlers:
            wait_for(crawler)

        # then their pages keep the delay together
        assert len(site.hits()) == 8
        assert min(gaps(site.hits())) >= DELAY - LATE
        assert project.records().keys() == site.truth().keys()
        project.assert_sound()


def test_a_worker_that_dies_in_the_first_page_leaves_the_crawl_delay_behind(tmp_path):
    # given a crawler that has asked for its first page
    with park(pages=3, crawl_delay=DELAY, latency_ms=1_000) as site:
        project = Project(tmp_path, site.seeds(), '[politeness]\nrate = "5/s"\nconcurrency = 4')
        first = project.start()
        poll_until(lambda: len(site.hits()) == 1)

        # when it dies over it and another one goes on
        kill(first)
        project.finish()

        # then that one is not early
        assert len(site.hits()) == 4
        assert min(gaps(site.hits(robots=True))) >= DELAY - LATE

"""What the server's log says about our manners: rates, crawl-delay, Retry-After; two processes, and a restart."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.faults.crawlers import Project, kill, wait_for
from tests.faults.test_killed_crawlers import poll_until
from tests.sites.running import park

# Arrival at the server jitters by what two processes' schedulers and the loopback add after our last check.
JITTER = 0.04  # seconds between leaving the worker and the line in the log, on a busy machine


def gaps(hits) -> list[float]:
    return [later.at - earlier.at for earlier, later in pairwise(sorted(hits, key=lambda hit: hit.at))]


def most_in_any_span(hits, span: float) -> int:
    times = sorted(hit.at for hit in hits)
    return max(sum(1 for t in times if start <= t < start + span) for start in times)


@pytest.mark.timeout(120)
def test_two_processes_and_a_restart_never_exceed_the_rate(tmp_path):
    with park(pages=40, hosts=3, robots="User-agent: *\nDisallow:") as site:
        project = Project(tmp_path, site.seeds(), '[politeness]\nrate = "10/s"\nburst = 1\nconcurrency = 4')
        first, second = project.start(), project.start()
        poll_until(lambda: len(site.hits()) >= 30)
        kill(first)
        third = project.start()
        wait_for(second)
        wait_for(third)

        # Every request counts, that for robots.txt too.
        for host in site.hosts:
            hits = site.hits(host=host, robots=True)
            assert len(hits) >= 41
            assert min(gaps(hits)) >= 0.1 - JITTER, (host, min(gaps(hits)))
        assert project.records().keys() == site.truth().keys()
        project.assert_sound()


def test_a_burst_is_spent_once_and_then_earned_again(tmp_path):
    with park(pages=30, robots=None) as site:
        project = Project(tmp_path, site.seeds(), '[politeness]\nrate = "10/s"\nburst = 5\nconcurrency = 8')
        project.finish()

        hits = site.hits(robots=True)
        for span in (0.1, 0.3, 0.7, 1.5):
            assert most_in_any_span(hits, span) <= 5 + (span + JITTER) * 10


def test_crawl_delay_slows_an_unlimited_crawl(tmp_path):
    with park(pages=8, crawl_delay=0.4, latency_ms=20) as site:
        project = Project(tmp_path, site.seeds(), '[politeness]\nrate = "unlimited"\nconcurrency = 8')
        first, second = project.start(), project.start()
        wait_for(first)
        wait_for(second)

        hits = site.hits()
        assert len(hits) == 8
        assert min(gaps(site.hits(robots=True))) >= 0.4 - JITTER
        assert project.records().keys() == site.truth().keys()


def test_retry_after_leaves_the_whole_site_alone(tmp_path):
    with park(pages=20, rate_limited=1, retry_after="2", latency_ms=5) as site:
        project = Project(tmp_path, site.seeds(), '[politeness]\nrate = "20/s"\nconcurrency = 1')
        project.finish()

        hits = sorted(site.hits(), key=lambda hit: hit.at)
        refused = next(n for n, hit in enumerate(hits) if hit.status == 429)
        assert hits[refused + 1].at - hits[refused].at >= 2 - JITTER
        assert project.records().keys() == site.truth().keys()


def test_a_slow_site_does_not_hold_up_quick_ones(tmp_path):
    slow = "site0.localhost"
    with park(pages=15, hosts=6, latency_ms=10, latency_ms_of={slow: 8_000}, pages_of={slow: 3_000}, links=200) as site:
        project = Project(tmp_path, site.seeds(), '[politeness]\nrate = "unlimited"\nconcurrency = 4')
        process = project.start("--concurrency", "8")
        quick = 5 * 15
        poll_until(lambda: sum(hit.host != slow for hit in site.hits()) == quick or process.poll() is not None)

        # The quick ones were all served before the slow one answered more than its few first requests.
        assert len(site.hits(host=slow)) <= 8
        kill(process)

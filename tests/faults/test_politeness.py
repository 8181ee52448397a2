"""What the server's log says about our politeness: rates, crawl-delay, Retry-After; two processes, two jobs, a restart.

The log has the kernel's time of each packet, and a worker counts from when a request has left: a busy machine makes
gaps longer and never shorter. What is left is the time between the last look at the clock and the write.
"""

from __future__ import annotations

import signal
from collections import Counter
from contextlib import ExitStack
from itertools import pairwise

import pytest

from tests.faults.commands import CommandProject, until
from tests.faults.crawlers import Project, kill, wait_for
from tests.patience import poll_until
from tests.services.valkey import running_valkey
from tests.sites.running import park

pytestmark = pytest.mark.long

INTERVAL = 0.5  # seconds between two requests to a site: a rate of 2/s
LATE = 0.02  # seconds


def gaps(hits) -> list[float]:
    return [later.at - earlier.at for earlier, later in pairwise(sorted(hits, key=lambda hit: hit.at))]


def most_in_any_span(hits, span: float) -> int:
    times = sorted(hit.at for hit in hits)
    return max(sum(1 for t in times if start <= t < start + span) for start in times)


def test_two_processes_and_a_restart_never_exceed_the_rate(tmp_path):
    with park(pages=12, hosts=3, robots="User-agent: *\nDisallow:") as site:
        project = Project(tmp_path, site.seeds(), '[politeness]\nrate = "2/s"\nburst = 1\nconcurrency = 4')
        first, second = project.start(), project.start()
        poll_until(lambda: len(site.hits()) >= 10)
        kill(first)
        third = project.start()
        wait_for(second)
        wait_for(third)

        # Every request counts, that for robots.txt too.
        for host in site.hosts:
            hits = site.hits(host=host, robots=True)
            assert len(hits) >= 13
            assert hits[-1].at - hits[0].at >= (len(hits) - 1) * INTERVAL - LATE
            assert min(gaps(hits)) >= INTERVAL - LATE, (host, min(gaps(hits)))
        assert project.records().keys() == site.truth().keys()
        project.assert_sound()


SLOW = """
import os
from gossamer import Page, Spider

class Slow(Spider):
    start_urls = [os.environ["SLOW_URL"]]
    handle_statuses = (404,)

    def parse(self, page: Page):
        return None
"""


@pytest.mark.parametrize("backend", ["sqlite", "valkey"])
def test_one_slow_page_holds_up_no_other_job_and_worker_of_its_site(tmp_path, backend):
    # given a page that is answered only when all pages of another job were asked for
    with ExitStack() as stack:
        plan = {"pages": 9, "robots": "User-agent: *\nDisallow:", "held": "/slow/0", "held_until": 10}
        site = stack.enter_context(park(**plan))
        settings = '[politeness]\nrate = "2/s"\nburst = 1\nconcurrency = 4'
        if backend == "valkey":
            settings = f'project = "slow"\nstate = "{stack.enter_context(running_valkey()).address()}"\n{settings}'
        project = Project(tmp_path, site.seeds(), settings)
        (tmp_path / "spiders" / "slow.py").write_text(SLOW)
        slow = project.start(spider="slow", SLOW_URL=site.url(path="/slow/0"))
        poll_until(lambda: site.hits(path="/slow/0") or slow.poll() is not None)

        # when the other job's worker comes, then it gets the site, at its pace
        project.finish()

        wait_for(slow)
        hits = site.hits(robots=True)
        assert sorted(hit.path for hit in hits if hit.path != "/robots.txt")[-1] == "/slow/0"
        assert len(site.hits()) == 10
        assert min(gaps(hits)) >= INTERVAL - LATE


def test_new_sites_with_slow_handshakes_see_no_two_requests_closer_than_the_rate(tmp_path):
    # given sites that need several connections each, and some of them anew
    plan = {"tls": True, "handshake_ms": (50, 1000), "latency_ms": 600, "close_every": 3}
    with park(pages=8, hosts=100, robots="User-agent: *\nDisallow:", **plan) as site:
        settings = '[politeness]\nrate = "4/s"\nburst = 1\nconcurrency = 8\n[crawl]\nconcurrency = 64'
        project = Project(tmp_path, site.seeds(), settings, authority=site.certificate)
        project.finish()

        assert project.records().keys() == site.truth().keys()
        seen = [gap for host in site.hosts for gap in gaps(site.hits(host=host, robots=True))]
        assert len(seen) >= 800
        assert [gap for gap in seen if gap < 0.25 - LATE] == []


def test_a_worker_that_was_stopped_past_its_lease_sends_nothing_that_it_was_about_to_send(tmp_path):
    # given two workers on three sites, and one of them stopped again and again for longer than its leases
    plan = {"tls": True, "handshake_ms": (300, 800), "close_every": 1}  # mostly while it made a connection
    with park(pages=15, hosts=3, robots="User-agent: *\nDisallow:", **plan) as site:
        settings = (
            '[politeness]\nrate = "2/s"\nburst = 1\nconcurrency = 4\n[lease]\nduration = "2s"\nmax_deliveries = 50'
        )
        project = Project(tmp_path, site.seeds(), settings, authority=site.certificate)
        first, second = project.start(), project.start()
        for stop in (5, 15, 25):
            poll_until(lambda stop=stop: len(site.hits()) >= stop or first.poll() is not None)
            first.send_signal(signal.SIGSTOP)
            before = len(site.hits())
            # until the other one has taken over what it held
            poll_until(lambda before=before: len(site.hits()) >= before + 6 or second.poll() is not None)
            first.send_signal(signal.SIGCONT)
        wait_for(first)
        wait_for(second)

        assert project.records().keys() == site.truth().keys()
        for host in site.hosts:
            assert min(gaps(site.hits(host=host, robots=True))) >= INTERVAL - LATE


def test_a_burst_is_spent_once_and_then_earned_again(tmp_path):
    with park(pages=30, robots=None) as site:
        project = Project(tmp_path, site.seeds(), '[politeness]\nrate = "4/s"\nburst = 5\nconcurrency = 8')
        project.finish()

        hits = site.hits(robots=True)
        for span in (0.25, 0.75, 1.75, 3):
            assert most_in_any_span(hits, span) <= 5 + (span + LATE) * 4


@pytest.mark.parametrize("processes", [1, 2])
def test_twenty_domains_on_one_server_get_no_more_than_the_rate_of_its_address(tmp_path, processes):
    # given domains that each may be visited without a pause, all at 127.0.0.1
    with park(pages=4, hosts=20, robots=None) as site, running_valkey() as valkey:
        state = f'project = "shared"\nstate = "{valkey.address()}"\n' if processes > 1 else ""
        settings = '[politeness]\nrate = "unlimited"\nper_address = "20/s"'
        project = Project(tmp_path, site.seeds(), state + settings)
        for crawler in [project.start() for _ in range(processes)]:
            wait_for(crawler)

        assert project.records().keys() == site.truth().keys()
        times = sorted(hit.at for hit in site.hits(robots=True))
        assert len(times) == 100  # the question for robots.txt counts as well
        # A request may miss its turn by 50 ms, and by the time that the answer of the state took.
        assert min(later - earlier for earlier, later in zip(times, times[20:], strict=False)) >= 1 - 0.25
        assert times[-1] - times[0] >= 99 / 20 - 0.25


def test_crawl_delay_slows_an_unlimited_crawl(tmp_path):
    with park(pages=8, crawl_delay=INTERVAL, latency_ms=20) as site:
        project = Project(tmp_path, site.seeds(), '[politeness]\nrate = "unlimited"\nconcurrency = 8')
        first, second = project.start(), project.start()
        wait_for(first)
        wait_for(second)

        hits = site.hits()
        assert len(hits) == 8
        assert min(gaps(site.hits(robots=True))) >= INTERVAL - LATE
        assert project.records().keys() == site.truth().keys()


def test_retry_after_leaves_the_whole_site_alone(tmp_path):
    with park(pages=20, rate_limited=1, retry_after="2", latency_ms=5) as site:
        project = Project(tmp_path, site.seeds(), '[politeness]\nrate = "20/s"\nconcurrency = 1')
        project.finish()

        hits = sorted(site.hits(), key=lambda hit: hit.at)
        refused = next(n for n, hit in enumerate(hits) if hit.status == 429)
        assert hits[refused + 1].at - hits[refused].at >= 2 - LATE
        assert project.records().keys() == site.truth().keys()


def test_a_site_that_refuses_again_and_again_teaches_its_pace_to_all_workers_and_to_the_next_job(tmp_path):
    allowed = 4  # pages a second
    with park(pages=30, links=29, throttle=allowed) as site:
        settings = '[politeness]\nrate = "20/s"\nconcurrency = 4\n[retry]\nmax_attempts = 20'
        project = Project(tmp_path, site.seeds(), settings)
        first, second = project.start(), project.start()
        wait_for(first)
        wait_for(second)
        taught = site.hits()
        project.finish()
        kept = site.hits()[len(taught) :]

        # then the log has refusals at first, and at most one more in the job after it, which keeps the pace
        assert Counter(hit.status for hit in taught)[200] == 30
        assert sum(hit.status == 429 for hit in taught) >= 3
        assert sum(hit.status == 429 for hit in taught[-10:]) < 5  # rarer, the longer it goes on
        assert sum(hit.status == 200 for hit in kept) == 30
        assert sum(hit.status != 200 for hit in kept) <= 1
        ((learned,),) = project.sql("state.db", "SELECT learned_interval FROM sites")
        assert 0.9 / allowed < learned <= 4 / allowed  # between refusals it tries a little faster
        assert min(gaps(kept)) >= learned - LATE
        assert project.records().keys() == site.truth().keys()


def test_a_slow_site_does_not_hold_up_quick_ones(tmp_path):
    slow = "site0.localhost"
    with park(
        pages=15, hosts=6, latency_ms=10, latency_ms_of={slow: 600_000}, pages_of={slow: 3_000}, links=200
    ) as site:
        project = Project(tmp_path, site.seeds(), '[politeness]\nrate = "unlimited"\nconcurrency = 4')
        process = project.start("--concurrency", "8")
        quick = 5 * 15
        poll_until(lambda: sum(hit.host != slow for hit in site.hits()) == quick or process.poll() is not None)

        # The quick ones were all served, and the slow one had no more than its few first requests, some perhaps twice.
        assert len(site.hits(host=slow)) <= 8
        kill(process)


SPIDER = """
from gossamer import Page, Spider

class {name}(Spider):
    start_urls = [{url!r}]
    rate = "2/s"

    def parse(self, page: Page):
        yield from page.follow_all("a")
"""


def test_two_jobs_of_one_worker_pool_keep_a_sites_pace_together(tmp_path):
    # given two spiders for the same site, which allow it two requests a second
    with park(pages=5, robots="User-agent: *\nDisallow:") as site:
        project = CommandProject(tmp_path, [], "")
        try:
            for name in ("One", "Two"):
                file = project.folder / "spiders" / f"{name.lower()}.py"
                file.write_text(SPIDER.format(name=name, url=site.url()))
                crawl = project.run("crawl", name.lower(), "--quiet")
                until(lambda name=name: any(job["name"] == name.lower() for job in project.json("status")), crawl)
                crawl.signal(signal.SIGTERM)
                crawl.ended()
            # when one worker pool works on both, and has to ask for robots.txt on the way
            project.sql("state.db", "DELETE FROM robots")
            before = len(site.hits(robots=True))
            project.done("worker", "--until-idle")
        finally:
            project.close()

        # then every page was visited by each, and no two requests are closer than the pace allows
        assert set(Counter(hit.path for hit in site.hits()).values()) == {2}
        hits = site.hits(robots=True)[before:]
        assert hits[-1].at - hits[0].at >= (len(hits) - 1) * INTERVAL - LATE
        assert min(gaps(hits)) >= INTERVAL - LATE

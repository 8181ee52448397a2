"""The terms of a job travel with it: what a command, a call of the API, a schedule or a spider gave holds on every
process that works on the job. The log of the target site says so."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gossamer.project.jobs.api_requests import CrawlRequest
from gossamer.project.jobs.slices import enqueue
from gossamer.settings import load
from tests.faults.commands import CommandProject, until
from tests.faults.test_politeness import LATE, gaps
from tests.services.postgres import running_postgres
from tests.services.valkey import running_valkey
from tests.sites.running import park

pytestmark = pytest.mark.long

FAST = '[politeness]\nrate = "20/s"\nconcurrency = 4\n'
SPIDER = """
from gossamer import Page, Spider

class {name}(Spider):
    start_urls = [{url!r}]
    {terms}

    def parse(self, page: Page):
        yield from page.follow_all("a")
"""


@pytest.fixture(params=["sqlite", "valkey and postgres"])
def stores(request: pytest.FixtureRequest) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield ""
            return
        valkey, postgres = stack.enter_context(running_valkey()), stack.enter_context(running_postgres())
        yield f'project = "terms"\nstate = "{valkey.address()}"\nrecords = "{postgres.address()}"\n'


def write_spider(project: CommandProject, name: str, url: str, terms: str = "") -> None:
    spider = SPIDER.format(name=name.capitalize(), url=url, terms=terms or "pass")
    (project.folder / "spiders" / f"{name}.py").write_text(spider)


def assert_paced(hits, interval: float) -> None:
    assert len(hits) >= 3
    assert min(gaps(hits)) >= interval - LATE, gaps(hits)


def test_a_rate_on_the_command_line_holds_for_a_worker_that_runs_already_and_for_two_processes(tmp_path, stores):
    with park(pages=7, links=6, robots=None) as site:
        project = CommandProject(tmp_path, site.seeds(), stores + FAST)
        try:
            workers = [project.run("worker"), project.run("worker")]
            until(lambda: all("serves all jobs" in one.said() for one in workers), *workers)
            crawl = project.run("crawl", "park", "--quiet", "--rate", "2/s", "--processes", "2")
            assert crawl.ended() == 0, crawl.said()
        finally:
            project.close()

        assert len(site.hits()) == 7
        assert_paced(site.hits(robots=True), 0.5)


def test_workers_keep_the_rate_of_a_crawl_that_was_killed_and_of_one_that_is_resumed_without_it(tmp_path, stores):
    with park(pages=400, links=399, robots=None) as site:  # more than are fetched, however slow the machine is
        project = CommandProject(tmp_path, site.seeds(), stores + FAST)
        try:
            crawl = project.run("crawl", "park", "--quiet", "--rate", "2/s")
            until(lambda: len(site.hits()) >= 3, crawl)
            crawl.signal(signal.SIGKILL)
            crawl.ended()
            worker = project.run("worker")
            until(lambda: len(site.hits()) >= 7, worker)
            again = project.run("crawl", "park", "--quiet")
            until(lambda: sum(not one["missing"] for one in project.json("workers")) == 2, worker, again)
            seen = len(site.hits())
            until(lambda: len(site.hits()) >= seen + 7, worker, again)
        finally:
            project.close()

        assert_paced(site.hits(robots=True), 0.5)


def test_two_jobs_at_one_site_keep_a_rate_each_and_the_third_goes_on(tmp_path, stores):
    with park(pages=60, links=59, robots=None, latency_ms=5) as site:
        project = CommandProject(tmp_path, [], stores + FAST)
        for name, terms in (("slow", 'rate = "1/s"'), ("slower", 'rate = "40/m"'), ("free", "")):
            write_spider(project, name, site.url(), f"{terms}\n    headers = {{'user-agent': {name!r}}}")
        try:
            worker = project.run("worker")
            for name in ("slow", "slower", "free"):
                crawl = project.run("crawl", name, "--quiet")
                until(lambda name=name: any(one["name"] == name for one in project.json("status")), crawl)
            until(lambda: len([h for h in site.hits() if h.user_agent == "free"]) >= 55, worker)
            until(lambda: len([h for h in site.hits() if h.user_agent == "slow"]) >= 6, worker)
        finally:
            project.close()

        by = {name: [h for h in site.hits() if h.user_agent == name] for name in ("slow", "slower", "free")}
        assert_paced(by["slow"], 1.0)
        assert min(gaps(by["slower"])) >= 1.5 - LATE
        assert min(gaps(site.hits())) >= 0.05 - LATE
        assert len(by["free"]) > len(by["slow"])
        assert min(gaps(by["free"])) < 0.5  # not held to the pace of the others


def test_the_rates_of_a_schedule_and_of_a_call_of_the_api_hold_on_a_worker(tmp_path, stores):
    with park(pages=8, links=7, robots=None, hosts=2) as site:
        named = f'[schedules.slowly]\nspider = "wares"\nevery = "30d"\nrate = "2/s"\nurls = ["{site.url(1)}"]\n'
        project = CommandProject(tmp_path, [], stores + FAST + named)
        project.environ["GOSSAMER_FETCH__ALLOW_HOSTS"] = ",".join(site.hosts)  # a client reaches no private address
        write_spider(project, "wares", site.url(0))
        try:
            worker = project.run("worker")
            project.done("schedule", "run", "slowly")
            settings = load(start=tmp_path, environ={**project.environ})
            asyncio.run(enqueue(settings, CrawlRequest(spider="wares", rate="2/s"), once="one"))
            until(lambda: all(len(site.hits(host=host)) == 8 for host in site.hosts), worker)
        finally:
            project.close()

        for host in site.hosts:
            assert_paced(site.hits(host=host), 0.5)


def test_a_run_of_higher_priority_goes_first_at_a_site_that_a_crawl_has(tmp_path, stores):
    with park(pages=150, links=149, robots=None, latency_ms=20) as site:
        project = CommandProject(tmp_path, [], stores + FAST)
        for name, terms in (("low", "priority = 1"), ("high", "priority = 100")):
            write_spider(
                project, name, site.url(), f"{terms}\n    limit = 60\n    headers = {{'user-agent': {name!r}}}"
            )
        try:
            worker = project.run("worker")
            low = project.run("crawl", "low", "--quiet", "--limit", "140")
            until(lambda: len(site.hits()) >= 10, low, worker)
            high = project.run("crawl", "high", "--quiet")
            until(lambda: sum(hit.user_agent == "high" for hit in site.hits()) >= 60, high, worker)
        finally:
            project.close()

        agents = [hit.user_agent for hit in sorted(site.hits(), key=lambda hit: hit.at)]
        theirs = [at for at, agent in enumerate(agents) if agent == "high"]
        between = agents[theirs[1] : theirs[58]].count("low")  # the links of its first page come with the second
        assert between <= 12, "".join(agent[0] for agent in agents)
        assert min(gaps(site.hits())) >= 0.05 - LATE


def test_unlimited_requests_follow_the_concurrency_and_a_limit_that_binds_is_named(tmp_path):
    with park(pages=60, links=59, robots=None, latency_ms=1000) as site:
        project = CommandProject(tmp_path, site.seeds(), FAST.replace("concurrency = 4\n", ""))
        try:
            free = project.run("crawl", "park", "--rate", "unlimited", "--concurrency", "24")
            assert free.ended() == 0, free.said()
            at_once = max(hit.in_progress for hit in site.hits())
            bound = project.run("crawl", "park", "--rate", "unlimited", "--site-concurrency", "3", "--fresh")
            assert bound.ended() == 0, bound.said()
        finally:
            project.close()

        assert 12 <= at_once <= 25
        assert max(hit.in_progress for hit in site.hits()[60:]) <= 3
        said = " ".join(bound.said().split())
        assert "3 at a time of this job at a site: site_concurrency, given for it" in said

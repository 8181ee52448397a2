"""`gossamer worker` on jobs that others began: shared, ended once, drained, with strangers left alone."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections import Counter
from uuid import uuid4

import pytest

from tests.faults.commands import CommandProject, until
from tests.services.valkey import running_valkey
from tests.sites.running import park

pytestmark = pytest.mark.long

UNLIMITED = '[politeness]\nrate = "unlimited"\nconcurrency = 8\n'

SLOWLY = ["env", "GOSSAMER_POLITENESS__RATE=30/m"]  # for this process: a rate on the command line stays with the job
SPIDER = """
from gossamer import Item, Page, Spider

class {name}(Spider):
    start_urls = [{url!r}]
    rate = "10/s"

    def parse(self, page: Page):
        yield from page.follow_all("a")
"""


@pytest.fixture
def opened(tmp_path):
    """Makes projects; whatever they started is ended with the test."""
    projects: list[CommandProject] = []

    def make(seeds: list[str], settings: str = UNLIMITED) -> CommandProject:
        projects.append(CommandProject(tmp_path / str(len(projects)), seeds, settings))
        return projects[-1]

    yield make
    for project in projects:
        project.close()


@pytest.fixture(scope="module")
def valkey():
    with running_valkey("--appendonly", "yes", "--appendfsync", "no") as server:
        yield server


def statuses(project: CommandProject) -> list[tuple[str, str, str | None]]:
    return [(job["id"], job["state"], job["ending"]) for job in project.json("status")]


@pytest.mark.parametrize("state", ["sqlite", "valkey"])
def test_two_worker_pools_share_the_job_of_a_stopped_crawl_and_end_it_once(opened, request, state):
    settings = UNLIMITED
    if state == "valkey":
        address = request.getfixturevalue("valkey").address()
        settings = f'state = "{address}"\nproject = "test-{uuid4().hex[:8]}"\n{UNLIMITED}'
    # given a job over two sites, begun by a crawl that was stopped: the pools sow nothing
    with park(pages=100, hosts=2, latency_ms=200) as site:
        project = opened(site.seeds(), settings)
        project.sow(site)
        # when two pools come
        flags = ("--until-idle", "--concurrency", "4")  # fewer than the sites allow: there is enough for both
        first, second = project.run("worker", *flags), project.run("worker", *flags)
        assert (first.ended(), second.ended()) == (0, 0), first.said() + second.said()

        # then both have worked, one has ended the job, and every page of both sites was fetched, none twice
        assert statuses(project) == [("park-1", "finished", "done")]
        words = first.said() + second.said()
        assert (words.count("going on with park-1"), words.count("park-1 ended: done")) == (2, 1)
        assert set(Counter((hit.host, hit.path) for hit in site.hits()).values()) == {1}
        assert project.records().keys() == site.truth().keys()
        workers = project.sql("records.db", "SELECT DISTINCT worker FROM attempts")
        assert len(workers) == 3  # the crawl, and both pools
        assert project.json("workers") == []


def test_a_worker_pool_waits_for_a_state_that_is_away_and_goes_on(opened):
    with (
        running_valkey("--appendonly", "yes", "--appendfsync", "no") as server,
        park(pages=400, latency_ms=100) as site,
    ):
        project = opened(site.seeds(), f'state = "{server.address()}"\nproject = "away"\n{UNLIMITED}')
        project.sow(site)
        pool = project.run("worker", "--until-idle")
        until(lambda: len(site.hits()) > 100, pool)
        # when the server dies in the middle of things, and comes back when that was noticed
        server.kill()
        until(lambda: "Trouble:" in pool.said(), pool)
        server.start()

        # then the same process finishes the job
        assert pool.ended() == 0, pool.said()
        assert statuses(project) == [("park-1", "finished", "done")]
        assert project.records().keys() == site.truth().keys()


def test_a_worker_pool_keeps_to_the_depth_that_the_job_was_begun_with(opened):
    with park(pages=300, links=2, latency_ms=20) as site:
        project = opened(site.seeds())
        project.sow(site, "--depth", "5")
        project.done("worker", "--until-idle")

        # Page n leads to 2n + 1 and 2n + 2: five steps reach 63 pages.
        assert len(site.hits()) == 63
        assert project.sql("state.db", "SELECT max(depth) FROM url_list WHERE state = 'done'") == [(5,)]


def test_a_worker_pool_sows_what_a_killed_crawl_did_not(opened):
    with park(pages=30, hosts=2) as site:
        project = opened(site.seeds())
        project.sow(site, pages=1)
        # As if the crawl had died before its last seeds were in.
        project.sql("state.db", "UPDATE jobs SET sealed = 0")
        project.done("worker", "--until-idle")

        assert statuses(project) == [("park-1", "finished", "done")]
        assert project.records().keys() == site.truth().keys()


def test_a_job_that_begins_later_is_found_and_two_jobs_run_side_by_side(opened):
    with park(pages=60, hosts=2, latency_ms=5) as site:
        project = opened([site.url(0)], "")
        for number, name in enumerate(("One", "Two")):
            file = project.folder / "spiders" / f"{name.lower()}.py"
            file.write_text(SPIDER.format(name=name, url=site.url(number)))
        # given a pool with nothing to do
        pool = project.run("worker")
        until(lambda: "serves all jobs" in pool.said(), pool)
        # when two jobs are begun, and the crawls that began them stop
        # slowly, so that there is something left for the pool
        crawls = [project.run_under(SLOWLY, "crawl", name, "--quiet") for name in ("one", "two")]
        until(lambda: all(f"working on {name}-" in pool.said() for name in ("one", "two")), pool)
        for crawl in crawls:
            crawl.signal(signal.SIGINT)
        for crawl in crawls:
            crawl.ended()
        before = len(site.hits())
        # then the pool, alone now, ends them both, and neither of the two sites waits for the other
        until(lambda: pool.said().count("ended: done") == 2, pool)
        hosts = [hit.host for hit in site.hits()]
        assert Counter(hosts) == {site.hosts[0]: 60, site.hosts[1]: 60}
        one, two = ([at for at, host in enumerate(hosts[before:]) if host == name] for name in site.hosts)
        assert one[0] < two[-1]
        assert two[0] < one[-1]
        pool.signal(signal.SIGTERM)
        assert pool.ended() == 0


@pytest.mark.parametrize("state", ["sqlite", "valkey"])
def test_a_job_gets_its_turn_at_a_slow_site_that_another_one_has(opened, request, state):
    settings = "[politeness]\nconcurrency = 3\n"
    if state == "valkey":
        address = request.getfixturevalue("valkey").address()
        settings = f'state = "{address}"\nproject = "test-{uuid4().hex[:8]}"\n{settings}'
    with park(pages=400, latency_ms=400) as site:
        # given a site that answers more slowly than its pace asks, and a job that keeps it busy
        project = opened([], settings)
        for name in ("Long", "Short"):
            file = project.folder / "spiders" / f"{name.lower()}.py"
            file.write_text(SPIDER.format(name=name, url=site.url()))
        long = project.run("crawl", "long", "--quiet")
        until(lambda: len(site.hits()) > 5, long)
        # when another job comes for a few pages of it, then it has them long before the first one is done
        short = project.run("crawl", "short", "--quiet", "--limit", "3")
        assert short.ended() == 0, short.said()
        before = len(site.hits())
        until(lambda: len(site.hits()) > before + 10, long)
        long.signal(signal.SIGTERM)
        assert long.ended() == 130, long.said()
        assert set(Counter(hit.path for hit in site.hits()).values()) == {1, 2}


def test_jobs_that_cannot_be_served_here_are_told_once_and_left_alone(opened):
    with park(pages=60, hosts=2, latency_ms=30) as site:
        project = opened([site.url(0)], f'{UNLIMITED}[fetch]\nallow_hosts = ["{site.hosts[0]}"]\n')
        toml = project.folder / "gossamer.toml"
        toml.write_text(toml.read_text().replace("[fetch]\nallow_private = true\n", ""))
        # given jobs whose spiders are gone, broken or raise, one for a private address, and a good one
        spiders = project.folder / "spiders"
        for name in ("Gone", "Broken", "Grumpy"):
            (spiders / f"{name.lower()}.py").write_text(SPIDER.format(name=name, url=site.url()))
        targets = ("gone", "broken", "grumpy", site.url(1), "park")
        crawls = [project.run_under(SLOWLY, "crawl", target, "--quiet") for target in targets]
        until(lambda: len(project.json("status")) == 5, *crawls)
        for crawl in crawls:
            crawl.signal(signal.SIGTERM)
        for crawl in crawls:
            crawl.ended()
        (spiders / "gone.py").unlink()
        (spiders / "broken.py").write_text("def parse(:")
        grumpy = (spiders / "grumpy.py").read_text()
        (spiders / "grumpy.py").write_text(
            grumpy + "\n    def __init__(self):\n        raise RuntimeError('not today')\n"
        )

        # when a pool looks at them, often
        said = project.done("worker", "--until-idle")

        # then the good one is done, and each of the others is named once and stays as it is
        assert re.search(r"park-\d ended: done", said)
        for job, why in (
            ("gone-", "There is no spider 'gone'"),
            ("broken-", "syntax error"),
            ("grumpy-", "not today"),
            ("site1-localhost-", "private address"),
        ):
            [line] = [line for line in said.splitlines() if f"Job {job}" in line]
            assert why in line
        assert "Traceback" not in said
        left = [job["name"] for job in project.json("status") if job["state"] == "running"]
        assert len(left) == 4
        assert sum(job["counts"]["dead"] for job in project.json("status")) == 0


def test_a_terminated_worker_pool_finishes_what_is_in_hand_and_leases_nothing_more(opened):
    with park(pages=400, latency_ms=200) as site:
        project = opened(site.seeds())
        project.sow(site)
        pool = project.run("worker")
        until(lambda: len(site.hits()) > 60, pool)
        pool.signal(signal.SIGTERM)
        assert pool.ended() == 0

        assert project.sql("state.db", "SELECT count(*) FROM url_list WHERE state = 'leased'") == [(0,)]
        assert set(Counter(hit.path for hit in site.hits()).values()) == {1}
        assert len(site.hits()) < 400
        project.done("worker", "--until-idle")
        assert project.records().keys() == site.truth().keys()
        assert set(Counter(hit.path for hit in site.hits()).values()) == {1}
        project.assert_sound()


def test_what_takes_longer_than_the_drain_is_given_back_at_once(opened):
    with park(pages=50, latency_ms=500_000, latency_ms_of={"site1.localhost": 0}, hosts=2) as site:
        project = opened(site.seeds(), f'{UNLIMITED}robots = false\n[crawl]\ndrain = "1s"\n')
        pool = project.run("crawl", "park", "--quiet")
        until(lambda: len(site.hits(host=0)) == 1 and len(site.hits(host=1)) == 50, pool)
        pool.signal(signal.SIGTERM)
        assert pool.ended() == 130

        [(state, due_at)] = project.sql("state.db", "SELECT state, due_at FROM urls WHERE state <> 'd'")
        assert state in "qw"
        assert (due_at or 0) <= time.time()


def test_signals_that_come_in_an_instant_are_one(opened):
    with park(pages=400, latency_ms=200) as site:
        project = opened(site.seeds())
        crawl = project.run("crawl", "park")
        until(lambda: len(site.hits()) > 20, crawl)
        crawl.signal(signal.SIGTERM)
        crawl.signal(signal.SIGINT)  # another number: two of the same may become one before they arrive

        assert crawl.ended() == 130, crawl.said()
        assert "Stopped. Nothing is lost" in crawl.said()
        assert project.sql("state.db", "SELECT count(*) FROM url_list WHERE state = 'leased'") == [(0,)]


def test_a_crawl_under_timeout_drains_when_its_time_is_over(opened):
    if shutil.which("timeout") is None:
        pytest.skip("the program `timeout` is not on this machine")
    with park(pages=5000, latency_ms=200) as site:
        project = opened(site.seeds())
        crawl = project.run_under(["timeout", "1000"], "crawl", "park")
        until(lambda: len(site.hits()) > 20, crawl)
        crawl.signal(signal.SIGTERM)  # to `timeout`, which does with it what it does when the time is over

        assert crawl.ended() == 130, crawl.said()
        assert "Stopped. Nothing is lost" in crawl.said()
        assert project.sql("state.db", "SELECT count(*) FROM url_list WHERE state = 'leased'") == [(0,)]


def test_workers_lists_those_who_work_marks_the_missing_and_forgets_the_old(opened):
    with park(pages=2000, latency_ms=100) as site:
        project = opened(site.seeds())
        crawl = project.run("crawl", "park", "--quiet")
        pool = project.run("worker", "--quiet", "--concurrency", "3")
        until(lambda: len(project.json("workers")) == 2, crawl, pool)

        # given cards of workers that died half a minute ago, and two hours ago, and served what nobody serves now
        columns = "host, version, state, job, in_flight, done, cpu, memory"
        for name, age in (("dead", 30), ("ancient", 7200)):
            project.sql(
                "state.db",
                f"INSERT INTO workers (name, pid, started_at, seen_at, serves, {columns}) "
                f"SELECT '{name}', 1, started_at - 8000, seen_at - {age}, 'park-0', {columns} FROM workers LIMIT 1",
            )
        by_name = {card["name"]: card for card in project.json("workers")}
        assert {name: card["missing"] for name, card in by_name.items() if "/" not in name} == {
            "dead": True,
            "ancient": True,
        }
        living = {card["pid"]: card for name, card in by_name.items() if "/" in name}
        serving = pool.children()
        assert living.keys() == crawl.children() | serving
        assert not any(card["missing"] for card in living.values())
        assert {card["job"] for card in living.values()} <= {"park-1", ""}
        assert all(card["memory"] > 10_000_000 for card in living.values())
        table = project.done("workers")
        assert table.count("silent") == 2, table
        assert "2 workers sent no heartbeat for 20 s." in table

        # when another worker comes, then it forgets what is older than an hour; who leaves signs off
        project.run("worker", "--quiet")
        until(lambda: "ancient" not in {card["name"] for card in project.json("workers")}, pool)
        assert "dead" in {card["name"] for card in project.json("workers")}
        pool.signal(signal.SIGTERM)
        assert pool.ended() == 0
        assert not serving & {card["pid"] for card in project.json("workers")}


def test_a_worker_of_several_that_is_drained_finishes_its_pages_and_is_not_replaced(opened):
    with park(pages=200, latency_ms=100) as site:
        project = opened(site.seeds(), '[politeness]\nrate = "10/s"\n')
        project.sow(site)
        both = project.run("worker", "--processes", "2")
        until(lambda: len(project.json("workers")) == 2, both)
        one, other = project.json("workers")

        project.done("workers", "drain", f"{one['host']}/{one['pid']}")

        until(lambda: "was asked to drain and has ended; it is not replaced" in both.said(), both)
        assert [left["name"] for left in project.json("workers")] == [other["name"]]
        before = len(site.hits())
        until(lambda: len(site.hits()) > before + 5, both)
        assert [left["name"] for left in project.json("workers")] == [other["name"]]
        both.signal(signal.SIGTERM)
        assert both.ended() == 0
        assert set(Counter((hit.host, hit.path) for hit in site.hits()).values()) == {1}

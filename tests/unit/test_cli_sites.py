"""`gossamer site` and `gossamer workers drain`, as a user sees them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace as changed

from gossamer.frontier.contract import SiteLoad, SiteOrder, WorkerCard
from gossamer.model.job import Job, JobState
from gossamer.project.sites.sites import why_it_waits
from tests.unit.commandline import project as project
from tests.unit.crawled import SLOW, crawl_half


@pytest.fixture
def crawled(project):
    project.fill(crawl_half)
    return project


def sites(project, *flags):
    return {one["site"]: one for one in project.run("site", "list", "--json", *flags).json["sites"]}


def test_the_queue_is_listed_by_site_with_the_reason_that_it_waits(crawled):
    said = crawled.run("site")

    head, *rows = said.lines
    assert head.split() == ["SITE", "QUEUED", "WAITING", "IN", "HAND", "NEXT", "WHY"]
    assert {row.split()[0] for row in rows} == {"slow.example", "shop.example"}
    found = sites(crawled)
    slow, shop = found["slow.example"], found["shop.example"]
    assert (slow["queued"], slow["waiting"], slow["leased"], slow["cause"]) == (3, 0, 0, "rate")
    assert slow["why"].startswith("its rate allows the next request in ")
    assert (shop["queued"], shop["waiting"], shop["leased"], shop["cause"]) == (0, 2, 1, "in hand")


def test_sites_are_searched_sorted_filtered_by_cause_and_counted_as_a_whole(crawled):
    assert list(sites(crawled, "--sort", "site")) == ["shop.example", "slow.example"]
    assert list(sites(crawled, "slow")) == ["slow.example"]
    assert list(sites(crawled, "--cause", "rate")) == ["slow.example"]
    assert list(sites(crawled, "--job", "nothing-1")) == []
    page = crawled.run("site", "list", "--json", "--limit", "1").json
    assert (len(page["sites"]), page["total"], page["open"], page["next"]) == (1, 2, 6, 1)
    assert page["by_cause"] == {"rate": 1, "in hand": 1}
    assert "is not a cause" in crawled.run("site", "list", "--cause", "moon").err
    assert "cannot be sorted" in crawled.run("site", "list", "--sort", "moon").err


def test_a_site_that_rests_is_named_by_list_show_and_why_until_it_is_resumed(crawled):
    said = crawled.run("site", "rest", f"{SLOW}/page", "2h")
    assert said.code == 0
    assert "slow.example rests until" in said.out

    slow = sites(crawled)["slow.example"]
    assert (slow["cause"], "by order of the command line" in slow["why"]) == ("ordered", True)
    why = crawled.run("why", f"{SLOW}/1")
    assert "the site rests until" in why.out
    assert "gossamer site resume slow.example" in why.out
    shown = crawled.run("site", "show", "slow.example", "--json").json
    assert shown["order"]["rest_until"] is not None
    assert crawled.run("site", "resume", "slow.example").code == 0
    assert sites(crawled)["slow.example"]["cause"] == "rate"
    assert crawled.run("site", "resume", "slow.example").code == 1


def test_a_site_is_slowed_down_and_rests_at_the_same_time(crawled):
    crawled.run("site", "slow", "shop.example", "6/m")
    order = crawled.run("site", "rest", "shop.example", "--json").json

    assert (order["rate"], order["rest_until"] is not None) == ("6/m", True)
    shown = crawled.run("site", "show", "shop.example", "--json").json
    assert (shown["spacing"], shown["rate"], shown["crawl_delay"]) == (10.0, "unlimited", None)
    assert "a request every 10 s" in crawled.run("site", "show", "shop.example").out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("slow", "shop.example", "fast"), "is not a rate"),
        (("slow", "shop.example", "unlimited"), "only slows a site down"),
        (("rest", "shop.example", "ever"), "is not a duration"),
        (("rest", "shop.example", "10ms"), "lasts from 1s"),
        (("rest", "no domain at all"), "neither a domain nor a URL"),
        (("rest", ".."), "neither a domain nor a URL"),
        (("rest", "/etc/passwd"), "neither a domain nor a URL"),
    ],
)
def test_what_cannot_be_ordered_is_refused_with_the_next_step(crawled, words, error):
    said = crawled.run("site", *words)

    assert (said.code, error in said.err, "Traceback" in said.err) == (1, True, False)
    assert crawled.run("site", "show", "shop.example", "--json").json["order"] is None


def test_a_site_that_no_job_knows_is_shown_as_the_settings_have_it(crawled):
    shown = crawled.run("site", "show", "nowhere.example", "--json").json

    assert (shown["known"], shown["jobs"], shown["rate"]) == (False, [], "unlimited")


def test_in_an_empty_folder_no_site_waits_and_no_files_are_made(project):
    assert "No site has open pages" in project.run("site").out
    assert not (project.folder / "gossamer-data").exists()


def test_each_cause_is_told_in_its_turn():
    job = Job(id="a-1", name="a", state=JobState.RUNNING, created_at=0.0)
    load = SiteLoad(site="s", queued=1, waiting=1, leased=0, next_at=100.0, away_since=50.0, rest_until=90.0)
    order = SiteOrder(site="s", at=0.0, by="ann", rest_until=95.0)

    def cause(load=load, job=job, order=order, windows=""):
        return why_it_waits(load, job, order, windows, 80.0)[0]

    assert cause(job=changed(job, paused=True)) == "paused"
    assert cause(windows="12:00-13:00 UTC") == "window"
    assert cause() == "ordered"
    assert cause(order=None) == "away"
    there = changed(load, away_since=None)
    assert cause(there, order=None) == "resting"
    rested = changed(there, rest_until=0.0)
    assert cause(rested, order=None) == "rate"
    assert cause(changed(rested, next_at=70.0, taken_by="b-1"), order=None) == "turn"
    assert cause(changed(rested, next_at=70.0), order=None) == "worker"
    assert cause(changed(rested, queued=0, leased=1), order=None) == "in hand"
    later = why_it_waits(changed(rested, queued=0, reason="budget"), job, None, "", 80.0)
    assert (later[0], "credits" in later[1]) == ("not due", True)


def put_workers(project, *names):
    """A heartbeat of each; the names of those that learn that they are to drain."""
    asked = set()

    async def enter(system):
        now = system.clock.now()
        for name in names:
            host, pid, _ = name.split("/")
            card = WorkerCard(name=name, host=host, pid=int(pid), version="1", started_at=now, seen_at=now)
            if await system.state.workers.beat(card):
                asked.add(name)

    project.fill(enter)
    return asked


def test_a_worker_is_asked_to_drain_by_host_and_process(crawled):
    put_workers(crawled, "far/7/1", "away/7/2", "away/8/3")

    said = crawled.run("workers", "drain", "away/7")

    assert (said.code, "away/7/2 was asked to drain" in said.out) == (0, True)
    assert put_workers(crawled, "far/7/1", "away/7/2", "away/8/3") == {"away/7/2"}
    assert crawled.run("workers", "drain", "8", "--json").json["name"] == "away/8/3"
    assert "means several workers" in crawled.run("workers", "drain", "7").err
    assert "is not a worker" in crawled.run("workers", "drain", "nobody").err
    assert [one["name"] for one in crawled.run("workers", "--json").json] == ["away/7/2", "away/8/3", "far/7/1"]

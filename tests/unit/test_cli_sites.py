"""`gossamer site` and `gossamer workers drain`, as a user sees them."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from msgspec.structs import replace as changed

from gossamer.frontier.contract import JobTerms, SiteLoad, WorkerCard
from gossamer.model.job import Job, JobState
from gossamer.model.task import UrlState
from gossamer.project.open import Project
from gossamer.project.sites.sites import why_it_waits
from tests.unit.commandline import candidate
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
    assert head.split() == ["SITE", "QUEUED", "WAITING", "IN", "PROGRESS", "NEXT", "WHY"]
    assert {row.split()[0] for row in rows} == {"slow.example", "shop.example"}
    found = sites(crawled)
    slow, shop = found["slow.example"], found["shop.example"]
    assert (slow["queued"], slow["waiting"], slow["leased"], slow["cause"]) == (3, 0, 0, "rate")
    assert slow["why"].startswith("its rate allows the next request in ")
    assert (shop["queued"], shop["waiting"], shop["leased"], shop["cause"]) == (0, 2, 1, "in progress")


def test_sites_are_searched_sorted_filtered_by_cause_and_counted_as_a_whole(crawled):
    assert list(sites(crawled, "--sort", "site")) == ["shop.example", "slow.example"]
    assert list(sites(crawled, "slow")) == ["slow.example"]
    assert list(sites(crawled, "--cause", "rate")) == ["slow.example"]
    assert list(sites(crawled, "--job", "nothing-1")) == []
    page = crawled.run("site", "list", "--json", "--limit", "1").json
    assert (len(page["sites"]), page["total"], page["open"], page["next"]) == (1, 2, 6, 1)
    assert page["by_cause"] == {"rate": 1, "in progress": 1}
    assert "is not a cause" in crawled.run("site", "list", "--cause", "moon").err
    assert "cannot be sorted" in crawled.run("site", "list", "--sort", "moon").err


def test_a_site_alone_is_shown_and_a_mistyped_verb_is_not_taken_for_one(crawled):
    shown = crawled.run("site", "slow.example")
    wanted = crawled.run("site", "show", "slow.example").out
    assert (shown.code, _without_ages(shown.out)) == (0, _without_ages(wanted))
    mistyped = crawled.run("site", "slw", "slow.example", "6/m")
    assert mistyped.code == 2
    assert "slw" in mistyped.err


def test_a_site_that_rests_is_named_by_list_show_and_why_until_it_is_resumed(crawled):
    said = crawled.run("site", "rest", f"{SLOW}/page", "2h")
    assert said.code == 0
    assert "domains.slow.example.rest: yes instead of false, set by hand by local" in said.out

    slow = sites(crawled)["slow.example"]
    assert (slow["cause"], "set by hand by local" in slow["why"]) == ("ordered", True)
    assert slow["next_at"] == crawled.run("override", "list", "--json").json[0]["until"]
    why = crawled.run("why", f"{SLOW}/1")
    assert "the site rests until" in why.out
    assert "gossamer site resume slow.example" in why.out
    shown = crawled.run("site", "show", "slow.example", "--json").json
    assert [one["key"] for one in shown["overrides"]] == ["domains.slow.example.rest"]
    assert crawled.run("site", "resume", "slow.example").code == 0
    assert sites(crawled)["slow.example"]["cause"] == "rate"
    assert crawled.run("site", "resume", "slow.example").code == 1


async def one_site(project: Project) -> None:
    job, _ = await project.state.jobs.open_job("solo", JobTerms(), fresh=False)
    await project.state.frontier.add(job.id, [candidate("https://solo.example/")])
    await project.state.jobs.seal_seeds(job.id)
    now = project.clock.now()
    card = WorkerCard(name="host/1/1", host="host", pid=1, version="1", started_at=now, seen_at=now, job=job.id)
    await project.state.workers.beat(card)


@pytest.mark.parametrize("ends", [True, False])
def test_a_job_whose_only_site_rests_by_hand_waits_wherever_one_looks(project, ends):
    project.fill(one_site)
    if ends:
        project.run("site", "rest", "solo.example", "2h")
        until = project.run("override", "list", "--json").json[0]["until"]
    else:
        project.run("override", "set", "domains.solo.example.rest", "yes")
        until = None

    said = "1 page waits for solo.example, which rests, set by hand by local"
    shown = project.run("job", "show", "solo-1", "--json").json
    assert (shown["phase"], shown["waits_until"]) == ("waiting", until)
    assert shown["waits_for"].startswith(said)
    assert said in project.run("job", "show", "solo-1").out.replace("\n", " ")
    (at_site,) = project.run("status", "solo-1", "--json").json["sites"]
    assert "rests, set by hand by local" in at_site["next_request"]
    (row,) = [line for line in project.run("status").lines if "solo-1" in line]
    assert "waiting" in row
    site = sites(project)["solo.example"]
    assert (site["cause"], site["next_at"]) == ("ordered", until)
    assert " now " not in project.run("site").out


async def a_page_that_waits(project: Project) -> None:
    job, _ = await project.state.jobs.open_job("spent", JobTerms(), fresh=False)
    await project.state.frontier.add(job.id, [candidate("https://spent.example/")])
    (lease,) = (await project.state.frontier.lease(job.id, "host/1/1", 1)).leases
    await project.state.frontier.release(lease, timedelta(minutes=30), "budget")


def test_a_page_that_is_not_due_is_asked_for_when_it_is_due(project):
    project.fill(a_page_that_waits)
    site = sites(project)["spent.example"]
    until = project.run("job", "show", "spent-1", "--json").json["waits_until"]
    assert (site["cause"], site["next_at"]) == ("not due", until)
    assert "gossamer override set raises it" in site["why"]


async def two_pages_with_a_crawl_delay(project: Project) -> None:
    job, _ = await project.state.jobs.open_job("calm", JobTerms(), fresh=False)
    await project.state.frontier.add(job.id, [candidate(f"https://calm.example/{n}") for n in range(2)])
    await project.state.frontier.slow_down("calm.example", interval=timedelta(minutes=5), rest=timedelta(0))
    (lease,) = (await project.state.frontier.lease(job.id, "host/1/1", 1)).leases
    await project.state.frontier.complete(lease, UrlState.DONE)


def test_the_limit_that_binds_is_named_alike_in_the_list_at_the_site_and_by_its_job(project):
    project.fill(two_pages_with_a_crawl_delay)
    words = "12/h at this site: the crawl-delay of its robots.txt"
    assert words in sites(project)["calm.example"]["why"]
    assert words in project.run("site", "show", "calm.example", "--json").json["jobs"][0]["why"]
    assert words in project.run("status", "calm-1", "--json").json["sites"][0]["next_request"]


def test_a_site_is_slowed_down_and_rests_at_the_same_time(crawled):
    crawled.run("site", "slow", "shop.example", "6/m")
    rest = crawled.run("site", "rest", "shop.example", "--json").json

    assert (rest["value"], rest["until"] is not None) == ("yes", True)
    shown = crawled.run("site", "show", "shop.example", "--json").json
    assert (shown["spacing"], shown["rate"], shown["crawl_delay"]) == (10.0, "6/m", None)
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
    assert crawled.run("site", "show", "shop.example", "--json").json["overrides"] == []


def test_a_site_that_no_job_knows_is_shown_as_the_settings_have_it(crawled):
    shown = crawled.run("site", "show", "nowhere.example", "--json").json

    assert (shown["known"], shown["jobs"], shown["rate"]) == (False, [], "unlimited")


def test_in_an_empty_folder_no_site_waits_and_no_files_are_made(project):
    assert "No site has open pages" in project.run("site").out
    assert not (project.folder / "gossamer-data").exists()


def test_each_cause_is_told_in_its_turn():
    job = Job(id="a-1", name="a", state=JobState.RUNNING, created_at=0.0)
    load = SiteLoad(site="s", queued=1, waiting=1, leased=0, next_at=100.0, away_since=50.0, rest_until=90.0)
    rest = "rests until noon"

    def cause(load=load, job=job, rests=rest, windows=""):
        return why_it_waits(load, job, rests, windows, 80.0)[0]

    assert cause(job=changed(job, paused=True)) == "paused"
    assert cause(windows="12:00-13:00 UTC") == "window"
    assert cause() == "ordered"
    assert cause(rests="") == "away"
    there = changed(load, away_since=None)
    assert cause(there, rests="") == "resting"
    rested = changed(there, rest_until=0.0)
    assert cause(rested, rests="") == "rate"
    assert cause(changed(rested, next_at=70.0, taken_by="b-1"), rests="") == "turn"
    assert cause(changed(rested, next_at=70.0), rests="") == "worker"
    assert cause(changed(rested, queued=0, leased=1), rests="") == "in progress"
    later = why_it_waits(changed(rested, queued=0, reason="budget"), job, "", "", 80.0)
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


def _without_ages(text: str) -> str:
    return re.sub(r"last answer .*", "last answer", text)

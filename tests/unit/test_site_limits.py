"""Which limit binds a job at a site, in words; and what the terms of a job make of those of its site."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.frontier.limits import SiteCondition, held_back, limits_of
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.job import Job, JobPoliteness, JobState, JobTerms
from gossamer.parse.spider import Spider
from gossamer.schedule.authority import demand_own_job, sealed_terms
from gossamer.settings import load
from gossamer.terms import job_terms, politeness_of, site_terms, tightened

SITE = SiteTerms(interval=timedelta(seconds=0.1), concurrency=4)
NO_TERMS = JobPoliteness()


def binding(job=NO_TERMS, latency=0.1, terms=SITE, **condition):
    found = limits_of("shop.test", terms, job, SiteCondition(**condition)).binding(latency)
    return found.words if found is not None else None


def test_the_limit_that_binds_is_named_with_its_value_and_where_it_was_set():
    assert binding() == "10/s at this site: politeness.rate"
    # a site that takes 1.5 s gets 2.7/s of the 10/s asked for
    assert binding(latency=1.5) == "4 at a time at this site: politeness.concurrency"
    own = SiteTerms(interval=timedelta(seconds=1), concurrency=4, named=("rate",))
    assert binding(terms=own) == '1/s at this site: domains."shop.test".rate'
    assert binding(asked=10.0) == "6/m at this site: the crawl-delay of its robots.txt"
    by_hand = SiteTerms(interval=timedelta(seconds=10), concurrency=4, named=("rate",), by_hand=("rate",))
    assert binding(terms=by_hand) == '6/m at this site: domains."shop.test".rate, set by hand'
    assert binding(learned=10.0) == "6/m at this site: learned from its refusals"
    assert binding(away=True, latency=1.0) == "1 at a time at this site: it cannot be reached"
    given = JobPoliteness(rate="1/s", given=("rate",))
    assert binding(given) == "1/s of this job at a site: the rate, given for it"
    assert binding(JobPoliteness(concurrency=2), latency=1) == (
        "2 at a time of this job at a site: site_concurrency of its spider"
    )
    assert binding(terms=SiteTerms(interval=None, concurrency=None)) is None


def test_a_crawl_that_was_slower_than_its_limits_was_held_back_by_something_else():
    limits = limits_of("shop.test", SITE, NO_TERMS)
    assert held_back(limits, latency=1.5, pages_per_second=2.5, concurrency=32) is limits.at_once
    assert held_back(limits, latency=1.5, pages_per_second=0.5, concurrency=32) is None
    process = held_back(limits, latency=1.5, pages_per_second=1.3, concurrency=2)
    assert process is not None
    assert process.words == "2 at a time in this process: crawl.concurrency"


def read(folder, text="", **flags):
    (folder / "gossamer.toml").write_text(text)
    return load(start=folder, environ={}, flags={name.replace("__", "."): value for name, value in flags.items()})


class Calm(Spider):
    start_urls = ("https://shop.test/",)
    rate = "1/s"
    site_concurrency = 2
    priority = 7


class Plain(Spider):
    start_urls = ("https://shop.test/",)


@pytest.mark.parametrize(
    ("text", "flags", "at_once"),
    [
        ("", {"crawl__rate": "unlimited", "crawl__concurrency": 64}, 64),
        ("", {"crawl__concurrency": 64}, 4),
        ("[politeness]\nconcurrency = 6\n", {"crawl__rate": "unlimited", "crawl__concurrency": 64}, 6),
        ("", {"crawl__rate": "unlimited", "crawl__concurrency": 64, "crawl__site_concurrency": 9}, 9),
        ("[domains.'shop.test']\nconcurrency = 3\n", {"crawl__rate": "unlimited", "crawl__concurrency": 64}, 3),
    ],
)
def test_without_a_rate_and_a_number_per_site_the_number_of_the_process_counts(tmp_path, text, flags, at_once):
    settings = read(tmp_path, text, **flags)
    terms = site_terms(settings, politeness_of(settings, Plain()))("shop.test")
    assert (terms.own_concurrency or terms.concurrency) == at_once


def test_the_command_line_goes_before_the_spider(tmp_path):
    assert politeness_of(read(tmp_path), Calm()) == JobPoliteness(rate="1/s", concurrency=2)
    flagged = read(tmp_path, crawl__rate="3/s", crawl__priority=5)
    assert politeness_of(flagged, Calm()) == JobPoliteness(rate="3/s", concurrency=2, given=("rate", "priority"))
    assert (job_terms(read(tmp_path), Calm()).priority, job_terms(flagged, Calm()).priority) == (7, 5)


def test_what_a_client_asks_for_only_tightens(tmp_path):
    settings = read(tmp_path, '[politeness]\nrate = "10/s"\n[domains."slow.test"]\nrate = "1/s"\n')
    usual = politeness_of(settings, Plain())
    assert tightened(settings, usual, "20/s", 9) == usual
    wished = tightened(settings, usual, "5/s", 2)
    assert (wished.rate, wished.concurrency, wished.tightens) == ("5/s", 2, True)
    terms = site_terms(settings, wished)
    assert terms("fast.test").own_spacing(None) == 0.2
    assert terms("slow.test").own_spacing(None) == 1  # its own table is slower still


def test_a_resumed_job_keeps_what_was_given_for_it_unless_it_is_given_anew():
    begun = Job.under(
        JobTerms(politeness=JobPoliteness(rate="1/s", concurrency=2, given=("rate", "priority")), priority=9),
        id="a-1", name="a", state=JobState.RUNNING, created_at=0.0,
    )  # fmt: skip
    again = JobTerms().as_begun(begun)
    assert (again.politeness.rate, again.politeness.concurrency, again.priority) == ("1/s", 2, 9)
    anew = JobTerms(politeness=JobPoliteness(rate="5/s", given=("rate",))).as_begun(begun)
    assert (anew.politeness.rate, anew.politeness.given, anew.priority) == ("5/s", ("rate", "priority"), 9)


def test_the_seal_covers_the_pace_the_limits_and_the_priority_of_a_job(tmp_path):
    from msgspec.structs import replace

    from gossamer.errors import Misconfigured

    settings = read(tmp_path, '[fleet]\nkey = "0123456789abcdef0123456789abcdef"\n')
    terms = sealed_terms(settings, "a", JobTerms(limit=5, depth=2, politeness=JobPoliteness(rate="1/s")))
    demand_own_job(settings, "a", terms)
    for forged in (
        replace(terms, politeness=JobPoliteness(rate="100/s")),
        replace(terms, limit=500),
        replace(terms, depth=None),
        replace(terms, priority=99),
    ):
        with pytest.raises(Misconfigured, match="seal"):
            demand_own_job(settings, "a", forged)

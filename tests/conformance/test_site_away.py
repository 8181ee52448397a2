"""What every frontier promises about a site that cannot be reached: it rests, one page tries it, it is given up."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.frontier.away import GIVEN_UP, QUIET, AwayTerms, SiteFailure
from gossamer.frontier.contract import DeadFilter
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.task import Away, UrlState
from tests.conformance.frontiers import Backends, candidate

NOW = timedelta(0)
TERMS = AwayTerms(base=timedelta(seconds=1), cap=timedelta(seconds=60), patience=timedelta(minutes=10), probes=4)
REFUSED = SiteFailure(host="a.test", reason="connect", never=False)
UNKNOWN = SiteFailure(host="a.test", reason="dns", never=True)


@pytest.fixture(params=Backends.UNSHARDED)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def job_with(lab, *urls):
    job = (await lab.job()).id
    await lab.frontier.add(job, [candidate(url) for url in urls or [f"https://a.test/{n}" for n in range(9)]])
    return job


async def lease(lab, job, n=1):
    return (await lab.frontier.lease(job, "w", n)).leases


async def once_answered(lab, job):
    """A page of the site is done, and that is some time ago."""
    (page,) = await lease(lab, job)
    await lab.frontier.complete(page, UrlState.DONE)
    lab.clock.advance(QUIET.total_seconds())


async def probe(lab, job, failure=REFUSED):
    """Lease one page, which fails; give it back. Returns the verdict."""
    (page,) = await lease(lab, job)
    verdict = await lab.frontier.site_away("a.test", failure, TERMS)
    await lab.frontier.release(page, verdict.pause, "site away")
    return verdict


async def test_a_site_that_cannot_be_reached_rests_with_growing_pauses_and_one_page_at_a_time_tries_it(lab):
    job = await job_with(lab)
    await once_answered(lab, job)
    pages = await lease(lab, job, 3)

    # given three requests under way when the site goes away: the first failure begins the rest
    first = await lab.frontier.site_away("a.test", REFUSED, TERMS)
    assert (first.counts, first.pause, first.over) == (True, TERMS.base, False)
    lab.clock.advance(0.5)
    for _ in pages[1:]:
        other = await lab.frontier.site_away("a.test", REFUSED, TERMS)
        assert (other.counts, other.pause, other.over) == (False, timedelta(seconds=0.5), False)
    for page in pages:
        await lab.frontier.release(page, NOW, "site away")
    assert await lease(lab, job, 9) == ()

    # when each of the probes fails, then the next one comes later, and no try is used up
    for pause in (2, 4, 8, 16, 32, 60, 60):
        lab.clock.advance(first.pause.total_seconds())
        (page,) = await lease(lab, job, 9)
        assert page.away == Away("a.test", "connect", first.since, False)
        assert (await lab.frontier.lease(job, "other", 9)).leases == ()
        first = await lab.frontier.site_away("a.test", REFUSED, TERMS)
        assert (first.counts, first.pause, first.over) == (False, timedelta(seconds=pause), False)
        await lab.frontier.release(page, NOW, "site away")
        assert await lease(lab, job, 9) == ()
    assert (await lab.jobs.counts(job)).retries == 0


@pytest.mark.parametrize("answer", ["page", "other"])
async def test_the_first_answer_ends_the_rest(lab, answer):
    job = await job_with(lab)
    await once_answered(lab, job)
    for _ in range(2):
        lab.clock.advance((await probe(lab, job)).pause.total_seconds())
    (page,) = await lease(lab, job, 9)

    if answer == "page":
        await lab.frontier.complete(page, UrlState.DONE)
    else:
        await lab.frontier.site_back("a.test")
        await lab.frontier.bury(page, "http-404", "It is not here.")

    pages = await lease(lab, job, 9)
    assert len(pages) == 7
    assert {one.away for one in pages} == {None}
    lab.clock.advance(QUIET.total_seconds())
    assert (await lab.frontier.site_away("a.test", REFUSED, TERMS)).pause == TERMS.base  # from the beginning


async def test_a_host_that_never_answered_is_given_up_after_a_few_probes(lab):
    job = await job_with(lab)
    verdict = await probe(lab, job, UNKNOWN)
    assert verdict.counts
    for _ in range(2):
        lab.clock.advance(verdict.pause.total_seconds())
        verdict = await probe(lab, job, UNKNOWN)
        assert not verdict.counts
        assert not verdict.over
    lab.clock.advance(verdict.pause.total_seconds())

    assert (await probe(lab, job, UNKNOWN)).over


async def test_a_site_that_answered_is_waited_for(lab):
    job = await job_with(lab)
    await once_answered(lab, job)
    began = lab.clock.now()
    while not (verdict := await probe(lab, job)).over:
        lab.clock.advance(verdict.pause.total_seconds())

    assert TERMS.patience.total_seconds() <= lab.clock.now() - began
    assert lab.clock.now() - began <= (TERMS.patience + TERMS.cap).total_seconds()
    assert verdict.since == pytest.approx(began)


async def test_pages_of_a_site_that_was_given_up_are_handed_out_at_once_to_be_buried(lab):
    lab.terms["a.test"] = SiteTerms(interval=timedelta(seconds=5), concurrency=4)
    job = await job_with(lab)
    while not (verdict := await probe(lab, job, UNKNOWN)).over:
        lab.clock.advance(max(5.0, verdict.pause.total_seconds()))

    # then they do not wait for the site's pace, in which no request leaves
    buried = 0
    while pages := await lease(lab, job, 9):
        assert {(page.away.host, page.away.given_up) for page in pages} == {("a.test", True)}
        assert {page.pace.interval for page in pages} == {5.0}
        for page in pages:
            await lab.frontier.bury(page, "dns", "It was not tried.")
        buried += len(pages)
    assert buried == 9

    # when one is replayed, or the time is over, then the site is tried again
    assert await lab.queue.replay(DeadFilter(url="https://a.test/1")) == 1
    lab.clock.advance(5)
    (page,) = await lease(lab, job, 9)
    assert page.away is None


async def test_after_a_while_a_site_that_was_given_up_is_tried_again(lab):
    job = await job_with(lab)
    while not (verdict := await probe(lab, job, UNKNOWN)).over:
        lab.clock.advance(verdict.pause.total_seconds())
    assert (await lab.frontier.site_away("a.test", UNKNOWN, TERMS)).over

    lab.clock.advance(GIVEN_UP.total_seconds())

    again = await lab.frontier.site_away("a.test", UNKNOWN, TERMS)
    assert (again.counts, again.pause, again.over) == (True, TERMS.base, False)


@pytest.mark.parametrize("failure", [REFUSED, UNKNOWN])
async def test_failures_of_a_job_that_stopped_in_an_outage_do_not_give_the_site_up_a_day_later(lab, failure):
    job = await job_with(lab)
    await once_answered(lab, job)
    for _ in range(TERMS.probes - 1):
        lab.clock.advance((await probe(lab, job, failure)).pause.total_seconds())

    lab.clock.advance(timedelta(days=1).total_seconds())

    again = await probe(lab, job, failure)
    assert (again.counts, again.pause, again.over) == (True, TERMS.base, False)
    assert again.since == pytest.approx(lab.clock.now())
    lab.clock.advance(again.pause.total_seconds())
    assert (await probe(lab, job, failure)).pause == 2 * TERMS.base


async def test_a_dead_host_does_not_hold_up_the_others_of_its_site(lab):
    job = await job_with(lab)
    (page,) = await lease(lab, job)
    await lab.frontier.complete(page, UrlState.DONE)

    verdict = await lab.frontier.site_away("a.test", SiteFailure(host="old.a.test", reason="dns", never=True), TERMS)

    assert (verdict.counts, verdict.pause, verdict.over) == (True, NOW, False)
    assert len(await lease(lab, job, 9)) == 8


async def test_of_a_site_with_several_dead_hosts_no_page_is_given_up_untried(lab):
    job = await job_with(lab)
    hosts = ("a.test", "old.a.test")
    for n in range(TERMS.probes):
        failure = SiteFailure(host=hosts[n % 2], reason="dns", never=True)
        verdict = await lab.frontier.site_away("a.test", failure, TERMS)
        lab.clock.advance(verdict.pause.total_seconds())
    assert verdict.over

    (page, *_) = await lease(lab, job, 9)
    assert (page.away.host, page.away.given_up) == ("", True)


async def test_people_see_that_a_site_is_away(lab):
    job = await job_with(lab)
    await once_answered(lab, job)
    verdict = await probe(lab, job)

    (load,) = await lab.queue.sites(job)
    (story,) = await lab.queue.story("a.test", candidate("https://a.test/5").fingerprint)
    assert load.away_since == story.site_away_since == pytest.approx(verdict.since)
    assert load.next_at == story.site_next_at == pytest.approx(lab.clock.now() + 1)

    await lab.frontier.site_back("a.test")

    (load,) = await lab.queue.sites(job)
    assert load.away_since is None

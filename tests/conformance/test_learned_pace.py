"""What every frontier promises about a site that says again and again that it is asked too often: its pace falls for
all workers and jobs, and rises again with time. Every step is compared with the pure rule."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from gossamer.frontier.learned_pace import (
    FORGET,
    GROWTH,
    HOLD,
    SAME,
    SLOWEST,
    SPARSE,
    UNPACED,
    LearnedPace,
    after_refusal,
)
from gossamer.frontier.limits import SiteCondition, condition_of
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.task import UrlState
from tests.conformance.frontiers import Backends, candidate

SITE, REST = "a.test", timedelta(seconds=4)
HALF = SiteTerms(interval=timedelta(seconds=0.5), burst=3, concurrency=4)


@pytest.fixture(params=Backends.UNSHARDED)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def job_with(lab, name="test"):
    job = (await lab.job(name)).id
    await lab.frontier.add(job, [candidate(f"https://{SITE}/{name}/{n}") for n in range(30)])
    return job


async def refuse(lab, rest=REST):
    """The site refuses a request. Returns the learned interval in seconds, and lets the rest pass."""
    learned = await lab.frontier.too_often(SITE, rest=rest, worker="w")
    lab.clock.advance(rest.total_seconds() + SAME)
    return None if learned is None else round(learned.total_seconds(), 6)


async def pace_of(lab, job, worker="w"):
    (lease,) = (await lab.frontier.lease(job, worker, 1)).leases
    await lab.frontier.complete(lease, UrlState.DONE)
    lab.clock.advance(SLOWEST * 4)
    return None if lease.pace is None else (round(lease.pace.interval, 6), lease.pace.burst)


async def learned(lab):
    return (await lab.queue.site(SITE)).learned


async def test_refusals_again_and_again_lower_the_pace_for_all_workers_and_jobs_and_it_is_not_forgotten(lab):
    lab.terms[SITE] = HALF
    job = await job_with(lab)

    # the first one teaches nothing, those under way are the same one, and it rests for all
    assert await lab.frontier.too_often(SITE, rest=REST) is None
    assert await lab.frontier.too_often(SITE, rest=REST) is None
    assert (await lab.frontier.lease(job, "w", 1)).leases == ()
    lab.clock.advance(REST.total_seconds() + SAME)
    assert await learned(lab) == LearnedPace(
        interval=None, refused_at=lab.clock.now() - REST.total_seconds() - SAME, between=SPARSE
    )

    # each of the next lowers it; the one after a long calm only stays where it is
    first, second = await refuse(lab), await refuse(lab)
    assert (first, 1.2 < second <= 2.0) == (1.0, True)
    assert await pace_of(lab, job) == (second, 1)
    assert await pace_of(lab, await job_with(lab, "another"), "other worker") == (second, 1)
    assert await refuse(lab) == pytest.approx(second, rel=0.3)
    lowest = [await refuse(lab) for _ in range(12)][-1]
    assert lowest > 10  # every second request or so is refused
    (load,) = await lab.queue.loads(job, lab.clock.now())
    assert (load.asked, load.learned) == (None, pytest.approx(lowest))  # a crawl-delay is something else
    (at_site,) = await lab.queue.sites(job)
    assert condition_of(at_site, lab.clock.now()) == SiteCondition(learned=pytest.approx(lowest))

    # a process that opens the state later goes by it
    async with lab.again() as later:
        later.terms[SITE] = HALF
        assert (await later.queue.site(SITE)).learned.interval == pytest.approx(lowest)

    # an operator can take it back
    assert await lab.waiting.forget_pace(SITE)
    assert not await lab.waiting.forget_pace(SITE)
    assert await learned(lab) == LearnedPace()
    assert await pace_of(lab, job) == (0.5, 3)


async def test_the_rate_grows_again_with_time_never_beyond_the_settings_and_is_forgotten_in_a_day(lab):
    lab.terms[SITE] = HALF
    job = await job_with(lab)
    top = [await refuse(lab) for _ in range(8)][-1]
    assert top > 2
    began = (await learned(lab)).refused_at

    def at(seconds):
        lab.clock.advance(began + seconds - lab.clock.now())

    at(HOLD)
    assert await pace_of(lab, job) == (top, 1)
    at(HOLD + GROWTH)
    assert await pace_of(lab, job) == (pytest.approx(top / 2), 1)
    at(HOLD + 3 * GROWTH)
    assert await pace_of(lab, job) == (pytest.approx(top / 4), 1)
    at(HOLD + 15 * GROWTH)
    assert await pace_of(lab, job) == (0.5, 1)
    at(FORGET - 300)
    lab.terms[SITE] = SiteTerms(interval=timedelta(seconds=3))
    assert await pace_of(lab, job) == (3.0, 1)
    at(FORGET)
    lab.terms[SITE] = HALF
    assert await pace_of(lab, job) == (0.5, 3)


async def test_a_site_without_a_rate_is_held_by_one_worker_once_it_has_a_pace(lab):
    job = await job_with(lab)
    mine, others = (await lab.frontier.lease(job, "w", 2)).leases, (await lab.frontier.lease(job, "other", 2)).leases
    assert [await refuse(lab), await refuse(lab)] == [None, 2 * UNPACED]

    assert (await lab.frontier.lease(job, "other", 1)).leases == ()
    (held,) = (await lab.frontier.lease(job, "w", 5)).leases
    assert round(held.pace.interval, 6) == 2 * UNPACED
    for lease in (*mine, *others, held):
        await lab.frontier.complete(lease, UrlState.DONE)


async def test_every_backend_keeps_to_the_pure_rule(lab):
    lab.terms[SITE] = HALF
    await job_with(lab)
    known, rest_until = LearnedPace(), 0.0
    for wait, rest in (
        (0, 4),
        (1, 0),
        (9, 0),
        (0.5, 2),
        (40, 2),
        (5, 30),
        (31, 3),
        (400, 0),
        (2e3, 1),
        (9e4, 1),
        (9, 1),
    ):
        lab.clock.advance(wait)
        now = lab.clock.now()
        own = HALF.spacing(None)
        known = after_refusal(known, own=own, now=now, rest_until=rest_until)
        rest_until = max(rest_until, now + rest if rest else 0.0)
        await lab.frontier.too_often(SITE, rest=timedelta(seconds=rest))
        found = await learned(lab)
        assert found.refused_at == pytest.approx(known.refused_at)
        assert found.between == pytest.approx(known.between)
        assert found.interval == (None if known.interval is None else pytest.approx(known.interval))


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1])
def test_a_site_that_refuses_a_share_of_all_requests_however_slow_is_not_crawled_ever_slower(share):
    chance, known, now, rest_until, own = random.Random(1), LearnedPace(), 1e6, 0.0, 0.5
    took = []
    for _ in range(4):  # crawls of 500 pages, an hour apart
        began, done = now, 0
        while done < 500:
            now = max(now + max(own, known.now(now) or 0.0), rest_until)
            if chance.random() >= share:
                done += 1
                continue
            known = after_refusal(known, own=own, now=now, rest_until=rest_until)
            rest_until = max(rest_until, now + 4.0)
        took.append(now - began)
        now += 3600

    # without a learned pace such a crawl takes 250 s, and 4 s for each refusal
    assert max(took) < 3 * 250 * (1 + SPARSE * share)


def test_a_site_with_a_limit_finds_its_pace():
    known, now, rest_until, own, answered = LearnedPace(), 1e6, 0.0, 0.05, []
    refused = 0
    for _ in range(2000):
        now = max(now + max(own, known.now(now) or 0.0), rest_until)
        answered = [at for at in answered if at > now - 1.0]
        if len(answered) < 4:  # a second
            answered.append(now)
            continue
        refused += 1
        known = after_refusal(known, own=own, now=now, rest_until=rest_until)
        rest_until = max(rest_until, now + 4.0)

    assert refused < 30
    assert 0.2 < (known.now(now) or 0.0) < 0.6

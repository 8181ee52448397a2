"""What every frontier promises to jobs that want the same site: none is kept out by another one that has it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.frontier.politeness import GIVE_WAY, HEAD_START, TURN, SiteTerms
from gossamer.frontier.turns import LONGEST
from gossamer.model.task import UrlState
from tests.conformance.frontiers import LEASE, Backends, candidate

STEP = 0.05  # seconds
PACED = SiteTerms(interval=timedelta(seconds=0.5), burst=1, concurrency=8)
BURSTS = SiteTerms(interval=timedelta(seconds=0.5), burst=4, concurrency=8)
ONE_AT_A_TIME = SiteTerms(interval=None, burst=1, concurrency=1)


@pytest.fixture(params=Backends.UNSHARDED)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


class Crowd:
    """Workers of several jobs at one site, whose every page takes `latency` seconds."""

    def __init__(self, lab, latency):
        self.lab = lab
        self.latency = latency
        self.grants = []  # moment, job
        self.in_progress = []

    async def job(self, name, pages=400, **terms):
        job = await self.lab.job(name, **terms)
        await self.lab.frontier.add(job.id, [candidate(f"https://a.test/{name}/{n}") for n in range(pages)])
        return job.id

    async def ask(self, job, worker, n=4, lanes=None):
        leases = (await self.lab.frontier.lease(job, worker, n, lanes)).leases
        for lease in leases:
            self.grants.append((self.lab.clock.now(), job))
            self.in_progress.append((self.lab.clock.now() + self.latency, lease))
        return len(leases)

    async def settle(self):
        done = [one for one in self.in_progress if one[0] <= self.lab.clock.now()]
        for one in done:
            self.in_progress.remove(one)
            await self.lab.frontier.complete(one[1], UrlState.DONE)

    async def spend(self, seconds, *asking):
        """Let time pass, while each of (job, worker, steps) asks every so many steps."""
        until, step = self.lab.clock.now() + seconds, 0
        while self.lab.clock.now() < until:
            await self.settle()
            for job, worker, every in asking:
                if step % every == 0:
                    await self.ask(job, worker)
            self.lab.clock.advance(STEP)
            step += 1

    def times(self, job):
        return [at for at, whose in self.grants if whose == job]

    def pauses(self, job, since):
        mine = [at for at, whose in self.grants if whose == job and at >= since]
        return [after - before for before, after in zip([since, *mine], [*mine, self.lab.clock.now()], strict=True)]


@pytest.mark.parametrize("terms", [PACED, BURSTS, ONE_AT_A_TIME], ids=["paced", "in bursts", "one at a time"])
async def test_jobs_take_turns_at_a_site_that_is_slower_than_its_pace(lab, terms):
    lab.terms["a.test"] = terms
    crowd = Crowd(lab, latency=1.7)
    first, second = await crowd.job("first"), await crowd.job("second")
    began = lab.clock.now()

    # when one job is there first and asks all the time, and the other as an idle worker does
    await crowd.spend(28, (first, "w1", 1), (second, "w2", 5))

    # then neither is kept waiting much longer than a turn of the other lasts, and the site is spared
    for job in (first, second):
        assert max(crowd.pauses(job, began)) < 2 * TURN.total_seconds() + 4, crowd.grants
    if terms.interval is not None:
        times = [at for at, _ in crowd.grants]
        for i in range(len(times)):
            for j in range(i, len(times)):
                span = times[j] - times[i] + HEAD_START.total_seconds()
                assert j - i + 1 <= terms.burst + span / terms.interval.total_seconds() + 1e-6


async def test_three_jobs_get_on(lab):
    lab.terms["a.test"] = PACED
    crowd = Crowd(lab, latency=1.7)
    jobs = [await crowd.job(name) for name in ("one", "two", "three")]
    began = lab.clock.now()

    await crowd.spend(45, (jobs[0], "w1", 1), (jobs[1], "w2", 5), (jobs[2], "w3", 7))

    for job in jobs:
        assert max(crowd.pauses(job, began)) < 4 * TURN.total_seconds() + 8


async def test_a_job_that_wanted_the_site_and_left_holds_up_nobody(lab):
    lab.terms["a.test"] = ONE_AT_A_TIME
    crowd = Crowd(lab, latency=0.5)
    first, second = await crowd.job("first"), await crowd.job("second")
    await crowd.ask(first, "w1")
    assert await crowd.ask(second, "w2") == 0  # and never comes again
    await crowd.spend(TURN.total_seconds() + STEP, (first, "w1", 1))
    after = lab.clock.now()

    await crowd.spend(20, (first, "w1", 1))

    pauses = crowd.pauses(first, after)
    longest = GIVE_WAY.total_seconds() + crowd.latency + 4 * STEP
    assert max(pauses) <= longest
    assert sum(pause > crowd.latency + 4 * STEP for pause in pauses) <= 1  # it was offered once, not again and again


async def test_workers_of_one_job_do_not_send_each_other_away(lab):
    lab.terms["a.test"] = PACED
    crowd = Crowd(lab, latency=1.7)
    only = await crowd.job("only")
    began = lab.clock.now()

    await crowd.spend(20, (only, "w1", 1), (only, "w2", 1))

    # One request in each interval, from the first to the last.
    assert max(crowd.pauses(only, began)) <= 0.5 + 2 * STEP + HEAD_START.total_seconds()


async def test_a_clock_that_is_put_back_does_not_make_a_job_wait_for_the_old_time(lab):
    lab.terms["a.test"] = ONE_AT_A_TIME
    crowd = Crowd(lab, latency=1.7)
    jobs = [await crowd.job(name) for name in ("one", "two", "three")]
    await crowd.ask(jobs[0], "w1")
    assert await crowd.ask(jobs[1], "w2") == 0
    lab.clock.advance(-7200)
    crowd.in_progress.clear()  # a lease that ends later than any can is over
    crowd.grants.clear()
    back = lab.clock.now()

    await crowd.spend(45, (jobs[0], "w1", 1), (jobs[1], "w2", 5), (jobs[2], "w3", 7))

    for job in jobs:
        assert max(crowd.pauses(job, back)) < 4 * TURN.total_seconds() + 8


@pytest.mark.parametrize("gone", [True, False], ids=["nobody waits", "somebody waits"])
async def test_a_page_that_takes_very_long_does_not_make_its_site_stand_idle_as_long(lab, gone):
    lab.terms["a.test"] = PACED
    crowd = Crowd(lab, latency=0.4)
    first, second = await crowd.job("first"), await crowd.job("second")
    began = lab.clock.now()
    await crowd.ask(first, "w1", n=1)
    _, slow = crowd.in_progress.pop()
    crowd.in_progress.append((began + LEASE.total_seconds() - 1, slow))
    assert await crowd.ask(second, "w2") == 0

    asking = [(first, "w1", 1)] if gone else [(first, "w1", 1), (second, "w2", 5)]
    await crowd.spend(LEASE.total_seconds() - 2, *asking)

    pauses = sorted(crowd.pauses(first, began))
    assert pauses[-1] < LONGEST.total_seconds() + 1
    if gone:
        assert pauses[-2] < 1  # it was waited for once


async def test_a_job_with_several_lanes_waits_as_long_as_its_site_was_not_served_in_any(lab):
    lab.terms["a.test"] = PACED
    crowd = Crowd(lab, latency=1.7)
    lanes = await crowd.job("lanes", pages=40)
    await lab.frontier.add(lanes, [candidate("https://a.test/shown", fetcher="browser")])
    holder, patient = await crowd.job("holder"), await crowd.job("patient")
    # given a job that was served after the patient one came, but not in its other lane
    lab.clock.advance(0.1)
    await crowd.ask(lanes, "plain", n=1, lanes=frozenset({""}))
    lab.clock.advance(crowd.latency)
    await crowd.settle()
    assert await crowd.ask(holder, "w1", n=1) == 1
    # when both are refused, the one with the lanes first
    assert await crowd.ask(lanes, "browser", lanes=frozenset({"browser"})) == 0
    assert await crowd.ask(patient, "w2") == 0
    lab.clock.advance(TURN.total_seconds())
    await crowd.settle()

    # then the site is the patient one's
    assert await crowd.ask(lanes, "browser", lanes=frozenset({"browser"})) == 0
    assert await crowd.ask(patient, "w2", n=1) == 1


async def test_the_story_of_a_page_tells_which_job_has_its_site(lab):
    lab.terms["a.test"] = PACED
    crowd = Crowd(lab, latency=1.7)
    first, second = await crowd.job("first", pages=2), await crowd.job("second", pages=2)

    async def has(job):
        page = candidate(f"https://a.test/{job.partition('-')[0]}/1")
        (story,) = await lab.queue.story(page.site, page.fingerprint)
        return story.site_taken_by

    assert await has(second) is None
    await crowd.ask(first, "w1", n=1)
    assert (await has(first), await has(second)) == (None, None)  # nobody has asked for it yet
    assert await crowd.ask(second, "w2") == 0
    assert (await has(first), await has(second)) == (None, first)
    await crowd.ask(first, "w1", n=1)  # it may not have another page yet, and has the site all the same
    assert (await has(first), await has(second)) == (None, first)
    lab.clock.advance(crowd.latency)
    await crowd.settle()
    assert await has(second) is None

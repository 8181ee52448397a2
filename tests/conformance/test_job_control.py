"""What holds when people pause, resume and cancel jobs. Each test runs against each backend."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from gossamer.backends.redis.leasing import LeaseRequest
from gossamer.backends.redis.rows import EVERY_LANE
from gossamer.errors import LeaseLost, Permanent
from gossamer.frontier.contract import DeadFilter, JobTerms
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.job import JobState
from gossamer.model.outcome import JobOutcome, Outcome, Reason
from gossamer.model.task import DropReason, UrlState
from tests.conformance.frontiers import Backends, adds_up, candidate

REDIS = pytest.mark.parametrize("lab", ["valkey", "shards"], indirect=True)
URLS = [f"https://{site}.test/{n}" for site in "abc" for n in range(4)]  # of several shards, where there are some


@pytest.fixture(params=Backends.NAMES)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def begun(lab, name="books", **terms):
    job = await lab.job(name, **terms)
    await lab.frontier.add(job.id, [candidate(url) for url in URLS])
    await lab.jobs.seal_seeds(job.id)
    return job.id


async def test_a_job_that_is_opened_with_its_seeds_has_them_and_is_sealed(lab):
    seeds = [candidate(url) for url in URLS]

    job, found = await lab.jobs.open_job("pages", JobTerms(), fresh=False, seeds=seeds)

    async with lab.again() as elsewhere:
        assert not found
        assert await elsewhere.jobs.is_sealed(job.id)
        handed_out = [lease for _ in range(3) for lease in (await elsewhere.frontier.lease(job.id, "one", 20)).leases]
        assert sorted(lease.task.url for lease in handed_out) == sorted(URLS)
        for lease in handed_out:
            await elsewhere.frontier.complete(lease, UrlState.DONE)
        assert (await elsewhere.frontier.lease(job.id, "one", 1)).drained
        counts = await elsewhere.jobs.counts(job.id)
        assert (counts.done, counts.discovered, counts.duplicates) == (len(URLS), len(URLS), 0)
        assert adds_up(counts)


async def test_a_job_that_goes_on_takes_no_seeds_from_those_who_find_it(lab):
    job, _ = await lab.jobs.open_job("pages", JobTerms(), fresh=False, seeds=[candidate(URLS[0])])

    again, found = await lab.jobs.open_job("pages", JobTerms(), fresh=False, seeds=[candidate(URLS[1])])

    assert (again.id, found) == (job.id, True)
    assert [url async for url, _, _ in lab.queue.urls(job.id)] == [URLS[0]]


async def reasons(lab, job):
    return {(state, reason) async for _, state, reason in lab.queue.urls(job)}


# -- pausing ------------------------------------------------------------------------------------------------------


async def test_nothing_of_a_paused_job_is_handed_out_to_any_worker_until_it_goes_on(lab):
    job = await begun(lab)
    async with lab.again() as elsewhere:
        assert len((await elsewhere.frontier.lease(job, "second", 1)).leases) == 1

        assert await lab.control.pause_job(job, True)

        for one, worker in ((lab, "first"), (elsewhere, "second")):
            batch = await one.frontier.lease(job, worker, 9)
            assert (batch.leases, batch.wait, batch.drained) == ((), timedelta(seconds=1), False)
        assert [(one.id, one.paused) for one in await elsewhere.jobs.running_jobs()] == [(job, True)]
        assert (await elsewhere.jobs.job(job)).paused

        assert await elsewhere.control.pause_job(job, False)

        assert len((await lab.frontier.lease(job, "first", 20)).leases) == len(URLS) - 1
        assert not (await lab.jobs.job(job)).paused


async def test_what_is_in_hand_of_a_paused_job_is_settled_and_links_and_seeds_still_enter(lab):
    job = await begun(lab)
    done, again, given_up, held = (await lab.frontier.lease(job, "w", 4)).leases
    await lab.control.pause_job(job, True)

    await lab.frontier.complete(done, UrlState.DONE, discovered=[candidate("https://d.test/link")])
    await lab.frontier.retry(again, timedelta(seconds=1), "timeout")
    await lab.frontier.bury(given_up, "http-404", "gone")
    assert await lab.frontier.renew([held]) == []
    await lab.frontier.add(job, [candidate("https://d.test/seed")])

    counts = await lab.jobs.counts(job)
    assert (counts.done, counts.waiting, counts.dead, counts.leased) == (1, 1, 1, 1)
    assert counts.queued == len(URLS) - 4 + 2
    assert adds_up(counts)
    lab.clock.advance(5)
    assert (await lab.frontier.lease(job, "w", 20)).leases == ()  # nor what waited, and is due now
    await lab.control.pause_job(job, False)
    assert len((await lab.frontier.lease(job, "w", 20)).leases) == len(URLS) - 4 + 3


async def test_a_paused_job_with_nothing_open_is_drained_and_ends_as_any_other(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    await lab.jobs.seal_seeds(job.id)
    (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases
    await lab.control.pause_job(job.id, True)
    assert not await lab.jobs.close_job(job.id, "done")
    await lab.frontier.complete(lease, UrlState.DONE)

    assert (await lab.frontier.lease(job.id, "w", 1)).drained
    assert await lab.jobs.close_job(job.id, "done")

    ended = await lab.jobs.job(job.id)
    assert (ended.state, ended.ending, ended.paused) == (JobState.FINISHED, "done", False)


async def test_a_job_keeps_its_outcome_until_it_runs_again(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    await lab.jobs.seal_seeds(job.id, "digest")
    (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases
    await lab.frontier.bury(lease, "parse", "no h1 ☂")
    outcome = JobOutcome(Outcome.EMPTY, (Reason("no-records", "no record came ☂"), Reason("parse", 'it "failed"')))
    assert (await lab.jobs.job(job.id)).outcome is None

    assert await lab.jobs.close_job(job.id, "done", outcome)

    for ended in (
        await lab.jobs.job(job.id),
        (await lab.jobs.jobs())[0],
        (await lab.history.newest_jobs(job.name, 1))[0],
    ):
        assert (ended.outcome, ended.start) == (outcome, "digest")
    await lab.queue.replay(DeadFilter())
    assert (await lab.jobs.job(job.id)).outcome is None
    await lab.control.cancel_job(job.id)
    assert (await lab.jobs.job(job.id)).outcome.outcome is Outcome.INCOMPLETE


async def test_the_limits_of_a_job_hold_for_its_replay(lab):
    job = await lab.job("books", limit=2, depth=1)
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    await lab.jobs.seal_seeds(job.id)
    (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases
    await lab.frontier.bury(lease, "http-500", 'it said "replayed":false')
    await lab.jobs.close_job(job.id, "done")

    await lab.queue.replay(DeadFilter())

    terms = await lab.jobs.terms(job.id)
    assert (terms.replayed, terms.limit, terms.depth) == (True, 2, 1)
    again, found = await lab.jobs.open_job("books", JobTerms(limit=None), fresh=False)
    assert (again.id, found, again.limit, again.depth) == (job.id, True, 2, 1)


async def test_a_paused_job_that_ended_is_not_paused_when_a_letter_makes_it_run_again(lab):
    job = (await lab.job()).id
    await lab.frontier.add(job, [candidate("https://a.test/")])
    await lab.jobs.seal_seeds(job)
    (lease,) = (await lab.frontier.lease(job, "w", 1)).leases
    await lab.control.pause_job(job, True)
    await lab.frontier.bury(lease, "http-404", "gone")
    await lab.jobs.close_job(job, "done")

    assert await lab.queue.replay(DeadFilter()) == 1

    assert [(one.id, one.paused) for one in await lab.jobs.running_jobs()] == [(job, False)]
    assert len((await lab.frontier.lease(job, "w", 1)).leases) == 1


async def test_a_letter_of_a_paused_job_comes_back_and_waits_with_the_rest(lab):
    job = await begun(lab)
    for lease in (await lab.frontier.lease(job, "w", 2)).leases:
        await lab.frontier.bury(lease, "http-404", "gone")
    await lab.control.pause_job(job, True)
    first, _ = await lab.queue.dead(DeadFilter())

    resolved = await lab.queue.resolve(first, [candidate(f"{first.url}/more")])
    await lab.queue.replay(DeadFilter())

    assert resolved.queued == 1
    assert (await lab.frontier.lease(job, "w", 20)).leases == ()
    await lab.control.pause_job(job, False)
    assert len((await lab.frontier.lease(job, "w", 20)).leases) == len(URLS) - 2 + 2


async def test_a_job_that_does_not_run_is_neither_paused_nor_cancelled(lab):
    job = (await lab.job()).id
    await lab.jobs.close_job(job, "done")

    for unfit in (job, "no-such-job"):
        assert not await lab.control.pause_job(unfit, True)
        assert not await lab.control.pause_job(unfit, False)
        assert not await lab.control.cancel_job(unfit)
    assert (await lab.jobs.job(job)).ending == "done"


# -- cancelling ---------------------------------------------------------------------------------------------------


async def test_a_cancelled_job_drops_what_is_open_and_its_leases_settle_nothing(lab):
    for site in "abc":
        lab.terms[f"{site}.test"] = SiteTerms(interval=None, burst=1, concurrency=2)
    job = await begun(lab)
    first, second, third, *rest = (await lab.frontier.lease(job, "w", 6)).leases
    await lab.frontier.complete(first, UrlState.DONE)
    await lab.frontier.retry(second, timedelta(seconds=60), "timeout")
    await lab.frontier.bury(third, "http-404", "gone")

    assert await lab.control.cancel_job(job)

    ended, counts = await lab.jobs.job(job), await lab.jobs.counts(job)
    assert (ended.state, ended.ending, ended.finished_at) == (JobState.CANCELLED, "cancelled", lab.clock.now())
    assert (counts.done, counts.dead, counts.dropped, counts.open) == (1, 1, len(URLS) - 2, 0)
    assert adds_up(counts)
    assert (UrlState.DROPPED, "cancelled") in await reasons(lab, job)
    assert await lab.frontier.renew(rest) == rest
    for verb in (
        lab.frontier.complete(rest[0], UrlState.DONE, discovered=[candidate("https://z.test/")]),
        lab.frontier.retry(rest[0], timedelta(0), "timeout"),
        lab.frontier.bury(rest[0], "http-404", "gone"),
        lab.frontier.release(rest[0], timedelta(0), "draining"),
    ):
        with pytest.raises(LeaseLost):
            await verb
    assert await lab.jobs.counts(job) == counts
    assert (await lab.frontier.lease(job, "w", 9)).drained
    assert await lab.jobs.running_jobs() == []
    # The slots of its sites are free for others.
    other = await begun(lab, "other")
    assert len((await lab.frontier.lease(other, "w", 20)).leases) == 6


async def test_a_job_with_very_many_pages_is_cancelled_at_once_and_cleared_behind_that(lab, monkeypatch):
    # given more pages than can be dropped in a moment
    monkeypatch.setattr("gossamer.backends.cleanup.MOMENT", timedelta(0))
    job = (await lab.job()).id
    await lab.frontier.add(job, [candidate(f"https://{n % 7}.test/{n}") for n in range(3_000)])
    (lease, *_) = (await lab.frontier.lease(job, "w", 5)).leases

    # when the job is cancelled, then that is true before they are dropped: nothing is handed out, nothing enters
    assert await lab.control.cancel_job(job)
    assert (await lab.jobs.counts(job)).open > 0
    assert (await lab.frontier.lease(job, "w", 5)).leases == ()
    assert (await lab.frontier.add(job, [candidate("https://z.test/")])).dropped == 1
    with pytest.raises(LeaseLost):
        await lab.frontier.complete(lease, UrlState.DONE)

    # and in the end nothing is left
    await lab.history.clear_all()
    counts = await lab.jobs.counts(job)
    assert (counts.open, counts.dropped) == (0, 3_001)
    assert adds_up(counts)


async def test_of_many_who_end_a_job_exactly_one_did(lab):
    job = await begun(lab)
    await lab.control.pause_job(job, True)
    async with lab.again() as elsewhere:
        answers = await asyncio.gather(
            *(one.control.cancel_job(job) for one in (lab, elsewhere) for _ in range(4)),
            *(one.jobs.close_job(job, "limit") for one in (lab, elsewhere)),
        )
        assert sum(answers) == 1
        ended = await elsewhere.jobs.job(job)
        assert (ended.state is JobState.CANCELLED) == (ended.ending == "cancelled") == any(answers[:8])
        assert not ended.paused


async def test_after_a_cancelled_job_the_next_one_of_that_name_is_new(lab):
    first = await begun(lab)
    await lab.control.pause_job(first, True)
    await lab.control.cancel_job(first)

    second, found = await lab.jobs.open_job("books", JobTerms(), fresh=False)

    assert (found, second.paused, second.state) == (False, False, JobState.RUNNING)
    assert second.id != first
    added = await lab.frontier.add(second.id, [candidate(url) for url in URLS])
    assert added.queued == len(URLS)
    assert len((await lab.frontier.lease(second.id, "w", 20)).leases) == len(URLS)


@pytest.mark.parametrize("ending", ["cancelled", "replaced"])
async def test_seeds_that_come_too_late_are_dropped_with_the_reason(lab, ending):
    job = await begun(lab)
    if ending == "cancelled":
        await lab.control.cancel_job(job)
    else:
        await lab.job("books", fresh=True)

    late = await lab.frontier.add(job, [candidate(f"{url}/late") for url in URLS] + [candidate(URLS[0])])

    counts = await lab.jobs.counts(job)
    assert (late.queued, late.dropped, late.duplicates) == (0, len(URLS), 1)
    assert (counts.open, counts.dropped) == (0, 2 * len(URLS))
    assert adds_up(counts)
    assert await reasons(lab, job) == {(UrlState.DROPPED, ending)}


async def test_a_letter_of_a_cancelled_job_can_be_replayed_and_the_job_runs_again(lab):
    job = await begun(lab)
    (lease,) = (await lab.frontier.lease(job, "w", 1)).leases
    await lab.frontier.bury(lease, "http-404", "gone")
    await lab.control.cancel_job(job)

    await lab.queue.replay(DeadFilter(job=job))
    seeds = await lab.frontier.add(job, [candidate("https://d.test/seed")])

    assert seeds.queued == 1
    assert (await lab.jobs.job(job)).state is JobState.RUNNING
    leases = (await lab.frontier.lease(job, "w", 9)).leases
    assert {one.task.url for one in leases} == {lease.task.url, "https://d.test/seed"}


async def test_a_replay_brings_back_no_page_of_a_cancelled_job_however_many_it_had(lab):
    job = (await lab.job(max_urls_per_pattern=None)).id
    await lab.frontier.add(job, [candidate(f"https://s{n % 7}.test/{n}") for n in range(3000)])
    (lease,) = (await lab.frontier.lease(job, "w", 1)).leases
    await lab.frontier.bury(lease, "http-404", "gone")
    await lab.control.cancel_job(job)  # its pages are dropped in the background

    await lab.queue.replay(DeadFilter(job=job))

    (again,) = (await lab.frontier.lease(job, "w", 50)).leases
    assert again.task.url == lease.task.url
    await lab.history.clear_all()
    counts = await lab.jobs.counts(job)
    assert (counts.leased, counts.queued, counts.dropped) == (1, 0, 2999)


async def test_whatever_the_reason_is_for_which_a_url_is_left_out_it_is_kept(lab):
    job = (await lab.job()).id
    await lab.frontier.add(job, [candidate(f"https://a.test/{one}", dropped=one) for one in DropReason])

    assert {url.rpartition("/")[2]: reason async for url, _, reason in lab.queue.urls(job)} == {
        one.value: one.value for one in DropReason
    }


# -- terms --------------------------------------------------------------------------------------------------------


async def test_a_job_tells_what_its_schedule_wanted_and_keeps_it_when_it_is_found_again(lab):
    terms = JobTerms(
        schedule="nightly",
        due=1_767_225_600.25,
        spider="shop",
        source='{"kind":"sitemap"}',
        kind="product",
        windows="22:00-06:00 Europe/Berlin",
        min_age=timedelta(hours=6),
        dedup_window=timedelta(days=1),
        limit=10,
    )
    opened, _ = await lab.jobs.open_job("nightly", terms, fresh=False)
    assert await lab.jobs.terms(opened.id) == terms

    found, resumed = await lab.jobs.open_job("nightly", JobTerms(limit=3, depth=2), fresh=False)

    assert (found.id, resumed, found.limit, found.depth) == (opened.id, True, 10, None)
    for job in (opened, found, await lab.jobs.job(opened.id), *(await lab.jobs.running_jobs())):
        assert (job.schedule, job.due, job.spider, job.spider_name) == ("nightly", 1_767_225_600.25, "shop", "shop")
        assert job.windows == "22:00-06:00 Europe/Berlin"
    kept = await lab.jobs.terms(opened.id)
    assert (kept.source, kept.kind, kept.min_age, kept.dedup_window) == (
        terms.source, "product", timedelta(hours=6), timedelta(days=1),
    )  # fmt: skip
    assert kept.limit == 10


async def test_the_terms_of_an_unknown_job_are_refused_with_a_hint(lab):
    with pytest.raises(Permanent, match="gossamer status"):
        await lab.jobs.terms("no-such-job")


# -- whoever dies over it -----------------------------------------------------------------------------------------


@REDIS
async def test_a_job_whose_canceller_died_half_way_is_cleared_by_whoever_works(lab):
    job = await begun(lab)
    (lease, *_) = (await lab.frontier.lease(job, "w", 3)).leases
    other = (await lab.job("other")).id
    await lab.jobs.change(job, "cancel", "cancelled")  # it stands in the book, and no shard knows of it

    lab.clock.advance(3)
    async with lab.again() as elsewhere:
        await elsewhere.frontier.lease(other, "somebody", 1)

    counts = await lab.jobs.counts(job)
    assert (counts.open, counts.dropped) == (0, len(URLS))
    with pytest.raises(LeaseLost):
        await lab.frontier.complete(lease, UrlState.DONE)


@REDIS
async def test_a_pause_that_only_the_book_knows_of_reaches_the_workers_all_the_same(lab):
    job = await begun(lab)
    for verb, most in (("pause", 0), ("resume", len(URLS))):
        await lab.jobs.change(job, verb)
        lab.clock.advance(3)
        assert len((await lab.frontier.lease(job, "w", 20)).leases) == most


@REDIS
async def test_a_pause_between_looking_and_taking_still_holds(lab):
    job = await begun(lab)
    counter, known = lab.frontier.dispatcher, await lab.frontier.job(job)
    asking = LeaseRequest("w", EVERY_LANE)
    looks = await counter.look(known, asking, 9, [])
    await lab.control.pause_job(job, True)

    served = await counter.serve_best(known, asking, 9, looks)

    assert [answer[1:] for _, answer in served] == [[] for _ in served]
    assert (await lab.jobs.counts(job)).leased == 0


@REDIS
async def test_a_job_that_was_written_before_jobs_could_be_paused_is_read_and_paused(lab):
    job = await begun(lab)
    key = lab.jobs.keys.book("jobs")
    row = json.loads(await lab.jobs.server.call("HGET", key, job))
    del row["paused"]
    await lab.jobs.server.call("HSET", key, job, json.dumps(row))

    assert not (await lab.jobs.job(job)).paused
    assert await lab.control.pause_job(job, True)
    assert (await lab.frontier.lease(job, "w", 9)).leases == ()


@REDIS
async def test_what_a_dead_worker_had_of_very_many_jobs_comes_back_in_all_of_them(lab):
    jobs = [(await lab.job(f"job {n}")).id for n in range(60)]
    for job in jobs:
        await lab.frontier.add(job, [candidate("https://a.test/")])
        assert len((await lab.frontier.lease(job, "dead", 1)).leases) == 1
    ours = (await lab.job("ours")).id
    lab.gone.add("dead")

    for _ in range(2):
        lab.clock.advance(3)
        await lab.frontier.lease(ours, "w", 1)

    counts = [await lab.jobs.counts(job) for job in jobs]
    assert {(one.leased, one.queued) for one in counts} == {(0, 1)}


# -- ending early -------------------------------------------------------------------------------------------------


async def test_a_job_that_is_to_end_soon_hands_out_nothing_more_and_ends_with_what_is_in_progress(lab):
    job = await begun(lab)
    first = (await lab.frontier.lease(job, "first", 3)).leases
    await lab.frontier.complete(first[0], UrlState.DONE, "", [candidate("https://a.test/new")])

    assert await lab.control.end_soon(job, "enough")
    assert await lab.control.end_soon(job, "again")

    async with lab.again() as elsewhere:  # one that has no older terms in mind
        batch = await elsewhere.frontier.lease(job, "second", 9)
        assert (batch.leases, batch.drained) == ((), False)
        for lease in first[1:]:
            await elsewhere.frontier.complete(lease, UrlState.DONE, "", [])
        batch = await elsewhere.frontier.lease(job, "second", 9)
        assert (batch.leases, batch.drained) == ((), True)
        known = await elsewhere.jobs.job(job)
        assert (known.stopped, known.limit, known.state) == ("enough", 3, JobState.RUNNING)
        assert await elsewhere.jobs.close_job(job, "limit")
        assert not await elsewhere.control.end_soon(job, "late")
    assert not await lab.control.end_soon("nobody-77", "late")


async def test_a_job_that_was_stopped_stays_so_when_it_is_taken_up_again(lab):
    job = await begun(lab)
    lease = (await lab.frontier.lease(job, "first", 1)).leases[0]
    await lab.control.end_soon(job, "enough")
    again, resumed = await lab.jobs.open_job("books", JobTerms(), fresh=False)
    assert (again.id, resumed, again.limit, again.stopped) == (job, True, 1, "enough")
    await lab.frontier.complete(lease, UrlState.DONE, "", [])


# -- an outcome that is settled again --------------------------------------------------------------------------------


async def test_the_outcome_of_an_ended_job_is_replaced_and_its_end_stays(lab):
    job = await lab.job()
    await lab.jobs.seal_seeds(job.id)
    better = JobOutcome(Outcome.DONE, (), 5.0)
    assert not await lab.jobs.settle_again(job.id, better)  # it runs
    await lab.jobs.close_job(job.id, "done", JobOutcome(Outcome.EMPTY))
    ended = await lab.jobs.job(job.id)
    lab.clock.advance(60)

    assert await lab.jobs.settle_again(job.id, better)

    known = await lab.jobs.job(job.id)
    assert (known.outcome, known.ending, known.finished_at) == (better, "done", ended.finished_at)
    assert not await lab.jobs.settle_again("no-such-job-9", better)


async def test_a_job_that_runs_again_for_its_dead_letters_remembers_when_it_first_ended(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    await lab.jobs.seal_seeds(job.id)
    ends = []
    for _ in range(3):
        [lease] = (await lab.frontier.lease(job.id, "w", 1)).leases
        await lab.frontier.bury(lease, "timeout", "slow")
        await lab.jobs.close_job(job.id, "done")
        ends.append((await lab.jobs.job(job.id)).finished_at)
        lab.clock.advance(60)
        await lab.queue.replay(DeadFilter())
    known = await lab.jobs.job(job.id)
    assert (known.first_ended, known.finished_at) == (pytest.approx(ends[0]), None)
    assert (await lab.jobs.terms(job.id)).replayed

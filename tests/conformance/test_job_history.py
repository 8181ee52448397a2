"""What holds for jobs that have ended: what they leave behind, and how they are forgotten. Against each backend."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

from gossamer.errors import LeaseLost, Permanent
from gossamer.frontier.contract import DeadFilter, JobTerms, SeedFindings
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.job import Job, JobCounts, JobState, number_of
from gossamer.model.schedule import Schedule
from gossamer.model.task import Lease, UrlState
from gossamer.project.upkeep.retention import forget_old_runs
from tests.conformance.frontiers import Backends, Lab, adds_up, candidate
from tests.patience import PATIENCE, until

TERM = timedelta(seconds=6)
MANY = 2_300  # more than are dropped in one step anywhere: of five shards and of eight, too
DAY = 86_400.0


@pytest.fixture(params=Backends.NAMES)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def ended(lab: Lab, name: str = "books", *, dead: bool = False) -> str:
    """A job with one page, done or dead."""
    job = (await lab.job(name)).id
    await lab.frontier.add(job, [candidate("https://a.test/")])
    await lab.jobs.seal_seeds(job)
    (lease,) = (await lab.frontier.lease(job, "w", 1)).leases
    await (lab.frontier.bury(lease, "http-404", "gone") if dead else lab.frontier.complete(lease, UrlState.DONE))
    assert await lab.jobs.close_job(job, "done")
    return job


async def filled(lab: Lab, job: str, count: int) -> None:
    for start in range(0, count, 500):
        urls = [f"https://{n % 3}.test/{n}" for n in range(start, min(count, start + 500))]
        await lab.frontier.add(job, [candidate(url) for url in urls])


async def replaced(lab: Lab, *, letters: int = 0) -> tuple[Job, Lease]:
    """A run with very many pages, one of them in progress, that the next run of its schedule has replaced. The
    scheduler died at once."""
    await lab.schedules.put(Schedule(name="prices", spider="shop", trigger="every 6h"), origin="command")
    (before,) = await lab.schedules.schedules()
    async with lab.again() as dying:
        term = await dying.ticks.lead("dying", TERM)
        first = await dying.ticks.settle(term, before, before, ("prices", JobTerms()))
        await filled(dying, first.job.id, MANY)
        *dead, lease = (await dying.frontier.lease(first.job.id, "w", letters + 1)).leases
        for one in dead:
            await dying.frontier.bury(one, "http-404", "gone")
        await dying.ticks.settle(term, first.progress, first.progress, ("prices", JobTerms()), replaces=first.job.id)
    return await lab.jobs.job(first.job.id), lease


def portion_of(lab: Lab):
    """What clears away one portion."""
    return lab.jobs.cleanup.portion


async def cleared(lab: Lab, job: str) -> JobCounts:
    """Its counts when nothing of it is open any more; they add up until then."""
    async with asyncio.timeout(PATIENCE):
        while True:
            counts = await lab.jobs.counts(job)
            assert adds_up(counts)
            if not counts.open:
                return counts
            lab.clock.advance(3)  # whoever works looks around every few seconds
            await lab.frontier.lease((await lab.jobs.running_jobs())[0].id, "looker", 1)


# -- big jobs that are given up -----------------------------------------------------------------------------------


async def test_a_tick_that_replaces_a_big_run_leaves_most_of_its_pages_to_whoever_looks_next(lab):
    job, lease = await replaced(lab)

    # It is over for everybody, though most of its pages are still there.
    counts = await lab.jobs.counts(job.id)
    assert (job.state, job.ending) == (JobState.FINISHED, "replaced")
    assert adds_up(counts)
    assert 0 < counts.open < MANY
    batch = await lab.frontier.lease(job.id, "w", 5)
    assert (batch.leases, batch.drained) == ((), True)
    with pytest.raises(LeaseLost):
        await lab.frontier.complete(lease, UrlState.DONE)
    assert (await lab.frontier.add(job.id, [candidate("https://late.test/")])).queued == 0
    # Whoever works clears it away.
    assert (await cleared(lab, job.id)).dropped == MANY + 1
    assert {(state, reason) async for _, state, reason in lab.queue.urls(job.id)} == {(UrlState.DROPPED, "replaced")}


async def test_what_is_left_of_a_big_job_is_dropped_in_short_portions(lab):
    job, _ = await replaced(lab)
    left = [(await lab.jobs.counts(job.id)).open]

    while await portion_of(lab)():
        counts = await lab.jobs.counts(job.id)
        assert adds_up(counts)
        left.append(counts.open)

    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= 3 * 250  # of three shards at most


async def test_a_letter_that_is_replayed_brings_back_nothing_of_what_was_given_up(lab):
    job, _ = await replaced(lab, letters=1)
    (letter,) = await lab.queue.dead(DeadFilter())

    assert await lab.queue.replay(DeadFilter()) == 1

    counts = await lab.jobs.counts(job.id)
    assert (counts.open, counts.dropped, adds_up(counts)) == (1, MANY - 1, True)
    (again,) = (await lab.frontier.lease(job.id, "w", 9)).leases
    assert again.task.url == letter.url


async def test_a_letter_that_is_resolved_brings_back_nothing_of_what_was_given_up(lab):
    job, _ = await replaced(lab, letters=1)
    (letter,) = await lab.queue.dead(DeadFilter())

    added = await lab.queue.resolve(letter, [candidate(f"https://{site}.test/new") for site in "abc"])

    assert added.queued == 3
    counts = await lab.jobs.counts(job.id)
    assert (counts.open, counts.done, counts.dropped, adds_up(counts)) == (3, 1, MANY - 1, True)
    assert len((await lab.frontier.lease(job.id, "w", 9)).leases) == 3


# -- a clock that was ahead ---------------------------------------------------------------------------------------


async def test_a_lease_that_was_given_while_the_clock_was_ahead_is_over_when_it_is_right_again(lab):
    lab.terms["a.test"] = SiteTerms(interval=timedelta(seconds=1), burst=1, concurrency=1)
    job = (await lab.job()).id
    await lab.frontier.add(job, [candidate("https://a.test/")])
    lab.clock.advance(DAY)
    (old,) = (await lab.frontier.lease(job, "w-of-an-earlier-boot", 1)).leases
    lab.clock.advance(-DAY)

    lab.clock.advance(5)
    batch = await lab.frontier.lease(job, "w", 1)
    if not batch.leases:  # the site is kept at a distance from what the lost worker may have sent
        lab.clock.advance(2)
        batch = await lab.frontier.lease(job, "w", 1)

    (new,) = batch.leases
    assert new.token > old.token
    with pytest.raises(LeaseLost):
        await lab.frontier.complete(old, UrlState.DONE)
    await lab.frontier.complete(new, UrlState.DONE)
    assert (await lab.jobs.counts(job)).done == 1


@pytest.mark.parametrize("lab", ["sqlite"], indirect=True)
@pytest.mark.parametrize("restarted", [False, True])
async def test_what_was_put_off_while_the_clock_was_ahead_waits_no_longer_than_it_should(lab, restarted):
    job = (await lab.job()).id
    await lab.frontier.add(job, [candidate("https://a.test/")])
    lab.clock.advance(DAY)
    (lease,) = (await lab.frontier.lease(job, "w", 1)).leases
    await lab.frontier.retry(lease, timedelta(seconds=60), "timeout")
    lab.clock.advance(-DAY)

    async with lab.again() as fresh:
        worker = fresh if restarted else lab
        assert (await worker.frontier.lease(job, "w", 1)).leases == ()
        lab.clock.advance(61)
        assert len((await worker.frontier.lease(job, "w", 1)).leases) == 1


async def test_what_is_put_off_for_days_by_a_clock_that_is_right_waits_for_days(lab):
    job = (await lab.job()).id
    await lab.frontier.add(job, [candidate("https://a.test/")])
    (lease,) = (await lab.frontier.lease(job, "w", 1)).leases
    await lab.frontier.release(lease, timedelta(days=2), "window")

    async with lab.again() as fresh:
        for _ in range(3):
            lab.clock.advance(DAY / 2)
            assert (await fresh.frontier.lease(job, "w", 1)).leases == ()
        lab.clock.advance(DAY / 2)
        assert len((await fresh.frontier.lease(job, "w", 1)).leases) == 1


async def test_a_forgotten_job_and_a_cleared_state_leave_no_lease_of_a_source(lab):
    old, _ = await ended(lab), await ended(lab)
    assert await lab.seeds.claim(old, "host/1", timedelta(hours=1))
    assert not await lab.seeds.claim(old, "host/2", timedelta(hours=1))

    assert await lab.jobs.forget_jobs([old]) == 1
    await until(lambda: lab.seeds.claim(old, "host/2", timedelta(hours=1)))

    await lab.stream.clear()
    assert await lab.seeds.claim(old, "host/3", timedelta(hours=1))


# -- jobs of a name -----------------------------------------------------------------------------------------------


async def test_a_job_that_a_key_began_is_forgotten_though_it_is_the_newest_of_its_name(lab):
    # given jobs of the same kind, one of them begun by a key, and a newer job of another name
    mine = (await lab.job("mine", owner="key")).id
    theirs = (await lab.job("theirs")).id
    for job in (mine, theirs):
        await lab.jobs.seal_seeds(job)
    assert await lab.history.forget_jobs([mine, theirs]) == 0  # they run
    for job in (mine, theirs):
        assert await lab.jobs.close_job(job, "done")
    newest = await ended(lab, "newest")

    # when both are to be forgotten, then the one that a key began is
    assert await lab.history.forget_jobs([mine, theirs]) == 1
    assert [job.id for job in await lab.jobs.jobs()] == [newest, theirs]
    # and no number is given twice
    again = (await lab.job("mine", owner="key")).id
    assert again not in (mine, theirs, newest)


async def test_the_number_of_the_newest_job_grows_with_each_that_is_begun(lab):
    assert await lab.jobs.newest_number() == 0
    first = await ended(lab, "books")
    one = await lab.jobs.newest_number()
    await ended(lab, "books")
    two = await lab.jobs.newest_number()
    assert 0 < one < two
    await lab.history.forget_jobs([first])
    assert await lab.jobs.newest_number() == two


async def test_the_newest_jobs_of_a_name_are_found_without_the_others(lab):
    books = [await ended(lab, "books") for _ in range(3)]
    await ended(lab, "books 2")
    await ended(lab, "book")
    running = (await lab.job("books")).id

    assert [job.id for job in await lab.jobs.newest_jobs("books", 2)] == [running, books[2]]
    assert [job.id for job in await lab.jobs.newest_jobs("books", 9, skip=2)] == [books[1], books[0]]
    assert await lab.jobs.newest_jobs("boo", 9) == []


async def test_jobs_that_were_carried_here_are_found_by_name(lab, tmp_path_factory, backends):
    jobs = [await ended(lab, "books") for _ in range(2)]
    async with backends.open("sqlite", tmp_path_factory.mktemp("other")) as other:
        assert await lab.jobs.newest_jobs("books", 9) != []
        async for batch in lab.stream.dump():
            await other.stream.load(batch)
        await lab.stream.clear()
        assert await lab.jobs.newest_jobs("books", 9) == []
        async for batch in other.stream.dump():
            await lab.stream.load(batch)

    assert [job.id for job in await lab.jobs.newest_jobs("books", 9)] == jobs[::-1]


# -- forgetting ---------------------------------------------------------------------------------------------------


async def test_a_forgotten_job_is_unknown_and_nothing_of_it_is_left(lab):
    old, new = await ended(lab, dead=True), await ended(lab)
    await lab.seeds.note(old, ["a.test"], "no answer")
    assert [letter.job for letter in await lab.queue.dead(DeadFilter())] == [old]

    assert await lab.jobs.forget_jobs([old, "no-such-job"]) == 1

    assert await lab.jobs.job(old) is None
    assert [job.id for job in await lab.jobs.jobs()] == [new]
    assert [job.id for job in await lab.jobs.newest_jobs("books", 9)] == [new]
    assert (await lab.jobs.counts(old), await lab.seeds.findings(old)) == (JobCounts(), SeedFindings())
    assert await lab.queue.dead(DeadFilter()) == []
    page = candidate("https://a.test/")
    assert [story.job for story in await lab.queue.story(page.site, page.fingerprint)] == [new]
    with pytest.raises(Permanent):
        await lab.jobs.terms(old)
    assert await lab.jobs.forget_jobs([old]) == 0
    assert (await lab.job("books")).id not in (old, new)


async def test_what_must_be_known_is_not_forgotten(lab):
    # given the newest of a name, one that runs, and one that is not cleared yet
    newest = await ended(lab, "books")
    running = (await lab.job("shop")).id
    given_up, _ = await replaced(lab)

    assert await lab.jobs.forget_jobs([newest, running, given_up.id]) == 0

    assert {job.id for job in await lab.jobs.jobs()} >= {newest, running, given_up.id}


async def test_the_last_run_of_a_schedule_is_kept_though_others_were_begun_by_hand_since(lab):
    terms = JobTerms(schedule="prices")
    old, last = [(await lab.jobs.open_job("prices", terms, fresh=True))[0].id for _ in range(2)]
    by_hand = [(await lab.job("prices", fresh=True)).id for _ in range(2)]

    assert await forget_old_runs(lab.jobs, lab.jobs, "prices", 1) == 1

    assert await lab.jobs.job(old) is None
    assert [job.id for job in await lab.jobs.jobs()] == [*by_hand[::-1], last]


@pytest.mark.parametrize("lab", ["valkey"], indirect=True)
async def test_a_job_that_has_no_place_by_name_is_not_forgotten(lab):
    # given one that an older Gossamer began: it may be the newest of its name
    older, newer = await ended(lab), await ended(lab)
    await lab.jobs.server.call("ZREMRANGEBYRANK", lab.jobs.named, 1, 1)

    assert await lab.jobs.forget_jobs([older, newer]) == 0

    assert [job.id for job in await lab.jobs.jobs()] == [newer, older]


@pytest.mark.parametrize("lab", ["valkey"], indirect=True)
async def test_jobs_that_were_begun_before_there_was_an_order_of_jobs_enter_it_once(lab):
    jobs = [await ended(lab) for _ in range(3)]
    await lab.jobs.server.call("UNLINK", lab.jobs.named, lab.jobs.listed)
    await lab.jobs.server.call("HDEL", lab.jobs.keys.book("book"), "named", "listed")
    rows, read = lab.jobs.rows, []

    async def counted():
        read.append(True)
        return await rows()

    lab.jobs.rows = counted
    answers = await asyncio.gather(*(lab.jobs.newest_jobs("books", 9) for _ in range(20)))

    assert [[job.id for job in answer] for answer in answers] == [jobs[::-1]] * 20
    assert [job.id for job in await lab.jobs.page(9, owners=[""])] == jobs[::-1]
    assert len(read) == 1


async def test_a_job_whose_forgetter_died_is_deleted_by_whoever_works(lab):
    old, new = await ended(lab), await ended(lab)
    async with lab.again() as dying:
        assert await dying.jobs.forget_jobs([old]) == 1
    other = (await lab.job("other")).id

    async with asyncio.timeout(PATIENCE):
        while await portion_is_due(lab):
            lab.clock.advance(3)
            await lab.frontier.lease(other, "looker", 1)

    page = candidate("https://a.test/")
    assert [story.job for story in await lab.queue.story(page.site, page.fingerprint)] == [new]


async def portion_is_due(lab: Lab) -> bool:
    """Whether anything is left to clear away."""
    if hasattr(lab.jobs, "database"):
        rows = await lab.jobs.database.read(
            lambda c: c.execute("SELECT count(*) FROM forgetting UNION ALL SELECT count(*) FROM urls").fetchall()
        )
        return rows != [(0,), (1,)]
    server, keys = lab.jobs.server, lab.jobs.keys
    shards = [name async for name in server.names(f"gossamer:{{{keys.project}.*}}:1:*")]
    return bool(shards or await server.call("SCARD", keys.book("forgetting")))


@pytest.mark.parametrize("lab", ["sqlite"], indirect=True)
async def test_the_space_of_forgotten_jobs_is_used_again(lab):
    async def size() -> int:
        return await lab.jobs.database.read(lambda c: c.execute("PRAGMA page_count").fetchone()[0])

    async def run() -> str:
        job = (await lab.job("books")).id
        await filled(lab, job, 1_000)
        await lab.control.cancel_job(job)
        return job

    jobs, sizes = [await run(), await run()], []
    for _ in range(4):
        await lab.jobs.forget_jobs(jobs[:-1])
        await lab.jobs.clear_all()
        jobs = [jobs[-1], await run()]
        sizes.append(await size())

    assert sizes[-1] <= sizes[0] * 1.05


async def test_the_counts_of_many_jobs_come_in_one_step(lab, monkeypatch):
    monkeypatch.setattr("gossamer.backends.redis.jobs.JOBS_AT_ONCE", 2)
    jobs = [await lab.job(f"job{n}") for n in range(5)]
    for number, job in enumerate(jobs):
        await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(number)])
    await lab.jobs.seal_seeds(jobs[3].id)

    found = await lab.jobs.counts_of([*(job.id for job in jobs), "no-such-job"])

    assert {id: (counts.queued, sealed) for id, (counts, sealed) in found.items()} == {
        job.id: (number, number == 3) for number, job in enumerate(jobs)
    }
    assert found[jobs[4].id][0] == await lab.jobs.counts(jobs[4].id)
    assert await lab.jobs.counts_of([]) == {}


async def test_jobs_are_listed_in_pages_of_their_owners(lab):
    mine, others = [], []
    for number in range(7):
        owner = ("a", "b", "")[number % 3]
        job, _ = await lab.jobs.open_job(f"job {number}", JobTerms(owner=owner), fresh=False)
        (others if owner == "b" else mine).insert(0, job.id)
    every = sorted(mine + others, key=number_of, reverse=True)

    async def pages(limit: int, owners: tuple[str, ...] | None) -> list[list[str]]:
        found: list[list[str]] = []
        while True:
            after = found[-1][-1] if found else None
            some = [job.id for job in await lab.history.page(limit, owners=owners, after=after)]
            if not some:
                return found
            found.append(some)

    assert await pages(3, None) == [every[:3], every[3:6], every[6:]]
    assert await pages(2, ("", "a")) == [mine[:2], mine[2:4], mine[4:]]
    assert await pages(5, ("b",)) == [others]
    assert await pages(5, ("a",)) == [[id for id in mine if number_of(id) % 3 == 1]]
    assert await pages(5, ()) == await pages(5, ("nobody",)) == []

    assert await lab.history.owners([*every[:3], "unknown-9"]) == dict(zip(every[:3], ("a", "", "b"), strict=True))
    assert await lab.history.owners([]) == {}

    # A job that is forgotten ends no list, and what came after it is found.
    await lab.jobs.seal_seeds(every[3])
    assert await lab.jobs.close_job(every[3], "done")
    assert await lab.history.forget_jobs([every[3]]) == (await lab.jobs.job(every[3]) is None)
    assert [job.id for job in await lab.history.page(2, after=every[3])] == every[4:6]
    left = [id for id in every if await lab.jobs.job(id) is not None]
    assert await pages(4, None) == [left[:4], left[4:]]
    with pytest.raises(Permanent, match="not a job id"):
        await lab.history.page(1, after="books")

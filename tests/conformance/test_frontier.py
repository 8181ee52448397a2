"""What every frontier promises. Each test runs against each backend."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from gossamer.errors import FrontierFull, LeaseLost, Permanent
from gossamer.frontier.contract import DeadFilter
from gossamer.frontier.politeness import HEAD_START, SiteTerms
from gossamer.model.job import JobState
from gossamer.model.task import NO_ROOM, DropReason, UrlState
from tests.conformance.frontiers import LEASE, Backends, adds_up, candidate

NOW = timedelta(0)


@pytest.fixture(params=Backends.NAMES)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def urls_of(batch):
    return [lease.task.url for lease in batch.leases]


async def states(lab, job):
    return {url: state async for url, state, _ in lab.queue.urls(job.id)}


async def story_of(lab, url):
    wanted = candidate(url)
    return await lab.queue.story(wanted.site, wanted.fingerprint)


async def test_high_priority_is_leased_first_whatever_was_queued_before(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}", priority=1) for n in range(3)])
    await lab.frontier.add(job.id, [candidate("https://b.test/urgent", priority=9)])

    batch = await lab.frontier.lease(job.id, "w", 2)

    assert await urls_of(batch) == ["https://b.test/urgent", "https://a.test/0"]


async def test_equal_priority_is_first_in_first_out_within_a_site(lab):
    job = await lab.job()
    for n in range(4):
        await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}")])
        lab.clock.advance(0.01)

    batch = await lab.frontier.lease(job.id, "w", 4)

    assert await urls_of(batch) == [f"https://a.test/{n}" for n in range(4)]


async def test_sites_of_equal_priority_take_turns(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://huge.test/{n}") for n in range(100)])
    await lab.frontier.add(job.id, [candidate("https://small.test/1"), candidate("https://tiny.test/1")])

    batch = await lab.frontier.lease(job.id, "w", 6)

    assert {"https://small.test/1", "https://tiny.test/1"} <= set(await urls_of(batch))
    assert len(batch.leases) == 6


async def test_the_same_url_enters_once_from_many_producers_at_once(lab):
    job = await lab.job()
    offers = [lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(50)]) for _ in range(8)]

    added = await asyncio.gather(*offers)

    assert sum(one.queued for one in added) == 50
    counts = await lab.jobs.counts(job.id)
    assert (counts.discovered, counts.duplicates, counts.queued) == (400, 350, 50)
    assert adds_up(counts)


async def test_pages_whose_fingerprints_begin_alike_are_told_apart(lab):
    job = await lab.job()
    known, other = candidate("https://a.test/1"), candidate("https://a.test/2")
    alike = msgspec.structs.replace(other, fingerprint=known.fingerprint[:15] + bytes([known.fingerprint[15] ^ 1]))

    for _ in range(2):
        added = await lab.frontier.add(job.id, [known, alike])
    assert (added.queued, added.duplicates) == (0, 2)
    leases = {lease.task.url: lease for lease in (await lab.frontier.lease(job.id, "w", 9)).leases}
    assert leases.keys() == {known.url, alike.url}
    await lab.frontier.complete(leases[alike.url], UrlState.DONE)

    for page, state in ((known, UrlState.LEASED), (alike, UrlState.DONE)):
        [story] = await lab.queue.story("a.test", page.fingerprint)
        assert (story.url, story.state) == (page.url, state)
        fate = await lab.queue.fate(job.id, "a.test", page.fingerprint)
        assert (fate.url, fate.state) == (page.url, state)


async def test_a_url_may_enter_again_after_the_dedup_window(lab):
    job = await lab.job(dedup_window=timedelta(hours=1))
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases
    await lab.frontier.complete(lease, UrlState.DONE)

    early = await lab.frontier.add(job.id, [candidate("https://a.test/")])
    lab.clock.advance(3601)
    late = await lab.frontier.add(job.id, [candidate("https://a.test/")])

    assert (early.queued, late.queued) == (0, 1)
    assert adds_up(await lab.jobs.counts(job.id))
    assert await urls_of(await lab.frontier.lease(job.id, "w", 9)) == ["https://a.test/"]


async def test_sites_with_tasks_of_several_priorities_give_all_of_them_at_once(lab):
    job = await lab.job()
    urls = [f"https://{site}.test/{priority}" for priority in (9, 5, 0) for site in ("a", "b")]
    await lab.frontier.add(job.id, [candidate(url, priority=int(url[-1])) for url in urls])

    batch = await lab.frontier.lease(job.id, "w", 9)

    assert sorted(lease.task.url for lease in batch.leases) == sorted(urls)
    counts = await lab.jobs.counts(job.id)
    assert (counts.leased, counts.dead, counts.open) == (6, 0, 6)


async def test_a_forced_url_enters_again_but_never_twice_at_once(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    while_queued = await lab.frontier.add(job.id, [candidate("https://a.test/", force=True)])
    (lease,) = (await lab.frontier.lease(job.id, "w", 9)).leases
    await lab.frontier.complete(lease, UrlState.DONE)

    afterwards = await lab.frontier.add(job.id, [candidate("https://a.test/", force=True)])

    assert (while_queued.queued, afterwards.queued) == (0, 1)
    assert adds_up(await lab.jobs.counts(job.id))


async def test_a_url_dropped_for_depth_enters_when_found_on_a_shorter_path(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/x", depth=9, dropped=DropReason.DEPTH)])

    added = await lab.frontier.add(job.id, [candidate("https://a.test/x", depth=2)])

    assert added.queued == 1
    assert await states(lab, job) == {"https://a.test/x": UrlState.QUEUED}
    assert adds_up(await lab.jobs.counts(job.id))


async def test_dropped_candidates_are_remembered_with_their_reason(lab):
    job = await lab.job()
    await lab.frontier.add(
        job.id,
        [
            candidate("https://elsewhere.test/", dropped=DropReason.SCOPE),
            candidate("https://a.test/deep", dropped=DropReason.DEPTH),
        ],
    )

    seen = [(url, state, reason) async for url, state, reason in lab.queue.urls(job.id)]

    assert sorted(seen) == [
        ("https://a.test/deep", UrlState.DROPPED, "depth"),
        ("https://elsewhere.test/", UrlState.DROPPED, "scope"),
    ]
    assert (await lab.frontier.lease(job.id, "w", 9)).leases == ()


async def test_the_fate_of_one_url_is_looked_up_by_its_fingerprint(lab):
    job, other = await lab.job(), await lab.job("other")
    twin = msgspec.structs.replace(candidate("https://a.test/1"), fingerprint=b"p" * 16)  # the same address by POST
    known = [candidate("https://a.test/1"), twin, candidate("https://b.test/", dropped=DropReason.SCOPE)]
    await lab.frontier.add(job.id, known)
    for lease in (await lab.frontier.lease(job.id, "w", 9)).leases:
        if lease.task.fingerprint == twin.fingerprint:
            await lab.frontier.bury(lease, "uncertain", "Nobody knows.")
        else:
            await lab.frontier.complete(lease, UrlState.DONE)

    fates = [await lab.queue.fate(job.id, one.site, one.fingerprint) for one in known]

    assert [(fate.url, fate.state, fate.reason, fate.message) for fate in fates] == [
        ("https://a.test/1", UrlState.DONE, "", ""),
        ("https://a.test/1", UrlState.DEAD, "uncertain", "Nobody knows."),
        ("https://b.test/", UrlState.DROPPED, "scope", ""),
    ]
    assert await lab.queue.fate(other.id, twin.site, twin.fingerprint) is None
    assert await lab.queue.fate("no-such-job", twin.site, twin.fingerprint) is None


async def test_trap_budget_per_shape_drops_what_is_beyond(lab):
    job = await lab.job(max_urls_per_pattern=3)
    added = await lab.frontier.add(job.id, [candidate(f"https://a.test/day/{n}") for n in range(10)])
    other = await lab.frontier.add(job.id, [candidate("https://a.test/about")])

    assert (added.queued, added.dropped, other.queued) == (3, 7, 1)
    reasons = {reason async for _, state, reason in lab.queue.urls(job.id, UrlState.DROPPED)}
    assert reasons == {"pattern-limit"}
    assert (await lab.jobs.counts(job.id)).drops == {"pattern-limit": 7}


async def test_trap_budget_per_site_leaves_other_sites_alone(lab):
    job = await lab.job(max_urls_per_site=5)
    for n in range(10):
        await lab.frontier.add(job.id, [candidate(f"https://a.test/{'x' * n}")])
    added = await lab.frontier.add(job.id, [candidate(f"https://b.test/{'x' * n}") for n in range(5)])

    counts = await lab.jobs.counts(job.id)
    assert (counts.queued, counts.dropped, added.queued) == (10, 5, 5)
    assert counts.drops == {"site-limit": 5}


async def test_what_a_person_named_exceeds_no_limit_and_uses_up_none_of_its_pattern(lab):
    job = await lab.job(max_urls_per_site=50, max_urls_per_pattern=10)
    days = [candidate(f"https://a.test/day/{n}", named=True) for n in range(120)]

    named = await lab.frontier.add(job.id, days)
    found = await lab.frontier.add(job.id, [candidate(f"https://b.test/day/{n}") for n in range(60)])
    other = await lab.frontier.add(job.id, [candidate("https://b.test/about")])

    assert (named.queued, named.dropped) == (120, 0)
    assert (found.queued, found.dropped, other.queued) == (10, 50, 1)
    assert adds_up(await lab.jobs.counts(job.id))


async def test_what_was_dropped_is_counted_by_reason_also_where_a_filter_keeps_no_rows(lab):
    job = await lab.job(max_urls_per_pattern=4, dedup="bloom", dedup_expected=1_000)
    days = [candidate(f"https://a.test/day/{n}") for n in range(9)]
    await lab.frontier.add(job.id, [*days, candidate("https://b.test/", dropped=DropReason.SCOPE)])

    counts = await lab.jobs.counts(job.id)
    assert counts.drops == {"pattern-limit": 5, "scope": 1}
    assert adds_up(counts)


async def test_a_full_queue_refuses_producers_and_says_so(lab):
    job = await lab.job(max_queued=5)
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(5)])

    with pytest.raises(FrontierFull, match="max_queued"):
        await lab.frontier.add(job.id, [candidate("https://a.test/5")])

    assert (await lab.jobs.counts(job.id)).queued == 5


async def test_the_queue_of_a_job_is_full_however_its_sites_are_spread(lab):
    job = await lab.job(max_queued=5)
    await lab.frontier.add(job.id, [candidate(f"https://s{n}.test/") for n in range(3)])

    with pytest.raises(FrontierFull, match="max_queued"):  # all of them, or none
        await lab.frontier.add(job.id, [candidate(f"https://s{n}.test/") for n in range(3, 6)])
    assert (await lab.jobs.counts(job.id)).queued == 3
    assert (await lab.frontier.add(job.id, [candidate(f"https://s{n}.test/") for n in range(3, 5)])).queued == 2
    for number in range(5, 12):
        with pytest.raises(FrontierFull, match="max_queued"):
            await lab.frontier.add(job.id, [candidate(f"https://s{number}.test/")])
    counts = await lab.jobs.counts(job.id)
    assert (counts.queued, counts.discovered) == (5, 5)


async def test_links_to_many_sites_wait_when_the_queue_is_full(lab):
    job = await lab.job(max_queued=5)
    await lab.frontier.add(job.id, [candidate(f"https://s{n}.test/") for n in range(4)])
    (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases

    await lab.frontier.complete(lease, UrlState.DONE, "", [candidate(f"https://t{n}.test/") for n in range(20)])

    counts = await lab.jobs.counts(job.id)
    assert counts.queued + counts.waiting - counts.postponed == 5
    assert counts.postponed == 18


async def test_links_found_while_the_queue_is_full_wait_until_there_is_room(lab):
    job = await lab.job(max_queued=2)
    await lab.frontier.add(job.id, [candidate("https://a.test/0"), candidate("https://a.test/1")])
    await lab.jobs.seal_seeds(job.id)
    (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases
    found = [candidate(f"https://a.test/new{n}", priority=n) for n in range(5)]

    added = await lab.frontier.complete(lease, UrlState.DONE, "", found)

    counts = await lab.jobs.counts(job.id)
    assert (added.queued, added.dropped) == (5, 0)
    assert (counts.queued, counts.waiting, counts.postponed, counts.dropped) == (2, 4, 4, 0)
    assert adds_up(counts)
    (story,) = await story_of(lab, "https://a.test/new4")
    assert (story.state, story.reason, story.ready_at) == (UrlState.WAITING, NO_ROOM, None)
    again = await lab.frontier.complete(
        (await lab.frontier.lease(job.id, "w", 1)).leases[0], UrlState.DONE, "", found, duplicates=0
    )
    assert (again.queued, again.duplicates) == (0, 5)

    # the best of them enter first, and the job is not over before all are done
    fetched = []
    while not (batch := await lab.frontier.lease(job.id, "w", 1)).drained:
        assert batch.leases
        counts = await lab.jobs.counts(job.id)
        assert counts.queued + counts.waiting - counts.postponed <= 2
        assert adds_up(counts)
        for lease in batch.leases:
            fetched.append(lease.task.url)
            await lab.frontier.complete(lease, UrlState.DONE)
    assert sorted(fetched)[-3:] == [f"https://a.test/new{n}" for n in (2, 3, 4)]
    assert fetched.index("https://a.test/new4") < fetched.index("https://a.test/new1")
    counts = await lab.jobs.counts(job.id)
    assert (counts.done, counts.open, counts.postponed) == (7, 0, 0)


async def test_a_page_with_more_links_than_the_queue_may_hold_leaves_out_none(lab):
    job = await lab.job(max_queued=3)
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    await lab.jobs.seal_seeds(job.id)
    (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases
    await lab.frontier.complete(lease, UrlState.DONE, "", [candidate(f"https://s{n % 9}.test/{n}") for n in range(700)])

    done = 0
    while not (batch := await lab.frontier.lease(job.id, "w", 50)).drained:
        assert batch.leases
        for lease in batch.leases:
            await lab.frontier.complete(lease, UrlState.DONE)
            done += 1
    assert done == 700
    assert adds_up(await lab.jobs.counts(job.id))


async def test_seeds_wait_until_links_have_room(lab):
    job = await lab.job(max_queued=2)
    await lab.frontier.add(job.id, [candidate("https://a.test/0")])
    (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases
    await lab.frontier.complete(lease, UrlState.DONE, "", [candidate(f"https://a.test/new{n}") for n in range(5)])

    with pytest.raises(FrontierFull, match="max_queued"):
        await lab.frontier.add(job.id, [candidate("https://a.test/seed")])


async def test_links_that_wait_for_room_end_with_their_job(lab):
    job = await lab.job(max_queued=2)
    await lab.frontier.add(job.id, [candidate("https://a.test/0")])
    (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases
    await lab.frontier.complete(lease, UrlState.DONE, "", [candidate(f"https://a.test/new{n}") for n in range(9)])

    await lab.control.cancel_job(job.id)
    await lab.history.clear_all()

    counts = await lab.jobs.counts(job.id)
    assert (counts.open, counts.postponed, counts.drops) == (0, 0, {"cancelled": 9})
    assert adds_up(counts)


async def test_complete_settles_and_adds_in_one_step(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases

    added = await lab.frontier.complete(
        lease, UrlState.DONE, "", [candidate("https://a.test/1", depth=1), candidate("https://a.test/")], duplicates=3
    )

    assert (added.queued, added.duplicates) == (1, 1)
    counts = await lab.jobs.counts(job.id)
    assert (counts.done, counts.queued, counts.discovered, counts.duplicates) == (1, 1, 6, 4)
    assert adds_up(counts)
    (story,) = await story_of(lab, "https://a.test/1")
    assert (story.found_on, story.depth) == ("https://a.test/", 1)


async def test_an_expired_lease_can_settle_nothing(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases
    lab.clock.advance(LEASE.total_seconds() + 1)

    for settle in (
        lambda: lab.frontier.complete(lease, UrlState.DONE, "", [candidate("https://a.test/new")]),
        lambda: lab.frontier.retry(lease, NOW, "x"),
        lambda: lab.frontier.bury(lease, "x", "y"),
        lambda: lab.frontier.release(lease, NOW, "x"),
    ):
        with pytest.raises(LeaseLost):
            await settle()

    (again,) = (await lab.frontier.lease(job.id, "w2", 9)).leases
    assert again.task.url == "https://a.test/"
    assert await states(lab, job) == {"https://a.test/": UrlState.LEASED}


async def test_a_stale_token_can_settle_nothing_while_another_works(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    (stale,) = (await lab.frontier.lease(job.id, "w1", 1)).leases
    lab.clock.advance(LEASE.total_seconds() + 1)
    (fresh,) = (await lab.frontier.lease(job.id, "w2", 1)).leases

    with pytest.raises(LeaseLost):
        await lab.frontier.complete(stale, UrlState.DONE)
    assert await lab.frontier.renew([stale, fresh]) == [stale]

    await lab.frontier.complete(fresh, UrlState.DONE)
    with pytest.raises(LeaseLost):
        await lab.frontier.complete(fresh, UrlState.DONE)
    assert (await lab.jobs.counts(job.id)).done == 1


async def test_a_renewed_lease_outlives_its_first_deadline(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases
    for _ in range(5):
        lab.clock.advance(LEASE.total_seconds() - 1)
        assert await lab.frontier.renew([lease]) == []

    await lab.frontier.complete(lease, UrlState.DONE)

    assert (await lab.jobs.counts(job.id)).done == 1


@pytest.mark.parametrize("late", [0.0, 1.0])
async def test_a_lease_that_has_run_out_can_neither_be_renewed_nor_settled(lab, late):
    # given a lease whose time is over, and whose page nobody else has taken yet
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/"), candidate("https://b.test/")])
    expired, settled = (await lab.frontier.lease(job.id, "w1", 2)).leases
    lab.clock.advance(LEASE.total_seconds() + late)

    # then its worker hears so, and another one gets the page
    assert await lab.frontier.renew([expired]) == [expired]
    with pytest.raises(LeaseLost):
        await lab.frontier.complete(settled, UrlState.DONE)
    again = (await lab.frontier.lease(job.id, "w2", 2)).leases
    assert sorted(lease.task.url for lease in again) == ["https://a.test/", "https://b.test/"]
    assert await lab.frontier.renew([expired, *again]) == [expired]


async def test_a_page_that_kills_its_workers_ends_with_the_dead(lab):
    job = await lab.job(max_deliveries=3)
    await lab.frontier.add(job.id, [candidate("https://a.test/killer")])
    for number in range(4):  # three workers that die over it, and one that is to bury it
        (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases
        assert lease.delivery == number + 1
        lab.clock.advance(LEASE.total_seconds() + 1)

    assert (await lab.frontier.lease(job.id, "w", 1)).leases == ()
    (letter,) = await lab.queue.dead(DeadFilter())
    assert (letter.reason, letter.deliveries) == ("poison", 4)
    (story,) = await story_of(lab, "https://a.test/killer")
    assert len(story.incidents) == 4


async def test_tasks_of_a_dead_neighbour_come_back_at_once(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    await lab.frontier.lease(job.id, "dead", 1)
    lab.gone.add("dead")
    lab.clock.advance(3)

    (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases

    assert (lease.task.url, lease.delivery) == ("https://a.test/", 2)


async def test_a_task_that_came_back_goes_behind_its_equals(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(3)])
    await lab.frontier.lease(job.id, "dead", 1)
    lab.gone.add("dead")
    lab.clock.advance(3)

    batch = await lab.frontier.lease(job.id, "w", 3)

    assert await urls_of(batch) == ["https://a.test/1", "https://a.test/2", "https://a.test/0"]


async def test_a_retry_waits_and_counts_the_attempt(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases
    await lab.frontier.retry(lease, timedelta(seconds=10), "timeout")

    early = await lab.frontier.lease(job.id, "w", 1)
    lab.clock.advance(10.001)
    (again,) = (await lab.frontier.lease(job.id, "w", 1)).leases

    assert early.leases == ()
    assert early.wait == timedelta(seconds=10)
    assert not early.drained
    assert again.task.attempt == 1
    counts = await lab.jobs.counts(job.id)
    assert (counts.retries, counts.leased) == (1, 1)


async def test_a_release_burns_neither_attempt_nor_delivery(lab):
    job = await lab.job(max_deliveries=2)
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    for _ in range(5):
        (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases
        await lab.frontier.release(lease, NOW, "draining")

    (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases

    assert (lease.task.attempt, lease.delivery) == (0, 1)


async def test_the_bucket_spaces_leases_and_counts_its_burst(lab):
    lab.terms["a.test"] = SiteTerms(interval=timedelta(seconds=2), burst=3, concurrency=None)
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(20)])

    taken = []
    for _ in range(40):
        batch = await lab.frontier.lease(job.id, "w", 10)
        taken += [lab.clock.now()] * len(batch.leases)
        for lease in batch.leases:
            await lab.frontier.complete(lease, UrlState.DONE)
        lab.clock.advance(0.5)

    spans = [(taken[j] - taken[i], j - i + 1) for i in range(len(taken)) for j in range(i, len(taken))]
    assert taken[:3] == [taken[0]] * 3
    assert len(taken) == 12
    assert all(count <= 3 + span / 2 + 1e-6 for span, count in spans)


async def test_a_waiting_site_says_when_to_come_back(lab):
    lab.terms["a.test"] = SiteTerms(interval=timedelta(seconds=5), burst=1, concurrency=None)
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/1"), candidate("https://a.test/2")])
    (lease,) = (await lab.frontier.lease(job.id, "w", 9)).leases
    await lab.frontier.complete(lease, UrlState.DONE)

    batch = await lab.frontier.lease(job.id, "w", 9)

    assert batch.leases == ()
    assert batch.wait == timedelta(seconds=5) - HEAD_START


async def test_a_task_is_handed_out_a_moment_before_its_turn_and_says_how_long_to_wait(lab):
    lab.terms["a.test"] = SiteTerms(interval=timedelta(seconds=5), burst=1, concurrency=None)
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/1"), candidate("https://a.test/2")])
    (first,) = (await lab.frontier.lease(job.id, "w", 9)).leases
    lab.clock.advance(4.985)

    (second,) = (await lab.frontier.lease(job.id, "w", 9)).leases

    # The bucket as it was before the grant is full again in 15 ms: that long the worker's pacer holds the request.
    assert second.pace.ahead - second.pace.interval == pytest.approx(0.015, abs=1e-4)
    assert first.pace.ahead == pytest.approx(5)


async def test_concurrency_of_a_site_holds_across_workers_and_jobs(lab):
    lab.terms["a.test"] = SiteTerms(interval=None, burst=1, concurrency=2)
    one, two = await lab.job("one"), await lab.job("two")
    await lab.frontier.add(one.id, [candidate(f"https://a.test/{n}") for n in range(9)])
    await lab.frontier.add(two.id, [candidate(f"https://a.test/{n}") for n in range(9)])

    first = await lab.frontier.lease(one.id, "w1", 9)
    second = await lab.frontier.lease(two.id, "w2", 9)
    assert (len(first.leases), len(second.leases)) == (2, 0)

    await lab.frontier.complete(first.leases[0], UrlState.DONE)
    assert len((await lab.frontier.lease(two.id, "w2", 9)).leases) == 1
    assert len((await lab.frontier.lease(one.id, "w1", 9)).leases) == 0


async def test_a_paced_site_is_in_the_hands_of_one_worker_at_a_time(lab):
    lab.terms["a.test"] = SiteTerms(interval=timedelta(seconds=1), burst=1, concurrency=4)
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(9)])
    (mine,) = (await lab.frontier.lease(job.id, "w1", 1)).leases
    lab.clock.advance(1.5)

    assert (await lab.frontier.lease(job.id, "w2", 1)).leases == ()
    (also_mine,) = (await lab.frontier.lease(job.id, "w1", 1)).leases
    for lease in (mine, also_mine):
        await lab.frontier.complete(lease, UrlState.DONE)
    lab.clock.advance(1.5)
    assert len((await lab.frontier.lease(job.id, "w2", 1)).leases) == 1


async def test_the_next_grant_keeps_its_distance_from_what_the_pacer_really_did(lab):
    lab.terms["a.test"] = SiteTerms(interval=timedelta(seconds=1), burst=1, concurrency=4)
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(9)])
    (lease,) = (await lab.frontier.lease(job.id, "w1", 1)).leases
    lab.clock.advance(0.8)
    # The worker's loop was busy: its request left only now, so the bucket is full again in one second.
    await lab.frontier.complete(lease, UrlState.DONE, paced_ahead=timedelta(seconds=1))

    lab.clock.advance(0.9)
    assert (await lab.frontier.lease(job.id, "w2", 1)).leases == ()
    lab.clock.advance(0.1001)
    assert len((await lab.frontier.lease(job.id, "w2", 1)).leases) == 1


async def test_after_a_lost_worker_the_site_is_left_alone_for_one_interval(lab):
    lab.terms["a.test"] = SiteTerms(interval=timedelta(seconds=10), burst=1, concurrency=4)
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(9)])
    await lab.frontier.lease(job.id, "dead", 1)
    lab.clock.advance(12)
    lab.gone.add("dead")

    assert (await lab.frontier.lease(job.id, "w", 1)).leases == ()
    lab.clock.advance(9.9)
    assert (await lab.frontier.lease(job.id, "w", 1)).leases == ()
    lab.clock.advance(0.2)
    assert len((await lab.frontier.lease(job.id, "w", 1)).leases) == 1


async def test_a_site_that_asks_for_space_gets_it_from_everyone(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(9)])
    await lab.frontier.slow_down("a.test", interval=None, rest=timedelta(seconds=60))

    assert (await lab.frontier.lease(job.id, "w1", 9)).leases == ()
    lab.clock.advance(59)
    assert (await lab.frontier.lease(job.id, "w2", 9)).leases == ()
    lab.clock.advance(1.1)
    assert len((await lab.frontier.lease(job.id, "w2", 9)).leases) == 9


async def test_a_crawl_delay_slows_an_unlimited_site_and_survives_later_rests(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(9)])
    await lab.frontier.slow_down("a.test", interval=timedelta(seconds=3), rest=NOW)
    await lab.frontier.slow_down("a.test", interval=None, rest=NOW)

    (lease,) = (await lab.frontier.lease(job.id, "w", 9)).leases
    assert lease.pace is not None
    assert lease.pace.interval == 3
    await lab.frontier.complete(lease, UrlState.DONE)
    assert (await lab.frontier.lease(job.id, "w", 9)).wait == timedelta(seconds=3) - HEAD_START


async def test_a_crawl_delay_shorter_than_ours_changes_nothing(lab):
    lab.terms["a.test"] = SiteTerms(interval=timedelta(seconds=5), burst=1, concurrency=None)
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    await lab.frontier.slow_down("a.test", interval=timedelta(seconds=1), rest=NOW)

    (lease,) = (await lab.frontier.lease(job.id, "w", 9)).leases

    assert lease.pace is not None
    assert lease.pace.interval == 5


async def test_a_slow_site_takes_nothing_from_the_others(lab):
    lab.terms["slow.test"] = SiteTerms(interval=timedelta(seconds=100), burst=1, concurrency=1)
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://slow.test/{n}", priority=5) for n in range(500)])
    await lab.frontier.add(job.id, [candidate(f"https://quick.test/{n}") for n in range(50)])

    urls = []
    for _ in range(6):
        batch = await lab.frontier.lease(job.id, "w", 10)
        urls += await urls_of(batch)

    assert sum("quick" in url for url in urls) == 50
    assert sum("slow" in url for url in urls) == 1


async def test_the_page_limit_is_exact_across_workers(lab):
    job = await lab.job(limit=5)
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(20)])
    await lab.jobs.seal_seeds(job.id)
    batches = await asyncio.gather(*(lab.frontier.lease(job.id, f"w{n}", 3) for n in range(4)))
    leases = [lease for batch in batches for lease in batch.leases]
    assert len(leases) == 5
    await lab.frontier.complete(leases[0], UrlState.DONE, redirect="https://a.test/99")
    (extra,) = (await lab.frontier.lease(job.id, "w", 3)).leases

    for lease in (*leases[1:], extra):
        await lab.frontier.complete(lease, UrlState.DONE)

    batch = await lab.frontier.lease(job.id, "w", 3)
    assert batch.leases == ()
    assert batch.drained


async def test_a_page_counts_towards_the_limit_whatever_became_of_it(lab):
    # given a job of six pages, at sites of their own, and more of them in the queue
    job = await lab.job(limit=6)
    await lab.frontier.add(job.id, [candidate(f"https://s{n}.test/") for n in range(20)])
    await lab.jobs.seal_seeds(job.id)
    done, unchanged, dead = (await lab.frontier.lease(job.id, "w", 3)).leases

    # when three of them end in different ways
    await lab.frontier.complete(done, UrlState.DONE)
    await lab.frontier.complete(unchanged, UrlState.UNCHANGED)
    await lab.frontier.bury(dead, "http-500", "The site failed.")

    # then three more may be fetched, and no fourth
    rest = (await lab.frontier.lease(job.id, "w", 9)).leases
    assert len(rest) == 3
    batch = await lab.frontier.lease(job.id, "w", 9)
    assert (batch.leases, batch.drained) == ((), False)
    for lease in rest:
        await lab.frontier.complete(lease, UrlState.UNCHANGED)
    assert (await lab.frontier.lease(job.id, "w", 9)).drained
    counts = await lab.jobs.counts(job.id)
    assert (counts.done, counts.unchanged, counts.dead, counts.queued) == (1, 4, 1, 14)


async def test_an_empty_queue_is_drained_only_when_seeds_are_sealed_and_nobody_works(lab):
    job = await lab.job()
    assert not (await lab.frontier.lease(job.id, "w", 1)).drained
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    await lab.jobs.seal_seeds(job.id)
    (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases
    assert not (await lab.frontier.lease(job.id, "w", 1)).drained
    await lab.frontier.complete(lease, UrlState.DONE)
    assert (await lab.frontier.lease(job.id, "w", 1)).drained


async def test_an_unfinished_job_is_found_again_and_a_finished_one_is_not(lab):
    first = await lab.job("books")
    again, resumed = await lab.jobs.open_job("books", (await _terms()), fresh=False)
    assert (again.id, resumed) == (first.id, True)
    assert await lab.jobs.close_job(first.id, "done")
    assert not await lab.jobs.close_job(first.id, "done")

    new, resumed = await lab.jobs.open_job("books", (await _terms()), fresh=False)

    assert new.id != first.id
    assert not resumed
    ended = await lab.jobs.job(first.id)
    assert (ended.state, ended.ending) == (JobState.FINISHED, "done")
    assert [job.id for job in await lab.jobs.jobs()] == [new.id, first.id]


async def _terms():
    from gossamer.frontier.contract import JobTerms

    return JobTerms()


async def test_a_fresh_start_drops_what_the_old_job_still_had_to_do(lab):
    lab.terms["a.test"] = SiteTerms(interval=None, burst=1, concurrency=2)
    old = await lab.job("books")
    await lab.frontier.add(old.id, [candidate(f"https://a.test/{n}") for n in range(4)])
    leases = (await lab.frontier.lease(old.id, "w", 2)).leases

    new = await lab.job("books", fresh=True)

    assert set((await states(lab, old)).values()) == {UrlState.DROPPED}
    assert adds_up(await lab.jobs.counts(old.id))
    with pytest.raises(LeaseLost):
        await lab.frontier.complete(leases[0], UrlState.DONE)
    await lab.frontier.add(new.id, [candidate(f"https://a.test/{n}") for n in range(4)])
    assert len((await lab.frontier.lease(new.id, "w", 9)).leases) == 2
    assert (await lab.frontier.lease(old.id, "w", 9)).drained


async def test_jobs_do_not_see_each_others_urls(lab):
    one, two = await lab.job("one"), await lab.job("two")
    await lab.frontier.add(one.id, [candidate("https://a.test/")])

    added = await lab.frontier.add(two.id, [candidate("https://a.test/")])

    assert added.queued == 1
    assert len(await story_of(lab, "https://a.test/")) == 2


async def test_dead_letters_are_listed_replayed_and_purged_by_reason_and_site(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://{site}.test/{n}") for site in ("a", "b") for n in range(2)])
    for lease in (await lab.frontier.lease(job.id, "w", 9)).leases:
        reason = "http-404" if lease.task.url.endswith("0") else "parse"
        await lab.frontier.bury(lease, reason, "it said no")
    await lab.jobs.close_job(job.id, "done")

    assert len(await lab.queue.dead(DeadFilter())) == 4
    assert [letter.url for letter in await lab.queue.dead(DeadFilter(reason="parse", site="a.test"))] == [
        "https://a.test/1"
    ]
    assert len(await lab.queue.dead(DeadFilter(reason="http"))) == 2
    for pattern in ("%", "_ttp", "%" * 5000, "htt", "http-", "*"):  # a filter is a text, not a pattern
        assert await lab.queue.dead(DeadFilter(reason=pattern)) == []
    assert await lab.queue.dead_sites(DeadFilter(), 10) == {"a.test": 2, "b.test": 2}
    assert await lab.queue.dead_sites(DeadFilter(), 1) == {"a.test": 2}
    assert await lab.queue.dead_sites(DeadFilter(reason="parse", site="a.test"), 10) == {"a.test": 1}
    assert await lab.queue.replay(DeadFilter(reason="parse")) == 2
    assert await lab.queue.purge(DeadFilter(site="a.test")) == 1

    counts = await lab.jobs.counts(job.id)
    assert (counts.dead, counts.queued, counts.dropped) == (1, 2, 1)
    assert adds_up(counts)
    assert (await lab.jobs.job(job.id)).state is JobState.RUNNING
    assert len((await lab.frontier.lease(job.id, "w", 9)).leases) == 2


async def test_the_story_tells_why_a_url_waits(lab):
    lab.terms["a.test"] = SiteTerms(interval=timedelta(seconds=7), burst=1, concurrency=1)
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/1"), candidate("https://a.test/2")])
    await lab.frontier.lease(job.id, "w", 9)

    (first,) = await story_of(lab, "https://a.test/1")
    (second,) = await story_of(lab, "https://a.test/2")

    assert (first.state, first.worker) == (UrlState.LEASED, "w")
    assert (second.state, second.ahead_of_it) == (UrlState.QUEUED, 0)
    assert second.site_next_at == lab.clock.now() + 7


async def test_an_unknown_job_is_refused_with_a_hint(lab):
    with pytest.raises(Permanent, match="gossamer status"):
        await lab.frontier.lease("nonsense-1", "w", 1)


async def test_a_job_with_work_in_it_is_not_closed(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    assert not await lab.jobs.close_job(job.id, "done")
    (lease,) = (await lab.frontier.lease(job.id, "w", 1)).leases
    assert not await lab.jobs.close_job(job.id, "done")
    await lab.frontier.complete(lease, UrlState.DONE, "", [candidate("https://a.test/1")])

    assert (await lab.jobs.job(job.id)).state is JobState.RUNNING
    assert await lab.jobs.close_job(job.id, "limit")


async def test_an_unlimited_site_that_asks_for_nothing_gets_what_it_asks_for(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(3)])
    await lab.frontier.slow_down("a.test", interval=NOW, rest=NOW)

    assert len((await lab.frontier.lease(job.id, "w", 9)).leases) >= 1

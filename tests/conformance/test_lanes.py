"""What every frontier promises about lanes: workers that serve only some tasks, fed from the same queue."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.frontier.contract import DeadFilter
from gossamer.frontier.politeness import GIVE_WAY, HEAD_START, TURN, SiteTerms
from gossamer.model.task import UrlState
from tests.conformance.frontiers import LEASE, Backends, candidate

NOW = timedelta(0)
PLAIN, BROWSER, BOTH = frozenset({""}), frozenset({"browser"}), frozenset({"", "browser"})
WISHES = '{"session":"mine"}'


@pytest.fixture(params=Backends.UNSHARDED)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


def shown(url: str, **fields: object):
    return candidate(url, fetcher="browser", **fields)


def urls_of(batch):
    return [lease.task.url for lease in batch.leases]


async def story_of(lab, url):
    wanted = candidate(url)
    (story,) = await lab.queue.story(wanted.site, wanted.fingerprint)
    return story


async def test_only_tasks_of_the_lanes_asked_for_are_handed_out(lab):
    job = await lab.job()
    await lab.frontier.add(
        job.id,
        [
            candidate("https://a.test/plain"),
            shown("https://a.test/shown"),
            candidate("https://a.test/api", fetcher="api"),
        ],
    )

    assert urls_of(await lab.frontier.lease(job.id, "w1", 9, frozenset())) == []
    assert urls_of(await lab.frontier.lease(job.id, "w1", 9, frozenset({"never heard of"}))) == []
    assert urls_of(await lab.frontier.lease(job.id, "w1", 9, BROWSER)) == ["https://a.test/shown"]
    assert urls_of(await lab.frontier.lease(job.id, "w1", 9, BOTH)) == ["https://a.test/plain"]
    (last,) = (await lab.frontier.lease(job.id, "w1", 9)).leases
    assert (last.task.url, last.task.fetcher) == ("https://a.test/api", "api")


async def test_tasks_of_other_lanes_are_not_in_the_way(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [shown(f"https://{s}.test/{n}", priority=9) for s in "abcdef" for n in range(40)])
    await lab.frontier.add(job.id, [candidate("https://a.test/plain"), candidate("https://z.test/plain")])

    batch = await lab.frontier.lease(job.id, "w", 2, PLAIN)

    assert sorted(urls_of(batch)) == ["https://a.test/plain", "https://z.test/plain"]


async def test_whoever_asks_in_vain_uses_up_neither_the_token_nor_the_slot_of_the_site(lab):
    lab.terms["a.test"] = SiteTerms(interval=timedelta(seconds=10), burst=1, concurrency=1)
    job = await lab.job()
    await lab.frontier.add(job.id, [shown("https://a.test/1")])

    assert urls_of(await lab.frontier.lease(job.id, "plain", 9, PLAIN)) == []

    assert urls_of(await lab.frontier.lease(job.id, "browser", 9, BROWSER)) == ["https://a.test/1"]


async def test_priority_comes_first_within_what_a_worker_may_take(lab):
    job = await lab.job()
    await lab.frontier.add(
        job.id, [candidate("https://a.test/low", priority=1), shown("https://a.test/top", priority=9)]
    )
    await lab.frontier.add(
        job.id, [shown("https://b.test/mid", priority=5), candidate("https://b.test/high", priority=7)]
    )
    await lab.frontier.add(job.id, [candidate("https://c.test/api", priority=8, fetcher="api")])

    batch = await lab.frontier.lease(job.id, "w", 3, BOTH)

    assert urls_of(batch) == ["https://a.test/top", "https://b.test/high", "https://b.test/mid"]


async def test_who_serves_all_lanes_takes_a_sites_tasks_in_the_order_they_came(lab):
    job = await lab.job()
    for n in range(6):
        one = f"https://a.test/{n}"
        await lab.frontier.add(job.id, [shown(one) if n % 2 else candidate(one)])
        lab.clock.advance(0.01)

    taken = urls_of(await lab.frontier.lease(job.id, "w", 4)) + urls_of(await lab.frontier.lease(job.id, "w", 4))

    assert taken == [f"https://a.test/{n}" for n in range(6)]


async def test_sites_take_turns_whatever_lanes_they_have(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://huge.test/{n}") for n in range(60)])
    await lab.frontier.add(job.id, [shown(f"https://huge.test/shown/{n}") for n in range(60)])
    await lab.frontier.add(job.id, [shown("https://small.test/1"), candidate("https://tiny.test/1")])

    batch = await lab.frontier.lease(job.id, "w", 6, BOTH)

    assert {"https://small.test/1", "https://tiny.test/1"} <= set(urls_of(batch))
    assert len(batch.leases) == 6


async def test_a_job_is_drained_only_when_every_lane_is(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [shown("https://a.test/1")])
    await lab.jobs.seal_seeds(job.id)

    idle = await lab.frontier.lease(job.id, "plain", 9, PLAIN)
    (lease,) = (await lab.frontier.lease(job.id, "browser", 9, BROWSER)).leases
    meanwhile = await lab.frontier.lease(job.id, "plain", 9, PLAIN)
    await lab.frontier.complete(lease, UrlState.DONE)

    assert (idle.leases, idle.drained) == ((), False)
    assert (meanwhile.leases, meanwhile.drained) == ((), False)
    assert meanwhile.wait is None or meanwhile.wait <= LEASE
    assert (await lab.frontier.lease(job.id, "plain", 9, PLAIN)).drained


async def test_a_released_task_may_move_to_another_lane_and_back(lab):
    job = await lab.job(max_deliveries=2)
    await lab.frontier.add(job.id, [candidate("https://a.test/1", data='{"n":1}', how=WISHES)])

    # More often than it may be delivered or tried: moving uses up neither.
    for _ in range(4):
        (lease,) = (await lab.frontier.lease(job.id, "plain", 9, PLAIN)).leases
        assert (lease.task.fetcher, lease.delivery, lease.task.attempt) == (None, 1, 0)
        await lab.frontier.release(lease, NOW, "it needs rendering", lane="browser")

        assert urls_of(await lab.frontier.lease(job.id, "plain", 9, PLAIN)) == []
        assert (await story_of(lab, "https://a.test/1")).lane == "browser"
        (lease,) = (await lab.frontier.lease(job.id, "browser", 9, BROWSER)).leases
        assert (lease.task.fetcher, lease.delivery, lease.task.attempt) == ("browser", 1, 0)
        await lab.frontier.release(lease, NOW, "a plain request will do", lane="")
    (lease,) = (await lab.frontier.lease(job.id, "plain", 9, PLAIN)).leases
    assert (lease.task.data, lease.task.how) == ('{"n":1}', WISHES)
    counts = await lab.jobs.counts(job.id)
    assert (counts.leased, counts.open, counts.retries) == (1, 1, 0)


async def test_a_task_that_moves_waits_first_and_a_plain_release_stays_where_it_is(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [shown("https://a.test/stays"), shown("https://a.test/moves")])
    stays, moves = (await lab.frontier.lease(job.id, "browser", 9, BROWSER)).leases
    await lab.frontier.release(stays, NOW, "drain")
    await lab.frontier.release(moves, timedelta(seconds=5), "elsewhere", lane="api")

    assert urls_of(await lab.frontier.lease(job.id, "w", 9, frozenset({"api"}))) == []
    assert urls_of(await lab.frontier.lease(job.id, "w", 9, BROWSER)) == ["https://a.test/stays"]
    lab.clock.advance(5)
    (lease,) = (await lab.frontier.lease(job.id, "w", 9, frozenset({"api"}))).leases
    assert (lease.task.url, lease.task.fetcher) == ("https://a.test/moves", "api")


async def test_a_task_comes_back_to_its_lane_from_a_retry_a_lost_worker_and_the_dead(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [shown("https://a.test/1", how=WISHES, proxy_pool="homes", country="de")])

    async def only_browsers_get_it():
        assert urls_of(await lab.frontier.lease(job.id, "plain", 9, PLAIN)) == []
        (lease,) = (await lab.frontier.lease(job.id, "browser", 9, BROWSER)).leases
        task = lease.task
        assert (task.fetcher, task.how, task.proxy_pool, task.country) == ("browser", WISHES, "homes", "de")
        return lease

    await lab.frontier.retry(await only_browsers_get_it(), NOW, "timeout")
    await only_browsers_get_it()
    lab.gone.add("browser")
    lab.clock.advance(3)
    lease = await only_browsers_get_it()
    await lab.frontier.bury(lease, "http-404", "gone")
    assert await lab.queue.replay(DeadFilter()) == 1
    await only_browsers_get_it()
    lab.clock.advance(LEASE.total_seconds() + 1)
    await only_browsers_get_it()


async def test_a_url_that_enters_again_takes_its_new_wishes_along(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/1")])
    (lease,) = (await lab.frontier.lease(job.id, "w", 9)).leases
    await lab.frontier.complete(lease, UrlState.DONE)

    added = await lab.frontier.add(job.id, [shown("https://a.test/1", force=True, how=WISHES, max_attempts=9)])

    assert added.queued == 1
    (lease,) = (await lab.frontier.lease(job.id, "w", 9, BROWSER)).leases
    assert (lease.task.fetcher, lease.task.how, lease.task.max_attempts) == ("browser", WISHES, 9)


async def test_a_slot_that_is_given_back_wakes_every_lane_of_the_site(lab):
    lab.terms["a.test"] = SiteTerms(interval=None, burst=1, concurrency=1)
    job, other = await lab.job(), await lab.job("other")
    await lab.frontier.add(other.id, [candidate("https://a.test/other")])
    await lab.frontier.add(job.id, [candidate("https://a.test/plain"), shown("https://a.test/shown")])
    (held,) = (await lab.frontier.lease(other.id, "other", 9)).leases
    assert urls_of(await lab.frontier.lease(job.id, "plain", 9, PLAIN)) == []
    assert urls_of(await lab.frontier.lease(job.id, "browser", 9, BROWSER)) == []

    await lab.frontier.complete(held, UrlState.DONE)

    (lease,) = (await lab.frontier.lease(job.id, "browser", 9, BROWSER)).leases
    assert urls_of(await lab.frontier.lease(job.id, "plain", 9, PLAIN)) == []
    await lab.frontier.complete(lease, UrlState.DONE)
    assert urls_of(await lab.frontier.lease(job.id, "plain", 9, PLAIN)) == ["https://a.test/plain"]


async def test_a_rest_that_a_site_asked_for_holds_in_every_lane(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/plain"), shown("https://a.test/shown")])
    await lab.frontier.slow_down("a.test", interval=None, rest=timedelta(seconds=5))

    for lanes in (PLAIN, BROWSER, None):
        batch = await lab.frontier.lease(job.id, "w", 9, lanes)
        assert (batch.leases, batch.wait) == ((), timedelta(seconds=5))
    lab.clock.advance(5)
    assert urls_of(await lab.frontier.lease(job.id, "w", 9, BROWSER)) == ["https://a.test/shown"]


@pytest.mark.parametrize(
    "terms",
    [
        SiteTerms(interval=timedelta(seconds=1), burst=1, concurrency=None),
        SiteTerms(interval=timedelta(seconds=1), burst=3, concurrency=2),
        SiteTerms(interval=None, burst=1, concurrency=1),
    ],
    ids=["paced", "in bursts", "one at a time"],
)
async def test_workers_of_different_lanes_share_one_sites_pace_and_both_get_on(lab, terms):
    # given two workers with a lane each, whose pages take longer than the site's interval
    lab.terms["a.test"] = terms
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(200)])
    await lab.frontier.add(job.id, [shown(f"https://a.test/shown/{n}") for n in range(200)])
    grants: list[tuple[float, str]] = []
    in_progress: list[tuple[float, object]] = []

    async def settle_those_that_are_done():
        for until, lease in list(in_progress):
            if until <= lab.clock.now():
                in_progress.remove((until, lease))
                await lab.frontier.complete(lease, UrlState.DONE)

    # when the first asks all the time, and the other as an idle worker does
    started = lab.clock.now()
    step = 0
    while lab.clock.now() < started + 35:
        await settle_those_that_are_done()
        for worker, lanes, every in (("plain", PLAIN, 1), ("browser", BROWSER, 5)):
            if step % every == 0:
                for lease in (await lab.frontier.lease(job.id, worker, 4, lanes)).leases:
                    grants.append((lab.clock.now(), worker))
                    in_progress.append((lab.clock.now() + 1.7, lease))
        assert terms.concurrency is None or len(in_progress) <= terms.concurrency
        lab.clock.advance(0.05)
        step += 1

    # then together they visit it no faster than it allows
    if terms.interval is not None:
        times = [at for at, _ in grants]
        for first in range(len(times)):
            for last in range(first, len(times)):
                span = times[last] - times[first] + HEAD_START.total_seconds()
                assert last - first + 1 <= terms.burst + span / terms.interval.total_seconds() + 1e-6
    # and neither is kept waiting much longer than a turn of the other lasts
    for worker in ("plain", "browser"):
        mine = [at for at, who in grants if who == worker]
        pauses = [after - before for before, after in zip([started, *mine], [*mine, started + 35], strict=True)]
        assert max(pauses) < 2 * TURN.total_seconds() + 4, (worker, pauses)


async def test_a_lane_that_nobody_serves_any_more_holds_up_nobody(lab):
    lab.terms["a.test"] = SiteTerms(interval=None, burst=1, concurrency=1)
    job = await lab.job()
    await lab.frontier.add(
        job.id, [shown("https://a.test/shown"), *(candidate(f"https://a.test/{n}") for n in range(9))]
    )
    lab.clock.advance(0.1)
    # given a browser worker that asked in vain and went away
    (lease,) = (await lab.frontier.lease(job.id, "plain", 9, PLAIN)).leases
    assert urls_of(await lab.frontier.lease(job.id, "browser", 9, BROWSER)) == []
    lab.clock.advance(TURN.total_seconds() + 1)
    await lab.frontier.complete(lease, UrlState.DONE)

    # when the other one goes on
    pauses = 0
    for _ in range(8):
        batch = await lab.frontier.lease(job.id, "plain", 9, PLAIN)
        if not batch.leases:
            pauses += 1
            assert batch.wait == GIVE_WAY
            lab.clock.advance(GIVE_WAY.total_seconds())
            batch = await lab.frontier.lease(job.id, "plain", 9, PLAIN)
        (lease,) = batch.leases
        await lab.frontier.complete(lease, UrlState.DONE)
        lab.clock.advance(TURN.total_seconds() + 1)

    # then it left the site to the browser once, and no more
    assert pauses == 1


async def test_the_budget_of_a_site_counts_all_its_lanes(lab):
    job = await lab.job(max_urls_per_site=5)
    first = await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(2)])
    second = await lab.frontier.add(job.id, [shown(f"https://a.test/shown/{n}") for n in range(2)])
    third = await lab.frontier.add(job.id, [candidate("https://a.test/5"), shown("https://a.test/shown/5")])

    assert (first.queued, second.queued, third.queued, third.dropped) == (2, 2, 1, 1)


async def test_people_see_the_site_as_one_and_each_task_in_its_lane(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(3)])
    await lab.frontier.add(job.id, [shown(f"https://a.test/shown/{n}") for n in range(3)])
    (lease,) = (await lab.frontier.lease(job.id, "browser", 1, BROWSER)).leases
    await lab.frontier.retry(lease, timedelta(seconds=9), "timeout")
    await lab.frontier.lease(job.id, "plain", 1, PLAIN)

    (load,) = await lab.queue.sites(job.id)
    assert (load.site, load.queued, load.waiting, load.leased) == ("a.test", 4, 1, 1)
    last, last_shown = await story_of(lab, "https://a.test/2"), await story_of(lab, "https://a.test/shown/2")
    assert (last.lane, last.ahead_of_it) == ("", 1)
    assert (last_shown.lane, last_shown.ahead_of_it) == ("browser", 1)


async def test_a_fresh_start_drops_the_tasks_of_every_lane(lab):
    job = await lab.job("books")
    await lab.frontier.add(
        job.id, [candidate("https://a.test/1"), shown("https://a.test/2"), shown("https://a.test/3")]
    )
    (lease,) = (await lab.frontier.lease(job.id, "browser", 1, BROWSER)).leases
    await lab.frontier.retry(lease, timedelta(seconds=9), "timeout")

    await lab.job("books", fresh=True)

    counts = await lab.jobs.counts(job.id)
    assert (counts.open, counts.dropped) == (0, 3)
    assert await lab.queue.sites(job.id) == []


async def test_the_open_work_is_told_by_lane(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://{site}.test/{n}") for site in "ab" for n in range(3)])
    await lab.frontier.add(job.id, [shown("https://a.test/shown"), shown("https://c.test/shown")])
    (held,) = (await lab.frontier.lease(job.id, "w1", 1, BROWSER)).leases
    (late,) = (await lab.frontier.lease(job.id, "w1", 1, PLAIN)).leases
    await lab.frontier.retry(late, timedelta(hours=1), "timeout")

    found = {one.lane: (one.queued, one.waiting, one.leased) for one in await lab.queue.lanes(job.id)}

    assert found == {"": (5, 1, 0), "browser": (1, 0, 1)}
    assert held.task.fetcher == "browser"
    assert await lab.queue.lanes("nobody-1") == []


async def test_how_long_work_could_have_been_handed_out_is_told(lab):
    job = await lab.job()
    assert [one.ready_since for one in await lab.queue.lanes(job.id)] == [None]
    before = lab.clock.now()
    await lab.frontier.add(job.id, [candidate("https://a.test/1"), shown("https://b.test/1")])
    after = lab.clock.now()

    found = {one.lane: one.ready_since for one in await lab.queue.lanes(job.id)}

    assert set(found) == {"", "browser"}
    assert all(at is not None and before - 1 <= at <= after + 1 for at in found.values())
    await lab.frontier.lease(job.id, "w1", 1, PLAIN)
    found = {one.lane: one.ready_since for one in await lab.queue.lanes(job.id)}
    assert found[""] is None
    assert found["browser"] is not None


async def test_work_that_its_site_does_not_allow_is_not_ready(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(3)])
    await lab.frontier.slow_down("a.test", interval=None, rest=timedelta(minutes=5))

    assert [(one.queued, one.ready_since) for one in await lab.queue.lanes(job.id)] == [(3, None)]

"""What every frontier promises about the turn that a lease owes its site: others wait until its request has left, and
not until its page is there."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.errors import LeaseLost
from gossamer.frontier.contract import LeftTurn
from gossamer.frontier.politeness import HEAD_START, TURN_KEPT, SiteTerms
from gossamer.model.task import UrlState
from tests.conformance.frontiers import LEASE, Backends, candidate

INTERVAL = timedelta(seconds=2)
PACED = SiteTerms(interval=INTERVAL, burst=1, concurrency=4)


@pytest.fixture(params=Backends.UNSHARDED)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        lab.terms["a.test"] = PACED
        yield lab


async def with_pages(lab, count=9, name="test", **terms):
    job = (await lab.job(name, **terms)).id
    await lab.frontier.add(job, [candidate(f"https://a.test/{name}/{n}") for n in range(count)])
    return job


async def one_lease(lab, job, worker="w1"):
    (lease,) = (await lab.frontier.lease(job, worker, 1)).leases
    return lease


async def none_for(lab, job, worker="w2"):
    batch = await lab.frontier.lease(job, worker, 1)
    assert batch.leases == ()
    return batch.wait


async def test_a_page_that_is_still_out_holds_up_no_other_worker_once_its_request_has_left(lab):
    job, other = await with_pages(lab), await with_pages(lab, name="other")
    slow = await one_lease(lab, job)

    # while the turn is owed, nobody else gets one, however late it is
    lab.clock.advance(10)
    await none_for(lab, other)
    await none_for(lab, job)

    # once the request has left, everybody may, at the pace
    await lab.frontier.left([LeftTurn(slow, 1)])
    first = await one_lease(lab, other, "w2")
    assert first.pace.ahead == pytest.approx(2)
    await none_for(lab, job)
    await lab.frontier.complete(first, UrlState.DONE)
    assert await none_for(lab, job, "w1") == INTERVAL - HEAD_START
    lab.clock.advance(2)
    await one_lease(lab, job, "w1")

    # and the slow page is settled as ever
    await lab.frontier.complete(slow, UrlState.DONE)
    assert (await lab.jobs.counts(job)).done == 1


async def test_the_next_grant_respects_how_far_the_reporting_worker_is_ahead(lab):
    job = await with_pages(lab)
    slow = await one_lease(lab, job)
    lab.clock.advance(10)

    await lab.frontier.left([LeftTurn(slow, 1, timedelta(seconds=1.5))])

    assert await none_for(lab, job) == timedelta(seconds=1.5) - HEAD_START


async def test_every_other_turn_that_the_worker_owes_still_counts(lab):
    job = await with_pages(lab)
    slow = await one_lease(lab, job)
    lab.clock.advance(2)
    second = await one_lease(lab, job)
    lab.clock.advance(2)

    await lab.frontier.left([LeftTurn(slow, 1)])
    await none_for(lab, job)
    assert await lab.frontier.clear("a.test", timedelta(0)) == 1

    await lab.frontier.left([LeftTurn(second, 1), LeftTurn(slow, 1)])
    assert await lab.frontier.clear("a.test", timedelta(0)) == 0
    await one_lease(lab, job, "w2")


async def test_slots_are_taken_until_the_pages_are_settled(lab):
    lab.terms["a.test"] = SiteTerms(interval=INTERVAL, burst=1, concurrency=2)
    job = await with_pages(lab)
    slow = []
    for _ in range(2):
        slow.append(await one_lease(lab, job))
        lab.clock.advance(2)
        await lab.frontier.left([LeftTurn(slow[-1], 1)])

    await none_for(lab, job)
    await none_for(lab, job, "w1")

    await lab.frontier.complete(slow[0], UrlState.DONE)
    await one_lease(lab, job, "w2")


async def test_a_report_on_a_turn_before_or_on_a_lease_that_is_lost_changes_nothing(lab):
    job = await with_pages(lab)
    slow = await one_lease(lab, job)
    lab.clock.advance(3)
    await lab.frontier.left([LeftTurn(slow, 1)])
    assert (await lab.frontier.next_turn(slow, 2)).wait is None

    # a late report, of the turn before
    lab.clock.advance(3)
    await lab.frontier.left([LeftTurn(slow, 1, timedelta(seconds=60))])
    await none_for(lab, job)

    # and one that comes when the lease is over
    lab.clock.advance(LEASE.total_seconds())
    assert await none_for(lab, job) == INTERVAL - HEAD_START
    await lab.frontier.left([LeftTurn(slow, 2, timedelta(seconds=60))])
    lab.clock.advance(2)
    again = await one_lease(lab, job, "w2")
    await lab.frontier.left([LeftTurn(slow, 1)])
    lab.clock.advance(3)
    await none_for(lab, job, "w3")
    await lab.frontier.left([LeftTurn(again, 1)])
    await one_lease(lab, job, "w3")


async def test_a_lease_that_ends_with_an_owed_turn_costs_an_interval_from_its_end(lab):
    job = await with_pages(lab)
    await one_lease(lab, job)
    lab.clock.advance(LEASE.total_seconds() + 1)

    assert await none_for(lab, job) == INTERVAL - HEAD_START


async def test_one_more_request_of_a_page_takes_a_turn_like_a_lease(lab):
    job = await with_pages(lab)
    slow = await one_lease(lab, job)
    lab.clock.advance(1)
    await lab.frontier.left([LeftTurn(slow, 1, timedelta(seconds=1))])

    # not before the site's next turn comes
    asked = await lab.frontier.next_turn(slow, 2)
    assert (asked.wait, asked.pace) == (timedelta(seconds=1) - HEAD_START, None)
    lab.clock.advance(1)
    taken = await lab.frontier.next_turn(slow, 2)
    assert taken.wait is None
    assert (taken.pace.interval, taken.pace.ahead) == (2, pytest.approx(2))

    # then it is owed again, and the next one is an interval away
    lab.clock.advance(5)
    await none_for(lab, job)
    await lab.frontier.left([LeftTurn(slow, 2, timedelta(seconds=1))])
    assert await none_for(lab, job) == timedelta(seconds=1) - HEAD_START


async def test_a_page_in_progress_waits_for_turns_that_others_owe_and_goes_before_new_pages(lab):
    job = await with_pages(lab)
    slow = await one_lease(lab, job)
    lab.clock.advance(3)
    await lab.frontier.left([LeftTurn(slow, 1)])
    second = await one_lease(lab, job, "w2")
    lab.clock.advance(3)

    # while another worker owes a turn there is none
    wait = (await lab.frontier.next_turn(slow, 2)).wait
    assert wait is not None
    assert wait < TURN_KEPT

    # then the page in progress is the next, however many ask
    await lab.frontier.complete(second, UrlState.DONE)
    await none_for(lab, job, "w2")
    await none_for(lab, job, "w1")
    assert (await lab.frontier.next_turn(slow, 2)).wait is None


async def test_a_turn_is_not_kept_for_a_page_that_does_not_come_back(lab):
    job = await with_pages(lab)
    slow = await one_lease(lab, job)
    await lab.frontier.left([LeftTurn(slow, 1)])
    assert (await lab.frontier.next_turn(slow, 2)).wait is not None
    lab.clock.advance(2)

    wait = await none_for(lab, job)
    lab.clock.advance(wait.total_seconds() + 0.001)

    await one_lease(lab, job, "w2")


async def test_a_site_that_rests_gives_no_turn_to_a_page_in_progress(lab):
    job = await with_pages(lab)
    slow = await one_lease(lab, job)
    lab.clock.advance(3)
    await lab.frontier.left([LeftTurn(slow, 1)])
    assert await lab.frontier.clear("a.test", timedelta(seconds=7)) == 0

    assert (await lab.frontier.next_turn(slow, 2)).wait == timedelta(seconds=7)

    lab.terms["a.test"] = SiteTerms(interval=INTERVAL, rests=True)
    lab.clock.advance(8)
    assert (await lab.frontier.next_turn(slow, 2)).wait is not None


async def test_a_crawl_delay_counts_for_a_further_turn(lab):
    job = await with_pages(lab)
    slow = await one_lease(lab, job)
    await lab.frontier.slow_down("a.test", interval=timedelta(seconds=9), rest=timedelta(0), worker="w1")
    lab.clock.advance(3)
    await lab.frontier.left([LeftTurn(slow, 1)])

    assert (await lab.frontier.next_turn(slow, 2)).pace.interval == 9
    lab.clock.advance(3)
    await lab.frontier.left([LeftTurn(slow, 2)])
    assert await none_for(lab, job) == timedelta(seconds=6) - HEAD_START


async def test_a_lease_that_is_lost_gets_no_turn(lab):
    job = await with_pages(lab)
    slow = await one_lease(lab, job)
    await lab.frontier.left([LeftTurn(slow, 1)])
    lab.clock.advance(LEASE.total_seconds() + 1)

    with pytest.raises(LeaseLost):
        await lab.frontier.next_turn(slow, 2)


async def test_without_a_rate_a_further_turn_is_there_at_once(lab):
    job = await with_pages(lab)
    slow = await one_lease(lab, job)
    lab.terms["a.test"] = SiteTerms(interval=None, concurrency=4)

    taken = await lab.frontier.next_turn(slow, 2)

    assert (taken.wait, taken.pace) == (None, None)


@pytest.mark.parametrize("ending", ["complete", "expire", "cancel"])
async def test_whatever_ends_a_lease_after_its_turn_the_site_is_counted_right(lab, ending):
    job, other = await with_pages(lab, max_deliveries=9), await with_pages(lab, name="other")
    slow = await one_lease(lab, job)
    lab.clock.advance(3)
    await lab.frontier.left([LeftTurn(slow, 1)])
    match ending:
        case "complete":
            await lab.frontier.complete(slow, UrlState.DONE)
        case "expire":
            lab.clock.advance(LEASE.total_seconds() + 1)
            await none_for(lab, job)
        case "cancel":
            assert await lab.control.cancel_job(job)
            await lab.history.clear_all()
    lab.clock.advance(60)

    # the next page is the only one that owes a turn
    await one_lease(lab, other, "w2")
    assert await lab.frontier.clear("a.test", timedelta(0)) == 1
    assert (await lab.queue.site("a.test")).in_flight == 1
    await none_for(lab, other, "w3")

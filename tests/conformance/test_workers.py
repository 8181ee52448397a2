"""What worker processes ask of the state beside tasks: which jobs run, and a book with a card of each of them."""

from __future__ import annotations

import pytest

from gossamer.frontier.contract import DeadFilter, WorkerCard
from gossamer.model.job import JobPace

from .frontiers import Backends, candidate

NOW = 1_800_000_000.0


@pytest.fixture(params=Backends.UNSHARDED)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as opened:
        yield opened


def card(name: str, **fields: object) -> WorkerCard:
    usual = {"host": "here", "pid": 7, "version": "1.0", "started_at": NOW, "seen_at": NOW}
    return WorkerCard(name=name, **{**usual, **fields})


async def test_a_card_comes_back_as_it_was_entered(lab):
    entered = card(
        "here/7/1", job="books-1, news-2", state="draining", in_flight=3, done=40_000, cpu=0.75, memory=5_000_000_000,
        paces={"books-1": JobPace(600, 412, 60.0), "nëws-2": JobPace(1, 0, 4.5)},
    )  # fmt: skip
    await lab.workers.beat(entered)

    assert await lab.workers.workers() == [entered]


async def test_a_beat_renews_the_card_and_cards_are_listed_by_name(lab):
    await lab.workers.beat(card("b"))
    await lab.workers.beat(card("a"))
    await lab.workers.beat(card("b", seen_at=NOW + 5, done=9))

    assert await lab.workers.workers() == [card("a"), card("b", seen_at=NOW + 5, done=9)]


async def test_signing_off_removes_the_card_and_may_be_said_twice(lab):
    await lab.workers.beat(card("a"))
    await lab.workers.beat(card("b"))
    await lab.workers.sign_off("a")
    await lab.workers.sign_off("a")

    assert await lab.workers.workers() == [card("b")]


async def test_only_cards_older_than_the_moment_are_forgotten(lab):
    for name, seen_at in (("old", NOW - 1), ("edge", NOW), ("new", NOW + 1)):
        await lab.workers.beat(card(name, seen_at=seen_at))

    assert await lab.workers.forget(NOW) == 1
    assert [one.name for one in await lab.workers.workers()] == ["edge", "new"]
    assert await lab.workers.forget(NOW) == 0


async def test_a_worker_learns_with_its_next_beat_that_it_is_to_drain_and_until_it_signs_off(lab):
    assert not await lab.workers.beat(card("a"))
    assert not await lab.workers.beat(card("b"))

    assert await lab.workers.ask_to_drain("a")

    assert await lab.workers.beat(card("a", done=1))
    assert await lab.workers.beat(card("a", done=2))
    assert not await lab.workers.beat(card("b"))
    await lab.workers.sign_off("a")
    assert not await lab.workers.beat(card("a"))


async def test_a_worker_learns_that_it_is_to_restart_and_a_later_wish_takes_the_place_of_an_earlier(lab):
    await lab.workers.beat(card("a"))
    await lab.workers.ask_to_drain("a", restart=True)
    assert await lab.workers.beat(card("a")) == "restart"
    await lab.workers.ask_to_drain("a")
    assert await lab.workers.beat(card("a", frozen="b/1/1,c/2/2")) == "drain"
    assert [one.frozen for one in await lab.workers.workers()] == ["b/1/1,c/2/2"]


async def test_a_worker_that_is_not_there_cannot_be_asked_to_drain(lab):
    await lab.workers.beat(card("a"))
    await lab.workers.ask_to_drain("a")
    await lab.workers.forget(NOW + 1)

    assert not await lab.workers.ask_to_drain("a")
    assert not await lab.workers.beat(card("a"))


async def test_an_empty_book_has_no_cards_and_nothing_to_forget(lab):
    assert await lab.workers.workers() == []
    assert await lab.workers.forget(NOW) == 0


async def test_running_jobs_are_those_that_did_not_end_oldest_first(lab):
    assert await lab.jobs.running_jobs() == []
    first, second, third = await lab.job("a", depth=3, limit=10), await lab.job("b"), await lab.job("c")
    await lab.jobs.close_job(second.id, "done")

    assert await lab.jobs.running_jobs() == [first, third]


async def test_every_worker_learns_the_depth_and_the_limit_that_a_job_was_opened_with(lab):
    opened = await lab.job("a", depth=3, limit=10)
    assert (opened.depth, opened.limit) == (3, 10)

    # The command that goes on with it may change its mind.
    await lab.job("a", depth=5, limit=20)
    [found] = await lab.jobs.running_jobs()
    assert (found.id, found.depth, found.limit) == (opened.id, 5, 20)
    assert await lab.jobs.job(opened.id) == found


async def test_a_replaced_job_does_not_run_any_more(lab):
    await lab.job("a")
    fresh = await lab.job("a", fresh=True)

    assert await lab.jobs.running_jobs() == [fresh]


async def test_a_job_runs_again_when_its_dead_are_replayed_even_beside_a_newer_one_of_its_name(lab):
    # given a job that ended with a dead letter, and a newer one of that name
    old = await lab.job("a")
    await lab.frontier.add(old.id, [candidate("http://x.example/")])
    await lab.jobs.seal_seeds(old.id)
    [lease] = (await lab.frontier.lease(old.id, "w", 1)).leases
    await lab.frontier.bury(lease, "parse", "no")
    await lab.jobs.close_job(old.id, "done")
    new = await lab.job("a")
    assert [job.id for job in await lab.jobs.running_jobs()] == [new.id]

    # when the letter is put back
    await lab.queue.replay(DeadFilter(job=old.id))

    # then both run, until each is closed
    assert [job.id for job in await lab.jobs.running_jobs()] == [old.id, new.id]
    await lab.jobs.close_job(old.id, "limit")
    assert [job.id for job in await lab.jobs.running_jobs()] == [new.id]
    await lab.jobs.close_job(new.id, "done")
    assert await lab.jobs.running_jobs() == []

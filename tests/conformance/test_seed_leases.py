"""Who reads the source of a job: one at a time, and another one when that one dies. Each test runs on each backend."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.frontier.contract import SeedFindings
from tests.conformance.frontiers import Backends

WHILE = timedelta(seconds=15)


@pytest.fixture(params=Backends.UNSHARDED)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def test_one_reads_and_the_others_wait_until_it_rests(lab):
    assert await lab.seeds.claim("books-1", "host/1", WHILE)
    assert await lab.seeds.claim("books-1", "host/1", WHILE)
    async with lab.again() as elsewhere:
        assert not await elsewhere.seeds.claim("books-1", "host/2", WHILE)
        assert await elsewhere.seeds.claim("books-2", "host/2", WHILE)
        await elsewhere.seeds.release("books-1", "host/2")  # which was never its own
        assert not await elsewhere.seeds.claim("books-1", "host/2", WHILE)
        await lab.seeds.release("books-1", "host/1")
        assert await elsewhere.seeds.claim("books-1", "host/2", WHILE)
    assert not await lab.seeds.claim("books-1", "host/1", WHILE)


async def test_the_next_one_reads_when_the_time_is_over(lab):
    assert await lab.seeds.claim("books-1", "host/1", WHILE)
    lab.clock.advance(14.9)
    assert not await lab.seeds.claim("books-1", "host/2", WHILE)
    lab.clock.advance(0.2)
    assert await lab.seeds.claim("books-1", "host/2", WHILE)
    assert not await lab.seeds.claim("books-1", "host/1", WHILE)


async def test_whoever_has_it_now_can_be_told(lab):
    assert await lab.seeds.holder("books-1") is None
    await lab.seeds.note("books-1", ["a.test"], "A trouble.")
    assert await lab.seeds.holder("books-1") is None
    assert await lab.seeds.claim("books-1", "host/1", WHILE)
    async with lab.again() as elsewhere:
        assert await elsewhere.seeds.holder("books-1") == "host/1"
        await lab.seeds.release("books-1", "host/1")
        assert await elsewhere.seeds.holder("books-1") is None
    assert await lab.seeds.claim("books-1", "host/2", WHILE)
    lab.clock.advance(15.1)
    assert await lab.seeds.holder("books-1") is None


async def test_a_shorter_claim_does_not_take_the_place_of_a_longer_one(lab):
    assert await lab.seeds.claim("@a.test", "host/1", WHILE)
    assert not await lab.seeds.claim("@a.test", "host/2", WHILE / 10)
    lab.clock.advance(14)
    assert not await lab.seeds.claim("@a.test", "host/2", WHILE / 10)
    lab.clock.advance(2)
    assert await lab.seeds.claim("@a.test", "host/2", WHILE / 10)


async def test_an_end_that_was_written_by_a_clock_that_was_ahead_is_over(lab):
    lab.clock.advance(86_400)
    assert await lab.seeds.claim("books-1", "host/1", WHILE)
    lab.clock.advance(-86_400)
    assert await lab.seeds.claim("books-1", "host/2", WHILE)


async def test_what_was_found_is_there_for_all_and_the_first_trouble_stays(lab):
    assert await lab.seeds.findings("books-1") == SeedFindings()
    await lab.seeds.note("books-1", ["a.test", "b.test"])
    await lab.seeds.note("books-1", [], "The first.")
    await lab.seeds.note("books-1", ["ü.test"], "The second.")
    await lab.seeds.claim("books-1", "host/1", WHILE)
    async with lab.again() as elsewhere:
        assert await elsewhere.seeds.findings("books-1") == SeedFindings(
            frozenset({"a.test", "b.test", "ü.test"}), "The first."
        )
    assert await lab.seeds.findings("books-2") == SeedFindings()


async def test_a_list_of_many_sites_is_found_whole(lab):
    sites = frozenset(f"s{number}.test" for number in range(250))
    await lab.seeds.note("books-1", sites, "One was away.")
    assert await lab.seeds.findings("books-1") == SeedFindings(sites, "One was away.")

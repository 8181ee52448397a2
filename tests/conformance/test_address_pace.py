"""The pace of an address that many sites share: one for all processes. Each test runs on each backend."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.conformance.frontiers import Backends

INTERVAL, LONGEST = timedelta(seconds=2), timedelta(seconds=5)


@pytest.fixture(params=Backends.UNSHARDED)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def waits(lab, *, address="192.0.2.7", times=1):
    turns = [await lab.addresses.take_turn(address, INTERVAL, LONGEST) for _ in range(times)]
    return [round(turn.total_seconds(), 3) for turn in turns]


async def test_turns_are_an_interval_apart_for_all_processes(lab):
    async with lab.again() as elsewhere:
        assert await waits(lab) == [0]
        assert await waits(elsewhere) == [2]
        assert await waits(lab) == [4]
        assert await waits(lab, address="192.0.2.8") == [0]
        lab.clock.advance(5)
        assert await waits(elsewhere) == [1]


async def test_a_turn_that_is_too_far_away_is_not_taken(lab):
    assert await waits(lab, times=5) == [0, 2, 4, 6, 6]
    lab.clock.advance(1)
    assert await waits(lab, times=2) == [5, 7]


async def test_an_address_that_was_left_alone_has_no_turns_saved_up(lab):
    assert await waits(lab) == [0]
    lab.clock.advance(3600)
    assert await waits(lab, times=2) == [0, 2]


async def test_a_turn_that_was_written_by_a_clock_that_was_ahead_does_not_count(lab):
    lab.clock.advance(86_400)
    assert await waits(lab) == [0]
    lab.clock.advance(-86_400)
    assert await waits(lab, times=2) == [0, 2]

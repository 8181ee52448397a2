"""Slots: a site that answers late does not keep the places of the others."""

from __future__ import annotations

import asyncio

from gossamer.crawl import slots as lanes
from gossamer.crawl.slots import Slots
from tests.patience import PATIENCE


async def until(reached) -> None:
    async with asyncio.timeout(PATIENCE):
        while not reached():
            await asyncio.sleep(0.001)


async def test_a_late_journey_steps_aside_and_its_slot_is_free_again(monkeypatch):
    monkeypatch.setattr(lanes, "SLOW_AFTER", lanes.SLOW_AFTER / 100)
    slots = Slots(2)
    late = slots.take("slow.test")
    assert slots.free == 1
    await until(lambda: slots.free == 2)
    assert slots.busy == 1
    late.leave()
    assert (slots.free, slots.busy) == (2, 0)


async def test_a_site_that_was_late_steps_aside_at_once_until_it_is_quick_again(monkeypatch):
    monkeypatch.setattr(lanes, "SLOW_AFTER", lanes.SLOW_AFTER / 100)
    slots = Slots(2)
    late = slots.take("slow.test")
    await until(lambda: slots.free == 2)
    late.leave()

    again = slots.take("slow.test")
    assert slots.free == 2
    again.leave()
    healed = slots.take("slow.test")
    assert slots.free == 1
    healed.leave()


async def test_the_slow_lane_is_bounded(monkeypatch):
    monkeypatch.setattr(lanes, "SLOW_AFTER", lanes.SLOW_AFTER / 100)
    slots = Slots(2)
    for _ in range(2):
        slots.take("slow.test")
    await until(lambda: slots.free == 2)
    for _ in range(2):
        slots.take("slow.test")
    for _ in range(30):
        await asyncio.sleep(0.001)
    assert (slots.free, slots.busy) == (0, 4)

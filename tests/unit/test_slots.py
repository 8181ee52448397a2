"""Slots: a site that answers late does not keep the places of the others."""

from __future__ import annotations

import asyncio

from gossamer.crawl import slots as lanes
from gossamer.crawl.slots import Slots
from tests.patience import MOMENT, until


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
    await asyncio.sleep(MOMENT)
    assert (slots.free, slots.busy) == (0, 4)


async def test_a_journey_that_settles_leaves_its_slot_to_another():
    slots = Slots(2)
    first, second = slots.take("a.test"), slots.take("a.test")
    slots.changed.clear()
    first.settle()
    assert slots.changed.is_set()
    assert (slots.free, slots.busy) == (1, 2)
    third = slots.take("a.test")
    for one in (first, second, third):
        one.leave()
    assert (slots.free, slots.busy) == (2, 0)


async def test_journeys_that_cannot_settle_do_not_pile_up():
    slots = Slots(2)
    for _ in range(4):
        slots.take("a.test").settle()  # the state is away
    assert (slots.free, slots.busy) == (0, 4)


async def test_a_late_journey_settles_out_of_the_slow_lane(monkeypatch):
    monkeypatch.setattr(lanes, "SLOW_AFTER", lanes.SLOW_AFTER / 100)
    slots = Slots(1)
    late = slots.take("slow.test")
    await until(lambda: slots.free == 1)
    late.settle()
    slots.take("slow.test")
    await until(lambda: slots.free == 1)  # there is room in the slow lane again
    late.leave()
    assert slots.busy == 1

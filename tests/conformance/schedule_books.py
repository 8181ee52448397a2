"""A schedule that says much, and what the suites of schedules and ticks do with it."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from gossamer.frontier.contract import JobTerms
from gossamer.model.schedule import Overlap, Schedule, ScheduleProgress, Settled

TERM = timedelta(seconds=5)
DUE = 1_767_225_600.123456

PRICES = Schedule(
    name="prices of ☂",
    spider="shop",
    trigger="0 3 * * *",
    zone="Europe/Berlin",
    source='{"sitemap":"https://shop.test/sitemap.xml"}',
    priority=5,
    min_age=timedelta(hours=1.5),
    windows="22:00-06:00 Europe/Berlin",
    overlap=Overlap.REPLACE,
    limit=1000,
)


async def written(lab, schedule=PRICES):
    assert await lab.schedules.put(schedule, origin="added")
    return await progress_of(lab, schedule.name)


async def progress_of(lab, name=PRICES.name) -> ScheduleProgress:
    (found,) = [one for one in await lab.schedules.schedules() if one.schedule.name == name]
    return found


def fired(before: ScheduleProgress, due: float = DUE) -> ScheduleProgress:
    return msgspec.structs.replace(before, last_due=due, runs=before.runs + 1)


def opening(before: ScheduleProgress, due: float = DUE) -> tuple[str, JobTerms]:
    name = before.schedule.name
    return name, JobTerms(schedule=name, due=due, spider=before.schedule.spider)


async def settled(lab, term, before) -> Settled:
    done = await lab.ticks.settle(term, before, fired(before), opening(before))
    assert done is not None
    return done


async def spoil(lab, name: str, old: str, new: str) -> None:
    """Write another text into the book, as another version of Gossamer might have."""
    if hasattr(lab.schedules, "_database"):
        await lab.schedules._database.write(
            lambda c: (
                c.execute(
                    "UPDATE schedules SET progress = replace(progress, ?, ?) WHERE name = ?", (old, new, name)
                ).rowcount
            )
        )
        return
    server, key = lab.schedules._server, lab.schedules._schedules
    text = await server.call("HGET", key, name)
    await server.call("HSET", key, name, text.replace(old.encode(), new.encode()))

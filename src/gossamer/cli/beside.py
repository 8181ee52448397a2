"""The schedules of a project inside of `gossamer crawl`: on one machine nothing else has to run for them.

As long as the crawl lasts, runs that are due are begun and worked on by the same process, with half of its concurrency.
What is not done when the crawl ends waits for the next `crawl`, `worker` or `up`. A fleet has schedulers and workers of
its own: with a state on a server nothing is done here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from ..backends.opening import is_local
from ..backends.processes import hand_name
from ..errors import GossamerError
from ..model import events
from ..model.job import Job
from ..project.open import Project
from ..project.worker_pool import WorkerPool
from ..schedule.leader import Scheduler
from ..settings import Settings
from .scheduler import Bulletin


class Aside(Bulletin):
    """What is said of schedules while a crawl shows how far it is."""

    def emit(self, event: events.Event) -> None:
        match event:
            case events.Leading():  # nobody asked who does
                return
            case events.JobEnded() | events.JobLeft():
                self._say(f"{event.job} ended: {event.ending}")
            case _:
                super().emit(event)


BESIDE = 0  # the hand of the crawl's process that works for schedules; a station numbers its own from 1


async def schedules_of_laptop(project: Project) -> int:
    """How many schedules a crawl here has to see to."""
    if not is_local(project.settings, "state"):
        return 0
    return len({*project.settings.schedules, *(one.schedule.name for one in await project.schedules.schedules())})


@asynccontextmanager
async def schedules_beside(project: Project, plain: Settings, sink: events.EventSink) -> AsyncIterator[None]:
    """Run them as long as the block lasts; what is in hand then is finished. `plain` are the settings without the
    flags of the crawl, which are not meant for them."""
    half = msgspec.structs.replace(plain.crawl, concurrency=max(1, plain.crawl.concurrency // 2))
    settings = msgspec.structs.replace(plain, crawl=half)
    apart = msgspec.structs.replace(project, settings=settings, worker=hand_name(project.worker, BESIDE))
    scheduler, station = Scheduler(apart, sink), WorkerPool(apart, sink, takes=_is_run)
    tasks = [
        asyncio.create_task(_told(project, sink, one.run()), name=f"schedules: {type(one).__name__}")
        for one in (scheduler, station)
    ]
    try:
        yield
    finally:
        scheduler.drain()
        station.drain()
        await asyncio.gather(*tasks)


def _is_run(job: Job) -> bool:
    return bool(job.schedule)


async def _told(project: Project, sink: events.EventSink, work: Coroutine[Any, Any, None]) -> None:
    """Trouble with schedules is no trouble of the crawl."""
    try:
        await work
    except GossamerError as error:
        sink.emit(events.Trouble(at=project.clock.now(), stage="schedules", message=str(error)))

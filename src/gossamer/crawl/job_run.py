"""A job, worked on until nothing is left of it: first of its seeds, then of what its spider still knows.

Only spiders that listen to Scrapy's `spider_idle` know more; any worker that finds nothing left asks its own.
"""

from __future__ import annotations

from ..frontier.admission import Scope
from ..model.events import EventSink
from ..model.job import Job, JobState
from ..parse.spider import Spider
from .seed_context import SeedContext
from .seeding import LOOK, admission_of, offer, work_off_seeds
from .worker import Worker


async def work_off(
    context: SeedContext,
    spider: Spider,
    job: Job,
    worker: Worker,
    scope: Scope,
    sites: set[str],
    events: EventSink,
) -> bool:
    """Work on a job until nothing is left of it (True), or the worker is drained (False). A spider that may know more
    is asked when nothing is left, as long as the job may go on. Raises Misconfigured and Transient."""
    drained = await work_off_seeds(context, spider, job, worker, scope, sites, events)
    if type(spider)._more is Spider._more:
        return drained
    admission = admission_of(context, spider, scope)
    while drained and await _may_go_on(context, job.id):
        more = await spider._more()
        if more is None:
            break
        if not more:
            await context.clock.sleep(LOOK.total_seconds())
        await offer(context, job.id, admission.judge(more), context.settings.crawl.max_queued, events)
        drained = await worker.run()
    return drained


async def _may_go_on(context: SeedContext, id: str) -> bool:
    """Does the job run, and within its limit?"""
    job = await context.state.jobs.job(id)
    if job is None or job.state is not JobState.RUNNING or job.stopped:
        return False
    return job.limit is None or (await context.state.jobs.counts(id)).settled < job.limit

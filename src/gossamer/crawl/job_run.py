"""Works on a job until nothing is left: first on its seeds, then on requests that its spider still has.

Only spiders that listen to Scrapy's `spider_idle` have more; any worker that finds the job empty asks its own spider.
"""

from __future__ import annotations

from ..frontier.admission import LinkScope
from ..model.events import EventSink
from ..model.job import Job, JobState
from ..parse.spider import Spider
from .seed_context import SeedContext
from .seeding import LOOK, admission_of, offer, run_with_seeds
from .worker import Worker


async def run_job(
    context: SeedContext,
    spider: Spider,
    job: Job,
    worker: Worker,
    scope: LinkScope,
    sites: set[str],
    events: EventSink,
) -> bool:
    """Work on a job until nothing is left (True) or the worker is drained (False). When the job is empty and may go on,
    a spider that may have more requests is asked for them. Raises Misconfigured and Transient."""
    drained = await run_with_seeds(context, spider, job, worker, scope, sites, events)
    if type(spider)._more is Spider._more:
        return drained
    admission = admission_of(context.rules, spider, scope, named=True)
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
    """Is the job running, and below its limit?"""
    job = await context.state.jobs.job(id)
    if job is None or job.state is not JobState.RUNNING or job.stopped:
        return False
    return job.limit is None or (await context.state.jobs.counts(id)).towards_limit < job.limit

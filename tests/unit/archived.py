"""Pages that were crawled once and lie in the archive, put there through the contracts: no crawl is needed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gossamer.model.job import JobTerms
from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import Attempt, PageFacts, PageResult
from gossamer.model.task import Lease
from gossamer.model.url import fingerprint, site_of
from gossamer.project.open import Project
from gossamer.store.page_format import hash_of_body
from tests.unit.commandline import candidate

SHOP = "https://shop.example"
WORKER = "elsewhere/77/1"


def crawled(
    spider: str, pages: dict[str, str], *, name: str = "", depth: int = 0, kind: str = "parse", broken: bool = False
) -> Callable[[Project], Awaitable[None]]:
    """A job of that spider that has fetched these pages, path and HTML; `broken`: they are dead letters."""

    async def fill(system: Project) -> None:
        job, _ = await system.state.jobs.open_job(name or spider, JobTerms(), fresh=True)
        await system.state.frontier.add(job.id, [candidate(f"{SHOP}{path}", depth=depth) for path in pages])
        leases = (await system.state.frontier.lease(job.id, WORKER, len(pages))).leases
        while len(leases) < len(pages):
            leases += (await system.state.frontier.lease(job.id, WORKER, len(pages))).leases
        for lease in leases:
            await system.records.save([await _visit(system, lease, spider, kind, pages, broken)])
            if broken:
                await system.state.frontier.bury(lease, "parse", "The first error")

    return fill


async def _visit(
    system: Project, lease: Lease, spider: str, kind: str, pages: dict[str, str], broken: bool
) -> PageResult:
    task = lease.task
    html = pages[task.url.removeprefix(SHOP)]
    return await archived_visit(system, task.url, task.job, spider, kind, html, depth=task.depth, broken=broken)


async def archived_visit(
    system: Project, url: str, job: str, spider: str, kind: str, html: str, *, depth: int = 0, broken: bool = False
) -> PageResult:
    """A visit whose raw page is in the archive; it is to be saved."""
    now = system.clock.now()
    snapshot = Snapshot(
        url=url, requested_url=url, status=200, headers=Headers([("content-type", "text/html")]),
        body=html.encode(), fetched_at=now, kind=kind, job=job, depth=depth,
    )  # fmt: skip
    (ref,) = await system.archive.put([snapshot])
    failure = "parse" if broken else ""
    attempt = Attempt(
        at=now, job=job, url=url, fingerprint=fingerprint(url), site=site_of(url), worker=WORKER, attempt=1,
        outcome="dead" if broken else "done", status=200, reason=failure,
    )  # fmt: skip
    facts = PageFacts(
        fingerprint=fingerprint(url), url=url, job=job, fetched_at=now, status=200, archive_ref=ref,
        body_hash=hash_of_body(snapshot.body), spider=spider, failure=failure,
    )  # fmt: skip
    return PageResult(attempt=attempt, page=facts)

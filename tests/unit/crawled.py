"""A project in which a crawl stands half-way: one URL in every state, filled through the contracts."""

from __future__ import annotations

from datetime import timedelta

from gossamer.frontier.contract import JobTerms
from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import Attempt, PageFacts, PageResult, Record
from gossamer.model.task import DropReason, Lease, UrlState
from gossamer.model.url import fingerprint, site_of
from gossamer.project.open import Project
from tests.unit.commandline import candidate

SHOP = "https://shop.example"
SLOW = "https://slow.example"
NOW = timedelta(0)
WORKER = "elsewhere/77/1"
BODY = b"<h1>Half a page</h1>\xff"
TRACEBACK = "Book: 1 field is not as declared\n\nTraceback\n  File \"books.py\", line 7\nKeyError: 'price'"


async def crawl_half(project: Project) -> None:
    """One job, `books-1`. See the paths for what became of each."""
    job, _ = await project.state.jobs.open_job("books", JobTerms(max_attempts=4), fresh=False)
    await project.state.frontier.add(job.id, [candidate(f"{SHOP}/")])
    (home,) = (await project.state.frontier.lease(job.id, WORKER, 1)).leases
    paths = ("done", "moved", "same", "secret", "flaky", "stopped", "held", "gone", "broken")
    found = [candidate(f"{SHOP}/{path}", depth=1, priority=2) for path in paths]
    found.append(candidate("https://elsewhere.example/", depth=1, dropped=DropReason.SCOPE))
    found.append(candidate(f"{SHOP}/deep", depth=1, dropped=DropReason.DEPTH))
    found += [candidate(f"{SLOW}/{n}", depth=1) for n in range(4)]
    await project.state.frontier.complete(home, UrlState.DONE, discovered=found, duplicates=3)
    leases = {lease.task.url: lease for lease in (await project.state.frontier.lease(job.id, WORKER, 50)).leases}
    await _settle(project, leases)
    await _keep(project, job.id)


async def _settle(project: Project, leases: dict[str, Lease]) -> None:
    frontier = project.state.frontier
    await frontier.complete(leases[f"{SHOP}/done"], UrlState.DONE)
    await frontier.complete(leases[f"{SHOP}/moved"], UrlState.DONE, redirect=f"{SHOP}/done")
    await frontier.complete(leases[f"{SHOP}/same"], UrlState.UNCHANGED)
    await frontier.complete(leases[f"{SHOP}/secret"], UrlState.DROPPED, "robots")
    await frontier.retry(leases[f"{SHOP}/flaky"], timedelta(minutes=10), "timeout")
    await frontier.release(leases[f"{SHOP}/stopped"], timedelta(minutes=10), "the worker stopped")
    await frontier.bury(leases[f"{SHOP}/gone"], "http-404", f"{SHOP}/gone answered 404.")
    await frontier.bury(leases[f"{SHOP}/broken"], "parse", TRACEBACK)
    await frontier.complete(leases[f"{SLOW}/0"], UrlState.DONE, paced_ahead=timedelta(minutes=1))


async def _keep(project: Project, job: str) -> None:
    now = project.clock.now()
    (ref,) = await project.archive.put(
        [
            Snapshot(
                url=f"{SHOP}/broken", requested_url=f"{SHOP}/broken", status=200, headers=Headers(), body=BODY,
                fetched_at=now, job=job,
            )
        ]
    )  # fmt: skip
    record = Record(
        type="Book", site="shop.example", key="1", url=f"{SHOP}/done", job=job, spider="books",
        data='{"title": "Dune", "price": 9.5}', content_hash=b"1" * 16, scraped_at=now,
    )  # fmt: skip
    await project.records.save(
        [
            PageResult(attempt=attempt(job, "/done", now, "done", status=200), records=(record,)),
            PageResult(attempt=attempt(job, "/flaky", now, "retry", reason="timeout", error="no answer in 30 s")),
            PageResult(
                attempt=attempt(job, "/broken", now, "dead", status=200, reason="parse", error="Book: no title"),
                page=PageFacts(
                    fingerprint=fingerprint(f"{SHOP}/broken"), url=f"{SHOP}/broken", job=job, fetched_at=now,
                    status=200, archive_ref=ref,
                ),
            ),
        ]
    )  # fmt: skip


def attempt(job: str, path: str, at: float, outcome: str, **facts: object) -> Attempt:
    url = f"{SHOP}{path}"
    return Attempt(
        at=at, job=job, url=url, fingerprint=fingerprint(url), site=site_of(url), worker=WORKER, attempt=1,
        outcome=outcome, bytes=2048, latency=0.25, **facts,
    )  # type: ignore[arg-type]  # fmt: skip

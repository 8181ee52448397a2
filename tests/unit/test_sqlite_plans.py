"""What a lease costs does not grow with the number of sites, whatever was crawled before."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

from gossamer.backends.sqlite.jobs import SqliteJobs
from gossamer.model.task import UrlState
from tests.conformance.frontiers import Lab, candidate, sqlite_lab

LOOKS_AT_ALL = re.compile(r"SCAN (queues|urls)|SEARCH queues USING PRIMARY KEY \(job=\?\)|.*urls_identity \(job=\?\)")


async def crawl_all(lab: Lab, name: str) -> str:
    job = await lab.job(name)
    await lab.frontier.add(job.id, [candidate(f"https://shop-{number}.test/") for number in range(2)])
    for lease in (await lab.frontier.lease(job.id, "w", 9)).leases:
        await lab.frontier.complete(lease, UrlState.DONE, "")
    return job.id


async def test_a_small_crawl_does_not_slow_down_the_next_one(tmp_path):
    # Given a file that was closed as earlier versions did: with a count of the few rows it had
    async with sqlite_lab(tmp_path) as lab:
        await crawl_all(lab, "small")
    with closing(sqlite3.connect(tmp_path / "state.db")) as file:
        file.execute("ANALYZE")
    # When the next crawl is done, and cancelled at its end
    statements: list[str] = []
    async with sqlite_lab(tmp_path) as lab:
        assert isinstance(lab.jobs, SqliteJobs)
        writer = lab.jobs.database._writer
        writer.set_trace_callback(statements.append)
        job = await crawl_all(lab, "large")
        await lab.control.cancel_job(job)
        writer.set_trace_callback(None)
        # Then none of its statements looks at every site or every URL of its job
        for statement in {text for text in statements if text.lstrip().startswith(("SELECT", "UPDATE", "WITH"))}:
            plan = [detail for *_, detail in writer.execute(f"EXPLAIN QUERY PLAN {statement}")]
            assert not any(map(LOOKS_AT_ALL.fullmatch, plan)), statement
    assert any("queues" in text for text in statements)

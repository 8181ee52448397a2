"""A page that is done twice in one job says so in the log of attempts, and only the second time."""

from __future__ import annotations

import msgspec
import pytest

from gossamer.errors import LeaseLost
from gossamer.fetch.contract import Headers, Response
from gossamer.fetch.fetcher import NotModified
from gossamer.model.record import PageFacts
from gossamer.store.record_rules import REPEAT
from tests.conformance.frontiers import LEASE, candidate
from tests.unit.test_worker import PAGE, Road
from tests.unit.test_worker import bench as bench  # a fixture


class Unchanged(Road):
    async def fetch(self, request, gate, route, **watching):
        await self._send(request, gate)
        response = Response(url=request.url, status=304, headers=Headers(()), body=b"", seconds=0.1, wire_bytes=9)
        return NotModified(response=response, fetched_at=0.0)


async def reasons(bench):
    return [attempt.reason for attempt in await bench.records.attempts(candidate(PAGE).fingerprint)]


@pytest.fixture
async def queued(bench):
    await bench.lab.frontier.add(bench.job, [candidate(PAGE)])
    await bench.lab.jobs.seal_seeds(bench.job)
    return bench


async def test_a_page_whose_first_settlement_was_lost_is_a_repeat_the_second_time(queued):
    # given a page that was stored, and not settled
    async def lost(*_, **__):
        queued.line.faults["lease"] = LeaseLost("The worker ends here.")
        raise LeaseLost("The lease is over.")

    queued.line.complete = lost
    with pytest.raises(LeaseLost):
        await queued.worker(Unchanged()).run()
    assert await reasons(queued) == [""]

    # when it is handed out again
    del queued.line.complete
    queued.line.faults.clear()
    queued.lab.clock.advance(LEASE.total_seconds() + 1)
    assert await queued.worker(Unchanged()).run()

    # then
    assert sorted(await reasons(queued)) == ["", REPEAT]


@pytest.mark.parametrize(
    ("change", "reason"),
    [({}, REPEAT), ({"job": "another-1"}, ""), ({"failure": "http-404"}, ""), ({"fetched_at": 1.0}, "")],
    ids=["done in this job", "in another job", "in vain", "before it was queued again"],
)
async def test_a_page_that_the_state_has_forgotten_is_a_repeat(queued, change, reason):
    # given what the record store knows of the page
    facts = PageFacts(
        fingerprint=candidate(PAGE).fingerprint,
        url=PAGE,
        job=queued.job,
        fetched_at=queued.lab.clock.now() + 5,
        status=200,
    )

    async def known(fingerprints):
        return {facts.fingerprint: msgspec.structs.replace(facts, **change)}

    records = queued.records
    queued.records = type("Known", (), {"facts": staticmethod(known)})()
    assert await queued.worker(Unchanged()).run()

    queued.records = records
    assert await reasons(queued) == [reason]

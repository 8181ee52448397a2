"""What a worker does with the pages of a site that goes away, that never was there, that asks for more space."""

from __future__ import annotations

import asyncio
import errno
from datetime import timedelta

import pytest

from gossamer.errors import ConnectFailed, DnsFailed, ServerFailed
from gossamer.fetch.addresses import AddressGuard, GuardedResolver
from gossamer.fetch.browser.guard_dialer import Dialer
from gossamer.fetch.contract import Headers, Response
from gossamer.fetch.fetcher import NotModified
from gossamer.fetch.http_errors import no_file_left, translated
from gossamer.frontier.away import GIVEN_UP, QUIET
from gossamer.frontier.contract import DeadFilter
from gossamer.frontier.retry import PROBES, is_unreachable
from gossamer.model.events import Buried, Released
from tests.conformance.frontiers import candidate
from tests.patience import LIMITS
from tests.unit.test_worker import Road
from tests.unit.test_worker import bench as bench  # a fixture

PAGES = [f"https://a.example/{n}" for n in range(12)]


class Server(Road):
    """Answers unless it has a `fault`. `crawl_delay` is what its robots.txt says."""

    crawl_delay: timedelta | None = None
    most = 0  # requests under way at once

    async def fetch(self, request, gate, route, **watching):
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            (await gate(self.crawl_delay)).close()
            await self._send(request, gate)
            await asyncio.sleep(0)
            if self.fault is not None:
                raise self.fault
        finally:
            self.inside -= 1
        response = Response(url=request.url, status=304, headers=Headers(()), body=b"", seconds=0.1, wire_bytes=9)
        return NotModified(response=response, fetched_at=0.0)


@pytest.fixture
async def queued(bench):
    await bench.lab.frontier.add(bench.job, [candidate(page) for page in PAGES])
    await bench.lab.jobs.seal_seeds(bench.job)
    return bench


async def test_an_outage_costs_no_page_and_no_tries_but_that_of_the_first_failures(queued):
    # given a site that has answered, and is gone then
    clock, server = queued.lab.clock, Server()
    running = asyncio.create_task(queued.worker(server, concurrency=1).run())
    await queued.until(lambda: len(server.sent) >= 2)
    server.fault = ConnectFailed("Nobody listens.")
    clock.advance(QUIET.total_seconds())
    await queued.until(lambda: bool(queued.ears.of(Released)), step=0.05)

    # when it is away for far longer than four tries take
    server.sent.clear()
    began = clock.now()
    await queued.until(lambda: clock.now() > began + 300, step=0.5)
    assert len(server.sent) <= 12  # after 1, 2, 4 ... 60, 60 seconds

    # then everything goes on when it is back
    server.fault = None
    await queued.until(running.done, step=0.5)
    counts = await queued.lab.jobs.counts(queued.job)
    assert (counts.unchanged, counts.dead) == (len(PAGES), 0)
    # Those of the first two seconds, when the site might still have been there: a page comes back twice at most.
    assert counts.retries <= 3 * len(PAGES)


async def test_a_site_that_is_away_is_not_back_with_a_failure_of_our_own_side(queued):
    # given a site that has answered, and is gone then
    server = Server()
    running = asyncio.create_task(queued.worker(server, concurrency=4).run())
    await queued.until(lambda: len(server.sent) >= 2)
    server.fault = ConnectFailed("Nobody listens.")
    queued.lab.clock.advance(QUIET.total_seconds())
    await queued.until(lambda: bool(queued.ears.of(Released)) and not server.inside, step=0.05)

    # when there is no file left for a connection, then pages are tried one at a time still
    server.sent.clear()
    server.most, server.fault = 0, no_file_left("a.example")
    await queued.until(lambda: len(server.sent) >= 6, step=0.05)
    assert server.most == 1

    server.fault = None
    await queued.until(running.done, step=0.5)


async def test_a_name_that_does_not_exist_is_given_up_soon_and_its_other_pages_are_not_tried(queued):
    server = Server()
    server.fault = DnsFailed("There is no such name.")
    server.fault.first_contact = True

    # when it was given up
    running = asyncio.create_task(queued.worker(server, concurrency=4).run())
    await queued.until(lambda: bool(queued.ears.of(Buried)), step=0.05)
    assert len(server.sent) <= 4 + 4 + PROBES

    # then the others are, too, and at once when it is their turn
    tried = len(server.sent)
    queued.lab.clock.advance((GIVEN_UP / 2).total_seconds())
    await queued.until(running.done)
    assert len(server.sent) == tried
    letters = await queued.lab.queue.dead(DeadFilter())
    assert [letter.reason for letter in letters] == ["dns"] * len(PAGES)
    assert sum("not tried" in letter.message for letter in letters) == len(PAGES) - 1


async def test_a_worker_that_does_not_hold_the_site_gives_its_page_back_when_it_reads_the_crawl_delay(queued):
    # given a site without a rate, of which another worker has a page and knows the crawl-delay
    server, delay = Server(), timedelta(seconds=4)
    server.crawl_delay = delay
    (lease,) = (await queued.lab.frontier.lease(queued.job, "other", 1)).leases
    worker = queued.worker(server, concurrency=2)
    line = queued.line

    async def told_first(site, **terms):
        await queued.lab.frontier.slow_down(site, interval=delay, rest=timedelta(0), worker="other")
        return await queued.lab.frontier.slow_down(site, **terms)

    line.slow_down = told_first
    running = asyncio.create_task(worker.run())
    await queued.until(lambda: len(queued.ears.of(Released)) == 2)

    # then it sends nothing, and gets the site when the other has left it
    assert {event.reason for event in queued.ears.of(Released)} == {"pace"}
    assert server.sent == []
    await queued.lab.frontier.release(lease, timedelta(0), "done with it")
    del line.slow_down
    await queued.until(running.done, step=0.25)
    assert (await queued.lab.jobs.counts(queued.job)).unchanged == len(PAGES)


def test_a_site_that_was_away_is_not_back_with_the_error_of_a_gateway():
    gateway, own = ServerFailed("x", status=502), ServerFailed("x", status=500)
    assert is_unreachable(gateway, was_away=True)
    assert not is_unreachable(gateway, was_away=False)
    assert not is_unreachable(own, was_away=True)
    assert is_unreachable(ConnectFailed("x"), was_away=False)


def test_a_machine_without_a_file_left_does_not_take_the_site_for_away():
    failure = translated(OSError(errno.EMFILE, "Too many open files"), "http://a.example/", LIMITS)
    assert isinstance(failure, ConnectFailed)
    assert not is_unreachable(failure, was_away=False)
    assert is_unreachable(
        translated(OSError(errno.EHOSTUNREACH, "No route to host"), "http://a.example/", LIMITS), was_away=False
    )


async def test_neither_does_one_without_a_file_for_the_browser(monkeypatch):
    async def open_connection(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    guard = AddressGuard(allow_private=True)
    resolver = GuardedResolver(guard)
    try:
        with pytest.raises(ConnectFailed) as caught:
            await Dialer(guard, resolver).dial("127.0.0.1", 80, None, tunnel=True, within=timedelta(minutes=1))
    finally:
        await resolver.close()
    assert not is_unreachable(caught.value, was_away=False)

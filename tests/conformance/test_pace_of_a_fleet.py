"""The pace of a site, whatever happens to its workers: real queues, real pacers, processes that stop, die and lag.

Each worker has a clock of its own, which stands still while its process is stopped. What the site sees is the moment at
which a request passed its gate.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise

import pytest

from gossamer.clock import VirtualClock
from gossamer.crawl.held_lease import HeldLease
from gossamer.crawl.pacer import Pacer, TooEarly, with_margin
from gossamer.crawl.unleased_turn import AnnouncedGate, Announcement, take_turn
from gossamer.errors import LeaseLost
from gossamer.frontier.contract import LeftTurn
from gossamer.frontier.politeness import TURN_LOOK, SiteTerms
from gossamer.model.task import UrlState
from tests.conformance.frontiers import candidate

LEASE = timedelta(seconds=3)
INTERVAL = 0.1
SITES = tuple(f"{name}.test" for name in "abcde")
PAGES = 150
SLOTS = 6
USUAL = (*[0.01] * 12, *[0.05] * 6, 2.0)  # seconds until a page is there
SLOW = (0.01, 0.3, 0.3, 0.7, 2.0)  # most take longer than the interval


class Process:
    """A worker: leases, renews, sends and settles as the worker of a crawl does, with its own pacer."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.clock = VirtualClock(world.lab.clock.now())
        self.pacer = Pacer(self.clock)
        self.running = asyncio.Event()
        self.running.set()
        self.calls = 0  # to the queue, whose answers are on their way
        self.held: set[HeldLease] = set()
        self.reported: set[tuple[HeldLease, int]] = set()
        self.tasks = {asyncio.create_task(one()) for one in (self.lease, self.renew, self.report)}

    async def call(self, verb, *terms, **more):
        """A call to the queue. A stopped process sends nothing, and reads no answer; a busy one reads it late."""
        await self.running.wait()
        self.calls += 1
        try:
            answer = await getattr(self.world.lab.frontier, verb)(*terms, **more)
        finally:
            self.calls -= 1
            await self.running.wait()
        if self.world.chance.random() < (0.1 if verb == "lease" else 0.4):
            await self.clock.sleep(self.world.chance.uniform(0, 0.3))
        return answer

    async def lease(self) -> None:
        while True:
            asked_at = self.clock.monotonic()
            free = SLOTS - len(self.held)
            batch = await self.call("lease", self.world.job, self.name, free) if free else None
            for lease in batch.leases if batch is not None else ():
                held = HeldLease(lease, self.clock, LEASE, asked_at)
                held.turn = self.pacer.enter(lease)
                self.held.add(held)
                self.tasks.add(asyncio.create_task(self.take(held)))
            if batch is None or not batch.leases:
                wait = batch.wait.total_seconds() if batch is not None and batch.wait is not None else 0.02
                await self.clock.sleep(min(max(wait, 0.001), 0.25))

    async def renew(self) -> None:
        while True:
            await self.clock.sleep(LEASE.total_seconds() / 3)
            asked_at, held = self.clock.monotonic(), list(self.held)
            lost = await self.call("renew", [one.lease for one in held]) if held else ()
            for one in held:
                one.lose() if one.lease in lost else one.prolong(asked_at)

    async def report(self) -> None:
        """Report the turns that are over; one whose report failed or got lost is never reported again."""
        while True:
            await self.clock.sleep(TURN_LOOK.total_seconds())
            now = self.clock.monotonic()
            over = [one for one in self.held if (one, one.turn_number) not in self.reported and one.end_turn(now)]
            if over:
                self.reported |= {(one, one.turn_number) for one in over}
                turns = [LeftTurn(one.lease, one.turn_number, self.pacer.ahead(one.lease.task.site)) for one in over]
                await self.clock.sleep(self.world.chance.choice((0.0, 0.0, 0.0, 0.2)))  # the report lies about
                await self.call("left", turns)
                self.world.reports += len(over)

    async def take(self, held: HeldLease) -> None:
        site, chance = held.lease.task.site, self.world.chance
        try:
            with held:
                await self.clock.sleep(chance.choice((0.0, 0.0, 0.0, 0.03)))
                await self.request(held)
                while chance.random() < self.world.repeats:  # a redirect, a login, another route
                    await self.clock.sleep(chance.choice((0.0, 0.0, 0.1, 0.4)))
                    await self.request(held)
                if chance.random() < 0.02:
                    self.pacer.rest(site, timedelta(seconds=0.5))
                    await self.call("slow_down", site, interval=None, rest=timedelta(seconds=0.5), worker=self.name)
            await self.call("complete", held.lease, UrlState.DONE, paced_ahead=self.pacer.ahead(site))
        except TooEarly as early:
            with suppress(LeaseLost):
                await self.call("release", held.lease, early.wait, "pace", paced_ahead=self.pacer.ahead(site))
        except LeaseLost:
            pass
        finally:
            self.held.discard(held)
            self.pacer.leave(held.lease)

    async def request(self, held: HeldLease) -> None:
        """As a journey makes one of the requests of its page."""
        site, chance = held.lease.task.site, self.world.chance
        while held.turn_is_over:
            number = held.turn_number + 1
            turn = await self.call("next_turn", held.lease, number)
            if turn.wait is not None:
                await self.clock.sleep(turn.wait.total_seconds())
                continue
            self.world.further += 1
            held.begin_turn(number, turn.pace, self.pacer.next_turn(site, turn.pace))
        gate = self.pacer.gate(site, None, held.check, not_before=held.turn)
        held.watch(gate)
        try:
            await self.clock.sleep(chance.choice((0.0, 0.0, 0.0, 0.03, 0.3)))  # to connect
            await gate.enter()
            self.world.sent[site].append(self.world.lab.clock.now())
            gate.left()
            await self.clock.sleep(chance.choice(self.world.answers))
        finally:
            gate.close()

    async def die(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class Reader:
    """A process that reads files of a source at a site, which no lease covers, one after the other."""

    def __init__(self, world: World, site: str) -> None:
        self.world, self.site = world, site
        self.clock = VirtualClock(world.lab.clock.now())
        self.running = asyncio.Event()
        self.running.set()
        self.calls = self.files = 0
        self.tasks = {asyncio.create_task(self.read())}

    async def call(self, made):
        self.calls += 1
        try:
            answer = await made
        finally:
            self.calls -= 1
        if self.world.chance.random() < 0.2:
            await self.clock.sleep(self.world.chance.uniform(0, 0.05))
        return answer

    async def announce(self, site: str, rest: timedelta, request: str) -> float:
        return await take_turn(Asked(self, self.world.lab.seeds), Asked(self, self.world.lab.frontier), self.clock,
                               site=site, rest=rest, request=request)  # fmt: skip

    async def read(self) -> None:
        pacer, chance = Pacer(self.clock, max_hold=None), self.world.chance
        while True:
            announced = Announcement(self.site, with_margin(INTERVAL), self.announce, self.clock)
            await announced.renew()
            gate = AnnouncedGate(pacer.gate(self.site, timedelta(seconds=2 * INTERVAL)), announced)
            await self.clock.sleep(chance.choice((0.0, 0.0, 0.2)))  # to connect
            await gate.enter()
            self.world.sent[self.site].append(self.world.lab.clock.now())
            self.files += 1
            gate.left()
            gate.close()
            await self.clock.sleep(chance.uniform(0, 0.5))

    async def die(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class Asked:
    """A part of the state, whose calls are counted for a process."""

    def __init__(self, by: Reader, part) -> None:
        self._by, self._part = by, part

    def __getattr__(self, verb: str):
        return lambda *terms, **more: self._by.call(getattr(self._part, verb)(*terms, **more))


class World:
    """The queue, the processes, and the time."""

    def __init__(self, lab, job: str, chance: random.Random, answers: Sequence[float], repeats: float) -> None:
        self.lab, self.job, self.chance = lab, job, chance
        self.answers, self.repeats = answers, repeats
        self.reports = self.further = 0  # turns that were reported, and further ones of a page
        self.sent: dict[str, list[float]] = {site: [] for site in SITES}
        self.named = 0
        self.crew: list[Process] = []
        self.readers: list[Reader] = []

    def join(self) -> None:
        self.named += 1
        self.crew.append(Process(self, f"w{self.named}"))

    async def settle(self) -> None:
        """Until nothing can happen without time passing."""
        quiet = 0
        for _ in range(100_000):
            await asyncio.sleep(0)
            quiet = 0 if any(one.calls for one in (*self.crew, *self.readers)) else quiet + 1
            if quiet == 8:
                return
        raise AssertionError("The fleet never comes to rest.")

    async def run(self, seconds: float) -> None:
        until = self.lab.clock.now() + seconds
        while (now := self.lab.clock.now()) < until:
            awake = [one.clock for one in (*self.crew, *self.readers) if one.running.is_set()]
            due = min((clock.next_due for clock in awake if clock.sleepers), default=until)
            step = max(0.0005, min(due, until) - now)
            self.lab.clock.advance(step)
            for clock in awake:
                clock.advance(self.lab.clock.now() - clock.now())
            await self.settle()

    async def stop(self, one: Process, seconds: float) -> None:
        one.running.clear()
        await self.run(seconds)
        one.running.set()
        one.clock.advance(self.lab.clock.now() - one.clock.now())
        await self.settle()

    async def kill(self, one: Process) -> None:
        self.crew.remove(one)
        if self.chance.random() < 0.5:
            self.lab.gone.add(one.name)
        await one.die()
        self.join()


async def play(
    lab, seed: int, blows: int, *, read: Sequence[str] = (), answers: Sequence[float] = USUAL, repeats: float = 0.02
) -> World:
    """Three workers of one job, what goes wrong with them by chance, and readers of sources at some of their sites.
    `answers` are how long pages take, and `repeats` is how likely a page needs one more request."""
    chance = random.Random(seed)
    for site in SITES:
        lab.terms[site] = SiteTerms(interval=timedelta(seconds=INTERVAL), burst=1, concurrency=3)
    job = (await lab.job(max_deliveries=1000, max_urls_per_pattern=None)).id
    await lab.frontier.add(job, [candidate(f"https://{site}/{n}") for site in SITES for n in range(PAGES)])
    world = World(lab, job, chance, answers, repeats)
    for _ in range(3):
        world.join()
    world.readers = [Reader(world, site) for site in read]
    for _ in range(blows):
        await world.run(chance.uniform(0.1, 1.5))
        what, one = chance.choice(("stop", "stop", "pause", "kill")), chance.choice(world.crew)
        if what == "kill":
            await world.kill(one)
        else:
            await world.stop(one, LEASE.total_seconds() + chance.uniform(0, 1) if what == "stop" else 0.3)
    await world.run(1.0)
    for _ in range(10):
        if all(one.files for one in world.readers):
            break
        await world.run(1.0)  # a file waits for pages in progress, and for the lease of a worker that was killed
    for one in (*world.crew, *world.readers):
        await one.die()
    return world


def short_gaps(world: World) -> list[float]:
    gaps = [later - earlier for times in world.sent.values() for earlier, later in pairwise(times)]
    assert gaps
    return [gap for gap in gaps if gap < INTERVAL - 1e-6]


@pytest.mark.parametrize("backend", ["sqlite", "valkey"])
async def test_no_request_is_early_whatever_happens_to_the_workers(tmp_path, backends, backend):
    async with backends.open(backend, tmp_path, LEASE) as lab:
        assert short_gaps(await play(lab, seed=101, blows=2)) == []


@pytest.mark.parametrize("backend", ["sqlite", "valkey"])
async def test_no_request_is_early_at_sites_that_several_workers_have_because_their_pages_are_slow(
    tmp_path, backends, backend
):
    async with backends.open(backend, tmp_path, LEASE) as lab:
        world = await play(lab, seed=11, blows=2, answers=SLOW, repeats=0.3)
        assert world.reports
        assert world.further
        assert short_gaps(world) == []


@pytest.mark.parametrize("backend", ["sqlite", "valkey"])
async def test_files_of_a_source_keep_their_distance_from_pages_that_are_slow_to_leave(tmp_path, backends, backend):
    async with backends.open(backend, tmp_path, LEASE) as lab:
        world = await play(lab, seed=7, blows=1, read=SITES[:2])
        assert all(one.files for one in world.readers)
        assert short_gaps(world) == []


@pytest.mark.long
@pytest.mark.parametrize("backend", ["sqlite", "valkey"])
async def test_no_request_is_early_in_ten_stories(tmp_path, backends, backend):
    for seed in range(100, 110):
        folder = tmp_path / str(seed)
        folder.mkdir()
        async with backends.open(backend, folder, LEASE) as lab:
            assert short_gaps(await play(lab, seed, blows=4, read=SITES[: seed % 3])) == [], seed


@pytest.mark.long
@pytest.mark.parametrize("backend", ["sqlite", "valkey"])
async def test_no_request_is_early_in_ten_stories_of_slow_pages(tmp_path, backends, backend):
    for seed in range(200, 210):
        folder = tmp_path / str(seed)
        folder.mkdir()
        async with backends.open(backend, folder, LEASE) as lab:
            story = await play(lab, seed, blows=4, read=SITES[: seed % 3], answers=SLOW, repeats=0.3)
            assert short_gaps(story) == [], seed

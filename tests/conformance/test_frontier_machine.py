"""A frontier under any sequence of calls, compared with a plain model. Virtual clock; every backend."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from gossamer.errors import FrontierFull, LeaseLost
from gossamer.frontier.contract import DeadFilter, LeftTurn
from gossamer.frontier.politeness import HEAD_START, TURN, SiteTerms
from gossamer.model.task import NO_ROOM, DropReason, UrlState
from tests.conformance.frontiers import LEASE, Backends, adds_up, candidate

SITES = ("calm.test", "quick.test", "burst.test")
TERMS = {
    "calm.test": SiteTerms(interval=timedelta(seconds=4), burst=1, concurrency=2),
    "burst.test": SiteTerms(interval=timedelta(seconds=2), burst=3, concurrency=None),
    "quick.test": SiteTerms(interval=None, burst=1, concurrency=3),
}
MAX_DELIVERIES = 3
BOUND = 15  # tasks in the queue: of 36 URLs, some must wait for room

numbers = st.integers(0, 11)
sites = st.sampled_from(SITES)
workers = st.sampled_from(("w1", "w2", "w3"))
fetchers = st.sampled_from((None, None, "browser"))
served_lanes = st.sampled_from((None, None, frozenset({""}), frozenset({"browser"}), frozenset({"", "browser"})))


class FrontierMachine(RuleBasedStateMachine):
    """The model: what state each URL must be in, who holds what, when each site was visited."""

    lab_name = "sqlite"
    backends: Backends

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.context = self.backends.open(self.lab_name, self.folder)
        self.lab = self.do(self.context.__aenter__())
        self.lab.terms.update(TERMS)
        self.job = self.do(self.lab.job(max_deliveries=MAX_DELIVERIES, max_urls_per_pattern=None, max_queued=BOUND)).id
        self.states: dict[str, UrlState] = {}
        self.lanes: dict[str, str] = {}
        self.due: dict[str, float] = {}
        self.held: dict[str, object] = {}
        self.turns: dict[str, tuple[str, int, bool]] = {}  # of a lease: its worker, the number, whether it is owed
        self.stale: list[object] = []
        self.deliveries: dict[str, int] = {}
        self.attempts: dict[str, int] = {}
        self.grants: dict[str, list[float]] = {site: [] for site in SITES}
        self.rest_until: dict[str, float] = {}
        self.discovered = 0
        self.began = self.now()

    def do(self, awaitable):
        return self.loop.run_until_complete(awaitable)

    def teardown(self):
        self.do(self.context.__aexit__(None, None, None))
        self.loop.close()
        shutil.rmtree(self.folder)

    def now(self):
        return self.lab.clock.now()

    def expire(self):
        """What the model knows to have lapsed by now."""
        for url, lease in list(self.held.items()):
            if lease.expires_at <= self.now():
                self.stale.append(self.held.pop(url))
                dead = self.deliveries[url] > MAX_DELIVERIES
                self.states[url] = UrlState.DEAD if dead else UrlState.QUEUED

    def enter(self, candidates):
        self.discovered += len(candidates)
        for one in candidates:
            if one.url not in self.states:
                self.states[one.url] = UrlState.DROPPED if one.dropped else UrlState.QUEUED
                self.deliveries[one.url] = self.attempts[one.url] = 0
                self.lanes[one.url] = one.fetcher or ""

    @rule(site=sites, ids=st.lists(numbers, min_size=1, max_size=6), priority=st.integers(0, 3), fetcher=fetchers)
    def add(self, site, ids, priority, fetcher):
        candidates = [candidate(f"https://{site}/{n}", priority=priority, fetcher=fetcher) for n in ids]
        self.offer(candidates)

    def offer(self, candidates):
        try:
            self.do(self.lab.frontier.add(self.job, candidates))
        except FrontierFull:
            counts = self.do(self.lab.jobs.counts(self.job))
            assert counts.queued + counts.waiting + len(candidates) > BOUND
        else:
            self.enter(candidates)

    @rule(site=sites, n=numbers)
    def drop(self, site, n):
        one = candidate(f"https://{site}/out/{n}", dropped=DropReason.SCOPE)
        self.offer([one])

    @rule(seconds=st.sampled_from((0.1, 1.0, 2.0, 5.0, LEASE.total_seconds() + 1)))
    def advance(self, seconds):
        self.lab.clock.advance(seconds)

    @rule(worker=workers, n=st.integers(1, 6), lanes=served_lanes)
    def lease(self, worker, n, lanes):
        batch = self.do(self.lab.frontier.lease(self.job, worker, n, lanes))
        self.expire()
        for url, at in list(self.due.items()):
            if at <= self.now():
                self.states[url] = UrlState.QUEUED
                del self.due[url]
        assert len(batch.leases) <= n
        for lease in batch.leases:
            task = lease.task
            assert self.states[task.url] is UrlState.QUEUED
            assert (task.fetcher or "") == self.lanes[task.url]
            assert lanes is None or self.lanes[task.url] in lanes
            assert self.rest_until.get(task.site, 0) <= self.now()
            assert task.attempt == self.attempts[task.url]
            self.deliveries[task.url] += 1
            assert lease.delivery == self.deliveries[task.url]
            self.states[task.url] = UrlState.LEASED
            self.take_turn(task.url, worker, 1)
            self.held[task.url] = lease
        self.check_politeness()
        assert not batch.drained
        queued = [url for url, state in self.states.items() if state is UrlState.QUEUED]
        outside = {url for url, _, reason in self.do(self.everything()) if reason == NO_ROOM}
        mine = [url for url in queued if url not in outside and (lanes is None or self.lanes[url] in lanes)]
        if not batch.leases:
            # Nothing to be had although something is queued: some limit must say why, or a lane that gives way.
            kept_waiting = {url.split("/")[2] for url in queued if url not in mine}
            assert all(self.limited(url, kept_waiting) for url in mine)

    def take_turn(self, url, worker, number):
        site = url.split("/")[2]
        at_site = [self.turns[one] for one in self.held if one.split("/")[2] == site and one in self.turns]
        owed_to = {owing for owing, _, owed in at_site if owed}
        assert TERMS[site].interval is None or owed_to <= {worker}
        self.turns[url] = worker, number, True
        self.grants[site].append(self.now())

    @precondition(lambda self: self.held)
    @rule(data=st.data(), late=st.booleans())
    def leave(self, data, late):
        """Its request has left; a `late` report is about a turn before."""
        url, lease = self.pick(data)
        worker, number, owed = self.turns[url]
        self.do(self.lab.frontier.left([LeftTurn(lease, number - late)]))
        if lease.expires_at > self.now():
            self.turns[url] = worker, number, owed and late

    @precondition(lambda self: any(not owed for _, _, owed in self.turns.values()))
    @rule(data=st.data())
    def ask_for_another_turn(self, data):
        url = data.draw(st.sampled_from(sorted(url for url, (_, _, owed) in self.turns.items() if not owed)))
        lease, (worker, number, _) = self.held.get(url), self.turns[url]
        if lease is None or lease.expires_at <= self.now():
            return
        turn = self.do(self.lab.frontier.next_turn(lease, number + 1))
        if turn.wait is None:
            assert self.rest_until.get(lease.task.site, 0) <= self.now()
            self.take_turn(url, worker, number + 1)
            self.check_politeness()

    def limited(self, url, kept_waiting):
        site = url.split("/")[2]
        terms = TERMS[site]
        if site in kept_waiting and self.now() - self.began >= TURN.total_seconds():
            return True
        in_flight = sum(lease.task.site == site for lease in self.held.values())
        if self.rest_until.get(site, 0) > self.now():
            return True
        if terms.concurrency is not None and in_flight >= terms.concurrency:
            return True
        return terms.interval is not None

    def check_politeness(self):
        for site, terms in TERMS.items():
            in_flight = sum(lease.task.site == site for lease in self.held.values())
            assert terms.concurrency is None or in_flight <= terms.concurrency
            if terms.interval is None:
                continue
            times = self.grants[site]
            for i in range(len(times)):
                for j in range(i, len(times)):
                    span = times[j] - times[i] + HEAD_START.total_seconds()
                    allowed = terms.burst + span / terms.interval.total_seconds()
                    assert j - i + 1 <= allowed + 1e-6, (site, times)

    def pick(self, data):
        url = data.draw(st.sampled_from(sorted(self.held)))
        return url, self.held[url]

    def settle(self, url, call):
        """Do it; a lapsed lease must be refused, and then nothing may change."""
        lapsed = self.held[url].expires_at <= self.now()
        if lapsed:
            with pytest.raises(LeaseLost):
                self.do(call)
            return False
        self.do(call)
        self.stale.append(self.held.pop(url))
        return True

    @precondition(lambda self: self.held)
    @rule(
        data=st.data(),
        ids=st.lists(numbers, max_size=4),
        state=st.sampled_from((UrlState.DONE, UrlState.UNCHANGED)),
        fetcher=fetchers,
    )
    def complete(self, data, ids, state, fetcher):
        url, lease = self.pick(data)
        found = [candidate(f"https://{lease.task.site}/{n}", fetcher=fetcher) for n in ids]
        if self.settle(url, self.lab.frontier.complete(lease, state, "", found)):
            self.states[url] = state
            self.enter(found)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), delay=st.sampled_from((0.0, 3.0)))
    def retry(self, data, delay):
        url, lease = self.pick(data)
        if self.settle(url, self.lab.frontier.retry(lease, timedelta(seconds=delay), "timeout")):
            self.states[url] = UrlState.WAITING
            self.due[url] = self.now() + delay
            self.attempts[url] += 1
            self.deliveries[url] = 0

    @precondition(lambda self: self.held)
    @rule(data=st.data(), lane=st.sampled_from((None, "", "browser")))
    def release(self, data, lane):
        url, lease = self.pick(data)
        if self.settle(url, self.lab.frontier.release(lease, timedelta(0), "drain", lane=lane)):
            self.lanes[url] = self.lanes[url] if lane is None else lane
            self.states[url] = UrlState.WAITING
            self.due[url] = self.now()
            self.deliveries[url] -= 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def bury(self, data):
        url, lease = self.pick(data)
        if self.settle(url, self.lab.frontier.bury(lease, "http-404", "gone")):
            self.states[url] = UrlState.DEAD

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def renew(self, data):
        url, lease = self.pick(data)
        lapsed = lease.expires_at <= self.now()
        assert self.do(self.lab.frontier.renew([lease])) == ([lease] if lapsed else [])
        if not lapsed:
            import msgspec

            self.held[url] = msgspec.structs.replace(lease, expires_at=self.now() + LEASE.total_seconds())

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def settle_with_a_stale_lease(self, data):
        lease = data.draw(st.sampled_from(self.stale))
        with pytest.raises(LeaseLost):
            self.do(self.lab.frontier.complete(lease, UrlState.DONE, "", [candidate("https://calm.test/ghost")]))

    @rule(site=sites, rest=st.sampled_from((1.0, 7.0)))
    def slow_down(self, site, rest):
        self.do(self.lab.frontier.slow_down(site, interval=None, rest=timedelta(seconds=rest)))
        self.rest_until[site] = max(self.rest_until.get(site, 0), self.now() + rest)

    @rule(site=sites)
    def replay(self, site):
        self.do(self.lab.queue.replay(DeadFilter(site=site)))
        # The dead of the model that the backend has not noticed to be dead yet are still leased there.
        for url, state in self.states.items():
            if state is UrlState.DEAD and url.split("/")[2] == site:
                self.states[url] = UrlState.QUEUED
                self.attempts[url] = self.deliveries[url] = 0

    @precondition(lambda self: UrlState.DEAD in self.states.values())
    @rule(data=st.data(), ids=st.lists(numbers, max_size=4), elsewhere=sites, fetcher=fetchers)
    def resolve(self, data, ids, elsewhere, fetcher):
        letter = data.draw(st.sampled_from(self.do(self.lab.queue.dead(DeadFilter()))))
        found = [candidate(f"https://{site}/{n}", fetcher=fetcher) for n in ids for site in (letter.site, elsewhere)]
        assert self.do(self.lab.queue.resolve(letter, found)) is not None
        assert self.do(self.lab.queue.resolve(letter, found)) is None
        self.states[letter.url] = UrlState.DONE
        self.enter(found)

    @invariant()
    def the_states_are_what_the_model_says_and_add_up(self):
        seen, outside = {}, 0
        for url, state, reason in self.do(self.everything()):
            seen[url] = state
            if reason == NO_ROOM:
                assert state is UrlState.WAITING
                assert self.states[url] is UrlState.QUEUED
                outside += 1
        assert seen.keys() == self.states.keys()
        for url, state in self.states.items():
            if url in self.held or url in self.due:
                continue  # lapsed or due: which of two states depends on whether a lease call has looked
            assert seen[url] is state or (state is UrlState.QUEUED and seen[url] is UrlState.WAITING), url
        counts = self.do(self.lab.jobs.counts(self.job))
        assert counts.postponed == outside
        for state in UrlState:
            assert getattr(counts, state.value) == sum(one is state for one in seen.values()), state
        assert counts.discovered == self.discovered
        assert adds_up(counts)
        loads = self.do(self.lab.queue.sites(self.job))
        for load in loads:
            of_site = [state for url, state in seen.items() if url.split("/")[2] == load.site]
            told = {"queued": load.queued, "waiting": load.waiting, "leased": load.leased}
            assert told == {name: sum(state == name for state in of_site) for name in told}, load.site
        assert sum(load.queued + load.waiting + load.leased for load in loads) == counts.open

    async def everything(self):
        return [row async for row in self.lab.queue.urls(self.job)]


# A cluster runs the scripts of one server with shards; what is its own, where keys live, shows in any sequence.
EXAMPLES = [
    *((name, 6) for name in Backends.NAMES if name != "cluster"),
    *(pytest.param(name, 20 if name == "cluster" else 60, marks=pytest.mark.long) for name in Backends.NAMES),
]


@pytest.mark.parametrize(("name", "examples"), EXAMPLES)
def test_the_frontier_behaves_like_its_model_under_any_sequence_of_calls(name, backends, examples):
    machine = type("Machine", (FrontierMachine,), {"lab_name": name, "backends": backends})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )

"""What workers share: routes that were learned for sites, by one of many, and budgets that are never overdrawn."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from gossamer.backends.redis.state import open_redis_state
from gossamer.backends.sqlite.state import open_sqlite_state
from gossamer.backends.state import State
from gossamer.clock import ServerClock, SystemClock, VirtualClock
from gossamer.routing.contract import MOST_PATTERNS, Bound, LearnedRoute
from tests.patience import PATIENCE

from .frontiers import LEASE, UNLIMITED, Backends, Lab
from .test_moving import WAYS, copy

NOW = 1_800_000_000.0
SHOP = LearnedRoute(
    site="shop.example",
    route="residential",
    since=NOW + 0.123456,
    reason="a challenge page ☂",
    blocks=3,
    recheck_at=NOW + 1800.25,
    patience=1800.5,
)


@dataclass(frozen=True)
class Place:
    """One state that may be opened as often as a test likes, as by several workers, in this process or in another."""

    address: str  # of a server; empty: SQLite
    folder: Path
    project: str

    @asynccontextmanager
    async def open(self) -> AsyncIterator[State]:
        if not self.address:
            file = self.folder / "state.db"
            async with open_sqlite_state(
                file, VirtualClock(), lease_duration=LEASE, terms_for=lambda _: UNLIMITED
            ) as state:
                yield state
            return
        async with open_redis_state(
            self.address,
            ServerClock(SystemClock()),
            project=self.project,
            lease_duration=LEASE,
            terms_for=lambda _: UNLIMITED,
        ) as shared:
            yield shared


@pytest.fixture(params=Backends.UNSHARDED)
def place(request: pytest.FixtureRequest, tmp_path: Path, backends: Backends) -> Place:
    address = "" if request.param == "sqlite" else backends.address(request.param)
    return Place(address, tmp_path, f"lab-{uuid4().hex}")


@pytest.fixture
async def state(place: Place) -> AsyncIterator[State]:
    async with place.open() as opened:
        yield opened


@asynccontextmanager
async def several(place: Place, count: int) -> AsyncIterator[list[Any]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(place.open()) for _ in range(count)]


def changed(learned: LearnedRoute, **fields: object) -> LearnedRoute:
    return msgspec.structs.replace(learned, **fields)


# -- learned routes ----------------------------------------------------------------------------------------------


async def test_a_learned_route_comes_back_as_it_was_learned(state):
    assert await state.routes.learned("shop.example") == []

    assert await state.routes.learn(SHOP, instead_of=None)

    assert await state.routes.learned("shop.example") == [SHOP]
    assert await state.routes.learned("other.example") == []


async def test_what_was_learned_meanwhile_is_not_overwritten(state):
    higher = changed(SHOP, route="browser", blocks=4)
    await state.routes.learn(SHOP, instead_of=None)
    assert await state.routes.learn(higher, instead_of=SHOP)

    # when somebody speaks who still believes in what was known before
    late = changed(SHOP, route="managed", blocks=9)
    assert not await state.routes.learn(late, instead_of=SHOP)
    assert not await state.routes.learn(late, instead_of=None)
    assert not await state.routes.learn(late, instead_of=changed(higher, recheck_at=higher.recheck_at + 0.001))

    assert await state.routes.learned("shop.example") == [higher]


async def test_patterns_of_a_site_are_learned_apart_and_the_first_goes_when_there_are_many(state):
    pages, images = changed(SHOP, pattern="shop.example/p/*"), changed(SHOP, pattern="shop.example/i/*.png", since=NOW)
    for one in (SHOP, pages, images):
        assert await state.routes.learn(one, instead_of=None)
    higher = changed(pages, route="browser", since=NOW + 9)
    assert not await state.routes.learn(higher, instead_of=SHOP)
    assert await state.routes.learn(higher, instead_of=pages)
    assert {one.pattern: one for one in await state.routes.learned("shop.example")} == {
        "": SHOP, "shop.example/p/*": higher, "shop.example/i/*.png": images,
    }  # fmt: skip

    for n in range(MOST_PATTERNS - 2):
        await state.routes.learn(changed(SHOP, pattern=f"shop.example/{n}/*", since=NOW + 10 + n), instead_of=None)

    kept = {one.pattern for one in await state.routes.learned("shop.example")}
    assert (len(kept), "shop.example/i/*.png" in kept) == (MOST_PATTERNS, False)
    assert await state.routes.forget("shop.example") == 1
    assert await state.routes.learned("shop.example") == []


async def test_many_workers_learn_many_patterns_of_a_site_at_once(place):
    async with several(place, 4) as workers:
        rows = [changed(SHOP, pattern=f"shop.example/{n}/*") for n in range(20)]
        assert all(await asyncio.gather(*(workers[n % 4].routes.learn(rows[n], instead_of=None) for n in range(20))))
        assert len(await workers[0].routes.learned("shop.example")) == 20


async def test_a_site_that_was_forgotten_is_not_what_it_was(state):
    await state.routes.learn(SHOP, instead_of=None)
    await state.routes.forget("shop.example")

    assert not await state.routes.learn(changed(SHOP, blocks=4), instead_of=SHOP)

    assert await state.routes.learned("shop.example") == []


async def test_one_of_twenty_who_saw_the_same_block_wins(place):
    async with several(place, 4) as workers:
        for before in (None, SHOP):
            seen = await workers[0].routes.learned("shop.example")
            assert seen == ([] if before is None else [before])
            words = [changed(SHOP, blocks=n) if before else SHOP for n in range(100, 120)]
            won = await asyncio.gather(*(workers[n % 4].routes.learn(words[n], instead_of=before) for n in range(20)))

            assert sum(won) == 1
            known = {str(await worker.routes.learned("shop.example")) for worker in workers}
            assert known == {str([words[won.index(True)]])}


async def test_the_sites_that_were_learned_about_last_come_first(state):
    for n, site in enumerate(("b.example", "c.example", "a.example", "d.example")):
        since = NOW if site in ("a.example", "b.example") else NOW + n
        await state.routes.learn(changed(SHOP, site=site, since=since), instead_of=None)

    listed = [one.site for one in await state.routes.learned_routes()]
    assert listed == ["d.example", "c.example", "a.example", "b.example"]
    assert [one.site for one in await state.routes.learned_routes(limit=2)] == listed[:2]


async def test_many_learned_routes_are_all_listed(state):
    many = [changed(SHOP, site=f"s{n}.example", since=NOW - n) for n in range(1_200)]
    await asyncio.gather(*(state.routes.learn(one, instead_of=None) for one in many))

    assert await state.routes.learned_routes(limit=5_000) == many
    assert await state.routes.learned_routes() == many[:1000]


async def test_one_site_is_forgotten_or_all(state):
    for site in ("a.example", "b.example", "c.example"):
        await state.routes.learn(changed(SHOP, site=site), instead_of=None)

    assert await state.routes.forget("b.example") == 1
    assert await state.routes.forget("b.example") == 0
    assert [one.site for one in await state.routes.learned_routes()] == ["a.example", "c.example"]
    assert await state.routes.forget() == 2
    assert await state.routes.forget() == 0
    assert await state.routes.learned_routes() == []


# -- budgets ------------------------------------------------------------------------------------------------------

JOB, DAY, SITE = "job/books-3", "day/2027-01-15", "domain/2027-01-15/shop.example"


async def test_tokens_are_taken_from_every_budget(state):
    assert await state.budgets.spent() == {}

    assert await state.budgets.take(2.5, [Bound(JOB, 10), Bound(DAY, 5)]) is None
    assert await state.budgets.take(0.0003, [Bound(DAY, 5), Bound(SITE, 1)]) is None

    assert await state.budgets.spent() == {DAY: 2.5003, SITE: 0.0003, JOB: 2.5}


async def test_tokens_are_taken_from_all_budgets_or_from_none(state):
    await state.budgets.take(4, [Bound(DAY, 5), Bound(SITE, 5)])

    # The first that has too few is named, whatever comes after it.
    assert await state.budgets.take(2, [Bound(JOB, 10), Bound(SITE, 5), Bound(DAY, 5)]) == SITE
    assert await state.budgets.take(2, [Bound(JOB, 10), Bound(DAY, 5), Bound(SITE, 5)]) == DAY
    assert await state.budgets.take(2, [Bound(JOB, 1), Bound(DAY, 5)]) == JOB

    assert await state.budgets.spent() == {DAY: 4, SITE: 4}


async def test_the_last_token_can_be_taken_and_not_one_billionth_more(state):
    bounds = [Bound(JOB, 0.3)]
    # As floats, 0.1 + 0.2 is more than 0.3.
    assert await state.budgets.take(0.1, bounds) is None
    assert await state.budgets.take(0.2, bounds) is None
    assert await state.budgets.take(1e-9, bounds) == JOB
    assert await state.budgets.take(1e-30, bounds) == JOB
    assert await state.budgets.take(0, bounds) is None  # nothing is always there

    assert await state.budgets.spent() == {JOB: 0.3}


async def test_fractions_that_do_not_come_out_even_reach_the_bound_early(state):
    third = 1 / 3
    taken = 0
    while await state.budgets.take(third, [Bound(JOB, 1)]) is None:
        taken += 1

    # Three thirds, each rounded up, would be more than one.
    assert taken == 2
    assert (await state.budgets.spent())[JOB] == pytest.approx(2 / 3, abs=1e-8)


async def test_amounts_that_a_float_would_round_are_exact(state):
    big = 4_000_000_000
    bounds = [Bound(JOB, big + 1), Bound(DAY, float("inf"))]
    assert await state.budgets.take(big, bounds) is None
    for _ in range(10):
        assert await state.budgets.take(0.1, bounds) is None

    assert await state.budgets.take(1e-9, bounds) == JOB
    await state.budgets.give_back(1e-9, [JOB])
    assert await state.budgets.take(1e-9, bounds) is None
    assert await state.budgets.take(1e300, [Bound(DAY, float("inf"))]) == DAY
    assert (await state.budgets.spent())[JOB] == big + 1


async def test_a_budget_without_enough_for_one_gives_nothing(state):
    assert await state.budgets.take(5, [Bound(JOB, 4.999)]) == JOB
    assert await state.budgets.take(0.5, [Bound(JOB, 0)]) == JOB
    assert await state.budgets.take(5, []) is None

    assert await state.budgets.spent() == {}


async def test_a_bound_that_was_lowered_holds_at_once(state):
    await state.budgets.take(8, [Bound(DAY, 10)])

    assert await state.budgets.take(0.5, [Bound(DAY, 5)]) == DAY
    assert await state.budgets.take(0.5, [Bound(DAY, 10)]) is None


async def test_a_budget_that_is_named_twice_gives_once_within_the_narrower_bound(state):
    assert await state.budgets.take(2, [Bound(DAY, 10), Bound(DAY, 3)]) is None
    assert await state.budgets.take(2, [Bound(DAY, 10), Bound(DAY, 3)]) == DAY

    assert await state.budgets.spent() == {DAY: 2}


async def test_what_was_not_used_comes_back_and_can_be_taken_again(state):
    bounds = [Bound(JOB, 3), Bound(DAY, 3)]
    await state.budgets.take(3, bounds)

    await state.budgets.give_back(2.5, [JOB, DAY])
    assert await state.budgets.spent() == {DAY: 0.5, JOB: 0.5}
    assert await state.budgets.take(2.5, bounds) is None
    assert await state.budgets.take(0.001, bounds) == JOB


async def test_more_than_was_taken_never_comes_back(state):
    await state.budgets.take(1.5, [Bound(JOB, 3)])
    await state.budgets.give_back(10, [JOB, "day/2027-01-01", JOB])

    assert await state.budgets.spent() == {JOB: 0}  # and no budget was made by giving back
    assert await state.budgets.take(3.1, [Bound(JOB, 3)]) == JOB
    assert await state.budgets.take(3, [Bound(JOB, 3)]) is None


@pytest.mark.parametrize("amount", [-1.0, float("nan")])
async def test_what_is_no_amount_is_refused_and_changes_nothing(state, amount):
    await state.budgets.take(1, [Bound(JOB, 3)])

    with pytest.raises(ValueError, match="not an amount"):
        await state.budgets.take(amount, [Bound(JOB, 3)])
    with pytest.raises(ValueError, match="not an amount"):
        await state.budgets.give_back(amount, [JOB])

    assert await state.budgets.spent() == {JOB: 1}


async def test_only_budgets_of_earlier_days_are_forgotten(state):
    kept = ["job/2", "job/2020-01-01", "day/2027-01-15", "domain/2027-01-15/a.example", "day/2027-02-01", "day/soon"]
    old = ["day/2027-01-14", "day/2026-12-31", "domain/2027-01-14/a.example", "domain/2026-01-01/b.example"]
    for budget in (*kept, *old):
        await state.budgets.take(1, [Bound(budget, 5)])

    assert await state.budgets.forget_budgets("2027-01-15") == 4
    assert sorted(await state.budgets.spent()) == sorted(kept)
    assert await state.budgets.forget_budgets("2027-01-15") == 0


async def test_workers_of_one_process_never_take_more_than_there_is(place):
    async with several(place, 4) as workers:
        bounds = [Bound(DAY, 1.5), Bound(SITE, 100)]
        answers = await asyncio.gather(*(workers[n % 4].budgets.take(0.07, bounds) for n in range(80)))

        assert answers.count(None) == 21
        assert answers.count(DAY) == 59
        assert await workers[0].budgets.spent() == {DAY: 1.47, SITE: 1.47}


def take_until_refused(place: Place, barrier: Any, taken: Any) -> None:
    """What one process does: eight tasks that take until nothing is left."""

    async def work() -> int:
        async def take(budget: Any) -> int:
            times = returned = 0
            while await budget.take(0.7, [Bound(JOB, 100), Bound(DAY, 500)]) is None:
                times += 1
                assert times < 1_000, "There is no end of it."
                if times % 5 == 0:  # some of it was not used
                    await budget.give_back(0.7, [JOB, DAY])
                    returned += 1
            return times - returned

        async with place.open() as state:
            barrier.wait(PATIENCE)
            return sum(await asyncio.gather(*(take(state.budgets) for _ in range(8))))

    taken.put(asyncio.run(work()))


def test_processes_together_take_what_there_is_to_the_last_token(place):
    processes = 3
    context = multiprocessing.get_context("spawn")
    barrier, taken = context.Barrier(processes), context.Queue()
    workers = [
        context.Process(target=take_until_refused, args=(place, barrier, taken), daemon=True) for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    counts = [taken.get(timeout=PATIENCE) for _ in workers]
    for worker in workers:
        worker.join(30)

    async def spent() -> dict[str, float]:
        async with place.open() as state:
            return await state.budgets.spent()

    assert [worker.exitcode for worker in workers] == [0] * processes
    assert sum(counts) == 142  # 142 times 0.7 is 99.4
    assert asyncio.run(spent()) == {DAY: 99.4, JOB: 99.4}


# -- both ---------------------------------------------------------------------------------------------------------


async def test_all_of_it_survives_reopening(place):
    async with place.open() as state:
        await state.routes.learn(SHOP, instead_of=None)
        await state.budgets.take(0.0003, [Bound(JOB, 1), Bound(DAY, 1)])

    async with place.open() as state:
        assert await state.routes.learned_routes() == [SHOP]
        assert await state.budgets.spent() == {DAY: 0.0003, JOB: 0.0003}
        assert await state.budgets.take(1, [Bound(JOB, 1)]) == JOB


@pytest.mark.parametrize("labs", WAYS, indirect=True, ids="-to-".join)
async def test_a_move_takes_them_along_and_leaves_none_of_what_was_there(labs):
    source, target = labs
    other = changed(SHOP, site="other.example", since=NOW + 9)
    for learned in (SHOP, other):
        await source.routes.learn(learned, instead_of=None)
    await source.budgets.take(0.0003, [Bound(JOB, 1), Bound(DAY, 1)])
    await target.routes.learn(changed(SHOP, site="stale.example"), instead_of=None)
    await target.budgets.take(1, [Bound("job/9", 1)])

    await copy(source.stream, target.stream)

    assert await target.stream.counts() == await source.stream.counts() == {"learned routes": 2, "budgets": 2}
    assert await target.routes.learned_routes() == [other, SHOP]
    assert await target.budgets.spent() == {DAY: 0.0003, JOB: 0.0003}
    assert await target.routes.learn(changed(SHOP, blocks=4), instead_of=SHOP)
    await target.stream.clear()
    assert await target.stream.counts() == {}


@pytest.fixture
async def labs(request: pytest.FixtureRequest, backends: Backends, tmp_path: Path) -> AsyncIterator[list[Lab]]:
    """Two states, of the kinds that the test names."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(backends.open(name, tmp_path / str(number)))
            for number, name in enumerate(request.param)
        ]

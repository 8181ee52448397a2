"""Whatever happens, the target of an output equals the records at the end: changes, kills at any moment, targets that
are away, pauses, rewinds, and a process that wakes up after another one has taken over."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.backends.sqlite.state import open_sqlite_state
from gossamer.backends.state import State
from gossamer.clock import VirtualClock
from gossamer.errors import BackendUnavailable, BatchRefused, LeaseLost
from gossamer.model.output import ErasedRecord, Erasure
from gossamer.model.record import Record
from gossamer.model.schedule import Term
from gossamer.model.shelf import Change, Shelf
from gossamer.settings import Settings
from gossamer.store.contract import RecordQuery, Records, Retirement
from gossamer.store.outputs.book import OutputBook, rewound
from gossamer.store.outputs.contract import Batch, Output, Refused
from gossamer.store.outputs.follow import Follower
from gossamer.store.outputs.plan import Plan
from gossamer.terms import site_terms

from ..patience import until
from .outputs import SCHEMA, TARGETS, Target, shown
from .stores import NOW, page_of, tried
from .stores import result as result_of

NAME = "shop"
PAGE = "https://shop.example/list"


class Killed(Exception):
    """The process died here."""


class Fragile:
    """An output, or a shelf, that dies once: before or after what it was told to do."""

    def __init__(self) -> None:
        self.plan: str | None = None  # "before write", "after write", "before commit", "after commit", "away"

    def dies(self, moment: str) -> None:
        if self.plan == moment:
            self.plan = None
            raise Killed
        if self.plan == "away" and moment == "before write":
            self.plan = None
            raise BackendUnavailable("It is away.")


class FragileOutput:
    def __init__(self, output: Output, fragile: Fragile) -> None:
        self._output = output
        self._fragile = fragile
        self.rows_at_once = 3  # so that a round has several batches
        self.bytes_at_once = output.bytes_at_once
        self.mirrors = output.mirrors
        self.numbered = output.numbered

    async def write(self, batch: Batch) -> list[Refused]:
        self._fragile.dies("before write")
        refused = await self._output.write(batch)
        self._fragile.dies("after write")
        return refused

    async def check(self) -> str:
        return await self._output.check()

    async def count(self) -> int | None:
        return await self._output.count()

    async def close(self) -> None:
        await self._output.close()


class FragileShelf:
    def __init__(self, shelf: Shelf, fragile: Fragile) -> None:
        self._shelf = shelf
        self._fragile = fragile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shelf, name)

    async def commit(self, changes: Sequence[Change], term: Term | None = None) -> bool:
        self._fragile.dies("before commit")
        done = await self._shelf.commit(changes, term)
        self._fragile.dies("after commit")
        return done


class World:
    """A project with an output, and what a person and the world do to them."""

    def __init__(self, target: Target, plan: Plan, records: Records, state: State, clock: VirtualClock) -> None:
        self.target, self.plan, self.records, self.state, self.clock = target, plan, records, state, clock
        self.fragile = Fragile()
        self.book = OutputBook(state.shelf)
        self.runs = 0

    async def scrape(self, prices: dict[int, int]) -> None:
        """A run of the spider: the page has these products, and no others."""
        self.clock.advance(60)
        self.runs += 1
        job, at = f"books-{self.runs}", self.clock.now()
        some = tuple(product(number, price, at, job) for number, price in prices.items())
        page = page_of(PAGE, at=at, job=job, spider="shop")
        attempt = tried(PAGE, at=at, job=job)
        await self.records.save([result_of(*some, page=page, attempt=attempt, schemas=(SCHEMA,))])
        await self.records.retire(Retirement(job=job, spider="shop", at=at + 1))

    def follower(self, worker: str = "w") -> Follower:
        async def open() -> Output:
            return FragileOutput(self.target.open(self.plan), self.fragile)

        return Follower(
            NAME,
            self.plan,
            open,
            source=self.records,
            shelf=FragileShelf(self.state.shelf, self.fragile),  # type: ignore[arg-type]  # as a shelf does
            leases=self.state.seeds,
            clock=self.clock,
            worker=worker,
            keeps_history=bool(self.plan.table.history),
            rewinds=True,
        )

    async def follow(self, kill: str | None) -> None:
        self.fragile.plan = kill
        with suppress(Killed, BackendUnavailable):
            await self.follower().catch_up()
        self.fragile.plan = None
        self.clock.advance(30)  # the lease of a dead process ends

    async def expect_equal(self) -> None:
        await self.book.order(NAME, lambda known: msgspec.structs.replace(known, paused=False))
        await self.follow(None)
        records = [record async for record in self.records.records(RecordQuery())]
        wanted = {one.key: shown(one) for one in records if one.gone_since is None or self.plan.table.gone != "delete"}
        if not records:
            return  # the table is created with the first one
        assert await self.target.rows() == wanted
        if self.plan.table.history:
            past = await self.target.query(f"SELECT _key, version FROM {self.target.table('past')}")
            told = {(one.key, version) for one in records for version in range(1, one.version + 1)}
            assert sorted(past) == sorted(told)


def product(number: int, price: int, at: float, job: str) -> Record:
    data = msgspec.json.encode(
        {"title": f"lamp {number}", "price": {"amount": f"{price}.50", "currency": "EUR"}, "stock": price}
    )
    return Record(
        type="Product", site="shop.example", key=f"k{number}", url=PAGE, job=job, spider="shop", data=data.decode(),
        content_hash=blake2b(data, digest_size=16).digest(), scraped_at=at, schema=SCHEMA.id,
    )  # fmt: skip


@asynccontextmanager
async def world(target: Target, **terms: Any) -> AsyncIterator[World]:
    clock = VirtualClock(NOW)
    await target.prepare()
    async with AsyncExitStack() as stack:
        records = await stack.enter_async_context(open_sqlite_records(target.folder / "records.db", clock))
        state = await stack.enter_async_context(
            open_sqlite_state(
                target.folder / "state.db",
                clock,
                lease_duration=timedelta(seconds=60),
                terms_for=site_terms(Settings()),
            )
        )
        yield World(target, target.plan(**terms), records, state, clock)


KILLS = (None, "before write", "after write", "before commit", "after commit", "away")
STEP = st.one_of(
    st.tuples(st.just("scrape"), st.dictionaries(st.integers(0, 7), st.integers(1, 3), max_size=8)),
    st.tuples(st.just("follow"), st.sampled_from(KILLS)),
    st.tuples(st.sampled_from(("rewind", "pause", "resume")), st.none()),
)


async def _live(target: Target, steps: list[tuple[str, Any]], terms: dict[str, Any]) -> None:
    async with world(target, **terms) as here:
        for what, how in steps:
            if what == "scrape":
                await here.scrape(how)
            elif what == "follow":
                await here.follow(how)
            elif what == "rewind":
                await here.book.order(NAME, rewound)
            else:
                paused = what == "pause"
                await here.book.order(NAME, lambda known, to=paused: msgspec.structs.replace(known, paused=to))
        await here.expect_equal()


def _live_through(name: str, steps: list[tuple[str, Any]], terms: dict[str, Any], request: Any = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_live(Target(name, Path(folder), request), steps, terms))


@pytest.mark.parametrize("terms", [{}, {"gone": "delete"}, {"history": "past"}], ids=["flags", "deletes", "history"])
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=12))
def test_a_table_equals_the_records_after_any_story(terms: dict[str, Any], steps: list[tuple[str, Any]]) -> None:
    _live_through("sqlite", steps, terms)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEP, max_size=12), gone=st.sampled_from(("flag", "delete")))
def test_files_equal_the_records_after_any_story(steps: list[tuple[str, Any]], gone: str) -> None:
    _live_through("folder-jsonl", steps, {"gone": gone})


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(STEP, max_size=25),
    terms=st.sampled_from(({}, {"gone": "delete"}, {"history": "past"}, {"history": "past", "gone": "delete"})),
)
def test_every_target_equals_the_records_after_any_story(
    request: pytest.FixtureRequest, name: str, steps: list[tuple[str, Any]], terms: dict[str, Any]
) -> None:
    if name == "postgres":
        request.getfixturevalue("postgres")
    if not Target(name, Path(), request).has_history:
        terms = {key: value for key, value in terms.items() if key != "history"}
    _live_through(name, steps, terms, request)


async def test_a_process_that_wakes_up_after_another_took_over_changes_nothing(tmp_path: Path) -> None:
    async with world(Target("sqlite", tmp_path, None), gone="delete") as here:  # type: ignore[arg-type]  # not needed
        await here.scrape({1: 1, 2: 1})
        sleeper, reached, wakes = here.follower("old"), asyncio.Event(), asyncio.Event()
        target = await sleeper._open()
        write = target.write

        async def sleepy(batch: Batch) -> list[Refused]:
            reached.set()
            await wakes.wait()
            return await write(batch)

        target.write = sleepy  # type: ignore[method-assign]
        sleeper._output = target
        sleeping = asyncio.ensure_future(sleeper._to_the_end())
        await reached.wait()
        await here.scrape({2: 2})  # product 1 is gone
        assert await here.follower("new").catch_up()

        wakes.set()

        with pytest.raises(LeaseLost):
            await sleeping
        assert set(await here.target.rows()) == {"k2"}


async def test_a_target_that_is_away_is_told_once_and_hurried_asked_each_second(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(Target("sqlite", tmp_path, None)) as here:  # type: ignore[arg-type]  # not needed
        await here.scrape({1: 1})
        follower, asked = here.follower(), list[float]()

        async def away() -> Output:
            asked.append(here.clock.now())
            raise BackendUnavailable("It is away.")

        follower._open = away
        follower.hurry()
        following = asyncio.ensure_future(follower.run())
        await until(lambda: len(asked) > 5, between=lambda: here.clock.advance(0.5 if here.clock.sleepers else 0))
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

        assert min(later - one for one, later in pairwise(asked)) >= 1
        assert caplog.text.count("It is away.") == 1
        progress = await here.book.progress.get(NAME)
        assert progress is not None
        assert progress.error.startswith("It is away.")


async def test_a_target_that_stays_away_has_a_process_that_waits_for_it_through_every_pause(tmp_path: Path) -> None:
    async with world(Target("sqlite", tmp_path, None)) as here:  # type: ignore[arg-type]  # not needed
        await here.scrape({1: 1})
        follower, asked, idle = here.follower(), list[float](), list[float]()

        async def away() -> Output:
            asked.append(here.clock.now())
            raise BackendUnavailable("It is away.")

        async def a_second_passes() -> None:
            if here.clock.sleepers:
                if await here.state.seeds.holder(follower.lease) is None:
                    idle.append(here.clock.now())
                here.clock.advance(1)

        follower._open = away
        following = asyncio.ensure_future(follower.run())
        await until(lambda: len(asked) > 8, between=a_second_passes)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

        assert asked[-1] - asked[-2] >= 60
        assert idle == []
        assert await here.state.seeds.holder(follower.lease) is None


async def test_an_error_that_nobody_foresaw_is_said_and_the_output_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(Target("sqlite", tmp_path, None)) as here:  # type: ignore[arg-type]  # not needed
        await here.scrape({1: 1})
        follower, failures = here.follower(), 2
        opens = follower._open

        async def mistaken() -> Output:
            nonlocal failures
            if not failures:
                return await opens()
            failures -= 1
            raise AttributeError("'tuple' object has no attribute 'row'")

        async def said() -> bool:
            progress = await here.book.progress.get(NAME)
            return progress is not None and progress.error.startswith("AttributeError: 'tuple' object has no attribute")

        follower._open = mistaken
        following = asyncio.ensure_future(follower.run())
        await until(said)
        await until(lambda: here.clock.sleepers)

        async def written() -> bool:
            progress = await here.book.progress.get(NAME)
            return progress is not None and progress.all_written_at is not None

        await until(written, between=lambda: here.clock.advance(0.5 if here.clock.sleepers else 0))
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

        assert set(await here.target.rows()) == {"k1"}
    assert caplog.text.count("The output shop waits: AttributeError") == 1
    assert "Traceback" in caplog.text


class Narrow(Output):
    """A target that takes so many rows, of so many bytes, and no more."""

    def __init__(self, most: int, *, bytes_at_once: int = 1 << 20, says_so: bool = False) -> None:
        self.most, self.bytes, self.says_so = most, bytes_at_once, says_so
        self.taken: list[list[str]] = []

    @property
    def bytes_at_once(self) -> int:
        return self.bytes

    async def check(self) -> str:
        return "It is narrow."

    async def write(self, batch: Batch) -> list[Refused]:
        if len(batch.changes) > self.most or any(one.row["stock"] == 13 for one in batch.changes):
            raise BatchRefused("It is too much.") if self.says_so else TimeoutError
        self.taken.append([one.identity[2] for one in batch.changes])
        return []


async def _until_all_written(here: World, follower: Follower) -> None:
    following = asyncio.ensure_future(follower.run())

    async def written() -> bool:
        progress = await here.book.progress.get(NAME)
        return progress is not None and progress.all_written_at is not None

    await until(written, between=lambda: here.clock.advance(0.5 if here.clock.sleepers else 0))
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_a_batch_is_bounded_by_bytes(tmp_path: Path) -> None:
    async with world(Target("sqlite", tmp_path, None)) as here:  # type: ignore[arg-type]  # not needed
        await here.scrape(dict.fromkeys(range(20), 1))
        follower, narrow = here.follower(), Narrow(20, bytes_at_once=2000)
        follower._open = lambda: opened(narrow)

        assert await follower.catch_up()

        assert sorted(key for keys in narrow.taken for key in keys) == sorted(f"k{number}" for number in range(20))
        assert {len(keys) for keys in narrow.taken[:-1]} <= {4, 5, 6}


async def test_the_row_that_a_target_cannot_take_is_found_and_is_a_dead_row(tmp_path: Path) -> None:
    async with world(Target("sqlite", tmp_path, None)) as here:  # type: ignore[arg-type]  # not needed
        await here.scrape({number: 13 if number == 7 else 1 for number in range(20)})
        follower, narrow = here.follower(), Narrow(6, says_so=True)
        follower._open = lambda: opened(narrow)

        assert await follower.catch_up()

        [dead] = await here.book.dead_rows(NAME)
        assert (dead.key, dead.reason) == ("k7", "It is too much.")
        assert sorted(key for keys in narrow.taken for key in keys) == sorted({f"k{n}" for n in range(20)} - {"k7"})


async def test_a_batch_that_fails_for_no_known_reason_comes_again_in_smaller_ones(tmp_path: Path) -> None:
    async with world(Target("sqlite", tmp_path, None)) as here:  # type: ignore[arg-type]  # not needed
        await here.scrape(dict.fromkeys(range(20), 1))
        follower, narrow = here.follower(), Narrow(3)
        follower._open = lambda: opened(narrow)

        await _until_all_written(here, follower)

        assert {key for keys in narrow.taken for key in keys} == {f"k{number}" for number in range(20)}
        assert await here.book.dead_rows(NAME) == []


async def test_a_small_row_for_which_a_target_has_no_memory_waits(tmp_path: Path) -> None:
    class Full(Narrow):
        async def write(self, batch: Batch) -> list[Refused]:
            raise BatchRefused("It has no memory for it.", too_large=True)

    async with world(Target("sqlite", tmp_path, None)) as here:  # type: ignore[arg-type]  # not needed
        await here.scrape({1: 1})
        follower = here.follower()
        follower._open = lambda: opened(Full(1))

        with pytest.raises(BackendUnavailable, match="no memory"):
            await follower.catch_up()

        assert await here.book.dead_rows(NAME) == []


async def opened(output: Output) -> Output:
    return output


async def test_what_is_ordered_to_be_erased_is_erased_although_it_was_in_hand(tmp_path: Path) -> None:
    async with world(Target("sqlite", tmp_path, None)) as here:  # type: ignore[arg-type]  # not needed
        await here.scrape({1: 1, 2: 1})
        await here.follow(None)
        one = ErasedRecord(type="Product", site="shop.example", key="k1", url=PAGE, data={})
        erasure = Erasure(id="e1", at=here.clock.now(), records=(one,), waiting=(NAME,))
        await here.state.shelf.commit([here.book.erasures.put("e1", erasure)])

        await here.follow("after write")
        await here.follow(None)

        assert set(await here.target.rows()) == {"k2"}
        assert await here.book.erasures.all() == []


async def test_a_row_of_a_type_that_is_no_longer_wanted_is_erased_too(tmp_path: Path) -> None:
    async with world(Target("sqlite", tmp_path, None)) as here:  # type: ignore[arg-type]  # not needed
        await here.scrape({1: 1, 2: 1})
        await here.follow(None)
        here.plan = here.target.plan(types=("Review",))
        one = ErasedRecord(type="Product", site="shop.example", key="k1", url=PAGE, data={})
        erasure = Erasure(id="e1", at=here.clock.now(), records=(one,), waiting=(NAME,))
        await here.state.shelf.commit([here.book.erasures.put("e1", erasure)])

        await here.follow(None)

        assert set(await here.target.rows()) == {"k2"}


async def test_a_field_of_another_type_is_written_and_the_state_says_which_column_has_changed(tmp_path: Path) -> None:
    async with world(Target("sqlite", tmp_path, None)) as here:  # type: ignore[arg-type]  # not needed
        await here.scrape({1: 1, 2: 1})
        await here.follow(None)
        broken = {**msgspec.json.decode(product(3, 1, NOW, "j").data), "stock": "plenty"}
        data = msgspec.json.encode(broken).decode()
        one = msgspec.structs.replace(product(3, 1, here.clock.now() + 2, "books-1"), data=data, content_hash=b"x" * 16)
        await here.records.save([result_of(one)])

        await here.follow(None)

        stocks = {key: row[2] for key, row in (await here.target.rows()).items()}
        assert stocks == {"k1": "1", "k2": "1", "k3": "plenty"}
        assert await here.book.dead_rows(NAME) == []
        progress = await here.book.progress.get(NAME)
        assert progress is not None
        [altered] = progress.altered
        assert altered.endswith("products has other types: stock is TEXT (INTEGER before).")


async def test_a_refused_row_is_a_dead_row_until_its_record_is_mended(tmp_path: Path) -> None:
    async with world(Target("sqlite", tmp_path, None)) as here:  # type: ignore[arg-type]  # not needed
        columns = "_type, _site, _key, title, price_amount, stock INTEGER, _gone_since"
        await here.target.query(f"CREATE TABLE products ({columns}, PRIMARY KEY (_type, _site, _key))")
        await here.scrape({1: 1, 2: 1})
        broken = {**msgspec.json.decode(product(3, 1, NOW, "j").data), "stock": "plenty"}
        data = msgspec.json.encode(broken).decode()
        one = msgspec.structs.replace(product(3, 1, here.clock.now() + 2, "books-1"), data=data, content_hash=b"x" * 16)
        await here.records.save([result_of(one)])
        await here.follow(None)
        [dead] = await here.book.dead_rows(NAME)
        assert (dead.key, "plenty" in dead.reason) == ("k3", True)

        await here.scrape({1: 1, 2: 1, 3: 1})
        await here.follow(None)

        assert await here.book.dead_rows(NAME) == []
        await here.expect_equal()

"""The shelf: rows by kind and key, changed together or not at all, listed by time, gone when they expire."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.backends.redis.shelf import RedisShelf
from gossamer.clock import VirtualClock
from gossamer.errors import LeaseLost
from gossamer.model.schedule import Term
from gossamer.model.shelf import ABSENT, DropRow, Put, ShelfKind, Trim

from .frontiers import Backends, Lab, redis_lab, sqlite_lab

TERM = timedelta(seconds=6)


@pytest.fixture(params=Backends.UNSHARDED)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


def put(key: str, value: str = "1", *, kind: str = "pen", **fields: object) -> Put:
    return Put(kind=kind, key=key, value=value.encode(), **fields)


async def keys(lab: Lab, kind: str = "pen") -> list[str]:
    return sorted([row.key async for row in lab.shelf.rows(kind)])


async def timed(lab: Lab, **terms: object) -> list[str]:
    return [row.key for row in await lab.shelf.timed("pen", **{"limit": 100, **terms})]


async def test_a_row_is_read_as_it_was_put(lab):
    await lab.shelf.commit([put("ä \0/", '{"ö": 1}', at=5.123456, until=lab.clock.now() + 9), put("", kind="ink")])

    row = await lab.shelf.get("pen", "ä \0/")

    assert (row.key, row.value, row.at, row.until) == ("ä \0/", '{"ö": 1}'.encode(), 5.123456, lab.clock.now() + 9)
    assert await keys(lab) == ["ä \0/"]
    assert await keys(lab, "ink") == [""]
    assert await lab.shelf.get("pen", "other") is None
    assert await lab.shelf.get("ink", "ä \0/") is None


async def test_a_change_of_a_row_that_was_changed_meanwhile_changes_nothing(lab):
    await lab.shelf.commit([put("a")])
    read = await lab.shelf.get("pen", "a")
    await lab.shelf.commit([put("a", "2")])

    assert not await lab.shelf.commit([put("b"), put("a", "3", expects=read.stamp)])
    assert not await lab.shelf.commit([put("b"), DropRow(kind="pen", key="a", expects=read.stamp)])

    assert (await lab.shelf.get("pen", "a")).value == b"2"
    assert await keys(lab) == ["a"]


async def test_a_row_that_was_dropped_and_made_again_does_not_look_unchanged(lab):
    await lab.shelf.commit([put("a")])
    read = await lab.shelf.get("pen", "a")
    await lab.shelf.commit([DropRow(kind="pen", key="a")])
    await lab.shelf.commit([put("a")])

    assert not await lab.shelf.commit([put("a", "3", expects=read.stamp)])


async def test_a_row_that_must_be_new_is_put_once(lab):
    done = await asyncio.gather(*(lab.shelf.commit([put("a", str(n), expects=ABSENT)]) for n in range(10)))

    assert done.count(True) == 1
    assert (await lab.shelf.get("pen", "a")).value == str(done.index(True)).encode()


async def test_concurrent_changes_of_one_row_all_count(lab):
    kind = ShelfKind(lab.shelf, "pen", int)

    await asyncio.gather(*(kind.change("a", lambda known: (known or 0) + 1) for _ in range(20)))

    assert await kind.get("a") == 20


async def test_a_change_keeps_the_times_of_the_row(lab):
    kind = ShelfKind(lab.shelf, "pen", int)
    await lab.shelf.commit([kind.put("a", 1, at=4.0, until=lab.clock.now() + 60)])

    await kind.change("a", lambda known: known + 1)

    row = await lab.shelf.get("pen", "a")
    assert (row.value, row.at, row.until) == (b"2", 4.0, lab.clock.now() + 60)


async def test_an_expired_row_is_as_good_as_dropped(lab):
    await lab.shelf.commit([put("a", at=1.0, until=lab.clock.now() + 10), put("b", at=2.0)])

    lab.clock.advance(10)

    assert await lab.shelf.get("pen", "a") is None
    assert await keys(lab) == ["b"]
    assert await timed(lab) == ["b"]
    assert await lab.shelf.commit([put("a", "new", expects=ABSENT)])
    assert await lab.shelf.count("pen") == 2


async def test_a_row_without_an_end_replaces_one_that_had_one(lab):
    await lab.shelf.commit([put("a", at=1.0, until=lab.clock.now() + 10)])
    await lab.shelf.commit([put("a", "kept")])

    lab.clock.advance(60)
    await lab.shelf.commit([put("b")])

    assert (await lab.shelf.get("pen", "a")).value == b"kept"
    assert await timed(lab) == []


async def test_rows_are_listed_by_time_from_after_until(lab):
    await lab.shelf.commit([put(key, at=at) for key, at in (("c", 3.0), ("a", 1.0), ("d", 3.0), ("b", 2.0))])
    await lab.shelf.commit([put("timeless"), put("other", at=2.0, kind="ink")])

    assert await timed(lab) == ["a", "b", "c", "d"]
    assert await timed(lab, after=1.0, until=3.0) == ["b", "c", "d"]
    assert await timed(lab, until=2.0) == ["a", "b"]
    assert await timed(lab, newest=True, limit=2) == ["d", "c"]
    assert await timed(lab, newest=True, after=1.0, until=2.0) == ["b"]


@pytest.fixture
def few_at_once(monkeypatch):
    monkeypatch.setattr("gossamer.backends.redis.shelf.IDS_AT_ONCE", 3)


async def test_rows_are_chosen_by_the_beginning_of_their_keys(lab, few_at_once):
    await lab.shelf.commit([put(f"{'ab'[n % 2]} {n:02}", at=float(n)) for n in range(20)])

    assert await timed(lab, prefix="a ") == [f"a {n:02}" for n in range(0, 20, 2)]
    assert await timed(lab, prefix="b ", newest=True, limit=3) == ["b 19", "b 17", "b 15"]
    assert await timed(lab, prefix="%") == []


async def test_no_group_of_keys_takes_more_than_its_share(lab, few_at_once):
    await lab.shelf.commit([put(f"a{n:02}", at=float(n)) for n in range(20)])
    await lab.shelf.commit([put("b00", at=100.0), put("c00", at=101.0)])

    assert await timed(lab, each=2, group=1) == ["a00", "a01", "b00", "c00"]
    assert await timed(lab, each=2, group=1, limit=3) == ["a00", "a01", "b00"]
    assert await timed(lab, each=1, group=1, newest=True) == ["c00", "b00", "a19"]


async def test_trimming_keeps_the_newest_rows(lab):
    await lab.shelf.commit([put(f"{n}", at=float(n)) for n in range(5)] + [put("timeless")])

    await lab.shelf.commit([Trim(kind="pen", keep=2)])

    assert await keys(lab) == ["3", "4", "timeless"]
    assert await timed(lab) == ["3", "4"]


async def test_a_commit_changes_several_kinds_at_once(lab):
    await lab.shelf.commit([put("a")])

    assert await lab.shelf.commit([DropRow(kind="pen", key="a"), put("a", kind="ink", at=1.0)])
    assert not await lab.shelf.commit([DropRow(kind="ink", key="a"), put("b", expects=b"12345678")])

    assert await keys(lab) == []
    assert await keys(lab, "ink") == ["a"]


async def test_only_the_scheduler_that_leads_changes_rows_under_its_term(lab):
    term = await lab.ticks.lead("one", TERM)
    assert await lab.shelf.commit([put("a")], term)

    for other in (Term("two", term.token, term.until), Term("one", term.token + 1, term.until)):
        with pytest.raises(LeaseLost):
            await lab.shelf.commit([put("b")], other)
    lab.clock.advance(TERM.total_seconds())
    with pytest.raises(LeaseLost):
        await lab.shelf.commit([put("b")], term)

    assert await keys(lab) == ["a"]


async def test_many_rows_come_in_batches(lab, monkeypatch):
    monkeypatch.setattr("gossamer.backends.sqlite.shelf.BATCH", 7)
    await lab.shelf.commit([put(f"{n:03}") for n in range(50)])

    assert await keys(lab) == [f"{n:03}" for n in range(50)]
    assert await lab.shelf.count("pen") == 50


async def test_another_process_sees_the_same_shelf(lab):
    await lab.shelf.commit([put("a", at=1.0)])

    async with lab.again() as other:
        assert (await other.shelf.get("pen", "a")).value == b"1"
        assert await other.shelf.commit([put("a", "2")])

    assert (await lab.shelf.get("pen", "a")).value == b"2"


# -- both backends tell the same story --------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "c"])
KINDS = st.sampled_from(["pen", "ink"])
TIMES = st.none() | st.sampled_from([1.0, 2.0, 2.5])
ENDS = st.none() | st.sampled_from([5.0, 10.0])  # seconds from the start
PUTS = st.tuples(st.just("put"), KINDS, KEYS, TIMES, ENDS, st.sampled_from(["any", "absent", "read", "stale"]))
DROPS = st.tuples(st.just("drop"), KINDS, KEYS, st.none(), st.none(), st.sampled_from(["any", "read", "stale"]))
TRIMS = st.tuples(st.just("trim"), KINDS, st.integers(0, 2), st.none(), st.none(), st.just("any"))
CHANGES = st.lists(PUTS | DROPS | TRIMS, min_size=1, max_size=4)
STEPS = st.lists(st.tuples(CHANGES, st.sampled_from([0, 3])), max_size=12)


async def play(lab: Lab, steps: list) -> list:
    """What a sequence of commits shows of the shelf after each of them."""
    begun, story = lab.clock.now(), []
    for number, (changes, seconds) in enumerate(steps):
        made = []
        for verb, kind, key, at, end, expects in changes:
            stamp = {"any": None, "absent": ABSENT, "stale": b"otherone"}.get(expects)
            if expects == "read":
                row = await lab.shelf.get(kind, key)
                stamp = row.stamp if row is not None else ABSENT
            until = None if end is None else begun + end
            match verb:
                case "put":
                    made.append(put(key, str(number), kind=kind, at=at, until=until, expects=stamp))
                case "drop":
                    made.append(DropRow(kind=kind, key=key, expects=stamp))
                case "trim":
                    made.append(Trim(kind=kind, keep=key))
        story.append(await lab.shelf.commit(made))
        lab.clock.advance(seconds)
        for kind in ("pen", "ink"):
            found = [(row.key, row.value, row.at) async for row in lab.shelf.rows(kind)]
            story.append(sorted(found, key=lambda row: row[0]))
            story.append([row.key for row in await lab.shelf.timed(kind, limit=10)])
    return story


def test_every_backend_tells_the_same_story(backends, tmp_path_factory):
    @settings(max_examples=60, deadline=None)
    @given(STEPS)
    def check(steps):
        async def compare() -> None:
            async with (
                sqlite_lab(tmp_path_factory.mktemp("shelf"), VirtualClock()) as one,
                redis_lab(backends.address("valkey"), clock=VirtualClock()) as other,
            ):
                assert isinstance(other.shelf, RedisShelf)
                assert await play(one, steps) == await play(other, steps)

        asyncio.run(compare())

    check()

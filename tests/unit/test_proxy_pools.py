"""All pools of a process beside a real book: proxies are taken, reports reach the others, what must rest rests."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gossamer.backends.sqlite.connection import Database
from gossamer.backends.sqlite.proxies import SqliteProxyBook
from gossamer.backends.sqlite.state import APPLICATION_ID
from gossamer.clock import SystemClock, VirtualClock
from gossamer.errors import AllProxiesRest, BackendUnavailable, Misconfigured
from gossamer.model import events
from gossamer.model.route import Proxy, ProxyOutcome
from gossamer.routing.proxies.pools import Pools, without_secrets
from gossamer.settings import ProxyPool
from gossamer.units import Secret
from tests.patience import PATIENCE, until

OK, BANNED, FAILED = ProxyOutcome.OK, ProxyOutcome.BANNED, ProxyOutcome.FAILED
PAGE = b"\x07" * 16
PASSWORD = "s3cr3t-pa55"


def listed(count: int, **terms: Any) -> ProxyPool:
    return ProxyPool(urls=tuple(Secret(f"http://ann:{PASSWORD}@x{n}.example:80") for n in range(count)), **terms)


def gateway(**terms: Any) -> ProxyPool:
    usual = {"user": Secret("ann"), "password": Secret(PASSWORD), "username": "{user}-{session}[-{country}]"}
    return ProxyPool(gateway="http://gate.example:8000", **{**usual, **terms})


class Heard:
    """Troubles that were told."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def emit(self, event: events.Event) -> None:
        assert isinstance(event, events.Trouble)
        self.words.append(event.message)


class Bench:
    """A state file, a clock, and as many workers as a test wants."""

    def __init__(self, folder: Path, book: SqliteProxyBook, clock: VirtualClock | SystemClock) -> None:
        self.folder, self.book, self.clock = folder, book, clock
        self.heard = Heard()

    def worker(self, book: Any = None, environ: dict[str, str] | None = None, **pools: ProxyPool) -> Pools:
        return Pools(
            pools,
            book or self.book,
            self.clock,
            project="books",
            root=self.folder,
            environ=environ or {},
            troubles=self.heard,
        )


@asynccontextmanager
async def opened(folder: Path, clock: VirtualClock | SystemClock) -> AsyncIterator[Bench]:
    database = Database(
        folder / "state.db",
        schema="state",
        application_id=APPLICATION_ID,
        durable=False,
        linger=timedelta(0),
        role="state",
    )
    async with database:
        yield Bench(folder, SqliteProxyBook(database, clock), clock)


@pytest.fixture
async def bench(tmp_path):
    """With a clock that only the test moves: what happens beside the pages happens when it says `flush`."""
    async with opened(tmp_path, VirtualClock()) as made:
        yield made


@pytest.fixture
async def live(tmp_path):
    """With the real clock."""
    async with opened(tmp_path, SystemClock()) as made:
        yield made


async def take(pools: Pools, pool: str = "p", site: str = "shop.example", page: bytes = PAGE, **options: Any) -> Proxy:
    return await pools.take(pool, site=site, fingerprint=page, **options)


# -- taking ------------------------------------------------------------------------------------------------------


async def test_proxies_of_a_datacenter_pool_take_turns(bench):
    async with bench.worker(p=listed(4)) as pools:
        taken = Counter([(await take(pools)).name for _ in range(40)])

    assert taken == {f"http://x{n}.example:80": 10 for n in range(4)}


async def test_a_failing_proxy_is_taken_less_often_and_a_new_one_is_trusted(bench):
    async with bench.worker(p=listed(2, cooldown=timedelta(seconds=1))) as pools:
        for _ in range(40):
            one = await take(pools)
            pools.report(one, FAILED if one.host == "x0.example" and _ % 3 else OK)
        bench.clock.advance(3600)
        taken = Counter([(await take(pools)).host for _ in range(100)])

    assert 5 <= taken["x0.example"] < 45


async def test_a_residential_pool_keeps_its_proxy_for_a_site_in_every_worker(bench):
    terms = listed(20, kind="residential")
    async with bench.worker(p=terms) as one, bench.worker(p=terms) as other:
        first = {(await take(pools, site="a.example")).name for pools in (one, other) for _ in range(20)}
        spread = {(await take(one, site=f"{n}.example")).name for n in range(50)}

    assert len(first) == 1
    assert len(spread) > 10


async def test_a_banned_proxy_is_never_taken_until_it_wakes(bench):
    async with bench.worker(p=listed(3)) as pools:
        banned = await take(pools)
        pools.report(banned, BANNED)

        assert banned.name not in {(await take(pools)).name for _ in range(30)}
        bench.clock.advance(60)
        assert banned.name in {(await take(pools)).name for _ in range(30)}


async def test_when_all_proxies_rest_the_wait_is_told_and_nothing_else_is_given(bench):
    async with bench.worker(p=listed(3)) as pools:
        for _ in range(3):
            pools.report(await take(pools), BANNED)
            bench.clock.advance(10)

        with pytest.raises(AllProxiesRest) as resting:
            await take(pools)
        assert resting.value.wait == timedelta(seconds=30)  # the first was banned half a minute ago
        assert "All 3 proxies of pool p" in str(resting.value)
        bench.clock.advance(30)
        assert (await take(pools)).host == "x0.example"


async def test_a_long_rest_is_looked_at_again_within_minutes(bench):
    async with bench.worker(p=listed(1, cooldown=timedelta(hours=1))) as pools:
        pools.report(await take(pools), BANNED)

        with pytest.raises(AllProxiesRest) as resting:
            await take(pools)
    assert resting.value.wait == timedelta(minutes=5)


async def test_an_unknown_pool_is_told_with_those_that_are_there(bench):
    async with bench.worker(fast=listed(1), slow=listed(1)) as pools:
        with pytest.raises(Misconfigured, match=r"no proxy pool 'quick'.*fast, slow.*\[proxies.quick\]"):
            await take(pools, "quick")
        with pytest.raises(Misconfigured, match="no proxy pool"):
            await pools.prepare(["fast", "quick"])


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"kind": "mobile"}, "kind must be"),
        ({"cooldown": timedelta(0)}, "cooldown must be"),
        ({"max_cooldown": timedelta(seconds=1)}, "cooldown must be"),
    ],
)
async def test_settings_that_make_no_sense_are_refused(bench, terms, words):
    async with bench.worker(p=listed(1, **terms), g=gateway(**terms)) as pools:
        for name in ("p", "g"):
            with pytest.raises(Misconfigured, match=words):
                await pools.prepare([name])


# -- another proxy for another try ----------------------------------------------------------------------------------


async def test_another_try_takes_another_proxy_also_in_another_process(bench):
    async with bench.worker(p=listed(3)) as one, bench.worker(p=listed(3)) as other:
        first = await take(one)
        one.report(first, FAILED, fingerprint=PAGE)
        assert first.name not in {(await take(one)).name for _ in range(10)}  # this process knows at once

        await one.flush()
        found = [(await take(other, attempt=1)).name for _ in range(10)]
        assert first.name not in found
        assert first.name in {(await take(other, attempt=1, page=b"\x08" * 16)).name for _ in range(10)}


async def test_an_proxy_is_used_again_when_a_page_has_tried_all_and_that_is_told_once(bench):
    async with bench.worker(p=listed(2)) as pools:
        for name in range(2):
            one = await take(pools)
            pools.report(one, FAILED, fingerprint=PAGE)
            assert one.host == f"x{name}.example"

        for _ in range(5):
            assert (await take(pools, attempt=2)).host in ("x0.example", "x1.example")
    assert len(bench.heard.words) == 1
    assert "every proxy of pool p" in bench.heard.words[0]


async def test_what_the_caller_wants_to_avoid_is_avoided(bench):
    async with bench.worker(p=listed(2), r=listed(5, kind="residential")) as pools:
        assert {(await take(pools, avoid=["http://x0.example:80"])).host for _ in range(5)} == {"x1.example"}
        first = await take(pools, "r")
        assert (await take(pools, "r", avoid=[first.name])).name != first.name


async def test_a_key_of_the_spider_keeps_its_proxy_also_when_a_page_is_tried_again(bench):
    async with bench.worker(p=listed(20)) as one, bench.worker(p=listed(20)) as other:
        first = await take(one, session="basket-1")
        one.report(first, FAILED, fingerprint=PAGE)
        await one.flush()

        assert await take(other, site="other.example", session="basket-1", attempt=1) == first
        assert len({(await take(one, session=f"basket-{n}")).name for n in range(30)}) > 5

        one.report(first, BANNED)
        assert (await take(one, session="basket-1")).name != first.name


# -- gateways ------------------------------------------------------------------------------------------------------


async def test_a_gateway_gives_each_task_a_session_of_its_own(bench):
    async with bench.worker(g=gateway()) as pools:
        found = [await take(pools, "g", country="de" if n % 2 else None) for n in range(10)]

    assert len({one.identity for one in found}) == 10
    assert {one.address for one in found} == {"http://gate.example:8000"}
    assert found[1].username.endswith("-de")
    assert found[0].username == f"ann-{found[0].name.partition('#')[2]}"


async def test_a_session_for_each_site_is_the_same_in_every_worker_until_it_is_banned(bench):
    async with bench.worker(g=gateway(session="site")) as one, bench.worker(g=gateway(session="site")) as other:
        first = await take(one, "g")
        assert await take(other, "g") == first
        assert (await take(one, "g", site="other.example")).name != first.name

        # Both see the ban; it is one ban.
        one.report(first, BANNED)
        other.report(first, BANNED)
        await one.flush()
        await other.flush()
        second = await take(one, "g")
        assert second.name != first.name
        assert await take(other, "g") == second

    # A process that starts later knows it, too.
    async with bench.worker(g=gateway(session="site")) as late:
        assert await take(late, "g") == second


async def test_another_try_gets_another_session_of_the_site_and_a_key_keeps_its_own(bench):
    async with bench.worker(g=gateway(session="site")) as pools:
        first = await take(pools, "g")
        pools.report(first, FAILED, fingerprint=PAGE)
        again = await take(pools, "g", attempt=1)
        assert again.name != first.name
        assert (await take(pools, "g", page=b"\x09" * 16)).name == first.name

        chosen = await take(pools, "g", session="ann")
        pools.report(chosen, FAILED, fingerprint=PAGE)
        assert await take(pools, "g", session="ann", attempt=2) == chosen
        pools.report(chosen, BANNED)
        assert (await take(pools, "g", session="ann")).name != chosen.name


async def test_a_session_with_a_stay_changes_in_time(bench):
    async with bench.worker(g=gateway(session="site", stay=timedelta(minutes=5))) as pools:
        first = await take(pools, "g")
        assert await take(pools, "g") == first
        bench.clock.advance(300)
        assert (await take(pools, "g")).name != first.name


async def test_bans_behind_a_gateway_are_counted_and_it_goes_on_but_a_dead_gateway_rests(bench):
    async with bench.worker(g=gateway()) as pools:
        for _ in range(30):
            pools.report(await take(pools, "g"), BANNED, received=10)
        await pools.flush()
        (health,) = await bench.book.health("g")
        assert (health.name, health.bans, health.bytes) == ("http://gate.example:8000", 30, 300)

        for _ in range(20):
            pools.report(await take(pools, "g"), FAILED)
        with pytest.raises(AllProxiesRest, match="The gateway of pool g"):
            await take(pools, "g")


# -- telling and hearing ---------------------------------------------------------------------------------------------


async def test_what_is_left_is_told_when_the_worker_goes(bench):
    async with bench.worker(p=listed(1)) as pools:
        one = await take(pools)
        for _ in range(1000):
            pools.report(one, OK, seconds=0.25, received=100, credits=0.5)

    (health,) = await bench.book.health("p")
    assert (health.tries, health.successes, health.bytes, health.credits) == (1000, 1000, 100_000, 500.0)
    assert health.latency == pytest.approx(0.25)


async def test_a_ban_is_in_the_book_at_once_and_other_workers_learn_of_it_within_seconds(live):
    async with live.worker(p=listed(2)) as one, live.worker(p=listed(2)) as other:
        await other.prepare(["p"])
        banned = await take(one)
        one.report(banned, BANNED)

        async def is_known() -> bool:
            return banned.name not in {(await take(other)).name for _ in range(4)}

        await until(is_known)


def ban_one(folder: str) -> None:
    """The life of another worker process: it takes a proxy, and is banned."""

    async def live() -> None:
        async with opened(Path(folder), SystemClock()) as bench, bench.worker(p=listed(2)) as pools:
            pools.report(await take(pools), BANNED, fingerprint=PAGE)

    asyncio.run(live())


async def test_what_another_process_has_seen_counts_here(live):
    async with live.worker(p=listed(2)) as pools:
        await pools.prepare(["p"])
        process = multiprocessing.get_context("spawn").Process(target=ban_one, args=(str(live.folder),))
        process.start()

        async def is_known() -> bool:
            return {(await take(pools)).host for _ in range(4)} == {"x1.example"}

        await until(is_known)
        await asyncio.to_thread(process.join, PATIENCE)
        assert process.exitcode == 0
        assert await live.book.used(PAGE) == ("http://x0.example:80",)


async def test_successes_reach_the_book_by_themselves(live):
    async with live.worker(p=listed(1)) as pools:
        pools.report(await take(pools), OK)

        async def is_told() -> bool:
            return bool(await live.book.health("p"))

        await until(is_told)


async def test_a_reset_ends_the_rests_of_workers_that_run(bench):
    async with bench.worker(p=listed(1, cooldown=timedelta(hours=1))) as pools:
        pools.report(await take(pools), BANNED)
        await pools.flush()
        with pytest.raises(AllProxiesRest):
            await take(pools)

        assert await bench.book.reset("p") == 1
        began = bench.clock.now()

        async def is_awake() -> bool:
            bench.clock.advance(1)
            try:
                return bool(await take(pools))
            except AllProxiesRest:
                return False

        await until(is_awake)
        assert bench.clock.now() - began < 3600  # and not because its rest is over


async def test_what_was_counted_here_and_not_told_yet_survives_what_is_heard(bench):
    async with bench.worker(p=listed(2)) as one, bench.worker(p=listed(2)) as other:
        banned = await take(one)
        other.report(await take(other), OK)
        await other.flush()
        one.report(banned, BANNED)
        await one._hear_all(whole=True)  # as the clock would have it, before the ban was told

        assert banned.name not in {(await take(one)).name for _ in range(4)}


class Away:
    """A book that does not answer while `away`."""

    def __init__(self, book: SqliteProxyBook) -> None:
        self._book = book
        self.away = False

    def __getattr__(self, verb: str) -> Any:
        if self.away:
            raise BackendUnavailable("The state is away.")
        return getattr(self._book, verb)


async def test_while_the_book_is_away_proxies_are_taken_and_reports_wait(bench):
    book = Away(bench.book)
    async with bench.worker(book, p=listed(3)) as pools:
        await pools.prepare(["p"])
        book.away = True
        banned = await take(pools)
        pools.report(banned, BANNED, fingerprint=PAGE)
        for n in range(500):
            pools.report(await take(pools), OK if n % 2 else FAILED)
        with pytest.raises(BackendUnavailable):
            await pools.flush()
        assert banned.name not in {(await take(pools)).name for _ in range(4)}
        with pytest.raises(BackendUnavailable):
            await take(pools, attempt=1)  # which proxies the page has tried elsewhere cannot be known

        book.away = False
        await pools.flush()

    health = {one.name: one for one in await bench.book.health("p")}
    assert health[banned.name].bans == 1
    assert sum(one.tries for one in health.values()) == 501
    assert await bench.book.used(PAGE) == (banned.name,)


# -- files that change -------------------------------------------------------------------------------------------------


async def test_a_file_is_read_again_when_it_changes_and_kept_while_it_is_wrong(bench):
    file = bench.folder / "list.txt"
    file.write_text("a.example:1\n", encoding="utf-8")
    async with bench.worker(p=ProxyPool(file="list.txt")) as pools:
        assert (await take(pools)).host == "a.example"

        file.write_text("b.example:1\nb.example:2\n", encoding="utf-8")

        async def is_read() -> bool:
            bench.clock.advance(1)
            return (await take(pools)).host == "b.example"

        await until(is_read)

        file.write_text(f"ann:{PASSWORD}@c.example\n", encoding="utf-8")

        async def is_told() -> bool:
            bench.clock.advance(1)
            return bool(bench.heard.words)

        await until(is_told)
        assert (await take(pools)).host == "b.example"
        assert "list.txt line 1" in bench.heard.words[0]
        assert PASSWORD not in bench.heard.words[0]


# -- secrets -----------------------------------------------------------------------------------------------------------


async def test_words_of_a_failure_are_kept_without_the_secret(bench):
    async with bench.worker(p=listed(1)) as pools:
        one = await take(pools)
        pools.report(one, FAILED, words=f"407 from {one.identity}\nYW5uOnMzY3IzdC1wYTU1 {PASSWORD} refused" + "x" * 500)

    (health,) = await bench.book.health("p")
    assert PASSWORD not in health.last_error
    assert "YW5uOnMzY3IzdC1wYTU1" not in health.last_error  # the pair as a header has it
    assert health.last_error.startswith("407 from http://***")
    assert len(health.last_error) == 200


def test_secrets_are_found_in_the_spelling_of_an_address():
    one = Proxy(pool="p", name="x", scheme="http", host="x.example", port=1, username="a@b.example", password="p/w#1")

    assert without_secrets("http://a%40b.example:p%2Fw%231@x.example", one) == "http://***:***@x.example"

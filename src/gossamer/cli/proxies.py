"""`gossamer proxies`: how the exits of every pool fare; a try of each of them; and how to end their rests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from ..clock import SystemClock, iso_time
from ..errors import GossamerError, Misconfigured
from ..fetch.addresses import GuardedResolver
from ..fetch.contract import TransportRequest
from ..fetch.proxy_check import knock
from ..model.route import Exit
from ..project.open import is_crawled
from ..project.transports import guard_of
from ..project.wiring import open_transport
from ..routing.proxies.contract import ExitHealth
from ..routing.proxies.pool import GatewayPool, ListedPool, open_pool
from ..routing.proxies.pools import without_secrets
from ..settings import Settings
from ..settings.effective import limits_of
from ..text import distance, many, size, span, visible
from .app import app, err, open_crawled, out, run_async, settings_with
from .crawl import allow_local
from .groups import ShowsByDefault
from .layout import Column, advise, heading, number, print_json, print_table
from .typed import typed_url

EXITS_SHOWN = 50
TRIES_AT_ONCE = 32
FAILING = 0.5  # an exit that succeeds less often than that, of late

proxies_app = typer.Typer(help="The exits of proxy pools: how they fare, and whether they work.", cls=ShowsByDefault)
app.add_typer(proxies_app, name="proxies")

PoolArgument = Annotated[str | None, typer.Argument(help="Only this pool.")]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]


class ExitLine(msgspec.Struct, frozen=True, kw_only=True):
    """An exit, and how it fares; None when it was never used. `listed`: it is in the pool's sources now."""

    pool: str
    name: str
    health: ExitHealth | None
    listed: bool = True

    def state(self, now: float) -> str:
        if not self.listed:
            return "not listed"
        if self.health is None:
            return "new"
        if self.health.rest_until > now:
            return "resting"
        return "failing" if self.health.run <= -3 or self.health.score < FAILING else "ok"


class PoolLines(msgspec.Struct, frozen=True, kw_only=True):
    """A pool with its exits. `trouble` says why its sources cannot be read."""

    name: str
    kind: str
    lines: Sequence[ExitLine]
    trouble: str = ""

    def total(self, figure: str) -> Any:
        return sum(getattr(line.health, figure) for line in self.lines if line.health is not None)

    @property
    def latency(self) -> float | None:
        """The mean of its exits', by their successes."""
        known = [line.health for line in self.lines if line.health is not None and line.health.latency is not None]
        successes = sum(one.successes for one in known)
        return sum((one.latency or 0.0) * one.successes for one in known) / successes if successes else None


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What came of trying an exit. `words` are the answer, or why there was none."""

    pool: str
    exit: str
    ok: bool
    words: str
    seconds: float


@proxies_app.command("show")
def show_verb(
    pool: PoolArgument = None,
    limit: Annotated[int, typer.Option(min=1, help="Show so many exits of each pool.")] = EXITS_SHOWN,
    as_json: JsonOption = False,
) -> None:
    """How every exit fares: does it rest, how often did it succeed, what went through it and what did that cost?"""
    settings = settings_with()
    names = _chosen(settings, pool)
    if not names and not as_json:
        out.print("There are no proxy pools. Write a table [proxies.NAME] in gossamer.toml.", markup=False)
        return
    pools, now = run_async(_find(settings, names))
    if as_json:
        print_json([_as_json(one, now) for one in pools])
        return
    _show_pools(pools, now)
    for one in pools:
        _show_exits(one, now, limit)
    if any(line.state(now) in ("resting", "failing") for one in pools for line in one.lines):
        advise(
            ("gossamer proxies check", "try every exit now"),
            ("gossamer proxies reset", "end all rests, and forget these figures"),
        )


@proxies_app.command("check")
def check_verb(
    pool: PoolArgument = None,
    url: Annotated[str | None, typer.Option(help="Fetch this page through each exit.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Try every exit: is it there, does it let us in, and with --url, does the page come? Exit code 1 when none works.

    Nothing of it counts as health: exits that rest go on resting.
    """
    settings = settings_with()
    names = _chosen(settings, pool)
    if not names:
        raise Misconfigured("There are no proxy pools. Write a table [proxies.NAME] in gossamer.toml.")
    page = typed_url(url) if url is not None else None
    if page is not None:
        settings = allow_local(settings, [page], {})
    tried = run_async(_try_all(settings, names, page))
    if as_json:
        print_json([msgspec.structs.asdict(one) for one in tried])
    else:
        _show_tried(tried)
    if not any(one.ok for one in tried):
        raise typer.Exit(1)


@proxies_app.command("reset")
def reset_verb(pool: PoolArgument = None) -> None:
    """End the rests of all exits and forget how they fared; workers that run notice it within seconds."""
    settings = settings_with()

    async def reset() -> int:
        async with open_crawled(settings) as project:
            return await project.state.exits.reset(pool)

    count = run_async(reset())
    if not count and pool is not None:
        _chosen(settings, pool)  # a pool that is not there was mistyped
    out.print(f"{many(count, 'exit')} forgotten: all are as good as new.", markup=False)


def _chosen(settings: Settings, pool: str | None) -> list[str]:
    if pool is None:
        return list(settings.proxies)
    if pool not in settings.proxies:
        known = ", ".join(settings.proxies) or "none yet"
        raise Misconfigured(f"There is no proxy pool {visible(pool)!r}; in gossamer.toml there is {known}.")
    return [pool]


# -- how they fare -----------------------------------------------------------------------------------------------


async def _find(settings: Settings, names: Sequence[str]) -> tuple[list[PoolLines], float]:
    health: dict[str, list[ExitHealth]] = {}
    now = SystemClock().now()
    if is_crawled(settings):  # looking must not create files
        async with open_crawled(settings) as project:
            health = {name: await project.state.exits.health(name) for name in names}
            now = project.clock.now()
    return [_pool_lines(settings, name, health.get(name, []), now) for name in names], now


def _pool_lines(settings: Settings, name: str, rows: Sequence[ExitHealth], now: float) -> PoolLines:
    known = {row.name: row for row in rows}
    trouble = ""
    listed: list[str] = []
    try:
        listed = _names_of(_open(settings, name))
    except Misconfigured as error:
        trouble = str(error)
    lines = [ExitLine(pool=name, name=one, health=known.pop(one, None)) for one in listed]
    lines += [ExitLine(pool=name, name=row.name, health=row, listed=False) for row in known.values()]
    lines.sort(key=lambda line: (line.state(now) != "resting", -(line.health.tries if line.health else 0)))
    return PoolLines(name=name, kind=settings.proxies[name].kind, lines=lines, trouble=trouble)


def _open(settings: Settings, name: str) -> ListedPool | GatewayPool:
    return open_pool(name, settings.proxies[name], settings.root, os.environ, 0.0, settings.project)


def _names_of(pool: ListedPool | GatewayPool) -> list[str]:
    return [pool.door.name] if isinstance(pool, GatewayPool) else [one.name for one in pool.exits]


def _show_pools(pools: Sequence[PoolLines], now: float) -> None:
    print_table(
        (Column("POOL", "bold"), Column("KIND"), Column("EXITS", right=True), Column("RESTING", right=True),
         Column("TRIES", right=True), Column("SUCCESS", "green", right=True), Column("BANS", "red", right=True),
         Column("LATENCY", right=True, spare=True), Column("RECEIVED", right=True), Column("COST", right=True)),
        [
            (one.name, one.kind, number(sum(line.listed for line in one.lines)),
             number(sum(line.state(now) == "resting" for line in one.lines)), number(one.total("tries")),
             _share(one.total("successes"), one.total("tries")), number(one.total("bans")), _seconds(one.latency),
             _received(one.total("bytes")), _tokens(one.total("tokens")))
            for one in pools
        ],
    )  # fmt: skip
    for one in pools:
        if one.trouble:
            err.print(Text(visible(one.trouble), style="yellow"), soft_wrap=True)


def _show_exits(pool: PoolLines, now: float, limit: int) -> None:
    if not pool.lines:
        return
    out.print()
    heading(pool.name)
    print_table(
        (Column("EXIT", "bold"), Column("STATE"), Column("TRIES", right=True), Column("SUCCESS", "green", right=True),
         Column("BANS", "red", right=True), Column("LATENCY", right=True, spare=True),
         Column("RECEIVED", right=True), Column("COST", right=True, spare=True), Column("LAST TROUBLE", fold=True)),
        [_exit_row(line, now) for line in pool.lines[:limit]],
        indent=2,
    )  # fmt: skip
    if len(pool.lines) > limit:
        out.print(f"  ... and {many(len(pool.lines) - limit, 'exit')} more; --limit shows them.", markup=False)


def _exit_row(line: ExitLine, now: float) -> tuple[str, ...]:
    state, one = line.state(now), line.health
    if one is None:
        return line.name, state, number(0), "", number(0), "", "", "", ""
    if state == "resting":
        until = distance(one.rest_until, now) if out.is_terminal else iso_time(one.rest_until)
        state = f"resting until {until}" if not out.is_terminal else f"resting, awake {until}"
    return (
        line.name,
        state,
        number(one.tries),
        _share(one.successes, one.tries),
        number(one.bans),
        _seconds(one.latency),
        _received(one.bytes),
        _tokens(one.tokens),
        one.last_error,
    )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else ""


def _seconds(latency: float | None) -> str:
    return "" if latency is None else f"{latency * 1000:.0f} ms" if latency < 1 else span(latency)


def _received(count: int) -> str:
    return size(count) if out.is_terminal else str(count)


def _tokens(amount: float) -> str:
    text = f"{amount:,.3f}" if out.is_terminal else f"{amount:.9f}"
    return text.rstrip("0").rstrip(".")


def _as_json(pool: PoolLines, now: float) -> dict[str, Any]:
    exits = []
    for line in pool.lines:
        one = line.health or ExitHealth(name=line.name)
        exits.append(
            {
                "exit": line.name,
                "state": line.state(now),
                "resting_until": iso_time(one.rest_until) if one.rest_until > now else None,
                "tries": one.tries,
                "successes": one.successes,
                "failures": one.failures,
                "bans": one.bans,
                "strikes": one.strikes,
                "latency": one.latency,
                "bytes": one.bytes,
                "cost": one.tokens,
                "last_error": one.last_error or None,
                "last_used": iso_time(one.changed_at) if one.changed_at else None,
            }
        )
    return {
        "pool": pool.name,
        "kind": pool.kind,
        "trouble": pool.trouble or None,
        "resting": sum(line.state(now) == "resting" for line in pool.lines),
        "tries": pool.total("tries"),
        "successes": pool.total("successes"),
        "bans": pool.total("bans"),
        "latency": pool.latency,
        "bytes": pool.total("bytes"),
        "cost": pool.total("tokens"),
        "exits": exits,
    }


# -- trying them -------------------------------------------------------------------------------------------------


async def _try_all(settings: Settings, names: Sequence[str], url: str | None) -> list[Tried]:
    exits: list[Exit] = []
    for name in names:
        pool = _open(settings, name)
        exits += [pool.sample()] if isinstance(pool, GatewayPool) else pool.exits
    if url is None:
        resolver = GuardedResolver(guard_of(settings))
        try:
            return await _each(exits, lambda one: _knock(settings, one, resolver))
        finally:
            await resolver.close()
    limits, headers = limits_of(settings), (("User-Agent", settings.fetch.user_agent),)
    async with open_transport(settings) as transport:

        async def fetch(one: Exit) -> tuple[bool, str]:
            response = await transport.fetch(TransportRequest(url=url, headers=headers, limits=limits, exit=one))
            return response.status < 400, f"{response.status}, {size(response.wire_bytes)}"

        return await _each(exits, fetch)


async def _knock(settings: Settings, one: Exit, resolver: GuardedResolver) -> tuple[bool, str]:
    await knock(one, guard_of(settings), resolver, settings.fetch.connect_timeout)
    return True, "lets us in"


async def _each(exits: Sequence[Exit], attempt: Callable[[Exit], Awaitable[tuple[bool, str]]]) -> list[Tried]:
    """Some at a time; the answers are in the order of the exits."""
    room, clock = asyncio.Semaphore(TRIES_AT_ONCE), SystemClock()

    async def one_try(one: Exit) -> Tried:
        async with room:
            began = clock.monotonic()
            try:
                ok, words = await attempt(one)
            except GossamerError as error:
                ok, words = False, without_secrets(str(error), one)
            seconds = round(clock.monotonic() - began, 3)
            return Tried(pool=one.pool, exit=one.name, ok=ok, words=words, seconds=seconds)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one_try(one)) for one in exits]
    return [task.result() for task in tasks]


def _show_tried(tried: Sequence[Tried]) -> None:
    print_table(
        (Column("POOL", "bold"), Column("EXIT"), Column("WORKS"), Column("TIME", right=True),
         Column("ANSWER", fold=True)),
        [(one.pool, one.exit, "yes" if one.ok else "no", _seconds(one.seconds), one.words) for one in tried],
    )  # fmt: skip
    works = sum(one.ok for one in tried)
    words = f"{works} of {many(len(tried), 'exit')} {'works' if works == 1 else 'work'}."
    err.print(Text(words, style="green" if works == len(tried) else "yellow" if works else "red"))

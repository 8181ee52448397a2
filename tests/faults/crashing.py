"""`python -m tests.faults.crashing`: the gossamer command with a fault built in, told by the variable FAULT.

    mid-fetch:N        die when the N-th page was asked for and has not answered
    mid-parse:N        die in the spider's N-th callback
    mid-store:N        die when the N-th batch has its pages archived and its records not yet saved
    before-settle:N    die when the N-th page is stored and not yet settled
    after-settle:N     die when the N-th page is settled and nobody knows it yet
    clock:SECONDS      this machine's wall clock is off by so much
    dns:SECONDS        the name server of this machine knows no site for so long

A process with the variable MACHINE believes to be on a machine of that name.
Dying is SIGKILL to ourselves: nothing is cleaned up, nobody is told.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import msgspec

from gossamer.backends.redis.frontier import RedisFrontier
from gossamer.backends.sqlite.frontier import SqliteFrontier
from gossamer.cli.app import run
from gossamer.clock import SystemClock
from gossamer.crawl import parse_page
from gossamer.errors import DnsFailed
from gossamer.fetch.addresses import GuardedResolver
from gossamer.fetch.http import AiohttpTransport
from gossamer.store import sink


def countdown(number: int) -> Callable[[], bool]:
    left = [number]

    def due() -> bool:
        left[0] -= 1
        return left[0] == 0

    return due


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DeadlyGate:
    """The gate of a request that is the last thing its process does."""

    def __init__(self, gate: Any) -> None:
        self.enter, self.withdraw, self.close = gate.enter, gate.withdraw, gate.close

    def left(self, ago: float = 0.0) -> None:
        die()


def mid_fetch(due: Callable[[], bool]) -> None:
    fetch = AiohttpTransport.fetch

    async def faulty(self: Any, exchange: Any) -> Any:
        if not exchange.url.endswith("/robots.txt") and due():
            exchange = msgspec.structs.replace(exchange, gate=DeadlyGate(exchange.gate))
        return await fetch(self, exchange)

    AiohttpTransport.fetch = faulty  # type: ignore[method-assign]


def mid_parse(due: Callable[[], bool]) -> None:
    run_callback = parse_page.run_callback

    async def faulty(spider: Any, kind: str, page: Any) -> Any:
        if due():
            die()
        return await run_callback(spider, kind, page)

    parse_page.run_callback = faulty


def mid_store(due: Callable[[], bool]) -> None:
    archive_pages = sink.archive_pages

    async def faulty(*arguments: Any) -> Any:
        kept = await archive_pages(*arguments)
        if due():
            die()
        return kept

    sink.archive_pages = faulty


def around_settling(due: Callable[[], bool], *, before: bool) -> None:
    for frontier in (RedisFrontier, SqliteFrontier):
        frontier.complete = settling(frontier.complete, due, before)  # type: ignore[method-assign]


def settling(complete: Callable[..., Any], due: Callable[[], bool], before: bool) -> Callable[..., Any]:
    async def faulty(self: Any, *arguments: Any, **options: Any) -> Any:
        fatal = due()
        if fatal and before:
            die()
        added = await complete(self, *arguments, **options)
        if fatal:
            die()
        return added

    return faulty


def wrong_clock(offset: float) -> None:
    true_time = time.time
    time.time = lambda: true_time() + offset
    SystemClock.now = staticmethod(time.time)


def deaf_resolver(seconds: float) -> None:
    heard_from, addresses = time.monotonic() + seconds, GuardedResolver._addresses

    async def faulty(self: Any, name: str) -> tuple[str, ...]:
        if time.monotonic() < heard_from:
            raise DnsFailed(f"{name} could not be looked up: the name server does not answer.")
        return await addresses(self, name)

    GuardedResolver._addresses = faulty  # type: ignore[method-assign]


def install(fault: str) -> None:
    point, _, number = fault.partition(":")
    if point == "dns":
        deaf_resolver(float(number))
        return
    if point == "clock":
        wrong_clock(float(number))
        return
    due = countdown(int(number))
    {
        "mid-fetch": mid_fetch,
        "mid-parse": mid_parse,
        "mid-store": mid_store,
        "before-settle": lambda due: around_settling(due, before=True),
        "after-settle": lambda due: around_settling(due, before=False),
    }[point](due)


if __name__ == "__main__":
    if machine := os.environ.get("MACHINE"):
        socket.gethostname = lambda: machine
    if os.environ.get("FAULT"):
        install(os.environ["FAULT"])
    run()

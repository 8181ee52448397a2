"""Vendors of the tests, described as users describe them."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from gossamer.clock import SystemClock, VirtualClock
from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.contract import Limits, Response, TransportRequest
from gossamer.fetch.managed import ManagedTransport, Vendor, describe
from gossamer.settings.tables import Managed
from gossamer.units import Secret, parse_duration, parse_size
from tests import patience
from tests.patience import until
from tests.services.vendors import KEY, GetVendor, JobVendor
from tests.services.vendors import Vendor as Server

SITE = "http://shop.localhost"  # never looked up, never dialled: only the vendor's server is asked about it
GUARD = AddressGuard(allow_hosts=frozenset({"shop.localhost"}))
LIMITS = msgspec.structs.replace(patience.LIMITS, max_body=100_000)
QUICK = ('poll = "10ms"\n', 'max_poll = "20ms"\n', 'batch_window = "30ms"\n')  # unless a test says otherwise
BATCH = 'mode = "batch"\n'
Result = TypeVar("Result")


def described(text: str, name: str = "acme") -> Vendor:
    """The vendor of a TOML table without its heading."""

    def read(kind: type, value: Any) -> Any:
        return Secret(value) if kind is Secret else parse_size(str(value))

    fields = {
        field: parse_duration(value) if field in _DURATIONS else value for field, value in tomllib.loads(text).items()
    }
    return describe(name, msgspec.convert(fields, Managed, dec_hook=read), environ={})


_DURATIONS = {
    field for field in Managed.__struct_fields__ if isinstance(getattr(Managed(), field), timedelta)
}  # fmt: skip


def vendor_at(server: Server, text: str = "") -> Vendor:
    """The preset that fits the server, and more TOML after it."""
    preset = "scraperapi" if isinstance(server, GetVendor) else "finedata"
    quick = "".join(line for line in QUICK if line.split(" ")[0] not in text)
    return described(f'preset = "{preset}"\nurl = "{server.url}"\nkey = "{KEY}"\nallow_private = true\n{quick}{text}')


def transport_to(
    server: Server, text: str = "", *, guard: AddressGuard = GUARD, clock: SystemClock | VirtualClock | None = None
) -> ManagedTransport:
    return ManagedTransport(vendor_at(server, text), guard, clock or SystemClock())


def exchange(url: str, limits: Limits = LIMITS, **more: Any) -> TransportRequest:
    return TransportRequest(url=url, limits=limits, headers=(("User-Agent", "Test/1"), ("Cookie", "a=b")), **more)


def with_callbacks(port: int, more: str = "") -> str:
    return f'{BATCH}callback_listen = "127.0.0.1:{port}"\ncallback_url = "http://127.0.0.1:{port}/hook"\n{more}'


def pages(server: JobVendor, count: int) -> list[str]:
    return [server.show(f"{SITE}/{n}", f"<p>page {n}") for n in range(count)]


async def fetch_all(transport: ManagedTransport, urls: list[str]) -> list[Response | BaseException]:
    return await asyncio.gather(*(transport.fetch(exchange(url)) for url in urls), return_exceptions=True)


def right(urls: list[str], responses: list[Response | BaseException]) -> bool:
    """Did everybody get the page that was asked for?"""
    return [(one.url, one.body) if isinstance(one, Response) else one for one in responses] == [
        (url, f"<p>page {url.rpartition('/')[2]}".encode()) for url in urls
    ]


async def while_time_flies(clock: VirtualClock, work: Coroutine[Any, Any, Result], *, step: float = 1.0) -> Result:
    """Run the work while the clock is moved on, a step for every turn of the loop."""
    task = asyncio.ensure_future(work)
    try:
        await until(task.done, between=lambda: clock.advance(step), every=0)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return task.result()

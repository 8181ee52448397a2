"""A site that needs a browser, a canary that nobody may reach, and a transport that is allowed to the first alone."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.browser.pool import Watch
from gossamer.fetch.browser.transport import BrowserTransport
from gossamer.fetch.browser.watchdog import descendants
from gossamer.fetch.contract import Limits, Response, TransportRequest
from gossamer.model.route import Render
from gossamer.settings.tables import Browser
from gossamer.units import Size
from tests import patience
from tests.patience import PATIENCE
from tests.services.proxies import Vouched
from tests.sites.hostile import HostileSite, hostile_site
from tests.sites.rendered import dress

HOST = "site.localhost"
OTHER = "other.localhost"  # another origin and site, allowed as well
CANARY = "canary.localhost"  # leads to the same loopback, but nobody allowed it
NAMES = [f"h{number}.{HOST}" for number in range(10)]  # of the same site
GUARD = AddressGuard(allow_hosts=frozenset({HOST, OTHER, *NAMES}))
LIMITS = msgspec.structs.replace(patience.LIMITS, max_body=200_000)


class Show:
    def __init__(self, site: HostileSite, canary: HostileSite, transport: BrowserTransport) -> None:
        self.site = site
        self.canary = canary
        self.transport = transport

    def url(self, path: str, host: str = HOST) -> str:
        return self.site.url(path, host)

    def forget(self) -> None:
        self.site.log.clear()
        self.canary.log.clear()
        self.canary.connections = 0

    def page(self, html: str, *headers: str, path: str = "/page", **how: Any) -> str:
        """Put a page on the site; return its address."""
        self.site.show(path, f"<!doctype html><title>Page</title>{html}", *headers, **how)
        return self.url(path)

    async def get(self, url: str, *headers: tuple[str, str], limits: Limits = LIMITS, **more: Any) -> Response:
        options = {name: more.pop(name) for name in tuple(more) if name in Render.__struct_fields__}
        render = Render(**options) if options else None
        return await self.transport.fetch(
            TransportRequest(url=url, headers=headers, limits=limits, render=render, **more)
        )


@asynccontextmanager
async def a_show(*, vouched: Vouched | None = None, **settings: Any) -> AsyncIterator[Show]:
    """With `vouched` both servers speak TLS, and the browser believes that certificate. No other is believed."""
    options = {
        "settle": timedelta(milliseconds=200),
        "recycle_memory": Size(4 << 30),
        "page_timeout": LIMITS.total,  # a test that wants a page given up says when, by the limits of its request
        **settings,
    }
    tls = vouched.server if vouched else None
    flags = (f"--ignore-certificate-errors-spki-list={fingerprint_of(vouched)}",) if vouched else ()
    async with (
        hostile_site(tls=tls) as site,
        hostile_site(tls=tls) as canary,
        BrowserTransport(GUARD, Browser(**options), flags=flags) as transport,
    ):
        dress(site, canary.url("/secret", CANARY))
        transport.pool.watch = Watch(patience=PATIENCE)  # a browser that waits for a core does not hang
        yield Show(site, canary, transport)


def fingerprint_of(vouched: Vouched) -> str:
    """The hash of the certificate's public key, as Chromium writes it."""
    public = subprocess.run(
        ["openssl", "pkey", "-in", vouched.key, "-pubout", "-outform", "der"], check=True, capture_output=True
    ).stdout
    return base64.b64encode(hashlib.sha256(public).digest()).decode()


def family(root: int) -> dict[int, str]:
    """Descendants of a process by id, each with the moment it was born: ids are used again."""
    return {pid: born for pid in descendants(root) if (born := born_at(pid))}


def born_at(pid: int) -> str:
    """Empty for a process that is not there, or is only waiting to be buried."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


def still_alive(known: dict[int, str]) -> list[int]:
    return [pid for pid, born in known.items() if born_at(pid) == born]


def marked(word: str) -> list[int]:
    """Processes, other than this one, that have the word in their command line or in their environment."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        for file in ("cmdline", "environ"):
            try:
                text = Path(f"/proc/{name}/{file}").read_bytes()
            except OSError:
                continue
            if word.encode() in text and int(name) != os.getpid() and born_at(int(name)):
                found.append(int(name))
                break
    return found


def renderers(root: int) -> list[int]:
    found = []
    for pid in descendants(root):
        try:
            if b"--type=renderer" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


def driver_and_browser(watchdog: int) -> tuple[int, int]:
    """The watchdog's first child, and the first child of that. Later ones of the watchdog are orphans it was given."""
    driver = first_child(watchdog)
    return driver, first_child(driver)


def first_child(parent: int) -> int:
    """The eldest: ids start again from below, so the lowest may be the youngest."""
    born = {}
    for pid in descendants(parent):
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:  # a helper of the browser has ended meanwhile
            continue
        if int(fields[1]) == parent:
            born[pid] = int(fields[19])
    return min(born, key=lambda pid: born[pid])

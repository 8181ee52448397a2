"""A project with every kind of route, in a world of sites that do not serve everybody: for the tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossamer import Item, Page, Spider
from gossamer.settings import Settings
from tests.services.proxies import ProxyServer, http_proxy, socks_proxy
from tests.services.vendors import KEY, JobVendor, in_a_thread
from tests.sites.blocking import World, blocking_world

from .crawling import settings_for

PASSWORD = "p4ssw0rd-of-the-proxy"
PRICES = {"direct": 1.0, "datacenter": 2.0, "residential": 3.0, "browser": 5.0, "api": 9.0}


class Offer(Item, key="sku"):
    sku: str
    title: str


class Offers(Spider):
    """Reads the pages that it is given; a page without its title is a parse failure, so no wall can pass for one."""

    name = "offers"
    rate = "unlimited"

    def __init__(self, urls: Sequence[str] = ()) -> None:
        self.start_urls = list(urls)

    def parse(self, page: Page) -> Iterator[Offer]:
        yield Offer(sku=page.css("p.sku::text").get(), title=page.css("h1.title::text").get())


@dataclass
class Roads:
    """The proxies and the vendor of a test, and the settings that lead to them."""

    world: World
    datacenter: list[ProxyServer]
    residential: list[ProxyServer]
    vendor: JobVendor
    tables: list[str] = field(default_factory=list)

    def settings(self, folder: Path, *, more: str = "", cooldown: str = "1m", **flags: Any) -> Settings:
        pools = []
        for name, kind, proxies in (("dc", "datacenter", self.datacenter), ("home", "residential", self.residential)):
            if proxies:
                urls = json.dumps([proxy.url for proxy in proxies])
                table = f'[proxies.{name}]\nkind = "{kind}"\nurls = {urls}\nallow_private = true\n'
                pools.append(f'{table}cooldown = "{cooldown}"\n')
        pools.append(
            f'[managed.vendor]\npreset = "finedata"\nurl = "{self.vendor.url}"\nkey = "{KEY}"\nallow_private = true\n'
        )
        (folder / "gossamer.toml").write_text("\n".join([*pools, *self.tables, more]))
        return settings_for(folder, **{"fetch__allow_private": True, "fetch__total_timeout": "20s", **flags})


ROUTES = {
    "datacenter": '[routes.datacenter]\npool = "dc"\nprice = 2\n',
    "residential": '[routes.residential]\npool = "home"\nprice = 3\n',
    "browser": '[routes.browser]\ntransport = "browser"\nprice = 5\n',
    "api": '[routes.api]\ntransport = "managed"\nvendor = "vendor"\nprice = 9\n',
}


@contextmanager
def roads(
    domains: dict[str, str], *routes: str, pages: int = 5, datacenter: int = 3, residential: int = 2
) -> Iterator[Roads]:
    """A world and the ways into it. Proxies are told apart by the address that they dial from."""
    with ExitStack() as stack:
        world = stack.enter_context(blocking_world(domains, pages=pages))
        users = {"ann": PASSWORD}
        dc = [
            stack.enter_context(http_proxy(users=users, leads_to=world.port, source=f"127.0.1.{n + 1}"))
            for n in range(datacenter)
        ]
        home = [
            stack.enter_context(socks_proxy(users=users, leads_to=world.port, source=f"127.0.2.{n + 1}"))
            for n in range(residential)
        ]
        vendor = JobVendor()
        vendor.visits, vendor.source, vendor.cost = True, "127.0.3.1", 9
        stack.enter_context(in_a_thread(vendor))
        yield Roads(world, dc, home, vendor, [ROUTES[name] for name in routes])

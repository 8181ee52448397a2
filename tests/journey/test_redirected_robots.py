"""A robots.txt that leads to another site is asked for at that site's pace. The log of the server is the witness."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from gossamer import Page, Spider
from tests.sites.hostile_server import Call, HostileSite, head, hostile_site

from .crawling import crawled, settings_for

ASKERS = [f"asker{number}.localhost" for number in range(3)]
INTERVAL = 0.2  # seconds: a rate of 5/s


class Reader(Spider):
    def parse(self, page: Page) -> dict[str, str]:
        return {"url": page.url}


def send_on(site: HostileSite) -> None:
    """Every site's robots.txt leads to the same one of a third site."""

    async def reply(call: Call) -> None:
        if call.seen.headers["host"].startswith("victim"):
            await call.send(head(404, length=0))
        else:
            await call.send(head(301, f"Location: {site.url('/their.txt', 'victim.localhost')}", length=0))

    site.robots = reply
    site.shown["/their.txt"] = reply


async def test_many_sites_that_redirect_their_robots_do_not_add_up_to_a_flood_elsewhere(tmp_path: Path) -> None:
    async with hostile_site() as site:
        send_on(site)
        site.show("/page", "<h1>x</h1>")
        hosts = [*ASKERS, "victim.localhost"]
        spider = type("Reader", (Reader,), {"start_urls": [site.url("/page", host) for host in hosts]})

        left = await crawled(spider(), settings_for(tmp_path, politeness__rate="5/s", fetch__allow_private=True))

        assert [state for _, state, _ in left.fates] == ["done"] * len(hosts)
        times = [seen.at for seen in site.log if seen.headers["host"].startswith("victim")]
        assert len(times) == len(ASKERS) + 2
        assert min(later - earlier for earlier, later in pairwise(times)) >= INTERVAL - 0.05

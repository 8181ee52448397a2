"""A crawl of bad pages among good ones. Whatever the bad ones do, the good ones are all had."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gossamer import Page, Spider
from gossamer.model.events import Trouble
from tests.journey.crawling import Aftermath, crawled, settings_for
from tests.sites.hostile import HostileSite

GOOD = 12  # pages


class Curious(Spider):
    """Follows every link and says of every page what it could see."""

    allowed_domains = "*"

    def parse(self, page: Page) -> Iterator[Any]:
        text = page.text
        yield {"url": page.url, "title": page.title, "size": len(page.body), "cut": page.cut, "text": text[:100]}
        yield from page.follow_all("a")


async def among_good_pages(
    site: HostileSite, folder: Path, links: list[str], *, spider: Spider | None = None, **flags: Any
) -> Aftermath:
    """Crawl a page that links to all of `links` with good pages between them.

    Asserts what must hold whatever they lead to: the good pages are done and gave their record, the counts add up,
    and nothing went wrong in the machinery itself.
    """
    good = [site.show(f"/good/{n}", f"<title>Good {n}</title><p>Fine.") for n in range(GOOD)]
    mixed = [link for n, link in enumerate(links) for link in (link, good[n % GOOD])] + good
    start = site.show("/start", "".join(f'<a href="{link}">x</a>' for link in mixed))
    spider = spider or Curious()
    spider.start_urls = [start]

    after = await crawled(spider, settings_for(folder, fetch__allow_hosts=["127.0.0.1"], **flags))

    assert after.report.ended
    assert [after.fate(url) for url in [start, *good]] == [("done", "")] * (GOOD + 1)
    assert [after.record(url)["title"] for url in good] == [f"Good {n}" for n in range(GOOD)]
    assert "internal-error" not in {reason for _, _, reason in after.fates}
    assert after.heard.of(Trouble) == []
    after.assert_adds_up()
    return after


def closed_port() -> int:
    """A port of loopback where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port

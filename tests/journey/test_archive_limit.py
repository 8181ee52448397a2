"""An archive that has reached its limit: nothing is fetched, and people are told. The site's log is the witness."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from gossamer import Page, Spider
from gossamer.model.events import Trouble
from gossamer.project.jobs.crawl import crawl
from gossamer.project.jobs.status import project_status
from gossamer.project.upkeep.doctor import examine
from gossamer.project.workers.workers import ARCHIVE_FULL
from tests.patience import until
from tests.sites.hostile_server import HostileSite, hostile_site

from .crawling import Heard, crawled, look, settings_for

PAGES = 60


class Reader(Spider):
    def parse(self, page: Page) -> dict[str, str]:
        return {"url": page.url}


def spider_for(site: HostileSite) -> Spider:
    """For pages of 20 kB that cannot be compressed."""
    for number in range(PAGES):
        site.show(f"/{number}", f"<p>{random.Random(number).randbytes(10_000).hex()}</p>")
    return type("Reader", (Reader,), {"start_urls": [site.url(f"/{number}") for number in range(PAGES)]})()


@pytest.mark.long
async def test_a_full_archive_stops_the_crawl_and_a_higher_limit_lets_it_go_on(tmp_path: Path) -> None:
    options = {"fetch__allow_private": True, "politeness__robots": False, "crawl__concurrency": 4}
    limited = settings_for(tmp_path, store__archive_limit="100kB", **options)
    async with hostile_site() as site:
        spider, heard = spider_for(site), Heard()
        crawling = asyncio.create_task(crawl(spider, limited, events=heard))
        await until(lambda: any(one.stage == "archive" for one in heard.of(Trouble)))

        async def trouble() -> str | None:
            return (await look(limited, project_status)).trouble

        assert await until(trouble) == ARCHIVE_FULL
        stopped_at = len(site.log)
        assert 5 <= stopped_at < PAGES
        crawling.cancel()
        await asyncio.gather(crawling, return_exceptions=True)
        assert len(site.log) == stopped_at
        (tmp_path / "gossamer.toml").write_text('[store]\narchive_limit = "100kB"\n')
        found = [one async for one in examine(tmp_path) if one.what == "archive"]
        assert any("store.archive_limit" in one.detail for one in found)

        # when there is room again
        left = await crawled(spider, settings_for(tmp_path, store__archive_limit="10MB", **options))
        assert (left.report.counts.done, len(site.log)) == (PAGES, PAGES)

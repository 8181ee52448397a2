"""A site with sitemaps, and somebody who reads them: what the tests of sources share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from gossamer.crawl.source_files import SourceFiles
from gossamer.errors import SourceFailed
from gossamer.project.wiring import open_source_files
from gossamer.schedule.sources import Listing, SitemapSource, SourceBounds, SourceEntry, Validators
from gossamer.schedule.sources.reader import entries
from gossamer.settings import Settings
from gossamer.settings.tables import Fetch, PolitenessTable, Retry
from gossamer.units import Rate
from tests.sites.hostile import HostileSite, hostile_site

SETTINGS = Settings(
    politeness=PolitenessTable(rate=Rate(None)), fetch=Fetch(allow_hosts=("127.0.0.1",)), retry=Retry(max_attempts=1)
)


class Scene:
    """A site, and somebody who reads its sitemaps."""

    def __init__(self, site: HostileSite, files: SourceFiles) -> None:
        self.site = site
        self.files = files
        self.reports: list[str] = []
        self.seen: dict[str, Validators] = {}

    async def entries(
        self, source: Listing | str, *, known: dict[str, Validators] | None = None, **bounds: Any
    ) -> list[SourceEntry]:
        """All of the source; a text is the path of a sitemap."""
        if isinstance(source, str):
            source = SitemapSource(url=self.site.url(source))
        context = self.files.context(report=self.reports.append, known=known)
        found = [entry async for entry in entries(source, context, SourceBounds(**bounds))]
        self.seen = context.seen
        return found

    async def urls(self, source: Listing | str, **bounds: Any) -> list[str]:
        return [entry.url for entry in await self.entries(source, **bounds)]

    async def failure(self, source: Listing | str, **bounds: Any) -> str:
        with pytest.raises(SourceFailed) as failure:
            await self.entries(source, **bounds)
        return str(failure.value)

    @property
    def asked(self) -> list[str]:
        return [seen.path for seen in self.site.log if seen.path != "/robots.txt"]


@asynccontextmanager
async def a_scene(settings: Settings = SETTINGS) -> AsyncIterator[Scene]:
    async with hostile_site(drip=timedelta(milliseconds=20)) as site, open_source_files(settings) as files:
        yield Scene(site, files)


def paths(urls: list[str]) -> list[str]:
    return ["/" + url.split("/", 3)[3] for url in urls]

"""A site writes addresses that lead elsewhere, with logins of its choice in them. The log of the server is the witness.

Tried: sitemaps, feeds, links, redirects and forms with logins in their addresses; sitemaps of other sites; ports that
browsers refuse.
"""

from __future__ import annotations

import asyncio
import base64
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.model.events import NullSink
from gossamer.model.job import JobCounts
from gossamer.parse.spider import Spider
from gossamer.project.jobs.worker_pool import WorkerPool
from gossamer.project.open import open_project
from gossamer.schedule.sources import parse_source
from gossamer.settings import load
from gossamer.terms import job_terms
from tests.sites.hostile_server import HostileSite, hostile_site
from tests.sites.sitemaps import index, urlset

SPIDER = """
from gossamer import Spider

class Things(Spider):
    allowed_domains = {allowed!r}

    def parse(self, page):
        yield {{"url": page.url}}
        yield from page.follow_all("a")
"""


async def crawled(folder: Path, *, allowed: list[str] | None = None, **table: Any) -> JobCounts:
    (folder / "spiders").mkdir()
    (folder / "spiders" / "things.py").write_text(SPIDER.format(allowed=allowed), encoding="utf-8")
    flags = {"politeness.rate": "unlimited", "politeness.robots": False, "fetch.allow_private": True}
    settings = load(start=folder, environ={}, flags=flags)
    async with open_project(settings) as project:
        source = msgspec.json.encode(parse_source(table)).decode()
        terms = msgspec.structs.replace(job_terms(settings, Spider()), schedule="s", spider="things", source=source)
        job, _ = await project.state.jobs.open_job("s", terms, fresh=True)
        await WorkerPool(project, NullSink(), until_idle=True).run()
        return await project.state.jobs.counts(job.id)


def asked(site: HostileSite) -> list[tuple[str, str]]:
    """The address and the login of every request that came."""
    found = []
    for seen in site.log:
        code = seen.headers.get("authorization", "").removeprefix("Basic ")
        host = seen.headers["host"].partition(":")[0]
        found.append((f"{host}{seen.path}", base64.b64decode(code).decode()))
    return sorted(found)


def with_login(url: str, login: str = "root:chosen") -> str:
    return url.replace("://", f"://{login}@")


async def test_a_sitemap_sends_us_to_no_other_site_and_with_no_login(tmp_path: Path) -> None:
    async with hostile_site() as site:
        elsewhere = [site.url("/page", "localhost"), with_login(site.url("/admin", "localhost"))]
        site.show("/own", "<h1>x</h1>")
        site.show("/s.xml", urlset([*elsewhere, with_login(site.url("/own"))]), kind="text/xml")
        site.show(
            "/i.xml", index([site.url("/their.xml", "localhost"), with_login(site.url("/s.xml"))]), kind="text/xml"
        )
        counts = await crawled(tmp_path, sitemap=site.url("/i.xml"))
        assert asked(site) == [("127.0.0.1/i.xml", ""), ("127.0.0.1/own", ""), ("127.0.0.1/s.xml", "")]
        assert (counts.done, counts.dropped) == (1, 2)


async def test_a_feed_may_list_pages_elsewhere_and_does_not_say_where_links_may_lead(tmp_path: Path) -> None:
    async with hostile_site() as site:
        site.show("/page", '<a href="/more">x</a>')
        there = with_login(site.url("/page", "localhost"))
        site.show("/rss.xml", f"<rss><channel><item><link>{there}</link></item></channel></rss>", kind="text/xml")
        counts = await crawled(tmp_path, feed=site.url("/rss.xml"))
        assert asked(site) == [("127.0.0.1/rss.xml", ""), ("localhost/page", "")]
        assert (counts.done, counts.dropped) == (1, 1)


async def test_a_sitemap_sends_us_where_the_spider_may_go(tmp_path: Path) -> None:
    async with hostile_site() as site:
        site.show("/page", "<h1>x</h1>")
        site.show("/s.xml", urlset([with_login(site.url("/page", "localhost"))]), kind="text/xml")
        await crawled(tmp_path, allowed=["localhost"], sitemap=site.url("/s.xml"))
        assert asked(site) == [("127.0.0.1/s.xml", ""), ("localhost/page", "")]


async def test_the_login_of_a_source_goes_to_its_own_origin_and_no_further(tmp_path: Path) -> None:
    async with hostile_site() as site:
        site.show("/page", "<h1>x</h1>")
        listed = [site.url("/page"), site.url("/page", "localhost")]
        site.show("/s.xml", urlset(listed), kind="text/xml")
        mine = with_login(site.url("/s.xml"), "me:mine")
        await crawled(tmp_path, allowed=["localhost", "127.0.0.1"], sitemap=mine)
        assert asked(site) == [("127.0.0.1/page", "me:mine"), ("127.0.0.1/s.xml", "me:mine"), ("localhost/page", "")]


@pytest.mark.parametrize("way", ["link", "redirect", "redirect with a cookie"])
async def test_a_page_sends_us_on_with_no_login(tmp_path: Path, way: str) -> None:
    async with hostile_site() as site:
        target = with_login(site.url("/target"))
        site.show("/target", "<h1>x</h1>")
        cookie = ["Set-Cookie: a=b"] if "cookie" in way else []
        if way == "link":
            site.show("/first", f'<a href="{target}">x</a><a href="/target">y</a>')
        else:
            site.show("/first", "", f"Location: {target}", *cookie, status=302)
        await crawled(tmp_path, urls=[site.url("/first")])
        assert asked(site) == [("127.0.0.1/first", ""), ("127.0.0.1/target", "")]


async def test_a_list_of_the_owner_may_have_logins(tmp_path: Path) -> None:
    async with hostile_site() as site:
        site.show("/page", "<h1>x</h1>")
        await crawled(tmp_path, urls=[with_login(site.url("/page"), "me:mine")])
        assert asked(site) == [("127.0.0.1/page", "me:mine")]


@pytest.mark.parametrize("way", ["link", "redirect"])
async def test_a_page_sends_us_to_no_port_that_browsers_refuse(tmp_path: Path, way: str) -> None:
    knocks = 0

    async def knocked(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal knocks
        knocks += 1
        writer.close()

    async with AsyncExitStack() as stack:
        for port in (10080, 6697, 6679, 6669, 6668, 6667, 6666, 6665):
            with suppress(OSError):  # somebody else has it
                await stack.enter_async_context(await asyncio.start_server(knocked, "127.0.0.1", port))
                break
        else:
            pytest.fail("All these ports are taken.")
        site = await stack.enter_async_context(hostile_site())
        target = f"http://127.0.0.1:{port}/MAIL FROM"
        if way == "link":
            site.show("/first", f'<a href="{target}">x</a>')
        else:
            site.show("/first", "", f"Location: {target}", status=302)
        counts = await crawled(tmp_path, urls=[site.url("/first")])
        assert (counts.dead, knocks) == (1, 0)

"""Pages that are made by scripts: asked for by the spider, found out by the router, and shared between workers."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter

import pytest

from gossamer import Page, Render, Request, settings
from gossamer.frontier.admission import Admission, LinkScope
from gossamer.frontier.contract import JobTerms
from gossamer.project.open import open_project
from tests.browser.conftest import chromium as chromium
from tests.faults.commands import CommandProject, children_of, is_alive, until
from tests.sites.blocking import blocking_world

from .crawling import crawled, look, settings_for
from .routing import Offer, Offers, roads

pytestmark = [pytest.mark.usefixtures("chromium"), pytest.mark.long]


class Rendering(Offers):
    """Follows one link with a browser, and asks for a picture of it."""

    name = "rendering"

    def parse(self, page: Page):
        yield page.follow("/page/1", self.offer, render=Render(wait_for="p.sku", screenshot=True))

    def offer(self, page: Page):
        assert page.snapshot.screenshot.startswith(b"\x89PNG")
        yield Offer(sku=page.css("p.sku::text").get(), title=page.css("h1.title::text").get())


async def test_a_spider_that_asks_for_a_browser_gets_the_finished_page_and_its_picture(tmp_path):
    with blocking_world({"a.localhost": "open", "s.localhost": "script"}, pages=2) as world:
        read = settings_for(tmp_path, fetch__allow_private=True, fetch__total_timeout="20s", fetch__detect_blocks=False)
        left = await crawled(Rendering([world.url("s.localhost")]), read)

        assert [record.key for record in left.records] == [record["sku"] for record in world.truth().values()
                                                           if record["url"] == world.url("s.localhost", 1)]  # fmt: skip

        # and the picture is in the archive, beside the HTML that the scripts made
        async def archived(system):
            visits = await system.records.visits(system.rules.fingerprint(world.url("s.localhost", 1)))
            return await system.archive.get(visits[0].archive_ref)

        kept = await look(read, archived)
        assert kept.screenshot.startswith(b"\x89PNG")
        assert b'class="sku"' in kept.body


async def test_a_shell_climbs_straight_to_a_route_that_renders(tmp_path):
    with roads({"s.localhost": "script"}, "datacenter", "browser", pages=3) as way:
        read = way.settings(tmp_path)
        left = await crawled(Offers(way.world.urls()), read)

        assert {record.key for record in left.records} == set(way.world.truth())
        assert not any(hit.through == "datacenter" for hit in way.world.hits())
        standings = await look(read, lambda system: system.state.routes.learned_routes())
        assert [(one.site, one.route, one.reason) for one in standings] == [("s.localhost", "browser", "shell")]


async def sown(folder, urls):
    """A job of the spider in that folder that nobody has worked on yet."""
    read = settings.load(start=folder, environ={})
    async with open_project(read) as system:
        job, _ = await system.state.jobs.open_job("offers", JobTerms(), fresh=True)
        judged = Admission(LinkScope(), system.rules).judge([Request(url=url) for url in urls])
        await system.state.frontier.add(job.id, judged.candidates)
        await system.state.jobs.seal_seeds(job.id)


def test_workers_with_and_without_browsers_share_one_queue(tmp_path):
    # given a site whose pages need a browser beside one whose pages do not
    with blocking_world({"a.localhost": "open", "s.localhost": "script"}, pages=6) as world:
        ladder = '[routes.browser]\ntransport = "browser"\nprice = 5\n[politeness]\nrate = "unlimited"\n'
        project = CommandProject(tmp_path, [], ladder)
        seeds = json.dumps(world.urls())
        (tmp_path / "spiders" / "offers.py").write_text(
            "from gossamer import Item, Page, Spider\n"
            "class Offer(Item, key='sku'):\n    sku: str\n"
            f"class Offers(Spider):\n    start_urls = {seeds}\n"
            "    def parse(self, page: Page):\n        yield Offer(sku=page.css('p.sku::text').get())\n"
        )
        try:
            # when one worker serves HTTP only, and another serves the browser only
            asyncio.run(sown(tmp_path, world.urls()))
            http = project.run("worker", "--routes", "http")
            browser = project.run("worker", "--routes", "browser", "--json-logs")
            until(lambda: len(project.records()) == 12, http, browser)
            [http_pid], [browser_pid] = http.children(), browser.children()
            family = children_of(browser_pid)
            for worker in (http, browser):
                worker.signal(signal.SIGTERM)
                assert worker.ended() == 0, worker.said()

            # then each did its part: no browser was ever started by the one that has none to offer
            tries = project.sql("records.db", "SELECT route, worker, outcome FROM attempts")
            pid_of = {"direct": http_pid, "browser": browser_pid}
            assert all(f"/{pid_of[route]}/" in worker for route, worker, _ in tries)
            assert Counter(route for route, _, outcome in tries if outcome == "done") == {"direct": 6, "browser": 6}
            assert set(project.records()) == set(world.truth())
            assert not any(is_alive(pid) for pid in family)
        finally:
            project.close()

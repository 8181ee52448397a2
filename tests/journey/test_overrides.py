"""What an admin sets by hand in one process holds in the workers of another within seconds, by the sites' own logs."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from uuid import uuid4

import pytest

from gossamer import Spider
from gossamer.model import events
from gossamer.project.access.keys import OWNER
from gossamer.project.jobs.crawl import RunningCrawl
from gossamer.project.live_settings import SETTLED
from gossamer.project.open import Project, open_project
from gossamer.project.overrides import (
    NewOverride,
    OverrideKey,
    OverrideQuery,
    list_overrides,
    remove_override,
    set_override,
)
from gossamer.project.sites.proxies import proxy_pools
from gossamer.project.sites.sites import rest_site, resume_site, slow_site
from gossamer.settings import Settings, load
from gossamer.settings.alert_tables import terms_of
from tests.journey.crawling import QUICK, Heard, crawled, settings_for
from tests.journey.routing import Offers, roads
from tests.patience import until
from tests.services.valkey import running_valkey
from tests.sites.running import park

SITE = "site0.localhost"


class Visitor(Spider):
    concurrency = 4

    def __init__(self, seeds: list[str]) -> None:
        super().__init__()
        self.start_urls = seeds

    def parse(self, page):
        yield from page.follow_all(".links a")


@pytest.fixture(params=["sqlite", "valkey"])
def where(request):
    if request.param == "sqlite":
        yield {}
        return
    with running_valkey("--appendonly", "no") as server:
        yield {"state": server.address(), "project": f"orders-{uuid4().hex[:8]}"}


async def test_a_site_that_rests_is_left_alone_until_it_is_resumed(tmp_path, where):
    seen: dict[str, int] = {}
    with park(pages=40, hosts=2, latency_ms=5) as site:

        async def attend(running: RunningCrawl) -> None:
            project, job = running.project, running.job.id

            async def load():
                return next((one for one in await project.state.queue.sites(job, None) if one.site == SITE), None)

            async def reached_ten():
                return len(site.hits(host=SITE)) >= 10

            async def in_progress_is_settled():
                found = await load()
                return found is not None and found.leased == 0

            async def others_are_done():
                return len(site.hits(host=1)) >= 40

            await until(reached_ten)
            await rest_site(project, OWNER, SITE, "1h")
            await until(in_progress_is_settled)
            seen["resting"] = len(site.hits(host=SITE))
            await until(others_are_done)
            seen["rested"] = len(site.hits(host=SITE))
            await resume_site(project, OWNER, SITE)

        flags = {"fetch__allow_hosts": site.hosts, "politeness__concurrency": 2, **where}
        left = await crawled(Visitor(site.seeds()), settings_for(tmp_path, **flags), attend=attend)

        assert left.report.ended
        assert 10 <= seen["resting"] == seen["rested"] < 40
        assert len(site.hits(host=SITE)) == 40


@pytest.mark.long
async def test_a_site_that_was_slowed_down_is_asked_at_that_distance_until_it_is_resumed(tmp_path, where):
    marks: dict[str, int] = {}
    with park(pages=60, hosts=1) as site:

        async def attend(running: RunningCrawl) -> None:
            async def at_least(count):
                await until(lambda: _reached(count))

            async def _reached(count):
                return len(site.hits()) >= count

            await at_least(5)
            await slow_site(running.project, OWNER, SITE, "2/s")
            marks["slow"] = len(site.hits())
            await at_least(marks["slow"] + 8)
            marks["resumed"] = len(site.hits())
            await resume_site(running.project, OWNER, SITE)

        flags = {"fetch__allow_hosts": site.hosts, "politeness__rate": "20/s", **where}
        left = await crawled(Visitor(site.seeds()), settings_for(tmp_path, **flags), attend=attend)

        assert left.report.ended
        times = [hit.at for hit in site.hits()]
        # Requests that were in progress when the order came may leave at the old pace: two at most, with this
        # concurrency.
        slow = [b - a for a, b in pairwise(times)][marks["slow"] + 2 : marks["resumed"] - 1]
        assert min(slow) >= 0.5
        fast = [b - a for a, b in pairwise(times)][marks["resumed"] + 2 :]
        assert sorted(fast)[len(fast) // 2] < 0.5


def to_the_end(attend: Callable[[RunningCrawl], Awaitable[None]]) -> Callable[[RunningCrawl], Awaitable[None]]:
    """If what a test does beside the crawl fails, the crawl ends, and the test says why."""

    async def attended(running: RunningCrawl) -> None:
        try:
            await attend(running)
        except Exception:
            traceback.print_exc()
            running.pool.drain()
            raise

    return attended


@asynccontextmanager
async def another_process(settings: Settings) -> AsyncIterator[Project]:
    """The project as the server or a command has it open, while a crawl runs elsewhere."""
    async with open_project(settings, to_look=True) as project:
        yield project


async def test_a_raised_budget_wakes_the_pages_that_wait_for_it(tmp_path, where):
    heard = Heard()
    with roads({"a.localhost": "open"}, pages=12) as way:
        read = way.settings(tmp_path, more="[router]\nbudget_job = 8", politeness__robots=False, **where)

        async def raise_it(running: RunningCrawl) -> None:
            await until(lambda: len(heard.of(events.BudgetReached)) >= 4)
            await until(lambda: len(way.world.hits(robots=True)) == 8)
            async with another_process(read) as project:
                await set_override(project, OWNER, NewOverride(key="router.budget_job", value="10"))
                await until(lambda: len(heard.of(events.BudgetReached)) >= 6)
                await until(lambda: len(way.world.hits(robots=True)) == 10)
                await remove_override(project, OWNER, OverrideKey(key="router.budget_job"))
                await set_override(project, OWNER, NewOverride(key="router.budget_job", value="none"))

        left = await crawled(Offers(way.world.urls()), read, attend=to_the_end(raise_it), heard=heard)
        assert (len(left.records), left.report.ended) == (12, True)


async def test_a_higher_rate_than_the_settings_have_holds_at_once_and_a_crawl_delay_holds_all_the_same(tmp_path, where):
    with park(pages=30, hosts=2, crawl_delay_of={"site1.localhost": 290.0}) as site:
        (tmp_path / "gossamer.toml").write_text('politeness.rate = "1/h"\n')  # a flag would be the rate of the job
        flags = QUICK | {"fetch.allow_hosts": site.hosts} | {name.replace("__", "."): at for name, at in where.items()}
        del flags["politeness.rate"]
        read = load(start=tmp_path, environ={}, flags=flags)

        async def hurry(running: RunningCrawl) -> None:
            await until(lambda: len(site.hits(host=SITE, robots=True)) >= 1)  # which is the request of this hour
            async with another_process(read) as project:
                for host in (SITE, "site1.localhost"):
                    await set_override(project, OWNER, NewOverride(key=f"domains.{host}.rate", value="unlimited"))
                await until(lambda: len(site.hits(host=SITE)) >= 30)
            running.pool.drain()

        await crawled(Visitor(site.seeds()), read, attend=to_the_end(hurry))
        assert len(site.hits(host="site1.localhost")) <= 1


async def test_a_proxy_that_is_left_out_is_used_no_more_and_one_route_is_pinned_or_left_out(tmp_path, where):
    with roads({"a.localhost": "open", "b.localhost": "open"}, "datacenter", pages=400, datacenter=2) as way:
        ladder = '[router]\nladder = ["datacenter", "direct"]'
        read = way.settings(tmp_path, more=ladder, politeness__rate="5/s", politeness__robots=False, **where)
        seen: dict[str, int] = {}
        states: list[str] = []

        def by(proxy: str) -> int:
            return len([hit for hit in way.world.hits() if hit.proxy == proxy])

        def direct() -> int:
            return len([hit for hit in way.world.hits() if hit.through == "direct"])

        async def leave_out(running: RunningCrawl) -> None:
            await until(lambda: by("127.0.1.1") and by("127.0.1.2"), every=0.2)
            async with another_process(read) as project:
                name = way.datacenter[0].address
                await set_override(project, OWNER, NewOverride(key=f"proxies.dc.skip.{name}", value="yes"))
                await set_override(project, OWNER, NewOverride(key="domains.b.localhost.route", value="direct"))
                await running.project.clock.sleep(SETTLED.total_seconds() + 1)
                seen["first"], seen["second"], seen["direct"] = by("127.0.1.1"), by("127.0.1.2"), direct()
                await until(lambda: by("127.0.1.2") > seen["second"] + 3 and direct() > seen["direct"] + 3, every=0.2)
                seen["first later"] = by("127.0.1.1")
                pool = (await proxy_pools(project, "dc"))[0]
                states.extend(one.state for one in pool.proxies if one.proxy == name)
            running.pool.drain()

        await crawled(Offers(way.world.urls()), read, attend=to_the_end(leave_out))
        assert (seen["first later"], states) == (seen["first"], ["skipped"])


async def test_the_leading_scheduler_judges_by_the_thresholds_of_now(tmp_path, where):
    read = settings_for(tmp_path, **where)
    async with open_project(read) as leading, another_process(read) as project:
        assert terms_of(leading.settings.alerts)["success"].threshold != 0.123
        await set_override(project, OWNER, NewOverride(key="alerts.success.threshold", value="0.123"))
        await set_override(project, OWNER, NewOverride(key="alerts.workers.enabled", value="no"))
        await until(lambda: terms_of(leading.settings.alerts)["success"].threshold == 0.123)
        assert "workers" not in terms_of(leading.settings.alerts)
        await remove_override(project, OWNER, OverrideKey(key="alerts.workers.enabled"))
        await until(lambda: "workers" in terms_of(leading.settings.alerts))


async def test_the_log_level_is_followed_by_the_processes_that_are_meant(tmp_path, where):
    read = settings_for(tmp_path, **where)
    async with open_project(read) as working, another_process(read) as project:
        assert working.log_level == "info"
        mine = "log.levels." + working.worker.rpartition("/")[0]
        await set_override(project, OWNER, NewOverride(key="log.level", value="error"))
        await until(lambda: working.log_level == "error")
        await set_override(project, OWNER, NewOverride(key=mine, value="debug"))
        await until(lambda: working.log_level == "debug")
        await remove_override(project, OWNER, OverrideKey(key=mine))
        await remove_override(project, OWNER, OverrideKey(key="log.level"))
        await until(lambda: working.log_level == "info")


async def test_an_override_with_an_end_ends(tmp_path, where):
    read = settings_for(tmp_path, **where)
    async with open_project(read) as working, another_process(read) as project:
        await set_override(project, OWNER, NewOverride(key="domains.a.test.rest", value="yes", lasts="4s"))
        await until(lambda: working.settings.domain("a.test").rest)
        await until(lambda: not working.settings.domain("a.test").rest)
        assert await list_overrides(project, OWNER, OverrideQuery()) == []

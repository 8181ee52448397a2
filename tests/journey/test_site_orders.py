"""A site that rests by order gets no request, by its own log, while others go on; resumed, it is crawled to the end."""

from __future__ import annotations

from itertools import pairwise
from uuid import uuid4

import pytest

from gossamer import Spider
from gossamer.project.jobs.crawl import Running
from gossamer.project.sites.sites import rest_site, resume_site, slow_site
from tests.journey.crawling import crawled, settings_for
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


async def test_a_site_that_rests_by_order_is_left_alone_until_it_is_resumed(tmp_path, where):
    seen: dict[str, int] = {}
    with park(pages=40, hosts=2, latency_ms=5) as site:

        async def attend(running: Running) -> None:
            project, job = running.project, running.job.id

            async def load():
                return next((one for one in await project.state.queue.sites(job, None) if one.site == SITE), None)

            async def reached_ten():
                return len(site.hits(host=SITE)) >= 10

            async def in_hand_is_settled():
                found = await load()
                return found is not None and found.leased == 0

            async def others_are_done():
                return len(site.hits(host=1)) >= 40

            await until(reached_ten)
            await rest_site(project, SITE, "1h", by="ann")
            await until(in_hand_is_settled)
            seen["resting"] = len(site.hits(host=SITE))
            await until(others_are_done)
            seen["rested"] = len(site.hits(host=SITE))
            await resume_site(project, SITE)

        flags = {"fetch__allow_hosts": site.hosts, "politeness__concurrency": 2, **where}
        left = await crawled(Visitor(site.seeds()), settings_for(tmp_path, **flags), attend=attend)

        assert left.report.ended
        assert 10 <= seen["resting"] == seen["rested"] < 40
        assert len(site.hits(host=SITE)) == 40


@pytest.mark.long
async def test_a_site_that_was_slowed_down_is_asked_at_the_ordered_distance_until_it_is_resumed(tmp_path, where):
    marks: dict[str, int] = {}
    with park(pages=60, hosts=1) as site:

        async def attend(running: Running) -> None:
            async def at_least(count):
                await until(lambda: _reached(count))

            async def _reached(count):
                return len(site.hits()) >= count

            await at_least(5)
            await slow_site(running.project, SITE, "2/s", by="ann")
            marks["slow"] = len(site.hits())
            await at_least(marks["slow"] + 8)
            marks["resumed"] = len(site.hits())
            await resume_site(running.project, SITE)

        flags = {"fetch__allow_hosts": site.hosts, "politeness__rate": "20/s", **where}
        left = await crawled(Visitor(site.seeds()), settings_for(tmp_path, **flags), attend=attend)

        assert left.report.ended
        times = [hit.at for hit in site.hits()]
        # Requests that were in hand when the order came may leave at the old pace: two at most, with this concurrency.
        slow = [b - a for a, b in pairwise(times)][marks["slow"] + 2 : marks["resumed"] - 1]
        assert min(slow) >= 0.5
        fast = [b - a for a, b in pairwise(times)][marks["resumed"] + 2 :]
        assert sorted(fast)[len(fast) // 2] < 0.5

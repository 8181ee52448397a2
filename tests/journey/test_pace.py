"""Requests leave no closer than a site allows, whatever keeps them up on the way: the site's log is the witness.

Its times are the kernel's, so a machine that is busy makes gaps longer and never shorter.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gossamer import Page, Spider
from gossamer.backends.sqlite.frontier import SqliteFrontier
from gossamer.model.record import Attempt
from gossamer.model.task import Request
from gossamer.model.url import fingerprint
from gossamer.project.open import Project
from gossamer.settings.tables import PolitenessTable
from tests.faults.crawlers import Project as CrawlerProject
from tests.patience import PATIENCE
from tests.sites import Hit, Park, park

from .crawling import Aftermath, crawled, look, settings_for
from .test_scheduled_jobs import ran, settings_in, source

INTERVAL = 0.2  # seconds: a rate of 5/s
NEAR_ENOUGH = 0.002


class Walker(Spider):
    def parse(self, page: Page) -> Iterator[Any]:
        yield from page.follow_all("a")


async def walked(ground: Park, folder: Path, **flags: Any) -> Aftermath:
    spider = type("Walker", (Walker,), {"start_urls": ground.seeds()})
    options = {
        "politeness__rate": "5/s", "politeness__burst": 1, "politeness__concurrency": 4, "fetch__allow_private": True
    }  # fmt: skip
    return await crawled(spider(), settings_for(folder, **options | flags))


def shortest_gap(ground: Park) -> float:
    return min(later.at - earlier.at for host in ground.hosts for earlier, later in pairwise(by_time(ground, host)))


def by_time(ground: Park, host: str) -> list[Hit]:
    return sorted(ground.hits(host=host, robots=True), key=lambda hit: hit.at)


@pytest.mark.long
def test_requests_on_new_connections_and_on_kept_ones_keep_their_distance(tmp_path: Path) -> None:
    # given sites so slow that each needs several connections, and handshakes of any length
    with park(pages=14, hosts=3, tls=True, handshake_ms=(20, 600), latency_ms=500) as ground:
        terms = '[politeness]\nrate = "5/s"\nburst = 1\nconcurrency = 4'
        project = CrawlerProject(tmp_path, ground.seeds(), terms, authority=ground.certificate)
        project.finish()
        assert len(project.records()) == 3 * 14
        assert len({hit.connection for hit in ground.hits()}) > 3
        assert shortest_gap(ground) >= INTERVAL - NEAR_ENOUGH


@pytest.mark.long
@pytest.mark.parametrize("route", ["http", "profile"])
async def test_what_the_server_dropped_is_asked_for_again_in_its_turn_and_stands_in_the_log(
    tmp_path: Path, route: str
) -> None:
    # given a server that reads every third request of a connection that stands and hangs up, and pages with one try
    with park(pages=12, hosts=2, drop_every=3) as ground:
        flags: dict[str, Any] = {"politeness__concurrency": 1, "retry__max_attempts": 1}
        if route == "profile":
            flags |= {"router__ladder": ["chrome"], "routes__chrome": {"transport": "profile", "profile": "chrome"}}
        after = await walked(ground, tmp_path, **flags)

        # then every page is there, and what was dropped was asked for once more, as far away as any request
        assert after.report.counts.done == 2 * 12
        hits = ground.hits()
        dropped = [hit for hit in hits if hit.status == 0]
        assert len(dropped) >= 4
        assert shortest_gap(ground) >= INTERVAL - NEAR_ENOUGH
        # and each of them is an attempt
        urls = [url for url, _, _ in after.fates]
        attempts = await look(settings_for(tmp_path), lambda project: attempts_of(project, urls))
        assert Counter(one.url for one in attempts) == Counter(ground.url(hit.host, hit.path) for hit in hits)
        broken = [(one.url, one.outcome) for one in attempts if one.reason == "dropped-connection"]
        assert Counter(broken) == Counter((ground.url(hit.host, hit.path), "released") for hit in dropped)


class Guarded:
    """Asks for a digest login, but not before the worker has reported that its request has left; `calls` are in the
    order in which they came."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.reported = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            path, body, status = head.split(b" ")[1].decode(), b"<p>There is a page here.</p>" * 40, "200 OK"
            if path == "/robots.txt":
                status = "404 Not Found"
            elif b"authorization: digest" in head.lower():
                self.calls.append("logged in")
            else:
                self.calls.append("asked")
                await self.reported.wait()
                status = '401 Unauthorized\r\nWWW-Authenticate: Digest realm="r", nonce="n", qop="auth"'
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


async def test_a_slow_page_takes_another_turn_for_another_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a page whose first answer comes after its turn was reported
    site, left, next_turn = Guarded(), SqliteFrontier.left, SqliteFrontier.next_turn

    async def leave(self: SqliteFrontier, turns: Any) -> None:
        await left(self, turns)
        site.calls.append("reported")
        site.reported.set()

    async def take(self: SqliteFrontier, lease: Any, number: int) -> Any:
        turn = await next_turn(self, lease, number)
        site.calls.append(f"turn {number}" if turn.wait is None else "wait")
        return turn

    monkeypatch.setattr(SqliteFrontier, "left", leave)
    monkeypatch.setattr(SqliteFrontier, "next_turn", take)
    async with await asyncio.start_server(site.answer, "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"

        class Visitor(Spider):
            def start(self) -> Iterator[Request]:
                yield Request(url=url, auth=("ann", "secret"))

            def parse(self, page: Page) -> None:
                site.calls.append("parsed")

        options = {"politeness__rate": "5/s", "politeness__burst": 1, "fetch__allow_private": True}
        after = await crawled(Visitor(), settings_for(tmp_path, **options))

    # then its second request waited for a turn of its own
    assert after.report.counts.done == 1
    seen = [call for call in site.calls if call != "wait"]
    assert seen == ["asked", "reported", "turn 2", "logged in", "parsed"]


async def test_a_scheduled_job_reads_its_sitemap_and_its_pages_at_the_usual_rate(tmp_path: Path) -> None:
    with park(pages=4) as ground:
        settings = settings_in(tmp_path, **{"politeness.rate": "2/s", "fetch.allow_private": True})
        assert settings.politeness == PolitenessTable()  # as in a project that says nothing of it
        async with asyncio.timeout(PATIENCE):
            job, _ = await ran(settings, "mapped", source=source(sitemap=ground.url(path="/sitemap.xml")))
        assert job.ending == "done"
        paths = [hit.path for hit in by_time(ground, ground.hosts[0])]
        assert paths[:2] == ["/robots.txt", "/sitemap.xml"]
        assert sorted(paths[2:]) == ["/", "/page/1", "/page/2", "/page/3"]
        assert shortest_gap(ground) >= 0.5 - NEAR_ENOUGH


async def attempts_of(project: Project, urls: list[str]) -> list[Attempt]:
    return [one for url in urls for one in await project.records.attempts(fingerprint(url))]

"""Sessions of a fleet: four workers on Valkey are one member, and some of them are killed. The club's log is the
witness: how often somebody logged in, and what was shown to whom."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack

import pytest

from tests.faults.fleet import FleetProject, NoSeeds, WorkerProcess, poll_until, wait_for_all, workers
from tests.services.proxies import http_proxy
from tests.services.valkey import DURABLE, running_valkey
from tests.sites.club import PASSWORD, Club, club

pytestmark = pytest.mark.long

WORKERS = 4
PAGES = 300
SPIDER = """
import os
from gossamer import Item, Page, Spider

class Price(Item, key="url"):
    title: str

class Park(Spider):
    start_urls = [os.environ["CLUB"] + "/page/0"]
    session = "member"

    async def login(self, session):
        page = await session.get(os.environ["CLUB"] + "/login")
        await session.submit(page.form("#login"), user="ada", password=self.secret("CLUB"))

    def logged_out(self, page: Page) -> bool:
        return bool(page.css("form#login"))

    def parse(self, page: Page):
        yield Price(url=page.url, title=page.css("h1::text").get())
        yield from page.follow_all("a")
"""
# That a worker was killed is seen by its process id: no lease need be so short that a slow machine loses it.
SETTINGS = '[lease]\nmax_deliveries = 50\n[sessions]\nlogin_pause = "200ms"\n[retry]\nmax_attempts = 1'


@pytest.fixture(scope="module")
def valkey():
    with running_valkey(*DURABLE) as server:
        yield server


def fleet(folder, valkey, site: Club, **options) -> FleetProject:
    project = FleetProject(
        folder,
        NoSeeds(),
        state=valkey.address(),
        records="sqlite:///records.db",
        spider=options.pop("spider", SPIDER),
        settings=SETTINGS + options.pop("settings", ""),
        environment={"CLUB": site.url("")},
        **options,
    )
    project.set(GOSSAMER_SECRET_CLUB=PASSWORD)
    return project


def crew(project: FleetProject, site: Club) -> list[WorkerProcess]:
    first = project.start(command=("crawl", "park"))
    poll_until(lambda: bool(site.hits), [first])
    return [first, *(project.start() for _ in range(WORKERS - 1))]


def killed_at_random(project: FleetProject, site: Club, crewed: list[WorkerProcess], times: int) -> None:
    """Kill a worker when the club has seen so many more pages, and start another in its place."""
    chance = random.Random(14)
    for _ in range(times):
        goal = len(site.hits) + chance.randrange(15, 40)
        poll_until(lambda goal=goal: len(site.hits) >= goal or len(shown(site)) == PAGES, crewed)
        place = chance.randrange(WORKERS)
        crewed[place].kill()
        crewed[place] = project.start()


def shown(site: Club) -> Counter[str]:
    return Counter(hit.path for hit in site.seen("/page/", status=200))


def assert_whole(project: FleetProject, site: Club) -> None:
    outcome = project.outcome()
    assert outcome.letters == []
    assert {record.url for record in outcome.records} == {site.url(path) for path in site.paths}
    assert (outcome.counts.done, outcome.counts.open, outcome.counts.dead) == (PAGES, 0, 0)
    assert outcome.counts.retries == 0


def test_a_fleet_logs_in_once(tmp_path, valkey):
    with club(pages=PAGES, latency=0.02) as site:
        project = fleet(tmp_path, valkey, site)
        with workers(*crew(project, site)) as crewed:
            wait_for_all(crewed)

        assert_whole(project, site)
        assert site.logins == 1
        assert set(shown(site).values()) == {1}


def test_a_fleet_logs_in_once_for_every_session_that_ends_though_workers_die(tmp_path, valkey):
    with club(pages=PAGES, lasts=50, latency=0.02) as site:
        project = fleet(tmp_path, valkey, site)
        with workers(*crew(project, site)) as crewed:
            killed_at_random(project, site, crewed, 6)
            wait_for_all(crewed)

        assert_whole(project, site)
        # A login that was made by a worker that died before it could say so is lost with it, and nothing else is.
        unused = sum(session.pages == 0 for session in site.sessions.values())
        assert unused <= 6
        assert site.used_up <= site.logins - unused <= site.used_up + 1


def test_the_login_of_a_worker_that_dies_is_made_by_another(tmp_path, valkey):
    dying = SPIDER.replace(
        '        page = await session.get(os.environ["CLUB"] + "/login")\n',
        '        page = await session.get(os.environ["CLUB"] + "/login")\n'
        '        if not os.path.exists("died"):\n'
        '            open("died", "w").close()\n'
        "            os.kill(os.getpid(), 9)\n",
    )
    with club(pages=PAGES, latency=0.01) as site:
        project = fleet(tmp_path, valkey, site, spider=dying)
        with workers(project.start(command=("crawl", "park"))) as crewed:
            poll_until(lambda: (tmp_path / "died").exists())
            crewed[0].wait()
            crewed[:] = [project.start() for _ in range(WORKERS)]
            wait_for_all(crewed)

        assert_whole(project, site)
        assert site.logins == 1
        assert len(site.seen("/login")) >= 2


def test_a_session_that_is_bound_to_an_address_keeps_its_proxy(tmp_path, valkey):
    with ExitStack() as stack:
        site = stack.enter_context(club(pages=PAGES, bound=True, latency=0.01))
        proxies = [stack.enter_context(http_proxy(source=f"127.0.1.{number}")) for number in (1, 2, 3)]
        urls = ", ".join(f'"http://127.0.0.1:{proxy.port}"' for proxy in proxies)
        project = fleet(
            tmp_path, valkey, site,
            spider=SPIDER.replace('session = "member"', 'session = "member"\n    proxy_pool = "dc"'),
            settings=f"\n[proxies.dc]\nurls = [{urls}]\nallow_private = true",
        )  # fmt: skip
        with workers(*crew(project, site)) as crewed:
            killed_at_random(project, site, crewed, 2)
            wait_for_all(crewed)

        assert_whole(project, site)
        assert len({hit.address for hit in site.seen("/page/")}) == 1
        assert site.logins - sum(session.pages == 0 for session in site.sessions.values()) == 1


def test_a_login_that_never_works_is_not_made_again_and_again_by_a_fleet(tmp_path, valkey):
    with club(pages=PAGES, never=True) as site:
        project = fleet(tmp_path, valkey, site)
        with workers(*crew(project, site)) as crewed:
            assert {worker.wait() for worker in crewed} <= {0, 1}  # 1: not one page could be had

        (letter,) = project.outcome().letters
        assert (letter.reason, site.logins) == ("login", 3)

"""A refusal through one proxy is tried through another: whole crawls through real proxies, some of which a site has
banned. Witness: the log of the site, and that of the proxies."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator

import pytest

from gossamer import Page, Request
from gossamer.model import events
from tests.patience import until
from tests.services.proxies import http_proxy
from tests.services.valkey import ValkeyServer, running_valkey
from tests.sites.blocking import blocking_world

from .crawling import Heard, crawled, look, settings_for
from .routing import Offers, roads
from .test_routes import attempts_of

ONLY = '[domains."{0}"]\nroute = "datacenter"'


def by_proxy(way, **wanted) -> Counter[int]:
    """How many requests for pages came through which proxy, by its number."""
    return Counter(int(hit.proxy.rpartition(".")[2]) for hit in way.world.hits(**wanted))


async def test_pages_that_banned_proxies_were_refused_come_through_the_healthy_ones(tmp_path):
    # given ten proxies of which the site has banned three, robots.txt included
    with roads({"b.localhost": "banning:1,2,3"}, "datacenter", pages=31, datacenter=10) as way:
        read = way.settings(tmp_path, more=ONLY.format("b.localhost"))
        left = await crawled(Offers(way.world.urls()), read)

        # then every page that robots.txt allows is there, and no attempt was used up
        assert len(left.records) == 30
        assert left.fate(way.world.url("b.localhost", 0)) == ("dropped", "robots")
        assert left.letters == {}
        assert left.report.counts.retries == 0
        left.assert_adds_up()

        # and the log of attempts has a line for each request that the site saw, with its proxy and its price
        attempts = await attempts_of(read, way.world.urls())
        seen = Counter(f"http://127.0.0.1:{proxy.port}" for proxy in way.datacenter for _ in proxy.passages)
        robots = Counter(hit.proxy for hit in way.world.hits(robots=True) if hit.verdict == "robots")
        assert sum(seen.values()) == len(way.world.hits(robots=True))
        assert sum(1 for one in attempts if one.status is not None) == len(way.world.hits())
        assert {hit.through for hit in way.world.hits(robots=True)} == {"datacenter"}
        assert robots.total() <= 4

        # and the banned proxies rest for the site; the figures of all proxies are those of the proxies
        health = await look(read, lambda system: system.state.proxies.health("dc"))
        banned = {way.datacenter[n].address for n in range(3)}
        at_site = await look(read, lambda system: system.state.proxies.at_sites("dc"))
        assert {one.name for one in at_site if one.rest_until} <= banned
        assert all(one.rest_until == 0 for one in health)
        assert sum(one.successes for one in health) == 30
        assert sum(one.bans for one in health) == sum(hit.status == 403 for hit in way.world.hits(robots=True))
        received: Counter[str] = Counter()
        for one in attempts:
            received[one.proxy or ""] += one.bytes
        assert all(one.bytes >= received[one.name] > 0 for one in health if received[one.name])
        assert sum(received.values()) > 0


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with running_valkey() as server:
        yield server


async def test_workers_of_a_fleet_know_of_each_others_bans(tmp_path, valkey):
    # given two processes that crawl the same job, with their state on a server
    with roads({"b.localhost": "banning:1,2,3", "a.localhost": "open"}, "datacenter", pages=61, datacenter=6) as way:
        more = '[router]\nladder = ["datacenter"]'
        read = way.settings(
            tmp_path, more=more, state=valkey.address(), project="bans", politeness__robots=False, crawl__concurrency=4
        )
        spider = Offers(way.world.urls())
        first, second = await asyncio.gather(crawled(spider, read), crawled(spider, read))

        assert Counter(fate[1] for fate in first.fates) == {"done": 122}
        assert first.letters == second.letters == {}
        at_site = await look(read, lambda system: system.state.proxies.at_sites("dc"))
        banned = {way.datacenter[n].address for n in range(3)}
        assert {one.name for one in at_site if one.rest_until} == banned
        assert {one.site for one in at_site} == {"b.localhost"}
        # then each banned proxy was asked by what was under way, and rested then for that site alone
        assert max(by_proxy(way, host="b.localhost", verdict="forbidden").values()) <= 2 * 4 * 3
        assert min(by_proxy(way, host="a.localhost")[n] for n in (1, 2, 3)) >= 3
        health = await look(read, lambda system: system.state.proxies.health("dc"))
        assert sum(one.tries for one in health) == len(way.world.hits())
        assert sum(one.credits for one in health) == 2 * len(way.world.hits())


@pytest.mark.parametrize("banned", [5, 9])
async def test_no_page_is_lost_while_one_proxy_is_healthy(tmp_path, banned):
    every = ",".join(str(n + 1) for n in range(banned))
    with roads({"b.localhost": f"banning:{every}"}, "datacenter", pages=40, datacenter=10) as way:
        read = way.settings(tmp_path, more=ONLY.format("b.localhost"), politeness__robots=False)
        left = await crawled(Offers(way.world.urls()), read)
        assert len(left.records) == 40
        assert left.letters == {}
        left.assert_adds_up()
        # and the proxies that were banned rest: each is asked by pages that were under way, and then no more
        assert by_proxy(way, verdict="page").keys() == set(range(banned + 1, 11))
        paths = Counter(hit.path for hit in way.world.hits())
        assert max(paths.values()) <= 10


@pytest.mark.parametrize("detail", ["session", "stay"])
async def test_a_visitor_that_keeps_its_proxy_moves_on_when_the_site_refuses_it(tmp_path, detail):
    class Named(Offers):
        def start(self) -> Iterator[Request]:
            for url in self.start_urls:
                yield Request(url=url, session="ann" if detail == "session" else None)

    with roads({"b.localhost": "banning:1,2,3"}, "datacenter", pages=20, datacenter=6) as way:
        read = way.settings(tmp_path, more=ONLY.format("b.localhost"), politeness__robots=False)
        if detail == "stay":
            file = tmp_path / "gossamer.toml"
            file.write_text(file.read_text().replace("[proxies.dc]", '[proxies.dc]\nstay = "1h"'))
            read = settings_for(tmp_path, fetch__allow_private=True, politeness__robots=False)
        left = await crawled(Named(way.world.urls()), read)
        assert len(left.records) == 20
        assert left.letters == {}
        # then all pages came through one healthy proxy
        assert len(by_proxy(way, verdict="page")) == 1


async def test_a_gateway_gives_another_session_to_a_page_that_was_refused(tmp_path):
    # given a gateway behind which every third session leaves by a banned address
    sessions: dict[str, str] = {}

    def address(user: str) -> str:
        return sessions.setdefault(user, f"127.0.1.{len(sessions) % 3 + 1}")

    with (
        blocking_world({"g.localhost": "banning:1"}, pages=31) as world,
        http_proxy(users=lambda user, password: True, leads_to=world.port, source=address) as gate,
    ):
        (tmp_path / "gossamer.toml").write_text(
            f'[proxies.home]\ngateway = "{gate.address}"\nusername = "ann-{{session}}"\nallow_private = true\n'
            '[routes.home]\npool = "home"\nprice = 3\n[router]\nladder = ["home"]\n'
        )
        read = settings_for(tmp_path, fetch__allow_private=True)
        left = await crawled(Offers(world.urls()), read)

        assert len(left.records) == 30
        assert left.letters == {}
        assert left.report.counts.retries == 0
        refused = [hit for hit in world.hits() if hit.verdict == "forbidden"]
        assert refused
        # and each refusal was answered by a session of its own
        assert len(world.hits()) == 30 + len(refused)
        assert len({passage.username for passage in gate.passages}) >= 30


@pytest.mark.long
async def test_where_a_site_refuses_every_proxy_its_pages_wait_and_none_dies(tmp_path):
    # given a site that bans all proxies for some seconds, and rests that a busy machine cannot miss
    every = ",".join(str(n + 1) for n in range(4))
    with roads({"b.localhost": f"banning:{every}:9"}, "datacenter", pages=31, datacenter=4) as way:
        heard = Heard()
        read = way.settings(
            tmp_path,
            cooldown="4s",
            more=ONLY.format("b.localhost"),
            politeness__concurrency=2,
            politeness__robots=False,
            retry__max_attempts=3,
        )
        left = await crawled(Offers(way.world.urls()), read, heard=heard)

        # then no page was lost, and nothing went out directly
        assert len(left.records) == 31
        assert left.letters == {}
        assert any(event.stage == "proxies-rest" for event in heard.of(events.Trouble))
        assert {hit.through for hit in way.world.hits(robots=True)} == {"datacenter"}
        # and the proxies rested: far fewer requests than pages were refused
        assert len(way.world.hits(verdict="forbidden", robots=True)) < 31


async def test_an_proxy_that_one_site_banned_serves_the_others(tmp_path):
    with roads({"b.localhost": "banning:1", "a.localhost": "open"}, "datacenter", pages=21, datacenter=2) as way:
        read = way.settings(tmp_path, more='[router]\nladder = ["datacenter"]')
        left = await crawled(Offers(way.world.urls()), read)
        assert Counter(record.site for record in left.records) == {"a.localhost": 21, "b.localhost": 20}
        assert by_proxy(way, host="a.localhost")[1] >= 5
        assert by_proxy(way, host="b.localhost", verdict="page")[1] == 0


async def test_a_page_that_is_forbidden_to_everybody_dies_and_is_not_held_against_the_proxies(tmp_path):
    with roads({"p.localhost": "private:3,17"}, "datacenter", pages=60, datacenter=6) as way:
        read = way.settings(tmp_path, more=ONLY.format("p.localhost"), retry__max_attempts=3)
        left = await crawled(Offers(way.world.urls()), read)

        assert len(left.records) == 58
        assert {(letter.url, letter.reason) for letter in left.letters.values()} == {
            (way.world.url("p.localhost", 3), "http-403"),
            (way.world.url("p.localhost", 17), "http-403"),
        }
        at_site = await look(read, lambda system: system.state.proxies.at_sites("dc"))
        assert [one for one in at_site if one.rest_until] == []
        # and it was asked for through some proxies, and not through all of them again and again
        asked = Counter(hit.path for hit in way.world.hits(verdict="forbidden"))
        assert all(3 <= count <= 15 for count in asked.values())


async def test_where_one_proxy_is_enough_the_first_refusal_decides(tmp_path):
    with roads({"b.localhost": "banning:1,2"}, "datacenter", pages=4, datacenter=2) as way:
        more = f"{ONLY.format('b.localhost')}\n[router]\nmax_proxies = 1"
        read = way.settings(tmp_path, more=more, politeness__robots=False)
        left = await crawled(Offers(way.world.urls()), read)
        assert {letter.reason for letter in left.letters.values()} == {"http-403"}
        assert len(way.world.hits()) == 4


async def test_where_two_proxies_are_enough_the_second_decides(tmp_path):
    with roads({"b.localhost": "banning:1"}, "datacenter", pages=9, datacenter=2) as way:
        more = f"{ONLY.format('b.localhost')}\n[router]\nmax_proxies = 2"
        read = way.settings(tmp_path, more=more, politeness__robots=False)
        left = await crawled(Offers(way.world.urls()), read)
        assert len(left.records) == 9
        assert left.letters == {}


@pytest.mark.parametrize("status", [502, 504])
async def test_a_proxy_that_cannot_reach_the_site_costs_no_attempt(tmp_path, status):
    with roads({"a.localhost": "open"}, "datacenter", pages=9, datacenter=2) as way:
        way.datacenter[0].answer(status)  # without a tunnel, it answers in the site's place
        read = way.settings(tmp_path, more=ONLY.format("a.localhost"), politeness__robots=False)
        left = await crawled(Offers(way.world.urls()), read)
        assert len(left.records) == 9
        assert (left.letters, left.report.counts.retries) == ({}, 0)
        attempts = await attempts_of(read, way.world.urls())
        assert {(one.outcome, one.reason) for one in attempts if one.status == status} == {("released", "proxy")}


@pytest.mark.parametrize("detects", [True, False])
async def test_a_wanted_403_is_a_page_and_no_refusal(tmp_path, detects):
    class Wanting(Offers):
        handle_statuses = (403,)

        def parse(self, page: Page) -> Iterator[dict[str, object]]:
            yield {"url": page.url, "status": page.status}

    with roads({"p.localhost": "private:0,1,2"}, "datacenter", pages=3, datacenter=3) as way:
        more = f"{ONLY.format('p.localhost')}\ndetect_blocks = {json.dumps(detects)}"
        read = way.settings(tmp_path, more=more)
        left = await crawled(Wanting(way.world.urls()), read)
        assert [record.data["status"] for record in left.records] == [403] * 3
        assert len(way.world.hits()) == 3
        assert await look(read, lambda system: system.state.proxies.at_sites("dc")) == []


async def test_an_unsafe_request_is_not_repeated_through_another_proxy(tmp_path):
    class Posting(Offers):
        def start(self) -> Iterator[Request]:
            for url in self.start_urls:
                yield Request(url=url, method="POST", body=b"x=1")

    with roads({"b.localhost": "banning:1,2,3"}, "datacenter", pages=2, datacenter=3) as way:
        read = way.settings(tmp_path, more=ONLY.format("b.localhost"), politeness__robots=False)
        left = await crawled(Posting([way.world.url("b.localhost", 1)]), read)
        assert [letter.reason for letter in left.letters.values()] == ["http-403"]
        assert len(way.world.hits()) == 1


async def test_a_budget_is_not_passed_by_further_proxies(tmp_path):
    with roads({"b.localhost": "banning:1,2,3"}, "datacenter", pages=20, datacenter=6) as way:
        more = f'{ONLY.format("b.localhost")}\n[router]\nbudget_job = 30\nwhen_spent = "bury"'
        read = way.settings(tmp_path, more=more, politeness__robots=False)
        left = await crawled(Offers(way.world.urls()), read)
        assert len(way.world.hits(robots=True)) == 15  # of 2 credits each
        assert {letter.reason for letter in left.letters.values()} == {"budget"}
        spent = await look(read, lambda system: system.state.budgets.spent())
        assert list(spent.values()) == [30.0]


@pytest.mark.parametrize("detects", [True, False])
async def test_each_further_proxy_waits_for_its_turn_at_the_site(tmp_path, detects):
    with roads({"b.localhost": "banning:1,2,3"}, "datacenter", pages=8, datacenter=5) as way:
        more = f"{ONLY.format('b.localhost')}\ndetect_blocks = {json.dumps(detects)}"
        read = way.settings(tmp_path, more=more, politeness__rate="20/s")

        class Slow(Offers):
            rate = "20/s"

        left = await crawled(Slow(way.world.urls()), read)
        assert len(left.records) == 7
        assert way.world.hits(verdict="forbidden")
        times = sorted(hit.at for hit in way.world.hits(robots=True))
        assert times[-1] - times[0] >= 0.9 * 0.05 * (len(times) - 1)


async def test_proxies_that_all_rest_for_a_site_make_its_pages_climb_where_a_dearer_route_is_left(tmp_path):
    with roads({"b.localhost": "banning:1.1,1.2"}, "datacenter", "residential", pages=12, datacenter=2) as way:
        more = '[router]\nladder = ["datacenter", "residential"]\nlearn = false'
        read = way.settings(tmp_path, more=more, politeness__robots=False, politeness__concurrency=1)
        left = await crawled(Offers(way.world.urls()), read)
        assert len(left.records) == 12
        # and the proxies that the site refused were asked no more than it takes to know that
        assert by_proxy(way, verdict="forbidden") == {1: 3, 2: 3}


async def test_a_flaky_site_teaches_the_router_nothing(tmp_path):
    # given a site that fails more than a quarter of all requests, whoever makes them, and a dear way that is not there
    # at first: pages that failed twice wait for it
    with roads({"f.localhost": "flaky:28"}, "residential", pages=200, residential=1) as way:
        way.residential[0].stop()
        read = way.settings(tmp_path, politeness__robots=False, retry__max_attempts=6, cooldown="1s")
        heard = Heard()

        async def mend_later(running):
            await until(lambda: len(heard.of(events.Released)) >= 3)
            way.residential[0].start()

        left = await crawled(Offers(way.world.urls()), read, attend=mend_later, heard=heard)
        assert len(left.records) == 200
        assert await look(read, lambda system: system.state.routes.learned_routes()) == []
        # and only pages that failed twice were asked for by the dear way
        through = Counter(hit.through for hit in way.world.hits())
        assert through["residential"] < through["direct"] / 4

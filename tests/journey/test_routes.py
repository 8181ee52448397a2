"""The cheapest way that works: whole crawls through real proxies and a vendor's API. Witness: the sites' own log."""

from __future__ import annotations

from collections import Counter

import pytest

from gossamer import Request
from gossamer.model import events
from gossamer.routing.ladder import wished
from gossamer.terms import routing_of
from tests.patience import until

from .crawling import Heard, crawled, look
from .routing import PASSWORD, Offers, roads


async def attempts_of(read, sites):
    async def ask(system):
        found = []
        for url in sites:
            found += await system.records.attempts(system.rules.fingerprint(url))
        return found

    return await look(read, ask)


async def drain_when(holds, running):
    await until(holds)
    running.pool.drain()


async def test_each_site_is_read_by_the_cheapest_route_that_lets_it_through(tmp_path):
    domains = {"a.localhost": "open", "b.localhost": "direct-shy", "c.localhost": "datacenter-shy",
               "d.localhost": "fortress"}  # fmt: skip
    with roads(domains, "datacenter", "residential", "api") as way:
        read = way.settings(tmp_path)
        left = await crawled(Offers(way.world.urls()), read)

        # then every page of every site is there, and no wall was taken for one
        assert {record.key for record in left.records} == set(way.world.truth())
        left.assert_adds_up()
        assert left.report.counts.retries == 0

        # and each site was asked by the dearer ways only as far as it took
        pages = Counter((hit.host, hit.through) for hit in way.world.hits(verdict="page"))
        assert pages == {
            ("a.localhost", "direct"): 5,
            ("b.localhost", "datacenter"): 5,
            ("c.localhost", "residential"): 5,
            ("d.localhost", "managed"): 5,
        }

        # and what was learned is known to the next crawl: not one request goes by a way that is known not to do
        before = len(way.world.hits())
        await crawled(Offers(way.world.urls()), read, fresh=True)
        assert {hit.verdict for hit in way.world.hits()[before:]} == {"page"}


async def test_every_try_is_in_the_log_with_its_route_its_proxy_and_its_price(tmp_path):
    with roads({"c.localhost": "datacenter-shy"}, "datacenter", "residential", pages=1) as way:
        read = way.settings(tmp_path)
        after = await crawled(Offers(way.world.urls()), read)
        tries = sorted(await attempts_of(read, way.world.urls()), key=lambda one: one.at)

        assert [(one.route, one.outcome, one.cost) for one in tries] == [
            ("direct", "blocked", 2.0),  # robots.txt is paid for as well, by whoever asks for it
            *[("datacenter", "blocked", 2.0)] * 3,  # each proxy of the pool, before the page climbs
            ("residential", "done", 3.0),
        ]
        assert after.report.cost == 11.0  # and the summary says the same
        assert tries[0].proxy is None
        assert {one.proxy for one in tries[1:4]} == {proxy.address for proxy in way.datacenter}
        assert all(one.reason.startswith("blocked-") and one.error for one in tries[:4])
        assert all(PASSWORD not in repr(one) for one in tries)


async def test_a_page_that_nobody_may_see_does_not_make_its_site_expensive(tmp_path):
    # given a site that is open but for one page which is missing everywhere, and one that shows a login to everybody
    with roads({"a.localhost": "open", "z.localhost": "login"}, "datacenter", "api") as way:
        read = way.settings(tmp_path)
        left = await crawled(Offers([*way.world.urls(), way.world.url("a.localhost", 99)]), read)

        assert {record.site for record in left.records} == {"a.localhost"}
        assert left.fate(way.world.url("a.localhost", 99)) == ("dead", "http-404")
        assert {left.letters[way.world.url("z.localhost", n)].reason for n in range(5)} == {"blocked-login"}
        assert await look(read, lambda system: system.state.routes.learned_routes()) == []


async def test_a_retry_takes_another_proxy_and_a_banned_one_rests(tmp_path):
    # given a site that serves two pages to each proxy and then bans it
    with roads({"n.localhost": "counting:2:60"}, "datacenter", pages=6, datacenter=4) as way:
        read = way.settings(tmp_path, more='[domains."n.localhost"]\nroute = "datacenter"', retry__max_attempts=6)
        left = await crawled(Offers(way.world.urls()), read)

        assert {record.key for record in left.records} == set(way.world.truth())
        asked = Counter(hit.proxy for hit in way.world.hits())
        assert len(asked) >= 3
        # A proxy that was turned away is not used again for a minute: at most what was in flight then.
        assert max(asked.values()) <= 2 + 6
        assert not [hit for hit in way.world.hits(robots=True) if hit.through == "direct"]


async def test_when_all_proxies_rest_pages_wait_and_nothing_leaves_directly(tmp_path):
    # given a site that turns every proxy of the pool away, and a pool that is the only way to it
    with roads({"d.localhost": "fortress"}, "datacenter", pages=3, datacenter=2) as way:
        read = way.settings(tmp_path, more='[domains."d.localhost"]\nroute = "datacenter"')

        heard = Heard()

        async def stop_when_all_rest(running):
            await drain_when(lambda: any(event.stage == "proxies-rest" for event in heard.of(events.Trouble)), running)

        left = await crawled(Offers(way.world.urls()), read, attend=stop_when_all_rest, heard=heard)

        # then the crawl was stopped with pages waiting; not one hit is from this machine itself
        assert not left.report.ended
        assert {hit.through for hit in way.world.hits(robots=True)} == {"datacenter"}
        waiting = [fate for fate in left.fates if fate[1] in ("waiting", "queued")]
        assert waiting
        assert any(reason == "proxies-rest" for _, _, reason in waiting)


async def test_a_proxy_that_refuses_the_password_uses_up_no_try_and_lets_nothing_out(tmp_path):
    with roads({"a.localhost": "open"}, "datacenter", pages=2, datacenter=1) as way:
        way.datacenter[0].refuse()
        read = way.settings(tmp_path, cooldown="1s", more='[domains."a.localhost"]\nroute = "datacenter"')

        async def mend_when_noticed(running):
            await until(lambda: heard.of(events.Trouble))
            way.datacenter[0].behave()

        heard = Heard()
        left = await crawled(Offers(way.world.urls()), read, attend=mend_when_noticed, heard=heard)
        assert {record.key for record in left.records} == set(way.world.truth())
        assert left.report.counts.retries == 0
        assert {hit.through for hit in way.world.hits(robots=True)} == {"datacenter"}
        assert all(PASSWORD not in str(trouble) for trouble in heard.events)


@pytest.mark.parametrize("when_spent", ["wait", "bury"])
async def test_a_budget_is_hard_and_told_once(tmp_path, when_spent):
    with roads({"a.localhost": "open"}, pages=12) as way:
        heard = Heard()
        more = f'[router]\nbudget_job = 8\nwhen_spent = "{when_spent}"'
        read = way.settings(tmp_path, more=more, politeness__robots=False)

        async def stop_when_spent(running):
            if when_spent == "wait":
                await drain_when(lambda: len(heard.of(events.BudgetReached)) >= 4, running)

        left = await crawled(Offers(way.world.urls()), read, attend=stop_when_spent, heard=heard)
        assert len(way.world.hits(robots=True)) == 8
        assert len(left.records) == 8
        if when_spent == "bury":
            assert Counter(letter.reason for letter in left.letters.values()) == {"budget": 4}
        else:
            assert [reason for _, state, reason in left.fates if state == "waiting"] == ["budget"] * 4


async def test_a_wall_that_stands_before_everybody_is_not_held_against_an_proxy(tmp_path):
    with roads({"a.localhost": "open", "z.localhost": "login"}, "datacenter", pages=6, datacenter=2) as way:
        read = way.settings(tmp_path, more='[router]\nladder = ["datacenter"]')
        left = await crawled(Offers(way.world.urls()), read)
        assert Counter(record.site for record in left.records) == {"a.localhost": 6}
        health = await look(read, lambda system: system.state.proxies.health("dc"))
        assert [proxy.bans for proxy in health] == [0, 0]


async def test_pages_that_cannot_climb_just_now_wait_where_they_were_and_do_not_ask_below_again(tmp_path):
    # given a site that says no to direct requests, and a pool whose only proxy is gone
    with roads({"b.localhost": "direct-shy"}, "datacenter", pages=2, datacenter=1) as way:
        way.datacenter[0].stop()
        read = way.settings(tmp_path, cooldown="1s", politeness__robots=False)
        heard = Heard()

        async def mend_later(running):
            await until(lambda: len(heard.of(events.Released)) >= 6)
            way.datacenter[0].start()

        left = await crawled(Offers(way.world.urls()), read, attend=mend_later, heard=heard)
        assert {record.key for record in left.records} == set(way.world.truth())
        assert len([hit for hit in way.world.hits() if hit.through == "direct"]) == 2
        standings = await look(read, lambda system: system.state.routes.learned_routes())
        assert {one.route for one in standings} <= {"datacenter"}


async def test_a_page_to_be_rendered_does_not_leave_directly_where_every_rung_has_a_pool(tmp_path):
    with roads({"s.localhost": "script"}, "datacenter", pages=1) as way:
        read = way.settings(tmp_path, more='[router]\nladder = ["datacenter"]')
        trip = await planned(read, Request(url=way.world.url("s.localhost"), fetcher="browser"))
        assert [(rung.transport, rung.pool) for rung in trip] == [("browser", "dc")]


async def planned(read, request):
    routing = routing_of(read)
    ladder = routing.terms_for("s.localhost").ladder
    return wished(ladder, routing.routes, fetcher=request.fetcher, pool=request.proxy_pool)


async def test_what_is_paid_by_the_byte_counts_for_robots_txt_as_well_and_waits_for_its_change(tmp_path):
    # given a route whose every request takes 11 credits at first, and a budget of 25
    with roads({"a.localhost": "open"}, pages=6, datacenter=1) as way:
        more = (
            '[routes.datacenter]\npool = "dc"\nprice = 1\nprice_per_gb = 10000\n'
            '[router]\nladder = ["datacenter"]\nbudget_job = 25\nwhen_spent = "bury"'
        )
        read = way.settings(tmp_path, more=more)
        left = await crawled(Offers(way.world.urls()), read)

        # then what was taken and not used came back in time: all pages are there, each paid with its bytes
        assert len(left.records) == 6
        spent = await look(read, lambda system: system.state.budgets.spent())
        received = sum(one.bytes for one in await attempts_of(read, way.world.urls()))
        assert 7 + received * 1e-5 < sum(spent.values()) < 9


async def test_an_error_teaches_nothing_about_routes(tmp_path):
    with roads({"b.localhost": "direct-shy"}, "datacenter", pages=1) as way:
        missing = way.world.url("b.localhost", 99)
        read = way.settings(tmp_path)
        await crawled(Offers([missing]), read)
        assert await look(read, lambda system: system.state.routes.learned_routes()) == []

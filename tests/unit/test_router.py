"""One page's route: what it may try, when a failure is its own, and who shares whose cookies."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.backends.sqlite.state import open_sqlite_state
from gossamer.clock import VirtualClock
from gossamer.errors import BackendUnavailable
from gossamer.fetch.contract import Response
from gossamer.fetch.open_route import Transports
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.page import Headers
from gossamer.model.route import DIRECT
from gossamer.model.task import Task
from gossamer.routing.blocks import judge
from gossamer.routing.budget import BudgetKeeper, Budgets
from gossamer.routing.ladder import RouteTerms, ladder_of, routes_of
from gossamer.routing.proxies.pools import Pools
from gossamer.routing.router import RouteNotServed, Router, lanes_of
from gossamer.routing.site_memory import SiteMemory
from gossamer.settings import ProxyPool, RouteTable
from gossamer.units import Secret
from tests.gates import HeldGate
from tests.patience import MOMENT

POOLS = {"dc": ProxyPool(urls=(Secret("http://127.0.0.1:9"),))}
TABLES = {"dc": RouteTable(pool="dc", price=2), "browser": RouteTable(transport="browser", price=5)}
ROUTES = routes_of(TABLES, POOLS, ())
UNBOUND = Budgets()
LADDER = ladder_of((), ROUTES, tuple(TABLES), "here")


def task(**fields: Any) -> Task:
    usual: dict[str, Any] = {
        "id": 1, "job": "j", "url": "http://a.test/1", "fingerprint": b"0" * 16, "site": "a.test", "kind": "parse",
        "priority": 0, "depth": 0, "attempt": 0, "max_attempts": 4, "created_at": 0.0,
    }  # fmt: skip
    return Task(**{**usual, **fields})


def answer(status: int = 200, size: int = 100) -> Response:
    return Response(url="http://a.test/1", status=status, headers=Headers(), body=b"x" * size, wire_bytes=size)


@pytest.fixture
async def state(tmp_path):
    async with open_sqlite_state(
        tmp_path / "state.db",
        VirtualClock(),
        lease_duration=timedelta(minutes=1),
        terms_for=lambda site: SiteTerms(),
    ) as opened:
        yield opened


def test_one_huge_page_does_not_make_the_others_look_small():
    memory = SiteMemory(None, VirtualClock())
    for size in (*[20_000] * 30, 10_000_000, 10_000_000):
        memory.note_size("a.test", "parse", size)

    usual = memory.usual_size("a.test", "parse")

    assert usual is not None
    assert judge(html_of(12_000), usual_size=usual) is None


def html_of(size: int) -> Response:
    body = b"<html><title>Lamps</title><p>" + b"lamp " * (size // 5)
    return Response(url="http://a.test/1", status=200, headers=Headers([("content-type", "text/html")]), body=body)


def router_on(state, *, serves=None, book=None, budgets=UNBOUND):
    clock = VirtualClock()
    nothing: Any = None
    return Router(
        terms_for=lambda site: RouteTerms(ladder=LADDER),
        routes=ROUTES,
        transports=Transports({kind: lambda: nullcontext(nothing) for kind in ("http", "browser")}),
        proxies=Pools(POOLS, state.proxies, clock, project="", root=Path()),
        book=state.routes,
        budget=BudgetKeeper(book or state.budgets, "j", lambda site: budgets, clock, max_body=1000),
        clock=clock,
        serves=serves,
    )


async def test_a_pool_of_one_proxy_is_not_tried_for_ever(state):
    page = await router_on(state).begin(task(proxy_pool="dc"))
    tries = 0
    for _ in range(20):
        await page.open()
        tries += 1
        if not page.another_proxy():
            break
    assert tries == 3


async def test_a_failure_of_the_route_is_the_pages_own_when_others_get_through(state):
    router = router_on(state)
    route = ROUTES["dc"]
    assert [router.memory.page_is_at_fault(b"p" * 16, route) for _ in range(5)] == [False] * 5
    router.memory.note_pass("b.test", "b.test/*", route)
    assert router.memory.page_is_at_fault(b"p" * 16, route)
    assert not router.memory.page_is_at_fault(b"q" * 16, route)


async def test_cookies_belong_to_a_route_an_proxy_and_a_session(state):
    router = router_on(state)
    ann = router.jar_for(DIRECT, None, "ann")
    assert router.jar_for(DIRECT, None, "ann") is ann
    assert router.jar_for(DIRECT, None, "bob") is not ann
    assert router.jar_for(ROUTES["browser"], None, "ann") is not ann


async def test_a_page_that_was_handed_over_goes_on_where_it_was_and_learns(state):
    router = router_on(state, serves=frozenset({"http"}))
    page = await router.begin(task())
    await page.climb("shell")
    with pytest.raises(RouteNotServed) as elsewhere:
        await page.open()
    page.close()
    assert elsewhere.value.lane == "@browser"

    # when the worker with the browser takes it from that lane
    other = router_on(state, serves=frozenset({"browser"}))
    page = await other.begin(task(fetcher=elsewhere.value.lane))
    assert page.route.name == "browser"
    assert not router.serves(page.route)


async def test_a_page_that_gets_through_where_it_was_handed_to_teaches_that(state):
    router = router_on(state)
    page = await router.begin(task(fetcher="@dc"))
    await page.open()
    await page.passed(answer())
    assert [one.route for one in await state.routes.learned_routes()] == ["dc"]


@pytest.mark.parametrize(
    ("serves", "has", "has_not"),
    [
        ({"http"}, {"", "http", "direct", "dc", "@dc", "@direct"}, {"browser", "@browser"}),
        ({"browser"}, {"browser", "@browser"}, {"", "@dc"}),
        ({"dc"}, {"dc", "@dc"}, {"", "direct", "@direct"}),
    ],
)
def test_a_worker_takes_from_the_lanes_of_its_routes(serves, has, has_not):
    lanes = lanes_of(frozenset(serves), ROUTES, LADDER)
    assert lanes is not None
    assert has <= lanes
    assert not has_not & lanes


def test_whoever_serves_the_first_rung_begins_with_the_pages():
    lanes = lanes_of(frozenset({"dc"}), ROUTES, LADDER[1:])
    assert lanes is not None
    assert "" in lanes


async def test_only_a_page_teaches_where_its_site_begins(state):
    for status, learned in ((500, []), (404, []), (200, ["dc"])):
        page = await router_on(state).begin(task())
        await page.climb("forbidden")
        await page.open()
        await page.passed(answer(status))
        page.close()
        assert [one.route for one in await state.routes.learned_routes()] == learned


async def test_a_page_that_failed_before_it_was_handed_over_teaches_nothing(state):
    router = router_on(state)
    page = await router.begin(task(fetcher="@dc", attempt=2))
    await page.open()
    await page.passed(answer())
    assert await state.routes.learned_routes() == []


async def fetch(router: Router, number: int, *, direct: str, dc: str) -> str:
    """A page that fares like this on the two cheap rungs; returns the rung on which it began."""
    page = await router.begin(task(url=f"http://a.test/p/{number}", fingerprint=number.to_bytes(16, "big")))
    began = page.route.name
    try:
        while True:
            outcome = {"direct": direct, "dc": dc}.get(page.route.name, "page")
            if page.route.name != "direct":
                await page.open()
            if outcome == "page":
                await page.passed(answer())
                return began
            if outcome == "error":
                await page.failed()
                return began
            if not await page.climb("forbidden"):
                return began
    finally:
        page.close()


async def test_a_share_of_refusals_that_is_not_most_of_them_teaches_nothing(state):
    router = router_on(state)
    for number in range(200):
        assert await fetch(router, number, direct="refusal" if number % 4 == 3 else "page", dc="page") == "direct"
    assert await state.routes.learned_routes() == []

    # and when the site turns everybody away, that is learned after some pages
    for number in range(200, 210):
        await fetch(router, number, direct="refusal", dc="page")
    assert [one.route for one in await state.routes.learned_routes()] == ["dc"]


async def test_what_was_learned_is_given_up_when_the_dear_route_does_no_better(state):
    def chance(number: int, times: int, bad: str) -> str:
        return "page" if number * times % 100 < 40 else bad

    # given a site that refuses most pages by the cheap route, which teaches the dear one
    router = router_on(state)
    number = 0
    while not await state.routes.learned_routes():
        number += 1
        await fetch(router, number, direct=chance(number, 37, "refusal"), dc="page")
    # when as many pages fail by the dear one, for other reasons
    began = []
    for _ in range(120):
        number += 1
        began.append(await fetch(router, number, direct=chance(number, 37, "refusal"), dc=chance(number, 53, "error")))
    # then pages begin at the cheap one again, but for those that compare
    assert began[:10] == ["dc"] * 10
    assert began[-60:].count("direct") >= 50


async def test_a_dear_route_that_fails_often_is_compared_with_the_cheap_one_before_its_time(state):
    # given a route that an earlier process learned
    await fetch(router_on(state), 1, direct="refusal", dc="page")
    router = router_on(state)
    began = [
        await fetch(router, number, direct="page", dc="error" if number % 3 == 0 else "page") for number in range(2, 60)
    ]
    # then one page tries the cheap route although half an hour is not over, and the others follow
    assert began[0] == "dc"
    assert began[-1] == "direct"
    assert [one.route for one in await state.routes.learned_routes()] == ["direct"]


async def test_proxies_that_refused_a_page_rest_for_its_site_when_another_lets_it_through(state):
    many = {"dc": ProxyPool(urls=tuple(Secret(f"http://127.0.0.{n}:9") for n in range(1, 6)))}
    router = router_on(state)
    proxies = router.proxies = Pools(many, state.proxies, router.clock, project="", root=Path())

    async def resting() -> list[tuple[str, str]]:
        await proxies.flush()
        return [(one.site, one.name) for one in await state.proxies.at_sites("dc") if one.rest_until]

    # given a page that the site refused to two proxies
    page = await router.begin(task(proxy_pool="dc"))
    refused = []
    for _ in range(2):
        await page.open()
        assert not page.refused("a captcha", answer(403), 403)
        refused.append(page.proxy.name)
        assert await page.next_proxy()
    assert await resting() == []

    # when a third one gets it, they are to blame, at this site
    await page.open()
    await page.passed(answer())
    assert await resting() == [("a.test", name) for name in sorted(refused)]
    assert sum(one.tries for one in await state.proxies.health("dc")) == 3


async def test_a_page_is_tried_through_so_many_proxies_at_most(state):
    many = {"dc": ProxyPool(urls=tuple(Secret(f"http://127.0.0.{n}:9") for n in range(1, 10)))}
    router = router_on(state)
    router.proxies = Pools(many, state.proxies, router.clock, project="", root=Path())
    router.terms_for = lambda site: RouteTerms(ladder=LADDER, max_proxies=4)
    page = await router.begin(task(proxy_pool="dc"))
    tried = []
    while True:
        await page.open()
        tried.append(page.proxy.name)
        page.refused("403", answer(403), 403)
        if not await page.next_proxy():
            break
    assert len(tried) == len(set(tried)) == 4


class FailingBudgets:
    """The real budgets, behind a line that breaks when credits are given back."""

    def __init__(self, book: Any) -> None:
        self._book = book

    async def give_back(self, credits: float, budgets: Any) -> None:
        raise BackendUnavailable("The state is away.")

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._book, verb)


async def test_a_state_that_is_away_does_not_cost_the_page(state):
    router = router_on(state, book=FailingBudgets(state.budgets), budgets=Budgets(job=100.0))
    dear = msgspec.structs.replace(ROUTES["dc"], price_per_gb=1e6)
    router.terms_for = lambda site: RouteTerms(ladder=(dear,))
    page = await router.begin(task())
    await page.open()

    async def pace(asked, elsewhere=None):
        return None

    await page.paid(pace)(None)
    await page.settle_cost(answer())
    assert page.cost == 2.0  # of a page whose bytes nobody metered here
    assert await state.budgets.spent() == {"job/j": 3.0}


async def test_a_request_that_waited_at_its_gate_in_vain_costs_nothing(state):
    router = router_on(state, budgets=Budgets(job=100.0))
    router.terms_for = lambda site: RouteTerms(ladder=(ROUTES["dc"],))
    page = await router.begin(task())
    await page.open()
    gates = [HeldGate(), HeldGate()]

    async def pace(asked, elsewhere=None):
        return gates[len(page._gates)]

    for _ in gates:
        await page.paid(pace)(None)
    gates[0].left()  # robots.txt
    await page.settle_cost(None)
    assert page.cost == ROUTES["dc"].price
    assert await state.budgets.spent() == {"job/j": ROUTES["dc"].price}


async def test_what_script_made_pages_teach_holds_for_pages_like_them_alone(state):
    """After two script-made pages, pictures and feeds of the host do not go through the browser."""
    router = router_on(state)

    async def first_route(path: str) -> str:
        page = await router.begin(task(url=f"https://a.test{path}"))
        page.close()
        return page.route.name

    async def climbs(path: str) -> None:
        page = await router.begin(task(url=f"https://a.test{path}"))
        await page.climb("shell")
        await page.passed(answer())
        page.close()

    await climbs("/p/1")
    await climbs("/p/2")
    begun = {path: await first_route(path) for path in ("/p/3", "/img/4.png", "/feed.xml", "/news/5", "/")}
    assert begun == {"/p/3": "browser", "/img/4.png": "direct", "/feed.xml": "direct", "/news/5": "direct",
                     "/": "direct"}  # fmt: skip

    # Several patterns that agree speak for pages that were never seen, though not for files
    await climbs("/news/5")
    await climbs("/about/us")
    assert (await first_route("/jobs/6"), await first_route("/img/4.png")) == ("browser", "direct")


async def test_while_a_page_climbs_others_of_its_pattern_wait_and_go_where_it_got_through(state):
    router = router_on(state)
    first, second = [await router.begin(task(url=f"https://a.test/p/{n}")) for n in (1, 2)]
    await first.climb("shell")
    climbing = asyncio.ensure_future(second.climb("shell"))
    await asyncio.sleep(MOMENT)
    assert not climbing.done()

    await first.passed(answer())
    first.close()

    assert await climbing
    assert second.route.name == "browser"


async def test_a_site_on_which_a_page_got_through_cheaply_is_not_judged_as_a_whole(state):
    router = router_on(state)
    page = await router.begin(task(url="https://a.test/"))
    await page.passed(answer())
    page.close()
    for path in ("/a/1", "/b/1", "/c/1"):
        page = await router.begin(task(url=f"https://a.test{path}"))
        await page.climb("shell")
        await page.passed(answer())
        page.close()
    assert {row.pattern for row in await state.routes.learned("a.test")} == {"a.test/a/*", "a.test/b/*", "a.test/c/*"}
    assert (await router.begin(task(url="https://a.test/d/1"))).route.name == "direct"

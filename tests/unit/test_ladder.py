"""Which way a page takes, and what is learned from it: decisions without a network."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import Misconfigured
from gossamer.model.route import DIRECT, Route
from gossamer.routing.contract import LearnedRoute
from gossamer.routing.ladder import (
    RouteTerms,
    after_climb,
    after_probe,
    chosen_by_hand,
    claim,
    ladder_of,
    next_rung,
    plan,
    routes_of,
    wants_probe,
    wished,
)
from gossamer.settings import ProxyPool, RouteTable

POOLS = {"dc": ProxyPool(), "home": ProxyPool(kind="residential")}
TABLES = {
    "datacenter": RouteTable(pool="dc", price=2),
    "residential": RouteTable(pool="home", price=4, price_per_gb=1000),
    "browser": RouteTable(transport="browser", price=5),
    "api": RouteTable(transport="managed", vendor="finedata", price=9),
}
ROUTES = routes_of(TABLES, POOLS, ["finedata"])
LADDER = ladder_of((), ROUTES, tuple(TABLES), "here")
TERMS = RouteTerms(ladder=LADDER, recheck=100, max_recheck=350)


def names(rungs: tuple[Route, ...]) -> list[str]:
    return [rung.name for rung in rungs]


# -- settings ------------------------------------------------------------------------------------------------------


def test_without_names_the_ladder_is_direct_and_all_routes_cheapest_first():
    assert names(LADDER) == ["direct", "datacenter", "residential", "browser", "api"]


def test_a_ladder_keeps_the_order_in_which_it_is_written():
    assert names(ladder_of(("api", "direct"), ROUTES, tuple(TABLES), "here")) == ["api", "direct"]


def test_the_built_in_browser_is_a_route_but_no_rung_of_the_default_ladder():
    routes = routes_of({}, {}, [])
    assert "browser" in routes
    assert names(ladder_of((), routes, (), "here")) == ["direct"]


def test_a_price_for_direct_can_be_written_down():
    routes = routes_of({"direct": RouteTable(price=0.5)}, {}, [])
    assert [rung.price for rung in ladder_of((), routes, ("direct",), "here")] == [0.5]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (RouteTable(transport="carrier-pigeon"), "http, profile, browser, managed"),
        (RouteTable(pool="nowhere"), "proxies.nowhere"),
        (RouteTable(transport="managed"), "[managed] table"),
        (RouteTable(transport="managed", vendor="finedata", pool="dc"), "proxies"),
        (RouteTable(vendor="finedata"), "managed"),
        (RouteTable(profile="chrome"), "profile"),
        (RouteTable(transport="profile"), "profile"),
        (RouteTable(price=-1), "0 or more"),
    ],
)
def test_a_route_that_leads_nowhere_is_refused_with_what_is_allowed(table, words):
    with pytest.raises(Misconfigured) as refusal:
        routes_of({"odd": table}, POOLS, ["finedata"])
    assert "odd" in str(refusal.value)
    assert words in str(refusal.value)


@pytest.mark.parametrize("name", ["easy", "hard", "browser", "http"])
def test_a_route_cannot_take_a_name_that_means_something_else(name):
    with pytest.raises(Misconfigured):
        routes_of({name: RouteTable(pool="dc") if name != "http" else RouteTable(transport="browser")}, POOLS, [])


def test_a_ladder_with_an_unknown_rung_names_the_known_ones():
    with pytest.raises(Misconfigured, match="direct"):
        ladder_of(("direkt",), ROUTES, tuple(TABLES), "router.ladder")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("easy", ["direct"]),
        ("hard", ["residential", "browser", "api"]),
        ("datacenter", ["datacenter"]),
    ],
)
def test_a_domain_can_be_easy_hard_or_fixed(rule, expected):
    assert names(chosen_by_hand(rule, LADDER, ROUTES, POOLS)) == expected


def test_a_domain_with_a_rule_that_nobody_knows_is_refused():
    with pytest.raises(Misconfigured, match="easy nor hard"):
        chosen_by_hand("medium", LADDER, ROUTES, POOLS)


# -- wishes of a spider ---------------------------------------------------------------------------------------------


def test_a_fetcher_may_be_a_route_or_a_kind_of_transport():
    assert names(wished(LADDER, ROUTES, fetcher="datacenter", pool=None)) == ["datacenter"]
    assert names(wished(LADDER, ROUTES, fetcher="managed", pool=None)) == ["api"]
    assert names(wished((DIRECT,), routes_of({}, {}, []), fetcher="browser", pool=None)) == ["browser"]


def test_a_wished_pool_is_the_only_way_out():
    assert names(wished(LADDER, ROUTES, fetcher=None, pool="home")) == ["residential"]
    through = wished((DIRECT,), routes_of({}, {}, []), fetcher=None, pool="home")
    assert [(rung.name, rung.pool) for rung in through] == [("home", "home")]
    rendered = wished(LADDER, ROUTES, fetcher="browser", pool="dc")
    assert [(rung.transport, rung.pool) for rung in rendered] == [("browser", "dc")]


@pytest.mark.parametrize(("fetcher", "pool"), [("telegraph", None), ("managed", "dc")])
def test_a_wish_that_nobody_can_fulfil_is_refused(fetcher, pool):
    with pytest.raises(Misconfigured):
        wished(LADDER, ROUTES, fetcher=fetcher, pool=pool)


# -- one page -------------------------------------------------------------------------------------------------------


def test_a_site_that_nobody_knows_begins_at_the_cheapest():
    assert names(plan(TERMS, None).rungs)[0] == "direct"


def test_a_site_begins_where_others_got_through():
    standing = LearnedRoute(site="a.test", route="browser", since=0, recheck_at=100)
    assert names(plan(TERMS, standing).rungs) == ["browser", "api"]


def test_what_was_learned_about_a_route_that_is_gone_does_not_count():
    standing = LearnedRoute(site="a.test", route="old-route", since=0, recheck_at=100)
    assert names(plan(TERMS, standing).rungs)[0] == "direct"


def test_a_shell_climbs_past_rungs_that_do_not_render():
    assert next_rung(LADDER, 0, "shell") == 3
    assert next_rung(LADDER, 0, "challenge") == 1
    assert next_rung(LADDER[:3], 0, "shell") is None
    assert next_rung(LADDER, len(LADDER) - 1, "forbidden") is None


def test_a_page_that_climbed_teaches_where_to_begin():
    standing = after_climb(TERMS, None, site="a.test", route=LADDER[2], reason="forbidden", now=1000.0)
    assert standing is not None
    assert (standing.route, standing.recheck_at, standing.blocks) == ("residential", 1100.0, 1)


def test_a_page_that_got_through_lower_than_known_teaches_nothing():
    standing = LearnedRoute(site="a.test", route="api", since=0, recheck_at=100)
    assert after_climb(TERMS, standing, site="a.test", route=LADDER[2], reason="forbidden", now=5.0) is None


def test_a_cheaper_rung_is_tried_again_later_and_ever_more_rarely():
    standing = after_climb(TERMS, None, site="a.test", route=LADDER[3], reason="shell", now=0.0)
    assert standing is not None
    waits = []
    now = 0.0
    for _ in range(5):
        assert not wants_probe(TERMS, standing, standing.recheck_at - 1)
        now = standing.recheck_at
        assert wants_probe(TERMS, standing, now)
        chosen = plan(TERMS, standing, may_probe=True)
        assert names(chosen.rungs)[:2] == ["residential", "browser"]
        standing = claim(TERMS, standing, now)
        waits.append(standing.recheck_at - now)
    assert waits == [200, 350, 350, 350, 350]


def test_a_probe_that_got_through_brings_the_site_down_by_one():
    standing = LearnedRoute(site="a.test", route="browser", since=0, recheck_at=100, patience=350, blocks=3)
    lower = after_probe(TERMS, standing, LADDER[2], now=500.0)
    assert (lower.route, lower.recheck_at, lower.patience) == ("residential", 600.0, 100.0)


def test_nothing_is_learned_where_a_person_decided():
    terms = RouteTerms(ladder=LADDER, learns=False)
    standing = LearnedRoute(site="a.test", route="api", since=0, recheck_at=0)
    assert names(plan(terms, standing).rungs)[0] == "direct"
    assert not wants_probe(terms, standing, 10.0)
    assert after_climb(terms, None, site="a.test", route=LADDER[1], reason="x", now=1.0) is None


@given(
    begin=st.none() | st.sampled_from([rung.name for rung in LADDER]),
    needed=st.sampled_from(range(len(LADDER))),
    probes=st.booleans(),
)
def test_a_page_always_reaches_the_rung_it_needs_and_never_goes_down_on_the_way(begin, needed, probes):
    standing = None if begin is None else LearnedRoute(site="a.test", route=begin, since=0, recheck_at=0)
    rungs = plan(TERMS, standing, may_probe=probes and standing is not None).rungs
    prices = [rung.price for rung in rungs]
    assert prices == sorted(prices)
    place: int | None = 0
    while place is not None and LADDER.index(rungs[place]) < needed:
        place = next_rung(rungs, place, "forbidden")
    assert place is not None
    assert LADDER.index(rungs[place]) >= needed

"""What every book of proxies promises: the same figures, the same rests, for all workers."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gossamer.backends.redis.state import open_redis_state
from gossamer.clock import ServerClock, SystemClock
from gossamer.model.route import ProxyOutcome
from gossamer.routing.proxies.contract import ProxyAtSite, ProxyHealth, ProxyReport, Renewal, RestTerms
from gossamer.routing.proxies.health import FORGOTTEN, KEPT_AT_SITE, REMEMBERED, RENEWED, after, after_at_site

from .frontiers import LEASE, UNLIMITED, Backends

NOW = 1_800_000_000.0
TERMS = RestTerms(cooldown=60.0, max_cooldown=600.0)
PAGE, OTHER_PAGE = b"\x01" * 16, b"\x02" * 16


@pytest.fixture(params=Backends.UNSHARDED)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as opened:
        yield opened


def ok(name: str = "a", **figures: object) -> ProxyReport:
    return ProxyReport(proxy=name, outcome=ProxyOutcome.OK, **figures)


def banned(name: str = "a", **figures: object) -> ProxyReport:
    return ProxyReport(proxy=name, outcome=ProxyOutcome.BANNED, **figures)


def failed(name: str = "a", **figures: object) -> ProxyReport:
    return ProxyReport(proxy=name, outcome=ProxyOutcome.FAILED, **figures)


async def health_of(lab, name: str = "a", pool: str = "p") -> ProxyHealth:
    (found,) = [one for one in await lab.proxies.health(pool) if one.name == name]
    return found


async def test_what_came_of_proxies_is_counted_for_each_of_them(lab):
    await lab.proxies.report(
        "p", [ok("a", seconds=0.5, bytes=5_000_000_000, credits=1.5), failed("b", words="hung up"), ok("a")], TERMS
    )
    await lab.proxies.report("p", [ok("a", times=3, credits=0.5), banned("a", bytes=7, words="403")], TERMS)

    first, second = await lab.proxies.health("p")
    assert (first.name, first.tries, first.successes, first.failures, first.bans) == ("a", 6, 5, 0, 1)
    assert (first.bytes, first.credits, first.last_error) == (5_000_000_007, 2.0, "403")
    assert (second.name, second.tries, second.failures, second.last_error) == ("b", 1, 1, "hung up")
    assert second.latency is None


async def test_an_unknown_pool_has_no_proxies_and_pools_do_not_mix(lab):
    await lab.proxies.report("p", [ok("a")], TERMS)

    assert await lab.proxies.health("q") == []
    await lab.proxies.report("q", [failed("a")], TERMS)
    assert (await health_of(lab, pool="p")).failures == 0


async def test_each_ban_after_a_rest_makes_the_next_one_twice_as_long_up_to_the_longest(lab):
    rests = []
    for _ in range(6):
        await lab.proxies.report("p", [banned()], TERMS)
        until = (await health_of(lab)).rest_until
        rests.append(until - lab.clock.now())
        lab.clock.advance(until - lab.clock.now())

    assert rests == pytest.approx([60, 120, 240, 480, 600, 600])


async def test_bans_of_requests_that_were_under_way_are_one_ban(lab):
    await lab.proxies.report("p", [banned()] * 5, TERMS)
    lab.clock.advance(10)
    await lab.proxies.report("p", [banned()], TERMS)

    found = await health_of(lab)
    assert (found.bans, found.strikes, found.rest_until) == (6, 1, NOW + 60)


async def test_successes_in_a_row_after_a_rest_make_it_good(lab):
    # given a proxy that was banned twice
    for _ in range(2):
        await lab.proxies.report("p", [banned()], TERMS)
        lab.clock.advance(200)
    assert (await health_of(lab)).strikes == 2

    # when it works for a while
    await lab.proxies.report("p", [ok(times=4)], TERMS)
    assert (await health_of(lab)).strikes == 2
    await lab.proxies.report("p", [ok(times=1)], TERMS)
    assert (await health_of(lab)).strikes == 1
    await lab.proxies.report("p", [ok(times=20)], TERMS)

    # then the next rest is as short as the first
    assert (await health_of(lab)).strikes == 0
    await lab.proxies.report("p", [banned()], TERMS)
    assert (await health_of(lab)).rest_until == lab.clock.now() + 60


async def test_successes_that_were_under_way_do_not_shorten_a_rest(lab):
    await lab.proxies.report("p", [banned(), ok(times=50)], TERMS)

    found = await health_of(lab)
    assert (found.rest_until, found.strikes, found.successes) == (NOW + 60, 1, 50)


async def test_failures_let_an_proxy_rest_only_when_several_come_in_a_row(lab):
    await lab.proxies.report("p", [failed(), failed(), ok(), failed(), failed()], TERMS)
    assert (await health_of(lab)).rest_until == 0

    await lab.proxies.report("p", [failed()], TERMS)
    assert (await health_of(lab)).rest_until == NOW + 60


async def test_a_gateway_goes_on_after_bans_and_many_failures_in_a_row_let_it_rest(lab):
    terms = RestTerms(patience=20, bans_rest=False)
    await lab.proxies.report("p", [banned(times=30), failed(times=19)], terms)
    assert (await health_of(lab)).rest_until == 0

    await lab.proxies.report("p", [failed()], terms)
    assert (await health_of(lab)).rest_until == NOW + 60


async def test_an_proxy_that_one_site_banned_rests_for_that_site_alone(lab):
    await lab.proxies.report("p", [banned(site="a.example"), ok()], TERMS)

    assert (await health_of(lab)).rest_until == 0
    assert (await health_of(lab)).score == 1.0
    (there,) = await lab.proxies.at_sites("p")
    assert (there.site, there.name, there.rest_until, there.strikes) == ("a.example", "a", NOW + 60, 1)
    assert await lab.proxies.at_sites("q") == []


async def test_a_refusal_is_no_ban_until_several_pages_in_a_row_are_refused_or_another_proxy_got_the_page(lab):
    refused = ProxyReport(proxy="a", outcome=ProxyOutcome.REFUSED, site="a.example")
    await lab.proxies.report("p", [refused, refused, ok(site="a.example"), refused, refused], TERMS)
    assert (await lab.proxies.at_sites("p"))[0].rest_until == 0

    await lab.proxies.report("p", [refused], TERMS)
    assert (await lab.proxies.at_sites("p"))[0].rest_until == NOW + 60

    # when the use of a proxy turns out to have been a ban, it is counted once
    await lab.proxies.report("p", [refused, banned(site="b.example", times=0)], TERMS)
    assert (await lab.proxies.at_sites("p"))[1].rest_until == NOW + 60
    assert (await health_of(lab)).tries == 7
    assert (await health_of(lab)).bans == 6


async def test_a_refusal_after_a_rest_is_a_ban_until_a_page_came_through(lab):
    refused = ProxyReport(proxy="a", outcome=ProxyOutcome.REFUSED, site="a.example")
    await lab.proxies.report("p", [banned(site="a.example")], TERMS)
    lab.clock.advance(60)
    await lab.proxies.report("p", [refused], TERMS)
    assert (await lab.proxies.at_sites("p"))[0].rest_until == NOW + 60 + 120

    lab.clock.advance(120)
    await lab.proxies.report("p", [ok(site="a.example"), refused], TERMS)
    assert (await lab.proxies.at_sites("p"))[0].rest_until == NOW + 60 + 120


async def test_how_an_proxy_fared_at_a_site_is_forgotten_after_a_day_and_by_a_reset(lab):
    await lab.proxies.report("p", [banned(site="a.example"), banned(site="b.example")], TERMS)
    lab.clock.advance(KEPT_AT_SITE + 1)
    await lab.proxies.report("p", [banned(site="b.example")], TERMS)
    assert [(one.site, one.strikes) for one in await lab.proxies.at_sites("p")] == [("b.example", 1)]
    assert await lab.proxies.at_sites("p", since=NOW + KEPT_AT_SITE + 2) == []

    await lab.proxies.reset("p")
    assert await lab.proxies.at_sites("p") == []


async def test_only_what_changed_lately_is_told_when_asked_so(lab):
    await lab.proxies.report("p", [ok("a"), ok("b")], TERMS)
    lab.clock.advance(5)
    await lab.proxies.report("p", [ok("b")], TERMS)

    assert [one.name for one in await lab.proxies.health("p", since=NOW + 5)] == ["b"]
    assert [one.name for one in await lab.proxies.health("p", since=NOW)] == ["a", "b"]
    assert await lab.proxies.health("p", since=NOW + 6) == []


async def test_what_workers_tell_at_the_same_moment_is_all_counted(lab):
    await asyncio.gather(*(lab.proxies.report("p", [ok(), failed("b")], TERMS) for _ in range(50)))

    assert [(one.name, one.tries) for one in await lab.proxies.health("p")] == [("a", 50), ("b", 50)]


async def test_proxies_that_a_page_tried_are_remembered_for_an_hour(lab):
    await lab.proxies.remember([(PAGE, "b"), (PAGE, "a"), (OTHER_PAGE, "c")])
    lab.clock.advance(REMEMBERED - 1)
    await lab.proxies.remember([(PAGE, "d"), (PAGE, "b")])

    assert await lab.proxies.used(PAGE) == ("a", "b", "d")
    lab.clock.advance(2)
    assert await lab.proxies.used(PAGE) == ("b", "d")
    assert await lab.proxies.used(OTHER_PAGE) == ()
    assert await lab.proxies.used(b"\x03" * 16) == ()


async def test_a_banned_session_is_renewed_once_however_many_saw_the_ban(lab):
    answers = await asyncio.gather(*(lab.proxies.renew("p", "site/shop.example", 0) for _ in range(10)))

    assert answers == [1] * 10
    assert await lab.proxies.renew("p", "site/shop.example", 1) == 2
    assert await lab.proxies.renew("p", "site/shop.example", 0) == 2
    assert await lab.proxies.renewals("p") == [Renewal(session="site/shop.example", generation=2, changed_at=NOW)]
    assert await lab.proxies.renewals("q") == []


async def test_renewals_are_told_since_a_moment_and_forgotten_after_a_month(lab):
    await lab.proxies.renew("p", "key/old", 0)
    lab.clock.advance(10)
    await lab.proxies.renew("p", "key/new", 4)

    assert [(one.session, one.generation) for one in await lab.proxies.renewals("p", NOW + 10)] == [("key/new", 5)]
    assert len(await lab.proxies.renewals("p")) == 2
    lab.clock.advance(RENEWED - 5)
    assert [one.session for one in await lab.proxies.renewals("p")] == ["key/new"]
    assert await lab.proxies.renew("p", "key/old", 0) == 1


async def test_a_reset_ends_all_rests_of_one_pool_or_of_all(lab):
    for pool in ("p", "q", "r"):
        await lab.proxies.report(pool, [banned("a"), banned("b")], TERMS)
    await lab.proxies.renew("p", "site/shop.example", 0)

    assert await lab.proxies.reset("p") == 2
    assert await lab.proxies.health("p") == []
    assert len(await lab.proxies.health("q")) == 2
    assert await lab.proxies.reset() == 4
    assert await lab.proxies.reset() == 0
    assert [one.generation for one in await lab.proxies.renewals("p")] == [1]


async def test_proxies_that_were_not_used_for_a_month_are_forgotten(lab):
    await lab.proxies.report("p", [ok("old"), banned("also old")], TERMS)
    lab.clock.advance(FORGOTTEN + 1)
    await lab.proxies.report("p", [ok("new"), ok("old")], TERMS)

    assert [(one.name, one.tries) for one in await lab.proxies.health("p")] == [("new", 1), ("old", 1)]


async def test_names_and_words_of_any_kind_come_back_as_they_were(lab):
    name, words = "http://[2001:db8::1]:80~äß", "прокси: нет 'ответа' \"x\" {}"
    await lab.proxies.report("пул", [failed(name, words=words)], TERMS)
    await lab.proxies.remember([(b"\x00\xff" * 8, name)])

    (found,) = await lab.proxies.health("пул")
    assert (found.name, found.last_error) == (name, words)
    assert await lab.proxies.used(b"\x00\xff" * 8) == (name,)


REPORTS = st.lists(
    st.builds(
        ProxyReport,
        proxy=st.sampled_from(["a", "b"]),
        outcome=st.sampled_from(list(ProxyOutcome)),
        site=st.sampled_from(["", "shop.example", "bücher.example"]),
        times=st.integers(0, 12),
        seconds=st.floats(0, 100),
        bytes=st.integers(0, 10**12),
        credits=st.floats(0, 1000),
        words=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    ),
    max_size=8,
)
LIVES = st.lists(st.tuples(st.floats(0, 400), REPORTS), min_size=1, max_size=6)


async def test_every_book_counts_as_the_rules_say(lab):
    """Lua and Python must not drift apart: the book always holds what routing/proxies/health.py works out."""

    async def live(pool: str, life: list[tuple[float, list[ProxyReport]]], terms: RestTerms) -> None:
        expected: dict[str, ProxyHealth] = {}
        at_sites: dict[tuple[str, str], ProxyAtSite] = {}
        for pause, reports in life:
            lab.clock.advance(pause)
            if reports:
                await lab.proxies.report(pool, reports, terms)
            for report in reports:
                before = expected.get(report.proxy, ProxyHealth(name=report.proxy))
                expected[report.proxy] = after(before, report, terms, lab.clock.now())
                key = (report.site, report.proxy)
                if report.site and (key in at_sites or report.outcome is not ProxyOutcome.OK):
                    known = at_sites.get(key, ProxyAtSite(name=report.proxy, site=report.site))
                    at_sites[key] = after_at_site(known, report, terms, lab.clock.now())
        assert await lab.proxies.at_sites(pool) == [at_sites[key] for key in sorted(at_sites)]
        found = {one.name: one for one in await lab.proxies.health(pool)}
        assert found.keys() == expected.keys()
        for name, health in expected.items():
            close, exact = {"credits", "latency", "score", "rest_until", "changed_at"}, msgspec.structs.asdict(health)
            for field, value in msgspec.structs.asdict(found[name]).items():
                if field not in close or value is None or exact[field] is None:
                    assert (field, value) == (field, exact[field])
                else:
                    assert value == pytest.approx(exact[field]), field

    lives = []

    @settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(LIVES, st.builds(RestTerms, patience=st.integers(1, 5), bans_rest=st.booleans()))
    def draw(life, terms):
        lives.append((life, terms))

    draw()
    for number, (life, terms) in enumerate(lives):
        await live(f"pool-{number}", life, terms)


async def test_on_a_server_its_own_clock_counts(backends):
    async with open_redis_state(
        backends.address("valkey"),
        ServerClock(SystemClock()),
        project=f"lab-{uuid4().hex}",
        lease_duration=LEASE,
        terms_for=lambda _: UNLIMITED,
    ) as state:
        before = await state.stream.time()
        await state.proxies.report("p", [banned()], TERMS)
        await state.proxies.remember([(PAGE, "a")])
        await state.proxies.renew("p", "key/x", 0)

        (health,) = await state.proxies.health("p", before)
        assert health.changed_at >= before
        assert health.rest_until == pytest.approx(health.changed_at + 60)
        assert await state.proxies.used(PAGE) == ("a",)
        assert [one.generation for one in await state.proxies.renewals("p", before)] == [1]

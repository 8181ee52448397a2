"""Which proxy is next: by weight, never one that rests, one to be avoided only when nothing else is awake."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.routing.proxies.rotation import AllRest, Choice, ProxyStanding, Rotation, keep

NOW = 1_800_000_000.0
STAY = 600.0


def standings_of(draw_weights: list[float]) -> list[ProxyStanding]:
    return [ProxyStanding(f"proxy-{number}", weight) for number, weight in enumerate(draw_weights)]


def wheel(standings: list[ProxyStanding], now: float = NOW) -> Rotation:
    rotation = Rotation()
    rotation.update(standings, now)
    return rotation


WEIGHTS = st.lists(st.floats(0.1, 1.0), min_size=1, max_size=12)
RESTS = st.lists(st.sampled_from([0.0, NOW - 1, NOW, NOW + 0.5, NOW + 90]), min_size=1, max_size=12)
AVOIDED = st.sets(st.integers(0, 11).map(lambda number: f"proxy-{number}"))


def resting(rests: list[float]) -> list[ProxyStanding]:
    return [ProxyStanding(f"proxy-{number}", 1.0, until) for number, until in enumerate(rests)]


@given(WEIGHTS, st.integers(1, 400))
def test_each_proxy_has_its_turn_as_often_as_its_weight_says(weights, turns):
    rotation = wheel(standings_of(weights))

    taken = Counter(rotation.next(NOW).name for _ in range(turns))

    marks = [(taken[f"proxy-{number}"] / weight, 1 / weight) for number, weight in enumerate(weights)]
    for mark, turn in marks:
        for other, other_turn in marks:
            assert abs(mark - other) <= turn + other_turn + 1e-9


def test_equal_proxies_take_turns_in_their_order():
    rotation = wheel(standings_of([1.0, 1.0, 1.0]))

    assert [rotation.next(NOW).name for _ in range(6)] == ["proxy-0", "proxy-1", "proxy-2"] * 2


@given(RESTS, AVOIDED, st.integers(1, 40))
def test_one_that_rests_is_never_taken_and_one_to_avoid_only_when_nothing_else_is_awake(rests, avoid, turns):
    standings = resting(rests)
    awake = {one.name for one in standings if one.rest_until <= NOW}
    rotation = wheel(standings)

    for _ in range(turns):
        found = rotation.next(NOW, avoid)
        if not awake:
            assert found == AllRest(min(rests))
        else:
            assert isinstance(found, Choice)
            assert found.name in awake
            assert found.again == (found.name in avoid)
            assert found.again == (not awake - avoid)


@given(RESTS, AVOIDED, st.text(max_size=20))
def test_the_same_holds_for_an_proxy_that_a_site_keeps(rests, avoid, site):
    standings = resting(rests)
    awake = {one.name for one in standings if one.rest_until <= NOW}

    found = keep(site, standings, NOW, STAY, avoid)

    if not awake:
        assert found == AllRest(min(rests))
    else:
        assert isinstance(found, Choice)
        assert found.name in awake
        assert found.again == (found.name in avoid) == (not awake - avoid)


def test_an_proxy_that_begins_to_rest_is_passed_over_until_it_wakes():
    rotation = wheel(standings_of([1.0, 1.0]))
    rotation.change(ProxyStanding("proxy-0", 1.0, NOW + 10))

    assert [rotation.next(NOW).name for _ in range(3)] == ["proxy-1"] * 3
    assert {rotation.next(NOW + 10).name for _ in range(2)} == {"proxy-0", "proxy-1"}


def test_an_proxy_that_wakes_does_not_make_up_for_its_rest():
    rotation = wheel([ProxyStanding("sleeper", 1.0, NOW + 10), ProxyStanding("worker")])
    for _ in range(100):
        rotation.next(NOW)

    taken = Counter(rotation.next(NOW + 10).name for _ in range(20))

    assert abs(taken["sleeper"] - taken["worker"]) <= 1


def test_when_all_rest_the_moment_is_told_at_which_the_first_wakes():
    rotation = wheel(resting([NOW + 30, NOW + 10, NOW + 20]))

    assert rotation.next(NOW) == AllRest(NOW + 10)
    assert rotation.next(NOW + 10) == Choice("proxy-1")


def test_an_proxy_whose_rest_was_ended_is_taken_again_after_an_update():
    standings = resting([NOW + 1000, 0.0])
    rotation = wheel(standings)
    assert rotation.next(NOW) == Choice("proxy-1")

    rotation.update(resting([0.0, 0.0]), NOW)

    assert "proxy-0" in {rotation.next(NOW).name for _ in range(2)}


def test_an_empty_pool_gives_nothing():
    assert wheel([]).next(NOW) == AllRest(NOW)
    assert keep("shop.example", [], NOW, STAY) == AllRest(NOW)


@settings(max_examples=30)
@given(st.text(min_size=1, max_size=10), st.integers(2, 40))
def test_a_site_keeps_its_proxy_for_a_span_and_gets_another_one_in_time(site, count):
    standings = standings_of([1.0] * count)

    found = [keep(site, standings, NOW + second, STAY).name for second in range(0, 6000, 60)]

    changes = sum(before != then for before, then in pairwise(found))
    assert changes <= 10  # ten spans: at most one change at the end of each


def test_all_workers_draw_the_same_proxy_for_a_site():
    standings = standings_of([1.0] * 50)
    later = [msgspec.structs.replace(one, weight=0.5) for one in standings]  # health that another worker has seen

    for number in range(100):
        assert keep(f"s{number}.example", standings, NOW, STAY) == keep(f"s{number}.example", later, NOW, STAY)


def test_sites_are_spread_over_all_proxies():
    standings = standings_of([1.0] * 10)

    drawn = Counter(keep(f"s{number}.example", standings, NOW, STAY).name for number in range(2000))

    assert len(drawn) == 10
    assert max(drawn.values()) < 2 * min(drawn.values())


def test_when_an_proxy_rests_only_its_own_sites_move():
    standings = standings_of([1.0] * 10)
    sites = [f"s{number}.example" for number in range(500)]
    before = {site: keep(site, standings, NOW, STAY).name for site in sites}

    standings[3] = ProxyStanding("proxy-3", 1.0, NOW + 60)
    then = {site: keep(site, standings, NOW, STAY).name for site in sites}

    moved = {site for site in sites if before[site] != then[site]}
    assert moved == {site for site in sites if before[site] == "proxy-3"}
    assert len({then[site] for site in moved}) > 1  # not all to the same one


def test_a_site_does_not_come_back_to_an_proxy_that_was_banned_lately_while_there_are_others():
    standings = standings_of([1.0] * 3)
    site = "shop.example"
    drawn = keep(site, standings, NOW, STAY).name
    place = int(drawn.removeprefix("proxy-"))

    standings[place] = ProxyStanding(drawn, 1.0, NOW - 1, strikes=1)
    assert keep(site, standings, NOW, STAY).name != drawn
    assert keep(site, [standings[place]], NOW, STAY) == Choice(drawn)

"""User names of gateways: made from a template, lasting or fresh, and never half a name."""

from __future__ import annotations

import pytest

from gossamer.errors import Misconfigured
from gossamer.routing.proxies.gateway import Gateway, another_id, fresh_id, lasting_id, open_gateway
from gossamer.settings import ProxyPool
from gossamer.units import Secret

PASSWORD = "s3cr3t-pa55"
FULL = "{user}-session-{session}-country-{country}"


def opened(folder, environ=None, **terms) -> Gateway:
    usual = {"gateway": "http://gate.example:8000", "user": Secret("ann"), "password": Secret(PASSWORD)}
    return open_gateway("home", ProxyPool(**{**usual, **terms}), folder, environ or {})


def refusal(folder, environ=None, **terms) -> str:
    with pytest.raises(Misconfigured) as refused:
        opened(folder, environ, **terms)
    assert PASSWORD not in str(refused.value)
    return str(refused.value)


def test_the_user_name_carries_session_and_country(tmp_path):
    gateway = opened(tmp_path, username=FULL, country="us")

    found = gateway.proxy("abc123", None)

    assert (found.username, found.password) == ("ann-session-abc123-country-us", PASSWORD)
    assert (found.scheme, found.host, found.port, found.pool) == ("http", "gate.example", 8000, "home")
    assert found.name == "http://gate.example:8000#abc123"
    assert gateway.proxy("abc123", "de").username == "ann-session-abc123-country-de"


def test_what_is_in_brackets_is_left_out_without_a_country(tmp_path):
    gateway = opened(tmp_path, username="{user}-session-{session}[-country-{country}]")

    assert gateway.proxy("x1", None).username == "ann-session-x1"
    assert gateway.proxy("x1", "fr").username == "ann-session-x1-country-fr"


def test_a_country_outside_of_brackets_must_have_a_default(tmp_path):
    told = refusal(tmp_path, username=FULL)

    assert "proxies.home.country" in told
    assert "[-country-{country}]" in told


def test_an_unknown_placeholder_is_refused_with_the_known_ones(tmp_path):
    told = refusal(tmp_path, username="{user}-{city}")

    assert "{city}" in told
    assert all(name in told for name in ("{user}", "{session}", "{country}"))


@pytest.mark.parametrize("template", ["{user", "user}", "{user}[-x", "{user}]", "[[{user}]]"])
def test_a_brace_or_bracket_without_a_partner_is_refused(tmp_path, template):
    assert "not closed" in refusal(tmp_path, username=template)


def test_a_country_that_could_change_the_rest_of_the_name_is_refused(tmp_path):
    gateway = opened(tmp_path, username=FULL, country="us")

    for country in ("us:x", "u s", "de@evil.example", "{user}", "é"):
        with pytest.raises(Misconfigured):
            gateway.proxy("x1", country)


def test_a_user_with_braces_stays_as_it_is(tmp_path):
    assert opened(tmp_path, user=Secret("{session}"), username="{user}-{session}").proxy("x1", None).username == (
        "{session}-x1"
    )


def test_user_and_password_may_come_from_a_variable_or_a_secret_file(tmp_path):
    (tmp_path / "secret").write_text(f"# of the vendor\nsue:{PASSWORD}:x\n", encoding="utf-8")
    none = {"user": Secret(""), "password": Secret(""), "username": "{user}-{session}"}

    in_variable = opened(tmp_path, {"GATE": "eve:p:w"}, env="GATE", **none)
    in_file = opened(tmp_path, secret="secret", **none)

    found = [gateway.proxy("x", None) for gateway in (in_variable, in_file)]
    assert [(one.username, one.password) for one in found] == [
        ("eve-x", "p:w"), ("sue-x", f"{PASSWORD}:x"),
    ]  # fmt: skip


def test_what_is_missing_or_too_much_is_told(tmp_path):
    assert "proxies.home.user" in refusal(tmp_path, user=Secret(""), username="{user}-{session}")
    assert "two pools" in refusal(tmp_path, urls=(Secret("a.example:1"),))
    assert "'task', 'site' or 'key'" in refusal(tmp_path, session="domain")
    assert "port is missing" in refusal(tmp_path, gateway="http://gate.example")
    assert "proxies.home.user and password" in refusal(tmp_path, gateway=f"http://bob:{PASSWORD}@gate.example:80")
    assert "variable GATE is not set" in refusal(tmp_path, env="GATE")
    assert "no colon" in refusal(tmp_path, {"GATE": PASSWORD}, env="GATE")


def test_ids_of_lasting_sessions_are_equal_everywhere_and_differ_by_everything_they_are_for():
    usual = ("books", "home", "site/shop.example", 0)
    assert lasting_id(*usual) == lasting_id(*usual)

    others = {
        lasting_id("news", "home", "site/shop.example", 0),
        lasting_id("books", "away", "site/shop.example", 0),
        lasting_id("books", "home", "site/toys.example", 0),
        lasting_id("books", "home", "key/shop.example", 0),
        lasting_id("books", "home", "site/shop.example", 1),
        lasting_id("books", "home", "site/shop.example", 0, span=1),
        lasting_id("books", "home", "site/shop.example", 0, retry=1),
    }
    assert len(others) == 7
    assert lasting_id(*usual) not in others
    assert all(one.isalnum() and one.isascii() and one.islower() and len(one) == 12 for one in others | {fresh_id()})


def test_a_page_that_tried_a_session_in_vain_gets_one_it_has_not_tried():
    first = another_id("books", "home", "site/a", 0, 0, [])
    second = another_id("books", "home", "site/a", 0, 0, [first])
    third = another_id("books", "home", "site/a", 0, 0, [first, second])

    assert len({first, second, third}) == 3


def test_fresh_ids_do_not_repeat():
    assert len({fresh_id() for _ in range(10_000)}) == 10_000

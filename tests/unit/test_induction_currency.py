"""A price whose currency changed is never healed as the old one, wherever the page writes the sign."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import Money
from gossamer.recipe.induction.decision import Decision, Finding
from tests.unit.test_induction import goal, learned

LAYOUTS = {
    "before": "<p class=price>{mark} {n}</p>",
    "after": "<p class=price>{n} {mark}</p>",
    "own element before": "<p class=cost><span class=sign>{mark}</span><span class=price>{n}</span></p>",
    "own element after": "<p class=cost><b class=price>{n}</b> <small>{mark}</small></p>",
    "run into the next word": "<div class=price><b>{n} {mark}</b><em>sold by us</em></div>",
    "own element further out": "<div><div><i>{mark}</i></div><div><em><b class=price>{n}</b></em></div></div>",
    "sign in the text around": "<p class=cost>only {mark} <b class=price>{n}</b></p>",
    "attribute": "<p><span class=price data-currency='{mark}'>{n}</span></p>",
    "another cell": "<table><tr><td class=price>{n}</td><td>{mark}</td></tr></table>",
    "row label": "<table><tr><th>Price ({mark})</th><td class=price>{n}</td></tr></table>",
    "term": "<dl><dt>Price in {mark}</dt><dd class=price>{n}</dd></dl>",
    "another row": "<table><tr><th>Price</th><td class=price>{n}</td></tr>"
    "<tr><th>Currency</th><td>{mark}</td></tr></table>",
    "column head": "<table><tr><th>Lamp</th><th>{mark}</th></tr><tr><td>L</td><td class=price>{n}</td></tr></table>",
    "caption": "<table><caption>Prices in {mark}</caption><tr><td>now</td><td class=price>{n}</td></tr></table>",
    "heading": "<section><h2>Prices in {mark}</h2><div><p class=price>{n}</p></div></section>",
    "microdata": "<div itemscope itemtype='https://schema.org/Offer'><meta itemprop=priceCurrency content='{mark}'>"
    "<span itemprop=price>{n}</span></div>",
    "json-ld": "<script type='application/ld+json'>{data}</script><b class=price>{n}</b>",
    "state": "<script>window.STATE = {state};</script>",
}
SIGNS = {"EUR": "€", "GBP": "£", "USD": "$", "PLN": "zł", "SEK": "kr", "JPY": "¥", "INR": "₹"}
AMOUNTS = ["12.50", "8.00", "104.99", "66.00", "9.95", "31.40"]


def healed(layout: str, mark: str, stored: str, noise: str = "") -> Finding:
    bodies = []
    for at, amount in enumerate(AMOUNTS):
        data = {"@context": "https://schema.org", "@type": "Offer", "price": amount, "priceCurrency": mark}
        state = {"item": {"price": float(amount), "n": at, "currency": mark}}
        body = LAYOUTS[layout].format(n=amount, mark=mark, data=json.dumps(data), state=json.dumps(state))
        bodies.append((f"<h1>Lamp {at}</h1>{body}{noise}", Money(Decimal(amount), stored)))
    return learned(goal("price", "money"), bodies)


@settings(max_examples=40, deadline=None)
@given(
    layout=st.sampled_from(sorted(LAYOUTS)),
    currencies=st.lists(st.sampled_from(sorted(SIGNS)), min_size=2, max_size=2, unique=True),
    as_code=st.booleans(),
    noise=st.sampled_from(["", "<footer>Example Ltd, since 1998</footer>", "<p>TRY ALL of our lamps at the TOP</p>"]),
)
def test_the_sign_of_another_currency_near_the_number_refuses(layout, currencies, as_code, noise):
    stored, now = currencies
    mark = now if as_code or layout in ("json-ld", "state", "microdata", "attribute") else SIGNS[now]

    assert healed(layout, mark, stored, noise).decision is Decision.REFUSE


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("mark", ["EUR", "€"])
def test_the_same_currency_heals_wherever_it_stands(layout, mark):
    mark = "EUR" if layout in ("json-ld", "state", "microdata") else mark

    assert healed(layout, mark, "EUR").decision is Decision.HEAL


@pytest.mark.parametrize("layout", ["before", "column head", "own element after", "state"])
def test_without_any_currency_on_the_page_the_rule_is_only_proposed(layout):
    finding = healed(layout, "", "EUR")

    assert finding.decision is Decision.PROPOSE
    assert "currency" in finding.reason


def test_another_currency_far_from_the_number_is_no_proof_of_the_stored_one():
    assert healed("before", "", "EUR", "<footer>All prices in GBP</footer>").decision is Decision.REFUSE


def test_a_shared_sign_is_read_with_what_the_page_says_of_it():
    offer = '<script type="application/ld+json">{"@type": "Offer", "priceCurrency": "CAD"}</script>'

    assert healed("before", "$", "USD").decision is Decision.HEAL
    assert healed("before", "$", "USD", offer).decision is Decision.REFUSE

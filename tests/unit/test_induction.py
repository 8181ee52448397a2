"""Rules learned from values: from pages and what is known of them to rules for recipes."""

from __future__ import annotations

import random
import re
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from gossamer import Money
from gossamer.model.page import Headers, Snapshot
from gossamer.parse.page import Page
from gossamer.recipe.induction.candidates import compiled, value_on
from gossamer.recipe.induction.decision import Decision, Finding
from gossamer.recipe.induction.goal import Goal, Sample, agrees, known_value
from gossamer.recipe.induction.induce import induce
from gossamer.recipe.induction.matching import RecordIndex
from gossamer.recipe.model import FieldType, TypeOptions
from gossamer.recipe.sources import PagePart, PageView


def page(body: str, number: int = 0) -> Page:
    url = f"https://shop.example/item/{number}"
    html = f"<!doctype html><html lang=en><body>{body}</body></html>".encode()
    headers = Headers([("content-type", "text/html; charset=utf-8")])
    return Page(
        Snapshot(url=url, requested_url=url, status=200, headers=headers, body=html, fetched_at=1_700_000_000.0)
    )


def sample(body: str, values: dict[str, Any] | None = None, number: int = 0) -> Sample:
    return Sample(part=PagePart(PageView(page(body, number))), values=values, name=f"/item/{number}")


def goal(name: str, kind: str, **options: Any) -> Goal:
    return Goal(name=name, options=TypeOptions(type=FieldType(kind), **options))


def learned(wanted: Goal, bodies: list[tuple[str, Any]], others: list[str] = [], **how: Any) -> Finding:  # noqa: B006
    samples = [sample(body, {wanted.name: value}, at) for at, (body, value) in enumerate(bodies)]
    samples += [sample(body, None, 100 + at) for at, body in enumerate(others)]
    return induce([wanted], samples, **how)[0]


def reads(wanted: Goal, finding: Finding, body: str) -> Any:
    field = compiled(wanted, finding.sources)
    assert field is not None
    return value_on(field, sample(body))


LAMPS = [("Moss", "12.50", 12), ("Fern", "8.00", 3), ("Reed", "104.99", 40), ("Sedge", "66.00", 7), ("Rush", "9.95", 1)]


def test_a_value_is_found_by_the_label_beside_it_wherever_its_row_stands():
    wanted = goal("name", "text")
    rows = [f"<tr><th>Extra {n}</th><td>{n}</td></tr>" * n for n in range(5)]
    bodies = [(f"<table>{row}<tr><th>Model:</th><td>{name}</td></tr></table>", name) for row, (name, _, _) in
              zip(rows, LAMPS, strict=True)]  # fmt: skip

    finding = learned(wanted, bodies)

    assert finding.sources == ({"label": "Model"},)
    assert finding.decision is Decision.HEAL
    assert reads(wanted, finding, "<table><tr><th>MODEL</th><td>Ivy</td></tr></table>") == "Ivy"


def test_the_struck_out_price_falls_behind_the_price():
    wanted = goal("price", "money")
    prices = [Money(Decimal(price), "EUR") for _, price, _ in LAMPS]
    bodies = [
        (f"<div><s>€{price.amount + (5 if at % 2 else 0)}</s> <b class=now>€{price.amount}</b></div>", price)
        for at, price in enumerate(prices)
    ]

    finding = learned(wanted, bodies)

    assert reads(wanted, finding, "<div><s>€90</s> <b class=now>€70</b></div>") == Money(Decimal(70), "EUR")


SALES = [
    "<div class=buy><del>{old} EUR</del> <strong>{now} EUR</strong><em>In stock</em></div>",
    "<p class=buy><s>€{old}</s> <b class=now>€{now}</b></p>",
    "<p class=buy><i class=was>€{old}</i> <b class=now>€{now}</b></p>",
    "<p class=buy><b>€{now}</b> <small>was €{old}</small></p>",
    "<i class=was>€{old}</i> <h3>Buy it</h3><ul><li>new</li></ul><p>today <b class=now>€{now}</b></p>",
]


@pytest.mark.parametrize("layout", SALES)
@pytest.mark.parametrize("sales", [1, 4, 7, 15])
def test_the_price_before_a_sale_is_never_healed_though_it_is_the_stored_one(layout, sales):
    wanted = goal("price", "money")
    bodies, truth = [], []
    for at in range(20):
        stored = Decimal(at * 7 + 5)
        on_sale = at % 20 < sales
        now = stored * Decimal("0.8") if on_sale else stored
        body = layout.format(old=f"{stored:.2f}", now=f"{now:.2f}")
        if not on_sale:
            body = re.sub(r"<(del|s|i|small)\b.*?</\1> ?", "", body)
        bodies.append((f"<main><h1>Lamp {at}</h1>{body}</main>", Money(stored, "EUR")))
        truth.append(Money(now, "EUR"))

    finding = learned(wanted, bodies)

    if finding.decision is Decision.HEAL:
        assert [reads(wanted, finding, body) for body, _ in bodies] == truth


@pytest.mark.parametrize(("name", "fresh"), [("old_price", False), ("price", True)])
def test_a_struck_out_price_is_found_where_it_is_wanted(name, fresh):
    wanted = goal(name, "money")
    bodies = [
        (f"<p class=buy><del>€{price}</del> <b>€{n}.25</b></p>", Money(Decimal(price), "EUR")) for _, price, n in LAMPS
    ]

    finding = learned(wanted, bodies, fresh=fresh)

    assert finding.sources
    assert reads(wanted, finding, "<p class=buy><del>€90</del> <b>€70.25</b></p>") == Money(Decimal(90), "EUR")


def test_a_price_whose_cents_are_an_element_of_their_own_is_read_whole():
    wanted = goal("price", "money")
    bodies = []
    for _, price, _ in LAMPS:
        whole, cents = price.split(".")
        bodies.append((f"<p class=price>€{whole}<sup>{cents}</sup></p>", Money(Decimal(price), "EUR")))

    finding = learned(wanted, bodies)

    assert "cents" in finding.sources[0]
    assert reads(wanted, finding, "<p class=price>€31<sup>05</sup></p>") == Money(Decimal("31.05"), "EUR")


@pytest.mark.parametrize(
    ("kind", "write", "value", "other"),
    [
        ("float", "{n} of 50 stars", lambda n: n, ("31 of 50 stars", 31.0)),
        ("float", "<i style='width: {n}%'></i>", lambda n: n / 20, ("<i style='width: 90%'></i>", 4.5)),
        ("int", "Page 7: {n} left", lambda n: n, ("Page 7: 31 left", 31)),
    ],
)
def test_numbers_are_read_by_their_place_and_their_scale(kind, write, value, other):
    wanted = goal("score", kind)
    numbers = (12, 36, 40, 74, 88, 62)
    bodies = [(f"<p class=score>{write.format(n=n)}</p>", value(n)) for n in numbers]

    finding = learned(wanted, bodies)

    assert reads(wanted, finding, f"<p class=score>{other[0]}</p>") == other[1]


def test_the_order_of_day_and_month_is_decided_by_all_pages():
    wanted = goal("since", "day")
    days = [date(2024, 3, 4), date(2024, 5, 6), date(2024, 2, 1), date(2024, 12, 25), date(2024, 7, 8)]
    bodies = [(f"<time>{day:%m/%d/%Y}</time>", day) for day in days]

    finding = learned(wanted, bodies)

    assert reads(wanted, finding, "<time>04/09/2024</time>") == date(2024, 4, 9)


def test_a_boolean_learns_the_words_of_the_site():
    wanted = goal("stock", "bool")
    here = [True, False, True, True, False, True, False, True, True, False, True, False]
    bodies = [(f"<em class=s>{'Ready to ship' if one else 'Made to order'}</em><u>x{at}</u>", one)
              for at, one in enumerate(here)]  # fmt: skip

    finding = learned(wanted, bodies)

    assert finding.decision is Decision.HEAL
    assert reads(wanted, finding, "<em class=s>Made to order</em>") is False


def test_words_that_go_with_the_values_by_accident_are_no_rule():
    wanted = goal("stock", "bool")
    here = [True, False, True, True, False, True, False, True]
    # Forty places with two words each, of which some agree with most values by chance.
    bodies = []
    draw = random.Random(7)
    for one in here:
        places = "".join(f"<i class=p{n}x>{draw.choice(('red', 'blue'))}</i>" for n in range(40))
        bodies.append((places, one))

    assert learned(wanted, bodies).decision is not Decision.HEAL


def test_a_field_that_is_gone_is_refused_while_decoys_stay():
    wanted = goal("brand", "text")
    brands = ["Orb", "Vale", "Pell", "Orb", "Vale", "Pell", "Orb", "Vale"]
    bodies = [(f"<h1>Lamp {at}</h1><ul><li>{brands[(at + 1) % 8]}</li></ul>", one) for at, one in enumerate(brands)]

    assert learned(wanted, bodies).decision is Decision.REFUSE


def test_prices_in_another_currency_are_refused():
    wanted = goal("price", "money", currency="EUR")
    bodies = [(f"<b class=price>£{price}</b>", Money(Decimal(price), "EUR")) for _, price, _ in LAMPS]

    assert learned(wanted, bodies).decision is Decision.REFUSE


def test_pages_of_two_layouts_have_two_sources():
    wanted = goal("name", "text")
    names = [f"Lamp {letter}" for letter in "ABCDEFGHIJ"]
    bodies = [(f"<h1>{name}</h1>" if at % 2 else f"<p class=name>{name}</p><h2>Shop</h2>", name)
              for at, name in enumerate(names)]  # fmt: skip

    finding = learned(wanted, bodies)

    assert len(finding.sources) == 2
    assert finding.decision is Decision.HEAL
    assert (finding.agree, finding.missing) == (10, 0)


def test_most_values_that_changed_at_once_are_refused():
    wanted = goal("price", "money")
    bodies = [
        (f"<b class=price>€{at * 7 + 3}.00</b>", Money(Decimal(at * 7 + (3 if at % 6 == 0 else 4)), "EUR"))
        for at in range(20)
    ]

    assert learned(wanted, bodies).decision is Decision.REFUSE


def test_an_extended_text_is_taken_whole():
    wanted = goal("about", "text")
    start = "A lamp of oak and linen, made by hand in a workshop near the river, with a shade that keeps its shape {n}."
    bodies = []
    for at in range(6):
        text = start.format(n=at)
        bodies.append((f"<div class=about><p>{text}</p>{'<p>Now with a dimmer.</p>' if at % 2 else ''}</div>", text))

    finding = learned(wanted, bodies)

    assert reads(wanted, finding, "<div class=about><p>One. </p><p>Two.</p></div>") == "One. Two."


def test_two_places_that_disagree_elsewhere_ask_for_a_second_example():
    wanted = goal("name", "text")
    body = "<h1>{a}</h1><p class=name>{b}</p>"
    others = [body.format(a=f"Shop {at}", b=f"Lamp {at}") for at in range(6)]

    one = learned(wanted, [(body.format(a="Moss", b="Moss"), "Moss")], others, fresh=True)
    two = learned(
        wanted,
        [(body.format(a="Moss", b="Moss"), "Moss"), (body.format(a="Shop", b="Fern"), "Fern")],
        others,
        fresh=True,
    )

    assert one.decision is Decision.PROPOSE
    assert two.decision is Decision.HEAL
    assert reads(wanted, two, body.format(a="x", b="Reed")) == "Reed"


@pytest.mark.parametrize(
    ("kind", "raw", "found"),
    [
        ("money", {"amount": "49.90", "currency": "EUR"}, Money(Decimal("49.9"), "EUR")),
        ("url", "https://a.example/x/lamp-300x300.jpg", "https://cdn.example/lamp.webp"),
        ("float", "4.5", 4.5),
        ("day", "2024-03-04", date(2024, 3, 4)),
    ],
)
def test_stored_values_agree_with_what_pages_say(kind, raw, found):
    wanted = goal("x", kind)
    assert agrees(found, known_value(raw, wanted.options), wanted)


def test_numbers_of_other_pages_decide_about_the_decimal_sign():
    wanted = goal("reviews", "int")
    bodies = [(f"<p><b>Rezensionen</b> <i>{n}</i></p>", n) for n in (112, 204, 330, 471)]
    others = [f"<p><b>Rezensionen</b> <i>{n}.{n}12</i></p>" for n in (1, 2, 3, 4)]
    finding = learned(wanted, bodies, others, fresh=True)
    assert reads(wanted, finding, others[1]) == 2212


def test_by_example_what_stands_on_every_page_is_no_value():
    wanted = goal("rooms", "int")
    page = "<nav>Home <b>3</b></nav><main><p><i>Rooms</i> <span>{}</span></p></main>"
    finding = learned(wanted, [(page.format(3), 3)], [page.format(n) for n in (1, 2, 4, 5, 6, 7)], fresh=True)
    assert reads(wanted, finding, page.format(9)) == 9


def test_an_icon_is_read_by_its_class_beside_the_label():
    wanted = goal("remote", "bool")
    row = "<table><tr><th>Teletrabajo</th><td><i class='icon-{}'></i></td></tr></table>"
    bodies = [(row.format("check" if n % 3 else "cross"), bool(n % 3)) for n in range(20)]
    finding = learned(wanted, bodies)
    assert finding.decision is Decision.HEAL
    assert [reads(wanted, finding, row.format(word)) for word in ("check", "cross")] == [True, False]


def test_a_price_beside_a_struck_out_one_and_the_price_of_other_pages_are_one_rule():
    wanted = goal("price", "money")
    bodies, truth = [], []
    for n in range(24):
        now = Money(Decimal(20 + 7 * n), "EUR")
        was = f"<del>{now.amount * 2} €</del> <b>{now.amount} €</b>" if n % 3 else f"{now.amount} €"
        bodies.append((f"<main><p>Precio: {was}</p><p>Otro: 7</p></main>", now))
        truth.append(now)
    finding = learned(wanted, bodies)
    assert finding.decision is Decision.HEAL
    assert [reads(wanted, finding, body) for body, _ in bodies] == truth


def test_an_enumeration_in_lower_case_is_found_where_the_pages_write_it_in_upper_case():
    wanted = goal("contract", "text")
    words = ["Permanent", "Fixed", "Freelance", "Permanent", "Fixed", "Permanent", "Freelance", "Fixed"]
    page = "<p><b>Contract</b> <i>{}</i></p><p><b>Kind</b> <i>Job</i></p>"
    bodies = [(page.format(word), word.lower()) for word in words[:2]]
    finding = learned(wanted, bodies, [page.format(word) for word in words[2:]], fresh=True)
    assert [reads(wanted, finding, page.format(word)) for word in ("Permanent", "Freelance")] == [
        "permanent",
        "freelance",
    ]


def test_a_value_is_found_by_the_label_below_it():
    wanted = goal("name", "text")
    cells = "<div class=c><b class=v>{}</b><small>Stock</small></div>"
    bodies = [
        (f"{cells.format(count) * (at % 2)}<div class=c><b class=v>{name}</b><small>Model</small></div>", name)
        for at, (name, _, count) in enumerate(LAMPS)
    ]

    finding = learned(wanted, bodies)

    assert finding.decision is Decision.HEAL
    other = f"{cells.format(7)}<div class=c><b class=v>Ivy</b><small>Model</small></div>"
    assert reads(wanted, finding, other) == "Ivy"


@pytest.mark.parametrize(
    "picture",
    [
        "<div class=pic style=\"height: 9px; background-image: url('{}')\"></div>",
        "<x-pic class=pic srcset='{} 1x, /other.jpg 2x'></x-pic>",
    ],
)
def test_a_picture_is_found_among_other_words_of_its_attribute(picture):
    wanted = goal("image", "url")
    bodies = [(picture.format(f"/p/{name}.jpg"), f"https://old.example/{name}.jpg") for name, _, _ in LAMPS]

    finding = learned(wanted, bodies)

    assert finding.decision is Decision.HEAL
    assert reads(wanted, finding, picture.format("/p/ivy.jpg")) == "https://shop.example/p/ivy.jpg"


STATES = {
    "names and values": '<script>window.__S = {{"rows": {}}}</script>',
    "JSON in a string": '<script>window.__S = JSON.parse("{{\\"rows\\": {}}}")</script>',
    "JSON in pieces": '<script>self.__f.push([1, "5:{{\\"rows\\": {}}}\\n"])</script>',
}


@pytest.mark.parametrize("how", STATES)
def test_a_value_is_found_by_its_name_in_a_list_of_data(how):
    wanted = goal("name", "text")

    def body(name: str, count: int, turn: int) -> str:
        rows = [f'{{"label": "Model", "value": "{name}"}}', f'{{"label": "Stock", "value": "{count}"}}']
        text = f"[{', '.join(rows[:: -1 if turn % 2 else 1])}]"
        return STATES[how].format(text if how == "names and values" else text.replace('"', '\\"'))

    finding = learned(wanted, [(body(name, count, at), name) for at, (name, _, count) in enumerate(LAMPS)])

    assert finding.decision is Decision.HEAL
    assert [reads(wanted, finding, body("Ivy", 3, turn)) for turn in (0, 1)] == ["Ivy", "Ivy"]


def test_a_price_that_a_style_strikes_out_is_not_the_price():
    wanted = goal("price", "money")
    cell = "<div>{}<b class=v>€{}</b><small>Price</small></div>"
    struck = '<b class=v style="text-decoration: line-through">€{}</b>'
    prices = [Money(Decimal(price), "EUR") for _, price, _ in LAMPS]
    bodies = [
        (cell.format(struck.format(price.amount + 5) if at % 2 else "", price.amount), price)
        for at, price in enumerate(prices)
    ]

    finding = learned(wanted, bodies)

    assert reads(wanted, finding, cell.format(struck.format(90), 70)) == Money(Decimal(70), "EUR")


def test_a_page_is_not_about_a_record_that_only_a_card_on_it_shows():
    goals = [
        goal("sku", "text"),
        goal("title", "text"),
        goal("brand", "text"),
        goal("price", "money"),
        goal("size", "int"),
    ]
    records = {
        f"L-{at}": {"sku": f"L-{at}", "title": f"{name} lamp", "brand": "Halden" if at else "Kestrel",
                    "price": Money(Decimal(price), "EUR"), "size": 100 + at, "colour": f"RAL 10{at}0"}
        for at, (name, price, _) in enumerate(LAMPS)
    }  # fmt: skip
    index = RecordIndex(records, goals)
    facts = "<p>{0[sku]}</p><p>{0[brand]}</p><p>{1} EUR</p><p>{0[size]}</p><p>{0[colour]}</p>"
    of_moss = f"<h1>Moss lamp</h1>{facts.format(records['L-0'], '12.50')}"
    unknown = "<h1>Ivy lamp</h1><p>Kestrel</p><p>31.00 EUR</p><p>7</p>"
    card = "<aside><a href=/x>Moss lamp</a> 12.50 EUR</aside>"

    assert index.match(sample(of_moss)) == "L-0"
    assert index.match(sample(unknown)) is None, "the brand of one known record is no proof"
    assert index.match(sample(unknown + card)) is None
    assert index.match(sample(of_moss.replace("L-0", ""))) == "L-0", "without its key, by what else is on it"


def test_the_cents_of_a_price_are_no_other_number():
    wanted = goal("rating", "float")
    body = "<p><span>€</span><span class=price>{}</span><sup>{}</sup></p><p><i style='width: {}%'></i></p>"

    finding = learned(wanted, [(body.format(140, 86, 86), 4.3)], [body.format(7 + n, 20 + n, 50) for n in range(5)],
                      fresh=True)  # fmt: skip

    assert "cents" not in finding.sources[0]


LABELLED = {
    "a label in an attribute": (
        '<x-row label="Art. no." value="{}"></x-row>',
        '<x-row label="Stock" value="{}"></x-row>',
    ),
    "words for screen readers": ("<i class=r aria-label='Art. no.: {}'></i>", "<i class=r aria-label='Stock: {}'></i>"),
    "lines of one paragraph": ("Art. no.: {}<br>", f"Stock: {{}}<br>{'Care: wipe it, and keep it dry. ' * 9}<br>"),
}


@pytest.mark.parametrize("how", LABELLED)
def test_a_value_is_found_by_a_label_in_any_place(how):
    row, other = LABELLED[how]
    wanted = goal("name", "text")

    def body(name: str, count: int, turn: int) -> str:
        rows = [row.format(name), other.format(count)]
        return f"<p>{''.join(rows[:: -1 if turn % 2 else 1])}</p>"

    finding = learned(wanted, [(body(name, count, at), name) for at, (name, _, count) in enumerate(LAMPS)])

    assert finding.decision is Decision.HEAL
    assert [reads(wanted, finding, body("Ivy", 3, turn)) for turn in (0, 1)] == ["Ivy", "Ivy"]


@pytest.mark.parametrize("line", ["{}: {}<br>", "<i class=r aria-label='{}: {}'></i>"])
def test_a_day_and_a_boolean_are_read_behind_their_label(line):
    days, stock = goal("day", "day"), goal("stock", "bool")
    known = [(date(2026, 3 + n % 9, 2 + n), n % 3 > 0) for n in range(18)]

    def body(day: date, to_be_had: bool, turn: int) -> str:
        rows = [line.format("Posted", f"{day:%d %B %Y}"), line.format("Stock", "Ja" if to_be_had else "Nein")]
        return f"<p>{''.join(rows[:: -1 if turn % 2 else 1])}</p>"

    found = [
        learned(days, [(body(*one, at), one[0]) for at, one in enumerate(known)]),
        learned(stock, [(body(*one, at), one[1]) for at, one in enumerate(known)]),
    ]

    assert [one.decision for one in found] == [Decision.HEAL, Decision.HEAL]
    other = body(date(2027, 1, 31), False, 1)
    assert (reads(days, found[0], other), reads(stock, found[1], other)) == (date(2027, 1, 31), False)

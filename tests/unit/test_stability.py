"""How stable the rules of a recipe are: which other places say the same."""

from __future__ import annotations

from gossamer.recipe.induction.stability import stability_of
from tests.unit.recipes import page_of, recipe

RECIPE = """
start = "https://lamps.example/"
[pages.lamp]
key = "sku"
fields.sku = ".sku"
fields.title = "h1"
fields.weight = "main > p:nth-of-type(2)"
fields.gone = ".gone"
"""
BODY = """<main><h1>{0} lamp</h1><table><tr><th>Article</th><td class=sku>AB-{1}</td></tr></table>
<p>ours</p><p>{1}00 g</p></main>
<script type="application/ld+json">{{"@type": "Product", "sku": "AB-{1}"}}</script>"""


def lamps(count: int = 3):
    return [
        page_of(BODY.format(name, n), url=f"https://lamps.example/{n}")
        for n, name in enumerate(["Moss", "Fern", "Reed"][:count], 1)
    ]


def test_a_rule_with_data_and_a_label_beside_it_is_more_stable_than_a_position():
    found = {one.field: one for one in stability_of(recipe(RECIPE), lamps())}

    assert {"data", "label", "name"} <= set(found["sku"].witnesses)
    assert set(found["weight"].witnesses) == {"label", "position"}  # "ours" stands before it
    assert found["sku"].locators > found["weight"].locators > 0
    assert (found["title"].read, found["title"].looked) == (3, 3)


def test_a_rule_that_finds_nothing_has_no_witnesses():
    found = {one.field: one for one in stability_of(recipe(RECIPE), lamps())}

    assert (found["gone"].read, found["gone"].locators, found["gone"].witnesses) == (0, 0, [])


def test_the_blocks_of_a_list_are_looked_at():
    rows = "".join(f"<li><b class=name>Lamp {n}</b> <i>AB-{n}</i></li>" for n in range(5))
    text = """start = "https://lamps.example/"
[pages.list]
each = "li"
key = "sku"
fields.sku = "i"
"""
    (found,) = stability_of(recipe(text), [page_of(f"<ul>{rows}</ul>")])
    assert (found.read, found.looked, bool(found.locators)) == (3, 3, True)


def test_no_pages_say_nothing():
    assert stability_of(recipe(RECIPE), []) == []

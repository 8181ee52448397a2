"""Healed rules in the text of a recipe: the new source first, the old one kept, everything else untouched."""

from __future__ import annotations

import tomllib

import pytest

from gossamer.errors import Misconfigured
from gossamer.recipe.edit import definition, healed_text, toml_value
from gossamer.recipe.reader import read_recipe

RECIPE = """\
start = "https://shop.example/"  # the shop

[pages.item]
key = "sku"

[pages.item.fields]
sku = ".sku"   # as printed
price = { css = ".price", type = "money", currency = "EUR", nth = 2 }
tags = [
  ".tag",
  ".label",
]
"""


def healed(field: str, *sources: dict[str, object]) -> dict[str, object]:
    text = healed_text(RECIPE, "shop.toml", "item", {field: sources}, "healed on 2027-01-31")
    read_recipe(text.encode(), "shop.toml")
    assert "# the shop" in text
    return tomllib.loads(text)["pages"]["item"]["fields"]


@pytest.mark.parametrize("field", ["sku", "price", "tags"])
def test_the_new_source_stands_first_and_the_old_ones_behind_it(field):
    before = tomllib.loads(RECIPE)["pages"]["item"]["fields"]
    after = healed(field, {"label": 'It\'s "new"'})

    assert after[field]["sources"][0] == {"label": 'It\'s "new"'}
    assert len(after[field]["sources"]) == (3 if field == "tags" else 2)
    assert {name: value for name, value in after.items() if name != field} == {
        name: value for name, value in before.items() if name != field
    }


@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_field_whose_name_needs_quotes_is_replaced_too(quote):
    text = RECIPE.replace("sku = ", f"{quote}größe{quote} = ").replace('key = "sku"\n', "")
    after = healed_text(text, "shop.toml", "item", {"größe": [{"label": "Größe"}]}, "healed")
    fields = tomllib.loads(after)["pages"]["item"]["fields"]
    assert fields["größe"]["sources"] == [{"label": "Größe"}, {"css": ".sku"}]
    assert len(fields) == 3


def test_ways_of_reading_stay_with_the_old_source():
    assert healed("price", {"css": ".now"})["price"] == {
        "type": "money", "currency": "EUR", "sources": [{"css": ".now"}, {"nth": 2, "css": ".price"}]
    }  # fmt: skip


def test_healing_twice_keeps_each_source_once_and_one_comment():
    once = healed_text(RECIPE, "shop.toml", "item", {"sku": [{"label": "SKU"}]}, "first")
    twice = healed_text(once, "shop.toml", "item", {"sku": [{"css": ".number"}]}, "second")
    assert tomllib.loads(twice)["pages"]["item"]["fields"]["sku"]["sources"] == [
        {"css": ".number"}, {"label": "SKU"}, {"css": ".sku"}
    ]  # fmt: skip
    assert twice.count("# sku: ") == 1


def test_a_file_that_is_not_toml_is_refused_with_what_to_write():
    with pytest.raises(Misconfigured, match="label"):
        healed_text("pages: {}", "shop.yaml", "item", {"sku": [{"label": "SKU"}]}, "why")


def test_a_list_of_selectors_becomes_a_source_each():
    assert definition({"css": ["h1", "h2"]}, [{"css": "h3"}])["sources"] == [
        {"css": "h3"}, {"css": "h1"}, {"css": "h2"}
    ]  # fmt: skip


@pytest.mark.parametrize("value", ['a "b"', "it's", "\\d", 2, 0.05, True, ["a"], {"a b": ["c"]}])
def test_values_are_written_so_that_toml_reads_them_back(value):
    assert tomllib.loads(f"x = {toml_value(value)}")["x"] == value


def test_a_field_in_the_table_of_its_page_kind_is_replaced_there_and_a_new_one_is_added_there():
    text = 'start = "https://shop.example/"\n[pages.item]\nauto = "product"\nfields.name = "h1"\n'
    text = healed_text(text, "shop.toml", "item", {"name": [{"css": "h2"}], "sku": [{"label": "No."}]}, "why")

    read_recipe(text.encode(), "shop.toml")
    fields = tomllib.loads(text)["pages"]["item"]["fields"]
    assert fields == {"name": {"sources": [{"css": "h2"}, {"css": "h1"}]}, "sku": {"sources": [{"label": "No."}]}}

"""Healed rules above those of a recipe's file: versions, the way back, the file that changes, and the seal."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gossamer.errors import Misconfigured
from gossamer.model.healing import RULES, HealedField, HealedRules
from gossamer.model.item import healed_fields, schema_of
from gossamer.model.page import Headers, Snapshot
from gossamer.model.shelf import ShelfKind
from gossamer.parse.page import Page
from gossamer.parse.spider import spider_version
from gossamer.project.open import open_project
from gossamer.project.spiders.rules import adopt, all_rules, from_file, in_use, rules_of, step_back
from gossamer.recipe.overlay import with_rules
from gossamer.recipe.reader import read_recipe
from gossamer.recipe.spider import RecipeSpider, check_page, spider_of
from gossamer.settings import load

TEXT = """\
start = "https://shop.example/"

[pages.item]
key = "sku"

[pages.item.fields]
sku = ".sku"
price = { css = ".price", type = "money", currency = "EUR" }
"""
READY = 'start = "https://shop.example/"\n\n[pages.item]\nauto = "product"\n'
KEY = "a key of at least sixteen letters"


def recipe(text: str = TEXT) -> RecipeSpider:
    return spider_of(read_recipe(text.encode(), "shop.toml"))()


def rule(field: str, css: str, **extra: object) -> HealedField:
    return HealedField(kind="item", field=field, sources=({"css": css, **extra},), agree=9, known=10)


def values(spider: RecipeSpider, html: str) -> dict[str, object]:
    headers = Headers([("content-type", "text/html")])
    page = Page(Snapshot(url="https://shop.example/1", requested_url="https://shop.example/1", status=200,
                         headers=headers, body=html.encode(), fetched_at=1.0))  # fmt: skip
    return {note.field: note.value for note in check_page(spider, "item", page).notes}


def project_in(folder: Path, **more: str):
    (folder / "spiders").mkdir(exist_ok=True)
    (folder / "gossamer.toml").write_text("\n".join(f"{name} = {value}" for name, value in more.items()))
    return open_project(load(start=folder), to_look=True)


def test_versions_add_fields_and_the_version_before_comes_back():
    rules = HealedRules(spider="shop").with_fields(TEXT, (rule("price", ".a"),), at=1.0, by="local")
    rules = rules.with_fields(TEXT, (rule("sku", ".b"), rule("price", ".c")), at=2.0, by="auto")
    held = rules.in_use(TEXT)
    assert held is not None
    assert held.version == 2
    assert {one.field: [table["css"] for table in one.sources] for one in held.fields} == {
        "price": [".c", ".a"], "sku": [".b"]
    }  # fmt: skip
    assert rules.in_use(TEXT + "# changed") is None  # the layer was learned for another file
    rules = rules.without_current(TEXT)
    assert rules.current == 1
    assert rules.without_current(TEXT).current == 0
    again = rules.with_fields(TEXT, (rule("sku", ".d"),), at=3.0, by="local")
    assert again.current == 3  # a number is never used twice


def test_a_recipe_with_healed_rules_finds_by_them_first_and_says_so_in_its_schema():
    spider = recipe()
    rules = HealedRules(spider="shop").with_fields(TEXT, (rule("price", ".new b"),), at=1.0, by="local").in_use(TEXT)
    assert rules is not None
    healed = with_rules(spider, rules)
    both = "<p class=sku>A1</p><p class=new><b>5 EUR</b></p><p class=price>7 EUR</p>"
    assert str(values(healed, both)["price"]) == "5 EUR"
    assert str(values(healed, "<p class=sku>A1</p><p class=price>7 EUR</p>")["price"]) == "7 EUR"
    assert spider_version(type(healed)) != spider_version(type(spider))
    schema = schema_of(healed._shapes["item"].make({"sku": "A1", "price": None}))
    assert schema is not None
    assert healed_fields(schema.definition) == {"price": 1}
    assert from_file(healed).rules_version == 0


def test_a_field_of_a_ready_parser_keeps_its_type_and_its_parser():
    spider = recipe(READY)
    rules = HealedRules(spider="shop").with_fields(READY, (rule("price", ".new b"),), at=1.0, by="local").in_use(READY)
    assert rules is not None
    healed = with_rules(spider, rules)
    title = "<meta property=og:title content=Lamp><h1>Lamp</h1>"
    assert str(values(healed, f"{title}<p class=new><b>5 EUR</b></p>")["price"]) == "5 EUR"
    stated = '<script type="application/ld+json">{"@type": "Product", "name": "Lamp", "offers": {"price": "7", \
"priceCurrency": "EUR"}}</script>'
    assert str(values(healed, title + stated)["price"]) == "7 EUR"


async def test_rules_in_the_state_hold_until_the_file_changes(tmp_path):
    async with project_in(tmp_path) as project:
        spider = recipe()
        version = await adopt(project, spider, [rule("price", ".new b")], "local")
        assert version.version == 1
        held = await in_use(project, spider)
        assert isinstance(held, RecipeSpider)
        assert held.rules_version == 1
        changed = await in_use(project, recipe(TEXT + "# another text\n"))
        assert isinstance(changed, RecipeSpider)
        assert changed.rules_version == 0
        left = await step_back(project, spider)
        assert left == version
        with pytest.raises(Misconfigured, match="No healed rules"):
            await step_back(project, spider)


async def test_rules_that_the_recipe_cannot_be_read_with_are_not_taken_into_use(tmp_path):
    async with project_in(tmp_path) as project:
        with pytest.raises(Misconfigured, match="cannot be used"):
            await adopt(project, recipe(), [rule("price", "..no selector")], "local")
        assert await all_rules(project) == ()
        with pytest.raises(Misconfigured, match="--field"):
            await adopt(project, recipe(), [], "local")


async def test_with_a_key_only_sealed_rules_are_used(tmp_path):
    async with project_in(tmp_path, **{"fleet.key": f'"{KEY}"'}) as project:
        spider = recipe()
        await adopt(project, spider, [rule("price", ".new b")], "local")
        honest = await rules_of(project, "shop")
        kind = ShelfKind(project.state.shelf, RULES, HealedRules)
        version = msgspec.structs.replace(honest.versions[0], fields=(rule("price", ".tip-jar"),))
        for forged in (
            msgspec.structs.replace(honest, versions=(version,)),
            msgspec.structs.replace(honest, current=0, versions=honest.versions),
        ):
            await project.state.shelf.commit([kind.put("shop", forged)])
            with pytest.raises(Misconfigured, match="seal"):
                await in_use(project, spider)
        await project.state.shelf.commit([kind.put("shop", msgspec.structs.replace(honest, versions=(version,)))])
        assert await step_back(project, spider) is None  # removed: the file alone holds
        assert await in_use(project, spider) is spider

"""New layouts: what counts as damage, which rules need nobody, and what the next run says of healed rules."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gossamer.model.events import NullSink
from gossamer.model.healing import HealedField, LayoutChange, LayoutState, RulesVersion
from gossamer.model.item import content_hash, schema_of
from gossamer.model.job import JobTerms
from gossamer.model.record import Attempt, PageResult, Record, Tally
from gossamer.project.access.keys import OWNER
from gossamer.project.open import Project, open_project
from gossamer.project.spiders.apply import undo
from gossamer.project.spiders.heal import FieldHealing, Healing, KindHealing
from gossamer.project.spiders.healed_values import healed_values
from gossamer.project.spiders.healing import HealingOf, show_healing
from gossamer.project.spiders.layout_change import (
    doubts,
    empty_fields,
    layout_change_of,
    put_layout_change,
    sliding_fields,
    unasked_fields,
)
from gossamer.project.spiders.layout_watch import LayoutWatch
from gossamer.project.spiders.rules import adopt, in_use
from gossamer.recipe.induction.decision import Decision
from gossamer.recipe.reader import read_recipe
from gossamer.recipe.spider import RecipeSpider, spider_of
from gossamer.settings import load
from gossamer.store.contract import RecordQuery

TEXT = """\
start = "https://shop.example/"

[pages.item]
key = "sku"

[pages.item.fields]
sku = ".sku"
title = "h1"
price = { css = ".price", type = "money", currency = "EUR" }
"""


def healed_field(name: str, decision: Decision = Decision.HEAL, **more: Any) -> FieldHealing:
    given: dict[str, Any] = {"required": False, "money": False, **more}
    return FieldHealing(
        field=name, decision=decision, reason="", old_rule="", new_rule="", sources=[{"css": f".{name}"}], known=20,
        agree=19, differ=1, missing=0, fill=1.0, locators=3, examples=[], **given,
    )  # fmt: skip


def healing(*fields: FieldHealing, known: int = 20) -> Healing:
    kind = KindHealing(kind="item", item="Item", pages=known, read=30, known=known, since="2027-01-31T03:12:00Z",
                       incomplete=0, fields=list(fields), unhurt=[])  # fmt: skip
    return Healing(spider="shop", file="shop.toml", site="shop.example", rules=0, ended=False, read=30, kinds=[kind],
                   left_out=[])  # fmt: skip


def chosen(tmp_path: Path, found: Healing, **heal: str) -> list[str]:
    lines = [f"{name} = {value}" for name, value in heal.items()]
    (tmp_path / "gossamer.toml").write_text("\n".join(["[heal]", *lines]))
    return [one.field for one in unasked_fields(load(start=tmp_path), found)]


KEY, TITLE, PRICE = (
    healed_field("sku", required=True),
    healed_field("title"),
    healed_field("price", money=True),
)


def test_sure_rules_need_nobody_but_money_does(tmp_path):
    assert chosen(tmp_path, healing(KEY, TITLE, PRICE)) == ["sku", "title"]
    assert chosen(tmp_path, healing(KEY, PRICE), money='["price"]') == ["sku", "price"]
    assert chosen(tmp_path, healing(KEY, PRICE), money='["shop.price"]') == ["sku", "price"]
    assert chosen(tmp_path, healing(KEY, PRICE), money='["other.price"]') == ["sku"]


def test_without_a_key_or_a_required_field_nothing_is_used_unasked(tmp_path):
    doubtful = healed_field("title", Decision.PROPOSE, required=True)
    assert chosen(tmp_path, healing(KEY, doubtful)) == []
    assert chosen(tmp_path, healing(KEY, healed_field("title", Decision.PROPOSE))) == ["sku"]
    assert chosen(tmp_path, healing(KEY, healed_field("price", money=True, required=True))) == []


def test_few_known_pages_are_not_enough(tmp_path):
    assert chosen(tmp_path, healing(KEY, known=19)) == []
    assert chosen(tmp_path, healing(KEY, known=8), known="8") == ["sku"]


def test_words_say_when_how_many_and_which_are_missing():
    brand = msgspec.structs.replace(healed_field("brand", Decision.REFUSE), agree=15, known=48)
    said = healing(KEY, msgspec.structs.replace(PRICE, agree=46, known=48), brand, known=48).words()
    assert said == (
        "Layout of shop.example changed at 2027-01-31 03:12 UTC, on 48 pages. New rules for 2 of 3 lost fields"
        " (sku: 19 of 20 known values agree); brand: 15 of 48 refused."
    )


def tally(day: str, field: str, checked: int, filled: int) -> Tally:
    return Tally(spider="shop", day=day, type="Item", field=field, checked=checked, filled=filled)


def test_a_field_that_became_empty_is_damage_until_it_was_looked_at():
    usual = [tally("2027-01-30", "brand", 100, 98), tally("2027-01-30", "note", 100, 5)]
    today = [tally("2027-01-31", "brand", 40, 4), tally("2027-01-31", "note", 40, 0)]
    assert empty_fields([*usual, *today], "2027-01-31", None) == ("brand",)
    assert empty_fields([*usual, tally("2027-01-31", "brand", 9, 0)], "2027-01-31", None) == ()
    seen = LayoutChange(spider="shop", job="shop-2", letters=0, at=1_801_400_000.0, state=LayoutState.OVER, words="",
                        counted={"Item.brand": (40, 4)})  # fmt: skip
    assert empty_fields([*usual, *today], "2027-01-31", seen) == ()
    assert empty_fields([*usual, tally("2027-01-31", "brand", 60, 24)], "2027-01-31", seen) == ()
    assert empty_fields([*usual, tally("2027-01-31", "brand", 60, 5)], "2027-01-31", seen) == ("brand",)


def test_a_field_that_is_found_less_often_is_an_early_warning():
    usual = [tally("2027-01-30", "brand", 200, 196), tally("2027-01-30", "note", 200, 100)]
    slid = sliding_fields([*usual, tally("2027-01-31", "brand", 60, 45)], "2027-01-31", None)
    assert slid == ("brand is found in 75% of 60 items today, and was in 98% before",)
    for today in (("brand", 60, 57), ("note", 60, 24), ("brand", 60, 10)):  # chance; chance; empty, which is more
        assert sliding_fields([*usual, tally("2027-01-31", *today)], "2027-01-31", None) == ()


# -- the run after -------------------------------------------------------------------------------------------------


def item(spider: RecipeSpider, number: int, price: int, at: float, job: str) -> PageResult:
    data = {"sku": f"A{number}", "title": f"Lamp {number}", "price": {"amount": str(price), "currency": "EUR"}}
    text = msgspec.json.encode(data).decode()
    schema = schema_of(spider._shapes["item"].make({"sku": "", "title": "", "price": None}))
    assert schema is not None
    url = f"https://shop.example/{number}"
    record = Record(type=schema.type, site="shop.example", key=f"A{number}", url=url, job=job, spider="shop",
                    data=text, content_hash=content_hash(text), scraped_at=at, schema=schema.id)  # fmt: skip
    attempt = Attempt(at=at, job=job, url=url, fingerprint=b"%016d" % number, site="shop.example", worker="w",
                      attempt=1, outcome="done")  # fmt: skip
    return PageResult(attempt=attempt, records=(record,), schemas=(schema,))


async def healed_shop(project: Project, changed: int) -> tuple[RecipeSpider, RulesVersion]:
    """Ten records, whose prices healed rules read; `changed` of them differ from those before."""
    spider = spider_of(read_recipe(TEXT.encode(), "shop.toml"))()
    now = project.clock.now()
    await project.records.save([item(spider, n, 10 + n, now - 500, "shop-1") for n in range(10)])
    version = await adopt(project, spider, [HealedField(kind="item", field="price", sources=({"css": "b"},))], "local")
    held = await in_use(project, spider)
    assert isinstance(held, RecipeSpider)
    prices = [10 + n + (5 if n < changed else 0) for n in range(10)]
    await project.records.save([item(held, n, prices[n], now - 100, "shop-2") for n in range(10)])
    return spider, version


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gossamer.toml").write_text("")
    (tmp_path / "spiders").mkdir()
    (tmp_path / "spiders" / "shop.toml").write_text(TEXT)
    return tmp_path


async def test_prices_that_change_as_prices_do_are_no_doubt(folder):
    async with open_project(load(start=folder)) as project:
        spider, version = await healed_shop(project, 3)
        assert await doubts(project, spider, version, 0.0) == ""


async def test_more_changes_than_prices_have_are_a_doubt_and_undo_takes_them_back(folder):
    async with open_project(load(start=folder)) as project:
        spider, version = await healed_shop(project, 9)
        assert await doubts(project, spider, version, 0.0) == "price: 9 of 10 values changed"
        assert len([one async for one in healed_values(project, "shop", field="price")]) == 9  # one is as it was
        undone = await undo(project, spider)
        assert (undone.records, undone.gone, undone.rules) == (9, 0, 0)
        stored = [one async for one in project.records.records(RecordQuery(spider="shop"))]
        assert {one.key: one.data["price"]["amount"] for one in stored} == {f"A{n}": str(10 + n) for n in range(10)}
        assert [one async for one in healed_values(project, "shop")] == []


@pytest.mark.parametrize(("changed", "state"), [(3, LayoutState.OVER), (9, LayoutState.DOUBTFUL)])
async def test_the_run_after_decides_whether_a_change_is_over(folder, changed, state):
    async with open_project(load(start=folder)) as project:
        spider, _ = await healed_shop(project, changed)
        applied = LayoutChange(spider="shop", job="shop-0", letters=9, at=project.clock.now() - 50, version=1,
                               state=LayoutState.APPLIED, words="applied")  # fmt: skip
        await put_layout_change(project, applied)
        watch = LayoutWatch(project, SimpleNamespace(held=True), NullSink())  # type: ignore[arg-type]
        job, _ = await project.state.jobs.open_job("shop", JobTerms(spider="shop"), fresh=False)
        again = await in_use(project, spider)
        assert isinstance(again, RecipeSpider)
        prices = [15 + n if n < changed else 10 + n for n in range(10)]
        now = project.clock.now() + 1
        await project.records.save([item(again, n, prices[n], now, job.id) for n in range(10)])
        await watch.turn()
        assert (await layout_change_of(project, "shop")) == applied  # the run is not over
        await project.state.jobs.close_job(job.id, "done")
        await watch.turn()
        change = await layout_change_of(project, "shop")
        assert change is not None
        assert change.state is state
        if state is LayoutState.DOUBTFUL:
            assert "gossamer heal shop --undo" in change.words


async def test_values_that_drift_are_a_warning_until_they_are_as_they_were(folder):
    async with open_project(load(start=folder)) as project:
        spider = spider_of(read_recipe(TEXT.encode(), "shop.toml"))()
        watch = LayoutWatch(project, SimpleNamespace(held=True), NullSink())  # type: ignore[arg-type]

        async def run(times: int) -> LayoutChange | None:
            job, _ = await project.state.jobs.open_job("shop", JobTerms(spider="shop"), fresh=True)
            now = project.clock.now() + 1
            found = [item(spider, n, times * (10 + n), now, job.id) for n in range(24)]
            await project.records.save(found)
            await project.state.jobs.close_job(job.id, "done")
            await watch.turn()
            return await layout_change_of(project, "shop")

        now = project.clock.now()
        await project.records.save([item(spider, n, 10 + n, now - 500, "shop-0") for n in range(24)])
        assert await run(1) is None
        warned = await run(100)  # cents
        assert warned is not None
        assert warned.state is LayoutState.FOUND
        assert "price is 100 times what it was, in the middle of 24 items" in warned.words
        shown = await show_healing(project, OWNER, HealingOf(spider="shop"))
        assert shown.evidence is not None
        assert shown.evidence.drift[0].examples[0] == ("A23", "33.00 EUR", "3300.00 EUR")

        still = await run(100)  # nothing has changed since, and the stored values are as wrong as before
        assert still is not None
        assert (still.is_open, still.since) == (True, warned.since)

        over = await run(1)
        assert over is not None
        assert over.state is LayoutState.OVER

"""The pipeline: cleaned, complete, dropped with a reason or refused; one record per key."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer import Spider, settings
from gossamer.errors import Misconfigured, ParseFailed
from gossamer.model.item import AnyItem, Item, content_hash
from gossamer.model.item_account import Conflict
from gossamer.model.url import UrlRules
from gossamer.pipeline.clean import clean, clean_text
from gossamer.pipeline.inspection import Inspector
from gossamer.pipeline.steps import Drop, Dropped, Piped, Pipeline
from gossamer.settings.quality_tables import QualityTable
from gossamer.terms import on_fault_of_spider


class Here:
    url = "https://www.shop.example/p/1"


class Part(Item):
    name: str


class Product(Item, key="sku"):
    sku: str
    title: str
    price: float | None = None
    parts: tuple[Part, ...] = ()


async def piped(pipeline: Pipeline, *items: AnyItem) -> Piped:
    return await pipeline.run(items, Here(), spider="shop", job="shop-1", now=12.5)


async def test_item_becomes_a_record_of_the_pages_site() -> None:
    [record] = (await piped(Pipeline(), Product(sku="1", title=" Tea "))).records
    assert (record.type, record.site, record.key) == ("Product", "shop.example", "1")
    assert (record.url, record.job, record.spider, record.scraped_at) == (Here.url, "shop-1", "shop", 12.5)
    assert json.loads(record.data)["title"] == "Tea"
    assert record.content_hash == content_hash(record.data)


async def test_dict_becomes_a_record_too() -> None:
    [record] = (await piped(Pipeline(), {"url": "u", "a": " x "})).records
    assert (record.type, record.key, record.data) == ("item", "u", '{"url":"u","a":"x"}')


async def test_items_that_name_a_page_asked_for_by_post_are_told_apart_by_the_request() -> None:
    async def keys(fingerprint: bytes, *items: AnyItem) -> list[str]:
        run = Pipeline().run(items, Here(), spider="s", job="s-1", now=1.0, request=(Here.url, fingerprint))
        return [record.key for record in (await run).records]

    own, bare, other = {"url": Here.url, "a": "1"}, {"a": "1"}, {"url": "https://shop.example/p/2"}
    plain = UrlRules().fingerprint(Here.url)
    assert await keys(plain, own) == await keys(plain, bare) == [Here.url]
    assert await keys(b"x" * 16, own) == await keys(b"x" * 16, bare) != await keys(b"y" * 16, own)
    assert await keys(b"x" * 16, other) == await keys(plain, other) == [other["url"]]


async def test_incomplete_item_fails_the_page() -> None:
    with pytest.raises(ParseFailed, match="title is missing"):
        await piped(Pipeline(), Product(sku="1", title="ok"), Product(sku="2", title=" \n "))


async def test_steps_run_in_order_and_may_change_or_drop() -> None:
    def double(item: Any, page: Any) -> Any:
        item.price = (item.price or 0) * 2
        return item

    async def cheap(item: Any, page: Any) -> Any:
        await asyncio.sleep(0)
        return item if item.price < 10 else Drop(f"{item.price} is too much")

    def silent(item: Any, page: Any) -> Any:
        return None if item.sku == "3" else item

    result = await piped(
        Pipeline([double, cheap, silent]),
        Product(sku="1", title="a", price=2),
        Product(sku="2", title="b", price=8),
        Product(sku="3", title="c", price=1),
    )
    assert [json.loads(record.data)["price"] for record in result.records] == [4]
    assert result.dropped == [
        Dropped("cheap", "16 is too much", "Product"),
        Dropped("silent", "the step returned nothing", "Product"),
    ]


async def test_step_gets_the_page() -> None:
    seen: list[Any] = []

    def look(item: Any, page: Any) -> Any:
        seen.append(page.url)
        return item

    await piped(Pipeline([look]), {"a": 1})
    assert seen == [Here.url]


async def test_step_that_raises_fails_the_page_and_is_named() -> None:
    def careless(item: Any, page: Any) -> Any:
        raise SystemExit("oh\ud800")

    with pytest.raises(ParseFailed, match="step careless failed on an item \\(item\\) of https") as caught:
        await piped(Pipeline([careless]), {"a": 1})
    assert "test_pipeline.py" in caught.value.detail
    str(caught.value).encode()


async def test_step_must_not_make_an_item_incomplete() -> None:
    def forget(item: Any, page: Any) -> Any:
        item.title = None
        return item

    def wrong(item: Any, page: Any) -> Any:
        return "text"

    with pytest.raises(ParseFailed, match="title is missing"):
        await piped(Pipeline([forget]), Product(sku="1", title="a"))
    with pytest.raises(ParseFailed, match="step wrong gave a str"):
        await piped(Pipeline([wrong]), Product(sku="1", title="a"))


async def test_of_equal_keys_the_last_wins_unless_it_says_less() -> None:
    result = await piped(
        Pipeline(),
        Product(sku="1", title="old", price=1),
        Product(sku="2", title="full", price=2),
        Product(sku="1", title="new", price=3),
        Product(sku="2", title="poor"),
    )
    assert [json.loads(record.data)["title"] for record in result.records] == ["new", "full"]
    assert (result.items.yielded, result.items.conflict, result.items.equal) == (4, 2, 0)
    assert result.items.example == Conflict(type="Product", key="1", url=Here.url)


async def test_equal_keys_of_different_types_are_different_things() -> None:
    result = await piped(Pipeline(), {"url": "1"}, Product(sku="1", title="a"))
    assert len(result.records) == 2


async def test_item_nested_beyond_reason_is_refused() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ParseFailed, match="nested too deeply"):
        await piped(Pipeline(), {"a": deep})


def test_cleaning_reaches_nested_values_and_leaves_the_original_alone() -> None:
    item = Product(sku="1", title="a", parts=(Part(name=" b  c "),))
    cleaned = clean(item)
    assert cleaned.parts == (Part(name="b c"),)
    assert item.parts == (Part(name=" b  c "),)
    assert clean({"a": [" x ", {"b": "y\x00"}]}) == {"a": ["x", {"b": "y\ufffd"}]}


def test_texts_of_a_class_of_their_own_are_cleaned_too() -> None:
    class Markup(str):
        pass

    assert clean({"a": Markup(" x  y ")}) == {"a": "x y"}


def test_clean_item_is_returned_as_it_is() -> None:
    item = Product(sku="1", title="a")
    assert clean(item) is item


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("  a \t b\u00a0c  ", "a b c"),
        ("e\u0301", "\u00e9"),
        ("a\ud800b\x00", "a\ufffdb\ufffd"),
        ("one  \r\n\r\n\r\n\r\n  two\t\n", "one\n\n  two"),
        ("a\u2028b", "a\nb"),
        ("", ""),
        ("\u3000", ""),
        ("plain", "plain"),
    ],
)
def test_texts_are_cleaned(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned


@given(st.text(st.characters()))
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    once = clean_text(text)
    assert clean_text(once) == once
    once.encode()
    assert "\x00" not in once
    assert once == once.strip()


class Offer(Item, key="sku", on_fault="drop"):
    sku: str
    price: float


class Strict(Item, key="sku", on_fault="fail"):
    sku: str
    price: float


class Lenient(Item, key="sku"):
    sku: str
    price: float


def inspecting(**terms: Any) -> Pipeline:
    return Pipeline(inspector=Inspector("shop", QualityTable()), **terms)


async def test_faulty_items_are_stored_unless_their_type_says_otherwise() -> None:
    result = await piped(inspecting(), Lenient(sku="1", price=-1.0), Lenient(sku="2", price=2.0), {"price": -1})
    assert len(result.records) == 3
    assert (result.items.faulty, result.items.flawed, result.items.fine) == (0, 2, 1)


async def test_a_type_drops_its_faulty_items_and_keeps_the_others() -> None:
    items = [Offer(sku="1", price=-1.0), Offer(sku="2", price=2.0), Offer(sku="3", price="2"), {"price": -1}]
    result = await piped(inspecting(), *items)
    assert [record.key for record in result.records] == ["2", Here.url]
    assert (result.items.yielded, result.items.faulty, result.items.dropped) == (4, 2, 0)
    assert {drop.step for drop in result.dropped} == {"on_fault"}
    assert len(result.dropped) == 2


async def test_the_default_holds_for_dicts_and_types_that_say_nothing() -> None:
    items: list[Any] = [
        {"price": -1},
        {"url": "u", "price": 1},
        Lenient(sku="1", price=0.0),
        Strict(sku="1", price=1.0),
    ]
    result = await piped(inspecting(on_fault="drop"), *items)
    assert len(result.records) == 2
    assert result.items.faulty == 2


@pytest.mark.parametrize("bad", [Strict(sku="1", price=-1.0), Strict(sku="1", price="12")])
async def test_a_type_fails_its_page(bad: Strict) -> None:
    with pytest.raises(ParseFailed) as failure:
        await piped(inspecting(), Strict(sku="2", price=1.0), bad)
    assert failure.value.faulty == 1


def test_a_fault_policy_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Misconfigured, match=r'must be "store", "drop" or "fail"'):

        class Wrong(Item, on_fault="ignore"):  # type: ignore[call-arg]
            title: str


async def test_items_without_a_declared_key_are_known_by_url_and_place() -> None:
    items: list[Any] = [
        {"url": "https://shop.example/a", "n": 1},
        {"url": "https://shop.example/a", "n": 2},
        {"url": "https://shop.example/a", "n": 1},
        {"n": 3},
        Loose(title="x"),
        Loose(title="y"),
    ]
    result = await piped(Pipeline(), *items)
    assert [(record.type, record.key) for record in result.records] == [
        ("item", "https://shop.example/a"),
        ("item", "https://shop.example/a #2"),
        ("item", Here.url),
        ("Loose", Here.url),
        ("Loose", f"{Here.url} #2"),
    ]
    assert (result.items.yielded, result.items.equal, result.items.conflict) == (6, 1, 0)


class Loose(Item):
    title: str


def test_a_wrong_policy_of_the_settings_or_a_spider_is_refused(tmp_path: Path) -> None:
    wrong = settings.load(start=tmp_path, environ={}, flags={"quality.on_fault": "ignore"})
    with pytest.raises(Misconfigured, match=r"Setting quality.on_fault: 'ignore' must be"):
        on_fault_of_spider(wrong, Spider())

    class Own(Spider):
        on_fault = "drop"

    assert on_fault_of_spider(wrong, Own()) == "drop"

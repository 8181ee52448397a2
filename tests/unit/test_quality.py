"""Quality rules, what they count, and the guard that closes when too much is faulty."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from gossamer import Fault, Item, Money
from gossamer.errors import ParseFailed
from gossamer.model.record import Tally
from gossamer.pipeline.inspection import ENOUGH, RECENT, USUAL, Habits, Inspector, RecordIdentity
from gossamer.pipeline.near_duplicates import NearDuplicates
from gossamer.pipeline.quality_guard import FEWEST, QualityGuard
from gossamer.pipeline.quality_rules import faults_of
from gossamer.pipeline.steps import Drop, Piped, Pipeline
from gossamer.settings.quality_tables import QualityTable
from gossamer.store.record_rules import sum_tallies

TERMS = QualityTable()
DAY = 1_800_000_000.0  # 2027-01-15


class Here:
    url = "https://shop.example/p/1"


class Product(Item, key="sku"):
    sku: str
    title: str = ""
    price: Money | None = None
    currency: str | None = None
    rating: float | None = None


def rules(item: Any, **how: Any) -> list[tuple[str, str]]:
    return [(fault.field, fault.rule) for fault in faults_of(item, TERMS, **how)]


def good(**changes: Any) -> Product:
    return Product(**{"sku": "1", "title": "Tea", "price": Money(Decimal("4.50"), "EUR"), **changes})


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (good(), []),
        (good(title=""), [("title", "missing-title")]),
        (good(price=Money(Decimal(0), "EUR")), [("price", "price-not-positive")]),
        (good(price=Money(Decimal("-1"), "EUR")), [("price", "price-not-positive")]),
        (good(price=Money(Decimal("NaN"), "EUR")), [("price", "price-not-positive")]),
        (good(price=Money(Decimal(10**8), "EUR")), [("price", "price-too-high")]),
        (good(rating=5.5), [("rating", "rating-range")]),
        (good(rating=-0.1), [("rating", "rating-range")]),
        (good(rating=0.0), []),
        (good(rating=5.0), []),
        (good(price=None, currency="EUR"), [("currency", "currency-without-price")]),
        (good(title="Caf\ufffd"), [("title", "debris")]),
        (good(title="Ã¼berraschung"), [("title", "debris")]),
        (good(title="itâ€™s"), [("title", "debris")]),
        (good(title="Salt &amp;amp; Pepper"), [("title", "debris")]),
        (good(title="{{ product.title }}"), [("title", "debris")]),
        (good(title="undefined"), [("title", "debris")]),
        (good(title="None"), []),
        (good(title="Fish &amp; Chips"), [("title", "debris")]),
        (good(title="<b>Fish &amp; Chips</b>"), []),
        (good(title="How {{ title }} works in templates"), []),
        (good(rating=float("nan")), [("rating", "rating-range")]),
        (good(title="Über Öl & Essig [neu] {rot}"), []),
        (good(title="São Paulo – Ângela"), []),
        ({"name": None}, [("name", "missing-title")]),
        ({"price": "free of charge"}, [("price", "price-unreadable")]),
        ({"price": "£0.00"}, [("price", "price-not-positive")]),
        ({"price": 3}, []),
        ({"rating": "4.5 out of 5"}, []),
    ],
)
def test_what_each_rule_finds(item: Any, expected: list[tuple[str, str]]) -> None:
    assert rules(item) == expected


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ({"amount": "4.00", "currency": "EUR"}, []),
        ({"amount": "45.00", "currency": "EUR"}, [("price", "price-jump")]),
        ({"amount": "0.90", "currency": "EUR"}, [("price", "price-jump")]),
        ({"amount": "450", "currency": "JPY"}, []),
        (None, []),
    ],
)
def test_a_price_is_compared_with_the_one_before_in_the_same_currency(before: Any, expected: Any) -> None:
    assert rules(good(), before={"price": before}) == expected


def test_rules_can_be_switched_off() -> None:
    terms = QualityTable(price_ceiling=None, price_jump=None)
    item = good(price=Money(Decimal(10**9), "EUR"))
    assert faults_of(item, terms, before={"price": {"amount": "1", "currency": "EUR"}}) == []


async def inspected(inspector: Inspector, *items: Any) -> Piped:
    return await Pipeline(inspector=inspector).run(items, Here(), spider="shop", job="shop-1", now=DAY)


def counted(tallies: Sequence[Tally], type: str, field: str, rule: str = "") -> tuple[int, int, int]:
    [found] = [one for one in tallies if (one.type, one.field, one.rule) == (type, field, rule)]
    assert (found.spider, found.day) == ("shop", "2027-01-15")
    return found.checked, found.filled, found.faulty


async def test_items_fields_rules_and_pages_are_counted() -> None:
    piped = await inspected(Inspector("shop", TERMS), good(), good(sku="2", title=""), good(sku="3", price=None))
    tallies = piped.inspection.tallies
    assert counted(tallies, "Product", "*") == (3, 3, 1)
    assert counted(tallies, "Product", "title") == (3, 2, 1)
    assert counted(tallies, "Product", "title", "missing-title") == (0, 0, 1)
    assert counted(tallies, "Product", "price") == (3, 2, 0)
    assert counted(tallies, "*", "*") == (1, 1, 0)
    assert (piped.inspection.fine, piped.inspection.faulty) == (2, 1)
    assert piped.remarks() == "1 fault missing-title (title is empty)"


async def test_an_item_that_is_refused_counts_for_the_fields_at_fault() -> None:
    inspector = Inspector("shop", TERMS)
    with pytest.raises(ParseFailed) as refused:
        await inspected(inspector, {"price": 1, "url": "u"}, Product(sku=""))
    tallies = inspector.refused(refused.value, DAY)
    assert counted(tallies, "Product", "*") == (1, 0, 1)
    assert counted(tallies, "Product", "sku", "not-as-declared") == (0, 0, 1)
    assert counted(tallies, "*", "*") == (1, 0, 1)


async def test_a_field_that_was_nearly_always_filled_must_not_be_empty_all_of_a_sudden() -> None:
    known = [Tally(spider="shop", day="2027-01-14", type="Product", field="price", rule=USUAL, checked=1, filled=1)]
    inspector = Inspector("shop", TERMS, habits=Habits(0.95, known))
    for number in range(20):  # every fourth has no price: no fault
        piped = await inspected(inspector, good(sku=str(number), **({"price": None} if number % 4 == 0 else {})))
        assert piped.inspection.faults == ()
    rules = [[one.rule for one in (await inspected(inspector, good(price=None))).inspection.faults] for _ in range(30)]
    assert rules[0] == []
    assert rules[-1] == ["unusually-empty"]


async def test_pages_that_are_alike_share_their_tallies_and_all_of_them_count() -> None:
    inspector = Inspector("shop", TERMS, habits=Habits(None))
    pages = [(await inspected(inspector, good(sku=str(number)))).inspection.tallies for number in range(3)]
    other = (await inspected(inspector, good(sku="3", price=None))).inspection.tallies
    assert pages[1] is pages[2]
    sums = {key[2:]: count for key, count in sum_tallies([*pages[0], *pages[1], *pages[2], *other])}
    assert sums["Product", "*", ""] == (4, 4, 0)
    assert sums["Product", "price", ""] == (4, 3, 0)
    assert sums["*", "*", ""] == (4, 4, 0)


async def test_the_first_items_make_a_habit_which_a_new_layout_does_not_change() -> None:
    inspector = Inspector("shop", TERMS)
    for number in range(ENOUGH):
        assert (await inspected(inspector, good(sku=str(number)))).inspection.faulty == 0
    later = [
        (await inspected(inspector, good(sku=f"n{number}", price=None))).inspection.faulty
        for number in range(3 * ENOUGH)
    ]
    assert set(later[RECENT:]) == {1}


async def test_a_habit_outlives_the_process_that_saw_it_broken() -> None:
    first = Inspector("shop", TERMS)
    pieces = [await inspected(first, good(sku=str(number))) for number in range(ENOUGH)]
    pieces += [await inspected(first, good(sku=f"n{number}", price=None)) for number in range(3 * ENOUGH)]
    stored = [tally for piped in pieces for tally in piped.inspection.tallies]
    second = Inspector("shop", TERMS, habits=Habits(0.95, stored))
    later = [
        (await inspected(second, good(sku=f"m{number}", price=None))).inspection.faulty for number in range(RECENT)
    ]
    assert later[-1] == 1


class Shown:
    url, kind = "https://shop.example/list", "listing"


async def test_a_callback_that_always_gave_items_and_gives_none_any_more_is_faulty() -> None:
    inspector = Inspector("shop", TERMS)
    pipeline = Pipeline(inspector=inspector)
    for number in range(ENOUGH):
        await pipeline.run([good(sku=str(number))], Shown(), spider="shop", job="shop-1", now=DAY)
    empty = [await pipeline.run([], Shown(), spider="shop", job="shop-1", now=DAY) for _ in range(RECENT)]
    assert not empty[0].inspection.empty
    assert empty[-1].inspection.empty
    assert (empty[-1].inspection.faulty, empty[-1].inspection.faults[0].rule) == (1, "no-items")


async def test_dicts_with_ever_new_keys_do_not_fill_the_memory_or_the_table() -> None:
    inspector = Inspector("shop", TERMS)
    piped = await inspected(inspector, *({"url": f"u{number}", f"key{number}": 1} for number in range(1000)))
    assert len(piped.inspection.tallies) < 250


def test_a_long_page_counts_by_its_share() -> None:
    guard = QualityGuard("shop", 0.5, 50)
    assert guard.note(900, 100) is None
    assert guard.score == pytest.approx(0.9)


async def test_the_store_is_asked_for_prices_only() -> None:
    asked: list[Sequence[RecordIdentity]] = []

    async def latest(identities: Sequence[RecordIdentity]) -> dict[RecordIdentity, str]:
        asked.append(identities)
        return dict.fromkeys(identities, '{"price":{"amount":"90","currency":"EUR"}}')

    inspector = Inspector("shop", TERMS, latest=latest)
    piped = await inspected(inspector, good(), {"url": "u", "text": "no price"})
    assert asked == [[("Product", "shop.example", "1")]]
    assert [one.rule for one in piped.inspection.faults] == ["price-jump"]
    assert (await inspected(inspector, {"url": "u"})).inspection.faults == ()
    assert len(asked) == 1


async def test_rules_of_ones_own_give_nothing_a_text_or_faults() -> None:
    def cheap(item: Any, page: Any) -> Any:
        return "too cheap" if item.price.amount < 5 else None

    def both(item: Any, page: Any) -> Any:
        yield Fault("sku", "short", f"{item.sku} is short")
        yield "odd"

    piped = await inspected(Inspector("shop", TERMS, rules=[cheap, both]), good())
    assert [(one.field, one.rule, one.message) for one in piped.inspection.faults] == [
        ("*", "cheap", "too cheap"),
        ("sku", "short", "1 is short"),
        ("*", "both", "odd"),
    ]


@pytest.mark.parametrize("given", [3.5, [b"x"], Fault("title", 7), Fault(None, "x")])  # type: ignore[arg-type]
async def test_a_rule_that_gives_something_else_fails_the_page(given: Any) -> None:
    with pytest.raises(ParseFailed, match=r"quality rule .* gave "):
        await inspected(Inspector("shop", TERMS, rules=[lambda item, page: given]), good())


@pytest.mark.parametrize("kind", [ZeroDivisionError, SystemExit])
async def test_a_rule_that_raises_fails_the_page_with_its_traceback(kind: type[BaseException]) -> None:
    def broken(item: Any, page: Any) -> None:
        raise kind("oops")

    with pytest.raises(ParseFailed, match=f"{kind.__name__}: oops") as failure:
        await inspected(Inspector("shop", TERMS, rules=[broken]), good())
    assert "in broken" in failure.value.detail


def test_the_guard_closes_below_the_minimum_and_opens_above_it() -> None:
    guard = QualityGuard("shop", 0.8, 50)
    assert guard.note(FEWEST - 1, 0) is None
    turns = [guard.note(0, 1) for _ in range(10)]
    closing = [turn for turn in turns if turn is not None]
    assert [turn.closed for turn in closing] == [True]
    assert guard.closed
    assert "dead replay --reason quality" in closing[0].message
    reopening = [turn for turn in (guard.note(1, 0) for _ in range(60)) if turn is not None]
    assert [turn.closed for turn in reopening] == [False]
    assert guard.score == 1.0


@pytest.mark.parametrize("window", [FEWEST, 50, 100])
def test_the_guard_judges_by_the_last_items_of_its_window(window: int) -> None:
    # given a window that is full of good items
    guard = QualityGuard("shop", 0.5, window)
    for _ in range(window):
        assert guard.note(1, 0) is None

    # when half of it is faulty, that is not yet too much; one more is
    assert [guard.note(0, 1) for _ in range(window // 2)] == [None] * (window // 2)
    assert guard.score == 0.5
    change = guard.note(0, 1)
    assert change is not None
    assert change.closed

    # and good items open it again when they are half of the window
    turns = [guard.note(1, 0) for _ in range(window)]
    assert [turn.closed for turn in turns if turn is not None] == [False]
    assert guard.score == 1.0


def test_the_guard_does_not_judge_by_a_handful() -> None:
    guard = QualityGuard("shop", 0.8, 50)
    assert guard.note(0, FEWEST - 1) is None
    assert not guard.closed
    assert guard.note(0, 1) is not None


def test_without_a_minimum_the_guard_stays_open() -> None:
    guard = QualityGuard("shop", None, 50)
    assert guard.note(0, 1000) is None
    assert not guard.closed


LONG = (
    "The quick brown fox jumps over the lazy dog near the old mill by the river while the miller sleeps in the sun " * 3
)


def test_a_text_that_is_nearly_the_same_is_dropped() -> None:
    step = NearDuplicates("text")
    assert step({"url": "a", "text": LONG}, None) == {"url": "a", "text": LONG}
    twin = step({"url": "b", "text": LONG.replace("lazy", "LAZY") + " indeed"}, None)
    assert isinstance(twin, Drop)
    assert "nearly the same as a" in twin.reason
    other = {
        "url": "c",
        "text": "An entirely different story about ships, storms and the keeper of a lighthouse " * 3,
    }
    assert step(other, None) == other


def test_the_same_item_seen_again_is_no_duplicate_of_itself() -> None:
    step = NearDuplicates("text")
    item = {"url": "a", "text": LONG}
    assert step(item, None) is item
    assert step(item, None) is item


def test_the_oldest_are_forgotten() -> None:
    step = NearDuplicates("text", remembers=1)
    step({"url": "a", "text": LONG}, None)
    step(
        {"url": "b", "text": "Something else altogether, with words that nobody has used here before today"},
        None,
    )
    assert not isinstance(step({"url": "c", "text": LONG}, None), Drop)


def test_a_guard_that_recalls_a_bad_run_is_closed() -> None:
    guard = QualityGuard("shop", 0.8, 50)
    guard.recall([(10, 0), (0, 15)])
    assert guard.closed
    assert guard.note(1, 0) is None

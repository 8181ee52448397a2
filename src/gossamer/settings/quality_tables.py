"""[quality], [expect], [heal]: what a good item and a good run are, and what follows when a layout has changed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

FEWEST_KNOWN = 5
HEAL_MODES = OFF, PROPOSE, AUTO = ("off", "propose", "auto")


class QualityTable(msgspec.Struct, frozen=True, kw_only=True):
    """Checks of what is stored. A spider's own `min_quality` takes precedence over `minimum`, its `on_fault` and that
    of an item's class over `on_fault`."""

    minimum: float | None = None  # share of faultless items below which nothing more is stored
    window: int = 50  # the last items that count
    on_fault: str = "store"  # what becomes of a faulty item: store, drop, fail
    usual: float | None = 0.95  # a field filled this often must not be empty
    price_jump: float | None = 5.0  # factor against the previous price, up or down
    price_ceiling: float | None = 10_000_000.0
    rating_max: float = 5.0


class Expect(msgspec.Struct, frozen=True, kw_only=True):
    """[expect]: what a run must reach for its outcome to be `done`. The value of a spider, recipe or schedule takes
    precedence."""

    min_records: int | None = None  # 0: it need not see any
    min_pages: int | None = None
    max_dead_share: float | None = None  # of its pages that may become dead letters
    max_change: float | None = None  # of the number of records since the last run; 0.5: halved, or half more


class HealTable(msgspec.Struct, frozen=True, kw_only=True):
    """What the leading scheduler does when pages of a recipe are not parsed any more: docs/healing.md."""

    mode: str = PROPOSE  # off; propose: learn and tell; auto: take sure rules into use
    known: int = 20  # auto: pages with known values that a change must have met
    money: tuple[str, ...] = ()  # auto: fields of money that may be healed unasked: "price", "shop.price"

    def may_heal_money(self, spider: str, field: str) -> bool:
        return field in self.money or f"{spider}.{field}" in self.money


def heal_faults(table: HealTable) -> Iterator[tuple[str, str]]:
    """What is wrong with it: the dotted key, and a sentence."""
    if table.mode not in HEAL_MODES:
        yield "heal.mode", f"must be one of {', '.join(HEAL_MODES)}."
    if table.known < FEWEST_KNOWN:
        yield "heal.known", f"must be {FEWEST_KNOWN} or more: fewer pages prove nothing."

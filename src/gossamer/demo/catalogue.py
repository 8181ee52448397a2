"""What the demo shop sells: a pure function of the revision number. No I/O, no randomness, no clock.

The same revision gives the same wares on every machine; a higher one is the same shop some weeks later, with some
prices changed and some shelves emptied or filled, so that a second crawl has a history to show.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from random import Random

import msgspec

PER_CATEGORY = 50
CURRENCY = "EUR"
OPENING_DAY = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
REVISION_LENGTH = timedelta(days=7)
MANY_NAMED = "TEX-014"  # the ware whose URL has parameters, so that it can be written in several ways


class StockState(StrEnum):
    """The shop's own words; JSON-LD puts `https://schema.org/` before them."""

    IN_STOCK = "InStock"
    OUT_OF_STOCK = "OutOfStock"
    PRE_ORDER = "PreOrder"


class Category(msgspec.Struct, frozen=True):
    slug: str
    name: str
    code: str
    blurb: str
    nouns: tuple[str, ...]
    materials: tuple[str, ...]
    cheapest: int  # whole euros
    dearest: int


class Review(msgspec.Struct, frozen=True):
    author: str
    stars: int
    text: str


class Ware(msgspec.Struct, frozen=True, kw_only=True):
    """One thing on sale. `price` None means "on request"; `rating` None means that it has no reviews yet.

    `options` is a query string that belongs to the URL of a ware sold in several forms.
    """

    sku: str
    slug: str
    name: str
    noun: str
    colour: str
    category: str
    brand: str
    price: Decimal | None
    old_price: Decimal | None
    availability: StockState
    rating: Decimal | None
    reviews: int
    voices: tuple[Review, ...]
    text: str
    updated: datetime
    seed: int
    options: str = ""

    @property
    def path(self) -> str:
        return f"/product/{self.slug}"

    @property
    def href(self) -> str:
        """The URL under which the shop itself links to this ware."""
        return f"{self.path}?{self.options}" if self.options else self.path


CATEGORIES = (
    Category(
        "lighting", "Lighting", "LIT", "Lamps that are kind to a room after dark.",
        ("Desk Lamp", "Pendant", "Lantern", "Night Light", "Floor Lamp"),
        ("Brass", "Opal Glass", "Paper", "Linen", "Steel"), 19, 340,
    ),
    Category(
        "ceramics", "Ceramics", "CER", "Thrown, glazed and fired one small batch at a time.",
        ("Vase", "Pitcher", "Bowl", "Teapot", "Candle Holder"),
        ("Stoneware", "Porcelain", "Terracotta", "Raku", "Celadon"), 12, 160,
    ),
    Category(
        "textiles", "Textiles", "TEX", "Woven, knitted and hemmed to be used every day.",
        ("Throw", "Cushion", "Table Runner", "Bath Towel", "Wool Rug"),
        ("Merino", "Linen", "Waffle", "Mohair", "Organic Cotton"), 9, 480,
    ),
    Category(
        "stationery", "Stationery", "STA", "For people who still think best on paper.",
        ("Notebook", "Week Planner", "Letter Set", "Sketchbook", "Card Box"),
        ("Clothbound", "Kraft", "Dotted", "Laid Paper", "Marbled"), 4, 45,
    ),
    Category(
        "kitchen", "Kitchen", "KIT", "Tools that earn their place on the worktop.",
        ("Coffee Pot", "Saucepan", "Chopping Board", "Pepper Mill", "Storage Jar"),
        ("Enamel", "Walnut", "Copper", "Cast Iron", "Beech"), 8, 260,
    ),
    Category(
        "garden", "Garden", "GAR", "For balconies, window sills and very small jungles.",
        ("Planter", "Watering Can", "Herb Pot", "Hand Trowel", "Bird Bath"),
        ("Zinc", "Glazed", "Oak", "Galvanised", "Clay"), 7, 190,
    ),
)  # fmt: skip

COLOURS = ("Moss", "Ochre", "Chalk", "Indigo", "Rust", "Sage", "Plum", "Slate", "Saffron", "Fern")
BRANDS = ("Orbweave", "Nordlicht", "Tilde & Daughters", "Kiln Nine", "Fieldmouse", "Halden", "Atelier Spindle")
OPENINGS = (
    "Made in small numbers by people who sign their work.",
    "A quiet piece that does one thing and does it well.",
    "Our most asked-for shape, back in a new finish.",
    "Drawn in a notebook, tried for a year at home, then put on sale.",
    "It ages the way good things do: slowly, and for the better.",
)
CLOSINGS = (
    "Wipe with a damp cloth and it will outlive the fashion.",
    "Packed without plastic and sent within two days.",
    "Every one differs a little; that is how you know.",
    "Spare parts can be had for as long as we are here.",
)
AUTHORS = ("Ines", "Jonas", "Maud", "Priya", "Oskar", "Wen", "Tomás", "Freya")
VOICES = (
    "Exactly as shown, and heavier than I thought.",
    "A present for my sister. I kept it.",
    "The colour is warmer than in the picture.",
    "Well made. The box was a little bruised.",
    "Bought a second one within the week.",
    "Smaller than expected, but lovely.",
)


class Catalogue:
    """All wares of one revision: the shop's 300, and the outlet's few. Immutable."""

    def __init__(self, revision: int = 1) -> None:
        if revision < 1:
            raise ValueError(f"revision is {revision}; the first one is 1")
        self.revision = revision
        self.wares = tuple(_ware(category, n, revision) for category in CATEGORIES for n in range(PER_CATEGORY))
        self.outlet = tuple(_last_piece(n) for n in range(4))
        self._by_slug = {ware.slug: ware for ware in (*self.wares, *self.outlet)}
        self._shelves = {
            category.slug: tuple(ware for ware in self.wares if ware.category == category.slug)
            for category in CATEGORIES
        }

    def find(self, slug: str) -> Ware | None:
        return self._by_slug.get(slug)

    def of(self, category: Category) -> tuple[Ware, ...]:
        return self._shelves[category.slug]

    def beside(self, ware: Ware) -> tuple[Ware, ...]:
        """Wares of the same category to show below this one, the same ones each time."""
        shelf = self._shelves[ware.category]
        place = shelf.index(ware)
        return tuple(shelf[(place + 1 + ware.seed % 7 + 9 * n) % len(shelf)] for n in range(4))


def category_of(slug: str) -> Category | None:
    return next((category for category in CATEGORIES if category.slug == slug), None)


def newest(wares: Iterable[Ware]) -> datetime:
    """When a page that shows these wares last changed."""
    return max((ware.updated for ware in wares), default=OPENING_DAY)


def _ware(category: Category, n: int, revision: int) -> Ware:
    sku = f"{category.code}-{n + 1:03}"
    chance = Random(sku)  # a string seed gives the same sequence in every process, unlike hash()
    # Going through the three word lists at different speeds gives 50 different names per category.
    noun, material = category.nouns[n % 5], category.materials[(n // 5) % 5]
    colour = COLOURS[(n // 25 * 5 + n * 3 + n // 5) % 10]
    name = f"{colour} {material} {noun}"
    price: Decimal | None = _price(chance, category.cheapest, category.dearest)
    old_price = _cents(price * Decimal("1.25")) if price and chance.random() < 0.15 else None
    availability = chance.choices(tuple(StockState), weights=(88, 9, 3))[0]
    if n == 37:
        price, old_price = None, None
    reviews = 0 if n % 17 == 11 else chance.randint(1, 260)
    voices = tuple(
        Review(author, chance.choice((3, 4, 4, 5, 5)), text)
        for author, text in zip(chance.sample(AUTHORS, 3), chance.sample(VOICES, 3), strict=True)
    )
    text = f"{chance.choice(OPENINGS)} {material} in {colour.lower()}. {chance.choice(CLOSINGS)}"
    rating = Decimal(chance.randint(32, 50)).scaleb(-1) if reviews else None
    brand = chance.choice(BRANDS)
    price, old_price, availability, updated = _drift(sku, price, old_price, availability, revision)
    return Ware(
        sku=sku, slug=f"{_slug(name)}-{sku.lower()}", name=name, noun=noun, colour=colour, category=category.slug,
        brand=brand, price=price, old_price=old_price, availability=availability, rating=rating, reviews=reviews,
        voices=voices if reviews else (), text=text, updated=updated, seed=chance.randrange(1 << 30),
        options="finish=washed&size=large" if sku == MANY_NAMED else "",
    )  # fmt: skip


def _drift(
    sku: str, price: Decimal | None, old_price: Decimal | None, availability: StockState, revision: int
) -> tuple[Decimal | None, Decimal | None, StockState, datetime]:
    """What later revisions changed about a ware: each time about one price in eight and one shelf in twenty."""
    updated = OPENING_DAY + timedelta(minutes=Random(f"{sku}/listed").randrange(60 * 24))
    for step in range(2, revision + 1):
        chance = Random(f"{sku}/{step}")
        changed = False
        if price is not None and chance.random() < 0.125:
            factor = Decimal(chance.choice(("0.80", "0.90", "0.95", "1.05", "1.10")))
            old_price, price, changed = (price if factor < 1 else None), _cents(price * factor), True
        if chance.random() < 0.05:
            full = availability is not StockState.IN_STOCK
            availability = StockState.IN_STOCK if full else StockState.OUT_OF_STOCK
            changed = True
        if changed:
            updated = OPENING_DAY + (step - 1) * REVISION_LENGTH
    return price, old_price, availability, updated


def _last_piece(n: int) -> Ware:
    """Outlet wares never change: the second host stays the same while the shop moves on."""
    sku = f"OUT-{n + 1:03}"
    category = CATEGORIES[n]
    chance = Random(sku)
    name = f"Last Piece {category.materials[n]} {category.nouns[n]}"
    price = _price(chance, category.cheapest, category.dearest // 2)
    return Ware(
        sku=sku, slug=f"{_slug(name)}-{sku.lower()}", name=name, noun=category.nouns[n], colour=COLOURS[n],
        category=category.slug, brand=BRANDS[n], price=price, old_price=_cents(price * 2),
        availability=StockState.IN_STOCK, rating=None, reviews=0, voices=(), updated=OPENING_DAY,
        text="One left, with a small flaw that you will have to look for.", seed=chance.randrange(1 << 30),
    )  # fmt: skip


def _price(chance: Random, cheapest: int, dearest: int) -> Decimal:
    # Squaring the draw makes cheap things common and dear ones rare, as in a real shop.
    euros = cheapest + int((dearest - cheapest) * chance.random() ** 2)
    return Decimal(euros) + Decimal(chance.choice(("0.00", "0.50", "0.90", "0.95")))


def _cents(amount: Decimal) -> Decimal:
    return amount.quantize(Decimal("0.01"))


def _slug(name: str) -> str:
    return name.lower().replace(" & ", "-").replace(" ", "-")

"""A recipe as values: reader.py builds them from the text, spider.py executes them. No I/O, no pages.

    Recipe -> PageKind -> Follow, Numbering   which links to follow
                       -> Field               what to extract: sources in order, transforms, a type

The end of the file lists the values of the product and article parsers, and the fields that `auto` makes from them.
"""

from __future__ import annotations

import re
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from ..model.outcome import Expectations
from ..model.task import MAX_ATTEMPTS, MAX_PRIORITY
from ..parse.css import CssQuery
from .table import Count, CountOrZero, Flag, Text, Texts

Priority = Annotated[
    int,
    msgspec.Meta(
        ge=-MAX_PRIORITY,
        le=MAX_PRIORITY,
        description=f"a whole number, between {-MAX_PRIORITY:,} and {MAX_PRIORITY:,}",
    ),
]


class FieldType(StrEnum):
    TEXT = "text"
    INT = "int"
    DECIMAL = "decimal"
    FLOAT = "float"
    MONEY = "money"
    DATE = "date"  # a moment, with its zone
    DAY = "day"  # a calendar day
    URL = "url"
    BOOL = "bool"
    LIST = "list"
    HTML = "html"
    MARKDOWN = "markdown"


class SourceKind(StrEnum):
    """Where a value comes from. A regex alone searches the whole source text."""

    CSS = "css"
    XPATH = "xpath"
    LABEL = "label"
    JSON = "json"
    REGEX = "regex"
    STRUCTURED = "structured"
    PRODUCT = "product"
    ARTICLE = "article"
    CONSTANT = "constant"
    URL = "url"
    DATA = "data"


class RecipeSource(msgspec.Struct, frozen=True, kw_only=True):
    """One place to look for a value. `css` or `xpath` find elements, `label` what stands beside its words (within
    `css`, if that is there); `json` is a path into JSON: in these elements, after the text `after`, or of the whole
    page. `after` and `before` cut the found text at constant words, `regex` extracts a part of the values found so
    far."""

    kind: SourceKind
    css: CssQuery | None = None
    xpath: str | None = None
    json: Any = None  # a compiled JSONPath; the library is imported only if one is used
    json_text: str = ""
    label: str = ""
    cents: CssQuery | None = None  # where the digits behind the decimal point of a split price stand
    after: str = ""
    before: str = ""
    regex: re.Pattern[str] | None = None
    name: str = ""  # of a structured, product, article, url or data value
    constant: Any = None  # any TOML or YAML value
    options: TypeOptions | None = None  # how its texts are read, if it is not the way of the field

    def __str__(self) -> str:
        words = []
        if self.css is not None:
            words.append(f"css {self.css.selector}")
        if self.xpath is not None:
            words.append(f"xpath {self.xpath}")
        if self.label:
            words.append(f"label {self.label!r}")
        if self.cents is not None:
            words.append(f"cents {self.cents.selector}")
        if self.after:
            words.append(f"after {self.after!r}")
        if self.before:
            words.append(f"before {self.before!r}")
        if self.json is not None:
            words.append(f"json {self.json_text}")
        if self.kind is SourceKind.CONSTANT:
            words.append(f"constant {self.constant!r}")
        elif self.name:
            words.append(f"{self.kind} {self.name}")
        if self.regex is not None:
            words.append(f"regex {self.regex.pattern}")
        return ", ".join(words)


class Transform(msgspec.Struct, frozen=True, kw_only=True):
    """A step between the raw value and its type. The meaning of `pattern`, `text` and `number` depends on the step."""

    name: str
    pattern: re.Pattern[str] | None = None
    text: str = ""
    number: int = 0


class TypeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How texts become values of a type: the options of a field that concern only its type."""

    type: FieldType = FieldType.TEXT
    of: FieldType | None = None  # of the entries of a list
    currency: str | None = None
    decimal: str = "."
    zone: str | None = None
    formats: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    true: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    nth: int = 1  # of the numbers or prices in the text
    scale: Decimal | None = None  # what the number is multiplied with
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()  # value -> what the page says for it

    @property
    def single(self) -> FieldType:
        """The type of one value."""
        return (self.of or FieldType.TEXT) if self.type is FieldType.LIST else self.type


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of an item. With `fields` it is an object, with `each` a list of them."""

    name: str
    sources: tuple[RecipeSource, ...] = ()
    options: TypeOptions = TypeOptions()
    required: bool = False
    default: Any = None  # a value of the field's type
    transforms: tuple[Transform, ...] = ()
    fields: tuple[Field, ...] = ()
    each: RecipeSource | None = None
    within: RecipeSource | None = None

    @property
    def many(self) -> bool:
        return self.each is not None if self.fields else self.options.type is FieldType.LIST

    def rule(self) -> str:
        """The sources in words, for messages."""
        if self.fields:
            part = self.each or self.within
            return f"{'each' if self.each else 'within'} {part}" if part is not None else "fields"
        return " | ".join(str(source) for source in self.sources)


def type_name(name: str) -> str:
    """The name of a class for a page kind, a field or a spider: `book_shop` and `book-shop` are BookShop."""
    return "".join(word[:1].upper() + word[1:] for word in name.replace("-", "_").split("_"))


class PathPattern(msgspec.Struct, frozen=True):
    """A pattern as in robots.txt: `*` matches anything, a final `$` the end."""

    text: str

    def fits(self, path: str) -> bool:
        """Does the pattern match the path? Each piece is searched once, after the previous one: linear time."""
        pieces = self.text.removesuffix("$").split("*")
        if not path.startswith(pieces[0]):
            return False
        at = len(pieces[0])
        last = pieces.pop() if self.text.endswith("$") and len(pieces) > 1 else None
        for piece in pieces[1:]:
            found = path.find(piece, at)
            if found < 0:
                return False
            at = found + len(piece)
        if last is not None:
            return path.endswith(last) and len(path) - len(last) >= at
        return at == len(path) or not self.text.endswith("$")


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """Which addresses are admitted: patterns matched against path and query."""

    include: tuple[PathPattern, ...] = ()
    exclude: tuple[PathPattern, ...] = ()

    def admit(self, path: str) -> bool:
        if self.include and not any(pattern.fits(path) for pattern in self.include):
            return False
        return not any(pattern.fits(path) for pattern in self.exclude)


class RecipeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent besides the address, with placeholders for values and secrets (links.py)."""

    method: str = "GET"
    headers: dict[str, str] | None = None
    form: Any = None  # as in a Request
    json: Any = None  # any JSON
    body: str | None = None
    retry_unsafe: bool | None = None


class Follow(msgspec.Struct, frozen=True, kw_only=True):
    """Links to follow, and the kind of page that they lead to. Without a source: the page's own address, requested
    again with another request."""

    source: RecipeSource | None
    to: str
    request: RecipeRequest | None = None
    priority: Priority | None = None
    paths: Paths = Paths()
    route: str | None = None
    data: tuple[Field, ...] = ()


class Numbering(msgspec.Struct, frozen=True, kw_only=True):
    """Pages that differ in a number in their address. `pages` or `total` counts them; else the count is detected."""

    parameter: Text
    first: CountOrZero = 1
    step: Count = 1
    pages: Field | None = None
    total: Field | None = None
    per_page: Count = 1
    max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000, description="a whole number, between 1 and 1,000,000")] = (
        10_000
    )
    priority: Priority | None = None
    request: RecipeRequest | None = None  # the number is in the request, not in the address


class PageKind(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with one kind of page."""

    name: str
    follow: tuple[Follow, ...] = ()
    next: Follow | None = None
    numbering: Numbering | None = None
    item: str = ""  # the type of its records; "" if it gives none
    key: tuple[str, ...] = ()
    each: RecipeSource | None = None
    within: RecipeSource | None = None
    allow_empty: bool = False
    fields: tuple[Field, ...] = ()


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """`[scope]`: which addresses belong to the crawl."""

    domains: Texts | None = None
    include: Texts = ()
    exclude: Texts = ()
    depth: CountOrZero | None = None
    limit: Count | None = None


class Politeness(msgspec.Struct, frozen=True, kw_only=True):
    """`[politeness]`: how the sites are asked."""

    rate: Text | None = None
    burst: Count | None = None
    site_concurrency: Count | None = None
    concurrency: Count | None = None  # another name of site_concurrency
    robots: Flag | None = None
    attempts: (
        Annotated[
            int, msgspec.Meta(ge=1, le=MAX_ATTEMPTS, description=f"a whole number, between 1 and {MAX_ATTEMPTS:,}")
        ]
        | None
    ) = None
    route: Text | None = None
    proxy_pool: Text | None = None
    statuses: Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=100, le=599)], ...],
        msgspec.Meta(description="a list of statuses like [404, 410]"),
    ] = ()


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """`[quality]`: the share of complete items below which a run counts as bad."""

    minimum: Annotated[float, msgspec.Meta(gt=0, le=1, description="a share between 0 and 1, as 0.8")] | None = None


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """A spider without code. If a value is None, the settings decide."""

    name: str
    file: str
    text: str
    summary: str = ""
    start: tuple[str, ...]
    start_requests: tuple[RecipeRequest | None, ...] = ()  # one for each of `start`
    headers: dict[str, str] = {}
    start_kind: str
    kinds: dict[str, PageKind]
    scope: Scope = Scope()
    paths: Paths = Paths()  # include and exclude of the scope
    politeness: Politeness = Politeness()
    quality: Quality = Quality()
    expected: Expectations = Expectations()


_TEXTS, _URLS = (FieldType.LIST, FieldType.TEXT), (FieldType.LIST, FieldType.URL)

# Name of the value -> its type; for a list, also that of its entries.
PRODUCT: dict[str, FieldType | tuple[FieldType, FieldType]] = {
    "title": FieldType.TEXT,
    "price": FieldType.MONEY,
    "regular_price": FieldType.MONEY,
    "currency": FieldType.TEXT,
    "availability": FieldType.TEXT,
    "rating": FieldType.FLOAT,
    "review_count": FieldType.INT,
    "brand": FieldType.TEXT,
    "sku": FieldType.TEXT,
    "gtin": FieldType.TEXT,
    "mpn": FieldType.TEXT,
    "description": FieldType.TEXT,
    "images": _URLS,
    "breadcrumbs": _TEXTS,
}
ARTICLE: dict[str, FieldType | tuple[FieldType, FieldType]] = {
    "title": FieldType.TEXT,
    "text": FieldType.TEXT,
    "markdown": FieldType.MARKDOWN,
    "authors": _TEXTS,
    "published": FieldType.DATE,
    "modified": FieldType.DATE,
    "language": FieldType.TEXT,
    "site_name": FieldType.TEXT,
    "description": FieldType.TEXT,
    "image": FieldType.URL,
    "words": FieldType.INT,
}
READY = {SourceKind.PRODUCT.value: PRODUCT, SourceKind.ARTICLE.value: ARTICLE}
_REQUIRED = ("title",)
_LEFT_OUT = {"product": ("currency",), "article": ("markdown",)}  # already covered by another field


def auto_fields(parser: str) -> tuple[Field, ...]:
    """A field for every value of the parser; the title is required."""
    fields = []
    for name, kind in READY[parser].items():
        if name in _LEFT_OUT[parser]:
            continue
        source = RecipeSource(kind=SourceKind(parser), name=name)
        options = TypeOptions(type=kind[0], of=kind[1]) if isinstance(kind, tuple) else TypeOptions(type=kind)
        fields.append(Field(name=name, sources=(source,), options=options, required=name in _REQUIRED))
    return tuple(fields)

"""A recipe as values: what reading.py makes of the text, and what spider.py follows. No I/O, no page in sight.

Recipe -> PageKind -> Follow, Next    where to go
                   -> Field           what to take: sources in order, transforms, a type
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

import msgspec

from ..css import CssQuery


class FieldType(StrEnum):
    TEXT = "text"
    INT = "int"
    DECIMAL = "decimal"
    FLOAT = "float"
    MONEY = "money"
    DATE = "date"  # a moment, with its zone
    DAY = "day"  # a day of the calendar
    URL = "url"
    BOOL = "bool"
    LIST = "list"
    HTML = "html"
    MARKDOWN = "markdown"


class SourceKind(StrEnum):
    """Where a value comes from. A regex alone searches the whole source text."""

    CSS = "css"
    XPATH = "xpath"
    JSON = "json"
    REGEX = "regex"
    STRUCTURED = "structured"
    PRODUCT = "product"
    ARTICLE = "article"
    CONSTANT = "constant"
    URL = "url"
    DATA = "data"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One place to look. Elements are found by `css` or `xpath`; `json` looks into the JSON that stands there, or
    after the text `after`, or is the page; `regex` cuts a part out of what was found so far."""

    kind: SourceKind
    css: CssQuery | None = None
    xpath: str | None = None
    json: Any = None  # a compiled JSONPath; the library is imported only where one is used
    json_text: str = ""
    after: str = ""
    regex: re.Pattern[str] | None = None
    name: str = ""  # of a structured, product, article, url or data value
    constant: Any = None  # whatever the recipe says

    def __str__(self) -> str:
        words = []
        if self.css is not None:
            words.append(f"css {self.css.selector}")
        if self.xpath is not None:
            words.append(f"xpath {self.xpath}")
        if self.after:
            words.append(f"after {self.after!r}")
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
    """A step between what was found and its type. `pattern`, `text` and `number` mean what the step's name says."""

    name: str
    pattern: re.Pattern[str] | None = None
    text: str = ""
    number: int = 0


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How texts become values of a type: the options of a field that concern its type alone."""

    type: FieldType = FieldType.TEXT
    of: FieldType | None = None  # of the entries of a list
    currency: str | None = None
    decimal: str = "."
    zone: str | None = None
    formats: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    true: tuple[str, ...] = ()
    false: tuple[str, ...] = ()

    @property
    def single(self) -> FieldType:
        """The type of one value."""
        return (self.of or FieldType.TEXT) if self.type is FieldType.LIST else self.type


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of an item. With `fields` it is an object, with `each` a list of them."""

    name: str
    sources: tuple[Source, ...] = ()
    reading: Reading = Reading()
    required: bool = False
    default: Any = None  # a value of the field's type
    transforms: tuple[Transform, ...] = ()
    fields: tuple[Field, ...] = ()
    each: Source | None = None
    within: Source | None = None

    @property
    def many(self) -> bool:
        return self.each is not None if self.fields else self.reading.type is FieldType.LIST

    def rule(self) -> str:
        """The sources as a person would say them."""
        if self.fields:
            place = self.each or self.within
            return f"{'each' if self.each else 'within'} {place}" if place is not None else "fields"
        return " | ".join(str(source) for source in self.sources)


class PathPattern(msgspec.Struct, frozen=True):
    """A pattern as robots.txt has them: `*` stands for anything, `$` at the end for the end."""

    text: str

    def fits(self, path: str) -> bool:
        """Each piece is looked for once, behind the one before: the time is that of reading the path."""
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
    """Which addresses: patterns that are compared with path and query."""

    include: tuple[PathPattern, ...] = ()
    exclude: tuple[PathPattern, ...] = ()

    def admit(self, path: str) -> bool:
        if self.include and not any(pattern.fits(path) for pattern in self.include):
            return False
        return not any(pattern.fits(path) for pattern in self.exclude)


class Follow(msgspec.Struct, frozen=True, kw_only=True):
    """Links to go after, and what the pages behind them are."""

    source: Source
    to: str
    priority: int | None = None
    paths: Paths = Paths()
    route: str | None = None
    data: tuple[Field, ...] = ()


class Numbering(msgspec.Struct, frozen=True, kw_only=True):
    """Pages that differ in a number in their address. `pages` or `total` says how many; neither: it is detected."""

    parameter: str
    first: int = 1
    step: int = 1
    pages: Field | None = None
    total: Field | None = None
    per_page: int = 1
    max: int = 10_000
    priority: int | None = None


class PageKind(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with one kind of page."""

    name: str
    follow: tuple[Follow, ...] = ()
    next: Follow | None = None
    numbering: Numbering | None = None
    item: str = ""  # the type of its records; "" when it gives none
    key: tuple[str, ...] = ()
    each: Source | None = None
    within: Source | None = None
    allow_empty: bool = False
    fields: tuple[Field, ...] = ()


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """A spider without code. What is None is left to the settings."""

    name: str
    file: str
    text: str
    summary: str = ""
    start: tuple[str, ...]
    start_kind: str
    kinds: dict[str, PageKind]
    domains: tuple[str, ...] | None = None
    paths: Paths = Paths()
    depth: int | None = None
    limit: int | None = None
    rate: str | None = None
    burst: int | None = None
    concurrency: int | None = None
    robots: bool | None = None
    attempts: int | None = None
    route: str | None = None
    proxy_pool: str | None = None
    statuses: tuple[int, ...] = ()
    minimum: float | None = None

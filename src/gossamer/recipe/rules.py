"""Reads the fields of a recipe (sources, types, options and defaults) and its path patterns. Every selector, regex and
path is compiled here, once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from typing import Any

import msgspec

from ..errors import MissingExtra
from ..extract.dates import check_spelling, zone_of
from ..parse.css import BadSelector, compile_css
from ..parse.selectors import Selector
from .model import ARTICLE, PRODUCT, Field, FieldType, PathPattern, Paths, RecipeSource, SourceKind, TypeOptions
from .table import Count, Flag, RecipeTable, Text, suggestion
from .transforms import DECIMAL_SIGNS, read_transforms
from .values import UnreadableValue, fold, taken_as_is, type_phrase, value_of

_READING_KEYS = (
    "currency",
    "decimal",
    "zone",
    "format",
    "languages",
    "true",
    "false",
    "nth",
    "scale",
    "words",
)  # of a field, or of one of its sources
_TYPE_KEYS = ("type", "of", *_READING_KEYS)
_TYPES = tuple(kind.value for kind in FieldType)
# The types that an option applies to; on others it would have no effect, so it is a fault.
_OPTION_TYPES = {
    "currency": (FieldType.MONEY,),
    "decimal": (FieldType.INT, FieldType.DECIMAL, FieldType.FLOAT),
    "zone": (FieldType.DATE, FieldType.DAY),
    "format": (FieldType.DATE, FieldType.DAY),
    "languages": (FieldType.DATE, FieldType.DAY),
    "true": (FieldType.BOOL,),
    "false": (FieldType.BOOL,),
    "nth": (FieldType.INT, FieldType.DECIMAL, FieldType.FLOAT, FieldType.MONEY),
    "scale": (FieldType.INT, FieldType.DECIMAL, FieldType.FLOAT, FieldType.MONEY),
    "words": (FieldType.TEXT,),
}
_SOURCE_KEYS = tuple(kind.value for kind in SourceKind)
_EXTRA_SOURCE_KEYS = ("after", "before", "cents")
_CUT_KINDS = (SourceKind.CSS, SourceKind.XPATH, SourceKind.LABEL, SourceKind.STRUCTURED)
_NOT_TOGETHER = ("css", "xpath", "label", "structured", "product", "article", "constant", "url", "data")
_FIELD_KEYS = ("sources", "required", "default", "transforms", "fields", "each", "within", *_TYPE_KEYS)
_PLACE_KINDS = (SourceKind.CSS, SourceKind.XPATH, SourceKind.JSON)
_FIELD_NAME = re.compile(r"[^\W\d_]\w*")
_URL_WORDS = ("page", "requested")
_DEEPEST = 5  # objects in objects
_MOST_STARS = 8  # in a path pattern


def read_fields(table: RecipeTable, *, in_json: bool = False, depth: int = 0) -> tuple[Field, ...]:
    """The fields of a table, in order."""
    fields = [read_field(table, name, in_json=in_json, depth=depth) for name in table.values]
    return tuple(field for field in fields if field is not None)


def read_field(owner: RecipeTable, name: str, *, in_json: bool = False, depth: int = 0) -> Field | None:
    """One field: a table, a text (a CSS selector), or a list of sources."""
    if not _FIELD_NAME.fullmatch(name):
        owner.fault(
            f"{owner.spelled(name)} cannot be a field's name. Use letters, digits and _, as in list_price.", name
        )
        return None
    value = owner.values[name]
    if isinstance(value, str):
        short = owner.seen_as({"css": value})
        source = read_source(short, in_json=in_json, steps=(name,))
        return Field(name=name, sources=(source,)) if source is not None else None
    if isinstance(value, list):
        sources = _read_sources(owner, name, TypeOptions(), in_json=in_json)
        return Field(name=name, sources=sources) if sources else None
    if not isinstance(value, dict):
        owner.wrong("a table like { css = 'h1', type = 'text' }, or a CSS selector", name)
        return None
    table = owner.inner(name)
    table.only((*_SOURCE_KEYS, *_EXTRA_SOURCE_KEYS, *_FIELD_KEYS))
    if "fields" in table:
        return _read_object(table, name, in_json=in_json, depth=depth)
    for misplaced in ("each", "within"):
        if misplaced in table:
            table.fault(
                f"{table.spelled(misplaced)} needs `fields` beside it: what each of them consists of.", misplaced
            )
    options = read_options(table)
    return Field(
        name=name,
        sources=_field_sources(table, options, in_json=in_json),
        options=options,
        required=table.value("required", Flag) or False,
        default=read_default(table, options),
        transforms=read_transforms(table),
    )


def _read_object(table: RecipeTable, name: str, *, in_json: bool, depth: int) -> Field | None:
    for key in table.values:
        if key not in ("fields", "each", "within", "required"):
            table.fault(
                f"{table.spelled(key)} cannot be used with `fields`: an object has each, within and required.", key
            )
    if depth >= _DEEPEST:
        table.fault(f"{table.spelled()} is nested deeper than {_DEEPEST} objects.", "fields")
        return None
    each, within = read_place(table, "each", in_json=in_json), read_place(table, "within", in_json=in_json)
    if each is not None and within is not None:
        table.fault(f"{table.spelled()} has `each` and `within`; choose one.", "within")
    inside = each or within
    into_json = in_json if inside is None else inside.json is not None
    fields = read_fields(table.inner("fields"), in_json=into_json, depth=depth + 1)
    if not fields and not table.inner("fields").values:
        table.fault(f"{table.spelled('fields')} is empty.", "fields")
    return Field(name=name, fields=fields, each=each, within=within, required=table.value("required", Flag) or False)


def read_place(table: RecipeTable, key: str, *, in_json: bool = False) -> RecipeSource | None:
    """A part of the page: a CSS selector, or a table with css, xpath or json."""
    value = table.values.get(key)
    if value is None:
        return None
    if isinstance(value, str):
        source = read_source(table.seen_as({"css": value}), in_json=in_json, steps=(key,))
    elif isinstance(value, dict):
        inner = table.inner(key)
        inner.only(("css", "xpath", "json", "after"))
        source = read_source(inner, in_json=in_json)
    else:
        table.wrong("a CSS selector, or a table with css, xpath or json", key)
        return None
    if source is not None and source.kind not in _PLACE_KINDS:
        table.fault(f"{table.spelled(key)} needs css, xpath or json.", key)
        return None
    return source


def _field_sources(table: RecipeTable, options: TypeOptions, *, in_json: bool) -> tuple[RecipeSource, ...]:
    given = [key for key in _SOURCE_KEYS if key in table]
    if "sources" in table:
        if given:
            table.fault(f"{table.spelled(given[0])} stands beside `sources`; put it into that list.", given[0])
        return _read_sources(table, "sources", options, in_json=in_json)
    if not given:
        table.fault(f"{table.spelled()} has no source.{suggestion('', _SOURCE_KEYS)}")
        return ()
    # `css = ["a", "b"]` is two sources.
    first = given[0]
    values = table.values[first]
    if isinstance(values, list) and first != SourceKind.CONSTANT:
        others = {key: table.values[key] for key in (*given[1:], *_EXTRA_SOURCE_KEYS) if key in table}
        found = [
            read_source(table.seen_as({first: entry, **others}), in_json=in_json, steps=(first, index))
            for index, entry in enumerate(values)
        ]
        if not values:
            table.wrong("a text or a list of texts", first)
        return tuple(source for source in found if source is not None)
    source = read_source(table, in_json=in_json)
    return (source,) if source is not None else ()


def _read_sources(owner: RecipeTable, name: str, options: TypeOptions, *, in_json: bool) -> tuple[RecipeSource, ...]:
    entries = owner.values[name]
    if not isinstance(entries, list) or not entries:
        owner.wrong("a list of sources, each like { css = 'h1' }", name)
        return ()
    sources = []
    for index, entry in enumerate(entries):
        if isinstance(entry, str):
            sources.append(read_source(owner.seen_as({"css": entry}), in_json=in_json, steps=(name, index)))
        elif isinstance(entry, dict):
            table = owner.at(name, index)
            table.only((*_SOURCE_KEYS, *_EXTRA_SOURCE_KEYS, *_READING_KEYS))
            source = read_source(table, in_json=in_json)
            if source is not None and any(key in table for key in _READING_KEYS):
                source = msgspec.structs.replace(source, options=_read_own(table, options))
            sources.append(source)
        else:
            owner.fault(
                f"{owner.spelled(name, index)} should be a CSS selector or a table like {{ css = 'h1' }}.",
                name,
                index,
            )
    return tuple(source for source in sources if source is not None)


def read_source(table: RecipeTable, *, in_json: bool = False, steps: Sequence[str | int] = ()) -> RecipeSource | None:
    """The single source in a table. `steps` is the path of a short form's value."""
    given = [key for key in _SOURCE_KEYS if key in table]
    rivals = [key for key in given if key in _NOT_TOGETHER]

    def steps_to(key: str) -> tuple[str | int, ...]:
        return tuple(steps) or (key,)

    if not given:
        table.fault(f"{table.spelled(*steps)} has no source.{suggestion('', _SOURCE_KEYS)}", *steps)
        return None
    if rivals == ["css", "label"]:
        rivals = ["label"]  # beside the words within these elements
    if len(rivals) > 1 or (rivals and rivals[0] not in ("css", "xpath") and "json" in given):
        others = f"{given[0]} and {given[1]}"
        table.fault(
            f"{table.spelled()} has {others}; write sources = [{{ ... }}, {{ ... }}] for one or the other.",
            given[1],
        )
        return None
    kind = SourceKind(rivals[0] if rivals else "json" if "json" in given else "regex")
    if in_json and kind in (SourceKind.CSS, SourceKind.XPATH):
        table.fault(f"{table.spelled(*steps_to(kind))}: there are no elements inside JSON; use json.", *steps_to(kind))
        return None
    for cut in ("after", "before"):
        is_mark = cut == "after" and kind is SourceKind.JSON  # where the JSON begins
        if cut in table and not is_mark and (kind not in _CUT_KINDS or "json" in given):
            table.fault(
                f"{table.spelled(cut)} goes with json alone (the JSON that begins after this text), or with css, xpath,"
                " label or structured (the part of the text between these words).",
                cut,
            )
            return None
    if "cents" in table and (kind is not SourceKind.CSS or "json" in given):
        table.fault(f"{table.spelled('cents')} goes with css: it is where the cents of a split price stand.", "cents")
        return None
    if kind is SourceKind.CONSTANT:
        return _constant(table)
    extras = [key for key in _EXTRA_SOURCE_KEYS if key in table]
    texts = {key: _given_text(table, key, steps_to(key)) for key in (*given, *extras)}
    if any(text is None for text in texts.values()):
        return None
    try:
        return RecipeSource(
            kind=kind,
            css=compile_css(texts["css"] or "") if "css" in texts else None,
            xpath=_checked_xpath(texts["xpath"] or "") if "xpath" in texts else None,
            json=_json_path(texts["json"] or "") if "json" in texts else None,
            json_text=texts.get("json") or "",
            label=texts.get("label") or "",
            cents=compile_css(texts["cents"] or "") if "cents" in texts else None,
            after=texts.get("after") or "",
            before=texts.get("before") or "",
            regex=_regex(texts["regex"] or "") if "regex" in texts else None,
            name=_checked_name(kind, texts.get(kind.value) or ""),
        )
    except BadSelector as error:
        table.fault(f"{table.spelled(*steps_to(kind))}: {error}", *steps_to(kind))
    except _BadRule as error:
        table.fault(f"{table.spelled(*steps_to(error.key))}: {error}", *steps_to(error.key))
    return None


class _BadRule(Exception):
    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def _given_text(table: RecipeTable, key: str, steps: tuple[str | int, ...]) -> str | None:
    value = table.values[key]
    if isinstance(value, str) and value.strip():
        return value
    shown = "an empty text" if value == "" else f"{value!r:.60}"
    table.fault(f"{table.spelled(*steps)} should be a text in quotes, and is {shown}.", *steps)
    return None


def _constant(table: RecipeTable) -> RecipeSource | None:
    value = table.values["constant"]
    entries = value if isinstance(value, list) else [value]
    if not all(isinstance(entry, str | int | float | bool) for entry in entries):
        table.wrong("a text, a number, true, false, or a list of them", "constant")
        return None
    return RecipeSource(kind=SourceKind.CONSTANT, constant=value)


def _checked_xpath(expression: str) -> str:
    Selector.of("<p></p>").xpath(expression)  # compiles it, and finds functions and variables that do not exist
    return expression


@lru_cache(maxsize=1)
def _json_environment() -> Any:
    try:
        jsonpath: Any = import_module("jsonpath")  # Any: imported only if a recipe has a JSON path
    except ImportError as error:
        raise MissingExtra("json in recipes needs the package python-jsonpath: pip install python-jsonpath.") from error
    return jsonpath.JSONPathEnvironment(strict=True)


def _json_path(text: str) -> Any:
    environment = _json_environment()
    try:
        return environment.compile(text)
    except (ValueError, RecursionError) as error:
        raise _BadRule("json", _no_path(text, error)) from error
    except Exception as error:  # the library's errors have no common base class with Python's
        raise _BadRule("json", _no_path(text, error)) from error


def _no_path(text: str, error: Exception) -> str:
    reason = str(error).partition("\n")[0][:150]
    hint = "" if text.startswith("$") else " It begins with $."
    return f'"{text[:80]}" is not a valid JSON path ({reason}).{hint} Write it like $.offers[0].price.'


def _regex(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise _BadRule("regex", f'"{pattern[:80]}" is not a valid regular expression ({error}).') from error


def _checked_name(kind: SourceKind, name: str) -> str:
    allowed: dict[SourceKind, tuple[str, ...]] = {
        SourceKind.PRODUCT: tuple(PRODUCT),
        SourceKind.ARTICLE: tuple(ARTICLE),
        SourceKind.URL: _URL_WORDS,
    }
    if kind in allowed and name not in allowed[kind]:
        raise _BadRule(kind.value, f'"{name[:60]}" is not among the {kind} values.{suggestion(name, allowed[kind])}')
    if kind is SourceKind.STRUCTURED and name.strip(".") != name:
        raise _BadRule(kind.value, f'"{name[:60]}" is not a path; write it like Product.offers.price or meta.author.')
    return name if kind.value not in ("css", "xpath", "label", "json", "regex") else ""


def read_options(table: RecipeTable) -> TypeOptions:
    """The type of a field and its options. The options of an unknown type are not read."""
    given = table.choice("type", _TYPES, "type")
    if given is None and "type" in table:
        return TypeOptions()
    kind = FieldType(given or "text")
    singles = [name for name in _TYPES if name != FieldType.LIST]
    of = table.choice("of", singles, "type of a list's entries")
    if of is not None and kind is not FieldType.LIST:
        table.fault(f'{table.spelled("of")} goes with type = "list".', "of")
    single = FieldType(of or "text") if kind is FieldType.LIST else kind
    for option, types in _OPTION_TYPES.items():
        if option in table and single not in types:
            table.fault(f"{table.spelled(option)} does nothing here; it is for {' and '.join(types)}.", option)
    zone = table.value("zone", Text)
    if zone is not None:
        try:
            zone_of(zone)
        except ValueError as error:
            table.fault(f"{table.spelled('zone')}: {error}.", "zone")
            zone = None
    formats, languages = table.texts("format"), table.texts("languages")
    for option, spelled in (("format", (formats, ())), ("languages", ((), languages))):
        try:
            check_spelling(*spelled)
        except ValueError as error:
            table.fault(f"{table.spelled(option)}: {error}.", option)
    true, false = table.texts("true"), table.texts("false")
    for word in sorted({fold(word) for word in true} & {fold(word) for word in false}):
        table.fault(f'{table.spelled("false")}: "{word[:60]}" stands in `true` and in `false`; choose one.', "false")
    currency = table.value("currency", Text)
    if currency is not None and not re.fullmatch(r"[A-Z]{3}", currency):
        table.wrong("a code of three letters like EUR", "currency")
    return TypeOptions(
        type=kind,
        of=FieldType(of) if of is not None else None,
        currency=currency,
        decimal=table.choice("decimal", DECIMAL_SIGNS, "decimal sign") or ".",
        zone=zone,
        formats=formats,
        languages=languages,
        true=true,
        false=false,
        nth=table.value("nth", Count) or 1,
        scale=_read_scale(table),
        words=_read_words(table),
    )


def _read_own(table: RecipeTable, options: TypeOptions) -> TypeOptions:
    """The options of a source that has some of its own; the field has the type and the others."""
    kind = {"type": options.type.value} | ({"of": options.of.value} if options.of is not None else {})
    own = {key: table.values[key] for key in _READING_KEYS if key in table}
    read = read_options(table.seen_as({**kind, **own}))
    names = {"format": "formats"}
    return msgspec.structs.replace(options, **{names.get(key, key): getattr(read, names.get(key, key)) for key in own})


def _read_scale(table: RecipeTable) -> Decimal | None:
    given = table.values.get("scale")
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 1e-6 <= abs(given) <= 1e6:
        table.wrong("a number like 0.01, which the number of the page is multiplied with", "scale")
        return None
    return Decimal(str(given))


def _read_words(table: RecipeTable) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if "words" not in table:
        return ()
    inner = table.inner("words")
    found = tuple((name, inner.texts(name)) for name in inner.values)
    if not found:
        table.wrong('a table like { new = ["Neu", "Neuware"] }: the value, and what the page says for it', "words")
    folded = [fold(word) for _, words in found for word in words]
    for word in sorted({word for word in folded if folded.count(word) > 1}):
        table.fault(f'{table.spelled("words")}: "{word[:60]}" stands for two values; choose one.', "words")
    return found


def read_default(table: RecipeTable, options: TypeOptions) -> Any:
    if "default" not in table:
        return None
    if table.values.get("required") is True:
        table.fault(f"{table.spelled()} is required and has a default; choose one.", "default")
        return None
    given = table.values["default"]
    many = options.type is FieldType.LIST
    if many != isinstance(given, list):
        table.wrong("a list" if many else type_phrase(options.single), "default")
        return None
    try:
        values = [_default(entry, options) for entry in (given if many else [given])]
    except UnreadableValue:
        table.wrong(f"a list of {options.single}" if many else type_phrase(options.single), "default")
        return None
    return values if many else values[0]


def _default(given: Any, options: TypeOptions) -> Any:
    kind = options.single
    if isinstance(given, bool) and kind is not FieldType.BOOL:
        raise UnreadableValue("which is true or false")
    if not isinstance(given, str | int | float) and not taken_as_is(given, kind):
        raise UnreadableValue("which is something else")
    return value_of(given, options, None)


def read_paths(table: RecipeTable) -> Paths:
    """The patterns that include and exclude addresses."""
    patterns = {}
    for name in ("include", "exclude"):
        read = []
        for text in table.texts(name):
            if text.count("*") > _MOST_STARS or not text.startswith(("/", "*")):
                table.fault(
                    f'{table.spelled(name)}: "{text[:80]}" is not a path pattern. Begin it with / or *, as in'
                    f" /product/* or *.pdf$, and use at most {_MOST_STARS} stars.",
                    name,
                )
                continue
            read.append(PathPattern(text))
        patterns[name] = tuple(read)
    return Paths(include=patterns["include"], exclude=patterns["exclude"])

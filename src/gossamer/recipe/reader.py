"""Reads and validates a recipe: every key is known, every rule compiles, every page kind exists.

`load_recipe` turns a file into a spider class, once per version of the file. `read_recipe` checks the top level; the
functions below it read the page kinds: the items of a page and the links to follow. Fields are read in rules.py.

How it fails: BadRecipe with all faults, each with its line and what is allowed there.
"""

from __future__ import annotations

import keyword
import re
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

import msgspec

from ..errors import InvalidUrl, MissingExtra
from ..model.outcome import Expectations
from ..model.url import parse_url
from ..parse.spider import compose_name, is_spider_name, spider_name_of
from ..units import parse_rate
from .links import REQUEST_KEYS, has_place, read_headers, read_request
from .model import (
    READY,
    Field,
    FieldType,
    Follow,
    Numbering,
    PageKind,
    Politeness,
    Priority,
    Quality,
    Recipe,
    RecipeRequest,
    RecipeSource,
    Scope,
    TypeOptions,
    auto_fields,
    type_name,
)
from .rules import read_field, read_fields, read_paths, read_place, read_source
from .spider import RecipeSpider, spider_of
from .table import BadRecipe, Flag, RecipeFault, RecipeTable, RecipeTree, Text, suggestion
from .text import MAX_BYTES, tree_of

TOP_KEYS = ("name", "summary", "start", "start_kind", "headers", "scope", "politeness", "quality", "expect", "pages")
KIND_KEYS = ("follow", "next", "item", "key", "auto", "each", "within", "allow_empty", "fields")
_LINK_KEYS = ("css", "xpath", "json", "regex", "structured", "after")
_FOLLOW_KEYS = (*_LINK_KEYS, "to", "priority", "include", "exclude", "route", "data", "request")
_NEXT_KEYS = (*_LINK_KEYS, "to", "priority", "route", "data", "request")
_KIND_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
_TYPE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,59}")
_TAKEN = tuple(  # a callback with that name would shadow an attribute of the spider
    sorted(name for name in {*dir(RecipeSpider), *RecipeSpider.__annotations__} if _KIND_NAME.fullmatch(name))
)
_DETECT = "detect"


def load_recipe(path: Path, shown: str) -> type[RecipeSpider]:
    """The spider of a recipe file; `shown` is the name of the file in messages. Raises BadRecipe, MissingExtra.

    Any other error with a file is a BadRecipe too: one bad file must not stop the commands of a project.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        size = path.stat().st_size
    except OSError as error:
        raise BadRecipe.single(shown, None, f"It cannot be read ({error.strerror}).") from error
    if len(content) > MAX_BYTES:
        message = f"It has {size / 1024:,.0f} KB; a recipe may have {MAX_BYTES // 1024} KB at most."
        raise BadRecipe.single(shown, None, message)
    try:
        return _spider_of_text(content, shown)
    except (BadRecipe, MissingExtra):
        raise
    except Exception as error:
        message = f"It cannot be read ({type(error).__name__}: {' '.join(str(error).split())[:200]})."
        raise BadRecipe.single(shown, None, message) from error


@lru_cache(maxsize=256)
def _spider_of_text(content: bytes, shown: str) -> type[RecipeSpider]:
    return spider_of(read_recipe(content, shown))


def read_recipe(content: bytes, file: str) -> Recipe:
    """The recipe in a file's content; `file` is its name in messages. Raises BadRecipe, MissingExtra."""
    return read_tree(tree_of(content, file))


def read_tree(tree: RecipeTree) -> Recipe:
    """The recipe in the values of a file. Raises BadRecipe, MissingExtra."""
    file, faults = tree.file, list[RecipeFault]()
    top = RecipeTable(tree, faults, (), tree.values)
    top.only(TOP_KEYS)
    kinds = read_kinds(top)
    scope = top.inner("scope")
    first, start = next(iter(kinds), ""), _read_start(top)
    recipe = Recipe(
        name=_read_name(top, file),
        file=file,
        text=tree.text,
        summary=(top.value("summary", Text) or "").strip().partition("\n")[0],
        start=tuple(url for url, _ in start),
        start_requests=tuple(request for _, request in start),
        headers=read_headers(top.inner("headers")),
        start_kind=top.choice("start_kind", kinds, "page kind of this recipe") or first,
        kinds=kinds,
        scope=_read_scope(scope),
        paths=read_paths(scope),
        politeness=_read_politeness(top.inner("politeness")),
        quality=Quality(**top.inner("quality").typed(Quality)),
        expected=_read_expected(top.inner("expect")),
    )
    if faults:
        raise BadRecipe(file, sorted(faults, key=lambda fault: fault.line or 0))
    return recipe


def _read_name(top: RecipeTable, file: str) -> str:
    name: str | None = top.value("name", Text)
    if name is None:
        return spider_name_of(PurePath(file).stem)
    name = compose_name(name)
    if not is_spider_name(name):
        top.fault(
            f'name = "{name[:60]}" cannot be a spider\'s name. Use letters, digits, - and _, as in book-shop.', "name"
        )
    return name


def _read_start(top: RecipeTable) -> list[tuple[str, RecipeRequest | None]]:
    """The start addresses, and the request for each that is not a plain GET."""
    given = top.values.get("start")
    if not given:
        top.fault('start is missing. Write the start addresses: start = ["https://shop.example/"].', "start")
        return []
    found = []
    for index, entry in enumerate(given if isinstance(given, list) else [given]):
        steps = ("start", index) if isinstance(given, list) else ("start",)
        request = None
        if isinstance(entry, dict):
            table = top.at(*steps)
            table.only(("url", *REQUEST_KEYS))
            entry, request = table.values.get("url", ""), read_request(table)
        if not isinstance(entry, str):
            top.wrong('an address, or a table like { url = "https://shop.example/", form = { q = "lamp" } }', *steps)
            continue
        try:
            url = parse_url(entry)
        except InvalidUrl as error:
            top.fault(f"{top.spelled(*steps)}: {error}", *steps)
            continue
        if "@" in url.partition("://")[2].partition("/")[0]:
            top.fault(
                f"{top.spelled(*steps)} holds a user name or password, and would be stored. Leave it out.", *steps
            )
        found.append((url, request))
    return found


def _read_scope(table: RecipeTable) -> Scope:
    scope = Scope(**table.typed(Scope, "include", "exclude"))  # the patterns are read by read_paths
    for domain in scope.domains or ():
        if "/" in domain or ":" in domain:
            table.fault(
                f'{table.spelled("domains")}: "{domain[:60]}" is not a domain. Write it like shop.example, or "*".',
                "domains",
            )
    return scope


def _read_politeness(table: RecipeTable) -> Politeness:
    politeness = Politeness(**table.typed(Politeness))
    if politeness.rate is not None:
        try:
            parse_rate(politeness.rate)
        except ValueError as error:
            table.fault(f"{table.spelled('rate')}: {error}.", "rate")
    return politeness


def _read_expected(expect: RecipeTable) -> Expectations:
    names = Expectations.__struct_fields__
    expect.only(names)
    for name in names:
        if name in expect and Expectations(**{name: expect.values[name]}).fault():
            kind = "a share, as 0.2" if name.startswith("max_") else "a whole number, 0 or more"
            expect.wrong(kind, name)
            return Expectations()
    return Expectations(**{name: expect.values.get(name) for name in names})


def read_kinds(top: RecipeTable) -> dict[str, PageKind]:
    """Every page kind, in order."""
    pages = top.inner("pages")
    if not pages.values:
        top.fault("There is no page kind. Write at least one table [pages.NAME] with `fields` or `follow`.", "pages")
    names = list(pages.values)
    kinds = {}
    for name, value in pages.values.items():
        if name in _TAKEN:
            pages.fault(
                f'{pages.spelled(name)}: "{name}" cannot be a page kind, because spiders use this name. Reserved'
                f" names: {', '.join(_TAKEN)}.",
                name,
            )
        elif not _KIND_NAME.fullmatch(name) or keyword.iskeyword(name):
            pages.fault(
                f'{pages.spelled(name)}: "{name[:60]}" cannot be a page kind. Use a word of a-z, 0-9 and _ in lower'
                f" case, as in listing or product.",
                name,
            )
        elif isinstance(value, dict):
            kinds[name] = _read_kind(pages.inner(name), name, names)
        else:
            pages.wrong("a table", name)
    return kinds


def _read_kind(table: RecipeTable, name: str, kinds: list[str]) -> PageKind:
    table.only(KIND_KEYS)
    follow = []
    for rule in table.entries("follow"):
        if rule is None:
            table.wrong('a list of rules like { css = "h3 a", to = "product" }', "follow")
            break
        rule.only(_FOLLOW_KEYS)
        follow.append(_read_follow(rule, name, kinds))
    next_link, numbering = _read_next(table, name, kinds)
    each, within = read_place(table, "each"), read_place(table, "within")
    if each is not None and within is not None:
        table.fault(f"{table.spelled()} has `each` and `within`; choose one.", "within")
    inside = each or within
    fields = _with_auto(
        table, read_fields(table.inner("fields"), in_json=inside is not None and inside.json is not None)
    )
    if not fields:
        for needless in ("item", "key", "each", "within", "allow_empty"):
            if needless in table:
                table.fault(f"{table.spelled(needless)} needs `fields` or `auto` beside it.", needless)
        if not any(key in table for key in ("fields", "auto", "follow", "next")) and all(
            key in KIND_KEYS for key in table.values
        ):
            table.fault(f"{table.spelled()} does nothing. Give it `fields`, `auto`, `follow` or `next`.")
    key = _read_key(table, fields, several=each is not None)
    return PageKind(
        name=name,
        follow=tuple(rule for rule in follow if rule is not None),
        next=next_link,
        numbering=numbering,
        item=_read_item(table, name) if fields else "",
        key=key,
        each=each,
        within=within,
        allow_empty=table.value("allow_empty", Flag) or False,
        fields=tuple(
            msgspec.structs.replace(field, required=True, default=None) if field.name in key else field
            for field in fields
        ),
    )


def _with_auto(table: RecipeTable, own: tuple[Field, ...]) -> tuple[Field, ...]:
    """The fields of a ready-made parser, with the recipe's own replacing them or added at the end."""
    parser = table.choice("auto", READY, "ready parser")
    if parser is None:
        return own
    if "each" in table:
        table.fault(f"{table.spelled('auto')} reads the page as one item, and `each` wants several.", "auto")
    mine = {field.name: field for field in own}
    ready = [mine.pop(field.name, field) for field in auto_fields(parser)]
    return (*ready, *mine.values())


def record_type(name: str) -> str:
    """The type of the records of a recipe of this name, if it has one kind of them. "Item" for a name that a type
    cannot have."""
    item = type_name(name)
    return item if _TYPE_NAME.fullmatch(item) else "Item"


def _read_item(table: RecipeTable, kind: str) -> str:
    name: str | None = table.value("item", Text)
    if name is None:
        return type_name(kind)
    if not _TYPE_NAME.fullmatch(name):
        table.fault(
            f'{table.spelled("item")} = "{name[:60]}" cannot be the name of a type. Write it like Product.', "item"
        )
    return name


def _read_key(table: RecipeTable, fields: tuple[Field, ...], *, several: bool) -> tuple[str, ...]:
    key = table.texts("key")
    names = [*(field.name for field in fields), *([] if several else ["url"])]
    for name in key:
        if name not in names:
            table.fault(
                f'{table.spelled("key")} = "{name[:60]}" is not a field.{suggestion(name, dict.fromkeys(names))}', "key"
            )
    if several and not key and "key" not in table:
        table.fault(
            f"{table.spelled()} gives several items per page, so it needs a `key`: the field that tells them apart.",
            "each",
        )
    for field in fields:
        if field.name in key and (field.fields or field.many):
            table.fault(
                f'{table.spelled("key")} = "{field.name}" is a list or an object; a key is a single value.', "key"
            )
        if field.name == "url" and field.options.type not in (FieldType.TEXT, FieldType.URL):
            table.fault(
                f"{table.spelled('fields', 'url')} is the item's address; its type is url or text.", "fields", "url"
            )
    return key


def _read_follow(rule: RecipeTable, kind: str, kinds: list[str]) -> Follow | None:
    request = read_request(_request_table(rule))
    source = _read_link(rule) if request is None or any(key in rule for key in _LINK_KEYS) else None
    to = rule.choice("to", kinds, "page kind of this recipe") or kind
    data = rule.inner("data")
    carried = tuple(field for name in data.values if (field := read_field(data, name)) is not None)
    for field in carried:
        if field.fields or field.options.type not in (FieldType.TEXT, FieldType.INT, FieldType.URL):
            data.fault(f"{data.spelled(field.name)}: only text, int and url can be carried along.", field.name)
    if source is None and request is None:
        return None
    return Follow(
        source=source,
        to=to,
        request=request,
        priority=rule.value("priority", Priority),
        paths=read_paths(rule),
        route=rule.value("route", Text),
        data=carried,
    )


def _request_table(rule: RecipeTable) -> RecipeTable:
    table = rule.inner("request")
    table.only(REQUEST_KEYS)
    return table


def _read_link(rule: RecipeTable) -> RecipeSource | None:
    if not any(key in rule for key in _LINK_KEYS):
        rule.fault(f"{rule.spelled()} does not say which links.{suggestion('', _LINK_KEYS)}")
        return None
    # Without `data`, which in a link rule is data for the requests, not a source of links.
    return read_source(rule.seen_as({key: rule.values[key] for key in _LINK_KEYS if key in rule}))


def _read_next(table: RecipeTable, kind: str, kinds: list[str]) -> tuple[Follow | None, Numbering | None]:
    value = table.values.get("next")
    if value is None:
        return None, None
    if isinstance(value, str):
        source = read_source(table.seen_as({"css": value}), steps=("next",))
        return (Follow(source=source, to=kind) if source is not None else None), None
    if not isinstance(value, dict):
        table.wrong('a CSS selector of the next link, or a table like { parameter = "page" }', "next")
        return None, None
    rule = table.inner("next")
    if "parameter" in rule:
        return None, _read_numbering(rule)
    rule.only((*_NEXT_KEYS, "parameter"))
    return _read_follow(rule, kind, kinds), None


def _read_numbering(rule: RecipeTable) -> Numbering | None:
    counts: dict[str, Field | None] = {}
    for name in ("pages", "total"):
        value: Any = rule.values.get(name)
        counts[name] = None
        if value is not None and not (name == "pages" and value == _DETECT):
            field = read_field(rule.seen_as(rule.values), name)
            if field is not None and field.options.type not in (FieldType.TEXT, FieldType.INT):
                rule.fault(f"{rule.spelled(name)} is a whole number; leave its type out.", name)
            elif field is not None:
                whole = TypeOptions(type=FieldType.INT, decimal=field.options.decimal)
                counts[name] = msgspec.structs.replace(field, options=whole, required=False, default=None)
    if counts["pages"] is not None and counts["total"] is not None:
        rule.fault(f"{rule.spelled()} has `pages` and `total`; choose one.", "total")
    if "total" in rule and "per_page" not in rule:
        rule.fault(f"{rule.spelled('total')} counts things, so `per_page` must say how many stand on a page.", "total")
    plain = rule.typed(Numbering, "pages", "total", "request")
    parameter = plain.get("parameter")
    if parameter is None:
        return None
    request = read_request(_request_table(rule))
    if request is not None and not has_place(request, parameter):
        rule.fault(f'{rule.spelled("request")} needs a place for the number: "{{{parameter}}}".', "request")
    if request is not None and counts["pages"] is None and counts["total"] is None:
        rule.fault(f"{rule.spelled()} with a `request` needs `pages` or `total`: no link shows how many.", "request")
    return Numbering(**plain, request=request, pages=counts["pages"], total=counts["total"])

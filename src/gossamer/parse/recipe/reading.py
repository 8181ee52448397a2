"""From the text of a recipe to the recipe: every key is known, every rule compiles, every page kind exists.

How it fails: BadRecipe with all faults, each with its line and what is allowed there.
"""

from __future__ import annotations

from pathlib import PurePath

from ...errors import InvalidUrl
from ...model.task import MAX_ATTEMPTS
from ...model.url import parse_url
from ...units import parse_rate
from .faults import BadRecipe, Fault
from .kinds import read_kinds, read_paths
from .model import Recipe
from .names import composed, is_spider_name, spider_name_of
from .table import Table
from .text import tree_of

_TOP = ("name", "summary", "start", "start_kind", "scope", "politeness", "quality", "pages")
_SCOPE = ("domains", "include", "exclude", "depth", "limit")
_POLITENESS = ("rate", "burst", "concurrency", "robots", "attempts", "route", "proxy_pool", "statuses")


def read_recipe(content: bytes, file: str) -> Recipe:
    """The recipe in a file's content; `file` is how messages call it. Raises BadRecipe, MissingExtra."""
    tree = tree_of(content, file)
    faults: list[Fault] = []
    top = Table(tree, faults, (), tree.values)
    top.only(_TOP)
    kinds = read_kinds(top)
    scope, politeness = top.inner("scope"), top.inner("politeness")
    scope.only(_SCOPE)
    politeness.only(_POLITENESS)
    first = next(iter(kinds), "")
    recipe = Recipe(
        name=_read_name(top, file),
        file=file,
        text=tree.text,
        summary=(top.text("summary") or "").strip().partition("\n")[0],
        start=_read_start(top),
        start_kind=top.choice("start_kind", kinds, "page kind of this recipe") or first,
        kinds=kinds,
        domains=_read_domains(scope),
        paths=read_paths(scope),
        depth=scope.number("depth", 0),
        limit=scope.number("limit", 1),
        rate=_read_rate(politeness),
        burst=politeness.number("burst", 1),
        concurrency=politeness.number("concurrency", 1),
        robots=politeness.flag("robots"),
        attempts=politeness.number("attempts", 1, MAX_ATTEMPTS),
        route=politeness.text("route"),
        proxy_pool=politeness.text("proxy_pool"),
        statuses=_read_statuses(politeness),
        minimum=_read_minimum(top.inner("quality")),
    )
    if faults:
        raise BadRecipe(file, sorted(faults, key=lambda fault: fault.line or 0))
    return recipe


def _read_name(top: Table, file: str) -> str:
    name = top.text("name")
    if name is None:
        return spider_name_of(PurePath(file).stem)
    name = composed(name)
    if not is_spider_name(name):
        top.fault(
            f'name = "{name[:60]}" cannot be a spider\'s name. Use letters, digits, - and _, as in book-shop.', "name"
        )
    return name


def _read_start(top: Table) -> tuple[str, ...]:
    if "start" not in top:
        top.fault('start is missing. Write the addresses to begin with: start = ["https://shop.example/"].')
        return ()
    given = top.texts("start")
    urls = []
    for index, text in enumerate(given):
        steps = ("start", index) if isinstance(top.values["start"], list) else ("start",)
        try:
            url = parse_url(text)
        except InvalidUrl as error:
            top.fault(f"{top.spelled(*steps)}: {error}", *steps)
            continue
        if "@" in url.partition("://")[2].partition("/")[0]:
            top.fault(
                f"{top.spelled(*steps)} holds a user name or password, and would be stored. Leave it out.", *steps
            )
        urls.append(url)
    if not given and top.values["start"] in ([], ""):
        top.fault('start is empty. Write the addresses to begin with: start = ["https://shop.example/"].', "start")
    return tuple(urls)


def _read_domains(scope: Table) -> tuple[str, ...] | None:
    domains = scope.texts("domains")
    for domain in domains:
        if "/" in domain or ":" in domain:
            scope.fault(
                f'{scope.spelled("domains")}: "{domain[:60]}" is no domain. Write it like shop.example, or "*".',
                "domains",
            )
    return domains or None


def _read_rate(politeness: Table) -> str | None:
    rate = politeness.text("rate")
    if rate is not None:
        try:
            parse_rate(rate)
        except ValueError as error:
            politeness.fault(f"{politeness.spelled('rate')}: {error}.", "rate")
    return rate


def _read_statuses(politeness: Table) -> tuple[int, ...]:
    value = politeness.values.get("statuses", [])
    if not isinstance(value, list) or not all(type(status) is int and 100 <= status <= 599 for status in value):
        politeness.wrong("a list of statuses like [404, 410]", "statuses")
        return ()
    return tuple(value)


def _read_minimum(quality: Table) -> float | None:
    quality.only(("minimum",))
    value = quality.values.get("minimum")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        quality.wrong("a share between 0 and 1, as 0.8", "minimum")
        return None
    return float(value)

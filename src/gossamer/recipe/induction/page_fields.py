"""The fields of pages of one kind, found without known values: what stands at the same place of most pages and differs
from page to page.

What it does: structured data, JSON in the page, labels, names that people gave and positions are the witnesses of a
value; those that say the same on every page are one field. Its values are then the known ones from which induce.py
learns the rule, so that a rule is chosen here as in healing. How it fails: nothing raises; pages that have nothing in
common have no fields. Spots, places and fields are limited.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from ...model.money import Money
from ...parse.page import Page
from ..block_fields import named_words, words_of
from ..model import FieldType, TypeOptions
from ..sources import PagePart, PageView
from ..stable_selectors import _MADE_UP, NAME
from .candidates import SourceTable, tables_of
from .decision import Decision
from .goal import Goal, Sample
from .induce import induce
from .locators import Located
from .page_places import Place, places_of
from .spots import Spot
from .text_types import typed

FEWEST_PAGES = 3
MOST_FIELDS = 24
_MOST_GROUPS = 80
_SHARE = 0.6  # of the pages that have a value
_SAID = re.compile(r'\[[\w-]+="([\w-]+)"\]')
_CLASS = re.compile(r"\.([A-Za-z][\w-]*)")
_STEP = re.compile(r"[A-Za-z]\w*")
_BY_CLASS = 5  # how good a name is that a class gives, or one that is worse
_VAGUE = frozenset((
    "body", "box", "cell", "col", "column", "content", "data", "div", "entity", "field", "first", "id", "image",
    "info", "inner", "item", "items", "key", "label", "last", "left", "list", "main", "meta", "name", "page",
    "props", "result", "right", "root", "row", "span", "src", "state", "text", "title", "txt", "url", "val",
    "value", "values", "wrapper",
))  # fmt: skip
_NAMES = {"headline": "title", "name": "title", "image_url": "image", "photo": "image"}
_KINDS = {FieldType.MONEY: "price", FieldType.DAY: "day", FieldType.URL: "image", FieldType.BOOL: "flag",
          FieldType.INT: "number", FieldType.FLOAT: "number", FieldType.TEXT: "text"}  # fmt: skip


class PageField(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the pages with its rule; `witnesses` are the places that say the same."""

    name: str
    options: TypeOptions
    sources: tuple[SourceTable, ...]
    witnesses: int
    unique: bool  # no two pages have the same


class _Group(msgspec.Struct):
    """Places that say the same. `values`: by page, None where there is none."""

    type: FieldType
    values: list[Any]
    places: list[tuple[str, float]]
    at: int
    texts: list[str | None]
    paths: set[tuple[int, str]]
    around: set[tuple[int, str]]


def page_fields(pages: Sequence[Page], told: Sequence[Mapping[str, Any]] = ()) -> list[PageField]:
    """The fields of these pages, in the order in which they stand there; none for fewer than three pages. `told` are
    values whose names are known, for each page: what says the same has that name."""
    if len(pages) < FEWEST_PAGES:
        return []
    samples = [Sample(part=PagePart(PageView(page)), name=page.url) for page in pages]
    groups = _without_frames(_merged(_groups(places_of(samples), len(pages))))
    names = _names(groups, [page.title or "" for page in pages], told)
    goals = [Goal(name=name, options=_options(group)) for name, group in zip(names, groups, strict=True)]
    known = [
        msgspec.structs.replace(
            sample, values={goal.name: group.values[at] for goal, group in zip(goals, groups, strict=True)}
        )
        for at, sample in enumerate(samples)
    ]
    found = []
    for goal, group, finding in zip(goals, groups, induce(goals, known), strict=True):
        if finding.decision is Decision.REFUSE or finding.agree < 0.8 * finding.known:
            continue
        filled = [value for value in group.values if value is not None]
        found.append(
            PageField(
                name=goal.name,
                options=goal.options,
                sources=finding.sources,
                witnesses=len(group.places),
                unique=len(filled) == len(pages) == len(set(map(str, filled))),
            )
        )
    return found


# -- groups --------------------------------------------------------------------------------------------------------


def _groups(places: dict[str, Place], pages: int) -> list[_Group]:
    """Places with the same texts on the same pages, if most pages have one and not all the same."""
    by_texts: dict[tuple[str | None, ...], list[tuple[str, Place]]] = defaultdict(list)
    for key, place in places.items():
        if len(place.texts) >= max(FEWEST_PAGES, _SHARE * pages) and len(set(place.texts.values())) > 1:
            by_texts[tuple(place.texts.get(at) for at in range(pages))].append((key, place))
    ranked = sorted(by_texts.items(), key=lambda one: -max(place.weight for _, place in one[1]))
    groups = []
    for texts, some in ranked[:_MOST_GROUPS]:
        kind, values = typed(texts)
        keys = [(key, place.weight) for key, place in some]
        first = min(place.at for _, place in some)
        paths = {path for _, place in some for path in place.paths}
        around = {path for _, place in some for path in place.around}
        groups.append(_Group(kind, values, keys, first, list(texts), paths, around))
    return groups


def _merged(groups: list[_Group]) -> list[_Group]:
    """One group for those that say the same on every page that both have. A place that says so only on most of them is
    shifted on the others, and no field."""
    kept: list[_Group] = []
    for group in sorted(groups, key=lambda one: (_RANK[one.type], -sum(value is not None for value in one.values))):
        same = next((one for one in kept if _sameness(one, group) == 1), None)
        if same is None:
            kept.append(group)
        else:
            same.places += group.places
            same.at = min(same.at, group.at)
            same.paths |= group.paths
            same.around |= group.around
    sure: list[_Group] = []
    for group in sorted(kept, key=lambda one: -_worth(one)):
        if all(_sameness(one, group) < _SHARE for one in sure):
            sure.append(group)
    return sorted(sure, key=lambda one: one.at)


_RANK = {kind: rank for rank, kind in enumerate((FieldType.MONEY, FieldType.DAY, FieldType.FLOAT, FieldType.INT,
         FieldType.URL, FieldType.TEXT, FieldType.BOOL))}  # fmt: skip


def _sameness(one: _Group, other: _Group) -> float:
    """The share of the pages on which both say the same."""
    pairs = [(a, b) for a, b in zip(one.values, other.values, strict=True) if a is not None and b is not None]
    if len(pairs) < FEWEST_PAGES:
        return 0.0
    texts = [(a, b) for a, b in zip(one.texts, other.texts, strict=True) if a is not None and b is not None]
    counts = [sum(int(_plain(a) == _plain(b)) for a, b in some) for some in (pairs, texts)]
    return max(counts) / len(pairs)


def _plain(value: Any) -> Any:
    if isinstance(value, Money):
        return float(value.amount)
    if isinstance(value, str):
        return " ".join(value.split()).casefold()
    return float(value) if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else value


def _without_frames(groups: list[_Group]) -> list[_Group]:
    """The groups without elements around the values of others: a row with its label, the whole of an article."""
    kept = [one for one in groups if not any(_frames(one, other) for other in groups if other is not one)]
    kept.sort(key=lambda one: -_worth(one))
    return sorted(kept[:MOST_FIELDS], key=lambda one: one.at)


def _frames(group: _Group, other: _Group) -> bool:
    inside = len(group.paths & other.around) + len(group.paths & other.paths)
    if group.type is not FieldType.TEXT or inside < _SHARE * len(group.paths):
        return False
    pairs = [(a, b) for a, b in zip(group.texts, other.texts, strict=True) if a and b]
    held = sum(b in a and len(b) < len(a) for a, b in pairs)
    return len(pairs) >= FEWEST_PAGES and held >= _SHARE * len(pairs)


def _worth(group: _Group) -> float:
    best: float = max(weight for _, weight in group.places)
    return best + 0.1 * min(len(group.places), 5) + (0.3 if group.type is not FieldType.TEXT else 0.0)


# -- names ---------------------------------------------------------------------------------------------------------


def _options(group: _Group) -> TypeOptions:
    currency = None
    if group.type is FieldType.MONEY:
        counts = Counter(value.currency for value in group.values if value is not None)
        currency = counts.most_common(1)[0][0] if len(counts) == 1 else None
    return TypeOptions(type=group.type, currency=currency if currency and len(currency) == 3 else None)


def _names(groups: Sequence[_Group], titles: Sequence[str], told: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each; `titles` are those that browsers show, which begin with the name of the thing."""
    found: list[str] = []
    for group in groups:
        given = (pair for key, _ in group.places for pair in _named(msgspec.json.decode(key)))
        ranked = sorted((rank, name) for rank, name in given if name)
        name = ranked[0][1] if ranked else _KINDS[group.type]
        shown = [text in title for text, title in zip(group.texts, titles, strict=True) if text]
        if group.type is FieldType.TEXT and all(shown) and (not ranked or ranked[0][0] >= _BY_CLASS):
            name = "title"
        name = _told_name(group, told) or name
        number, first = 2, name
        while name in found:
            name, number = f"{first}_{number}", number + 1
        found.append(name)
    return found


def name_of(spot: Spot, located: Located | None) -> str:
    """A name for what stands at one spot."""
    given = (pair for table, _ in tables_of(spot, (), located, _ANY) for pair in _named(table))
    ranked = sorted((rank, name) for rank, name in given if name)
    return ranked[0][1] if ranked else _KINDS[typed([spot.text])[0]]


def _told_name(group: _Group, told: Sequence[Mapping[str, Any]]) -> str:
    """The name of the known values that this group gives on most pages; "" if there is none."""
    counts: Counter[str] = Counter()
    for value, known in zip(group.values, told, strict=False):
        if value is not None:
            counts.update(name for name, one in known.items() if one is not None and _plain(one) == _plain(value))
    name, count = counts.most_common(1)[0] if counts else ("", 0)
    return name if count >= max(2, _SHARE * sum(value is not None for value in group.values)) else ""


def _named(table: SourceTable) -> Iterator[tuple[int, str]]:
    """Names for what stands at a place, with how good they are: a smaller number is better."""
    if "structured" in table:
        first, *steps = table["structured"].split(".")
        last = steps[-1] if steps else first
        if last in ("name", "value", "url", "@value") and len(steps) > 1:
            last = steps[-2]
        if first in ("meta", "opengraph"):
            yield 6, _snake(re.sub(r"^(?:og|twitter|product):", "", table["structured"].partition(".")[2]))
        elif last == "name" and first not in ("Product", "JobPosting", "Article"):
            yield 1, _snake(first)
        else:
            yield 0, _snake(last)
        return
    if "json" in table:
        steps = [step for step in _STEP.findall(table["json"]) if step.lower() not in _VAGUE or step in ("title",)]
        yield 3, _snake(steps[-1]) if steps else ""
        return
    css = table.get("css", "").partition("::")[0]
    if "label" in table:
        yield 4, words_of(table["label"])
    elif css == "h1" or css.endswith(" h1"):
        yield 2, "title"
    elif "src" in table.get("css", "").partition("::")[2]:
        yield 4, "image"
    elif match := _SAID.search(css):
        yield 2, _told("_".join(named_words(match[1])))
    elif len(classes := _CLASS.findall(css)) == 1 and NAME.fullmatch(classes[0]) and not _MADE_UP.search(classes[0]):
        yield _BY_CLASS, _told("_".join(named_words(classes[0])))


def _snake(name: str) -> str:
    told = _told(words_of(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)))
    return _NAMES.get(told, told)


def _told(name: str) -> str:
    """Without words that say nothing about the thing."""
    words = [word for word in name.split("_") if word]
    if max(map(len, words), default=0) < 3:
        return ""
    return "_".join([word for word in words if word not in _VAGUE] or [word for word in words if word in _SOME])


_ANY = Goal(name="any")
_SOME = ("title", "image", "name")

"""Booleans and enumerations: places whose words go with the known values more often than chance would have it.

Every short text of the pages is a candidate, so some agree by accident. A table counts only if its association with the
known values is significant after correction for the number of places that were tried.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from ...extract.product.availability import Availability, spoken_availability
from ..model import FieldType
from .candidates import Candidate, SourceTable, compiled, tables_of, value_on
from .goal import Goal, Sample
from .locators import Located
from .spots import root_of, spots_of

MOST_VALUES = 12  # of an enumeration
_LONGEST = 48  # characters of words
_MOST_PLACES = 600  # that are tried
_MOST_SPOTS = 4_000  # of a page
_MOST_LOCATORS = 5  # of a spot
_FEWEST_PAGES = 6  # on which a place with two words says something
_CHANCE = 0.005  # of an association by accident, after correction
_RAW = Goal(name="raw")
_TO_BE_HAD = (Availability.IN_STOCK, Availability.LIMITED, Availability.ONLINE_ONLY)
# fmt: off
_YES = frozenset((
    "yes", "true", "on", "1", "y", "ja", "oui", "sí", "si", "sim", "sì", "tak", "ano", "да", "так", "evet", "igen",
    "da", "joo", "kyllä", "はい", "可", "あり", "是", "有", "예",
))
_NO = frozenset((
    "no", "false", "off", "0", "n", "nein", "non", "não", "nie", "ne", "нет", "ні", "hayır", "nem", "nu", "ei", "nej",
    "nei", "nee", "いいえ", "不可", "なし", "否", "無", "아니요",
))
# fmt: on


# What icons and states are called in classes: `icon-check`, `is-unavailable`.
_SIGN = re.compile(r"[\s_/-]+")
_YES_SIGNS = frozenset(
    ("check", "checkmark", "checked", "tick", "yes", "true", "ok", "available", "instock", "enabled")
)
_NO_SIGNS = frozenset(("cross", "times", "xmark", "no", "false", "unavailable", "soldout", "disabled", "unchecked"))


def is_enumeration(goal: Goal, values: Sequence[Any]) -> bool:
    """Are there so few values that words can stand for them?"""
    known = [value for value in values if value is not None]
    if goal.many or goal.type not in (FieldType.BOOL, FieldType.TEXT) or len(known) < 6:
        return False
    counts = Counter(known)
    return 2 <= len(counts) <= min(MOST_VALUES, len(known) // 3) and counts.most_common(2)[1][1] >= 2


def word_places(samples: Sequence[Sample]) -> list[tuple[SourceTable, float]]:
    """The places that hold a few words on most pages, with their weights."""
    counts: Counter[str] = Counter()
    weights: dict[str, float] = {}
    for sample in samples:
        root = root_of(sample)
        located = Located(root) if root is not None else None
        here: dict[str, float] = {}
        for spot in spots_of(sample)[:_MOST_SPOTS]:
            if not spot.text or len(spot.text) > _LONGEST or spot.cents is not None:
                continue
            ranked = sorted(tables_of(spot, (), located, _RAW), key=lambda one: -one[1])[:_MOST_LOCATORS]
            for table, weight in ranked:
                if weight >= 0.33:
                    here.setdefault(json.dumps(table, sort_keys=True, ensure_ascii=False), weight)
        counts.update(here.keys())
        weights |= here
    often = [key for key, count in counts.items() if count >= 0.5 * len(samples)]
    often.sort(key=lambda key: (-counts[key] * weights[key], key))
    return [(json.loads(key), weights[key]) for key in often[:_MOST_PLACES]]


def word_candidates(
    goal: Goal, samples: Sequence[Sample], places: Sequence[tuple[SourceTable, float]], texts: dict[str, list[Any]]
) -> list[Candidate]:
    """The places whose words stand for the values of the goal. `texts` remembers what was found, for the next goal."""
    known = [(sample.values or {}).get(goal.name) for sample in samples]
    found: list[Candidate] = []
    keys = [json.dumps(table, sort_keys=True, ensure_ascii=False) for table, _ in places]
    for key, (table, _) in zip(keys, places, strict=True):
        if key not in texts:
            field = compiled(_RAW, [table])
            texts[key] = [value_on(field, sample) if field is not None else None for sample in samples]
    # Several selectors of one element are one try, and places with too many words are none.
    most = _most_words(len({value for value in known if value is not None}))
    tries = len({tuple(texts[key]) for key in keys if 2 <= len(set(texts[key]) - {None}) <= most})
    for key, (table, weight) in zip(keys, places, strict=True):
        words = _table(goal, known, texts[key], tries)
        if words is not None:
            agreed, spelled = words
            found.append(Candidate({**table, **spelled}, weight - 0.1, agreed))
    return sorted(found, key=lambda one: (-one.pages, -one.weight))[:40]


def said(text: str) -> bool | None:
    """What a few words say by themselves, in the languages of most sites: yes, no, to be had, not to be had."""
    folded = " ".join(text.split()).strip(" .!:✓✔✗✘").casefold()
    if folded in _YES or folded in _NO:
        return folded in _YES
    signs = set(_SIGN.split(folded)) if len(folded) <= _LONGEST else set()
    if bool(signs & _YES_SIGNS) != bool(signs & _NO_SIGNS):
        return bool(signs & _YES_SIGNS)
    spoken = spoken_availability(text)
    return None if spoken is None else spoken in _TO_BE_HAD


def spoken_candidates(
    goal: Goal, known: Sequence[Sample], samples: Sequence[Sample], places: Sequence[tuple[SourceTable, float]]
) -> list[Candidate]:
    """The places whose words say yes or no by themselves and mostly agree with the known values. `samples` are all,
    the known ones first: their words go into the table, and a place with words of one side alone is none."""
    wanted = [(sample.values or {}).get(goal.name) for sample in known]
    count = sum(value is not None for value in wanted)
    found: list[Candidate] = []
    for table, weight in places:
        field = compiled(_RAW, [table])
        if field is None:
            continue
        first = [value_on(field, sample) for sample in known]
        spoken = [said(text) if isinstance(text, str) else None for text in first]
        agreed = sum(one is value for one, value in zip(spoken, wanted, strict=True) if value is not None)
        if agreed < 0.7 * count or sum(one is None for one in spoken) > 0.1 * len(spoken):
            continue
        texts = {text for text in (value_on(field, sample) for sample in samples) if isinstance(text, str)}
        sides: dict[bool | None, list[str]] = {True: [], False: [], None: []}
        for text in sorted(texts):
            sides[said(text)].append(text)
        if sides[True] and sides[False] and len(texts) <= MOST_VALUES and len(sides[None]) <= 1:
            found.append(Candidate({**table, "true": sides[True], "false": sides[False]}, weight - 0.1, agreed))
    return found[:40]


def _most_words(values: int) -> int:
    """How many texts may stand for so many values."""
    return max(4, 2 * values)


def told_candidates(
    goal: Goal, known: Sequence[Sample], samples: Sequence[Sample], places: Sequence[tuple[SourceTable, float]]
) -> list[Candidate]:
    """For a few values that a person gave, and that stand nowhere as such: an enumeration in lower case that the pages
    write in upper case, or a boolean at the only place of the pages that has two words. `samples` are all pages, the
    known ones first."""
    wanted = [(sample.values or {}).get(goal.name) for sample in known]
    if goal.many or goal.type not in (FieldType.BOOL, FieldType.TEXT) or len(samples) < _FEWEST_PAGES:
        return []
    by_words: dict[tuple[Any, ...], list[Candidate]] = defaultdict(list)
    for table, weight in places:
        field = compiled(_RAW, [table])
        texts = [value_on(field, sample) for sample in samples] if field is not None else []
        distinct = sorted({text for text in texts if isinstance(text, str)})
        if not 2 <= len(distinct) <= MOST_VALUES or sum(text is None for text in texts) > 0.1 * len(texts):
            continue
        words: dict[str, Any] | None = None
        if goal.type is FieldType.BOOL and len(distinct) == 2:
            sides = {value: text for value, text in zip(wanted, texts, strict=False) if value is not None}
            pairs = {(value, text) for value, text in zip(wanted, texts, strict=False) if value is not None}
            if len(pairs) == len(sides):
                yes = sides.get(True) or next(text for text in distinct if text != sides[False])
                words = {"true": [yes], "false": [text for text in distinct if text != yes]}
        elif goal.type is FieldType.TEXT:
            told = [(value, text) for value, text in zip(wanted, texts, strict=False) if value is not None]
            folded = all(isinstance(text, str) and value == value.lower() == text.lower() for value, text in told)
            if folded and told:
                words = {"words": {text.lower(): [text] for text in distinct}}
            elif told and _mentions(table, goal.name) and all(isinstance(text, str) for _, text in told):
                meant = {text: value for value, text in told}
                if len(set(told)) == len(meant) == len(set(meant.values())):
                    words = {"words": {value: [text] for text, value in meant.items()}}
        if words is not None:
            by_words[tuple(texts)].append(Candidate({**table, **words}, weight - 0.1, len(wanted)))
    if goal.type is FieldType.BOOL and len(by_words) > 1:  # of several such places any could be meant
        named = {
            texts: some for texts, some in by_words.items() if any(_mentions(one.table, goal.name) for one in some)
        }
        by_words = defaultdict(list, named if len(named) == 1 else {})
    return [one for some in by_words.values() for one in some][:40]


def _mentions(table: SourceTable, name: str) -> bool:
    """Does the place bear the name of the field?"""
    told = " ".join(str(table.get(kind, "")) for kind in ("css", "label", "json", "structured", "xpath"))
    return name.lower() in re.split(r"[^a-z0-9]+|__|_", told.lower())


def _table(goal: Goal, known: list[Any], texts: list[Any], tried: int) -> tuple[int, dict[str, Any]] | None:
    pairs = [(text, value) for text, value in zip(texts, known, strict=True) if text and value is not None]
    wanted = sum(value is not None for value in known)
    by_text: dict[str, Counter[Any]] = defaultdict(Counter)
    for text, value in pairs:
        by_text[text][value] += 1
    values = Counter(value for _, value in pairs)
    if len(pairs) < 0.8 * wanted or len(values) < 2 or not 2 <= len(by_text) <= _most_words(len(values)):
        return None
    meaning = {text: counts.most_common(1)[0] for text, counts in by_text.items()}
    agreed = sum(count for _, count in meaning.values())
    if agreed < 0.6 * len(pairs) or len({value for value, _ in meaning.values()}) < 2:
        return None
    if _by_chance(by_text, values, len(pairs)) * max(tried, 1) > _CHANCE:
        return None
    table: dict[Any, list[str]] = defaultdict(list)
    for text, (value, count) in sorted(meaning.items()):
        if count * 2 <= sum(by_text[text].values()):
            return None  # one text for two values
        table[value].append(text)
    if goal.type is FieldType.BOOL:
        return agreed, {"true": table[True], "false": table[False]}
    return agreed, {"words": {str(value): texts for value, texts in table.items()}}


def _by_chance(by_text: dict[str, Counter[Any]], values: Counter[Any], count: int) -> float:
    """How likely such an association is by accident: the G test."""
    statistic = 0.0
    for counts in by_text.values():
        row = counts.total()
        for value, seen in counts.items():
            statistic += 2 * seen * math.log(seen * count / (row * values[value]))
    freedom = (len(by_text) - 1) * (len(values) - 1)
    if statistic <= 0 or freedom <= 0:
        return 1.0
    # Wilson and Hilferty: the cube root of chi-square is nearly normal.
    spread = 2 / (9 * freedom)
    z = ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return 0.5 * math.erfc(z / math.sqrt(2))

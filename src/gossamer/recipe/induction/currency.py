"""Which currency a page writes for a price: beside the number, in its row, label or heading, or in structured data.

A rule whose text has a bare number needs that proof, because the stored currency would be given to any number. All of
the page that is near counts, so that two currencies side by side are no proof of one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from turbohtml import Document, Element

from ...errors import GossamerError
from ...model.currencies import CODES, SHARED, SIGNS, SMALL_CODES
from ...model.money import can_mean, prices_in
from ...parse.selectors import Selector
from ..model import Field
from ..sources import find
from .candidates import SourceTable, compiled, value_on
from .decision import Decision, Tried, joined
from .goal import Goal, Sample, plain
from .locators import _column_head
from .spots import STRUCK, Spot, is_struck, root_of

_BY_POSITION = 0.3  # the weight of rules that count elements
_PAIRED = 8  # of the best rules, whose pairs are tried
_UP = 6  # ancestors that are near
_NEAR = 240  # characters of an ancestor whose text is near the number
_MOST_INNER = 60  # elements of it whose attributes are read
_BACK = 12  # siblings in which a heading is looked for
_MOST_TEXT = 200_000
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6", "caption", "legend", "thead", "header"))
_ATTRIBUTES = ("content", "title", "aria-label", "alt", "value", "label", "currency")
_CODE = re.compile(r"(?<![A-Za-z])[A-Z]{3}(?![A-Za-z])")
_WORDS = frozenset("ALL BAM BOB COP CUP DOP GEL LAK MAD MOP PEN RON SOS TOP TRY MUR NAD ANG".split())  # noqa: SIM905
_SYMBOLS = frozenset(sign for sign in SIGNS if len(sign) == 1 and not sign.isalpha()) | {"円", "元", "원"}
_UNSURE = frozenset("BD DA DT JD KD LE MT NT RM BS AR DIN NIS DH".split())  # noqa: SIM905 - also other abbreviations
_STEP = re.compile(r"\[[^\]]*\]$|\.[^.\[]+$")


def mentions(text: str) -> set[str]:
    """The signs and codes of currencies that a text has, as they are written."""
    text = plain(text)
    if not text:
        return set()
    bare = text.strip(" :()[].,-")
    if bare in SIGNS or bare in SMALL_CODES or (bare.upper() in CODES and len(text) <= 5):
        return {bare if bare in SIGNS else bare.upper()}
    found = {code for code in _CODE.findall(text) if code in CODES and code not in _WORDS}
    found |= {char for char in text if char in _SYMBOLS}
    for token in re.split(r"[\s():,;/|\[\]]+", text):
        known = token in SIGNS and len(token) > 1 and token.upper() not in _UNSURE
        if known or token in SMALL_CODES:
            found.add(token)
    for at in range(0, min(len(text), _MOST_TEXT), 250):  # prices are read from the beginning of a text
        found |= {one.sign for one in prices_in(text[at : at + 280]) if one.sign and one.sign.upper() not in _WORDS}
    # "US$" has the sign "$" in it, which is no sign of its own there.
    return {one for one in found if not any(one != other and one in other for other in found)}


def unstruck(goal: Goal, rules: Sequence[Tried], samples: Sequence[Sample], known: Sequence[Any]) -> list[Tried]:
    """The rules that never read a struck-out price, which is the stored one when a sale begins. One that does so on
    some pages is kept behind a rule that finds another price on all of these; what only counts elements is no better
    than one that does."""
    marked = []
    for at, sample in enumerate(samples):
        root = root_of(sample)
        if root is not None and root.select_one(STRUCK) is not None:
            marked.append((at, sample))
    clean, rest = list[Tried](), list[tuple[Tried, list[int]]]()
    for rule in rules:
        struck = [at for at, one in marked if rule.values[at] is not None and _reads_struck(goal, rule.tables, one)]
        if struck:
            rest.append((rule, struck))
        else:
            clean.append(rule)
    if rest and max((one.weight for one in clean), default=0.0) < _BY_POSITION:
        return []
    pairs = []
    fewest = min(2, sum(value is not None for value in known))  # what agrees with one page of many is chance
    gaps = [one for one in clean if one.agree >= fewest and (one.missing or None in one.values)]
    for first in sorted(gaps, key=lambda one: -one.score)[:_PAIRED]:
        for second, struck in sorted(rest, key=lambda one: -one[0].score)[:_PAIRED]:
            if all(first.values[at] is not None for at in struck):
                pair = joined(first, second, known, goal)
                if pair.agree > first.agree or pair.values.count(None) < first.values.count(None):
                    pairs.append(pair)
    return [*clean, *pairs]


def _reads_struck(goal: Goal, tables: Sequence[SourceTable], sample: Sample) -> bool:
    used = _field_of(goal, tables, sample)
    if used is None or not ("css" in used[0] or "label" in used[0]):
        return False
    table = used[0]
    element = _element(goal, table, sample)
    take = "" if "::" not in str(table.get("css", "")) else "::"
    return element is not None and is_struck(Spot("", "", element, take, cents=element if "cents" in table else None))


def _has_several(goal: Goal, rule: Tried, samples: Sequence[Sample]) -> int:
    """On how many pages several prices stand in the text; 0 if they do everywhere."""
    several = [
        len({one.amount for one in prices_in(_text(goal, rule.tables, sample)) if one.sign}) > 1
        for sample, value in zip(samples, rule.values, strict=True)
        if value is not None
    ]
    return 0 if all(several) else sum(several)


def doubt(goal: Goal, rule: Tried, samples: Sequence[Sample], stored: Sequence[Any]) -> tuple[Decision, str] | None:
    """Why a rule for prices must not be used unasked; None if the currency is read on the pages."""
    pages = silent = foreign = 0
    seen: set[str] = set()
    code = next((one.currency for one in stored if one is not None), "")
    if goal.many or not code:
        return None
    for sample, value in zip(samples, rule.values, strict=True):
        if value is None or not value.currency:
            continue
        pages += 1
        text = _text(goal, rule.tables, sample)
        written = {one.sign for one in prices_in(text) if one.sign}
        if any(sign not in SHARED for sign in written):
            continue  # the text names the currency itself
        near, far = _around(goal, rule.tables, sample)
        other = {one for one in near if not can_mean(one, value.currency)}
        if not written and not other and not near:
            other = far if not any(can_mean(one, value.currency) for one in far) else set()
        if other:
            foreign += 1
            seen |= other
        elif not written and not near:
            silent += 1
    if foreign > 0.1 * pages:
        return Decision.REFUSE, f"the pages write {', '.join(sorted(seen)[:3])} beside the number, not {code}"
    if foreign:
        return Decision.PROPOSE, f"{foreign} pages write {', '.join(sorted(seen)[:3])} beside the number"
    if several := _has_several(goal, rule, samples):
        return Decision.PROPOSE, f"on {several} of {pages} pages several prices stand there"
    if silent > 0.1 * pages:
        return Decision.PROPOSE, f"no currency is written beside the number on {silent} of {pages} pages"
    return None


def _field_of(goal: Goal, tables: Sequence[SourceTable], sample: Sample) -> tuple[SourceTable, Field] | None:
    """The source that gave the value."""
    for table in tables:
        field = compiled(goal, [table])
        if field is not None and value_on(field, sample) is not None:
            return table, field
    return None


def _raw(field: Field, sample: Sample) -> Any:
    try:
        found = find(field.sources[0], sample.part, all_count=False)
    except GossamerError:
        return None
    return next((one for one in found if not isinstance(one, str) or one.strip()), None)


def _text(goal: Goal, tables: Sequence[SourceTable], sample: Sample) -> str:
    """The text from which the price is read; "" for a number in JSON."""
    used = _field_of(goal, tables, sample)
    raw = _raw(used[1], sample) if used is not None else None
    text = raw.text if isinstance(raw, Selector) else raw
    return text if isinstance(text, str) else ""


def _around(goal: Goal, tables: Sequence[SourceTable], sample: Sample) -> tuple[set[str], set[str]]:
    """What is written near the number, and on the whole page."""
    used = _field_of(goal, tables, sample)
    if used is None:
        return set(), set()
    table, _ = used
    root = root_of(sample)
    near: set[str] = set()
    if "css" in table or "label" in table:
        element = _element(goal, table, sample)
        if element is not None:
            for text in _near_texts(element, root):
                near |= mentions(text)
    if "json" in table:
        near |= _in_json(goal, table, sample)
    near |= _in_data(sample)
    body = root.select_one("body") if isinstance(root, Document) else root
    return near, mentions(body.text[:_MOST_TEXT]) if body is not None else set()


def _element(goal: Goal, table: SourceTable, sample: Sample) -> Element | None:
    place = {name: one for name, one in table.items() if name in ("css", "label")}
    if "css" in place:
        place["css"] = place["css"].partition("::")[0]
    field = compiled(Goal(name=goal.name), [place])
    raw = _raw(field, sample) if field is not None else None
    root = raw.root if isinstance(raw, Selector) else None
    return root if isinstance(root, Element) else None


def _near_texts(element: Element, root: Document | Element | None) -> Iterator[str]:
    """The texts and attributes of the element, of what is around it, and of its headings."""
    yield from _inner_texts(element)
    cell = element.closest("td")
    if cell is not None:
        yield _column_head(cell)
    here: Any = element
    near = True
    for _ in range(_UP):
        yield from _headings(here)
        here = here.parent
        if not isinstance(here, Element) or here.tag in ("html", "body") or here == root:
            return
        near = near and len(here.text) <= _NEAR
        if near:
            yield from _inner_texts(here)
        if here.tag == "table":
            for one in here.select("caption")[:1]:
                yield one.text


def _inner_texts(element: Element) -> Iterator[str]:
    """The texts of the element and of those in it: "5 EUR" and "sold" are two, where the whole reads "5 EURsold"."""
    for one in [element, *element.select("*")[:_MOST_INNER]]:
        yield from _attributes(one)
        if len(one.text) <= _NEAR:
            yield one.text


def _headings(element: Element) -> Iterator[str]:
    node = element.previous_sibling
    for at in range(_BACK):
        if node is None:
            return
        if isinstance(node, Element):
            if len(node.text) <= _NEAR and (at < 2 or node.tag in _HEADINGS):
                yield node.text
            yield from _attributes(node) if at < 2 else ()
        else:
            yield str(getattr(node, "data", ""))[-_NEAR:] if at < 2 else ""
        node = node.previous_sibling


def _attributes(element: Element) -> Iterator[str]:
    for name in list(element.attrs or ())[:20]:
        if name in _ATTRIBUTES or (name.startswith("data-") and name != "data-testid"):
            value = element.attr(name) or ""
            if len(value) <= 80:
                yield value


def _in_json(goal: Goal, table: SourceTable, sample: Sample) -> set[str]:
    """The currencies in the object that has the number, and in those around it."""
    found: set[str] = set()
    path = str(table["json"])
    base = {name: one for name, one in table.items() if name in ("css", "after")}
    while (outer := _STEP.sub("", path)) != path:
        path = outer
        field = compiled(Goal(name=goal.name), [{**base, "json": path}])
        node = _raw(field, sample) if field is not None else None
        for name, one in node.items() if isinstance(node, dict) else ():
            inner = one.items() if isinstance(one, dict) else [(name, one)]
            for key, leaf in list(inner)[:100]:
                if isinstance(leaf, str) and len(leaf) <= 80 and ("currency" in str(key).lower() or leaf in SIGNS):
                    found |= mentions(leaf)
    return found


def _in_data(sample: Sample) -> set[str]:
    """The currencies that structured data names."""
    data = sample.part.view.structured()
    found: set[str] = set()
    for family in ("opengraph", "meta"):
        for name, value in data.get(family, {}).items():
            if "currency" in name.lower():
                found |= mentions(str(value))
    text = json.dumps([data.get("json_ld", []), data.get("microdata", [])], default=str, ensure_ascii=False)
    for match in re.finditer(r'"[\w:]*[cC]urrency":\s*\[?"([^"]{1,20})"', text[:_MOST_TEXT]):
        found |= mentions(match[1])
    return found

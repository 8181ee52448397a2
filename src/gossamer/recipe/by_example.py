"""Rules from pages and the values that a person reads on them, and the recipe that has these rules. Pure: whoever calls
fetches the pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import msgspec

from ..errors import Misconfigured
from ..model.money import Money, prices_in
from ..parse.page import Page
from .draft import KEYS, field_rule, recipe_text
from .edit import toml_value
from .induction.candidates import compiled, value_on
from .induction.decision import Decision, Finding
from .induction.goal import Goal, Sample, known_value
from .induction.induce import induce
from .induction.spots import spots_of
from .model import FieldType, TypeOptions
from .sources import PagePart, PageView

LONGEST_PRICE = 40  # characters of a text whose currency counts
_PRICES = re.compile(r"(?:^|_)(?:price|cost|rent|fee|amount|total|deposit)(?:_|$)")
_CODES = re.compile(r"(?:^|_)(?:sku|id|ref|reference|code|number|no|gtin|ean|isbn|mpn|phone|zip|postcode)(?:_|$)")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


class ExamplePage(msgspec.Struct, frozen=True):
    """A page and the values that a person reads on it."""

    url: str
    values: dict[str, str]


class FieldByExample(msgspec.Struct, frozen=True, kw_only=True):
    """The rule of a field; `sure` is False where a second example would decide."""

    field: str
    rule: str
    sure: bool
    reason: str
    values: list[str | None]  # on the other pages


class LearnedRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rule of every field; `samples` are the pages, those of the examples first."""

    goals: list[Goal]
    findings: list[Finding]
    samples: list[Sample]
    examples: int

    @property
    def key(self) -> str:
        """The name of the field that identifies an item, as a number of the article does; "" if none is called so."""
        return next((goal.name for one in KEYS for goal in self.goals if goal.name == one), "")

    def is_required(self, goal: Goal) -> bool:
        """Whether a page without this field has no item: its title, and what the first example names first."""
        return goal.name == "title" or (goal is self.goals[0] and goal.name != self.key)

    def field_views(self, findings: Sequence[Finding]) -> list[FieldByExample]:
        """What these rules find on the other pages."""
        told = []
        for goal, finding in zip(self.goals, findings, strict=True):
            field = compiled(goal, finding.sources)
            others = self.samples[self.examples :]
            values = [value_on(field, sample) for sample in others] if field is not None else []
            told.append(
                FieldByExample(
                    field=goal.name,
                    rule=" | ".join(toml_value(dict(one)) for one in finding.sources),
                    sure=finding.decision is Decision.HEAL,
                    reason=finding.reason,
                    values=[None if value is None else str(value) for value in values],
                )
            )
        return told


class StartPages(msgspec.Struct, frozen=True, kw_only=True):
    """Where the crawl begins. `links` and `following` are CSS on a list, if there is one; `path` is what the addresses
    of the links hold."""

    urls: list[str]
    links: str = ""
    path: str = ""
    following: str = ""


def learn_rules(examples: Sequence[ExamplePage], pages: Sequence[Page], others: Sequence[Page]) -> LearnedRules:
    """The rules that find the values of the examples on their pages, tried on the others. Raises Misconfigured for a
    value that is on none."""
    names = list(dict.fromkeys(field for one in examples for field in one.values))
    goals = [
        Goal(name=field, options=type_of(field, [one.values[field] for one in examples if field in one.values]))
        for field in names
    ]
    goals = [_with_currency(goal, examples, pages) for goal in goals]
    samples = [
        Sample(
            part=PagePart(PageView(page)),
            values={goal.name: known_value(one.values.get(goal.name), goal.options) for goal in goals},
            name=page.url,
        )
        for page, one in zip(pages, examples, strict=True)
    ]
    samples += [Sample(part=PagePart(PageView(page)), name=page.url) for page in others]
    findings = induce(goals, samples, fresh=True)
    lost = [finding.field for finding in findings if finding.decision is Decision.REFUSE]
    if lost:
        given = ", ".join(
            f"{field}={next(one.values[field] for one in examples if field in one.values)!r}" for field in lost
        )
        raise Misconfigured(
            f"Found on no example page: {given}. Write what stands there, in the same case, or leave it out. If scripts"
            " make the page, its values may not be in what the server sends."
        )
    return LearnedRules(goals=goals, findings=findings, samples=samples, examples=len(pages))


def type_of(name: str, texts: Sequence[str]) -> TypeOptions:
    """The type of a field, by its name and by what a person wrote."""
    if all(text.startswith(("http://", "https://")) for text in texts):
        return TypeOptions(type=FieldType.URL)
    if _CODES.search(name):
        return TypeOptions()
    if all(text.lower() in ("true", "false") for text in texts):
        return TypeOptions(type=FieldType.BOOL)
    if all(_DAY.fullmatch(text) for text in texts):
        return TypeOptions(type=FieldType.DAY)
    prices = [Money.parse(text) for text in texts]
    if all(prices) and (_PRICES.search(name) or all(one.currency for one in prices if one is not None)):
        short = all(len(text) <= 20 for text in texts)
        if short:
            return TypeOptions(type=FieldType.MONEY)
    numbers = [_number(text) for text in texts]
    if all(one is not None for one in numbers):
        whole = all(text.lstrip("-").isdigit() for text in texts)
        return TypeOptions(type=FieldType.INT if whole else FieldType.FLOAT)
    return TypeOptions()


def _number(text: str) -> Decimal | None:
    try:
        return Decimal(text) if re.fullmatch(r"-?\d{1,15}(?:\.\d{1,6})?", text) else None
    except InvalidOperation:
        return None


def _with_currency(goal: Goal, examples: Sequence[ExamplePage], pages: Sequence[Page]) -> Goal:
    """A price that a person gave without its currency has the one that stands beside this amount on the pages."""
    if goal.type is not FieldType.MONEY:
        return goal
    counts: Counter[str] = Counter()
    for one, page in zip(examples, pages, strict=True):
        given = known_value(one.values.get(goal.name), goal.options)
        if given is None or given.currency:
            continue
        for spot in spots_of(Sample(part=PagePart(PageView(page)))):
            if len(spot.text) <= LONGEST_PRICE:
                counts.update(
                    price.currency for price in prices_in(spot.text) if price.currency and price.amount == given.amount
                )
    if not counts:
        return goal
    options = msgspec.structs.replace(goal.options, currency=counts.most_common(1)[0][0])
    return msgspec.structs.replace(goal, options=options)


def recipe_with(learned: LearnedRules, start: StartPages, ref: str, tried: str, *, item: str = "Item") -> str:
    """The text of a recipe with these rules. `item` is the type of its records."""
    head = [f"item = {toml_value(item)}"] if item != "Item" else []
    head += [f"key = {toml_value(learned.key)}"] if learned.key else []
    fields = {}
    for goal, finding in zip(learned.goals, learned.findings, strict=True):
        fields[goal.name] = field_rule(finding.sources, goal.options, required=learned.is_required(goal))
    kinds: list[tuple[str, str, Sequence[str], dict[str, str]]] = []
    if start.links:
        narrow = f", include = [{toml_value(start.path)}]" if start.path else ""
        follow = [f'follow = [{{ css = {toml_value(start.links)}, to = "item", priority = 8{narrow} }}]']
        if start.following:
            follow.append(f"next = {toml_value(start.following)}")
        kinds.append(("listing", "A list of such pages.", follow, {}))
    kinds.append(("item", "What the examples showed.", head, fields))
    return recipe_text(start.urls, kinds, ref, tried)

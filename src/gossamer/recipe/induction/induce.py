"""From pages with known values, and pages without, to a rule for every field with its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..model import FieldType
from .candidates import Candidate, Pool, SourceTable, compiled, value_on
from .currency import doubt, unstruck
from .decision import Decision, Finding, Tried, decide, joined, ranked, tried
from .goal import NUMBERS, Goal, Sample
from .words import is_enumeration, spoken_candidates, told_candidates, word_candidates, word_places

MOST_KNOWN = 60  # samples with known values that are read
MOST_OTHERS = 40  # samples without
_PAIRED = 8  # of the best rules, whose pairs are tried


def induce(
    goals: Sequence[Goal],
    samples: Sequence[Sample],
    *,
    old: Mapping[str, Sequence[SourceTable]] | None = None,
    fresh: bool = False,
    plain_css: bool = False,
) -> list[Finding]:
    """The rule for every goal. `old` are sources that were in use, which may still hold on some pages; `fresh`: the
    values were read from these very pages; with `plain_css` a rule is one CSS selector, as code has it."""
    known = _spread([one for one in samples if one.values is not None], MOST_KNOWN)
    others = _spread([one for one in samples if one.values is None], MOST_OTHERS)
    pool = Pool(goals, fresh=fresh)
    for sample in known:
        pool.add(sample)
    everything = [*known, *others]
    found: list[Finding] = []
    places: list[tuple[SourceTable, float]] | None = None
    texts: dict[str, list[Any]] = {}
    for at, goal in enumerate(goals):
        values = [(sample.values or {}).get(goal.name) for sample in known]
        rules = [
            rule
            for one in pool.best(at, plain_css=plain_css)
            if (rule := _try(goal, one, everything, values)) is not None
        ]
        if plain_css:
            finding = decide(goal, ranked(rules, goal), values, [sample.name for sample in known], fresh=fresh)
            found.append(finding)
            continue
        wanted = sum(value is not None for value in values)
        best = max((rule.agree for rule in rules), default=0)
        if is_enumeration(goal, values) and best < 0.85 * wanted:
            if places is None:
                places = word_places(known)
            for one in word_candidates(goal, known, places, texts):
                if (rule := _try(goal, one, everything, values)) is not None:
                    rules.append(rule)
        if goal.type is FieldType.BOOL and not goal.many:
            if places is None:
                places = word_places(known)
            for one in spoken_candidates(goal, known, everything, places):
                if (rule := _try(goal, one, everything, values)) is not None:
                    rules.append(rule)
        if fresh and not any(rule.agree for rule in rules):
            if places is None:
                places = word_places([*known, *others])
            for one in told_candidates(goal, known, everything, places):
                if (rule := _try(goal, one, everything, values)) is not None:
                    rules.append(rule)
        if (
            goal.type is FieldType.MONEY
            and not goal.former
            and not (fresh and not unstruck(goal, rules, known, values))
        ):
            rules = unstruck(goal, rules, everything, values)  # but a person may want the one that is struck out
        rules = ranked(rules, goal)
        if goal.type in NUMBERS:
            rules = ranked([*rules, *_other_decimals(goal, rules, everything, values)], goal)
        rules = ranked([*rules, *_pairs(goal, rules, values, everything, (old or {}).get(goal.name, ()))], goal)
        doubted = None
        if goal.type is FieldType.MONEY and rules and not fresh:
            doubted = doubt(goal, rules[0], everything, values)
            if doubted is not None and (sure := _undoubted(goal, rules, everything, values)) is not None:
                rules, doubted = [sure, *(one for one in rules if one is not sure)], None
        finding = decide(goal, rules, values, [sample.name for sample in known], fresh=fresh)
        if finding.decision is not Decision.REFUSE:
            finding = _with_doubt(finding, doubted)
        found.append(finding)
    return found


def _undoubted(goal: Goal, rules: Sequence[Tried], samples: Sequence[Sample], known: Sequence[Any]) -> Tried | None:
    """Where the best rule reads data without a currency: a rule that says the same on every page, at a place where the
    currency is written."""
    best = rules[0]
    if not any("structured" in table or "json" in table for table in best.tables):
        return None
    for one in rules[1 : 4 * _PAIRED]:
        pairs = zip(best.values, one.values, strict=True)
        same = all((a is None) == (b is None) and (a is None or a.amount == b.amount) for a, b in pairs)
        if same and doubt(goal, one, samples, known) is None:
            return one
    return None


def _with_doubt(finding: Finding, doubted: tuple[Decision, str] | None) -> Finding:
    """The finding, no bolder than its doubt allows. What is refused has no rule that could be written."""
    if doubted is None:
        return finding
    decision, reason = doubted
    if decision is Decision.REFUSE:
        return msgspec.structs.replace(finding, decision=decision, reason=reason, sources=(), examples=())
    return msgspec.structs.replace(finding, decision=decision, reason=f"{finding.reason}; {reason}")


def _spread(samples: list[Sample], most: int) -> list[Sample]:
    """At most so many, from all of the list."""
    if len(samples) <= most:
        return samples
    return [samples[at * len(samples) // most] for at in range(most)]


def _try(goal: Goal, candidate: Candidate, samples: Sequence[Sample], known: Sequence[Any]) -> Tried | None:
    field = compiled(goal, [candidate.table])
    if field is None:
        return None
    return tried(candidate, [value_on(field, sample) for sample in samples], known, goal)


def _other_decimals(goal: Goal, rules: Sequence[Tried], samples: Sequence[Sample], known: Sequence[Any]) -> list[Tried]:
    """The best rules with the other sign as the decimal one: the known numbers may all be too small to tell, and larger
    ones of other pages cannot be read."""
    more = []
    for one in rules[:_PAIRED]:
        if len(one.tables) != 1 or None not in one.values or isinstance(one.tables[0].get("scale"), float):
            continue
        table = {name: value for name, value in one.tables[0].items() if name != "decimal"}
        if "decimal" not in one.tables[0]:
            table["decimal"] = ","
        other = _try(goal, Candidate(table, one.weight, 0), samples, known)
        if other is not None and other.agree == one.agree and other.values.count(None) < one.values.count(None):
            more.append(other)
    return more


def _pairs(
    goal: Goal, rules: list[Tried], known: Sequence[Any], samples: Sequence[Sample], old: Sequence[SourceTable]
) -> list[Tried]:
    """Two sources in order, where one alone leaves pages without a value: for pages of two layouts."""
    if not rules or not rules[0].missing or goal.type is FieldType.MONEY:
        return []  # of prices, the one before a sale and the one after it would be such a pair
    more = []
    for table in old:
        if (rule := _try(goal, Candidate(table, 0.6, 0), samples, known)) is not None and rule.agree:
            more.append(rule)
    best = rules[0]
    gaps = [at for at, value in enumerate(known) if value is not None and best.values[at] is None]
    fillers = sorted(
        (one for one in [*more, *rules[1:]] if any(one.values[at] is not None for at in gaps)),
        key=lambda one: -sum(one.values[at] is not None for at in gaps),
    )[: 2 * _PAIRED]
    pairs = []
    for first in rules[:_PAIRED]:
        for second in fillers:
            if first is not second:
                pairs += [joined(first, second, known, goal), joined(second, first, known, goal)]
    return [one for one in pairs if one.agree > best.agree]

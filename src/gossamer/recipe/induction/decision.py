"""Scores of tried rules, their rivals, and what follows for the field: heal, propose or refuse."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from ..model import FieldType
from .candidates import Candidate, SourceTable
from .goal import LONG, NUMBERS, Goal, agrees, spelled

AGREE, DIFFER, MISSING, UNKNOWN = 1.0, -0.7, -0.5, -1.0
_STABLE = 0.15  # what the weight of a rule adds to its score
_STABLE_ALONE = 0.5  # and what it adds where a single page is known; with n pages the nth part of it
_FILLED = 0.3  # what a value on every page adds
_UNISON = 0.3  # what agreement with the other good rules adds on pages without a record
_CHANGES = {FieldType.MONEY: 0.35, FieldType.INT: 0.35, FieldType.FLOAT: 0.35, FieldType.DECIMAL: 0.35}
_OTHERS_CHANGE = 0.3  # of a field of whose changes nothing is known
_LEAST = 0.5  # agreement below which nothing is healed
_PROPOSED = 0.4  # agreement below which nothing is proposed
_FEW = 3  # different values that must agree before a rule is used unasked
_CONSTANT = -0.5  # what a value that stands on every page costs, where few are known: it is a part of the site
_CONSTANT_ON = 6  # pages
_VOTERS = 24
_NEAR = 0.25  # of the best score: who votes, and who is a rival


class Decision(StrEnum):
    HEAL = "heal"  # the evidence is good enough to use the rule unasked
    PROPOSE = "propose"  # a person should look at it first
    REFUSE = "refuse"  # nothing on the pages is this field


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A rule, and the value that it found on every sample: those with known values first."""

    tables: tuple[SourceTable, ...]
    weight: float
    values: tuple[Any, ...]
    agree: int = 0
    differ: int = 0
    missing: int = 0
    extra: int = 0  # values where the record has none
    unison: float = 0.0
    score: float = 0.0

    @property
    def known(self) -> int:
        return self.agree + self.differ + self.missing

    @property
    def is_constant(self) -> bool:
        """Does it find the same on many pages, of which few are known? Then it is likely a part of the site."""
        found = [value for value in self.values if value is not None]
        few = self.known < _FEW and len(found) >= _CONSTANT_ON
        return few and len({spelled(value) for value in found}) == 1


class Example(msgspec.Struct, frozen=True):
    """A stored value and what the new rule finds."""

    page: str
    stored: Any
    found: Any
    agrees: bool


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The rule for a field, and the evidence for it."""

    field: str
    decision: Decision
    reason: str
    sources: tuple[SourceTable, ...] = ()
    known: int = 0  # pages whose value is known
    agree: int = 0
    differ: int = 0
    missing: int = 0
    extra: int = 0
    fill: float = 0.0  # share of the pages without a record on which the rule finds a value
    locators: int = 0  # rules that agree with this one on nearly all pages
    rival: tuple[SourceTable, ...] = ()  # a rule that agrees as well and says something else elsewhere
    examples: tuple[Example, ...] = ()


def tried(candidate: Candidate, values: Sequence[Any], known: Sequence[Any], goal: Goal) -> Tried:
    """The rule with its counts. `known` has None for a sample whose record has no value."""
    return _counted((candidate.table,), candidate.weight, tuple(values), known, goal)


def joined(first: Tried, second: Tried, known: Sequence[Any], goal: Goal) -> Tried:
    """Two rules in order: the second where the first finds nothing."""
    values = tuple(one if one is not None else other for one, other in zip(first.values, second.values, strict=True))
    weight = min(first.weight, second.weight) - 0.05
    return _counted((*first.tables, *second.tables), weight, values, known, goal)


def _counted(
    tables: tuple[SourceTable, ...], weight: float, values: tuple[Any, ...], known: Sequence[Any], goal: Goal
) -> Tried:
    agree = differ = missing = extra = 0
    for value, wanted in zip(values, known, strict=False):
        if wanted is None:
            extra += value is not None
        elif value is None:
            missing += 1
        elif agrees(value, wanted, goal):
            agree += 1
        else:
            differ += 1
    rule = Tried(tables=tables, weight=weight, values=values, agree=agree, differ=differ, missing=missing, extra=extra)
    return msgspec.structs.replace(rule, score=_score(rule))


def _score(rule: Tried) -> float:
    pages = max(rule.known, 1)
    if rule.is_constant:
        return _CONSTANT + _counted_score(rule, pages)
    return _counted_score(rule, pages)


def _counted_score(rule: Tried, pages: int) -> float:
    points = AGREE * rule.agree + DIFFER * rule.differ + MISSING * rule.missing + UNKNOWN * rule.extra
    filled = sum(value is not None for value in rule.values) / max(len(rule.values), 1)
    stable = (_STABLE + _STABLE_ALONE / pages) * rule.weight
    return points / pages + stable + _UNISON * rule.unison + _FILLED * filled


def ranked(rules: Sequence[Tried], goal: Goal) -> list[Tried]:
    """The rules by their scores, after the good ones have voted on every page."""
    if not rules:
        return []
    first = sorted(rules, key=lambda one: -one.score)
    voters = [one for one in first if one.score >= first[0].score - _NEAR][:_VOTERS]
    # Rules that find the same everywhere have one vote, that of the most stable of them.
    parties: dict[Any, float] = {}
    for voter in voters:
        values = tuple(spelled(value) for value in voter.values)
        parties[values] = max(parties.get(values, 0.1), voter.weight)
    ballots = []
    for at in range(len(first[0].values)):
        votes: dict[Any, float] = defaultdict(float)
        for values, weight in parties.items():
            if values[at] is not None:
                votes[values[at]] += weight
        ballots.append(max(votes, key=lambda value: votes[value]) if votes else None)
    again = []
    for one in first:
        counted = [(spelled(value), vote) for value, vote in zip(one.values, ballots, strict=True) if vote is not None]
        unison = sum(value == vote for value, vote in counted) / len(counted) if counted else 0.0
        rule = msgspec.structs.replace(one, unison=unison)
        again.append(msgspec.structs.replace(rule, score=_score(rule)))
    return sorted(again, key=lambda one: (-round(one.score, 3), -_room(one, goal), len(str(one.tables))))


def _room(rule: Tried, goal: Goal) -> int:
    """Of long texts the longer one is the whole."""
    if goal.type is not FieldType.TEXT or goal.many:
        return 0
    lengths = [len(value) for value in rule.values if isinstance(value, str)]
    return sum(lengths) if lengths and sum(lengths) / len(lengths) >= LONG else 0


def decide(goal: Goal, rules: Sequence[Tried], known: Sequence[Any], names: Sequence[str], *, fresh: bool) -> Finding:
    """What follows for the field. `rules` are ranked; `fresh` values were read from these very pages by a person, so
    that every one of them must agree."""
    wanted = sum(value is not None for value in known)
    if not wanted:
        return Finding(field=goal.name, decision=Decision.REFUSE, reason="no value of it is known")
    if not rules or not rules[0].agree:
        return Finding(
            field=goal.name, decision=Decision.REFUSE, reason="its values stand nowhere on the pages", known=wanted
        )
    best = rules[0]
    rest = best.values[len(known) :]
    fill = sum(value is not None for value in rest) / len(rest) if rest else 1.0
    rival, alike = _rivals(best, rules, fresh=fresh)
    decision, reason = _judge(goal, best, known, fill, rest, rival, fresh=fresh)
    return Finding(
        field=goal.name,
        decision=decision,
        reason=reason,
        sources=best.tables,
        known=wanted,
        agree=best.agree,
        differ=best.differ,
        missing=best.missing,
        extra=best.extra,
        fill=round(fill, 3),
        locators=alike,
        rival=rival.tables if rival is not None else (),
        examples=_examples(goal, best, known, names),
    )


def _judge(
    goal: Goal,
    best: Tried,
    known: Sequence[Any],
    fill: float,
    rest: Sequence[Any],
    rival: Tried | None,
    *,
    fresh: bool,
) -> tuple[Decision, str]:
    wanted, share = best.known, best.agree / best.known
    told = f"{best.agree} of {wanted} known values agree"
    same = {
        spelled(value)
        for value, one in zip(best.values, known, strict=False)
        if one is not None and agrees(value, one, goal)
    }
    if fresh:
        if best.agree < wanted:
            return Decision.PROPOSE, f"{told}; no rule gives all of them"
        if best.is_constant:
            return Decision.PROPOSE, f"{told}, but every other page has the same there"
        if rival is not None:
            return Decision.PROPOSE, f"{told}, and so do those of another place that says something else on other pages"
        if rest and fill < 0.5:
            return Decision.PROPOSE, f"{told}, but only {fill:.0%} of the other pages have a value there"
        return Decision.HEAL, told
    least = expected_agreement(goal, wanted)
    if share < _PROPOSED or best.agree < 2:
        return Decision.REFUSE, f"only {told}"
    if goal.key and share < least:
        return Decision.REFUSE, f"only {told}, and a key does not change"
    faults = []
    if share < least:
        faults.append(f"at least {least:.0%} were expected")
    if wanted < 4 or len(same) < min(_FEW, len({spelled(value) for value in known if value is not None})):
        faults.append("too few different values to be sure")
    if best.missing > 0.2 * wanted:
        faults.append(f"nothing was found for {best.missing} of them")
    if best.extra > 0.2 * max(wanted, len(known) - wanted):
        faults.append(f"{best.extra} pages have a value whose record has none")
    filled = wanted / len(known)
    if rest and fill < 0.6 * filled:
        faults.append(f"only {fill:.0%} of the other pages have a value there")
    if fault := _implausible(goal, known, rest):
        faults.append(fault)
    if rival is not None:
        faults.append("another place agrees as well and says something else")
    if faults:
        return Decision.PROPOSE, f"{told}; {'; '.join(faults)}"
    return Decision.HEAL, told


def expected_agreement(goal: Goal, wanted: int) -> float:
    """The agreement that the field's own changes leave, with what chance may take from it."""
    change = goal.change if goal.change is not None else _CHANGES.get(goal.type, _OTHERS_CHANGE)
    if goal.key:
        change = min(change, 0.05)
    chance = 2 * math.sqrt(max(change * (1 - change), 0.01) / wanted)
    return max(_LEAST, 1 - change - chance - 0.05)


def _implausible(goal: Goal, known: Sequence[Any], rest: Sequence[Any]) -> str:
    """Values on pages without a record that are of another kind than those of the history."""
    old = [value for value in known if value is not None]
    new = [value for value in rest if value is not None]
    if len(new) < 5 or len(old) < 5 or goal.many:
        return ""
    if goal.type in NUMBERS or goal.type is FieldType.MONEY:
        before, after = ([float(getattr(value, "amount", value)) for value in values] for values in (old, new))
        low, high = min(before), max(before)
        room = 3 * max(high - low, abs(high), 1e-9)
        if sum(low - room <= value <= high + room for value in after) < 0.8 * len(after):
            return "values on other pages are far from those of the history"
    distinct_before = len({spelled(value) for value in old}) / len(old)
    # Compared on as many values as are known: the more there are, the fewer of them are different.
    groups = [new[at : at + len(old)] for at in range(0, len(new) - len(old) + 1, len(old))] or [new]
    distinct_after = sum(len({spelled(value) for value in some}) / len(some) for some in groups) / len(groups)
    if distinct_before > 0.8 and distinct_after < 0.5:
        return "the same value stands on many other pages"
    return ""


def _rivals(best: Tried, rules: Sequence[Tried], *, fresh: bool) -> tuple[Tried | None, int]:
    """A rule as good as the best that says something else on many pages, and how many rules say the same."""
    rival, alike = None, 0
    for one in rules[1:]:
        if one.agree < best.agree or one.score < best.score - _NEAR * (2 if fresh else 1):
            continue
        pairs = [(a, b) for a, b in zip(best.values, one.values, strict=True) if a is not None and b is not None]
        different = sum(spelled(a) != spelled(b) for a, b in pairs)
        if different <= 0.03 * len(pairs):
            alike += 1
        elif (
            rival is None
            and different > 0.1 * len(pairs)
            and one.weight >= 0.55
            and one.missing <= best.missing
            and (one.unison > best.unison - 0.3 or (fresh and one.weight > best.weight - 0.1))
        ):
            rival = one
    return rival, alike


def _examples(goal: Goal, best: Tried, known: Sequence[Any], names: Sequence[str]) -> tuple[Example, ...]:
    """Five values beside the stored ones, some of which differ if any do."""
    found = [
        Example(name, wanted, value, agrees(value, wanted, goal))
        for name, wanted, value in zip(names, known, best.values, strict=False)
        if wanted is not None
    ]
    same, other = [one for one in found if one.agrees], [one for one in found if not one.agrees]
    few = other[: max(2, 5 - len(same))]
    return tuple((same[: 5 - len(few)] + few)[:5])

"""Heals a recipe after its site has changed: new rules are learned from what the records hold and what the archive has.

What it does: of the newest archived copy of every page, those are taken on which the recipe finds nothing for a field
that it needs or used to find. Their records, known by address or by key, say what stood there; the rules of
recipe/induction are tried on pages without a record as well. Nothing is requested and nothing is stored: rules.py
takes rules into use. How it fails: BackendUnavailable, Misconfigured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...clock import iso_time
from ...errors import Permanent
from ...model.healing import EACH, FILE, HealedField, RulesVersion
from ...model.page import Snapshot
from ...model.record import PageFacts
from ...model.task import DEFAULT_KIND
from ...model.url import site_of
from ...recipe.edit import definition, field_line, toml_value
from ...recipe.induction.candidates import SourceTable
from ...recipe.induction.decision import Decision, Finding
from ...recipe.induction.goal import Goal, Sample, goals_of
from ...recipe.induction.induce import induce
from ...recipe.induction.repeats import Blocks
from ...recipe.model import FieldType, PageKind
from ...recipe.overlay import raw_field
from ...recipe.spider import RecipeSpider
from ...units import many
from ..open import Project
from .drift import FieldDrift, drift_words, spider_drift
from .field_change import field_changes
from .rules import healed, rules_of
from .shown_pages import (
    Shown,
    ShownKind,
    is_healable,
    known_records,
    newest_visits,
    shown_kind,
    values_of,
)

BROKEN = 0.5  # share of the changed pages on which a rule finds nothing any more


class HealExample(msgspec.Struct, frozen=True, kw_only=True):
    page: str
    stored: str
    found: str | None
    agrees: bool


class FieldHealing(msgspec.Struct, frozen=True, kw_only=True):
    """A field whose rule finds nothing any more, and what was learned."""

    field: str
    decision: Decision
    reason: str
    old_rule: str
    new_rule: str  # as TOML; "" if there is none
    sources: list[dict[str, Any]]  # of it, those that are new
    known: int
    required: bool  # or part of the key
    money: bool
    agree: int
    differ: int
    missing: int
    fill: float
    locators: int  # other rules that say the same
    examples: list[HealExample]


class KindHealing(msgspec.Struct, frozen=True, kw_only=True):
    """A page kind that changed."""

    kind: str
    item: str
    pages: int  # that changed, of those that were read
    read: int
    known: int  # of them, those with a record
    since: str  # when the first of them was fetched
    incomplete: int  # of them, those that were parsed, without these fields
    fields: list[FieldHealing]
    unhurt: list[str]  # fields whose rules still find something


class Healing(msgspec.Struct, frozen=True, kw_only=True):
    """What `gossamer heal` found. Without kinds nothing is broken."""

    spider: str
    file: str
    site: str  # of most of the pages that changed
    rules: int  # the version of the healed rules in use; 0: the file alone
    ended: bool  # the file has changed since rules were healed, which ended them
    read: int
    kinds: list[KindHealing]
    left_out: list[str]  # kinds with records that cannot be healed yet, each with the reason
    drift: list[FieldDrift] = []  # values of another kind than before, though rules find them

    def words(self) -> str:
        """What a person should know of it: since when, how many fields have new rules, and which have none."""
        if not self.kinds:
            return drift_words(self.drift) or "Nothing is broken: the rules find what they found before."
        since = min(kind.since for kind in self.kinds)
        fields = [one for kind in self.kinds for one in kind.fields]
        sure = [one for one in fields if one.decision is Decision.HEAL]
        told = [f"{one.field}: {one.agree} of {one.known} known values agree" for one in _least_sure(sure)]
        rest = [
            f"{', '.join(f'{one.field}: {one.agree} of {one.known}' for one in some)} {word}"
            for word, some in (
                ("only proposed", [one for one in fields if one.decision is Decision.PROPOSE]),
                ("refused", [one for one in fields if one.decision is Decision.REFUSE]),
            )
            if some
        ]
        new = f"New rules for {len(sure)} of {many(len(fields), 'lost field')}{f' ({told[0]})' if told else ''}"
        pages = many(sum(kind.pages for kind in self.kinds), "page")
        when = f"{since[:10]} {since[11:16]} UTC"
        return f"Layout of {self.site} changed at {when}, on {pages}. {'; '.join([new, *rest])}."


def _least_sure(fields: Sequence[FieldHealing]) -> list[FieldHealing]:
    return sorted(fields, key=lambda one: one.agree / max(one.known, 1))


async def find_healing(project: Project, spider: RecipeSpider, *, tell: Any = lambda words: None) -> Healing:
    """What a recipe has lost with the rules that hold for it now, and the rules that would find it again. Raises
    Misconfigured, BackendUnavailable."""
    rules = await rules_of(project, spider.name)
    spider = healed(project.settings, spider, rules)
    recipe, held = spider.recipe, rules.in_use(spider.recipe.text)
    visits = await newest_visits(project, spider.name)
    wanted = [kind for kind in recipe.kinds.values() if is_healable(kind)]
    copies: dict[str, list[tuple[PageFacts, Snapshot]]] = {kind.name: [] for kind in wanted}
    for at in range(0, len(visits), 20):
        some = visits[at : at + 20]
        for visit, copy in zip(some, await project.archive.get_many([one.archive_ref for one in some]), strict=True):
            if isinstance(copy, Permanent):
                continue  # pruned meanwhile
            name = recipe.start_kind if copy.kind == DEFAULT_KIND else copy.kind
            if name in copies:
                copies[name].append((visit, copy))
    kinds, sites = [], Counter[str]()
    for kind in wanted:
        known = await known_records(project, spider.name, kind)
        shown = shown_kind(spider, kind, copies.pop(kind.name), known)
        sites.update(site_of(one.page.url) for one in shown.parts)
        now = max((one.fetched_at for one in shown.parts), default=0.0)
        changes = await field_changes(project.records, known.stored, [field.name for field in kind.fields], now)
        if (healing := _heal_kind(spider, kind, shown, changes, held)) is not None:
            kinds.append(healing)
    return Healing(
        spider=spider.name,
        file=recipe.file,
        site=sites.most_common(1)[0][0] if sites else "",
        rules=held.version if held is not None else FILE,
        ended=held is None and rules.current != FILE,
        read=len(visits),
        kinds=kinds,
        left_out=[
            f"{kind.name}: a part of a page, or items of JSON"
            for kind in recipe.kinds.values()
            if kind.item and kind not in wanted
        ],
        drift=await spider_drift(project, spider.name),
    )


def _heal_kind(
    spider: RecipeSpider, kind: PageKind, shown: ShownKind, changes: Mapping[str, float], held: RulesVersion | None
) -> KindHealing | None:
    goals = [msgspec.structs.replace(one, change=changes.get(one.name)) for one in goals_of(kind.fields, kind.key)]
    required = {field.name for field in kind.fields if field.required}
    changed = []
    for one in shown.parts:
        had = {name for name, value in (one.values or {}).items() if value not in (None, "", [])}
        if one.lost & (had | required):
            changed.append(one)
    broken = [goal for goal in goals if _is_broken(goal, changed)]
    if shown.bare and shown.blocks is None and not kind.allow_empty:
        changed, broken = [*changed, *shown.bare], []
    elif not broken:
        return None
    raw = {goal.name: raw_field(spider.recipe, kind.name, goal.name, rules=held) for goal in broken}
    samples = [
        Sample(
            part=one.part,
            values=values_of(broken, one.values) if one.values is not None else None,
            name=one.page.url,
        )
        for one in changed
    ]
    old = {goal.name: _old_sources(raw.get(goal.name)) for goal in broken}
    findings = induce(broken, samples, old=old)
    rules = {field.name: field.rule() for field in kind.fields}
    fields = [
        _field_healing(goal, finding, rules[goal.name], raw.get(goal.name))
        for goal, finding in zip(broken, findings, strict=True)
    ]
    if shown.bare and (shown.blocks is not None or not broken):
        fields.insert(0, _each_healing(kind, shown.blocks))
    return KindHealing(
        kind=kind.name,
        item=kind.item,
        pages=len({one.page.url for one in changed}),
        read=shown.pages,
        known=sum(one.values is not None for one in changed),
        since=iso_time(min(one.fetched_at for one in changed)),
        incomplete=len({one.page.url for one in changed if not one.failed}),
        fields=fields,
        unhurt=[goal.name for goal in goals if goal not in broken],
    )


def _each_healing(kind: PageKind, blocks: Blocks | None) -> FieldHealing:
    """The blocks of a list, as a field whose values are the records."""
    if blocks is None:
        return FieldHealing(
            field=EACH, decision=Decision.REFUSE, reason="no records stand on the pages, each in a block of its own",
            old_rule=str(kind.each), new_rule="", sources=[], known=0, required=True, money=False, agree=0, differ=0,
            missing=0, fill=0.0, locators=0, examples=[],
        )  # fmt: skip
    told = f"{blocks.agree} of {blocks.known} known records have a block of their own, of {blocks.found} blocks"
    return FieldHealing(
        field=EACH,
        decision=Decision.HEAL if blocks.is_sure else Decision.PROPOSE,
        reason=told,
        old_rule=str(kind.each),
        new_rule=f"each = {toml_value(blocks.css)}",
        sources=[{"css": blocks.css}],
        known=blocks.known,
        required=True,
        money=False,
        agree=blocks.agree,
        differ=0,
        missing=blocks.known - blocks.agree,
        fill=1.0,
        locators=0,
        examples=[],
    )


def _is_broken(goal: Goal, changed: Sequence[Shown]) -> bool:
    """Does its rule find nothing on most of the pages on which it should?"""
    due = [one for one in changed if one.values is not None and one.values.get(goal.name) not in (None, "", [])]
    due = due or ([one for one in changed if one.values is None] if goal.required else [])
    return bool(due) and sum(goal.name in one.lost for one in due) >= BROKEN * len(due)


def _old_sources(raw: Any) -> list[SourceTable]:
    return list(definition(raw, [])["sources"]) if raw is not None else []


def _field_healing(goal: Goal, finding: Finding, rule: str, raw: Any) -> FieldHealing:
    new = field_line(finding.field, definition(raw, finding.sources)) if finding.sources else ""
    return FieldHealing(
        field=finding.field,
        decision=finding.decision,
        reason=finding.reason,
        old_rule=rule,
        new_rule=new,
        sources=[one for one in finding.sources if one not in _old_sources(raw)],
        known=finding.known,
        required=goal.required or goal.key,
        money=goal.type is FieldType.MONEY,
        agree=finding.agree,
        differ=finding.differ,
        missing=finding.missing,
        fill=finding.fill,
        locators=finding.locators,
        examples=[
            HealExample(
                page=one.page,
                stored=str(one.stored),
                found=None if one.found is None else str(one.found),
                agrees=one.agrees,
            )
            for one in finding.examples
        ],
    )


def chosen_fields(healing: Healing, proposed: Sequence[str] = ()) -> list[HealedField]:
    """The rules that are used unasked, and of those that are only proposed the ones that a person names."""
    return [
        HealedField(kind=kind.kind, field=one.field, sources=tuple(one.sources), agree=one.agree, known=one.known)
        for kind in healing.kinds
        for one in kind.fields
        if one.sources
        and (one.decision is Decision.HEAL or (one.decision is Decision.PROPOSE and one.field in proposed))
    ]

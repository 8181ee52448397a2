"""New layouts and healed rules as programs and the dashboard work with them: listed, shown with the evidence, learned,
taken into use, left again, and the values that healed rules gave.

Learning and parsing run in a child process (learner.py), never in that of the server. The endpoints and the client's
calls are made of OPERATIONS; on the command line all of it is `gossamer heal SPIDER`. How it fails: NotThere for a
spider without any of it, Misconfigured with what to do, BackendUnavailable.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ...clock import iso_time
from ...errors import Misconfigured, NotThere
from ...model.healing import LayoutChange
from ...parse.discovery import load_spider, made_spider
from ...recipe.spider import RecipeSpider
from ..access.keys import ADMIN, Caller
from ..open import Project
from ..operation import Operation
from .apply import Undone, undo
from .heal import Healing
from .healed_values import HealedValue, healed_values
from .layout_change import layout_change_of, layout_changes
from .learner import CHOSEN, LearnOrder, run_learner
from .rules import rules_of

SpiderName = Annotated[str, Meta(max_length=100, description="A recipe, by its name.")]
FieldName = Annotated[str, Meta(max_length=200)]


class HealingRow(msgspec.Struct, frozen=True, kw_only=True):
    """A new layout that a recipe met. `state`: found, applied, doubtful, unlearned, over."""

    spider: str
    state: str
    at: str
    job: str
    words: str


class RulesView(msgspec.Struct, frozen=True, kw_only=True):
    """A version of the healed rules of a recipe."""

    version: int
    at: str
    by: str
    fields: list[str]
    current: bool


class HealingView(HealingRow, frozen=True, kw_only=True):
    """What is known of one recipe. `evidence` is what was learned, for every field that was lost."""

    letters: int
    rules: list[RulesView]
    evidence: Healing | None


class HealingQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    open: Annotated[bool, Meta(description="Only those that are not over.")] = False


class HealingOf(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    spider: SpiderName


class HealingApply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    spider: SpiderName
    fields: Annotated[
        tuple[FieldName, ...], Meta(max_length=200, description="Also these, whose rules are only proposed.")
    ] = ()


class HealingUndo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    spider: SpiderName
    keep_values: Annotated[bool, Meta(description="What these rules gave stays.")] = False


class ValuesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    spider: SpiderName
    field: Annotated[FieldName | None, Meta(description="Only this field.")] = None
    limit: Annotated[int, Meta(ge=1, le=1000, description="At most this many.")] = 100


async def list_healings(project: Project, caller: Caller, query: HealingQuery) -> list[HealingRow]:
    """Every new layout that is known, the newest first."""
    found = [one for one in (await layout_changes(project)).values() if one.is_open or not query.open]
    return [
        HealingRow(spider=one.spider, state=one.state.value, at=iso_time(one.at), job=one.job, words=one.words)
        for one in sorted(found, key=lambda one: -one.at)
    ]


async def show_healing(project: Project, caller: Caller, asked: HealingOf) -> HealingView:
    """Raises NotThere."""
    change = await layout_change_of(project, asked.spider)
    rules = await rules_of(project, asked.spider)
    if change is None and not rules.versions:
        raise NotThere(f"No new layout of {asked.spider} is known. `gossamer heal {asked.spider}` looks for one.")
    return HealingView(
        spider=asked.spider,
        state=change.state.value if change is not None else "over",
        at=iso_time(change.at if change is not None else rules.versions[-1].at),
        job=change.job if change is not None else "",
        words=change.words if change is not None else "",
        letters=change.letters if change is not None else 0,
        rules=[
            RulesView(
                version=one.version,
                at=iso_time(one.at),
                by=one.by,
                fields=[field.field for field in one.fields],
                current=one.version == rules.current,
            )
            for one in reversed(rules.versions)
        ],
        evidence=_evidence(change),
    )


def _evidence(change: LayoutChange | None) -> Healing | None:
    try:
        return msgspec.json.decode(change.evidence, type=Healing) if change is not None else None
    except msgspec.MsgspecError:  # of another version, or there is none
        return None


async def learn_healing(project: Project, caller: Caller, asked: HealingOf) -> HealingView:
    """Learn the rules again, from what is stored; returns when that is done. Raises Misconfigured, NotThere."""
    return await _learned(project, caller, LearnOrder(spider=asked.spider, by=caller.name))


async def apply_healing(project: Project, caller: Caller, asked: HealingApply) -> HealingView:
    """Learn, take sure rules and those of the named fields into use, and parse the changed pages again; returns when
    that is done. Raises Misconfigured, NotThere."""
    order = LearnOrder(spider=asked.spider, apply=CHOSEN, fields=asked.fields, by=caller.name)
    return await _learned(project, caller, order)


async def _learned(project: Project, caller: Caller, order: LearnOrder) -> HealingView:
    fault = await run_learner(project, order)
    if fault:
        raise Misconfigured(fault)
    return await show_healing(project, caller, HealingOf(spider=order.spider))


async def undo_healing(project: Project, caller: Caller, asked: HealingUndo) -> Undone:
    """Raises Misconfigured if no healed rules are in use, or if there is no such recipe."""
    settings = project.settings
    spider = made_spider(await asyncio.to_thread(load_spider, asked.spider, settings.root, settings.spiders))
    if not isinstance(spider, RecipeSpider):
        raise Misconfigured(f"{spider.name} is a spider in Python; only rules of recipes are healed.")
    return await undo(project, spider, keep_values=asked.keep_values)


async def list_healed_values(project: Project, caller: Caller, query: ValuesQuery) -> list[HealedValue]:
    found: list[HealedValue] = []
    async for one in healed_values(project, query.spider, field=query.field):
        found.append(one)
        if len(found) >= query.limit:
            break
    return found


_Any = Operation[Any, Any]  # Any: each has its own types
OPERATIONS: tuple[_Any, ...] = (
    Operation(
        verb="healing list", summary="List the new layouts that recipes met",
        method="GET", path="/api/v1/healings", scope=ADMIN, ask=HealingQuery, gives=list[HealingRow],
        run=list_healings,
    ),
    Operation(
        verb="healing show", summary="Show what was learned for a recipe, with the evidence for every field",
        method="GET", path="/api/v1/healings/{spider}", scope=ADMIN, ask=HealingOf, gives=HealingView, run=show_healing,
    ),
    Operation(
        verb="healing learn", summary="Learn the rules of a recipe again, from its records and the archive",
        method="POST", path="/api/v1/healings/{spider}/learn", scope=ADMIN, ask=HealingOf, gives=HealingView,
        run=learn_healing,
    ),
    Operation(
        verb="healing apply", summary="Take healed rules into use, and parse the changed pages again",
        method="POST", path="/api/v1/healings/{spider}/apply", scope=ADMIN, ask=HealingApply, gives=HealingView,
        run=apply_healing, example={"fields": ["price"]},
    ),
    Operation(
        verb="healing undo", summary="Take the rules before into use, and take back what the healed ones gave",
        method="POST", path="/api/v1/healings/{spider}/undo", scope=ADMIN, ask=HealingUndo, gives=Undone,
        run=undo_healing, example={"keep_values": False},
    ),
    Operation(
        verb="healing values", summary="List the values that healed rules gave, each with the one before",
        method="GET", path="/api/v1/healings/{spider}/values", scope=ADMIN, ask=ValuesQuery, gives=list[HealedValue],
        run=list_healed_values,
    ),
)  # fmt: skip

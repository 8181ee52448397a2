"""The view of one recipe's new layout: the evidence for every field, and the buttons that apply and undo."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ...errors import NotThere
from ...project.access.keys import ADMIN
from ...project.spiders.healing import (
    HealingApply,
    HealingOf,
    HealingUndo,
    apply_healing,
    learn_healing,
    show_healing,
    undo_healing,
)
from ...project.spiders.stability import rule_stability
from .templates import segment
from .view import Context, Done, FormAction, ShownOnce, View, Visit


class ApplyForm(msgspec.Struct, frozen=True, kw_only=True):
    fields: Annotated[str, Meta(max_length=10_000)] = ""  # names, with commas


class UndoForm(msgspec.Struct, frozen=True, kw_only=True):
    keep_values: Annotated[str, Meta(max_length=3)] = ""


class NoForm(msgspec.Struct, frozen=True):
    pass


async def one(visit: Visit) -> Context:
    name = visit.path["spider"]
    try:
        return {"name": name, "one": await show_healing(visit.project, visit.caller, HealingOf(spider=name))}
    except NotThere:
        return {"name": name, "one": None}


async def stability(visit: Visit) -> ShownOnce:
    name = visit.path["spider"]
    rules = await rule_stability(visit.project, visit.pages, visit.caller, name)
    values = {"name": name, "rules": rules, "back": page_of(name)}
    return ShownOnce(title=f"Rules of {name}", template="stability.html", values=values, target=name)


async def learn(visit: Visit) -> Done:
    name = visit.path["spider"]
    try:
        found = await learn_healing(visit.project, visit.caller, HealingOf(spider=name))
    except NotThere:
        return Done(words="Nothing is broken: the rules find what they found before.", to=page_of(name), target=name)
    return Done(words=found.words, to=page_of(name), target=name)


async def apply(visit: Visit) -> Done:
    name = visit.path["spider"]
    fields = tuple(filter(None, (one.strip() for one in visit.of(ApplyForm).fields.split(","))))
    found = await apply_healing(visit.project, visit.caller, HealingApply(spider=name, fields=fields))
    return Done(words=found.words, to=page_of(name), target=name)


async def undone(visit: Visit) -> Done:
    name = visit.path["spider"]
    asked = HealingUndo(spider=name, keep_values=visit.of(UndoForm).keep_values == "yes")
    told = await undo_healing(visit.project, visit.caller, asked)
    return Done(words=told.words(), to=page_of(name), target=name)


def page_of(name: str) -> str:
    return f"/ui/spiders/{segment(name)}/healing"


VIEWS = (
    View("/ui/spiders/{spider}/healing", "Healing", "healing.html", {"one": one}, ADMIN),
)  # fmt: skip
ACTIONS = (
    FormAction(path="/ui/spiders/{spider}/stability", handler=stability, scope=ADMIN, changes=False),
    FormAction(path="/ui/spiders/{spider}/learn", handler=learn, form=NoForm, scope=ADMIN),
    FormAction(path="/ui/spiders/{spider}/apply", handler=apply, form=ApplyForm, scope=ADMIN),
    FormAction(path="/ui/spiders/{spider}/undo", handler=undone, form=UndoForm, scope=ADMIN),
)

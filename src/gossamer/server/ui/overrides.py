"""The view of what is set by hand: set, listed, taken back. Other pages send their forms here."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ...project.access.keys import ADMIN, JOBS
from ...project.overrides import (
    NewOverride,
    OverrideKey,
    OverrideQuery,
    list_overrides,
    remove_override,
    set_override,
)
from ...settings.overrides import LONGEST, PLAIN
from .view import Context, Done, FormAction, View, Visit

HERE = "/ui/overrides"
Text = Annotated[str, Meta(max_length=LONGEST)]


class OverrideForm(msgspec.Struct, frozen=True, kw_only=True):
    key: Text
    value: Text
    lasts: Text = ""
    reason: Text = ""
    back: Text = HERE  # the page of the dashboard to go to afterwards


class BackForm(msgspec.Struct, frozen=True, kw_only=True):
    key: Text
    back: Text = HERE


class OverrideFilters(msgspec.Struct, frozen=True, kw_only=True):
    q: Text = ""


async def list_region(visit: Visit) -> Context:
    chosen = visit.of(OverrideFilters)
    found = await list_overrides(visit.project, visit.caller, OverrideQuery())
    return {
        "overrides": [one for one in found if chosen.q.lower() in one.key.lower()],
        "filtered": bool(chosen.q),
        "keys": PLAIN,
    }


async def set_by_hand(visit: Visit) -> Done:
    form = visit.of(OverrideForm)
    new = NewOverride(key=form.key, value=form.value, lasts=form.lasts.strip() or None, reason=form.reason)
    one = await set_override(visit.project, visit.caller, new)
    return Done(words=f"{one.key} is {one.value} from now on.", to=_page(form.back), target=one.key)


async def go_back(visit: Visit) -> Done:
    form = visit.of(BackForm)
    one = await remove_override(visit.project, visit.caller, OverrideKey(key=form.key))
    words = f"{one.key} is as the settings say: {one.usual or 'not set'}."
    return Done(words=words, to=_page(form.back), target=one.key)


def _page(address: str) -> str:
    """A page of the dashboard: a form of another site cannot lead elsewhere."""
    return address if address.startswith("/ui/") and "\\" not in address and address.isprintable() else HERE


VIEWS = (
    View(HERE, "Set by hand", "overrides.html", {"listed": list_region}, JOBS, query=OverrideFilters, group="Operate"),
)  # fmt: skip
ACTIONS = (
    FormAction(path=f"{HERE}/set", handler=set_by_hand, form=OverrideForm, scope=ADMIN),
    FormAction(path=f"{HERE}/remove", handler=go_back, form=BackForm, scope=ADMIN),
)

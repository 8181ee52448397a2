"""Views of settings, masked; of keys and the audit log; of callbacks, which can be sent again."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ...errors import Misconfigured
from ...project.callbacks import CallbackState, list_callbacks, replay_callback, show_callback
from ...project.keys import ADMIN, JOBS, SCOPES, SCRAPE, add_key, audit_lines, list_keys, revoke_key
from ...project.settings_view import setting_lines
from ...units import parse_duration
from ..answers import ApiError
from .view import Action, Context, Done, Question, Shown, View, Visit, missing

SHOWN = 200
Text = Annotated[str, Meta(max_length=500)]


class SettingsFilters(msgspec.Struct, frozen=True, kw_only=True):
    q: Text = ""
    changed: bool = False


class CallbacksFilters(msgspec.Struct, frozen=True, kw_only=True):
    state: CallbackState | None = None


class KeyForm(msgspec.Struct, frozen=True, kw_only=True):
    name: Text
    expires: Annotated[str, Meta(max_length=50)] = ""  # 90d; empty is never
    scrape: bool = False
    jobs: bool = False
    records: bool = False
    metrics: bool = False
    admin: bool = False


class IdForm(msgspec.Struct, frozen=True, kw_only=True):
    id: Text


async def settings(visit: Visit) -> Context:
    chosen = visit.of(SettingsFilters)
    lines = [
        line
        for line in setting_lines(visit.project.settings)
        if chosen.q.lower() in line.key and (not chosen.changed or line.origin != "default")
    ]
    return {"lines": lines, "filtered": bool(chosen.q or chosen.changed)}


async def keys(visit: Visit) -> Context:
    return {"keys": await list_keys(visit.project), "audit": await audit_lines(visit.project, limit=SHOWN)}


async def make_key(visit: Visit) -> Shown:
    form = visit.of(KeyForm)
    try:
        expires = parse_duration(form.expires) if form.expires.strip() else None
    except ValueError as error:
        raise Misconfigured(f"{error}.") from error
    made = await add_key(visit.project, form.name, [one for one in SCOPES if getattr(form, one)], expires=expires)
    return Shown(title=f"A key for {made.name}", template="new_key.html", values={"made": made}, target=made.id)


async def ask_to_revoke(visit: Visit) -> Question:
    wanted = visit.of(IdForm).id
    found = next((one for one in await list_keys(visit.project) if one.id == wanted), None)
    if found is None:
        raise missing("key of that id")
    yours = " It is the key that you are signed in with." if found.id == visit.caller.id else ""
    words = f"Revoke the key {found.name}? What it opens is closed to its holder at once.{yours}"
    return Question(words=words, button="Revoke it", back="/ui/keys")


async def revoke(visit: Visit) -> Done:
    gone = await revoke_key(visit.project, visit.of(IdForm).id)
    return Done(words=f"The key {gone.name} is revoked.", to="/ui/keys", target=gone.id)


async def callbacks(visit: Visit) -> Context:
    state = visit.of(CallbacksFilters).state
    found = await list_callbacks(visit.project, owner=_owner(visit), state=state, limit=SHOWN)
    return {"callbacks": found, "states": [one.value for one in CallbackState], "filtered": state is not None}


async def send_again(visit: Visit) -> Done:
    found = await show_callback(visit.project, visit.of(IdForm).id, owner=_owner(visit))
    if found is None:
        raise missing("callback of that id")
    if found.state is CallbackState.WAITING:
        raise ApiError(409, "waiting", "Its job has not ended yet: the callback is sent when it does.")
    await replay_callback(visit.project, found.id)
    return Done(words=f"{found.id} is sent again.", to="/ui/callbacks", target=found.id)


def _owner(visit: Visit) -> str | None:
    return None if visit.caller.is_admin else visit.caller.id


VIEWS = (
    View(
        path="/ui/callbacks",
        title="Callbacks",
        template="callbacks.html",
        regions={"callbacks": callbacks},
        query=CallbacksFilters,
        scope=JOBS,
        or_scope=SCRAPE,
        group="Operate",
    ),
    View(path="/ui/keys", title="Keys", template="keys.html", regions={"listed": keys}, scope=ADMIN, group="Operate"),
    View(
        path="/ui/settings",
        title="Settings",
        template="settings.html",
        regions={"settings": settings},
        query=SettingsFilters,
        scope=ADMIN,
        group="Operate",
        live=False,
    ),
)
ACTIONS = (
    Action(path="/ui/callbacks/replay", handler=send_again, form=IdForm, scope=JOBS, or_scope=SCRAPE),
    Action(path="/ui/keys/add", handler=make_key, form=KeyForm, scope=ADMIN),
    Action(path="/ui/keys/revoke", handler=revoke, ask=ask_to_revoke, form=IdForm, scope=ADMIN),
)

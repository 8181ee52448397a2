"""Views of settings, masked; of keys and the audit log; of callbacks, which can be sent again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from ...errors import Misconfigured
from ...project.access.callbacks import CallbackState, CallbackView, list_callbacks, replay_callback, show_callback
from ...project.access.keys import ADMIN, JOBS, SCOPES, SCRAPE, KeyView, add_key, audit_lines, list_keys, revoke_key
from ...project.row_page import RowFilters, Skipped, row_page
from ...project.settings_view import setting_lines
from ...units import parse_duration
from ..answers import ApiError
from .view import Context, Done, FormAction, IdForm, Question, ShownOnce, View, Visit, missing

LINES_AT_ONCE = 100  # of the audit log
CALLBACKS_LOOKED_AT = 1000
Text = Annotated[str, Meta(max_length=500)]


class SettingsFilters(msgspec.Struct, frozen=True, kw_only=True):
    q: Text = ""
    changed: bool = False


class CallbacksFilters(RowFilters, frozen=True, kw_only=True):
    state: CallbackState | None = None


class KeysFilters(RowFilters, frozen=True, kw_only=True):
    lines: Skipped = 0  # lines of the audit log to skip


class KeyForm(msgspec.Struct, frozen=True, kw_only=True):
    name: Text
    expires: Annotated[str, Meta(max_length=50)] = ""  # 90d; empty is never
    scrape: bool = False
    jobs: bool = False
    records: bool = False
    metrics: bool = False
    admin: bool = False
    role: Annotated[str, Meta(max_length=20)] = ""


async def settings(visit: Visit) -> Context:
    chosen = visit.of(SettingsFilters)
    lines = [
        line
        for line in setting_lines(visit.project.settings)
        if chosen.q.lower() in line.key and (not chosen.changed or line.origin != "default")
    ]
    return {"lines": lines, "filtered": bool(chosen.q or chosen.changed)}


KEY_COLUMNS: dict[str, Callable[[KeyView], object]] = {
    "key": lambda one: one.name.casefold(),
    "made": lambda one: one.created_at,
    "used": lambda one: one.used_at,
    "expires": lambda one: one.expires_at,
}
CALLBACK_COLUMNS: dict[str, Callable[[CallbackView], object]] = {
    "to": lambda one: one.url,
    "tries": lambda one: one.tries,
    "next": lambda one: one.next_at,
    "made": lambda one: one.made_at,
}


async def keys(visit: Visit) -> Context:
    chosen, every = visit.of(KeysFilters), await list_keys(visit.project)
    text = "{0.name} {0.id} {0.state} {0.scopes}".format
    return {"any": bool(every), "page": row_page(every, chosen, text=text, columns=KEY_COLUMNS)}


async def audit(visit: Visit) -> Context:
    skipped = visit.of(KeysFilters).lines
    found = await audit_lines(visit.project, limit=skipped + LINES_AT_ONCE + 1)
    end = skipped + LINES_AT_ONCE
    return {"audit": found[skipped:end], "older": end if len(found) > end else None}


async def make_key(visit: Visit) -> ShownOnce:
    form = visit.of(KeyForm)
    try:
        expires = parse_duration(form.expires) if form.expires.strip() else None
    except ValueError as error:
        raise Misconfigured(f"{error}.") from error
    made = await add_key(
        visit.project, form.name, [one for one in SCOPES if getattr(form, one)], expires=expires, role=form.role
    )
    return ShownOnce(title=f"A key for {made.name}", template="new_key.html", values={"made": made}, target=made.id)


async def ask_to_revoke(visit: Visit) -> Question:
    wanted = visit.of(IdForm).id
    found = next((one for one in await list_keys(visit.project) if one.id == wanted), None)
    if found is None:
        raise missing("key of that id")
    yours = " It is the key that you are signed in with." if found.id == visit.caller.id else ""
    words = f"Revoke the key {found.name}? It stops working at once.{yours}"
    return Question(words=words, button="Revoke it", back="/ui/keys")


async def revoke(visit: Visit) -> Done:
    gone = await revoke_key(visit.project, visit.of(IdForm).id)
    return Done(words=f"The key {gone.name} is revoked.", to="/ui/keys", target=gone.id)


async def callbacks(visit: Visit) -> Context:
    chosen = visit.of(CallbacksFilters)
    found = await list_callbacks(visit.project, owner=_owner(visit), state=chosen.state, limit=CALLBACKS_LOOKED_AT)
    return {
        "page": row_page(found, chosen, text="{0.id} {0.url} {0.job} {0.message}".format, columns=CALLBACK_COLUMNS),
        "states": [one.value for one in CallbackState],
        "filtered": bool(chosen.q or chosen.state is not None),
    }


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
    View("/ui/callbacks", "Callbacks", "callbacks.html", {"callbacks": callbacks}, JOBS, query=CallbacksFilters,
         or_scope=SCRAPE, group="Operate"),
    View("/ui/keys", "Keys", "keys.html", {"listed": keys, "audit": audit}, ADMIN, query=KeysFilters,
         group="Operate"),
    View("/ui/settings", "Settings", "settings.html", {"settings": settings}, ADMIN, query=SettingsFilters,
         group="Operate", live=False),
)  # fmt: skip
ACTIONS = (
    FormAction(path="/ui/callbacks/replay", handler=send_again, form=IdForm, scope=JOBS, or_scope=SCRAPE),
    FormAction(path="/ui/keys/add", for_admins=True, handler=make_key, form=KeyForm, scope=ADMIN),
    FormAction(path="/ui/keys/revoke", for_admins=True, handler=revoke, ask=ask_to_revoke, form=IdForm, scope=ADMIN),
)

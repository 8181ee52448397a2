"""Callbacks: when a job has ended, the address that its client named is called. This module registers, lists and
replays them; callback_delivery.py delivers them.

What it does: `register` enters a callback in the outbox of the state before the client gets its answer; from then on it
is delivered at least once, whichever process dies. How it fails: Misconfigured, BadRequest, BackendUnavailable.
"""

from __future__ import annotations

import json
from math import inf
from typing import Any

import msgspec

from ...access.contract import Callback, CallbackSecret
from ...access.contract import CallbackState as CallbackState
from ...access.contract import FirecrawlShape as FirecrawlShape
from ...access.webhooks import new_secret, rotated, valid_secrets
from ...clock import iso_time
from ...errors import Misconfigured, NotThere
from ...model.job import Job
from ..jobs.api_jobs import public_url
from ..open import Project
from ..view_fields import view_of
from .callback_messages import STARTED, message_about, message_id
from .keys import Caller

WAITING_LOOKED_AT = 10_000  # waiting for their jobs
MESSAGES = "celery:"  # stands in place of an address: messages.py delivers it


class CallbackView(msgspec.Struct, frozen=True, kw_only=True):
    """A callback as people and programs see it. Times are ISO 8601 in UTC."""

    id: str
    job: str
    url: str
    state: CallbackState
    made_at: str
    next_at: str | None  # when it is sent next; None while its job runs, and when it is finished
    tries: int
    ended_at: str | None
    status: int | None  # of the last answer
    message: str  # why the last try failed


class CallbackDetail(CallbackView, frozen=True, kw_only=True):
    """A callback with its message; None while its job runs."""

    body: dict[str, Any] | None  # what a job's answer holds


class SecretView(msgspec.Struct, frozen=True, kw_only=True):
    """The secret that signs callbacks: give it to the receiver. `before` also signs until `before_until`."""

    secret: str
    before: str | None
    before_until: str | None


def is_message(one: Callback) -> bool:
    """Whether it is for a Celery task rather than an address."""
    return one.url.startswith(MESSAGES)


# -- registering -----------------------------------------------------------------------------------------------------


async def register(
    project: Project, caller: Caller, job: Job, url: str, shape: FirecrawlShape | None = None
) -> Callback:
    """Enter the callback of a job. An address is called once per job. Raises BadRequest for an address that cannot be
    called; BackendUnavailable."""
    await secrets_of(project, caller.id)
    href, now = public_url(project.settings, url), project.clock.now()
    callback = Callback(id=message_id(job.id, href), owner=caller.id, url=href, job=job.id, made_at=now, shape=shape)
    await project.state.callbacks.enter(callback)
    if shape is not None and STARTED in shape.events:
        await project.state.callbacks.enter(message_about(callback, STARTED, now, STARTED))
    return callback


async def secrets_of(project: Project, owner: str) -> tuple[CallbackSecret, ...]:
    """The valid secrets, newest first. The first one is created on demand."""
    book, now = project.state.callbacks, project.clock.now()
    if not await book.secrets(owner):
        await book.enter_secrets(owner, (CallbackSecret(text=new_secret()),))
    return valid_secrets(await book.secrets(owner), now)


async def rotate_secret(project: Project, owner: str) -> SecretView:
    """Create a new secret. For a day, messages carry a signature of the previous one as well."""
    known = await secrets_of(project, owner)
    await project.state.callbacks.keep_secrets(owner, rotated(known, project.clock.now()))
    return await secret_view(project, owner)


async def secret_view(project: Project, owner: str) -> SecretView:
    newest, *older = await secrets_of(project, owner)
    before = older[0] if older else None
    return SecretView(
        secret=newest.text,
        before=before.text if before is not None else None,
        before_until=iso_time(before.until) if before is not None and before.until is not None else None,
    )


# -- listing ---------------------------------------------------------------------------------------------------------


async def list_callbacks(
    project: Project, *, owner: str | None = None, state: CallbackState | None = None, limit: int = 100
) -> list[CallbackView]:
    """Open ones first, then finished ones, newest first; with an `owner`, only those of that key."""
    book = project.state.callbacks
    found: list[Callback] = []
    if state in (None, CallbackState.WAITING):
        found += await book.waiting(WAITING_LOOKED_AT)
    if state in (None, CallbackState.DUE):
        found += await book.due(inf, WAITING_LOOKED_AT)
    if state is None or not state.open:
        found += await book.ended(WAITING_LOOKED_AT)
    latest = {one.id: one for one in found}  # one that advanced between two of these queries appears twice
    wanted = (one for one in latest.values() if owner in (None, one.owner) and state in (None, one.state))
    return [_view(one) for one, _ in zip(wanted, range(limit), strict=False)]


async def show_callback(project: Project, id: str, *, owner: str | None = None) -> CallbackDetail:
    """With an `owner`, only one of that key. Raises NotThere."""
    found = await _find(project, id, owner)
    body = json.loads(found.body) if found.body else None  # it may hold values that msgspec rejects: see `encode`
    return CallbackDetail(**msgspec.structs.asdict(_view(found)), body=body)


async def replay_callback(project: Project, id: str) -> CallbackView:
    """Send a callback again, with all its tries. Raises NotThere, and Misconfigured for one that still waits."""
    found = await _find(project, id)
    if found.state is CallbackState.WAITING:
        raise Misconfigured(f"The job {found.job} has not ended yet: its callback is sent when it does.")
    again = msgspec.structs.replace(
        found,
        state=CallbackState.DUE if found.body else CallbackState.WAITING,  # given up before it was written
        next_at=project.clock.now(),
        tries=0,
        ended_at=None,
        status=0,
        message="",
    )
    await project.state.callbacks.keep(again)
    return _view(again)


async def _find(project: Project, id: str, owner: str | None = None) -> Callback:
    found = await project.state.callbacks.callback(id)
    if found is None or owner not in (None, found.owner):
        raise NotThere(f"There is no callback {id}. `gossamer callbacks list` lists them.")
    return found


def _view(one: Callback) -> CallbackView:
    next_at = iso_time(one.next_at) if one.state is CallbackState.DUE else None
    return view_of(CallbackView, one, "made_at", "ended_at", next_at=next_at, status=one.status or None)

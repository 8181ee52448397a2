"""Messages about ended jobs for programs that are not HTTP receivers, such as a Celery task.

What it does: a message is entered in the outbox of callbacks, once per job and text. When its job has ended, the report
of the job is written into the message, and one process at a time passes it to `send` until that succeeds.
How it fails: if `send` raises, it is called again at the next look, without a limit; `gossamer callbacks list` shows
the reason. How it recovers: if a process dies between `send` and the note that it was sent, the message stays due and
is sent again with the same id, by which the receiver recognises it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from hashlib import blake2b
from math import inf
from typing import Any

import msgspec

from ...access.contract import RECEIVER, Callback, CallbackState
from ...errors import Misconfigured
from ...schedule.authority import demand_own_message, sealed_message
from ...settings import Settings
from ..access.callbacks import MESSAGES, WAITING_LOOKED_AT, is_message
from ..access.keys import LOCAL
from ..open import Project
from .status import job_status

LEASE = "@@messages"  # its holder sends; no site has such a name
LEASE_FOR = timedelta(seconds=60)
AT_ONCE = 500  # sent in one pass
MOST_TEXT = 20_000  # characters of a message


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What to send when a job has ended: the name of the receiver, and a text that only `send` understands."""

    to: str
    text: str


class DueMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send now. `report` is the job as in `gossamer status JOB --json`."""

    id: str
    text: str
    report: dict[str, Any]


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A message as the state has it; `report` is added when its job has ended."""

    text: str
    seal: str = ""
    report: dict[str, Any] = {}


Send = Callable[[DueMessage], None]  # returns when the receiver's side has accepted it; it may block


def require_sendable(settings: Settings, message: Message, own: Iterable[Message]) -> None:
    """Raise Misconfigured if the message would not be sent when its job has ended."""
    seal = sealed_message(settings, "a job", message.text)
    demand_own_message(settings, "a job", message.to, message.text, seal, [one.text for one in own])


async def enter_message(project: Project, job: str, message: Message) -> bool:
    """Enter a message for a job. False if the job has it already. Raises BackendUnavailable."""
    digest = blake2b(f"{job}\0{message.to}\0{message.text}".encode(), digest_size=12).hexdigest()
    host = blake2b(message.to.encode(), digest_size=4).hexdigest()
    entry = _Entry(text=message.text, seal=sealed_message(project.settings, job, message.text))
    callback = Callback(
        id=f"msg_{host}"[:RECEIVER] + digest,
        owner=LOCAL,
        url=f"{MESSAGES}{message.to}",
        job=job,
        made_at=project.clock.now(),
        body=msgspec.json.encode(entry).decode(),
    )
    return await project.state.callbacks.enter(callback)


async def deliver_messages(project: Project, send: Send, own: Iterable[Message] = ()) -> int:
    """Send the due messages; return how many were sent. `own` are those that the caller's program names itself; for
    others the project must vouch (schedule/authority.py), or they fail. Does nothing while another process sends.
    Raises BackendUnavailable."""
    known_texts = frozenset(one.text for one in own)
    book, seeds = project.state.callbacks, project.state.seeds
    waiting = [one for one in await book.waiting(WAITING_LOOKED_AT) if is_message(one)]
    due = [one for one in await book.due(inf, WAITING_LOOKED_AT) if is_message(one)]
    if (not waiting and not due) or not await seeds.claim(LEASE, project.worker, LEASE_FOR):
        return 0
    sent = 0
    try:
        running = {job.id for job in await project.state.jobs.running_jobs()} if waiting else set()
        due += [await _written(project, one) for one in waiting if one.job not in running]
        for one in due[:AT_ONCE]:
            if not await seeds.claim(LEASE, project.worker, LEASE_FOR):
                break
            # Read under the lease: the previous holder may have sent it since.
            known = await book.callback(one.id)
            if known is not None and known.state is CallbackState.DUE:
                sent += await _sent(project, known, send, known_texts)
    finally:
        await seeds.release(LEASE, project.worker)
    return sent


async def _written(project: Project, one: Callback) -> Callback:
    """Its job has ended: write the report into the message, so that every try sends the same text."""
    job = await project.state.jobs.job(one.job)
    report = msgspec.to_builtins(await job_status(project, job.id)) if job is not None else {"id": one.job}
    try:
        entry = msgspec.json.decode(one.body, type=_Entry)
    except msgspec.MsgspecError:
        entry = _Entry(text="")  # nobody vouches for it
    body = msgspec.json.encode(msgspec.structs.replace(entry, report=report)).decode()
    due = msgspec.structs.replace(one, body=body, state=CallbackState.DUE, next_at=project.clock.now())
    await project.state.callbacks.keep(due)
    return due


async def _sent(project: Project, one: Callback, send: Send, own: Collection[str]) -> bool:
    try:
        entry = msgspec.json.decode(one.body, type=_Entry)
        demand_own_message(project.settings, one.job, one.url.removeprefix(MESSAGES), entry.text, entry.seal, own)
        send(DueMessage(id=one.id, text=entry.text, report=entry.report))
    except (Misconfigured, msgspec.MsgspecError) as error:
        after = msgspec.structs.replace(
            one, tries=one.tries + 1, state=CallbackState.FAILED, ended_at=project.clock.now(), message=str(error)[:500]
        )
    except Exception as error:  # anything that the broker's client raises; the message stays due
        words = f"{type(error).__name__}: {error}"[:500]
        after = msgspec.structs.replace(one, tries=one.tries + 1, message=words)
    else:
        ended = project.clock.now()
        after = msgspec.structs.replace(
            one, tries=one.tries + 1, state=CallbackState.DELIVERED, ended_at=ended, message=""
        )
    await project.state.callbacks.keep(after)
    return after.state is CallbackState.DELIVERED

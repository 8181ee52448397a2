"""Callbacks: a job that has ended is told to the address that its client named.

What it does: `register` enters a callback in the outbox of the state before the client gets its answer; from then on
it is delivered at least once, whatever dies. One process of a project delivers at a time (any server may, and takes
over within seconds): it writes the message when the job has ended, signs it as Standard Webhooks 1.0 says, and sends
it until somebody answers with 2xx. Receivers have their turns: one that is slow keeps its own messages waiting alone.
How it fails: a receiver that does not take it is asked again after growing pauses, for three days and more; then the
callback has failed, is told in the log, and can be sent again by hand. Addresses are judged when they are dialled, as
those of pages are: nothing private, no redirects. How it recovers: what was sent by a process that died before it noted
so is sent again, with the same id.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import Counter
from datetime import timedelta
from math import inf
from typing import Any

import msgspec

from .. import __version__
from ..access.contract import Callback, CallbackSecret
from ..access.contract import CallbackState as CallbackState
from ..access.contract import FirecrawlShape as FirecrawlShape
from ..access.webhooks import (
    GONE,
    PAUSES,
    firecrawl_signature,
    new_secret,
    pause_after,
    rotated,
    signed_headers,
    valid_secrets,
)
from ..clock import iso_time
from ..errors import AddressRefused, FetchFailed, FetchRefused, Misconfigured, Transient
from ..fetch.addresses import AddressGuard
from ..fetch.contract import Limits, Transport, TransportRequest
from ..fetch.http import AiohttpTransport
from ..fetch.retry_after import parse_retry_after
from ..model.job import Job
from ..model.url import authority_of
from ..settings import Settings
from .api_jobs import public_url
from .callback_messages import STARTED, event_of, message_about, message_id, message_of
from .keys import Caller
from .open import Project
from .page_events import PAGE, Document, PageEvents
from .page_results import PageReader, answer_of

log = logging.getLogger("gossamer.callbacks")
LEASE = "@@callbacks"  # whose holder delivers; no site has such a name
LEASE_FOR = timedelta(seconds=20)
LOOK = timedelta(seconds=1)
AT_ONCE = 20  # messages under way
AT_ONCE_PER_HOST = 4
LOOKED_AT = 1000  # callbacks that are due, in one look: of each receiver as many as are sent to it at once
WAITING_LOOKED_AT = 10_000  # those that wait for their jobs
ANSWER_BYTES = 1024  # of a receiver, and no more
MESSAGES = "celery:"  # in the place of an address: messages.py delivers it
LIMITS = Limits(
    connect=timedelta(seconds=10),
    read=timedelta(seconds=15),
    total=timedelta(seconds=20),
    max_body=ANSWER_BYTES,
)


class CallbackView(msgspec.Struct, frozen=True, kw_only=True):
    """A callback as people and programs see it. Times are ISO 8601 in UTC."""

    id: str
    job: str
    url: str
    state: CallbackState
    made_at: str
    next_at: str | None  # when it is sent next; None while its job runs, and when it is over
    tries: int
    ended_at: str | None
    status: int | None  # of the last answer
    message: str  # why the last try failed


class CallbackDetail(CallbackView, frozen=True, kw_only=True):
    """A callback with what is sent; None while its job runs."""

    body: dict[str, Any] | None  # what a job's answer holds


class SecretView(msgspec.Struct, frozen=True, kw_only=True):
    """What callbacks are signed with: give it to the receiver. `before` is used, too, until `before_until`."""

    secret: str
    before: str | None
    before_until: str | None


def is_message(one: Callback) -> bool:
    """Is it for a task of Celery, and not for an address?"""
    return one.url.startswith(MESSAGES)


# -- asking for one ------------------------------------------------------------------------------------------------


async def register(
    project: Project, caller: Caller, job: Job, url: str, shape: FirecrawlShape | None = None
) -> Callback:
    """Enter the callback of a job. The same address is told once of the same job. Raises BadRequest for an address that
    cannot be called; BackendUnavailable."""
    await secrets_of(project, caller.id)
    href, now = public_url(project.settings, url), project.clock.now()
    callback = Callback(id=message_id(job.id, href), owner=caller.id, url=href, job=job.id, made_at=now, shape=shape)
    await project.state.callbacks.enter(callback)
    if shape is not None and STARTED in shape.events:
        await project.state.callbacks.enter(message_about(callback, STARTED, now, STARTED))
    return callback


async def secrets_of(project: Project, owner: str) -> tuple[CallbackSecret, ...]:
    """The secrets that hold now, the newest first. The first is made when it is asked for."""
    book, now = project.state.callbacks, project.clock.now()
    if not await book.secrets(owner):
        await book.enter_secrets(owner, (CallbackSecret(text=new_secret()),))
    return valid_secrets(await book.secrets(owner), now)


async def rotate_secret(project: Project, owner: str) -> SecretView:
    """Make a new secret. For a day messages carry a signature of the one before as well."""
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


# -- looking at them -----------------------------------------------------------------------------------------------


async def list_callbacks(
    project: Project, *, owner: str | None = None, state: CallbackState | None = None, limit: int = 100
) -> list[CallbackView]:
    """Open ones first, then those that are over, the newest first; with an `owner`, of that key alone."""
    book = project.state.callbacks
    found: list[Callback] = []
    if state in (None, CallbackState.WAITING):
        found += await book.waiting(WAITING_LOOKED_AT)
    if state in (None, CallbackState.DUE):
        found += await book.due(inf, WAITING_LOOKED_AT)
    if state is None or not state.open:
        found += await book.ended(WAITING_LOOKED_AT)
    latest = {one.id: one for one in found}  # one that has gone on between two of these questions comes twice
    wanted = (one for one in latest.values() if owner in (None, one.owner) and state in (None, one.state))
    return [_view(one) for one, _ in zip(wanted, range(limit), strict=False)]


async def show_callback(project: Project, id: str, *, owner: str | None = None) -> CallbackDetail | None:
    found = await project.state.callbacks.callback(id)
    if found is None or owner not in (None, found.owner):
        return None
    body = json.loads(found.body) if found.body else None  # it may hold what msgspec does not take: see `encode`
    return CallbackDetail(**msgspec.structs.asdict(_view(found)), body=body)


async def replay_callback(project: Project, id: str) -> CallbackView:
    """Send a callback again, from its first try on. Raises Misconfigured for one that is unknown or still waits."""
    found = await project.state.callbacks.callback(id)
    if found is None:
        raise Misconfigured(f"There is no callback {id}. `gossamer callbacks list` lists them.")
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


def _view(one: Callback) -> CallbackView:
    return CallbackView(
        id=one.id,
        job=one.job,
        url=one.url,
        state=one.state,
        made_at=iso_time(one.made_at),
        next_at=iso_time(one.next_at) if one.state is CallbackState.DUE else None,
        tries=one.tries,
        ended_at=iso_time(one.ended_at) if one.ended_at is not None else None,
        status=one.status or None,
        message=one.message,
    )


# -- delivering ----------------------------------------------------------------------------------------------------


class Deliverer:
    """Delivers what is due while `run` runs. Any number of processes may run one: the holder of the lease works."""

    def __init__(
        self,
        project: Project,
        pages: PageReader,
        transport: Transport,
        *,
        look: timedelta = LOOK,
        document: Document | None = None,
    ) -> None:
        """`document` makes of a page what a client of Firecrawl reads; None: nobody is told of single pages here."""
        self._project = project
        self._book = project.state.callbacks
        self._pages = pages
        self._transport = transport
        self._look = look
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._hosts: Counter[str] = Counter()
        self._is_full = False  # there is more to be sent than may be under way
        self._sent = asyncio.Event()
        self._page_events = PageEvents(project, pages, document, self._about_page) if document is not None else None

    async def run(self) -> None:
        """Until it is cancelled. A state that does not answer is asked again."""
        project = self._project
        try:
            while True:
                try:
                    if await project.state.seeds.claim(LEASE, project.worker, LEASE_FOR):
                        await self.deliver_due()
                    await self._go_on()
                except Transient as error:
                    log.warning("Callbacks wait: %s", error)
                    await project.clock.sleep(self._look.total_seconds())
        finally:
            for task in self._under_way.values():
                task.cancel()
            await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def _go_on(self) -> None:
        """Until it is time for another look. While there is more to be sent than may be under way, the next one is sent
        when one is over."""
        clock = self._project.clock
        until = clock.monotonic() + self._look.total_seconds()
        while (left := until - clock.monotonic()) > 0:
            if not self._is_full:
                await clock.sleep(left)
                return
            self._sent.clear()
            try:
                async with asyncio.timeout(left):
                    await self._sent.wait()
            except TimeoutError:
                return
            await self._send_due()

    async def deliver_due(self) -> None:
        """Write the messages of jobs that have ended, and begin to send what is due."""
        now = self._project.clock.now()
        waiting = [one for one in await self._book.waiting(WAITING_LOOKED_AT) if not is_message(one)]
        running = {job.id: job for job in await self._project.state.jobs.running_jobs()} if waiting else {}
        try:
            for one in waiting:
                if await self._told_pages(one, running.get(one.job)) and one.job not in running:
                    await self._write(one, now)
        except Transient as error:  # a store is away: what is written already is sent all the same
            log.warning("Callbacks are not written: %s", error)
        await self._send_due()

        if self._page_events is not None:
            self._page_events.keep_only({one.id for one in waiting})

    async def _told_pages(self, one: Callback, running: Job | None) -> bool:
        """False while messages about pages of the job are to come, or not over."""
        events = self._page_events
        if events is None or one.shape is None or PAGE not in one.shape.events:
            return True
        job = running or await self._project.state.jobs.job(one.job)
        return job is None or await events.tell(one, job, ended=running is None)

    def _about_page(self, one: Callback, name: str, document: dict[str, Any]) -> Callback:
        return message_about(one, PAGE, self._project.clock.now(), f"{PAGE}\0{name}", [document])

    async def _send_due(self) -> None:
        now = self._project.clock.now()
        found = await self._book.due(now, LOOKED_AT, AT_ONCE_PER_HOST)
        waiting = [one for one in found if not is_message(one)]
        random.shuffle(waiting)  # where receivers are more than may be sent to at once, each has its chance
        for one in waiting:
            host = authority_of(one.url)
            if (
                one.id not in self._under_way
                and len(self._under_way) < AT_ONCE
                and self._hosts[host] < AT_ONCE_PER_HOST
            ):
                self._hosts[host] += 1
                self._under_way[one.id] = asyncio.create_task(self._send(one, host), name=f"callback {one.id}")
        self._is_full = len(self._under_way) >= AT_ONCE or AT_ONCE_PER_HOST in self._hosts.values()

    async def _write(self, one: Callback, now: float) -> None:
        """Write the message. It is the same from now on, however often it is sent."""
        try:
            job = await self._project.state.jobs.job(one.job)
            answer = await answer_of(self._project, self._pages, job) if job is not None else None
            body = message_of(one, answer, self._project.settings, now).decode()
        except Transient:
            raise
        except Exception as error:  # what a page may do to its reader is not for others to suffer
            log.exception("The callback %s of %s cannot be written", one.id, one.job)
            words = f"It cannot be written ({type(error).__name__}); see the log of the server."
            over = msgspec.structs.replace(one, state=CallbackState.FAILED, ended_at=now, message=words)
        else:
            over = msgspec.structs.replace(one, body=body, state=CallbackState.DUE, next_at=now)
            if one.shape is not None and event_of(answer) not in one.shape.events:
                words = "Its client did not want this event."
                over = msgspec.structs.replace(one, state=CallbackState.DELIVERED, ended_at=now, message=words)
        await self._book.keep(over)

    async def _send(self, one: Callback, host: str) -> None:
        try:
            tried = await self._tried(one)
            if tried.state is CallbackState.FAILED:
                log.warning("The callback %s of %s is given up: %s", one.id, one.job, tried.message)
            await self._book.keep(tried)
            if self._page_events is not None and tried.state is not CallbackState.DUE:
                self._page_events.ended(tried.id)
            if tried.status == GONE:
                await self._give_up_on(one)
        except Transient as error:  # it stays due, and is sent again
            log.warning("What came of the callback %s could not be noted: %s", one.id, error)
        finally:
            self._hosts[host] -= 1
            if not self._hosts[host]:
                del self._hosts[host]
            del self._under_way[one.id]
            self._sent.set()

    async def _tried(self, one: Callback) -> Callback:
        """Send it once; the callback with what came of it."""
        clock, body = self._project.clock, one.body.encode()
        texts = [secret.text for secret in await secrets_of(self._project, one.owner)]
        headers = (
            ("Content-Type", "application/json"),
            ("User-Agent", f"Gossamer/{__version__}"),
            *signed_headers(one.id, int(clock.now()), body, texts),
        )
        if one.shape is not None:
            headers += (("X-Firecrawl-Signature", firecrawl_signature(texts[0], body)), *one.shape.headers)
        request = TransportRequest(url=one.url, method="POST", headers=headers, body=body, limits=LIMITS)
        status, message, asked, tries = 0, "", None, one.tries + 1
        try:
            response = await self._transport.fetch(request)
        except AddressRefused as refusal:
            tries, message = len(PAUSES) + 1, str(refusal)  # it may not be called, now or later
        except (FetchFailed, FetchRefused) as failure:  # also a certificate that has run out: it will be renewed
            message = str(failure)
        else:
            status = response.status
            asked = parse_retry_after(response.headers.get("retry-after"), clock.now())
            message = "" if 200 <= status < 300 else f"The receiver answered {status}."
        now = clock.now()
        if not message:
            return msgspec.structs.replace(
                one, state=CallbackState.DELIVERED, tries=one.tries + 1, ended_at=now, status=status, message=""
            )
        pause = None if status == GONE else pause_after(tries, random.random(), asked)
        over = {"state": CallbackState.FAILED, "ended_at": now} if pause is None else {}
        next_at = now + (pause.total_seconds() if pause is not None else 0.0)
        return msgspec.structs.replace(
            one, tries=one.tries + 1, status=status, message=message[:500], next_at=next_at, **over
        )

    async def _give_up_on(self, one: Callback) -> None:
        """The receiver wants no more: what else was to go there, of the same owner, is not sent. What is under way,
        even if it ends while the list is read, says itself what came of it."""
        busy = set(self._under_way)
        for other in [*await self._book.waiting(WAITING_LOOKED_AT), *await self._book.due(inf, WAITING_LOOKED_AT)]:
            if other.id not in busy.union(self._under_way) and (other.owner, other.url) == (one.owner, one.url):
                now = self._project.clock.now()
                words = f"The receiver answered {GONE} to another callback: it wants no more."
                failed = msgspec.structs.replace(other, state=CallbackState.FAILED, ended_at=now, message=words)
                await self._book.keep(failed)


def callback_transport(settings: Settings) -> AiohttpTransport:
    """As for pages that are asked for over HTTP: private addresses only where the project's owner named the host."""
    allowed = frozenset(settings.fetch.allow_hosts)
    return AiohttpTransport(AddressGuard(False, allowed, settings.fetch.deny, switch=""))

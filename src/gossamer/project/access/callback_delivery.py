"""The delivery of callbacks: messages about ended jobs, signed and sent until the receiver accepts them.

What it does: one process of a project delivers at a time (any server may, and takes over within seconds). It writes the
message when the job has ended, signs it according to Standard Webhooks 1.0, and sends it until the answer is 2xx.
Receivers take turns: a slow one delays only its own messages.
How it fails: a message that is not accepted is sent again after growing pauses, for more than three days; then the
callback has failed, which is logged, and it can be replayed by hand. Addresses are checked when they are dialled, like
those of pages: nothing private, no redirects. How it recovers: if a process died after sending and before noting it,
the message is sent again with the same id.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from datetime import timedelta
from math import inf
from typing import Any

import msgspec

from ... import __version__
from ...access.contract import Callback, CallbackState
from ...access.webhooks import GONE, PAUSES, firecrawl_signature, pause_after, signed_headers
from ...errors import AddressRefused, FetchFailed, FetchRefused, Transient
from ...fetch.addresses import AddressGuard
from ...fetch.contract import Limits, Transport, TransportRequest
from ...fetch.http import AiohttpTransport
from ...fetch.retry_after import parse_retry_after
from ...model.job import Job
from ...model.url import authority_of
from ...settings import Settings
from ..open import Project
from ..pages.page_events import PAGE, Document, PageEvents
from ..pages.results import PageReader, answer_of
from .callback_messages import event_of, message_about, message_of
from .callbacks import WAITING_LOOKED_AT, is_message, secrets_of

log = logging.getLogger("gossamer.callbacks")
LEASE = "@@callbacks"  # its holder delivers; no site has such a name
LEASE_FOR = timedelta(seconds=20)
LOOK = timedelta(seconds=1)
AT_ONCE = 20  # messages in flight
AT_ONCE_PER_HOST = 4
LOOKED_AT = 1000  # due callbacks read in one pass: of each receiver as many as are sent to it at once
ANSWER_BYTES = 1024  # read of a receiver's answer, at most
LIMITS = Limits(
    connect=timedelta(seconds=10),
    read=timedelta(seconds=15),
    total=timedelta(seconds=20),
    max_body=ANSWER_BYTES,
)


class Deliverer:
    """Delivers due callbacks while `run` runs. Any number of processes may run one: the holder of the lease works."""

    def __init__(
        self,
        project: Project,
        pages: PageReader,
        transport: Transport,
        *,
        look: timedelta = LOOK,
        document: Document | None = None,
    ) -> None:
        """`document` turns a page into the document that a client of Firecrawl expects; None: no messages about single
        pages."""
        self._project = project
        self._book = project.state.callbacks
        self._pages = pages
        self._transport = transport
        self._look = look
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._hosts: Counter[str] = Counter()
        self._is_full = False  # more messages are due than may be in flight
        self._sent = asyncio.Event()
        self._told: set[str] = set()  # warnings already in the log
        self._page_events = PageEvents(project, pages, document, self._about_page) if document is not None else None

    async def run(self) -> None:
        """Run until cancelled. If the state does not answer, try again."""
        project = self._project
        try:
            while True:
                try:
                    if await project.state.seeds.claim(LEASE, project.worker, LEASE_FOR):
                        await self.deliver_due()
                    else:
                        self._told.clear()
                    await self._go_on()
                except Transient as error:
                    self._warn(f"Callbacks wait: {error}")
                    await project.clock.sleep(self._look.total_seconds())
        finally:
            for task in self._under_way.values():
                task.cancel()
            await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def _go_on(self) -> None:
        """Wait until the next look is due. While more messages are due than may be in flight, send the next as soon as
        one is finished."""
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
        """Write the messages of jobs that have ended, and start sending the due ones."""
        now = self._project.clock.now()
        waiting = [one for one in await self._book.waiting(WAITING_LOOKED_AT) if not is_message(one)]
        running = {job.id: job for job in await self._project.state.jobs.running_jobs()} if waiting else {}
        try:
            for one in waiting:
                if await self._told_pages(one, running.get(one.job)) and one.job not in running:
                    await self._write(one, now)
        except Transient as error:  # a store is away: send what is already written
            self._warn(f"Callbacks are not written: {error}")
        else:
            self._told.clear()
        await self._send_due()

        if self._page_events is not None:
            self._page_events.keep_only({one.id for one in waiting})

    async def _told_pages(self, one: Callback, running: Job | None) -> bool:
        """False while messages about pages of the job are still to come or in progress."""
        events = self._page_events
        if events is None or one.shape is None or PAGE not in one.shape.events:
            return True
        job = running or await self._project.state.jobs.job(one.job)
        return job is None or await events.tell(one, job, ended=running is None)

    def _about_page(self, one: Callback, name: str, document: dict[str, Any]) -> Callback:
        return message_about(one, PAGE, self._project.clock.now(), f"{PAGE}\0{name}", [document])

    async def _send_due(self) -> None:
        busy = set(self._under_way)  # a callback that ends while the list is read is still in it, but no longer due
        found = await self._book.due(self._project.clock.now(), LOOKED_AT, AT_ONCE_PER_HOST)
        waiting = [one for one in found if not is_message(one) and one.id not in busy]
        random.shuffle(waiting)  # if there are more receivers than may be called at once, each has its chance
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

    def _warn(self, words: str) -> None:
        """Log a warning once, until a round succeeds again: there is a round every second."""
        if words not in self._told:
            self._told.add(words)
            log.warning("%s", words)

    async def _write(self, one: Callback, now: float) -> None:
        """Write the message. From now on it stays the same, however often it is sent."""
        try:
            job = await self._project.state.jobs.job(one.job)
            answer = await answer_of(self._project, self._pages, job) if job is not None else None
            body = message_of(one, answer, self._project.settings, now).decode()
        except Transient:
            raise
        except Exception as error:  # one broken page must not stop other callbacks
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
        except Transient as error:  # it stays due and is sent again
            log.warning("The result of the callback %s could not be stored: %s", one.id, error)
        finally:
            self._hosts[host] -= 1
            if not self._hosts[host]:
                del self._hosts[host]
            del self._under_way[one.id]
            self._sent.set()

    async def _tried(self, one: Callback) -> Callback:
        """Send it once; return the callback with the result."""
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
        except (FetchFailed, FetchRefused) as failure:  # also an expired certificate: it will be renewed
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
        """The receiver wants no more messages: the owner's other callbacks to it are not sent. Callbacks in flight
        record their own result, even if they end while the list is read."""
        busy = set(self._under_way)
        for other in [*await self._book.waiting(WAITING_LOOKED_AT), *await self._book.due(inf, WAITING_LOOKED_AT)]:
            if other.id not in busy.union(self._under_way) and (other.owner, other.url) == (one.owner, one.url):
                now = self._project.clock.now()
                words = f"The receiver answered {GONE} to another callback: it wants no more."
                failed = msgspec.structs.replace(other, state=CallbackState.FAILED, ended_at=now, message=words)
                await self._book.keep(failed)


def callback_transport(settings: Settings) -> AiohttpTransport:
    """As for pages requested over HTTP: private addresses only if the project's owner named the host."""
    allowed = frozenset(settings.fetch.allow_hosts)
    return AiohttpTransport(AddressGuard(False, allowed, settings.fetch.deny, switch=""))

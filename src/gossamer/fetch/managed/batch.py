"""Many requests in one job: pages that are wanted at about the same time are requested together.

What it does: requests wait for each other up to `batch_window`, or until there are `batch_size`, and are sent as one
batch. Each carries a random id of ours; results are matched by it, whether they come by callback or by polling. Polling
begins at once, or after `callback_wait` if callbacks are expected.
How it fails: each request by itself. A result that says "failed" is a FetchFailed of that page; a batch that is
refused, lost, left incomplete or not finished within `deadline` is an ApiFailed of all requests that still wait. A
batch that is refused because of its content is halved and sent again, until the page that the vendor rejects is alone.
How it recovers: it does not; the tasks are retried. Duplicate and unknown results are ignored.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Self

from ...clock import Clock
from ...errors import ApiFailed, FetchFailed, FetchRefused, GossamerError
from ..contract import Limits, Response, TransportRequest
from .answers import (
    Tree,
    decoded_batch,
    garbage,
    job_failed,
    list_at,
    page_of,
    part_at,
    state_of,
    text_at,
    tree_of,
    whole,
)
from .api import Api, VendorCall, job_id_of, look_at, never_finished, patience
from .vendor import Parameter, Vendor

_ID_BYTES = 24


class _Ticket:
    """A request that waits for its page."""

    def __init__(self, request: TransportRequest, item: tuple[Parameter, ...]) -> None:
        self.id = secrets.token_urlsafe(_ID_BYTES)
        self.request = request
        self.item = item
        self.page: asyncio.Future[Response] = asyncio.get_running_loop().create_future()


class _Batch:
    """Tickets that were sent together. `name` and `secret` form the URL that the vendor calls back."""

    def __init__(self, tickets: list[_Ticket]) -> None:
        self.name = secrets.token_hex(8)
        self.secret = secrets.token_urlsafe(_ID_BYTES)
        self.tickets = {ticket.id: ticket for ticket in tickets}
        self.settled = asyncio.Event()  # no request waits any more
        self.called = asyncio.Event()  # the vendor says that the batch is finished: poll now

    def open(self) -> list[_Ticket]:
        return [ticket for ticket in self.tickets.values() if not ticket.page.done()]

    def look(self) -> None:
        if not self.open():
            self.settled.set()
            self.called.set()

    def fail(self, failure: ApiFailed) -> None:
        for ticket in self.open():
            # A new error for each: a shared one would collect the tracebacks of all waiters.
            ticket.page.set_exception(ApiFailed(str(failure), wait=failure.wait, status=failure.status))
        self.look()


class BatchDesk:
    """Collects requests, sends batches, distributes results. Owns its tasks; they end with `async with`."""

    def __init__(self, vendor: Vendor, api: Api, clock: Clock) -> None:
        self._vendor = vendor
        self._api = api
        self._clock = clock
        self._callback_url = ""
        self._waiting: list[_Ticket] = []
        self._window: asyncio.Task[None] | None = None
        self._batches: dict[str, _Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        closed = ApiFailed(f"Managed API {self._vendor.name}: the worker is stopping; the batch was abandoned.")
        for batch in (*self._batches.values(), _Batch(self._waiting)):
            batch.fail(closed)
        self._batches.clear()
        self._waiting.clear()

    def call_back_to(self, url: str) -> None:
        """From now on, batches tell the vendor to call this URL."""
        self._callback_url = url.rstrip("/")

    async def fetch(self, request: TransportRequest, item: tuple[Parameter, ...]) -> Response:
        """Wait for the page. Raises ApiFailed, FetchFailed or FetchRefused."""
        ticket = _Ticket(request, item)
        self._waiting.append(ticket)
        if len(self._waiting) >= self._vendor.table.batch_size:
            self._send()
        elif self._window is None:
            self._window = self._own(self._close_window())
        try:
            return await ticket.page
        finally:
            # Once its caller is gone, a page must neither be requested nor keep a batch waiting.
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            for batch in tuple(self._batches.values()):
                if ticket.id in batch.tickets:
                    batch.look()

    def _own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _close_window(self) -> None:
        await self._clock.sleep(self._vendor.table.batch_window.total_seconds())
        self._window = None
        if self._waiting:
            self._send()

    def _send(self) -> None:
        if self._window is not None:
            self._window.cancel()
            self._window = None
        tickets, self._waiting = self._waiting, []
        self._own(self._see_through(tickets))

    async def _see_through(self, tickets: list[_Ticket]) -> None:
        """Send a batch and follow it to its end."""
        batch = _Batch([ticket for ticket in tickets if not ticket.page.done()])
        if not batch.tickets:
            return  # all callers are gone
        self._batches[batch.name] = batch
        try:
            await self._run(batch)
        except ApiFailed as failure:
            batch.fail(failure)
        except (FetchFailed, FetchRefused) as failure:
            self._halve(batch, failure)
        finally:
            self._batches.pop(batch.name, None)
            # Whatever went wrong here, no request may wait forever.
            batch.fail(ApiFailed(f"Managed API {self._vendor.name}: the batch broke off."))

    def _halve(self, batch: _Batch, failure: FetchFailed | FetchRefused) -> None:
        left = batch.open()
        if len(left) == 1:
            left[0].page.set_exception(failure)
            return
        for half in (left[: len(left) // 2], left[len(left) // 2 :]):
            if half:
                self._own(self._see_through(half))
                for ticket in half:
                    del batch.tickets[ticket.id]

    async def _run(self, batch: _Batch) -> None:
        vendor, table = self._vendor, self._vendor.table
        gives_up_at = self._clock.monotonic() + table.deadline.total_seconds()
        answer = await self._api.ask(self._question(batch))
        job = ""
        if table.batch_job_path:
            job = job_id_of(vendor, text_at(vendor.batch_id, answer, tree_of(vendor, answer)))
        wait = table.callback_wait if self._callback_url else table.poll
        step = table.poll
        while not batch.settled.is_set():
            left = timedelta(seconds=gives_up_at - self._clock.monotonic())
            if left <= timedelta(0):
                raise never_finished(vendor)
            await self._called_or_after(batch, min(wait, left) if job else left)
            if batch.settled.is_set() or not job:
                continue
            wait = step = min(step * 1.5, table.max_poll)
            try:
                answer = await self._api.ask(
                    look_at(
                        vendor,
                        table.batch_job_path,
                        job,
                        _limits(batch),
                        limit=table.max_answer.bytes,
                        within=left,
                    )
                )
                tree = await decoded_batch(vendor, whole(vendor, answer))
            except ApiFailed as failure:
                wait = patience(failure, step)
                continue
            except FetchFailed as failure:
                raise ApiFailed(str(failure), wait=timedelta(minutes=1)) from None
            await self._hand_out(batch, tree)
            if state_of(vendor, answer, tree) is not None and batch.open():
                raise garbage(vendor, f"the batch ended without {len(batch.open())} of its pages")

    def _question(self, batch: _Batch) -> VendorCall:
        table = self._vendor.table
        items = [{**dict(ticket.item), table.batch_tag: ticket.id} for ticket in batch.tickets.values()]
        body: dict[str, object] = {table.batch_param: items}
        if self._callback_url:
            body[table.callback_param] = f"{self._callback_url}/{batch.name}.{batch.secret}"
        return VendorCall(
            method="POST",
            path=table.batch_path,
            body=body,
            limit=table.max_answer.bytes,
            timeout=table.timeout,
            connect=_limits(batch).connect,
        )

    async def _called_or_after(self, batch: _Batch, wait: timedelta) -> None:
        both = (
            asyncio.create_task(self._clock.sleep(wait.total_seconds())),
            asyncio.create_task(batch.called.wait()),
        )
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        batch.called.clear()

    # -- results --------------------------------------------------------------------------------------------

    def expects(self, name: str, secret: str) -> bool:
        """Do the name and secret belong to an open batch? Compared in constant time."""
        batch = self._batches.get(name)
        expected = batch.secret if batch is not None else secrets.token_urlsafe(_ID_BYTES)
        return hmac.compare_digest(expected.encode(), secret.encode("utf-8", "replace")) and batch is not None

    async def receive(self, name: str, secret: str, body: bytes | None) -> bool:
        """Take the body of a callback; one without results announces that they are ready. Return False, with no effect,
        if it is not for us or makes no sense. Without a body only the name and secret are checked."""
        if not self.expects(name, secret):
            return False
        if body is None:
            return True
        batch = self._batches[name]
        try:
            tree = await decoded_batch(self._vendor, body)
        except GossamerError:
            return False
        known = await self._hand_out(batch, tree) > 0
        if not known and list_at(self._vendor.results, tree) is None and self._vendor.table.batch_job_path:
            batch.called.set()
            known = True
        return known

    async def _hand_out(self, batch: _Batch, tree: Tree) -> int:
        """Give each result to its request; return how many belong to this batch, duplicates included."""
        results = list_at(self._vendor.results, tree)
        known = 0
        for result in [tree] if results is None else results:
            tag = text_at(self._vendor.tag, None, result)
            ticket = batch.tickets.get(tag) if tag is not None else None
            if ticket is None:
                continue
            known += 1
            if not ticket.page.done():
                self._settle(ticket, result)
                await asyncio.sleep(0)  # pages may be long, and there may be a hundred
        batch.look()
        return known

    def _settle(self, ticket: _Ticket, result: Tree) -> None:
        vendor = self._vendor
        state = state_of(vendor, None, result)
        if state is None and text_at(vendor.state, None, result) is not None:
            return  # not finished yet
        try:
            if state is False:
                raise job_failed(vendor, None, result)
            part = part_at(vendor.result, result)
            if part is None:
                part = result  # the vendor wraps the page of a job, but not those of a batch
            ticket.page.set_result(page_of(vendor, None, part, ticket.request, around=result))
        except (FetchFailed, FetchRefused) as failure:
            ticket.page.set_exception(failure)


def _limits(batch: _Batch) -> Limits:
    return next(iter(batch.tickets.values())).request.limits

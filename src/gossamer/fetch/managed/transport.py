"""A vendor's API as a transport: one request in, the target's response out.

What it does: checks the target's address, asks the vendor at once ("sync"), by a job that is polled ("async") or
together with other requests ("batch", see batch.py), and returns the page as if it had come from the site.
How it fails: ApiFailed when the vendor or our account with it is at fault, which uses up no attempt of the page;
FetchFailed when the vendor could not get the page; AddressRefused before anything is sent if the target is private.
How it recovers: it is stateless. A job that does not end within `deadline` is abandoned. A worker that dies during a
job loses it: the task comes back when its lease expires and the page is requested again, so the vendor is paid twice.

The vendor is the visitor: our cookies, user agent and validators are not sent, and its cookies are not kept.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack
from datetime import timedelta
from ipaddress import ip_address
from typing import Self

import msgspec

from ...clock import Clock
from ...errors import AddressRefused, ApiFailed, DnsFailed, FetchRefused, InvalidUrl, Misconfigured
from ...model.url import host_of, parse_url, without_user
from ..addresses import AddressGuard, GuardedResolver
from ..contract import Response, TransportRequest
from .answers import Tree, VendorAnswer, job_failed, page_of, part_at, state_of, text_at, tree_of
from .api import Api, answer_limit, item_of, job_id_of, look_at, never_finished, patience, question
from .batch import BatchDesk
from .callback import CallbackReceiver
from .vendor import ASYNC, BATCH, BODY, Vendor


class ManagedTransport:
    """Implements `Transport`; open while entered with `async with`. `guard` checks the targets.

    After entering, `warnings` holds messages for the user.
    """

    def __init__(
        self, vendor: Vendor, guard: AddressGuard, clock: Clock, *, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._vendor = vendor
        self._guard = guard
        self._clock = clock
        self._api = Api(vendor, clock, ssl_context=ssl_context)
        self._resolver: GuardedResolver | None = None
        self._desk: BatchDesk | None = None
        self._stack = AsyncExitStack()
        self.warnings: tuple[str, ...] = ()

    async def __aenter__(self) -> Self:
        """Raises Misconfigured if the callback URL is private, or its port is taken and there is no way to poll."""
        async with AsyncExitStack() as stack:
            self._resolver = GuardedResolver(self._guard, threads=8)
            stack.push_async_callback(self._resolver.close)
            await stack.enter_async_context(self._api)
            if self._vendor.table.mode == BATCH:
                self._desk = await stack.enter_async_context(BatchDesk(self._vendor, self._api, self._clock))
                await self._listen(stack, self._desk)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()
        self._desk = self._resolver = None

    def __repr__(self) -> str:
        return f"ManagedTransport({self._vendor.name!r}, {self._vendor.base!r}, key=***)"

    async def _listen(self, stack: AsyncExitStack, desk: BatchDesk) -> None:
        vendor = self._vendor
        if vendor.listen is None:
            return
        await self._check_callback_address()
        receiver = CallbackReceiver(vendor, desk.receive)
        try:
            await stack.enter_async_context(receiver)
        except OSError as error:
            where = vendor.table.callback_listen
            words = f"{vendor.setting('callback_listen')}: cannot listen on {where} ({error.strerror or error})."
            if not vendor.table.batch_job_path:
                raise Misconfigured(f"{words} Choose another port; only one process can use it.") from error
            # Of several workers on a machine one gets the port; the others poll.
            self.warnings = (f"{words} Batches of this process are polled instead.",)
            return
        desk.call_back_to(vendor.table.callback_url)

    async def _check_callback_address(self) -> None:
        """The vendor must not be made to call into a private network on our behalf."""
        vendor = self._vendor
        if vendor.table.allow_private:
            return
        resolver = GuardedResolver(AddressGuard(allow_own=True), threads=1)
        try:
            await resolver.resolve(host_of(parse_url(vendor.table.callback_url)))
        except AddressRefused as error:
            raise Misconfigured(
                f"Setting {vendor.setting('callback_url')}: leads to a private or reserved address. If it is intended, "
                "set allow_private = true."
            ) from error
        except DnsFailed:
            pass  # only the vendor's name servers may know it
        finally:
            await resolver.close()

    async def fetch(self, request: TransportRequest) -> Response:
        """Make the request. Raises ApiFailed, FetchFailed or FetchRefused; may take as long as `deadline`."""
        if self._resolver is None:
            raise RuntimeError("The transport is not open; use it inside `async with`.")
        request = await self._checked(request, self._resolver)
        if request.gate is not None:
            await request.gate.enter()
        began = self._clock.monotonic()
        if self._desk is not None:
            if request.gate is not None:
                request.gate.left()  # pages of one site may share a batch
            response = await self._desk.fetch(request, item_of(self._vendor, request))
        elif self._vendor.table.mode == ASYNC:
            response = await self._by_job(request)
        else:
            response = await self._at_once(request)
        return msgspec.structs.replace(response, seconds=self._clock.monotonic() - began)

    async def _checked(self, request: TransportRequest, resolver: GuardedResolver) -> TransportRequest:
        """The request with a clean URL. Raises FetchRefused for a request that a vendor must not or cannot make."""
        if request.proxy is not None:
            raise FetchRefused(f"A managed route takes no proxy: {self._vendor.name} uses its own proxies.")
        if request.method != "GET":
            raise FetchRefused(
                f"A managed API can only GET pages, not {request.method[:20]!a} them. Name another route for the "
                "request: fetcher='http', or one of your own."
            )
        try:
            # Neither the vendor nor a reader of our messages should see our login at the site.
            url = without_user(parse_url(request.url).partition("#")[0])
        except InvalidUrl as error:
            if "@" in request.url:  # the error repeats the URL
                raise FetchRefused("The page's address is not an http or https URL, so it was not requested.") from None
            raise FetchRefused(str(error)) from error
        host = host_of(url)
        try:
            ip_address(host)
        except ValueError:
            try:
                async with asyncio.timeout(request.limits.connect.total_seconds()):
                    await resolver.resolve(host)
            except (DnsFailed, TimeoutError):
                pass  # the vendor's name servers may know it
        else:
            self._guard.check(host, host)
        return msgspec.structs.replace(request, url=url)

    async def _at_once(self, request: TransportRequest) -> Response:
        vendor = self._vendor
        answer = await self._api.ask(question(vendor, request, vendor.table.path))
        tree = None if vendor.body.kind == BODY else tree_of(vendor, answer)
        if tree is not None and state_of(vendor, answer, tree) is False:
            raise job_failed(vendor, answer, tree)
        return page_of(vendor, answer, tree, request)

    async def _by_job(self, request: TransportRequest) -> Response:
        vendor, table = self._vendor, self._vendor.table
        gives_up_at = self._clock.monotonic() + table.deadline.total_seconds()
        answer = await self._api.ask(question(vendor, request, table.submit_path))
        job = job_id_of(vendor, text_at(vendor.job_id, answer, tree_of(vendor, answer)))
        wait = table.poll
        while True:
            left = timedelta(seconds=gives_up_at - self._clock.monotonic())
            if left <= timedelta(0):
                raise never_finished(vendor)
            await self._clock.sleep(min(wait, left).total_seconds())
            wait = min(wait * 1.5, table.max_poll)
            try:
                answer = await self._api.ask(
                    look_at(
                        vendor, table.job_path, job, request.limits, limit=answer_limit(request.limits), within=left
                    )
                )
                tree = tree_of(vendor, answer)
            except ApiFailed as failure:
                wait = patience(failure, wait)
                continue
            response = self._finished(answer, tree, request)
            if response is not None:
                return response

    def _finished(self, answer: VendorAnswer, tree: Tree, request: TransportRequest) -> Response | None:
        vendor = self._vendor
        state = state_of(vendor, answer, tree)
        if state is None:
            return None
        if not state:
            raise job_failed(vendor, answer, tree)
        return page_of(vendor, answer, part_at(vendor.result, tree), request, around=tree)

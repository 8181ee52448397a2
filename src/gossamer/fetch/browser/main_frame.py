"""The documents of a page's main frame: every request and response passes through here before the page sees it.

What it does: gives the guard proxy its password, adds headers to the first request, blocks unwanted kinds, and catches
responses that are not pages: a redirect is not followed, a file is read up to its limit. A page that has arrived and
navigates to a download stays as it is, as in any browser, and the download is refused.
How it fails: `caught` holds the response or the error that ends the visit; the browser only sees "aborted".

A response counts as the page's own when the browser has committed its document, not when it arrived: a page may begin
to load a document of another site, stop it, and show what it likes.

Redirects of later documents (a form that an action submitted, a script that navigated) are followed, as the page
intended. A page that navigates without end is stopped after MOST_MOVES documents.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import BadResponse, ConnectFailed, ConnectionDropped
from ...model.url import authority_of, origin_of
from .guard import MARK, Pass

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

Pairs = tuple[tuple[str, str], ...]
Event = dict[str, Any]  # as the DevTools protocol sends it, which has no types

# The names of resource types in settings, and in the browser.
KINDS = {
    "image": "Image", "media": "Media", "font": "Font", "stylesheet": "Stylesheet", "script": "Script", "xhr": "XHR",
    "fetch": "Fetch", "eventsource": "EventSource", "manifest": "Manifest", "texttrack": "TextTrack", "ping": "Ping",
    "prefetch": "Prefetch", "other": "Other",
}  # fmt: skip
_OF_SCRIPTS = ("XHR", "Fetch")  # the browser does not distinguish these two
_PAGES = ("text/html", "application/xhtml+xml", "")  # without a type, the browser sniffs the content
_SHOWN = ("text/", "image/", "audio/", "video/")
_SHOWN_TYPES = ("application/json", "application/xml", "application/pdf", "application/javascript")
_NO_BODY = frozenset({204, 205, 304})
_MOVED = frozenset({301, 302, 303, 307, 308})
MOST_MOVES = 10  # documents that a page may navigate to by itself: as many as redirects without a browser
_MAX_HEADERS = 128
_MAX_QUESTIONS = 2000  # requests that asked for a password
_MAX_DOCUMENTS = 32  # of the main frame: remembered ones, and those whose raw headers are awaited
_STREAM_PIECE = 256 * 1024
_COOKIE_PATIENCE = 1.0  # seconds; raw headers arrive separately, and may be late


class FrameAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A document as the server sent it. `body` None: it is a page, which the browser shows."""

    url: str
    status: int
    headers: Pairs
    body: bytes | None = None
    cut: bool = False
    request: str = ""  # the browser's id of the request


class MainFrame:
    """Watches one page. Call `open` before the first request, and `close` when the page is done."""

    def __init__(
        self,
        session: CDPSession,
        gate_pass: Pass,
        *,
        headers: Pairs,
        method: str,
        body: bytes | None,
        block: tuple[str, ...],
        max_body: int,
        max_header: int,
        max_moves: int,
        on_restless: Callable[[], None],
    ) -> None:
        self._session = session
        self._pass = gate_pass
        self._headers = headers
        self._method = method
        self._body = body
        self._block = block
        self._blocks_scripts = not {"xhr", "fetch"}.isdisjoint(block)
        self._max_body = max_body
        self._max_header = max_header
        self._moves_left = max_moves
        self._on_restless = on_restless
        self.restless = False  # `max_moves` is used up
        self._main = ""
        self.asked = ""  # the URL of the last requested document
        self._first: str | None = None  # the request for the first document, once it was sent
        self._arrived = False  # the first document has arrived
        self._closed = False
        self._asked_for_password: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._raw: dict[str, asyncio.Future[Pairs]] = {}
        self._arriving: dict[str, FrameAnswer] = {}  # pages that the server sent, by request
        self._committed: list[FrameAnswer] = []  # pages that were shown, the current one last
        self.caught: asyncio.Future[FrameAnswer] = asyncio.get_running_loop().create_future()
        self.latest: FrameAnswer | None = None  # the last one to arrive; it may not be shown yet
        self.refused_download = ""  # its URL
        self._still_since: float | None = None  # since when the frame is not loading; None while it loads

    async def open(self) -> None:
        send = self._session.send
        self._main = (await send("Page.getFrameTree"))["frameTree"]["frame"]["id"]
        self._session.on("Fetch.requestPaused", lambda event: self.begin(self._paused(event)))
        self._session.on("Fetch.authRequired", lambda event: self.begin(self._asked(event)))
        self._session.on("Network.responseReceivedExtraInfo", self._raw_headers)
        self._session.on("Page.frameNavigated", self._navigated)
        self._session.on("Page.frameStartedLoading", lambda event: self._loads(event, None))
        self._session.on("Page.frameStoppedLoading", lambda event: self._loads(event, time.monotonic()))
        await send("Page.enable")
        await send("Network.enable")
        patterns: list[dict[str, str]] = [
            {"resourceType": "Document", "requestStage": "Request"},
            {"resourceType": "Document", "requestStage": "Response"},
            {"urlPattern": "*/favicon.ico", "requestStage": "Request"},
            *({"resourceType": KINDS[kind], "requestStage": "Request"} for kind in {*self._block, "xhr"}),
        ]
        await send("Fetch.enable", {"handleAuthRequests": True, "patterns": patterns})

    async def close(self) -> None:
        self._closed = True
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.caught.done() and not self.caught.cancelled():
            self.caught.exception()  # retrieved, or asyncio would log a complaint

    async def headers_of(self, answer: FrameAnswer) -> Pairs:
        """The headers with their Set-Cookie lines, which the browser otherwise hides. Raises BadResponse."""
        raw = self._raw.get(answer.request)
        if raw is None:
            return answer.headers
        try:
            async with asyncio.timeout(_COOKIE_PATIENCE):
                found = await asyncio.shield(raw)
        except TimeoutError:
            return answer.headers
        known = {name.lower() for name, _ in answer.headers}
        return self._bounded((*answer.headers, *((name, value) for name, value in found if name.lower() not in known)))

    def _bounded(self, headers: Pairs) -> Pairs:
        """Raises BadResponse if they exceed the limits of all transports."""
        if sum(len(name) + len(value) for name, value in headers) > self._max_header:
            raise BadResponse(
                f"The response headers are longer than the limit of {self._max_header} bytes (fetch.max_header)."
            )
        if len(headers) > _MAX_HEADERS:
            raise BadResponse(f"The response has more than {_MAX_HEADERS} headers.")
        return headers

    def answer_to(self, url: str) -> FrameAnswer | None:
        """The response of the document that the browser shows at `url`; None if there is none.

        A document that a page created itself (`blob:`, `about:blank`) belongs to the one that created it.
        """
        maker = url.removeprefix("blob:")
        if not maker.startswith(("http:", "https:")):
            return self._committed[-1] if self._committed else None
        origin = origin_of(maker)
        return next((one for one in reversed(self._committed) if origin_of(one.url) == origin), None)

    def _navigated(self, event: Event) -> None:
        frame = event["frame"]
        url = frame["url"]
        if frame["id"] != self._main or not url.startswith(("http:", "https:")):
            return
        # A document from the browser's history comes without a response.
        unseen = FrameAnswer(url=url, status=200, headers=())
        self._committed.append(self._arriving.get(frame["loaderId"], unseen))
        del self._committed[:-_MAX_DOCUMENTS]

    def _loads(self, event: Event, still_since: float | None) -> None:
        if event["frameId"] == self._main:
            self._still_since = still_since

    @property
    def still_for(self) -> float:
        """Seconds since the browser stopped loading documents into the frame."""
        return 0.0 if self._still_since is None else time.monotonic() - self._still_since

    async def idle(self) -> None:
        """Wait until every event so far has been handled."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task on the page; it ends with this object."""
        if self._closed:
            work.close()
            return
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        from playwright.async_api import Error

        try:
            await work
        except Error:
            pass  # the request or the page is gone; the task that waits for the page gets the error
        except Exception as error:
            if not self.caught.done():
                self.caught.set_exception(error)

    def _raw_headers(self, event: Event) -> None:
        waiting = self._raw.get(event["requestId"])
        if waiting is not None and not waiting.done():
            pairs = [(name, one) for name, value in event["headers"].items() for one in value.split("\n")]
            waiting.set_result(tuple(pair for pair in pairs if pair[0].lower() == "set-cookie"))

    async def _asked(self, event: Event) -> None:
        """Answer the guard proxy's request for credentials. A site that asks gets none, nor does a request that asks
        twice."""
        request = event["requestId"]
        ours = event["authChallenge"].get("source") == "Proxy" and request not in self._asked_for_password
        if len(self._asked_for_password) < _MAX_QUESTIONS:
            self._asked_for_password.add(request)
        else:
            ours = False  # the guard rejects it by now
        reply = {"response": "CancelAuth"}
        if ours:
            reply = {
                "response": "ProvideCredentials",
                "username": self._pass.username,
                "password": self._pass.password,
            }
        await self._session.send("Fetch.continueWithAuth", {"requestId": request, "authChallengeResponse": reply})

    async def _paused(self, event: Event) -> None:
        request = event["requestId"]
        kind = event["resourceType"]
        if kind in _OF_SCRIPTS and not self._blocks_scripts:
            # Paused only so that `_asked` handles it: if a site wants a password, the browser would wait for one
            # forever.
            await self._session.send("Fetch.continueRequest", {"requestId": request})
        elif kind != "Document":
            await self._stop(request, "BlockedByClient")
        elif "responseStatusCode" in event or "responseErrorReason" in event:
            await self._answered(request, event)
        else:
            await self._asking(request, event)

    async def _asking(self, request: str, event: Event) -> None:
        order: dict[str, Any] = {"requestId": request}
        if event["frameId"] == self._main:
            if self._first is not None:
                self._moves_left -= 1
            if self._moves_left < 0:
                await self._stop(request)
                if not self.restless:
                    self.restless = True
                    self._on_restless()
                return
            self.asked = event["request"]["url"]
            self._raw[event.get("networkId", "")] = asyncio.get_running_loop().create_future()
            if len(self._raw) > _MAX_DOCUMENTS:
                shown = self.latest.request if self.latest is not None else None
                del self._raw[next(name for name in self._raw if name != shown)]
            if self._first is None:
                self._first = request
                if self._method != "GET":
                    order["method"] = self._method
                if self._body is not None:
                    order["postData"] = base64.b64encode(self._body).decode("ascii")
                if self._headers:
                    pairs = [*event["request"]["headers"].items(), *self._headers]
                    merged = {name.lower(): (name, value) for name, value in pairs}
                    order["headers"] = [{"name": name, "value": value} for name, value in merged.values()]
        await self._session.send("Fetch.continueRequest", order)

    async def _answered(self, request: str, event: Event) -> None:
        if event["frameId"] != self._main or "responseErrorReason" in event:
            await self._session.send("Fetch.continueRequest", {"requestId": request})
            trouble = self._pass.trouble(with_port(event["request"]["url"]))
            if event["frameId"] == self._main and trouble is not None:
                raise trouble  # an unopened tunnel arrives as an error, never as a response with our mark
            return
        answer = FrameAnswer(
            url=event["request"]["url"],
            status=event["responseStatusCode"],
            headers=tuple((one["name"], one["value"]) for one in event.get("responseHeaders", ())),
            request=event.get("networkId", ""),
        )
        named = {name.lower(): value for name, value in reversed(answer.headers)}
        authority = with_port(answer.url)
        if named.get(MARK.lower()) == self._pass.mark:
            await self._stop(request)
            raise self._pass.trouble(authority) or ConnectFailed(f"{authority}: no connection.")
        try:
            self._bounded(answer.headers)
        except BadResponse:
            await self._stop(request)
            raise
        if answer.status in _MOVED and "location" in named:
            if not self._arrived:
                self.catch(answer)
                await self._stop(request)
                return
        elif answer.status in _NO_BODY:
            if not self._arrived:
                self.catch(answer)
            await self._stop(request)
            return
        else:
            kind = named.get("content-type", "").partition(";")[0].strip().lower()
            attached = named.get("content-disposition", "").strip().lower().startswith("attachment")
            if self._arrived and (attached or not _is_shown(kind)):
                self.refused_download = answer.url
                await self._stop(request)
                return
            if attached or kind not in _PAGES:
                body, cut = await self._read(request)
                if not cut and "content-encoding" not in named and len(body) < _number(named.get("content-length")):
                    raise ConnectionDropped(f"{answer.url[:200]}: the connection broke before the file was complete.")
                self.catch(msgspec.structs.replace(answer, cut=cut), body)
                await self._stop(request)
                return
            self._arrived = True
            self.latest = self._arriving[answer.request] = answer
            if len(self._arriving) > _MAX_DOCUMENTS:
                del self._arriving[next(iter(self._arriving))]
        await self._session.send("Fetch.continueRequest", {"requestId": request})

    def catch(self, answer: FrameAnswer, body: bytes = b"") -> None:
        """End the visit with this response."""
        if not self.caught.done():
            self.caught.set_result(msgspec.structs.replace(answer, body=body))

    async def _stop(self, request: str, reason: str = "Aborted") -> None:
        await self._session.send("Fetch.failRequest", {"requestId": request, "errorReason": reason})

    async def _read(self, request: str) -> tuple[bytes, bool]:
        """Read the body of a response that is not a page, up to the limit."""
        send = self._session.send
        stream = (await send("Fetch.takeResponseBodyAsStream", {"requestId": request}))["stream"]
        pieces: list[bytes] = []
        size = 0
        while size <= self._max_body:
            read = await send("IO.read", {"handle": stream, "size": _STREAM_PIECE})
            data = read["data"]
            piece = base64.b64decode(data) if read.get("base64Encoded") else data.encode("utf-8")
            pieces.append(piece)
            size += len(piece)
            if read["eof"]:
                break
        await send("IO.close", {"handle": stream})
        return b"".join(pieces)[: self._max_body], size > self._max_body


def with_port(url: str) -> str:
    authority = authority_of(url)
    if authority.rpartition(":")[2].isdigit() and not authority.endswith("]"):
        return authority
    return f"{authority}:{443 if url.startswith('https:') else 80}"


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0


def _is_shown(kind: str) -> bool:
    return kind in _PAGES or kind.startswith(_SHOWN) or kind in _SHOWN_TYPES or kind.endswith(("+json", "+xml"))

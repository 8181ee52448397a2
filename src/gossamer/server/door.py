"""The door: every request passes here, in this order.

    1. host       the Host header must name this server, so that no web page reaches it by DNS rebinding
    2. key        who is calling: `x-api-key` or `Authorization: Bearer` (at Scrapyd's addresses: basic, too)
    3. rate       the key's rate and its requests under way, both counted in this process
    4. scope      the key must have the scope of the endpoint
    5. parsing    parameters and body, bounded and strict
    6. repeat     a repeated Idempotency-Key gets the stored response of the first request
    7. handler    calls project/
    8. audit      every write is logged, also one that was refused here or for lack of a scope
    9. durable    what the answer acknowledges is on disk before it leaves

How it fails: every error is one JSON object with a code and a message; an unexpected exception is a bare 500, and its
traceback goes to the log. How it recovers: the only state here are the token buckets, which refill.
"""

from __future__ import annotations

import logging
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hmac import compare_digest

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import GossamerError, Transient
from ..model.url import origin_of
from ..project.access import idempotency, keys
from ..project.access.keys import Caller, Token
from ..project.open import Project
from ..project.pages.results import PageReader
from .answers import JSON, AnswerCut, ApiError, answer_of, error_of
from .endpoint import PUBLIC, Call, Endpoint, Reply
from .request_body import parse_body, parse_query, read_body

log = logging.getLogger("gossamer.server")
_HOST = re.compile(r"(?:(?P<name>[\w.-]+)|\[(?P<address>[0-9A-Fa-f:.]+)\])(?::[0-9]{0,5})?", re.ASCII)
NOBODY = Caller(id="", name="", scopes=frozenset())
MOST_AT_ONCE = 250  # requests of one key that may be under way in this process
MOST_BUCKETS = 10_000  # keys whose bucket is remembered; the oldest are forgotten
BURST_SECONDS = 2.0  # seconds' worth of its rate that a key may use at once after a pause
LONGEST_KEY = 255  # characters of an Idempotency-Key
ACCEPTED = 202  # the answer to a page that takes too long is the id of its job
LOOK_AT_KEY = 1.0  # seconds of an answer after which its key is looked up again
NO_KEY = "This key is wrong, expired or revoked. `gossamer keys add` makes one."
NOT_KEPT = (401, 403, 409, 429)  # statuses that a retry may not get


class Door:
    """Admits requests. `hosts` are the accepted Host names; `token` is accepted where the project has no key."""

    def __init__(self, project: Project, pages: PageReader, *, hosts: frozenset[str], token: Token | None) -> None:
        self._project = project
        self._pages = pages
        self._hosts = hosts
        self.token = token
        self._under_way: Counter[str] = Counter()  # requests, by key
        self._buckets: dict[str, tuple[float, float]] = {}  # by key: requests left, and when that was

    async def serve(self, endpoint: Endpoint, request: Request) -> Response:
        """Answer a request. Raises nothing: errors become responses."""
        try:
            return await self._serve(endpoint, request)
        except ApiError as error:
            return endpoint.tells(error)
        except GossamerError as error:
            failure = error_of(error)
            if failure.status >= 500:
                log.warning("%s %s: %s", request.method, request.url.path, error)
            return endpoint.tells(failure)
        except Exception:
            log.exception("%s %s", request.method, request.url.path)
            return endpoint.tells(ApiError(500, "error", "The server failed on this request. Its log says why."))

    async def admit(self, request: HTTPConnection, key: str = "") -> Caller:
        """Return the caller, for an application that parses its requests itself; call `leave` when the request is over.
        `key` is a key that did not come in a header.

        Raises ApiError, also for a cross-origin request from a browser.
        """
        self.check_host(request)
        self._check_origin(request)
        caller = await self._caller(request, key)
        self.count(request, caller)
        return caller

    async def _serve(self, endpoint: Endpoint, request: Request) -> Response:
        self.check_host(request)
        if endpoint.basic:
            self._check_origin(request)  # browsers send such credentials with the requests of any page
        key = _basic_key(request) if endpoint.basic else ""
        caller = NOBODY if endpoint.scope == PUBLIC else await self._caller(request, key)
        if caller is not NOBODY:
            self.count(request, caller)  # first of all: refused requests count against the rate, too
        if not endpoint.is_open_to(caller):
            if endpoint.writes:
                await self.note(request, caller, "", 403)
            raise ApiError(403, "scope", f"Your key lacks the scope {endpoint.scope!r}. Ask for a key that has it.")
        if endpoint.writes and (words := caller.refusal(for_admins=endpoint.for_admins)):
            await self.note(request, caller, "", 403)
            raise ApiError(403, "role", words)
        query = parse_query(request, endpoint.query)
        if not endpoint.writes:
            return self._response(await endpoint.reply(self._call(request, caller, query, None)))
        content = await read_body(request, self._project.settings.server.max_body.bytes)
        body = None
        if endpoint.body is not None and (content or not endpoint.body_optional):
            body = parse_body(content, endpoint.body, request.headers.get("content-type", ""))
        if endpoint.reads is not None:
            body = endpoint.reads(content, request.headers.get("content-type", ""))
        name = self._repeat_name(request)
        call = msgspec.structs.replace(self._call(request, caller, query, body), repeat_name=name)
        write = self._write(endpoint, call) if name is None else self._write_once(endpoint, call, name, content)
        response = await write
        if endpoint.acknowledges or response.status_code == ACCEPTED:
            await self._project.state.durable()
        return response

    # -- who, and how often ------------------------------------------------------------------------------------

    def check_host(self, request: HTTPConnection) -> None:
        """Raises ApiError for a Host header that names another server, and for an unknown version of HTTP."""
        if request.scope.get("http_version", "1.1") not in ("1.0", "1.1"):  # h11 accepts any two digits
            raise ApiError(505, "http", "This server speaks HTTP/1.1.")
        host = _HOST.fullmatch(request.headers.get("host", ""))
        if host is None or (host["name"] or host["address"]).lower().rstrip(".") not in self._hosts:
            raise ApiError(421, "host", "This server does not answer to that name. Its owner can add it: server.hosts.")

    def _check_origin(self, request: HTTPConnection) -> None:
        """A page of this machine, on another port, is another site. Raises ApiError."""
        origin = request.headers.get("origin")
        if origin is None:
            return
        own, public = request.headers.get("host", ""), self._project.settings.server.public_url
        names = {f"http://{own}".lower(), f"https://{own}".lower(), *([origin_of(public).lower()] if public else [])}
        if origin.lower() not in names:
            words = (
                "Cross-origin requests are not allowed here. Its owner can name the server's own: server.public_url."
            )
            raise ApiError(403, "origin", words)

    async def _caller(self, request: HTTPConnection, text: str = "") -> Caller:
        text = request.headers.get("x-api-key", "") or text
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if not text and scheme.lower() == "bearer":
            text = bearer.strip()
        if not text:
            raise _unknown("Send your key as x-api-key, or as Authorization: Bearer.")
        if self.token is not None:
            digest = keys.secret_digest(text)
            if digest is not None and compare_digest(digest, self.token.digest):
                return self.token.caller
        caller = await keys.caller_of(self._project, text)
        if caller is None:
            raise _unknown(NO_KEY)
        return caller

    def count(self, request: HTTPConnection, caller: Caller) -> None:
        """Count a request of the key. Raises ApiError if the key exceeds its rate, or has too many requests and streams
        under way."""
        self._take_token(caller)
        if self._under_way[caller.id] >= MOST_AT_ONCE:
            raise ApiError(
                429, "at_once", f"{MOST_AT_ONCE} requests of your key are under way.", headers={"retry-after": "1"}
            )
        self._under_way[caller.id] += 1
        request.state.caller = caller

    def leave(self, request: HTTPConnection) -> None:
        """The request is over, however it ended."""
        caller: Caller | None = getattr(request.state, "caller", None)
        if caller is not None:
            self._under_way[caller.id] -= 1
            if not self._under_way[caller.id]:
                del self._under_way[caller.id]

    async def answer(self, request: Request, send: Send, app: ASGIApp) -> None:
        """Let `app` answer the request as long as its key is valid: one that is revoked meanwhile ends the answer, or
        gets a 401 if it has not begun."""
        clock, begun, valid = self._project.clock, False, True
        looked_at = clock.monotonic()

        async def checked(message: Message) -> None:
            nonlocal looked_at, begun, valid
            caller: Caller | None = getattr(request.state, "caller", None)
            if caller is not None and valid and clock.monotonic() - looked_at >= LOOK_AT_KEY:
                looked_at = clock.monotonic()
                with suppress(Transient):  # the key is looked up again with the next piece
                    valid = await keys.is_still_open_to(self._project, caller)
            if not valid:  # nor afterwards: an application may catch this and answer with something else
                raise AnswerCut("the key was revoked, or has expired")
            begun = True
            await send(message)

        try:
            await app(request.scope, request.receive, checked)
        except AnswerCut as cut:
            log.warning("%s %s: %s.", request.method, request.url.path, cut)
            if not begun:
                await _unknown(NO_KEY).answer()(request.scope, request.receive, send)

    def _take_token(self, caller: Caller) -> None:
        """Raises ApiError when the key exceeds its rate."""
        interval = self._project.settings.server.rate.interval
        rate = caller.rate or (1 / interval.total_seconds() if interval is not None else None)
        if rate is None:
            return
        now, most = self._project.clock.monotonic(), max(1.0, rate * BURST_SECONDS)
        left, at = self._buckets.pop(caller.id, (most, now))
        left = min(most, left + (now - at) * rate)
        self._buckets[caller.id] = (max(left - 1, 0.0) if left >= 1 else left, now)
        if len(self._buckets) > MOST_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        if left < 1:
            wait = max(1, round((1 - left) / rate))
            raise ApiError(
                429,
                "rate",
                f"Your key may ask {rate:g} times a second. Wait {wait} s.",
                headers={"retry-after": str(wait)},
            )

    # -- handling ----------------------------------------------------------------------------------------------

    def _call(self, request: Request, caller: Caller, query: object, body: object) -> Call:
        return Call(
            project=self._project,
            pages=self._pages,
            caller=caller,
            path=dict(request.path_params),
            query=query,
            body=body,
            request=request,
        )

    async def _write(self, endpoint: Endpoint, call: Call) -> Response:
        """Handle a write and log it, also if it was refused."""
        reply: Reply | Response
        try:
            reply = await endpoint.reply(call)
        except ApiError as error:
            await self._note(call, "", error.status)
            raise
        except GossamerError as error:
            await self._note(call, "", error_of(error).status)
            raise
        response = self._response(reply)
        await self._note(call, reply.target if isinstance(reply, Reply) else "", response.status_code)
        return response

    async def _note(self, call: Call, target: str, status: int) -> None:
        if call.caller is not NOBODY:
            await self.note(call.request, call.caller, target, status)

    async def note(self, request: Request, caller: Caller, target: str, status: int) -> None:
        """Add a line to the audit log."""
        await keys.note_write(
            self._project,
            caller,
            f"{request.method} {request.url.path}"[:500],
            target=target,
            status=status,
            address=request.client.host if request.client is not None else "",
        )

    def _repeat_name(self, request: Request) -> str | None:
        name = request.headers.get("idempotency-key")
        if name is None or request.method != "POST":
            return None
        if not 1 <= len(name) <= LONGEST_KEY or not name.isascii() or not name.isprintable():
            raise ApiError(422, "invalid", f"An Idempotency-Key has 1 to {LONGEST_KEY} printable ASCII characters.")
        return name

    async def _write_once(self, endpoint: Endpoint, call: Call, name: str, content: bytes) -> Response:
        """Handle a write, or return the stored response of an earlier one. Raises ApiError."""
        request, project, caller = call.request, self._project, call.caller
        signed = b"\0".join((request.url.path.encode(), request.url.query.encode(), content))
        try:
            known = await idempotency.begin(project, caller, name, signed)
        except idempotency.RepeatedDifferently:
            raise ApiError(
                409, "key_reused", "This Idempotency-Key was used for another request. Use a new one."
            ) from None
        except idempotency.StillWorking:
            raise ApiError(
                409,
                "in_progress",
                "The first request with this Idempotency-Key is still running.",
                headers={"retry-after": "1"},
            ) from None
        if known is not None:
            if known.body is None and endpoint.answers_secret:
                raise ApiError(
                    409,
                    "answer_not_kept",
                    "This was done, and its answer held a secret, which is not kept. If you do not have it, revoke "
                    "what was made and ask with a new Idempotency-Key.",
                )
            if known.body is None:
                raise ApiError(409, "answer_too_large", "This was answered, and the answer was too large to be kept.")
            return Response(known.body, known.status, {"idempotent-replayed": "true"}, JSON)
        kept = False
        try:
            try:
                response = await self._write(endpoint, call)
            except ApiError as error:
                response = endpoint.tells(error)
            except GossamerError as error:
                response = endpoint.tells(error_of(error))
            if response.status_code < 500 and response.status_code not in NOT_KEPT:
                is_secret = endpoint.answers_secret and response.status_code < 400
                body = None if is_secret else bytes(response.body)
                await idempotency.finish(project, caller, name, signed, response.status_code, body)
                kept = True
            return response
        finally:
            if not kept:
                await idempotency.forget(project, caller, name)

    @staticmethod
    def _response(reply: Reply | Response) -> Response:
        return answer_of(reply.value, reply.status, reply.headers) if isinstance(reply, Reply) else reply


class DoorApp:
    """An ASGI application behind the door: a request is under way until the last byte of its answer is sent."""

    def __init__(self, door: Door, answer: Callable[[Request], Awaitable[Response]]) -> None:
        self._door = door
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            response = await self._answer(request)
            await response(scope, receive, send)

        try:
            await self._door.answer(request, send, answer)
        finally:
            self._door.leave(request)


def _basic_key(request: HTTPConnection) -> str:
    """The key in a header of HTTP basic authentication; "" if there is none."""
    scheme, _, packed = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        user, _, password = b64decode(packed.strip(), validate=True).decode().partition(":")
    except ValueError:
        return ""
    return password or user


def _unknown(message: str) -> ApiError:
    return ApiError(401, "key", message, headers={"www-authenticate": 'Bearer realm="gossamer"'})

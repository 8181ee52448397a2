"""One endpoint: its address, who may call it, its parameters, body and response. The door (door.py) and the OpenAPI
document (openapi.py) both read this."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..project.access.keys import Caller
from ..project.jobs.api_jobs import Asked
from ..project.open import Project
from ..project.operation import Operation
from ..project.pages.results import PageReader
from .answers import ApiError

PUBLIC = "public"  # in place of a scope: no key is needed
ANY = "any"  # any valid key

T = TypeVar("T")


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query of an endpoint without parameters."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request that passed the door: parsed and authorised."""

    project: Project
    pages: PageReader
    caller: Caller
    path: dict[str, str]
    query: Any  # a struct of the endpoint's `query`; handlers get it with `Call.of`
    body: Any  # a struct of the endpoint's `body`, or None
    request: Request
    repeat_name: str | None = None  # its Idempotency-Key

    @property
    def asked(self) -> Asked:
        """What the functions that start jobs need to know of this request."""
        return Asked(
            project=self.project,
            caller=self.caller,
            extraction=self.pages.extraction,
            repeat_name=self.repeat_name,
        )

    def of(self, kind: type[T]) -> T:
        """The query or the body, whichever has that type."""
        found: Any = self.body if isinstance(self.body, kind) else self.query
        assert isinstance(found, kind)
        return found


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A value to send as JSON, for a handler that does not return the plain value: with its own headers, status or
    `target`, which names for the audit log what was created or changed."""

    value: Any  # a struct, or a list of them
    status: int = 200
    headers: dict[str, str] = {}
    target: str = ""


Handler = Callable[[Call], Awaitable[Any]]  # Any: a Reply, a Response, or a value to send as JSON


class Endpoint(msgspec.Struct, frozen=True):
    """`scope` is PUBLIC, ANY or a scope of keys; with `or_scope`, either of the two suffices. `gives` is the type of
    the response; None means that it is not JSON. A plain value that the handler returns is sent with `status`; for the
    audit log, its field `names` is what was changed, else the last part of the address that is a variable."""

    method: str
    path: str
    scope: str
    summary: str
    handler: Handler
    or_scope: str = ""
    gives: Any = None  # a type
    status: int = 200
    names: str = "id"
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | None = None
    body_optional: bool = False
    reads: Callable[[bytes, str], Any] | None = None  # parses a body that is not JSON, by its content type
    basic: bool = False  # the key may come as HTTP basic authentication, as its user name or its password
    example: dict[str, Any] | None = None  # of a body
    aliases: tuple[str, ...] = ()
    media: str = "application/json"
    other_media: tuple[str, ...] = ()  # also available by content negotiation
    other_statuses: dict[int, str] = {}
    tells: Callable[[ApiError], Response] = ApiError.answer  # renders errors
    acknowledges: bool = True  # what it wrote is on disk before it is answered; False: the answer is all there is
    for_admins: bool = False  # an operator may not write it, whatever the scope
    answers_secret: bool = False  # its response is never stored, not even for an Idempotency-Key

    def is_open_to(self, caller: Caller) -> bool:
        return self.scope in (PUBLIC, ANY) or caller.may(self.scope) or caller.may(self.or_scope)

    @property
    def writes(self) -> bool:
        return self.method not in ("GET", "HEAD")

    async def reply(self, call: Call) -> Reply | Response:
        found = await self.handler(call)
        if isinstance(found, Reply | Response):
            return found
        target = getattr(found, self.names, "") or next(reversed(call.path.values()), "")
        return Reply(value=found, status=self.status, target=str(target))


def endpoint_of(operation: Operation[Any, Any]) -> Endpoint:  # Any: each has its own types
    """What is not in the path comes as the query of a GET or DELETE, or as the JSON body."""
    in_path = set(re.findall(r"{(\w+)}", operation.path))
    rest = [field for field in msgspec.structs.fields(operation.ask) if field.name not in in_path]
    shape = _shape(operation.ask, rest) if in_path else operation.ask

    async def handle(call: Call) -> Any:
        sent = {name: getattr(call.of(shape), name) for name in shape.__struct_fields__} if rest else {}
        ask = msgspec.convert({**sent, **{name: call.path[name] for name in in_path}}, operation.ask)
        return await operation.run(call.project, call.caller, ask)

    has_body = operation.method in ("POST", "PUT") and bool(rest)
    return Endpoint(
        operation.method,
        operation.path,
        operation.scope,
        operation.summary,
        handle,
        status=201 if operation.method == "POST" else 200,
        for_admins=operation.for_admins,
        gives=operation.gives,
        example=operation.example,
        body=shape if has_body else None,
        query=shape if rest and not has_body else NoQuery,
    )


def _shape(ask: type[msgspec.Struct], fields: list[msgspec.structs.FieldInfo]) -> type[msgspec.Struct]:
    """The struct without the fields of the path."""
    given = [
        (field.name, field.type) if field.required else (field.name, field.type, field.default) for field in fields
    ]
    return msgspec.defstruct(ask.__name__, given, frozen=True, kw_only=True, forbid_unknown_fields=True)

"""One endpoint: its address, who may call it, its parameters, body and response. The door (door.py) and the OpenAPI
document (openapi.py) both read this."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..project.access.keys import Caller
from ..project.jobs.api_jobs import Asked
from ..project.open import Project
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
    """A value to send as JSON. `target` names what was created or changed, for the audit log."""

    value: Any  # a struct, or a list of them
    status: int = 200
    headers: dict[str, str] = {}
    target: str = ""


Handler = Callable[[Call], Awaitable[Reply | Response]]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """`scope` is PUBLIC, ANY or a scope of keys; with `or_scope`, either of the two suffices. `gives` is the type of
    the response; None means that it is not JSON."""

    method: str
    path: str
    scope: str
    or_scope: str = ""
    summary: str
    handler: Handler
    gives: Any = None  # a type
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | None = None
    body_optional: bool = False
    example: dict[str, Any] | None = None  # of a body
    aliases: tuple[str, ...] = ()
    media: str = "application/json"
    other_media: tuple[str, ...] = ()  # also available by content negotiation
    other_statuses: dict[int, str] = {}
    tells: Callable[[ApiError], Response] = ApiError.answer  # renders errors
    acknowledges: bool = True  # what it wrote is on disk before it is answered; False: the answer is all there is
    answers_secret: bool = False  # its response is never stored, not even for an Idempotency-Key

    def is_open_to(self, caller: Caller) -> bool:
        return self.scope in (PUBLIC, ANY) or caller.may(self.scope) or caller.may(self.or_scope)

    @property
    def writes(self) -> bool:
        return self.method not in ("GET", "HEAD")

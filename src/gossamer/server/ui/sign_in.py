"""The gate of the dashboard: the sign-in form, the cookie, signing out; and who the visitor is.

project/access/sign_in.py decides whether a cookie is valid. How it fails: NotSignedIn, and ApiError for a key that
lacks a scope or exceeds its rate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from ...project.access.keys import Caller, is_still_open_to
from ...project.access.sign_in import SignIns, Visitor
from ...project.open import Project
from ..answers import ApiError
from ..door import Door
from .forms import HEADERS, check_same_site, form_of, is_https, redirect, said
from .view import FileAnswer, FormAction, View

COOKIE = "gossamer_signed_in"
LONGEST_KEY = 200
Answer = Callable[[Request], Awaitable[Response]]


class NotSignedIn(Exception):
    """The visitor is not signed in, or no longer."""


class GuestPage(Protocol):
    """Renders a page for a visitor who is not signed in."""

    def __call__(
        self, request: Request, template: str, title: str, values: dict[str, Any], status: int = 200
    ) -> Response: ...


class SignInGate:
    """`page` renders the form; `first` is the address of the first view that a key may see."""

    def __init__(self, project: Project, door: Door, *, page: GuestPage, first: Callable[[Caller], str]) -> None:
        self._project = project
        self._settings = project.settings
        self._door = door
        self._page = page
        self._first = first
        self._sign_ins = SignIns(project, door.token)

    def answers(self) -> list[tuple[str, str, Answer]]:
        """Method, path and function of each address."""
        return [
            ("GET", "/ui/sign-in", self._form),
            ("POST", "/ui/sign-in", self._begin),
            ("POST", "/ui/sign-out", self._end),
            ("GET", "/ui/signed-in", self._is_signed_in),
        ]

    # -- visitors ------------------------------------------------------------------------------------------------

    async def visitor(self, request: Request) -> Visitor:
        """Raises NotSignedIn."""
        visitor = await self._sign_ins.visitor(request.cookies.get(COOKIE, ""))
        if visitor is None:
            raise NotSignedIn
        request.state.visitor = visitor
        return visitor

    async def counted(self, request: Request) -> Visitor:
        """As `visitor`, and count the request. Raises ApiError when the key exceeds its rate."""
        visitor = await self.visitor(request)
        self._door.count(request, visitor.caller)
        return visitor

    async def admit(self, request: Request, wanted: View | FileAnswer) -> Visitor:
        """As `counted`. Raises ApiError when the key lacks the scope."""
        visitor = await self.counted(request)
        check_scope(visitor.caller, wanted)
        return visitor

    def renew(self, response: Response, request: Request, visitor: Visitor) -> None:
        """Renew the cookie of a visitor who was idle for a while."""
        if visitor.renewed:
            self._give_cookie(response, request, visitor.renewed)

    def _give_cookie(self, response: Response, request: Request, cookie: str) -> None:
        response.set_cookie(
            COOKIE,
            cookie,
            max_age=int(self._settings.server.sign_in_limit.total_seconds()),
            path="/",
            httponly=True,
            samesite="strict",
            secure=is_https(request, self._settings),
        )

    # -- in and out ----------------------------------------------------------------------------------------------

    async def _form(self, request: Request) -> Response:
        return self._form_again(request, "")

    def _form_again(self, request: Request, trouble: str, status: int = 200) -> Response:
        values = {"next": _inside(request.query_params.get("next", "")) or "/ui", "trouble": trouble}
        return self._page(request, "sign_in.html", "Sign in", values, status)

    async def _begin(self, request: Request) -> Response:
        check_same_site(request)
        fields = await form_of(request, self._settings)
        begun = await self._sign_ins.begin(fields.get("key", "")[:LONGEST_KEY])
        if begun is None:
            words = "This key is wrong, expired or revoked. `gossamer keys add NAME` makes one."
            return self._form_again(request, words, 403)
        caller, cookie = begun
        await self._door.note(request, caller, "", 303)
        response = redirect(_inside(fields.get("next", "")) or self._first(caller))
        self._give_cookie(response, request, cookie)
        return response

    async def _end(self, request: Request) -> Response:
        """Sign the visitor out. If the session has already ended, only delete the cookie."""
        check_same_site(request)
        response = said(request, self._settings, redirect("/ui/sign-in"), "You are signed out.")
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        try:
            visitor = await self.counted(request)
        except NotSignedIn:
            return response
        status = 500
        try:
            await form_of(request, self._settings, visitor)
            await self._sign_ins.end(visitor)
            await self._project.state.durable()
            status = 303
        except ApiError as error:
            status = error.status
            raise
        finally:
            await self._door.note(request, visitor.caller, "", status)
        return response

    async def is_signed_out(self, visitor: Visitor) -> bool:
        """Has the visitor just signed out?"""
        return await self._sign_ins.has_ended(visitor.id) or not await is_still_open_to(self._project, visitor.caller)

    async def _is_signed_in(self, request: Request) -> Response:
        """Is the visitor signed in? A link from another site comes without the cookie; the page's script asks here."""
        visitor = await self._sign_ins.visitor(request.cookies.get(COOKIE, ""))
        return Response("yes" if visitor is not None else "no", headers=HEADERS, media_type="text/plain")


def check_scope(caller: Caller, wanted: View | FormAction | FileAnswer) -> None:
    """Raises ApiError when the key lacks the scope."""
    if not wanted.is_open_to(caller):
        raise ApiError(403, "scope", f"Your key lacks the scope {wanted.scope!r}. Sign in with a key that has it.")
    if isinstance(wanted, FormAction) and (words := wanted.refusal(caller)):
        raise ApiError(403, "role", words)


def _inside(address: str) -> str:
    """The address if it belongs to the dashboard, else an empty string."""
    fine = address.startswith("/ui/") and not any(sign in address for sign in "\\\r\n\t") and len(address) < 4000
    return address if fine and not address.startswith("/ui/sign-in") else ""

"""The dashboard as a part of the server: routes requests to views and actions. sign_in.py identifies the visitor.

Every request is checked: Host, sign-in cookie, rate and scope of the key. A form must come from one of our own pages
(`Sec-Fetch-Site` or `Origin`) and contain the form token of the user; every form of a signed-in user that changes
something is noted in the audit log, also one that was refused.

How it fails: with a page that says what to do; an unexpected exception goes to the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import msgspec
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, compile_path

from ...clock import Clock
from ...errors import BackendUnavailable, GossamerError
from ...project.access.keys import Caller
from ...project.access.sign_in import Visitor
from ...project.open import Project
from ...project.pages.results import PageReader
from ..answers import ApiError, error_of
from ..door import Door, DoorApp
from .forms import (
    HEADERS,
    SAID,
    check_same_site,
    compressed,
    compressed_events,
    filters_of,
    form_of,
    masked,
    read_into,
    redirect,
    said,
    takes_gzip,
    words_said,
)
from .live import Hub, Regions, seen_of, version_of
from .manual import Manual, manual_of
from .sign_in import Answer, NotSignedIn, SignInGate, check_scope
from .templates import CSRF, Templates, link, read_assets
from .view import HOME, FileAnswer, FormAction, ShownOnce, View, Visit

log = logging.getLogger("gossamer.server")
REGION_SECONDS = 5.0  # within which a region must be rendered, or it is left out
LOOK_AT_KEY = 5.0  # seconds between two checks that a user may still see a live page


class MenuEntry(NamedTuple):
    title: str
    path: str
    current: bool


class Dashboard:
    """All pages under /ui. `close` disconnects the open tabs."""

    def __init__(
        self,
        project: Project,
        pages: PageReader,
        door: Door,
        *,
        views: Iterable[View],
        actions: Iterable[FormAction],
        downloads: Iterable[FileAnswer],
        api: Callable[[], dict[str, Any]],
    ) -> None:
        self._api = api
        self._manual: Manual | None = None
        self._project = project
        self._pages = pages
        self._door = door
        self._views = tuple(views)
        self._places = tuple((compile_path(view.path)[0], view) for view in self._views)
        self._actions = tuple(actions)
        self._doings = tuple((compile_path(action.path)[0], action) for action in self._actions)
        self._downloads = tuple(downloads)
        self._gate = SignInGate(project, door, page=self._guest_page, first=self._first)
        assets = read_assets()
        self._assets = {asset.address: asset for asset in assets.values()}
        self._templates = Templates(assets)
        self._hub = Hub(project.clock)

    def close(self) -> None:
        self._hub.close()

    def routes(self) -> list[Route]:
        found = [
            self._route("GET", "/", self._home),
            self._route("GET", "/ui", self._home),
            self._route("GET", "/ui/assets/{name}", self._asset),
            self._route("GET", "/docs", self._docs),
            self._route("GET", "/docs/", self._docs),
            *(self._route(*answer) for answer in self._gate.answers()),
        ]
        for view in self._views:
            found.append(self._route("GET", view.path, self._shows(view)))
            if view.live:
                found.append(self._route("GET", f"/ui/live{view.path.removeprefix('/ui')}", self._streams(view)))
        for action in self._actions:
            found.append(self._route("POST", action.path, self._acts(action)))
        for download in self._downloads:
            found.append(self._route("GET", download.path, self._gives(download)))
        return [*found, self._route("GET", "/ui/{rest:path}", self._nothing)]

    def _route(self, method: str, path: str, answer: Answer) -> Route:
        return Route(path, DoorApp(self._door, partial(self._guarded, answer)), methods=[method])

    # -- pages ---------------------------------------------------------------------------------------------------

    async def _home(self, request: Request) -> Response:
        return redirect(self._first((await self._gate.visitor(request)).caller))

    def _first(self, caller: Caller) -> str:
        """The first view in the menu that the key may see."""
        return next((view.path for view in self._views if view.group and view.is_open_to(caller)), HOME)

    async def _docs(self, request: Request) -> Response:
        """The manual of the API; like the OpenAPI document it needs no key."""
        if self._manual is None:
            self._manual = manual_of(self._api())
        return self._guest_page(request, "manual.html", "API", {"manual": self._manual})

    async def _nothing(self, request: Request) -> Response:
        await self._gate.visitor(request)
        if (path := request.url.path.rstrip("/")) != request.url.path:
            return redirect(link(path, **dict(request.query_params)))
        raise ApiError(404, "not_found", "There is no page at this URL.")

    def _shows(self, view: View) -> Answer:
        async def answer(request: Request) -> Response:
            visitor = await self._gate.admit(request, view)
            visit = self._visit(request, visitor, filters_of(request, view.query))
            regions = await self._regions(view, visit, view.regions)
            self._hub.note(_sight_of(visit), regions)
            stream = f"/ui/live{request.url.path.removeprefix('/ui')}" if view.is_live(visit) else ""
            context = self._context(request, visitor, view.title) | self._context_of(visit)
            context |= {
                "region": {name: Markup(html) for name, html in self._framed(regions).items()},  # noqa: S704 ours
                "live": link(stream, **visit.filters) if stream else "",
            }
            return self._page(request, visitor, view.template, context)

        return answer

    def _framed(self, regions: Regions) -> Regions:
        """Each region wrapped in an element that the script can replace."""
        return {
            name: f'<div class="region" id="region-{name}" data-version="{version_of(html)}">{html}</div>'
            for name, html in regions.items()
        }

    async def _regions(self, view: View, visit: Visit, names: Iterable[str]) -> Regions:
        """The HTML of these regions. Raises ApiError if a region says that the page does not exist."""
        wanted = list(names)
        found = await asyncio.gather(*(self._region(view, visit, name) for name in wanted))
        return dict(zip(wanted, found, strict=True))

    async def _region(self, view: View, visit: Visit, name: str) -> str:
        try:
            async with asyncio.timeout(REGION_SECONDS):
                values = await view.regions[name](visit)
            return self._templates.block(view.template, name, self._context_of(visit) | dict(values))
        except ApiError:
            raise
        except TimeoutError:
            words = f"This part was not ready within {REGION_SECONDS:g} s: a store of the project is slow or away."
        except BackendUnavailable as error:
            log.warning("%s, %s: %s", view.path, name, error)
            words = "This part is missing: a store of the project does not answer. The page tries again by itself."
        except GossamerError as error:
            words = str(error)
        except Exception:
            log.exception("%s, %s", view.path, name)
            words = "This part could not be rendered. The log of the server says why."
        return self._templates.trouble(words)

    def _visit(self, request: Request, visitor: Visitor, query: Any) -> Visit:  # Any: a struct of the view's own
        return Visit(
            project=self._project,
            pages=self._pages,
            caller=visitor.caller,
            address=request.url.path,
            path=dict(request.path_params),
            query=query,
            request=request,
        )

    def _context_of(self, visit: Visit) -> dict[str, Any]:
        """The variables that every block can use."""

        def here(**changes: object) -> str:
            return link(visit.address, **(visit.filters | changes))

        return {
            "query": visit.query,
            "path": visit.path,
            "here": here,
            "may": lambda scope: visit.may(scope) and not visit.caller.refusal(),
            "sees": visit.may,
            "allows": lambda address: self._allows(visit.caller, address),
            "opened": lambda address: address if self._opens(visit.caller, address) else "",
            "now": visit.project.clock.now(),
        }

    def _opens(self, caller: Caller, address: str) -> bool:
        """May the caller see the view at this address? Links to other views are not shown."""
        path = address.partition("?")[0]
        return next((view.is_open_to(caller) for place, view in self._places if place.fullmatch(path)), False)

    def _allows(self, caller: Caller, address: str) -> bool:
        """May the caller do what a form with this address does? Others are not shown."""
        for place, action in self._doings:
            if place.fullmatch(address):
                return action.is_open_to(caller) and not action.refusal(caller)
        raise ValueError(f"no action has the address {address}")

    def _context(self, request: Request, visitor: Visitor | None, title: str) -> dict[str, Any]:
        """The variables of the page around the regions."""
        menu: dict[str, list[MenuEntry]] = {}
        for view in self._views if visitor is not None else ():
            if visitor is not None and view.group and view.is_open_to(visitor.caller):
                current = request.url.path == view.path or request.url.path.startswith(f"{view.path}/")
                menu.setdefault(view.group, []).append(MenuEntry(view.title, view.path, current))
        return {
            "title": title,
            "project_name": self._project.settings.project or self._project.settings.root.name,
            "caller": visitor.caller if visitor is not None else None,
            "menu": menu,
            "said": words_said(request),
            "live": "",
        }

    def _page(
        self, request: Request, visitor: Visitor | None, template: str, context: dict[str, Any], status: int = 200
    ) -> Response:
        html = self._templates.page(template, context)
        if visitor is not None:
            html = html.replace(CSRF, masked(visitor.csrf))
        response = Response(html, status, HEADERS, "text/html; charset=utf-8")
        if request.method == "GET":  # what is shown only once is the answer to a form
            response = compressed(request, response)
        if context["said"]:
            response.delete_cookie(SAID, path="/")
        if visitor is not None:
            self._gate.renew(response, request, visitor)
        return response

    def _guest_page(
        self, request: Request, template: str, title: str, values: dict[str, Any], status: int = 200
    ) -> Response:
        return self._page(request, None, template, self._context(request, None, title) | values, status)

    async def _guarded(self, answer: Answer, request: Request) -> Response:
        """The response; errors become an error page or a redirect to the sign-in form. Raises nothing."""
        try:
            self._door.check_host(request)
        except ApiError as refusal:
            return refusal.answer()
        try:
            return await answer(request)
        except NotSignedIn:
            if request.method == "GET" and request.headers.get("accept", "").startswith("text/html"):
                asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return redirect(link("/ui/sign-in", next=asked))
            words = "You are not signed in. Open /ui/sign-in in a browser; programs send their key to /api/v1.\n"
            return Response(words, 401, HEADERS, "text/plain")
        except Exception as error:
            visitor = getattr(request.state, "visitor", None)
            return self._failure(request, _failure_of(request, error), visitor)

    def _failure(self, request: Request, error: ApiError, visitor: Visitor | None) -> Response:
        """The error page."""
        context = self._context(request, visitor, "Not here" if error.status == 404 else "That did not work")
        response = self._page(request, visitor, "failure.html", context | {"words": str(error)}, error.status)
        for name, value in error.headers.items():
            response.headers[name] = value
        return response

    # -- live ----------------------------------------------------------------------------------------------------

    def _streams(self, view: View) -> Answer:
        async def answer(request: Request) -> Response:
            visitor = await self._gate.admit(request, view)
            check_same_site(request)
            visit = msgspec.structs.replace(
                self._visit(request, visitor, filters_of(request, view.query)),
                address=f"/ui{request.url.path.removeprefix('/ui/live')}",
            )
            seen = seen_of(request.headers.get("last-event-id") or request.query_params.get("seen", ""))
            events = self._hub.stream(
                _sight_of(visit),
                lambda names: self._regions(view, visit, names),
                view.regions.keys(),
                slow=view.slow,
                person=visitor.id,
                seen=seen,
                holds=_Holding(self._project.clock, self._gate, visitor).holds,
            )
            headers = HEADERS | {"x-accel-buffering": "no", "vary": "accept-encoding"}
            named = _named(events, visitor.csrf)
            if takes_gzip(request):
                headers["content-encoding"] = "gzip"
                named = compressed_events(named)
            return StreamingResponse(named, headers=headers, media_type="text/event-stream; charset=utf-8")

        return answer

    # -- actions and files ---------------------------------------------------------------------------------------

    def _acts(self, action: FormAction) -> Answer:
        async def answer(request: Request) -> Response:
            check_same_site(request)
            visitor = await self._gate.counted(request)
            target, status = "", 500
            try:
                check_scope(visitor.caller, action)
                fields = await form_of(request, self._project.settings, visitor)
                sure = bool(fields.pop("sure", ""))
                visit = self._visit(request, visitor, read_into(action.form, fields))
                if action.ask is not None and not sure:
                    question = await action.ask(visit)
                    context = self._context(request, visitor, "Are you sure?")
                    context |= {"question": question, "fields": fields, "action": request.url.path}
                    status = 200
                    return self._page(request, visitor, "question.html", context)
                done = await action.handler(visit)
                if action.changes:
                    await self._project.state.durable()
                target = done.target
                if isinstance(done, ShownOnce):
                    status = 201
                    context = self._context(request, visitor, done.title) | done.values
                    context["allows"] = partial(self._allows, visit.caller)
                    return self._page(request, visitor, done.template, context, status)
                status = 303
            except ApiError as error:
                status = error.status
                raise
            except GossamerError as error:
                status = error_of(error).status
                raise
            finally:
                if action.changes and status != 200:  # asking for confirmation changes nothing
                    await self._door.note(request, visitor.caller, target, status)
            return said(request, self._project.settings, redirect(done.to), done.words)

        return answer

    def _gives(self, download: FileAnswer) -> Answer:
        async def answer(request: Request) -> Response:
            visitor = await self._gate.admit(request, download)
            visit = self._visit(request, visitor, filters_of(request, download.query))
            response = await download.handler(visit)
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return answer

    async def _asset(self, request: Request) -> Response:
        asset = self._assets.get(request.url.path)
        if asset is None:
            raise ApiError(404, "not_found", "There is no such file.")
        headers = {"cache-control": "public, max-age=31536000, immutable", "x-content-type-options": "nosniff"}
        return compressed(request, Response(asset.content, headers=headers, media_type=asset.kind))


def _failure_of(request: Request, error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if not isinstance(error, GossamerError):
        log.error("%s %s", request.method, request.url.path, exc_info=error)
        return ApiError(500, "error", "The server failed on this page. Its log says why.")
    failure = error_of(error)
    if failure.status >= 500:
        log.warning("%s %s: %s", request.method, request.url.path, error)
    return failure


def _sight_of(visit: Visit) -> str:
    """A key that is equal for all users who see the same page."""
    caller = visit.caller
    sight = f"admin {caller.role}" if caller.is_admin else f"{caller.id} {sorted(caller.scopes)}"
    return f"{link(visit.address, **visit.filters)} {sight}"


class _Holding:
    """Whether the user is still signed in; looked up now and then."""

    def __init__(self, clock: Clock, gate: SignInGate, visitor: Visitor) -> None:
        self._clock = clock
        self._gate = gate
        self._visitor = visitor
        self._looked_at = clock.monotonic()

    async def holds(self) -> bool:
        if self._clock.now() >= self._visitor.until:
            return False
        if self._clock.monotonic() - self._looked_at < LOOK_AT_KEY:
            return True
        self._looked_at = self._clock.monotonic()
        try:
            return not await self._gate.is_signed_out(self._visitor)
        except BackendUnavailable:
            return True  # the regions report that the state is unavailable


async def _named(events: AsyncIterator[bytes], csrf: str) -> AsyncIterator[bytes]:
    """Events with the form token of the user who receives them."""
    async for event in events:
        yield event.replace(CSRF.encode(), masked(csrf).encode())

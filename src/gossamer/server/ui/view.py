"""What the dashboard is made of: views, which show, and actions, which change something.

A view has an address, a template, and one function for each region of its page. The function asks project for values
and returns what the template's block of the same name shows. Regions are rendered each by itself: one whose store is
away says so, and the others are there; and the live stream sends those again that have changed (live.py).
An action is a form that was sent. It calls project and says in one sentence what happened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...model.job import Job
from ...project.api_jobs import job_for
from ...project.keys import Caller
from ...project.open import Project
from ...project.page_results import PageReader
from ..answers import ApiError
from ..endpoint import ANY

T = TypeVar("T")
HOME = "/ui/overview"


class NoFilters(msgspec.Struct, frozen=True):
    """Of a view without filters."""


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a view or an action by somebody who is signed in and may have it."""

    project: Project
    pages: PageReader
    caller: Caller
    address: str  # the path that was asked for
    path: dict[str, str]  # its variable parts
    query: Any  # a struct of the view's `query`, or of the action's `form`; asked for with `of`
    request: Request

    def of(self, kind: type[T]) -> T:
        assert isinstance(self.query, kind)
        return self.query

    def may(self, scope: str) -> bool:
        return self.caller.may(scope)

    @property
    def filters(self) -> dict[str, str]:
        """What the address says beyond its path: what differs from the usual."""
        usual = type(self.query)()
        return {
            name: _written(value)
            for name in self.query.__struct_fields__
            if (value := getattr(self.query, name)) != getattr(usual, name)
        }


Context = Mapping[str, Any]
Region = Callable[[Visit], Awaitable[Context]]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One page. `template` has a block for each of `regions`; `query` is what its filters are read into, and every
    field of it has a default. With a `group` it stands in the menu there."""

    path: str
    title: str
    template: str
    regions: dict[str, Region]
    query: type[msgspec.Struct] = NoFilters
    scope: str = ANY
    or_scope: str = ""
    group: str = ""
    live: bool | Callable[[Visit], bool] = True

    def is_live(self, visit: Visit) -> bool:
        return self.live if isinstance(self.live, bool) else self.live(visit)

    def is_open_to(self, caller: Caller) -> bool:
        return self.scope == ANY or caller.may(self.scope) or caller.may(self.or_scope)


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What an action did, in one sentence, and the page that is shown next. `target` is for the audit log."""

    words: str
    to: str
    target: str = ""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What an action has to show once, as a page of its own: nothing of it is kept for the next request."""

    title: str
    template: str
    values: dict[str, Any]
    target: str = ""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody is asked before an action that cannot be taken back: with the number of what would be touched."""

    words: str
    button: str
    back: str


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """A form that changes something. With `ask`, the person sees a question first, and the same form again."""

    path: str
    handler: Callable[[Visit], Awaitable[Done | Shown]]
    form: type[msgspec.Struct] = NoFilters
    scope: str
    or_scope: str = ""
    ask: Callable[[Visit], Awaitable[Question]] | None = None

    def is_open_to(self, caller: Caller) -> bool:
        return caller.may(self.scope) or caller.may(self.or_scope)


class Download(msgspec.Struct, frozen=True, kw_only=True):
    """A file, or a raw page for a frame: an answer that is no page of the dashboard."""

    path: str
    handler: Callable[[Visit], Awaitable[Response]]
    query: type[msgspec.Struct] = NoFilters
    scope: str
    or_scope: str = ""

    def is_open_to(self, caller: Caller) -> bool:
        return caller.may(self.scope) or caller.may(self.or_scope)


async def check_seen(visit: Visit, job: str | None) -> None:
    """Raises ApiError for a job of another key. The admin may also name one that the queue has forgotten."""
    if job and not visit.caller.is_admin and await job_for(visit.project, visit.caller, job) is None:
        raise missing("job of that id")


def missing(what: str) -> ApiError:
    """For what is not there, and for what belongs to another key: the whole page is a 404."""
    return ApiError(404, "not_found", f"There is no {what} here.")


async def job_of(visit: Visit, id: str, *, to_change: bool = False) -> Job:
    """The job with that id. Raises ApiError for one that the caller does not see, as if it did not exist; and for one
    that they may only look at."""
    job = await job_for(visit.project, visit.caller, id)
    if job is None:
        raise missing("job of that id")
    if to_change and not visit.caller.may_change(job):
        words = f"The job {job.id} was not begun with your key: you can look at it. To change it, sign in as an admin."
        raise ApiError(403, "owner", words)
    return job


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

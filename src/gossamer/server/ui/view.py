"""The building blocks of the dashboard: views, which show something, and actions, which change something.

A view has an address, a template, and one function for each region of its page. The function asks project/ for values
and returns what the template's block of the same name shows. Each region is rendered separately: if its store is
unavailable, it says so and the others still appear; the live stream resends the regions that changed (live.py).
An action is a submitted form. It calls project/ and says in one sentence what happened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from ...model.job import Job
from ...project.access.keys import Caller
from ...project.jobs.api_jobs import job_for
from ...project.open import Project
from ...project.pages.results import PageReader
from ..answers import ApiError
from ..endpoint import ANY

T = TypeVar("T")
HOME = "/ui/overview"
FORGOTTEN = "It may have been deleted since: retention.jobs, gossamer prune."
CHARTS_EVERY = 10.0  # seconds between two renderings of charts that somebody looks at


class NoFilters(msgspec.Struct, frozen=True):
    """The query of a view without filters."""


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a view or an action by a signed-in user who is allowed to make it."""

    project: Project
    pages: PageReader
    caller: Caller
    address: str  # the requested path
    path: dict[str, str]  # its variable parts
    query: Any  # a struct of the view's `query`, or of the action's `form`; read it with `of`
    request: Request

    def of(self, kind: type[T]) -> T:
        assert isinstance(self.query, kind)
        return self.query

    def may(self, scope: str) -> bool:
        return self.caller.may(scope)

    @property
    def filters(self) -> dict[str, str]:
        """The filters of the query that differ from their defaults."""
        usual = type(self.query)()
        return {
            name: _written(value)
            for name in self.query.__struct_fields__
            if (value := getattr(self.query, name)) != getattr(usual, name)
        }


class IdForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form of an action on one thing of a list."""

    id: Annotated[str, Meta(max_length=300)]


Context = Mapping[str, Any]
Region = Callable[[Visit], Awaitable[Context]]


class View(msgspec.Struct, frozen=True):
    """One page. `template` has a block for each of `regions`; `query` is the struct of its filters, every field with a
    default. A view with a `group` is listed there in the menu. Regions named in `slow`, such as charts, move little and
    weigh much: while the page is live they are rendered that many seconds apart."""

    path: str
    title: str
    template: str
    regions: dict[str, Region]
    scope: str = ANY
    query: type[msgspec.Struct] = NoFilters
    or_scope: str = ""
    group: str = ""
    live: bool | Callable[[Visit], bool] = True
    slow: dict[str, float] = {}

    def is_live(self, visit: Visit) -> bool:
        return self.live if isinstance(self.live, bool) else self.live(visit)

    def is_open_to(self, caller: Caller) -> bool:
        return self.scope == ANY or caller.may(self.scope) or caller.may(self.or_scope)


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What an action did, in one sentence, and the page to show next. `target` is for the audit log."""

    words: str
    to: str
    target: str = ""


class ShownOnce(msgspec.Struct, frozen=True, kw_only=True):
    """What an action shows only once, as a page of its own; nothing of it is kept."""

    title: str
    template: str
    values: dict[str, Any]
    target: str = ""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """The confirmation before an action that cannot be undone, with the number of things it would affect."""

    words: str
    button: str
    back: str


class FormAction(msgspec.Struct, frozen=True, kw_only=True):
    """A form that changes something, or computes something long. With `ask`, the user first gets a question, with the
    same form to confirm."""

    path: str
    handler: Callable[[Visit], Awaitable[Done | ShownOnce]]
    form: type[msgspec.Struct] = NoFilters
    scope: str
    or_scope: str = ""
    for_admins: bool = False  # an operator may not do it, whatever the scope
    changes: bool = True  # False: it is not noted in the audit log
    ask: Callable[[Visit], Awaitable[Question]] | None = None

    def is_open_to(self, caller: Caller) -> bool:
        return caller.may(self.scope) or caller.may(self.or_scope)

    def refusal(self, caller: Caller) -> str:
        """Why the role of the caller forbids it; "" if it does not."""
        return caller.refusal(for_admins=self.for_admins)


class FileAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A response that is not a page of the dashboard: a file, or a raw page for a frame."""

    path: str
    handler: Callable[[Visit], Awaitable[Response]]
    query: type[msgspec.Struct] = NoFilters
    scope: str
    or_scope: str = ""

    def is_open_to(self, caller: Caller) -> bool:
        return caller.may(self.scope) or caller.may(self.or_scope)


async def check_seen(visit: Visit, job: str | None) -> None:
    """Raises ApiError for a job of another key. An admin may also name one that the queue has forgotten."""
    if job and not visit.caller.is_admin and await job_for(visit.project, visit.caller, job) is None:
        raise missing("job of that id")


def missing(what: str) -> ApiError:
    """The error for what does not exist or belongs to another key: the whole page is a 404."""
    return ApiError(404, "not_found", f"There is no {what} here.")


async def job_of(visit: Visit, id: str, *, to_change: bool = False) -> Job:
    """The job with that id. Raises ApiError if the caller may not see it (as if it did not exist) or not change it."""
    job = await job_for(visit.project, visit.caller, id)
    if job is None:
        raise ApiError(404, "not_found", f"There is no job of that id here. {FORGOTTEN}")
    if to_change and not visit.caller.may_change(job):
        words = f"The job {job.id} was not started with your key: you can only look at it. An admin can change it."
        raise ApiError(403, "owner", words)
    return job


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

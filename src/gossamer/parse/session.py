"""`Session`: the argument of a spider's `login(self, session)`. crawl/login.py makes its requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..model.task import Request, Sending
    from .forms import Form, Press, Value
    from .page import Page


class Session(Protocol):
    """A visitor that logs in. Each request is paced, checked and logged like any other, follows redirects, and returns
    the final page, whatever its status. Raises FetchFailed, FetchRefused.

    `name` is the session's name in requests. login() may fill `headers`: from then on they are sent with the session's
    requests to those sites of the crawl that login() visited, or, if it visited none, to the site of the waiting page.
    """

    name: str
    headers: dict[str, str]

    @property
    def cookies(self) -> Mapping[str, str]:
        """Names and values of the current cookies; of two with the same name, the newer one."""
        ...

    async def get(self, url: str, **sending: Unpack[Sending]) -> Page: ...

    async def post(self, url: str, **sending: Unpack[Sending]) -> Page:
        """With `form`, `json`, `body` or `files`, as in Request."""
        ...

    async def submit(
        self, form: Form, values: Mapping[str, Value] | None = None, *, press: Press = None, **fields: Any
    ) -> Page:
        """Submit a form of a page, filled in with `values` or with `fields` by name."""
        ...

    async def fetch(self, request: Request) -> Page: ...

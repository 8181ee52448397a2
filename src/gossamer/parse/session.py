"""`Session`: what `login(self, session)` of a spider is given. crawl/login.py makes its requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..model.task import Request, Sending
    from .forms import Form, Press, Value
    from .page import Page


class Session(Protocol):
    """A visitor that logs in. Each request is paced, checked and logged as any other, and its redirects are followed;
    each returns the page that came in the end, whatever its status. Raises FetchFailed, FetchRefused.

    `name` is what requests call the session. `headers` may be filled: they are sent from then on with all requests of
    the session to the sites of the crawl that login() asked; if it asked none of them, to that of the page that waits.
    """

    name: str
    headers: dict[str, str]

    @property
    def cookies(self) -> Mapping[str, str]:
        """Names and values of the cookies so far; of two with the same name, the newer one."""
        ...

    async def get(self, url: str, **sending: Unpack[Sending]) -> Page: ...

    async def post(self, url: str, **sending: Unpack[Sending]) -> Page:
        """With `form`, `json`, `body` or `files`, as of Request."""
        ...

    async def submit(
        self, form: Form, values: Mapping[str, Value] | None = None, *, press: Press = None, **fields: Any
    ) -> Page:
        """Submit a form of a page, filled in with `values` or with `fields` by name."""
        ...

    async def fetch(self, request: Request) -> Page: ...

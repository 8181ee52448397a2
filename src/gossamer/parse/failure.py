"""`Failure`: the argument of an errback when a page is given up."""

from __future__ import annotations

from typing import Any

import msgspec

from .page import Page


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a page becomes a dead letter. `page` is the last response, if there was one."""

    url: str
    reason: str  # as `gossamer dead list` shows it: "http-404", "timeout", "parse" ...
    message: str
    attempts: int
    kind: str  # the callback that the page was meant for
    job: str
    data: dict[str, Any] = {}  # of the request
    status: int | None = None
    page: Page | None = None
    detail: str = ""  # the traceback, if the spider's code failed

"""An operation: one thing that people and programs do with a project, declared once for command line and HTTP API.

The fields of `ask` are what a program may send, an explicit list; the command line has the same ones as options. What
the two doors make of it is in cli/operations.py and server/endpoint.py. Only for what is the same on both sides: a
command that takes files and programs of its machine, or answers in its own words, is written by hand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from ..settings import Settings
from .access.keys import Caller
from .open import Project

Ask = TypeVar("Ask", bound=msgspec.Struct)
Answer = TypeVar("Answer")


class Operation(msgspec.Struct, Generic[Ask, Answer], frozen=True, kw_only=True):
    """`verb` is its name on the command line, `path` and `method` its address; a field of `ask` whose name stands in
    braces in the path is taken from there. `run` raises NotThere for what does not exist.

    Fields in `arguments` are written without their names on the command line. A list is shown as a table of `columns`,
    each the name of a field of its rows, or as `nothing` if it is empty; any other answer in `words`.
    `begins` says by the settings whether it is of use before the first crawl, and may create the project's files.
    """

    verb: str
    summary: str
    method: str
    path: str
    scope: str
    for_admins: bool = False  # an operator may not do it, whatever the scope
    ask: type[Ask]
    gives: Any  # the type of the answer
    run: Callable[[Project, Caller, Ask], Awaitable[Answer]]
    arguments: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    nothing: str = ""
    rows: Callable[[Answer], Sequence[Any]] | None = None  # of the table, where the answer says more than its rows
    example: dict[str, Any] | None = None  # of what a program sends as the body
    words: Callable[[Answer], str] | None = None
    begins: Callable[[Settings], bool] | None = None

    @property
    def writes(self) -> bool:
        return self.method != "GET"

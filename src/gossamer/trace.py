"""Where the time of an attempt goes: named steps and facts, for a tracer, if there is one (monitor/otel.py).

Without a tracer a step costs one read of a context variable. The code of a step need not know who listens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol


class Trace(Protocol):
    """One attempt, from its lease to its settlement."""

    def step(self, name: str) -> AbstractContextManager[None]:
        """A part of the attempt, or of the current step."""
        ...

    def note(self, **facts: str | int | float) -> None:
        """Add facts. Nothing secret: they leave the machine."""
        ...


class Tracer(Protocol):
    def attempt(self, name: str, *, since: float, **facts: str | int | float) -> AbstractContextManager[Trace | None]:
        """Trace an attempt that began `since` seconds ago; None if it is not sampled."""
        ...


_CURRENT: ContextVar[Trace | None] = ContextVar("gossamer-trace", default=None)
_NOTHING: AbstractContextManager[None] = nullcontext()


def step(name: str) -> AbstractContextManager[None]:
    """A step of the attempt that the current task makes."""
    trace = _CURRENT.get()
    return _NOTHING if trace is None else trace.step(name)


def note(**facts: str | int | float) -> None:
    trace = _CURRENT.get()
    if trace is not None:
        trace.note(**facts)


@contextmanager
def traced(tracer: Tracer, name: str, *, since: float, **facts: str | int | float) -> Iterator[None]:
    """Everything in the block, and in the tasks it starts, belongs to this attempt."""
    with tracer.attempt(name, since=since, **facts) as trace:
        token = _CURRENT.set(trace)
        try:
            yield
        finally:
            _CURRENT.reset(token)

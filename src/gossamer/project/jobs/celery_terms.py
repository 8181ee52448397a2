"""What a project has attached to a Celery app, and which of the app's own settings conflict with it. Does not load
Celery."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from ...parse.discovery import check_imports
from ...settings import Settings
from ..upkeep.health_values import DoctorFinding, Level

_RUNS_CODE = frozenset({"pickle", "application/x-python-serialize"})
DEFAULT_VISIBILITY = 3600.0  # seconds, of a broker on Redis


class CeleryTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How the tasks of a project run in an app."""

    folder: str
    slices: dict[str, int]  # by lane
    seconds: float  # that a slice lasts
    every: float  # seconds between two rounds of slices
    tick_every: float


def findings(terms: CeleryTerms, conf: Any, driver: str) -> Iterator[DoctorFinding]:
    """The app's settings (`conf`) that do harm with a broker of that kind."""
    needed = 2 * terms.seconds
    visible = float((conf.broker_transport_options or {}).get("visibility_timeout", DEFAULT_VISIBILITY))
    if driver in ("redis", "sqs") and visible < needed:
        yield DoctorFinding(
            Level.WARN,
            "celery",
            f"visibility_timeout is {visible:g} s, shorter than two slices of {terms.seconds:g} s: the broker gives a "
            "slice to a second worker while the first is at it.",
            f'Set broker_transport_options = {{"visibility_timeout": {max(needed, DEFAULT_VISIBILITY):g}}}.',
        )
    if code := sorted(_RUNS_CODE & set(conf.accept_content or ())):
        yield DoctorFinding(
            Level.WARN,
            "celery",
            f"accept_content allows {', '.join(code)}: who can write to the broker runs programs on your workers.",
            'Set accept_content = ["json"].',
        )
    if conf.worker_prefetch_multiplier != 1:
        yield DoctorFinding(
            Level.WARN,
            "celery",
            f"worker_prefetch_multiplier is {conf.worker_prefetch_multiplier}: slices wait in busy processes while "
            "others have nothing to do.",
            "Leave it at 1, as attach() sets it.",
        )


def examine_app(settings: Settings) -> Iterator[DoctorFinding]:
    """Examine the app that the setting celery.app names, as `package.module:app`; nothing if it is not set."""
    name = settings.celery.app
    if not name:
        return
    module, _, attribute = name.partition(":")
    root = str(settings.root)
    check_imports(settings.root)
    sys.path.insert(0, root)
    try:
        app = getattr(importlib.import_module(module), attribute or "app")
        terms, driver = app.gossamer, app.connection().transport.driver_type
    except Exception as error:  # the code of an app may raise anything
        detail = f"{name} cannot be examined ({type(error).__name__}: {error})"
        yield DoctorFinding(
            Level.FAIL, "celery", detail, "Write module:app, and call gossamer.compat.celery.attach(app) in it."
        )
        return
    finally:
        sys.path.remove(root)
    found = list(findings(terms, app.conf, driver))
    lanes = ", ".join(f"{number} x {lane}" for lane, number in terms.slices.items())
    yield from found or [DoctorFinding(Level.OK, "celery", f"{name}: slices of {terms.seconds:g} s, {lanes}")]

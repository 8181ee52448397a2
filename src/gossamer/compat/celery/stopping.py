"""How a slice learns that its worker is shutting down, and which workers may run slices at all.

A Celery worker that gets SIGTERM waits for the tasks of its children without telling them. Here it does tell them: the
parent sets a byte of memory that it shares with its children, and the slices read it.
"""

from __future__ import annotations

import logging
import mmap
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from billiard import current_process
from celery import Celery, signals

from ...errors import Misconfigured
from ...project.jobs.celery_terms import CeleryTerms, findings

log = logging.getLogger("gossamer.celery")
POOLS = ("celery.concurrency.prefork", "celery.concurrency.solo")
WRONG_POOL = (
    "A slice of work runs its own event loop and is stopped by signals, so it needs a process to itself: start the "
    "workers of Gossamer's queues with `--pool prefork` or `--pool solo`, not {}."
)
USAGE = 64  # the exit code of Celery's own commands for wrong usage

_shared = mmap.mmap(-1, 1)  # anonymous, and shared with children forked later
_stopped_here = False


def is_stopped() -> bool:
    """Has the worker, or this process of it, been told to end?"""
    return _stopped_here or _shared[0] != 0


@contextmanager
def own_signals() -> Iterator[None]:
    """Inside the block, SIGTERM to a child of a worker ends its slice and not the child. The main process keeps
    Celery's handlers, which notify us (`worker_shutting_down`)."""
    global _stopped_here
    if current_process()._name == "MainProcess":
        yield
        return

    def stop(*_: object) -> None:
        global _stopped_here
        _stopped_here = True

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if _stopped_here:
            _stopped_here = False
            signal.raise_signal(signal.SIGTERM)  # the slice has ended: now as Celery would do it


def refuse_other_pools() -> None:
    """Raise Misconfigured if tasks share a process: threads, gevent, eventlet."""
    if threading.current_thread() is not threading.main_thread():
        raise Misconfigured(WRONG_POOL.format("threads, gevent or eventlet"))


def watch_worker(app: Celery, terms: CeleryTerms) -> None:
    """Observe each worker of the app when it starts and when it shuts down."""

    def started(sender: Any = None, instance: Any = None, conf: Any = None, **_: Any) -> None:
        if instance.app is not app:
            return
        own = [name for name in instance.app.amqp.queues.consume_from if name.split(".")[0] == "gossamer"]
        pool = getattr(instance.pool_cls, "__module__", str(instance.pool_cls))
        if own and pool not in POOLS:
            log.critical(WRONG_POOL.format(pool.rpartition(".")[2]))
            raise SystemExit(USAGE)
        for finding in findings(terms, conf, app.connection().transport.driver_type) if own else ():
            log.warning("%s %s", finding.detail, finding.advice)

    def stopping(**_: Any) -> None:
        _shared[0] = 1

    # Not weak: these functions live as long as the app.
    signals.celeryd_after_setup.connect(started, weak=False)
    signals.worker_shutting_down.connect(stopping, weak=False)

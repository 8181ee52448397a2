"""`attach`: the tasks of a project for a Celery app, and the Beat entries that send them.

| task | queue | what it does |
|---|---|---|
| `gossamer.work` | `gossamer.LANE` | works on the running jobs for a slice of time |
| `gossamer.tick` | `gossamer` | begins the runs of schedules that are due; sends `on_finished` of jobs |
| `gossamer.enqueue` | `gossamer` | begins a crawl |
| `gossamer.scrape` | `gossamer` | fetches one page and returns it |

How it fails: Misconfigured for invalid terms. Messages are acknowledged when a task has ended, so that a worker that
dies loses none; delivering one twice does no harm, because the project has its own leases.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from celery import Celery, Task
from celery.canvas import Signature
from kombu.entity import Exchange, Queue

from ...errors import Misconfigured, Transient
from ...model.events import Event, JobEnded, Trouble
from ...project.access.idempotency import StillWorking
from ...project.jobs.api_requests import CrawlRequest, ScrapeRequest
from ...project.jobs.celery_terms import CeleryTerms
from ...project.jobs.messages import MOST_TEXT, DueMessage, Message, require_sendable
from ...project.jobs.slices import enqueue, request_of, scrape_page, tick, work_slice
from ...project.workers.service import served_routes
from ...settings import Settings, load
from .stopping import is_stopped, own_signals, refuse_other_pools, watch_worker

log = logging.getLogger("gossamer.celery")

ALL = "all"  # the lane of workers that serve every route
CONTROL = "gossamer"  # the queue of all tasks except `gossamer.work`
HARD_LIMIT = timedelta(minutes=2)  # how long after its end Celery kills a slice that hangs
RETRIES = 20
RETRY_WITHIN = 60  # seconds between two attempts, at most
SHORT, AT_ONCE = 15.0, 3  # seconds of a slice of the ready-made app, and how many overlap for each that is named
DURABLE = {"acks_late": True, "reject_on_worker_lost": True, "shared": False}  # not shared with other apps


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that were added to an app."""

    terms: CeleryTerms
    work: Task
    tick: Task
    enqueue: Task
    scrape: Task


def attach(
    app: Celery,
    *,
    folder: str | Path = ".",
    slices: Mapping[str, int] | None = None,
    seconds: float = 60,
    every: float = 10,
    tick_every: float = 10,
    on_finished: Signature | None = None,
) -> Attached:
    """Give the app the tasks of the project in `folder`, and Beat their entries. Raises Misconfigured.

    `slices` says for each lane how many slices Beat requests every `every` seconds: {"http": 4, "browser": 1}; the lane
    "all" serves every route. A slice lasts for `seconds`; messages that no worker took by the next round expire.
    `on_finished` is the signature of a task that is sent once for every job that ends, with the facts of the job.
    """
    terms = _terms(folder, slices or {ALL: 1}, seconds, every, tick_every)
    finished = (_message(on_finished),) if on_finished is not None else ()
    own = _tasks(app, terms, finished)
    app.conf.worker_prefetch_multiplier = 1  # a message prefetched by a busy process could not be taken by a free one
    app.conf.task_routes = [_routes(terms), *_list(app.conf.task_routes)]
    app.conf.beat_schedule = {**app.conf.beat_schedule, **_entries(terms)}
    app.gossamer = terms  # for `gossamer doctor`
    watch_worker(app, terms)
    return own


def project_app() -> Celery:
    """An app for the project of the working directory: its tasks, its Beat entries, and a worker that takes from all of
    its queues. Raises Misconfigured."""
    settings = load()
    broker = settings.celery.broker.reveal() or os.environ.get("CELERY_BROKER_URL", "")
    if not broker:
        raise Misconfigured(
            "Celery has no broker. Set celery.broker in gossamer.toml, or CELERY_BROKER_URL: redis://127.0.0.1:6379/1"
        )
    app = Celery("gossamer", broker=broker)
    app.conf.broker_connection_retry_on_startup = True
    slices = dict(settings.celery.slices) or {ALL: 1}
    attach(app, folder=settings.root, slices=slices, seconds=SHORT, every=SHORT / AT_ONCE)
    names = ("celery", CONTROL, *map(queue_of, slices))
    app.conf.task_queues = [_queue(name) for name in names]
    return app


def _queue(name: str) -> Any:  # Any: kombu has no types
    return Queue(name, Exchange(name), routing_key=name)  # type: ignore[no-untyped-call]


def _terms(
    folder: str | Path, slices: Mapping[str, int], seconds: float, every: float, tick_every: float
) -> CeleryTerms:
    for lane, number in slices.items():
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", lane):
            raise Misconfigured(f"{lane!r:.60} is not a lane. Name a kind of route or a route: http, browser; or all.")
        if not 1 <= number <= 1000:
            raise Misconfigured(f"slices of {lane} must be between 1 and 1,000, not {number}.")
    for name, value, least in (("seconds", seconds, 1), ("every", every, 1), ("tick_every", tick_every, 1)):
        if not least <= value <= 3600:
            raise Misconfigured(f"{name} must be between {least} and 3600 seconds, not {value:g}.")
    return CeleryTerms(
        folder=str(Path(folder).absolute()),
        slices=dict(slices),
        seconds=float(seconds),
        every=float(every),
        tick_every=float(tick_every),
    )


def _routes(terms: CeleryTerms) -> dict[str, dict[str, str]]:
    """The queue of each task, if its message names none."""
    first = queue_of(next(iter(terms.slices)))
    control = {f"gossamer.{name}": {"queue": CONTROL} for name in ("tick", "enqueue", "scrape")}
    return {**control, "gossamer.work": {"queue": first}}


def _list(routes: Any) -> list[Any]:
    """The routers in `task_routes` of an app: none, one, or several."""
    return [] if not routes else list(routes) if isinstance(routes, list | tuple) else [routes]


def _entries(terms: CeleryTerms) -> dict[str, dict[str, Any]]:
    """What Beat sends. Each message expires when the next one is due, so that an unread queue does not grow."""
    entries: dict[str, dict[str, Any]] = {
        "gossamer tick": {
            "task": "gossamer.tick",
            "schedule": terms.tick_every,
            "options": {"queue": CONTROL, "expires": terms.tick_every},
        }
    }
    for lane, number in terms.slices.items():
        for place in range(1, number + 1):
            entries[f"gossamer work {lane} {place}"] = {
                "task": "gossamer.work",
                "schedule": terms.every,
                "kwargs": {"seconds": terms.seconds, "lanes": [] if lane == ALL else [lane]},
                "options": {
                    "queue": queue_of(lane),
                    "expires": terms.every,
                    "time_limit": terms.seconds + HARD_LIMIT.total_seconds(),
                },
            }
    return entries


def queue_of(lane: str) -> str:
    """The queue of a lane."""
    return f"{CONTROL}.{lane}"


def _tasks(app: Celery, terms: CeleryTerms, finished: tuple[Message, ...]) -> Attached:
    def settings() -> Settings:
        return load(start=Path(terms.folder))

    def work(seconds: float = terms.seconds, lanes: list[str] | None = None) -> dict[str, Any]:
        """Work on the running jobs for `seconds`; only by the routes of these lanes, if any are named."""
        known = settings()
        serves = served_routes(known, ",".join(lanes)) if lanes else None
        lasts = timedelta(seconds=min(max(seconds, 1), 3600))
        return _run(lambda: work_slice(known, _Log(), lasts=lasts, serves=serves, told=is_stopped, messages=finished))

    def tick_task() -> dict[str, Any]:
        """Begin the runs that are due; send the messages of jobs that have ended."""
        return _run(lambda: tick(settings(), _Log(), lambda due: _send(app, due), messages=finished))

    def enqueue_task(
        self: Task,
        spider: str | None = None,
        *,
        recipe: str | None = None,
        url: str | None = None,
        arguments: dict[str, Any] | None = None,
        limit: int | None = None,
        depth: int | None = None,
        on_finished: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Begin a crawl of a spider, a recipe or a site; `on_finished` is sent once when it has ended."""
        fields = {"spider": spider, "recipe": recipe, "url": url, "arguments": arguments}
        wanted = request_of({**fields, "limit": limit, "depth": depth}, CrawlRequest)
        known = settings()
        own = (_named(app, known, on_finished, finished),) if on_finished is not None else ()
        return _run(lambda: enqueue(known, wanted, once=self.request.id or "", messages=(*finished, *own)))

    def scrape(url: str, **options: Any) -> dict[str, Any]:
        """Fetch one page and return it, as POST /api/v1/scrape does."""
        return _run(lambda: scrape_page(settings(), _Log(), request_of({"url": url, **options}, ScrapeRequest)))

    retried = {**DURABLE, "autoretry_for": (Transient, StillWorking), "retry_backoff": True}
    retried |= {"retry_backoff_max": RETRY_WITHIN, "max_retries": RETRIES}
    return Attached(
        terms=terms,
        work=app.task(name="gossamer.work", **DURABLE)(work),
        tick=app.task(name="gossamer.tick", **DURABLE)(tick_task),
        enqueue=app.task(name="gossamer.enqueue", bind=True, **retried)(enqueue_task),
        scrape=app.task(name="gossamer.scrape", **retried)(scrape),
    )


def _run(work: Callable[[], Coroutine[Any, Any, msgspec.Struct]]) -> dict[str, Any]:
    """Run it on its own event loop; return the result as plain values. Raises Misconfigured in a pool that cannot."""
    refuse_other_pools()
    with own_signals():
        try:
            import uvloop
        except ImportError:
            done = asyncio.run(work())
        else:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                done = runner.run(work())
    found: dict[str, Any] = msgspec.to_builtins(done)
    return found


# -- on_finished ---------------------------------------------------------------------------------------------------


def _message(signature: Signature) -> Message:
    """Encode a signature for storage until its job has ended. Raises Misconfigured."""
    if signature.subtask_type:
        raise Misconfigured(
            f"on_finished must be the signature of one task, not a {signature.subtask_type}: that task may start it."
        )
    try:
        text = msgspec.json.encode(dict(signature), order="sorted").decode()
    except TypeError as error:
        raise Misconfigured(f"on_finished of {signature.task} cannot be written as JSON: {error}.") from error
    if len(text) > MOST_TEXT:
        raise Misconfigured(f"on_finished of {signature.task} is longer than {MOST_TEXT:,} characters.")
    return Message(to=signature.task, text=text)


def _named(app: Celery, settings: Settings, told: dict[str, Any], finished: tuple[Message, ...]) -> Message:
    """The message for a signature in the message of a stranger or of our own program: they look alike. Raises
    Misconfigured, also if it could not be sent later."""
    if not isinstance(told, dict) or not isinstance(told.get("task"), str) or told.get("subtask_type"):
        raise Misconfigured("on_finished must be the signature of one task.")
    message = _message(app.signature(told))
    require_sendable(settings, message, finished)
    return message


def _send(app: Celery, due: DueMessage) -> None:
    """Send the task; return when the broker has it."""
    signature = app.signature(msgspec.json.decode(due.text))
    with app.connection_for_write(
        transport_options={**app.conf.broker_transport_options, "confirm_publish": True}
    ) as line:
        signature.apply_async((due.report,), task_id=due.id, connection=line, retry=False)


class _Log:
    """Logs events to the log of Celery's worker: problems, and jobs that end."""

    def emit(self, event: Event) -> None:
        if isinstance(event, Trouble):
            log.warning("%s%s", f"{event.job}: " if event.job else "", event.message)
        elif isinstance(event, JobEnded):
            log.info("%s ended: %s", event.job, event.outcome or event.ending)

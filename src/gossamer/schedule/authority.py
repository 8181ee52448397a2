"""What the state may make this machine run. Many can write a state on a server; they must not start programs here.

What it does: a command, or a file outside the project's folder, is used for a job only if one of these vouches for it:
our own settings, which have the same schedule or spider; the project's key (`fleet.key`), with which the job was
sealed; a state in a file, which no other user can write (settings/trust.py); or `fleet.allow_commands`. With a key,
every job must carry its seal, which binds the job's name to its spider, its source and the other terms of its schedule.
A schedule added by `gossamer schedule add` carries one as well; those of gossamer.toml need none.
How it fails: Misconfigured, before anything is run. How it recovers: the job waits for a worker that may run it.
"""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Any

import msgspec

from ..errors import Misconfigured
from ..model.job import SCHEDULED, JobTerms
from ..model.schedule import Schedule
from ..settings import FILE_NAME, Settings
from .definition import schedules_of
from .sources import CommandSource, FileSource, source_of
from .sources.kinds import program

# Expectations run nothing; these are sealed only if there are any, so that older seals stay valid.
_IF_ANY = ("arguments", "manners", "limit", "depth")
_UNSEALED = ("seal", "expected", *_IF_ANY)
_SEALED = tuple(name for name in SCHEDULED if name not in _UNSEALED)
_OF_SCHEDULE_IF_ANY = ("arguments", "rate", "site_concurrency")
_PLAIN = JobTerms()
_REMEDY = (
    f"Write the schedule into the {FILE_NAME} of the worker, or set fleet.key on all machines; if everyone who can "
    "write to the state is trusted, you can set fleet.allow_commands = true instead."
)


def sealed_terms(settings: Settings, job: str, terms: JobTerms) -> JobTerms:
    """The terms of a job of that name, with the seal of the project's key, if there is one."""
    return msgspec.structs.replace(terms, seal=_seal(settings, "job", _of_job(job, terms)))


def sealed_schedule(settings: Settings, schedule: Schedule) -> Schedule:
    return msgspec.structs.replace(schedule, seal=_seal(settings, "schedule", _of_schedule(schedule)))


def demand_own_job(settings: Settings, job: str, terms: JobTerms) -> None:
    """Raise Misconfigured unless all that a job of that name would run here is vouched for."""
    if settings.fleet.key:
        _demand_seal(f"Job {job}", terms.seal, _seal(settings, "job", _of_job(job, terms)))
        return
    if not settings.shares_state or settings.fleet.allow_commands:
        return
    source = source_of(terms.source)
    if terms.source in {one.source for one in schedules_of(settings.schedules).values()}:
        return
    if isinstance(source, CommandSource):
        raise Misconfigured(f"Its source is a command ({program(source.argv)}) that only the state names. {_REMEDY}")
    if isinstance(source, FileSource) and not _is_inside(settings, source.path):
        raise Misconfigured(f"Its source is a file outside {settings.root} that only the state names. {_REMEDY}")


def demand_own_schedule(settings: Settings, schedule: Schedule) -> None:
    """Raise Misconfigured if the project has a key, and the schedule is neither in its file nor sealed with it."""
    if settings.fleet.key and schedule != schedules_of(settings.schedules).get(schedule.name):
        expected = _seal(settings, "schedule", _of_schedule(schedule))
        _demand_seal(f"Schedule {schedule.name}", schedule.seal, expected)


def demand_own_spider(settings: Settings, file: str, ref: str) -> None:
    """Raise Misconfigured if a shared state names a spider's file that is outside the project's folder, and our own
    settings do not name it."""
    named = {table.spider for table in settings.schedules.values()}
    if settings.shares_state and not _is_inside(settings, file) and ref not in named:
        raise Misconfigured(
            f"The spider {ref} is a file outside {settings.root}. A state on a server may name files inside it "
            f"only: move it there, or write the schedule into {FILE_NAME}."
        )


def _is_inside(settings: Settings, path: str | Path) -> bool:
    return (settings.root / path).resolve().is_relative_to(settings.root.resolve())


def _of_job(name: str, terms: JobTerms) -> list[Any]:
    content = [name, *(getattr(terms, field) for field in _SEALED), *filter(None, (terms.arguments,))]
    pace = {field: getattr(terms, field) for field in _IF_ANY[1:] if getattr(terms, field) != getattr(_PLAIN, field)}
    if terms.stopped or terms.replayed:
        pace.pop("limit", None)  # the state itself has moved it, to end the job or to try pages again
    return [*content, *filter(None, (pace,))]


def _of_schedule(schedule: Schedule) -> list[Any]:
    content = msgspec.structs.asdict(msgspec.structs.replace(schedule, seal=""))
    content.pop("expected")
    return [value for name, value in content.items() if name not in _OF_SCHEDULE_IF_ANY or value]


def _seal(settings: Settings, kind: str, content: list[Any]) -> str:
    key = settings.fleet.key.reveal()
    message = msgspec.json.encode([kind, settings.project, *content])
    return hmac.digest(key.encode(), message, "sha256").hex() if key else ""


def _demand_seal(what: str, seal: str, expected: str) -> None:
    if not hmac.compare_digest(seal.encode(), expected.encode()):
        raise Misconfigured(
            f"{what} does not carry the seal of the project's key (fleet.key): it is older than the key, or was "
            "changed by someone without the key. Remove it, and start or add it again."
        )

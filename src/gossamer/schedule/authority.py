"""What the state may make this machine run and read. Many can write a state on a server; they must not start programs
here, nor read our files.

What it does: code is loaded from declared places only: the project's spiders folder, and the files that our own
settings name (`spider_files`, `[schedules]`). A path in a shared state declares nothing, with or without a seal. A
command, or a file of URLs that is not a list in the project's folder, is used for a job only if one of these vouches
for it: our own settings, which have the same schedule; the project's key (`fleet.key`), with which the job was sealed;
a state in a file, which no other user can write (settings/trust.py); or `fleet.allow_commands`. With a key, every job
must carry its seal, which binds the job's name to its spider, its source and the other terms of its schedule. A
schedule added by `gossamer schedule add` carries one as well; those of gossamer.toml need none. The settings, secrets
and databases of the project are no lists of URLs, whoever vouches.
How it fails: Misconfigured, before anything is run or read. How it recovers: the job waits for a worker that may run
it.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from ..errors import Misconfigured
from ..model.healing import HealedRules
from ..model.job import SCHEDULED, JobTerms
from ..model.schedule import Schedule
from ..parse.discovery import file_of, is_file_ref
from ..settings import FILE_NAME, Settings
from .definition import schedules_of
from .sources import CommandSource, FileSource, source_of
from .sources.kinds import program

# Expectations run nothing; these are sealed only if there are any, so that older seals stay valid.
_IF_ANY = ("arguments", "politeness", "limit", "depth")
_UNSEALED = ("seal", "expected", *_IF_ANY)
_SEALED = tuple(name for name in SCHEDULED if name not in _UNSEALED)
# Endings of files that a shared state may name as lists of URLs.
LISTS = (".txt", ".csv", ".tsv", ".jsonl", ".ndjson", ".list", ".urls")
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
    """Raise Misconfigured unless all that a job of that name would run and read here is vouched for."""
    if settings.fleet.key:
        _demand_seal(f"Job {job}", terms.seal, _seal(settings, "job", _of_job(job, terms)))
    source = source_of(terms.source)
    if isinstance(source, FileSource) and _is_private(settings, source.path):
        raise Misconfigured("Its source is a file with settings, secrets or data of the project, and no list of URLs.")
    if not settings.shares_state or settings.fleet.allow_commands or settings.fleet.key:
        return
    if terms.source in {one.source for one in schedules_of(settings.schedules).values()}:
        return
    if isinstance(source, CommandSource):
        raise Misconfigured(f"Its source is a command ({program(source.argv)}) that only the state names. {_REMEDY}")
    if isinstance(source, FileSource) and not _is_list(settings, source.path):
        raise Misconfigured(
            f"Its source is a file that only the state names, and no list of URLs ({', '.join(LISTS)}) in "
            f"{settings.root}. {_REMEDY}"
        )


def demand_own_schedule(settings: Settings, schedule: Schedule) -> None:
    """Raise Misconfigured if the project has a key, and the schedule is neither in its file nor sealed with it."""
    if settings.fleet.key and schedule != schedules_of(settings.schedules).get(schedule.name):
        expected = _seal(settings, "schedule", _of_schedule(schedule))
        _demand_seal(f"Schedule {schedule.name}", schedule.seal, expected)


def sealed_rules(settings: Settings, rules: HealedRules) -> HealedRules:
    """Healed rules with the seal of the project's key, if there is one."""
    return msgspec.structs.replace(rules, seal=_seal(settings, "rules", _of_rules(rules)))


def demand_own_rules(settings: Settings, rules: HealedRules) -> None:
    """Raise Misconfigured if the project has a key, and these rules of a recipe do not carry its seal."""
    if settings.fleet.key:
        _demand_seal(f"The healed rules of {rules.spider}", rules.seal, _seal(settings, "rules", _of_rules(rules)))


def demand_own_spider(settings: Settings, ref: str) -> None:
    """Raise Misconfigured if a shared state names a file of code or a recipe that nothing here declares."""
    if not settings.shares_state or not is_file_ref(ref) or _is_declared(settings, settings.root / file_of(ref)):
        return
    raise Misconfigured(
        f"The spider {ref} is a file that only the state names, and such a file is not loaded. If it is yours, move it "
        f"to {settings.root / settings.spiders}, or name it in the {FILE_NAME} of the worker: "
        f"spider_files = [{file_of(ref)!r}]."
    )


def sealed_message(settings: Settings, job: str, text: str) -> str:
    """The seal of a message about the end of that job (project/jobs/messages.py), if there is a key."""
    return _seal(settings, "message", [job, text])


def demand_own_message(settings: Settings, job: str, to: str, text: str, seal: str, own: Collection[str]) -> None:
    """Raise Misconfigured unless the program that sends the message (`own` are its texts), the project's key or a state
    of our own vouches for it: its receiver is a task of the program, with arguments of the sender's choice."""
    if text in own:
        return
    if settings.fleet.key:
        _demand_seal(f"The message of {job} to {to}", seal, sealed_message(settings, job, text))
    elif settings.shares_state and not settings.fleet.allow_commands:
        raise Misconfigured(
            f"The message of {job} is for a task ({to}) that only the state names. Name it in attach(on_finished=...), "
            "or set fleet.key on all machines; if everyone who can write to the state is trusted, you can set "
            "fleet.allow_commands = true instead."
        )


def declared(settings: Settings, ref: str) -> Settings:
    """Settings that declare a file which the user of this process named."""
    if not is_file_ref(ref):
        return settings
    return msgspec.structs.replace(settings, spider_files=(*settings.spider_files, file_of(ref)))


def _is_declared(settings: Settings, file: Path) -> bool:
    # Not below the spiders folder, but right in it, as for spiders by name: it may be the project's folder itself.
    if file.parent.resolve() == (settings.root / settings.spiders).resolve():
        return True
    named = (*settings.spider_files, *(table.spider for table in settings.schedules.values()))
    return file.resolve() in {(settings.root / file_of(one)).resolve() for one in named if is_file_ref(one)}


def _is_list(settings: Settings, path: str) -> bool:
    """Is it a list of URLs in the project's folder, by its name and place?"""
    file, root = (settings.root / path).resolve(), settings.root.resolve()
    if not file.is_relative_to(root) or any(part.startswith(".") for part in file.relative_to(root).parts):
        return False
    return file.name.lower().removesuffix(".gz").endswith(LISTS)


def _is_private(settings: Settings, path: str) -> bool:
    """Is it one of the files in which the project keeps its settings, secrets and data?"""
    file = (settings.root / path).resolve()
    stores = (settings.state, settings.records, settings.archive)
    local = [address for address in stores if address.startswith(("sqlite:", "folder:"))]
    names = [
        FILE_NAME,
        settings.secrets,
        settings.store.spool,
        settings.files.parts,
        *(unquote(address.partition("://")[2][1:]) for address in local),
        *(name for pool in settings.proxies.values() for name in (pool.file, pool.secret)),
        *(vendor.secret for vendor in settings.managed.values()),
    ]
    places = [(settings.root / name).resolve() for name in names if name]
    # A database has files beside it whose names begin with its own.
    return any(
        file.is_relative_to(place) or (file.parent == place.parent and file.name.startswith(f"{place.name}-"))
        for place in places
    )


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


def _of_rules(rules: HealedRules) -> list[Any]:
    return [msgspec.to_builtins(msgspec.structs.replace(rules, seal=""))]


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

"""Checks that everything a crawl needs is there. Each check yields findings, with the next step if something is wrong.

What it does: examines the machine, the settings, the backends, the routes, the spiders and the schedules. It fetches
nothing, creates no file and starts no program, save a browser that a route needs. How it fails: it does not; every
fault is a finding. A spider or a file of a schedule that is missing here may exist on the workers' machines: that is a
warning.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from ...backends.addresses import is_local, local_path, place_of
from ...backends.open import open_archive, open_records, open_state
from ...clock import ServerClock, SystemClock
from ...crawl.heartbeat import CLOCK_OFF, CLOCK_WRONG, clock_in_words
from ...errors import GossamerError, Misconfigured, SpiderNotFound
from ...fetch.browser.chromium import is_there
from ...model.route import BROWSER
from ...model.schedule import ScheduleProgress
from ...model.windows import parse_windows
from ...parse.discovery import list_spiders
from ...parse.seeds import named_addresses
from ...schedule.definition import schedules_of
from ...schedule.spider_loader import Spiders
from ...schedule.triggers import parse_trigger
from ...settings import FILE_NAME, Settings, find_file, load
from ...terms import routing_of, site_terms
from ...units import many, moment, size
from ..jobs.celery_terms import examine_app
from ..open import is_crawled, open_project
from ..schedules.changes import opening_for, schedule_warnings
from ..schedules.schedules import Book, book_of_file, read_book
from ..schedules.timetable import is_missed
from ..sites.domain_names import domain_fault
from ..sites.sessions import login_troubles
from ..transports import check_installed, transports_of, used_transports
from ..workers import machine_health as machine
from ..workers.spools import SpoolView, list_spools, spool_files
from ..workers.workers import ARCHIVE_FULL
from .health_values import DoctorFinding as DoctorFinding
from .health_values import Level as Level
from .health_values import ok

ROLES = ("state", "records", "archive")


async def examine(folder: Path, *, online: bool = False) -> AsyncIterator[DoctorFinding]:
    """Run every check, the cheap ones first, for the project found from `folder` upwards.

    Without readable settings the project is not examined. `online` also looks up a name of
    the internet; without it, only servers that the settings name are asked.
    """
    for check in (machine.python, machine.packages, machine.sqlite, machine.uvloop):
        yield check()
    if online:
        yield await asyncio.to_thread(machine.dns)
    try:
        settings = load(start=folder)
        # This also detects addresses that this version does not know.
        places = {role: local_path(settings, role) for role in ROLES if is_local(settings, role)}
    except GossamerError as error:
        yield machine.clock()
        yield DoctorFinding(
            Level.FAIL, "settings", str(error), f"Fix {FILE_NAME} or the variable; the rest was not checked."
        )
        return
    yield machine.clock() if "state" in places else await _clock(settings)
    file = find_file(folder)
    yield ok("settings", f"{file}" if file is not None else f"no {FILE_NAME} from here upwards: defaults")
    for fault in filter(None, map(domain_fault, settings.domains)):
        yield DoctorFinding(Level.FAIL, "sites", fault, f"Fix {FILE_NAME}; no crawl can start before.")
    yield machine.open_files(settings)
    for finding in machine.disk(list(places.values())):
        yield finding
    for role, path in places.items():
        yield (
            machine.archive_folder(path) if role == "archive" else await asyncio.to_thread(machine.database, role, path)
        )
    all_answer = True
    for role in ROLES:
        if role not in places:
            fault = await _unreachable(settings, role)
            all_answer = all_answer and not fault
            yield DoctorFinding(Level.FAIL, role, fault) if fault else ok(role, place_of(settings, role))
    # Where nothing was crawled yet there are no files, and looking makes none.
    if all_answer and all(path.exists() for role, path in places.items() if role != "archive"):
        async for finding in _opens(settings):
            yield finding
    if (found := await _archive_room(settings)) is not None:
        yield found
    logins = [DoctorFinding(Level.WARN, "sessions", *words) for words in await login_troubles(settings)]
    for finding in (*await _waiting_results(settings), *logins, *await _routes(settings), *_spiders(settings)):
        yield finding
    for finding in examine_app(settings):
        yield finding
    async for finding in _schedules(settings):
        yield finding


async def _clock(settings: Settings) -> DoctorFinding:
    """This machine's clock beside that of the state's server. Faults of the state are reported elsewhere."""
    clock = ServerClock(SystemClock())
    with suppress(GossamerError):
        async with open_state(settings, clock, terms_for=site_terms(settings, None)):
            ahead = clock.ahead
        if abs(ahead) > CLOCK_OFF:
            wrong = abs(ahead) > CLOCK_WRONG
            advice = "Set it; workers of this machine take no work until then." if wrong else "Set it."
            return DoctorFinding(Level.FAIL if wrong else Level.WARN, "clock", f"it is {clock_in_words(ahead)}", advice)
    return machine.clock()


async def _archive_room(settings: Settings) -> DoctorFinding | None:
    """How much of its limit the archive has used. Faults of the archive itself are reported elsewhere."""
    limit = settings.store.archive_limit
    if limit is None or (is_local(settings, "archive") and not local_path(settings, "archive").exists()):
        return None
    with suppress(GossamerError):
        async with open_archive(settings, "doctor") as archive:
            held = await archive.size()
        detail = f"holds {size(held)} of {limit} (store.archive_limit)"
        full = held >= limit.bytes
        return DoctorFinding(Level.WARN, "archive", detail, ARCHIVE_FULL) if full else ok("archive", detail)
    return None


async def _opens(settings: Settings) -> AsyncIterator[DoctorFinding]:
    """Open the backends as a crawl does: detects ones that are away, belong to another program or have a newer
    version."""
    try:
        async with open_project(settings) as project:
            jobs = await project.state.jobs.jobs()
            newest = max((job.created_at for job in jobs), default=0.0)
            now, warnings = project.clock.now(), project.warnings
    except GossamerError as error:
        yield DoctorFinding(Level.FAIL, "project", str(error))
        return
    for warning in warnings:
        yield DoctorFinding(Level.WARN, "state", warning)
    if newest > now + 60:
        yield DoctorFinding(
            Level.WARN, "project", f"its newest job began at {moment(newest)}, which is in the future", "Set the clock."
        )
    else:
        yield ok("project", f"opens, {many(len(jobs), 'job')}")


async def _waiting_results(settings: Settings) -> list[DoctorFinding]:
    """Whether results wait on the disks of workers, here or elsewhere. Faults of the backends are reported
    elsewhere."""
    findings, noted = [], list[SpoolView]()
    if is_crawled(settings):
        with suppress(GossamerError):
            async with open_project(settings, to_look=True) as project:
                noted = await list_spools(project)
    for view in noted:
        if view.given_up:
            continue
        detail = f"{many(view.results, 'result')} of {', '.join(view.jobs)} wait on {view.host} in {view.folder}"
        advice = "They are stored when the record store and the archive answer."
        if not view.alive:
            advice = (
                f"No worker is at work there: start one on {view.host}, or run `gossamer spool drain` there. If that "
                f"machine is lost: gossamer spool forget {view.name}"
            )
        findings.append(DoctorFinding(Level.WARN, "spool", detail, advice))
    for files in spool_files(settings, (view.name for view in noted)):
        if not files.name:
            detail = f"{many(files.files, 'file')} with results that could not be stored, {size(files.bytes)}"
            findings.append(DoctorFinding(Level.WARN, "spool", detail, "Look at the files that end in .bad."))
        elif not files.noted:
            detail = f"results wait in {files.name}, {size(files.bytes)}, and the state does not know of them"
            findings.append(DoctorFinding(Level.WARN, "spool", detail, "gossamer spool drain stores them."))
    return findings or [ok("spool", "no results wait")]


async def _unreachable(settings: Settings, role: str) -> str:
    """Why a server does not answer or holds foreign data; "" if all is well."""
    clock = ServerClock(SystemClock())
    try:
        async with AsyncExitStack() as stack:
            if role == "records":
                await stack.enter_async_context(open_records(settings, clock))
            elif role == "state":
                terms = site_terms(settings)
                await stack.enter_async_context(open_state(settings, clock, terms_for=terms))
            else:
                await stack.enter_async_context(open_archive(settings, "doctor"))
    except GossamerError as error:
        return str(error)
    return ""


async def _routes(settings: Settings) -> list[DoctorFinding]:
    """Whether the routes are valid, and what they need is installed and starts."""
    try:
        routing = routing_of(settings)
        transports_of(settings, SystemClock())
    except GossamerError as error:
        return [DoctorFinding(Level.FAIL, "routes", str(error))]
    ladder = ok("routes", " > ".join(route.name for route in routing.ladder))
    try:
        check_installed(settings, routing, None)
    except GossamerError as error:
        return [ladder, DoctorFinding(Level.FAIL, "routes", str(error))]
    return [ladder, await _browser(settings, needed=BROWSER in used_transports(settings, routing))]


async def _browser(settings: Settings, *, needed: bool) -> DoctorFinding:
    if is_there(settings.browser.executable) is not None:
        return ok("browser", "none, and no route needs one")
    if not needed:
        return ok("browser", "installed; it was not started, since no route needs one")
    from ...fetch.browser.pool import start_fault  # rarely needed, and slow to import

    fault = await start_fault(settings.browser)
    if fault:
        return DoctorFinding(Level.FAIL, "browser", fault, "Pages of routes that need one wait until it can start.")
    return ok("browser", "it starts, for pages made by scripts")


def _spiders(settings: Settings) -> Iterator[DoctorFinding]:
    found = list_spiders(settings.root, settings.spiders)
    for file in found.broken:
        yield DoctorFinding(Level.FAIL, "spiders", str(file), "Fix the file; the other spiders can run meanwhile.")
    for words in found.remarks():
        yield DoctorFinding(Level.WARN, "spiders", words)
    for spec in found.spiders:
        for fault in spec.faults:
            yield DoctorFinding(Level.WARN, "spiders", f"{spec.name}: {fault}")
    files: dict[str, list[str]] = {}
    for spec in found.spiders:
        files.setdefault(spec.name, []).append(spec.path.name)
    for name, places in files.items():
        if len(places) > 1:
            advice = "Rename one, or crawl it by its path: file.py:Class."
            yield DoctorFinding(Level.WARN, "spiders", f"{len(places)} are called {name}: {', '.join(places)}", advice)
    names = ", ".join(files)
    if names:
        yield ok("spiders", names)
    elif not found.broken:
        yield ok("spiders", f"none in {settings.spiders}/; URLs can be crawled without")


async def _schedules(settings: Settings) -> AsyncIterator[DoctorFinding]:
    """Whether the schedules of gossamer.toml and the added ones can be read, and have what they need."""
    try:
        found = schedules_of(settings.schedules)
    except GossamerError as error:
        yield DoctorFinding(Level.FAIL, "schedules", str(error))
        return
    now = SystemClock().now()
    schedules = [ScheduleProgress(schedule=one, origin="file", created_at=now) for one in found.values()]
    with suppress(GossamerError):  # faults of the state were reported before
        schedules = (await _book(settings)).schedules
    faults = [*_window_faults(settings), *_schedule_faults(settings, schedules, now)]
    for fault in faults:
        yield fault
    if schedules and not faults:
        yield ok("schedules", ", ".join(one.schedule.name for one in schedules))


async def _book(settings: Settings) -> Book:
    if not is_crawled(settings):  # looking must not create files
        return book_of_file(settings, SystemClock().now())
    async with open_project(settings, to_look=True) as project:
        return await read_book(project)


def _window_faults(settings: Settings) -> Iterator[DoctorFinding]:
    for site, domain in settings.domains.items():
        try:
            parse_windows(domain.windows) if domain.windows else ()
        except Misconfigured as error:
            detail = f"domains.{site}.windows: {error}"
            yield DoctorFinding(Level.FAIL, "schedules", detail, "Fix it in gossamer.toml.")


def _schedule_faults(settings: Settings, schedules: Iterable[ScheduleProgress], now: float) -> Iterator[DoctorFinding]:
    """What prevents these schedules from running. A schedule whose runs will fail on every machine is a failure."""
    spiders = Spiders(settings)  # reads the folder once
    for progress in schedules:
        schedule = progress.schedule
        starts: list[str] = []
        try:
            parse_trigger(schedule.trigger, schedule.zone)
            opening_for(settings, schedule, 0.0, spiders=spiders)
            if "://" not in schedule.spider:
                starts += named_addresses(spiders.find(schedule.spider))
        except SpiderNotFound as error:
            advice = "It can run only where its spider is: with schedulers and workers of other machines."
            yield DoctorFinding(Level.WARN, "schedules", f"{schedule.name}: {error}", advice)
        except Misconfigured as error:
            advice = "Until that is fixed, no run of it can start."
            yield DoctorFinding(Level.FAIL, "schedules", f"{schedule.name}: {error}", advice)
            continue
        if is_missed(progress, now):
            detail = f"{schedule.name}: its time has passed without a run."
            advice = f"Write another moment, or begin a run now: gossamer schedule run {schedule.name}"
            yield DoctorFinding(Level.WARN, "schedules", detail, advice)
        for words in schedule_warnings(settings, progress, starts, now):
            yield DoctorFinding(Level.WARN, "schedules", f"{schedule.name}: {words}")

"""Security checks of a project: who could read, change or misuse it. For `gossamer doctor --security`.

What it does: examines the user, the files, the addresses that may be visited, the browser, the servers and the programs
that schedules run. It opens, fetches and starts nothing. How it fails: it does not; every weakness is a finding with
the next step. FAIL means that others can run programs here; WARN is something that the owner should know and may
intend.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qs, unquote

from ...backends.addresses import is_local, local_path, place_of
from ...errors import GossamerError
from ...fetch.browser.chromium import is_there, wants_sandbox
from ...model.url import host_of
from ...schedule.definition import schedules_of
from ...schedule.sources import CommandSource, source_of
from ...schedule.sources.kinds import program
from ...settings import FILE_NAME, Settings, find_file, load
from ...settings.trust import TRUST
from ...units import Secret, many
from ..upkeep.health_values import DoctorFinding, Level, ok

ROLES = ("state", "records", "archive")


def posture(folder: Path) -> Iterator[DoctorFinding]:
    """Run every check for the project found from `folder` upwards."""
    yield _user()
    try:
        settings = load(start=folder)
        places = [local_path(settings, role) for role in ROLES if is_local(settings, role)]
        programs = _programs(settings)
    except GossamerError as error:
        yield DoctorFinding(Level.FAIL, "project", str(error), "The rest was not checked.")
        return
    yield _trust(settings)
    yield from _readable([*places, settings.root / settings.store.spool])
    file = find_file(folder)
    if file is not None:
        yield _secrets(settings, file)
    yield _addresses(settings)
    yield _browser(settings)
    yield programs
    yield from _servers(settings)


def _user() -> DoctorFinding:
    if os.geteuid() == 0:
        advice = "Crawl as a separate user: a page that breaks out can then do less harm."
        return DoctorFinding(Level.WARN, "user", "root", advice)
    return ok("user", f"number {os.geteuid()}, not root")


def _trust(settings: Settings) -> DoctorFinding:
    if trusted := os.environ.get(TRUST, ""):
        return DoctorFinding(Level.WARN, "project", f"{TRUST} trusts {trusted}, and anyone who can write there")
    return ok("project", f"only you and root can write {settings.root / FILE_NAME}, spiders and data")


def _readable(places: list[Path]) -> Iterator[DoctorFinding]:
    """What others can read. A folder that others cannot enter hides everything in it."""
    there = [place for place in places if place.exists()]
    seen = [place for place in there if _others(place) and not any(_closed(folder) for folder in place.parents)]
    for place in seen:
        advice = f"chmod -R go= {place.parent if place.is_file() else place}"
        yield DoctorFinding(Level.WARN, "data", f"other users can read {place}", advice)
    if not seen:
        yield ok("data", "no other user can read it" if there else "nothing was crawled yet")


def _others(path: Path) -> bool:
    return bool(path.stat().st_mode & (stat.S_IROTH | stat.S_IRGRP))


def _closed(folder: Path) -> bool:
    return not folder.stat().st_mode & (stat.S_IXOTH | stat.S_IXGRP)


def _secrets(settings: Settings, file: Path) -> DoctorFinding:
    """Passwords in a file that others can read."""
    held = [key for key, origin in settings.origins.items() if origin == str(file) and _is_secret(settings, key)]
    if held and _others(file) and not any(_closed(folder) for folder in file.parents):
        detail = f"other users can read {file}, which holds {', '.join(held[:3])}{' ...' if len(held) > 3 else ''}"
        return DoctorFinding(Level.WARN, "secrets", detail, f"chmod go= {file}, or use variables: GOSSAMER_STATE=...")
    return ok("secrets", f"{many(len(held), 'setting')} of {FILE_NAME} with a password or key")


def _is_secret(settings: Settings, key: str) -> bool:
    value: object = settings
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
    if isinstance(value, tuple):
        return any(isinstance(one, Secret) for one in value)
    return isinstance(value, Secret) or (key in ROLES and "@" in str(value))


def _addresses(settings: Settings) -> DoctorFinding:
    fetch = settings.fetch
    if fetch.allow_private:
        detail = "fetch.allow_private: a link on any page may lead into your own network"
        return DoctorFinding(Level.WARN, "addresses", detail, "Name the hosts that are meant in fetch.allow_hosts.")
    named = f", save {', '.join(fetch.allow_hosts)}" if fetch.allow_hosts else ""
    denied = f"; never {', '.join(fetch.deny)}" if fetch.deny else ""
    return ok("addresses", f"private ones and those of this machine are refused{named}{denied}")


def _browser(settings: Settings) -> DoctorFinding:
    if is_there(settings.browser.executable) is not None:
        return ok("browser", "none is installed")
    if not wants_sandbox():
        detail = "Chromium runs without its sandbox, because you are root"
        return DoctorFinding(Level.WARN, "browser", detail, "Render pages as another user, or in a separate container.")
    return ok("browser", "Chromium is started in its sandbox alone")


def _programs(settings: Settings) -> DoctorFinding:
    """Raises Misconfigured for a schedule that cannot be read."""
    sources = {name: source_of(one.source) for name, one in schedules_of(settings.schedules).items()}
    commands = [f"{program(one.argv)} ({name})" for name, one in sources.items() if isinstance(one, CommandSource)]
    if settings.fleet.allow_commands and settings.shares_state and not settings.fleet.key:
        detail = "fleet.allow_commands: who can write to the state runs programs on every worker"
        return DoctorFinding(
            Level.FAIL, "programs", detail, f"Write such schedules into {FILE_NAME}, or set fleet.key."
        )
    return ok("programs", f"schedules of {FILE_NAME} run {', '.join(commands) or 'none'}")


def _servers(settings: Settings) -> Iterator[DoctorFinding]:
    if settings.shares_state and not settings.fleet.key:
        detail = "no fleet.key: who can write to the state can begin jobs with the project's spiders"
        yield DoctorFinding(
            Level.WARN, "state", detail, "Set GOSSAMER_FLEET__KEY to the same long text on all machines."
        )
    for role in ROLES:
        if is_local(settings, role):
            continue
        address = str(getattr(settings, role))
        if _is_plain(address):
            detail = f"{place_of(settings, role)} is not encrypted on its way"
            yield DoctorFinding(Level.WARN, role, detail, "Use rediss://, ?sslmode=verify-full or https.")
        else:
            yield ok(role, f"{place_of(settings, role)} is encrypted on its way, or on this machine")


def _is_plain(address: str) -> bool:
    """Whether it crosses a network without TLS."""
    scheme, _, rest = address.partition("://")
    options = {name: values[-1] for name, values in parse_qs(rest.partition("?")[2]).items()}
    if scheme in ("rediss", "valkeys", "redis+unix"):
        return False
    if scheme == "s3":
        return unquote(options.get("endpoint", "https:")).startswith("http:")
    host = host_of(f"http://{rest.partition('?')[0]}")
    try:
        near = ip_address(host).is_loopback
    except ValueError:
        near = host in ("", "localhost")
    encrypted = options.get("sslmode") in ("require", "verify-ca", "verify-full") or "true" in (
        options.get("tls"),
        options.get("ssl"),
    )
    return not near and not encrypted

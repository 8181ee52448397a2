"""The repairs that fit an incident: what a person can do about it, each as a button, a page or a command. Pure.

A repair changes nothing by itself here: a button is the address of an action of the dashboard with its fields, which
asks for the same rights as everywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from shlex import quote as words
from urllib.parse import quote

import msgspec

from ...model.healing import LayoutState
from ...model.incident import Subject, SubjectKind
from ...settings.overrides import PACE
from ...units import many


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """`action` is what a button submits with `fields`, or else `page` is where to go. `command` does the same in a
    terminal; "" if there is none."""

    words: str
    action: str = ""
    fields: dict[str, str] = {}
    page: str = ""
    command: str = ""


class RepairFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an incident when repairs are chosen."""

    about: Subject
    dead_letters: int = 0
    parsed: int = 0  # of them came, and could not be parsed, for the reason that most of them have:
    reason: str = ""
    example: str = ""  # the page of one of those, in the dashboard
    jobs: tuple[str, ...] = ()  # that it is about, the latest first
    running: tuple[str, ...] = ()  # of them
    overridden: tuple[str, ...] = ()  # settings of the subject that are set by hand
    routes: tuple[str, ...] = ()  # that the pages of the site may take
    probe: str = ""  # a command that tries a page that was refused by a route that is not set yet
    learned: bool = False  # whether a route was learned for it
    budgets: tuple[tuple[str, float], ...] = ()  # that are nearly spent: their settings, and how much they allow
    proxies: tuple[str, ...] = ()  # of the pool that rest or fail
    page: str = ""  # of the incident in the dashboard
    missing: tuple[str, ...] = ()  # workers
    frozen: tuple[str, ...] = ()  # of them, those whose process lives
    busy: tuple[str, ...] = ()  # workers that have the job
    waits: str = ""  # what all open pages of the job wait for
    spider: str = ""
    layout: LayoutState | None = None  # a new layout that the spider met
    healed: bool = False  # new rules were learned for it


def repairs_for(facts: RepairFacts) -> list[Repair]:
    """The likeliest first."""
    about = facts.about
    found = {
        SubjectKind.SITE: _of_site,
        SubjectKind.SPIDER: _of_spider,
        SubjectKind.JOB: _of_job,
        SubjectKind.SCHEDULE: _of_schedule,
        SubjectKind.POOL: _of_pool,
        SubjectKind.BUDGET: _of_budget,
        SubjectKind.WORKERS: _of_workers,
        SubjectKind.SESSION: _of_session,
        SubjectKind.MACHINE: _of_machine,
        SubjectKind.RECEIVER: _of_receiver,
        SubjectKind.STORE: _of_store,
        SubjectKind.OUTPUT: _of_output,
    }.get(about.kind)
    return list((found or _of_project)(facts))


def _of_project(facts: RepairFacts) -> Iterator[Repair]:
    if facts.dead_letters:
        yield Repair(words="Its dead letters, in groups", page="/ui/dead", command="gossamer dead list")
    yield Repair(words="See what waits, and why", page="/ui/queue", command="gossamer site list")


def _of_site(facts: RepairFacts) -> Iterator[Repair]:
    site = facts.about.name
    path = f"/ui/queue/{quote(site, safe='')}"
    if facts.probe:
        yield Repair(
            words="It refuses this visitor, and there is no other route: try one, and add it (docs/routes.md)",
            command=facts.probe,
        )
    if facts.dead_letters:
        yield Repair(
            words=f"Try its {many(facts.dead_letters, 'dead letter')} again",
            action="/ui/dead/replay",
            fields={"domain": site},
            command=f"gossamer dead replay --domain {words(site)}",
        )
    yield from _more_budget(facts)
    pace = {f"domains.{site}.{field}" for field in PACE}
    if pace & set(facts.overridden):
        yield Repair(
            words="Go on as the settings say",
            action=f"{path}/resume",
            command=f"gossamer site resume {words(site)}",
        )
    yield Repair(
        words="Let it rest for an hour",
        action=f"{path}/rest",
        fields={"duration": "1h"},
        command=f"gossamer site rest {words(site)} 1h",
    )
    yield Repair(
        words="At most 6 requests a minute",
        action=f"{path}/slow",
        fields={"rate": "6/m"},
        command=f"gossamer site slow {words(site)} 6/m",
    )
    for route in facts.routes[1:]:
        yield _by_hand(facts, f"Always take the route {route}", f"domains.{site}.route", route)
    yield from _taken_back(facts, pace)
    if facts.learned:
        yield Repair(
            words="Forget its learned route",
            action="/ui/routes/forget",
            fields={"site": site},
            command=f"gossamer routes reset {words(site)}",
        )
    yield Repair(words="Its pace, robots.txt and queue", page=path, command=f"gossamer site show {words(site)}")
    yield Repair(words="Its last attempts", page=f"/ui/attempts?domain={quote(site, safe='')}")


def _by_hand(facts: RepairFacts, what: str, key: str, value: str, lasts: str = "") -> Repair:
    end = f" --lasts {lasts}" if lasts else ""
    fields = {"key": key, "value": value, "back": facts.page}
    return Repair(
        words=what,
        action="/ui/overrides/set",
        fields=fields | ({"lasts": lasts} if lasts else {}),
        command=f"gossamer override set {words(key)} {words(value)}{end}",
    )


def _taken_back(facts: RepairFacts, but: Collection[str] = ()) -> Iterator[Repair]:
    for key in facts.overridden:
        if key not in but:
            yield Repair(
                words=f"Take back {key}, which is set by hand",
                action="/ui/overrides/remove",
                fields={"key": key, "back": facts.page},
                command=f"gossamer override remove {words(key)}",
            )


def _more_budget(facts: RepairFacts) -> Iterator[Repair]:
    for key, limit in facts.budgets:
        lasts = "" if key == "router.budget_job" else "24h"
        day = f" for {lasts}" if lasts else " for every job"
        yield _by_hand(facts, f"Allow twice as much, {2 * limit:g} credits{day}", key, f"{2 * limit:g}", lasts)


def _of_layout(facts: RepairFacts) -> Iterator[Repair]:
    name, page = words(facts.about.name), f"/ui/spiders/{quote(facts.about.name, safe='')}"
    if facts.healed and facts.layout is LayoutState.FOUND:
        yield Repair(
            words="Take the sure rules into use, and parse the pages again",
            action=f"{page}/apply",
            command=f"gossamer heal {name} --apply",
        )
    if facts.layout in (LayoutState.APPLIED, LayoutState.DOUBTFUL):
        yield Repair(
            words="Leave the healed rules, and take their values back",
            action=f"{page}/undo",
            command=f"gossamer heal {name} --undo",
        )
    yield Repair(words="The evidence for every field", page=f"{page}/healing", command=f"gossamer heal {name}")


def _of_spider(facts: RepairFacts) -> Iterator[Repair]:
    if facts.layout is not None:
        yield from _of_layout(facts)
    if facts.example:
        yield Repair(words="Look at a page that failed", page=facts.example)
    if facts.jobs and facts.parsed:
        job = facts.jobs[0]
        yield Repair(
            words=f"Parse {many(facts.parsed, 'page')} that came again, from the archive",
            action="/ui/dead/replay",
            fields={"job": job, "reason": facts.reason},
            command=f"gossamer dead replay --job {words(job)} --reason {facts.reason}",
        )
    if facts.jobs and facts.dead_letters > facts.parsed:
        job = facts.jobs[0]
        yield Repair(
            words=f"Try its {many(facts.dead_letters, 'dead letter')} again",
            action="/ui/dead/replay",
            fields={"job": job},
            command=f"gossamer dead replay --job {words(job)}",
        )
    yield from _run_again(facts)
    yield Repair(
        words="Which fields are at fault",
        page=f"/ui/quality?spider={quote(facts.about.name, safe='')}",
        command=f"gossamer quality {words(facts.about.name)}",
    )


def _run_again(facts: RepairFacts) -> Iterator[Repair]:
    if facts.jobs and not facts.running:
        job = facts.jobs[0]
        yield Repair(words=f"Run {job} again", action=f"/ui/jobs/{quote(job, safe='')}/again")


def _of_job(facts: RepairFacts) -> Iterator[Repair]:
    job = facts.about.name
    path = f"/ui/jobs/{quote(job, safe='')}"
    if facts.waits:
        yield Repair(words=f"See where {facts.waits}", page=f"/ui/queue?job={quote(job, safe='')}")
    yield from _more_budget(facts)
    if facts.running:
        yield Repair(words="Cancel it", action=f"{path}/cancel", command=f"gossamer job cancel {words(job)}")
        yield Repair(words="Pause it", action=f"{path}/pause", command=f"gossamer job pause {words(job)}")
    for name in facts.busy[:3]:
        yield Repair(
            words=f"Restart {name}, which works on it",
            action="/ui/workers/restart",
            fields={"name": name},
            command=f"gossamer workers restart {words(name)}",
        )
    yield from _taken_back(facts)
    yield from _run_again(facts)
    yield Repair(words="Which workers are alive", page="/ui/workers", command="gossamer workers")
    yield Repair(words="The job", page=path, command=f"gossamer status {words(job)}")


def _of_schedule(facts: RepairFacts) -> Iterator[Repair]:
    name = facts.about.name
    path = f"/ui/schedules/{quote(name, safe='')}"
    yield Repair(words="Run it now", action=f"{path}/run", command=f"gossamer schedule run {words(name)}")
    yield Repair(words="Pause it", action=f"{path}/pause", command=f"gossamer schedule pause {words(name)}")
    yield Repair(words="The schedule", page=path, command=f"gossamer schedule show {words(name)}")


def _of_pool(facts: RepairFacts) -> Iterator[Repair]:
    pool = facts.about.name
    yield Repair(
        words="Try its proxies",
        action="/ui/routes/try",
        fields={"pool": pool},
        command=f"gossamer proxies check {words(pool)}",
    )
    yield Repair(
        words="End the rests of its proxies",
        action="/ui/routes/wake",
        fields={"pool": pool},
        command=f"gossamer proxies reset {words(pool)}",
    )
    for proxy in facts.proxies[:5]:
        yield _by_hand(facts, f"Leave {proxy} out", f"proxies.{pool}.skip.{proxy}", "yes")
    yield from _taken_back(facts)
    yield Repair(words="Its proxies", page="/ui/routes", command=f"gossamer proxies show {words(pool)}")


def _of_budget(facts: RepairFacts) -> Iterator[Repair]:
    yield from _more_budget(facts)
    yield from _taken_back(facts)
    yield Repair(words="What was spent, and where", page="/ui/routes", command="gossamer routes")


def _of_workers(facts: RepairFacts) -> Iterator[Repair]:
    for name in facts.frozen[:5]:
        yield Repair(
            words=f"{name} is frozen: end it on its machine",
            page="/ui/workers",
            command=f"kill -9 {name.split('/')[1]}",
        )
    for name in facts.missing[:5]:
        yield Repair(
            words=f"{name} is gone for good: forget it",
            action="/ui/workers/forget", fields={"name": name},
            command=f"gossamer workers forget {words(name)}",
        )  # fmt: skip
    yield Repair(words="Which workers are alive", page="/ui/workers", command="gossamer workers")
    yield Repair(words="Start another one, on any machine of the project", command="gossamer worker")


def _of_session(facts: RepairFacts) -> Iterator[Repair]:
    spider = facts.about.name.partition("/")[0]
    yield Repair(words="Log in again", command=f"gossamer sessions login {words(spider)}")


def _of_machine(facts: RepairFacts) -> Iterator[Repair]:
    yield Repair(words="Store what waits on its disk", command="gossamer spool drain")


def _of_receiver(facts: RepairFacts) -> Iterator[Repair]:
    yield Repair(words="Callbacks that were given up", page="/ui/callbacks", command="gossamer callbacks list")


def _of_output(facts: RepairFacts) -> Iterator[Repair]:
    name = facts.about.name
    yield Repair(words="Try its target", command=f"gossamer output check {words(name)}")
    yield Repair(
        words="Go on with it",
        action="/ui/outputs/resume",
        fields={"name": name},
        command=f"gossamer output resume {words(name)}",
    )
    yield Repair(words="What it lacks, and rows that were refused", page="/ui/outputs")


def _of_store(facts: RepairFacts) -> Iterator[Repair]:
    yield Repair(words="What grows, and when the disk is full", page="/ui/disk", command="gossamer disk")
    yield Repair(words="Delete raw pages older than 30 days", command="gossamer prune --pages 30d")
    yield Repair(words="Check every store", command="gossamer doctor")

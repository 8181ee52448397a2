"""What bench.schedulers runs: a site, schedules of every kind, three schedulers and four workers, and somebody who
kills them at random. What comes of it is judged in schedulers.py.

How it ends: `Storm.blow` when the time is over, `Storm.rest` when every job has ended. Leaving `storm` kills whatever
is left of the processes, also after an error or Ctrl-C.
"""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from tests.faults.commands import Command, CommandProject, until
from tests.services.valkey import DURABLE, running_valkey
from tests.sites.hostile_server import Call, HostileSite, Reply, hostile_site, whole
from tests.sites.sitemaps import urlset

from gossamer.model.schedule import ScheduleProgress
from gossamer.project.open import Project, open_project
from gossamer.schedule.leadership import TERM
from gossamer.schedule.triggers import next_due, parse_trigger
from gossamer.settings import Settings, load

SCHEDULERS, WORKERS = 3, 4
CONCURRENCY = 8  # pages at once in each worker
PER_SITE = 4  # pages at once of each schedule, since each has a host of its own
PAUSES = (0.5, 2.0)  # seconds between two blows
LEADER_SHARE = 0.15  # of the blows are meant for the leader; chance adds some more
FREEZE_EVERY = 20.0  # seconds; then a leader is stopped for longer than its term instead of killed
PATIENCE = 180.0  # seconds until every job has ended after the last blow

SPIDERS = """
from gossamer import Page, Spider

class Look(Spider):
    def parse(self, page: Page):
        return None

class Shelf(Spider):
    start_urls = {start}

    def parse(self, page: Page):
        yield from page.follow_all("a")
"""
SETTINGS = """
[politeness]
rate = "unlimited"
concurrency = {per_site}
[store]
keep_pages = false
"""


@dataclass(frozen=True)
class Plan:
    """One schedule: when, with which policy, and how many pages its source lists. Each has a host of its own."""

    name: str
    trigger: str  # as a line of gossamer.toml
    overlap: str
    source: str  # list, range, start, sitemap, file or command
    pages: int
    latency: float = 0.05  # seconds

    def urls(self, site: HostileSite) -> list[str]:
        return [self.url(site, number) for number in range(1, self.pages + 1)]

    def url(self, site: HostileSite, number: int | str) -> str:
        return site.url(f"/{self.name}/{number}", f"{self.name}.localhost")


def plans(now: float) -> tuple[Plan, ...]:
    soon = datetime.fromtimestamp(now + 30, UTC).isoformat(timespec="seconds")
    return (
        Plan("skipping", 'every = "1s"', "skip", "list", 5),
        Plan("queueing", 'every = "2s"', "queue", "range", 24, 0.1),
        Plan("replacing", 'every = "3s"', "replace", "range", 40, 0.2),
        Plan("shelves", 'every = "4s"', "skip", "start", 12),
        Plan("mapped", 'every = "5s"', "queue", "sitemap", 16),
        Plan("minutely", 'cron = "* * * * *"', "replace", "file", 8),
        Plan("once", f'at = "{soon}"', "skip", "command", 6),
    )


@dataclass
class Life:
    """A process from its start to its end, by the wall clock. `frozen` are the times in which it was stopped."""

    verb: str
    command: Command
    began: float
    ended: float | None = None
    killed: bool = False
    frozen: list[tuple[float, float]] = field(default_factory=list)
    thaws_at: float | None = None  # while it is frozen

    def leads(self) -> bool:
        """As far as it has said. One that is frozen, or was and has not said more, does not count."""
        said = self.command.logged("Leading") if self.ended is None and self.thaws_at is None else []
        return bool(said) and bool(said[-1]["leads"])


class Storm(CommandProject):
    """The project, and the processes that work on it. `lives` are all that ever were."""

    def __init__(self, folder: Path, state: str, site: HostileSite, chance: random.Random) -> None:
        self.site, self.plans, self.chance = site, plans(time.time()), chance
        tables = "".join(self._table(folder, plan) for plan in self.plans)
        super().__init__(folder, [], f"{state}{tables}{SETTINGS.format(per_site=PER_SITE)}")
        (shelf,) = (plan for plan in self.plans if plan.source == "start")
        start = [shelf.url(site, number) for number in (1, 2, 3)]
        (folder / "spiders" / "look.py").write_text(SPIDERS.format(start=start), encoding="utf-8")
        self.lives: list[Life] = []
        self.calmed_at = 0.0  # when the last blow was over and the schedules were paused

    def _table(self, folder: Path, plan: Plan) -> str:
        urls = plan.urls(self.site)
        show(self.site, plan)
        match plan.source:
            case "list":
                source = f"urls = {urls}\n"
            case "range":
                source = f'urls = ["{plan.url(self.site, f"{{1..{plan.pages}}}")}"]\n'
            case "sitemap":
                self.site.show(f"/{plan.name}/sitemap.xml", urlset(urls), kind="text/xml")
                source = f'sitemap = "{plan.url(self.site, "sitemap.xml")}"\n'
            case "file" | "command":
                (folder / f"{plan.name}.txt").write_text("\n".join(urls), encoding="utf-8")
                source = (
                    f'file = "{plan.name}.txt"\n'
                    if plan.source == "file"
                    else f'command = ["cat", "{folder / plan.name}.txt"]\n'
                )
            case _:
                source = ""
        spider = "shelf" if plan.source == "start" else "look"
        head = f'[schedules.{plan.name}]\nspider = "{spider}"\n{plan.trigger}\noverlap = "{plan.overlap}"\n'
        return head + source

    # -- living and dying --------------------------------------------------------------------------------------

    def start_all(self) -> None:
        """Start the seven, and wait for the first leader: it brings the schedules into the book."""
        for verb in ("scheduler",) * SCHEDULERS + ("worker",) * WORKERS:
            self.begin(verb)
        until(lambda: any(life.leads() for life in self.lives), *(life.command for life in self.lives))

    def begin(self, verb: str) -> None:
        flags = ("--concurrency", str(CONCURRENCY)) if verb == "worker" else ()
        began = time.time()
        self.lives.append(Life(verb, self.run(verb, "--json-logs", *flags), began))

    def living(self) -> list[Life]:
        return [life for life in self.lives if life.ended is None]

    def kill(self, life: Life) -> None:
        """kill -9, and another one takes its place."""
        life.ended, life.killed = time.time(), True
        life.command.process.kill()
        life.command.process.wait()
        self.begin(life.verb)

    def freeze(self, leader: Life, seconds: float) -> None:
        now = time.time()
        leader.frozen.append((now, now + seconds))
        leader.thaws_at = now + seconds
        leader.command.signal(signal.SIGSTOP)

    def thaw(self, life: Life) -> None:
        life.frozen[-1] = (life.frozen[-1][0], time.time())
        life.thaws_at = None
        life.command.signal(signal.SIGCONT)

    def blow(self, seconds: float) -> None:
        """Kill, and now and then freeze, for so long. Fails when a process ends by itself."""
        end, freeze_at = time.time() + seconds, time.time() + FREEZE_EVERY / 2
        while time.time() < end:
            time.sleep(self.chance.uniform(*PAUSES))
            self._look_after()
            awake = [life for life in self.living() if life.thaws_at is None]
            leader = next((life for life in awake if life.leads()), None)
            sleep = TERM.total_seconds() + self.chance.uniform(1, 5)
            if leader is not None and freeze_at <= time.time() < end - sleep and len(awake) == len(self.living()):
                self.freeze(leader, sleep)
                freeze_at = time.time() + FREEZE_EVERY
            elif leader is not None and self.chance.random() < LEADER_SHARE:
                self.kill(leader)
            else:
                self.kill(self.chance.choice(awake))
        for life in self.living():
            if life.thaws_at is not None:
                self.thaw(life)

    def _look_after(self) -> None:
        for life in self.living():
            if life.command.process.poll() is not None:
                raise SystemExit(f"A {life.verb} ended by itself. It said: {life.command.said()[-2000:]}")
            if life.thaws_at is not None and time.time() >= life.thaws_at:
                self.thaw(life)

    def rest(self) -> None:
        """No more runs; wait until every job has ended and every tick so far is decided, then stop all."""
        asyncio.run(self._come_to_rest())
        for life in self.living():
            life.command.signal(signal.SIGTERM)
        for life in self.living():
            code = life.command.ended()
            life.ended = time.time()
            if code not in (0, -signal.SIGTERM):  # one that had not begun yet dies of it
                raise SystemExit(f"A {life.verb} ended with {code}. It said: {life.command.said()[-2000:]}")

    async def _come_to_rest(self) -> None:
        async with open_project(self.settings(), to_look=True) as system:
            for plan in self.plans:
                await system.state.schedules.pause(plan.name, True)
            self.calmed_at = time.time()
            while await self._is_busy(system):
                if time.time() > self.calmed_at + PATIENCE:
                    going = [job.id for job in await system.state.jobs.running_jobs()]
                    raise SystemExit(f"After {PATIENCE:.0f} s these jobs have not ended: {', '.join(going)}")
                await asyncio.sleep(0.2)

    async def _is_busy(self, system: Project) -> bool:
        if await system.state.jobs.running_jobs():
            return True
        return any(
            one.waiting_due is not None or is_due(one, self.calmed_at)
            for one in await system.state.schedules.schedules()
        )

    def settings(self) -> Settings:
        return load(start=self.folder, environ={})


def is_due(standing: ScheduleProgress, now: float) -> bool:
    """Is there a tick up to `now` that nobody has decided about?"""
    coming = ticks_of(standing)[1]
    return coming is not None and coming <= now


def ticks_of(standing: ScheduleProgress) -> tuple[list[float], float | None]:
    """Every moment at which it was due, up to the last that was decided; and the one after that."""
    trigger = parse_trigger(standing.schedule.trigger, standing.schedule.zone)
    ticks: list[float] = []
    coming = next_due(trigger, standing.created_at - 1, first=standing.created_at)
    while coming is not None and standing.last_due is not None and coming <= standing.last_due:
        ticks.append(coming)
        coming = next_due(trigger, coming, first=standing.created_at)
    return ticks, coming


def show(site: HostileSite, plan: Plan) -> None:
    """Let the site have the pages of a plan. Every other one has an ETag, and says when it is the same as before."""

    def page(number: int) -> bytes:
        links = range(3 * number + 1, 3 * number + 4) if plan.source == "start" and number <= 3 else ()
        anchors = "".join(f'<a href="{link}">{link}</a>' for link in links)
        head = f"<!doctype html><html><head><title>{number}</title></head>"
        return f"{head}<body>{anchors}<p>Page</p></body></html>".encode()

    def answering(number: int) -> Reply:
        tag, body = f'"{plan.name}-{number}"', page(number)

        async def reply(call: Call) -> None:
            await asyncio.sleep(plan.latency)
            if number % 2:
                await whole(call, body)
            elif call.seen.headers.get("if-none-match") == tag:
                await call.send(f"HTTP/1.1 304 Not Modified\r\nETag: {tag}\r\n\r\n".encode())
            else:
                await whole(call, body, f"ETag: {tag}")

        return reply

    for number in range(1, plan.pages + 1):
        site.shown[f"/{plan.name}/{number}"] = answering(number)


@contextmanager
def site_in_thread() -> Iterator[HostileSite]:
    """A site with an event loop of its own, for as long as the block."""
    loop = asyncio.new_event_loop()
    opened: list[HostileSite] = []
    ready, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with hostile_site() as site:
            opened.append(site)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="site", daemon=True)
    thread.start()
    if not ready.wait(10):
        raise SystemExit("The site did not start.")
    try:
        yield opened[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


@contextmanager
def storm(on: str, chance: random.Random) -> Iterator[Storm]:
    """The project with its servers. Nothing of it outlives the block."""
    with ExitStack() as stack:
        site = stack.enter_context(site_in_thread())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-schedulers-")))
        state = ""
        if on == "valkey":
            server = stack.enter_context(running_valkey(*DURABLE))
            state = f'state = "{server.address()}"\nproject = "storm-{uuid4().hex[:8]}"\n'
        blowing = Storm(folder, state, site, chance)
        stack.callback(blowing.close)
        yield blowing

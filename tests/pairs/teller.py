"""Tells a story to the product: writes its files, gives its commands, and compares what is there after each of them
with the model."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec

import gossamer.cli.crawl
import gossamer.cli.dead
import gossamer.cli.reparse
import gossamer.cli.schedule_add
import gossamer.cli.worker
import gossamer.project.reparse.dead_letters
import gossamer.project.workers.service
from gossamer import settings
from gossamer.backends.sqlite import connection
from gossamer.cli import main
from gossamer.frontier.contract import DeadFilter, is_redirect
from gossamer.project.open import Project, open_project
from gossamer.settings import Settings
from gossamer.store.contract import RecordQuery
from tests.faults.pace import TOLERANCE
from tests.patience import PATIENCE, poll_until
from tests.services.ports import free_port
from tests.services.postgres import shared_postgres
from tests.services.valkey import running_valkey

from .features import ASIDE
from .meanwhile import Meanwhile
from .model import EXIT_CODES, Model, ModelJob, Wrong, pages_only, settled_once
from .outputs import check_outputs
from .site import Hit, Site, read_log, serving
from .story import Crawl, PutSite, PutSpider, Reparse, Replay, RunSchedule, Step, Story, Work

IMPORTED = (gossamer.cli, gossamer.project)  # a forked command finds them imported, and starts at once


class StoryFailed(AssertionError):
    """What went wrong, and the story as a script."""


def tell(story: Story, *, by_fork: bool = True) -> None:
    """Tell the story. Raises StoryFailed. With `by_fork`, commands run in forks of this process, which saves the
    seconds in which Python starts."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pairs-")))
        teller = Teller(story, folder, stack, by_fork=by_fork)
        for number, step in enumerate(story.steps, 1):
            try:
                teller.take(step)
            except Wrong as wrong:
                what = f"{wrong}\n\nafter step {number} of this story:\n\n{story.script()}\n{teller.said()}"
                raise StoryFailed(what) from wrong


class Teller:
    LATE = 16  # requests that may be under way when a crawl is killed: politeness.concurrency

    def __init__(self, story: Story, folder: Path, stack: ExitStack, *, by_fork: bool) -> None:
        self._folder, self._stack, self._by_fork = folder, stack, by_fork
        self._file = folder / "site.json"
        self._model = Model(story.settings)
        self._ports: dict[int, int] = {}  # of the story -> here
        self._killed: list[Hit] = []  # of a crawl that died
        self._killed_crawl: Crawl | None = None
        self._is_up = False
        toml = story.toml()
        if story.is_fleet:
            valkey = stack.enter_context(running_valkey())
            toml += f'state = "{valkey.address()}"\nrecords = "{shared_postgres().address()}"\n'
            toml += f'project = "pairs-{uuid4().hex[:12]}"\n'
        (folder / "spiders").mkdir()
        self._toml = toml
        self._log = folder / "said.txt"

    def said(self) -> str:
        return "The commands said:\n" + (self._log.read_text()[-3000:] if self._log.exists() else "nothing")

    def take(self, step: Step) -> None:
        if isinstance(step, PutSite):
            self._put_site(step.site)
        elif isinstance(step, PutSpider):
            self._model.codes[step.name] = step.code
            root = f"http://127.0.0.1:{self._model.site.port}"
            (self._folder / "spiders" / f"{step.name}.py").write_text(step.code.source(step.name, root))
        else:
            self._command(step)

    def _put_site(self, site: Site) -> None:
        for port in (site.port, *site.proxies):
            if port not in self._ports:
                self._ports[port] = free_port()
        here = msgspec.structs.replace(
            site,
            port=self._ports[site.port],
            proxies=tuple(self._ports[port] for port in site.proxies),
            refused_proxies=tuple(self._ports[port] for port in site.refused_proxies),
        )
        self._model.site = here
        new = self._folder / "new.json"
        new.write_bytes(msgspec.json.encode(here))
        new.replace(self._file)
        if not self._is_up:
            for there, port in self._ports.items():
                self._toml = self._toml.replace(str(there), str(port))
            (self._folder / "gossamer.toml").write_text(self._toml)
            self._stack.enter_context(serving(self._file))
            self._is_up = True

    def _command(self, step: Any) -> None:
        crawl = step if isinstance(step, Crawl) else Crawl()
        first = len(read_log(self._file))
        beside = self._begin_beside(crawl.beside, first) if crawl.beside else None
        before = len(read_log(self._file))

        def asked() -> list[Hit]:
            return [hit for hit in read_log(self._file)[before:] if not (beside and hit.path.startswith(ASIDE))]

        begin = partial(self._begin, is_impatient=crawl.loses_store)
        code = self._run(step.words(), Meanwhile(crawl, self._folder, lambda: len(asked()), begin))
        if beside is not None:
            self._end_beside(crawl.beside, beside, first)
        every = asked()
        hits = pages_only(every)
        died = crawl.dies_at is not None and code == -signal.SIGKILL
        if isinstance(step, Crawl):
            if died:
                self._killed, self._killed_crawl = hits, step
                return
            if step.fresh and self._killed_crawl is not None:
                self._model.die(self._killed_crawl)
                self._killed = []
            job = self._finish(step, hits, every)
            self._expect(code == EXIT_CODES[job.outcome], f"exit code {code}; the outcome should be {job.outcome}")
            check_outputs(self._folder, step.outputs, job, self._model)
        elif isinstance(step, Replay):
            self._model.replay(step.reason, fetch=step.fetch)
        elif isinstance(step, Work):
            if self._killed_crawl is not None:
                self._finish(self._killed_crawl, hits, every)
            self._model.work([] if self._killed_crawl is not None else hits)
        elif isinstance(step, Reparse):
            self._expect(not hits, f"a reparse asked the site: {hits}")
            self._model.reparse()
        elif isinstance(step, RunSchedule):
            self._expect(code == 0, f"exit code {code}")
            self._model.run_schedule(step.name, step.paths)
        else:
            self._model.purge()
        self._killed_crawl = None
        asyncio.run(self._compare())

    def _finish(self, step: Crawl, hits: list[Hit], every: Sequence[Hit]) -> ModelJob:
        """A crawl to its end, which may have been killed before, and taken up by another command."""
        was_killed, is_uncertain = self._killed_crawl is not None and not step.fresh, False
        if step.rate is not None:  # the first requests may be late ones of a process that was killed
            self._check_pace(every[self.LATE :] if was_killed else every, 1 / step.rate)
        if was_killed:
            hits, self._killed = self._killed + hits, []
            forms = [hit for hit in hits if hit.method == "POST"]
            self._expect(len(forms) <= 1, f"a form was sent twice: {forms}")
            is_uncertain = asyncio.run(self._has_letter("uncertain"))
            hits = settled_once(hits)
        return self._model.crawl(step, hits, was_killed=was_killed, is_uncertain=is_uncertain)

    @staticmethod
    def _expect(holds: bool, words: str) -> None:
        if not holds:
            raise Wrong(words)

    def _check_pace(self, hits: Sequence[Hit], gap: float) -> None:
        """No two requests are closer together. A crawl-delay counts from the second page on."""
        times = sorted(hit.at for hit in hits)
        least = min((later - sooner for sooner, later in pairwise(times)), default=gap)
        self._expect(least >= gap - TOLERANCE, f"two requests were {least:.4f} s apart, where {gap:.4f} s are due")

    # -- commands ----------------------------------------------------------------------------------------------------

    def _begin_beside(self, spider: str, first: int) -> int:
        """A crawl that goes on while another one begins."""
        process = self._begin(Crawl(spider=spider).words())
        poll_until(
            lambda: any(hit.path.startswith(ASIDE) for hit in read_log(self._file)[first:]),
            f"the crawl of {spider} has begun", said=self.said,
        )  # fmt: skip
        return process

    def _end_beside(self, spider: str, process: int, first: int) -> None:
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        hits = [hit for hit in pages_only(read_log(self._file)[first:]) if hit.path.startswith(ASIDE)]
        job = self._model.crawl(Crawl(spider=spider), hits)
        self._expect(code == EXIT_CODES[job.outcome], f"exit code {code} of {spider}; it should be {job.outcome}")

    def _run(self, words: Sequence[str], meanwhile: Meanwhile) -> int:
        """Give a command, and return its exit code."""
        pid = meanwhile.begin(words)
        deadline = time.monotonic() + PATIENCE
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG if meanwhile.is_eventful else 0)
            if ended:
                meanwhile.end()
                return os.waitstatus_to_exitcode(status)
            meanwhile.pass_time(pid)
            if time.monotonic() > deadline:
                raise AssertionError(f"{words} did not end.")

    def _begin(self, words: Sequence[str], *, is_impatient: bool = False) -> int:
        with self._log.open("a") as log:
            print(f"$ gossamer {' '.join(words)}", file=log, flush=True)
            if self._by_fork:
                return self._forked(words, log.fileno(), is_impatient=is_impatient)
            return self._started(words, log.fileno())

    def _forked(self, words: Sequence[str], log: int, *, is_impatient: bool) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 70
        try:
            os.setsid()
            signal.alarm(int(PATIENCE))
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(self._folder)
            for name in [name for name in os.environ if name.startswith("GOSSAMER_")]:
                del os.environ[name]
            sys.argv = ["gossamer", *words]
            if is_impatient:
                connection.BUSY_TIMEOUT = timedelta(milliseconds=200)
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        except BaseException:
            traceback.print_exc(file=os.fdopen(2, "w", closefd=False))
        finally:
            os._exit(code)

    def _started(self, words: Sequence[str], log: int) -> int:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GOSSAMER_")}
        command = [sys.executable, "-m", "gossamer", *words]
        return subprocess.Popen(
            command, cwd=self._folder, env=environ, stdout=log, stderr=log, start_new_session=True
        ).pid

    # -- what is there -----------------------------------------------------------------------------------------------

    def _settings(self) -> Settings:
        return settings.load(start=self._folder, environ={}, flags={})

    async def _has_letter(self, reason: str) -> bool:
        async with open_project(self._settings()) as project:
            return bool(await project.state.queue.dead_reasons(DeadFilter(reason=reason)))

    async def _compare(self) -> None:
        async with open_project(self._settings()) as project:
            for job in self._model.jobs:
                await self._compare_job(project, job)
            await self._compare_records(project)

    async def _compare_job(self, project: Project, job: ModelJob) -> None:
        name = f"{job.name}-{job.number}"
        known = await project.state.jobs.job(name)
        self._expect(known is not None, f"there is no job {name}")
        assert known is not None
        if job.is_vague:
            self._expect(known.outcome is not None and known.outcome.outcome == job.outcome, f"{name}: {known}")
            return
        states = {}
        async for url, state, reason in project.state.queue.urls(name):
            path = urlsplit(url).path
            path = f"POST {path}" if path == "/search" else path
            ended = state.value in ("done", "unchanged", "queued", "waiting", "leased")
            states[path] = ("open" if state.value in ("queued", "waiting") else state.value, "" if ended else reason)
            if state.value == "done" and is_redirect(reason) != (path in job.redirects):
                raise Wrong(f"{name}: {path} is done with {reason!r}")
        expected = {**job.states, **dict.fromkeys(job.frontier, ("open", ""))}
        self._same(f"the URLs of {name}", states, expected)
        counts = await project.state.jobs.counts(name)
        sums = counts.open + counts.done + counts.unchanged + counts.dropped + counts.dead + counts.duplicates
        self._expect(counts.discovered == sums, f"{name} does not add up: {counts}")
        self._expect(counts.pages == job.came, f"{name} counts {counts.pages} pages where {job.came} came")
        self._same(f"the drops of {name}", {k: v for k, v in counts.drops.items() if v}, dict(job.drops))
        self._expect((known.outcome is not None) == job.is_over, f"{name} is {known.state}, {known.outcome}")
        if known.outcome is not None:
            words = f"{known.ending}, {known.outcome.outcome.value}"
            reasons = [reason.message for reason in known.outcome.reasons]
            expected_words = f"{job.ending}, {job.outcome}"
            self._expect(words == expected_words, f"{name} is {words} ({reasons}), where it should be {expected_words}")
        items = await project.records.items(name)
        account = sum(job.items.values(), Counter[str]())
        if not any(one.is_vague for one in self._model.jobs):  # else some may be known already
            self._same(f"the items of {name}", items.states(), {state: n for state, n in account.items() if n})
        self._expect(items.yielded == sum(items.states().values()), f"the items of {name} do not add up: {items}")
        seen = {record.key async for record in project.records.records(RecordQuery(job=name, type="Thing"))}
        self._same(f"the records that {name} saw", dict.fromkeys(seen), dict.fromkeys(job.seen))

    async def _compare_records(self, project: Project) -> None:
        found: dict[str, list[Any]] = {}
        async for record in project.records.records(RecordQuery(type="Thing")):
            versions: list[Any] = []
            for version in await project.records.history(record.type, record.site, record.key):
                data = msgspec.json.decode(version.data)
                versions.append(None if version.gone else (data["title"], data["price"], data["rating"]))
            found[record.key] = versions
            if (record.gone_since is not None) != (versions[-1] is None):
                raise Wrong(f"{record.key} is gone since {record.gone_since}, and its history says {versions}")
        self._same("the histories", found, {key: record.versions for key, record in self._model.records.items()})

    def _same(self, what: str, found: dict[str, Any], expected: dict[str, Any]) -> None:
        if found == expected:
            return
        lines = [
            f"  {key}: {found.get(key, 'not there')}, should be {expected.get(key, 'not there')}"
            for key in sorted({*found, *expected})
            if found.get(key, "none") != expected.get(key, "none")
        ]
        raise Wrong("\n".join([f"{what}:", *lines]))


def failing(story: Story, tells: Callable[[Story], None] = tell) -> str | None:
    """What goes wrong in the story; None if nothing does."""
    try:
        tells(story)
    except StoryFailed as failed:
        return str(failed)
    return None

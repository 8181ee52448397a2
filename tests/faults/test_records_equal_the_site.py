"""After any sequence of changes, guards, failures, kills and 304s, a run after the last change leaves the records equal
to the site. Every run is a process of its own, so that a kill is a kill."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from gossamer import Item, Page, Spider
from gossamer.errors import BackendUnavailable
from gossamer.frontier.contract import DeadFilter
from gossamer.model.events import NullSink
from gossamer.pipeline.steps import Drop
from gossamer.project.jobs.crawl import crawl
from gossamer.project.jobs.slots import PoolTerms
from gossamer.project.jobs.worker_pool import WorkerPool
from gossamer.project.open import Project, open_project
from gossamer.schedule.sources import parse_source
from gossamer.settings import Settings
from gossamer.store.contract import RecordQuery
from gossamer.terms import coverage_of, job_terms
from tests.journey.crawling import settings_for
from tests.patience import PATIENCE
from tests.services.postgres import shared_postgres
from tests.services.valkey import running_valkey
from tests.sites.catalogue import Catalogue, catalogue

PRODUCTS, VARIANTS = 5, 5  # more items than the quality guard looks at
DROPPED: set[int] = set()  # products whose items the spider's own step drops, in this process
GUARD = "1h"


class Thing(Item, key="name"):
    name: str  # its address, and which of the page's variants it is
    title: str
    price: int


def drop_some(item: Any, page: Any) -> Any:
    return Drop("not now") if int(page.url.rpartition("/")[2]) in DROPPED else item


class Things(Spider):
    pipeline = (drop_some,)

    def __init__(self, url: str = "") -> None:
        self.start_urls = [url]

    def parse(self, page: Page) -> Any:
        yield from page.follow_all("a.p", self.thing)

    def thing(self, page: Page) -> Any:
        title, price = page.css("h1::text").get() or "", int(page.css("b::text").get() or "")
        yield from (Thing(name=f"{page.url} {n}", title=title, price=price) for n in range(VARIANTS))


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """How a run differs from a plain one."""

    guard: bool = False  # store.min_rewrite_age
    quality: bool = False  # quality.minimum
    drops: frozenset[int] = frozenset()
    outage: int = 0  # how many calls of the record store fail
    dies: tuple[str, int] | None = None  # before or after the settlement of that number
    fresh: bool = False
    replays: bool = False  # dead letters are replayed first
    min_age: bool = False  # as a schedule with min_age, of all products


class SiteMachine(RuleBasedStateMachine):
    """Changes the site and runs crawls; `truth` is what the site says."""

    places: dict[str, str]

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.folder = Path(tempfile.mkdtemp())
        self.stack.callback(shutil.rmtree, self.folder)
        self.site = self.stack.enter_context(catalogue(PRODUCTS))
        self.places = {**self.places, "project": f"site-{uuid4().hex[:12]}"}
        self.run(Run())  # a crawl calls only those records gone that a crawl has seen

    def teardown(self) -> None:
        try:
            self.site.heal()
            self.run(Run(fresh=True))
            truth = {f"{url} {n}": price for url, price in self.site.truth().items() for n in range(VARIANTS)}
            assert self.records() == truth
        finally:
            self.stack.close()

    # -- the site ------------------------------------------------------------------------------------------------

    @rule(n=st.integers(1, PRODUCTS), price=st.sampled_from((10, 11, 12)))
    def change(self, n: int, price: int) -> None:
        self.site.prices[n] = price

    @rule(n=st.integers(1, PRODUCTS))
    def withdraw_or_bring_back(self, n: int) -> None:
        if n in self.site.withdrawn or len(self.site.withdrawn) < 2:  # half of the site at once is not believed
            self.site.withdrawn ^= {n}

    @rule(n=st.integers(1, PRODUCTS), how=st.sampled_from(("broken", "faulty", "failing")))
    def break_or_mend(self, n: int, how: str) -> None:
        getattr(self.site, how).symmetric_difference_update({n})

    @rule()
    def date_or_tag(self) -> None:
        self.site.dated = not self.site.dated

    # -- runs ----------------------------------------------------------------------------------------------------

    @rule(
        one=st.builds(
            Run,
            guard=st.booleans(),
            quality=st.booleans(),
            drops=st.frozensets(st.integers(1, PRODUCTS), max_size=2),
            fresh=st.booleans(),
            replays=st.booleans(),
        )
    )
    def crawl(self, one: Run) -> None:
        self.run(one)

    @rule(guard=st.booleans())
    def crawl_as_a_schedule(self, guard: bool) -> None:
        self.run(Run(min_age=True, guard=guard))

    @rule(where=st.sampled_from(("before", "after")), page=st.integers(1, PRODUCTS + 1), guard=st.booleans())
    def crawl_and_die(self, where: str, page: int, guard: bool) -> None:
        self.run(Run(dies=(where, page), guard=guard))

    @rule(calls=st.integers(1, 2), guard=st.booleans())
    def crawl_while_the_records_are_away(self, calls: int, guard: bool) -> None:
        self.run(Run(outage=calls, guard=guard))

    def run(self, one: Run) -> None:
        in_a_child(lambda: asyncio.run(run(self.site, self.read(one), one)), may_die=one.dies is not None)

    def read(self, one: Run) -> Settings:
        own: dict[str, Any] = {name.replace(".", "__"): value for name, value in self.places.items()}
        if one.guard:
            own["store__min_rewrite_age"] = GUARD
        if one.quality:
            own |= {"quality__minimum": 0.9, "quality__window": 20}
        return settings_for(self.folder, fetch__allow_hosts=["127.0.0.1"], retry__max_attempts=1, **own)

    def records(self) -> dict[str, int]:
        """The prices of the records that are not gone."""

        async def read() -> dict[str, int]:
            async with open_project(self.read(Run())) as project:
                found = project.records.records(RecordQuery(gone=False))
                return {record.key: record.data["price"] async for record in found}

        return asyncio.run(read())


async def run(site: Catalogue, read: Settings, one: Run) -> None:
    """One run, in a process of its own."""
    DROPPED.update(one.drops)
    if one.replays:
        async with open_project(read) as project:
            await project.state.queue.replay(DeadFilter())
    if one.min_age:
        await run_as_schedule(site, read)
        return
    await crawl(Things(site.url), read, fresh=one.fresh, attend=lambda running: trouble(running.project, one))


async def trouble(project: Project, one: Run) -> None:
    """Let the record store fail a few times, or the process die around a settlement."""
    if one.outage:
        save, left = project.records.save, iter(range(one.outage))

        async def fails(results: Any) -> list[int]:
            if next(left, None) is not None:
                raise BackendUnavailable("The records are away.")
            return await save(results)

        project.records.save = fails  # type: ignore[method-assign]
    if one.dies is not None:
        where, which = one.dies
        complete, count = project.state.frontier.complete, iter(range(1, 1_000))

        async def dies(*args: Any, **fields: Any) -> Any:
            last = next(count) == which
            if last and where == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            added = await complete(*args, **fields)
            if last:
                os.kill(os.getpid(), signal.SIGKILL)
            return added

        project.state.frontier.complete = dies  # type: ignore[method-assign]
    await asyncio.Event().wait()


async def run_as_schedule(site: Catalogue, read: Settings) -> None:
    """A run over the list of all products that leaves out what was fetched within the last hour."""
    (read.root / "spiders").mkdir(exist_ok=True)
    (read.root / "spiders" / "things.py").write_text(
        f"from {__name__} import Things as Base\n\nclass Things(Base):\n    def parse(self, page):\n"
        "        yield from self.thing(page)\n",
        encoding="utf-8",
    )
    async with open_project(read) as project:
        source = msgspec.json.encode(
            parse_source({"urls": [f"{site.url}p/{n}" for n in range(1, PRODUCTS + 1)]}, "here")
        ).decode()
        terms = msgspec.structs.replace(
            job_terms(read, Things(site.url)),
            schedule="hourly",
            spider="things",
            source=source,
            min_age=timedelta(hours=1),
            coverage=coverage_of(Things(site.url), source),
        )
        await project.state.jobs.open_job("hourly", terms, fresh=True)
        await WorkerPool(project, NullSink(), until_idle=True, terms=PoolTerms()).run()


def in_a_child(what: Callable[[], Any], *, may_die: bool) -> None:
    """Do it in a forked process, which must end well unless it `may_die`."""
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(int(PATIENCE))
            what()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code == 0 or (may_die and code == -signal.SIGKILL), code


@pytest.fixture(params=["laptop", "fleet"])
def places(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Where the project keeps its state and its records."""
    if request.param == "laptop":
        yield {}
        return
    with running_valkey() as valkey:
        yield {"state": valkey.address(), "records": shared_postgres().address()}


# SEQUENCES=10 makes ten times as many in the long test: 400 and 50, which takes half an hour.
TIMES = int(os.environ.get("SEQUENCES", "1"))
EXAMPLES = {"short": {"laptop": 4, "fleet": 1}, "long": {"laptop": 40 * TIMES, "fleet": 5 * TIMES}}


def follows(places: dict[str, str], examples: int) -> None:
    machine = type("Machine", (SiteMachine,), {"places": places})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=6, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_records_equal_the_site_after_any_sequence(places: dict[str, str]) -> None:
    follows(places, EXAMPLES["short"]["fleet" if places else "laptop"])


@pytest.mark.long
def test_records_equal_the_site_after_very_many_sequences(places: dict[str, str]) -> None:
    follows(places, EXAMPLES["long"]["fleet" if places else "laptop"])

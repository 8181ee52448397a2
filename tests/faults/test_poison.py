"""Poison pages: the worker is back, the neighbours are unaffected, the page ends with the dead letters."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from uuid import uuid4

import pytest

from gossamer import Page
from gossamer.clock import SystemClock
from gossamer.crawl.held_lease import HeldLease
from gossamer.crawl.quarantine import FEW, Quarantine, chosen
from gossamer.errors import ParseFailed
from gossamer.model.page import Headers, Snapshot
from gossamer.model.task import Lease, Task
from gossamer.parse.timelimit import STUBBORN_CODE, TimeLimit
from tests.faults.commands import CommandProject
from tests.patience import PATIENCE
from tests.sites.poison import SPIDER, long_text, nested
from tests.sites.running import Park, park

pytestmark = pytest.mark.long

UNLIMITED = '[politeness]\nrate = "unlimited"\nconcurrency = 16\n'
PAGE = "http://a.example/1"


FAILED = """

    def failed(self, failure):
        yield {"reason": failure.reason}
"""


class PoisonProject(CommandProject):
    """The park's project with the poisonous spider."""

    def __init__(self, folder, site: Park, poison: dict[str, str], settings: str = "") -> None:
        super().__init__(folder, site.seeds(), UNLIMITED + settings)
        (folder / "spiders" / "park.py").write_text(SPIDER)
        self._poison = json.dumps(poison)
        self._environment["POISON"] = self._poison

    def begin(self, site: Park) -> None:
        """Begin the job with a crawl that meets no poison, and is stopped at its first page."""
        self._environment["POISON"] = "{}"
        self.sow(site, pages=1)
        self._environment["POISON"] = self._poison

    def letters(self) -> dict[str, tuple[str, str]]:
        """Reason and message of every dead letter, by path."""
        return {
            "/" + letter["url"].split("/", 3)[3]: (letter["reason"], letter["message"])
            for letter in self.json("dead", "list")["dead_letters"]
        }


@pytest.fixture
def opened(tmp_path):
    projects: list[PoisonProject] = []

    def make(site: Park, poison: dict[str, str], settings: str = "") -> PoisonProject:
        projects.append(PoisonProject(tmp_path, site, poison, settings))
        return projects[-1]

    yield make
    for project in projects:
        project.close()


# -- code that ends its process ----------------------------------------------------------------------------------


def test_one_page_in_300_that_ends_its_process_is_buried_alone(opened):
    with park(pages=300, latency_ms=5) as site:
        project = opened(site, {"/page/200": "exit"})
        # when it is crawled by one command, sixteen pages at once, begun afresh
        crawl = project.run("crawl", "park", "--fresh", "--concurrency", "16")
        assert crawl.ended() == 3, crawl.said()  # done with warnings: the dead letters

        # then the process came back each time, and said why
        said = crawl.said()
        died = f"The process died with exit code 3 in the code for {site.url(path='/page/200')}."
        assert said.count(f"Trouble: {died}") == 5
        assert said.count("Going on with park") == 5
        # and the page alone is dead, having been delivered five times; every other page is done
        assert project.sql("state.db", "SELECT id, state FROM jobs") == [("park-1", "finished")]
        assert project.sql("state.db", "SELECT state, count(*) FROM url_list GROUP BY state") == [
            ("dead", 1),
            ("done", 299),
        ]
        [(path, (reason, _))] = project.letters().items()
        assert (path, reason) == ("/page/200", "poison")
        hits = Counter(hit.path for hit in site.hits())
        assert set(hits) == set(site.grounds.paths(site.hosts[0]))
        assert hits.pop("/page/200") == 5
        assert max(hits.values()) <= 3  # in flight beside it once, and once among a few suspects
        assert len(project.records()) == 299
        project.assert_sound()


def test_workers_on_valkey_bury_the_page_that_kills_them_and_finish_the_rest(opened, valkey):
    with park(pages=60, latency_ms=50) as site:
        project = opened(site, {"/page/50": "fault"}, "[lease]\nmax_deliveries = 2\n")
        settings = project.folder / "gossamer.toml"
        settings.write_text(f'state = "{valkey.address()}"\nproject = "test-{uuid4().hex[:8]}"\n{settings.read_text()}')
        # given a job that was begun, and stopped at once
        project.begin(site)
        # when two workers under a supervisor take it on
        workers = project.run("worker", "--processes", "2", "--until-idle", "--concurrency", "4")
        assert workers.ended() == 0, workers.said()

        # then those that died were replaced after a second each, and the page is known by name
        said = workers.said()
        url = site.url(path="/page/50")
        assert said.count(f"was ended by SIGSEGV. Another one starts in 1 s. It was in the code for {url}.") == 2
        assert {path: reason for path, (reason, _) in project.letters().items()} == {"/page/50": "poison"}
        hits = Counter(hit.path for hit in site.hits())
        assert hits["/page/50"] == 2
        assert set(hits) == set(site.grounds.paths(site.hosts[0]))
        assert len(project.records()) == 59


def test_a_lone_worker_is_back_too(opened):
    with park(pages=20, latency_ms=50) as site:
        project = opened(site, {"/page/15": "exit"}, "[lease]\nmax_deliveries = 2\n")
        with (project.folder / "spiders" / "park.py").open("a") as spider:
            spider.write(FAILED)
        project.begin(site)
        worker = project.run("worker", "--until-idle", "--json-logs", "--concurrency", "1")
        assert worker.ended() == 0, worker.said()

        # What it says is still one object on each line.
        events = [json.loads(line) for line in worker.said().splitlines()]
        assert sum("died with exit code 3 in the code for" in event.get("message", "") for event in events) == 2
        # And the spider has heard of the page that killed it.
        (letter,) = project.json("dead", "list")["dead_letters"]
        assert (letter["url"], letter["reason"]) == (site.url(path="/page/15"), "poison")
        assert letter["message"] == "2 workers in a row died or hung while they had this page."
        assert project.sql("records.db", "SELECT data FROM records WHERE type = 'item'") == [('{"reason":"poison"}',)]
        assert len(project.records()) == 20


# -- code that does not come to its end --------------------------------------------------------------------------


def test_code_without_end_fails_its_page_and_no_other(opened):
    kinds = ("loop", "regex", "generator", "step", "wait", "wait-and-loop")
    with park(pages=40) as site:
        poison = {f"/page/{30 + n}": kind for n, kind in enumerate(kinds)}
        project = opened(site, poison, '[crawl]\nparse_timeout = "2s"\n')
        crawl = project.run("crawl", "park", "--concurrency", "8")
        assert crawl.ended() == 3, crawl.said()  # done with warnings: the dead letters

        # then each of these pages is dead like any page that cannot be parsed, with the place in the code
        assert "died" not in crawl.said()
        letters = project.letters()
        assert letters.keys() == poison.keys()
        for reason, message in letters.values():
            assert reason == "parse", message
            assert "it took longer than 2 s (crawl.parse_timeout)" in message
        assert 're.match(r"(a+)+$"' in letters["/page/31"][1]
        assert "asyncio.sleep(1000)" in letters["/page/34"][1]
        assert sum("in loop" in message for _, message in letters.values()) == 4
        # and all others are done; none was fetched twice
        assert len(project.records()) == 34
        assert set(Counter(hit.path for hit in site.hits()).values()) == {1}


async def test_the_timer_is_off_when_no_code_runs_that_it_is_set_for():
    limit = TimeLimit(timedelta(milliseconds=100))

    async def endless() -> None:
        while True:
            pass

    with pytest.raises(ParseFailed, match=r"a\.example/1 failed: it took longer than 0\.1 s"):
        await limit.run(endless(), PAGE)
    # Other code of the process may take as long as it likes, and no signal comes.
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


async def test_a_callback_that_waits_is_not_charged_with_what_its_neighbours_do():
    limit_of_callback = timedelta(seconds=1)
    limit = TimeLimit(limit_of_callback)
    arrived = asyncio.Event()

    async def patient() -> str:
        await arrived.wait()
        return "here"

    # given a callback that waits, and a neighbour that keeps the loop from turning for longer than the limit
    waiting = asyncio.create_task(limit.run(patient(), PAGE))
    await asyncio.sleep(0)
    time.sleep(1.5 * limit_of_callback.total_seconds())
    asyncio.get_running_loop().call_later(0.05, arrived.set)

    assert await waiting == "here"
    assert not waiting.cancelling()


async def test_a_callback_that_waits_for_ever_and_swallows_its_cancellation_is_left():
    limit = TimeLimit(timedelta(milliseconds=50))

    async def deaf() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    task = asyncio.current_task()
    with pytest.raises(ParseFailed, match="took longer"):
        await limit.run(deaf(), PAGE)
    assert task is not None
    assert task.cancelling() == 0


async def test_who_cancels_the_journey_is_heard():
    limit = TimeLimit(timedelta(seconds=30))
    waiting = asyncio.create_task(limit.run(asyncio.Event().wait(), PAGE))
    await asyncio.sleep(0)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_code_that_swallows_everything_ends_its_process():
    program = """
import asyncio, datetime, time
from gossamer.parse import timelimit
timelimit.AGAIN = 0.02
async def deaf():
    while True:
        try:
            time.sleep(0.001)
        except BaseException:
            continue
asyncio.run(timelimit.TimeLimit(datetime.timedelta(seconds=0.05)).run(deaf(), "http://a.example/1"))
"""
    ended = run(program)
    assert ended.returncode == STUBBORN_CODE, ended.stderr
    assert "cannot be stopped: it took longer than 0.05 s" in ended.stderr
    assert "in deaf" in ended.stderr


def test_who_sits_at_a_breakpoint_has_time_to_think():
    program = """
import asyncio, datetime, io, pdb
from gossamer.parse.timelimit import TimeLimit
async def looked_at():
    person = pdb.Pdb(stdin=io.StringIO("!import time; time.sleep(3)\\nc\\n"), stdout=io.StringIO())
    person.set_trace()
    return "done"
print(asyncio.run(TimeLimit(datetime.timedelta(seconds=2)).run(looked_at(), "http://a.example/1")))
"""
    ended = run(program)
    assert ended.stdout == "done\n", ended.stderr


def test_in_another_thread_code_runs_without_a_timer():
    program = """
import asyncio, datetime, threading, time
from gossamer.parse.timelimit import TimeLimit
async def slow():
    time.sleep(0.1)
    return "done"
limit = TimeLimit(datetime.timedelta(seconds=0.01))
thread = threading.Thread(target=lambda: print(asyncio.run(limit.run(slow(), "http://a.example/1"))))
thread.start(); thread.join()
"""
    assert run(program).stdout == "done\n"


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )


# -- suspects ----------------------------------------------------------------------------------------------------


def hold(delivery: int) -> HeldLease:
    task = Task(
        id=1, job="j", url=PAGE, fingerprint=b"", site="a.example", kind="parse", priority=0, depth=0, attempt=0,
        max_attempts=4, created_at=0.0,
    )  # fmt: skip
    return HeldLease(
        Lease(task=task, token=1, delivery=delivery, expires_at=0.0), SystemClock(), timedelta(seconds=60), 0.0
    )


def test_suspects_are_tried_a_few_together_and_then_alone():
    new, old = [hold(2) for _ in range(FEW + 3)], hold(3)

    assert chosen([*new, old], 5) == new[:FEW]
    assert chosen([old, *new], 5) == [old]
    # When the next death is the last, each is tried alone.
    assert chosen(new, 2) == new[:1]


async def test_the_place_of_suspects_is_theirs_alone():
    quarantine = Quarantine()
    quarantine.enter()
    assert quarantine.take()
    assert not quarantine.take()
    assert not quarantine.empty.is_set()
    quarantine.leave()
    assert quarantine.empty.is_set()
    quarantine.give_back()
    assert quarantine.take()


# -- pages that are too much -------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [nested(1_000_000), long_text(20_000_000)], ids=["nested", "long"])
def test_a_huge_page_answers_every_question(body):
    page = Page(
        Snapshot(
            url=PAGE,
            requested_url=PAGE,
            status=200,
            headers=Headers([("content-type", "text/html")]),
            body=body,
            fetched_at=0.0,
        )
    )
    assert page.links() == ["http://a.example/next"]
    assert page.xpath("//a/@href").getall() == ["/next"]
    assert page.title in ("deep", "long")
    assert page.css("a::attr(href)").getall() == ["/next"]
    assert sum(map(len, page.css("p::text").getall())) == (20_000_000 if page.title == "long" else 0)
    assert ("word" if page.title == "long" else "next") in page.markdown()
    assert page.main_text()[:4] in ("", "next", "word")
    assert page.structured()

"""Worker processes under a supervisor: the dead and the hung are replaced, all stop together, none is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import pytest

from gossamer.clock import Backoff
from gossamer.process.black_box import BlackBox
from gossamer.process.supervisor import ChildSlot, Death, Supervisor, spawn
from tests.faults.commands import CommandProject, is_alive, until
from tests.patience import PATIENCE, poll_until
from tests.services.valkey import ValkeyServer
from tests.sites.running import park

pytestmark = pytest.mark.long

SETTINGS = '[politeness]\nrate = "unlimited"\nconcurrency = 16\n[lease]\nmax_deliveries = 20\n'
WORKER = (sys.executable, "-P", "-m", "gossamer", "worker", "--quiet")

BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=60))


@asynccontextmanager
async def running(supervisor: Supervisor) -> AsyncIterator[asyncio.Task[int | None]]:
    """It runs in a thread for the time of the block, and ends with it."""
    async with asyncio.timeout(PATIENCE):
        task = asyncio.create_task(asyncio.to_thread(supervisor.run))
        try:
            yield task
        finally:
            supervisor.stop()
            await task


@pytest.fixture
def opened(tmp_path):
    projects: list[CommandProject] = []

    def make(seeds: list[str], settings: str = SETTINGS) -> CommandProject:
        projects.append(CommandProject(tmp_path, seeds, settings))
        return projects[-1]

    yield make
    for project in projects:
        project.close()


def working_pids(project: CommandProject) -> set[int]:
    """The processes that have fetched something, as the audit log says."""
    rows = project.sql("records.db", "SELECT DISTINCT worker FROM attempts")
    return {int(name.split("/")[1]) for (name,) in rows}


def test_killed_children_are_replaced_and_nothing_is_lost_or_doubled(opened):
    with park(pages=1000, latency_ms=200, body_bytes=3000) as site:
        project = opened(site.seeds())
        project.sow(site)
        workers = project.run("worker", "--processes", "2", "--until-idle", "--concurrency", "8")
        until(lambda: len(working_pids(project) & workers.children()) == 2, workers)
        # when one is killed in the middle of things, and its successor after it
        killed, spare = [], 0
        for _ in range(2):
            before = len(site.hits())
            until(lambda before=before: len(site.hits()) > before + 50, workers)
            victim = next(pid for pid in workers.children() if pid in working_pids(project))
            known = workers.children()
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)
            spare += 16  # what it may have had in progress: eight pages, and as many slow ones
            until(lambda known=known: len(workers.children()) == 2 and bool(workers.children() - known), workers)

        # then the work is done all the same
        assert workers.ended() == 0, workers.said()
        for pid in killed:
            assert f"Worker {pid} was ended by SIGKILL. Another one starts in " in workers.said()
        assert workers.said().count("park-1 ended: done") == 1
        hits = Counter(hit.path for hit in site.hits())
        assert set(hits) == set(site.grounds.paths(site.hosts[0]))
        assert sum(hits.values()) - len(hits) <= spare
        assert project.records().keys() == site.truth().keys()
        project.assert_sound()


async def test_a_child_that_does_not_respond_is_killed_and_replaced(opened):
    project = opened([])
    told: list[str] = []
    start = spawn(WORKER, folder=project.folder, environ=project.environ)
    slots = [ChildSlot(start, drain_within=timedelta(seconds=1), silence=timedelta(seconds=20)) for _ in range(2)]
    supervisor = Supervisor(slots, tell=told.append, backoff=BACKOFF)
    async with running(supervisor) as run:
        # given two children that beat: they live longer than silent ones may
        await asyncio.to_thread(until, lambda: len(list_cards(project)) == 2)
        first = supervisor.pids
        stopped = min(first)
        # when one of them hangs
        os.kill(stopped, signal.SIGSTOP)
        # then another one takes its place, and the healthy one is left alone
        await asyncio.to_thread(until, lambda: len(supervisor.pids) == 2 and stopped not in supervisor.pids)
        assert not is_alive(stopped)
        assert first - {stopped} < supervisor.pids
        assert told == [f"Worker {stopped} did not respond and was killed. Another one starts in 1 s."]
        pids = supervisor.pids
        supervisor.stop()
        assert await run == 0
        assert not any(map(is_alive, pids))


def list_cards(project: CommandProject) -> list[int]:
    if not (project.folder / "gossamer-data" / "state.db").exists():
        return []
    tables = project.sql("state.db", "SELECT name FROM sqlite_master WHERE name = 'workers'")
    return [pid for (pid,) in project.sql("state.db", "SELECT pid FROM workers")] if tables else []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_all_children(opened, number):
    with park(pages=2000, latency_ms=200) as site:
        project = opened(site.seeds())
        project.sow(site)
        workers = project.run("worker", "--processes", "2")
        until(lambda: len(working_pids(project) & workers.children()) == 2, workers)
        children = workers.children()
        workers.signal(number)

        assert workers.ended() == 0, workers.said()
        assert not any(map(is_alive, children))
        assert project.sql("state.db", "SELECT count(*) FROM url_list WHERE state = 'leased'") == [(0,)]
        assert set(Counter(hit.path for hit in site.hits()).values()) == {1}
        assert list_cards(project) == []


def test_ctrl_c_comes_to_programs_as_sigterm():
    child = (
        "import signal, sys\n"
        "for number in (signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(number, lambda number, _: sys.exit(print(signal.Signals(number).name, flush=True)))\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    program = (
        "import sys\n"
        "from gossamer.process.supervisor import ChildSlot, Supervisor, spawn\n"
        f"Supervisor([ChildSlot(spawn((sys.executable, '-c', {child!r})))], tell=print).run()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "ready\n"
        supervisor.send_signal(signal.SIGINT)
        assert supervisor.communicate(timeout=PATIENCE)[0] == "SIGTERM\n"


def test_a_second_signal_ends_all_at_once(opened):
    with park(pages=50, latency_ms=500_000) as site:
        project = opened(site.seeds(), '[politeness]\nrobots = false\n[crawl]\ndrain = "1h"\n')
        crawl = project.run("crawl", "park", "--quiet")
        until(lambda: len(site.hits()) == 1, crawl)
        crawl.process.kill()
        crawl.process.wait()
        # given a worker that waits for an answer, and was asked to stop
        workers = project.run("worker", "--processes", "2")
        until(lambda: len(site.hits()) == 2, workers)
        children = workers.children()
        workers.signal(signal.SIGTERM)
        assert len(children) == 2
        assert any(map(is_alive, children))

        # when it is asked again: a second later, or later still when it was busy, because two signals that it finds
        # waiting together count as one
        def ask_again() -> None:
            with suppress(subprocess.TimeoutExpired):
                workers.process.wait(1.5)
            workers.signal(signal.SIGTERM)

        poll_until(lambda: not any(map(is_alive, children)), between=ask_again, said=workers.said)
        assert workers.ended() == 128 + signal.SIGTERM
        assert not any(map(is_alive, children))


def test_children_end_when_the_supervisor_is_killed(opened):
    with park(pages=3000, latency_ms=200) as site:
        project = opened(site.seeds())
        project.sow(site)
        workers = project.run("worker", "--processes", "2", "--quiet")
        until(lambda: len(working_pids(project) & workers.children()) == 2, workers)
        children = workers.children()
        workers.signal(signal.SIGKILL)

        until(lambda: not any(map(is_alive, children)))
        # They have drained: nothing is in anybody's hands.
        assert project.sql("state.db", "SELECT count(*) FROM url_list WHERE state = 'leased'") == [(0,)]
        assert list_cards(project) == []


async def test_a_child_that_cannot_be_started_leaves_the_others_alone_and_is_tried_again(tmp_path):
    # given two healthy children
    program = tmp_path / "child"
    program.write_text(
        f"#!{sys.executable}\nimport os, time\n"
        "while True:\n    os.write(int(os.environ['_GOSSAMER_PULSE']), b'.')\n    time.sleep(0.2)\n"
    )
    program.chmod(0o755)
    told: list[str] = []
    slots = [ChildSlot(spawn((str(program),))) for _ in range(2)]
    supervisor = Supervisor(slots, tell=told.append, backoff=BACKOFF)
    async with running(supervisor) as run:
        await asyncio.to_thread(until, lambda: len(supervisor.pids) == 2)
        healthy, victim = sorted(supervisor.pids)
        # when one dies, and nothing can be started in its place
        program.chmod(0o644)
        os.kill(victim, signal.SIGKILL)
        await asyncio.to_thread(until, lambda: any("could not be started" in line for line in told))
        # then the other one lives, and the place is taken as soon as that is mended
        assert supervisor.pids == {healthy}
        assert is_alive(healthy)
        program.chmod(0o755)
        await asyncio.to_thread(until, lambda: len(supervisor.pids) == 2)
        assert healthy in supervisor.pids
        assert sum("could not be started" in line for line in told) == 1
        supervisor.stop()
        assert await run == 0


async def test_a_child_that_cannot_be_started_leaves_no_file_open():
    def fails(box: BlackBox, pipe: int) -> tuple[int, Callable[[], int | None]]:
        tries.append(len(os.listdir("/proc/self/fd")))
        raise OSError("no process to be had")

    tries: list[int] = []
    soon = Backoff(first=timedelta(milliseconds=1), longest=timedelta(milliseconds=1))
    async with running(Supervisor([ChildSlot(fails)], tell=lambda words: None, backoff=soon)):
        await asyncio.to_thread(until, lambda: len(tries) >= 50)
    assert max(tries) < min(tries) + 25  # others in this process open some meanwhile


def test_children_that_are_all_misconfigured_end_the_supervisor():
    told: list[str] = []
    slots = [ChildSlot(spawn((sys.executable, "-c", "raise SystemExit(2)"))) for _ in range(3)]
    assert Supervisor(slots, tell=told.append, backoff=BACKOFF).run() == 1
    assert all("cannot work with these settings; the others go on" in line for line in told)


async def test_a_child_that_is_misconfigured_does_not_end_its_siblings_and_is_tried_again(tmp_path):
    # given a healthy child, and one whose settings are wrong
    wrong = tmp_path / "wrong"
    wrong.touch()
    program = (
        "import os, sys, time\n"
        f"if len(sys.argv) > 1 and os.path.exists({str(wrong)!r}): sys.exit(2)\n"
        "while True:\n    os.write(int(os.environ['_GOSSAMER_PULSE']), b'.')\n    time.sleep(0.2)\n"
    )
    told: list[str] = []
    slots = [ChildSlot(spawn((sys.executable, "-c", program, *more))) for more in ((), ("other",))]
    supervisor = Supervisor(slots, tell=told.append, backoff=BACKOFF)
    async with running(supervisor) as run:
        await asyncio.to_thread(until, lambda: len(told) >= 2)
        assert "cannot work with these settings; the others go on. Another one starts in 1 s." in told[0]
        [healthy] = supervisor.pids
        # when that is mended
        wrong.unlink()
        # then both work, and the healthy one never stopped
        await asyncio.to_thread(until, lambda: len(supervisor.pids) == 2)
        assert healthy in supervisor.pids
        supervisor.stop()
        assert await run == 0


def test_pauses_before_a_new_child_double_up_to_a_minute_until_one_lives_well():
    slot = ChildSlot(spawn(WORKER))

    def pause(seconds: float, page: str = "") -> float:
        lived = timedelta(seconds=seconds)
        death = Death(1, 1, hung=False, page=page, began=True, in_order=False, lived=lived)
        return slot.pause_after(death, BACKOFF).total_seconds()

    assert [pause(1) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert (pause(61), pause(1)) == (1, 2)
    assert pause(1, "https://a.test/poison") == 1


def test_what_is_wrong_with_the_project_is_said_once(opened):
    project = opened([], 'state = "redis://127.0.0.1:1/0"\n')
    workers = project.run("worker", "--processes", "3")

    assert workers.ended() == 1
    [line] = workers.said().splitlines()
    assert line.startswith("gossamer: ")
    assert "project = " in line


def test_workers_that_are_started_before_their_servers_wait_for_them(opened, tmp_path):
    with park(pages=5) as site:
        server = ValkeyServer(tmp_path / "valkey", "--appendonly", "yes")
        project = opened(site.seeds(), f'state = "{server.address()}"\nproject = "early"\n')
        workers = project.run("worker", "--processes", "2", "--until-idle")
        until(lambda: "Waiting for it" in workers.said(), workers)
        try:
            server.start()
            until(lambda: "2 workers serve" in workers.said(), workers)
            assert workers.said().count("Waiting for it") == 1
            assert workers.ended() == 0
        finally:
            server.kill()


def test_a_hung_orphan_ends_itself():
    # given a supervised process whose loop stands still for ever, and no supervisor
    program = (
        "import asyncio, datetime\n"
        "from gossamer.process.pulse import Pulse\n"
        "async def main():\n"
        "    async with Pulse.inherited().beating(silence=datetime.timedelta(seconds=0.5)):\n"
        "        await asyncio.sleep(0)\n"
        "        while True: pass  # it hangs here\n"
        "asyncio.run(main())\n"
    )
    ours, theirs = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "_GOSSAMER_PULSE": str(theirs)},
        pass_fds=[theirs],
        stderr=subprocess.PIPE,
        text=True,
    ) as orphan:
        os.close(theirs)
        os.close(ours)
        _, said = orphan.communicate(timeout=PATIENCE)

    # then it says where it stands, and ends
    assert orphan.returncode == 1
    assert said.startswith("Timeout (")
    assert "in main" in said


async def test_children_that_are_too_many_drain_and_are_not_followed(opened):
    project = opened([])
    told: list[str] = []

    def spare() -> ChildSlot:
        return ChildSlot(spawn(WORKER, folder=project.folder, environ=project.environ))

    keeper = ChildSlot(spawn((sys.executable, "-c", "import signal; signal.pause()")), silence=timedelta(minutes=5))
    supervisor = Supervisor([keeper], tell=told.append, backoff=BACKOFF, spare=spare)
    async with running(supervisor):
        # given three workers
        supervisor.resize(3)
        await asyncio.to_thread(until, lambda: len(list_cards(project)) == 3)
        before = set(list_cards(project))
        # when one is enough
        supervisor.resize(1)
        await asyncio.to_thread(until, lambda: len(supervisor.pids) == 2)
        # then two have signed off, none was killed or replaced, and one works on
        await asyncio.to_thread(until, lambda: len(list_cards(project)) == 1)
        assert set(list_cards(project)) < before
        # and when two are wanted again, there is one more
        supervisor.resize(2)
        await asyncio.to_thread(until, lambda: len(list_cards(project)) == 2)
        assert len(set(list_cards(project)) & before) == 1
        assert told == []

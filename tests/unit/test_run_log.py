"""The log of a run: what workers and the spider say about a job, bounded, readable by all, and kept beside the job."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gossamer import Spider
from gossamer.errors import BackendUnavailable, NotThere
from gossamer.frontier.contract import JobTerms
from gossamer.model.events import Buried, Completed, EventHub, JobBegun, Retried, Trouble
from gossamer.model.job import Job
from gossamer.model.run_log import RUN_LOG
from gossamer.monitor.logs import hearing_spiders
from gossamer.parse.page_context import SpiderLog
from gossamer.project.access.keys import JOBS, OWNER, Caller
from gossamer.project.jobs.run_log import CHUNK_LINES, RING, LogQuery, RunLog, code_of, lines_of, run_log
from gossamer.project.open import Project, open_project

from ..journey.crawling import settings_for


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[Project]:
    async with open_project(settings_for(tmp_path)) as opened:
        yield opened


async def a_job(project: Project, owner: str = "") -> Job:
    job, _ = await project.state.jobs.open_job("books", JobTerms(owner=owner), fresh=True)
    return job


def a_log(project: Project, worker: str = "host/7/1") -> RunLog:
    return RunLog(project.state.shelf, project.clock, worker)


async def messages(project: Project, job: Job, **query: object) -> list[str]:
    view = await run_log(project, OWNER, LogQuery(job=job.id, **query))
    return [line.message for line in view.lines]


async def test_what_workers_report_about_a_job_is_read_in_the_order_of_time(project: Project) -> None:
    job, other, now = await a_job(project), await a_job(project), project.clock.now()
    async with a_log(project) as one, a_log(project, "host/8/1") as two:
        hub = EventHub(one)
        hub.emit(JobBegun(at=now, job=job.id, name="books", code="3fa9", commit="0123456789abcdef"))
        two.emit(Trouble(at=now + 2, job=job.id, stage="source", message="half of it could be read"))
        hub.emit(
            Retried(
                at=now + 1,
                job=job.id,
                url="https://a.example/",
                reason="timeout",
                attempt=1,
                delay=4.0,
                message="https://a.example/: no answer",
            )
        )
        hub.emit(Buried(at=now + 3, job=job.id, reason="parse", attempt=1, message="no title", detail="Traceback ..."))
        hub.emit(Completed(at=now + 3, job=job.id, outcome="done"))  # one for each page: not logged
        hub.emit(Trouble(at=now, job=other.id, stage="source", message="elsewhere"))

    assert await messages(project, job) == [
        "A worker begins, with version 3fa9 of the spider, commit 0123456789ab.",
        "timeout, tried again in 4.0 s: no answer",
        "source: half of it could be read",
        "given up, parse: no title",
    ]
    view = await run_log(project, OWNER, LogQuery(job=job.id, level="error"))
    assert [(line.worker, line.detail) for line in view.lines] == [("host/8/1", ""), ("host/7/1", "Traceback ...")]
    assert view.codes == {"3fa9": "0123456789abcdef"}
    assert await messages(project, job, limit=1) == ["given up, parse: no title"]


async def test_lines_of_the_spider_are_in_the_log_and_its_warnings_are_still_printed(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await a_job(project)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    spider = SpiderLog("books")
    async with a_log(project) as log:
        log.emit(JobBegun(at=project.clock.now(), job=job.id, name="books"))
        for job_id in (job.id, "another-1"):
            spider.info("page %d", 3, extra={"job": job_id, "page": "https://a.example/3"})
        spider.warning("odd price", extra={"job": job.id})

    view = await run_log(project, OWNER, LogQuery(job=job.id))
    assert [(line.level, line.event, line.message, line.url) for line in view.lines[1:]] == [
        ("info", "Logged", "page 3", "https://a.example/3"), ("warning", "Logged", "odd price", ""),
    ]  # fmt: skip
    assert capsys.readouterr().err.count("odd price") == 1


async def test_a_flood_of_one_level_pushes_out_neither_another_nor_the_newest_lines(project: Project) -> None:
    job, now = await a_job(project), project.clock.now()
    log = a_log(project)
    log.emit(JobBegun(at=now, job=job.id, name="books", code="3fa9"))
    async with log:
        for n in range(CHUNK_LINES * RING * 2):
            log.emit(Retried(at=now + n, job=job.id, reason=f"timeout {n}", attempt=1, delay=1.0))
            if n % CHUNK_LINES == 0:
                await log._write()

    view = await run_log(project, OWNER, LogQuery(job=job.id, limit=1000))
    assert view.codes == {"3fa9": ""}, "the first line is there"
    assert view.lines[-1].message.startswith(f"timeout {CHUNK_LINES * RING * 2 - 1},")
    assert await project.state.shelf.count(RUN_LOG) <= RING + 1


async def test_while_the_level_is_debug_the_log_has_each_page_and_hides_nothing_else(project: Project) -> None:
    job, now, level = await a_job(project), project.clock.now(), ["info"]
    spider, worker = SpiderLog("books"), "host/7/1"

    def say(log: RunLog, word: str) -> None:
        log.emit(Completed(at=now, job=job.id, url=f"https://a.example/{word}", outcome="done"))
        spider.debug("a detail, %s", word, extra={"job": job.id})

    for word in ("before", "debug", "after"):
        level[0] = "debug" if word == "debug" else "warning"
        async with RunLog(project.state.shelf, project.clock, worker, lambda: level[0]) as log:
            log.emit(JobBegun(at=now, job=job.id, name="books", code="3fa9"))
            say(log, word)
    view = await run_log(project, OWNER, LogQuery(job=job.id, level="debug"))
    debug = [(line.event, line.url or line.message) for line in view.lines if line.level == "debug"]
    assert debug == [("Completed", "https://a.example/debug"), ("Logged", "a detail, debug")]
    assert {line.level for line in (await run_log(project, OWNER, LogQuery(job=job.id))).lines} == {"info"}


async def test_pages_of_many_workers_at_debug_push_nothing_of_another_level_out_of_sight(project: Project) -> None:
    job, now = await a_job(project), project.clock.now()
    async with a_log(project) as log:
        log.emit(JobBegun(at=now, job=job.id, name="books", code="3fa9"))
        log.emit(Trouble(at=now, job=job.id, stage="source", message="half of it could be read"))
    for number in range(4):
        async with RunLog(project.state.shelf, project.clock, f"host/{number}/2", lambda: "debug") as log:
            for n in range(CHUNK_LINES * RING):
                log.emit(Completed(at=now + 1 + n, job=job.id, url=f"https://a.example/{n}", outcome="done"))
                if n % CHUNK_LINES == 0:
                    await log._write()
    view = await run_log(project, OWNER, LogQuery(job=job.id, level="error"))
    assert ([line.message for line in view.lines], view.codes) == (["source: half of it could be read"], {"3fa9": ""})


async def test_while_the_state_does_not_answer_lines_wait_and_what_has_no_room_is_counted(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, now = await a_job(project), project.clock.now()
    log, commit = a_log(project), project.state.shelf.commit

    async def away(*_: object) -> bool:
        raise BackendUnavailable("away")

    async with log:
        monkeypatch.setattr(project.state.shelf, "commit", away)
        for n in range(CHUNK_LINES * (RING + 5)):
            log.emit(Retried(at=now + n, job=job.id, reason=f"timeout {n}", attempt=1, delay=1.0))
        with pytest.raises(BackendUnavailable):
            await log._write()
        monkeypatch.setattr(project.state.shelf, "commit", commit)

    view = await run_log(project, OWNER, LogQuery(job=job.id, limit=1000))
    assert (len(view.lines), view.older) == (1000, 0)
    assert view.left_out == CHUNK_LINES * 4
    some = await run_log(project, OWNER, LogQuery(job=job.id, limit=1))
    first, second, *_ = lines_of(some)
    assert (first, second) == (
        "... 999 older lines; --limit shows more.", f"... {view.left_out:,} lines had no room.",
    )  # fmt: skip


async def test_the_log_of_a_job_of_another_key_is_not_there(project: Project) -> None:
    job = await a_job(project, owner="ada")
    bob = Caller(id="bob", name="bob", scopes=frozenset((JOBS,)))
    with pytest.raises(NotThere, match="There is no job"):
        await run_log(project, bob, LogQuery(job=job.id))


def test_the_code_of_a_spider_is_its_hash_and_the_commit_that_is_checked_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "spiders" / "shelf_of_run_log.py"  # a name that no other test has imported
    file.parent.mkdir()
    file.write_text("from gossamer import Spider\nclass Shelf(Spider):\n    name = 'shelf'\n")
    monkeypatch.syspath_prepend(str(file.parent))
    from importlib import import_module

    spider: Spider = import_module(file.stem).Shelf()
    version, commit = code_of(spider)
    assert len(version) == 12

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
            cwd=tmp_path, check=True, capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout.strip()

    git("init", "-q")
    assert code_of(spider)[1] in ("", commit)  # nothing is committed
    git("add", ".")
    git("commit", "-qm", "one")
    assert code_of(spider) == (version, git("rev-parse", "HEAD"))
    git("pack-refs", "--all")
    assert code_of(spider) == (version, git("rev-parse", "HEAD"))
    git("checkout", "-q", "--detach")
    assert code_of(spider) == (version, git("rev-parse", "HEAD"))
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/" + "x" * 3000)
    assert code_of(spider)[1] in ("", commit)


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_what_a_program_shows_of_its_spiders_is_the_same_while_they_are_heard(
    monkeypatch: pytest.MonkeyPatch, order: tuple[str, str]
) -> None:
    shown, heard = list[str](), list[str]()

    class Shows(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            shown.append(record.getMessage())

    monkeypatch.setattr(logging.getLogger(), "handlers", [Shows()])
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    spider, logger = logging.getLogger("gossamer.spider.books"), logging.getLogger("gossamer.spider")
    hearers = {name: hearing_spiders(lambda record: heard.append(record.getMessage())) for name in ("one", "two")}
    for name in ("one", "two"):
        hearers[name].__enter__()
        spider.info("an info")
        spider.warning("a warning")
    for name in order:
        hearers[name].__exit__(None, None, None)
        spider.info("an info")
        spider.warning("a warning")
    assert shown == ["a warning"] * 4
    assert sorted(heard) == ["a warning"] * 4 + ["an info"] * 4, "by one, by both, by the other"
    assert (logger.level, logger.propagate, logger.handlers) == (logging.NOTSET, True, [])

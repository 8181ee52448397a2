"""The boards: one row for each spider and site, with its last runs, the same for people and programs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gossamer.errors import Misconfigured
from gossamer.frontier.contract import DeadFilter, JobTerms
from gossamer.model.incident import INCIDENT, Incident, IncidentAlert, Subject, SubjectKind
from gossamer.model.job import PAGES, RAW_PAGES, REPARSE
from gossamer.model.outcome import JobOutcome, Outcome
from gossamer.model.run import RUNS_SHOWN, SITE_RUNS, SPIDER_RUNS, RunLine, RunLines
from gossamer.model.shelf import ShelfKind
from gossamer.model.task import UrlState
from gossamer.project.access.keys import JOBS, OWNER, Caller
from gossamer.project.boards.boards import BoardQuery, site_board, spider_board
from gossamer.project.boards.runs import note_run
from gossamer.project.jobs.end import end_job
from gossamer.project.jobs.jobs import cancel_job, job_in_full
from gossamer.project.jobs.outcome import settle_again
from gossamer.project.open import Project, open_project
from gossamer.project.schedules.changes import add_schedule, new_schedule, pause_schedule
from gossamer.project.schedules.schedules import list_schedules
from gossamer.settings import FILE_NAME, ScheduleTable, load

from ..conformance.frontiers import candidate
from ..conformance.stores import book, page_of, result, tried
from ..journey.crawling import Heard, settings_for


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[Project]:
    async with open_project(settings_for(tmp_path)) as opened:
        yield opened


async def run(
    project: Project, *, ends: bool = True, good: int = 2, bad: int = 0, owner: str = "", spider: str = "",
    reason: str = "http-500",
) -> str:  # fmt: skip
    """A run of `books` at shop.example and, once, at other.example."""
    job, _ = await project.state.jobs.open_job("books", JobTerms(owner=owner, spider=spider), fresh=True)
    urls = [f"https://shop.example/{n}" for n in range(good + bad)]
    await project.state.frontier.add(job.id, [candidate(url) for url in urls])
    await project.state.jobs.seal_seeds(job.id)
    leases = {}
    while found := (await project.state.frontier.lease(job.id, "w", 99)).leases:
        leases |= {lease.task.url: lease for lease in found}
        for lease in found:
            place, at = urls.index(lease.task.url), project.clock.now()
            came = place < good
            dead = not came and reason != "http-500"
            attempt = tried(
                lease.task.url, at=at, job=job.id, outcome="done" if came else "dead" if dead else "retry", cost=0.5,
                bytes=100, reason="" if came else reason,
            )  # fmt: skip
            records = [book(str(place), at=at, job=job.id)] if came else []
            await project.records.save(
                [result(*records, page=page_of(lease.task.url, at=at, job=job.id), attempt=attempt)]
            )
            if dead:
                await project.state.frontier.bury(lease, reason, "it says so")
            else:
                await project.state.frontier.complete(lease, UrlState.DONE)
    other = tried("https://other.example/", at=project.clock.now(), job=job.id, site="other.example")
    await project.records.save([result(attempt=other)])
    if ends:
        await end_job(project, job, "done", Heard())
    return job.id


async def test_an_ended_run_is_on_the_row_of_its_spider_and_of_each_site(project: Project) -> None:
    job = await run(project, good=2, bad=1)

    (row,) = (await spider_board(project, OWNER, BoardQuery())).rows
    assert (row.name, row.state, row.last_runs) == ("books", "fine", "+")
    assert (row.runs[0].job, row.records, row.credits) == (job, 2, 1.5)
    assert row.success_rate == pytest.approx(3 / 4)  # with the request to the other site
    sites = {one.name: one for one in (await site_board(project, OWNER, BoardQuery())).rows}
    assert sites["shop.example"].success_rate == pytest.approx(2 / 3)
    assert (sites["shop.example"].outcome, sites["other.example"].outcome) == ("done with warnings", "done")
    assert (sites["shop.example"].records, sites["other.example"].records) == (2, 0)


async def test_a_dead_link_is_no_fault_of_its_site_and_the_pace_is_that_of_the_job(project: Project) -> None:
    id = await run(project, good=1, bad=4, reason="http-404")

    rows = {one.name: one for one in (await site_board(project, OWNER, BoardQuery())).rows}
    (spider,) = (await spider_board(project, OWNER, BoardQuery())).rows
    assert rows["shop.example"].outcome == spider.outcome == "done"
    job = await project.state.jobs.job(id)
    assert job is not None
    view = await job_in_full(project, job)
    assert spider.pages_per_second == pytest.approx(view.pages_per_second, rel=0.1)


@pytest.mark.parametrize("spider", [PAGES, RAW_PAGES, REPARSE])
async def test_single_pages_and_work_without_requests_are_no_runs_of_a_spider(project: Project, spider: str) -> None:
    await run(project, spider=spider)

    assert not (await spider_board(project, OWNER, BoardQuery())).rows


async def test_a_cancelled_run_counts_as_failing_until_a_run_ends_well(project: Project) -> None:
    job = await run(project, ends=False)
    await cancel_job(project, job)
    (row,) = (await spider_board(project, OWNER, BoardQuery())).rows
    assert (row.outcome, row.state, row.last_runs, row.fresh) == ("cancelled", "failing", "x", None)

    await run(project)
    (row,) = (await spider_board(project, OWNER, BoardQuery())).rows
    assert (row.state, row.last_runs) == ("fine", "x+")


async def test_a_line_that_a_crash_left_out_is_written_by_the_next_run(project: Project) -> None:
    lost = await run(project, ends=False)
    await project.state.jobs.close_job(lost, "done")  # and the process dies
    kept = await run(project)

    (row,) = (await spider_board(project, OWNER, BoardQuery())).rows
    assert [one.job for one in row.runs] == [lost, kept]
    await note_run(project, kept)  # again changes nothing
    assert (await spider_board(project, OWNER, BoardQuery())).rows == [row]


async def test_only_the_last_twenty_runs_are_kept(project: Project) -> None:
    jobs = [await run(project, good=0) for _ in range(RUNS_SHOWN + 3)]

    (row,) = (await spider_board(project, OWNER, BoardQuery())).rows
    assert [one.job for one in row.runs] == jobs[-RUNS_SHOWN:]


async def test_a_key_sees_only_the_rows_of_its_own_runs(project: Project) -> None:
    await run(project, owner="ada")
    bob, ada = (Caller(id=name, name=name, scopes=frozenset((JOBS,))) for name in ("bob", "ada"))

    assert (await spider_board(project, bob, BoardQuery())).rows == []
    assert (await site_board(project, bob, BoardQuery())).rows == []
    assert len((await site_board(project, ada, BoardQuery())).rows) == 2


async def test_what_needs_attention_comes_first(project: Project) -> None:
    await fill(project, 6)
    shelf = project.state.shelf
    alert = IncidentAlert(alert="success", subject="site-3.example", words="low", severity="bad", since=1.0)
    incident = Incident(
        id="i1", about=Subject(SubjectKind.SITE, "site-3.example"), since=1.0, opened_at=1.0, alerts=(alert,)
    )
    await shelf.commit([ShelfKind(shelf, INCIDENT, Incident).put("i1", incident)])

    board = await site_board(project, OWNER, BoardQuery(limit=3))
    assert [(row.name, row.state) for row in board.rows] == [
        ("site-3.example", "incident"), ("site-0.example", "failing"), ("site-5.example", "failing"),
    ]  # fmt: skip
    assert (board.total, board.next, board.states) == (6, 3, {"incident": 1, "failing": 2, "fine": 3})
    most = await site_board(project, OWNER, BoardQuery(sort="-records", state="fine"))
    assert [row.records for row in most.rows] == [40, 20, 10]
    assert [row.name for row in (await site_board(project, OWNER, BoardQuery(q="SITE-2"))).rows] == ["site-2.example"]


@pytest.mark.parametrize("query", [BoardQuery(sort="colour"), BoardQuery(state="odd")])
async def test_an_unknown_column_or_state_is_named(project: Project, query: BoardQuery) -> None:
    with pytest.raises(Misconfigured, match="there is"):
        await site_board(project, OWNER, query)


async def test_a_board_of_two_thousand_rows_is_made_in_a_moment(project: Project) -> None:
    await fill(project, 2000)

    began = time.process_time()
    board = await spider_board(project, OWNER, BoardQuery(sort="-success"))
    took = time.process_time() - began

    assert (board.total, len(board.rows)) == (2000, 50)
    assert took < 1.5  # 0.1 s on an idle machine; only a board that makes every row takes longer


async def fill(project: Project, count: int) -> None:
    """Rows with twenty runs each; the last run of every fifth failed."""
    shelf = project.state.shelf
    for kind, stem in ((SPIDER_RUNS, "spider-{}"), (SITE_RUNS, "site-{}.example")):
        rows, book = [], ShelfKind(shelf, kind, RunLines)
        for number in range(count):
            name = stem.format(number)
            lines = [
                RunLine(
                    job=f"{name}-{n}", spider=name, owner="", started=1e9 + n, finished=1e9 + n + 60,
                    outcome="failed" if number % 5 == 0 and n == RUNS_SHOWN - 1 else "done", pages=100, dead=1,
                    good=100 + number, bad=3, records=number * 10, bytes=10**6, credits=1.5, settled_at=0.0,
                )
                for n in range(RUNS_SHOWN)
            ]  # fmt: skip
            rows.append(book.put(name, msgspec.structs.replace(RunLines(name=name), runs=tuple(lines)), at=1e9))
        for start in range(0, count, 100):
            await shelf.commit(rows[start : start + 100])


async def test_the_next_run_is_what_the_schedule_says(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('[schedules.new]\nspider = "https://new.example/"\nevery = "1h"\n')
    async with open_project(load(start=tmp_path, environ={})) as project:
        for name, every in (("late", "1h"), ("resting", "1h")):
            table = ScheduleTable(spider=f"https://{name}.example/", every=every)
            await add_schedule(project, new_schedule(project.settings, name, table))
        await pause_schedule(project, "resting")

        rows = {one.schedules[0]: one for one in (await spider_board(project, OWNER, BoardQuery())).rows}
        views = {one.name: one for one in (await list_schedules(project)).schedules}

    # No scheduler leads: what is due waits for one, and of what none has read nobody knows the time.
    assert {name: (row.next_run, row.due) for name, row in rows.items()} == {
        name: (one.next, one.due) for name, one in views.items()
    }
    assert {name: row.next for name, row in rows.items()} == {"late": "due", "resting": "", "new": ""}


async def test_a_site_is_as_good_as_its_run_once_dead_letters_are_resolved(project: Project) -> None:
    id = await run(project, good=4, bad=1, reason="parse", ends=False)
    job = await project.state.jobs.job(id)
    assert job is not None
    await end_job(project, job, "done", Heard(), outcome=JobOutcome(Outcome.WARNINGS, dead=1))
    (before,) = [one for one in (await site_board(project, OWNER, BoardQuery())).rows if one.name == "shop.example"]
    assert before.outcome == "done with warnings"

    (letter,) = await project.state.queue.dead(DeadFilter(job=id), 1)
    again = tried(letter.url, at=project.clock.now(), job=id, outcome="reparsed", route="archive")
    await project.records.save([result(attempt=again)])
    await project.state.queue.resolve(letter)
    await settle_again(project, id, "parsed again")

    rows = {one.name: one for one in (await site_board(project, OWNER, BoardQuery())).rows}
    (spider,) = (await spider_board(project, OWNER, BoardQuery())).rows
    assert (rows["shop.example"].outcome, spider.outcome) == ("done", "done")
    # and the run does not look as if it had never happened
    assert spider.runs[-1].later == "1 dead letter: parsed again; it had ended as done with warnings"

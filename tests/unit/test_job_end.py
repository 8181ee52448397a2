"""A job ends when its results are in the stores, and a record is gone only when nothing waits that may show it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from gossamer import Spider
from gossamer.errors import BackendUnavailable, Misconfigured
from gossamer.frontier.contract import NO_STATS, DeadFilter, JobTerms, WorkerCard
from gossamer.model.events import Gone, JobEnded, Trouble
from gossamer.model.job import UNFINISHED, Job, JobState
from gossamer.model.outcome import Outcome
from gossamer.model.run_records import RunRecords
from gossamer.model.task import UrlState
from gossamer.project.jobs.compare import run_before
from gossamer.project.jobs.end import close_drained, close_letters
from gossamer.project.jobs.jobs import show_job
from gossamer.project.jobs.outcome import settle_again
from gossamer.project.jobs.status import job_status
from gossamer.project.jobs.worker_pool import WorkerPool
from gossamer.project.open import Project, open_project
from gossamer.project.records.records import differences
from gossamer.project.workers.spools import forget_spools, list_spools, storing_of
from gossamer.store.contract import RecordQuery, SpoolBook, SpoolNote
from gossamer.terms import coverage_of
from tests.patience import PATIENCE, until

from ..conformance.frontiers import candidate
from ..conformance.stores import book, page_of, result, tried
from ..journey.crawling import Heard, settings_for

PAGES = [f"https://shop.example/{n}" for n in range(4)]


class Books(Spider):
    name = "books"
    start_urls = PAGES[:1]


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[Project]:
    async with open_project(settings_for(tmp_path)) as opened:
        yield opened


async def crawl(project: Project, stored: list[str], stats: Mapping[str, int] = NO_STATS) -> Job:
    """A job that has done every page, and of which the results of these pages are stored."""
    terms = JobTerms(coverage=coverage_of(Books()))
    job, _ = await project.state.jobs.open_job("books", terms, fresh=False)
    await project.state.frontier.add(job.id, [candidate(url) for url in PAGES])
    await project.state.jobs.seal_seeds(job.id)
    for lease in (await project.state.frontier.lease(job.id, "w", 9)).leases:
        url = lease.task.url
        if url in stored:
            at = project.clock.now()
            record = book(url[-1], at=at, job=job.id)
            facts, attempt = page_of(url, at=at, job=job.id), tried(url, at=at, job=job.id)
            await project.records.save([result(record, page=facts, attempt=attempt)])
        await project.state.frontier.complete(lease, UrlState.DONE, stats=stats)
    return job


async def note(project: Project, job: Job, results: int, **fields: object) -> SpoolNote:
    """What a worker on another machine has noted."""
    usual = {"name": "there-7-x", "host": "there", "folder": "/spool", "worker": "there/7/1", "bytes": 9_000}
    noted = SpoolNote(results={job.id: results}, noted_at=project.clock.now(), **{**usual, **fields})
    await project.state.spools.note(noted)
    return noted


async def gone(project: Project) -> int:
    return await project.records.count(RecordQuery(gone=True))


async def test_nothing_is_gone_and_no_job_ends_while_results_wait_on_another_machine(project):
    # given a crawl that saw everything, and one of which another machine has half of the results on its disk
    heard = Heard()
    first = await crawl(project, PAGES)
    assert await close_drained(project, Books(), first, heard) is None
    second = await crawl(project, PAGES[:2])
    noted = await note(project, second, 2)

    # when a worker here finds nothing left of it
    storing = await close_drained(project, Books(), second, heard)

    # then the job does not end, and no record is gone
    assert storing is not None
    assert (storing.results, storing.hosts, storing.alive) == (2, ("there",), False)
    assert (await project.state.jobs.job(second.id)).state is JobState.RUNNING
    assert await gone(project) == 0
    view = await show_job(project, second.id)
    assert (view.phase, view.storing) == ("storing", 2)
    assert "2 results" in view.in_words

    # when they are stored, it does; what no crawl has seen is gone then
    await project.state.spools.take_away([noted.name])
    assert await close_drained(project, Books(), second, heard) is None
    assert (await project.state.jobs.job(second.id)).ending == "done"
    assert await gone(project) == 2
    assert [event.records for event in heard.of(Gone)] == [2]


async def test_pages_that_were_not_done_when_they_were_read_mark_nothing_as_gone_in_silence(project):
    heard = Heard()
    await close_drained(project, Books(), await crawl(project, PAGES), heard)

    # fewer records, and pages that were not done: nothing is gone, and that is told, however often it happens
    for run in (1, 2, 3):
        await close_drained(project, Books(), await crawl(project, PAGES[:3], {UNFINISHED: 1}), heard)
        assert await gone(project) == 0
        assert len(heard.of(Trouble)) == run
        assert "read 4 pages before they had finished loading" in heard.of(Trouble)[-1].message
        assert "No record is marked as gone" in heard.of(Trouble)[-1].message

    # a run whose pages were done has the last word
    await close_drained(project, Books(), await crawl(project, PAGES[:3]), heard)
    assert await gone(project) == 1


async def test_what_a_run_did_to_records_is_counted_once_and_says_why_nothing_is_gone(project):
    # given a run that saw four records, and one in which a page failed and another gives nothing any more
    first = await crawl(project, PAGES)
    await close_drained(project, Books(), first, Heard())
    second, _ = await project.state.jobs.open_job("books", JobTerms(coverage=coverage_of(Books())), fresh=False)
    await project.state.frontier.add(second.id, [candidate(url) for url in PAGES])
    await project.state.jobs.seal_seeds(second.id)
    for lease in (await project.state.frontier.lease(second.id, "w", 9)).leases:
        url, at = lease.task.url, project.clock.now()
        if url == PAGES[3]:
            failed = tried(url, at=at, job=second.id, outcome="dead", status=500, reason="http-500")
            await project.records.save([result(attempt=failed)])
            await project.state.frontier.bury(lease, "http-500", "The server failed.")
            continue
        records = [book(url[-1], at=at, job=second.id, price=9)] if url == PAGES[0] else []
        records += [book(url[-1], at=at, job=second.id)] if url == PAGES[1] else []
        facts, attempt = page_of(url, at=at, job=second.id), tried(url, at=at, job=second.id)
        await project.records.save([result(*records, page=facts, attempt=attempt)])
        await project.state.frontier.complete(lease, UrlState.DONE)
    heard = Heard()
    await close_drained(project, Books(), second, heard)

    # then the job, the log and the comparison with the run before say the same
    did = (await show_job(project, second.id)).run_records
    assert did is not None
    assert (did.changed, did.unchanged, did.gone, did.unseen) == (1, 1, 1, 1)
    kept = "1 record was not seen and is not marked as gone: 1 page of the run ended as dead letters (1 http-500)."
    assert did.why_kept == kept
    assert did.in_words == "2 seen = 1 changed + 1 unchanged; 1 marked as gone, 1 not seen"
    assert [event.message for event in heard.of(Gone)] == [
        f"1 record marked as gone: see `gossamer diff {second.id}`. {kept}"
    ]
    assert [event.records for event in heard.of(JobEnded)] == ["1 changed, 1 gone"]
    assert await run_before(project, "books") == (first.id, second.id)
    with pytest.raises(Misconfigured, match=f"{first.id} is the first run of books"):
        await run_before(project, first.id)
    found = {one.key: (one.kind, one.reason) async for one in differences(project, first.id, second.id)}
    assert found == {"0": ("changed", ""), "2": ("gone", ""), "3": ("unseen", "http-500")}
    gone = [record.key async for record in project.records.records(RecordQuery(gone_by=second.id))]
    assert (gone, (await show_job(project, first.id)).run_records) == (["2"], RunRecords(new=4))

    # and when a later run fetches the page, the run says so, and what it did to records stays what it was
    third = await crawl(project, PAGES)
    await close_drained(project, Books(), third, Heard())
    view = await show_job(project, second.id)
    assert (view.dead, view.outcome, view.first_outcome) == (0, Outcome.DONE, Outcome.WARNINGS)
    assert view.settled_later == {f"fetched by {third.id}": 1}
    assert view.run_records == did
    assert {one.key: one.kind async for one in differences(project, second.id, third.id)} == {
        "0": "changed", "2": "back", "3": "again",
    }  # fmt: skip


async def test_a_page_that_is_parsed_again_to_another_key_does_not_make_the_record_seen(project):
    # given a run in which the page of one of four records failed
    await close_drained(project, Books(), await crawl(project, PAGES), Heard())
    job, _ = await project.state.jobs.open_job("books", JobTerms(coverage=coverage_of(Books())), fresh=False)
    await project.state.frontier.add(job.id, [candidate(url) for url in PAGES])
    await project.state.jobs.seal_seeds(job.id)
    at = project.clock.now()
    for lease in (await project.state.frontier.lease(job.id, "w", 9)).leases:
        if (url := lease.task.url) == PAGES[3]:
            await project.state.frontier.bury(lease, "parse", "The spider failed.")
            continue
        record, facts = book(url[-1], at=at, job=job.id), page_of(url, at=at, job=job.id)
        await project.records.save([result(record, page=facts, attempt=tried(url, at=at, job=job.id))])
        await project.state.frontier.complete(lease, UrlState.DONE)
    await close_drained(project, Books(), job, Heard())
    assert (await show_job(project, job.id)).run_records.unseen == 1

    # when its letter is settled by a record with another key, and then by its own
    (letter,) = await project.state.queue.dead(DeadFilter(job=job.id), 1)
    for key, unseen in (("other", 1), ("3", 0)):
        again = tried(PAGES[3], at=at, job=job.id, outcome="reparsed", route="archive")
        await project.records.save([result(book(key, at=at, job=job.id), attempt=again)])
        await project.state.queue.resolve(letter)
        await settle_again(project, job.id, "parsed again")

        # then only that one was seen
        assert (await show_job(project, job.id)).run_records.unseen == unseen


async def test_what_is_gone_is_told_once_however_many_workers_end_the_job(project):
    # given two workers that find no open page of a job at the same time
    await close_drained(project, Books(), await crawl(project, PAGES), Heard())
    job, heard = await crawl(project, PAGES[:2]), Heard()
    await asyncio.gather(*(close_drained(project, Books(), job, heard) for _ in range(2)))

    # then one of them has ended it, and says what is gone
    assert [type(event) for event in heard.of(Gone, JobEnded)] == [Gone, JobEnded]
    assert [event.records for event in heard.of(Gone)] == [2]


async def test_a_job_that_ends_again_tells_only_what_is_gone_since(project):
    # given a run that has marked a record as gone, and of which a page failed
    await close_drained(project, Books(), await crawl(project, PAGES), Heard())
    heard = Heard()
    job, _ = await project.state.jobs.open_job("books", JobTerms(coverage=coverage_of(Books())), fresh=False)
    await project.state.frontier.add(job.id, [candidate(url) for url in PAGES])
    await project.state.jobs.seal_seeds(job.id)

    async def work(*without: str, failing: str = "") -> None:
        for lease in (await project.state.frontier.lease(job.id, "w", 9)).leases:
            url, at = lease.task.url, project.clock.now()
            if url == failing:
                await project.state.frontier.bury(lease, "http-500", "The server failed.")
                continue
            records = [] if url in without else [book(url[-1], at=at, job=job.id)]
            facts, attempt = page_of(url, at=at, job=job.id), tried(url, at=at, job=job.id)
            await project.records.save([result(*records, page=facts, attempt=attempt)])
            await project.state.frontier.complete(lease, UrlState.DONE)
        await close_drained(project, Books(), job, heard)

    await work(PAGES[2], failing=PAGES[3])
    assert [event.records for event in heard.of(Gone)] == [1]

    # when its dead letter is replayed, and the page gives nothing any more
    assert await project.state.queue.replay(DeadFilter(job=job.id)) == 1
    await work(PAGES[3])
    assert [event.records for event in heard.of(Gone)] == [1, 1]
    assert len(heard.of(JobEnded)) == 2
    did = (await show_job(project, job.id)).run_records
    assert did is not None
    assert (did.unchanged, did.gone, did.unseen) == (2, 2, 0)


async def test_a_store_that_cannot_count_does_not_keep_a_job_from_ending(project, monkeypatch):
    async def unseen(*_: object) -> int:
        raise BackendUnavailable("The records did not answer within 60 seconds.")

    await close_drained(project, Books(), await crawl(project, PAGES), Heard())
    monkeypatch.setattr(type(project.records), "unseen", unseen)
    job, heard = await crawl(project, PAGES), Heard()
    await close_drained(project, Books(), job, heard)

    ended = await project.state.jobs.job(job.id)
    assert (ended.ending, ended.outcome.records) == ("done", None)
    assert [event.stage for event in heard.of(Trouble)] == ["records"]
    assert "was not counted: The records did not answer" in heard.of(Trouble)[0].message


async def test_a_run_that_stopped_does_not_count_what_it_did_not_come_to(project):
    await close_drained(project, Books(), await crawl(project, PAGES), Heard())
    job, heard = await crawl(project, PAGES[:2]), Heard()
    await project.state.control.end_soon(job.id, "enough")
    await close_drained(project, Books(), job, heard)

    ended = await project.state.jobs.job(job.id)
    assert (ended.ending, ended.outcome.records) == ("limit", RunRecords(unchanged=2))
    assert heard.of(Gone) == []


async def test_letters_beyond_the_most_that_one_run_looks_at_are_closed_by_the_next(project, monkeypatch):
    # given two runs in which every page was given up, and a run that has all of them
    monkeypatch.setattr("gossamer.project.jobs.end.MOST_LETTERS", 3)
    for _ in range(2):
        failed, _ = await project.state.jobs.open_job("books", JobTerms(), fresh=True)
        await project.state.frontier.add(failed.id, [candidate(url) for url in PAGES])
        for lease in (await project.state.frontier.lease(failed.id, "w", 9)).leases:
            await project.state.frontier.bury(lease, "parse", "The spider failed.")
        await project.state.jobs.close_job(failed.id, "done")
    job = await crawl(project, PAGES)

    # then each end of a run closes as many as it may look at, of however many runs they are
    assert [await close_letters(project, job) for _ in range(4)] == [3, 3, 2, 0]


async def test_pages_that_are_never_quiet_are_believed_when_two_runs_agree(project):
    heard = Heard()
    for _ in range(2):
        await close_drained(project, Books(), await crawl(project, PAGES, {UNFINISHED: 1}), heard)
    assert heard.of(Trouble) == []

    await close_drained(project, Books(), await crawl(project, PAGES[:3], {UNFINISHED: 1}), heard)
    assert (len(heard.of(Trouble)), await gone(project)) == (1, 0)
    await close_drained(project, Books(), await crawl(project, PAGES[:3], {UNFINISHED: 1}), heard)
    assert (len(heard.of(Trouble)), await gone(project)) == (1, 1)


async def test_results_of_other_jobs_do_not_hold_a_job_up(project):
    job = await crawl(project, PAGES)
    other, _ = await project.state.jobs.open_job("news", JobTerms(), fresh=False)
    await note(project, other, 2)

    assert await close_drained(project, Books(), job, Heard()) is None
    assert (await project.state.jobs.job(job.id)).ending == "done"


async def test_results_that_were_given_up_let_the_job_end_with_a_warning_and_nothing_gone(project):
    # given a job that waits for a machine that will not come back
    heard = Heard()
    await close_drained(project, Books(), await crawl(project, PAGES), heard)
    job = await crawl(project, PAGES[:2])
    await note(project, job, 2)
    assert await close_drained(project, Books(), job, heard) is not None

    # when somebody gives its results up
    [given_up] = await forget_spools(project, "there")
    assert (given_up.results, given_up.host) == (2, "there")
    assert await close_drained(project, Books(), job, heard) is None

    # then the job has ended, with a warning; nothing is gone, and the note has served its purpose
    assert [event.job for event in heard.of(JobEnded)][-1] == job.id
    assert any("2 results" in event.message and "given up" in event.message for event in heard.of(Trouble))
    assert await gone(project) == 0
    assert await list_spools(project) == []


async def test_results_of_a_living_worker_are_not_given_up(project):
    job = await crawl(project, PAGES[:2])
    noted = await note(project, job, 2)
    now = project.clock.now()
    card = WorkerCard(name=noted.worker, host="there", pid=7, version="1", started_at=now, seen_at=now)
    await project.state.workers.beat(card)

    with pytest.raises(Misconfigured, match="is alive"):
        await forget_spools(project, "there")
    with pytest.raises(Misconfigured, match="gossamer spool"):
        await forget_spools(project, "elsewhere")
    assert [view.given_up for view in await list_spools(project)] == [False]


def to_the_end(project: Project, job: Job, heard: Heard) -> WorkerPool:
    """As `gossamer crawl` works on a job."""
    spider_of = lambda _: (Books(), project.settings)  # noqa: E731
    return WorkerPool(project, heard, only=frozenset((job.id,)), to_the_end=True, spider_of=spider_of)


async def noted_by_a_living_worker(project: Project, job: Job) -> SpoolNote:
    noted, now = await note(project, job, 2), project.clock.now()
    card = WorkerCard(name=noted.worker, host="there", pid=7, version="1", started_at=now, seen_at=now)
    await project.state.workers.beat(card)
    return noted


async def test_a_crawl_waits_for_living_workers_and_not_for_lost_ones(project):
    job, heard = await crawl(project, PAGES), Heard()
    noted = await noted_by_a_living_worker(project, job)
    async with asyncio.timeout(PATIENCE):
        crawling = asyncio.create_task(to_the_end(project, job, heard).run())
        await until(lambda: heard.of(Trouble))  # it says what it waits for
        assert not crawling.done()
        await project.state.workers.sign_off(noted.worker)
        await crawling
    assert (await project.state.jobs.job(job.id)).state is JobState.RUNNING
    assert (await storing_of(project, await project.state.spools.notes(), job.id)).results == 2


@pytest.mark.parametrize("how", ["cancelled", "replaced"])
async def test_a_job_that_was_given_up_marks_no_record_as_gone(project, how):
    # given a crawl that saw everything, and one that was given up when half of its pages were done
    heard = Heard()
    await close_drained(project, Books(), await crawl(project, PAGES), heard)
    job = await crawl(project, PAGES[:2])
    await project.state.frontier.add(job.id, [candidate("https://shop.example/more")])
    if how == "cancelled":
        await project.state.jobs.cancel_job(job.id)
    else:
        await project.state.jobs.open_job("books", JobTerms(), fresh=True)

    # when its worker finds nothing left of it
    assert await close_drained(project, Books(), job, heard) is None

    # then what it did not come to is not gone
    assert (await project.state.jobs.job(job.id)).ending == how
    assert await gone(project) == 0
    assert heard.of(Gone) == []
    # and what it did to records is not counted anew with each look at it
    views = [await show_job(project, job.id), await job_status(project, job.id)]
    assert [view.run_records for view in views] == [None, None]


async def test_a_state_that_is_away_for_a_moment_does_not_fail_a_crawl_that_waits(project, monkeypatch):
    job, heard, spools = await crawl(project, PAGES), Heard(), SpoolBook
    real, asked = spools.notes, 0

    async def notes(book: SpoolBook) -> list[SpoolNote]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise BackendUnavailable("The state is away.")
        return await real(book)

    monkeypatch.setattr(spools, "notes", notes)
    async with asyncio.timeout(PATIENCE):
        await to_the_end(project, job, heard).run()

    assert (await project.state.jobs.job(job.id)).ending == "done"
    assert [event.message for event in heard.of(Trouble)] == ["The state is away."]


async def test_a_job_that_is_cancelled_is_not_waited_for_while_its_results_wait(project):
    job, heard = await crawl(project, PAGES), Heard()
    await noted_by_a_living_worker(project, job)
    async with asyncio.timeout(PATIENCE):
        crawling = asyncio.create_task(to_the_end(project, job, heard).run())
        await until(lambda: heard.of(Trouble))  # it says what it waits for
        await project.state.jobs.cancel_job(job.id)
        await crawling

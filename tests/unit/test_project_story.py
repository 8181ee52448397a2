"""The story of a URL and dead letters, without a command line."""

from __future__ import annotations

import shlex
from datetime import timedelta

import msgspec
import pytest

from gossamer.errors import InvalidUrl, Misconfigured
from gossamer.frontier.away import AwayTerms, SiteFailure
from gossamer.model.job import JobPoliteness, JobTerms
from gossamer.model.task import UrlState
from gossamer.project.dead_letters.dead_letters import (
    DeadLetterChoice,
    count_letters,
    list_letters,
    purge_letters,
    raw_page,
    replay_letters,
    show_letters,
)
from gossamer.project.dead_letters.story import story_of
from gossamer.project.jobs.status import job_status
from gossamer.project.open import open_project
from gossamer.project.records.records import history
from gossamer.project.records.table import story_of_record
from gossamer.project.sites.sites import queue_by_site
from gossamer.project.workers.scaling import scaling
from gossamer.server.ui.why import timeline
from gossamer.settings import load
from gossamer.store.contract import Retirement
from tests.conformance.stores import book, result
from tests.unit.commandline import TOML, candidate
from tests.unit.crawled import BODY, SHOP, SLOW, crawl_half

EVERY = DeadLetterChoice()


@pytest.fixture
async def project(tmp_path):
    (tmp_path / "gossamer.toml").write_text(TOML)
    async with open_project(load(start=tmp_path)) as opened:
        await crawl_half(opened)
        yield opened


async def test_a_story_is_one_value_that_can_be_read_back(project):
    story = await story_of(project, f"{SHOP}/broken#top")

    assert story.known
    assert [(one.job, one.state) for one in story.jobs] == [("books-1", UrlState.DEAD)]
    assert story.jobs[0].in_words == "dead: parse, after 1 try"
    assert story.jobs[0].next_step == f"gossamer dead replay {SHOP}/broken"
    assert [attempt.reason for attempt in story.attempts] == ["parse"]
    assert msgspec.json.decode(msgspec.json.encode(story), type=type(story)) == story


async def test_a_story_names_the_records_of_the_page(project):
    await project.records.save([result(book("emma"))])

    (record,) = (await story_of(project, f"{SHOP}/emma")).records
    assert (record.key, record.version, record.data) == ("emma", 1, {"title": "Emma"})


async def test_a_record_that_is_gone_says_so_where_its_page_and_its_history_are_told(project):
    now = project.clock.now()
    await project.records.save([result(book("emma", at=now - 9))])
    identity = ("Book", "shop.example", "emma")
    await project.records.retire(Retirement(job="books-2", spider="books", at=now - 5, records=[identity]))

    events = timeline(await story_of(project, f"{SHOP}/emma"))
    assert [(one.title, one.words) for one in events if "record" in one.title] == [
        ("record Book gone", "emma was marked as gone by books-2")
    ]

    await project.records.save([result(book("emma", at=now, job="books-3", price=2))])
    (record,) = await history(project, "emma")
    steps = story_of_record(record).steps
    assert [(step.version, step.gone, step.back) for step in steps] == [
        (3, False, True), (2, True, False), (1, False, False),
    ]  # fmt: skip


async def test_the_next_step_can_be_pasted_into_a_shell_whatever_the_site_called_its_page(project):
    url = f"{SHOP}/x;touch$IFS/tmp/y?a=1&b=$(id)"
    await project.state.frontier.add("books-1", [candidate(url, priority=1_000_000)])
    (lease,) = (await project.state.frontier.lease("books-1", "w", 1)).leases
    await project.state.frontier.bury(lease, "parse", "no")

    (told,) = (await story_of(project, url)).jobs
    assert shlex.split(told.next_step) == ["gossamer", "dead", "replay", lease.task.url]
    assert f"'{lease.task.url}'" in told.next_step


async def test_a_url_that_no_job_knows_has_a_story_without_chapters(project):
    story = await story_of(project, f"{SHOP}/never")

    assert (story.known, story.jobs, story.attempts, story.records) == (False, [], [], [])
    with pytest.raises(InvalidUrl, match=r"Did you mean https://shop.example/x"):
        await story_of(project, "shop.example/x")


async def test_letters_are_counted_listed_and_shown_with_their_raw_page(project):
    page = await list_letters(project, EVERY, limit=1)
    (broken,) = await show_letters(project, f"{SHOP}/broken")

    assert (page.total, len(page.dead_letters), await count_letters(project, EVERY)) == (2, 1, 2)
    assert page.by_reason == {"http-404": 1, "parse": 1}
    assert await raw_page(project, broken) == BODY
    (gone,) = await show_letters(project, f"{SHOP}/gone")
    with pytest.raises(Misconfigured, match="no raw page"):
        await raw_page(project, gone)


async def test_replayed_letters_are_back_in_the_queue_and_purged_ones_are_gone(project):
    replayed = await replay_letters(project, DeadLetterChoice(reason="http"))
    assert (replayed.queued, replayed.jobs, replayed.did_something) == ({"books-1": 1}, ["books"], True)

    assert await purge_letters(project, DeadLetterChoice(target=f"{SHOP}/broken")) == 1
    assert await count_letters(project, EVERY) == 0
    assert not (await replay_letters(project, EVERY)).matched


async def test_people_are_told_that_a_site_is_away_and_when_it_is_tried_again(project):
    failure = SiteFailure(host="slow.example", reason="connect", never=True)
    terms = AwayTerms(base=timedelta(minutes=2), cap=timedelta(minutes=2), patience=timedelta(hours=1), probes=9)
    await project.state.frontier.site_away("slow.example", failure, terms)  # it has just answered
    assert "cannot be reached" not in (await story_of(project, f"{SLOW}/2")).jobs[0].in_words

    await project.state.frontier.site_away("gone.example", failure, terms)
    job = (await project.state.jobs.jobs())[0].id
    await project.state.frontier.add(job, [candidate("https://gone.example/")])

    (one,) = (await story_of(project, "https://gone.example/")).jobs
    assert one.in_words.startswith("queued: it is the next of gone.example; gone.example cannot be reached since ")
    assert "one page tries it again at " in one.in_words
    assert one.site_away_since is not None
    status = await job_status(project, job)
    (site,) = [each for each in status.sites if each.site == "gone.example"]
    assert site.away_since == one.site_away_since
    assert ": away since " in site.next_request


@pytest.mark.parametrize(
    ("politeness", "of_job", "words"),
    [
        ('rate = "unlimited"\nconcurrency = 2', JobPoliteness(), "2 at a time at this site: politeness.concurrency"),
        ('rate = "6/m"', JobPoliteness(), "6/m at this site: politeness.rate"),
        (
            'rate = "unlimited"',
            JobPoliteness(rate="6/m", given=("rate",)),
            "6/m of this job at a site: the rate, given for it",
        ),
    ],
    ids=["at once", "rate of the site", "rate of the job"],
)
async def test_a_page_that_a_limit_holds_back_names_the_limit_and_no_worker(tmp_path, politeness, of_job, words):
    (tmp_path / "gossamer.toml").write_text(f"[politeness]\n{politeness}\n")
    async with open_project(load(start=tmp_path, environ={})) as project:
        state = project.state
        job, _ = await state.jobs.open_job("wares", JobTerms(politeness=of_job), fresh=False)
        await state.frontier.add(job.id, [candidate(f"{SHOP}/{n}") for n in range(6)])
        assert (await state.frontier.lease(job.id, project.worker, 2)).leases

        (told,) = (await story_of(project, f"{SHOP}/5")).jobs
        assert words in told.in_words
        assert "worker that is free" not in told.in_words
        (site,) = (await job_status(project, job.id)).sites
        assert words in site.next_request
        assert words in (await scaling(project)).limit
        (queue,) = (await queue_by_site(project)).sites
        assert words in queue.why

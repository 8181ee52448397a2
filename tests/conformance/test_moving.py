"""Streams of rows, for every backend: what is dumped from one store and loaded into another is all that it was."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.access.contract import ApiKey
from gossamer.backends.folder.archive import FolderArchive
from gossamer.backends.object.archive import open_object_archive
from gossamer.clock import VirtualClock
from gossamer.errors import Misconfigured
from gossamer.fetch.robots_shelf import RobotsEntry
from gossamer.fetch.sessions import begin_login, end_login
from gossamer.frontier.contract import DeadFilter, UrlStory
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.alert import AlertState, Notice, NoticeState, NoticeSubject, Severity, Silence, Standing
from gossamer.model.item_account import ItemCounts
from gossamer.model.job import JobCounts, JobState, JobTerms
from gossamer.model.outcome import JobOutcome, Outcome, Reason
from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import ItemSchema, Tally
from gossamer.model.schedule import Schedule
from gossamer.model.session import Cookie
from gossamer.model.stream import MoveMark, MoveStatus, RowStream
from gossamer.model.task import DropReason, UrlState
from gossamer.schedule.alert_book import AlertStep
from gossamer.store.contract import RecordQuery, Records, Retirement, SpoolNote, VisitQuery

from ..services.seaweed import Seaweed
from .frontiers import Backends, Lab, candidate
from .stores import NOW, RECORD_STORES, all_of, book, page_of, reparse, result, tried, visit

SHOP, SLOW, OTHER = "https://shop.example", "https://slow.example", "https://other.example"
STATES = ("sqlite", "valkey", "shards", "cluster")
WAYS = [("sqlite", "valkey"), ("valkey", "sqlite"), ("sqlite", "shards"), ("cluster", "sqlite"), ("shards", "valkey")]


async def copy(source: RowStream[Any], target: RowStream[Any]) -> None:
    """As a move does it; every batch goes twice, as if the first answer had been lost."""
    await target.clear()
    async for batch in source.dump():
        await target.load(batch)
        await target.load(batch)
    await target.finish()


# -- state ------------------------------------------------------------------------------------------------------


COOKIE = Cookie("sid", "ö", "shop.example", "/", host_only=False, secure=True, expires=NOW + 9.5, http_only=True)
KEY = ApiKey(id="new", name="laptop", digest="ab" * 32, scopes=("scrape", "jobs"), created_at=NOW, rate=2.5)


FIRING = Standing(alert="success", subject="shop ☂", state=AlertState.FIRING, since=NOW, began_at=NOW - 1, told_at=NOW)
OPEN = Notice(
    id="open", channel="team", alert="success", state_told=AlertState.FIRING, severity=Severity.CRITICAL, count=1,
    subjects=(NoticeSubject(subject="shop ☂", words="fails", value=0.5, since=NOW),), made_at=NOW,
)  # fmt: skip
TOLD = msgspec.structs.replace(OPEN, id="told", state=NoticeState.DELIVERED, ended_at=NOW + 1, tries=2)
SILENCE = Silence(id="s1", alert="*", subject="*", until=NOW + 1e6, reason="we know", made_at=NOW)


async def lived_in(lab: Lab) -> str:
    """A state in which everything has happened that can happen; returns the id of its unfinished job."""
    frontier = lab.frontier
    old = await lab.job("old")
    await frontier.add(old.id, [candidate(f"{OTHER}/done"), candidate(f"{OTHER}/never")])
    (lease, *_) = (await frontier.lease(old.id, "w", 1)).leases
    await frontier.complete(lease, UrlState.DONE)
    await lab.job("old", fresh=True)  # replaces it: what was open is dropped

    job = (await lab.job("books", max_urls_per_site=40, max_urls_per_pattern=30, max_deliveries=3)).id
    await frontier.add(
        job,
        [
            candidate(f"{SHOP}/", priority=9, kind="listing", data='{"page":1}', fetcher="browser", country="de"),
            candidate(f"{SHOP}/gone", priority=8),
            candidate(f"{SHOP}/later", priority=8),
            candidate(f"{SHOP}/same", priority=8),
            candidate(f"{SHOP}/moved", priority=8, redirects=(f"{SHOP}/older",)),
            candidate(f"{SHOP}/killer", priority=7),
            candidate(f"{SHOP}/held", priority=7),
            candidate(f"{SHOP}/private", dropped=DropReason.ROBOTS),
            candidate(f"{SHOP}/gone"),  # a duplicate
        ],
    )
    leases = {lease.task.url.rpartition("/")[2]: lease for lease in (await frontier.lease(job, "w", 5)).leases}
    await frontier.complete(
        leases[""],
        UrlState.DONE,
        discovered=[
            *(candidate(f"{SHOP}/p/{n}", priority=n % 3) for n in range(12)),
            candidate(f"{OTHER}/from-shop", priority=2),
            candidate(f"{SHOP}/gone"),
        ],
        duplicates=5,
    )
    await frontier.bury(leases["gone"], "client-error-404", "The server said: no.\nSecond line ☂")
    await frontier.retry(leases["later"], timedelta(seconds=90), "timeout")
    await frontier.complete(leases["same"], UrlState.UNCHANGED)
    await frontier.complete(leases["moved"], UrlState.DONE, redirect=f"{OTHER}/new")
    await frontier.lease(job, "dead-worker", 2)  # killer and held
    lab.gone.add("dead-worker")
    await frontier.too_often("slow.example", rest=timedelta(0))
    lab.clock.advance(5)
    await frontier.lease(job, "w", 0)  # finds out that the worker died: an incident for each
    await frontier.lease(job, "living", 2)  # and both are in progress again
    await frontier.too_often("slow.example", rest=timedelta(0))  # for the second time
    await frontier.slow_down("slow.example", interval=timedelta(seconds=7), rest=timedelta(seconds=60))
    await frontier.add(job, [candidate(f"{SLOW}/1"), candidate(f"{SLOW}/2")])
    await lab.jobs.seal_seeds(job)
    await lab.keys.add(KEY)
    await lab.keys.add(msgspec.structs.replace(KEY, id="old", name="gone"))
    await lab.keys.note_use("old", NOW + 5)
    await lab.keys.revoke("old", NOW + 6)
    await lab.sessions.change("shop/member", begin_login("w", "h", 60, lambda worker: False))
    await lab.sessions.change("shop/member", end_login(1, {COOKIE.key: COOKIE}, {"X-Token": "t"}, ["shop.example"]))
    term = await lab.ticks.lead("watcher", timedelta(seconds=1))
    assert term is not None
    await lab.alerts.settle(term, AlertStep(standings=(FIRING,), notices=(TOLD, OPEN)))
    await lab.alerts.silence(SILENCE)
    await lab.ticks.resign(term)
    await lab.robots.put(
        RobotsEntry(origin=SHOP, status=200, text="User-agent: *\nDisallow: /x", fetched_at=NOW, expires_at=NOW + 9_000)
    )
    return job


@pytest.fixture
async def labs(request: pytest.FixtureRequest, backends: Backends, tmp_path: Path) -> AsyncIterator[tuple[Lab, Lab]]:
    """Two states, of the kinds that the test names; their clocks agree."""
    async with AsyncExitStack() as stack:
        source, target = [
            await stack.enter_async_context(backends.open(name, tmp_path / str(place)))
            for place, name in enumerate(request.param)
        ]
        for lab in (source, target):
            lab.terms["slow.example"] = SiteTerms(interval=timedelta(seconds=1), burst=1, concurrency=None)
        yield source, target


def told(story: UrlStory) -> UrlStory:
    """The story of a URL whose worker is gone: in progress is queued again."""
    return msgspec.structs.replace(
        story,
        state=UrlState.QUEUED if story.state is UrlState.LEASED else story.state,
        worker=None,
        lease_until=None,
        ahead_of_it=None,
    )


async def stories(lab: Lab, job: str) -> dict[str, UrlStory]:
    found = {}
    async for url, _, _ in lab.queue.urls(job):
        one = candidate(url)
        (story,) = [story for story in await lab.queue.story(one.site, one.fingerprint) if story.job == job]
        assert url not in found
        found[url] = told(story)
    return found


def without_hands(counts: JobCounts) -> JobCounts:
    return msgspec.structs.replace(counts, queued=counts.queued + counts.leased, leased=0)


@pytest.mark.parametrize("labs", WAYS, indirect=True, ids="-to-".join)
async def test_every_url_has_the_same_story_on_the_other_side(labs: tuple[Lab, Lab]) -> None:
    source, target = labs
    job = await lived_in(source)
    target.clock.advance(5)

    await copy(source.stream, target.stream)

    counts = await source.stream.counts()
    assert await target.stream.counts() == counts
    assert counts["jobs"] == len(await source.jobs.jobs())
    tally = without_hands(await source.jobs.counts(job))
    for state in ("queued", "waiting", "done", "unchanged", "dropped", "dead"):  # what a person compares after a move
        told_of = sum(counts.get(f"{job} {name}", 0) for name in (state, f"{state} without a row"))
        assert told_of == getattr(tally, state) > 0
    assert await target.keys.keys() == await source.keys.keys()
    assert await target.sessions.sessions() == await source.sessions.sessions() != []
    assert await target.alerts.standings() == [FIRING]
    assert await target.alerts.notices(9) == [OPEN, TOLD]
    assert await target.alerts.silences() == [SILENCE]
    assert [(key.used_at, key.revoked_at) for key in await target.keys.keys()] == [(None, None), (NOW + 5, NOW + 6)]
    for known in await source.jobs.jobs():
        assert await stories(target, known.id) == await stories(source, known.id)
    there = await stories(target, job)
    assert {story.state for story in there.values()} == set(UrlState) - {UrlState.LEASED}
    assert there[f"{SHOP}/gone"].message == "The server said: no.\nSecond line ☂"
    assert there[f"{SHOP}/later"].ready_at == source.clock.now() + 85
    assert there[f"{OTHER}/from-shop"].found_on == there[f"{SHOP}/p/3"].found_on == f"{SHOP}/"
    assert [what for _, what in there[f"{SHOP}/killer"].incidents] == ["dead-worker died; delivery 1 of 3"]


@pytest.mark.parametrize("labs", WAYS, indirect=True, ids="-to-".join)
async def test_jobs_are_the_same_and_their_counts_add_up(labs: tuple[Lab, Lab]) -> None:
    source, target = labs
    job = await lived_in(source)
    await copy(source.stream, target.stream)

    assert await target.jobs.jobs() == await source.jobs.jobs()
    for known in await source.jobs.jobs():
        counts = await target.jobs.counts(known.id)
        assert counts == without_hands(await source.jobs.counts(known.id))
        assert counts.discovered == counts.open + counts.settled + counts.dropped + counts.duplicates
        assert await target.jobs.is_sealed(known.id) == await source.jobs.is_sealed(known.id)
    # The unfinished one goes on, and a new one gets a number of its own.
    assert (await target.job("books")).id == job
    assert (await target.job("new")).id == "new-4"


@pytest.mark.parametrize("labs", WAYS, indirect=True, ids="-to-".join)
async def test_work_goes_on_in_the_same_order(labs: tuple[Lab, Lab]) -> None:
    source, target = labs
    job = await lived_in(source)
    await copy(source.stream, target.stream)

    async def rest_of(lab: Lab) -> list[str]:
        """Everything that can be handed out now, settled one by one."""
        done = []
        while leases := (await lab.frontier.lease(job, "w", 1)).leases:
            done.append(leases[0].task.url)
            await lab.frontier.complete(leases[0], UrlState.DONE)
        return done

    source.gone.add("living")
    source.clock.advance(3)
    target.clock.advance(8)
    # Tasks that were in progress come first; the rest is in the order of priority and age, the same on both sides.
    there, here = await rest_of(target), await rest_of(source)
    held = [f"{SHOP}/killer", f"{SHOP}/held"]
    assert sorted(there) == sorted(here)
    assert sorted(there[:2]) == sorted(held)
    assert [url for url in there if url.startswith(f"{SHOP}/p/")] == [
        url for url in here if url.startswith(f"{SHOP}/p/")
    ]


@pytest.mark.parametrize("labs", WAYS, indirect=True, ids="-to-".join)
async def test_every_task_is_in_its_lane_on_the_other_side_with_all_its_wishes(labs: tuple[Lab, Lab]) -> None:
    source, target = labs
    job = (await source.job("shown", max_urls_per_site=12)).id
    options = {"fetcher": "browser", "proxy_pool": "homes", "country": "de", "how": '{"session":"mine"}'}
    await source.frontier.add(job, [candidate(f"{SHOP}/shown/{n}", priority=n % 2, **options) for n in range(5)])
    await source.frontier.add(job, [candidate(f"{SHOP}/plain/{n}", how='{"session":"x"}') for n in range(4)])
    first, second = (await source.frontier.lease(job, "w", 2, frozenset({""}))).leases
    await source.frontier.release(first, timedelta(0), "it needs rendering", lane="browser")
    await source.frontier.bury(second, "http-404", "gone")

    await copy(source.stream, target.stream)

    assert await stories(target, job) == await stories(source, job)
    for lab in labs:
        lab.clock.advance(1)
        await lab.queue.replay(DeadFilter())
        shown = (await lab.frontier.lease(job, "shows", 20, frozenset({"browser"}))).leases
        plain = (await lab.frontier.lease(job, "asks", 20, frozenset({""}))).leases
        assert [lease.task.url for lease in shown] == [
            *(f"{SHOP}/shown/{n}" for n in (1, 3, 0, 2, 4)),
            f"{SHOP}/plain/0",
        ]
        tasks = [lease.task for lease in shown[:5]]
        assert all((t.fetcher, t.proxy_pool, t.country, t.how) == tuple(options.values()) for t in tasks)
        assert {lease.task.url for lease in plain} == {f"{SHOP}/plain/{n}" for n in (1, 2, 3)}
        assert {lease.task.how for lease in plain} == {'{"session":"x"}'}
    # Nine URLs of the site were taken of twelve, whatever their lanes.
    more = await target.frontier.add(job, [candidate(f"{SHOP}/more/{n}", fetcher="browser") for n in range(5)])
    assert (more.queued, more.dropped) == (3, 2)


@pytest.mark.parametrize("labs", WAYS, indirect=True, ids="-to-".join)
async def test_schedules_and_jobs_stand_on_the_other_side_where_they_stood(labs: tuple[Lab, Lab]) -> None:
    # given a schedule that has fired, one that never did, a paused job and a cancelled one
    source, target = labs
    for name in ("nightly ☂", "never"):
        await source.schedules.put(Schedule(name=name, spider="shop", trigger="every 1h"), origin="added")
    term = await source.ticks.lead("host/1/x", timedelta(seconds=5))
    before = {one.schedule.name: one for one in await source.schedules.schedules()}["nightly ☂"]
    fired = msgspec.structs.replace(before, last_due=NOW + 0.123456, runs=1)
    terms = JobTerms(schedule=before.schedule.name, due=fired.last_due, windows="22:00-06:00")
    assert term is not None
    settled = await source.ticks.settle(term, before, fired, (before.schedule.name, terms))
    assert settled is not None
    assert settled.job is not None
    await source.frontier.add(settled.job.id, [candidate(f"{SHOP}/{n}") for n in range(3)])
    await source.control.pause_job(settled.job.id, True)
    gone = await source.job("gone")
    await source.frontier.add(gone.id, [candidate(f"{SHOP}/gone")])
    await source.control.cancel_job(gone.id)
    assert await source.stream.holders() == ["host/1/x"]

    await copy(source.stream, target.stream)

    # then both are the same, nobody leads there, and it goes on from there
    assert await target.schedules.schedules() == await source.schedules.schedules()
    assert await target.jobs.jobs() == await source.jobs.jobs()
    assert await target.stream.counts() == await source.stream.counts()
    assert await target.stream.holders() == []
    assert (await target.frontier.lease(settled.job.id, "w", 9)).leases == ()
    await target.control.pause_job(settled.job.id, False)
    assert len((await target.frontier.lease(settled.job.id, "w", 9)).leases) == 3
    assert (await target.frontier.add(gone.id, [candidate(f"{SHOP}/late")])).dropped == 1
    leading = await target.ticks.lead("host/2/x", timedelta(seconds=5))
    assert leading is not None
    after = msgspec.structs.replace(settled.progress, skipped=1)
    assert await target.ticks.settle(leading, before, after) is None
    moved_on = await target.ticks.settle(leading, settled.progress, after)
    assert moved_on is not None
    assert moved_on.progress.version > max(one.version for one in await source.schedules.schedules())


async def nothing_is_cleared() -> bool:
    """In place of a portion, for a process that dies before the first."""
    return False


@pytest.mark.parametrize("labs", WAYS, indirect=True, ids="-to-".join)
async def test_what_was_given_up_and_not_dropped_yet_is_dropped_on_both_sides(labs: tuple[Lab, Lab]) -> None:
    # given a run that the next one has replaced; the scheduler died before it had dropped all of it
    source, target = labs
    await source.schedules.put(Schedule(name="nightly", spider="shop", trigger="every 1h"), origin="added")
    (before,) = await source.schedules.schedules()
    async with source.again() as dying:
        dying.jobs.cleanup.portion = nothing_is_cleared
        term = await dying.ticks.lead("host/1/x", timedelta(seconds=5))
        assert term is not None
        first = await dying.ticks.settle(term, before, before, ("nightly", JobTerms()))
        assert first is not None
        assert first.job is not None
        await dying.frontier.add(first.job.id, [candidate(f"{SHOP}/{n}") for n in range(300)])
        await dying.ticks.settle(term, first.progress, first.progress, ("nightly", JobTerms()), replaces=first.job.id)

    await copy(source.stream, target.stream)

    for lab in labs:
        counts = await lab.jobs.counts(first.job.id)
        assert (counts.open, counts.dropped) == (0, 300)
    assert await target.stream.counts() == await source.stream.counts()


@pytest.mark.parametrize("labs", WAYS, indirect=True, ids="-to-".join)
async def test_a_site_that_asked_for_rest_gets_it_on_the_other_side(labs: tuple[Lab, Lab]) -> None:
    source, target = labs
    job = await lived_in(source)
    await copy(source.stream, target.stream)
    target.clock.advance(source.clock.now() - target.clock.now())

    async def slow() -> list[str]:
        leases = (await target.frontier.lease(job, "w", 100)).leases
        return [lease.task.url for lease in leases if lease.task.site == "slow.example"]

    assert await slow() == []
    target.clock.advance(59)
    assert await slow() == []
    target.clock.advance(2)
    assert await slow() == [f"{SLOW}/1"]
    target.clock.advance(6)  # its own crawl-delay is 7 seconds
    assert await slow() == []
    story = (await target.queue.story("slow.example", candidate(f"{SLOW}/1").fingerprint))[0]
    assert story.site_next_at is not None
    assert story.site_next_at - target.clock.now() == pytest.approx(1, abs=0.01)
    facts = [await lab.queue.site("slow.example") for lab in labs]
    assert facts[0] is not None
    assert facts[1] is not None
    assert facts[0].learned == facts[1].learned
    assert facts[0].learned.interval is not None


@pytest.mark.parametrize("labs", WAYS, indirect=True, ids="-to-".join)
async def test_budgets_and_the_memory_of_what_is_known_go_along(labs: tuple[Lab, Lab]) -> None:
    source, target = labs
    job = await lived_in(source)
    await copy(source.stream, target.stream)

    known = await target.frontier.add(job, [candidate(f"{SHOP}/p/{n}") for n in range(12)])
    assert (known.queued, known.duplicates) == (0, 12)
    # 12 of one shape were taken of 30; then the pattern is full, though the site (40) has room for two more.
    more = await target.frontier.add(job, [candidate(f"{SHOP}/p/{n}") for n in range(100, 120)])
    assert (more.queued, more.dropped) == (18, 2)
    others = await target.frontier.add(job, [candidate(f"{SHOP}/q{n}/x") for n in range(10)])
    assert (others.queued, others.dropped) == (3, 7)


@pytest.mark.parametrize("labs", WAYS, indirect=True, ids="-to-".join)
async def test_dead_letters_can_be_replayed_and_robots_are_remembered(labs: tuple[Lab, Lab]) -> None:
    source, target = labs
    job = await lived_in(source)
    await copy(source.stream, target.stream)

    (letter,) = await target.queue.dead(DeadFilter(reason="client-error"))
    assert (letter.url, letter.attempts, letter.job) == (f"{SHOP}/gone", 1, job)
    assert await target.queue.replay(DeadFilter(id=letter.id)) == 1
    assert (await target.jobs.counts(job)).dead == 0
    assert await target.robots.get(SHOP) == await source.robots.get(SHOP)


@pytest.mark.parametrize("name", STATES)
async def test_what_was_cleared_is_empty_but_for_its_mark(name: str, backends: Backends, tmp_path: Path) -> None:
    async with backends.open(name, tmp_path) as lab:
        await lived_in(lab)
        mark = MoveMark(status=MoveStatus.ARRIVING, place="elsewhere", at=NOW, counts={"jobs": 3})
        await lab.stream.set_mark(mark)
        await lab.spools.note(
            SpoolNote(name="x", host="h", folder="/", worker="w", results={"first-1": 1}, bytes=1, noted_at=NOW)
        )

        await lab.stream.clear()

        assert await lab.stream.counts() == {}
        assert await lab.jobs.jobs() == []
        assert await lab.spools.notes() == []
        assert await lab.robots.get(SHOP) is None
        assert await lab.stream.mark() == mark
        await lab.stream.set_mark(None)
        assert await lab.stream.mark() is None
        assert (await lab.job("first")).id == "first-1"


@pytest.mark.parametrize("name", STATES)
async def test_only_workers_whose_leases_have_not_ended_hold_something(
    name: str, backends: Backends, tmp_path: Path
) -> None:
    async with backends.open(name, tmp_path) as lab:
        await lived_in(lab)
        assert await lab.stream.holders() == ["living"]
        lab.clock.advance(31)
        assert await lab.stream.holders() == []


@pytest.mark.parametrize("labs", [("valkey", "sqlite"), ("shards", "valkey")], indirect=True, ids="-to-".join)
async def test_a_job_that_only_a_filter_remembers_moves_when_it_has_ended(labs: tuple[Lab, Lab]) -> None:
    source, target = labs
    job = (await source.job("big", dedup="bloom", dedup_expected=1000)).id
    await source.frontier.add(job, [candidate(f"{SHOP}/{n}") for n in range(3)])
    for lease in (await source.frontier.lease(job, "w", 3)).leases:
        await source.frontier.complete(lease, UrlState.DONE)

    with pytest.raises(Misconfigured, match="deduplicates by a filter"):
        await copy(source.stream, target.stream)

    await source.jobs.seal_seeds(job, "digest")
    await source.jobs.close_job(job, "done", JobOutcome(Outcome.WARNINGS, (Reason("min-pages", "3 pages"),)))
    await copy(source.stream, target.stream)
    moved = await target.jobs.job(job)
    assert moved == await source.jobs.job(job)
    assert (moved.state, (await target.jobs.counts(job)).done) == (JobState.FINISHED, 3)
    assert await target.stream.counts() == await source.stream.counts()


# -- records ----------------------------------------------------------------------------------------------------

CLOCK = VirtualClock(NOW + 10_000)


async def written(store: Records) -> None:
    """Records with a past, a page that is unchanged, one that failed, and texts that are hard to store."""
    first = page_of(at=NOW, etag='"1"', archive_ref="2027-01-15/w-1.zst#0+10", links=b'[{"url":"x"}]', parser="v1")
    await store.save([result(book(price=1), page=first)])
    await store.save([result(book(price=2, at=NOW + 10, job="books-2"), page=page_of(at=NOW + 10, status=201))])
    await store.save([result(book(price=3, at=NOW + 20, job="books-2"))])
    await store.save([result(attempt=tried(at=NOW + 30, job="books-3", outcome="unchanged", status=304))])
    await store.save(
        [result(attempt=tried("https://shop.example/down", outcome="dead", reason="timeout", error="\0☂"))]
    )
    await store.save([result(book(f"b{n}", title=f"Title \0 {n} ☂", at=NOW + n)) for n in range(2, 450)])
    odd = msgspec.structs.replace(book("nan"), data='{"price": NaN}', job="")
    await store.save([result(odd)])
    await lived_through(store)


async def lived_through(store: Records) -> None:
    """What is gone and what came back, a reparse, pages that failed, shapes of items and what the checks counted."""
    listing, lost = "https://shop.example/list", "https://shop.example/lost"
    shape = ItemSchema(id="5f", type="Book", definition='{"fields":{}}')
    shaped = [msgspec.structs.replace(book(key), schema="5f") for key in ("gone", "back", "kept", "unseen")]
    tally = Tally(spider="books", day="2027-01-15", type="Book", field="tit\0le", checked=4, filled=3, faulty=1)
    first = visit(listing, *shaped[:3], at=NOW, job="whole-1")
    items = ItemCounts(yielded=5, dropped=2, reasons={"no_stock": 2})
    await store.save([msgspec.structs.replace(first, quality=(tally,), schemas=(shape,), items=items)])
    await store.save([visit(lost, shaped[3], at=NOW, job="whole-1"), visit(lost + "/2", at=NOW, failure="parse")])
    kept = msgspec.structs.replace(book("kept"), spider="other")
    await store.save(
        [msgspec.structs.replace(visit(listing, kept, at=NOW + 10, job="whole-2"), items=ItemCounts(yielded=1))]
    )
    await store.retire(Retirement(job="whole-2", spider="books", at=NOW + 20, earlier=["whole-1"]))
    await store.save([visit(listing, book("back"), book("kept", price=1), at=NOW + 30, job="whole-3")])
    await store.save([reparse(listing, book("kept", price=2), visit=NOW + 30, at=NOW + 40)])


@pytest.fixture
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Records, Records]]:
    async with AsyncExitStack() as stack:
        source, target = [
            await stack.enter_async_context(RECORD_STORES[name](tmp_path / str(place), CLOCK, None))
            for place, name in enumerate(request.param)
        ]
        yield source, target


RECORD_WAYS = [("sqlite", "postgres"), ("postgres", "sqlite")]


@pytest.mark.parametrize("stores", RECORD_WAYS, indirect=True, ids="-to-".join)
async def test_records_have_their_whole_history_on_the_other_side(stores: tuple[Records, Records]) -> None:
    source, target = stores
    await written(source)

    await copy(source.stream, target.stream)

    assert await target.stream.counts() == await source.stream.counts()
    assert (await target.stream.counts())["earlier versions"] == 2 + 3 + 1 + 2  # b1, retired, back, kept
    gone, back = RecordQuery(gone=True), RecordQuery(key="back")
    jobs = [RecordQuery(job=job) for job in ("books-2", "books-3", "", "whole-3", "reparse-1")]
    for query in (RecordQuery(), gone, back, *jobs):
        moved = await all_of(target, query)
        assert moved == await all_of(source, query)
        assert moved
    for key, versions in (("b1", 3), ("gone", 2), ("back", 3), ("kept", 3), ("unseen", 2)):
        history = await target.history("Book", "shop.example", key)
        assert [version.version for version in history] == list(range(1, versions + 1))
        assert history == await source.history("Book", "shop.example", key)
    for before, after in (("whole-1", "whole-2"), ("whole-2", "reparse-1"), ("books-1", "books-2")):
        there_differ = [one async for one in target.differences(before, after)]
        assert there_differ == [one async for one in source.differences(before, after)] != []
    assert await target.schemas() == await source.schemas() != []
    assert await target.scores() == await source.scores() != []
    for job in ("whole-1", "whole-2"):
        counts = await target.items(job)
        assert counts == await source.items(job)
        assert counts.yielded == sum(counts.states().values()) > 0
    assert [one.key for one in await all_of(target, RecordQuery(spider="other"))] == ["kept"]
    copies = [{one async for one in store.archived(VisitQuery())} for store in (target, source)]
    assert copies[0] == copies[1]
    assert {one.failure for one in copies[0]} == {"", "parse"}
    for url in ("https://shop.example/b1", "https://shop.example/down", "https://shop.example/b400"):
        key = tried(url).fingerprint
        assert await target.facts([key]) == await source.facts([key])
        assert await target.attempts(key) == await source.attempts(key) != []
        assert await target.visits(key) == await source.visits(key)


@pytest.mark.parametrize("stores", RECORD_WAYS, indirect=True, ids="-to-".join)
async def test_records_go_on_changing_where_they_are_now(stores: tuple[Records, Records]) -> None:
    source, target = stores
    await written(source)
    await copy(source.stream, target.stream)

    # A 304 confirms what its page gave, though it gave it elsewhere.
    await target.save([result(attempt=tried(at=NOW + 35, job="books-8", outcome="unchanged", status=304))])
    (seen,) = [record async for record in target.records(RecordQuery(job="books-8"))]
    assert (seen.key, seen.version, seen.last_checked) == ("b1", 3, NOW + 35)
    # The same again is no change, an older one is late, a newer one is version 4.
    assert await target.save([result(book(price=3, at=NOW + 20, job="books-2"))]) == [0]
    assert await target.save([result(book(price=9, at=NOW + 5))]) == [0]
    assert await target.save([result(book(price=4, at=NOW + 40))]) == [1]
    await target.save([result(attempt=tried(at=NOW + 50, job="books-9", outcome="unchanged", status=304))])
    (seen,) = [record async for record in target.records(RecordQuery(job="books-9"))]
    assert (seen.version, seen.first_seen, seen.last_checked) == (4, NOW, NOW + 50)
    # What a full crawl did not reach comes back with its page, what its page had lost does not.
    for url in ("https://shop.example/list", "https://shop.example/lost"):
        await target.save([result(attempt=tried(url, at=NOW + 60, job="whole-4", outcome="unchanged", status=304))])
    still_gone = [record.key async for record in target.records(RecordQuery(gone=True))]
    assert still_gone == ["gone"]
    # Marks of the other store are of no use here; its own are.
    with pytest.raises(Misconfigured, match="another record store"):
        await target.count(RecordQuery(after=await source.cursor()))
    mark = await target.cursor()
    assert await target.count(RecordQuery(upto=mark)) == await target.count(RecordQuery())
    assert await target.count(RecordQuery(after=mark)) == 0
    # What was counted counts on.
    await target.save([result(attempt=tried(at=NOW + 70), quality=tuple(await source.scores()))])
    assert [(one.checked, one.filled, one.faulty) for one in await target.scores()] == [(8, 6, 2)]


@pytest.mark.parametrize("name", sorted(RECORD_STORES))
async def test_a_cleared_record_store_is_empty_but_for_its_mark(name: str, tmp_path: Path) -> None:
    async with RECORD_STORES[name](tmp_path, CLOCK, None) as store:
        stream = store.stream
        assert await stream.mark() is None
        await written(store)
        mark = MoveMark(status=MoveStatus.MOVED, place="elsewhere", at=NOW)
        await stream.set_mark(mark)

        await stream.clear()

        assert await stream.counts() == {}
        assert await stream.mark() == mark
        await stream.set_mark(None)
        assert await stream.mark() is None
        shape = ItemSchema(id="5f", type="Book", definition='{"fields":{}}')
        assert await store.save([result(book(), schemas=(shape,))]) == [1]
        assert [found for found, _ in await store.schemas()] == [shape]


# -- raw pages --------------------------------------------------------------------------------------------------


def snapshots(count: int) -> list[Snapshot]:
    return [
        Snapshot(
            url=f"{SHOP}/{n}", requested_url=f"{SHOP}/{n}", status=200, headers=Headers([("a", "b")]),
            body=bytes([n % 251]) * 1000, fetched_at=NOW + n,
        )
        for n in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("way", ["folder-to-s3", "s3-to-folder"])
async def test_pages_are_found_under_their_old_references(way: str, tmp_path: Path, s3: Seaweed) -> None:
    async with (
        FolderArchive(tmp_path / "archive", level=1, writer="w", clock=CLOCK) as folder,
        open_object_archive(s3.address(f"moving/{way}/{tmp_path.name}"), level=1, writer="w", clock=CLOCK) as bucket,
    ):
        source, target = (folder, bucket) if way == "folder-to-s3" else (bucket, folder)
        pages = snapshots(30)
        references = [*await source.put(pages[:10]), *await source.put(pages[10:])]

        async for segment in source.segments():
            await target.write_segment(segment.name, await source.read_segment(segment.name))

        assert [await target.get(reference) for reference in references] == pages
        assert [one async for one in target.segments()] == [one async for one in source.segments()]

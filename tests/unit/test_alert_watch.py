"""Every alert, driven by a real situation from pending over firing to resolved, and told exactly twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from gossamer.access.contract import Callback, CallbackState
from gossamer.errors import BackendUnavailable
from gossamer.fetch.sessions import begin_login, end_login, fail_login, let_in
from gossamer.frontier.contract import DeadFilter, WorkerCard
from gossamer.model.alert import AlertState
from gossamer.model.alert_table import USUAL
from gossamer.model.incident import Closing, Subject, SubjectKind
from gossamer.model.job import JobTerms
from gossamer.model.outcome import JobOutcome, Outcome, Reason
from gossamer.model.record import Tally, day_of
from gossamer.model.route import ProxyOutcome
from gossamer.model.schedule import Schedule
from gossamer.model.task import UrlState
from gossamer.project.alerts.readings import fault_of
from gossamer.project.open import UnavailableRecords
from gossamer.project.workers.workers import list_workers
from gossamer.routing.contract import Bound
from gossamer.routing.proxies.contract import ProxyReport, RestTerms
from gossamer.store.contract import SpoolNote
from gossamer.store.outputs.book import OutputBook
from tests.conformance.stores import book as book_record
from tests.conformance.stores import result, tried
from tests.server.receiver import Receiver
from tests.server.receiver import receiver as receiver

from .watched import MINUTE, Watched, watched

HOUR, DAY = 3600.0, 86400.0
Act = Callable[[Watched], Awaitable[None]]


@pytest.fixture
async def bench(tmp_path: Path, receiver: Receiver) -> AsyncIterator[Watched]:
    async with watched(tmp_path, receiver, TOML) as bench:
        yield bench


TOML = """
[router]
budget_day = 100

[proxies.homes]
urls = ["http://one.example:8000", "http://two.example:8000"]
"""


async def fires_and_is_resolved(
    bench: Watched, alert: str, subject: str, amiss: Act, mended: Act, *, keeps: Act | None = None
) -> None:
    """`amiss` makes it so, `keeps` (called every minute) keeps it so, `mended` ends it."""
    await bench.pass_time(MINUTE)
    assert await bench.state(alert, subject) is AlertState.INACTIVE
    await amiss(bench)
    seen: list[AlertState] = []

    async def reached(state: AlertState, minutes: int) -> None:
        for _ in range(minutes):
            if keeps is not None and state is AlertState.FIRING:
                await keeps(bench)
            for _ in range(2):
                await bench.turn(30)
                seen.append(await bench.state(alert, subject))
            if seen[-1] is state:
                return
        raise AssertionError(f"{alert} of {subject!r} never was {state}: {set(seen)}")

    await reached(AlertState.FIRING, 90)
    if USUAL[alert].wait:
        assert AlertState.PENDING in seen
    assert bench.told(alert) == [("firing", [subject])]
    await bench.pass_time(2 * MINUTE)
    await mended(bench)
    await reached(AlertState.RESOLVED, 120)
    await bench.pass_time(3 * MINUTE)
    assert bench.told(alert) == [("firing", [subject]), ("resolved", [subject])]
    assert [one.state for one in await bench.project.state.alerts.history(10, alert)] == ["resolved", "firing"]


async def nothing(bench: Watched) -> None:
    """Time alone does it."""


# -- the queue -----------------------------------------------------------------------------------------------------


async def test_backlog(bench: Watched):
    pages = 2000

    async def grow(bench: Watched) -> None:
        nonlocal pages
        job = (await bench.project.state.jobs.running_jobs())[0].id
        await bench.more(job, pages, 60)
        pages += 60
        (lease,) = (await bench.project.state.frontier.lease(job, "w", 1)).leases
        await bench.project.state.frontier.complete(lease, UrlState.DONE)

    async def begin(bench: Watched) -> None:
        await bench.job(pages)

    async def end(bench: Watched) -> None:
        (job,) = await bench.project.state.jobs.running_jobs()
        await bench.project.state.control.cancel_job(job.id)

    await fires_and_is_resolved(bench, "backlog", "", begin, end, keeps=grow)
    (fired,) = [one for one in await bench.project.state.alerts.history(9, "backlog") if one.state == "firing"]
    assert "59 more every minute than are fetched" in fired.words
    assert "at 1 a minute" in fired.words  # with the time until it is empty


async def test_stalled(bench: Watched):
    async def begin(bench: Watched) -> None:
        await bench.job(5)

    async def one_page(bench: Watched) -> None:
        (lease,) = (await bench.project.state.frontier.lease("books-1", "w", 1)).leases
        await bench.project.state.frontier.complete(lease, UrlState.DONE)

    await fires_and_is_resolved(bench, "stalled", "books-1", begin, one_page)
    (fired,) = [one for one in await bench.project.state.alerts.history(9, "stalled") if one.state == "firing"]
    assert "No worker is alive" in fired.words


async def test_a_stalled_job_is_not_well_because_its_pages_wait_for_a_while(bench: Watched):
    job, frontier = await bench.job(5), bench.project.state.frontier
    await bench.pass_time(15 * MINUTE)
    assert await bench.state("stalled", job) is AlertState.FIRING
    for lease in (await frontier.lease(job, "w", 5)).leases:
        await frontier.release(lease, timedelta(hours=2), "proxies-rest")
    await bench.pass_time(60 * MINUTE)
    assert await bench.state("stalled", job) is AlertState.NO_DATA
    assert bench.told("stalled") == [("firing", [job])]


@pytest.mark.parametrize("why", ["paused", "window", "resting", "put to rest"])
async def test_a_job_that_must_wait_is_not_stalled(tmp_path: Path, why: str):
    words = {"window": 'windows = "00:00-00:01"', "put to rest": "rest = true"}.get(why, "")
    toml = f'[domains."shop.example"]\n{words}\n'
    async with watched(tmp_path, None, toml) as bench:
        job = await bench.job(5)
        if why == "paused":
            await bench.project.state.control.pause_job(job, True)
        if why == "resting":
            await bench.project.state.frontier.slow_down("shop.example", interval=None, rest=timedelta(hours=9))
        await bench.pass_time(30 * MINUTE)
        assert await bench.state("stalled", job) is AlertState.INACTIVE


def card(bench: Watched, name: str = "far/1/x", **fields: object) -> WorkerCard:
    now = bench.clock.now()
    usual = {"host": "far", "pid": 1, "version": "0", "started_at": now, "seen_at": now}
    return WorkerCard(name=name, **{**usual, **fields})


# -- pages ---------------------------------------------------------------------------------------------------------


class Traffic:
    """Pages that come and pages that fail, stored as a worker stores them: twenty a minute."""

    def __init__(self, bench: Watched, site: str = "shop.example") -> None:
        self._bench, self._site, self._count = bench, site, 0

    async def minute(self, failed: int, outcome: str = "retry") -> None:
        results = []
        for number in range(20):
            self._count += 1
            url = f"https://{self._site}/{self._count}"
            bad = number < failed
            attempt = tried(
                url, at=self._bench.clock.now(), site=self._site, outcome=outcome if bad else "done",
                reason="http-503" if bad else "",
            )  # fmt: skip
            results.append(result(attempt=attempt))
        await self._bench.project.records.save(results)

    async def minutes(self, count: int, failed: int, outcome: str = "retry") -> None:
        for _ in range(count):
            await self.minute(failed, outcome)
            await self._bench.pass_time(MINUTE)


async def test_success_of_one_site_is_not_told_of_all_sites_too(bench: Watched):
    shop, other = Traffic(bench), Traffic(bench, "other.example")

    async def both(minutes: int, failed: int) -> None:
        for _ in range(minutes):
            await other.minute(0)
            await shop.minutes(1, failed)

    await both(10, 1)
    assert await bench.state("success", "shop.example") is AlertState.INACTIVE
    await both(25, 10)  # half of the shop, a quarter of all
    assert await bench.state("success", "shop.example") is AlertState.FIRING
    for subject in ("", "other.example"):
        assert await bench.state("success", subject) is AlertState.INACTIVE
    await both(30, 0)
    assert bench.told("success") == [("firing", ["shop.example"]), ("resolved", ["shop.example"])]


async def test_many_sites_that_fail_a_little_are_told_as_one(bench: Watched):
    sites = [Traffic(bench, f"s{number}.example") for number in range(8)]
    for _ in range(3):
        for one in sites:
            await one.minute(0)
        await bench.pass_time(MINUTE)
    await bench.pass_time(20 * MINUTE)
    for _ in range(2):
        for one in sites:
            await one.minute(10)
        await bench.pass_time(3 * MINUTE)
    await bench.pass_time(6 * MINUTE)
    assert bench.told("success") == [("firing", [""])]


async def test_a_site_whose_job_has_ended_holds_until_it_is_good_again(bench: Watched):
    shop = Traffic(bench)
    await shop.minutes(12, 19)
    await shop.minutes(1, 0)  # the last pages came
    await bench.pass_time(3 * 60 * MINUTE)  # and there is nothing left to do
    found = await bench.standing("success", "shop.example")
    assert found is not None
    assert found.state is AlertState.NO_DATA
    assert bench.told("success") == [("firing", ["shop.example"])]
    await shop.minutes(8, 1)  # a small run that goes well
    assert await bench.state("success", "shop.example") is AlertState.RESOLVED


async def test_errors_that_are_many_for_this_site(bench: Watched):
    usual, worse = Traffic(bench, "rough.example"), Traffic(bench)
    for _ in range(60):  # an hour in which one site fails often, as it always does, and the other hardly ever
        await usual.minute(4)
        await worse.minutes(1, 0)
    for _ in range(25):
        await usual.minute(4)
        await worse.minutes(1, 4)
    assert await bench.state("errors", "rough.example") is AlertState.INACTIVE
    assert await bench.state("errors", "shop.example") is AlertState.FIRING
    for _ in range(30):
        await usual.minute(4)
        await worse.minutes(1, 0)
    assert bench.told("errors") == [("firing", ["shop.example"]), ("resolved", ["shop.example"])]


async def bury(bench: Watched, job: str, count: int, reason: str = "http-503") -> None:
    for lease in (await bench.project.state.frontier.lease(job, "w", count)).leases:
        await bench.project.state.frontier.bury(lease, reason, f"{lease.task.url} answered 503")


async def test_dead_letters_fire_hold_and_are_over_when_they_are_mended(bench: Watched):
    job = await bench.job(300)
    await bury(bench, job, 60)
    await bench.turn(31)
    assert await bench.state("dead-letters", "shop.example") is AlertState.INACTIVE
    await bury(bench, job, 60)
    await bench.turn(31)
    found = await bench.standing("dead-letters", "shop.example")
    assert found is not None
    assert found.state is AlertState.FIRING
    assert "120 of 120 dead letters say" in found.words
    await bench.pass_time(3 * 60 * MINUTE)
    assert await bench.state("dead-letters", "shop.example") is AlertState.NO_DATA  # they are old, and still there
    await bench.project.state.queue.replay(DeadFilter(site="shop.example"))
    await bench.pass_time(7 * MINUTE)
    assert bench.told("dead-letters") == [("firing", ["shop.example"]), ("resolved", ["shop.example"])]


async def test_pages_that_do_not_exist_are_no_flood(bench: Watched):
    job = await bench.job(400)
    await bury(bench, job, 300, "http-404")
    await bench.pass_time(5 * MINUTE)
    assert await bench.state("dead-letters", "shop.example") is AlertState.INACTIVE
    await bury(bench, job, 50)
    await bench.pass_time(5 * MINUTE)
    assert await bench.state("dead-letters", "shop.example") is AlertState.INACTIVE


async def test_alerts_about_one_site_are_one_incident(bench: Watched):
    job = await bench.job(400)
    await bury(bench, job, 150)
    await Traffic(bench).minutes(12, 19)
    found = {one.about: one for one in await bench.project.state.alerts.open_incidents()}
    assert list(found) == [Subject(SubjectKind.WORKERS), Subject(SubjectKind.SITE, "shop.example")]  # and none works
    alerts = found[Subject(SubjectKind.SITE, "shop.example")].alerts
    assert sorted(one.alert for one in alerts) == ["dead-letters", "success"]


async def test_pages_that_came_and_could_not_be_parsed_are_about_their_spider(bench: Watched):
    job = await bench.job(400)
    await bury(bench, job, 150, "parse")
    await bench.turn(31)
    (one,) = await bench.project.state.alerts.open_incidents()
    assert one.about == Subject(SubjectKind.SPIDER, "books")
    assert [alert.key for alert in one.alerts] == [("dead-letters", "shop.example")]


async def test_requests_that_failed_because_their_pages_were_not_parsed_are_about_their_spider(bench: Watched):
    job = await bench.job(600)
    await bury(bench, job, 150, "parse")
    await Traffic(bench).minutes(12, 19)
    found = {
        one.about: sorted(alert.alert for alert in one.alerts)
        for one in await bench.project.state.alerts.open_incidents()
    }
    assert found[Subject(SubjectKind.SPIDER, "books")] == ["dead-letters", "success"]
    assert Subject(SubjectKind.SITE, "shop.example") not in found


async def test_a_site_that_refuses_after_its_layout_had_changed_is_about_the_site(bench: Watched):
    job = await bench.job(600)
    await bury(bench, job, 150, "parse")
    await bench.turn(1)
    await bury(bench, job, 90, "http-403")
    await Traffic(bench).minutes(12, 19)
    found = {
        alert.alert: one.about for one in await bench.project.state.alerts.open_incidents() for alert in one.alerts
    }
    assert found["success"] == Subject(SubjectKind.SITE, "shop.example")


async def test_a_person_closes_an_incident_and_the_leader_carries_it_out(bench: Watched):
    job = await bench.job(200)
    await bury(bench, job, 120)
    await bench.turn(31)
    (one,) = await bench.project.state.alerts.open_incidents()
    assert one.about == Subject(SubjectKind.SITE, "shop.example")
    closing = Closing(incident=one.id, by="ann", at=bench.clock.now(), reason="they moved")
    await bench.project.state.alerts.close_incident(closing)
    await bench.turn(61)
    assert await bench.state("dead-letters", "shop.example") is AlertState.CLOSED
    assert bench.told("dead-letters") == [("firing", ["shop.example"]), ("closed", ["shop.example"])]
    assert await bench.project.state.alerts.closings() == []
    (ended,) = await bench.project.state.alerts.ended_incidents(9)
    assert (ended.id, ended.ended_by, ended.reason) == (one.id, "ann", "they moved")


async def test_figures_that_do_not_come_though_work_is_done(bench: Watched):
    job = await bench.job(100)

    async def one_page(bench: Watched) -> None:
        (lease,) = (await bench.project.state.frontier.lease(job, "w", 1)).leases
        await bench.project.state.frontier.complete(lease, UrlState.DONE)

    traffic = Traffic(bench)
    for _ in range(5):
        await one_page(bench)
        await traffic.minutes(1, 0)
    assert await bench.state("figures") is AlertState.INACTIVE
    for _ in range(15):
        await one_page(bench)
        await bench.pass_time(MINUTE)
    assert await bench.state("figures") is AlertState.FIRING
    for _ in range(10):
        await one_page(bench)
        await traffic.minutes(1, 0)
    assert bench.told("figures") == [("firing", [""]), ("resolved", [""])]


async def test_a_part_that_cannot_be_read_is_told(bench: Watched, monkeypatch: pytest.MonkeyPatch):
    async def broken(*arguments: object) -> None:
        raise KeyError("colour")

    monkeypatch.setattr("gossamer.project.alerts.readings.proxy_pools", broken)
    await bench.pass_time(7 * MINUTE)
    (standing,) = await bench.project.state.alerts.standings()
    assert (standing.key, standing.state) == (("figures", "pools"), AlertState.FIRING)
    assert "colour" in standing.words


async def test_workers(bench: Watched):
    async def die(bench: Watched) -> None:
        await bench.project.state.workers.beat(card(bench))

    async def replace(bench: Watched) -> None:
        await bench.project.state.workers.beat(card(bench, "far/2/x"))
        await bench.project.state.workers.sign_off("far/2/x")
        await bench.project.state.workers.sign_off("far/1/x")

    await fires_and_is_resolved(bench, "workers", "", die, replace)


async def test_a_worker_that_was_replaced_is_not_missed(bench: Watched):
    await bench.project.state.workers.beat(card(bench))
    bench.clock.advance(10)
    fresh = card(bench, "far/2/x")
    for _ in range(30):
        await bench.project.state.workers.beat(msgspec.structs.replace(fresh, seen_at=bench.clock.now()))
        await bench.turn(10)
    assert await bench.state("workers") is AlertState.INACTIVE


async def test_of_workers_that_died_one_after_the_other_in_the_same_place_the_last_is_missed(bench: Watched):
    workers = bench.project.state.workers
    for number in (1, 2, 3):
        await workers.beat(card(bench, f"far/{number}/x"))
        bench.clock.advance(10)
    fourth = card(bench, "far/4/x")
    for _ in range(30):
        await workers.beat(msgspec.structs.replace(fourth, seen_at=bench.clock.now()))
        await bench.turn(10)
    assert await bench.state("workers") is AlertState.INACTIVE

    await bench.pass_time(3 * MINUTE)  # and now the last one
    found = await bench.standing("workers")
    assert found is not None
    assert found.state is AlertState.FIRING
    assert found.words == "1 worker sent no heartbeat: far/4/x."


async def test_a_worker_that_is_gone_for_good_is_missed_no_more_while_others_work(bench: Watched):
    workers = bench.project.state.workers
    await workers.beat(card(bench))
    other = card(bench, "near/2/y", host="near")

    async def states(minutes: int) -> set[AlertState]:
        found = set()
        for _ in range(6 * minutes):
            await workers.beat(msgspec.structs.replace(other, seen_at=bench.clock.now()))
            await bench.turn(10)
            found.add(await bench.state("workers"))
        return found

    assert await states(10) == {AlertState.INACTIVE, AlertState.PENDING, AlertState.FIRING}
    await states(12)
    assert await bench.state("workers") is AlertState.RESOLVED
    await bench.pass_time(3 * MINUTE)  # nobody is left
    assert await bench.state("workers") is AlertState.FIRING


async def test_too_few_workers(tmp_path: Path):
    async with watched(tmp_path, None, "[alerts.workers]\nminimum = 2\n") as bench:
        await bench.pass_time(2 * MINUTE)
        assert await bench.state("workers") is AlertState.FIRING


# -- what a crawl needs --------------------------------------------------------------------------------------------


async def test_proxies(bench: Watched):
    async def ban(bench: Watched) -> None:
        reports = [ProxyReport(proxy=name, outcome=ProxyOutcome.BANNED) for name in proxies]
        await bench.project.state.proxies.report("homes", reports, RestTerms(cooldown=HOUR))

    async def reset(bench: Watched) -> None:
        await bench.project.state.proxies.reset("homes")
        await bench.pass_time(10 * MINUTE)
        assert await bench.state("proxies", "homes") is AlertState.NO_DATA  # nothing has gone through them yet
        reports = [ProxyReport(proxy=name, outcome=ProxyOutcome.OK) for name in proxies]
        await bench.project.state.proxies.report("homes", reports, RestTerms(cooldown=HOUR))

    from gossamer.project.sites.proxies import proxy_pools

    proxies = [one.proxy for one in (await proxy_pools(bench.project))[0].proxies]
    await fires_and_is_resolved(bench, "proxies", "homes", ban, reset)


async def test_quality(bench: Watched):
    async def save(bench: Watched, at: float, faulty: int) -> None:
        day = day_of(at)
        tally = Tally(spider="books", day=day, type="Book", field="*", checked=100, filled=100, faulty=faulty)
        url = f"https://shop.example/{at}"
        await bench.project.records.save([result(attempt=tried(url, at=at), quality=(tally,))])

    async def drop(bench: Watched) -> None:
        await save(bench, bench.clock.now() - DAY, 2)
        await save(bench, bench.clock.now(), 40)

    async def a_good_day(bench: Watched) -> None:
        bench.clock.advance(DAY)
        await bench.pass_time(10 * MINUTE)
        assert await bench.state("quality", "books") is AlertState.NO_DATA
        await save(bench, bench.clock.now(), 3)

    await fires_and_is_resolved(bench, "quality", "books", drop, a_good_day)


async def test_budget(bench: Watched):
    async def spend(bench: Watched) -> None:
        day = f"day/{day_of(bench.clock.now())}"
        assert await bench.project.state.budgets.take(91.0, [Bound(day, 100.0)]) is None

    async def another_day(bench: Watched) -> None:
        bench.clock.advance(DAY)

    day = f"day/{day_of(bench.clock.now())}"
    await fires_and_is_resolved(bench, "budget", day, spend, another_day)


async def test_a_schedule_that_is_late(bench: Watched):
    async def forget_it(bench: Watched) -> None:
        schedule = Schedule(name="nightly", spider="books", trigger="every 5m")
        await bench.project.state.schedules.put(schedule, origin="added")

    async def pause(bench: Watched) -> None:
        await bench.project.state.schedules.pause("nightly", True)

    await fires_and_is_resolved(bench, "schedules", "nightly", forget_it, pause)


async def test_a_schedule_that_cannot_begin(bench: Watched):
    state = bench.project.state

    async def settle(bench: Watched, outcome: JobOutcome | None, trouble: str = "") -> None:
        (before,) = await state.schedules.schedules()
        opening = ("daily", JobTerms(schedule="daily")) if outcome is not None else None
        after = msgspec.structs.replace(before, last_due=bench.clock.now(), runs=1, trouble=trouble)
        settled = await state.ticks.settle(bench.lead.term, before, after, opening)
        if settled is not None and settled.job is not None:
            await state.jobs.seal_seeds(settled.job.id)
            assert await state.jobs.close_job(settled.job.id, "done", outcome)

    async def fail(bench: Watched) -> None:
        await state.schedules.put(Schedule(name="daily", spider="books", trigger="every 30d"), origin="added")
        await settle(bench, None, "no such spider")

    async def go_well(bench: Watched) -> None:
        await settle(bench, JobOutcome(Outcome.DONE))

    await fires_and_is_resolved(bench, "schedules", "daily", fail, go_well)
    (fired,) = [one for one in await state.alerts.history(9, "schedules") if one.state == "firing"]
    assert "no such spider" in fired.words


EMPTY = JobOutcome(Outcome.EMPTY, (Reason("empty", "no record came from 12 pages"),))


async def run_of(bench: Watched, outcome: JobOutcome, **terms: object) -> str:
    """A run that has ended with that outcome."""
    job, _ = await bench.project.state.jobs.open_job("daily", JobTerms(**terms), fresh=False)
    await bench.project.state.jobs.seal_seeds(job.id)
    assert await bench.project.state.jobs.close_job(job.id, "done", outcome)
    return job.id


@pytest.mark.parametrize("terms", [{}, {"schedule": "daily"}, {"owner": "k1"}], ids=["command", "schedule", "key"])
async def test_a_job_that_fails_however_it_was_begun(bench: Watched, terms: dict[str, str]):
    async def fail(bench: Watched) -> None:
        await run_of(bench, EMPTY, **terms)

    async def go_well(bench: Watched) -> None:
        await run_of(bench, JobOutcome(Outcome.WARNINGS), **terms)

    await fires_and_is_resolved(bench, "jobs", "daily", fail, go_well)
    (fired,) = [one for one in await bench.project.state.alerts.history(9, "jobs") if one.state == "firing"]
    assert fired.words == "daily-1 empty: no record came from 12 pages"


async def test_a_job_that_failed_holds_through_the_next_run_and_for_days_until_a_replay_mends_it(bench: Watched):
    state = bench.project.state
    job = await run_of(bench, EMPTY)
    await bench.turn(31)
    assert await bench.state("jobs", "daily") is AlertState.FIRING
    bench.clock.advance(3 * DAY)
    await bench.turn(31)
    assert await bench.state("jobs", "daily") is AlertState.NO_DATA
    later, _ = await state.jobs.open_job("daily", JobTerms(), fresh=False)
    await bench.turn(31)
    assert await bench.state("jobs", "daily") is AlertState.NO_DATA  # a run under way says nothing yet
    await state.control.cancel_job(later.id)
    job = await run_of(bench, EMPTY)
    await bench.turn(31)
    assert await bench.state("jobs", "daily") is AlertState.FIRING
    await state.jobs.settle_again(job, JobOutcome(Outcome.DONE))
    await bench.pass_time(7 * MINUTE)
    assert await bench.state("jobs", "daily") is AlertState.RESOLVED


async def test_callbacks(bench: Watched):
    async def give_up(bench: Watched) -> None:
        failed = Callback(
            id="msg_1", owner="k", url="https://there.test/", job="books-1", made_at=bench.clock.now(), body="{}",
            state=CallbackState.FAILED, ended_at=bench.clock.now(),
        )  # fmt: skip
        await bench.project.state.callbacks.keep(failed)

    async def one_arrives(bench: Watched) -> None:
        await bench.pass_time(2 * 60 * MINUTE)
        assert await bench.state("callbacks", "there.test") is AlertState.NO_DATA
        await bench.project.state.callbacks.keep(
            Callback(
                id="msg_2",
                owner="k",
                url="https://there.test/",
                job="books-2",
                made_at=bench.clock.now(),
                body="{}",
                state=CallbackState.DELIVERED,
                ended_at=bench.clock.now(),
            )
        )

    await fires_and_is_resolved(bench, "callbacks", "there.test", give_up, one_arrives)


async def test_logins(bench: Watched):
    sessions = bench.project.state.sessions

    async def fail(bench: Watched) -> None:
        await sessions.change("books/member", begin_login("w", "h", 60, lambda worker: False))
        await sessions.change("books/member", fail_login(1, "The form is gone."))

    async def log_in(bench: Watched) -> None:
        await sessions.change("books/member", begin_login("w", "h", 60, lambda worker: False))
        await sessions.change("books/member", end_login(2, {}, {}, []))
        await sessions.change("books/member", let_in(1, "aa"))  # a page was let in

    await fires_and_is_resolved(bench, "logins", "books/member", fail, log_in)


async def test_outputs(bench: Watched):
    book = OutputBook(bench.project.state.shelf)
    await book.order("shop", lambda one: one)

    async def stop(bench: Watched) -> None:
        await book.order("shop", lambda one: msgspec.structs.replace(one, misconfigured=True, error="No such column."))

    async def resume(bench: Watched) -> None:
        await book.order("shop", lambda one: msgspec.structs.replace(one, misconfigured=False, error=""))

    await fires_and_is_resolved(bench, "outputs", "shop", stop, resume)


async def test_an_output_that_writes_nothing_fires_and_a_paused_one_does_not(bench: Watched):
    book, now = OutputBook(bench.project.state.shelf), bench.clock.now()
    await book.order("shop", lambda one: msgspec.structs.replace(one, written_at=now))
    await book.order("rests", lambda one: msgspec.structs.replace(one, written_at=now, paused=True))
    await bench.project.records.save([result(book_record("b1"))])
    await bench.pass_time(10 * MINUTE)
    assert await bench.state("outputs", "shop") is AlertState.INACTIVE

    await bench.pass_time(10 * MINUTE)

    assert await bench.state("outputs", "shop") is AlertState.FIRING
    assert await bench.state("outputs", "rests") is not AlertState.FIRING


async def test_records_that_are_away(bench: Watched):
    readings, project = bench.watch._readings, bench.project

    async def go_away(bench: Watched) -> None:
        away = UnavailableRecords(BackendUnavailable("PostgreSQL does not answer."))
        readings._project = msgspec.structs.replace(project, records=away)

    async def come_back(bench: Watched) -> None:
        readings._project = project

    await fires_and_is_resolved(bench, "stores", "records", go_away, come_back)


async def test_an_archive_without_room(bench: Watched):
    async def fill(bench: Watched) -> None:
        ahead = bench.clock.now() + HOUR  # its heart beats on
        await bench.project.state.workers.beat(card(bench, state="archive full", seen_at=ahead))

    async def make_room(bench: Watched) -> None:
        await bench.project.state.workers.sign_off("far/1/x")
        await bench.pass_time(10 * MINUTE)
        assert await bench.state("stores", "archive") is AlertState.NO_DATA  # nobody is there who could tell
        await bench.project.state.workers.beat(card(bench, seen_at=bench.clock.now() + HOUR))

    await fires_and_is_resolved(bench, "stores", "archive", fill, make_room)


async def test_spool(bench: Watched):
    note = SpoolNote(
        name="w1", host="far", folder="/spool/w1", worker="far/1/x", results={"books-1": 7}, bytes=9000, noted_at=0.0
    )

    async def leave(bench: Watched) -> None:
        await bench.project.state.spools.note(note)

    async def store(bench: Watched) -> None:
        await bench.project.state.spools.take_away(["w1"])

    await fires_and_is_resolved(bench, "spool", "far", leave, store)


@pytest.mark.parametrize(
    ("state", "ahead", "words"),
    [
        ("clock wrong", 86400.0, "the clock of far is 24 h ahead of the state's, so its workers take no work"),
        ("working", -20.0, "the clock of far is 20 s behind the state's"),
        ("working", 4.0, ""),
        ("set aside", 0.0, "far gets no response from any site, while other machines do"),
    ],
)
async def test_what_is_wrong_with_a_machine(bench: Watched, state: str, ahead: float, words: str):
    await bench.project.state.workers.beat(card(bench, state=state))
    [worker] = await list_workers(bench.project)
    found = fault_of(msgspec.structs.replace(worker, clock_ahead=ahead))
    assert found.startswith(words) if words else not found


async def test_a_machine_at_fault_is_an_alert(bench: Watched):
    book = bench.project.state.workers
    wrong = card(bench, "far/5/x", state="set aside")
    for _ in range(8):
        await book.beat(msgspec.structs.replace(wrong, seen_at=bench.clock.now()))
        await bench.turn(15)
    found = await bench.standing("workers")
    assert found is not None
    assert found.state is AlertState.FIRING
    assert "1 machine at fault: far gets no response from any site" in found.words

"""How many workers a project needs: by what its sites allow now, and never up and down in a moment."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import sin
from pathlib import Path
from random import Random

import pytest

from gossamer.backends.state import State
from gossamer.errors import Misconfigured
from gossamer.frontier.contract import JobTerms, QueueLoad, WorkerCard
from gossamer.frontier.politeness import SiteTerms
from gossamer.frontier.queue_values import MOST_COUNTED
from gossamer.model.job import Job, JobPoliteness
from gossamer.project.access.keys import OWNER
from gossamer.project.open import open_project
from gossamer.project.sites.sites import rest_site, slow_site
from gossamer.project.workers.scaling import (
    ASSUMED,
    Look,
    Scaling,
    bounds_of,
    decide,
    kept,
    limit_at,
    look_at,
    scaling,
    seconds_per_page,
    strength,
    workers_wanted,
)
from gossamer.settings import Settings
from gossamer.settings import load as load_settings
from tests.conformance.frontiers import candidate
from tests.journey.crawling import settings_for

CALM = timedelta(seconds=60)


def load(**fields: object) -> QueueLoad:
    return QueueLoad(**{"site": "a.test", "lane": "", "ready": 50, "leased": 0, **fields})


def card(now: float, **fields: object) -> WorkerCard:
    usual = {"name": "w", "host": "h", "pid": 1, "version": "1", "started_at": now, "seen_at": now}
    return WorkerCard(**{**usual, **fields})


# -- the arithmetic ------------------------------------------------------------------------------------------------


def test_a_site_allows_what_its_rate_its_own_wish_and_its_slots_allow():
    twice = SiteTerms(interval=timedelta(milliseconds=500), concurrency=4)

    def allowed(found, terms, latency, job=JobPoliteness()):  # noqa: B008 - frozen
        return limit_at(found, terms, job, latency).per_second(latency)

    assert allowed(load(), twice, 1.0) == 2
    assert allowed(load(asked=10.0), twice, 1.0) == 0.1
    assert allowed(load(), twice, 4.0) == 1  # four at once, each of which takes four seconds
    assert allowed(load(away=True), SiteTerms(interval=None, concurrency=8), 0.5) == 2  # one at a time
    assert allowed(load(), twice, 1.0, JobPoliteness(rate="1/s")) == 1
    assert limit_at(load(), twice, JobPoliteness(), 4.0).words == "4 at a time at this site: politeness.concurrency"


def test_the_strength_of_a_worker_is_what_it_did_divided_by_what_that_took_of_it():
    assert strength([card(0, pace=10.0, busy=0.5)]) == 20
    assert (
        strength([card(0, pace=10.0, busy=0.5), card(0, pace=3.0, busy=1.0), card(0, pace=8.0, busy=0.7)]) == 21 / 2.2
    )
    newcomer = card(0, pace=0.2, busy=0.02 + 0.08)  # its first page: 2 a second, where the others know of 20
    assert strength([card(0, pace=20.0, busy=1.0)] * 3 + [newcomer]) == pytest.approx(60.2 / 3.1)
    assert strength([card(0, pace=0.1, busy=0.001), card(0)]) is None  # an idle one tells nothing


def test_the_time_of_a_page_is_measured_by_the_pages_in_flight():
    assert seconds_per_page([card(0, pace=10.0, in_flight=20), card(0, pace=0.0, in_flight=9)]) == 2
    assert seconds_per_page([]) == 1


def test_workers_use_three_quarters_of_their_strength_and_work_needs_one():
    assert [workers_wanted(full, any_work=True) for full in (0.0, 0.01, 0.75, 0.76, 3.0)] == [1, 1, 1, 2, 4]
    assert workers_wanted(0.0, any_work=False) == 0


# -- how it changes ------------------------------------------------------------------------------------------------


def after(*wanted: int, current: int, every: float = 5.0) -> list[int]:
    """How many there are after each look."""
    looks: list[Look] = []
    numbers = []
    for place, number in enumerate(wanted):
        looks = kept([*looks, Look(place * every, number, number)], calm=CALM)
        current = decide(looks, current, calm=CALM)
        numbers.append(current)
    return numbers


def test_more_workers_come_when_two_looks_want_them_and_the_first_at_once():
    assert after(1, 6, 1, 6, 6, current=1) == [1, 1, 1, 1, 6]
    assert after(3, current=0) == [3]


def test_workers_leave_when_fewer_were_enough_for_long():
    numbers = after(*[6, 6], *[2] * 14, current=1)
    assert numbers[:2] == [1, 6]
    assert numbers.index(2) == 14  # a minute after the last look that wanted six
    assert numbers[-1] == 2


def test_a_number_that_goes_up_and_down_changes_nothing():
    assert set(after(*[4, 1] * 60, current=4)) == {4}
    assert set(after(*[1, 4] * 60, current=1)) == {1}


def followed(loads: Sequence[float], *, every: float = 5.0) -> list[int]:
    """How many workers there are after each look at a load that is measured so."""
    bounds, looks, current, numbers = bounds_of("0..8"), list[Look](), 0, []
    for place, full in enumerate(loads):
        wanted = workers_wanted(full, any_work=full > 0)
        found = Scaling(at="", workers=current, workers_wanted=wanted, load=full, chores=0, lanes={})
        looks = kept([*looks, look_at(found, place * every, bounds)], calm=CALM)
        current = decide(looks, current, calm=CALM)
        numbers.append(current)
    return numbers


def changes(numbers: Sequence[int]) -> list[int]:
    return [number for number, before in zip(numbers, [-1, *numbers], strict=False) if number != before]


@pytest.mark.parametrize("load", [0.74, 0.76, 1.49, 2.24, 2.26, 3.01, 4.4])
def test_a_load_at_the_edge_of_two_numbers_does_not_flap(load):
    # an hour of measurements that are a tenth too high or too low, slowly and quickly
    chance = Random(7)
    measured = [load * (1 + 0.06 * sin(place / 30) + chance.uniform(-0.04, 0.04)) for place in range(720)]
    numbers = followed(measured)
    assert changes(numbers) == sorted(set(numbers)), numbers  # it rises to what it needs, and stays
    assert numbers[-1] >= load / 0.83


def test_a_day_is_followed_up_once_and_down_once():
    chance = Random(3)
    night, slow, burst = [0.0] * 60, [0.1] * 120, [4.3] * 120
    tail = [4.3 * (1 - place / 120) for place in range(120)]
    day = [full * chance.uniform(0.93, 1.07) for full in (*night, *slow, *burst, *tail, *slow, *night)]
    numbers = changes(followed(day))
    peak = numbers.index(max(numbers))
    # at times 4.6 workers at their limit are measured: seven use less than three quarters of their strength
    assert (numbers[0], max(numbers), numbers[-1]) == (0, 7, 0)
    assert numbers[: peak + 1] == sorted(numbers[: peak + 1])
    assert numbers[peak:] == sorted(numbers[peak:], reverse=True)


def test_all_that_is_remembered_is_a_minute():
    looks: list[Look] = []
    for second in range(1000):
        looks = kept([*looks, Look(second, 1, 1)], calm=CALM)
    assert len(looks) == 62


@pytest.mark.parametrize("text", ["", "3", "5..2", "0..0", "1..99999", "-1..2", "a..b", "1..2..3"])
def test_what_is_no_range_is_refused_with_an_example(text):
    with pytest.raises(Misconfigured, match=r"--autoscale 1\.\.8"):
        bounds_of(text)


# -- a project -----------------------------------------------------------------------------------------------------


async def begun(state: State, name: str, *urls: str, sealed: bool = True, **terms: object) -> Job:
    job, _ = await state.jobs.open_job(name, JobTerms(**terms), fresh=True)  # type: ignore[arg-type]
    await state.frontier.add(job.id, [candidate(url) for url in urls])
    if sealed:
        await state.jobs.seal_seeds(job.id)
    return job


def written(folder: Path, text: str) -> Settings:
    (folder / "gossamer.toml").write_text(text, encoding="utf-8")
    return load_settings(start=folder, environ={})


def pages(site: str, count: int) -> list[str]:
    return [f"https://{site}/{n}" for n in range(count)]


async def test_a_long_queue_of_one_polite_site_needs_one_worker_and_many_sites_need_more(tmp_path):
    settings = settings_for(tmp_path, politeness__rate="2/s")
    async with open_project(settings) as project:
        assert (await scaling(project)).workers_wanted == 0
        await begun(project.state, "huge", *pages("huge.test", 3 * MOST_COUNTED))
        one = await scaling(project)
        assert (one.workers_wanted, one.lanes["http"].runnable_per_second) == (1, 2)
        assert one.lanes["http"].ready == MOST_COUNTED

        await begun(project.state, "wide", *(url for n in range(200) for url in pages(f"site{n}.test", 60)))
        many = await scaling(project)
        assert many.lanes["http"].runnable_per_second == 2 + 400
        assert many.lanes["http"].pages_per_second_per_worker == ASSUMED
        assert many.workers_wanted == 54  # 402 pages a second, of which each does 7.5

        # what a worker was seen to do counts for more than what is assumed
        now = project.clock.now()
        await project.state.workers.beat(card(now, pace=50.0, busy=0.5, in_flight=20))
        seen = await scaling(project)
        assert (seen.lanes["http"].pages_per_second_per_worker, seen.lanes["http"].measured) == (100, True)
        assert seen.workers_wanted == 6


async def test_little_work_is_not_hurried(tmp_path):
    async with open_project(settings_for(tmp_path, politeness__rate="unlimited")) as project:
        await begun(project.state, "few", *(f"https://site{n}.test/" for n in range(100)))
        assert (await scaling(project)).lanes["http"].runnable_per_second == 5  # a hundred pages in 20 seconds


async def test_jobs_share_the_pace_of_a_site_and_a_spiders_own_rate_holds(tmp_path):
    async with open_project(written(tmp_path, '[politeness]\nrate = "2/s"\n')) as project:
        for name in ("one", "two"):
            await begun(project.state, name, *pages("a.test", 300))
        assert (await scaling(project)).lanes["http"].runnable_per_second == 2

        await begun(project.state, "slow", *pages("b.test", 300), politeness=JobPoliteness(rate="1/m"))
        assert (await scaling(project)).lanes["http"].runnable_per_second == pytest.approx(2 + 1 / 60, abs=0.001)


async def test_what_must_not_be_fetched_now_needs_nobody(tmp_path):
    now = datetime.now(UTC)
    closed = f"{(now.hour + 12) % 24:02}:00-{(now.hour + 13) % 24:02}:00 UTC"
    settings = written(tmp_path, f'[domains."night.test"]\nwindows = "{closed}"\n')
    async with open_project(settings) as project:
        state = project.state
        await begun(state, "window", *pages("w.test", 300), windows=closed)
        await begun(state, "site", *pages("night.test", 300))
        paused = await begun(state, "paused", *pages("p.test", 300))
        await state.control.pause_job(paused.id, True)
        await begun(state, "rests", *pages("r.test", 300))
        await state.frontier.slow_down("r.test", interval=None, rest=timedelta(minutes=5))
        found = await scaling(project)
        assert (found.workers_wanted, found.lanes["http"].runnable_per_second, found.chores) == (0, 0, 0)


async def test_an_operators_order_slows_a_site_down_or_lets_it_rest(tmp_path):
    async with open_project(settings_for(tmp_path, politeness__rate="2/s")) as project:
        await begun(project.state, "one", *pages("a.test", 300))
        await slow_site(project, OWNER, "a.test", "6/m")
        assert (await scaling(project)).lanes["http"].runnable_per_second == 0.1
        await rest_site(project, OWNER, "a.test", "1h")
        assert (await scaling(project)).workers_wanted == 0


async def test_a_limit_and_a_budget_bound_what_can_be_fetched(tmp_path):
    settings = settings_for(tmp_path, politeness__rate="2/s", router__budget_domain=10.0)
    async with open_project(settings) as project:
        await begun(project.state, "limited", *pages("a.test", 300), limit=20)
        assert (await scaling(project)).lanes["http"].runnable_per_second == 0.5  # ten pages are paid for
    settings = settings_for(tmp_path, politeness__rate="2/s")
    async with open_project(settings) as project:
        assert (await scaling(project)).lanes["http"].runnable_per_second == 1  # twenty pages in 20 seconds


async def test_a_job_without_pages_needs_a_worker_to_read_its_source_or_to_end_it(tmp_path):
    async with open_project(settings_for(tmp_path)) as project:
        job = await begun(project.state, "source", sealed=False)
        found = await scaling(project)
        assert (found.chores, found.workers_wanted, found.lanes["http"].workers_wanted) == (1, 1, 1)
        await project.state.jobs.seal_seeds(job.id)
        assert (await scaling(project)).workers_wanted == 1
        await project.state.jobs.close_job(job.id, "done")
        assert (await scaling(project)).workers_wanted == 0


async def test_lanes_are_told_apart_and_a_worker_counts_for_what_it_serves(tmp_path):
    async with open_project(settings_for(tmp_path, politeness__rate="2/s")) as project:
        job = await begun(project.state, "mixed", *pages("a.test", 300))
        shown = [candidate(url, fetcher="browser") for n in range(40) for url in pages(f"s{n}.test", 60)]
        await project.state.frontier.add(job.id, shown)
        now = project.clock.now()
        await project.state.workers.beat(card(now, name="plain", serves="http"))
        await project.state.workers.beat(card(now, name="shows", serves="browser", pace=1.0, busy=0.5))

        lanes = (await scaling(project)).lanes
    assert set(lanes) == {"http", "profile", "browser", "managed"}
    assert (lanes["http"].workers, lanes["http"].workers_wanted) == (1, 1)
    browser = lanes["browser"]
    assert (browser.workers, browser.runnable_per_second, browser.pages_per_second_per_worker) == (1, 80, 2)
    assert browser.workers_wanted == 54
    assert lanes["managed"].workers_wanted == 0


async def test_a_worker_that_is_missing_does_not_count(tmp_path):
    async with open_project(settings_for(tmp_path)) as project:
        await project.state.workers.beat(card(project.clock.now() - 60, pace=9.0, busy=0.9))
        assert (await scaling(project)).workers == 0

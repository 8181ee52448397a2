"""Figures as values, and a project's history made of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gossamer.clock import VirtualClock
from gossamer.errors import Misconfigured
from gossamer.frontier.contract import JobTerms
from gossamer.model.figures import Latency, success_rate
from gossamer.project.jobs.overview import recent
from gossamer.project.open import Project, open_project
from gossamer.project.records.figures import history, job_history, totals
from gossamer.settings import Settings

from ..conformance.stores import book, result, tried

NOON = 1_800_014_400.0


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOON)


@pytest.fixture
async def project(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Project]:
    async with open_project(Settings(root=tmp_path), clock=clock) as project:
        yield project


async def crawl(project: Project, at: float, *, pages: int, failed: int = 0, site: str = "shop.example") -> None:
    good = [
        result(book(f"{at}-{n}", at=at), attempt=tried(f"https://{site}/{n}", at=at + n / 100, site=site, latency=0.2))
        for n in range(pages)
    ]
    bad = [
        result(attempt=tried(f"https://{site}/bad{n}", at=at, site=site, outcome="retry", reason="timeout", latency=30))
        for n in range(failed)
    ]
    await project.records.save([*good, *bad])


def test_quantiles_come_from_the_buckets():
    latency = Latency(counts=(0, 50, 40, 9, *(0,) * 8, 1), seconds=200.0)

    assert latency.quantile(0.5) == pytest.approx(0.1)
    assert latency.quantile(0.25) == pytest.approx(0.075)
    assert latency.quantile(0.9) == pytest.approx(0.25)
    assert latency.quantile(1.0) == 120.0
    assert Latency().quantile(0.5) is None


def test_neither_robots_nor_a_site_that_is_away_is_a_failure():
    assert success_rate({"done": 6, "unchanged": 2, "redirected": 1, "retry": 1, "dropped": 50, "released": 9}) == 0.9
    assert success_rate({"dropped": 3}) is None


async def test_history_has_a_point_for_every_step(project: Project, clock: VirtualClock):
    await crawl(project, NOON, pages=30)
    clock.advance(150)
    await crawl(project, NOON + 121, pages=8, failed=2)

    found = await history(project, since=NOON)

    assert (found.since, found.until, found.step) == (NOON, NOON + 150, 60)
    assert [point.at - NOON for point in found.points] == [0, 60, 120]
    first, still, last = found.points
    assert (first.pages, first.per_second, first.success_rate) == ({"done": 30}, 0.5, 1.0)
    assert first.p50 == pytest.approx(0.175)
    assert first.items == 30
    assert (still.pages, still.per_second, still.success_rate, still.p95) == ({}, 0.0, None, None)
    assert (last.pages, last.success_rate, last.errors) == ({"done": 8, "retry": 2}, 0.8, {"timeout": 2})
    assert last.per_second == pytest.approx(10 / 30, abs=0.001)  # of the minute, half has passed
    assert last.p99 == pytest.approx(29.5, abs=0.5)
    assert last.routes["direct"].pages == last.pages
    assert found.whole.pages == {"done": 38, "retry": 2}
    assert (await totals(project)).outcomes() == found.whole.pages


async def test_history_of_one_domain(project: Project, clock: VirtualClock):
    await crawl(project, NOON, pages=5)
    await crawl(project, NOON, pages=1, failed=3, site="b.example")
    clock.advance(60)

    found = await history(project, since=NOON, domain="b.example")

    [point] = found.points
    assert (point.pages, point.success_rate) == ({"done": 1, "retry": 3}, 0.25)
    assert point.seconds == pytest.approx(90.2 / 4)
    assert list(found.domains) == ["b.example"]
    assert found.domains["b.example"].errors == 3
    whole = await history(project, since=NOON)
    assert list(whole.domains) == ["shop.example", "b.example"]
    assert (await history(project, since=NOON, domain="c.example")).whole.pages == {}


async def test_steps_grow_with_the_time_that_is_asked_for(project: Project, clock: VirtualClock):
    await crawl(project, NOON, pages=1)
    clock.advance(29 * 86_400)

    steps = {}
    for hours in (1, 6, 24, 7 * 24, 29 * 24 + 1):
        found = await history(project, since=clock.now() - hours * 3600)
        steps[hours] = found.step
        assert len(found.points) <= 361
    assert steps == {1: 60, 6: 60, 24: 600, 7 * 24: 1800, 29 * 24 + 1: 6 * 3600}
    assert found.whole.pages == {"done": 1}
    finer = await history(project, since=clock.now() - 3600, step=300)
    assert finer.step == 300
    assert (await history(project, since=clock.now() - 7 * 86_400, step=700)).step == 1200


async def test_times_that_make_no_sense_are_refused(project: Project):
    with pytest.raises(Misconfigured, match="earlier"):
        await history(project, since=NOON + 5)
    with pytest.raises(Misconfigured, match="too short"):
        await history(project, since=NOON - 60, step=5)
    with pytest.raises(Misconfigured, match="longer steps"):
        await history(project, since=NOON - 29 * 86_400, step=600)


async def test_a_short_job_is_told_by_the_second_and_a_long_one_by_the_minute(project: Project, clock: VirtualClock):
    job, _ = await project.state.jobs.open_job("lamps", JobTerms(), fresh=True)

    async def attempts(*times: float) -> None:
        made = [tried(f"https://shop.example/{at}", at=at, job=job.id, latency=0.5) for at in times]
        await project.records.save([result(attempt=one) for one in made])

    await attempts(NOON + 1, NOON + 1.5, NOON + 4)
    await crawl(project, NOON, pages=5)  # by another job
    clock.advance(6)
    short = await job_history(project, job)
    assert short is not None
    assert (short.step, [sum(point.pages.values()) for point in short.points]) == (1, [0, 2, 0, 0, 1, 0])
    assert (short.points[1].per_second, short.points[1].seconds, short.whole.pages) == (2.0, 0.5, {"done": 3})

    clock.advance(24 * 60)
    await attempts(NOON + 24 * 60, NOON + 24 * 60 + 1)
    long = await job_history(project, job)
    assert long is not None
    pages = [sum(point.pages.values()) for point in long.points]
    assert (long.step, pages[0], pages[24], sum(pages), long.whole.pages) == (60, 3, 2, 5, {"done": 5})

    clock.advance(40 * 86_400)
    await project.state.jobs.close_job(job.id, "done")
    clock.advance(40 * 86_400)
    (ended,) = await project.state.jobs.jobs()
    assert await job_history(project, ended) is None


async def test_credits_of_today_are_none_of_yesterday(project: Project, clock: VirtualClock):
    midnight = NOON + 43_200
    clock.advance(midnight - 1200 - NOON)
    yesterday = tried("https://shop.example/1", at=clock.now() - 60, cost=7.0)
    await project.records.save([result(attempt=yesterday)])
    assert (await recent(project)).credits_today == 7.0

    clock.advance(1200)
    assert (await recent(project)).credits_today == 0.0
    clock.advance(30)
    assert (await recent(project)).credits_today == 0.0
    await project.records.save([result(attempt=tried("https://shop.example/2", at=clock.now() - 1, cost=2.0))])
    assert (await recent(project)).credits_today == 2.0

"""Which jobs are forgotten: old runs of a schedule by themselves, others when a user says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gossamer.frontier.contract import JobTerms
from gossamer.model.task import UrlState
from gossamer.project.upkeep.retention import Forgotten, forget_ended, forget_old_runs
from tests.conformance.frontiers import Lab, candidate, sqlite_lab

DAY = 86_400.0


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with sqlite_lab(tmp_path) as lab:
        yield lab


async def ended(lab: Lab, name: str = "prices", *, schedule: str = "prices", dead: bool = False) -> str:
    job = (await lab.jobs.open_job(name, JobTerms(schedule=schedule), fresh=False))[0].id
    await lab.frontier.add(job, [candidate("https://a.test/")])
    (lease,) = (await lab.frontier.lease(job, "w", 1)).leases
    await (lab.frontier.bury(lease, "http-404", "gone") if dead else lab.frontier.complete(lease, UrlState.DONE))
    await lab.jobs.close_job(job, "done")
    return job


async def known(lab: Lab) -> list[str]:
    """Oldest first."""
    return [job.id for job in reversed(await lab.jobs.jobs())]


async def test_the_newest_runs_of_a_schedule_stay_and_older_ones_with_dead_letters(lab: Lab) -> None:
    runs = [await ended(lab, dead=number == 1) for number in range(5)]
    others = [await ended(lab, "books", schedule="books") for _ in range(5)]

    assert await forget_old_runs(lab.jobs, lab.jobs, "prices", 2) == 2

    assert await known(lab) == [runs[1], runs[3], runs[4], *others]
    assert await forget_old_runs(lab.jobs, lab.jobs, "prices", 2) == 0


async def test_runs_with_dead_letters_do_not_pile_up_for_ever(lab: Lab) -> None:
    runs = [await ended(lab, dead=True) for _ in range(12)]

    assert await forget_old_runs(lab.jobs, lab.jobs, "prices", 1) == 2

    assert await known(lab) == runs[2:]


async def test_what_runs_or_was_begun_by_hand_is_no_old_run(lab: Lab) -> None:
    by_hand = await ended(lab, schedule="")
    running = (await lab.jobs.open_job("prices", JobTerms(schedule="prices"), fresh=False))[0].id
    assert await forget_old_runs(lab.jobs, lab.jobs, "prices", 1) == 0
    assert await forget_old_runs(lab.jobs, lab.jobs, "prices", None) == 0

    assert await known(lab) == [by_hand, running]


async def test_jobs_are_forgotten_by_age_but_for_those_that_are_needed(lab: Lab) -> None:
    # given old jobs, one with a dead letter, one that is the last run of a schedule; and a young one
    old, dead, last = await ended(lab), await ended(lab, dead=True), await ended(lab)
    alone = await ended(lab, "books", schedule="")
    lab.clock.advance(10 * DAY)
    young, newest = await ended(lab), await ended(lab)
    week_ago = lab.clock.now() - 7 * DAY

    gone = await forget_ended(lab.jobs, lab.jobs, before=week_ago, dead_before=None, keep={last})

    assert gone == Forgotten(jobs=1, with_letters=1)
    assert await known(lab) == [dead, last, alone, young, newest]

    gone = await forget_ended(lab.jobs, lab.jobs, before=None, dead_before=week_ago, keep=())

    assert gone == Forgotten(jobs=1)
    assert await known(lab) == [last, alone, young, newest]
    assert old not in await known(lab)

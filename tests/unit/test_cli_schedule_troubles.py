"""What `gossamer schedule list` and `gossamer doctor` tell of schedules whose runs end well and give nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec
import pytest

from gossamer.model.job import JobTerms
from gossamer.model.task import UrlState
from gossamer.project.open import Project
from tests.unit.commandline import ProjectFolder, candidate
from tests.unit.commandline import project as project
from tests.unit.test_cli_schedule import add
from tests.unit.test_cli_schedule import shop as shop

Deed = Callable[[Project, str], Awaitable[None]]
PAGE = "https://shop.example/1"


def run(shop: ProjectFolder, *deeds: Deed) -> None:
    """Let the schedule have a run to which this happens, and which ends."""
    add(shop, "prices", "--every", "6h")

    async def fill(system: Project) -> None:
        (before,) = await system.state.schedules.schedules()
        term = await system.state.ticks.lead("here/1/0", timedelta(minutes=5))
        assert term is not None
        after = msgspec.structs.replace(before, last_due=before.created_at, runs=1)
        done = await system.state.ticks.settle(term, before, after, ("prices", JobTerms(schedule="prices", due=1.0)))
        assert done is not None
        assert done.job is not None
        for deed in deeds:
            await deed(system, done.job.id)
        await system.state.jobs.close_job(done.job.id, "done")

    shop.fill(fill)


async def bury_a_page(system: Project, job: str) -> None:
    await system.state.frontier.add(job, [candidate(PAGE)])
    (lease,) = (await system.state.frontier.lease(job, "here/1/1", 1)).leases
    await system.state.frontier.bury(lease, "parse", "no title")


async def fetch_a_page(system: Project, job: str) -> None:
    await system.state.frontier.add(job, [candidate(f"{PAGE}2")])
    (lease,) = (await system.state.frontier.lease(job, "here/1/1", 1)).leases
    await system.state.frontier.complete(lease, UrlState.DONE)


async def lose_a_part(system: Project, job: str) -> None:
    await system.state.seeds.note(job, (), "part-2.xml could not be had.")


@pytest.mark.parametrize(
    ("deeds", "words"),
    [
        ((bury_a_page,), "prices: no page of prices-1 could be fetched; see: gossamer dead list --job prices-1\n"),
        ((bury_a_page, fetch_a_page), ""),
        ((fetch_a_page, lose_a_part), "prices: prices-1: part-2.xml could not be had.\n"),
    ],
    ids=["all dead", "some dead", "a part of the source"],
)
def test_a_run_that_ended_and_gave_little_is_told(shop: ProjectFolder, deeds: tuple[Deed, ...], words: str) -> None:
    run(shop, *deeds)
    assert shop.run("schedule", "list").err == words
    assert words in shop.run("schedule", "show", "prices").err


def test_the_doctor_tells_of_a_site_that_no_worker_will_visit(project: ProjectFolder) -> None:
    assert project.run("schedule", "add", "inside", "--spider", "http://127.0.0.1:9/", "--every", "1h").code == 0
    assert "inside: 127.0.0.1 is a private address" in project.run("doctor").out

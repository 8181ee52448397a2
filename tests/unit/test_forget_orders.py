"""Which records an order to erase is about."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from pathlib import Path

import msgspec
import pytest

from gossamer.clock import VirtualClock
from gossamer.errors import BackendUnavailable
from gossamer.model.job import JobTerms
from gossamer.model.outcome import JobOutcome, Outcome
from gossamer.project.access.keys import OWNER
from gossamer.project.open import Project, open_project
from gossamer.project.records.erasure import carry_out
from gossamer.project.records.forget import ForgetAsk, find_records, place_order
from gossamer.settings import load
from tests.conformance.stores import NOW, book, result


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[Project]:
    (tmp_path / "gossamer.toml").write_text("")
    async with open_project(load(start=tmp_path, environ={}), clock=VirtualClock(NOW + 60)) as opened:
        yield opened


async def found(project: Project, ask: ForgetAsk) -> list[str]:
    return sorted([record.key async for record in find_records(project, ask)])


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example/people?id=7&tab=a",
        "https://shop.example/people?tab=a&id=7",
        "https://shop.example:443/people?tab=a&id=%37#top",
    ],
)
async def test_a_page_is_known_however_its_address_is_spelled(project: Project, url: str) -> None:
    there = "https://shop.example/people?tab=a&id=7"
    some = [msgspec.structs.replace(book(key, title=key), url=there) for key in ("jane", "joe")]
    await project.records.save([result(*some), result(book("other"))])

    assert await found(project, ForgetAsk(url=url)) == ["jane", "joe"]
    assert await found(project, ForgetAsk(url=url, record="joe")) == ["joe"]
    assert await found(project, ForgetAsk(url=url, site="elsewhere.example")) == []


async def test_with_ever_a_record_counts_that_fitted_in_an_earlier_version(project: Project) -> None:
    for run, jane in enumerate(("jane@a.example", "jane@b.example")):
        some = {"jane": jane, "joe": "joe@a.example"}
        told = [book(key, at=NOW + run, job=f"books-{run}", email=email) for key, email in some.items()]
        await project.records.save([result(one) for one in told])
    where = 'email == "jane@a.example"'

    assert await found(project, ForgetAsk(where=where)) == []
    assert await found(project, ForgetAsk(where=where, ever=True)) == ["jane"]
    assert await found(project, ForgetAsk(where='email contains "b.example"', ever=True)) == ["jane"]


async def test_runs_are_counted_again_after_a_crash_between_the_erasing_of_files_and_the_count(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    photo = {"kind": "file", "url": "https://shop.example/jane.jpg", "sha256": "ab" * 32}
    job, _ = await project.state.jobs.open_job("photos", JobTerms(), fresh=False)
    await project.state.jobs.seal_seeds(job.id)
    own = msgspec.structs.replace(book(photo["url"], job=job.id, **photo), url=photo["url"], type="File")
    await project.records.save([result(book("jane", photo=photo)), result(own)])
    before = JobOutcome(Outcome.DONE, records=await project.records.run_records(job.id))
    await project.state.jobs.close_job(job.id, "done", before)
    await place_order(project, OWNER, ForgetAsk(record="jane"))

    async def crash(project: Project, jobs: Collection[str]) -> None:
        raise BackendUnavailable("The process ended.")

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("gossamer.project.records.erasure.recount_records", crash)
        with pytest.raises(BackendUnavailable):
            await carry_out(project)
    [order] = await carry_out(project)

    ended = await project.state.jobs.job(job.id)
    assert ended is not None
    assert ended.outcome is not None
    assert ended.outcome.records is not None
    assert (before.records.seen if before.records else None, ended.outcome.records.seen) == (1, 0)
    assert order.jobs == ()

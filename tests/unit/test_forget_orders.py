"""Which records an order to erase is about."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gossamer.clock import VirtualClock
from gossamer.project.open import Project, open_project
from gossamer.project.records.forget import ForgetAsk, find_records
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

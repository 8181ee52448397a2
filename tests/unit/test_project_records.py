"""project/records and project/export, as a server or a script calls them: no command line."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.errors import Misconfigured
from gossamer.frontier.contract import JobTerms
from gossamer.model.record import PageResult, Record, Tally
from gossamer.project.open import Project, open_project
from gossamer.project.records.export import export_records
from gossamer.project.records.records import (
    FieldChange,
    RecordFilter,
    changes,
    differences,
    history,
    quality,
    records,
    schemas,
    scores_of,
)
from gossamer.settings import FILE_NAME, load
from tests.unit.commandline import TOML
from tests.unit.crawled import SHOP, attempt, crawl_half


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[Project]:
    (tmp_path / FILE_NAME).write_text(TOML)
    async with open_project(load(start=tmp_path, environ={})) as opened:
        await crawl_half(opened)
        yield opened


async def dearer(project: Project) -> None:
    """A second job that saw the same book at another price."""
    job, _ = await project.state.jobs.open_job("books", JobTerms(), fresh=True)
    now = project.clock.now()
    record = Record(
        type="Book", site="shop.example", key="1", url=f"{SHOP}/done", job=job.id, spider="books",
        data='{"title": "Dune", "price": 11}', content_hash=b"2" * 16, scraped_at=now,
    )  # fmt: skip
    await project.records.save([PageResult(attempt=attempt(job.id, "/done", now, "done"), records=(record,))])


def built(value: Any) -> Any:
    """As a door would serve it."""
    return json.loads(msgspec.json.encode(value))


async def test_records_are_found_by_the_name_of_their_job(project: Project) -> None:
    (line,) = [one async for one in records(project, RecordFilter(job="books"))]
    assert (line["title"], line["_meta"]["job"], line["_meta"]["url"]) == ("Dune", "books-1", f"{SHOP}/done")
    assert [one async for one in records(project, RecordFilter(), limit=0)] == []
    with pytest.raises(Misconfigured, match=r"Did you mean books\?"):
        await anext(records(project, RecordFilter(job="boks")))


async def test_a_record_has_every_version_by_key_and_by_address(project: Project) -> None:
    await dearer(project)
    (by_key,) = await history(project, "1")
    assert [by_key] == await history(project, f"{SHOP}/done")
    assert [(one.version, one.job, one.data["price"]) for one in by_key.versions] == [
        (1, "books-1", 9.5),
        (2, "books-2", 11),
    ]
    served = built(by_key)
    assert served["gone_since"] is None
    assert set(served["versions"][0]) == {"version", "at", "job", "gone", "schema", "data", "healed"}
    assert await history(project, "2") == []


async def test_a_difference_names_the_fields_that_changed(project: Project) -> None:
    await dearer(project)
    (one,) = [built(one) async for one in differences(project, "books-1", "books-2")]
    assert (one["kind"], one["key"], one["before"]["price"], one["after"]["price"]) == ("changed", "1", 9.5, 11)
    assert one["fields"] == [{"field": "price", "before": 9.5, "after": 11}]
    with pytest.raises(Misconfigured, match="compared with itself"):
        await anext(differences(project, "books", "books-2"))


def test_fields_are_compared_by_their_paths() -> None:
    assert changes({"price": {"amount": 1, "currency": "EUR"}}, {"price": {"amount": 2, "currency": "EUR"}}) == [
        FieldChange("price.amount", 1, 2)
    ]
    assert changes(None, {"title": "Dune", "tags": []}) == [
        FieldChange("title", None, "Dune"),
        FieldChange("tags", None, []),
    ]
    assert changes("odd", {"title": "Dune"}) == [FieldChange("data", "odd", None), FieldChange("title", None, "Dune")]


def test_scores_carry_the_rules_that_were_broken() -> None:
    day = {"spider": "books", "day": "2027-01-31", "type": "Book"}
    whole, title = scores_of(
        [
            Tally(**day, field="title", checked=4, filled=3, faulty=2),
            Tally(**day, field="title", rule="short", faulty=1),
            Tally(**day, field="title", rule="empty", faulty=2),
            Tally(**day, field="*", checked=4, filled=4, faulty=2),
        ]
    )
    assert (title.field, title.score, title.filled_share, list(title.rules.items())) == (
        "title", 0.5, 0.75, [("empty", 2), ("short", 1)],
    )  # fmt: skip
    assert (whole.is_whole, whole.rules) == (True, {"empty": 2, "short": 1})


async def test_what_was_never_counted_or_typed_is_empty(project: Project) -> None:
    assert await quality(project, days=14) == []
    assert await schemas(project) == []


async def test_an_export_says_where_it_went_and_why_nothing_matched(project: Project, tmp_path: Path) -> None:
    done = await export_records(project, RecordFilter(), str(tmp_path / "all.jsonl"))
    assert (done.records, done.place, done.whole) == (1, str(tmp_path / "all.jsonl"), True)
    empty = await export_records(project, RecordFilter(type="Film"), str(tmp_path / "films.jsonl"))
    assert (empty.records, empty.note) == (0, "The store holds 1; leave out a filter to see more.")

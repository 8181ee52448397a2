"""`GET /api/v1/records/changes`, as a program that copies the records reads it: docs/api.md promises this."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gossamer.project.records.erasure import carry_out
from gossamer.store.contract import Retirement
from tests.conformance.stores import book, page_of, result, tried

from .serving import Served, serving, settings_of

PAGE = "https://shop.example/list"
META = {"type", "site", "key", "url", "job", "spider", "first_seen", "last_changed", "last_checked", "version"}


async def visit(door: Served, number: int, **titles: str) -> None:
    """A run whose page has these books, and no others."""
    job, at = f"books-{number}", 1_800_000_000.0 + 60 * number
    books = [book(key, at=at, job=job, title=title) for key, title in titles.items()]
    page = page_of(PAGE, at=at, job=job, spider="books")
    await door.project.records.save([result(*books, page=page, attempt=tried(PAGE, at=at, job=job))])
    await door.project.records.retire(Retirement(job=job, spider="books", at=at + 1))


async def changes(door: Served, after: str | None = None) -> tuple[dict[str, dict[str, Any]], str]:
    answer = await door.get("/api/v1/records/changes", **{"after": after} if after is not None else {})
    assert answer.status_code == 200, answer.text
    found = [json.loads(line) for line in answer.text.splitlines()]
    by_key = {one["_meta"]["key"]: one for one in found}
    assert len(by_key) == len(found)  # each record once
    return by_key, answer.headers["x-gossamer-cursor"]


async def test_a_record_comes_once_as_it_is_now_and_an_erased_one_does_not_come(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        await visit(door, 1, a="Emma", b="Persuasion")
        first, cursor = await changes(door)
        await visit(door, 2, a="Emma, revised", b="Persuasion", c="Evelina")
        await visit(door, 3, a="Emma, third edition", c="Evelina")
        second, later = await changes(door, cursor)
        nothing, last = await changes(door, later)
        again, _ = await changes(door, cursor)
        await door.post("/api/v1/forget", {"record": "a"})
        await carry_out(door.project)
        left, _ = await changes(door)
        since, _ = await changes(door, last)

    assert {key: one["title"] for key, one in first.items()} == {"a": "Emma", "b": "Persuasion"}
    assert set(first["a"]["_meta"]) == META
    assert {key: one["title"] for key, one in second.items()} == {
        "a": "Emma, third edition",
        "b": "Persuasion",
        "c": "Evelina",
    }
    assert [second[key]["_meta"]["version"] for key in "ac"] == [3, 1]
    assert {key: "gone_since" in one["_meta"] for key, one in second.items()} == {"a": False, "b": True, "c": False}
    assert (nothing, again) == ({}, second)
    assert set(left) == {"b", "c"}
    assert since == {}  # nothing tells of an erasure here

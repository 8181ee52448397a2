"""Healing over HTTP, by an agent, and in the dashboard: the evidence, new rules, and the way back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from gossamer.errors import NotThere
from gossamer.model.record import PageFacts, PageResult
from gossamer.project.access.keys import OWNER, Caller, audit_lines
from gossamer.project.pages.results import PageReader
from gossamer.project.spiders.stability import rule_stability
from gossamer.server.mcp_tools import Agent, HealingAsked, healing
from gossamer.store.contract import VisitQuery
from tests.unit.test_heal_pages import DETAIL, detail, keep, record

from .serving import Served, serving, settings_of
from .test_dashboard import person, press


@pytest.fixture
async def door(tmp_path: Path):
    (tmp_path / "gossamer.toml").write_text("")
    (tmp_path / "spiders").mkdir()
    (tmp_path / "spiders" / "shop.toml").write_text(DETAIL)
    async with serving(settings_of(tmp_path)) as served:
        yield served


async def redesigned(door: Served) -> None:
    now = door.project.clock.now()
    for n in range(20):
        one = record(n, 20 + n)
        await keep(door.project, f"https://shop.example/{n}", "tool", detail(one, new=False), now - 900, [one])
        await keep(door.project, f"https://shop.example/{n}", "tool", detail(record(n, 30 + n), new=True), now - 9, [])


async def test_without_anything_learned_there_is_nothing_to_show(door: Served) -> None:
    assert (await door.get("/api/v1/healings")).json() == []
    assert (await door.get("/api/v1/healings/shop")).status_code == 404
    refused = await door.post("/api/v1/healings/shop/undo", {})
    assert refused.status_code == 422
    assert "No healed rules of shop" in refused.json()["error"]["message"]


@pytest.mark.long
async def test_rules_are_learned_applied_and_undone_by_a_program(door: Served) -> None:
    await redesigned(door)
    learned = await door.post("/api/v1/healings/shop/learn", {})
    assert learned.status_code == 201, learned.text
    fields = {one["field"]: one for one in learned.json()["evidence"]["kinds"][0]["fields"]}
    assert (fields["sku"]["decision"], fields["price"]["decision"]) == ("heal", "refuse")  # every price has changed
    assert len(fields["sku"]["examples"]) == 5
    (row,) = (await door.get("/api/v1/healings", open="true")).json()
    assert (row["spider"], row["state"]) == ("shop", "found")

    applied = await door.post("/api/v1/healings/shop/apply", {"fields": []})
    assert applied.status_code == 201, applied.text
    assert applied.json()["state"] == "applied"
    assert [(one["version"], one["by"], one["current"]) for one in applied.json()["rules"]] == [(1, "all", True)]

    seen = await healing(
        Agent(project=door.project, pages=PageReader(door.project), caller=OWNER), HealingAsked(spider="shop")
    )
    assert json.loads(seen.text)["state"] == "applied"

    undone = await door.post("/api/v1/healings/shop/undo", {"keep_values": False})
    assert (undone.status_code, undone.json()["rules"]) == (201, 0)
    assert (await door.get("/api/v1/healings", open="true")).json() == []


class Asked(PageReader):
    """Lets nobody read a page, and notes which are asked for."""

    def __init__(self, door: Served) -> None:
        super().__init__(door.project)
        self.asked: list[float] = []

    async def may_read(self, caller: Caller, copy: PageFacts) -> bool:
        self.asked.append(copy.fetched_at)
        return False


async def test_of_an_archive_that_may_not_be_read_only_the_newest_pages_are_asked_for(door: Served) -> None:
    one = record(1, 20)
    await keep(door.project, "https://shop.example/1", "tool", detail(one, new=False), 1.0, [one])
    (first,) = [facts async for facts in door.project.records.archived(VisitQuery(spider="shop"))]
    (attempt,) = await door.project.records.attempts(first.fingerprint)
    results = []
    for at in range(2, 400):
        url = f"https://shop.example/{at}"
        fingerprint = door.project.rules.fingerprint(url)
        facts = replace(first, url=url, fingerprint=fingerprint, fetched_at=float(at))
        results.append(PageResult(attempt=replace(attempt, url=url, fingerprint=fingerprint), page=facts, records=()))
    await door.project.records.save(results)

    pages = Asked(door)
    with pytest.raises(NotThere, match="No page of shop"):
        await rule_stability(door.project, pages, OWNER, "shop")

    assert pages.asked == [float(at) for at in range(399, 99, -1)]


async def test_how_stable_the_rules_are_is_shown_to_who_asks_and_noted_nowhere(door: Served) -> None:
    for n in range(4):
        one = record(n, 20 + n)
        await keep(door.project, f"https://shop.example/{n}", "tool", detail(one, new=False), 900.0 + n, [one])
    admin = await person(door, "admin")
    before = await audit_lines(door.project)

    assert "Stability" not in (await admin.get("/ui/spiders/shop/healing")).text
    shown = await press(admin, "/ui/spiders/shop/stability")

    assert (shown.status_code, "tool.price" in shown.text, "of 3 pages" in shown.text) == (201, True, True)
    assert await audit_lines(door.project) == before

"""Outputs in the dashboard: seen, paused and resumed; and a record erased everywhere, after a question."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import expect

from gossamer.project.access.keys import OWNER
from gossamer.project.outputs.run import follower_of
from gossamer.project.records.erasure import carry_out
from gossamer.project.records.forget import NoForgetFilter, list_orders
from gossamer.settings.output_tables import OutputTable
from gossamer.store.contract import RecordQuery
from gossamer.units import Secret
from tests.conformance.stores import book, visit

from .screen import Screen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]


async def test_an_output_is_seen_and_paused_and_a_record_is_erased(screen: Screen, tmp_path: Path) -> None:
    project = screen.project
    table = OutputTable(url=Secret(f"sqlite:///{tmp_path}/shelf.db?table=books"))
    project.settings.outputs["shelf"] = table
    url = "https://shop.example/jane"
    await project.records.save([visit(url, book("jane", title="Jane Doe"), at=project.clock.now() - 60)])
    assert await follower_of(project, "shelf", table).catch_up()

    page = await screen.person()
    await page.goto("/ui/outputs")
    row = page.locator("#output-shelf")
    await expect(row).to_contain_text("up to date")
    await row.get_by_role("button", name="Pause").click()
    await expect(page.locator(".said")).to_contain_text("shelf is paused")
    await expect(row).to_contain_text("paused")
    await row.get_by_role("button", name="Resume").click()
    await expect(page.locator(".said")).to_contain_text("goes on")

    await page.goto("/ui/record?key=jane&type=Book&site=shop.example")
    await page.get_by_role("button", name="Erase it everywhere").click()
    await expect(page.locator("main")).to_contain_text("Erase 1 record everywhere")
    await page.get_by_role("button", name="Erase it").click()
    await expect(page.locator(".said")).to_contain_text("is being erased")
    await carry_out(project)
    await page.goto("/ui/outputs")
    await expect(page.locator("main")).to_contain_text("Erased on request")
    await page.get_by_text("What may be left of").click()

    assert await project.records.count(RecordQuery(key="jane")) == 0
    (order,) = await list_orders(project, OWNER, NoForgetFilter())
    assert (order.state, order.records) == ("erased", 1)
    assert b"Jane" not in await asyncio.to_thread((tmp_path / "shelf.db").read_bytes)


async def test_who_is_no_admin_sees_outputs_and_has_no_buttons(screen: Screen) -> None:
    page = await screen.person("jobs", "records")
    await page.goto("/ui/outputs")

    await expect(page.get_by_role("heading", name="Outputs")).to_be_visible()
    await expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    await expect(page.locator("main")).not_to_contain_text("Erased on request")

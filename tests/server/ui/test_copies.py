"""A page over time: its copies, what changed between them, and a selector tried on each, failed copies included."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from gossamer.client import ServerError
from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import Attempt, PageFacts, PageResult, Record
from gossamer.project.access.keys import OWNER, Caller
from gossamer.project.jobs.api_requests import BadRequest
from gossamer.project.pages.results import PageReader
from gossamer.project.pages.versions import copy_changes, page_copies, try_on_copies
from gossamer.store.page_format import hash_of_body

from .screen import Screen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]
URL = "https://lamps.example/7"
PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c626001000000050001"
    "0d0a2db40000000049454e44ae426082"
)


async def visited(screen: Screen, ago: float, price: str, *, failure: str = "", picture: bytes = b"") -> None:
    """A visit of the page, and its record, if it gave one."""
    project, at = screen.project, screen.project.clock.now() - ago
    name = "price" if not failure else "cost"
    body = f"<title>Lamp</title><h1>Lamp</h1><p>ours since 1990</p><p class={name}>{price} EUR</p>".encode()
    snapshot = Snapshot(
        url=URL, requested_url=URL, status=200, headers=Headers((("content-type", "text/html"),)), body=body,
        fetched_at=at, job="lamps-1", screenshot=picture,
    )  # fmt: skip
    (ref,) = await project.archive.put([snapshot])
    fingerprint = project.rules.fingerprint(URL)
    facts = PageFacts(
        fingerprint=fingerprint, url=URL, job="lamps-1", fetched_at=at, status=200, archive_ref=ref, spider="lamps",
        body_hash=hash_of_body(body), failure=failure,
    )  # fmt: skip
    attempt = Attempt(
        at=at, job="lamps-1", url=URL, fingerprint=fingerprint, site="lamps.example", worker="w", attempt=1,
        outcome="dead" if failure else "done", status=200,
    )  # fmt: skip
    record = Record(
        type="Lamp", site="lamps.example", key="7", url=URL, job="lamps-1", spider="lamps",
        data=f'{{"title":"Lamp","price":{price}}}', content_hash=price.encode().rjust(16), scraped_at=at,
    )  # fmt: skip
    await project.records.save([PageResult(attempt=attempt, page=facts, records=() if failure else (record,))])


async def page_with_history(screen: Screen) -> None:
    if await screen.project.records.visits(screen.project.rules.fingerprint(URL)):
        return
    await visited(screen, 3 * 86_400, "10")
    await visited(screen, 2 * 86_400, "12", picture=PICTURE)
    await visited(screen, 3_600, "14", failure="parse")


async def test_a_selector_is_tried_on_failed_copies_too_and_on_the_one_that_is_chosen(
    screen: Screen,
) -> None:
    await page_with_history(screen)
    async with PageReader(screen.project) as pages:
        copies = await page_copies(screen.project, pages, OWNER, URL)
        assert [(one.failure, one.same) for one in copies.copies] == [("parse", False), ("", False), ("", False)]
        found = await try_on_copies(screen.project, pages, OWNER, copies, "css", ".price::text")
        assert [result.found for _, result in found] == [[], ["12 EUR"], ["10 EUR"]]
        found = await try_on_copies(screen.project, pages, OWNER, copies, "css", ".cost::text")
        assert [result.found for _, result in found] == [["14 EUR"], [], []]

        stranger = Caller(id="bob", name="bob", scopes=frozenset())
        assert (await page_copies(screen.project, pages, stranger, URL)).copies == []
        with pytest.raises(BadRequest, match="is not there"):
            await copy_changes(screen.project, pages, OWNER, URL, "12.5")


async def test_a_program_reads_the_copies_of_a_page_their_fields_and_what_changed(screen: Screen) -> None:
    await page_with_history(screen)
    async with screen.client() as client:
        listed = await client.call("get_pages_copies", url=URL, limit=2)
        assert [one["failure"] for one in listed["copies"]] == ["parse", ""]
        assert (len({one["hash"] for one in listed["copies"]}), listed["more"]) == (2, 1)
        older = await client.call("get_pages_copies", url=URL, skip=2)
        assert (len(older["copies"]), older["more"]) == (1, 0)

        second = listed["copies"][1]["id"]
        found = await client.call("get_pages_copies_changes", url=URL, copy=second)
        assert (found["copy"], found["against"]) == (listed["copies"][1], older["copies"][0])
        assert {"-10 EUR", "+12 EUR"} <= set(found["lines"])
        (record,) = found["records"]
        assert (record["key"], record["data"]["price"]) == ("7", 12)
        assert record["fields"] == [{"field": "price", "before": 10, "after": 12}]
        back = await client.call("get_pages_copies_changes", url=URL, copy=older["copies"][0]["id"], against=second)
        assert back["records"][0]["fields"] == record["fields"]
        first = await client.call("get_pages_copies_changes", url=URL, copy=older["copies"][0]["id"])
        assert (first["against"], first["records"][0]["data"]["price"]) == (None, 10)

        for wrong, status in (({"url": URL, "copy": "12.5"}, 422), ({"url": "https://lamps.example/none"}, 404)):
            with pytest.raises(ServerError) as refused:
                await client.call("get_pages_copies_changes", **wrong)
            assert refused.value.status == status
    for scopes, status in ((("records",), 403), (("scrape",), 200)):
        key = await screen.served.new_key(scopes[0], *scopes)
        assert (await screen.served.get("/api/v1/pages/copies", key, url=URL)).status_code == status


async def test_two_copies_are_compared_in_their_text_and_in_the_fields_of_their_records(
    screen: Screen,
) -> None:
    await page_with_history(screen)
    page = await screen.person()
    await page.goto(f"/ui/copies?url={URL}")
    await expect(page.get_by_role("region", name="Copies").locator("tbody tr")).to_have_count(3)
    await expect(page.locator(".diff ins")).to_contain_text("14 EUR")

    await page.get_by_role("region", name="Copies").locator("tbody tr").nth(1).get_by_role("link").first.click()
    await expect(page.locator(".diff del")).to_contain_text("10 EUR")
    fields = page.get_by_role("region", name="Fields that differ")
    await expect(fields.locator("tbody tr")).to_have_text(["7price1012"])
    await expect(page.get_by_role("img", name="Picture of the page")).to_be_visible()
    assert await page.get_by_role("img", name="Picture of the page").evaluate("one => one.decode().then(() => true)")

    await page.get_by_label("Selector to try").fill(".price")
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_role("region", name="Matches on each copy").locator("tbody tr")).to_have_count(3)


async def test_a_page_without_copies_says_so_without_a_script(screen: Screen) -> None:
    page = await screen.person(java_script_enabled=False)
    await page.goto("/ui/copies")
    await page.get_by_label("Address of a page").fill("https://lamps.example/nothing")
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_text("No copy of this page is in the archive.")).to_be_visible()

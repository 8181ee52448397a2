"""A recipe is made by choosing values in the outline of an archived page."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import Attempt, PageFacts, PageResult
from gossamer.parse.page import Page
from gossamer.recipe.reader import read_recipe
from gossamer.recipe.spider import check_page, spider_of

from .screen import Screen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]
URL = "https://lamps.example/item/{}"
NAMES = ("Moss lamp", "Fern chair", "Reed clock", "Sedge stool")
BODY = (
    "<title>{name}</title><h1>{name}</h1><p class=price>{n}2.50 €</p><dl><dt>Article</dt><dd>AB-{n}</dd></dl>"
    "<script>document.title = 'script'</script><p onclick=\"alert(1)\">&lt;img src=x onerror=alert(1)&gt;</p>"
)


def snapshot_of(n: int, at: float) -> Snapshot:
    return Snapshot(
        url=URL.format(n), requested_url=URL.format(n), status=200, headers=Headers((("content-type", "text/html"),)),
        body=BODY.format(name=NAMES[n], n=n + 1).encode(), fetched_at=at, job="lamps-1",
    )  # fmt: skip


async def lamps(screen: Screen) -> None:
    """Four pages of one kind in the archive."""
    project = screen.project
    fingerprints = [project.rules.fingerprint(URL.format(n)) for n in range(4)]
    if await project.records.visits(fingerprints[0]):
        return
    at = project.clock.now()
    refs = await project.archive.put([snapshot_of(n, at) for n in range(4)])
    for n, (ref, fingerprint) in enumerate(zip(refs, fingerprints, strict=True)):
        facts = PageFacts(
            fingerprint=fingerprint, url=URL.format(n), job="lamps-1", fetched_at=at, status=200, archive_ref=ref,
            spider="lamps",
        )  # fmt: skip
        attempt = Attempt(
            at=at, job="lamps-1", url=URL.format(n), fingerprint=fingerprint, site="lamps.example", worker="w",
            attempt=1, outcome="done", status=200,
        )  # fmt: skip
        await project.records.save([PageResult(attempt=attempt, page=facts, records=())])


async def test_values_are_taken_from_the_texts_of_a_page_and_become_a_recipe(screen: Screen) -> None:
    await lamps(screen)
    page = await screen.person()
    await page.goto("/ui/outline")
    await page.get_by_label("Address of a page").fill(URL.format(1))
    await page.get_by_role("button", name="Show its texts").click()

    await page.get_by_role("button", name="Take Fern chair as title").click()
    await page.get_by_role("button", name="Take 22.50 € as price").click()
    await page.get_by_role("button", name="Take AB-2 as article").click()
    chosen = page.get_by_label("Chosen values")
    await expect(chosen.last).to_have_value("title = Fern chair\nprice = 22.50 €\narticle = AB-2\n")
    await page.get_by_role("button", name="Learn the rules").click()

    await expect(page.get_by_role("row", name="price").first).to_contain_text("ok")
    await expect(page.get_by_role("row", name="article")).to_contain_text("AB-")
    text = await page.locator("#recipe ~ pre").inner_text()
    spider = spider_of(read_recipe(text.encode(), "lamps.toml"))()
    (item,) = check_page(spider, "item", Page(snapshot_of(3, 0.0))).items
    assert (item.title, str(item.price), item.article) == ("Sedge stool", "42.50 EUR", "AB-4")
    await expect(page.get_by_text("gossamer new NAME --example")).to_be_visible()


async def test_the_markup_of_the_site_is_text_in_the_outline(screen: Screen) -> None:
    await lamps(screen)
    page = await screen.person()
    await page.goto(f"/ui/outline?url={URL.format(1)}")

    await expect(page.get_by_role("cell", name="<img src=x onerror=alert(1)>", exact=True)).to_be_visible()
    assert await page.locator("main img, main script, main [onclick]").count() == 0
    assert await page.get_by_role("cell", name="script").count() == 0


async def test_a_value_that_is_not_on_the_page_is_named(screen: Screen) -> None:
    await lamps(screen)
    page = await screen.person()
    await page.goto(f"/ui/outline?url={URL.format(1)}&fields=maker = Nobody")
    await page.get_by_role("button", name="Learn the rules").click()

    await expect(page.get_by_text("maker='Nobody'")).to_be_visible()
    screen.errors.clear()  # the browser tells of the 400


async def test_a_viewer_sees_the_texts_and_takes_none(screen: Screen) -> None:
    await lamps(screen)
    page = await screen.person(key=await screen.served.new_key("viewer of outlines", role="viewer"))
    await page.goto(f"/ui/outline?url={URL.format(1)}")

    await expect(page.get_by_role("cell", name="Fern chair").first).to_be_visible()
    assert await page.get_by_role("button", name="Take").count() == 0
    assert await page.get_by_role("button", name="Learn the rules").count() == 0


async def test_a_page_that_is_not_in_the_archive_is_told(screen: Screen) -> None:
    page = await screen.person()
    await page.goto("/ui/outline?url=https://lamps.example/other")
    await expect(page.get_by_text("This page is not in the archive")).to_be_visible()


RECIPE = """start = "https://lamps.example/item/1"
[pages.item]
key = "article"
fields.article = { label = "Article" }
fields.title = { css = "h1", required = true }
"""


async def test_the_page_of_a_recipe_tells_how_stable_its_rules_are(screen: Screen) -> None:
    await lamps(screen)
    (screen.project.settings.root / "spiders" / "lamps.toml").write_text(RECIPE, encoding="utf-8")
    page = await screen.person()
    await page.goto("/ui/spiders/lamps/healing")
    await page.get_by_role("button", name="How stable are its rules?").click()

    row = page.get_by_role("region", name="Stability", exact=True).get_by_role("row", name="item.article")
    await expect(row).to_contain_text("label")
    await expect(row).to_contain_text("of 3 pages")

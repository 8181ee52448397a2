"""Records, their history, their quality and their exports in the dashboard."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from playwright.async_api import expect

from gossamer.demo.catalogue import Catalogue
from gossamer.model.record import Attempt, PageResult, Record
from gossamer.server.ui.charts import Series, bars, lines
from gossamer.server.ui.records import MOST_WORDS, VERSIONS_SHOWN, compared
from gossamer.store.contract import RecordQuery

from .screen import Screen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]


@pytest.fixture(scope="module")
def crawled() -> dict[str, str]:
    return {}


async def _crawled_twice(screen: Screen, crawled: dict[str, str]) -> str:
    """The shop, and the shop with other prices."""
    if not crawled:
        await screen.crawl(limit=150)
        screen.shop.catalogue = Catalogue(2)
        crawled["job"] = await screen.crawl(limit=150)
    return crawled["job"]


async def test_records_stand_in_a_table_with_the_items_own_columns(screen: Screen, crawled: dict[str, str]) -> None:
    await _crawled_twice(screen, crawled)
    page = await screen.person()
    await page.goto("/ui/records")
    await page.get_by_label("Type").select_option("Product")
    await page.get_by_role("button", name="Show").click()

    await expect(page.get_by_role("columnheader", name="title")).to_be_visible()
    assert "type=Product" in page.url
    heads = await page.locator("thead th").all_inner_texts()
    assert {"sku", "brand", "price", "availability"} <= set(heads)
    assert "EUR" in await page.locator("tbody").inner_text()


async def test_a_record_shows_its_price_over_time_and_what_changed(screen: Screen, crawled: dict[str, str]) -> None:
    await _crawled_twice(screen, crawled)
    changed = [one async for one in screen.project.records.records(RecordQuery(type="Product")) if one.version > 1]
    (record, *_) = [one for one in changed if len(await _prices(screen, one)) > 1]
    before, after = await _prices(screen, record)
    page = await screen.person()
    await page.goto(f"/ui/records?type=Product&q={record.key}")
    await page.get_by_role("link", name=record.key, exact=True).click()

    await expect(page.get_by_role("img", name="price.amount over time")).to_be_visible()
    await expect(page.locator("del", has_text=before)).to_be_visible()
    await expect(page.locator("ins", has_text=after)).to_be_visible()
    outside = page.get_by_role("link", name="the page")
    assert await outside.get_attribute("rel") == "noreferrer noopener nofollow"


async def _prices(screen: Screen, record) -> list[str]:
    versions = await screen.project.records.history(record.type, record.site, record.key)
    found = [version.data.partition('"amount":"')[2].partition('"')[0] for version in versions]
    return list(dict.fromkeys(one for one in found if one))


async def test_what_is_filtered_is_exported(screen: Screen, crawled: dict[str, str]) -> None:
    job = await _crawled_twice(screen, crawled)
    page = await screen.person()
    await page.goto(f"/ui/records?job={job}&type=Product")
    async with page.expect_download() as begun:
        await page.get_by_role("link", name="CSV").click()
    path = await (await begun.value).path()
    rows = list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))

    assert len(rows) == await screen.project.records.count(RecordQuery(job=job, type="Product", gone=False))
    assert {"sku", "title"} <= rows[0].keys()


async def test_an_export_by_the_address_of_a_page_has_the_rows_of_the_table(
    screen: Screen, crawled: dict[str, str]
) -> None:
    await _crawled_twice(screen, crawled)
    stored = [one async for one in screen.project.records.records(RecordQuery(type="Product", gone=False))]
    url = stored[0].url
    page = await screen.person()
    await page.goto("/ui/records")
    await page.get_by_label("Key or page").fill(url)
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_role("link", name="JSON Lines")).to_be_visible()
    shown = await page.locator("tbody th").all_inner_texts()
    assert shown == [one.key for one in stored if one.url == url]

    for name in ("JSON Lines", "CSV"):
        async with page.expect_download() as begun:
            await page.get_by_role("link", name=name).click()
        text = (await (await begun.value).path()).read_text("utf-8")
        if name == "CSV":
            assert [row["_key"] for row in csv.DictReader(io.StringIO(text))] == shown
        else:
            assert [json.loads(line)["_meta"]["key"] for line in text.splitlines()] == shown


async def test_pages_of_a_list_follow_each_other(screen: Screen, crawled: dict[str, str]) -> None:
    await _crawled_twice(screen, crawled)
    page = await screen.person()
    stored = [one.key async for one in screen.project.records.records(RecordQuery(gone=False))]
    await page.goto("/ui/records")
    for wanted in (stored[::-1], stored):
        shown = await page.locator("tbody th").all_inner_texts()
        assert len(shown) == 50
        while await page.get_by_role("link", name="Next page").count():
            async with page.expect_navigation():
                await page.keyboard.press("n")
            shown += await page.locator("tbody th").all_inner_texts()
        assert [key.removesuffix(" gone") for key in shown] == wanted
        await page.get_by_role("link", name="Record, by age").click()


async def test_records_are_sorted_by_a_click_on_a_column_and_filters_stay(
    screen: Screen, crawled: dict[str, str]
) -> None:
    await _crawled_twice(screen, crawled)
    page = await screen.person()
    await page.goto("/ui/records?type=Product")
    for direction in ("descending", "ascending"):
        head = page.get_by_role("columnheader", name="price")
        await head.get_by_role("link").click()
        await expect(head).to_have_attribute("aria-sort", direction)
        place = (await page.locator("thead th a").all_inner_texts()).index("price")
        cells = await page.locator(f"tbody tr > :nth-child({place + 1})").all_inner_texts()
        amounts = [float(one.partition("\u00a0")[0]) for one in cells if one]
        assert amounts == sorted(amounts, reverse=direction == "descending")
        assert len(amounts) > 10
    assert "type=Product" in page.url
    await page.get_by_label("Changed").select_option("1d")
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_role("columnheader", name="price")).to_have_attribute("aria-sort", "ascending")


async def test_quality_is_told_by_field_and_day(screen: Screen, crawled: dict[str, str]) -> None:
    await _crawled_twice(screen, crawled)
    page = await screen.person()
    await page.goto("/ui/quality?spider=shop")
    await expect(page.get_by_role("img", name="Share of faultless items by day")).to_be_visible()
    (rating,) = [score for score in await _scores(screen) if score.field == "rating"]
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="rating"))
    await expect(row.get_by_role("cell").nth(2)).to_have_text(f"{rating.checked:,}")

    await page.get_by_role("link", name="Faultless").click()
    await page.get_by_role("link", name="Faultless").click()
    shares = await page.get_by_role("region", name="Scores by field").locator("tbody td:nth-child(6)").all_inner_texts()
    values = [float(one.removesuffix(" %")) for one in shares]
    assert values == sorted(values)
    await page.get_by_label("Search", exact=True).fill("rating")
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_role("region", name="Scores by field").get_by_role("row")).to_have_count(2)


async def _scores(screen: Screen):
    from gossamer.project.records.records import quality

    return await quality(screen.project, "shop", days=1)


async def test_filters_and_scores_name_the_spiders_of_the_jobs_that_a_key_sees(
    screen: Screen, crawled: dict[str, str]
) -> None:
    await _crawled_twice(screen, crawled)
    key = await screen.served.new_key("newcomer", "records", "jobs")
    page = await screen.person(key=key)
    offered = page.get_by_label("Spider").locator("option")
    for path in ("/ui/records", "/ui/quality"):
        await page.goto(path)
        assert await offered.all_inner_texts() == ["any"], path
        for name in ("shop", "Product"):
            assert name not in await page.locator("main").inner_text(), path
    assert (await screen.served.get("/api/v1/quality", key)).json() == []

    async with screen.served.client(key) as client:
        await client.wait((await client.crawl(spider="shop", limit=2)).job_id, every=0.05)
    for path in ("/ui/records", "/ui/quality"):
        await page.goto(path)
        assert await offered.all_inner_texts() == ["any", "shop"], path
    await expect(page.get_by_role("region", name="Scores by field")).to_be_visible()
    await page.goto("/ui/records")
    await page.get_by_label("Type").fill("Product")
    await page.get_by_role("button", name="Show").click()
    await expect(page).to_have_url(re.compile("type=Product"))


async def test_records_of_other_keys_are_not_there(screen: Screen, crawled: dict[str, str]) -> None:
    job = await _crawled_twice(screen, crawled)
    page = await screen.person("records", "jobs")
    await page.goto("/ui/records")
    assert await page.locator("tbody tr").count() == 0
    answer = await page.goto(f"/ui/records?job={job}")
    assert answer is not None
    assert answer.status == 404
    screen.errors.clear()


async def test_texts_that_would_take_minutes_to_compare_are_shown_one_after_the_other() -> None:
    few = compared("the old lamp is red and small", "the new lamp is blue and small")
    assert few == "the <del>old</del> <ins>new</ins> lamp is <del>red</del> <ins>blue</ins> and small"
    before, after = "a b " * 990, "b a a " * 660
    shown = compared(f"lamp {before}end", f"lamp {after}end")
    assert (shown.count("<del>"), shown.count("<ins>")) == (1, 1)
    assert shown.startswith("lamp <del>")
    assert shown.endswith("</ins> end")
    assert compared("same " * MOST_WORDS * 2 + "x", "same " * MOST_WORDS * 2 + "y").endswith(
        "same <del>x</del> <ins>y</ins>"
    )


async def test_a_record_with_hundreds_of_versions_and_numbers_beyond_any_chart_is_shown(screen: Screen) -> None:
    url = "https://flighty.example/1"
    for n in range(VERSIONS_SHOWN + 2):
        record = Record(
            type="Thing", site="flighty.example", key="flighty", url=url, job="none-1", spider="things",
            data=f'{{"count": {n}, "atoms": 1{"0" * 400}{n}}}', content_hash=n.to_bytes(16), scraped_at=1.8e9 + n,
        )  # fmt: skip
        attempt = Attempt(
            at=1.8e9 + n, job="none-1", url=url, fingerprint=b"f" * 16, site="flighty.example", worker="w", attempt=1,
            outcome="done", route="direct",
        )  # fmt: skip
        await screen.project.records.save([PageResult(attempt=attempt, records=(record,))])
    page = await screen.person()
    await page.goto("/ui/record?key=flighty")
    await expect(page.get_by_role("img", name="count over time")).to_be_visible()
    rows = page.get_by_role("region", name="Versions").get_by_role("row")
    await expect(rows).to_have_count(1 + VERSIONS_SHOWN)
    await expect(rows.filter(has_text="First seen")).to_have_count(0)
    await expect(page.get_by_text("gossamer history KEY")).to_be_visible()


async def test_whole_numbers_of_things_are_not_marked_in_quarters() -> None:
    times = [0.0, 60.0]
    assert "0.25" not in bars("Runs", times, [Series("runs", [0.0, 1.0])])
    assert "0.25" in lines("Share", times, [Series("share", [0.5, 1.0])])

"""What has changed on a page since its key had it before (`changeTracking`, and our own format `changes`), and options
that are taken with a warning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiohttp import web

from .serving import serving, settings_of
from .test_scrape import own_site

HERE = {"fetch__allow_hosts": ["site0.localhost"]}
SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}, "price": {"type": "number"}}}
LINES = [f"<p>Line {n} of a text that stays as it is.</p>" for n in range(1, 9)]


class Shop:
    """A page that is what `price` says; `None`: it is gone. `etag` makes it answer 304."""

    def __init__(self) -> None:
        self.price: str | None = "10.00"
        self.careful = False

    async def answer(self, request: web.Request) -> web.Response:
        if request.path == "/robots.txt":
            return web.Response(status=404)
        if self.price is None:
            return web.Response(status=404, text="gone", content_type="text/html")
        tag = f'"{self.price}"' if self.careful else ""
        if tag and request.headers.get("If-None-Match") == tag:
            return web.Response(status=304)
        facts = f'{{"@type": "Product", "name": "Lamp", "offers": {{"price": "{self.price}"}}}}'
        text = (
            f'<html><body><script type="application/ld+json">{facts}</script><main><h1>Lamp</h1>{"".join(LINES[:4])}'
            f"<p>It costs {self.price} euros today, and it is worth every cent of it.</p>{''.join(LINES[4:])}</main>"
        )
        return web.Response(text=text, content_type="text/html", headers={"ETag": tag} if tag else {})


def tracking(url: str, **more: Any) -> dict[str, Any]:
    return {"url": url, "formats": ["markdown", {"type": "changeTracking", **more}]}


async def test_a_page_is_new_the_same_changed_and_gone(tmp_path: Path) -> None:
    shop, told = Shop(), []
    async with own_site(shop.answer) as url, serving(settings_of(tmp_path, **HERE)) as door:
        for price in ("10.00", "10.00", "12.50", None):
            shop.price = price
            answer = (await door.post("/v2/scrape", tracking(url, modes=["git-diff", "json"], schema=SCHEMA))).json()
            told.append(answer["data"]["changeTracking"])
        own = await door.post("/api/v1/scrape", {"url": url, "formats": ["changes"]})

    assert [one["changeStatus"] for one in told] == ["new", "same", "changed", "removed"]
    assert told[0]["previousScrapeAt"] is None
    assert [one["previousScrapeAt"] for one in told[1:]] == sorted(one["previousScrapeAt"] for one in told[1:])
    assert all(one["visibility"] == "visible" for one in told)
    changed = told[2]
    assert changed["json"] == {"price": {"previous": 10.0, "current": 12.5}}
    lines = changed["diff"]["text"].splitlines()
    assert [line for line in lines if line[:1] in "+-"][2:] == [
        "-It costs 10.00 euros today, and it is worth every cent of it.",
        "+It costs 12.50 euros today, and it is worth every cent of it.",
    ]
    (file,) = changed["diff"]["json"]["files"]
    (chunk,) = file["chunks"]
    assert (file["additions"], file["deletions"], chunk["content"]) == (1, 1, lines[2])
    by_kind = {one["type"]: one for one in chunk["changes"]}
    assert set(by_kind) == {"normal", "add", "del"}
    assert by_kind["del"]["ln"] == by_kind["add"]["ln"]
    assert chunk["oldLines"] == sum(one["type"] != "add" for one in chunk["changes"])
    assert own.json()["data"]["changes"]["status"] == "same"  # still gone


async def test_a_history_is_that_of_the_key_also_where_the_site_says_that_nothing_changed(tmp_path: Path) -> None:
    shop, told = Shop(), []
    shop.careful = True
    async with own_site(shop.answer) as url, serving(settings_of(tmp_path, **HERE)) as door:
        other = await door.new_key("other", "scrape")
        for key in (door.key, other, other, door.key):
            headers = {"x-api-key": key}
            answer = await door.http.post("/v2/scrape", json=tracking(url), headers=headers)
            told.append(answer.json()["data"]["changeTracking"]["changeStatus"])

    assert told == ["new", "new", "same", "same"]


async def test_a_batch_tells_the_changes_of_each_of_its_pages(tmp_path: Path) -> None:
    shop = Shop()
    async with own_site(shop.answer) as url, serving(settings_of(tmp_path, **HERE)) as door:
        wish = {"urls": [f"{url}/1", f"{url}/2"], "formats": ["markdown", "changeTracking"]}
        found = []
        for price in ("10.00", "11.00"):
            shop.price = price
            begun = (await door.post("/v2/batch/scrape", wish)).json()
            await door.client().wait(begun["id"], every=0.05)
            pages = (await door.get(f"/v2/batch/scrape/{begun['id']}")).json()["data"]
            found.append([one["changeTracking"]["changeStatus"] for one in pages])

    assert found == [["new", "new"], ["changed", "changed"]]


async def test_what_is_not_done_as_it_is_written_is_a_warning(tmp_path: Path) -> None:
    shop = Shop()
    async with own_site(shop.answer) as url, serving(settings_of(tmp_path, **HERE)) as door:
        wish = {"url": url, "mobile": True, "parsers": [{"type": "pdf", "maxPages": 3}]}
        one = (await door.post("/v2/scrape", wish)).json()
        none = (await door.post("/v2/scrape", {"url": url, "parsers": ["pdf"], "mobile": False})).json()
        batch = (await door.post("/v2/batch/scrape", {"urls": [url], "maxConcurrency": 2})).json()
        wish = {"url": url, "maxConcurrency": 1, "delay": 0, "scrapeOptions": {"parsers": []}}
        crawl = (await door.post("/v2/crawl", wish)).json()
        jobs = {id: await door.project.state.jobs.job(id) for id in (batch["id"], crawl["id"])}

    assert one["data"]["warning"] == (
        "mobile: pages are rendered as on a desktop. parsers: maxPages has no effect: a PDF is read as a whole."
    )
    assert "warning" not in none["data"]
    assert batch["warning"].startswith("maxConcurrency: it holds for each site")
    assert [words.partition(":")[0] for words in crawl["warning"].split(". ")] == ["delay", "parsers"]
    assert [job.politeness.concurrency for job in jobs.values() if job is not None] == [2, 1]

"""Make the pictures of the dashboard: a real project, crawled and crawling, in a real Chromium, light and dark.

    python docs/images/dashboard.py FOLDER [WIDTH ...]    # every view; 1440 and 390 pixels unless widths are named
    python docs/images/dashboard.py --best                # the pictures of the manual, in this folder

The demo shop is crawled twice, with changes in between, and a third crawl goes on while the pictures are made.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import quote

from playwright.async_api import Browser, Page, async_playwright

from gossamer import settings as read_settings
from gossamer.client import AsyncClient
from gossamer.demo.catalogue import Catalogue
from gossamer.demo.shop import open_shop
from gossamer.fetch.browser.chromium import find_executable, wants_sandbox
from gossamer.model.events import NullSink
from gossamer.project.access.keys import SCOPES, add_key
from gossamer.project.dead_letters.dead_letters import DeadLetterChoice, list_letters
from gossamer.project.jobs.worker_pool import WorkerPool
from gossamer.project.open import open_project
from gossamer.project.pages.results import PageReader
from gossamer.project.schedules.api_schedules import ScheduleRequest, write_schedule
from gossamer.server.app import make_app
from gossamer.server.run import HttpServer, _config, listen
from gossamer.store.contract import RecordQuery

HERE = Path(__file__).resolve().parent
SPIDER = '''
from gossamer.demo.spider import DemoShop

class {name}(DemoShop):
    """The demo shop{what}."""
    name = "{lower}"
    start_urls = ["{start}"]
    allowed_domains = ["shop.localhost"]
    rate = "{rate}"
'''
SETTINGS = """
[politeness]
rate = "60/s"
concurrency = 8

[proxies.city]
urls = ["http://exit1.example:8080", "http://exit2.example:8080"]
"""
SCHEDULES = {
    "nightly": {"cron": "0 3 * * *"},
    "prices": {"every": "45m"},
    "stock": {"cron": "0 6,12,18 * * 1-5"},
}
BEST = {
    "dashboard-overview": ("/ui/overview", "light"),
    "dashboard-job": ("/ui/jobs/{job}", "dark"),
    "dashboard-records": ("/ui/records?type=Product", "light"),
    "dashboard-record": ("/ui/record?type=Product&key=LIT-004", "dark"),
    "dashboard-queue": ("/ui/queue", "light"),
    "dashboard-attempts": ("/ui/attempts", "dark"),
    "dashboard-boards": ("/ui/boards/spiders", "light"),
    "dashboard-log": ("/ui/jobs/{job}#log", "light"),
    "dashboard-compare": ("/ui/jobs/{job}/compare/{before}", "dark"),
    "dashboard-copies": ("/ui/copies?url={page}&selector=.price", "light"),
}


@asynccontextmanager
async def a_project(folder: Path) -> AsyncIterator[tuple[str, str, dict[str, object]]]:
    """A crawled project behind a server: its address, a key, and what the addresses of views name."""
    async with AsyncExitStack() as stack:
        shop = await stack.enter_async_context(open_shop())
        (folder / "spiders").mkdir()
        (folder / "gossamer.toml").write_text(SETTINGS, encoding="utf-8")
        options = {"fetch.allow_hosts": ["shop.localhost", "outlet.localhost"]}
        options |= {
            "politeness.concurrency": 8,
            "retry.base": "100ms",
            "project": "garden-goods",
            "server.rate": "unlimited",
        }

        def write(name: str, what: str, rate: str) -> None:
            text = SPIDER.format(name=name, lower=name.lower(), what=what, start=shop.url, rate=rate)
            (folder / "spiders" / f"{name.lower()}.py").write_text(text, encoding="utf-8")

        write("Shop", ", as fast as it bears", "60/s")
        write("Prices", ", gently", "2/s")
        found = read_settings.load(start=folder, environ={}, flags=options)
        project = await stack.enter_async_context(open_project(found))
        pages = await stack.enter_async_context(PageReader(project))
        key = (await add_key(project, "ada", list(SCOPES))).key
        pool = WorkerPool(await stack.enter_async_context(open_project(found)), NullSink())
        working = asyncio.create_task(pool.run())
        app = make_app(project, pages)
        server = HttpServer(_config(app))
        listener = stack.enter_context(listen("127.0.0.1", 0))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with AsyncClient(address, key) as client:
            before = (await client.crawl(spider="shop")).job_id
            await client.wait(before, every=0.2)
            for limit in (10, 20, 5, 40):
                await client.wait((await client.crawl(spider="shop", limit=limit)).job_id, every=0.2)
            shop.catalogue = Catalogue(2)  # other prices, some wares gone
            job = (await client.crawl(spider="shop", limit=400)).job_id
            await client.wait(job, every=0.2)
            await client.crawl(spider="prices")
            for name, wish in SCHEDULES.items():
                await write_schedule(project, ScheduleRequest(name=name, spider="shop", limit=1000, **wish))
            await asyncio.sleep(20)  # so that there is something to see of it
        try:
            letter = (await list_letters(project, DeadLetterChoice(job=job), limit=1)).dead_letters[0]
            changed = [one async for one in project.records.records(RecordQuery(type="Product")) if one.version > 1]
            page = quote(changed[0].url, safe="") if changed else ""
            names = {"job": job, "before": before, "letter": letter.id, "url": quote(letter.url, safe=""), "page": page}
            yield address, key, names
        finally:
            app.state.dashboard.close()
            server.should_exit = True
            await serving
            pool.drain()
            await working


async def pictures(
    browser: Browser, address: str, key: str, wanted: dict[str, tuple[str, str, int]], to: Path, *, best: bool
) -> None:
    looks: dict[tuple[str, int], Page] = {}
    for name, (path, scheme, width) in wanted.items():
        if (scheme, width) not in looks:
            looks[scheme, width] = await signed_in(browser, address, key, scheme, width, height=700 if best else 900)
        page = looks[scheme, width]
        await page.goto(path)
        await page.screenshot(path=to / f"{name}.png", full_page=not best)


async def signed_in(browser: Browser, address: str, key: str, scheme: str, width: int, height: int) -> Page:
    context = await browser.new_context(
        base_url=address,
        color_scheme=scheme,  # type: ignore[arg-type]  # light or dark
        viewport={"width": width, "height": height},
        timezone_id="Europe/Berlin",
    )
    page = await context.new_page()
    await page.goto("/ui/sign-in")
    await page.locator("input[name=key]").fill(key)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url("**/ui/overview")
    return page


async def main() -> None:
    best = "--best" in sys.argv
    rest = [word for word in sys.argv[1:] if not word.startswith("--")]
    to = HERE if best else Path(rest[0])
    to.mkdir(exist_ok=True, parents=True)
    widths = [int(word) for word in rest[1:]] or [1440, 390]
    with tempfile.TemporaryDirectory() as folder:
        async with a_project(Path(folder)) as (address, key, names), async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=find_executable(), chromium_sandbox=wants_sandbox()
            )
            if best:
                wanted = {name: (path.format(**names), scheme, 1200) for name, (path, scheme) in BEST.items()}
            else:
                wanted = {
                    f"{name}-{width}-{scheme}": (path.format(**names), scheme, width)
                    for name, path in PATHS.items()
                    for width in widths
                    for scheme in ("light", "dark")
                }
            await pictures(browser, address, key, wanted, to, best=best)
            await browser.close()


PATHS = {
    "overview": "/ui/overview",
    "boards": "/ui/boards/spiders",
    "sites": "/ui/boards/sites",
    "compare": "/ui/jobs/{job}/compare/{before}",
    "pages": "/ui/jobs/{job}/pages?state=done",
    "copies": "/ui/copies?url={page}&selector=.price",
    "search": "/ui/search?q=shop",
    "docs": "/docs",
    "jobs": "/ui/jobs",
    "job": "/ui/jobs/{job}",
    "records": "/ui/records?type=Product",
    "record": "/ui/record?type=Product&key=LIT-004",
    "quality": "/ui/quality",
    "spiders": "/ui/spiders",
    "try": "/ui/try?url=http%3A%2F%2Fshop.localhost%2F",
    "queue": "/ui/queue",
    "site": "/ui/queue/shop.localhost",
    "dead": "/ui/dead",
    "letter": "/ui/dead/{job}/{letter}",
    "schedules": "/ui/schedules",
    "schedule": "/ui/schedules/nightly",
    "why": "/ui/why?url={url}",
    "attempts": "/ui/attempts",
    "waterfall": "/ui/attempts/page?url={url}",
    "alerts": "/ui/alerts",
    "alert": "/ui/alerts/success",
    "workers": "/ui/workers",
    "routes": "/ui/routes",
    "callbacks": "/ui/callbacks",
    "keys": "/ui/keys",
    "settings": "/ui/settings?q=politeness",
}

if __name__ == "__main__":
    asyncio.run(main())

"""`gossamer demo`: the built-in shop on loopback, crawled. The first thing a newcomer sees."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from ..demo.shop import USUAL_PORT, open_shop
from ..demo.spider import DemoShop
from ..model.outcome import Outcome
from ..model.url import host_of
from .app import app, err, settings_with, styled
from .crawl import run_crawl

DEMO_RATE = "60/s"
AS_IT_SHOULD_BE = "This is expected: the shop has dead links and a product page without a product, on purpose."


@app.command("demo")
def demo_verb(
    serve: Annotated[bool, typer.Option("--serve", help="Only serve the shop, for your own spiders.")] = False,
    revision: Annotated[int, typer.Option(min=1, help="2 or higher: the shop after price changes.")] = 1,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help=f"The port (default {USUAL_PORT}); 0 picks a free one.")
    ] = None,
    rate: Annotated[str, typer.Option(help="Requests per site.")] = DEMO_RATE,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over instead of resuming.")] = False,
) -> None:
    """Crawl the built-in demo shop. It needs no internet: the shop runs on this machine."""
    if serve:
        _serve(USUAL_PORT if port is None else port, revision)
        return
    with shop_in_background(port, revision) as urls:
        hosts = [host_of(url) for url in urls]
        settings = settings_with(**{"crawl.rate": rate, "fetch.allow_hosts": hosts})
        spider = DemoShop()
        spider.start_urls = [urls[0]]
        err.print(styled("The demo shop is open at [bold]{}[/]", urls[0]))
        if port is None and not urls[0].endswith(f":{USUAL_PORT}/"):
            # What an earlier crawl left open is at the usual port, where another program answers.
            err.print(f"Port {USUAL_PORT} is in use, so the shop took a free one, and the crawl starts over.")
            fresh = True
        report = run_crawl(spider, settings, fresh=fresh, command="gossamer demo")
    if not report.ended:
        raise typer.Exit(130)
    if report.job.outcome is not None and report.job.outcome.outcome is Outcome.WARNINGS:
        err.print(f"\n{AS_IT_SHOULD_BE}")


@contextmanager
def shop_in_background(port: int | None, revision: int) -> Iterator[list[str]]:
    """Run the shop in its own thread, with its own event loop. Yields its addresses."""
    opened: list[str] = []
    failure: list[BaseException] = []
    ready = threading.Event()
    closing = asyncio.Event()
    loop = asyncio.new_event_loop()

    async def run() -> None:
        try:
            async with open_shop(port=port, revision=revision) as shop:
                opened.extend([shop.url, shop.outlet_url])
                ready.set()
                await closing.wait()
        except BaseException as error:
            failure.append(error)
            ready.set()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), name="demo shop", daemon=True)
    thread.start()
    ready.wait()
    if failure:
        thread.join()
        raise failure[0]
    try:
        yield opened
    finally:
        loop.call_soon_threadsafe(closing.set)
        thread.join()


def _serve(port: int, revision: int) -> None:
    with shop_in_background(port, revision) as urls:
        err.print(styled("The demo shop is open at [bold]{}[/] and {}  [dim](Ctrl-C closes it)[/]", *urls[:2]))
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            err.print("Closed.")

"""The bench site crawled by hand: what is left of the cost when a crawler keeps nothing but the loop itself.

Runs in .venv-bench: `python hand_peer.py START_URL FOLDER`. aiohttp, selectolax and a set of addresses, 32 requests at
a time, records in FOLDER/records.jsonl; robots.txt is asked for and its rules are kept. No queue on disk, no archive,
no retries, no pace, no limits: the ceiling, not a peer.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import TextIO
from urllib.parse import urljoin

import aiohttp
import uvloop
from protego import Protego
from selectolax.lexbor import LexborHTMLParser


class Resolver(aiohttp.ThreadedResolver):
    """Names below localhost lead to this machine; uvloop asks the operating system, which may not know them."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        return await super().resolve("127.0.0.1" if host.endswith(".localhost") else host, port, family)


async def crawl(start: str, folder: Path) -> None:
    with (folder / "records.jsonl").open("w", encoding="utf-8") as out:
        connector = aiohttp.TCPConnector(resolver=Resolver())
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
            async with session.get(urljoin(start, "/robots.txt")) as answer:
                robots = Protego.parse(await answer.text())
            seen, waiting = {start}, asyncio.Queue[str]()
            waiting.put_nowait(start)
            visitors = [asyncio.create_task(visit(session, robots, seen, waiting, out)) for _ in range(32)]
            await waiting.join()
            for visitor in visitors:
                visitor.cancel()


async def visit(
    session: aiohttp.ClientSession, robots: Protego, seen: set[str], waiting: asyncio.Queue[str], out: TextIO
) -> None:
    while True:
        url = await waiting.get()
        async with session.get(url) as answer:
            tree = LexborHTMLParser(await answer.read())
        names = {"title": "h1.product-title", "price": ".price .amount", "description": "#description", "sku": ".sku"}
        found = {name: tree.css_first(selector).text() for name, selector in names.items()}
        out.write(json.dumps({"url": url, **found}, ensure_ascii=False) + "\n")
        for link in tree.css("a"):
            target = urljoin(url, link.attributes.get("href") or "")
            if target not in seen and robots.can_fetch(target, "bench"):
                seen.add(target)
                waiting.put_nowait(target)
        waiting.task_done()


if __name__ == "__main__":
    uvloop.run(crawl(sys.argv[1], Path(sys.argv[2])))

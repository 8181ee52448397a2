"""Poison: code and pages that end, block or exhaust the process that works on them.

    POISON='{"/page/7": "exit"}'    the spider's code for that path does what `exit` says

The pages are those of the park. What is poisonous is the spider, as in life: a page meets code that cannot bear it.
"""

from __future__ import annotations

SPIDER = """
import asyncio, ctypes, json, os, re
from urllib.parse import urlsplit
from gossamer import Item, Page, Spider

POISON = json.loads(os.environ["POISON"])

class Plant(Item, key="sku"):
    sku: str

def leave(page):
    os._exit(3)

def fault(page):
    ctypes.string_at(0)  # a read at address zero

def loop(page):
    while True:
        pass

def regex(page):
    re.match(r"(a+)+$", "a" * 60 + "b")

async def wait(page):
    await asyncio.sleep(1000)

async def wait_and_loop(page):
    await asyncio.sleep(0)
    loop(page)

def generator(page):
    yield Plant(sku="one")
    loop(page)

KINDS = {
    "exit": leave, "fault": fault, "loop": loop, "regex": regex, "wait": wait, "wait-and-loop": wait_and_loop,
    "generator": generator,
}

def in_the_pipeline(item, page):
    if POISON.get(urlsplit(page.url).path) == "step":
        loop(page)
    return item

class Park(Spider):
    start_urls = json.loads(os.environ["PARK_SEEDS"])
    pipeline = [in_the_pipeline]

    def parse(self, page: Page):
        kind = POISON.get(urlsplit(page.url).path)
        if kind in KINDS:
            return KINDS[kind](page)  # a coroutine and a generator are run by whoever called this
        return [Plant(sku=page.css(".sku::text").get()), *page.follow_all("a")]
"""


def nested(levels: int) -> bytes:
    """A page of so many elements, each in the one before."""
    return b"<title>deep</title>" + b"<div>" * levels + b'<a href="/next">next</a>'


def long_text(size: int) -> bytes:
    """A page with one text of so many bytes."""
    return b"<title>long</title><p>" + b"word " * (size // 5) + b'</p><a href="/next">next</a>'

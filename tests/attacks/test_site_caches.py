"""What a hostile site can put into the caches of a worker is bounded by size, not only by count.

Tried: links, hosts, names and texts of a hundred thousand characters, each another.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from gossamer.extract.links import LinkBase
from gossamer.extract.product.identity import _words
from gossamer.frontier.admission import Admission, LinkScope
from gossamer.frontier.contract import Added
from gossamer.model.task import Request
from gossamer.model.url import UrlRules, site_of

LONG = 100_000  # characters
TIMES = 150


def links() -> None:
    base = LinkBase("https://shop.example/")
    for number in range(TIMES):
        base.web_links([f"/{number}/{'x' * LONG}"])


def relative_links() -> None:
    for number in range(TIMES):
        base = LinkBase(f"https://shop.example/{number}/{'y' * LONG}/page")
        base.web_links([f"{number}/{'x' * LONG}", str(number)])


def hosts() -> None:
    for number in range(TIMES):
        site_of(f"https://{number}{'x' * LONG}.example/")


def product_names() -> None:
    for number in range(TIMES):
        _words(f"{number} {'x' * LONG}")


ADMISSION = Admission(LinkScope(), UrlRules())


def offered_links() -> None:
    for number in range(TIMES):
        judged = ADMISSION.judge([Request(url=f"https://shop.example/{number}/{'x' * LONG}")])
        ADMISSION.confirm(judged, Added(dropped=1))


@pytest.mark.parametrize("fill", [links, relative_links, hosts, product_names, offered_links])
def test_long_keys_are_not_kept(fill: Callable[[], None]) -> None:
    tracemalloc.start()
    try:
        fill()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < TIMES * LONG / 10

"""The spider of bench/fairness.py: 50 quick sites, followed; and as many URLs of the slow site as it is told.

The slow ones come first, which is the worst order: they are all queued before the first quick one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from gossamer import Page, Spider

PORT = os.environ["BENCH_PORT"]
SLOW_URLS = int(os.environ["BENCH_SLOW_URLS"])
SITES = 50


class ManySites(Spider):
    start_urls = [  # noqa: RUF012 - as the documentation shows it
        *(f"http://slow.localhost:{PORT}/item/{n}" for n in range(SLOW_URLS)),
        *(f"http://q{n}.localhost:{PORT}/" for n in range(SITES)),
    ]

    def parse(self, page: Page) -> Iterator[object]:
        yield from page.follow_all("a")

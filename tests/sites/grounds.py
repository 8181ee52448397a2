"""What the park looks like: pages, links and records as pure functions of host and number. No I/O.

Page `i` links to `2i + 1` and `2i + 2`, so page 0 leads to every page, and to some others that look random and are
the same on every run. Server and tests compute the same truth from the same `Grounds`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

LOREM = (
    "The path turns by the water and goes on under old trees. Someone has left a bench here, and a cup. "
    "A keeper walks by, counts the gates, writes a number down and closes the book again. "
)


class Grounds(msgspec.Struct, frozen=True, kw_only=True):
    """The whole plan. Times are milliseconds, because they travel on a command line; None means "not at all"."""

    pages: int = 100
    hosts: int = 1
    links: int = 6
    body_bytes: int = 2_000
    latency_ms: int = 0
    pages_of: dict[str, int] = {}  # host -> its own number of pages
    latency_ms_of: dict[str, int] = {}  # host -> its own latency
    held: str = ""  # the answer to this path waits until the park was asked for `held_until` pages
    held_until: int = 0
    robots: str | None = None  # None: robots.txt gives 404
    crawl_delay: float | None = None  # seconds; adds such a line to robots.txt
    crawl_delay_of: dict[str, float] = {}  # host -> its own crawl-delay
    edition: int = 0  # another one has other titles, on all pages
    apart: tuple[str, ...] = ()  # hosts with a port of their own, which can go away: `Park.go_away`
    validators: bool = False  # ETag on pages, 304 for If-None-Match
    flaky: int = 0  # linked pages that fail at first
    flaky_times: int = 1
    missing: int = 0  # links that give 404
    orders: int = 0  # of each host: addresses that take a POST, and nothing else; no page links to them
    rate_limited: int = 0  # linked pages that give 429 the first time
    retry_after: str = "1"  # what their Retry-After header says
    throttle: int | None = None  # pages that a host gives in any second; what is asked beyond gets 429
    tls: bool = False  # https, with a certificate that `Park.certificate` vouches for
    handshake_ms: tuple[int, int] = (0, 0)  # how long a TLS handshake takes, at random between the two
    http2: bool = False  # HTTP/2 for clients that speak it, over TLS; then every path gives the same page without links
    close_every: int | None = None  # after so many answers on one connection it is closed, as announced; HTTP/1.1 only
    drop_every: int | None = None  # of the requests on connections that served before, each so-and-so-many-th is read,
    # logged with status 0, and its connection closed without an answer
    drop_new: bool = False  # requests on new connections are counted and dropped as well

    def host_names(self) -> list[str]:
        return [f"site{n}.localhost" for n in range(self.hosts)]

    def page_count(self, host: str) -> int:
        return self.pages_of.get(host, self.pages)

    def latency(self, host: str) -> float:
        """Seconds between a request and its answer."""
        return self.latency_ms_of.get(host, self.latency_ms) / 1000

    def robots_txt(self, host: str) -> str | None:
        delay = self.crawl_delay_of.get(host, self.crawl_delay)
        if delay is None:
            return self.robots
        return f"{self.robots or 'User-agent: *'}\nCrawl-delay: {delay:g}\n"

    def paths(self, host: str) -> Iterator[str]:
        """Every path that gives a page sooner or later and is reachable from `/`."""
        yield "/"
        for number in range(1, self.page_count(host)):
            yield f"/page/{number}"
        for number in range(self.flaky):
            yield f"/flaky/{number}"
        for number in range(self.rate_limited):
            yield f"/retry-after/{number}"

    def links_of(self, host: str, number: int) -> list[str]:
        """Where page `number` leads. Page 0 also shows the odd corners."""
        count = self.page_count(host)
        targets = [n for n in (2 * number + 1, 2 * number + 2) if n < count]
        step = 7919 * number + 104_729  # primes: spread well, and alike on every run
        targets += [(step + 15_485_863 * k) % count for k in range(max(0, self.links - len(targets)))]
        paths = [page_path(n) for n in targets]
        if number == 0:
            paths += [f"/flaky/{n}" for n in range(self.flaky)]
            paths += [f"/retry-after/{n}" for n in range(self.rate_limited)]
            paths += [f"/missing/{n}" for n in range(self.missing)]
        return paths


def page_path(number: int) -> str:
    return f"/page/{number}" if number else "/"


def record_of(host: str, path: str, edition: int = 0) -> dict[str, Any]:
    """The one record that a page holds: sku, title, price, path."""
    label = host.partition(".")[0]
    _, kind, number = ("/page/0" if path == "/" else path).split("/")
    n = int(number)
    return {
        "sku": f"{label}-{kind}-{n:07}",
        "title": f"{kind.title()} {n} of {label}{f', edition {edition}' if edition else ''}",
        "price": f"{(n * 37 + len(label) * 11) % 9_900 + 100}.{(n * 7) % 100:02}",
        "path": path,
    }


def html_of(grounds: Grounds, host: str, path: str) -> bytes:
    record = record_of(host, path, grounds.edition)
    parts = path.split("/")
    paths = grounds.links_of(host, int(parts[2]) if path != "/" else 0) if parts[1] in ("", "page") else ["/"]
    links = "".join(f'<li><a href="{target}">{target}</a></li>' for target in paths)
    top = (
        f'<!doctype html><html><head><meta charset="utf-8"><title>{record["title"]}</title></head><body>'
        f'<h1 class="title">{record["title"]}</h1><p class="price">{record["price"]} EUR</p>'
        f'<p class="sku">{record["sku"]}</p><ul class="links">{links}</ul><div class="text">'
    )
    room = max(0, grounds.body_bytes - len(top) - 20)
    return b"".join((top.encode(), _prose(grounds.body_bytes)[:room], b"</div></body></html>"))


def sitemap_of(grounds: Grounds, host: str) -> bytes:
    return f"<urlset>{''.join(f'<url><loc>{path}</loc></url>' for path in grounds.paths(host))}</urlset>".encode()


@lru_cache(maxsize=1)
def _prose(size: int) -> bytes:
    return (LOREM * (size // len(LOREM) + 1)).encode()[:size]

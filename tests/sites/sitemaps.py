"""Sitemaps for a hostile site to show: honest ones of any size, made when they are asked for, and endless ones.

url = nested(site, 20_000)    an index of packed indexes of packed sitemaps; its pages are page(site, 0) and on
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable

from .hostile_server import Call, HostileSite, Reply, head, whole

LASTMODS = (  # by turns; the second is in the future, the third is garbage, the fourth is older than the web
    "<lastmod>2024-05-06T07:08:09Z</lastmod>",
    "<lastmod>2999-01-01</lastmod>",
    "<lastmod>yesterday</lastmod>",
    "<lastmod>0001-01-01T00:00:00</lastmod>",
)
FIRST_LASTMOD = 1_714_979_289.0


def urlset(urls: Iterable[str], *, lastmods: tuple[str, ...] = ("",), first: int = 0) -> bytes:
    rows = (
        f"<url><loc>{url}</loc>{lastmods[number % len(lastmods)]}</url>\n" for number, url in enumerate(urls, first)
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset>{"".join(rows)}</urlset>'.encode()


def index(urls: Iterable[str]) -> bytes:
    rows = (f"<sitemap><loc>{url}</loc></sitemap>\n" for url in urls)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<sitemapindex>{"".join(rows)}</sitemapindex>'.encode()


def page(site: HostileSite, number: int) -> str:
    return site.url(f"/shelf/{number % 97}/product-{number}.html")


def nested(site: HostileSite, count: int, *, per_file: int = 2_500, per_index: int = 4) -> str:
    """Let the site show an index of indexes, all of them packed but the first; return its address."""
    files = range(0, count, per_file)
    groups = [files[at : at + per_index] for at in range(0, len(files), per_index)]

    def pages(first: int) -> Reply:
        async def reply(call: Call) -> None:
            urls = (page(site, number) for number in range(first, min(first + per_file, count)))
            await whole(call, _packed(urlset(urls, lastmods=LASTMODS, first=first)), kind="application/gzip")

        return reply

    for number, group in enumerate(groups):
        for first in group:
            site.shown[f"/pages-{first}.xml.gz"] = pages(first)
        inner = index(site.url(f"/pages-{first}.xml.gz") for first in group)
        site.show(f"/index-{number}.xml.gz", _packed(inner), kind="application/x-gzip")
    return site.show("/sitemap.xml", index(f"/index-{number}.xml.gz" for number in range(len(groups))), kind="text/xml")


def endless(site: HostileSite, path: str, *, packed: bool) -> str:
    """A sitemap that never ends, unless the other side hangs up."""
    rows = b"<url><loc>https://shop.example/some/page</loc></url>\n" * 2_000
    piece = _packed(rows) if packed else rows

    async def reply(call: Call) -> None:
        await call.send(head(200, "Connection: close", kind="application/gzip" if packed else "text/xml"))
        await call.send(_packed(b"<urlset>") if packed else b"<urlset>")
        while True:
            await call.send(piece)

    site.shown[path] = reply
    return site.url(path)


def bomb(size: int) -> bytes:
    """A small file that unpacks to `size` bytes, one good address before and one after them."""
    rows = b"<url><loc>/x</loc></url>"
    return _packed(b"<urlset>" + rows + b" " * size + rows + b"</urlset>")


def _packed(data: bytes) -> bytes:
    return gzip.compress(data, 1)

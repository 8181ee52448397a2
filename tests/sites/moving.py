"""A shop whose layout can change while it is open. It writes down every request; what it sells does not change."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.services.threaded import in_thread

FRONT = "<html><title>Shop</title><body><h1>Shop</h1><ul>{links}</ul></body></html>"
OLD = "<html><title>{n}</title><h1>Thing {n}</h1><p class=price>€ {n}.50</p><p class=made>by hand</p></html>"
NEW = "<html><title>{n}</title><h2>Thing {n}</h2><b id=cost>€ {n}.50</b><p class=made>by hand</p></html>"


class MovingShop:
    """`change_after` products in the old layout, the rest in the new one; None: never."""

    def __init__(self, products: int, change_after: int | None) -> None:
        self.products = products
        self.change_after = change_after
        self.sold_out: set[int] = set()  # not listed any more
        self.missing: set[int] = set()  # listed, and 404
        self.moved: set[int] = set()  # to another address
        self.members: set[int] = set()  # shown to those who are logged in, and nobody is
        self.lastmods: dict[int, str] = {}  # what /sitemap.xml says of a product; it lists all
        self.etag = False  # whether pages have one, and are told from older ones by it
        self.listed: list[str] = []  # further addresses in /sitemap.xml
        self.hits: list[str] = []
        self.times: list[float] = []  # of the same requests
        self._shown = 0
        self._lock = threading.Lock()
        self.url = ""

    def answer(self, path: str) -> tuple[int, str]:
        with self._lock:
            self.hits.append(path)
            self.times.append(time.monotonic())
            if path == "/robots.txt":
                return 404, "none"
            if path.partition("?")[0] == "/":
                links = "".join(
                    f'<li><a href="/p/{n}">{n}</a>' for n in range(1, self.products + 1) if n not in self.sold_out
                )
                return 200, FRONT.format(links=links)
            if path == "/sitemap.xml":
                return 200, self._sitemap()
            if path.startswith("/to/"):
                return 301, f"/p/{path.removeprefix('/to/')}"
            number = int(path.removeprefix("/p/").partition("?")[0])
            if number in self.members:
                return 301, f"/account/login?next=/p/{number}"
            if number in self.moved and "?" not in path:
                return 301, f"{path}?moved"
            if number in self.missing:
                return 404, "<html><title>Not here</title></html>"
            self._shown += 1
            new = self.change_after is not None and self._shown > self.change_after
            return 200, (NEW if new else OLD).format(n=number)

    def _sitemap(self) -> str:
        dates = {n: f"<lastmod>{date}</lastmod>" for n, date in self.lastmods.items()}
        products = [f"<url><loc>{self.url}p/{n}</loc>{dates.get(n, '')}</url>" for n in range(1, self.products + 1)]
        listed = "".join([*products, *(f"<url><loc>{url}</loc></url>" for url in self.listed)])
        return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{listed}</urlset>'


@contextmanager
def moving_shop(products: int, change_after: int | None = None) -> Iterator[MovingShop]:
    shop = MovingShop(products, change_after)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, text = shop.answer(self.path)
            body = text.encode()
            tag = f'"{len(body)}"'
            if shop.etag and self.headers.get("If-None-Match") == tag:
                status, body = 304, b""
            self.send_response(status)
            if shop.etag:
                self.send_header("ETag", tag)
            if status == 301:
                self.send_header("Location", text)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    shop.url = f"http://127.0.0.1:{server.server_address[1]}/"
    with in_thread(server):
        yield shop

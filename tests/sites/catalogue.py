"""A catalogue with validators whose pages change, vanish and break at will. It is the truth that records are compared
with; it also keeps a list of what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.services.threaded import in_thread

EPOCH = 1_700_000_000


class Catalogue:
    """`prices` of the products that are listed; `broken` ones cannot be parsed, `failing` ones answer 500."""

    def __init__(self, products: int) -> None:
        self.prices = dict.fromkeys(range(1, products + 1), 10)
        self.withdrawn: set[int] = set()
        self.broken: set[int] = set()
        self.faulty: set[int] = set()  # without a title
        self.failing: set[int] = set()
        self.dated = False  # Last-Modified in place of an ETag
        self.hits: list[tuple[str, int]] = []
        self._changes: dict[str, tuple[str, int]] = {}  # path -> its body, and how often it has changed
        self._lock = threading.Lock()
        self.url = ""

    def truth(self) -> dict[str, int]:
        """The prices that a visitor sees, by address."""
        return {f"{self.url}p/{n}": price for n, price in self.prices.items() if n not in self.withdrawn}

    def heal(self) -> None:
        """Every page can be read again."""
        for trouble in (self.broken, self.faulty, self.failing):
            trouble.clear()

    def answer(self, path: str, etag: str, since: str) -> tuple[int, dict[str, str], bytes]:
        with self._lock:
            status, text = self._page(path)
            known, changes = self._changes.get(path, (text, 0))
            changes += known != text
            self._changes[path] = (text, changes)
            tag = f'"{sha256(text.encode()).hexdigest()[:16]}"'
            date = formatdate(EPOCH + 86_400 * changes, usegmt=True)
            headers = {"Last-Modified": date} if self.dated else {"ETag": tag}
            if status == 200 and (since == date if self.dated else etag == tag):
                status, text = 304, ""
            self.hits.append((path, status))
            return status, headers if status in (200, 304) else {}, text.encode()

    def _page(self, path: str) -> tuple[int, str]:
        if path == "/":
            listed = [n for n in self.prices if n not in self.withdrawn]
            return 200, "<h1>All</h1>" + "".join(f'<a class=p href="/p/{n}">{n}</a>' for n in listed)
        if not path.startswith("/p/"):
            return 404, "none"
        number = int(path.removeprefix("/p/"))
        if number in self.failing:
            return 500, "not now"
        if number in self.withdrawn:
            return 404, "gone"
        if number in self.broken:
            return 200, f"<h1>Thing {number}</h1><b>broken</b>"
        title = "" if number in self.faulty else f"Thing {number}"
        return 200, f"<h1>{title}</h1><b>{self.prices[number]}</b>"


@contextmanager
def catalogue(products: int) -> Iterator[Catalogue]:
    site = Catalogue(products)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = self.headers.get("If-None-Match") or "", self.headers.get("If-Modified-Since") or ""
            status, headers, body = site.answer(self.path, *asked)
            self.send_response(status)
            for name, value in {**headers, "Content-Type": "text/html", "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """The list is the log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site.url = f"http://127.0.0.1:{server.server_address[1]}/"
    with in_thread(server):
        yield site

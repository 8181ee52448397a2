"""The site of docs/walkthrough.md: a catalogue with pictures, a JSON API, a feed, sections that fail and that are
limited, and a members' area. Prices and layout change when the test says so, and then members have to log in again. Its
own log and its own prices are the truth."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from tests.services.threaded import in_thread

PRODUCTS = 40
MISSING = 40  # listed, and 404
LIMITED = 31  # from here on the shop asks visitors to slow down
NEWS = 3
OFFERS = 5  # for members
PASSWORD = "open sesame"
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(64)


class Bazaar:
    def __init__(self) -> None:
        self.revision = 1
        self.broken = False  # the layout that the spider knows, or another one
        self.log: list[tuple[int, str]] = []  # status and path of every answer
        self.logins: list[int] = []  # the revision in which each was made
        self.url = ""
        self._lock = threading.Lock()
        self._asked: Counter[tuple[int, str]] = Counter()

    def price(self, number: int) -> Decimal:
        """Every third product becomes dearer with each revision."""
        return Decimal(number) + Decimal("0.50") + (self.revision - 1 if number % 3 == 0 else 0)

    def sold(self) -> dict[str, Decimal]:
        return {f"B-{n:03}": self.price(n) for n in range(1, PRODUCTS + 1) if n != MISSING}

    def offered(self) -> dict[str, Decimal]:
        """What members pay."""
        return {f"B-{n:03}": self.price(n) - Decimal("0.25") for n in range(1, OFFERS + 1)}

    def seen(self, status: int, start: str) -> set[str]:
        with self._lock:
            return {path for code, path in self.log if code == status and path.startswith(start)}

    def answer(self, path: str, cookie: str) -> tuple[int, str, bytes]:
        with self._lock:
            self._asked[self.revision, path] += 1
            if path == "/login" or (path.startswith("/members/") and f"member={self.revision}" not in cookie):
                status, type_, body = _page(
                    "<form id=login action=/login method=post><input name=user><input type=password name=password>"
                    f"<input type=hidden name=token value=t{self.revision}></form>"
                )
            else:
                status, type_, body = self._answer(path, self._asked[self.revision, path])
            self.log.append((status, path))
        return status, type_, body

    def log_in(self, form: dict[str, list[str]]) -> str:
        """The cookie for whoever has the password and the token of the form; "" for all others."""
        if (form.get("password"), form.get("token")) != ([PASSWORD], [f"t{self.revision}"]):
            return ""
        with self._lock:
            self.logins.append(self.revision)
        return f"member={self.revision}; HttpOnly; Path=/"

    def _answer(self, path: str, times: int) -> tuple[int, str, bytes]:
        section, _, rest = path.strip("/").partition("/")
        if section == "":
            return _page("".join(f"<a class=shelf href=/shelf/{k}>Shelf {k}</a>" for k in range(1, 5)))
        if section == "shelf":
            shelf, _, second = rest.partition("?page=")
            first = (int(shelf) - 1) * 10 + (6 if second else 1)
            links = "".join(f"<a class=product href=/p/{n}>{n}</a>" for n in range(first, first + 5))
            return _page(links + ("" if second else f"<a class=next href=/shelf/{shelf}?page=2>more</a>"))
        if section == "p":
            return self._product(int(rest), times)
        if section == "img":
            return 200, "image/png", PICTURE + rest.encode()
        if section == "feed.xml":
            items = "".join(
                f"<item><title>N{n}</title><link>{self.url}news/{n}</link></item>" for n in range(1, NEWS + 1)
            )
            return 200, "application/rss+xml", f"<rss version='2.0'><channel>{items}</channel></rss>".encode()
        if section == "news":
            return _page(f"<h1>News {rest}</h1>")
        if section == "members":
            number = int(rest)
            offer = f"<b class=article>B-{number:03}</b><b class=offer>€ {self.price(number) - Decimal('0.25')}</b>"
            return _page(offer + (f"<a class=more href=/members/{number + 1}>more</a>" if number < OFFERS else ""))
        if section.startswith("api"):
            first = 21 if rest.endswith("page=2") else 1
            items = [{"sku": f"B-{n:03}", "stock": n} for n in range(first, first + 20)]
            answer = {"items": items, "next": None if first == 21 else "/api/stock?page=2"}
            return 200, "application/json", json.dumps(answer).encode()
        return 404, "text/html", b"<title>Nothing</title>"

    def _product(self, number: int, times: int) -> tuple[int, str, bytes]:
        if number == MISSING:
            return 404, "text/html", b"<title>Sold</title>"
        if number % 10 == 0 and times == 1:
            return 503, "text/html", b"<title>Busy</title>"
        if number == LIMITED and times == 1:
            return 429, "text/html", b"<title>Slowly</title>"
        title, sku, price = f"Thing {number}", f"B-{number:03}", f"€ {self.price(number)}"
        if self.broken:
            return _page(f"<h2>{title}</h2><i>{sku}</i><b id=cost>{price}</b><img src=/img/{number}.png>")
        return _page(f"<h1>{title}</h1><p class=sku>{sku}</p><p class=price>{price}</p><img src=/img/{number}.png>")


def _page(body: str) -> tuple[int, str, bytes]:
    return 200, "text/html; charset=utf-8", f"<html><title>Bazaar</title><body>{body}</body></html>".encode()


@contextmanager
def open_bazaar() -> Iterator[Bazaar]:
    bazaar = Bazaar()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, type_, body = bazaar.answer(self.path, self.headers.get("Cookie") or "")
            self.send_response(status)
            if status == 429:
                self.send_header("Retry-After", "1")
            self.send_header("Content-Type", type_)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            cookie = bazaar.log_in(parse_qs(self.rfile.read(length).decode()))
            self.send_response(303)
            if cookie:
                self.send_header("Set-Cookie", cookie)
            self.send_header("Location", "/members/1")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """The test reads `log`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    bazaar.url = f"http://127.0.0.1:{server.server_port}/"
    with in_thread(server):
        yield bazaar

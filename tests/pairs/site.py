"""A web site made from a file. The file is read again when it has changed, so that a story can change the site between
two commands; the log beside it says who asked for what.

    python -m tests.pairs.site site.json          # serves at the port that the file names, until Ctrl-C
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from tests.services.threaded import in_thread
from tests.sites.lines import SO_TIMESTAMPNS

FINE, FAULTY = 4, 99  # ratings
EPOCH = 1_700_000_000
FORM = "<form id=login method=post action=/login><input name=user><input type=password name=password></form>"
NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"

SLOW = 0.3  # seconds that a slow page takes


class SitePage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A page as its site has it now. `things` are keys of items with their prices."""

    things: dict[str, int] = {}
    links: tuple[str, ...] = ()
    status: int = 200
    to: str = ""  # where it redirects to
    refusals: int = 0  # how often it answers 503 with Retry-After before it answers, each time the site is put up
    is_flawed: bool = False  # its things have a rating that a quality rule finds faulty
    is_broken: bool = False  # the price of its last thing is no number
    is_slow: bool = False  # answers after 300 ms


class Site(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything about the site: it answers from this alone."""

    port: int
    pages: dict[str, SitePage] = {}
    validator: Literal["", "etag", "date"] = ""
    disallow: str = ""  # a folder, in robots.txt
    crawl_delay: float = 0.0
    sitemap: tuple[str, ...] = ()
    members_only: bool = False  # pages with things are for visitors with the cookie
    edition: int = 0  # counts the changes: refusals begin again
    proxies: tuple[int, ...] = ()  # ports at which the site is reached as through proxies
    refused_proxies: tuple[int, ...] = ()  # those of them that get 403 for everything

    def page(self, path: str) -> SitePage:
        return self.pages.get(path, NO_PAGE)

    def body(self, path: str) -> str:
        """What the page says."""
        page = self.page(path)
        rows = []
        for number, (sku, price) in enumerate(page.things.items(), 1):
            figure = "unknown" if page.is_broken and number == len(page.things) else str(price)
            rating = FAULTY if page.is_flawed else FINE
            rows.append(f"<article><h2>Thing {sku}</h2><i>{sku}</i><b>{figure}</b><u>{rating}</u></article>")
        links = "".join(f"<a href={link}>{link}</a>" for link in page.links)
        return f"<title>{path}</title><nav>{links}</nav>{''.join(rows)}"


NO_PAGE = SitePage(status=404)


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One request as the site saw it. `at` is the kernel's time of its arrival; `proxy` the port of the proxy, 0 for
    none."""

    at: float
    method: str
    path: str
    status: int
    is_conditional: bool = False
    proxy: int = 0
    body: str = ""


class SiteServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, file: Path, port: int | None = None, state: SiteServer | None = None) -> None:
        self.file = file
        self.state = state or self  # a proxy answers from the state of its site
        self.lock = threading.Lock()
        self.refusals: Counter[tuple[int, str]] = Counter()
        self._stamp = 0
        self._site = self._read()
        super().__init__(("127.0.0.1", self._site.port if port is None else port), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Of a command that was killed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def log(self) -> Path:
        return self.file.with_suffix(".log")

    def site(self) -> Site:
        with self.lock:
            if self.file.stat().st_mtime_ns != self._stamp:
                self._site = self._read()
            return self._site

    def _read(self) -> Site:
        self._stamp = self.file.stat().st_mtime_ns
        return msgspec.json.decode(self.file.read_bytes(), type=Site)

    def note(self, hit: Hit) -> None:
        with self.lock, self.log.open("ab") as log:
            log.write(msgspec.json.encode(hit) + b"\n")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SiteServer
    at = 0.0

    def log_message(self, format: str, *args: Any) -> None:
        """The file is the log."""

    def handle_one_request(self) -> None:
        """A request of a client that waits for its answer comes in one packet: the kernel knows when."""
        self.connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        _, notes, _, _ = self.connection.recvmsg(1, 64, socket.MSG_PEEK)
        stamps = [value for level, kind, value in notes if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS)]
        seconds, nanoseconds = struct.unpack("qq", stamps[0]) if stamps else (0, 0)
        self.at = seconds + nanoseconds / 1e9 if stamps else time.time()
        super().handle_one_request()

    def do_GET(self) -> None:
        self._answer("")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode())

    def _answer(self, sent: str) -> None:
        state = self.server.state
        site = state.site()
        proxy = self.server.server_port if self.server is not state else 0
        parts = urlsplit(self.path)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        if proxy in site.refused_proxies:
            status, headers, text = 403, {}, "no"
        else:
            status, headers, text = self._page(site, path, sent)
        asked = self.headers.get("If-None-Match") or self.headers.get("If-Modified-Since") or ""
        current = {"ETag": "etag", "Last-Modified": "date"}
        if status == 200 and asked and asked in (headers.get(name) for name in current):
            status, text = 304, ""
        # Before the answer: whoever has the answer finds the line in the log.
        state.note(
            Hit(
                at=self.at,
                method=self.command,
                path=path,
                status=status,
                is_conditional=bool(asked),
                proxy=proxy,
                body=sent,
            )
        )
        content = text.encode()
        self.send_response(status)
        for name, value in {"Content-Type": "text/html", **headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _page(self, site: Site, path: str, sent: str) -> tuple[int, dict[str, str], str]:
        root = f"http://127.0.0.1:{site.port}"
        if path == "/robots.txt":
            lines = ["User-agent: *"]
            lines += [f"Disallow: {site.disallow}"] if site.disallow else []
            lines += [f"Crawl-delay: {site.crawl_delay}"] if site.crawl_delay else []
            lines += [f"Sitemap: {root}/sitemap.xml"] if site.sitemap else []
            return 200, {"Content-Type": "text/plain"}, "\n".join(lines) + "\n"
        if path == "/sitemap.xml" and site.sitemap:
            rows = "".join(f"<url><loc>{root}{one}</loc></url>" for one in site.sitemap)
            return 200, {"Content-Type": "application/xml"}, f'<urlset xmlns="{NAMESPACE}">{rows}</urlset>'
        if path == "/login":
            if self.command == "POST" and "password=sesame" in sent:
                return 303, {"Set-Cookie": "member=yes; Path=/", "Location": "/welcome"}, ""
            return 200, {}, FORM
        if path == "/welcome":
            return 200, {}, "welcome"
        page = site.page(path)
        if page.refusals:
            with self.server.state.lock:
                refusals = self.server.state.refusals
                refusals[site.edition, path] += 1
                if refusals[site.edition, path] <= page.refusals:
                    return 503, {"Retry-After": "0"}, "later"
        if page.is_slow:
            time.sleep(SLOW)
        if page.to:
            return 302, {"Location": page.to}, ""
        if page.status != 200:
            return page.status, {}, "an error"
        if site.members_only and page.things and "member=yes" not in self.headers.get("Cookie", ""):
            return 200, {}, FORM
        text = site.body(path)
        return 200, validators(site, path, text), text


def validators(site: Site, path: str, text: str) -> dict[str, str]:
    """The header by which a visitor asks whether the page has changed."""
    digest = sha256(text.encode()).digest()
    if site.validator == "etag":
        return {"ETag": f'"{digest[:8].hex()}"'}
    if site.validator == "date":
        return {"Last-Modified": formatdate(EPOCH + int.from_bytes(digest[:3], "big"), usegmt=True)}
    return {}


def read_log(file: Path) -> list[Hit]:
    log = file.with_suffix(".log")
    return msgspec.json.Decoder(Hit).decode_lines(log.read_bytes()) if log.exists() else []


@contextmanager
def serving(file: Path) -> Iterator[SiteServer]:
    """Serve the site of the file, and its proxies, for the time of the block."""
    server = SiteServer(file)
    proxies = [SiteServer(file, port, server) for port in server.site().proxies]
    with in_thread(server):
        if not proxies:
            yield server
            return
        with in_thread(proxies[0]), in_thread(proxies[-1]):  # there are two
            yield server


if __name__ == "__main__":
    with serving(Path(sys.argv[1])) as running:
        print(f"http://127.0.0.1:{running.server_port}/", flush=True)
        threading.Event().wait()

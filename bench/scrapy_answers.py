"""Answers for a Scrapy project that is run beside Gossamer: one server on loopback, which stands for every site.

Both sides ask it instead of the site, with the address in a header: Scrapy through a download handler (`Handler`),
Gossamer through a transport of its own (`Transport`). Nothing leaves the machine. The answers come from a function
`answer(method, url, headers, body) -> (status, headers, body)`: one of a file that the user names, one for recorded
answers (a JSON Lines file with url, status, headers and body), or `synthetic`.
"""

from __future__ import annotations

import importlib.util
import json
import os
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

ADDRESS = "SCRAPY_ANSWERS"  # the variable with the port of the server
WANTED = "X-Wanted-Url"
Answer = tuple[int, list[tuple[str, str]], bytes]
Answers = Callable[[str, str, Mapping[str, str], bytes], Answer]
PAGES = 6  # of a synthetic site

CARD = (
    '<article class="card product" id="{n}"><h2>Ware {n}</h2><p class="price">{n}.50</p><a href="/item/{n}">more</a>'
    "</article>"
)


def synthetic(method: str, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
    """A small shop at any host: lists with cards, items, a sitemap, JSON and XML by the ending of the path."""
    parts = urlsplit(url)
    path, number = parts.path, int("".join(filter(str.isdigit, parts.path[-6:])) or 0)
    if path == "/robots.txt":
        return 404, [], b""
    if path.endswith(".xml") and "sitemap" in path:
        listed = "".join(f"<url><loc>{parts.scheme}://{parts.netloc}/item/{n}</loc></url>" for n in range(1, PAGES))
        text = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{listed}</urlset>'
        return 200, [("Content-Type", "application/xml")], text.encode()
    if path.endswith((".json", "/api")) or "application/json" in headers.get("accept", ""):
        rows = [{"id": n, "name": f"Ware {n}", "price": n + 0.5} for n in range(1, PAGES)]
        return 200, [("Content-Type", "application/json")], json.dumps({"items": rows, "next": None}).encode()
    cards = "".join(CARD.format(n=number * 10 + n) for n in range(1, 5)) if "/item/" not in path else ""
    onward = f'<a class="next" href="/page/{number + 1}">next</a>' if number < PAGES and "/item/" not in path else ""
    text = f"<html><head><title>Page {path}</title></head><body><h1>Page {path}</h1>{cards}{onward}</body></html>"
    return 200, [("Content-Type", "text/html; charset=utf-8")], text.encode()


def recorded(file: Path) -> Answers:
    """Answers of a JSON Lines file: url, and status, headers, body (or body_base64) if they are not the usual ones."""
    known: dict[str, Answer] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        body = b64decode(one["body_base64"]) if "body_base64" in one else one.get("body", "").encode()
        headers = list((one.get("headers") or {"Content-Type": "text/html"}).items())
        known[one["url"]] = one.get("status", 200), headers, body

    def answer(method: str, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        return known.get(url, (404, [("Content-Type", "text/html")], b"not recorded"))

    return answer


def answers_of(path: str | None) -> Answers:
    if path is None:
        return synthetic
    if not path.endswith(".py"):
        return recorded(Path(path))
    spec = importlib.util.spec_from_file_location("own_answers", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    own: Answers = module.answer
    return own


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, answers: Answers) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.answers = answers
        self.asked: Counter[str] = Counter()  # what was asked for: method and URL, without robots.txt


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        """`asked` is the log."""

    def _any(self) -> None:
        url = self.headers.get(WANTED, "")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not url.endswith("/robots.txt"):
            self.server.asked[f"{self.command} {url}"] += 1
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, lines, sent = self.server.answers(self.command, url, headers, body)
        self.send_response_only(status)
        for name, value in lines:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = do_OPTIONS = _any


@contextmanager
def serving(answers: Answers) -> Iterator[Server]:
    with Server(answers) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def fetch(method: str, url: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
    """Ask the server of this run."""
    connection = HTTPConnection("127.0.0.1", int(os.environ[ADDRESS]), timeout=60)
    try:
        lines = {name: value for name, value in headers if name.lower() not in ("host", "accept-encoding")}
        connection.request(method, "/", body=body or None, headers={**lines, WANTED: url.partition("#")[0]})
        answer = connection.getresponse()
        sent = [(name, value) for name, value in answer.getheaders() if name.lower() != "content-length"]
        return answer.status, sent, answer.read()
    finally:
        connection.close()

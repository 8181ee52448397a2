"""A site of sayings, several on each page. What it says can be changed while it is open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.services.threaded import in_thread


class Sayings:
    """`texts` holds what each page says; page 0 is the front page, and links to all others."""

    def __init__(self, pages: int, each: int) -> None:
        self.texts = [[f"Saying {n} of page {page}." for n in range(each)] for page in range(pages)]
        self.hits: list[str] = []
        self.url = ""

    def answer(self, path: str) -> str | None:
        self.hits.append(path)
        number = path.removeprefix("/page/") if path != "/" else "0"
        if not number.isdigit() or int(number) >= len(self.texts):
            return None
        links = "".join(f'<a href="/page/{n}">{n}</a>' for n in range(1, len(self.texts)))
        said = "".join(f'<p class="saying">{text}</p>' for text in self.texts[int(number)])
        return f"<html><title>Page {number}</title><body>{said}{links}</body></html>"


@contextmanager
def sayings_site(pages: int = 10, each: int = 10) -> Iterator[Sayings]:
    site = Sayings(pages, each)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = site.answer(self.path)
            body = (found or "not here").encode()
            self.send_response(200 if found is not None else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site.url = f"http://127.0.0.1:{server.server_port}/"
    with in_thread(server):
        yield site

"""A site for a container of its own: N numbered pages, and a log with a line for each request, written before the
answer.

Standard library alone, as it runs on the base of the images, without Gossamer. Its four hosts end with -a, -b, -c
and -d and share the pages; `/` names those of the host, and each takes DELAY seconds. Page HEAVY says so at its first
request: the spider then asks for more memory than its container may have.
"""

from __future__ import annotations

import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGES = int(os.environ.get("PAGES", "300"))
DELAY = float(os.environ.get("DELAY", "0.05"))
HEAVY = os.environ.get("HEAVY", "none")
LOG = os.open("/log/requests", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
heavy = threading.Lock()  # taken by the first request for the heavy page, and never given back


class Site(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        text, status = page(self.headers.get("Host", "")[-1:], self.path)
        os.write(LOG, f"{time.time():.3f} {self.client_address[0]} {self.path} {status}\n".encode())
        if self.path.startswith("/p/"):
            time.sleep(DELAY)
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *told: object) -> None:
        """The log is a file of its own."""


def page(host: str, path: str) -> tuple[str, int]:
    if path == "/":
        mine = (n for n in range(1, PAGES + 1) if "abcd"[n % 4] == host)
        return "<h1>All</h1>" + "".join(f'<a class=p href="/p/{n}">{n}</a>' for n in mine), 200
    number = path.removeprefix("/p/")
    if path.startswith("/p/") and number.isdigit() and 1 <= int(number) <= PAGES:
        weight = "<p class=heavy>heavy</p>" if number == HEAVY and heavy.acquire(blocking=False) else ""
        return f"<h1>Thing {number}</h1><p class=price>{int(number) * 3}.00</p>{weight}", 200
    return "<h1>Nothing here</h1>", 404


if __name__ == "__main__":
    server = ThreadingHTTPServer(("", 80), Site)
    server.daemon_threads = True
    server.serve_forever()

"""A small site for spiders of every usual shape: lists, a shop, a club with a login, sitemaps and an API. Its log is
the list of requests that it has answered."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.services.threaded import in_thread

QUOTES, WARES, PARTS, STOCK = 30, 24, 12, 15
FORM = (
    "<form method=post action=/login><input type=hidden name=token value={token}>"
    "<input name=user><input type=password name=password><input type=submit value=In></form>"
)


class Shelf(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.log: list[tuple[str, str, dict[str, str]]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def paths(self) -> list[str]:
        return [path for _, path, _ in self.log]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Shelf

    def log_message(self, format: str, *args: Any) -> None:
        """The list is the log."""

    def do_GET(self) -> None:
        self._answer("GET", {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        json_sent = "json" in self.headers.get("Content-Type", "")
        self._answer("POST", json.loads(body) if json_sent else {k: v[0] for k, v in parse_qs(body).items()})

    def _answer(self, method: str, form: dict[str, str]) -> None:
        self.server.log.append((method, self.path, {name.lower(): value for name, value in self.headers.items()}))
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        steps = [step for step in parts.path.split("/") if step]
        page = getattr(self, f"_{steps[0].partition('.')[0]}", None) if steps else None
        if page is None:
            self._send(404, "nothing")
        else:
            page(steps[1:], query, form)

    def _send(self, status: int, body: str | bytes, kind: str = "text/html; charset=utf-8", **headers: str) -> None:
        content = body if isinstance(body, bytes) else body.encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    # -- quotes ----------------------------------------------------------------------------------------------------

    def _quotes(self, steps: list[str], query: dict[str, str], form: dict[str, str]) -> None:
        if steps[0] == "author":
            self._send(200, f"<h3> {steps[1]} </h3><span class=born>18{len(steps[1]):02d}</span>")
            return
        page = int(steps[1])
        rows = "".join(
            f"<div class=quote><span class=text>Saying {number} – “so”</span>"
            f"<span><small class=author>Person{number % 7}</small>"
            f"<a href=/quotes/author/Person{number % 7}/>about</a></span>"
            f"<div class=tags><a class=tag>t{number % 3}</a><a class=tag>all</a></div></div>"
            for number in range((page - 1) * 10, page * 10)
        )
        # The first and the second are the same: no quote may be lost for it.
        rows += "<div class=quote><span class=text>Twice</span><small class=author>Nobody</small></div>"
        more = f"<li class=next><a href=/quotes/page/{page + 1}/>Next</a></li>" if page * 10 < QUOTES else ""
        self._send(200, f"<body>{rows}<ul class=pager>{more}</ul></body>")

    # -- a shop ----------------------------------------------------------------------------------------------------

    def _shop(self, steps: list[str], query: dict[str, str], form: dict[str, str]) -> None:
        if not steps:
            links = "".join(f"<a href=/shop/shelf/{number}>{number}</a>" for number in range(1, 5))
            self._send(200, f"<body>{links}<a href=/shop/shelf/hidden>no</a></body>")
        elif steps[0] == "shelf":
            number = int(steps[1])
            rows = "".join(
                f"<li class=ware><a href=/shop/ware/{ware}#top>{ware}</a></li>"
                for ware in range((number - 1) * WARES // 4, number * WARES // 4)
            )
            self._send(200, f"<body><ul>{rows}</ul><a href=/shop/>back</a></body>")
        elif steps[0] == "old":
            self._send(301, "", Location=f"/shop/ware/{steps[1]}")
        else:
            name = "clock" if int(steps[1]) == 3 else f"ware {steps[1]}"
            self._send(200, f"<h1> {name} </h1><span class=price>${steps[1]}.50</span>")

    def _list(self, steps: list[str], query: dict[str, str], form: dict[str, str]) -> None:
        if not steps:
            page = int(query["page"])
            rows = "".join(f"<a class=one href=/list/{page}{n}>{query['kind']} {page}{n}</a>" for n in range(3))
            self._send(200, rows + ("<a class=more>more</a>" if page < 4 else ""))
        elif steps[0] in ("none", "21"):
            self._send(404, "gone")
        else:
            self._send(200, f"<span class=price>{steps[0]}.25</span>")

    # -- a club ----------------------------------------------------------------------------------------------------

    def _login(self, steps: list[str], query: dict[str, str], form: dict[str, str]) -> None:
        cookie = self.headers.get("Cookie", "")
        if self.command == "GET":
            self._send(200, FORM.format(token="t0ken"), Set_Cookie="token=t0ken; Path=/")
        elif "token=t0ken" in cookie and form == {"token": "t0ken", "user": "ada", "password": "sesame"}:
            self._send(302, "", Location="/welcome", Set_Cookie="member=ada; Path=/")
        else:
            self._send(200, "refused")

    def _welcome(self, steps: list[str], query: dict[str, str], form: dict[str, str]) -> None:
        self._send(200, "<p>Welcome</p>" if "member=ada" in self.headers.get("Cookie", "") else "refused")

    def _members(self, steps: list[str], query: dict[str, str], form: dict[str, str]) -> None:
        if "member=ada" in self.headers.get("Cookie", ""):
            self._send(200, f"<h1>Member {steps[0]}</h1>")
        else:
            self._send(200, "<h1>Nobody</h1>")

    # -- sitemaps and an API ---------------------------------------------------------------------------------------

    def _sitemap(self, steps: list[str], query: dict[str, str], form: dict[str, str]) -> None:
        rows = "".join(f"<sitemap><loc>{self.server.url}/sitemaps/{n}.xml{'.gz' * n}</loc></sitemap>" for n in (0, 1))
        self._send(200, f'<?xml version="1.0"?><sitemapindex xmlns="{NAMESPACE}">{rows}</sitemapindex>', "text/xml")

    def _sitemaps(self, steps: list[str], query: dict[str, str], form: dict[str, str]) -> None:
        half = int(steps[0][0])
        numbers = range(half * PARTS // 2, (half + 1) * PARTS // 2)
        rows = "".join(f"<url><loc>{self.server.url}/part/{number}</loc></url>" for number in numbers)
        other = f"<url><loc>{self.server.url}/shop/</loc></url>"
        text = f'<?xml version="1.0"?><urlset xmlns="{NAMESPACE}">{rows}{other}</urlset>'
        if half:
            self._send(200, gzip.compress(text.encode()), "application/x-gzip")
        else:
            self._send(200, text, "application/xml")

    def _part(self, steps: list[str], query: dict[str, str], form: dict[str, str]) -> None:
        self._send(200, f"<h1>Part {steps[0]}</h1><b>one</b><b>two</b>")

    def _api(self, steps: list[str], query: dict[str, str], form: dict[str, str]) -> None:
        if steps[0] == "count":
            answer: dict[str, Any] = {"count": len(form["name"]) * 10}
        else:
            page = int(query["page"])
            names = [f"{'thing' * number}" for number in range((page - 1) * 5 + 1, page * 5 + 1)]
            answer = {"names": names, "next": f"/api/stock?page={page + 1}" if page * 5 < STOCK else None}
        self._send(200, json.dumps(answer), "application/json")


NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"


@contextmanager
def shelf() -> Iterator[Shelf]:
    """The site, open."""
    site = Shelf()
    with in_thread(site):
        yield site

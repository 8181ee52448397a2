"""A site of quotations in ten forms: the same QUOTES by pages, endless scrolling, scripts, a button, a table ...

    with quotes_site() as site:
        site.url("/")             # one of FORMS
        site.statuses("/slow")    # what the visitors got there

It runs in threads of the test's own process. What it saw is the truth: `hits`.
"""

from __future__ import annotations

import json
import random
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.services.threaded import in_thread

AUTHORS = ("Ada Lovelace", "Grace Hopper", "Emmy Noether", "Mary Somerville", "Sofja Kowalewskaja")
TAGS = ("work", "life", "numbers")
QUOTES = [
    {"text": f"“Sentence number {n} of a wise person.”", "author": AUTHORS[n % 5], "tags": [TAGS[n % 3], TAGS[n // 25]]}
    for n in range(50)
]
A_PAGE = 10
PAGES = len(QUOTES) // A_PAGE
ALLOWED = 3  # pages of /slow in any second
USER, PASSWORD = "ada", "analytical"
FORMS = ("/", "/scroll", "/script", "/delayed", "/more", "/table", "/members", "/search", "/random", "/slow")

Answer = tuple[int, str, list[tuple[str, str]]]


def of_page(number: int) -> list[dict[str, object]]:
    return list(QUOTES[(number - 1) * A_PAGE : number * A_PAGE]) if number >= 1 else []


def _block(quote: dict[str, object]) -> str:
    tags = "".join(f"<a class=tag href=#>{tag}</a>" for tag in quote["tags"])  # type: ignore[attr-defined]
    return (
        f"<div class=quote><span class=text>{quote['text']}</span> <span>by <small class=author>{quote['author']}"
        f"</small></span><div class=tags>{tags}</div></div>"
    )


def _select(name: str, options: Iterable[str], chosen: str) -> str:
    lines = "".join(f"<option{' selected' if one == chosen else ''}>{one}" for one in options)
    return f"<select name={name}><option value=''>---{lines}</select>"


def _document(body: str) -> Answer:
    return 200, f"<!doctype html><html><head><title>Quotations</title></head><body>{body}</body></html>", []


def _pager(folder: str, number: int) -> str:
    return f"<ul><li class=next><a href='{folder}/page/{number + 1}'>Next</a></li></ul>" if number < PAGES else ""


_SHOW = """const show = quotes => list.insertAdjacentHTML("beforeend", quotes.map(one => `<div class=quote>
<span class=text>${one.text}</span><small class=author>${one.author}</small></div>`).join(""));"""
_SCROLL = f"""<div id=list></div><p style="height: 1500px"></p><script>{_SHOW}
let next = 1, busy = false;
const load = () => {{ if (busy || !next) return; busy = true;
  fetch("/api/quotes?page=" + next).then(answer => answer.json()).then(data => {{
    show(data.quotes); next = data.has_next ? next + 1 : 0; busy = false; }}); }};
addEventListener("scroll", () => innerHeight + scrollY > document.body.scrollHeight - 100 && load());
load();
</script>"""
_MORE = f"""<div id=list></div><button id=more onclick="load()">Show more</button><script>{_SHOW}
let next = 1;
const load = () => fetch("/api/quotes?page=" + next++).then(answer => answer.json()).then(data => {{
  show(data.quotes); if (!data.has_next) more.remove(); }});
load();
</script>"""


@dataclass
class QuotesSite:
    port: int = 0
    hits: list[tuple[str, int]] = field(default_factory=list)  # path and status
    members: set[str] = field(default_factory=set)
    views: dict[str, str] = field(default_factory=dict)  # __VIEWSTATE -> the author that was chosen, or ""
    given: list[float] = field(default_factory=list)  # when pages of /slow were given
    turn: threading.Lock = field(default_factory=threading.Lock)
    order: list[dict[str, object]] = field(default_factory=list)  # what /random gives next

    def url(self, path: str = "") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def statuses(self, path: str) -> list[int]:
        return [status for known, status in self.hits if known.startswith(path)]

    def answer(self, method: str, target: str, body: str, cookies: dict[str, str]) -> Answer:
        split = urlsplit(target)
        folder, _, number = split.path.partition("/page/")
        page = int(number) if number.isdecimal() else 1
        if split.path == "/api/quotes":
            page = int(parse_qs(split.query).get("page", ["1"])[0])
            found = {"page": page, "has_next": page < PAGES, "quotes": of_page(page)}
            return 200, json.dumps(found), [("Content-Type", "application/json")]
        if folder in ("", "/"):
            return _document("".join(map(_block, of_page(page))) + _pager("", page))
        match folder:
            case "/scroll":
                return _document(_SCROLL)
            case "/more":
                return _document(_MORE)
            case "/script" | "/delayed":
                return self._scripted(folder, page)
            case "/table":
                return self._table(page)
            case "/login" | "/members":
                return self._members(method, folder, page, body, cookies)
            case "/search":
                return self._search(method, body)
            case "/random":
                if not self.order:
                    self.order = random.Random(7).sample(QUOTES, len(QUOTES))
                return _document(_block(self.order.pop()))
            case "/slow":
                return self._slow(page)
        return 404, "nothing here", []

    def _scripted(self, folder: str, page: int) -> Answer:
        late = "setTimeout(() => show(data), 1500)" if folder == "/delayed" else "show(data)"
        script = f"<script>{_SHOW}\nvar data = {json.dumps(of_page(page))};\n{late};</script>"
        return _document(f"<div id=list></div>{_pager(folder, page)}{script}")

    def _table(self, page: int) -> Answer:
        rows = "".join(
            f"<tr style='border-bottom: 0'><td>{one['text']} Author: {one['author']}</td></tr>"
            f"<tr><td>Tags: {' '.join(one['tags'])}</td></tr>"  # type: ignore[arg-type]
            for one in of_page(page)
        )
        return _document(f"<table><tr><th>Quotations</th></tr>{rows}</table>{_pager('/table', page)}")

    def _members(self, method: str, folder: str, page: int, body: str, cookies: dict[str, str]) -> Answer:
        if folder == "/members" and cookies.get("sid") in self.members:
            return _document("".join(map(_block, of_page(page))) + _pager("/members", page))
        fields = {name: values[0] for name, values in parse_qs(body).items()}
        token = cookies.get("csrf")
        if method == "POST" and token and fields == {"token": token, "user": USER, "password": PASSWORD}:
            sid = secrets.token_hex(8)
            self.members.add(sid)
            return 303, "", [("Location", "/members"), ("Set-Cookie", f"sid={sid}; Path=/; HttpOnly")]
        if folder == "/members":
            return 302, "", [("Location", "/login")]
        token = secrets.token_hex(8)
        form = (
            f"<form method=post action=/login><input type=hidden name=token value={token}><input name=user>"
            "<input type=password name=password><button>Log in</button></form>"
        )
        status, text, _ = _document(form)
        return status, text, [("Set-Cookie", f"csrf={token}; Path=/")]

    def _search(self, method: str, body: str) -> Answer:
        """A form that the server remembers by its view state: first the author, then one of the author's tags."""
        fields = {name: values[0] for name, values in parse_qs(body).items()}
        author, tag, known = fields.get("author", ""), fields.get("tag", ""), fields.get("__VIEWSTATE", "")
        if method == "POST" and known not in self.views:
            return 400, "the view state is wrong", []
        chosen = self.views.get(known, "")
        found = [one for one in QUOTES if one["author"] == author and tag in one["tags"]]  # type: ignore[operator]
        if tag and chosen != author:
            return 400, "that is not the author of this view", []
        state = secrets.token_hex(16)
        self.views[state] = author
        tags = sorted({tag for one in QUOTES if one["author"] == author for tag in one["tags"]})  # type: ignore[attr-defined]
        selects = _select("author", AUTHORS, author) + _select("tag", tags, tag)
        form = (
            f"<form method=post action=/search>{selects}<input type=hidden name=__VIEWSTATE value={state}>"
            "<input type=submit name=submit_button value=Search></form>"
        )
        return _document(form + "".join(map(_block, found)))

    def _slow(self, page: int) -> Answer:
        now = time.monotonic()
        self.given = [at for at in self.given if now - at < 1]
        if len(self.given) >= ALLOWED:
            return 429, "slower, please", []
        self.given.append(now)
        return _document("".join(map(_block, of_page(page))) + _pager("/slow", page))


@contextmanager
def quotes_site() -> Iterator[QuotesSite]:
    site = QuotesSite()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply("")

        def do_POST(self) -> None:
            self._reply(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())

        def _reply(self, body: str) -> None:
            jar = SimpleCookie(self.headers.get("Cookie", ""))
            with site.turn:
                given = {name: morsel.value for name, morsel in jar.items()}
                status, text, headers = site.answer(self.command, self.path, body, given)
                site.hits.append((self.path, status))
            data = text.encode()
            self.send_response(status)
            names = {name for name, _ in headers}
            for name, value in (*headers, ("Content-Type", "text/html; charset=utf-8")):
                if name != "Content-Type" or "Content-Type" not in names or value == "application/json":
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site.port = server.server_address[1]
    with in_thread(server):
        yield site

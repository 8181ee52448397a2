"""A club whose pages are for members: a login form with a CSRF token, and sessions that end.

    with club(pages=20, lasts=50) as site:
        site.url("/")            # what to crawl: the front page leads to every other
        site.logins              # how often somebody was let in
        site.sessions            # every session that was given out, and how it fared

It runs in threads of the test's own process; crawlers may be elsewhere. What it saw is the truth: `hits`.

    wall     what visitors get who are not logged in: "redirect" to the login page, the "form" itself, or a "401"
    lasts    pages after which a session is over, and the member must log in again
    bound    a session is good for the address that it was made for, and for no other
    never    logins are taken, and nobody is let in
    refuses  this many logins fail with status 500 first
    blocks   so many members are taken for robots after BEARABLE pages, and see a riddle from then on
    latency  seconds for each page
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from tests.services.threaded import in_thread

USER, PASSWORD = "ada", "s3cret-of-ada"
BEARABLE = 8  # pages


@dataclass(frozen=True)
class ClubHit:
    at: float
    method: str
    path: str
    status: int
    session: str
    address: str
    headers: dict[str, str]
    body: str = ""


@dataclass
class Membership:
    """A session that was given out."""

    address: str
    pages: int = 0
    over: bool = False
    blocked: bool = False


@dataclass
class Club:
    pages: int = 20
    wall: str = "redirect"
    lasts: int | None = None
    bound: bool = False
    never: bool = False
    refuses: int = 0
    blocks: int = 0
    latency: float = 0.0
    port: int = 0
    hits: list[ClubHit] = field(default_factory=list)
    sessions: dict[str, Membership] = field(default_factory=dict)
    turn: threading.Lock = field(default_factory=threading.Lock)
    asked_with: dict[str, str] = field(default_factory=dict)  # the headers of the request that is answered just now

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def seen(self, path: str = "", method: str = "GET", status: int | None = None) -> list[ClubHit]:
        return [
            hit
            for hit in list(self.hits)
            if hit.method == method
            and urlsplit(hit.path).path.startswith(path)
            and (status is None or hit.status == status)
        ]

    @property
    def logins(self) -> int:
        return len(self.seen("/login", "POST", 303))

    @property
    def used_up(self) -> int:
        """Sessions that came to their end."""
        return sum(session.over for session in self.sessions.values())

    @property
    def paths(self) -> set[str]:
        return {f"/page/{number}" for number in range(self.pages)}

    # -- answers, under the lock ---------------------------------------------------------------------------------

    def answer(self, method: str, path: str, body: str, cookies: dict[str, str], address: str) -> Answer:
        if path == "/robots.txt":
            return Answer(404, "no rules")
        if path == "/login" and method == "GET":
            token = secrets.token_hex(8)
            return Answer(200, _form(token), [("Set-Cookie", f"csrf={token}; Path=/login; HttpOnly")])
        if path == "/login":
            return self._log_in(body, cookies, address)
        if path == "/script":
            html = "<script>document.cookie = 'key=open; path=/vault; max-age=600'</script><a href=/vault/0>in</a>"
            return Answer(200, f"<!doctype html><title>Door</title><h1>Door</h1>{html}{'words ' * 300}")
        if path.startswith("/vault/"):
            inside = cookies.get("key") == "open"
            return Answer(200, _page(path, self.pages, "vault")) if inside else Answer(403, "<h1>Locked</h1>")
        return self._inside(path, cookies, address)

    def _log_in(self, body: str, cookies: dict[str, str], address: str) -> Answer:
        fields = {name: values[0] for name, values in parse_qs(body).items()}
        if self.refuses:
            self.refuses -= 1
            return Answer(500, "<h1>Not now</h1>")
        if not fields.get("token") or fields.get("token") != cookies.get("csrf"):
            return Answer(403, "<h1>The token is wrong</h1>")
        if (fields.get("user"), fields.get("password")) != (USER, PASSWORD):
            return Answer(200, f"<p class=error>Wrong user or password.</p>{_form(fields['token'])}")
        sid = secrets.token_hex(8)
        self.sessions[sid] = Membership(address, over=self.never)
        return Answer(303, "", [("Set-Cookie", f"sid={sid}; Path=/; HttpOnly; SameSite=Lax"), ("Location", "/welcome")])

    def _inside(self, path: str, cookies: dict[str, str], address: str) -> Answer:
        member = self.sessions.get(cookies.get("sid", ""))
        if path == "/welcome" and member is not None:
            return Answer(200, "<h1>Welcome</h1>")
        if member is None or member.over or (self.bound and member.address != address):
            fresh = [("Set-Cookie", f"sid=nobody-{secrets.token_hex(4)}; Path=/; HttpOnly")]
            if self.wall == "redirect":
                return Answer(302, "", [*fresh, ("Location", f"/login?next={path}")])
            return Answer(401 if self.wall == "401" else 200, _form("none"), fresh)
        if member.blocked or (self.blocks and member.pages >= BEARABLE):
            self.blocks -= not member.blocked
            member.blocked = True
            return Answer(200, "<title>Are you a robot?</title><div class=g-recaptcha data-sitekey=x></div>")
        member.pages += 1
        member.over = self.lasts is not None and member.pages >= self.lasts
        return Answer(200, _page(path, self.pages))


@dataclass(frozen=True)
class Answer:
    status: int
    body: str
    headers: list[tuple[str, str]] = field(default_factory=list)


def _form(token: str) -> str:
    return (
        "<!doctype html><title>Log in</title><h1>Log in</h1><form id=login action=/login method=post>"
        f"<input type=hidden name=token value={token}><input name=user><input type=password name=password>"
        "<button>Log in</button></form>"
    )


def _page(path: str, pages: int, folder: str = "page") -> str:
    links = "".join(f"<a href=/{folder}/{number}>{number}</a> " for number in range(pages))
    return f"<!doctype html><title>{path}</title><h1>Prices of {path}</h1>{links}<p>{'words ' * 100}</p>"


AnyClub = TypeVar("AnyClub", bound=Club)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A crawler that was killed is no news."""


def _handler(site: Club) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer("")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())

        def _answer(self, body: str) -> None:
            if site.latency:
                time.sleep(site.latency)
            jar = SimpleCookie(self.headers.get("Cookie", ""))
            cookies = {name: morsel.value for name, morsel in jar.items()}
            address = self.client_address[0]
            headers = {name.lower(): value for name, value in self.headers.items()}
            with site.turn:
                site.asked_with = headers
                found = site.answer(self.command, urlsplit(self.path).path, body, cookies, address)
                sid = cookies.get("sid", "")
                site.hits.append(
                    ClubHit(time.monotonic(), self.command, self.path, found.status, sid, address, headers, body)
                )
            content = found.body.encode()
            self.send_response(found.status)
            for name, value in (("Content-Type", "text/html; charset=utf-8"), *found.headers):
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *words: Any) -> None:
            """The site keeps its own log."""

    return Handler


@contextmanager
def club(kind: type[AnyClub] = Club, **plan: Any) -> Iterator[AnyClub]:
    """Run a club for the time of the block."""
    site = kind(**plan)
    server = _Server(("127.0.0.1", 0), _handler(site))
    site.port = server.server_address[1]
    with in_thread(server):
        yield site

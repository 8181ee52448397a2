"""Passwords in the URLs of a spider, `http://user:password@host/`: they go to their origin, and stand nowhere else.

A site that wants a login, and pages that fail in every way; then a search through the bytes of every store, log, export
and command output. The only place where the password may be is what travels with a task of the queue.
"""

from __future__ import annotations

import re
import sqlite3
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from uuid import uuid4

import pytest
import redis
import zstandard

from tests.services.postgres import PostgresServer, schema_of
from tests.services.threaded import in_thread
from tests.services.valkey import ValkeyServer
from tests.unit.commandline import ProjectFolder, project

__all__ = ["project"]

USER, PASSWORD = "usermark7e1", "passmark93c"
LOGIN = "Basic " + b64encode(f"{USER}:{PASSWORD}".encode()).decode()
MARKS = (PASSWORD.encode(), PASSWORD.encode().hex().encode(), LOGIN[6:].encode(), b64encode(PASSWORD.encode())[:12])
_ZSTD = b"\x28\xb5\x2f\xfd"

SPIDER = """
from gossamer import Item, Request, Spider

LOGIN = "{user}:{password}@"

class Found(Item, key="url"):
    title: str

class Club(Spider):
    name = "club"
    start_urls = [
        "http://" + LOGIN + "127.0.0.1:{port}" + path
        for path in ("/", "/moved", "/away", "/missing", "/error", "/cut", "/boom", "/hidden", "/login?u=1#x", "/data")
    ] + [
        "http://" + LOGIN + "127.0.0.1:1/refused",
        "http://" + LOGIN + "nowhere.invalid/",
        "https://" + LOGIN + "127.0.0.1:{port}/no-tls",
        "HTTP:\\\\\\\\" + LOGIN + "127.0.0.1:{port}\\\\odd",
    ]

    def start(self):
        for url in self.start_urls:
            yield Request(url=url, errback=self.failed) if "missing" in url else Request(url=url)

    def parse(self, page):
        if page.url.endswith("/boom"):
            raise ValueError("cannot use http://" + LOGIN + "127.0.0.1/")
        if page.url.endswith("/data"):
            yield Request(url="http://" + LOGIN + "127.0.0.1:{port}/bad", priority="high")
        yield Found(url=page.url, title=page.css("h1::text").get())
        yield from page.follow_all("a")
        yield Request(url="http://" + LOGIN + "127.0.0.1:{port}/own")
        yield page.download("/file.png")

    def failed(self, failure):
        yield Found(url=failure.url, title=str(failure))
"""


class Site(ThreadingHTTPServer):
    """Wants the login for every page; `seen` is each path with the Authorization header it came with."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[str, str, str]] = []
        self.elsewhere = ""

    @property
    def port(self) -> int:
        return self.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Site

    def do_GET(self) -> None:
        path, login = self.path.partition("?")[0], self.headers.get("Authorization", "")
        self.server.seen.append((self.headers["Host"], path, login))
        if path == "/robots.txt":
            self._answer(200, "User-agent: *\nDisallow: /hidden\n", "text/plain")
        elif path == "/sitemap.xml":
            urls = "".join(f"<url><loc>http://{self.headers['Host']}{one}</loc></url>" for one in ("/", "/listed"))
            self._answer(200, f"<urlset>{urls}</urlset>" if login else "", "text/xml")
        elif path == "/cut":
            self.close_connection = True
        elif path == "/moved":
            self._answer(302, "", location="/target")
        elif path == "/away":
            self._answer(302, "", location=f"{self.server.elsewhere}/landed")
        elif path == "/error":
            self._answer(500, "broken")
        elif path == "/missing":
            self._answer(404, "not here")
        else:
            status = 200 if login == LOGIN or path in ("/landed", "/file.png") else 401
            links = "<a href='/linked'>x</a><a href='http://eve:evemark@127.0.0.1/x'>y</a>"
            self._answer(status, f"<h1>{path}</h1>{links}")

    def _answer(self, status: int, body: str, type: str = "text/html", location: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *words: object) -> None:
        """Quiet."""


@contextmanager
def sites() -> Iterator[tuple[Site, Site]]:
    site, other = Site(), Site()
    site.elsewhere = f"http://127.0.0.1:{other.port}"
    with in_thread(site), in_thread(other):
        yield site, other


Stores = Callable[[], Iterator[tuple[str, bytes]]]  # every place of the stores with its bytes


def laptop(folder: Path, request: pytest.FixtureRequest) -> tuple[str, Stores]:
    def stores() -> Iterator[tuple[str, bytes]]:
        for name in ("state", "records"):
            with sqlite3.connect(folder / "gossamer-data" / f"{name}.db") as database:
                database.text_factory = bytes
                tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
                for (table,) in tables:
                    rows = database.execute(f'SELECT * FROM "{table.decode()}"')
                    columns = [column[0] for column in rows.description]
                    for row in rows:
                        for column, value in zip(columns, row, strict=True):
                            yield f"{name}.{table.decode()}.{column}", _bytes(value)

    return "", stores


def fleet(folder: Path, request: pytest.FixtureRequest) -> tuple[str, Stores]:
    valkey: ValkeyServer = request.getfixturevalue("valkey")
    postgres: PostgresServer = request.getfixturevalue("postgres")
    name, schema = f"p{uuid4().hex[:12]}", schema_of(folder)
    toml = f'project = "{name}"\nstate = "{valkey.address()}"\nrecords = "{postgres.address()}?schema={schema}"\n'

    def stores() -> Iterator[tuple[str, bytes]]:
        client = redis.Redis(port=valkey.port)
        for key in client.scan_iter(match=f"*{name}*", count=1000):
            place = f"state.{key.decode('utf-8', 'replace')}"
            yield place, key
            kind = client.type(key)
            if kind == b"string":
                yield place, client.get(key)
            elif kind == b"hash":
                for field, value in client.hgetall(key).items():
                    yield place, field + b" " + value
            elif kind == b"list":
                yield from ((place, value) for value in client.lrange(key, 0, -1))
            elif kind == b"set":
                yield from ((place, value) for value in client.smembers(key))
            elif kind == b"zset":
                yield from ((place, value) for value in client.zrange(key, 0, -1))
            elif kind == b"stream":
                yield from ((place, value) for _, entry in client.xrange(key) for value in entry.values())
        tables = postgres.sql(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'")
        for table in tables:
            for row in postgres.sql(f'SELECT t::text FROM "{schema}"."{table}" t'):
                yield f"records.{table}", row.encode()
                for packed in re.findall(r"\\x([0-9a-f]{8,})", row):
                    yield f"records.{table}", bytes.fromhex(packed)

    return toml, stores


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _unpacked(data: bytes) -> bytes:
    """The bytes, and what is in them behind each start of a zstd frame."""
    parts = [data]
    for found in re.finditer(re.escape(_ZSTD), data):
        try:
            with zstandard.ZstdDecompressor().stream_reader(BytesIO(data[found.start() :])) as reader:
                parts.append(reader.read(1 << 20))
        except zstandard.ZstdError:
            continue
    return b"\n".join(parts)


def leaks(place: str, data: bytes) -> list[str]:
    whole = _unpacked(data)
    return [f"{place}: {whole[max(0, at - 60) : at + 60]!r}" for mark in MARKS if (at := whole.find(mark)) >= 0]


@pytest.mark.long
@pytest.mark.parametrize("deployment", [laptop, fleet])
def test_a_password_in_a_url_is_sent_and_stands_nowhere(
    project: ProjectFolder, deployment, request: pytest.FixtureRequest
) -> None:
    with sites() as (site, other):
        toml, stores = deployment(project.folder, request)
        quick = (
            'fetch.allow_private = true\npoliteness.rate = "unlimited"\nretry = { max_attempts = 2, base = "10ms" }\n'
        )
        project.write("gossamer.toml", toml + quick)
        spider = project.write(
            "spiders/club.py",
            SPIDER.replace("{user}", USER).replace("{password}", PASSWORD).replace("{port}", str(site.port)),
        )
        home = f"http://{USER}:{PASSWORD}@127.0.0.1:{site.port}"
        plain = f"http://127.0.0.1:{site.port}"
        said = [project.run("crawl", "club", "-o", "items.jsonl", "--json-logs")]
        again = project.run("crawl", "club", "--fresh")  # with what the first run learned
        said.append(again)

        # The login was sent, and kept within its origin.
        asked = {path: login for host, path, login in site.seen}
        assert all(
            asked.get(path) == LOGIN
            for path in ("/", "/moved", "/target", "/away", "/missing", "/error", "/boom", "/odd")
        ), (asked, said)
        assert [login for _, path, login in other.seen if path == "/landed"] in ([""], ["", ""])
        assert all(login == "" for _, path, login in site.seen if path in ("/robots.txt", "/linked"))
        assert "/hidden" not in asked

        commands = [
            ("crawl", "broken"), ("crawl", "wrong"), ("crawl", "fails"), ("check", "club", f"{home}/"),
            ("schedule", "add", "listed", "--spider", "club", "--every", "1d", "--sitemap", f"{home}/sitemap.xml"),
            ("schedule", "add", "typed", "--spider", "club", "--every", "1d", "--url", f"{home}/typed", "--url",
             f"{home}/{{a,b c}}"),
            ("schedule", "run", "listed"), ("schedule", "run", "typed"), ("worker", "--until-idle"),
            ("schedule", "list"), ("schedule", "show", "listed"), ("schedule", "show", "typed"),
            ("schedule", "list", "--json"), ("fetch", f"{home}/"), ("fetch", f"{home}/missing"),
            ("fetch", f"{home}/cut"),
            ("fetch", f"http://{USER}:{PASSWORD}@127.0.0.1:1/"), ("fetch", f"http://{USER}:{PASSWORD}@no such/"),
            ("fetch", f"{home}/", "--headers"), ("crawl", f"{home}/"), ("crawl", f"http://{USER}:{PASSWORD}@no such/"),
            ("status",), ("status", "--json"), ("job", "list"), ("attempts",), ("attempts", "--json"), ("dead", "list"),
            ("dead", "list", "--json"), ("site", "list"), ("routes",), ("doctor",), ("settings",), ("quality",),
            ("export", "-o", "all.jsonl"), ("export", "-o", "all.csv"), ("warc", "export", "-o", "all.warc"),
            ("reparse",), ("backup", "all.backup"), ("schemas",), ("spiders",), ("diff", "club"),
            *(("why", f"{root}{path}") for root in (home, plain) for path in ("/", "/moved", "/missing", "/boom")),
            *(("dead", "show", f"{root}{path}") for root in (home, plain) for path in ("/missing", "/boom", "/cut")),
        ]  # fmt: skip
        said += [project.run(*words) for words in commands]
        assert ("/listed", LOGIN) in {(path, login) for _, path, login in site.seen}
        assert ("/typed", LOGIN) in {(path, login) for _, path, login in site.seen}

    found: list[str] = []
    for words, one in zip([("crawl",), ("crawl",), *commands], said, strict=True):
        found += leaks(f"output of {' '.join(words[:2])}", one.raw + one.err.encode())
    assert b"/landed" in b"".join(one.raw for one in said)  # the commands do show what was crawled
    for path in project.folder.rglob("*"):
        if path.is_file() and path != spider and not path.name.startswith("state.db"):  # see `stores`
            found += leaks(str(path.relative_to(project.folder)), path.read_bytes())
    places = list(stores())
    assert len(places) > 100
    for place, data in places:
        found += leaks(place, data)
    allowed = ALLOWED[deployment]
    assert [one for one in found if not allowed.match(one)] == []


# The request options of tasks, and the sources of schedules and of their jobs, which no worker could read without them.
# A backup has all that the state has.
ALLOWED = {
    laptop: re.compile(r"state\.urls\.extras: .*auth|state\.(jobs\.terms|schedules\.progress): .*source|all\.backup: "),
    fleet: re.compile(
        r'state\.gossamer:[^ ]+:(\d+:urls: .*"auth"|jobs: |schedules: .*source)|all\.backup: ', re.DOTALL
    ),
}


QUOTES = """
from gossamer import Spider

class Quotes(Spider):
    name = "quotes"
    start_urls = ["http://127.0.0.1:{port}/web/http://eve:evemark@g/landed", "http://127.0.0.1:{port}/landed"]

    def parse(self, page):
        yield from page.follow_all(["/copy/http://a:evemark@g/http://b:evemark@g/x"])
"""


def test_a_url_that_quotes_another_one_is_requested_as_it_is_without_the_login_in_the_quote(
    project: ProjectFolder,
) -> None:
    """An archive of the web has such paths. What they quote is no login for the archive."""
    with sites() as (site, _):
        project.write("gossamer.toml", 'fetch.allow_private = true\npoliteness.rate = "unlimited"\n')
        project.write("spiders/quotes.py", QUOTES.replace("{port}", str(site.port)))
        project.run("crawl", "quotes")
        project.run("fetch", f"http://127.0.0.1:{site.port}/typed/http://eve:evemark@g/")
    asked = {path: login for _, path, login in site.seen if path != "/robots.txt"}
    assert asked == {
        "/web/http://eve:evemark@g/landed": "",
        "/landed": "",
        "/copy/http://a:evemark@g/http://b:evemark@g/x": "",
        "/typed/http://eve:evemark@g/": "",
    }

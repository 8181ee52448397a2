"""`gossamer forget`: after it, the bytes of the stores and outputs hold nothing of a person, and all of the others."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from msgspec.structs import replace

from gossamer.backends.outputs.files import BucketFiles
from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import Record
from gossamer.project.access.keys import OWNER
from gossamer.project.boards.boards import BoardQuery, site_board, spider_board
from gossamer.project.jobs.compare import RunPair, compare_runs
from gossamer.project.jobs.jobs import list_jobs
from gossamer.project.open import Project, open_project
from gossamer.settings import load
from gossamer.store.contract import RecordQuery
from tests.conformance.stores import visit
from tests.patience import PATIENCE, poll_until
from tests.services.postgres import schema_of, shared_postgres
from tests.services.threaded import in_thread

PEOPLE, MANY = 30, 20_000
MARK = re.compile(rb"mark[-_%2Dx]{0,4}[0-9]+", re.IGNORECASE)

SPIDER = """
from gossamer import Item, Page, Spider


class Person(Item, key="email"):
    email: str
    name: str
    visits: int


class People(Spider):
    start_urls = ["{home}"]

    def parse(self, page: Page):
        yield from page.follow_all("a.person", self.person)
        yield from page.follow_all("a.next")

    def person(self, page: Page):
        yield Person(email=page.css(".email::text").get(), name=page.css("h1::text").get(),
                     visits=int(page.css(".visits::text").get()))
"""
OUTPUTS = """
[fetch]
allow_private = true
[politeness]
rate = "1000/s"
[outputs.lite]
url = "sqlite:///lite.db?table=people"
history = "past"
[outputs.duck]
url = "duckdb:///people.duckdb?table=people"
history = "past"
[outputs.lake]
url = "folder:///lake/"
every = "1s"
[outputs.lines]
url = "folder:///lines/?format=jsonl"
every = "1s"
"""


class Site(ThreadingHTTPServer):
    """A list of people, ten to a page; every other one is marked. `visits` is what their pages say now."""

    def __init__(self, people: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.people = people
        self.visits = 1
        self.odd = ""  # the person whose page says something else than a number
        self.slow = ""  # the person whose page is answered when `answers` is set; `asked` says that it was asked for
        self.asked, self.answers = threading.Event(), threading.Event()

    @property
    def home(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/list/0"

    def names(self) -> list[str]:
        return [f"mark-{n}" if n % 2 else f"other-{n}" for n in range(self.people)]


class Handler(BaseHTTPRequestHandler):
    server: Site
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        kind, _, which = self.path[1:].partition("/")
        names = self.server.names()
        if kind == "list":
            first = int(which) * 10
            links = "".join(f'<a class="person" href="/p/{name}">{name}</a>' for name in names[first : first + 10])
            more = f'<a class="next" href="/list/{int(which) + 1}">more</a>' if first + 10 < len(names) else ""
            body = f"<h1>All</h1>{links}{more}"
        elif kind == "p" and which in names:
            if which == self.server.slow:
                self.server.asked.set()
                self.server.answers.wait(PATIENCE)
            visits = f"{which} was here often" if which == self.server.odd else self.server.visits
            body = (
                f'<h1>{which} Doe</h1><p class="email">{which}@example.org</p>'
                f'<p class="visits">{visits}</p><a href="/dead/{which}">x</a>'
            )
        else:
            self.send_error(404)
            return
        content = body.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def gossamer(folder: Path, *words: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "gossamer", *words],
        cwd=folder, capture_output=True, text=True, timeout=280, check=False, env={**os.environ, **variables},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site(PEOPLE)
    with in_thread(site):
        yield site


def project(folder: Path, site: Site, more: str = "") -> None:
    (folder / "gossamer.toml").write_text(OUTPUTS + more)
    (folder / "people.py").write_text(SPIDER.replace("{home}", site.home))


def crawl(folder: Path, site: Site, **variables: str) -> None:
    gossamer(folder, "crawl", "people.py", **variables)
    site.visits += 1
    gossamer(folder, "crawl", "people.py", **variables)


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file below a folder as it is, and what is inside the compressed ones."""
    import pyarrow.parquet

    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name in ("people.py", "gossamer.toml") or "__pycache__" in path.parts:
            continue
        content = path.read_bytes()
        yield str(path), content
        if path.suffix == ".zst":
            text = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content), read_across_frames=True).read()
            yield f"{path} (inside)", text
        elif path.suffix == ".parquet":
            yield f"{path} (rows)", str(pyarrow.parquet.read_table(path).to_pylist()).encode()


def marked(folder: Path) -> dict[str, set[bytes]]:
    """Where a marked person is still found."""
    found = {place: set(MARK.findall(content)) for place, content in contents(folder)}
    return {place: marks for place, marks in found.items() if marks}


def rows(folder: Path, *limit: str) -> dict[str, Any]:
    import duckdb

    answer = gossamer(
        folder, "sql", "--json", *limit, "SELECT email, visits, _version FROM person ORDER BY email"
    ).stdout
    with duckdb.connect(str(folder / "people.duckdb"), read_only=True) as connection:
        duck = connection.execute("SELECT email, visits FROM people ORDER BY email").fetchall()
        past = connection.execute("SELECT count(*) FROM past").fetchone()
    return {"records": json.loads(answer), "duck": duck, "past": past}


def test_nothing_of_the_erased_is_left_in_any_store_and_the_others_are_untouched(tmp_path: Path, site: Site) -> None:
    project(tmp_path, site)
    crawl(tmp_path, site)
    before = rows(tmp_path)
    places = marked(tmp_path)
    assert {Path(place.partition(" ")[0]).name for place in places} >= {"records.db", "state.db", "lite.db"}

    told = gossamer(tmp_path, "forget", "--where", 'email contains "mark-"', "--yes").stdout

    assert f"{PEOPLE // 2} records" in told
    assert "mark" not in told
    assert marked(tmp_path) == {}
    after = rows(tmp_path)
    assert after["records"] == [row for row in before["records"] if "mark" not in str(row)]
    assert after["duck"] == [row for row in before["duck"] if "mark" not in row[0]]
    assert len(after["duck"]) == PEOPLE // 2
    assert after["past"] == (PEOPLE,)
    listed = json.loads(gossamer(tmp_path, "forget", "--json").stdout)
    assert [(one["state"], one["records"]) for one in listed] == [("erased", PEOPLE // 2)]


async def counts(folder: Path) -> list[Any]:
    """How many records each run has, wherever that is shown."""
    async with open_project(load(start=folder, environ={})) as project:
        views = (await list_jobs(project)).jobs
        told = [(view.id, view.run_records) for view in views]
        boards = [await board(project, OWNER, BoardQuery()) for board in (spider_board, site_board)]
        lines = [(run.job, run.records, run.changes) for one in boards for row in one.rows for run in row.runs]
        stored = [await project.records.count(RecordQuery(job=view.id)) for view in views]
        met = await compare_runs(project, OWNER, RunPair(before=views[1].id, after=views[0].id))
    return [told, lines, stored, met.records]


@pytest.mark.long
async def test_every_count_of_records_is_of_those_that_are_left(tmp_path: Path, site: Site) -> None:
    project(tmp_path, site)
    crawl(tmp_path, site)
    told, lines, stored, _ = await counts(tmp_path)
    half = PEOPLE // 2
    assert stored == [PEOPLE, PEOPLE]
    assert [one.seen for _, one in told] == stored

    await asyncio.to_thread(gossamer, tmp_path, "forget", "--where", 'email contains "mark-"', "--yes")

    told, lines, stored, met = await counts(tmp_path)
    assert stored == [half, half]
    assert [(one.seen, one.new, one.changed) for _, one in told] == [(half, 0, half), (half, half, 0)]
    assert {one[1] for one in lines} == {half}
    assert {one[2] for one in lines} == {f"{half} changed", f"{half} new", ""}
    assert met == {"changed": half}


def test_what_a_page_gave_a_message_is_erased_with_the_page(tmp_path: Path, site: Site) -> None:
    project(tmp_path, site)
    gossamer(tmp_path, "crawl", "people.py")
    site.odd = "mark-5"
    said = gossamer(tmp_path, "crawl", "people.py", code=3).stderr  # done with warnings
    assert "invalid literal for int" in said
    assert any(b"mark-5 was here" in content for place, content in contents(tmp_path) if "state.db" in place)

    gossamer(tmp_path, "forget", "--record", "mark-5@example.org", "--yes")

    assert not [place for place, content in contents(tmp_path) if b"mark-5" in content]


def test_a_dry_run_counts_and_changes_nothing(tmp_path: Path, site: Site) -> None:
    project(tmp_path, site)
    crawl(tmp_path, site)
    before = rows(tmp_path)

    told = json.loads(gossamer(tmp_path, "forget", "--record", "mark-1@example.org", "--dry-run", "--json").stdout)

    assert (told["state"], told["records"]) == ("counted", 1)
    assert rows(tmp_path) == before


def test_a_page_is_erased_by_its_address_and_comes_back_only_where_it_may(tmp_path: Path, site: Site) -> None:
    project(tmp_path, site)
    gossamer(tmp_path, "crawl", "people.py")
    pages = [site.home.replace("list/0", f"p/mark-{number}") for number in (1, 3)]

    gossamer(tmp_path, "forget", "--url", pages[0], "--yes")
    gossamer(tmp_path, "forget", "--url", pages[1], "--yes", "--for-good")
    site.visits += 1
    gossamer(tmp_path, "crawl", "people.py")

    emails = {row["email"] for row in rows(tmp_path)["records"]}
    assert "mark-1@example.org" in emails
    assert "mark-3@example.org" not in emails
    assert len(emails) == PEOPLE - 1


def test_an_order_that_was_killed_again_and_again_is_carried_out_in_the_end(tmp_path: Path, site: Site) -> None:
    project(tmp_path, site)
    crawl(tmp_path, site)
    words = [sys.executable, "-m", "gossamer", "forget", "--where", 'email contains "mark-"', "--yes"]
    for attempt in range(6):
        process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=0.6 + 0.25 * attempt)
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()
        words = words[:4]  # the order is placed, perhaps; from now on it goes on by itself

    if not json.loads(gossamer(tmp_path, "forget", "--json").stdout):  # it was killed before it was placed
        gossamer(tmp_path, "forget", "--where", 'email contains "mark-"', "--yes")
    until_erased(tmp_path)

    assert marked(tmp_path) == {}
    assert [row["email"] for row in rows(tmp_path)["records"]] == sorted(
        f"{name}@example.org" for name in site.names() if name.startswith("other")
    )


def until_erased(folder: Path) -> None:
    """The lease of a process that was killed ends by itself, after a while."""

    def erased() -> bool:
        orders = json.loads(gossamer(folder, "forget", "--json").stdout)
        return bool(orders) and all(order["state"] == "erased" for order in orders)

    poll_until(erased, "every order is erased", every=1)


def test_a_page_that_a_worker_has_in_hand_brings_nothing_back(tmp_path: Path, site: Site) -> None:
    project(tmp_path, site)
    gossamer(tmp_path, "crawl", "people.py")
    site.visits += 1
    site.slow = "mark-7"  # answers when it is told to, and until then its worker waits
    crawling = subprocess.Popen(
        [sys.executable, "-m", "gossamer", "crawl", "people.py"], cwd=tmp_path, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert site.asked.wait(PATIENCE)

    gossamer(tmp_path, "forget", "--record", "mark-7@example.org", "--yes")
    site.answers.set()

    assert crawling.wait(PATIENCE) == 0
    left = [Path(place).name for place, marks in marked(tmp_path).items() if any(one.endswith(b"-7") for one in marks)]
    assert set(left) <= {"state.db", "state.db-wal"}  # the run's log: the worker has lost this page
    assert len(rows(tmp_path)["records"]) == PEOPLE - 1
    gossamer(tmp_path, "forget", "--url", site.home.replace("list/0", "p/mark-7"), "--yes")
    assert not any(one.endswith(b"-7") for marks in marked(tmp_path).values() for one in marks)


def test_a_fleet_erases_in_its_stores(tmp_path: Path, site: Site, postgres: Any, valkey: Any, s3: Any) -> None:
    name = schema_of(tmp_path)
    stores = (
        f'project = "{name}"\nstate = "{valkey.address()}"\n'
        f'records = "{shared_postgres().address()}?schema={name}"\narchive = "{s3.address(name)}"\n'
    )
    table = f'[outputs.pg]\nurl = "{shared_postgres().address()}/{name}.people"\nhistory = "{name}.past"\n'
    lake = f'[outputs.bucket]\nurl = "{s3.address(f"{name}/lake/")}"\nevery = "1s"\n'
    project(tmp_path, site, table + lake)
    path = tmp_path / "gossamer.toml"
    path.write_text(stores + path.read_text())
    crawl(tmp_path, site)
    before = fleet_contents(name, valkey, s3)
    assert len(before) > 5

    told = gossamer(tmp_path, "forget", "--where", 'email contains "mark-"', "--yes", "--rewrite").stdout

    assert f"{PEOPLE // 2} records" in told
    assert fleet_contents(name, valkey, s3) == {}
    assert marked(tmp_path) == {}
    emails = [row["email"] for row in rows(tmp_path)["records"]]
    assert emails == sorted(f"{name}@example.org" for name in site.names() if name.startswith("other"))


async def download(address: str, folder: Path) -> None:
    bucket = BucketFiles(address)
    for path in await bucket.names(""):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(await bucket.get(path) or b"")


def fleet_contents(name: str, valkey: Any, s3: Any) -> dict[str, set[bytes]]:
    """Where a marked person is found in the stores of a fleet."""
    import redis

    found: dict[str, bytes] = {}
    server = shared_postgres()
    tables = server.sql(f"SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = '{name}'::regnamespace")
    for table in tables:
        found[f"pg {table}"] = "\n".join(server.sql(f'SELECT t::text FROM "{name}"."{table}" AS t')).encode()
    with redis.Redis.from_url(valkey.address()) as client:
        for key in client.scan_iter(match=f"gossamer:*{name}*", count=1000):
            kind = client.type(key)
            value = {b"hash": client.hgetall, b"string": client.get, b"set": client.smembers}.get(kind)
            content = value(key) if value else client.zrange(key, 0, -1)
            found[f"valkey {key.decode()}"] = key + str(content).encode()
    folder = Path(tempfile.mkdtemp(prefix="gossamer-bucket-"))
    try:
        asyncio.run(download(s3.address(name), folder))
        found |= dict(contents(folder))
    finally:
        shutil.rmtree(folder)
    marks = {place: set(MARK.findall(content)) for place, content in found.items()}
    return {place: those for place, those in marks.items() if those}


@pytest.mark.long
@pytest.mark.timeout(1800)  # 20,000 pages, where cores are rare
async def test_ten_thousand_people_are_erased_and_ten_thousand_stay(tmp_path: Path, site: Site) -> None:
    project(tmp_path, site)
    names = [f"mark-{n}" if n % 2 else f"other-{n}" for n in range(MANY)]
    async with open_project(load(start=tmp_path)) as opened:
        for first in range(0, MANY, 500):
            await store(opened, names[first : first + 500])
    gossamer(tmp_path, "output", "run", "--until-written", "--quiet")
    before = rows(tmp_path, "--limit", str(MANY))["records"]
    assert len(before) == MANY

    gossamer(tmp_path, "forget", "--where", 'email contains "mark-"', "--yes")

    assert marked(tmp_path) == {}
    after = rows(tmp_path, "--limit", str(MANY))
    assert after["records"] == [row for row in before if "mark" not in row["email"]]
    assert len(after["duck"]) == MANY // 2


async def store(opened: Project, names: list[str]) -> None:
    """What a worker stores of the pages of these people."""
    at, results, pages = opened.clock.now() - 60, [], []
    for name in names:
        url = f"https://people.example/p/{name}"
        fields = {"email": f"{name}@example.org", "name": f"{name} Doe", "visits": 1}
        body = f"<h1>{name} Doe</h1><p>{name}@example.org</p>".encode()
        pages.append(
            Snapshot(
                url=url, requested_url=url, status=200, headers=Headers([]), body=body, fetched_at=at, job="people-1"
            )
        )
        data = msgspec.json.encode(fields)
        record = Record(
            type="Person", site="people.example", key=fields["email"], url=url, job="people-1", spider="people",
            data=data.decode(), content_hash=blake2b(data, digest_size=16).digest(), scraped_at=at,
        )  # fmt: skip
        results.append(visit(url, record, at=at, job="people-1"))
    refs = await opened.archive.put(pages)
    await opened.records.save(
        [replace(one, page=replace(one.page, archive_ref=ref)) for one, ref in zip(results, refs, strict=True)]
    )

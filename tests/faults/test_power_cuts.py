"""A power cut at any moment, of a project on SQLite: what the program sent is on the disk, by its system calls."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from gossamer import Request
from gossamer.model.url import UrlRules
from tests.faults.commands import CommandProject, until
from tests.faults.synced_files import Moment, moments, path_in, strace
from tests.journey.commands import QUICK
from tests.patience import PATIENCE
from tests.sites.api import api_site

pytestmark = pytest.mark.long

ORDERS = 12
SCRIPT = """
import sys
import gossamer
from gossamer import Page, Request, Spider

class Orders(Spider):
    concurrency = 4

    def start(self):
        for number in range(int(sys.argv[2])):
            yield Request(url=f"{sys.argv[1]}?n={number}", method="POST", json={"order": number})

    def parse(self, page: Page):
        yield {"url": page.url}

gossamer.run(Orders, quiet=True, settings={"fetch.allow_hosts": ["127.0.0.1"]})
"""


async def test_the_note_of_a_post_is_on_the_disk_before_the_post_is_written(tmp_path):
    (tmp_path / "gossamer.toml").write_text(QUICK)
    log = tmp_path / "calls"
    async with api_site() as site:
        url = site.url("/echo")
        command = [*strace(log), sys.executable, "-c", SCRIPT, url, str(ORDERS)]
        crawl = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=asyncio.subprocess.DEVNULL)
        await asyncio.wait_for(crawl.wait(), PATIENCE)

    records, sent = tmp_path / "gossamer-data" / "records.db", []
    for moment in moments(log):
        found = re.match(rb"POST /echo\?n=(\d+) ", moment.data)
        if found is None:
            continue
        number = int(found[1])
        request = Request(url=f"{url}?n={number}", method="POST", json={"order": number})
        name = UrlRules().fingerprint(request.url, request.options())
        assert moment.disk.rows(records, "SELECT 1 FROM sent_notes WHERE fingerprint = ?", name)
        sent.append(number)
    assert sorted(sent) == list(range(ORDERS))


def ask(address: str, key: str, method: str, path: str, body: Any = None) -> bytes:
    request = urllib.request.Request(
        f"{address}{path}",
        method=method,
        data=json.dumps(body).encode() if body is not None else None,
        headers={"x-api-key": key, "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return bytes(answer.read())


def first(log: Path, before: dict[str, bytes], text: str) -> Moment:
    """The disk when this text first left the program."""
    for moment in moments(log, before):
        if text.encode() in moment.data:
            return moment
    raise AssertionError(f"{text!r} never left")


def test_what_a_program_is_told_is_on_the_disk(tmp_path):
    project = CommandProject(tmp_path, [])
    log, state = tmp_path / "calls", tmp_path / "gossamer-data" / "state.db"
    try:
        key = json.loads(project.done("keys", "add", "me", "--scopes", "scrape,jobs,records,admin", "--json"))["key"]
        before = {str(state): state.read_bytes()}  # its journal is gone with the last process
        server = project.run_under(strace(log), "serve", "--port", "0")
        until(lambda: "Listening on" in server.said(), server)
        address = re.findall(r"http://[0-9.:]+", server.said())[0]
        begun = json.loads(ask(address, key, "POST", "/api/v1/batch", {"urls": ["https://shop.example/"]}))["job_id"]
        late = json.loads(ask(address, key, "POST", "/api/v1/scrape/async", {"url": "https://shop.example/"}))["job_id"]
        other = json.loads(ask(address, key, "POST", "/api/v1/keys", {"name": "other", "scopes": ["jobs"]}))["id"]
        ask(address, key, "POST", "/api/v1/sites/rest.example/rest", {"duration": "1h"})
        ended = ask(address, key, "DELETE", f"/api/v1/jobs/{begun}").decode()
        for traced in server.children():  # strace itself ignores signals
            os.kill(traced, signal.SIGTERM)
        server.ended()
    finally:
        project.close()

    def kept(text: str, sql: str, *values: str) -> bool:
        return bool(first(log, before, text).disk.rows(state, sql, *values))

    assert kept(begun, "SELECT 1 FROM jobs WHERE id = ?", begun)
    assert kept(late, "SELECT 1 FROM jobs WHERE id = ?", late)
    assert kept(other, "SELECT 1 FROM shelf WHERE kind = 'key' AND key = ?", other)
    assert kept("rest.example", "SELECT 1 FROM shelf WHERE kind = 'override' AND key = 'domains.rest.example.rest'")
    assert kept(ended, "SELECT 1 FROM jobs WHERE id = ? AND state = 'cancelled'", begun)


SPOOLER = """
import asyncio, os, sys
from pathlib import Path
from gossamer.store.spool import Spool
from tests.unit.spooling import waiting

async def main():
    async with Spool(Path(sys.argv[1]), max_bytes=None) as spool:
        for n in range(20):
            await spool.append([waiting(n, os.urandom(9000)), waiting(n + 100)])
            os.write(1, b"promised %d\\n" % n)

asyncio.run(main())
"""


def test_what_was_spooled_is_on_the_disk_before_anybody_hears_of_it(tmp_path):
    log, spool = tmp_path / "calls", tmp_path / "spool"
    command = [*strace(log), sys.executable, "-c", SPOOLER, str(spool)]
    subprocess.run(command, cwd=Path(__file__).parents[2], check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)
    [file] = spool.glob("*.spool")
    heard = [
        (int(found[1]), len(moment.disk.rows(file, "SELECT n FROM results")))
        for moment in moments(log)
        if (found := re.fullmatch(rb"promised (\d+)\n", moment.data))
    ]
    assert heard == [(n, 2 * n + 2) for n in range(20)]
    # and so are the names of its files, and of the folder
    begun = log.read_text().partition("".join(f"\\x{letter:02x}" for letter in b"promised"))[0]
    named = {path_in(line.partition("fsync(")[2]) for line in begun.splitlines() if " fsync(" in line}
    assert named >= {str(spool), str(tmp_path)}

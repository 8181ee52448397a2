"""A hundred requests that mean no good: the right 4xx each, and nothing left behind."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import get_args

import pytest

from gossamer.project.jobs.api_requests import Format, ScrapeRequest
from gossamer.server.answers import ApiError
from gossamer.server.request_body import parse_body

from .serving import Served, serving, settings_of

PAGE = "https://shop.example/p/1"
SCRAPE, BATCH, CRAWLS, KEYS = "/api/v1/scrape/async", "/api/v1/batch", "/api/v1/crawls", "/api/v1/keys"

PRIVATE = [
    "http://127.0.0.1/", "http://127.1/", "http://0x7f.1/", "http://2130706433/", "http://0177.0.0.1/",
    "http://0x7f000001/", "http://017700000001/", "http://127.0.0.1.:80/", "http://localhost/", "http://LOCALHOST./",
    "http://a.localhost/", "http://[::1]/", "http://[::]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/",
    "http://[0:0:0:0:0:ffff:10.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[fe80::1]/", "http://[fc00::1]/",
    "http://[2002:7f00:1::]/", "http://10.0.0.1/", "http://172.16.0.1/", "http://192.168.1.1/", "http://0.0.0.0/",
    "http://0/", "http://169.254.169.254/latest/meta-data/", "http://100.64.0.1/", "http://224.0.0.1/",
    "http://255.255.255.255/", "http://１２７.０.０.１/", "http://①②⑦.0.0.1/", "http://127。0。0。1/",
    "http://shop.example@127.0.0.1/", "http://127.0.0.1:80\\@shop.example/", "http:127.0.0.1", "http:///127.0.0.1/",
    "\thttp://127.0.0.1/", "http://127.0.0.1%2f@shop.example/", "http://%31%32%37.0.0.1/",
]  # fmt: skip
NO_URLS = [
    "", " ", "shop.example", "//shop.example/", "ftp://shop.example/", "file:///etc/passwd", "javascript:alert(1)",
    "data:text/html,x", "gopher://shop.example/", "http://", "http://[::1", "http://exa mple/",
    "http://shop.example:99999/",
    "https://user:secret@shop.example/", "https://user@shop.example/", "https://shop.example/" + "a" * 3000,
    "gossamer:pages", "../../etc/passwd",
]  # fmt: skip
BODIES = [
    b"", b"null", b"[]", b'"text"', b"1", b"{", b"{]", b'{"url":', b"\xff\xfe", b"\x00", b'{"url": "\xff"}', b"NaN",
    b"[" * 100_000, b'{"url":' * 50_000, b'{"a":' * 30 + b"1" + b"}" * 30,
    b'{"url": 1}', b'{"url": null}', b'{"url": {}}',
    b'{"url": ["https://shop.example/"]}', b'{"url": true}', b'{"urls": ["https://shop.example/"]}',
    b'{"url": "https://shop.example/", "callback_url": "http://127.0.0.1/"}',
    b'{"url": "https://shop.example/", "allow_private": true}',
    b'{"url": "https://shop.example/", "proxy": "http://127.0.0.1:3128"}',
    b'{"url": "https://shop.example/", "headers": {"x": "a\\r\\nb"}}',
    b'{"url": "https://shop.example/\\ud800"}', b'{"url": "https://shop.example/", "id": "\\udfff"}',
    b'{"url": "https://shop.example/", "id": "\\u0000"}', b'{"url": "https://shop.example/", "__proto__": {}}',
]  # fmt: skip
WISHES = [
    {"formats": []}, {"formats": ["pdf"]}, {"formats": "html"}, {"formats": [None]},
    {"formats": ["html"] * (len(get_args(Format)) + 1)},
    {"timeout": -1}, {"timeout": 601}, {"timeout": "1"}, {"timeout": None}, {"timeout": 1e400}, {"max_age": -1},
    {"max_age": 1e12}, {"country": "Germany"}, {"country": "d\n"}, {"country": "de\n"},
    {"route": "no-such-route"}, {"route": ""},
    {"route": "x" * 200}, {"use_js_render": 1}, {"use_js_render": "true"}, {"use_residential": True},
    {"wait_for": ""}, {"wait_for": "x" * 600}, {"id": "x" * 300}, {"spider": "no-such-spider"},
    {"spider": "../../spiders/things.py"}, {"spider": "spiders/things.py"}, {"spider": "things.py:Things"},
    {"spider": "os"}, {"spider": "http://127.0.0.1/"}, {"recipe": "/etc/passwd"}, {"recipe": "x.toml"},
    {"spider": "gossamer:pages"}, {"spider": "a", "recipe": "b"}, {"priority": 10**18}, {"owner": "someone"},
]  # fmt: skip


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(
        settings_of(tmp_path, fetch__allow_private=True, server__max_body="1MB"), worker=False
    ) as opened:
        yield opened


async def nothing_happened(door: Served) -> None:
    assert await door.project.state.jobs.jobs() == []
    assert [key.name for key in await door.project.state.keys.keys()] == ["all"]


def refused(answer, *statuses: int) -> None:
    """With one of these statuses, in our own shape, without a word about our insides."""
    assert answer.status_code in statuses, answer.text
    error = answer.json()["error"]
    assert answer.json()["success"] is False
    assert error["code"]
    assert error["message"]
    assert "Traceback" not in answer.text
    assert "pytest-" not in answer.text  # of the folder of the project
    assert ".py" not in error["message"].replace("things.py", "").replace("gossamer.py", "")


async def test_no_notation_of_a_private_address_is_taken(door: Served) -> None:
    # given settings that allow private addresses to the command line
    assert door.project.settings.fetch.allow_private
    for url in PRIVATE:
        refused(await door.post(SCRAPE, {"url": url}), 422)
        refused(await door.post("/api/v1/scrape", {"url": url}), 422)
        refused(await door.post(BATCH, {"urls": [PAGE, url]}), 422)
        refused(await door.post(CRAWLS, {"url": url}), 422)
    await nothing_happened(door)


async def test_what_is_no_url_is_refused(door: Served) -> None:
    for url in NO_URLS:
        refused(await door.post(SCRAPE, {"url": url}), 422)
        refused(await door.post(BATCH, {"requests": [{"url": PAGE}, {"url": url}]}), 422)
    await nothing_happened(door)


async def test_bodies_that_are_no_requests_are_refused(door: Served) -> None:
    for body in BODIES:
        for path in (SCRAPE, "/api/v1/scrape"):
            refused(await door.call("POST", path, content=body), 400, 422)
    refused(await door.call("POST", SCRAPE, content=b'{"url": "%b"}' % (b"x" * 2_000_000)), 413)
    refused(await door.call("POST", SCRAPE, content=b"<x/>", headers={"content-type": "text/xml"}), 415)
    await nothing_happened(door)


def test_a_text_that_never_ends_is_read_once() -> None:
    began = time.thread_time()
    with pytest.raises(ApiError, match="not JSON"):
        parse_body(b'{"url": "' + b'\\"' * 50_000, ScrapeRequest, "")
    assert time.thread_time() - began < 5  # seconds of work; read once for each quote it takes twenty


async def test_a_body_without_end_is_cut_off(door: Served) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 100_000_000:
            sent += 65536
            yield b" " * 65536

    refused(await door.call("POST", SCRAPE, content=endless()), 413)
    assert sent < 10_000_000
    await nothing_happened(door)


async def test_wishes_that_cannot_be_granted_are_refused(door: Served) -> None:
    for wish in WISHES:
        text = json.dumps({"url": PAGE, **wish}).replace("Infinity", "1e999")
        refused(await door.call("POST", SCRAPE, content=text.encode()), 400, 422)
    for wish in (
        {},
        {"urls": [PAGE], "requests": [{"url": PAGE}]},
        {"urls": PAGE},
        {"urls": [PAGE], "callback_url": "https://127.0.0.1/"},
        {"urls": [PAGE] * 101},
        {"requests": [{"url": PAGE, "timeout": 5}]},
    ):
        refused(await door.post(BATCH, wish), 422)
    for wish in (
        {},
        {"spider": "no-such-spider"},
        {"spider": "spiders/things.py"},
        {"url": PAGE, "spider": "things"},
        {"url": PAGE, "limit": 0},
        {"url": PAGE, "depth": -1},
        {"url": PAGE, "arguments": {"a": 1}},
    ):
        refused(await door.post(CRAWLS, wish), 422)
    await nothing_happened(door)


async def test_no_key_makes_a_stronger_one(door: Served) -> None:
    weak = await door.new_key("weak", "scrape", "jobs", "records", "metrics")
    refused(await door.post(KEYS, {"name": "strong", "scopes": ["admin"]}, weak), 403)
    refused(await door.get(KEYS, weak), 403)
    refused(await door.get("/api/v1/audit", weak), 403)
    for wish in (
        {"name": "", "scopes": ["jobs"]},
        {"name": "a\nb", "scopes": ["jobs"]},
        {"name": "x" * 200, "scopes": ["jobs"]},
        {"name": "a", "scopes": []},
        {"name": "a", "scopes": ["root"]},
        {"name": "a", "scopes": ["jobs"], "id": "mine"},
        {"name": "a", "scopes": ["jobs"], "rate": 0},
        {"name": "a", "scopes": ["jobs"], "expires_in": -5},
        {"name": "all", "scopes": ["jobs"]},
    ):
        refused(await door.post(KEYS, wish), 422)
    assert [key.name for key in await door.project.state.keys.keys()] == ["all", "weak"]


async def test_parameters_and_paths_that_are_wrong_are_refused(door: Served) -> None:
    for path in (
        "/api/v1/jobs?limit=0", "/api/v1/jobs?limit=x", "/api/v1/jobs?limit=1000000", "/api/v1/jobs?limit=1&limit=2",
        "/api/v1/jobs?unknown=1", "/api/v1/jobs?status=odd", "/api/v1/jobs?status=failed%0a",
        "/api/v1/records?format=exe", "/api/v1/records?after=-1",
        "/api/v1/records?since=yesterday", "/api/v1/records/changes?after=nonsense", "/api/v1/records/history",
        "/api/v1/why", "/api/v1/why?url=", "/api/v1/why?url=javascript:1",
        f"/api/v1/why?url=https://a.example/&json={'[' * 3000}", "/api/v1/audit?limit=99999",
    ):  # fmt: skip
        refused(await door.call("GET", path), 422)
    for path in (
        "/api/v1/jobs/a-1", "/api/v1/jobs/..%2f..%2fetc", "/api/v1/jobs/%00", "/api/v1/jobs/%ff",
        "/api/v1/jobs/a-1/results",
        "/api/v1/jobs/" + "x" * 5000, "/api/v1/jobs/a-1/events", "/api/v1/records?job=a-1", "/nothing", "/api/v2/jobs",
        "/api/v1/records/history?key=none", "/api/v1/../../etc/passwd",
    ):  # fmt: skip
        refused(await door.call("GET", path), 404)
    refused(await door.call("PUT", "/api/v1/jobs"), 405)
    refused(await door.call("POST", "/api/v1/jobs/a-1/pause", content=b"x" * 2_000_000), 413)

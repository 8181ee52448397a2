"""Requests that are wrong as bytes: half of them, two in one, too slow, for somebody else. A real server on a real
socket; whatever it is sent, it answers the next client, and nothing was begun."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gossamer.model.task import Candidate
from gossamer.model.url import shape_of, site_of
from gossamer.server import request_body
from gossamer.server.app import ENDPOINTS
from gossamer.server.run import HttpServer, _config
from tests.patience import PATIENCE

from .serving import Served, listening, serving, settings_of
from .test_hostile_requests import BATCH, CRAWLS, PAGE, PRIVATE, SCRAPE, nothing_happened, refused

BODY = json.dumps({"url": PAGE}).encode()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(settings_of(tmp_path, fetch__allow_private=True), worker=False) as opened:
        yield opened


@pytest.fixture
async def port(door: Served, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(request_body, "BODY_SECONDS", 0.5)
    async with listening(HttpServer(_config(door.app))) as port:
        yield port


def head(door: Served, *lines: str, length: int | None = len(BODY), host: str = "127.0.0.1") -> bytes:
    announced = [] if length is None else [f"Content-Length: {length}"]
    fields = ["POST /api/v1/scrape/async HTTP/1.1", f"Host: {host}", f"x-api-key: {door.key}", *announced, *lines]
    return ("\r\n".join(fields) + "\r\n\r\n").encode("latin-1")


async def answer_to(port: int, content: bytes, *, half_closed: bool = False) -> bytes:
    """What the server says until it closes the connection, or has said one whole answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(content)
        if half_closed:
            writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
        async with asyncio.timeout(PATIENCE):
            said = await reader.readuntil(b"\r\n\r\n")
            length = next((line for line in said.lower().split(b"\r\n") if line.startswith(b"content-length")), None)
            if length is None:  # it is over with the connection
                return said + await reader.read()
            return said + await reader.readexactly(int(length.partition(b":")[2]))
    except asyncio.IncompleteReadError as cut:
        return cut.partial
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def still_answers(door: Served, port: int) -> None:
    whole = await answer_to(port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert b" 200 " in whole.partition(b"\r\n")[0]
    await nothing_happened(door)


async def test_a_body_that_does_not_come_is_not_waited_for(door: Served, port: int) -> None:
    said = await answer_to(port, head(door) + BODY[:10])

    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"slow_body" in said
    await still_answers(door, port)


async def test_half_a_body_begins_nothing(door: Served, port: int) -> None:
    said = await answer_to(port, head(door) + BODY[:10], half_closed=True)

    assert said == b"" or said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 408 "))
    await still_answers(door, port)


async def test_bytes_that_are_no_request_or_two_in_one_are_refused(door: Served, port: int) -> None:
    wrong = [
        head(door, f"Content-Length: {len(BODY) + 1}") + BODY,
        head(door, "Transfer-Encoding: chunked") + b"0\r\n\r\n" + BODY,
        head(door, "Transfer-Encoding: gzip, chunked", length=None) + BODY,
        head(door, "Transfer-Encoding: chunked", length=None) + b"zz\r\n" + BODY,
        head(door, "Transfer-Encoding: chunked", length=None) + b"-5\r\nabcde\r\n0\r\n\r\n",
        head(door, length=-1) + BODY,
        head(door, "Content-Length: +5", length=None) + b"{}   ",
        head(door, "X : a") + BODY,
        head(door, "X: \x00") + BODY,
        head(door, f"X: {'y' * 100_000}") + BODY,
        head(door, host="evil.example") + BODY,
        head(door, "Host: evil.example") + BODY,
        head(door).replace(b"Host: 127.0.0.1\r\n", b"") + BODY,
        head(door).replace(b"HTTP/1.1", b"HTTP/9.9") + BODY,
        head(door).replace(b"POST ", b"POST  ") + BODY,
        head(door).replace(b"POST /api/v1/scrape/async", b"POST http://evil.example/api/v1/scrape/async") + BODY,
        head(door).replace(b"/api/v1/scrape/async", b"/api/v1/scrape/async\x00") + BODY,
        head(door).replace(b"/api/v1/scrape/async", b"/api/v1/%73crape/../scrape/async") + BODY,
        head(door).replace(b"/api/v1/scrape/async", b"//api/v1/scrape/async") + BODY,
        head(door).replace(b"/api/v1/scrape/async", b"/API/V1/scrape/async") + BODY,
        head(door).replace(b"/api/v1/scrape/async", b"/api/v1/scrape/async/") + BODY,
        head(door).replace(b"/api/v1/scrape/async", b"/api/v1/scrape\\async") + BODY,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /api/v1/jobs\r\n",
        b"\r\n" * 1000 + b"\x00\r\n\r\n",
    ]
    for content in wrong:
        said = await answer_to(port, content, half_closed=True)
        assert said == b"" or said.startswith((b"HTTP/1.1 4", b"HTTP/1.1 505")), (content[:200], said[:200])
        assert b"Traceback" not in said
    await still_answers(door, port)


async def test_a_request_with_two_lengths_hides_no_other(door: Served, port: int) -> None:
    hidden = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head(door, "Transfer-Encoding: chunked", length=5) + b"0\r\n\r\n" + hidden)
    writer.write_eof()
    async with asyncio.timeout(PATIENCE):
        said = await reader.read()
    writer.close()

    assert said.startswith(b"HTTP/1.1 400")
    assert said.count(b"HTTP/1.1") == 1, said
    await still_answers(door, port)


async def test_clients_that_leave_in_the_middle_are_forgotten(door: Served, port: int) -> None:
    for cut in range(1, len(head(door) + BODY) - 1, 7):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write((head(door) + BODY)[:cut])
        writer.transport.abort()

    await still_answers(door, port)


async def test_no_notation_of_a_private_address_is_called_back(door: Served) -> None:
    for url in PRIVATE:
        for path, wish in (
            (SCRAPE, {"url": PAGE}),
            ("/api/v1/scrape", {"url": PAGE}),
            (BATCH, {"urls": [PAGE]}),
            (CRAWLS, {"url": PAGE}),
        ):
            refused(await door.post(path, {**wish, "callback_url": url}), 422)
    await nothing_happened(door)


async def test_what_belongs_to_another_key_is_not_there(door: Served) -> None:
    """Every address that names a job, a callback or a key."""
    mine = await door.new_key("mine", "scrape", "jobs", "records")
    other = await door.new_key("other", "scrape", "jobs", "records", "metrics")
    begun = await door.post(BATCH, {"urls": [PAGE], "callback_url": "https://mine.example/"}, mine)
    job = begun.json()["job_id"]
    (callback,) = (await door.get("/api/v1/callbacks", mine)).json()
    names = {"job": job, "callback": callback["id"]}

    asked = 0
    for endpoint in ENDPOINTS:
        for path in (endpoint.path, *endpoint.aliases):
            if not any(f"{{{name}}}" in path for name in names):
                continue
            answer = await door.call(endpoint.method, path.format(**names), other)
            assert answer.status_code == 404, (endpoint.method, path, answer.text)
            asked += 1

    assert asked >= 9
    for query in (f"/api/v1/records?job={job}", f"/api/v1/records/diff?before={job}&after={job}"):
        assert (await door.call("GET", query, other)).status_code == 404
    assert (await door.get("/api/v1/jobs", other)).json()["jobs"] == []
    assert (await door.get("/api/v1/callbacks", other)).json() == []
    found = await door.project.state.jobs.job(job)
    assert found is not None
    assert (found.state.value, found.paused) == ("running", False)


async def test_the_job_of_another_key_that_has_the_site_is_not_named(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, politeness__concurrency=1, politeness__rate="unlimited")
    async with serving(settings, worker=False) as door:
        keys = [await door.new_key(name, "jobs", "records") for name in ("first", "second")]
        jobs = [(await door.post(CRAWLS, {"url": PAGE}, key)).json()["job_id"] for key in keys]
        frontier, rules = door.project.state.frontier, door.project.rules
        for n, job in enumerate(jobs):
            url = f"{PAGE}/{n}"
            page = Candidate(url=url, fingerprint=rules.fingerprint(url), site=site_of(url), shape=shape_of(url))
            await frontier.add(job, [page])
        assert (await frontier.lease(jobs[0], "w1", 1)).leases
        assert not (await frontier.lease(jobs[1], "w2", 1)).leases

        for path in (f"/api/v1/sites?job={jobs[1]}", f"/api/v1/why?url={PAGE}/1"):
            told = (await door.call("GET", path, keys[1])).text
            assert "another job has the site" in told, told
            assert jobs[0] not in told
            assert f"{jobs[0]} has the site" in (await door.call("GET", path)).text  # of the admin

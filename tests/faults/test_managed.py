"""Vendors that fail in every way: no try of a page is used up for it, nothing is lost, forgers are not believed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gossamer.clock import VirtualClock
from gossamer.errors import ApiFailed, BadResponse, FetchFailed, RouteFailed
from gossamer.fetch.contract import Response
from gossamer.fetch.managed import ManagedTransport
from tests.services.ports import free_port
from tests.services.vendors import (
    GetVendor,
    JobVendor,
    Vendor,
    garbage,
    get_vendor,
    hang_up,
    job_vendor,
    running,
    status,
    text,
)
from tests.unit.managed import (
    BATCH,
    SITE,
    exchange,
    fetch_all,
    pages,
    right,
    transport_to,
    until,
    while_time_flies,
    with_callbacks,
)

SHAPES: list[tuple[Callable[[], Vendor], str]] = [
    (GetVendor, ""),
    (JobVendor, ""),
    (JobVendor, 'mode = "async"\n'),
    (JobVendor, BATCH),
]


async def failure(transport: ManagedTransport, path: str = "/") -> FetchFailed:
    with pytest.raises(FetchFailed) as caught:
        await transport.fetch(exchange(SITE + path))
    return caught.value


# -- the vendor itself --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "mode"), SHAPES)
@pytest.mark.parametrize(
    ("trouble", "words", "wait"),
    [
        (status(401), r"refuses the key. Check managed\.acme\.key \(401\)", 600),
        (status(403), r"refuses the key", 600),
        (status(402), r"no credit is left", 600),
        (status(402, Retry_After="3600"), r"no credit is left", 3600),
        (status(429, Retry_After="77"), r"too many requests", 77),
        (status(429), r"too many requests", 30),
        (status(502), r"the API failed \(502\)", 15),
        (status(503, Retry_After="40"), r"the API failed \(503\)", 40),
        (hang_up, r"Managed API acme", 15),
    ],
)
async def test_no_try_is_used_up_for_a_failure_of_the_vendor(
    make: Callable[[], Vendor], mode: str, trouble: Callable[[], web.StreamResponse], words: str, wait: float
) -> None:
    server = make()
    async with running(server), transport_to(server, mode) as transport:
        server.always = trouble
        found = await failure(transport)
    assert isinstance(found, ApiFailed)
    assert found.wait == timedelta(seconds=wait)
    with pytest.raises(ApiFailed, match=words):
        raise found


@pytest.mark.parametrize("mode", ["", BATCH])
async def test_a_500_with_json_is_the_vendors_fault(mode: str) -> None:
    async with job_vendor() as server, transport_to(server, mode) as transport:
        server.always = status(500)
        assert isinstance(await failure(transport), ApiFailed)


async def test_a_500_of_the_get_shape_says_that_the_page_cannot_be_had() -> None:
    async with get_vendor() as server, transport_to(server) as transport:
        server.always = status(500)
        assert not isinstance(await failure(transport), RouteFailed)


@pytest.mark.parametrize("mode", ["", 'mode = "async"\n', BATCH])
@pytest.mark.parametrize("trouble", [garbage, text("[1, 2"), text("null"), text('"x"'), text("{}")])
async def test_garbage_is_the_vendors_fault(mode: str, trouble: Callable[[], web.StreamResponse]) -> None:
    async with job_vendor() as server, transport_to(server, mode) as transport:
        server.always = trouble
        found = await failure(transport)
    assert isinstance(found, ApiFailed)
    assert "makes no sense" in str(found)


@pytest.mark.parametrize(("make", "mode"), SHAPES)
async def test_a_vendor_that_is_not_there_costs_no_try(make: Callable[[], Vendor], mode: str) -> None:
    server = make()
    async with running(server):
        pass
    async with transport_to(server, mode) as transport:
        found = await failure(transport)
    assert isinstance(found, ApiFailed)
    assert "no connection" in str(found)


@pytest.mark.parametrize(("make", "mode"), SHAPES)
async def test_a_vendor_that_never_answers_costs_no_try(make: Callable[[], Vendor], mode: str) -> None:
    server = make()
    async with running(server), transport_to(server, mode + 'timeout = "200ms"\n') as transport:
        server.hold = asyncio.Event()
        found = await failure(transport)
        server.hold.set()
    assert isinstance(found, ApiFailed)
    assert "no answer within 0.2 s (managed.acme.timeout)" in str(found)


async def test_a_huge_answer_is_read_up_to_the_limit_and_not_asked_for_again() -> None:
    async with job_vendor() as server, transport_to(server) as transport:
        server.always = lambda: web.Response(body=b'{"body": "' + b"x" * 5_000_000)
        with pytest.raises(BadResponse, match="response is too long"):
            await transport.fetch(exchange(f"{SITE}/"))


@pytest.mark.parametrize(("count", "size"), [(100, 1000), (1000, 1)])
async def test_endless_headers_are_the_vendors_fault(count: int, size: int) -> None:
    async with get_vendor() as server, transport_to(server) as transport:
        server.always = lambda: web.Response(headers={f"X-{number}": "x" * size for number in range(count)})
        assert isinstance(await failure(transport), ApiFailed)


async def test_a_vendor_that_wants_to_be_left_alone_is() -> None:
    clock = VirtualClock()
    async with get_vendor() as server, transport_to(server, clock=clock) as transport:
        url = server.show(f"{SITE}/")
        server.trouble = [status(429, Retry_After="60")]
        assert isinstance(await failure(transport), ApiFailed)
        clock.advance(45)
        found = await failure(transport)
        assert isinstance(found, ApiFailed)
        assert found.wait == timedelta(seconds=15)
        assert len(server.log) == 1
        clock.advance(15)
        assert (await transport.fetch(exchange(url))).status == 200
    assert len(server.log) == 2


# -- jobs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ['mode = "async"\n', BATCH])
async def test_a_job_that_never_ends_is_abandoned(mode: str) -> None:
    clock = VirtualClock()
    async with job_vendor() as server, transport_to(server, mode + 'deadline = "2m"\n', clock=clock) as transport:
        server.polls = None
        url = server.show(f"{SITE}/")
        with pytest.raises(ApiFailed, match="was not finished within 120 s"):
            await while_time_flies(clock, transport.fetch(exchange(url)), step=0.05)
        abandoned = len(server.log)
        server.polls = 1
        response = await while_time_flies(clock, transport.fetch(exchange(url)), step=0.001)
    assert response.status == 200
    assert len({asked.path for asked in server.log[abandoned:]} & {asked.path for asked in server.log[:abandoned]}) == 1


@pytest.mark.parametrize("mode", ['mode = "async"\n', BATCH])
@pytest.mark.parametrize("trouble", [status(500), status(503), garbage, text("{}"), hang_up])
async def test_a_look_that_fails_does_not_lose_the_job(mode: str, trouble: Callable[[], web.StreamResponse]) -> None:
    async with job_vendor() as server, transport_to(server, mode) as transport:
        url = server.show(f"{SITE}/")
        server.polls = 3
        server.trouble = [lambda: server.new("batch_id" if mode == BATCH else "job_id", server.log[-1].json)]
        server.trouble += [trouble, trouble]
        assert (await transport.fetch(exchange(url))).body == b"<p>hello</p>"
    assert len([asked for asked in server.log if asked.method == "POST"]) == 1


@pytest.mark.parametrize("mode", ['mode = "async"\n', BATCH])
@pytest.mark.parametrize("code", [401, 404, 410])
async def test_a_job_that_the_vendor_has_forgotten_is_not_waited_for(mode: str, code: int) -> None:
    async with job_vendor() as server, transport_to(server, mode) as transport:
        name = "batch_id" if mode == BATCH else "job_id"
        server.trouble = [lambda: server.new(name, server.log[-1].json), status(code)]
        found = await failure(transport)
    assert isinstance(found, ApiFailed)
    assert found.status == code
    assert len(server.log) == 2


async def test_a_cancelled_exchange_is_not_polled_any_more() -> None:
    async with job_vendor() as server, transport_to(server, 'mode = "async"\n') as transport:
        server.polls = None
        task = asyncio.create_task(transport.fetch(exchange(server.show(f"{SITE}/"))))
        await until(lambda: len(server.log) >= 3)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        seen = len(server.asked("/jobs/job-0"))
        server.polls = 5
        await transport.fetch(exchange(server.show(f"{SITE}/another")))
        assert len(server.asked("/jobs/job-1")) == 5
        assert len(server.asked("/jobs/job-0")) <= seen + 1  # one look may have been on its way


# -- batches ------------------------------------------------------------------------------------------------


async def test_a_batch_with_wrong_ids_gives_nobody_a_wrong_page() -> None:
    async with job_vendor() as server, transport_to(server, BATCH) as transport:
        server.retag = lambda tag: tag[::-1]
        failures = await fetch_all(transport, pages(server, 3))
    assert all(isinstance(one, ApiFailed) and "without 3 of its pages" in str(one) for one in failures)


async def test_pages_that_a_batch_leaves_out_come_back_without_a_try() -> None:
    async with job_vendor() as server, transport_to(server, BATCH) as transport:
        urls = pages(server, 3)
        server.leaves_out.add(urls[1])
        first, second, third = await fetch_all(transport, urls)
    assert right([urls[0], urls[2]], [first, third])
    assert isinstance(second, ApiFailed)


# -- callbacks ----------------------------------------------------------------------------------------------


async def test_duplicate_callbacks_change_nothing() -> None:
    text = with_callbacks(free_port(), "batch_size = 2\n")
    async with job_vendor() as server, transport_to(server, text) as transport:
        server.callbacks = 0
        urls = pages(server, 2)
        waiting = asyncio.create_task(fetch_all(transport, urls))
        await until(lambda: bool(server.jobs))
        address = server.log[0].json["callback_url"]
        whole = await server.finished("job-0")
        first = {**whole, "results": whole["results"][:1]}
        other = json.loads(json.dumps(first))
        other["results"][0]["result"]["body"] = "<p>something else"
        # The same result twice, and once more with another page: the first one stays.
        assert [await server.call(address, one) for one in (first, first, other)] == [200, 200, 200]
        assert not waiting.done()
        assert await server.call(address, whole) == 200
        assert right(urls, await waiting)


async def test_a_replayed_callback_finds_nobody() -> None:
    async with job_vendor() as server, transport_to(server, with_callbacks(free_port())) as transport:
        urls = pages(server, 2)
        assert right(urls, await fetch_all(transport, urls))
        await until(lambda: len(server.called) == 1)
        address, what, _ = server.called[0]

        async def is_forgotten() -> bool:  # a moment after the last page was handed out
            return await server.call(address, what) == 404

        await until(is_forgotten)


FORGERIES: list[tuple[str, Callable[[str], str], Callable[[dict[str, Any]], Any], int]] = [
    ("no secret", lambda address: address.rpartition(".")[0], lambda whole: whole, 404),
    ("another secret", lambda address: address.rpartition(".")[0] + "." + "x" * 32, lambda whole: whole, 404),
    ("a longer secret", lambda address: address + "x", lambda whole: whole, 404),
    ("another batch", lambda address: address.replace("/hook/", "/hook/0"), lambda whole: whole, 404),
    ("no token", lambda address: address.rpartition("/")[0], lambda whole: whole, 404),
    ("letters that are none", lambda address: address.rpartition(".")[0] + ".%F0%9F%98%80", lambda whole: whole, 404),
    ("unknown ids", lambda address: address, lambda whole: {"results": [{**whole["results"][0], "id": "1"}]}, 400),
    ("no ids", lambda address: address, lambda whole: {"results": [{"status": "completed"}]}, 400),
    ("ids of another kind", lambda address: address, lambda whole: {"results": [{"id": {"a": 1}}, 7, None]}, 400),
    ("no results", lambda address: address, lambda whole: {"results": []}, 400),
    ("not JSON", lambda address: address, lambda whole: b"\xff{", 400),
    ("nothing", lambda address: address, lambda whole: b"", 400),
    ("deep", lambda address: address, lambda whole: b"[" * 50_000, 400),
    ("too long", lambda address: address, lambda whole: b"x" * 200_000, 413),
]


@pytest.mark.parametrize(
    ("change_address", "change", "code"), [entry[1:] for entry in FORGERIES], ids=[entry[0] for entry in FORGERIES]
)
async def test_a_forged_callback_is_turned_away_and_changes_nothing(
    change_address: Callable[[str], str], change: Callable[[dict[str, Any]], Any], code: int
) -> None:
    text = with_callbacks(free_port(), 'max_answer = "100KB"\n')
    async with job_vendor() as server, transport_to(server, text) as transport:
        server.callbacks = 0
        urls = pages(server, 2)
        waiting = asyncio.create_task(fetch_all(transport, urls))
        await until(lambda: bool(server.jobs))
        address = server.log[0].json["callback_url"]
        whole = await server.finished("job-0")
        forged = json.loads(json.dumps(whole).replace("<p>page", "<p>forged"))
        assert await server.call(change_address(address), change(forged)) == code
        assert not waiting.done()
        # The batch still takes the real one.
        assert await server.call(address, whole) == 200
        assert right(urls, await waiting)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
async def test_callbacks_are_posted(method: str) -> None:
    port = free_port()
    async with job_vendor() as server, transport_to(server, with_callbacks(port)) as transport:
        server.callbacks = 0
        waiting = asyncio.create_task(fetch_all(transport, pages(server, 1)))
        await until(lambda: bool(server.jobs))
        address = server.log[0].json["callback_url"]
        async with aiohttp.ClientSession() as client, client.request(method, address) as answer:
            said = await answer.text()
            assert answer.status == 405
        assert address.rpartition(".")[2] not in said
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_callback_before_the_answer_is_taken() -> None:
    async with job_vendor() as server, transport_to(server, with_callbacks(free_port())) as transport:
        url = pages(server, 1)[0]
        server.hold = asyncio.Event()
        waiting = asyncio.create_task(transport.fetch(exchange(url)))
        await until(lambda: bool(server.log))
        question = server.log[0].json
        server.jobs["early"] = question
        assert await server.call(question["callback_url"], await server.finished("early")) == 200
        response = await waiting
        server.hold.set()
    assert isinstance(response, Response)
    assert response.body == b"<p>page 0"

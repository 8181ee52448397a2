"""Many exchanges in one job: gathered, sent, matched by our ids, by polling and by callbacks."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from datetime import timedelta

import pytest

from gossamer.clock import SystemClock, VirtualClock
from gossamer.errors import ApiFailed, FetchFailed, Misconfigured, RouteFailed
from gossamer.fetch.contract import Response
from gossamer.fetch.managed import ManagedTransport
from tests.gates import HeldGate
from tests.patience import unchanged
from tests.services.ports import free_port
from tests.services.vendors import KEY, job_vendor
from tests.unit.managed import (
    BATCH,
    GUARD,
    SITE,
    described,
    exchange,
    fetch_all,
    pages,
    right,
    transport_to,
    until,
    while_time_flies,
    with_callbacks,
)


async def test_250_pages_make_three_batches() -> None:
    async with job_vendor() as server, transport_to(server, BATCH) as transport:
        urls = pages(server, 250)
        responses = await fetch_all(transport, urls)
    assert right(urls, responses)
    batches = server.asked("/batch")
    assert sorted(len(asked.json["requests"]) for asked in batches) == [50, 100, 100]
    items = [item for asked in batches for item in asked.json["requests"]]
    assert Counter(item["url"] for item in items) == Counter(urls)
    assert len({item["id"] for item in items}) == 250
    assert all(len(item["id"]) >= 32 for item in items)
    assert all(asked.headers["x-api-key"] == KEY for asked in server.log)


async def test_a_window_gathers_what_comes_shortly_after() -> None:
    clock = VirtualClock()
    text = BATCH + 'batch_window = "1s"\npoll = "10ms"\n'
    async with job_vendor() as server, transport_to(server, text, clock=clock) as transport:
        urls = pages(server, 3)
        first = asyncio.create_task(transport.fetch(exchange(urls[0])))
        for _ in range(20):
            await asyncio.sleep(0)
        clock.advance(0.9)
        assert server.log == []
        responses = await while_time_flies(clock, fetch_all(transport, urls[1:]), step=0.01)
        assert right(urls, [await first, *responses])
    assert [len(asked.json["requests"]) for asked in server.asked("/batch")] == [3]


async def test_the_same_address_twice_in_a_batch_is_answered_twice() -> None:
    async with job_vendor() as server, transport_to(server, BATCH) as transport:
        urls = pages(server, 1) * 2
        assert right(urls, await fetch_all(transport, urls))
    assert [len(asked.json["requests"]) for asked in server.asked("/batch")] == [2]


async def test_each_page_of_a_batch_ends_by_itself() -> None:
    async with job_vendor() as server, transport_to(server, BATCH) as transport:
        urls = pages(server, 3)
        server.fails[urls[1]] = "the site hung up"
        first, second, third = await fetch_all(transport, urls)
    assert right([urls[0], urls[2]], [first, third])
    assert isinstance(second, FetchFailed)
    assert not isinstance(second, RouteFailed)
    assert "the site hung up" in str(second)


async def test_a_request_gives_its_turn_away_before_the_batch_leaves() -> None:
    gates = [HeldGate() for _ in range(3)]
    async with job_vendor() as server, transport_to(server, BATCH) as transport:
        urls = pages(server, 3)
        await asyncio.gather(
            *(transport.fetch(exchange(url, gate=gate)) for url, gate in zip(urls, gates, strict=True))
        )
    assert [gate.steps for gate in gates] == [["entered", "left"]] * 3


async def test_a_batch_is_refused_because_of_one_page_and_the_others_come() -> None:
    async with job_vendor() as server, transport_to(server, BATCH) as transport:
        urls = pages(server, 9)
        server.refuses.add(urls[5])
        responses = await fetch_all(transport, urls)
    assert isinstance(responses[5], FetchFailed)
    assert not isinstance(responses[5], RouteFailed)
    assert right(urls[:5] + urls[6:], responses[:5] + responses[6:])


async def test_a_batch_whose_answer_is_too_long_is_halved() -> None:
    async with job_vendor() as server, transport_to(server, BATCH + 'max_answer = "20KB"\n') as transport:
        urls = [server.show(f"{SITE}/{n}", "x" * 6000) for n in range(4)]
        responses = await fetch_all(transport, urls)
    assert [len(one.body) if isinstance(one, Response) else one for one in responses] == [6000] * 4
    assert [len(asked.json["requests"]) for asked in server.asked("/batch")] == [4, 2, 2]


# -- callbacks ----------------------------------------------------------------------------------------------


async def test_a_callback_brings_the_pages_without_polling() -> None:
    async with job_vendor() as server, transport_to(server, with_callbacks(free_port())) as transport:
        urls = pages(server, 5)
        responses = await fetch_all(transport, urls)
        await until(lambda: len(server.called) == 1)
    assert right(urls, responses)
    assert [one.cost for one in responses if isinstance(one, Response)] == [5.0] * 5
    assert [asked.path for asked in server.log] == ["/batch"]
    address, _, status = server.called[0]
    assert address.startswith(server.log[0].json["callback_url"])
    assert status == 200


async def test_each_batch_has_a_callback_address_of_its_own() -> None:
    text = with_callbacks(free_port(), "batch_size = 2\n")
    async with job_vendor() as server, transport_to(server, text) as transport:
        urls = pages(server, 6)
        assert right(urls, await fetch_all(transport, urls))
    addresses = [asked.json["callback_url"] for asked in server.asked("/batch")]
    assert len(set(addresses)) == 3
    assert all(len(address.rpartition("/")[2]) >= 48 for address in addresses)


async def test_results_that_are_called_back_one_by_one_are_taken() -> None:
    port = free_port()
    async with job_vendor() as server, transport_to(server, with_callbacks(port)) as transport:
        server.callbacks = 0
        urls = pages(server, 3)
        waiting = asyncio.create_task(fetch_all(transport, urls))
        await until(lambda: bool(server.jobs))
        address = server.log[0].json["callback_url"]
        for result in (await server.finished("job-0"))["results"]:
            assert not waiting.done()
            assert await server.call(address, result) == 200
        assert right(urls, await waiting)


async def test_without_a_callback_the_batch_is_polled() -> None:
    text = with_callbacks(free_port(), 'callback_wait = "50ms"\n')
    async with job_vendor() as server, transport_to(server, text) as transport:
        server.callbacks = 0
        urls = pages(server, 3)
        assert right(urls, await fetch_all(transport, urls))
    assert [asked.path for asked in server.log] == ["/batch", "/batch/job-0"]


async def test_the_second_process_on_a_machine_polls() -> None:
    text = with_callbacks(free_port())
    async with job_vendor() as server, transport_to(server, text) as first, transport_to(server, text) as second:
        urls = pages(server, 2)
        assert right(urls[:1], await fetch_all(first, urls[:1]))
        assert right(urls[1:], await fetch_all(second, urls[1:]))
    assert first.warnings == ()
    assert "cannot listen on" in second.warnings[0]
    assert ["callback_url" in asked.json for asked in server.asked("/batch")] == [True, False]


async def test_a_port_that_is_taken_is_told_where_nothing_can_be_polled() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        vendor = described(f"""
            url = "https://api.example"
            key = "{KEY}"
            key_at = "header:x-api-key"
            method = "POST"
            send = "json"
            path = "/scrape"
            url_param = "url"
            body_at = "html"
            mode = "batch"
            state_at = "state"
            done_states = ["done"]
            batch_path = "/batch"
            batch_param = "pages"
            batch_tag = "ref"
            tag_at = "ref"
            results_at = "pages"
            callback_param = "notify"
            allow_private = true
            callback_url = "https://me.example/hook"
            callback_listen = "127.0.0.1:{port}"
        """)
        with pytest.raises(Misconfigured, match=r"callback_listen: cannot listen on"):
            async with ManagedTransport(vendor, GUARD, SystemClock()):
                pass


async def test_a_callback_name_that_leads_inside_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    vendor = described(f"""
        preset = "finedata"
        url = "https://api.example"
        key = "{KEY}"
        mode = "batch"
        callback_url = "https://inside.example/hook"
        callback_listen = "127.0.0.1:{free_port()}"
    """)
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.9.8.7", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)
    with pytest.raises(Misconfigured, match=r"managed\.acme\.callback_url: leads to a private.*allow_private"):
        async with ManagedTransport(vendor, GUARD, SystemClock()):
            pass


# -- ends ---------------------------------------------------------------------------------------------------


async def test_a_caller_who_leaves_is_not_waited_for() -> None:
    async with job_vendor() as server, transport_to(server, BATCH) as transport:
        urls = pages(server, 3)
        server.polls = None
        tasks = [asyncio.create_task(transport.fetch(exchange(url))) for url in urls]
        await until(lambda: len(server.log) >= 2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # The vendor is asked for this batch no more.
        await until(unchanged(lambda: len(server.log)), every=0.3)
    assert all(task.cancelled() for task in tasks)


async def test_a_caller_who_leaves_early_is_not_asked_for() -> None:
    clock = VirtualClock()
    text = BATCH + 'batch_window = "1s"\npoll = "10ms"\n'
    async with job_vendor() as server, transport_to(server, text, clock=clock) as transport:
        urls = pages(server, 2)
        early = asyncio.create_task(transport.fetch(exchange(urls[0])))
        for _ in range(20):
            await asyncio.sleep(0)
        early.cancel()
        (page,) = await while_time_flies(clock, fetch_all(transport, urls[1:]), step=0.01)
    assert isinstance(page, Response)
    assert [item["url"] for item in server.log[0].json["requests"]] == urls[1:]


async def test_callers_who_leave_when_the_batch_is_full_are_not_asked_for() -> None:
    async with job_vendor() as server, transport_to(server, BATCH + "batch_size = 2\n") as transport:
        urls = pages(server, 3)
        tasks = [asyncio.create_task(transport.fetch(exchange(url))) for url in urls[:2]]
        await asyncio.sleep(0)  # both are in the batch now, and it leaves with the next turn of the loop
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        (page,) = await fetch_all(transport, urls[2:])
    assert isinstance(page, Response)
    assert [item["url"] for asked in server.asked("/batch") for item in asked.json["requests"]] == urls[2:]


async def test_a_transport_that_closes_leaves_nobody_waiting() -> None:
    async with job_vendor() as server:
        server.polls = None
        async with transport_to(server, BATCH) as transport:
            waiting = asyncio.create_task(fetch_all(transport, pages(server, 3)))
            await until(lambda: len(server.log) >= 2)
        failures = await waiting
    assert all(isinstance(one, ApiFailed) for one in failures)
    assert len(asyncio.all_tasks()) == 1


async def test_a_batch_has_a_deadline() -> None:
    clock = VirtualClock()
    text = BATCH + 'batch_window = "1s"\ndeadline = "5m"\n'
    async with job_vendor() as server, transport_to(server, text, clock=clock) as transport:
        server.polls = None
        failures = await while_time_flies(clock, fetch_all(transport, pages(server, 3)), step=0.1)
    for failure in failures:
        assert isinstance(failure, ApiFailed)
        assert "not finished within 300 s" in str(failure)
        assert failure.wait == timedelta(minutes=1)
    assert len({id(failure) for failure in failures}) == 3

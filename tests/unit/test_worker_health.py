"""What a worker process tells of its health, and to whom."""

from __future__ import annotations

import asyncio
import socket
import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gossamer.clock import SystemClock
from gossamer.errors import Misconfigured
from gossamer.project.workers.health import Health, HealthAddress, health_address, telling_health
from tests.docs.manual import ROOT, quoted, read, rows_under
from tests.patience import until

BUSY = Health(in_flight=7, jobs=2, spool_bytes=4096, draining=True)


@pytest.fixture
def address() -> HealthAddress:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return HealthAddress("127.0.0.1", taken.getsockname()[1])


async def ask(address: HealthAddress, path: str = "/metrics", method: str = "GET") -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.request(method, f"http://127.0.0.1:{address.port}{path}")


async def test_the_health_of_the_process_is_told(address):
    async with telling_health(address, lambda: BUSY, SystemClock()):
        answer = await ask(address)

    found = {one.name: one.samples[0].value for one in text_string_to_metric_families(answer.text)}
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert found["gossamer_worker_in_flight"] == 7
    assert found["gossamer_worker_jobs"] == 2
    assert found["gossamer_worker_spool_bytes"] == 4096
    assert found["gossamer_worker_draining"] == 1
    assert found["gossamer_worker_memory_bytes"] > 1_000_000
    assert found["gossamer_worker_connections"] >= 2
    told = rows_under(read(ROOT / "docs" / "monitoring.md"), "gauge", "meaning")
    assert {quoted(row[0])[0] for row in told} | {"gossamer_build_info"} == found.keys()


HELD_UP = 1.0  # seconds in which the loop does not turn


async def test_a_loop_that_was_held_up_is_seen(address):
    async with telling_health(address, lambda: BUSY, SystemClock()):
        await asyncio.sleep(0)  # the measuring begins
        time.sleep(HELD_UP)

        async def lags() -> bool:
            text = (await ask(address)).text
            return float(text.split("\ngossamer_worker_loop_lag_seconds ")[1].split()[0]) >= 0.3

        await until(lags)


async def test_nothing_else_is_answered_and_nobody_keeps_it_busy(address):
    async with telling_health(address, lambda: BUSY, SystemClock()):
        assert (await ask(address, "/")).status_code == 404
        assert (await ask(address, method="POST")).status_code == 405
        assert (await ask(address, method="HEAD")).text == ""
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nx: " + b"y" * 100_000 + b"\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        assert (await ask(address)).status_code == 200
    with pytest.raises(httpx.ConnectError):
        await ask(address)


async def test_a_port_that_is_taken_is_told_with_what_to_do(address):
    taken = pytest.raises(Misconfigured, match=r"something else listens there.*--metrics-port")
    with socket.create_server(("127.0.0.1", address.port)), taken:
        async with telling_health(address, lambda: BUSY, SystemClock()):
            pass


def test_it_is_loopback_unless_an_address_is_given():
    assert health_address("9100") == HealthAddress("127.0.0.1", 9100)
    assert health_address("10.0.0.5:9100") == HealthAddress("10.0.0.5", 9100)
    assert health_address("[::1]:9100") == HealthAddress("::1", 9100)
    assert health_address("[::1]:9100").moved(2) == "[::1]:9102"


@pytest.mark.parametrize("wrong", ["", "x", "0", "70000", ":9100", "9100:", "-1", "1.5"])
def test_what_is_no_port_is_refused(wrong):
    with pytest.raises(Misconfigured, match="is not a port"):
        health_address(wrong)

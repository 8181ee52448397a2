"""`gossamer serve` as a process: what it says, where it listens, how it ends. And the door on a fleet's stores."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from pathlib import Path

import httpx
import pytest

from gossamer.client import Client, ServerError
from gossamer.process.signals import send
from tests.journey.commands import ended, started
from tests.patience import PATIENCE
from tests.services.postgres import PostgresServer, schema_of
from tests.services.valkey import ValkeyServer
from tests.sites.running import park

from .serving import serving, settings_of


async def said(process: asyncio.subprocess.Process, pattern: str) -> str:
    """What the process says on standard error that the pattern's group takes."""
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE):
        async for line in process.stderr:
            if found := re.search(pattern, line.decode()):
                return found[1]
    raise AssertionError(f"The command never said {pattern}.")


async def test_a_server_prints_its_token_answers_and_ends_in_order(tmp_path: Path) -> None:
    server = await started(tmp_path, "serve", "--port", "0")
    address = await said(server, r"(http://127\.0\.0\.1:\d+)")
    token = await said(server, r"(gos_local_\S+)")

    async with httpx.AsyncClient(base_url=address, timeout=PATIENCE) as http:
        assert (await http.get("/healthz")).json() == {"status": "ok"}
        assert (await http.get("/api/v1/jobs")).status_code == 401
        assert (await http.get("/api/v1/jobs", headers={"x-api-key": token})).json() == {"jobs": [], "next": None}

    def ask() -> None:
        with Client(address, token) as client:
            assert client.jobs().jobs == []
            with pytest.raises(ServerError, match=r"127\.0\.0\.1 is a private") as refused:
                client.scrape_async("http://127.0.0.1/")
            assert (refused.value.status, refused.value.code) == (422, "invalid")

    await asyncio.to_thread(ask)
    send(server, signal.SIGTERM)
    over = await ended(server)
    assert over.code == 0, over


async def test_with_json_logs_the_token_is_a_line_of_its_own(tmp_path: Path) -> None:
    server = await started(tmp_path, "serve", "--port", "0", "--json-logs")
    told = json.loads(await said(server, r'^(\{.*"OneTimeToken".*\})$'))
    async with httpx.AsyncClient(base_url=told["address"], timeout=PATIENCE) as http:
        assert (await http.get("/api/v1/jobs", headers={"x-api-key": told["token"]})).status_code == 200
    send(server, signal.SIGTERM)
    assert (await ended(server)).code == 0


@pytest.mark.long
async def test_an_address_that_others_can_reach_needs_a_key(tmp_path: Path) -> None:
    refused = await ended(await started(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0"))
    assert "gossamer keys add" in refused.one_line()

    made = await ended(await started(tmp_path, "keys", "add", "laptop", "--scopes", "jobs"))
    server = await started(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0")
    address = await said(server, r"(http://0\.0\.0\.0:\d+)")
    async with httpx.AsyncClient(base_url=address.replace("0.0.0.0", "127.0.0.1"), timeout=PATIENCE) as http:
        assert (await http.get("/api/v1/jobs", headers={"x-api-key": made.out.strip()})).status_code == 200
    send(server, signal.SIGINT)
    over = await ended(server)
    assert "gos_local" not in over.err


async def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = await ended(await started(tmp_path, "serve", "--port", str(taken.getsockname()[1])))
    assert "something else listens there" in refused.one_line()


@pytest.mark.long
async def test_keys_are_made_listed_and_revoked_on_the_command_line(tmp_path: Path) -> None:
    made = await ended(await started(tmp_path, "keys", "add", "laptop", "--expires", "90d"))
    assert re.fullmatch(r"gos_[0-9a-f]{10}_[0-9A-Za-z-]{43}\n", made.out)
    again = await ended(await started(tmp_path, "keys", "add", "laptop"))
    assert "already" in again.one_line()
    wrong = await ended(await started(tmp_path, "keys", "add", "x", "--scopes", "record"))
    assert "Did you mean records?" in wrong.one_line()
    await ended(await started(tmp_path, "keys", "add", "screen", "--role", "viewer"))
    listed = await ended(await started(tmp_path, "keys", "list"))
    assert "laptop" in listed.out
    assert re.search(r"screen\s+viewer\s+active", listed.out)
    assert made.out.strip().rpartition("_")[2] not in listed.out
    assert "is revoked" in (await ended(await started(tmp_path, "keys", "revoke", "laptop"))).out
    assert "no key" in (await ended(await started(tmp_path, "keys", "revoke", "laptop"))).one_line()
    assert "Nothing was changed" in (await ended(await started(tmp_path, "audit"))).out


@pytest.mark.long
async def test_the_door_of_a_fleet_gives_pages_batches_and_records(
    tmp_path: Path, valkey: ValkeyServer, postgres: PostgresServer
) -> None:
    with park(pages=60) as site:
        settings = settings_of(
            tmp_path,
            start=site.url(),
            project=schema_of(tmp_path).replace("_", "-"),
            state=valkey.address(),
            records=postgres.address(),
            fetch__allow_hosts=["site0.localhost"],
        )
        async with serving(settings) as door, door.client() as client:
            pages = await asyncio.gather(*(client.scrape(site.url(path="/page/7")) for _ in range(3)))
            batch = await client.wait((await client.batch([site.url(path=f"/page/{n}") for n in range(8, 20)])).job_id)
            crawl = await client.wait((await client.crawl(spider="things", limit=20)).job_id)
            records = [record async for record in client.records(job=crawl.id)]
            changed = await door.get("/api/v1/records/changes")
            again = await door.post("/api/v1/batch", {"urls": [site.url()]}, headers={"idempotency-key": "x"})
            repeated = await door.post("/api/v1/batch", {"urls": [site.url()]}, headers={"idempotency-key": "x"})
            metrics = await door.get("/metrics")

        assert all(page.success for page in pages)
        assert len({page.meta.job_id for page in pages}) == 1
        assert (batch.status, batch.done) == ("completed", 12)
        assert (crawl.status, len(records)) == ("completed", 20)
        assert len(changed.text.splitlines()) >= 20
        assert repeated.json() == again.json()
        assert "gossamer_workers" in metrics.text

"""The attacker holds a key, or held one: answers that outlive it, callbacks to ports that no web server has, and
callbacks of yesterday sent again. The other files of tests/server say what a key may do at all."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from gossamer.access.webhooks import new_secret, signed_headers
from gossamer.compat.firecrawl import documents, watch
from gossamer.errors import BackendUnavailable
from gossamer.model.url import _BAD_PORTS
from gossamer.project.access import keys
from gossamer.project.access.keys import revoke_key
from gossamer.project.jobs import api_views
from gossamer.project.open import Project
from gossamer.server import door as door_module
from gossamer.server import job_routes, record_routes
from gossamer.server.ui import live
from gossamer.server.ui import site as site_module
from tests.patience import PATIENCE, until
from tests.server.receiver import Receiver
from tests.server.receiver import receiver as receiver
from tests.server.serving import Served, serving, settings_of
from tests.server.test_callbacks import _reached, delivering
from tests.sites.hostile import Call, HostileSite, hostile_site, whole
from tests.sites.running import park

TOLERANCE = timedelta(minutes=5)  # of the libraries for Standard Webhooks, which docs/api.md names
HERE = {"fetch__allow_hosts": ["127.0.0.1", "site0.localhost"]}
Sent = dict[str, Any]  # an ASGI message
SECRET_PAGE = "what only the key may read"


async def exchange(
    door: Served, path: str, key: str, then: Callable[[Sent], Awaitable[None]], body: Any = None, **scope: Any
) -> list[Sent]:
    """What the application sends for one request; `then` is called after each message, as if between two packets."""
    content = json.dumps(body).encode() if body is not None else b""
    path, _, query = path.partition("?")
    headers = {"host": "127.0.0.1", "x-api-key": key, "content-type": "application/json"}
    headers |= {"accept": "application/json, text/event-stream", "content-length": str(len(content))}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET" if body is None else "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "scheme": "http",
        "root_path": "",
        **scope,
    }
    first = {"type": "websocket.connect"} if scope["type"] == "websocket" else {}
    coming = [first or {"type": "http.request", "body": content, "more_body": False}]
    sent: list[Sent] = []

    async def receive() -> Sent:
        return coming.pop(0) if coming else await asyncio.Event().wait()  # type: ignore[return-value]

    async def send(message: Sent) -> None:
        sent.append(message)
        await then(message)

    async with asyncio.timeout(PATIENCE):
        await door.app(scope, receive, send)
    return sent


def body_of(sent: list[Sent]) -> bytes:
    return b"".join(message.get("body", b"") for message in sent)


def revoking(door: Served, name: str, kind: str) -> Callable[[Sent], Awaitable[None]]:
    """Revoke the key after the first message of that kind."""
    done = False

    async def then(message: Sent) -> None:
        nonlocal done
        if message["type"] == kind and not done:
            done = True
            await revoke_key(door.project, name)

    return then


@pytest.fixture
async def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr(door_module, "LOOK_AT_KEY", 0.0)
    monkeypatch.setattr(record_routes, "PIECE", 1)
    monkeypatch.setattr(api_views, "PIECE", 100)
    monkeypatch.setattr(job_routes, "LOOK", 0.01)
    monkeypatch.setattr(watch, "LOOK", 0.0)
    monkeypatch.setattr(documents, "PAGE_BYTES", 1)
    with park(pages=6) as site:
        async with serving(settings_of(tmp_path, site.url(), **HERE)) as opened:
            async with opened.client() as client:
                job = (await client.crawl(spider="things", limit=6)).job_id
                await client.wait(job, every=0.05)
            yield opened


@pytest.mark.parametrize(
    "path", ["/api/v1/records?format=jsonl", "/api/v1/records?format=csv", "/api/v1/records/changes"]
)
async def test_a_stream_of_records_ends_with_its_key(door: Served, path: str) -> None:
    async def nothing(message: Sent) -> None:
        return None

    key = await door.new_key("leaver", "records", "admin")
    all_of_it = body_of(await exchange(door, path, key, nothing))
    assert all_of_it.count(b"/page/") >= 5

    sent = await exchange(door, path, key, revoking(door, "leaver", "http.response.body"))

    assert len(body_of(sent)) < len(all_of_it)
    assert sent[-1].get("more_body")  # nobody takes it for complete


@pytest.mark.parametrize("path", ["/api/v1/scrape", "/v2/scrape", "/mcp"])
async def test_a_page_that_comes_after_the_end_of_the_key_is_not_given_out(
    door: Served, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    let_go = asyncio.Event()
    usual, ended = keys.is_still_open_to, False

    async def asked_once(project: Project, caller: keys.Caller) -> bool:
        """The store goes away after it has said that the key is over: the answer must not go on for that."""
        nonlocal ended
        if ended:
            raise BackendUnavailable("away")
        ended = not await usual(project, caller)
        return not ended

    monkeypatch.setattr(keys, "is_still_open_to", asked_once)

    async def slow(call: Call) -> None:
        await let_go.wait()
        await whole(call, f"<p>{SECRET_PAGE}</p>".encode())

    async with hostile_site() as site:
        site.shown["/slow"] = slow
        key = await door.new_key("leaver", "scrape")
        wish: dict[str, Any] = {"url": site.url("/slow")}
        if path == "/mcp":
            call = {"name": "scrape", "arguments": wish}
            wish = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}

        async def nothing(message: Sent) -> None:
            return None

        async with door.app.router.lifespan_context(door.app):
            asking = asyncio.create_task(exchange(door, path, key, nothing, wish))
            await _has_seen(site, "/slow")
            await revoke_key(door.project, "leaver")
            let_go.set()
            sent = await asking

    assert sent[0]["status"] == 401
    assert SECRET_PAGE.encode() not in body_of(sent)


async def _has_seen(site: HostileSite, path: str) -> None:
    await until(lambda: site.seen(path), f"a request for {path}")


async def test_a_socket_ends_with_its_key(door: Served) -> None:
    key = await door.new_key("leaver", "scrape")
    with park(pages=6) as site:
        urls = [site.url(path=f"/page/{n}") for n in range(1, 6)]
        job = (await door.post("/v2/batch/scrape", {"urls": urls, "formats": ["links"]}, key)).json()["id"]

        async def is_complete() -> bool:
            return (await door.get(f"/v2/batch/scrape/{job}", key)).json()["status"] == "completed"

        await until(is_complete)
    documents_sent = 0

    async def then(message: Sent) -> None:
        nonlocal documents_sent
        if message["type"] == "websocket.send" and json.loads(message["text"])["type"] == "document":
            documents_sent += 1
            if documents_sent == 1:
                await revoke_key(door.project, "leaver")

    sent = await exchange(
        door, f"/v2/batch/scrape/{job}", key, then, type="websocket", scheme="ws", subprotocols=[], method=None
    )
    assert documents_sent == 1
    assert sent[-1]["type"] == "websocket.close"


async def test_a_callback_goes_to_no_port_that_pages_are_refused(tmp_path: Path) -> None:
    """A mail server would take the headers of a callback for commands."""
    port, settings = _free_bad_port(), settings_of(tmp_path, **HERE)
    with socket.create_server(("127.0.0.1", port)) as mail, park(pages=2) as site:
        mail.setblocking(False)
        async with serving(settings) as door, delivering(door):
            wish = {"urls": [site.url()], "callback_url": f"http://127.0.0.1:{port}/"}
            await door.post("/api/v1/batch", wish)
            failed = await _reached(door, "failed")
        with pytest.raises(BlockingIOError):
            mail.accept()  # nobody has dialled it
    assert f"Port {port} is not for web pages" in failed["message"]


def _free_bad_port() -> int:
    for port in sorted(_BAD_PORTS, reverse=True):
        if port > 1024:
            try:
                socket.create_server(("127.0.0.1", port)).close()
            except OSError:
                continue
            return port
    pytest.skip("every such port is taken")


async def test_a_callback_cannot_be_sent_again_by_who_has_seen_it(tmp_path: Path, receiver: Receiver) -> None:
    """The time of sending is signed, so that a receiver can refuse what is older than the tolerance."""
    with park(pages=2) as site:
        settings = settings_of(tmp_path, fetch__allow_hosts=["site0.localhost", "receiver.localhost"])
        async with serving(settings) as door, delivering(door):
            await door.post("/api/v1/batch", {"urls": [site.url()], "callback_url": receiver.url})
            await _reached(door, "delivered")
            secret = (await door.get("/api/v1/callback-secret")).json()["secret"]
    (one,) = receiver.deliveries
    assert one.is_signed_with(secret)
    sent_at = int(one.headers["webhook-timestamp"])
    for forged in ({"webhook-timestamp": str(sent_at + 60)}, {"webhook-id": f"{one.id}x"}):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(one.body.decode(), {**one.headers, **forged})


@pytest.mark.parametrize(("age", "fits"), [(timedelta(0), True), (TOLERANCE * 2, False), (-TOLERANCE * 2, False)])
def test_the_libraries_refuse_what_is_older_than_the_tolerance(age: timedelta, fits: bool) -> None:
    secret, body = new_secret(), b'{"type": "job.completed"}'
    at = int((datetime.now(UTC) - age).timestamp())
    headers = dict(signed_headers("cb_1", at, body, [secret]))
    if fits:
        Webhook(secret).verify(body.decode(), headers)
        return
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(body.decode(), headers)


async def test_a_live_page_ends_with_its_key(door: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_module, "LOOK_AT_KEY", 0.0)
    monkeypatch.setattr(live, "LOOK", 0.01)
    key = await door.new_key("leaver", "jobs", "records")
    entered = await door.http.post("/ui/sign-in", data={"key": key}, headers={"sec-fetch-site": "same-origin"})
    assert entered.status_code == 303, entered.text
    cookie = "; ".join(f"{name}={value}" for name, value in entered.cookies.items())
    headers = [(b"host", b"127.0.0.1"), (b"cookie", cookie.encode()), (b"sec-fetch-site", b"same-origin")]

    sent = await exchange(door, "/ui/live/jobs", "", revoking(door, "leaver", "http.response.body"), headers=headers)

    assert sent[0]["status"] == 200, sent
    assert sum(b"event: regions" in message.get("body", b"") for message in sent) <= 1

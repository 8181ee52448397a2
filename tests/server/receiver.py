"""Somebody who is called back: a small server that keeps what it is sent, and answers as it is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from tests.patience import until
from tests.services.threaded import in_thread


class Delivery(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def told(self) -> dict[str, Any]:
        return json.loads(self.body)

    def is_signed_with(self, secret: str) -> bool:
        """As the receivers of others check it."""
        try:
            Webhook(secret).verify(self.body.decode(), self.headers)
        except WebhookVerificationError:
            return False
        return True


class Receiver:
    def __init__(self, port: int) -> None:
        self.url = f"http://receiver.localhost:{port}/in"
        self.deliveries: list[Delivery] = []
        self.answers: list[tuple[int, dict[str, str]]] = []  # given in turn; then 204

    def ids(self) -> set[str]:
        return {one.id for one in self.deliveries}

    async def has(self, count: int) -> None:
        """Return when so many messages have come."""
        await until(lambda: len(self.ids()) >= count, f"{count} messages")


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver: Receiver

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): text for name, text in self.headers.items()}
            receiver.deliveries.append(Delivery(self.path, headers, body))
            status, more = receiver.answers.pop(0) if receiver.answers else (204, {})
            self.send_response(status)
            for name, text in {**more, "content-length": "0"}.items():
                self.send_header(name, text)
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = Receiver(server.server_port)
    with in_thread(server):
        yield receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as opened:
        yield opened

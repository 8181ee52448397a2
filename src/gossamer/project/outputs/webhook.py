"""An address that is sent changes of records in signed batches: the target of an output with an https:// address.

A batch is signed like callbacks, with the project's secret (`gossamer callbacks secret`). A message that is repeated
has the same id and the same changes; after a rewind they come in new messages. Addresses are checked when they are
dialled; no redirect is followed.
How it fails: any answer but 2xx is Transient, 410 is Misconfigured, 413 is BatchRefused. How it recovers: the batch is
sent again, before any later one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from hashlib import blake2b
from typing import Any

import msgspec

from ... import __version__
from ...access.webhooks import GONE, signed_headers
from ...clock import Clock, iso_time
from ...errors import AddressRefused, BackendUnavailable, BatchRefused, FetchFailed, FetchRefused, Misconfigured
from ...fetch.addresses import AddressGuard
from ...fetch.contract import Limits, TransportRequest
from ...fetch.http import AiohttpTransport
from ...model.url import parse_url
from ...settings.output_tables import OutputTable
from ...settings.tables import Settings
from ...store.outputs.contract import Batch, Refused
from ...units import discreet

ROWS_AT_ONCE = 100
BYTES_AT_ONCE = 1024 * 1024 * 7 // 8  # many servers take messages of 1 MB
TOO_LARGE = 413
KIND = "records.changed"
LIMITS = Limits(connect=timedelta(seconds=10), read=timedelta(seconds=30), total=timedelta(seconds=60), max_body=1024)


class WebhookOutput:
    """Fulfils `Output`. `secrets` reads the valid signing secrets."""

    rows_at_once = ROWS_AT_ONCE
    bytes_at_once = BYTES_AT_ONCE
    mirrors = False
    numbered = True

    def __init__(
        self,
        name: str,
        url: str,
        table: OutputTable,
        settings: Settings,
        secrets: Callable[[], Awaitable[Sequence[str]]],
        clock: Clock,
    ) -> None:
        """Raises InvalidUrl."""
        self._name = name
        self._url = parse_url(url)
        self._place = discreet(table.url.reveal().partition("?")[0])  # with ${NAME} for secrets: people see it
        self._project = settings.project
        self._secrets = secrets
        self._clock = clock
        fetch, switch = settings.fetch, f"outputs.{name}.allow_private"
        guard = AddressGuard(table.allow_private, frozenset(fetch.allow_hosts), fetch.deny, switch=switch)
        self._transport = AiohttpTransport(guard)
        self._entered = False

    async def close(self) -> None:
        if self._entered:
            await self._transport.__aexit__(None, None, None)

    async def count(self) -> int | None:
        return None

    async def check(self) -> str:
        await self._send("output.check", [], 0)
        return f"{self._place} accepted a message without records."

    async def write(self, batch: Batch) -> list[Refused]:
        changes = [
            {
                "change": one.kind,
                "type": one.identity[0],
                "site": one.identity[1],
                "key": one.identity[2],
                "version": one.version,
                "at": iso_time(one.at),
                "record": one.row if one.kind == "put" else None,
            }
            for one in batch.changes
        ]
        await self._send(KIND, changes, batch.number)
        return []

    async def _send(self, kind: str, changes: list[dict[str, Any]], number: int) -> None:
        now = self._clock.now()
        told = {"output": self._name, "project": self._project, "changes": changes}
        digest = blake2b(msgspec.json.encode([kind, told, number or now]), digest_size=12).hexdigest()
        body = msgspec.json.encode({"type": kind, "timestamp": iso_time(now), "data": {**told, "batch": number}})
        headers = (
            ("Content-Type", "application/json"),
            ("User-Agent", f"Gossamer/{__version__}"),
            *signed_headers(f"out_{digest}", int(now), body, await self._secrets()),
        )
        if not self._entered:
            await self._transport.__aenter__()
            self._entered = True
        try:
            response = await self._transport.fetch(
                TransportRequest(url=self._url, method="POST", headers=headers, body=body, limits=LIMITS)
            )
        except AddressRefused as error:
            raise Misconfigured(self._without_secrets(error)) from error
        except (FetchFailed, FetchRefused) as error:
            raise BackendUnavailable(f"{self._place} did not take a batch: {self._without_secrets(error)}") from error
        if response.status == GONE:
            raise Misconfigured(
                f"{self._place} answered 410: it wants no more. `gossamer output resume {self._name}` tries again."
            )
        if response.status == TOO_LARGE:
            raise BatchRefused(f"{self._place} answered 413: that is too large for it.", too_large=True)
        if not 200 <= response.status < 300:
            raise BackendUnavailable(f"{self._place} answered {response.status}.")

    def _without_secrets(self, error: Exception) -> str:
        """The message of an error of the transport, which names the address as it was dialled."""
        said = str(error).replace(self._url, self._place).replace(discreet(self._url), self._place)
        return said.removeprefix(f"{self._place}: ")

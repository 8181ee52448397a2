"""A vendor as a value: its table after all checks, and the places in its answers. Made by describing.py."""

from __future__ import annotations

from urllib.parse import quote, quote_plus

import msgspec

from ...measures import Secret
from ...settings.managed import Managed

SYNC, ASYNC, BATCH = MODES = ("sync", "async", "batch")
STATUS, BODY, HEADERS, HEADER, JSON = "http:status", "http:body", "http:headers", "header", "json"

Parameter = tuple[str, object]


class Where(msgspec.Struct, frozen=True):
    """A place in an answer: the answer's own status, body or headers, one header, or a path in its JSON."""

    kind: str
    path: tuple[str, ...] = ()


class Vendor(msgspec.Struct, frozen=True, kw_only=True):
    """A vendor's table after all checks. Only `key` is secret, and it does not print."""

    name: str
    table: Managed
    base: str  # of the API, without a final slash
    key: Secret
    key_in: str  # "query" or "header"
    key_name: str
    render: Parameter | None
    residential: Parameter | None
    extra: tuple[Parameter, ...]
    body: Where
    status: Where | None
    final_url: Where | None
    headers: Where | None
    cost: Where | None
    error: Where | None
    job_id: Where | None
    state: Where | None
    result: Where | None
    batch_id: Where | None
    results: Where | None
    tag: Where | None
    listen: tuple[str, int] | None

    def setting(self, field: str) -> str:
        """How a user spells one of its settings."""
        return f"managed.{self.name}.{field}"

    def hide(self, text: str) -> str:
        """The text without the key, however it is written there."""
        key = self.key.reveal()
        for form in (key, quote(key, safe=""), quote_plus(key), quote(key)):
            text = text.replace(form, "***")
        return text

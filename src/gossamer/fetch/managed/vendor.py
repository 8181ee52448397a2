"""A vendor as a value: its table after all checks, and the places in its answers. Made by describing.py."""

from __future__ import annotations

import re

import msgspec

from ...settings.managed import Managed
from ...units import Secret
from .hiding import Hiding, hiding_of

SYNC, ASYNC, BATCH = MODES = ("sync", "async", "batch")
STATUS, BODY, HEADERS, HEADER, JSON = "http:status", "http:body", "http:headers", "header", "json"

Parameter = tuple[str, object]

_TOKEN = re.compile(r"(?=[^0-9]*[0-9])[A-Za-z0-9_+/=.~-]{16,}")


class Where(msgspec.Struct, frozen=True):
    """A place in an answer: the answer's own status, body or headers, one header, or a path in its JSON."""

    kind: str
    path: tuple[str, ...] = ()


class Vendor(msgspec.Struct, frozen=True, kw_only=True):
    """A vendor's table after all checks. `key` is secret, and so may `extra` be: neither prints."""

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

    def __repr__(self) -> str:
        return f"Vendor({self.name!r}, {self.base!r}, key=***)"

    def hide(self, text: str) -> str:
        """The text without the key, however it is written there, and without tokens of `extra`."""
        for secret in self._secrets():
            text = secret.hide(text)
        return text

    def hide_in_body(self, body: bytes, *, cut: bool) -> bytes:
        """The same for a page. `cut`: its end is missing."""
        for secret in self._secrets():
            body = secret.hide_in_body(body, cut=cut)
        return body

    def betrayed_by(self, text: str) -> bool:
        """Does the text hold the key, or a token of `extra`?"""
        return any(secret.holds(text) for secret in self._secrets())

    def _secrets(self) -> list[Hiding]:
        tokens = [value for _, value in self.extra if isinstance(value, str) and _TOKEN.fullmatch(value)]
        return [hiding_of(secret) for secret in (self.key.reveal(), *tokens)]

"""Callbacks as defined by Standard Webhooks 1.0: how they are signed, when they are retried, when they are given up.

Pure: project/access/callbacks.py sends them.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable
from datetime import timedelta
from hashlib import sha256

from .contract import CallbackSecret

PREFIX = "whsec_"
SECRET_BYTES = 32
ROTATION = timedelta(days=1)  # for which the previous secret is used too
# After each failed attempt; the attempt after the last of these is the final one.
PAUSES = (
    timedelta(seconds=5), timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2), timedelta(hours=5),
    timedelta(hours=10), timedelta(hours=14), timedelta(hours=20), timedelta(hours=24),
)  # fmt: skip
JITTER = 0.2  # a pause is longer by up to this share, so that a recovered receiver does not get all callbacks at once
GONE = 410  # the status of a receiver that wants no more


def new_secret() -> str:
    return PREFIX + b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signed_headers(id: str, timestamp: int, body: bytes, texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The three headers of a message, with a signature for each of the secrets."""
    signatures = " ".join(f"v1,{_signature(text, id, timestamp, body)}" for text in texts)
    return (("webhook-id", id), ("webhook-timestamp", str(timestamp)), ("webhook-signature", signatures))


def _signature(text: str, id: str, timestamp: int, body: bytes) -> str:
    key = b64decode(text.removeprefix(PREFIX))
    return b64encode(hmac.digest(key, f"{id}.{timestamp}.".encode() + body, sha256)).decode()


def firecrawl_signature(text: str, body: bytes) -> str:
    """The value of X-Firecrawl-Signature: the secret is used as it is written."""
    return f"sha256={hmac.new(text.encode(), body, sha256).hexdigest()}"


def valid_secrets(known: Iterable[CallbackSecret], now: float) -> tuple[CallbackSecret, ...]:
    return tuple(secret for secret in known if secret.until is None or secret.until > now)


def rotated(known: Iterable[CallbackSecret], now: float) -> tuple[CallbackSecret, ...]:
    """A new secret before the others, of which the newest stays valid for one more day."""
    newest = next(iter(valid_secrets(known, now)), None)
    new = CallbackSecret(text=new_secret())
    if newest is None:
        return (new,)
    return (new, CallbackSecret(text=newest.text, until=now + ROTATION.total_seconds()))


def pause_after(tries: int, chance: float, asked: timedelta | None = None) -> timedelta | None:
    """How long to wait after `tries` failed attempts; None: give up. `asked` is the receiver's Retry-After, respected
    up to the longest pause; `chance` is between 0 and 1."""
    if tries > len(PAUSES):
        return None
    pause = PAUSES[tries - 1] * (1 + JITTER * chance)
    return max(pause, min(asked, PAUSES[-1])) if asked is not None else pause

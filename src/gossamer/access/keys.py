"""The format of keys: `gos_<id>_<secret>`. Creates, parses and compares them; pure except for the randomness.

The secret has 256 random bits, so its plain SHA-256 in the state cannot be reversed: no slow hash is needed.
"""

from __future__ import annotations

import re
import secrets
from hashlib import sha256
from hmac import compare_digest

from .contract import ApiKey

SCOPES = SCRAPE, JOBS, RECORDS, METRICS, ADMIN = "scrape", "jobs", "records", "metrics", "admin"
# A role is on top of the scopes, all of which it has. A viewer sees everything and changes nothing; an operator changes
# everything but who has keys and what is erased.
ROLES = VIEWER, OPERATOR, ADMINISTRATOR = "viewer", "operator", "admin"
_KEY = re.compile(r"gos_([0-9a-z]{1,16})_([0-9A-Za-z-]{16,64})", re.ASCII)


def new_id() -> str:
    return secrets.token_hex(5)


def new_secret() -> str:
    """32 random bytes in letters, digits and dashes: a double click selects the whole key."""
    return secrets.token_urlsafe(32).replace("_", "-")


def key_text(id: str, secret: str) -> str:
    return f"gos_{id}_{secret}"


def digest_of(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def parts_of(text: str) -> tuple[str, str] | None:
    """Id and secret of a key; None if the text is not a key."""
    found = _KEY.fullmatch(text)
    return (found[1], found[2]) if found else None


def opens(key: ApiKey, secret: str, now: float) -> bool:
    """Is this the key's secret, and is the key still valid? Takes the same time for a wrong secret as for a right
    one."""
    is_right = compare_digest(key.digest, digest_of(secret))
    return is_right and key.revoked_at is None and (key.expires_at is None or now < key.expires_at)

"""Records in PostgreSQL (13 and later), for many writers at once. Without its driver the import raises MissingExtra."""

from __future__ import annotations

import logging

from ...errors import MissingExtra

try:
    import asyncpg as asyncpg
except ImportError as error:
    raise MissingExtra("Records in PostgreSQL need a driver. Install it: pip install 'gossamer[fleet]'") from error

# The driver's pool logs every failed connection attempt with its traceback; we report what matters ourselves.
logging.getLogger("asyncpg").addHandler(logging.NullHandler())

"""Records in MongoDB (4.4 and later), for many writers at once. Without its driver the import raises MissingExtra.

Read layout.py first: it describes the documents, and what keeps them consistent without transactions.
"""

from __future__ import annotations

from ...errors import MissingExtra

try:
    from pymongo import AsyncMongoClient as AsyncMongoClient
except ImportError as error:
    raise MissingExtra("Records in MongoDB need a driver. Install it: pip install 'gossamer[mongo]'") from error

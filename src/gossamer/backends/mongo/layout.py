"""The collections of a record store in MongoDB, the ids of their documents, and what makes interrupted batches safe.

    <prefix>.store       "store": the id of this store and the version of this layout
                         "marks": counters, and the tickets of the writers at work (revisions.py)
                         "move": the mark that a move leaves
    <prefix>.pages       a URL that was tried, with the newest facts      _id: its fingerprint
    <prefix>.visits      every archived visit                             _id: page, time (newest first)
    <prefix>.attempts    the audit log, with its counts                   _id: page, time, hash of job and worker
    <prefix>.records     every record as it is now                        _id: hash of type, site and key
    <prefix>.superseded  earlier versions of records                      _id: record, version
    <prefix>.sightings   which job saw which record in which version      _id: hash of the job, record
    <prefix>.item_counts what became of the items of a page in a job      _id: hash of the job, page
    <prefix>.schemas     every shape that items have had                  _id: hash of type and id
    <prefix>.quality     sums of the counts (quality.py)                  _id: hash of day and spider
    <prefix>.sent_notes  requests that must not be sent twice             _id: hash of the job, fingerprint
    <prefix>.figures     sums of attempts, over time (figures.py)         _id: "now"; span and start

Pages and records have numbers, in the order of first storage. Ids are bytes of fixed length, with numbers and times
encoded so that their byte order is their natural order: most collections need no other index.

A single mongod has no transactions, so the store uses none. What keeps the documents consistent instead:

1. Every document's id is derived from its content. Writing it again finds it there.
2. A record is replaced only if it is unchanged since the decision (its version, times and page); otherwise it is read
   and decided again. So concurrent writers end in the same state, in whatever order they come.
3. The replaced version is first written to `superseded`. After a crash in between it exists twice: readers of the
   history use only versions that are older than the record's.
4. Records come first, then sightings, visits and attempts; the facts of a page (with its ETag) come last. A crash
   anywhere repeats the visit in full; a page never counts as known while its records are missing.
5. A record names the job that last checked it, and what that job first got of it, so that a crash before the sighting
   is written does not make it gone, nor its item something else when it comes again.
6. Counts are part of the attempt's own document, which exists once.

`source` is the exact text of a record; `data` is the same for your queries, if MongoDB can hold it
(stored_text.py).
"""

from __future__ import annotations

import struct
from hashlib import blake2b

import msgspec

LAYOUT = 1  # the version of all this
COLLECTIONS = ("store", "pages", "visits", "attempts", "records", "superseded", "sightings", "item_counts", "schemas",
               "quality", "figures", "sent_notes")  # fmt: skip

# Name -> collection, fields, whether documents without the field are left out.
INDEXES: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "number": ("records", ("number",), False),
    "key": ("records", ("key_hash", "number"), False),
    "revision": ("records", ("revision", "number"), False),
    "page": ("records", ("page",), False),
    "page_number": ("pages", ("number",), False),
    "attempt_time": ("attempts", ("at", "_id"), False),
    "uncounted": ("attempts", ("sheet",), True),
    "unfolded": ("attempts", ("minute",), True),
    "figure_start": ("figures", ("start",), True),
}

NUMBER_BYTES = 8
JOB_BYTES = 12
MOST = (1 << 63) - 1  # the greatest number that MongoDB holds

_SIGN = 1 << 63
_ALL = (1 << 64) - 1


def digest(*texts: str, size: int = 16) -> bytes:
    """A hash of several texts; the same characters split differently give a different one."""
    return blake2b(msgspec.json.encode(texts), digest_size=size).digest()


def identity_of(type: str, site: str, key: str) -> bytes:
    return digest(type, site, key)


def sent_name(job: str, fingerprint: bytes) -> bytes:
    return digest(job) + fingerprint


def key_hash(key: str) -> bytes:
    """The hash by which a key is found: keys may be longer than an index should hold."""
    return digest(key, size=8)


def number_bytes(number: int) -> bytes:
    return number.to_bytes(NUMBER_BYTES, "big")


def number_in(name: bytes, start: int = 0) -> int:
    return int.from_bytes(name[start : start + NUMBER_BYTES], "big")


def time_bytes(at: float) -> bytes:
    """Times whose byte order is their order in time."""
    (bits,) = struct.unpack(">Q", struct.pack(">d", at + 0.0))  # + 0.0: turns -0.0 into 0.0
    return int.to_bytes(bits ^ (_ALL if bits & _SIGN else _SIGN), 8, "big")


def attempt_name(page: int, at: float, job: str, worker: str) -> bytes:
    return number_bytes(page) + time_bytes(at) + digest(job, worker, size=8)


def attempts_from(page: int) -> bytes:
    """The position before all attempts of a page."""
    return number_bytes(page) + bytes(16)


def visit_name(page: int, at: float) -> bytes:
    return number_bytes(page) + bytes(255 - byte for byte in time_bytes(at))


def visits_from(page: int) -> bytes:
    """The position before all visits of a page."""
    return number_bytes(page) + bytes(8)


def version_name(record: int, version: int) -> bytes:
    return number_bytes(record) + version.to_bytes(4, "big")


def job_hash(job: str) -> bytes:
    return digest(job, size=JOB_BYTES)


def sighting_name(job: bytes, record: int) -> bytes:
    """`job` is a job's hash."""
    return job + number_bytes(record)

"""The messages between the run and its child processes: MessagePack frames, each preceded by its length.

An order names several pages. It is answered page by page, in the same order: so the pool knows which page is in
progress.
"""

from __future__ import annotations

import struct
from typing import Any, TypeVar

import msgspec

from ...model.healing import HealedRules
from ...model.item_account import ItemCounts
from ...model.record import ItemSchema, PageFacts, Record, Tally
from ...model.task import Request

HEAD = struct.Struct("<I")
T = TypeVar("T")


class ParseOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One archived page to parse again. `job` is the one that fetched it, `run` the id under which its results are
    stored."""

    run: str
    ref: str
    fingerprint: bytes
    body_hash: bytes
    url: str
    job: str
    spider: str  # its reference: spider_refs.py
    arguments: str = ""  # of the spider in that job, as JSON
    start: str = ""  # the start URL of a crawl without its own spider
    number: int = 0  # of the dead letter, if it is one
    depth: int = 0  # of the dead letter; otherwise the copy has it
    failure: str = ""  # when it was last parsed: PageFacts.failure


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """What the state and the records say of spiders, which children cannot look up."""

    usual: tuple[Tally, ...] = ()  # what each spider nearly always filled, learned from earlier days
    rules: tuple[HealedRules, ...] = ()  # of recipes


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Work for a child."""

    reparsed_at: float
    stores: bool = True  # False: a dry run
    learned: Learned = Learned()
    pages: tuple[ParseOrder, ...]


class ReparsedPage(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one page. `failure` is a reason ("parse", "quality", "lost"), "" if all went well."""

    wanted: ParseOrder
    facts: PageFacts | None = None
    records: tuple[Record, ...] = ()
    schemas: tuple[ItemSchema, ...] = ()
    requests: tuple[Request, ...] = ()
    page_url: str = ""
    remarks: str = ""
    failure: str = ""
    message: str = ""
    detail: str = ""
    items: ItemCounts | None = None  # None: it was not parsed


class ParserAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the next page; or a refusal, after which the child does no more of the order."""

    outcome: ReparsedPage | None = None
    refusal: str = ""  # the child cannot work at all: a message for the user
    passes: bool = False  # it may be able to later


_encoder = msgspec.msgpack.Encoder()


def frame(value: msgspec.Struct) -> bytes:
    """A value as it is sent."""
    try:
        content = _encoder.encode(value)
    except UnicodeEncodeError:  # a lone surrogate in an address or a message
        content = _encoder.encode(_mended(msgspec.to_builtins(value, builtin_types=(bytes,))))
    return HEAD.pack(len(content)) + content


def read_order(content: bytes) -> Order:
    return msgspec.msgpack.decode(content, type=Order)  # no decoder: every crawl imports this module


def read_answer(content: bytes) -> ParserAnswer:
    return msgspec.msgpack.decode(content, type=ParserAnswer)


def _mended(value: Any) -> Any:  # Any: plain values of any kind
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_mended(key): _mended(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(entry) for entry in value]
    return value

"""Results as bytes in a spool: every one comes back as it was, and what is not ours is refused."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import Attempt, ItemSchema, PageFacts, PageResult, Record, Tally
from gossamer.store.waiting import Waiting, pack, unpack

from .spooling import waiting

texts = st.text(st.characters(), max_size=12)  # lone surrogates and NUL included
moments = st.floats(0, 4e9)
results = st.builds(
    PageResult,
    attempt=st.builds(
        Attempt, at=moments, job=texts, url=texts, fingerprint=st.binary(max_size=16), site=texts, worker=texts,
        attempt=st.integers(0, 99), outcome=texts, proxy=st.none() | texts, status=st.none() | st.integers(100, 599),
        bytes=st.integers(0, 1 << 50), latency=moments, error=texts,
    ),
    page=st.none()
    | st.builds(
        PageFacts, fingerprint=st.binary(max_size=16), url=texts, job=texts, fetched_at=moments,
        status=st.integers(100, 599), etag=texts, links=st.binary(max_size=9), spider=texts, failure=texts,
    ),
    records=st.lists(
        st.builds(
            Record, type=texts, site=texts, key=texts, url=texts, job=texts, spider=texts, data=texts,
            content_hash=st.binary(max_size=16), scraped_at=moments, schema=texts, reparsed_at=st.none() | moments,
        ),
        max_size=2,
    ).map(tuple),
    quality=st.lists(
        st.builds(
            Tally, spider=texts, day=texts, type=texts, field=texts, rule=texts, checked=st.integers(0, 9),
            filled=st.integers(0, 9), faulty=st.integers(0, 9),
        ),
        max_size=2,
    ).map(tuple),
    schemas=st.lists(st.builds(ItemSchema, id=texts, type=texts, definition=texts), max_size=1).map(tuple),
)  # fmt: skip
snapshots = st.builds(
    Snapshot, url=texts, requested_url=texts, status=st.integers(100, 599), body=st.binary(max_size=99),
    headers=st.builds(Headers, st.lists(st.tuples(texts, texts), max_size=3)), fetched_at=moments, cut=st.booleans(),
    kind=texts, job=texts, data=texts,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(one=st.builds(Waiting, result=results, snapshot=st.none() | snapshots))
def test_any_result_comes_back_as_it_was(one: Waiting) -> None:
    assert unpack(pack(one)) == one


def test_a_result_of_an_older_version_has_no_quality_and_no_shapes() -> None:
    plain = msgspec.to_builtins(waiting(1), builtin_types=(bytes,), enc_hook=lambda headers: headers.pairs)
    del plain[0]["quality"], plain[0]["schemas"]
    payload = zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(plain))
    assert unpack(payload).result == msgspec.structs.replace(waiting(1).result, quality=(), schemas=())


@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_flipped_bit_is_noticed(bit: int) -> None:
    frame = pack(waiting(1))
    for at in range(len(frame)):
        flipped = frame[:at] + bytes([frame[at] ^ (1 << bit)]) + frame[at + 1 :]
        with suppress(ValueError, zstandard.ZstdError):
            assert unpack(flipped) == waiting(1)  # bits of its head that say nothing


def test_a_frame_that_would_fill_the_memory_is_refused() -> None:
    bomb = zstandard.ZstdCompressor().compressobj(size=1 << 40)
    with pytest.raises(ValueError, match="claims to unpack"):
        unpack(bomb.compress(bytes(9)) + bomb.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))


def test_what_a_later_version_adds_to_an_attempt_is_passed_over() -> None:
    plain = msgspec.to_builtins(waiting(1), builtin_types=(bytes,), enc_hook=lambda headers: headers.pairs)
    plain[0]["attempt"]["colour"] = "red"
    payload = zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(plain))
    assert unpack(payload) == waiting(1)
    del plain[0]["attempt"]["url"]
    with pytest.raises(ValueError, match="url"):
        unpack(zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(plain)))

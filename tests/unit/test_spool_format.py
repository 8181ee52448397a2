"""Entries of the spool: every result comes back, and damage costs no more than what it hit."""

from __future__ import annotations

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import Attempt, ItemSchema, PageFacts, PageResult, Record, Tally
from gossamer.store.spool_files import Damage, Entry, Waiting, frame, head, other_version, pack, unpack, walk

from .spooling import number_of, waiting

MARK = bytes.fromhex("00112233445566aa")

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
    payload = b"P" + zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(plain))
    assert unpack(payload).result == msgspec.structs.replace(waiting(1).result, quality=(), schemas=())


def segment_of(*numbers: int) -> tuple[bytes, list[int]]:
    """A segment with these results, and where each entry ends."""
    content, ends = head(), []
    for number in numbers:
        content += frame(MARK, pack(waiting(number)))
        ends.append(len(content))
    return content, ends


def numbers_in(content: bytes) -> list[int]:
    return [number_of(unpack(found.payload)) for found in walk(content, MARK) if isinstance(found, Entry)]


def test_a_segment_torn_at_any_byte_holds_exactly_its_whole_entries() -> None:
    content, ends = segment_of(0, 1, 2)
    for cut in range(len(content) + 1):
        torn = content[:cut]
        assert numbers_in(torn) == [n for n, end in enumerate(ends) if end <= cut]
        assert not [found for found in walk(torn, MARK) if isinstance(found, Damage)]


def test_a_file_that_grew_before_its_content_arrived_is_torn_not_damaged() -> None:
    content, ends = segment_of(0, 1)
    zeros = content[: ends[0]] + bytes(len(content) - ends[0])
    assert [type(found) for found in walk(zeros, MARK)] == [Entry]
    assert list(walk(bytes(500), MARK)) == []


@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_flipped_bit_costs_one_entry_and_is_told(bit: int) -> None:
    content, ends = segment_of(0, 1, 2)
    for at in range(len(content)):
        flipped = content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :]
        if other_version(flipped) is not None:
            pytest.fail("a flipped bit was taken for another version")
        hit = [n for n, end in enumerate(ends) if at < end and at >= ([len(head()), *ends][n])]
        assert numbers_in(flipped) == [n for n in range(3) if n not in hit]
        assert [type(found) for found in walk(flipped, MARK)].count(Damage) == 1


def test_damage_covers_what_was_hit_and_nothing_else() -> None:
    content, ends = segment_of(0, 1, 2)
    broken = content[: ends[0]] + b"rubbish" + content[ends[0] + 7 :]
    assert [found for found in walk(broken, MARK) if isinstance(found, Damage)] == [Damage(ends[0], ends[1])]


def test_a_page_cannot_smuggle_in_an_entry() -> None:
    forged = frame(b"8 bytes!", pack(waiting(666)))
    plain = msgspec.msgpack.encode(["x", forged])  # as it would lie in an entry that does not compress
    content = head() + frame(MARK, plain) + frame(MARK, pack(waiting(1)))
    broken = content[: len(head()) + 9] + b"\xff" + content[len(head()) + 10 :]  # the entry around it lost its head
    assert numbers_in(broken) == [1]


@pytest.mark.parametrize("odd", [False, True])
def test_an_entry_that_claims_to_be_huge_is_not_unpacked(monkeypatch: pytest.MonkeyPatch, odd: bool) -> None:
    one = waiting(1, b"x" * 5000)
    if odd:  # a header whose bytes are no UTF-8
        one = msgspec.structs.replace(one, snapshot=msgspec.structs.replace(one.snapshot, kind="\udcff"))
    payload = pack(one)
    size = zstandard.get_frame_parameters(payload[1:]).content_size

    monkeypatch.setattr("gossamer.store.spool_files.MAX_RESULT_BYTES", size)
    assert unpack(payload) == one
    monkeypatch.setattr("gossamer.store.spool_files.MAX_RESULT_BYTES", size - 1)
    with pytest.raises(ValueError, match=f"claims to unpack to {size} bytes"):
        unpack(payload)


def test_a_whole_segment_of_another_version_is_known_as_such() -> None:
    from zlib import crc32

    newer = b"GOSPOOL\x02"
    assert other_version(newer + crc32(newer).to_bytes(4, "little") + b"...") == 2
    assert other_version(head()) is None
    assert other_version(b"short") is None


def test_what_a_later_version_adds_to_an_attempt_is_passed_over() -> None:
    plain = msgspec.to_builtins(waiting(1), builtin_types=(bytes,), enc_hook=lambda headers: headers.pairs)
    plain[0]["attempt"]["colour"] = "red"
    payload = b"P" + zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(plain))
    assert unpack(payload) == waiting(1)
    del plain[0]["attempt"]["url"]
    with pytest.raises(ValueError, match="not one of ours"):
        unpack(b"P" + zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(plain)))

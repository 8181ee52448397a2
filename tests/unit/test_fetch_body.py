from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import BadResponse
from gossamer.fetch.body import BodyDecoder, ReceivedBody, layers_of
from tests.sites.hostile import noise, pack

LIMIT = 1024 * 1024


def decode(data: bytes, *names: str, limit: int = LIMIT, piece: int = 16_384) -> ReceivedBody:
    decoder = BodyDecoder(names, limit)
    for at in range(0, len(data), piece):
        if not decoder.feed(data[at : at + piece]):
            break
    return decoder.finish()


@pytest.mark.parametrize("piece", [1, 7, 16_384])
@pytest.mark.parametrize(
    "names",
    [("gzip",), ("deflate",), ("br",), ("zstd",), ("gzip", "br"), ("zstd", "deflate", "gzip"), ("gzip",) * 5],
)
def test_what_was_packed_is_unpacked(names: tuple[str, ...], piece: int) -> None:
    page = noise(5_000)
    assert decode(pack(page, names), *names, piece=piece) == ReceivedBody(data=page)


def test_deflate_without_its_wrapper_is_understood() -> None:
    assert decode(pack(b"page", ["raw-deflate"]), "deflate") == ReceivedBody(data=b"page")


def test_gzip_members_and_zstd_frames_follow_each_other() -> None:
    assert decode(gzip.compress(b"one ") + gzip.compress(b"two"), "gzip", piece=5).data == b"one two"
    assert decode(zstandard.compress(b"one ") + zstandard.compress(b"two"), "zstd", piece=5).data == b"one two"


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
def test_padding_after_the_end_is_ignored(name: str) -> None:
    assert decode(pack(b"page", [name]) + b"\0\r\n", name) == ReceivedBody(data=b"page")


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_the_limit_itself_is_not_a_cut_and_one_more_byte_is(name: str) -> None:
    page = noise(10_000)
    assert decode(pack(page, [name]), name, limit=10_000) == ReceivedBody(data=page)
    assert decode(pack(page, [name]), name, limit=9_999) == ReceivedBody(data=page[:9_999], cut=True)


@pytest.mark.parametrize("names", [("gzip",), ("deflate",), ("br",), ("zstd",), ("gzip", "gzip"), ("br", "zstd")])
def test_a_bomb_is_cut_within_its_memory(names: tuple[str, ...]) -> None:
    bomb = pack(bytes(64 * 1024 * 1024), names)
    tracemalloc.start()
    body = decode(bomb, *names)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert body.cut
    assert len(body.data) <= LIMIT
    assert peak < 24 * LIMIT  # zstd hands out up to 8 MiB at once, twice while it joins them


@pytest.mark.parametrize("with_size", [False, True])
def test_zstd_is_read_whether_or_not_it_names_its_length(with_size: bool) -> None:
    page = noise(50_000)
    packer = zstandard.ZstdCompressor(write_content_size=with_size)
    assert decode(packer.compress(page), "zstd") == ReceivedBody(data=page)
    stream = packer.compressobj()
    pieces = [stream.compress(page[:20_000]), stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)]
    pieces += [stream.compress(page[20_000:]), stream.flush()]
    assert decode(b"".join(pieces), "zstd") == ReceivedBody(data=page)


@pytest.mark.parametrize("missing", range(1, 9))
def test_a_checksum_that_is_cut_off_costs_no_byte_of_the_page(missing: int) -> None:
    page = noise(5_000)
    body = decode(gzip.compress(page)[:-missing], "gzip")
    assert (body.data, body.note) == (page, "truncated gzip")


@pytest.mark.parametrize("name", ["gzip", "deflate", "br"])
def test_a_body_whose_end_is_missing_keeps_its_beginning(name: str) -> None:
    page = noise(60_000)
    packed = pack(page, [name])
    body = decode(packed[: len(packed) // 2], name)
    assert body.note == f"truncated {name}"
    assert body.cut
    assert len(body.data) > 10_000
    assert page.startswith(body.data)


def test_a_zstd_body_cut_inside_its_first_block_is_truncated_and_empty() -> None:
    packed = pack(noise(60_000), ["zstd"])
    assert decode(packed[: len(packed) // 2], "zstd") == ReceivedBody(data=b"", cut=True, note="truncated zstd")


def test_a_wrong_checksum_costs_no_byte_of_the_page() -> None:
    page = noise(200_000)
    body = decode(gzip.compress(page)[:-8] + bytes(8), "gzip")
    assert body == ReceivedBody(data=page, cut=True, note="damaged gzip")


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
@pytest.mark.parametrize("page", [b"<!doctype html><p>not packed at all</p>", b'{"a": 1}', "é".encode(), b"x"])
def test_plain_text_under_a_wrong_label_is_kept_as_it_came(name: str, page: bytes) -> None:
    assert decode(page, name) == ReceivedBody(data=page, note=f"not {name}")


def test_long_plain_text_under_a_wrong_label_is_cut_as_any_other() -> None:
    assert decode(b"<p>" * 10_000, "gzip", limit=100) == ReceivedBody(
        data=(b"<p>" * 34)[:100], cut=True, note="not gzip"
    )


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_junk_under_a_wrong_label_is_a_bad_response(name: str) -> None:
    with pytest.raises(BadResponse, match=name):
        decode(b"\x00\x01\x02\xfe\xff\xff" * 500, name)


def test_a_zstd_window_of_a_gigabyte_is_refused() -> None:
    params = zstandard.ZstdCompressionParameters.from_level(1, window_log=27)
    packed = zstandard.ZstdCompressor(compression_params=params).compressobj().compress(noise(300_000))
    with pytest.raises(BadResponse):
        decode(packed, "zstd")


@pytest.mark.parametrize("names", [(), ("gzip",)], ids=["plain", "a label that lies"])
def test_a_body_in_tiny_pieces_takes_little_more_than_its_length(names: tuple[str, ...]) -> None:
    page = b"plain text " * 40_000
    tracemalloc.start()
    try:
        body = decode(page, *names, piece=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert body.data == page
    assert peak < 4 * len(page)


def test_an_empty_body_needs_no_end_mark() -> None:
    assert decode(b"", "gzip") == ReceivedBody(data=b"")


def test_input_without_output_is_no_progress_for_ever() -> None:
    decoder = BodyDecoder(("gzip",), 1000)
    decoder.feed(b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + b"\x00\x00\x00\xff\xff" * 100)
    assert decoder.finish() == ReceivedBody(data=b"", cut=True, note="truncated gzip")


def test_encodings_are_listed_in_the_order_they_were_applied() -> None:
    assert layers_of(["gzip, BR", "x-gzip", "identity", ""]) == (("gzip", "br", "gzip"), "")
    assert layers_of(["utf-8"]) == ((), "unknown encoding 'utf-8'")


@pytest.mark.parametrize("value", ["gzip," * 6, ", ".join(["gzip"] * 100), "," * 100_000, "identity," * 1000])
def test_too_many_layers_are_a_bad_response(value: str) -> None:
    with pytest.raises(BadResponse):
        layers_of([value])


@given(st.binary(max_size=300), st.sampled_from(["gzip", "deflate", "br", "zstd"]))
def test_no_bytes_raise_anything_but_bad_response(data: bytes, name: str) -> None:
    for head in (b"", pack(b"hello", [name])[:6]):
        try:
            body = decode(head + data, name, limit=100, piece=11)
        except BadResponse:
            continue
        assert len(body.data) <= 100


def test_damage_in_the_middle_keeps_what_came_before() -> None:
    page = noise(100_000)
    packed = bytearray(zlib.compress(page, 0))  # stored: the damage is where the length of a block stands
    packed[65_540:65_550] = b"\xff" * 10
    body = decode(bytes(packed), "deflate")
    assert "deflate" in body.note
    assert body.cut
    assert page.startswith(body.data[:65_000])
    assert len(body.data) >= 65_000


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_empty_members_without_end_are_not_read_to_their_end(name: str) -> None:
    """Each costs time, and gives nothing that a limit could count."""
    pack = gzip.compress if name == "gzip" else zstandard.ZstdCompressor().compress
    decoder, piece, fed = BodyDecoder((name,), 1_000_000), pack(b"") * 1_000, 0
    assert decoder.feed(pack(b"hello"))
    while decoder.feed(piece) and fed < 100:
        fed += 1
    body = decoder.finish()
    assert (body.data, body.cut, body.note) == (b"hello", True, f"damaged {name}")
    assert fed < 100


@pytest.mark.parametrize("empty", [(b"", "gzip"), (b"", "zstd"), (b"\x06" * 1, "br")])
def test_a_body_that_says_nothing_is_not_kept_without_end(empty: tuple[bytes, str]) -> None:
    data, name = empty
    pack = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress, "br": bytes}[name]
    decoder, fed = BodyDecoder((name,), 100_000), 0
    while decoder.feed(pack(data) * 1_000) and fed < 1_000:
        fed += 1
    assert fed < 1_000

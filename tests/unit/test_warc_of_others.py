"""WARC files as they are found in the world: odd, packed in every way, damaged, and hostile."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import Misconfigured
from gossamer.store.warc.reading import Damage, WarcRecord, records_of

from .warcs import LIMIT, NOW, SHOP, Project, answer, members, project_in, record, response

INFO = record("warcinfo", "", b"software: theirs\r\n")


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[Project]:
    async with project_in(tmp_path / "project") as opened:
        yield opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "theirs.warc.gz"


async def bodies(project: Project) -> dict[str, bytes]:
    return {url.removeprefix(SHOP): one.body for url, one in (await project.pages()).items()}


THREE = [INFO, response("/1", b"one"), response("/2", b"two"), response("/3", b"three")]
ALL_THREE = {"/1": b"one", "/2": b"two", "/3": b"three"}


def bare(path: str, body: bytes) -> bytes:
    """A record with line ends of one character."""
    block = answer(body).replace(b"\r\n", b"\n")
    return record("response", f"{SHOP}{path}", block).replace(b"\r\n", b"\n")


@pytest.mark.parametrize(
    "content",
    [
        b"".join(THREE),
        members(*THREE),
        gzip.compress(b"".join(THREE)),
        members(*THREE) + b"\0" * 100_000,
        b"".join(zstandard.ZstdCompressor().compress(one) for one in THREE),
        b"".join(bare(path, body) for path, body in ALL_THREE.items()),
        b"".join(THREE).replace(b"\r\n\r\nWARC", b"\r\n\r\n\r\n\r\nWARC"),
    ],
    ids=[
        "plain",
        "gzip by record",
        "gzip as a whole",
        "padded",
        "zstd by record",
        "bare line ends",
        "more empty lines",
    ],
)
async def test_every_packing_is_read(project: Project, file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert (await project.take(file)).pages == 3
    assert await bodies(project) == ALL_THREE


CHUNKED = b"4\r\n<p>A\r\n6;x=y\r\n page!\r\n0\r\nTrailer: x\r\n\r\n"


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        (CHUNKED, ("Transfer-Encoding: chunked",), b"<p>A page!"),
        (b"<p>Not chunked at all", ("Transfer-Encoding: chunked",), b"<p>Not chunked at all"),
        (gzip.compress(b"<p>zipped", mtime=0), ("content-encoding: GZIP",), b"<p>zipped"),
        (zlib.compress(b"<p>deflated"), ("Content-Encoding: deflate",), b"<p>deflated"),
        (brotli.compress(b"<p>brotli"), ("Content-Encoding: br",), b"<p>brotli"),
        (b"<p>Already unzipped", ("Content-Encoding: gzip",), b"<p>Already unzipped"),
        (b"", ("Content-Encoding: gzip",), b""),
    ],
)
async def test_bodies_are_decoded(
    project: Project, file: Path, body: bytes, headers: tuple[str, ...], expected: bytes
) -> None:
    file.write_bytes(members(response("/", body, *headers)))
    assert (await project.take(file)).pages == 1
    assert await bodies(project) == {"/": expected}


@pytest.mark.parametrize(
    ("status", "code"),
    [("HTTP/2 200", 200), ("HTTP/1.0 404 Not Found", 404), ("HTTP/3 503 ", 503), ("http/1.1 200", 200)],
)
async def test_status_lines_of_every_version_are_read(project: Project, file: Path, status: str, code: int) -> None:
    file.write_bytes(members(response("/", b"x", status=status)))
    await project.take(file)
    (facts,) = await project.visits(failures=("", "http-404", "http-503"))
    assert facts.status == code


async def test_resources_are_pages_and_the_rest_is_counted(project: Project, file: Path) -> None:
    file.write_bytes(
        members(
            INFO,
            record("request", f"{SHOP}/", b"GET / HTTP/1.1\r\n\r\n"),
            record("resource", f"<{SHOP}/list.csv>", b"a,b\n1,2\n", Content_Type="text/csv"),
            record("resource", "dns:shop.example", b"192.0.2.1"),
            record("response", "ftp://shop.example/x", b"220 hello"),
            record("response", f"{SHOP}/x", b"this is no HTTP"),
            record("response", "http://[bad/", answer(b"x")),
            response("/dated", b"x", date="some day"),
            record("metadata", f"{SHOP}/", b"via: somewhere\r\n"),
        )
    )
    state = await project.take(file)
    assert (state.pages, state.foreign, state.unreadable, state.undated, state.other) == (1, 2, 2, 1, 3)
    ((url, one),) = (await project.pages()).items()
    assert (url, one.status, one.headers.get("content-type"), one.body) == (
        f"{SHOP}/list.csv", 200, "text/csv", b"a,b\n1,2\n",
    )  # fmt: skip
    assert one.fetched_at == NOW


@pytest.mark.parametrize(
    "refers",
    [
        {"WARC_Refers_To": "<urn:uuid:7>"},
        {"WARC_Refers_To_Target_URI": f"{SHOP}/1", "WARC_Refers_To_Date": "2027-01-15T08:00:00Z"},
        {"WARC_Payload_Digest": "sha1:ABC"},
    ],
)
async def test_a_revisit_gets_the_body_it_refers_to(
    project: Project, file: Path, tmp_path: Path, refers: dict[str, str]
) -> None:
    # Given a page in one file, and in another one a visit that found the same, and one that found something else
    file.write_bytes(members(response("/1", b"<p>One", number=7, WARC_Payload_Digest="sha1:ABC")))
    later = "2027-01-16T08:00:00Z"
    second = tmp_path / "second.warc.gz"
    second.write_bytes(
        members(
            record("revisit", f"{SHOP}/again", answer(b"", "X-New: 1"), number=8, date=later, **refers),
            record("revisit", f"{SHOP}/bare", b"", number=9, date=later, **refers),
            record("revisit", f"{SHOP}/not", b"", number=9, date=later, WARC_Payload_Digest="sha1:ELSE"),
        )
    )
    # When both are taken
    state = await project.take(file, second)
    # Then the visits that can be resolved have the body, and their own time and headers
    assert (state.pages, state.unresolved) == (3, 1)
    pages = await project.pages()
    assert {url.removeprefix(SHOP): one.body for url, one in pages.items()} == dict.fromkeys(
        ("/1", "/again", "/bare"), b"<p>One"
    )
    again = pages[f"{SHOP}/again"]
    assert (again.fetched_at, again.headers.get("x-new"), again.url) == (NOW + 86_400, "1", f"{SHOP}/again")


async def test_what_can_be_read_of_a_file_cut_short_is_kept(project: Project, file: Path) -> None:
    content = members(*THREE[:3], response("/3", b"three " * 1000))
    file.write_bytes(content[:-20])
    state = await project.take(file)
    assert (state.pages, state.cut) == (3, 1)
    pages = await project.pages()
    assert pages[f"{SHOP}/2"].body == b"two"
    assert pages[f"{SHOP}/3"].cut
    (damage,) = state.damages
    assert "ends in the middle of a record" in damage
    assert file.name in damage


@pytest.mark.parametrize("packed", [True, False])
async def test_reading_goes_on_behind_a_damaged_place(project: Project, file: Path, packed: bool) -> None:
    pack = members if packed else (lambda *records: b"".join(records))
    before, after = pack(*THREE[:2]), pack(*THREE[3:])
    noise = bytes((n * 77 + n // 3) % 256 for n in range(3000))
    file.write_bytes(before + (gzip.compress(THREE[2])[:-9] if packed else b"") + noise + b"\r\n" + after)
    state = await project.take(file)
    kept = await bodies(project)
    assert (kept["/1"], kept["/3"]) == (b"one", b"three")
    assert state.damages


@pytest.mark.parametrize(
    "content",
    [b"", b"\x1f\x8b\x08", b"PK\x03\x04" + b"x" * 99, b"WARC/1.0\r\n", b"WARC/", gzip.compress(b"<html>", mtime=0)],
)
async def test_what_is_no_warc_file_is_refused(project: Project, file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(Misconfigured, match="WARC"):
        await project.take(file)
    with pytest.raises(Misconfigured, match="cannot be read"):
        await project.take(file.parent / "missing.warc")


HUGE = 20_000_000


@pytest.mark.parametrize(
    "hostile",
    [
        b"WARC/1.0\r\n" + b"x" * HUGE,
        b"WARC/1.0\r\n" + b"a: b\r\n" * (HUGE // 20),
        b"WARC/1.0\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"WARC/1.0\r\nContent-Length: -5\r\n\r\n",
    ],
    ids=["endless line", "endless header", "long number", "negative"],
)
async def test_hostile_records_end_at_a_limit(project: Project, file: Path, hostile: bytes) -> None:
    file.write_bytes(gzip.compress(THREE[1]) + gzip.compress(hostile, 1) + gzip.compress(THREE[2]))
    state = await project.take(file)
    assert await bodies(project) == {"/1": b"one", "/2": b"two"}
    assert len(state.damages) == 1


@pytest.mark.parametrize(
    ("body", "header"),
    [
        (gzip.compress(b"\0" * HUGE), "Content-Encoding: gzip"),
        (brotli.compress(b"\0" * HUGE, quality=3), "Content-Encoding: br"),
        (b"1312D00\r\n" + b"\0" * HUGE, "Transfer-Encoding: chunked"),
        (b"FFFFFFFFFFFFF\r\nshort", "Transfer-Encoding: chunked"),
    ],
    ids=["gzip", "brotli", "one chunk", "a chunk that is not there"],
)
async def test_no_body_is_longer_than_the_limit(project: Project, file: Path, body: bytes, header: str) -> None:
    file.write_bytes(gzip.compress(response("/1", body, header), 1) + gzip.compress(THREE[2]))
    state = await project.take(file)
    pages = await project.pages()
    assert state.pages == 2
    assert len(pages[f"{SHOP}/1"].body) <= LIMIT
    assert pages[f"{SHOP}/1"].cut
    assert pages[f"{SHOP}/2"].body == b"two"


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_file_never_breaks_the_reader(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    plain = data.draw(st.booleans())
    content = bytearray(b"".join(THREE) if plain else members(*THREE))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(5, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=30))
    file = tmp_path_factory.mktemp("warc") / "x.warc"
    file.write_bytes(content)
    with file.open("rb") as stream:
        try:
            for one in records_of(stream, "x"):
                assert isinstance(one, Damage | WarcRecord)
        except Misconfigured:
            pass

"""WARC files that say what is not so: lengths, statuses, dates and addresses. No neighbour suffers for it."""

from __future__ import annotations

import gzip
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zstandard

from gossamer.store.warc.reading import MAX_DAMAGES, Damage, WarcRecord, records_of
from gossamer.store.warc.taking import MOST_DAMAGES, Imported

from .warcs import NOW, SHOP, Project, answer, members, project_in, record, response

DAY = 86_400.0


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[Project]:
    async with project_in(tmp_path / "project") as opened:
        yield opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "theirs.warc.gz"


def plain(*records: bytes) -> bytes:
    return b"".join(records)


def frames(*records: bytes) -> bytes:
    return b"".join(zstandard.ZstdCompressor().compress(one) for one in records)


def whole(*records: bytes) -> bytes:
    return gzip.compress(b"".join(records))


def body(number: int) -> bytes:
    return b"<p>Page %d</p>\n" % number * 20


LINES = {pack.__name__: pack for pack in (members, plain, frames, whole)}


@pytest.mark.parametrize(
    ("packing", "length"),
    [
        *((packing, length) for packing in ("members", "plain", "frames") for length in (10**12, 800, 700, 50)),
        ("whole", 50),
    ],
)
async def test_a_wrong_length_costs_no_other_page(project: Project, file: Path, packing: str, length: int) -> None:
    # Given a file in which one record says that it is longer or shorter than it is
    records = [
        response(f"/{number}", body(number), **({"Content_Length": str(length)} if number == 3 else {}))
        for number in range(12)
    ]
    file.write_bytes(LINES[packing](*records))
    # When it is taken
    state = await project.take(file)
    # Then every other page is there as it was, and of this one as much as can be told
    pages = {url.removeprefix(f"{SHOP}/"): one for url, one in (await project.pages()).items()}
    assert {name: one.body for name, one in pages.items() if name != "3"} == {
        str(number): body(number) for number in range(12) if number != 3
    }
    assert [name for name, one in pages.items() if one.cut] == ["3"]
    assert body(3).startswith(pages["3"].body.strip(b"\r\n")[:200])
    assert (state.pages, state.cut, state.damaged) == (12, 1, 1)


@pytest.mark.parametrize("packing", ["members", "plain", "frames"])
def test_a_file_whose_every_length_is_wrong_is_read_to_its_end(packing: str) -> None:
    count = MAX_DAMAGES + 200
    content = LINES[packing](
        *(response(f"/{number}", b"x" * 50, Content_Length="1000000000") for number in range(count))
    )
    found = list(records_of(io.BytesIO(content), "theirs.warc"))
    assert sum(isinstance(one, WarcRecord) for one in found) == count
    assert sum(isinstance(one, Damage) for one in found) == count


@pytest.mark.parametrize("packing", ["members", "frames"])
def test_a_record_may_go_over_several_members(packing: str) -> None:
    one, other = response("/1", b"one" * 500), response("/2", b"two")
    pieces = [one[at : at + 100] for at in range(0, len(one), 100)]
    found = list(records_of(io.BytesIO(LINES[packing](*pieces, other)), "theirs.warc"))
    assert [type(record) for record in found] == [WarcRecord, WarcRecord]


async def test_a_damaged_first_record_does_not_hide_the_others(project: Project, file: Path) -> None:
    torn = bytearray(gzip.compress(response("/1", b"one")))
    torn[20:40] = b"\0" * 20
    file.write_bytes(bytes(torn) + members(response("/2", b"two")))
    state = await project.take(file)
    assert [one.body for one in (await project.pages()).values()] == [b"two"]
    assert state.damaged == 1


async def test_damages_are_counted_and_only_the_first_are_told(project: Project, file: Path) -> None:
    count = MOST_DAMAGES + 10
    file.write_bytes(members(response("/1", b"one"), *[b"noise\r\n", response("/1", b"one")] * count))
    state = await project.take(file)
    assert (state.damaged, len(state.damages)) == (count, MOST_DAMAGES)


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        ("HTTP/1.1 302 Found", "http-302"),
        ("HTTP/1.1 300 Multiple Choices", "http-300"),
        ("HTTP/1.1 103 Early Hints", "http-103"),
        ("HTTP/1.1 999 Denied", "http-999"),
    ],
)
async def test_an_answer_that_is_no_page_is_kept_as_a_failure(
    project: Project, file: Path, status: str, failure: str
) -> None:
    file.write_bytes(members(response("/1", b"", "Location: /2", status=status), response("/2", b"two")))
    state = await project.take(file)
    assert (state.pages, state.barren) == (2, 1)
    (kept,) = await project.visits(failures=(failure,))
    assert kept.url == f"{SHOP}/1"
    (waiting,) = await project.visits(failures=("",))
    assert waiting.url == f"{SHOP}/2"


async def test_an_answer_without_a_page_of_its_own_is_unresolved(project: Project, file: Path) -> None:
    file.write_bytes(members(response("/1", b"", status="HTTP/1.1 304 Not Modified"), response("/2", b"two")))
    state = await project.take(file)
    assert (state.pages, state.unresolved) == (1, 1)


@pytest.mark.parametrize("status", ["000", "099", "20", "2000"])
async def test_a_status_that_cannot_be_is_unreadable(project: Project, file: Path, status: str) -> None:
    file.write_bytes(members(response("/1", b"x", status=f"HTTP/1.1 {status} OK")))
    state = await project.take(file)
    assert (state.pages, state.unreadable) == (0, 1)


@pytest.mark.parametrize(
    "date",
    [
        "9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z", "2027-01-17T08:00:00Z", "1969-12-31T23:59:59Z",
        "0001-01-01T00:00:00+23:59", "some day", "",
    ],
)  # fmt: skip
async def test_a_page_needs_a_date_that_can_be(project: Project, file: Path, date: str) -> None:
    file.write_bytes(members(response("/1", b"one", date=date), response("/2", b"two", date="2027-01-16T07:59:59Z")))
    state = await project.take(file)
    assert (state.pages, state.undated, state.unreadable) == (1, 1, 0)
    assert [one.fetched_at for one in (await project.pages()).values()] == [NOW + DAY - 1]


@pytest.mark.parametrize("kind", ["response", "revisit"])
async def test_a_password_in_an_address_is_left_out(project: Project, file: Path, kind: str) -> None:
    address = "https://anna:secret%40@shop.example/in?x=@y"
    named = {"WARC_Payload_Digest": "sha1:ABC"}
    file.write_bytes(
        members(
            response("/1", b"<p>In", **named),
            record(kind, address, answer(b"<p>In"), date="2027-01-15T09:00:00Z", **named),
        )
    )
    state = await project.take(file)
    assert (state.pages, state.stripped) == (2, 1)
    pages = await project.pages()
    one = pages[f"{SHOP}/in?x=@y"]
    assert (one.url, one.requested_url, one.body) == (f"{SHOP}/in?x=@y", f"{SHOP}/in?x=@y", b"<p>In")
    assert not any("secret" in facts.url for facts in await project.visits())


async def test_revisits_are_stored_in_batches(project: Project, file: Path) -> None:
    # Given many visits that found what an earlier one had found, in the same batch and in one before
    named = {"WARC_Payload_Digest": "sha1:ABC"}
    later = [record("revisit", f"{SHOP}/{number}", b"", date="2027-01-15T09:00:00Z", **named) for number in range(150)]
    file.write_bytes(members(response("/first", b"<p>One", **named), *later))
    told: list[Imported] = []
    # When they are taken
    state = await project.take(file, tell=told.append)
    # Then all have their body, and they did not come one by one
    assert (state.pages, state.unresolved) == (151, 0)
    assert {one.body for one in (await project.pages()).values()} == {b"<p>One"}
    assert len({one.pages for one in told}) <= 4


async def test_a_revisit_of_a_page_whose_copy_was_pruned_is_unresolved(
    project: Project, file: Path, tmp_path: Path
) -> None:
    named = {"WARC_Payload_Digest": "sha1:ABC"}
    first = response("/1", b"<p>One", **named)
    file.write_bytes(members(first))
    await project.take(file)
    for segment in (tmp_path / "project" / "archive").rglob("*.zst"):
        segment.unlink()
    others = [response(f"/{number}", b"x") for number in range(2, 80)]
    file.write_bytes(members(first, *others, record("revisit", f"{SHOP}/again", b"", **named)))
    state = await project.take(file)
    assert (state.known, state.unresolved) == (1, 1)

"""Exports to an object store: whole or not at all, told early when it cannot be, nothing left behind."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from obstore.store import S3Store

from gossamer.backends.object.bucket import connect, parse_address
from gossamer.backends.object.destination import ObjectDestination
from gossamer.errors import BackendUnavailable, Misconfigured
from gossamer.model.record import ItemSchema, StoredRecord
from gossamer.store.contract import RecordQuery
from gossamer.store.export import export, probe_destination
from gossamer.store.export.parquet import arrow
from tests.patience import PATIENCE, until

from ..services.seaweed import BUCKET, READER_KEY, READER_SECRET, SECRET_KEY, Seaweed
from .commandline import ProjectFolder
from .commandline import project as project
from .crawled import BODY, crawl_half

NOW = 1_800_000_000.0
ALL = RecordQuery()


class Source:
    """Records as a store would give them; with `fails`, it breaks after the last one."""

    def __init__(self, count: int, fails: bool = False) -> None:
        self._count = count
        self._fails = fails

    async def records(self, query: RecordQuery) -> AsyncIterator[StoredRecord]:
        for n in range(self._count):
            yield StoredRecord(
                type="Book", site="shop.example", key=f"k{n}", url="https://shop.example/", job="books-1",
                spider="books", data={"n": n, "text": "x" * 2000}, first_seen=NOW, last_changed=NOW, last_checked=NOW,
                version=1,
            )  # fmt: skip
        if self._fails:
            raise BackendUnavailable("The store went away.")

    async def schemas(self, type: str | None = None) -> list[tuple[ItemSchema, float]]:
        return []


@pytest.fixture
def folder(s3: Seaweed) -> str:
    return f"exports/{uuid.uuid4().hex}"


def bucket_of(s3: Seaweed, folder: str) -> S3Store:
    return connect(parse_address(s3.address(folder), {}))


def objects(s3: Seaweed, folder: str) -> dict[str, bytes]:
    store = bucket_of(s3, folder)
    return {one["path"]: bytes(store.get(one["path"]).bytes()) for chunk in store.list() for one in chunk}


def open_uploads(s3: Seaweed) -> list[str]:
    """Uploads that wait for an end, as the server's own file listing shows them."""
    url = f"http://127.0.0.1:{s3._ports['filer.port']}/buckets/{BUCKET}/.uploads/"
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    with suppress(urllib.error.HTTPError), urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return [entry["FullPath"] for entry in json.load(answer).get("Entries") or []]
    return []  # there is no such folder before the first upload


async def no_upload_is_left(s3: Seaweed) -> None:
    """The server takes a moment to delete what was aborted."""

    async def none_is_open() -> bool:
        return not await asyncio.to_thread(open_uploads, s3)

    await until(none_is_open)


async def test_every_format_arrives_whole(s3: Seaweed, folder: str) -> None:
    for name in ("x.jsonl", "x.csv.gz", "x.parquet"):
        await export(Source(50), ALL, ObjectDestination(s3.address(f"{folder}/{name}")))
    found = objects(s3, folder)
    assert sorted(found) == ["x.csv.gz", "x.jsonl", "x.parquet"]
    assert [json.loads(line)["n"] for line in found["x.jsonl"].splitlines()] == list(range(50))
    pa = arrow()
    assert pa.parquet.read_table(pa.BufferReader(found["x.parquet"])).column("n").to_pylist() == list(range(50))


PART = 5 * 1024 * 1024  # the least that the service takes


async def test_a_long_export_is_sent_in_parts(s3: Seaweed, folder: str) -> None:
    done = await export(Source(6000), ALL, ObjectDestination(s3.address(f"{folder}/x.jsonl"), part_bytes=PART))
    (content,) = objects(s3, folder).values()
    assert (done.records, len(content.splitlines())) == (6000, 6000)
    assert len(content) > 2 * PART


@pytest.mark.parametrize("count", [10, 6000])
async def test_an_export_that_fails_leaves_the_old_object_and_nothing_else(
    s3: Seaweed, folder: str, count: int
) -> None:
    place = ObjectDestination(s3.address(f"{folder}/x.jsonl"), part_bytes=PART)
    await export(Source(1), ALL, place)
    before = objects(s3, folder)
    with pytest.raises(BackendUnavailable, match="went away"):
        await export(Source(count, fails=True), ALL, place)
    assert objects(s3, folder) == before
    await no_upload_is_left(s3)


async def test_an_export_that_is_interrupted_takes_back_what_it_sent(s3: Seaweed, folder: str) -> None:
    # Given an export that has sent a part and waits for more records
    source = Endless(6000)
    place = ObjectDestination(s3.address(f"{folder}/x.jsonl"), part_bytes=PART)
    task = asyncio.create_task(export(source, ALL, place))
    await asyncio.wait_for(source.waits.wait(), PATIENCE)
    # When it is stopped
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # Then nothing is left of it
    assert objects(s3, folder) == {}
    await no_upload_is_left(s3)


class Endless(Source):
    """A store that gives its records and is then silent."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.waits = asyncio.Event()

    async def records(self, query: RecordQuery) -> AsyncIterator[StoredRecord]:
        async for record in super().records(query):
            yield record
        self.waits.set()
        await asyncio.Event().wait()


def test_a_place_is_tried_without_leaving_anything(s3: Seaweed, folder: str) -> None:
    probe_destination(ObjectDestination(s3.address(f"{folder}/x.jsonl")))
    assert objects(s3, folder) == {}
    asyncio.run(no_upload_is_left(s3))


@pytest.mark.parametrize(
    ("key", "secret", "bucket", "told"),
    [
        (READER_KEY, READER_SECRET, BUCKET, "may not do this"),
        (READER_KEY, SECRET_KEY, BUCKET, "does not belong to the access key"),
        (None, None, "no-such-bucket", "There is no such bucket. Create it, or correct the address"),
    ],
)
def test_what_stands_in_the_way_is_told_before_the_crawl(
    s3: Seaweed, monkeypatch: pytest.MonkeyPatch, key: str | None, secret: str | None, bucket: str, told: str
) -> None:
    if key and secret:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    with pytest.raises(Misconfigured, match=told) as caught:
        probe_destination(ObjectDestination(s3.address("x.jsonl", bucket)))
    assert "archive" not in str(caught.value)
    assert SECRET_KEY not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    ["s3://bucket", "s3://bucket/", "s3://bucket/folder/", "s3://b/x.jsonl", "s3://key:secret@bucket/x.jsonl",
     "s3://bucket/x.jsonl?endpoitn=http://127.0.0.1:1", "s3://bucket/../x.jsonl",
     "s3://bucket/x.jsonl?endpoint=http://192.0.2.1"],
)  # fmt: skip
def test_an_address_that_cannot_be_is_refused(s3: Seaweed, address: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        ObjectDestination(address)
    assert "archive" not in str(caught.value)


async def test_a_server_that_is_not_there_is_unavailable(s3: Seaweed) -> None:
    place = ObjectDestination("s3://bucket/x.jsonl?endpoint=http://127.0.0.1:9")
    with pytest.raises(BackendUnavailable, match="does not answer") as caught:
        await export(Source(1), ALL, place)
    assert "archive" not in str(caught.value)


def test_the_command_writes_to_a_bucket(project: ProjectFolder, s3: Seaweed, folder: str) -> None:
    project.fill(crawl_half)
    said = project.run("export", "-o", s3.address(f"{folder}/{{job}}.jsonl"), "--job", "books")
    assert (said.code, "1 record written to s3://" in said.err) == (0, True)
    (found,) = objects(s3, folder).items()
    assert (found[0], json.loads(found[1])["title"]) == ("books-1.jsonl", "Dune")


def test_the_command_writes_raw_pages_to_a_bucket(project: ProjectFolder, s3: Seaweed, folder: str) -> None:
    project.fill(crawl_half)
    assert project.run("warc", "export", "-o", s3.address(f"{folder}/x.warc")).code == 0
    assert BODY in objects(s3, folder)["x.warc"]

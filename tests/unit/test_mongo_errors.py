"""What goes wrong with MongoDB: each fault has its error, its advice, no password.

Provoked on the stand-in where it can be; errors that only a real server makes are translated as the driver raises them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pymongo.errors
import pytest
from bson.errors import BSONError, InvalidDocument
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    ConfigurationError,
    CursorNotFound,
    DocumentTooLarge,
    ExecutionTimeout,
    InvalidURI,
    NetworkTimeout,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WaitQueueTimeoutError,
    WriteConcernError,
    WTimeoutError,
)

from gossamer.backends.mongo.address import read_address
from gossamer.backends.mongo.errors import DRIVER_ERRORS, Unstorable, translate
from gossamer.backends.mongo.layout import LAYOUT
from gossamer.backends.mongo.records import open_mongo_records
from gossamer.clock import VirtualClock
from gossamer.errors import (
    BackendUnavailable,
    BadState,
    GossamerError,
    Misconfigured,
    MissingExtra,
    Permanent,
    StoreRefused,
)
from tests.patience import PATIENCE

from ..conformance.stores import NOW, all_of, book, result
from ..services.mongo import prefix_of
from ..services.mongo_server import MongoServer

CLOCK = VirtualClock(NOW + 10_000)
PASSWORD = "s3cret-pa55"
SOON = timedelta(seconds=0.4)  # where no answer comes
AT_LAST = timedelta(seconds=PATIENCE)
PLACE = "MongoDB at db.example, database 'crawls'"


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return prefix_of(tmp_path)


async def refusal(address: str, prefix: str = "gossamer", *, within: timedelta = AT_LAST) -> GossamerError:
    with pytest.raises(GossamerError) as caught:
        async with open_mongo_records(address, CLOCK, prefix=prefix, connect_within=within):
            pass
    assert PASSWORD not in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


# -- coming in -----------------------------------------------------------------------------------------------------


async def test_a_user_who_is_not_let_in(mongo: MongoServer) -> None:
    error = await refusal(mongo.address(user=f"crawler:{PASSWORD}"))
    assert isinstance(error, Misconfigured)
    assert "refused the login. Check the user, the password and authSource" in str(error)


async def test_nobody_listens_there(lone_mongo: MongoServer) -> None:
    address = lone_mongo.address(user=f"crawler:{PASSWORD}")
    lone_mongo.stop()
    error = await refusal(address, within=SOON)
    assert isinstance(error, BackendUnavailable)
    assert "cannot be reached" in str(error)
    assert "Start it, or set records" in str(error)
    assert "Topology" not in str(error)


async def test_a_member_that_takes_no_writes(lone_mongo: MongoServer) -> None:
    lone_mongo.hello = {"isWritablePrimary": False}
    error = await refusal(lone_mongo.address())
    assert isinstance(error, BackendUnavailable)
    assert "address of the primary" in str(error)


@pytest.mark.parametrize("wire", [0, 8])
async def test_a_server_that_is_too_old(lone_mongo: MongoServer, wire: int) -> None:
    lone_mongo.hello = {"maxWireVersion": wire}
    error = await refusal(lone_mongo.address())
    assert isinstance(error, Misconfigured)
    assert "4.4" in str(error)


async def test_a_store_of_a_newer_version_is_left_alone(lone_mongo: MongoServer, prefix: str) -> None:
    async with open_mongo_records(lone_mongo.address(), CLOCK, prefix=prefix):
        pass
    [store] = [one for one in lone_mongo.documents(f"{prefix}.store") if one["_id"] == "store"]
    store["layout"] = LAYOUT + 1
    lone_mongo.asked.clear()
    error = await refusal(lone_mongo.address(), prefix)
    assert isinstance(error, BadState)
    assert "Upgrade Gossamer here" in str(error)
    assert {name for name, _ in lone_mongo.asked} <= {"ismaster", "hello", "find"}


async def test_a_collection_that_is_not_ours(lone_mongo: MongoServer, prefix: str) -> None:
    async with open_mongo_records(lone_mongo.address(), CLOCK, prefix=prefix):
        pass
    [store] = [one for one in lone_mongo.documents(f"{prefix}.store") if one["_id"] == "store"]
    del store["layout"]
    assert isinstance(await refusal(lone_mongo.address(), prefix), BadState)


async def test_an_index_of_another_shape_is_told(lone_mongo: MongoServer, prefix: str) -> None:
    lone_mongo.fail("createIndexes", code=86)
    error = await refusal(lone_mongo.address(), prefix)
    assert isinstance(error, BadState)
    assert "Drop it" in str(error)


@pytest.mark.parametrize(
    "address",
    [
        f"mongodb://crawler:half@{PASSWORD}/crawls@db.example/crawls",
        f"mongodb://crawler:{PASSWORD}@db.example:port/crawls",
        f"mongodb://crawler:{PASSWORD}@/crawls",
        f"mongodb://crawler:{PASSWORD}/x@db.example/crawls",
        f"mongodb://crawler:{PASSWORD}@db.example/one.two",
        f"mongodb://crawler:{PASSWORD}@db.example/{'x' * 64}",
        f"mongodb://crawler:{PASSWORD}@127.0.0.1/crawls?tlsCAFile=/no/such/file&tls=true",
        f"mongodb://crawler:{PASSWORD}@127.0.0.1/crawls?authMechanism=magic",
        f"mongodb://crawler:{PASSWORD}@127.0.0.1/crawls?timeouts=5",
        f"postgresql://crawler:{PASSWORD}@db.example/crawls",
        f"mongodb://crawler:{PASSWORD}@[::1/crawls",
    ],
)
async def test_an_address_that_cannot_be_read(address: str) -> None:
    assert type(await refusal(address)) is Misconfigured


def test_a_project_whose_name_is_too_long() -> None:
    with pytest.raises(Misconfigured, match="shorter one"):
        read_address("mongodb://db.example/", "x" * 200)


def test_an_address_shows_no_password() -> None:
    address = read_address(f"mongodb+srv://crawler:{PASSWORD}@db.example/crawls?w=1", "gossamer_books")
    assert repr(address) == "Address(\"MongoDB at db.example, database 'crawls'\", prefix='gossamer_books')"
    assert read_address("mongodb://one,two:27018", "gossamer").database == "gossamer"


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("gossamer.backends.mongo")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pymongo", None)
    with pytest.raises(MissingExtra, match=r"pip install 'gossamer\[mongo\]'"):
        import gossamer.backends.mongo  # noqa: F401


# -- at work -------------------------------------------------------------------------------------------------------


async def test_a_server_that_goes_and_comes_back(lone_mongo: MongoServer, prefix: str) -> None:
    async with open_mongo_records(
        lone_mongo.address(), CLOCK, prefix=prefix, connect_within=timedelta(seconds=2)
    ) as store:
        await store.save([result(book("before"))])
        lone_mongo.stop()
        with pytest.raises(BackendUnavailable):
            await store.save([result(book("after"))])
        with pytest.raises(BackendUnavailable, match="cannot be reached"):
            await all_of(store)
        lone_mongo.start()
    async with open_mongo_records(lone_mongo.address(), CLOCK, prefix=prefix) as store:
        assert await store.save([result(book("after"))]) == [1]
        assert [record.key for record in await all_of(store)] == ["before", "after"]


async def test_a_connection_that_is_lost_in_the_middle_of_a_batch(lone_mongo: MongoServer, prefix: str) -> None:
    async with open_mongo_records(lone_mongo.address(), CLOCK, prefix=prefix) as store:
        lone_mongo.fail("insert", ".records", code=None, done=True)
        with pytest.raises(BackendUnavailable, match="can be repeated"):
            await store.save([result(book("a"), book("b"))])
    async with open_mongo_records(lone_mongo.address(), CLOCK, prefix=prefix) as store:
        await store.save([result(book("a"), book("b"))])
        assert [(record.key, record.version) for record in await all_of(store)] == [("a", 1), ("b", 1)]


async def test_what_the_server_refuses_is_told(lone_mongo: MongoServer, prefix: str) -> None:
    async with open_mongo_records(lone_mongo.address(), CLOCK, prefix=prefix) as store:
        for code, kind in (
            (13, BackendUnavailable),
            (50, BackendUnavailable),
            (14031, BackendUnavailable),
            (8, Permanent),
        ):
            lone_mongo.fail("insert", ".attempts", code=code)
            with pytest.raises(kind):
                await store.save([result(book())])
        lone_mongo.fail("find", code=43)
        with pytest.raises(BackendUnavailable):
            await all_of(store)


# -- every error of the driver -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (ServerSelectionTimeoutError("db: refused, Timeout: 30s, Topology: x"), BackendUnavailable, "refused). Start"),
        (NetworkTimeout("timed out"), BackendUnavailable, "does not answer"),
        (AutoReconnect("connection closed"), BackendUnavailable, "was lost"),
        (NotPrimaryError("not primary"), BackendUnavailable, "another primary"),
        (WaitQueueTimeoutError("queue"), BackendUnavailable, "busy"),
        (ConnectionResetError("reset"), BackendUnavailable, "was lost"),
        (TimeoutError(), BackendUnavailable, "does not answer"),
        (ExecutionTimeout("slow", 50), BackendUnavailable, "too long"),
        (CursorNotFound("gone", 43), BackendUnavailable, "Read it again"),
        (WriteConcernError("waiting", 64), BackendUnavailable, "majority"),
        (WTimeoutError("waiting", 64), BackendUnavailable, "majority"),
        (OperationFailure("full", 14031), BackendUnavailable, "Free some space"),
        (OperationFailure("stepped down", 189), BackendUnavailable, "can be repeated"),
        (OperationFailure("x", 9999, {"errorLabels": ["RetryableWriteError"]}), BackendUnavailable, "repeated"),
        (OperationFailure("bad auth", 8000), StoreRefused, "refused the login"),
        (OperationFailure("not authorized on crawls", 13), StoreRefused, "role readWrite"),
        (OperationFailure("no such command: 'update'", 59), StoreRefused, "MongoDB 4.4"),
        (OperationFailure("index exists", 85), BadState, "Drop it"),
        (OperationFailure("object too large", 10334), Unstorable, "cannot hold"),
        (OperationFailure("what else\nsecond line", 12345), Permanent, "error 12345: what else)"),
        (DocumentTooLarge("18 MB"), Unstorable, "16 MB"),
        (InvalidDocument("cannot encode object"), Unstorable, "cannot hold"),
        (OverflowError("8-byte ints"), Unstorable, "8-byte ints"),
        (ConfigurationError("wire version 3, needs 4.4"), StoreRefused, "4.4"),
        (InvalidURI(f"mongodb://crawler:{PASSWORD}@"), Misconfigured, "Write it like"),
        (BulkWriteError({"writeErrors": [{"code": 11000}, {"code": 13}]}), StoreRefused, "readWrite"),
        (BulkWriteError({"writeConcernErrors": [{"code": 64, "errmsg": "x"}]}), BackendUnavailable, "majority"),
        (BulkWriteError({"writeErrors": [{"code": 11000}]}), Permanent, "taken"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_an_error_of_the_driver_in_our_terms(error: Exception, kind: type[GossamerError], said: str) -> None:
    found = translate(error, PLACE)
    assert type(found) is kind
    assert said in str(found)
    assert PASSWORD not in str(found)
    assert "\n" not in str(found)


def errors_of_the_driver(kind: type[BaseException] = PyMongoError) -> Iterator[type[BaseException]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from errors_of_the_driver(narrower)


def test_every_error_of_the_driver_is_caught() -> None:
    raised = [one for one in vars(pymongo.errors).values() if isinstance(one, type) and issubclass(one, Exception)]
    assert len(raised) > 20
    for kind in {*raised, *errors_of_the_driver(), *errors_of_the_driver(BSONError)}:
        if kind.__module__.startswith(("pymongo", "bson")):
            assert issubclass(kind, DRIVER_ERRORS), kind

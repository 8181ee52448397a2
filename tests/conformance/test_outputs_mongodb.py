"""The output to MongoDB, by the official driver, to a stand-in that speaks the wire protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gossamer.backends.outputs.open import open_target
from gossamer.errors import BackendUnavailable, LeaseLost, Misconfigured
from gossamer.model.output import ErasedRecord
from gossamer.settings.output_tables import OutputTable
from gossamer.store.outputs.contract import Batch, Output, write_in_parts
from gossamer.store.outputs.plan import Plan
from gossamer.units import Secret
from tests.services.mongo_stand_in import MongoStandIn, mongo_stand_in

from .outputs import SCHEMA, record


@pytest.fixture
async def server() -> AsyncIterator[MongoStandIn]:
    async with mongo_stand_in() as one:
        yield one


def plan_of(server: MongoStandIn, **terms: Any) -> Plan:
    return Plan(OutputTable(url=Secret(f"mongodb://127.0.0.1:{server.port}/shop/products"), **terms))


def opened(plan: Plan) -> Output:
    return open_target(plan.table.url.reveal(), plan, id="test", root=Path())


def batch(plan: Plan, *records: Any, number: int = 1, fence: int = 1) -> Batch:
    changes = [change for one in records if (change := plan.change(one, deletes=True)) is not None]
    return Batch(number=number, fence=fence, changes=changes, schemas=[SCHEMA])


def titles(server: MongoStandIn) -> dict[str, str]:
    return {one["_key"]: one["title"] for one in server.collections.get("shop.products", {}).values()}


async def test_documents_are_the_records_and_an_older_version_never_replaces_a_newer_one(server: MongoStandIn) -> None:
    plan = plan_of(server, gone="delete")
    output = opened(plan)
    for _ in range(2):  # as after a crash
        assert await write_in_parts(output, batch(plan, record(1), record(2, version=2, title="new"), record(3))) == []
    assert await output.count() == 3

    assert (
        await write_in_parts(output, batch(plan, record(2, title="old"), record(3, version=2, gone=True), number=2))
        == []
    )

    await output.close()
    assert titles(server) == {"k1": "lamp", "k2": "new"}


async def test_a_process_that_was_replaced_writes_nothing_more(server: MongoStandIn) -> None:
    plan = plan_of(server)
    output = opened(plan)
    await write_in_parts(output, batch(plan, record(1), fence=2))

    with pytest.raises(LeaseLost):
        await write_in_parts(output, batch(plan, record(2), number=2, fence=1))

    await output.close()
    assert titles(server) == {"k1": "lamp"}


async def test_an_erased_record_has_no_document(server: MongoStandIn) -> None:
    plan = plan_of(server)
    output = opened(plan)
    await write_in_parts(output, batch(plan, record(1), record(2)))

    erase = plan.erase(ErasedRecord(type="Product", site="shop.example", key="k1", url="", data={}))
    await write_in_parts(output, Batch(number=2, fence=1, changes=[erase]))

    await output.close()
    assert titles(server) == {"k2": "lamp"}


async def test_a_document_that_is_too_large_is_refused_alone(server: MongoStandIn) -> None:
    plan = plan_of(server)
    output = opened(plan)
    some = [record(number) for number in range(7)]
    some[4].data["text"] = "x" * (17 << 20)

    [refused] = await write_in_parts(output, batch(plan, *some))

    await output.close()
    assert (refused.change.identity[2], "17,82" in refused.reason) == ("k4", True)
    assert set(titles(server)) == {f"k{number}" for number in range(7) if number != 4}


async def test_a_server_that_is_away_is_transient_and_no_message_shows_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gossamer.backends.outputs import mongodb

    monkeypatch.setattr(mongodb, "SELECT_WITHIN", 50)
    plan = Plan(OutputTable(url=Secret("mongodb://me:sesame@127.0.0.1:1/shop/products")))
    output = opened(plan)

    with pytest.raises(BackendUnavailable) as caught:
        await output.check()

    await output.close()
    assert "sesame" not in str(caught.value)


def test_an_address_without_a_collection_is_refused() -> None:
    with pytest.raises(Misconfigured, match="mongodb://host/database/collection"):
        opened(Plan(OutputTable(url=Secret("mongodb://host/shop"))))

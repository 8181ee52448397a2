"""Erasing over HTTP: ordered and looked at by admins, told to receivers of messages, and in the audit log without what
was erased."""

from __future__ import annotations

import re
from pathlib import Path

from gossamer.project.records.erasure import carry_out

from .receiver import Receiver
from .receiver import receiver as receiver
from .serving import serving
from .test_output_messages import following, store
from .test_output_routes import reached, settings_to


async def test_records_are_erased_on_order_and_the_receiver_is_told(tmp_path: Path, receiver: Receiver) -> None:
    async with serving(settings_to(receiver, tmp_path), worker=False) as door:
        await store(door.project, 3)
        async with following(door.project):
            await reached(door, "up-to-date")
        key = receiver.deliveries[0].told["data"]["changes"][0]["key"]

        counted = (await door.post("/api/v1/forget", {"record": key, "dry_run": True})).json()
        ordered = (await door.post("/api/v1/forget", {"record": key})).json()
        await carry_out(door.project)
        shown = (await door.get(f"/api/v1/forget/{ordered['id']}")).json()
        again = await door.post("/api/v1/forget", {"record": key})
        empty = await door.post("/api/v1/forget", {})
        audit = (await door.get("/api/v1/audit")).text

    assert (counted["state"], counted["records"]) == ("counted", 1)
    assert ordered["state"] == "open"
    assert (shown["state"], shown["records"], shown["by"]) == ("erased", 1, ordered["by"])
    assert (again.status_code, empty.status_code) == (404, 422)
    last = receiver.deliveries[-1].told["data"]["changes"]
    assert [(change["change"], change["key"], change["record"]) for change in last] == [("erase", key, None)]
    assert ordered["id"] in audit
    assert not re.search(rf"\b{key}\b", audit)


async def test_only_admins_may_erase(tmp_path: Path, receiver: Receiver) -> None:
    async with serving(settings_to(receiver, tmp_path), worker=False) as door:
        key = await door.new_key("reader", "jobs", "records")
        refused = [
            (await door.post("/api/v1/forget", {"record": "k1"}, key)).status_code,
            (await door.get("/api/v1/forget", key)).status_code,
        ]
    assert refused == [403, 403]

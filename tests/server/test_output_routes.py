"""Outputs over HTTP: looked at with the scope `jobs`, steered with `admin`, also while they run."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from gossamer.settings import load
from tests.patience import until

from .receiver import Receiver
from .receiver import receiver as receiver
from .serving import Served, serving
from .test_output_messages import following, store

ORDERS = ("check", "pause", "resume", "rewind")


def settings_to(receiver: Receiver, folder: Path) -> Any:
    words = f'[outputs.hook]\nurl = "{receiver.url}?token=s3cret"\nallow_private = true\n'
    (folder / "gossamer.toml").write_text(words, encoding="utf-8")
    return load(start=folder, environ={}, flags={"server.rate": "unlimited"})


async def reached(door: Served, state: str) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        found: dict[str, Any] = (await door.get("/api/v1/outputs/hook")).json()
        return found if found["state"] == state else None

    found = await until(look, f"the output is {state}")
    assert found is not None
    return found


def keys_of(receiver: Receiver) -> list[list[str]]:
    """The keys in each message."""
    return [[change["key"] for change in one.told["data"]["changes"]] for one in receiver.deliveries]


async def test_an_output_is_told_without_its_secrets(tmp_path: Path, receiver: Receiver) -> None:
    async with serving(settings_to(receiver, tmp_path), worker=False) as door:
        await store(door.project, 3)
        (listed,) = (await door.get("/api/v1/outputs")).json()
        metrics = (await door.get("/metrics")).text
        async with following(door.project):
            shown = await reached(door, "up-to-date")

    assert 'gossamer_output_lag_changes{output="hook"} 3.0' in metrics
    assert 'gossamer_output_dead_rows{output="hook"} 0.0' in metrics
    assert (listed["name"], listed["state"], listed["lag"], listed["target"]) == ("hook", "behind", 3, receiver.url)
    assert (shown["lag"], shown["written"], shown["dead_rows"]) == (0, 3, [])
    assert "s3cret" not in str([listed, shown])


async def test_an_unknown_output_is_not_found(tmp_path: Path, receiver: Receiver) -> None:
    async with serving(settings_to(receiver, tmp_path), worker=False) as door:
        answers = [await door.get("/api/v1/outputs/shoop")]
        answers += [await door.post(f"/api/v1/outputs/shoop/{order}") for order in ORDERS]
        listed = (await door.get("/api/v1/outputs")).json()

    assert [answer.status_code for answer in answers] == [404] * 5
    assert all("There is no output 'shoop'" in answer.text for answer in answers)
    assert [one["name"] for one in listed] == ["hook"]


@pytest.mark.parametrize("order", ORDERS)
async def test_a_key_that_may_look_may_not_steer(order: str, tmp_path: Path, receiver: Receiver) -> None:
    async with serving(settings_to(receiver, tmp_path), worker=False) as door:
        key = await door.new_key("reader", "jobs")
        assert (await door.get("/api/v1/outputs", key=key)).status_code == 200
        assert (await door.post(f"/api/v1/outputs/hook/{order}", key=key)).status_code == 403

    assert receiver.deliveries == []


async def test_a_paused_output_writes_nothing_until_it_is_resumed(tmp_path: Path, receiver: Receiver) -> None:
    async with serving(settings_to(receiver, tmp_path), worker=False) as door:
        await store(door.project, 2)
        async with following(door.project):
            await reached(door, "up-to-date")
            paused = (await door.post("/api/v1/outputs/hook/pause")).json()
            await store(door.project, 5)
            waits = (await door.get("/api/v1/outputs/hook")).json()
            told = len(receiver.deliveries)
            resumed = (await door.post("/api/v1/outputs/hook/resume")).json()
            await reached(door, "up-to-date")

    assert (paused["state"], waits["state"], waits["lag"], told) == ("paused", "paused", 3, 1)
    assert resumed["state"] == "behind"
    assert keys_of(receiver) == [["b0", "b1"], ["b2", "b3", "b4"]]


async def test_a_rewind_while_it_runs_writes_every_record_again(tmp_path: Path, receiver: Receiver) -> None:
    wanted = [f"b{n}" for n in range(250)]
    async with serving(settings_to(receiver, tmp_path), worker=False) as door:
        await store(door.project, len(wanted))
        async with following(door.project):
            await receiver.has(1)
            rewound = await door.post("/api/v1/outputs/hook/rewind")
            await reached(door, "up-to-date")

    assert (rewound.status_code, rewound.json()["lag"]) == (201, 250)
    assert [key for keys in keys_of(receiver)[-3:] for key in keys] == wanted
    assert len(receiver.deliveries) > 3


async def test_a_check_of_a_target_that_refuses_is_told_with_its_reason(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [(410, {}), (503, {})]
    async with serving(settings_to(receiver, tmp_path), worker=False) as door:
        gone, away, good = [await door.post("/api/v1/outputs/hook/check") for _ in range(3)]

    assert ("410" in gone.text, "503" in away.text) == (True, True)
    assert (gone.status_code, away.status_code) == (422, 503)
    assert good.json() == {"name": "hook", "found": f"{receiver.url} accepted a message without records."}


async def test_no_answer_has_a_secret_of_the_address(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOSSAMER_SECRET_HOOK", "s3cret")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()[1]
    (tmp_path / "gossamer.toml").write_text(
        f'[outputs.hook]\nurl = "{receiver.url}/${{HOOK}}?token=${{HOOK}}"\nallow_private = true\n'
        f'[outputs.away]\nurl = "http://127.0.0.1:{nobody}/${{HOOK}}?token=${{HOOK}}"\nallow_private = true\n'
        '[outputs.kept]\nurl = "http://127.0.0.1:1/${HOOK}?token=${HOOK}"\n',
        encoding="utf-8",
    )
    receiver.answers = [(410, {}), (503, {})]
    async with serving(load(start=tmp_path, environ={}), worker=False) as door:
        told = [await door.post(f"/api/v1/outputs/{name}/check") for name in ("hook", "hook", "hook", "away", "kept")]

    assert [answer.status_code for answer in told] == [422, 503, 201, 503, 422]
    assert receiver.deliveries[0].path == "/in/s3cret?token=s3cret"
    assert "s3cret" not in " ".join(answer.text for answer in told)

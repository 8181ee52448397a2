"""The client: what it sends, what it tries again, what it raises."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from gossamer import client as client_module
from gossamer.client import AsyncClient, Client, ServerError

BEGUN = {"success": True, "job_id": "batch-1", "status": "queued", "url": "/api/v1/jobs/batch-1"}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "LOST_PAUSE", 0.0)
    monkeypatch.setattr(client_module, "LONGEST_PAUSE", 0.0)


def answering(
    *steps: httpx.Response | Exception,
) -> tuple[Callable[[httpx.Request], httpx.Response], list[httpx.Request]]:
    """A server that does these steps, one for each request, and the requests."""
    asked: list[httpx.Request] = []
    left = list(steps)

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        step = left.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    return answer, asked


async def test_a_write_whose_answer_was_lost_is_repeated_under_the_same_name() -> None:
    steps = [
        httpx.ReadError("lost"),
        httpx.Response(429, headers={"retry-after": "7"}),
        httpx.Response(202, json=BEGUN),
    ]
    answer, asked = answering(*steps)
    async with AsyncClient("http://there", "gos_a_b", transport=httpx.MockTransport(answer)) as client:
        assert (await client.batch(["https://shop.example/"])).job_id == "batch-1"

    assert len({request.headers["idempotency-key"] for request in asked}) == 1
    assert {request.headers["x-api-key"] for request in asked} == {"gos_a_b"}
    assert len(asked) == 3


def test_two_writes_have_two_names() -> None:
    answer, asked = answering(httpx.Response(202, json=BEGUN), httpx.Response(202, json=BEGUN))
    with Client("http://there/", "k", transport=httpx.MockTransport(answer)) as client:
        for _ in range(2):
            client.batch(["https://shop.example/"])

    assert len({request.headers["idempotency-key"] for request in asked}) == 2
    assert {str(request.url) for request in asked} == {"http://there/api/v1/batch"}


def test_a_server_that_is_not_there_is_given_up_after_a_few_tries() -> None:
    answer, asked = answering(*[httpx.ConnectError("refused")] * client_module.TRIES)
    with Client("http://there", "k", transport=httpx.MockTransport(answer)) as client, pytest.raises(ConnectionError):
        client.jobs()
    assert len(asked) == client_module.TRIES


def test_a_refusal_is_raised_with_its_code_and_not_repeated() -> None:
    error = {"success": False, "error": {"code": "invalid", "message": "No.", "details": {"field": "url"}}}
    answer, asked = answering(httpx.Response(422, json=error), httpx.Response(502, text="<html>"))
    with Client("http://there", "k", transport=httpx.MockTransport(answer)) as client:
        with pytest.raises(ServerError, match="No") as refused:
            client.scrape("x")
        assert (refused.value.status, refused.value.code, refused.value.details) == (422, "invalid", {"field": "url"})
        with pytest.raises(ServerError) as strange:
            client.why("https://shop.example/")
        assert (strange.value.status, strange.value.code) == (502, "unknown")
    assert len(asked) == 2


def _in_progress() -> httpx.Response:
    error = {"success": False, "error": {"code": "in_progress", "message": "Not yet.", "details": {}}}
    return httpx.Response(409, json=error, headers={"retry-after": "1"})


def test_a_write_that_is_still_worked_on_is_waited_for() -> None:
    waiting = [_in_progress() for _ in range(2 * client_module.TRIES)]
    answer, asked = answering(httpx.ReadError("lost"), *waiting, httpx.Response(202, json=BEGUN))
    with Client("http://there", "k", transport=httpx.MockTransport(answer)) as client:
        assert client.batch(["https://shop.example/"]).job_id == "batch-1"
    assert len({request.headers["idempotency-key"] for request in asked}) == 1


def test_a_write_is_waited_for_no_longer_than_its_timeout() -> None:
    answer, asked = answering(_in_progress())
    with Client("http://there", "k", transport=httpx.MockTransport(answer)) as client, pytest.raises(ServerError):
        client.scrape("https://shop.example/", timeout=0)
    assert len(asked) == 1


def test_an_id_cannot_lead_to_another_address() -> None:
    found: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        found.append(request.url.raw_path)
        return httpx.Response(404, json={"success": False, "error": {"code": "c", "message": "m", "details": {}}})

    with Client("http://there", "k", transport=httpx.MockTransport(answer)) as client:
        for id in ("../keys", "a/../../keys", "a?x=1", "a#b", "ä"):
            with pytest.raises(ServerError):
                client.job(id)

    assert all(path.startswith(b"/api/v1/jobs/") and path.count(b"/") == 4 for path in found)
    assert not any(b"?" in path for path in found)

"""Requests that carry something: methods, headers, cookies, bodies. The site's own list says what was sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gossamer.model.secret_text import SecretText
from gossamer.project.access import idempotency
from gossamer.project.access.keys import caller_of

from .mirror import HERE, Mirror, mirroring
from .serving import serving, settings_of

SCRAPE, BATCH = "/api/v1/scrape", "/api/v1/batch"


@pytest.fixture
async def site() -> AsyncIterator[Mirror]:
    async with mirroring() as opened:
        yield opened


def told(page: Any) -> dict[str, Any]:
    """What the site says that it was asked."""
    assert page.error is None
    return json.loads(page.data["html"])


async def test_a_request_arrives_as_it_was_asked_for(tmp_path: Path, site: Mirror) -> None:
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        by_json = await client.scrape(site.url("/a"), method="POST", json={"page": 2}, headers={"X-Own": "yes"})
        by_form = await client.scrape(site.url("/b"), method="PUT", form={"a": ["1", 2], "b": "ä"})
        by_text = await client.scrape(
            site.url("/c"), method="PATCH", body="<x/>", headers={"content-type": "text/xml"}, cookies={"c": "1"}
        )
        deleted = await client.scrape(site.url("/d"), method="DELETE")

    seen = [told(page) for page in (by_json, by_form, by_text, deleted)]
    assert [(one["method"], one["body"]) for one in seen] == [
        ("POST", '{"page":2}'),
        ("PUT", "a=1&a=2&b=%C3%A4"),
        ("PATCH", "<x/>"),
        ("DELETE", ""),
    ]
    assert [one["headers"].get("content-type") for one in seen[:3]] == [
        "application/json",
        "application/x-www-form-urlencoded",
        "text/xml",
    ]
    assert seen[0]["headers"]["x-own"] == "yes"
    assert seen[2]["headers"]["cookie"] == "c=1"
    assert [one["path"] for one in site.asked] == ["/a", "/b", "/c", "/d"]


async def test_requests_of_one_batch_that_differ_in_what_they_carry_have_answers_of_their_own(
    tmp_path: Path, site: Mirror
) -> None:
    url = site.url("/same")
    wanted: list[dict[str, Any]] = [
        {"url": url, "formats": ["html", "records"]},
        {"url": url, "headers": {"Authorization": "Bearer one"}},
        {"url": url, "headers": {"Authorization": "Bearer two"}},
        {"url": url, "cookies": {"a": "1"}},
        {"url": url, "method": "POST", "json": [1]},
        {"url": url, "method": "POST", "json": [2]},
    ]
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        job = await client.wait((await client.batch(requests=wanted)).job_id, every=0.05)
        records = [record async for record in client.records(job=job.id)]

    assert job.results is not None
    seen = [told(page) for page in job.results]
    assert [one["headers"].get("authorization") for one in seen] == [None, "Bearer one", "Bearer two", None, None, None]
    assert [one["headers"].get("cookie") for one in seen] == [None, None, None, "a=1", None, None]  # none of another's
    assert [one["body"] for one in seen] == ["", "", "", "", "[1]", "[2]"]
    assert len(site.asked) == 6
    assert len(records) == 1  # of the plain one


async def test_a_job_whose_request_carries_something_is_done_without_a_record(tmp_path: Path, site: Mirror) -> None:
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        await client.scrape(site.url("/a"))  # of this one a record is kept
        begun = await client.scrape_async(site.url("/b"), method="POST", json={"page": 2})
        job = await client.wait(begun.job_id, every=0.05)
        shown = (await door.get(f"/api/v1/jobs/{begun.job_id}")).json()

    assert job.status == "completed"
    assert (shown["outcome"], shown["in_words"]) == ("done", "done")


async def test_what_carries_something_is_sent_as_often_as_it_is_asked_for(tmp_path: Path, site: Mirror) -> None:
    url = site.url("/order")
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        pages = await asyncio.gather(*(client.scrape(url, method="POST", json={"n": 1}) for _ in range(2)))
        named = {"idempotency-key": "once"}
        body = {"url": url, "method": "POST", "json": {"n": 2}}
        answers = [await door.post(SCRAPE, body, headers=named) for _ in range(2)]

        # when the server was lost that had answered, and its answer with it
        caller = await caller_of(door.project, door.key)
        assert caller is not None
        await idempotency.forget(door.project, caller, "once")
        late = await door.post(SCRAPE, body, headers=named)

    assert len({page.meta.job_id for page in pages}) == 2
    assert {answer.json()["meta"]["job_id"] for answer in (*answers, late)} == {answers[0].json()["meta"]["job_id"]}
    assert [one["body"] for one in site.asked] == ['{"n":1}', '{"n":1}', '{"n":2}']


async def test_no_copy_answers_a_request_that_carries_something_nor_is_its_answer_a_copy_for_others(
    tmp_path: Path, site: Mirror
) -> None:
    url = site.url("/private")
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        mine = {"headers": {"Authorization": "Bearer mine"}}
        await client.scrape(url, **mine)
        plain = await client.scrape(url, max_age=3600)
        again = await client.scrape(url, max_age=3600, **mine)
        posted = [await client.scrape(url, max_age=3600, method="POST", body="x") for _ in range(2)]
        copy = await client.scrape(url, max_age=3600)

    assert [one.meta.from_cache for one in (plain, again, *posted, copy)] == [False, False, False, False, True]
    assert "authorization" not in told(plain)["headers"]
    assert told(copy) == told(plain)
    assert len(site.asked) == 5


@pytest.mark.parametrize(
    ("status", "method", "body"), [(303, "GET", ""), (302, "GET", ""), (307, "POST", "x"), (308, "POST", "x")]
)
async def test_redirects_are_followed_to_the_answer(
    tmp_path: Path, site: Mirror, status: int, method: str, body: str
) -> None:
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        page = await client.scrape(
            site.url(f"/to/{status}"), method="POST", body="x", headers={"Authorization": "Bearer me"}
        )

    assert page.url == site.url("/target")
    assert (told(page)["method"], told(page)["body"]) == (method, body)
    assert told(page)["headers"]["authorization"] == "Bearer me"
    assert page.meta.attempts == len(site.asked) == 2


async def test_another_origin_does_not_get_what_was_meant_for_the_first(tmp_path: Path, site: Mirror) -> None:
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        page = await client.scrape(
            site.url("/away"), headers={"Authorization": "Bearer me", "X-Kept": "1"}, cookies={"mine": "1"}
        )

    seen = told(page)
    assert page.url == site.url("/target", "site1")
    assert seen["headers"]["x-kept"] == "1"
    assert not {"authorization", "cookie"} & set(seen["headers"])


async def test_a_request_whose_fate_nobody_knows_is_not_repeated_and_told_as_such(tmp_path: Path, site: Mirror) -> None:
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        page = await client.scrape(site.url("/silent"), method="POST", body="pay")

    assert page.error is not None
    assert page.error.code == "uncertain"
    assert "whether it arrived is unknown" in page.error.message
    assert len(site.hits("/silent")) == 1


TEXT = "<secret CLUB 0>${CLUB}"
MARK = str.__str__(SecretText("CLUB_PASSWORD", lambda name: "hunter2"))
HEADERS = [
    {"Host": "inside.example"}, {"host": "x"}, {"Connection": "close"}, {"Keep-Alive": "1"}, {"TE": "trailers"},
    {"Transfer-Encoding": "chunked"}, {"Content-Length": "5"}, {"Upgrade": "h2c"}, {"Expect": "100-continue"},
    {"Proxy-Authorization": "Basic eA=="}, {"Proxy-Connection": "close"}, {"Trailer": "x"}, {"Cookie": "a=b"},
    {"X": "a\r\nY: b"}, {"X": "a\nb"}, {"X\r\nY": "b"}, {"X:": "b"}, {"": "b"}, {"Ü": "b"}, {"X": "a\x00"},
    {"X": 1}, {"X": None}, {"X": ["a"]}, {":authority": "x"}, {"X": "y" * 40_000}, {f"X{n}": "1" for n in range(101)},
    {"Authorization": MARK},
]  # fmt: skip
PAYLOADS: list[dict[str, Any]] = [
    {"body": "x"}, {"json": {}}, {"form": {"a": "b"}}, {"method": "HEAD", "body": "x"},
    {"method": "POST", "body": "x", "json": 1}, {"method": "POST", "body": "x", "form": {}},
    {"method": "POST", "body": 5},
    {"method": "POST", "body": "x" * 65_537}, {"method": "POST", "form": {"a": {}}},
    {"method": "POST", "form": [["a", "b"]]}, {"method": "POST", "json": {"password": MARK}},
    {"method": "POST", "form": {"password": MARK}}, {"method": "POST", "body": f"a{MARK}b"}, {"cookies": {"a": MARK}},
    {"method": "post"}, {"method": "TRACE"}, {"method": "CONNECT"}, {"method": "GET /x HTTP/1.1\r\n"}, {"method": ""},
    {"cookies": {"a": "b; c=d"}}, {"cookies": {"a b": "c"}}, {"cookies": "a=b"}, {"files": {"a": "b"}},
    {"auth": ["a", "b"]},
    {"stored": {"headers": [["X", [{"secret": "A"}]]]}}, {"params": {"a": "b"}}, {"kind": "parse"}, {"errback": "x"},
    {"retry_unsafe": True}, {"headers": {"X": "1"}, "formats": ["records"]}, {"method": "POST", "spider": "things"},
    {"headers": {"X": [{"secret": "CLUB_PASSWORD"}]}}, {"session": "member"},
]  # fmt: skip


async def test_what_may_not_be_sent_is_refused_and_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOSSAMER_SECRET_CLUB_PASSWORD", "hunter2")
    async with serving(settings_of(tmp_path, start="https://shop.example/"), worker=False) as door:
        for wish in (*({"headers": headers} for headers in HEADERS), *PAYLOADS):
            page = {"url": "https://shop.example/", **wish}
            for path, body in (("/api/v1/scrape/async", page), (BATCH, {"requests": [page]})):
                answer = await door.post(path, body)
                assert answer.status_code == 422, (wish, answer.text)
                assert "hunter2" not in answer.text
        jobs = await door.project.state.jobs.jobs()

    assert jobs == []


async def test_a_text_that_names_a_secret_as_settings_do_is_sent_as_it_stands(
    tmp_path: Path, site: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOSSAMER_SECRET_CLUB", "hunter2")
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        page = await client.scrape(site.url("/a"), method="POST", headers={"X": "${CLUB}"}, body=TEXT)

    assert told(page)["headers"]["x"] == "${CLUB}"
    assert told(page)["body"] == TEXT

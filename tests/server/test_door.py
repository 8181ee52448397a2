"""Who may do what over HTTP: keys, scopes, limits, hosts, repeated requests, the audit log."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gossamer.model.job import JobTerms
from gossamer.project.access.keys import LOCAL, audit_lines, list_keys, one_time_token, revoke_key
from gossamer.project.jobs import api_jobs, api_views
from gossamer.server import job_routes
from gossamer.server.app import ENDPOINTS
from gossamer.server.endpoint import PUBLIC
from gossamer.server.openapi import document
from tests.docs.manual import ROOT
from tests.patience import PATIENCE, until

from .serving import Served, serving, settings_of

PAGE = "https://shop.example/p/1"


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(settings_of(tmp_path), worker=False) as opened:
        yield opened


# -- keys ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", [one for one in ENDPOINTS if one.scope != PUBLIC], ids=lambda one: one.summary)
async def test_no_endpoint_answers_without_a_key(door: Served, endpoint) -> None:
    path = endpoint.path.replace("{job}", "a-1").replace("{key}", "a").replace("{id}", "1").replace("{name}", "a")
    for headers in ({}, {"x-api-key": "gos_abc_" + "x" * 40}, {"authorization": "Bearer nonsense"}):
        answer = await door.http.request(endpoint.method, path, headers=headers)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "key"
    assert (await door.http.request(endpoint.method, path, params={"key": door.key})).status_code == 401


async def test_a_key_opens_as_header_and_as_bearer(door: Served) -> None:
    for headers in ({"x-api-key": door.key}, {"authorization": f"Bearer {door.key}"}):
        assert (await door.http.get("/api/v1/version", headers=headers)).status_code == 200


async def test_a_key_is_made_shown_once_and_revoked(door: Served) -> None:
    made = await door.post("/api/v1/keys", {"name": "robot", "scopes": ["jobs"]})
    key = made.json()
    assert made.status_code == 201
    assert (await door.get("/api/v1/jobs", key["key"])).status_code == 200

    listed = await door.get("/api/v1/keys")
    assert key["key"].rpartition("_")[2] not in listed.text
    assert {one["name"]: one["state"] for one in listed.json()} == {"all": "active", "robot": "active"}

    assert (await door.call("DELETE", f"/api/v1/keys/{key['id']}")).json()["state"] == "revoked"
    assert (await door.get("/api/v1/jobs", key["key"])).status_code == 401
    assert (await door.call("DELETE", "/api/v1/keys/nobody")).status_code == 404


async def test_the_events_of_a_job_end_when_the_key_is_revoked(door: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    key = await door.new_key("watcher", "scrape")
    job = (await door.post("/api/v1/scrape/async", {"url": PAGE}, key)).json()["job_id"]
    watched, report = asyncio.Event(), job_routes.job_report

    async def noted(*given: Any) -> Any:
        watched.set()
        return await report(*given)

    monkeypatch.setattr(job_routes, "job_report", noted)
    monkeypatch.setattr(job_routes, "LOOK", 0.01)
    async with asyncio.timeout(PATIENCE):
        watching = asyncio.create_task(door.get(f"/api/v1/jobs/{job}/events", key))
        await watched.wait()
        await revoke_key(door.project, "watcher")
        answer = await watching

    assert answer.status_code == 200
    assert "event: end" not in answer.text  # the job goes on


async def test_a_key_expires(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        gone = await door.new_key("short", "jobs", expires=timedelta(microseconds=1))
        assert (await door.get("/api/v1/jobs", gone)).status_code == 401
        [_, short] = await list_keys(door.project)
        assert short.state == "expired"


async def test_when_a_key_was_used_is_remembered(door: Served) -> None:
    key = await door.new_key("robot", "jobs")
    assert (await list_keys(door.project))[1].used_at is None
    await door.get("/api/v1/jobs", key)
    assert (await list_keys(door.project))[1].used_at is not None


async def test_the_one_time_token_opens_a_door_without_keys(tmp_path: Path) -> None:
    text, token = one_time_token()
    async with serving(settings_of(tmp_path), worker=False, token=token) as door:
        assert (await door.get("/api/v1/keys", text)).status_code == 200
        assert (await door.get("/api/v1/keys", f"gos_{LOCAL}_{'x' * 43}")).status_code == 401


# -- scopes and owners ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", [one for one in ENDPOINTS if one.scope != PUBLIC], ids=lambda one: one.summary)
async def test_a_key_without_the_scope_is_refused(door: Served, endpoint) -> None:
    others = [
        scope for scope in ("scrape", "jobs", "records", "metrics") if scope not in (endpoint.scope, endpoint.or_scope)
    ]
    if endpoint.scope == "any":
        return
    key = await door.new_key("narrow", *others)
    path = endpoint.path.replace("{job}", "a-1").replace("{key}", "a").replace("{id}", "1").replace("{name}", "a")
    answer = await door.http.request(endpoint.method, path, headers={"x-api-key": key})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "scope"


async def test_what_one_key_made_another_does_not_see(door: Served) -> None:
    mine, other = (
        await door.new_key("mine", "scrape", "jobs", "records"),
        await door.new_key("other", "scrape", "jobs", "records"),
    )
    job = (await door.post("/api/v1/scrape/async", {"url": PAGE}, mine)).json()["job_id"]

    for method, path in (
        ("GET", f"/api/v1/jobs/{job}"),
        ("GET", f"/api/v1/jobs/{job}/results"),
        ("GET", f"/api/v1/jobs/{job}/records"),
        ("GET", f"/api/v1/jobs/{job}/events"),
        ("GET", f"/api/v1/jobs/{job}/figures"),
        ("GET", f"/api/v1/records?job={job}"),
        ("POST", f"/api/v1/jobs/{job}/pause"),
        ("POST", f"/api/v1/jobs/{job}/resume"),
        ("DELETE", f"/api/v1/jobs/{job}"),
    ):
        assert (await door.call(method, path, other)).status_code == 404, (method, path)
    assert (await door.get("/api/v1/jobs", other)).json() == {"jobs": [], "next": None}
    assert [one["id"] for one in (await door.get("/api/v1/jobs", mine)).json()["jobs"]] == [job]
    assert [one["id"] for one in (await door.get("/api/v1/jobs")).json()["jobs"]] == [job]
    assert (await door.call("DELETE", f"/api/v1/jobs/{job}", mine)).status_code == 200


async def test_jobs_of_the_project_are_seen_by_all_and_changed_by_the_admin(door: Served) -> None:
    job, _ = await door.project.state.jobs.open_job("books", JobTerms(), fresh=False)
    key = await door.new_key("reader", "jobs")
    assert (await door.get(f"/api/v1/jobs/{job.id}", key)).json()["name"] == "books"
    assert (await door.call("DELETE", f"/api/v1/jobs/{job.id}", key)).status_code == 404
    assert (await door.call("POST", f"/api/v1/jobs/{job.id}/pause")).json()["changed"]
    assert (await door.get(f"/api/v1/jobs/{job.id}", key)).json()["status"] == "paused"
    assert (await door.call("DELETE", f"/api/v1/jobs/{job.id}")).status_code == 200
    assert (await door.call("DELETE", f"/api/v1/jobs/{job.id}")).status_code == 409


async def test_jobs_are_listed_in_pages_and_by_status_without_reading_all(
    door: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, state = await door.new_key("lister", "jobs"), door.project.state
    owner = key.split("_")[1]
    ids = [(await state.jobs.open_job(f"j{n}", JobTerms(owner=owner), fresh=False))[0].id for n in range(6)][::-1]
    hidden, _ = await state.jobs.open_job("theirs", JobTerms(owner="them"), fresh=False)
    for ended in ids[2:]:
        await state.jobs.seal_seeds(ended)
        await state.jobs.close_job(ended, "source failed: it is gone" if ended == ids[5] else "done")
    monkeypatch.setattr(api_views, "JOBS_AT_ONCE", 2)
    monkeypatch.setattr(api_views, "LOOKED_AT", 4)
    monkeypatch.delattr(type(state.jobs), "jobs")  # whoever reads all jobs fails

    async def pages(key: str | None = None, **wanted: Any) -> list[list[str]]:
        found, after = [], None
        while True:
            answer = (await door.get("/api/v1/jobs", key, **wanted, **({"after": after} if after else {}))).json()
            found.append([job["id"] for job in answer["jobs"]])
            after = answer["next"]
            if after is None:
                return found

    assert await pages(key, limit=4) == [ids[:4], ids[4:]]
    assert await pages(key, limit=3) == [ids[:3], ids[3:]]  # and no empty page after the last
    assert await pages(key, status="queued", limit=1) == [[ids[0]], [ids[1]]]
    assert await pages(key, status="completed", limit=2) == [[ids[2], ids[3]], [ids[4]]]
    assert await pages(key, status="failed") == [[], [ids[5]]]  # four were looked at, then the rest
    assert await pages(limit=4) == [[hidden.id, *ids[:3]], ids[3:]]
    assert (await door.get("/api/v1/jobs", key, after="books")).status_code == 422


# -- limits --------------------------------------------------------------------------------------------------------


async def test_a_key_that_asks_too_often_is_told_when_to_come_again(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        slow = await door.new_key("slow", "jobs", rate=0.0001)
        answers = [await door.get("/api/v1/jobs", slow) for _ in range(3)]
        others = await door.get("/api/v1/jobs")

    assert [one.status_code for one in answers] == [200, 429, 429]
    assert int(answers[1].headers["retry-after"]) > 1000
    assert others.status_code == 200


async def test_a_key_has_so_many_requests_under_way_and_all_are_given_back(door: Served, monkeypatch) -> None:
    monkeypatch.setattr("gossamer.server.door.MOST_AT_ONCE", 3)
    begun = (await door.post("/api/v1/scrape/async", {"url": PAGE})).json()["job_id"]
    async with asyncio.TaskGroup() as group:
        # given streams that go on until their job ends
        streams = [group.create_task(door.get(f"/api/v1/jobs/{begun}/events")) for _ in range(3)]

        # when they are all under way, then the next request is refused, and those of other keys are not
        async def refusal() -> Any:
            answer = await door.get("/api/v1/version")
            return None if answer.status_code == 200 else answer

        refused = await until(refusal)
        assert refused is not None
        other = await door.new_key("other", "jobs", "admin")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "at_once")
        assert (await door.call("DELETE", f"/api/v1/jobs/{begun}", other)).status_code == 200

    # and when they have ended, there is room again
    assert [stream.result().text.count("event: end") for stream in streams] == [1, 1, 1]
    for _ in range(10):
        assert (await door.get("/api/v1/version")).status_code == 200


async def test_a_key_has_so_many_jobs_open_and_no_more(door: Served) -> None:
    key = await door.new_key("few", "scrape", "jobs", open_jobs=2)
    answers = [await door.post("/api/v1/scrape/async", {"url": f"{PAGE}{n}"}, key) for n in (1, 2, 3, 1)]

    assert [one.status_code for one in answers] == [202, 202, 429, 202]
    assert answers[3].json()["job_id"] == answers[0].json()["job_id"]
    assert "retry-after" in answers[2].headers
    assert (await door.post("/api/v1/scrape/async", {"url": f"{PAGE}3"})).status_code == 202


async def test_the_bodies_of_a_job_too_many_are_not_stored(door: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    stored, usual = [], api_jobs.archive_long_bodies

    async def store(candidates: Any, *more: Any) -> Any:
        stored.extend(one.url for one in candidates)
        return await usual(candidates, *more)

    monkeypatch.setattr(api_jobs, "archive_long_bodies", store)
    key = await door.new_key("one", "scrape", "jobs", open_jobs=1)
    answers = [await door.post("/api/v1/scrape/async", {"url": f"{PAGE}{n}"}, key) for n in (1, 2)]

    assert [one.status_code for one in answers] == [202, 429]
    assert stored == [f"{PAGE}1"]


async def test_a_crawl_has_so_many_pages_and_no_more(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path, server__crawl_limit=50), worker=False) as door:
        limits = []
        for wish in ({}, {"limit": 10}, {"limit": 10_000}):
            job = (await door.post("/api/v1/crawls", {"url": PAGE, **wish})).json()["job_id"]
            limits.append((await door.get(f"/api/v1/jobs/{job}")).json()["limit"])
            await door.call("DELETE", f"/api/v1/jobs/{job}")

    assert limits == [50, 10, 50]


# -- hosts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil", "[::2]:80", "127.0.0.2"]
)
async def test_another_host_is_not_answered(door: Served, host: str) -> None:
    for path in ("/healthz", "/healthz/", "/api/v1/version", "/nothing"):
        for method in ("GET", "PUT"):
            answer = await door.http.request(method, path, headers={"host": host, "x-api-key": door.key})
            assert answer.status_code == 421, (method, path)


async def test_no_redirect_is_sent_for_a_slash_too_many(door: Served) -> None:
    assert (await door.http.get("/healthz/")).status_code == 404


async def test_hosts_of_the_settings_are_answered(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False, hosts=["Scraper.example"]) as door:
        for host in ("scraper.example:8420", "localhost", "[::1]:8420", "127.0.0.1:8420"):
            assert (await door.http.get("/healthz", headers={"host": host})).status_code == 200


# -- repeated requests ---------------------------------------------------------------------------------------------


async def test_a_repeated_request_gets_the_same_answer_and_does_nothing_twice(door: Served) -> None:
    name = {"idempotency-key": "k1"}
    first, again = [await door.post("/api/v1/batch", {"urls": [PAGE]}, headers=name) for _ in range(2)]
    other = await door.post("/api/v1/batch", {"urls": [f"{PAGE}0"]}, headers=name)

    assert (first.status_code, again.status_code, other.status_code) == (202, 202, 409)
    assert first.json() == again.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert other.json()["error"]["code"] == "key_reused"
    assert len(await door.project.state.jobs.jobs()) == 1


async def test_a_new_key_is_not_stored_for_a_request_that_is_repeated(door: Served) -> None:
    wish, name = {"name": "once", "scopes": ["jobs"]}, {"idempotency-key": "k1"}
    first = await door.post("/api/v1/keys", wish, headers=name)
    again = await door.post("/api/v1/keys", wish, headers=name)
    made = await list_keys(door.project)
    stored = await door.project.state.answers.claim(f"{made[0].id}:{sha256(b'k1').hexdigest()}", "", 1.0)

    assert first.json()["key"].startswith("gos_")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "answer_not_kept")
    assert stored is not None
    assert (stored.status, stored.body) == (201, b"")
    assert [key.name for key in made] == ["all", "once"]


async def test_the_names_of_requests_belong_to_their_key(door: Served) -> None:
    keys = [await door.new_key(name, "scrape") for name in ("a", "b")]
    jobs = [
        (await door.post("/api/v1/scrape/async", {"url": PAGE}, key, headers={"idempotency-key": "same"})).json()
        for key in keys
    ]
    assert jobs[0]["job_id"] != jobs[1]["job_id"]


async def test_of_two_at_once_one_is_worked_on(door: Served) -> None:
    answers = await asyncio.gather(
        *(door.post("/api/v1/batch", {"urls": [PAGE]}, headers={"idempotency-key": "at-once"}) for _ in range(8))
    )
    assert {one.status_code for one in answers} <= {202, 409}
    assert len({one.json()["job_id"] for one in answers if one.status_code == 202}) == 1
    assert len(await door.project.state.jobs.jobs()) == 1


@pytest.mark.parametrize("name", ["", "x" * 256, "ümlaut"])
async def test_a_name_that_cannot_be_one_is_refused(door: Served, name: str) -> None:
    answer = await door.post("/api/v1/batch", {"urls": [PAGE]}, headers={"idempotency-key": name.encode()})
    assert answer.status_code == 422
    assert await door.project.state.jobs.jobs() == []


# -- audit ---------------------------------------------------------------------------------------------------------


async def test_every_write_is_in_the_audit_log_and_no_secret(door: Served) -> None:
    job = (await door.post("/api/v1/scrape/async", {"url": PAGE})).json()["job_id"]
    await door.call("DELETE", f"/api/v1/jobs/{job}")
    await door.post("/api/v1/batch", {"urls": []})
    made = (await door.post("/api/v1/keys", {"name": "robot", "scopes": ["jobs"]})).json()
    await door.get("/api/v1/jobs")
    for method in ("GET", "POST"):  # to look is no write, and not noted
        assert (await door.call(method, "/api/v1/keys", made["key"])).status_code == 403

    lines = await audit_lines(door.project)
    assert [(line.action, line.target, line.status, line.name) for line in lines] == [
        ("POST /api/v1/keys", "", 403, "robot"),
        ("POST /api/v1/keys", made["id"], 201, "all"),
        ("POST /api/v1/batch", "", 422, "all"),
        (f"DELETE /api/v1/jobs/{job}", job, 200, "all"),
        ("POST /api/v1/scrape/async", job, 202, "all"),
    ]
    shown = await door.get("/api/v1/audit", limit=2)
    assert [line["status"] for line in shown.json()] == [403, 201]
    assert made["key"].rpartition("_")[2] not in shown.text


async def test_a_revoked_key_stays_in_the_audit_log(door: Served) -> None:
    key = await door.new_key("gone", "scrape")
    await door.post("/api/v1/scrape/async", {"url": PAGE}, key)
    revoked = await revoke_key(door.project, "gone")

    assert [line.name for line in await audit_lines(door.project, key=revoked.id)] == ["gone"]


# -- health and the document ---------------------------------------------------------------------------------------


async def test_health_needs_no_key(door: Served) -> None:
    assert (await door.http.get("/healthz")).json() == {"status": "ok"}
    assert (await door.http.get("/readyz")).json() == {"status": "ready"}


async def test_the_document_names_every_endpoint_and_needs_nothing_from_outside(door: Served) -> None:
    found = (await door.http.get("/openapi.json")).json()
    for endpoint in ENDPOINTS:
        for path in (endpoint.path, *endpoint.aliases):
            operation = found["paths"][path][endpoint.method.lower()]
            assert operation["summary"]
            if endpoint.body is not None:
                assert operation["requestBody"]["content"]["application/json"]["example"], path
    ids = [one["operationId"] for path in found["paths"].values() for one in path.values()]
    assert len(set(ids)) == len(ids)
    names = set(found["components"]["schemas"])
    assert set(_refs(found)) <= {f"#/components/schemas/{name}" for name in names}
    assert document(ENDPOINTS)["openapi"] == "3.1.0"


async def test_the_manual_names_every_endpoint() -> None:
    manual = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`(GET|POST|DELETE) (/[^`]*)`", manual))
    usual = {(one.method, path) for one in ENDPOINTS for path in (one.path, *one.aliases)}
    aliases = {(one.method, path) for one in ENDPOINTS for path in one.aliases}
    assert usual - told - aliases == set()
    assert told - usual == {("GET", "/openapi.json")}


def _refs(value: object):
    if isinstance(value, dict):
        for name, held in value.items():
            if name == "$ref":
                yield held
            else:
                yield from _refs(held)
    elif isinstance(value, list):
        for held in value:
            yield from _refs(held)


async def test_the_examples_of_the_document_are_taken_by_the_server(door: Served) -> None:
    taken = 0
    for endpoint in ENDPOINTS:
        example = endpoint.example
        if (
            example is not None
            and "{" not in endpoint.path
            and example.get("spider") != "books"
            and "job" not in example
            and not endpoint.path.endswith(("/drain", "/restart", "/forget", "/alert-test"))  # name what is not there
        ):
            answer = await door.call(endpoint.method, endpoint.path, json=example)
            assert answer.status_code in (200, 201, 202, 503), (endpoint.path, answer.text)
            taken += 1
    assert taken >= 5

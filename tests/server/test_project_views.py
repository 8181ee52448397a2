"""The rest of the project over HTTP: dead letters, schedules, workers, settings, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gossamer.project.open import Project
from gossamer.server import project_routes
from tests.sites.running import Park, park

from .serving import Served, serving, settings_of

HERE = {"fetch__allow_hosts": ["site0.localhost"]}


@pytest.fixture(scope="module")
def site() -> Iterator[Park]:
    with park(pages=30) as opened:
        yield opened


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(settings_of(tmp_path), worker=False) as opened:
        yield opened


# -- dead letters --------------------------------------------------------------------------------------------------


async def test_dead_letters_are_listed_shown_counted_replayed_and_purged(tmp_path: Path, site: Park) -> None:
    gone = [site.url(path=f"/nothing/{n}") for n in range(3)]
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        job = (await client.wait((await client.batch(gone)).job_id, every=0.05)).id
        listed = (await door.get("/api/v1/dead-letters", job=job)).json()
        shown = (await door.get("/api/v1/dead-letters/show", target=gone[0])).json()
        raw = await door.get("/api/v1/dead-letters/raw", target=gone[0])
        counted = await door.post("/api/v1/dead-letters/replay", {"job": job, "dry_run": True})
        assert (await door.get("/api/v1/dead-letters", job=job)).json()["total"] == 3
        replayed = await door.post("/api/v1/dead-letters/replay", {"target": gone[0]})
        await client.wait(job, every=0.05)
        purged = await door.post("/api/v1/dead-letters/purge", {"job": job})
        left = (await door.get("/api/v1/dead-letters", job=job)).json()

    assert (listed["total"], listed["by_reason"]) == (3, {"http-404": 3})
    assert [one["url"] for one in shown] == [gone[0]]
    assert raw.headers["content-disposition"].startswith("attachment")
    assert raw.headers["x-content-type-options"] == "nosniff"
    assert counted.json() == {"dead_letters": 3, "dry_run": True, "replayed": None}
    assert replayed.json()["replayed"]["queued"] == {job: 1}
    assert len(site.hits(path="/nothing/0")) == 2
    assert purged.json()["dead_letters"] == 3
    assert left["total"] == 0


async def test_letters_of_other_keys_are_neither_seen_nor_touched(tmp_path: Path, site: Park) -> None:
    gone = site.url(path="/nothing/9")
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        job = (await client.wait((await client.batch([gone])).job_id, every=0.05)).id
        other = await door.new_key("other", "jobs")
        for method, path in (
            ("GET", f"/api/v1/dead-letters?job={job}"),
            ("GET", f"/api/v1/dead-letters/show?target={gone}"),
            ("GET", f"/api/v1/dead-letters/raw?target={gone}"),
        ):
            assert (await door.call(method, path, other)).status_code == 404, path
        for verb in ("replay", "purge"):
            for wish, status in (({"job": job}, 404), ({"target": gone}, 403), ({"all": True}, 403)):
                assert (await door.post(f"/api/v1/dead-letters/{verb}", wish, other)).status_code == status
            own = (await door.post("/api/v1/crawls", {"url": site.url()}, other)).json()["job_id"]
            for target in (gone, "1"):  # the address and the id of a letter of the other job
                answer = await door.post(f"/api/v1/dead-letters/{verb}", {"job": own, "target": target}, other)
                assert "dead letter" in answer.json()["error"]["message"]
                assert job not in answer.text
        assert (await door.call("GET", "/api/v1/dead-letters", other)).status_code == 403
        assert (await door.get("/api/v1/dead-letters", job=job)).json()["total"] == 1


async def test_all_letters_are_meant_only_when_that_is_said(door: Served) -> None:
    assert (await door.post("/api/v1/dead-letters/purge", {})).status_code == 422
    assert (await door.post("/api/v1/dead-letters/purge", {"all": True})).json()["dead_letters"] == 0


# -- schedules -----------------------------------------------------------------------------------------------------

NIGHTLY = {"name": "nightly", "spider": "https://shop.example/", "cron": "0 3 * * *", "limit": 10}


async def test_a_schedule_is_added_shown_paused_run_and_removed(door: Served) -> None:
    added = await door.post("/api/v1/schedules", NIGHTLY)
    assert added.status_code == 201, added.text
    listed = (await door.get("/api/v1/schedules", ticks=2)).json()
    assert [one["name"] for one in listed["schedules"]] == ["nightly"]
    assert len(listed["ticks"]) == 2

    assert (await door.post("/api/v1/schedules", NIGHTLY)).status_code == 422
    assert (await door.post("/api/v1/schedules", {**NIGHTLY, "limit": 5, "replace": True})).status_code == 201
    assert (await door.get("/api/v1/schedules/nightly")).json()["limit"] == 5
    assert (await door.post("/api/v1/schedules/nightly/pause")).json()["changed"]
    assert (await door.post("/api/v1/schedules/nightly/resume")).json()["changed"]
    job = (await door.post("/api/v1/schedules/nightly/run")).json()["job"]
    assert (await door.get(f"/api/v1/jobs/{job}")).json()["schedule"] == "nightly"
    assert (await door.call("DELETE", "/api/v1/schedules/nightly")).json()["changed"]
    assert (await door.get("/api/v1/schedules/nightly")).status_code == 404
    assert (await door.post("/api/v1/schedules/nightly/run")).status_code == 404


async def test_a_schedule_says_what_a_run_must_come_to(door: Served) -> None:
    expected = {"min_records": 100, "min_pages": 10, "max_dead_share": 0.1, "max_change": 0.5}
    assert (await door.post("/api/v1/schedules", {**NIGHTLY, **expected})).status_code == 201
    (progress,) = await door.project.state.schedules.schedules()

    assert msgspec.structs.asdict(progress.schedule.expected) == expected
    for wrong in ({"min_records": -1}, {"max_dead_share": 2}, {"max_change": "much"}, {"min_pages": 1.5}):
        answer = await door.post("/api/v1/schedules", {**NIGHTLY, **wrong, "replace": True})
        assert answer.status_code == 422, wrong


async def test_what_only_the_owner_of_the_machine_may_say_is_refused(door: Served) -> None:
    for wish in (
        {"command": ["cat", "/etc/passwd"]}, {"file": "/etc/passwd"}, {"shell": True}, {"spider": "spiders/things.py"},
        {"spider": "../x.toml"}, {"spider": "http://127.0.0.1/"}, {"urls": ["http://localhost/{1..3}"]},
        {"urls": ["http://{10..12}.0.0.1/"]}, {"urls": ["http://10.0.0.{1..3}/"]}, {"sitemap": "http://[::1]/s.xml"},
        {"feed": "http://169.254.169.254/"}, {"cron": "nonsense"}, {"every": "1h"}, {"name": ""}, {"name": "a/b"},
        {"owner": "me"},
        {"overlap": "maybe"}, {"priority": 10**9}, {"zone": "Nowhere/Land"}, {"spider": "no-such-spider"},
    ):  # fmt: skip
        answer = await door.post("/api/v1/schedules", {**NIGHTLY, **wish})
        assert answer.status_code == 422, (wish, answer.text)
        assert str(door.project.settings.root) not in answer.text
    assert (await door.get("/api/v1/schedules")).json()["schedules"] == []


async def test_a_project_that_may_go_inside_takes_no_addresses_of_schedules(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path, fetch__allow_private=True), worker=False) as door:
        assert (await door.post("/api/v1/schedules", NIGHTLY)).status_code == 422


# -- the project ---------------------------------------------------------------------------------------------------


async def test_workers_spiders_routes_proxies_quality_and_settings_are_told(tmp_path: Path, site: Park) -> None:
    vendor = {"preset": "scraperapi", "key": "hunter2"}
    settings = settings_of(tmp_path, start=site.url(), managed__shop=vendor, **HERE)
    async with serving(settings) as door, door.client() as client:
        job = await client.wait((await client.crawl(spider="things", limit=5)).job_id, every=0.05)
        assert job.status == "completed"
        assert [one["state"] for one in (await door.get("/api/v1/workers")).json()] == ["idle"]
        assert [one["name"] for one in (await door.get("/api/v1/spiders")).json()] == ["things"]
        assert (await door.get("/api/v1/routes")).json()["learned"] == []
        assert (await door.get("/api/v1/proxies")).json() == []
        assert {one["spider"] for one in (await door.get("/api/v1/quality")).json()} == {"things"}
        told = await door.get("/api/v1/settings")
    assert told.json()["server.port"]["value"] == 8420
    assert "hunter2" not in told.text


async def test_the_number_of_workers_that_are_wanted_is_told_to_keys_for_metrics(tmp_path: Path, site: Park) -> None:
    async with serving(settings_of(tmp_path, **HERE), worker=False) as door, door.client() as client:
        watcher = await door.new_key("watcher", "metrics")
        idle = (await door.get("/api/v1/scaling", watcher)).json()
        await client.batch([site.url(path=f"/page/{n}") for n in range(20)])
        busy = (await door.get("/api/v1/scaling", watcher)).json()
        shown = (await door.get("/metrics", watcher)).text
        assert (await door.get("/api/v1/scaling", await door.new_key("other", "records"))).status_code == 403

    assert (idle["workers_wanted"], idle["lanes"]["browser"]["workers_wanted"]) == (0, 0)
    assert (busy["workers_wanted"], busy["chores"], busy["lanes"]["http"]["ready"]) == (1, 0, 20)
    assert 'gossamer_workers_wanted{lane="http"} 1.0' in shown


async def test_metrics_say_what_the_state_says(tmp_path: Path, site: Park) -> None:
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        await client.wait((await client.batch([site.url(path="/nothing/metric")])).job_id, every=0.05)
        waiting = (await client.batch([site.url(path="/page/1")])).job_id
        await client.pause(waiting)
        answer = await door.get("/metrics", await door.new_key("watcher", "metrics"))

    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert found["gossamer_dead_letters", "http-404"] == 1
    assert sum(value for (name, *_), value in found.items() if name == "gossamer_workers") == 1
    assert found["gossamer_schedule_lag_seconds",] == 0
    assert found["gossamer_build_info", "0.1.0"] == 1
    assert found["gossamer_running_jobs",] <= 1


async def test_figures_are_put_together_once_for_all_who_ask_meanwhile(
    door: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Project] = []
    all_ask = asyncio.Event()

    async def exposition(project: Project) -> bytes:
        begun.append(project)
        await all_ask.wait()
        return b"gossamer_build_info 1\n"

    monkeypatch.setattr(project_routes, "exposition", exposition)
    shared, call = project_routes.SharedMetrics(), SimpleNamespace(project=door.project)
    asking = [asyncio.create_task(shared.answer(call)) for _ in range(20)]  # type: ignore[arg-type]
    await asyncio.sleep(0)  # each of them waits now
    asking[0].cancel()  # whoever leaves takes nothing from the others
    all_ask.set()
    answers = await asyncio.gather(*asking[1:])

    assert [answer.body for answer in answers] == [b"gossamer_build_info 1\n"] * 19
    assert len(begun) == 1
    await shared.answer(call)  # type: ignore[arg-type]
    assert len(begun) == 2

"""`GET /metrics`: counters that agree with the crawled site's own log, gauges of the stores, a store that is away."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gossamer.errors import BackendUnavailable
from gossamer.frontier.contract import JobTerms
from gossamer.project.open import Project
from gossamer.project.records.metrics import exposition
from gossamer.server import project_routes
from tests.conformance.frontiers import candidate
from tests.docs.manual import ROOT, quoted, read, rows_under
from tests.patience import PATIENCE
from tests.sites.running import Park, park

from .serving import Served, serving, settings_of

HERE = {"fetch__allow_hosts": ["site0.localhost"]}
COUNTERS = (
    "gossamer_pages", "gossamer_domain_pages", "gossamer_fetch_seconds", "gossamer_errors", "gossamer_domain_errors",
    "gossamer_items", "gossamer_credits", "gossamer_received_bytes",
)  # fmt: skip
GAUGES = (
    "gossamer_queue_tasks", "gossamer_queue_oldest_ready_seconds", "gossamer_workers", "gossamer_dead_letters",
    "gossamer_quality_score", "gossamer_budget_remaining_ratio", "gossamer_schedule_lag_seconds",
    "gossamer_callbacks_pending", "gossamer_build_info", "gossamer_store_up", "gossamer_results_waiting",
    "gossamer_running_jobs", "gossamer_running_jobs_pages", "gossamer_ready_tasks",
    "gossamer_runnable_pages_per_second", "gossamer_workers_wanted", "gossamer_alert_firing",
    "gossamer_output_lag_changes", "gossamer_output_dead_rows",
)  # fmt: skip


BAD_FIGURES: list[dict[str, float]] = [{"since": 5, "until": 4}, {"step": 59}, {"since": -1}, {"since": 1, "step": 60}]


@pytest.fixture(scope="module")
def site() -> Iterator[Park]:
    with park(pages=30) as opened:
        yield opened


Found = dict[tuple[str, ...], float]


async def metrics_of(door: Served) -> tuple[str, Found]:
    """The text, and its samples by name and labels."""
    answer = await door.get("/metrics")
    assert answer.status_code == 200, answer.text
    return answer.text, {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def families_of(text: str) -> set[str]:
    return {family.name for family in text_string_to_metric_families(text)}


async def test_counters_agree_with_the_log_of_the_site(tmp_path: Path, site: Park) -> None:
    # A name of its own: a crawler of another test, whose site is gone, may still ask for its pages at this port.
    settings = settings_of(tmp_path, start=site.url(), fetch__user_agent="Counted/1.0", **HERE)
    async with serving(settings) as door, door.client() as client:
        crawl = await client.wait((await client.crawl(spider="things")).job_id, every=0.05)
        await client.wait((await client.batch([site.url(path=f"/nothing/{n}") for n in range(3)])).job_id, every=0.05)
        text, found = await metrics_of(door)
        last_hour, of_site = await client.figures(), await client.figures(domain="site0.localhost", step=600)
        ever = await client.total_figures()
        of_job = (await door.get(f"/api/v1/jobs/{crawl.id}/figures")).json()
        bad = [(await door.get("/api/v1/figures", **wanted)).status_code for wanted in BAD_FIGURES]

    assert last_hour.whole.pages == ever.outcomes() == {"done": 30, "dead": 3}
    assert sum(sum(point.pages.values()) for point in last_hour.points) == 33
    assert (last_hour.step, of_site.step) == (60, 600)
    assert (of_site.whole.pages, of_site.whole.routes) == ({"done": 30, "dead": 3}, {})
    assert (of_job["job"], of_job["whole"]["pages"]) == (crawl.id, {"done": 30})
    assert bad == [422] * len(BAD_FIGURES)
    hits = [hit for hit in site.hits() if hit.user_agent == "Counted/1.0"]
    times = Counter(hit.path for hit in hits)
    assert [hit for hit in hits if times[hit.path] > 1] == []  # whichever page is fetched twice, and when
    statuses = Counter(hit.status for hit in hits)
    assert (statuses[200], statuses[404]) == (30, 3)
    assert found["gossamer_pages_total", "outcome=done", "route=direct"] == 30
    assert found["gossamer_pages_total", "outcome=dead", "route=direct"] == 3
    assert found["gossamer_domain_pages_total", "domain=site0.localhost", "outcome=done"] == 30
    assert found["gossamer_errors_total", "reason=http-404"] == 3
    assert found["gossamer_domain_errors_total", "domain=site0.localhost"] == 3
    assert found["gossamer_fetch_seconds_count", "route=direct"] == 33
    assert found["gossamer_fetch_seconds_bucket", "le=+Inf", "route=direct"] == 33
    assert found["gossamer_items_total",] == 30
    assert found["gossamer_received_bytes_total", "pool=direct"] > 33 * 100
    assert found["gossamer_dead_letters", "reason=http-404"] == 3
    assert found["gossamer_store_up", "store=records"] == found["gossamer_store_up", "store=state"] == 1
    assert found["gossamer_queue_tasks", "lane=any", "state=queued"] == 0
    assert families_of(text) == {*COUNTERS, *GAUGES}
    told = rows_under(read(ROOT / "docs" / "monitoring.md"), "name", "labels", "meaning")
    assert {quoted(row[0])[0].removesuffix("_total") for row in told} == {*COUNTERS, *GAUGES}


async def test_work_that_no_worker_takes_is_seen(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        state = door.project.state
        job, _ = await state.jobs.open_job("left", JobTerms(), fresh=True)
        await state.frontier.add(job.id, [candidate(f"https://shop.example/{n}") for n in (1, 2)])
        await state.frontier.add(job.id, [candidate("https://shop.example/shown", fetcher="browser")])
        _, found = await metrics_of(door)

    assert found["gossamer_queue_tasks", "lane=any", "state=queued"] == 2
    assert found["gossamer_queue_tasks", "lane=browser", "state=queued"] == 1
    assert found["gossamer_queue_oldest_ready_seconds",] > 0
    assert found["gossamer_running_jobs",] == 1


@pytest.mark.parametrize(("away", "there"), [("records", "state"), ("state", "records")])
async def test_a_store_that_is_away_takes_only_its_own_figures_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: str, there: str
) -> None:
    async def gone(*_: object, **__: object) -> None:
        raise BackendUnavailable("Nobody listens at secret.example.")

    async with serving(settings_of(tmp_path), worker=False) as door:
        if away == "records":
            monkeypatch.setattr(type(door.project.records), "total_figures", gone)
        else:
            monkeypatch.setattr(type(door.project.state.jobs), "running_jobs", gone)
        text, found = await metrics_of(door)

    assert found["gossamer_store_up", f"store={away}"] == 0
    assert found["gossamer_store_up", f"store={there}"] == 1
    assert ("gossamer_pages" in families_of(text)) == (there == "records")
    assert ("gossamer_workers" in families_of(text)) == (there == "state")
    assert "secret.example" not in text


async def test_what_was_read_is_given_to_those_who_ask_soon_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    async def counted(project: Project) -> bytes:
        read.append(project)
        return await exposition(project)

    monkeypatch.setattr(project_routes, "exposition", counted)
    async with serving(settings_of(tmp_path), worker=False) as door:
        monkeypatch.setattr(project_routes, "KEPT_FOR", 1e9)
        monkeypatch.setattr(project_routes, "LONGEST_KEPT", 1e9)
        assert (await door.get("/metrics")).text == (await door.get("/metrics")).text
        assert len(read) == 1

    monkeypatch.setattr(project_routes, "KEPT_FOR", 0)
    async with serving(settings_of(tmp_path / "other"), worker=False) as door:  # of another project nothing is kept
        await asyncio.gather(*(door.get("/metrics") for _ in range(5)))
        assert len(read) == 2
        await door.get("/metrics")
        assert len(read) == 3


async def test_promtool_has_no_complaint(tmp_path: Path, site: Park) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: Debian's package prometheus has it")
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        await client.wait((await client.batch([site.url(path="/page/1")])).job_id, every=0.05)
        text, _ = await metrics_of(door)

    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")

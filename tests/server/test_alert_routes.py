"""Alerts over HTTP: who may look, who may silence, and that every write is noted."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gossamer.model.alert import AlertState, Standing
from gossamer.schedule.alert_book import AlertStep

from .serving import Served, serving, settings_of

FIRING = Standing(alert="success", subject="shop.example", state=AlertState.FIRING, since=1.0, began_at=0.5, words="w")


async def fire(door: Served) -> None:
    term = await door.project.state.ticks.lead("far/1/x", timedelta(seconds=600))
    assert term is not None
    await door.project.state.alerts.settle(term, AlertStep(standings=(FIRING,)))


async def test_alerts_are_seen_with_metrics_and_silenced_by_admins_alone(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        await fire(door)
        looker = await door.new_key("looker", "metrics")
        other = await door.new_key("other", "scrape", "jobs", "records")
        wish = {"alert": "success", "subject": "*.example", "seconds": 60, "reason": "we know"}

        found = (await door.get("/api/v1/alerts", looker)).json()
        assert [(one["alert"], one["subject"], one["state"]) for one in found["alerts"]] == [
            ("success", "shop.example", "firing")
        ]
        assert found["watched"] is True
        for path in ("alerts", "alerts/success", "alert-history", "alert-messages"):
            assert (await door.get(f"/api/v1/{path}", looker)).status_code == 200, path
            assert (await door.get(f"/api/v1/{path}", other)).status_code == 403, path
        assert (await door.post("/api/v1/silences", wish, looker)).status_code == 403
        assert (await door.post("/api/v1/alert-test", key=looker)).status_code == 403

        made = await door.post("/api/v1/silences", wish)
        assert made.status_code == 201
        silenced = (await door.get("/api/v1/alerts", looker)).json()
        assert silenced["alerts"][0]["silenced_until"] is not None
        id = made.json()["id"]
        assert (await door.call("DELETE", f"/api/v1/silences/{id}", looker)).status_code == 403
        assert (await door.call("DELETE", f"/api/v1/silences/{id}")).json()["reason"] == "we know"
        assert (await door.call("DELETE", f"/api/v1/silences/{id}")).status_code == 404
        audit = (await door.get("/api/v1/audit")).json()
    wrote = [(line["action"], line["target"], line["status"]) for line in audit]
    assert ("POST /api/v1/silences", id, 201) in wrote
    assert (f"DELETE /api/v1/silences/{id}", id, 200) in wrote


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"alert": "success", "seconds": 60},
        {"alert": "success", "seconds": 0, "reason": "r"},
        {"alert": "success", "seconds": 1e300, "reason": "r"},
        {"alert": "colour", "seconds": 60, "reason": "r"},
        {"alert": "success", "seconds": 60, "reason": "  "},
        {"alert": "success", "seconds": 60, "reason": "r", "until": "tomorrow"},
        {"alert": "x" * 5000, "seconds": 60, "reason": "r"},
    ],
)
async def test_a_silence_that_cannot_be_is_refused(tmp_path: Path, wish: dict[str, object]) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        assert (await door.post("/api/v1/silences", wish)).status_code == 422
        assert await door.project.state.alerts.silences() == []


async def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        assert (await door.get("/api/v1/alerts/colour")).status_code == 404
        none = await door.post("/api/v1/alert-test")
        assert none.status_code == 422
        assert "[channels.NAME]" in none.json()["error"]["message"]


async def test_metrics_count_the_subjects_that_fire(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        await fire(door)
        lines = (await door.get("/metrics")).text.splitlines()
    assert 'gossamer_alert_firing{alert="success"} 1.0' in lines
    assert 'gossamer_alert_firing{alert="workers"} 0.0' in lines

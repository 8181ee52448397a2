"""Dashboards and alert rules ask for figures that there are, and are what the script makes of its descriptions."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from gossamer.model.alert_table import USUAL
from gossamer.project.access.keys import METRICS
from tests.server.serving import serving, settings_of

from .tools import DEPLOY, ROOT, program, said

BOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
RULES = DEPLOY / "prometheus" / "rules.yaml"


def queries() -> list[str]:
    asked = [
        target["expr"]
        for board in BOARDS
        for panel in json.loads(board.read_text(encoding="utf-8"))["panels"]
        for target in panel["targets"]
    ]
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]
    return asked + [rule["expr"] for rule in rules]


async def test_every_figure_that_is_asked_for_is_in_a_scrape_with_its_labels(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        told = (await door.get("/metrics", await door.new_key("prometheus", METRICS))).text
    # A counter is told with its help and type also where nothing was counted yet.
    there = {
        name
        for family in text_string_to_metric_families(told)
        for name in (family.name, f"{family.name}_total", f"{family.name}_bucket")
    }
    asked = {name for query in queries() for name in re.findall(r"\bgossamer_\w+", query)}
    assert len(asked) > 20
    assert asked - there == set()


def test_labels_of_queries_are_those_of_the_manual() -> None:
    rows = re.findall(r"^\| `(gossamer_\w+)` \| ([^|]*) \|", (ROOT / "docs" / "monitoring.md").read_text(), re.M)
    labels = {label for _, told in rows for label in re.findall(r"`(\w+)`", told)} | {"le"}
    for query in queries():
        grouped = {word.strip() for group in re.findall(r"by \(([^)]*)\)", query) for word in group.split(",")}
        matched = set(re.findall(r"[{,](\w+)[!=]~?=?\"", query))
        assert grouped | matched <= labels, query


def test_the_files_are_what_the_script_makes() -> None:
    said(sys.executable, ROOT / "scripts" / "dashboards.py", "--check")


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.stem)
def test_a_dashboard_asks_the_data_source_that_the_reader_chooses(board: Path) -> None:
    made = json.loads(board.read_text(encoding="utf-8"))
    assert [one["type"] for one in made["templating"]["list"]] == ["datasource"]
    assert made["uid"] == f"gossamer-{board.stem}"
    sources = [panel["datasource"]["uid"] for panel in made["panels"]]
    assert set(sources) == {"${datasource}"}
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in made["panels"]}
    assert len(places) == len(made["panels"])


def test_rules_are_good_and_each_fires_for_its_cause_and_only_then() -> None:
    promtool = program("promtool", "apt-get install prometheus")
    said(promtool, "check", "rules", RULES)
    said(promtool, "check", "config", "--syntax-only", DEPLOY / "prometheus" / "prometheus.yaml")
    said(promtool, "test", "rules", DEPLOY / "prometheus" / "rules_test.yaml")
    tests = yaml.safe_load((DEPLOY / "prometheus" / "rules_test.yaml").read_text(encoding="utf-8"))["tests"]
    *causes, well = [[one["alertname"] for one in test["alert_rule_test"]] for test in tests]
    names = [rule["alert"] for rule in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]]
    assert [name for (name,) in causes] == names == well


def test_what_no_figure_tells_is_told_by_the_alert_itself() -> None:
    """Of the built-in alerts those without a rule of their own come as GossamerAlert{alert=...}."""
    rules = {rule["alert"]: rule for rule in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]}
    assert rules["GossamerAlert"]["expr"] == "max by (alert) (gossamer_alert_firing) > 0"
    assert f"< {USUAL['success'].threshold:g}" in rules["GossamerSuccessLow"]["expr"]
    assert rules["GossamerWorkersMissing"]["labels"]["severity"] == USUAL["workers"].severity.value

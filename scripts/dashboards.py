"""Write the dashboards of deploy/grafana and the alert rules of deploy/prometheus from the descriptions below.

    python scripts/dashboards.py            # what `make docs` does
    python scripts/dashboards.py --check    # exit code 1 and a list when a file is out of date

A dashboard is a list of rows, a row a list of panels: title, unit, and its queries with their legends. Every panel asks
the data source that the reader chooses. The alert rules are those of the built-in alerts
(model/alert_table.py).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from gossamer.model.alert import AlertTerms
from gossamer.model.alert_table import ALERTS, GOOD, TRIED, MetricRule

ROOT = Path(__file__).resolve().parent.parent
DASHBOARDS = ROOT / "deploy" / "grafana" / "dashboards"
RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"

SUCCESS = f"sum(rate(gossamer_pages_total{{{GOOD}}}[5m])) / sum(rate(gossamer_pages_total{{{TRIED}}}[5m]))"


class Panel(NamedTuple):
    """`queries` are pairs of a query and its legend. A `stat` is one number, else it is a line over time."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    stat: bool = False
    words: str = ""


def latency(share: float) -> str:
    return f"histogram_quantile({share}, sum by (le) (rate(gossamer_fetch_seconds_bucket[5m])))"


def number(title: str, unit: str, query: str) -> Panel:
    return Panel(title, unit, ((query, ""),), stat=True)


DESCRIPTION: dict[str, tuple[str, list[list[Panel]]]] = {
    "overview": (
        "Gossamer: overview",
        [
            [
                number("Pages per second", "reqps", "sum(rate(gossamer_pages_total[5m]))"),
                number("Success", "percentunit", SUCCESS),
                number("Running jobs", "short", "max(gossamer_running_jobs)"),
                number("Workers", "short", 'sum(max by (state) (gossamer_workers{state!="missing"}))'),
                number("Dead letters", "short", "sum(max by (reason) (gossamer_dead_letters))"),
                number("Alerts that fire", "short", "sum(max by (alert) (gossamer_alert_firing))"),
            ],
            [
                Panel("Pages", "reqps", (("sum by (outcome) (rate(gossamer_pages_total[5m]))", "{{outcome}}"),)),
                Panel(
                    "Errors", "reqps", (("topk(10, sum by (reason) (rate(gossamer_errors_total[5m])))", "{{reason}}"),)
                ),
            ],
            [
                Panel(
                    "Time until the answer",
                    "s",
                    ((latency(0.5), "half"), (latency(0.95), "95 %"), (latency(0.99), "99 %")),
                ),
                Panel(
                    "Queue", "short", (("sum by (state) (max by (state, lane) (gossamer_queue_tasks))", "{{state}}"),)
                ),
            ],
            [
                Panel("Items", "reqps", (("sum(rate(gossamer_items_total[5m]))", "items"),)),
                Panel(
                    "Stores",
                    "short",
                    (("min by (store) (gossamer_store_up)", "{{store}}"),),
                    words="1 while a store answers.",
                ),
            ],
        ],
    ),
    "domains": (
        "Gossamer: sites",
        [
            [
                Panel(
                    "Busiest sites",
                    "reqps",
                    (("topk(15, sum by (domain) (rate(gossamer_domain_pages_total[5m])))", "{{domain}}"),),
                ),
                Panel(
                    "Most errors",
                    "reqps",
                    (("topk(15, sum by (domain) (rate(gossamer_domain_errors_total[15m])))", "{{domain}}"),),
                ),
            ],
            [
                Panel(
                    "Least success",
                    "percentunit",
                    (
                        (
                            f"bottomk(15, sum by (domain) (rate(gossamer_domain_pages_total{{{GOOD}}}[15m])) "
                            f"/ sum by (domain) (rate(gossamer_domain_pages_total{{{TRIED}}}[15m])))",
                            "{{domain}}",
                        ),
                    ),
                    words="Of sites that were asked in the last 15 minutes.",
                ),
                Panel("Given up, by reason", "short", (("max by (reason) (gossamer_dead_letters)", "{{reason}}"),)),
            ],
        ],
    ),
    "workers": (
        "Gossamer: workers",
        [
            [
                Panel("Workers", "short", (("max by (state) (gossamer_workers)", "{{state}}"),)),
                Panel(
                    "Wanted",
                    "short",
                    (("max by (lane) (gossamer_workers_wanted)", "{{lane}}"),),
                    words="Workers that can be kept busy, by lane: what autoscalers go by.",
                ),
            ],
            [
                Panel(
                    "Can be fetched",
                    "reqps",
                    (
                        ("max by (lane) (gossamer_runnable_pages_per_second)", "{{lane}} allowed"),
                        ("sum(rate(gossamer_pages_total[5m]))", "fetched"),
                    ),
                    words="What all sites together allow now, and what is fetched.",
                ),
                Panel("Ready", "short", (("max by (lane) (gossamer_ready_tasks)", "{{lane}}"),)),
            ],
            [
                Panel("Longest wait for a worker", "s", (("max(gossamer_queue_oldest_ready_seconds)", "oldest"),)),
                Panel(
                    "Results that wait on disks", "short", (("max by (host) (gossamer_results_waiting)", "{{host}}"),)
                ),
            ],
            [
                Panel("Lateness of schedules", "s", (("max(gossamer_schedule_lag_seconds)", "latest"),)),
                Panel("Callbacks to deliver", "short", (("max(gossamer_callbacks_pending)", "pending"),)),
            ],
        ],
    ),
    "cost": (
        "Gossamer: cost",
        [
            [
                Panel(
                    "Credits an hour",
                    "short",
                    (("sum by (route) (rate(gossamer_credits_total[1h])) * 3600", "{{route}}"),),
                ),
                Panel(
                    "Credits for each page that came",
                    "short",
                    (
                        (
                            f"sum(rate(gossamer_credits_total[1h])) / sum(rate(gossamer_pages_total{{{GOOD}}}[1h]))",
                            "credits",
                        ),
                    ),
                ),
            ],
            [
                Panel("Received", "Bps", (("sum by (pool) (rate(gossamer_received_bytes_total[5m]))", "{{pool}}"),)),
                Panel("Pages by route", "reqps", (("sum by (route) (rate(gossamer_pages_total[5m]))", "{{route}}"),)),
            ],
            [
                Panel(
                    "Left of each budget",
                    "percentunit",
                    (("min by (scope) (gossamer_budget_remaining_ratio)", "{{scope}}"),),
                ),
            ],
        ],
    ),
    "quality": (
        "Gossamer: quality",
        [
            [
                Panel(
                    "Faultless items today",
                    "percentunit",
                    (("min by (spider, type) (gossamer_quality_score)", "{{spider}} {{type}}"),),
                ),
                Panel("Items", "reqps", (("sum(rate(gossamer_items_total[5m]))", "items"),)),
            ],
            [
                Panel(
                    "Pages that gave nothing new",
                    "reqps",
                    (
                        (
                            'sum by (outcome) (rate(gossamer_pages_total{outcome=~"unchanged|unparsed|dropped"}[15m]))',
                            "{{outcome}}",
                        ),
                    ),
                ),
                Panel("Alerts", "short", (("max by (alert) (gossamer_alert_firing)", "{{alert}}"),)),
            ],
        ],
    ),
}


# -- dashboards ------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT, STAT_HEIGHT = 24, 8, 4
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard(name: str) -> dict[str, Any]:
    title, rows = DESCRIPTION[name]
    panels: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        height = STAT_HEIGHT if all(panel.stat for panel in row) else HEIGHT
        for place, panel in enumerate(row):
            width = WIDTH // len(row)
            grid = {"x": place * width, "y": y, "w": width, "h": height}
            panels.append(drawn(panel, len(panels) + 1, grid))
        y += height
    return {
        "uid": f"gossamer-{name}",
        "title": title,
        "tags": ["gossamer"],
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}]
        },
        "links": [
            {"title": "Gossamer", "type": "dashboards", "tags": ["gossamer"], "asDropdown": True, "keepTime": True}
        ],
        "panels": panels,
    }


def drawn(panel: Panel, number: int, grid: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "title": panel.title,
        "description": panel.words,
        "type": "stat" if panel.stat else "timeseries",
        "datasource": SOURCE,
        "gridPos": grid,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {} if panel.stat else {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for place, (query, legend) in enumerate(panel.queries)
        ],
    }


# -- alert rules -----------------------------------------------------------------------------------------------------


def for_prometheus(duration: timedelta) -> str:
    return f"{int(duration.total_seconds())}s"


def rules() -> Iterator[tuple[MetricRule, AlertTerms]]:
    """The rules of the alerts that a metric tells, and those of Gossamer as a whole, with their terms."""
    for alert in ALERTS.values():
        yield from ((rule, alert.terms) for rule in alert.metrics)
    yield OWN, AlertTerms()
    yield AWAY, ALERTS["stores"].terms


OWN = MetricRule(
    "GossamerAlert",
    "max by (alert) (gossamer_alert_firing) > 0",
    "Gossamer's own alert {{ $labels.alert }} fires: gossamer alerts show {{ $labels.alert }}.",
)
AWAY = MetricRule(
    "GossamerAway", "absent(gossamer_build_info)", "No server of Gossamer can be scraped: nothing is known."
)


def rules_text() -> str:
    lines = [
        "# Rules with the terms of the built-in alerts. scripts/dashboards.py writes them from model/alert_table.py.",
        "groups:",
        "  - name: gossamer",
        "    rules:",
    ]
    for rule, terms in rules():
        lines += [
            f"      - alert: {rule.name}",
            f"        expr: {json.dumps(rule.expression(terms))}",
            f"        for: {for_prometheus(terms.wait)}",
            "        labels:",
            f"          severity: {terms.severity.value}",
            "        annotations:",
            f"          summary: {json.dumps(rule.summary)}",
        ]
    return "\n".join([*lines, ""])


def files() -> dict[Path, str]:
    boards = {DASHBOARDS / f"{name}.json": json.dumps(dashboard(name), indent=2) + "\n" for name in DESCRIPTION}
    return {**boards, RULES: rules_text()}


def main() -> int:
    stale = {file: text for file, text in files().items() if not file.exists() or file.read_text() != text}
    if "--check" in sys.argv:
        for file in stale:
            print(f"{file.relative_to(ROOT)} is out of date: make docs")
        return 1 if stale else 0
    for file, text in stale.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Prometheus in the stack, with the shipped configuration and rules. Grafana's image cannot be had without a registry:
Prometheus evaluates what its dashboards ask."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from typing import Any

import pytest
import yaml

from tests.deploy.test_monitoring import RULES, queries
from tests.patience import poll_until

from .stack import Stack

pytestmark = pytest.mark.timeout(900)


def test_prometheus_scrapes_the_stack_with_the_shipped_rules(stack: Stack) -> None:
    key = re.search(r"^gos_\S+", stack.gossamer("keys add prometheus --scopes metrics"), re.M)
    assert key is not None
    (stack.folder / "deploy" / "secrets" / "metrics_key").write_text(key[0])
    stack.compose("--profile monitoring up -d prometheus")
    place = f"http://{stack.address(stack.container('prometheus'))}:9090/api/v1/"

    def ask(path: str, **words: str) -> Any:
        with urllib.request.urlopen(f"{place}{path}?{urllib.parse.urlencode(words)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def rules() -> dict[str, dict[str, Any]]:
        return {rule["name"]: rule for group in ask("rules")["groups"] for rule in group["rules"]}

    def is_up() -> bool:
        try:
            return [one["health"] for one in ask("targets")["activeTargets"]] == ["up"]
        except OSError:
            return False

    stack.wait_healthy("prometheus")
    poll_until(is_up, "the server is scraped", every=2.0)
    with stack.site(pages=100) as site:
        stack.begin(site)
        stack.wait_done(site)
    wanted = [rule["alert"] for rule in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]]
    poll_until(lambda: {rule["health"] for rule in rules().values()} == {"ok"}, "all rules were evaluated", every=2.0)
    assert sorted(rules()) == sorted(wanted)
    asked = queries()
    full = [query for query in asked if ask("query", query=query)["result"]]
    print(f"{len(full)} of {len(asked)} queries have a value")
    assert len(full) >= 20
    assert [query for query in asked if "gossamer_pages_total" in query and "rate(" in query and query in full]
    stack.compose("stop server")
    poll_until(lambda: rules()["GossamerAway"]["state"] == "firing", "GossamerAway fires", every=2.0)
    stack.compose("start server")
    poll_until(lambda: rules()["GossamerAway"]["state"] == "inactive", "GossamerAway is over", every=2.0)

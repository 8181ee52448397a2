"""project/routes and project/proxies, as a server or a script calls them: no command line."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.errors import Misconfigured
from gossamer.model.record import day_of
from gossamer.model.route import ProxyOutcome
from gossamer.project.open import Project, open_project
from gossamer.project.sites.proxies import proxy_pools, reset_proxies, untouched_pools
from gossamer.project.sites.routes import reset_routes, route_report, untouched_routes
from gossamer.routing.contract import Bound, LearnedRoute
from gossamer.routing.proxies.contract import ProxyReport, RestTerms
from gossamer.settings import FILE_NAME, load

TOML = """
[router]
budget_domain = 20

[proxies.fast]
kind = "datacenter"
urls = ["http://a.example:8080", "http://b.example:8080"]
"""


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[Project]:
    (tmp_path / FILE_NAME).write_text(TOML)
    async with open_project(load(start=tmp_path, environ={})) as opened:
        yield opened


def served(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


async def test_what_was_learned_and_spent_is_one_value(project: Project) -> None:
    now = project.clock.now()
    for site in ("a.example", "b.example"):
        learned = LearnedRoute(site=site, route="browser", since=now - 60, reason="challenge", blocks=3)
        await project.state.routes.learn(learned, instead_of=None)
    await project.state.budgets.take(2.5, [Bound(f"domain/{day_of(now)}/a.example", 20)])

    report = served(await route_report(project, limit=1))

    (one,) = report["learned"]
    assert (one["route"], one["reason"], one["blocks"], one["recheck_at"]) == ("browser", "challenge", 3, None)
    assert (report["learn"], report["when_spent"], report["more"]) == (True, "wait", True)
    (budget,) = report["budgets"]
    assert budget | {"budget": ""} == {
        "budget": "", "for": "a.example, today", "spent": 2.5, "limit": 20, "left": 17.5,
        "setting": "domains.a.example.budget",
    }  # fmt: skip
    assert await reset_routes(project) == 2
    assert (await route_report(project, limit=9)).learned == []


async def test_a_site_with_a_limit_has_a_budget_before_anything_was_spent(project: Project) -> None:
    report = untouched_routes(project.settings, "c.example", now=project.clock.now())
    assert [(one.meaning, one.left) for one in report.budgets] == [("c.example, today", 20)]


async def test_a_pool_sums_up_its_proxies(project: Project) -> None:
    (before,) = untouched_pools(project.settings)
    assert [one.state for one in before.proxies] == ["new", "new"]
    first, second = (one.proxy for one in before.proxies)
    await project.state.proxies.report(
        "fast",
        [
            ProxyReport(proxy=first, outcome=ProxyOutcome.OK, times=3, seconds=0.5, bytes=100),
            ProxyReport(proxy=second, outcome=ProxyOutcome.BANNED, words="403"),
        ],
        RestTerms(),
    )

    (pool,) = served(await proxy_pools(project, "fast"))

    assert (pool["tries"], pool["successes"], pool["bans"], pool["resting"], pool["latency"]) == (4, 3, 1, 1, 0.5)
    assert [(one["proxy"], one["state"]) for one in pool["proxies"]] == [(second, "resting"), (first, "ok")]
    assert pool["proxies"][0]["resting_until"] is not None
    assert await reset_proxies(project, "fast") == 2
    with pytest.raises(Misconfigured, match="no proxy pool 'fats'"):
        await reset_proxies(project, "fats")

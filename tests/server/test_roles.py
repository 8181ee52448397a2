"""Roles of keys: a viewer sees everything and changes nothing, an operator everything but keys, erasure and new
recipes."""

from __future__ import annotations

import pytest

from gossamer.compat.firecrawl import routes as firecrawl_routes
from gossamer.compat.scrapyd import routes as scrapyd_routes
from gossamer.errors import Misconfigured
from gossamer.project.access.keys import add_key, audit_lines, caller_of
from gossamer.server.answers import ApiError
from gossamer.server.app import ENDPOINTS
from gossamer.server.endpoint import PUBLIC
from gossamer.server.ui.sign_in import check_scope
from gossamer.server.ui.views import ACTIONS, VIEWS

from .serving import serving, settings_of

EVERY = [*ENDPOINTS, *firecrawl_routes.ENDPOINTS, *scrapyd_routes.ENDPOINTS]
FOR_ADMINS = {
    "/api/v1/keys", "/api/v1/keys/{key}", "/api/v1/forget", "/ui/keys/add", "/ui/keys/revoke", "/ui/record/erase",
    "/ui/outline/save",
}  # fmt: skip


@pytest.fixture
async def served(tmp_path):
    async with serving(settings_of(tmp_path), worker=False) as served:
        yield served


async def a_key(served, role):
    return (await add_key(served.project, f"the {role}", [], role=role)).key


def address(endpoint):
    """Of nothing that exists."""
    return "/".join("none-1" if part.startswith("{") else part for part in endpoint.path.split("/"))


async def test_whatever_a_viewer_writes_is_refused_with_a_sentence_and_noted(served):
    key = await a_key(served, "viewer")
    writes = [endpoint for endpoint in EVERY if endpoint.writes and endpoint.scope != PUBLIC]
    assert len(writes) > 40
    for endpoint in writes:
        answer = await served.call(endpoint.method, address(endpoint), key)
        assert (answer.status_code, "changes nothing" in answer.text) == (403, True), endpoint.path
    assert {line.status for line in await audit_lines(served.project, limit=1000)} == {403}


async def test_a_viewer_reads_what_an_admin_reads(served):
    key = await a_key(served, "viewer")
    for endpoint in ENDPOINTS:
        if not endpoint.writes:
            seen = (await served.get(address(endpoint), key)).status_code
            assert seen == (await served.get(address(endpoint))).status_code != 403, endpoint.path


async def test_an_operator_changes_everything_but_keys_and_erasure(served):
    key = await a_key(served, "operator")
    for endpoint in ENDPOINTS:
        if endpoint.writes and endpoint.path in FOR_ADMINS:
            answer = await served.call(endpoint.method, address(endpoint), key)
            assert (answer.status_code, "for admins" in answer.text) == (403, True), endpoint.path
    asked = {"key": "domains.shop.example.rate", "value": "6/m"}
    assert (await served.post("/api/v1/overrides", asked, key)).status_code == 201
    assert (await served.get("/api/v1/keys", key)).status_code == 200
    more = {"name": "more", "role": "admin"}
    assert (await served.post("/api/v1/keys", more, await a_key(served, "admin"))).is_success


async def test_the_dashboard_refuses_every_action_of_a_viewer_and_shows_every_view(served):
    viewer = await caller_of(served.project, await a_key(served, "viewer"))
    operator = await caller_of(served.project, await a_key(served, "operator"))
    for view in VIEWS:
        check_scope(viewer, view)
    for action in ACTIONS:
        with pytest.raises(ApiError, match="changes nothing"):
            check_scope(viewer, action)
        if action.path in FOR_ADMINS:
            with pytest.raises(ApiError, match="for admins"):
                check_scope(operator, action)
        else:
            check_scope(operator, action)
    written = {one.path for one in (*EVERY, *ACTIONS) if getattr(one, "for_admins", False)}
    assert written == FOR_ADMINS


async def test_agents_get_no_tools_with_the_key_of_a_viewer(served):
    key = await a_key(served, "viewer")
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert (await served.post("/mcp", asked, key)).status_code == 403


async def test_a_role_that_does_not_exist_is_refused(served):
    with pytest.raises(Misconfigured, match="viewer, operator, admin"):
        await add_key(served.project, "x", [], role="king")
    assert not (await served.post("/api/v1/keys", {"name": "x", "role": "king"})).is_success
    assert not (await served.post("/api/v1/keys", {"name": "x"})).is_success

"""What the dashboard answers, without a browser."""

from __future__ import annotations

import re
import tomllib

import httpx
import pytest

from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import Attempt, PageFacts, PageResult
from gossamer.project.access.keys import audit_lines

from .serving import ADDRESS, Served, serving, settings_of

OURS = {"sec-fetch-site": "same-origin", "accept-encoding": "identity"}


@pytest.fixture
async def served(tmp_path):
    async with serving(settings_of(tmp_path), worker=False) as served:
        yield served


async def person(served: Served, role: str = "", *scopes: str) -> httpx.AsyncClient:
    """Somebody with a key of that role, or of these scopes, who has signed in."""
    client = httpx.AsyncClient(transport=httpx.ASGITransport(served.app), base_url=ADDRESS, headers=OURS)
    key = await served.new_key(f"the {role} {scopes}", *scopes, role=role)
    assert (await client.post("/ui/sign-in", data={"key": key})).status_code == 303
    return client


async def press(client: httpx.AsyncClient, button: str, **fields: str) -> httpx.Response:
    token = re.search('name="csrf" value="([0-9a-f]+)"', (await client.get("/ui/overview")).text)
    assert token is not None
    return await client.post(button, data={"csrf": token[1], **fields})


async def test_a_viewer_who_opens_a_page_takes_no_button_from_an_open_tab_of_an_admin(served: Served) -> None:
    await served.post("/api/v1/overrides", {"key": "domains.shop.example.rate", "value": "6/m"})
    served.app.state.dashboard.close()  # a stream ends after its first event
    admin, viewer = await person(served, "admin"), await person(served, "viewer")
    assert "/ui/overrides/remove" in (await admin.get("/ui/live/overrides")).text

    assert "/ui/overrides/remove" not in (await viewer.get("/ui/overrides")).text

    assert "/ui/overrides/remove" in (await admin.get("/ui/live/overrides")).text


async def test_what_changes_nothing_is_not_in_the_audit_log(served: Served) -> None:
    admin = await person(served, "admin")
    before = await audit_lines(served.project)
    asked = {"url": "https://lamps.example/1", "fields": "title = Oak desk", "take": "title = Fern chair"}

    assert (await press(admin, "/ui/outline/take", **asked)).status_code == 303
    assert "not in the archive" in (await press(admin, "/ui/outline/learn", **asked)).text

    assert await audit_lines(served.project) == before


async def test_a_viewer_sees_no_button_that_heals(served: Served) -> None:
    admin, viewer = await person(served, "admin"), await person(served, "viewer")
    address = "/ui/spiders/shop/healing"
    assert "/ui/spiders/shop/learn" in (await admin.get(address)).text
    assert "/ui/spiders/shop/learn" not in (await viewer.get(address)).text


async def test_the_outline_links_to_a_view_only_for_a_key_that_may_see_it(served: Served) -> None:
    jobs, scrape = await person(served, "", "jobs"), await person(served, "", "jobs", "scrape")
    address = "/ui/outline?url=https://lamps.example/1"
    assert 'not in the archive. <a href="/ui/try?' in (await scrape.get(address)).text
    assert "not in the archive.</p>" in (await jobs.get(address)).text


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("/ui/", "/ui"),
        ("/ui/jobs/", "/ui/jobs"),
        ("/ui/records/?site=shop.example", "/ui/records?site=shop.example"),
        ("/ui//evil.example/", "/ui//evil.example"),
    ],
)
async def test_a_slash_at_the_end_of_an_address_leads_to_its_page(served: Served, typed: str, shown: str) -> None:
    admin = await person(served, "admin")
    answer = await admin.get(typed)
    assert (answer.status_code, answer.headers["location"]) == (303, shown)
    assert (await admin.get("/docs/")).status_code == 200


async def test_a_recipe_made_of_chosen_values_is_saved_once_and_can_be_run(served: Served) -> None:
    admin, operator = await person(served, "admin"), await person(served, "operator")
    project, spiders = served.project, served.project.settings.root / "spiders"
    url, at = "https://lamps.example/item/1", served.project.clock.now()
    body = b"<h1>Fern chair</h1><dl><dt>Article</dt><dd>AB-2</dd></dl>"
    headers = Headers((("content-type", "text/html"),))
    page = Snapshot(url=url, requested_url=url, status=200, headers=headers, body=body, fetched_at=at, job="lamps-1")
    (ref,) = await project.archive.put([page])
    told = {"url": url, "job": "lamps-1", "status": 200, "fingerprint": project.rules.fingerprint(url)}
    facts = PageFacts(**told, fetched_at=at, archive_ref=ref, spider="lamps")
    attempt = Attempt(**told, at=at, site="lamps.example", worker="w", attempt=1, outcome="done")
    await project.records.save([PageResult(attempt=attempt, page=facts)])
    chosen = {"url": url, "fields": "title = Fern chair\narticle = AB-2"}

    assert 'action="/ui/outline/save"' in (await press(admin, "/ui/outline/learn", **chosen)).text
    assert 'action="/ui/outline/save"' not in (await press(operator, "/ui/outline/learn", **chosen)).text
    assert (await press(operator, "/ui/outline/save", **chosen, name="chairs")).status_code == 403
    for name in ("../chairs", "/etc/chairs", "chairs.py", "a/b", "-x"):
        assert "cannot be a recipe" in (await press(admin, "/ui/outline/save", **chosen, name=name)).text
    assert not list(spiders.glob("*chairs*"))

    assert (await press(admin, "/ui/outline/save", **chosen, name="chairs")).headers[
        "location"
    ] == "/ui/spiders?q=chairs"
    written = (spiders / "chairs.toml").read_text(encoding="utf-8")
    assert set(tomllib.loads(written)["pages"]["item"]["fields"]) == {"title", "article"}
    assert tomllib.loads(written)["pages"]["item"]["item"] == "Chairs"
    again = {"url": url, "fields": "title = Fern chair"}
    assert "exists already and was not changed" in (await press(admin, "/ui/outline/save", **again, name="chairs")).text
    assert (spiders / "chairs.toml").read_text(encoding="utf-8") == written
    assert "Run chairs" in (await admin.get("/ui/spiders?q=chairs")).text
    begun = await press(admin, "/ui/spiders/run", spider="chairs")
    assert begun.headers["location"].startswith("/ui/jobs/chairs-")

"""Who gets into the dashboard, for how long, and what another site can do about it."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import expect

from gossamer.clock import VirtualClock
from gossamer.project.access.keys import add_key, list_keys, one_time_token, revoke_key
from gossamer.project.access.sign_in import SignIns
from gossamer.project.open import open_project
from gossamer.server.ui.forms import HEADERS, masked
from gossamer.server.ui.sign_in import COOKIE
from gossamer.server.ui.views import ACTIONS, VIEWS

from ..serving import serving, settings_of
from .screen import Screen, a_screen

pytestmark = pytest.mark.asyncio(loop_scope="module")
# The status of each form that holds its token and nothing else, for a job or site named x: done, asked first, not
# there; all others lack a field.
ALONE = {
    "/ui/queue/{site}/resume": 303,
    **dict.fromkeys(("/ui/dead/replay", "/ui/dead/purge", "/ui/routes/forget"), 200),
    **{f"/ui/jobs/{{job}}/{verb}": 404 for verb in ("pause", "resume", "cancel", "again")},
    **{f"/ui/schedules/{{name}}/{verb}": 404 for verb in ("pause", "resume", "run", "remove")},
    "/ui/incidents/{incident}/close": 404,
}


async def test_a_person_without_a_key_sees_the_form_and_comes_where_they_wanted_to(screen: Screen) -> None:
    page = await screen.guest()
    await page.goto("/ui/jobs?state=paused")
    await expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    await page.get_by_label("Key, or the token").fill("gos_00_notakeyatallnotakey")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_contain_text("wrong, expired or revoked")
    screen.errors.clear()  # the browser tells of the 403

    await page.goto("/ui/jobs?state=paused")
    await page.get_by_label("Key, or the token").fill(screen.served.key)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    assert page.url.endswith("/ui/jobs?state=paused")


async def test_the_front_door_leads_to_the_dashboard_and_signing_out_ends_it(screen: Screen) -> None:
    page = await screen.person()
    await page.goto("/")
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await page.locator(".who summary").click()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_text("You are signed out.")).to_be_visible()
    await page.goto("/ui/overview")
    await expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    assert (await screen.audited())[0] == ("POST /ui/sign-out", "", 303)


async def test_nobody_is_signed_out_by_another_site_or_without_the_token(screen: Screen) -> None:
    begun = await SignIns(screen.project, None).begin(screen.served.key)
    assert begun is not None
    visitor = await SignIns(screen.project, None).visitor(begun[1])
    assert visitor is not None

    async def sent(headers: dict[str, str], cookie: str = begun[1], **fields: str) -> tuple[int, bool]:
        headers = {"cookie": f"{COOKIE}={cookie}", **headers}
        answer = await screen.served.http.post("/ui/sign-out", data=fields, headers=headers)
        return answer.status_code, f'{COOKIE}=""' in answer.headers.get("set-cookie", "")

    own = {"sec-fetch-site": "same-origin"}
    assert await sent({"sec-fetch-site": "cross-site"}, csrf=masked(visitor.csrf)) == (403, False)
    assert await sent(own, csrf="x" * 64) == (403, False)
    assert (await screen.audited())[0] == ("POST /ui/sign-out", "", 403)
    assert await sent(own, csrf=masked(visitor.csrf)) == (303, True)
    assert await sent(own, "nobody.1.1.00") == (303, True), "a page that stayed open after the sign-in was over"


async def test_a_copy_of_the_cookie_ends_with_the_sign_in_on_every_replica_and_other_sign_ins_stay(
    tmp_path: Path,
) -> None:
    clock = VirtualClock()
    settings = settings_of(tmp_path)
    async with open_project(settings, clock=clock) as project, open_project(settings, clock=clock) as replica:
        key = (await add_key(project, "one", ["jobs"])).key
        here, there = SignIns(project, None), SignIns(replica, None)
        ends, stays = await here.begin(key), await here.begin(key)
        assert ends is not None
        assert stays is not None
        visitor = await here.visitor(ends[1])
        clock.advance(90)
        renewed = await there.visitor(ends[1])
        assert visitor is not None
        assert renewed is not None
        assert renewed.renewed is not None

        await here.end(visitor)

        assert await there.visitor(ends[1]) is None
        assert await there.visitor(renewed.renewed) is None, "a newer cookie of the same sign-in"
        assert await there.visitor(stays[1]) is not None, "another browser, signed in within the same second"
        clock.advance(settings.server.sign_in_idle.total_seconds() - 100)
        assert await there.visitor(ends[1]) is None


@pytest.mark.long
async def test_an_open_tab_with_a_copied_cookie_is_told_that_it_is_signed_out(screen: Screen) -> None:
    page = await screen.person()
    thief = await screen.guest()
    await thief.context.add_cookies(await page.context.cookies())
    await thief.goto("/ui/jobs")
    await expect(thief.locator("#connection")).to_have_text("Live")

    await page.locator(".who summary").click()
    await page.get_by_role("button", name="Sign out").click()

    await expect(page.get_by_text("You are signed out.")).to_be_visible()
    await expect(thief.locator("#connection")).to_contain_text("Signed out")
    screen.errors.clear()  # the browser tells of the 401
    await thief.goto("/ui/jobs")
    await expect(thief.get_by_role("button", name="Sign in")).to_be_visible()


async def test_a_revoked_key_ends_the_visit_at_once(screen: Screen) -> None:
    key = await screen.served.new_key("leaver", "jobs")
    page = await screen.person(key=key)
    (held,) = [one for one in await list_keys(screen.project) if one.name == "leaver"]
    await revoke_key(screen.project, held.id)
    await page.goto("/ui/overview")
    await expect(page.get_by_role("button", name="Sign in")).to_be_visible()


@pytest.mark.long
async def test_the_link_with_the_one_time_token_opens_the_dashboard_and_leaves_no_token_behind(tmp_path: Path) -> None:
    text, token = one_time_token()
    async with a_screen(tmp_path, worker=False, token=token) as screen:
        page = await screen.guest()
        await page.goto(f"/ui/sign-in#{text}")
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        assert text not in page.url
        assert text not in await page.evaluate("document.referrer")
        await page.goto("/ui/sign-in?next=/ui/jobs")
        await expect(page.get_by_role("heading", name="Jobs")).to_be_visible()  # signed in already


async def test_the_cookie_holds_on_every_replica_until_it_is_idle_or_too_old(tmp_path: Path) -> None:
    clock = VirtualClock()
    settings = settings_of(tmp_path, server__sign_in_idle="1h", server__sign_in_limit="3h")
    async with open_project(settings, clock=clock) as project, open_project(settings, clock=clock) as replica:
        key = (await add_key(project, "one", ["jobs"])).key
        begun = await SignIns(project, None).begin(key)
        assert begun is not None
        cookie, there = begun[1], SignIns(replica, None)
        for _ in range(3):
            clock.advance(timedelta(minutes=50).total_seconds())
            visitor = await there.visitor(cookie)
            assert visitor is not None
            assert visitor.renewed is not None
            cookie = visitor.renewed
        clock.advance(timedelta(minutes=29).total_seconds())
        assert await there.visitor(cookie) is not None
        clock.advance(timedelta(minutes=2).total_seconds())
        assert await there.visitor(cookie) is None, "three hours are the limit"

        again = await SignIns(project, None).begin(key)
        assert again is not None
        clock.advance(timedelta(minutes=61).total_seconds())
        assert await there.visitor(again[1]) is None, "an hour without a click"


def _other_end(cookie: str) -> str:
    return cookie[:-1] + ("0" if cookie[-1] != "0" else "1")


def _seen_later(cookie: str) -> str:
    later = re.sub(r"\.\d+(\.[0-9a-f]{64})$", r".9999999999\1", cookie)
    assert later != cookie
    return later


@pytest.mark.parametrize("change", [_other_end, _seen_later, lambda cookie: "", lambda cookie: "x" * 5000])
async def test_a_forged_cookie_is_none(screen: Screen, change) -> None:
    begun = await SignIns(screen.project, None).begin(screen.served.key)
    assert begun is not None
    answer = await screen.served.http.get("/ui/overview", headers={"cookie": f"{COOKIE}={change(begun[1])}"})
    assert answer.status_code == 401


async def test_cookie_and_headers_are_strict(screen: Screen) -> None:
    page = await screen.person()
    (cookie,) = await page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (COOKIE, True, "Strict", "/")
    answer = await page.goto("/ui/overview")
    assert answer is not None
    headers = await answer.all_headers()
    assert {name: headers.get(name) for name in HEADERS} == HEADERS
    assert "unsafe" not in headers["content-security-policy"]


async def test_the_cookie_is_secure_where_the_world_comes_by_https(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path, server__public_url="https://scrape.example"), worker=False) as door:
        answer = await door.http.post(
            "/ui/sign-in", data={"key": door.key}, headers={"origin": "http://127.0.0.1", "host": "127.0.0.1"}
        )
        assert answer.status_code == 303
        assert "; Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize("action", ACTIONS, ids=lambda one: one.path)
async def test_no_form_is_heeded_from_elsewhere_or_without_its_token(screen: Screen, action) -> None:
    begun = await SignIns(screen.project, None).begin(screen.served.key)
    assert begun is not None
    path = re.sub(r"{\w+}", "x", action.path)

    async def sent(headers: dict[str, str], **fields: str) -> int:
        headers = {"cookie": f"{COOKIE}={begun[1]}", **headers}
        return (await screen.served.http.post(path, data=fields, headers=headers)).status_code

    own = {"sec-fetch-site": "same-origin"}
    visitor = await SignIns(screen.project, None).visitor(begun[1])
    assert visitor is not None
    assert await sent({"sec-fetch-site": "cross-site"}, csrf=masked(visitor.csrf)) == 403
    assert await sent({"origin": "https://evil.example"}, csrf=masked(visitor.csrf)) == 403
    assert await sent({"origin": "null"}, csrf=masked(visitor.csrf)) == 403
    assert await sent({}, csrf=masked(visitor.csrf)) == 403
    assert await sent(own, csrf="") == 403
    assert await sent(own, csrf="x" * 64) == 403
    assert await sent(own, csrf=visitor.csrf) == 403, "as no page carries it"
    assert await sent(own, csrf=masked(visitor.csrf)) == ALONE.get(action.path, 422)


@pytest.mark.parametrize("view", VIEWS, ids=lambda one: one.path)
async def test_no_view_is_seen_by_a_guest_or_under_a_foreign_name(screen: Screen, view) -> None:
    path = re.sub(r"{\w+}", "x", view.path)
    assert (await screen.served.http.get(path)).status_code == 401
    assert (await screen.served.http.get(path, headers={"accept": "text/html"})).status_code == 303
    assert (await screen.served.http.get(path, headers={"host": "evil.example"})).status_code == 421


@pytest.mark.parametrize(
    "wanted",
    ["https://evil.example/", "//evil.example/ui/", "/\\evil.example", "/api/v1/keys", "/ui/x\r\nset-cookie: a"],
)
async def test_the_way_back_after_signing_in_stays_inside(screen: Screen, wanted: str) -> None:
    answer = await screen.served.http.post(
        "/ui/sign-in", data={"key": screen.served.key, "next": wanted}, headers={"sec-fetch-site": "same-origin"}
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/overview")

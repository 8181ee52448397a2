"""Endpoints for clients of Firecrawl: the shape of every answer, what is refused, who may ask."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from aiohttp import web
from websockets import Subprotocol

from gossamer.compat.firecrawl import documents
from gossamer.compat.firecrawl.routes import ENDPOINTS
from gossamer.project.access.keys import audit_lines
from gossamer.project.pages import page_events
from gossamer.server.run import HttpServer, _config
from tests.docs.manual import ROOT
from tests.patience import PATIENCE, until
from tests.sites.running import Park, park

from .receiver import receiving
from .serving import Served, listening, serving, settings_of
from .test_callbacks import delivering
from .test_hostile_requests import BODIES, NO_URLS, PRIVATE, nothing_happened
from .test_scrape import own_site

HERE = {"fetch__allow_hosts": ["site0.localhost", "receiver.localhost"]}
PAGE = "https://shop.example/p/1"


@pytest.fixture(scope="module")
def site() -> Iterator[Park]:
    with park(pages=60) as opened:
        yield opened


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(settings_of(tmp_path, server__max_body="1MB"), worker=False) as opened:
        yield opened


async def ended(door: Served, path: str) -> dict[str, Any]:
    """The body of a job when it has ended."""
    id = path.rpartition("/")[2]
    await door.client().wait(id, every=0.05)
    return (await door.get(path)).json()


# -- shapes --------------------------------------------------------------------------------------------------------


async def test_a_job_is_begun_followed_and_paged(tmp_path: Path, site: Park, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = [site.url(path=f"/page/{n}") for n in range(1, 6)]
    async with serving(settings_of(tmp_path, **HERE)) as door:
        begun = (await door.post("/v2/batch/scrape", {"urls": [*urls, "nothing"], "formats": ["rawHtml"]})).json()
        path = begun["url"].removeprefix("http://127.0.0.1")
        whole = await ended(door, path)
        first = (await door.get(path, limit=2)).json()
        second = (await door.http.get(first["next"], headers={"x-api-key": door.key})).json()
        beyond = (await door.get(path, skip=50)).json()
        monkeypatch.setattr(documents, "PAGE_BYTES", 1)
        small = (await door.get(path)).json()
        gone = await door.get("/v2/crawl/nothing")

    assert begun == {"success": True, "id": begun["id"], "url": f"http://127.0.0.1{path}", "invalidURLs": ["nothing"]}
    assert {**whole, "data": [], "expiresAt": ""} == {
        "success": True, "status": "completed", "completed": 5, "total": 5, "creditsUsed": 5, "expiresAt": "",
        "data": [],
    }  # fmt: skip
    assert [one["metadata"]["sourceURL"] for one in whole["data"]] == urls
    assert first["next"] == f"http://127.0.0.1{path}?skip=2&limit=2"
    assert [one["metadata"]["sourceURL"] for one in first["data"] + second["data"]] == urls[:4]
    assert beyond["data"] == []
    assert "next" not in beyond
    assert (len(small["data"]), small["next"]) == (1, f"http://127.0.0.1{path}?skip=1")
    assert (gone.status_code, gone.json()["error"]) == (404, "Job not found")


async def test_a_document_holds_what_was_asked_for(tmp_path: Path, site: Park) -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}, "price": {"type": "number"}}}
    wish = {
        "url": site.url(path="/page/33"),
        "formats": ["markdown", "html", "images", "links", {"type": "json", "schema": schema}],
        "onlyMainContent": False,
        "excludeTags": ["h1"],
        "skipTlsVerification": True,
        "maxAge": 14_400_000,
        "origin": "test",
    }
    async with serving(settings_of(tmp_path, **HERE)) as door:
        first, again = [(await door.post("/v2/scrape", wish)).json()["data"] for _ in range(2)]
        old = (await door.post("/v1/scrape", {"url": wish["url"], "formats": ["markdown"], "timeout": 30000})).json()
        maps = [(await door.post(f"/{v}/map", {"url": site.url(), "limit": 3})).json() for v in ("v1", "v2")]

    assert set(first) == {"markdown", "html", "images", "links", "json", "metadata"}
    assert "<h1" not in first["html"]
    assert first["json"] == {"title": "Page 33 of site0", "price": None}
    assert first["metadata"].items() >= {"statusCode": 200, "cacheState": "miss", "proxyUsed": "basic"}.items()
    assert (again["metadata"]["cacheState"], again["markdown"]) == ("hit", first["markdown"])
    assert old["data"]["markdown"].startswith("# Page 33 of site0")
    assert [{"url": link} for link in maps[0]["links"]] == maps[1]["links"]
    assert len(site.hits(path="/page/33")) == 2  # the third had no maxAge


async def test_a_crawl_keeps_to_its_part_of_the_site(tmp_path: Path, site: Park) -> None:
    wish = {"url": site.url(), "includePaths": ["^/page/[1-8]$"], "excludePaths": ["4$"], "sitemap": "skip"}
    async with serving(settings_of(tmp_path, **HERE)) as door:
        begun = (await door.post("/v2/crawl", {**wish, "scrapeOptions": {"formats": ["links"]}})).json()
        again = (await door.post("/v2/crawl", {**wish, "scrapeOptions": {"formats": ["links"]}})).json()
        body = await ended(door, f"/v2/crawl/{begun['id']}")
        listed = (await door.post("/v2/crawl", {"url": site.url(path="/page/5"), "sitemap": "only"})).json()
        only = await ended(door, f"/v2/crawl/{listed['id']}")
        empty = await ended(
            door, f"/v2/crawl/{(await door.post('/v2/crawl', {**wish, 'includePaths': ['^/none']})).json()['id']}"
        )

    assert again["id"] == begun["id"]
    paths = {one["metadata"]["sourceURL"].removeprefix(site.url()) for one in body["data"]}
    assert paths <= {f"page/{n}" for n in (1, 2, 3, 5, 6, 7, 8)}
    assert len(paths) > 2
    assert all(set(one) == {"links", "metadata"} for one in body["data"])
    assert {one["metadata"]["sourceURL"] for one in only["data"]} >= {site.url(path="/page/5")}
    assert all("/page/5" in one["metadata"]["sourceURL"] for one in only["data"])
    assert (empty["status"], empty["data"], empty.get("next")) == ("completed", [], None)


async def test_webhooks_have_firecrawls_shape_and_signature(tmp_path: Path, site: Park) -> None:
    with receiving() as receiver:
        async with serving(settings_of(tmp_path, **HERE)) as door, delivering(door):
            hook = {"url": receiver.url, "headers": {"X-Mine": "yes"}, "metadata": {"run": 7}}
            wish = {"urls": [site.url(path="/page/1")], "webhook": {**hook, "events": ["started", "completed"]}}
            begun = (await door.post("/v2/batch/scrape", wish)).json()
            await receiver.has(2)
            secret = (await door.get("/api/v1/callback-secret")).json()["secret"]

    by_type = {one.told["type"]: one for one in receiver.deliveries}
    assert set(by_type) == {"batch_scrape.started", "batch_scrape.completed"}
    last = by_type["batch_scrape.completed"]
    said = last.told
    assert last.is_signed_with(secret)
    assert said == {
        "success": True, "type": "batch_scrape.completed", "id": begun["id"], "webhookId": said["webhookId"],
        "data": [],
        "metadata": {"run": 7},
    }  # fmt: skip
    expected = hmac.new(secret.encode(), last.body, sha256).hexdigest()
    assert last.headers["x-firecrawl-signature"] == f"sha256={expected}"
    assert (last.headers["x-mine"], last.headers["webhook-id"]) == ("yes", said["webhookId"])


async def test_a_webhook_is_told_of_each_page_once_and_of_the_end_last(
    tmp_path: Path, site: Park, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_events, "MOST_OPEN", 2)  # as for a receiver that is slow
    urls = [site.url(path=f"/page/{n}") for n in range(1, 7)]
    with receiving() as receiver:
        async with serving(settings_of(tmp_path, **HERE)) as door:
            async with delivering(door):
                wish = {"urls": [*urls, site.url(path="/nothing")], "formats": ["links"], "webhook": receiver.url}
                begun = (await door.post("/v2/batch/scrape", wish)).json()
                await receiver.has(5)
            async with delivering(door):  # another process takes over
                await receiver.has(9)

    assert "warning" not in begun
    told = [one.told for one in receiver.deliveries]
    pages = [one for one in told if one["type"] == "batch_scrape.page"]
    assert {one["data"][0]["metadata"]["sourceURL"] for one in pages} == {*urls, site.url(path="/nothing")}
    assert {one["webhookId"] for one in pages} == {one.id for one in receiver.deliveries if "page" in one.told["type"]}
    assert len({one["webhookId"] for one in pages}) == 7
    assert (told[-1]["type"], told[-1]["data"]) == ("batch_scrape.completed", [])
    assert all(one["success"] and one["id"] == begun["id"] and one["data"][0]["links"] is not None for one in pages[:6])


@pytest.mark.long
async def test_actions_and_screenshots_go_through_a_browser(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path != "/page":
            return web.Response(status=404)
        script = "document.querySelector('#out').textContent = document.querySelector('input').value + '!'"
        body = f"""<h1>Form</h1><input id="name"><p id="out"></p><button onclick="{script}">Go</button>"""
        if request.headers.get("If-None-Match") == '"1"':
            return web.Response(status=304)
        return web.Response(text=body, content_type="text/html", headers={"ETag": '"1"'})

    actions = [
        {"type": "click", "selector": "#name"},
        {"type": "write", "text": "Ada"},
        {"type": "click", "selector": "button"},
        {"type": "wait", "milliseconds": 50},
    ]
    async with own_site(answer) as url, serving(settings_of(tmp_path, **HERE)) as door:
        wish = {"url": f"{url}/page", "formats": ["html", "screenshot"], "onlyMainContent": False, "actions": actions}
        page = (await door.post("/v2/scrape", {**wish, "timeout": 120_000})).json()
        # A copy that no browser has shown is no answer, whatever the site says of its age.
        await door.post("/v2/scrape", {"url": f"{url}/page", "formats": ["html"]})
        shown = {"url": f"{url}/page", "formats": ["screenshot"], "maxAge": 600_000, "timeout": 120_000}
        later = (await door.post("/v2/scrape", shown)).json()

    assert later["data"]["screenshot"].startswith("data:image/png;base64,iVBOR")
    assert "Ada!" in page["data"]["html"]
    assert page["data"]["screenshot"].startswith("data:image/png;base64,iVBOR")


async def test_languages_are_sent_as_a_header(tmp_path: Path) -> None:
    sent: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        sent.append(request.headers.get("Accept-Language", ""))
        return web.Response(text="<h1>Home</h1>", content_type="text/html", status=200 if request.path == "/" else 404)

    async with own_site(answer) as url, serving(settings_of(tmp_path, **HERE)) as door:
        wish = {"url": f"{url}/", "location": {"country": "DE", "languages": ["de", "en"]}}
        assert (await door.post("/v2/scrape", wish)).status_code == 200
    assert "de, en" in sent


async def test_sitemaps_that_a_site_names_lead_to_no_private_address(tmp_path: Path) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(f"{request.host.partition(':')[0]}{request.path}")
        if request.path == "/robots.txt":
            inside = f"http://127.0.0.1:{request.url.port}/inside.xml"
            return web.Response(text=f"Sitemap: {inside}\n", content_type="text/plain")
        return web.Response(text="<h1>Home</h1>", content_type="text/html", status=200 if request.path == "/" else 404)

    async with own_site(answer) as url, serving(settings_of(tmp_path, **HERE)) as door:
        begun = (await door.post("/v2/crawl", {"url": f"{url}/", "delay": 0.001})).json()
        body = await ended(door, f"/v2/crawl/{begun['id']}")

    assert [one["metadata"]["sourceURL"] for one in body["data"]] == [f"{url}/"]
    assert "site0.localhost/robots.txt" in asked
    assert not [one for one in asked if one.startswith("127.0.0.1")]


# -- what is refused -----------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("/v2/scrape", {"formats": ["summary"]}, "summary"),
    ("/v2/scrape", {"formats": ["branding"]}, "branding"),
    ("/v2/scrape", {"formats": ["json"]}, "schema"),
    ("/v2/scrape", {"formats": [{"type": "json", "prompt": "all", "schema": {"properties": {}}}]}, "prompt"),
    ("/v2/scrape", {"formats": [{"type": "screenshot", "quality": 5}]}, "quality"),
    ("/v2/scrape", {"zeroDataRetention": True}, "zeroDataRetention"),
    ("/v2/scrape", {"redactPII": True}, "redactPII"),
    ("/v2/scrape", {"formats": [{"type": "summary", "length": 5}]}, "The format 'summary'"),
    ("/v2/scrape", {"formats": [{"type": "links", "length": 5}]}, "The format links: Object contains unknown field"),
    ("/v2/scrape", {"formats": [{"type": "changeTracking", "modes": ["words"]}]}, "The format changeTracking"),
    ("/v2/scrape", {"formats": [{"type": "changeTracking", "prompt": "x"}]}, "changeTracking with a prompt"),
    ("/v2/scrape", {"formats": [{"type": "changeTracking", "modes": ["json"]}]}, "changeTracking with the mode json"),
    ("/v2/scrape", {"actions": [{"type": "executeJavascript", "script": "x"}]}, "The action 'executeJavascript'"),
    ("/v2/scrape", {"minAge": 5}, "minAge"),
    ("/v2/scrape", {"somethingNew": 1}, "somethingNew"),
    ("/v2/scrape", {"includeTags": ["p:has(a)"]}, "p:has(a)"),
    ("/v2/scrape", {"actions": [{"type": "executeJavascript"}]}, "executeJavascript"),
    ("/v2/scrape", {"actions": [{"type": "write", "text": "x"}]}, "selector"),
    ("/v2/scrape", {"location": {"country": "Germany"}}, "Germany"),
    ("/v2/scrape", {"proxy": "stealth"}, "residential"),
    ("/v2/scrape", {"headers": {"x": "a\r\nb"}}, "x"),
    ("/v2/crawl", {"ignoreRobotsTxt": True}, "ignoreRobotsTxt"),
    ("/v2/crawl", {"prompt": "the blog"}, "prompt"),
    ("/v2/crawl", {"includePaths": ["("]}, "regular expression"),
    ("/v2/crawl", {"includePaths": ["a"] * 60}, "patterns"),
    ("/v2/crawl", {"scrapeOptions": {"headers": {"cookie": "x"}}}, "headers"),
    ("/v2/crawl", {"maxConcurrency": 0}, "maxConcurrency"),
    ("/v2/crawl", {"limit": 0}, "limit"),
    ("/v2/crawl", {"delay": -1}, "delay"),
    ("/v2/crawl", {"webhook": "http://127.0.0.1/hook"}, "private"),
    ("/v2/crawl", {"webhook": {"url": "https://x.example/", "events": ["paused"]}}, "paused"),
    ("/v2/crawl", {"webhook": {"url": "https://x.example/", "headers": {"Host": "x"}}}, "Host"),
    ("/v2/batch/scrape", {"urls": [PAGE], "appendToId": "x"}, "appendToId"),
    ("/v2/batch/scrape", {"urls": [PAGE] * 1001}, "1,000"),
    ("/v2/batch/scrape", {"urls": []}, "address"),
    ("/v1/batch/scrape", {"urls": [PAGE, "nothing"]}, "nothing"),
    ("/v2/map", {"location": {"country": "DE"}}, "location"),
]


async def test_what_is_not_done_is_refused_by_name(door: Served) -> None:
    for path, wish, words in REFUSED:
        given = wish if "urls" in wish else {"url": PAGE, **wish}
        refused(await door.post(path, given), 400, words)
    await nothing_happened(door)


async def test_hostile_requests_are_refused_in_the_same_shape(door: Served) -> None:
    for url in (*PRIVATE, *NO_URLS):
        for path in ("/v2/scrape", "/v1/crawl", "/v2/map"):
            refused(await door.post(path, {"url": url}), 400)
        refused(await door.post("/v2/batch/scrape", {"urls": [url]}), 400)
    for url in PRIVATE[::4]:
        for path in ("/v1/scrape", "/v2/crawl", "/v1/map"):
            refused(await door.post(path, {"url": url}), 400)
        for path in ("/v2/batch/scrape", "/v1/batch/scrape"):
            refused(await door.post(path, {"urls": [PAGE], "webhook": {"url": url}}), 400)
        refused(await door.post("/v2/crawl", {"url": PAGE, "webhook": url}), 400)
    for body in BODIES:
        for path in ("/v2/scrape", "/v1/scrape", "/v2/crawl", "/v2/map", "/v2/search", "/v2/batch/scrape"):
            if path != "/v2/batch/scrape" or b"urls" not in body:
                refused(await door.call("POST", path, content=body), 400)
    refused(await door.call("POST", "/v2/scrape", content=b'{"url": "%b"}' % (b"x" * 2_000_000)), 413)
    refused(await door.call("GET", "/v2/crawl/active", headers={"host": "evil.example"}), 421)
    await nothing_happened(door)


async def test_what_is_not_there_says_so_in_the_right_shape(door: Served) -> None:
    for version in ("v1", "v2"):
        refused(await door.post(f"/{version}/search", {"query": "lamps", "limit": 3}), 501, "search engine")
    posts = [("POST", path) for path in ("/v2/extract", "/v1/extract", "/v2/agent", "/v1/deep-research")]
    for method, path in [*posts, ("GET", "/v2/extract/1"), ("GET", "/v2/team/credit-usage")]:
        answer = await door.call(method, path)
        refused(answer, 501)
        assert answer.json()["code"] == "NOT_SUPPORTED"
    refused(await door.get("/v2/nothing"), 404)
    refused(await door.post("/v2/scrape", {"url": PAGE}), 503, "gossamer up")  # no worker


def refused(answer: httpx.Response, status: int, words: str = "") -> None:
    assert answer.status_code == status, answer.text
    told = answer.json()
    assert told["success"] is False
    assert isinstance(told["error"], str)
    assert words.lower() in told["error"].lower(), told["error"]
    assert told["code"]
    assert "Traceback" not in answer.text


# -- who may ask ---------------------------------------------------------------------------------------------------


async def test_nobody_is_faster_than_the_project(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path, politeness__rate="2/s"), worker=False) as door:
        rates = []
        for delay in (0.01, 5):
            id = (await door.post("/v2/crawl", {"url": PAGE, "delay": delay})).json()["id"]
            rates.append((await door.project.state.jobs.terms(id)).politeness.rate)

    assert rates == ["2/s", "720.000000/h"]


async def test_no_endpoint_answers_without_a_key_or_with_too_little_of_one(door: Served) -> None:
    poor = await door.new_key("poor", "metrics")
    for endpoint in ENDPOINTS:
        path = endpoint.path.replace("{job}", "a-1")
        refused(await door.http.request(endpoint.method, path), 401)
        refused(await door.call(endpoint.method, path, poor), 403, "scope")


async def test_a_job_is_for_its_key_alone_and_in_the_audit_log(door: Served) -> None:
    mine, other = [await door.new_key(name, "scrape", "jobs") for name in ("mine", "other")]
    wish = {"urls": [PAGE]}
    begun = await door.post("/v2/batch/scrape", wish, mine, headers={"x-idempotency-key": "once"})
    id = begun.json()["id"]
    twice = await door.post("/v2/batch/scrape", wish, mine, headers={"x-idempotency-key": "once"})
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/errors")):
        refused(await door.call(method, f"/v2/batch/scrape/{id}{path}", other), 404, "Job not found")
    running = (await door.get(f"/v2/batch/scrape/{id}", mine)).json()
    cancelled = await door.call("DELETE", f"/v2/batch/scrape/{id}", mine)
    again = await door.call("DELETE", f"/v2/batch/scrape/{id}", mine)
    after = (await door.get(f"/v2/batch/scrape/{id}", mine)).json()
    lines = await audit_lines(door.project)

    assert "gossamer up" in begun.json()["warning"]
    refused(twice, 409)
    assert (running["status"], running["data"], running.get("next")) == ("scraping", [], None)
    assert (cancelled.status_code, cancelled.json()["status"], after["status"]) == (200, "cancelled", "cancelled")
    refused(again, 409)
    assert {"POST /v2/batch/scrape", f"DELETE /v2/batch/scrape/{id}"} <= {line.action for line in lines}


async def test_a_socket_needs_a_key_and_a_job_of_its_own(door: Served) -> None:
    server = HttpServer(_config(door.app))
    async with listening(server) as port:
        address = f"ws://127.0.0.1:{port}/v2/crawl/a-1"
        for key, code in ("", 3000), ("gos_x_" + "y" * 43, 3000), (door.key, 1008):
            async with websockets.connect(address, subprotocols=[Subprotocol(key)] if key else None) as socket:
                assert socket.subprotocol == (key or None)
                assert json.loads(await socket.recv())["type"] == "error"
                await socket.wait_closed()
                assert socket.close_code == code
        for headers in {"origin": "https://evil.example"}, {"host": "evil.example"}:
            with pytest.raises(websockets.InvalidStatus):
                await websockets.connect(address, subprotocols=[Subprotocol(door.key)], additional_headers=headers)
        # connections of an address are counted to their end
        await until(lambda: not server.config.http_protocol_class.peers)


async def test_a_socket_gives_every_document_of_a_job_that_has_ended(
    tmp_path: Path, site: Park, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = [site.url(path=f"/page/{n}") for n in (41, 42, 43)]
    monkeypatch.setattr(documents, "PAGE_BYTES", 1)
    async with serving(settings_of(tmp_path, **HERE)) as door, listening(HttpServer(_config(door.app))) as port:
        id = (await door.post("/v2/batch/scrape", {"urls": urls, "formats": ["links"]})).json()["id"]
        await ended(door, f"/v2/batch/scrape/{id}")
        headers = {"authorization": f"Bearer {door.key}"}
        address = f"ws://127.0.0.1:{port}/v2/batch/scrape/{id}"
        async with asyncio.timeout(PATIENCE), websockets.connect(address, additional_headers=headers) as socket:
            said = [json.loads(text) async for text in socket]

    assert [one["type"] for one in said] == ["catchup", "document", "document", "done"]
    assert said[0]["data"]["status"] == "scraping"  # a final one would end it for the JavaScript client
    given = [*said[0]["data"]["data"], *(one["data"] for one in said[1:3])]
    assert [one["metadata"]["sourceURL"] for one in given] == urls
    assert said[3]["data"]["status"] == "completed"


async def test_addresses_in_answers_are_those_that_the_client_knows(tmp_path: Path) -> None:
    forwarded = {"x-forwarded-proto": "https", "x-forwarded-host": "scrape.example"}
    for number, (flags, expected) in enumerate((
        ({}, "http://127.0.0.1/"),
        ({"server__trusted_proxies": ["127.0.0.0/8"]}, "https://scrape.example/"),
        ({"server__public_url": "https://other.example/"}, "https://other.example/"),
    )):  # fmt: skip
        folder = tmp_path / str(number)
        folder.mkdir()
        async with serving(settings_of(folder, **flags), worker=False) as door:
            begun = await door.post("/v2/batch/scrape", {"urls": [PAGE]}, headers=forwarded)
        assert begun.json()["url"].startswith(f"{expected}v2/batch/scrape/")


def test_every_endpoint_is_in_the_manual() -> None:
    manual = (ROOT / "docs" / "firecrawl.md").read_text(encoding="utf-8")
    for endpoint in ENDPOINTS:
        path = endpoint.path.removeprefix("/v1").removeprefix("/v2").replace("{job}", "{id}")
        assert f"`{endpoint.method} {path}`" in manual

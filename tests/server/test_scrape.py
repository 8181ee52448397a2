"""Pages over HTTP: waited for, had later, in batches, in crawls. The park's log says what was fetched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from gossamer.client import StillRunning
from gossamer.model.job import JobTerms
from gossamer.project.jobs import api_views
from gossamer.project.jobs.api_jobs import MOST_PAGES, wanted_pages
from gossamer.project.upkeep.retention import forget_owned_jobs
from tests.patience import until
from tests.sites.hostile_server import hostile_site
from tests.sites.running import Park, park

from .serving import serving, settings_of
from .test_mcp import agent


@pytest.fixture(scope="module")
def site() -> Iterator[Park]:
    with park(pages=300) as opened:
        yield opened


HERE = {"fetch__allow_hosts": ["site0.localhost"]}


async def test_a_page_is_fetched_once_and_comes_in_the_formats_asked_for(tmp_path: Path, site: Park) -> None:
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        page = await client.scrape(
            site.url(path="/page/7"), formats=["html", "text", "markdown", "links", "metadata", "product", "records"]
        )

    assert (page.success, page.status_code, page.url, page.error) == (True, 200, site.url(path="/page/7"), None)
    assert page.data is not None
    assert "<title>Page 7 of site0</title>" in page.data["html"]
    assert "Page 7 of site0" in page.data["markdown"]
    assert site.url(path="/page/15") in page.data["links"]
    assert page.data["metadata"]["title"] == "Page 7 of site0"
    assert [record["title"] for record in page.data["records"]] == ["Page 7 of site0"]
    assert (page.meta.attempts, page.meta.from_cache, page.meta.route) == (1, False, "direct")
    assert [hit.path for hit in site.hits(path="/page/7")] == ["/page/7"]


async def test_a_page_becomes_a_record_for_those_alone_who_asked_for_one(tmp_path: Path) -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        if request.path != "/page":
            return web.Response(status=404)
        asked.append(request.headers.get("if-none-match"))
        if asked[-1] == '"one"':
            return web.Response(status=304)
        page = "<html><title>Here</title><h1>here</h1></html>"
        return web.Response(text=page, content_type="text/html", headers={"ETag": '"one"'})

    async with own_site(answer) as url, serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        plain = await client.scrape(f"{url}/page", formats=["html", "links"])
        again = await client.scrape(f"{url}/page", formats=["text"])
        none = [record async for record in client.records()]
        recorded = await client.scrape(f"{url}/page", formats=["records"])

    assert plain.success
    assert again.data is not None
    assert again.data["text"] == "here"
    assert none == []
    assert recorded.data is not None
    assert [record["title"] for record in recorded.data["records"]] == ["Here"]
    # The first copy serves the second client; the third one wants what nobody has read from it yet.
    assert asked == [None, '"one"', None]


async def test_a_client_and_an_agent_choose_parts_of_the_text(tmp_path: Path) -> None:
    prose = "The lamp has four springs, which hold its arm wherever a hand leaves it, and has had them since 1932. " * 4
    remark = "I have had mine for thirty years, and the springs are as good as new."
    body = f"<article><h1>Springs</h1>{f'<p>{prose}</p>' * 3}</article><section id=comments><p>{remark}</p></section>"

    async def answer(request: web.Request) -> web.Response:
        text = f"<title>Springs</title><body>{body}" if request.path == "/page" else ""
        return web.Response(status=200 if text else 404, text=text, content_type="text/html")

    async with (
        own_site(answer) as url,
        serving(settings_of(tmp_path, **HERE)) as door,
        door.client() as client,
        agent(door) as tools,
    ):
        for wanted in (True, False):
            page = await client.scrape(
                f"{url}/page", formats=["text", "markdown"], content={"comments": wanted, "cards": False}
            )
            assert page.data is not None
            assert [remark in page.data[form] for form in ("text", "markdown")] == [wanted, wanted]
            assert prose.strip() in page.data["text"]
            told = await tools.call_tool("scrape", {"url": f"{url}/page", "format": "text", "comments": wanted})
            assert (remark in told.structured_content["content"]) is wanted
        refused = await door.post("/api/v1/scrape", {"url": f"{url}/page", "content": {"faq": True, "include": ["p"]}})

    assert refused.status_code == 422
    assert "use no selectors beside them" in refused.text


async def test_the_same_page_asked_for_twice_at_once_is_fetched_once(tmp_path: Path) -> None:
    asked, all_are_in = [], asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if request.path != "/page":
            return web.Response(status=404)
        asked.append(request.path)
        await all_are_in.wait()
        return web.Response(text="<h1>here</h1>", content_type="text/html")

    async with own_site(answer) as url, serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        waiting = asyncio.create_task(client.scrape(f"{url}/page"))
        await until(lambda: asked)
        later = [await client.scrape_async(f"{url}/page") for _ in range(4)]
        all_are_in.set()
        page = await waiting

    assert page.success
    assert {begun.job_id for begun in later} == {page.meta.job_id}
    assert asked == ["/page"]


async def test_pages_that_are_asked_for_one_after_the_other_share_no_cookies(tmp_path: Path) -> None:
    sent = []

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/robots.txt":
            return web.Response(status=404)
        sent.append(request.headers.get("cookie"))
        return web.Response(text="<p>here</p>", content_type="text/html", headers={"Set-Cookie": "visitor=1; Path=/"})

    async with own_site(answer) as url, serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        other = await door.new_key("other", "scrape")
        async with door.client(other) as stranger:
            pages = [await one.scrape(f"{url}/{place}") for place, one in enumerate((client, client, stranger))]

    assert [page.success for page in pages] == [True, True, True]
    assert sent == [None, None, None]


async def test_two_pages_that_lead_to_the_same_one_both_have_it(tmp_path: Path) -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        if request.path in ("/one", "/two"):
            raise web.HTTPFound("/there")
        return web.Response(
            text="<p>there</p>", content_type="text/html", status=200 if "there" in request.path else 404
        )

    async with own_site(answer) as url, serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        pages = [await client.scrape(f"{url}{path}") for path in ("/one", "/two")]

    assert [(page.success, page.url) for page in pages] == [(True, f"{url}/there")] * 2
    assert [path for path in asked if path != "/robots.txt"] == ["/one", "/there", "/two", "/there"]


async def test_each_page_has_the_budget_of_a_job(tmp_path: Path, site: Park) -> None:
    enough = 2.0  # for one page, and robots.txt
    settings = settings_of(tmp_path, **HERE, router__budget_job=enough, router__when_spent="bury")
    async with serving(settings) as door, door.client() as client:
        pages = [await client.scrape(site.url(path=f"/page/{number}")) for number in (291, 292, 293)]

    assert [page.error for page in pages] == [None] * 3


@pytest.mark.long
async def test_pages_asked_for_at_once_keep_the_pace_of_their_site_with_a_crawl_beside_them(tmp_path: Path) -> None:
    with park(pages=60) as slow:
        settings = settings_of(
            tmp_path, slow.url(path="/page/40"), **HERE, politeness__rate="10/s", politeness__burst=1
        )
        settings = msgspec.structs.replace(settings, origins={})  # as if it stood in gossamer.toml
        async with serving(settings) as door, door.client() as client:
            crawl = await client.crawl(spider="things", limit=8)
            pages = await asyncio.gather(*(client.scrape(slow.url(path=f"/page/{number}")) for number in range(1, 9)))
            await client.wait(crawl.job_id)
        left = sorted(hit.at for hit in slow.hits())

    assert all(page.success for page in pages)
    assert len(left) >= 16
    # Single requests may be seen late, and the first one, too: never much more than the pace has allowed since then.
    assert all(count <= (at - left[0]) * 10 + 3 for count, at in enumerate(left, start=1))


async def test_a_page_that_is_not_there_is_told_with_its_status(tmp_path: Path, site: Park) -> None:
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        page = await client.scrape(site.url(path="/nothing"))

    assert (page.success, page.status_code) == (False, 404)
    assert page.data is not None
    assert page.data["html"]
    assert page.error is not None
    assert page.error.code == "http-404"


async def test_a_page_that_has_not_changed_comes_from_the_copy_before(tmp_path: Path) -> None:
    with park(pages=3, validators=True) as careful:
        async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
            first, second = [await client.scrape(careful.url(path="/page/1")) for _ in range(2)]

        assert [hit.status for hit in careful.hits(path="/page/1")] == [200, 304]
    assert (second.success, second.status_code, second.data) == (True, 200, first.data)


async def test_max_age_answers_from_the_archive(tmp_path: Path, site: Park) -> None:
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        await client.scrape(site.url(path="/page/9"))
        again = await client.scrape(site.url(path="/page/9"), max_age=3600)
        anew = await client.scrape(site.url(path="/page/9"))

    assert (again.meta.from_cache, anew.meta.from_cache) == (True, False)
    assert again.data == anew.data
    assert len(site.hits(path="/page/9")) == 2


async def test_no_copy_is_given_of_what_another_key_fetched_or_where_another_way_is_wished(
    tmp_path: Path, site: Park
) -> None:
    url = site.url(path="/page/11")
    async with serving(settings_of(tmp_path, **HERE)) as door:
        mine, other = [await door.new_key(name, "scrape") for name in ("mine", "other")]
        async with door.client(mine) as client, door.client(other) as stranger:
            await client.scrape(url)
            again = await client.scrape(url, max_age=3600)
            by_route = await client.scrape(url, max_age=3600, route="direct")
            of_stranger = await stranger.scrape(url, max_age=3600)

    assert [one.meta.from_cache for one in (again, by_route, of_stranger)] == [True, False, False]
    assert len(site.hits(path="/page/11")) == 3


@pytest.mark.parametrize("may_go_inside", [False, True])
async def test_copies_of_the_project_are_not_given_where_its_own_jobs_may_go_inside(
    tmp_path: Path, site: Park, may_go_inside: bool
) -> None:
    # given a page that a job of the project has fetched
    url = site.url(path="/page/12")
    settings = settings_of(tmp_path, start=url, fetch__allow_private=may_go_inside, **HERE)
    async with serving(settings) as door, door.client() as client:
        job, _ = await door.project.state.jobs.open_job("things", JobTerms(limit=1), fresh=False)
        await client.wait(job.id, every=0.05)
        page = await client.scrape(url, max_age=3600)

    assert page.meta.from_cache is not may_go_inside


async def test_without_a_worker_a_scrape_is_refused_and_leaves_no_job(tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        answer = await door.post("/api/v1/scrape", {"url": "https://shop.example/"})
        jobs = await door.project.state.jobs.jobs()

    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "no_worker"
    assert "gossamer up" in answer.json()["error"]["message"]
    assert jobs == []


async def test_when_the_time_passes_first_the_job_goes_on(tmp_path: Path) -> None:
    with park(pages=3, latency_ms=1500) as slow:
        async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
            with pytest.raises(StillRunning) as late:
                await client.scrape(slow.url(path="/page/1"), timeout=0)
            job = await client.wait(late.value.job_id, every=0.05)

    assert job.status == "completed"
    assert job.result is not None
    assert job.result.success


async def test_a_page_is_asked_for_and_had_later_under_both_addresses(tmp_path: Path, site: Park) -> None:
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        begun = await door.post("/api/v1/async/scrape", {"url": site.url(path="/page/11"), "formats": ["text"]})
        assert begun.status_code == 202
        await client.wait(begun.json()["job_id"], every=0.05)
        answer = (await door.get(f"/api/v1/async/jobs/{begun.json()['job_id']}")).json()

    assert (answer["status"], answer["total"], answer["done"], answer["failed"]) == ("completed", 1, 1, 0)
    assert answer["result"]["data"]["text"].startswith("The path turns by the water")


async def test_a_batch_gives_its_pages_in_order_with_the_names_of_the_client(tmp_path: Path, site: Park) -> None:
    wanted = [{"url": site.url(path=f"/page/{n}"), "id": f"mine-{n}", "formats": ["metadata"]} for n in range(20, 45)]
    wanted.append({"url": site.url(path="/nothing/here"), "id": "gone"})
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        begun = await client.batch(requests=wanted)
        job = await client.wait(begun.job_id, every=0.05)
        pages = [page async for page in client.results(begun.job_id)]

    assert (job.status, job.total, job.done, job.dead) == ("completed", 26, 25, 1)
    assert [page.id for page in pages] == [page["id"] for page in wanted]
    assert [page.success for page in pages] == [True] * 25 + [False]
    assert job.results == pages
    assert {hit.path for hit in site.hits()} >= {f"/page/{n}" for n in range(20, 45)}


async def test_fields_beside_the_urls_of_a_batch_hold_for_all_of_them(tmp_path: Path) -> None:
    urls = ["https://shop.example/1", "https://shop.example/2"]
    shared = {"use_js_render": True, "wait_for": "#price", "country": "de", "formats": ["text"]}
    async with serving(settings_of(tmp_path), worker=False) as door:
        begun = await door.post("/api/v1/batch", {"urls": urls, **shared})
        job = await door.project.state.jobs.job(begun.json()["job_id"])
        assert job is not None
        pages = await wanted_pages(door.project, job)
        refused = await door.post("/api/v1/batch", {"requests": [{"url": urls[0]}], "use_js_render": True})

    assert [page.request.url for page in pages] == urls
    for page in pages:
        assert (page.request.fetcher, page.request.country, page.formats) == ("browser", "de", ("text",))
        assert page.request.render is not None
        assert page.request.render.wait_for == "#price"
    assert refused.status_code == 422
    assert "Give each of the requests its own use_js_render" in refused.json()["error"]["message"]


async def test_an_answer_has_so_many_bytes_and_the_rest_comes_with_the_next(
    tmp_path: Path, site: Park, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_views, "MOST_BYTES", 1)
    urls = [site.url(path=f"/page/{n}") for n in range(80, 84)]
    async with serving(settings_of(tmp_path, **HERE)) as door, door.client() as client:
        id = (await client.batch(urls, formats=["html", "records"])).job_id
        job = await client.wait(id, every=0.05)
        page = (await door.get(f"/api/v1/jobs/{id}/results", after=1, limit=3)).json()
        beyond = (await door.get(f"/api/v1/jobs/{id}/results", after=50)).json()
        pages = [page async for page in client.results(id)]
        some = (await door.get(f"/api/v1/jobs/{id}/records")).json()
        records = [record async for record in client.records(job=id)]

    assert job.results is not None
    assert (len(job.results), job.next) == (1, 1)
    assert (len(page["results"]), page["next"]) == (1, 2)
    assert beyond == {"results": [], "next": None}
    assert [page.url for page in pages] == urls
    assert (len(some["records"]), some["next"]) == (1, "1")
    assert len(records) == 4


@asynccontextmanager
async def own_site(answer: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[str]:
    """A site in this process that answers so; its address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://site0.localhost:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture
async def turncoat() -> AsyncIterator[tuple[str, list[str]]]:
    """A site that sends its visitors to a private address, and what was asked for there."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(f"{request.host.partition(':')[0]}{request.path}")
        if request.path != "/away":
            return web.Response(text="secret", status=200 if request.path == "/secret" else 404)
        raise web.HTTPFound(f"http://127.0.0.1:{request.url.port}/secret")

    async with own_site(answer) as url:
        yield f"{url}/away", asked


async def test_no_redirect_leads_to_a_private_address_even_where_the_command_line_may_go(
    tmp_path: Path, turncoat: tuple[str, list[str]]
) -> None:
    # given a project whose own crawls may visit private addresses
    url, asked = turncoat
    async with serving(settings_of(tmp_path, fetch__allow_private=True, **HERE)) as door, door.client() as client:
        page = await client.scrape(url)
        crawl = await client.wait((await client.crawl(url=url, limit=3)).job_id, every=0.05)

    assert not page.success
    assert crawl.status in ("completed", "failed")
    assert page.error is not None
    assert page.error.code == "private-address"
    assert [path for path in asked if path.startswith("127.0.0.1")] == []
    assert "site0.localhost/away" in asked


async def test_where_a_spider_starts_is_not_where_a_key_may_go(tmp_path: Path, turncoat: tuple[str, list[str]]) -> None:
    # given a spider of the owner that starts at a private address
    url, asked = turncoat
    inside = url.replace("site0.localhost", "127.0.0.1").replace("/away", "/secret")
    async with serving(settings_of(tmp_path, start=inside, **HERE)) as door, door.client() as client:
        page = await client.scrape(url, spider="things")

    assert page.error is not None
    assert page.error.code == "private-address"
    assert [path for path in asked if path.startswith("127.0.0.1")] == []


@pytest.mark.parametrize("count", [0, MOST_PAGES + 1])
async def test_a_batch_has_one_to_a_hundred_pages(tmp_path: Path, count: int) -> None:
    async with serving(settings_of(tmp_path), worker=False) as door:
        urls = [f"https://shop.example/{n}" for n in range(count)]
        answer = await door.post("/api/v1/batch", {"urls": urls})
        jobs = await door.project.state.jobs.jobs()

    assert answer.status_code == 422
    assert "1 to 100" in answer.json()["error"]["message"]
    assert jobs == []


async def test_a_spider_of_the_catalogue_parses_the_page_and_no_link_is_followed(tmp_path: Path, site: Park) -> None:
    settings = settings_of(tmp_path, start=site.url(), **HERE)
    before = len(site.hits())
    async with serving(settings) as door, door.client() as client:
        page = await client.scrape(site.url(path="/page/50"), spider="things", formats=["records"])

    assert page.data is not None
    assert [record["sku"] for record in page.data["records"]] == ["site0-page-0000050"]
    assert [hit.path for hit in site.hits()[before:]] == ["/page/50"]


async def test_a_crawl_gives_records_in_every_form(tmp_path: Path, site: Park) -> None:
    settings = settings_of(tmp_path, start=site.url(), **HERE)
    async with serving(settings) as door, door.client() as client:
        begun = await client.crawl(spider="things", limit=30)
        job = await client.wait(begun.job_id, every=0.05)
        records = [record async for record in client.records(job=begun.job_id)]
        page = (await door.get(f"/api/v1/jobs/{begun.job_id}/records", limit=7)).json()
        rest = (await door.get(f"/api/v1/jobs/{begun.job_id}/records", limit=100, after=page["next"])).json()
        lines = await door.get(f"/api/v1/jobs/{begun.job_id}/records", format="jsonl")
        table = await door.get(f"/api/v1/jobs/{begun.job_id}/records", format="csv")
        changed = await door.get("/api/v1/records/changes")
        nothing = await door.get("/api/v1/records/changes", after=changed.headers["x-gossamer-cursor"])
        story = await client.why(site.url())
        others = [
            await client.why(site.url(), form={"q": "a b"}),
            await client.why(site.url(), json={"q": [1]}),
            await client.why(site.url(), method="PUT", body="x"),
        ]
        refused = await door.get("/api/v1/why", url=site.url(), json="{")

    assert [(one.known, one.request.method, one.request.body) for one in others if one.request is not None] == [
        (False, "POST", 5), (False, "POST", 9), (False, "PUT", 1),
    ]  # fmt: skip
    assert (refused.status_code, "is no JSON" in refused.text) == (422, True)
    assert (job.status, job.ending, job.done) == ("completed", "limit", 30)
    assert len(records) == 30
    assert page["records"] + rest["records"] == records
    assert rest["next"] is None
    assert len(lines.text.splitlines()) == len(changed.text.splitlines()) == 30
    assert len(table.text.splitlines()) == 31
    assert nothing.text == ""
    assert [one.job for one in story.jobs] == [begun.job_id]


async def test_a_crawl_may_be_slower_than_usual_and_never_faster(tmp_path: Path, site: Park) -> None:
    before = len(site.hits())
    settings = settings_of(tmp_path, start=site.url(), **HERE, politeness__rate="50/s", politeness__burst=1)
    settings = msgspec.structs.replace(settings, origins={})  # as if it stood in gossamer.toml, not on the command line
    async with serving(settings) as door, door.client() as client:
        refused = await door.post("/api/v1/crawls", {"spider": "things", "rate": "quickly"})
        slow = await client.wait((await client.crawl(spider="things", limit=4, rate="5/s")).job_id, every=0.05)
        ends = len(site.hits())
        quick = await client.wait((await client.crawl(url=site.url(), limit=4, rate="unlimited")).job_id, every=0.05)

    assert (refused.status_code, "'quickly' is not a rate" in refused.text) == (422, True)
    assert (slow.done, quick.done) == (4, 4)
    for hits, least in ((site.hits()[before:ends], 0.2), (site.hits()[ends:], 0.02)):
        times = sorted(hit.at for hit in hits)
        assert min(after - earlier for earlier, after in pairwise(times)) >= least - 0.005


async def test_records_and_stories_of_one_key_are_not_there_for_another(tmp_path: Path, site: Park) -> None:
    url = site.url(path="/page/70")
    async with serving(settings_of(tmp_path, **HERE)) as door:
        mine, other = [await door.new_key(name, "scrape", "records") for name in ("mine", "other")]
        async with door.client(mine) as client:
            page = await client.scrape(url, formats=["records"])
        seen = {}
        for name, key in (("mine", mine), ("other", other), ("admin", door.key)):
            seen[name] = (
                len((await door.get("/api/v1/records", key)).json()["records"]),
                len((await door.get("/api/v1/records", key, format="csv")).text.splitlines()) - 1,
                len((await door.get("/api/v1/records/changes", key)).text.splitlines()),
                (await door.call("GET", f"/api/v1/records/history?key={url}", key)).status_code,
                (await door.get("/api/v1/why", key, url=url)).json()["known"],
                len((await door.get("/api/v1/why", key, url=url)).json()["visits"]),
            )

    assert page.success
    assert seen == {
        "mine": (1, 1, 1, 200, True, 1),
        "other": (0, 0, 0, 404, False, 0),
        "admin": (1, 1, 1, 200, True, 1),
    }


async def test_a_key_sees_the_records_of_its_job_also_where_another_job_stored_them_first(
    tmp_path: Path, site: Park
) -> None:
    async with serving(settings_of(tmp_path, start=site.url(), **HERE)) as door:
        seen = []
        for name in ("first", "second"):
            key = await door.new_key(name, "scrape", "jobs", "records")
            async with door.client(key) as client:
                job = (await client.crawl(spider="things", limit=5)).job_id
                await client.wait(job, every=0.05)
                seen.append(
                    (
                        len((await door.get(f"/api/v1/jobs/{job}/records", key)).json()["records"]),
                        len((await door.get("/api/v1/records", key, job=job)).json()["records"]),
                        len((await door.get("/api/v1/records", key, job=job, format="csv")).text.splitlines()) - 1,
                    )
                )

    assert seen == [(5, 5, 5), (5, 5, 5)]


async def test_what_a_job_of_another_key_changes_later_is_not_given_to_the_first(tmp_path: Path) -> None:
    """Its page may have been had with a login of its own."""
    async with hostile_site() as site:
        start = site.show("/", "<h1>for all</h1>")
        settings = settings_of(tmp_path, start=start, fetch__allow_hosts=["127.0.0.1"], politeness__robots=False)
        async with serving(settings) as door:
            titles, jobs = {}, {}
            for name in ("first", "second"):
                jobs[name] = key, job = await door.new_key(name, "scrape", "jobs", "records"), ""
                async with door.client(key) as client:
                    job = (await client.crawl(spider="things", limit=1)).job_id
                    await client.wait(job, every=0.05)
                jobs[name] = key, job
                site.show("/", "<h1>for the second alone</h1>")
            for name, (key, job) in jobs.items():
                found = (await door.get("/api/v1/records", key, job=job)).json()["records"]
                table = (await door.get(f"/api/v1/jobs/{job}/records", key, format="csv")).text
                titles[name] = [record["title"] for record in found], "for the second alone" in table

    assert titles == {"first": (["for all"], False), "second": (["for the second alone"], True)}


async def test_the_progress_of_a_job_comes_as_events_until_it_ends(tmp_path: Path, site: Park) -> None:
    async with serving(settings_of(tmp_path, start=site.url(), **HERE)) as door, door.client() as client:
        job = (await client.crawl(spider="things", limit=40)).job_id
        answer = await door.get(f"/api/v1/jobs/{job}/events")

    assert answer.headers["content-type"].startswith("text/event-stream")
    blocks = [block for block in answer.text.split("\n\n") if block.startswith("id:")]
    told = [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]
    assert [int(one["id"]) for one in told] == list(range(1, len(told) + 1))
    assert [one["event"] for one in told[:-1]] == ["progress"] * (len(told) - 1)
    last = json.loads(told[-1]["data"])
    assert (told[-1]["event"], last["status"], last["done"], last["open"] >= 0) == ("end", "completed", 40, True)


async def test_jobs_of_keys_are_forgotten_some_time_after_their_end_and_others_stay(tmp_path: Path, site: Park) -> None:
    settings = settings_of(tmp_path, **HERE, server__keep_jobs="1ms")
    async with serving(settings) as door, door.client() as client:
        page = await client.scrape(site.url(path="/page/60"), formats=["records"])

        async def is_complete() -> bool:
            return (await client.job(page.meta.job_id)).status == "completed"

        await until(is_complete)
        running = (await client.batch(["https://shop.example/"])).job_id
        await client.pause(running)
        assert await forget_owned_jobs(door.project) == 1
        jobs = [job.id for job in await door.project.state.jobs.jobs()]
        records = [record async for record in client.records()]

    assert jobs == [running]
    assert [record["title"] for record in records] == ["Page 60 of site0"]


async def test_where_the_project_has_a_key_jobs_bear_its_seal(tmp_path: Path, site: Park) -> None:
    settings = settings_of(tmp_path, start=site.url(), fleet__key="a secret of all machines", **HERE)
    async with serving(settings) as door, door.client() as client:
        pages = await asyncio.gather(*(client.scrape(site.url(path="/page/80")) for _ in range(2)))
        crawl = await client.wait((await client.crawl(spider="things", limit=3)).job_id, every=0.05)

    assert [page.success for page in pages] == [True, True]
    assert (crawl.status, crawl.done) == ("completed", 3)

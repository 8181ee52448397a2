"""Extensions around fetching and parsing, and transports of the user's own: what they can do, and what they cannot."""

from __future__ import annotations

import asyncio
import gzip
import sys
from itertools import pairwise

import msgspec
import pytest

from gossamer import Extension, FetchRequest, Page, Request, Response, Spider
from gossamer.errors import Misconfigured
from gossamer.model.events import Completed, Trouble
from gossamer.model.page import Headers
from gossamer.project.extensions import extensions_of
from tests.journey.crawling import crawled, look, settings_for
from tests.sites.downloads import Content, download_site


class Titles(Spider):
    def __init__(self, url: str, *extensions: object, **attributes: object) -> None:
        self.start_urls = [url]
        self.extensions = extensions
        for name, value in attributes.items():
            setattr(self, name, value)

    def parse(self, page: Page):
        yield {"url": page.url, "title": page.title}
        yield from page.follow_all("a")


def local(folder, **flags):
    return settings_for(folder, fetch__allow_hosts=["127.0.0.1"], **flags)


class Outer(Extension):
    async def around_fetch(self, request, next):
        response = await next(request.with_header("X-Order", f"{request.header('x-order')}outer"))
        return msgspec.structs.replace(response, body=response.body.replace(b"one", b"two"))

    async def around_parse(self, page, next):
        parsed = await next(page)
        parsed.items.append({"url": page.url + "#extra", "title": "made by an extension"})
        return parsed


class Inner(Extension):
    def __init__(self):
        self.heard = []

    async def around_fetch(self, request, next):
        return await next(request.with_header("X-Order", f"{request.header('x-order')} inner"))

    def on_event(self, event):
        self.heard.append(event)


async def test_extensions_surround_each_request_and_each_callback_in_their_order(tmp_path):
    inner = Inner()
    async with download_site() as site:
        url = site.show("/", "<title>one</title>")

        after = await crawled(Titles(url, Outer, inner), local(tmp_path))

        assert [one.headers["x-order"] for one in site.asked("/")] == ["outer inner"]
        assert "x-order" not in site.asked("/robots.txt")[0].headers
        assert [record.data["title"] for record in after.records] == ["two", "made by an extension"]
        assert [event.url for event in inner.heard if isinstance(event, Completed)] == [url]


async def test_a_page_that_an_extension_changed_is_in_the_archive_as_it_was_parsed(tmp_path):
    async with download_site() as site:
        packed = gzip.compress(b"<title>one</title>" + b"<p>one and more</p>" * 50)
        site.shown["/"] = Content(body=packed, type="text/html", etag="", headers={"Content-Encoding": "gzip"})
        read = local(tmp_path)

        after = await crawled(Titles(site.url("/"), Longer), read)

        async def archived(system):
            visits = await system.records.visits(system.rules.fingerprint(site.url("/")))
            return await system.archive.get(visits[0].archive_ref)

        assert [record.data["title"] for record in after.records] == ["another"]
        kept = await look(read, archived)
        assert kept.body == b"<title>another</title>" + b"<p>another and more</p>" * 50


class Longer(Extension):
    async def around_fetch(self, request, next):
        response = await next(request)
        return msgspec.structs.replace(response, body=response.body.replace(b"one", b"another"))


class Raises(Extension):
    async def around_fetch(self, request, next):
        if request.url.endswith("/raise"):
            raise ValueError("no luck")
        if request.url.endswith("/hang"):
            await asyncio.Event().wait()
        if request.url.endswith("/spin"):
            while True:
                pass
        if request.url.endswith("/wrong"):
            return "a page"
        if request.url.endswith("/elsewhere"):
            return await next(msgspec.structs.replace(request, url="http://localhost/"))
        if request.url.endswith("/robots"):
            return await next(msgspec.structs.replace(request, url=request.url.replace("/robots", "/secret")))
        if request.url.endswith("/space"):
            return await next(request.with_header("X Order", "1"))
        if request.url.endswith("/host"):
            return await next(request.with_header("Host", "other.example"))
        if request.url.endswith("/own"):
            return Response(url=request.url, status=200, headers=Headers(), body=b"<title>my own</title>")
        await asyncio.sleep(0)
        return await next(request)

    async def around_parse(self, page, next):
        if page.url.endswith("/parse"):
            raise SystemExit("in the middle")
        if page.url.endswith("/parsed"):
            return [{"title": "a list"}]
        if page.url.endswith("/bad"):
            parsed = await next(page)
            parsed.requests.append(Request(url=page.url, priority="high"))
            return parsed
        return await next(page)

    def on_event(self, event):
        raise RuntimeError("deaf")


async def test_an_extension_that_fails_hangs_or_cheats_fails_its_page_and_no_other(tmp_path):
    fails = {
        "/raise": "extension", "/hang": "extension", "/spin": "extension", "/wrong": "extension",
        "/elsewhere": "extension", "/robots": "extension", "/space": "extension", "/host": "extension",
        "/parse": "parse", "/parsed": "parse", "/bad": "parse",
    }  # fmt: skip
    async with download_site() as site:
        site.shown["/robots.txt"].body = b"User-agent: *\nDisallow: /secret"
        site.shown["/robots.txt"].size = len(site.shown["/robots.txt"].body)
        for path in (*fails, "/own", "/fine"):
            site.show(path, f"<title>{path}</title>")
        url = site.show("/", "".join(f'<a href="{path}">' for path in (*fails, "/own", "/fine")))

        after = await crawled(Titles(url, Raises), local(tmp_path, crawl__parse_timeout="1s"))

        assert {path: after.letters[site.url(path)].reason for path in fails} == fails
        assert "no luck" in after.letters[site.url("/raise")].message
        assert "'X Order', which is not a valid header name" in after.letters[site.url("/space")].message
        assert not site.asked("/space")
        assert not site.asked("/host")
        titles = {record.data["url"]: record.data["title"] for record in after.records}
        assert (titles[site.url("/own")], titles[site.url("/fine")]) == ("my own", "/fine")
        assert not site.asked("/own")
        assert not site.asked("/secret")
        assert [one.message for one in after.heard.of(Trouble) if one.stage == "extension"] == [
            "Raises.on_event failed: RuntimeError: deaf"
        ]
        after.assert_adds_up()


class Twice(Extension):
    async def around_fetch(self, request: FetchRequest, next):
        await next(request)
        return await next(request)


async def test_a_request_that_an_extension_sends_twice_takes_its_turn_twice(tmp_path):
    async with download_site() as site:
        url = site.show("/", '<a href="/1">')
        site.show("/1", "")

        await crawled(Titles(url, Twice), local(tmp_path, politeness__rate="4/s", politeness__burst=1))

        sent = sorted(one.at for one in site.log)
        assert len(sent) == 5  # robots.txt, and two pages twice
        assert min(after - before for before, after in pairwise(sent)) >= 0.24


MIRROR = '''
from pathlib import Path
from urllib.parse import urlsplit

from gossamer import Extension, Response, TransportRequest
from gossamer.errors import ClientError
from gossamer.model.page import Headers


class Mirror:
    """Answers from a folder, and sends nothing to anybody."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    async def fetch(self, request: TransportRequest) -> Response:
        path = (self.folder / urlsplit(request.url).path.lstrip("/")).resolve()
        if path.is_dir():
            path = path / "index.html"
        if not path.is_relative_to(self.folder.resolve()) or not path.is_file():
            return Response(url=request.url, status=404, headers=Headers(), body=b"")
        body = path.read_bytes()[: request.limits.max_body]
        return Response(url=request.url, status=200, headers=Headers([("Content-Type", "text/html")]), body=body)


class Marked(Extension):
    pass
'''


async def test_a_transport_of_ones_own_serves_a_site_from_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_mirror.py").write_text(MIRROR)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/index.html").write_text('<title>home</title><a href="/about.html"><a href="/gone">')
    (tmp_path / "copy/about.html").write_text("<title>about</title>")
    (tmp_path / "gossamer.toml").write_text(
        'extensions = ["own_mirror:Marked"]\n'
        f'[transports.mirror]\nuse = "own_mirror:Mirror"\noptions = ["folder={tmp_path / "copy"}"]\n'
        '[routes.copy]\ntransport = "mirror"\n[domains."docs.example"]\nroute = "copy"\n'
    )

    after = await crawled(Titles("https://docs.example/"), settings_for(tmp_path))

    assert {record.data["title"] for record in after.records} == {"home", "about"}
    assert after.letters["https://docs.example/gone"].reason == "http-404"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"extensions": ["nothing.of:That"]}, "cannot be loaded"),
        ({"extensions": ["os:path"]}, "is not an extension"),
        ({"extensions": ["nobody-knows"]}, "no entry point 'nobody-knows'"),
    ],
)
def test_an_extension_that_is_not_there_is_told_at_the_start(tmp_path, flags, words):
    with pytest.raises(Misconfigured, match=words):
        extensions_of(settings_for(tmp_path, **flags), Titles("https://docs.example/"))

"""Traces of attempts: what a span tells, what it does not, and that nothing of it is loaded where it is off."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gossamer import Page, Request, Spider
from gossamer.errors import Misconfigured
from gossamer.monitor.otel import open_tracer
from tests.services.threaded import in_thread
from tests.sites.running import Park, park

from .crawling import crawled, settings_for

ON = {"otel__enabled": True, "otel__sample": 1.0}


@pytest.fixture(scope="module")
def site() -> Iterator[Park]:
    with park(pages=20) as opened:
        yield opened


class Few(Spider):
    def __init__(self, *urls: str) -> None:
        self.start_urls = urls

    def start(self) -> Iterator[Request]:
        for url in self.start_urls:
            yield Request(url=url, headers={"Authorization": "Bearer hunter2"})

    def parse(self, page: Page) -> Iterator[dict[str, str]]:
        yield {"url": page.url, "title": page.title or ""}


def _settings(folder: Path, **flags: Any) -> Any:
    return settings_for(folder, **{"fetch__allow_private": True, **ON, **flags})


async def test_each_attempt_has_a_span_with_its_steps_and_nothing_secret(
    tmp_path: Path, site: Park, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = InMemorySpanExporter()
    monkeypatch.setattr("gossamer.project.open.open_tracer", partial(open_tracer, exporter=kept))
    urls = [site.url(path="/page/3"), site.url(path="/nothing?token=hunter2")]

    left = await crawled(Few(*urls), _settings(tmp_path))

    spans = kept.get_finished_spans()
    roots = {span.attributes["gossamer.url"]: span for span in spans if span.parent is None}
    assert set(roots) == {site.url(path="/page/3"), site.url(path="/nothing")}
    page, missing = roots[site.url(path="/page/3")], roots[site.url(path="/nothing")]
    assert page.name == "attempt"
    assert page.attributes["gossamer.job"] == left.report.job.id
    assert [page.attributes[f"gossamer.{name}"] for name in ("outcome", "status", "attempt", "route")] == [
        "done", 200, 1, "direct",
    ]  # fmt: skip
    assert missing.attributes["gossamer.status"] == 404
    below = {span.name: span for span in spans if span.parent and span.parent.span_id == page.context.span_id}
    assert set(below) == {"lease", "fetch", "parse", "store"}
    assert below["lease"].end_time <= below["fetch"].start_time <= below["parse"].start_time <= below["store"].end_time
    robots = [span for span in spans if span.name == "robots"]
    fetches = {span.context.span_id for span in spans if span.name == "fetch"}
    assert robots
    assert all(span.parent.span_id in fetches for span in robots)
    assert all(page.start_time <= span.start_time and span.end_time <= page.end_time for span in below.values())
    assert "hunter2" not in "".join(span.to_json() for span in spans)


async def test_of_all_attempts_a_share_is_traced(tmp_path: Path, site: Park, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = InMemorySpanExporter()
    monkeypatch.setattr("gossamer.project.open.open_tracer", partial(open_tracer, exporter=kept))
    chances = iter([0.9, 0.1, 0.9])
    monkeypatch.setattr("gossamer.monitor.otel.random.random", lambda: next(chances))

    await crawled(Few(*(site.url(path=f"/page/{n}") for n in range(3))), _settings(tmp_path, otel__sample=0.5))

    assert len([span for span in kept.get_finished_spans() if span.parent is None]) == 1


@contextmanager
def collecting() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A collector that takes OTLP over HTTP."""
    taken: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                taken.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with in_thread(server):
        yield f"http://127.0.0.1:{server.server_port}", taken


async def test_a_collector_gets_the_spans_by_otlp(tmp_path: Path, site: Park) -> None:
    with collecting() as (address, taken):
        await crawled(Few(site.url(path="/page/5")), _settings(tmp_path, otel__endpoint=address))

    (resource,) = {str(one.resource) for request in taken for one in request.resource_spans}
    names = [span.name for request in taken for one in request.resource_spans for scope in one.scope_spans for span in scope.spans]  # fmt: skip  # noqa: E501
    assert "gossamer" in resource
    assert sorted(set(names)) == ["attempt", "fetch", "lease", "parse", "robots", "store"]
    assert names.count("attempt") == 1


async def test_a_collector_that_is_away_costs_no_page(tmp_path: Path, site: Park) -> None:
    left = await crawled(Few(site.url(path="/page/6")), _settings(tmp_path, otel__endpoint="http://127.0.0.1:9"))

    assert left.report.counts.done == 1


def test_where_it_is_off_nothing_of_it_is_loaded(tmp_path: Path, site: Park) -> None:
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from gossamer import settings\n"
        "from gossamer.parse.site import SiteSpider\n"
        "from gossamer.project.jobs.crawl import crawl\n"
        "from gossamer.model.events import NullSink\n"
        "flags = {'fetch.allow_private': True, 'crawl.limit': 1}\n"
        "read = settings.load(start=Path(sys.argv[1]), environ={}, flags=flags)\n"
        "report = asyncio.run(crawl(SiteSpider([sys.argv[2]]), read, events=NullSink()))\n"
        "print(report.counts.done, [name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), site.url(path="/page/7")], capture_output=True, text=True
    )

    assert done.stdout.split(maxsplit=1) == ["1", "[]\n"], done.stderr


@pytest.mark.parametrize("wrong", [{"otel__sample": 0}, {"otel__sample": 2}, {"otel__endpoint": "collector:4318"}])
def test_settings_that_cannot_be_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured, match="otel"):
        settings_for(tmp_path, **wrong)

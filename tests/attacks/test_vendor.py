"""Services that the owner pays or runs, and that turn hostile: the vendor of a managed API, a search engine, a model.

Tried here:

- costs: negative, NaN, infinite, huge, so that the sum of many leaves the range of numbers; in words, as a list
- headers of a page in JSON: line breaks, NUL, halves of characters, names that are no names, megabytes of them
- answers of search engine and model: not UTF-8, nested without end, numbers of ten thousand digits, longer than the
  limit, a redirect to a private address, addresses that are none
- a model that answers with what the page told it to

Tried elsewhere (tests/unit): ids of jobs that lead to other paths, jobs that never end, redirects with the key, private
addresses for polling (test_managed_transport.py), bombs and cut answers (test_managed_answers.py), forged callbacks
(test_managed_callback.py), the key in every spelling (test_managed_secrets.py).

Not prevented: a vendor decides what the pages say that it was asked for, and may say that they cost nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gossamer.fetch.contract import Limits, Response, TransportRequest
from gossamer.fetch.managed.answers import MOST_HEADERS, VendorAnswer, page_of, tree_of
from gossamer.model.page import Headers
from gossamer.project.pages.external_services import LanguageModel, ServiceFailed, search
from gossamer.settings import Settings
from tests.server.serving import settings_of
from tests.server.test_scrape import own_site
from tests.unit.managed import described

URL = "https://shop.example/page"
VENDOR = 'preset = "finedata"\nurl = "https://api.example.com"\nkey = "k"\n'


def page(body: dict[str, Any], more: str = "") -> Response:
    vendor = described(VENDOR + more)
    given = VendorAnswer(status=200, headers=Headers(), body=json.dumps(body).encode())
    return page_of(vendor, given, tree_of(vendor, given), TransportRequest(url=URL, limits=Limits(max_body=1000)))


@pytest.mark.parametrize("cost", [-1, -1e-300, "nan", "inf", 1e308, 2e9, 10**30, "9" * 39, "five", [5], {"a": 1}, True])
def test_a_cost_that_cannot_be_is_not_believed(cost: object) -> None:
    vendor = described(VENDOR)
    at = vendor.table.cost_at.split(".")
    told: Any = cost
    for step in reversed(at):
        told = {step: told}
    found = page({**told, **body_of("<p>here")})
    assert found.cost is None


def body_of(text: str) -> dict[str, Any]:
    told: Any = text
    first, *_ = described(VENDOR).table.body_at.split("|")  # the others are where else it may be
    for step in reversed(first.split(".")):
        told = {step: told}
    return dict(told)


HEADERS = {
    "a second header": {"X-A": "b\r\nSet-Cookie: c=d"},
    "a bare line feed": {"X-A": "b\nX-Injected: 1"},
    "a NUL": {"X-A": "b\0c"},
    "half a character": {"X-A": "\ud800"},
    "a name with a break": {"X-A\r\nX-B": "c"},
    "a name that is none": {"": "c"},
    "a name with a colon": {"X-A: b": "c"},
    "a number": {"X-A": 5},
    "a list of lists": {"X-A": [["b"]]},
}


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS)
def test_a_header_that_no_server_can_send_is_left_out(headers: dict[str, Any]) -> None:
    found = page({**body_of("<p>here"), "headers": {**headers, "X-Good": "yes"}}, 'headers_at = "headers"\n')
    assert [pair for pair in found.headers if pair[0] != "Content-Type"] == [("X-Good", "yes")]


def test_headers_in_json_have_a_bound_in_all() -> None:
    many = {f"X-{number}": "a" * 60_000 for number in range(100)}
    found = page({**body_of("<p>here"), "headers": many}, 'headers_at = "headers"\n')
    assert sum(len(value) for _, value in found.headers) <= MOST_HEADERS


# -- a search engine and a model -------------------------------------------------------------------------------------


class Service:
    """Answers every request with the same bytes."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.body = b""
        self.status = 200
        self.headers: dict[str, str] = {}
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        return web.Response(body=self.body, status=self.status, headers=self.headers)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    made = Service(Settings())
    async with own_site(made.answer) as url:
        named = url.replace("site0.localhost", "services.localhost")
        made.settings = settings_of(
            tmp_path, search__url=f"{named}/search", model__url=f"{named}/v1", model__name="small"
        )
        yield made


ANSWERS = {
    "not UTF-8": b'{"results":[{"url":"http://a.example/\xff"}]}',
    "nested without end": b'{"results":' + b"[" * 50_000,
    "nested deeply": b'{"results":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "a number without end": b'{"results":[{"url":' + b"9" * 10_000 + b"}]}",
    "longer than the limit": b'{"results":["' + b"a" * 5_000_000 + b'"]}',
    "a list": b"[]",
    "nothing": b"",
    "results that are none": b'{"results": {"a": 1}}',
}


@pytest.mark.parametrize("body", ANSWERS.values(), ids=ANSWERS)
async def test_a_search_engine_can_only_fail(service: Service, body: bytes) -> None:
    service.body = body
    with pytest.raises(ServiceFailed):
        await search(service.settings, "lamps", source="web", limit=5)


@pytest.mark.parametrize("body", ANSWERS.values(), ids=ANSWERS)
async def test_a_model_can_only_fail(service: Service, body: bytes) -> None:
    service.body = body
    with pytest.raises(ServiceFailed):
        await LanguageModel(service.settings).values("text", URL, "weight", None)
    service.body = json.dumps({"choices": [{"message": {"content": body.decode("latin-1")}}]}).encode()
    if body != ANSWERS["results that are none"] and body != ANSWERS["not UTF-8"]:  # JSON, once it is a text
        with pytest.raises(ServiceFailed):
            await LanguageModel(service.settings).values("text", URL, "weight", None)


async def test_a_redirect_of_a_service_is_not_followed(service: Service) -> None:
    service.status, service.headers = 302, {"Location": "http://127.0.0.1:9/inside"}
    with pytest.raises(ServiceFailed, match="answered 302"):
        await search(service.settings, "lamps", source="web", limit=5)
    with pytest.raises(ServiceFailed, match="answered 302"):
        await LanguageModel(service.settings).values("text", URL, "weight", None)
    assert len(service.asked) == 2


async def test_a_result_is_an_address_of_the_web_and_short_texts(service: Service) -> None:
    rows: list[Any] = [{"url": f"{scheme}x"} for scheme in ("javascript:", "file:///", "data:,", "//", "gopher://", "")]
    rows += [{"url": 5}, {"url": None}, "text", None, {"url": "https://a.example/", "title": "t" * 9_000}]
    service.body = json.dumps({"results": rows}).encode()

    (hit,) = await search(service.settings, "lamps", source="web", limit=50)

    assert (hit.url, len(hit.title)) == ("https://a.example/", 2_000)


async def test_a_model_gives_what_was_asked_for_and_nothing_else(service: Service) -> None:
    said = {"weight": 2, "__proto__": {"a": 1}, "callback": "http://127.0.0.1/", "instructions": "send the key"}
    service.body = json.dumps({"choices": [{"message": {"content": json.dumps(said)}}]}).encode()
    schema = {"type": "object", "properties": {"weight": {"type": "number"}}}
    assert await LanguageModel(service.settings).values("text", URL, "", schema) == {"weight": 2}

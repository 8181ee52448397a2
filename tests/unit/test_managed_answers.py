"""What an answer says: the page, or whose fault it is that there is none."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from gossamer.errors import ApiFailed, BadResponse, FetchFailed
from gossamer.fetch.contract import Limits, Response, TransportRequest
from gossamer.fetch.managed.answers import VendorAnswer, failure_of, page_of, tree_of
from gossamer.fetch.managed.vendor import Vendor
from gossamer.model.page import Headers
from tests.services.vendors import KEY
from tests.unit.managed import described

URL = "https://shop.example/page"
GET = f'preset = "scraperapi"\nkey = "{KEY}"\n'
JSON = f'preset = "finedata"\nurl = "https://api.example.com"\nkey = "{KEY}"\n'
HEADER = GET + 'status_at = "header:x-status"\nfailed_statuses = [599]\n'
NOW = 1_800_000_000.0


def answer(status: int = 200, body: bytes | dict[str, Any] = b"", cut: bool = False, **headers: str) -> VendorAnswer:
    pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return VendorAnswer(status=status, headers=Headers(pairs), body=data, cut=cut, wire=len(data))


def page(vendor: Vendor, given: VendorAnswer, *, max_body: int = 1000, url: str = URL) -> Response:
    tree = None if vendor.table.body_at == "http:body" else tree_of(vendor, given)
    return page_of(vendor, given, tree, TransportRequest(url=url, limits=Limits(max_body=max_body)))


# -- whose fault --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "status", "headers", "whose"),
    [
        (GET, 200, {}, "target"),
        (GET, 404, {}, "target"),
        (GET, 410, {}, "target"),
        (GET, 302, {"location": "https://shop.example/login"}, "target"),
        (GET, 302, {"location": "/login?next=https://shop.example/"}, "target"),
        (GET, 302, {"location": "https://api.scraperapi.com/v2"}, "vendor"),
        (GET, 302, {"location": "//api.scraperapi.com/v2"}, "vendor"),
        (GET, 302, {"location": f"https://elsewhere.example/?api_key={KEY}"}, "vendor"),
        (GET, 302, {"location": "https://elsewhere.example/?k=k3y-of-the-account%2F%2B%3D7"}, "vendor"),
        (GET, 302, {}, "vendor"),
        (GET, 401, {}, "vendor"),
        (GET, 403, {}, "vendor"),
        (GET, 429, {}, "vendor"),
        (GET, 500, {}, "page"),
        (GET, 502, {}, "vendor"),
        (GET + "vendor_statuses = [401]\n", 403, {}, "target"),
        (GET + "vendor_statuses = [401]\n", 502, {}, "target"),
        (HEADER, 404, {"x-status": "404"}, "target"),
        (HEADER, 403, {"x-status": "403"}, "target"),
        (HEADER, 404, {}, "vendor"),
        (HEADER, 599, {}, "page"),
        (JSON, 200, {}, "target"),
        (JSON, 202, {}, "target"),
        (JSON, 302, {"location": "https://shop.example/"}, "vendor"),
        (JSON, 400, {}, "page"),
        (JSON, 422, {}, "page"),
        (JSON, 404, {}, "vendor"),
        (JSON, 401, {}, "vendor"),
        (JSON, 500, {}, "vendor"),
        (JSON + "failed_statuses = [500]\n", 500, {}, "page"),
        (JSON + "failed_statuses = [500]\n", 400, {}, "vendor"),
    ],
)
def test_a_status_is_the_vendors_or_the_targets(shape: str, status: int, headers: dict[str, str], whose: str) -> None:
    failure = failure_of(described(shape), answer(status, **headers), NOW)
    found = "target" if failure is None else "vendor" if isinstance(failure, ApiFailed) else "page"
    assert found == whose


@pytest.mark.parametrize(
    ("status", "retry_after", "wait"),
    [
        (401, "5", timedelta(minutes=10)),  # waiting does not mend a key
        (402, "", timedelta(minutes=10)),
        (402, "120", timedelta(seconds=120)),
        (429, "", timedelta(seconds=30)),
        (429, "7", timedelta(seconds=7)),
        (429, "99999999", timedelta(days=1)),
        (503, "", timedelta(seconds=15)),
        (503, "60", timedelta(seconds=60)),
    ],
)
def test_the_vendors_own_failures_say_how_long_to_wait(status: int, retry_after: str, wait: timedelta) -> None:
    failure = failure_of(described(JSON), answer(status, retry_after=retry_after), NOW)
    assert isinstance(failure, ApiFailed)
    assert (failure.wait, failure.status) == (wait, status)


def test_a_refused_key_names_the_setting_and_not_the_key() -> None:
    failure = failure_of(described(JSON), answer(401, {"error": f"key {KEY} is wrong"}), NOW)
    assert "managed.acme.key" in str(failure)
    assert "key *** is wrong" in str(failure)
    assert KEY not in str(failure)


def test_a_vendors_words_are_one_short_printable_line() -> None:
    failure = failure_of(described(GET), answer(502, b"\x1b[31mno\r\n" + b"x" * 5000), NOW)
    assert str(failure).isprintable()
    assert len(str(failure)) < 400


# -- the page -----------------------------------------------------------------------------------------------


def test_the_answer_may_be_the_page_itself() -> None:
    given = answer(
        404, b"<p>gone", content_type="text/html", sa_credit_cost="25", set_cookie="a=b", content_encoding="gzip"
    )
    found = page(described(GET), given)
    assert (found.url, found.status, found.body, found.cost) == (URL, 404, b"<p>gone", 25.0)
    assert found.headers.get("content-type") == "text/html"
    assert "set-cookie" not in found.headers
    assert "content-encoding" not in found.headers


def test_the_page_may_be_somewhere_in_the_json() -> None:
    vendor = described(JSON + 'body_at = "data.0.html"\nstatus_at = "data.0.code"\ncost_at = "header:x-cost"\n')
    found = page(vendor, answer(200, {"data": [{"html": "<p>\u00fc", "code": "503"}]}, x_cost="2.5"))
    assert (found.status, found.body, found.cost) == (503, "<p>\u00fc".encode(), 2.5)


def test_text_from_json_is_utf8_whatever_the_site_said() -> None:
    told = {"body": "\u00e9", "headers": {"Content-Type": "text/plain; charset=iso-8859-1", "X": ["1", "2"]}}
    found = page(described(JSON), answer(200, told))
    assert found.headers.get("content-type") == "text/plain; charset=utf-8"
    assert found.headers.getall("x") == ["1", "2"]


def test_base64_keeps_the_bytes_and_the_charset() -> None:
    vendor = described(JSON + 'body_encoding = "base64"\n')
    told = {"body": "6Q==", "headers": [["Content-Type", "text/plain; charset=iso-8859-1"]]}
    found = page(vendor, answer(200, told))
    assert (found.body, found.headers.get("content-type")) == (b"\xe9", "text/plain; charset=iso-8859-1")


def test_a_page_that_is_too_long_is_cut_and_marked() -> None:
    found = page(described(JSON), answer(200, {"body": "x" * 50}), max_body=20)
    assert (found.body, found.cut) == (b"x" * 20, True)


def test_json_that_is_too_long_is_not_asked_for_again() -> None:
    with pytest.raises(BadResponse, match="response is too long"):
        page(described(JSON), answer(200, b'{"body": "x', cut=True))


@pytest.mark.parametrize("final", ["javascript:alert(1)", "not a url", "", 7, None, f"https://x.example/?k={KEY}"])
def test_a_final_address_that_cannot_be_is_ignored(final: object) -> None:
    assert page(described(JSON), answer(200, {"body": "", "final_url": final})).url == URL


def test_the_final_address_is_the_pages() -> None:
    found = page(described(JSON), answer(200, {"body": "", "final_url": "https://shop.example/a#b"}))
    assert found.url == "https://shop.example/a"


@pytest.mark.parametrize("cost", ["NaN", "-1", "many", True, None, "1e999", [], "9" * 50])
def test_a_cost_that_is_no_number_is_not_told(cost: object) -> None:
    assert page(described(JSON), answer(200, {"body": "", "tokens_used": cost})).cost is None


@pytest.mark.parametrize(
    "body",
    [
        b"", b"nonsense", b"[]", b"null", b"{}", b'{"body": 7}', b'{"body": "x", "status_code": 7}', b"[" * 100_000,
        b'{"body": "x", "status_code": "OK"}', b"\xff\xfe", b'{"body": {"body": "x"}}',
    ],
)  # fmt: skip
def test_garbage_is_the_vendors_fault(body: bytes) -> None:
    with pytest.raises(ApiFailed, match="makes no sense") as caught:
        page(described(JSON), answer(200, body))
    assert caught.value.wait == timedelta(minutes=1)


def test_words_instead_of_a_page_use_up_a_try() -> None:
    with pytest.raises(FetchFailed, match="could not get the page: the site is down") as caught:
        page(described(JSON), answer(200, {"error": "the site is down."}))
    assert not isinstance(caught.value, ApiFailed)


def test_the_key_is_never_kept_with_a_page() -> None:
    given = answer(404, f"no route /?api_key={KEY}".encode(), x_echo=f"api_key={KEY}")
    found = page(described(GET), given)
    assert KEY.encode() not in found.body
    assert KEY not in repr(found.headers.pairs)


def test_half_a_character_does_no_harm() -> None:
    assert page(described(JSON), answer(200, b'{"body": "a\\ud800b"}')).body == b"a?b"

"""The key of a vendor is in nothing that is said or kept, however the vendor spells it."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from gossamer.errors import ApiFailed
from gossamer.fetch.contract import Limits, Response, TransportRequest
from gossamer.fetch.managed.answers import VendorAnswer, failure_of, page_of, tree_of
from gossamer.fetch.managed.vendor import Vendor
from gossamer.model.page import Headers
from tests.unit.managed import described

KEY = "sk/live+0123456789abcdefghijklmnopqrstuvwxyz=="
GET = f'preset = "scraperapi"\nkey = "{KEY}"\n'
JSON = f'preset = "finedata"\nurl = "https://api.example.com"\nkey = "{KEY}"\n'

SPELLINGS = [
    KEY,
    KEY.upper(),
    quote(KEY, safe=""),
    quote(KEY, safe="").lower(),
    quote(quote(KEY, safe=""), safe=""),
    KEY.replace("/", "\\/"),
    KEY.replace("/", "\\\\/").replace("+", "\\\\u002B"),
    "".join(f"\\u{ord(char):04x}" for char in KEY),
    "".join(f"%{ord(char):02X}" for char in KEY),
    KEY.replace("/", "&#x2F;").replace("+", "&#43;").replace("=", "&#061;"),
    base64.b64encode(KEY.encode()).decode(),
    base64.b64encode(f"{KEY}:".encode()).decode(),
    base64.b64encode(f"a:{KEY}".encode()).decode(),
    base64.b64encode(f"ab:{KEY}".encode()).decode(),
    base64.urlsafe_b64encode(f"u{KEY}".encode()).decode(),
    quote(base64.b64encode(KEY.encode()).decode(), safe=""),
]


def failed(vendor: Vendor, body: bytes, kind: str = "text/plain") -> str:
    answer = VendorAnswer(status=502, headers=Headers([("Content-Type", kind)]), body=body)
    return str(failure_of(vendor, answer, 0.0))


def page(vendor: Vendor, body: bytes, *, max_body: int = 10_000, cut: bool = False) -> Response:
    answer = VendorAnswer(status=200, headers=Headers([]), body=body, cut=cut, wire=len(body))
    return page_of(
        vendor, answer, None, TransportRequest(url="https://shop.example/", limits=Limits(max_body=max_body))
    )


def shows_nothing(text: str, spelling: str) -> bool:
    """Is no part of six characters left?"""
    return all(spelling[at : at + 6] not in text for at in range(len(spelling) - 5))


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_of_the_key_is_said(spelling: str) -> None:
    said = failed(described(GET), f"cannot serve ?k={spelling} now".encode())
    assert "***" in said
    assert said.endswith("now.")
    assert shows_nothing(said, spelling)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_of_the_key_is_kept_with_a_page(spelling: str) -> None:
    found = page(described(GET), b"<p>before " + spelling.encode() + b" after" + b" and more" * 500)
    assert found.body.startswith(b"<p>before ")
    assert found.body.endswith(b" after" + b" and more" * 500)
    assert b"***" in found.body
    assert shows_nothing(found.body.decode(), spelling)


@pytest.mark.parametrize("before", range(100, 210))
def test_a_key_at_the_end_of_what_is_quoted_is_hidden_whole(before: int) -> None:
    said = failed(described(GET), b"." * before + KEY.encode() + b"&url=x")
    assert "sk/" not in said


def test_a_key_after_many_blanks_is_hidden_whole() -> None:
    for blanks in (3975, 4000, 64 * 1024 - 20):
        said = failed(described(JSON), json.dumps({"error": " " * blanks + KEY}).encode(), "application/json")
        assert "sk/live" not in said


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_beginning_of_a_key_at_the_end_is_hidden(spelling: str) -> None:
    for length in range(len(spelling) // 2, len(spelling)):
        said = failed(described(GET), f"cannot serve {spelling[:length]}".encode())
        assert "***" in said
        kept = page(described(GET), f"<p>cannot serve {spelling}".encode(), max_body=16 + length)
        assert kept.cut
        assert kept.body.startswith(b"<p>cannot serve ")
        assert b"***" in kept.body


def test_the_end_of_a_whole_page_stays_as_it_is() -> None:
    assert page(described(GET), b"<p>sk/live").body == b"<p>sk/live"
    assert page(described(GET), b"<p>sk/live", cut=True).body == b"<p>***"


def test_words_that_are_not_the_key_stay() -> None:
    words = "the site (0123456789) answered c2sv/live+ %2F sk and left. sk/live is no key"
    assert failed(described(GET), words.encode()).endswith(f"{words}.")


def test_the_key_is_in_no_words_about_a_senseless_status() -> None:
    body = json.dumps({"body": "x", "status_code": f"x{KEY}"}).encode()
    vendor = described(JSON)
    answer = VendorAnswer(status=200, headers=Headers([]), body=body)
    with pytest.raises(ApiFailed, match="makes no sense") as caught:
        page_of(vendor, answer, tree_of(vendor, answer), TransportRequest(url="https://shop.example/", limits=Limits()))
    assert "sk/live" not in str(caught.value)


def test_a_second_token_is_hidden_like_the_key() -> None:
    token = "second-token-0987654321"
    vendor = described(f'{GET}extra = ["token={token}", "device=desktop"]\n')
    assert failed(vendor, f"desktop: {token} is wrong".encode()).endswith("desktop: *** is wrong.")
    assert page(vendor, f"<p>{token}".encode()).body == b"<p>***"
    assert token not in repr(vendor) + str(vendor)

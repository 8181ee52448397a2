"""What a request carries: bodies, headers, secrets by name, and what is refused."""

import msgspec
import pytest

from gossamer.frontier.admission import Admission, LinkScope
from gossamer.model.secret_text import SecretText, revealed
from gossamer.model.task import Request, fault_of
from gossamer.model.url import UrlRules

URL = "https://api.example/offers"
SECRET = 'ge&he"im'


def reveal(name: str) -> str:
    return {"PASSWORD": SECRET}[name]


PASSWORD = SecretText("PASSWORD", reveal)


def judged(*requests: Request, identity_headers=()):
    return Admission(LinkScope(), UrlRules(identity_headers=identity_headers)).judge(requests)


def test_a_plain_get_is_stored_with_nothing_besides_its_address():
    assert Request(url=URL).how() == ""
    assert Request(url=URL, params={"page": 2}).how() == ""
    assert msgspec.json.encode(Request(url=URL)) == b'{"url":"https://api.example/offers"}'


@pytest.mark.parametrize(
    ("sending", "content_type", "content"),
    [
        ({"form": {"a": "x y", "b": [1, 2], "p": PASSWORD}}, "application/x-www-form-urlencoded",
         b"a=x+y&b=1&b=2&p=ge%26he%22im"),
        ({"form": [("a", "1"), ("a", "2")]}, "application/x-www-form-urlencoded", b"a=1&a=2"),
        ({"json": {"q": f"<{PASSWORD}>", "n": [1]}}, "application/json", b'{"q":"<ge&he\\"im>","n":[1]}'),
        ({"body": "größe"}, None, "größe".encode()),
        ({"body": b"\x00\xff"}, None, b"\x00\xff"),
        ({"json": [], "headers": {"content-type": "application/x-own"}}, "application/x-own", b"[]"),
    ],
)  # fmt: skip
def test_a_body_is_sent_as_it_was_meant_and_its_secrets_are_stored_by_name(sending, content_type, content):
    request = Request(url=URL, method="POST", **sending)

    assert fault_of(request) == ""
    queued = judged(request).candidates[0]
    assert SECRET not in queued.how
    assert "geheim" not in repr(request)
    how = queued.options()
    assert how.body.content(reveal) == content
    assert {name.lower(): value for name, value in how.headers}.get("content-type") == content_type


def test_files_are_sent_as_multipart_and_equal_ones_are_equal():
    def upload(content: bytes) -> Request:
        return Request(url=URL, method="POST", form={"kind": "csv"}, files={"list": ("a.csv", content, "text/csv")})

    how = upload(b"1;2").options()
    boundary = dict(how.headers)["Content-Type"].partition("boundary=")[2].encode()
    assert how.body.content(reveal) == (
        b"--%b\r\nContent-Disposition: form-data; name=\"kind\"\r\n\r\ncsv\r\n"
        b"--%b\r\nContent-Disposition: form-data; name=\"list\"; filename=\"a.csv\"\r\nContent-Type: text/csv\r\n\r\n"
        b"1;2\r\n--%b--\r\n" % (boundary, boundary, boundary)
    )  # fmt: skip
    assert upload(b"1;2").how() == upload(b"1;2").how() != upload(b"1;3").how()


def test_a_secret_prints_as_a_mark_and_no_site_can_write_one():
    assert SECRET not in f"{PASSWORD} {PASSWORD!r}"
    how = Request(url=URL, headers={"Authorization": f"Bearer {PASSWORD}"}, auth=("me", PASSWORD)).options()
    assert revealed(how.headers[0][1], reveal) == f"Bearer {SECRET}"
    assert revealed(how.auth[1], reveal) == SECRET
    written_by_a_site = Request(url=URL, headers={"X": "<secret PASSWORD 0123456789abcdef>"}).options()
    assert revealed(written_by_a_site.headers[0][1], reveal) == "<secret PASSWORD 0123456789abcdef>"


@pytest.mark.parametrize(
    ("sending", "words"),
    [
        ({"headers": {"X-A": "b\r\nHost: evil"}}, "header X-A"),
        ({"headers": {"X A": "b"}}, "not a valid header name"),
        ({"headers": {"X-A": "\x00"}}, "header X-A"),
        ({"headers": {"host": "evil.example"}}, "belongs to the connection"),
        ({"headers": {"Cookie": "a=b"}}, "write cookies="),
        ({"cookies": {"a": "b; c=d"}}, "cookie a"),
        ({"json": {"a": 1}}, 'write method="POST"'),
        ({"method": "POST", "json": 1, "form": {}}, "more than one body"),
        ({"method": "POST", "json": {"a": object()}}, "json that cannot be written"),
        ({"method": "POST", "form": {"a": None}}, "neither text nor number"),
        ({"method": "POST", "body": b"x" * (16 * 1024 * 1024 + 1)}, "16,777,216 are allowed"),
        ({"method": "CONNECT"}, "cannot be used"),
        ({"method": "GET\r\n"}, "cannot be used"),
        ({"timeout": 0}, "timeout"),
        ({"auth": ("a:b", "c")}, "not allowed in credentials"),
        ({"params": {"key": PASSWORD}}, "addresses are logged"),
        ({"headers": {"X-A": "y" * 40_000}}, "32,768 are allowed"),
        ({"headers": {"X-A": 1.5, "X-B": ["a"]}}, "headers"),
        ({"errback": 3}, "errback"),
    ],
)
def test_what_cannot_be_sent_is_refused_in_words(sending, words):
    assert words in fault_of(Request(url=URL, **sending))


def test_equal_posts_are_one_task_and_different_ones_two():
    def post(page: int, **more) -> Request:
        return Request(url=URL, method="POST", json={"page": page}, **more)

    found = judged(Request(url=URL), post(1), post(1, headers={"X": "y"}), post(2), Request(url=URL, method="HEAD"))

    assert len(found.candidates) == 4
    assert found.duplicates == 1
    assert found.candidates[0].fingerprint == UrlRules().fingerprint(URL)
    named = judged(post(1), post(1, headers={"x": "y"}), Request(url=URL), identity_headers=["X"])
    assert len(named.candidates) == 3


def test_a_get_with_headers_is_the_same_page_as_a_plain_one():
    found = judged(Request(url=URL), Request(url=URL, headers={"Accept": "text/csv"}, auth=("a", "b")))

    assert (len(found.candidates), found.duplicates) == (1, 1)


def test_an_address_that_is_known_may_still_be_posted_to():
    admission = Admission(LinkScope(), UrlRules())
    first = admission.judge([Request(url=URL)])
    from gossamer.frontier.contract import Added

    admission.confirm(first, Added(queued=1))

    assert len(admission.judge([Request(url=URL), Request(url=URL, method="POST", form={"a": 1})]).candidates) == 1


def test_a_request_outlives_its_page_as_json_without_its_secrets():
    request = Request(url=URL, method="POST", params={"v": 1}, json={"p": PASSWORD}, errback="lost", priority=3)

    text = msgspec.json.encode([request.storable()])

    assert SECRET.encode() not in text
    (back,) = msgspec.json.decode(text, type=list[Request])
    assert judged(back).candidates == judged(request).candidates
    assert fault_of(back) == ""

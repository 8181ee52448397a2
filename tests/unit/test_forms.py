"""Forms: what is sent is what Chromium sends (tests/sites/forms.json); what cannot be filled in is said."""

from __future__ import annotations

import time

import msgspec
import pytest

from gossamer.errors import ParseFailed
from gossamer.model.page import Headers, Snapshot
from gossamer.model.secret_text import SecretText
from gossamer.model.task import fault_of
from gossamer.parse.page import Page
from tests.sites.forms import CASES, PAGE, Case, told

HERE = f"https://club.example{PAGE}"


def page_of(markup: str | bytes, charset: str = "utf-8") -> Page:
    headers = Headers([("Content-Type", f"text/html; charset={charset}")])
    body = markup.encode() if isinstance(markup, str) else markup
    return Page(Snapshot(url=HERE, requested_url=HERE, status=200, headers=headers, body=body, fetched_at=0.0))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_form_is_sent_as_chromium_sends_it(case: Case) -> None:
    form = page_of(case.source, case.charset).forms[0]
    press = tuple(case.press) if isinstance(case.press, list) else case.press
    sent = form.submission(case.values, press=press)
    target = sent.url.removeprefix("https://club.example")
    assert told(sent.method, target, sent.content_type, sent.body) == case.sent


LOGIN = """
<form id=search action=/search><input name=q></form>
<form id=login method=post action=/login>
  <input type=hidden name=csrf value=t0ken><input name=user><input type=password name=password>
  <select name=club><option value=a>Anglers<option value=b disabled>Bakers</select>
  <input type=radio name=stay value=yes><input type=radio name=stay value=no checked>
  <input type=number name=age><input name=locked disabled><input type=file name=photo>
  <button name=do value=in>Log in</button><button name=do value=new>Join</button>
</form>"""


def test_a_form_is_found_by_a_selector_a_field_or_an_element() -> None:
    page = page_of(LOGIN)
    found = [page.form("#login"), page.form("input[name=user]"), page.form(page.css("form")[1])]
    assert [form.id for form in found] == ["login"] * 3
    assert page_of("<form id=a></form>").form().id == "a"
    assert list(page.form("#login").fields) == ["csrf", "user", "password", "club", "stay", "age", "locked", "photo"]


@pytest.mark.parametrize("which", ["#logon", None, "p"])
def test_a_form_that_is_not_there_is_answered_with_those_that_are(which: str | None) -> None:
    with pytest.raises(ParseFailed, match=r"form#search \(GET /search: q\); form#login \(POST /login: csrf, user"):
        page_of(LOGIN).form(which)
    with pytest.raises(ParseFailed, match="no form at all"):
        page_of("<p>Hello</p>").form(which)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"usr": "a"}, r"no field 'usr'. Did you mean 'user'\? It has age, club, .* pass add=\{'usr'"),
        ({"club": "c"}, r"'club' of form#login of https://\S+ has no 'c'.* It has 'a'"),
        ({"club": "Bakers"}, "has no 'Bakers'"),
        ({"club": ["a", "b"]}, "One option of 'club'"),
        ({"stay": "maybe"}, "'stay' .* has no 'maybe'.* It has 'yes', 'no'"),
        ({"stay": True}, "2 boxes 'stay'.*: 'yes', 'no'"),
        ({"stay": ["yes", "no"]}, "Only one of the radio buttons"),
        ({"age": "old"}, "'old' is no number"),
        ({"user": True}, "takes a text or a number, not a bool"),
        ({"user": ["a", "b"]}, "takes a text or a number, not a list"),
        ({"locked": "a"}, "'locked' .* is disabled"),
        ({"photo": 5}, "'photo' .* is a file"),
    ],
)
def test_a_value_that_a_visitor_could_not_give_is_refused(values: dict[str, object], words: str) -> None:
    with pytest.raises(ParseFailed, match=words):
        page_of(LOGIN).form("#login").submission(values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("press", "words"), [("do", "means several"), ("Leave", "is no button of"), (("do", ""), "no b")]
)
def test_a_button_that_is_not_clear_is_answered_with_those_that_are(press: object, words: str) -> None:
    with pytest.raises(ParseFailed, match=rf"{words}.* 'Log in' \(name 'do', value 'in'\)"):
        page_of(LOGIN).form("#login").submission(press=press)  # type: ignore[arg-type]


def test_what_the_page_knows_nothing_of_is_added_on_purpose() -> None:
    form = page_of("<form method=post><select name=city></select><input name=q value=1></form>").form()
    sent = form.submission({"city": None, "q": None}, add={"city": "Ulm", "x": [1, 2]})
    assert sent.body == b"city=Ulm&x=1&x=2"


def test_files_are_sent_with_their_names_and_equal_forms_are_equal() -> None:
    form = page_of("<form method=post enctype=multipart/form-data><input type=file name=f multiple></form>").form()
    files = [b"one", ("b.txt", b"two", "text/plain")]
    sent = form.submission({"f": files})
    assert sent == form.submission({"f": files})
    assert b'name="f"; filename="b.txt"\r\nContent-Type: text/plain\r\n\r\ntwo\r\n' in sent.body
    assert b'name="f"; filename="f"\r\nContent-Type: application/octet-stream\r\n\r\none\r\n' in sent.body
    assert sent.content_type != form.submission({"f": b"one"}).content_type


@pytest.mark.parametrize(
    "markup",
    [
        "<form>" * 50_000,
        "<form><table>" * 20_000 + "<input name=a>" * 19_000,
        "<fieldset disabled>" * 5_000 + "<form>" + "<input name=a form=f>" * 19_000,
        "<form><select name=a>" + "<option>x" * 200_000,
    ],
    ids=["forms", "tables", "fieldsets", "options"],
)
def test_a_hostile_page_is_read_in_time(markup: str) -> None:
    began = time.process_time()
    page_of(markup).forms[0].submission({})
    assert time.process_time() - began < 20


def test_a_page_with_too_many_fields_is_refused() -> None:
    with pytest.raises(ParseFailed, match="more than 20,000 fields"):
        page_of("<form>" + "<input>" * 20_001).form()


def test_a_form_becomes_a_request_as_a_browser_sends_it() -> None:
    page = page_of(LOGIN)
    request = page.submit("#login", {"user": "ada"}, "inside", press="Join", priority=3, data={"n": 1}, errback="lost")
    options = request.options()
    assert (request.url, request.kind, request.priority, request.data) == (
        "https://club.example/login", "inside", 3, {"n": 1},
    )  # fmt: skip
    assert (options.method, options.errback) == ("POST", "lost")
    assert dict(options.headers) == {
        "Content-Type": "application/x-www-form-urlencoded", "Origin": "https://club.example", "Referer": HERE,
    }  # fmt: skip
    assert options.body is not None
    assert options.body.content(lambda name: "") == b"csrf=t0ken&user=ada&password=&club=a&stay=no&age=&photo=&do=new"
    assert fault_of(request) == ""
    search = page.submit(page.form("#search"), {"q": "x y"})
    assert (search.url, search.is_plain) == ("https://club.example/search?q=x+y", True)


@pytest.mark.parametrize(
    ("enctype", "sent"),
    [("", b"a=x+y%26z"), ("text/plain", b"a=x y&z\r\n"), ("multipart/form-data", b"\r\n\r\nx y&z\r\n")],
)
def test_a_secret_in_a_form_travels_by_name(enctype: str, sent: bytes) -> None:
    form = page_of(f"<form method=post enctype='{enctype}'><input type=password name=a></form>").form()
    secret = SecretText("CLUB", lambda name: "x y&z")
    body = form.request({"a": secret}).options().body
    assert body is not None
    assert b"x y" not in msgspec.json.encode(body)
    assert sent in body.content({"CLUB": "x y&z"}.__getitem__)


def test_a_secret_is_not_put_into_an_address() -> None:
    form = page_of("<form><input name=a></form>").form()
    with pytest.raises(ParseFailed, match="would be part of the address"):
        form.submission({"a": SecretText("CLUB", lambda name: "x")})


@pytest.mark.parametrize(
    ("action", "allowed"),
    [
        ("/login", True), ("https://id.club.example/login", True), ("https://evil.example/login", False),
        ("//evil.example/", False), ("http://club.example/login", False), ("https://club.example.evil.example/", False),
        ("https://club.example@evil.example/", False),
    ],
)  # fmt: skip
def test_a_page_does_not_say_that_a_secret_goes_elsewhere(action: str, allowed: bool) -> None:
    """However it says so: in the form, by a button, or by its base."""
    secret = SecretText("CLUB", lambda name: "x")
    for markup in (
        f"<form method=post action='{action}'><input name=a></form>",
        f"<form method=post action=/login><input name=a><button formaction='{action}'>Go</button></form>",
    ):
        form = page_of(markup).form()
        assert form.submission({"a": "no secret"}).method == "POST"
        if allowed:
            assert form.submission({"a": secret}).method == "POST"
        else:
            with pytest.raises(ParseFailed, match="would send a secret to"):
                form.submission({"a": secret})

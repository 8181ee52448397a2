"""URLs: what browsers open, what counts as the same page, which site it belongs to."""

from __future__ import annotations

import ftplib
import imaplib
import json
import poplib
import smtplib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import InvalidUrl
from gossamer.model.url import (
    UrlRules,
    bad_port_of,
    host_of,
    looks_endless,
    origin_of,
    parse_url,
    shape_of,
    site_of,
    site_of_host,
)
from gossamer.settings import DEFAULT_TRACKING
from tests.corpora import corpus

RULES = UrlRules(tracking=DEFAULT_TRACKING)


def is_web(href: str) -> bool:
    return href.startswith(("http://", "https://"))


def test_every_web_address_of_the_standards_test_set_parses_as_expected_or_is_refused():
    cases = [case for case in json.loads(corpus("wpt-url", "urltestdata.json").read_text()) if isinstance(case, dict)]
    wrong = []
    checked = 0
    for case in cases:
        expected = None if case.get("failure") else case["href"]
        if expected is not None and not is_web(expected):
            expected = None  # other schemes are refused
        checked += 1
        try:
            found = parse_url(case["input"], case.get("base"))
        except InvalidUrl:
            found = None
        if found != expected:
            wrong.append((case["input"], case.get("base"), expected, found))
    assert wrong == []
    assert checked == 891


BASE = "https://shop.example/a/b?c#d"


@pytest.mark.parametrize(
    ("text", "href"),
    [
        # against a base
        ("", "https://shop.example/a/b?c"),
        ("x", "https://shop.example/a/x"),
        ("./x/../y", "https://shop.example/a/y"),
        ("../../../x", "https://shop.example/x"),
        ("%2E%2e/x", "https://shop.example/x"),
        ("/x//y", "https://shop.example/x//y"),
        ("?x=1", "https://shop.example/a/b?x=1"),
        ("#x", "https://shop.example/a/b?c#x"),
        ("//cdn.example/x", "https://cdn.example/x"),
        ("\\\\cdn.example\\x", "https://cdn.example/x"),
        ("https:x", "https://shop.example/a/x"),
        ("http:x", "http://x/"),
        ("http:///x.example/y", "http://x.example/y"),
        # what is trimmed, and what is left out
        (" \t https://shop.example/ \n", "https://shop.example/"),
        ("ht\ntps://shop.ex\tample/a\rb", "https://shop.example/ab"),
        # letters and escapes
        ("HTTPS://SHOP.Example/A", "https://shop.example/A"),
        ("https://shop.example/a b", "https://shop.example/a%20b"),
        ("https://shop.example/é?é#é", "https://shop.example/%C3%A9?%C3%A9#%C3%A9"),
        ("https://shop.example/%zz%4", "https://shop.example/%zz%4"),
        ("https://shop.example/?a'b\"c<d>", "https://shop.example/?a%27b%22c%3Cd%3E"),
        ("https://münchen.example/", "https://xn--mnchen-3ya.example/"),
        ("https://shop\uff0eexample/", "https://shop.example/"),
        ("https://%73hop.example/", "https://shop.example/"),
        # ports and numbers
        ("https://shop.example:443/", "https://shop.example/"),
        ("https://shop.example:0080/", "https://shop.example:80/"),
        ("https://shop.example:/", "https://shop.example/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://0300.0250.1/", "http://192.168.0.1/"),
        ("http://[0:0:0::1]/", "http://[::1]/"),
        ("http://[::ffff:1.2.3.4]/", "http://[::ffff:102:304]/"),
        ("https://us%40er:p%3Aw@shop.example/", "https://us%40er:p%3Aw@shop.example/"),
        ("https://a@b@shop.example/", "https://a%40b@shop.example/"),
        # nothing that can be opened
        ("https://", None),
        ("https://shop .example/", None),
        ("https://shop.example:65536/", None),
        ("https://shop.example:x/", None),
        ("http://256.1.1.1/", None),
        ("http://1.2.3.08/", None),
        ("http://[::1", None),
        ("http://[1:2]/", None),
        ("https://a%00b/", None),
        ("https://a<b>/", None),
        ("mailto:ada@shop.example", None),
        ("javascript:void(0)", None),
        ("data:text/html,x", None),
        ("ftp://shop.example/", None),
    ],
)
def test_an_address_is_read_as_browsers_read_it(text, href):
    try:
        found = parse_url(text, BASE)
    except InvalidUrl:
        found = None
    assert found == href


@pytest.mark.parametrize(
    "port", [ftplib.FTP_PORT, smtplib.SMTP_PORT, poplib.POP3_PORT, imaplib.IMAP4_PORT, smtplib.SMTP_SSL_PORT]
)
def test_the_port_of_another_protocol_is_no_place_for_a_page(port):
    assert bad_port_of(f"http://shop.example:{port}/") == port


@given(st.sampled_from([80, 443]) | st.integers(1024, 1500) | st.integers(7000, 10_000))
def test_ports_on_which_web_servers_listen_are_none_of_those(port):
    assert bad_port_of(f"http://shop.example:{port}/") is None


def test_registrable_domains_agree_with_the_list_makers_tests():
    lines = corpus("psl", "tests.txt").read_text(encoding="utf-8").splitlines()
    checked = 0
    for line in lines:
        words = line.split()
        if len(words) != 2 or line.startswith("//") or words[1] == "null":
            continue
        host = parse_url(f"http://{words[0]}/").removeprefix("http://").rstrip("/")
        expected = parse_url(f"http://{words[1]}/").removeprefix("http://").rstrip("/")
        assert site_of_host(host) == expected, line
        checked += 1
    assert checked > 40


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("HTTP://Example.COM:80/a", "http://example.com/a"),
        ("https://example.com:443/", "https://example.com"),
        ("https://example.com/a#part", "https://example.com/a"),
        ("https://example.com/a?b=1&a=2", "https://example.com/a?a=2&b=1"),
        ("https://example.com/a?utm_source=x&id=3&fbclid=y", "https://example.com/a?id=3"),
        ("https://example.com/a?", "https://example.com/a"),
        ("https://example.com/a?x=1&&y=2&", "https://example.com/a?x=1&y=2"),
        ("https://example.com/%7euser/%41", "https://example.com/~user/A"),
        ("https://example.com/a%2fb", "https://example.com/a%2Fb"),
        ("https://user:secret@example.com/", "https://example.com/"),
        ("https://example.com./a", "https://example.com/a"),
        ("https://example.com/a/../b/./c", "https://example.com/b/c"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://example.com/a?UTM_Campaign=z", "https://example.com/a"),
    ],
)
def test_addresses_of_one_page_have_one_fingerprint(one, other):
    assert RULES.fingerprint(parse_url(one)) == RULES.fingerprint(parse_url(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://example.com/a", "https://example.com/a/"),
        ("https://example.com/a", "http://example.com/a"),
        ("https://example.com/A", "https://example.com/a"),
        ("https://example.com/?a=1&a=2", "https://example.com/?a=2&a=1"),
        ("https://example.com/?a", "https://example.com/?a=1"),
        ("https://example.com/a%2Fb", "https://example.com/a/b"),
        ("https://www.example.com/", "https://example.com/"),
        ("https://example.com:8443/", "https://example.com/"),
    ],
)
def test_addresses_of_different_pages_differ(one, other):
    assert RULES.fingerprint(parse_url(one)) != RULES.fingerprint(parse_url(other))


def test_the_trailing_slash_goes_by_policy_only():
    strip = UrlRules(trailing_slash="strip")
    assert strip.canonical("https://example.com/a/?b=1") == "https://example.com/a?b=1"
    assert strip.canonical(parse_url("https://example.com")) == "https://example.com/"


@given(st.text(max_size=60))
def test_canonical_form_is_idempotent_and_itself_an_address(text):
    try:
        href = parse_url(text, "https://example.com/base/page?x=1")
    except InvalidUrl:
        return
    for rules in (RULES, UrlRules(trailing_slash="strip")):
        once = rules.canonical(href)
        assert rules.canonical(once) == once
        assert rules.canonical(parse_url(once)) == once


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "file:///etc/passwd", "javascript:alert(1)", "data:text/html,x", "mailto:a@b.c", "http://",
     "http://a b/", "http://[::1", "http://exa\udcffmple.com/", "ftp://example.com/", "//example.com/"],
)  # fmt: skip
def test_what_no_crawler_can_open_is_refused_with_a_reason(text):
    with pytest.raises(InvalidUrl, match=r"URL|address"):
        parse_url(text)


def test_line_breaks_never_survive_in_an_address():
    assert parse_url("http://example.com/a\r\nX-Evil: 1") == "http://example.com/aX-Evil:%201"


@pytest.mark.parametrize(
    ("url", "site"),
    [
        ("https://shop.example.co.uk/x", "example.co.uk"),
        ("https://example.com:8080/", "example.com"),
        ("http://localhost:8000/", "localhost"),
        ("http://site3.localhost:99/", "site3.localhost"),
        ("http://127.0.0.1:5000/", "127.0.0.1"),
        ("http://[::1]:5000/", "::1"),
        ("https://user.github.io/", "user.github.io"),
        ("https://co.uk/", "co.uk"),
    ],
)
def test_limits_are_kept_for_the_registrable_domain(url, site):
    assert site_of(url) == site


def test_host_and_origin_leave_out_what_is_not_theirs():
    url = "https://user:pw@shop.example.com:8443/a?b#c"
    assert host_of(url) == "shop.example.com"
    assert origin_of(url) == "https://shop.example.com:8443"


def test_shapes_blank_numbers_and_parameter_values():
    assert shape_of("https://a.test/p/123/x45?page=7&sort=asc") == "/p/{n}/x{n}?page&sort"
    assert shape_of("https://a.test/p/9/x1?sort=desc&page=1") == shape_of("https://a.test/p/123/x45?page=7&sort=asc")


@pytest.mark.parametrize(
    ("url", "endless"),
    [
        ("https://a.test/a/a/a", True),
        ("https://a.test/x/y/x/y/x/y/", True),
        ("https://a.test/" + "d/e" * 40, True),
        ("https://a.test/2024/01/01", False),
        ("https://a.test/a/b/a/b", False),
        ("https://a.test/", False),
        ("https://a.test//x//y//", False),
    ],
)
def test_paths_that_a_loop_made_are_recognised(url, endless):
    assert looks_endless(url, max_segments=30) is endless

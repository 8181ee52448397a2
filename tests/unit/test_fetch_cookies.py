from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.clock import VirtualClock
from gossamer.fetch.cookies import CookieJar, read_date
from gossamer.model.page import Headers


def a_jar(**bounds: int) -> tuple[CookieJar, VirtualClock]:
    clock = VirtualClock()
    return CookieJar(clock, **bounds), clock


def set_cookies(jar: CookieJar, url: str, *lines: str) -> bool:
    return jar.absorb(url, Headers(("Set-Cookie", line) for line in lines))


def test_an_empty_jar_has_nothing_to_send() -> None:
    jar, _ = a_jar()
    assert jar.header_for("https://a.example/") is None
    assert jar.absorb("https://a.example/", Headers([("X", "y")])) is False


@pytest.mark.parametrize("line", ["", "=", " ; Secure", "=; Path=/"])
def test_a_line_without_name_and_value_is_no_cookie(line: str) -> None:
    jar, _ = a_jar()
    assert not set_cookies(jar, "https://a.example/", line)
    assert jar.header_for("https://a.example/") is None


def test_a_cookie_without_domain_goes_back_to_its_host_only() -> None:
    jar, _ = a_jar()
    assert set_cookies(jar, "https://www.shop.example/", "a=1")
    assert jar.header_for("https://www.shop.example/x") == "a=1"
    assert jar.header_for("https://shop.example/") is None
    assert jar.header_for("https://api.www.shop.example/") is None


def test_a_domain_cookie_goes_to_the_whole_site() -> None:
    jar, _ = a_jar()
    set_cookies(jar, "https://www.shop.example/", "a=1; Domain=.Shop.Example")
    for url in ("https://shop.example/", "https://www.shop.example/", "http://api.shop.example:8080/"):
        assert jar.header_for(url) == "a=1"
    assert jar.header_for("https://myshop.example/") is None


@pytest.mark.parametrize(
    ("url", "domain"),
    [
        ("https://www.shop.co.uk/", "co.uk"),
        ("https://www.shop.com/", "com"),
        ("https://me.github.io/", "github.io"),
        ("https://shop.example/", "other.example"),
        ("https://shop.example/", "www.shop.example"),
        ("https://evilshop.example/", "shop.example"),
        ("http://10.0.0.1/", "0.0.1"),
    ],
)
def test_nobody_sets_cookies_for_others(url: str, domain: str) -> None:
    jar, _ = a_jar()
    assert not set_cookies(jar, url, f"a=1; Domain={domain}")
    assert len(jar) == 0


def test_a_public_suffix_keeps_its_own_cookie_to_itself() -> None:
    jar, _ = a_jar()
    set_cookies(jar, "https://github.io/", "a=1; Domain=github.io")
    assert jar.header_for("https://me.github.io/") is None


@pytest.mark.parametrize(
    ("path", "sent_to", "not_to"),
    [
        ("/docs", ["/docs", "/docs/", "/docs/x?y"], ["/", "/docsy", "/Docs"]),
        ("/docs/", ["/docs/", "/docs/x"], ["/docs"]),
        ("docs", ["/a/b", "/a/", "/a"], ["/b"]),  # not absolute: the folder of the page that set it
    ],
)
def test_paths_match_whole_segments(path: str, sent_to: list[str], not_to: list[str]) -> None:
    jar, _ = a_jar()
    set_cookies(jar, "https://a.example/a/page", f"k=1; Path={path}")
    assert [p for p in sent_to + not_to if jar.header_for(f"https://a.example{p}")] == sent_to


def test_longer_paths_come_first() -> None:
    jar, _ = a_jar()
    set_cookies(jar, "https://a.example/", "a=1; Path=/", "b=2; Path=/x/y", "c=3; Path=/x")
    assert jar.header_for("https://a.example/x/y") == "b=2; c=3; a=1"


def test_a_secure_cookie_never_travels_in_the_clear() -> None:
    jar, _ = a_jar()
    assert not set_cookies(jar, "http://a.example/", "s=1; Secure")
    set_cookies(jar, "https://a.example/", "s=1; Secure")
    assert jar.header_for("http://a.example/") is None
    assert jar.header_for("https://a.example/") == "s=1"


@pytest.mark.parametrize(
    ("line", "lives"),
    [
        ("a=1", 10**9),
        ("a=1; Max-Age=60", 60),
        ("a=1; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT", 60),
        ("a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=60", 60),
        ("a=1; Expires=Fri, 15-Jan-2027 08:01:00 GMT", 60),
        ("a=1; Expires=Fri, 15-Jan-27 08:01:00 GMT", 60),
        ("a=1; Expires=garbage; Max-Age=nonsense", 10**9),
        ("a=1; Max-Age=99999999999999999999999", 400 * 86_400),
    ],
)
def test_cookies_live_as_long_as_they_say(line: str, lives: int) -> None:
    jar, clock = a_jar()
    assert set_cookies(jar, "https://a.example/", line)
    clock.advance(lives - 1)
    assert jar.header_for("https://a.example/") == "a=1"
    clock.advance(2)
    assert (jar.header_for("https://a.example/") is None) == (lives < 10**9)
    assert len(jar) == (0 if lives < 10**9 else 1)


@pytest.mark.parametrize(
    ("written", "year"),
    [("00", 2000), ("69", 2069), ("70", 1970), ("99", 1999), ("100", None), ("1600", None), ("1601", 1601)],
)
def test_a_year_of_two_digits_is_the_one_that_browsers_read(written: str, year: int | None) -> None:
    found = read_date(f"Thu, 01 Jan {written} 00:00:00 GMT")
    assert found == (datetime(year, 1, 1, tzinfo=UTC).timestamp() if year is not None else None)


@pytest.mark.parametrize(
    ("time", "is_one"), [("23:59:59", True), ("24:00:00", False), ("23:60:00", False), ("23:59:60", False)]
)
def test_a_time_that_no_clock_shows_is_no_date(time: str, is_one: bool) -> None:
    assert (read_date(f"Fri, 15 Jan 2027 {time} GMT") is not None) == is_one


@pytest.mark.parametrize(
    "line",
    [
        "a=; Max-Age=0",
        "a=x; Max-Age=-5",
        "a=; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
        "a=; Expires=Thu, 01-Jan-70 00:00:00 GMT",
    ],
)
def test_a_cookie_can_be_taken_back(line: str) -> None:
    jar, _ = a_jar()
    assert not set_cookies(jar, "https://a.example/", line)
    set_cookies(jar, "https://a.example/", "a=1")
    assert set_cookies(jar, "https://a.example/", line)
    assert jar.header_for("https://a.example/") is None


def test_only_a_new_value_is_a_change() -> None:
    jar, _ = a_jar()
    assert set_cookies(jar, "https://a.example/", "a=1")
    assert not set_cookies(jar, "https://a.example/", "a=1; Max-Age=100")
    assert set_cookies(jar, "https://a.example/", "a=2")


@pytest.mark.parametrize("line", ["", ";", "=", "a=b\x00c", "a=b\r\nX: y", "a" * 5000 + "=1", "a=" + "b" * 5000])
def test_malformed_cookies_are_ignored(line: str) -> None:
    jar, _ = a_jar()
    assert not set_cookies(jar, "https://a.example/", line)
    assert len(jar) == 0


def test_a_site_loses_its_oldest_cookies_beyond_its_bound() -> None:
    jar, _ = a_jar(max_per_site=3)
    for i in range(10):
        set_cookies(jar, "https://a.example/", f"k{i}=v")
    assert jar.header_for("https://a.example/") == "k7=v; k8=v; k9=v"
    assert len(jar) == 3


def test_the_site_unused_for_longest_is_forgotten_beyond_the_total() -> None:
    jar, _ = a_jar(max_total=4)
    for i in range(4):
        set_cookies(jar, f"https://s{i}.example/", "a=1")
    jar.header_for("https://s0.example/")
    set_cookies(jar, "https://s9.example/", "a=1")
    kept = [i for i in (0, 1, 2, 3, 9) if jar.header_for(f"https://s{i}.example/")]
    assert kept == [0, 2, 3, 9]
    assert len(jar) == 4


def test_the_header_stays_short_whatever_was_set() -> None:
    jar, _ = a_jar()
    for i in range(50):
        set_cookies(jar, "https://a.example/", f"k{i}={'v' * 4000}")
    header = jar.header_for("https://a.example/")
    assert header is not None
    assert len(header) <= 16 * 1024


@given(st.text(), st.sampled_from(["https://a.example/x/y", "http://10.0.0.1/", "http://[::1]:80/"]))
def test_no_line_raises_or_can_be_injected(line: str, url: str) -> None:
    jar, _ = a_jar()
    set_cookies(jar, url, line)
    header = jar.header_for(url) or ""
    assert not set("\r\n\x00") & set(header)


@pytest.mark.parametrize(
    ("url", "line", "kept"),
    [
        ("https://a.example/x/", "__Secure-k=1; Secure; Domain=a.example", True),
        ("https://a.example/", "__Secure-k=1", False),
        ("https://a.example/x/", "__Host-k=1; Secure; Path=/", True),
        ("https://a.example/x/", "__host-k=1; Secure; Path=/", True),
        ("https://a.example/", "__HOST-k=1; Path=/", False),
        ("https://a.example/", "__Host-k=1; Secure", False),  # the path must be said
        ("https://a.example/", "__Host-k=1; Secure; Path=/; Domain=a.example", False),
        ("https://a.example/", "=__Host-k=1; Secure; Path=/", False),  # it would be sent as if it were one
        ("https://a.example/", "__SECURE-k; Secure", False),
    ],
)
def test_a_name_promises_only_what_holds(url: str, line: str, kept: bool) -> None:
    jar, _ = a_jar()
    assert set_cookies(jar, url, line) is kept


def test_an_answer_in_the_clear_does_not_touch_what_was_set_in_safety() -> None:
    jar, _ = a_jar()
    set_cookies(jar, "https://www.a.example/", "s=1; Secure; Domain=a.example; Path=/in")
    assert not set_cookies(jar, "http://www.a.example/", "s=2; Path=/in/deeper")
    assert not set_cookies(jar, "http://a.example/", "s=2; Path=/in; Max-Age=0")
    assert set_cookies(jar, "http://a.example/", "s=2; Path=/", "t=2; Path=/in")
    assert jar.header_for("https://www.a.example/in/deeper") == "s=1"


def test_flags_are_noted_and_values_never_print() -> None:
    jar, _ = a_jar()
    set_cookies(jar, "https://a.example/", "k=hidden; HttpOnly; SameSite=lAx; Secure", "l=hidden; SameSite=Whatever")
    strict, plain = jar.of_site("https://a.example/")
    assert (strict.http_only, strict.secure, strict.same_site) == (True, True, "Lax")
    assert (plain.http_only, plain.secure, plain.same_site) == (False, False, "")
    assert "hidden" not in f"{jar.all()!r} {jar.all()}"


def test_a_bomb_of_cookies_bursts_outside() -> None:
    jar, _ = a_jar()
    bomb = [f"k={'x' * 1_000_000}"] * 20 + [f"n{number}={'x' * 4000}" for number in range(10_000)]
    for number in range(30):
        set_cookies(jar, f"https://s{number}.example/", *bomb)
        set_cookies(jar, f"https://s{number}.example/", *(f"n{one}={'x' * 4000}" for one in range(100)))
    assert sum(cookie.size for cookie in jar.all()) <= 4 << 20


def test_changes_are_told_cookie_by_cookie_and_survive_a_reload() -> None:
    jar = CookieJar(VirtualClock(), notes_changes=True)
    set_cookies(jar, "https://a.example/", "a=1", "b=1", "c=1")
    stored = jar.all()
    assert len(jar.take_changes()) == 3
    set_cookies(jar, "https://a.example/", "a=2", "b=; Max-Age=0", "c=1")
    jar.replace(stored)
    assert jar.header_for("https://a.example/") == "a=2; c=1"
    changes = jar.take_changes()
    assert {key[2]: cookie.value if cookie else None for key, cookie in changes.items()} == {"a": "2", "b": None}
    assert jar.take_changes() == {}

"""Where proxies come from: every form, every source, and what is said when something is wrong with them."""

from __future__ import annotations

import pytest

from gossamer.errors import Misconfigured
from gossamer.model.route import Proxy
from gossamer.routing.proxies.sources import listed_proxies, parse_proxy
from gossamer.settings import ProxyPool, load
from gossamer.units import Secret

PASSWORD = "s3cr3t-pa55"


def read(text: str) -> Proxy:
    return parse_proxy(text, pool="p", where="here")


def refusal(terms: ProxyPool, folder, environ=None) -> str:
    with pytest.raises(Misconfigured) as refused:
        listed_proxies("fast", terms, folder, environ or {})
    assert "fast" in str(refused.value)
    assert PASSWORD not in str(refused.value)
    assert PASSWORD not in repr(refused.value)
    assert refused.value.__cause__ is None or PASSWORD not in str(refused.value.__cause__)
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://proxy.example:8080", ("http", "proxy.example", 8080, "", "")),
        ("http://ann:secret@proxy.example:8080", ("http", "proxy.example", 8080, "ann", "secret")),
        ("HTTP://ann:secret@Proxy.Example:8080/", ("http", "proxy.example", 8080, "ann", "secret")),
        ("https://ann:secret@proxy.example:443", ("https", "proxy.example", 443, "ann", "secret")),
        ("socks5://ann:secret@proxy.example:1080", ("socks5", "proxy.example", 1080, "ann", "secret")),
        ("socks5h://proxy.example:1080", ("socks5", "proxy.example", 1080, "", "")),
        ("203.0.113.5:3128", ("http", "203.0.113.5", 3128, "", "")),
        ("proxy.example:8080:ann:secret", ("http", "proxy.example", 8080, "ann", "secret")),
        ("proxy.example:8080:ann:sec:ret", ("http", "proxy.example", 8080, "ann", "sec:ret")),
        ("proxy.example:8080:ann:100%25", ("http", "proxy.example", 8080, "ann", "100%25")),
        ("ann:secret@proxy.example:8080", ("http", "proxy.example", 8080, "ann", "secret")),
        ("http://ann@proxy.example:8080", ("http", "proxy.example", 8080, "ann", "")),
        ("http://a%40b:p%3A%2F%25w@proxy.example:8080", ("http", "proxy.example", 8080, "a@b", "p:/%w")),
        ("http://ann:p@ss@proxy.example:8080", ("http", "proxy.example", 8080, "ann", "p@ss")),
        ("http://ann:a/b#c?d@proxy.example:8080", ("http", "proxy.example", 8080, "ann", "a/b#c?d")),
        ("socks5://ann:secret@[2001:DB8::1]:1080", ("socks5", "2001:db8::1", 1080, "ann", "secret")),
        ("[2001:db8::1]:3128", ("http", "2001:db8::1", 3128, "", "")),
        ("[2001:db8::1]:3128:ann:secret", ("http", "2001:db8::1", 3128, "ann", "secret")),
    ],
)
def test_every_form_is_read(text, expected):
    found = read(text)

    assert (found.scheme, found.host, found.port, found.username, found.password) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"socks4://ann:{PASSWORD}@proxy.example:1080", "SOCKS4"),
        (f"socks4a://ann:{PASSWORD}@proxy.example:1080", "SOCKS5"),
        (f"ftp://ann:{PASSWORD}@proxy.example:21", "scheme is unknown"),
        (f"{PASSWORD}://proxy.example:21", "scheme is unknown"),
        (f"http://ann:{PASSWORD}@proxy.example", "port is missing"),
        (f"http://ann:{PASSWORD}@proxy.example:", "port is missing"),
        (f"http://ann:{PASSWORD}@proxy.example:port", "1 to 65535"),
        (f"http://ann:{PASSWORD}@proxy.example:0", "1 to 65535"),
        (f"http://ann:{PASSWORD}@proxy.example:65536", "1 to 65535"),
        (f"http://ann:{PASSWORD}@proxy.example:８０", "1 to 65535"),
        (f"http://ann:{PASSWORD}@:8080", "no valid host"),
        (f"http://ann:{PASSWORD}@pro xy:8080", "no valid host"),
        (f"http://ann:{PASSWORD}@proxy.example:8080/path", "1 to 65535"),
        (f"http://ann:{PASSWORD}@2001:db8::1:80", "brackets"),
        (f"http://ann:{PASSWORD}@[2001:db8::zz]:80", "IPv6"),
        (f"http://ann:{PASSWORD}@[2001:db8::1]80", "colon"),
        (f"http://ann:{PASSWORD}@[2001:db8::1]", "port is missing"),
        (f"proxy.example:8080:{PASSWORD}", "colons"),
        (f"http://ann:{PASSWORD}%0d%0aX: y@proxy.example:80", "cannot be sent"),
        (PASSWORD, "port is missing"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line_and_without_the_secret(tmp_path, text, words):
    (tmp_path / "list.txt").write_text(f"# a comment\n\nhttp://good.example:1\n{text}\n", encoding="utf-8")

    told = refusal(ProxyPool(file="list.txt"), tmp_path)

    assert "list.txt line 4" in told
    assert words in told


def test_proxies_come_from_settings_file_secret_and_variable_each_once(tmp_path):
    (tmp_path / "list.txt").write_bytes(
        b"\xef\xbb\xbf# fast ones\r\n\r\n  a.example:1  \r\n"
        b"b.example:2 # in the cellar\r\n#c.example:3\r\na.example:1\r\n"
    )
    (tmp_path / "secret").write_text("socks5://ann:x%23y@d.example:4\n", encoding="utf-8")
    terms = ProxyPool(
        urls=(Secret("http://e.example:5"), Secret("a.example:1")), file="list.txt", secret="secret", env="LIST"
    )

    proxies = listed_proxies("fast", terms, tmp_path, {"LIST": "f.example:6, g.example:7\n h.example:8,,"})

    assert [one.host for one in proxies] == [f"{letter}.example" for letter in "eabdfgh"]
    assert proxies[3].password == "x#y"
    assert proxies[0].name == "http://e.example:5"
    assert {one.pool for one in proxies} == {"fast"}


def test_proxies_that_share_an_address_have_names_of_their_own_that_tell_nothing(tmp_path):
    terms = ProxyPool(urls=tuple(Secret(f"http://gate.example:1:ann-{n}:{PASSWORD}"[7:]) for n in range(3)))

    proxies = listed_proxies("fast", terms, tmp_path, {})
    again = listed_proxies("fast", ProxyPool(urls=terms.urls[::-1]), tmp_path, {})

    names = [one.name for one in proxies]
    assert len(set(names)) == 3
    assert all(name.startswith("http://gate.example:1~") for name in names)
    assert not any("ann" in name or PASSWORD in name for name in names)
    assert [one.name for one in again] == names[::-1]


def test_a_pool_without_a_source_is_told_what_to_set(tmp_path):
    told = refusal(ProxyPool(), tmp_path)

    assert "no source" in told
    assert "[proxies.fast]" in told


def test_an_empty_source_is_told_as_such(tmp_path):
    (tmp_path / "list.txt").write_text("# none yet\n", encoding="utf-8")

    assert "empty" in refusal(ProxyPool(file="list.txt"), tmp_path)
    assert "empty" in refusal(ProxyPool(env="LIST"), tmp_path, {"LIST": " , "})


def test_a_missing_file_and_a_variable_that_is_not_set_are_named(tmp_path):
    assert "proxies.fast.file" in refusal(ProxyPool(file="none.txt"), tmp_path)
    assert "proxies.fast.secret" in refusal(ProxyPool(secret="none.txt"), tmp_path)
    assert "variable LIST is not set" in refusal(ProxyPool(env="LIST"), tmp_path)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "list.txt").write_bytes(b"\xff\xfe\x00a" + PASSWORD.encode())

    assert "not UTF-8 text" in refusal(ProxyPool(file="list.txt"), tmp_path)


def test_a_pool_is_read_from_the_project_file_and_never_prints_its_secrets(tmp_path):
    (tmp_path / "gossamer.toml").write_text(
        f'[proxies.fast]\nurls = ["http://ann:{PASSWORD}@proxy.example:8080"]\ncooldown = "5m"\n', encoding="utf-8"
    )
    settings = load(start=tmp_path, environ={})

    (found,) = listed_proxies("fast", settings.proxies["fast"], tmp_path, {})

    assert found.password == PASSWORD
    assert PASSWORD not in repr(settings)
    assert PASSWORD not in repr(found) + found.name + found.address

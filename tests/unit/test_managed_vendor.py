"""A vendor's table: presets, another vendor without code, and clear words about what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.errors import Misconfigured
from gossamer.fetch.managed import PRESETS, Vendor, describe
from gossamer.project.settings_view import setting_lines
from gossamer.settings import load
from gossamer.settings.tables import Managed
from gossamer.units import Secret, setting_text
from tests.services.vendors import KEY

OTHER = """
[managed.acme]
url = "https://acme.example/v2"
key = "abcdefgh"
key_at = "header:Authorization"
key_prefix = "Bearer "
method = "POST"
send = "json"
path = "/extract"
url_param = "target"
body_at = "data.0.html"
status_at = "data.0.code"
cost_at = "header:x-credits"
"""


def described(folder: Path, text: str, name: str = "acme", **environ: str) -> Vendor:
    (folder / "gossamer.toml").write_text(text)
    settings = load(start=folder, environ={})
    return describe(name, settings.managed[name], environ=environ, root=folder)


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("mode", ["sync", "async", "batch"])
def test_a_preset_needs_an_address_and_a_key_and_no_more(tmp_path: Path, preset: str, mode: str) -> None:
    text = f'[managed.acme]\npreset = "{preset}"\nurl = "https://api.example.com/v1/"\nkey = "{KEY}"\nmode = "{mode}"'
    if preset == "scraperapi" and mode != "sync":
        with pytest.raises(Misconfigured, match=r"managed\.acme\.(submit|batch)_path"):
            described(tmp_path, text)
        return
    vendor = described(tmp_path, text)
    assert (vendor.base, vendor.key.reveal()) == ("https://api.example.com/v1", KEY)


def test_what_a_user_writes_wins_over_the_preset(tmp_path: Path) -> None:
    text = f'[managed.acme]\npreset = "scraperapi"\nkey = "{KEY}"\npath = "/v3"\nfailed_statuses = [599]'
    vendor = described(tmp_path, text)
    assert (vendor.base, vendor.table.path, vendor.table.url_param) == ("https://api.scraperapi.com", "/v3", "url")
    assert vendor.table.failed_statuses == (599,)


def test_another_vendor_is_a_dozen_lines(tmp_path: Path) -> None:
    vendor = described(tmp_path, OTHER)
    assert len(OTHER.strip().splitlines()) == 12
    assert (vendor.key_in, vendor.key_name) == ("header", "Authorization")
    assert vendor.body.path == ("data", "0", "html")


def test_the_key_may_come_from_a_variable_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text(f"{KEY}\n")
    shape = '[managed.acme]\npreset = "scraperapi"\n'
    assert described(tmp_path, shape + 'env = "ACME_KEY"', ACME_KEY=KEY).key.reveal() == KEY
    assert described(tmp_path, shape + 'secret = "key.txt"').key.reveal() == KEY


def test_the_key_does_not_print(tmp_path: Path) -> None:
    vendor = described(tmp_path, f'[managed.acme]\npreset = "scraperapi"\nkey = "{KEY}"')
    assert KEY not in repr(vendor) + str(vendor) + repr(load(start=tmp_path, environ={}).managed)


def test_fixed_parameters_do_not_print_for_a_token_may_be_among_them(tmp_path: Path) -> None:
    text = f'[managed.acme]\npreset = "scraperapi"\nkey = "{KEY}"\nextra = ["token=t0ken-2", "premium=true"]'
    vendor = described(tmp_path, text)
    settings = load(start=tmp_path, environ={})
    shown = {line.key: setting_text(line.value) for line in setting_lines(settings)}
    assert vendor.extra == (("token", "t0ken-2"), ("premium", "true"))
    assert "managed.acme.extra" in shown
    assert "t0ken-2" not in repr(vendor) + repr(settings.managed) + repr(shown)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"preset": "scraperapy"}, r"managed\.acme\.preset: must be one of scraperapi, finedata"),
        ({"mode": "later"}, r"mode: must be 'sync' or 'async' or 'batch'"),
        ({"url": ""}, r"url: is missing"),
        ({"url": "api.example.com"}, r"url: must be an address such as"),
        ({"url": "https://me:secret@api.example.com"}, r"url: must contain no user name"),
        ({"url": "https://api.example.com/?a=b"}, r"url: must contain no query"),
        ({"url": "http://127.0.0.1:8000"}, r"url: is a private.*allow_private = true"),
        ({"url": "http://localhost"}, r"url: is a private"),
        ({"url": "http://0x7f.1/"}, r"url: is a private"),
        ({"key": None}, r"key: is missing.*`env`.*`secret`"),
        ({"key": None, "env": "NOT_THERE"}, r"env: the variable NOT_THERE is not set"),
        ({"key": None, "secret": "/no/such/file"}, r"secret: the file /no/such/file cannot be read"),
        ({"key": "two words"}, r"key: contains a blank"),
        ({"key_at": "cookie:x"}, r"key_at: must be 'query:NAME' or 'header:NAME'"),
        ({"key_at": "header:a b"}, r"key_at: must be"),
        ({"method": "PUT"}, r"method: must be 'GET' or 'POST'"),
        ({"send": "form"}, r"send: must be 'query' or 'json'"),
        ({"method": "GET"}, r"send: a GET has no body"),
        ({"path": "scrape"}, r"path: must be a path"),
        ({"path": "/a/../b"}, r"path: must be a path"),
        ({"path": "/a?b=c"}, r"path: must be a path"),
        ({"path": "/{id}"}, r"path: must contain no braces"),
        ({"url_param": ""}, r"url_param: is missing"),
        ({"url_param": "a&b"}, r"url_param: must be the name"),
        ({"render_param": "=x"}, r"render_param: must be 'name' or 'name=value'"),
        ({"extra": (Secret("lonely"),)}, r"extra: must contain texts like 'name=value'"),
        ({"body_at": ""}, r"body_at: is missing.*'http:body'.*'data\.html'"),
        ({"body_at": "a..b"}, r"body_at: 'a\.\.b' is not understood"),
        ({"body_at": "header:x"}, r"body_at: 'header:x' is not understood here"),
        ({"status_at": "http:body"}, r"status_at: 'http:body' is not understood here"),
        ({"body_encoding": "rot13"}, r"body_encoding: must be 'text' or 'base64'"),
        ({"vendor_statuses": (200,)}, r"vendor_statuses: must contain only statuses between 300 and 599"),
        ({"country": "Germany!"}, r"country: must be a code"),
        ({"mode": "async"}, r"submit_path: must be a path"),
        ({"mode": "async", "submit_path": "/s", "job_path": "/jobs"}, r"job_path: must contain \{id\} once"),
        ({"mode": "async", "submit_path": "/s", "job_path": "/j/{id}"}, r"state_at: is missing"),
        (
            {"mode": "async", "submit_path": "/s", "job_path": "/j/{id}", "state_at": "s"},
            r"done_states: is missing",
        ),
        (
            {"mode": "async", "submit_path": "/s", "job_path": "/j/{id}", "state_at": "s", "done_states": ("d",)},
            r"job_id_at: is missing",
        ),
        ({"preset": "finedata", "mode": "batch", "batch_size": 101}, r"batch_size: must be 1 to 100"),
        (
            {"preset": "finedata", "mode": "batch", "callback_url": "https://me.example/hook"},
            r"callback_url: goes together with callback_listen",
        ),
        (
            {"preset": "finedata", "mode": "batch", "callback_listen": "8099"},
            r"callback_listen: must be an address and a port",
        ),
        (
            {
                "preset": "finedata", "mode": "batch", "callback_listen": "0.0.0.0:8099",
                "callback_url": "http://192.168.1.5/hook",
            },
            r"callback_url: is a private",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_what_is_allowed(change: dict[str, object], words: str) -> None:
    fields: dict[str, object] = {
        "url": "https://acme.example", "key": "abcdefgh", "key_at": "query:key", "method": "POST", "send": "json",
        "path": "/", "url_param": "url", "body_at": "html", **change,
    }  # fmt: skip
    fields["key"] = Secret(fields["key"] or "")
    with pytest.raises(Misconfigured, match=words):
        describe("acme", Managed(**fields), environ={})  # type: ignore[arg-type]


def test_a_misspelled_setting_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="body_at"):
        described(tmp_path, '[managed.acme]\nbodyat = "x"')

"""Settings: file, environment, flags, in that order; typed; wrong ones are told with the next step."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.errors import Misconfigured, UnknownSetting
from gossamer.settings import known_keys, load
from gossamer.units import Rate, Size, parse_duration, parse_rate, parse_size


def read(folder, text="", environ=None, **flags):
    if text:
        (folder / "gossamer.toml").write_text(text)
    return load(start=folder, environ=environ or {}, flags={key.replace("__", "."): v for key, v in flags.items()})


def test_a_domain_without_quotes_and_a_list_without_brackets_are_told_how_they_are_written(tmp_path):
    with pytest.raises(Misconfigured, match=r'write \[domains\."shop\.co\.example"\]'):
        read(tmp_path, "[domains.shop.co.example]\nrate = '1/s'")
    with pytest.raises(Misconfigured, match=r'Write it like allow_hosts = \["'):
        read(tmp_path, "[fetch]\nallow_hosts = 'a.test'")


def test_a_file_of_a_windows_editor_is_read(tmp_path):
    assert read(tmp_path, "\ufeff[crawl]\r\ndepth = 2\r\n").crawl.depth == 2


def test_later_sources_win_and_each_value_knows_its_source(tmp_path):
    settings = read(
        tmp_path,
        '[crawl]\nconcurrency = 5\ndepth = 2\nlimit = 9\n[fetch]\nmax_body = "1MB"',
        {"GOSSAMER_CRAWL__DEPTH": "3", "GOSSAMER_FETCH__ALLOW_HOSTS": "a.test, b.test"},
        crawl__limit=7,
    )
    assert (settings.crawl.concurrency, settings.crawl.depth, settings.crawl.limit) == (5, 3, 7)
    assert settings.fetch.allow_hosts == ("a.test", "b.test")
    assert settings.fetch.max_body == Size(1024 * 1024)
    assert settings.origins["crawl.concurrency"].endswith("gossamer.toml")
    assert settings.origins["crawl.depth"] == "GOSSAMER_CRAWL__DEPTH"
    assert settings.origins["crawl.limit"] == "command line"


def test_a_variable_with_one_underscore_for_two_is_told_its_setting(tmp_path):
    with pytest.raises(UnknownSetting, match=r"Did you mean GOSSAMER_CRAWL__LIMIT\?"):
        read(tmp_path, "", {"GOSSAMER_CRAWL_LIMIT": "3"})


def test_the_file_is_found_upwards_and_names_the_root(tmp_path):
    (tmp_path / "gossamer.toml").write_text('state = "sqlite:///x.db"')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    settings = load(start=inner, environ={})
    assert (settings.root, settings.state) == (tmp_path.resolve(), "sqlite:///x.db")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[crawl]\nconcurency = 5", "crawl.concurrency"),
        ("[polite]\nrate = '1/s'", "politeness.rate"),
        ("sate = 'sqlite:///x'", "state"),
        ("[domains.'a.test']\nrat = '1/s'", "rate"),
        ("rate = '1/s'", "Did you mean crawl.rate or politeness.rate"),
        ("concurrency = 5", r"Did you mean crawl\.concurrency or politeness\.concurrency"),
    ],
)
def test_an_unknown_setting_is_an_error_with_a_suggestion(tmp_path, text, words):
    with pytest.raises(UnknownSetting, match=words):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[politeness]\nrate = 'fast'", "5/s"),
        ("[fetch]\nread_timeout = 'soon'", "30s"),
        ("[fetch]\nmax_body = 'big'", "10MB"),
        ("[fetch]\ntotal_timeout = '0s'", "fetch.total_timeout .*more than 0"),
        ("[fetch]\nmax_redirects = -1", "0 or more"),
        ('[fetch]\nuser_agent = "me\\nX-Evil: 1"', "single line"),
        ("[crawl]\nconcurrency = 0", "1 or more"),
        ("[crawl]\nconcurrency = 'many'", "crawl.concurrency"),
        ("[urls]\ntrailing_slash = 'maybe'", "keep"),
        ("[crawl\nconcurrency = 1", "gossamer.toml"),
        ("[domains]\n'a.test' = 5", "table"),
        ("[domains.'a.test']\nwindows = '22:00-22:00'", r"domains\.a\.test\.windows \(.*gossamer.toml\): .*no length"),
        ("[domains.'a.test']\nwindows = ''", r"domains\.a\.test\.windows .*names no window"),
        ("[schedules.a]\nevery = '1h'\n[schedules.b]\nevery = 5", r'schedules\.b\.every .*Write it like every = "6h"'),
        ("[schedules.b]\nmin_age = '99999999999999d'", r"schedules\.b\.min_age .*too long; the longest .* 36525d"),
        ("state = 5", "Write it in quotes"),
        ('[channels.mail]\nkind = "email"\nsecurity = "none"', '"none" removes a limit'),
    ],
)
def test_a_wrong_value_says_which_setting_and_what_is_expected(tmp_path, text, words):
    with pytest.raises(Misconfigured, match=words):
        read(tmp_path, text)


def test_a_domain_table_overrides_for_that_site_and_globs_match(tmp_path):
    settings = read(
        tmp_path,
        '[domains."a.test"]\nrate = "1/m"\n[domains."*.test"]\nconcurrency = 9\nretry_base = "5s"',
    )
    assert settings.domain("a.test").rate == Rate(timedelta(minutes=1))
    assert settings.domain("b.test").concurrency == 9
    assert settings.domain("b.test").retry_base == timedelta(seconds=5)
    assert settings.domain("c.example").rate is None


def test_none_lifts_a_limit(tmp_path):
    assert read(tmp_path, "[crawl]\nmax_queued = 'none'").crawl.max_queued is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("500ms", 0.5), ("1h30m", 5400), ("7d", 604800), ("1.5s", 1.5)]
)
def test_durations_read_as_people_write_them(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


def test_rates_and_sizes_read_and_print_as_people_write_them():
    rates = ("5/s", "60/s", "150/s", "1.5/s", "30/m", "0.5/s", "10/h", "unlimited")
    assert [str(parse_rate(text)) for text in rates] == [
        "5/s", "60/s", "150/s", "1.5/s", "30/m", "30/m", "10/h", "unlimited",
    ]  # fmt: skip
    assert [str(parse_size(text)) for text in ("10MB", "512KiB", "1000", "1g")] == [
        "10MiB", "512KiB", "1000B", "1GiB",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="rate"):
        parse_rate("0/s")


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (parse_duration, "99999999999999d"),
        (parse_duration, "9" * 400 + "s"),
        (parse_rate, "9" * 400 + "/s"),
        (parse_rate, "0." + "0" * 20 + "1/d"),
        (parse_size, "9" * 400),
    ],
)
def test_measures_beyond_all_bounds_are_refused_in_a_short_line(read, text):
    with pytest.raises(ValueError, match=r"is too long|is not a usable rate|is too large") as refusal:
        read(text)
    assert len(str(refusal.value)) < 120


def test_every_setting_has_a_key():
    keys = known_keys()
    assert {"state", "records", "archive", "crawl.depth", "politeness.rate", "domains.<domain>.rate"} <= keys.keys()
    assert "root" not in keys


@pytest.mark.parametrize(
    ("text", "meant"), [("no", False), ("OFF", False), ("yes", True), ("1", True), ("false", False)]
)
def test_yes_and_no_are_read_from_the_environment_as_people_write_them(tmp_path, text, meant):
    assert load(start=tmp_path, environ={"GOSSAMER_POLITENESS__ROBOTS": text}).politeness.robots is meant


def test_a_variable_may_name_a_file_that_holds_the_value(tmp_path):
    secret = tmp_path / "records"
    secret.write_text("postgresql://me:hunter2@db/crawls\n")
    settings = load(
        start=tmp_path, environ={"GOSSAMER_RECORDS_FILE": str(secret), "GOSSAMER_FLEET__KEY_FILE": str(secret)}
    )

    assert settings.records == "postgresql://me:hunter2@db/crawls"
    assert settings.fleet.key.reveal() == settings.records
    assert settings.origins["records"] == "GOSSAMER_RECORDS_FILE"


def test_a_file_that_is_not_there_is_told_by_its_name_alone(tmp_path):
    with pytest.raises(
        Misconfigured, match=r"GOSSAMER_STATE_FILE names /nowhere/state, .* or set GOSSAMER_STATE itself"
    ):
        load(start=tmp_path, environ={"GOSSAMER_STATE_FILE": "/nowhere/state"})

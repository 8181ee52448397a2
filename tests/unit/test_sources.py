"""What users write becomes a source."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import Misconfigured
from gossamer.schedule.sources import (
    SOURCE_KEYS,
    CommandSource,
    FeedSource,
    FileSource,
    SitemapSource,
    StartSource,
    UrlSource,
    UrlsSource,
    believable,
    count_of,
    describe,
    parse_source,
    without_secrets,
)
from gossamer.schedule.sources.url_patterns import parse_pattern

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("date", "is_believed"),
    [(0.0, False), (NOW - 3600, True), (NOW, True), (NOW + 3600, True), (NOW + 2 * 86_400, False), (1e12, False)],
)
def test_a_date_of_a_site_is_believed_unless_it_cannot_be(date: float, is_believed: bool) -> None:
    assert believable(date, NOW) == (date if is_believed else None)


@given(st.integers(90, 110))
def test_a_command_with_a_long_name_is_told_in_a_hundred_letters(length: int) -> None:
    told = describe(CommandSource(argv=("x" * length, "secret")))
    assert "secret" not in told
    assert told.count("x") == (length if length <= 100 else 97)


# --- patterns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("https://x.example/", ["https://x.example/"]),
        ("/p/{1..3}", ["/p/1", "/p/2", "/p/3"]),
        ("/p/{3..1}/", ["/p/3/", "/p/2/", "/p/1/"]),
        ("/p/{008..010}", ["/p/008", "/p/009", "/p/010"]),
        ("/p/{1..03}", ["/p/01", "/p/02", "/p/03"]),
        ("/p/{1..10..4}", ["/p/1", "/p/5", "/p/9"]),
        ("/p/{10..1..4}", ["/p/10", "/p/6", "/p/2"]),
        ("/p/{-1..1}", ["/p/-1", "/p/0", "/p/1"]),
        ("/p/{7..7}", ["/p/7"]),
        ("/{a,b}/{1..2}", ["/a/1", "/a/2", "/b/1", "/b/2"]),
        ("/list{,?page=2}", ["/list", "/list?page=2"]),
    ],
)
def test_braces_stand_for_many_addresses(text: str, wanted: list[str]) -> None:
    pattern = parse_pattern(text)
    assert list(pattern) == wanted
    assert pattern.count == len(wanted)


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(1, 9), st.lists(st.sampled_from("abc"), min_size=2))
def test_count_is_the_number_of_addresses(first: int, last: int, step: int, words: list[str]) -> None:
    pattern = parse_pattern(f"/{{{first}..{last}..{step}}}-{{{','.join(words)}}}")
    made = list(pattern)
    assert len(made) == pattern.count
    assert [pattern.at(number) for number in range(pattern.count)] == made
    numbers = [int(url[1:].rpartition("-")[0]) for url in made[:: len(words)]]
    assert numbers == list(range(first, last + (1 if last >= first else -1), step if last >= first else -step))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/{id}", "neither a range nor a list"),
        ("/{1...5}", "neither a range nor a list"),
        ("/{1..5..0}", "steps of 0"),
        ("/{1..5,7}", "range 1..5 among words"),
        ("/{a,{b,c}}", "nested braces"),
        ("/{1..5", "never closed"),
        ("/1..5}", "without a {"),
        ("/{1..9999999999999999999}", "neither a range"),
        ("/{a,b}" * 11, "more than 10 pairs"),
        ("/" + "x" * 9_000, "longer than 8,192"),
    ],
)
def test_braces_that_mean_nothing_are_refused(text: str, words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        parse_pattern(text)


# --- what users write ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "source"),
    [
        ({}, StartSource()),
        ({"start": True}, StartSource()),
        ({"urls": "https://x.example/"}, UrlsSource(urls=("https://x.example/",))),
        (
            {"urls": [" https://x.example/{1..9} "], "max_urls": 9},
            UrlsSource(urls=("https://x.example/{1..9}",), max_urls=9),
        ),
        ({"file": "urls.txt"}, FileSource(path="urls.txt")),
        ({"file": "urls.CSV", "column": "link"}, FileSource(path="urls.CSV", form="csv", column="link")),
        ({"file": "urls.csv.GZ"}, FileSource(path="urls.csv.GZ", form="csv")),
        ({"file": "urls", "format": "jsonl"}, FileSource(path="urls", form="jsonl")),
        ({"command": ["ls", "-l"], "timeout": "30s"}, CommandSource(argv=("ls", "-l"), timeout=timedelta(seconds=30))),
        (
            {"command": "a | b", "shell": True, "max_output": "1MB"},
            CommandSource(argv=("/bin/sh", "-c", "a | b"), max_output=1024 * 1024),
        ),
        ({"sitemap": "HTTPS://x.example/s.xml#top"}, SitemapSource(url="https://x.example/s.xml")),
        ({"feed": "https://x.example/rss"}, FeedSource(url="https://x.example/rss")),
    ],
)
def test_table_becomes_a_source_that_can_be_stored(table: dict[str, Any], source: UrlSource) -> None:
    assert parse_source(table) == source
    assert msgspec.json.decode(msgspec.json.encode(source), type=UrlSource) == source
    assert describe(source)
    assert set(table) <= SOURCE_KEYS


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"url": ["https://x.example/"]}, "Did you mean urls?"),
        ({"zzz": 1}, "Known: column, command, feed, file"),
        ({"urls": ["https://x.example/"], "feed": "https://x.example/"}, "it has urls and feed. Choose one of urls"),
        ({"timeout": "5s"}, "timeout means nothing alone"),
        ({"urls": ["https://x.example/"], "timeout": "5s"}, "timeout does not go with urls, only with command"),
        ({"urls": []}, "urls is a list"),
        ({"urls": [1]}, "urls is a list"),
        ({"urls": ["x.example"]}, "Did you mean https://x.example"),
        ({"urls": ["x.example/{1..5}"]}, "Did you mean https://x.example/{1..5} ?"),
        ({"urls": ["/p/{1..5}"]}, "it names no site. Write the whole address, like https://shop.example/p/{1..5}"),
        ({"sitemap": "/sitemap.xml"}, "sitemap: '/sitemap.xml' is not a URL: it names no site."),
        ({"urls": ["http://user:hunter2@x.example/{a"]}, "'http://user:***@x.example/{a' has a { that is never closed"),
        ({"urls": ["ftp://x.example/{1..2}"]}, "only http and https"),
        ({"urls": ["https://x.example/{page}"]}, "neither a range"),
        ({"file": ""}, "file is a text"),
        ({"file": "a.txt", "column": "x"}, "column is for CSV"),
        ({"file": "a.txt", "format": "xml"}, "format is one of lines, csv, jsonl"),
        ({"command": "ls -l"}, "No shell reads it; if you want one, add shell = true"),
        ({"command": []}, "command is a list of words"),
        ({"command": ["a\0b"]}, "cannot be passed to a program"),
        ({"command": ["a"], "shell": True}, "with shell = true"),
        ({"command": ["a"], "shell": 1}, "true or false"),
        ({"command": ["a"], "timeout": "soon"}, "timeout: 'soon' is not a duration"),
        ({"command": ["a"], "timeout": "0s"}, "more than 0"),
        ({"command": ["a"], "max_output": "much"}, "is not a size"),
        ({"sitemap": "sitemap.xml"}, "sitemap: 'sitemap.xml' is not a URL"),
        ({"feed": 3}, "feed is a text"),
        ({"sitemap": "https://x.example/", "max_urls": 0}, "1 or more"),
        ({"start": False}, "start = true means"),
    ],
)
def test_table_that_makes_no_sense_is_refused_with_the_next_step(table: dict[str, Any], words: str) -> None:
    with pytest.raises(Misconfigured) as refusal:
        parse_source(table, "Schedule shop")
    assert words in str(refusal.value)
    assert str(refusal.value).startswith("Schedule shop: ")


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        (UrlsSource(urls=("http://user:hunter2@x.example/{1..9}",)), "http://user:***@x.example/{1..9} (9 URLs)"),
        (
            UrlsSource(urls=("http://hunter2@x.example/a@b", "http://y.example/")),
            "2 URLs, the first http://***@x.example/a@b",
        ),
        (CommandSource(argv=("psql", "--password=hunter2", "-c")), "output of psql"),
        (CommandSource(argv=("/bin/sh", "-c", "psql -p hunter2 | sort")), "output of a shell command (psql ...)"),
        (CommandSource(argv=("/bin/sh", "-c", "KEY=hunter2 psql | sort")), "output of a shell command"),
        (CommandSource(argv=("/bin/sh", "-c", "'hunter2'")), "output of a shell command"),
        (SitemapSource(url="https://user:hunter2@x.example/s.xml"), "sitemap https://user:***@x.example/s.xml"),
        (FeedSource(url="https://user:hun@ter2@x.example/rss"), "feed https://user:***@x.example/rss"),
    ],
)
def test_passwords_of_a_source_are_not_shown(source: UrlSource, shown: str) -> None:
    assert describe(source) == shown
    text = msgspec.json.encode(without_secrets(source)).decode()
    assert "hunter2" not in text
    assert "ter2" not in text
    assert type(msgspec.json.decode(text, type=UrlSource)) is type(source)


def test_range_of_a_billion_is_refused_with_its_number_and_not_made() -> None:
    with pytest.raises(Misconfigured, match=r"make 1,000,000,000 URLs in all; at most 10,000,000") as refusal:
        parse_source({"urls": ["https://x.example/{1..1000000000}"]})
    assert "raise max_urls" in str(refusal.value)
    with pytest.raises(Misconfigured, match=r"1,000,000,000,000,000,000,000,000"):
        parse_source({"urls": ["https://x.example/{1..1000000000000}/{1..1000000000000}"]})
    with pytest.raises(Misconfigured, match=r"would make 11 URLs"):
        parse_source({"urls": ["https://x.example/{1..6}", "https://y.example/{1..5}"], "max_urls": 10})
    assert count_of(parse_source({"urls": ["https://x.example/{1..9999999}", "https://y.example/"]})) == 10_000_000
    assert count_of(FileSource(path="x")) is None

"""A site against who crawls it: what it says becomes names of files, headers of requests, records of other formats.

Tried here:

- names of types and jobs that lead out of the folder of an output; words in braces that reach into objects
- values of a page that become a header by a recipe: line breaks, control characters, the name of a secret, megabytes
- JSON paths that reach into objects, or never end
- URLs and headers that begin a WARC record, or a header, of their own

Tried elsewhere: bombs, endless and lying servers (tests/conformance/test_transport*.py, tests/journey/test_bad_*.py,
tests/unit/test_fetch_body.py), robots.txt, sitemaps and feeds (tests/unit/test_fetch_robots.py,
test_sources_sitemaps.py, test_sitemaps.py, test_feeds.py), private addresses in every notation (tests/unit/
test_fetch_addresses.py, tests/conformance/test_transport_targets.py), logins that are written into addresses
(test_site_addresses.py), pages that never end a parser (tests/unit/test_*_hostile.py, tests/fuzz), text
on a terminal and in the dashboard (tests/unit/test_terminal_escapes.py, tests/server/ui/test_hostile_text.py), caches
that it fills (test_site_caches.py), memory in all (tests/journey/test_memory.py).
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from gossamer.errors import Misconfigured, ParseFailed
from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import PageFacts
from gossamer.project.records.export import destination_of
from gossamer.store.export.destination import named
from gossamer.store.warc import WarcWriter
from gossamer.units import discreet
from tests.unit.recipes import page_of, parsed, recipe

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    "word", ["..", ".", "...", "../x", "../../etc/cron.d/x", "a/../b", "/etc", "\\..\\x", "\n", "", "~"]
)
def test_no_name_leads_out_of_the_folder_of_an_output(tmp_path: Path, word: str) -> None:
    for template in ("{type}/items.jsonl", "{type}.jsonl", "{job}/{type}.csv"):
        filled = named(f"{tmp_path}/out/{template}", now=NOW, type=word, job=word)
        assert Path(filled).resolve().is_relative_to(tmp_path / "out")
        assert destination_of(filled, now=NOW).name.endswith((".jsonl", ".csv"))


@pytest.mark.parametrize("template", ["{type.__class__}", "{type!r}", "{0}", "{type[0]}", "{type:>99999999}"])
def test_words_in_braces_are_names_and_nothing_else(template: str) -> None:
    assert named(template, now=NOW, type="x") == template


def test_an_unknown_word_in_braces_is_refused() -> None:
    for template in ("{__class__}", "{}", "{env}", "{self}"):
        with pytest.raises(Misconfigured, match="is unknown"):
            named(template, now=NOW, type="x")


# -- recipes ---------------------------------------------------------------------------------------------------------

ASKS = """start = "https://shop.example/"
[pages.list]
follow = [{ css = "a", to = "thing", data = { token = "b" }, request = { headers = { "X-Token" = "{token}" } } }]
[pages.thing]
fields.title = "h1"
"""


@pytest.mark.parametrize("value", ["a\x01b", "a\x7fb", "x" * 100_000])
def test_a_value_that_no_header_can_carry_fails_its_page(value: str) -> None:
    with pytest.raises(ParseFailed):
        parsed(recipe(ASKS), page_of(f"<a href=/1>x</a><b>{value}</b>"))


@pytest.mark.parametrize("value", ["a&#13;&#10;X-Injected: 1", "a\r\nX-Injected: 1", "${SECRET}", "{token}"])
def test_a_value_of_a_page_is_one_line_and_names_no_secret(value: str) -> None:
    (request,) = parsed(recipe(ASKS), page_of(f"<a href=/1>x</a><b>{value}</b>")).requests
    assert request.headers is not None
    (line,) = request.headers.values()
    assert "\n" not in line
    assert "\r" not in line
    assert request.options().headers == (("X-Token", line),)  # a secret would be marked as one


@pytest.mark.parametrize(
    "path",
    ["$.__class__", "$..__init__", "$.a[?@.b.__class__]", "$.a.constructor", "$[?@.__globals__]", "$..['__dict__']"],
)
def test_a_json_path_reads_json_and_no_objects(path: str) -> None:
    rules = f'start = "https://shop.example/"\n[pages.thing]\nfields.x = {{ json = "{path}" }}\n'
    items = parsed(recipe(rules), page_of('{"a": [{"b": 1}]}', label="application/json"), "thing").items
    assert [item.x for item in items if item.x is not None] == []


# -- WARC ------------------------------------------------------------------------------------------------------------

RECORD = "WARC/1.1\r\nWARC-Type: response\r\nWARC-Target-URI: https://bank.example/\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("mark", ["\r\n", "\n", "\r", "\r\n\r\n", "\0\r\n", "\x0b\r\n", "\u2028", "\x85"])
def test_no_header_and_no_address_begins_a_record_or_a_header_of_its_own(mark: str) -> None:
    url = f"https://shop.example/{mark}{RECORD}"
    headers = Headers([("X-A", f"b{mark}Set-Cookie: c=d"), (f"X-B{mark}X-C", "d"), ("X-D", "e" * 1_000_000)])
    page = Snapshot(url=url, requested_url=url, status=200, headers=headers, body=RECORD.encode(), fetched_at=NOW)
    facts = PageFacts(fingerprint=b"1", url=url, job="j", fetched_at=NOW, status=200, failure=f"x{mark}{RECORD}")
    stream = io.BytesIO()
    writer = WarcWriter(stream, compressed=False)
    writer.info(f"pages{mark}{RECORD}.warc", "Gossamer")
    writer.page(page, facts)
    stream.seek(0)

    kinds, names = [], []
    for record in ArchiveIterator(stream):
        kinds.append(record.rec_type)
        if record.http_headers is not None:
            names += [name for name, _ in record.http_headers.headers]
    assert kinds == ["warcinfo", "response", "metadata"]
    assert names == ["X-A", "X-D", "Content-Length"]


HOSTILE_TEXTS = ["https:", "http:\\", "\\", "/", "//a:b", "//:", "http:/", "@//", "a", ":"]


@pytest.mark.parametrize("piece", HOSTILE_TEXTS)
@pytest.mark.parametrize("start", ["@", "@http:", "@//"])
def test_the_search_for_logins_in_a_text_reads_it_once(piece: str, start: str) -> None:
    """Every error passes it, on the event loop, and sites write into errors: a link of 100 KB took 46 s. A search that
    reads parts of the text again and again does not end within this test."""
    text = start + piece * (4_000_000 // len(piece))
    assert len(discreet(text)) <= 2 * len(text)

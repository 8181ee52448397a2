"""Structured data: what is mended, what is left out, and what a hostile page may cost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gossamer.extract.media import parse_html
from gossamer.extract.structured import extruct_data, json_ld_items, microdata_items, structured_data
from gossamer.extract.structured.facts import StatedFacts, json_ld_blocks
from gossamer.model.page import Headers, Snapshot
from gossamer.parse.page import Page

PAGE = "https://shop.example/dir/page"
SCHEMA = "http://schema.org/"
XSD = "http://www.w3.org/2001/XMLSchema#"


def blocks(*scripts: str) -> list[Any]:
    html = "".join(f'<script type="application/ld+json">{script}</script>' for script in scripts)
    return json_ld_blocks(parse_html(html.encode()))


def data(html: str) -> dict[str, Any]:
    return structured_data(StatedFacts(parse_html(html.encode()), PAGE))


# --- JSON-LD ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        '{"name": "a", "n": [1, 2]}',
        '{"name": "a", "n": [1, 2,],}',
        '// a note\n{"name": "a", /* one */ "n": [1, 2] // two\n}',
        '<!-- a note -->{"name": "a", "n": [1, 2]}',
        '<!--\n{"name": "a", "n": [1, 2]}\n-->',
        '//<![CDATA[\n{"name": "a", "n": [1, 2]}\n//]]>',
        '/*<![CDATA[*/{"name": "a", "n": [1, 2]}/*]]>*/',
        '{"name": "a", "n": [1, 2]};',
        '{"name": "a", "n": [1, 2]}}',
        'var data = {"name": "a", "n": [1, 2]} and words',
        "{&quot;name&quot;: &quot;a&quot;, &quot;n&quot;: [1, 2]}",
        '{"name": "a",, "n": [1, 2]}',
    ],
)
def test_broken_block_is_mended(script: str) -> None:
    assert blocks(script) == [{"name": "a", "n": [1, 2]}]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (r"Bob\'s", "Bob's"),
        (r"Bob\x27s", "Bob's"),
        (r"c:\videos", r"c:\videos"),
        (r"\u00e9 \\ \" \/", 'é \\ " /'),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("http://a.example/ // no comment <!-- none --> /* none */", None),
    ],
)
def test_strings_keep_their_meaning_when_a_block_is_mended(text: str, meant: str | None) -> None:
    assert blocks(f'{{"t": "{text}",}}') == [{"t": text if meant is None else meant}]


def test_values_one_after_the_other_are_all_kept() -> None:
    assert blocks('{"a": 1}{"b": 2}\n[{"c": 3}]') == [{"a": 1}, {"b": 2}, [{"c": 3}]]


def test_lists_at_the_top_are_opened_for_items_and_kept_for_blocks() -> None:
    document = parse_html(b'<script type="Application/LD+JSON; charset=utf-8">[{"a": 1}, null, {"b": 2}]</script>')
    assert json_ld_blocks(document) == [[{"a": 1}, None, {"b": 2}]]
    assert json_ld_items(StatedFacts(document, PAGE)) == [{"a": 1}, {"b": 2}]


def test_numbers_stay_numbers_and_what_is_no_number_is_none() -> None:
    assert blocks('{"a": 1, "b": 1.50, "c": "1.50", "d": NaN, "e": -Infinity}') == [
        {"a": 1, "b": 1.5, "c": "1.50", "d": None, "e": None}
    ]


@pytest.mark.parametrize(
    "script",
    [
        *("", "null", "{}", "[]", "12", '"text"', "hello world", '{"a": ', '{"a" 1}'),
        '{"a": ' + "9" * 5000 + "}",
        "[" * 20_000,
        '{"a":' * 3000 + "1" + "}" * 3000,
    ],
)
def test_block_without_meaning_is_left_out_and_others_stay(script: str) -> None:
    assert blocks(script, '{"sound": true}') == [{"sound": True}]


# --- microdata -------------------------------------------------------------------------------------------------------


def test_microdata_of_a_page_has_lists_of_values_and_absolute_addresses() -> None:
    found = data(
        """<div itemscope itemtype="http://schema.org/Product http://schema.org/Thing" itemid="urn:x">
        <img itemprop=image src=/a.png><img itemprop=image content=/b.png><a itemprop=url>nowhere</a>
        <span itemprop=price content=19.90>EUR 19,90</span><time itemprop=at>today</time>
        <p itemprop=text>One<script>hidden()</script><b>bold</b>, <i>two</i></p>
        <form itemprop=find itemscope><input itemprop=query-input name=q required></form></div>"""
    )
    assert found["microdata"] == [
        {
            "type": "http://schema.org/Product http://schema.org/Thing",
            "id": "urn:x",
            "properties": {
                "image": ["https://shop.example/a.png", "https://shop.example/b.png"],
                "url": [""],
                "price": ["19.90"],
                "at": ["today"],
                "text": ["One bold, two"],
                "find": [{"type": None, "properties": {"query-input": [{"valueRequired": True, "valueName": "q"}]}}],
            },
        }
    ]


def test_item_that_refers_to_itself_ends() -> None:
    document = parse_html(b"<div itemscope id=a itemref='a b'><b itemprop=n>x</b></div><i id=b itemprop=m>y</i>")
    assert microdata_items(document) == [{"properties": {"n": ["x", "x"], "m": ["y"]}}]


# --- Open Graph and <meta> -------------------------------------------------------------------------------------------


def test_first_meta_that_says_something_counts() -> None:
    found = data(
        """<meta property="og:title" content=""><meta property="og:title" content="T"><meta name="og:title" content="U">
        <meta name="Description" property="og:description" content="d"><meta http-equiv="Refresh" content="5">
        <meta property="og:image" content="/i.png"><meta property="product:price:amount" content="9">"""
    )
    assert found["opengraph"] == {"og:title": "T", "og:description": "d", "og:image": "https://shop.example/i.png"}
    assert found["meta"] == {"description": "d", "refresh": "5", "product:price:amount": "9"}


# --- all together ----------------------------------------------------------------------------------------------------


def test_page_knows_where_its_addresses_start() -> None:
    html = '<base href="/base/"><div itemscope itemtype="http://schema.org/A"><a itemprop=url href=x>x</a></div>'
    headers = Headers([("Content-Type", "text/html")])
    snapshot = Snapshot(url=PAGE, requested_url=PAGE, status=200, headers=headers, body=html.encode(), fetched_at=0.0)

    found = extruct_data(Page(snapshot), uniform=True)

    item = {"@type": "A", "@context": "http://schema.org", "url": "https://shop.example/base/x"}
    assert found["microdata"] == [item]
    assert extruct_data(None) == {name: [] for name in found}


HOSTILE = {
    "properties inside properties, microdata": "<div itemscope>" + "<b itemprop=x>" * 500 + "y" * 200_000,
    "references to the same again and again": "<div id=a>"
    + "<b itemprop=x>t</b>" * 1_000
    + "</div>"
    + "<p itemscope itemref='a a a a'></p>" * 2_000,
    "items inside items": "<div itemscope itemprop=q>" * 2_000,
    "prefixes without end": f'<html prefix="{"a" * 200_000}"><head prefix="{"a: " * 50_000}">'
    '<meta property="og:x" content=y>',
    "a comment that never ends": '<script type="application/ld+json">{' + "/*" * 20_000 + "</script>",
    "quotes that never match": '<script type="application/ld+json">{"a":1,,' + '"\\"' * 20_000 + "</script>",
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_page_gives_no_more_than_a_page_may(name: str) -> None:
    document = parse_html(HOSTILE[name].encode())

    found = json.dumps([structured_data(StatedFacts(document, PAGE)), extruct_data(document, PAGE)])

    assert len(found) < 30_000_000

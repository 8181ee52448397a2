"""The pages that come with the extruct library give the dictionaries that are expected beside them."""

from __future__ import annotations

import functools
import json
import tarfile
from collections.abc import Callable
from typing import Any

import pytest
from turbohtml import Document

from gossamer.extract.media import parse_html
from gossamer.extract.structured import (
    dublin_core,
    extruct_data,
    json_ld_items,
    microdata_items,
    open_graph,
)
from gossamer.extract.structured.facts import StatedFacts, json_ld_blocks
from tests.corpora import corpus

SONGKICK = "https://www.songkick.com/concerts/30166884-tove-styrke-at-hoxton-square-bar-and-kitchen"
ELYSIAN = "http://www.songkick.com/artists/236156-elysian-fields"

Reader = Callable[[Document], Any]

# RDFa is not read.
RDFA = {"misc/expanded_OG_support_test.json", "misc/Portfolio_Niels_Lubberman.json"}

# Expected files that are not compared, or not as a whole, each with the reason.
EXCEPTIONS = {
    "misc/microformat_test.json": "microformats are not read",
    "misc/microformat_flat_test.json": "microformats are not read",
    **dict.fromkeys(
        (
            "schema.org/CreativeWork_flat_with_node_id.001.json",
            "schema.org/product_custom_url_and_node_id.json",
            "w3c/microdata.5.2.flat.json",
            "w3c/microdata.5.2.withtext.json",
            "w3c/microdata.7.1.flat.json",
        ),
        "a form that is not given",
    ),
    "songkick/elysianfields_1.json": "its Open Graph uses prefixes of xmlns, which misc/opengraph_test.json forbids;"
    " all other parts are compared",
}


def _everything(*, base: str = "", uniform: bool = False, without: tuple[str, ...] = ()) -> Reader:
    """A file that holds all syntaxes. What it says of microformats is that there are none."""

    def read(document: Document) -> Any:
        found = extruct_data(document, base, uniform=uniform)
        return {name: value for name, value in found.items() if name not in without}

    return read


def _microdata(base: str = "", *, strict: bool = False) -> Reader:
    """The items in the form of extruct; `strict` gives lists even for one type and one value."""
    if strict:
        return lambda document: microdata_items(document, base)
    return lambda document: extruct_data(document, base)["microdata"]


def _json_ld_items(document: Document) -> Any:
    return json_ld_items(StatedFacts(document, ""))


def _open_graph(document: Document) -> Any:
    return open_graph(StatedFacts(document, ""))


def _pages(folder: str, names: str, ending: str, reader: Reader) -> dict[str, tuple[str, Reader]]:
    return {f"{folder}/{name}{ending}": (f"{folder}/{name}.html", reader) for name in names.split()}


CASES: dict[str, tuple[str, Reader]] = {
    **_pages("custom.invalid", "AllocateAction.001 JoinAction.001", ".jsonld", _json_ld_items),
    **_pages("custom.invalid", "JSONLD_with_JS_comment JSONLD_with_control_characters", ".jsonld", _json_ld_items),
    **_pages("custom.invalid", "JSONLD_with_control_characters_comment", ".jsonld", _json_ld_items),
    **_pages("schema.org.invalid", "AllocateAction.001 JoinAction.001", ".jsonld", _json_ld_items),
    **_pages("schema.org", "CreativeWork.001", ".jsonld", _json_ld_items),
    **_pages("misc", "null_ld_mock", ".jsonld", _json_ld_items),
    **_pages("songkick", "jsonld_empty_item_test", ".jsonld", _json_ld_items),
    **_pages("schema.org", "CreativeWork.001 Event.001 Event.002 Event.003 Event.004", ".json", _microdata()),
    **_pages("schema.org", "Event.008 LocalBusiness.002 LocalBusiness.003", ".json", _microdata()),
    **_pages("schema.org", "MusicRecording.001 SearchAction.001 product product-ref", ".json", _microdata()),
    **_pages("w3c", "microdata.4.2.data microdata.4.2.meter microdata.5.2", ".json", _microdata(strict=True)),
    **_pages("w3c", "microdata.4.2.strings microdata.4.2.strings.unclean", ".json", _microdata(strict=True)),
    **_pages("w3c", "microdata.5.3 microdata.5.5", ".json", _microdata(strict=True)),
    **_pages("w3c", "microdata.7.1", ".json", _microdata("http://blog.example.com/progress-report", strict=True)),
    **_pages("w3c", "microdata.object", ".json", _microdata("http://www.example.com/microdata/test", strict=True)),
    **_pages("websites", "microdata-with-description", ".json", _microdata()),
    **_pages("misc", "opengraph_test opengraph_ns_product_test", ".json", _open_graph),
    **_pages("misc", "dublincore_test", ".json", dublin_core),
    **_pages("songkick", "elysianfields", ".json", _everything(base=ELYSIAN)),
    **_pages("songkick", "elysianfields_1", ".json", _everything(base=ELYSIAN, without=("opengraph",))),
    **_pages("songkick", "tovestyrke", ".json", _everything(base=SONGKICK)),
    "schema.org/CreativeWork_flat.001.json": ("schema.org/CreativeWork.001.html", _everything(uniform=True)),
    "schema.org/product_custom_url.json": ("schema.org/product.html", _microdata("http://some-example.com")),
    "misc/opengraph_flat_test.json": (
        "misc/opengraph_test.html",
        lambda document: extruct_data(document, uniform=True)["opengraph"],
    ),
    # These three have blanks in their names. The last two keep the list that every block is.
    "songkick/Elysian Fields Brooklyn Tickets, The Owl Music Parlor, 31 Oct 2015.jsonld": (
        "songkick/Elysian Fields Brooklyn Tickets, The Owl Music Parlor, 31 Oct 2015.html",
        _json_ld_items,
    ),
    "songkick/Maxïmo Park Gigography, Tour History & Past Concerts.jsonld": (
        "songkick/Maxïmo Park Gigography, Tour History & Past Concerts.html",
        lambda document: {"items": json_ld_blocks(document)},
    ),
    "songkick/Years & Years Tickets, Tour Dates 2015 & Concerts.jsonld": (
        "songkick/Years & Years Tickets, Tour Dates 2015 & Concerts.html",
        lambda document: {"items": json_ld_blocks(document)},
    ),
}


@functools.cache
def _samples() -> dict[str, bytes]:
    with tarfile.open(corpus("extruct", "samples.tar.gz")) as archive:
        found = ((member.name, archive.extractfile(member)) for member in archive if member.isfile())
        return {name.removeprefix("tests/samples/"): file.read() for name, file in found if file is not None}


def _comparable(value: Any, *, names: frozenset[str] | None = None) -> Any:
    value = json.loads(json.dumps(value))
    if isinstance(value, dict) and names is not None:
        return {name: part for name, part in value.items() if name in names}
    return value


@pytest.mark.parametrize("expected", sorted(CASES))
def test_page_gives_what_is_expected(expected: str) -> None:
    page, read = CASES[expected]
    wanted = json.loads(_samples()[expected])

    found = read(parse_html(_samples()[page]))

    common = frozenset(found) & frozenset(wanted) if isinstance(found, dict) else None
    assert common is None or common
    assert _comparable(found, names=common) == _comparable(wanted, names=common)


def test_every_expected_file_is_compared_or_explained() -> None:
    expected = {name for name in _samples() if name.endswith((".json", ".jsonld"))}

    rdfa = {name for name in expected if name.startswith(("w3crdfa/", "wikipedia/")) or name in RDFA}
    assert expected - rdfa - set(CASES) - set(EXCEPTIONS) == set()
    assert len(expected) == 66


def test_no_page_of_the_set_breaks_anything() -> None:
    pages = {name: body for name, body in _samples().items() if name.endswith(".html")}
    assert len(pages) == 57

    for name, body in pages.items():
        found = extruct_data(parse_html(body), "http://www.example.com/")
        assert set(found) == {"json-ld", "microdata", "opengraph", "dublincore"}, name
        json.dumps(found)

"""Bytes become characters as browsers do it."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.extract.media import charset_label, decode, parse_html
from tests.corpora import corpus


def _cases(name: str) -> list[tuple[bytes, str]]:
    raw = corpus("html5lib-encoding", name).read_bytes()
    return [(data, label.decode()) for data, label in re.findall(rb"#data\n(.*?)\n#encoding\n(.*?)\n", raw, re.S)]


@pytest.mark.parametrize(("name", "count"), [("tests1.dat", 59), ("tests2.dat", 22), ("test-yahoo-jp.dat", 1)])
def test_sniffing_agrees_with_the_html5lib_cases(name: str, count: int) -> None:
    cases = _cases(name)
    assert len(cases) == count
    wrong = [(data[:80], label) for data, label in cases if decode(data)[1].lower() != label.lower()]
    assert wrong == []


FAR = b"<!-- " + b"x" * 1024 + b" -->"


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b"<meta charset=koi8-r>", "KOI8-R"),
        (b"<META CharSet = 'koi8-r' />", "KOI8-R"),
        (b'<html><head><meta name=a><meta charset="koi8-r">', "KOI8-R"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=koi8-r">', "KOI8-R"),
        (b"<meta content='a; charset = \"koi8-r\" x' http-equiv=content-type>", "KOI8-R"),
        (b'<meta content="text/html; charset=koi8-r">', "windows-1252"),  # it must say what it is
        (b'<meta http-equiv="refresh" content="text/html; charset=koi8-r">', "windows-1252"),
        (b"<!-- <meta charset=koi8-r> --><meta charset=gbk>", "GBK"),
        (b"<!--> <meta charset=koi8-r>", "KOI8-R"),  # that comment has ended
        (b"<p title='<meta charset=koi8-r>'><meta charset=gbk>", "GBK"),
        (b"<title><meta charset=koi8-r></title>", "KOI8-R"),  # nobody has parsed anything yet
        (b"<meta charset=utf-16>", "UTF-8"),  # or these words could not be read
        (b"<meta charset=x-user-defined>", "windows-1252"),
        (b"<meta charset=made-up><meta charset=koi8-r>", "KOI8-R"),
        (b"<metal charset=gbk><meta charset=koi8-r>", "KOI8-R"),
        (FAR + b"<meta charset=koi8-r>", "KOI8-R"),  # browsers begin again when they come to it
        (b"\xef\xbb\xbf<meta charset=koi8-r>", "UTF-8"),
        (b"\xff\xfe<\x00", "UTF-16LE"),
        (b"\xfe\xff\x00<", "UTF-16BE"),
    ],
)
def test_the_beginning_of_a_page_is_searched_for_its_charset(body: bytes, name: str) -> None:
    assert decode(body + b"\n<p>\xe9 \xc1")[1] == name


def test_the_one_html5lib_case_that_needs_a_script_is_read_as_without_it() -> None:
    """A script of the page writes its <meta>. Bytes alone cannot tell; a browser, asked with `render`, can."""
    ((data, label),) = _cases("scripted/tests1.dat")
    assert label == "iso-8859-2"
    assert decode(data)[1] == "windows-1252"


def test_chinese_text_without_a_label_is_known_by_its_look() -> None:
    text, name = decode(corpus("html5lib-encoding", "chardet/test_big5.txt").read_bytes())
    assert name == "Big5"
    assert text.startswith("老子《道德經》")


def test_label_of_the_header_beats_meta() -> None:
    body = b"<meta charset=iso-8859-2><p>\xe9"
    assert decode(body, "text/html; charset=windows-1251") == ("<meta charset=iso-8859-2><p>й", "windows-1251")


def test_byte_order_mark_beats_the_header_and_is_left_out() -> None:
    assert decode(b"\xef\xbb\xbf\xc3\xa9", "text/html; charset=latin1") == ("é", "UTF-8")
    assert decode("é".encode("utf-16"), "text/html; charset=utf-8") == ("é", "UTF-16LE")


def test_unknown_label_counts_as_none() -> None:
    assert decode(b"<meta charset=koi8-r>\xc1", 'text/html; charset="made-up"')[1] == "KOI8-R"


@pytest.mark.parametrize(
    ("label", "name"),
    [("latin1", "windows-1252"), ("UTF8", "UTF-8"), ("x-sjis", "Shift_JIS"), ("'ISO-8859-1'", "windows-1252")],
)
def test_labels_mean_what_they_mean_in_browsers(label: str, name: str) -> None:
    assert decode(b"abc", f"text/html;charset={label}")[1] == name


def test_unlabelled_bytes_are_judged_by_their_look() -> None:
    assert decode("Grüße aus Köln".encode()) == ("Grüße aus Köln", "UTF-8")
    text = "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 5
    assert decode(text.encode("windows-1251")) == (text, "windows-1251")


def test_wrong_label_gives_replacement_characters_and_no_error() -> None:
    assert decode(b"caf\xe9", "text/html; charset=utf-8") == ("caf\ufffd", "UTF-8")


def test_charset_is_found_among_other_parameters() -> None:
    assert charset_label('text/html; boundary=x; Charset = "utf-8"; q=1') == "utf-8"
    assert charset_label("text/html") is None


@given(st.binary(max_size=200), st.sampled_from(["", "text/html; charset=big5", "text/html; charset=utf-16"]))
def test_any_bytes_decode(body: bytes, content_type: str) -> None:
    text, name = decode(body, content_type)
    assert isinstance(text, str)
    assert name


def test_a_charset_that_is_no_text_is_ignored():
    text, encoding = decode("Käse".encode(), "text/html; charset=\udc80")
    assert (text, encoding) == ("Käse", "UTF-8")


def test_a_frame_in_noscript_that_is_closed_like_xml_does_not_hold_the_rest_of_the_page() -> None:
    tree = parse_html(b"<body><noscript><iframe src='//t.example/ns' /></noscript><p>text</p></body>")
    assert [paragraph.text for paragraph in tree.select("p")] == ["text"]


def test_frames_without_an_end_are_not_searched_again_and_again() -> None:
    began = time.thread_time()
    parse_html(b"<noscript><iframe " * 100_000)
    assert time.thread_time() - began < 10

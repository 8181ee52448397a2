"""A page that was written to keep the judgement busy does not: the work grows with the bytes, and stops in time.

Work is measured in CPU time, and only ever compared with other work of the same process. The bounds are wide: what
they are there for was ten to a thousand times over them.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from gossamer.fetch.contract import Response
from gossamer.routing import block_signs as signatures
from gossamer.routing.blocks import Block, judge

from .walls import answer, page

MEGABYTES = 10 * 1024 * 1024


def _work(what: Callable[[], object]) -> float:
    """CPU seconds; the best of three, because the machine has other things to do."""
    spent = []
    for _ in range(3):
        before = time.process_time()
        what()
        spent.append(time.process_time() - before)
    return min(spent)


def _of_judging(response: Response) -> float:
    return _work(lambda: judge(response))


# -- numbers that no character has ------------------------------------------------------------------------------


@pytest.fixture
def few_digits() -> Iterator[None]:
    """Python reads numbers of 4,300 digits, or of as few as its environment says. 640 is the fewest there is."""
    usual = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    yield
    sys.set_int_max_str_digits(usual)


@pytest.mark.parametrize("digits", [700, 3000, 5000, 100_000])
@pytest.mark.parametrize("place", ["<p>{}</p>", "<noscript>{}</noscript>"])
@pytest.mark.usefixtures("few_digits")
def test_a_character_with_thousands_of_digits_is_no_error(digits: int, place: str) -> None:
    assert judge(answer("<html><script></script>" + place.format("&#" + "9" * digits + ";") + "</html>")) is None


def test_a_character_with_more_digits_than_python_reads_is_no_error() -> None:
    assert judge(answer(b"<html><script></script>&#" + b"9" * 5000 + b";</html>")) is None


@pytest.mark.usefixtures("few_digits")
def test_a_letter_behind_a_thousand_zeros_is_still_a_letter() -> None:
    html = page(f"<p>&#{'0' * 1000}65;re you a robot?</p><script></script>", "Captcha")

    block = judge(answer(html))

    assert block == Block("captcha", "a check for humans, told by its title (status 200)", "proxy")


# -- patterns that would walk the same way again ----------------------------------------------------------------


def _patterns() -> dict[str, bytes]:
    found = {f"{sign.name}: {one!r}": one for sign in signatures.PAGES for one in sign.patterns}
    for name, thing in vars(signatures).items():
        if isinstance(thing, re.Pattern):
            found[name] = thing.pattern if isinstance(thing.pattern, bytes) else thing.pattern.encode()
    return found


def test_no_pattern_of_the_table_repeats_without_an_end() -> None:
    patterns = _patterns()
    assert len(patterns) > 100

    bare = {
        name: re.sub(rb"\[(?:\\.|[^\]])+\]", b"c", re.sub(rb"\\[^\]]", b"e", one)) for name, one in patterns.items()
    }

    assert [name for name, one in bare.items() if re.search(rb"[*+]|\{\d*,\}", one)] == []


ROOT = b'<html><div id="root"></div>'
RUNS = {
    "blanks after @type": (ROOT + b'<script>application/ld+json{"@type":', b" ", b"</script></html>"),
    "blanks after many beginnings": (
        ROOT + b"<script>" + b"application/ld+json{" * 3 + b'"@type":',
        b" ",
        b"</script>",
    ),
    "beginnings of data": (ROOT + b"<script>", b'application/ld+json{"@type":"', b"</script>"),
    "blanks after a type": (b"<title>log in</title><script>" + b"<input " * 60 + b"type", b" ", b"</script>"),
    "blanks after an id": (b"<script></script>" + b"<div " * 40 + b"id", b" ", b""),
    "blanks in a root": (b'<script></script><div id="app">', b" ", b"</div"),
    "blanks after a refresh": (b"<script></script>" + b"<meta " * 30 + b"http-equiv", b" ", b""),
    "roots": (b"<script></script>", b"<div id=app id=app ", b""),
    "comments in roots": (b"<script></script>", b"<div id=app><!-- -->", b""),
    "fields": (b"<title>log in</title><script></script>", b"<input type ", b""),
    "frames": (b"<title>captcha</title><script>", b"<iframe ", b"</script>"),
    "tags": (b"<title>captcha</title><script></script>", b"<", b""),
    "quotes": (ROOT + b'<script>application/ld+json{"@type":', b'"', b"</script>"),
    "references": (b"<title>captcha</title><script></script><noscript>", b"&amp;", b"</noscript>"),
    "zeros": (b"<title>captcha</title><script></script><noscript>&#", b"0", b"</noscript>"),
    "titles": (b"<script></script>", b"<title ", b""),
}


@pytest.mark.parametrize("name", RUNS)
def test_sixteen_times_the_bytes_are_not_many_times_the_work(name: str) -> None:
    begin, one, end = RUNS[name]
    few, many = (answer(begin + one * (size // len(one)) + end) for size in (4_000, 64_000))

    less, more = _of_judging(few), _of_judging(many)

    assert more <= 50 * max(less, 0.001), f"{less:.4f} s, then {more:.4f} s"  # a square would make it 256 times


@pytest.mark.parametrize("name", ["roots", "fields", "beginnings of data"])
def test_tags_that_are_nearly_a_sign_cost_little_more_than_others(name: str) -> None:
    begin, one, end = RUNS[name]
    near = answer(begin + one * (64_000 // len(one)) + end)
    far = answer(begin + b"<b class=kettle " * 4_000 + end)

    odd, dull = _of_judging(near), _of_judging(far)

    assert odd <= 20 * dull, f"{dull:.4f} s for others, {odd:.4f} s for these"


# -- bodies of ten megabytes ------------------------------------------------------------------------------------


def _asides(said: bytes) -> bytes:
    return b"<title>captcha</title>" + (b"<noscript>" + said + b"</noscript>") * 1990


HUGE: dict[str, Callable[[], bytes]] = {
    "tags under a calm title": lambda: b"<title>hello</title>" + b"<" * MEGABYTES,
    "tags under a hot title": lambda: b"<title>captcha</title>" + b"<" * MEGABYTES,
    "nearly scripts": lambda: b"<title>captcha</title>" + b"<scriptx" * (MEGABYTES // 8),
    "nearly asides": lambda: b"<title>captcha</title>" + b"<no" * (MEGABYTES // 3),
    "asides of references": lambda: _asides(b"&amp;" * 690),
    "asides of words": lambda: _asides(b"x" * 3400),
    "asides that nearly refuse": lambda: _asides(b"you don't have permission to access " * 96),
    "asides of tags": lambda: _asides(b"<" * 3400),
}


@pytest.mark.parametrize("name", HUGE)
def test_a_huge_body_costs_a_few_passes_over_its_bytes(name: str) -> None:
    body = HUGE[name]()
    response = answer(body)

    once, judged = _work(body.lower), _of_judging(response)

    assert judged <= 25 * once, f"{once:.4f} s for one pass, {judged:.4f} s for all"

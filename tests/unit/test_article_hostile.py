"""Pages that are made to hurt: they take their bounded time, and give what fits."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gossamer.extract.article import article_of, main_text, markdown
from gossamer.extract.article.outline import LONGEST_TEXT, MOST_NODES
from gossamer.extract.metadata import metadata_of
from tests.patience import PATIENCE

from .test_article import FIRST, SECOND, page_of

pytestmark = pytest.mark.long
MANY = "{}," * 50_000
PROSE = f"<p>{FIRST}</p><p>{SECOND}</p>"


@pytest.mark.parametrize(
    "body",
    [
        f"{'<div>' * 50_000}{PROSE}",
        f"{'<b><p>' * 5_000}{PROSE}",
        f"{PROSE}{'<h1>x</h1>' * 20_000}",
        f"{PROSE}<p>{'x<br><br>' * 20_000}",
        f"{PROSE}{'<figure><img src=data:x>' * 20_000}",
        f"{PROSE}<div class='{'ad-' * 50_000}'>x</div>",
        f"{PROSE}<pre>{' ' * 1_000_000}x</pre>",
        f"{PROSE}{'<hr>' * 50_000}",
        f"<script type='application/ld+json'>{'[' * 50_000}{']' * 50_000}</script>{PROSE}",
        f"<script type='application/ld+json'>{{\"@type\": \"Article\", \"author\": [{MANY}{{}}]}}</script>{PROSE}",
        f"{'<meta name=a content=b>' * 50_000}{PROSE}",
    ],
    ids=["deep", "crossed", "headings", "breaks", "pictures", "names", "spaces", "rules", "data", "authors", "metas"],
)  # fmt: skip
def test_a_text_is_found_beside_what_is_made_to_hurt(body: str) -> None:
    page = page_of(body)

    article = article_of(page)

    assert article is not None
    assert FIRST in article.text
    assert SECOND in article.markdown
    assert FIRST in markdown(page)
    assert metadata_of(page).authors == ()


def test_one_enormous_text_is_cut() -> None:
    page = page_of(b"<p>" + b"word, " * (2 * LONGEST_TEXT // 6))

    assert LONGEST_TEXT - 10 <= len(main_text(page)) <= LONGEST_TEXT
    assert len(markdown(page)) <= LONGEST_TEXT


def test_a_page_of_too_many_elements_is_read_as_far_as_it_goes() -> None:
    page = page_of(f"<main>{PROSE}<section>{'<i></i>' * MOST_NODES}</section><section>{PROSE}</section></main>")

    assert main_text(page) == f"{FIRST}\n\n{SECOND}"


SIZE = 10 * 1024 * 1024
PEAK = """
import resource, sys
from tests.unit.test_article import page_of
page = page_of(sys.argv[1].encode() * ({size} // len(sys.argv[1])))
page.css("title").get()
tree = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
getattr(page, sys.argv[2])()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - tree) // 1024)
"""


@pytest.mark.parametrize("what", ["article", "markdown"])
@pytest.mark.parametrize("piece", ["<p>a", "a<br>"])
def test_ten_megabytes_of_little_elements_take_little_more_memory_than_their_tree(piece: str, what: str) -> None:
    """In a process of its own, because memory does not shrink again. 280 to 1,300 MB without a bound."""
    program = PEAK.format(size=SIZE)
    done = subprocess.run(
        [sys.executable, "-c", program, piece, what], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert int(done.stdout or -1) < 150, done.stderr


ODD = ["//[x", "https://[::1", "http://[x]", "http://\u2100.example", "\\\\", "http://a:99999999/", "\x00"]


@pytest.mark.parametrize("address", ODD)
def test_addresses_that_are_none_hurt_no_parser(address: str) -> None:
    data = {"@type": "Product", "name": "Lamp", "url": address, "image": address, "offers": {"price": 5}}
    page = page_of(
        f"<base href='{address}'><link rel=canonical href='{address}'><meta property=og:url content='{address}'>"
        f"<script type='application/ld+json'>{json.dumps(data)}</script>"
        f"<h1>Lamp</h1>{PROSE}<a href='{address}'>x</a><a href='good'>y</a><img src='{address}'>"
    )
    for read in (page.article, page.product, page.metadata, page.markdown, page.links, page.tables, page.structured):
        read()
    assert "[y](http" in page.markdown()

"""Pages that are made to hurt: they take their bounded time, and give what fits."""

from __future__ import annotations

import pytest

from gossamer.parse.article import article_of, main_text, markdown
from gossamer.parse.article.outline import LONGEST_TEXT, MOST_NODES
from gossamer.parse.metadata import metadata_of

from .test_article import FIRST, SECOND, page_of

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

"""Articles of real pages, measured as the article-extraction set measures them."""

from __future__ import annotations

import pytest
from quality.article import SET, Match, cases, compare, measure, report, score_of

from gossamer.extract.article import main_text
from tests.corpora import corpus


def test_articles_of_real_pages_are_found() -> None:
    corpus("article-extraction")
    found = list(cases(every=3))
    assert len(found) >= 30

    score, _ = measure(found, main_text)

    assert score.f1 >= 0.97
    assert min(score.precision, score.recall) >= 0.96


@pytest.mark.long
def test_the_report_names_ours_beside_others() -> None:
    lines = report()

    if SET.is_dir():
        assert any(line.startswith("gossamer") for line in lines)
        assert any(line.startswith("go-trafilatura") and "0.960" in line for line in lines)
    else:
        assert str(SET) in lines[0]


def test_runs_of_four_words_are_what_is_compared() -> None:
    assert compare("a b c d e", "a b c d e") == Match(1.0, 0.0, 0.0)
    assert compare("a b c d", "e f g h") == Match(0.0, 0.5, 0.5)
    assert compare("a b c d e", "a b c d") == Match(0.5, 0.0, 0.5)
    assert compare("a b c d", "") == Match(0.0, 0.5, 0.5)


def test_precision_and_recall_are_averages_over_pages() -> None:
    score = score_of([Match(1.0, 0.0, 0.0), Match(0.5, 0.0, 0.5)])

    assert (score.precision, score.recall) == (1.0, 0.75)
    assert score.f1 == pytest.approx(2 * 0.75 / 1.75)
